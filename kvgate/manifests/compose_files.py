"""Which Compose files of a tree belong together: overrides, ``-f`` lists, ``include`` and ``extends``.

Compose's own rules: ``compose.override.yaml`` beside ``compose.yaml`` is always applied; of several files the later one
wins; an included file is interpolated with its own ``.env`` and the one of the file that includes it (which wins).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final

from kvgate.manifests.tree import Tree, entries_at, items_at, node_at, text_at
from kvgate.records import record
from kvgate.source.text import SourceFile
from kvgate.source.yaml_tree import Mapping, Node, Scalar
from kvgate.source.yaml_tree import Sequence as YamlSequence

# Names under which Compose finds its file, the first one first, and those of the file it puts over it.
NAMES: Final = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")
OVERRIDES: Final = tuple(name.replace(".y", ".override.y") for name in NAMES)

_COMPOSE: Final = re.compile(r"\bcompose(?=\s)")
_WORD: Final = re.compile(r"\S+")
_COMPOSE_FILE: Final = re.compile(r"(?m)^[ \t]*(?:export[ \t]+)?COMPOSE_FILE=[\"']?([^\s\"'#]+)")
_MAX_FILES: Final = 12


@record
class Together:
    """What the files of a tree say about each other, by path.

    Attributes:
        over: files that are put over one whenever it is used, the last one winning.
        under: files over which some command puts one, in their order.
        includers: files that include one.
        extended: (path, service) that services of other files extend.
    """

    over: dict[str, tuple[str, ...]] = field(default_factory=dict)
    under: dict[str, tuple[str, ...]] = field(default_factory=dict)
    includers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    extended: frozenset[tuple[str, str]] = frozenset()


def together(tree: Tree) -> Together:
    """What the files of a tree say about each other, found out once."""
    found = tree.memo.get("compose files")
    if not isinstance(found, Together):
        found = tree.memo["compose files"] = _found(tree)
    return found


def services_of(tree: Tree, path: str) -> tuple[SourceFile, Mapping] | None:
    """A Compose file by its path, and its services; None where it is none."""
    file = tree.read(path)
    for document in tree.stream(file).documents if file is not None else ():
        services = node_at(document, "services")
        if file is not None and isinstance(services, Mapping):
            return file, services
    return None


def included(document: Node, path: str) -> Iterator[tuple[str, ...]]:
    """The paths that each entry of ``include`` names, relative to the tree; remote ones as they are."""
    entries = items_at(document, "include")
    for entry in entries:
        node = entry if isinstance(entry, Scalar) else node_at(entry, "path")
        names = node.items if isinstance(node, YamlSequence) else [node]
        paths = [_beside(path, item.value) for item in names if isinstance(item, Scalar) and item.value]
        if paths:
            yield tuple(paths)


def _beside(path: str, name: str) -> str:
    if re.match(r"\w+://|git@", name):
        return name
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), name))


def _found(tree: Tree) -> Together:
    over: dict[str, tuple[str, ...]] = {}
    under: dict[str, tuple[str, ...]] = {}
    includers: dict[str, tuple[str, ...]] = {}
    extended: set[tuple[str, str]] = set()
    for path, file in list(tree.files.items()):
        folder, _, name = path.rpartition("/")
        if name in OVERRIDES:
            base = next((found.path for found in _candidates(tree, folder) if found.path != path), None)
            if base is not None:
                over[base] = (path,)
        text = file.text
        if "COMPOSE_FILE" in text or ("compose" in text and ("-f" in text or "--file" in text)):
            for names in _lists(text):
                _stack(under, existing(tree, folder, names))
        if "extends:" in text and "file:" in text:
            extended.update(_extended(tree, file))
        if "include:" in text:
            for document in tree.stream(file).documents:
                for paths in included(document, path):
                    for inner in paths:
                        if path not in includers.get(inner, ()):
                            includers[inner] = (*includers.get(inner, ()), path)
                    _stack(under, paths)
    found = tree.read(".env")
    if found is not None and found.path not in tree.files:
        for names in _lists(found.text):
            _stack(under, existing(tree, "", names))
    return Together(
        over,
        {path: below for path, below in under.items() if path not in _values(over)},
        includers,
        frozenset(extended),
    )


def _values(over: dict[str, tuple[str, ...]]) -> set[str]:
    return {path for paths in over.values() for path in paths}


def _candidates(tree: Tree, folder: str) -> Iterator[SourceFile]:
    for name in NAMES:
        found = tree.read(posixpath.join(folder, name))
        if found is not None:
            yield found


def _lists(text: str) -> Iterator[list[str]]:
    """The files that a text puts over each other, with ``-f`` or by ``COMPOSE_FILE``."""
    at = 0
    while (match := _COMPOSE.search(text, at)) is not None:
        options, at = options_at(text, match.end())
        names = options.get("-f", [])
        if 1 < len(names) <= _MAX_FILES:
            yield names
    for match in _COMPOSE_FILE.finditer(text):
        names = re.split(r"[:;]", match.group(1))
        if 1 < len(names) <= _MAX_FILES:
            yield names


def options_at(text: str, at: int) -> tuple[dict[str, list[str]], int]:
    """What the options in front of Compose's own command are given, ``--file`` as ``-f``, and where they end."""
    given: dict[str, list[str]] = {}
    option: str | None = None
    for match in _WORD.finditer(text, at):
        word = match.group().strip("\"'")
        if word == "\\":
            continue
        if word.startswith("-"):
            option, _, value = word.partition("=")
        elif option is not None:
            value = word
        else:
            break
        if value and option is not None:
            given.setdefault("-f" if option == "--file" else option, []).append(value.strip("\"'"))
        option = None if value else option
        at = match.end()
    return given, at


def existing(tree: Tree, folder: str, names: Sequence[str]) -> tuple[str, ...]:
    """The files of a list, as their own folder or the root has them; none unless all of them are there."""
    for base in dict.fromkeys((folder, "")):
        paths = [posixpath.normpath(posixpath.join(base, re.sub(r"^\$\{?\w+\}?/", "", name))) for name in names]
        if all(tree.read(path) is not None for path in paths):
            return tuple(paths)
    return ()


def _stack(under: dict[str, tuple[str, ...]], paths: Sequence[str]) -> None:
    for number, path in enumerate(paths[:_MAX_FILES]):
        if number:
            under.setdefault(path, tuple(paths[:number]))


def _extended(tree: Tree, file: SourceFile) -> Iterator[tuple[str, str]]:
    for document in tree.stream(file).documents:
        for entry in entries_at(document, "services"):
            name, other = text_at(entry.value, "extends", "service"), text_at(entry.value, "extends", "file")
            if name and other:
                path = _beside(file.path, other)
                if path != file.path:
                    yield path, name
