"""A value that may hold stretches which the files do not determine."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import field
from operator import attrgetter

from kvgate.records import record
from kvgate.source.text import Span, Text, Unresolved, Word

_TRIES = 10


@record
class Hole:
    """Characters ``[start, end)`` of a value, as written, that stand for something unknown.

    ``splits``: the unknown could be several words, or none, where it stands unquoted.
    """

    start: int
    end: int
    unresolved: Unresolved
    splits: bool = True


@record
class Value:
    """A text with its holes, in order and apart from each other."""

    text: Text
    holes: tuple[Hole, ...] = ()
    _masked: str | None = field(default=None, repr=False, compare=False)

    @classmethod
    def unknown(cls, text: Text, reason: str, *, written: str | None = None, splits: bool = True) -> Value:
        """A value of which only the place is known; ``text`` (or ``written``, standing there) is what is written."""
        if written is not None:
            text = Text.at(written, text.span)
        unresolved = Unresolved(text.value, reason)
        return cls(text, (Hole(0, len(text), unresolved, splits),))

    @classmethod
    def join(cls, parts: Iterable[Value]) -> Value:
        parts = list(parts)
        holes: list[Hole] = []
        at = 0
        for part in parts:
            holes += [Hole(hole.start + at, hole.end + at, hole.unresolved, hole.splits) for hole in part.holes]
            at += len(part.text)
        return cls(Text.join(part.text for part in parts), tuple(holes))

    @property
    def value(self) -> str:
        return self.text.value

    @property
    def resolved(self) -> bool:
        return not self.holes

    @property
    def span(self) -> Span:
        return self.text.span

    def with_holes(self, added: Iterable[Hole]) -> Value:
        """The same text with further holes, in order and apart from each other; none that touches one it has."""
        ends = [hole.end for hole in self.holes]
        free: list[Hole] = []
        for hole in added:
            following = bisect_right(ends, hole.start)
            if following == len(ends) or self.holes[following].start >= hole.end:
                free.append(hole)
        return Value(self.text, tuple(sorted([*self.holes, *free], key=attrgetter("start")))) if free else self

    def slice(self, start: int, end: int) -> Value:
        """Characters ``[start, end)``; a hole that is cut stays a hole."""
        if not self.holes:
            return Value(self.text.slice(start, end))
        first = bisect_right(self.holes, start, key=attrgetter("end"))
        behind = bisect_left(self.holes, end, key=attrgetter("start"))
        holes = (
            Hole(max(hole.start, start) - start, min(hole.end, end) - start, hole.unresolved, hole.splits)
            for hole in self.holes[first:behind]
        )
        return Value(self.text.slice(start, end), tuple(holes))

    def replaced(
        self, matches: Iterable[re.Match[str]], replacement: Callable[[re.Match[str], Value], Value | None]
    ) -> Value:
        """The value with matches of a pattern in its text replaced.

        Args:
            matches: in order and apart from each other.
            replacement: what takes the place of a match, given the match and what stands there; None leaves it.
        """
        parts: list[Value] = []
        at = 0
        for match in matches:
            found = replacement(match, self.slice(*match.span()))
            if found is not None:
                parts += [self.slice(at, match.start()), found]
                at = match.end()
        return Value.join([*parts, self.slice(at, len(self.text))]) if parts else self

    def at(self, span: Span) -> Value:
        """The same value, all of it written at ``span``."""
        return Value(Text.at(self.text.value, span), self.holes)

    def masked(self, fill: str = "x") -> str:
        """The text with every character of a hole replaced, for looking at what surrounds the holes."""
        value = self.text.value
        if not self.holes:
            return value
        if fill == "x" and self._masked is not None:
            return self._masked
        parts: list[str] = []
        at = 0
        for hole in self.holes:
            parts += [value[at : hole.start], fill * (hole.end - hole.start)]
            at = hole.end
        masked = "".join([*parts, value[at:]])
        if fill == "x":
            object.__setattr__(self, "_masked", masked)
        return masked

    def word(self, *, quoted: bool = True) -> Word:
        """The whole value as one word."""
        return Word(
            self.text,
            tuple(hole.unresolved for hole in self.holes),
            splits=not quoted and any(hole.splits for hole in self.holes),
        )


def value_of_word(word: Word, *, splits: bool | None = None) -> Value:
    """A word as a value, its unresolved parts as holes; ``splits`` overrides whether those may be several words."""
    splits = word.splits if splits is None else splits
    if word.resolved:
        return Value(word.text)
    holes: list[Hole] = []
    at = 0
    for unresolved in word.unresolved:
        start = _find(word.value, unresolved.text, at) if unresolved.text else -1
        if start < 0:
            return Value(word.text, (Hole(0, len(word.text), unresolved, splits),))
        at = start + len(unresolved.text)
        holes.append(Hole(start, at, unresolved, splits))
    return Value(word.text, tuple(holes))


def _find(text: str, part: str, at: int) -> int:
    """Where a part begins; rather where it is a word of its own: in ``--port=port`` not within the flag."""
    first = start = text.find(part, at)
    for _ in range(_TRIES if part[0].isalnum() or part[0] == "_" else 0):
        if start <= 0 or not (text[start - 1].isalnum() or text[start - 1] in "_-"):
            break
        start = text.find(part, start + 1)
    return start if start >= 0 else first
