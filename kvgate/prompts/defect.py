"""What is wrong with a prompt, before a rule gives it words and severity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Literal

from kvgate.records import record
from kvgate.source.text import Span

DefectKind = Literal[
    "volatile",
    "retrieval",
    "media",
    "tool-order",
    "history",
    "cache-salt",
    "benchmark",
]


@record
class Defect:
    """One thing that keeps requests from sharing their prefix.

    Attributes:
        span: the expression that must move or change.
        values: what the rule's message says: see :mod:`kvgate.ruleset.checks.prompts`.
        variant: the rule's variant, None for its own message.
        mild: it costs little, or only now and then: no more than an info.
        related: further places, each with what it has to do with it.
        since: the vLLM release from which it matters, None for all.
    """

    kind: DefectKind
    span: Span
    values: Mapping[str, Any] = field(default_factory=dict)
    variant: str | None = None
    mild: bool = False
    related: tuple[tuple[Span, str], ...] = ()
    since: str | None = None


def each_once(defects: Iterable[Defect]) -> Iterator[Defect]:
    """Each place once for each kind of defect, with the worst that was said of it."""
    worst: dict[tuple[str, str, int, int], Defect] = {}
    for defect in defects:
        key = (defect.kind, defect.span.path, defect.span.start, defect.span.end)
        known = worst.get(key)
        if known is None or (known.mild and not defect.mild):
            worst[key] = defect
    yield from worst.values()
