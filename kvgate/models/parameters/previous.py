"""Rows of architectures that earlier releases served with classes of their own (vLLM 0.6 to 0.23)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kvgate.models.parameters import architectures as rows
from kvgate.models.parameters import towers
from kvgate.models.parameters.blocks import (
    Attention,
    Experts,
    GatedMLP,
    Linear,
    Mamba2,
    Nothing,
    Vector,
    by,
)
from kvgate.models.parameters.decoder import Decoder, Family
from kvgate.models.parameters.keys import Keys
from kvgate.models.parameters.multimodal import vision
from kvgate.models.parameters.tally import Tally, divide
from kvgate.models.parameters.towers import Encoder
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
    "BaiChuanForCausalLM": Family(BAICHUAN),
    "BaichuanForCausalLM": Family(BAICHUAN),
    "BambaForCausalLM": Family(BAMBA),
    "CosyVoice2ForCausalLM": Family(replace(rows.QWEN2, head_bias=1)),
    "MiniMaxForCausalLM": Family(MINIMAX),
    "MiniMaxM1ForCausalLM": Family(MINIMAX),
    "MiniMaxText01ForCausalLM": Family(MINIMAX),
    "MllamaForConditionalGeneration": MLLAMA,
    "QWenLMHeadModel": Family(QWEN),
}
