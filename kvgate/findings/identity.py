"""Identity and order of findings.

A finding is known by its rule, file, unit and the text it points at, never by its line number, so that a baseline and
a code-scanning alert survive moved lines. The same text twice in a file is told apart by counting.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from kvgate.findings.finding import Finding


def fingerprint(rule: str, path: str, unit: str | None, text: str, occurrence: int = 0) -> str:
    """Hexadecimal SHA-256 of what identifies a finding; white space in ``text`` does not count.

    ``occurrence`` counts findings that are equal in everything else, from 0.
    """
    parts = [rule, path, unit or "", " ".join(text.split())]
    if occurrence:
        parts.append(str(occurrence))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def sort_key(finding: Finding) -> tuple[str, int, int, str, str]:
    """Path, line, column, rule; the unit only keeps equal ones stable."""
    span = finding.primary
    return span.path, span.line, span.column, finding.rule, finding.unit or ""


def finalise(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings in their stable order, each with its fingerprint.

    The same rule saying the same of the same place is one finding: an alias (YAML's ``*anchor``) or a file read under
    two names repeats it.
    """
    kept: list[Finding] = []
    seen: set[tuple[str, str, int, int, str]] = set()
    counts: dict[str, int] = {}
    for finding in sorted(findings, key=sort_key):
        span = finding.primary
        same = (finding.rule, span.path, span.start, span.end, finding.message)
        if same in seen:
            continue
        seen.add(same)
        base = fingerprint(finding.rule, span.path, finding.unit, span.text)
        count = counts.get(base, 0)
        counts[base] = count + 1
        mark = fingerprint(finding.rule, span.path, finding.unit, span.text, count) if count else base
        kept.append(replace(finding, fingerprint=mark))
    return tuple(kept)
