"""The budget's terms by hand, and what is unknown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.capacity.budget import GIB, BudgetInputs, calibration, describe_budget, estimate_budget
from kvgate.capacity.encoder_profile import limited_to_none
from kvgate.capacity.prediction import Memory, Quantity
from kvgate.capacity.profile_run import engine_of, sampler_of, second_runner
from kvgate.capacity.release import release_of
from kvgate.hardware.catalogue import find_gpu
from kvgate.models.geometry import ModelGeometry, read_geometry
from kvgate.models.model import Model

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
QWEN3_MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
QWEN2_VL: dict[str, Any] = {
    "architectures": ["Qwen2VLForConditionalGeneration"],
    "model_type": "qwen2_vl",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vision_config": {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "hidden_size": 3584, "num_heads": 16},
}
RESOLVED: dict[str, Any] = {
    "utilization": 0.9,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "dtype": "bfloat16",
    "max_model_len": 16000,
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 1024,
    "speculative": {},
}


def inputs_of(config: dict[str, Any], version: str = "0.10.0", gpu: str | None = "H100", **more: Any) -> BudgetInputs:
    env = more.pop("env", {})
    weight_bytes = more.pop("weight_bytes", None)
    model = Model(None, config, "mapping")
    found = find_gpu(gpu) if gpu else None
    total = more.pop("total", Quantity.exact(found.memory_bytes) if found and found.memory_bytes else None)
    return BudgetInputs(
        geometry=read_geometry(model),
        model=model,
        resolved={**RESOLVED, **more},
        version=version,
        gpu=found,
        total=total or Quantity.unknown(),
        weight_bytes=weight_bytes,
        env=env,
    )


def budget(config: dict[str, Any], version: str = "0.10.0", gpu: str | None = "H100", **more: Any) -> Memory:
    return estimate_budget(inputs_of(config, version, gpu, **more))


def number(quantity: Quantity) -> int:
    assert quantity.bytes is not None
    return quantity.bytes


def geometry(config: dict[str, Any]) -> ModelGeometry:
    return read_geometry(Model(None, config, "mapping"))


# --- the waterfall


def test_terms_add_up() -> None:
    memory = budget(LLAMA)
    terms = (memory.weights, memory.activation_peak, memory.non_torch, memory.cuda_graphs)
    rest = number(memory.requested) - sum(number(term) for term in terms)
    assert memory.kv_cache_available.bytes == rest
    assert memory.kv_cache_available.basis == "calibrated"


@pytest.mark.parametrize(("version", "expected"), [("0.10.2", 900_000_000), ("0.11.0", 900_000_001)])
def test_requested_memory_is_rounded_as_the_release_does(version: str, expected: int) -> None:
    # 1,000,000,001 x 0.9 = 900,000,000.9: int() before 0.11, ceil() from there on.
    memory = budget(LLAMA, version, total=Quantity.exact(1_000_000_001))
    assert memory.requested.bytes == expected


def test_weights_are_parameters_and_buffers() -> None:
    memory = budget(LLAMA)
    # 8,030,261,248 parameters of 2 bytes; a rotary table of 131,072 positions x 128 elements x 2 bytes. What torch's
    # allocator adds is less than 0.1%.
    whole = 2 * 8_030_261_248 + 131_072 * 128 * 2
    assert memory.parameters_bytes == 2 * 8_030_261_248
    assert whole <= number(memory.weights) < 1.001 * whole


def test_measured_weights_win() -> None:
    memory = budget(LLAMA, weight_bytes=17 * GIB)
    assert (memory.weights.bytes, memory.weights.low, memory.weights.basis) == (17 * GIB, 17 * GIB, "measured")


def test_cpu_offload_frees_its_bytes() -> None:
    freed = number(budget(LLAMA).weights) - number(budget(LLAMA, cpu_offload_gb=4).weights)
    assert freed == 4 * GIB


def test_lora_slots_by_hand() -> None:
    # Per layer and rank 1, in + out elements of q, k, v, o, gate, up, down:
    per_layer = (4096 + 4096) + 2 * (4096 + 1024) + (4096 + 4096) + 2 * (4096 + 14336) + (14336 + 4096)
    extra = number(budget(LLAMA, enable_lora=True, max_loras=2, max_lora_rank=16).weights) - number(
        budget(LLAMA).weights
    )
    assert extra == 2 * 16 * 32 * per_layer * 2


def test_two_slots_take_twice_one() -> None:
    bare, one, two = (number(budget(LLAMA, enable_lora=bool(slots), max_loras=slots).weights) for slots in (0, 1, 2))
    assert two - bare == 2 * (one - bare) > 0


# --- the profile run


def test_sampler_by_hand() -> None:
    # 1024 sequences x 128,256 entries x the calibrated bytes per entry, beside the hidden states of 8192 tokens.
    expected = 1024 * 128_256 * calibration()["sampler"]["sort"] + 8192 * 4096 * 2
    memory = budget(LLAMA)
    assert memory.activation_peak.bytes == int(expected)
    assert 38 < calibration()["sampler"]["sort"] < 39
    # An H100 with this model and these arguments printed 4.76 GiB.
    assert abs(number(memory.activation_peak) / GIB - 4.76) < 0.05


def test_forward_pass_by_hand() -> None:
    # One sequence samples nearly nothing: gate, up and their product (3 x 14336) and the residual stream (3 x 4096).
    factor = calibration()["forward"]["dense"]
    expected = 8192 * 2 * (factor * 3 * 14336 + 3 * 4096)
    assert budget(LLAMA, max_num_seqs=1).activation_peak.bytes == int(expected)


def test_experts_by_hand() -> None:
    # 8 experts per token: gate and up (2 x 768) are narrower than the output (2048); their product has 768.
    factor = calibration()["forward"]["experts"]
    expected = 8192 * 2 * (factor * 8 * (2048 + 768) + 3 * 2048)
    assert budget(QWEN3_MOE, max_num_seqs=1).activation_peak.bytes == int(expected)


def test_sampler_of_few_sequences_frees_memory() -> None:
    many, few = budget(LLAMA, max_num_seqs=1024), budget(LLAMA, max_num_seqs=128)
    assert number(few.kv_cache_available) - number(many.kv_cache_available) > 3 * GIB


def test_pooling_does_not_sample() -> None:
    assert number(budget(LLAMA, pooling=True).activation_peak) < 1.5 * GIB


def test_token_budget_bounds_the_sequences() -> None:
    run = describe_budget(inputs_of(LLAMA, max_num_batched_tokens=100))
    assert run is not None
    assert run.run.sequences == 100


def test_encoder_cache_by_hand() -> None:
    parts = describe_budget(inputs_of(QWEN2_VL, "0.9.2"))
    assert parts is not None
    assert parts.run.encoder is not None
    # An image of 12.8 million pixels is 16,384 embeddings of 3584 elements.
    assert parts.run.encoder.item_tokens == 16_384
    assert parts.run.encoder.cache_bytes == 16_384 * 3584 * 2
    # Four patches per embedding, 2 x 5120 elements in the MLP and 6.7 x 1280 beside it.
    assert parts.run.encoder.forward_bytes == int(4 * 16_384 * (2 * 5120 + 6.7 * 1280) * 2)


@pytest.mark.parametrize(
    "arguments",
    [
        {"language_model_only": True},
        {"skip_mm_profiling": True},
        {"limit_mm_per_prompt": {"image": 0, "video": 0}},
        {"limit_mm_per_prompt": {"image": {"count": 0}, "video": 0}},
    ],
)
def test_no_encoder_profile(arguments: dict[str, Any]) -> None:
    parts = describe_budget(inputs_of(QWEN2_VL, **arguments))
    assert parts is not None
    assert parts.run.encoder is None


def test_limits_above_nothing_keep_the_profile() -> None:
    assert not limited_to_none({"image": 2, "video": 0})
    assert not limited_to_none({})
    assert not limited_to_none(None)


def test_towers_limited_to_nothing_are_not_loaded() -> None:
    none: dict[str, Any] = {"limit_mm_per_prompt": {"image": 0, "video": 0}}
    whole, bare = budget(QWEN2_VL, "0.12.0"), budget(QWEN2_VL, "0.12.0", **none)
    # Qwen2-VL's tower has 0.676 billion parameters.
    assert 1.2 * GIB < number(whole.weights) - number(bare.weights) < 1.3 * GIB
    assert number(budget(QWEN2_VL, "0.9.2", **none).weights) == number(budget(QWEN2_VL, "0.9.2").weights)


# --- what a release runs


@pytest.mark.parametrize(
    ("version", "resolved", "env", "engine"),
    [
        ("0.7.3", {}, {}, "V0"),
        ("0.8.2", {}, {}, "V1"),
        ("0.8.2", {}, {"VLLM_USE_V1": "0"}, "V0"),
        ("0.8.2", {"load_format": "bitsandbytes"}, {}, "V0"),
        ("0.8.3", {"load_format": "bitsandbytes"}, {}, "V1"),
        ("0.9.1", {"pooling": True}, {}, "V0"),
        ("0.9.1", {"capability": (7, 5)}, {}, "V0"),
        ("0.9.1", {"capability": (7, 5), "assumed_gpu": True}, {}, "V1"),
        ("0.11.0", {"capability": (7, 5)}, {"VLLM_USE_V1": "0"}, "V1"),
    ],
)
def test_engine(version: str, resolved: dict[str, Any], env: dict[str, str], engine: str) -> None:
    assert engine_of(geometry(LLAMA), resolved, release_of(version), env) == engine


@pytest.mark.parametrize(
    ("config", "version", "env", "second"),
    [
        (LLAMA, "0.22.0", {}, False),
        (LLAMA, "0.23.0", {}, True),
        (QWEN3_MOE, "0.25.0", {}, False),
        (QWEN3_MOE, "0.28.0", {}, False),
        (QWEN3_MOE, "0.29.0", {}, True),
        (LLAMA, "0.29.0", {"VLLM_USE_V2_MODEL_RUNNER": "0"}, False),
        (QWEN3_MOE, "0.22.0", {"VLLM_USE_V2_MODEL_RUNNER": "1"}, True),
    ],
)
def test_second_runner(config: dict[str, Any], version: str, env: dict[str, str], second: bool) -> None:
    assert second_runner(geometry(config), {}, release_of(version), env) is second


@pytest.mark.parametrize(
    ("version", "resolved", "env", "sampler"),
    [
        ("0.10.0", {}, {}, "sort"),
        ("0.10.0", {"official_image": True}, {}, "flashinfer"),
        ("0.12.0", {"official_image": True}, {}, "sort"),
        ("0.12.0", {}, {"VLLM_USE_FLASHINFER_SAMPLER": "1"}, "flashinfer"),
        ("0.16.0", {}, {}, "sort"),
        ("0.17.0", {}, {}, "kernel"),
        ("0.30.0", {}, {}, "fused"),
        ("0.10.0", {"pooling": True}, {}, "none"),
    ],
)
def test_sampler(version: str, resolved: dict[str, Any], env: dict[str, str], sampler: str) -> None:
    assert sampler_of(geometry(LLAMA), resolved, release_of(version), env) == sampler


@pytest.mark.parametrize(
    ("version", "more", "counted"),
    [
        ("0.17.0", {}, False),
        ("0.18.0", {}, False),
        ("0.18.0", {"env": {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "1"}}, True),
        ("0.20.0", {}, True),
        ("0.20.0", {"enforce_eager": True}, False),
        ("0.20.0", {"env": {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "0"}}, False),
        # The second runner takes Llama from 0.23 and estimates nothing before 0.29.
        ("0.25.0", {}, False),
        ("0.29.0", {}, True),
    ],
)
def test_graphs_count_by_release(version: str, more: dict[str, Any], counted: bool) -> None:
    graphs = budget(LLAMA, version, **more).cuda_graphs
    assert (number(graphs) > 0) is counted
    assert (graphs.basis == "exact") is not counted


# --- what is unknown, and bounds


def test_unknown_total_leaves_the_terms() -> None:
    memory = budget(LLAMA, gpu=None)
    assert memory.requested.bytes is None
    assert memory.kv_cache_available.basis == "unknown"
    assert memory.weights.bytes is not None
    assert memory.activation_peak.bytes is not None


def test_unknown_architecture_is_unknown() -> None:
    model = Model(None, {"architectures": ["NobodyForCausalLM"]}, "mapping")
    memory = estimate_budget(BudgetInputs(None, model, RESOLVED, "0.30.0", None, Quantity.exact(80 * GIB), None))
    assert memory.requested.bytes == int(80 * GIB * 0.9)
    assert memory.weights.bytes is None
    assert memory.kv_cache_available.bytes is None


def test_unified_memory_has_wider_bounds() -> None:
    shared, own = budget(LLAMA, gpu="GB10"), budget(LLAMA, gpu="H100")

    def width(memory: Memory) -> int:
        return (memory.kv_cache_available.high or 0) - (memory.kv_cache_available.low or 0)

    assert width(shared) > 2 * width(own)


def test_installed_flashinfer_lies_within_the_bounds() -> None:
    """Releases up to 0.11.0 sample with FlashInfer where it is installed; its pool is inside the interval."""
    unknown = budget(LLAMA, "0.10.0").kv_cache_available
    image = budget(LLAMA, "0.10.0", official_image=True).kv_cache_available
    assert image.bytes is not None
    assert unknown.bytes is not None
    assert unknown.high is not None
    assert unknown.bytes < image.bytes < unknown.high + 0.1 * GIB


@given(
    total=st.integers(8, 200),
    more=st.integers(1, 50),
    sequences=st.integers(1, 1024),
    tokens=st.integers(256, 16384),
    utilization=st.floats(0.3, 0.98),
)
def test_more_memory_never_leaves_less(total: int, more: int, sequences: int, tokens: int, utilization: float) -> None:
    def left(gib: int) -> Quantity:
        return budget(
            LLAMA,
            "0.12.0",
            total=Quantity.exact(gib * GIB),
            max_num_seqs=sequences,
            max_num_batched_tokens=tokens,
            utilization=utilization,
        ).kv_cache_available

    small, large = left(total), left(total + more)
    assert number(small) < number(large)
    for quantity in (small, large):
        assert quantity.low is not None
        assert quantity.high is not None
        assert quantity.low <= number(quantity) <= quantity.high


@given(
    sequences=st.integers(1, 1024),
    tokens=st.integers(256, 16384),
    version=st.sampled_from(["0.7.3", "0.16.0", "0.30.0"]),
)
def test_a_larger_step_never_leaves_more(sequences: int, tokens: int, version: str) -> None:
    def left(sequences: int, tokens: int) -> int:
        return number(budget(LLAMA, version, max_num_seqs=sequences, max_num_batched_tokens=tokens).kv_cache_available)

    assert left(sequences, tokens + 256) <= left(sequences, tokens)
    assert left(sequences + 1, tokens) <= left(sequences, tokens)


def test_own_draft_head_is_one_layer_and_a_projection() -> None:
    drafted = number(budget(LLAMA, speculative={"method": "mtp"}).weights) - number(budget(LLAMA).weights)
    layer = (2 * 8_030_261_248 - 2 * 2 * 128_256 * 4096) // 32
    assert drafted == layer + 2 * 4096 * 4096 * 2
    assert number(budget(LLAMA, speculative={"method": "ngram"}).weights) == number(budget(LLAMA).weights)


def test_draft_head_of_a_four_bit_checkpoint_is_not_quantized() -> None:
    """Qwen3.6-35B-A3B with NVFP4 experts printed 23.43 GiB with its drafting head, 21.86 GiB without."""
    awq = {**LLAMA, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    four = number(budget(awq, speculative={"method": "mtp"}).weights) - number(budget(awq).weights)
    full = number(budget(LLAMA, speculative={"method": "mtp"}).weights) - number(budget(LLAMA).weights)
    assert four == full
