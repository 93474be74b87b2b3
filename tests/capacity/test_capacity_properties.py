"""What holds for every model: more memory never holds less, a rank never keeps more, an fp8 cache never costs more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.capacity.groups import GroupingError, group_layers
from kvgate.capacity.pool import PoolShape
from kvgate.capacity.predict import grouping_of, predict_capacity
from kvgate.capacity.prediction import Prediction, Workload
from kvgate.capacity.release import release_of
from kvgate.capacity.spec import CacheSpec, RequestShape, SpecGroup
from kvgate.hardware.gpu import Gpu
from kvgate.models.model import Model

_H100 = Gpu("NVIDIA H100 80GB HBM3", "nvidia", 85_520_809_984, 85_520_809_984, 85_520_809_984, "exact", (9, 0))
_DATA = json.loads((Path(__file__).parent / "golden.json").read_text(encoding="utf-8"))
_MODELS = {
    key: Model(key, value["config"], "mapping", value.get("files", {}))
    for key, value in _DATA["models"].items()
    if not key.startswith("hfdefault")
}
_names = st.sampled_from(sorted(_MODELS))
_versions = st.sampled_from(["0.8.5", "0.10.2", "0.12.0", "0.16.0", "0.19.1", "0.20.2", "0.26.0", "0.28.0", "0.32.0"])
_memories = st.integers(1 << 28, 1 << 37)


def _run(name: str, version: str, memory: int, **arguments: Any) -> Prediction:
    values: Mapping[str, Any] = {"kv_cache_memory_bytes": memory, **arguments}
    load = Workload(prompt_tokens=1_000, output_tokens=200)
    return predict_capacity(_MODELS[name], values, version=version, gpu=_H100, workload=load)


@settings(max_examples=150, deadline=None)
@given(_names, _versions, _memories, st.integers(0, 1 << 35))
def test_more_memory_never_holds_less(name: str, version: str, memory: int, more: int) -> None:
    small, large = _run(name, version, memory), _run(name, version, memory + more)
    assert small.kv_cache.bytes_per_block == large.kv_cache.bytes_per_block
    for figure in ("num_gpu_blocks", "size_tokens", "max_concurrency", "estimated_max_model_len"):
        low, high = getattr(small.kv_cache, figure), getattr(large.kv_cache, figure)
        assert (low is None) == (high is None)
        if low is not None:
            assert low <= high, figure
    if small.concurrency and small.concurrency.sustained is not None:
        assert large.concurrency is not None
        assert large.concurrency.sustained is not None
        assert small.concurrency.sustained <= large.concurrency.sustained


@settings(max_examples=100, deadline=None)
@given(_names, _versions, st.sampled_from([2, 4, 8]))
def test_a_rank_never_keeps_more_than_the_whole(name: str, version: str, ranks: int) -> None:
    whole = _run(name, version, 1 << 34).kv_cache
    shard = _run(name, version, 1 << 34, tensor_parallel_size=ranks)
    if whole.bytes_per_token is None or shard.kv_cache.bytes_per_token is None:
        assert shard.reasons or whole.bytes_per_block is None
        return
    assert shard.kv_cache.bytes_per_token <= whole.bytes_per_token


@settings(max_examples=100, deadline=None)
@given(_names, _versions)
def test_an_fp8_cache_never_costs_a_request_more(name: str, version: str) -> None:
    plain = _run(name, version, 1 << 35, max_model_len=4_096, kv_cache_dtype="auto").kv_cache
    small = _run(name, version, 1 << 35, max_model_len=4_096, kv_cache_dtype="fp8").kv_cache
    if plain.bytes_per_token and small.bytes_per_token:
        assert small.bytes_per_token <= plain.bytes_per_token


# --- pools of random layers -------------------------------------------------------------------------------------------

_full = st.builds(CacheSpec, st.just("full_attention"), st.just(16), st.integers(1, 4), st.just(512))
_window = st.builds(
    CacheSpec, st.just("sliding_window"), st.just(16), st.just(2), st.just(512), window=st.sampled_from([128, 1024])
)
_layers = st.lists(st.one_of(_full, _window), min_size=1, max_size=24)
_shape = RequestShape(in_flight_tokens=4_096, encoder_tokens=2_048)


@given(_layers, _versions, st.integers(1 << 20, 1 << 33), st.integers(1, 100_000))
def test_blocks_never_take_more_than_the_memory(specs: list[CacheSpec], version: str, memory: int, length: int) -> None:
    release = release_of(version)
    manager: Any = SimpleNamespace(hybrid_manager=True)
    try:
        groups = group_layers(specs, grouping_of(manager, release, block_outermost=False))
    except GroupingError:
        return
    assert sum(len(group.specs) for group in groups) == len(specs)
    pool = PoolShape.of(groups, release, layers=specs)
    blocks = pool.blocks_of(memory)
    assert blocks * pool.block_bytes <= memory < (blocks + 1) * pool.block_bytes
    longest = pool.longest(length, memory - pool.reserved_bytes(), _shape)
    assert 0 <= longest <= length
    if 0 < longest < length:
        assert pool.fits(longest, memory - pool.reserved_bytes(), _shape)
        assert not pool.fits(longest + 1, memory - pool.reserved_bytes(), _shape)


@given(_layers, st.integers(1, 50_000), st.integers(0, 5_000))
def test_a_longer_request_never_takes_fewer_blocks(specs: list[CacheSpec], length: int, more: int) -> None:
    groups = [SpecGroup((spec,)) for spec in specs]
    assert sum(group.pages_per_request(length, _shape) for group in groups) <= sum(
        group.pages_per_request(length + more, _shape) for group in groups
    )
