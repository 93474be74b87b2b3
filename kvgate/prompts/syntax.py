"""Places of Python's syntax tree in a file, the insides of f-strings included.

Python 3.11 gives expressions inside f-strings wrong positions (they are right from 3.12, PEP 701), and byte offsets in
place of columns; both are mended here.
"""

from __future__ import annotations

import ast
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
        written = span.text
        at = written.find(value) if value else -1
        if at >= 0:
            return Text.of_span(Span(span.file, span.start + at, span.start + at + len(value)))
        return _line_by_line(span, value)

    def f_string(self, node: ast.JoinedStr) -> FString:
        """The literal stretches and the expressions of an f-string."""
        key = id(node)
        if key not in self._inside:
            self._inside[key] = scan_f_string(self.span(node))
        return self._inside[key]


def _line_by_line(span: Span, value: str) -> Text:
    """The place of each line of a text in its literal; a line that is written otherwise has the literal's place."""
    parts: list[Text] = []
    at = span.start
    for line in value.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        found = span.file.text.find(body, at, span.end) if len(body) > 2 else -1
        if found < 0:
            parts.append(Text.at(line, span))
            continue
        parts.append(Text.of_span(Span(span.file, found, found + len(body))))
        if len(body) < len(line):
            parts.append(Text.at(line[len(body) :], Span(span.file, found + len(body), found + len(body))))
        at = found + len(body)
    return Text.join(parts) if parts else Text.at(value, span)


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
