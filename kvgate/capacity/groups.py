"""Layers into groups that share a block table, and the bytes of one block.

Ported from vLLM 0.32.0 ``v1/core/kv_cache_utils.py`` (``get_kv_cache_groups`` and what it calls); 0.33 moved the same
arithmetic to ``kv_cache_planning.py``. Where older releases differ, :class:`Grouping` says how.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kvgate.capacity.spec import (
    FULL_KINDS,
    WINDOW_KINDS,
    CacheSpec,
    SpecGroup,
    ceil_div,
    page_sizes,
    round_up,
)
from kvgate.records import record


class GroupingError(ValueError):
    """The release cannot put these layers into groups: it refuses to start."""


@record
class Grouping:
    """How a release groups.

    Attributes:
        hybrid: layers of different kinds keep their own block tables; else windows are allocated like full attention.
        windows: windows have a spec of their own.
        widest_factor: the largest kind's layer count is the group size where it is below this multiple of the
            smallest's (0: always the smallest).
        unify: how unequal pages are made equal: ``never`` (they must be equal), ``ratio`` (block sizes grow by an
            integer), ``pad`` (and what does not divide is padded).
        block_outermost: pages of different sizes share a block.
        tuples: they do so in tuples, the latent layers' group first (releases before 0.29).
        uniform_types: layers of one kind but different sizes form one group.
    """

    hybrid: bool = True
    windows: bool = True
    widest_factor: float = 1.5
    unify: str = "pad"
    uniform_types: bool = True
    block_outermost: bool = False
    tuples: bool = False
    merge_buckets: bool = True
    one_window: bool = True


def _key(spec: CacheSpec) -> CacheSpec:
    """Equal for layers that merge into one spec: full attention may differ in its (unused) window."""
    return replace(spec, window=None) if spec.kind in FULL_KINDS and spec.window is not None else spec


def _is_uniform(specs: Sequence[CacheSpec]) -> bool:
    """One format throughout (``is_kv_cache_spec_uniform``)."""
    return len({_key(spec) for spec in specs}) == 1


def _is_uniform_type(specs: Sequence[CacheSpec]) -> bool:
    """One kind with the same number of slots per request (``UniformTypeKVCacheSpecs.is_uniform_type``)."""
    first = specs[0]
    if any(spec.block_size != first.block_size or spec.sharded != first.sharded for spec in specs):
        return False
    if first.kind in FULL_KINDS:
        return all(spec.kind in FULL_KINDS for spec in specs)
    if first.kind in WINDOW_KINDS:
        wide = first.kind == "sliding_window"
        return all(
            (spec.kind == first.kind or (wide and spec.kind in WINDOW_KINDS)) and spec.window == first.window
            for spec in specs
        )
    if first.kind == "mamba":
        return all(
            spec.kind == "mamba"
            and (spec.extra_states, spec.checkpoints, spec.page_bytes)
            == (first.extra_states, first.checkpoints, first.page_bytes)
            for spec in specs
        )
    return all(spec.kind == first.kind and spec.window == first.window for spec in specs)


def promote_windows(specs: Sequence[CacheSpec], *, one_window: bool = True) -> list[CacheSpec]:
    """Windows and chunks allocated like full attention (``_promote_local_kv_cache_specs``).

    Raises:
        GroupingError: the result is still of several kinds, or has several windows where ``one_window`` holds.
    """
    promoted = list(specs)
    if _is_uniform(promoted) or _is_uniform_type(promoted):
        return promoted
    full = [spec for spec in promoted if spec.kind in FULL_KINDS]
    if full:
        sizes = {spec.block_size for spec in full}
        size = sizes.pop() if len(sizes) == 1 else None
        kinds = {
            "sliding_window": "full_attention",
            "chunked_local_attention": "full_attention",
            "sliding_window_mla": "mla_attention",
        }
        for index, spec in enumerate(promoted):
            kind = kinds.get(spec.kind)
            if kind is not None:
                block = size or spec.block_size
                plain = replace(spec, kind=kind, block_size=block, retained_tokens=0, padded_bytes=None)  # type: ignore[arg-type]
                if spec.padded_bytes is not None:
                    plain = replace(plain, padded_bytes=max(spec.padded_bytes, plain.plain_page_bytes))
                promoted[index] = plain
    if one_window and len({spec.window for spec in promoted if spec.window is not None}) > 1:
        raise GroupingError("without the hybrid KV cache manager, all layers must have the same window")
    if not (_is_uniform(promoted) or _is_uniform_type(promoted)):
        raise GroupingError("the hybrid KV cache manager is off, and the layers do not reduce to one kind of cache")
    return promoted


def _unify_pages(specs: Sequence[CacheSpec], how: str) -> list[CacheSpec] | None:
    """Equal pages by larger blocks or padding (``unify_kv_cache_spec_page_size``); None where that fails."""
    sizes = page_sizes(specs)
    if len(sizes) <= 1:
        return list(specs)
    if how == "never":
        return None
    top = max(sizes)
    result = []
    for spec in specs:
        page = spec.page_bytes
        if page == top:
            result.append(spec)
        elif spec.kind == "mamba" and how == "pad":
            result.append(replace(spec, padded_bytes=top))
        elif top % page == 0 and spec.kind != "mamba":
            padded = spec.padded_bytes
            bigger = replace(
                spec, block_size=spec.block_size * (top // page), padded_bytes=None if padded is None else top
            )
            if bigger.page_bytes != top:
                return None
            result.append(bigger)
        elif how == "pad" and spec.kind != "mla_attention":
            result.append(replace(spec, padded_bytes=top))
        else:
            return None
    return result


def _split_evenly(specs: Sequence[CacheSpec], grouping: Grouping) -> list[SpecGroup]:
    """Groups of equally many layers (``_get_kv_cache_groups_uniform_page_size``)."""
    buckets: dict[CacheSpec, list[CacheSpec]] = {}
    for spec in specs:
        buckets.setdefault(_key(spec) if grouping.merge_buckets else spec, []).append(spec)
    counts = [len(bucket) for bucket in buckets.values()]
    size = min(counts)
    if grouping.widest_factor and max(counts) < size * grouping.widest_factor:
        size = max(counts)
    groups = []
    for bucket in buckets.values():
        number = ceil_div(len(bucket), size)
        groups += [SpecGroup(tuple(bucket[index::number])) for index in range(number)]
    return groups


def _closest_divisor(values: Sequence[int], at_least: int) -> int:
    """The group size with the least padding, larger ones first (``_approximate_gcd``)."""
    low, high = max(1, at_least), max(values)
    if low > high:
        return low
    best, least = low, None
    for size in range(low, high + 1):
        padding = sum((size - value % size) % size for value in values)
        if least is None or padding <= least:
            best, least = size, padding
    return best


def _pack(specs: Sequence[CacheSpec]) -> list[SpecGroup] | None:
    """Pages of different sizes side by side in one block (``_get_packed_kv_cache_groups``)."""
    if len(page_sizes(specs)) <= 1:
        return None
    buckets: list[list[CacheSpec]] = []
    for spec in specs:
        for bucket in buckets:
            if _is_uniform_type([bucket[0], spec]):
                bucket.append(spec)
                break
        else:
            buckets.append([spec])
    by_page: list[dict[int, list[CacheSpec]]] = []
    for bucket in buckets:
        sizes: dict[int, list[CacheSpec]] = {}
        for spec in bucket:
            sizes.setdefault(spec.page_bytes, []).append(spec)
        by_page.append(sizes)
    balanced = [len({len(layers) for layers in sizes.values()}) == 1 for sizes in by_page]
    repeats = [max(len(layers) for layers in sizes.values()) for sizes in by_page]
    floor = max(
        (r for r, sizes, even in zip(repeats, by_page, balanced, strict=True) if even and len(sizes) > 1), default=0
    )
    per_group = (
        _closest_divisor([r for r, even in zip(repeats, balanced, strict=True) if even], floor) if floor else None
    )

    def parts(index: int) -> int:
        return ceil_div(repeats[index], per_group) if balanced[index] and per_group is not None else 1

    def is_state(index: int) -> bool:
        first = buckets[index][0]
        return first.kind in ("mamba", "ring") or (per_group is None and first.kind in WINDOW_KINDS)

    def widest(index: int, number: int) -> int:
        return sum(ceil_div(len(layers), number) * page for page, layers in by_page[index].items())

    anchor = max((widest(i, len(buckets[i]) if is_state(i) else parts(i)) for i in range(len(buckets))), default=0)
    groups: list[SpecGroup] = []
    for index, bucket in enumerate(buckets):
        number = parts(index)
        if anchor and is_state(index):
            number = max(number, ceil_div(len(bucket), max(anchor // bucket[0].page_bytes, 1)))
        if number == 1:
            groups.append(SpecGroup(tuple(bucket)))
            continue
        pattern = list(zip(*by_page[index].values(), strict=False))
        groups += [
            SpecGroup(tuple(spec for repeat in pattern[part::number] for spec in repeat)) for part in range(number)
        ]
    return groups


def _most_common(pages: Sequence[int]) -> int:
    return Counter(pages).most_common(1)[0][1]


def _pack_tuples(specs: Sequence[CacheSpec]) -> list[SpecGroup] | None:
    """The latent layers in one group, their windows in groups of as many tuples
    (``_get_kv_cache_groups_uniform_groups`` of 0.20 to 0.28)."""
    windows: dict[tuple[int, int | None], list[CacheSpec]] = {}
    for spec in specs:
        if spec.kind == "sliding_window_mla":
            windows.setdefault((spec.block_size, spec.window), []).append(spec)
    if not windows or len(page_sizes(specs)) <= 1:
        return None
    latent = [spec for spec in specs if spec.kind == "mla_attention"]
    if not latent:
        raise GroupingError("windows of latent vectors without latent attention")
    tuples = [_most_common([spec.page_bytes for spec in part]) for part in (latent, *windows.values())]
    size = _closest_divisor(tuples, tuples[0])
    pages = sorted(page_sizes(latent))
    groups = [SpecGroup(tuple(latent), packed=True)]
    for part in windows.values():
        by_page: dict[int, list[CacheSpec]] = {}
        for spec in part:
            page = min((page for page in pages if page >= spec.page_bytes), default=None)
            if page is None:
                raise GroupingError("a window's page is larger than every latent layer's")
            padded = spec if page == spec.page_bytes else replace(spec, padded_bytes=page)
            by_page.setdefault(page, []).append(padded)
        rows = list(zip(*by_page.values(), strict=False))
        number = ceil_div(len(rows), size)
        groups += [
            SpecGroup(tuple(spec for row in rows[index::number] for spec in row), packed=True)
            for index in range(number)
        ]
    return groups


def group_layers(specs: Sequence[CacheSpec], grouping: Grouping) -> list[SpecGroup]:
    """The groups of a model's layers, in vLLM's order.

    Raises:
        GroupingError: the release refuses this mix of layers.
    """
    if not specs:
        return []
    layers = list(specs)
    if not grouping.windows:
        layers = [replace(spec, kind="full_attention", window=None) if spec.kind == "sliding_window" else spec
                  for spec in layers]  # fmt: skip
    if not grouping.hybrid:
        layers = promote_windows(layers, one_window=grouping.one_window)
    if _is_uniform(layers):
        return [SpecGroup(tuple(layers))]
    if grouping.uniform_types and _is_uniform_type(layers):
        return [SpecGroup(tuple(layers))]
    if grouping.block_outermost:
        packed = _pack_tuples(layers) if grouping.tuples else _pack(layers)
        if packed is not None:
            return packed
    unified = _unify_pages(layers, grouping.unify)
    if unified is None:
        fallback = _full_allocation(layers)
        if fallback is None:
            raise GroupingError("the pages of the layers cannot be made equal")
        return fallback
    return _split_evenly(unified, grouping)


def _full_allocation(specs: Sequence[CacheSpec]) -> list[SpecGroup] | None:
    """Latent attention next to a draft's windows, all in full (``_try_get_full_allocation_fallback_groups``)."""
    kinds = {spec.kind for spec in specs}
    if kinds & {"sliding_window_mla", "chunked_local_attention"} or not {"mla_attention", "sliding_window"} <= kinds:
        return None
    try:
        promoted = promote_windows(specs)
    except GroupingError:
        return None
    return [SpecGroup(tuple(promoted))] if _is_uniform_type(promoted) else None


def bytes_per_block(groups: Sequence[SpecGroup], *, block_outermost: bool, packing: str = "widest") -> int:
    """Bytes of one block over all layers of the widest group (``_get_kv_cache_bytes_per_block``).

    Args:
        packing: what a block of packed groups holds in a release: every page size as often as the largest count of
            any (``tuples``), each as often as any group has it (``slots``), or the ``widest`` group's pages.
    """
    if any(group.packed for group in groups) and packing != "widest":
        counts: dict[int, int] = {}
        for group in groups:
            for page, count in Counter(spec.page_bytes for spec in group.specs).items():
                counts[page] = max(count, counts.get(page, 0))
        if packing == "tuples":
            return sum(counts) * max(counts.values(), default=0)
        return sum(page * count for page, count in counts.items())
    if not block_outermost:
        return max(sum(round_up(spec.page_bytes, spec.stride_alignment) for spec in group.specs) for group in groups)
    widest = max(group.page_bytes for group in groups)
    strides = {spec.stride_alignment for group in groups for spec in group.specs} or {1}
    return round_up(widest, math.lcm(*strides))
