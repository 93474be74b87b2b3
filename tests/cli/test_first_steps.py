"""What somebody meets who tries kvgate for the first time: help, slips, and outputs that cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def test_the_list_of_commands_is_not_cut_off(kvgate: Callable[..., Any]) -> None:
    shown = kvgate("--help").out
    assert "..." not in shown.partition("Commands:")[2]
    for command in ("check", "diff", "explain", "init", "lock", "predict", "prompts", "rules", "smoke", "verify"):
        assert f"\n  {command} " in shown


def test_an_unknown_gpu_is_answered_by_common_ones(kvgate: Callable[..., Any]) -> None:
    """One request of 8,500 tokens takes 532 blocks of 2 MiB, 1.04 GiB: an L4's pool of some 4 GiB holds four."""
    run = kvgate("predict", LLAMA, "--prompt-tokens", "7500", "--output-tokens", "1000")
    assert "it would hold:\n  on NVIDIA L4 " in run.out
    line = next(line for line in run.out.splitlines() if "NVIDIA L4" in line)
    assert line.endswith("~4 requests of 8,500 tokens")
    for arguments in (("--gpu", "NVIDIA L4"), ("--kv-cache-tokens", "40960")):
        assert "it would hold" not in kvgate("predict", LLAMA, *arguments).out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--output-tokens", "1000"), "--output-tokens says nothing without --prompt-tokens"),
        (("--shared-prefix-tokens", "10"), "--shared-prefix-tokens says nothing without --prompt-tokens"),
        (("--max-model-len", "100"), "No such option '--max-model-len' (vLLM's own arguments follow --)"),
    ],
)
def test_slips(kvgate: Callable[..., Any], arguments: tuple[str, ...], words: str) -> None:
    run = kvgate("predict", LLAMA, *arguments)
    assert (run.code, run.out, run.err) == (2, "", f"kvgate: {words}\n")


def test_a_file_that_cannot_be_written_or_read_needs_no_help_page(kvgate: Callable[..., Any], tmp_path: Path) -> None:
    for arguments in (("check", ".", "--output", tmp_path / "no" / "x"), ("verify", "--log", tmp_path / "no")):
        run = kvgate(*arguments)
        assert run.code == 2
        assert "--help" not in run.err
        assert "No such file or directory" in run.err


@pytest.mark.parametrize(
    ("more", "mark", "told"),
    [
        ("", "~", None),
        ('"$@"', "*", "$@ serve.sh:1 (not known: arguments that the script is given when it is started)"),
        ("$EXTRA", "*", "$EXTRA serve.sh:1 (not known: EXTRA is set in no file here)"),
    ],
)
def test_arguments_that_nobody_knows_are_told_and_make_the_pool_an_assumption(
    kvgate: Callable[..., Any], tmp_path: Path, more: str, mark: str, told: str | None
) -> None:
    (tmp_path / "serve.sh").write_text(f"vllm serve Qwen/Qwen3-8B --port 8000 {more}\n")
    shown = kvgate("check", "serve.sh", "--gpu", "NVIDIA L4", "--vllm-version", "0.11.0", "-v").out
    row = next(line.split() for line in shown.splitlines() if line.startswith("serve.sh  "))
    assert row[4].startswith(mark)
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert [line for line in lines if line.startswith("more arguments")] == ([f"more arguments {told}"] if told else [])
