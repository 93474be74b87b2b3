"""Figures of GPUs, and golden rows as predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kvgate.capacity.predict import predict_capacity
from kvgate.capacity.prediction import Prediction
from kvgate.hardware.gpu import Gpu
from kvgate.models.model import Model

# Names, compute capabilities and NVML's bytes of the GPUs that the golden rows were computed for.
_GPUS: Mapping[str, tuple[str, tuple[int, int], int]] = {
    "a100": ("NVIDIA A100-SXM4-80GB", (8, 0), 85_899_345_920),
    "a10g": ("NVIDIA A10G", (8, 6), 24_146_608_128),
    "b200": ("NVIDIA B200", (10, 0), 191_514_017_792),
    "h100": ("NVIDIA H100 80GB HBM3", (9, 0), 85_520_809_984),
    "h200": ("NVIDIA H200", (9, 0), 150_754_820_096),
    "l4": ("NVIDIA L4", (8, 9), 24_152_899_584),
    "rtx5090": ("NVIDIA GeForce RTX 5090", (12, 0), 34_190_458_880),
    "t4": ("Tesla T4", (7, 5), 15_828_320_256),
}


def make_gpu(key: str) -> Gpu:
    name, capability, memory = _GPUS[key]
    return Gpu(name, "nvidia", memory, memory, memory, "exact", capability)


@pytest.fixture
def gpu() -> Callable[[str], Gpu]:
    return make_gpu


@pytest.fixture
def llama() -> Model:
    """Llama 3.1 8B Instruct, what the arithmetic reads of its config.json."""
    return Model(
        "meta-llama/Llama-3.1-8B-Instruct",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "torch_dtype": "bfloat16",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
            "max_position_embeddings": 131072,
            "rope_theta": 500000.0,
            "rope_scaling": {
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
                "rope_type": "llama3",
            },
        },
        "mapping",
    )


@pytest.fixture
def predict() -> Callable[..., Prediction]:
    """``predict_capacity`` for a bare configuration on an H100 with 0.32, unless told otherwise."""

    def run(model: Model | Mapping[str, Any], arguments: Mapping[str, Any] | None = None, **options: Any) -> Prediction:
        if not isinstance(model, Model):
            model = Model("model", model, "mapping")
        options.setdefault("version", "0.32.0")
        options.setdefault("gpu", make_gpu("h100"))
        return predict_capacity(model, arguments or {}, **options)

    return run
