"""The memory budget of one GPU: what is left for the KV cache.

The waterfall follows the engine's own (vLLM ``v1/worker/gpu_worker.py:determine_available_memory`` and, for V0,
``worker/worker.py:determine_num_available_blocks``): total x utilization, less weights, less the profile run's
activation peak, less what lies outside torch, less CUDA graphs where the release counts them. The terms that cannot be
computed are fitted to public start-ups (``data/calibration.json``, made by ``tests/benchmarks/fit_budget.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from kvgate.capacity.load_time import LoadedModel, describe_loading
from kvgate.capacity.prediction import Memory, Quantity
from kvgate.capacity.profile_run import ProfileRun, captured_graphs, describe_profile_run, second_runner
from kvgate.capacity.release import Release, release_of
from kvgate.hardware.gpu import Gpu
from kvgate.models.geometry import ModelGeometry
from kvgate.models.model import Model
from kvgate.records import record
from kvgate.tables import load_table

GIB: Final = 2**30


@record
class BudgetInputs:
    """What the budget depends on.

    Attributes:
        geometry: None where the architecture is not known.
        resolved: the effective engine arguments of the release, by their names.
        version: the vLLM release.
        total: the GPU's memory as the driver reports it.
        weight_bytes: weights on the largest rank as measured ("Model loading took"), None to compute them. The
            parameters' own bytes count as computed.
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


@record
class BudgetParts:
    """The budget before the fitted coefficients: what ``fit_budget.py`` fits on.

    Attributes:
        loaded: what loading the model takes; ``run`` the profile run.
        place: class of what lies outside torch (GPU, ranks, release); ``graphs`` class of CUDA graphs, None where the
            release does not count them; ``graph_layers`` layers times graphs.
        platform: ``discrete``, ``unified`` or ``amd``.
    """

    loaded: LoadedModel
    run: ProfileRun
    place: str
    graphs: str | None
    graph_layers: int
    platform: str


def calibration() -> Mapping[str, Any]:
    """Coefficients and residual spreads as ``fit_budget.py`` wrote them."""
    table: dict[str, Any] = load_table("capacity/calibration")
    return table


def estimate_budget(inputs: BudgetInputs) -> Memory:
    """Every term of the budget with its bounds; unknown where an input is."""
    return budget_of(inputs, describe_budget(inputs), calibration())


def describe_budget(inputs: BudgetInputs) -> BudgetParts | None:
    """The computed parts; None where the model's shape is not known."""
    geometry, resolved = inputs.geometry, inputs.resolved
    if geometry is None or resolved.get("max_num_seqs") is None or resolved.get("max_num_batched_tokens") is None:
        return None
    release = release_of(inputs.version)
    ranks = int(resolved.get("tensor_parallel_size") or 1) * int(resolved.get("pipeline_parallel_size") or 1)
    run = describe_profile_run(geometry, resolved, release, inputs.env)
    return BudgetParts(
        loaded=describe_loading(inputs.model, geometry, resolved, inputs.gpu, inputs.weight_bytes, inputs.version),
        run=run,
        place=_place(inputs.gpu, inputs.total.bytes, run.engine, release, ranks),
        graphs=_graphs(geometry, resolved, release, inputs.env),
        graph_layers=geometry.num_layers * captured_graphs(resolved),
        platform=_platform(inputs.gpu),
    )


def _platform(gpu: Gpu | None) -> str:
    if gpu is not None and gpu.unified_memory:
        return "unified"
    return "amd" if gpu is not None and gpu.vendor == "amd" else "discrete"


#: Memory that only data-centre parts with NVSwitch have.
_SWITCHED_BYTES: Final = 100 * GIB


def _place(gpu: Gpu | None, total_bytes: int | None, engine: str, release: Release, ranks: int) -> str:
    """Class of the memory outside torch: the CUDA context, NCCL's buffers."""
    engine = engine.lower()
    late = ", 0.26 and later" if release.at_least("0.26.0") else ""
    if ranks == 1:
        return f"{engine}, one rank{late}"
    # NVSwitch nodes (Hopper and Blackwell data-centre parts) get NCCL's multicast buffers.
    if gpu is None:
        fabric = (total_bytes or 0) > _SWITCHED_BYTES
    else:
        fabric = gpu.compute_capability in ((9, 0), (10, 0), (10, 3))
    size = "more ranks" if ranks > 2 else "two ranks"
    return f"{engine}, {size}" + (", NVSwitch" if fabric else "") + (late if ranks == 2 else "")


def _graphs(
    geometry: ModelGeometry, resolved: Mapping[str, Any], release: Release, env: Mapping[str, str]
) -> str | None:
    """CUDA graphs are part of the budget from 0.20 on, before that (0.18, 0.19) on request.

    The first release of the second model runner that estimates them is 0.29 (``v1/worker/gpu/cudagraph_utils.py``).
    """
    if resolved.get("enforce_eager") or resolved.get("pooling") or not release.at_least("0.18.0"):
        return None
    wish = env.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS")
    counted = release.at_least("0.20.0") if wish is None else wish not in ("0", "")
    if not counted:
        return None
    if second_runner(geometry, resolved, release, env):
        return "second runner" if release.at_least("0.29.0") else None
    return "first runner"


def budget_of(inputs: BudgetInputs, parts: BudgetParts | None, table: Mapping[str, Any]) -> Memory:
    """The budget by one set of coefficients."""
    requested = _requested(inputs)
    if parts is None:
        why = "the model's shape, max_num_seqs or the token budget is not known"
        unknown = Quantity.unknown(why)
        return Memory(inputs.total, requested, unknown, None, unknown, unknown, unknown, unknown)
    weights = _weights(parts, table)
    activation = _activation(parts.run, table)
    non_torch = _non_torch(parts, table)
    graphs = _graph_term(parts, table)
    terms = (weights, activation, non_torch, graphs)
    available = _difference(requested, terms, parts.platform, table)
    return Memory(
        inputs.total, requested, weights, parts.loaded.parameters_bytes, activation, non_torch, graphs, available
    )


def _requested(inputs: BudgetInputs) -> Quantity:
    """total x utilization (``v1/worker/utils.py:request_memory``: rounded up from 0.11 on, down before)."""
    total = inputs.total
    utilization = inputs.resolved.get("utilization", inputs.resolved.get("gpu_memory_utilization"))
    if total.bytes is None:
        return Quantity.unknown("the GPU's memory is not known")
    if utilization is None:
        return Quantity.unknown("gpu_memory_utilization is not known")
    share = float(utilization)
    whole = math.ceil if release_of(inputs.version).at_least("0.11.0") else int

    def scale(value: int | None) -> int | None:
        return None if value is None else whole(value * share)

    formula = f"{total.bytes / GIB:.2f} GiB x {share:g}"
    return Quantity(scale(total.bytes), scale(total.low), scale(total.high), total.basis, formula)


def _spread(middle: float, spread: Mapping[str, float], formula: str) -> Quantity:
    """A fitted term: ``share`` of it and a constant on either side."""
    width = spread["share"] * abs(middle) + spread["gib"] * GIB
    return Quantity(int(middle), max(0, int(middle - width)), int(middle + width), "calibrated", formula)


def _weights(parts: BudgetParts, table: Mapping[str, Any]) -> Quantity:
    loaded = parts.loaded
    if loaded.measured_bytes is not None:
        return Quantity.exact(loaded.measured_bytes, "measured", basis="measured")
    if loaded.parameters_bytes is None:
        return Quantity.unknown(loaded.formula or "the weights are not known")
    row = table["weights"][loaded.storage]
    quantity = _spread(loaded.bytes * (1 + row.get("draft", 0.0)), row, loaded.formula)
    low = (quantity.low or 0) - max(0, loaded.parameters_bytes - (loaded.parameters_low or loaded.parameters_bytes))
    high = (quantity.high or 0) + max(0, (loaded.parameters_high or loaded.parameters_bytes) - loaded.parameters_bytes)
    return Quantity(quantity.bytes, max(0, low), high, "calibrated", quantity.formula)


def peak_bytes(run: ProfileRun, table: Mapping[str, Any]) -> tuple[float, float, float]:
    """The sampler's, the language model's and the encoder's peak."""
    sampler = run.logits * table["sampler"][run.sampler] + run.hidden_bytes
    forward = table["forward"]["experts" if run.experts else "dense"] * run.mlp_bytes + run.residual_bytes
    forward += run.latent_bytes
    if run.encoder is None:
        return sampler, forward, 0.0
    kept = run.encoder.cache_bytes
    return sampler + kept, forward + kept, table["forward"]["encoder"] * run.encoder.forward_bytes


def _activation(run: ProfileRun, table: Mapping[str, Any]) -> Quantity:
    sampler, forward, encoder = peak_bytes(run, table)
    peak = max(sampler, forward, encoder)
    if peak == sampler:
        formula, kind = f"sampler warm-up of {run.sequences} sequences x vocabulary", f"sampler, {run.sampler}"
    elif peak == forward:
        formula, kind = f"forward pass of {run.tokens} tokens", "forward"
    else:
        formula, kind = "the encoder's largest batch", "encoder"
    if run.encoder is not None and peak != encoder:
        formula += f", beside embeddings of {run.encoder.budget_tokens} encoder tokens"
    spread = table["activation"][kind]
    if run.encoder is not None and not run.encoder.known:
        spread = table["activation"]["unknown encoder"]
    quantity = _spread(peak, spread, formula)
    if run.maybe_flashinfer and peak == sampler:
        other = max(
            sampler - run.logits * (table["sampler"]["sort"] - table["sampler"]["flashinfer"]), forward, encoder
        )
        quantity = Quantity(quantity.bytes, min(quantity.low or 0, int(other)), quantity.high, "calibrated", formula)
    return quantity


def _non_torch(parts: BudgetParts, table: Mapping[str, Any]) -> Quantity:
    row = table["non_torch"][parts.place]
    return _spread(row["middle"] * GIB, row, f"CUDA context, libraries and NCCL ({parts.place})")


def _graph_term(parts: BudgetParts, table: Mapping[str, Any]) -> Quantity:
    if parts.graphs is None:
        return Quantity.exact(0, "CUDA graphs are not part of this release's budget")
    row = table["graphs"][parts.graphs]
    middle = row["first"] + row["layer"] * parts.graph_layers
    return _spread(middle * GIB, row, "CUDA graphs, estimated by their number and the model's layers")


def _difference(requested: Quantity, terms: tuple[Quantity, ...], platform: str, table: Mapping[str, Any]) -> Quantity:
    """What is left.

    The terms' bounds add up like independent errors; what the terms do not explain of the start-ups is a share of the
    pool. Where host and GPU share the memory, what the engine's processes take of the host counts as its own use, which
    grows with the weights they load (``utils/mem_utils.py:MemorySnapshot``).
    """
    unknown = next((term for term in (requested, *terms) if term.bytes is None), None)
    if unknown is not None:
        return Quantity.unknown(unknown.formula)
    row = table["available"][platform]
    others = row["other"] * GIB + row["loading"] * (terms[0].bytes or 0)
    middle = (requested.bytes or 0) - sum(term.bytes or 0 for term in terms) - int(others)
    rest = (row["share"] * abs(middle), row["gib"] * GIB, others)
    below = _together((*((term.high or 0) - (term.bytes or 0) for term in terms), *rest))
    above = _together((*((term.bytes or 0) - (term.low or 0) for term in terms), *rest))
    low = middle - int(below) - ((requested.bytes or 0) - (requested.low or 0))
    high = middle + int(above) + ((requested.high or 0) - (requested.bytes or 0))
    formula = "requested - weights - activation peak - outside torch - CUDA graphs"
    return Quantity(middle, low, high, "calibrated", formula)


def _together(widths: Iterable[float]) -> float:
    """Independent errors add up as squares."""
    return math.sqrt(sum(width * width for width in widths))
