"""Argo CD's ApplicationSets: the Applications that their lists of elements make of a template."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from kvgate.manifests.flags import json_of_node
from kvgate.manifests.helm.chart import render_embedded
from kvgate.manifests.helm.go_template import TemplateError
from kvgate.manifests.helm.values import with_references
from kvgate.manifests.kustomize import merged
from kvgate.manifests.tree import items_at, node_at, scalar_at, text_at
from kvgate.source.text import Text
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, parse_embedded

# How a template of Argo CD refers to what a generator yields, with and without Go's templates.
_PARAMETER: Final = re.compile(r"\{\{-?\s*\.?([A-Za-z_][\w.-]*?)\s*(?:\|\s*(?:quote|toString|int)\s*)?-?\}\}")
MAX_ELEMENTS: Final = 100
MAX_GENERATED: Final = 1_000_000


def applications(item: Node) -> Iterator[Node]:
    """The Applications that an ApplicationSet makes, one for each element of its lists that gives Helm other values;
    every other object as it is."""
    spec = node_at(item, "spec")
    if text_at(item, "kind") != "ApplicationSet" or not isinstance(item, Mapping) or not isinstance(spec, Mapping):
        yield item
        return
    template, patch = spec.get("template"), scalar_at(spec, "templatePatch")
    elements = _elements(spec, 0)
    if template is None or len(elements) * len(template.span.text) > MAX_GENERATED:
        elements = []
    seen: set[str] = set()
    for element in elements or [Mapping(item.span, [])]:
        made = with_references(template, _PARAMETER, element) if template is not None else None
        if patch is not None and made is not None:
            given = with_references(patch, _PARAMETER, element)
            assert isinstance(given, Scalar)
            over = next(iter(documents_of_text(given.text, element)), None)
            made = merged(made, over, by_name=False) if over is not None else made
        told = node_at(made, "spec")
        sources = [node_at(told, "source"), *items_at(told, "sources")]
        values = json.dumps([json_of_node(helm) for source in sources if (helm := node_at(source, "helm")) is not None])
        if values in seen:
            continue
        seen.add(values)
        entries = [Entry(e.key, made if made is not None and e.value is template else e.value) for e in spec.entries]
        inner = Mapping(spec.span, entries)
        yield Mapping(item.span, [Entry(e.key, inner if e.value is spec else e.value) for e in item.entries])


def _elements(holder: Node, depth: int) -> list[Mapping]:
    """What the lists among generators yield; those of a matrix are combined."""
    found: list[Mapping] = []
    for generator in items_at(holder, "generators"):
        own = _listed(generator)
        matrix = node_at(generator, "matrix")
        if matrix is not None and depth == 0:
            for inner in items_at(matrix, "generators"):
                lefts: list[Mapping | None] = [*own] if own else [None]
                own = [_joined(left, right) for left in lefts for right in _listed(inner)[:MAX_ELEMENTS]] or own
                own = own[:MAX_ELEMENTS]
        found += own
    return found[:MAX_ELEMENTS]


def _listed(generator: Node) -> list[Mapping]:
    return [element for element in items_at(generator, "list", "elements") if isinstance(element, Mapping)]


def _joined(left: Mapping | None, right: Mapping) -> Mapping:
    return right if left is None else Mapping(right.span, [*left.entries, *right.entries])


def documents_of_text(text: Text, given: Mapping | None = None) -> Sequence[Node]:
    """The documents of a text, which may be a Go template."""
    if not re.search(r"\{\{-?\s*(?:if|range|with|else|end)\b", text.value):
        return parse_embedded(text).documents
    try:
        return render_embedded(text, given).documents
    except TemplateError:
        return ()
