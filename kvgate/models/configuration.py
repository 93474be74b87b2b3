"""A ``config.json`` as the engine sees it: missing keys filled in, aliases resolved, per-layer lists derived.

A checkpoint's file states only what differs from its configuration class. The class defaults (transformers 5.19 and
vLLM 0.32.0's own classes) are a data table, ``data/configurations.json``; what those classes derive after loading
(layer patterns, head sizes, windows that are switched off) are the rules below, one row per model type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kvgate.records import record
from kvgate.tables import load_table

Config = dict[str, Any]
Rule = Callable[[Config], None]


@record
class Configuration:
    """``whole`` is the complete configuration, ``text`` its language model's part (the same object for text models).

    ``known`` is false when the model type has no row in the table of class defaults: what the file does not say is
    then not known either.
    """

    whole: Mapping[str, Any]
    text: Mapping[str, Any]
    known: bool


# Checkpoints that name no model type, only remote code.
_TYPE_OF_ARCHITECTURE: Final = {
    "LongcatFlashForCausalLM": "longcat_flash",
    "LongcatFlashNgramForCausalLM": "longcat_flash",
}

# Model types whose remote configuration class derives from a known one.
_SAME_DEFAULTS: Final = {"mimo": "qwen2", "kimi_k2": "deepseek_v3", "deepseek_v32": "deepseek_v3"}

# Names under which a language model's configuration is nested, in the order they are looked for.
_TEXT_KEYS: Final = ("text_encoder", "decoder", "generator", "text_config")

# Nested parts that a file may state one level higher: (outer key, keys that belong inside).
_HOISTED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "qwen3_asr": ("thinker_config", ("audio_config", "text_config")),
}

# Older files of these types hold the language model's keys at the top.
_FLAT_TEXT: Final = frozenset({"qwen2_vl", "qwen2_5_vl", "paddleocr_vl", "hunyuan_vl", "isaac"})

_LEGACY_LAYER_TYPES: Final = {
    "mamba": "linear_attention",
    "attention": "full_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}


def class_defaults() -> Mapping[str, Mapping[str, Any]]:
    """Per model type: ``d`` class defaults, ``a`` attribute aliases, ``s`` nested configurations and their types."""
    table: dict[str, Mapping[str, Any]] = load_table("models/configurations")
    return table


def complete_configuration(
    config: Mapping[str, Any],
    *,
    files: Mapping[str, Mapping[str, Any]] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Configuration:
    """The configuration with class defaults, derived fields and ``--hf-overrides`` applied.

    Source: transformers 5.19 ``PreTrainedConfig``, vLLM 0.32.0 ``transformers_utils/config.py:get_config``.
    """
    overrides = dict(overrides or {})
    raw = dict(config)
    for other in ("llm_config", "language_config"):
        if isinstance(raw.get(other), Mapping) and "text_config" not in raw:
            raw["text_config"] = raw[other]
    architectures = raw.get("architectures") or [""]
    model_type = overrides.get("model_type") or raw.get("model_type") or _TYPE_OF_ARCHITECTURE.get(architectures[0], "")
    whole, known = _fill(raw, str(model_type))
    if "quantization_config" not in raw and files:
        legacy = files.get("hf_quant_config.json")
        if legacy is not None:
            whole["quantization_config"] = dict(legacy)
    _override(whole, overrides)
    text = _text_part(whole)
    for part in (whole, text):
        _standardise_rope(part)
    return Configuration(whole, text, known)


def _fill(raw: Mapping[str, Any], model_type: str) -> tuple[Config, bool]:
    table = class_defaults()
    row = table.get(_SAME_DEFAULTS.get(model_type, model_type)) or table.get(model_type)
    result: Config = dict(row["d"]) if row else {}
    aliases: Mapping[str, str] = row.get("a", {}) if row else {}
    nested: Mapping[str, str] = row.get("s", {}) if row else {}
    values = dict(raw)
    if model_type in _FLAT_TEXT and "text_config" not in values:
        keys = table[nested["text_config"]]["d"]
        values["text_config"] = {key: values[key] for key in values if key in keys or key.startswith("rope_")}
    if model_type in _HOISTED and values.get(_HOISTED[model_type][0]) is None:
        outer, keys_inside = _HOISTED[model_type]
        values[outer] = {key: values[key] for key in keys_inside if values.get(key) is not None}
    for key, value in values.items():
        if key == "torch_dtype":
            if value is not None and result.get("dtype") is None:
                result["dtype"] = value
        else:
            result[aliases.get(key, key)] = value
    for key, inner_type in nested.items():
        inner = result.get(key)
        if inner is None or isinstance(inner, Mapping):
            inner = dict(inner or {})
            result[key], _ = _fill(inner, str(inner.get("model_type") or inner_type))
            result[key].setdefault("model_type", inner_type)
    for key, value in list(result.items()):
        unread = key not in nested and key.endswith("_config") and isinstance(value, Mapping)
        if unread and value.get("model_type") in table:
            result[key], _ = _fill(value, str(value["model_type"]))
    result["model_type"] = model_type
    for rule in _RULES.get(model_type, ()):
        rule(result)
    for key in ("layer_types", "mtp_layer_types"):
        if isinstance(result.get(key), list):
            result[key] = [_LEGACY_LAYER_TYPES.get(kind, kind) for kind in result[key]]
    if result.get("num_key_value_heads", 0) is None:
        result["num_key_value_heads"] = result.get("num_attention_heads")
    if result.get("head_dim", 0) is None and row and model_type not in _OWN_HEAD_DIM:
        heads, hidden = result.get("num_attention_heads"), result.get("hidden_size")
        if heads and hidden:
            result["head_dim"] = hidden // heads
    for alias, name in aliases.items():
        if name in result:
            result[alias] = result[name]
    return result, row is not None


def _override(config: Config, overrides: Mapping[str, Any]) -> None:
    for key, value in overrides.items():
        if isinstance(value, Mapping) and isinstance(config.get(key), dict):
            _override(config[key], value)
        else:
            config[key] = value


def _text_part(whole: Config) -> Config:
    thinker = whole.get("thinker_config")
    if isinstance(thinker, dict):
        return _text_part(thinker)
    for key in _TEXT_KEYS:
        if isinstance(whole.get(key), dict):
            part: Config = whole[key]
            return part
    return whole


def rope_parameters(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rotary parameters of a configuration, one mapping per kind of layer where they differ."""
    rope = config.get("rope_parameters")
    if not isinstance(rope, Mapping) or not rope:
        return []
    if all(isinstance(value, Mapping) or value is None for value in rope.values()):
        return [value for value in rope.values() if value]
    return [rope]


def _standardise_rope(config: Config) -> None:
    rope = config.get("rope_scaling") or config.get("rope_parameters")
    theta = config.get("rope_theta", config.get("rotary_emb_base"))
    if not isinstance(rope, Mapping):
        rope = {}
    elif rope and all(isinstance(value, Mapping) or value is None for value in rope.values()):
        config["rope_parameters"] = {key: _with_type(value) if value else value for key, value in rope.items()}
        return
    if rope or theta is not None or "rope_parameters" in config:
        config["rope_parameters"] = _with_type(rope)


def _with_type(rope: Mapping[str, Any]) -> Config:
    kind = rope.get("rope_type", rope.get("type", "default"))
    return {**rope, "rope_type": {"su": "longrope", "mrope": "default", "telechat3-yarn": "yarn"}.get(kind, kind)}


# --- rules of the configuration classes -------------------------------------------------------------------------------

_OWN_HEAD_DIM: Final = frozenset({"deepseek_vl_v2", "hrm_text"})


def _layers(config: Config, key: str = "num_hidden_layers") -> int:
    return int(config.get(key) or 0)


def _every(
    most: str, last: str, period: int, key: str | None = None, *, first: bool = False, force_last: bool = False
) -> Rule:
    """Every ``period``-th layer is ``last``, the others ``most``; ``key`` may give the period.

    ``first``: the period starts with the odd one instead of ending with it. ``force_last``: so is the last layer.
    """

    def rule(config: Config) -> None:
        if config.get("layer_types") is None:
            every = config.get(key) if key else None
            every = period if every is None else int(every)
            shift = 0 if first else 1
            config["layer_types"] = [
                last if every and (index + shift) % every == 0 else most for index in range(_layers(config))
            ]
        if force_last and config["layer_types"]:
            config["layer_types"] = [*config["layer_types"][:-1], last]

    return rule


def _all(kind: str) -> Rule:
    def rule(config: Config) -> None:
        if config.get("layer_types") is None:
            config["layer_types"] = [kind] * _layers(config)

    return rule


def _window_switch(off: int | None = None) -> Rule:
    """``use_sliding_window: false`` switches the window off."""

    def rule(config: Config) -> None:
        if not config.get("use_sliding_window"):
            config["sliding_window"] = off

    return rule


def _window_after(config: Config) -> None:
    """Layers from ``max_window_layers`` on have the window."""
    if config.get("layer_types") is None:
        windowed = config.get("sliding_window") is not None
        after = config.get("max_window_layers") or 0
        config["layer_types"] = [
            "sliding_attention" if windowed and index >= after else "full_attention" for index in range(_layers(config))
        ]


def _window_before(config: Config) -> None:
    if config.get("layer_types") is None:
        below = config.get("max_window_layers") or 0
        config["layer_types"] = [
            "sliding_attention"
            if (index + 1) % 2 and index < below and config.get("use_sliding_window")
            else "full_attention"
            for index in range(_layers(config))
        ]


def _bidirectional_window(value: Any) -> Rule:
    """Two-sided windows are stored as their exclusive half."""

    def rule(config: Config) -> None:
        if config.get("use_bidirectional_attention") == value and config.get("sliding_window"):
            config["sliding_window"] = config["sliding_window"] // 2 + 1

    return rule


def _set(key: str, value: Callable[[Config], Any], *, force: bool = True) -> Rule:
    def rule(config: Config) -> None:
        if force or config.get(key) is None:
            config[key] = value(config)

    return rule


def _from(key: str) -> Callable[[Config], Any]:
    return lambda config: config.get(key)


def _per_head(config: Config) -> int | None:
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    return hidden // heads if heads and hidden else None


def _exaone_windows(config: Config) -> None:
    if config.get("sliding_window") is None:
        config["sliding_window_pattern"] = 0
    pattern = config.get("sliding_window_pattern")
    if config.get("layer_types") is None:
        if isinstance(pattern, str):
            kinds = [pattern[index % len(pattern)] for index in range(_layers(config))]
            config["layer_types"] = ["sliding_attention" if kind == "L" else "full_attention" for kind in kinds]
        else:
            _every("sliding_attention" if pattern else "full_attention", "full_attention", pattern or 0)(config)


def _global_layers(heads_default: Any = None) -> Rule:
    """Gemma 4: full-attention layers have their own head size and, optionally, their own KV heads."""

    def rule(config: Config) -> None:
        given = config.get("per_layer_config")
        if isinstance(given, Mapping):
            config["per_layer_config"] = {int(index): change for index, change in given.items()}
            return
        change: Config = {"head_dim": config.get("global_head_dim") or 512}
        heads = config.get("num_global_key_value_heads", heads_default)
        if heads is not None and (heads_default is not None or config.get("attention_k_eq_v", True)):
            change["num_key_value_heads"] = heads
        config["per_layer_config"] = {
            index: change for index, kind in enumerate(config["layer_types"]) if kind == "full_attention"
        }

    return rule


def _no_rope_layers(kind_without: str, kind_with: str) -> Rule:
    def rule(config: Config) -> None:
        if not config.get("no_rope_layers"):
            interval = config.get("no_rope_layer_interval") or 4
            config["no_rope_layers"] = [int((index + 1) % interval != 0) for index in range(_layers(config))]
        if config.get("layer_types") is None:
            config["layer_types"] = [kind_with if rope else kind_without for rope in config["no_rope_layers"]]

    return rule


def _smollm3(config: Config) -> None:
    windowed = config.get("use_sliding_window") and config.get("sliding_window") is not None
    _no_rope_layers("sliding_attention" if windowed else "full_attention", "full_attention")(config)


def _mamba_inner(config: Config) -> None:
    config["intermediate_size"] = int((config.get("expand") or 2) * (config.get("hidden_size") or 0))


def _mamba_head_dim(config: Config) -> None:
    if config.get("mamba_d_head") == "auto":
        inner = config.get("mamba_d_ssm") or config["mamba_expand"] * config["hidden_size"]
        config["mamba_d_head"] = inner // config["mamba_n_heads"]


def _nemotron_pattern(pattern: str) -> list[str]:
    kinds = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
    return [kinds[letter] for letter in pattern]


def _nemotron_h(config: Config) -> None:
    for new, old in {
        "n_groups": "mamba_n_groups", "conv_kernel": "mamba_d_conv", "expand": "mamba_expand",
        "chunk_size": "mamba_chunk_size",
    }.items():  # fmt: skip
        if old in config:
            config[new] = config[old]
    pattern = config.get("hybrid_override_pattern")
    if config.get("layers_block_type") is None:
        config["layers_block_type"] = (
            _nemotron_pattern(pattern) if pattern else ["linear_attention", "moe", "full_attention", "mlp"]
        )
    config["layers_block_type"] = [_LEGACY_LAYER_TYPES.get(kind, kind) for kind in config["layers_block_type"]]
    config["num_hidden_layers"] = len(config["layers_block_type"])
    mtp = config.get("mtp_hybrid_override_pattern")
    if mtp and config.get("mtp_layers_block_type") in (None, ["full_attention", "moe"]):
        config["mtp_layers_block_type"] = _nemotron_pattern(mtp)
    elif config.get("mtp_layers_block_type") is None:
        config["mtp_layers_block_type"] = ["full_attention", "moe"]


def _jamba(config: Config) -> None:
    period, offset = config["attn_layer_period"], config["attn_layer_offset"]
    config["layers_block_type"] = [
        "attention" if index % period == offset else "mamba" for index in range(_layers(config))
    ]
    config["layer_types"] = list(config["layers_block_type"])


def _zamba2(config: Config) -> None:
    config["attention_hidden_size"] = 2 * config["hidden_size"]
    config["attention_head_dim"] = 2 * config["hidden_size"] // config["num_attention_heads"]
    config["mamba_headdim"] = int(config["mamba_expand"] * config["hidden_size"]) // config["n_mamba_heads"]
    if config.get("use_long_context"):
        config["max_position_embeddings"] = 16384
    if config.get("layers_block_type") is None:
        some = "linear_attention"
        config["layers_block_type"] = [
            some, *([some] * 5 + ["hybrid"]) * 7, *[some] * 4, "hybrid", *[some] * 3, "hybrid", *[some] * 2,
        ]  # fmt: skip
    config["layers_block_type"] = [_LEGACY_LAYER_TYPES.get(kind, kind) for kind in config["layers_block_type"]]
    config["hybrid_layer_ids"] = [i for i, kind in enumerate(config["layers_block_type"]) if kind == "hybrid"]


def _linear_attention(config: Config) -> None:
    inner = config.get("linear_attn_config")
    if isinstance(inner, Mapping):
        for new, old in {
            "linear_head_dim": "head_dim", "linear_num_heads": "num_heads",
            "linear_conv_kernel_dim": "short_conv_kernel_size",
        }.items():  # fmt: skip
            if old in inner:
                config[new] = inner[old]


def _kimi_layers(config: Config) -> None:
    _linear_attention(config)
    if config.get("layer_types") is not None:
        return
    inner = config.get("linear_attn_config") or {}
    if "full_attn_layers" in inner and "kda_layers" in inner:
        full = {layer - 1 for layer in inner["full_attn_layers"]}
        config["layer_types"] = [
            "full_attention" if index in full else "linear_attention" for index in range(_layers(config))
        ]
    else:
        config["layer_types"] = [
            "full_attention" if index and index % 4 == 0 else "linear_attention" for index in range(_layers(config))
        ]


def _indexers(config: Config) -> None:
    if config.get("indexer_types") is not None:
        return
    pattern = config.get("index_topk_pattern")
    if pattern is not None:
        names = {"F": "full", "S": "shared"}
        config["indexer_types"] = [names[c] for c in pattern] if isinstance(pattern, str) else list(pattern)
        return
    frequency = max(config.get("index_topk_freq") or 1, 1)
    offset = config.get("index_skip_topk_offset", 2)
    config["indexer_types"] = [
        "full" if max(index - offset + 1, 0) % frequency == 0 else "shared" for index in range(_layers(config))
    ]


def _olmo_hybrid(config: Config) -> None:
    if config.get("layer_types") is None:
        kinds = ["full_attention" if index % 4 == 3 else "linear_attention" for index in range(_layers(config))]
        if "full_attention" not in kinds and kinds:
            kinds[-1] = "full_attention"
        config["layer_types"] = kinds
    heads = config["num_attention_heads"]
    for key in ("linear_num_key_heads", "linear_num_value_heads"):
        if config.get(key) is None:
            config[key] = heads
    if config.get("linear_key_head_dim") is None:
        config["linear_key_head_dim"] = int(0.75 * config["hidden_size"] / config["linear_num_key_heads"])
    if config.get("linear_value_head_dim") is None:
        config["linear_value_head_dim"] = 2 * config["linear_key_head_dim"]


def _lfm2(config: Config) -> None:
    if config.get("layer_types") is None:
        full = config.get("full_attn_idxs")
        full = set(full) if full is not None else set(range(_layers(config)))
        config["layer_types"] = ["full_attention" if i in full else "conv" for i in range(_layers(config))]


def _inkling(config: Config) -> None:
    if config.get("layer_types") is None:
        local = config.get("local_layer_ids")
        chosen = set(local) if local is not None else {i for i in range(_layers(config)) if (i + 1) % 6}
        config["layer_types"] = ["hybrid_sliding" if i in chosen else "hybrid" for i in range(_layers(config))]


def _mimo_v2(config: Config) -> None:
    if config.get("layer_types") is None:
        config["layer_types"] = [
            "full_attention" if i == 0 or (i + 1) % 6 == 0 else "sliding_attention" for i in range(_layers(config))
        ]


def _muse_glimmer(config: Config) -> None:
    count = _layers(config)
    full = [(count - 1 - index) % 4 == 0 for index in range(count)]
    if config.get("layer_types") is None:
        config["layer_types"] = ["full_attention" if flag else "sliding_attention" for flag in full]
    if config.get("layer_rope_theta") is None:
        theta = (config.get("rope_parameters") or {}).get("rope_theta", 10000.0)
        config["layer_rope_theta"] = [0 if flag else theta for flag in full]


def _cohere2_moe(config: Config) -> None:
    if config.get("layer_types") is None:
        head = config.get("first_k_dense_replace") or 0
        first, rest = config.get("prefix_dense_sliding_window_pattern") or 1, config.get("sliding_window_pattern") or 4
        config["layer_types"] = ["sliding_attention" if (i + 1) % first else "full_attention" for i in range(head)] + [
            "sliding_attention" if (i + 1) % rest else "full_attention" for i in range(_layers(config) - head)
        ]


def _hrm_text(config: Config) -> None:
    if config.get("num_layers_per_stack") is None:
        config["num_layers_per_stack"] = config["num_hidden_layers"]
        config["num_hidden_layers"] = config["num_layers_per_stack"] * config["H_cycles"] * (config["L_cycles"] + 1)


def _minimax_m3(config: Config) -> None:
    sparse = config.get("sparse_attention_config") or {}
    for new, old in {
        "index_n_heads": "sparse_num_index_heads", "index_head_dim": "sparse_index_dim",
        "index_block_size": "sparse_block_size", "index_topk_blocks": "sparse_topk_blocks",
        "index_local_blocks": "sparse_local_block",
    }.items():  # fmt: skip
        if old in sparse:
            config[new] = sparse[old]
    if config.get("layer_types") is None and "sparse_attention_freq" in sparse:
        config["layer_types"] = [
            "minimax_m3_sparse" if f else "full_attention" for f in sparse["sparse_attention_freq"]
        ]
    _all("full_attention")(config)


def _bamba_layers(config: Config) -> None:
    if not config.get("layers_block_type"):
        attention = set(config.get("attn_layer_indices") or ())
        config["layers_block_type"] = ["attention" if i in attention else "mamba" for i in range(_layers(config))]


def _n_embed(config: Config) -> None:
    if config.get("n_embed") is not None:
        config["hidden_size"] = config["n_embed"]


def _qwen4(config: Config) -> None:
    _every("linear_attention", "indexed_attention", 4, "full_attention_interval")(config)
    config["layer_types"] = ["indexed_attention" if k == "full_attention" else k for k in config["layer_types"]]
    config["ple_layer_ids"] = sorted(set(config.get("ple_layer_ids") or ()))
    if config.get("ple_embed_dim") is None:
        config["ple_embed_dim"] = config["hidden_size"]


#: Defaults of Moondream 3's parts, which its file nests in ``config`` (vLLM 0.32.0 ``configs/moondream3.py``).
_MOONDREAM_TEXT: Final = {
    "dim": 2048, "ff_dim": 8192, "n_layers": 24, "vocab_size": 51200, "max_context": 4096, "n_heads": 32,
    "n_kv_heads": 32,
}  # fmt: skip
_MOONDREAM_MOE: Final = {"n_experts": 64, "start_layer": 4, "n_experts_per_tok": 8, "expert_inner_dim": 1024}
_MOONDREAM_VISION: Final = {
    "enc_dim": 1152, "enc_patch_size": 14, "enc_n_layers": 27, "enc_ff_dim": 4304, "enc_n_heads": 16,
    "proj_inner_dim": 8192, "crop_size": 378,
}  # fmt: skip


def _moondream(config: Config) -> None:
    given = config.get("config") or {}
    text = {**_MOONDREAM_TEXT, **(given.get("text") or {})}
    text["moe"] = {**_MOONDREAM_MOE, **(text.get("moe") or {})}
    text |= {
        "hidden_size": text["dim"], "num_hidden_layers": text["n_layers"], "num_attention_heads": text["n_heads"],
        "num_key_value_heads": text["n_kv_heads"], "intermediate_size": text["ff_dim"],
        "max_position_embeddings": text["max_context"], "model_type": "moondream3_text",
    }  # fmt: skip
    config["text_config"] = text
    config["vision_config"] = {**_MOONDREAM_VISION, **(given.get("vision") or {})}


_MLA_HEAD: Final = (
    _set("qk_head_dim", lambda c: (c.get("qk_nope_head_dim") or 0) + (c.get("qk_rope_head_dim") or 0)),
    _set("head_dim", _from("qk_rope_head_dim")),
)
_GEMMA4: Final = (
    _bidirectional_window("all"),
    _every("sliding_attention", "full_attention", 6, force_last=True),
    _global_layers(),
)
_QWEN: Final = (_window_switch(), _window_after)
_FULL_EVERY_4: Final = _every("linear_attention", "full_attention", 4, "full_attention_interval")

_RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "afmoe": (_every("sliding_attention", "full_attention", 4, "global_attn_every_n_layers"),),
    "axk1": _MLA_HEAD,
    "bamba": (_bamba_layers, _mamba_head_dim),
    "bloom": (_n_embed,),
    "cohere2": (
        _set("head_dim", _per_head),
        _every("sliding_attention", "full_attention", 4, "sliding_window_pattern"),
    ),
    "cohere2_moe": (_cohere2_moe,),
    "cohere_compass_text": (_all("full_attention"), _set("head_dim", _per_head)),
    "cwm": (_every("sliding_attention", "full_attention", 4, first=True),),
    "deepseek_ocr2_text": (_set("head_dim", _per_head),),
    "deepseek_v2": _MLA_HEAD,
    "deepseek_v3": _MLA_HEAD,
    "diffusion_gemma_text": _GEMMA4,
    "dots1": (_window_after,),
    "embedding_gemma2_text": (
        _every("sliding_attention", "full_attention", 6, "sliding_window_pattern", force_last=True),
        _global_layers(1),
    ),
    "exaone4": (_exaone_windows,),
    "exaone_moe": (_exaone_windows,),
    "falcon": (_n_embed, _set("num_kv_heads", _from("num_attention_heads"), force=False)),
    "falcon_h1": (_mamba_head_dim,),
    "falcon_mamba": (_mamba_inner,),
    "gemma2": (_every("sliding_attention", "full_attention", 2),),
    "gemma3_text": (
        _bidirectional_window(True),
        _every("sliding_attention", "full_attention", 6, "sliding_window_pattern"),
    ),
    "gemma3n_text": (_every("sliding_attention", "full_attention", 5),),
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "glm5_next_text": (
        _linear_attention,
        _every("linear_attention", "indexed_attention", 4),
        _indexers,
        _set("layer_types", lambda c: ["indexed_attention" if k == "full_attention" else k for k in c["layer_types"]]),
        *_MLA_HEAD,
    ),
    "glm_moe_dsa": (_all("indexed_attention"), _indexers, *_MLA_HEAD),
    "gpt_bigcode": (_set("num_key_value_heads", lambda c: 1 if c.get("multi_query") else c.get("n_head")),),
    "gpt_oss": (_every("sliding_attention", "full_attention", 2),),
    "granite_swa": (_every("sliding_attention", "full_attention", 4, first=True),),
    "granitemoe_swa": (_every("sliding_attention", "full_attention", 4, first=True),),
    "granitemoehybrid": (_mamba_head_dim, _all("linear_attention")),
    "hrm_text": (_hrm_text,),
    "hy_v4": (
        _set(
            "indexer_types",
            lambda c: ["full" if i == 0 or (i - 1) % 4 == 0 else "shared" for i in range(_layers(c))],
            force=False,
        ),
        *_MLA_HEAD,
    ),
    "inkling_model": (_inkling,),
    "inkling_text": (_inkling,),
    "jamba": (_jamba,),
    "kimi_linear": (_kimi_layers, *_MLA_HEAD),
    "laguna": (_all("full_attention"),),
    "lfm2": (_lfm2,),
    "llama4_text": (_no_rope_layers("full_attention", "chunked_attention"),),
    "mamba": (_mamba_inner,),
    "mellum": (_all("full_attention"),),
    "mimo": _QWEN,
    "mimo_v2_flash": (_mimo_v2,),
    "minicpm3": _MLA_HEAD,
    "minimax": (_every("full_attention", "linear_attention", 2),),
    "minimax_m3_vl_text": (_minimax_m3,),
    "ministral": (
        _set(
            "layer_types",
            lambda c: ["full_attention" if c.get("sliding_window") is None else "sliding_attention"] * _layers(c),
            force=False,
        ),
    ),
    "mistral4": (_set("head_dim", lambda c: (c.get("qk_nope_head_dim") or 0) + (c.get("qk_rope_head_dim") or 0)),),
    "modernbert": (_every("sliding_attention", "full_attention", 3, "global_attn_every_n_layers", first=True),),
    "moondream3": (_moondream,),
    "muse_glimmer_text": (_muse_glimmer,),
    "nemotron_h": (_nemotron_h,),
    "olmo3": (_every("sliding_attention", "full_attention", 4),),
    "olmo_hybrid": (_olmo_hybrid,),
    "qwen2": _QWEN,
    "qwen2_5_omni_text": _QWEN,
    "qwen2_5_vl_text": _QWEN,
    "qwen2_moe": (_window_switch(0), _window_before),
    "qwen2_vl_text": _QWEN,
    "qwen3": _QWEN,
    "qwen3_5_moe_text": (_FULL_EVERY_4,),
    "qwen3_5_text": (_FULL_EVERY_4,),
    "qwen3_moe": (_window_switch(),),
    "qwen3_next": (_FULL_EVERY_4,),
    "qwen3_vl_moe_text": (_set("sliding_window", lambda c: None),),
    "qwen4_exp_text": (_qwen4,),
    "smollm3": (_smollm3,),
    "t5gemma": (_every("sliding_attention", "full_attention", 2),),
    "vaultgemma": (_every("sliding_attention", "full_attention", 2),),
    "zamba2": (_zamba2,),
}
