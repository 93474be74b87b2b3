"""Which of the units of a run are servers of their own: of the files that make up one together, one counts."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from kvgate.manifests.tree import Tree
from kvgate.manifests.unit import ServeUnit, Unread, servers_among
from kvgate.source.text import SourceFile
from kvgate.source.yaml_tree import Node

ReadObject: TypeAlias = Callable[[Tree, SourceFile, Node], Iterator[ServeUnit | Unread]]
"""Reads the servers of one Kubernetes object."""

# Folders that by kustomize's convention hold what overlays make servers of.
_BASES: Final = frozenset({"base", "bases"})
# Kinds of units that may be a part of another one.
_PART_KINDS: Final = frozenset({"script", "python", "dockerfile", "vllm-config", "helm-values", "ray-model"})


def whole_servers(tree: Tree, units: list[ServeUnit], read_object: ReadObject) -> list[ServeUnit]:
    """Units without those that are a part of another one, or that another one stands for."""
    units = _without_lower_layers(tree, _without_readers(tree, _without_parts(tree, units)))
    return _without_bases(tree, _without_runtimes(tree, _without_values_of_charts(units)), read_object)


def with_own_names(units: list[ServeUnit]) -> Iterator[ServeUnit]:
    """Units under names of their own: the second of a name is ``name#2``."""
    seen: dict[str, int] = {}
    for unit in units:
        count = seen[unit.id] = seen.get(unit.id, 0) + 1
        yield unit if count == 1 else replace(unit, id=f"{unit.id}#{count}")


def has_part_in(paths: frozenset[str], unit: ServeUnit) -> bool:
    """Whether a server that a chart's template makes says something that stands in one of some files."""
    if "templates/" not in unit.path:
        return False
    words = [*unit.words, *(word for word in (unit.image, unit.storage_model) if word is not None)]
    texts = [*(word.text for word in words), *(item.value for item in unit.environment if item.value is not None)]
    return (
        any(piece.span.path in paths for text in texts for piece in text.pieces)
        or any(request.span.path in paths for request in unit.gpu_requests)
        or (unit.replicas_span is not None and unit.replicas_span.path in paths)
    )


def _without_values_of_charts(units: list[ServeUnit]) -> list[ServeUnit]:
    """Units without those of a chart's own values where its templates, evaluated with these values, say the same."""
    charts = {unit.path.rpartition("/templates/")[0] for unit in units if "/templates/" in unit.path}
    charts |= {"" for unit in units if unit.path.startswith("templates/")}
    if not charts:
        return units
    return [
        unit
        for unit in units
        if unit.kind != "helm-values"
        or posixpath.basename(unit.path) not in ("values.yaml", "values.yml")
        or posixpath.dirname(unit.path) not in charts
    ]


def _without_parts(tree: Tree, units: list[ServeUnit]) -> list[ServeUnit]:
    """Units without those of files that another unit's command line comes from: a script that a manifest mounts."""
    if not any(unit.path in tree.used for unit in units):
        return units
    own = {(unit.path, _words(unit)): unit for unit in units if unit.kind == "script"}
    # a script that only runs another one, and says nothing more, has no server of its own
    units = [
        unit
        for unit in units
        if unit.kind != "script"
        or not any(
            (other := own.get((path, _words(unit)))) is not None and _surroundings(unit) == _surroundings(other)
            for path in _others(unit)
        )
    ]
    elsewhere = {
        piece.span.path
        for unit in units
        for word in unit.words
        for piece in word.text.pieces
        if piece.span.path != unit.path
    }
    parts = tree.used & elsewhere
    parts |= tree.built
    # what only hands on what it is given is a server where it is given something
    parts |= {
        unit.path
        for unit in units
        if unit.kind == "script" and unit.path in tree.used and not any(word.resolved for word in unit.words)
    }
    filled = tree.filled & elsewhere
    return [
        unit for unit in units if unit.path not in filled and (unit.kind not in _PART_KINDS or unit.path not in parts)
    ]


def _without_readers(tree: Tree, units: list[ServeUnit]) -> list[ServeUnit]:
    """Units without those of programs that take all they hand to vLLM from a file beside them that is a unit itself."""
    configured = {unit.path for unit in units if unit.kind == "vllm-config"}
    if not configured:
        return units

    def reads_one(unit: ServeUnit) -> bool:
        file = tree.read(unit.path)
        folder = posixpath.dirname(unit.path)
        return file is not None and any(
            posixpath.dirname(path) == folder and posixpath.basename(path) in file.text for path in configured
        )

    return [
        unit
        for unit in units
        if unit.kind != "python" or any(word.resolved for word in unit.words) or not reads_one(unit)
    ]


def _without_lower_layers(tree: Tree, units: list[ServeUnit]) -> list[ServeUnit]:
    """Units without Compose services whose devices another file brings, which commands put over theirs."""
    if not any(unit.kind == "compose" and unit.gpu_requests for unit in units):
        return units
    from kvgate.manifests.compose_files import together

    under = together(tree).under
    lower = {
        (path, unit.name, _words(unit))
        for unit in units
        if unit.kind == "compose" and unit.gpu_requests
        for path in under.get(unit.path, ())
    }
    return [
        unit
        for unit in units
        if unit.kind != "compose" or unit.gpu_requests or (unit.path, unit.name, _words(unit)) not in lower
    ]


def _without_runtimes(tree: Tree, units: list[ServeUnit]) -> list[ServeUnit]:
    """Units without those of runtimes that an InferenceService is served with: they are that server's."""
    if not any(unit.kind.endswith("ServingRuntime") for unit in units):
        return units
    from kvgate.manifests.peers import peers_of

    peers = peers_of(tree)
    return [unit for unit in units if not peers.is_used_runtime(unit.kind, unit.path, unit.document)]


def _without_bases(tree: Tree, units: list[ServeUnit], read_object: ReadObject) -> list[ServeUnit]:
    """Units without those of a folder for bases that every kustomization makes another one of."""
    bases = {place for place in tree.overlaid if _is_base(place[0])}
    if not bases:
        return units
    from kvgate.manifests.kustomize import given_objects

    for path, given in given_objects(tree):
        origin = given.origin.span
        place = (origin.file.path, origin.start)
        if place not in bases or path in tree.overlaid[place] or _is_base(path):
            continue
        itself = given.node is given.origin
        if itself or servers_among(read_object(tree, origin.file, given.node)) == servers_among(
            read_object(tree, origin.file, given.origin)
        ):
            bases.discard(place)
    return [unit for unit in units if unit.document is None or (unit.path, unit.document.span.start) not in bases]


def _is_base(path: str) -> bool:
    return not _BASES.isdisjoint(path.split("/")[:-1])


def _words(unit: ServeUnit) -> tuple[tuple[str, bool], ...]:
    return tuple((word.value, word.resolved) for word in unit.words)


def _surroundings(unit: ServeUnit) -> tuple[object, ...]:
    """What a script says about a server beside its arguments: the image, the GPUs, variables of vLLM."""
    return (
        None if unit.image is None else unit.image.value,
        [request.count for request in unit.gpu_requests],
        [(item.name, item.value and item.value.value) for item in unit.environment if item.name.startswith("VLLM_")],
    )


def _others(unit: ServeUnit) -> set[str]:
    """The file that all words of a unit come from, where it is another one."""
    paths = {piece.span.path for word in unit.words for piece in word.text.pieces}
    return paths - {unit.path} if len(paths) == 1 else set()
