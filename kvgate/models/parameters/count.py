"""From a configuration to the parameter bytes of its largest rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvgate.models.parameters.architectures import FAMILIES
from kvgate.models.parameters.decoder import Decoder, Family, stage_shards
from kvgate.models.parameters.keys import Keys, resolve
from kvgate.models.parameters.quantization import read_quantization
from kvgate.models.parameters.tally import Tally


class UnknownArchitectureError(LookupError):
    """No description of the architecture."""


def count_parameters(
    config: Mapping[str, Any],
    *,
    files: Mapping[str, Mapping[str, Any]] | None = None,
    quantization_config: Mapping[str, Any] | None = None,
    requested_quantization: str | None = None,
    dtype_bytes: int = 2,
    tensor: int = 1,
    pipeline: int = 1,
    experts: int = 1,
    towers: bool = True,
    trace: list[tuple[str, int]] | None = None,
) -> int:
    """Parameter bytes of the pipeline stage that holds most.

    Raises:
        UnknownArchitectureError, MissingKeyError: not described, or a figure is missing.
        ValueError: the split or the storage format is not possible or not described.
    """
    keys = Keys(config)
    family = family_of(keys)
    quantization = read_quantization(quantization_config, requested_quantization, files)
    decoder, text = language_model(family, keys)
    largest = 0
    for shard in stage_shards(int(resolve(decoder.layers, text)), pipeline, tensor, experts):
        tally = Tally(shard, dtype_bytes, quantization, trace)
        decoder.count(tally, text)
        if towers and shard.first:
            for tower in family.towers:
                part = keys
                for name in filter(None, tower.config.split(".")):
                    part = part.part(name)
                tower.block.count(tally, part, "", 0)
        largest = max(largest, tally.bytes)
    return largest


def family_of(keys: Keys) -> Family:
    """The description of the first known architecture that the configuration names."""
    names = keys.get("architectures") or []
    for name in names:
        family = FAMILIES.get(str(name))
        if family is not None:
            return family
    raise UnknownArchitectureError(f"no description of {', '.join(map(str, names)) or 'a model without architectures'}")


def language_model(family: Family, keys: Keys) -> tuple[Decoder, Keys]:
    """The language model's description and the part of the configuration that it reads."""
    text = keys
    for name in family.text_config:
        part = keys
        for step in name.split("."):
            part = part.part(step)
        if part.mapping:
            text = part
            break
    described = family.text
    if isinstance(described, Decoder):
        return described, text
    name = described(text)
    found = FAMILIES.get(name)
    if found is None or not isinstance(found.text, Decoder):
        raise UnknownArchitectureError(f"no description of {name}")
    return found.text, text
