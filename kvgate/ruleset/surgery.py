"""Minimal changes to the text of a manifest: an argument removed, renamed or given another value, a key added.

Every function gives the edit, or None where the text does not stand there as it is read (an expansion, an escape), or
where a change would touch more than what is meant. What is around the change keeps its form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kvgate.findings.finding import Edit
from kvgate.patterns import regex
from kvgate.source.text import SourceFile, Span
from kvgate.source.yaml_tree import Mapping, Node, Scalar, Sequence, walk

if TYPE_CHECKING:
    from kvgate.engine.arguments import Argument

_ITEM: Final = regex(r"[ \t]*-[ \t]+[\"']?")
_ITEM_REST: Final = regex(r"[\"']?[ \t]*(?:[ \t]#[^\n]*)?\r?")
_NAME: Final = regex(r"--?[A-Za-z0-9][A-Za-z0-9_-]*")


def rename_flag(argument: Argument, name: str) -> Edit | None:
    """The flag of an argument under another name; its value stays."""
    span = _flag_span(argument)
    return Edit(span, name) if span is not None else None


def replace_value(argument: Argument, value: str) -> Edit | None:
    """Another value for an argument, in the quotes that it has."""
    text = argument.text
    if text is None or text.span.text != text.value or not re.fullmatch(r"[\w.+/-]+", value):
        return None
    return Edit(text.span, value)


def remove_argument(argument: Argument) -> Edit | None:
    """An argument without a trace: its lines, its items of a list, or its words of a command line."""
    flag = _flag_span(argument)
    if flag is None:
        return None
    end = flag.end
    if argument.text is not None:
        value = argument.text
        if value.span.file is not flag.file or value.span.start < flag.start or not _stands(value.span, value.value):
            return None
        end = value.span.end
    file = flag.file
    return (
        _remove_items(file, flag.start, end)
        or _remove_flow_items(file, flag.start, end)
        or _remove_words(file, flag.start, end)
    )


def _stands(span: Span, value: str) -> bool:
    """Whether a value is written where it was found, quotes and the like aside."""
    return value in span.text or span.text.strip("\"'") == value or value.startswith(("{", "["))


def _flag_span(argument: Argument) -> Span | None:
    flag = argument.flag
    if flag is None:
        return None
    match = _NAME.match(flag.span.text)
    if match is None or not flag.value.replace("_", "-").startswith(match.group().replace("_", "-")):
        return None
    return Span(flag.span.file, flag.span.start, flag.span.start + match.end())


def _line_bounds(file: SourceFile, offset: int) -> tuple[int, int]:
    """Start of a line and its end without the line feed."""
    start = file.text.rfind("\n", 0, offset) + 1
    end = file.text.find("\n", offset)
    return start, len(file.text) if end < 0 else end


def _remove_items(file: SourceFile, start: int, end: int) -> Edit | None:
    """The whole lines of a block sequence whose items the argument is."""
    first, _ = _line_bounds(file, start)
    last, line_end = _line_bounds(file, end)
    if not _ITEM.fullmatch(file.text, first, start) or not _ITEM_REST.fullmatch(file.text, end, line_end):
        return None
    at = file.text.find("\n", first) + 1
    while 0 < at <= last:
        if not _ITEM.match(file.text, at):
            return None
        at = file.text.find("\n", at) + 1
    return Edit(Span(file, first, min(line_end + 1, len(file.text))), "")


def _remove_flow_items(file: SourceFile, start: int, end: int) -> Edit | None:
    """Items of a flow sequence, with one comma."""
    text = file.text
    before = text[max(0, start - 1) : start]
    quoted = before in ("'", '"') and text[end : end + 1] == before
    left, right = (start - 1, end + 1) if quoted else (start, end)
    head = re.search(r"(?P<comma>,)?\s*$|\[\s*$", text[:left])
    opening = re.search(r"\[\s*$", text[:left])
    comma_before = re.search(r",\s*$", text[:left])
    comma_after = re.compile(r"\s*,[ \t]*\n?[ \t]*").match(text, right)
    closing = re.compile(r"\s*\]").match(text, right)
    inside = (opening or comma_before) and (comma_after or closing)
    if head is None or not inside or (not quoted and before in ("'", '"')):
        return None
    if comma_after is not None:
        return Edit(Span(file, left, comma_after.end()), "")
    if comma_before is not None:
        return Edit(Span(file, comma_before.start(), right), "")
    return None  # the only item: an empty list may mean something else


def _remove_words(file: SourceFile, start: int, end: int) -> Edit | None:
    """Words of a command line; a line of their own goes with its continuation."""
    text = file.text
    if text[start - 1 : start] in ("'", '"') and text[end : end + 1] == text[start - 1]:
        start, end = start - 1, end + 1
    elif (
        text[end : end + 1] in ("'", '"')
        and re.match(r"['\"]\s", text[end : end + 2])
        and (text.count(text[end], start, end) % 2)
    ):
        end += 1
    line_start, _ = _line_bounds(file, start)
    _, line_end = _line_bounds(file, end)
    alone_before = text[line_start:start].strip() == ""
    rest = text[end:line_end].strip()
    if alone_before and rest in ("", "\\"):
        if rest == "\\" or not text[:line_start].rstrip(" \t\r\n").endswith("\\"):
            return Edit(Span(file, line_start, min(line_end + 1, len(text))), "")
        # the last line of a command: the continuation before it goes too
        before = re.search(r"[ \t]*\\[ \t]*\r?\n[ \t]*$", text[:start])
        return Edit(Span(file, before.start(), end), "") if before is not None else None
    blank = re.search(r"[ \t]+$", text[:start])
    if blank is None or not (rest == "" or text[end : end + 1] in (" ", "\t", "'", '"', "\\", ";", "&", "|", ")")):
        return None
    return Edit(Span(file, blank.start(), end), "")


# -- keys --------------------------------------------------------------------------------------------------------------


def is_block(node: Node | None) -> bool:
    """Whether a mapping or sequence is written in lines, not in brackets."""
    if isinstance(node, Mapping):
        return bool(node.entries) and node.alias is None and not node.span.text.startswith("{")
    return isinstance(node, Sequence) and bool(node.items) and node.alias is None and not node.span.text.startswith("[")


def add_lines(node: Mapping, lines: list[str]) -> Edit | None:
    """Lines at the end of a block mapping, indented as its keys are; None where it is not written in lines."""
    if not is_block(node):
        return None
    column = node.entries[0].key.span.column - 1
    return _after(node, [" " * column + line for line in lines])


def add_item(node: Sequence, lines: list[str]) -> Edit | None:
    """An item at the end of a block sequence: its lines, the first behind the dash."""
    if not is_block(node):
        return None
    first = node.items[0].span
    line = first.file.line_text(first.line)
    match = re.match(r"[ \t]*-[ \t]+", line)
    if match is None:
        return None
    dash = line[: match.end()].rstrip().rstrip("-")
    return _after(node, [f"{dash}- {lines[0]}", *(f"{dash}  {more}" for more in lines[1:])])


def _after(node: Node, lines: list[str]) -> Edit | None:
    file = node.span.file
    ends = [_written_end(scalar) for scalar in walk(node) if isinstance(scalar, Scalar) and scalar.span.file is file]
    inside = [end for end in ends if node.span.start <= end <= max(node.span.end, node.span.start)]
    closers = list(_flow_ends(node))
    if not inside:
        return None
    end = max([*inside, *closers])
    _, line_end = _line_bounds(file, end)
    return Edit(Span(file, line_end, line_end), "".join(f"\n{line}" for line in lines))


def _written_end(scalar: Scalar) -> int:
    text = scalar.span.text
    return scalar.span.start + len(text.rstrip())


def _flow_ends(node: Node) -> Iterator[int]:
    """Ends of flow collections inside a node, whose brackets may close on a later line."""
    for inner in walk(node):
        if not isinstance(inner, Scalar) and inner.span.text[:1] in ("{", "["):
            yield inner.span.end
