"""How sure a claim is, and how severe a finding may therefore be: the one place that decides it.

A claim is tested three times: with the pool at its smallest, at its estimate and at its largest
(:class:`Bound`). Where it holds each time it is *certain*, where it holds at the estimate it is *likely*; where an
input that it rests on is assumed or unknown it is only *possible*. The rule's severity is the ceiling, and certainty
lowers it: certain up to error, likely up to warning, possible up to info.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal

from kvgate.findings.finding import Severity

if TYPE_CHECKING:
    from kvgate.capacity.prediction import Prediction
    from kvgate.plan import ServingPlan

#: What a claim can rest on: ``prediction`` is the pool itself, ``words`` that the whole command line is resolved.
Input = Literal["vllm_version", "gpu", "model", "workload", "prediction", "words"]


class Bound(Enum):
    """Which end of the intervals a claim is tested with."""

    LOW = "low"
    ESTIMATE = "estimate"
    HIGH = "high"


class Certainty(Enum):
    POSSIBLE = "possible"
    LIKELY = "likely"
    CERTAIN = "certain"


CEILINGS: Final = {
    Certainty.CERTAIN: Severity.ERROR,
    Certainty.LIKELY: Severity.WARNING,
    Certainty.POSSIBLE: Severity.INFO,
}


def certainty_of(
    holds: Callable[[Bound], bool], rests_on: tuple[Input, ...], doubtful: frozenset[Input]
) -> Certainty | None:
    """How certain a claim is; None where it does not hold at the estimate.

    Args:
        holds: whether the claim holds at a bound.
        rests_on: the inputs that the claim uses.
        doubtful: the inputs of this unit that are assumed or unknown (:func:`doubtful_inputs`).
    """
    if not holds(Bound.ESTIMATE):
        return None
    if doubtful.intersection(rests_on):
        return Certainty.POSSIBLE
    if holds(Bound.LOW) and holds(Bound.HIGH):
        return Certainty.CERTAIN
    return Certainty.LIKELY


def severity_of(rule: Severity, certainty: Certainty) -> Severity:
    """The severity of a finding: the rule's, lowered to what its certainty allows."""
    return rule.capped(CEILINGS[certainty])


def doubtful_inputs(plan: ServingPlan, prediction: Prediction | None) -> frozenset[Input]:
    """The inputs of a unit that are assumed or unknown."""
    doubtful: set[Input] = set()
    if plan.version_basis == "assumed":
        doubtful.add("vllm_version")
    if (plan.gpu is None and plan.gpu_memory_bytes is None) or plan.gpu_basis in ("assumed", "unknown"):
        doubtful.add("gpu")
    if plan.model is None:
        doubtful.add("model")
    if plan.workload is None:
        doubtful.add("workload")
    if (
        prediction is None
        or prediction.kv_cache.basis in ("assumed", "unknown")
        or prediction.resolved.get("unresolved")
    ):
        doubtful.add("prediction")
    if any(problem.kind == "unresolved-words" for problem in plan.parsed.problems):
        doubtful.add("words")
    return frozenset(doubtful)
