"""Manifests that a ConfigMap carries for a controller: templates of workloads, deployment templates of AIBrix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kvgate.manifests.container import Argument
from kvgate.manifests.controlled import Controlled
from kvgate.manifests.flags import words_of_entries
from kvgate.manifests.helm.values import Release, read_values
from kvgate.manifests.shapes import is_kubernetes
from kvgate.manifests.tree import Tree, entries_at, expand_list, items_at, node_at, scalar_at, text_at
from kvgate.manifests.unit import GpuRequest, ServeUnit, Unread
from kvgate.shell.expand import mark_placeholders
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span
from kvgate.source.yaml_tree import Mapping, Node, Scalar, Sequence, is_go_template, parse_embedded, scalar_int

MAX_CHARACTERS: Final = 200_000

# What the texts have in them that are read here: pods, deployment templates of AIBrix, models of RayLLM.
CARRIED: Final = re.compile(r"containers:|engine:|engine_kwargs:")

# Path in a deployment template of AIBrix -> the flag that its engine adapter makes of it; sizes of one give none.
_AIBRIX_FLAGS: Final = (
    (("model_source", "revision"), "revision"),
    (("model_source", "tokenizer_path"), "tokenizer"),
    (("model_source", "chat_template_path"), "chat-template"),
    (("parallelism", "tp"), "tensor-parallel-size"),
    (("parallelism", "pp"), "pipeline-parallel-size"),
    (("parallelism", "dp"), "data-parallel-size"),
    (("quantization", "weight"), "quantization"),
    (("quantization", "kv_cache"), "kv-cache-dtype"),
)


def read_config_maps(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The serve units in the texts of a document's ConfigMaps."""
    for item in expand_list(document):
        if text_at(item, "kind") != "ConfigMap":
            continue
        for entry in entries_at(item, "data"):
            if not isinstance(entry.value, Scalar) or len(entry.value.value) > MAX_CHARACTERS:
                continue
            if "vllm" in entry.value.value.lower():
                yield from _of_text(tree, file, item, entry.key.value, entry.value)


def read_carried_code(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The serve units of the Python programs in a document's ConfigMaps, which something else runs."""
    from kvgate.manifests.python_code import may_start, read_python

    for item in expand_list(document):
        if text_at(item, "kind") != "ConfigMap" or _is_served_by_ray(tree, file, text_at(item, "metadata", "name")):
            continue
        for entry in entries_at(item, "data"):
            if entry.key.value.endswith(".py") and isinstance(entry.value, Scalar) and may_start(entry.value.value):
                program = program_of(file, entry.key.span, entry.value.span)
                if program is not None:
                    yield from read_python(tree, program)


def _is_served_by_ray(tree: Tree, file: SourceFile, name: str | None) -> bool:
    """Whether a RayService of another file has a ConfigMap's program: the server is found there."""
    others = (other.text for other in tree.files.values() if other is not file and "serveConfigV2" in other.text)
    return name is not None and any(name in text for text in others)


def program_of(file: SourceFile, key: Span, block: Span) -> SourceFile | None:
    """A file with nothing but the program of a block scalar, each character where it stands; None for other scalars.

    Its lines are indented: the line of its key becomes a condition that always holds.
    """
    head = file.text.rfind("\n", 0, key.start) + 1
    first = file.text.find("\n", key.end) + 1
    if not first or "|" not in file.text[key.end : first]:
        return None
    before = re.sub(r"[^\r\n]", " ", file.text[:head])
    condition = "if 1:".ljust(len(file.text[head:first].rstrip("\r\n")))
    ending = file.text[head + len(condition) : first]
    body = file.text[first : block.end]
    after = re.sub(r"[^\r\n]", " ", file.text[block.end :])
    return SourceFile(file.path, before + condition + ending + body + after)


def _of_text(tree: Tree, file: SourceFile, item: Node, key: str, text: Scalar) -> Iterator[ServeUnit | Unread]:
    value = text.value
    if not CARRIED.search(value):
        return
    if is_go_template(value):
        from kvgate.manifests.helm.chart import render_embedded
        from kvgate.manifests.helm.go_template import TemplateError

        try:
            documents = render_embedded(text.text).documents
        except TemplateError:
            return
    else:
        documents = tuple(parse_embedded(text.text).documents)
    from kvgate.manifests.kubernetes import read_kubernetes

    for document in documents:
        if is_kubernetes(document):
            for unit in read_kubernetes(tree, file, document, templated=True):
                yield _named(unit, item, key) if isinstance(unit, ServeUnit) else unit
        elif node_at(document, "engine_config") is not None:
            name = text_at(item, "metadata", "name") or ""
            release = Release("ConfigMap", text_at(item, "metadata", "namespace"), f"{name}/{key}", item)
            yield from read_values(tree, file, document, release)
        elif isinstance(document, Sequence):
            for template in document.items:
                made = _aibrix(file, item, template)
                if made is not None:
                    yield made


def _named(unit: ServeUnit, item: Node, key: str) -> ServeUnit:
    from dataclasses import replace

    name = unit.name or text_at(item, "metadata", "name") or ""
    namespace = unit.namespace or text_at(item, "metadata", "namespace")
    parts = [unit.kind, namespace or "default", name, key, unit.container or ""]
    return replace(unit, id="/".join(part for part in parts if part), name=name, namespace=namespace)


def _aibrix(file: SourceFile, item: Node, template: Node) -> ServeUnit | None:
    """A ModelDeploymentTemplate of AIBrix: engine, model source, accelerator, parallelism, engine arguments."""
    spec = node_at(template, "spec")
    source = scalar_at(spec, "model_source", "uri")
    if text_at(spec, "engine", "type") != "vllm" or source is None or not isinstance(template, Mapping):
        return None
    words = [*Argument("--model", source).words()]
    for path, flag in _AIBRIX_FLAGS:
        value = scalar_at(spec, *path)
        if value is not None and value.value and not (path[0] == "parallelism" and (scalar_int(value) or 0) <= 1):
            words += Argument(f"--{flag}", value).words()
    words += words_of_entries(entries_at(spec, "engine_args"))
    for argument in items_at(spec, "engine", "serve_args"):
        if isinstance(argument, Scalar):
            words.append(mark_placeholders(Value(argument.text)).word())
    count = node_at(spec, "accelerator", "count")
    number = scalar_int(count)
    return Controlled(
        kind="ModelDeploymentTemplate",
        namespace=text_at(item, "metadata", "namespace"),
        name=text_at(template, "name") or "",
        words=words,
        span=template.span,
        node=template,
        document=item,
        image=scalar_at(spec, "engine", "image"),
        devices=(GpuRequest("device", number, count.span),) if count is not None and number is not None else (),
        machine=("accelerator", scalar_at(spec, "accelerator", "type")),
    ).unit(file)
