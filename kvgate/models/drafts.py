"""The caches that speculative decoding adds: prediction heads of a checkpoint, and draft models of their own.

Read from vLLM 0.32.0's ``*_mtp.py`` model files and ``config/speculative.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kvgate.models.architectures import (
    Config,
    Layer,
    Maker,
    MissingFieldError,
    attention,
    deepseek_v4,
    has,
    mla,
    nothing,
)
from kvgate.models.geometry import ModelGeometry, UnknownModelError
from kvgate.records import record

# Methods that guess from the text alone: no model, no cache.
TEXT_METHODS: Final = frozenset({"ngram", "[ngram]", "ngram_gpu", "suffix"})
# Methods whose drafts keep no cache: heads on the hidden state.
HEAD_METHODS: Final = frozenset({"medusa", "mlp_speculator", "extract_hidden_states"})


@record
class Heads:
    """A checkpoint's own prediction layers: what one keeps, and how many there are."""

    maker: Maker
    counts: tuple[str, ...] = ("num_nextn_predict_layers",)
    default: int | None = None


def _always(config: Config, index: int) -> bool:
    return True


_LATENT: Final = Heads(mla(sparse=has("index_topk"), indexed=_always))
_DENSE: Final = Heads(attention())
_QWEN3_5: Final = Heads(attention(), ("mtp_num_hidden_layers",), 1)

# By the architecture of the language model.
_HEADS: Final[Mapping[str, Heads]] = {
    "BailingMoeV2_5ForCausalLM": _LATENT,
    "BailingMoeV3ForCausalLM": _LATENT,
    "DeepseekV2ForCausalLM": _LATENT,
    "DeepseekV32ForCausalLM": _LATENT,
    "DeepseekV3ForCausalLM": _LATENT,
    "DeepseekV4ForCausalLM": Heads(deepseek_v4),
    "DeepseekV4ForConditionalGeneration": Heads(deepseek_v4),
    "Ernie4_5_MoeForCausalLM": _DENSE,
    "Exaone4ForCausalLM": Heads(attention(), default=1),
    "ExaoneMoeForCausalLM": Heads(attention(), default=1),
    "Gemma4ForCausalLM": Heads(nothing, default=1),  # its assistant reads the target's cache
    "Glm4ForCausalLM": _DENSE,
    "Glm4MoeForCausalLM": _DENSE,
    "Glm4MoeLiteForCausalLM": _LATENT,
    "GlmMoeDsaForCausalLM": _LATENT,
    "HYV3ForCausalLM": _DENSE,
    "KimiLinearForCausalLM": _LATENT,
    "LongcatFlashForCausalLM": Heads(mla(), (), 1),
    "MiMoForCausalLM": _DENSE,
    "MistralLarge3ForCausalLM": _LATENT,
    "NemotronHForCausalLM": Heads(attention(), (), 1),
    "PanguUltraMoEForCausalLM": _LATENT,
    "Qwen3NextForCausalLM": Heads(attention(), default=1),
    "Qwen3_5ForCausalLM": _QWEN3_5,
    "Qwen3_5ForConditionalGeneration": _QWEN3_5,
    "Qwen3_5MoeForCausalLM": _QWEN3_5,
    "Qwen3_5MoeForConditionalGeneration": _QWEN3_5,
}


def is_own_head(speculative: Mapping[str, Any]) -> bool:
    """Whether the drafts come from the checkpoint's own prediction layers."""
    method = str(speculative.get("method") or "")
    return method == "mtp" or method.endswith("_mtp")


def draft_layers(
    geometry: ModelGeometry, speculative: Mapping[str, Any], draft: ModelGeometry | None = None
) -> tuple[Layer, ...]:
    """The caches that drafting adds, numbered after the target's layers.

    Args:
        speculative: ``--speculative-config``.
        draft: the draft model, where it is one of its own.

    Raises:
        UnknownModelError: what the drafts keep is not known.
    """
    method = str(speculative.get("method") or "")
    if not speculative or method in TEXT_METHODS or method in HEAD_METHODS:
        return ()
    if is_own_head(speculative):
        # The head may stand in a checkpoint of its own, which has the configuration of the whole model.
        own = draft is not None and draft.text_architecture in _HEADS
        return _own_heads(geometry, draft if own and draft is not None else geometry)
    if draft is None:
        name = speculative.get("model") or "the draft model"
        raise UnknownModelError(f"the KV cache of {name} ({method or 'draft model'}) is not known")
    return tuple(replace(layer, index=geometry.num_layers + layer.index) for layer in draft.layers)


def _own_heads(target: ModelGeometry, geometry: ModelGeometry) -> tuple[Layer, ...]:
    heads = _HEADS.get(geometry.text_architecture)
    if heads is None:
        raise UnknownModelError(f"what the prediction layers of {geometry.text_architecture} keep is not known")
    text = geometry.text
    count = next((int(text[key]) for key in heads.counts if text.get(key) is not None), heads.default)
    if count is None:
        raise UnknownModelError(f"config.json of {geometry.architecture} lacks {heads.counts[0]}")
    try:
        return tuple(
            layer
            for index in range(count)
            for layer in heads.maker({**text, "layer_types": None}, target.num_layers + index)
        )
    except MissingFieldError as error:
        raise UnknownModelError(f"config.json of {geometry.architecture} lacks {error.args[0]}") from None


__all__ = ["Heads", "draft_layers", "is_own_head"]
