"""Speech and audio architectures: what stands beside their language model (vLLM 0.32.0's model files)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvgate.models.parameters.blocks import Linear, Norms, Several
from kvgate.models.parameters.custom_towers import text_hidden
from kvgate.models.parameters.decoder import Family, Tower
from kvgate.models.parameters.keys import Keys
from kvgate.models.parameters.multimodal import nested
from kvgate.models.parameters.towers import whisper_like


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

AUDIO_MODELS: Final[Mapping[str, Family]] = {
    "UltravoxModel": ULTRAVOX,
}
