"""``.kvgate/measured.json``: what servers measured, kept so that later predictions start from it.

``kvgate verify --record`` and ``kvgate smoke --record`` write it. A figure is used for a unit whose model, release and
GPU are those of the measurement, as long as nothing that shapes it was changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import fstat
from pathlib import Path
from typing import Any, Final

from kvgate.capacity.measured import MeasuredTerms
from kvgate.engine.shaping import TERMS, shaping
from kvgate.errors import KvgateError
from kvgate.records import record
from kvgate.source.files import write_whole
from kvgate.source.text import Unresolved

FILE: Final = ".kvgate/measured.json"
SCHEMA: Final = "kvgate.measured/1"
_MAX_BYTES: Final = 5_000_000


class MeasuredError(KvgateError):
    """The file cannot be read or written."""


@record
class Measurement:
    """One measured start.

    Attributes:
        unit: id of the unit it was measured for.
        arguments: the set arguments that shape memory or pool, dest -> value.
        terms: bytes by name, see :class:`kvgate.capacity.measured.MeasuredTerms`; also ``kv_cache_available`` and
            ``total``, for people.
        recorded: date, ISO.
    """

    unit: str
    model: str
    vllm_version: str
    gpu: str
    arguments: Mapping[str, Any]
    terms: Mapping[str, int]
    recorded: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "unit": self.unit,
            "model": self.model,
            "vllm_version": self.vllm_version,
            "gpu": self.gpu,
            "arguments": dict(self.arguments),
            "terms": dict(self.terms),
            "recorded": self.recorded,
        }


def read_measurements(root: Path) -> tuple[Measurement, ...]:
    """All measurements of a tree; empty where there is no file.

    Raises:
        MeasuredError: the file cannot be read, or is not what kvgate writes.
    """
    path = root / FILE
    try:
        with path.open("rb") as stream:
            state = fstat(stream.fileno())
            key = (str(path), state.st_mtime_ns, state.st_size)
            if key in _READ:
                return _READ[key]
            data = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise MeasuredError(f"{FILE}: {error.strerror or error}") from None
    _READ.clear()
    _READ[key] = _parsed(data)
    return _READ[key]


# every unit of a run asks for the same file
_READ: Final[dict[tuple[str, int, int], tuple[Measurement, ...]]] = {}


def _parsed(data: bytes) -> tuple[Measurement, ...]:
    try:
        if len(data) > _MAX_BYTES:
            raise ValueError(f"larger than {_MAX_BYTES} bytes")
        document = json.loads(data)
        if document.get("schema") != SCHEMA:
            raise ValueError(f'"schema": "{SCHEMA}" expected')
        return tuple(_measurement(entry) for entry in document["measurements"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MeasuredError(f"{FILE}: not what `kvgate verify --record` writes: {error}") from None


def _measurement(entry: Mapping[str, Any]) -> Measurement:
    terms = {name: int(value) for name, value in entry["terms"].items()}
    names = {name: str(entry[name]) for name in ("unit", "model", "vllm_version", "gpu", "recorded")}
    return Measurement(arguments=dict(entry["arguments"]), terms=terms, **names)


def write_measurement(root: Path, measurement: Measurement) -> str:
    """Add a measurement; an older one of the same unit, release and GPU goes. Returns the file's path as shown.

    Raises:
        MeasuredError: the file cannot be read or written.
    """
    key = (measurement.unit, measurement.vllm_version, measurement.gpu)
    kept = [one for one in read_measurements(root) if (one.unit, one.vllm_version, one.gpu) != key]
    kept.append(measurement)
    kept.sort(key=lambda one: (one.unit, one.vllm_version, one.gpu))
    text = json.dumps({"schema": SCHEMA, "measurements": [one.as_dict() for one in kept]}, indent=2, sort_keys=True)
    path = root / FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{text}\n".encode())
    except OSError as error:
        raise MeasuredError(f"{FILE}: cannot be written: {error.strerror or error}") from None
    return FILE


def recordable(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments to keep with a measurement; None where one that matters is not resolved."""
    kept: dict[str, Any] = {}
    for figure in (*TERMS, "pool"):
        for dest, value in shaping(values, figure).items():
            if isinstance(value, Unresolved):
                return None
            kept[dest] = value
    return kept


def measured_terms(
    measurements: tuple[Measurement, ...],
    *,
    unit: str,
    model: str | None,
    vllm_version: str,
    gpu: str | None,
    values: Mapping[str, Any],
    tolerance: float,
) -> MeasuredTerms | None:
    """The terms that hold for a unit, from the measurement that tells most about it; None where none tells anything."""
    best: tuple[int, bool, str] | None = None
    found: MeasuredTerms | None = None
    for one in measurements:
        if (one.model, one.vllm_version, one.gpu) != (model, vllm_version, gpu):
            continue
        terms = {
            name: one.terms[name]
            for name in TERMS
            if name in one.terms and shaping(one.arguments, name) == shaping(values, name)
        }
        rank = (len(terms), one.unit == unit, one.recorded)
        if terms and (best is None or rank > best):
            best = rank
            found = MeasuredTerms(terms, tolerance, f"measured on {one.recorded} ({FILE})")
    return found
