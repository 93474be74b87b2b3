"""What the arithmetic needs to know of a model, read from its ``config.json``.

The figures follow vLLM's own reading of a configuration (0.32.0, ``transformers_utils/model_arch_config_convertor.py``
and the model files): which attributes count, in which order, and what a missing one means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Final, Literal

from kvgate.models import architectures
from kvgate.models.architectures import Family, Layer, MissingFieldError, State
from kvgate.models.configuration import complete_configuration, rope_parameters
from kvgate.models.model import Model
from kvgate.records import record

__all__ = [
    "Family",
    "Layer",
    "ModelGeometry",
    "State",
    "UnknownModelError",
    "context_lengths",
    "read_geometry",
    "without_latent",
]


@record
class ModelGeometry:
    """A model's shape.

    Attributes:
        architecture: the class vLLM serves it with (first entry of ``architectures`` after vLLM's rewrites).
        text_architecture: the architecture of its language model (the same for a text model).
        model_type: of the whole configuration; ``text_model_type`` of its language model.
        config: the whole configuration with the defaults of its configuration class filled in and ``hf_overrides``
            applied; ``text`` its language model's part (the same mapping for a text model).
        runner: ``generate`` or ``pooling`` (embedding, classification, reward), as the architecture implies.
        num_layers: decoder layers, before pipeline splitting.
        head_size: elements of one attention head as vLLM counts it (MLA: latent rank + rotary part).
        layers: the caches that the decoder layers own, in order; several or none per decoder layer.
        declared_dtype: dtype in the configuration, None when it names none.
        derived_max_model_len: context length that the configuration implies, rope scaling included; None when it
            names none (vLLM then assumes 2,048).
        auto_max_model_len: what ``--max-model-len`` defaults to (differs for LongRoPE).
        sliding_window: the model's window where every layer has it (vLLM's ``cache_config.sliding_window``).
        declared_window: the window in the configuration, whichever layers have it.
        ssm_dtype: dtype that the model asks for its recurrent states.
        quantization_method: ``quant_method`` of the checkpoint's quantization configuration, lower case.
    """

    architecture: str
    text_architecture: str
    model_type: str
    text_model_type: str
    config: Mapping[str, Any]
    text: Mapping[str, Any]
    family: Family
    runner: Literal["generate", "pooling"]
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    intermediate_size: int
    num_experts: int
    num_experts_per_token: int
    moe_intermediate_size: int
    layers: tuple[Layer, ...]
    declared_dtype: str | None
    derived_max_model_len: int | None
    auto_max_model_len: int | None
    sliding_window: int | None
    declared_window: int | None
    quantization_method: str | None
    quantization_config: Mapping[str, Any] | None
    uses_mla: bool = False
    is_multimodal: bool = False
    is_hybrid: bool = False
    is_attention_free: bool = False
    is_encoder_decoder: bool = False
    is_mm_prefix: bool = False
    ssm_dtype: str | None = None
    tie_word_embeddings: bool = False
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class UnknownModelError(ValueError):
    """The configuration, or its architecture, is not one whose geometry is known; the message says what is missing."""


_LENGTH_KEYS: Final = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
    "max_target_positions", "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
# Rope types that leave the declared length already scaled.
_SCALED_ROPE: Final = frozenset({"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"})
_EXPERT_KEYS: Final = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
_EXPERT_TOP_KEYS: Final = (
    "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_top_k",
)  # fmt: skip
_MLA_TYPES: Final = frozenset(
    {
        "axk1", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "deepseek_v41", "dots3_note",
        "deepseek_mtp", "k3_dspark", "glm5_next", "glm5_next_text", "glm_moe_dsa", "glm4_moe_lite",
        "glm4_moe_lite_mtp", "kimi_k2", "kimi_linear", "longcat_flash", "pangu_ultra_moe", "pangu_ultra_moe_mtp",
        "bailing_hybrid", "bailing_hybrid_mtp", "bailing_hybrid_v3_mtp", "hy_v4", "hy_v4_mtp",
    }
)  # fmt: skip
_MM_PREFIX_TYPES: Final = frozenset({"bagel", "gemma3", "molmo2", "moondream3", "paligemma"})
_GEMMA4_TYPES: Final = frozenset(
    ["diffusion_gemma", "diffusion_gemma_text", "gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"]
)
_MASKED: Final = frozenset({"attention", "mla"})
_NO_ATTENTION_TYPES: Final = frozenset({"falcon_mamba", "mamba", "timm_wrapper", "medusa"})


def read_geometry(
    model: Model, *, hf_overrides: Mapping[str, Any] | None = None, windows: bool = True
) -> ModelGeometry:
    """The geometry of a model.

    Args:
        hf_overrides: what ``--hf-overrides`` changes.
        windows: False with ``--disable-sliding-window``: every layer attends to everything, within the window's length.

    Raises:
        UnknownModelError: the architecture is not in the table, or the configuration lacks a figure.
    """
    completed = complete_configuration(model.config, files=model.files, overrides=hf_overrides)
    config, text = completed.whole, completed.text
    architecture = architectures.served_name(config)
    found = architectures.family_of(architecture)
    if found is None:
        raise UnknownModelError(f"architecture {architecture or '(none)'} is not in kvgate's table")
    architecture, family = found
    text_architecture = architecture
    declared_window = int(text.get("sliding_window") or 0) or None
    if declared_window is None or not windows:
        same = text is config
        text = {**text, "sliding_window": None}
        config = text if same else config
    if family.bidirectional is not None and family.bidirectional(config):
        same = text is config
        config = {**config, "is_causal": False}
        text = config if same else {**text, "is_causal": False}
    try:
        inner = family.language_model(config, text) if family.language_model else None
        if inner is not None:
            text_architecture = inner
            plan = architectures.FAMILIES.get(inner)
            if plan is None:
                raise UnknownModelError(f"architecture {inner} (language model of {architecture}) is not in the table")
            layers = tuple(plan.plan(text))
        else:
            layers = tuple(family.plan(text))
        if family.beside is not None:
            layers += tuple(family.beside(config))
        if text.get("is_causal", True) is False:
            layers = tuple(replace(layer, kind="encoder") if layer.kind in _MASKED else layer for layer in layers)
        heads = _heads(config, text)
        hidden = int(text.get("hidden_size") or 0)
    except MissingFieldError as error:
        raise UnknownModelError(f"config.json of {architecture} lacks {error.args[0]}") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
        if isinstance(error, UnknownModelError):
            raise
        raise UnknownModelError(f"config.json of {architecture} cannot be read ({error!r})") from None
    model_type = str(config.get("model_type") or "")
    text_type = str(text.get("model_type") or "")
    quantization = _quantization(config)
    uses_mla = _uses_mla(text, text_type)
    derived, auto = context_lengths(text)
    kinds = text.get("layer_types")
    window = text.get("sliding_window")
    everywhere = kinds is None or all(kind == "sliding_attention" for kind in kinds)
    hybrid = family.hybrid and not _all_attention(config)
    return ModelGeometry(
        architecture=architecture,
        text_architecture=text_architecture,
        model_type=model_type,
        text_model_type=text_type,
        config=config,
        text=text,
        family=family,
        runner=family.runner,
        hidden_size=hidden,
        num_layers=_num_layers(text, text_type),
        num_heads=heads,
        num_kv_heads=_kv_heads(config, text, model_type, heads),
        head_size=_head_size(text, text_type, heads, hidden, uses_mla),
        vocab_size=int(text.get("vocab_size") or 0),
        intermediate_size=_first_int(text.get("intermediate_size")),
        num_experts=_first_of(text, _EXPERT_KEYS),
        num_experts_per_token=_first_of(text, _EXPERT_TOP_KEYS),
        moe_intermediate_size=_first_int(text.get("moe_intermediate_size")),
        layers=layers,
        declared_dtype=_dtype(config, text),
        derived_max_model_len=derived,
        auto_max_model_len=auto,
        sliding_window=int(window) if window and everywhere and family.window_everywhere else None,
        declared_window=declared_window,
        quantization_method=str(quantization.get("quant_method") or "") or None if quantization else None,
        quantization_config=quantization,
        uses_mla=uses_mla,
        is_multimodal=family.multimodal,
        is_hybrid=hybrid,
        is_attention_free=family.attention_free,
        is_encoder_decoder=family.encoder_decoder,
        is_mm_prefix=_mm_prefix(config, text, model_type),
        ssm_dtype=_ssm_dtype(family, architectures.FAMILIES.get(text_architecture), text),
        tie_word_embeddings=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        files=model.files,
    )


def without_latent(geometry: ModelGeometry) -> ModelGeometry:
    """The geometry with ``VLLM_MLA_DISABLE=1``: latent attention unfolded to keys and values of every head."""
    if not geometry.uses_mla:
        return geometry
    text = geometry.text
    size = int(text.get("qk_nope_head_dim") or 0) + int(text.get("qk_rope_head_dim") or 0)
    heads = geometry.num_heads

    def unfold(layer: Layer) -> Layer:
        if layer.kind != "mla":
            return layer
        return replace(layer, kind="attention", kv_heads=heads, head_size=size, head_size_v=size, sparse=False)

    layers = tuple(unfold(layer) for layer in geometry.layers if layer.kind != "indexer")
    return replace(geometry, layers=layers, uses_mla=False, head_size=size, num_kv_heads=heads)


def _all_attention(config: Mapping[str, Any]) -> bool:
    kinds = config.get("layer_types")
    return kinds is not None and all(kind in ("attention", "full_attention") for kind in kinds)


def _first_int(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        value = max((item for item in value if isinstance(item, int)), default=0)
    return int(value or 0)


def _first_of(config: Mapping[str, Any], keys: tuple[str, ...]) -> int:
    for key in keys:
        if key in config:
            return _first_int(config[key])
    return 0


def _heads(config: Mapping[str, Any], text: Mapping[str, Any]) -> int:
    return _first_int(text.get("num_attention_heads"))


def _kv_heads(config: Mapping[str, Any], text: Mapping[str, Any], model_type: str, heads: int) -> int:
    if model_type in _NO_ATTENTION_TYPES:
        return 0
    if model_type == "dbrx":
        return int((text.get("attn_config") or {}).get("kv_n_heads") or heads)
    falcon = model_type in ("falcon", "RefinedWeb", "RefinedWebModel")
    if falcon and not text.get("new_decoder_architecture") and text.get("multi_query"):
        return 1
    if model_type == "nemotron-nas":
        for block in text["block_configs"]:
            if not block["attention"].get("no_op"):
                return heads // int(block["attention"]["n_heads_in_group"])
    for key in ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups"):
        if text.get(key) is not None:
            return _first_int(text[key])
    return heads


def _num_layers(text: Mapping[str, Any], text_type: str) -> int:
    if text_type == "longcat_flash":
        return int(text.get("num_layers") or 0)
    return int(text.get("num_hidden_layers") or 0)


def _uses_mla(text: Mapping[str, Any], text_type: str) -> bool:
    if text_type not in _MLA_TYPES or not text.get("is_causal", True):
        return False
    if "compress_ratios" in text:
        return text.get("head_dim") is not None
    return text.get("kv_lora_rank") is not None


def _head_size(text: Mapping[str, Any], text_type: str, heads: int, hidden: int, uses_mla: bool) -> int:
    if text_type in _NO_ATTENTION_TYPES:
        return 0
    if uses_mla:
        if "compress_ratios" in text:
            return int(text["head_dim"])
        return int(text["kv_lora_rank"]) + int(text.get("qk_rope_head_dim") or 0)
    if text_type == "zamba2":
        return int(text.get("attention_head_dim") or 0)
    for key in ("head_dim", "hidden_size_per_head"):
        if text.get(key):
            return _first_int(text[key])
    return hidden // heads if heads else 0


def _dtype(config: Mapping[str, Any], text: Mapping[str, Any]) -> str | None:
    parts = [config, text]
    parts += [inner for key in ("vision_config", "encoder_config") if isinstance(inner := config.get(key), Mapping)]
    for part in parts:
        value = part.get("dtype") or part.get("torch_dtype")
        if isinstance(value, str):
            return value.removeprefix("torch.")
    return None


def context_lengths(text: Mapping[str, Any], *, yarn_scales: bool = False) -> tuple[int | None, int | None]:
    """The context that a configuration implies, and what ``--max-model-len`` defaults to.

    vLLM 0.32.0 ``config/model.py:_get_and_verify_max_len``.

    Args:
        yarn_scales: YaRN multiplies its original length (releases before 0.30); since, the declared one holds.
    """
    lengths = [text[key] for key in _LENGTH_KEYS if isinstance(text.get(key), (int, float))]
    if not lengths:
        return None, None
    derived = float(text.get("model_max_length") or min(lengths))
    ropes = rope_parameters(text)
    if ropes and "gemma3" not in str(text.get("model_type")):
        factor: float | None = 1.0
        for rope in ropes:
            kind = rope.get("rope_type", "default")
            if yarn_scales and kind == "yarn" and rope.get("original_max_position_embeddings"):
                derived = float(rope["original_max_position_embeddings"])
                factor = rope.get("factor", factor)
            elif kind not in _SCALED_ROPE:
                factor = rope.get("factor", factor)
        derived *= factor or 1.0
    auto = derived
    if any(rope.get("rope_type") == "longrope" for rope in ropes):
        auto = float(text.get("original_max_position_embeddings") or derived)
    return int(derived), int(auto)


def _ssm_dtype(family: Family, inner: Family | None, text: Mapping[str, Any]) -> str | None:
    row = family if family.ssm_dtype_key or inner is None else inner
    if row.ssm_dtype_key is None or (row is inner and inner is not family):
        return None
    value = text.get(row.ssm_dtype_key) or row.ssm_dtype_default
    return str(value) if value else None


def _quantization(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The checkpoint's quantization, its method by vLLM's name (``_normalize_quantization_config``)."""
    found = None
    for part in (config, config.get("text_config")):
        if isinstance(part, Mapping):
            found = part.get("quantization_config") or part.get("compression_config")
            if isinstance(found, Mapping) and found:
                break
            found = None
    if found is None:
        return None
    result = dict(found)
    inner = result.get("quantization")
    producer = result.get("producer")
    if (isinstance(producer, Mapping) and producer.get("name") == "modelopt") or (
        isinstance(inner, Mapping) and "modelopt_quant_config" in inner
    ):
        algorithm = str(inner.get("quant_algo") or "").upper() if isinstance(inner, Mapping) else ""
        if algorithm in ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO"):
            result["quant_method"] = "modelopt"
        elif algorithm == "NVFP4":
            result["quant_method"] = "modelopt_fp4"
    result["quant_method"] = (
        str(result.get("quant_method") or "").lower().replace("compressed_tensors", "compressed-tensors")
    )
    return result


def _mm_prefix(config: Mapping[str, Any], text: Mapping[str, Any], model_type: str) -> bool:
    if model_type in _GEMMA4_TYPES:
        return text.get("use_bidirectional_attention") == "vision"
    if model_type == "deepseek_v4":
        return bool(config.get("vision_n_layers"))
    if "is_mm_prefix_lm" in config:
        return bool(config["is_mm_prefix_lm"])
    return model_type in _MM_PREFIX_TYPES
