"""What "Model loading took" adds to the parameters.

The engine prints the memory torch has allocated after loading: the parameters with the allocator's rounding, the
rotary tables, the copies latent attention makes of its up projection, adapter slots and a draft model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvgate.models.geometry import ModelGeometry

_HALF = 2


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
        if kind in ("yarn", "deepseek_yarn") and factor:
            length = int((rope.get("original_max_position_embeddings") or positions) * float(factor))
        elif kind in ("linear", "dynamic") and factor:
            length = int(positions * float(factor))
        size += length * int(width * float(partial)) * _HALF
    return size


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


def draft_layers(resolved: Mapping[str, Any]) -> int:
    """Further decoder layers of the model's own drafting head (multi-token prediction)."""
    speculative = resolved.get("speculative_config") or resolved.get("speculative") or {}
    method = str(speculative.get("method") or "") if isinstance(speculative, Mapping) else ""
    return 1 if method == "mtp" or method.endswith("_mtp") else 0
