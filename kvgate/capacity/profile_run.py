"""The activations of vLLM's profile run: what the largest step leaves free of the memory that is asked for.

The run sends one step of ``max_num_batched_tokens`` tokens through the model and then samples for as many sequences as
the step can hold (``v1/worker/gpu_model_runner.py:profile_run`` and ``_dummy_sampler_run``; V0:
``worker/model_runner.py:profile_run``). Its peak is the larger of the two, above the encoder's cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from kvgate.capacity.encoder_profile import EncoderProfile, encoder_profile
from kvgate.capacity.release import Release
from kvgate.models.geometry import ModelGeometry
from kvgate.records import record

Sampler = Literal["sort", "flashinfer", "kernel", "fused", "none"]
Engine = Literal["V0", "V1"]
_HALF: Final = 2
#: Defaults of ``max_num_seqs``, where V0 serves a release of V1.
_V0_SEQUENCES: Final = 256
_V1_SEQUENCES: Final = 1024
#: Tokens that a mixture of experts takes at once (``VLLM_FUSED_MOE_CHUNK_SIZE``).
_MOE_CHUNK: Final = 32_768
#: Widths of the residual stream alive at once: the residual, the layer's input and its output.
_STREAMS: Final = 3
#: Tokens of context that latent attention expands at once (``attention/backends/mla/common.py``).
_MLA_WORKSPACE: Final = 65_536


@record
class ProfileRun:
    """The parts of the profile run's peak on one rank, before the fitted coefficients.

    Attributes:
        engine: the one that the release runs this model with.
        tokens: of the step; ``sequences`` that it samples for.
        sampler: how the release samples: by sorting the vocabulary (``sort``), by FlashInfer's rejection sampling
            (``flashinfer``), by Triton's kernels on float32 logits (``kernel``), in one kernel on the logits as they
            are (``fused``), or not at all (``none``).
        maybe_flashinfer: the sampler sorts unless FlashInfer is installed, which the arguments do not say.
        logits: sequences x vocabulary.
        hidden_bytes: the step's hidden states, which the sampler finds allocated.
        mlp_bytes: the widest MLP's activations; ``residual_bytes`` those of the residual stream's width.
        experts: the widest MLP is a mixture of experts.
        latent_bytes: context that latent attention expands.
        encoder: the encoder's profile, None where there is none.
    """

    engine: Engine
    tokens: int
    sequences: int
    sampler: Sampler
    maybe_flashinfer: bool
    logits: int
    hidden_bytes: int
    mlp_bytes: int
    residual_bytes: int
    experts: bool
    latent_bytes: int
    encoder: EncoderProfile | None


def describe_profile_run(
    geometry: ModelGeometry, resolved: Mapping[str, Any], release: Release, env: Mapping[str, str]
) -> ProfileRun:
    """The parts of the profile run."""
    engine = engine_of(geometry, resolved, release, env)
    tokens = int(resolved["max_num_batched_tokens"])
    sequences = min(int(resolved["max_num_seqs"]), tokens)
    if engine == "V0" and release.engine == "V1" and sequences == _V1_SEQUENCES:
        sequences = _V0_SEQUENCES
    tensor = int(resolved.get("tensor_parallel_size") or 1)
    if engine == "V0" and geometry.is_multimodal:
        # V0 profiles with whole multimodal prompts: each sequence holds an item of the largest size.
        probe = encoder_profile(geometry, resolved, release, tokens, True)
        if probe is not None and probe.item_tokens:
            sequences = max(1, min(sequences, tokens // probe.item_tokens))
    inner, experts = _mlp_elements(geometry, resolved, tensor)
    attention = _attention_elements(geometry, tensor)
    if attention > inner:
        inner, experts = attention, False
    held = min(tokens, _MOE_CHUNK) if experts else tokens
    # Hyper connections carry several residual streams, in float32.
    copies = int(geometry.text.get("hc_mult") or geometry.text.get("hc_count") or 1)
    streams = _STREAMS * (2 * copies if copies > 1 else 1) + (1 if geometry.is_multimodal else 0)
    latent = 0
    if geometry.uses_mla and engine == "V1":
        text = geometry.text
        width = int(text.get("qk_nope_head_dim") or 0) + int(text.get("v_head_dim") or 0)
        latent = _MLA_WORKSPACE * (geometry.num_heads // tensor) * width * _HALF
    encoder = None
    if geometry.is_multimodal:
        encoder = encoder_profile(geometry, resolved, release, tokens, engine == "V0")
    sampler = sampler_of(geometry, resolved, release, env)
    return ProfileRun(
        engine=engine,
        tokens=tokens,
        sequences=sequences,
        sampler=sampler,
        maybe_flashinfer=sampler == "sort" and engine == "V1" and not release.at_least("0.11.1"),
        logits=sequences * geometry.vocab_size,
        hidden_bytes=tokens * geometry.hidden_size * _HALF,
        mlp_bytes=held * inner * _HALF,
        residual_bytes=tokens * streams * geometry.hidden_size * _HALF,
        experts=experts,
        latent_bytes=latent,
        encoder=encoder,
    )


def _attention_elements(geometry: ModelGeometry, tensor: int) -> int:
    """Elements per token of queries, keys, values and the attention's output."""
    heads = -(-geometry.num_heads // tensor)
    if geometry.uses_mla:
        text = geometry.text
        if "compress_ratios" in text:  # DeepSeek V4: the latent is the head
            return 2 * heads * geometry.head_size
        nope, rope, value = (int(text.get(key) or 0) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
        return heads * (nope + rope + value)
    kv_heads = max(1, geometry.num_kv_heads // tensor)
    return 2 * (heads + kv_heads) * geometry.head_size


def _mlp_elements(geometry: ModelGeometry, resolved: Mapping[str, Any], tensor: int) -> tuple[int, bool]:
    """Elements per token of the widest MLP: gate and up projection beside their product."""
    text = geometry.text
    dense = 3 * -(-geometry.intermediate_size // tensor)
    if not geometry.num_experts:
        if not geometry.intermediate_size:
            # A recurrent mixer's projection stands in for the MLP.
            inner = int(text.get("d_inner") or 2 * geometry.hidden_size)
            return 3 * -(-inner // tensor), False
        return dense, False
    inner = geometry.moe_intermediate_size or geometry.intermediate_size
    if not resolved.get("enable_expert_parallel"):
        inner = -(-inner // tensor)
    top = max(1, geometry.num_experts_per_token)
    mixture = top * (max(2 * inner, geometry.hidden_size) + inner)
    shared = int(text.get("shared_expert_intermediate_size") or 0) or int(text.get("n_shared_experts") or 0) * inner
    mixture += 3 * -(-shared // tensor)
    return (mixture, True) if mixture > dense or not geometry.moe_intermediate_size else (max(dense, mixture), False)


# --- what the release runs


def engine_of(geometry: ModelGeometry, resolved: Mapping[str, Any], release: Release, env: Mapping[str, str]) -> Engine:
    """V0 or V1: between 0.8 and 0.10 V1 falls back to V0 for what it lacks.

    Source: ``engine/arg_utils.py:_is_v1_supported_oracle`` of those releases.
    """
    if release.engine == "V0":
        return "V0"
    if release.at_least("0.11.0"):
        return "V1"
    if env.get("VLLM_USE_V1") == "0":
        return "V0"
    if resolved.get("rocm") and not release.at_least("0.9.2"):
        return "V0"
    capability = resolved.get("capability")
    if capability is not None and not resolved.get("assumed_gpu") and tuple(capability) < (8, 0):
        return "V0"
    if resolved.get("pooling") and not release.at_least("0.9.2"):
        return "V0"
    if resolved.get("chunked_prefill") is False and not resolved.get("pooling") and not release.at_least("0.9.0"):
        return "V0"  # V1 of these releases prefills in chunks whatever is asked
    methods = {geometry.quantization_method, resolved.get("quantization"), resolved.get("load_format")}
    if "gguf" in methods and not release.at_least("0.9.0"):
        return "V0"
    return "V0" if "bitsandbytes" in methods and not release.at_least("0.8.3") else "V1"


_SECOND_RUNNER: Final = (
    # From the release on: architectures, whether every model without experts, whether quantized ones too
    # (``config/vllm.py:_is_default_v2_model_runner_model``).
    ("0.22.0", frozenset({"Qwen3ForCausalLM"}), False, False),
    ("0.23.0", frozenset({"Qwen3ForCausalLM", "LlamaForCausalLM", "MistralForCausalLM"}), False, False),
    (
        "0.24.0",
        frozenset(
            {"Qwen3ForCausalLM", "LlamaForCausalLM", "MistralForCausalLM", "DeepseekV2ForCausalLM",
             "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM"}
        ),
        False,
        True,
    ),
    ("0.25.0", frozenset({"DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM"}), True, True),
    (
        "0.28.0",
        frozenset(
            {"DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM", "DeepseekV4ForCausalLM",
             "InklingForCausalLM", "InklingForConditionalGeneration", "KimiK3ForConditionalGeneration",
             "LongcatFlashNgramForCausalLM"}
        ),
        True,
        True,
    ),
)  # fmt: skip


def captured_graphs(resolved: Mapping[str, Any], *, full: bool = True) -> int:
    """Number of CUDA graphs: one a batch size for pieces of the model, and for steps of decoding whole ones.

    Source: ``config/vllm.py:_set_cudagraph_sizes``, ``v1/cudagraph_dispatcher.py:initialize_cudagraph_keys``.
    """
    sequences = int(resolved["max_num_seqs"])
    query = 1 + int(resolved.get("speculative_tokens") or 0)
    wished = resolved.get("max_cudagraph_capture_size")
    largest = min(int(wished or min(2 * query * sequences, 512)), int(resolved["max_num_batched_tokens"]))
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)]
    pieces = [size for size in sizes if size <= largest]
    whole = [size for size in pieces if query <= size <= query * sequences]
    return len(pieces) + (len(whole) if full else 0)


def second_runner(
    geometry: ModelGeometry, resolved: Mapping[str, Any], release: Release, env: Mapping[str, str]
) -> bool:
    """Whether the release serves the model with its second model runner (``config/vllm.py:use_v2_model_runner``)."""
    wish = env.get("VLLM_USE_V2_MODEL_RUNNER")
    if wish is not None and release.at_least("0.12.0"):
        return wish not in ("0", "")
    if release.at_least("0.29.0"):
        return True
    rule = next((rule for rule in reversed(_SECOND_RUNNER) if release.at_least(rule[0])), None)
    if rule is None or resolved.get("pooling"):
        return False
    if str((resolved.get("speculative") or {}).get("method") or "") == "dspark" and release.at_least("0.25.0"):
        return True
    _, listed, dense, quantized = rule
    named = geometry.architecture in listed
    if not quantized and (geometry.quantization_config or resolved.get("quantization") or geometry.num_experts):
        return False
    if named:
        return True
    return dense and not (geometry.num_experts or geometry.is_hybrid or geometry.is_attention_free)


def sampler_of(
    geometry: ModelGeometry, resolved: Mapping[str, Any], release: Release, env: Mapping[str, str]
) -> Sampler:
    """How the profile run samples."""
    if resolved.get("pooling"):
        return "none"
    wish = env.get("VLLM_USE_FLASHINFER_SAMPLER")
    if second_runner(geometry, resolved, release, env):
        return "fused"
    if release.at_least("0.17.0"):
        return "kernel"
    # FlashInfer's sampler served where the package was installed, as in the project's images; later on request.
    asked = wish not in ("0", "") if wish is not None else bool(resolved.get("official_image"))
    if engine_of(geometry, resolved, release, env) == "V1" and asked:
        return "flashinfer" if wish is not None or not release.at_least("0.11.1") else "sort"
    return "sort"
