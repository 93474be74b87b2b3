"""vLLM's CPU backend: pools that vLLM 0.32.0 printed for tiny models with ``VLLM_CPU_KVCACHE_SPACE=1``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kvgate.capacity.predict import predict_capacity
from kvgate.hardware.gpu import Gpu
from kvgate.models.model import Model

_CPU = Gpu("cpu", "cpu", None, None, None, "unknown", None)
_SHAPE: Mapping[str, Any] = {
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "vocab_size": 512, "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip
_SIX = ["sliding_attention"] * 5 + ["full_attention"]
_MAMBA: Mapping[str, Any] = {
    "mamba_d_ssm": 512, "mamba_n_heads": 8, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 64,
    "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "blocks", "tokens", "block_size"),
    [
        (
            {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "num_hidden_layers": 6,
             "sliding_window": 512, "layer_types": _SIX},
            16_384, 489_845, 128,
        ),
        (
            {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_hidden_layers": 2,
             "head_dim": 32, "num_attention_heads": 8, "sliding_window": None},
            16_384, 2_097_152, 128,
        ),
        (
            {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_hidden_layers": 4,
             "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 2},
            8_192, 671_088, 128,
        ),
        (
            {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_hidden_layers": 4,
             "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 64,
             "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "full_attention_interval": 4},
            8_192, 1_525_201, 256,  # recurrent states are kept in float32 there
        ),
        (
            {"architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "num_hidden_layers": 2, **_MAMBA},
            2_730, 798_720, 384,
        ),
    ],
)  # fmt: skip
def test_pool_of_a_tiny_model(config: Mapping[str, Any], blocks: int, tokens: int, block_size: int) -> None:
    model = Model("tiny", {**_SHAPE, **config}, "mapping")
    prediction = predict_capacity(model, {}, version="0.32.0", gpu=_CPU, env={"VLLM_CPU_KVCACHE_SPACE": "1"})
    cache = prediction.kv_cache
    assert (cache.num_gpu_blocks, cache.size_tokens, cache.block_size) == (blocks, tokens, block_size)


def test_the_space_must_be_known() -> None:
    model = Model("tiny", {**_SHAPE, "architectures": ["LlamaForCausalLM"], "model_type": "llama",
                           "num_hidden_layers": 2}, "mapping")  # fmt: skip
    prediction = predict_capacity(model, {}, version="0.32.0", gpu=_CPU)
    assert prediction.kv_cache.num_gpu_blocks is None
    assert prediction.memory.kv_cache_available.basis == "unknown"
