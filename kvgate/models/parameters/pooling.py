"""Embedding, ranking and classifying models on top of a described one: no output projection, a head of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kvgate.models.parameters import architectures as rows
from kvgate.models.parameters.blocks import Linear, Several, Vector
from kvgate.models.parameters.decoder import Decoder, Family, Tower
from kvgate.models.parameters.encoders import ENCODERS, dense32, labels
from kvgate.models.parameters.keys import Keys, Value
from kvgate.models.parameters.multimodal import MULTIMODAL
from kvgate.models.parameters.tally import FLOAT32
from kvgate.models.parameters.vision_models import NEMOTRON_EMBED


def text_width(keys: Keys, layer: int = 0) -> int:
    """Hidden size of the language model, from the whole configuration."""
    del layer
    for name in ("text_config", "llm_config"):
        if keys.part(name).mapping:
            return keys.part(name).hidden
    return keys.hidden


SCORE: Final = Tower(dense32("score", text_width, labels, bias=0), media=False)


def pooled(family: Family, *, classifies: bool = False) -> Family:
    """A family served for pooling; classifiers score with one float32 layer (``adapters.py:as_seq_cls_model``)."""
    return replace(family, headless=True, towers=(*family.towers, SCORE) if classifies else family.towers)


def _two_layers(inner: Value, outputs: Value) -> Tower:
    """A dense layer and a last one with biases, in float32, sharded (``qwen2_rm.py``)."""
    return Tower(
        Several(
            (
                Linear("score.0", text_width, inner, bias=1, split="column", quantized=False, itemsize=FLOAT32),
                Linear("score.2", inner, outputs, bias=1, split="row", quantized=False, itemsize=FLOAT32),
            )
        ),
        media=False,
    )


def _colbert(width: Value) -> Tower:
    """The last projection of a late-interaction model, in float32 (``colbert.py``)."""
    return Tower(dense32("colbert_linear", "hidden_size", width, bias=0), media=False)


def _headless(decoder: Decoder, *towers: Tower) -> Family:
    return Family(decoder, towers, headless=True)


_QWEN2_VL: Final = MULTIMODAL["Qwen2VLForConditionalGeneration"]
POOLING: Final[Mapping[str, Family]] = {
    "ColBERTLfm2Model": _headless(rows.LFM2),
    "ColBERTModernBertModel": replace(
        ENCODERS["ModernBertModel"],
        towers=(*ENCODERS["ModernBertModel"].towers, _colbert("colbert_dim|embedding_dim|=128")),
    ),
    "D3ForSequenceClassification": replace(
        MULTIMODAL["Qwen3_5ForConditionalGeneration"],
        headless=True,
        towers=(*MULTIMODAL["Qwen3_5ForConditionalGeneration"].towers, SCORE),
    ),
    "DeepseekV3BidirectionalModel": _headless(rows.DEEPSEEK),
    "JinaEmbeddingsV5Model": _headless(rows.QWEN3),
    "JinaForRanking": _headless(
        rows.QWEN3,
        Tower(
            Several(
                (
                    Linear("projector.0", "hidden_size", lambda keys, layer: keys.hidden // 2, quantized=False),
                    Linear("projector.2", lambda keys, layer: keys.hidden // 2, 512, quantized=False),
                )
            ),
            media=False,
        ),
    ),
    "JinaVLForRanking": replace(_QWEN2_VL, headless=True, towers=(*_QWEN2_VL.towers, _two_layers(text_width, 1))),
    "Lfm2BidirectionalModel": _headless(rows.LFM2),
    "LlamaBidirectionalForSequenceClassification": _headless(rows.LLAMA, SCORE),
    "LlamaBidirectionalModel": _headless(rows.LLAMA),
    "LlamaNemotronVLForSequenceClassification": replace(NEMOTRON_EMBED, towers=(*NEMOTRON_EMBED.towers, SCORE)),
    "Qwen2ForProcessRewardModel": _headless(rows.QWEN2, _two_layers("hidden_size", 2)),
    "Qwen2ForRewardModel": _headless(rows.QWEN2, _two_layers("hidden_size", 1)),
    "VoyageQwen3BidirectionalEmbedModel": _headless(
        rows.QWEN3, Tower(Vector("linear", ("num_labels", "hidden_size")), media=False)
    ),
}
