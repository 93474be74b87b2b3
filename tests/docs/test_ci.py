"""``.ci/run``: what a machine cannot do is said aloud and left out, and is a failure only where it was asked for."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[2] / ".ci" / "run"
pytestmark = [
    pytest.mark.skipif(not RUN.exists(), reason="the distribution does not carry it"),
    pytest.mark.skipif(not Path("/proc/meminfo").exists() or os.name == "nt", reason="written for Linux"),
]
LINUX = 'echo "Linux x86_64"'
LACKING = {
    "another system": ({"uname": "echo Darwin arm64"}, "there is no vLLM for the CPU of Darwin arm64"),
    "an old processor": ({"uname": LINUX, "grep": "exit 1"}, "the processor has no AVX2"),
    "no disk": (
        {"uname": LINUX, "grep": "exit 0", "df": 'printf "head\\nx 1 1 2048000 1%% /\\n"'},
        "2000 MiB of disk are free, 7,168 are needed",
    ),
    "no memory": (
        {"uname": LINUX, "grep": "exit 0", "df": 'printf "head\\nx 1 1 99999999 1%% /\\n"', "cat": "echo 1073741824"},
        "1024 MiB of memory are free, 5,120 are needed",
    ),
}


@pytest.mark.parametrize("asked", ["", "--vllm"])
@pytest.mark.parametrize(("programs", "why"), LACKING.values(), ids=list(LACKING))
def test_a_machine_that_cannot_run_vllm(tmp_path: Path, programs: dict[str, str], why: str, asked: str) -> None:
    part = re.search(r"^lacking\(\).*", RUN.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert part is not None
    for name, words in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{words}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"work={tmp_path}\n{part[0]}", "run", *([asked] if asked else [])],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "== against a real vLLM",
        f"== LEFT OUT, nothing was compared with a real vLLM: {why}",
    ]
    assert (done.returncode, done.stderr) == (1 if asked else 0, "")


def test_the_run_that_is_prepared_for_a_gpu() -> None:
    """Its manifest is predicted as its comment says, and nothing of it is left out of the command."""
    subprocess.run(["bash", "-n", RUN.with_name("gpu")], check=True)
    folder = RUN.parents[1] / "tests" / "examples" / "smoke"

    def kvgate(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kvgate", *words, "--gpu", "NVIDIA L4"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    (unit,) = json.loads(kvgate("check", ".", "--format", "json").stdout)["units"]
    load = unit["prediction"]["concurrency"]
    assert unit["prediction"]["kv_cache"]["size_tokens"] == 40960
    assert (load["sustained"], load["admitted"], load["preemption_expected"]) == (4, 5, True)
    command = kvgate("smoke", "pod.yaml", "--dry-run", "--dummy-weights", "--python", "python3")
    assert (command.returncode, command.stderr) == (0, "")
    assert f"--model={folder / 'model'}" in command.stdout
