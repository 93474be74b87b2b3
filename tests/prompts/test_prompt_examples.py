"""Real-looking code: each marked line of ``bad/`` is found, and nothing is found in ``good/``.

A mark is a comment ``# <- kind`` on the line of the expression. The good examples log times, freeze them, write a date
only, or put what changes last; a date alone is an info.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvgate.prompts.analysis import PromptReading, read_prompts
from kvgate.prompts.defect import Defect
from kvgate.source.text import SourceFile

HERE = Path(__file__).parent
MARK = re.compile(r"# <- ([\w-]+)")


def files(folder: str) -> list[SourceFile]:
    return [
        SourceFile(path.name, path.read_text(encoding="utf-8"))
        for path in sorted((HERE / folder).iterdir())
        if path.is_file()
    ]


@pytest.fixture(scope="module")
def bad() -> PromptReading:
    return read_prompts(files("bad"))


def marks() -> list[tuple[str, int, str]]:
    return [
        (file.path, number, match[1])
        for file in files("bad")
        for number, line in enumerate(file.text.splitlines(), 1)
        for match in MARK.finditer(line)
    ]


def severe(defects: tuple[Defect, ...]) -> list[Defect]:
    return [defect for defect in defects if not defect.mild]


@pytest.mark.parametrize(("path", "line", "kind"), marks())
def test_a_marked_line_is_found(bad: PromptReading, path: str, line: int, kind: str) -> None:
    there = [defect for defect in severe(bad.defects) if (defect.span.path, defect.span.line) == (path, line)]
    assert [defect.kind for defect in there] == [kind]


def test_nothing_else_is_found_in_the_bad_examples(bad: PromptReading) -> None:
    marked = {(path, line) for path, line, _ in marks()}
    # a template that code renders is judged with what the code passes, at its own place
    marked.add(("assistant.system.jinja2", 1))
    others = [defect for defect in severe(bad.defects) if (defect.span.path, defect.span.line) not in marked]
    assert [(defect.span.path, defect.span.line, defect.kind) for defect in others] == []
    assert bad.unread == ()


@pytest.mark.parametrize("file", files("good"), ids=lambda file: file.path)
def test_a_good_example_is_silent(file: SourceFile) -> None:
    reading = read_prompts([file], named=[file.path])
    found = [(defect.kind, defect.span.line, defect.span.text) for defect in severe(reading.defects)]
    assert found == []
    assert reading.unread == ()


def test_there_are_enough_good_examples() -> None:
    assert len(files("good")) >= 15


def test_a_finding_names_the_text_it_precedes_and_what_it_costs(bad: PromptReading) -> None:
    (found,) = [defect for defect in bad.defects if defect.span.path == "clock_in_fstring.py"]
    assert found.span.text == "datetime.now().isoformat()"
    assert found.values["what"] == "the time to the second (datetime.now())"
    assert str(found.values["text"]).startswith('"You are the support assistant of a furniture')
    # the line end and two literals: 1 + 85 + 84 bytes
    assert found.values["lost"] == "about 42 tokens of static text (170 bytes at 4 bytes a token)"


def test_a_date_alone_costs_one_miss_a_day() -> None:
    (file,) = [file for file in files("good") if file.path == "date_only.py"]
    (found,) = read_prompts([file]).defects
    assert (found.variant, found.mild) == ("date", True)


def test_values_are_followed_through_files(bad: PromptReading) -> None:
    (found,) = [defect for defect in bad.defects if defect.span.path == "clock_across_files.py"]
    assert ("clock_across_files_helper.py", 6) in {(span.path, span.line) for span, _ in found.related}


def test_the_same_clock_is_found_at_its_first_place_only() -> None:
    text = (
        "from datetime import datetime\n"
        "RULES = 'Answer politely and never invent a name of a person, of a place, or of a product. ' * 4\n"
        "def system_prompt():\n"
        "    now = datetime.now()\n"
        "    return f'{now} {RULES} {now} {RULES}'\n"
    )
    found = read_prompts([SourceFile("app.py", text)]).defects
    assert [(defect.span.line, defect.span.column) for defect in found] == [(5, 15)]
