"""From a serve unit and the configuration to what will really run: version, model, GPU, arguments, workload.

Each resolved value keeps its origin, so that a report can say where it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kvgate.capacity.prediction import Basis, Prediction, Workload
from kvgate.source.text import Span

if TYPE_CHECKING:
    from kvgate.engine.arguments import ParsedArguments
    from kvgate.engine.images import Image
    from kvgate.hardware.gpu import Gpu
    from kvgate.manifests.unit import ServeUnit
    from kvgate.models.model import Model


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: a place in a file, or words (``default of vLLM 0.20.0``, ``kvgate.yaml``, ``--gpu``)."""

    words: str
    span: Span | None = None

    def __str__(self) -> str:
        if self.span is None:
            return self.words
        return f"{self.span.path}:{self.span.line}"


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """What one serve unit will run as, each value with its basis and origin.

    Attributes:
        version: the vLLM release the unit is judged by; ``version_basis`` is ``declared`` or ``assumed``.
        model: None when it is neither locked, local, cached nor bundled; ``model_reason`` then says what to do.
        gpu: None when unknown; ``gpu_reason`` says why.
        gpu_count: GPUs of one replica; None when unknown.
        values: engine arguments that were set, dest -> typed value (the model aside).
        origins: name of a value (an engine argument's dest, ``model``, ``vllm_version``, ``gpu``, ``gpu_count``,
            ``workload``, ``replicas``) -> where it came from.
        min_sustained: the number of requests that kvgate.yaml demands, None when it demands none.
    """

    unit: ServeUnit
    parsed: ParsedArguments
    image: Image | None
    version: str
    version_basis: Literal["declared", "assumed"]
    model_reference: str | None
    model: Model | None
    model_reason: str | None
    gpu: Gpu | None
    gpu_count: int | None
    gpu_memory_bytes: int | None
    gpu_basis: Basis
    gpu_reason: str | None
    values: Mapping[str, Any]
    environment: Mapping[str, str]
    workload: Workload | None
    replicas: int
    origins: Mapping[str, Origin] = field(default_factory=dict)
    min_sustained: int | None = None
    data_parallel_size: int = 1

    def predict(
        self,
        *,
        without: tuple[str, ...] = (),
        changes: Mapping[str, Any] | None = None,
        workload: Workload | None = None,
        gpu: Gpu | None = None,
    ) -> Prediction | None:
        """The prediction for this plan, or for the plan with some engine arguments unset or changed.

        None when the model is not known.
        """
        if self.model is None:
            return None
        from kvgate.capacity.predict import predict_capacity

        values = {dest: value for dest, value in self.values.items() if dest not in without}
        values.update(changes or {})
        return predict_capacity(
            self.model,
            values,
            version=self.version,
            version_basis=self.version_basis,
            gpu=gpu or self.gpu,
            gpu_count=self.gpu_count,
            gpu_memory_bytes=None if gpu else self.gpu_memory_bytes,
            gpu_basis="assumed" if gpu else self.gpu_basis,
            env=self.environment,
            workload=workload or self.workload,
        )
