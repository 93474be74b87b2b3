"""What a vLLM release does differently, as data.

Read from the released wheels (0.6.3 to 0.33.0). Each switch lists the releases at which it changed; the functions that
changed read the switches. A release that was not read takes the values of the newest one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, TypeVar

from packaging.version import Version

from kvgate.engine.releases import VersionInfo, resolve_version
from kvgate.records import record

Key = tuple[int, ...]
SizeFigure = Literal["blocks", "groups", "concurrency"]
Unify = Literal["never", "ratio", "pad"]
BlockRule = Literal["platform", "first", "all"]
Alignment = Literal["fixed", "kernel", "kernel_mla", "kernels"]
StatePages = Literal["one", "length", "mode"]
FitCheck = Literal["layers", "first_group", "groups", "blocks"]
T = TypeVar("T")


def _key(text: str) -> Key:
    parts = []
    for part in text.split("."):
        digits = part if part.isdigit() else ""
        if not digits:
            break
        parts.append(int(digits))
    return tuple(parts)


@record
class Release:
    """The switches of one release.

    Attributes:
        key: version as integers.
        engine: ``V0`` or ``V1``, by default (V1 since 0.8).
        utilization: default of ``gpu_memory_utilization``.
        size_figure: what "GPU KV cache size" means: ``blocks`` x block size; ``groups`` (blocks // groups x block
            size); ``concurrency`` x max_model_len.
        fit_check: what the check for one request of ``max_model_len`` adds up: ``layers`` before they are grouped;
            ``first_group`` alone, times the layers of a group; all ``groups`` likewise; or ``blocks`` of the pool.
        concurrency: the pool's blocks over a request's ``blocks`` summed over the groups; over its ``bytes`` in units
            of a block's; or the pool's ``tokens`` over ``max_model_len``.
        null_block: one block is reserved before the fit check.
        in_flight_batches: windows keep the blocks of every batch in flight; before, of one.
        reserve_full_prompt: admission asks for the whole prompt's blocks.
        async_by_default: scheduling overlaps with execution.
        tuples, packing: see :func:`kvgate.capacity.groups.bytes_per_block`.
        widest_factor, unify, uniform_types, merge_buckets: see :class:`kvgate.capacity.groups.Grouping`.
        hybrid_allocator: layers of different kinds keep their own block tables.
        window_specs: windows have a spec of their own; before, V1 gave them full attention's.
        chunked_hybrid: so do chunked layers.
        block_rule: what the default block size suits: the ``platform``'s own rule for latent attention; the ``first``
            layer's kernel; or ``all`` kernels.
        alignment: the unit that blocks of hybrid models grow by: ``fixed``; the first layer's ``kernel``; the same with
            at least 128 for latent attention (``kernel_mla``); or what all ``kernels`` share.
        hybrid_caching: prefix caching is on by default for models with recurrent layers.
        state_pages: recurrent states of a request: ``one``; one per block of its length (``length``); or by the
            cache mode (``mode``).
        extra_states_in_all: mode ``all`` counts the states of speculative tokens too.
        all_mode: mode ``all`` exists.
        checkpoint_formulas: recurrent layers whose prefilling keeps one more state.
        balanced_stages: the rest of the layers goes to the middle pipeline stages; before, to the last.
        item_floor: the token budget is at least an image's where it must be processed in one batch.
        large_gpu_batches: GPUs with 160 GB and more have their own default token budget.
    """

    version: str
    key: Key
    engine: Literal["V0", "V1"]
    utilization: float
    size_figure: SizeFigure
    fit_check: FitCheck
    concurrency: Literal["tokens", "bytes", "blocks"]
    null_block: bool
    in_flight_batches: bool
    reserve_full_prompt: bool
    async_by_default: bool
    widest_factor: float
    unify: Unify
    uniform_types: bool
    tuples: bool
    packing: Literal["tuples", "slots", "widest"]
    merge_buckets: bool
    hybrid_allocator: bool
    window_specs: bool
    chunked_hybrid: bool
    block_rule: BlockRule
    alignment: Alignment
    hybrid_caching: bool
    state_pages: StatePages
    extra_states_in_all: bool
    all_mode: bool
    checkpoint_formulas: frozenset[str]
    balanced_stages: bool
    item_floor: bool
    large_gpu_batches: bool

    def at_least(self, version: str) -> bool:
        return self.key >= _key(version)

    def at_most(self, version: str) -> bool:
        return self.key <= _key(version)


#: Commits after a release from which on a build of the main branch is taken for the release to come; there are 400 to
#: 700 between two of them.
_EARLY_COMMITS: Final = 100


def _release_of_build(info: VersionInfo) -> str | None:
    """The release whose changes a build between two of them carries; None for what is no such build."""
    given = Version(info.version or info.table)
    if not given.is_prerelease:
        return None
    early = given.dev is not None and given.dev < _EARLY_COMMITS
    return info.lower if early and info.lower else info.upper


@lru_cache(maxsize=64)
def release_of(version: str) -> Release:
    """The switches of a version."""
    info = resolve_version(version)
    text = info.version or info.table
    key = _key((_release_of_build(info) if info.version else None) or text) or _key(info.table)

    def since(first: T, *steps: tuple[str, T]) -> T:
        return _since(key, first, steps)

    return Release(
        version=text,
        key=key,
        engine=since("V0", ("0.8.0", "V1")),
        utilization=since(0.9, ("0.20.0", 0.92)),
        size_figure=since("blocks", ("0.9.1", "groups"), ("0.20.1", "concurrency")),
        fit_check=_since(key, "layers", (("0.14.0", "first_group"), ("0.19.0", "groups"), ("0.28.0", "blocks"))),
        concurrency=_since(key, "tokens", (("0.9.1", "bytes"), ("0.27.0", "blocks"))),
        null_block=since(False, ("0.29.0", True)),
        in_flight_batches=since(False, ("0.26.0", True)),
        reserve_full_prompt=since(False, ("0.19.0", True)),
        async_by_default=since(False, ("0.14.0", True)),
        widest_factor=since(0.0, ("0.12.0", 1.25), ("0.18.0", 1.5)),
        unify=since("never", ("0.12.0", "ratio"), ("0.24.0", "pad")),
        uniform_types=since(False, ("0.11.0", True)),
        tuples=since(True, ("0.29.0", False)),
        packing=_since(key, "tuples", (("0.23.0", "slots"), ("0.27.0", "widest"))),
        merge_buckets=since(False, ("0.28.0", True)),
        hybrid_allocator=since(False, ("0.9.1", True)),
        window_specs=since(False, ("0.8.2", True)),
        chunked_hybrid=since(False, ("0.16.0", True)),
        block_rule=_since(key, "platform", (("0.18.0", "first"), ("0.31.0", "all"))),
        alignment=_since(key, "fixed", (("0.20.0", "kernel"), ("0.28.0", "kernel_mla"), ("0.32.0", "kernels"))),
        hybrid_caching=since(False, ("0.28.0", True)),
        state_pages=_since(key, "one", (("0.11.1", "length"), ("0.15.0", "mode"))),
        extra_states_in_all=since(False, ("0.22.0", True)),
        all_mode=since(True, ("0.32.0", False)),
        checkpoint_formulas=since(
            frozenset[str](),
            ("0.29.0", frozenset({"kimi_delta"})),
            ("0.30.0", frozenset({"kimi_delta", "mamba2"})),
        ),
        balanced_stages=since(False, ("0.8.0", True)),
        item_floor=since(False, ("0.22.0", True)),
        large_gpu_batches=since(False, ("0.28.0", True)),
    )


def _since(key: Key, first: T, steps: Sequence[tuple[str, T]]) -> T:
    value = first
    for version, later in steps:
        if key >= _key(version):
            value = later
    return value
