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
from kvgate.models.parameters.multimodal import nested
from kvgate.models.parameters.towers import Encoder, whisper_like


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

AUDIO_MODELS: Final[Mapping[str, Family]] = {
    "MiniCPMO": MINICPM_O,
    "MoonshotKimiaForCausalLM": KIMI_AUDIO,
    "UltravoxModel": ULTRAVOX,
}
