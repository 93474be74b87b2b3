"""Which reader takes which kind of Kubernetes object; each is imported by the first object that needs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kvgate.manifests.tree import Tree, entries_at, expand_list, items_at, scalar_at, text_at
from kvgate.manifests.unit import ServeUnit, Unread
from kvgate.source.text import SourceFile
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar

# Kinds of every other manifest that hold no containers.
_PLAIN_KINDS: Final = frozenset(
    {
        "ConfigMap", "HorizontalPodAutoscaler", "Ingress", "Namespace", "NetworkPolicy", "PersistentVolume",
        "PersistentVolumeClaim", "PodDisruptionBudget", "Secret", "Service", "ServiceAccount",
    }
)  # fmt: skip


def read_kinds(
    tree: Tree, file: SourceFile, document: Node, *, templated: bool = False
) -> Iterator[ServeUnit | Unread]:
    """The serve units of a document of Kubernetes, whatever its kind.

    Args:
        templated: it is what is known of a template.
    """
    from kvgate.manifests.kubernetes import is_other_kind, read_kubernetes

    if text_at(document, "kind") == "Template":
        document = _with_parameters(document)
    yield from read_kubernetes(tree, file, document, templated=templated)
    if any(_carries_manifests(item) for item in expand_list(document)):
        from kvgate.manifests.embedded import read_config_maps

        yield from read_config_maps(tree, file, document)
    if any(is_other_kind(item) for item in expand_list(document) if text_at(item, "kind") not in _PLAIN_KINDS):
        from kvgate.manifests.controllers import read_controlled
        from kvgate.manifests.custom import read_custom
        from kvgate.manifests.helm.releases import read_releases
        from kvgate.manifests.ray import read_ray

        known = [
            *read_custom(tree, file, document, templated=templated),
            *read_ray(tree, file, document),
            *read_releases(tree, file, document),
            *read_controlled(tree, file, document),
        ]
        yield from known
        if not known:
            from kvgate.manifests.controllers import read_unknown

            yield from read_unknown(tree, file, document)


_PARAMETER: Final = re.compile(r"\$\{(?:\{)?([A-Za-z_]\w*)\}(?:\})?")


def _with_parameters(template: Node) -> Node:
    """A Template of OpenShift with what its parameters are where nobody gives them other values."""
    given: list[Entry] = []
    for item in items_at(template, "parameters"):
        name, value = scalar_at(item, "name"), scalar_at(item, "value")
        if name is not None and value is not None and value.value:
            given.append(Entry(name, value))
    if not given:
        return template
    from kvgate.manifests.helm.values import with_references

    return with_references(template, _PARAMETER, Mapping(template.span, given))


def _carries_manifests(item: Node) -> bool:
    """Whether an object is a ConfigMap with texts of several lines, which may be manifests for a controller."""
    if text_at(item, "kind") != "ConfigMap":
        return False
    texts = [entry.value.value for entry in entries_at(item, "data") if isinstance(entry.value, Scalar)]
    texts = [text for text in texts if ":\n" in text and "vllm" in text.lower()]
    if not texts:
        return False
    from kvgate.manifests.embedded import CARRIED

    return any(CARRIED.search(text) for text in texts)
