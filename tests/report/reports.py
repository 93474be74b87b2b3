"""Reports made by hand, for the tests of every format."""

from __future__ import annotations

from kvgate.capacity.prediction import CacheGroup, Concurrency, KVCache, Memory, Prediction, Quantity, Workload
from kvgate.findings.finding import (
    Confidence,
    Edit,
    Finding,
    Fix,
    InternalError,
    Location,
    Severity,
    Unchecked,
)
from kvgate.findings.identity import finalise
from kvgate.findings.report import Report, RuleSummary, UnitReport, ValueOrigin, WhatIf
from kvgate.source.text import SourceFile, Span

GIB = 2**30

TEXT = """\
# emoji before: \N{GRINNING FACE} and a tab
services:
  vllm:
    command: >-
      --model m
      --max-model-len 16384 --api-key sk-secret
    image: a\N{GRINNING FACE}b:latest
"""
FILE = SourceFile("deploy/a b.yaml", TEXT)


def span(text: str, file: SourceFile = FILE) -> Span:
    at = file.text.index(text)
    return Span(file, at, at + len(text))


def prediction(workload: Workload | None = None) -> Prediction:
    """The article's pool of 5 GiB: 131,072 bytes a token, 40,960 tokens, 2,560 blocks of 16."""
    exact, unknown = Quantity.exact(5 * GIB), Quantity.unknown()
    cache = KVCache(
        "bfloat16", 16, 2097152, 131072, 2560, 40960, 16384, 2.5, 40960, "exact",
        {"num_gpu_blocks": (2560, 2560), "size_tokens": (40960, 40960), "max_concurrency": (2.5, 2.5)},
        (CacheGroup("full_attention", 32, 16, 65536),),
    )  # fmt: skip
    load = Concurrency(4, (4, 4), 4.81, 5, "kv_cache", True) if workload else None
    memory = Memory(unknown, unknown, unknown, None, unknown, unknown, unknown, exact)
    return Prediction(
        "m", "LlamaForCausalLM", "bundled", "0.19.1", "declared", "NVIDIA GeForce RTX 4090", 1, 25383256883, "declared",
        memory, cache, "yes", (), workload, load,
    )  # fmt: skip


RULE = RuleSummary(
    id="image-not-pinned",
    title="The image names no fixed release",
    family="version",
    severity=Severity.WARNING,
    confidence=Confidence.HIGH,
    why="It moves.",
    remediation="Name a release.",
    url="https://example.org/a",
    references=("https://example.org/a",),
)


def findings(file: SourceFile = FILE) -> tuple[Finding, ...]:
    image = span("a\N{GRINNING FACE}b:latest", file)
    fix = Fix((Edit(Span(file, image.end - 6, image.end), "v0.19.1"),), True, "name a release")
    one = Finding(
        "image-not-pinned", Severity.WARNING, Confidence.HIGH, 'the image "a\N{GRINNING FACE}b:latest" moves', image,
        (Location(span("--model m", file), "used here"),), "compose/vllm", fix, "Name a release.", "https://example.org/a",
    )  # fmt: skip
    flags = span("--model m\n      --max-model-len 16384", file)
    two = Finding("other-rule", Severity.ERROR, Confidence.MEDIUM, "100% wrong, see: ::error::\nx", flags, unit=None)
    return finalise([two, one])


def unit(**changes: object) -> UnitReport:
    workload = Workload(7500, 1000, 0, 20)
    values: dict[str, object] = {
        "id": "compose/vllm", "path": FILE.path, "line": 3, "kind": "compose", "container": "vllm",
        "image": "a:latest", "model": "org/model", "vllm_version": "0.19.1",
        "args": {"max_model_len": 16384, "tensor_parallel_size": {"unresolved": "${TP}", "reason": "not set"}},
        "env": {"A": "b", "T": {"unresolved": "", "reason": "a secret"}},
        "gpu": {"name": "NVIDIA GeForce RTX 4090", "count": 1, "memory_bytes": 25383256883, "basis": "declared"},
        "replicas": 1, "prediction": prediction(workload), "workload": workload.as_dict(), "sustained": 4,
        "sustained_interval": (4, 4), "basis": "exact",
        "origins": (ValueOrigin("max_model_len", "16384", "deploy/a b.yaml:6"),),
    }  # fmt: skip
    values.update(changes)
    return UnitReport(**values)  # type: ignore[arg-type]


def unknown_gpu_unit() -> UnitReport:
    return unit(
        id="compose/other",
        gpu=None,
        gpu_reason="no file names it",
        sustained=None,
        basis="unknown",
        what_if=(WhatIf("NVIDIA L4", prediction()),),
    )


def crash() -> InternalError:
    trace = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\nZeroDivisionError: division by zero\n'
    return InternalError("other-rule", "compose/vllm", span("vllm:"), trace)


CLEAN = Report(units=(), findings=(), version="0.1.0", rules={RULE.id: RULE})
FULL = Report(
    units=(unit(), unknown_gpu_unit()),
    findings=findings(),
    unchecked=(Unchecked("a Helm chart: render it first", "charts/x.yaml", 3),),
    errors=(crash(),),
    suppressed=2,
    version="0.1.0",
    rules={RULE.id: RULE},
)
