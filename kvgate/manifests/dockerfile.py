"""Dockerfiles: the server that the image of the last stage starts (Dockerfile reference, frontend 1.x).

``RUN`` is not followed: what runs while an image is built serves nobody.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final

from kvgate.manifests.container import Container, beside, environment_of, find_requirement
from kvgate.manifests.entrypoint import is_other_program
from kvgate.manifests.launch import find_starts
from kvgate.manifests.tree import Tree
from kvgate.manifests.unit import ServeUnit, Unread
from kvgate.records import record
from kvgate.shell.expand import unset
from kvgate.shell.value import Value
from kvgate.shell.words import split_words
from kvgate.source.text import SourceFile, Span, Text, TooLargeError, Word
from kvgate.source.yaml_tree import Scalar, Sequence, parse_embedded

KIND: Final = "dockerfile"
MAX_INSTRUCTIONS: Final = 2_000
MAX_STAGES: Final = 100

_INSTRUCTION: Final = re.compile(r"[ \t]*(?P<name>[A-Za-z]+)(?:[ \t]+|(?=\\)|$)")
_HEREDOC: Final = re.compile(r"<<-?[\"']?(?P<end>[A-Za-z_]\w*)[\"']?")


@record
class _Instruction:
    name: str
    text: Text  # what follows the name, continued lines joined
    span: Span
    document: Text | None = None  # its here documents, to the end of the last one


@record
class Image:
    """The configuration of an image as a Dockerfile makes it.

    Attributes:
        base: the image it rests on in the end.
        entrypoint, command: words; None where neither this file nor an earlier stage gives them.
        copies: (path in the build context, path in the image).
        files: texts of scripts that the Dockerfile itself writes, by their path in the image.
        span: the instruction that says what is run, else that of the base image.
    """

    base: Word
    span: Span
    entrypoint: tuple[Word, ...] | None = None
    command: tuple[Word, ...] | None = None
    environment: Mapping[str, Value] = field(default_factory=dict)
    spans: Mapping[str, Span] = field(default_factory=dict)
    copies: tuple[tuple[str, str], ...] = ()
    folder: str = "/"
    installs: tuple[Text, ...] = ()
    files: Mapping[str, Value] = field(default_factory=dict)


def read_dockerfile(tree: Tree, file: SourceFile) -> Iterator[ServeUnit | Unread]:
    """The serve unit of the image that a Dockerfile builds, if it says what is run."""
    image = image_of(file)
    if image is None or (image.entrypoint is None and image.command is None):
        return
    entrypoint, command = image.entrypoint, image.command or ()
    if entrypoint == ():
        entrypoint, command = command, ()  # an empty one clears that of the base image
    container = Container(
        command=entrypoint or None,
        arguments=command,
        image=image.base,
        environment=image.environment,
        span=image.span,
        named=_is_named(file, image),
        accelerated=True,
        find=copied(tree, file, image),
        serves=True,
        tree=tree,
    )
    try:
        starts = find_starts(container)
    except TooLargeError as error:
        yield Unread(f"{error} is not read", image.span, serves=True)
        return
    for number, start in enumerate(starts):
        yield ServeUnit(
            id=f"{file.path}/{KIND}" + (f"/{number + 1}" if number else ""),
            path=file.path,
            span=image.span,
            kind=KIND,
            name=posixpath.basename(posixpath.dirname(file.path)) or file.path,
            container=None,
            namespace=None,
            words=start.words,
            positional_model=start.positional_model,
            entry=start.entry,
            image=image.base,
            environment=environment_of(image.environment, image.spans, start.environment),
            gpu_requests=(),
            node_hints=(),
            replicas=None,
            annotations={},
            shared_memory=None,
            node=None,
            document=None,
            storage_model=start.storage_model,
            notes=start.notes,
            requirement=find_requirement(image.installs),
        )


def _is_named(file: SourceFile, image: Image) -> bool:
    """Whether a path says vLLM, and neither the file's name nor the program's one of those around it."""
    programs = [word.value for word in (*(image.entrypoint or ()), *(image.command or ()))]
    names = (posixpath.basename(file.path), *(name for name in programs if name.endswith((".py", ".sh"))))
    return "vllm" in file.path.lower() and not any(map(is_other_program, names))


def image_of(file: SourceFile, target: str | None = None, given: Mapping[str, Value] | None = None) -> Image | None:
    """The image of a stage (by its name or number), by default of the last one; None where there is none.

    Args:
        given: build arguments, which win over the defaults of the file.
    """
    return _image(_instructions(file), target, given or {})


def image_of_text(text: Text, target: str | None = None, given: Mapping[str, Value] | None = None) -> Image | None:
    """The same for a Dockerfile that stands in another file."""
    return _image(_instructions_of_text(text), target, given or {})


def _image(instructions: Iterator[_Instruction], target: str | None, given: Mapping[str, Value]) -> Image | None:
    stages: dict[str, Image] = {}
    current: Image | None = None
    name = ""
    arguments: dict[str, Value] = {}
    number = -1
    for instruction in instructions:
        if instruction.name == "FROM":
            if current is not None and target in (name, str(number)) and target is not None:
                return current
            number += 1
            if number > MAX_STAGES:
                return None
            current, name = _stage(instruction, stages, arguments)
        elif current is None:
            if instruction.name == "ARG":
                _declare(instruction, arguments, given)
            continue
        else:
            current = _changed(current, instruction, arguments, given)
        if current is not None:
            stages[name or str(number)] = stages[str(number)] = current
    return current if target is None else stages.get(target)


def copied(tree: Tree, file: SourceFile, image: Image, context: str | None = None) -> _Copied:
    """Looks up files of the image that it copies from the build context (by default the Dockerfile's folder)."""
    return _Copied(tree, file, image, posixpath.dirname(file.path) if context is None else context)


class _Copied:
    def __init__(self, tree: Tree, file: SourceFile, image: Image, context: str) -> None:
        self.tree = tree
        self.image = image
        self.context = context
        self.beside = beside(tree, file)

    def __call__(self, path: str) -> Value | None:
        full = posixpath.normpath(posixpath.join(self.image.folder, path))
        if full in self.image.files:
            return self.image.files[full]
        for source, target in reversed(self.image.copies):
            place = _place_of(full, source, target, self.image.folder)
            if place is None:
                continue
            for base in dict.fromkeys((self.context, posixpath.dirname(self.context), "")):
                found = self.tree.use(posixpath.join(base, place))
                if found is not None:
                    return Value(Text.of_span(found.span(0, len(found.text))))
        return None


def _place_of(path: str, source: str, target: str, folder: str) -> str | None:
    """Where in the build context a path of the image comes from, by one ``COPY``."""
    into = target.endswith("/") or target in (".", "./")
    target = posixpath.normpath(posixpath.join(folder, target))
    source = source.removeprefix("./").lstrip("/") or "."
    if path == target:
        return source
    inside = posixpath.relpath(path, target) if path.startswith(target.rstrip("/") + "/") else None
    if inside is None:
        return None
    if into and inside == posixpath.basename(source):
        return source
    return inside if source == "." else posixpath.join(source, inside)


# -- stages ------------------------------------------------------------------------------------------------------------


def _stage(
    instruction: _Instruction, stages: Mapping[str, Image], arguments: Mapping[str, Value]
) -> tuple[Image | None, str]:
    words = [word for word in split_words(_expanded(instruction.text, arguments)) if not word.value.startswith("--")]
    if not words:
        return None, ""
    name = words[2].value if len(words) > 2 and words[1].value.lower() == "as" else ""
    earlier = stages.get(words[0].value)
    if earlier is not None:
        return earlier, name
    return Image(words[0], instruction.span), name


def _changed(image: Image, instruction: _Instruction, arguments: dict[str, Value], given: Mapping[str, Value]) -> Image:
    from dataclasses import replace

    text = instruction.text
    if instruction.name == "ENTRYPOINT":
        # an entry point of one's own forgets the command of the base image
        return replace(image, entrypoint=_words(text), command=None, span=instruction.span)
    if instruction.name == "CMD":
        span = instruction.span if image.entrypoint is None else image.span
        return replace(image, command=_words(text), span=span)
    if instruction.name == "ENV":
        values, spans = dict(image.environment), dict(image.spans)
        for name, value, span in _pairs(text, {**arguments, **values}):
            values[name], spans[name] = value, span
        return replace(image, environment=values, spans=spans)
    if instruction.name == "ARG":
        _declare(instruction, arguments, given)
    elif instruction.name == "WORKDIR":
        place = _expanded(text, {**arguments, **image.environment}).value.strip()
        return replace(image, folder=posixpath.join(image.folder, place))
    elif instruction.name in ("COPY", "ADD"):
        known = {**arguments, **image.environment}
        copies = tuple(_copies(_expanded(text, known)))
        if instruction.document is not None and len(copies) == 1 and copies[0][0].startswith("<<"):
            place = posixpath.normpath(posixpath.join(image.folder, copies[0][1]))
            return replace(image, files={**image.files, place: _document(instruction, known)})
        return replace(image, copies=(*image.copies, *copies))
    elif instruction.name == "RUN":
        files = _files(instruction, {**arguments, **image.environment}, image)
        return replace(image, installs=(*image.installs, text), files=files)
    return image


def _document(instruction: _Instruction, known: Mapping[str, Value]) -> Value:
    """The text of the here document of a ``COPY``; its variables are the build's, unless its mark is quoted."""
    assert instruction.document is not None
    whole = instruction.document
    body = whole.slice(0, max(whole.value.rstrip().rfind("\n"), 0))
    quoted = re.search(r"<<-?[\"']", instruction.text.value) is not None
    return Value(body) if quoted else _expanded(body, known)


_WRITES: Final = re.compile(r">[ \t]*[\w/.~$\"']|\btee\b")


def _files(instruction: _Instruction, known: Mapping[str, Value], image: Image) -> Mapping[str, Value]:
    """The scripts in an image after a ``RUN`` that may write some."""
    text = instruction.text
    if instruction.document is not None:
        text = Text.join([text, Text.at("\n", text.slice(0, 0).span), instruction.document])
    if not _WRITES.search(text.value) or not re.search(r"serve|vllm", text.value):
        return image.files
    from kvgate.shell.script import files

    try:
        found = files(text, known, image.files)
    except TooLargeError:
        return image.files
    return {posixpath.normpath(posixpath.join(image.folder, path)): value for path, value in found.items()}


def _words(text: Text) -> tuple[Word, ...]:
    """``["a", "b"]`` as it is; anything else is a script for ``/bin/sh -c``."""
    stripped = text.value.strip()
    if stripped.startswith("["):
        documents = parse_embedded(text).documents
        if documents and isinstance(documents[0], Sequence):
            return tuple(Word(item.text) for item in documents[0].items if isinstance(item, Scalar))
    return (Word(Text.at("/bin/sh", text.span)), Word(Text.at("-c", text.span)), Word(text))


def _declare(instruction: _Instruction, arguments: dict[str, Value], given: Mapping[str, Value]) -> None:
    for word in split_words(_expanded(instruction.text, arguments)):
        name, equals, rest = word.value.partition("=")
        if name in given:
            arguments[name] = given[name]
            if equals and not given[name].resolved:
                # whatever it is given, the default says what kind of thing it is
                default = word.text.slice(len(word.value) - len(rest), len(word.value))
                arguments[name] = Value.unknown(default, given[name].holes[0].unresolved.reason, splits=False)
        elif equals:
            arguments[name] = Value(word.text.slice(len(word.value) - len(rest), len(word.value)))
        elif name not in arguments:
            arguments[name] = Value.unknown(word.text, f"the build argument {name} has no default", splits=False)


def _pairs(text: Text, known: Mapping[str, Value]) -> Iterator[tuple[str, Value, Span]]:
    """``A=b C="d e"``, or the old ``A b c``."""
    match = re.match(r"\s*([A-Za-z_]\w*)[ \t]+(?!=)", text.value)
    if match:
        value = _expanded(text.slice(match.end(), len(text)), known)
        end = len(value.value.rstrip())
        yield match.group(1), value.slice(0, end), text.span
        return
    for word in split_words(_expanded(text, known)):
        name, equals, rest = word.value.partition("=")
        if equals:
            whole = Value(word.text) if word.resolved else _with_holes(word)
            yield name, whole.slice(len(word.value) - len(rest), len(word.value)), word.span


def _with_holes(word: Word) -> Value:
    from kvgate.shell.value import value_of_word

    return value_of_word(word)


def _expanded(text: Text, known: Mapping[str, Value]) -> Value:
    from kvgate.shell.expand import interpolate

    return interpolate(text, known, reason=unset)


def _copies(value: Value) -> Iterator[tuple[str, str]]:
    if value.value.lstrip().startswith("["):
        documents = parse_embedded(value.text).documents
        items = documents[0].items if documents and isinstance(documents[0], Sequence) else []
        words = [item.value for item in items if isinstance(item, Scalar)]
    else:
        found = split_words(value)
        if any(word.value.startswith("--from") for word in found):
            return  # of another stage or image, not of the build context
        words = [word.value for word in found if not word.value.startswith("--")]
    for source in words[:-1]:
        yield source, words[-1] if len(words) == 2 else words[-1].rstrip("/") + "/"


# -- lines -------------------------------------------------------------------------------------------------------------


def _instructions(file: SourceFile) -> Iterator[_Instruction]:
    lines = list(_lines(file))
    escape = "\\"
    directive = re.match(r"\s*#\s*escape\s*=\s*(\S)", file.text)
    if directive:
        escape = directive.group(1)
    at = count = 0
    while at < len(lines) and count < MAX_INSTRUCTIONS:
        start, end = lines[at]
        at += 1
        match = _INSTRUCTION.match(file.text, start, end)
        if not match or file.text[start:end].lstrip().startswith("#"):
            continue
        count += 1
        parts: list[Text] = []
        begin, stop = match.end(), end
        while True:
            body = file.text[begin:stop].rstrip()
            continued = body.endswith(escape)
            parts.append(Text.of_span(Span(file, begin, begin + len(body) - continued)))
            if not continued:
                break
            # comments and empty lines inside a continued instruction do not count
            while at < len(lines) and re.match(r"\s*(?:#|$)", file.text[lines[at][0] : lines[at][1]]):
                at += 1
            if at >= len(lines):
                break
            begin, stop = lines[at]
            at += 1
            parts.append(Text.at(" ", Span(file, begin, begin)))
        text = Text.join(parts)
        first = at
        for heredoc in _HEREDOC.finditer(text.value):
            while at < len(lines) and file.text[lines[at][0] : lines[at][1]].strip() != heredoc["end"]:
                at += 1
            at += 1
        document = None
        if at > first:
            document = Text.of_span(Span(file, lines[first][0], lines[min(at, len(lines)) - 1][1]))
        span = Span(file, match.start("name"), max(stop, match.end()))
        yield _Instruction(match["name"].upper(), text, span, document)


_LINES: Final = re.compile(
    r"(?m)^[ \t]*(?!#)(?P<name>[A-Za-z]+)[ \t]+(?P<rest>(?:[^\n]*\\[ \t]*\n(?:[ \t]*#[^\n]*\n)*)*[^\n]*)"
)


def _instructions_of_text(text: Text) -> Iterator[_Instruction]:
    at = count = 0
    while count < MAX_INSTRUCTIONS and (match := _LINES.search(text.value, at)) is not None:
        count += 1
        parts: list[Text] = []
        begin, at = match.start("rest"), match.end()
        for line in match["rest"].split("\n"):
            end = begin + len(line)
            if not line.lstrip().startswith("#"):
                body = line.rstrip().removesuffix("\\")
                parts += [text.slice(begin, begin + len(body)), text.slice(end, end + 1)]
            begin = end + 1
        joined = Text.join(parts[:-1])
        span, first = text.slice(match.start("name"), at).span, at
        for heredoc in _HEREDOC.finditer(joined.value):
            ending = re.compile(rf"(?m)^[ \t]*{heredoc['end']}[ \t]*$").search(text.value, at)
            at = ending.end() if ending is not None else len(text)
        document = text.slice(first + 1, at) if at > first + 1 else None
        yield _Instruction(match["name"].upper(), joined, span, document)


def _lines(file: SourceFile) -> Iterator[tuple[int, int]]:
    starts = file.line_starts
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(file.text)
        yield start, start + len(file.text[start:end].rstrip("\r\n"))
