"""Expansion by Kubernetes and Compose, before any shell."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.shell.expand import expand_kubernetes, interpolate, mark_placeholders
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Text


def text_of(content: str) -> Text:
    return Text.of_span(Span(SourceFile("f", content), 0, len(content)))


VARIABLES = {
    "MODEL": Value(text_of("org/name")),
    "EMPTY": Value(text_of("")),
    "FLAGS": Value(text_of("--a 1 --b")),
    "HIDDEN": Value.unknown(text_of("secret.key"), "it comes from Secret secret"),
}


def interpolated(content: str) -> str:
    value = interpolate(text_of(content), VARIABLES)
    return value.masked("?")


# the table of the Compose specification, "Interpolation"
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("$MODEL", "org/name"),
        ("${MODEL}", "org/name"),
        ("x${MODEL}y", "xorg/namey"),
        ("${MODEL:-d}", "org/name"),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY-d}", ""),
        ("${UNSET:-d}", "d"),
        ("${UNSET-d}", "d"),
        ("${UNSET:-}", ""),
        ("${UNSET:-a b}", "a b"),
        ("${MODEL:+yes}", "yes"),
        ("${EMPTY:+yes}", ""),
        ("${EMPTY+yes}", "yes"),
        ("${UNSET+yes}", ""),
        ("${UNSET:-${MODEL:-d}}", "org/name"),
        ("${UNSET:-${ALSO_UNSET:-deep}}", "deep"),
        ("$$MODEL", "$MODEL"),
        ("$${MODEL:+--x}", "${MODEL:+--x}"),
        ("a $ b", "a $ b"),
        ("100%$", "100%$"),
        ("${UNSET", "${UNSET"),
        ('${UNSET:-{"a":1}}', '{"a":1}'),
        ("$MODEL ${list[@]} ${list[0]:-x}", "org/name ${list[@]} ${list[0]:-x}"),  # a script's own
        ("${MODEL%x}", "??????????"),
        ("$UNSET", "??????"),
        ("${UNSET}", "????????"),
        ("${UNSET:?must be set}", "?" * len("${UNSET:?must be set}")),
        ("-${HIDDEN}-", "-??????????-"),
    ],
)
def test_compose(content: str, expected: str) -> None:
    assert interpolated(content) == expected


def test_compose_says_why_a_value_is_unknown() -> None:
    value = interpolate(text_of("a ${IMAGE} ${TOKEN:?give one}"), {})
    assert [hole.unresolved.text for hole in value.holes] == ["${IMAGE}", "${TOKEN:?give one}"]
    assert [hole.unresolved.reason for hole in value.holes] == [
        "IMAGE is set in no file here",
        "TOKEN is set in no file here (give one)",
    ]


def test_a_default_stands_where_it_is_written_and_a_value_where_it_is_used() -> None:
    text = text_of("${UNSET:-32768} ${MODEL}")
    value = interpolate(text, VARIABLES)
    assert value.value == "32768 org/name"
    assert value.slice(0, 5).span.text == "32768"
    assert value.slice(6, 14).span.text == "${MODEL}"
    assert value.slice(6, 14).span.file is text.span.file


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("--model=$(MODEL)", "--model=org/name"),
        ("$$(MODEL)", "$(MODEL)"),
        ("$(FLAGS)", "--a 1 --b"),
        ("$MODEL ${MODEL}", "$MODEL ${MODEL}"),
        ("$(UNSET)", "????????"),
        ("$(HIDDEN)", "??????????"),
        ("$(date +%s)", "$(date +%s)"),
        ("cost: 5$", "cost: 5$"),
    ],
)
def test_kubernetes(content: str, expected: str) -> None:
    assert expand_kubernetes(text_of(content), VARIABLES).masked("?") == expected


def test_kubernetes_leaves_unknown_names_to_a_shell() -> None:
    value = expand_kubernetes(text_of("vllm serve $(MODEL) $(nproc)"), VARIABLES, keep_unknown=True)
    assert value.value == "vllm serve org/name $(nproc)"
    assert value.resolved


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("--tp=${TP}", "--tp=?????"),
        ("${A:-b}", "???????"),
        ("{{ .Name }}", "???????????"),
        ("<model-id>", "??????????"),
        ("____", "????"),
        ("a__b ___c", "a__b ___c"),
        ("org/__MODEL_ID__", "org/????????????"),
        ("__init__ a__B__", "__init__ a__B__"),
        ("s3://x/MODEL_PLACEHOLDER", "s3://x/?????????????????"),
        ("a<b>c", "a<b>c"),
        ("$(X) $Y", "$(X) $Y"),
        ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
    ],
)
def test_placeholders(content: str, expected: str) -> None:
    assert mark_placeholders(Value(text_of(content))).masked("?") == expected


@settings(deadline=None, max_examples=300)
@given(st.text(st.sampled_from(list("${}:-?+AB(_) \"'\\")), max_size=40))
def test_expansion_never_raises_and_keeps_its_map(content: str) -> None:
    for value in (
        interpolate(text_of(content), VARIABLES),
        expand_kubernetes(text_of(content), VARIABLES),
        mark_placeholders(Value(text_of(content))),
    ):
        assert sum(piece.length for piece in value.text.pieces) == len(value.value)
        assert all(0 <= hole.start < hole.end <= len(value.value) for hole in value.holes)
        bounds = [bound for hole in value.holes for bound in (hole.start, hole.end)]
        assert bounds == sorted(bounds)
