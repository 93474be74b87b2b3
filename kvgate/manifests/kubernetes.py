"""Kubernetes objects -> serve units.

One table says where each kind keeps its pods and replicas; everything below a pod template is read the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kvgate.manifests.container import Argument, Container, Start, environment_of, find_requirement
from kvgate.manifests.entrypoint import flag_name, is_companion, says_engine
from kvgate.manifests.launch import find_starts, why_unread
from kvgate.manifests.peers import ServingRuntime, peers_of
from kvgate.manifests.quantities import quantity_bytes
from kvgate.manifests.tree import (
    Tree,
    entries_at,
    expand_list,
    items_at,
    node_at,
    scalar_at,
    text_at,
)
from kvgate.manifests.unit import GpuRequest, NodeHint, ServeUnit, SharedMemory, Unread
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.shell.expand import expand_kubernetes, mark_placeholders, unset
from kvgate.shell.value import Value
from kvgate.shell.words import split_words
from kvgate.source.text import SourceFile, Span, Text, TooLargeError, Unresolved, Word
from kvgate.source.yaml_tree import Mapping, Node, Scalar, Sequence, is_null, scalar_bool, scalar_int

ANNOTATION_PREFIX: Final = "kvgate.dev/"


@record
class Workload:
    """Where a kind keeps its pods.

    Attributes:
        template: path to the pod template (an object with ``metadata`` and ``spec``); empty for a Pod itself.
        replicas: path to the number of pods; None where the kind has none.
        restarts: whether it is kept running (no Job).
    """

    template: tuple[str, ...]
    replicas: tuple[str, ...] | None = ("spec", "replicas")
    restarts: bool = True


WORKLOADS: Final[dict[str, Workload]] = {
    "Pod": Workload((), None),
    "Deployment": Workload(("spec", "template")),
    "StatefulSet": Workload(("spec", "template")),
    "ReplicaSet": Workload(("spec", "template")),
    "ReplicationController": Workload(("spec", "template")),
    "DaemonSet": Workload(("spec", "template"), None),
    "Job": Workload(("spec", "template"), ("spec", "parallelism"), restarts=False),
    "CronJob": Workload(
        ("spec", "jobTemplate", "spec", "template"), ("spec", "jobTemplate", "spec", "parallelism"), restarts=False
    ),
    # kinds of widespread controllers with the shape of a Deployment
    "DeploymentConfig": Workload(("spec", "template")),
    "Rollout": Workload(("spec", "template")),
    "CloneSet": Workload(("spec", "template")),
    # of Knative (and Cloud Run); a Service of Kubernetes itself has no template
    "Service": Workload(("spec", "template"), None),
}

# Last parts of the names of resources that count devices, and of those that measure out a part of one.
_DEVICES: Final = frozenset(
    {
        "dcu", "gaudi", "gcu", "gpu", "gpu-count", "gpu.shared", "gpus", "hpu", "i915", "neuron", "neuroncore",
        "neurondevice", "npu", "tpu", "vgpu", "vgpu-number", "xe", "xpu",
    }
)  # fmt: skip
_DEVICE_FAMILIES: Final = ("mig-", "ascend", "mlu")
_SHARES: Final = ("gpumem", "gpucores", "gpu-mem", "gpu-core", "vcuda-", "vgpu-memory", "vgpu-cores")
# Keys of lists of variables: a container's own, and those of custom resources.
_VARIABLES: Final = ("env", "envs", "environmentVariables")
_MACHINE_WORDS: Final = ("accelerator", "cuda", "gpu", "instance-family", "instance-type", "machine", "nodepool", "tpu")


def _is_share(resource: str) -> bool:
    return resource.rpartition("/")[2].lower().startswith(_SHARES)


def _is_device(resource: str) -> bool:
    name = resource.rpartition("/")[2].lower()
    return name in _DEVICES or name.startswith(_DEVICE_FAMILIES)


def read_kubernetes(
    tree: Tree, file: SourceFile, document: Node, span: Span | None = None, *, templated: bool = False
) -> Iterator[ServeUnit | Unread]:
    """The serve units in one document, lists looked into.

    Args:
        span: where what stands in another file (a patched base) counts as beginning.
        templated: the document is what is known of a template: commands and images may be missing from it.
    """
    for item in expand_list(document):
        workload = WORKLOADS.get(text_at(item, "kind") or "")
        if workload:
            yield from read_workload(tree, file, item, workload, span, templated=templated)


def is_other_kind(item: Node) -> bool:
    """Whether an object is none of these workloads, or one whose containers are not where they belong."""
    workload = WORKLOADS.get(text_at(item, "kind") or "")
    return workload is None or node_at(item, *workload.template, "spec", "containers") is None


def read_workload(
    tree: Tree,
    file: SourceFile,
    item: Node,
    workload: Workload,
    span: Span | None = None,
    *,
    templated: bool = False,
) -> Iterator[ServeUnit | Unread]:
    """The serve units of one object, see :func:`read_kubernetes`."""
    template = node_at(item, *workload.template)
    kind = text_at(item, "kind") or ""
    if template is None:
        return
    pod = Pod(
        tree=tree,
        file=file,
        document=item,
        template=template,
        spec=node_at(template, "spec"),
        kind=kind,
        name=text_at(item, "metadata", "name") or text_at(item, "metadata", "generateName") or "",
        namespace=text_at(item, "metadata", "namespace"),
        replicas=node_at(item, *workload.replicas) if workload.replicas else None,
        restarts=workload.restarts,
        templated=templated,
    )
    for found in pod.units():
        if span is not None and found.span.file is not file:
            yield replace(found, span=span)
        else:
            yield found


def hints_of_terms(terms: list[Node]) -> Iterator[NodeHint]:
    """What the terms of a node affinity say about the machine."""
    for term in terms:
        for expression in items_at(term, "matchExpressions"):
            key = text_at(expression, "key")
            values = tuple(item.value for item in items_at(expression, "values") if isinstance(item, Scalar))
            if key and values and text_at(expression, "operator") == "In":
                yield NodeHint(key, values, expression.span)


# An image of which a template says nothing.
_HOLES: Final = regex(r"(?:\{\{.*?\}\}[:/@]?)+")
# A chart's helper for the name of one of its parts: the part says what that is, not the chart.
_PART_HELPER: Final = regex(r'(?:include|template)\s+"[\w-]+\.([\w.-]+)\.[\w-]+"')


def _component(name: str) -> str:
    return _PART_HELPER.sub(r"\1", name) if "{{" in name else name


@record
class Pod:
    """A pod template and the object it belongs to.

    Attributes:
        containers: the containers, where they are not those of the specification.
        role: what tells several pods of one object apart; part of the unit's id.
        devices: what the server asks for over all its pods, where it has several.
        around: mappings around the pod, the nearest first, whose variables and ``resources`` hold for it too.
        span: where a container without an item of its own begins.
        factor: how often the object runs its replicas.
        arguments: what a controller adds to the containers' arguments.
        variable: environment variable with further arguments.
        storage: the model that a controller mounts.
        managed: the containers have no command because a controller gives them vLLM's.
        runtime: what a controller merges the container with: it gives what that lacks, and its arguments come first.
        image_runs: a container without command and arguments runs its image's entry point (a Ray node does not).
        templated: it is what is known of a template.
        given: variables that a controller gives the containers.
    """

    tree: Tree
    file: SourceFile
    document: Node
    template: Node
    spec: Node | None
    kind: str
    name: str
    namespace: str | None
    replicas: Node | None
    restarts: bool
    containers: tuple[Node, ...] | None = None
    role: str = ""
    devices: tuple[GpuRequest, ...] | None = None
    around: tuple[Node, ...] = ()
    span: Span | None = None
    factor: int = 1
    arguments: tuple[Argument, ...] = ()
    variable: str | None = None
    storage: Scalar | None = None
    managed: bool = False
    runtime: ServingRuntime | None = None
    image_runs: bool = True
    templated: bool = False
    given: tuple[tuple[str, Value], ...] = ()

    def units(self) -> Iterator[ServeUnit | Unread]:
        for node in items_at(self.spec, "containers") if self.containers is None else self.containers:
            yield from self.container(node)
        for node in items_at(self.spec, "initContainers"):
            # an init container that is restarted for ever is a sidecar (Kubernetes 1.28)
            if text_at(node, "restartPolicy") == "Always":
                yield from self.container(node)

    def container(self, node: Node) -> Iterator[ServeUnit | Unread]:
        if not isinstance(node, Mapping):
            return
        name = text_at(node, "name") or ""
        base = self.runtime.container if self.runtime is not None else None
        environment = Environment(self.tree, self.file, self.namespace)
        if self.runtime is not None and "{{" not in self.name:
            environment.service = self.name
        for key, value in self.given:
            environment.values[key], environment.spans[key] = value, value.span
        environment.read(base)
        for holder in reversed(self.around):
            environment.read(holder)
        environment.read(node)
        requests, shares = accelerator_requests(node)
        for holder in self.around:
            if not requests and node_at(node, "resources") is None:
                requests, shares = accelerator_requests(holder)
        if not requests:
            requests, shares = accelerator_requests(base)
        image_node = scalar_at(node, "image") or scalar_at(base, "image")
        image = mark_placeholders(Value(image_node.text)).word() if image_node and image_node.value else None
        names = (name, self.name, image.value if image and not image.resolved else "")
        named = not is_companion(name) and any(map(says_engine, names))
        command = environment.words(node_at(node, "command") or node_at(base, "command"))
        brought: tuple[Word, ...] = ()
        if self.templated:
            told = says_engine(f"{_component(name)}-{_component(self.name)}")
            named = told or ("vllm" in (image.value if image else "").lower() and not is_companion(name))
            if all(word.unresolved and word.unresolved[0].text == word.value for word in command):
                brought, command = tuple(command), ()  # there only if the values bring one
            if (
                not brought
                and image is not None
                and self.restarts
                and says_engine(name)
                and _HOLES.fullmatch(image.value)
            ):
                brought = (Word(image.text, (Unresolved(image.value, "the arguments are inside the image"),), True),)
        managed = self.managed or (self.variable is not None and name in ("main", ""))
        container = Container(
            command=command or None,
            arguments=(*environment.words(node_at(base, "args")), *self._arguments(node, environment, managed))
            or brought,
            image=image,
            environment=environment.values,
            span=self.span or node.span,
            named=named,
            accelerated=any(request.count != 0 for request in requests),
            service=self.restarts,
            find=lambda path: self.mounted(node, path),
            managed=managed,
            stored=self.storage is not None,
            serves=self.templated,
        )
        if not self.image_runs and not container.command and not container.arguments:
            return
        try:
            starts = find_starts(container)
        except TooLargeError as error:
            yield Unread(f"{error} is not read", node.span, serves=True)
            return
        if not starts and (reason := why_unread(container)):
            yield Unread(reason, node.span)
        for number, start in enumerate(starts):
            devices = requests if self.devices is None or not requests else self.devices
            yield self.unit(node, container, start, number, environment, devices, shares)

    def _arguments(self, node: Node, environment: Environment, managed: bool) -> tuple[Word, ...]:
        words = list(environment.words(node_at(node, "args")))
        if managed and node_at(node, "command") is None:
            value = environment.values.get(self.variable or "")
            if value is not None:
                words += split_words(value)
            given = {flag_name(word) for word in words}
            for argument in self.arguments:
                if argument.flag.removeprefix("--") not in given:
                    words += argument.words()
        return tuple(words)

    def unit(
        self,
        node: Mapping,
        container: Container,
        start: Start,
        number: int,
        environment: Environment,
        requests: tuple[GpuRequest, ...],
        shares: tuple[NodeHint, ...],
    ) -> ServeUnit:
        replicas, replicas_span, notes = self._replicas()
        name = text_at(node, "name") or ""
        requirement = find_requirement(word.text for word in (*(container.command or ()), *container.arguments))
        entry = str(number + 1) if number else ""
        # a name that a template makes is none that a unit could be found by
        namespace = None if "{{" in (self.namespace or "") else self.namespace
        own = self.file.path if "{{" in self.name else self.name
        parts = [self.kind, namespace or "default", own, self.role, "" if "{{" in name else name, entry]
        stored = self.storage if start.storage_model is None else None
        return ServeUnit(
            id="/".join(part for index, part in enumerate(parts) if part or index == 2),
            path=self.file.path,
            span=self.span or node.span,
            kind=self.kind,
            name=self.name,
            container=name or None,
            namespace=self.namespace,
            words=start.words,
            positional_model=start.positional_model,
            entry=start.entry,
            image=container.image,
            environment=environment_of(environment.values, environment.spans, start.environment),
            gpu_requests=requests,
            node_hints=(*shares, *self.node_hints()),
            replicas=replicas,
            replicas_span=replicas_span,
            annotations=kvgate_annotations(self.document, self.template),
            shared_memory=self.shared_memory(node),
            node=node,
            document=self.document,
            storage_model=mark_placeholders(Value(stored.text)).word() if stored else start.storage_model,
            notes=(*start.notes, *notes),
            requirement=requirement,
        )

    # -- around the container --------------------------------------------------------------------------------------

    def _replicas(self) -> tuple[int | None, Span | None, tuple[Unresolved, ...]]:
        scaler = peers_of(self.tree).minimum_replicas(self.kind, self.name, self.namespace, self.file.path)
        if scaler:
            return scaler.minimum, scaler.span, ()
        if is_null(self.replicas) or self.replicas is None:
            return None, None, ()
        count = scalar_int(self.replicas)
        if count is None:
            written = self.replicas.span.text
            return None, self.replicas.span, (Unresolved(written, "the number of replicas is not stated as a number"),)
        return count * self.factor, self.replicas.span, ()

    def node_hints(self) -> Iterator[NodeHint]:
        """What the pod says about the machine it runs on."""
        for entry in entries_at(self.spec, "nodeSelector"):
            if isinstance(entry.value, Scalar):
                yield NodeHint(entry.key.value, (entry.value.value,), _pair(entry.key.span, entry.value.span))
        required = node_at(self.spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
        yield from hints_of_terms(items_at(required, "nodeSelectorTerms"))
        for entry in entries_at(self.template, "metadata", "labels"):
            if isinstance(entry.value, Scalar) and any(word in entry.key.value.lower() for word in _MACHINE_WORDS):
                yield NodeHint(entry.key.value, (entry.value.value,), _pair(entry.key.span, entry.value.span))

    def shared_memory(self, container: Node) -> SharedMemory | None:
        """What a container of the pod has at /dev/shm."""
        for mount, volume in self._volumes(container):
            if (text_at(mount, "mountPath") or "").rstrip("/") == "/dev/shm":  # noqa: S108 - a path in a manifest
                directory = node_at(volume, "emptyDir")
                if directory is not None:
                    limit = text_at(directory, "sizeLimit")
                    return SharedMemory(quantity_bytes(limit) if limit else None, "emptyDir", volume.span)
                if node_at(volume, "hostPath") is not None:
                    return SharedMemory(None, "hostPath", volume.span)
        host = node_at(self.spec, "hostIPC")
        if host is not None and scalar_bool(host):
            return SharedMemory(None, "hostIPC", host.span)
        return None

    def mounted(self, container: Node, path: str) -> Value | None:
        """Text of a file that a ConfigMap of the tree puts at a path inside the container."""
        for mount, volume in self._volumes(container):
            base = (text_at(mount, "mountPath") or "").rstrip("/")
            sub = text_at(mount, "subPath")
            name = text_at(volume, "configMap", "name")
            if not base or not name or (path != base if sub else not path.startswith(base + "/")):
                continue
            key = sub or path[len(base) + 1 :]
            for item in items_at(volume, "configMap", "items"):
                if text_at(item, "path") == key:
                    key = text_at(item, "key") or key
                    break
            found = peers_of(self.tree).config_map(name, self.namespace, self.file.path)
            if found and key in found.data:
                return found.data[key]
        return None

    def _volumes(self, container: Node) -> Iterator[tuple[Node, Node]]:
        """The mounts of a container, and of the runtime's, each with its volume."""
        holders: list[tuple[Node, Node | None]] = [(container, self.spec)]
        if self.runtime is not None:
            holders.append((self.runtime.container, self.runtime.spec))
        for holder, spec in holders:
            for mount in items_at(holder, "volumeMounts"):
                for volume in items_at(spec, "volumes"):
                    if text_at(volume, "name") == text_at(mount, "name"):
                        yield mount, volume


class Environment:
    """The environment of a container as its manifest declares it, in the order in which the kubelet builds it."""

    def __init__(self, tree: Tree, file: SourceFile, namespace: str | None) -> None:
        self.tree = tree
        self.file = file
        self.namespace = namespace
        self.values: dict[str, Value] = {}
        self.spans: dict[str, Span] = {}
        #: the object whose name KServe puts into what its runtime says (``{{.Name}}``)
        self.service: str | None = None
        self._sources: list[str] = []

    def read(self, holder: Node | None) -> None:
        """What a container says, or an object around it that gives its variables to all containers below."""
        for source in items_at(holder, "envFrom"):
            self._read_source(source)
        for key in _VARIABLES:
            for entry in items_at(holder, key):
                name = text_at(entry, "name")
                if name:
                    self.values[name] = self._value(entry)
                    self.spans[name] = entry.span

    def _read_source(self, source: Node) -> None:
        prefix = text_at(source, "prefix") or ""
        name = text_at(source, "configMapRef", "name")
        if name:
            found = peers_of(self.tree).config_map(name, self.namespace, self.file.path)
            if found is None:
                self._sources.append(f"ConfigMap {name}, which is not among the files")
                return
            for key, value in found.data.items():
                self.values[prefix + key] = mark_placeholders(value)
                self.spans[prefix + key] = source.span
        name = text_at(source, "secretRef", "name")
        if name:
            self._sources.append(f"Secret {name}")

    def _value(self, entry: Node) -> Value:
        value = scalar_at(entry, "value")
        if value is not None:
            expanded = expand_kubernetes(value.text, self.values, reason=self.reason)
            return mark_placeholders(expanded)
        source = node_at(entry, "valueFrom")
        reference = scalar_at(source, "configMapKeyRef", "name")
        if reference is not None:
            key = text_at(source, "configMapKeyRef", "key") or ""
            found = peers_of(self.tree).config_map(reference.value, self.namespace, self.file.path)
            if found and key in found.data:
                return mark_placeholders(found.data[key])
            missing = f"key {key} of ConfigMap {reference.value} is not among the files"
            return _unknown(entry, f"{reference.value}.{key}", missing)
        secret = text_at(source, "secretKeyRef", "name")
        if secret is not None:
            key = text_at(source, "secretKeyRef", "key") or ""
            return _unknown(entry, f"{secret}.{key}", f"it comes from Secret {secret}")
        field = text_at(source, "fieldRef", "fieldPath") or text_at(source, "resourceFieldRef", "resource")
        if field is not None:
            return _unknown(entry, field, f"{field} of the pod is known at run time only")
        if source is not None:
            return _unknown(entry, source.span.text, "its source is not read")
        return Value(Text.at("", entry.span))

    def _service(self, _: re.Match[str], place: Value) -> Value:
        return Value(Text.at(self.service or "", place.span))

    def reason(self, name: str) -> str:
        """Why a name in ``$(NAME)`` has no value."""
        if self._sources:
            return f"{name} may come from {' or '.join(self._sources)}"
        return unset(name)

    def words(self, node: Node | None) -> tuple[Word, ...]:
        """A container's ``command`` or ``args``, expanded."""
        if isinstance(node, Scalar):  # refused by the API server, but plainly meant as one item
            nodes: list[Node] = [node] if node.value else []
        else:
            nodes = node.items if isinstance(node, Sequence) else []
        words: list[Word] = []
        script = False
        for item in nodes:
            if not isinstance(item, Scalar):
                continue
            value = expand_kubernetes(item.text, self.values, reason=self.reason, keep_unknown=script)
            if self.service is not None and "{{" in value.value:
                value = value.replaced(_SERVICE.finditer(value.value), self._service)
            # what a shell reads it expands itself
            in_script = script or "\n" in value.value.strip() or re.search(_LOOKS_LIKE_SCRIPT, value.value) is not None
            words.append((value if in_script else mark_placeholders(value)).word())
            script = script or re.fullmatch(r"-[a-zA-Z]*c", item.value) is not None
        return tuple(words)


_SERVICE: Final = regex(r"\{\{ ?\.Name ?\}\}")
_LOOKS_LIKE_SCRIPT: Final = r"(?:vllm serve|vllm\.entrypoints|exec) .*\s"


def _unknown(entry: Node, written: str, reason: str) -> Value:
    return Value.unknown(Text.at(written, entry.span), reason, splits=False)


def _pair(first: Span, second: Span) -> Span:
    if first.file is second.file and first.start <= second.end:
        return Span(first.file, first.start, second.end)
    return second


def accelerator_requests(container: Node | None) -> tuple[tuple[GpuRequest, ...], tuple[NodeHint, ...]]:
    """Devices that a container asks for (limits before requests), and shares of a device as hints."""
    requests: dict[str, GpuRequest] = {}
    shares: dict[str, NodeHint] = {}
    for section in ("limits", "requests"):
        for entry in entries_at(container, "resources", section):
            name, node = entry.key.value, entry.value
            span = _pair(entry.key.span, node.span)
            if _is_share(name) and isinstance(node, Scalar):
                shares.setdefault(name, NodeHint(name, (node.value,), span))
            elif _is_device(name):
                count = scalar_int(node)
                reason = None if count is not None else f"{node.span.text} is not stated as a number"
                requests.setdefault(name, GpuRequest(name, count, span, reason))
    for claim in items_at(container, "resources", "claims"):
        name = text_at(claim, "name") or ""
        reason = "a resource claim, whose devices are not read"
        requests.setdefault(f"claim/{name}", GpuRequest("claim", None, claim.span, reason))
    return tuple(requests.values()), tuple(shares.values())


def kvgate_annotations(document: Node, template: Node) -> dict[str, Text]:
    """kvgate's annotations, those of the pod template winning."""
    found: dict[str, Text] = {}
    for holder in (document, template):
        for entry in entries_at(holder, "metadata", "annotations"):
            if entry.key.value.startswith(ANNOTATION_PREFIX) and isinstance(entry.value, Scalar):
                found[entry.key.value] = entry.value.text
    return found
