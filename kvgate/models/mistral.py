"""Mistral's own format: a ``params.json`` as the configuration that the engine makes of it.

Source: vLLM 0.32.0 ``transformers_utils/configs/mistral.py:adapt_config_dict``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

PARAMS: Final = "params.json"

_NAMES: Final[Mapping[str, str]] = {
    "dim": "hidden_size",
    "norm_eps": "rms_norm_eps",
    "n_kv_heads": "num_key_value_heads",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "tied_embeddings": "tie_word_embeddings",
}
_EXPERT_NAMES: Final[Mapping[str, str]] = {
    "route_every_n": "moe_layer_freq",
    "first_k_dense_replace": "first_k_dense_replace",
    "num_experts_per_tok": "num_experts_per_tok",
    "num_experts": "n_routed_experts",
    "expert_hidden_dim": "moe_intermediate_size",
    "routed_scale": "routed_scaling_factor",
    "num_shared_experts": "n_shared_experts",
    "num_expert_groups": "n_group",
    "num_expert_groups_per_tok": "topk_group",
}
_YARN_NAMES: Final[Mapping[str, str]] = {
    "factor": "factor",
    "original_max_position_embeddings": "original_max_position_embeddings",
    "beta": "beta_fast",
    "alpha": "beta_slow",
}
_LENGTH: Final = 128_000


def is_params(config: Mapping[str, Any]) -> bool:
    """Whether a mapping is a ``params.json``: its names, and none of a ``config.json``'s."""
    return (
        "architectures" not in config and "model_type" not in config and {"dim", "n_layers", "n_heads"} <= set(config)
    )


def as_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration as it stands, or what a ``params.json`` stands for."""
    return from_params(config) if is_params(config) else config


def from_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that a ``params.json`` stands for."""
    config: dict[str, Any] = {_NAMES.get(key, key): value for key, value in params.items()}
    config.setdefault("max_position_embeddings", _LENGTH)
    config.setdefault("max_seq_len", config["max_position_embeddings"])
    config.setdefault("tie_word_embeddings", False)
    config["model_type"] = "transformer"
    _name_window(config)
    _name_quantization(config)
    experts = config.pop("moe", None)
    if not experts and config.get("qk_nope_head_dim"):
        experts = _one_expert(config)
    if experts and experts.get("num_shared_experts"):
        config |= {_EXPERT_NAMES[key]: value for key, value in experts.items() if key in _EXPERT_NAMES}
        config |= {"topk_method": None, "norm_topk_prob": True, "scoring_func": "softmax"}
        config |= {"model_type": "deepseek_v3", "architectures": ["MistralLarge3ForCausalLM"]}
    elif experts:
        config |= {"num_local_experts": experts.get("num_experts"), "architectures": ["MixtralForCausalLM"]}
        config["num_experts_per_tok"] = experts.get("num_experts_per_tok")
    else:
        config["architectures"] = ["MistralForCausalLM"]
    _name_yarn(config)
    return _with_tower(config)


def _name_window(config: dict[str, Any]) -> None:
    """A list of windows becomes the kinds of the layers."""
    window = config.get("sliding_window")
    if isinstance(window, list):
        kinds = window * (int(config["num_hidden_layers"]) // max(1, len(window)))
        config["layer_types"] = ["full_attention" if size is None else "sliding_attention" for size in kinds]
        config["sliding_window"] = next((size for size in window if size), None)
    elif isinstance(window, int) and window and config.get("layer_types") is None:
        config["layer_types"] = ["sliding_attention"] * int(config["num_hidden_layers"])


def _name_quantization(config: dict[str, Any]) -> None:
    quantization = config.pop("quantization", None)
    if not isinstance(quantization, Mapping):
        return
    if quantization.get("qformat_weight") == "fp8_e4m3":
        dynamic = quantization.get("qscheme_act") == "NO_SCALES"
        config["quantization_config"] = {
            "quant_method": "fp8",
            "activation_scheme": "dynamic" if dynamic else "static",
        }
    else:
        method = str(quantization.get("quant_method", "")).lower().replace("_", "-")
        config["quantization_config"] = {**quantization, "quant_method": method}


def _one_expert(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dense models with latent attention are served as one expert that no layer has."""
    return {
        "num_experts": 1, "first_k_dense_replace": config.get("num_hidden_layers"), "route_every_n": 1,
        "num_shared_experts": 1, "expert_hidden_dim": config.get("intermediate_size"), "num_experts_per_tok": 1,
        "routed_scale": 1.0, "num_expert_groups": 1, "num_expert_groups_per_tok": 1,
    }  # fmt: skip


def _name_yarn(config: dict[str, Any]) -> None:
    yarn = config.pop("yarn", None)
    if not isinstance(yarn, Mapping) or not yarn:
        return
    rope: dict[str, Any] = {"rope_type": "yarn", "mscale_all_dim": 1}
    theta = config.pop("rope_theta", None)
    if theta is not None:
        rope["rope_theta"] = theta
    rope |= {_YARN_NAMES[key]: value for key, value in yarn.items() if key in _YARN_NAMES}
    config["rope_parameters"] = rope


def _with_tower(config: dict[str, Any]) -> dict[str, Any]:
    """The text configuration beside a vision or a speech encoder's, where there is one."""
    multimodal = config.get("multimodal")
    multimodal = multimodal if isinstance(multimodal, Mapping) else {}
    speech = multimodal.get("whisper_model_args") or {}
    quantization = config.get("quantization_config")
    outer: dict[str, Any] = {} if quantization is None else {"quantization_config": quantization}
    if speech.get("encoder_args"):
        text = {key: value for key, value in config.items() if key != "multimodal"}
        return {**outer, **_speech(text, speech["encoder_args"], speech.get("downsample_args") or {})}
    vision = config.get("vision_encoder") or (multimodal if multimodal.get("vision_encoder_args") else None)
    if vision:
        text = {key: value for key, value in config.items() if key not in ("vision_encoder", "multimodal")}
        names = {"model_type": "pixtral", "architectures": ["PixtralForConditionalGeneration"]}
        return {**outer, **names, "text_config": text, "vision_config": dict(vision)}
    return config


def _speech(text: dict[str, Any], encoder: Mapping[str, Any], downsample: Mapping[str, Any]) -> dict[str, Any]:
    factor = int(downsample.get("downsample_factor") or 1)
    causal = bool(encoder.get("causal"))
    if causal:
        text = {**text, "projection_size": factor * int(encoder["dim"])}
    audio = {
        "num_mel_bins": (encoder.get("audio_encoding_args") or {}).get("num_mel_bins"),
        "d_model": encoder["dim"],
        "encoder_layers": encoder["n_layers"],
        "encoder_ffn_dim": encoder["hidden_dim"],
        "encoder_attention_heads": encoder["n_heads"],
        "encoder_head_dim": encoder["head_dim"],
        "downsample_factor": factor,
        "is_causal": causal,
        "sliding_window": encoder.get("sliding_window"),
        "block_pool_size": factor if causal else 1,
        "pos_embed": encoder.get("pos_embed", "sinusoidal"),
        "max_source_positions": encoder.get("max_source_positions") or 1500,
    }
    name = "VoxtralRealtimeGeneration" if causal else "VoxtralForConditionalGeneration"
    return {"model_type": "voxtral", "architectures": [name], "text_config": text, "audio_config": audio}
