"""Accepted findings: a file of fingerprints, so that old findings do not hide new ones.

``{"schema": "kvgate.baseline/1", "findings": [{"fingerprint", "rule", "path"}]}``; rule and path are there for people
who read the file, only the fingerprint counts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence

from kvgate.findings.finding import Finding

SCHEMA = "kvgate.baseline/1"


class BaselineError(ValueError):
    """The text is no baseline; the message says why."""


def read_baseline(text: str) -> frozenset[str]:
    """The fingerprints of a baseline file.

    Raises:
        BaselineError: the text is no baseline.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"the baseline is no JSON: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise BaselineError(f'the baseline has no "schema": "{SCHEMA}"')
    entries = data.get("findings")
    if not isinstance(entries, list):
        raise BaselineError('the baseline has no list "findings"')
    marks: set[str] = set()
    for number, entry in enumerate(entries, 1):
        mark = entry.get("fingerprint") if isinstance(entry, dict) else None
        if not isinstance(mark, str):
            raise BaselineError(f'entry {number} of the baseline has no "fingerprint"')
        marks.add(mark)
    return frozenset(marks)


def write_baseline(findings: Iterable[Finding]) -> str:
    """The text of a baseline that accepts these findings, the same for the same findings."""
    entries = [
        {"fingerprint": finding.fingerprint, "rule": finding.rule, "path": finding.primary.path} for finding in findings
    ]
    entries.sort(key=lambda entry: (entry["path"], entry["rule"], entry["fingerprint"]))
    return json.dumps({"schema": SCHEMA, "findings": entries}, indent=2, ensure_ascii=False) + "\n"


def apply_baseline(findings: Sequence[Finding], accepted: Collection[str]) -> tuple[tuple[Finding, ...], int]:
    """The findings that are not accepted, and how many were."""
    kept = tuple(finding for finding in findings if finding.fingerprint not in accepted)
    return kept, len(findings) - len(kept)
