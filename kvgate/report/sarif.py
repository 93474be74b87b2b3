"""SARIF 2.1.0, the fields that code scanning reads.

Columns count code points (``columnKind``), ends are exclusive. Rules are listed with the severity they are configured
to. The fingerprint has its own key, ``kvgate/v1``: the one that GitHub computes is left to GitHub. What could not be
checked, and rules that crashed, are notifications of the invocation.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote

from kvgate.findings.finding import Confidence, Finding, Severity
from kvgate.findings.report import Report, RuleSummary
from kvgate.source.text import Span

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
FINGERPRINT: Final = "kvgate/v1"
_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_PRECISION: Final = {Confidence.HIGH: "high", Confidence.MEDIUM: "medium", Confidence.LOW: "low"}


def render_sarif(report: Report) -> str:
    """One run with every finding; ``results`` is an empty list for a clean one."""
    index = {rule: at for at, rule in enumerate(report.rules)}
    run = {
        "tool": {
            "driver": {
                "name": "kvgate",
                "version": report.version,
                "semanticVersion": report.version,
                "rules": [_rule(rule) for rule in report.rules.values()],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not report.errors,
                "toolExecutionNotifications": [*_unchecked(report), *_errors(report)],
            }
        ],
        "results": [_result(finding, index) for finding in report.findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rule(rule: RuleSummary) -> dict[str, Any]:
    references = "".join(f"\n- <{reference}>" for reference in rule.references)
    words = f"{rule.why}\n\n{rule.remediation}"
    described: dict[str, Any] = {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {
            "text": words,
            "markdown": words + (f"\n\nReferences:\n{references}" if references else ""),
        },
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": [rule.family], "precision": _PRECISION[rule.confidence]},
    }
    if rule.url:
        described["helpUri"] = rule.url
    return described


def _result(finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    text = finding.message if not finding.remediation else f"{finding.message}. {finding.remediation}"
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [_location(finding.primary, unit=finding.unit)],
        "partialFingerprints": {FINGERPRINT: finding.fingerprint},
        "properties": {"confidence": finding.confidence.value, "unit": finding.unit},
    }
    if finding.rule in index:
        result["ruleIndex"] = index[finding.rule]
    if finding.related:
        result["relatedLocations"] = [
            {"id": number, **_location(place.span, message=place.message)}
            for number, place in enumerate(finding.related, 1)
        ]
    if finding.fix is not None:
        result["fixes"] = [_fix(finding)]
    return result


def _fix(finding: Finding) -> dict[str, Any]:
    assert finding.fix is not None
    by_path: dict[str, list[dict[str, Any]]] = {}
    for edit in finding.fix.edits:
        by_path.setdefault(edit.span.path, []).append(
            {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.replacement}}
        )
    return {
        "description": {"text": finding.fix.title},
        "artifactChanges": [
            {"artifactLocation": _artifact(path), "replacements": changes} for path, changes in by_path.items()
        ],
    }


def _location(span: Span, *, unit: str | None = None, message: str | None = None) -> dict[str, Any]:
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": _artifact(span.path), "region": _region(span)}}
    if unit:
        location["logicalLocations"] = [{"fullyQualifiedName": unit}]
    if message:
        location["message"] = {"text": message}
    return location


def _artifact(path: str) -> dict[str, str]:
    return {"uri": quote(path, safe="/~+@,"), "uriBaseId": "%SRCROOT%"}


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }


def _unchecked(report: Report) -> list[dict[str, Any]]:
    return [
        {
            "level": "note",
            "message": {"text": f"not checked: {place.reason}"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": _artifact(place.path),
                        "region": {"startLine": max(1, place.line)},
                    }
                }
            ],
        }
        for place in report.unchecked
    ]


def _errors(report: Report) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for error in report.errors:
        last = error.traceback.strip().rpartition("\n")[2]
        notification: dict[str, Any] = {
            "level": "error",
            "message": {"text": f"the rule {error.rule} crashed on {error.unit or 'a file'}: {last}"},
        }
        if error.where is not None:
            notification["locations"] = [_location(error.where)]
        found.append(notification)
    return found
