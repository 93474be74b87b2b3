"""JUnit XML: errors and warnings are failures, units without them pass, and there is always one case."""

from __future__ import annotations

from kvgate.findings.finding import Severity
from kvgate.findings.report import Report
from kvgate.report.escape import attribute, visible, xml


def render_junit(report: Report) -> str:
    """One test suite."""
    cases: list[str] = []
    failures = 0
    failed = {finding.unit for finding in report.findings if finding.severity is not Severity.INFO}
    for finding in report.findings:
        span = finding.primary
        where = visible(f"{span.path}:{span.line}:{span.column}")
        name, group = xml(f"{finding.rule} at {where}"), attribute(finding.unit or span.path)
        words = visible(finding.message) + (f"\n{visible(finding.remediation)}" if finding.remediation else "")
        if finding.severity is Severity.INFO:
            body = f"<system-out>{xml(f'info: {words}')}</system-out>"
        else:
            failures += 1
            message = attribute(finding.message)
            body = f'<failure type="{finding.severity.value}" message="{message}">{xml(f"{where}: {words}")}</failure>'
        cases.append(f'<testcase name="{name}" classname="{group}" file="{attribute(span.path)}">{body}</testcase>')
    cases += [
        f'<testcase name="{xml(error.rule)}" classname="{attribute(error.unit or "kvgate")}">'
        f'<error type="internal" message="the rule crashed">{xml(error.traceback)}</error></testcase>'
        for error in report.errors
    ]
    cases += [
        f'<testcase name="{attribute(unit.id)}" classname="{attribute(unit.path)}" file="{attribute(unit.path)}"/>'
        for unit in report.units
        if unit.id not in failed
    ]
    cases += [
        f'<testcase name="{attribute(f"unchecked at {place.path}:{place.line}")}" classname="{attribute(place.path)}">'
        f'<skipped message="{attribute(place.reason)}"/></testcase>'
        for place in report.unchecked
    ]
    if not cases:
        cases.append('<testcase name="nothing to check" classname="kvgate"/>')
    body = "".join(f"    {case}\n" for case in cases)
    counts = (
        f'tests="{len(cases)}" failures="{failures}" errors="{len(report.errors)}" skipped="{len(report.unchecked)}"'
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites name="kvgate" {counts}>\n'
        f'  <testsuite name="kvgate" {counts}>\n{body}  </testsuite>\n'
        "</testsuites>\n"
    )
