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


def test_files_that_cells_write() -> None:
    text = notebook(
        "%%writefile deploy/start.sh\nvllm serve org/o \\\n  --port 80",
        "%%file serve.py\nfrom vllm import LLM\nNAME = 'org/p'\nLLM(NAME)",
        "%%writefile -a pod.yaml\napiVersion: v1\nkind: Pod\nmetadata: {name: m}\nspec:\n  containers:\n"
        "  - image: vllm/vllm-openai:v0.9.0\n    args: [--model, org/q]",
        "%%writefile notes.md\nRun `vllm serve org/r`",
    )
    assert shown(text) == [
        ("script", "org/o --port 80"), ("offline-engine", "--model org/p"), ("Pod", "--model org/q"),
    ]  # fmt: skip
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "LLM(NAME)" in line)
    assert [unit.path for unit in reading(text).units] == ["serve.ipynb"] * 3
    assert reading(text).units[1].span.line == line


def test_a_file_that_a_cell_writes_and_the_tree_has_is_read_there() -> None:
    cell = "from vllm import LLM\nLLM('org/p')\n"
    files = [SourceFile("a/serve.ipynb", notebook("%%writefile serve.py\n" + cell)), SourceFile("a/serve.py", cell)]
    assert [unit.path for unit in read_tree(files).units] == ["a/serve.py"]


def test_commands_that_a_name_holds() -> None:
    text = notebook(
        "line = 'vllm serve org/m --port 1'\nother = 'ls'", "!{line} &", "!nohup $line > log", "!{other}", "!{unknown}"
    )
    assert [words for _, words in shown(text)] == ["org/m --port 1", "org/m --port 1"]


def test_what_stands_in_a_long_text_is_no_command() -> None:
    text = notebook(
        'def f():\n    """Start it:\n\n    !vllm serve org/doc\n    """\n!vllm serve org/m',
        "x = '''\n!vllm serve org/text\n'''; y = '''z'''\n!vllm serve org/n",
    )
    assert [words for _, words in shown(text)] == ["org/m", "org/n"]


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
