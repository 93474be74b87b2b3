"""The benchmarks run; what they measure is not judged here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(sys.platform == "win32", reason="processes are measured by wait4")
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("bench_check.py", "--files", "20", "--rounds", "1"), "kvgate check of 20 files"),
        (("bench_readers.py", str(HERE.parent / "examples"), "--rounds", "1"), "all in one run, from the disk"),
    ],
)
def test_it_runs(words: tuple[str, ...], shown: str) -> None:
    run = subprocess.run([sys.executable, HERE / words[0], *words[1:]], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert shown in run.stdout
