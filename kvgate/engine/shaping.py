"""Which engine arguments shape what a server measures of itself.

Arguments that are not listed (the port, chat templates, tool parsers) change neither the memory nor the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_LOADED: Final = ("weights", "activation_peak", "non_torch")
_RANKS: Final = ("weights", "activation_peak", "non_torch", "pool", "load")

#: Argument -> the figures it shapes: terms of the memory budget by name, ``requested`` (the share of the GPU), ``pool``
#: (blocks and tokens that a given memory holds), ``concurrency`` (requests of max_model_len), ``load`` (the schedule).
SHAPES: Final[Mapping[str, tuple[str, ...]]] = {
    "async_scheduling": ("pool", "load"),
    "attention_backend": ("activation_peak", "pool"),
    "attention_config": ("activation_peak", "pool"),
    "block_size": ("pool", "concurrency"),
    "compilation_config": ("activation_peak", "cuda_graphs"),
    "convert": ("activation_peak", "pool"),
    "cpu_offload_gb": ("weights",),
    "cuda_graph_sizes": ("cuda_graphs",),
    "cudagraph_capture_sizes": ("cuda_graphs",),
    "data_parallel_size": _RANKS,
    "dcp_kv_cache_interleave_size": ("pool",),
    "decode_context_parallel_size": ("pool", "concurrency"),
    "disable_chunked_mm_input": ("load",),
    "disable_custom_all_reduce": ("non_torch",),
    "disable_hybrid_kv_cache_manager": ("pool", "concurrency"),
    "disable_sliding_window": ("pool", "concurrency"),
    "dtype": ("weights", "activation_peak", "pool"),
    "enable_chunked_prefill": ("activation_peak", "load"),
    "enable_expert_parallel": ("weights", "activation_peak", "non_torch"),
    "enable_lora": _LOADED,
    "enable_prefix_caching": ("load", "pool"),
    "enable_sleep_mode": ("non_torch",),
    "enforce_eager": ("cuda_graphs", "activation_peak"),
    "fully_sharded_loras": ("weights",),
    "gpu_memory_utilization": ("requested",),
    "hf_overrides": (*_LOADED, "pool", "concurrency"),
    "kv_cache_dtype": ("pool",),
    "kv_cache_dtype_skip_layers": ("pool",),
    "kv_cache_memory_bytes": ("kv_cache_available",),
    "kv_sharing_fast_prefill": ("pool",),
    "language_model_only": ("weights", "activation_peak"),
    "limit_mm_per_prompt": ("activation_peak",),
    "long_prefill_token_threshold": ("load",),
    "mamba_block_size": ("pool", "concurrency"),
    "mamba_cache_dtype": ("pool",),
    "mamba_cache_mode": ("pool", "concurrency", "load"),
    "mamba_ssm_cache_dtype": ("pool",),
    "max_cudagraph_capture_size": ("cuda_graphs",),
    "max_logprobs": ("activation_peak",),
    "max_long_partial_prefills": ("load",),
    "max_lora_rank": ("weights",),
    "max_loras": ("weights",),
    "max_model_len": ("concurrency", "activation_peak", "pool"),
    "max_num_batched_tokens": ("activation_peak", "pool", "load"),
    "max_num_partial_prefills": ("load",),
    "max_num_seqs": ("activation_peak", "cuda_graphs", "load"),
    "max_seq_len_to_capture": ("cuda_graphs",),
    "mm_encoder_only": ("weights",),
    "mm_encoder_tp_mode": ("weights",),
    "mm_processor_kwargs": ("activation_peak",),
    "num_gpu_blocks_override": ("kv_cache_available", "pool"),
    "num_scheduler_steps": ("load",),
    "optimization_level": ("activation_peak", "cuda_graphs"),
    "performance_mode": ("activation_peak", "load"),
    "pipeline_parallel_size": _RANKS,
    "prefill_context_parallel_size": ("pool", "concurrency"),
    "preemption_mode": ("load",),
    "quantization": ("weights", "activation_peak"),
    "rope_scaling": ("concurrency",),
    "runner": ("activation_peak", "pool"),
    "scheduler_reserve_full_isl": ("load",),
    "scheduling_policy": ("load",),
    "skip_mm_profiling": ("activation_peak",),
    "speculative_config": (*_LOADED, "pool", "load"),
    "speculative_model": (*_LOADED, "pool", "load"),
    "num_speculative_tokens": ("activation_peak", "pool", "load"),
    "swap_space": ("load",),
    "task": ("activation_peak", "pool"),
    "tensor_parallel_size": _RANKS,
    "use_v2_block_manager": ("load",),
    "revision": ("weights",),
}

TERMS: Final = ("weights", "activation_peak", "non_torch", "cuda_graphs")


def shaping(values: Mapping[str, Any], figure: str) -> dict[str, Any]:
    """The set arguments that shape a figure."""
    return {dest: value for dest, value in values.items() if figure in SHAPES.get(dest, ())}
