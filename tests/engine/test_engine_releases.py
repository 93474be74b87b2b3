"""Where versions stand among the releases that were read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from kvgate.engine.releases import (
    at_least,
    compare_versions,
    index_of,
    newest_release,
    oldest_release,
    releases,
    resolve_version,
)


def test_releases_are_ordered_and_distinct() -> None:
    keys = [Version(release) for release in releases()]
    assert keys == sorted(set(keys))
    assert (oldest_release(), releases()[-1]) == (releases()[0], newest_release())
    assert {"0.6.3.post1", "0.8.5", "0.11.0", "0.20.0", "0.33.0"} <= set(releases())


@pytest.mark.parametrize(
    ("text", "version", "standing", "lower", "upper", "table", "fork"),
    [
        ("0.11.0", "0.11.0", "read", "0.11.0", "0.11.0", "0.11.0", False),
        ("v0.11.0", "0.11.0", "read", "0.11.0", "0.11.0", "0.11.0", False),
        ("0.8.5.post1", "0.8.5.post1", "read", "0.8.5.post1", "0.8.5.post1", "0.8.5.post1", False),
        ("0.9.1+cu128", "0.9.1", "read", "0.9.1", "0.9.1", "0.9.1", False),
        ("0.9.2+cpu", "0.9.2", "read", "0.9.2", "0.9.2", "0.9.2", False),
        ("0.10.1+gptoss", "0.10.1", "read", "0.10.1", "0.10.1", "0.10.1", True),
        ("0.11.0.post7", "0.11.0.post7", "between", "0.11.0", "0.11.1", "0.11.0", False),
        ("0.11.0rc2", "0.11.0rc2", "between", "0.10.2", "0.11.0", "0.11.0", False),
        ("0.20.2rc1.dev129+g1acd67a79", "0.20.2rc1.dev129", "between", "0.20.1", "0.20.2", "0.20.2", False),
        ("0.3.2", "0.3.2", "older", None, "0.4.2", "0.4.2", False),
        ("1.0.0", "1.0.0", "newer", newest_release(), None, newest_release(), False),
        ("nightly", None, "unknown", newest_release(), None, newest_release(), False),
        ("", None, "unknown", newest_release(), None, newest_release(), False),
        (None, None, "unknown", newest_release(), None, newest_release(), False),
    ],
)
def test_resolve_version(
    text: str | None,
    version: str | None,
    standing: str,
    lower: str | None,
    upper: str | None,
    table: str,
    fork: bool,
) -> None:
    info = resolve_version(text)
    assert (info.version, info.standing, info.lower, info.upper, info.table, info.fork) == (
        version,
        standing,
        lower,
        upper,
        table,
        fork,
    )
    assert info.read is (standing == "read")
    assert info.bounded is (standing in ("read", "between") and not fork)


def test_neighbours() -> None:
    assert resolve_version("0.11.0").neighbours == ("0.11.0",)
    assert resolve_version("0.11.0.post7").neighbours == ("0.11.0", "0.11.1")
    assert resolve_version("99").neighbours == (newest_release(),)
    assert resolve_version("main").neighbours == (newest_release(),)


@pytest.mark.parametrize(
    ("version", "release", "expected"),
    [
        ("0.20.0", "0.20.0", True),
        ("0.20.0rc1", "0.20.0", True),
        ("0.19.1", "0.20.0", False),
        ("0.20.0.post1", "0.20.0", True),
        ("0.10.2", "0.9.2", True),
        ("0.8.5", "0.8.5.post1", False),
        ("0.9.1+cu128", "0.9.1", True),
        (None, "0.33.0", True),
    ],
)
def test_at_least(version: str | None, release: str, expected: bool) -> None:
    assert at_least(version, release) is expected


def test_compare_versions_ignores_builds() -> None:
    assert compare_versions("0.9.1+cu128", "0.9.1") == 0
    assert compare_versions("0.9.1", "0.10.0") == -1
    assert compare_versions("0.11.0", "0.11.0rc1") == 1


@given(st.text(max_size=20))
def test_any_text_resolves(text: str) -> None:
    info = resolve_version(text)
    assert info.table in releases()
    assert all(index_of(release) >= 0 for release in info.neighbours)


@given(st.tuples(st.integers(0, 1), st.integers(0, 60), st.integers(0, 3)))
def test_bounds_bracket_the_version(parts: tuple[int, int, int]) -> None:
    info = resolve_version(".".join(map(str, parts)))
    version = Version(info.version or "0")
    assert info.lower is None or Version(info.lower) <= version
    assert info.upper is None or version <= Version(info.upper)
    if info.standing == "between":
        assert info.lower is not None
        assert info.upper is not None
        assert index_of(info.upper) == index_of(info.lower) + 1
