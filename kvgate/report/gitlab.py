"""GitLab's code quality report."""

from __future__ import annotations

import json
from typing import Final

from kvgate.findings.finding import Severity
from kvgate.findings.report import Report
from kvgate.report.escape import visible

_SEVERITIES: Final = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.INFO: "info"}


def render_gitlab(report: Report) -> str:
    """A list with one entry for each finding; ``[]`` for a clean report."""
    entries = [
        {
            "description": visible(finding.message),
            "check_name": finding.rule,
            "fingerprint": finding.fingerprint,
            "severity": _SEVERITIES[finding.severity],
            "location": {
                "path": finding.primary.path,
                "lines": {"begin": finding.primary.line, "end": finding.primary.end_line},
            },
        }
        for finding in report.findings
    ]
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"
