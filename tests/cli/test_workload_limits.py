"""Requests that are too long for the server, and loads that max_num_seqs limits rather than the pool."""

import pytest

import kvgate

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def test_requests_longer_than_max_model_len_are_served_by_nobody():
    prediction = kvgate.predict(
        LLAMA,
        ["--max-model-len", "1024"],
        gpu="L40S",
        vllm_version="0.11.0",
        workload={"prompt_tokens": 7500, "output_tokens": 1000, "peak_concurrency": 20},
    )
    load = prediction.concurrency
    assert (load.sustained, load.admitted, load.ratio, load.preemption_expected) == (0, 0, 0.0, False)
    assert "a request of 8,500 tokens is longer than max_model_len 1,024: vLLM refuses it" in prediction.reasons


@pytest.fixture
def check(kvgate, tmp_path):
    def run(arguments, workload, replicas=1):
        (tmp_path / "compose.yaml").write_text(
            f"services:\n  a:\n    image: vllm/vllm-openai:v0.11.0\n    deploy: {{replicas: {replicas}}}\n"
            f"    command: --model {LLAMA} {arguments}\n"
        )
        (tmp_path / "kvgate.yaml").write_text(f"version: 1\ngpu: L4\nunits:\n- workload: {workload}\n")
        return kvgate("check", ".", "--format", "json").json

    return run


def test_lowering_the_length_below_the_requests_does_not_pass(check):
    report = check("--max-model-len 1024", "{prompt_tokens: 3000, output_tokens: 500, peak_concurrency: 50}")
    assert [(found["rule"], found["severity"]) for found in report["findings"]] == [
        ("workload-exceeds-max-model-len", "error")
    ]


def test_a_pool_that_holds_what_max_num_seqs_lets_in_is_not_blamed(check):
    # 29,000 tokens and more hold 256 requests of 105 tokens each: nothing is preempted, the rest waits
    report = check("--max-model-len 8192", "{prompt_tokens: 100, output_tokens: 5, peak_concurrency: 512}", replicas=2)
    load = report["units"][0]["prediction"]["concurrency"]
    assert (load["sustained"], load["limited_by"], load["preemption_expected"]) == (256, "max_num_seqs", False)
    assert "peak-concurrency-exceeds-kv-cache" not in {found["rule"] for found in report["findings"]}


def test_the_numbers_of_a_message_are_those_of_the_deployment(check):
    report = check(
        "--max-model-len 8192", "{prompt_tokens: 100, output_tokens: 5, peak_concurrency: 20000}", replicas=2
    )
    (found,) = [found for found in report["findings"] if found["rule"] == "peak-concurrency-exceeds-kv-cache"]
    ratio = report["units"][0]["prediction"]["concurrency"]["ratio"]
    assert f"sustains {int(ratio) * 2:,} (2 replicas x {int(ratio):,} requests" in found["message"]
    assert "the rest waits" in found["message"]
