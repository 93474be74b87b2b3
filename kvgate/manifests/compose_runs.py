"""What the commands of a tree that run Compose tell its files: exported variables, and those of ``--env-file``."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from kvgate.manifests.compose_files import NAMES, existing, options_at
from kvgate.manifests.formats import format_of
from kvgate.manifests.tree import Tree, read_env_file
from kvgate.shell.command import Command, basename, names_program
from kvgate.shell.script import MAX_CHARACTERS, commands, variables
from kvgate.shell.value import Value, value_of_word
from kvgate.source.text import SourceFile, Text, TooLargeError

_RUNS: Final = re.compile(r"(?m)^[^#\n]*?\b(?:docker|nerdctl|podman)[ -]compose(?=[ \t])")
_EXPORTS: Final = re.compile(
    r"(?m)^[ \t]*(?:export\b|set -[a-z]*a\b|set -o allexport)|"
    r"\w=\S{0,80}[ \t][^\n]{0,80}?\b(?:docker|nerdctl|podman)\b"
)
_PROGRAMS: Final = frozenset({"docker", "nerdctl", "podman"})
_COMMANDS: Final = _PROGRAMS | {f"{name}-compose" for name in _PROGRAMS}
_MOVES: Final = re.compile(r"\bcd[ \t]+([^\n;&|]{1,200})")
_KNOWN: Final = re.compile(r"[)}]|\$\w+")  # what is known of a path begins behind it
_STARTS: Final = frozenset({"create", "run", "up"})
# Scripts that people source before they run Compose, the nearest one first; ``_x`` goes with ``compose_x.yaml``.
_SOURCED: Final = ("set_env{}.sh", "set_env.sh", ".set_env.sh", "setenv.sh", "env.sh", ".envrc")
_MAX_ABOVE: Final = 4  # folders in which they are looked for
_EXPORTED: Final = re.compile(r"(?m)(?:^|;)[ \t]*export[ \t]+([A-Za-z_]\w*)")
_MAX_TELLING: Final = 40  # scripts that are read for what they export
_MAX_RUNS: Final = 60  # of one file

Told = dict[str, Value | None]  # None: not known


def told_by_commands(tree: Tree) -> dict[str, dict[str, Value]]:
    """Variables that every command which starts a Compose file gives it, and all the same, by the file's path."""
    found = tree.memo.get("compose runs")
    if not isinstance(found, dict):
        found = tree.memo["compose runs"] = _found(tree)
    return found


def sourced_beside(tree: Tree, path: str) -> dict[str, Value]:
    """Variables that a script beside a Compose file or above it exports, for whoever sources it by hand."""
    folder, _, name = path.rpartition("/")
    ending = re.search(r"(?<=compose)[_-]\w+(?=\.ya?ml$)", name)
    for _ in range(_MAX_ABOVE):
        for name in _SOURCED:
            found = tree.read(posixpath.join(folder, name.format(ending[0] if ending else "")))
            if found is not None:
                return _exported_by(tree, found)
        if not folder:
            break
        folder = posixpath.dirname(folder)
    return {}


def _exported_by(tree: Tree, file: SourceFile) -> dict[str, Value]:
    key = f"exported by {file.path}"
    exported = tree.memo.get(key)
    if not isinstance(exported, dict):
        names = set(_EXPORTED.findall(file.text)) if len(file.text) <= MAX_CHARACTERS else set()
        try:
            left = variables(Text.of_span(file.span(0, len(file.text))), find=_finder(tree, file)) if names else {}
        except TooLargeError:
            left = {}
        exported = tree.memo[key] = {name: value for name, value in left.items() if name in names and value.resolved}
    return exported


def _found(tree: Tree) -> dict[str, dict[str, Value]]:
    running = [file for file in tree.files.values() if "compose" in file.text and _RUNS.search(file.text)]
    exporting = {file.path for file in running if _EXPORTS.search(file.text) and len(file.text) <= MAX_CHARACTERS}
    if not exporting and not any("--env-file" in file.text for file in running):
        return {}
    runs: dict[str, list[Told]] = {}
    for number, file in enumerate(running):
        scripted = file.path in exporting and number < _MAX_TELLING and format_of(file.path, file.text) == "shell"
        for paths, told in _of_script(tree, file) if scripted else _of_text(tree, file):
            for path in paths:
                runs.setdefault(path, []).append(told)
    return {path: dict(_agreed(each)) for path, each in runs.items()}


def _agreed(runs: Sequence[Told]) -> Iterator[tuple[str, Value]]:
    for name, value in runs[0].items():
        same = value is not None and all((other := told.get(name)) and other.value == value.value for told in runs)
        if value is not None and same:
            yield name, value


def _of_text(tree: Tree, file: SourceFile) -> Iterator[tuple[Sequence[str], Told]]:
    """The commands of a Makefile, a workflow or a script that exports nothing."""
    for match in islice(_RUNS.finditer(file.text), _MAX_RUNS):
        yield from _run(tree, file, file.text[match.end() : match.end() + 2000], match.start(), match.end())


def _finder(tree: Tree, file: SourceFile) -> Callable[[str], Value | None]:
    """Looks up what a script sources, without a claim on it: what it starts is started there all the same."""
    folder = posixpath.dirname(file.path)

    def find(path: str) -> Value | None:
        for base in dict.fromkeys((folder, "")):
            found = None if path.startswith(("/", "~")) else tree.read(posixpath.join(base, path))
            if found is not None and found is not file:
                return Value(Text.of_span(found.span(0, len(found.text))))
        return None

    return find


def _of_script(tree: Tree, file: SourceFile) -> Iterator[tuple[Sequence[str], Told]]:
    try:
        found = commands(Text.of_span(file.span(0, len(file.text))), find=_finder(tree, file))
    except TooLargeError:
        return
    for command in islice((command for command in found if names_program(command.words[0], _COMMANDS)), _MAX_RUNS):
        words = command.words
        nested = basename(words[0]) in _PROGRAMS
        if not nested or (len(words) > 2 and words[1].value == "compose"):
            line = " ".join(_tail(command, number) for number in range(1 + nested, len(words)))
            given = {item.name: item.value if item.value.resolved else None for item in command.environment}
            at = command.span.start if command.span.file is file else 0
            for paths, told in _run(tree, file, line, max(0, at - 2000), at):
                yield paths, {**told, **given}


def _tail(command: Command, number: int) -> str:
    """A word, without what is not known at its front: ``$ROOT/compose.yaml``."""
    return value_of_word(command.words[number]).masked("\0").rpartition("\0")[2].lstrip("/")


def _run(tree: Tree, file: SourceFile, line: str, start: int, at: int) -> Iterator[tuple[Sequence[str], Told]]:
    """The Compose files that a command starts, and the variables of the files that it names for them.

    Args:
        line: what stands behind ``docker compose``.
        start: from where a ``cd`` in front of the command counts, in characters of the file.
        at: where the command stands.
    """
    options, end = options_at(line, 0)
    command = line[end:].split(None, 1)
    if not command or command[0] not in _STARTS:
        return
    moved = [match[1] for match in _MOVES.finditer(file.text, start, at)]
    place = _KNOWN.split(moved[-1].rstrip(" \t\"'"))[-1].strip("/\"' ") if moved else ""
    folder = posixpath.dirname(file.path)
    folders = [posixpath.normpath(posixpath.join(base, place)) for base in (folder, posixpath.dirname(folder), "")]
    names = options.get("-f", [])
    paths = next((found for base in folders if (found := existing(tree, base, names))), ()) if names else ()
    if not names:
        beside = (posixpath.normpath(posixpath.join(base, name)) for base in folders for name in NAMES)
        paths = tuple(path for path in beside if tree.read(path) is not None)[:1]
    told: Told = {}
    for name in options.get("--env-file", ()):
        found = next((found for base in folders if (found := existing(tree, base, [name]))), ())
        listed = tree.read(found[0]) if found else None
        told.update(read_env_file(listed) if listed is not None else {})
    if paths:
        yield paths, told
