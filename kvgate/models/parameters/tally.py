"""Counting the bytes of one rank's parameters while a model is described.

The arithmetic follows vLLM 0.32.0: ``layers/linear.py``, ``layers/vocab_parallel_embedding.py`` and
``layers/fused_moe/routed_experts.py``.
"""

from __future__ import annotations

from math import prod
from typing import Final, Literal

from kvgate.models.parameters.quantization import Quantization
from kvgate.records import record

Split = Literal["column", "row", "none"]

VOCABULARY_PADDING: Final = 64
FLOAT32: Final = 4


@record
class Shard:
    """Which part of the model a rank holds.

    Attributes:
        tensor: tensor-parallel ranks.
        experts: ranks that whole experts are dealt to; 1 where each rank holds a slice of every expert.
        first, last: the rank is in the first, the last pipeline stage.
        start, stop: decoder layers of the stage, half open; stop is None for all.
    """

    tensor: int = 1
    experts: int = 1
    first: bool = True
    last: bool = True
    start: int = 0
    stop: int | None = None


_MIB: Final = 1 << 20
_SEGMENT: Final = 2 * _MIB


def allocation_slack(size: int) -> int:
    """Bytes beyond ``size`` that torch counts as allocated for one tensor.

    From 10 MiB on a tensor gets a segment of its own, whole 2 MiB long, which is split only where more than 1 MiB
    would be left (torch ``c10/cuda/CUDACachingAllocator.cpp``: ``kMinLargeAlloc``, ``kRoundLarge``, ``should_split``).
    """
    if size < 10 * _MIB:
        return 0
    rest = -size % _SEGMENT
    return rest if rest <= _MIB else 0


class UnevenSplitError(ValueError):
    """A dimension is not divisible by the ranks; vLLM refuses the same."""


def divide(size: int, ranks: int) -> int:
    if size % ranks:
        raise UnevenSplitError(f"{size} is not divisible by {ranks} ranks")
    return size // ranks


class Tally:
    """Bytes of the parameters of one rank.

    Attributes:
        dtype_bytes: of an element that is not quantized.
        bytes: counted so far.
        slack: bytes that torch's allocator hands out beyond them (:func:`allocation_slack`).
        adapter_elements: elements that one adapter of rank one needs on the linear layers counted so far.
        trace: name and bytes of each module, where asked for.
        capability: compute capability of the GPU, which decides how some kernels pad; None for Hopper's.
    """

    __slots__ = ("adapter_elements", "bytes", "capability", "dtype_bytes", "quantization", "shard", "slack", "trace")

    def __init__(
        self,
        shard: Shard,
        dtype_bytes: int,
        quantization: Quantization,
        trace: list[tuple[str, int]] | None = None,
        capability: tuple[int, int] | None = None,
    ) -> None:
        self.shard = shard
        self.dtype_bytes = dtype_bytes
        self.quantization = quantization
        self.bytes = 0
        self.slack = 0
        self.adapter_elements = 0
        self.trace = trace
        self.capability = capability

    @property
    def has_router_kernel(self) -> bool:
        """Hopper and data-centre Blackwell have kernels for a bfloat16 router with float32 results."""
        return self.capability is None or self.capability[0] == 10 or self.capability == (9, 0)

    def add(self, name: str, count: int) -> None:
        self.bytes += count
        if self.trace is not None:
            self.trace.append((name, count))

    def param(self, name: str, *dims: int, itemsize: int | None = None) -> None:
        """A tensor that every rank holds in full (shard its dimensions before)."""
        self.add(name, prod(dims) * (self.dtype_bytes if itemsize is None else itemsize))

    def norm(self, name: str, width: int, *, bias: bool = False, itemsize: int | None = None) -> None:
        self.param(name, width * (2 if bias else 1), itemsize=itemsize)

    def linear(
        self,
        name: str,
        inputs: int,
        *outputs: int,
        bias: bool = False,
        split: Split = "column",
        quantized: bool = True,
        itemsize: int | None = None,
    ) -> None:
        """One linear layer, its outputs as the checkpoint's matrices that are fused in it."""
        ranks = self.shard.tensor
        if split == "column" and ranks > 1:
            outputs = tuple(divide(size, ranks) for size in outputs)
        full = inputs
        if split == "row" and ranks > 1:
            inputs = divide(inputs, ranks)
        element = self.dtype_bytes if itemsize is None else itemsize
        scheme = self.quantization.linear(name) if quantized else None
        total = sum(outputs)
        size = total * inputs * element if scheme is None else scheme.linear(inputs, outputs, element, full)
        self._matrix(inputs, outputs, total * inputs * element if scheme is None else total * inputs * scheme.bits // 8)
        if bias:
            size += total * element
        self.add(name, size)

    def _matrix(self, inputs: int, outputs: tuple[int, ...], stored: int) -> None:
        self.slack += allocation_slack(stored)
        self.adapter_elements += len(outputs) * inputs + sum(outputs)

    def qkv(
        self,
        name: str,
        inputs: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        *,
        v_head_dim: int | None = None,
        bias: bool = False,
        quantized: bool = True,
        replicated: bool = False,
    ) -> None:
        """Fused query, key and value projection; KV heads are copied where there are fewer than ranks."""
        ranks = 1 if replicated else self.shard.tensor
        value = head_dim if v_head_dim is None else v_head_dim
        per_rank = max(1, kv_heads // ranks) if ranks > 1 else kv_heads
        queries = divide(heads, ranks) * head_dim
        outputs = (queries, per_rank * head_dim, per_rank * value)
        scheme = self.quantization.linear(name) if quantized else None
        total = sum(outputs)
        element = self.dtype_bytes
        size = total * inputs * element if scheme is None else scheme.linear(inputs, outputs, element, inputs)
        self._matrix(inputs, outputs, total * inputs * element if scheme is None else total * inputs * scheme.bits // 8)
        if bias:
            size += total * element
        self.add(name, size)

    def embedding(self, name: str, rows: int, width: int, *, padding: int = VOCABULARY_PADDING) -> None:
        """A table sharded over its rows, padded to a multiple of 64 rows."""
        padded = divide(-(-rows // padding) * padding, self.shard.tensor)
        self.slack += allocation_slack(padded * width * self.dtype_bytes)
        self.param(name, padded, width)

    def head(
        self,
        name: str,
        rows: int,
        width: int,
        *,
        bias: bool = False,
        padding: int = VOCABULARY_PADDING,
        itemsize: int | None = None,
        quantized: bool = True,
    ) -> None:
        """The output projection, padded and sharded like an embedding."""
        padded = divide(-(-rows // padding) * padding, self.shard.tensor)
        element = self.dtype_bytes if itemsize is None else itemsize
        scheme = self.quantization.head(name) if quantized else None
        size = padded * width * element if scheme is None else scheme.linear(width, (padded,), element, width)
        self.slack += allocation_slack(
            padded * width * element if scheme is None else padded * width * scheme.bits // 8
        )
        if bias:
            size += padded * element
        self.add(name, size)

    def experts(
        self,
        name: str,
        count: int,
        width: int,
        inner: int,
        *,
        matrices: int = 2,
        bias: bool = False,
        quantized: bool = True,
        renormalized: bool = True,
    ) -> None:
        """The routed experts of one layer: ``matrices`` projections up (2 where gated) and one down.

        ``renormalized``: the chosen experts' weights are scaled to one, or come from a sigmoid; Blackwell's padded
        kernels know no other routing.
        """
        if self.shard.experts > 1:
            count = -(-count // self.shard.experts)
        else:
            inner = divide(inner, self.shard.tensor)
        scheme = self.quantization.experts(name) if quantized else None
        element = self.dtype_bytes
        if scheme is None:
            if self.capability is not None and self.capability[0] == 10 and renormalized and not bias:
                inner = -(-inner // 128) * 128  # FlashInfer's TRT-LLM kernels, the default on data-centre Blackwell
            size = count * (matrices + 1) * inner * width * element
            if bias:
                size += count * (matrices * inner + width) * element
        else:
            size = scheme.experts(count, width, inner, matrices, element, bias)
        bits = 8 * element if scheme is None else scheme.bits
        self.slack += allocation_slack(count * matrices * inner * width * bits // 8)
        self.slack += allocation_slack(count * inner * width * bits // 8)
        self.add(name, size)

    def cache_scales(self, name: str) -> None:
        """Scales of the KV cache that a quantized checkpoint's attention layer carries."""
        size = self.quantization.cache_scale_bytes(self.dtype_bytes)
        if size:
            self.add(f"{name}.attn", size)
