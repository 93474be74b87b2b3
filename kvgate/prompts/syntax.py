"""Places of Python's syntax tree in a file, the insides of f-strings included.

Python 3.11 gives expressions inside f-strings wrong positions (they are right from 3.12, PEP 701), and byte offsets in
place of columns; both are mended here.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Final

from kvgate.records import record
from kvgate.source.text import SourceFile, Span, Text

MAX_PYTHON_CHARACTERS: Final = 1_000_000


@record
class Problem:
    """Why a file is no Python that can be read, and where."""

    message: str
    span: Span


def parse_python(file: SourceFile) -> ast.Module | Problem:
    """The syntax tree of a file."""
    if len(file.text) > MAX_PYTHON_CHARACTERS:
        return Problem(f"a file of {len(file.text):,} characters is not followed", file.line_span(1))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in other people's strings
            return ast.parse(file.text)
    except SyntaxError as error:
        words = (error.msg or "invalid syntax").rstrip(".")
        return Problem(f"no Python that can be read: {words}", file.line_span(error.lineno or 1))
    except (ValueError, RecursionError, MemoryError) as error:
        return Problem(f"no Python that can be read: {type(error).__name__}", file.line_span(1))


class Places:
    """The places of the nodes of one file."""

    __slots__ = ("_ascii", "_inside", "file")

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._ascii = file.text.isascii()
        self._inside: dict[int, FString] = {}

    def offset(self, line: int, column: int) -> int:
        """The offset of a line (from 1) and a column in UTF-8 bytes (from 0)."""
        starts = self.file.line_starts
        if line > len(starts):
            return len(self.file.text)
        start = starts[line - 1]
        if self._ascii:
            return start + column
        text = self.file.text
        if text[start : start + column].isascii():
            return min(start + column, len(text))
        end = starts[line] if line < len(starts) else len(text)
        return start + len(text[start:end].encode()[:column].decode(errors="ignore"))

    def span(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword) -> Span:
        start = self.offset(node.lineno, node.col_offset)
        if node.end_lineno is None or node.end_col_offset is None:
            return Span(self.file, start, start)
        return Span(self.file, start, max(start, self.offset(node.end_lineno, node.end_col_offset)))

    def constant(self, node: ast.Constant, value: str) -> Text:
        """A string literal with the place of each of its characters, as far as it is written plainly."""
        return self.literal(self.span(node), value)

    def literal(self, span: Span, value: str) -> Text:
        return located(span, value)

    def f_string(self, node: ast.JoinedStr) -> FString:
        """The literal stretches and the expressions of an f-string."""
        key = id(node)
        if key not in self._inside:
            self._inside[key] = scan_f_string(self.span(node))
        return self._inside[key]


def located(span: Span, value: str) -> Text:
    """A text with the place of each of its characters in the literal, or the literals in a row, that write it."""
    written = span.text
    at = written.find(value) if value else -1
    if at >= 0:
        return Text.of_span(Span(span.file, span.start + at, span.start + at + len(value)))
    return _aligned(span, written, value) or Text.at(value, span)


_ESCAPES: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "0": "\0",
}
_LONG_ESCAPE: Final = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}]*\}|[0-7]{1,3})")
_QUOTE: Final = r"(?:\"\"\"|'''|\"|')"
_SEAM: Final = re.compile(_QUOTE + r"(?:\s|\\\n|#[^\n]*\n|[()])*[A-Za-z]{0,2}" + _QUOTE)
_OPENING: Final = re.compile(r"[\s(]*[A-Za-z]{0,2}" + _QUOTE)


def _aligned(span: Span, written: str, value: str) -> Text | None:
    """Walk a literal and its value side by side: escapes, doubled braces, and the seams between literals in a row."""
    opening = _OPENING.match(written)
    at = opening.end() if opening is not None else 0
    parts: list[Text] = []
    index = run = 0
    begin = at

    def flush(stop: int) -> None:
        if stop > begin:
            parts.append(Text.of_span(Span(span.file, span.start + begin, span.start + stop)))

    while index < len(value):
        if at >= len(written):
            return None
        character = written[at]
        if character == value[index] and character != "\\":
            if (
                character in "{}"
                and written.startswith(character * 2, at)
                and not value.startswith(character * 2, index)
            ):
                flush(at + 1)
                at, index = at + 2, index + 1
                begin = at
                continue
            at, index, run = at + 1, index + 1, run + 1
            continue
        flush(at)
        seam = _SEAM.match(written, at)
        if character == "\\":
            long = _LONG_ESCAPE.match(written, at)
            following = written[at + 1 : at + 2]
            size = len(long[0]) if long is not None else 2
            if following == "\n":
                at += 2
                begin = at
                continue
            if long is None and _ESCAPES.get(following, character) != value[index]:
                return None
            if long is None and following not in _ESCAPES:
                size = 1  # a backslash that escapes nothing
            parts.append(Text.at(value[index], Span(span.file, span.start + at, span.start + at + size)))
            at, index = at + size, index + 1
        elif seam is not None:
            at = seam.end()
        else:
            return None
        begin = at
    flush(at)
    return Text.join(parts) if parts else None


@record
class FString:
    """``expressions``: what stands between the braces, without conversion and format; ``literals``: the stretches
    between them, one more than expressions, each from the end of what comes before it."""

    expressions: tuple[Span, ...]
    literals: tuple[Span, ...]


def scan_f_string(span: Span) -> FString:
    """Find the expressions of an f-string (or of several literals in a row) in its text."""
    text = span.text
    expressions: list[Span] = []
    literals: list[Span] = []
    begin = 0
    for start, end, formatted, inside in _literals(text):
        if not formatted:
            continue
        at = start
        while at < end:
            character = text[at]
            if character == "\\" and not inside:
                at += 2
                continue
            if character == "{" and text.startswith("{{", at):
                at += 2
                continue
            if character != "{":
                at += 1
                continue
            close, stop = _expression_end(text, at + 1, end)
            body = text[at + 1 : stop].rstrip()
            if body.endswith("=") and not body.endswith(("==", "!=", "<=", ">=")):
                body = body[:-1].rstrip()  # {name = } shows its own text
            lead = len(body) - len(body.lstrip())
            literals.append(Span(span.file, span.start + begin, span.start + at))
            expressions.append(Span(span.file, span.start + at + 1 + lead, span.start + at + 1 + len(body)))
            begin = at = close
    literals.append(Span(span.file, span.start + begin, span.end))
    return FString(tuple(expressions), tuple(literals))


def _literals(text: str) -> list[tuple[int, int, bool, bool]]:
    """String literals in a row: where the inside of each begins and ends, whether it is an f-string, whether raw."""
    found: list[tuple[int, int, bool, bool]] = []
    at = 0
    while at < len(text):
        character = text[at]
        if character == "#":
            at = text.find("\n", at)
            if at < 0:
                break
            continue
        if character not in "\"'" and not character.isalpha():
            at += 1
            continue
        prefix = at
        while at < len(text) and text[at].isalpha():
            at += 1
        if at >= len(text) or text[at] not in "\"'":
            continue
        letters = text[prefix:at].lower()
        quote = text[at : at + 3] if text[at : at + 3] in ('"""', "'''") else text[at]
        start = at + len(quote)
        end = _literal_end(text, start, quote, "f" in letters)
        found.append((start, end, "f" in letters, "r" in letters))
        at = end + len(quote)
    return found


def _literal_end(text: str, at: int, quote: str, formatted: bool) -> int:
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text.startswith(quote, at):
            return at
        if formatted and text[at] == "{":
            if text.startswith("{{", at):
                at += 2
                continue
            at = _expression_end(text, at + 1, len(text))[0]
            continue
        at += 1
    return len(text)


def _expression_end(text: str, at: int, limit: int) -> tuple[int, int]:
    """Where the replacement field that opens before ``at`` ends, and where its expression does."""
    depth = 0
    stop: int | None = None
    start = at
    while at < limit:
        character = text[at]
        if character in "\"'" and stop is None:
            quote = text[at : at + 3] if text[at : at + 3] in ('"""', "'''") else character
            closing = text.find(quote, at + len(quote), limit)
            at = closing + len(quote) if closing >= 0 else at + 1
            continue
        if character in "([{":
            depth += 1
        elif character in ")]" and depth:
            depth -= 1
        elif character == "}":
            if depth == 0:
                return at + 1, at if stop is None else stop
            depth -= 1
        elif (
            stop is None
            and depth == 0
            and (character == ":" or (character == "!" and at > start and not text.startswith("!=", at)))
        ):
            stop = at
        at += 1
    return limit, limit if stop is None else stop
