"""GitHub workflow commands: annotations on the lines of a pull request.

GitHub shows ten annotations of each level in a step and drops the rest without a word, so the most severe come first
and the rest is counted.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kvgate.findings.finding import Finding, Severity
from kvgate.findings.report import Report
from kvgate.report.escape import github_data, github_property, visible

LIMIT: Final = 10
_COMMANDS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render_github(report: Report) -> str:
    """One command a line; empty for a clean report."""
    lines: list[str] = []
    shown: Counter[Severity] = Counter()
    left: Counter[Severity] = Counter()
    room = LIMIT - min(len(report.errors), LIMIT)
    for error in report.errors[:LIMIT]:
        last = error.traceback.strip().rpartition("\n")[2]
        words = f"the rule {error.rule} crashed on {error.unit or 'a file'}: {visible(last)}; please report it"
        lines.append(f"::error title=kvgate%3A internal error::{github_data(words)}")
    for finding in sorted(report.findings, key=lambda one: -one.severity.rank):
        limit = room if finding.severity is Severity.ERROR else LIMIT
        if shown[finding.severity] < limit:
            shown[finding.severity] += 1
            lines.append(_command(finding))
        else:
            left[finding.severity] += 1
    if left:
        counts = ", ".join(f"{count} {severity.value}" for severity, count in left.items())
        lines.append(f"kvgate: not annotated, since GitHub shows {LIMIT} of a level: {counts}")
    return "".join(f"{line}\n" for line in lines)


def _command(finding: Finding) -> str:
    span = finding.primary
    properties = {"file": span.path, "line": str(span.line)}
    if span.end_line == span.line:
        properties["col"] = str(span.column)
        properties["endColumn"] = str(span.end_column)
    else:
        # GitHub ignores an annotation with columns over several lines
        properties["endLine"] = str(span.end_line)
    properties["title"] = f"{finding.rule} ({finding.unit})" if finding.unit else finding.rule
    words = [visible(finding.message)]
    words += [
        f"{place.span.path}:{place.span.line}: {visible(place.message or 'see here')}" for place in finding.related
    ]
    if finding.remediation:
        words.append(visible(finding.remediation))
    shown = ",".join(f"{name}={github_property(visible(value))}" for name, value in properties.items())
    return f"::{_COMMANDS[finding.severity]} {shown}::{github_data(chr(10).join(words))}"
