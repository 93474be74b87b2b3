"""What "Model loading took" comes to.

The engine prints the memory torch has allocated after loading: the parameters with the allocator's rounding, the
rotary tables, the copies latent attention makes of its up projection, adapter slots and a draft model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kvgate.capacity.encoder_profile import limited_to_none
from kvgate.capacity.release import release_of
from kvgate.hardware.gpu import Gpu
from kvgate.models.geometry import ModelGeometry
from kvgate.models.model import Model
from kvgate.models.weights import Deployment, WeightEstimate, parameter_bytes
from kvgate.records import record

GIB: Final = 2**30
_HALF: Final = 2
#: ``rotary_embedding/mrope.py``: the table covers four times the positions.
_MROPE_FACTOR: Final = 4
_MROPE_TYPES: Final = frozenset(
    {"qwen2_vl", "qwen2_5_vl", "qwen2_5_omni", "qwen3_vl", "qwen3_vl_moe", "qwen3_omni_moe", "qwen3_5", "qwen3_5_moe",
     "glm4v", "glm4v_moe", "ernie4_5_vl_moe"}
)  # fmt: skip
#: Triton's MXFP4 experts on Hopper pad 2,880 rows to 3,072 (``layers/quantization/utils/mxfp4_utils.py``).
_PADDED_EXPERTS: Final = 3_072 / 2_880 - 1


@record
class LoadedModel:
    """The weights of the largest rank as loaded.

    Attributes:
        parameters_bytes: parameters alone, with their bounds; None when not known.
        bytes: with everything that loading adds.
        measured_bytes: the engine's own figure, where it was given.
        storage: ``plain``, ``quantized``, ``multimodal``, ``drafting`` (with the model's own drafting head) or
            ``separate draft`` (of a model that is not counted here): which spread the figure has.
        formula: for people.
    """

    parameters_bytes: int | None
    parameters_low: int | None
    parameters_high: int | None
    bytes: int
    measured_bytes: int | None
    storage: str
    formula: str


def describe_loading(
    model: Model,
    geometry: ModelGeometry,
    resolved: Mapping[str, Any],
    gpu: Gpu | None,
    weight_bytes: int | None,
    version: str,
) -> LoadedModel:
    """The loaded model's bytes on its largest rank."""
    estimate = _estimate(model, geometry, resolved, gpu, version)
    parameters = estimate.parameters_bytes
    tensor = int(resolved.get("tensor_parallel_size") or 1)
    stages = int(resolved.get("pipeline_parallel_size") or 1)
    buffers = rotary_bytes(geometry) + latent_copies_bytes(geometry, tensor, stages)
    buffers += deepstack_bytes(geometry, resolved) + padded_experts_bytes(geometry, resolved, gpu)
    adapters = adapter_bytes(estimate.adapter_elements, resolved)
    draft = _own_draft_bytes(model, geometry, parameters or 0, resolved)
    offloaded = int(float(resolved.get("cpu_offload_gb") or 0) * GIB)
    total = max(0, (parameters or 0) + estimate.slack_bytes + buffers + adapters + draft - offloaded)
    words = [estimate.formula, "buffers"]
    words += ["adapter slots"] if adapters else []
    words += ["draft layers"] if draft else []
    other = _drafts_by_another(model, resolved)
    words += ["a draft model"] if other else []
    formula = " + ".join(words) + (f" - {offloaded / GIB:g} GiB on the CPU" if offloaded else "")
    storage = "plain"
    if other:
        storage = "separate draft"
    elif draft or resolved.get("speculative"):
        storage = "drafting"
    elif geometry.quantization_config or resolved.get("quantization"):
        storage = "quantized"
    elif geometry.is_multimodal:
        storage = "multimodal"
    return LoadedModel(
        parameters_bytes=parameters,
        parameters_low=estimate.low,
        parameters_high=estimate.high,
        bytes=total,
        measured_bytes=weight_bytes,
        storage=storage,
        formula=formula if parameters is not None else estimate.note or "",
    )


def _plain(resolved: Mapping[str, Any]) -> Deployment:
    return {
        "tensor_parallel_size": int(resolved.get("tensor_parallel_size") or 1),
        "pipeline_parallel_size": int(resolved.get("pipeline_parallel_size") or 1),
        "pipeline_stages": resolved.get("pipeline_stages"),
        "expert_parallel": bool(resolved.get("enable_expert_parallel")),
        "dtype": resolved.get("dtype"),
        "quantization": resolved.get("quantization"),
    }


def _estimate(
    model: Model, geometry: ModelGeometry, resolved: Mapping[str, Any], gpu: Gpu | None, version: str
) -> WeightEstimate:
    overrides = resolved.get("hf_overrides")
    how = _plain(resolved)
    if how["quantization"] is None and resolved.get("load_format") == "bitsandbytes":
        how["quantization"] = "bitsandbytes"
    how |= {
        "data_parallel_size": int(resolved.get("data_parallel_size") or 1),
        "hf_overrides": overrides if isinstance(overrides, Mapping) else None,
        "language_model_only": bool(resolved.get("language_model_only")) or _no_towers(resolved, version),
        "pooling": bool(resolved.get("pooling")) and geometry.runner == "generate",
        "compute_capability": gpu.compute_capability if gpu else None,
    }
    return parameter_bytes(model, version=version, **how)


def _no_towers(resolved: Mapping[str, Any], version: str) -> bool:
    """A tower whose modalities are all limited to none is not loaded (``models/qwen2_vl.py``, later every model)."""
    return limited_to_none(resolved.get("limit_mm_per_prompt")) and release_of(version).at_least("0.10.1")


def _ropes(text: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Parameters of each distinct rotary table."""
    found = text.get("rope_parameters") or text.get("rope_scaling")
    if isinstance(found, Mapping) and found and all(isinstance(value, Mapping) for value in found.values()):
        return [dict(value) for value in found.values()]
    base = dict(found) if isinstance(found, Mapping) else {}
    if text.get("rope_local_base_freq") is not None:
        return [base, {}]
    return [base]


def rotary_bytes(geometry: ModelGeometry) -> int:
    """Rotary tables: positions x rotary elements x 2 bytes for each distinct table.

    Source: ``layers/rotary_embedding/base.py`` (``cos_sin_cache``), scaled tables in ``yarn_scaling_rope.py`` and
    ``deepseek_scaling_rope.py``: the original length times the factor.
    """
    text = geometry.text
    positions = int(text.get("max_position_embeddings") or 0)
    heads = geometry.num_heads or 1
    width = int(text.get("head_dim") or geometry.hidden_size // heads)
    if geometry.uses_mla:
        width = int(text.get("qk_rope_head_dim") or 64)
    if geometry.is_attention_free or not positions or text.get("alibi"):
        return 0
    size = 0
    for rope in _ropes(text):
        partial = rope.get("partial_rotary_factor", text.get("partial_rotary_factor")) or 1.0
        kind = rope.get("rope_type", rope.get("type"))
        length = positions
        factor = rope.get("factor")
        if rope.get("mrope_section") or geometry.model_type in _MROPE_TYPES:
            length *= _MROPE_FACTOR
        if kind == "proportional":  # the parts that do not rotate are zeros in the table
            size += length * int(text.get("global_head_dim") or width) * _HALF
            continue
        if kind in ("yarn", "deepseek_yarn") and factor:
            length = int((rope.get("original_max_position_embeddings") or positions) * float(factor))
        elif kind in ("linear", "dynamic") and factor:
            length = int(positions * float(factor))
        size += length * int(width * float(partial)) * _HALF
    return size


def deepstack_bytes(geometry: ModelGeometry, resolved: Mapping[str, Any]) -> int:
    """Qwen3-VL keeps one more embedding per token and deep-stack level (``models/qwen3_vl.py``)."""
    vision = geometry.config.get("vision_config")
    levels = vision.get("deepstack_visual_indexes") if isinstance(vision, Mapping) else None
    if not levels or resolved.get("max_num_batched_tokens") is None:
        return 0
    return int(resolved["max_num_batched_tokens"]) * geometry.hidden_size * len(levels) * _HALF


def padded_experts_bytes(geometry: ModelGeometry, resolved: Mapping[str, Any], gpu: Gpu | None) -> int:
    """What padding adds to MXFP4 experts on Hopper after loading."""
    if geometry.quantization_method != "mxfp4" or gpu is None or gpu.compute_capability != (9, 0):
        return 0
    inner = geometry.moe_intermediate_size or geometry.intermediate_size
    experts = geometry.num_layers * geometry.num_experts * 3 * geometry.hidden_size * inner // 2
    ranks = int(resolved.get("tensor_parallel_size") or 1) * int(resolved.get("pipeline_parallel_size") or 1)
    return int(experts / ranks * _PADDED_EXPERTS)


def latent_copies_bytes(geometry: ModelGeometry, tensor: int, stages: int) -> int:
    """Copies of the up projection that absorbed latent attention keeps (``attention/mla_attention.py``)."""
    if not geometry.uses_mla:
        return 0
    text = geometry.text
    rank = int(text.get("kv_lora_rank") or 0)
    width = int(text.get("qk_nope_head_dim") or 0) + int(text.get("v_head_dim") or 0)
    layers = -(-geometry.num_layers // max(1, stages))
    return layers * (geometry.num_heads // max(1, tensor)) * rank * width * _HALF


def adapter_bytes(elements: int, resolved: Mapping[str, Any]) -> int:
    """LoRA slots: two matrices of the adapter's rank on every layer (``lora/layers``)."""
    if not resolved.get("enable_lora"):
        return 0
    slots = int(resolved.get("max_loras") or 1)
    rank = int(resolved.get("max_lora_rank") or 16)
    return slots * rank * elements * _HALF


def _own_draft_bytes(model: Model, geometry: ModelGeometry, parameters: int, resolved: Mapping[str, Any]) -> int:
    """The drafting head, which checkpoints of four bits keep in the model's dtype."""
    if not drafts_itself(resolved):
        return 0
    method = geometry.quantization_method
    if method is not None and method not in ("fp8", "mxfp8"):
        bare = replace(model, config=_unquantized(model.config), checkpoint_bytes=None)
        how: Deployment = {**_plain(resolved), "quantization": None}
        parameters = parameter_bytes(bare, **how).parameters_bytes or parameters
    return draft_bytes(geometry, parameters, resolved)


def _drafts_by_another(model: Model, resolved: Mapping[str, Any]) -> bool:
    """Whether another checkpoint drafts, of which only the name is known."""
    speculative = resolved.get("speculative_config") or resolved.get("speculative") or {}
    named = speculative.get("model") if isinstance(speculative, Mapping) else None
    return bool(named) and named != model.id and not drafts_itself(resolved)


def _unquantized(config: Mapping[str, Any]) -> dict[str, Any]:
    dropped = ("quantization_config", "compression_config")
    return {
        key: _unquantized(value) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if key not in dropped
    }


def drafts_itself(resolved: Mapping[str, Any]) -> bool:
    """Whether the model's own drafting head is loaded (multi-token prediction)."""
    speculative = resolved.get("speculative_config") or resolved.get("speculative") or {}
    method = str(speculative.get("method") or "") if isinstance(speculative, Mapping) else ""
    return method == "mtp" or method.endswith("_mtp")


def draft_bytes(geometry: ModelGeometry, parameters: int, resolved: Mapping[str, Any]) -> int:
    """The model's own drafting head: one more decoder layer and the projection that joins its two inputs.

    The layer is taken to be as large as the average of the model's, of which ``parameters`` are the bytes; embeddings
    and output projection are shared.
    """
    tensor = int(resolved.get("tensor_parallel_size") or 1)
    hidden = geometry.hidden_size
    ends = (1 if geometry.tie_word_embeddings else 2) * geometry.vocab_size * hidden * _HALF // tensor
    layer = max(0, parameters - ends) // max(1, geometry.num_layers)
    return layer + 2 * hidden * hidden * _HALF
