"""The Kubernetes objects of a tree, and which of them belong to a serve unit: by labels, names and references.

Files keep a Service, its Deployment and the autoscaler apart as they like, and one repository often holds the same
names many times over (an example each), so what matches a unit counts only where it stands nearest to the unit's file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from kvgate.manifests.tree import Tree, distance, entries_at, expand_list, items_at, node_at, scalar_at, text_at
from kvgate.manifests.unit import ServeUnit
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.source.text import SourceFile, Span
from kvgate.source.yaml_tree import Mapping as YamlMapping
from kvgate.source.yaml_tree import Node, Scalar, is_go_template
from kvgate.source.yaml_tree import Sequence as YamlSequence

_T = TypeVar("_T")

#: Kinds that say something about a server which another object runs.
KINDS: Final = (
    "Service", "HorizontalPodAutoscaler", "ScaledObject", "ScaledJob", "Ingress", "HTTPRoute", "Gateway", "Route",
    "VirtualService", "InferencePool", "InferenceModel", "InferenceObjective", "PersistentVolumeClaim",
    "PodDisruptionBudget", "NetworkPolicy", "PrometheusRule", "ConfigMap", "AuthorizationPolicy", "SecurityPolicy",
    "PodMonitor", "ServiceMonitor", "VerticalPodAutoscaler", "Secret", "ClusterPolicy", "NodePool", "Provisioner",
)  # fmt: skip
_KIND: Final = regex(r"\bkind[\"']?\s*:\s*[\"']?(" + "|".join(KINDS) + r")\b")


@record
class ClusterObject:
    """One object of :data:`KINDS`.

    Attributes:
        node: the whole object.
        span: where its name stands (its kind where it has none).
    """

    kind: str
    name: str
    namespace: str | None
    labels: Mapping[str, str]
    node: YamlMapping
    file: SourceFile
    span: Span

    @property
    def path(self) -> str:
        return self.file.path

    def at(self, *keys: str) -> Node | None:
        """The node below a path of keys."""
        return node_at(self.node, *keys)

    def text(self, *keys: str) -> str | None:
        """The text of the scalar below a path of keys."""
        return text_at(self.node, *keys)

    def items(self, *keys: str) -> list[Node]:
        """The items of the sequence below a path of keys."""
        return items_at(self.node, *keys)


@record
class Pod:
    """The pod that a unit's container stands in: its template (``metadata`` and ``spec``) and its specification."""

    template: Node
    spec: YamlMapping

    @property
    def labels(self) -> dict[str, str]:
        return labels_of(self.template)


class Objects:
    """The objects of a tree. A file is read when a kind is first asked for that its text names.

    Args:
        tree: files of the run.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._files: dict[str, list[SourceFile]] | None = None
        self._found: dict[str, tuple[ClusterObject, ...]] = {}
        self._pods: dict[int, Pod | None] = {}

    @property
    def all(self) -> list[ClusterObject]:
        """Objects of every kind, in the order of their files."""
        return self.of_kind(*KINDS)

    def of_kind(self, *kinds: str) -> list[ClusterObject]:
        """Objects of some kinds, in the order of their files."""
        return [found for file in self.files_of(*kinds) for found in self._in(file) if found.kind in kinds]

    def files_of(self, *kinds: str) -> list[SourceFile]:
        """Files whose text names one of some kinds, in their order."""
        if self._files is None:
            self._files = {}
            for file in self.tree.files.values():
                if file.path.endswith((".yaml", ".yml", ".json")):
                    named = dict.fromkeys(_KIND.findall(file.text))
                    # what a template makes of its other kinds is known when it is rendered
                    for kind in KINDS if named and is_go_template(file.text) else named:
                        self._files.setdefault(kind, []).append(file)
        if len(kinds) == 1:
            return self._files.get(kinds[0], [])
        paths = {file.path for kind in kinds for file in self._files.get(kind, ())}
        return [file for path, file in self.tree.files.items() if path in paths] if paths else []

    def _in(self, file: SourceFile) -> tuple[ClusterObject, ...]:
        if file.path not in self._found:
            self._found[file.path] = tuple(self._read(file))
        return self._found[file.path]

    def _read(self, file: SourceFile) -> Iterator[ClusterObject]:
        for document in self._documents(file):
            for item in expand_list(document):
                kind = text_at(item, "kind")
                if isinstance(item, YamlMapping) and kind in KINDS and node_at(item, "apiVersion") is not None:
                    name = scalar_at(item, "metadata", "name")
                    place = name if name is not None else scalar_at(item, "kind")
                    yield ClusterObject(
                        kind=kind or "",
                        name=name.value if name is not None else "",
                        namespace=text_at(item, "metadata", "namespace"),
                        labels=labels_of(item),
                        node=item,
                        file=file,
                        span=place.span if place is not None else item.span,
                    )

    def _documents(self, file: SourceFile) -> list[Node]:
        """The documents of a file; of a chart's template as far as its text and the values at hand allow."""
        if not is_go_template(file.text):
            return self.tree.stream(file).documents
        from kvgate.manifests.helm.chart import render_statically
        from kvgate.manifests.helm.go_template import TemplateError

        try:
            return list(render_statically(self.tree, file).documents)
        except TemplateError:
            return []

    def images(self, kind: str, name: str) -> list[str]:
        """The images of the containers of a workload that is written out; "" for one without."""
        return [
            text_at(container, "image") or ""
            for file in self.tree.files.values()
            if file.path.endswith((".yaml", ".yml", ".json")) and kind in file.text and name in file.text
            if not is_go_template(file.text)
            for document in self.tree.stream(file).documents
            for item in expand_list(document)
            if text_at(item, "kind") == kind and text_at(item, "metadata", "name") == name
            for container in items_at(item, "spec", "template", "spec", "containers")
        ]

    # -- what belongs to a unit ------------------------------------------------------------------------------------

    def pod(self, unit: ServeUnit) -> Pod | None:
        """The pod of a unit, None where it stands in none (Compose, scripts, resources whose controller makes it)."""
        key = id(unit.node)
        if key not in self._pods:
            self._pods[key] = _find_pod(unit.document, unit.node) if unit.node is not None else None
        return self._pods[key]

    def services(self, unit: ServeUnit) -> list[ClusterObject]:
        """Services whose selector takes the unit's pods."""
        pod = self.pod(unit)
        if pod is None:
            return []
        labels = pod.labels
        return self._nearest(unit, "Service", lambda found: _selects(found.at("spec", "selector"), labels))

    def pools(self, unit: ServeUnit) -> list[ClusterObject]:
        """InferencePools (gateway API inference extension) that take the unit's pods."""
        pod = self.pod(unit)
        labels = pod.labels if pod is not None else {}

        def takes(found: ClusterObject) -> bool:
            selector = found.at("spec", "selector")
            return _selects(node_at(selector, "matchLabels") or selector, labels)

        return self._nearest(unit, "InferencePool", takes) if labels else []

    def autoscalers(self, unit: ServeUnit) -> list[ClusterObject]:
        """HorizontalPodAutoscalers and KEDA ScaledObjects that scale the unit."""

        def scales(found: ClusterObject) -> bool:
            name = found.text("spec", "scaleTargetRef", "name")
            kind = found.text("spec", "scaleTargetRef", "kind") or "Deployment"
            if name is None:
                return False
            if name == unit.name:
                return kind == unit.kind or unit.kind not in ("Deployment", "StatefulSet", "ReplicaSet")
            # a controller names the Deployment after its own object
            return unit.kind not in ("Deployment", "StatefulSet", "Pod") and name.startswith(f"{unit.name}-")

        return self._nearest(unit, ("HorizontalPodAutoscaler", "ScaledObject"), scales)

    def routes(self, unit: ServeUnit) -> list[ClusterObject]:
        """Ingresses and routes that lead to one of the unit's Services."""
        names = {service.name for service in self.services(unit)}
        if not names:
            return []
        return self._nearest(
            unit, ("Ingress", "HTTPRoute", "Route", "VirtualService"), lambda found: bool(names & set(backends(found)))
        )

    def claims(self, unit: ServeUnit) -> list[ClusterObject]:
        """PersistentVolumeClaims that the unit's pod mounts."""
        pod = self.pod(unit)
        names = {
            name
            for volume in items_at(pod.spec if pod else None, "volumes")
            if (name := text_at(volume, "persistentVolumeClaim", "claimName"))
        }
        return self._nearest(unit, "PersistentVolumeClaim", lambda found: found.name in names) if names else []

    def policies(self, unit: ServeUnit) -> list[ClusterObject]:
        """NetworkPolicies that select the unit's pods."""
        pod = self.pod(unit)
        if pod is None:
            return []
        labels = pod.labels

        def holds(found: ClusterObject) -> bool:
            selector = found.at("spec", "podSelector")
            empty = isinstance(selector, YamlMapping) and not selector.items()
            return empty or _selects(node_at(selector, "matchLabels"), labels)

        return self._nearest(unit, "NetworkPolicy", holds)

    def _nearest(
        self, unit: ServeUnit, kinds: str | tuple[str, ...], belongs: Callable[[ClusterObject], bool]
    ) -> list[ClusterObject]:
        wanted = (kinds,) if isinstance(kinds, str) else kinds
        found = [
            candidate
            for candidate in self.of_kind(*wanted)
            if _same_namespace(candidate.namespace, unit.namespace) and belongs(candidate)
        ]
        return nearest(found, unit.path, lambda candidate: candidate.path)


def nearest(items: Iterable[_T], path: str, path_of: Callable[[_T], str]) -> list[_T]:
    """The items whose file stands nearest to a path: in it, else in its directory, else the fewest steps away."""
    ranked = [(distance(path_of(item), path), item) for item in items]
    least = min((steps for steps, _ in ranked), default=0)
    return [item for steps, item in ranked if steps == least]


def backends(route: ClusterObject) -> Iterator[str]:
    """Names of the Services that an Ingress or a route leads to."""
    spec = route.at("spec")
    for key in ("defaultBackend", "backend"):
        name = text_at(spec, key, "service", "name") or text_at(spec, key, "serviceName")
        if name:
            yield name
    for rule in items_at(spec, "rules"):
        for path in items_at(rule, "http", "paths"):
            name = text_at(path, "backend", "service", "name") or text_at(path, "backend", "serviceName")
            if name:
                yield name
        for reference in items_at(rule, "backendRefs"):
            name = text_at(reference, "name")
            if name:
                yield name
    name = text_at(spec, "to", "name")  # OpenShift's Route
    if name:
        yield name
    for rule in items_at(spec, "http"):  # Istio's VirtualService
        for target in items_at(rule, "route"):
            host = text_at(target, "destination", "host")
            if host:
                yield host.partition(".")[0]


def labels_of(node: Node | None) -> dict[str, str]:
    """``metadata.labels`` of an object or a pod template."""
    return {
        entry.key.value: entry.value.value
        for entry in entries_at(node, "metadata", "labels")
        if isinstance(entry.value, Scalar)
    }


def _selects(selector: Node | None, labels: Mapping[str, str]) -> bool:
    if not isinstance(selector, YamlMapping):
        return False
    wanted = [(entry.key.value, entry.value) for entry in selector.items()]
    return bool(wanted) and all(isinstance(value, Scalar) and labels.get(key) == value.value for key, value in wanted)


def _same_namespace(left: str | None, right: str | None) -> bool:
    return left is None or right is None or left == right


def _find_pod(document: Node | None, container: Node) -> Pod | None:
    """The mapping below which ``spec.containers`` (or ``initContainers``) holds a container."""
    stack: list[tuple[Node | None, Node | None]] = [(document, None)]
    steps = 0
    while stack and steps < 20_000:
        steps += 1
        node, parent = stack.pop()
        if isinstance(node, YamlMapping):
            for key in ("containers", "initContainers"):
                listed = node.get(key)
                if isinstance(listed, YamlSequence) and any(item is container for item in listed.items):
                    return Pod(parent if parent is not None else node, node)
            stack += [(entry.value, node) for entry in node.items()]
        elif isinstance(node, YamlSequence):
            stack += [(item, None) for item in node.items]
    return None
