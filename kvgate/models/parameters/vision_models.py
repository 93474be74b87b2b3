"""Vision-language architectures whose code lives with their checkpoints: what stands beside the language model.

Read from vLLM 0.32.0's model files, which the comments name where a row does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kvgate.models.parameters import architectures as rows
from kvgate.models.parameters import custom, towers
from kvgate.models.parameters.blocks import (
    MLP,
    Attention,
    Block,
    ByLayer,
    Experts,
    GatedMLP,
    Linear,
    Norms,
    Several,
    Table,
    Vector,
    by,
)
from kvgate.models.parameters.custom_towers import INTERNVL, text_hidden
from kvgate.models.parameters.decoder import Decoder, Family, Tower
from kvgate.models.parameters.encoders import dense32
from kvgate.models.parameters.keys import Keys, MissingKeyError, Value, resolve
from kvgate.models.parameters.multimodal import MULTIMODAL, nested, vision
from kvgate.models.parameters.tally import FLOAT32, Tally, divide
from kvgate.models.parameters.towers import Encoder
from kvgate.records import record


def _times(factor: int, value: Value) -> Value:
    return lambda keys, layer: factor * int(resolve(value, keys, layer))


# --------------------------------------------------------------------------------------------------------------------
# Molmo: its tower's sizes are constants of the code, the projector is as wide as half the language model's MLP


def _half_inner(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys["intermediate_size"]) // 2


MOLMO: Final = Decoder(
    Attention(
        bias="qkv_bias|=0", norm=lambda keys, layer: "replicated" if keys.get("attention_layer_norm") else "none"
    ),
    GatedMLP(width=_half_inner),
    embedding=False,
    before=Table("embed_tokens", lambda keys, layer: int(keys.get("embedding_size") or keys.vocab) + 128),
    head_rows="embedding_size|vocab_size",
)
_MOLMO_WIDTH: Final = 1024
MOLMO_TOWER: Final = Several(
    (
        # Class embedding, 577 positions, patches of 14 by 14, a norm before the layers, embeddings of the padding.
        Vector("image_vit.embeddings", (_MOLMO_WIDTH, 1 + 577 + 3 * 14**2 + 2 + 4)),
        Encoder("image_vit.transformer", width=_MOLMO_WIDTH, layers=23, inner=4096),
        Linear("image_pooling_2d.qkv", 2 * _MOLMO_WIDTH, (_MOLMO_WIDTH,) * 3, bias=1, split="column"),
        Linear("image_pooling_2d.wo", _MOLMO_WIDTH, _MOLMO_WIDTH, bias=1, split="row"),
        Linear("image_projector.merged_linear", _MOLMO_WIDTH, (_half_inner, _half_inner), split="column"),
        Linear("image_projector.down_proj", _half_inner, "hidden_size", split="row"),
    )
)

MOLMO2: Final = Decoder(
    Attention(
        bias="qkv_bias|=0",
        norm=lambda keys, layer: (
            "none" if not keys.get("use_qk_norm") else "head" if keys.get("qk_norm_type") == "qwen3" else "full"
        ),
    ),
    embedding=False,
    before=Table("embed_tokens", lambda keys, layer: keys.vocab + int(keys.get("additional_vocab_size") or 128)),
)


def _molmo2_layers(keys: Keys, layer: int = 0) -> int:
    """Layers up to the last one whose features are taken."""
    del layer
    wanted = Keys(keys.root).part("adapter_config").get("vit_layers") or (-3, -9)
    return max(int(index) if index >= 0 else int(index) + keys.layers for index in wanted) + 1


def _pooled(keys: Keys, layer: int = 0) -> int:
    """Width of the features of all layers that are taken."""
    del layer
    return Keys(keys.root).part("vit_config").hidden * len(keys.get("vit_layers") or (-3, -9))


def _heads_wide(keys: Keys, layer: int = 0) -> int:
    del layer
    return keys.heads * keys.head_dim


def _kv_heads_wide(keys: Keys, layer: int = 0) -> int:
    del layer
    return keys.kv_heads * keys.head_dim


MOLMO2_MM: Final = Family(
    MOLMO2,
    (
        Tower(
            Several(
                (
                    Vector(
                        "image_vit.embeddings",
                        (
                            "hidden_size",
                            lambda keys, layer: (
                                int(keys.get("image_num_pos") or 577)
                                + 3 * int(keys.get("image_patch_size") or 14) ** 2
                                + 1
                            ),
                        ),
                    ),
                    Encoder("image_vit.transformer", layers=_molmo2_layers, attention=_heads_wide, kv=_kv_heads_wide),
                )
            ),
            "vit_config",
        ),
        Tower(
            Several(
                (
                    Linear("image_pooling_2d.q_proj", _pooled, _heads_wide, bias=1, split="column"),
                    Linear("image_pooling_2d.kv", _pooled, (_kv_heads_wide, _kv_heads_wide), bias=1, split="column"),
                    Linear("image_pooling_2d.o_proj", _heads_wide, "hidden_size", bias=1, split="row"),
                    Linear(
                        "image_projector.merged_linear",
                        "hidden_size",
                        ("intermediate_size", "intermediate_size"),
                        split="column",
                    ),
                    Linear("image_projector.down_proj", "intermediate_size", text_hidden, split="row"),
                )
            ),
            "adapter_config",
        ),
    ),
)

# --------------------------------------------------------------------------------------------------------------------
# Moondream 3: norms and projections with biases, a learned temperature, experts dealt whole to the ranks


@record
class DealtExperts:
    """Routed experts whole on one rank each, gate and up projection as one (``moondream3.py``)."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        experts = keys.part("moe")
        number, inner = int(experts["n_experts"]), int(experts["expert_inner_dim"])
        tally.param(f"{name}mlp.gate", number * (keys.hidden + 1))
        tally.param(f"{name}mlp.experts", divide(number, tally.shard.tensor), 3 * inner, keys.hidden)


def _moondream_sparse(keys: Keys, layer: int) -> str:
    return "sparse" if layer >= int(keys.part("moe")["start_layer"]) else "dense"


MOONDREAM_TEXT: Final = Decoder(
    Several(
        (
            Attention("attn", out="out_proj", bias=1, out_bias=1),
            Vector(
                "attn.tau",
                (
                    "num_attention_heads",
                    lambda keys, layer: 1 + 2 * (keys.heads + 2 * keys.kv_heads) * keys.head_dim,
                ),
                sharded=True,
            ),
        )
    ),
    by(_moondream_sparse, sparse=DealtExperts(), dense=MLP()),
    norms=1,
    norm_bias=1,
    final_norm=2,
    tie="never",
    head_bias=1,
    prefix="blocks.",
)


def _moon_positions(keys: Keys, layer: int = 0) -> int:
    del layer
    patch = int(keys["enc_patch_size"])
    return (int(keys["crop_size"]) // patch) ** 2 + 3 * patch**2 + 1


MOONDREAM3: Final = vision(
    MOONDREAM_TEXT,
    Vector("vision.embeddings", ("enc_dim", _moon_positions)),
    Encoder("vision.blocks", width="enc_dim", layers="enc_n_layers", inner="enc_ff_dim"),
    Norms(1, 1, "enc_dim"),
    # The features of the whole image and of its crops side by side.
    Linear("vision_proj.fc1", _times(2, "enc_dim"), "proj_inner_dim", bias=1, split="column", quantized=False),
    Linear("vision_proj.fc2", "proj_inner_dim", text_hidden, bias=1, split="row", quantized=False),
)

# --------------------------------------------------------------------------------------------------------------------
# Ovis: image tokens of a vocabulary of their own, and their embedding


def _ovis_head(indicators: int) -> Block:
    """A linear layer and a norm over the image vocabulary but its ``indicators``, on every rank as a whole."""

    def merged(keys: Keys, layer: int = 0) -> int:
        del layer
        root = Keys(keys.root)
        part = root.part("visual_tokenizer_config")
        stride = (part if part.mapping else root.part("vit_config")).get("hidden_stride") or 2
        return keys.hidden * int(stride) ** 2

    def scored(keys: Keys, layer: int = 0) -> int:
        del layer
        root = Keys(keys.root)
        return int(root.part("visual_tokenizer_config").get("vocab_size") or root["visual_vocab_size"]) - indicators

    return Several(
        (
            Linear("visual_tokenizer.head.0", merged, scored, quantized=False),
            Norms(1, 1, scored),
            Vector("vte", (lambda keys, layer: scored(keys) + indicators, text_hidden)),
        )
    )


_AIMV2: Final = Several(
    (
        Vector(
            "preprocessor",
            ("hidden_size", lambda keys, layer: towers.patches(keys) + towers.patch_elements(keys) + 2),
        ),
        Encoder(
            "trunk.blocks", bias="qkv_bias|=0", out_bias="mlp_bias|=0", mlp_bias="mlp_bias|=0", norm_bias=0, gated=1
        ),
    )
)
OVIS: Final = vision(
    nested,
    ByLayer(
        lambda keys, layer: keys.get("model_type"),
        (("aimv2", _AIMV2), ("siglip_vision_model", towers.SIGLIP)),
    ),
    _ovis_head(5),
    config="visual_tokenizer_config.backbone_config",
)
OVIS2_5: Final = vision(nested, towers.SIGLIP, _ovis_head(4), config="vit_config")

# --------------------------------------------------------------------------------------------------------------------
# SigLIP towers with two linear layers behind a pixel shuffle


def shuffled_projection(
    shuffled: Value, *, bias: int = 1, norm: bool = True, inner: Value = text_hidden, name: str = "mlp1"
) -> Block:
    """A norm over the shuffled features and two linear layers, on every rank as a whole."""
    return Several(
        (
            Norms(1 if norm else 0, 1, shuffled),
            Linear(f"{name}.1", shuffled, inner, bias=bias, quantized=False),
            Linear(f"{name}.3", inner, text_hidden, bias=bias, quantized=False),
        )
    )


def _pixel_shuffled(keys: Keys, layer: int = 0) -> int:
    del layer
    return keys.hidden * int(1 / float(keys.root.get("downsample_ratio") or 0.5)) ** 2


EAGLE2_5: Final = vision(nested, towers.SIGLIP, shuffled_projection(_pixel_shuffled))
NEMOTRON_EMBED: Final = vision(rows.LLAMA, towers.SIGLIP, shuffled_projection(_pixel_shuffled))


def _patch_shuffled(keys: Keys, layer: int = 0) -> int:
    del layer
    return keys.hidden * int(keys.get("pixel_shuffle_scale_factor") or 1) ** 2


ISAAC: Final = vision(
    rows.QWEN3,
    towers.SIGLIP,
    Linear("vision_embedding.linear_fc1", _patch_shuffled, _times(4, _patch_shuffled), split="column", quantized=False),
    Linear("vision_embedding.linear_fc2", _times(4, _patch_shuffled), text_hidden, split="row", quantized=False),
)


def _one_less(keys: Keys, layer: int = 0) -> int:
    """The last layer is dropped."""
    del layer
    return keys.layers - 1


BAGEL: Final = vision(
    rows.QWEN2,
    Vector("vit_model.embeddings", (towers.siglip_vectors,)),
    Encoder("vit_model.encoder.layers", layers=_one_less),
    Norms(1, 1),
    Linear("connector.fc1", "hidden_size", text_hidden, bias=1, split="column", quantized=False),
    Linear("connector.fc2", text_hidden, text_hidden, bias=1, split="row", quantized=False),
    config="vit_config",
)

# --------------------------------------------------------------------------------------------------------------------
# RADIO: a vision transformer by name, a class token for each teacher


#: Hidden size, layers, MLP width by the name of the transformer (``VIT_TIMM_DIM_BY_NAME``).
_RADIO_SIZES: Final[Mapping[str, tuple[int, int, int]]] = {
    "vit_small_patch16_224": (384, 12, 1536),
    "vit_base_patch16_224": (768, 12, 3072),
    "vit_large_patch16_224": (1024, 24, 4096),
    "vit_huge_patch16_224": (1280, 32, 5120),
}


def _radio(which: int) -> Value:
    def size(keys: Keys, layer: int = 0) -> int:
        del layer
        name = str(keys.part("args").get("model") or keys.get("model_name") or "vit_huge_patch16_224")
        if name not in _RADIO_SIZES:
            raise MissingKeyError(f"the size of {name}")
        return _RADIO_SIZES[name][which]

    return size


_RADIO_WIDTH: Final = _radio(0)


def _radio_tokens(keys: Keys, layer: int = 0) -> int:
    """Class tokens, one per teacher where so configured, and registers that fill up to a multiple."""
    del layer
    args = keys.part("args")
    teachers = args.get("teachers") or ()
    # One teacher's token may be shared by several of its variants; each name counts once.
    names = {str(teacher.get("name")) for teacher in teachers}
    tokens = len(names) if args.get("cls_token_per_teacher") and names else 1
    multiple = int(args.get("register_multiple") or 0)
    return tokens + (multiple - tokens % multiple if multiple else 0)


def _radio_patches(keys: Keys, layer: int = 0) -> int:
    """Positions of the largest image, and the patch projection."""
    del layer
    patch = int(keys.get("patch_size") or 16)
    largest = int(keys.part("args").get("cpe_max_size") or 2048)
    return (largest // patch) ** 2 + 3 * patch**2


RADIO: Final = Several(
    (
        Vector(
            "vision_model.patch_generator",
            (_RADIO_WIDTH, lambda keys, layer: _radio_patches(keys) + _radio_tokens(keys)),
        ),
        Encoder(
            "vision_model.encoder.layers",
            width=_RADIO_WIDTH,
            layers=_radio(1),
            inner=_radio(2),
            vectors=_times(2, _RADIO_WIDTH),
        ),
    )
)


def _nemotron_shuffled(keys: Keys, layer: int = 0) -> int:
    del layer
    root = keys.root
    return int(root["vit_hidden_size"]) * int(1 / float(root.get("downsample_ratio") or 0.5)) ** 2


def _nemotron_inner(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys.root["projector_hidden_size"])


NEMOTRON_PROJECTION: Final = Several(
    (
        Norms(1, 0, _nemotron_shuffled),
        Linear("mlp1.1", _nemotron_shuffled, _nemotron_inner, quantized=False),
        Linear("mlp1.3", _nemotron_inner, text_hidden, quantized=False),
    )
)

# --------------------------------------------------------------------------------------------------------------------
# Step: a tower, two strided convolutions, a projection


def _step_downsampled(keys: Keys, layer: int = 0) -> int:
    """Elements of the two convolutions (``step3_vl.py``): 2 by 2, then 3 by 3 to twice the channels."""
    del layer
    outputs = int(keys["output_hidden_size"])
    return outputs * (4 * keys.hidden + 1) + 2 * outputs * (9 * outputs + 1)


STEP3_VL: Final = vision(
    custom.STEP3_TEXT,
    Vector(
        "vision_model.embeddings",
        ("hidden_size", lambda keys, layer: 1 + towers.patch_elements(keys) + 1 + towers.patches(keys) + 1),
    ),
    Encoder("vision_model.transformer.layers"),
    Vector("vit_downsamplers", (_step_downsampled,)),
    Linear(
        "vit_large_projector",
        _times(2, "output_hidden_size"),
        text_hidden,
        bias=lambda keys, layer: bool(keys.root.get("projector_bias", False)),
        quantized=False,
    ),
)


def _encoder_embeddings(keys: Keys, layer: int = 0) -> int:
    """Perception encoder: patch convolution, class embedding, positions, the norms before and after the layers."""
    del layer
    width = int(keys["width"])
    vectors = towers.patch_elements(keys)
    own = bool(keys.get("use_cls_token"))
    vectors += int(own) + (towers.patches(keys) + int(own) if keys.get("use_abs_posemb", True) else 0)
    vectors += 2 * int(bool(keys.get("use_ln_pre", True))) + 2 * int(bool(keys.get("use_ln_post", True)))
    return width * vectors


def _encoder_inner(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(int(keys["width"]) * float(keys.get("mlp_ratio") or 4))


PERCEPTION: Final = Several(
    (
        Vector("vision_model.embeddings", (_encoder_embeddings,)),
        Encoder(
            "vision_model.transformer",
            width="width",
            layers="layers",
            inner=_encoder_inner,
            vectors=lambda keys, layer: 2 * int(keys["width"]) if keys.get("ls_init_value") is not None else 0,
        ),
        # Two strided convolutions of 3 by 3, each to twice the channels.
        Vector(
            "vit_downsamplers",
            (
                lambda keys, layer: (
                    2 * int(keys["width"]) * (9 * int(keys["width"]) + 1)
                    + 4 * int(keys["width"]) * (18 * int(keys["width"]) + 1)
                ),
            ),
        ),
        Linear(
            "vit_large_projector",
            _times(4, "width"),
            text_hidden,
            bias=lambda keys, layer: bool(keys.root.get("projector_bias", False)),
            split="column",
            quantized=False,
        ),
    )
)

# --------------------------------------------------------------------------------------------------------------------
# ERNIE 4.5 VL: experts for text and experts for images, a resampler over space and time


def _of(index: int, name: str) -> Value:
    """One of the pair of figures: text first, images second."""

    def figure(keys: Keys, layer: int = 0) -> int:
        del layer
        value = keys[name]
        return int(value[index] if isinstance(value, list | tuple) else value)

    return figure


def _ernie_sparse(keys: Keys, layer: int) -> str:
    first, last = keys.get("moe_layer_start_index", 0), keys.get("moe_layer_end_index")
    first = min(first) if isinstance(first, list | tuple) else int(first)
    last = max(last) if isinstance(last, list | tuple) else keys.layers - 1 if last in (None, -1) else int(last)
    every = int(keys.get("moe_layer_interval") or 1)
    return "sparse" if first <= layer <= last and (layer + 1) % every == 0 else "dense"


def _ernie_experts(index: int, name: str) -> Experts:
    return Experts(
        "mlp",
        _of(index, "moe_num_experts"),
        _of(index, "moe_intermediate_size"),
        gate=f"{name}_gate",
        gate_bytes=FLOAT32,
        experts=name,
        correction=1,
    )


ERNIE_VL_TEXT: Final = Decoder(
    Attention(bias="use_bias|=0", out_bias="use_bias|=0"),
    by(
        _ernie_sparse,
        sparse=Several(
            (
                _ernie_experts(0, "text_experts"),
                _ernie_experts(1, "vision_experts"),
                GatedMLP(
                    "mlp.shared_experts",
                    lambda keys, layer: (
                        int(keys.get("moe_num_shared_experts") or 0)
                        * int(resolve(_of(0, "moe_intermediate_size"), keys))
                    ),
                ),
            )
        ),
        dense=GatedMLP(bias="use_bias|=0"),
    ),
)


def _spatial(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys["pixel_hidden_size"]) * int(keys.get("spatial_conv_size") or 2) ** 2


def _temporal(keys: Keys, layer: int = 0) -> int:
    return _spatial(keys, layer) * int(keys.get("temporal_conv_size") or 2)


ERNIE_VL: Final = Family(
    ERNIE_VL_TEXT,
    (
        Tower(
            Several(
                (
                    Vector("vision_model.patch_embed.proj", ("hidden_size", towers.patch_elements)),
                    Encoder(
                        "vision_model.blocks",
                        layers="depth",
                        inner=lambda keys, layer: int(keys.hidden * float(keys.get("mlp_ratio") or 4)),
                    ),
                    Norms(1, 1),
                )
            ),
            "vision_config",
        ),
        Tower(
            Several(
                (
                    Linear("resampler_model.spatial_linear1", _spatial, _spatial, bias=1, split="column"),
                    Linear("resampler_model.spatial_linear2", _spatial, _spatial, bias=1, split="column"),
                    Norms(1, 1, _spatial),
                    Linear("resampler_model.temporal_linear1", _temporal, _spatial, bias=1, split="column"),
                    Linear("resampler_model.temporal_linear2", _spatial, _spatial, bias=1, split="column"),
                    Norms(1, 1, _spatial),
                    Linear("resampler_model.mlp", _spatial, "hidden_size", bias=1, split="column"),
                    Norms(1),
                )
            )
        ),
    ),
    text_config=("text_config",),
)

# --------------------------------------------------------------------------------------------------------------------
# DeepSeek OCR and VL2


def _segment_anything(channels: int) -> Block:
    """SAM's base transformer (``deepencoder.py``), a neck and two strided convolutions, the last to ``channels``.

    Twelve layers of 768 with 12 heads; positions relative within windows of 14, four layers over the whole 64 by 64.
    """
    width, head_dim, neck = 768, 64, 256
    embeddings = width * (64 * 64 + 3 * 16 * 16 + 1)
    layers = 12 * (12 * width * width + 13 * width) + 2 * head_dim * (8 * (2 * 14 - 1) + 4 * (2 * 64 - 1))
    convolutions = neck * width + 9 * neck * neck + 4 * neck + 9 * neck * 512 + 9 * 512 * channels
    return Vector("sam_model", (embeddings + layers + convolutions,))


def _projector(name: str, default: int) -> Value:
    return lambda keys, layer: int(Keys(keys.root).part("projector_config").get(name) or default)


_OCR_LINEAR: Final = Linear("projector.layers", _projector("input_dim", 2048), _projector("n_embed", 1280), bias=1)
DEEPSEEK_OCR: Final = Family(
    rows.DEEPSEEK,
    (
        Tower(
            Several(
                (
                    _segment_anything(1024),
                    # CLIP's large transformer: class embedding, 257 positions, patches of 14 by 14, a norm before.
                    Vector("vision_model.embeddings", (1024, 1 + 257 + 3 * 14 * 14 + 2)),
                    Encoder("vision_model.transformer.layers", width=1024, layers=24, inner=4096),
                    _OCR_LINEAR,
                    Vector("image_newline", (2, _projector("n_embed", 1280))),
                )
            )
        ),
    ),
)
#: Qwen2 0.5B without its embedding, as an encoder; a query for each token of an image of 768 and of 1024.
_QUERY_ENCODER: Final = 24 * (2 * 896 * (896 + 128) + 896 + 2 * 128 + 3 * 896 * 4864 + 2 * 896) + 896 * (1 + 144 + 256)
DEEPSEEK_OCR2: Final = Family(
    rows.DEEPSEEK,
    (
        Tower(
            Several(
                (
                    _segment_anything(896),
                    Vector("qwen2_model", (_QUERY_ENCODER,)),
                    _OCR_LINEAR,
                    Vector("view_seperator", (_projector("n_embed", 1280),)),
                )
            )
        ),
    ),
)


def _radio_norm(keys: Keys, layer: int = 0) -> int:
    """A last norm where the checkpoint's language model has layers that predict more tokens."""
    del layer
    return 1 if Keys(keys.root).part("text_config").get("num_nextn_predict_layers") else 0


def _video_patches(keys: Keys, layer: int = 0) -> int:
    """A projection for the patches of several frames, where videos have one."""
    del layer
    frames = int(keys.get("video_temporal_patch_size") or 1)
    return 3 * int(keys.get("patch_size") or 16) ** 2 * frames if frames > 1 else 0


NEMOTRON_VL: Final = vision(
    rows.NEMOTRON_H,
    RADIO,
    Linear("vision_model.video_embedder", _video_patches, _RADIO_WIDTH, quantized=False),
    Norms(_radio_norm, 1, lambda keys, layer: int(keys.root["vit_hidden_size"])),
    NEMOTRON_PROJECTION,
)
LIGHTON_OCR: Final = vision(nested, towers.PIXTRAL, towers.MISTRAL3_PROJECTOR)
STEP_VL: Final = vision(nested, PERCEPTION)


def _interns1_heads(keys: Keys, layer: int = 0) -> int:
    """Layer scales, and norms over queries and keys where configured."""
    del layer
    return (4 if keys.get("use_qk_norm") else 2) * keys.hidden


INTERNS1: Final = vision(
    nested,
    Vector(
        "vision_tower.embeddings",
        ("hidden_size", lambda keys, layer: towers.patch_elements(keys) + 1 + 1 + towers.patches(keys) + 1),
    ),
    Encoder(
        "vision_tower.encoder.layer",
        bias="attention_bias|=0",
        norm_bias=lambda keys, layer: keys.get("norm_type", "layer_norm") == "layer_norm",
        vectors=_interns1_heads,
        split=False,
        mlp_split=True,
    ),
    shuffled_projection(_pixel_shuffled, name="multi_modal_projector"),
)
#: SigLIP's so400m with its attention pool, whatever the configuration says (``deepseek_vl2.py``).
_SO400M: Final = (
    Vector("vision.embeddings", (1152, 27 * 27 + 3 * 14 * 14 + 1)),
    Encoder("vision.blocks", width=1152, layers=27, inner=4304, split=False, mlp_split=True),
    Norms(2, 1, 1152),
    Vector("vision.attn_pool", (1152, 1 + 4 * (1152 + 1))),
    Linear("vision.attn_pool.mlp.fc1", 1152, 4304, bias=1, split="column", quantized=False),
    Linear("vision.attn_pool.mlp.fc2", 4304, 1152, bias=1, split="row", quantized=False),
)


def _downsampled(keys: Keys, layer: int = 0) -> int:
    del layer
    ratio = int(resolve(_projector("downsample_ratio", 2), keys))
    return int(resolve(_projector("input_dim", 1152), keys)) * ratio**2


_VL2_WIDTH: Final = _projector("n_embed", 2048)


def _vl2_inner(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(resolve(_projector("mlp_ratio", 1), keys)) * int(resolve(_VL2_WIDTH, keys))


DEEPSEEK_VL2: Final = Family(
    rows.DEEPSEEK,
    (
        Tower(
            Several(
                (
                    *_SO400M,
                    Linear("projector.layers.0", _downsampled, _vl2_inner, bias=1, quantized=False),
                    Linear("projector.layers.2", _vl2_inner, _VL2_WIDTH, bias=1, quantized=False),
                    Vector("image_newline", (2, _VL2_WIDTH)),
                )
            )
        ),
    ),
)

# --------------------------------------------------------------------------------------------------------------------
# Phi-4 multimodal: SigLIP's tower up to the last but one layer, a conformer for speech, fixed projections


@record
class Cascades:
    """Phi-4's speech encoder (``phi4mm_audio.py``): strided convolutions, conformer blocks; whole on every rank."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        config = keys.part("audio_processor").part("config")
        width, inner, bins = (int(config[key]) for key in ("attention_dim", "linear_units", "input_size"))
        kernel = int(config.get("kernel_size") or 3)
        channels = int(config.part("nemo_conv_settings").get("conv_channels") or width)
        reduction = int(config.get("time_reduction") or 4)
        strides = reduction.bit_length() - 1
        left = bins
        for _ in range(strides):
            left = (left + 1) // 2
        convolutions = 9 * channels + channels + (strides - 1) * (9 * channels + channels + channels * (channels + 1))
        heads = int(config["attention_heads"])
        distance = int(config.part("relative_attention_bias_args").get("t5_bias_max_distance") or 1000)
        tally.param(f"{name}encoder.embed", convolutions + width * (left * channels + 1))
        tally.param(f"{name}encoder.rest", 2 * distance * heads + 2 * bins)
        feed = 2 * inner * (width + 1) + width * (inner + 1) + 2 * width
        attention = 4 * width * (width + 1)
        outer = int(config.get("ext_pw_out_channel") or width)
        convolution = (
            2 * width  # the norm
            + 2 * outer * (width + 1) + 2 * outer  # the gated projection and its two biases
            + width * (kernel + 1)  # by channel
            + width * (width + 1) + outer * (width + 1)
        )  # fmt: skip
        tally.param(
            f"{name}encoder.encoders", int(config["num_blocks"]) * (2 * feed + attention + convolution + 4 * width)
        )


def _audio_width(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys.part("audio_processor").part("config")["attention_dim"])


PHI4_MM: Final = Family(
    rows.PHI3,
    (
        Tower(
            Several(
                (
                    # 32 by 32 positions of 14 by 14 patches, separators of rows and of images.
                    Vector("vision_encoder.embeddings", (1152, 32 * 32 + 3 * 14 * 14 + 1 + 2)),
                    Encoder("vision_encoder.encoder.layers", width=1152, layers=26, inner=4304),
                    Linear("vision_encoder.img_projection.0", 1152, "hidden_size", bias=1, quantized=False),
                    Linear("vision_encoder.img_projection.2", "hidden_size", "hidden_size", bias=1, quantized=False),
                    Cascades(),
                    *(
                        Several(
                            (
                                Linear(f"{name}.0", _audio_width, "hidden_size", bias=1, quantized=False),
                                Linear(f"{name}.2", "hidden_size", "hidden_size", bias=1, quantized=False),
                            )
                        )
                        for name in ("audio_projection", "audio_projection_for_vision")
                    ),
                )
            )
        ),
    ),
)

# --------------------------------------------------------------------------------------------------------------------
# Gemma 3n: MobileNet for images, a conformer for speech, an embedding of its own for each


#: Elements of timm's ``mobilenetv5_300m_enc``, which every Gemma 3n has.
_MOBILENET_V5: Final = 294_126_912


@record
class GemmaConformer:
    """Gemma 3n's speech encoder (``transformers`` ``Gemma3nAudioEncoder``), on every rank as a whole."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        width, layers = keys.hidden, int(keys.get("conf_num_hidden_layers") or 12)
        first, second = (int(channels) for channels in keys.get("sscp_conv_channel_size") or (128, 32))
        heads, kernel = int(keys.get("conf_num_attention_heads") or 8), int(keys.get("conf_conv_kernel_size") or 5)
        bins = int(keys.get("input_feat_size") or 128) // 4
        tally.param(f"{name}subsample", 9 * first + first + 9 * first * second + second + width * bins * second)
        feed = 8 * width * width + 2 * width
        attention = 5 * width * width + width // heads + 2 * width
        convolution = 3 * width * width + kernel * width + 2 * width
        tally.param(f"{name}conformer", layers * (2 * feed + attention + convolution + width))


def _soft_embedding(name: str) -> Block:
    """An embedding of a modality's own vocabulary, its norms, and a projection to the language model's width."""
    return Several(
        (
            Table(f"{name}.embedding", "vocab_size|=128"),
            Norms(2),
            Linear(f"{name}.embedding_projection", "hidden_size", text_hidden, split="row", quantized=False),
        )
    )


GEMMA3N: Final = Family(
    rows.GEMMA3N,
    (
        Tower(Several((Vector("vision_tower", (_MOBILENET_V5,)), _soft_embedding("embed_vision"))), "vision_config"),
        Tower(Several((GemmaConformer(), _soft_embedding("embed_audio"))), "audio_config"),
    ),
)


def _keye_merged(keys: Keys, layer: int = 0) -> int:
    del layer
    return keys.hidden * int(keys.get("spatial_merge_size") or 2) ** 2


KEYE1_5: Final = vision(
    rows.QWEN3,
    Vector("visual.embeddings", (towers.siglip_vectors,)),
    Vector("visual.packing_position_embedding", (32_768, "hidden_size")),
    Encoder("visual.encoder.layers"),
    Norms(1, 1),
    Norms(1, 1, _keye_merged),
    Linear("mlp_AR.linear_1", _keye_merged, _keye_merged, bias=1, split="column"),
    Linear("mlp_AR.linear_2", _keye_merged, text_hidden, bias=1, split="row"),
)
COL_PROJECTION: Final = Tower(
    dense32(
        "custom_text_proj",
        lambda keys, layer: keys.part("text_config").hidden,
        lambda keys, layer: int(keys.get("embed_dim") or keys.get("dims") or keys.get("dim") or 128),
        bias=0,
    ),
    media=False,
)
QWEN3_VL_HEADLESS: Final = vision(replace(rows.QWEN3, head=False), towers.QWEN3_VL)
COL_QWEN3: Final = replace(QWEN3_VL_HEADLESS, towers=(*QWEN3_VL_HEADLESS.towers, COL_PROJECTION))
_QWEN3_5_HEADLESS: Final = vision(replace(rows.QWEN3_5, head=False), towers.QWEN3_VL)


def _all_but_last(keys: Keys, layer: int = 0) -> int:
    """Features come from the last layer but one, or as ``vision_feature_layer`` says; later ones are not built."""
    del layer
    wanted = int(keys.root.get("vision_feature_layer") or -2)
    return keys.layers + wanted + 1 if wanted < 0 else wanted + 1


PHI4_SIGLIP: Final = vision(
    rows.PHI3,
    Vector("vision_tower.embeddings", (towers.siglip_vectors,)),
    Encoder("vision_tower.encoder.layers", layers=_all_but_last),
    Linear("multi_modal_projector.linear_1", "hidden_size", text_hidden, bias=1, split="column", quantized=False),
    Linear("multi_modal_projector.linear_2", text_hidden, text_hidden, bias=1, split="row", quantized=False),
)


def _root_width(name: str) -> Value:
    return lambda keys, layer: int(keys.root[name])


def _lfm2_merged(keys: Keys, layer: int = 0) -> int:
    del layer
    return keys.hidden * int(keys.root.get("downsample_factor") or 2) ** 2


def _lfm2_bias(keys: Keys, layer: int = 0) -> bool:
    del layer
    return bool(keys.root.get("projector_bias", True))


def lfm2_text(keys: Keys) -> str:
    return {"lfm2_moe": "Lfm2MoeForCausalLM"}.get(str(keys.get("model_type")), "Lfm2ForCausalLM")


LFM2_VL: Final = vision(
    lfm2_text,
    towers.SIGLIP,
    Norms(lambda keys, layer: 1 if keys.root.get("projector_use_layernorm", True) else 0, 1, _lfm2_merged),
    Linear(
        "multi_modal_projector.linear_1",
        _lfm2_merged,
        _root_width("projector_hidden_size"),
        bias=_lfm2_bias,
        quantized=False,
    ),
    Linear(
        "multi_modal_projector.linear_2",
        _root_width("projector_hidden_size"),
        text_hidden,
        bias=_lfm2_bias,
        quantized=False,
    ),
)
HYPERCLOVA_V2: Final = vision(
    nested,
    towers.QWEN2_5_VL,
    Linear("mm_projector", "out_hidden_size", text_hidden, bias=1, quantized=False),
)


@record
class Abstractor:
    """Kanana's projector (``kanana_v.py``): two stages of squeeze-and-excitation blocks; on every rank as a whole."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        inputs, width, outputs = (
            int(keys[key]) for key in ("encoder_hidden_size", "hidden_size", "output_hidden_size")
        )
        depth, merge = int(keys.get("depth") or 1), int(keys.get("merge_size") or 2)
        if keys.get("pos_emb", True):
            tally.param(f"{name}abstractor.pos_emb", int(keys.get("pos_emb_size") or 576), inputs)
        for first in (inputs, width * merge**2):
            for index in range(depth):
                tally.param(f"{name}abstractor.net", self._block(first if index == 0 else width, width))
        layers = int(keys.get("mlp_depth") or 1)
        tally.param(f"{name}abstractor.readout", outputs * (width + 1) + (layers - 1) * outputs * (outputs + 1))

    def _block(self, inputs: int, outputs: int) -> int:
        squeezed = inputs // 4
        shortcut = outputs * (inputs + 2) if inputs != outputs else 0
        excitation = squeezed * (outputs + 1) + outputs * (squeezed + 1)
        return outputs * (inputs + 9 + outputs + 6) + excitation + shortcut


KANANA: Final = Family(
    nested,
    (
        Tower(
            Several(
                (
                    Vector(
                        "vision_model.patch_embed",
                        (
                            "embed_dim",
                            lambda keys, layer: towers.patch_elements(keys) * int(keys.get("temporal_patch_size") or 2),
                        ),
                    ),
                    Encoder(
                        "vision_model.blocks",
                        width="embed_dim",
                        layers="depth",
                        inner=lambda keys, layer: int(keys["embed_dim"] * keys.get("mlp_ratio", 4)),
                    ),
                )
            ),
            "vision_config",
        ),
        Tower(Abstractor(), "projector_config"),
    ),
)


def _siglip_llava(inner: Value) -> Family:
    """LLaVA-NeXT with a norm before its projector, which is whole on every rank (``rvl.py``, ``bee.py``)."""
    return vision(
        nested,
        towers.SIGLIP_FEATURES,
        Norms(1, 1),
        Linear("multi_modal_projector.linear_1", "hidden_size", inner, bias=1, quantized=False),
        Linear("multi_modal_projector.linear_2", inner, text_hidden, bias=1, quantized=False),
        towers.IMAGE_NEWLINE,
    )


def _windows(keys: Keys) -> tuple[int, int]:
    """Sides of the queries and of the window they see (``4/8``)."""
    query, window = str(keys.root.get("downsample_rate") or "4/8").split("/")
    return int(query), int(window)


@record
class WindowProjectors:
    """Granite 4 Vision's projectors (``granite4_vision.py``): one BLIP-2 layer for each level and each offset."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        width, hidden = keys.hidden, text_hidden(keys)
        query, window = _windows(keys)
        inner = 4 * width
        own = 4 * width * (width + 1) + 2 * width
        feed = inner * (width + 1) + width * (inner + 1) + 2 * width
        one = (query**2 + window**2) * width + 4 * width + 2 * own + feed + hidden * (width + 1)
        levels = len(keys.root.get("deepstack_layer_map") or ()) + len(keys.root.get("spatial_target_layers") or ())
        tally.param(f"{name}projectors", levels * one)


GRANITE4_VISION: Final = vision(
    nested,
    Vector("vision_tower.embeddings", (towers.siglip_vectors,)),
    Encoder("vision_tower.encoder.layers"),
    WindowProjectors(),
    towers.IMAGE_NEWLINE,
)


def _window_merged(keys: Keys, layer: int = 0) -> int:
    del layer
    return keys.hidden * int(keys.get("spatial_merge_size") or 2) ** 2


LLAVA_ONEVISION2: Final = vision(
    nested,
    Vector("visual.embeddings", ("hidden_size", towers.patch_elements)),
    Norms(2, 1),
    Encoder("visual.encoder.layers"),
    Linear("visual.merger.mlp.0", _window_merged, _window_merged, bias=1, split="column"),
    Linear("visual.merger.mlp.2", _window_merged, text_hidden, bias=1, split="row"),
)


def _adapter_bias(keys: Keys, layer: int = 0) -> bool:
    del layer
    return bool(keys.get("adapter_bias", True))


def _merges_patches(keys: Keys, layer: int = 0) -> bool:
    del layer
    return str(keys.get("mm_projector_id") or "") == "patch_merge"


PIXTRAL: Final = vision(
    nested,
    towers.PIXTRAL,
    Norms("add_pre_mm_projector_layer_norm|=0"),
    Linear(
        "patch_merger.merging_layer",
        lambda keys, layer: keys.hidden * int(keys.get("spatial_merge_size") or 1) ** 2 if _merges_patches(keys) else 0,
        "hidden_size",
        quantized=False,
    ),
    Linear("vision_language_adapter.w_in", "hidden_size", text_hidden, bias=_adapter_bias, quantized=False),
    Linear("vision_language_adapter.w_out", text_hidden, text_hidden, bias=_adapter_bias, quantized=False),
)


def _aya_inner(keys: Keys, layer: int = 0) -> int:
    return int(keys.root.get("alignment_intermediate_size") or text_hidden(keys, layer))


def _aya_shuffled(keys: Keys, layer: int = 0) -> int:
    del layer
    return keys.hidden * int(keys.root.get("downsample_factor") or 2) ** 2


#: Aya Vision (to 0.24): a gated projection over shuffled features, whole on every rank.
AYA_VISION: Final = vision(
    rows.COHERE,
    towers.SIGLIP_FEATURES,
    Norms(1, 1, _aya_shuffled),
    Linear("multi_modal_projector.linear_1", _aya_shuffled, _aya_inner, bias=1, quantized=False),
    Linear(
        "multi_modal_projector.linear_2",
        lambda keys, layer: _aya_inner(keys) // 2,
        text_hidden,
        bias=1,
        quantized=False,
    ),
)


def _v4_merged(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys["vision_dim"]) * int(keys.get("vision_downsample_ratio") or 3) ** 2


#: DeepSeek V4 with images: the tower's figures stand flat in the configuration (``deepseek_v4/common/vision.py``).
DEEPSEEK_V4_VISION: Final = Family(
    rows.DEEPSEEK_V4,
    (
        Tower(
            Several(
                (
                    Linear(
                        "vision.patch_embed.proj",
                        lambda keys, layer: 3 * int(keys["vision_patch_size"]) ** 2,
                        "vision_dim",
                        bias=1,
                        quantized=False,
                    ),
                    Encoder(
                        "vision.blocks",
                        width="vision_dim",
                        layers="vision_n_layers",
                        inner="vision_inter_dim",
                        mlp_bias=0,
                        norm_bias=0,
                        gated=1,
                        quantized=False,
                    ),
                    Norms(1, 0, "vision_dim"),
                    Linear("aligner.w1", _v4_merged, "hidden_size", bias=1, split="column", quantized=False),
                    Linear("aligner.w2", "hidden_size", "hidden_size", bias=1, split="row", quantized=False),
                    Vector("image_tokens", (4, "hidden_size"), itemsize=FLOAT32),
                )
            )
        ),
    ),
)


def _query_width(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys["num_heads"]) * int(keys.get("qk_channels") or keys.get("kv_channels") or 64)


def _key_width(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys.get("num_key_value_heads") or keys["num_heads"]) * int(keys.get("kv_channels") or 64)


def _mimo_sinks(keys: Keys, layer: int = 0) -> int:
    """A logit per head where a layer has a window."""
    del layer
    if not keys.get("use_sink"):
        return 0
    return (int(keys["depth"]) - len(keys.get("fullatt_block_indexes") or ())) * int(keys["num_heads"])


MIMO_OMNI: Final = vision(
    custom.MIMO_V2,
    Vector(
        "visual.patch_embed.proj",
        ("hidden_size", lambda keys, layer: towers.patch_elements(keys) * int(keys.get("temporal_patch_size") or 2)),
    ),
    Encoder(
        "visual.blocks",
        layers="depth",
        attention=_query_width,
        kv=_key_width,
        norm_bias=0,
        gated=1,
        quantized=False,
    ),
    Vector("visual.sinks", (_mimo_sinks,)),
    Norms(1),
    Linear("visual.merger.mlp.0", _window_merged, _window_merged, split="column", quantized=False),
    Linear("visual.merger.mlp.2", _window_merged, "out_hidden_size", split="row", quantized=False),
)

VISION_MODELS: Final[Mapping[str, Family]] = {
    "AyaVisionForConditionalGeneration": AYA_VISION,
    "BeeForConditionalGeneration": _siglip_llava(_times(4, text_hidden)),
    "BagelForConditionalGeneration": BAGEL,
    "CohereCompassForConditionalGeneration": vision(rows.COHERE, towers.QWEN3_VL),
    "ColQwen3": COL_QWEN3,
    "ColQwen3_5": replace(_QWEN3_5_HEADLESS, towers=(*_QWEN3_5_HEADLESS.towers, COL_PROJECTION)),
    "Cosmos3ForConditionalGeneration": MULTIMODAL["Qwen3VLForConditionalGeneration"],
    "DeepseekOCR2ForCausalLM": DEEPSEEK_OCR2,
    "DeepseekOCRForCausalLM": DEEPSEEK_OCR,
    "DeepseekV4ForConditionalGeneration": DEEPSEEK_V4_VISION,
    "DeepseekVLV2ForCausalLM": DEEPSEEK_VL2,
    "Eagle2_5_VLForConditionalGeneration": EAGLE2_5,
    "Ernie4_5_VLMoeForConditionalGeneration": ERNIE_VL,
    "Gemma3nForConditionalGeneration": GEMMA3N,
    "Granite4VisionForConditionalGeneration": GRANITE4_VISION,
    "H2OVLChatModel": INTERNVL,
    "InternS1ForConditionalGeneration": INTERNS1,
    "InternS2MobiusForConditionalGeneration": MULTIMODAL["Qwen3_5MoeForConditionalGeneration"],
    "InternS2PreviewForConditionalGeneration": MULTIMODAL["Qwen3_5MoeForConditionalGeneration"],
    "InternS1ProForConditionalGeneration": MULTIMODAL["Qwen3VLMoeForConditionalGeneration"],
    "IsaacForConditionalGeneration": ISAAC,
    "KeyeVL1_5ForConditionalGeneration": KEYE1_5,
    "HCXVisionV2ForCausalLM": HYPERCLOVA_V2,
    "KananaVForConditionalGeneration": KANANA,
    "Lfm2VlForConditionalGeneration": LFM2_VL,
    "LightOnOCRForConditionalGeneration": LIGHTON_OCR,
    "LlamaNemotronVLModel": NEMOTRON_EMBED,
    "LlavaOnevision2ForConditionalGeneration": LLAVA_ONEVISION2,
    "MiMoV2OmniForCausalLM": MIMO_OMNI,
    "MiniCPMOcrForConditionalGeneration": MULTIMODAL["MiniCPMV4_6ForConditionalGeneration"],
    "Molmo2ForConditionalGeneration": MOLMO2_MM,
    "MolmoForCausalLM": Family(MOLMO, (Tower(MOLMO_TOWER),)),
    "HfMoondream": MOONDREAM3,
    "Moondream3ForCausalLM": MOONDREAM3,
    "NemotronH_Nano_VL_V2": NEMOTRON_VL,
    "OpsColQwen3Model": COL_QWEN3,
    "OpenCUAForConditionalGeneration": vision(nested, towers.QWEN2_5_VL),
    "Ovis": OVIS,
    "Ovis2_5": OVIS2_5,
    "Ovis2_6ForCausalLM": OVIS2_5,
    "Ovis2_6_MoeForCausalLM": OVIS2_5,
    "Phi4ForCausalLMV": PHI4_SIGLIP,
    "Phi4MMForCausalLM": PHI4_MM,
    "QianfanOCRForConditionalGeneration": INTERNVL,
    "PixtralForConditionalGeneration": PIXTRAL,
    "Qwen3VLNemotronEmbedModel": QWEN3_VL_HEADLESS,
    "RForConditionalGeneration": _siglip_llava(text_hidden),
    "Step3VLForConditionalGeneration": STEP3_VL,
    "Step3p7ForConditionalGeneration": vision(custom.STEP3P5, PERCEPTION),
    "StepVLForConditionalGeneration": STEP_VL,
    "UnlimitedOCRForCausalLM": DEEPSEEK_OCR,
}
