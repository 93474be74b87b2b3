"""Objects that install a chart with values of their own: Flux, Argo CD, K3s, helmfile, kustomize."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Final

from kvgate.manifests.helm.application_sets import applications, documents_of_text
from kvgate.manifests.helm.overlays import chart_in_tree, makes_servers, read_installation
from kvgate.manifests.helm.values import Release, read_values
from kvgate.manifests.kustomize import merged
from kvgate.manifests.tree import Tree, expand_list, items_at, node_at, scalar_at, text_at
from kvgate.manifests.unit import ServeUnit, Unread
from kvgate.source.text import SourceFile, Span
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar
from kvgate.source.yaml_tree import Sequence as YamlSequence

# What Argo CD hands to Helm, each over those before it: a text, a mapping, and single values by their paths.
_ARGO: Final = ("values", "valuesObject", "parameters")

# Kind -> paths to what holds values, and its keys with them, as mappings, as texts that hold one, or as a list of names
# and values, each over those before it; `[]` is every item of a list.
RELEASES: Final[dict[str, tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]]] = {
    "HelmRelease": ((("spec",), ("values",)),),
    "Application": ((("spec", "source", "helm"), _ARGO), (("spec", "sources", "[]", "helm"), _ARGO)),
    "ApplicationSet": (
        (("spec", "template", "spec", "source", "helm"), _ARGO),
        (("spec", "template", "spec", "sources", "[]", "helm"), _ARGO),
    ),
    "HelmChart": ((("spec",), ("valuesContent",)),),
    "HelmChartConfig": ((("spec",), ("valuesContent",)),),
    "HelmChartProxy": ((("spec",), ("valuesTemplate",)),),
}


def read_releases(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The serve units in the values of a document's releases."""
    for item in (made for found in expand_list(document) for made in applications(found)):
        kind = text_at(item, "kind") or ""
        for path, keys in RELEASES.get(kind, ()):
            for holder in _at(item, path):
                values = _values(holder, keys)
                if values is None:
                    continue
                name = text_at(item, "spec", "template", "metadata", "name") or ""
                if not name or "{{" in name:
                    name = text_at(item, "metadata", "name") or ""
                release = Release(kind, text_at(item, "metadata", "namespace"), name, item)
                yield from _of_release(
                    tree, file, values, release, chart_in_tree(tree, "", _chart_of(item, holder, path))
                )


def _chart_of(item: Node, holder: Node, path: tuple[str, ...]) -> str:
    """The folder that a release's chart has in its repository; nothing for the name of a chart."""
    if path[-1] != "helm":
        return text_at(item, "spec", "chart", "spec", "chart") or ""
    sources = [source for source in _at(item, path[:-1]) if node_at(source, "helm") is holder]
    folder = next((folder for source in sources if (folder := text_at(source, "path"))), None)
    return f"./{folder}" if folder else ""


def _of_release(
    tree: Tree, file: SourceFile, values: Node, release: Release, chart: str | None
) -> Iterator[ServeUnit | Unread]:
    """The servers of values, as the templates of the chart make them where that is in the tree."""
    if chart is not None and isinstance(values, Mapping) and makes_servers(tree, chart):
        yield from read_installation(tree, file, values, chart, release.name)
    else:
        yield from read_values(tree, file, values, release)


def is_helmfile(document: Node) -> bool:
    """Whether a document is a helmfile: releases, each of a chart."""
    return any(scalar_at(item, "chart") is not None for item in items_at(document, "releases"))


def read_helmfile(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The serve units in the values that a helmfile writes out for its releases."""
    for item in items_at(document, "releases"):
        chart = chart_in_tree(tree, posixpath.dirname(file.path), text_at(item, "chart") or "")
        release = Release("helmfile", text_at(item, "namespace"), text_at(item, "name") or "", document)
        for values in items_at(item, "values"):
            if isinstance(values, Mapping):
                yield from _of_release(tree, file, values, release, chart)


def _at(node: Node | None, path: tuple[str, ...]) -> Iterator[Node]:
    if not path:
        if node is not None:
            yield node
        return
    if path[0] == "[]":
        for item in node.items if isinstance(node, YamlSequence) else ():
            yield from _at(item, path[1:])
        return
    inner = node_at(node, path[0])
    if inner is not None:
        yield from _at(inner, path[1:])


def _values(holder: Node, keys: tuple[str, ...]) -> Node | None:
    values: Node | None = None
    for key in keys:
        found = node_at(holder, key)
        if isinstance(found, YamlSequence):
            found = _of_parameters(found.items)
        elif isinstance(found, Scalar):
            found = next(iter(documents_of_text(found.text)), None)
        if found is not None:
            values = found if values is None else merged(values, found, by_name=False)
    return values


_STEP: Final = re.compile(r"((?:[^.\[\\]|\\.)+)|\[([0-9]{1,3})\]")


def _of_parameters(items: Sequence[Node]) -> Node | None:
    """Values by their paths (``model.name``, ``list[0].key``, ``key\\.with\\.dots``), as ``helm --set`` takes them."""
    told: dict[str | int, object] = {}
    for item in items:
        name, value = scalar_at(item, "name"), scalar_at(item, "value")
        if name is None or value is None:
            continue
        steps = [
            int(match.group(2)) if match.group(2) else re.sub(r"\\(.)", r"\1", match.group(1))
            for match in _STEP.finditer(name.value)
        ]
        inner = told
        for step in steps[:-1]:
            below = inner.setdefault(step, {})
            if not isinstance(below, dict):
                below = inner[step] = {}
            inner = below
        if steps:
            # Helm takes a quoted number for a number all the same
            inner[steps[-1]] = Scalar(value.span, value.value, "", value.alias, value.text)
    return _node_of(told, items[0].span) if told else None


def _node_of(told: object, span: Span) -> Node:
    if not isinstance(told, dict):
        assert isinstance(told, Scalar)
        return told
    below = {key: _node_of(value, span) for key, value in told.items()}
    if all(isinstance(key, int) for key in below):
        return YamlSequence(span, [below[key] for key in sorted(below)])
    return Mapping(span, [Entry(Scalar(value.span, str(key)), value) for key, value in below.items()])
