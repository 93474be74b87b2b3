"""Architectures beside the golden rows: blocks, tokens and parameter bytes as vLLM 0.32.0's own code computes them.

Each row of ``architectures.json``: model, arguments (``gpu``, ``available_bytes`` of KV memory, ``tp``, ...), the
figures of ``golden.json``, and the bytes of one rank's parameters. The layers of most language models are cut to four.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvgate.capacity.predict import predict_capacity
from kvgate.hardware.gpu import Gpu
from kvgate.models.model import Model
from kvgate.models.weights import count_rank

_DATA: dict[str, Any] = json.loads((Path(__file__).parent / "architectures.json").read_text(encoding="utf-8"))
_FIGURES = ("bytes_per_block", "num_gpu_blocks", "size_tokens", "max_concurrency", "estimated_max_model_len")


@pytest.mark.parametrize(("name", "flags", "figures", "weights"), _DATA["rows"], ids=lambda value: str(value)[:40])
def test_equals_the_engine(
    name: str, flags: dict[str, Any], figures: list[Any], weights: int, gpu: Callable[[str], Gpu]
) -> None:
    model = _DATA["models"][name]
    arguments = {
        **flags.get("extra", {}),
        "tensor_parallel_size": flags["tp"],
        "kv_cache_memory_bytes": flags["available_bytes"],
    }
    prediction = predict_capacity(
        Model(name, model["config"], "mapping", model.get("files", {})),
        arguments,
        version="0.32.0",
        gpu=gpu(flags["gpu"]),
    )
    got = {figure: getattr(prediction.kv_cache, figure) for figure in _FIGURES}
    want = {figure: value for figure, value in zip(_FIGURES, figures, strict=True) if value is not None}
    assert {figure: got[figure] for figure in want} == pytest.approx(want, rel=1e-12), prediction.reasons
    assert prediction.as_dict()["memory"]["weights"]["parameters_bytes"] == weights


def test_hunyuan_ocr_counts_what_transformers_counts() -> None:
    # vLLM 0.32 takes it through Transformers, whose class has 996,208,112 parameters; vLLM pads 14 rows of 1,024.
    config = {
        "architectures": ["HunYuanVLForConditionalGeneration"],
        "model_type": "hunyuan_vl",
        "dtype": "bfloat16",
        "text_config": {
            "model_type": "hunyuan_vl_text",
            "hidden_size": 1024,
            "intermediate_size": 3584,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 120818,
            "max_position_embeddings": 32768,
            "tie_word_embeddings": True,
        },
        "vision_config": {
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_attention_heads": 16,
            "num_hidden_layers": 27,
            "out_hidden_size": 1024,
            "patch_size": 16,
            "max_image_size": 2048,
            "spatial_merge_size": 2,
        },
    }
    counted = count_rank(Model("tencent/HunyuanOCR", config, "mapping", {}))
    assert counted.bytes == 2 * (996_208_112 + 14 * 1024)
