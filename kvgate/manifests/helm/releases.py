"""Objects that install a chart with values of their own: Flux, Argo CD, K3s, helmfile, kustomize."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvgate.manifests.helm.values import Release, read_values
from kvgate.manifests.tree import Tree, expand_list, items_at, node_at, scalar_at, text_at
from kvgate.manifests.unit import ServeUnit, Unread
from kvgate.source.text import SourceFile
from kvgate.source.yaml_tree import Mapping, Node, Scalar, parse_embedded

# Kind -> paths to values, as a mapping or as a text that holds one; `[]` is every item of a list.
RELEASES: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "HelmRelease": (("spec", "values"),),
    "Application": (
        ("spec", "source", "helm", "valuesObject"),
        ("spec", "source", "helm", "values"),
        ("spec", "sources", "[]", "helm", "valuesObject"),
        ("spec", "sources", "[]", "helm", "values"),
    ),
    "ApplicationSet": (
        ("spec", "template", "spec", "source", "helm", "valuesObject"),
        ("spec", "template", "spec", "source", "helm", "values"),
    ),
    "HelmChart": (("spec", "valuesContent"),),
    "HelmChartConfig": (("spec", "valuesContent"),),
    "HelmChartProxy": (("spec", "valuesTemplate"),),
}


def read_releases(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The serve units in the values of a document's releases."""
    for item in expand_list(document):
        kind = text_at(item, "kind") or ""
        for path in RELEASES.get(kind, ()):
            for values in _at(item, path):
                name = text_at(item, "metadata", "name") or ""
                release = Release(kind, text_at(item, "metadata", "namespace"), name, item)
                yield from read_values(tree, file, values, release)


def is_helmfile(document: Node) -> bool:
    """Whether a document is a helmfile: releases, each of a chart."""
    return any(scalar_at(item, "chart") is not None for item in items_at(document, "releases"))


def read_helmfile(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The serve units in the values that a helmfile writes out for its releases."""
    for item in items_at(document, "releases"):
        for values in items_at(item, "values"):
            if isinstance(values, Mapping):
                name = text_at(item, "name") or ""
                yield from read_values(
                    tree, file, values, Release("helmfile", text_at(item, "namespace"), name, document)
                )


def _at(node: Node | None, path: tuple[str, ...]) -> Iterator[Node]:
    if not path:
        if isinstance(node, Scalar):
            yield from parse_embedded(node.text).documents
        elif node is not None:
            yield node
        return
    if path[0] == "[]":
        for item in node.items if node is not None and not isinstance(node, (Mapping, Scalar)) else ():
            yield from _at(item, path[1:])
        return
    inner = node_at(node, path[0])
    if inner is not None:
        yield from _at(inner, path[1:])
