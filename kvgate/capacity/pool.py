"""Blocks, tokens and concurrency of a pool, as a release computes and prints them.

Ported from vLLM 0.32.0 ``v1/core/kv_cache_utils.py`` (``get_kv_cache_config_from_groups``, ``get_kv_cache_capacity``,
``_estimate_max_model_len_from_groups``); earlier meanings of the printed figures from their releases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kvgate.capacity.groups import bytes_per_block
from kvgate.capacity.release import Release
from kvgate.capacity.spec import CacheSpec, RequestShape, SpecGroup, ceil_div, pages_per_request
from kvgate.records import record


@record
class PoolShape:
    """The groups of one rank and what one block of the pool costs."""

    groups: tuple[SpecGroup, ...]
    block_bytes: int
    release: Release
    layers: tuple[CacheSpec, ...] = ()
    cache_block: int = 16
    distinct: tuple[tuple[CacheSpec, ...], ...] = ()

    @classmethod
    def of(
        cls,
        groups: Sequence[SpecGroup],
        release: Release,
        *,
        layers: Sequence[CacheSpec] = (),
        cache_block: int = 16,
        block_outermost: bool = False,
        stages: Sequence[tuple[int, int]] = (),
    ) -> PoolShape:
        """The pool of the pipeline stage with the largest blocks: every stage takes the fewest blocks of all.

        Args:
            layers: the layers before they were grouped.
            cache_block: the engine's own block size, which releases before 0.11 print a single group's tokens by.
            stages: first and last (excluded) decoder layer of each stage; empty without pipeline parallelism.
        """
        if not groups:
            return cls((), 0, release)
        distinct = tuple(tuple(dict.fromkeys(group.every)) for group in groups)
        parts = [tuple(group.on_stage(*stage) for group in groups) for stage in stages] if len(stages) > 1 else []
        parts = parts or [tuple(groups)]
        costs = [bytes_per_block(part, block_outermost=block_outermost, packing=release.packing) for part in parts]
        worst = costs.index(max(costs))
        own = tuple(layers)
        if len(parts) > 1:
            first, end = stages[worst]
            own = tuple(spec for spec in layers if first <= spec.layer < end)
        return cls(parts[worst], costs[worst], release, own, cache_block, distinct)

    def request_blocks(self, length: int, shape: RequestShape) -> int:
        """Blocks that one request of ``length`` tokens can hold over all groups."""
        return sum(max(pages_per_request(spec, length, shape) for spec in specs) for specs in self.distinct)

    def request_bytes(self, length: int, shape: RequestShape) -> int:
        """Memory that the fit check asks for one request."""
        check = self.release.fit_check
        if check == "blocks":
            return self.block_bytes * self.request_blocks(length, shape)
        if check == "groups" and all(group.packed for group in self.groups):
            counts = [Counter(spec.page_bytes for spec in group.every) for group in self.groups]
            tuples = max(max(count.values()) for count in counts)
            return tuples * sum(counts[0]) * self.request_blocks(length, shape)
        uniform = len(self.groups) == 1 and len(set(self.groups[0].specs)) > 1
        if check == "layers" or uniform:
            specs = self.layers if check == "layers" else self.groups[0].specs
            return sum(pages_per_request(spec, length, shape) * spec.page_bytes for spec in specs)
        largest = max(len(group.specs) for group in self.groups)
        counted = self.groups[:1] if check == "first_group" else self.groups
        page = self.groups[0].every[0].page_bytes
        return largest * page * sum(group.pages_per_request(length, shape) for group in counted)

    def blocks_of(self, available_bytes: int) -> int:
        return max(0, available_bytes // self.block_bytes) if self.block_bytes else 1

    def reserved_bytes(self) -> int:
        """The null block that is never handed out."""
        return self.block_bytes if self.release.null_block else 0

    def max_concurrency(self, blocks: int, length: int, shape: RequestShape) -> float:
        """ "Maximum concurrency for N tokens per request"."""
        if self.release.concurrency == "tokens":
            return self.size_tokens(blocks, length, shape) / length
        if self.release.concurrency == "blocks":
            return blocks / self.request_blocks(length, shape)
        if len(self.groups) == 1:
            return blocks / self.groups[0].pages_per_request(length, shape)
        layers = max(len(group.specs) for group in self.groups)
        memory = layers * sum(group.unit_request_bytes(length, shape) for group in self.groups)
        return blocks / ceil_div(memory, self.groups[0].unit_bytes * layers)

    def size_tokens(self, blocks: int, length: int, shape: RequestShape) -> int:
        """ "GPU KV cache size", by the meaning it has in the release."""
        figure = self.release.size_figure
        if figure == "concurrency":
            return int(self.max_concurrency(blocks, length, shape) * length)
        smallest = min(spec.block_size for group in self.groups for spec in group.every)
        if len(self.groups) == 1 and not self.release.at_least("0.11.0"):
            smallest = self.cache_block
        if figure == "groups":
            return blocks // len(self.groups) * smallest * shape.shards
        return blocks * smallest

    def fits(self, length: int, usable_bytes: int, shape: RequestShape) -> bool:
        return self.request_bytes(length, shape) <= usable_bytes

    def longest(self, most: int, usable_bytes: int, shape: RequestShape) -> int:
        """The longest request, up to ``most`` tokens, that fits ("estimated maximum model length")."""
        if self.fits(most, usable_bytes, shape):
            return most
        if not self.fits(1, usable_bytes, shape):
            return 0
        low, high, best = 1, most, 1
        while low <= high:
            middle = (low + high) // 2
            if self.fits(middle, usable_bytes, shape):
                best, low = middle, middle + 1
            else:
                high = middle - 1
        return best

    def marginal_bytes(self) -> int:
        """Bytes of one more token of a request beyond every window, over all groups and layers."""
        total = 0
        for group in self.groups:
            for spec in group.specs:
                if spec.kind in ("full_attention", "mla_attention", "sink_full_attention"):
                    total += spec.page_bytes // spec.block_size
        return total
