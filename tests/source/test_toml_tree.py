"""TOML with the place of every value."""

from __future__ import annotations

import time
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.source.text import SourceFile
from kvgate.source.toml_tree import parse_toml
from kvgate.source.yaml_tree import Mapping, Node, Scalar, Sequence, walk

TEXT = r"""
title = "a \"b\" \u00e9\tc" # comment
'quoted key'."x.y" = 'lite\ral'
n = 1_000
t = true
when = 1979-05-27 07:32:00
[a.b]
c = [ "x", 'y', # one
  ["z", 1], { d = "e", f.g = 'h' },
]
[a]
long = '''
first
second \n'''
basic = '''' '''
lines = @@@
one \
   two
"three" \\ four@@@
[[list]]
k = "1"
[list.below]
v = "2"
[[list]]
k = "3"
[[list.inner]]
m = "4"
[[list.inner]]
m = "5"
""".replace("@@@", '"""')


def plain(node: Node) -> Any:
    if isinstance(node, Mapping):
        return {entry.key.value: plain(entry.value) for entry in node.items()}
    return [plain(item) for item in node.items] if isinstance(node, Sequence) else node.value


def texts(value: Any) -> Any:
    """What Python's reader finds, with all that is no text as the file writes it."""
    if isinstance(value, dict):
        return {key: texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [texts(item) for item in value]
    return value if isinstance(value, str) else WRITTEN[str(value)]


WRITTEN = {"1000": "1_000", "True": "true", "1979-05-27 07:32:00": "1979-05-27 07:32:00", "1": "1"}


def test_it_finds_what_python_finds() -> None:
    assert plain(parse_toml(SourceFile("a.toml", TEXT))) == texts(tomllib.loads(TEXT))


def test_places() -> None:
    file = SourceFile("a.toml", 'x = "vl\\tlm"\n[t]\ny = ["a", \'bc\']\n')
    document = parse_toml(file)
    first, table = document.entries
    assert isinstance(first.value, Scalar)
    assert (first.value.span.line, first.value.span.text) == (1, '"vl\\tlm"')
    assert [first.value.text.slice(at, at + 1).span.text for at in range(5)] == ["v", "l", "\\t", "l", "m"]
    assert isinstance(table.value, Mapping)
    items = table.value.get("y")
    assert isinstance(items, Sequence)
    assert [(item.span.line, item.span.text) for item in items.items] == [(3, '"a"'), (3, "'bc'")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = {model}\nb = 2", {"a": "{model}", "b": "2"}),
        ('a = ["x"{more}, {{ y }}]\nb = 2', {"a": ["x", "{more}", "{{ y }"], "b": "2"}),
        ("= 1\na\nb = \n[\nc = 3", {"b": "", "c": "3"}),
        ('a = "open\nb = """never', {"a": "open", "b": "never"}),
        ("a = [1, 2", {"a": ["1", "2"]}),
        ("a = { b = 1", {"a": {"b": "1"}}),
        ("[x]\na = 1\n[x.a]\nb = 2\n[x]\nc = 3", {"x": {"a": {"b": "2"}, "c": "3"}}),
        ("", {}),
    ],
)
def test_what_is_no_toml_is_read_as_far_as_it_goes(text: str, expected: dict[str, Any]) -> None:
    assert plain(parse_toml(SourceFile("a.toml", text))) == expected


@given(
    st.lists(st.sampled_from(['"', "'", '"""', "'''", "[", "]", "{", "}", "=", ",", ".", "\n", "\\", "#", "a", " "]))
)
def test_any_text_is_read_with_consistent_positions(pieces: list[str]) -> None:
    file = SourceFile("a.toml", "".join(pieces))
    for node in walk(parse_toml(file)):
        assert 0 <= node.span.start <= node.span.end <= len(file.text)
        if isinstance(node, Scalar):
            assert node.text.value == node.value


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 100_000, "a = " + "{b=" * 50_000, 'a = "' + '\\"' * 100_000, "[[a]]\n" * 20_000,
     "a." * 50_000 + "b = 1",
     'a = """' + '""' * 100_000, "a = [" + "{" * 50_000, "a = [" + '"x" ' * 50_000, "[a.b.c]\n" * 20_000],
)  # fmt: skip
def test_hostile_texts_cost_little(text: str) -> None:
    started = time.process_time()
    parse_toml(SourceFile("a.toml", text))
    assert time.process_time() - started < 2
