"""Patterns of ``.gitignore`` leave out what git leaves out."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kvgate.source.ignore import IgnorePatterns

NAMES = ("a", "b", "ab", "b.a", "a b", "-", "]", "é", "#b", "!a", "a*", ".a")
FILES = tuple(
    "/".join(parts)
    for parts in (
        *((name,) for name in NAMES),
        *(("d", name) for name in NAMES),
        *(("d", "e", name) for name in NAMES),
        ("e", "d", "a"),
        ("d", "d", "ab"),
    )
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ignored")
    subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
    for name in FILES:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    return root


def ignored_by_git(root: Path, lines: str) -> set[str]:
    (root / ".gitignore").write_text(lines)
    done = subprocess.run(
        ["git", "-c", "core.excludesFile=", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=root,
        input="\0".join(FILES),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return set(filter(None, done.stdout.split("\0")))


def ignored(lines: str) -> set[str]:
    patterns = IgnorePatterns(lines.split("\n"))
    return {name for name in FILES if patterns.verdict(name)}


_PIECE = st.sampled_from(("a", "b", "d", "e", "ab", "*", "**", "?", ".", "-", " ", "é", "\\a", "\\*", "#", "!"))
_CLASS = st.sampled_from(
    ("[ab]", "[!a]", "[^b]", "[a-z]", "[]-]", "[[:alpha:]]", "[z-a]", "[a", "[b-]", "[\\]]", "[!-]")
)
_PART = st.one_of(st.just("**"), st.lists(st.one_of(_PIECE, _PIECE, _CLASS), min_size=1, max_size=3).map("".join))


@st.composite
def _lines(draw: st.DrawFn) -> str:
    lines = draw(
        st.lists(
            st.tuples(
                st.sampled_from(("", "", "", "!", "/", "!/", "#")),
                st.lists(_PART, min_size=1, max_size=3).map("/".join),
                st.sampled_from(("", "", "", "/", " ", "  ", "\\ ")),
            ).map("".join),
            min_size=1,
            max_size=4,
        )
    )
    return "\n".join(lines)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=_lines())
def test_what_git_ignores(repository: Path, lines: str) -> None:
    assume(not re.search(r"\[[^]\n]*/[^\n]*]", lines))  # git takes a slash in a class for a member of it
    assert ignored(lines) == ignored_by_git(repository, lines)


CASES = (
    ("*.log\n!keep.log", "x/keep.log", False),
    ("*.log", "x/y.log", True),
    ("build/", "build", None),  # a file of that name
    ("build/", "build/x/y.yaml", True),
    ("build/\n!build/keep", "build/keep", True),  # nothing comes back from a directory that is left out
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
