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
from kvgate.models.geometry import ModelGeometry, context_lengths
from kvgate.records import record
from kvgate.source.text import Unresolved

GIB: Final = 1 << 30
ASSUMED_CAPABILITY: Final = (9, 0)

ELEMENT_BYTES: Final[Mapping[str, int]] = {
    "float32": 4, "float": 4, "half": 2, "float16": 2, "bfloat16": 2,
    "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1, "fp8_ds_mla": 1, "nvfp4_ds_mla": 1, "int8": 1, "uint8": 1,
    "int4_per_token_head": 1, "int8_per_token_head": 1, "fp8_per_token_head": 1, "turboquant_k8v4": 1,
    "turboquant_4bit_nc": 1, "turboquant_k3v4_nc": 1, "turboquant_3bit_nc": 1,
    "nvfp4": 1, "nvfp4_4over6": 1, "octave_k3v4": 1, "octave_k3v3": 1, "octave_k3v3_compact": 1, "ultraquant_4bit": 1,
}  # fmt: skip
_DTYPES: Final = {"half": "float16", "float": "float32"}
# Model types whose half precision overflows.
_NO_FLOAT16: Final = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})


@record
class Settings:
    """The effective arguments that the arithmetic uses.

    ``replay_window`` are the inputs that recurrent layers keep to replay (``--use-replayssm``), 0 without.
    ``host_resident``: sparse attention's cache is in host memory (HiSparse).
    ``unresolved`` maps the arguments whose value the files do not determine to the reason. ``refusal`` says why the
    engine does not start where the arithmetic goes on: the pool is the same once the length is mended.
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
    reserves_prompt: bool
    watermark: float
    utilization: float
    cache_memory_bytes: int | None
    blocks_override: int | None
    hybrid_manager: bool
    mamba_dtype: str
    mamba_ssm_dtype: str
    mamba_mode: str
    mamba_block_size: int | None
    speculative_tokens: int
    replay_window: int
    speculative: Mapping[str, Any]
    skip_layers: tuple[str, ...]
    attention_backend: str | None
    pooling: bool
    image_masks: bool
    capability: Capability
    assumed_gpu: bool
    cpu: bool
    rocm: bool
    aiter: bool
    host_resident: bool = False
    unresolved: Mapping[str, str] = field(default_factory=dict)
    refusal: str | None = None

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


EAGLE_METHODS: Final = frozenset({"eagle", "eagle3", "mtp", "dflash", "extract_hidden_states"})


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
    if method.startswith("modelopt") and release.at_least("0.14.0"):
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
            known = {"fp8": "fp8_e4m3", **({"nvfp4": "nvfp4"} if release.at_least("0.20.0") else {})}
            return known.get(algorithm.lower(), "auto")
        return "auto"
    if not release.at_least("0.15.0"):
        return "auto"
    if method == "compressed-tensors" and quantization.get("kv_cache_scheme") is not None and not geometry.uses_mla:
        return "fp8"
    return "auto"


def batch_defaults(release: Release, gpu: Gpu | None, memory_bytes: int | None, world: int) -> tuple[int, int]:
    """Default token budget and sequences of ``vllm serve`` (``EngineArgs.get_batch_defaults``)."""
    if gpu is not None and gpu.vendor == "cpu":
        return 2048 * world, 128 * world
    if release.engine == "V0":
        return 2048, 256
    memory = memory_bytes or (gpu.memory_bytes if gpu else None) or 0
    name = gpu.name.lower() if gpu else ""
    if release.large_gpu_batches and memory >= 160 * GIB:
        return 16384, 1024
    if not release.at_least("0.8.5"):
        large = "h100" in name or "h200" in name
        return 8192 if large else 2048, 1024 if large or not release.at_least("0.8.4") else 256
    large = memory >= 70 * GIB and not ("a100" in name and release.at_least("0.9.0"))
    # The management library reports no memory for a GB10; from 0.33 on a rule of the release says the same.
    if gpu is not None and gpu.compute_capability == (12, 1):
        large = False
    return (8192, 1024) if large else (2048, 256)


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

    Args:
        release: the switches of the engine the server gets (:func:`kvgate.capacity.engine.effective_release`).

    Raises:
        RefusedError: the engine does not start with these arguments.
    """
    unresolved = {name: value.reason for name, value in arguments.items() if isinstance(value, Unresolved)}

    def given(name: str) -> Any:
        value = arguments.get(name)
        return None if isinstance(value, Unresolved) else value

    cpu = gpu is not None and gpu.vendor == "cpu"
    capability = (gpu.compute_capability if gpu else None) or ASSUMED_CAPABILITY
    tp = _whole(given("tensor_parallel_size"), 1)
    pp = _whole(given("pipeline_parallel_size"), 1)
    if geometry.num_heads and geometry.num_heads % tp:
        raise RefusedError(f"{geometry.num_heads} attention heads are not divisible by --tensor-parallel-size {tp}")
    pooling = is_pooling(geometry, given)
    dtype = model_dtype(geometry, given("dtype"), capability, pooling=pooling, cpu=cpu)
    derived, preferred = _derived_lengths(geometry, release, given)
    length, auto_fit = _model_length(given("max_model_len"), derived, preferred, release)
    refusal = _refused_length(geometry, given("max_model_len"), derived, env) or _refused_dtype(
        geometry, release, given, gpu
    )
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
    caching = bool(caching) and geometry.family.caches_prefixes and _caches_states(geometry, release)
    if release.engine == "V0" and geometry.is_multimodal:
        caching = False
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
        if release.engine == "V0":
            budget = max(budget, 32768 if pooling else 0, 5120 if geometry.is_multimodal else 0)
        item = geometry.family.item_tokens
        if item is not None and release.item_floor and takes_images(geometry, given):
            budget = max(item, budget)
        budget = min(sequences * length, budget)
    else:
        budget = int(explicit_budget)
    refusal = refusal or _refused_budget(geometry, release, given, chunked=bool(chunked), length=length)
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
    if cpu:
        asynchronous = False
    batches = pp + 1 if asynchronous else pp
    if not release.in_flight_batches:
        batches = 1

    stored = cache_dtype(geometry, given("kv_cache_dtype"), release)
    if stored == "fp8_e5m2" and geometry.quantization_method == "fp8":
        raise RefusedError("an fp8 checkpoint takes no fp8_e5m2 KV cache")
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
        reserves_prompt=release.reserve_full_prompt and given("scheduler_reserve_full_isl") is not False,
        watermark=float(given("watermark") or 0.0),
        utilization=float(given("gpu_memory_utilization") or release.utilization),
        cache_memory_bytes=given("kv_cache_memory_bytes"),
        blocks_override=given("num_gpu_blocks_override"),
        hybrid_manager=_hybrid_manager(geometry, release, given, env),
        mamba_dtype=str(given("mamba_cache_dtype") or "auto"),
        mamba_ssm_dtype=_ssm_dtype(geometry, given("mamba_ssm_cache_dtype"), release, cpu=cpu),
        mamba_mode=str(given("mamba_cache_mode") or "none"),
        mamba_block_size=given("mamba_block_size"),
        speculative_tokens=spec_tokens,
        replay_window=_replay_window(geometry, given, spec_tokens),
        speculative=speculative,
        skip_layers=_skip_layers(geometry, stored, given("kv_cache_dtype_skip_layers")),
        attention_backend=given("attention_backend") or env.get("VLLM_ATTENTION_BACKEND"),
        pooling=pooling,
        image_masks=takes_images(geometry, given),
        capability=capability,
        assumed_gpu=gpu is None or (gpu.compute_capability is None and gpu.vendor == "nvidia"),
        cpu=cpu,
        rocm=gpu is not None and gpu.vendor == "amd",
        aiter=env.get("VLLM_ROCM_USE_AITER") in ("1", "true", "True"),
        host_resident=_is_host_resident(given),
        unresolved=unresolved,
        refusal=refusal,
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
    ends[-1] = 1 << 30  # with the layers of drafts
    return tuple(zip([0, *ends[:-1]], ends, strict=True))


def _skip_layers(geometry: ModelGeometry, stored: str, requested: Any) -> tuple[str, ...]:
    """Layers kept at the model's dtype: those asked for, and the first and last two of TurboQuant and UltraQuant."""
    layers = {str(item) for item in requested or ()}
    if (stored.startswith("turboquant_") or stored == "ultraquant_4bit") and not geometry.is_hybrid:
        count = geometry.num_layers
        edge = min(2, count // 2)
        layers |= {str(index) for index in (*range(edge), *range(count - edge, count))}
    return tuple(sorted(layers))


def _is_host_resident(given: Callable[[str], Any]) -> bool:
    """HiSparse, by its own setting or by its connector (``config/attention.py``, since 0.33)."""
    attention, transfer = given("attention_config"), given("kv_transfer_config")
    if isinstance(attention, Mapping) and attention.get("hisparse_config") is not None:
        return True
    return "HiSparseConnector" in str(transfer.get("kv_connector")) if isinstance(transfer, Mapping) else False


def _replay_window(geometry: ModelGeometry, given: Callable[[str], Any], speculative_tokens: int) -> int:
    """Inputs that each state's ring holds (``mamba_utils.py:append_replayssm_ring``, since 0.27).

    Raises:
        RefusedError: the model's recurrent layers have no such kernel.
    """
    if given("use_replayssm") is not True:
        return 0
    formulas = {layer.state.formula for layer in geometry.layers if layer.state is not None}
    if "NemotronH" not in geometry.text_architecture and "kimi_delta" not in formulas:
        raise RefusedError(f"--use-replayssm is not supported for architecture {geometry.architecture!r}")
    verified = 1 + speculative_tokens if str(given("mamba_backend") or "").lower() == "flashinfer" else 0
    return _whole(given("replayssm_buffer_len"), 16) + verified


def _ssm_dtype(geometry: ModelGeometry, requested: str | None, release: Release, *, cpu: bool) -> str:
    if requested and requested != "auto":
        return requested
    if cpu:
        return "float32"
    return geometry.ssm_dtype or "auto" if release.at_least(geometry.family.ssm_dtype_since) else "auto"


# KV connectors that serve several block tables (subclasses of ``SupportsHMA``).
_HYBRID_CONNECTORS: Final = frozenset(
    {
        "NixlConnector", "NixlPullConnector", "NixlPushConnector", "MooncakeConnector", "MooncakeStoreConnector",
        "ExampleHiddenStatesConnector", "MoRIIOConnector", "SimpleCPUOffloadConnector", "OffloadingConnector",
        "DecodeBenchConnector",
    }
)  # fmt: skip


def _hybrid_manager(
    geometry: ModelGeometry, release: Release, given: Callable[[str], Any], env: Mapping[str, str]
) -> bool:
    """Whether layers of different kinds keep their own block tables (``config/vllm.py``)."""
    wish = given("disable_hybrid_kv_cache_manager")
    if wish:
        return False
    if any(layer.chunk is not None for layer in geometry.layers):
        allowed = env.get("VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE")
        if not release.chunked_hybrid if allowed is None else allowed in ("0", "false", "False"):
            return False
        speculative = given("speculative_config")
        if isinstance(speculative, Mapping) and speculative.get("method") in EAGLE_METHODS:
            return False
    transfer = given("kv_transfer_config")
    if wish is None and isinstance(transfer, Mapping) and transfer:
        return release.at_least("0.22.0") and _serves_groups(transfer)
    events = given("kv_events_config")
    return not (wish is None and events and not release.at_least("0.20.0"))


def _serves_groups(transfer: Mapping[str, Any]) -> bool:
    name = transfer.get("kv_connector")
    if name == "MultiConnector":
        extra = transfer.get("kv_connector_extra_config")
        parts = extra.get("connectors") if isinstance(extra, Mapping) else None
        return bool(parts) and all(isinstance(part, Mapping) and _serves_groups(part) for part in parts or ())
    return name in _HYBRID_CONNECTORS


def _derived_lengths(
    geometry: ModelGeometry, release: Release, given: Callable[[str], Any]
) -> tuple[int | None, int | None]:
    """The longest request that the model's files allow, and the length that they prefer."""
    derived, preferred = context_lengths(geometry.text, yarn_scales=not release.at_least("0.30.0"))
    derived = _declared_by_files(geometry, given, derived)
    window = geometry.declared_window
    if given("disable_sliding_window") and window and (derived is None or window < derived):
        derived = window
    return derived, preferred


def _model_length(requested: Any, derived: int | None, preferred: int | None, release: Release) -> tuple[int, bool]:
    """``config/model.py:_get_and_verify_max_len``: the effective length, and whether it is fitted to the memory."""
    auto = requested in (-1, "auto")
    if requested is not None and not auto:
        return int(requested), False
    if derived is None:
        return 2048, auto
    if preferred is not None and release.at_least("0.11.1"):
        return min(preferred, derived), auto
    return derived, auto


def _refused_length(geometry: ModelGeometry, requested: Any, derived: int | None, env: Mapping[str, str]) -> str | None:
    """Why the engine refuses ``--max-model-len``, as the same function of vLLM does; None where it does not."""
    if requested in (None, -1, "auto") or env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") in ("1", "true", "True"):
        return None
    most = geometry.text.get("model_max_length")
    if derived is None or int(requested) <= derived or (most and int(requested) <= most):
        return None
    return f"--max-model-len {requested} is more than the {derived} tokens that config.json declares"


def _refused_dtype(
    geometry: ModelGeometry, release: Release, given: Callable[[str], Any], gpu: Gpu | None
) -> str | None:
    """What the engine refuses of ``--dtype`` (``_check_valid_dtype``, ``check_if_supports_dtype``)."""
    asked = given("dtype")
    dtype = _DTYPES.get(asked, asked)
    if dtype == "float16" and geometry.model_type in _NO_FLOAT16 and release.at_least("0.9.1"):
        return f"vLLM does not run {geometry.model_type} in float16: its numbers overflow"
    if dtype == "bfloat16" and gpu is not None and gpu.vendor == "nvidia":
        capability = gpu.compute_capability
        if capability is not None and capability < (8, 0):
            return f"bfloat16 needs compute capability 8.0, the {gpu.name} has {capability[0]}.{capability[1]}"
    return None


def _refused_budget(
    geometry: ModelGeometry, release: Release, given: Callable[[str], Any], *, chunked: bool, length: int
) -> str | None:
    """What the engine refuses of ``--max-num-batched-tokens`` and ``--enable-expert-parallel``."""
    budget = given("max_num_batched_tokens")
    if budget is not None and int(budget) < length and not chunked:
        return f"--max-num-batched-tokens {budget} is less than the {length} tokens of a prompt that is not chunked"
    if given("enable_expert_parallel") is True and not geometry.num_experts and release.at_least("0.8.5"):
        return "--enable-expert-parallel needs a model with experts"
    return None


_SENTENCE_FILES: Final = (
    "sentence_bert_config.json", "sentence_roberta_config.json", "sentence_distilbert_config.json",
    "sentence_camembert_config.json", "sentence_albert_config.json", "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)  # fmt: skip


def _declared_by_files(geometry: ModelGeometry, given: Callable[[str], Any], derived: int | None) -> int | None:
    """What a sentence encoder's own files say of its length (``transformers_utils/config.py``)."""
    if is_pooling(geometry, given) and geometry.config.get("position_embedding_type") == "absolute":
        most = geometry.files.get("tokenizer_config.json", {}).get("model_max_length")
        if isinstance(most, (int, float)):
            derived = int(most) if derived is None else min(derived, int(most))
    for name in _SENTENCE_FILES:
        declared = geometry.files.get(name, {})
        if "max_seq_length" in declared and "do_lower_case" in declared:
            return int(declared["max_seq_length"])
    return derived


def is_pooling(geometry: ModelGeometry, given: Callable[[str], Any]) -> bool:
    """Whether the server embeds or classifies instead of generating (``ModelConfig._get_runner_type``)."""
    if given("task") in ("embed", "embedding", "classify", "score", "reward"):
        return True
    if given("convert") in ("embed", "classify", "reward"):
        return True
    runner = given("runner")
    if runner not in (None, "auto"):
        return bool(runner == "pooling")
    # Repositories of sentence encoders name their modules beside the configuration.
    return geometry.runner == "pooling" or "config_sentence_transformers.json" in geometry.files


def _chunked_by_default(
    geometry: ModelGeometry, release: Release, pooler: Mapping[str, Any], *, pooling: bool, length: int
) -> bool:
    """``ModelConfig.is_chunked_prefill_supported``; V0 only for long contexts of text models."""
    if geometry.is_encoder_decoder:
        return False
    if release.engine == "V0":
        latent = geometry.uses_mla and release.at_least("0.7.1")
        windows = geometry.declared_window is not None
        return length > 32768 and not (geometry.is_multimodal or pooling or latent or windows)
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


def caches_every_state(geometry: ModelGeometry) -> bool:
    """Whether the recurrent kernels can keep the state at every block boundary (``supports_mamba_prefix_caching``)."""
    return all(layer.state is None or layer.state.formula in ("mamba1", "mamba2") for layer in geometry.layers)


def _caches_states(geometry: ModelGeometry, release: Release) -> bool:
    """Whether a release can cache prefixes of a model with recurrent layers at all."""
    if not any(layer.kind == "recurrent" for layer in geometry.layers) or release.state_pages == "mode":
        return True
    return release.state_pages == "length" and caches_every_state(geometry)


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
