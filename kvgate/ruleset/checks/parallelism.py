"""How a server is spread over GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kvgate.findings.finding import Severity
from kvgate.ruleset.case import Case
from kvgate.ruleset.checks import NoParams, check
from kvgate.ruleset.model import Draft

if TYPE_CHECKING:
    from kvgate.models.geometry import ModelGeometry

_MOST = 64


@check("tensor-parallel-divides", values=("size", "what", "legal"))
def tensor_parallel_divides(case: Case, params: NoParams) -> Iterator[Draft]:
    """The tensor parallel size does not divide what is sharded."""
    size, geometry = case.integer("tensor_parallel_size"), case.geometry
    if size is None or size <= 1 or geometry is None or not geometry.num_heads or case.backend == "neuron":
        return
    expert_parallel = bool(case.argument("enable_expert_parallel"))
    problem = undivided(geometry, size, expert_parallel)
    if problem is None:
        return
    legal = [n for n in range(1, _MOST + 1) if undivided(geometry, n, expert_parallel) is None]
    yield Draft(values={"size": size, "what": problem, "legal": legal}, rests_on=("model",))


def undivided(geometry: ModelGeometry, size: int, expert_parallel: bool = False) -> str | None:
    """What a tensor parallel size does not divide, in words; None where it divides everything.

    Query heads must divide (vLLM 0.33.0 ``config/model.py``, ``verify_with_parallel_config``). Key/value heads are
    split, or replicated when there are fewer than ranks, and either way evenly (``layers/linear.py``,
    ``QKVParallelLinear``); MLA has none to split. The feed-forward width is split by columns, and a quantized one in
    whole groups or blocks (``layers/quantization``).
    """
    if geometry.num_heads % size:
        return f"{geometry.num_heads} attention heads"
    heads = geometry.num_kv_heads
    if not geometry.uses_mla and heads and (heads % size if heads >= size else size % heads):
        return f"{heads} key/value heads"
    widths: list[tuple[int, str]] = []
    if not geometry.num_experts:
        widths.append((geometry.intermediate_size, "the feed-forward width"))
    elif not expert_parallel:
        widths.append((geometry.moe_intermediate_size or geometry.intermediate_size, "the experts' feed-forward width"))
    block = _block(geometry.quantization_config)
    for width, words in widths:
        if not width:
            continue
        if width % size:
            return f"{words} {width:,}"
        if block and width % block == 0 and width // size % block:
            return f"{words} {width:,} in quantization groups of {block}"
    return None


def _block(quantization: Any) -> int | None:
    """Elements of one quantization group along the width, None where there are no groups."""
    if not quantization:
        return None
    method = str(quantization.get("quant_method") or "").lower()
    sizes = quantization.get("weight_block_size")
    if method == "fp8" and isinstance(sizes, list | tuple) and len(sizes) == 2 and isinstance(sizes[1], int):
        return sizes[1]
    group = quantization.get("group_size")
    if method in ("awq", "gptq") and isinstance(group, int) and group > 0:
        return group
    return None


@check("gpu-count", values=("used", "product", "requested", "resource"))
def gpu_count(case: Case, params: NoParams) -> Iterator[Draft]:
    """The server uses more or fewer GPUs than it gets."""
    used, requested = case.local_gpus, case.requested_gpus
    if used is None or requested is None or used == requested or case.spans_nodes:
        return
    if case.backend in ("cpu", "tpu", "xpu", "hpu"):
        return
    if case.unit.entry.startswith("ray.serve") and requested * (case.local_data_parallel or 1) == used:
        return  # Ray starts a replica with GPUs of its own for each data-parallel rank
    sizes = (
        ("tensor_parallel_size", "tensor parallel", case.integer("tensor_parallel_size")),
        ("pipeline_parallel_size", "pipeline parallel", case.integer("pipeline_parallel_size")),
        ("data_parallel_size", "data parallel", case.local_data_parallel),
    )
    product = " x ".join(f"{words} {size}" for _, words, size in sizes if size not in (None, 1))
    first = next((dest for dest, _, size in sizes if size not in (None, 1)), None)
    set_all = all(dest in case.plan.values for dest, _, size in sizes if size not in (None, 1)) and first is not None
    if used < requested and ("CUDA_VISIBLE_DEVICES" in case.plan.environment or case.argument("device_ids")):
        return
    at = f"arg:{first}" if used > requested and first is not None else "resource:gpu"
    other = "resource:gpu" if used > requested else f"arg:{first}" if first is not None else None
    yield Draft(
        at=at,
        variant="idle" if used < requested else None,
        values={
            "used": used,
            "product": f" ({product})" if product else "",
            "requested": requested,
            "resource": case.unit.gpu_requests[0].resource,
        },
        rests_on=() if set_all and used > requested else ("words",),
        # a chart may set the sizes from the number of GPUs
        ceiling=Severity.INFO if case.host.is_values and not set_all else None,
        related=((other, "the other figure"),) if other is not None else (),
    )
