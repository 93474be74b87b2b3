"""A comparison as text for people: what each server held and holds, why, the findings, the verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from kvgate.gate.difference import Cause, Difference, UnitDifference
from kvgate.report.difference.words import (
    admitted_cell,
    counts,
    headline,
    match_words,
    plural,
    policy_words,
    pool_cell,
    requests_cell,
    starts_cell,
    tokens_cell,
)
from kvgate.report.escape import visible, width
from kvgate.report.text import DEFAULT_WIDTH, MIN_WIDTH, cut_middle, render_text

_HEAD: Final = ("UNIT", "REQUESTS", "POOL", "TOKENS", "ADMITTED", "STARTS")
_BOLD: Final = "\x1b[1m"
_COLORS: Final = {"fail": "\x1b[1;31m", "accepted": "\x1b[1;33m", "pass": "\x1b[1;32m"}
_PLAIN: Final = "\x1b[0m"
LEAST_NAME: Final = 20


def render_difference_text(
    difference: Difference,
    *,
    color: bool = False,
    verbose: bool = False,
    quiet: bool = False,
    columns: int | None = None,
) -> str:
    """The comparison.

    Args:
        verbose: unchanged servers, and changed inputs without effect, too.
        quiet: the findings and the verdict only.
    """
    columns = max(columns or DEFAULT_WIDTH, MIN_WIDTH)
    lines: list[str] = []
    if not quiet:
        lines += _wrapped(f"base: {visible(str(difference.base))}", columns, "  ")
        lines += _wrapped(f"head: {visible(str(difference.head))}", columns, "  ")
        lines.append("")
        lines += _units(difference, color, verbose, columns)
    findings = render_text(difference.report, color=color, quiet=True, width=columns).rstrip("\n")
    if findings:
        lines += [findings, ""]
    verdict = headline(difference)
    lines.append(f"{_COLORS[difference.gate.verdict]}{verdict}{_PLAIN}" if color else verdict)
    for reason in difference.gate.reasons:
        lines += _wrapped(f"  - {visible(reason)}", columns, "    ")
    lines += _wrapped(f"policy: {policy_words(difference)}", columns, "  ")
    return "\n".join(lines) + "\n"


def difference_sentence(difference: Difference) -> str:
    """The closing sentence for stderr."""
    return f"{counts(difference)}; {headline(difference)}"


def _units(difference: Difference, color: bool, verbose: bool, columns: int) -> Iterator[str]:
    shown = [unit for unit in difference.units if verbose or unit.is_changed]
    rows = [_row(unit) for unit in shown]
    if rows:
        widths = [max(width(row[column]) for row in (_HEAD, *rows)) for column in range(len(_HEAD))]
        widths[0] = max(min(widths[0], columns - sum(widths[1:]) - 2 * (len(widths) - 1)), LEAST_NAME)
        head = _laid(_HEAD, widths)
        yield f"{_BOLD}{head}{_PLAIN}" if color else head
        for unit, row in zip(shown, rows, strict=True):
            yield _laid(row, widths)
            yield from _details(unit, verbose, columns)
        yield ""
    left = len(difference.units) - len(shown)
    if left:
        yield f"{plural(left, 'server')} unchanged"
        yield ""


def _row(unit: UnitDifference) -> tuple[str, ...]:
    return (
        visible(unit.id),
        requests_cell(unit),
        pool_cell(unit),
        tokens_cell(unit),
        admitted_cell(unit),
        starts_cell(unit),
    )


def _details(unit: UnitDifference, verbose: bool, columns: int) -> Iterator[str]:
    words = match_words(unit)
    if words:
        yield from _wrapped(f"  {visible(words)}", columns, "    ")
    if unit.yardstick is not None:
        yield from _wrapped(f"  REQUESTS: {str(unit.yardstick).removeprefix('requests ')}", columns, "    ")
    if unit.reason and unit.verdict not in ("equal", "higher", "added", "removed"):
        yield from _wrapped(f"  {unit.verdict}: {visible(unit.reason)}", columns, "    ")
    for cause in unit.causes:
        if verbose or cause.matters:
            yield from _wrapped(f"  {_place(cause)}{visible(str(cause))}", columns, "    ")
    quiet = sum(not cause.matters for cause in unit.causes)
    if quiet and not verbose:
        yield f"  {plural(quiet, 'further change')} without effect on the capacity"


def _place(cause: Cause) -> str:
    return f"{visible(cause.span.path)}:{cause.span.line}: " if cause.span is not None else ""


def _laid(cells: Sequence[str], widths: Sequence[int]) -> str:
    fitted = [cut_middle(cell, size) for cell, size in zip(cells, widths, strict=True)]
    return "  ".join(cell + " " * (size - width(cell)) for cell, size in zip(fitted, widths, strict=True)).rstrip()


def _wrapped(text: str, columns: int, indent: str) -> list[str]:
    return textwrap.wrap(text, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [
        ""
    ]
