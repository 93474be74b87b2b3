"""Mistral's ``params.json`` as the engine reads it (vLLM 0.32.0 ``transformers_utils/configs/mistral.py``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kvgate
from kvgate.models.mistral import as_config, from_params, is_params

TEXT: dict[str, Any] = {
    "dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8,
    "rope_theta": 1e6, "norm_eps": 1e-5, "vocab_size": 131072, "max_position_embeddings": 32768,
}  # fmt: skip
ENCODER: dict[str, Any] = {
    "audio_encoding_args": {"num_mel_bins": 128}, "dim": 1280, "n_layers": 32, "head_dim": 64, "hidden_dim": 5120,
    "n_heads": 20, "vocab_size": 51866, "max_source_positions": 1500,
}  # fmt: skip


def test_names_become_those_of_a_configuration() -> None:
    config = from_params({**TEXT, "tied_embeddings": True})
    assert config["architectures"] == ["MistralForCausalLM"]
    assert (config["hidden_size"], config["num_hidden_layers"], config["num_key_value_heads"]) == (5120, 40, 8)
    assert (config["intermediate_size"], config["tie_word_embeddings"]) == (14336, True)


def test_a_list_of_windows_becomes_the_kinds_of_the_layers() -> None:
    config = from_params({**TEXT, "n_layers": 4, "sliding_window": [None, 1024]})
    assert config["layer_types"] == ["full_attention", "sliding_attention"] * 2
    assert config["sliding_window"] == 1024


def test_quantization_and_yarn() -> None:
    yarn = {"factor": 8, "original_max_position_embeddings": 4096, "beta": 4, "alpha": 1}
    config = from_params(
        {**TEXT, "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "NO_SCALES"}, "yarn": yarn}
    )
    assert config["quantization_config"] == {"quant_method": "fp8", "activation_scheme": "dynamic"}
    rope = config["rope_parameters"]
    assert (rope["rope_type"], rope["factor"], rope["beta_fast"], rope["rope_theta"]) == ("yarn", 8, 4, 1e6)


def test_experts_choose_the_architecture() -> None:
    moe = {"num_experts": 8, "num_experts_per_tok": 2}
    assert from_params({**TEXT, "moe": moe})["architectures"] == ["MixtralForCausalLM"]
    shared = from_params({**TEXT, "qk_nope_head_dim": 128, "moe": {**moe, "num_shared_experts": 1}})
    assert (shared["architectures"], shared["n_routed_experts"]) == (["MistralLarge3ForCausalLM"], 8)
    dense = from_params({**TEXT, "qk_nope_head_dim": 128})
    assert (dense["architectures"], dense["first_k_dense_replace"]) == (["MistralLarge3ForCausalLM"], 40)


def test_towers_stand_beside_the_text() -> None:
    vision = from_params({**TEXT, "vision_encoder": {"hidden_size": 1024}})
    assert vision["architectures"] == ["PixtralForConditionalGeneration"]
    assert vision["text_config"]["architectures"] == ["MistralForCausalLM"]
    speech = {"encoder_args": ENCODER, "downsample_args": {"downsample_factor": 4}}
    heard = from_params({**TEXT, "multimodal": {"whisper_model_args": speech}})
    assert heard["architectures"] == ["VoxtralForConditionalGeneration"]
    assert heard["audio_config"]["downsample_factor"] == 4
    streamed = {**speech, "encoder_args": {**ENCODER, "causal": True}}
    assert from_params({**TEXT, "multimodal": {"whisper_model_args": streamed}})["architectures"] == [
        "VoxtralRealtimeGeneration"
    ]


def test_a_configuration_is_left_alone() -> None:
    config = {"architectures": ["MptForCausalLM"], "dim": 1, "n_layers": 1, "n_heads": 1}
    assert not is_params(config)
    assert as_config(config) is config


def test_a_directory_with_params_alone_is_predicted(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(json.dumps(TEXT), encoding="utf-8")
    arguments = ["--kv-cache-memory-bytes", str(5 << 30)]
    prediction = kvgate.predict(tmp_path, arguments, gpu="NVIDIA H100 80GB", vllm_version="0.32.0")
    # 40 layers of keys and values, 8 heads of 128 elements of 2 bytes, 16 tokens a block.
    assert prediction.kv_cache.bytes_per_block == 40 * 2 * 8 * 128 * 2 * 16
    assert (
        kvgate.predict(TEXT, arguments, gpu="NVIDIA H100 80GB", vllm_version="0.32.0").kv_cache == prediction.kv_cache
    )
