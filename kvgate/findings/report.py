"""Everything a check found out, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, Protocol

from kvgate.findings.finding import Confidence, Finding, InternalError, Severity, Unchecked
from kvgate.records import record
from kvgate.source.text import Span


class Predicted(Protocol):
    """A prediction, as far as this room needs to know it (:class:`kvgate.capacity.prediction.Prediction`)."""

    def as_dict(self) -> dict[str, Any]: ...


@record
class ValueOrigin:
    """A resolved value and where it came from, for ``check -v``: ``deploy.yaml:12``, ``default of vLLM 0.11.0``."""

    name: str
    value: str
    where: str


@record
class WhatIf:
    """What the unit would hold on a GPU that its files do not name."""

    gpu: str
    prediction: Predicted


@record
class UnitReport:
    """One serve unit in a report.

    The fields up to ``prediction`` are those of the JSON contract; the rest serves people.

    Attributes:
        line: where its container, command or model entry begins.
        model: as the command names it, or the storage URI that a controller mounts.
        args: engine argument -> typed value; unresolved ones as ``{"unresolved": text, "reason": reason}``.
        gpu: ``{"name", "count", "memory_bytes", "basis"}``, None where unknown.
        prediction: None when the model is not known.
        span: the place itself.
        version_basis: ``declared`` or ``assumed``.
        model_reason, gpu_reason: why they are unknown, None where they are known.
        workload: the declared load (``Workload.as_dict``), None when there is none.
        sustained: requests that all replicas and data-parallel ranks sustain together, with ``(low, high)`` in
            ``sustained_interval``; None where unknown.
        basis: how the pool is known: ``exact``, ``calibrated``, ``assumed``, ``unknown``, ...
        origins: where each value came from.
        what_if: predictions for common GPUs where the GPU is unknown.
    """

    id: str
    path: str
    line: int
    kind: str
    container: str | None
    image: str | None
    model: str | None
    vllm_version: str
    args: Mapping[str, Any]
    env: Mapping[str, Any]
    gpu: Mapping[str, Any] | None
    replicas: int
    prediction: Predicted | None
    span: Span | None = None
    version_basis: str = "declared"
    model_reason: str | None = None
    gpu_reason: str | None = None
    workload: Mapping[str, Any] | None = None
    sustained: int | None = None
    sustained_interval: tuple[int | None, int | None] = (None, None)
    basis: str = "unknown"
    origins: tuple[ValueOrigin, ...] = ()
    what_if: tuple[WhatIf, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The JSON of a unit in ``kvgate.report/1``."""
        return {
            "id": self.id,
            "path": self.path,
            "line": self.line,
            "kind": self.kind,
            "container": self.container,
            "image": self.image,
            "model": self.model,
            "vllm_version": self.vllm_version,
            "args": dict(self.args),
            "env": dict(self.env),
            "gpu": dict(self.gpu) if self.gpu is not None else None,
            "replicas": self.replicas,
            "prediction": self.prediction.as_dict() if self.prediction else None,
        }


@record
class Report:
    """The result of a check.

    Attributes:
        findings: in their stable order, suppressed ones left out.
        suppressed: how many findings an inline comment, kvgate.yaml or the baseline took away.
        version: kvgate's own version.
        rules: description of the rules that ran, by id (what SARIF lists).
    """

    units: tuple[UnitReport, ...]
    findings: tuple[Finding, ...]
    unchecked: tuple[Unchecked, ...] = ()
    errors: tuple[InternalError, ...] = ()
    suppressed: int = 0
    version: str = ""
    rules: Mapping[str, RuleSummary] = field(default_factory=dict)

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def summary(self) -> dict[str, Any]:
        return {
            "units": len(self.units),
            "findings": {
                severity.value: self.count(severity) for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO)
            },
            "unchecked": len(self.unchecked),
            "suppressed": self.suppressed,
        }

    def as_dict(self) -> dict[str, Any]:
        """The JSON contract ``kvgate.report/1``."""
        return {
            "schema": "kvgate.report/1",
            "kvgate": self.version,
            "units": [unit.as_dict() for unit in self.units],
            "findings": [finding.as_dict() for finding in self.findings],
            "unchecked": [place.as_dict() for place in self.unchecked],
            "summary": self.summary,
        }


@record
class RuleSummary:
    """What a report, ``kvgate rules`` and ``kvgate explain`` say of a rule.

    Attributes:
        severity: the configured one where kvgate.yaml sets it, else the rule's own.
        url: where to read more, None where there is nothing.
        condition: its CEL condition, or None where ``check`` names a typed check.
        not_for: what must not make it fire, a sentence each.
        bad, good: examples as (title, files' text).
        builtin: it came with kvgate.
    """

    id: str
    title: str
    family: str
    severity: Severity
    confidence: Confidence
    why: str
    remediation: str
    url: str | None = None
    references: tuple[str, ...] = ()
    status: str = "stable"
    since: str = ""
    profile: str = "recommended"
    vllm: str | None = None
    scope: str = "unit"
    message: str = ""
    condition: str | None = None
    check: str | None = None
    not_for: tuple[str, ...] = ()
    bad: tuple[tuple[str, str], ...] = ()
    good: tuple[tuple[str, str], ...] = ()
    aliases: tuple[str, ...] = ()
    builtin: bool = True


def redacted(report: Report, mask: Callable[[str], str]) -> Report:
    """The report with ``mask`` applied to every text in it that came, or may have come, from a file."""

    def deep(value: Any) -> Any:
        if isinstance(value, str):
            return mask(value)
        if isinstance(value, Mapping):
            return {key: deep(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [deep(item) for item in value]
        return value

    def optional(text: str | None) -> str | None:
        return None if text is None else mask(text)

    units = tuple(
        replace(
            unit,
            image=optional(unit.image),
            model=optional(unit.model),
            args=deep(unit.args),
            env=deep(unit.env),
            model_reason=optional(unit.model_reason),
            origins=tuple(replace(origin, value=mask(origin.value)) for origin in unit.origins),
        )
        for unit in report.units
    )
    findings = tuple(
        replace(
            finding,
            message=mask(finding.message),
            remediation=mask(finding.remediation),
            related=tuple(replace(place, message=optional(place.message)) for place in finding.related),
        )
        for finding in report.findings
    )
    unchecked = tuple(replace(place, reason=mask(place.reason)) for place in report.unchecked)
    return replace(report, units=units, findings=findings, unchecked=unchecked)
