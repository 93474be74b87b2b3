"""Paths -> the files to read, in a fixed order, and why others were left out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from kvgate.manifests.formats import FORMAT_SUFFIXES, format_of_name, is_template_name
from kvgate.records import record
from kvgate.source.ignore import IgnorePatterns
from kvgate.source.repository import repository_of
from kvgate.source.text import SourceFile

MAX_FILE_BYTES: Final = 5_000_000
MAX_DIRECTORY_DEPTH: Final = 60
MAX_SCRIPT_BYTES: Final = 200_000
SUFFIXES: Final = FORMAT_SUFFIXES

# Arguments that only vLLM takes, since a script that keeps its image in another file may not name it; and what says
# which Compose files belong together, and what they are told.
_FLAGS: Final = (
    b"--max-model-len", b"--gpu-memory-utilization", b"--tensor-parallel-size", b"compose -", b"compose up",
    b"COMPOSE_FILE", b"ray.serve.llm",
)  # fmt: skip

# Directories that hold other people's files or none of the project's own.
SKIPPED_DIRECTORIES: Final = frozenset(
    {".git", ".hg", ".svn", ".terraform", ".tox", ".venv", "__pycache__", "node_modules", "venv"}
)
# Keys of JSON in which containers, or commands, are described.
_MARKS: Final = (
    b'"kind"', b'"services"', b'"containerDefinitions"', b'"ContainerDefinitions"', b'"recipe_image_uri"',
    b'"scripts"', b'"configurations"', b'"tasks"', b'"imageName"',
)  # fmt: skip


@record
class LeftOut:
    """A file that was not read, by its path as shown to people, with the reason."""

    path: str
    reason: str


@record
class Collection:
    """What the paths of a run stand for.

    Attributes:
        files: decoded files in the order of their paths, each once.
        left_out: files that were named, or would have been read, and were not.
        missing: named paths that do not exist.
        named: paths of files that were named rather than found in a directory.
        around: files that named ones belong to: read for what they say of these, not for themselves.
    """

    files: tuple[SourceFile, ...]
    left_out: tuple[LeftOut, ...]
    missing: tuple[str, ...]
    named: frozenset[str] = frozenset()
    around: tuple[SourceFile, ...] = ()


@record
class _Collector:
    root: Path
    exclude: IgnorePatterns | None
    suffixes: frozenset[str] | None = None
    files: dict[str, SourceFile] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    named: set[str] = field(default_factory=set)


def collect(
    paths: Sequence[Path | str],
    root: Path,
    *,
    exclude: Iterable[str] = (),
    suffixes: frozenset[str] | None = None,
) -> Collection:
    """Files below the given paths.

    A file that is named is always read; a directory is walked in sorted order, without what git does not keep and
    ignores, what ``exclude`` leaves out, submodules, links that lead out of it, and files that are no text.

    Args:
        paths: files and directories; relative ones count from the current directory.
        root: what the shown paths are relative to.
        exclude: patterns in the manner of ``.gitignore``, relative to the root.
        suffixes: endings (lower case, with their dot) of the files of a directory that are wanted, whatever they hold;
            None takes those that may start vLLM.
    """
    patterns = list(exclude)
    collector = _Collector(_resolved(root), IgnorePatterns(patterns) if patterns else None, suffixes)
    for path in paths:
        place = Path(path)
        if place.is_dir():
            _walk(collector, place)
        elif place.exists():
            _take(collector, place, named=True)
        else:
            collector.missing.append(str(path))
    return Collection(
        tuple(collector.files[path] for path in sorted(collector.files)),
        tuple(LeftOut(path, collector.left_out[path]) for path in sorted(collector.left_out)),
        tuple(collector.missing),
        frozenset(collector.named),
    )


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path.absolute()


def shown_path(path: Path, root: Path) -> str:
    """:func:`_shown_path` with bytes that are no text written as ``\\xff``."""
    shown = _shown_path(path, root)
    return (
        shown.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") if not shown.isascii() else shown
    )


def _shown_path(path: Path, root: Path) -> str:
    """A path as people see it: relative to the root, POSIX; one outside the root as it is."""
    absolute = Path(os.path.abspath(path))
    for base in (root, Path(os.path.abspath(root))):
        if absolute.is_relative_to(base):
            return absolute.relative_to(base).as_posix()
    resolved = _resolved(path)
    return resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else path.as_posix()


def _walk(collector: _Collector, top: Path) -> None:
    boundary = _resolved(top)
    ignores = _Ignores(boundary)
    seen: set[Path] = set()
    stack: list[tuple[Path, int]] = [(top, 0)]
    while stack:
        directory, depth = stack.pop()
        real = _resolved(directory)
        if real in seen or depth > MAX_DIRECTORY_DEPTH or not real.is_relative_to(boundary):
            continue
        seen.add(real)
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError as error:
            collector.left_out[shown_path(directory, collector.root)] = f"cannot be read: {_reason(error)}"
            continue
        ignores.enter(real)
        below: list[tuple[Path, int]] = []
        for entry in entries:
            path = directory / entry.name
            try:
                is_directory = entry.is_dir()
            except OSError:
                continue
            if is_directory:
                skipped = entry.name in SKIPPED_DIRECTORIES or _excluded(collector, path, True)
                if skipped or ignores.ignored(real / entry.name, True):
                    continue
                foreign = ignores.foreign(real / entry.name)
                if foreign is not None:
                    collector.left_out[shown_path(path, collector.root)] = foreign
                    continue
                below.append((path, depth + 1))
            elif _is_wanted(collector, entry.name):
                if _excluded(collector, path, False) or ignores.ignored(real / entry.name, False):
                    continue
                if entry.is_symlink() and not _resolved(path).is_relative_to(boundary):
                    collector.left_out[shown_path(path, collector.root)] = "a link that leads out of the directory"
                    continue
                _take(collector, path, named=False)
        stack.extend(reversed(below))


def _is_wanted(collector: _Collector, name: str) -> bool:
    """Whether a file of a directory is looked at, by its name."""
    if collector.suffixes is not None:
        return os.path.splitext(name)[1].lower() in collector.suffixes
    return format_of_name(name) is not None or "." not in name or is_template_name(name)


def _excluded(collector: _Collector, path: Path, is_directory: bool) -> bool:
    if collector.exclude is None:
        return False
    return bool(collector.exclude.verdict(shown_path(path, collector.root), is_directory=is_directory))


def _take(collector: _Collector, path: Path, *, named: bool) -> None:
    shown = shown_path(path, collector.root)
    if named:
        collector.named.add(shown)
    if shown in collector.files:
        return
    try:
        size = path.stat().st_size
        if not path.is_file():
            collector.left_out[shown] = "no regular file"
            return
        if size > MAX_FILE_BYTES:
            collector.left_out[shown] = (
                f"a file of {size / 1e6:,.0f} MB is not read (limit {MAX_FILE_BYTES / 1e6:.0f} MB)"
            )
            return
        data = path.read_bytes()
    except OSError as error:
        collector.left_out[shown] = f"cannot be read: {_reason(error)}"
        return
    if not named and collector.suffixes is None and not _may_matter(shown, data):
        return
    try:
        file = SourceFile.from_bytes(shown, data)
    except UnicodeDecodeError:
        binary = b"\0" in data[:8192]
        if named or not binary:
            collector.left_out[shown] = "a binary file" if binary else "neither UTF-8 nor UTF-16 text"
        return
    if "\0" in file.text[:8192]:
        collector.left_out[shown] = "a binary file"
        return
    collector.files[shown] = file


def _may_matter(path: str, data: bytes) -> bool:
    """Whether a file that was found rather than named may start vLLM; most JSON and most code is about other things."""
    form = format_of_name(path)
    if form == "yaml":
        if not path.lower().endswith((".json", ".jsonc")):
            return True
        if path.endswith("/model.json"):  # engine arguments of Triton's vLLM backend
            return b'"gpu_memory_utilization"' in data or b'"tensor_parallel_size"' in data
        if b'"$schema"' in data[:2000]:
            return False
        return any(mark in data for mark in _MARKS) and b"vllm" in data.lower()
    if form is None and not (data.startswith(b"#!") or is_template_name(path)):
        return False
    if form is None and len(data) > MAX_SCRIPT_BYTES:
        return False
    return b"vllm" in data.lower() or any(flag in data for flag in _FLAGS)


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


class _Ignores:
    """What git leaves out: by ``.gitignore`` in a walked tree and above it in its repository, and by
    ``.git/info/exclude``; not what it keeps in spite of them."""

    def __init__(self, top: Path) -> None:
        self._patterns: dict[Path, IgnorePatterns | None] = {}
        self._repository = repository_of(top)
        # outside a repository the files above say nothing
        self._root = top if self._repository is None else self._repository.root
        self._excluded: IgnorePatterns | None = None
        if self._repository is not None:
            self._excluded = IgnorePatterns(self._repository.excluded())
            for directory in top.parents:
                if not directory.is_relative_to(self._root):
                    break
                self.enter(directory)

    def foreign(self, directory: Path) -> str | None:
        """Why a directory of a repository is not its own; None where it is."""
        if self._repository is None or not (directory / ".git").is_file():
            return None
        return "a submodule or another worktree: a repository of its own"

    def enter(self, directory: Path) -> None:
        if directory in self._patterns:
            return
        try:
            lines = (directory / ".gitignore").read_text("utf-8-sig", "replace").splitlines()
        except OSError:
            lines = []
        self._patterns[directory] = IgnorePatterns(lines) if lines else None

    def ignored(self, path: Path, is_directory: bool) -> bool:
        if not self._matched(path, is_directory):
            return False
        if self._repository is None:
            return True
        return not self._repository.tracks(path.relative_to(self._root).as_posix(), is_directory=is_directory)

    def _matched(self, path: Path, is_directory: bool) -> bool:
        # the innermost file that says anything decides
        for directory in path.parents:
            patterns = self._patterns.get(directory)
            if patterns is not None:
                verdict = patterns.verdict(path.relative_to(directory).as_posix(), is_directory=is_directory)
                if verdict is not None:
                    return verdict
            if directory == self._root:
                break
        if self._excluded is None:
            return False
        return bool(self._excluded.verdict(path.relative_to(self._root).as_posix(), is_directory=is_directory))
