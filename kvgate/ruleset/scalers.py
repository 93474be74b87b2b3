"""What autoscalers watch: the metrics of HorizontalPodAutoscalers and KEDA's ScaledObjects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kvgate.manifests.tree import node_at, scalar_at
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.source.text import Span
from kvgate.source.yaml_tree import Scalar

if TYPE_CHECKING:
    from kvgate.manifests.objects import ClusterObject

#: Metrics that say how busy a GPU or a processor looks, not how much work waits.
_UTILIZATION: Final = regex(
    r"DCGM_FI|duty_?cycle|gpu[_.-]?(?:core[_.-]?)?util|util[a-z]*[_.-]gpu|gpu[_.-]?mem|fb[_.-]?used|nvidia_(?:gpu|smi)"
    r"|container_(?:cpu|memory)|process_(?:cpu|resident)|cpu_usage|memory_usage|\bcpu\b|\bmemory\b|sm_(?:active|occupancy)"
    r"|gpu[_.-]?usage|accelerator_",
    re.IGNORECASE,
)
_OWN: Final = regex(r"vllm[:_|]|inference_pool|inference_extension|queue|waiting|pending|in_?flight|num_requests", re.I)
_MEMORY: Final = regex(r"mem|fb_?used", re.IGNORECASE)


@record
class Watched:
    """One metric of an autoscaler: its name or query, its place, and its kind as the autoscaler calls it."""

    text: str
    span: Span
    kind: str

    @property
    def is_utilization(self) -> bool:
        return (self.kind in ("cpu", "memory")) or (
            _OWN.search(self.text) is None and _UTILIZATION.search(self.text) is not None
        )

    @property
    def is_memory(self) -> bool:
        return self.kind == "memory" or (self.is_utilization and _MEMORY.search(self.text) is not None)


def watched(scaler: ClusterObject) -> list[Watched]:
    """The metrics of a HorizontalPodAutoscaler or ScaledObject."""
    return list(_of_autoscaler(scaler) if scaler.kind == "HorizontalPodAutoscaler" else _of_keda(scaler))


def _of_autoscaler(scaler: ClusterObject) -> Iterator[Watched]:
    old = scalar_at(scaler.at("spec"), "targetCPUUtilizationPercentage")
    if old is not None:
        yield Watched("cpu", old.span, "cpu")
    for metric in scaler.items("spec", "metrics"):
        for key in ("resource", "containerResource"):
            name = scalar_at(metric, key, "name")
            if name is not None:
                yield Watched(name.value, name.span, name.value)
        for key in ("pods", "object", "external"):
            name = scalar_at(metric, key, "metric", "name") or scalar_at(metric, key, "metricName")
            if name is not None:
                yield Watched(name.value, name.span, key)


def _of_keda(scaler: ClusterObject) -> Iterator[Watched]:
    for trigger in scaler.items("spec", "triggers"):
        kind = scalar_at(trigger, "type")
        if kind is not None and kind.value in ("cpu", "memory"):
            yield Watched(kind.value, kind.span, kind.value)
            continue
        metadata = node_at(trigger, "metadata")
        found = None
        for key in ("query", "metricName", "metricType", "metric", "valueLocation", "url"):
            found = scalar_at(metadata, key)
            if found is not None and found.value:
                break
        if found is not None:
            yield Watched(found.value, first_line(found), kind.value if kind is not None else "")


def first_line(node: Scalar) -> Span:
    """A place to show for a scalar that may go over several lines: its first line of text."""
    return node.text.span if node.style in ("|", ">") and node.value else node.span
