"""Real git repositories, made in a temporary folder with a scrubbed environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kvgate.app import diff_paths
from kvgate.gate.difference import Difference, UnitDifference
from kvgate.gate.event import Event
from kvgate.gate.pipeline import DiffOptions

IDENTITY = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}  # fmt: skip


def server(
    *,
    name: str = "chat",
    kind: str = "Deployment",
    image: str = "vllm/vllm-openai:v0.19.1",
    model: str = "meta-llama/Llama-3.1-8B-Instruct",
    args: tuple[str, ...] = ("--max-model-len=16384", "--max-num-seqs=256"),
    gpu: str = "NVIDIA-GeForce-RTX-4090",
    gpus: int = 1,
    replicas: int = 2,
    load: dict[str, int] | None = None,
    secrets: tuple[str, ...] = (),
) -> str:
    """One Deployment.

    ``load`` are its kvgate.dev annotations; ``secrets`` variables whose values no file says, for ``$(NAME)`` in args.
    """
    declared = {"peak-concurrency": 10, "prompt-tokens": 7500, "output-tokens": 1000} if load is None else load
    notes = "".join(f'\n    kvgate.dev/{key}: "{value}"' for key, value in declared.items())
    annotations = f"\n  annotations:{notes}" if declared else ""
    variables = "".join(
        f"\n            - name: {name}\n              valueFrom: {{secretKeyRef: {{name: s, key: {name}}}}}"
        for name in secrets
    )
    environment = f"\n          env:{variables}" if secrets else ""
    words = "".join(f"\n            - {word}" for word in (f"--model={model}", *args))
    return f"""\
apiVersion: apps/v1
kind: {kind}
metadata:
  name: {name}{annotations}
spec:
  replicas: {replicas}
  template:
    spec:
      nodeSelector:
        nvidia.com/gpu.product: {gpu}
      containers:
        - name: vllm
          image: {image}
          args:{words}{environment}
          resources:
            limits:
              nvidia.com/gpu: {gpus}
"""


@dataclass
class Repo:
    """A repository with a main branch."""

    root: Path
    monkeypatch: pytest.MonkeyPatch
    environ: dict[str, str] = field(default_factory=dict)

    server = staticmethod(server)

    def git(self, *words: str, cwd: Path | None = None, check: bool = True) -> str:
        result = subprocess.run(
            ["git", *words], cwd=cwd or self.root, env={**self.environ, **IDENTITY}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert result.returncode == 0 or not check, result.stderr
        return result.stdout.strip()

    def write(self, files: dict[str, str | None]) -> None:
        """Write files; None deletes one."""
        for path, text in files.items():
            place = self.root / path
            if text is None:
                place.unlink()
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8", newline="\n")

    def commit(self, files: dict[str, str | None], message: str = "change") -> str:
        self.write(files)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")

    def diff(self, *paths: str, cwd: str = ".", **options: Any) -> Difference:
        """What ``kvgate diff`` finds; base HEAD~1 and head HEAD where nothing else is asked for."""
        if not options.keys() & {"base", "head", "event"}:
            options |= {"base": "HEAD~1", "head": "HEAD"}
        with self.monkeypatch.context() as patch:
            patch.chdir(self.root / cwd)
            return diff_paths([Path(path) for path in paths or (".",)], DiffOptions(environ=self.environ, **options))

    def unit(self, *paths: str, **options: Any) -> UnitDifference:
        """The only changed unit of a comparison."""
        (unit,) = [unit for unit in self.diff(*paths, **options).units if unit.is_changed]
        return unit

    def cli(self, *words: str, cwd: str = ".", **environment: str) -> subprocess.CompletedProcess[str]:
        """The real command line."""
        result = subprocess.run(
            [sys.executable, "-m", "kvgate", *words], cwd=self.root / cwd, capture_output=True, text=True,
            encoding="utf-8", check=False, timeout=120,
            env={**self.environ, "PYTHONUTF8": "1", **environment},
        )  # fmt: skip
        assert "Traceback" not in result.stderr, result.stderr
        return result


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """A repository without commits."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "TEMP", "TMP") if name in os.environ}
    home = tmp_path / "home"
    home.mkdir()
    environ = {
        **kept, "HOME": str(home), "USERPROFILE": str(home), "HF_HOME": str(home / "hub"),
        "GIT_CONFIG_NOSYSTEM": "1",
    }  # fmt: skip
    root = tmp_path / "tree"
    root.mkdir()
    made = Repo(root.resolve(), monkeypatch, environ)
    made.git("init", "--quiet", "--initial-branch=main")
    return made


@pytest.fixture
def pull_request() -> Callable[..., Event]:
    """An event of a pull request."""

    def make(base: str, head: str | None = None, *labels: str) -> Event:
        return Event("pull_request", base=base, head=head, number=12, default_branch="main", labels=frozenset(labels))

    return make
