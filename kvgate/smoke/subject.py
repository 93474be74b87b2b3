"""What is compared with a server: a unit of a manifest, or a log on its own terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kvgate.records import record

if TYPE_CHECKING:
    from kvgate.capacity.prediction import Prediction, Workload
    from kvgate.plan import ServingPlan


class Predictor(Protocol):
    """Predicts the subject, with some engine arguments changed, for another workload, or for a pool of known size.

    None where the model is not known.
    """

    def __call__(
        self,
        *,
        changes: Mapping[str, Any] | None = None,
        workload: Workload | None = None,
        kv_cache_tokens: int | None = None,
    ) -> Prediction | None: ...


@record
class Subject:
    """Attributes:
    id, path, line: of the unit, None for a log on its own.
    version, declared: the release, and whether files declare it.
    values: the engine arguments that are set.
    model: as the command names it; ``model_paths`` other names of the same (kvgate.yaml's ``models``).
    gpu, gpu_memory_bytes: None where not known.
    """

    id: str | None
    path: str | None
    line: int | None
    version: str
    declared: bool
    values: Mapping[str, Any]
    model: str | None
    model_paths: tuple[str, ...]
    gpu: str | None
    gpu_memory_bytes: int | None
    workload: Workload | None
    replicas: int
    data_parallel_size: int
    predict: Predictor
    model_reason: str | None = None


def subject_of_plan(plan: ServingPlan, model_paths: tuple[str, ...] = ()) -> Subject:
    """The subject that a unit's plan is."""
    return Subject(
        id=plan.unit.id,
        path=plan.unit.path,
        line=plan.unit.span.line,
        version=plan.version,
        declared=plan.version_basis == "declared",
        values=plan.values,
        model=plan.model_reference,
        model_paths=model_paths,
        gpu=plan.gpu.name if plan.gpu else None,
        gpu_memory_bytes=plan.gpu_memory_bytes or (plan.gpu.memory_bytes if plan.gpu else None),
        workload=plan.workload,
        replicas=plan.replicas,
        data_parallel_size=plan.data_parallel_size,
        predict=plan.predict,
        model_reason=plan.model_reason if plan.model is None else None,
    )
