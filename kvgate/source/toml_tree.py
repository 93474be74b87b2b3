"""TOML (v1.0.0) as the nodes that YAML is read into: the place of every value and of its characters is kept.

Python's own reader knows no places. This one refuses nothing: what is no TOML (a template's placeholder) is a plain
text up to where the value must end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from typing import Final

from kvgate.patterns import regex
from kvgate.records import record
from kvgate.source.text import SourceFile, Text, character
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, Sequence

MAX_DEPTH: Final = 40

_BLANK: Final = regex(r"(?:[ \t]|#[^\n]*)*")
_BLANK_LINES: Final = regex(r"(?:\s|#[^\n]*)*")
_KEY: Final = regex(
    r"[ \t]*(?:(?P<bare>[\w-]+)|\"(?P<basic>(?:[^\"\\\n]|\\.)*)\"|'(?P<literal>[^'\n]*)')[ \t]*(?P<dot>\.?)"
)
_QUOTE: Final = regex(r"\"\"\"|'''|\"|'")
_RUNS: Final = {
    '"': regex(r"[^\"\\\n]+"),
    "'": regex(r"[^'\n]+"),
    '"""': regex(r"(?:[^\"\\]|\"(?!\"\"))+"),
    "'''": regex(r"(?:[^']|'(?!''))+"),
}
_PLAIN: Final = regex(r"[^\s,\]}#]+")
_TO_END: Final = regex(r"[^\n#]*")
_ESCAPE: Final = regex(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([ \t]*\r?\n\s*)|(.))")
_CHARACTERS: Final = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}


@record
class _Table:
    """A table under construction, and those below it."""

    node: Mapping
    below: dict[str, _Table] = field(default_factory=dict)
    lists: dict[str, list[Node]] = field(default_factory=dict)


def parse_toml(file: SourceFile) -> Mapping:
    """The table that a file is. Never raises for what the file holds."""
    return _Reader(file).document()


class _Reader:
    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.text = file.text

    def document(self) -> Mapping:
        root = _Table(Mapping(self.file.span(0, len(self.text)), []))
        table = root
        at = 0
        while at < len(self.text):
            at = self.blank(_BLANK_LINES, at)
            if self.text.startswith("[", at):
                doubled = self.text.startswith("[[", at)
                keys, behind = self.keys(at + 1 + doubled)
                table = self.table(root, keys, doubled=doubled) if keys else table
            else:
                behind = self.pair(table, at)
            end = self.text.find("\n", behind)
            at = len(self.text) if end < 0 else end + 1
        return root.node

    def blank(self, pattern: re.Pattern[str], at: int) -> int:
        match = pattern.match(self.text, at)
        return match.end() if match else at

    def keys(self, at: int) -> tuple[list[Scalar], int]:
        """A dotted key, and the place behind it."""
        keys: list[Scalar] = []
        while len(keys) < MAX_DEPTH and (match := _KEY.match(self.text, at)) is not None:
            group = next(name for name in ("bare", "basic", "literal") if match[name] is not None)
            keys.append(Scalar(self.file.span(*match.span(group)), match[group], ""))
            at = match.end()
            if not match["dot"]:
                break
        return keys, at

    def table(self, table: _Table, keys: list[Scalar], *, doubled: bool = False) -> _Table:
        for number, key in enumerate(keys):
            last = doubled and number == len(keys) - 1
            if key.value not in table.below or last:
                node = Mapping(key.span, [])
                if last:
                    items = table.lists.get(key.value)
                    if items is None:
                        items = table.lists[key.value] = []
                        table.node.entries.append(Entry(key, Sequence(key.span, items)))
                    items.append(node)
                else:
                    table.node.entries.append(Entry(key, node))
                table.below[key.value] = _Table(node)
            table = table.below[key.value]
        return table

    def pair(self, table: _Table, at: int, depth: int = 0) -> int:
        """``a.b = value``; the place behind it."""
        keys, behind = self.keys(at)
        if not keys or not self.text.startswith("=", behind):
            return max(behind, at)
        node, behind = self.value(self.blank(_BLANK, behind + 1), depth)
        self.table(table, keys[:-1]).node.entries.append(Entry(keys[-1], node))
        return behind

    def value(self, at: int, depth: int) -> tuple[Node, int]:
        quote = _QUOTE.match(self.text, at)
        if quote is not None:
            return self.string(at, quote.group())
        if self.text.startswith("[", at) and depth < MAX_DEPTH:
            return self.array(at, depth + 1)
        if self.text.startswith("{", at) and depth < MAX_DEPTH:
            return self.inline(at, depth + 1)
        match = (_PLAIN if depth else _TO_END).match(self.text, at)
        end = match.end() if match else at
        end = at + len(self.text[at:end].rstrip())
        return Scalar(self.file.span(at, end), self.text[at:end], ""), end

    def array(self, at: int, depth: int) -> tuple[Node, int]:
        items: list[Node] = []
        start, at = at, self.blank(_BLANK_LINES, at + 1)
        while at < len(self.text) and self.text[at] != "]":
            node, behind = self.value(at, depth)
            if behind > at:
                items.append(node)
            at = self.blank(_BLANK_LINES, max(behind, at + 1) if behind == at else behind)
            at = self.blank(_BLANK_LINES, at + 1) if self.text.startswith(",", at) else at
        return Sequence(self.file.span(start, min(at + 1, len(self.text))), items), at + 1

    def inline(self, at: int, depth: int) -> tuple[Node, int]:
        table = _Table(Mapping(self.file.span(at, at + 1), []))
        start, at = at, self.blank(_BLANK, at + 1)
        while at < len(self.text) and self.text[at] not in "}\n":
            behind = self.pair(table, at, depth)
            at = self.blank(_BLANK, behind if behind > at else at + 1)
            at = self.blank(_BLANK, at + 1) if self.text.startswith(",", at) else at
        end = min(at + 1, len(self.text))
        span = self.file.span(start, end)
        if not table.node.entries and self.text[start + 1 : end - 1].strip():
            return Scalar(span, self.text[start:end], ""), end  # `{placeholder}`
        return Mapping(span, table.node.entries), end

    def string(self, at: int, quote: str) -> tuple[Node, int]:
        start = at + len(quote)
        if len(quote) == 3 and self.text.startswith(("\n", "\r\n"), start):
            start = self.text.index("\n", start) + 1
        parts = list(self.parts(start, quote))
        text = Text.join([Text.of_span(self.file.span(start, start)), *(part for part, _ in parts)])
        end = parts[-1][1] if parts else start
        end += len(quote) if self.text.startswith(quote, end) else 0
        return Scalar(self.file.span(at, end), text.value, quote[0], None, text), end

    def parts(self, at: int, quote: str) -> Iterator[tuple[Text, int]]:
        """The pieces of a string, each with the place behind it."""
        run = _RUNS[quote]
        while (match := run.match(self.text, at)) is not None or (quote[0] == '"' and self.text.startswith("\\", at)):
            if match is not None:
                at = match.end()
                yield Text.of_span(self.file.span(*match.span())), at
                continue
            escape = _ESCAPE.match(self.text, at)
            start, at = at, escape.end() if escape else at + 1
            if escape is not None and escape[3] is None:
                code = escape[1] or escape[2]
                written = character(int(code, 16)) if code else _CHARACTERS.get(escape[4], escape[4])
                yield Text.at(written, self.file.span(start, at)), at
