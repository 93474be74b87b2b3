"""Cache formats that pack, kernels' own states, and what is served where (vLLM 0.33.0)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kvgate.capacity.layout import packed_content_bytes
from kvgate.capacity.prediction import Prediction
from kvgate.hardware.gpu import Gpu
from kvgate.models.model import Model

Predict = Callable[..., Prediction]
_CARD = {"kv_cache_memory_bytes": 5 << 30}


@pytest.fixture
def amd() -> Gpu:
    return Gpu("AMD Instinct MI300X", "amd", 206_141_652_992, 206_141_652_992, 206_141_652_992, "exact", None)


@pytest.mark.parametrize(
    ("name", "rotary", "size"),
    [
        # Keys of 4 bits where rotated, 3 elsewhere; values; fp16 scales of two blocks of 64 and of the values; by 8.
        ("octave_k3v4", 1.0, 64 + 64 + 8),  # 128 bytes and 6 of scales, up to a multiple of 8
        ("octave_k3v4", 0.5, 32 + 24 + 64 + 8),
        ("octave_k3v3", 1.0, 64 + 48 + 8),
        ("octave_k3v3_compact", 1.0, 48 + 48 + 4),
        # 4 bits an element and a byte for each group of 32, for keys and for values.
        ("ultraquant_4bit", 1.0, 2 * (64 + 4)),
    ],
)
def test_bytes_of_a_packed_head(name: str, rotary: float, size: int) -> None:
    assert packed_content_bytes(name, 128, 128, rotary=rotary) == size


def test_octave_on_an_amd_gpu(predict: Predict, llama: Model, amd: Gpu) -> None:
    cache = predict(llama, {**_CARD, "kv_cache_dtype": "octave_k3v4"}, gpu=amd, version="0.33.0").kv_cache
    assert cache.bytes_per_block == 32 * 16 * 8 * 136


def test_ultraquant_keeps_the_outer_layers_plain(predict: Predict, llama: Model, amd: Gpu) -> None:
    prediction = predict(llama, {**_CARD, "kv_cache_dtype": "ultraquant_4bit"}, gpu=amd, version="0.33.0")
    assert {group.kind for group in prediction.kv_cache.groups} == {"full_attention"}
    assert prediction.kv_cache.basis == "exact"
    plain, packed = 2 * 128 * 2, 136  # bytes of a head's token; four of the 32 layers are plain
    per_token = (prediction.kv_cache.bytes_per_token or 0) / 8
    assert 28 * packed + 4 * plain <= per_token <= 32 * plain


@pytest.mark.parametrize("name", ["octave_k3v4", "ultraquant_4bit"])
def test_formats_of_rocm_alone(predict: Predict, llama: Model, gpu: Callable[[str], Gpu], name: str) -> None:
    prediction = predict(llama, {**_CARD, "kv_cache_dtype": name}, gpu=gpu("h100"), version="0.33.0")
    assert prediction.starts == "no"
    assert name in prediction.reasons[0]


@pytest.mark.parametrize("name", ["nvfp4", "fp8_ds_mla", "fp8_inc"])
def test_formats_that_rocm_lacks(predict: Predict, llama: Model, amd: Gpu, name: str) -> None:
    prediction = predict(llama, {**_CARD, "kv_cache_dtype": name}, gpu=amd, version="0.33.0")
    assert prediction.starts == "no"
    assert f"no attention backend of ROCm serves a {name} KV cache" in prediction.reasons[0]


_NEMOTRON: dict[str, Any] = {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 2688,
    "intermediate_size": 1856, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
    "hybrid_override_pattern": "MEM*", "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128,
    "n_groups": 8, "conv_kernel": 4, "expand": 2, "chunk_size": 128, "vocab_size": 131072,
    "max_position_embeddings": 8192, "n_routed_experts": 8, "moe_intermediate_size": 1856, "num_experts_per_tok": 2,
}  # fmt: skip


def _state_page(prediction: Prediction) -> int:
    return next(group.page_size_bytes for group in prediction.kv_cache.groups if group.kind == "mamba")


def test_replayed_states_keep_a_ring_of_inputs(predict: Predict, gpu: Callable[[str], Gpu]) -> None:
    base = {**_CARD, "enable_prefix_caching": False}
    plain = predict(_NEMOTRON, base, gpu=gpu("h100"))
    ring = predict(_NEMOTRON, {**base, "use_replayssm": True, "replayssm_buffer_len": 32}, gpu=gpu("h100"))
    # Values of 64 heads of 64 in bfloat16, a float32 step per head, B of 8 groups of 128; 32 of them. Pages are those
    # of attention blocks of whole kernel blocks, so the page grows by at least that.
    kept = 32 * (64 * (64 * 2 + 4) + 8 * 128 * 2)
    assert _state_page(ring) - _state_page(plain) >= kept - 16 * 2 * 128 * 2 * 2
    assert _state_page(ring) > _state_page(plain)


def test_states_at_block_boundaries_need_chunked_prefill(predict: Predict) -> None:
    arguments = {**_CARD, "enable_prefix_caching": True, "enable_chunked_prefill": False}
    prediction = predict(_NEMOTRON, arguments)
    assert (prediction.starts, prediction.reasons[0]) == (
        "no",
        "prefix caching of recurrent states needs chunked prefill",
    )
    assert predict(_NEMOTRON, {**arguments, "enable_prefix_caching": False}).starts == "yes"


def test_replay_is_refused_elsewhere(predict: Predict, llama: Model) -> None:
    prediction = predict(llama, {**_CARD, "use_replayssm": True})
    assert prediction.starts == "no"
    assert prediction.reasons[0] == "--use-replayssm is not supported for architecture 'LlamaForCausalLM'"


@pytest.mark.parametrize(
    "arguments",
    [
        {"attention_config": {"hisparse_config": {}}},
        {"kv_transfer_config": {"kv_connector": "HiSparseConnector", "kv_role": "kv_both"}},
    ],
)
def test_hisparse_is_said_and_not_ignored(predict: Predict, llama: Model, arguments: dict[str, Any]) -> None:
    prediction = predict(llama, {**_CARD, **arguments}, version="0.33.0")
    assert prediction.starts == "unknown"
    assert prediction.kv_cache.bytes_per_block is None
    assert "HiSparse" in prediction.reasons[0]


_LATENT: dict[str, Any] = {
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 2048,
    "intermediate_size": 8192, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 16,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 102400,
    "max_position_embeddings": 4096,
}  # fmt: skip


def test_cpu_blocks_of_latent_attention_assume_amx(predict: Predict) -> None:
    cpu = Gpu("CPU", "cpu", 0, 0, 0, "exact", None)
    arguments, env = {"max_model_len": 1024}, {"VLLM_CPU_KVCACHE_SPACE": "8"}
    assumed = predict(_LATENT, arguments, gpu=cpu, env=env)
    assert (assumed.kv_cache.block_size, assumed.kv_cache.basis) == (128, "assumed")
    assert any("AMX" in reason for reason in assumed.reasons)
    told = predict(_LATENT, {**arguments, "attention_backend": "CPU_MLA"}, gpu=cpu, env=env)
    assert (told.kv_cache.block_size, told.kv_cache.basis) == (16, "exact")


def test_a_partition_that_does_not_fit_fails_the_start(predict: Predict, llama: Model) -> None:
    arguments = {**_CARD, "pipeline_parallel_size": 2}
    for wish in ("1,2", "a,b", "16,8,8"):
        prediction = predict(llama, arguments, env={"VLLM_PP_LAYER_PARTITION": wish})
        assert prediction.starts == "no"
        assert f"VLLM_PP_LAYER_PARTITION={wish!r}" in prediction.reasons[0]


def test_weights_follow_the_partition(predict: Predict, llama: Model) -> None:
    model = replace(llama, checkpoint_bytes=None)
    arguments = {**_CARD, "pipeline_parallel_size": 2}

    def of(wish: str) -> int:
        prediction = predict(model, arguments, env={"VLLM_PP_LAYER_PARTITION": wish})
        return int(prediction.as_dict()["memory"]["weights"]["parameters_bytes"])

    # Five layers more on the first stage: two matrices of 4096 squared, two of a quarter, three of the MLP, two norms.
    layer = 2 * (4096 * 4096 * 2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096)
    assert of("25,7") - of("20,12") == 5 * layer
