"""What is not known is said, and never guessed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kvgate.capacity.prediction import Prediction, Workload
from kvgate.hardware.gpu import Gpu
from kvgate.models.model import Model
from kvgate.source.text import Unresolved

Predict = Callable[..., Prediction]
_LOAD = Workload(prompt_tokens=1_000, output_tokens=100)


def _unresolved(name: str) -> Unresolved:
    return Unresolved("${" + name + "}", f"the variable {name} has no value in these files")


def test_an_architecture_without_a_row(predict: Predict) -> None:
    prediction = predict({"architectures": ["FancyNewForCausalLM"], "num_hidden_layers": 4}, {}, workload=_LOAD)
    assert prediction.architecture == "FancyNewForCausalLM"
    assert prediction.kv_cache.bytes_per_block is None
    assert prediction.kv_cache.basis == "unknown"
    assert prediction.starts == "unknown"
    assert prediction.concurrency is None
    assert "FancyNewForCausalLM" in prediction.reasons[0]


def test_a_configuration_that_lacks_a_figure(predict: Predict) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "unheard_of", "num_hidden_layers": 4}
    prediction = predict(config)
    assert prediction.starts == "unknown"
    assert "lacks hidden_size" in prediction.reasons[0]


@pytest.mark.parametrize(
    "name", ["tensor_parallel_size", "kv_cache_dtype", "block_size", "dtype", "speculative_config"]
)
def test_a_block_without_its_arguments_is_unknown(predict: Predict, llama: Model, name: str) -> None:
    prediction = predict(llama, {name: _unresolved("X"), "kv_cache_memory_bytes": 5 << 30}, workload=_LOAD)
    assert prediction.kv_cache.bytes_per_block is None
    assert prediction.starts == "unknown"
    assert any("the variable X has no value" in reason for reason in prediction.reasons)


def test_an_unknown_length_leaves_the_pool(predict: Predict, llama: Model) -> None:
    arguments = {"max_model_len": _unresolved("LEN"), "kv_cache_memory_bytes": 5 << 30}
    prediction = predict(llama, arguments, workload=_LOAD)
    cache = prediction.kv_cache
    assert (cache.bytes_per_block, cache.num_gpu_blocks) == (2_097_152, 2_560)
    assert (cache.max_model_len, cache.max_concurrency, cache.size_tokens) == (None, None, None)
    assert prediction.starts == "unknown"
    assert predict(llama, arguments, version="0.19.1").kv_cache.size_tokens == 40_960  # blocks x block size then


def test_an_argument_that_does_not_bear_on_the_cache_is_no_matter(predict: Predict, llama: Model) -> None:
    arguments = {"served_model_name": _unresolved("NAME"), "kv_cache_memory_bytes": 5 << 30, "max_model_len": 4096}
    prediction = predict(llama, arguments)
    assert prediction.kv_cache.size_tokens == 40_960
    assert prediction.starts == "yes"


def test_without_a_gpu_the_bytes_are_exact_and_the_pool_is_unknown(predict: Predict, llama: Model) -> None:
    prediction = predict(llama, {"max_model_len": 8_192}, gpu=None, workload=_LOAD)
    cache = prediction.kv_cache
    assert (cache.bytes_per_token, cache.bytes_per_block, cache.block_size) == (131_072, 2_097_152, 16)
    assert (cache.num_gpu_blocks, cache.size_tokens, cache.max_concurrency) == (None, None, None)
    assert prediction.memory.kv_cache_available.basis == "unknown"
    assert prediction.starts == "unknown"
    assert prediction.concurrency is not None
    assert prediction.concurrency.sustained is None


_V3: Mapping[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_hidden_layers": 61,
    "hidden_size": 7168, "num_attention_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 129280, "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def test_blocks_that_depend_on_an_unknown_gpu_are_assumed(predict: Predict) -> None:
    """Latent attention has blocks of 16 on Hopper and of 32 on Blackwell."""
    prediction = predict(_V3, {"kv_cache_memory_bytes": 40 << 30}, gpu=None)
    assert prediction.kv_cache.basis == "assumed"
    assert any("compute capability 9.0" in reason for reason in prediction.reasons)
    assert predict(_V3, {"kv_cache_memory_bytes": 40 << 30}).kv_cache.basis == "exact"


def test_a_draft_model_that_is_not_known_is_said(predict: Predict, llama: Model) -> None:
    speculative = {"method": "eagle3", "model": "some/eagle", "num_speculative_tokens": 3}
    arguments = {"speculative_config": speculative, "kv_cache_memory_bytes": 5 << 30, "max_model_len": 8192}
    prediction = predict(llama, arguments)
    assert prediction.kv_cache.basis == "assumed"
    assert any("some/eagle" in reason for reason in prediction.reasons)


def test_a_draft_model_of_one_layer_takes_its_share(predict: Predict, llama: Model) -> None:
    """33 layers instead of 32: 5 GiB // (33 x 65,536) = 2,482 blocks."""
    head = Model("eagle", {**llama.config, "num_hidden_layers": 1}, "mapping")
    speculative = {"method": "eagle3", "model": "some/eagle", "num_speculative_tokens": 3}
    arguments = {"speculative_config": speculative, "kv_cache_memory_bytes": 5 << 30, "max_model_len": 8192}
    cache = predict(llama, arguments, draft=head).kv_cache
    assert (cache.num_gpu_blocks, cache.basis) == (2_482, "exact")


def test_ngram_drafts_keep_nothing(predict: Predict, llama: Model) -> None:
    speculative = {"method": "ngram", "num_speculative_tokens": 3}
    arguments = {"speculative_config": speculative, "kv_cache_memory_bytes": 5 << 30, "max_model_len": 8192}
    assert predict(llama, arguments).kv_cache.num_gpu_blocks == 2_560


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tensor_parallel_size": 3}, "32 attention heads"),
        ({"max_model_len": 200_000}, "more than the 131072 tokens"),
        ({"kv_cache_dtype": "fp8_ds_mla"}, "no attention backend"),
    ],
)
def test_a_server_that_refuses_its_arguments(
    predict: Predict, llama: Model, arguments: Mapping[str, Any], words: str
) -> None:
    prediction = predict(llama, {"kv_cache_memory_bytes": 40 << 30, **arguments})
    assert prediction.starts == "no"
    assert any(words in reason for reason in prediction.reasons)


def test_a_longer_context_can_be_allowed(predict: Predict, llama: Model) -> None:
    env = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
    prediction = predict(llama, {"max_model_len": 200_000, "kv_cache_memory_bytes": 40 << 30}, env=env)
    assert prediction.kv_cache.max_model_len == 200_000
    assert prediction.starts == "yes"


def test_the_pool_of_pipeline_stages_is_the_smallest(predict: Predict, llama: Model) -> None:
    """33 layers over 4 stages: 8, 8, 9, 8 (the rest goes to the middle); before 0.8, 8, 8, 8, 9."""
    deep = Model("deep", {**llama.config, "num_hidden_layers": 33}, "mapping")
    arguments = {"pipeline_parallel_size": 4, "kv_cache_memory_bytes": 5 << 30, "max_model_len": 8192}
    cache = predict(deep, arguments).kv_cache
    assert cache.bytes_per_block == 9 * 65_536
    assert cache.num_gpu_blocks == (5 << 30) // (9 * 65_536)
    chosen = predict(deep, arguments, env={"VLLM_PP_LAYER_PARTITION": "10,8,8,7"})
    assert chosen.kv_cache.bytes_per_block == 10 * 65_536


@pytest.mark.parametrize(("name", "hybrid"), [("NixlConnector", True), ("LMCacheConnectorV1", False)])
def test_connectors_that_serve_one_block_table_only(predict: Predict, name: str, hybrid: bool) -> None:
    """Without the hybrid manager, Gemma's windows are kept like full attention: 26 layers in one group."""
    gemma = {
        "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "num_hidden_layers": 26, "hidden_size": 2304,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096,
        "vocab_size": 256000, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
    }  # fmt: skip
    transfer = {"kv_connector": name, "kv_role": "kv_both"}
    groups = predict(gemma, {"kv_transfer_config": transfer, "kv_cache_memory_bytes": 5 << 30}).kv_cache.groups
    assert [group.layers for group in groups] == ([13, 13] if hybrid else [26])


def test_an_amd_gpu_is_no_unknown_gpu(predict: Predict, llama: Model) -> None:
    mi300 = Gpu("AMD Instinct MI300X", "amd", 206_141_652_992, 206_141_652_992, 206_141_652_992, "declared", None)
    arguments = {"kv_cache_memory_bytes": 5 << 30, "max_model_len": 8192}
    assert predict(llama, arguments, gpu=mi300).kv_cache.num_gpu_blocks == 2_560
    latent = predict(_V3, {"kv_cache_memory_bytes": 40 << 30}, gpu=mi300)
    assert (latent.kv_cache.block_size, latent.kv_cache.basis) == (16, "exact")
    env = {"VLLM_ROCM_USE_AITER": "1"}
    assert predict(_V3, {}, gpu=mi300, env=env, version="0.10.2").kv_cache.block_size == 1


def test_latent_attention_can_be_turned_off(predict: Predict) -> None:
    """Keys and values of 128 heads of 128 + 64 elements: 2 x 61 x 128 x 192 x 2 bytes a token instead of 70,272."""
    env = {"VLLM_MLA_DISABLE": "1"}
    assert predict(_V3, {}, env=env).kv_cache.bytes_per_token == 2 * 61 * 128 * 192 * 2
    assert predict(_V3, {}).kv_cache.bytes_per_token == 61 * 576 * 2


def test_a_checkpoint_named_for_its_own_head_counts_that_head_alone(predict: Predict) -> None:
    """``--speculative-config`` may repeat the model: its one prediction layer, not its 61 layers again."""
    model = Model("v3", {**_V3, "num_nextn_predict_layers": 1}, "mapping")
    speculative = {"method": "mtp", "model": "v3", "num_speculative_tokens": 1}
    arguments = {"speculative_config": speculative, "kv_cache_memory_bytes": 40 << 30}
    for draft in (None, model):
        cache = predict(model, arguments, draft=draft).kv_cache
        assert (cache.bytes_per_block, cache.basis) == (62 * 576 * 2 * 16, "exact")
