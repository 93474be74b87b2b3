"""Parameter bytes against the engine's own figures and against sums done by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.models.model import Model
from kvgate.models.weights import computed_bytes, parameter_bytes

ROWS = [
    json.loads(line) for line in (Path(__file__).parent / "data/weights.jsonl").read_text(encoding="utf-8").splitlines()
]
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}


def of(config: dict[str, Any], **more: Any) -> Model:
    return Model(None, config, "mapping", **more)


@pytest.mark.parametrize(
    "row", ROWS, ids=[f"{row['architecture']}-{row['how']['tensor_parallel_size']}-{n}" for n, row in enumerate(ROWS)]
)
def test_equals_the_engine(row: dict[str, Any]) -> None:
    """Bytes of ``model.parameters()`` as vLLM 0.32.0 creates them on one rank."""
    how = dict(row["how"])
    if how.get("compute_capability"):
        how["compute_capability"] = tuple(how["compute_capability"])
    assert computed_bytes(of(row["config"], files=row["files"]), **how) == row["bytes"]


def test_llama_by_hand() -> None:
    # Per layer: q 4096x4096, k and v 4096x1024 each, o 4096x4096, gate, up and down 4096x14336 each, two norms.
    layer = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336 + 2 * 4096
    # Embeddings and output projection: 128256 is a multiple of 64. One last norm.
    whole = 32 * layer + 2 * 128256 * 4096 + 4096
    assert whole == 8_030_261_248
    estimate = parameter_bytes(of(LLAMA))
    assert (estimate.parameters_bytes, estimate.basis) == (2 * whole, "exact")


def test_llama_on_two_ranks_by_hand() -> None:
    # All matrices are halved, the norms are whole on each rank.
    layer = (4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336) // 2 + 2 * 4096
    whole = 32 * layer + 128256 * 4096 + 4096
    assert computed_bytes(of(LLAMA), tensor_parallel_size=2) == 2 * whole


def test_more_ranks_than_kv_heads_replicate_them() -> None:
    # 16 ranks, 8 KV heads: each rank has 2 query heads and one whole KV head (128 elements) for k and for v.
    layer = 4096 * 256 + 256 * 4096 + 2 * 4096 * 128 + 3 * 4096 * (14336 // 16) + 2 * 4096
    whole = 32 * layer + 2 * (128256 // 16) * 4096 + 4096
    assert computed_bytes(of(LLAMA), tensor_parallel_size=16) == 2 * whole


def test_tied_embeddings_count_once() -> None:
    tied = computed_bytes(of({**LLAMA, "tie_word_embeddings": True}))
    assert computed_bytes(of(LLAMA)) - tied == 128256 * 4096 * 2


def test_vocabulary_is_padded_to_64() -> None:
    # 128257 rows become 128320, in the embeddings and in the output projection.
    assert computed_bytes(of({**LLAMA, "vocab_size": 128257})) - computed_bytes(of(LLAMA)) == 64 * 2 * 4096 * 2


def test_pipeline_stage_that_holds_most() -> None:
    # Two stages of 16 layers: the last one has the output projection and the norm, the first one the embeddings.
    layer = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336 + 2 * 4096
    assert computed_bytes(of(LLAMA), pipeline_parallel_size=2) == 2 * (16 * layer + 128256 * 4096 + 4096)


def test_fp8_halves_the_linear_layers() -> None:
    """Online fp8: one byte per weight of a linear layer and one float32 scale per output partition or layer."""
    matrices = 32 * (4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336)
    saved = computed_bytes(of(LLAMA)) - computed_bytes(of(LLAMA), quantization="fp8")
    # The scales of 32 layers x 4 linear modules are a few hundred bytes.
    assert 0 <= matrices - saved < 4096


def test_known_checkpoint_confirms() -> None:
    estimate = parameter_bytes(of(LLAMA, checkpoint_bytes=16_060_556_376))
    assert estimate.parameters_bytes == 16_060_522_496
    assert estimate.note is None


def test_checkpoint_that_differs_is_named() -> None:
    estimate = parameter_bytes(of(LLAMA, checkpoint_bytes=17_000_000_000))
    assert estimate.parameters_bytes == 17_000_000_000
    assert estimate.basis == "declared"
    assert estimate.note is not None
    assert "16,060,522,496" in estimate.note


def test_unknown_architecture_has_the_checkpoint_over_the_ranks() -> None:
    model = of({"architectures": ["NobodyForCausalLM"]}, checkpoint_bytes=8_000)
    estimate = parameter_bytes(model, tensor_parallel_size=4)
    assert (estimate.parameters_bytes, estimate.low, estimate.basis) == (2_000, 2_000, "assumed")
    # Up to 15% of the checkpoint may be whole on each rank: 2000 + 8000 x 0.15 x 3/4.
    assert estimate.high == 2_900


def test_unknown_architecture_without_checkpoint_is_unknown() -> None:
    estimate = parameter_bytes(of({"architectures": ["NobodyForCausalLM"]}))
    assert (estimate.parameters_bytes, estimate.basis) == (None, "unknown")
    assert estimate.note is not None
    assert "NobodyForCausalLM" in estimate.note


def test_missing_figure_is_named() -> None:
    config = {key: value for key, value in LLAMA.items() if key not in ("hidden_size", "model_type")}
    estimate = parameter_bytes(of(config))
    assert estimate.parameters_bytes is None
    assert estimate.note is not None
    assert "hidden_size" in estimate.note


@given(
    layers=st.integers(1, 6),
    heads=st.sampled_from([8, 16, 32]),
    kv_heads=st.sampled_from([1, 2, 4, 8]),
    inner=st.sampled_from([512, 1024, 1536]),
    vocabulary=st.integers(100, 4000),
    experts=st.sampled_from([0, 8]),
)
def test_sharding_never_adds_bytes(
    layers: int, heads: int, kv_heads: int, inner: int, vocabulary: int, experts: int
) -> None:
    config: dict[str, Any] = {
        "architectures": ["Qwen3MoeForCausalLM" if experts else "Qwen3ForCausalLM"],
        "model_type": "qwen3_moe" if experts else "qwen3",
        "hidden_size": 512,
        "head_dim": 64,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": inner,
        "moe_intermediate_size": inner,
        "num_experts": experts,
        "num_experts_per_tok": 2,
        "vocab_size": vocabulary,
    }
    sizes = [computed_bytes(of(config), tensor_parallel_size=ranks) for ranks in (1, 2, 4, 8)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] <= 2 * sizes[1]  # the ranks together hold at least the whole
    staged = [computed_bytes(of(config), pipeline_parallel_size=stages) for stages in range(1, layers + 1)]
    assert all(size <= staged[0] for size in staged)
    if experts:
        spread = computed_bytes(of(config), tensor_parallel_size=2, expert_parallel=True)
        assert spread <= sizes[0]
