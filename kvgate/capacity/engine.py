"""Which of vLLM's two engines a server gets: V0 until 0.7, V1 from 0.11, and in between by what it asks for.

Ported from ``EngineArgs._is_v1_supported_oracle`` of 0.8.5 to 0.10.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from kvgate.capacity.backends import Capability
from kvgate.capacity.release import Release
from kvgate.models.geometry import ModelGeometry

_OFF: Final = frozenset({"0", "false", "False", ""})
# Options that V1 never had: whatever differs from the default falls back.
_V0_OPTIONS: Final[Mapping[str, Any]] = {
    "num_scheduler_steps": 1, "scheduler_delay_factor": 0.0, "preemption_mode": None, "enable_prompt_adapter": False,
    "disable_async_output_proc": False, "logits_processor_pattern": None, "scheduling_policy": "fcfs",
}  # fmt: skip
# First release whose V1 serves an architecture that fell back before.
_FIRST_V1: Final[Mapping[str, str]] = {
    "BloomForCausalLM": "0.10.2",
    "Gemma3ForConditionalGeneration": "0.8.2",
    "GlmForCausalLM": "0.8.2",
    "MiniCPMO": "0.8.2",
    "MiniCPMV": "0.8.2",
    "Phi4MMForCausalLM": "0.8.2",
    "Plamo2ForCausalLM": "0.10.2",
    "Qwen2ForProcessRewardModel": "0.9.2",
    "Qwen2ForRewardModel": "0.9.2",
}


def effective_release(
    release: Release,
    geometry: ModelGeometry,
    given: Callable[[str], Any],
    env: Mapping[str, str],
    capability: Capability,
    *,
    cpu: bool,
) -> tuple[Release, str | None]:
    """The release's switches for the engine the server gets, and why it is not the release's own.

    Args:
        given: an argument's value by its dest, None when not set.
    """
    wish = env.get("VLLM_USE_V1")
    if release.at_least("0.11.0"):
        return release, None
    if wish is not None:
        first = wish not in _OFF
        return (as_v1(release) if first else as_v0(release)), f"VLLM_USE_V1={wish}"
    if not release.at_least("0.8.0"):
        return as_v0(release), None
    reason = _fallback(release, geometry, given, capability, cpu=cpu)
    return (release, None) if reason is None else (as_v0(release), f"the V0 engine serves it: {reason}")


def as_v0(release: Release) -> Release:
    """The switches of a release's V0 engine."""
    return replace(
        release,
        engine="V0",
        size_figure="blocks",
        fit_check="layers",
        concurrency="tokens",
        null_block=False,
        in_flight_batches=False,
        reserve_full_prompt=False,
        async_by_default=False,
        hybrid_allocator=False,
        hybrid_caching=False,
    )


def as_v1(release: Release) -> Release:
    return replace(release, engine="V1")


def _fallback(
    release: Release, geometry: ModelGeometry, given: Callable[[str], Any], capability: Capability, *, cpu: bool
) -> str | None:
    for name, default in _V0_OPTIONS.items():
        value = given(name)
        if value is not None and value != default:
            return f"--{name.replace('_', '-')}"
    if cpu:
        return None if release.at_least("0.9.2") else "the CPU backend"
    if capability < (8, 0) and not release.at_least("0.10.1"):
        return f"compute capability {capability[0]}.{capability[1]}"
    stored = given("kv_cache_dtype")
    if stored not in (None, "auto") and capability[0] != 9 and not release.at_least("0.10.1"):
        return f"--kv-cache-dtype {stored}"
    if given("dtype") in ("float32", "float"):
        return "--dtype float32"
    architecture = geometry.architecture
    first = _FIRST_V1.get(architecture)
    if first is not None and not release.at_least(first):
        return architecture
    if geometry.is_encoder_decoder and not release.at_least("0.10.2"):
        return f"{architecture} (encoder-decoder)"
    if (geometry.is_hybrid or geometry.is_attention_free) and not release.at_least("0.10.1"):
        return f"{architecture} (recurrent layers)"
    if geometry.runner == "pooling" and not release.at_least("0.10.1" if geometry.family.encoder_only else "0.9.2"):
        return f"{architecture} (pooling)"
    speculative = given("speculative_config")
    if isinstance(speculative, Mapping) and not release.at_least("0.10.0"):
        method = str(speculative.get("method") or "draft_model")
        served = {"ngram", "eagle", "eagle3"} | ({"medusa", "deepseek_mtp"} if release.at_least("0.9.1") else set())
        if method not in served:
            return f"speculative decoding with {method}"
    return None
