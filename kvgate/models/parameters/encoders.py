"""Encoder-only models: BERT and its relatives, ModernBERT, and the text sides of CLIP and SigLIP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kvgate.models.parameters.blocks import Block, Linear, Norms, Nothing, Several, Vector
from kvgate.models.parameters.decoder import Decoder, Family, Tower
from kvgate.models.parameters.keys import Keys, Value, resolve
from kvgate.models.parameters.tally import FLOAT32, Tally, divide
from kvgate.models.parameters.towers import Encoder
from kvgate.records import record


def labels(keys: Keys, layer: int = 0) -> int:
    """Outputs of a classifier."""
    del layer
    number = keys.get("num_labels")
    if number is None:
        number = len(keys.get("id2label") or ()) or 2
    return int(number)


def padded(name: str) -> Any:
    """Rows of a sharded table."""
    return lambda keys, layer: -(-int(keys[name]) // 64) * 64


@record
class Bert:
    """Embeddings and layers with biases and norms after each part (``bert.py``, ``roberta.py``).

    ``positions`` are a sharded table in RoBERTa's word sense, a replicated one in BERT's.
    """

    sharded_positions: bool = False

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        hidden = keys.hidden
        tally.embedding("word_embeddings", keys.vocab, hidden)
        rows = int(keys["max_position_embeddings"])
        if self.sharded_positions:
            tally.embedding("position_embeddings", rows, hidden)
        else:
            tally.embedding("position_embeddings", rows, hidden)
        tally.embedding("token_type_embeddings", int(keys.get("type_vocab_size") or 2), hidden)
        tally.norm("embeddings.LayerNorm", hidden, bias=True)
        Encoder("encoder.layer").count(tally, keys, name, layer)


@record
class ModernBert:
    """Rotary positions, gated MLP, no biases by default; the first layer has no attention norm."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        hidden = keys.hidden
        tally.embedding("tok_embeddings", keys.vocab, hidden)
        bias = bool(keys.get("norm_bias"))
        tally.norm("embeddings.norm", hidden, bias=bias)
        Encoder(
            "layers",
            bias="attention_bias|=0",
            out_bias="attention_bias|=0",
            mlp_bias="mlp_bias|=0",
            norm_bias=int(bias),
            gated=1,
        ).count(tally, keys, name, layer)
        # One norm of the first layer is the identity; the final norm takes its place.
        tally.param("final_norm", 0)


def dense32(name: str, inputs: Value, outputs: Value, *, bias: int = 1) -> Block:
    """A layer of a head, kept in float32 on every rank."""
    return Vector(
        name,
        (lambda keys, layer: int(resolve(outputs, keys)) * (int(resolve(inputs, keys)) + bias),),
        itemsize=FLOAT32,
    )


CLASSIFIER: Final = dense32("classifier", "hidden_size", labels)
POOLER: Final = dense32("pooler.dense", "hidden_size", "hidden_size")
EMPTY: Final = Decoder(Nothing(), Nothing(), embedding=False, head=False, final_norm=0, layers=0)


def encoder(*blocks: Block) -> Family:
    """A model that is no decoder: all of it in one stage."""
    return Family(EMPTY, (Tower(Several(blocks)),))


@record
class MaskedHead:
    """BERT's head: a dense layer, a norm, and a decoder of its own."""

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        del name, layer
        hidden = keys.hidden
        tally.param("mlm_head", hidden * (hidden + 1) + 2 * hidden + keys.vocab * (hidden + 1))


@record
class GatedBert:
    """BERT with rotary positions (``bert_with_rope.py``): GTE's and Nomic's, gated MLPs, mixtures of experts.

    ``bias`` of the projections, ``mlp_bias`` of the MLP's last one; ``sparse`` layers' first and period are in the
    configuration.
    """

    bias: Value = 1
    up_bias: Value = 0
    down_bias: Value = 1
    gated: Value = 1

    def count(self, tally: Tally, keys: Keys, name: str, layer: int) -> None:
        hidden, inner = keys.hidden, int(keys["intermediate_size"])
        tally.embedding("word_embeddings", keys.vocab, hidden)
        types = int(keys.get("type_vocab_size") or 0)
        if types:
            tally.embedding("token_type_embeddings", types, hidden)
        tally.norm("embeddings.LayerNorm", hidden, bias=True)
        every = int(keys.get("moe_every_n_layers") or 0)
        bias, up_bias, down_bias = (bool(resolve(value, keys)) for value in (self.bias, self.up_bias, self.down_bias))
        for index in range(keys.layers):
            prefix = f"{name}encoder.layers.{index}."
            tally.linear(f"{prefix}attn.qkv_proj", hidden, hidden, hidden, hidden, bias=bias)
            tally.linear(f"{prefix}attn.out_proj", hidden, hidden, bias=bias, split="row")
            if every and index % every == 1:
                experts = int(keys["num_experts"])
                tally.param(f"{prefix}mlp.router", experts, hidden)
                part = divide(inner, tally.shard.tensor)
                tally.param(f"{prefix}mlp.experts", 2 * experts * part, hidden)
                tally.param(f"{prefix}mlp.bias", hidden)
            else:
                up = (inner, inner) if resolve(self.gated, keys) else (inner,)
                tally.linear(f"{prefix}mlp.up_proj", hidden, *up, bias=up_bias)
                tally.linear(f"{prefix}mlp.down_proj", inner, hidden, bias=down_bias, split="row")
            tally.param(f"{prefix}norms", 4 * hidden)


#: ERNIE's embedding of tasks, beside BERT's.
TASK_TYPES: Final = Vector("task_type_embeddings", (padded("task_type_vocab_size"), "hidden_size"), sharded=True)
GTE: Final = GatedBert()
NOMIC: Final = GatedBert(
    bias="qkv_proj_bias|=1",
    up_bias=lambda keys, layer: keys.get("mlp_fc1_bias") and keys.get("activation_function") != "swiglu",
    down_bias="mlp_fc2_bias|=1",
    gated=lambda keys, layer: keys.get("activation_function", "swiglu") == "swiglu",
)
ENCODERS: Final[Mapping[str, Family]] = {
    "BertModel": encoder(Bert()),
    "BertForMaskedLM": encoder(Bert(), MaskedHead()),
    "BertForTokenClassification": encoder(Bert(), CLASSIFIER),
    "BertForSequenceClassification": encoder(Bert(), POOLER, CLASSIFIER),
    "BertSpladeSparseEmbeddingModel": encoder(Bert(), MaskedHead()),
    "BgeM3EmbeddingModel": encoder(
        Bert(),
        dense32("sparse_linear", "hidden_size", 1),
        dense32("colbert_linear", "hidden_size", "colbert_dim|hidden_size"),
    ),
    "ErnieForSequenceClassification": encoder(Bert(), TASK_TYPES, POOLER, CLASSIFIER),
    "ErnieForTokenClassification": encoder(Bert(), TASK_TYPES, CLASSIFIER),
    "ErnieModel": encoder(Bert(), TASK_TYPES),
    "GteModel": encoder(GTE),
    "GteNewForSequenceClassification": encoder(GTE, POOLER, CLASSIFIER),
    "GteNewModel": encoder(GTE),
    "NomicBertModel": encoder(NOMIC),
    "RobertaModel": encoder(Bert()),
    "RobertaForMaskedLM": encoder(Bert()),
    "XLMRobertaModel": encoder(Bert()),
    "RobertaForTokenClassification": encoder(Bert(), CLASSIFIER),
    "XLMRobertaForTokenClassification": encoder(Bert(), CLASSIFIER),
    "RobertaForSequenceClassification": encoder(
        Bert(), dense32("classifier.dense", "hidden_size", "hidden_size"), CLASSIFIER
    ),
    "XLMRobertaForSequenceClassification": encoder(
        Bert(), dense32("classifier.dense", "hidden_size", "hidden_size"), CLASSIFIER
    ),
    "ModernBertModel": encoder(ModernBert()),
    "ModernBertForSequenceClassification": encoder(
        ModernBert(),
        dense32("pooling.dense", "hidden_size", "hidden_size", bias=0),
        Vector("pooling.norm", ("hidden_size",), itemsize=FLOAT32),
        CLASSIFIER,
    ),
    "ModernBertForTokenClassification": encoder(
        ModernBert(),
        Linear("head.dense", "hidden_size", "hidden_size", quantized=False),
        Norms(1),
        CLASSIFIER,
    ),
}
