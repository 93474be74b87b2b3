"""systemd units (``ExecStart=``), Podman's quadlets (``[Container]``) and supervisor's programs (``[program:x]``).

Plain, or as templates of another program.

systemd.service(5) and systemd.syntax(7): a backslash at the end of a line joins it with the next by a blank, quotes and
C escapes are understood, ``$VAR`` and ``${VAR}`` come from ``Environment=``, ``%x`` is filled in by the manager.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Final

from kvgate.manifests.ansible import as_role_has_it
from kvgate.manifests.container import Container, ContainerRun, beside
from kvgate.manifests.entrypoint import says_engine
from kvgate.manifests.launch import find_starts, why_unread
from kvgate.manifests.started import Surroundings, unit_of
from kvgate.manifests.tree import Tree, read_env_file, read_env_text
from kvgate.manifests.unit import GpuRequest, ServeUnit, SharedMemory, Unread
from kvgate.records import record
from kvgate.shell.expand import unset
from kvgate.shell.template import with_branches
from kvgate.shell.value import Hole, Value, value_of_word
from kvgate.shell.words import Fields, lex
from kvgate.source.text import SourceFile, Span, Text, TooLargeError, Unresolved, Word

KIND: Final = "systemd"
_MAX_LINES: Final = 5_000


@record
class _Setting:
    section: str
    name: str
    value: Value
    span: Span


@record
class _Environment:
    values: dict[str, Value] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)


def read_systemd(
    tree: Tree,
    file: SourceFile,
    written: Value | None = None,
    written_to: Callable[[str], Value | None] = lambda path: None,
) -> Iterator[ServeUnit | Unread]:
    """The serve units of one unit file.

    Args:
        written: the unit's text, where something else in the file writes it out.
        written_to: what that writes into other files, by their path.
    """
    settings = list(_settings(written or as_role_has_it(tree, file)))
    environment = _environment(tree, file, settings, written_to)
    try:
        yield from _services(tree, file, settings, environment)
        yield from _quadlet(tree, file, settings, environment)
        yield from _programs(tree, file, settings)
    except TooLargeError as error:
        yield Unread(f"{error} is not read", file.line_span(1), serves=True)


def _services(
    tree: Tree, file: SourceFile, settings: list[_Setting], environment: _Environment
) -> Iterator[ServeUnit | Unread]:
    count = 0
    for setting in settings:
        if setting.section != "Service" or setting.name != "ExecStart":
            continue
        words = _command_words(setting.value, environment.values)
        if not words:
            continue
        container = Container(
            command=words,
            arguments=(),
            image=None,
            environment=environment.values,
            span=setting.span,
            named=says_engine(file.path.rpartition("/")[2].partition(".")[0]),
            accelerated=True,
            find=_installed(tree, file),
            serves=True,
        )
        around = Surroundings(
            file=file, kind=KIND, variables=environment.values, spans=environment.spans, span=setting.span
        )
        starts = find_starts(container)
        if not starts and (reason := why_unread(container)):
            yield Unread(reason, setting.span, serves=True)
        for start in starts:
            yield unit_of(start, around, count)
            count += 1


def _quadlet(tree: Tree, file: SourceFile, settings: list[_Setting], environment: _Environment) -> Iterator[ServeUnit]:
    own = [setting for setting in settings if setting.section == "Container"]
    image = next((setting for setting in own if setting.name == "Image"), None)
    if image is None:
        return
    values: dict[str, list[_Setting]] = {}
    for setting in own:
        values.setdefault(setting.name, []).append(setting)
    devices = tuple(_quadlet_devices(values))
    arguments = tuple(word for setting in values.get("Exec", ()) for word in _split(setting.value, environment.values))
    entry = tuple(word for setting in values.get("Entrypoint", ()) for word in _split(setting.value, {}))
    name = values["ContainerName"][-1].value.value if "ContainerName" in values else posixpath.basename(file.path)
    container = Container(
        command=entry or None,
        arguments=arguments,
        image=image.value.word(),
        environment=environment.values,
        span=image.span,
        named="vllm" in f"{name} {file.path}".lower(),
        accelerated=bool(devices),
        find=beside(tree, file),
    )
    around = Surroundings(file=file, kind="quadlet")
    run = ContainerRun(
        image.value.word(), environment.values, environment.spans, devices, _quadlet_memory(values), name, {}
    )
    from dataclasses import replace

    for number, start in enumerate(find_starts(container)):
        yield unit_of(replace(start, run=run), around, number)


def _programs(tree: Tree, file: SourceFile, settings: list[_Setting]) -> Iterator[ServeUnit]:
    """The programs of supervisor (supervisord.org, "Configuration File")."""
    programs: dict[str, dict[str, _Setting]] = {}
    for setting in settings:
        if setting.section.startswith("program:"):
            programs.setdefault(setting.section, {})[setting.name] = setting
    for section, own in programs.items():
        command = own.get("command")
        if command is None:
            continue
        environment = _Environment()
        for match in _PAIR.finditer(own["environment"].value.value if "environment" in own else ""):
            stated = own["environment"].value
            start, end = match.span("quoted") if match["quoted"] is not None else match.span("plain")
            environment.values[match["name"]] = _with_references(stated.slice(start, end))
            environment.spans[match["name"]] = stated.slice(*match.span()).span
        container = Container(
            command=tuple(_split(_with_references(command.value), None, specifiers=False)),
            arguments=(),
            image=None,
            environment=environment.values,
            span=command.span,
            named=says_engine(section),
            accelerated=True,
            find=_installed(tree, file),
            serves=True,
        )
        around = Surroundings(
            file=file,
            kind="supervisor",
            names=(section.partition(":")[2],),
            variables=environment.values,
            spans=environment.spans,
            span=command.span,
        )
        for number, start_of in enumerate(find_starts(container)):
            yield unit_of(start_of, around, number)


_PAIR: Final = re.compile(r"(?<!\w)(?P<name>[A-Za-z_]\w*)=(?:\"(?P<quoted>[^\"]*)\"|'[^']*'|(?P<plain>[^,\s]*))")
_EXPANSION: Final = re.compile(r"%\((?P<name>[A-Za-z_]\w*)\)s")


def _with_references(value: Value) -> Value:
    """A text with what supervisor fills in (``%(ENV_HOME)s``) as holes."""
    return value.replaced(
        _EXPANSION.finditer(value.value),
        lambda match, whole: Value.unknown(whole.text, f"{match.group()} is filled in by supervisor", splits=False),
    )


def _quadlet_devices(values: dict[str, list[_Setting]]) -> Iterator[GpuRequest]:
    named = [s for s in values.get("AddDevice", ()) if s.value.value.startswith("nvidia.com/gpu=")]
    if named:
        every = any(setting.value.value.endswith("=all") for setting in named)
        reason = "it gets all GPUs of the machine" if every else None
        yield GpuRequest("device", None if every else len(named), named[0].span, reason)
        return
    for setting in (*values.get("AddDevice", ()), *values.get("PodmanArgs", ())):
        if re.search(r"/dev/kfd|/dev/dri|nvidia|--gpus", setting.value.value):
            yield GpuRequest("device", None, setting.span, "which devices it gets is not counted")
            return


def _quadlet_memory(values: dict[str, list[_Setting]]) -> SharedMemory | None:
    from kvgate.manifests.quantities import size_bytes

    for setting in values.get("ShmSize", ()):
        return SharedMemory(size_bytes(setting.value.value), "shm_size", setting.span)
    for setting in values.get("PodmanArgs", ()):
        if "--ipc=host" in setting.value.value:
            return SharedMemory(None, "ipc: host", setting.span)
    return None


class _Installed:
    """Looks up a script that a unit names by where it is installed: the one of that name in the same tree."""

    def __init__(self, tree: Tree, file: SourceFile) -> None:
        self.tree = tree
        self.beside = beside(tree, file)
        self.file = file

    def __call__(self, path: str) -> Value | None:
        found = self.beside(path.lstrip("/"))
        if found is not None:
            return found
        name = posixpath.basename(path)
        named = [other for other in self.tree.files if posixpath.basename(other) == name]
        source = self.tree.use(named[0]) if len(named) == 1 else None
        if source is None or source is self.file:
            return self.beside(name)
        return Value(Text.of_span(source.span(0, len(source.text))))


def _installed(tree: Tree, file: SourceFile) -> _Installed:
    return _Installed(tree, file)


# -- settings ----------------------------------------------------------------------------------------------------------

_TEMPLATE: Final = re.compile(r"\{\{.{0,400}?\}\}", re.DOTALL)


def _settings(text: Value) -> Iterator[_Setting]:
    section = ""
    lines = [(match.start(), match.group().rstrip("\r")) for match in _LINE.finditer(text.value)]
    number = 0
    while number < min(len(lines), _MAX_LINES):
        start, line = lines[number]
        number += 1
        stripped = line.strip()
        if stripped.startswith(("#", ";")) or not stripped:
            continue
        header = re.fullmatch(r"\[([\w:.-]+)\]", stripped)
        if header:
            section = header.group(1)
            continue
        match = re.match(r"[ \t]*([A-Za-z][\w-]*)[ \t]*=[ \t]*", line)
        if not match:
            continue
        parts: list[Value] = []
        begin = start + match.end()
        body = line[match.end() :]
        while True:
            continued = body.rstrip().endswith("\\")
            end = len(body.rstrip()) - 1 if continued else len(body.rstrip())
            parts.append(text.slice(begin, begin + end))
            if not continued:
                break
            while number < len(lines) and lines[number][1].lstrip().startswith(("#", ";")):
                number += 1  # comments between continued lines are dropped
            if number >= len(lines):
                break
            begin, body = lines[number]
            number += 1
            parts.append(Value(Text.at(" ", text.text.slice(begin, begin).span)))
        span = text.text.span_of(start + match.start(1), begin + len(body.rstrip()))
        yield _Setting(section, match.group(1), _with_templates(Value.join(parts)), span)


_LINE: Final = re.compile(r"[^\n]+")


def _with_templates(value: Value) -> Value:
    value = with_branches(value, statements=False)
    return value.with_holes(
        Hole(match.start(), match.end(), Unresolved(match.group(), "a placeholder to be filled in"))
        for match in _TEMPLATE.finditer(value.value)
    )


def _environment(
    tree: Tree, file: SourceFile, settings: list[_Setting], written_to: Callable[[str], Value | None]
) -> _Environment:
    found = _Environment()
    for setting in settings:
        if setting.section not in ("Service", "Container"):
            continue
        if setting.name == "EnvironmentFile":
            path = setting.value.value.strip().lstrip("-").strip("\"'")
            body = written_to(path)
            if body is not None:
                for name, value in read_env_text(body.text).items():
                    found.values[name], found.spans[name] = value, setting.span
                continue
            for place in (path.lstrip("/"), posixpath.basename(path)):
                source = tree.read(posixpath.join(posixpath.dirname(file.path), place)) if place else None
                if source is not None:
                    for name, value in read_env_file(source).items():
                        found.values[name], found.spans[name] = value, setting.span
                    break
        elif setting.name == "Environment":
            for word in _split(setting.value, None):
                name, equals, rest = word.value.partition("=")
                if equals and re.fullmatch(r"[A-Za-z_]\w*", name):
                    found.values[name] = value_of_word(word).slice(len(word.value) - len(rest), len(word.value))
                    found.spans[name] = word.span
    return found


# -- words -------------------------------------------------------------------------------------------------------------


def _command_words(value: Value, environment: dict[str, Value]) -> tuple[Word, ...]:
    prefix = re.match(r"[-@:+!|]*", value.value)
    return tuple(_split(value.slice(prefix.end() if prefix else 0, len(value.text)), environment))


_SPECIFIER: Final = re.compile(r"%(?:%|[A-Za-z])")
_DOLLAR: Final = re.compile(r"\$(?:\$|\{(?P<braced>[A-Za-z_]\w*)\}|(?P<plain>[A-Za-z_]\w*))")


def _split(value: Value, environment: dict[str, Value] | None, *, specifiers: bool = True) -> list[Word]:
    """Words of a setting; variables are expanded where an environment is given."""
    value = _with_specifiers(value) if specifiers else value
    fields = Fields()

    def expand(text: Value, at: int, quoted: bool, into: Fields) -> int:
        match = _DOLLAR.match(text.masked(), at)
        if match is None or environment is None:
            return at
        use = text.slice(match.start(), match.end())
        name = match["braced"] or match["plain"]
        if name is None:
            into.add(text.slice(at + 1, at + 2), quoted=True)
            return match.end()
        known = environment.get(name)
        # ${NAME} is one word, $NAME by itself is split at blanks
        if known is None:
            into.add(Value.unknown(use.text, unset(name), splits=match["plain"] is not None), quoted=quoted)
        else:
            into.add_expanded(known, use.span, quoted=quoted or match["braced"] is not None)
        return match.end()

    lex(value, 0, len(value.text), fields, expander=expand)
    return fields.words()


def _with_specifiers(value: Value) -> Value:
    def filled(match: re.Match[str], whole: Value) -> Value:
        if match.group() == "%%":
            return whole.slice(0, 1)
        return Value.unknown(whole.text, f"{match.group()} is filled in by systemd", splits=False)

    return value.replaced(_SPECIFIER.finditer(value.masked()), filled)
