"""Terms of the memory budget that a server of this very configuration has measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvgate.capacity.prediction import Memory, Quantity
from kvgate.records import record


@record
class MeasuredTerms:
    """What a server measured; a term is missing where it was not printed or something that shapes it has changed.

    Attributes:
        terms: bytes by name: ``weights``, ``activation_peak``, ``non_torch``, ``cuda_graphs``.
        tolerance: how far another start may lie off, as a share of the term.
        words: where the figures come from, for people.
    """

    terms: Mapping[str, int]
    tolerance: float
    words: str


def with_measured(memory: Memory, measured: MeasuredTerms) -> Memory:
    """The budget with measured terms in place of estimated ones, and what then is left for the KV cache.

    A term that the release does not count (CUDA graphs before 0.20) stays as it is.
    """
    changed: dict[str, Quantity] = {}
    for name, value in measured.terms.items():
        estimate: Quantity = getattr(memory, name)
        if estimate.basis == "exact":
            continue
        margin = int(abs(value) * measured.tolerance)
        changed[name] = Quantity(value, value - margin, value + margin, "measured", measured.words)
    if not changed:
        return memory
    for name, quantity in changed.items():
        memory = replace(memory, **{name: quantity})  # type: ignore[arg-type] # every term is a Quantity
    spent = (memory.weights, memory.activation_peak, memory.non_torch, memory.cuda_graphs)
    return replace(memory, kv_cache_available=_left(memory.requested, spent))


def _left(requested: Quantity, spent: tuple[Quantity, ...]) -> Quantity:
    def total(bound: str) -> int | None:
        values: list[int | None] = [getattr(term, bound) for term in spent]
        return None if None in values else sum(value for value in values if value is not None)

    middle, low, high = total("bytes"), total("low"), total("high")
    if requested.bytes is None or middle is None:
        return Quantity.unknown("a term of the budget is not known")
    least, most = requested.low, requested.high
    measured = all(term.basis in ("measured", "exact") for term in spent)
    return Quantity(
        requested.bytes - middle,
        None if least is None or high is None else least - high,
        None if most is None or low is None else most - low,
        "measured" if measured else "calibrated",
        "requested - what a server measured" if measured else "requested - measured and estimated terms",
    )
