"""The encoder's part of a profile run: images or audio of the largest size, and the cache that holds their embeddings.

vLLM profiles the encoder with as many items as its token budget holds: the larger of the step's token budget and of one
item (``v1/core/encoder_cache_manager.py:compute_encoder_budget``, ``v1/worker/gpu_model_runner.py:profile_run``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kvgate.capacity.release import Release
from kvgate.models.geometry import ModelGeometry
from kvgate.models.parameters.keys import Keys, MissingKeyError
from kvgate.records import record

_HALF: Final = 2
#: Activations of the encoder beside its MLP, in multiples of its width: queries, keys and values, rotated copies, the
#: residual stream.
_STREAMS: Final = 6.7


@record
class EncoderProfile:
    """What one profile run of the encoder holds, per rank.

    Attributes:
        item_tokens: embeddings of the largest item.
        budget_tokens: embeddings of all items together.
        cache_bytes: their embeddings, kept while the language model is profiled.
        forward_bytes: activations of the encoder's widest layer for all of them.
        known: the item's size is that of the model's own rule, not a guess.
    """

    item_tokens: int
    budget_tokens: int
    cache_bytes: int
    forward_bytes: int
    known: bool


@record
class _Shape:
    """Embeddings of the largest item, encoder positions per embedding, copies of the embedding that are kept."""

    tokens: Callable[[Keys, Keys, Release, Mapping[str, Any]], int]
    patches: Callable[[Keys, Keys], float]
    copies: Callable[[Keys], int] = lambda vision: 1
    gated: bool = False


def _side(value: Any) -> int:
    return int(value[0] if isinstance(value, (list, tuple)) else value)


def _grid(vision: Keys) -> int:
    return _side(vision["image_size"]) // _side(vision["patch_size"])


def _merge(vision: Keys, config: Keys) -> float:
    return float(int(vision.get("spatial_merge_size") or config.get("spatial_merge_size") or 2) ** 2)


def _one(vision: Keys, config: Keys) -> float:
    return 1.0


def _pixels(default: int) -> Callable[[Keys, Keys, Release, Mapping[str, Any]], int]:
    """Embeddings of the largest image by the preprocessor's pixel limit, ``default`` where the limit is not known."""

    def tokens(vision: Keys, config: Keys, release: Release, preprocessor: Mapping[str, Any]) -> int:
        size = preprocessor.get("size")
        largest = preprocessor.get("max_pixels")
        if largest is None and isinstance(size, Mapping):
            largest = size.get("longest_edge") or size.get("max_pixels")
        side = _side(vision.get("patch_size") or 14) * int(vision.get("spatial_merge_size") or 2)
        if isinstance(largest, int) and largest > side * side:
            return largest // (side * side)
        return default

    return tokens


def _qwen3_vl(vision: Keys, config: Keys, release: Release, preprocessor: Mapping[str, Any]) -> int:
    # 0.11 to 0.13 size the budget by a video as long as the processor takes.
    if not release.at_least("0.14.0"):
        return 153_600
    return _pixels(16_384)(vision, config, release, preprocessor)


def _constant(value: int) -> Callable[[Keys, Keys, Release, Mapping[str, Any]], int]:
    return lambda vision, config, release, preprocessor: value


def _square(vision: Keys, config: Keys, release: Release, preprocessor: Mapping[str, Any]) -> int:
    return _grid(vision) ** 2


def _pixtral(vision: Keys, config: Keys, release: Release, preprocessor: Mapping[str, Any]) -> int:
    side = _grid(vision) // int(config.get("spatial_merge_size") or 1)
    return side * (side + 1)


def _tiles(vision: Keys, config: Keys, release: Release, preprocessor: Mapping[str, Any]) -> int:
    ratio = float(config.get("downsample_ratio") or 0.5)
    tiles = int(config.get("max_dynamic_patch") or 12) + 1
    return int(tiles * (_grid(vision) * ratio) ** 2)


def _llama4(vision: Keys, config: Keys, release: Release, preprocessor: Mapping[str, Any]) -> int:
    ratio = float(vision.get("pixel_shuffle_ratio") or 0.5)
    return int(17 * (_grid(vision) * ratio) ** 2)


_QWEN2_VL: Final = _Shape(_pixels(16_384), _merge)
_QWEN2_5_VL: Final = _Shape(_pixels(16_384), _merge, gated=True)
_QWEN3_VL: Final = _Shape(_qwen3_vl, _merge, lambda vision: 1 + len(vision.get("deepstack_visual_indexes") or ()))
_SHAPES: Final[Mapping[str, _Shape]] = {
    "qwen2_vl": _QWEN2_VL,
    "qwen2_5_vl": _QWEN2_5_VL,
    "qwen2_5_omni": _QWEN2_5_VL,
    "qwen3_vl": _QWEN3_VL,
    "qwen3_vl_moe": _QWEN3_VL,
    "qwen3_omni_moe": _QWEN3_VL,
    "qwen3_5": _QWEN2_VL,
    "qwen3_5_moe": _QWEN2_VL,
    "qwen4_exp": _QWEN2_VL,
    "dots_ocr": _Shape(_pixels(14_400), _merge, gated=True),
    "glm4v": _Shape(_pixels(6_144), _merge, gated=True),
    "glm4v_moe": _Shape(_pixels(6_144), _merge, gated=True),
    "ernie4_5_vl_moe": _Shape(_pixels(6_144), _merge),
    "exaone4_5": _QWEN2_5_VL,
    "gemma3": _Shape(
        lambda vision, config, release, preprocessor: int(config.get("mm_tokens_per_image") or 256),
        lambda vision, config: _grid(vision) ** 2 / int(config.get("mm_tokens_per_image") or 256),
    ),
    "gemma3n": _Shape(_constant(256), _one),
    "gemma4": _Shape(
        _constant(2_496), lambda vision, config: float(int(vision.get("pooling_kernel_size") or 3) ** 2), gated=True
    ),
    "gemma4_unified": _Shape(_constant(2_496), _one),
    "llava": _Shape(_square, _one),
    "llava_next": _Shape(lambda v, c, r, p: 5 * _grid(v) ** 2, _one),
    "llava_onevision": _Shape(lambda v, c, r, p: 10 * _grid(v) ** 2, _one),
    "pixtral": _Shape(_pixtral, _one, gated=True),
    "mistral3": _Shape(_pixtral, _merge, gated=True),
    "internvl_chat": _Shape(_tiles, lambda vision, config: float(config.get("downsample_ratio") or 0.5) ** -2),
    "internvl": _Shape(_tiles, lambda vision, config: float(config.get("downsample_ratio") or 0.5) ** -2),
    "llama4": _Shape(_llama4, lambda vision, config: float(vision.get("pixel_shuffle_ratio") or 0.5) ** -2),
    "kimi_k25": _Shape(_constant(4_096), lambda vision, config: 4.0),
    "kimi_vl": _Shape(_constant(1_024), lambda vision, config: 4.0),
    "paligemma": _Shape(_square, _one),
    "idefics3": _Shape(_constant(2_197), lambda vision, config: float(int(config.get("scale_factor") or 2) ** 2)),
    "smolvlm": _Shape(_constant(1_088), lambda vision, config: float(int(config.get("scale_factor") or 4) ** 2)),
    "aya_vision": _Shape(_constant(2_197), lambda vision, config: 4.0),
    "qwen2_audio": _Shape(_constant(750), lambda vision, config: 2.0),
    "voxtral": _Shape(_constant(375), lambda vision, config: 4.0),
    "ultravox": _Shape(_constant(188), lambda vision, config: 8.0),
}
_TOWERS: Final = (
    "vision_config|thinker_config.vision_config",
    "audio_config|thinker_config.audio_config|encoder_config|vision_tower_config",
)


def limited_to_none(limits: Any) -> bool:
    """Every modality that matters is limited to no items."""
    if not isinstance(limits, Mapping) or not limits:
        return False

    def count(limit: Any) -> Any:
        return limit.get("count") if isinstance(limit, Mapping) else limit

    return bool(count(limits.get("image")) == 0 and count(limits.get("video", 0)) == 0)


def encoder_profile(
    geometry: ModelGeometry, resolved: Mapping[str, Any], release: Release, budget_tokens: int, within_step: bool
) -> EncoderProfile | None:
    """The profile of the model's encoder; None where the engine runs none.

    Args:
        budget_tokens: tokens of one scheduler step.
        within_step: the items are no longer than the step (V0's dummy prompts).
    """
    if not geometry.is_multimodal or resolved.get("language_model_only") or resolved.get("skip_mm_profiling"):
        return None
    if limited_to_none(resolved.get("limit_mm_per_prompt")):
        return None
    config = Keys(geometry.config)
    shape = _SHAPES.get(geometry.model_type)
    vision = _tower(config)
    item = 0
    patches = 1.0
    copies = 1
    if shape is not None and vision is not None:
        preprocessor = geometry.files.get("preprocessor_config.json") or {}
        try:
            item = shape.tokens(vision, config, release, preprocessor)
            patches = shape.patches(vision, config)
            copies = shape.copies(vision)
        except (MissingKeyError, TypeError, ValueError, ZeroDivisionError):
            shape = None
    total = max(budget_tokens, item)
    kept = total * geometry.hidden_size * copies * _HALF
    forward = 0
    if vision is not None:
        width = int(vision.get("embed_dim") or vision.get("hidden_size") or 1024)
        inner = int(vision.get("intermediate_size") or 0) or int(float(vision.get("mlp_ratio") or 4) * width)
        if resolved.get("mm_encoder_tp_mode") != "data":
            inner = -(-inner // max(1, int(resolved.get("tensor_parallel_size") or 1)))
        # The cache is sized by the longest video; what runs is an image of the largest size. V0's prompts are no
        # longer than the step.
        largest = budget_tokens if within_step else max(budget_tokens, 16_384)
        positions = patches * min(total, largest)
        elements = (3 if shape is not None and shape.gated else 2) * inner + _STREAMS * width
        forward = int(positions * elements * _HALF)
    return EncoderProfile(item, total, kept, forward, shape is not None)


def _tower(config: Keys) -> Keys | None:
    from kvgate.models.parameters.count import tower_keys

    for path in _TOWERS:
        try:
            return tower_keys(config, path)
        except MissingKeyError:
            continue
    return None
