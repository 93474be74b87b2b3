"""What a report says of a unit, from its plan and its prediction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kvgate.engine.arguments import as_json
from kvgate.engine.secrets import MASK, is_secret, mask_secrets
from kvgate.findings.report import UnitReport, ValueOrigin, WhatIf
from kvgate.ruleset.case import RESOLVED_NAMES, Case, sustained_at
from kvgate.ruleset.certainty import Bound
from kvgate.source.text import Unresolved

if TYPE_CHECKING:
    from kvgate.capacity.prediction import Prediction
    from kvgate.plan import ServingPlan


def unit_report(plan: ServingPlan, prediction: Prediction | None) -> UnitReport:
    """The report of one unit.

    ``prediction`` is ``plan.predict()``. Where the GPU is unknown and the model is not, what common GPUs would hold is
    predicted as well.
    """
    case = Case(plan, prediction)
    unit = plan.unit
    sustained = sustained_at(prediction, Bound.ESTIMATE)
    times = case.replicas_held()
    gpu_known = plan.gpu is not None or plan.gpu_memory_bytes is not None
    return UnitReport(
        id=unit.id,
        path=unit.path,
        line=unit.span.line,
        kind=unit.kind,
        container=unit.container,
        image=unit.image.value if unit.image is not None else None,
        model=plan.model_reference,
        vllm_version=plan.version,
        args={dest: mask_secrets(value) for dest, value in plan.parsed.as_args().items()},
        env=dict(_environment(plan)),
        gpu=_gpu(case),
        replicas=plan.replicas,
        prediction=prediction,
        span=unit.span,
        version_basis=plan.version_basis,
        model_reason=plan.model_reason if plan.model is None else None,
        gpu_reason=None if gpu_known else plan.gpu_reason,
        workload=plan.workload.as_dict() if plan.workload is not None else None,
        sustained=None if sustained is None else sustained * times,
        sustained_interval=(
            _times(sustained_at(prediction, Bound.LOW), times),
            _times(sustained_at(prediction, Bound.HIGH), times),
        ),
        basis=_basis(case),
        origins=tuple(_origins(case)),
        what_if=tuple(_what_if(case)) if not gpu_known else (),
    )


def _times(value: int | None, times: int) -> int | None:
    return None if value is None else value * times


def _basis(case: Case) -> str:
    """How the pool is known: assumed as soon as something that it rests on is."""
    if case.prediction is None or case.prediction.kv_cache.size_tokens is None:
        return "unknown"
    if case.doubtful & {"vllm_version", "gpu", "words"}:
        return "assumed"
    return case.prediction.kv_cache.basis


def _environment(plan: ServingPlan) -> Iterator[tuple[str, Any]]:
    for variable in plan.unit.environment:
        if variable.value is None:
            unresolved = variable.unresolved or Unresolved("", "the files do not say")
            yield variable.name, {"unresolved": unresolved.text, "reason": unresolved.reason}
        else:
            yield variable.name, MASK if is_secret(variable.name) and variable.value.value else variable.value.value


def _gpu(case: Case) -> dict[str, Any] | None:
    """What is known of the server's GPUs; how many there are is often stated where their name is not."""
    plan = case.plan
    memory = plan.gpu_memory_bytes
    if memory is None and plan.gpu is not None:
        memory = plan.gpu.memory_bytes
    count = plan.gpu_count if plan.gpu_count is not None else case.local_gpus
    if plan.gpu is None and memory is None and count is None:
        return None
    return {
        "name": plan.gpu.name if plan.gpu is not None else None,
        "count": count,
        "memory_bytes": memory,
        "basis": plan.gpu_basis,
    }


def _what_if(case: Case) -> Iterator[WhatIf]:
    if case.prediction is None or case.backend in ("cpu", "tpu", "xpu", "hpu"):
        return
    for gpu in case.common_gpus():
        prediction = case.predict(gpu=gpu)
        if prediction is not None:
            yield WhatIf(gpu.name, prediction)


def _origins(case: Case) -> Iterator[ValueOrigin]:
    plan = case.plan
    values: dict[str, Any] = {
        "model": plan.model_reference,
        "vllm_version": plan.version,
        "gpu": plan.gpu.name if plan.gpu is not None else None,
        "gpu_count": plan.gpu_count,
        "replicas": plan.replicas,
        "workload": plan.workload.as_dict() if plan.workload is not None else None,
    }
    values.update((dest, as_json(argument.value)) for dest, argument in plan.parsed.arguments.items())
    seen: set[str] = set()
    for name, value in values.items():
        origin = plan.origins.get(name)
        if value is None and origin is None:
            continue
        seen.add(name)
        words = str(origin) if origin is not None else "unknown"
        if origin is not None and origin.span is not None and origin.words not in ("argument", "manifest"):
            words = f"{words} ({origin.words})"
        yield ValueOrigin(name, _shown(name, value), words)
    open_words = {problem.span for problem in plan.parsed.problems if problem.kind == "unresolved-words"}
    for word in plan.unit.words if open_words else ():
        if word.unresolved and word.span in open_words:
            where = f"{word.span.path}:{word.span.line} (not known: {word.unresolved[0].reason})"
            yield ValueOrigin("more arguments", word.value, where)
    if case.prediction is not None:
        for name, computed in RESOLVED_NAMES.items():
            value = case.prediction.resolved.get(computed)
            if name not in seen and value is not None:
                yield ValueOrigin(name, _shown(name, value), f"default of vLLM {plan.version}, or derived")


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "unknown"
    if is_secret(name):
        return MASK
    if isinstance(value, str):
        return value
    return json.dumps(mask_secrets(value), ensure_ascii=False, default=str)
