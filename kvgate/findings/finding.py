"""What kvgate has to say about a place in a file."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Any

from kvgate.records import record
from kvgate.source.text import Span


class Severity(Enum):
    """How bad a finding is. Ordered: ``INFO < WARNING < ERROR`` by :attr:`rank`."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def capped(self, ceiling: Severity) -> Severity:
        """The milder of the two."""
        return self if self.rank <= ceiling.rank else ceiling


_RANKS = {Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2}


class Confidence(Enum):
    """How sure it is that a finding describes something real."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@record
class Location:
    """A further place that belongs to a finding, and what it has to do with it."""

    span: Span
    message: str | None = None


@record
class Edit:
    """Replace the text of ``span`` by ``replacement`` (an empty span inserts, an empty replacement deletes)."""

    span: Span
    replacement: str


@record
class Fix:
    """Edits that mend a finding. Safe ones change nothing else than what the finding is about."""

    edits: tuple[Edit, ...]
    safe: bool
    title: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "safe": self.safe,
            "edits": [
                {
                    "path": edit.span.path,
                    "line": edit.span.line,
                    "column": edit.span.column,
                    "end_line": edit.span.end_line,
                    "end_column": edit.span.end_column,
                    "replacement": edit.replacement,
                }
                for edit in self.edits
            ],
        }


@record
class Finding:
    """One occurrence of what a rule looks for.

    Attributes:
        rule: id of the rule.
        message: one sentence with the number, the limit and where both come from; no period at its end.
        primary: the place that must change; for an absence, the unit's own line.
        related: further places.
        hidden: places whose only use is that a suppression there counts as well.
        unit: id of the serve unit, None for a finding about a file.
        remediation: what to do, a sentence with a period.
        url: where to read more, None where there is nothing.
        fingerprint: identity over line moves; empty until :func:`kvgate.findings.identity.finalise` set it.
    """

    rule: str
    severity: Severity
    confidence: Confidence
    message: str
    primary: Span
    related: tuple[Location, ...] = ()
    unit: str | None = None
    fix: Fix | None = None
    remediation: str = ""
    url: str | None = None
    fingerprint: str = ""
    hidden: tuple[Span, ...] = field(default=(), compare=False)

    def as_dict(self) -> dict[str, Any]:
        """The JSON of a finding in ``kvgate.report/1``."""
        span = self.primary
        return {
            "rule": self.rule,
            "severity": self.severity.value,
            "confidence": self.confidence.value,
            "message": self.message,
            "path": span.path,
            "line": span.line,
            "column": span.column,
            "end_line": span.end_line,
            "end_column": span.end_column,
            "unit": self.unit,
            "fix": self.fix.as_dict() if self.fix else None,
            "fingerprint": self.fingerprint,
            "url": self.url,
        }


@record
class Unchecked:
    """A place, or a file, that could not be checked, and why."""

    reason: str
    path: str
    line: int = 1

    def as_dict(self) -> dict[str, Any]:
        return {"reason": self.reason, "path": self.path, "line": self.line}


@record
class InternalError:
    """A rule (or another part of kvgate) that crashed; the others still ran.

    Attributes:
        rule: id of the rule, or the name of the part.
        unit: id of the serve unit it was looking at.
        where: where that unit stands.
        traceback: for the report to the maintainers.
    """

    rule: str
    unit: str | None
    where: Span | None
    traceback: str
