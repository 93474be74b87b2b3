"""``kvgate diff --comment --summary`` as a workflow runs it, against the server on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GIB = 2**30
MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: chat}
spec:
  nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.19.1
      args: [--model=Qwen/Qwen2.5-7B-Instruct, --max-model-len=8192, --kv-cache-memory-bytes=%d]
      resources: {limits: {nvidia.com/gpu: 1}}
"""


@pytest.fixture
def runner(tmp_path: Path, github):
    """A checkout of a pull request's merge commit on a runner, and kvgate in it."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "TEMP", "TMP") if name in os.environ}
    environ = {
        **kept, "HOME": str(tmp_path), "USERPROFILE": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1", "PYTHONUTF8": "1",
    }  # fmt: skip
    tree = tmp_path / "tree"
    tree.mkdir()

    def git(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        result = subprocess.run(
            ["git", *identity, *words], cwd=tree, env=environ, capture_output=True, text=True, check=True
        )
        return result.stdout.strip()

    def commit(gib: float) -> str:
        (tree / "pod.yaml").write_text(MANIFEST % int(gib * GIB))
        git("add", ".")
        git("commit", "--quiet", "--allow-empty", "-m", "x")
        return git("rev-parse", "HEAD")

    git("init", "--quiet", "--initial-branch=main")
    base = commit(6)
    git("checkout", "--quiet", "-b", "topic")
    summary = tmp_path / "summary.md"
    event = tmp_path / "event.json"

    def run(gib: float, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        head = commit(gib)
        git("checkout", "--quiet", "--detach", base)
        git("merge", "--quiet", "--no-ff", "--no-edit", head)
        payload = {"number": 12, "pull_request": {"base": {"sha": base}, "head": {"sha": head}, "labels": []}}
        event.write_text(json.dumps(payload))
        result = subprocess.run(
            [sys.executable, "-m", "kvgate", "diff", "--comment", "update", "--summary", *words],
            cwd=tree, capture_output=True, text=True, encoding="utf-8", check=False, timeout=120,
            env={
                **environ, "GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(event),
                "GITHUB_REPOSITORY": "o/r", "GITHUB_TOKEN": "ghs_secret", "GITHUB_API_URL": github.address,
                "GITHUB_STEP_SUMMARY": str(summary), **environment,
            },
        )  # fmt: skip
        git("checkout", "--quiet", "topic")
        assert "ghs_secret" not in result.stdout + result.stderr
        return result

    run.summary = summary  # type: ignore[attr-defined]
    return run


def test_comment_and_summary(runner, github):
    result = runner(3)
    assert result.returncode == 1
    assert result.stderr.endswith("comment written\n")
    (comment,) = github.comments
    assert comment["body"].startswith("<!-- kvgate:diff -->\n### 🔴 kvgate: the gate is closed")
    assert comment["body"].partition("\n")[2] == runner.summary.read_text(encoding="utf-8")


def test_the_comment_follows_the_change(runner, github):
    runner(3)
    result = runner(6)
    assert (result.returncode, result.stderr.splitlines()[-1]) == (0, "comment updated")
    (comment,) = github.comments
    assert "the gate is open: no server changed" in comment["body"]
    assert runner(6, "--comment", "delete").stderr.endswith("comment deleted\n")
    assert github.comments == []
    assert runner(6).stderr.endswith("no comment: nothing to say\n")


def test_a_fork_s_token_costs_the_comment_and_nothing_else(runner, github):
    github.fail("POST", "/repos/o/r/issues/12/comments", 403, message="Resource not accessible by integration")
    result = runner(3, "--format", "github")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("kvgate: no comment: the token may not write to this pull request")
    assert result.stdout.startswith("::error file=pod.yaml")
    assert "the gate is closed" in runner.summary.read_text(encoding="utf-8")
    assert runner(6).returncode == 0


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"GITHUB_TOKEN": ""}, "no comment: GITHUB_REPOSITORY and GITHUB_TOKEN are not set"),
        ({"GITHUB_EVENT_NAME": "push"}, "no comment: this run is not for a pull request"),
        ({"GITHUB_API_URL": "http://evil.example.com"}, "kvgate: GITHUB_API_URL: an https address expected"),
    ],
)
def test_where_no_comment_is_possible(runner, github, environment, says):
    result = runner(3, **environment)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith(says)
    assert github.requests == []


def test_the_summary_has_a_limit(runner):
    runner.summary.write_text("x" * 999_990)
    assert runner(3).returncode == 1
    assert runner.summary.stat().st_size <= 1_000_000


def test_no_summary_outside_of_a_workflow(runner):
    assert "no summary: GITHUB_STEP_SUMMARY is not set" in runner(3, GITHUB_STEP_SUMMARY="").stderr
