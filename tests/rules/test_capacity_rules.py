"""The capacity rules on the article's case, with its arithmetic, and how their severity follows certainty.

Llama 3.1 8B: 2 x 32 layers x 8 KV heads x 128 x 2 bytes = 131,072 bytes a token. 5 GiB hold 40,960 tokens, 2,560 blocks
of 16, of which the engine keeps one. A request of 8,500 tokens takes 532 blocks: 2,559 / 532 = 4.81.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvgate.app import CheckOptions, check_paths
from kvgate.findings.finding import Finding, Severity

FIXED = "--kv-cache-memory-bytes=5368709120"
GPU = "NVIDIA GeForce RTX 4090"


def findings(
    folder: Path,
    *args: str,
    image: str = "vllm/vllm-openai:v0.19.1",
    gpu: str | None = GPU,
    load: str | None = "peak_concurrency: 20, prompt_tokens: 7500, output_tokens: 1000",
    replicas: int = 1,
    model: str = "meta-llama/Llama-3.1-8B-Instruct",
) -> dict[str, Finding]:
    """Findings by rule of one server with the given arguments (a comment may stand behind one)."""
    words = [f"--model={model}", *args]
    listed = "".join(f"            - {word}\n" for word in words)
    (folder / "chat.yaml").write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: chat}\nspec:\n"
        f"  replicas: {replicas}\n  template:\n    spec:\n      containers:\n"
        f"        - name: vllm\n          image: {image}\n          args:\n{listed}",
        encoding="utf-8",
    )
    config = "version: 1\n" + (f"gpu: {gpu}\n" if gpu else "")
    if load:
        config += f"units:\n  - match: {{path: chat.yaml}}\n    workload: {{{load}}}\n"
    (folder / "kvgate.yaml").write_text(config, encoding="utf-8")
    report = check_paths([folder], CheckOptions(config=folder / "kvgate.yaml", preview=True, profile="all"))
    assert not report.errors, report.errors[0].traceback
    found = {finding.rule: finding for finding in report.findings}
    assert len(found) == len(report.findings)
    return found


# -- peak-concurrency-exceeds-kv-cache -----------------------------------------------------------------------------

PEAK = "peak-concurrency-exceeds-kv-cache"


def test_twenty_users_where_the_pool_sustains_four(tmp_path: Path) -> None:
    finding = findings(tmp_path, FIXED, "--max-model-len=16384")[PEAK]
    assert finding.severity is Severity.ERROR
    assert finding.message == (
        "20 requests of 8,500 tokens at once are declared, the KV cache sustains 4: its pool of 5.00 GiB holds 40,960 "
        "tokens on NVIDIA GeForce RTX 4090 with vLLM 0.19.1; 5 are let in at once and preempt each other"
    )
    # 4 replicas of 4 are 16, 5 are 20; with one byte an element 5,119 / 532 = 9
    assert "Or run 5 replicas. " in finding.remediation
    assert "An fp8 KV cache (--kv-cache-dtype fp8) would sustain 9." in finding.remediation


def test_shared_tokens_count_once_and_replicas_multiply(tmp_path: Path) -> None:
    # 1,500 shared tokens are 93 whole blocks: (2,559 - 93) / (532 - 93) = 5.6
    load = "peak_concurrency: 20, prompt_tokens: 7500, output_tokens: 1000, shared_prefix_tokens: 1500"
    finding = findings(tmp_path, FIXED, "--max-model-len=16384", load=load, replicas=3)[PEAK]
    assert "8,500 tokens (1,500 of them shared) at once" in finding.message
    assert "sustains 15 (3 replicas x 5 requests)" in finding.message


@pytest.mark.parametrize(("peak", "replicas", "fires"), [(4, 1, False), (5, 1, True), (16, 4, False), (17, 4, True)])
def test_the_peak_is_compared_with_all_replicas(tmp_path: Path, peak: int, replicas: int, fires: bool) -> None:
    load = f"peak_concurrency: {peak}, prompt_tokens: 7500, output_tokens: 1000"
    found = findings(tmp_path, FIXED, "--max-model-len=16384", load=load, replicas=replicas)
    assert (PEAK in found) is fires


def test_a_cap_at_what_the_pool_sustains_does_not_hide_that_it_is_too_small(tmp_path: Path) -> None:
    found = findings(tmp_path, FIXED, "--max-model-len=16384", "--max-num-seqs=4")
    assert "sustains 4" in found[PEAK].message
    assert "the rest waits" in found[PEAK].message
    assert "max-num-seqs-as-capacity" not in found


def test_a_cap_below_what_the_pool_sustains_is_no_fault_of_the_pool(tmp_path: Path) -> None:
    # 500 + 100 tokens are 38 blocks: 2,559 / 38 = 67 fit
    load = "peak_concurrency: 20, prompt_tokens: 500, output_tokens: 100"
    assert PEAK not in findings(tmp_path, FIXED, "--max-model-len=16384", "--max-num-seqs=8", load=load)


def test_severity_follows_what_is_known(tmp_path: Path) -> None:
    length = "--max-model-len=16384"
    # short requests, so that the width of the interval is some of them
    request = "prompt_tokens: 700, output_tokens: 100"
    certain = findings(tmp_path, length, load=f"peak_concurrency: 200, {request}")[PEAK]
    assert certain.severity is Severity.ERROR  # 200 is beyond the whole interval of a pool from scratch
    interval = re.search(r"sustains (\d+) \((\d+) to (\d+) within what is known\)", certain.message)
    assert interval
    low, high = int(interval[2]), int(interval[3])
    assert low < high
    # as many as the pool may hold at its largest: too many only at the estimate
    near = findings(tmp_path, length, load=f"peak_concurrency: {high}, {request}")
    assert near[PEAK].severity is Severity.WARNING
    fits = findings(tmp_path, length, load=f"peak_concurrency: {low}, {request}")
    assert PEAK not in fits
    latest = "vllm/vllm-openai:latest"
    # 200 are too many for whatever release "latest" is
    assumed = findings(tmp_path, length, load=f"peak_concurrency: 200, {request}", image=latest)[PEAK]
    assert assumed.severity is Severity.WARNING
    assert "(assumed)" in assumed.message
    # the largest pool of one release holds them, so that the release matters
    doubtful = findings(tmp_path, length, load=f"peak_concurrency: {high}, {request}", image=latest)
    assert PEAK not in doubtful or doubtful[PEAK].severity is Severity.INFO
    assert PEAK not in findings(tmp_path, length, gpu=None)


# -- max-model-len-exceeds-kv-cache, weights-exceed-gpu-memory -----------------------------------------------------

LENGTH = "max-model-len-exceeds-kv-cache"
WEIGHTS = "weights-exceed-gpu-memory"


def test_one_request_that_does_not_fit(tmp_path: Path) -> None:
    finding = findings(tmp_path, FIXED, load=None)[LENGTH]
    # 131,072 tokens of 131,072 bytes are 16 GiB
    assert finding.severity is Severity.ERROR
    assert "one request of 131,072 tokens (the model's own length, since --max-model-len is not set)" in finding.message
    assert "needs 16.00 GiB of KV cache, the pool has 5.00 GiB" in finding.message
    assert finding.remediation.startswith("Set --max-model-len to at most 40960 (40960 to be safe)")
    assert finding.primary.text == "- name: vllm"


@pytest.mark.parametrize("args", [("--max-model-len=40960",), ("--max-model-len=auto",), ("--max-model-len=-1",)])
def test_a_length_that_fits_or_is_fitted(tmp_path: Path, args: tuple[str, ...]) -> None:
    assert LENGTH not in findings(tmp_path, FIXED, *args, load=None)


def test_one_cause_gives_one_finding(tmp_path: Path) -> None:
    too_big = findings(tmp_path, "--max-model-len=16384", model="meta-llama/Llama-3.1-70B-Instruct")
    assert {WEIGHTS, LENGTH, PEAK} & set(too_big) == {WEIGHTS}
    assert "Sharded over 8 GPUs (--tensor-parallel-size 8) it fits." in too_big[WEIGHTS].remediation
    too_long = findings(tmp_path, FIXED, "--max-model-len=65536")
    assert {WEIGHTS, LENGTH, PEAK} & set(too_long) == {LENGTH}


def test_a_fixed_pool_beside_weights_that_leave_no_room_for_it(tmp_path: Path) -> None:
    # 14.96 GiB of weights and 20 GiB of pool on 23.6 GiB
    finding = findings(tmp_path, "--kv-cache-memory-bytes=21474836480", "--max-model-len=16384", load=None)[WEIGHTS]
    assert finding.primary.text == "--kv-cache-memory-bytes=21474836480"
    assert "the KV cache is fixed at 20.00 GiB" in finding.message


# -- max-model-len-as-capacity -------------------------------------------------------------------------------------

AS_LENGTH = "max-model-len-as-capacity"


@pytest.mark.parametrize(
    ("flag", "severity"),
    [
        ("--max-model-len=16384  # more concurrent users", Severity.WARNING),
        ("--max-model-len=16384  # raise throughput", Severity.WARNING),
        ("--max-model-len=16384  # longest request we serve", Severity.INFO),
        ("--max-model-len=16384  # this does not add capacity", Severity.INFO),
        ("--max-model-len=16384", Severity.INFO),
        ("--max-model-len=40000", None),  # lowered to what the pool holds
        ("--max-model-len=40000  # more users", Severity.WARNING),
        ("--max-model-len=131072", None),  # not lowered
    ],
)
def test_a_length_lowered_where_the_load_does_not_fit(tmp_path: Path, flag: str, severity: Severity | None) -> None:
    found = findings(tmp_path, FIXED, flag).get(AS_LENGTH)
    assert (found.severity if found else None) is severity
    if found:
        assert "the pool is 5.00 GiB with it and 5.00 GiB without it" in found.message
        assert "holds 4 requests of 8,500 tokens with it, 4 requests of 8,500 tokens without" in found.message


def test_a_length_lowered_without_need_is_a_warning(tmp_path: Path) -> None:
    # 57,344 bytes a token: 5 GiB hold 93,622 tokens, more than the model's own 32,768, and 10 such requests
    load = "peak_concurrency: 40, prompt_tokens: 7500, output_tokens: 1000"
    found = findings(tmp_path, FIXED, "--max-model-len=16384", model="Qwen/Qwen2.5-7B-Instruct", load=load)
    assert found[AS_LENGTH].severity is Severity.WARNING


def test_a_comment_on_memory_counts_only_where_the_flag_is_not_needed_to_start(tmp_path: Path) -> None:
    needed = findings(tmp_path, FIXED, "--max-model-len=16384  # saves VRAM", load=None)
    assert AS_LENGTH not in needed
    free = findings(tmp_path, "--max-model-len=2048  # saves VRAM", load=None, model="Qwen/Qwen2.5-0.5B-Instruct")
    assert free[AS_LENGTH].severity is Severity.WARNING


def test_what_a_comment_claims_is_wrong_on_every_common_gpu(tmp_path: Path) -> None:
    flag = "--max-model-len=2048  # more users fit"
    found = findings(tmp_path, flag, load=None, gpu=None, model="Qwen/Qwen2.5-7B-Instruct")
    assert found[AS_LENGTH].severity is Severity.WARNING
    assert "(for example)" in found[AS_LENGTH].message


def test_a_load_that_fits_is_no_case(tmp_path: Path) -> None:
    load = "peak_concurrency: 4, prompt_tokens: 7500, output_tokens: 1000"
    assert AS_LENGTH not in findings(tmp_path, FIXED, "--max-model-len=16384  # more users", load=load)


# -- max-num-seqs-as-capacity --------------------------------------------------------------------------------------

AS_SEQUENCES = "max-num-seqs-as-capacity"


@pytest.mark.parametrize(
    ("sequences", "severity"),
    [(64, Severity.WARNING), (20, Severity.WARNING), (19, None), (5, None), (4, None), (1, None)],
)
def test_sequences_at_or_above_the_peak_where_the_pool_sustains_less(
    tmp_path: Path, sequences: int, severity: Severity | None
) -> None:
    found = findings(tmp_path, FIXED, "--max-model-len=16384", f"--max-num-seqs={sequences}").get(AS_SEQUENCES)
    assert (found.severity if found else None) is severity


def test_sequences_said_to_save_memory_that_they_do_not_save(tmp_path: Path) -> None:
    found = findings(tmp_path, FIXED, "--max-model-len=16384", "--max-num-seqs=1  # reduce KV cache", load=None)
    assert found[AS_SEQUENCES].severity is Severity.WARNING
    assert "leaves the pool as it is, 5.00 GiB with it and 5.00 GiB without it" in found[AS_SEQUENCES].message


# -- unknown-gpu ---------------------------------------------------------------------------------------------------


def test_an_unknown_gpu_gets_all_that_is_true(tmp_path: Path) -> None:
    finding = findings(tmp_path, "--max-model-len=16384", gpu=None)["unknown-gpu"]
    assert finding.severity is Severity.INFO
    assert "a token takes 131,072 bytes on each GPU" in finding.message
    assert all(gpu in finding.message for gpu in ("NVIDIA L4 ~", "NVIDIA A100 80GB ~", "NVIDIA H100 80GB ~"))
    assert "requests" in finding.message
