"""Two states side by side: units, findings, policy, and the verdict."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from kvgate.findings.baseline import apply_baseline
from kvgate.findings.finding import Finding, InternalError, Location, Severity, Unchecked
from kvgate.findings.identity import finalise
from kvgate.findings.report import Report
from kvgate.gate.capacity import hidden_inputs, measure, yardstick_of
from kvgate.gate.causes import find_causes
from kvgate.gate.difference import (
    CLOSING,
    Capacity,
    Cause,
    Difference,
    Gate,
    Policy,
    Revision,
    Side,
    UnitDifference,
    Verdict,
    Yardstick,
)
from kvgate.gate.match import Pair, match_units
from kvgate.gate.policy import PolicyChange
from kvgate.gate.rules import RULES, configured, gate_finding
from kvgate.records import record
from kvgate.ruleset.case import Case
from kvgate.ruleset.run import Judgement, Selection, judge
from kvgate.ruleset.units import unit_report
from kvgate.source.text import Span

if TYPE_CHECKING:
    from kvgate.capacity.prediction import Prediction
    from kvgate.config import Config
    from kvgate.gate.state import Judge, State
    from kvgate.plan import ServingPlan
    from kvgate.ruleset.load import RuleSet
    from kvgate.ruleset.model import Scope

_COMMENT: Final = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
# A share computed from whole requests must not fail by the last bit of a float.
_ROUNDING: Final = 1e-9


@record
class Comparison:
    """What is compared, and by what.

    Attributes:
        policy: the base's kvgate.yaml.
        rules: the built-in ones and the base's own.
        selection: with the base's configuration of rules.
        ignored: the comparison's own rules that the command line leaves out.
        accepted: fingerprints in the base's baseline; ``proposed`` those that only the head's has.
        changes: what the head says otherwise of the policy.
        label: the label by which a maintainer accepts the change; None where none is set.
        version: kvgate's own.
    """

    base: State
    head: State
    base_revision: Revision
    head_revision: Revision
    policy: Config
    rules: RuleSet
    selection: Selection
    judge: Judge
    ignored: frozenset[str] = frozenset()
    accepted: frozenset[str] = frozenset()
    proposed: frozenset[str] = frozenset()
    changes: tuple[PolicyChange, ...] = ()
    label: str | None = None
    version: str = ""


def compare(comparison: Comparison) -> Difference:
    """The difference between the two states.

    Raises:
        RuleError: the selection names a rule that there is not.
    """
    base, head = comparison.base, comparison.head
    predictions = {id(plan): prediction for plan, prediction in (*base.units, *head.units)}
    pairs = match_units([plan for plan, _ in base.units], [plan for plan, _ in head.units])
    units = tuple(_unit_difference(pair, predictions, comparison) for pair in pairs)
    findings = _findings(comparison, pairs)
    unknown = Severity.ERROR if comparison.policy.gate.on_unknown == "fail" else Severity.WARNING
    drafts = [found for unit, pair in zip(units, pairs, strict=True) for found in _unit_findings(unit, pair, unknown)]
    drafts += [finding for pair in pairs for finding in _declaration_findings(pair)]
    drafts += [
        finding for unit, pair in zip(units, pairs, strict=True) for finding in _word_findings(unit, pair, comparison)
    ]
    drafts += [_policy_finding(change) for change in comparison.changes]
    drafts += [_suppression_finding(finding) for finding in findings.hidden]
    drafts = [finding for finding in drafts if finding.rule not in comparison.ignored]
    own = finalise(configured(drafts, comparison.policy.rules))
    gate = _gate(own, comparison)
    report = Report(
        units=tuple(unit_report(plan, prediction) for plan, prediction in head.units),
        findings=finalise([*gate.findings, *findings.new]),
        unchecked=(*head.unchecked, *findings.unchecked),
        errors=(*base.crashes, *head.crashes, *findings.errors),
        suppressed=findings.suppressed,
        version=comparison.version,
        rules={**findings.rules, **RULES},
    )
    return Difference(
        base=comparison.base_revision,
        head=comparison.head_revision,
        units=units,
        new=findings.new,
        fixed=findings.fixed,
        unchanged=findings.unchanged,
        gate=gate,
        report=report,
        version=comparison.version,
    )


def _gate(findings: Sequence[Finding], comparison: Comparison) -> Gate:
    closing = [one for one in findings if one.rule in CLOSING and one.severity is Severity.ERROR]
    label = comparison.label
    if label is not None:
        # said all the same, but nothing fails on it
        findings = [replace(one, severity=Severity.INFO) if one.rule in CLOSING else one for one in findings]
    gate = comparison.policy.gate
    source = f"{comparison.policy.path} of the base" if comparison.policy.path else "default"
    return Gate(
        verdict="pass" if not closing else "fail" if label is None else "accepted",
        reasons=tuple(f"{one.unit}: {one.message}" if one.unit else one.message for one in closing),
        policy=Policy(gate.max_capacity_drop, gate.on_unknown, source),
        label=label,
        findings=tuple(findings),
    )


# -- units ---------------------------------------------------------------------------------------------------------


def _unit_difference(
    pair: Pair, predictions: Mapping[int, Prediction | None], comparison: Comparison
) -> UnitDifference:
    before = predictions[id(pair.base)] if pair.base else None
    after = predictions[id(pair.head)] if pair.head else None
    if pair.base is None or pair.head is None:
        plan = pair.base or pair.head
        assert plan is not None
        prediction = before if pair.base else after
        yardstick = yardstick_of(plan, prediction, own=pair.base is None)
        side = _side(plan, prediction, measure(plan, prediction, yardstick, accepted=hidden_inputs(plan)))
        if pair.base is None:
            return UnitDifference("added", "", None, side, yardstick, "added", "the base does not have it")
        unread = comparison.head.unread_reason(plan.unit.path)
        if unread is not None:
            reason = f"{plan.unit.path} of the head could not be read: {unread}"
            return UnitDifference("removed", "", side, None, yardstick, "unknown", reason)
        return UnitDifference("removed", "", side, None, yardstick, "removed", "the head does not have it")
    yardstick = yardstick_of(pair.base, before)
    theirs = hidden_inputs(pair.head)
    accepted = {name: text for name, text in hidden_inputs(pair.base).items() if theirs.get(name) == text}
    sides = (
        _side(pair.base, before, measure(pair.base, before, yardstick, accepted=accepted)),
        _side(pair.head, after, measure(pair.head, after, yardstick, accepted=accepted)),
    )
    verdict, reason = _verdict(sides[0].capacity, sides[1].capacity, comparison.policy.gate.max_capacity_drop)
    if pair.base.gpu is None and pair.head.gpu is None and sides[1].capacity.requests is None:
        reason += "".join(f"; {words}" for words in _on_common_gpus(pair.base, pair.head, accepted))
    causes = find_causes(pair.base, pair.head, yardstick, accepted)
    levers = tuple(_levers(pair.head, sides, yardstick, causes)) if verdict in ("drop", "lower") else ()
    return UnitDifference(pair.match, pair.how, sides[0], sides[1], yardstick, verdict, reason, causes, levers)


def _on_common_gpus(base: ServingPlan, head: ServingPlan, accepted: Mapping[str, str]) -> Iterator[str]:
    """What the two sides would hold on GPUs that many have, where neither says which it runs on."""
    for gpu in Case(base, None).common_gpus():
        plans = [replace(plan, gpu=gpu, gpu_basis="assumed") for plan in (base, head)]
        yardstick = yardstick_of(plans[0], plans[0].predict())
        held = [measure(plan, plan.predict(), yardstick, accepted=accepted).requests for plan in plans]
        if None not in held:
            yield f"on {gpu.name} it would be {held[0]:,} -> {held[1]:,} requests"


def _side(plan: ServingPlan, prediction: Prediction | None, capacity: Capacity) -> Side:
    unit = plan.unit
    return Side(
        id=unit.id,
        path=unit.path,
        line=unit.span.line,
        kind=unit.kind,
        image=unit.image.value if unit.image is not None else None,
        model=plan.model_reference,
        vllm_version=plan.version,
        version_basis=plan.version_basis,
        gpu=plan.gpu.name if plan.gpu is not None else None,
        gpu_count=plan.gpu_count,
        replicas=plan.replicas,
        data_parallel_size=plan.data_parallel_size,
        capacity=capacity,
        prediction=prediction,
    )


def _verdict(before: Capacity, after: Capacity, allowed: float) -> tuple[Verdict, str]:
    if before.requests is None:
        return "incomparable", f"the base's capacity is unknown: {before.reason}"
    if after.requests is None:
        return "unknown", after.reason or "the head's capacity is unknown"
    if after.requests >= before.requests:
        return ("equal" if after.requests == before.requests else "higher"), after.reason or ""
    share = (before.requests - after.requests) / before.requests
    reason = f"; {after.reason}" if after.reason else ""
    if share > allowed + _ROUNDING:
        return "drop", f"{share:.0%} less, {allowed:.0%} allowed{reason}"
    return "lower", f"{share:.0%} less, {allowed:.0%} allowed{reason}"


def _levers(
    head: ServingPlan, sides: tuple[Side, Side], yardstick: Yardstick | None, causes: Sequence[Cause]
) -> Iterator[str]:
    before, after = sides[0].capacity.requests or 0, sides[1].capacity.requests or 0
    for cause in causes:
        if cause.reverted is not None and cause.reverted > after:
            yield f"with {cause.name} back to {cause.before or 'its default'} it would hold {cause.reverted:,}"
    if head.values.get("kv_cache_dtype") in (None, "auto"):
        plan = replace(head, values={**head.values, "kv_cache_dtype": "fp8"})
        held = measure(plan, plan.predict(), yardstick).requests
        if held is not None and held > after:
            yield f"--kv-cache-dtype fp8 would hold {held:,}"
    per_replica = after // head.replicas if head.replicas else 0
    if per_replica:
        needed = ceil(before / per_replica)
        yield f"{needed:,} replicas would hold {needed * per_replica:,}"


# -- findings of the gate ------------------------------------------------------------------------------------------


def _unit_findings(unit: UnitDifference, pair: Pair, unknown: Severity) -> Iterator[Finding]:
    plan = pair.head or pair.base
    assert plan is not None
    line = _unit_line(plan)
    if unit.verdict == "removed":
        held = unit.base.capacity.requests if unit.base else None
        words = f", which holds {held:,} {unit.yardstick} in the base" if held is not None else ""
        yield gate_finding("unit-removed", f"the head no longer has this server{words}", line, unit=unit.id)
    elif unit.verdict == "unknown":
        held = unit.base.capacity.requests if unit.base else None
        message = f"held {held:,} {unit.yardstick} in the base, what it holds now is unknown: {unit.reason}"
        primary = next((cause.span for cause in unit.causes if cause.span and cause.requests[1] is None), line)
        yield gate_finding("capacity-unknown", message, primary, unit=unit.id, ceiling=unknown)
    elif unit.verdict == "drop":
        yield _drop_finding(unit, line)
    if _is_shortened(unit):
        assert unit.base is not None
        assert unit.head is not None
        lengths = [_length(side) for side in (unit.base, unit.head)]
        span = next((cause.span for cause in unit.causes if cause.input == "max_model_len" and cause.span), line)
        message = (
            f"max_model_len falls from {lengths[0]:,} to {lengths[1]:,}: longer requests, which the base serves, are "
            f"refused, and the pool holds {unit.head.capacity.requests or 0:,} requests of {lengths[0]:,} tokens "
            f"({unit.base.capacity.requests:,} in the base)"
        )
        yield gate_finding("longest-request-shortened", message, span, unit=unit.id)


def _drop_finding(unit: UnitDifference, line: Span) -> Finding:
    assert unit.base is not None
    assert unit.head is not None
    before, after = unit.base.capacity.requests or 0, unit.head.capacity.requests or 0
    lowering = [cause for cause in unit.causes if _lowers(cause)]
    places = [(cause.span, str(cause)) for cause in lowering if cause.span is not None]
    message = f"holds {after:,} {unit.yardstick}, {before:,} in the base: {unit.reason}"
    if unit.how:
        message += f" ({unit.how})"
    remediation = ". ".join(words[:1].upper() + words[1:] for words in unit.levers)
    return gate_finding(
        "capacity-drop",
        message,
        places[0][0] if places else line,
        unit=unit.id,
        related=tuple(Location(span, words) for span, words in places),
        remediation=f"{remediation}." if remediation else None,
    )


def _lowers(cause: Cause) -> bool:
    before, after = cause.requests
    return after is not None and before is not None and after < before


def _is_shortened(unit: UnitDifference) -> bool:
    """Requests that the base serves are refused, and no declared workload says that nobody sends them."""
    if unit.base is None or unit.head is None or unit.yardstick is None or unit.yardstick.source != "max_model_len":
        return False
    before, after = _length(unit.base), _length(unit.head)
    return bool(unit.base.capacity.requests) and before is not None and after is not None and after < before


def _length(side: Side) -> int | None:
    return side.prediction.kv_cache.max_model_len if side.prediction is not None else None


def _unit_line(plan: ServingPlan) -> Span:
    span = plan.unit.span
    return span.file.line_span(span.line)


def _declaration_findings(pair: Pair) -> Iterator[Finding]:
    """The load and the demand that the head declares otherwise."""
    if pair.base is None or pair.head is None:
        return
    for name, before, after in (
        ("workload", pair.base.workload, pair.head.workload),
        ("min_sustained", pair.base.min_sustained, pair.head.min_sustained),
    ):
        if before == after or before is None:
            continue
        origin = pair.head.origins.get("workload")
        span = origin.span if origin is not None and origin.span is not None else _unit_line(pair.head)
        words = ", ".join(_declared_changes(name, before, after))
        message = f"the declared load changes ({words}): this change is judged by the base's"
        yield gate_finding("policy-changed-in-head", message, span, unit=pair.head.unit.id)


def _word_findings(unit: UnitDifference, pair: Pair, comparison: Comparison) -> Iterator[Finding]:
    """What is another machine or model only because the head's kvgate.yaml says so: no manifest can confirm it."""
    if pair.base is None or pair.head is None:
        return
    said = {
        name
        for name in ("gpu", "vllm_version")
        if (origin := pair.head.origins.get(name)) is not None and origin.words.startswith("kvgate.yaml")
    }
    reference = pair.head.model_reference
    if reference is not None and reference == pair.base.model_reference:
        mapped = [state.config.models.get(reference) for state in (comparison.base, comparison.head)]
        said |= {"model"} if mapped[0] != mapped[1] else set()
    for cause in unit.causes:
        if cause.input in said:
            message = (
                f"kvgate.yaml of the head says {cause.name} {cause.before} -> {cause.after} for this server; it is "
                "taken as it is, since no manifest says otherwise"
            )
            yield gate_finding("policy-changed-in-head", message, cause.span or _unit_line(pair.head), unit=unit.id)


def _declared_changes(name: str, before: Any, after: Any) -> Iterator[str]:
    """What of the load is declared otherwise."""
    both = [said if isinstance(said, int | None) else said.as_dict() for said in (before, after)]
    old, new = ({name: said} if isinstance(said, int | None) else said for said in both)
    for key in old:
        was, now = (f"{said:,}" if said is not None else "unset" for said in (old[key], new.get(key)))
        if was != now:
            yield f"{key} {was} -> {now}"


def _policy_finding(change: PolicyChange) -> Finding:
    if change.used:
        message = (
            f"{change.what} comes with this change: the base has no lock of that model, so it is judged with this one"
        )
        return gate_finding("policy-changed-in-head", message, change.span, ceiling=Severity.INFO)
    message = f"{change.what}: {change.detail}; this change is judged by the base's"
    return gate_finding("policy-changed-in-head", message, change.span)


def _suppression_finding(finding: Finding) -> Finding:
    message = f"this change hides its own finding {finding.rule} ({finding.severity.value}): {finding.message}"
    return gate_finding("suppression-added-in-head", message, finding.primary, unit=finding.unit)


# -- findings of the rules -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    new: tuple[Finding, ...] = ()
    fixed: tuple[Finding, ...] = ()
    unchanged: tuple[Finding, ...] = ()
    hidden: tuple[Finding, ...] = ()
    errors: tuple[InternalError, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()
    suppressed: int = 0
    rules: dict[str, Any] = field(default_factory=dict)


Key = tuple[str, str, str, str]


def _findings(comparison: Comparison, pairs: Sequence[Pair]) -> _Found:
    base, _ = _judged(comparison, comparison.base)
    head, unchecked = _judged(comparison, comparison.head)
    stricter = _by_declared_load(comparison, pairs)
    visible = [*head.findings, *_absent(stricter.findings, (*head.findings, *head.hidden))]
    ids = {pair.base.unit.id: pair.head.unit.id for pair in pairs if pair.base and pair.head}
    paths = {
        pair.base.unit.path: pair.head.unit.path for pair in pairs if pair.base and pair.head and pair.match == "moved"
    }

    def key_of_base(finding: Finding) -> Key:
        return _key(finding, ids, paths)

    known_hidden = Counter(map(key_of_base, base.hidden))
    own_hidden = [finding for finding in head.hidden if not _taken(known_hidden, _key(finding))]
    visible, accepted = _without(visible, comparison.accepted)
    proposed = [finding for finding in visible if finding.fingerprint in comparison.proposed]
    if comparison.label is not None:
        visible, _ = _without(visible, comparison.proposed)
    else:
        visible += own_hidden
    earlier, _ = _without(base.findings, comparison.accepted)
    left = Counter(map(key_of_base, earlier))
    new: list[Finding] = []
    unchanged: list[Finding] = []
    for finding in visible:
        (unchanged if _taken(left, _key(finding)) else new).append(finding)
    kept = Counter(map(_key, unchanged))
    fixed = [finding for finding in earlier if not _taken(kept, key_of_base(finding))]
    if comparison.label is not None:
        # who accepts the drop accepts what the rules say of it
        new = [
            replace(finding, severity=Severity.INFO) if head.rules[finding.rule].family == "capacity" else finding
            for finding in new
        ]
    return _Found(
        new=finalise(new),
        fixed=tuple(fixed),
        unchanged=finalise(unchanged),
        hidden=(*own_hidden, *proposed),
        errors=(*base.errors, *head.errors, *stricter.errors),
        unchecked=tuple(unchecked),
        suppressed=head.suppressed + accepted,
        rules=dict(head.rules),
    )


def _judged(comparison: Comparison, state: State) -> tuple[Judgement, list[Unchecked]]:
    return comparison.judge(
        comparison.rules,
        comparison.selection,
        state.units,
        state.collection,
        state.reading,
        state.config,
        state.paths,
    )


def _by_declared_load(comparison: Comparison, pairs: Sequence[Pair]) -> Judgement:
    """What the rules say of the head under the load that the base declares, where the head declares another."""
    units = []
    for pair in pairs:
        if pair.base is None or pair.head is None or pair.base.workload is None:
            continue
        declared = (pair.base.workload, pair.base.min_sustained)
        if declared != (pair.head.workload, pair.head.min_sustained):
            plan = replace(
                pair.head,
                workload=pair.base.workload,
                workload_config=pair.base.workload_config,
                min_sustained=pair.base.min_sustained,
            )
            units.append((plan, plan.predict()))
    only: tuple[Scope, ...] = ("unit",)
    return judge(comparison.rules, comparison.selection, units, config=comparison.policy, only=only)


def _absent(findings: Iterable[Finding], others: Iterable[Finding]) -> list[Finding]:
    """Findings that are not among others."""
    counts = Counter(map(_key, others))
    return [finding for finding in findings if not _taken(counts, _key(finding))]


def _without(findings: Iterable[Finding], accepted: Collection[str]) -> tuple[list[Finding], int]:
    kept, count = apply_baseline(tuple(findings), accepted)
    return list(kept), count


def _taken(counts: Counter[Key], key: Key) -> bool:
    """Whether there is still one of a key; it is used up."""
    if counts[key] <= 0:
        return False
    counts[key] -= 1
    return True


def _key(finding: Finding, ids: Mapping[str, str] | None = None, paths: Mapping[str, str] | None = None) -> Key:
    """What a fingerprint is made of, with the names that the head has for moved and renamed units."""
    span = finding.primary
    unit = finding.unit or ""
    path = (paths or {}).get(span.path, span.path)
    # a comment at the end of the line is no part of what is found, least of all one that hides it
    text = " ".join(_COMMENT.sub("", span.text).split())
    return finding.rule, path, (ids or {}).get(unit, unit), text
