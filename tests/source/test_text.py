"""Texts keep the place of every character through slicing and joining."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.source.text import SourceFile, Span, Text


def test_lines_and_columns_count_from_one() -> None:
    file = SourceFile("f", "ab\r\ncd\n\nx😀y")
    assert file.position(0) == (1, 1)
    assert file.position(4) == (2, 1)
    assert file.position(8) == (4, 1)
    assert file.position(10) == (4, 3)
    assert file.line_text(1) == "ab"
    assert file.line_text(4) == "x😀y"
    assert file.line_text(9) == ""


def test_utf16_and_byte_order_marks() -> None:
    assert SourceFile.from_bytes("f", "é".encode("utf-16")).text == "é"
    assert SourceFile.from_bytes("f", b"\xef\xbb\xbfa").text == "a"
    with pytest.raises(UnicodeDecodeError):
        SourceFile.from_bytes("f", b"\xff\x00\x80")


def test_a_slice_knows_its_place() -> None:
    file = SourceFile("f", "hello world")
    text = Text.of_span(Span(file, 0, 11))
    assert text.slice(6, 11).span == Span(file, 6, 11)
    assert text.slice(6, 6).span == Span(file, 6, 6)
    # a text that stands nowhere has parts as well
    assert Text("hello", ()).slice(1, 3) == Text("el", ())
    assert Text("hello", ()).slice(2, 2) == Text("", ())


def test_a_replaced_text_stands_where_its_reference_stands() -> None:
    file = SourceFile("f", "--port $PORT")
    text = Text.join([Text.of_span(Span(file, 0, 7)), Text.at("8000", Span(file, 7, 12))])
    assert text.value == "--port 8000"
    assert text.slice(8, 10).span.text == "$PORT"
    assert text.span.text == "--port $PORT"


@given(st.text(max_size=30), st.lists(st.integers(0, 30), max_size=6))
def test_slices_join_to_the_whole(content: str, cuts: list[int]) -> None:
    file = SourceFile("f", content)
    text = Text.of_span(Span(file, 0, len(content)))
    bounds = sorted({0, len(content), *(min(cut, len(content)) for cut in cuts)})
    parts = [text.slice(start, end) for start, end in pairwise(bounds)]
    joined = Text.join(parts) if parts else text
    assert joined.value == content
    assert joined.span == text.span
