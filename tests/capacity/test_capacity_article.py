"""The article's case, Llama 3.1 8B with 5 GiB of KV cache, by hand.

A token keeps 2 (keys, values) x 32 layers x 8 KV heads x 128 elements x 2 bytes = 131,072 bytes, a block of 16 tokens
2 MiB: 5 GiB hold 2,560 blocks, 40,960 tokens. A request of 7,500 + 1,000 tokens takes ceil(8,500 / 16) = 532 blocks.
One block is the null block: 2,559 / 532 = 4.81 requests. Admission asks for the prompt's 469 blocks: 2,559 // 469 = 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvgate.capacity.prediction import Concurrency, Prediction, Workload
from kvgate.models.model import Model

_MEMORY = 5_368_709_120
_LOAD = Workload(prompt_tokens=7_500, output_tokens=1_000)
Predict = Callable[..., Prediction]


def _load(prediction: Prediction) -> Concurrency:
    assert prediction.concurrency is not None
    return prediction.concurrency


def _run(
    predict: Predict, llama: Model, workload: Workload = _LOAD, version: str = "0.32.0", **arguments: Any
) -> Prediction:
    arguments = {"kv_cache_memory_bytes": _MEMORY, "max_model_len": 16_384, **arguments}
    return predict(llama, arguments, workload=workload, version=version)


def test_pool(predict: Predict, llama: Model) -> None:
    cache = _run(predict, llama).kv_cache
    assert cache.bytes_per_token == 131_072
    assert (cache.block_size, cache.bytes_per_block) == (16, 2_097_152)
    assert (cache.num_gpu_blocks, cache.size_tokens) == (2_560, 40_960)
    assert [(g.kind, g.layers, g.page_size_bytes) for g in cache.groups] == [("full_attention", 32, 65_536)]
    assert cache.basis == "exact"


def test_workload(predict: Predict, llama: Model) -> None:
    load = _load(_run(predict, llama))
    assert load.sustained == 4
    assert load.ratio == pytest.approx(2_559 / 532)
    assert load.admitted == 5
    assert load.limited_by == "kv_cache"
    assert load.sustained_interval == (4, 4)
    assert load.preemption_expected


def test_fp8_doubles_the_pool(predict: Predict, llama: Model) -> None:
    prediction = _run(predict, llama, kv_cache_dtype="fp8")
    assert prediction.kv_cache.size_tokens == 81_920
    assert _load(prediction).sustained == 9  # 5,119 / 532 = 9.62


@pytest.mark.parametrize(("dtype", "requests"), [("auto", 5), ("fp8", 11)])
def test_a_shared_prefix_counts_once(predict: Predict, llama: Model, dtype: str, requests: int) -> None:
    """1,500 shared tokens are 93 whole blocks: (2,559 - 93) / (532 - 93) = 5.62, (5,119 - 93) / 439 = 11.45."""
    shared = Workload(prompt_tokens=7_500, output_tokens=1_000, shared_prefix_tokens=1_500)
    assert _load(_run(predict, llama, shared, kv_cache_dtype=dtype)).sustained == requests
    # without prefix caching, every request keeps its own
    alone = _run(predict, llama, shared, kv_cache_dtype=dtype, enable_prefix_caching=False)
    assert _load(alone).sustained == {"auto": 4, "fp8": 9}[dtype]


@pytest.mark.parametrize(("length", "times"), [(32_768, 1.25), (16_384, 2.5)])
def test_max_model_len_changes_the_figure_and_not_the_pool(
    predict: Predict, llama: Model, length: int, times: float
) -> None:
    prediction = _run(predict, llama, max_model_len=length)
    assert prediction.kv_cache.max_concurrency == times
    assert prediction.kv_cache.size_tokens == 40_960
    assert prediction.kv_cache.num_gpu_blocks == 2_560
    assert _load(prediction).sustained == 4


def test_the_whole_context_does_not_fit(predict: Predict, llama: Model) -> None:
    """131,072 tokens need 16 GiB; 2,559 blocks hold one request of 40,944 tokens."""
    prediction = _run(predict, llama, max_model_len=131_072)
    assert prediction.starts == "no"
    assert prediction.kv_cache.estimated_max_model_len == 40_944
    assert "16.00 GiB" in prediction.reasons[0]
    fitted = _run(predict, llama, max_model_len=-1)
    assert fitted.starts == "yes"
    assert fitted.kv_cache.max_model_len == 40_944


def test_sequences_can_be_the_limit(predict: Predict, llama: Model) -> None:
    load = _load(_run(predict, llama, max_num_seqs=3))
    assert (load.sustained, load.admitted, load.limited_by) == (3, 3, "max_num_seqs")


@pytest.mark.parametrize(
    ("version", "admitted"),
    [
        ("0.32.0", 5),  # the whole prompt: 2,559 // 469
        ("0.18.0", 19),  # the first chunk of 2,048 tokens: 2,559 // 128
        ("0.7.3", 5),  # the prompt, 1% kept free: (2,560 - 25) // 469
    ],
)
def test_admission_by_release(predict: Predict, llama: Model, version: str, admitted: int) -> None:
    load = _load(_run(predict, llama, version=version, max_num_batched_tokens=2_048))
    assert load.admitted == admitted
    assert load.sustained == 4


def test_a_declared_peak_tells_whether_requests_are_preempted(predict: Predict, llama: Model) -> None:
    few = Workload(prompt_tokens=7_500, output_tokens=1_000, peak_concurrency=4)
    assert not _load(_run(predict, llama, few)).preemption_expected
    many = Workload(prompt_tokens=7_500, output_tokens=1_000, peak_concurrency=20)
    assert _load(_run(predict, llama, many)).preemption_expected


def test_a_given_pool_skips_the_budget(predict: Predict, llama: Model) -> None:
    prediction = predict(llama, {"max_model_len": 16_384}, workload=_LOAD, kv_cache_tokens=40_960)
    assert prediction.kv_cache.num_gpu_blocks == 2_560
    assert prediction.kv_cache.basis == "measured"
    assert _load(prediction).sustained == 4
