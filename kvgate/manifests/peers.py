"""What objects of other files say about a server: ConfigMaps, autoscalers, and the runtimes of KServe."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from kvgate.manifests.tree import Tree, distance, entries_at, expand_list, items_at, node_at, read_env_file, text_at
from kvgate.records import record
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Text
from kvgate.source.yaml_tree import Node, Scalar, is_go_template, scalar_int

# Words of which a file has one that holds objects of a kind.
_CONFIG_MAP: Final = ("ConfigMap", "configMapGenerator")
_AUTOSCALER: Final = ("HorizontalPodAutoscaler", "ScaledObject")
_RUNTIME: Final = ("ServingRuntime",)


@record
class ConfigMap:
    """A ConfigMap's text data, or a ConfigMap that kustomize generates, or merges with what a base makes."""

    name: str
    namespace: str | None
    data: dict[str, Value]
    path: str
    merges: bool = False


@record
class Autoscaler:
    """The lower bound that an autoscaler sets for an object's replicas."""

    kind: str
    name: str
    namespace: str | None
    minimum: int
    span: Span
    path: str


@record
class ServingRuntime:
    """The pod with which a KServe runtime serves models, and the container in it that serves them."""

    name: str
    namespace: str | None
    spec: Node
    container: Node
    document: Node
    path: str


_Item = TypeVar("_Item", bound=ConfigMap | Autoscaler | ServingRuntime)
Documents = Iterable[tuple[SourceFile, Node]]


def peers_of(tree: Tree) -> Peers:
    """The one :class:`Peers` of a tree."""
    found = tree.memo.get("peers")
    if not isinstance(found, Peers):
        found = tree.memo["peers"] = Peers(tree)
    return found


class Peers:
    """Objects of a tree that others refer to by their names; of each kind found out when first asked for.

    Attributes:
        runtimes_used: path and beginning of each (Cluster)ServingRuntime that another object serves its model with.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.runtimes_used: set[tuple[str, int]] = set()
        self._indexes: dict[tuple[type, str | None], list[Any]] = {}
        self._rendered: Mapping[str, Sequence[Node]] = {}
        self._moved = False
        self._made: Callable[[], Documents] = tuple
        self._own: dict[str, ConfigMap] | None = {}

    def config_map(self, name: str, namespace: str | None, path: str) -> ConfigMap | None:
        """The ConfigMap of a name that is nearest to a file; one that several equally near ones agree on."""
        own = self._own_config_maps().get(name)
        if own is not None:
            return own
        known = self._known(ConfigMap, path)
        return _nearest(
            [item for item in known if item.name == name and self._is_beside(item.namespace, namespace)],
            path,
            lambda left, right: (
                {k: v.value for k, v in left.data.items()} == {k: v.value for k, v in right.data.items()}
            ),
        )

    def minimum_replicas(self, kind: str, name: str, namespace: str | None, path: str) -> Autoscaler | None:
        """The autoscaler that targets an object."""
        return _nearest(
            [
                item
                for item in self._known(Autoscaler, path)
                if item.name == name and item.kind == kind and self._is_beside(item.namespace, namespace)
            ],
            path,
            lambda left, right: left.minimum == right.minimum,
        )

    def runtime(self, name: str, namespace: str | None, path: str) -> ServingRuntime | None:
        """The (Cluster)ServingRuntime of a name, for an object of a file, which uses it thereby."""
        known = self._known(ServingRuntime, path)
        found = _nearest(
            [item for item in known if item.name == name and self._is_beside(item.namespace, namespace)],
            path,
            lambda left, right: left.container.span.text == right.container.span.text,
        )
        if found is not None:
            self.runtimes_used.add((found.path, found.document.span.start))
        return found

    def is_used_runtime(self, kind: str, path: str, document: Node | None) -> bool:
        """Whether a server stands in a runtime that another object serves its model with: it is that server's."""
        used = document is not None and (path, document.span.start) in self.runtimes_used
        return used and kind.endswith("ServingRuntime")

    @contextmanager
    def reading(self, rendered: Mapping[str, Sequence[Node]]) -> Iterator[None]:
        """While a chart is read whose templates, by their paths, make these documents."""
        before, self._rendered = self._rendered, rendered
        self._forget_charts()
        try:
            yield
        finally:
            self._rendered = before
            self._forget_charts()

    @contextmanager
    def moved(self, namespace: bool, made: Callable[[], Documents]) -> Iterator[None]:
        """While objects are read that a kustomization makes, and with them what they refer to.

        Args:
            namespace: whether it puts them in one.
            made: what the ConfigMaps come of that it makes itself, a later one of a name after those it merges with.
        """
        before = self._moved, self._made, self._own
        self._moved, self._made, self._own = namespace, made, None
        try:
            yield
        finally:
            self._moved, self._made, self._own = before

    def _own_config_maps(self) -> dict[str, ConfigMap]:
        if self._own is None:
            self._own = {}
            for item in self._config_maps(self._made()):
                base = self._own.get(item.name)
                data = {**base.data, **item.data} if base is not None and item.merges else item.data
                self._own[item.name] = ConfigMap(item.name, item.namespace, data, item.path)
        return self._own

    def _is_beside(self, left: str | None, right: str | None) -> bool:
        return self._moved or left is None or right is None or left == right

    def _forget_charts(self) -> None:
        self._indexes = {key: known for key, known in self._indexes.items() if key[1] is None}

    def _known(self, kind: type[_Item], path: str) -> list[_Item]:
        """The objects of a kind in the tree, and in the templates of the chart that a file is one of; of a template
        without a chart those that it makes itself."""
        from_files = self._index(kind, None)
        file = self._tree.files.get(path)
        if "templates/" not in path and (file is None or not is_go_template(file.text)):
            return from_files
        from kvgate.manifests.helm.chart import chart_of, folder_of_chart

        folder = folder_of_chart(path)
        if chart_of(self._tree, folder).known:
            return [*from_files, *self._index(kind, folder)]
        return [*from_files, *self._index(kind, path)]

    def _index(self, kind: type[_Item], place: str | None) -> list[_Item]:
        """The objects of a kind in the files, in the templates of a chart by its folder, or in one by its path."""
        known = self._indexes.get((kind, place))
        if known is None:
            marks, objects = _OBJECTS[kind]
            if place is None:
                documents = self._documents(marks)
            elif place in self._tree.files:
                documents = self._made_by(marks, self._tree.files[place])
            else:
                documents = self._templates(marks, place)
            known = self._indexes[kind, place] = list(objects(self, documents))
        return known

    def _made_by(self, marks: Iterable[str], file: SourceFile) -> Iterator[tuple[SourceFile, Node]]:
        """What a template makes whose values are not known."""
        from kvgate.manifests.helm.chart import render_statically
        from kvgate.manifests.helm.go_template import TemplateError

        if not _has_any(file.text, marks):
            return
        try:
            documents = render_statically(self._tree, file).documents
        except TemplateError:
            return
        for document in documents:
            for item in expand_list(document):
                yield file, item

    def _templates(self, marks: Iterable[str], folder: str) -> Iterator[tuple[SourceFile, Node]]:
        """What the templates of a chart make with its values."""
        from kvgate.manifests.helm.chart import folder_of_chart, objects_of_template

        for path, file in self._tree.files.items():
            if path.startswith(folder) and _has_any(file.text, marks) and folder_of_chart(path) == folder:
                documents = self._rendered.get(path)
                for document in objects_of_template(self._tree, file) if documents is None else documents:
                    for item in expand_list(document):
                        yield file, item

    def _documents(self, marks: Iterable[str]) -> Iterator[tuple[SourceFile, Node]]:
        for file in self._tree.files.values():
            if _has_any(file.text, marks) and not is_go_template(file.text) and not self._tree.is_chart_template(file):
                for document in self._tree.stream(file).documents:
                    for item in expand_list(document):
                        yield file, item

    def _config_maps(self, documents: Documents) -> Iterator[ConfigMap]:
        for file, document in documents:
            kind = text_at(document, "kind")
            if kind == "ConfigMap":
                data = {
                    entry.key.value: Value(entry.value.text)
                    for entry in entries_at(document, "data")
                    if isinstance(entry.value, Scalar)
                }
                name = text_at(document, "metadata", "name")
                if name:
                    yield ConfigMap(name, text_at(document, "metadata", "namespace"), data, file.path)
            elif kind == "Kustomization" or (kind is None and node_at(document, "configMapGenerator")):
                yield from self._generated(file, document)

    def _generated(self, file: SourceFile, document: Node) -> Iterator[ConfigMap]:
        namespace = text_at(document, "namespace")
        for item in items_at(document, "configMapGenerator"):
            name = text_at(item, "name")
            if not name:
                continue
            data: dict[str, Value] = {}
            for literal in items_at(item, "literals"):
                if isinstance(literal, Scalar) and "=" in literal.value:
                    key, _, rest = literal.value.partition("=")
                    data[key] = Value(literal.text.slice(len(literal.value) - len(rest), len(literal.value)))
            for entry in items_at(item, "files"):
                if isinstance(entry, Scalar):
                    key, _, source = entry.value.rpartition("=")
                    found = self._tree.use(posixpath.join(posixpath.dirname(file.path), source))
                    if found is not None:
                        data[key or posixpath.basename(source)] = Value(Text.of_span(Span(found, 0, len(found.text))))
            for entry in items_at(item, "envs"):
                if isinstance(entry, Scalar):
                    found = self._tree.read(posixpath.join(posixpath.dirname(file.path), entry.value))
                    if found is not None:
                        data.update(read_env_file(found))
            merges = text_at(item, "behavior") == "merge"
            yield ConfigMap(name, text_at(item, "namespace") or namespace, data, file.path, merges)

    def _autoscalers(self, documents: Documents) -> Iterator[Autoscaler]:
        for file, document in documents:
            kind = text_at(document, "kind")
            if kind not in ("HorizontalPodAutoscaler", "ScaledObject"):
                continue
            key = "minReplicas" if kind == "HorizontalPodAutoscaler" else "minReplicaCount"
            node = node_at(document, "spec", key)
            minimum = scalar_int(node)
            if node is None:
                # HorizontalPodAutoscalerSpec.minReplicas defaults to 1, ScaledObject's minReplicaCount to 0
                minimum = 1 if key == "minReplicas" else 0
                node = node_at(document, "spec")
            name = text_at(document, "spec", "scaleTargetRef", "name")
            if name and minimum is not None and node is not None:
                target = text_at(document, "spec", "scaleTargetRef", "kind") or "Deployment"
                namespace = text_at(document, "metadata", "namespace")
                yield Autoscaler(target, name, namespace, minimum, node.span, file.path)

    def _runtimes(self, documents: Documents) -> Iterator[ServingRuntime]:
        for file, document in documents:
            name = text_at(document, "metadata", "name")
            spec = node_at(document, "spec")
            containers = items_at(spec, "containers")
            # the one of this name serves the model, others stand beside it
            serving = [node for node in containers if text_at(node, "name") == "kserve-container"] or containers
            if name and spec and serving and (text_at(document, "kind") or "").endswith("ServingRuntime"):
                namespace = text_at(document, "metadata", "namespace")
                yield ServingRuntime(name, namespace, spec, serving[0], document, file.path)


# Kind of object -> what a file that holds one has in its text, and how it is found in the documents of files.
_OBJECTS: Final[dict[type, tuple[tuple[str, ...], Callable[[Peers, Documents], Iterator[Any]]]]] = {
    ConfigMap: (_CONFIG_MAP, Peers._config_maps),
    Autoscaler: (_AUTOSCALER, Peers._autoscalers),
    ServingRuntime: (_RUNTIME, Peers._runtimes),
}


def _has_any(text: str, marks: Iterable[str]) -> bool:
    return any(mark in text for mark in marks)


def _nearest(items: list[_Item], path: str, agree: Callable[[_Item, _Item], bool]) -> _Item | None:
    if not items:
        return None
    ranked = sorted(items, key=lambda item: distance(item.path, path))
    best = [item for item in ranked if distance(item.path, path) == distance(ranked[0].path, path)]
    return best[0] if all(agree(item, best[0]) for item in best) else None
