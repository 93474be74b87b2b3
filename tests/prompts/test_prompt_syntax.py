"""Places inside Python's literals."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.prompts.syntax import Places, Problem, located, parse_python
from kvgate.source.text import SourceFile, Span


def f_string(text: str) -> tuple[list[str], list[str]]:
    file = SourceFile("x.py", text)
    tree = ast.parse(text)
    (node,) = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)][:1]
    found = Places(file).f_string(node)
    return [span.text for span in found.expressions], [span.text for span in found.literals]


@pytest.mark.parametrize(
    ("text", "expressions"),
    [
        ('x = f"a {now} b"', ["now"]),
        ("x = f\"{now:%H:%M} and {{x}} {d['a']!r}\"", ["now", "d['a']"]),
        ('x = f"""é {now}\n  {f(x, y=":")}\n"""', ["now", 'f(x, y=":")']),
        ("x = f'{a != b}{c!s}{d = }'", ["a != b", "c", "d"]),
        ('x = ("plain {no}" f"{yes}"\n     f\'{also}\')', ["yes", "also"]),
        ('x = rf"\\d {a}"', ["a"]),
        ('x = f"{ {1: 2}[1] } {[i for i in y]}"', ["{1: 2}[1]", "[i for i in y]"]),
        ('x = f"{a:{width}}"', ["a"]),
    ],
)
def test_expressions_of_f_strings(text: str, expressions: list[str]) -> None:
    assert f_string(text)[0] == expressions


@pytest.mark.parametrize(
    ("literal", "value", "pieces"),
    [
        ('"USER: <image>\\nDescribe"', "USER: <image>\nDescribe", {6: "<", 13: "\\n", 14: "D"}),
        ("(\"ab\" 'cd')", "abcd", {0: "a", 2: "c"}),
        ('("ab"  # note\n  r"c\\d")', "abc\\d", {1: "b", 2: "c", 3: "\\"}),
        ('"\\u00e4\\x41b"', "äAb", {0: "\\u00e4", 1: "\\x41", 2: "b"}),
        ('"""x\\\ny"""', "xy", {0: "x", 1: "y"}),
    ],
)
def test_characters_are_placed_through_escapes_and_seams(literal: str, value: str, pieces: dict[int, str]) -> None:
    text = located(Span(SourceFile("x.py", literal), 0, len(literal)), value)
    assert text.value == value
    for index, written in pieces.items():
        assert text.slice(index, index + 1).span.text == written


@given(st.text(alphabet="ab{}\\\n\t'\"é ", max_size=24))
def test_every_literal_keeps_its_value(value: str) -> None:
    literal = repr(value)
    text = located(Span(SourceFile("x.py", literal), 0, len(literal)), value)
    assert text.value == value
    plain = [index for index, character in enumerate(value) if character in "abé "]
    if text.span.text != literal or not value:  # placed, not only as a whole
        for index in plain:
            assert text.slice(index, index + 1).span.text == value[index]


@given(st.text(alphabet="f\"'{}!:x= \\n", max_size=30))
def test_any_f_string_that_python_reads_has_as_many_expressions_as_python_says(body: str) -> None:
    source = f'f"""{body}"""'
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError):
        return
    if not isinstance(tree.body, ast.JoinedStr):
        return
    fields = [value for value in tree.body.values if isinstance(value, ast.FormattedValue)]
    file = SourceFile("x.py", source)
    found = Places(file).f_string(tree.body)
    assert len(found.expressions) == len(fields)
    assert [ast.unparse(ast.parse(span.text, mode="eval")) for span in found.expressions] == [
        ast.unparse(field.value) for field in fields
    ]


def test_columns_are_code_points() -> None:
    file = SourceFile("x.py", 'é = "ü"; y = now\n')
    tree = parse_python(file)
    assert isinstance(tree, ast.Module)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "now"]
    span = Places(file).span(names[0])
    assert (span.column, span.text) == (14, "now")


@pytest.mark.parametrize("text", ["def f(:\n", "x = (\n", "\0", "a = '\ud800'\n"])
def test_what_is_no_python_is_told_at_its_line(text: str) -> None:
    found = parse_python(SourceFile("x.py", text))
    assert isinstance(found, Problem)
    assert found.message.startswith("no Python that can be read")
