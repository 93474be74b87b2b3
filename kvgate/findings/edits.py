"""Applying edits to texts, and showing them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from kvgate.findings.finding import Edit, Fix


def edits_by_path(fixes: Iterable[Fix]) -> dict[str, list[Edit]]:
    """The edits of several fixes by file: each once (an alias repeats it), no fix that overlaps an earlier one."""
    chosen: dict[str, list[Edit]] = {}
    for fix in fixes:
        fresh = [edit for edit in fix.edits if not any(_same(edit, other) for other in chosen.get(edit.span.path, ()))]
        if any(_overlap(edit, other) for edit in fresh for other in chosen.get(edit.span.path, ())):
            continue
        for edit in fresh:
            chosen.setdefault(edit.span.path, []).append(edit)
    return chosen


def _same(left: Edit, right: Edit) -> bool:
    return (left.span.start, left.span.end, left.replacement) == (right.span.start, right.span.end, right.replacement)


def _overlap(left: Edit, right: Edit) -> bool:
    if left.span.start == left.span.end or right.span.start == right.span.end:
        return left.span.start == right.span.start
    return left.span.start < right.span.end and right.span.start < left.span.end


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """A text with edits applied; they must not overlap."""
    parts: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda one: (one.span.start, one.span.end)):
        parts += [text[at : edit.span.start], edit.replacement]
        at = edit.span.end
    return "".join([*parts, text[at:]])


def unified_diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The changes of several files, as ``patch -p1`` takes them."""
    parts: list[str] = []
    for path in sorted(after):
        old, new = before[path], after[path]
        lines = difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{path}"
        )
        parts += [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
    return "".join(parts)
