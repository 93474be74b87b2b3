"""Jupyter notebooks."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import Reading, ServeUnit
from kvgate.source.text import SourceFile


def notebook(*cells: str, indent: int | None = 1) -> str:
    made = [
        {"cell_type": "code", "metadata": {}, "outputs": [{"text": ["vllm serve org/output\n"]}],
         "source": cell.splitlines(keepends=True)}
        for cell in cells
    ]  # fmt: skip
    text = {"cell_type": "markdown", "source": ["Run `vllm serve org/text`\n", "vllm serve org/text"]}
    return json.dumps({"cells": [text, *made], "nbformat": 4, "nbformat_minor": 5}, indent=indent)


def reading(text: str) -> Reading:
    return read_tree([SourceFile("serve.ipynb", text)])


def shown(text: str) -> list[tuple[str, str]]:
    def words(unit: ServeUnit) -> str:
        return " ".join(("?" if word.unresolved else "") + word.value for word in unit.words)

    return [(unit.kind, words(unit)) for unit in reading(text).units]


def test_commands_for_a_shell() -> None:
    text = notebook(
        "!pip install vllm==0.8.5\nMODEL = 'org/m'\nLEN = 4096",
        "!nohup vllm serve {MODEL} --max-model-len {LEN} \\\n    --port {PORT} > log &",
        "%%bash\nexport P=80\nvllm serve org/n --port $P",
        "%%writefile start.sh\nvllm serve org/o",
    )
    assert shown(text) == [
        ("notebook", "org/m --max-model-len 4096 --port ?{PORT}"),
        ("notebook", "org/n --port 80"),
    ]
    first, second = reading(text).units
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "nohup" in line)
    assert first.span.line == line
    assert first.words[2].span.text == "{LEN}"
    assert second.id == "serve.ipynb/2"
    assert first.requirement is not None
    assert first.requirement.value == "vllm==0.8.5"


def test_programs_over_several_cells() -> None:
    text = notebook(
        '%matplotlib inline\nfrom vllm import LLM\nfiles = !ls\nMODEL = "org/m"',
        "llm = LLM(model=MODEL,\n          max_model_len=4096)\nawait llm.x()",
        "import subprocess\nsubprocess.Popen(['vllm', 'serve', MODEL])",
    )
    assert shown(text) == [
        ("offline-engine", "--model org/m --max-model-len 4096"),
        ("python", "org/m"),
    ]
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "llm = LLM" in line)
    assert reading(text).units[0].span.line == line


def test_a_notebook_in_one_line_is_said() -> None:
    found = reading(notebook("x = 1\n!vllm serve org/m", indent=None))
    assert found.units == ()
    assert [item.reason for item in found.unread] == ["a notebook that is written in one line is not read"]


@given(
    st.lists(
        st.sampled_from(["!vllm serve {", "%%bash", "x = !a", "LLM(", "  ", "\\", '"', "if x:", "!", "é"]), max_size=6
    )
)
def test_any_cell_is_read(lines: list[str]) -> None:
    reading(notebook("\n".join(lines), "!vllm serve m"))
