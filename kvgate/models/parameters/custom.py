"""Rows of architectures whose configuration classes live with vLLM or with the checkpoints (vLLM 0.32.0)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final

from kvgate.models.parameters import architectures as rows
from kvgate.models.parameters.blocks import (
    Attention,
    Block,
    Experts,
    GatedDelta,
    GatedMLP,
    LatentAttention,
    Linear,
    Norms,
    Nothing,
    Several,
    ShortConv,
    Table,
    Vector,
    by,
)
from kvgate.models.parameters.decoder import Decoder, Family
from kvgate.models.parameters.keys import Keys
from kvgate.models.parameters.tally import FLOAT32, Tally, divide
from kvgate.records import record

# --------------------------------------------------------------------------------------------------------------------
# Dense decoders

INTERNLM2: Final = Decoder(Attention("attention", qkv="wqkv", out="wo"), GatedMLP("feed_forward", down="w2"))
INTERNLM2_REWARD: Final = replace(INTERNLM2, head=False, after=Vector("v_head", ("hidden_size",), itemsize=FLOAT32))
ORION: Final = Decoder(Attention(), norm_bias=1, final_norm=2)
# Llama with the biases of the down and output projections alone.
TELECHAT2: Final = Decoder(
    Attention(head_dim=lambda keys, layer: keys.hidden // keys.heads),
    extra=Several((Vector("self_attn.o_proj.bias", ("hidden_size",)), Vector("mlp.down_proj.bias", ("hidden_size",)))),
)
MINICPM: Final = Decoder(
    Attention(),
    by(
        lambda keys, layer: "sparse" if keys.get("num_experts") else "dense",
        sparse=Experts(count_of="num_experts", width="intermediate_size", gate_quantized=True),
        dense=GatedMLP(),
    ),
)
RNJ1: Final = Decoder(Attention(bias="attention_bias|=0", out_bias="attention_bias|=0", norm="head"), norms=4)
LOOP_CODER: Final = Decoder(
    Attention(),
    extra=Linear(
        "gate_projections.gate_proj",
        lambda keys, layer: keys.hidden // keys.heads,
        "num_attention_heads",
        bias=1,
        split="column",
        quantized=False,
    ),
)
STEP1: Final = Decoder(
    Attention(
        bias="attention_bias|=0",
        out_bias="attention_bias|=0",
        kv_heads="num_attention_groups|num_key_value_heads|num_attention_heads",
    ),
    GatedMLP(bias="mlp_bias|=0"),
    tie_default=True,
)
PLAMO3: Final = Decoder(
    Attention("mixer", norm="head"),
    norms=4,
    # Rows beyond the vocabulary are padded by themselves: 64 more where it is no multiple of 16.
    head_rows=lambda keys, layer: keys.vocab if keys.vocab % 16 == 0 else -(-keys.vocab // 64) * 64 + 64,
)
CHATGLM: Final = Decoder(
    Attention(
        "self_attention",
        qkv="query_key_value",
        out="dense",
        bias=lambda keys, layer: bool(keys.get("add_bias_linear")) or bool(keys.get("add_qkv_bias")),
        out_bias="add_bias_linear|=0",
        kv_heads=lambda keys, layer: (
            int(keys["multi_query_group_num"]) if keys.get("multi_query_attention") else keys.heads
        ),
        head_dim=lambda keys, layer: keys.hidden // keys.heads,
    ),
    GatedMLP(
        width="ffn_hidden_size|intermediate_size", bias="add_bias_linear|=0", up="dense_h_to_4h", down="dense_4h_to_h"
    ),
    norm_bias=lambda keys, layer: keys.get("rmsnorm") is False,
    final_norm=lambda keys, layer: (
        0 if keys.get("post_layer_norm") is False else 2 if keys.get("rmsnorm") is False else 1
    ),
    layers="num_layers|num_hidden_layers",
    embedding=False,
    before=Table("embedding", "padded_vocab_size|vocab_size"),
    head_rows="padded_vocab_size|vocab_size",
)
HUNYUAN: Final = Decoder(
    Attention(
        bias="attention_bias|=0",
        out_bias="attention_bias|=0",
        norm=lambda keys, layer: "head" if keys.get("use_qk_norm", True) else "none",
    )
)


def _pangu_bias(keys: Keys, layer: int) -> bool:
    del layer
    return bool(keys.get("attention_bias")) or bool(keys.get("bias"))


def _pangu_input_bias(keys: Keys, layer: int) -> bool:
    return bool(keys["qkv_bias"]) if "qkv_bias" in keys else _pangu_bias(keys, layer)


def _sandwich(keys: Keys, layer: int) -> int:
    del layer
    return 4 if keys.get("sandwich_norm") else 2


PANGU_EMBEDDED: Final = Decoder(
    Attention(bias=_pangu_input_bias, out_bias=_pangu_bias), GatedMLP(bias="mlp_bias|=0"), norms=_sandwich
)

# --------------------------------------------------------------------------------------------------------------------
# Mixtures of experts

PHIMOE: Final = Decoder(
    Attention(bias=1, out_bias=1),
    Experts("block_sparse_moe", "num_local_experts", "intermediate_size"),
    norm_bias=1,
    final_norm=2,
    head_bias=1,
)
HUNYUAN_MOE: Final = replace(
    HUNYUAN,
    mlp=Several(
        (
            Experts(
                count_of="num_experts",
                width=lambda keys, layer: _of_layer(
                    keys.get("moe_intermediate_size"), layer, keys["intermediate_size"]
                ),
                gate="gate.wg",
            ),
            GatedMLP(
                "mlp.shared_mlp",
                lambda keys, layer: (
                    int(keys["intermediate_size"]) * _of_layer(keys.get("num_shared_expert"), layer, 1)
                    if keys.get("use_mixed_mlp_moe", True)
                    else 0
                ),
            ),
        )
    ),
)


def _of_layer(value: object, layer: int, default: object) -> int:
    if isinstance(value, list):
        value = value[layer]
    return int(str(default if value is None else value))


def _first_dense(keys: Keys, layer: int) -> str:
    return "dense" if layer < int(keys.get("first_k_dense_replace") or 0) else "sparse"


def _bailing_shared(keys: Keys, layer: int) -> int:
    del layer
    width = int(keys.get("moe_shared_expert_intermediate_size") or keys["moe_intermediate_size"])
    return width * int(keys.get("num_shared_experts") or 0)


def _bailing_router(keys: Keys, layer: int) -> int:
    del layer
    return FLOAT32 if keys.get("router_dtype") == "fp32" else 0


_BAILING_MLP: Final = by(
    _first_dense,
    sparse=Experts(
        count_of="num_experts",
        width="moe_intermediate_size",
        gate_bytes=_bailing_router,
        correction="moe_router_enable_expert_bias|=0",
        shared=_bailing_shared,
    ),
    dense=GatedMLP(bias="use_bias|=0"),
)
BAILING: Final = Decoder(
    Attention(
        "attention",
        qkv="query_key_value",
        out="dense",
        bias=lambda keys, layer: bool(keys.get("use_bias")) or bool(keys.get("use_qkv_bias")),
        out_bias="use_bias|=0",
        norm=lambda keys, layer: "head" if keys.get("use_qk_norm") else "none",
    ),
    _BAILING_MLP,
)


@record
class LightningAttention:
    """Bailing's linear attention (``layers/mamba/linear/bailing_linear_attn.py``): heads, a gate, a group norm."""

    name: str = "self_attn"

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        width = keys.heads * keys.head_dim
        prefix = f"{name}{self.name}."
        bias = bool(keys.get("use_bias")) or bool(keys.get("use_qkv_bias"))
        tally.qkv(f"{prefix}query_key_value", keys.hidden, keys.heads, keys.heads, keys.head_dim, bias=bias)
        if keys.get("use_qk_norm"):
            tally.param(f"{prefix}qk_norms", 2 * keys.head_dim)
        tally.linear(f"{prefix}g_proj", keys.hidden, width)
        tally.linear(f"{prefix}dense", width, keys.hidden, bias=bool(keys.get("use_bias")), split="row")
        tally.param(f"{prefix}g_norm", divide(width, tally.shard.tensor))


def _bailing_kind(keys: Keys, layer: int) -> str:
    """Every ``layer_group_size``-th layer attends (``is_linear_layer``)."""
    group = int(keys.get("layer_group_size") or 1)
    return "attention" if group > 0 and (layer + 1) % group == 0 else "linear"


BAILING_LINEAR: Final = Decoder(
    by(_bailing_kind, attention=LatentAttention(), linear=LightningAttention()), _BAILING_MLP
)


@record
class BailingDelta:
    """Kimi delta attention as Bailing 3 has it (``models/bailing_moe_v3.py``): every gate of full rank."""

    name: str = "self_attn"

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        ranks = tally.shard.tensor
        width = keys.heads * keys.head_dim
        part = divide(width, ranks)
        prefix = f"{name}{self.name}."
        tally.linear(f"{prefix}qkvb_proj", keys.hidden, width, width, width, keys.heads)
        tally.linear(f"{prefix}f_proj", keys.hidden, width)
        tally.linear(f"{prefix}g_proj", keys.hidden, width)
        tally.linear(f"{prefix}o_proj", width, keys.hidden, split="row")
        tally.param(f"{prefix}conv1d", 3 * part, int(keys["short_conv_kernel_size"]), itemsize=FLOAT32)
        tally.param(f"{prefix}dt_bias", part, itemsize=FLOAT32)
        tally.param(f"{prefix}A_log", divide(keys.heads, ranks), itemsize=FLOAT32)
        tally.param(f"{prefix}o_norm", keys.head_dim)


BAILING_V3: Final = Decoder(
    by(_bailing_kind, attention=LatentAttention(), linear=BailingDelta()),
    by(
        _first_dense,
        sparse=Experts(
            count_of="num_experts",
            width="moe_intermediate_size",
            gate_bytes=FLOAT32,
            correction=1,
            shared=_bailing_shared,
        ),
        dense=GatedMLP(bias="use_bias|=0"),
    ),
)
GLM4_MOE_LITE: Final = replace(rows.GLM4_MOE, mixer=LatentAttention())
PANGU_MLP: Final = by(
    lambda keys, layer: "sparse" if keys.get("n_routed_experts") and _first_dense(keys, layer) == "sparse" else "dense",
    sparse=Experts(
        count_of="n_routed_experts",
        width="moe_intermediate_size",
        correction="router_enable_expert_bias|=0",
        shared=rows.shared_width,
    ),
    dense=GatedMLP(bias="mlp_bias|=0"),
)


def _sink_width(keys: Keys, layer: int) -> int:
    del layer
    return int(keys["qk_nope_dim"]) + int(keys["qk_rope_dim"])


def _sinks(keys: Keys, layer: int) -> int:
    """Elements of the learned keys (and values) that every query sees, over all KV heads."""
    width = _sink_width(keys, layer) + (int(keys["v_channels"]) if keys.get("param_sink_with_value") else 0)
    return int(keys["param_sink_number"]) * keys.kv_heads * width


_PANGU_SINK: Final = Several(
    (
        Attention(
            bias=_pangu_input_bias,
            out_bias=_pangu_bias,
            head_dim=_sink_width,
            v_head_dim="v_channels",
        ),
        Vector("self_attn.k_layernorm", (_sink_width,)),
        Vector("self_attn.param_sink", (_sinks,), sharded=True),
    )
)
PANGU_MOE: Final = Decoder(
    by(
        lambda keys, layer: (
            "latent" if keys.get("kv_lora_rank") else "sink" if keys.get("param_sink_number") else "plain"
        ),
        latent=LatentAttention(),
        sink=_PANGU_SINK,
        plain=Attention(bias=_pangu_input_bias, out_bias=_pangu_bias),
    ),
    PANGU_MLP,
    norms=_sandwich,
)


def _sarvam_kind(keys: Keys, layer: int) -> str:
    first = int(keys.get("first_k_dense_replace", 1))
    every = int(keys.get("moe_layer_freq", 1))
    return "sparse" if layer >= first and (layer - first) % every == 0 else "dense"


SARVAM_MLA: Final = Decoder(
    LatentAttention(fused=False),
    by(
        _sarvam_kind,
        sparse=Experts(
            count_of="num_experts",
            width="moe_intermediate_size",
            correction="moe_router_enable_expert_bias|=1",
            shared=lambda keys, layer: (
                int(keys.get("moe_shared_expert_intermediate_size") or keys["moe_intermediate_size"])
                * int(keys.get("num_shared_experts", 1))
            ),
        ),
        dense=GatedMLP(),
    ),
)
PARAM2: Final = Decoder(
    Attention(
        bias="use_qkv_bias|=0",
        out_bias="use_bias|=0",
        norm=lambda keys, layer: "head" if keys.get("use_qk_norm") else "none",
    ),
    by(
        lambda keys, layer: "dense" if layer < int(keys.get("first_k_dense_replace", 1)) else "sparse",
        sparse=Experts(
            count_of="num_experts",
            width="moe_intermediate_size",
            gate_bytes=FLOAT32,
            correction="moe_router_enable_expert_bias|=1",
            shared=lambda keys, layer: int(
                keys.get("moe_shared_expert_intermediate_size")
                or int(keys["moe_intermediate_size"]) * int(keys.get("num_shared_experts", 1))
            ),
        ),
        dense=GatedMLP(),
    ),
)
HY_V3: Final = Decoder(
    Attention(norm=lambda keys, layer: "head" if keys.get("qk_norm") else "none"),
    by(
        _first_dense,
        sparse=Experts(
            count_of="num_experts",
            width="expert_hidden_dim|moe_intermediate_size",
            gate_bytes=FLOAT32,
            correction=1,
            shared=lambda keys, layer: (
                int(keys.get("expert_hidden_dim") or keys["moe_intermediate_size"])
                * int(keys.get("num_shared_experts") or 0)
            ),
            shared_name="shared_mlp",
        ),
        dense=GatedMLP(),
    ),
)


@record
class ValueExperts:
    """K2 Horizon's attention with a router over value projections (``models/k2_horizon.py``)."""

    name: str = "self_attn"

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        ranks = tally.shard.tensor
        prefix = f"{name}{self.name}."
        bias = bool(keys.get("attention_bias"))
        kv_width = max(1, keys.kv_heads // ranks) * keys.head_dim * ranks
        width = keys.heads * keys.head_dim
        number = int(keys["mova_num_experts"])
        tally.linear(f"{prefix}qk_proj", keys.hidden, width, kv_width, bias=bias)
        tally.linear(f"{prefix}v_router", keys.hidden, number, split="none")
        if keys.get("moe_gate_bias"):
            tally.param(f"{prefix}v_router.bias", number, itemsize=FLOAT32)
        for index in range(number):
            tally.linear(f"{prefix}v_experts.{index}", keys.hidden, kv_width)
        tally.linear(f"{prefix}o_proj", width, keys.hidden, bias=bias, split="row")


def _horizon_sparse(keys: Keys, layer: int) -> bool:
    return rows.sparse_step(keys, layer) == "sparse"


def _horizon_kv(keys: Keys) -> int:
    return keys.kv_heads * keys.head_dim


K2_HORIZON: Final = Decoder(
    Several(
        (
            by(
                lambda keys, layer: (
                    "values" if _horizon_sparse(keys, layer) and keys.get("mova_num_experts") else "plain"
                ),
                values=ValueExperts(),
                plain=Attention(bias="attention_bias|=0", out_bias="attention_bias|=0"),
            ),
            by(
                lambda keys, layer: "norms" if keys.get("query_key_norm") else "none",
                norms=Vector(
                    "self_attn.qk_norms",
                    (lambda keys, layer: keys.heads * keys.head_dim + _horizon_kv(keys),),
                    sharded=True,
                ),
                none=Nothing(),
            ),
            by(
                lambda keys, layer: "gate" if keys.get("attention_gate_func") else "none",
                gate=Linear(
                    "self_attn.gate_proj",
                    "hidden_size",
                    lambda keys, layer: keys.heads * keys.head_dim,
                    split="column",
                ),
                none=Nothing(),
            ),
        )
    ),
    by(
        rows.sparse_step,
        sparse=Experts(
            count_of="num_experts",
            width="moe_intermediate_size",
            correction="moe_gate_bias|=0",
            shared=lambda keys, layer: int(keys["moe_intermediate_size"]) * int(keys.get("num_shared_experts") or 0),
        ),
        dense=GatedMLP(),
    ),
)
LFM2_MOE: Final = Decoder(
    by(
        lambda keys, layer: "attention" if rows.layer_type(keys, layer) == "full_attention" else "conv",
        attention=Attention(out="out_proj", norm="head"),
        conv=ShortConv(),
    ),
    by(
        lambda keys, layer: "dense" if layer < int(keys.get("num_dense_layers") or 0) else "sparse",
        sparse=Experts("feed_forward", "num_experts", "moe_intermediate_size", correction="use_expert_bias|=0"),
        dense=GatedMLP("feed_forward", up="w13", down="w2"),
    ),
    tie="always",
)


def _longcat_width(keys: Keys, layer: int) -> int:
    del layer
    return int(keys.get("ffn_hidden_size") or keys["intermediate_size"])


def _longcat_router(keys: Keys) -> int:
    return int(keys["n_routed_experts"]) + int(keys.get("zero_expert_num") or 0)


_LONGCAT_LAYER: Final = Several(
    (
        LatentAttention("self_attn.0"),
        LatentAttention("self_attn.1"),
        GatedMLP("mlps.0", _longcat_width),
        GatedMLP("mlps.1", _longcat_width),
    )
)
LONGCAT: Final = Decoder(
    _LONGCAT_LAYER,
    Several(
        (
            Experts(
                count_of="n_routed_experts",
                width="expert_ffn_hidden_size|moe_intermediate_size",
                gate="",
            ),
            Vector("mlp.router", (lambda keys, layer: _longcat_router(keys) * (keys.hidden + 1),), itemsize=FLOAT32),
        )
    ),
    norms=4,
    layers="num_layers|num_hidden_layers",
)


@record
class NgramEmbedding:
    """LongCat's hashed n-gram tables (``models/longcat_flash_ngram.py``), sharded as one vocabulary."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        number = int(keys["emb_split_num"]) * (int(keys["emb_neighbor_num"]) - 1)
        width = keys.hidden // number
        size = int(keys["ngram_vocab_size_ratio"] * keys.vocab)
        tally.embedding(f"{name}oe_embedder", sum(size + 2 * index + 1 for index in range(number)), width)
        tally.param(f"{name}oe_projection", number, width, keys.hidden)


LONGCAT_NGRAM: Final = replace(LONGCAT, before=NgramEmbedding())


def _mimo_kind(keys: Keys, layer: int) -> str:
    pattern = keys.get("hybrid_layer_pattern")
    return "window" if pattern and pattern[layer] == 1 else "full"


def _mimo_mlp(keys: Keys, layer: int) -> str:
    frequency = keys.get("moe_layer_freq")
    return "sparse" if isinstance(frequency, list) and frequency[layer] else "dense"


def _mimo_value(prefix: str) -> Block:
    return Attention(
        bias="attention_bias|=0",
        heads=f"{prefix}num_attention_heads",
        kv_heads=f"{prefix}num_key_value_heads",
        head_dim=f"{prefix}head_dim",
        v_head_dim=f"{prefix}v_head_dim|{prefix}head_dim",
        sinks="add_swa_attention_sink_bias|=0" if prefix else "add_full_attention_sink_bias|=0",
    )


MIMO_V2: Final = Decoder(
    by(_mimo_kind, window=_mimo_value("swa_"), full=_mimo_value("")),
    by(
        _mimo_mlp,
        sparse=Experts(
            count_of="n_routed_experts",
            width="moe_intermediate_size",
            gate_bytes=lambda keys, layer: FLOAT32 if keys.get("moe_router_dtype", "float32") == "float32" else 0,
            correction=1,
        ),
        dense=GatedMLP(),
    ),
)


def _step_sparse(keys: Keys, layer: int) -> str:
    """Layers as ``moe_layers_enum`` lists them, all but the first without it."""
    listed = keys.get("moe_layers_enum")
    if listed is None:
        return "sparse" if layer > 0 else "dense"
    numbers = listed.split(",") if isinstance(listed, str) else listed
    return "sparse" if layer in {int(number) for number in numbers} else "dense"


STEP3_TEXT: Final = Decoder(
    Several(
        (
            Linear(
                "self_attn.qkv_proj",
                "hidden_size",
                lambda keys, layer: int(keys.get("share_q_dim") or keys.head_dim) + 2 * keys.head_dim,
            ),
            Linear("self_attn.o_proj", lambda keys, layer: keys.heads * keys.head_dim, "hidden_size", split="row"),
            Norms(1, width="share_q_dim|head_dim"),
            Linear(
                "self_attn.wq",
                "share_q_dim|head_dim",
                lambda keys, layer: keys.heads * keys.head_dim,
                split="column",
            ),
        )
    ),
    by(
        _step_sparse,
        sparse=Several(
            (
                Experts("moe", "moe_num_experts", "moe_intermediate_size"),
                GatedMLP("share_expert", "share_expert_dim"),
            )
        ),
        dense=GatedMLP(),
    ),
)


def _step_other(keys: Keys, layer: int) -> Keys:
    """Figures of the layers of the other attention kind."""
    other = keys.part("attention_other_setting")
    same = not other.mapping or rows.layer_type(keys, layer) != other.get("attention_type", "sliding_attention")
    return keys if same else other


def _step_heads(keys: Keys, layer: int) -> int:
    return int(_step_other(keys, layer)["num_attention_heads"])


STEP3P5: Final = Decoder(
    Several(
        (
            Attention(
                bias="attention_bias|=0",
                heads=_step_heads,
                kv_heads=lambda keys, layer: int(_step_other(keys, layer)["num_attention_groups"]),
                norm="head",
            ),
            by(
                lambda keys, layer: "gate" if keys.get("use_head_wise_attn_gate") else "none",
                gate=Linear("self_attn.g_proj", "hidden_size", _step_heads, split="column"),
                none=Nothing(),
            ),
        )
    ),
    by(
        _step_sparse,
        sparse=Experts(
            "moe",
            "moe_num_experts",
            "moe_intermediate_size",
            gate_bytes=FLOAT32,
            correction="use_moe_router_bias|=0",
            shared="share_expert_dim",
            shared_name="share_expert",
        ),
        dense=GatedMLP(),
    ),
    varies=_step_heads,
)
AFMOE: Final = Decoder(
    Several(
        (
            Attention(norm="head"),
            Linear(
                "self_attn.gate_proj", "hidden_size", lambda keys, layer: keys.heads * keys.head_dim, split="column"
            ),
        )
    ),
    by(
        lambda keys, layer: "dense" if layer < int(keys.get("num_dense_layers") or 0) else "sparse",
        sparse=Experts(
            count_of="num_experts",
            width="moe_intermediate_size",
            gate_bytes=FLOAT32,
            correction=1,
            shared=lambda keys, layer: int(keys["moe_intermediate_size"]) * int(keys.get("num_shared_experts") or 0),
        ),
        dense=GatedMLP(),
    ),
    norms=4,
)


def _index_sparse(keys: Keys, layer: int) -> bool:
    frequency = keys.part("sparse_attention_config").get("sparse_attention_freq")
    return bool(frequency and frequency[layer])


@record
class BlockSparseAttention:
    """MiniMax M3's attention: on sparse layers the projection also yields the block indexer's queries and key."""

    name: str = "self_attn"

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        ranks = tally.shard.tensor
        prefix = f"{name}{self.name}."
        kv_heads = max(1, keys.kv_heads // ranks)
        fused = [divide(keys.heads, ranks) * keys.head_dim, kv_heads * keys.head_dim, kv_heads * keys.head_dim]
        if _index_sparse(keys, layer):
            index = keys.part("sparse_attention_config")
            width = int(index["sparse_index_dim"])
            fused += [max(1, int(index["sparse_num_index_heads"]) // ranks) * width, width]
            tally.param(f"{prefix}index_norms", 2 * width)
        tally.linear(f"{prefix}qkv_proj", keys.hidden, *fused, split="none")
        tally.linear(f"{prefix}o_proj", keys.heads * keys.head_dim, keys.hidden, split="row")
        if keys.get("use_qk_norm", True):
            tally.param(f"{prefix}qk_norms", 2 * keys.head_dim)


MINIMAX_M3: Final = Decoder(
    BlockSparseAttention(),
    by(
        lambda keys, layer: (
            "sparse" if not keys.get("moe_layer_freq") or keys["moe_layer_freq"][layer] != 0 else "dense"
        ),
        sparse=Experts(
            "block_sparse_moe",
            "num_local_experts",
            "intermediate_size",
            gate_bytes=FLOAT32,
            correction="use_routing_bias|=0",
            shared=lambda keys, layer: int(keys["intermediate_size"]) * int(keys.get("n_shared_experts") or 0),
        ),
        dense=GatedMLP(width="dense_intermediate_size"),
    ),
    varies=_index_sparse,
)


@record
class IndexedAttention:
    """Qwen 4's gated attention with the sparse indexer in the same projection (``vllm/models/qwen4_exp``)."""

    name: str = "self_attn"

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        ranks = tally.shard.tensor
        prefix = f"{name}{self.name}."
        kv_heads = max(1, keys.kv_heads // ranks)
        width = int(keys["indexer_head_dim"])
        fused = (
            2 * divide(keys.heads, ranks) * keys.head_dim,
            kv_heads * keys.head_dim,
            kv_heads * keys.head_dim,
            (int(keys["indexer_n_heads"]) + int(keys["indexer_kv_heads"])) * width,
        )
        tally.linear(f"{prefix}qkv_proj", keys.hidden, *fused, split="none")
        tally.linear(f"{prefix}o_proj", keys.heads * keys.head_dim, keys.hidden, split="row")
        tally.param(f"{prefix}norms", 2 * keys.head_dim + 2 * width)


#: Bases that decide primality of every number below 3.4e14 (Jaeschke 1993).
_WITNESSES: Final = (2, 3, 5, 7, 11, 13, 17)


def _prime(value: int) -> bool:
    """Miller-Rabin."""
    if value < _WITNESSES[-1] + 1:
        return value in _WITNESSES
    odd, twos = value - 1, 0
    while odd % 2 == 0:
        odd //= 2
        twos += 1
    for base in _WITNESSES:
        power = pow(base, odd, value)
        if power in (1, value - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % value
            if power == value - 1:
                break
        else:
            return False
    return True


@cache
def _primes_from(start: int, number: int) -> tuple[int, ...]:
    """The first primes that are at least ``start``."""
    found: list[int] = []
    while len(found) < number:
        if _prime(start):
            found.append(start)
        start += 1
    return tuple(found)


@record
class NgramLayer:
    """Qwen 4's layer embedding by hashed n-grams: a table of prime sizes for each head, split over the ranks."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        listed = sorted(int(index) for index in keys.get("ple_layer_ids") or ())
        if layer not in listed:
            return
        heads = (int(keys["ngram_size"]) - 1) * int(keys["heads_per_ngram"])
        at = listed.index(layer)
        sizes = _primes_from(int(keys["ngram_vocab_size_base"]), (at + 1) * heads)[at * heads :]
        divisor = int(keys["make_ngram_vocab_size_divisible_by"])
        width = int(keys["ple_embed_dim"])
        streams = int(keys["hc_count"]) * keys.hidden
        prefix = f"{name}ple."
        rows_of_all = -(-sum(sizes) // divisor) * divisor
        tally.embedding(f"{prefix}ngram_embedding", rows_of_all, width // heads, padding=divisor)
        tally.linear(f"{prefix}kv_proj", width, streams + keys.hidden, split="none")
        tally.param(f"{prefix}norms", 3 * streams)
        tally.param(f"{prefix}conv1d", streams, int(keys["ple_conv_kernel_size"]))


def _hyper(keys: Keys, layer: int) -> int:
    """Elements of the two hyper connections of a layer: a norm, projections down and up."""
    del layer
    count, low = int(keys["hc_count"]), int(keys["hc_lowrank"])
    streams = count * keys.hidden
    return 2 * streams * (1 + low + count * count + low)


def _mixer(keys: Keys, layer: int) -> int:
    del layer
    low = int(keys["hc_lowrank"])
    return int(keys["hc_count"]) * keys.hidden * (1 + 2 * low)


QWEN4_EXP: Final = Decoder(
    by(rows.linear_or_full, linear=GatedDelta(), full=IndexedAttention()),
    rows.QWEN2_MLP,
    norms=0,
    extra=Several((Vector("hyper_connections", (_hyper,)), NgramLayer())),
    final_norm=0,
    after=Vector("hyper_connection_mixer", (_mixer,)),
    varies=lambda keys, layer: layer in (keys.get("ple_layer_ids") or ()),
)

_DECODERS: Final[Mapping[str, Decoder]] = {
    "AfmoeForCausalLM": AFMOE,
    "BailingMoeForCausalLM": BAILING,
    "BailingMoeV2ForCausalLM": BAILING,
    "BailingMoeV2_5ForCausalLM": BAILING_LINEAR,
    "BailingMoeV3ForCausalLM": BAILING_V3,
    "ChatGLMForConditionalGeneration": CHATGLM,
    "ChatGLMModel": CHATGLM,
    "Glm4MoeLiteForCausalLM": GLM4_MOE_LITE,
    "HYV3ForCausalLM": HY_V3,
    "HunYuanDenseV1ForCausalLM": HUNYUAN,
    "HunYuanMoEV1ForCausalLM": HUNYUAN_MOE,
    "IQuestLoopCoderForCausalLM": LOOP_CODER,
    "InternLM2ForCausalLM": INTERNLM2,
    "InternLM2ForRewardModel": INTERNLM2_REWARD,
    "InternLM2VEForCausalLM": INTERNLM2,
    "K2HorizonForCausalLM": K2_HORIZON,
    "Lfm2MoeForCausalLM": LFM2_MOE,
    "LongcatFlashForCausalLM": LONGCAT,
    "LongcatFlashNgramForCausalLM": LONGCAT_NGRAM,
    "MiMoV2FlashForCausalLM": MIMO_V2,
    "MiMoV2ForCausalLM": MIMO_V2,
    "MiniCPMForCausalLM": MINICPM,
    "MiniMaxM3SparseForCausalLM": MINIMAX_M3,
    "MistralLarge3ForCausalLM": rows.DEEPSEEK,
    "NanbeigeForCausalLM": rows.LLAMA,
    "OrionForCausalLM": ORION,
    "PanguEmbeddedForCausalLM": PANGU_EMBEDDED,
    "PanguProMoEV2ForCausalLM": PANGU_MOE,
    "PanguUltraMoEForCausalLM": PANGU_MOE,
    "Param2MoEForCausalLM": PARAM2,
    "PhiMoEForCausalLM": PHIMOE,
    "Plamo3ForCausalLM": PLAMO3,
    "Qwen4ExpForCausalLM": QWEN4_EXP,
    "Rnj1ForCausalLM": RNJ1,
    "SarvamMLAForCausalLM": SARVAM_MLA,
    "SarvamMoEForCausalLM": BAILING,
    "SolarForCausalLM": rows.LLAMA,
    "Step1ForCausalLM": STEP1,
    "Step3TextForCausalLM": STEP3_TEXT,
    "Step3p5ForCausalLM": STEP3P5,
    "TeleChat2ForCausalLM": TELECHAT2,
    "TeleChatForCausalLM": TELECHAT2,
    "TeleFLMForCausalLM": rows.LLAMA,
}
CUSTOM: Final[Mapping[str, Family]] = {name: Family(decoder) for name, decoder in _DECODERS.items()}
