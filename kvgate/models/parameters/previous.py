"""Rows of architectures that earlier releases served with classes of their own (vLLM 0.6 to 0.23)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kvgate.models.parameters import architectures as rows
from kvgate.models.parameters import custom, towers
from kvgate.models.parameters.blocks import (
    MLP,
    Attention,
    Experts,
    GatedMLP,
    Linear,
    Mamba2,
    Nothing,
    Several,
    Vector,
    by,
)
from kvgate.models.parameters.decoder import Decoder, Family
from kvgate.models.parameters.keys import Keys
from kvgate.models.parameters.multimodal import MULTIMODAL, vision
from kvgate.models.parameters.tally import FLOAT32, Tally, divide
from kvgate.models.parameters.towers import Encoder, patch_elements
from kvgate.records import record

BAICHUAN: Final = Decoder(Attention(qkv="W_pack", kv_heads="num_attention_heads"))
QWEN: Final = Decoder(
    Attention("attn", qkv="c_attn", out="c_proj", bias=1, kv_heads="num_attention_heads"),
    GatedMLP(width=lambda keys, layer: int(keys["intermediate_size"]) // 2, down="c_proj"),
    prefix="h.",
)
BAMBA: Final = Decoder(
    by(
        lambda keys, layer: "attention" if layer in (keys.get("attn_layer_indices") or ()) else "mamba",
        attention=Attention(bias="attention_bias|=0", out_bias="attention_bias|=0"),
        mamba=Mamba2(
            name="mamba",
            inner=lambda keys, layer: int(keys["mamba_expand"] * keys.hidden),
            heads="mamba_n_heads",
            bias="mamba_proj_bias|=0",
        ),
    ),
    GatedMLP("feed_forward", bias="mlp_bias|=0"),
)


@record
class LightningAttention:
    """MiniMax's linear attention (``models/minimax_text_01.py``): as many keys as heads, an output gate, a norm."""

    name: str = "self_attn"

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        width = keys.heads * keys.head_dim
        prefix = f"{name}{self.name}."
        tally.linear(f"{prefix}qkv_proj", keys.hidden, 3 * width)
        tally.linear(f"{prefix}output_gate", keys.hidden, width)
        tally.linear(f"{prefix}out_proj", width, keys.hidden, split="row")
        tally.param(f"{prefix}norm", divide(width, tally.shard.tensor))


def _minimax_kind(keys: Keys, layer: int) -> str:
    kinds = keys.get("attn_type_list")
    if kinds:
        return "full" if kinds[layer] == 1 else "linear"
    return "linear" if rows.layer_type(keys, layer) == "linear_attention" else "full"


MINIMAX: Final = Decoder(
    by(_minimax_kind, full=Attention(), linear=LightningAttention()),
    Experts("block_sparse_moe", "num_local_experts", "intermediate_size"),
)

# --------------------------------------------------------------------------------------------------------------------
# Llama 3.2 Vision: cross-attention layers among the others, a tower with local and global layers


def _crosses(keys: Keys, layer: int) -> bool:
    return layer in (keys.get("cross_attention_layers") or ())


def _grid(keys: Keys) -> int:
    return towers.patches(keys) + 1


def _tiles(keys: Keys) -> int:
    """Rows of the tile embeddings: one per supported aspect ratio, and one for none."""
    return len(keys.get("supported_aspect_ratios") or range(8)) + 1


def _mllama_embeddings(keys: Keys, layer: int) -> int:
    del layer
    tiles, width, patches = int(keys["max_num_tiles"]), keys.hidden, _grid(keys)
    positions = 1 + patches * width + _tiles(keys) * tiles * patches * width
    before_and_after = 2 * (_tiles(keys) * tiles * width + 1)
    return width + positions + before_and_after + 4 * width + 2 * int(keys["num_global_layers"])


def _both_layers(keys: Keys, layer: int = 0) -> int:
    del layer
    return keys.layers + int(keys["num_global_layers"])


MLLAMA_TEXT: Final = Decoder(
    Attention(),
    extra=by(
        lambda keys, layer: "cross" if _crosses(keys, layer) else "none",
        cross=Vector("cross_attn", (lambda keys, layer: 2 * keys.head_dim + 2,)),
        none=Nothing(),
    ),
    # The embedding has eight rows more than the vocabulary; the 56 of padding are its own.
    before=Vector("embed_tokens.rest", (lambda keys, layer: _rest(keys), "hidden_size"), sharded=True),
)


def _rest(keys: Keys) -> int:
    def padded(rows_of_all: int) -> int:
        return -(-rows_of_all // 64) * 64

    return padded(keys.vocab + 8) - padded(keys.vocab)


MLLAMA: Final = vision(
    MLLAMA_TEXT,
    Linear("vision_model.patch_embedding", towers.patch_elements, "hidden_size", split="column", quantized=False),
    Vector("vision_model.embeddings", (_mllama_embeddings,)),
    Encoder("vision_model.transformer.layers", layers=_both_layers, bias=0, out_bias=0),
    Linear("multi_modal_projector", "vision_output_dim", towers.text_hidden, bias=1, split="column"),
)

# --------------------------------------------------------------------------------------------------------------------
# Dots 1 (to 0.23), Grok (to 0.24), Arctic (to 0.28), Jais (to 0.22), MPT (to 0.28), Persimmon (to 0.25), Ouro (to 0.26)


def _even(keys: Keys, layer: int) -> int:
    del layer
    return keys.hidden // keys.heads


def _noaux_elements(keys: Keys, layer: int) -> int:
    return int(keys["n_routed_experts"]) if rows.noaux(keys, layer) else 0


DOTS1: Final = Decoder(
    Attention(bias="attention_bias|=0", norm="head"),
    by(
        rows.first_dense,
        # The score correction is in the model's dtype.
        sparse=Several((Experts(shared=rows.shared_width), Vector("gate.e_score_correction_bias", (_noaux_elements,)))),
        dense=GatedMLP(),
    ),
)
GROK: Final = Decoder(
    Attention("attn", head_dim=_even),
    Several(
        (
            Experts("moe_block", "num_experts|num_local_experts|=8", "moe_intermediate_size|intermediate_size"),
            by(
                lambda keys, layer: "dense" if keys.get("residual_moe") else "none",
                dense=GatedMLP(),
                none=Nothing(),
            ),
        )
    ),
    norms=4,
)


def _arctic_sparse(keys: Keys, layer: int) -> bool:
    return (layer + 1) % int(keys.get("moe_layer_frequency") or 2) == 0


def _arctic_residual(keys: Keys, layer: int) -> bool:
    return bool(keys.get("use_residual", True)) and _arctic_sparse(keys, layer)


ARCTIC: Final = Decoder(
    Attention(head_dim=_even),
    Several(
        (
            by(
                lambda keys, layer: "sparse" if _arctic_sparse(keys, layer) else "dense",
                sparse=Experts("block_sparse_moe", "num_local_experts", "intermediate_size", gate_quantized=True),
                dense=GatedMLP("block_sparse_moe.mlp", up="w13", down="w2"),
            ),
            by(
                lambda keys, layer: "dense" if _arctic_residual(keys, layer) else "none",
                dense=GatedMLP("residual_mlp", "hidden_size", up="w13", down="w2"),
                none=Nothing(),
            ),
        )
    ),
    norms=lambda keys, layer: 3 if _arctic_residual(keys, layer) else 2,
    varies=_arctic_sparse,
)


def _inner(keys: Keys, layer: int) -> int:
    del layer
    return int(keys.get("n_inner") or 4 * keys.hidden)


JAIS: Final = Decoder(
    Attention("attn", qkv="c_attn", out="c_proj", bias=1, out_bias=1, kv_heads="num_attention_heads"),
    by(
        lambda keys, layer: "gated" if keys.get("activation_function") == "swiglu" else "plain",
        gated=GatedMLP(width=_inner, bias=1, up="c_fc", down="c_proj"),
        plain=MLP(width=_inner, up="c_fc", down="c_proj"),
    ),
    norm_bias=1,
    final_norm=2,
    tie_default=True,
    before=by(
        lambda keys, layer: "none" if keys.get("position_embedding_type") == "alibi" else "learned",
        learned=Vector("wpe", ("max_position_embeddings", "hidden_size")),
        none=Nothing(),
    ),
    prefix="h.",
)


def _biased(keys: Keys, layer: int = 0) -> bool:
    del layer
    return not keys.get("no_bias", True)


def _query_norms(keys: Keys, layer: int) -> int:
    """Norms over all heads of queries and of keys, on every rank."""
    vectors = 2 if _biased(keys, layer) else 1
    return 2 * vectors * keys.hidden if keys.part("attn_config").get("qk_ln") else 0


MPT: Final = Decoder(
    Several(
        (
            Attention(
                "attn",
                qkv="Wqkv",
                out="out_proj",
                bias=_biased,
                out_bias=_biased,
                kv_heads=lambda keys, layer: keys.part("attn_config").get("kv_n_heads") or keys.heads,
            ),
            Vector("attn.qk_ln", (_query_norms,)),
        )
    ),
    MLP(
        "ffn",
        lambda keys, layer: int(keys.get("expansion_ratio") or 4) * keys.hidden,
        bias=_biased,
        up="up_proj",
        down="down_proj",
    ),
    norm_bias=_biased,
    final_norm=lambda keys, layer: 2 if _biased(keys, layer) else 1,
    tie="always",
    prefix="blocks.",
)
PERSIMMON: Final = Decoder(
    Several(
        (
            Attention(qkv="query_key_value", out="dense", bias=1, out_bias=1, kv_heads="num_attention_heads"),
            Vector(
                "self_attn.qk_layernorm",
                (lambda keys, layer: 4 * (keys.hidden // keys.heads) if keys.get("qk_layernorm", True) else 0,),
            ),
        )
    ),
    MLP(up="dense_h_to_4h", down="dense_4h_to_h"),
    norm_bias=1,
    final_norm=2,
)


def _gate(keys: Keys, layer: int) -> int:
    del layer
    return keys.hidden + 1


OURO: Final = replace(rows.LLAMA, mixer=Attention(), mlp=GatedMLP(), norms=4, after=Vector("early_exit_gate", (_gate,)))

# --------------------------------------------------------------------------------------------------------------------
# Phi-3 Small (to 0.9), Motif (to 0.11), PLaMo 2 (to 0.26)

PHI3_SMALL: Final = Decoder(
    Attention(qkv="query_key_value", out="dense", bias=1, out_bias=1, head_dim=_even),
    GatedMLP(bias=1, up="up_proj"),
    norm_bias=1,
    final_norm=2,
    tie_default=True,
)
MOTIF: Final = Decoder(
    Several(
        (
            Attention(bias="qkv_bias|attention_bias|use_bias|=0", out_bias="attention_bias|use_bias|=0"),
            Vector("self_attn.lambda", (4, lambda keys, layer: keys.head_dim), itemsize=FLOAT32),
            Vector("self_attn.subln", (2, lambda keys, layer: keys.head_dim)),
        )
    ),
    # The activation is a polynomial of three learned weights and a bias.
    Several((GatedMLP(bias="use_bias|=0"), Vector("mlp.act_fn", (4,)))),
)


def _plamo_size(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys["hidden_size_per_head"])


@record
class PlamoMamba:
    """PLaMo 2's Mamba 2 layers (``plamo2.py``): a low-rank step, norms of B, C and the step."""

    name: str = "mixer"

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        ranks, heads = tally.shard.tensor, int(keys["mamba_num_heads"])
        inner, state = heads * _plamo_size(keys), int(keys["mamba_d_state"])
        rank = max(64, keys.hidden // 16)
        prefix = f"{name}{self.name}."
        tally.param(f"{prefix}conv1d", divide(inner, ranks), int(keys["mamba_d_conv"]))
        tally.linear(f"{prefix}in_proj", keys.hidden, inner, inner)
        tally.linear(f"{prefix}bcdt_proj", inner, rank + 2 * state, split="row")
        tally.linear(f"{prefix}dt_proj", rank, heads)
        tally.param(f"{prefix}A", divide(heads, ranks), itemsize=FLOAT32)
        tally.param(f"{prefix}D", 2 * divide(heads, ranks))
        tally.linear(f"{prefix}out_proj", inner, keys.hidden, split="row")
        tally.param(f"{prefix}norms", rank + 2 * state)


def _plamo_kind(keys: Keys, layer: int) -> str:
    step = int(keys.get("mamba_step") or 2)
    attends = layer == keys.layers - 1 if keys.layers <= step // 2 else layer % step == step // 2
    return "attention" if attends or not keys.get("mamba_enabled", True) else "mamba"


PLAMO2: Final = Decoder(
    by(
        _plamo_kind,
        attention=Several(
            (
                Attention("mixer", head_dim=_plamo_size),
                # Norms with a weight for each element of each head.
                Vector(
                    "mixer.qk_norms",
                    (lambda keys, layer: (keys.heads + keys.kv_heads) * _plamo_size(keys),),
                    sharded=True,
                ),
            )
        ),
        mamba=PlamoMamba(),
    ),
    norms=4,
)

# --------------------------------------------------------------------------------------------------------------------
# HunYuan VL (``models/hunyuan_vision.py``; from 0.29 Transformers' own layers, of the same sizes)


def _hunyuan_positions(keys: Keys, layer: int) -> int:
    """A square of patches of the largest image, and one for a class token that nothing uses."""
    del layer
    return (int(keys["max_image_size"]) // int(keys["patch_size"])) ** 2 + 1


HUNYUAN_VL: Final = vision(
    custom.HUNYUAN,
    Vector("visual.embeddings", ("hidden_size", lambda keys, layer: patch_elements(keys) + 1)),
    Vector("visual.embeddings.positions", ("hidden_size", _hunyuan_positions)),
    Encoder("visual.layers"),
    Vector(
        "visual.perceive.proj.0",
        (lambda keys, layer: 2 * keys.hidden, lambda keys, layer: keys.hidden * keys["spatial_merge_size"] ** 2 + 1),
    ),
    Vector("visual.perceive.proj.2", (lambda keys, layer: 4 * keys.hidden, lambda keys, layer: 2 * keys.hidden + 1)),
    Vector("visual.perceive.mlp", ("out_hidden_size", lambda keys, layer: 4 * keys.hidden + 1)),
    # The newline; begin, end, separator; the norms before and after.
    Vector("visual.perceive.image_newline", (lambda keys, layer: 5 * keys.hidden,)),
    Vector("visual.perceive.image_begin", (4, "out_hidden_size")),
)

_LLAMA: Final = (
    "AquilaForCausalLM",
    "AquilaModel",
    "Ernie4_5_ForCausalLM",
    "Fairseq2LlamaForCausalLM",
    "GritLM",
    "InternLMForCausalLM",
    "XverseForCausalLM",
)
PREVIOUS: Final[Mapping[str, Family]] = {
    **{name: Family(rows.LLAMA) for name in _LLAMA},
    "ArcticForCausalLM": Family(ARCTIC),
    "BaiChuanForCausalLM": Family(BAICHUAN),
    "BaichuanForCausalLM": Family(BAICHUAN),
    "BambaForCausalLM": Family(BAMBA),
    "CosyVoice2ForCausalLM": Family(replace(rows.QWEN2, head_bias=1)),
    "Dots1ForCausalLM": Family(DOTS1),
    "Grok1ForCausalLM": Family(GROK),
    "Grok1ModelForCausalLM": Family(GROK),
    "HunYuanVLForConditionalGeneration": HUNYUAN_VL,
    "JAISLMHeadModel": Family(JAIS),
    "MPTForCausalLM": Family(MPT),
    "MantisForConditionalGeneration": MULTIMODAL["LlavaForConditionalGeneration"],
    "MiniMaxForCausalLM": Family(MINIMAX),
    "MiniMaxM1ForCausalLM": Family(MINIMAX),
    "MiniMaxText01ForCausalLM": Family(MINIMAX),
    "MllamaForConditionalGeneration": MLLAMA,
    "MotifForCausalLM": Family(MOTIF),
    "MptForCausalLM": Family(MPT),
    "Phi3SmallForCausalLM": Family(PHI3_SMALL),
    "Plamo2ForCausalLM": Family(PLAMO2),
    "MusicFlamingoForConditionalGeneration": MULTIMODAL["AudioFlamingo3ForConditionalGeneration"],
    "OuroForCausalLM": Family(OURO),
    "PersimmonForCausalLM": Family(PERSIMMON),
    "QWenLMHeadModel": Family(QWEN),
    "Tarsier2ForConditionalGeneration": MULTIMODAL["Qwen2VLForConditionalGeneration"],
}
