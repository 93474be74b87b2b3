"""What one layer keeps in the KV cache, and how many pages a request takes of it.

Ported from vLLM 0.32.0 ``v1/kv_cache_interface.py``. A *page* is one block of one layer, per rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from typing import Final, Literal

from kvgate.records import record

SpecKind = Literal[
    "full_attention",
    "mla_attention",
    "sink_full_attention",
    "sliding_window",
    "sliding_window_mla",
    "chunked_local_attention",
    "mamba",
    "cross_attention",
    "ring",
]

FULL_KINDS: Final = frozenset({"full_attention", "mla_attention", "sink_full_attention"})
WINDOW_KINDS: Final = frozenset({"sliding_window", "sliding_window_mla"})


def ceil_div(value: int, divisor: int) -> int:
    return -(-value // divisor)


def round_up(value: int, multiple: int) -> int:
    return ceil_div(value, multiple) * multiple


@record
class CacheSpec:
    """The format of one layer's cache.

    Attributes:
        block_size: tokens per block.
        heads: head slots of one state; ``content_bytes`` what one of them holds (keys and values together).
        tokens_per_state: tokens that share one stored state (compressed caches).
        window: tokens of a sliding window, or of a chunk (``chunked_local_attention``).
        padded_bytes: page size where the page is padded to another layer's.
        alignment: the page is rounded up to a multiple of it.
        stride_bytes: bytes that the distance between blocks must be a multiple of; ``kernel_block`` is set instead
            where blocks larger than the kernel's are split into whole kernel blocks.
        state_bytes: size of a recurrent state (``mamba``).
        extra_states: further states per request (speculative tokens), ``checkpoints`` those kept while prefilling.
        sharded: decode context parallelism shards it.
        format: whatever else makes two layers' caches different (dtype, role).
        layer: the decoder layer that owns it; layers of equal format may differ in it.
    """

    kind: SpecKind
    block_size: int
    heads: int = 1
    content_bytes: int = 0
    tokens_per_state: int = 1
    window: int | None = None
    padded_bytes: int | None = None
    alignment: int | None = None
    stride_bytes: int | None = None
    kernel_block: int | None = None
    state_bytes: int = 0
    extra_states: int = 0
    checkpoints: int = 0
    retained_tokens: int = 0
    sharded: bool = True
    format: tuple[str | int, ...] = ()
    layer: int = field(default=-1, compare=False)

    @property
    def plain_page_bytes(self) -> int:
        """Page size without padding to other layers."""
        if self.kind == "mamba":
            return self.state_bytes
        size = self.heads * (self.block_size // self.tokens_per_state) * self.content_bytes
        return round_up(size, self.alignment) if self.alignment else size

    @property
    def page_bytes(self) -> int:
        return self.padded_bytes if self.padded_bytes is not None else self.plain_page_bytes

    @property
    def stride_alignment(self) -> int:
        """Bytes the distance between physical blocks must be a multiple of (``get_block_stride_alignment``)."""
        if self.kernel_block is None:
            return self.stride_bytes or 1
        whole = _gcd(self.kernel_block, self.block_size)
        if whole == self.block_size:
            return 1
        return replace(self, block_size=whole, padded_bytes=None).page_bytes


def _gcd(left: int, right: int) -> int:
    while right:
        left, right = right, left % right
    return left


@record
class RequestShape:
    """What bounds the blocks that one request can hold.

    ``in_flight_tokens`` are scheduled but not settled (windows keep their blocks for them), ``encoder_tokens`` the
    encoder's budget, ``aligned_states`` whether recurrent states are kept at block boundaries (mode ``align``),
    ``every_state`` at every boundary (mode ``all``), ``extra_states`` whether those of speculative tokens count,
    ``shards`` the decode context parallel size.
    """

    in_flight_tokens: int
    encoder_tokens: int
    aligned_states: bool = False
    every_state: bool = False
    extra_states: bool = True
    shards: int = 1


def pages_per_request(spec: CacheSpec, length: int, shape: RequestShape) -> int:
    """Blocks that one request of ``length`` tokens takes of this layer, at most (``max_memory_usage_bytes``)."""
    size = spec.block_size
    if spec.kind in WINDOW_KINDS:
        tokens = min((spec.window or 0) - 1 + spec.retained_tokens + shape.in_flight_tokens, length)
        return ceil_div(tokens, size) + 1
    if spec.kind == "chunked_local_attention":
        return ceil_div(min((spec.window or 0) + shape.in_flight_tokens, length), size)
    if spec.kind == "mamba":
        extra = spec.extra_states if shape.extra_states else 0
        if shape.every_state:
            return ceil_div(length, size) + extra
        return (2 + spec.checkpoints if shape.aligned_states else 1) + extra
    if spec.kind == "cross_attention":
        return ceil_div(shape.encoder_tokens, size)
    if spec.kind == "ring":
        return 1
    if spec.sharded and shape.shards > 1:
        length = ceil_div(length, shape.shards)
    return ceil_div(length, size)


@record
class SpecGroup:
    """Layers that share one block table, with each layer's format.

    ``elsewhere`` are those of other pipeline stages; ``packed`` groups lay pages of different sizes side by side.
    """

    specs: tuple[CacheSpec, ...]
    elsewhere: tuple[CacheSpec, ...] = ()
    packed: bool = False

    @property
    def every(self) -> tuple[CacheSpec, ...]:
        return (*self.specs, *self.elsewhere)

    def on_stage(self, first: int, end: int) -> SpecGroup:
        """The group as the stage of decoder layers ``first`` to ``end`` (excluded) holds it."""
        here = tuple(spec for spec in self.every if first <= spec.layer < end)
        return SpecGroup(here, tuple(spec for spec in self.every if not first <= spec.layer < end), self.packed)

    @property
    def page_bytes(self) -> int:
        return sum(spec.page_bytes for spec in self.specs)

    @property
    def unit_bytes(self) -> int:
        """What a release before 0.27 took for a block of the group: one layer's page, or a packed group's pages."""
        return self.page_bytes if self.packed else self.every[0].page_bytes

    def unit_request_bytes(self, length: int, shape: RequestShape) -> int:
        """A request's memory in the group, in the same terms."""
        if not self.packed:
            return self.pages_per_request(length, shape) * self.unit_bytes
        return sum(pages_per_request(spec, length, shape) * spec.page_bytes for spec in self.specs)

    def pages_per_request(self, length: int, shape: RequestShape) -> int:
        return max(pages_per_request(spec, length, shape) for spec in set(self.every))


def page_sizes(specs: Iterable[CacheSpec]) -> set[int]:
    return {spec.page_bytes for spec in specs}
