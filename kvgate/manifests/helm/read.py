"""Template files -> serve units."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kvgate.manifests.helm.chart import Rendered, chart_of, folder_of_chart, is_disabled, render_statically
from kvgate.manifests.helm.go_template import TemplateError
from kvgate.manifests.shapes import is_compose, is_kubernetes
from kvgate.manifests.tree import Tree, text_at
from kvgate.manifests.unit import ServeUnit, Unread
from kvgate.source.text import SourceFile
from kvgate.source.yaml_tree import Node

_VLLM: Final = re.compile(r"vllm", re.IGNORECASE)
_STARTS: Final = re.compile(r"vllm[\"',\s]+serve\b|vllm\.entrypoints|vllm/vllm-openai|vllm", re.IGNORECASE)


def read_template(tree: Tree, file: SourceFile) -> Iterator[ServeUnit | Unread]:
    """The serve units of a file that is a Go template, as far as its text and the values at hand allow."""
    folder = folder_of_chart(file.path)
    if folder is not None and is_disabled(tree, folder):
        return
    match = _VLLM.search(file.text)
    place = file.line_span(file.position(match.start())[0] if match else 1)
    try:
        rendered = render_statically(tree, file)
    except TemplateError as error:
        if match and "containers" in file.text:
            yield Unread(
                f"a template that is not followed: {error}", place, serves=_STARTS.search(file.text) is not None
            )
        return
    known = chart_of(tree, folder).known
    found = doubtful = False
    for unit in units_of(tree, file, rendered):
        if isinstance(unit, ServeUnit):
            found = True
            doubtful = doubtful or _is_doubtful(unit)
        yield unit
    if doubtful or (found and not known):
        with_what = "with the chart's own values" if known else "without values"
        yield Unread(f"a template, not rendered: its text was read {with_what}", place)
    elif (
        not found
        and not known
        and match
        and "containers" in file.text
        and re.search(r"vllm\s+serve|vllm\.entry", file.text)
    ):
        yield Unread("a template, not rendered: no server could be read from its text", place, serves=True)


def _is_doubtful(unit: ServeUnit) -> bool:
    """Whether a part of a server that matters is left to the template."""
    words = [*unit.words, *([unit.image] if unit.image is not None else [])]
    return any(_OPEN.search(part.text) for word in words for part in word.unresolved)


# KServe fills in the object's name itself, when the server is made.
_OPEN: Final = re.compile(r"\{\{(?!\s*\.Name\s*\}\})")


def units_of(
    tree: Tree, file: SourceFile, rendered: Rendered, *, templated: bool = True
) -> Iterator[ServeUnit | Unread]:
    """The serve units of what a template yields.

    Args:
        templated: parts of it may be unknown.
    """
    for document in rendered.documents:
        for unit in _units_of_document(tree, file, document, templated=templated):
            if unit.span.file.path != file.path and isinstance(unit, ServeUnit):
                yield replace(unit, span=file.line_span(1))
            else:
                yield unit


def _units_of_document(
    tree: Tree, file: SourceFile, document: Node, *, templated: bool
) -> Iterator[ServeUnit | Unread]:
    if is_kubernetes(document):
        from kvgate.manifests.kinds import read_kinds

        yield from read_kinds(tree, file, document, templated=templated)
    elif is_compose(document):
        from kvgate.manifests.compose import read_compose

        yield from read_compose(tree, file, document)
    elif text_at(document, "kind") is None:
        from kvgate.manifests.scripted import is_scripted, read_scripted

        if is_scripted(document, file):
            yield from read_scripted(tree, file, document)
