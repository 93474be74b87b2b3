"""Inline suppressions: the grammar as a table, the lines they speak of, and what is said of useless ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.findings.finding import Confidence, Finding, Severity
from kvgate.findings.suppress import apply_suppressions, read_suppressions
from kvgate.source.text import SourceFile, Span


def finding(file: SourceFile, rule: str, text: str, unit: str | None = None) -> Finding:
    at = file.text.index(text)
    return Finding(rule, Severity.WARNING, Confidence.HIGH, "m", Span(file, at, at + len(text)), unit=unit)


@pytest.mark.parametrize(
    ("text", "rules", "reason"),
    [
        ("# kvgate: ignore[image-not-pinned]", ["image-not-pinned"], None),
        ("# kvgate: ignore[image-not-pinned] moved by hand", ["image-not-pinned"], "moved by hand"),
        ("#kvgate:ignore[image-not-pinned]", ["image-not-pinned"], None),
        ("#  kvgate:   ignore[image-not-pinned]  x  ", ["image-not-pinned"], "x"),
        ("# kvgate: ignore[a,b]", ["a", "b"], None),
        ("# kvgate: ignore[ a , b ] r", ["a", "b"], "r"),
        ("image: x # kvgate: ignore[a] r", ["a"], "r"),
        ("{# kvgate: ignore[a] jinja #}", ["a"], "jinja"),
        ("{#- kvgate: ignore[a] jinja -#}", ["a"], "jinja"),
        ("{{/* kvgate: ignore[a] go */}}", ["a"], "go"),
        ("{{- /* kvgate: ignore[a] go */ -}}", ["a"], "go"),
        ("# kvgate: ignore[a] see [1], # 2", ["a"], "see [1], # 2"),
        ("# kvgate: ignore[a] é 🙂", ["a"], "é 🙂"),
    ],
)
def test_what_is_a_suppression(text: str, rules: list[str], reason: str | None) -> None:
    found, broken = read_suppressions(SourceFile("a.yaml", text))
    assert not broken
    assert [[name for name, _ in one.rules] for one in found] == [rules]
    assert found[0].reason == reason
    assert [span.text for _, span in found[0].rules] == rules


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# kvgate: ignore", "the rule ids in brackets are missing"),
        ("# kvgate: ignore image-not-pinned", "the rule ids in brackets are missing"),
        ("# kvgate: ignore[a", "the closing bracket is missing"),
        ("# kvgate: ignore[]", "no rule id stands in the brackets"),
        ("# kvgate: ignore[ ] r", "no rule id stands in the brackets"),
        ("# kvgate: ignore[a]reason", "a blank is missing between the bracket and the reason"),
        ("# kvgate: Ignore[a]", 'the word before the bracket is not "ignore"'),
        ("# kvgate: ignore [a]", 'the word before the bracket is not "ignore"'),
        ("# kvgate: ignores[a]", 'the word before the bracket is not "ignore"'),
        ("# kvgate: ignore[A]", "rule ids are lower case with dashes, separated by commas"),
        ("# kvgate: ignore[a,,b]", "rule ids are lower case with dashes, separated by commas"),
        ("# kvgate: ignore[a b]", "rule ids are lower case with dashes, separated by commas"),
        ("# kvgate: ignore[*]", "rule ids are lower case with dashes, separated by commas"),
        ("# kvgate: ignore[a-]", "rule ids are lower case with dashes, separated by commas"),
    ],
)
def test_what_only_looks_like_one(text: str, problem: str) -> None:
    found, broken = read_suppressions(SourceFile("a.yaml", text))
    assert not found
    assert [bad.problem for bad in broken] == [problem]


@pytest.mark.parametrize(
    "text",
    [
        "# kvgate.dev/peak-concurrency: 3",
        "a#kvgate: ignore[a]",
        "# see kvgate: it checks",
        "kvgate: ignore[a]",
        "",
        "#",
    ],
)
def test_what_is_no_suppression_at_all(text: str) -> None:
    assert read_suppressions(SourceFile("a.yaml", text)) == ((), ())


STACKED = """\
args:
  # kvgate: ignore[a] first
  # kvgate: ignore[b] second
  # any other comment
  - --one
  - --two  # kvgate: ignore[a] trailing
  - --three
"""


@pytest.mark.parametrize(
    ("rule", "text", "gone"),
    [
        ("a", "--one", True),
        ("b", "--one", True),
        ("a", "--two", True),
        ("b", "--two", False),
        ("a", "--three", False),  # a comment behind a line speaks of that line only
        ("a", "args:", False),
    ],
)
def test_the_lines_it_speaks_of(rule: str, text: str, gone: bool) -> None:
    file = SourceFile("a.yaml", STACKED)
    result = apply_suppressions([finding(file, rule, text)], [file], known={"a", "b"}, ran={"a", "b"})
    assert (result.count, len(result.findings)) == ((1, 0) if gone else (0, 1))


def test_inside_a_script_in_a_block_scalar_and_for_any_line_the_finding_touches() -> None:
    file = SourceFile("a.yaml", "run: |\n  # kvgate: ignore[a] why\n  vllm serve m \\\n    --x 1\n")
    both = finding(file, "a", "vllm serve m \\\n    --x 1")
    assert apply_suppressions([both], [file], known={"a"}, ran={"a"}).count == 1
    last = SourceFile("b.yaml", "- --x\n- 1 # kvgate: ignore[a] why\n")
    assert apply_suppressions([finding(last, "a", "--x\n- 1")], [last], known={"a"}, ran={"a"}).count == 1
    # one that ends with the line end does not touch the next line
    assert apply_suppressions([finding(last, "a", "--x\n")], [last], known={"a"}, ran={"a"}).count == 0


def test_the_units_own_line_counts_too() -> None:
    file = SourceFile(
        "a.yaml", "- name: vllm  # kvgate: ignore[a] tuned by hand\n  command: >\n    vllm serve m\n    --x 1\n"
    )
    one = finding(file, "a", "--x 1")
    assert apply_suppressions([one], [file], known={"a"}, ran={"a"}).count == 0
    hidden = Finding(one.rule, one.severity, one.confidence, "m", one.primary, hidden=(file.line_span(1),))
    assert apply_suppressions([hidden], [file], known={"a"}, ran={"a"}).count == 1


def test_useless_suppressions_are_told() -> None:
    text = "a: 1 # kvgate: ignore[used, unused, imagenot-pinned, off] why\nb: 2 # kvgate: ignore[old]\n"
    text += "c: # kvgate: ignore\n"
    file = SourceFile("a.yaml", text)
    result = apply_suppressions(
        [finding(file, "used", "a: 1"), finding(file, "new", "b: 2")],
        [file],
        known={"used", "unused", "off", "new", "image-not-pinned"},
        ran={"used", "unused", "new"},
        aliases={"old": "new"},
    )
    assert result.count == 2
    assert [(problem.kind, problem.rule, problem.detail, problem.span.text) for problem in result.problems] == [
        ("malformed", None, "the rule ids in brackets are missing", "# kvgate: ignore"),
        ("unused", "unused", "", "unused"),
        ("unknown", "imagenot-pinned", "image-not-pinned", "imagenot-pinned"),
        ("renamed", "old", "new", "old"),
        ("no-reason", None, "", "# kvgate: ignore[old]"),
    ]


@given(st.text(alphabet=st.sampled_from("# \n{}/*-kvgate:ignore[],ab"), max_size=60))
def test_no_text_breaks_the_reader_and_spans_slice_back(text: str) -> None:
    file = SourceFile("a.yaml", text)
    found, broken = read_suppressions(file)
    for one in found:
        assert all(span.text == name for name, span in one.rules)
        assert one.span.text.lstrip("{-#/* \t").startswith("kvgate:")
    for bad in broken:
        assert bad.problem


@given(
    st.lists(st.from_regex(r"[a-z]{1,4}(-[a-z0-9]{1,3}){0,2}", fullmatch=True), min_size=1, max_size=4),
    st.from_regex(r"[A-Za-z][A-Za-z ]{0,8}[a-z]", fullmatch=True),
)
def test_written_and_read_again(rules: list[str], reason: str) -> None:
    file = SourceFile("a.yaml", f"x: 1 # kvgate: ignore[{', '.join(rules)}] {reason}\n")
    (one,), broken = read_suppressions(file)
    assert not broken
    assert ([name for name, _ in one.rules], one.reason, one.lines) == (rules, reason, (1,))
