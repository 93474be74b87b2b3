"""The vLLM release that a project's own files install: requirements, metadata and lock files beside its code."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from kvgate.manifests.container import find_requirement
from kvgate.manifests.tree import Tree
from kvgate.manifests.unit import ServeUnit
from kvgate.patterns import regex
from kvgate.source.text import SourceFile, Span, Text, Word

# Lock files first: they say what is installed, the others what may be.
FILES: Final = (
    "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "requirements.lock", "requirements.txt",
    "requirements-gpu.txt", "requirements-vllm.txt", "requirements/base.txt", "requirements/prod.txt",
    "constraints.txt", "pyproject.toml", "environment.yml", "environment.yaml", "setup.cfg", "setup.py",
)  # fmt: skip
MAX_LEVELS: Final = 8
KINDS: Final = frozenset({"script", "python", "offline-engine"})

# A package of a lock file, not the project itself, which may have that name.
_LOCKED: Final = regex(
    r"(?m)^\[\[package\]\]\r?\nname = \"vllm\"\r?\nversion = \"(?P<version>\d[\w.+!]*)\""
    r"(?!\r?\nsource = \{ (?:directory|editable|virtual))"
)
_LOCKED_JSON: Final = regex(r"\"vllm\":\s*\{[^{}]{0,4000}?\"version\":\s*\"==\s*(?P<version>\d[\w.+!]*)\"")


def with_requirements(tree: Tree, units: Sequence[ServeUnit]) -> list[ServeUnit]:
    """Units that start vLLM from the machine's own Python, with the release that the project pins."""
    return [_with_requirement(tree, unit) for unit in units]


def _with_requirement(tree: Tree, unit: ServeUnit) -> ServeUnit:
    if unit.image is not None or unit.requirement is not None or unit.kind not in KINDS:
        return unit
    for folder in _upwards(posixpath.dirname(unit.path)):
        found = next((word for name in FILES if (word := _pinned(tree, posixpath.join(folder, name)))), None)
        if found is not None:
            return replace(unit, requirement=found)
    return unit


def _upwards(folder: str) -> Iterator[str]:
    """A folder and those above it, up to the root of the tree."""
    for _ in range(MAX_LEVELS):
        yield folder
        if not folder:
            return
        folder = posixpath.dirname(folder)


def _pinned(tree: Tree, path: str) -> Word | None:
    """The requirement of one file that names one release; a lock file's version as ``==version``."""
    key = f"requirement:{path}"
    if key not in tree.memo:
        file = tree.read(path)
        tree.memo[key] = _requirement(file) if file is not None and "vllm" in file.text else None
    found = tree.memo[key]
    return found if isinstance(found, Word) else None


def _requirement(file: SourceFile) -> Word | None:
    for pattern in (_LOCKED, _LOCKED_JSON):
        match = pattern.search(file.text)
        if match is not None:
            return Word(Text.at(f"=={match['version']}", Span(file, match.start("version"), match.end("version"))))
    return find_requirement([Text.of_span(Span(file, 0, len(file.text)))])
