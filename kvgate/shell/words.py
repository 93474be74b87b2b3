"""Splitting a command line into words, with the place of every character.

The rules are those of POSIX.1-2017, Shell Command Language, 2.2 (quoting) and 2.6.5 (field splitting). One leniency: a
backslash before a blank and a dash (``vllm serve X \\ --port 8000``, what YAML folding makes of a continued line) is
taken for the line continuation that was meant.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from operator import attrgetter
from typing import Final

from kvgate.patterns import regex
from kvgate.shell.value import Hole, Value
from kvgate.source.text import Span, Text, TooLargeError, Unresolved, Word

BLANKS: Final = " \t\r\n"
MAX_FIELDS: Final = 300_000  # characters and parts of the words of one command
_PLAIN: Final = regex(r"[^\s\\'\"$`]+")
_PLAIN_QUOTED: Final = regex(r"[^\\$`]+")
_PLAIN_WITHIN: Final = regex(r'[^\\$`"]+')
_IN_QUOTES: Final = regex(r'["\\$]')
_IN_BRACKETS: Final = regex(r"""["'\\$(){}]""")
_FIELD: Final = regex(r"\S+")

# Reads what a `$` or a backquote at an index begins, adds it to the fields, and returns the index after it.
Expander = Callable[[Value, int, bool, "Fields"], int]


def split_words(text: Text | Value) -> list[Word]:
    """Words of a command line in which nothing is expanded (a compose ``command`` string, after interpolation)."""
    value = Value(text) if isinstance(text, Text) else text
    fields = Fields()
    lex(value, 0, len(value.text), fields)
    return fields.words()


class Fields:
    """Collects words. With ``split=False`` everything becomes one value (the right side of an assignment).

    Raises:
        TooLargeError: variables that refer to each other grow beyond all measure.
    """

    def __init__(self, *, split: bool = True) -> None:
        self.split = split
        self._done: list[list[tuple[Value, bool]]] = []
        self._parts: list[tuple[Value, bool]] = []
        self._started = False
        self._vanishes = False
        self.size = 0  # characters and parts so far

    def add(self, value: Value, *, quoted: bool) -> None:
        """Characters of the current word that are not split further."""
        self._started = True
        self._parts.append((value, quoted))
        self.size += len(value.text) + 1
        if self.size > MAX_FIELDS:
            raise TooLargeError(f"a command of more than {MAX_FIELDS:,} characters")

    def vanish(self) -> None:
        """A list of nothing stands in the current word (``"$@"``): it is no word if nothing else is in it."""
        self._vanishes = True

    def end_word(self) -> None:
        if self._started and not (self._vanishes and not any(value.text.value for value, _ in self._parts)):
            self._done.append(self._parts)
        self._parts = []
        self._started = self._vanishes = False

    def add_expanded(self, value: Value, use: Span, *, quoted: bool) -> None:
        """What an expansion at ``use`` yields.

        A value that makes up one word counts as written where it is used; one of several words where they are
        written, since that is where each of them can be changed.
        """
        if quoted or not self.split:
            self.add(value.at(use) if self.split else value, quoted=quoted)
            return
        masked = value.masked()
        fields = list(_FIELD.finditer(masked))
        if not fields:
            if masked:
                self.end_word()
            return
        if masked[0] in BLANKS:
            self.end_word()
        for number, field in enumerate(fields):
            if number:
                self.end_word()
            part = value.slice(field.start(), field.end())
            self.add(part if len(fields) > 1 else part.at(use), quoted=False)
        if masked[-1] in BLANKS:
            self.end_word()

    def words(self) -> list[Word]:
        self.end_word()
        return [_word(parts) for parts in self._done]

    def value(self, anchor: Text) -> Value:
        """Everything as one value; ``anchor`` is where it stands if it is empty."""
        self.end_word()
        parts = [part for word in self._done for part, _ in word]
        return Value.join(parts) if parts else Value(anchor.slice(0, 0))


def _word(parts: list[tuple[Value, bool]]) -> Word:
    unresolved: list[Unresolved] = []
    splits = False
    for value, quoted in parts:
        unresolved += [hole.unresolved for hole in value.holes]
        splits = splits or (not quoted and any(hole.splits for hole in value.holes))
    return Word(Text.join(value.text for value, _ in parts), tuple(unresolved), splits)


def lex(
    value: Value,
    start: int,
    end: int,
    fields: Fields,
    *,
    quoted: bool = False,
    within: bool = False,
    expander: Expander | None = None,
) -> None:
    """Read characters ``[start, end)`` of a command line into fields; blanks outside quotes end words.

    Args:
        within: what is quoted stands in the braces of an expansion, where quotes of its own are taken off
            (``"${X:+"$X"}"``).
    """
    text = value.masked()
    holes: dict[int, Hole] = {}
    if value.holes:
        first = bisect_left(value.holes, start, key=attrgetter("start"))
        behind = bisect_left(value.holes, end, key=attrgetter("start"))
        holes = {hole.start: hole for hole in value.holes[first:behind]}
    starts = list(holes)
    plain = (_PLAIN_WITHIN if within else _PLAIN_QUOTED) if quoted else _PLAIN
    at = start
    while at < end:
        hole = holes.get(at)
        if hole is not None:
            stop = min(hole.end, end)
            fields.add(value.slice(at, stop), quoted=quoted)
            at = stop
            continue
        char = text[at]
        if char == "\\":
            at = _escape(value, at, end, fields, quoted=quoted)
        elif char in "$`":
            after = expander(value, at, quoted, fields) if expander else at
            if after <= at:
                fields.add(value.slice(at, at + 1), quoted=quoted)
                after = at + 1
            at = after
        elif not quoted and char in BLANKS:
            if fields.split:
                fields.end_word()
            else:
                fields.add(value.slice(at, at + 1), quoted=True)
            at += 1
        elif quoted and within and char == '"':
            at += 1
        elif not quoted and char == "'":
            close = text.find("'", at + 1, end)
            close = end if close < 0 else close
            fields.add(value.slice(at + 1, close), quoted=True)
            at = close + 1
        elif not quoted and char == '"':
            close = closing_quote(text, at, end)
            fields.add(Value(value.text.slice(at + 1, at + 1)), quoted=True)
            lex(value, at + 1, close, fields, quoted=True, expander=expander)
            at = close + 1
        else:
            match = plain.match(text, at, end)
            stop = match.end() if match else at + 1
            if starts:
                following = bisect_right(starts, at)
                stop = min(stop, starts[following]) if following < len(starts) else stop
            fields.add(Value(value.text.slice(at, stop)), quoted=quoted)
            at = stop


def _escape(value: Value, at: int, end: int, fields: Fields, *, quoted: bool) -> int:
    text = value.masked()
    following = text[at + 1 : min(at + 3, end)]
    if following.startswith("\n"):
        return at + 2
    if following == "\r\n":
        return at + 3
    if not following:
        # a dangling backslash continues onto nothing
        if quoted:
            fields.add(value.slice(at, at + 1), quoted=True)
        return at + 1
    if quoted:
        keep = 1 if following[0] in '$`"\\' else 0
        fields.add(value.slice(at + keep, at + 2), quoted=True)
        return at + 2
    if following[0] in BLANKS and (at == 0 or text[at - 1] in BLANKS) and text[at + 1 : end].lstrip()[:1] in ("-", ""):
        return at + 1
    fields.add(value.slice(at + 1, at + 2), quoted=True)
    return at + 2


def closing_quote(text: str, start: int, end: int) -> int:
    """Index of the double quote that closes the one at ``start``; ``end`` if there is none."""
    at = start + 1
    while at < end:
        match = _IN_QUOTES.search(text, at, end)
        if match is None:
            return end
        at = match.start()
        char = text[at]
        if char == '"':
            return at
        if char == "\\":
            at += 2
        elif text[at + 1 : at + 2] in ("{", "("):
            at = closing_bracket(text, at + 1, end) + 1
        else:
            at += 1
    return end


def closing_bracket(text: str, start: int, end: int) -> int:
    """Index of the ``}`` or ``)`` that closes the bracket at ``start``, quotes respected; ``end`` if there is none."""
    stack = [_CLOSING[text[start]]]
    at = start + 1
    while at < end:
        match = _IN_BRACKETS.search(text, at, end)
        if match is None:
            return end
        at = match.start()
        char = text[at]
        if char == "\\":
            at += 2
            continue
        if char == stack[-1]:
            stack.pop()
            if not stack:
                return at
        elif char == "'" and stack[-1] == ")":
            close = text.find("'", at + 1, end)
            at = close if close >= 0 else at
        elif char == '"':
            at = _string_end(text, at, end)
        elif char == "$" and text[at + 1 : at + 2] in ("{", "("):
            stack.append(_CLOSING[text[at + 1]])
            at += 1
        elif char == "(" and stack[-1] == ")":
            stack.append(")")
        if len(stack) > _MAX_NESTING:
            return end
        at += 1
    return end


def _string_end(text: str, start: int, end: int) -> int:
    at = start + 1
    depth = 0
    while at < end:
        char = text[at]
        if char == "\\":
            at += 2
            continue
        if char == '"' and depth == 0:
            return at
        if char == "$" and text[at + 1 : at + 2] == "{":
            depth += 1
        elif char == "}" and depth:
            depth -= 1
        at += 1
    return start


_CLOSING: Final = {"{": "}", "(": ")"}
_MAX_NESTING: Final = 50
