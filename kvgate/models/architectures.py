"""One row per architecture: which cache-owning layers a model has, and where their numbers stand in ``config.json``.

Each row names the makers that turn one decoder layer's configuration into :class:`Layer` records; a new model is a new
row. Read from vLLM 0.32.0's model files (``model_executor/models`` and ``models``) and, for architectures that a
release dropped, from the last one that had them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

Config = Mapping[str, Any]

LayerKind = Literal[
    "attention",  # keys and values of every token, of a window, or of a chunk
    "mla",  # one latent vector per token
    "indexer",  # keys of a sparse attention's indexer
    "recurrent",  # a state of fixed size per request
    "cross",  # keys and values of the encoder's output
    "encoder",  # bidirectional attention, no cache
]


@dataclass(frozen=True, slots=True)
class State:
    """A recurrent layer's state, before sharding.

    ``formula`` names how its tensors are shaped (``mamba1``, ``mamba2``, ``gated_delta``, ``kimi_delta``,
    ``short_conv``, ``linear``); ``inner`` is the width of the convolution's values, ``groups`` the number of key (or
    B/C) groups. ``dtype`` is the recurrent part's dtype where the model asks for one.
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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Family:
    """A row of the table.

    Attributes:
        plan: makes the layers from the language model's configuration.
        language_model: names the architecture of the language model inside (from the whole configuration and its
            language model's part); None: this row's own plan.
        hybrid: recurrent and attention layers share blocks (block sizes are aligned).
        since, until: releases of vLLM that serve it, ``until`` excluded.
    """

    plan: Plan
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
    default_seq_pooling: str = "LAST"
    since: str | None = None
    until: str | None = None


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
        )

    return make


def mla(*, sparse: bool | Callable[[Config], bool] = False, per_layer: int = 1) -> Maker:
    """Multi-head latent attention: one vector of ``kv_lora_rank`` + rotary part per token, not sharded."""

    def make(config: Config, index: int) -> Iterable[Layer]:
        rank, rope = number(config, "kv_lora_rank"), number(config, "qk_rope_head_dim", 0)
        is_sparse = sparse(config) if callable(sparse) else sparse
        for _ in range(per_layer):
            if is_sparse and _has_indexer(config, index):
                yield indexer(config, index)
            yield Layer(index, "mla", heads=query_heads(config), kv_heads=1, head_size=rank + rope, sparse=is_sparse)

    return make


def _has_indexer(config: Config, index: int) -> bool:
    kinds = config.get("indexer_types")
    return not kinds or index >= len(kinds) or kinds[index] != "shared"


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
_DEEPSEEK: Final = each(mla(sparse=_IS_SPARSE))
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

FAMILIES: Final[dict[str, Family]] = {
    "LlamaForCausalLM": Family(_DENSE_PLAN),
    "MistralForCausalLM": Family(_DENSE_PLAN),
    "Qwen2ForCausalLM": Family(each(_EVEN)),
    "Qwen3ForCausalLM": Family(each(attention())),
    "Qwen3MoeForCausalLM": Family(each(attention())),
    "MixtralForCausalLM": Family(each(attention())),
    "GemmaForCausalLM": Family(each(attention())),
    "Gemma2ForCausalLM": Family(_DENSE_PLAN),
    "Gemma3ForCausalLM": Family(_DENSE_PLAN),
    "GptOssForCausalLM": Family(
        each(
            attention(
                window=lambda c, i: int(c["sliding_window"]) if i % 2 == 0 and c.get("sliding_window") else None,
                sink=True,
            )
        )
    ),
    "Phi3ForCausalLM": Family(_DENSE_PLAN),
    "DeepseekV2ForCausalLM": Family(_DEEPSEEK),
    "DeepseekV3ForCausalLM": Family(_DEEPSEEK),
    "DeepseekV32ForCausalLM": Family(_DEEPSEEK),
    "GlmMoeDsaForCausalLM": Family(_DEEPSEEK),
}

# Names that a checkpoint uses for another row.
ALIASES: Final[Mapping[str, str]] = {"LLaMAForCausalLM": "LlamaForCausalLM"}
# Architectures that vLLM replaces when a key of the configuration is set: (key, written, served).
REWRITES: Final[tuple[tuple[str, str, str], ...]] = ()
# Checkpoints without an ``architectures`` entry.
ARCHITECTURE_OF_TYPE: Final[Mapping[str, str]] = {}
