"""Bytes of a model's parameters on one rank.

Computed from ``config.json``: every parameter that vLLM 0.32.0's modelling code creates for the architecture
(:mod:`kvgate.models.parameters`), its sharding under tensor, pipeline and expert parallelism, and the storage format
of a quantized checkpoint. The bytes of the checkpoint's own files, where they are known, win for the total.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack

from kvgate.models.model import Model
from kvgate.records import record

if TYPE_CHECKING:
    from kvgate.models.parameters.count import Count

Basis = Literal["exact", "calibrated", "declared", "measured", "assumed", "unknown"]

#: Bytes of an element by dtype name.
DTYPE_BYTES: Final[Mapping[str, int]] = {
    "float32": 4,
    "float": 4,
    "float16": 2,
    "half": 2,
    "bfloat16": 2,
    "float64": 8,
}

#: Share of a checkpoint that every rank holds in full, at most, where the architecture is not described.
_REPLICATED_SHARE: Final = 0.15

#: Bounds where the layers that stay unquantized are assumed.
_ASSUMED_SPREAD: Final = (0.9, 1.25)

#: A computed size and the checkpoint's may differ by this without a note: padding, formats kept beside the weights.
_NOTABLE_DIFFERENCE: Final = 0.005


@record
class WeightEstimate:
    """Parameter bytes of the rank that holds most.

    Attributes:
        parameters_bytes: as the loader fills them, before any repacking; None when nothing is known.
        low, high: bounds, equal to ``parameters_bytes`` when the basis is exact.
        formula: how the figure came about, for people.
        note: what a reader should know of it (difference to the checkpoint, what is missing), None when nothing.
        computed_bytes: the figure from the architecture alone, where there is one.
        slack_bytes: what torch's allocator hands out beyond the parameters.
        adapter_elements: elements of one LoRA adapter of rank one on all layers of the rank.
    """

    parameters_bytes: int | None
    low: int | None
    high: int | None
    basis: Basis
    formula: str
    note: str | None = None
    computed_bytes: int | None = None
    slack_bytes: int = 0
    adapter_elements: int = 0


class Deployment(TypedDict, total=False):
    """How a model is loaded and split.

    Attributes:
        pipeline_stages: decoder layers of each stage, half open; without it they are split evenly.
        expert_parallel: experts are dealt whole to the ranks (``--enable-expert-parallel``).
        data_parallel_size: ranks that share the experts under expert parallelism.
        dtype: the model's dtype as resolved; None or ``auto`` for the checkpoint's.
        quantization: ``--quantization``.
        language_model_only: towers beside the language model are not loaded.
        pooling: a generative architecture is served for embeddings (``--runner pooling``): no output projection.
        compute_capability: of the GPU, which decides how some mixtures of experts are padded; None for Hopper's.
    """

    tensor_parallel_size: int
    pipeline_parallel_size: int
    pipeline_stages: Sequence[tuple[int, int]] | None
    expert_parallel: bool
    data_parallel_size: int
    dtype: str | None
    quantization: str | None
    hf_overrides: Mapping[str, Any] | None
    language_model_only: bool
    pooling: bool
    compute_capability: tuple[int, int] | None


def parameter_bytes(
    model: Model,
    version: str = "0.32.0",
    **how: Unpack[Deployment],
) -> WeightEstimate:
    """Bytes of the model's parameters on the rank that holds most of them.

    Args:
        version: the vLLM release; parameters are those of 0.32.0.
        how: how the model is loaded and split.
    """
    del version
    counted: Count | None = None
    missing: str | None = None
    try:
        counted = count_rank(model, **how)
    except (LookupError, ValueError, TypeError) as error:
        missing = str(error)
    computed = None if counted is None else counted.bytes
    ranks = how.get("tensor_parallel_size", 1) * how.get("pipeline_parallel_size", 1)
    known = model.checkpoint_bytes
    requantized = bool(how.get("quantization")) and not _checkpoint_quantization(model)
    if known is not None and not requantized and not how.get("language_model_only"):
        estimate = _from_checkpoint(known, computed, ranks, missing)
    elif computed is not None:
        estimate = WeightEstimate(
            computed, computed, computed, "exact", "every parameter of the architecture on this rank", None, computed
        )
    else:
        estimate = WeightEstimate(None, None, None, "unknown", "", missing)
    if counted is None:
        return estimate
    if estimate.basis == "exact" and computed is not None and _assumed_scheme(model):
        low, high = (int(computed * factor) for factor in _ASSUMED_SPREAD)
        note = "the checkpoint's quantization is told by its storage format alone"
        estimate = replace(estimate, low=low, high=high, basis="assumed", note=note)
    return replace(estimate, slack_bytes=counted.slack, adapter_elements=counted.adapter_elements)


def _from_checkpoint(known: int, computed: int | None, ranks: int, missing: str | None) -> WeightEstimate:
    if ranks == 1:
        note = None
        if computed is not None and abs(computed - known) > _NOTABLE_DIFFERENCE * known:
            note = f"the architecture's parameters come to {computed:,} bytes, the checkpoint holds {known:,}"
        elif computed is None:
            note = missing
        if computed is not None and note is None:
            # The loader's tensors are the architecture's; the files carry headers and parts that are not loaded.
            return WeightEstimate(computed, computed, computed, "exact", "every parameter", None, computed)
        low = min(known, computed or known)
        high = max(known, computed or known)
        return WeightEstimate(known, low, high, "declared", "bytes of the checkpoint", note, computed)
    if computed is not None:
        return WeightEstimate(computed, computed, computed, "exact", "every parameter on this rank", None, computed)
    even = known // ranks
    high = int(even + known * _REPLICATED_SHARE * (1 - 1 / ranks))
    return WeightEstimate(even, even, high, "assumed", f"bytes of the checkpoint / {ranks} ranks", missing)


def _checkpoint_quantization(model: Model) -> Mapping[str, Any] | None:
    config = model.config
    for part in (config, config.get("text_config"), config.get("llm_config")):
        if isinstance(part, Mapping):
            found = part.get("quantization_config") or part.get("compression_config")
            if isinstance(found, Mapping) and found:
                return found
    return None


def _assumed_scheme(model: Model) -> bool:
    from kvgate.models.parameters.quantization import assumed_scheme

    return assumed_scheme(_checkpoint_quantization(model))


def computed_bytes(model: Model, **how: Unpack[Deployment]) -> int:
    """Parameter bytes of the largest rank, from the architecture alone; arguments as for :func:`count_rank`."""
    return count_rank(model, **how).bytes


def count_rank(model: Model, *, trace: list[tuple[str, int]] | None = None, **how: Unpack[Deployment]) -> Count:
    """Parameters of the largest rank, from the architecture alone.

    Raises:
        LookupError: the architecture is not described, or the configuration lacks a figure.
        ValueError: the model cannot be split so, or its storage format is not described.
    """
    from kvgate.models.configuration import complete_configuration
    from kvgate.models.parameters.count import count_parameters

    overrides = how.get("hf_overrides") or {}
    whole = complete_configuration(model.config, files=model.files, overrides=overrides).whole
    tensor = how.get("tensor_parallel_size", 1)
    return count_parameters(
        whole,
        files=model.files,
        quantization_config=_checkpoint_quantization(model),
        requested_quantization=how.get("quantization"),
        dtype_bytes=element_bytes(whole, how.get("dtype")),
        tensor=tensor,
        pipeline=how.get("pipeline_parallel_size", 1),
        stages=how.get("pipeline_stages"),
        experts=tensor * how.get("data_parallel_size", 1) if how.get("expert_parallel") else 1,
        towers=not how.get("language_model_only"),
        absent=[key for key, value in model.config.items() if value is None],
        written=[key for key, value in {**model.config, **overrides}.items() if value is not None],
        pooling=how.get("pooling", False),
        capability=how.get("compute_capability"),
        trace=trace,
    )


def element_bytes(config: Mapping[str, Any], dtype: str | None) -> int:
    """Bytes of an element of the model's dtype; float32 checkpoints are loaded in half precision by default."""
    if dtype and dtype != "auto":
        return DTYPE_BYTES.get(str(dtype).removeprefix("torch."), 2)
    return 2
