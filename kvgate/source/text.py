"""Text that knows where it came from.

Everything kvgate reads is kept as :class:`Text`: a string in which every stretch maps back to the characters of the
file it was written in, through YAML folding, quoting, shell words and variable expansion alike. Positions are code
points, never bytes, so that SARIF's ``unicodeCodePoints`` columns follow directly.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import accumulate
from typing import Final

from kvgate.records import record

MAX_JOINED: Final = 2_000_000  # characters of a text that is put together


class TooLargeError(Exception):
    """A text, or a script, beyond the bounds within which it is read."""


class SourceFile:
    """One decoded file.

    Args:
        path: POSIX path as shown to people, relative to the root of the run.
        text: the decoded content, line endings untouched, without byte order mark.
    """

    __slots__ = ("_starts", "path", "secrets", "text")

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        #: values in the text that no output may show; known once the file was understood
        self.secrets: frozenset[str] = frozenset()
        self._starts: list[int] | None = None

    @classmethod
    def from_bytes(cls, path: str, data: bytes) -> SourceFile:
        """Decode UTF-8 (a byte order mark is dropped) or UTF-16 with a mark.

        Raises:
            UnicodeDecodeError: the bytes are in no encoding that YAML allows.
        """
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            return cls(path, data.decode("utf-16"))
        return cls(path, data.decode("utf-8-sig"))

    def __repr__(self) -> str:
        return f"SourceFile({self.path!r})"

    @property
    def line_starts(self) -> list[int]:
        """Offset of the first character of each line; a line ends at LF (CR LF counts once)."""
        if self._starts is None:
            starts = [0]
            find = self.text.find
            at = find("\n")
            while at >= 0:
                starts.append(at + 1)
                at = find("\n", at + 1)
            self._starts = starts
        return self._starts

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1, of an offset."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line_text(self, line: int) -> str:
        """The text of a line counted from 1, without its line ending; empty beyond the end."""
        starts = self.line_starts
        if not 1 <= line <= len(starts):
            return ""
        end = starts[line] if line < len(starts) else len(self.text)
        return self.text[starts[line - 1] : end].rstrip("\r\n")

    def span(self, start: int, end: int) -> Span:
        return Span(self, start, end)

    def line_span(self, line: int) -> Span:
        """The span of a whole line (counted from 1), without its indentation and line ending."""
        start = self.line_starts[min(max(line, 1), len(self.line_starts)) - 1]
        text = self.line_text(line)
        body = text.strip()
        begin = start + (len(text) - len(text.lstrip()))
        return Span(self, begin, begin + len(body))


def character(code: int) -> str:
    """The character of a code point; the replacement character where it is none that UTF-8 can write."""
    return chr(code) if code < 0xD800 or 0xDFFF < code <= 0x10FFFF else "\ufffd"


@record
class Span:
    """Half-open range of code points ``[start, end)`` in a file."""

    file: SourceFile
    start: int
    end: int

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def text(self) -> str:
        return self.file.text[self.start : self.end]

    @property
    def line(self) -> int:
        """Line of the first character, from 1."""
        return self.file.position(self.start)[0]

    @property
    def column(self) -> int:
        """Column of the first character, from 1."""
        return self.file.position(self.start)[1]

    @property
    def end_line(self) -> int:
        return self.file.position(self.end)[0]

    @property
    def end_column(self) -> int:
        """Column after the last character, from 1."""
        return self.file.position(self.end)[1]

    def __repr__(self) -> str:
        return f"<{self.path}:{self.line}:{self.column}>"


@record
class Piece:
    """``length`` characters of a text and where they stand; ``exact`` when they stand there one for one."""

    length: int
    span: Span
    exact: bool


@record
class Text:
    """A string with the source of each of its characters.

    Slicing and joining keep the map. Characters that were written otherwise (escapes, folded line ends, expanded
    variables) map to the whole of what stands for them.
    """

    value: str
    pieces: tuple[Piece, ...]
    _starts: list[int] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of_span(cls, span: Span) -> Text:
        """The text exactly as it stands in the file."""
        return cls(span.text, (Piece(span.end - span.start, span, True),))

    @classmethod
    def at(cls, value: str, span: Span) -> Text:
        """A value that the whole of ``span`` stands for."""
        return cls(value, (Piece(len(value), span, False),))

    @classmethod
    def join(cls, parts: Iterable[Text]) -> Text:
        """All parts in a row; what is known to stand nowhere takes the place of what is before it, else behind it.

        Raises:
            TooLargeError: values that refer to each other grow beyond all measure.
        """
        parts = list(parts)
        if len(parts) == 1 and parts[0].value:
            return parts[0]
        if sum(len(part.value) for part in parts) > MAX_JOINED:
            raise TooLargeError(f"a text of more than {MAX_JOINED:,} characters")
        values: list[str] = []
        pieces: list[Piece] = []
        anchor: tuple[Piece, ...] = ()
        homeless = 0
        for part in parts:
            values.append(part.value)
            if not part.pieces:
                if part.value and pieces:
                    pieces.append(Piece(len(part.value), pieces[-1].span, False))
                else:
                    homeless += len(part.value)
                continue
            if homeless:
                pieces.append(Piece(homeless, part.pieces[0].span, False))
                homeless = 0
            anchor = anchor or part.pieces
            for piece in part.pieces:
                if not piece.length:
                    continue
                last = pieces[-1] if pieces else None
                if (
                    last
                    and last.exact
                    and piece.exact
                    and last.span.file is piece.span.file
                    and last.span.end == piece.span.start
                ):
                    merged = Span(last.span.file, last.span.start, piece.span.end)
                    pieces[-1] = Piece(last.length + piece.length, merged, True)
                else:
                    pieces.append(piece)
        if not pieces and anchor:
            pieces = [Piece(homeless, anchor[0].span, False)]
        return cls("".join(values), tuple(pieces))

    def __str__(self) -> str:
        return self.value

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[str]:
        return iter(self.value)

    def _offsets(self) -> list[int]:
        """Where each piece begins in the value."""
        offsets = self._starts
        if offsets is None:
            offsets = list(accumulate((piece.length for piece in self.pieces[:-1]), initial=0))
            object.__setattr__(self, "_starts", offsets)
        return offsets

    def slice(self, start: int, end: int) -> Text:
        """Characters ``[start, end)``; an empty slice still knows its place."""
        size = len(self.value)
        start = 0 if start < 0 else min(start, size)
        end = start if end < start else min(end, size)
        known = self.pieces
        if start == 0 and end == size and end:
            return self
        if not known:
            return Text(self.value[start:end], ())
        if len(known) == 1 and start < end:
            return Text(self.value[start:end], (_cut(known[0], start, end),))
        offsets = self._offsets()
        index = max(bisect_right(offsets, start) - 1, 0)
        if start == end:
            at, piece = offsets[index], known[index]
            within = min(start - at, piece.length)
            anchor = _cut(piece, within, within) if piece.exact else Piece(0, piece.span, False)
            return Text("", (anchor,))
        last = bisect_left(offsets, end, index)
        at, piece = offsets[index], known[index]
        if last - index == 1:
            return Text(self.value[start:end], (_cut(piece, start - at, end - at),))
        pieces = [_cut(piece, start - at, piece.length)] if start < at + piece.length else []
        pieces += known[index + 1 : last - 1]
        at, piece = offsets[last - 1], known[last - 1]
        pieces.append(_cut(piece, 0, min(end - at, piece.length)))
        return Text(self.value[start:end], tuple(pieces))

    def span_of(self, start: int, end: int) -> Span:
        """The span of the characters ``[start, end)``: that of the slice, without making one."""
        size = len(self.value)
        if not self.pieces or not 0 <= start < end <= size:
            return self.slice(start, end).span
        offsets = self._offsets()
        index = max(bisect_right(offsets, start) - 1, 0)
        last = bisect_left(offsets, end, index) - 1
        piece = self.pieces[index]
        if last == index:
            return _cut(piece, start - offsets[index], end - offsets[index]).span
        first = piece.span
        begin = first.start + (start - offsets[index]) if piece.exact else first.start
        stop = first.end
        for piece in self.pieces[index + 1 : last]:
            span = piece.span
            if span.end > stop and span.file is first.file and span.start >= begin:
                stop = span.end
        piece = self.pieces[last]
        if piece.span.file is first.file and piece.span.start >= begin:
            ends = piece.span.start + (end - offsets[last]) if piece.exact else piece.span.end
            stop = max(stop, ends)
        return Span(first.file, begin, stop)

    @property
    def span(self) -> Span:
        """The stretch of the file from the first to the last character (of the first file, if there are several)."""
        first = self.pieces[0].span
        end = first.end
        for piece in self.pieces[1:]:
            if piece.span.file is first.file and piece.span.start >= first.start:
                end = max(end, piece.span.end)
        return Span(first.file, first.start, end)


def _cut(piece: Piece, start: int, end: int) -> Piece:
    if start == 0 and end == piece.length:
        return piece
    if not piece.exact:
        return Piece(end - start, piece.span, False)
    base = piece.span.start
    return Piece(end - start, Span(piece.span.file, base + start, base + end), True)


@record
class Unresolved:
    """A value that the files do not determine: the text as written, and why it could not be resolved."""

    text: str
    reason: str


@record
class Word:
    """One word of a command line.

    ``unresolved`` lists the parts of the text that stand for something the files do not say; the text then still
    holds them as written (``${TP_SIZE}``). ``splits`` is true where the missing value could be several words (an
    unquoted ``$ARGS``), or none at all.
    """

    text: Text
    unresolved: tuple[Unresolved, ...] = field(default=())
    splits: bool = False

    @property
    def value(self) -> str:
        return self.text.value

    @property
    def span(self) -> Span:
        return self.text.span

    @property
    def resolved(self) -> bool:
        return not self.unresolved


COMMAND_LINE: Final = "<command line>"


def words_of_command_line(words: Iterable[str]) -> tuple[Word, ...]:
    """Words given on kvgate's own command line, as text of a file named ``<command line>``."""
    words = tuple(words)
    file = SourceFile(COMMAND_LINE, " ".join(words))
    result: list[Word] = []
    at = 0
    for word in words:
        result.append(Word(Text.of_span(Span(file, at, at + len(word)))))
        at += len(word) + 1
    return tuple(result)
