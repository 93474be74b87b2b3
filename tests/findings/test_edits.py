"""Edits: what they make of a text, and which of several fixes go together."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.findings.edits import apply_edits, edits_by_path, unified_diff
from kvgate.findings.finding import Edit, Fix
from kvgate.source.text import SourceFile, Span


def edit(file: SourceFile, start: int, end: int, replacement: str) -> Edit:
    return Edit(Span(file, start, end), replacement)


def fix(*edits: Edit) -> Fix:
    return Fix(edits=edits, safe=True, title="mend")


@st.composite
def texts_with_edits(draw: st.DrawFn) -> tuple[str, list[tuple[int, int, str]]]:
    """A text, and edits that do not overlap, in any order."""
    text = draw(st.text(alphabet="ab \n\r\té😀", max_size=60))
    bounds = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8, unique=True)))
    pairs = list(zip(bounds[::2], bounds[1::2], strict=False))
    found = [(start, end, draw(st.text(alphabet="xyz\n", max_size=4))) for start, end in pairs]
    return text, draw(st.permutations(found))


@given(texts_with_edits())
def test_only_what_edits_cover_changes(given_: tuple[str, list[tuple[int, int, str]]]) -> None:
    text, changes = given_
    file = SourceFile("f", text)
    # from the end of the text on, no edit moves another
    expected = text
    for start, end, replacement in sorted(changes, reverse=True):
        expected = expected[:start] + replacement + expected[end:]
    assert apply_edits(text, [edit(file, *change) for change in changes]) == expected


def test_insertions_at_one_place_keep_their_order() -> None:
    file = SourceFile("f", "ab")
    assert apply_edits("ab", [edit(file, 1, 1, "1"), edit(file, 1, 1, "2")]) == "a12b"


def test_the_same_edit_of_two_fixes_is_made_once() -> None:
    file = SourceFile("f", "abcdef")
    chosen = edits_by_path([fix(edit(file, 1, 2, "")), fix(edit(file, 1, 2, ""), edit(file, 4, 5, "x"))])
    assert [(one.span.start, one.span.end, one.replacement) for one in chosen["f"]] == [(1, 2, ""), (4, 5, "x")]


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        pytest.param((1, 4, ""), (3, 5, ""), False, id="overlap"),
        pytest.param((1, 4, ""), (4, 5, ""), True, id="side by side"),
        pytest.param((2, 2, "x"), (2, 2, "y"), False, id="two insertions at one place"),
        pytest.param((2, 2, "x"), (3, 3, "y"), True, id="two insertions"),
        pytest.param((1, 4, ""), (1, 4, "z"), False, id="one place, two texts"),
    ],
)
def test_a_fix_that_overlaps_an_earlier_one_is_left_out_whole(
    first: tuple[int, int, str], second: tuple[int, int, str], both: bool
) -> None:
    file, other = SourceFile("f", "abcdef"), SourceFile("g", "abcdef")
    chosen = edits_by_path([fix(edit(file, *first)), fix(edit(other, 0, 1, ""), edit(file, *second))])
    assert len(chosen["f"]) == (2 if both else 1)
    assert ("g" in chosen) is both


@pytest.mark.skipif(shutil.which("patch") is None, reason="no patch here")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\nc\n", "a\nc\n"),
        ("a\nb", "a\nb\nc"),
        ("a\nb\n", "a\nb"),
        ("a\r\nb\r\n", "a\r\n"),
    ],
)
def test_patch_makes_the_text_from_the_diff(tmp_path: Path, before: str, after: str) -> None:
    (tmp_path / "f").write_bytes(before.encode())
    diff = unified_diff({"f": before}, {"f": after})
    subprocess.run(["patch", "-p1", "--binary"], cwd=tmp_path, input=diff.encode(), check=True, capture_output=True)
    assert (tmp_path / "f").read_bytes() == after.encode()
