"""The memory budget of one GPU: what is left for the KV cache.

The waterfall follows the engine's own (vLLM ``v1/worker/gpu_worker.py:determine_available_memory`` and, for V0,
``worker/worker.py:determine_num_available_blocks``): total x utilization, less weights, less the profile run's
activation peak, less what lies outside torch, less CUDA graphs where the release counts them. The terms that cannot be
computed are fitted to public start-ups (``data/calibration.json``, made by ``tests/benchmarks/fit_budget.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from importlib.resources import files as package_files
from typing import Any, Final

from packaging.version import Version

from kvgate.capacity.prediction import Memory, Quantity
from kvgate.hardware.gpu import Gpu
from kvgate.models.geometry import ModelGeometry
from kvgate.models.model import Model
from kvgate.records import record

GIB: Final = 2**30


@record
class BudgetInputs:
    """What the budget depends on.

    Attributes:
        geometry: None where the architecture is not known.
        resolved: the effective engine arguments of the release, by their names.
        version: the vLLM release.
        total: the GPU's memory as the driver reports it.
        weight_bytes: parameters on the largest rank, None when not known.
        env: the server's environment.
    """

    geometry: ModelGeometry | None
    model: Model
    resolved: Mapping[str, Any]
    version: str
    gpu: Gpu | None
    total: Quantity
    weight_bytes: int | None
    env: Mapping[str, str] = field(default_factory=dict)


@cache
def calibration() -> Mapping[str, Any]:
    """Coefficients and residual quantiles as ``fit_budget.py`` wrote them."""
    text = package_files("kvgate.capacity").joinpath("data/calibration.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def estimate_budget(inputs: BudgetInputs) -> Memory:
    """Every term of the budget with its bounds; unknown where an input is."""
    resolved = inputs.resolved
    utilization = float(resolved.get("gpu_memory_utilization") or 0.9)
    requested = _scaled(inputs.total, utilization)
    if inputs.weight_bytes is None:
        weights = Quantity.unknown("the bytes of the weights are not known")
    else:
        low, middle, high = (int(inputs.weight_bytes * factor) for factor in (0.998, 1.004, 1.03))
        weights = Quantity(middle, low, high, "calibrated", "parameters, buffers and repacking")
    activation = _activation(inputs)
    tensor = int(resolved.get("tensor_parallel_size") or 1)
    middle = int((0.08 if tensor == 1 else 0.9) * GIB)
    non_torch = Quantity(middle, middle // 3, middle * 2, "calibrated", "CUDA context and libraries, NCCL buffers")
    graphs = Quantity.exact(0, "CUDA graphs are not part of this release's budget")
    if _counts_graphs(inputs):
        graphs = Quantity(int(0.4 * GIB), int(0.05 * GIB), int(1.2 * GIB), "calibrated", "CUDA graphs")
    available = _difference(requested, (weights, activation, non_torch, graphs))
    return Memory(inputs.total, requested, weights, inputs.weight_bytes, activation, non_torch, graphs, available)


def _scaled(total: Quantity, utilization: float) -> Quantity:
    if total.bytes is None:
        return Quantity.unknown("the GPU's memory is not known")

    def scale(value: int | None) -> int | None:
        return None if value is None else int(value * utilization)

    return Quantity(scale(total.bytes), scale(total.low), scale(total.high), total.basis, f"total x {utilization:g}")


def _activation(inputs: BudgetInputs) -> Quantity:
    geometry = inputs.geometry
    sequences = inputs.resolved.get("max_num_seqs")
    tokens = inputs.resolved.get("max_num_batched_tokens")
    if geometry is None or sequences is None or tokens is None:
        return Quantity.unknown("the activation peak needs the model's shape, max_num_seqs and the token budget")
    sampler = 38.5 * min(int(sequences), int(tokens)) * geometry.vocab_size
    forward = int(tokens) * (10 * geometry.hidden_size + 4 * geometry.intermediate_size) * 2
    peak = max(sampler, forward)
    return Quantity(
        int(peak), int(0.7 * peak), int(1.5 * peak), "calibrated", "the larger of sampler warm-up and forward pass"
    )


def _counts_graphs(inputs: BudgetInputs) -> bool:
    """CUDA graphs are part of the budget from 0.20 on, before that (0.18, 0.19) on request."""
    if inputs.resolved.get("enforce_eager"):
        return False
    version = Version(inputs.version.split("+")[0])
    wish = inputs.env.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS")
    if version < Version("0.18"):
        return False
    if wish is not None:
        return wish not in ("0", "false", "False", "")
    return version >= Version("0.20")


def _difference(requested: Quantity, terms: tuple[Quantity, ...]) -> Quantity:
    unknown = next((term for term in (requested, *terms) if term.bytes is None), None)
    if unknown is not None:
        return Quantity.unknown(unknown.formula)
    middle = (requested.bytes or 0) - sum(term.bytes or 0 for term in terms)
    low = (requested.low or 0) - sum(term.high or 0 for term in terms)
    high = (requested.high or 0) - sum(term.low or 0 for term in terms)
    return Quantity(middle, low, high, "calibrated", "requested - weights - activation peak - non-torch - CUDA graphs")
