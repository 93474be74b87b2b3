"""Terraform, OpenTofu and Nomad -> serve units, by the readers of what their resources stand for.

A Kubernetes resource becomes the object that it creates, a Helm release its values, a text its script; containers of
other services are read by their keys.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kvgate.manifests.hcl import MODULE, Block, NotHCLError, read_blocks, walk_mappings
from kvgate.manifests.tree import Tree, entries_at, items_at, node_at, scalar_at, text_at
from kvgate.manifests.unit import NodeHint, ServeUnit, Unread
from kvgate.source.text import SourceFile, Text
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, Sequence, parse_embedded

# Blocks of the Kubernetes provider whose key in the object is a list of another name.
_LISTS: Final = {
    "container": "containers",
    "containers": "containers",
    "env": "env",
    "env_from": "envFrom",
    "init_container": "initContainers",
    "port": "ports",
    "toleration": "tolerations",
    "volume": "volumes",
    "volume_claim_template": "volumeClaimTemplates",
    "volume_mount": "volumeMounts",
}
_PROVIDER: Final = re.compile(r"kubernetes_(?P<kind>[a-z_]+?)(?:_v[0-9]\w*)?")
# Blocks whose values others may use, and serve with.
_DEFINITIONS: Final = ("locals", "variable")
# Where a resource that is a machine says of what type it is.
_MACHINES: Final = ("instance_type", "machine_type", "vm_size", "size")
_MACHINE: Final = re.compile(r"[a-z][\w-]*\.[\w.-]+|[a-z]\w*-[\w-]+|Standard_\w+")
# Arguments of resources that hold whole manifests as text or as an object.
_MANIFESTS: Final = ("manifest", "yaml_body", "yaml")


def read_terraform(tree: Tree, file: SourceFile) -> Iterator[ServeUnit | Unread]:
    """The serve units of one file."""
    try:
        blocks = read_blocks(tree, file)
    except (NotHCLError, RecursionError) as error:
        yield Unread(str(error) or "nested too deeply", file.line_span(1), serves="vllm" in file.text.lower())
        return
    read = [
        (block, [_in_file(file, block, found) for found in _of_block(tree, file, block)])
        for block in blocks
        if not _is_left_out(file, block)
    ]
    used = {place for block, found in read if block.type not in _DEFINITIONS for place in _places(found)}
    for block, found in read:
        if block.type not in _DEFINITIONS or used.isdisjoint(_places(found)):
            yield from found


def _of_block(tree: Tree, file: SourceFile, block: Block) -> Iterator[ServeUnit | Unread]:
    found = list(_resource(tree, file, block)) if block.type == "resource" and block.labels else []
    yield from found
    if not found:
        stated = (node for key in _MACHINES if (node := scalar_at(block.body, key)) is not None)
        machine = next((node for node in stated if _MACHINE.fullmatch(node.value)), None)
        hints = [NodeHint("instance-type", (machine.value,), machine.span)] if machine else []
        for unit in _rest(tree, file, block):
            yield replace(unit, node_hints=(*unit.node_hints, *hints)) if isinstance(unit, ServeUnit) else unit


def _in_file(file: SourceFile, block: Block, found: ServeUnit | Unread) -> ServeUnit | Unread:
    """A server whose text is that of another file begins where that is used."""
    elsewhere = isinstance(found, ServeUnit) and found.path == file.path and found.span.file is not file
    return replace(found, span=block.key.span) if elsewhere else found


def _places(found: list[ServeUnit | Unread]) -> Iterator[tuple[str, int]]:
    """Where the words of servers are written."""
    for unit in found:
        yield from ((word.span.path, word.span.start) for word in (unit.words if isinstance(unit, ServeUnit) else ()))


def _is_left_out(file: SourceFile, block: Block) -> bool:
    """Whether a block counts none, whatever is asked for: ``var.enabled ? 1 : 0`` is there to be turned on."""
    entry = block.body.entry("count")
    if entry is None or not isinstance(entry.value, Scalar) or entry.value.value != "0":
        return False
    return file.text[entry.key.span.end : entry.value.span.start].strip() == "="


def _resource(tree: Tree, file: SourceFile, block: Block) -> Iterator[ServeUnit | Unread]:
    kind, body = block.labels[0], block.body
    if kind == "helm_release":
        yield from _release(tree, file, block)
        return
    from kvgate.manifests.kinds import read_kinds

    for name in _MANIFESTS:
        manifest = body.get(name)
        documents: list[Node | None] = [manifest]
        if isinstance(manifest, Scalar):
            documents = [*parse_embedded(manifest.text).documents]
        for document in documents:
            if isinstance(document, Mapping) and text_at(document, "kind"):
                yield from read_kinds(tree, file, document)
    match = _PROVIDER.fullmatch(kind)
    if match and node_at(body, "spec") is not None:
        parts = match["kind"].split("_")
        yield from read_kinds(tree, file, _object("".join(part.capitalize() for part in parts), block))
    elif not match:
        from kvgate.manifests.custom import read_by_shape

        if any(mapping.get("image") is not None for mapping in walk_mappings([body])):
            yield from read_by_shape(tree, file, _object(kind, block))


def _object(kind: str, block: Block) -> Mapping:
    """The Kubernetes object that a resource creates."""
    converted = _converted(block.body)
    assert isinstance(converted, Mapping)
    entries = [_entry(block, "kind", kind), *converted.entries]
    if text_at(converted, "metadata", "name") is None and block.labels:
        name = text_at(converted, "name") or block.labels[-1]
        metadata = Mapping(block.body.span, [_entry(block, "name", name)])
        entries = [entry for entry in entries if entry.key.value != "metadata"]
        entries.append(Entry(Scalar(block.key.span, "metadata"), metadata))
    return Mapping(block.body.span, entries)


def _entry(block: Block, key: str, value: str) -> Entry:
    span = block.key.span
    return Entry(Scalar(span, key), Scalar(span, value, mapped=Text.at(value, span)))


def _converted(node: Node) -> Node:
    """A body with the keys of the object: ``image_pull_policy`` is ``imagePullPolicy``; objects stay as they are."""
    if isinstance(node, Sequence):
        return Sequence(node.span, [_converted(item) for item in node.items])
    if not isinstance(node, Mapping) or node.span.text.lstrip().startswith("{"):
        return node
    entries: list[Entry] = []
    for entry in node.entries:
        name, value = entry.key.value, _converted(entry.value)
        if name in _LISTS and not isinstance(value, Sequence):
            value = Sequence(value.span, [value])
        head, *rest = _LISTS.get(name, name).split("_")
        key = head + "".join(part.capitalize() for part in rest)
        entries.append(Entry(Scalar(entry.key.span, key), value))
    return Mapping(node.span, entries)


# -- Helm --------------------------------------------------------------------------------------------------------------


def _release(tree: Tree, file: SourceFile, block: Block) -> Iterator[ServeUnit | Unread]:
    """What the values of a ``helm_release`` make: its ``values``, a list of YAML texts, and its ``set`` blocks."""
    from kvgate.manifests.helm.overlays import chart_in_tree
    from kvgate.manifests.helm.releases import read_release, with_parameters
    from kvgate.manifests.helm.values import Release

    # a name that other resources make is none that a unit could be found by
    known = {key: text for key in ("name", "namespace") if (text := text_at(block.body, key)) and "{{" not in text}
    name = known.get("name", block.labels[-1])
    release = Release("helm_release", known.get("namespace"), name, block.body)
    entries: list[Entry] = []
    for item in items_at(block.body, "values"):
        documents = parse_embedded(item.text).documents if isinstance(item, Scalar) else [item]
        entries += [entry for document in documents for entry in entries_at(document)]
    stated = block.body.get("set")
    settings: list[Node | None] = [*stated.items] if isinstance(stated, Sequence) else [stated]
    values = with_parameters(Mapping(block.body.span, entries), settings)
    if isinstance(values, Mapping) and values.entries:
        chart = MODULE.sub("./", text_at(block.body, "chart") or "")
        folder = chart_in_tree(tree, posixpath.dirname(file.path), chart)
        yield from read_release(tree, file, values, release, folder)


# -- everything else ---------------------------------------------------------------------------------------------------


def _rest(tree: Tree, file: SourceFile, block: Block) -> Iterator[ServeUnit | Unread]:
    """Containers that other services are told of, else the commands of scripts."""
    from kvgate.manifests.keyed_commands import read_keyed_commands
    from kvgate.manifests.task_definitions import read_task_definitions

    kind = block.labels[0] if block.type == "resource" and block.labels else block.type
    named = block.labels and block.body.get("name") is None
    entries = [*([_entry(block, "name", block.labels[-1])] if named else []), *block.body.entries]
    whole = Mapping(block.body.span, [Entry(Scalar(block.key.span, kind), Mapping(block.body.span, entries))])
    for document in list(_tasks(block.body)) or [whole]:
        found = list(read_task_definitions(tree, file, document))
        for unit in found:
            yield replace(unit, kind=kind) if isinstance(unit, ServeUnit) and unit.kind == "ansible" else unit
        if not found:
            yield from read_keyed_commands(tree, file, document)


def _tasks(body: Mapping) -> Iterator[Mapping]:
    """The tasks of a Nomad job, each as a container whose parts stand in one mapping."""
    for node in walk_mappings([body]):
        config = node.get("config")
        if node.get("driver") is not None and isinstance(config, Mapping) and config.entries:
            key = Scalar(config.entries[0].key.span, "nomad_task")
            yield Mapping(node.span, [Entry(key, Mapping(node.span, list(_task(node, config))))])


def _task(node: Mapping, config: Mapping) -> Iterator[Entry]:
    """``config`` of a task with what stands beside it; the command leads its arguments, as Nomad hands them on."""
    span = config.entries[0].key.span
    command = config.get("command")
    words = [*([command] if isinstance(command, Scalar) else []), *items_at(config, "args")]
    for entry in config.entries:
        if entry.key.value not in ("command", "args"):
            yield entry
    if words:
        yield Entry(Scalar(span, "command"), Sequence(config.span, words))
    for key in ("name", "env"):
        value = node.get(key)
        if value is not None:
            yield Entry(Scalar(span, key), value)
    template = node.get("template")
    if template is not None:
        listed = template if isinstance(template, Sequence) else Sequence(template.span, [template])
        yield Entry(Scalar(span, "template"), listed)
    device = node_at(node, "resources", "device")
    if device is not None and "gpu" in (text_at(device, "name") or ""):
        yield Entry(Scalar(span, "gpus"), scalar_at(device, "count") or Scalar(device.span, "1"))
