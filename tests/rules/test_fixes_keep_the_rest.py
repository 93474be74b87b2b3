"""Whatever form a command line has: a removed flag goes, a second check is clean of it, and no other byte changes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvgate.app import CheckOptions, check_paths, mend_paths

RULE = "unknown-engine-flag"
HEAD = "apiVersion: v1\nkind: Pod\nmetadata: {name: chat}\nspec:\n  containers:\n  - name: vllm\n"
IMAGE = "    image: vllm/vllm-openai:v0.19.1 # pinned\n"


def block(flags: list[list[str]], quote: str, indent: str) -> str:
    lines = [f"{indent}- {quote}{word}{quote}\n" for words in flags for word in words]
    return HEAD + IMAGE + "    args:\n" + "".join(lines) + "    stdin: false # the end\n"


def flow(flags: list[list[str]], quote: str, indent: str) -> str:
    words = [f'"{word}"' if not quote else f"{quote}{word}{quote}" for words in flags for word in words]
    return HEAD + IMAGE + f"    args: [{', '.join(words)}] # all of it\n    stdin: false\n"


def folded(flags: list[list[str]], quote: str, indent: str) -> str:
    lines = "".join(f"        {' '.join(words)}\n" for words in flags)
    return f"services:\n  vllm:\n{IMAGE}    gpus: all\n    command: >-\n{lines}    restart: always # kept\n"


def literal(flags: list[list[str]], quote: str, indent: str) -> str:
    lines = " \\\n".join(f"          {' '.join(words)}" for words in flags)
    return (
        HEAD
        + IMAGE
        + f"    command: [sh, -c]\n    args:\n    - |\n      exec vllm serve \\\n{lines}\n    stdin: false\n"
    )


def anchored(flags: list[list[str]], quote: str, indent: str) -> str:
    lines = "".join(f"  - {quote}{word}{quote}\n" for words in flags for word in words)
    return (
        f"x-args: &args # shared\n{lines}services:\n"
        "  a:\n    image: vllm/vllm-openai:v0.19.1\n    command: *args\n    gpus: all\n"
        "  b:\n    image: vllm/vllm-openai:v0.19.1\n    command: *args\n    gpus: all\n"
    )


FORMS = {"block": block, "flow": flow, "folded": folded, "literal": literal, "anchored": anchored}
KEPT = [["--max-model-len", "8192"], ["--gpu-memory-utilization=0.9"], ["--enforce-eager"], ["--seed", "1"]]
GONE = [["--swap-space", "16"], ["--swap-space=16"], ["--disable-log-requests"]]


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[list[list[str]], int]:
    """Flags behind the model, one of which the release does not have, and where that one stands."""
    flags = draw(st.lists(st.sampled_from(KEPT), min_size=1, max_size=3, unique_by=lambda words: words[0]))
    at = draw(st.integers(0, len(flags)))
    return [*flags[:at], draw(st.sampled_from(GONE)), *flags[at:]], at


@pytest.mark.parametrize("form", sorted(FORMS))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    line=command_lines(),
    quote=st.sampled_from(["", "'", '"']),
    indent=st.sampled_from(["    ", "      "]),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_a_mended_file_differs_in_nothing_else(
    form: str, line: tuple[list[list[str]], int], quote: str, indent: str, newline: str
) -> None:
    flags, at = line
    model = ["Qwen/Qwen2.5-7B-Instruct"] if form == "literal" else ["--model=Qwen/Qwen2.5-7B-Instruct"]
    text = FORMS[form]([model, *flags], quote, indent).replace("\n", newline)
    expected = FORMS[form]([model, *flags[:at], *flags[at + 1 :]], quote, indent).replace("\n", newline)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "kvgate.yaml").write_text("version: 1\n", encoding="utf-8")
        (folder / "f.yaml").write_bytes(text.encode())
        options = CheckOptions(config=folder / "kvgate.yaml", preview=True, profile="all")
        report = check_paths([folder], options)
        assert RULE in {finding.rule for finding in report.findings}
        mended = mend_paths(report, [folder], options)
    assert mended.after == {"f.yaml": expected}
    assert RULE not in {finding.rule for finding in mended.report.findings}
    before = {finding.rule for finding in report.findings} - {RULE}
    assert {finding.rule for finding in mended.report.findings} == before
