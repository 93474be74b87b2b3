"""Checks of what a unit's cache can share of its prompts: blocks against prefixes."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm
from typing import Final

from kvgate.findings.finding import Severity
from kvgate.ruleset.case import Case
from kvgate.ruleset.certainty import Input
from kvgate.ruleset.checks import NoParams, check
from kvgate.ruleset.model import Draft

_RECURRENT: Final = "mamba"
_RESTS_ON: Final[tuple[Input, ...]] = ("model", "vllm_version", "words")


def _granularity(case: Case) -> int | None:
    """Tokens in whose multiples prompts are shared: the least that is whole blocks of every kind of layer.

    None where nothing is shared, or the cache is not known (vLLM 0.33.0 ``v1/core/kv_cache_coordinator.py``,
    ``HybridKVCacheCoordinator``: hits are cut to the least common multiple of the groups' block sizes).
    """
    prediction = case.prediction
    if prediction is None or not prediction.kv_cache.groups or prediction.resolved.get("prefix_caching") is not True:
        return None
    return lcm(*(group.block_size for group in prediction.kv_cache.groups))


def _is_hybrid(case: Case) -> bool:
    prediction = case.prediction
    return prediction is not None and any(group.kind == _RECURRENT for group in prediction.kv_cache.groups)


@check("hybrid-block", values=("block", "shared", "prompt", "length"))
def hybrid_block(case: Case, params: NoParams) -> Iterator[Draft]:
    """Prompts share less than the large block of a model with recurrent layers."""
    block = _granularity(case)
    if block is None or not _is_hybrid(case) or "prefix_match_unit" in case.plan.values:
        return
    workload = case.plan.workload
    length = case.integer("max_model_len")
    shared = workload.shared_prefix_tokens if workload is not None else 0
    prompt = workload.prompt_tokens if workload is not None else None
    values = {"block": block, "shared": shared, "prompt": prompt, "length": length}
    set_by = next((dest for dest in ("mamba_cache_mode", "enable_prefix_caching") if dest in case.plan.values), None)
    at = f"arg:{set_by}" if set_by is not None else "model"
    if length is not None and length <= block:
        yield Draft(at="arg:max_model_len", variant="short-context", values=values, rests_on=_RESTS_ON)
    elif prompt is not None and prompt <= block:
        yield Draft(at=at, variant="short-prompts", values=values, rests_on=_RESTS_ON)
    elif 0 < shared < block:
        related = (("workload", "the load is declared here"),)
        yield Draft(at=at, values=values, rests_on=_RESTS_ON, related=related)
    elif not shared:
        # who chose how states are cached wants prefixes reused, and a finer unit is at hand
        ceiling = None if set_by == "mamba_cache_mode" and case.since("0.26.0") else Severity.INFO
        yield Draft(at=at, variant="unknown-prefix", values=values, rests_on=_RESTS_ON, ceiling=ceiling)


@check("shared-prefix-block", values=("block", "shared"))
def shared_prefix_block(case: Case, params: NoParams) -> Iterator[Draft]:
    """The prefix that all prompts share is shorter than a block."""
    block = _granularity(case)
    workload = case.plan.workload
    if block is None or workload is None or _is_hybrid(case):
        return
    if 0 < workload.shared_prefix_tokens < block:
        yield Draft(
            at="arg:block_size" if "block_size" in case.plan.values else "workload",
            values={"block": block, "shared": workload.shared_prefix_tokens},
            rests_on=_RESTS_ON,
        )
