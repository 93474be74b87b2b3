"""Reading a configuration by the names that configurations use for one thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

#: Other names of one figure, tried in order when the first is absent (transformers' ``attribute_map`` and vLLM's own
#: readings). Only names that mean the same in every configuration that has them.
ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "hidden_size": ("n_embd", "d_model", "dim", "hidden_dim", "model_dim", "embed_dim"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers", "depth"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "attention_heads"),
    "intermediate_size": ("n_inner", "ffn_hidden_size", "ffn_dim", "inner_size"),
    "vocab_size": ("padded_vocab_size",),
    "max_position_embeddings": ("n_positions", "n_ctx", "max_seq_len", "seq_length"),
}


class MissingKeyError(KeyError):
    """The configuration does not say a figure that the description needs."""

    def __str__(self) -> str:
        return f"the configuration does not say {self.args[0]}"


class Keys:
    """One part of a configuration. A value of None counts as absent."""

    __slots__ = ("_parts", "mapping", "root")

    def __init__(self, mapping: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> None:
        self.mapping = mapping
        self.root: Mapping[str, Any] = mapping if root is None else root
        self._parts: dict[str, Keys] = {}

    def get(self, name: str, default: Any = None) -> Any:
        value = self.mapping.get(name)
        if value is None:
            for alias in ALIASES.get(name, ()):
                value = self.mapping.get(alias)
                if value is not None:
                    return value
            return default
        return value

    def __getitem__(self, name: str) -> Any:
        value = self.get(name)
        if value is None:
            raise MissingKeyError(name)
        return value

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.mapping)

    def part(self, name: str) -> Keys:
        """A nested configuration; empty where there is none."""
        part = self._parts.get(name)
        if part is None:
            value = self.mapping.get(name)
            part = self._parts[name] = Keys(value if isinstance(value, Mapping) else {}, self.root)
        return part

    # Figures that nearly every description reads.

    @property
    def hidden(self) -> int:
        return int(self["hidden_size"])

    @property
    def layers(self) -> int:
        return int(self["num_hidden_layers"])

    @property
    def heads(self) -> int:
        return int(self["num_attention_heads"])

    @property
    def kv_heads(self) -> int:
        return int(self.get("num_key_value_heads") or self.heads)

    @property
    def head_dim(self) -> int:
        return int(self.get("head_dim") or self.hidden // self.heads)

    @property
    def vocab(self) -> int:
        return int(self["vocab_size"])


#: A figure in a description: a constant, the names of a key (``a|b`` takes the first that is there, ``a|=0`` falls
#: back to a constant), or a function of the configuration and the layer's index.
Value = int | str | Callable[[Keys, int], Any]


def resolve(value: Value, keys: Keys, layer: int = 0) -> Any:
    """A figure of a description for one configuration.

    Raises:
        MissingKeyError: the configuration has none of the named keys.
    """
    if isinstance(value, str):
        for name in value.split("|"):
            if name.startswith("="):
                return int(name[1:])
            found = keys.get(name)
            if found is not None:
                return found
        raise MissingKeyError(value)
    if callable(value):
        return value(keys, layer)
    return value
