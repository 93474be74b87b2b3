"""Speech and audio architectures: what stands beside their language model (vLLM 0.32.0's model files)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kvgate.models.parameters import architectures as rows
from kvgate.models.parameters.blocks import Linear, Norms, Several, Vector
from kvgate.models.parameters.custom_towers import MINICPM_V, text_hidden
from kvgate.models.parameters.decoder import Family, Tower
from kvgate.models.parameters.encoders import EMPTY
from kvgate.models.parameters.keys import Keys, Value, resolve
from kvgate.models.parameters.multimodal import MULTIMODAL, nested
from kvgate.models.parameters.tally import FLOAT32, Tally
from kvgate.models.parameters.towers import Encoder, whisper_like
from kvgate.models.parameters.vision_models import NEMOTRON_VL
from kvgate.records import record


def _stacked(keys: Keys, layer: int = 0) -> int:
    """Frames that the projector takes together."""
    del layer
    return int(keys["d_model"]) * int(keys.root.get("stack_factor") or 8)


def _projected(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys.root["hidden_size"])


def _gated(keys: Keys, layer: int = 0) -> int:
    """A gated activation halves the width."""
    width = _projected(keys, layer)
    return width // 2 if keys.root.get("projector_act", "swiglu") == "swiglu" else width


ULTRAVOX: Final = Family(
    nested,
    (
        Tower(
            Several(
                (
                    whisper_like("audio_tower", "max_source_positions", split=True),
                    Norms(1, 0, _stacked),
                    Linear("multi_modal_projector.linear_1", _stacked, _projected, quantized=False),
                    Linear("multi_modal_projector.linear_2", _gated, text_hidden, quantized=False),
                    Norms(
                        1,
                        0,
                        lambda keys, layer: _gated(keys) if keys.root.get("projector_ln_mid") else text_hidden(keys),
                    ),
                )
            ),
            "audio_config",
        ),
    ),
)

#: Whisper large v3, whose configuration stands in a folder of its own in Kimi Audio's checkpoint.
_LARGE_V3: Final = 1280
KIMI_AUDIO: Final = Family(
    rows.QWEN2,
    (
        Tower(
            Several(
                (
                    Vector("audio_tower.convolutions", (_LARGE_V3, 3 * 128 + 1 + 3 * _LARGE_V3 + 1 + 1500)),
                    Encoder("audio_tower.layers", width=_LARGE_V3, layers=32, inner=4 * _LARGE_V3),
                    Norms(1, 1, _LARGE_V3),
                    Linear("multi_modal_projector.0", "kimia_adaptor_input_dim|=5120", text_hidden, bias=1),
                    Linear("multi_modal_projector.3", text_hidden, text_hidden, bias=1),
                    Norms(1, 1, text_hidden),
                )
            )
        ),
    ),
)
MINICPM_O: Final = replace(
    MINICPM_V,
    towers=(
        *MINICPM_V.towers,
        Tower(
            Several(
                (
                    whisper_like("apm", "max_source_positions"),
                    Linear("audio_projection_layer.linear1", "d_model", text_hidden, bias=1, quantized=False),
                    Linear("audio_projection_layer.linear2", text_hidden, text_hidden, bias=1, quantized=False),
                )
            ),
            "audio_config",
        ),
    ),
)


@record
class SenseVoice:
    """FunASR's encoder (``funasr.py``): attention with a memory block, whole on every rank, MLPs are sharded."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        width, inner, kernel = (int(keys[key]) for key in ("output_size", "linear_units", "kernel_size"))
        blocks = int(keys["num_blocks"]) + int(keys.get("tp_blocks") or 0)
        for index in range(blocks):
            prefix = f"{name}audio_encoder.encoders.{index}."
            inputs = _FILTERS if index == 0 else width
            tally.param(f"{prefix}self_attn", 3 * width * (inputs + 1) + width * (width + 1) + width * kernel)
            tally.linear(f"{prefix}feed_forward.w_1", width, inner, bias=True, quantized=False)
            tally.linear(f"{prefix}feed_forward.w_2", inner, width, bias=True, split="row", quantized=False)
            tally.param(f"{prefix}norms", 2 * inputs + 2 * width)
        tally.param(f"{name}audio_encoder.norms", 4 * width)


#: Stacked filter-bank values of a frame, and the width of FunASR's adaptor (constants of its code).
_FILTERS: Final = 560
_ADAPTOR: Final = 1024
FUN_ASR: Final = Family(
    rows.QWEN3,
    (
        Tower(SenseVoice(), "audio_encoder_conf"),
        Tower(
            Several(
                (
                    Linear("audio_adaptor.linear1", 512, 2048, bias=1, split="column", quantized=False),
                    Linear("audio_adaptor.linear2", 2048, _ADAPTOR, bias=1, split="row", quantized=False),
                    Encoder("audio_adaptor.blocks", width=_ADAPTOR, layers=2, inner=_ADAPTOR // 4),
                )
            )
        ),
    ),
)
FUN_AUDIO_CHAT: Final = Family(
    nested,
    (
        Tower(
            Several(
                (
                    Vector(
                        "continuous_audio_tower.conv1", ("d_model", lambda keys, layer: 3 * keys["num_mel_bins"] + 1)
                    ),
                    Vector("continuous_audio_tower.conv2", ("d_model", lambda keys, layer: 3 * keys["d_model"] + 1)),
                    Encoder(
                        "continuous_audio_tower.layers",
                        width="d_model",
                        layers="encoder_layers",
                        inner="encoder_ffn_dim",
                        mlp_split=False,
                    ),
                    Norms(1, 1, "d_model"),
                    Linear("continuous_audio_tower.proj", "d_model", "output_dim", bias=1, quantized=False),
                    Vector("continuous_audio_tower.audio_bos_eos_token", (2, "output_dim")),
                    Vector("audio_tower.embed_tokens", ("codebook_size", "output_dim")),
                    Linear("audio_tower.output_matching", "output_dim", "output_dim", quantized=False),
                    Linear("audio_tower.continual_output_matching", "output_dim", "output_dim", quantized=False),
                )
            ),
            "audio_config",
        ),
    ),
)


@record
class MossEncoder:
    """MOSS's speech encoder: three strided convolutions, layers without a key bias, a gated adapter for each level."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        channels, width, inner = (int(keys[key]) for key in ("downsample_hidden_size", "d_model", "encoder_ffn_dim"))
        bins = int(keys["num_mel_bins"])
        for _ in range(3):
            bins = (bins + 1) // 2
        tally.param(f"{name}audio_encoder.convolutions", 10 * channels + 2 * channels * (9 * channels + 1))
        tally.linear(f"{name}audio_encoder.stem_proj", bins * channels, width, bias=True, split="none", quantized=False)
        for index in range(int(keys["encoder_layers"])):
            prefix = f"{name}audio_encoder.layers.{index}."
            tally.linear(f"{prefix}self_attn.k_proj", width, width, quantized=False)
            tally.linear(f"{prefix}self_attn.qv_proj", width, width, width, bias=True, quantized=False)
            tally.linear(f"{prefix}self_attn.out_proj", width, width, bias=True, split="row", quantized=False)
            tally.linear(f"{prefix}fc1", width, inner, bias=True, quantized=False)
            tally.linear(f"{prefix}fc2", inner, width, bias=True, split="row", quantized=False)
            tally.param(f"{prefix}norms", 4 * width)
        tally.param(f"{name}audio_encoder.layer_norm", 2 * width)
        # The encoder's last features and those of the levels in between each have an adapter.
        adapted = int(keys.get("output_dim") or width)
        adapter, hidden = int(keys.root["adapter_hidden_size"]), text_hidden(keys)
        for index in range(1 + len(keys.get("deepstack_encoder_layer_indexes") or ())):
            tally.linear(f"{name}adapters.{index}.gate_up_proj", adapted, adapter, adapter, quantized=False)
            tally.linear(f"{name}adapters.{index}.down_proj", adapter, hidden, split="row", quantized=False)


MOSS_AUDIO: Final = Family(rows.QWEN3, (Tower(MossEncoder(), "audio_config"),))


def _merged_frames(keys: Keys, layer: int = 0) -> int:
    del layer
    merge = int(keys.root.get("audio_merge_size") or 4)
    return int(keys.root.get("adaptor_input_dim") or int(keys["d_model"]) * merge)


MOSS_TRANSCRIBE: Final = Family(
    rows.QWEN3,
    (
        Tower(
            Several(
                (
                    whisper_like("whisper_encoder", "max_source_positions", split=True),
                    Linear("vq_adaptor.0", _merged_frames, text_hidden, bias=1, quantized=False),
                    Linear("vq_adaptor.3", text_hidden, text_hidden, bias=1, quantized=False),
                    Norms(1, 1, text_hidden),
                )
            ),
            "audio_config",
        ),
    ),
)


@record
class FireRed:
    """FireRedASR's conformer (``conformer_encoder.py``), on every rank as a whole."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        bins, layers, width = (int(keys[key]) for key in ("idim", "n_layers_enc", "d_model"))
        kernel, channels = int(keys.get("kernel_size") or 33), 32
        left = ((bins - 1) // 2 - 1) // 2
        subsampling = 10 * channels + 9 * channels * channels + channels + width * (channels * left + 1)
        feed = 2 * width + 4 * width * (width + 1) + width * (4 * width + 1)
        attention = 2 * width + 5 * width * width + 6 * width
        convolution = 2 * width + 4 * width * width + 2 * width * kernel + 4 * width + 2 * width * width
        tally.param(f"{name}audio_encoder", subsampling + layers * (2 * feed + attention + convolution + 2 * width))


def _stacked_frames(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys["d_model"]) * int(keys.root.get("encoder_downsample_rate") or 2)


FIRE_RED: Final = Family(
    rows.QWEN2,
    (
        Tower(
            Several(
                (
                    FireRed(),
                    Linear("encoder_projector.linear1", _stacked_frames, text_hidden, bias=1, quantized=False),
                    Linear("encoder_projector.linear2", text_hidden, text_hidden, bias=1, quantized=False),
                )
            ),
            "audio_encoder_conf",
        ),
    ),
)


@record
class FastConformer:
    """NeMo's conformer: strided convolutions by channel, relative positions; on every rank as a whole.

    Attributes:
        bias: of the layers' projections and convolutions.
    """

    width: str
    layers: str
    inner: Value
    bins: str
    kernel: str = "conv_kernel_size"
    bias: Value = 1

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        width, layers, bins, kernel = (int(keys[key]) for key in (self.width, self.layers, self.bins, self.kernel))
        inner = int(resolve(self.inner, keys))
        channels = int(keys["subsampling_conv_channels"])
        strides = int(keys["subsampling_factor"]).bit_length() - 1
        for _ in range(strides):
            bins = (bins + 1) // 2
        bias = int(bool(resolve(self.bias, keys)))
        tally.param(
            f"{name}subsampling",
            10 * channels + (strides - 1) * (10 * channels + channels * (channels + 1)) + width * (channels * bins + 1),
        )
        feed = inner * (width + bias) + width * (inner + bias)
        attention = 4 * width * (width + bias) + width * width + 2 * width
        convolution = 2 * width * (width + bias) + width * (kernel + bias) + width * (width + bias) + 2 * width
        tally.param(f"{name}layers", layers * (2 * feed + attention + convolution + 10 * width))


def _four_times(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys["d_model"]) * int(keys.get("ff_expansion_factor") or 4)


def _decoder_part(keys: Keys) -> Keys:
    return keys.part("transf_decoder").part("config_dict")


@record
class CohereDecoder:
    """Cohere's transcription decoder (``cohere_asr.py``): attention to itself and to the encoder, a whole embedding."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del layer
        config = _decoder_part(keys)
        width, inner = int(config["hidden_size"]), int(config["inner_size"])
        vocabulary = int(config.get("vocab_size") or keys["vocab_size"])
        tally.param(f"{name}decoder.embedding", vocabulary * width + 2 * width)
        for index in range(int(config["num_layers"])):
            prefix = f"{name}decoder.layers.{index}."
            for part in ("first_sub_layer", "second_sub_layer"):
                tally.linear(f"{prefix}{part}.qkv_proj", width, width, width, width, bias=True)
                tally.linear(f"{prefix}{part}.out_projection", width, width, bias=True, split="row")
            tally.linear(f"{prefix}third_sub_layer.dense_in", width, inner, bias=True)
            tally.linear(f"{prefix}third_sub_layer.dense_out", inner, width, bias=True, split="row")
            tally.param(f"{prefix}norms", 6 * width)
        tally.param(f"{name}decoder.final_layer_norm", 2 * width)
        tally.linear(
            f"{name}encoder_decoder_proj", int(keys.part("encoder")["d_model"]), width, bias=True, split="none"
        )
        tally.head(f"{name}proj_out", int(keys.part("head").get("num_classes") or vocabulary), width, bias=True)


COHERE_ASR: Final = Family(
    EMPTY,
    (
        Tower(FastConformer("d_model", "n_layers", _four_times, "feat_in", bias="use_bias|=1"), "encoder"),
        Tower(CohereDecoder()),
    ),
)


NEMOTRON_OMNI: Final = replace(
    NEMOTRON_VL,
    towers=(
        *NEMOTRON_VL.towers,
        Tower(
            Several(
                (
                    FastConformer(
                        "hidden_size",
                        "num_hidden_layers",
                        "intermediate_size",
                        "num_mel_bins",
                        bias="convolution_bias|=0",
                    ),
                    Norms(1),
                    Linear(
                        "sound_encoder.projection.linear1",
                        "hidden_size",
                        "projection_hidden_size",
                        bias="projection_bias|=0",
                        quantized=False,
                    ),
                    Linear(
                        "sound_encoder.projection.linear2",
                        "projection_hidden_size",
                        text_hidden,
                        bias="projection_bias|=0",
                        quantized=False,
                    ),
                )
            ),
            "sound_config",
            optional=True,
        ),
    ),
)

#: The forced aligner scores each position of Qwen3 ASR's output instead of a vocabulary.
QWEN3_ALIGNER: Final = replace(
    MULTIMODAL["Qwen3ASRForConditionalGeneration"],
    headless=True,
    towers=(
        *MULTIMODAL["Qwen3ASRForConditionalGeneration"].towers,
        Tower(
            Linear(
                "classifier",
                lambda keys, layer: keys.part("thinker_config").part("text_config").hidden,
                lambda keys, layer: int(keys.part("thinker_config")["classify_num"]),
                quantized=False,
            )
        ),
    ),
)


def _downsampled(keys: Keys, layer: int = 0) -> int:
    """Frames that Voxtral's adapter takes together, or the width they are folded to."""
    del layer
    width = int(resolve("d_model|hidden_size", keys))
    factor = keys.get("downsample_factor")
    return width * int(factor) if factor else int(keys["intermediate_size"])


VOXTRAL: Final = Family(
    nested,
    (
        Tower(
            Several(
                (
                    whisper_like("whisper_encoder", split=True),
                    # Sinusoidal positions are kept in float32.
                    Vector(
                        "whisper_encoder.embed_positions",
                        ("max_source_positions|=1500", "d_model|hidden_size"),
                        itemsize=FLOAT32,
                    ),
                    Linear("audio_language_adapter.w_in", _downsampled, text_hidden, quantized=False),
                    Linear("audio_language_adapter.w_out", text_hidden, text_hidden, quantized=False),
                )
            ),
            "audio_config",
        ),
    ),
)


def _heads_of_encoder(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys["encoder_attention_heads"]) * int(keys["encoder_head_dim"])


def _adaptive(keys: Keys, layer: int = 0) -> int:
    del layer
    return int(keys.get("ada_rms_norm_t_cond_dim") or 32) if keys.get("ada_rms_norm_t_cond") else 0


#: Mistral with norms that a condition scales through a narrow layer.
_STREAMING_TEXT: Final = replace(
    rows.MISTRAL,
    extra=Several(
        (
            Linear("ada_rms_norm_t_cond.0", "hidden_size", _adaptive, split="column"),
            Linear("ada_rms_norm_t_cond.2", _adaptive, "hidden_size", split="row"),
        )
    ),
)
VOXTRAL_REALTIME: Final = Family(
    _STREAMING_TEXT,
    (
        Tower(
            Several(
                (
                    Vector(
                        "whisper_encoder.convolutions",
                        (
                            "d_model",
                            lambda keys, layer: 3 * int(keys["num_mel_bins"]) + 1 + 3 * int(keys["d_model"]) + 1,
                        ),
                    ),
                    Encoder(
                        "whisper_encoder.layers",
                        width="d_model",
                        layers="encoder_layers",
                        inner="encoder_ffn_dim",
                        attention=_heads_of_encoder,
                        mlp_bias=0,
                        norm_bias=0,
                        gated=1,
                        vectors="d_model",  # the bias of the projection down
                    ),
                    Norms(1, 0, "d_model"),
                    Linear("audio_language_adapter.w_in", _downsampled, text_hidden, quantized=False),
                    Linear("audio_language_adapter.w_out", text_hidden, text_hidden, quantized=False),
                )
            ),
            "audio_config",
        ),
    ),
)

AUDIO_MODELS: Final[Mapping[str, Family]] = {
    "CohereAsrForConditionalGeneration": COHERE_ASR,
    "FireRedASR2ForConditionalGeneration": FIRE_RED,
    "FunASRForConditionalGeneration": FUN_ASR,
    "FunAudioChatForConditionalGeneration": FUN_AUDIO_CHAT,
    "MiniCPMO": MINICPM_O,
    "MoonshotKimiaForCausalLM": KIMI_AUDIO,
    "MossAudioModel": MOSS_AUDIO,
    "MossTranscribeDiarizeForConditionalGeneration": MOSS_TRANSCRIBE,
    "NemotronH_Nano_Omni_Reasoning_V3": NEMOTRON_OMNI,
    "NemotronH_Omni_Reasoning_V3": NEMOTRON_OMNI,
    "NemotronH_Super_Omni_Reasoning_V3": NEMOTRON_OMNI,
    "Qwen3ASRForcedAlignerForTokenClassification": QWEN3_ALIGNER,
    "Qwen3ASRRealtimeGeneration": MULTIMODAL["Qwen3ASRForConditionalGeneration"],
    "UltravoxModel": ULTRAVOX,
    "VoxtralForConditionalGeneration": VOXTRAL,
    "VoxtralRealtimeGeneration": VOXTRAL_REALTIME,
    "VoxtralStreamingGeneration": VOXTRAL_REALTIME,
}
