"""What files that are named alone belong to: the chart around them, and what they refer to beside them."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from kvgate.manifests.collect import Collection, collect
from kvgate.manifests.tree import Tree
from kvgate.source.text import SourceFile

_MANIFESTS: Final = (".yaml", ".yml", ".tpl", ".gotmpl")
# What a file has that refers to another object by its name, and what a file has that may hold this one.
_REFERENCES: Final = (
    ("configMap", "kind: ConfigMap"), ("configMap", "configMapGenerator"), ("kind: InferenceService", "ServingRuntime"),
)  # fmt: skip
# Files of one folder that are looked at for such objects.
MAX_SIBLINGS: Final = 200


def with_surroundings(collection: Collection, root: Path, *, exclude: Iterable[str] = ()) -> Collection:
    """A collection with what its named files belong to, and which was not named with them.

    Args:
        collection: what the paths of a run stand for.
        root: what its paths are relative to; nothing outside it is read.
        exclude: see :func:`kvgate.manifests.collect.collect`.
    """
    known = {file.path for file in collection.files}
    alone = [file for file in collection.files if file.path in collection.named and file.path.endswith(_MANIFESTS)]
    if not alone:
        return collection
    tree = Tree((), root)
    charts = dict.fromkeys(folder for file in alone if (folder := _chart_around(tree, file.path)) is not None)
    found = {file.path: file for folder in charts for file in collect([root / folder], root, exclude=exclude).files}
    found |= {file.path: file for file in _referred_to(tree, root, alone)}
    around = tuple(found[path] for path in sorted(found) if path not in known)
    return replace(collection, around=around)


def _chart_around(tree: Tree, path: str) -> str | None:
    """The folder of the outermost chart that a file is a part of."""
    found = None
    folder = posixpath.dirname(path)
    while not folder.startswith(("/", "..")):
        if tree.read(posixpath.join(folder, "Chart.yaml")) is not None:
            found = folder
        elif found is not None and posixpath.basename(folder) != "charts":
            break
        if not folder:
            break
        folder = posixpath.dirname(folder)
    return found


def _referred_to(tree: Tree, root: Path, alone: Iterable[SourceFile]) -> Iterator[SourceFile]:
    """Files beside others that may hold an object which these refer to."""
    wanted: dict[str, set[str]] = {}
    for file in alone:
        marks = {mark for refers, mark in _REFERENCES if refers in file.text}
        folder = posixpath.dirname(file.path)
        if marks and not folder.startswith(("/", "..")):
            wanted.setdefault(folder, set()).update(marks)
    for folder, marks in wanted.items():
        try:
            names = sorted(name for name in os.listdir(root / folder) if name.endswith(_MANIFESTS))
        except OSError:
            continue
        for name in names[:MAX_SIBLINGS]:
            beside = tree.read(posixpath.join(folder, name))
            if beside is not None and any(mark in beside.text for mark in marks):
                yield beside
