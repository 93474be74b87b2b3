"""Conditions over facts: types, unknown facts, certainty, words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.findings.finding import Severity
from kvgate.ruleset.cel import CelError, Environment, EvaluationError, Variable
from kvgate.ruleset.certainty import Bound, Certainty, certainty_of, severity_of
from kvgate.ruleset.facts import environment, facts
from kvgate.ruleset.words import TemplateError, amount, gib, listed, plural, read_template

ENV = Environment(
    (
        Variable("a.n", "int", True),
        Variable("a.m", "int", False),
        Variable("a.x", "double", True),
        Variable("a.s", "string", True),
        Variable("a.l", "list", False),
        Variable("a.b", "bool", False),
    )
)
VALUES = {"a.n": 3, "a.m": 7, "a.x": 1.5, "a.s": "v", "a.l": ["x"], "a.b": True}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("a.n != null && a.n > 2", True),
        ("a.n == null || a.n > 5", False),
        ("a.m / 2 == 3", True),
        ("a.x != null && a.x < 2.0", True),
        ("'x' in a.l && a.b", True),
        ("a.s != null && a.s.startsWith('w')", False),
        ("a.s in ['v', 'w']", True),
    ],
)
def test_conditions(text: str, holds: bool) -> None:
    assert ENV.compile(text).holds(VALUES) is holds


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a.k == 1", 1, 2, 'there is no fact "a.k"'),
        ("a.b &&\n  a.k == 1", 2, 4, 'there is no fact "a.k"'),
        ("a.n == 'x'", 1, 5, "optional(int), string"),
        ("a.x < 1", 1, 5, "optional(double), int"),
        ("a.b &&", 1, 7, "Syntax error"),
        ("a.m", 1, 1, "true or false"),
        ("", 1, 1, "Syntax error"),
    ],
)
def test_what_does_not_compile(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(CelError) as caught:
        ENV.compile(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("a.n > 1", "a.n"),
        ("a.n != null && a.n > 1", None),
        ("a.n != null && a.x > 1.0", "a.x"),
        ("a.n == null || a.n > 1", None),
        ("a.s == 'x'", None),
        ("a.b && a.s.startsWith('x')", "a.s"),
    ],
)
def test_a_fact_that_can_be_unknown_must_be_asked_for(text: str, fact: str | None) -> None:
    assert ENV.compile(text).unguarded() == fact


def test_an_evaluation_that_fails_is_an_error_and_no_answer() -> None:
    with pytest.raises(EvaluationError, match="overflow"):
        ENV.compile("a.m * 9223372036854775807 > 1").holds(VALUES)
    with pytest.raises(EvaluationError):
        ENV.compile("a.n > 1").holds({**VALUES, "a.n": None})


def test_every_fact_has_a_name_a_type_and_words() -> None:
    known = facts()
    assert {"unit.replicas", "args.max_model_len", "prediction.sustained", "engine.max_num_seqs"} <= set(known)
    assert all(fact.text and not fact.text.endswith(".") for fact in known.values())
    assert known["args.max_model_len"].type == "int"
    assert known["args.enforce_eager"].type == "bool"
    assert known["args.gpu_memory_utilization"].type == "double"
    assert "args.model" not in known
    # each is a variable that conditions can use
    for name, fact in known.items():
        assert environment().compile(f"{name} == null" if fact.optional else f"[{name}].size() == 1").names == (name,)


# -- certainty -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "estimate", "high", "doubtful", "certainty", "severity"),
    [
        (True, True, True, (), Certainty.CERTAIN, Severity.ERROR),
        (True, True, False, (), Certainty.LIKELY, Severity.WARNING),
        (False, True, True, (), Certainty.LIKELY, Severity.WARNING),
        (True, False, False, (), None, None),
        (False, False, True, (), None, None),
        (True, True, True, ("gpu",), Certainty.POSSIBLE, Severity.INFO),
        (True, True, False, ("vllm_version",), Certainty.POSSIBLE, Severity.INFO),
        (True, True, True, ("workload",), Certainty.CERTAIN, Severity.ERROR),
    ],
)
def test_severity_follows_certainty(
    low: bool, estimate: bool, high: bool, doubtful: tuple[str, ...], certainty: Certainty, severity: Severity
) -> None:
    answers = {Bound.LOW: low, Bound.ESTIMATE: estimate, Bound.HIGH: high}
    found = certainty_of(answers.__getitem__, ("gpu", "vllm_version"), frozenset(doubtful))  # type: ignore[arg-type]
    assert found is certainty
    if certainty is not None:
        assert severity_of(Severity.ERROR, certainty) is severity
        assert severity_of(Severity.INFO, certainty) is Severity.INFO


# -- words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values", "filled"),
    [
        ("{a:gib} of {b:tokens}", {"a": 5 * 2**30, "b": 40960}, "5.00 GiB of 40,960 tokens"),
        ("{a:requests}, {b:gpus}", {"a": 1, "b": 4}, "1 request, 4 GPUs"),
        ("{a.b:int} {{x}}", {"a.b": 16384}, "16,384 {x}"),
        ("{a:x} {b:list}", {"a": 1.25, "b": [1, 2, 4]}, "1.25x 1, 2 and 4"),
        ("{a:gib}", {"a": None}, "unknown"),
        ("{a}", {"a": "{b}"}, "{b}"),
    ],
)
def test_messages(text: str, values: dict[str, object], filled: str) -> None:
    assert read_template(text).fill(values) == filled


@pytest.mark.parametrize(("text", "offset"), [("a {", 2), ("}", 0), ("{A}", 0), ("{a:b}", 0), ("x {a}{", 5)])
def test_what_is_no_message(text: str, offset: int) -> None:
    with pytest.raises(TemplateError) as caught:
        read_template(text)
    assert caught.value.offset == offset


def test_numbers_for_people() -> None:
    assert (gib(2**30), gib(141 * 2**30), gib(-(2**29))) == ("1.00 GiB", "141.0 GiB", "-0.50 GiB")
    assert (amount(40960), amount(4.81), amount(2.0), plural(2, "block")) == ("40,960", "4.81", "2", "2 blocks")
    assert (listed([]), listed(["a"]), listed(["a", "b"])) == ("", "a", "a and b")


@given(st.text(alphabet="ab{}:. ", max_size=30))
def test_a_text_is_a_message_or_refused(text: str) -> None:
    try:
        template = read_template(text)
    except TemplateError:
        return
    filled = template.fill(dict.fromkeys(template.names, 1))
    assert not template.names or "1" in filled
