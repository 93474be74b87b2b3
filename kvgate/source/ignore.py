"""Patterns in the manner of ``.gitignore``: which files of a tree they leave out.

Source of the rules: gitignore(5) and git's ``wildmatch.c``. Paths are relative to the place of the patterns, POSIX,
without a slash at their end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kvgate.patterns import regex
from kvgate.records import record

_SPECIAL: Final = regex(r"[*?\[\\]")
_POSIX: Final = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": r"\x21-\x7e", "lower": "a-z", "print": r"\x20-\x7e", "punct": r"!-/:-@\[-`{-~", "space": r"\s",
    "upper": "A-Z", "xdigit": "0-9a-fA-F",
}  # fmt: skip
_NEVER: Final = "(?!)"


@record
class _Pattern:
    """One line: a test for each part of a path, None for any number of parts."""

    parts: tuple[Callable[[str], object] | None, ...]
    negated: bool
    only_directories: bool

    def matches(self, path: Sequence[str]) -> bool:
        return _match(self.parts, path)


class IgnorePatterns:
    """The patterns of one ``.gitignore``, or of a list like it; the last one that speaks of a path decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._patterns = [pattern for line in lines if (pattern := _read(line)) is not None]
        self._patterns.reverse()
        self._directories: dict[str, bool | None] = {}

    def verdict(self, path: str, *, is_directory: bool = False) -> bool | None:
        """Whether a path is left out; None where no pattern speaks of it.

        What stands in a directory that is left out is left out too, whatever other patterns say.
        """
        if is_directory and path in self._directories:
            return self._directories[path]
        parent = path.rpartition("/")[0]
        verdict = True if parent and self.verdict(parent, is_directory=True) else self._own(path, is_directory)
        if is_directory:
            self._directories[path] = verdict
        return verdict

    def _own(self, path: str, is_directory: bool) -> bool | None:
        parts = _as_bytes(path).split("/")
        for pattern in self._patterns:
            if (is_directory or not pattern.only_directories) and pattern.matches(parts):
                return not pattern.negated
        return None


def _read(line: str) -> _Pattern | None:
    text = _as_bytes(line.rstrip("\r\n"))
    while text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1]
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text.removeprefix("!")
    only_directories = text.endswith("/")
    text = text.removesuffix("/")
    anchored = "/" in text
    names = text.removeprefix("/").split("/")
    if not names[-1]:
        return None
    parts: list[Callable[[str], object] | None] = [] if anchored else [None]
    for name in names:
        part = None if name == "**" else _test(name)
        if part is not None or not parts or parts[-1] is not None:
            parts.append(part)
    return _Pattern(tuple(parts), negated, only_directories)


def _as_bytes(text: str) -> str:
    """A text with one character for each of its bytes: git's ``?`` and ``[!a]`` stand for one byte."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


def _match(tests: Sequence[Callable[[str], object] | None], path: Sequence[str]) -> bool:
    if not tests:
        return not path
    first, rest = tests[0], tests[1:]
    if first is not None:
        return bool(path) and bool(first(path[0])) and _match(rest, path[1:])
    if not rest:
        return bool(path)  # "a/**" speaks of what is in a, not of a
    if rest[0] is not None and len(rest) == 1:
        return bool(path) and bool(rest[0](path[-1]))
    return any(_match(rest, path[start:]) for start in range(len(path)))


def _test(name: str) -> Callable[[str], object]:
    """A test for one part of a path. Most patterns are plain names and endings, which need no expression."""
    if not _SPECIAL.search(name):
        return name.__eq__
    if name[0] == "*" and not _SPECIAL.search(name, 1):
        ending = name[1:]
        return lambda part: part.endswith(ending)
    return regex(_expression(name), re.DOTALL).fullmatch


def _expression(name: str) -> str:
    found: list[str] = []
    at = 0
    while at < len(name):
        character = name[at]
        at += 1
        if character == "*":
            if not found or found[-1] != ".*":
                found.append(".*")
        elif character == "?":
            found.append(".")
        elif character == "[":
            members, at = _members(name, at)
            found.append(members)
        elif character == "\\":
            if at == len(name):
                return _NEVER
            found.append(re.escape(name[at]))
            at += 1
        else:
            found.append(re.escape(character))
    return "".join(found)


def _members(name: str, at: int) -> tuple[str, int]:
    """The expression of ``[...]`` from behind its bracket, and where it ends; one that does not end matches nothing."""
    negated = name[at : at + 1] in ("!", "^") and at < len(name)
    at += negated
    members: list[str] = []
    begin = at
    while at < len(name) and (name[at] != "]" or at == begin):
        if name.startswith("[:", at) and (end := name.find(":]", at)) > 0:
            known = _POSIX.get(name[at + 2 : end])
            if known is None:
                return _NEVER, len(name)
            members.append(known)
            at = end + 2
            continue
        low, at = _literal(name, at)
        if name[at : at + 1] == "-" and name[at + 1 : at + 2] not in ("", "]"):
            high, at = _literal(name, at + 1)
            if low <= high:
                members.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            members.append(re.escape(low))
    if at >= len(name):
        return _NEVER, len(name)
    if not members:
        return ("." if negated else _NEVER), at + 1
    return f"[{'^' if negated else ''}{''.join(members)}]", at + 1


def _literal(name: str, at: int) -> tuple[str, int]:
    if name[at] == "\\" and at + 1 < len(name):
        at += 1
    return name[at], at + 1
