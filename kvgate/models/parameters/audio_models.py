"""Speech and audio architectures: what stands beside their language model (vLLM 0.32.0's model files)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kvgate.models.parameters import architectures as rows
from kvgate.models.parameters.blocks import Linear, Norms, Several, Vector
from kvgate.models.parameters.custom_towers import MINICPM_V, text_hidden
from kvgate.models.parameters.decoder import Family, Tower
from kvgate.models.parameters.keys import Keys
from kvgate.models.parameters.multimodal import MULTIMODAL, nested
from kvgate.models.parameters.tally import Tally
from kvgate.models.parameters.towers import Encoder, whisper_like
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


def _normed(keys: Keys, layer: int = 0) -> int:
    """The projector's last norm stands between its layers or behind them."""
    return _gated(keys, layer) if keys.root.get("projector_ln_mid") else text_hidden(keys, layer)


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

AUDIO_MODELS: Final[Mapping[str, Family]] = {
    "FunASRForConditionalGeneration": FUN_ASR,
    "FunAudioChatForConditionalGeneration": FUN_AUDIO_CHAT,
    "MiniCPMO": MINICPM_O,
    "MoonshotKimiaForCausalLM": KIMI_AUDIO,
    "MossAudioModel": MOSS_AUDIO,
    "MossTranscribeDiarizeForConditionalGeneration": MOSS_TRANSCRIBE,
    "Qwen3ASRForcedAlignerForTokenClassification": QWEN3_ALIGNER,
    "Qwen3ASRRealtimeGeneration": MULTIMODAL["Qwen3ASRForConditionalGeneration"],
    "UltravoxModel": ULTRAVOX,
}
