"""A model as its files describe it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from kvgate.records import record

ModelSource = Literal["lock", "local", "cache", "bundled", "hub", "mapping"]


@record
class Model:
    """A parsed ``config.json`` and what is known beside it.

    Attributes:
        id: Hub id or path as the server names it; None for a bare mapping.
        config: the parsed ``config.json``.
        source: where the configuration was found.
        files: further JSON files of the model directory by name (``hf_quant_config.json``,
            ``generation_config.json``, ...), parsed.
        checkpoint_bytes: bytes of the weight files (safetensors metadata or card); None when not known.
        checkpoint_source: where that figure comes from, for people.
        revision: commit of the repository, where known.
    """

    id: str | None
    config: Mapping[str, Any]
    source: ModelSource
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    checkpoint_bytes: int | None = None
    checkpoint_source: str | None = None
    revision: str | None = None
