"""From a configuration to the parameter bytes of its largest rank."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

from kvgate.models.architectures import family_of as family_served
from kvgate.models.architectures import served_name
from kvgate.models.parameters.architectures import FAMILIES
from kvgate.models.parameters.decoder import Decoder, Family, stage_shards
from kvgate.models.parameters.keys import Keys, MissingKeyError, resolve
from kvgate.models.parameters.quantization import read_quantization
from kvgate.models.parameters.tally import Tally
from kvgate.records import record
from kvgate.tables import load_table


@record
class Count:
    """One rank's parameters: bytes, what torch's allocator adds, elements of a rank-one adapter on all layers."""

    bytes: int
    slack: int
    adapter_elements: int


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
    stages: Sequence[tuple[int, int]] | None = None,
    experts: int = 1,
    towers: bool = True,
    absent: Collection[str] = (),
    written: Collection[str] | None = None,
    pooling: bool = False,
    capability: tuple[int, int] | None = None,
    trace: list[tuple[str, int]] | None = None,
) -> Count:
    """Parameters of the pipeline stage that holds most.

    ``stages`` are the decoder layers of each pipeline stage where they are not split evenly.
    ``absent`` are the parts that the configuration sets to null, ``written`` those that the checkpoint's own
    configuration has before defaults are filled in (None: all that are in ``config``).

    Raises:
        UnknownArchitectureError, MissingKeyError: not described, or a figure is missing.
        ValueError: the split or the storage format is not possible or not described.
    """
    keys = Keys(config)
    family = family_of(keys)
    quantization = read_quantization(quantization_config, requested_quantization, files, keys.mapping, capability)
    decoder, text = language_model(family, keys)
    if family.headless or pooling:
        decoder = replace(decoder, head=False)  # ``models/adapters.py``: the output projection is dropped
    largest = Count(0, 0, 0)
    total = int(resolve(decoder.layers, text))
    for shard in stage_shards(total, pipeline, tensor, experts, stages):
        tally = Tally(shard, dtype_bytes, quantization, trace, capability)
        decoder.count(tally, text)
        adapters = tally.adapter_elements
        if shard.first:
            for tower in family.towers:
                # A model without decoder layers is all tower: nothing of it is left out.
                if tower.media and total and not towers:
                    continue
                if tower.optional and tower.config not in (keys.mapping if written is None else written):
                    continue
                part = tower_keys(keys, tower.config, absent)
                if part is not None:
                    tower.block.count(tally, part, "", 0)
        if tally.bytes > largest.bytes:
            largest = Count(tally.bytes, tally.slack, adapters)
    return largest


def tower_defaults() -> Mapping[str, Any]:
    """Defaults of nested configurations: by the model that nests them, and by their own type (transformers 5.19)."""
    table: dict[str, Any] = load_table("models/towers")
    return table


def tower_keys(keys: Keys, path: str, absent: Collection[str] = ()) -> Keys | None:
    """The part of the configuration that a tower reads (``a|b`` takes the first that is there), defaults filled in.

    A part that is missing is the model's default one; a part that is there has its own class's defaults. None where
    the model has no such tower: the configuration says null, and nothing is nested by default.
    """
    table = tower_defaults()
    parent = table["parents"].get(str(keys.get("model_type")), {})
    whole = {**parent.get("", {}), **{key: value for key, value in keys.mapping.items() if value is not None}}
    if not path:
        return Keys(whole)
    candidates = path.split("|")
    for candidate in candidates:
        if candidate in absent and len(parent.get(candidate, {})) <= 1:
            return None
        written: Any = keys.mapping
        for name in candidate.split("."):
            written = written.get(name) if isinstance(written, Mapping) else None
        if isinstance(written, Mapping) and written:
            kind = str(written.get("model_type") or parent.get(candidate, {}).get("model_type"))
            given = {key: value for key, value in written.items() if value is not None}
            return Keys({**table["types"].get(kind, {}), "model_type": kind, **given}, whole)
    for candidate in candidates:
        nested = parent.get(candidate, {})
        if len(nested) > 1:
            return Keys({**table["types"].get(str(nested.get("model_type")), {}), **nested}, whole)
    raise MissingKeyError(path)


def described(architecture: str) -> Family | None:
    """The row of an architecture."""
    return FAMILIES.get(architecture) or _rarer_families().get(architecture)


def family_of(keys: Keys) -> Family:
    """The description of the first known architecture that the configuration names.

    A pooling model without a class of its own is its base model without the output projection, classifiers with a
    scoring layer instead (vLLM 0.32.0 ``models/adapters.py``).
    """
    names = [str(name) for name in keys.get("architectures") or []]
    for name in dict.fromkeys((served_name(keys.mapping), *names)):
        family = described(name)
        if family is not None:
            return family
        served = family_served(name)
        base = None if served is None else described(served[0])
        if base is not None:
            from kvgate.models.parameters.pooling import pooled

            return pooled(base, classifies=name.endswith(_CLASSIFIERS))
    raise UnknownArchitectureError(f"no description of {', '.join(names) or 'a model without architectures'}")


_CLASSIFIERS: Final = (
    *(f"For{kind}Classification" for kind in ("Sequence", "Token", "Audio", "Image", "Video")),
    "ClassificationModel",
)


@cache
def _rarer_families() -> Mapping[str, Family]:
    """The descriptions that a text model's start does not wait for; the first one of an architecture counts."""
    from kvgate.models.parameters.audio_models import AUDIO_MODELS
    from kvgate.models.parameters.custom import CUSTOM
    from kvgate.models.parameters.custom_towers import CUSTOM_TOWERS
    from kvgate.models.parameters.encoders import ENCODERS
    from kvgate.models.parameters.multimodal import MULTIMODAL
    from kvgate.models.parameters.pooling import POOLING
    from kvgate.models.parameters.previous import PREVIOUS
    from kvgate.models.parameters.vision_models import VISION_MODELS

    tables = (MULTIMODAL, ENCODERS, CUSTOM, CUSTOM_TOWERS, VISION_MODELS, AUDIO_MODELS, POOLING, PREVIOUS)
    return ChainMap(*(dict(table) for table in tables))


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
    from kvgate.models.parameters.custom import CUSTOM

    name = described(text)
    found = FAMILIES.get(name) or CUSTOM.get(name)
    if found is None or not isinstance(found.text, Decoder):
        raise UnknownArchitectureError(f"no description of {name}")
    return found.text, text
