"""A check in Markdown, for job summaries and comments."""

from __future__ import annotations

from collections.abc import Iterator

from kvgate.capacity.prediction import Prediction
from kvgate.findings.finding import Finding
from kvgate.findings.report import Report, UnitReport
from kvgate.report.escape import markdown, markdown_code
from kvgate.report.text import LEGEND, MARKS, summary_sentence
from kvgate.report.waterfall import pool_cells


def render_markdown(report: Report) -> str:
    """The table of units, the findings most severe first, and what was not checked."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"**kvgate**: {markdown(summary_sentence(report))}"
    if report.units:
        yield ""
        yield "| unit | model | vLLM | GPU | pool | tokens | requests sustained / declared |"
        yield "|---|---|---|---|---:|---:|---:|"
        rows = [_row(unit) for unit in report.units]
        yield from rows
        marks = [f"`{mark}` {words}" for mark, words in LEGEND.items() if any(mark in row for row in rows)]
        if marks:
            yield ""
            yield "; ".join(marks)
    if report.findings:
        yield ""
        for finding in sorted(report.findings, key=lambda one: -one.severity.rank):
            yield _finding(finding)
    for place in report.unchecked:
        yield f"- not checked: {markdown_code(f'{place.path}:{place.line}')} {markdown(place.reason)}"
    for error in report.errors:
        yield f"- internal error: the rule {markdown_code(error.rule)} crashed; please report it"


def _row(unit: UnitReport) -> str:
    prediction = unit.prediction if isinstance(unit.prediction, Prediction) else None
    mark = MARKS.get(unit.basis, "")
    name = str(unit.gpu["name"]) if unit.gpu and unit.gpu.get("name") else None
    number = unit.gpu.get("count") if unit.gpu else None
    peak = (unit.workload or {}).get("peak_concurrency")
    held = f"{mark}{unit.sustained:,}" if unit.sustained is not None else "?"
    cells = (
        markdown_code(unit.id),
        markdown_code(unit.model) if unit.model else "?",
        markdown(unit.vllm_version) + ("\\*" if unit.version_basis == "assumed" else ""),
        (f"{number} x " if isinstance(number, int) and number > 1 else "") + markdown(name) if name else "?",
        *pool_cells(prediction, mark),
        f"{held} / {peak:,}" if peak is not None else held if unit.workload else "",
    )
    return f"| {' | '.join(cells)} |"


def _finding(finding: Finding) -> str:
    span = finding.primary
    words = f"- **{finding.severity.value}** {markdown_code(finding.rule)} "
    words += f"{markdown_code(f'{span.path}:{span.line}')}: {markdown(finding.message)}"
    if finding.remediation:
        words += f"\n  {markdown(finding.remediation)}"
    return words
