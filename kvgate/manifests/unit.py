"""One start of a vLLM server, as a manifest describes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from kvgate.records import record
from kvgate.source.text import Span, Text, Unresolved, Word
from kvgate.source.yaml_tree import Node

#: :attr:`ServeUnit.entry` of a container whose manifest gives no command: what starts is the image's affair.
IMAGE_ENTRY: Final = "the image's entry point"
#: What starts the servers of values whose chart is not at hand: its template may add any argument.
TEMPLATE_ENTRY: Final = "the chart's template"


@record
class EnvironmentVariable:
    """A variable of the server's environment. ``value`` is None when the files do not determine it."""

    name: str
    value: Text | None
    unresolved: Unresolved | None
    span: Span


@record
class GpuRequest:
    """GPUs that one replica of the unit asks for.

    Attributes:
        resource: ``nvidia.com/gpu``, ``nvidia.com/mig-3g.40gb``, ``amd.com/gpu``, ``google.com/tpu``, or ``device`` for
            compose devices.
        count: how many; None when the files do not say (compose's ``count: all``, an unresolved value).
        reason: why the count is None.
    """

    resource: str
    count: int | None
    span: Span
    reason: str | None = None


@record
class NodeHint:
    """A node selector, affinity term or label that says something about the machine: key and the values allowed."""

    key: str
    values: tuple[str, ...]
    span: Span


@record
class SharedMemory:
    """What the unit has at /dev/shm beyond the container runtime's 64 MiB; ``bytes`` None when no limit is set."""

    bytes: int | None
    how: str  # "emptyDir", "shm_size", "ipc: host", "hostIPC"
    span: Span


@record
class ServeUnit:
    """One vLLM server start with the place of everything it says.

    Attributes:
        id: ``kind/namespace/name/container`` (an empty namespace is ``default``), or ``path/entry`` for files without
            such names; stable under line moves.
        path: file, relative to the root, POSIX.
        span: where its container, command or model entry begins.
        kind: Kubernetes kind, or ``compose``.
        words: the words after the entry point: engine arguments, the positional model included.
        positional_model: whether the entry point takes the model as a positional (``vllm serve MODEL``).
        entry: the entry point as written or as the image gives it (``vllm serve``,
            ``vllm.entrypoints.openai.api_server``).
        image: the container image, None where there is none.
        storage_model: storage URI or path that a controller mounts as the model, None elsewhere.
        replicas: declared replicas of the unit (an HPA's minReplicas where one targets it), None when not stated.
        restartable: false for Jobs.
        node: the container or service node; ``document``: the whole document it stands in.
        requirement: the pip requirement by which its script installs vLLM (``vllm==0.10.2``), None where it does not.
    """

    id: str
    path: str
    span: Span
    kind: str
    name: str
    container: str | None
    namespace: str | None
    words: tuple[Word, ...]
    positional_model: bool
    entry: str
    image: Word | None
    environment: tuple[EnvironmentVariable, ...]
    gpu_requests: tuple[GpuRequest, ...]
    node_hints: tuple[NodeHint, ...]
    replicas: int | None
    annotations: Mapping[str, Text]
    shared_memory: SharedMemory | None
    node: Node | None
    document: Node | None
    storage_model: Word | None = None
    replicas_span: Span | None = None
    notes: tuple[Unresolved, ...] = field(default=())
    requirement: Word | None = None


def server_of(unit: ServeUnit) -> tuple[object, ...]:
    """What makes a server the one it is."""
    return (
        tuple((word.value, word.resolved) for word in unit.words),
        None if unit.image is None else unit.image.value,
        None if unit.storage_model is None else unit.storage_model.value,
        tuple((item.name, None if item.value is None else item.value.value) for item in unit.environment),
        tuple((request.resource, request.count) for request in unit.gpu_requests),
        tuple((hint.key, hint.values) for hint in unit.node_hints),
        unit.replicas,
    )


@record
class Unread:
    """A place that could not be read, with the reason; ``serves`` is true when its text starts vLLM."""

    reason: str
    span: Span
    rule: str | None = None  # "unparsable-manifest" where it is a finding rather than an unchecked place
    serves: bool = False


@record
class Reading:
    """What one file, or a tree of files, yields."""

    units: tuple[ServeUnit, ...]
    unread: tuple[Unread, ...]


def servers_among(found: Iterable[ServeUnit | Unread]) -> list[tuple[object, ...]]:
    """What tells the servers apart that were found, in their order (:func:`server_of`)."""
    return [server_of(unit) for unit in found if isinstance(unit, ServeUnit)]
