"""One row per architecture: which cache-owning layers a model has, and where their numbers stand in ``config.json``.

Each row names the makers that turn one decoder layer's configuration into :class:`Layer` records; a new model is a new
row. Read from vLLM 0.32.0's model files (``model_executor/models`` and ``models``) and, for architectures that a
release dropped, from the last one that had them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from kvgate.models.configuration import class_defaults
from kvgate.records import record
from kvgate.tables import load_table

Config = Mapping[str, Any]

LayerKind = Literal[
    "attention",  # keys and values of every token, of a window, or of a chunk
    "mla",  # one latent vector per token
    "indexer",  # keys of a sparse attention's indexer
    "recurrent",  # a state of fixed size per request
    "cross",  # keys and values of the encoder's output
    "ring",  # one block per request, whatever its length
    "encoder",  # bidirectional attention, no cache
]


@record
class State:
    """A recurrent layer's state, before sharding.

    ``formula`` names how its tensors are shaped (``mamba1``, ``mamba2``, ``gated_delta``, ``kimi_delta``,
    ``short_conv``, ``linear``); ``inner`` is the width of the convolution's values, ``groups`` the number of key (or
    B/C) groups. ``dtype`` is the recurrent part's dtype where the model asks for one. ``replicated`` states are not
    sharded.
    """

    formula: str
    heads: int = 0
    head_dim: int = 0
    state_size: int = 0
    groups: int = 0
    inner: int = 0
    conv_kernel: int = 0
    dtype: str | None = None
    checkpoints: int = 0
    replicated: bool = False


@record
class Layer:
    """One cache (or one attention without a cache) of decoder layer ``index``.

    ``kv_heads`` and head sizes are of the whole model, before sharding; ``window`` and ``chunk`` are in tokens.
    ``shared`` layers read another layer's cache. ``sink`` marks learned attention sinks (they limit the choice of
    kernels). ``dtype`` and ``bytes_per_state`` are set where the cache has its own format.
    """

    index: int
    kind: LayerKind = "attention"
    heads: int = 0
    kv_heads: int = 0
    head_size: int = 0
    head_size_v: int = 0
    window: int | None = None
    chunk: int | None = None
    shared: bool = False
    sink: bool = False
    sparse: bool = False
    role: str = ""
    dtype: str | None = None
    bytes_per_state: int | None = None
    tokens_per_state: int = 1
    alignment: int | None = None
    block_size: int | None = None
    state: State | None = None


class MissingFieldError(KeyError):
    """The configuration lacks a figure that the architecture's row asks for."""


Maker = Callable[[Config, int], Iterable[Layer]]
Plan = Callable[[Config], Iterable[Layer]]


@record
class Family:
    """A row of the table.

    Attributes:
        plan: makes the layers from the language model's configuration.
        beside: makes those of the other parts that keep a cache, from the whole configuration.
        language_model: names the architecture of the language model inside (from the whole configuration and its
            language model's part); None: this row's own plan.
        hybrid: recurrent and attention layers share blocks (block sizes are aligned).
        bidirectional: whether vLLM turns the causal mask off, by the whole configuration (embedding models).
        default_seq_pooling: how a pooling model summarizes unless told; ``pools_steps``: at each step of its text.
        caches_prefixes: false where the model's own attention forbids prefix caching.
        item_tokens: of the largest image, video or audio clip where those must be processed in one batch.
        most_sequences, most_tokens: what the model lowers the defaults of ``max_num_seqs`` and ``max_model_len`` to.
    """

    plan: Plan
    beside: Plan | None = None
    language_model: Callable[[Config, Config], str | None] | None = None
    runner: Literal["generate", "pooling"] = "generate"
    multimodal: bool = False
    hybrid: bool = False
    attention_free: bool = False
    encoder_decoder: bool = False
    encoder_only: bool = False
    non_causal: bool = False
    window_everywhere: bool = True
    ssm_dtype_key: str | None = None
    ssm_dtype_default: str | None = None
    ssm_dtype_since: str = "0.13.0"
    default_seq_pooling: str = "LAST"
    pools_steps: bool = False
    bidirectional: Callable[[Config], bool] | None = None
    caches_prefixes: bool = True
    item_tokens: int | None = None
    most_sequences: int | None = None
    most_tokens: int | None = None


# --- reading ----------------------------------------------------------------------------------------------------------


def number(config: Config, key: str, default: int | None = None) -> int:
    """An integer of the configuration.

    Raises:
        MissingFieldError: it is absent and has no default.
    """
    value = config.get(key)
    if value is None:
        if default is None:
            raise MissingFieldError(key)
        return default
    return int(value)


def _first_number(config: Config, *keys: str) -> int:
    key = next((key for key in keys if config.get(key) is not None), keys[0])
    return number(config, key)


def query_heads(config: Config) -> int:
    return number(config, "num_attention_heads")


def kv_heads(config: Config) -> int:
    """vLLM ``get_total_num_kv_heads``: the first of these names that the configuration has."""
    for key in ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups"):
        if config.get(key) is not None:
            return int(config[key])
    return query_heads(config)


def head_size(config: Config) -> int:
    size = config.get("head_dim")
    return int(size) if size else number(config, "hidden_size") // query_heads(config)


def even_head_size(config: Config) -> int:
    """Models that always split the hidden size evenly, whatever ``head_dim`` says."""
    return number(config, "hidden_size") // query_heads(config)


Number = Callable[[Config], int]


def at(key: str, default: int | None = None) -> Number:
    return lambda config: number(config, key, default)


# --- makers -----------------------------------------------------------------------------------------------------------

Window = Callable[[Config, int], int | None]


def by_layer_type(key: str = "sliding_window", extra: int = 0, kind: str = "sliding_attention") -> Window:
    """Layers whose ``layer_types`` entry says so have a window."""

    def window(config: Config, index: int) -> int | None:
        kinds = config.get("layer_types")
        if not kinds or kinds[index] != kind or config.get(key) is None:
            return None
        return int(config[key]) + extra

    return window


def always(key: str = "sliding_window", extra: int = 0) -> Window:
    def window(config: Config, index: int) -> int | None:
        return int(config[key]) + extra if config.get(key) is not None else None

    return window


def attention(
    *,
    heads: Number = query_heads,
    kv: Number = kv_heads,
    size: Number = head_size,
    size_v: Number | None = None,
    window: Window | None = None,
    sink: bool | Callable[[Config, int], bool] = False,
    encoder: bool = False,
    shared: Callable[[Config, int], bool] | None = None,
    role: str = "",
    dtype: str | None = None,
) -> Maker:
    """One attention layer with keys and values per KV head."""

    def make(config: Config, index: int) -> Iterable[Layer]:
        width = size(config)
        yield Layer(
            index,
            "encoder" if encoder else "attention",
            heads=heads(config),
            kv_heads=kv(config),
            head_size=width,
            head_size_v=size_v(config) if size_v else width,
            window=window(config, index) if window else None,
            sink=sink(config, index) if callable(sink) else sink,
            shared=shared(config, index) if shared else False,
            role=role,
            dtype=dtype,
        )

    return make


def _has_indexer(config: Config, index: int) -> bool:
    """Whether a sparse layer selects its tokens itself, or reuses another layer's selection."""
    pattern = config.get("index_topk_pattern")
    if pattern is not None:
        return index >= len(pattern) or pattern[index] != "S"
    every = number(config, "index_topk_freq", 1)
    return max(index - number(config, "index_skip_topk_offset", 2) + 1, 0) % every == 0


def mla(
    *,
    sparse: bool | Callable[[Config], bool] = False,
    per_layer: int = 1,
    indexed: Callable[[Config, int], bool] = _has_indexer,
) -> Maker:
    """Multi-head latent attention: one vector of ``kv_lora_rank`` + rotary part per token, not sharded."""

    def make(config: Config, index: int) -> Iterable[Layer]:
        rank, rope = number(config, "kv_lora_rank"), number(config, "qk_rope_head_dim", 0)
        is_sparse = sparse(config) if callable(sparse) else sparse
        for _ in range(per_layer):
            if is_sparse and indexed(config, index):
                yield indexer(config, index)
            yield Layer(index, "mla", heads=query_heads(config), kv_heads=1, head_size=rank + rope, sparse=is_sparse)

    return make


def indexer(config: Config, index: int, *, block: int = 128) -> Layer:
    """Keys of the lightning indexer: one byte an element and a 4-byte scale per block of 128."""
    width = number(config, "index_head_dim")
    return Layer(index, "indexer", kv_heads=1, head_size=width + width // block * 4, dtype="uint8", role="indexer")


def has(key: str) -> Callable[[Config], bool]:
    return lambda config: key in config


def recurrent(state: Callable[[Config], State]) -> Maker:
    def make(config: Config, index: int) -> Iterable[Layer]:
        yield Layer(index, "recurrent", state=state(config))

    return make


def together(*makers: Maker) -> Maker:
    """Several caches in one decoder layer."""

    def make(config: Config, index: int) -> Iterable[Layer]:
        for maker in makers:
            yield from maker(config, index)

    return make


def nothing(config: Config, index: int) -> Iterable[Layer]:
    return ()


def when(test: Callable[[Config], bool], then: Maker, otherwise: Maker) -> Maker:
    def make(config: Config, index: int) -> Iterable[Layer]:
        return then(config, index) if test(config) else otherwise(config, index)

    return make


# --- plans ------------------------------------------------------------------------------------------------------------


_NUM_LAYERS: Final = at("num_hidden_layers")


def each(maker: Maker, count: Number = _NUM_LAYERS) -> Plan:
    """The same kind of layer throughout."""

    def plan(config: Config) -> Iterable[Layer]:
        for index in range(count(config)):
            yield from maker(config, index)

    return plan


def by_kind(key: str, makers: Mapping[str, Maker], count: Number | None = None) -> Plan:
    """The maker that the layer's entry of a list names; a kind without a row is an error."""

    def plan(config: Config) -> Iterable[Layer]:
        kinds = config.get(key)
        if not kinds:
            raise MissingFieldError(key)
        total = count(config) if count else number(config, "num_hidden_layers", len(kinds))
        for index, kind in enumerate(kinds[:total]):
            if kind not in makers:
                raise MissingFieldError(f"{key}[{index}] = {kind!r}")
            yield from makers[kind](config, index)

    return plan


# --- states -----------------------------------------------------------------------------------------------------------


def mamba1(inner: Number, size: str = "state_size", kernel: str = "conv_kernel") -> Callable[[Config], State]:
    return lambda config: State(
        "mamba1", inner=inner(config), state_size=number(config, size), conv_kernel=number(config, kernel)
    )


def mamba2(
    inner: Number, groups: str, heads: str, head_dim: str, size: str, kernel: str, dtype: str | None = None
) -> Callable[[Config], State]:
    return lambda config: State(
        "mamba2",
        heads=number(config, heads),
        head_dim=number(config, head_dim),
        state_size=number(config, size),
        groups=number(config, groups),
        inner=inner(config),
        conv_kernel=number(config, kernel),
        dtype=dtype,
        checkpoints=1,
    )


def gated_delta(config: Config) -> State:
    return State(
        "gated_delta",
        heads=number(config, "linear_num_value_heads"),
        head_dim=number(config, "linear_value_head_dim"),
        groups=number(config, "linear_num_key_heads"),
        state_size=number(config, "linear_key_head_dim"),
        conv_kernel=number(config, "linear_conv_kernel_dim"),
    )


def short_conv(width: Number, kernel: str) -> Callable[[Config], State]:
    return lambda config: State("short_conv", inner=width(config), conv_kernel=number(config, kernel))


def product(first: str, second: str) -> Number:
    return lambda config: int(config[first] * config[second])


# --- the table --------------------------------------------------------------------------------------------------------

_DENSE: Final = attention(window=by_layer_type())
_EVEN: Final = attention(size=even_head_size)
_DENSE_PLAN: Final = each(_DENSE)
_EVEN_PLAN: Final = each(_EVEN)
_ENCODER: Final = each(attention(encoder=True))


def _gemma3n_shared(config: Config, index: int) -> bool:
    shared = int(config.get("num_kv_shared_layers") or 0)
    return shared > 0 and index >= number(config, "num_hidden_layers") - shared


def _per_layer_attention(config: Config, index: int) -> Iterable[Layer]:
    """Gemma 4: head sizes and KV heads by layer, the last layers share."""
    change = (config.get("per_layer_config") or {}).get(index, {})
    inner = {**config, **change}
    yield Layer(
        index,
        heads=query_heads(config),
        kv_heads=kv_heads(inner),
        head_size=head_size(inner),
        head_size_v=head_size(inner),
        window=by_layer_type()(config, index),
        shared=_gemma3n_shared(config, index),
    )


def _nas_layers(config: Config) -> Iterable[Layer]:
    for index, block in enumerate(config["block_configs"]):
        inner = block["attention"]
        if inner.get("no_op"):
            continue
        if inner.get("replace_with_linear"):
            continue
        heads = query_heads(config)
        size = head_size(config)
        yield Layer(index, heads=heads, kv_heads=heads // inner["n_heads_in_group"], head_size=size, head_size_v=size)


def _llama4(config: Config, index: int) -> Iterable[Layer]:
    no_rope = (config.get("no_rope_layers") or [1] * (index + 1))[index] == 0
    chunk = config.get("attention_chunk_size")
    for layer in attention()(config, index):
        yield replace(layer, chunk=None if no_rope else chunk)


def _falcon_kv(config: Config) -> int:
    if config.get("new_decoder_architecture"):
        return number(config, "num_kv_heads", query_heads(config))
    return 1 if config.get("multi_query") else query_heads(config)


def _falcon_h1_inner(config: Config) -> int:
    return number(config, "mamba_d_ssm", int(config["mamba_expand"] * config["hidden_size"]))


_MAMBA2_D: Final = ("mamba_n_groups", "mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_d_conv")
_HYBRID_MAMBA2: Final = recurrent(mamba2(product("mamba_expand", "hidden_size"), *_MAMBA2_D))
_GDN: Final = recurrent(gated_delta)
_IS_SPARSE: Final = has("index_topk")


def _is_latent(config: Config) -> bool:
    """DeepSeek's small models (in its OCR and vision models) have plain attention: neither part of the head is set."""
    parts = [config.get(key) for key in ("qk_nope_head_dim", "qk_rope_head_dim")]
    return any(parts) or all(part is None for part in parts)


_DEEPSEEK: Final = each(when(_is_latent, mla(sparse=_IS_SPARSE), _EVEN))
_NEMOTRON_H: Final = by_kind(
    "layers_block_type",
    {
        "linear_attention": recurrent(
            mamba2(
                lambda c: number(c, "mamba_num_heads") * number(c, "mamba_head_dim"),
                "n_groups",
                "mamba_num_heads",
                "mamba_head_dim",
                "ssm_state_size",
                "conv_kernel",
            )
        ),
        "full_attention": attention(window=always()),
        "moe": nothing,
        "mlp": nothing,
    },
)
_QWEN_NEXT: Final = by_kind("layer_types", {"linear_attention": _GDN, "full_attention": attention()})
_LFM2: Final = by_kind(
    "layer_types",
    {
        "conv": recurrent(short_conv(lambda c: number(c, "conv_dim", number(c, "hidden_size")), "conv_L_cache")),
        "full_attention": _EVEN,
    },
)

# --- language models inside multimodal ones ---------------------------------------------------------------------------


def fixed(architecture: str) -> Callable[[Config, Config], str | None]:
    return lambda config, text: architecture


def of_text(config: Config, text: Config) -> str | None:
    """The architecture that the language model's own configuration names, or its model type implies."""
    names = text.get("architectures")
    if names:
        return str(names[0])
    row = class_defaults().get(str(text.get("model_type")), {})
    return str(row["c"]) if "c" in row else str(text.get("model_type"))


def inside(language_model: Callable[[Config, Config], str | None] = of_text, **flags: Any) -> Family:
    """A multimodal model: its caches are its language model's."""
    return Family(_DENSE_PLAN, language_model=language_model, multimodal=True, **flags)


def _minicpmv(config: Config, text: Config) -> str | None:
    version = config.get("version")
    if version is None:
        return (
            "LlamaForCausalLM"
            if config.get("hidden_size") == 2304 and config.get("query_num") == 64
            else "MiniCPMForCausalLM"
        )
    return {
        "2.0": "MiniCPMForCausalLM", "2.5": "LlamaForCausalLM", "2.6": "Qwen2ForCausalLM", "4.0": "LlamaForCausalLM",
        "4.5": "Qwen3ForCausalLM",
    }.get(str(version))  # fmt: skip


def _yes(config: Config) -> bool:
    return True


def _no_layers(config: Config) -> Iterable[Layer]:
    return ()


# --- rows with caches of their own ------------------------------------------------------------------------------------


def _cohere_window(config: Config, index: int) -> int | None:
    return by_layer_type(extra=1)(config, index)


def _chatglm_kv(config: Config) -> int:
    return number(config, "multi_query_group_num") if config.get("multi_query_attention") else query_heads(config)


def _dbrx(config: Config, index: int) -> Iterable[Layer]:
    heads = number(config, "n_heads")
    size = number(config, "d_model") // heads
    yield Layer(index, heads=heads, kv_heads=int(config["attn_config"]["kv_n_heads"]), head_size=size, head_size_v=size)


def _expanded_latent(config: Config, index: int) -> Iterable[Layer]:
    """Latent attention whose keys and values are stored per head."""
    heads = query_heads(config)
    size = number(config, "qk_nope_head_dim") + number(config, "qk_rope_head_dim")
    yield Layer(index, heads=heads, kv_heads=heads, head_size=size, head_size_v=size)


def _mimo_v2(config: Config, index: int) -> Iterable[Layer]:
    """Layers with their own head sizes; values may be narrower than keys (``mimo_v2.py``)."""
    pattern = config.get("hybrid_layer_pattern")
    if pattern is None:
        raise MissingFieldError("hybrid_layer_pattern")
    prefix = "swa_" if pattern[index] == 1 else ""
    size = number(config, prefix + "head_dim")
    value = config.get(prefix + "v_head_dim")
    window = number(config, "sliding_window_size") if prefix else None
    yield Layer(
        index,
        heads=number(config, prefix + "num_attention_heads"),
        kv_heads=number(config, prefix + "num_key_value_heads"),
        head_size=size,
        head_size_v=int(value) if value is not None else size,
        window=window if window is None or window > -1 else None,
        sink=bool(prefix and config.get("add_swa_attention_sink_bias")),
    )


def _step3p5(config: Config, index: int) -> Iterable[Layer]:
    kinds = config.get("layer_types") or []
    sliding = kinds[index] == "sliding_attention" if kinds else index % 2 == 0
    heads, groups, size = config.get("num_attention_heads"), config.get("num_attention_groups"), config.get("head_dim")
    other = config.get("attention_other_setting")
    if other and kinds and kinds[index] == other["attention_type"]:
        heads, groups, size = other["num_attention_heads"], other["num_attention_groups"], other["head_dim"]
    width = int(size) if size else number(config, "hidden_size") // int(heads or 1)
    window = config.get("sliding_window")
    yield Layer(
        index,
        heads=int(heads or 0),
        kv_heads=int(groups or 0),
        head_size=width,
        head_size_v=width,
        window=int(window) if window and sliding else None,
    )


def _step3_text(config: Config, index: int) -> Iterable[Layer]:
    size = number(config, "head_dim")
    yield Layer(index, heads=query_heads(config), kv_heads=1, head_size=size, head_size_v=size)


def _clip_text(config: Config, index: int) -> Iterable[Layer]:
    """The text tower's layers take no cache settings: always the model's dtype."""
    for layer in attention()(config, index):
        yield replace(layer, dtype="model")


def _hrm_text(config: Config) -> Iterable[Layer]:
    """One cache per recurrence step and layer of the stacks."""
    high, low = number(config, "H_cycles"), number(config, "L_cycles")
    for index in range(number(config, "num_layers_per_stack") * high * (low + 1)):
        heads, size = query_heads(config), head_size(config)
        yield Layer(index, heads=heads, kv_heads=heads, head_size=size, head_size_v=size)


def _dory(config: Config) -> Iterable[Layer]:
    """Attention and MLPs alternate as ``layer_types`` says; the middle layers run several times (``dory.py``)."""
    kinds, first = config["layer_types"], number(config, "n_input_layers")
    looped = range(first, first + number(config, "n_recurrent_layers"))
    loops = number(config, "n_recurrent_loops") if config.get("recurrent_kv_cache_mode") == "per_loop" else 1
    for index, kind in enumerate(kinds):
        if kind != "mlp":
            for _ in range(loops if index in looped else 1):
                yield from _DENSE(config, index)


def _domyn_edge(config: Config, index: int) -> Iterable[Layer]:
    """Head sizes by layer; windows are written as pairs and count one token less (``domyn_edge.py``)."""
    per_layer = config.get("per_layer_config")
    if not isinstance(per_layer, (list, Mapping)):
        raise MissingFieldError("per_layer_config")
    own = per_layer[index] if isinstance(per_layer, list) else per_layer.get(str(index), per_layer.get(index)) or {}
    size = number(own, "head_dim", head_size(config))
    back = int(config["window_sizes"][index][0])
    yield Layer(
        index,
        heads=query_heads(config),
        kv_heads=kv_heads(config),
        head_size=size,
        head_size_v=size,
        window=back + 1 if back > 0 else None,
    )


def _loop_coder(config: Config) -> Iterable[Layer]:
    """The layers run several times; later loops keep a window."""
    count, loops = number(config, "num_hidden_layers"), number(config, "loop_num", 2)
    window = number(config, "loop_window_size", 64)
    for index in range(count):
        for loop in range(loops):
            size = even_head_size(config)
            yield Layer(
                index,
                heads=query_heads(config),
                kv_heads=kv_heads(config),
                head_size=size,
                head_size_v=size,
                window=window if loop else None,
            )


def _zamba2(config: Config) -> Iterable[Layer]:
    """Every layer holds a state; hybrid ones an attention layer each as well."""
    state = mamba2(
        product("mamba_expand", "hidden_size"),
        "mamba_ngroups", "n_mamba_heads", "mamba_headdim", "mamba_d_state", "mamba_d_conv",
    )(config)  # fmt: skip
    heads, size = query_heads(config), number(config, "attention_head_dim")
    for index, kind in enumerate(config["layers_block_type"]):
        if kind == "hybrid":
            yield Layer(index, heads=heads, kv_heads=kv_heads(config), head_size=size, head_size_v=size)
    for index in range(len(config["layers_block_type"])):
        yield Layer(index, "recurrent", state=state)


def _whisper(config: Config) -> Iterable[Layer]:
    heads = number(config, "decoder_attention_heads")
    size = number(config, "d_model") // heads
    for index in range(number(config, "decoder_layers")):
        yield Layer(index, heads=heads, kv_heads=heads, head_size=size, head_size_v=size)
        yield Layer(index, "cross", heads=heads, kv_heads=heads, head_size=size, head_size_v=size)


def _plamo2(config: Config, index: int) -> Iterable[Layer]:
    """One layer of each period attends (``plamo2.py:is_mamba``)."""
    count, step = number(config, "num_hidden_layers"), number(config, "mamba_step", 2)
    attends = index == count - 1 if count <= step // 2 else index % step == step // 2
    size = number(config, "hidden_size_per_head")
    if attends or not config.get("mamba_enabled", True):
        yield Layer(index, heads=query_heads(config), kv_heads=kv_heads(config), head_size=size, head_size_v=size)
        return
    heads = number(config, "mamba_num_heads")
    state = State(
        "mamba2", heads=heads, head_dim=size, state_size=number(config, "mamba_d_state"), inner=heads * size,
        conv_kernel=number(config, "mamba_d_conv"), checkpoints=1,
    )  # fmt: skip
    yield Layer(index, "recurrent", state=state)


def _streaming_encoder(config: Config) -> Iterable[Layer]:
    """A causal encoder of speech: several of its positions are kept for each token (``whisper_causal.py``)."""
    audio = config["audio_config"]
    pooled, window = number(audio, "block_pool_size", 1), audio.get("sliding_window")
    heads, size = number(audio, "encoder_attention_heads"), number(audio, "encoder_head_dim")
    for _ in range(number(audio, "encoder_layers")):
        yield Layer(
            0,
            heads=heads,
            kv_heads=heads * pooled,
            head_size=size,
            head_size_v=size,
            window=-(-int(window) // pooled) + 1 if window else None,
        )


def _cohere_asr(config: Config) -> Iterable[Layer]:
    inner = config["transf_decoder"]["config_dict"]
    heads = int(inner["num_attention_heads"])
    size = int(inner["hidden_size"]) // heads
    for index in range(int(inner["num_layers"])):
        yield Layer(index, heads=heads, kv_heads=heads, head_size=size, head_size_v=size)
        yield Layer(index, "cross", heads=heads, kv_heads=heads, head_size=size, head_size_v=size)


def _kimi_delta(config: Config) -> State:
    inner = config.get("linear_attn_config") or {}
    heads = int(inner.get("num_heads") or _first_number(config, "linear_num_heads", "linear_num_key_heads"))
    width = int(inner.get("head_dim") or _first_number(config, "linear_head_dim", "linear_key_head_dim"))
    kernel = int(inner.get("short_conv_kernel_size") or number(config, "linear_conv_kernel_dim"))
    # A bounded gate (of full rank, in Kimi's own) is what the checkpointing prefill kernel takes.
    bound = config.get("linear_lower_bound")
    if inner:
        bound = inner.get("gate_lower_bound") if inner.get("use_full_rank_gate") else None
    bounded = bound is not None and width == 128
    return State(
        "kimi_delta", heads=heads, head_dim=width, state_size=width, groups=heads, conv_kernel=kernel, dtype="float32",
        checkpoints=int(bounded),
    )  # fmt: skip


def _bailing_linear(config: Config) -> State:
    return State("linear", heads=query_heads(config), head_dim=head_size(config))


def _minimax_linear(config: Config) -> State:
    return State("linear", heads=query_heads(config), head_dim=head_size(config))


def _bailing_v25(config: Config, index: int) -> Iterable[Layer]:
    group = number(config, "layer_group_size", 1)
    if group > 0 and (index + 1) % group:
        yield Layer(index, "recurrent", state=_bailing_linear(config))
    else:
        yield from mla()(config, index)


def _bailing_v3(config: Config, index: int) -> Iterable[Layer]:
    group, count = number(config, "layer_group_size", 1), number(config, "num_hidden_layers")
    if (index + 1) % group == 0 or index >= count // group * group:
        yield from mla()(config, index)
    else:
        heads, width = query_heads(config), number(config, "head_dim")
        yield Layer(
            index,
            "recurrent",
            state=State(
                "kimi_delta",
                heads=heads,
                head_dim=width,
                state_size=width,
                groups=heads,
                conv_kernel=number(config, "short_conv_kernel_size", 4),
                dtype="float32",
            ),
        )


def _kimi_linear(config: Config) -> Iterable[Layer]:
    inner = config.get("linear_attn_config") or {}
    if config.get("kv_lora_rank") is None:
        raise MissingFieldError("kv_lora_rank")
    delta = {layer - 1 for layer in inner.get("kda_layers") or ()}
    kinds = config.get("layer_types")
    for index in range(number(config, "num_hidden_layers")):
        linear = index in delta if inner else bool(kinds and kinds[index] == "linear_attention")
        if linear:
            yield Layer(index, "recurrent", state=_kimi_delta(config))
        else:
            yield from mla()(config, index)


def deepseek_v4(config: Config, index: int) -> Iterable[Layer]:
    """A window of latent vectors, compressed latent vectors, an indexer and the compressors' states."""
    ratios = config.get("compress_ratios")
    if ratios is None:
        raise MissingFieldError("compress_ratios")
    ratio = max(1, int(ratios[index])) if index < len(ratios) else 1
    width, window = number(config, "head_dim"), number(config, "sliding_window")
    heads = query_heads(config)
    if ratio == 4:
        size = number(config, "index_head_dim")
        yield Layer(
            index, "mla", kv_heads=1, head_size=size + size // 128 * 4, dtype="uint8", role="dsv4_indexer",
            tokens_per_state=ratio, alignment=576,
        )  # fmt: skip
        yield _compressor(index, ratio, size)
    yield Layer(
        index, "mla", kv_heads=1, head_size=width, dtype="uint8", role="dsv4_window", bytes_per_state=584,
        window=window, alignment=576, block_size=64,
    )  # fmt: skip
    if ratio > 1:
        yield Layer(
            index, "mla", heads=heads, kv_heads=1, head_size=width, dtype="uint8", role="dsv4_latent",
            bytes_per_state=584, tokens_per_state=ratio, alignment=576,
        )  # fmt: skip
        yield _compressor(index, ratio, width)


def _compressor(index: int, ratio: int, width: int) -> Layer:
    overlap = 2 if ratio == 4 else 1
    return Layer(
        index, "mla", kv_heads=1, head_size=2 * overlap * width, dtype="float32", role="dsv4_state",
        window=overlap * ratio, alignment=576, block_size=4 if ratio == 4 else 8,
    )  # fmt: skip


def _inkling(config: Config, index: int) -> Iterable[Layer]:
    """Attention and, per layer, a window of four convolution streams (``models/inkling``)."""
    local = index in (config.get("local_layer_ids") or ())
    prefix = "swa_" if local else ""
    heads, groups, size = (
        number(config, prefix + "num_attention_heads"),
        number(config, prefix + "num_key_value_heads"),
        number(config, prefix + "head_dim"),
    )
    packed = 2 * size + 2 * (number(config, "hidden_size") // groups)
    kernel = number(config, "sconv_kernel_size")
    yield Layer(
        index, kv_heads=groups, head_size=1 << (packed - 1).bit_length(), window=kernel, dtype="model",
        role="inkling_conv", block_size=kernel,
    )  # fmt: skip
    yield Layer(
        index,
        heads=heads,
        kv_heads=groups,
        head_size=size,
        head_size_v=size,
        window=number(config, "sliding_window_size") if local else None,
        role="inkling_attention",
    )


def _minimax_m3(config: Config, index: int) -> Iterable[Layer]:
    sparse = config.get("sparse_attention_config") or {}
    frequency = sparse.get("sparse_attention_freq")
    kinds = config.get("layer_types")
    chosen = bool(frequency[index]) if frequency else bool(kinds and kinds[index] == "minimax_m3_sparse")
    if chosen:
        width = int(sparse.get("sparse_index_dim") or number(config, "index_head_dim"))
        yield Layer(index, "indexer", kv_heads=1, head_size=width, dtype="bfloat16", role="minimax_indexer")
    for layer in attention()(config, index):
        yield replace(layer, role="minimax_sparse") if chosen else layer


def _glm5_next(config: Config, index: int) -> Iterable[Layer]:
    kinds = config["layer_types"]
    if kinds[index] == "linear_attention":
        yield Layer(index, "recurrent", state=_kimi_delta(config))
        return
    if config.get("index_topk") is not None:
        width, pool = number(config, "index_head_dim"), number(config, "index_kpool")
        yield Layer(
            index, "indexer", kv_heads=1, head_size=width + width // 128 * 4, dtype="uint8", role="kpool_indexer",
            tokens_per_state=pool,
        )  # fmt: skip
        yield Layer(
            index, "ring", kv_heads=2, head_size=width, dtype="bfloat16", role="kpool_tail", tokens_per_state=1,
            block_size=pool,
        )  # fmt: skip
    yield Layer(
        index,
        "mla",
        heads=query_heads(config),
        kv_heads=1,
        head_size=number(config, "kv_lora_rank") + number(config, "qk_rope_head_dim", 0),
        sparse=config.get("index_topk") is not None,
    )


def _qwen4(config: Config, index: int) -> Iterable[Layer]:
    """Gated delta nets; sparse attention beside the indexer's keys; one layer mixes n-grams by a convolution."""
    kind = config["layer_types"][index]
    if kind == "linear_attention":
        yield Layer(index, "recurrent", state=gated_delta(config))
    elif config.get("indexer_n_heads") is None:
        yield from attention()(config, index)
    else:
        width, ratio = number(config, "indexer_head_dim"), number(config, "indexer_compress_ratio", 1)
        ropes = config.get("rope_parameters") or {}
        # Multimodal positions (three of 8 bytes) are kept beside the raw keys.
        raw = (width + 3) // 4 * 4 + 12 if "mrope_section" in ropes else width
        yield from attention(role="qsa_attention")(config, index)
        yield Layer(index, "ring", kv_heads=1, head_size=raw, dtype="bfloat16", role="qsa_ring", block_size=ratio)
        yield Layer(
            index, "mla", kv_heads=1, head_size=width, dtype="bfloat16", role="qsa_keys", tokens_per_state=ratio
        )
    if index + 1 in (config.get("ple_layer_ids") or ()):
        rows = (number(config, "ple_conv_kernel_size") - 1) * number(config, "ngram_size")
        inner = number(config, "hidden_size") * number(config, "hc_count")
        yield Layer(index, "recurrent", state=State("short_conv", inner=inner, conv_kernel=rows + 1, replicated=True))


_SPARSE_KINDS: Final = frozenset({"sparse_attention", "sparse", "indexed_attention", "deepseek_sparse_attention"})


def _hy_v4_indexer(config: Config, index: int) -> bool:
    kinds = config.get("indexer_types")
    return kinds[index] != "shared" if kinds else _has_indexer(config, index)


def _hy_v4(config: Config, index: int) -> Iterable[Layer]:
    kinds = config.get("layer_types")
    sparse = "index_topk" in config and bool(kinds and index < len(kinds) and kinds[index] in _SPARSE_KINDS)
    yield from mla(sparse=sparse, indexed=_hy_v4_indexer)(config, index)


_MINIMAX_KINDS: Final = {
    "linear_attention": recurrent(_minimax_linear),
    "full_attention": attention(),
}


def _minimax_text(config: Config) -> Iterable[Layer]:
    kinds = config.get("attn_type_list") or config.get("layer_types")
    if not kinds:
        raise MissingFieldError("attn_type_list")
    for index, kind in enumerate(kinds[: number(config, "num_hidden_layers")]):
        maker = _MINIMAX_KINDS["full_attention" if kind in (1, "full_attention") else "linear_attention"]
        yield from maker(config, index)


def _plamo3_window(config: Config, index: int) -> int | None:
    windows = config.get("interleaved_sliding_window") or config.get("sliding_window")
    if isinstance(windows, (list, tuple)):
        return int(windows[index]) if windows[index] is not None else None
    return by_layer_type()(config, index)


def _pangu_sink(config: Config, index: int) -> Iterable[Layer]:
    """openPangu: learned keys and values before every request's where the model has them."""
    sinks = number(config, "param_sink_number", 0)
    width = at("v_channels", head_size(config)) if sinks else None
    yield from attention(window=_pangu_window, size_v=width, role="static_sink" if sinks else "")(config, index)


def _pangu_window(config: Config, index: int) -> int | None:
    windows = config.get("interleaved_sliding_window")
    if isinstance(windows, (list, tuple)):
        return int(windows[index % len(windows)])
    return int(windows) if windows is not None else None


def _exaone_moe_window(config: Config, index: int) -> int | None:
    if config["layer_types"][index] == "full_attention":
        return None
    windows = config.get("sliding_windows")
    return int(windows[index]) if windows else by_layer_type()(config, index)


def _minimax_m2_window(config: Config, index: int) -> int | None:
    windows = config.get("attn_window_size")
    return int(windows) if isinstance(windows, int) and windows > 0 else None


def _muse_window(config: Config, index: int) -> int | None:
    theta = config.get("layer_rope_theta")
    if not theta or not theta[index]:
        return None
    return int(config["sliding_window"]) if config.get("sliding_window") else None


def _molmo_kv(config: Config) -> int:
    return number(config, "num_key_value_heads", query_heads(config))


def _moondream3(config: Config, index: int) -> Iterable[Layer]:
    heads = number(config, "n_heads")
    size = number(config, "dim") // heads
    yield Layer(index, heads=heads, kv_heads=number(config, "n_kv_heads"), head_size=size, head_size_v=size)


def _step1_kv(config: Config) -> int:
    return number(config, "num_attention_groups", 1)


_GRANITE: Final = attention(
    window=by_layer_type(),
    sink=lambda c, i: bool(c.get("attention_sinks", c.get("layer_types") is not None)),
)
_COHERE2: Final = attention(window=_cohere_window)
_UNLIMITED_OCR: Final = each(attention(size=even_head_size, role="references"))
# Falcon hands its layers no cache options: their cache keeps the dtype of the model.
_FALCON: Final = attention(size=even_head_size, kv=_falcon_kv, dtype="model")
_PLAIN: Final = Family(each(attention()))
_EVEN_FAMILY: Final = Family(_EVEN_PLAN)
_DENSE_FAMILY: Final = Family(_DENSE_PLAN)
_BIDIRECTIONAL: Final = Family(_ENCODER, runner="pooling", encoder_only=True, default_seq_pooling="CLS")
# ModernBERT and SigLIP hand their layers no cache options.
_UNTOLD: Final = replace(_BIDIRECTIONAL, plan=each(attention(encoder=True, dtype="model")))
_GEMMA4: Final = Family(each(_per_layer_attention))
_GEMMA4_VIDEO: Final = 32 * (70 + 2 + 6)  # frames x (soft tokens + delimiters + time stamp)
_GEMMA3N: Final = Family(each(attention(window=by_layer_type(), shared=_gemma3n_shared)))
_GPT_OSS: Final = Family(
    each(
        attention(
            window=lambda c, i: int(c["sliding_window"]) if i % 2 == 0 and c.get("sliding_window") else None,
            sink=True,
        )
    )
)
_MLA: Final = Family(_DEEPSEEK)
_STEP3P5: Final = Family(each(_step3p5), window_everywhere=False)
_MIMO_V2: Final = Family(each(_mimo_v2), window_everywhere=False)
_GDN_FAMILY: Final = Family(_QWEN_NEXT, hybrid=True)
_QWEN35_MM: Final = Family(_QWEN_NEXT, hybrid=True, multimodal=True, ssm_dtype_key="mamba_ssm_dtype")
_NEMOTRON_FAMILY: Final = Family(
    _NEMOTRON_H, hybrid=True, ssm_dtype_key="mamba_ssm_cache_dtype", ssm_dtype_default="float32"
)
_KIMI: Final = Family(_kimi_linear, hybrid=True)
_DSV4: Final = Family(each(deepseek_v4))
_INKLING: Final = Family(each(_inkling), window_everywhere=False)
_JAMBA_PLAN: Final = by_kind(
    "layers_block_type",
    {
        "mamba": recurrent(mamba1(product("mamba_expand", "hidden_size"), "mamba_d_state", "mamba_d_conv")),
        "attention": _EVEN,
    },
)
_BAMBA_PLAN: Final = by_kind(
    "layers_block_type",
    {"linear_attention": _HYBRID_MAMBA2, "mamba": _HYBRID_MAMBA2, "full_attention": _EVEN, "attention": _EVEN},
)

FAMILIES: Final[dict[str, Family]] = {
    # decoders with the same attention throughout, or windows by ``layer_types``
    "AfmoeForCausalLM": _DENSE_FAMILY,
    "AliceAIForCausalLM": Family(
        by_kind("layer_types", {"linear_attention": recurrent(_kimi_delta), "full_attention": attention()}), hybrid=True
    ),
    "ApertusForCausalLM": _DENSE_FAMILY,
    "AquilaForCausalLM": _DENSE_FAMILY,
    "AquilaModel": _DENSE_FAMILY,
    "ArceeForCausalLM": _DENSE_FAMILY,
    "ArcticForCausalLM": _EVEN_FAMILY,
    "BaiChuanForCausalLM": _EVEN_FAMILY,
    "BaichuanForCausalLM": _EVEN_FAMILY,
    "BailingMoeForCausalLM": _PLAIN,
    "BailingMoeV2ForCausalLM": _PLAIN,
    "BeamForCausalLM": Family(_DENSE_PLAN, window_everywhere=False),
    "BloomForCausalLM": Family(each(attention(size=even_head_size, kv=query_heads))),
    "ChatGLMForConditionalGeneration": Family(each(attention(size=even_head_size, kv=_chatglm_kv), at("num_layers"))),
    "ChatGLMModel": Family(each(attention(size=even_head_size, kv=_chatglm_kv), at("num_layers"))),
    "Cohere2ForCausalLM": Family(each(_COHERE2)),
    "Cohere2MoeForCausalLM": Family(each(_COHERE2)),
    "CohereForCausalLM": _PLAIN,
    "CwmForCausalLM": _DENSE_FAMILY,
    "DbrxForCausalLM": Family(each(_dbrx, at("n_layers"))),
    "DeciLMForCausalLM": Family(_nas_layers),
    "DeepseekForCausalLM": _EVEN_FAMILY,
    "DomynEdgeForCausalLM": Family(each(_domyn_edge), window_everywhere=False),
    "DoryForCausalLM": Family(_dory, window_everywhere=False),
    "Dots1ForCausalLM": _PLAIN,
    "Ernie4_5ForCausalLM": _DENSE_FAMILY,
    "Ernie4_5_ForCausalLM": _DENSE_FAMILY,
    "Ernie4_5_MoeForCausalLM": _PLAIN,
    "Exaone4ForCausalLM": _DENSE_FAMILY,
    "ExaoneForCausalLM": Family(
        each(attention(), lambda c: number(c, "num_layers", number(c, "num_hidden_layers", 0)))
    ),
    "ExaoneMoEForCausalLM": Family(each(attention(window=_exaone_moe_window))),
    "ExaoneMoeForCausalLM": Family(each(attention(window=_exaone_moe_window))),
    "Fairseq2LlamaForCausalLM": _DENSE_FAMILY,
    "FalconForCausalLM": Family(each(_FALCON)),
    "FlexOlmoForCausalLM": _DENSE_FAMILY,
    "FlintForCausalLM": Family(each(attention(window=by_layer_type(), sink=True))),
    "GPT2LMHeadModel": Family(each(attention(size=even_head_size, kv=query_heads))),
    "GPTBigCodeForCausalLM": Family(each(attention(size=even_head_size))),
    "GPTJForCausalLM": Family(each(attention(size=even_head_size, kv=query_heads))),
    "GPTNeoXForCausalLM": Family(each(attention(size=even_head_size, kv=query_heads))),
    "Gemma2ForCausalLM": _DENSE_FAMILY,
    "Gemma3ForCausalLM": _DENSE_FAMILY,
    "Gemma3nForCausalLM": _GEMMA3N,
    "Gemma4ForCausalLM": _GEMMA4,
    "GemmaForCausalLM": _PLAIN,
    "Glm4ForCausalLM": _PLAIN,
    "Glm4MoeForCausalLM": _PLAIN,
    "GlmForCausalLM": _DENSE_FAMILY,
    "GptOssForCausalLM": _GPT_OSS,
    "GraniteForCausalLM": Family(each(_GRANITE)),
    "GraniteMoeForCausalLM": Family(
        each(attention(size=even_head_size, window=by_layer_type(), sink=lambda c, i: c.get("layer_types") is not None))
    ),
    "GraniteMoeSWAForCausalLM": Family(
        each(attention(size=even_head_size, window=by_layer_type(), sink=lambda c, i: c.get("layer_types") is not None))
    ),
    "GraniteMoeSharedForCausalLM": Family(
        each(attention(size=even_head_size, window=by_layer_type(), sink=lambda c, i: c.get("layer_types") is not None))
    ),
    "GraniteSWAForCausalLM": Family(each(_GRANITE)),
    "GritLM": _DENSE_FAMILY,
    "Grok1ForCausalLM": _EVEN_FAMILY,
    "Grok1ModelForCausalLM": _EVEN_FAMILY,
    "HYV3ForCausalLM": _PLAIN,
    "HrmTextForCausalLM": Family(_hrm_text, non_causal=True),
    "HunYuanDenseV1ForCausalLM": _DENSE_FAMILY,
    "HunYuanMoEV1ForCausalLM": _DENSE_FAMILY,
    "HyperCLOVAXForCausalLM": _PLAIN,
    "IQuestCoderForCausalLM": _DENSE_FAMILY,
    "IQuestLoopCoderForCausalLM": Family(_loop_coder),
    "InternLM2ForCausalLM": _EVEN_FAMILY,
    "InternLM2VEForCausalLM": _EVEN_FAMILY,
    "InternLM3ForCausalLM": _DENSE_FAMILY,
    "InternLMForCausalLM": _DENSE_FAMILY,
    "JAISLMHeadModel": Family(each(attention(size=even_head_size, kv=query_heads))),
    "Jais2ForCausalLM": _DENSE_FAMILY,
    "K2HorizonForCausalLM": _PLAIN,
    "LagunaForCausalLM": Family(_DENSE_PLAN, window_everywhere=False),
    "Llama4ForCausalLM": Family(each(_llama4)),
    "LlamaForCausalLM": _DENSE_FAMILY,
    "MPTForCausalLM": _EVEN_FAMILY,
    "Kolibri1ForCausalLM": _DENSE_FAMILY,
    "MellumForCausalLM": _DENSE_FAMILY,
    "MiMoForCausalLM": _EVEN_FAMILY,
    "MiMoV2FlashForCausalLM": _MIMO_V2,
    "MiMoV2ForCausalLM": _MIMO_V2,
    "MiniCPM3ForCausalLM": Family(each(_expanded_latent)),
    "MiniCPMForCausalLM": _EVEN_FAMILY,
    "MiniMaxM2ForCausalLM": Family(each(attention(window=_minimax_m2_window))),
    "MiniMaxM3SparseForCausalLM": Family(each(_minimax_m3)),
    "Ministral3ForCausalLM": _DENSE_FAMILY,
    "MistralForCausalLM": _DENSE_FAMILY,
    "MixtralForCausalLM": _PLAIN,
    "MptForCausalLM": _EVEN_FAMILY,
    "MuseGlimmerForCausalLM": Family(each(attention(window=_muse_window)), window_everywhere=False),
    "NanbeigeForCausalLM": _DENSE_FAMILY,
    "NemotronForCausalLM": _PLAIN,
    "OPTForCausalLM": Family(each(attention(size=even_head_size, kv=query_heads))),
    "Olmo2ForCausalLM": _DENSE_FAMILY,
    "Olmo3ForCausalLM": _DENSE_FAMILY,
    "OlmoForCausalLM": _DENSE_FAMILY,
    "OlmoeForCausalLM": _EVEN_FAMILY,
    "OrionForCausalLM": _EVEN_FAMILY,
    "OuroForCausalLM": _PLAIN,
    "PanguEmbeddedForCausalLM": Family(each(attention(window=_pangu_window))),
    "Param2MoEForCausalLM": _PLAIN,
    "PersimmonForCausalLM": Family(each(attention(size=even_head_size, kv=query_heads))),
    "MotifForCausalLM": _PLAIN,
    "Phi3SmallForCausalLM": _EVEN_FAMILY,
    "Plamo2ForCausalLM": Family(each(_plamo2), hybrid=True),
    "Phi3ForCausalLM": _DENSE_FAMILY,
    "PhiForCausalLM": Family(each(attention(size=even_head_size))),
    "PhiMoEForCausalLM": _PLAIN,
    "Plamo3ForCausalLM": Family(each(attention(window=_plamo3_window))),
    "QWenLMHeadModel": Family(each(attention(size=even_head_size, kv=query_heads))),
    "Qwen2ForCausalLM": _EVEN_FAMILY,
    "Qwen2MoeForCausalLM": _EVEN_FAMILY,
    "Qwen3ForCausalLM": _PLAIN,
    "Qwen3MoeForCausalLM": _PLAIN,
    "RWForCausalLM": Family(each(_FALCON)),
    "Rnj1ForCausalLM": Family(each(attention(window=by_layer_type()))),
    "SarvamMoEForCausalLM": _PLAIN,
    "SeedOssForCausalLM": _DENSE_FAMILY,
    "SmolLM3ForCausalLM": _DENSE_FAMILY,
    "SolarForCausalLM": _PLAIN,
    "StableLMEpochForCausalLM": _EVEN_FAMILY,
    "StableLmForCausalLM": _EVEN_FAMILY,
    "Starcoder2ForCausalLM": _DENSE_FAMILY,
    "Step1ForCausalLM": Family(each(attention(size=even_head_size, kv=_step1_kv))),
    "Step3TextForCausalLM": Family(each(_step3_text)),
    "Step3p5ForCausalLM": _STEP3P5,
    "TeleChat2ForCausalLM": _DENSE_FAMILY,
    "TeleChat3ForCausalLM": _DENSE_FAMILY,
    "TeleChatForCausalLM": _DENSE_FAMILY,
    "TeleFLMForCausalLM": _DENSE_FAMILY,
    "VaultGemmaForCausalLM": _DENSE_FAMILY,
    "XverseForCausalLM": _DENSE_FAMILY,
    # latent attention
    "AXK1ForCausalLM": _MLA,
    "DeepseekV2ForCausalLM": _MLA,
    "DeepseekV32ForCausalLM": _MLA,
    "DeepseekV3ForCausalLM": _MLA,
    "DeepseekV4ForCausalLM": _DSV4,
    "Glm4MoeLiteForCausalLM": _MLA,
    "GlmMoeDsaForCausalLM": _MLA,
    "HYV4ForCausalLM": Family(each(_hy_v4)),
    "LongcatFlashForCausalLM": Family(each(mla(per_layer=2), at("num_layers"))),
    "LongcatFlashNgramForCausalLM": Family(each(mla(per_layer=2), at("num_layers"))),
    "MistralLarge3ForCausalLM": _MLA,
    "PanguProMoEV2ForCausalLM": Family(each(_pangu_sink)),
    "PanguUltraMoEForCausalLM": _MLA,
    "SarvamMLAForCausalLM": _MLA,
    # recurrent and hybrid
    "BailingMoeV2_5ForCausalLM": Family(each(_bailing_v25), hybrid=True),
    "BailingMoeV3ForCausalLM": Family(each(_bailing_v3), hybrid=True),
    "BambaForCausalLM": Family(_BAMBA_PLAN, hybrid=True),
    "FalconH1ForCausalLM": Family(
        each(together(recurrent(mamba2(_falcon_h1_inner, *_MAMBA2_D)), attention())), hybrid=True
    ),
    "FalconMambaForCausalLM": Family(each(recurrent(mamba1(at("intermediate_size")))), attention_free=True),
    "Glm5NextForCausalLM": Family(each(_glm5_next), hybrid=True),
    "GraniteMoeHybridForCausalLM": Family(
        by_kind(
            "layer_types",
            {"linear_attention": _HYBRID_MAMBA2, "full_attention": _EVEN, "mamba": _HYBRID_MAMBA2, "attention": _EVEN},
        ),
        hybrid=True,
    ),
    "InklingForCausalLM": _INKLING,
    "JambaForCausalLM": Family(_JAMBA_PLAN, hybrid=True),
    "KimiLinearForCausalLM": _KIMI,
    "Lfm2ForCausalLM": Family(_LFM2, hybrid=True),
    "Lfm2MoeForCausalLM": Family(_LFM2, hybrid=True),
    "Mamba2ForCausalLM": Family(
        each(
            recurrent(
                mamba2(
                    lambda c: number(c, "intermediate_size", int(c["expand"] * c["hidden_size"])),
                    "n_groups",
                    "num_heads",
                    "head_dim",
                    "state_size",
                    "conv_kernel",
                )
            )
        ),
        attention_free=True,
    ),
    "MambaForCausalLM": Family(each(recurrent(mamba1(at("intermediate_size")))), attention_free=True),
    "MiniMaxForCausalLM": Family(_minimax_text, hybrid=True),
    "MiniMaxM1ForCausalLM": Family(_minimax_text, hybrid=True),
    "MiniMaxText01ForCausalLM": Family(_minimax_text, hybrid=True),
    "NemotronHForCausalLM": _NEMOTRON_FAMILY,
    "NemotronHPuzzleForCausalLM": _NEMOTRON_FAMILY,
    "OlmoHybridForCausalLM": Family(
        by_kind("layer_types", {"linear_attention": _GDN, "full_attention": _EVEN}), hybrid=True
    ),
    "Qwen3NextForCausalLM": _GDN_FAMILY,
    "Qwen4ExpForCausalLM": Family(each(_qwen4), hybrid=True, ssm_dtype_key="mamba_ssm_dtype"),
    "Qwen3_5ForCausalLM": Family(_QWEN_NEXT, hybrid=True, ssm_dtype_key="mamba_ssm_dtype"),
    "Qwen3_5MoeForCausalLM": Family(_QWEN_NEXT, hybrid=True, ssm_dtype_key="mamba_ssm_dtype"),
    "Zamba2ForCausalLM": Family(_zamba2, hybrid=True),
    # drafts
    "DFlashDraftModel": _DENSE_FAMILY,
    "DFlashLagunaForCausalLM": _DENSE_FAMILY,
    "Eagle3DeepseekV2ForCausalLM": _MLA,
    "Eagle3DeepseekV3ForCausalLM": _MLA,
    "Eagle3LlamaForCausalLM": _DENSE_FAMILY,
    "Eagle3MiniMaxM2ForCausalLM": _DENSE_FAMILY,
    "Eagle3Qwen2_5vlForCausalLM": _DENSE_FAMILY,
    "Eagle3Qwen3ForCausalLM": _DENSE_FAMILY,
    "Eagle3Qwen3vlForCausalLM": _DENSE_FAMILY,
    "EagleLlama4ForCausalLM": _DENSE_FAMILY,
    "EagleLlamaForCausalLM": _DENSE_FAMILY,
    "EagleMistralForCausalLM": _DENSE_FAMILY,
    "LlamaForCausalLMEagle3": _DENSE_FAMILY,
    "PEagleDraftModel": _DENSE_FAMILY,
    "PeagleLlamaForCausalLM": _DENSE_FAMILY,
    "PeagleQwen3ForCausalLM": _DENSE_FAMILY,
    "Qwen3DSparkModel": _DENSE_FAMILY,
    # encoders, embeddings, classifiers
    "BertForMaskedLM": _BIDIRECTIONAL,
    "BertForSequenceClassification": _BIDIRECTIONAL,
    "BertForTokenClassification": _BIDIRECTIONAL,
    "BertModel": _BIDIRECTIONAL,
    "BertSpladeSparseEmbeddingModel": _BIDIRECTIONAL,
    "BgeM3EmbeddingModel": _BIDIRECTIONAL,
    "CLIPModel": Family(each(_clip_text), runner="pooling", multimodal=True),
    "GteModel": _BIDIRECTIONAL,
    "GteNewForSequenceClassification": _BIDIRECTIONAL,
    "GteNewModel": _BIDIRECTIONAL,
    "HF_ColBERT": _BIDIRECTIONAL,
    "ModernBertForSequenceClassification": _UNTOLD,
    "ModernBertForTokenClassification": _UNTOLD,
    "ModernBertModel": _UNTOLD,
    "NomicBertModel": _BIDIRECTIONAL,
    "OpenAIPrivacyFilterForTokenClassification": _BIDIRECTIONAL,
    "RobertaForMaskedLM": _BIDIRECTIONAL,
    "RobertaForSequenceClassification": _BIDIRECTIONAL,
    "RobertaForTokenClassification": _BIDIRECTIONAL,
    "RobertaModel": _BIDIRECTIONAL,
    "SiglipModel": _UNTOLD,
    "XLMRobertaForSequenceClassification": _BIDIRECTIONAL,
    "XLMRobertaForTokenClassification": _BIDIRECTIONAL,
    "XLMRobertaModel": _BIDIRECTIONAL,
    "ErnieForSequenceClassification": _BIDIRECTIONAL,
    "ErnieForTokenClassification": _BIDIRECTIONAL,
    "ErnieModel": _BIDIRECTIONAL,
    "GPT2ForSequenceClassification": Family(each(attention(size=even_head_size, kv=query_heads)), runner="pooling"),
    "Gemma2Model": Family(_DENSE_PLAN, runner="pooling"),
    "ClefFlashForJointSchema": inside(fixed("Qwen3_5ForCausalLM"), runner="pooling", hybrid=True),
    "ClefOmniForJointSchema": inside(fixed("Qwen3MoeForCausalLM"), runner="pooling"),
    "ColBERTJinaRobertaModel": _BIDIRECTIONAL,
    "ColBERTLfm2Model": Family(_LFM2, runner="pooling", hybrid=True, default_seq_pooling="CLS"),
    "ColBERTModernBertModel": _UNTOLD,
    "ColPaliForRetrieval": inside(runner="pooling", default_seq_pooling="CLS"),
    "ColQwen3_5": Family(
        _QWEN_NEXT,
        runner="pooling",
        hybrid=True,
        multimodal=True,
        ssm_dtype_key="mamba_ssm_dtype",
        default_seq_pooling="CLS",
        bidirectional=lambda c: c.get("retrieval_attention_contract") == "bidirectional",
    ),
    "D3ForSequenceClassification": replace(_QWEN35_MM, runner="pooling"),
    "DeepseekV3BidirectionalModel": Family(_DEEPSEEK, runner="pooling"),
    "EmbeddingGemma2Model": Family(
        _ENCODER, runner="pooling", encoder_only=True, multimodal=True, default_seq_pooling="MEAN", most_tokens=8192
    ),
    "Gemma3TextModel": Family(
        _DENSE_PLAN, runner="pooling", bidirectional=lambda c: bool(c.get("use_bidirectional_attention"))
    ),
    "InternLM2ForRewardModel": Family(_EVEN_PLAN, runner="pooling"),
    "JinaEmbeddingsV5Model": Family(
        _DENSE_PLAN, runner="pooling", bidirectional=lambda c: not c.get("is_decoder", True)
    ),
    "JinaForRanking": Family(_DENSE_PLAN, runner="pooling"),
    "JinaVLForRanking": inside(fixed("Qwen2ForCausalLM"), runner="pooling"),
    "Lfm2BidirectionalModel": Family(
        by_kind("layer_types", {"conv": nothing, "full_attention": attention(size=even_head_size, encoder=True)}),
        runner="pooling",
        encoder_only=True,
    ),
    "LlamaBidirectionalForSequenceClassification": Family(_DENSE_PLAN, runner="pooling", bidirectional=_yes),
    "LlamaBidirectionalModel": Family(_DENSE_PLAN, runner="pooling", bidirectional=_yes),
    "LlamaNemotronVLForSequenceClassification": inside(runner="pooling", bidirectional=_yes),
    "LlamaNemotronVLModel": inside(runner="pooling", bidirectional=_yes),
    "OpsColQwen3Model": inside(fixed("Qwen3ForCausalLM"), runner="pooling", default_seq_pooling="CLS"),
    "Qwen3ASRForcedAlignerForTokenClassification": inside(fixed("Qwen3ForCausalLM"), runner="pooling"),
    "Qwen3VLNemotronEmbedModel": inside(fixed("Qwen3ForCausalLM"), runner="pooling", default_seq_pooling="CLS"),
    "Terratorch": Family(_no_layers, runner="pooling", attention_free=True, encoder_only=True, multimodal=True),
    "VoyageQwen3BidirectionalEmbedModel": Family(_DENSE_PLAN, runner="pooling", bidirectional=_yes),
    "JambaForSequenceClassification": Family(_JAMBA_PLAN, runner="pooling", hybrid=True),
    "LlamaModel": _DENSE_FAMILY,
    "MistralModel": _DENSE_FAMILY,
    "Qwen2ForProcessRewardModel": Family(_EVEN_PLAN, runner="pooling", pools_steps=True),
    "Qwen2ForRewardModel": Family(_EVEN_PLAN, runner="pooling"),
    "Qwen2Model": _EVEN_FAMILY,
    # encoder-decoder
    "CohereAsrForConditionalGeneration": Family(_cohere_asr, multimodal=True, encoder_decoder=True),
    "WhisperForConditionalGeneration": Family(_whisper, multimodal=True, encoder_decoder=True),
    "BartForConditionalGeneration": Family(_whisper, encoder_decoder=True),
    "BartModel": Family(_whisper, encoder_decoder=True),
    "DonutForConditionalGeneration": Family(_whisper, multimodal=True, encoder_decoder=True),
    "Florence2ForConditionalGeneration": Family(_whisper, multimodal=True, encoder_decoder=True),
    "MBartForConditionalGeneration": Family(_whisper, encoder_decoder=True),
    "NemotronParseForConditionalGeneration": Family(_whisper, multimodal=True, encoder_decoder=True),
    # multimodal: the language model's caches
    "Alpamayo2Super": inside(fixed("Qwen3ForCausalLM")),
    "AriaForConditionalGeneration": Family(_DENSE_PLAN, multimodal=True),
    "AudioFlamingo3ForConditionalGeneration": inside(fixed("Qwen2ForCausalLM")),
    "AyaVisionForConditionalGeneration": inside(fixed("Cohere2ForCausalLM")),
    "BagelForConditionalGeneration": inside(fixed("Qwen2ForCausalLM")),
    "BailingMoeV3VLForConditionalGeneration": inside(fixed("BailingMoeV3ForCausalLM"), hybrid=True),
    "BeeForConditionalGeneration": inside(),
    "Blip2ForConditionalGeneration": inside(),
    "Cohere2VisionForConditionalGeneration": inside(),
    "ChameleonForConditionalGeneration": Family(_DENSE_PLAN, multimodal=True),
    "CohereCompassForConditionalGeneration": Family(_DENSE_PLAN, multimodal=True),
    "ColModernVBertForRetrieval": Family(_ENCODER, runner="pooling", encoder_only=True, multimodal=True),
    "ColQwen3": inside(fixed("Qwen3ForCausalLM"), runner="pooling", default_seq_pooling="CLS"),
    "Cosmos3EdgeForConditionalGeneration": Family(each(attention()), multimodal=True),
    "Cosmos3ForConditionalGeneration": inside(fixed("Qwen3ForCausalLM")),
    "DeepseekOCR2ForCausalLM": inside(),
    "DeepseekOCRForCausalLM": inside(),
    "DeepseekV4ForConditionalGeneration": Family(each(deepseek_v4), multimodal=True),
    "DeepseekVLV2ForCausalLM": inside(),
    "DiffusionGemmaForBlockDiffusion": Family(
        each(_per_layer_attention), multimodal=True, non_causal=True, most_sequences=8
    ),
    "DotsOCRForCausalLM": inside(fixed("Qwen2ForCausalLM")),
    "Eagle2_5_VLForConditionalGeneration": inside(),
    "Emu3ForConditionalGeneration": Family(_DENSE_PLAN, multimodal=True),
    "Ernie4_5_VLMoeForConditionalGeneration": Family(each(attention()), multimodal=True),
    "Exaone4_5_ForConditionalGeneration": inside(fixed("Exaone4ForCausalLM")),
    "FireRedASR2ForConditionalGeneration": inside(fixed("Qwen2ForCausalLM")),
    "FunASRForConditionalGeneration": inside(fixed("Qwen3ForCausalLM")),
    "FunAudioChatForConditionalGeneration": inside(fixed("Qwen3ForCausalLM")),
    "FuyuForCausalLM": Family(each(attention(size=even_head_size, kv=query_heads)), multimodal=True),
    "Gemma3ForConditionalGeneration": inside(fixed("Gemma3ForCausalLM")),
    "Gemma3nForConditionalGeneration": inside(fixed("Gemma3nForCausalLM")),
    "Gemma4ForConditionalGeneration": inside(fixed("Gemma4ForCausalLM"), item_tokens=_GEMMA4_VIDEO),
    "Gemma4UnifiedForConditionalGeneration": inside(fixed("Gemma4ForCausalLM"), item_tokens=_GEMMA4_VIDEO),
    "Glm4vForConditionalGeneration": inside(fixed("Glm4ForCausalLM")),
    "Glm4vMoeForConditionalGeneration": inside(fixed("Glm4MoeForCausalLM")),
    "Glm5NextForConditionalGeneration": inside(fixed("Glm5NextForCausalLM"), hybrid=True),
    "GlmAsrForConditionalGeneration": inside(fixed("LlamaForCausalLM")),
    "GlmOcrForConditionalGeneration": inside(fixed("Glm4ForCausalLM")),
    "GLM4VForCausalLM": Family(each(attention(size=even_head_size, kv=_chatglm_kv), at("num_layers")), multimodal=True),
    "Granite4VisionForConditionalGeneration": inside(fixed("GraniteForCausalLM")),
    "GraniteSpeechForConditionalGeneration": inside(),
    "GraniteSpeechPlusForConditionalGeneration": inside(),
    "H2OVLChatModel": inside(),
    "HCXVisionForCausalLM": inside(),
    "HCXVisionV2ForCausalLM": inside(),
    "HunYuanVLForConditionalGeneration": Family(_DENSE_PLAN, multimodal=True),
    "Idefics3ForConditionalGeneration": inside(fixed("LlamaForCausalLM")),
    "InklingForConditionalGeneration": Family(each(_inkling), multimodal=True, window_everywhere=False),
    "InternS1ForConditionalGeneration": inside(),
    "InternS1ProForConditionalGeneration": Family(each(attention()), multimodal=True),
    "InternS2MobiusForConditionalGeneration": _QWEN35_MM,
    "InternS2PreviewForConditionalGeneration": _QWEN35_MM,
    "InternVLChatModel": inside(),
    "InternVLForConditionalGeneration": inside(),
    "IsaacForConditionalGeneration": inside(fixed("Qwen3ForCausalLM")),
    "KananaVForConditionalGeneration": inside(fixed("LlamaForCausalLM")),
    "KeyeForConditionalGeneration": inside(fixed("Qwen3ForCausalLM")),
    "KeyeVL1_5ForConditionalGeneration": inside(fixed("Qwen3ForCausalLM")),
    "KimiK25ForConditionalGeneration": inside(fixed("DeepseekV2ForCausalLM")),
    "KimiK3ForConditionalGeneration": inside(fixed("KimiLinearForCausalLM"), hybrid=True),
    "KimiVLForConditionalGeneration": inside(fixed("DeepseekV2ForCausalLM")),
    "Lfm2VlForConditionalGeneration": inside(hybrid=True),
    "LightOnOCRForConditionalGeneration": inside(),
    "Llama4ForConditionalGeneration": inside(fixed("Llama4ForCausalLM")),
    "Llama_Nemotron_Nano_VL": inside(),
    "LlavaForConditionalGeneration": inside(),
    "NemotronH_Nano_VL": inside(hybrid=True, ssm_dtype_key="mamba_ssm_cache_dtype", ssm_dtype_default="float32"),
    "QuantMixtralForCausalLM": _DENSE_FAMILY,
    "LlavaNextForConditionalGeneration": inside(),
    "LlavaNextVideoForConditionalGeneration": inside(),
    "LlavaOnevision2ForConditionalGeneration": inside(fixed("Qwen3ForCausalLM")),
    "LlavaOnevisionForConditionalGeneration": inside(),
    "MantisForConditionalGeneration": inside(),
    "MiDashengLMModel": inside(fixed("Qwen2ForCausalLM")),
    "MiMoV2OmniForCausalLM": Family(each(_mimo_v2), multimodal=True, window_everywhere=False),
    "MiniCPMO": inside(_minicpmv),
    "MiniCPMOcrForConditionalGeneration": inside(fixed("Qwen3_5ForCausalLM"), hybrid=True),
    "MiniCPMV": inside(_minicpmv),
    "MiniCPMV4_6ForConditionalGeneration": inside(fixed("Qwen3_5ForCausalLM"), hybrid=True),
    "MiniCPMV4_7ForConditionalGeneration": inside(fixed("Qwen3_5ForCausalLM"), hybrid=True),
    "MiniMaxM3SparseForConditionalGeneration": Family(each(_minimax_m3), multimodal=True),
    "MiniMaxVL01ForConditionalGeneration": inside(fixed("MiniMaxText01ForCausalLM"), hybrid=True),
    "MllamaForConditionalGeneration": Family(each(attention()), multimodal=True, encoder_decoder=True),
    "Mistral3ForConditionalGeneration": inside(),
    "Molmo2ForConditionalGeneration": Family(each(attention()), multimodal=True),
    "MolmoForCausalLM": Family(each(attention(size=even_head_size, kv=_molmo_kv)), multimodal=True),
    "Moondream3ForCausalLM": Family(each(_moondream3, at("n_layers")), multimodal=True),
    "MoonshotKimiaForCausalLM": inside(fixed("Qwen2ForCausalLM")),
    "MossAudioModel": inside(fixed("Qwen3ForCausalLM")),
    "MossTranscribeDiarizeForConditionalGeneration": inside(fixed("Qwen3ForCausalLM")),
    "MuseGlimmerForConditionalGeneration": Family(
        each(attention(window=_muse_window)), multimodal=True, window_everywhere=False
    ),
    "MusicFlamingoForConditionalGeneration": inside(fixed("Qwen2ForCausalLM")),
    "NVLM_D": inside(),
    "NemotronH_Nano_Omni_Reasoning_V3": inside(hybrid=True),
    "NemotronH_Nano_VL_V2": inside(hybrid=True, ssm_dtype_key="mamba_ssm_cache_dtype", ssm_dtype_default="float32"),
    "NemotronH_Omni_Reasoning_V3": inside(hybrid=True),
    "NemotronH_Super_Omni_Reasoning_V3": inside(hybrid=True),
    "OpenCUAForConditionalGeneration": inside(fixed("Qwen2ForCausalLM")),
    "OpenPanguVLForConditionalGeneration": inside(fixed("PanguEmbeddedForCausalLM")),
    "OpenVLAForActionPrediction": inside(),
    "Ovis": inside(),
    "Ovis2_5": inside(),
    "Ovis2_6ForCausalLM": inside(),
    "Ovis2_6_MoeForCausalLM": inside(),
    "PaddleOCRVLForConditionalGeneration": inside(fixed("Ernie4_5ForCausalLM")),
    "PaliGemmaForConditionalGeneration": inside(),
    "Phi3VForCausalLM": inside(fixed("LlamaForCausalLM")),
    "Phi4ForCausalLMV": inside(fixed("Phi3ForCausalLM")),
    "Phi4MMForCausalLM": inside(fixed("LlamaForCausalLM")),
    "PixtralForConditionalGeneration": inside(),
    "QianfanOCRForConditionalGeneration": inside(),
    "Qwen2AudioForConditionalGeneration": inside(fixed("Qwen2ForCausalLM")),
    "Qwen2VLForConditionalGeneration": inside(fixed("Qwen2ForCausalLM")),
    "Qwen2_5OmniForConditionalGeneration": inside(fixed("Qwen2ForCausalLM")),
    "Qwen2_5OmniModel": inside(fixed("Qwen2ForCausalLM")),
    "Qwen2_5_VLForConditionalGeneration": inside(fixed("Qwen2ForCausalLM")),
    "Qwen3ASRForConditionalGeneration": inside(fixed("Qwen3ForCausalLM")),
    "Qwen3ASRRealtimeGeneration": inside(fixed("Qwen3ForCausalLM")),
    "Qwen3OmniMoeForConditionalGeneration": inside(fixed("Qwen3MoeForCausalLM")),
    "Qwen3VLForConditionalGeneration": inside(fixed("Qwen3ForCausalLM")),
    "Qwen3VLMoeForConditionalGeneration": inside(fixed("Qwen3MoeForCausalLM")),
    "Qwen3_5ForConditionalGeneration": _QWEN35_MM,
    "Qwen3_5MoeForConditionalGeneration": _QWEN35_MM,
    "Qwen4ExpForConditionalGeneration": Family(
        each(_qwen4), hybrid=True, multimodal=True, ssm_dtype_key="mamba_ssm_dtype"
    ),
    "RForConditionalGeneration": inside(),
    "SkyworkR1VChatModel": inside(),
    "SmolVLMForConditionalGeneration": inside(fixed("LlamaForCausalLM")),
    "Step3VLForConditionalGeneration": inside(fixed("Step3TextForCausalLM")),
    "Step3p7ForConditionalGeneration": inside(fixed("Step3p5ForCausalLM"), window_everywhere=False),
    "StepVLForConditionalGeneration": inside(),
    "Tarsier2ForConditionalGeneration": inside(fixed("Qwen2ForCausalLM")),
    "TarsierForConditionalGeneration": inside(),
    "UltravoxModel": inside(),
    "UnlimitedOCRForCausalLM": Family(_UNLIMITED_OCR, multimodal=True, caches_prefixes=False),
    "VibeVoiceAsrForConditionalGeneration": Family(_DENSE_PLAN, multimodal=True),
    "VoxtralForConditionalGeneration": inside(),
    "VoxtralRealtimeGeneration": inside(beside=_streaming_encoder),
    "VoxtralStreamingGeneration": inside(beside=_streaming_encoder),
}

# How vLLM derives a base model from the name of a pooling model, in this order (``config/model.py``).
SUFFIXES: Final[tuple[tuple[str, Literal["generate", "pooling"]], ...]] = (
    ("ForCausalLM", "generate"),
    ("ForConditionalGeneration", "generate"),
    ("ChatModel", "generate"),
    ("LMHeadModel", "generate"),
    ("ForTextEncoding", "pooling"),
    ("EmbeddingModel", "pooling"),
    ("ForSequenceClassification", "pooling"),
    ("ForTokenClassification", "pooling"),
    ("ForAudioClassification", "pooling"),
    ("ForImageClassification", "pooling"),
    ("ForVideoClassification", "pooling"),
    ("ClassificationModel", "pooling"),
    ("ForRewardModeling", "pooling"),
    ("RewardModel", "pooling"),
    ("Model", "pooling"),
)


def family_of(architecture: str) -> tuple[str, Family] | None:
    """The row of an architecture, under the name it is served by; pooling heads are served by their base model."""
    found = FAMILIES.get(architecture)
    if found is not None:
        return architecture, found
    for suffix, runner in SUFFIXES:
        if architecture.endswith(suffix):
            for other, _ in SUFFIXES:
                base = architecture.replace(suffix, other)
                if base in FAMILIES:
                    return base, replace(FAMILIES[base], runner=runner)
            return None
    return None


# Names that a checkpoint uses for another row.
ALIASES: Final[Mapping[str, str]] = {"LLaMAForCausalLM": "LlamaForCausalLM", "HfMoondream": "Moondream3ForCausalLM"}
# Architectures that vLLM replaces when a key of the configuration is set: (key, written, served).
REWRITES: Final[tuple[tuple[str, str, str], ...]] = (
    ("vision_n_layers", "DeepseekV4ForCausalLM", "DeepseekV4ForConditionalGeneration"),
    ("vision_config", "MiMoV2FlashForCausalLM", "MiMoV2OmniForCausalLM"),
    ("vision_config", "MiMoV2ForCausalLM", "MiMoV2OmniForCausalLM"),
)


def served_name(config: Config) -> str:
    """The architecture that a configuration is served as; empty where it names none."""
    names = config.get("architectures") or []
    name = str(names[0]) if names else architecture_of_type(str(config.get("model_type")))
    for key, written, served in REWRITES:
        if name == written and config.get(key):
            return served
    return ALIASES.get(name, name)


def served_releases(architecture: str) -> tuple[str | None, str | None]:
    """The first and the last vLLM release with an implementation; None where it is older than 0.4.2 or still served."""
    first, last = load_table("models/served").get(architecture, (None, None))
    return first, last


def architecture_of_type(model_type: str) -> str:
    """What a checkpoint without an ``architectures`` entry is served as."""
    return str(class_defaults().get(model_type, {}).get("m", ""))
