"""What the arithmetic needs to know of a model, read from its ``config.json``.

The figures follow vLLM's own reading of a configuration (0.32.0, ``transformers_utils/model_arch_config_convertor.py``
and the model files): which attributes count, in which order, and what a missing one means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kvgate.models.model import Model

LayerKind = Literal[
    "full",  # attention over every token
    "sliding",  # attention over the last `window` tokens
    "chunked",  # attention within chunks of `window` tokens
    "mla",  # one latent vector per token
    "mla_sparse",  # latent vector and an indexer's keys
    "mamba1",
    "mamba2",
    "gated_delta",
    "kimi_delta",
    "short_conv",
    "linear",
    "encoder",  # bidirectional attention without a cache
    "none",  # no mixer, or one that owns no cache
]


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer as far as its token mixer goes.

    ``kv_heads`` and ``head_size`` are of the whole model, before sharding; ``window`` is in tokens.
    """

    kind: LayerKind
    heads: int = 0
    kv_heads: int = 0
    head_size: int = 0
    head_size_v: int = 0
    window: int | None = None


@dataclass(frozen=True, slots=True)
class ModelGeometry:
    """A model's shape.

    Attributes:
        architecture: the class vLLM serves it with (first entry of ``architectures`` after vLLM's rewrites).
        model_type: of the whole configuration; ``text_model_type`` of its language model.
        config: the whole configuration with the defaults of its configuration class filled in and ``hf_overrides``
            applied; ``text`` its language model's part (the same mapping for a text model).
        runner: ``generate`` or ``pooling`` (embedding, classification, reward), as the architecture implies.
        num_layers: decoder layers that hold attention or another mixer, before pipeline splitting.
        head_size: elements of one attention head as vLLM counts it (MLA: latent rank + rotary part).
        declared_dtype: dtype in the configuration, None when it names none.
        max_position_tokens: context length that the configuration implies, rope scaling included (vLLM's derived
            ``max_model_len``); None when it names none.
        quantization_method: ``quant_method`` of the checkpoint's quantization configuration, lower case.
    """

    architecture: str
    model_type: str
    text_model_type: str
    config: Mapping[str, Any]
    text: Mapping[str, Any]
    runner: Literal["generate", "pooling"]
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    intermediate_size: int
    num_experts: int
    num_experts_per_token: int
    moe_intermediate_size: int
    layers: tuple[Layer, ...]
    declared_dtype: str | None
    max_position_tokens: int | None
    sliding_window: int | None
    quantization_method: str | None
    quantization_config: Mapping[str, Any] | None
    uses_mla: bool = False
    is_multimodal: bool = False
    is_hybrid: bool = False
    is_attention_free: bool = False
    is_encoder_decoder: bool = False
    tie_word_embeddings: bool = False
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class UnknownModelError(ValueError):
    """The configuration, or its architecture, is not one whose geometry is known; the message says what is missing."""


def read_geometry(model: Model, *, hf_overrides: Mapping[str, Any] | None = None) -> ModelGeometry:
    """The geometry of a model.

    Raises:
        UnknownModelError: the architecture is not in the table, or the configuration lacks a figure.
    """
    raise UnknownModelError("not yet implemented")
