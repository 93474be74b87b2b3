"""How messages write numbers and lists."""

from __future__ import annotations

import pytest

from kvgate.ruleset.words import TemplateError, listed, read_template


@pytest.mark.parametrize(
    ("text", "values", "said"),
    [
        ("{n:replicas}", {"n": 1}, "1 replica"),
        ("{n:gpus}", {"n": 8}, "8 GPUs"),
        ("{n:tokens}", {"n": 131072}, "131,072 tokens"),
        ("{n:gib}", {"n": 5 * 2**29}, "2.50 GiB"),
        ("{n:list}", {"n": [1, 2, 4]}, "1, 2 and 4"),
        ("{n:either}", {"n": [1, 2, 4]}, "1, 2 or 4"),
        ("{n:either}", {"n": [1]}, "1"),
        ("{n}", {"n": None}, "unknown"),
        ("{{n}}", {}, "{n}"),
    ],
)
def test_a_placeholder_is_written_for_people(text: str, values: dict[str, object], said: str) -> None:
    assert read_template(text).fill(values) == said


def test_lists_of_nothing_and_of_one_have_no_word_between() -> None:
    assert (listed([]), listed(["a"]), listed(["a", "b"])) == ("", "a", "a and b")


@pytest.mark.parametrize("text", ["{n:tonnes}", "{", "{N}"])
def test_what_is_no_placeholder_is_refused(text: str) -> None:
    with pytest.raises(TemplateError):
        read_template(text)
