"""Multimodal architectures whose configuration classes live with vLLM or with the checkpoints (vLLM 0.32.0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvgate.models.parameters import architectures as rows
from kvgate.models.parameters import custom, towers
from kvgate.models.parameters.blocks import Block, Linear, Norms, Several, Vector
from kvgate.models.parameters.decoder import Family, Tower
from kvgate.models.parameters.keys import Keys
from kvgate.models.parameters.multimodal import nested, vision
from kvgate.models.parameters.tally import Tally
from kvgate.models.parameters.towers import Encoder
from kvgate.records import record


def text_hidden(keys: Keys, layer: int = 0) -> int:
    """Hidden size of the language model, from a tower's part of the configuration."""
    del layer
    root = Keys(keys.root)
    for name in ("text_config", "llm_config"):
        part = root.part(name)
        if part.mapping:
            return part.hidden
    return root.hidden


# --------------------------------------------------------------------------------------------------------------------
# InternVL: InternViT, pixel shuffle, a two-layer projection


def _intern_layers(keys: Keys, layer: int = 0) -> int:
    """Layers up to the one whose features are taken."""
    del layer
    wanted = int(keys.root.get("select_layer", -1))
    return keys.layers + wanted + 1 if wanted < 0 else wanted + 1


def _shuffled(keys: Keys, layer: int = 0) -> int:
    del layer
    return keys.hidden * int(1 / float(keys.root.get("downsample_ratio", 0.5))) ** 2


def _intern_bias(keys: Keys, layer: int = 0) -> bool:
    """``qkv_bias``; without the key, the 300M tower has one and the 6B tower has none."""
    del layer
    return bool(keys.get("qkv_bias", keys.hidden < 3200))


def _intern_normed(keys: Keys) -> bool:
    return bool(keys.get("qk_normalization", keys.hidden >= 3200))


def _intern_norm_bias(keys: Keys, layer: int = 0) -> bool:
    del layer
    return str(keys.get("norm_type", "layer_norm" if keys.hidden < 3200 else "rms_norm")) == "layer_norm"


_INTERN_EMBEDDINGS: Final = Vector(
    "vision_model.embeddings",
    ("hidden_size", lambda keys, layer: towers.patch_elements(keys) + 1 + 1 + towers.patches(keys) + 1),
)


def _intern_vit(dummy_heads: int = 0) -> Block:
    return Several(
        (
            _INTERN_EMBEDDINGS,
            Encoder(
                "vision_model.encoder.layers",
                layers=_intern_layers,
                bias=_intern_bias,
                norm_bias=_intern_norm_bias,
                attention=lambda keys, layer: (keys.heads + dummy_heads) * (keys.hidden // keys.heads),
                vectors=lambda keys, layer: (4 if _intern_normed(keys) else 2) * keys.hidden,
            ),
        )
    )


_INTERN_PROJECTION: Final = Several(
    (
        Norms(1, 1, _shuffled),
        Linear("mlp1.1", _shuffled, text_hidden, bias=1, quantized=False),
        Linear("mlp1.3", text_hidden, text_hidden, bias=1, quantized=False),
    )
)


def _text_inner(keys: Keys, layer: int) -> int:
    del layer
    root = Keys(keys.root)
    text = root.part("text_config")
    return int((text if text.mapping else root.part("llm_config"))["intermediate_size"])


_NVLM_PROJECTION: Final = Several(
    (
        Norms(1, 1, _shuffled),
        Linear("mlp1.1", _shuffled, _text_inner, quantized=False),
        Linear("mlp1.3", _text_inner, text_hidden, quantized=False),
    )
)
INTERNVL: Final = vision(nested, _intern_vit(), _INTERN_PROJECTION)
NVLM: Final = vision(nested, _intern_vit(7), _NVLM_PROJECTION)

# --------------------------------------------------------------------------------------------------------------------
# CLIP and SigLIP towers


def _moon_merge(keys: Keys, layer: int = 0) -> int:
    del layer
    kernel = keys.get("merge_kernel_size") or [2, 2]
    return keys.hidden * int(kernel[0]) * int(kernel[1])


KIMI_VL: Final = vision(
    nested,
    Several(
        (
            *towers.moonvit(
                bias=1,
                attention="hidden_size",
                width="hidden_size",
                inner="intermediate_size",
                layers="num_hidden_layers",
            ),
            Norms(1, 1),
            Linear("multi_modal_projector.linear_1", _moon_merge, _moon_merge, bias=1, quantized=False),
            Linear("multi_modal_projector.linear_2", _moon_merge, text_hidden, bias=1, quantized=False),
        )
    ),
)


@record
class Phi3Vision:
    """Phi-3 Vision's CLIP-L/14-336 up to its last layer but one, separators and projection (``models/phi3v.py``)."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        width, inner, patches = 1024, 4096, (336 // 14) ** 2
        tower = Keys({"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": 23}, keys.root)
        tally.param("img_processor.embeddings", width * (1 + 3 * 14 * 14 + patches + 1 + 2))
        Encoder("img_processor.encoder.layers").count(tally, tower, name, layer)
        tally.param("separators", 2 * 4 * width)
        hidden = keys.hidden
        tally.linear("img_projection.0", 4 * width, hidden, bias=True, split="none", quantized=False)
        tally.linear("img_projection.2", hidden, hidden, bias=True, split="none", quantized=False)
        # The outer model has its own embedding beside the language model's.
        tally.embedding("embed_tokens", keys.vocab, hidden)


PHI3_V: Final = Family(rows.PHI3, (Tower(Phi3Vision()),))


def _minicpm_text(keys: Keys) -> str:
    """Language model by the version (``models/minicpmv.py``)."""
    version = keys.get("version")
    if version is None:
        old = keys.hidden == 2304 and keys.get("query_num") == 64
        return "MiniCPMForCausalLM" if old else "LlamaForCausalLM"
    return {
        "2.0": "MiniCPMForCausalLM",
        "2.5": "LlamaForCausalLM",
        "2.6": "Qwen2ForCausalLM",
        "4.0": "LlamaForCausalLM",
        "4": "LlamaForCausalLM",
        "4.5": "Qwen3ForCausalLM",
    }.get(str(version), f"MiniCPM-V {version}'s language model")


@record
class Resampler:
    """Learned queries attending over image features (``layers/resampler.py``)."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del name, layer
        width, inputs = text_hidden(keys), keys.hidden
        queries = int(keys.root.get("query_num") or 64)
        if inputs != width:
            tally.linear("resampler.kv_proj", inputs, width, split="none")
        # Queries, attention with biases, three norms, the last projection.
        tally.param("resampler", width * (queries + 4 * width + 4 + 6 + width))


def _minicpm_layers(keys: Keys, layer: int = 0) -> int:
    del layer
    return keys.layers - (1 if keys.root.get("drop_vision_last_layer") else 0)


MINICPM_V: Final = vision(
    _minicpm_text,
    Vector("vpm.embeddings", (towers.siglip_vectors,)),
    Encoder("vpm.encoder.layers", layers=_minicpm_layers),
    Norms(1, 1),
    Resampler(),
)


def _merged(keys: Keys, layer: int = 0) -> int:
    del layer
    return keys.hidden * int(keys.get("spatial_merge_size") or 2) ** 2


DOTS_OCR: Final = vision(
    rows.QWEN2,
    Vector("vision_tower.patch_embed", ("embed_dim", lambda keys, layer: towers.patch_elements(keys) + 1 + 1)),
    Encoder(
        "vision_tower.blocks",
        width="embed_dim",
        bias="use_bias|=0",
        out_bias="use_bias|=0",
        mlp_bias="use_bias|=0",
        norm_bias=0,
        gated=1,
    ),
    Norms(lambda keys, layer: 1 if keys.get("post_norm", True) else 0, 0, "embed_dim"),
    Norms(1, 1, "embed_dim"),
    Linear("vision_tower.merger.mlp.0", _merged, _merged, bias=1, split="column", quantized=False),
    Linear("vision_tower.merger.mlp.2", _merged, "hidden_size", bias=1, split="row", quantized=False),
)


def _doubled(keys: Keys, layer: int = 0) -> int:
    del layer
    return 4 * keys.hidden


KEYE: Final = vision(
    rows.QWEN3,
    Vector("visual.embeddings", (towers.siglip_vectors,)),
    Vector("visual.packing_position_embedding", (32_768, "hidden_size")),
    Encoder("visual.encoder.layers"),
    Norms(1, 1),
    Norms(1, 1),
    Linear("mlp_AR.linear_1", _doubled, _doubled, bias=1, split="column"),
    Linear("mlp_AR.linear_2", _doubled, text_hidden, bias=1, split="row"),
)
GLM4V_CHAT: Final = vision(
    custom.CHATGLM,
    Vector(
        "vision.patch_embedding",
        ("hidden_size", lambda keys, layer: towers.patch_elements(keys) + 1 + 1 + int(keys["num_positions"])),
    ),
    Encoder("vision.transformer.layers"),
    Vector("vision.boi", (2, text_hidden)),
    Linear("vision.linear_proj.linear_proj", text_hidden, text_hidden),
    Norms(1, 1, text_hidden),
    Linear(
        "vision.linear_proj.merged_proj",
        text_hidden,
        (lambda keys, layer: int(keys.root["ffn_hidden_size"]), lambda keys, layer: int(keys.root["ffn_hidden_size"])),
        split="column",
    ),
    Linear(
        "vision.linear_proj.dense_4h_to_h",
        lambda keys, layer: int(keys.root["ffn_hidden_size"]),
        text_hidden,
        split="row",
    ),
    Vector("vision.conv", (text_hidden, lambda keys, layer: 4 * keys.hidden + 1)),
)

# --------------------------------------------------------------------------------------------------------------------
# Gemma 4 Unified: pixels projected into the language model


def _unified_patch(keys: Keys, layer: int = 0) -> int:
    del layer
    side = keys.get("model_patch_size") or int(keys.get("patch_size", 16)) * int(keys.get("pooling_kernel_size", 3))
    return 3 * int(side) ** 2


#: Widths of ``Gemma4UnifiedVisionConfig`` and ``Gemma4UnifiedAudioConfig`` (transformers 5.19).
_UNIFIED_VISION: Final = "mm_embed_dim|=3840"
GEMMA4_UNIFIED: Final = Family(
    rows.GEMMA4,
    (
        Tower(
            Several(
                (
                    Norms(1, 1, _unified_patch),
                    Linear("vision_embedder.patch_dense", _unified_patch, _UNIFIED_VISION, bias=1, split="column"),
                    Norms(2, 1, _UNIFIED_VISION),
                    Vector("vision_embedder.pos_embedding", ("mm_posemb_size|=1120", 2, _UNIFIED_VISION)),
                    Linear("embed_vision.embedding_projection", "output_proj_dims|=3840", text_hidden),
                )
            ),
            "vision_config",
        ),
        Tower(Linear("embed_audio.embedding_projection", "audio_embed_dim|=640", text_hidden), "audio_config"),
    ),
)

# --------------------------------------------------------------------------------------------------------------------
# MiniMax M3


def _compressed(keys: Keys) -> Keys:
    return keys.part("img_token_compression_config")


def _projector_width(keys: Keys, layer: int = 0) -> int:
    return int(keys.root.get("projector_hidden_size") or text_hidden(keys, layer))


MINIMAX_M3_VISION: Final = Several(
    (
        Vector(
            "vision_tower.embeddings",
            (
                "hidden_size",
                lambda keys, layer: (
                    towers.patch_elements(keys) * int(_compressed(keys).get("temporal_patch_size") or 2) + 2
                ),
            ),
        ),
        Encoder("vision_tower.encoder.layers"),
        Linear("multi_modal_projector.linear_1", "hidden_size", _projector_width, bias=1, split="column"),
        Linear("multi_modal_projector.linear_2", _projector_width, text_hidden, bias=1, split="row"),
        Linear(
            "patch_merge_mlp.linear_1",
            lambda keys, layer: text_hidden(keys, layer) * int(_compressed(keys).get("spatial_merge_size") or 2) ** 2,
            _projector_width,
            bias=1,
            split="column",
        ),
        Linear("patch_merge_mlp.linear_2", _projector_width, text_hidden, bias=1, split="row"),
    )
)

CUSTOM_TOWERS: Final[Mapping[str, Family]] = {
    "DotsOCRForCausalLM": DOTS_OCR,
    "GLM4VForCausalLM": GLM4V_CHAT,
    "Gemma4UnifiedForConditionalGeneration": GEMMA4_UNIFIED,
    "InternVLChatModel": INTERNVL,
    "KeyeForConditionalGeneration": KEYE,
    "KimiVLForConditionalGeneration": KIMI_VL,
    "MiniCPMV": MINICPM_V,
    "MiniMaxM3SparseForConditionalGeneration": vision(custom.MINIMAX_M3, MINIMAX_M3_VISION),
    "NVLM_D": NVLM,
    "Phi3VForCausalLM": PHI3_V,
    "Qwen4ExpForConditionalGeneration": vision(custom.QWEN4_EXP, towers.QWEN3_VL),
    "SkyworkR1VChatModel": INTERNVL,
}
