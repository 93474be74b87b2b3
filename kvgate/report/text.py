"""A check as text for people: one table of units, then the findings with the lines they are about.

Figures carry how they are known: ``~`` calibrated (with an interval in ``-v``), ``*`` rests on something assumed,
``?`` unknown. Without colour the output is plain characters made here, so that nothing heavy is imported; colours are
rich's.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kvgate.capacity.prediction import Prediction
from kvgate.findings.finding import Finding, Severity
from kvgate.findings.report import Report, UnitReport
from kvgate.report.escape import excerpt_line, visible, width
from kvgate.report.waterfall import lines_on_gpus, pool_cells, render_prediction

MARKS: Final = {"calibrated": "~", "assumed": "*"}
LEGEND: Final = {"~": "calibrated, within an interval", "*": "rests on an assumption", "?": "unknown"}
DEFAULT_WIDTH: Final = 100
MIN_WIDTH: Final = 60
MAX_EXCERPT_LINES: Final = 6

Paint = Callable[[str, str], str]


def render_text(
    report: Report, *, color: bool = False, verbose: bool = False, quiet: bool = False, width: int | None = None
) -> str:
    """The report.

    Args:
        color: with ANSI colours.
        verbose: also the origin of every value and the whole waterfall of each unit.
        quiet: without the table of units.
        width: columns of the terminal; None for 100.
    """
    lines = list(_lines(report, _painter(color), verbose, quiet, max(width or DEFAULT_WIDTH, MIN_WIDTH)))
    return "\n".join(lines).rstrip() + "\n" if lines else ""


def summary_sentence(report: Report) -> str:
    """What was checked and found, in one sentence."""
    units = len(report.units)
    counts = [
        f"{number} {severity.value}{'s' if number != 1 and severity is not Severity.INFO else ''}"
        for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO)
        if (number := report.count(severity))
    ]
    if not units and not counts and not report.unchecked and not report.errors:
        return "nothing to check: no vLLM server found"
    parts = [f"{units} server{'' if units == 1 else 's'} checked: {', '.join(counts) or 'no findings'}"]
    if report.suppressed:
        parts.append(f"{report.suppressed} suppressed")
    if report.unchecked:
        parts.append(f"{len(report.unchecked)} place{'' if len(report.unchecked) == 1 else 's'} not checked")
    if report.errors:
        parts.append(f"{len(report.errors)} rule{'' if len(report.errors) == 1 else 's'} crashed")
    return "; ".join(parts)


def _painter(color: bool) -> Paint:
    if not color:
        return lambda text, style: text
    from rich.style import Style

    styles: dict[str, Style] = {}

    def paint(text: str, style: str) -> str:
        if style not in styles:
            styles[style] = Style.parse(style)
        return styles[style].render(text)

    return paint


_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}


def _lines(report: Report, paint: Paint, verbose: bool, quiet: bool, columns: int) -> Iterator[str]:
    if report.units and not quiet:
        yield from _table(report.units, paint, columns)
        told = {finding.unit for finding in report.findings if finding.rule == "unknown-gpu"}
        for unit in report.units:
            if unit.id not in told:
                yield from _unknown_gpu(unit, columns)
        if verbose:
            for unit in report.units:
                yield from _origins(unit, paint)
        yield ""
    explained: set[str] = set()
    shortened = 0
    for finding in report.findings:
        # what one is told of the first server need not be told again of a hundred others
        short = finding.severity is Severity.INFO and finding.rule in explained and not verbose
        explained.add(finding.rule)
        shortened += short
        yield from _head(finding, paint, columns) if short else _finding(finding, paint, columns)
        yield ""
    if shortened:
        infos = "1 info is" if shortened == 1 else f"{shortened} infos are"
        whose, which = ("its", "it") if shortened == 1 else ("their", "them")
        yield paint(f"{infos} shown without {whose} lines and help; -v shows {which} whole", "dim")
        yield ""
    for place in report.unchecked:
        yield from _wrapped(f"{visible(place.path)}:{place.line}: not checked: {visible(place.reason)}", columns, "  ")
    for error in report.errors:
        where = f"{error.where.path}:{error.where.line}: " if error.where else ""
        words = f"{visible(where)}internal error: the rule {error.rule} crashed on {visible(error.unit or 'a file')}"
        yield paint(words, "bold red") + "; please report it with this traceback:"
        yield from (f"    {visible(line)}" for line in error.traceback.rstrip().split("\n"))


# -- the table of units --------------------------------------------------------------------------------------------

_HEAD: Final = ("UNIT", "MODEL", "VLLM", "GPU", "POOL", "TOKENS", "REQUESTS")
_RIGHT: Final = frozenset((4, 5, 6))
_SHRINK: Final = ((1, 20), (0, 24), (3, 10), (1, 14), (0, 16))  # columns that may lose their middle, and to what width


def _table(units: Sequence[UnitReport], paint: Paint, columns: int) -> Iterator[str]:
    rows = [_row(unit) for unit in units]
    widths = [max(width(row[column]) for row in (_HEAD, *rows)) for column in range(len(_HEAD))]
    for column, least in _SHRINK:
        over = sum(widths) + 2 * (len(_HEAD) - 1) - columns
        if over > 0:
            widths[column] = max(min(least, widths[column]), widths[column] - over)
    yield paint(_laid(_HEAD, widths), "bold")
    for row in rows:
        yield _laid(row, widths)
    used = "".join(cell[:1] + cell[-1:] for row in rows for cell in row[2:])
    marks = [f"{mark} {words}" for mark, words in LEGEND.items() if mark in used]
    notes = ["REQUESTS: sustained without preemption / declared at peak"]
    if any(unit.sustained is not None for unit in units):
        marks = [*notes, *marks]
    if marks:
        yield paint("; ".join(marks), "dim")


def _laid(cells: Sequence[str], widths: Sequence[int]) -> str:
    shown: list[str] = []
    for column, (cell, size) in enumerate(zip(cells, widths, strict=True)):
        fitted = cut_middle(cell, size)
        pad = " " * (size - width(fitted))
        shown.append(pad + fitted if column in _RIGHT else fitted + pad)
    return "  ".join(shown).rstrip()


def cut_middle(text: str, size: int) -> str:
    """A text cut in its middle to a width."""
    if width(text) <= size:
        return text
    tail = (size - 1) * 2 // 3
    head = text
    while width(head) > size - 1 - tail:
        head = head[:-1]
    end = text
    while width(end) > tail:
        end = end[1:]
    return f"{head}\N{HORIZONTAL ELLIPSIS}{end}"


def _row(unit: UnitReport) -> tuple[str, ...]:
    prediction = unit.prediction if isinstance(unit.prediction, Prediction) else None
    version = unit.vllm_version + ("*" if unit.version_basis == "assumed" else "")
    mark = MARKS.get(unit.basis, "")
    pool, tokens = pool_cells(prediction, mark)
    return (
        visible(unit.id),
        visible(unit.model or "?"),
        version,
        _gpu(unit),
        pool,
        tokens,
        _requests(unit, mark),
    )


def _gpu(unit: UnitReport) -> str:
    if not unit.gpu or not unit.gpu.get("name"):
        return "?"
    name = _short_gpu(visible(str(unit.gpu["name"])))
    number = unit.gpu.get("count")
    mark = "*" if unit.gpu.get("basis") == "assumed" else ""
    return (f"{number} x {name}" if isinstance(number, int) and number > 1 else name) + mark


def _short_gpu(name: str) -> str:
    """A catalogue name without what everybody knows."""
    for words in ("NVIDIA ", "AMD ", "GeForce "):
        name = name.removeprefix(words)
    return name


def _requests(unit: UnitReport, mark: str) -> str:
    peak = (unit.workload or {}).get("peak_concurrency")
    if unit.sustained is None:
        return f"?/{peak}" if peak is not None else "-" if not unit.workload else "?"
    shown = f"{mark}{unit.sustained:,}"
    return f"{shown}/{peak:,}" if peak is not None else shown


# -- units in detail -----------------------------------------------------------------------------------------------


def _unknown_gpu(unit: UnitReport, columns: int) -> Iterator[str]:
    """What is true whatever the GPU, and what common ones would hold."""
    prediction = unit.prediction
    if not isinstance(prediction, Prediction) or not unit.what_if:
        return
    per_token = prediction.kv_cache.bytes_per_token
    known = f"{per_token:,} bytes of KV cache per token and GPU; " if per_token else ""
    reason = f" ({visible(unit.gpu_reason)})" if unit.gpu_reason else ""
    yield ""
    yield from _wrapped(f"{visible(unit.id)}: GPU unknown{reason}; {known}it would hold", columns, "  ")
    yield from lines_on_gpus(
        (one.gpu, one.prediction) for one in unit.what_if if isinstance(one.prediction, Prediction)
    )


def _origins(unit: UnitReport, paint: Paint) -> Iterator[str]:
    yield ""
    yield paint(f"{visible(unit.id)}  {visible(unit.path)}:{unit.line}", "bold")
    rows = [(visible(one.name), visible(one.value), visible(one.where)) for one in unit.origins]
    if rows:
        names = min(max(width(name) for name, _, _ in rows), 32)
        values = min(max(width(value) for _, value, _ in rows), 48)
        for name, value, where in rows:
            shown = cut_middle(value, values)
            yield f"  {name}{' ' * (names - width(name))}  {shown}{' ' * (values - width(shown))}  {where}".rstrip()
    if unit.model_reason:
        yield f"  model unknown: {visible(unit.model_reason)}"
    if isinstance(unit.prediction, Prediction):
        yield from (f"  {visible(line)}".rstrip() for line in render_prediction(unit.prediction).rstrip().split("\n"))


# -- findings ------------------------------------------------------------------------------------------------------


def _head(finding: Finding, paint: Paint, columns: int) -> Iterator[str]:
    span = finding.primary
    head = f"{visible(span.path)}:{span.line}:{span.column}: "
    tag = f"{finding.severity.value}[{finding.rule}]"
    lines = list(_wrapped(f"{head}{tag} {visible(finding.message)}", columns, "  "))
    yield lines[0].replace(tag, paint(tag, _STYLES[finding.severity]), 1)
    yield from lines[1:]


def _finding(finding: Finding, paint: Paint, columns: int) -> Iterator[str]:
    span = finding.primary
    yield from _head(finding, paint, columns)
    yield from _excerpt(finding, paint, columns)
    margin = " " * len(str(span.end_line))
    for place in finding.related:
        words = f"{place.span.path}:{place.span.line}: {place.message or 'see here'}"
        yield from _wrapped(f"{margin} = {visible(words)}", columns, margin + "   ")
    if finding.unit:
        yield from _wrapped(f"{margin} = unit: {visible(finding.unit)}", columns, margin + "   ")
    if finding.remediation:
        yield from _wrapped(f"{margin} = help: {visible(finding.remediation)}", columns, margin + "   ")
    if finding.fix is not None:
        how = "made by --fix" if finding.fix.safe else "a suggestion, to be made by hand"
        yield from _wrapped(f"{margin} = fix: {visible(finding.fix.title)} ({how})", columns, margin + "   ")


def _excerpt(finding: Finding, paint: Paint, columns: int) -> Iterator[str]:
    """The lines of the primary place, with carets under what is meant."""
    span = finding.primary
    if not span.file.text:
        return
    last = span.end_line
    if last > span.line and span.end_column == 1:
        last -= 1
    size = len(str(last))
    yield f"{' ' * size} |"
    shown = range(span.line, min(last, span.line + MAX_EXCERPT_LINES - 1) + 1)
    for line in shown:
        text = excerpt_line(span.file, line)
        start = span.column - 1 if line == span.line else len(text) - len(text.lstrip())
        end = span.end_column - 1 if line == last and span.end_line == last else len(text.rstrip())
        text, start, end = _window(text, start, max(end, start), columns - size - 3)
        yield f"{line:>{size}} | {text}".rstrip()
        blank, mark = " " * width(text[:start]), "^" * max(1, width(text[start:end]))
        yield f"{' ' * size} | {blank}{paint(mark, _STYLES[finding.severity])}"
    if last > shown[-1]:
        yield f"{' ' * size} | ... {last - shown[-1]} more lines"


def _window(text: str, start: int, end: int, room: int) -> tuple[str, int, int]:
    """The part of a long line around ``[start, end)``."""
    if len(text) <= room:
        return text, start, min(end, len(text))
    room = max(room, 20)
    first = max(0, min(start - room // 4, len(text) - room))
    part = text[first : first + room]
    if first:
        part = "..." + part[3:]
    if first + room < len(text):
        part = part[:-3] + "..."
    start = max(start - first, 0)
    return part, start, max(start, min(end - first, len(part)))


def _wrapped(text: str, columns: int, indent: str) -> Iterator[str]:
    yield from textwrap.wrap(
        text, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]
