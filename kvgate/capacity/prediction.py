"""What a prediction says, and its JSON form (``kvgate.prediction/1``).

All byte figures are per GPU (per rank). 1 GiB = 2**30 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from kvgate.records import record

Basis = Literal["exact", "calibrated", "declared", "measured", "assumed", "unknown"]
Starts = Literal["yes", "unlikely", "no", "unknown"]


@record
class Quantity:
    """A number of bytes, how it is known, and within which bounds.

    ``formula`` is the arithmetic in words for people (``2 x 32 layers x 8 KV heads x 128 x 2 bytes``); it is not part
    of the JSON contract. ``low`` and ``high`` equal ``bytes`` when the basis is exact.
    """

    bytes: int | None
    low: int | None
    high: int | None
    basis: Basis
    formula: str = ""

    @classmethod
    def exact(cls, value: int, formula: str = "", basis: Basis = "exact") -> Quantity:
        return cls(value, value, value, basis, formula)

    @classmethod
    def unknown(cls, reason: str = "") -> Quantity:
        return cls(None, None, None, "unknown", reason)

    def as_dict(self) -> dict[str, Any]:
        return {"bytes": self.bytes, "low": self.low, "high": self.high, "basis": self.basis}


@record
class Workload:
    """The declared load over all replicas; tokens per request at the 95th percentile."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    shared_prefix_tokens: int = 0
    peak_concurrency: int | None = None

    @property
    def request_tokens(self) -> int | None:
        """Prompt plus output tokens of one request, None when the prompt is not declared."""
        if self.prompt_tokens is None:
            return None
        return self.prompt_tokens + (self.output_tokens or 0)

    def as_dict(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "shared_prefix_tokens": self.shared_prefix_tokens,
            "peak_concurrency": self.peak_concurrency,
        }


@record
class CacheGroup:
    """Layers that share one block table. ``page_size_bytes`` is one block of one layer, per rank."""

    kind: str
    layers: int
    block_size: int
    page_size_bytes: int


@record
class KVCache:
    """The pool in blocks and tokens. None where an input is unknown.

    ``size_tokens``, ``max_concurrency`` and ``estimated_max_model_len`` are the figures that the release computes
    and prints; ``interval`` carries the bounds that follow from the budget's interval.
    """

    dtype: str | None
    block_size: int | None
    bytes_per_block: int | None
    bytes_per_token: int | None
    num_gpu_blocks: int | None
    size_tokens: int | None
    max_model_len: int | None
    max_concurrency: float | None
    estimated_max_model_len: int | None
    basis: Basis
    interval: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    groups: tuple[CacheGroup, ...] = ()

    @property
    def absent(self) -> bool:
        """The model keeps nothing between steps, as encoders do; not that its cache is unknown."""
        return self.basis == "exact" and not self.groups

    def as_dict(self) -> dict[str, Any]:
        return {
            "dtype": self.dtype,
            "block_size": self.block_size,
            "bytes_per_block": self.bytes_per_block,
            "bytes_per_token": self.bytes_per_token,
            "num_gpu_blocks": self.num_gpu_blocks,
            "size_tokens": self.size_tokens,
            "max_model_len": self.max_model_len,
            "max_concurrency": self.max_concurrency,
            "estimated_max_model_len": self.estimated_max_model_len,
            "basis": self.basis,
            "interval": {key: list(bounds) for key, bounds in self.interval.items()},
            "groups": [
                {
                    "kind": group.kind,
                    "layers": group.layers,
                    "block_size": group.block_size,
                    "page_size_bytes": group.page_size_bytes,
                }
                for group in self.groups
            ],
        }


@record
class Memory:
    """The waterfall: total x utilization - weights - activation peak - non-torch - CUDA graphs = KV cache."""

    total: Quantity
    requested: Quantity
    weights: Quantity
    parameters_bytes: int | None
    activation_peak: Quantity
    non_torch: Quantity
    cuda_graphs: Quantity
    kv_cache_available: Quantity

    def as_dict(self) -> dict[str, Any]:
        weights = self.weights.as_dict()
        return {
            "total": self.total.as_dict(),
            "requested": self.requested.as_dict(),
            "weights": {"bytes": weights.pop("bytes"), "parameters_bytes": self.parameters_bytes, **weights},
            "activation_peak": self.activation_peak.as_dict(),
            "non_torch": self.non_torch.as_dict(),
            "cuda_graphs": self.cuda_graphs.as_dict(),
            "kv_cache_available": self.kv_cache_available.as_dict(),
        }


@record
class Concurrency:
    """Requests of the declared workload that one data-parallel rank holds.

    ``sustained`` finish without preemption, ``admitted`` is what the release's admission check lets in at once,
    ``ratio`` is the unfloored quotient, ``limited_by`` is ``kv_cache``, ``max_num_seqs`` or None (unknown).
    """

    sustained: int | None
    sustained_interval: tuple[int | None, int | None]
    ratio: float | None
    admitted: int | None
    limited_by: Literal["kv_cache", "max_num_seqs"] | None
    preemption_expected: bool | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "sustained": self.sustained,
            "sustained_interval": list(self.sustained_interval),
            "ratio": self.ratio,
            "admitted": self.admitted,
            "limited_by": self.limited_by,
            "preemption_expected": self.preemption_expected,
        }


@record
class Prediction:
    """One server, predicted. ``resolved`` holds the effective engine arguments that the arithmetic used."""

    model_id: str | None
    architecture: str | None
    model_source: str | None
    vllm_version: str
    vllm_basis: Basis
    gpu_name: str | None
    gpu_count: int | None
    gpu_memory_bytes: int | None
    gpu_basis: Basis
    memory: Memory
    kv_cache: KVCache
    starts: Starts
    reasons: tuple[str, ...]
    workload: Workload | None
    concurrency: Concurrency | None
    resolved: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The JSON contract ``kvgate.prediction/1``."""
        return {
            "schema": "kvgate.prediction/1",
            "model": {"id": self.model_id, "architecture": self.architecture, "source": self.model_source},
            "vllm": {"version": self.vllm_version, "basis": self.vllm_basis},
            "gpu": {
                "name": self.gpu_name,
                "count": self.gpu_count,
                "memory_bytes": self.gpu_memory_bytes,
                "basis": self.gpu_basis,
            },
            "memory": self.memory.as_dict(),
            "kv_cache": self.kv_cache.as_dict(),
            "starts": self.starts,
            "reasons": list(self.reasons),
            "workload": self.workload.as_dict() if self.workload else None,
            "concurrency": self.concurrency.as_dict() if self.concurrency else None,
        }
