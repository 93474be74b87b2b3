"""What the comparison itself finds. These are no rules over one state, so no file of ``rules/`` says them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from kvgate.config import RuleConfig
from kvgate.findings.finding import Confidence, Finding, Location, Severity
from kvgate.findings.report import RuleSummary
from kvgate.source.text import Span


def _rule(id: str, family: str, severity: Severity, title: str, why: str, remediation: str) -> RuleSummary:
    return RuleSummary(
        id=id,
        title=title,
        family=family,
        severity=severity,
        confidence=Confidence.HIGH,
        why=why,
        remediation=remediation,
        since="0.1.0",
        scope="difference",
    )


RULES: Final[Mapping[str, RuleSummary]] = {
    rule.id: rule
    for rule in (
        _rule(
            "capacity-drop",
            "capacity",
            Severity.ERROR,
            "A change that makes a server hold fewer requests than the base",
            "The same requests arrive after the merge as before it. What the server can no longer hold waits, or is "
            "preempted and computed again, under the same load that was fine the day before.",
            "Undo the change that takes the memory, or make up for it by memory, GPUs or replicas. Where the lower "
            "capacity is meant, a maintainer sets the label, or raises gate.max_capacity_drop on the base.",
        ),
        _rule(
            "capacity-unknown",
            "capacity",
            Severity.ERROR,
            "A server whose capacity was known in the base and is unknown now",
            "A gate that lets through what it cannot compute is no gate: the change may halve the capacity, and nobody "
            "would see it.",
            "Say what is missing (GPU, release, model, a value) in the manifest or in kvgate.yaml; lock a new model "
            "with `kvgate lock --online`.",
        ),
        _rule(
            "unit-removed",
            "capacity",
            Severity.WARNING,
            "A server that the base has and the head does not",
            "A removed server takes its whole capacity with it. It may be meant, or a file may have moved to where "
            "nothing reads it.",
            "Nothing, where it is meant.",
        ),
        _rule(
            "longest-request-shortened",
            "capacity",
            Severity.WARNING,
            "A lower max_model_len, with which requests that the base serves are refused",
            "A lower max_model_len makes vLLM print a higher maximum concurrency, and holds no more: the pool is the "
            "same, and only longer requests are refused.",
            "Keep the length that clients need; for more requests at once the pool must grow.",
        ),
        _rule(
            "policy-changed-in-head",
            "kvgate",
            Severity.WARNING,
            "A change that also changes what it is judged by",
            "Whoever writes a change must not be able to loosen the gate in the same change. The head is judged by the "
            "policy of the base, so this has no effect until it is merged, and a reviewer has to see it.",
            "Review it by itself; it counts from the merge on.",
        ),
        _rule(
            "suppression-added-in-head",
            "kvgate",
            Severity.WARNING,
            "A finding of this change that this change itself hides",
            "A comment that hides a finding is text by the author. In a review it is a request, not a decision.",
            "Review the reason that it gives. The finding counts until a maintainer sets the label, or the change is "
            "merged.",
        ),
    )
}


def gate_finding(
    rule: str,
    message: str,
    primary: Span,
    *,
    unit: str | None = None,
    related: tuple[Location, ...] = (),
    remediation: str | None = None,
    ceiling: Severity | None = None,
) -> Finding:
    """A finding of one of these rules."""
    known = RULES[rule]
    severity = known.severity if ceiling is None else known.severity.capped(ceiling)
    return Finding(
        rule=rule,
        severity=severity,
        confidence=known.confidence,
        message=message,
        primary=primary,
        related=related,
        unit=unit,
        remediation=known.remediation if remediation is None else remediation,
    )


def configured(findings: Iterable[Finding], config: Mapping[str, RuleConfig]) -> list[Finding]:
    """Findings with the severity that the base's kvgate.yaml gives their rules, without those it switches off."""
    found = []
    for finding in findings:
        said = config.get(finding.rule)
        if said is None:
            found.append(finding)
        elif not said.off:
            severity = Severity(said.severity) if said.severity is not None else finding.severity
            found.append(replace(finding, severity=severity))
    return found


def explain(rule: RuleSummary) -> str:
    """The documentation of one of these rules, for ``kvgate explain``."""
    from textwrap import fill

    paragraphs = [
        f"{rule.id}: {rule.title}",
        f"family {rule.family}, at most {rule.severity.value}, since kvgate {rule.since}; found by `kvgate diff`",
        fill(rule.why, 100),
        "What to do\n" + fill(rule.remediation, 100, initial_indent="  ", subsequent_indent="  "),
        "No comment suppresses it; `rules:` in the base's kvgate.yaml sets its severity.",
    ]
    return "\n\n".join(paragraphs) + "\n"
