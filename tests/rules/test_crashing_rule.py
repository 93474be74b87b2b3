"""A rule that crashes, through the real command line: exit code 3, its place and traceback, and everything else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

RULE = """\
id: overflow
title: A condition that overflows
family: ours
severity: error
confidence: high
status: stable
since: 0.1.0
when: (unit.replicas + 8) * 9223372036854775807 > 1
message: "never"
remediation: Mend the rule.
why: It shows what a crash costs.
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: chat}
spec:
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.19.1
      args: [--model=Qwen/Qwen2.5-7B-Instruct, --swap-space=4]
      resources: {limits: {nvidia.com/gpu: 1}}
"""


def kvgate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    keep = {key: value for key, value in os.environ.items() if key in ("PATH", "SYSTEMROOT", "VIRTUAL_ENV", "HOME")}
    return subprocess.run(
        [sys.executable, "-m", "kvgate", "check", ".", *arguments],
        cwd=folder,
        env={**keep, "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )


def test_the_others_run_and_the_exit_code_is_three(tmp_path: Path) -> None:
    (tmp_path / ".kvgate" / "rules").mkdir(parents=True)
    (tmp_path / ".kvgate" / "rules" / "overflow.yaml").write_text(RULE)
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "kvgate.yaml").write_text("version: 1\n")
    plain = kvgate(tmp_path)
    assert plain.returncode == 3
    assert "unknown-engine-flag" in plain.stdout
    assert "overflow" in plain.stdout + plain.stderr
    assert "pod.yaml:6" in plain.stdout + plain.stderr
    as_json = kvgate(tmp_path, "--format", "json", "--fail-on", "never")
    assert as_json.returncode == 3
    assert [one["rule"] for one in json.loads(as_json.stdout)["findings"] if one["severity"] == "error"] == [
        "unknown-engine-flag"
    ]
    without = kvgate(tmp_path, "--ignore", "overflow", "--fail-on", "never")
    assert without.returncode == 0
