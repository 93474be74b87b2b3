"""The real command line in a scrubbed environment."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "tests" / "examples" / "deploy"
_SCRUBBED = re.compile(
    r"GITHUB_|CI$|HF_|HUGGING|VLLM_|NO_COLOR|FORCE_COLOR|KVGATE_|COLUMNS|PYTEST_|TERM$|XDG_|PYTHONSAFEPATH"
)


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def kvgate(tmp_path: Path) -> Callable[..., Result]:
    """Runs kvgate in an empty folder (or ``cwd``) and gives exit code, stdout and stderr."""

    def run(*args: str | Path, cwd: Path | None = None, stdin: str | None = None, **environment: str) -> Result:
        env = {key: value for key, value in os.environ.items() if not _SCRUBBED.match(key)}
        result = subprocess.run(
            [sys.executable, "-m", "kvgate", *map(str, args)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
            timeout=60,
            cwd=cwd or tmp_path,
            input=stdin,
            env={**env, "PYTHONUTF8": "1", "HF_HOME": str(tmp_path / "no-hub-cache"), **environment},
        )
        assert "Traceback" not in result.stderr, result.stderr
        return Result(result.returncode, result.stdout, result.stderr)

    return run


@pytest.fixture
def example() -> Path:
    """The example deployment that ships with the repository."""
    return EXAMPLE
