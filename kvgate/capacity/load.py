"""How many requests of a declared workload a pool holds."""

from __future__ import annotations

from kvgate.capacity.pool import PoolShape
from kvgate.capacity.prediction import Concurrency, Workload
from kvgate.capacity.settings import Settings
from kvgate.capacity.spec import FULL_KINDS, RequestShape, ceil_div


def shared_blocks(pool: PoolShape, tokens: int, settings: Settings, shape: RequestShape) -> int:
    """Blocks of a prefix that every request has in common: whole blocks of the full-attention groups.

    Windows and recurrent states are each request's own.
    """
    if not settings.prefix_caching or tokens <= 0:
        return 0
    return sum(
        tokens // (group.every[0].block_size * (shape.shards if group.every[0].sharded else 1))
        for group in pool.groups
        if group.every[0].kind in FULL_KINDS
    )


def _sustained(
    pool: PoolShape, blocks: int, tokens: int, shared: int, settings: Settings, shape: RequestShape
) -> tuple[int, float]:
    usable = blocks - (1 if pool.release.engine == "V1" else 0)
    need = pool.request_blocks(tokens, shape)
    ratio = (usable - shared) / max(1, need - shared)
    return min(settings.max_num_seqs, max(0, int(ratio))), max(0.0, ratio)


def concurrency(
    pool: PoolShape,
    blocks: int | None,
    bounds: tuple[int | None, int | None],
    workload: Workload,
    settings: Settings,
    shape: RequestShape,
) -> Concurrency | None:
    """Requests of the workload that one data-parallel rank holds; None without a declared prompt."""
    tokens = workload.request_tokens
    if tokens is None or not pool.groups:
        return None
    if tokens > settings.max_model_len:  # refused, one and all (``max_tokens`` beyond the context is an error 400)
        return Concurrency(0, (0, 0), 0.0, 0, None, False)
    if blocks is None:
        return Concurrency(None, (None, None), None, None, None, None)
    prompt = workload.prompt_tokens or 0
    shared = min(shared_blocks(pool, min(workload.shared_prefix_tokens, prompt), settings, shape), blocks)
    sustained, ratio = _sustained(pool, blocks, tokens, shared, settings, shape)
    low = _sustained(pool, bounds[0], tokens, shared, settings, shape)[0] if bounds[0] is not None else None
    high = _sustained(pool, bounds[1], tokens, shared, settings, shape)[0] if bounds[1] is not None else None
    if "max_num_seqs" in settings.unresolved:
        return Concurrency(None, (None, None), ratio, None, None, None)
    admitted = _admitted(pool, blocks, prompt, shared, settings, shape)
    by_sequences = ratio >= settings.max_num_seqs
    declared = workload.peak_concurrency
    at_once = admitted if declared is None else min(admitted, max(1, ceil_div(declared, settings.data_parallel_size)))
    return Concurrency(
        sustained,
        (low, high),
        ratio,
        admitted,
        "max_num_seqs" if by_sequences else "kv_cache",
        at_once > sustained,
    )


def _admitted(pool: PoolShape, blocks: int, prompt: int, shared: int, settings: Settings, shape: RequestShape) -> int:
    """What the release's admission check lets in at once.

    V0 asks for the prompt's blocks and keeps 1% free (``core/block_manager.py``); V1 for the first chunk's, from 0.19
    for the whole prompt's (``scheduler_reserve_full_isl``), and keeps ``--watermark`` free.
    """
    release = pool.release
    if release.engine == "V0":
        usable = blocks - int(0.01 * blocks)
        need = pool.request_blocks(prompt, shape)
    else:
        usable = blocks - 1 - int(settings.watermark * blocks)
        tokens = prompt
        if settings.chunked_prefill and not settings.reserves_prompt:
            tokens = min(prompt, settings.max_num_batched_tokens)
        need = pool.request_blocks(tokens, shape)
    return min(settings.max_num_seqs, max(0, (usable - shared) // max(1, need - min(shared, need - 1))))
