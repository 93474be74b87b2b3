"""What ``/metrics`` of a vLLM server says, under the names of all releases that were read (0.4.2 to 0.33.0)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from kvgate.records import record

#: Quantity -> the names that releases gave it, newest first. Counters carry ``_total`` on the wire.
NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "swapped": ("vllm:num_requests_swapped",),  # V0, to 0.9.0
    "usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),  # the former from 0.9.2, a share, not percent
    "preemptions": ("vllm:num_preemptions_total",),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "hit_rate": ("vllm:gpu_prefix_cache_hit_rate",),  # V0, to 0.9.0: a gauge over the last requests
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "generation_tokens": ("vllm:generation_tokens_total",),
}
# Some releases named the counters without the suffix that the exposition adds.
_ALIASES: Final = {
    "vllm:num_preemptions": "vllm:num_preemptions_total",
    "vllm:prefix_cache_queries": "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits": "vllm:prefix_cache_hits_total",
    "vllm:gpu_prefix_cache_queries": "vllm:gpu_prefix_cache_queries_total",
    "vllm:gpu_prefix_cache_hits": "vllm:gpu_prefix_cache_hits_total",
    "vllm:prompt_tokens": "vllm:prompt_tokens_total",
    "vllm:generation_tokens": "vllm:generation_tokens_total",
}
_CACHE: Final = ("vllm:cache_config_info", "vllm:cache_config")
_WANTED: Final = re.compile(
    "(?:" + "|".join(sorted({*_ALIASES, *_CACHE, *(name for names in NAMES.values() for name in names)})) + r")[{ ]"
)
_MEAN: Final = frozenset(("usage", "hit_rate"))  # shares: the engines' mean, everything else is summed


class MetricsError(ValueError):
    """The text is no Prometheus exposition."""


@record
class EngineMetrics:
    """One look at a server; None where the release does not say. Counts are summed over data-parallel engines.

    ``cache`` holds the labels of ``vllm:cache_config_info`` as text (``block_size``, ``num_gpu_blocks``...), those of
    the engine with the fewest blocks.
    """

    running: int | None = None
    waiting: int | None = None
    swapped: int | None = None
    usage: float | None = None
    preemptions: int | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    hit_rate: float | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    engines: int = 1
    model: str | None = None
    cache: Mapping[str, str] = field(default_factory=dict)

    @property
    def queued(self) -> int | None:
        """Requests that are not running: waiting, and swapped out by the V0 engine."""
        return None if self.waiting is None else self.waiting + (self.swapped or 0)

    def cache_number(self, *labels: str) -> float | None:
        """The first of some labels of the cache configuration that holds a number."""
        for label in labels:
            try:
                return float(self.cache[label])
            except (KeyError, ValueError):
                continue
        return None


def read_metrics(text: str) -> EngineMetrics:
    """Read an exposition.

    Raises:
        MetricsError: it cannot be parsed.
    """
    from prometheus_client.parser import text_string_to_metric_families

    wanted = {name: quantity for quantity, names in NAMES.items() for name in names}
    found: dict[str, dict[str, list[float]]] = {}
    caches: list[Mapping[str, str]] = []
    engines: set[str] = set()
    model: str | None = None
    # a server exposes thousands of histogram buckets that are of no use here, and is looked at often
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("vllm:") or _WANTED.match(line))
    try:
        for family in text_string_to_metric_families(lines + "\n"):
            for sample in family.samples:
                if sample.name in _CACHE:
                    caches.append(sample.labels)
                    continue
                name = _ALIASES.get(sample.name, sample.name)
                quantity = wanted.get(name)
                if quantity is None or sample.value != sample.value:  # NaN
                    continue
                found.setdefault(quantity, {}).setdefault(name, []).append(float(sample.value))
                engines.add(sample.labels.get("engine", "0"))
                model = model or sample.labels.get("model_name")
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise MetricsError(f"not a Prometheus exposition: {error}") from None
    values: dict[str, Any] = {}
    for quantity, by_name in found.items():
        numbers = next(by_name[name] for name in NAMES[quantity] if name in by_name)
        total = sum(numbers)
        values[quantity] = total / len(numbers) if quantity in _MEAN else int(total)
    return EngineMetrics(engines=max(1, len(engines)), model=model, cache=_least(caches), **values)


def _least(caches: list[Mapping[str, str]]) -> Mapping[str, str]:
    def blocks(cache: Mapping[str, str]) -> float:
        try:
            return float(cache.get("num_gpu_blocks", "inf"))
        except ValueError:
            return float("inf")

    return min(caches, key=blocks, default={})
