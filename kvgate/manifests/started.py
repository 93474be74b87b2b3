"""The serve unit of a start that a script makes: outside Kubernetes and Compose, or in a container of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kvgate.manifests.container import Start, environment_of
from kvgate.manifests.unit import GpuRequest, NodeHint, ServeUnit, SharedMemory
from kvgate.records import record
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Text, Word
from kvgate.source.yaml_tree import Node


@record
class Surroundings:
    """What holds around every start of a script.

    Attributes:
        names: what tells the script from others of its file, behind the file's path in the unit's id.
        allotted: the GPUs that a script's job has, where no variable of the script says which of them it uses.
        requirement: the pip requirement that installs vLLM.
        span: where a start that stands in another file counts as beginning, unless a command of this one runs that.
    """

    file: SourceFile
    kind: str
    names: tuple[str, ...] = ()
    variables: Mapping[str, Value] = field(default_factory=dict)
    spans: Mapping[str, Span] = field(default_factory=dict)
    image: Word | None = None
    devices: tuple[GpuRequest, ...] = ()
    allotted: tuple[GpuRequest, ...] = ()
    hints: tuple[NodeHint, ...] = ()
    replicas: int | None = None
    replicas_span: Span | None = None
    annotations: Mapping[str, Text] = field(default_factory=dict)
    shared_memory: SharedMemory | None = None
    node: Node | None = None
    document: Node | None = None
    requirement: Word | None = None
    span: Span | None = None


def unit_of(start: Start, around: Surroundings, number: int) -> ServeUnit:
    """The unit of the ``number``-th start of a script."""
    run = start.run
    name = next((part for part in reversed(around.names) if part), around.file.path.rpartition("/")[2])
    image: Word | None
    if run is not None:
        # the container sees nothing of the script's environment but what it is handed
        shared_in = (around.variables, around.spans) if run.shares else ({}, {})
        environment = environment_of(
            {**shared_in[0], **run.environment}, {**shared_in[1], **run.spans}, start.environment
        )
        image, devices, shared = run.image, run.devices, run.shared_memory
        name = run.name or name
    else:
        environment = environment_of(around.variables, around.spans, start.environment)
        image, devices, shared = around.image, around.devices, around.shared_memory
    if not devices:
        from kvgate.manifests.container_run import visible_devices

        values = {item.name: Value(item.value) for item in environment if item.value is not None}
        visible = visible_devices(values, {item.name: item.span for item in environment})
        devices = (visible,) if visible is not None else around.allotted if run is None or run.shares else ()
    places = [place for place in (start.span, start.caller) if place is not None and place.path == around.file.path]
    parts = [around.file.path, *around.names, str(number + 1) if number else ""]
    return ServeUnit(
        id="/".join(part for part in parts if part),
        path=around.file.path,
        span=places[0] if places else around.span or around.file.line_span(1),
        kind=around.kind,
        name=name,
        container=None,
        namespace=None,
        words=start.words,
        positional_model=start.positional_model,
        entry=start.entry,
        image=image,
        environment=environment,
        gpu_requests=devices,
        node_hints=run.hints if run is not None and run.hints else around.hints,
        replicas=around.replicas,
        replicas_span=around.replicas_span,
        annotations={**around.annotations, **(run.labels if run is not None else {})},
        shared_memory=shared,
        node=around.node,
        document=around.document,
        storage_model=start.storage_model,
        notes=start.notes,
        requirement=around.requirement,
    )


def is_launcher_to_be(start: Start) -> bool:
    """Whether a start stands in a launcher that a script writes out for others, who will say what it serves."""
    return bool(start.words) and all(word.unresolved and word.value in ("$@", "$*") for word in start.words)
