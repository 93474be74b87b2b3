"""Verdicts as people see them."""

import json
import re
from itertools import pairwise
from typing import Any

import jsonschema
import pytest

from kvgate.capacity.prediction import Concurrency, Quantity, Workload
from kvgate.report.smoke import render_verdict
from kvgate.smoke.verdict import (
    Check,
    Difference,
    Figure,
    Load,
    Moment,
    Phase,
    Refused,
    Running,
    Term,
    Verdict,
)

GIB = 1 << 30


def verdict(**changes: Any) -> Verdict:
    phases = (
        Phase("sustained", 4, 4, 4, 0, 15.7, 4, 3, 0.832, 0, 0.0),
        Phase("declared", 20, 40, 39, 1, 172.2, 5, 19, 1.0, 13, 0.175, 5, True),
    )
    fields: dict[str, Any] = {
        "command": "smoke",
        "outcome": "contradicted",
        "cause": "the pool is 1.9 GiB short: activation peak 1.8, weights 0.1",
        "unit": "Deployment/default/rag-chat/vllm",
        "path": "deploy.yaml",
        "line": 11,
        "server": {"version": "0.19.1", "version_basis": "stated", "model": "org/name", "ready": True},
        "differences": (Difference("max_num_batched_tokens", "not set", "16,384", True, ("activation_peak",)),),
        "terms": (
            Term("weights", Quantity(15 * GIB, 14 * GIB, 16 * GIB, "calibrated"), Figure.exact(15.1 * GIB), True),
            Term(
                "kv_cache_available", Quantity(5 * GIB, 4 * GIB, 6 * GIB, "calibrated"), Figure.exact(3.1 * GIB), False
            ),
        ),
        "checks": (
            Check("num_gpu_blocks", 1584, 1589, Figure.exact(1587), True, "the measured available memory"),
            Check("max_concurrency", 1.5498, 1.5498, Figure(1.55, 1.545, 1.555), True, "the measured blocks"),
            Check("running", 0, 5, Figure.exact(5), True, "20 clients"),
        ),
        "refused": None,
        "running": None,
        "load": Load(
            Workload(7500, 1000, 1500, 20),
            ("20 clients stand for 500",),
            phases,
            ("ReadTimeout",),
            Concurrency(4, (4, 5), 4.2, 5, "kv_cache", True),
        ),
        "timeline": (Moment(0.4, None, 1, 19, 0.1, 0), Moment(12.0, None, 5, 15, 1.0, 3)),
        "lines": (),
        "notes": ("left out: --chat-template",),
        "prediction": None,
        "version": "0.1.0",
    }
    return Verdict(**{**fields, **changes})


TEXT = """\
Deployment/default/rag-chat/vllm: the prediction is contradicted
  the pool is 1.9 GiB short: activation peak 1.8, weights 0.1

server: vLLM 0.19.1, model org/name
the server is not what the manifest says:
  max_num_batched_tokens: 16,384, the manifest does not set it

memory per GPU  predicted                 measured
- weights       15.00 GiB  14.00..16.00  15.10 GiB
= KV cache       5.00 GiB    4.00..6.00   3.10 GiB  CONTRADICTED

pool and load                 predicted  measured         from
blocks                     1,584..1,589     1,587  holds  the measured available memory
requests of max_model_len         1.55x     1.55x  holds  the measured blocks
peak running                    up to 5         5  holds  20 clients

load: 7,500 prompt, 1,500 of them shared + 1,000 output tokens a request
  20 clients stand for 500
  predicted: 4 sustained without preemption, 5 let in at once, preemptions expected; seen: 5 at once, 13 preemptions
phase      clients           requests  failed  seconds  running  waiting   usage  preempted   hits
sustained        4                4/4       0       16        4        3   83.2%          0   0.0%
declared        20  39/40 (cut short)       1      172        5       19  100.0%         13  17.5%
  failed: ReadTimeout

time  running  waiting   usage  preempted
0 s         1       19   10.0%          0
12 s        5       15  100.0%          3
note: left out: --chat-template
"""


def test_text() -> None:
    assert render_verdict(verdict(), "text") == TEXT


def test_markdown() -> None:
    lines = render_verdict(verdict(), "markdown").splitlines()
    assert lines[:4] == [
        "**kvgate smoke**: `Deployment/default/rag-chat/vllm`: the prediction is contradicted",
        "",
        "the pool is 1.9 GiB short: activation peak 1.8, weights 0.1",
        "- `max_num_batched_tokens`: 16,384, the manifest does not set it",
    ]
    assert "| KV cache | 5.00 GiB | 4.00..6.00 | 3.10 GiB | CONTRADICTED |" in lines
    assert "| blocks | 1,584..1,589 | 1,587 | holds | the measured available memory |" in lines
    assert "| declared | 20 | 39/40 \\(cut short\\) | 1 | 172 | 5 | 19 | 100.0% | 13 | 17.5% |" in lines
    assert "- predicted: 4 sustained without preemption, 5 let in at once, preemptions expected; " in "\n".join(lines)
    assert "| 12 s | 5 | 15 | 100.0% | 3 |" in lines
    for before, line in pairwise(lines):
        if line.startswith("|---"):
            assert before.count("|") == line.count("|")


def test_json_is_its_schema() -> None:
    from importlib.resources import files

    schema = json.loads(files("kvgate.report").joinpath("schemas/kvgate.smoke-1.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(render_verdict(verdict(), "json")), schema)


REFUSED = Refused("out-of-memory", "CUDA out of memory", 7, 2 * GIB, None, "bytes", None, False)
RUNNING = Running(4, 16, 16, 0.983, None, None, 2, None, "4 ran at once with 16 waiting")


def test_a_refusal_shows_the_decisive_lines() -> None:
    shown = render_verdict(
        verdict(
            outcome="refused", cause="the server ran out of memory", refused=REFUSED,
            lines=((7, "CUDA out of memory"),),
            load=None, checks=(), terms=(), timeline=(), differences=(), running=RUNNING,
        ),
        "text",
    )  # fmt: skip
    assert shown.splitlines() == [
        "Deployment/default/rag-chat/vllm: the server did not serve",
        "  the server ran out of memory",
        "",
        "server: vLLM 0.19.1, model org/name",
        "the server is the one that the manifest describes",
        "",
        "running: 4 ran at once with 16 waiting",
        "  2 lines, at most 16 waiting, KV cache up to 98.3% full",
        "",
        "decisive lines of the log:",
        "  7: CUDA out of memory",
        "note: left out: --chat-template",
    ]


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_a_log_cannot_write_on_the_terminal_or_the_page(form: str) -> None:
    evil = "\x1b[2J<script>@someone | `x`\r\n::error::x"
    shown = render_verdict(
        verdict(
            cause=evil, server={"version": evil, "model": evil, "ready": False}, refused=REFUSED, outcome="refused",
            lines=((1, evil),), notes=(evil,), differences=(Difference(evil, evil, evil, True),),
        ),
        form,
    )  # fmt: skip
    assert "\x1b" not in shown
    assert "\r" not in shown
    if form != "json":
        assert "\n::error" not in shown
    if form == "markdown":
        outside = re.sub(r"(`+).*?\1", "", shown)  # code is shown as it is
        assert "<script>" not in outside
        assert "@someone" not in outside


def test_there_is_no_other_format() -> None:
    with pytest.raises(ValueError, match="no format"):
        render_verdict(verdict(), "sarif")
