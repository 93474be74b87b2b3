"""Containers that other services are told of: task definitions of Amazon ECS, blueprints of OCI AI, Ansible's modules.

A row says which keys hold the parts of a container; where such a mapping stands in a document does not matter.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Final

from kvgate.manifests.container import Container, Find
from kvgate.manifests.launch import find_starts
from kvgate.manifests.started import Surroundings, unit_of
from kvgate.manifests.tree import Tree, entries_at, items_at, node_at, scalar_at, text_at
from kvgate.manifests.unit import GpuRequest, NodeHint, ServeUnit, Unread
from kvgate.records import record
from kvgate.shell.expand import expand_kubernetes, mark_placeholders
from kvgate.shell.value import Value
from kvgate.shell.words import split_words
from kvgate.source.text import SourceFile, Span, Text, TooLargeError, Word
from kvgate.source.yaml_tree import MAX_EXPANDED_NODES, Mapping, Node, Scalar, Sequence, scalar_int

MAX_CONTAINERS: Final = 200


@record
class Keys:
    """Where the parts of a container stand in its mapping.

    Attributes:
        pair: keys of a variable's name and value.
        requirements: a list of ``{type: GPU, value: n}``.
        requests: a list of ``{count: n}`` or ``{device_ids: [..]}``, as the Docker engine takes it.
        expands: ``$(NAME)`` is replaced from the environment, as Kubernetes does.
        job: key and value of what runs to its end and serves nobody.
        files: key of a list of files that are written into the container, and those of their path and their text.
    """

    kind: str
    names: tuple[str, ...]
    image: str
    command: str
    arguments: str
    environment: str
    pair: tuple[str, str]
    gpus: tuple[str, ...] = ()
    requirements: str | None = None
    requests: str | None = None
    machine: str | None = None
    replicas: str | None = None
    expands: bool = False
    job: tuple[str, str] | None = None
    files: tuple[str, str, str] | None = None


_ECS: Final = Keys("ecs-task", ("name",), "image", "entryPoint", "command", "environment", ("name", "value"),
                   requirements="resourceRequirements")  # fmt: skip
_CLOUD_FORMATION: Final = Keys(
    "ecs-task", ("Name",), "Image", "EntryPoint", "Command", "Environment", ("Name", "Value"),
    requirements="ResourceRequirements",
)  # fmt: skip
_OCI: Final = Keys(
    "oci-blueprint", ("deployment_name", "recipe_id"), "recipe_image_uri", "recipe_container_command",
    "recipe_container_command_args", "recipe_container_env", ("key", "value"),
    gpus=("recipe_nvidia_gpu_count", "recipe_amd_gpu_count"), machine="recipe_node_shape",
    replicas="recipe_replica_count", expands=True, job=("recipe_mode", "job"),
)  # fmt: skip
_ANSIBLE: Final = Keys("ansible", ("name",), "image", "entrypoint", "command", "env", ("name", "value"),
                       requests="device_requests")  # fmt: skip
# what kvgate.manifests.terraform makes of a task of Nomad
_NOMAD: Final = Keys("nomad", ("name",), "image", "entrypoint", "command", "env", ("name", "value"), gpus=("gpus",),
                     files=("template", "destination", "data"))  # fmt: skip
# Key of a list of containers -> their keys; the key of a mapping that is a container itself -> its keys.
_LISTS: Final = {
    "containerDefinitions": _ECS,
    "container_definitions": _ECS,
    "ContainerDefinitions": _CLOUD_FORMATION,
}
_ITSELF: Final = {"recipe_image_uri": _OCI}
# Last part of the key under which the mapping of a container stands -> its keys.
_BELOW: Final = {"docker_container": _ANSIBLE, "podman_container": _ANSIBLE, "nomad_task": _NOMAD}


def read_task_definitions(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The serve units of the containers in a document."""
    numbers: dict[str, int] = {}
    for keys, node, around in _containers(document):
        yield from _units(file, document, keys, node, around, numbers)


def _containers(document: Node) -> Iterator[tuple[Keys, Mapping, Mapping | None]]:
    """The containers of a document, each with the mapping around its list."""
    stack: list[Node] = [document]
    visited = count = 0
    while stack and visited < MAX_EXPANDED_NODES and count < MAX_CONTAINERS:
        visited += 1
        node = stack.pop()
        if isinstance(node, Sequence):
            stack += reversed(node.items)
        if not isinstance(node, Mapping):
            continue
        for key, keys in _ITSELF.items():
            if node.get(key) is not None:
                count += 1
                yield keys, node, None
        for key, keys in _LISTS.items():
            for item in items_at(node, key):
                if isinstance(item, Mapping):
                    count += 1
                    yield keys, item, node
        for entry in node.items():
            below = _BELOW.get(entry.key.value.rpartition(".")[2])
            if below is not None and isinstance(entry.value, Mapping):
                count += 1
                yield below, entry.value, None
        stack += [entry.value for entry in reversed(node.items())]


def _units(
    file: SourceFile, document: Node, keys: Keys, node: Mapping, around: Mapping | None, numbers: dict[str, int]
) -> Iterator[ServeUnit | Unread]:
    image = scalar_at(node, keys.image)
    if image is None or not image.value or (keys.job and text_at(node, keys.job[0]) == keys.job[1]):
        return
    environment, spans = _environment(node, keys)
    known = environment if keys.expands else None
    devices = tuple(_devices(node, keys))
    span = node.entries[0].key.span
    family = text_at(around, "family") or text_at(around, "Family")
    own = next((name for key in keys.names if (name := text_at(node, key))), "")
    container = Container(
        command=_words(node.get(keys.command), known) or None,
        arguments=_words(node.get(keys.arguments), known),
        image=mark_placeholders(Value(image.text)).word(),
        environment=environment,
        span=span,
        named="vllm" in f"{own} {image.value}".lower(),
        accelerated=bool(devices),
        find=_find(node, keys.files) if keys.files is not None else None,
    )
    try:
        starts = find_starts(container)
    except TooLargeError as error:
        yield Unread(f"{error} is not read", span, serves=True)
        return
    machine = scalar_at(node, keys.machine) if keys.machine else None
    replicas = node_at(node, keys.replicas) if keys.replicas else None
    count = scalar_int(replicas)
    surroundings = Surroundings(
        file=file,
        kind=keys.kind,
        names=tuple(name for name in (family, own) if name),
        variables=environment,
        spans=spans,
        image=container.image,
        devices=devices,
        hints=(NodeHint("instance-type", (machine.value,), machine.span),) if machine is not None else (),
        replicas=count,
        replicas_span=replicas.span if replicas is not None and count is not None else None,
        node=node,
        document=document,
        span=span,
    )
    name = "/".join(surroundings.names)
    for start in starts:
        yield unit_of(start, surroundings, numbers.get(name, 0))
        numbers[name] = numbers.get(name, 0) + 1


def _find(node: Mapping, keys: tuple[str, str, str]) -> Find | None:
    """Looks up what a task writes into its own folder (``local/run.sh``) before it starts."""
    listed, place, content = keys
    files: dict[str, Value] = {}
    for item in items_at(node, listed):
        path, text = text_at(item, place), scalar_at(item, content)
        if path and text is not None:
            files[posixpath.normpath(path).lstrip("/")] = mark_placeholders(Value(text.text), variables=False)
    return (lambda path: files.get(posixpath.normpath(path).lstrip("/"))) if files else None


def _words(node: Node | None, known: dict[str, Value] | None) -> tuple[Word, ...]:
    if isinstance(node, Scalar):
        return tuple(split_words(_value(node, known)))
    items = node.items if isinstance(node, Sequence) else []
    return tuple(_value(item, known).word() for item in items if isinstance(item, Scalar))


def _value(node: Scalar, known: dict[str, Value] | None) -> Value:
    value = mark_placeholders(Value(node.text))
    return value if known is None else expand_kubernetes(value, known)


def _environment(node: Mapping, keys: Keys) -> tuple[dict[str, Value], dict[str, Span]]:
    values: dict[str, Value] = {}
    spans: dict[str, Span] = {}
    for entry in entries_at(node, keys.environment):
        if isinstance(entry.value, Scalar):
            values[entry.key.value] = mark_placeholders(Value(entry.value.text))
            spans[entry.key.value] = entry.key.span
    for item in items_at(node, keys.environment):
        if isinstance(item, Scalar):
            key, equals, rest = item.value.partition("=")
            text = item.text.slice(len(item.value) - len(rest), len(item.value))
            if equals:
                values[key], spans[key] = mark_placeholders(Value(text)), item.span
            continue
        name, value = scalar_at(item, keys.pair[0]), scalar_at(item, keys.pair[1])
        if name is not None and name.value:
            unknown = Value.unknown(Text.at(name.value, item.span), "its source is not read", splits=False)
            values[name.value] = mark_placeholders(Value(value.text)) if value is not None else unknown
            spans[name.value] = item.span
    return values, spans


def _devices(node: Mapping, keys: Keys) -> Iterator[GpuRequest]:
    for key in keys.gpus:
        count = node.get(key)
        number = scalar_int(count)
        if count is not None and number:
            yield GpuRequest("device", number, count.span)
            return
    for item in items_at(node, keys.requests) if keys.requests else []:
        stated, listed = scalar_int(node_at(item, "count")), items_at(item, "device_ids")
        number = len(listed) or (stated if stated is not None and stated > 0 else None)
        yield GpuRequest("device", number, item.span, None if number else "it gets all GPUs of the machine")
        return
    for item in items_at(node, keys.requirements) if keys.requirements else []:
        if (text_at(item, "type") or text_at(item, "Type") or "").upper() == "GPU":
            text = text_at(item, "value") or text_at(item, "Value") or ""
            number = int(text) if text.isdecimal() and len(text) < 5 else None
            yield GpuRequest("device", number, item.span, None if number is not None else "not stated as a number")
            return
