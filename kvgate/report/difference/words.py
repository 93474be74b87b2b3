"""What every format says of a comparison, as plain text; making it harmless is the format's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvgate.capacity.prediction import Prediction
from kvgate.findings.finding import Severity
from kvgate.gate.difference import Difference, Side, UnitDifference
from kvgate.report.waterfall import GIB

#: ``->`` in text; Markdown has its own.
ARROW: Final = " -> "


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def headline(difference: Difference) -> str:
    """The verdict in one sentence."""
    verdict, closing = difference.gate.verdict, len(difference.gate.reasons)
    if verdict == "fail":
        return f"the gate is closed: {plural(closing, 'reason')}"
    if verdict == "accepted":
        return (
            f'the gate would be closed, and the label "{difference.gate.label}" accepts it: {plural(closing, "reason")}'
        )
    if not difference.units:
        return "nothing to compare: no vLLM server found in either state"
    changed = sum(unit.is_changed for unit in difference.units)
    return "the gate is open: no capacity is lost" if changed else "the gate is open: no server changed"


def counts(difference: Difference) -> str:
    """Servers and findings in numbers."""
    changed = sum(unit.is_changed for unit in difference.units)
    errors = sum(finding.severity is Severity.ERROR for finding in difference.new)
    parts = [
        f"{plural(len(difference.units), 'server')} compared, {changed:,} changed",
        f"{len(difference.new):,} new"
        + (f" ({plural(errors, 'error')})" if errors else "")
        + f", {len(difference.fixed):,} fixed, {len(difference.unchanged):,} unchanged findings",
    ]
    if difference.report.unchecked:
        parts.append(f"{plural(len(difference.report.unchecked), 'place')} not checked")
    if difference.report.errors:
        parts.append(f"{plural(len(difference.report.errors), 'rule')} crashed")
    return "; ".join(parts)


def policy_words(difference: Difference) -> str:
    policy = difference.gate.policy
    drop = f"{policy.max_capacity_drop:.1%}".replace(".0%", "%")
    return f"max_capacity_drop {drop}, on_unknown {policy.on_unknown} ({policy.source})"


def requests_cell(unit: UnitDifference, arrow: str = ARROW) -> str:
    """Capacity of both sides, with the change as a share."""
    before, after = (_requests(side) for side in (unit.base, unit.head))
    cell = _both(before, after, arrow)
    change = unit.change
    return f"{cell} ({change:+.0%})" if change else cell


def pool_cell(unit: UnitDifference, arrow: str = ARROW) -> str:
    def of(side: Side | None) -> str | None:
        if side is not None and side.prediction is not None and side.prediction.kv_cache.absent:
            return "none"
        available = _known(side, lambda prediction: prediction.memory.kv_cache_available.bytes)
        return None if side is None else "?" if available is None else f"{max(0, available) / GIB:.2f}"

    cell = _both(of(unit.base), of(unit.head), arrow)
    return cell if cell in ("?", "", "none") else f"{cell} GiB"


def tokens_cell(unit: UnitDifference, arrow: str = ARROW) -> str:
    def of(side: Side | None) -> str | None:
        size = _known(side, lambda prediction: prediction.kv_cache.size_tokens)
        return None if side is None else "?" if size is None else f"{size:,}"

    return _both(of(unit.base), of(unit.head), arrow)


def admitted_cell(unit: UnitDifference, arrow: str = ARROW) -> str:
    def of(side: Side | None) -> str | None:
        if side is None:
            return None
        return "?" if side.capacity.admitted is None else f"{side.capacity.admitted:,}"

    return _both(of(unit.base), of(unit.head), arrow)


def starts_cell(unit: UnitDifference, arrow: str = ARROW) -> str:
    def of(side: Side | None) -> str | None:
        return None if side is None else side.prediction.starts if side.prediction is not None else "unknown"

    return _both(of(unit.base), of(unit.head), arrow)


def match_words(unit: UnitDifference) -> str:
    """How the unit is in the two states, empty where both have it in the same place."""
    words = {"added": "new server", "removed": "removed server"}
    return unit.how or words.get(unit.match, "")


def _requests(side: Side | None) -> str | None:
    if side is None:
        return None
    return "?" if side.capacity.requests is None else f"{side.capacity.requests:,}"


def _known(side: Side | None, figure: Callable[[Prediction], int | None]) -> int | None:
    return figure(side.prediction) if side is not None and side.prediction is not None else None


def _both(before: str | None, after: str | None, arrow: str) -> str:
    if before is None or after is None or before == after:
        return after or before or ""
    return f"{before}{arrow}{after}"
