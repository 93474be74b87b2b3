"""Commands under keys that say so, in YAML, JSON and TOML that no other reader knows.

Tasks of Ansible and Taskfile, steps of pipelines, ``runcmd`` of cloud-init, ``start_command`` of a hosting service,
``scripts`` of a package.json, ``module`` and ``args`` of an editor's launch.json: the key of a command line says what
it is, whatever stands around it. What is no start of vLLM by its own words is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, Literal

from kvgate.manifests.container import Container, Find, Start, beside, find_requirement
from kvgate.manifests.entrypoint import takes_engine_arguments
from kvgate.manifests.launch import find_starts, starts_of_commands, starts_of_script
from kvgate.manifests.started import Surroundings, is_launcher_to_be, unit_of
from kvgate.manifests.tree import Tree, entries_at, node_at, scalar_at
from kvgate.manifests.unit import GpuRequest, NodeHint, ServeUnit, Unread
from kvgate.records import record
from kvgate.shell.expand import mark_placeholders
from kvgate.shell.template import FORMAT_FIELD
from kvgate.shell.value import Hole, Value
from kvgate.shell.words import split_words
from kvgate.source.text import SourceFile, Text, TooLargeError, Unresolved, Word
from kvgate.source.yaml_tree import (
    MAX_EXPANDED_NODES,
    Mapping,
    Node,
    Scalar,
    Sequence,
    is_null,
    scalar_bool,
    scalar_int,
)

KIND: Final = "command"

# Keys of command lines, without blanks, dashes and underscores, in lower case; of several lines where they are lists.
_LINES: Final = frozenset(
    {
        "afterscript", "bash", "beforescript", "bootcmd", "cmds", "commands", "customdata", "inline", "inlinescript",
        "metadatastartupscript", "powershell", "raw", "run", "runcmd", "script", "scripts", "sh", "shell",
        "startupscript", "userdata", "userdatabase64",
    }
)  # fmt: skip
# Keys whose list is one command and its arguments.
_ARGV: Final = frozenset(
    {
        "argv", "cmd", "command", "dockercommand", "dockerstartcmd", "entrypoint", "exec", "execstart", "runcommand",
        "servercmd", "servercommand",
        "startcmd", "startcommand", "startupcommand",
    }
)  # fmt: skip
# Keys of mappings that name command lines (package.json, Pixi, PDM, Hatch; Fly), but for those that say it themselves.
_NAMED: Final = frozenset({"processes", "scripts", "tasks"})
# Keys of a program whose arguments stand beside it, and of these.
_PROGRAMS: Final = ("module", "program", "command", "cmd", "entrypoint")
_ARGUMENTS: Final = ("args", "arguments")
# Keys of a container's image, in services of pipelines and of hosts (RunPod's templates), and of what it is given.
_IMAGES: Final = ("image", "name", "imageName")
_ENTRY_POINTS: Final = ("entrypoint", "dockerEntrypoint")
_GIVEN: Final = (*_ENTRY_POINTS, "command", "cmd", "args", "dockerArgs", "dockerStartCmd")
# Where services describe the machine that runs the command: its table, how many GPUs it has, and which.
_MACHINES: Final = ((("cerebrium", "hardware"), "gpu_count", "compute"), (("vm",), "gpus", "gpu_kind"))
# Keys of files that are written out, and of the mappings that hold variables.
_CONTENT: Final = frozenset({"content", "contents"})
_VARIABLES: Final = frozenset({"env", "environment", "envs", "environmentvariables", "variables", "vars"})
# Parts of the commands of llama-swap, by their names.
_MACROS: Final = ("macros",)
# A mapping beside a command, and how a command refers to its entries (Python's ``str.format``: recipes for DGX Spark).
_DEFAULTS: Final = "defaults"
_FORMAT: Final = re.compile(r"(?<![{$])\{(?P<name>[A-Za-z_]\w*)\}|\{\{|\}\}")
_REFERENCE: Final = re.compile(r"\{\{-?\s*\.?(?P<name>[A-Za-z_]\w*)\s*(?:\|\s*quote\s*)?-?\}\}")


_UNIT: Final = re.compile(r"(?m)^[ \t]*\[(?:Service|Container)\][ \t]*\r?$")


@record
class _Found:
    """A command, the keys that lead to it, the variables around it, and how it is written."""

    node: Node
    keys: tuple[str, ...]
    variables: dict[str, Value]
    form: Literal["lines", "words", "unit file", "container"]
    defaults: Node | None = None
    words: tuple[Text, ...] = ()
    image: Scalar | None = None

    def texts(self) -> Iterable[Text]:
        """Its words, or its lines."""
        return self.words or _texts(self.node)


def read_keyed_commands(
    tree: Tree, file: SourceFile, document: Node, keys: tuple[str, ...] = ()
) -> Iterator[ServeUnit | Unread]:
    """The servers that the commands of a document, or of a part to which these keys lead, start."""
    try:
        yield from _read(tree, file, document, keys)
    except TooLargeError as error:
        yield Unread(f"the rest of {error} is not read", document.span, serves=True)


def _read(tree: Tree, file: SourceFile, document: Node, keys: tuple[str, ...]) -> Iterator[ServeUnit | Unread]:
    names: dict[str, int] = {}
    devices, hints = _machine(document)
    macros = {entry.key.value: entry.value for entry in entries_at(document, *_MACROS)}
    for found in _commands(document):
        if found.form == "unit file":
            from kvgate.manifests.systemd import read_systemd

            texts = list(found.texts())
            yield from read_systemd(tree, file, _filled(Value(texts[0]), found.variables))
            continue
        try:
            starts = [start for start in _starts(tree, file, found, macros) if not is_launcher_to_be(start)]
        except TooLargeError as error:
            yield Unread(f"{error} is not read", found.node.span, serves=True)
            continue
        name = ".".join((*keys, *found.keys))
        around = Surroundings(
            file=file,
            kind=KIND,
            names=(name,),
            variables=found.variables,
            spans={key: value.span for key, value in found.variables.items()},
            image=mark_placeholders(Value(found.image.text)).word() if found.image is not None else None,
            devices=devices,
            hints=hints,
            node=found.node,
            document=document,
            requirement=find_requirement(found.texts()),
        )
        for start in starts:
            yield unit_of(start, around, names.get(name, 0))
            names[name] = names.get(name, 0) + 1
        if found.form == "lines":
            yield from _written_out(tree, file, found)


def _written_out(tree: Tree, file: SourceFile, found: _Found) -> Iterator[ServeUnit | Unread]:
    """What stands in the here documents of a script: a machine's first one writes the services that it is for."""
    texts = [text for text in found.texts() if "<<" in text.value and "vllm" in text.value.lower()]
    if texts:
        from kvgate.manifests.scripts import read_here_documents

        for text in texts:
            yield from read_here_documents(tree, file, _filled(Value(text), found.variables), units=True)


def _machine(document: Node) -> tuple[tuple[GpuRequest, ...], tuple[NodeHint, ...]]:
    for path, count, name in _MACHINES:
        node = node_at(document, *path)
        node = node.items[0] if isinstance(node, Sequence) and node.items else node
        number, kind = (node.get(count), node.get(name)) if isinstance(node, Mapping) else (None, None)
        if isinstance(number, Scalar) and (devices := scalar_int(number)):
            hints = (NodeHint("gpu", (kind.value,), kind.span),) if isinstance(kind, Scalar) else ()
            return (GpuRequest("device", devices, number.span),), hints
    return (), ()


def _starts(tree: Tree, file: SourceFile, found: _Found, macros: dict[str, Node]) -> list[Start]:
    find = beside(tree, file)
    if found.image is not None:
        return _of_container(found, find)
    written = [_given(Value(text), found.variables, macros) for text in found.texts()]
    if found.keys[:1] == ("models",) and found.keys[2:] == ("cmd",):
        written = [_on_one_line(value) for value in written]
    if not any("vllm" in value.value.lower() for value in written):
        return []
    values = [_formatted(_filled(value, found.variables), found.defaults) for value in written]
    if found.form == "words":
        from kvgate.shell.script import commands_of_words

        words = [_unfilled(mark_placeholders(value, variables=False)).word() for value in values]
        return starts_of_commands(commands_of_words(words, found.variables, find=find), find, found.variables)
    parts: list[Value] = []
    for value in values:
        parts += [value, Value(Text.at("\n", value.span))]
    return starts_of_script(Value.join(parts), found.variables, find)


def _of_container(found: _Found, find: Find) -> list[Start]:
    """The server in a container whose image is vLLM's, by what it is given."""
    given = {key: words for key in _GIVEN if (words := _words_under(found.node, key, found.variables))}
    # a command above arguments, as an entry point, takes the place of the image's
    arguments = given.pop(next((key for key in reversed(_GIVEN[len(_ENTRY_POINTS) :]) if key in given), ""), ())
    command = next(iter(given.values()), ())
    assert found.image is not None
    image = mark_placeholders(Value(found.image.text)).word()
    container = Container(
        command or None, arguments, image, found.variables, found.node.span, False, True, find=find, service=True
    )
    return find_starts(container) if command or arguments else []


def _words_under(node: Node, key: str, variables: dict[str, Value]) -> tuple[Word, ...]:
    stated = node_at(node, key)
    values = [Value(text) for text in _texts(stated)] if stated is not None else []
    filled = [mark_placeholders(_filled(value, variables)) for value in values if value.value]
    if isinstance(stated, Scalar):
        return tuple(word for value in filled for word in split_words(value))
    return tuple(value.word() for value in filled)


def _texts(node: Node) -> list[Text]:
    items = node.items if isinstance(node, Sequence) else [node]
    return [item.text for item in items if isinstance(item, Scalar) and not is_null(item)]


def _commands(document: Node) -> Iterator[_Found]:
    stack: list[tuple[Node, tuple[str, ...], dict[str, Value]]] = [(document, (), {})]
    count = 0
    while stack and count < MAX_EXPANDED_NODES:
        node, keys, variables = stack.pop()
        count += 1
        if isinstance(node, Sequence):
            stack += [(item, keys, variables) for item in reversed(node.items) if not isinstance(item, Scalar)]
            continue
        entries = node.items() if isinstance(node, Mapping) and not _is_off(node) else []
        own = {name: value for entry in entries for name, value in _variables(entry.key, entry.value)}
        known = {**variables, **own} if own else variables
        count += len(known)  # each command has all of them around it
        below: list[tuple[Node, tuple[str, ...], dict[str, Value]]] = []
        image = _image_of(node) if entries else None
        whole = _with_arguments(node) if isinstance(node, Mapping) and image is None else None
        if image is not None:
            yield _Found(node, keys, known, "container", image=image)
        elif whole is not None:
            yield _Found(node, keys, known, "words", words=whole)
        for entry in entries:
            if (whole is not None and entry.key.value in _PROGRAMS) or (
                image is not None and entry.key.value in _GIVEN
            ):
                continue
            name = re.sub(r"[\s_-]", "", entry.key.value.rpartition(".")[2].lower())
            path = (*keys, entry.key.value)
            if path == _MACROS:
                continue  # parts of commands
            if name in _LINES or name in _ARGV:
                for command in _under(entry.value, path, known, words=name in _ARGV):
                    yield replace(command, defaults=node.get(_DEFAULTS)) if isinstance(node, Mapping) else command
            if name in _NAMED and isinstance(entry.value, Mapping):
                for task in entry.value.items():
                    yield from _under(task.value, (*path, task.key.value), known, words=False)
            elif name in _CONTENT and isinstance(entry.value, Scalar):
                text = entry.value.value
                if text.lstrip().startswith("#!"):
                    yield _Found(entry.value, path, known, "lines")
                elif _UNIT.search(text):
                    yield _Found(entry.value, path, known, "unit file")
            if not isinstance(entry.value, Scalar):
                below.append((entry.value, path, known))
        stack += reversed(below)
    if stack:
        raise TooLargeError("a document of so many parts and variables")


def _image_of(node: Node) -> Scalar | None:
    """The image of a container that takes vLLM's arguments and is given some."""
    if all(node_at(node, key) is None for key in _GIVEN):
        return None
    images = (scalar_at(node, key) for key in _IMAGES)
    return next((image for image in images if image is not None and takes_engine_arguments(image.value)), None)


def _with_arguments(node: Mapping) -> tuple[Text, ...] | None:
    """The words of a program and of the arguments that are listed beside it."""
    program = next((key for key in _PROGRAMS if node.get(key) is not None), "")
    arguments = next((found for key in _ARGUMENTS if isinstance(found := node.get(key), Sequence)), None)
    if not program or arguments is None or not all(isinstance(item, Scalar) for item in arguments.items):
        return None
    stated = node.get(program)
    assert stated is not None
    head = _texts(stated)
    if isinstance(stated, Scalar):
        head = [word.text for word in split_words(stated.text)]
    module = [Text.at("-m", stated.span)] if program == "module" else []
    return (*module, *head, *_texts(arguments))


def _is_off(node: Mapping) -> bool:
    """Whether nothing of a part runs (``enabled: false``, Ansible's ``when: false``) but when all is taken down."""
    when = node.get("when")
    destroys = isinstance(when, Scalar) and when.value == "{{ destroy }}"  # of Terraform's provisioners
    off = any(scalar_bool(node.get(key)) is False for key in ("enabled", "when"))
    return off or destroys or scalar_bool(node.get("disabled")) is True


def _under(node: Node, keys: tuple[str, ...], variables: dict[str, Value], *, words: bool) -> Iterator[_Found]:
    if isinstance(node, Scalar):
        yield _Found(node, keys, variables, "lines")
    elif isinstance(node, Sequence) and all(isinstance(item, Scalar) for item in node.items):
        first = node.items[0] if node.items else None
        whole = isinstance(first, Scalar) and " " in first.value.strip()
        yield _Found(node, keys, variables, "words" if words and not whole else "lines")
    elif isinstance(node, Sequence):  # commands, each a text or a list of its words
        for item in node.items:
            if not isinstance(item, Mapping):
                yield _Found(item, keys, variables, "words" if isinstance(item, Sequence) else "lines")


def _variables(key: Scalar, node: Node) -> Iterator[tuple[str, Value]]:
    if key.value.replace("_", "").lower() not in _VARIABLES:
        return
    for entry in entries_at(node):
        if isinstance(entry.value, Scalar) and not is_null(entry.value):
            yield entry.key.value, Value(entry.value.text)


def _filled(value: Value, variables: dict[str, Value]) -> Value:
    """A text with the placeholders (``{{ model }}``, ``{{.MODEL}}``) that variables of the document fill in."""

    def known(match: re.Match[str], _: Value) -> Value | None:
        found = variables.get(match["name"])
        return None if found is None or _REFERENCE.search(found.value) else found

    return value.replaced(_REFERENCE.finditer(value.value), known)


def _given(value: Value, variables: dict[str, Value], macros: dict[str, Node]) -> Value:
    """A text with the macros of llama-swap (``${name}``), which may have others in them, and with the variables of
    Azure's pipelines (``$(name)``)."""

    budget = MAX_TEXT

    def known(match: re.Match[str], _: Value) -> Value | None:
        nonlocal budget
        macro = macros.get(match["macro"] or "")
        given = Value(macro.text) if isinstance(macro, Scalar) else variables.get(match["variable"] or "")
        budget -= len(given.text) if given is not None else 0
        return given if budget > 0 else None

    for _ in range(_MACROS_WITHIN if macros else 1):
        value = value.replaced(_GIVEN_BY_NAME.finditer(value.value), known)
    return value


_GIVEN_BY_NAME: Final = re.compile(r"\$(?:\{(?P<macro>[A-Za-z_][\w-]*)\}|\((?P<variable>[A-Za-z_][\w.]*)\))")
_MACROS_WITHIN: Final = 3
MAX_TEXT: Final = 100_000  # of what macros and variables add to a command


def _on_one_line(value: Value) -> Value:
    """A command of llama-swap, whose lines are one, comments between them left out."""
    if _OF_SHELL.search(value.value):
        return value
    return value.replaced(_LINE_ENDS.finditer(value.value), lambda _, whole: Value(Text.at(" ", whole.span)))


_LINE_ENDS: Final = re.compile(r"\\?\n(?:[ \t]*#[^\n]*\n)*")
_OF_SHELL: Final = re.compile(r"\s-[a-z]*c\s")  # what it runs has lines of its own


def _unfilled(value: Value) -> Value:
    """A text with what another program's ``str.format`` is to fill in as holes."""
    return value.with_holes(
        Hole(*match.span(), Unresolved(match.group(), "a placeholder to be filled in"), splits=False)
        for match in FORMAT_FIELD.finditer(value.value)
    )


def _formatted(value: Value, defaults: Node | None) -> Value:
    """A text as ``str.format`` fills it in from the defaults beside it; what these do not name is given elsewhere."""
    known = {entry.key.value: entry.value for entry in entries_at(defaults)} if defaults is not None else {}
    matches = list(_FORMAT.finditer(value.value)) if known else []
    if known.keys().isdisjoint(match["name"] for match in matches):
        return value

    def filled(match: re.Match[str], whole: Value) -> Value:
        given = known.get(match["name"] or "")
        if match["name"] is None:
            return whole.slice(0, 1)
        if isinstance(given, Scalar):
            return Value(given.text)
        return Value.unknown(whole.text, "a placeholder to be filled in", splits=False)

    return value.replaced(matches, filled)
