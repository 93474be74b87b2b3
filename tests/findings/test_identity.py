"""Fingerprints, order, and the baseline."""

from __future__ import annotations

import hashlib
import json

import pytest

from kvgate.findings.baseline import BaselineError, apply_baseline, read_baseline, write_baseline
from kvgate.findings.finding import Confidence, Finding, Severity
from kvgate.findings.identity import finalise, fingerprint
from kvgate.source.text import SourceFile, Span


def finding(file: SourceFile, rule: str, start: int, end: int, message: str = "m", unit: str | None = "u") -> Finding:
    return Finding(rule, Severity.WARNING, Confidence.HIGH, message, Span(file, start, end), unit=unit)


def test_the_fingerprint_is_what_the_contract_says() -> None:
    expected = hashlib.sha256(b"image-not-pinned\0deploy/a.yaml\0Deployment/d/n/c\0image: vllm/vllm-openai").hexdigest()
    file = SourceFile("deploy/a.yaml", "image:   vllm/vllm-openai\n")
    (one,) = finalise([finding(file, "image-not-pinned", 0, 25, unit="Deployment/d/n/c")])
    assert one.fingerprint == expected


def test_moved_lines_and_indentation_keep_it_and_other_text_does_not() -> None:
    before = SourceFile("a.yaml", "- --x\n- 1\n")
    after = SourceFile("a.yaml", "# new\n\n  - --x\n  - 1\n")
    other = SourceFile("a.yaml", "- --x\n- 2\n")
    (one,) = finalise([finding(before, "r", 2, 9)])
    (two,) = finalise([finding(after, "r", after.text.index("--x"), len(after.text) - 1)])
    (three,) = finalise([finding(other, "r", 2, 9)])
    assert one.fingerprint == two.fingerprint != three.fingerprint


def test_the_same_text_twice_is_counted_and_the_same_place_twice_is_one() -> None:
    file = SourceFile("a.yaml", "x\nx\ny\n")
    found = finalise(
        [
            finding(file, "r", 2, 3),
            finding(file, "r", 0, 1),
            finding(file, "r", 0, 1),
            finding(file, "r", 0, 1, "other"),
        ]
    )
    assert [(one.primary.line, one.message) for one in found] == [(1, "m"), (1, "other"), (2, "m")]
    assert len({one.fingerprint for one in found}) == 3
    assert found[0].fingerprint == fingerprint("r", "a.yaml", "u", "x")
    assert found[2].fingerprint == fingerprint("r", "a.yaml", "u", "x", 2)


def test_an_alias_that_gives_two_units_the_same_place_gives_one_finding() -> None:
    file = SourceFile("a.yaml", "x\n")
    assert len(finalise([finding(file, "r", 0, 1, unit="a"), finding(file, "r", 0, 1, unit="b")])) == 1


def test_the_order_is_path_line_column_rule() -> None:
    a, b = SourceFile("a.yaml", "xyz\nx\n"), SourceFile("b.yaml", "x")
    found = [
        finding(b, "a", 0, 1),
        finding(a, "a", 4, 5),
        finding(a, "b", 1, 2),
        finding(a, "a", 1, 2),
        finding(a, "z", 0, 1),
    ]
    assert [(one.primary.path, one.primary.line, one.primary.column, one.rule) for one in finalise(found)] == [
        ("a.yaml", 1, 1, "z"),
        ("a.yaml", 1, 2, "a"),
        ("a.yaml", 1, 2, "b"),
        ("a.yaml", 2, 1, "a"),
        ("b.yaml", 1, 1, "a"),
    ]


def test_a_baseline_takes_away_what_it_accepts_after_lines_moved() -> None:
    old = finalise([finding(SourceFile("a.yaml", "x\ny\n"), "r", 0, 1)])
    accepted = read_baseline(write_baseline(old))
    moved = SourceFile("a.yaml", "y\n\nx\n")
    now = finalise([finding(moved, "r", 3, 4), finding(moved, "r", 0, 1)])
    kept, count = apply_baseline(now, accepted)
    assert ([one.primary.text for one in kept], count) == (["y"], 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "no JSON"),
        ("[]", "schema"),
        ('{"schema": "kvgate.baseline/2", "findings": []}', "kvgate.baseline/1"),
        ('{"schema": "kvgate.baseline/1"}', "findings"),
        ('{"schema": "kvgate.baseline/1", "findings": [{"fingerprint": "a"}, {}]}', "entry 2"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_a_baseline_that_is_none(text: str, problem: str) -> None:
    with pytest.raises(BaselineError, match=problem):
        read_baseline(text)


def test_a_baseline_is_written_the_same_whatever_the_order() -> None:
    file = SourceFile("a.yaml", "x\ny\n")
    found = finalise([finding(file, "r", 0, 1), finding(file, "r", 2, 3)])
    assert write_baseline(found) == write_baseline(reversed(found))
    assert json.loads(write_baseline(found))["schema"] == "kvgate.baseline/1"
    assert Severity.ERROR.capped(Severity.WARNING) is Severity.WARNING
