"""kvgate explain --release: what changed for the numbers, in general and for servers."""

from dataclasses import fields

import pytest

from kvgate.capacity.release import Release
from kvgate.capacity.release_changes import _WORDS, release_changes


def test_every_switch_has_words():
    assert {entry.name for entry in fields(Release)} - {"version", "key"} == set(_WORDS)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("0.19.1", "0.20.0", "gpu_memory_utilization defaults to 0.92 (was 0.9)"),
        ("0.19.1", "0.20.0", "the memory of CUDA graphs is estimated and taken from the pool"),
        ("0.20.0", "0.19.1", "not yet: the memory of CUDA graphs is estimated and taken from the pool"),
        ("0.18.1", "0.19.0", "a request is admitted only when its whole prompt fits (before: its first chunk)"),
        ("0.27.1", "0.28.0", "prefix caching is on by default for models with recurrent layers"),
        ("0.7.3", "0.8.5", "the engine is V1 by default (was V0): another scheduler, admission check and profile run"),
    ],
)
def test_what_changed(old, new, words):
    assert words in release_changes(old, new)


def test_nothing_changes_within_a_release():
    assert release_changes("0.19.1", "0.19.1") == ()


def test_a_server_side_by_side(kvgate, example):
    result = kvgate("explain", "--release", "0.12.0..0.20.0", example)
    assert result.code == 0
    lines = {line.strip().split("  ")[0]: line.split() for line in result.out.splitlines() if line.startswith("  ")}
    # 23.64 GiB x 0.9 and x 0.92
    assert lines["requested"][1:] == ["21.28", "GiB", "21.75", "GiB", "*"]
    assert lines["weights"][1:] == ["14.99", "GiB", "14.99", "GiB"]
    assert lines["CUDA graphs"][2] == "0.00"
    assert lines["CUDA graphs"][4] != "0.00"


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["--release", "0.12.0"], "kvgate: --release: two releases such as 0.19.1..0.20.0 expected"),
        (["--release", "0.12.0..x"], "kvgate: --release: a release such as 0.11.2 expected"),
        (["--release", "0.12.0..0.13.0", "nowhere"], "kvgate: nowhere: no such file or directory"),
        ([], "kvgate: one RULE expected, or --release A..B"),
        (["a", "b"], "kvgate: one RULE expected, or --release A..B"),
    ],
)
def test_usage(kvgate, args, line):
    result = kvgate("explain", *args)
    assert result.code == 2
    assert result.err.startswith(line)
