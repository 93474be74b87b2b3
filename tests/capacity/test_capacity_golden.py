"""Figures that vLLM 0.32.0's own code computed from configurations (``golden.json``, ``flags.json``).

Each row: model, arguments (``gpu``, ``available_bytes`` of KV memory, ``tp``, ...), and vLLM's bytes per block, blocks,
tokens, concurrency and estimated maximum length. The configurations are shortened to what bears on the arithmetic.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kvgate.capacity.predict import predict_capacity
from kvgate.capacity.prediction import Prediction
from kvgate.hardware.gpu import Gpu
from kvgate.models.model import Model

_FIGURES = ("bytes_per_block", "num_gpu_blocks", "size_tokens", "max_concurrency", "estimated_max_model_len")


def _load(name: str) -> tuple[Mapping[str, Model], Mapping[str, list[tuple[Mapping[str, Any], list[Any]]]]]:
    data = json.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))
    models = {
        key: Model(key, value["config"], "mapping", value.get("files", {})) for key, value in data["models"].items()
    }
    rows: dict[str, list[tuple[Mapping[str, Any], list[Any]]]] = defaultdict(list)
    for key, flags, figures in data["rows"]:
        rows[key].append((flags, figures))
    return models, rows


_GOLDEN = _load("golden.json")
_FLAGS = _load("flags.json")


def _predict(model: Model, flags: Mapping[str, Any], gpu: Gpu) -> Prediction:
    arguments = {key: value for key, value in flags.items() if key not in ("gpu", "available_bytes", "tp", "extra")}
    arguments |= flags.get("extra", {})
    arguments["kv_cache_memory_bytes"] = flags["available_bytes"]
    if "tp" in flags:
        arguments["tensor_parallel_size"] = flags["tp"]
    return predict_capacity(model, arguments, version="0.32.0", gpu=gpu)


def _assert_rows(model: Model, rows: list[tuple[Mapping[str, Any], list[Any]]], gpu: Callable[[str], Gpu]) -> None:
    for flags, figures in rows:
        prediction = _predict(model, flags, gpu(flags["gpu"]))
        got = {name: getattr(prediction.kv_cache, name) for name in _FIGURES}
        want = {name: figure for name, figure in zip(_FIGURES, figures, strict=True) if figure is not None}
        assert {name: got[name] for name in want} == pytest.approx(want, rel=1e-12), (flags, prediction.reasons)


@pytest.mark.parametrize("name", sorted(_GOLDEN[1]))
def test_golden_rows_of_a_model(name: str, gpu: Callable[[str], Gpu]) -> None:
    _assert_rows(_GOLDEN[0][name], _GOLDEN[1][name], gpu)


@pytest.mark.parametrize("name", sorted(_FLAGS[1]))
def test_rows_with_uncommon_flags(name: str, gpu: Callable[[str], Gpu]) -> None:
    _assert_rows(_FLAGS[0][name], _FLAGS[1][name], gpu)


def test_rows_cover_every_kind_of_cache(gpu: Callable[[str], Gpu]) -> None:
    kinds = set()
    for name, rows in _GOLDEN[1].items():
        prediction = _predict(_GOLDEN[0][name], rows[0][0], gpu(rows[0][0]["gpu"]))
        kinds |= {group.kind for group in prediction.kv_cache.groups}
    assert kinds >= {
        "full_attention",
        "mla_attention",
        "sliding_window",
        "sliding_window_mla",
        "chunked_local_attention",
        "mamba",
        "cross_attention",
    }
