"""Engine arguments as the engine resolves them: defaults of the release, of the GPU and of the model.

Ported from vLLM 0.32.0 ``engine/arg_utils.py``, ``config/model.py`` and ``config/vllm.py``; earlier releases by the
switches of :class:`Release`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

from kvgate.capacity.backends import Capability
from kvgate.capacity.release import Release
from kvgate.hardware.gpu import Gpu
from kvgate.models.geometry import ModelGeometry
from kvgate.records import record
from kvgate.source.text import Unresolved

GIB: Final = 1 << 30

ELEMENT_BYTES: Final[Mapping[str, int]] = {
    "float32": 4, "float": 4, "half": 2, "float16": 2, "bfloat16": 2,
    "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1, "fp8_ds_mla": 1, "nvfp4_ds_mla": 1, "int8": 1, "uint8": 1,
    "int4_per_token_head": 1, "int8_per_token_head": 1, "fp8_per_token_head": 1, "turboquant_k8v4": 1,
    "turboquant_4bit_nc": 1, "turboquant_k3v4_nc": 1, "turboquant_3bit_nc": 1, "ultraquant_4bit": 1,
    "nvfp4": 1, "nvfp4_4over6": 1,
}  # fmt: skip
_DTYPES: Final = {"half": "float16", "float": "float32"}
# Model types whose half precision overflows.
_NO_FLOAT16: Final = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})


@record
class Settings:
    """The effective arguments that the arithmetic uses.

    ``unresolved`` maps the arguments whose value the files do not determine to the reason.
    """

    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    decode_context_parallel_size: int
    dtype: str
    cache_dtype: str
    max_model_len: int
    auto_fit: bool
    block_size: int | None
    prefix_caching: bool
    chunked_prefill: bool
    max_num_batched_tokens: int
    max_num_seqs: int
    async_scheduling: bool
    concurrent_batches: int
    utilization: float
    cache_memory_bytes: int | None
    blocks_override: int | None
    hybrid_manager: bool
    mamba_dtype: str
    mamba_ssm_dtype: str
    mamba_mode: str
    mamba_block_size: int | None
    speculative_tokens: int
    speculative: Mapping[str, Any]
    skip_layers: tuple[str, ...]
    attention_backend: str | None
    pooling: bool
    image_masks: bool
    capability: Capability
    assumed_gpu: bool
    cpu: bool
    reasons: tuple[str, ...] = ()
    unresolved: Mapping[str, str] = field(default_factory=dict)

    @property
    def in_flight_tokens(self) -> int:
        return self.concurrent_batches * self.max_num_batched_tokens


class RefusedError(ValueError):
    """The engine refuses these arguments; the message says why."""


def _whole(value: Any, default: int) -> int:
    return default if value is None or isinstance(value, bool) else int(value)


def supported_dtypes(capability: Capability, cpu: bool) -> tuple[str, ...]:
    """Dtypes of the platform, preferred first (``platforms/cuda.py:supported_dtypes``)."""
    if cpu or capability >= (8, 0):
        return ("bfloat16", "float16", "float32")
    return ("float16", "float32")


def model_dtype(
    geometry: ModelGeometry, requested: str | None, capability: Capability, *, pooling: bool, cpu: bool
) -> str:
    """The dtype weights and activations get (``config/model.py:_resolve_auto_dtype``)."""
    if requested and requested != "auto":
        return _DTYPES.get(requested, requested)
    declared = geometry.declared_dtype or "float32"
    supported = [
        dtype
        for dtype in supported_dtypes(capability, cpu)
        if not (dtype == "float16" and geometry.model_type in _NO_FLOAT16)
    ]
    preferred = "float16" if pooling and "float16" in supported else supported[0]
    if declared == "float32":
        declared = preferred
    return declared if declared in supported else preferred


def cache_dtype(geometry: ModelGeometry, requested: str | None, release: Release) -> str:
    """``--kv-cache-dtype`` with ``auto`` resolved from the checkpoint.

    ModelOpt checkpoints state a KV-cache algorithm (``utils/torch_utils.py:get_kv_cache_quant_algo_string``);
    compressed-tensors ones a ``kv_cache_scheme``, which each attention layer honours.
    """
    if requested and requested != "auto":
        return requested
    quantization = geometry.quantization_config
    if quantization is None:
        return "auto"
    method = str(quantization.get("quant_method") or "")
    if method.startswith("modelopt"):
        inner = quantization.get("quantization")
        inner = inner if isinstance(inner, Mapping) else quantization
        algorithm = (
            inner.get("kv_cache_scheme")
            or quantization.get("kv_cache_scheme")
            or inner.get("kv_cache_quant_algo")
            or quantization.get("kv_cache_quant_algo")
        )
        if isinstance(algorithm, Mapping):
            bits, kind = algorithm.get("num_bits"), algorithm.get("type")
            if algorithm.get("dynamic") is False and bits == 8 and kind == "float":
                algorithm = "fp8"
            elif bits == 4 and kind == "float":
                algorithm = "nvfp4"
            else:
                return "auto"
        if isinstance(algorithm, str):
            return {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}.get(algorithm.lower(), "auto")
        return "auto"
    if method == "compressed-tensors" and quantization.get("kv_cache_scheme") is not None and not geometry.uses_mla:
        return "fp8"
    return "auto"


def batch_defaults(release: Release, gpu: Gpu | None, memory_bytes: int | None, world: int) -> tuple[int, int]:
    """Default token budget and sequences of ``vllm serve`` (``EngineArgs.get_batch_defaults``)."""
    if gpu is not None and gpu.vendor == "cpu":
        return 2048 * world, 128 * world
    memory = memory_bytes or (gpu.memory_bytes if gpu else None) or 0
    name = gpu.name.lower() if gpu else ""
    if release.large_gpu_batches and memory >= 160 * GIB:
        return 16384, 1024
    if memory >= 70 * GIB and ("a100" not in name or not release.at_least("0.9.0")):
        return 8192, 1024
    return 2048, 256


def resolve_settings(
    geometry: ModelGeometry,
    arguments: Mapping[str, Any],
    *,
    release: Release,
    gpu: Gpu | None,
    gpu_memory_bytes: int | None,
    env: Mapping[str, str],
) -> Settings:
    """Every argument that the arithmetic reads, with the release's defaults.

    Raises:
        RefusedError: the engine does not start with these arguments.
    """
    unresolved = {name: value.reason for name, value in arguments.items() if isinstance(value, Unresolved)}

    def given(name: str) -> Any:
        value = arguments.get(name)
        return None if isinstance(value, Unresolved) else value

    reasons: list[str] = []
    cpu = gpu is not None and gpu.vendor == "cpu"
    capability = (gpu.compute_capability if gpu else None) or (9, 0)
    tp = _whole(given("tensor_parallel_size"), 1)
    pp = _whole(given("pipeline_parallel_size"), 1)
    if geometry.num_heads and geometry.num_heads % tp:
        raise RefusedError(f"{geometry.num_heads} attention heads are not divisible by --tensor-parallel-size {tp}")
    pooling = given("runner") == "pooling" or (given("runner") in (None, "auto") and geometry.runner == "pooling")
    if given("task") in ("embed", "embedding", "classify", "score", "reward"):
        pooling = True
    dtype = model_dtype(geometry, given("dtype"), capability, pooling=pooling, cpu=cpu)
    length, auto_fit = _model_length(geometry, given, env, reasons)
    speculative = given("speculative_config")
    speculative = speculative if isinstance(speculative, Mapping) else {}
    spec_tokens = _whole(speculative.get("num_speculative_tokens"), 0)

    pooler = given("pooler_config") or given("override_pooler_config")
    pooler = pooler if isinstance(pooler, Mapping) else {}
    chunked = given("enable_chunked_prefill")
    if chunked is None:
        chunked = _chunked_by_default(geometry, release, pooler, pooling=pooling, length=length)
    caching = given("enable_prefix_caching")
    if caching is None:
        caching = _caching_by_default(geometry, release, pooler, pooling=pooling)
    if geometry.is_encoder_decoder:
        chunked = False

    budget, sequences = batch_defaults(release, gpu, gpu_memory_bytes, tp * pp)
    if given("performance_mode") == "throughput":
        budget, sequences = budget * 2, sequences * 2
    explicit_budget, explicit_sequences = given("max_num_batched_tokens"), given("max_num_seqs")
    sequences = _whole(explicit_sequences, sequences)
    if explicit_budget is None:
        if not chunked:
            budget = max(length, budget)
        item = geometry.family.item_tokens
        if item is not None and release.item_floor and takes_images(geometry, given):
            budget = max(item, budget)
        budget = min(sequences * length, budget)
    else:
        budget = int(explicit_budget)
    if explicit_sequences is None:
        sequences = min(sequences, budget)
    most = geometry.family.most_sequences
    if most is not None and sequences >= 128:
        sequences = most

    hooked = geometry.family.most_tokens
    if hooked is not None and given("max_model_len") in (None, -1, "auto"):
        length = min(length, hooked)

    requested_async = given("async_scheduling")
    if requested_async is None:
        method = speculative.get("method")
        asynchronous = release.async_by_default and not pooling
        if method in ("ngram", "suffix", "medusa", "mlp_speculator"):
            asynchronous = False
    else:
        asynchronous = bool(requested_async)
    batches = pp + 1 if asynchronous else pp
    if not release.in_flight_batches:
        batches = 1

    stored = cache_dtype(geometry, given("kv_cache_dtype"), release)
    return Settings(
        tensor_parallel_size=tp,
        pipeline_parallel_size=pp,
        data_parallel_size=_whole(given("data_parallel_size"), 1),
        decode_context_parallel_size=_whole(given("decode_context_parallel_size"), 1),
        dtype=dtype,
        cache_dtype=stored,
        max_model_len=length,
        auto_fit=auto_fit,
        block_size=given("block_size"),
        prefix_caching=bool(caching),
        chunked_prefill=bool(chunked),
        max_num_batched_tokens=budget,
        max_num_seqs=sequences,
        async_scheduling=asynchronous,
        concurrent_batches=batches,
        utilization=float(given("gpu_memory_utilization") or release.utilization),
        cache_memory_bytes=given("kv_cache_memory_bytes"),
        blocks_override=given("num_gpu_blocks_override"),
        hybrid_manager=not given("disable_hybrid_kv_cache_manager"),
        mamba_dtype=str(given("mamba_cache_dtype") or "auto"),
        mamba_ssm_dtype=_ssm_dtype(geometry, given("mamba_ssm_cache_dtype")),
        mamba_mode=str(given("mamba_cache_mode") or "none"),
        mamba_block_size=given("mamba_block_size"),
        speculative_tokens=spec_tokens,
        speculative=speculative,
        skip_layers=_skip_layers(geometry, stored, given("kv_cache_dtype_skip_layers")),
        attention_backend=given("attention_backend") or env.get("VLLM_ATTENTION_BACKEND"),
        pooling=pooling,
        image_masks=takes_images(geometry, given),
        capability=capability,
        assumed_gpu=gpu is None or gpu.compute_capability is None,
        cpu=cpu,
        reasons=tuple(reasons),
        unresolved=unresolved,
    )


def takes_images(geometry: ModelGeometry, given: Callable[[str], Any]) -> bool:
    """Whether images attend in both directions, and may come (``ModelConfig.is_mm_prefix_lm``)."""
    if not geometry.is_mm_prefix or given("language_model_only"):
        return False
    limits = given("limit_mm_per_prompt")
    if not isinstance(limits, Mapping) or not limits:
        return True
    kinds = {kind for kind, key in _MODALITIES if geometry.config.get(key) is not None} | {"image"}
    return any(_limit(limits.get(kind, 999)) for kind in kinds)


_MODALITIES: Final = (("image", "vision_config"), ("video", "vision_config"), ("audio", "audio_config"))


def _limit(value: Any) -> int:
    if isinstance(value, Mapping):
        value = value.get("count", 999)
    return int(value)


def pipeline_stages(layers: int, size: int, release: Release, env: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """Decoder layers of each pipeline stage (``distributed/utils.py:get_pp_indices``).

    Raises:
        RefusedError: ``VLLM_PP_LAYER_PARTITION`` does not fit.
    """
    wish = env.get("VLLM_PP_LAYER_PARTITION")
    if wish:
        try:
            counts = [int(part) for part in wish.split(",")]
        except ValueError:
            raise RefusedError(f"VLLM_PP_LAYER_PARTITION={wish!r} is not a list of numbers") from None
        if len(counts) != size or sum(counts) != layers:
            raise RefusedError(f"VLLM_PP_LAYER_PARTITION={wish!r} does not split {layers} layers into {size} stages")
    else:
        counts = [layers // size] * size
        rest = layers % size
        if not release.balanced_stages:
            counts[-1] += rest
        else:
            for stage in range(2, rest + 2):
                counts[-stage] += 1
    ends = list(itertools.accumulate(counts))
    return tuple(zip([0, *ends[:-1]], ends, strict=True))


def _skip_layers(geometry: ModelGeometry, stored: str, requested: Any) -> tuple[str, ...]:
    """Layers kept at the model's dtype: those asked for, and the first and last two of TurboQuant and UltraQuant."""
    layers = {str(item) for item in requested or ()}
    if (stored.startswith("turboquant_") or stored == "ultraquant_4bit") and not geometry.is_hybrid:
        count = geometry.num_layers
        edge = min(2, count // 2)
        layers |= {str(index) for index in (*range(edge), *range(count - edge, count))}
    return tuple(sorted(layers))


def _ssm_dtype(geometry: ModelGeometry, requested: str | None) -> str:
    return requested if requested and requested != "auto" else geometry.ssm_dtype or "auto"


def _model_length(geometry: ModelGeometry, given: Any, env: Mapping[str, str], reasons: list[str]) -> tuple[int, bool]:
    """``config/model.py:_get_and_verify_max_len``: the effective length, and whether it is fitted to the memory."""
    requested = given("max_model_len")
    derived = geometry.derived_max_model_len
    window = geometry.declared_window
    if given("disable_sliding_window") and window and (derived is None or window < derived):
        derived = window
    auto = requested in (-1, "auto")
    if requested is not None and not auto:
        requested = int(requested)
        if derived is not None and requested > derived:
            most = geometry.text.get("model_max_length")
            if (not most or requested > most) and env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") not in ("1", "true", "True"):
                raise RefusedError(
                    f"--max-model-len {requested} is more than the {derived} tokens that config.json declares"
                )
        return requested, False
    if derived is None:
        return 2048, auto
    if geometry.auto_max_model_len and geometry.auto_max_model_len != geometry.derived_max_model_len:
        return min(geometry.auto_max_model_len, derived), auto
    return derived, auto


def _chunked_by_default(
    geometry: ModelGeometry, release: Release, pooler: Mapping[str, Any], *, pooling: bool, length: int
) -> bool:
    """``ModelConfig.is_chunked_prefill_supported``; V0 only for long contexts of text models."""
    if geometry.is_encoder_decoder:
        return False
    if release.engine == "V0":
        return length > 32768 and not geometry.is_multimodal and not pooling
    return not pooling or _summarizes_last(geometry, pooler)


def _caching_by_default(geometry: ModelGeometry, release: Release, pooler: Mapping[str, Any], *, pooling: bool) -> bool:
    """``ModelConfig.is_prefix_caching_supported``."""
    if release.engine == "V0" or geometry.is_encoder_decoder:
        return False
    if pooling:
        return _summarizes_last(geometry, pooler)
    if geometry.is_attention_free:
        return False
    return release.hybrid_caching if geometry.is_hybrid else True


def is_encoder_only(geometry: ModelGeometry) -> bool:
    """Whether a pooling model attends in both directions (``ModelConfig.attn_type``)."""
    return (
        geometry.family.encoder_only
        or geometry.family.default_seq_pooling == "CLS"
        or geometry.config.get("is_causal", True) is False
    )


def _summarizes_last(geometry: ModelGeometry, pooler: Mapping[str, Any]) -> bool:
    """Causal attention, and a summary that earlier tokens do not enter."""
    family = geometry.family
    sequence = pooler.get("seq_pooling_type") or pooler.get("pooling_type") or family.default_seq_pooling
    steps = pooler.get("tok_pooling_type") == "STEP" if pooler.get("tok_pooling_type") else family.pools_steps
    return not is_encoder_only(geometry) and str(sequence).upper() not in ("MEAN", "CLS") and not steps
