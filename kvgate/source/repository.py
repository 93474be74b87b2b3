"""What a git repository says about the files of its working tree, read without git.

The index is read as gitformat-index(5) describes it, versions 2 to 4, with SHA-1 or SHA-256 names.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from pathlib import Path
from typing import Final

MAX_INDEX_BYTES: Final = 200_000_000
_HEADER_BYTES: Final = 12
_EXTENDED: Final = 0x4000
_NAME_LENGTH: Final = 0x0FFF


class Repository:
    """A repository by the root of its working tree; nothing is read before it is asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folder = _git_folder(root)
        self._raw: bytes | None = None
        self._tracked: list[str] | None = None

    def excluded(self) -> list[str]:
        """The lines of ``.git/info/exclude``, which stand behind every ``.gitignore``."""
        common = _common_folder(self._folder)
        try:
            return (common / "info" / "exclude").read_text("utf-8-sig", "replace").splitlines()
        except OSError:
            return []

    def tracks(self, path: str, *, is_directory: bool = False) -> bool:
        """Whether git keeps a file, or a file below a directory, by its path relative to the root.

        False where the index cannot be read.
        """
        raw = self._index()
        name = path.encode("utf-8", "surrogateescape") + (b"/" if is_directory else b"\0")
        # names stand whole in versions 2 and 3: most paths that .gitignore leaves out are not even mentioned
        if not raw or (raw[4:8] < b"\0\0\0\4" and name not in raw):
            return False
        if self._tracked is None:
            self._tracked = sorted(_paths(raw, self._hash_bytes()))
        wanted = path + "/" if is_directory else path
        at = bisect_left(self._tracked, wanted)
        found = self._tracked[at] if at < len(self._tracked) else ""
        return found.startswith(wanted) if is_directory else found == wanted

    def _index(self) -> bytes:
        if self._raw is None:
            try:
                place = self._folder / "index"
                small = place.stat().st_size <= MAX_INDEX_BYTES
                raw = place.read_bytes() if small else b""
            except OSError:
                raw = b""
            self._raw = raw if raw[:4] == b"DIRC" and len(raw) >= _HEADER_BYTES else b""
        return self._raw

    def _hash_bytes(self) -> int:
        try:
            config = (_common_folder(self._folder) / "config").read_text("utf-8", "replace")
        except OSError:
            return 20
        return 32 if re.search(r"(?im)^\s*objectformat\s*=\s*sha256\b", config) else 20


def repository_of(folder: Path) -> Repository | None:
    """The repository in whose working tree a folder lies; None where it lies in none."""
    for directory in (folder, *folder.parents):
        if (directory / ".git").exists():
            return Repository(directory)
    return None


def _git_folder(root: Path) -> Path:
    """``.git``, or where the file of that name (of a worktree or a submodule) points."""
    place = root / ".git"
    if place.is_file():
        try:
            match = re.match(r"gitdir:\s*(.+)", place.read_text("utf-8", "surrogateescape"))
        except OSError:
            match = None
        if match:
            return root / match.group(1).strip()
    return place


def _common_folder(folder: Path) -> Path:
    """The folder that a worktree shares with its repository."""
    try:
        return folder / (folder / "commondir").read_text("utf-8", "surrogateescape").strip()
    except OSError:
        return folder


def _paths(raw: bytes, hash_bytes: int) -> list[str]:
    """The paths of an index; those before the first entry that cannot be read."""
    version, count = struct.unpack(">II", raw[4:_HEADER_BYTES])
    fixed = 40 + hash_bytes + 2
    found: list[str] = []
    at, name = _HEADER_BYTES, b""
    for _ in range(min(count, len(raw) // fixed)):
        if at + fixed > len(raw):
            break
        (flags,) = struct.unpack_from(">H", raw, at + fixed - 2)
        begin = at + fixed + (2 if version >= 3 and flags & _EXTENDED else 0)
        if version == 4:
            drop, begin = _varint(raw, begin)
            end = raw.find(b"\0", begin)
            if end < 0:
                break
            name = name[: len(name) - drop] + raw[begin:end]
            at = end + 1
        else:
            length = flags & _NAME_LENGTH
            end = begin + length if length < _NAME_LENGTH else raw.find(b"\0", begin)
            if end < 0:
                break
            name = raw[begin:end]
            at += (end - at + 8) // 8 * 8
        found.append(name.decode("utf-8", "surrogateescape"))
    return found


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """The number with which a version 4 entry says how much of the last name it drops, and where it ends."""
    value = 0
    while at < len(raw):
        byte = raw[at]
        at += 1
        value = (value << 7) | (byte & 0x7F)
        if not byte & 0x80:
            break
        value += 1
    return value, at
