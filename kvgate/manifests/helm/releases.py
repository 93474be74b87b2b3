"""Objects that install a chart with values of their own: Flux, Argo CD, K3s, helmfile, kustomize."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from kvgate.manifests.helm.application_sets import applications, documents_of_text
from kvgate.manifests.helm.chart import put_over
from kvgate.manifests.helm.overlays import chart_in_tree, makes_servers, read_installation
from kvgate.manifests.helm.values import Release, read_values
from kvgate.manifests.tree import Tree, expand_list, items_at, node_at, scalar_at, text_at
from kvgate.manifests.unit import ServeUnit, Unread
from kvgate.source.text import SourceFile
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
                yield from read_release(
                    tree, file, values, release, chart_in_tree(tree, "", _chart_of(item, holder, path))
                )


def _chart_of(item: Node, holder: Node, path: tuple[str, ...]) -> str:
    """The folder that a release's chart has in its repository; nothing for the name of a chart."""
    if path[-1] != "helm":
        return text_at(item, "spec", "chart", "spec", "chart") or ""
    sources = [source for source in _at(item, path[:-1]) if node_at(source, "helm") is holder]
    folder = next((folder for source in sources if (folder := text_at(source, "path"))), None)
    return f"./{folder}" if folder else ""


def read_release(
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
                yield from read_release(tree, file, values, release, chart)


def read_helm_charts(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The serve units of the charts that a kustomization installs, with the values files beside it that it names."""
    folder = posixpath.dirname(file.path)
    home = text_at(document, "helmGlobals", "chartHome") or "charts"
    for item in items_at(document, "helmCharts"):
        name = text_at(item, "name") or ""
        values: Node | None = None
        for given in (node_at(item, "valuesFile"), *items_at(item, "additionalValuesFiles")):
            beside = (
                tree.use(posixpath.join(folder, given.value)) if isinstance(given, Scalar) and given.value else None
            )
            for read in tree.stream(beside).documents[:1] if beside is not None else ():
                values = put_over(values, read)
        inline = node_at(item, "valuesInline")
        values = put_over(values, inline if isinstance(inline, Mapping) else None)
        if values is None:
            continue
        namespace = text_at(item, "namespace") or text_at(document, "namespace")
        release = Release("Kustomization", namespace, text_at(item, "releaseName") or name, document)
        chart = chart_in_tree(tree, folder, f"./{home}/{name}")
        for found in read_release(tree, file, values, release, chart):
            if isinstance(found, ServeUnit) and found.span.file is not file:
                yield replace(found, span=item.span)
            else:
                yield found


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
            values = with_parameters(values, found.items)
            continue
        if isinstance(found, Scalar):
            found = next(iter(documents_of_text(found.text)), None)
        values = put_over(values, found)
    return values


MAX_PARAMETERS: Final = 1_000  # each is put over the values that the others make
# A step of the path that ``set`` names: a key, with a backslash before a dot that is its own, or an index.
_STEP: Final = re.compile(r"(?:^|\.)(?:[^.\[\]{}\\]|\\.)+|\[[0-9]{1,2}\]")


def with_parameters(values: Node | None, items: Iterable[Node | None]) -> Node | None:
    """Values with others put over them by their paths (``model.name``, ``list[0].key``, ``key\\.with\\.dots``)."""
    for item in islice(items, MAX_PARAMETERS):
        path, value = text_at(item, "name") or "", scalar_at(item, "value")
        steps = _STEP.findall(path)
        if value is not None and steps and "".join(steps) == path:
            # Helm takes a quoted number for a number all the same
            plain = Scalar(value.span, value.value, "", value.alias, value.text)
            values = _with_value(values, steps, plain)
    return values


def _with_value(values: Node | None, steps: list[str], value: Scalar) -> Node:
    if not steps:
        return value
    step, *rest = steps
    if step.startswith("["):
        index = int(step[1:-1])
        items = list(values.items) if isinstance(values, YamlSequence) else []
        items += [Mapping(value.span, []) for _ in range(len(items), index + 1)]
        items[index] = _with_value(items[index], rest, value)
        return YamlSequence(value.span, items)
    key = re.sub(r"\\(.)", r"\1", step.removeprefix("."))
    whole = values if isinstance(values, Mapping) else Mapping(value.span, [])
    told = whole.entry(key)
    if told is None:
        return Mapping(whole.span, [*whole.entries, Entry(Scalar(value.span, key), _with_value(None, rest, value))])
    made = Entry(told.key, _with_value(told.value, rest, value))
    return Mapping(whole.span, [made if entry is told else entry for entry in whole.entries])
