"""The blocks that decoder layers are built of. Each adds its parameters to a :class:`Tally`.

A field that a configuration decides is a :data:`~kvgate.models.parameters.keys.Value`: a constant, the name of a key,
or a function of the configuration and the layer's index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from kvgate.models.parameters.keys import Keys, Value, resolve
from kvgate.models.parameters.tally import FLOAT32, Tally, divide
from kvgate.records import record


class Block(Protocol):
    """Adds the parameters of one module under ``name`` for layer ``layer``."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None: ...


@record
class Attention:
    """Grouped-query attention with a fused projection.

    Attributes:
        name: of the module within the layer.
        bias: of the query, key and value projection; ``out_bias`` of the output projection.
        heads, kv_heads, head_dim, v_head_dim: of the whole model; None for the usual keys.
        norm: of queries and keys: ``head`` one vector of the head's size each, ``full`` one over all (sharded) heads,
            ``replicated`` one over all heads on every rank.
        norm_bias: the norms have a bias too.
        sinks: one learned logit per head; ``gate`` doubles the queries (an output gate of the same size).
        inputs: width of the input where it is not the hidden size.
        shared_kv: true where the layer reuses another layer's keys and values and projects queries only.
    """

    name: str = "self_attn"
    out: str = "o_proj"
    qkv: str = "qkv_proj"
    bias: Value = 0
    out_bias: Value = 0
    heads: Value | None = None
    kv_heads: Value | None = None
    head_dim: Value | None = None
    v_head_dim: Value | None = None
    norm: Literal["none", "head", "full", "replicated"] | Value = "none"
    norm_bias: bool = False
    sinks: Value = 0
    gate: Value = 0
    inputs: Value | None = None
    shared_kv: Value = 0
    cache_scales: bool = True

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        hidden = keys.hidden
        inputs = hidden if self.inputs is None else int(resolve(self.inputs, keys, layer))
        heads = keys.heads if self.heads is None else int(resolve(self.heads, keys, layer))
        kv_heads = keys.kv_heads if self.kv_heads is None else int(resolve(self.kv_heads, keys, layer))
        head_dim = keys.head_dim if self.head_dim is None else int(resolve(self.head_dim, keys, layer))
        v_head_dim = head_dim if self.v_head_dim is None else int(resolve(self.v_head_dim, keys, layer))
        prefix = f"{name}{self.name}."
        bias = bool(resolve(self.bias, keys, layer))
        queries = heads * 2 if resolve(self.gate, keys, layer) else heads
        shared = bool(resolve(self.shared_kv, keys, layer))
        if shared:
            tally.linear(f"{prefix}q_proj", inputs, queries * head_dim, bias=bias)
        else:
            tally.qkv(f"{prefix}{self.qkv}", inputs, queries, kv_heads, head_dim, v_head_dim=v_head_dim, bias=bias)
        tally.linear(
            f"{prefix}{self.out}",
            heads * v_head_dim,
            hidden,
            bias=bool(resolve(self.out_bias, keys, layer)),
            split="row",
        )
        norm = self.norm if self.norm in ("none", "head", "full", "replicated") else resolve(self.norm, keys, layer)
        self._norms(tally, prefix, norm, heads, kv_heads, head_dim, shared)
        if resolve(self.sinks, keys, layer):
            tally.param(f"{prefix}sinks", divide(heads, tally.shard.tensor))
        if self.cache_scales:
            tally.cache_scales(f"{name}{self.name}")

    def _norms(
        self, tally: Tally, prefix: str, norm: object, heads: int, kv_heads: int, head_dim: int, shared: bool
    ) -> None:
        if norm in ("none", 0, False, None):
            return
        ranks = tally.shard.tensor
        if norm == "full":
            per_rank = max(1, kv_heads // ranks)
            queries, keys = divide(heads, ranks) * head_dim, per_rank * head_dim
        elif norm == "replicated":
            queries, keys = heads * head_dim, kv_heads * head_dim
        else:
            queries, keys = head_dim, head_dim
        tally.norm(f"{prefix}q_norm", queries, bias=self.norm_bias)
        if not shared:
            tally.norm(f"{prefix}k_norm", keys, bias=self.norm_bias)


@record
class LatentAttention:
    """Multi-head latent attention (``layers/mla.py``); low-rank parts are on every rank.

    ``fused`` where vLLM fuses the two down projections. ``indexer`` decides which layers carry a sparse indexer;
    ``gate`` an output gate, ``gate_fused`` with the down projections.
    """

    name: str = "self_attn"
    fused: bool = True
    bias: Value = 0
    indexer: Value = 0
    gate: Value = 0
    gate_fused: bool = False

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        hidden, heads = keys.hidden, keys.heads
        nope, rope = int(keys["qk_nope_head_dim"]), int(keys["qk_rope_head_dim"])
        value, rank = int(keys["v_head_dim"]), int(keys["kv_lora_rank"])
        query_rank = keys.get("q_lora_rank")
        prefix = f"{name}{self.name}."
        bias = bool(resolve(self.bias, keys, layer))
        gated = bool(resolve(self.gate, keys, layer))
        if query_rank:
            if self.fused:
                gate = divide(heads * value, tally.shard.tensor) if gated and self.gate_fused else 0
                outputs = (int(query_rank), rank + rope, gate) if gate else (int(query_rank), rank + rope)
                tally.linear(f"{prefix}fused_qkv_a_proj", hidden, *outputs, bias=bias, split="none")
            else:
                tally.linear(f"{prefix}q_a_proj", hidden, int(query_rank), bias=bias, split="none")
                tally.linear(f"{prefix}kv_a_proj_with_mqa", hidden, rank + rope, bias=bias, split="none")
            tally.norm(f"{prefix}q_a_layernorm", int(query_rank))
            tally.linear(f"{prefix}q_b_proj", int(query_rank), heads * (nope + rope))
        else:
            tally.linear(f"{prefix}kv_a_proj_with_mqa", hidden, rank + rope, bias=bias, split="none")
            tally.linear(f"{prefix}q_proj", hidden, heads * (nope + rope))
        tally.norm(f"{prefix}kv_a_layernorm", rank)
        tally.linear(f"{prefix}kv_b_proj", rank, heads * (nope + value))
        tally.linear(f"{prefix}o_proj", heads * value, hidden, bias=bias, split="row")
        if resolve(self.indexer, keys, layer):
            self._indexer(tally, keys, prefix, int(query_rank or hidden))
        if gated and not (self.gate_fused and query_rank):
            tally.linear(f"{prefix}linear_gate", hidden, heads * value)
        if tally.quantization.method == "modelopt":
            tally.cache_scales(f"{name}{self.name}.mla_attn")

    def _indexer(self, tally: Tally, keys: Keys, prefix: str, query_rank: int) -> None:
        heads, width = int(keys["index_n_heads"]), int(keys["index_head_dim"])
        tally.linear(f"{prefix}indexer.wq_b", query_rank, heads * width, split="none")
        tally.linear(f"{prefix}indexer.wk_weights_proj", keys.hidden, width, heads, split="none", quantized=False)
        tally.norm(f"{prefix}indexer.k_norm", width, bias=True, itemsize=FLOAT32)


@record
class GatedMLP:
    """Gate and up projections fused, then down."""

    name: str = "mlp"
    width: Value = "intermediate_size"
    bias: Value = 0
    up: str = "gate_up_proj"
    down: str = "down_proj"
    replicated: bool = False
    quantized: bool = True

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        hidden = keys.hidden
        width = int(resolve(self.width, keys, layer))
        bias = bool(resolve(self.bias, keys, layer))
        column: Literal["column", "none"] = "none" if self.replicated else "column"
        row: Literal["row", "none"] = "none" if self.replicated else "row"
        tally.linear(
            f"{name}{self.name}.{self.up}", hidden, width, width, bias=bias, split=column, quantized=self.quantized
        )
        tally.linear(f"{name}{self.name}.{self.down}", width, hidden, bias=bias, split=row, quantized=self.quantized)


@record
class MLP:
    """One projection up, one down."""

    name: str = "mlp"
    width: Value = "intermediate_size"
    bias: Value = 1
    up: str = "fc1"
    down: str = "fc2"
    replicated: bool = False

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        hidden = keys.hidden
        width = int(resolve(self.width, keys, layer))
        bias = bool(resolve(self.bias, keys, layer))
        prefix = f"{name}{self.name}." if self.name else name
        column: Literal["column", "none"] = "none" if self.replicated else "column"
        row: Literal["row", "none"] = "none" if self.replicated else "row"
        tally.linear(f"{prefix}{self.up}", hidden, width, bias=bias, split=column)
        tally.linear(f"{prefix}{self.down}", width, hidden, bias=bias, split=row)


@record
class Experts:
    """A mixture of experts: router, routed experts, shared experts.

    Attributes:
        count_of: number of routed experts; ``width`` of each, ``inputs`` where it is not the hidden size.
        gate: name of the router; ``gate_bytes`` of its elements (0: the model's dtype); ``gate_bias``;
            ``gate_float32`` where GPUs without a kernel for it compute it in float32.
        correction: a float32 score correction per expert.
        shared: width of the shared experts together, 0 for none; ``shared_gate`` one output that scales them.
        matrices: 2 where gated, 1 where not.
    """

    name: str = "mlp"
    count_of: Value = "num_experts|num_local_experts|n_routed_experts|moe_num_experts"
    width: Value = "moe_intermediate_size|intermediate_size"
    gate: str = "gate"
    gate_bytes: Value = 0
    gate_bias: Value = 0
    gate_quantized: bool = False
    gate_float32: bool = False
    correction: Value = 0
    experts: str = "experts"
    bias: Value = 0
    matrices: Literal[1, 2] = 2
    shared: Value = 0
    shared_name: str = "shared_experts"
    shared_gate: Value = 0
    shared_up: str = "gate_up_proj"
    shared_bias: bool = False
    inputs: Value | None = None

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        hidden = keys.hidden
        prefix = f"{name}{self.name}."
        number = int(resolve(self.count_of, keys, layer))
        width = int(resolve(self.width, keys, layer))
        if self.gate:
            itemsize = int(resolve(self.gate_bytes, keys, layer)) or None
            if self.gate_float32 and not tally.has_router_kernel:
                itemsize = FLOAT32
            tally.linear(
                f"{prefix}{self.gate}",
                hidden,
                number,
                bias=bool(resolve(self.gate_bias, keys, layer)),
                split="none",
                quantized=self.gate_quantized,
                itemsize=itemsize,
            )
        if resolve(self.correction, keys, layer):
            tally.param(f"{prefix}gate.e_score_correction_bias", number, itemsize=FLOAT32)
        tally.experts(
            f"{prefix}{self.experts}",
            number,
            hidden if self.inputs is None else int(resolve(self.inputs, keys, layer)),
            width,
            matrices=self.matrices,
            bias=bool(resolve(self.bias, keys, layer)),
            renormalized=keys.get("norm_topk_prob") is not False or keys.get("scoring_func") == "sigmoid",
        )
        shared = int(resolve(self.shared, keys, layer))
        if shared:
            shared_prefix = f"{prefix}{self.shared_name}."
            if self.matrices == 2:
                tally.linear(f"{shared_prefix}{self.shared_up}", hidden, shared, shared, bias=self.shared_bias)
            else:
                tally.linear(f"{shared_prefix}up_proj", hidden, shared, bias=self.shared_bias)
            tally.linear(f"{shared_prefix}down_proj", shared, hidden, split="row", bias=self.shared_bias)
        if resolve(self.shared_gate, keys, layer):
            tally.linear(f"{prefix}shared_expert_gate", hidden, 1, split="none", quantized=False)


@record
class Norms:
    """``number`` norms of the hidden size."""

    number: Value = 2
    bias: Value = 0
    width: Value | None = None
    itemsize: int | None = None

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        width = keys.hidden if self.width is None else int(resolve(self.width, keys, layer))
        number = int(resolve(self.number, keys, layer))
        if number:
            vectors = 2 if resolve(self.bias, keys, layer) else 1
            tally.param(f"{name}norms", number, vectors, width, itemsize=self.itemsize)


@record
class Vector:
    """A replicated parameter of the given dimensions."""

    name: str
    dims: tuple[Value, ...]
    itemsize: int | None = None
    sharded: bool = False

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        size = 1
        for dim in self.dims:
            size *= int(resolve(dim, keys, layer))
        if self.sharded:
            size = divide(size, tally.shard.tensor)
        tally.param(f"{name}{self.name}", size, itemsize=self.itemsize)


@record
class Linear:
    """A single linear layer; none where a dimension is zero."""

    name: str
    inputs: Value
    outputs: Value | tuple[Value, ...]
    bias: Value = 0
    split: Literal["column", "row", "none"] = "none"
    quantized: bool = True
    itemsize: int | None = None

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        given = self.outputs if isinstance(self.outputs, tuple) else (self.outputs,)
        inputs = int(resolve(self.inputs, keys, layer))
        outputs = [int(resolve(value, keys, layer)) for value in given]
        if not inputs or not any(outputs):
            return
        tally.linear(
            f"{name}{self.name}",
            inputs,
            *outputs,
            bias=bool(resolve(self.bias, keys, layer)),
            split=self.split,
            quantized=self.quantized,
            itemsize=self.itemsize,
        )


@record
class Mamba1:
    """Selective state space mixer (``layers/mamba/mamba_mixer.py``)."""

    name: str = "mixer"
    inner: Value = "mamba_inner|intermediate_size"
    rank: Value = "time_step_rank|mamba_dt_rank"
    state: Value = "state_size|mamba_d_state"
    conv: Value = "conv_kernel|mamba_d_conv"
    conv_bias: Value = "use_conv_bias|mamba_conv_bias|=1"
    bias: Value = "use_bias|mamba_proj_bias|=0"
    norms: bool = False

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        ranks = tally.shard.tensor
        hidden = keys.hidden
        inner, rank, state, conv = (
            int(resolve(value, keys, layer)) for value in (self.inner, self.rank, self.state, self.conv)
        )
        bias = bool(resolve(self.bias, keys, layer))
        part = divide(inner, ranks)
        prefix = f"{name}{self.name}."
        tally.param(f"{prefix}conv1d.weight", part, conv)
        if resolve(self.conv_bias, keys, layer):
            tally.param(f"{prefix}conv1d.bias", part)
        tally.linear(f"{prefix}in_proj", hidden, inner, inner, bias=bias)
        tally.linear(f"{prefix}x_proj", inner, rank + 2 * state, split="row")
        tally.linear(f"{prefix}dt_proj", rank, inner, bias=True)
        tally.param(f"{prefix}A", part, state, itemsize=FLOAT32)
        tally.param(f"{prefix}D", part)
        tally.linear(f"{prefix}out_proj", inner, hidden, bias=bias, split="row")
        if self.norms:
            tally.param(f"{prefix}norms", rank + 2 * state)


@record
class Mamba2:
    """State space duality mixer (``layers/mamba/mamba_mixer2.py``); groups are copied until they divide the ranks."""

    name: str = "mixer"
    inner: Value = lambda keys, layer: keys["expand"] * keys.hidden
    heads: Value = "num_heads|mamba_num_heads|mamba_n_heads"
    head_dim: Value = "head_dim|mamba_head_dim"
    groups: Value = "n_groups|mamba_ngroups|mamba_n_groups"
    state: Value = "state_size|ssm_state_size|mamba_d_state"
    conv: Value = "conv_kernel|mamba_d_conv"
    conv_bias: Value = "use_conv_bias|mamba_conv_bias|=1"
    bias: Value = "use_bias|mamba_proj_bias|=0"
    norm: Value = 1
    hidden: Value | None = None

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        ranks = tally.shard.tensor
        hidden = keys.hidden if self.hidden is None else int(resolve(self.hidden, keys, layer))
        inner, heads, groups, state, conv = (
            int(resolve(value, keys, layer)) for value in (self.inner, self.heads, self.groups, self.state, self.conv)
        )
        if groups % ranks:
            groups = ranks if groups == 1 else groups + (-groups) % ranks
        bias = bool(resolve(self.bias, keys, layer))
        prefix = f"{name}{self.name}."
        width = inner + 2 * groups * state
        tally.param(f"{prefix}conv1d.weight", divide(width, ranks), conv)
        if resolve(self.conv_bias, keys, layer):
            tally.param(f"{prefix}conv1d.bias", divide(width, ranks))
        tally.linear(f"{prefix}in_proj", hidden, inner, inner, groups * state, groups * state, heads, bias=bias)
        per_rank = divide(heads, ranks)
        tally.param(f"{prefix}A", per_rank, itemsize=FLOAT32)
        tally.param(f"{prefix}D", per_rank)
        tally.param(f"{prefix}dt_bias", per_rank)
        tally.linear(f"{prefix}out_proj", inner, hidden, bias=bias, split="row")
        if resolve(self.norm, keys, layer):
            tally.param(f"{prefix}norm", divide(inner, ranks))


@record
class GatedDelta:
    """Gated delta net (``layers/mamba/gdn_linear_attn.py``; Qwen3-Next, Qwen3.5)."""

    name: str = "linear_attn"
    fused_projections: bool = True

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        ranks = tally.shard.tensor
        key = int(keys["linear_num_key_heads"]) * int(keys["linear_key_head_dim"])
        heads = int(keys["linear_num_value_heads"])
        value = heads * int(keys["linear_value_head_dim"])
        prefix = f"{name}{self.name}."
        tally.param(f"{prefix}conv1d.weight", divide(2 * key + value, ranks), int(keys["linear_conv_kernel_dim"]))
        tally.linear(f"{prefix}in_proj_qkvz", keys.hidden, key, key, value, value)
        tally.linear(f"{prefix}in_proj_ba", keys.hidden, heads, heads)
        tally.param(f"{prefix}dt_bias", divide(heads, ranks))
        tally.param(f"{prefix}A_log", divide(heads, ranks), itemsize=FLOAT32)
        tally.param(f"{prefix}norm", int(keys["linear_value_head_dim"]))
        tally.linear(f"{prefix}out_proj", value, keys.hidden, split="row")


@record
class ShortConv:
    """Gated short convolution (``layers/mamba/short_conv.py``; LFM2)."""

    name: str = "short_conv"
    kernel: Value = "conv_L_cache"
    bias: Value = "conv_bias|=0"

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        hidden = int(keys.get("conv_dim") or keys.hidden)
        part = divide(hidden, tally.shard.tensor)
        bias = bool(resolve(self.bias, keys, layer))
        prefix = f"{name}{self.name}."
        tally.param(f"{prefix}conv.weight", part, int(resolve(self.kernel, keys, layer)))
        if bias:
            tally.param(f"{prefix}conv.bias", part)
        tally.linear(f"{prefix}in_proj", hidden, hidden, hidden, hidden, bias=bias)
        tally.linear(f"{prefix}out_proj", hidden, keys.hidden, bias=bias, split="row")


@record
class Several:
    """Blocks one after the other."""

    blocks: tuple[Block, ...]

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        for block in self.blocks:
            block.count(tally, keys, name, layer)


@record
class Nothing:
    """A layer without this part."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del tally, keys, name, layer


@record
class ByLayer:
    """One of several blocks, chosen by the layer."""

    choose: Callable[[Keys, int], object]
    blocks: tuple[tuple[object, Block], ...]

    def pick(self, keys: Keys, layer: int) -> Block:
        kind = self.choose(keys, layer)
        for value, block in self.blocks:
            if value == kind:
                return block
        raise UnknownLayerKindError(f"layer {layer} is of kind {kind!r}")

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        self.pick(keys, layer).count(tally, keys, name, layer)


class UnknownLayerKindError(ValueError):
    """The configuration names a kind of layer that the description does not have."""


def by(choose: Callable[[Keys, int], object], **blocks: Block) -> ByLayer:
    """A choice among blocks named by the values that ``choose`` returns."""
    return ByLayer(choose, tuple(blocks.items()))


@record
class RoutedExperts:
    """Experts without a router of their own."""

    name: str
    count_of: Value
    width: Value
    inputs: Value | None = None
    matrices: Literal[1, 2] = 2

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        inputs = keys.hidden if self.inputs is None else int(resolve(self.inputs, keys, layer))
        tally.experts(
            f"{name}{self.name}",
            int(resolve(self.count_of, keys, layer)),
            inputs,
            int(resolve(self.width, keys, layer)),
            matrices=self.matrices,
        )


@record
class OlmoDelta:
    """OLMo hybrid's gated delta net (``olmo_hybrid.py``): separate small projections, queries and keys apart."""

    name: str = "linear_attn"

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        ranks = tally.shard.tensor
        heads = int(keys.get("linear_num_value_heads") or keys.heads)
        key = int(keys.get("linear_num_key_heads") or keys.heads) * int(keys["linear_key_head_dim"])
        value_dim = int(keys["linear_value_head_dim"])
        value = heads * value_dim
        prefix = f"{name}{self.name}."
        tally.param(f"{prefix}conv1d.weight", divide(2 * key + value, ranks), int(keys["linear_conv_kernel_dim"]))
        tally.linear(f"{prefix}in_proj_qkvg", keys.hidden, key, key, value, value)
        tally.linear(f"{prefix}b_proj", keys.hidden, heads)
        tally.linear(f"{prefix}a_proj", keys.hidden, heads)
        tally.param(f"{prefix}dt_bias", divide(heads, ranks))
        tally.param(f"{prefix}A_log", divide(heads, ranks))
        tally.param(f"{prefix}o_norm", value_dim)
        tally.linear(f"{prefix}o_proj", value, keys.hidden, split="row")


@record
class ZambaShared:
    """Zamba 2's shared transformer blocks, with an adapter for each hybrid layer they serve."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del name, layer
        hidden, rank = keys.hidden, int(keys.get("adapter_rank") or 128)
        inputs = int(keys.get("attention_hidden_size") or 2 * hidden)
        head_dim = int(keys.get("attention_head_dim") or inputs // keys.heads)
        inner = int(keys["intermediate_size"])
        hybrids = sum(kind == "hybrid" for kind in keys["layers_block_type"])
        blocks = int(keys.get("num_mem_blocks") or 1)
        bias = bool(keys.get("add_bias_linear"))
        for index in range(blocks):
            prefix = f"shared.{index}."
            tally.qkv(f"{prefix}self_attn.qkv_proj", inputs, keys.heads, keys.kv_heads, head_dim)
            tally.linear(f"{prefix}self_attn.o_proj", keys.heads * head_dim, hidden, split="row")
            tally.linear(f"{prefix}feed_forward.gate_up_proj", hidden, inner, inner, bias=bias)
            tally.linear(f"{prefix}feed_forward.down_proj", inner, hidden, bias=bias, split="row")
            tally.param(f"{prefix}norms", inputs + hidden)
            served = len(range(index, hybrids, blocks))
            for adapter in range(served):
                where = f"{prefix}adapters.{adapter}."
                tally.linear(f"{where}gate_up.A", hidden, rank)
                tally.linear(f"{where}gate_up.B", rank, inner, inner)
                if keys.get("use_shared_attention_adapter"):
                    for part in ("q", "k", "v"):
                        tally.linear(f"{where}{part}.A", inputs, rank)
                        tally.linear(f"{where}{part}.B", rank, keys.heads * head_dim)


@record
class CompressedAttention:
    """DeepSeek V4's attention: one latent of keys and values, compressed caches on some layers."""

    name: str = "attn"

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        hidden, heads, head_dim = keys.hidden, keys.heads, keys.head_dim
        query_rank, out_rank = int(keys["q_lora_rank"]), int(keys["o_lora_rank"])
        groups = int(keys["o_groups"])
        prefix = f"{name}{self.name}."
        tally.param(f"{prefix}attn_sink", max(64, divide(heads, tally.shard.tensor)), itemsize=FLOAT32)
        tally.linear(f"{prefix}fused_wqa_wkv", hidden, query_rank, head_dim, split="none")
        tally.norm(f"{prefix}q_norm", query_rank)
        tally.linear(f"{prefix}wq_b", query_rank, heads * head_dim)
        tally.norm(f"{prefix}kv_norm", head_dim)
        tally.linear(f"{prefix}wo_a", heads * head_dim // groups, groups * out_rank)
        tally.linear(f"{prefix}wo_b", groups * out_rank, hidden, split="row")
        ratios = keys.get("compress_ratios") or ()
        ratio = int(ratios[layer]) if layer < len(ratios) else 0
        if ratio:
            self._compressor(tally, f"{prefix}compressor", hidden, head_dim, ratio)
        if ratio == 4:
            width = int(keys["index_head_dim"])
            index_heads = int(keys["index_n_heads"])
            tally.linear(f"{prefix}indexer.wq_b", query_rank, index_heads * width, split="none")
            tally.linear(f"{prefix}indexer.weights_proj", hidden, index_heads, split="none", quantized=False)
            self._compressor(tally, f"{prefix}indexer.compressor", hidden, width, ratio)

    def _compressor(self, tally: Tally, name: str, hidden: int, width: int, ratio: int) -> None:
        """Overlapping windows (ratio 4) keep twice the width."""
        lanes = 2 if ratio == 4 else 1
        tally.param(f"{name}.ape", ratio, lanes * width, itemsize=FLOAT32)
        tally.linear(f"{name}.fused_wkv_wgate", hidden, lanes * width, lanes * width, split="none", quantized=False)
        tally.norm(f"{name}.norm", width)


@record
class KimiDelta:
    """Kimi delta attention (``models/kimi_k3/nvidia/kda.py``): gates of low or full rank, float32 convolutions."""

    name: str = "self_attn"

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        ranks = tally.shard.tensor
        config = keys.part("linear_attn_config")
        heads = int(config["num_heads"] if config.mapping else resolve("linear_num_heads|linear_num_key_heads", keys))
        head_dim = int(config["head_dim"] if config.mapping else resolve("linear_head_dim|linear_key_head_dim", keys))
        kernel = int(config["short_conv_kernel_size"] if config.mapping else keys["linear_conv_kernel_dim"])
        width = heads * head_dim
        per_rank = divide(width, ranks)
        prefix = f"{name}{self.name}."
        full = bool(config.get("use_full_rank_gate"))
        # Queries, keys, values (and a full-rank gate) are sharded; the low-rank gates' inputs are on every rank.
        fused = (4 if full else 3) * per_rank + divide(heads, ranks) + head_dim * (1 if full else 2)
        tally.linear(f"{prefix}in_proj_qkvgfab", keys.hidden, fused, split="none")
        tally.linear(f"{prefix}f_b_proj", head_dim, width)
        if not full:
            tally.linear(f"{prefix}g_b_proj", head_dim, width)
        tally.param(f"{prefix}conv1d", 3 * per_rank, kernel, itemsize=FLOAT32)
        tally.param(f"{prefix}dt_bias", per_rank, itemsize=FLOAT32)
        tally.param(f"{prefix}A_log", divide(heads, ranks), itemsize=FLOAT32)
        tally.param(f"{prefix}o_norm", head_dim)
        tally.linear(f"{prefix}o_proj", width, keys.hidden, split="row")


@record
class RelativeAttention:
    """Inkling's attention (``models/inkling``): relative logits and short convolutions of keys and values."""

    name: str = "attn"

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        ranks = tally.shard.tensor
        local = layer in (keys.get("local_layer_ids") or ())
        prefix_key = "swa_" if local else ""
        heads = int(keys[f"{prefix_key}num_attention_heads"])
        kv_heads = int(keys[f"{prefix_key}num_key_value_heads"])
        head_dim = int(keys[f"{prefix_key}head_dim"])
        relative = int(keys["d_rel"])
        prefix = f"{name}{self.name}."
        kernel = int(keys.get("conv_kernel_size") or 4)
        tally.linear(
            f"{prefix}qkvr", keys.hidden, heads * head_dim, kv_heads * head_dim, kv_heads * head_dim, heads * relative
        )
        tally.linear(f"{prefix}wo_ud", heads * head_dim, keys.hidden, split="row")
        tally.param(f"{prefix}rel_logits_proj", relative, int(keys["rel_extent"]))
        tally.param(f"{prefix}qk_norms", 2 * head_dim)
        tally.param(f"{prefix}kv_sconv", 2 * divide(kv_heads * head_dim, ranks), kernel)
        tally.param(f"{name}sconv", 2 * divide(keys.hidden, ranks), kernel)


@record
class SinkExperts:
    """Inkling's experts: a router over routed and shared ones, padded to eight; shared experts of equal width."""

    name: str = "mlp"

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        routed, shared = int(keys["n_routed_experts"]), int(keys.get("n_shared_experts") or 0)
        width = int(keys["moe_intermediate_size"])
        prefix = f"{name}{self.name}."
        outputs = -(-(routed + shared) // 8) * 8
        tally.linear(f"{prefix}gate", keys.hidden, outputs, split="none", quantized=False)
        tally.experts(f"{prefix}experts", routed, keys.hidden, width)
        tally.linear(f"{prefix}sink_experts.w13", keys.hidden, 2 * shared * width)
        tally.linear(f"{prefix}sink_experts.w2", shared * width, keys.hidden, split="row")


@record
class Table:
    """An embedding, sharded and padded, or (``split`` false) in full on every rank."""

    name: str
    rows: Value
    width: Value = "hidden_size"
    split: bool = True

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        rows, width = int(resolve(self.rows, keys, layer)), int(resolve(self.width, keys, layer))
        if self.split:
            tally.embedding(f"{name}{self.name}", rows, width)
        else:
            tally.param(f"{name}{self.name}", rows, width)
