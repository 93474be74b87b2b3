"""The files of a run as one tree: parsed once, and what one file says about another."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as PlainMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from kvgate.records import record
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Text
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, YamlStream, is_go_template, parse_yaml, scalar_int
from kvgate.source.yaml_tree import Sequence as YamlSequence

MAX_SIDE_FILE_BYTES: Final = 1_000_000
MAX_ENV_CHARACTERS: Final = 200_000
MAX_ENV_LINE: Final = 5_000

# What files of the tree say about objects of other files; only these are parsed for it.
# Words of which a file has one that holds objects of a kind.
_CONFIG_MAP: Final = ("ConfigMap", "configMapGenerator")
_AUTOSCALER: Final = ("HorizontalPodAutoscaler", "ScaledObject")
_RUNTIME: Final = ("ServingRuntime",)


@record
class ConfigMap:
    """A ConfigMap's text data, or a ConfigMap that kustomize generates."""

    name: str
    namespace: str | None
    data: dict[str, Value]
    path: str


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


class Tree:
    """Files by path, their YAML, and the indexes over them, each built when first asked for.

    Args:
        files: files of the run.
        root: directory to which their paths are relative; None when there is none (a snapshot).
        lookup: reads another file of the same tree by its path; by default below ``root``, never outside.

    Attributes:
        used: paths of files that others run, mount or hand to vLLM.
        built: paths of Dockerfiles whose image a server of another file runs.
        runtimes_used: path and beginning of each (Cluster)ServingRuntime that another object serves its model with.
        memo: what readers found out about the tree and want to keep.
    """

    def __init__(
        self,
        files: Sequence[SourceFile],
        root: Path | None = None,
        lookup: Callable[[str], SourceFile | None] | None = None,
    ) -> None:
        self.files = {file.path: file for file in files}
        self._root = root
        self._lookup = lookup
        self._streams: dict[str, YamlStream] = {}
        self._side: dict[str, SourceFile | None] = {}
        self.used: set[str] = set()
        self.built: set[str] = set()
        self.runtimes_used: set[tuple[str, int]] = set()
        self.memo: dict[str, object] = {}
        self._indexes: dict[tuple[type, str | None], list[Any]] = {}
        self._rendered: PlainMapping[str, Sequence[Node]] = {}

    def stream(self, file: SourceFile) -> YamlStream:
        """The YAML of a file."""
        stream = self._streams.get(file.path)
        if stream is None or stream.file is not file:
            stream = self._streams[file.path] = parse_yaml(file)
        return stream

    def read(self, path: str) -> SourceFile | None:
        """A file of the tree by its path, of the run or beside it; None when there is none or it is not readable."""
        path = posixpath.normpath(path)
        if path in self.files:
            return self.files[path]
        if path not in self._side:
            self._side[path] = self._lookup(path) if self._lookup else self._read(path)
        return self._side[path]

    def use(self, path: str) -> SourceFile | None:
        """A file that another one runs, mounts or hands to vLLM: what it starts is started there."""
        found = self.read(path)
        if found is not None:
            self.used.add(found.path)
        return found

    def _read(self, path: str) -> SourceFile | None:
        if self._root is None or path.startswith(("../", "/")) or path == "..":
            return None
        try:
            full = (self._root / path).resolve()
            if not full.is_relative_to(self._root.resolve()) or not full.is_file():
                return None
            if full.stat().st_size > MAX_SIDE_FILE_BYTES:
                return None
            return SourceFile.from_bytes(path, full.read_bytes())
        except (OSError, ValueError):
            return None

    # -- what objects say about each other -------------------------------------------------------------------------

    def config_map(self, name: str, namespace: str | None, path: str) -> ConfigMap | None:
        """The ConfigMap of a name that is nearest to a file; one that several equally near ones agree on."""
        known = self._known(ConfigMap, path)
        return _nearest(
            [item for item in known if item.name == name and _compatible(item.namespace, namespace)],
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
                if item.name == name and item.kind == kind and _compatible(item.namespace, namespace)
            ],
            path,
            lambda left, right: left.minimum == right.minimum,
        )

    def runtime(self, name: str, namespace: str | None, path: str) -> ServingRuntime | None:
        """The (Cluster)ServingRuntime of a name, for an object of a file, which uses it thereby."""
        known = self._known(ServingRuntime, path)
        found = _nearest(
            [item for item in known if item.name == name and _compatible(item.namespace, namespace)],
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
    def reading(self, rendered: PlainMapping[str, Sequence[Node]]) -> Iterator[None]:
        """While a chart is read whose templates, by their paths, make these documents."""
        before, self._rendered = self._rendered, rendered
        self._forget_charts()
        try:
            yield
        finally:
            self._rendered = before
            self._forget_charts()

    def _forget_charts(self) -> None:
        self._indexes = {key: known for key, known in self._indexes.items() if key[1] is None}

    def _known(self, kind: type[_Item], path: str) -> list[_Item]:
        """The objects of a kind in the tree, and in the templates of the chart that a file is one of."""
        from_files = self._index(kind, None)
        if "templates/" not in path:
            return from_files
        from kvgate.manifests.helm.chart import folder_of_chart

        folder = folder_of_chart(path)
        return from_files if folder is None else [*from_files, *self._index(kind, folder)]

    def _index(self, kind: type[_Item], folder: str | None) -> list[_Item]:
        known = self._indexes.get((kind, folder))
        if known is None:
            marks, objects = _OBJECTS[kind]
            documents = self._documents(marks) if folder is None else self._templates(marks, folder)
            known = self._indexes[kind, folder] = list(objects(self, documents))
        return known

    def _templates(self, marks: Iterable[str], folder: str) -> Iterator[tuple[SourceFile, Node]]:
        """What the templates of a chart make with its values."""
        from kvgate.manifests.helm.chart import folder_of_chart, objects_of_template

        for path, file in self.files.items():
            if path.startswith(folder) and _has_any(file.text, marks) and folder_of_chart(path) == folder:
                documents = self._rendered.get(path)
                for document in objects_of_template(self, file) if documents is None else documents:
                    for item in expand_list(document):
                        yield file, item

    def _documents(self, marks: Iterable[str]) -> Iterator[tuple[SourceFile, Node]]:
        for file in self.files.values():
            if _has_any(file.text, marks) and not is_go_template(file.text) and not self.is_chart_template(file):
                for document in self.stream(file).documents:
                    for item in expand_list(document):
                        yield file, item

    def is_chart_template(self, file: SourceFile) -> bool:
        """Whether Helm renders a file, also one in which every expression stands inside a value."""
        chart, found, _ = f"/{file.path}".rpartition("/templates/")
        return (
            bool(found) and "{{" in file.text and self.read(posixpath.join(chart.lstrip("/"), "Chart.yaml")) is not None
        )

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
                    found = self.read(posixpath.join(posixpath.dirname(file.path), source))
                    if found is not None:
                        data[key or posixpath.basename(source)] = Value(Text.of_span(Span(found, 0, len(found.text))))
            for entry in items_at(item, "envs"):
                if isinstance(entry, Scalar):
                    found = self.read(posixpath.join(posixpath.dirname(file.path), entry.value))
                    if found is not None:
                        data.update(read_env_file(found))
            yield ConfigMap(name, text_at(item, "namespace") or namespace, data, file.path)

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


def _compatible(left: str | None, right: str | None) -> bool:
    return left is None or right is None or left == right


# Kind of object -> what a file that holds one has in its text, and how it is found in the documents of files.
_OBJECTS: Final[dict[type, tuple[tuple[str, ...], Callable[[Tree, Documents], Iterator[Any]]]]] = {
    ConfigMap: (_CONFIG_MAP, Tree._config_maps),
    Autoscaler: (_AUTOSCALER, Tree._autoscalers),
    ServingRuntime: (_RUNTIME, Tree._runtimes),
}


def _has_any(text: str, marks: Iterable[str]) -> bool:
    return any(mark in text for mark in marks)


def _nearest(items: list[_Item], path: str, agree: Callable[[_Item, _Item], bool]) -> _Item | None:
    if not items:
        return None
    ranked = sorted(items, key=lambda item: distance(item.path, path))
    best = [item for item in ranked if distance(item.path, path) == distance(ranked[0].path, path)]
    return best[0] if all(agree(item, best[0]) for item in best) else None


def distance(left: str, right: str) -> int:
    """Directories between two files; -1 for the same file."""
    if left == right:
        return -1
    here, there = left.split("/")[:-1], right.split("/")[:-1]
    shared = 0
    for one, other in zip(here, there, strict=False):
        if one != other:
            break
        shared += 1
    return len(here) + len(there) - 2 * shared


# -- walking -----------------------------------------------------------------------------------------------------------


def node_at(node: Node | None, *keys: str) -> Node | None:
    """The node below a path of keys."""
    for key in keys:
        if not isinstance(node, Mapping):
            return None
        node = node.get(key)
    return node


def scalar_at(node: Node | None, *keys: str) -> Scalar | None:
    """The scalar below a path of keys."""
    found = node_at(node, *keys)
    return found if isinstance(found, Scalar) else None


def text_at(node: Node | None, *keys: str) -> str | None:
    """The text of the scalar below a path of keys; None when it is missing or empty."""
    found = scalar_at(node, *keys)
    return found.value or None if found else None


def items_at(node: Node | None, *keys: str) -> list[Node]:
    """The items of the sequence below a path of keys."""
    found = node_at(node, *keys)
    return found.items if isinstance(found, YamlSequence) else []


def entries_at(node: Node | None, *keys: str) -> list[Entry]:
    """The effective entries of the mapping below a path of keys."""
    found = node_at(node, *keys)
    return found.items() if isinstance(found, Mapping) else []


def expand_list(document: Node) -> Iterator[Node]:
    """A document, or the objects in it where it is a ``List`` or an OpenShift Template."""
    kind = text_at(document, "kind") or ""
    key = "objects" if kind == "Template" else "items" if kind.endswith("List") else None
    if key and isinstance(node_at(document, key), YamlSequence):
        for item in items_at(document, key):
            yield from expand_list(item)
    else:
        yield document


_ENV_LINE: Final = (
    r"^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_.]*)[ \t]*[=:][ \t]*"
    r"(?:\"(?P<double>(?:[^\"\\]|\\.)*)\"|'(?P<single>[^']*)'|(?P<plain>[^\r\n]*?))[ \t]*(?:[ \t]#[^\r\n]*)?\r?$"
)


def read_env_file(file: SourceFile) -> dict[str, Value]:
    """Variables of an ``.env`` file, as Compose reads them: quotes, comments, references to earlier variables."""
    return read_env_text(Text.of_span(Span(file, 0, len(file.text))))


def read_env_text(text: Text) -> dict[str, Value]:
    """Variables in a text of that form, see :func:`read_env_file`."""
    from kvgate.shell.expand import interpolate

    values: dict[str, Value] = {}
    written = text.value
    if len(written) > MAX_ENV_CHARACTERS or any(len(line) > MAX_ENV_LINE for line in written.splitlines()):
        return values
    for match in re.finditer(_ENV_LINE, written, re.MULTILINE):
        group = "double" if match["double"] is not None else "single" if match["single"] is not None else "plain"
        value = Value(text.slice(match.start(group), match.end(group)))
        if group == "plain" and value.value.startswith("#"):
            value = value.slice(0, 0)
        if group != "single":
            value = interpolate(value, values)
        values[match["name"]] = value
    return values
