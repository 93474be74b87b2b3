"""The names of vLLM's Prometheus metrics, per release.

``data/metrics.json`` lists the names that the released sources register (``engine/metrics.py``,
``v1/metrics/loggers.py`` and the connectors'), without the ``vllm:`` before them, with the first and last release that
has each. ``hidden`` is the first release that keeps a deprecated name back (``--show-hidden-metrics-for-version``), or
whose default engine (V1, from 0.8.0) never had it. ``share`` marks gauges between 0 and 1, which cannot be summed.
"""

from __future__ import annotations

from typing import Final, Literal

from kvgate.engine.releases import at_least, compare_versions, resolve_version
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.tables import load_table

_SUFFIX: Final = regex(r"_(?:total|bucket|sum|count|created)$")

Standing = Literal["current", "hidden", "removed", "later", "unknown"]


@record
class Metric:
    """One metric.

    Attributes:
        name: without ``vllm:`` and without the suffix of a counter or histogram.
        first, last: releases that have it.
        hidden: the first release that does not export it by default, None where all do.
        instead: what says the same now, None where nothing does.
        share: a gauge between 0 and 1.
    """

    name: str
    first: str
    last: str
    hidden: str | None
    instead: str | None
    share: bool

    def standing(self, version: str | None) -> Standing:
        """How a release has it: exported, hidden by default, removed, or not there yet."""
        info = resolve_version(version)
        release = info.version or info.table
        if compare_versions(release, self.first) < 0:
            return "later"
        if compare_versions(release, self.last) > 0 and self.last != _newest():
            return "removed"
        return "hidden" if self.hidden is not None and at_least(release, self.hidden) else "current"


def find_metric(name: str) -> Metric | None:
    """A metric by the name that queries use, with or without ``vllm:`` and its suffix; None for what vLLM has not."""
    table = load_table("engine/metrics")["metrics"]
    plain = name.removeprefix("vllm:")
    for candidate in (plain, _SUFFIX.sub("", plain), f"{plain}_total"):
        entry = table.get(candidate)
        if entry is not None:
            return Metric(
                name=candidate,
                first=entry["first"],
                last=entry["last"],
                hidden=entry.get("hidden"),
                instead=entry.get("instead"),
                share=entry.get("share", False),
            )
    return None


def _newest() -> str:
    from kvgate.engine.releases import newest_release

    return newest_release()
