"""A smoke run with an interpreter that has no vLLM could not be run: no verdict about the manifest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "deploy"


@pytest.mark.skipif(os.name != "posix", reason="vLLM is started on Linux and macOS only")
def test_an_interpreter_without_vllm_is_said(tmp_path: Path) -> None:
    # -S leaves site-packages out, so that this holds wherever the suite runs
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    run = subprocess.run(
        [sys.executable, "-m", "kvgate", "smoke", str(EXAMPLE), "--python", str(python)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.endswith(
        f"kvgate: {python} has no vLLM: name an interpreter that has it with --python or KVGATE_VLLM_PYTHON\n"
    )
