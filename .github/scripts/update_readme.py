"""Write the generated parts of README.md: the examples' real output, the budget's errors and the table of rules.

``python .github/scripts/update_readme.py`` rewrites the file; a test holds it to what this would write.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"

_BLOCK = re.compile(r"<!-- (?P<kind>example: (?P<command>[^\n]+)|rules|accuracy) -->\n.*?<!-- end -->", re.DOTALL)

WORST = 8
_MISS = re.compile(
    r"\s*(?P<error>[+-][\d.]+%)\s+\w+\s+measured\s+(?P<measured>[\d.]+)\s+predicted\s+(?P<predicted>[\d.]+)\s+"
    r"\[(?P<low>[\d.]+), (?P<high>[\d.]+)\]\s+(?P<name>\S+) \((?P<version>.*)\)"
)


def run(command: str) -> str:
    """What a command prints on a terminal of 110 columns, without colours; the words on stderr come last."""
    words = shlex.split(command)
    if words.pop(0) != "kvgate":
        raise SystemExit(f"not a kvgate command: {command}")
    keep = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "SYSTEMROOT", "VIRTUAL_ENV")}
    result = subprocess.run(
        [sys.executable, "-m", "kvgate", *words],
        cwd=ROOT,
        env={**keep, "COLUMNS": "110", "PYTHONUTF8": "1", "HF_HOME": os.devnull},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )
    if result.returncode not in (0, 1):
        raise SystemExit(f"{command}: {result.stderr}")
    return result.stdout + result.stderr


def accuracy() -> str:
    """The errors of the memory budget on public start-ups, each predicted without its own source, as Markdown."""
    result = subprocess.run(
        [sys.executable, "tests/benchmarks/fit_budget.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=300,
    )
    lines = result.stdout.splitlines()
    table = [line for line in lines if line.startswith("|")]
    worst = [match for line in lines if (match := _MISS.match(line))][:WORST]
    rows = [
        f"| {miss['name']} | {miss['version']} | {miss['measured']} GiB | {miss['predicted']} GiB | {miss['error']} "
        f"| {miss['low']} to {miss['high']} GiB |"
        for miss in worst
    ]
    head = ["| worst misses | vLLM | measured | predicted | error | interval |", "|---|---|---|---|---|---|"]
    return "\n".join([*table, "", *head, *rows])


def block(match: re.Match[str]) -> str:
    """One generated block with its markers."""
    if match["command"]:
        output = run(match["command"]).rstrip("\n")
        return f"<!-- {match['kind']} -->\n```console\n$ {match['command']}\n{output}\n```\n<!-- end -->"
    if match["kind"] == "accuracy":
        return f"<!-- accuracy -->\n{accuracy()}\n<!-- end -->"
    return f"<!-- {match['kind']} -->\n{run('kvgate rules --format markdown').rstrip()}\n<!-- end -->"


def generated(text: str) -> str:
    """README.md with every generated block as it should be."""
    return _BLOCK.sub(block, text)


if __name__ == "__main__":
    README.write_text(generated(README.read_text(encoding="utf-8")), encoding="utf-8")
