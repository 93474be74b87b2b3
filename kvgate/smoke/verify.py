"""``kvgate verify``: a real server's log against the prediction for the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvgate.capacity.prediction import Memory, Prediction, Workload
from kvgate.engine.logs import ServerLog
from kvgate.engine.shaping import SHAPES
from kvgate.errors import KvgateError
from kvgate.measured import Measurement, recordable
from kvgate.smoke.compare import Measured, gather
from kvgate.smoke.identity import find_differences
from kvgate.smoke.subject import Subject, subject_of_plan

if TYPE_CHECKING:
    from kvgate.models.model import Model
    from kvgate.plan import ServingPlan


class SmokeError(KvgateError):
    """The comparison cannot be made."""


def choose_plan(plans: Sequence[ServingPlan], asked: str | None, log: ServerLog | None = None) -> ServingPlan:
    """The unit that is meant: the one asked for, the only one, or the only one that a log fits.

    Args:
        asked: an id, or the end of one (``rag-chat/vllm``).

    Raises:
        SmokeError: there is none, or several remain.
    """
    if not plans:
        raise SmokeError("no vLLM server found in the files")
    if asked is not None:
        chosen = [plan for plan in plans if plan.unit.id == asked]
        chosen = chosen or [plan for plan in plans if plan.unit.id.endswith("/" + asked.strip("/"))]
        if not chosen:
            raise SmokeError(f'there is no unit "{asked}"; there are {_listed(plans)}')
    else:
        chosen = list(plans)
        if len(chosen) > 1 and log is not None:
            chosen = [
                plan for plan in plans if not any(one.decisive for one in find_differences(subject_of_plan(plan), log))
            ] or chosen
    if len(chosen) > 1:
        raise SmokeError(f"several units could be meant: {_listed(chosen)}; say which with --unit")
    return chosen[0]


def _listed(plans: Sequence[ServingPlan]) -> str:
    names = [plan.unit.id for plan in plans]
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def subject_of_log(log: ServerLog, model: Model | None, reason: str | None) -> Subject:
    """A log on its own: predicted from the arguments that it prints, as far as they shape anything.

    The GPU stays unknown: what was measured is the budget, and the rest follows from it.
    """
    from kvgate.engine.releases import newest_release
    from kvgate.hardware.catalogue import find_gpu

    version = log.version or newest_release()
    values = _values_of_log(log)
    gpu = find_gpu("cpu") if log.device == "CPU" else None

    def predict(
        *,
        changes: Mapping[str, Any] | None = None,
        workload: Workload | None = None,
        kv_cache_tokens: int | None = None,
    ) -> Prediction | None:
        if model is None:
            return None
        from kvgate.capacity.predict import predict_capacity

        return predict_capacity(
            model,
            {**values, **(changes or {})},
            version=version,
            version_basis="declared" if log.version_stated else "assumed",
            gpu=gpu,
            workload=workload,
            kv_cache_tokens=kv_cache_tokens,
        )

    return Subject(
        id=None,
        path=None,
        line=None,
        version=version,
        declared=False,
        values=values,
        model=log.model,
        model_paths=(),
        gpu=gpu.name if gpu else None,
        gpu_memory_bytes=None,
        workload=None,
        replicas=1,
        data_parallel_size=1,
        predict=predict,
        model_reason=reason,
    )


def _values_of_log(log: ServerLog) -> dict[str, Any]:
    values = {
        dest: value
        for dest, value in (log.arguments or {}).items()
        if dest in SHAPES and value is not None and not (isinstance(value, str) and "(" in value)
    }
    length = log.engine.get("max_seq_len", "")
    if "max_model_len" not in values and length.isdecimal():
        values["max_model_len"] = int(length)
    for name in ("dtype", "kv_cache_dtype"):
        text = log.engine.get(name, "auto").removeprefix("torch.")
        if name not in values and text not in ("auto", "None"):
            values[name] = text
    return values


def measurement_of(plan: ServingPlan, prediction: Prediction, log: ServerLog, recorded: str) -> Measurement:
    """What a log measured, to be kept for later predictions.

    What lies outside torch is taken as the rest, so that the terms add up to what was available.

    Raises:
        SmokeError: the log does not carry the budget, or what it was measured with is not known.
    """
    if any(one.decisive for one in find_differences(subject_of_plan(plan), log)):
        raise SmokeError("nothing recorded: the log is not of the deployment that the manifest describes")
    if plan.model_reference is None or plan.gpu is None:
        raise SmokeError("nothing recorded: the model or the GPU is not known")
    arguments = recordable(plan.values)
    if arguments is None:
        raise SmokeError("nothing recorded: an argument that shapes the memory is not resolved in the files")
    terms = _terms(prediction.memory, gather(log, None))
    if "weights" not in terms or "kv_cache_available" not in terms:
        raise SmokeError("nothing recorded: the log says neither what loading the model took nor what was left for it")
    return Measurement(
        unit=plan.unit.id,
        model=plan.model_reference,
        vllm_version=plan.version,
        gpu=plan.gpu.name,
        arguments=arguments,
        terms=terms,
        recorded=recorded,
    )


def _terms(memory: Memory, measured: Measured) -> dict[str, int]:
    found = {name: round(figure.value) for name, figure in measured.terms.items()}
    terms: dict[str, int] = {
        name: found[name] for name in ("weights", "activation_peak", "kv_cache_available") if name in found
    }
    counted = memory.cuda_graphs.basis != "exact"  # the release takes them from the budget
    estimate = found.get("cuda_graphs_estimated", found.get("cuda_graphs"))
    if counted and estimate is not None:
        terms["cuda_graphs"] = estimate
        if "consumed" in found and "activation_peak" in terms:
            terms["activation_peak"] -= estimate
    requested = found.get("requested", memory.requested.bytes)
    if requested is not None and {"weights", "activation_peak", "kv_cache_available"} <= set(terms):
        rest = requested - sum(terms.values())
        terms["non_torch"] = rest
    elif "non_torch" in found:
        terms["non_torch"] = found["non_torch"]
    return terms
