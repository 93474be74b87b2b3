"""Describing a language model as layers of blocks, and counting one rank's part of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Literal

from kvgate.models.parameters.blocks import Block, ByLayer, GatedMLP, Norms, Nothing, Several
from kvgate.models.parameters.keys import Keys, Value, resolve
from kvgate.models.parameters.tally import Shard, Tally
from kvgate.records import record

Tie = Literal["key", "always", "never"]


@record
class Decoder:
    """A stack of equal or alternating layers between an embedding and an output projection.

    Attributes:
        mixer, mlp: of each layer (a :class:`ByLayer` where they alternate).
        norms: norms of the hidden size in each layer; ``norm_bias`` where they have a bias.
        extra: further parameters of each layer.
        tie: whether the output projection is the embedding: as ``tie_word_embeddings`` says (of the whole
            configuration first, ``tie_default`` where none does), always, or never.
        head: false for models without an output projection.
        head_bias: of the output projection.
        final_norm: vectors of the hidden size in the last norm (0 for none, 2 with a bias).
        before, after: further parameters of the first and the last pipeline stage.
        layers: number of layers where it is not the usual key.
        varies: what else decides a layer's size beside its blocks (their own figures may depend on the layer).
    """

    mixer: Block
    mlp: Block = field(default_factory=GatedMLP)
    norms: Value = 2
    norm_bias: Value = 0
    extra: Block = field(default_factory=Nothing)
    tie: Tie = "key"
    tie_default: bool = False
    head: bool = True
    head_bias: Value = 0
    head_name: str = "lm_head"
    head_rows: Value = "vocab_size"
    embedding: bool = True
    embedding_width: Value | None = None
    padding: int = 64
    final_norm: Value = 1
    before: Block = field(default_factory=Nothing)
    after: Block = field(default_factory=Nothing)
    layers: Value = "num_hidden_layers"
    varies: Value = 0
    prefix: str = "layers."

    def count(self, tally: Tally, keys: Keys) -> None:
        shard = tally.shard
        total = int(resolve(self.layers, keys))
        stop = total if shard.stop is None else shard.stop
        width = keys.hidden if self.embedding_width is None else int(resolve(self.embedding_width, keys))
        tied = self.tied(keys)
        if self.embedding and (shard.first or (tied and shard.last)):
            tally.embedding("embed_tokens", keys.vocab, width, padding=self.padding)
        if shard.first:
            self.before.count(tally, keys, "", 0)
        self._layers(tally, keys, shard.start, stop)
        if shard.last:
            vectors = int(resolve(self.final_norm, keys))
            if vectors:
                tally.param("norm", vectors, keys.hidden)
            self.after.count(tally, keys, "", total - 1)
            if self.head and not tied:
                tally.head(
                    self.head_name,
                    int(resolve(self.head_rows, keys)),
                    width,
                    bias=bool(resolve(self.head_bias, keys)),
                    padding=self.padding,
                )
            elif self.head and resolve(self.head_bias, keys):
                tally.param("lm_head.bias", keys.vocab)

    def tied(self, keys: Keys) -> bool:
        if self.tie != "key":
            return self.tie == "always"
        whole = keys.root.get("tie_word_embeddings")
        return bool(keys.get("tie_word_embeddings", self.tie_default) if whole is None else whole)

    def _layers(self, tally: Tally, keys: Keys, start: int, stop: int) -> None:
        norms = Norms(self.norms, self.norm_bias)
        # Layers of one kind are counted once, unless single layers differ in storage.
        share = tally.trace is None
        known: dict[object, tuple[int, int, int]] = {}
        for layer in range(start, stop):
            mixer = pick(self.mixer, keys, layer)
            mlp = pick(self.mlp, keys, layer)
            extra = pick(self.extra, keys, layer)
            kind: object = layer
            if share:
                varies = resolve(self.varies, keys, layer)
                kind = (mixer, mlp, extra, varies, tally.quantization.fingerprint(layer))
            found = known.get(kind)
            if found is None:
                before = tally.bytes, tally.slack, tally.adapter_elements
                name = f"{self.prefix}{layer}."
                mixer.count(tally, keys, name, layer)
                mlp.count(tally, keys, name, layer)
                extra.count(tally, keys, name, layer)
                norms.count(tally, keys, name, layer)
                known[kind] = (
                    tally.bytes - before[0],
                    tally.slack - before[1],
                    tally.adapter_elements - before[2],
                )
            else:
                tally.bytes += found[0]
                tally.slack += found[1]
                tally.adapter_elements += found[2]


def pick(block: Block, keys: Keys, layer: int) -> Block:
    """The block that a choice comes to in one layer."""
    while isinstance(block, ByLayer):
        block = block.pick(keys, layer)
    if isinstance(block, Several) and any(isinstance(part, ByLayer) for part in block.blocks):
        return Several(tuple(pick(part, keys, layer) for part in block.blocks))
    return block


def stages(total: int, ranks: int) -> list[tuple[int, int]]:
    """Layers of each pipeline stage (``distributed/utils.py``: ``get_pp_indices``).

    What does not divide goes one each to the stages before the last, backwards, never to the first while others are
    free (the first and last stage also hold the embedding and the output projection).
    """
    sizes = [total // ranks] * ranks
    for index in range(2, total % ranks + 2):
        sizes[-index] += 1
    bounds: list[tuple[int, int]] = []
    at = 0
    for size in sizes:
        bounds.append((at, at + size))
        at += size
    return bounds


def stage_shards(
    total: int, ranks: int, tensor: int, experts: int, bounds: Sequence[tuple[int, int]] | None = None
) -> list[Shard]:
    """One shard per pipeline stage; ``bounds`` are their layers where they are not split evenly."""
    if ranks <= 1:
        return [Shard(tensor, experts)]
    return [
        Shard(tensor, experts, index == 0, index == ranks - 1, start, min(stop, total))
        for index, (start, stop) in enumerate(bounds or stages(total, ranks))
    ]


@record
class Tower:
    """Parameters beside the language model: an encoder, a projector.

    ``config`` names the part of the configuration its blocks read; empty for the whole. A tower is held by the first
    pipeline stage. An ``optional`` one is there only where the checkpoint's own configuration has the part.
    """

    block: Block
    config: str = ""
    optional: bool = False
    media: bool = True


@record
class Family:
    """What vLLM builds for an architecture: a language model, and towers beside it.

    ``text`` is the language model's description, or a function that names the architecture the configuration asks
    for. ``complete`` is false where a part is known to be missing from the description; ``headless`` models have no
    output projection, whatever their language model's row says.
    """

    text: Decoder | Callable[[Keys], str]
    towers: tuple[Tower, ...] = ()
    text_config: tuple[str, ...] = ("text_config", "llm_config", "language_config", "thinker_config.text_config")
    complete: bool = True
    headless: bool = False
