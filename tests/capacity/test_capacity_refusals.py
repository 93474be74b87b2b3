"""Arguments that the engine refuses whatever the memory (vLLM 0.32.0 ``config/scheduler.py``, ``config/model.py``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvgate.capacity.prediction import Prediction
from kvgate.hardware.gpu import Gpu
from kvgate.models.model import Model

Predict = Callable[..., Prediction]
_CARD = {"kv_cache_memory_bytes": 20 << 30, "max_model_len": 8192}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            {"max_num_batched_tokens": 4096, "enable_chunked_prefill": False},
            "--max-num-batched-tokens 4096 is less than",
        ),
        ({"enable_expert_parallel": True}, "--enable-expert-parallel needs a model with experts"),
    ],
)
def test_refused_with_the_pool_as_it_would_be(
    predict: Predict, llama: Model, arguments: dict[str, Any], reason: str
) -> None:
    prediction = predict(llama, {**_CARD, **arguments})
    assert prediction.starts == "no"
    assert any(said.startswith(reason) for said in prediction.reasons)
    assert prediction.kv_cache.num_gpu_blocks == predict(llama, _CARD).kv_cache.num_gpu_blocks


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_num_batched_tokens": 4096},
        {"max_num_batched_tokens": 8192, "enable_chunked_prefill": False},
        {"enable_expert_parallel": False},
    ],
)
def test_served(predict: Predict, llama: Model, arguments: dict[str, Any]) -> None:
    assert predict(llama, {**_CARD, **arguments}).starts == "yes"


def test_half_precision_that_overflows(predict: Predict, llama: Model) -> None:
    gemma = {**llama.config, "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "head_dim": 256}
    assert predict(gemma, {**_CARD, "dtype": "half"}).starts == "no"
    assert predict(gemma, {**_CARD, "dtype": "bfloat16"}).starts == "yes"


def test_bfloat16_on_a_gpu_without_it(predict: Predict, llama: Model, gpu: Callable[[str], Gpu]) -> None:
    asked = predict(llama, {**_CARD, "dtype": "bfloat16"}, gpu=gpu("t4"))
    assert any("compute capability 8.0" in reason for reason in asked.reasons)
    auto = predict(llama, _CARD, gpu=gpu("t4"))
    assert not any("compute capability 8.0" in reason for reason in auto.reasons)


def test_encoders_choose_their_backend_for_the_cache_that_they_do_not_keep(
    predict: Predict, gpu: Callable[[str], Gpu]
) -> None:
    config = {
        "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "hidden_size": 1024,
        "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 250002,
        "max_position_embeddings": 514, "type_vocab_size": 1,
    }  # fmt: skip
    assert predict(config, {"kv_cache_dtype": "nvfp4"}, gpu=gpu("l4")).starts == "no"
    assert predict(config, {"kv_cache_dtype": "fp8"}, gpu=gpu("l4")).starts == "yes"


def test_a_mamba_mode_that_is_gone_is_refused_of_any_model(predict: Predict, llama: Model) -> None:
    assert predict(llama, {**_CARD, "mamba_cache_mode": "all"}).starts == "no"


def test_an_encoder_is_counted_though_no_media_are_taken(predict: Predict) -> None:
    config = {
        "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "hidden_size": 1024,
        "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 250002,
        "max_position_embeddings": 514, "type_vocab_size": 1,
    }  # fmt: skip
    whole = predict(config, {}).as_dict()["memory"]["weights"]["parameters_bytes"]
    limited = predict(config, {"limit_mm_per_prompt": {"image": 0, "video": 0, "audio": 0}})
    assert whole
    assert limited.as_dict()["memory"]["weights"]["parameters_bytes"] == whole
