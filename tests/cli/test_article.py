"""The article's case through the real command line, with its arithmetic.

Llama 3.1 8B: 2 (K and V) x 32 layers x 8 KV heads x 128 elements x 2 bytes = 131,072 bytes per token; a block of 16
tokens is 2,097,152 bytes; 5 GiB = 5,368,709,120 bytes hold 2,560 blocks = 40,960 tokens.
"""

import json
from importlib.resources import files

import jsonschema
import pytest
from referencing import Registry
from referencing.jsonschema import DRAFT202012

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
POOL = ["--kv-cache-memory-bytes", "5368709120"]
LOAD = ["--prompt-tokens", "7500", "--output-tokens", "1000", "--peak-concurrency", "20"]
GIB = 2**30


def validate(document, name):
    """Against a schema of the package, which refer to each other by file name."""
    schemas = {
        path.name: json.loads(path.read_text(encoding="utf-8"))
        for path in (files("kvgate") / "report" / "schemas").iterdir()
        if path.name.endswith(".json")
    }
    registry = Registry().with_resources((key, DRAFT202012.create_resource(value)) for key, value in schemas.items())
    jsonschema.Draft202012Validator(schemas[name], registry=registry).validate(document)


@pytest.fixture
def predict(kvgate):
    def run(*options, args=(), version="0.19.1"):
        result = kvgate(
            "predict", MODEL, "--gpu", "RTX 4090", "--vllm-version", version, *LOAD, *options, "--format", "json",
            "--", *args,
        )  # fmt: skip
        assert result.code == 0, result.err
        validate(result.json, "kvgate.prediction-1.json")
        return result.json

    return run


def test_the_pool(predict):
    cache = predict(args=POOL)["kv_cache"]
    assert cache["bytes_per_token"] == 131_072
    assert cache["bytes_per_block"] == 2_097_152
    assert (cache["num_gpu_blocks"], cache["size_tokens"], cache["basis"]) == (2560, 40_960, "exact")
    assert cache["groups"] == [
        {"kind": "full_attention", "layers": 32, "block_size": 16, "page_size_bytes": 65_536},
    ]


def test_what_it_holds(predict):
    # a request: ceil(8,500 / 16) = 532 blocks; 2,560 / 532 = 4.81
    load = predict(args=POOL)["concurrency"]
    assert (load["sustained"], load["sustained_interval"]) == (4, [4, 4])
    assert load["ratio"] == pytest.approx(4.81, abs=0.005)
    # admitted by the prompt: ceil(7,500 / 16) = 469 blocks; 2,560 / 469 = 5.46
    assert load["admitted"] == 5
    assert load["limited_by"] == "kv_cache"
    assert load["preemption_expected"] is True


def test_fp8(predict):
    # one byte instead of two: 81,920 tokens, 5,120 blocks / 532 = 9.6
    result = predict(args=[*POOL, "--kv-cache-dtype", "fp8"])
    assert result["kv_cache"]["size_tokens"] == 81_920
    assert result["concurrency"]["sustained"] == 9


def test_the_shared_prompt_counts_once(predict):
    # 1,500 tokens are 93 whole blocks: (2,560 - 93) / (532 - 93) = 5.6; fp8: (5,120 - 93) / 439 = 11.5
    shared = ["--shared-prefix-tokens", "1500"]
    assert predict(*shared, args=POOL)["concurrency"]["sustained"] == 5
    assert predict(*shared, args=[*POOL, "--kv-cache-dtype", "fp8"])["concurrency"]["sustained"] == 11
    # not where prefix caching is off
    assert predict(*shared, args=[*POOL, "--no-enable-prefix-caching"])["concurrency"]["sustained"] == 4


@pytest.mark.parametrize(("length", "times"), [(32_768, 1.25), (16_384, 2.5)])
def test_halving_the_length_doubles_a_figure_and_nothing_else(predict, length, times):
    result = predict(args=[*POOL, "--max-model-len", str(length)])
    assert result["kv_cache"]["max_concurrency"] == times
    assert result["kv_cache"]["num_gpu_blocks"] == 2560
    assert result["concurrency"]["sustained"] == 4


def test_int4_weights_leave_a_pool_of_14_gib(predict):
    # 14 GiB: 7,168 blocks / 532 = 13.5; with fp8 14,336 / 532 = 26.9
    pool = ["--kv-cache-memory-bytes", str(14 * GIB)]
    assert predict(args=pool)["concurrency"]["sustained"] == 13
    assert predict(args=[*pool, "--kv-cache-dtype", "fp8"])["concurrency"]["sustained"] == 26


def test_utilization_plus_five_hundredths_on_the_4090(predict):
    # 0.05 x 23.64 GiB / 131,072 bytes = 9,680 tokens
    tokens = [
        predict(args=["--gpu-memory-utilization", share])["kv_cache"]["size_tokens"] for share in ("0.90", "0.95")
    ]
    assert tokens[1] - tokens[0] == pytest.approx(9_700, abs=100)


def test_from_scratch_the_interval_holds_what_such_servers_print(predict):
    # 23.64 GiB x 0.9 - 14.99 weights - 1.2 for sorting 256 x 128,256 logits - 0.07 outside torch = 5.0 GiB
    memory = predict(args=["--max-model-len", "32768"], version="0.12.0")["memory"]
    pool = memory["kv_cache_available"]
    assert pool["basis"] == "calibrated"
    assert pool["low"] < pool["bytes"] < pool["high"]
    assert pool["low"] <= 5.0 * GIB <= pool["high"]
    parts = ("weights", "activation_peak", "non_torch", "cuda_graphs")
    assert pool["bytes"] == memory["requested"]["bytes"] - sum(memory[part]["bytes"] for part in parts)
    # 8,030,261,248 parameters of two bytes
    assert memory["weights"]["parameters_bytes"] == 16_060_522_496


def test_the_30_second_check(kvgate, predict):
    tokens = ["--kv-cache-tokens", "40960"]
    known = predict(*tokens)
    cache = known["kv_cache"]
    assert (cache["num_gpu_blocks"], cache["size_tokens"], cache["basis"]) == (2560, 40_960, "measured")
    assert (known["concurrency"]["sustained"], known["starts"]) == (4, "yes")
    # without the release and the GPU the arithmetic is that of the newest release, and says so
    assumed = kvgate("predict", MODEL, *tokens, *LOAD, "--format", "json").json
    assert (assumed["kv_cache"]["size_tokens"], assumed["kv_cache"]["basis"]) == (40_960, "assumed")
    assert assumed["concurrency"]["sustained"] == 4


def test_the_example_says_so(kvgate, example):
    result = kvgate("check", example, "--format", "json")
    assert result.code == 1
    validate(result.json, "kvgate.report-1.json")
    rules = {found["rule"]: found["severity"] for found in result.json["findings"]}
    assert rules == {
        "peak-concurrency-exceeds-kv-cache": "error",
        "max-model-len-as-capacity": "warning",
        "max-num-seqs-as-capacity": "warning",
    }
    (unit,) = result.json["units"]
    assert unit["id"] == "Deployment/default/rag-chat/vllm"
    assert unit["prediction"]["concurrency"]["sustained"] in (4, 5)
