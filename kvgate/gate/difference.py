"""What a comparison of two states says, and its JSON form (``kvgate.diff/1``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal

from kvgate.capacity.prediction import Prediction, Workload
from kvgate.findings.finding import Finding, Location
from kvgate.findings.report import Report
from kvgate.findings.report import redacted as redacted_report
from kvgate.records import record
from kvgate.source.text import Span

#: How a unit of the base and one of the head came to be seen as the same.
Match = Literal["same", "moved", "renamed", "added", "removed"]

#: ``drop``: beyond what the policy allows; ``lower``: within it; ``unknown``: known in the base, unknown in the head;
#: ``incomparable``: the base's own capacity is unknown.
Verdict = Literal["equal", "higher", "lower", "drop", "unknown", "incomparable", "added", "removed"]


#: Rules of the comparison whose errors close the gate.
CLOSING: Final = frozenset({"capacity-drop", "capacity-unknown"})


@record
class Revision:
    """One side of a comparison.

    Attributes:
        commit: full object name; None for the working tree.
        how: how it was chosen, in words (``first parent of the merge commit of pull request 12``).
    """

    commit: str | None
    how: str

    def __str__(self) -> str:
        return f"{self.commit[:12]} ({self.how})" if self.commit else self.how

    def as_dict(self) -> dict[str, Any]:
        return {"commit": self.commit, "working_tree": self.commit is None, "how": self.how}


@record
class Yardstick:
    """The request that both sides of a unit are measured with.

    Attributes:
        workload: the base's declared one, or a request of the base's ``max_model_len``.
        source: which of the two; ``head`` only for a unit that the base does not have.
    """

    workload: Workload
    source: Literal["workload", "max_model_len", "head"]

    @property
    def tokens(self) -> int:
        return self.workload.request_tokens or 0

    def __str__(self) -> str:
        shared = self.workload.shared_prefix_tokens
        words = f"requests of {self.tokens:,} tokens" + (f" ({shared:,} of them shared)" if shared else "")
        return f"{words}, the base's max_model_len" if self.source == "max_model_len" else words

    def as_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "request_tokens": self.tokens,
            "prompt_tokens": self.workload.prompt_tokens,
            "output_tokens": self.workload.output_tokens,
            "shared_prefix_tokens": self.workload.shared_prefix_tokens,
        }


@record
class Capacity:
    """Requests that all data-parallel ranks and replicas of a unit sustain together.

    Attributes:
        requests: sustained x data-parallel ranks x replicas; 0 where the server does not start or refuses the request;
            None where unknown.
        low, high: the bounds that follow from the budget's interval.
        ratio: the unfloored figure of one rank.
        admitted: what admission lets in at once, over all ranks and replicas.
        reason: why it is unknown or 0; or what it rests on.
    """

    requests: int | None
    low: int | None = None
    high: int | None = None
    ratio: float | None = None
    admitted: int | None = None
    limited_by: str | None = None
    reason: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "interval": [self.low, self.high],
            "ratio": self.ratio,
            "admitted": self.admitted,
            "limited_by": self.limited_by,
            "reason": self.reason,
        }


@record
class Side:
    """A unit as one of the two states has it. Values are as they may be shown: secrets are masked."""

    id: str
    path: str
    line: int
    kind: str
    image: str | None
    model: str | None
    vllm_version: str
    version_basis: str
    gpu: str | None
    gpu_count: int | None
    replicas: int
    data_parallel_size: int
    capacity: Capacity
    prediction: Prediction | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "path": self.path,
            "line": self.line,
            "image": self.image,
            "model": self.model,
            "vllm_version": self.vllm_version,
            "gpu": self.gpu,
            "gpu_count": self.gpu_count,
            "replicas": self.replicas,
            "data_parallel_size": self.data_parallel_size,
            "starts": self.prediction.starts if self.prediction else "unknown",
            "capacity": self.capacity.as_dict(),
            "prediction": self.prediction.as_dict() if self.prediction else None,
        }


@record
class Effect:
    """What one changed input did inside the prediction.

    Attributes:
        name: ``gpu_memory_utilization``, ``CUDA graphs``, ``bytes_per_token``, ...
        before, after: the figure; None where there was none.
        pool_bytes: what it adds to (or takes from) one GPU's KV-cache memory; None where it is no memory term.
        words: the same for people.
    """

    name: str
    before: Any
    after: Any
    pool_bytes: int | None
    words: str

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "before": self.before, "after": self.after, "pool_bytes": self.pool_bytes}


_NAMES: Final = {"vllm_version": "vLLM", "image": "image", "model": "model", "gpu": "GPU", "replicas": "replicas"}


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


@record
class Cause:
    """One input that differs between the two sides, changed after those before it, with what that did.

    Attributes:
        input: ``vllm_version``, ``image``, ``model``, ``gpu``, ``replicas``, an engine argument's dest, ``env:NAME``.
        before, after: the values as text; None where unset.
        requests: capacity before and after this step, at the unit's yardstick.
        pool_bytes: KV-cache memory of one GPU before and after.
        reverted: what the head would hold with this input alone put back; None where unknown.
        span: where the head says it; None where it does not.
    """

    input: str
    before: str | None
    after: str | None
    requests: tuple[int | None, int | None]
    pool_bytes: tuple[int | None, int | None]
    starts: tuple[str, str]
    effects: tuple[Effect, ...]
    reverted: int | None
    span: Span | None = None

    def __str__(self) -> str:
        """What it was and is, what that did to the capacity, and inside the arithmetic."""
        before, after = ("unset" if value is None else value for value in (self.before, self.after))
        return f"{self.name} {before} -> {after}: {self.words}"

    @property
    def name(self) -> str:
        """The input as people call it."""
        if self.input.startswith("env:"):
            return self.input[4:]
        return _NAMES.get(self.input, "--" + self.input.replace("_", "-"))

    @property
    def words(self) -> str:
        """What the change did."""
        before, after = self.requests
        parts = []
        if before != after:
            parts.append(f"{_number(before)} -> {_number(after)} requests")
        parts += [effect.words for effect in self.effects]
        if self.starts[0] != self.starts[1]:
            parts.append(f"starts: {self.starts[0]} -> {self.starts[1]}")
        return ", ".join(parts) or "no effect on the capacity"

    @property
    def matters(self) -> bool:
        """Whether it changed a figure."""
        return bool(self.effects) or len(set(self.requests)) > 1 or len(set(self.starts)) > 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "input": self.input,
            "before": self.before,
            "after": self.after,
            "requests": list(self.requests),
            "kv_cache_bytes": list(self.pool_bytes),
            "starts": list(self.starts),
            "effects": [effect.as_dict() for effect in self.effects],
            "reverted": self.reverted,
            "path": self.span.path if self.span else None,
            "line": self.span.line if self.span else None,
        }


@record
class UnitDifference:
    """A unit in both states, or in one.

    Attributes:
        how: how the two were matched, in words; empty for the same id in the same file.
        change: (head - base) / base; None where either is unknown or the base is 0.
        levers: what would bring back what was lost, computed, a sentence each.
    """

    match: Match
    how: str
    base: Side | None
    head: Side | None
    yardstick: Yardstick | None
    verdict: Verdict
    reason: str
    causes: tuple[Cause, ...] = ()
    levers: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        side = self.head or self.base
        assert side is not None
        return side.id

    @property
    def change(self) -> float | None:
        before = self.base.capacity.requests if self.base else None
        after = self.head.capacity.requests if self.head else None
        return (after - before) / before if before and after is not None else None

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to say of it."""
        return self.match != "same" or bool(self.causes) or self.verdict not in ("equal", "incomparable")

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "match": self.match,
            "how": self.how,
            "base": self.base.as_dict() if self.base else None,
            "head": self.head.as_dict() if self.head else None,
            "yardstick": self.yardstick.as_dict() if self.yardstick else None,
            "change": self.change,
            "verdict": self.verdict,
            "reason": self.reason,
            "causes": [cause.as_dict() for cause in self.causes],
            "levers": list(self.levers),
        }


@record
class Policy:
    """What the gate demands, and who says so.

    Attributes:
        max_capacity_drop: a share (0.1 = 10%).
        source: ``kvgate.yaml of the base``, or ``default``.
    """

    max_capacity_drop: float
    on_unknown: Literal["fail", "warn"]
    source: str

    def as_dict(self) -> dict[str, Any]:
        return {"max_capacity_drop": self.max_capacity_drop, "on_unknown": self.on_unknown, "source": self.source}


@record
class Gate:
    """The verdict.

    Attributes:
        verdict: ``accepted`` where it would fail and a maintainer's label accepts that.
        reasons: why it fails (or would), a sentence each.
        label: the label that accepts it.
        findings: what the comparison itself found (:mod:`kvgate.gate.rules`).
    """

    verdict: Literal["pass", "fail", "accepted"]
    reasons: tuple[str, ...]
    policy: Policy
    label: str | None
    findings: tuple[Finding, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "policy": self.policy.as_dict(),
            "label": self.label,
            "findings": [finding.as_dict() for finding in self.findings],
        }


@record
class Difference:
    """The result of ``kvgate diff``.

    Attributes:
        new, fixed, unchanged: the rules' findings, by fingerprint.
        report: what is to be judged: the head's units, the new findings and the gate's own, and what could not be
            checked. Formats that know nothing of two sides (SARIF, GitLab, JUnit, annotations) show this.
    """

    base: Revision
    head: Revision
    units: tuple[UnitDifference, ...]
    new: tuple[Finding, ...]
    fixed: tuple[Finding, ...]
    unchanged: tuple[Finding, ...]
    gate: Gate
    report: Report
    version: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to tell: no server changed, nothing was found, the gate is open."""
        said = self.new or self.fixed or self.gate.findings or self.report.errors
        return not said and not any(unit.is_changed for unit in self.units)

    def as_dict(self) -> dict[str, Any]:
        """The JSON contract ``kvgate.diff/1``."""
        return {
            "schema": "kvgate.diff/1",
            "kvgate": self.version,
            "base": self.base.as_dict(),
            "head": self.head.as_dict(),
            "gate": self.gate.as_dict(),
            "units": [unit.as_dict() for unit in self.units],
            "findings": {
                "new": [finding.as_dict() for finding in self.new],
                "fixed": [finding.as_dict() for finding in self.fixed],
                "unchanged": [finding.as_dict() for finding in self.unchanged],
            },
            "unchecked": [place.as_dict() for place in self.report.unchecked],
            "summary": {
                "units": len(self.units),
                "changed": sum(unit.is_changed for unit in self.units),
                "findings": {"new": len(self.new), "fixed": len(self.fixed), "unchanged": len(self.unchanged)},
                "unchecked": len(self.report.unchecked),
                "suppressed": self.report.suppressed,
            },
        }


def redacted(difference: Difference, mask: Callable[[str], str]) -> Difference:
    """The difference with ``mask`` applied to every text in it that came, or may have come, from a file."""

    def texts(value: Any) -> Any:
        """Strings at any depth, places in files aside."""
        if isinstance(value, str):
            return mask(value)
        if isinstance(value, tuple):
            return tuple(texts(item) for item in value)
        if isinstance(value, Finding | Location | Cause | Effect | UnitDifference | Side | Capacity | Gate):
            parts = {name: texts(getattr(value, name)) for name in value.__dataclass_fields__}
            return replace(value, **{name: part for name, part in parts.items() if name not in _KEPT})
        return value

    return replace(
        difference,
        units=texts(difference.units),
        new=texts(difference.new),
        fixed=texts(difference.fixed),
        unchanged=texts(difference.unchanged),
        gate=texts(difference.gate),
        report=redacted_report(difference.report, mask),
    )


# identities, not words
_KEPT: Final = frozenset({"rule", "fingerprint", "url", "match", "verdict", "input", "kind"})
