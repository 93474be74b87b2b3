"""Patterns of ``.gitignore`` leave out what git leaves out."""

from __future__ import annotations

import pytest

from kvgate.source.ignore import IgnorePatterns

CASES = (
    ("*.log\n!keep.log", "x/keep.log", False),
    ("*.log", "x/y.log", True),
    ("build/", "build", None),  # a file of that name
    ("build/", "build/x/y.yaml", True),
    ("/a", "b/a", None),
    ("vendor/**", "vendor/x/y.yaml", True),
    ("vendor/**", "vendor", None),
    ("a/**/b", "a/b", True),
    ("a/**/b", "a/x/y/b", True),
    ("x/y", "z/x/y", None),
    ("# a", "# a", None),
    ("\\# a", "# a", True),
    ("", "a", None),
    ("/", "a", None),
    ("[", "[", None),
)


@pytest.mark.parametrize(("lines", "path", "verdict"), CASES)
def test_verdicts(lines: str, path: str, verdict: bool | None) -> None:
    assert IgnorePatterns(lines.split("\n")).verdict(path) is verdict


def test_a_directory_is_asked_as_one() -> None:
    patterns = IgnorePatterns(["build/"])
    assert patterns.verdict("src/build", is_directory=True)
    assert patterns.verdict("src/build") is None
