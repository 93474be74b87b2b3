"""Encoders and projectors that stand beside a language model (vision, audio)."""

from __future__ import annotations

from typing import Any, Final, Literal

from kvgate.models.parameters.blocks import Block, ByLayer, Linear, Norms, Nothing, Several, Vector
from kvgate.models.parameters.decoder import Tower
from kvgate.models.parameters.keys import Keys, Value, resolve
from kvgate.models.parameters.tally import Tally
from kvgate.records import record


def _split(sharded: bool) -> tuple[Literal["column", "none"], Literal["row", "none"]]:
    return ("column", "row") if sharded else ("none", "none")


@record
class Encoder:
    """Bidirectional transformer layers.

    Attributes:
        width, layers, inner: of the encoder; ``attention`` elements of all heads where that is not the width.
        kv: elements of the keys where there are fewer heads for them.
        bias, out_bias, mlp_bias, norm_bias: whether projections and norms have biases; ``key_bias`` false where the
            key projection alone has none.
        gated: the MLP has a gate.
        norms: of the width in each layer; ``vectors`` further elements (query and key norms, layer scales).
        split: attention and MLP are sharded; ``mlp_split`` where the MLP differs.
    """

    name: str = "encoder.layers"
    width: Value = "hidden_size"
    layers: Value = "num_hidden_layers"
    inner: Value = "intermediate_size"
    attention: Value | None = None
    kv: Value | None = None
    bias: Value = 1
    key_bias: Value = 1
    out_bias: Value = 1
    mlp_bias: Value = 1
    norm_bias: Value = 1
    gated: Value = 0
    norms: Value = 2
    vectors: Value = 0
    split: bool = True
    mlp_split: bool | None = None
    quantized: bool = True

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        width, layers, inner = (int(resolve(value, keys)) for value in (self.width, self.layers, self.inner))
        attention = width if self.attention is None else int(resolve(self.attention, keys))
        kv = attention if self.kv is None else int(resolve(self.kv, keys))
        before = tally.bytes, tally.slack
        for index in range(layers):
            self._layer(tally, keys, f"{name}{self.name}.{index}.", width, inner, attention, kv)
            if tally.quantization.method is None and tally.trace is None:
                tally.bytes += (layers - 1) * (tally.bytes - before[0])
                tally.slack += (layers - 1) * (tally.slack - before[1])
                return

    def _layer(self, tally: Tally, keys: Keys, prefix: str, width: int, inner: int, attention: int, kv: int) -> None:
        bias = bool(resolve(self.bias, keys))
        column, row = _split(self.split)
        tally.linear(f"{prefix}attn.qkv", width, attention, kv, kv, bias=bias, split=column, quantized=self.quantized)
        if bias and not resolve(self.key_bias, keys):
            tally.param(f"{prefix}attn.qkv", -(kv // (tally.shard.tensor if self.split else 1)))
        tally.linear(
            f"{prefix}attn.proj",
            attention,
            width,
            bias=bool(resolve(self.out_bias, keys)),
            split=row,
            quantized=self.quantized,
        )
        mlp_split = self.split if self.mlp_split is None else self.mlp_split
        column, row = _split(mlp_split)
        mlp_bias = bool(resolve(self.mlp_bias, keys))
        up = (inner, inner) if resolve(self.gated, keys) else (inner,)
        tally.linear(f"{prefix}mlp.fc1", width, *up, bias=mlp_bias, split=column, quantized=self.quantized)
        tally.linear(f"{prefix}mlp.fc2", inner, width, bias=mlp_bias, split=row, quantized=self.quantized)
        vectors = 2 if resolve(self.norm_bias, keys) else 1
        tally.param(
            f"{prefix}norms", int(resolve(self.norms, keys)) * vectors * width + int(resolve(self.vectors, keys))
        )


def _whole(value: Any, default: int = 0) -> int:
    """Image and patch sizes are written as one number or as a pair."""
    if isinstance(value, list | tuple):
        return int(value[0])
    return int(value if value is not None else default)


def patches(keys: Keys) -> int:
    """Patches of one image of the configured size."""
    return (_whole(keys["image_size"]) // _whole(keys["patch_size"])) ** 2


def patch_elements(keys: Keys, layer: int = 0) -> int:
    """Elements of one patch over all channels."""
    del layer
    channels = int(keys.get("num_channels") or keys.get("in_channels") or keys.get("in_chans") or 3)
    return channels * _whole(keys["patch_size"]) ** 2


def clip_vectors(keys: Keys, layer: int) -> int:
    """CLIP: class embedding, patch convolution without bias, positions, the norm before the layers."""
    del layer
    width = keys.hidden
    return width + width * patch_elements(keys) + (patches(keys) + 1) * width + 2 * width


def siglip_vectors(keys: Keys, layer: int) -> int:
    """SigLIP: patch convolution with bias, positions."""
    del layer
    positions = int(keys.get("num_patches") or 0)
    positions = positions if positions > 0 else patches(keys)
    return keys.hidden * (patch_elements(keys) + 1 + positions)


def feature_depth(keys: Keys, layer: int = 0) -> int:
    """Layers that are built when features of an earlier one are taken (``vision.py``: ``_get_num_hidden_layers``)."""
    del layer
    wanted = keys.root.get("vision_feature_layer")
    total = keys.layers
    if wanted is None:
        return total
    listed = wanted if isinstance(wanted, list) else [wanted]
    return max(total + int(index) + 1 if int(index) < 0 else int(index) + 1 for index in listed)


CLIP: Final = Several((Vector("vision_tower.embeddings", (clip_vectors,)), Encoder("vision_tower.encoder.layers")))
CLIP_FEATURES: Final = Several(
    (
        Vector("vision_tower.embeddings", (clip_vectors,)),
        Encoder("vision_tower.encoder.layers", layers=feature_depth),
    )
)
SIGLIP: Final = Several(
    (
        Vector("vision_tower.embeddings", (siglip_vectors,)),
        Encoder("vision_tower.vision_model.encoder.layers"),
        Norms(1, 1),
    )
)
SIGLIP_FEATURES: Final = Several(
    (
        Vector("vision_tower.embeddings", (siglip_vectors,)),
        Encoder("vision_tower.vision_model.encoder.layers", layers=feature_depth),
    )
)
PIXTRAL: Final = Several(
    (
        Vector("vision_tower.patch_conv", ("hidden_size", patch_elements)),
        Norms(1),
        Encoder(
            "vision_tower.transformer.layers",
            layers=feature_depth,
            bias=0,
            out_bias=0,
            mlp_bias=0,
            norm_bias=0,
            gated=1,
            attention=lambda keys, layer: keys.heads * keys.head_dim,
        ),
    )
)

#: Towers by ``model_type`` of the vision configuration, as the LLaVA family takes them.
VISION_TOWERS: Final = ByLayer(
    lambda keys, layer: keys.get("model_type"),
    (
        ("clip_vision_model", CLIP_FEATURES),
        ("siglip_vision_model", SIGLIP_FEATURES),
        ("pixtral", PIXTRAL),
    ),
)


def text_hidden(keys: Keys, layer: int = 0) -> int:
    del layer
    text = Keys(keys.root).part("text_config")
    return text.hidden if text.mapping else Keys(keys.root).hidden


def _projector_bias(keys: Keys, layer: int) -> bool:
    del layer
    return bool(keys.root.get("multimodal_projector_bias", keys.root.get("projector_bias", True)))


def _feature_layers(keys: Keys, layer: int = 0) -> int:
    del layer
    wanted = keys.root.get("vision_feature_layer")
    return len(wanted) if isinstance(wanted, list) else 1


def _llava_projector(column: Literal["column", "none"], row: Literal["row", "none"]) -> Several:
    return Several(
        (
            Linear(
                "multi_modal_projector.linear_1",
                lambda keys, layer: keys.hidden * _feature_layers(keys),
                text_hidden,
                bias=_projector_bias,
                split=column,
            ),
            Linear("multi_modal_projector.linear_2", text_hidden, text_hidden, bias=_projector_bias, split=row),
        )
    )


LLAVA_PROJECTOR: Final = _llava_projector("column", "row")
LLAVA_WHOLE_PROJECTOR: Final = _llava_projector("none", "none")
MISTRAL3_PROJECTOR: Final = Several(
    (
        Norms(1),
        Linear(
            "multi_modal_projector.patch_merger.merging_layer",
            lambda keys, layer: keys.hidden * int(keys.root.get("spatial_merge_size", 2)) ** 2,
            "hidden_size",
            quantized=False,
        ),
        Linear(
            "multi_modal_projector.linear_1",
            lambda keys, layer: keys.hidden * _feature_layers(keys),
            text_hidden,
            bias=_projector_bias,
            split="column",
        ),
        Linear("multi_modal_projector.linear_2", text_hidden, text_hidden, bias=_projector_bias, split="row"),
    )
)
IMAGE_NEWLINE: Final = Vector("image_newline", (text_hidden,))

# --------------------------------------------------------------------------------------------------------------------
# Qwen


def _cube(keys: Keys, layer: int) -> int:
    del layer
    return patch_elements(keys) * int(keys.get("temporal_patch_size") or 2)


def _merged(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys.get("embed_dim") or keys.hidden) * int(keys.get("spatial_merge_size") or 2) ** 2


QWEN2_VL: Final = Several(
    (
        Vector("visual.patch_embed.proj", ("embed_dim", _cube)),
        Encoder(
            "visual.blocks",
            width="embed_dim",
            layers="depth",
            inner=lambda keys, layer: int(keys["embed_dim"] * keys.get("mlp_ratio", 4)),
        ),
        Norms(1, 1, "embed_dim"),
        Linear("visual.merger.mlp.0", _merged, _merged, bias=1, split="column"),
        Linear("visual.merger.mlp.2", _merged, "hidden_size", bias=1, split="row"),
    )
)
QWEN2_5_VL: Final = Several(
    (
        Vector("visual.patch_embed.proj", ("hidden_size", _cube)),
        Encoder("visual.blocks", layers="depth", gated=1, norm_bias=0),
        Norms(1),
        Linear("visual.merger.mlp.0", _merged, _merged, bias=1, split="column"),
        Linear("visual.merger.mlp.2", _merged, "out_hidden_size", bias=1, split="row"),
    )
)


def _qwen3_mergers(keys: Keys, layer: int) -> int:
    """Norm of the merger (the width) and of the deep-stack mergers (the merged width)."""
    del layer
    deep = len(keys.get("deepstack_visual_indexes") or ())
    return 2 * keys.hidden + deep * 2 * _merged(keys)


@record
class Qwen3Mergers:
    """The merger and one more for each deep-stack level."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        deep = len(keys.get("deepstack_visual_indexes") or ())
        merged = _merged(keys)
        tally.param("visual.merger.norms", _qwen3_mergers(keys, layer))
        for index in range(deep + 1):
            prefix = f"{name}visual.merger" if index == 0 else f"{name}visual.deepstack_merger_list.{index - 1}"
            tally.linear(f"{prefix}.linear_fc1", merged, merged, bias=True)
            tally.linear(f"{prefix}.linear_fc2", merged, int(keys["out_hidden_size"]), bias=True, split="row")


QWEN3_VL: Final = Several(
    (
        Vector("visual.patch_embed.proj", ("hidden_size", lambda keys, layer: _cube(keys, layer) + 1)),
        Vector("visual.pos_embed", ("num_position_embeddings", "hidden_size")),
        Encoder("visual.blocks", layers="depth"),
        Qwen3Mergers(),
    )
)


def whisper_like(
    name: str, positions: Value = 0, extra: Block | None = None, *, split: bool = False, norm: bool = True
) -> Several:
    """Whisper's encoder: two convolutions over mel bins, layers without a key bias (fused ones have it)."""
    width = "d_model|hidden_size"
    blocks: list[Block] = [
        Vector(f"{name}.conv1", (width, lambda keys, layer: 3 * int(keys["num_mel_bins"]) + 1)),
        Vector(f"{name}.conv2", (width, lambda keys, layer: 3 * int(resolve(width, keys)) + 1)),
        Vector(f"{name}.embed_positions", (positions, width)),
        Encoder(
            f"{name}.layers",
            width=width,
            layers="encoder_layers|num_hidden_layers",
            inner="encoder_ffn_dim|intermediate_size",
            key_bias=int(split),
            split=split,
        ),
    ]
    if norm:
        blocks.append(Norms(1, 1, width))
    if extra is not None:
        blocks.append(extra)
    return Several(tuple(blocks))


QWEN2_AUDIO: Final = whisper_like(
    "audio_tower", "max_source_positions", Linear("multi_modal_projector.linear", "d_model", text_hidden, bias=1)
)
QWEN2_5_OMNI_AUDIO: Final = whisper_like(
    "audio_tower",
    0,
    Several(
        (
            Vector("audio_tower.audio_bos_eos_token", (2, "output_dim")),
            Linear("audio_tower.proj", "d_model", "output_dim", bias=1),
        )
    ),
)
AUDIO_FLAMINGO: Final = whisper_like(
    "audio_tower",
    "max_source_positions",
    Several(
        (
            Linear("multi_modal_projector.linear_1", "d_model|hidden_size", text_hidden, bias=_projector_bias),
            Linear("multi_modal_projector.linear_2", text_hidden, text_hidden, bias=_projector_bias),
        )
    ),
)


def _conv_out(keys: Keys, layer: int) -> int:
    """Mel bins after three convolutions of stride two, times their channels."""
    del layer
    bins = int(keys["num_mel_bins"])
    for _ in range(3):
        bins = (bins - 1) // 2 + 1
    return bins * int(keys["downsample_hidden_size"])


QWEN3_AUDIO: Final = Several(
    (
        Vector(
            "audio_tower.conv2d",
            (
                lambda keys, layer: (
                    keys["downsample_hidden_size"] * 10
                    + 2 * keys["downsample_hidden_size"] * (9 * keys["downsample_hidden_size"] + 1)
                ),
            ),
        ),
        Linear("audio_tower.conv_out", _conv_out, "d_model", quantized=False),
        Encoder("audio_tower.layers", width="d_model", layers="encoder_layers", inner="encoder_ffn_dim"),
        Norms(1, 1, "d_model"),
        Linear("audio_tower.proj1", "d_model", "d_model", bias=1),
        Linear("audio_tower.proj2", "d_model", "output_dim", bias=1),
    )
)
GLM_ASR_AUDIO: Final = Several(
    (
        Vector("audio_tower.conv1", ("hidden_size", lambda keys, layer: 3 * int(keys["num_mel_bins"]) + 1)),
        Vector("audio_tower.conv2", ("hidden_size", lambda keys, layer: 3 * keys.hidden + 1)),
        Encoder("audio_tower.layers"),
        Norms(1, 1),
        Linear(
            "multi_modal_projector.linear_1",
            "intermediate_size",
            lambda keys, layer: 2 * text_hidden(keys),
            bias=1,
            split="column",
        ),
        Linear(
            "multi_modal_projector.linear_2",
            lambda keys, layer: 2 * text_hidden(keys),
            text_hidden,
            bias=1,
            split="row",
        ),
    )
)

# --------------------------------------------------------------------------------------------------------------------
# GLM


def _glm_merger(inner: Value) -> tuple[Vector | Linear | Norms, ...]:
    return (
        Vector(
            "visual.downsample",
            ("out_hidden_size", lambda keys, layer: keys.hidden * keys["spatial_merge_size"] ** 2 + 1),
        ),
        Linear("visual.merger.proj", "out_hidden_size", "out_hidden_size", split="column"),
        Norms(1, 1, "out_hidden_size"),
        Linear("visual.merger.gate_up_proj", "out_hidden_size", (inner, inner), split="column"),
        Linear("visual.merger.down_proj", inner, "out_hidden_size", split="row"),
    )


GLM4V: Final = Several(
    (
        Vector("visual.patch_embed.proj", ("hidden_size", lambda keys, layer: _cube(keys, layer) + 1)),
        Vector("visual.embeddings", (lambda keys, layer: patches(keys), "hidden_size")),
        Norms(2),
        Encoder(
            "visual.blocks",
            layers="depth",
            inner="out_hidden_size",
            bias="attention_bias|=0",
            out_bias=0,
            mlp_bias=0,
            norm_bias=0,
            gated=1,
        ),
        *_glm_merger("intermediate_size"),
    )
)


def _glm_ocr(inner: Value) -> Several:
    return Several(
        (
            Vector("visual.patch_embed.proj", ("hidden_size", lambda keys, layer: _cube(keys, layer) + 1)),
            Encoder(
                "visual.blocks",
                layers="depth",
                bias="attention_bias|=1",
                out_bias="attention_bias|=1",
                norm_bias=0,
                gated=1,
                vectors=lambda keys, layer: 2 * (keys.hidden // keys.heads),
            ),
            Norms(1),
            *_glm_merger(inner),
        )
    )


GLM_OCR: Final = _glm_ocr("intermediate_size")
GLM5_NEXT: Final = _glm_ocr("projection_intermediate_size")
EXAONE4_5: Final = Several(
    (
        Vector("visual.patch_embed.proj", ("hidden_size", _cube)),
        Encoder(
            "visual.blocks",
            layers="depth",
            gated=1,
            norm_bias=0,
            kv=lambda keys, layer: keys.hidden // keys.heads * int(keys.get("num_key_value_heads") or keys.heads),
        ),
        Norms(1),
        Linear("visual.merger.mlp.0", _merged, _merged, bias=1, split="column"),
        Linear("visual.merger.mlp.2", _merged, "out_hidden_size", bias=1, split="row"),
    )
)

# --------------------------------------------------------------------------------------------------------------------
# Others

GEMMA3: Final = Several(
    (
        SIGLIP,
        Vector("multi_modal_projector.mm_input_projection_weight", ("hidden_size", text_hidden)),
        Norms(1),
    )
)
PALIGEMMA: Final = Several(
    (
        SIGLIP,
        Linear(
            "multi_modal_projector.linear",
            "hidden_size",
            lambda keys, layer: keys.get("projection_dim") or text_hidden(keys),
            bias=1,
            quantized=False,
        ),
    )
)
GEMMA4: Final = Several(
    (
        Vector("vision_tower.positions", (2, "position_embedding_size|=10240", "hidden_size")),
        Linear("vision_tower.patch_embedder.input_proj", patch_elements, "hidden_size"),
        Encoder(
            "vision_tower.encoder.layers",
            bias=0,
            out_bias=0,
            mlp_bias=0,
            norm_bias=0,
            norms=4,
            gated=1,
            attention=lambda keys, layer: keys.heads * keys.head_dim,
            kv=lambda keys, layer: keys.kv_heads * keys.head_dim,
            vectors=lambda keys, layer: 2 * keys.head_dim,
            split=False,
        ),
        Linear("embed_vision.embedding_projection", "hidden_size", text_hidden),
    )
)


@record
class Gemma4Audio:
    """Gemma 4's conformer (``models/gemma4_mm.py``): on every rank as a whole."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del name, layer
        width = keys.hidden
        first, second = (int(channels) for channels in keys.get("subsampling_conv_channels") or (128, 32))
        output = int(keys.get("output_proj_dims") or 1536)
        kernel = int(keys.get("conv_kernel_size") or 5)
        # Two strided convolutions over 128 mel bins, their norms, and a projection of what is left of them.
        tally.param("audio_tower.subsample", first * 9 + first + second * first * 9 + second)
        tally.linear("audio_tower.subsample.input_proj_linear", 32 * second, width, split="none", quantized=False)
        for index in range(keys.layers):
            prefix = f"audio_tower.layers.{index}."
            for part in ("feed_forward1", "feed_forward2"):
                tally.linear(f"{prefix}{part}.ffw_layer_1", width, 4 * width, split="none", quantized=False)
                tally.linear(f"{prefix}{part}.ffw_layer_2", 4 * width, width, split="none", quantized=False)
            tally.param(f"{prefix}self_attn", 5 * width * width + width // keys.heads)
            tally.param(f"{prefix}lconv1d", 3 * width * width + kernel * width)
            tally.param(f"{prefix}norms", 4 * width + 2 * width + 3 * width)
        tally.linear("audio_tower.output_proj", width, output, bias=True, split="none", quantized=False)
        tally.linear("embed_audio.embedding_projection", output, text_hidden(keys), split="none", quantized=False)


IDEFICS3: Final = Several(
    (
        SIGLIP,
        Linear(
            "connector.modality_projection.proj",
            lambda keys, layer: keys.hidden * int(keys.root.get("scale_factor") or 2) ** 2,
            text_hidden,
        ),
    )
)
COHERE2_VISION: Final = Several(
    (
        SIGLIP,
        Linear(
            "multi_modal_projector.linear_1",
            lambda keys, layer: keys.hidden * int(keys.root.get("downsample_factor") or 2) ** 2,
            lambda keys, layer: keys.root["alignment_intermediate_size"],
            bias=1,
            split="column",
        ),
        Linear(
            "multi_modal_projector.linear_2",
            lambda keys, layer: keys.root["alignment_intermediate_size"] // 2,
            text_hidden,
            bias=1,
            split="row",
        ),
    )
)
COSMOS3_EDGE: Final = Several(
    (
        Vector(
            "visual.embeddings",
            ("hidden_size", lambda keys, layer: patch_elements(keys) + 1 + int(keys.get("num_patches", 256))),
        ),
        Encoder("visual.encoder.layers"),
        Norms(1, 1),
    )
)


def _shuffled(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys["input_hidden_size"]) * int(keys.get("spatial_merge_size") or 2) ** 2


COSMOS3_PROJECTOR: Final = Several(
    (
        Norms(
            1, 1, lambda keys, layer: _shuffled(keys) if keys.get("use_postshuffle_norm") else keys["input_hidden_size"]
        ),
        Linear("visual.projector.linear_fc1", _shuffled, "merger_intermediate_size", bias=1, split="column"),
        Linear("visual.projector.linear_fc2", "merger_intermediate_size", "out_hidden_size", bias=1, split="row"),
    )
)


def _aria_queries(keys: Keys, layer: int) -> int:
    del layer
    return max(int(value) for value in keys.root["projector_patch_to_query_dict"].values())


def _aria_projector(keys: Keys, layer: int) -> int:
    """Query table, cross attention (its own three projections and torch's), norms: replicated."""
    width = keys.hidden
    return (
        _aria_queries(keys, layer) * width
        + 3 * width * width
        + 3 * width * (width + 1)
        + 2 * width * (width + 1)
        + 6 * width
    )


ARIA: Final = Several(
    (
        Vector("vision_tower.embeddings", (siglip_vectors,)),
        Encoder("vision_tower.encoder.layers", layers=feature_depth),
        Vector("multi_modal_projector", (_aria_projector,)),
        Linear("multi_modal_projector.feed_forward.linear_in", "hidden_size", text_hidden, split="column"),
        Linear("multi_modal_projector.feed_forward.linear_out", text_hidden, text_hidden, split="row"),
    )
)
PADDLE_OCR: Final = Several(
    (
        SIGLIP,
        Norms(1, 1),
        Linear("mlp_AR.linear_1", _merged, _merged, bias=1, quantized=False),
        Linear("mlp_AR.linear_2", _merged, text_hidden, bias=1, quantized=False),
    )
)


LLAMA4: Final = Several(
    (
        Vector(
            "vision_model.embeddings",
            (lambda keys, layer: keys.hidden * (1 + patches(keys) + 1 + 4),),
        ),
        Linear("vision_model.patch_embedding.linear", patch_elements, "hidden_size", split="column"),
        Encoder("vision_model.model.layers"),
        Linear("vision_model.vision_adapter.mlp.fc1", "intermediate_size", "projector_input_dim", split="column"),
        Linear("vision_model.vision_adapter.mlp.fc2", "projector_output_dim", "projector_output_dim", split="row"),
        Linear("multi_modal_projector.linear_1", "vision_output_dim", text_hidden, split="column"),
    )
)
INTERNVL_HF: Final = Several(
    (
        Vector(
            "vision_tower.embeddings",
            ("hidden_size", lambda keys, layer: patch_elements(keys) + 1 + 1 + patches(keys) + 1),
        ),
        Encoder(
            "vision_tower.encoder.layer",
            bias="attention_bias|=0",
            vectors=lambda keys, layer: 2 * keys.hidden,
            split=False,
            mlp_split=True,
        ),
        Norms(1, 1, lambda keys, layer: keys.hidden * _intern_ratio(keys)),
        Linear(
            "multi_modal_projector.linear_1",
            lambda keys, layer: keys.hidden * _intern_ratio(keys),
            text_hidden,
            bias=1,
            quantized=False,
        ),
        Linear("multi_modal_projector.linear_2", text_hidden, text_hidden, bias=1, quantized=False),
    )
)


def _intern_ratio(keys: Keys) -> int:
    return int(1 / float(keys.root.get("downsample_ratio", 0.5))) ** 2


MINICPM4_6: Final = Several(
    (
        SIGLIP,
        Vector("vit_merger.norms", (lambda keys, layer: 2 * keys.hidden + 2 * 4 * keys.hidden,)),
        Linear("vit_merger.self_attn.qkv_proj", "hidden_size", ("hidden_size",) * 3, bias=1, split="column"),
        Linear("vit_merger.self_attn.out_proj", "hidden_size", "hidden_size", bias=1, split="row"),
        Linear(
            "vit_merger.linear_1",
            lambda keys, layer: 4 * keys.hidden,
            lambda keys, layer: 4 * keys["intermediate_size"],
            bias=1,
            quantized=False,
        ),
        Linear(
            "vit_merger.linear_2",
            lambda keys, layer: 4 * keys["intermediate_size"],
            "hidden_size",
            bias=1,
            quantized=False,
        ),
        Vector("merger.norm", (lambda keys, layer: 2 * 4 * keys.hidden,)),
        Linear(
            "merger.mlp.0.linear_1",
            lambda keys, layer: 4 * keys.hidden,
            lambda keys, layer: 4 * keys.hidden,
            bias=1,
            quantized=False,
        ),
        Linear("merger.mlp.0.linear_2", lambda keys, layer: 4 * keys.hidden, text_hidden, bias=1, quantized=False),
    )
)


def _muse_adapter(keys: Keys, layer: int = 0) -> int:
    """Two configuration classes name it, one in the tower's part."""
    del layer
    return int(keys.root.get("projector_hidden_size") or keys["adapter_dim"])


MUSE_GLIMMER: Final = Several(
    (
        Vector("vision_encoder.positional_embedding_vlm", ("pos_emb_height", "pos_emb_width", "hidden_size")),
        Linear(
            "vision_encoder.conv1_linear",
            lambda keys, layer: patch_elements(keys) * int(keys["patch_temporal"]),
            "hidden_size",
            quantized=False,
        ),
        Norms(2, 1),
        Encoder("vision_encoder.transformer", mlp_split=False),
        Linear(
            "vision_adapter.c_fc",
            lambda keys, layer: int(resolve("merge_size|merge_kernel_size", keys)) ** 2 * keys.hidden,
            _muse_adapter,
            quantized=False,
        ),
        Linear("vision_adapter.c_proj", _muse_adapter, _muse_adapter, quantized=False),
        Linear("vision_projection", _muse_adapter, text_hidden, quantized=False),
    )
)


def moonvit(*, bias: int, attention: Value, width: Value, inner: Value, layers: Value) -> tuple[Block, ...]:
    return (
        Vector(
            "vision_tower.patch_embed.proj", (width, lambda keys, layer: 3 * _whole(keys["patch_size"]) ** 2 + bias)
        ),
        Vector("vision_tower.patch_embed.pos_emb", ("init_pos_emb_height|=64", "init_pos_emb_width|=64", width)),
        Encoder(
            "vision_tower.encoder.blocks",
            width=width,
            layers=layers,
            inner=inner,
            attention=attention,
            bias=bias,
            out_bias=bias,
            mlp_bias=bias,
            norm_bias=bias,
            quantized=False,
        ),
        Norms(1, bias, width),
    )


_VT: Final = (
    "vt_hidden_size|hidden_size",
    "vt_intermediate_size|intermediate_size",
    "vt_num_hidden_layers|num_hidden_layers",
)
KIMI_K25: Final = Several(
    (
        *moonvit(bias=1, attention=_VT[0], width=_VT[0], inner=_VT[1], layers=_VT[2]),
        Norms(1, 1, _VT[0]),
        Linear(
            "mm_projector.linear_1",
            lambda keys, layer: 4 * _vt(keys),
            lambda keys, layer: 4 * _vt(keys),
            bias=1,
            quantized=False,
        ),
        Linear("mm_projector.linear_2", lambda keys, layer: 4 * _vt(keys), text_hidden, bias=1, quantized=False),
    )
)


def _vt(keys: Keys) -> int:
    return int(resolve(_VT[0], keys))


KIMI_K3: Final = Several(
    (
        *moonvit(
            bias=0,
            attention="qkv_hidden_size|vt_hidden_size",
            width=_VT[0],
            inner=_VT[1],
            layers=_VT[2],
        ),
        Linear(
            "mm_projector.linear_1",
            lambda keys, layer: 4 * _vt(keys),
            lambda keys, layer: 4 * _vt(keys),
            quantized=False,
        ),
        Linear("mm_projector.linear_2", lambda keys, layer: 4 * _vt(keys), text_hidden, quantized=False),
        Norms(1, 0, text_hidden),
    )
)


WHISPER_ENCODER: Final = whisper_like("encoder", "max_source_positions", split=True)


@record
class CrossDecoder:
    """Whisper's decoder layers: self attention, attention to the encoder, feed-forward; three norms."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        width, inner = int(keys["d_model"]), int(keys["decoder_ffn_dim"])
        for index in range(int(keys["decoder_layers"])):
            prefix = f"{name}decoder.layers.{index}."
            tally.linear(f"{prefix}self_attn.qkv_proj", width, width, width, width, bias=True)
            tally.linear(f"{prefix}self_attn.out_proj", width, width, bias=True, split="row")
            tally.linear(f"{prefix}encoder_attn.q_proj", width, width, bias=True)
            tally.linear(f"{prefix}encoder_attn.kv_proj", width, width, width, bias=True)
            tally.linear(f"{prefix}encoder_attn.out_proj", width, width, bias=True, split="row")
            tally.linear(f"{prefix}mlp.fc1", width, inner, bias=True)
            tally.linear(f"{prefix}mlp.fc2", inner, width, bias=True, split="row")
            tally.param(f"{prefix}norms", 6 * width)


def qformer(prefix: str, *, layers: Value = "num_hidden_layers", feed_forward_split: bool = False) -> Several:
    """BLIP-2's querying transformer; every second layer attends to the encoder."""
    return Several((Qformer(prefix, layers), Norms(1, 1)))


@record
class Qformer:
    """Self attention and feed-forward in each layer, cross attention in every ``cross_attention_frequency``-th."""

    name: str
    layers: Value = "num_hidden_layers"

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        width, inner = keys.hidden, int(keys["intermediate_size"])
        encoder = int(keys.get("encoder_hidden_size") or 1408)
        total = int(resolve(self.layers, keys))
        frequency = int(keys.get("cross_attention_frequency") or 2)
        crossing = -(-total // frequency)
        own = 4 * width * (width + 1) + 2 * width
        cross = 2 * width * (width + 1) + 2 * width * (encoder + 1) + 2 * width
        feed = inner * (width + 1) + width * (inner + 1) + 2 * width
        tally.param(f"{name}{self.name}", total * (own + feed) + crossing * cross)


BLIP2_VISION: Final = Several(
    (
        Vector(
            "vision_model.embeddings",
            ("hidden_size", lambda keys, layer: 1 + patches(keys) + 1 + patch_elements(keys) + 1),
        ),
        Encoder("vision_model.encoder.layers", bias="qkv_bias|=1"),
        Norms(1, 1),
    )
)
BLIP2: Final = (
    Tower(BLIP2_VISION, "vision_config"),
    Tower(Several((Qformer("qformer"), Norms(1, 1))), "qformer_config"),
    Tower(
        Several(
            (
                Vector(
                    "query_tokens",
                    (
                        "num_query_tokens",
                        lambda keys, layer: keys.part("qformer_config").hidden,
                    ),
                ),
                Linear(
                    "language_projection",
                    lambda keys, layer: keys.part("qformer_config").hidden,
                    lambda keys, layer: keys.part("text_config").hidden,
                    bias=1,
                    quantized=False,
                ),
            )
        )
    ),
)


@record
class Conformer:
    """Granite speech's encoder (``granite_speech.py``): sharded feed-forward parts, the rest on every rank."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        hidden, inputs, outputs = int(keys["hidden_dim"]), int(keys["input_dim"]), int(keys["output_dim"])
        inner = hidden * int(keys["feedforward_mult"])
        attention = int(keys["num_heads"]) * int(keys["dim_head"])
        conv = hidden * int(keys["conv_expansion_factor"])
        kernel = int(keys["conv_kernel_size"])
        positions = 2 * int(keys["max_pos_emb"]) + 1
        tally.param("encoder.input_linear", hidden, inputs + 1)
        for index in range(int(keys["num_layers"])):
            prefix = f"{name}encoder.layers.{index}."
            for part in ("ff1", "ff2"):
                tally.norm(f"{prefix}{part}.pre_norm", hidden, bias=True)
                tally.linear(f"{prefix}{part}.up_proj", hidden, inner, bias=True)
                tally.linear(f"{prefix}{part}.down_proj", inner, hidden, bias=True, split="row")
            tally.param(f"{prefix}attn", 3 * attention * hidden + hidden * (attention + 1) + 2 * hidden)
            tally.param(f"{prefix}attn.rel_pos_emb", positions, int(keys["dim_head"]))
            tally.param(
                f"{prefix}conv",
                2 * hidden + 2 * conv * (hidden + 1) + conv * kernel + 2 * conv + hidden * (conv + 1),
            )
            tally.norm(f"{prefix}post_norm", hidden, bias=True)
        tally.linear("encoder.out", hidden, outputs, bias=True, quantized=False)
        tally.linear("encoder.out_mid", outputs, hidden, bias=True, split="row", quantized=False)


GRANITE_SPEECH: Final = (
    Tower(Conformer(), "encoder_config"),
    Tower(Several((Qformer("projector.qformer"), Norms(1, 1))), "projector_config"),
    Tower(
        Several(
            (
                Vector(
                    "projector.query",
                    (
                        lambda keys, layer: keys["window_size"] // keys["downsample_rate"],
                        lambda keys, layer: keys.part("projector_config").hidden,
                    ),
                ),
                Linear(
                    "projector.linear",
                    lambda keys, layer: keys.part("projector_config").hidden,
                    lambda keys, layer: keys.part("text_config").hidden,
                    bias=1,
                    quantized=False,
                ),
            )
        )
    ),
)
CLIP_TEXT: Final = Several(
    (
        Vector(
            "text_model.positions",
            (lambda keys, layer: -(-int(keys["max_position_embeddings"]) // 64) * 64, "hidden_size"),
            sharded=True,
        ),
        Vector("text_model.tokens", (lambda keys, layer: -(-keys.vocab // 64) * 64, "hidden_size"), sharded=True),
        Encoder("text_model.encoder.layers"),
        Norms(1, 1),
    )
)
SIGLIP_HEAD: Final = Several(
    (
        Vector(
            "vision_model.head",
            (lambda keys, layer: keys.hidden + 4 * keys.hidden * (keys.hidden + 1) + 2 * keys.hidden,),
        ),
        Linear("vision_model.head.mlp.fc1", "hidden_size", "intermediate_size", bias=1, split="column"),
        Linear("vision_model.head.mlp.fc2", "intermediate_size", "hidden_size", bias=1, split="row"),
    )
)
NOTHING: Final = Nothing()
