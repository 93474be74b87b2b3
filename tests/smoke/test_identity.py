"""The arguments that a server prints, beside those that a manifest sets."""

from typing import Any

import pytest

from kvgate.engine.logs import read_log
from kvgate.smoke.identity import find_differences
from kvgate.smoke.subject import Subject
from kvgate.source.text import Unresolved


def differences(values: dict[str, Any], printed: str, version: str = "0.19.1") -> list[tuple[str, str, str]]:
    subject = Subject(
        id="u", path="p", line=1, version=version, declared=True, values=values, model=None, model_paths=(), gpu=None,
        gpu_memory_bytes=None, workload=None, replicas=1, data_parallel_size=1, predict=lambda **_: None,
    )  # fmt: skip
    log = read_log(f"INFO 11-05 10:00:00 [x.py:1] {printed}")
    assert log.arguments is not None
    return [(one.name, one.manifest, one.server) for one in find_differences(subject, log) if one.decisive]


def test_what_is_equal_in_other_words() -> None:
    values = {
        "max_model_len": 8192, "gpu_memory_utilization": 0.9, "kv_cache_dtype": "auto", "enforce_eager": True,
        "tensor_parallel_size": 1, "quantization": None, "seed": 3, "limit_mm_per_prompt": {"image": 2},
    }  # fmt: skip
    printed = "non-default args: {'max_model_len': 8192, 'enforce_eager': True, 'limit_mm_per_prompt': {'image': 2}}"
    # 0.9, auto and 1 are the defaults, so that the server does not print them
    assert differences(values, printed) == []


@pytest.mark.parametrize(
    ("values", "printed", "found"),
    [
        ({}, "{'max_num_seqs': 64}", ("max_num_seqs", "not set", "64")),
        ({"max_num_seqs": 64}, "{'port': 8000}", ("max_num_seqs", "64", "not set")),
        ({"max_num_seqs": 64}, "{'max_num_seqs': 65}", ("max_num_seqs", "64", "65")),
        (
            {"gpu_memory_utilization": 0.9},
            "{'gpu_memory_utilization': 0.95}",
            ("gpu_memory_utilization", "0.9", "0.95"),
        ),
        (
            {"enable_prefix_caching": True},
            "{'enable_prefix_caching': False}",
            ("enable_prefix_caching", "True", "False"),
        ),
        (
            {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}},
            "{'speculative_config': {'method': 'ngram', 'num_speculative_tokens': 5}}",
            (
                "speculative_config",
                "{'method': 'ngram', 'num_speculative_tokens': 3}",
                "{'method': 'ngram', 'num_speculative_tokens': 5}",
            ),
        ),
    ],
)
def test_what_differs(values: dict[str, Any], printed: str, found: tuple[str, str, str]) -> None:
    assert differences(values, "non-default args: " + printed) == [found]


@pytest.mark.parametrize(
    ("values", "printed"),
    [
        # what vLLM fills in, or prints as an object, was not written by anyone
        ({"compilation_config": {"level": 3}}, "{'compilation_config': {'level': 3, 'mode': <Mode.NONE: 0>, 'x': []}}"),
        ({"compilation_config": {"mode": 3}}, "{'compilation_config': {'mode': <Mode.VLLM_COMPILE: 3>}}"),
        ({"compilation_config": {"mode": 3}}, "{'compilation_config': CompilationConfig(mode=3)}"),
        ({"limit_mm_per_prompt": {"image": 2}}, "{'limit_mm_per_prompt': {'image': ImageDummyOptions(count=2)}}"),
        # a value that the files do not determine is nobody's mistake
        ({"tensor_parallel_size": Unresolved("${TP}", "not set")}, "{'tensor_parallel_size': 4}"),
        # what does not change what is measured
        ({"port": 8000, "chat_template": "a.jinja"}, "{'port': 80, 'host': '0.0.0.0', 'api_key': ['x']}"),
    ],
)
def test_what_is_no_difference(values: dict[str, Any], printed: str) -> None:
    assert differences(values, "non-default args: " + printed) == []


def test_all_arguments_of_an_older_release() -> None:
    printed = "args: Namespace(max_model_len=4096, gpu_memory_utilization=0.9, swap_space=4.0, block_size=16)"
    assert differences({"max_model_len": 4096}, printed, "0.6.3") == []
    assert differences({"max_model_len": 8192}, printed, "0.6.3") == [("max_model_len", "8,192", "4,096")]
