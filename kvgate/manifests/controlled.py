"""A server whose controller makes its command line from fields: what such servers have in common."""

from __future__ import annotations

from collections.abc import Sequence

from kvgate.manifests.unit import GpuRequest, NodeHint, ServeUnit
from kvgate.records import record
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Unresolved, Word
from kvgate.source.yaml_tree import Node, Scalar


@record
class Controlled:
    """What an object says about its server.

    Attributes:
        role: what tells it from others of the object.
        machine: key and value of what says which machine it runs on.
        node: what describes the server; ``document``: the object.
    """

    kind: str
    namespace: str | None
    name: str
    words: Sequence[Word]
    span: Span
    node: Node
    document: Node
    role: str = ""
    image: Scalar | None = None
    devices: tuple[GpuRequest, ...] = ()
    machine: tuple[str, Scalar | None] = ("", None)
    replicas: int | None = None
    replicas_span: Span | None = None
    notes: tuple[Unresolved, ...] = ()

    def unit(self, file: SourceFile) -> ServeUnit:
        """The server."""
        key, machine = self.machine
        parts = [self.kind, self.namespace or "default", self.name, self.role]
        return ServeUnit(
            id="/".join(part for part in parts if part),
            path=file.path,
            span=self.span,
            kind=self.kind,
            name=self.name,
            container=None,
            namespace=self.namespace,
            words=tuple(self.words),
            positional_model=False,
            entry="the controller's configuration",
            image=Value(self.image.text).word() if self.image is not None and self.image.value else None,
            environment=(),
            gpu_requests=self.devices,
            node_hints=(NodeHint(key, (machine.value,), machine.span),) if machine is not None else (),
            replicas=self.replicas,
            replicas_span=self.replicas_span,
            annotations={},
            shared_memory=None,
            node=self.node,
            document=self.document,
            notes=self.notes,
        )
