"""Which unit of the base is which unit of the head."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

from kvgate.engine.arguments import as_json
from kvgate.gate.difference import Match
from kvgate.records import record

if TYPE_CHECKING:
    from kvgate.plan import ServingPlan

#: Share of arguments that two units under different names must have in common to be one that was renamed.
SIMILAR: Final = 0.6


@record
class Pair:
    """A unit in both states, or in one; ``how`` says why the two are one, empty where nothing moved."""

    base: ServingPlan | None
    head: ServingPlan | None
    match: Match
    how: str = ""


def match_units(base: Sequence[ServingPlan], head: Sequence[ServingPlan]) -> list[Pair]:
    """Pairs in the order of the head's units, the removed ones after them.

    By id in the same file, by id in another file (moved), then by kind, model and similar arguments (renamed). A
    second unit of a name has ``#2`` behind its id, which says nothing about which one it is.
    """
    left, right = list(base), list(head)
    pairs: dict[int, Pair] = {}

    def join(one: ServingPlan, other: ServingPlan, match: Match, how: str) -> None:
        pairs[id(other)] = Pair(one, other, match, how)
        left[:] = [plan for plan in left if plan is not one]
        right[:] = [plan for plan in right if plan is not other]

    for one, other in _zipped(left, right, lambda plan: (_name(plan), plan.unit.path)):
        join(one, other, "same", "")
    for one, other in _zipped(left, right, _name):
        join(one, other, "moved", f"moved from {one.unit.path} to {other.unit.path}, the id is the same")
    for candidate in sorted(_renames(left, right), key=_rank):
        if any(plan is candidate.base for plan in left) and any(plan is candidate.head for plan in right):
            same_entry = _entry(candidate.base) == _entry(candidate.head)
            join(candidate.base, candidate.head, "moved" if same_entry else "renamed", candidate.words)
    found = [pairs.get(id(plan)) or Pair(None, plan, "added") for plan in head]
    return found + [Pair(plan, None, "removed") for plan in left]


def _name(plan: ServingPlan) -> str:
    return plan.unit.id.partition("#")[0]


def _entry(plan: ServingPlan) -> str:
    """The unit's own name, where its id is its path and that."""
    return _name(plan).removeprefix(plan.unit.path)


def _zipped(
    left: Sequence[ServingPlan], right: Sequence[ServingPlan], key: Callable[[ServingPlan], Hashable]
) -> list[tuple[ServingPlan, ServingPlan]]:
    """The first with the first of each key."""
    others: dict[Hashable, list[ServingPlan]] = defaultdict(list)
    for plan in right:
        others[key(plan)].append(plan)
    return [(plan, others[key(plan)].pop(0)) for plan in left if others[key(plan)]]


@record
class _Rename:
    base: ServingPlan
    head: ServingPlan
    likeness: float
    words: str


def _rank(rename: _Rename) -> tuple[float, str, str]:
    return -rename.likeness, rename.base.unit.id, rename.head.unit.id


def _renames(left: Iterable[ServingPlan], right: Sequence[ServingPlan]) -> Iterator[_Rename]:
    for one in left:
        for other in right:
            if one.unit.kind != other.unit.kind or one.model_reference is None:
                continue
            if one.model_reference != other.model_reference:
                continue
            mine, theirs = _arguments(one), _arguments(other)
            dests = mine.keys() | theirs.keys()
            equal = sum(mine.get(dest) == theirs.get(dest) for dest in dests)
            # an argument with another value is half the same: a rename often comes with a change
            alike = (equal + len(mine.keys() & theirs.keys())) / (2 * len(dests)) if dests else 1.0
            if alike < SIMILAR:
                continue
            moved = f"moved from {one.unit.path} to {other.unit.path}" if one.unit.path != other.unit.path else ""
            name = f"renamed from {_name(one)}" if _entry(one) != _entry(other) else ""
            words = " and ".join(part for part in (moved, name) if part)
            names = SequenceMatcher(None, one.unit.id, other.unit.id, autojunk=False).ratio()
            yield _Rename(
                one, other, alike + names, f"{words}: same kind and model, {equal} of {len(dests)} arguments the same"
            )


def _arguments(plan: ServingPlan) -> dict[str, str]:
    return {
        dest: json.dumps(as_json(argument.value), sort_keys=True, default=str)
        for dest, argument in plan.parsed.arguments.items()
    }
