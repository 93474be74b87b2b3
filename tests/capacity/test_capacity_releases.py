"""Blocks, tokens and concurrency as each release's own ``kv_cache_utils.py`` computed them (``releases.json``).

Each row: release; ``length`` (max_model_len), ``batched`` tokens in flight, ``avail`` bytes and the engine's ``block``;
runs of equal layers as [count, [kind, block size, heads, content bytes, window, padded bytes, state bytes]]; and the
release's [blocks, tokens, concurrency], or the longest request that it said would fit where it refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvgate.capacity.engine import as_v0, effective_release
from kvgate.capacity.groups import GroupingError, group_layers
from kvgate.capacity.pool import PoolShape
from kvgate.capacity.predict import grouping_of, predict_capacity, request_shape
from kvgate.capacity.prediction import Prediction
from kvgate.capacity.release import release_of
from kvgate.capacity.spec import CacheSpec
from kvgate.hardware.gpu import Gpu
from kvgate.models.model import Model

_ROWS = json.loads((Path(__file__).parent / "releases.json").read_text(encoding="utf-8"))
_VERSIONS = sorted({row[0] for row in _ROWS}, key=lambda text: [int(part) for part in text.split(".")])


def _specs(runs: list[Any]) -> list[CacheSpec]:
    specs = []
    for count, (kind, block, heads, content, window, padded, state, *form) in runs:
        spec = CacheSpec(
            kind, block, heads, content, window=window, padded_bytes=padded, state_bytes=state,
            sharded=kind != "mamba", format=tuple(form[0]) if form else (),
        )  # fmt: skip
        specs += [spec] * count
    return specs


@pytest.mark.parametrize("version", _VERSIONS)
def test_pool_of_a_release(version: str) -> None:
    release = release_of(version)
    for _, case, runs, expected in (row for row in _ROWS if row[0] == version):
        specs = _specs(runs)
        settings: Any = SimpleNamespace(
            hybrid_manager=case.get("hybrid", True),
            in_flight_tokens=case["batched"],
            max_num_batched_tokens=case["batched"],
            decode_context_parallel_size=1,
        )
        shape = request_shape(settings, case.get("mode", "none"), release)
        groups = group_layers(specs, grouping_of(settings, release, block_outermost=False))
        pool = PoolShape.of(groups, release, layers=specs, cache_block=case["block"])
        usable = case["avail"] - pool.reserved_bytes()
        if isinstance(expected, int):
            assert not pool.fits(case["length"], usable, shape), case
            assert pool.longest(case["length"], usable, shape) == expected, case
            continue
        blocks = pool.blocks_of(case["avail"])
        assert pool.fits(case["length"], usable, shape), case
        assert [blocks, pool.size_tokens(blocks, case["length"], shape)] == expected[:2], case
        assert pool.max_concurrency(blocks, case["length"], shape) == pytest.approx(expected[2], abs=0.0051), case


def test_unequal_pages_are_refused_before_they_could_be_unified() -> None:
    """0.11 knew only equal pages, 0.12 grows the smaller block by an integer, 0.24 pads what does not divide."""
    full, window = CacheSpec("full_attention", 16, 4, 768), CacheSpec("sliding_window", 16, 4, 256, window=512)
    settings: Any = SimpleNamespace(hybrid_manager=True)
    with pytest.raises(GroupingError):
        group_layers([full, window], grouping_of(settings, release_of("0.11.2"), block_outermost=False))
    groups = group_layers([full, window], grouping_of(settings, release_of("0.13.0"), block_outermost=False))
    assert [group.specs[0].block_size for group in groups] == [16, 48]
    uneven = replace(window, content_bytes=500)
    with pytest.raises(GroupingError):
        group_layers([full, uneven], grouping_of(settings, release_of("0.23.0"), block_outermost=False))
    padded = group_layers([full, uneven], grouping_of(settings, release_of("0.24.0"), block_outermost=False))
    assert [group.page_bytes for group in padded] == [full.page_bytes, full.page_bytes]


# --- defaults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "key", "budget", "sequences"),
    [
        ("0.7.3", "h100", 2048, 256),  # V0, chunked because max_model_len exceeds 32,768
        ("0.8.3", "l4", 2048, 1024),  # by the name of the GPU, sequences alike for all
        ("0.8.5", "a100", 8192, 1024),  # by memory alone
        ("0.9.2", "a100", 2048, 256),  # an A100 is no H100 any more
        ("0.9.2", "h100", 8192, 1024),
        ("0.27.1", "b200", 8192, 1024),
        ("0.28.0", "b200", 16384, 1024),  # 160 GiB and more
        ("0.32.0", "l4", 2048, 256),
    ],
)
def test_token_budget_and_sequences_by_default(
    version: str, key: str, budget: int, sequences: int, llama: Model, gpu: Callable[[str], Gpu]
) -> None:
    resolved = predict_capacity(llama, {}, version=version, gpu=gpu(key)).resolved
    assert (resolved["max_num_batched_tokens"], resolved["max_num_seqs"]) == (budget, sequences)


@pytest.mark.parametrize(("version", "utilization"), [("0.8.5", 0.9), ("0.19.1", 0.9), ("0.20.0", 0.92)])
def test_utilization_by_default(version: str, utilization: float, llama: Model) -> None:
    assert release_of(version).utilization == utilization
    assert predict_capacity(llama, {}, version=version).resolved["gpu_memory_utilization"] == utilization


_DEEPSEEK: Mapping[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_hidden_layers": 61,
    "hidden_size": 7168, "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "q_lora_rank": 1536, "vocab_size": 129280,
    "max_position_embeddings": 163840, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(
    ("version", "key", "block_size", "bytes_per_block"),
    [
        ("0.7.1", "h200", 16, 61 * 576 * 2 * 16),
        ("0.7.3", "h200", 16, 61 * 1280 * 16),  # rows of 1,152 bytes rounded up to 256
        ("0.8.5", "h200", 64, 61 * 576 * 2 * 64),  # FlashMLA
        ("0.8.5", "a100", 16, 61 * 576 * 2 * 16),  # which needs Hopper
        ("0.11.2", "b200", 128, 61 * 576 * 2 * 128),  # CUTLASS MLA
        ("0.16.0", "b200", 64, 61 * 576 * 2 * 64),  # FlashInfer MLA
        ("0.18.0", "h200", 16, 61 * 576 * 2 * 16),  # FlashAttention MLA takes any multiple of 16
        ("0.32.0", "b200", 32, 61 * 576 * 2 * 32),
    ],
)
def test_block_of_latent_attention(
    version: str, key: str, block_size: int, bytes_per_block: int, gpu: Callable[[str], Gpu]
) -> None:
    cache = predict_capacity(Model("r1", _DEEPSEEK, "mapping"), {}, version=version, gpu=gpu(key)).kv_cache
    assert (cache.block_size, cache.bytes_per_block) == (block_size, bytes_per_block)


def test_a_start_of_0_7_as_its_log_has_it(gpu: Callable[[str], Gpu]) -> None:
    """DeepSeek-R1 on eight GPUs: 21.43 GiB for the cache, "# GPU blocks: 18418", 2.30x for 128,000 tokens."""
    arguments = {"max_model_len": 128_000, "kv_cache_memory_bytes": int(21.43 * 2**30)}
    cache = predict_capacity(Model("r1", _DEEPSEEK, "mapping"), arguments, version="0.7.3", gpu=gpu("h200")).kv_cache
    assert cache.num_gpu_blocks == 18_418
    assert cache.max_concurrency == pytest.approx(2.30, abs=0.005)


# --- engines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "arguments", "env", "capability", "engine"),
    [
        ("0.6.3", {}, {}, (9, 0), "V0"),
        ("0.7.3", {}, {"VLLM_USE_V1": "1"}, (9, 0), "V1"),
        ("0.8.5", {}, {}, (9, 0), "V1"),
        ("0.8.5", {}, {"VLLM_USE_V1": "0"}, (9, 0), "V0"),
        ("0.8.5", {}, {}, (7, 5), "V0"),
        ("0.8.5", {"num_scheduler_steps": 8}, {}, (9, 0), "V0"),
        ("0.8.5", {"kv_cache_dtype": "fp8"}, {}, (8, 0), "V0"),
        ("0.8.5", {"kv_cache_dtype": "fp8"}, {}, (9, 0), "V1"),
        ("0.11.0", {}, {"VLLM_USE_V1": "0"}, (7, 5), "V1"),
    ],
)
def test_engine_of_a_server(
    version: str, arguments: Mapping[str, Any], env: Mapping[str, str], capability: tuple[int, int], engine: str,
    llama: Model,
) -> None:  # fmt: skip
    from kvgate.models.geometry import read_geometry

    release, reason = effective_release(
        release_of(version), read_geometry(llama), arguments.get, env, capability, cpu=False
    )
    assert release.engine == engine
    assert (reason is not None) == (release_of(version).engine != engine or bool(env and version < "0.11"))


def test_v0_gives_windows_the_cache_of_full_attention() -> None:
    release = as_v0(release_of("0.8.5"))
    assert (release.size_figure, release.concurrency, release.hybrid_allocator) == ("blocks", "tokens", False)


# --- hybrids ----------------------------------------------------------------------------------------------------------

_QWEN_NEXT: Mapping[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "linear_num_value_heads": 32,
    "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4, "vocab_size": 151936, "max_position_embeddings": 262144, "torch_dtype": "bfloat16",
}  # fmt: skip


def test_a_hybrid_of_0_13_as_its_log_has_it(gpu: Callable[[str], Gpu]) -> None:
    """Qwen3-Next on two H200: 47,878,721,024 bytes printed 7,162 blocks of 544 tokens, 973,760 tokens, 14.77x."""
    arguments = {"tensor_parallel_size": 2, "max_model_len": 262_144, "kv_cache_memory_bytes": 47_878_721_024}
    prediction = predict_capacity(Model("next", _QWEN_NEXT, "mapping"), arguments, version="0.13.0", gpu=gpu("h200"))
    cache = prediction.kv_cache
    assert (cache.block_size, cache.num_gpu_blocks, cache.size_tokens) == (544, 7_162, 973_760)
    assert cache.max_concurrency == pytest.approx(14.77, abs=0.005)
    assert prediction.resolved["mamba_cache_mode"] == "none"


def _next(predict: Callable[..., Prediction], version: str, **arguments: Any) -> Prediction:
    return predict(_QWEN_NEXT, {"kv_cache_memory_bytes": 40 * 2**30, **arguments}, version=version)


def test_hybrids_cache_prefixes_by_default_since_0_28(predict: Callable[..., Prediction]) -> None:
    assert not _next(predict, "0.27.1").resolved["enable_prefix_caching"]
    assert _next(predict, "0.27.1", enable_prefix_caching=True).resolved["mamba_cache_mode"] == "align"
    assert _next(predict, "0.28.0").resolved["mamba_cache_mode"] == "align"
    # 0.14 could not keep the states of gated delta nets at all
    assert not _next(predict, "0.14.1", enable_prefix_caching=True).resolved["enable_prefix_caching"]


def test_prediction_layers_join_the_attention_and_add_states(predict: Callable[..., Prediction]) -> None:
    plain = _next(predict, "0.32.0")
    drafted = _next(predict, "0.32.0", speculative_config={"method": "mtp", "num_speculative_tokens": 2})
    layers = [
        sum(group.layers for group in p.kv_cache.groups if group.kind == "full_attention") for p in (plain, drafted)
    ]
    assert layers == [12, 13]
    assert drafted.kv_cache.size_tokens < plain.kv_cache.size_tokens  # type: ignore[operator]


# --- architectures ----------------------------------------------------------------------------------------------------


def test_an_architecture_that_a_release_no_longer_has(predict: Callable[..., Prediction], llama: Model) -> None:
    baichuan = Model("baichuan", {**llama.config, "architectures": ["BaichuanForCausalLM"], "num_key_value_heads": 32},
                     "mapping")  # fmt: skip
    arguments = {"kv_cache_memory_bytes": 40 << 30, "max_model_len": 4096}
    assert predict(baichuan, arguments, version="0.24.0").starts == "yes"
    gone = predict(baichuan, arguments, version="0.25.0")
    assert gone.starts == "no"
    assert gone.kv_cache.num_gpu_blocks is not None
    assert any("0.24.0 was the last release" in reason for reason in gone.reasons)


def test_an_architecture_that_a_release_does_not_have_yet(predict: Callable[..., Prediction]) -> None:
    arguments = {"kv_cache_memory_bytes": 40 << 30, "max_model_len": 4096}
    assert predict(_QWEN_NEXT, arguments, version="0.10.2").starts == "yes"
    early = predict(_QWEN_NEXT, arguments, version="0.10.1")
    assert early.starts == "unlikely"
    assert any("0.10.2 was the first release" in reason for reason in early.reasons)


@pytest.mark.parametrize(("version", "length"), [("0.29.0", 131_072), ("0.30.0", 32_768)])
def test_yarn_scales_the_length_until_0_29(
    version: str, length: int, predict: Callable[..., Prediction], llama: Model
) -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
    model = Model("yarn", {**llama.config, "max_position_embeddings": 32_768, "rope_scaling": rope}, "mapping")
    assert predict(model, {"kv_cache_memory_bytes": 40 << 30}, version=version).kv_cache.max_model_len == length
