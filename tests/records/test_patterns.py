"""Expressions that are compiled late do what compiled ones do, and every one of them compiles."""

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

import kvgate
from kvgate.patterns import LatePattern, regex


def _modules() -> Iterator[str]:
    for module in pkgutil.walk_packages(kvgate.__path__, "kvgate."):
        if not module.name.endswith(("__main__", ".child", ".guard", ".limited")):  # programs of their own
            yield module.name


def _patterns(value: object) -> Iterator[LatePattern]:
    if isinstance(value, LatePattern):
        yield value
    elif isinstance(value, tuple | list | frozenset | set):
        for item in value:
            yield from _patterns(item)
    elif isinstance(value, dict):
        yield from _patterns(list(value.items()))


def test_every_expression_of_the_package_compiles() -> None:
    found = [
        pattern
        for name in _modules()
        for value in vars(importlib.import_module(name)).values()
        for pattern in _patterns(value)
    ]
    assert len(found) > 50
    for pattern in found:
        assert pattern.pattern


def test_methods_and_attributes_are_those_of_a_compiled_expression() -> None:
    late, compiled = regex(r"(?P<word>[a-z]+)\d", re.IGNORECASE), re.compile(r"(?P<word>[a-z]+)\d", re.IGNORECASE)
    text = "a1 B2 c"
    assert late.pattern == compiled.pattern
    assert late.flags == compiled.flags
    assert late.groupindex == compiled.groupindex
    for method in ("findall", "split"):
        assert getattr(late, method)(text) == getattr(compiled, method)(text)
    for method in ("sub", "subn"):
        assert getattr(late, method)("-", text) == getattr(compiled, method)("-", text)
    for method in ("match", "search"):
        assert getattr(late, method)(text)["word"] == "a"
    assert late.fullmatch("x9")
    assert [match.span() for match in late.finditer(text)] == [(0, 2), (3, 5)]


def test_a_wrong_expression_is_an_error_when_it_is_used() -> None:
    late = regex("(")
    with pytest.raises(re.error):
        late.search("text")
    with pytest.raises(AttributeError):
        regex("a").compile  # noqa: B018
