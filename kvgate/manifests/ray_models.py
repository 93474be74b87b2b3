"""The models that Ray Serve is given: ``LLMConfig`` objects, and the form that RayLLM had before them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvgate.manifests.entrypoint import VLLM_FLAGS
from kvgate.manifests.flags import word_of_node, words_of_entries
from kvgate.manifests.tree import entries_at, items_at, node_at, scalar_at, text_at
from kvgate.manifests.unit import GpuRequest
from kvgate.source.text import Text, Word
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, Sequence, scalar_int

# How deep the arguments of an application are looked into.
_MAX_DEPTH: Final = 8
# What says the parallel size and the context beside `engine_kwargs` (rayllm/backend/llm/vllm/vllm_compatibility.py and
# the model files of Anyscale's RayLLM).
_FLAGS_BESIDE: Final = (
    (("tensor_parallelism", "degree"), "tensor-parallel-size"),
    (("scaling_config", "num_workers"), "tensor-parallel-size"),
    (("engine_config", "max_total_tokens"), "max-model-len"),
)
_RANKS: Final = frozenset({"tensor-parallel-size", "pipeline-parallel-size"})


def serves_with_vllm(model: Node) -> bool:
    """Whether a model names no engine, which means vLLM, or names vLLM."""
    engine = text_at(model, "llm_engine") or text_at(model, "engine_config", "type")
    return engine is None or "vllm" in engine.lower()


def served_name(model: Node) -> Scalar | None:
    """What the requests call the model; None where a template made an empty text of it."""
    return _first(model, ("model_loading_config", "model_id"), ("model_id",), ("engine_config", "model_id"))


def words_of_model(model: Node) -> tuple[Word, ...]:
    """The words of vLLM's command line that a model of Ray's stands for."""
    served = served_name(model)
    source = _first(
        model,
        ("model_loading_config", "model_source"),
        ("model_loading_config", "model_source", "bucket_uri"),
        ("model_source",),
        ("model_source", "bucket_uri"),
        ("engine_config", "hf_model_id"),
    )
    words: list[Word] = []
    for flag, node in (("--model", source or served), ("--served-model-name", served)):
        if node is not None:
            words += [Word(Text.at(flag, node.span)), word_of_node(node)]
    given = _engine_entries(model)
    said = {entry.key.value.replace("_", "-") for entry in given}
    for path, flag in _FLAGS_BESIDE:
        beside = scalar_at(model, *path)
        if beside is not None and beside.value and flag not in said:
            words += [Word(Text.at(f"--{flag}", beside.span)), word_of_node(beside)]
    return (*words, *words_of_entries(given))


def ranks_of_model(model: Node, devices: tuple[GpuRequest, ...]) -> tuple[GpuRequest, ...]:
    """The devices that a model's parallel sizes ask for; none where it states no size."""
    given = [(entry.key.value.replace("_", "-"), entry.value) for entry in _engine_entries(model)]
    given += [(flag, node) for path, flag in _FLAGS_BESIDE if (node := node_at(model, *path)) is not None]
    sizes = {flag: node for flag, node in reversed(given) if flag in _RANKS and scalar_int(node) is not None}
    return devices_of_ranks(sizes, devices)


def devices_of_ranks(sizes: dict[str, Node], devices: tuple[GpuRequest, ...]) -> tuple[GpuRequest, ...]:
    """One device for each rank of the parallel sizes, of the kind that the cluster has."""
    count, place = 1, None
    for node in sizes.values():
        count, place = count * (scalar_int(node) or 1), place or node.span
    return (GpuRequest(devices[0].resource if devices else "device", count, place),) if place is not None else ()


def find_models(
    node: Node | None, part: str = "", depth: int = 0, barren: set[int] | None = None
) -> Iterator[tuple[str, Mapping | Scalar]]:
    """The models among a builder's arguments, or the paths of files with one, each with its argument's name where the
    builder is somebody's own (``prefill_config``).

    Args:
        barren: what holds none, by identity: aliases may nest so that each is met many times.
    """
    barren = set() if barren is None else barren
    inside = node.entries if isinstance(node, Mapping) else node.items if isinstance(node, Sequence) else None
    if depth > _MAX_DEPTH or inside is None or id(inside) in barren:
        return
    found = False
    for each in _models_inside(node, part, depth, barren):
        found = True
        yield each
    if not found:
        barren.add(id(inside))


def _models_inside(
    node: Node | None, part: str, depth: int, barren: set[int]
) -> Iterator[tuple[str, Mapping | Scalar]]:
    if isinstance(node, Mapping):
        if any(node.get(key) is not None for key in ("model_loading_config", "engine_kwargs", "engine_config")):
            yield part, node
            return
        for entry in node.items():
            listed = items_at(entry.value)
            if entry.key.value == "llm_configs":
                yield from (("", item) for item in listed if isinstance(item, (Mapping, Scalar)))
            elif (
                entry.key.value == "models" and listed and all(isinstance(item, Scalar) for item in listed)
            ):  # RayLLM's
                names = [item for item in listed if isinstance(item, Scalar)]
                yield from (("", item) for item in names if item.value.endswith((".yaml", ".yml")))
            else:
                yield from find_models(entry.value, entry.key.value, depth + 1, barren)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from find_models(item, part, depth + 1, barren)


def engine_arguments(node: Node | None, depth: int = 0, barren: set[int] | None = None) -> Mapping | None:
    """The first mapping at or below a node that is arguments of vLLM's engine by their own names.

    Args:
        barren: what holds none, by identity.
    """
    barren = set() if barren is None else barren
    if not isinstance(node, Mapping) or depth > _MAX_DEPTH or id(node.entries) in barren:
        return None
    barren.add(id(node.entries))
    names = {entry.key.value.replace("_", "-") for entry in node.items()}
    own = len(names & VLLM_FLAGS)
    if own > 1 or (own and isinstance(node.get("model"), Scalar)):
        return node
    below = (engine_arguments(entry.value, depth + 1, barren) for entry in node.items())
    return next((found for found in below if found is not None), None)


def parallel_sizes(arguments: Mapping) -> dict[str, Node]:
    """The parallel sizes among arguments of the engine, by their flags."""
    named = ((entry.key.value.replace("_", "-"), entry.value) for entry in arguments.items())
    return {flag: node for flag, node in named if flag in _RANKS and scalar_int(node) is not None}


def _engine_entries(model: Node) -> list[Entry]:
    return entries_at(model, "engine_kwargs") or entries_at(model, "engine_config", "engine_kwargs")


def _first(model: Node, *paths: tuple[str, ...]) -> Scalar | None:
    # a template whose values name no model makes an empty text of it
    return next((node for path in paths if (node := scalar_at(model, *path)) is not None and node.value), None)
