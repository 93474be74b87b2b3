"""Kustomize, read statically: what a kustomization's patches make of the objects they patch.

A patch is read together with the object it patches, as far as that is in the tree; what a patch leaves alone keeps its
place in the base, what it sets stands in the patch. Remote bases, plugins and generators other than ConfigMaps are not
followed: the patch is then read for what it says itself.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from collections.abc import Sequence as PlainSequence
from typing import Final

from kvgate.manifests.shapes import KUSTOMIZATION_NAMES, is_kustomization
from kvgate.manifests.tree import Tree, expand_list, items_at, node_at, scalar_at, text_at
from kvgate.records import record
from kvgate.source.text import SourceFile, Span, Text
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, Sequence, is_null, parse_embedded

MAX_OBJECTS: Final = 2_000  # of one kustomization
MAX_PATCHES: Final = 2_000
MAX_BASES: Final = 50  # of one kustomization, those of its bases among them
MAX_MATCHES: Final = 20_000  # of names with the patterns of one kustomization
MAX_NAME: Final = 253  # characters of an object's name, as Kubernetes has it
# A pattern that costs little to match: what repeats in it is a character, and at most two times.
_PATTERN: Final = re.compile(r"(?:[^*+?{}]|(?<!\))[*+?]){0,200}")
_REPEATS: Final = re.compile(r"[*+?]")

# How the items of a list are told apart when two of them are merged
# (kubernetes/api, `patchMergeKey` of the pod's types).
_MERGE_KEYS: Final = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort", "port"),
    "imagePullSecrets": ("name",),
}


@record
class GivenObject:
    """An object that a kustomization is given, and how it stands in its file."""

    node: Node
    origin: Node


@record
class Patched:
    """An object as a kustomization leaves it.

    Attributes:
        file: the file that holds the patch that makes it another one, else the kustomization.
        span: where that patch begins.
        given: the object as the kustomization is given it; None where that is not in the tree.
        patched: a patch changes its specification; otherwise the settings of the kustomization may.
    """

    document: Node
    file: SourceFile
    span: Span
    given: GivenObject | None
    patched: bool = True


def patch_files(tree: Tree) -> frozenset[str]:
    """Paths of files that kustomizations of the tree use as patches."""
    return frozenset(
        _beside(file, patch.path.value)
        for file, document in _kustomizations(tree)
        for patch in _patches(document)
        if patch.path is not None
    )


def built_objects(tree: Tree, file: SourceFile, kustomization: Node) -> Iterator[Patched]:
    """The objects that a kustomization makes of others with all its patches and settings, each once."""
    patches = _all_patch_documents(tree, file, kustomization)
    settings = next(_settings(file, kustomization, patches), None)
    used: set[int] = set()
    aims = _Aims(patches)
    if patches or settings is not None:
        for item in _resources(tree, file, kustomization):
            result, places = item.node, []
            for index in aims.at(item.node):
                where, _, document = patches[index]
                used.add(index)
                result = _patched(result, document)
                if _changes_specification(document):
                    places.append((where, document))
            if places:
                where, document = next((place for place in places if _says_containers(place[1])), places[0])
                yield Patched(_transformed(result, kustomization), where, document.span, item)
            elif settings is not None and posixpath.dirname(item.origin.span.file.path) != posixpath.dirname(file.path):
                yield Patched(_transformed(result, kustomization), *settings, item, patched=False)
    yield from _without_objects(
        file, kustomization, [item for index, item in enumerate(patches) if index not in used], tree
    )


def _settings(
    file: SourceFile, kustomization: Node, patches: PlainSequence[tuple[SourceFile, _Patch, Node]]
) -> Iterator[tuple[SourceFile, Span]]:
    """What may change servers though no patch is of them: settings, and patches of what they take variables from."""
    for key in _SETTINGS:
        node = node_at(kustomization, key)
        if node is not None and not is_null(node):
            yield file, node.span
    for where, patch, document in patches:
        target = patch.target or _identity(document)
        if target.kind == "ConfigMap":
            yield where, document.span


def _without_objects(
    file: SourceFile, kustomization: Node, patches: list[tuple[SourceFile, _Patch, Node]], tree: Tree
) -> Iterator[Patched]:
    """What patches say whose objects are not in the tree: those of one object together."""
    if text_at(kustomization, "kind") == "Component" and file.path in _components(tree):
        return  # they are read with what the component is put over
    found: dict[tuple[str | None, str | None], Patched] = {}
    for where, patch, document in patches:
        if isinstance(document, Sequence):
            yield from _of_operations(where, kustomization, patch, document)
        elif isinstance(document, Mapping) and document.get("spec") is not None:
            own = _identity(document)
            target = patch.target or own
            key = (target.kind or own.kind, target.name or own.name)
            before = found.get(key)
            if before is None:
                found[key] = Patched(document, where, document.span, None)
            else:
                found[key] = Patched(merged(before.document, document), before.file, before.span, None)
    for item in found.values():
        yield Patched(_transformed(item.document, kustomization), item.file, item.span, None)


# What a kustomization may set beside its patches that changes servers.
_SETTINGS: Final = ("images", "replicas", "configMapGenerator")


@record
class _Identity:
    kind: str | None
    name: str | None
    labels: str | None = None


@record
class _Patch:
    target: _Identity | None
    path: Scalar | None
    inline: Scalar | None


def _identity(node: Node) -> _Identity:
    return _Identity(text_at(node, "kind"), text_at(node, "metadata", "name"))


def _kustomizations(tree: Tree) -> Iterator[tuple[SourceFile, Node]]:
    for file in tree.files.values():
        if posixpath.basename(file.path) in KUSTOMIZATION_NAMES or "kustomize.config.k8s.io" in file.text:
            for document in tree.stream(file).documents:
                if is_kustomization(document):
                    yield file, document


def _patches(document: Node) -> Iterator[_Patch]:
    for item in [*items_at(document, "patches"), *items_at(document, "patchesJson6902")]:
        target = node_at(item, "target")
        identity = (
            _Identity(text_at(target, "kind"), text_at(target, "name"), text_at(target, "labelSelector"))
            if target is not None
            else None
        )
        yield _Patch(identity, scalar_at(item, "path"), scalar_at(item, "patch"))
    for item in items_at(document, "patchesStrategicMerge"):
        if isinstance(item, Scalar):
            inline = "\n" in item.value.strip()
            yield _Patch(None, None if inline else item, item if inline else None)


def _all_patches(tree: Tree, file: SourceFile, kustomization: Node) -> Iterator[tuple[SourceFile, _Patch]]:
    """The patches of the components of a kustomization, then its own."""
    for item in items_at(kustomization, "components"):
        found = _kustomization_at(tree, file, item.value) if isinstance(item, Scalar) else None
        if found is not None and text_at(found[1], "kind") == "Component":
            yield from ((found[0], patch) for patch in _patches(found[1]))
    yield from ((file, patch) for patch in _patches(kustomization))


def _components(tree: Tree) -> frozenset[str]:
    """Paths of the components that kustomizations of the tree use."""
    known = tree.memo.get("kustomize components")
    if not isinstance(known, frozenset):
        found = (
            _kustomization_at(tree, file, item.value)
            for file, document in _kustomizations(tree)
            for item in items_at(document, "components")
            if isinstance(item, Scalar)
        )
        known = tree.memo["kustomize components"] = frozenset(item[0].path for item in found if item is not None)
    return known


class _Aims:
    """Which of many patches are meant for an object."""

    def __init__(self, patches: PlainSequence[tuple[SourceFile, _Patch, Node]]) -> None:
        self._named: dict[str, list[tuple[int, _Identity]]] = {}
        self._open: list[tuple[int, _Identity, re.Pattern[str] | None]] = []
        self._left = MAX_MATCHES
        for index, (_, patch, document) in enumerate(patches[:MAX_PATCHES]):
            target = patch.target
            if target is None or not (target.kind or target.name or target.labels):
                if not isinstance(document, Mapping):
                    continue
                target = _identity(document)
                pattern = None
            else:
                pattern = _pattern(target.name)  # a target's name is a regular expression
            if target.name is not None:
                self._named.setdefault(target.name, []).append((index, target))
            if target.name is None or pattern is not None:
                self._open.append((index, target, pattern))

    def at(self, node: Node) -> list[int]:
        """The numbers of the patches for an object, in their order."""
        kind, name = text_at(node, "kind"), text_at(node, "metadata", "name") or ""
        found = {index for index, wanted in self._named.get(name, ()) if _is_meant(node, kind, wanted)}
        for index, wanted, pattern in self._open:
            if wanted.kind in (None, kind) and index not in found and self._fits(pattern, name):
                found.update({index} if _is_meant(node, kind, wanted) else ())
        return sorted(found)

    def _fits(self, pattern: re.Pattern[str] | None, name: str) -> bool:
        if pattern is None:
            return True
        self._left -= 1
        return self._left >= 0 and len(name) <= MAX_NAME and pattern.fullmatch(name) is not None


def _pattern(name: str | None) -> re.Pattern[str] | None:
    """A name as a pattern; None for one that is plain, that is no pattern, or that may take long to match."""
    if name is None or re.fullmatch(r"[\w-]*", name) or not _PATTERN.fullmatch(name) or len(_REPEATS.findall(name)) > 2:
        return None
    try:
        return re.compile(name)
    except re.error:
        return None


def _is_meant(node: Node, kind: str | None, wanted: _Identity) -> bool:
    return wanted.kind in (None, kind) and (wanted.labels is None or _has_labels(node, wanted.labels))


def _has_labels(node: Node, selector: str) -> bool:
    """Whether an object has the labels of a selector of the form ``a=b,c=d``; other forms match nothing."""
    for part in selector.split(","):
        key, equals, value = part.replace("==", "=").partition("=")
        if not equals or text_at(node, "metadata", "labels", key.strip()) != value.strip():
            return False
    return True


def _patched(node: Node, document: Node) -> Node:
    """An object with one patch: a strategic one, or operations."""
    if isinstance(document, Sequence):
        for operation in document.items:
            node = _applied(node, operation) or node
        return node
    return merged(node, document)


def _changes_specification(document: Node) -> bool:
    """Whether a patch says more than a label or an annotation, which make no other server."""
    if isinstance(document, Sequence):
        return any((text_at(operation, "path") or "").startswith("/spec") for operation in document.items)
    return node_at(document, "spec") is not None


def _says_containers(document: Node) -> bool:
    return "containers" in document.span.text


def _beside(file: SourceFile, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(file.path), path))


def _kustomization_at(tree: Tree, file: SourceFile, path: str) -> tuple[SourceFile, Node] | None:
    """The kustomization of a folder that another one names."""
    if "://" in path or "?ref=" in path:
        return None
    for name in KUSTOMIZATION_NAMES:
        found = tree.read(_beside(file, posixpath.join(path, name)))
        if found is not None:
            return next(((found, document) for document in tree.stream(found).documents), None)
    return None


def _resources(tree: Tree, file: SourceFile, kustomization: Node) -> list[GivenObject]:
    """The objects that a kustomization is given, those of other kustomizations as these leave them."""
    found: list[GivenObject] = []
    for key in ("resources", "bases", "components"):
        for item in items_at(kustomization, key):
            if not isinstance(item, Scalar) or "://" in item.value or "?ref=" in item.value:
                continue
            source = tree.read(_beside(file, item.value))
            if source is not None:
                documents = tree.stream(source).documents
                found += [GivenObject(node, node) for document in documents for node in expand_list(document)]
            elif (inner := _kustomization_at(tree, file, item.value)) is not None and inner[1] is not kustomization:
                found += _made_by(tree, *inner)
            if len(found) > MAX_OBJECTS:
                return found[:MAX_OBJECTS]
    return found


def _made_by(tree: Tree, file: SourceFile, kustomization: Node) -> tuple[GivenObject, ...]:
    """The objects of a base with that base's own patches, found out once."""
    key = f"kustomize objects:{file.path}"
    known = tree.memo.get(key)
    if not isinstance(known, tuple):
        tree.memo[key] = ()  # bases that go round have none
        known = tree.memo[key] = tuple(_results(tree, file, kustomization))
    return known


def _results(tree: Tree, file: SourceFile, kustomization: Node) -> Iterator[GivenObject]:
    patches = _all_patch_documents(tree, file, kustomization)
    aims = _Aims(patches)
    for item in _resources(tree, file, kustomization):
        result = item.node
        for index in aims.at(item.node):
            result = _patched(result, patches[index][2])
        yield GivenObject(_transformed(result, kustomization), item.origin)


def given_objects(tree: Tree) -> Iterator[tuple[str, GivenObject]]:
    """The objects that each kustomization of the tree is given, with its path."""
    for file, document in _kustomizations(tree):
        if text_at(document, "kind") != "Component":
            yield from ((file.path, item) for item in _resources(tree, file, document))


def renamed_objects(tree: Tree) -> frozenset[tuple[str, int]]:
    """Path and beginning of each object of another folder to whose name a kustomization adds something."""
    known = tree.memo.get("kustomize renames")
    if not isinstance(known, frozenset):
        known = tree.memo["kustomize renames"] = frozenset(
            (span.file.path, span.start)
            for file, document in _kustomizations(tree)
            if text_at(document, "nameSuffix") or text_at(document, "namePrefix")
            for item in _resources(tree, file, document)
            if posixpath.dirname((span := item.origin.span).file.path) != posixpath.dirname(file.path)
        )
    return known


def patched_resources(tree: Tree, file: SourceFile, kustomization: Node) -> Iterator[Node]:
    """The objects of a kustomization with its patches and settings."""
    return (item.node for item in _results(tree, file, kustomization))


def origins_of_config_maps(tree: Tree, file: SourceFile, kustomization: Node) -> Iterator[tuple[SourceFile, Node]]:
    """What the ConfigMaps of a kustomization come of: those it is given, as its patches leave them, then the
    kustomizations whose generators make others, its bases before it."""
    given = patched_resources(tree, file, kustomization)
    yield from ((file, node) for node in given if text_at(node, "kind") == "ConfigMap")
    yield from _with_bases(tree, file, kustomization, set())


def _with_bases(tree: Tree, file: SourceFile, kustomization: Node, seen: set[str]) -> Iterator[tuple[SourceFile, Node]]:
    seen.add(file.path)
    for key in ("resources", "bases", "components"):
        for item in items_at(kustomization, key):
            inner = _kustomization_at(tree, file, item.value) if isinstance(item, Scalar) else None
            if inner is not None and inner[0].path not in seen and len(seen) < MAX_BASES:
                yield from _with_bases(tree, *inner, seen)
    yield file, kustomization


def _all_patch_documents(tree: Tree, file: SourceFile, kustomization: Node) -> list[tuple[SourceFile, _Patch, Node]]:
    """The documents of all patches of a kustomization, each with the file that holds it and the patch."""
    return [
        (holder, patch, document)
        for where, patch in _all_patches(tree, file, kustomization)
        for holder, document in _patch_documents(tree, where, patch)
    ]


def _patch_documents(tree: Tree, file: SourceFile, patch: _Patch) -> list[tuple[SourceFile, Node]]:
    if patch.inline is not None:
        return [(file, document) for document in parse_embedded(patch.inline.text).documents]
    if patch.path is not None:
        found = tree.read(_beside(file, patch.path.value))
        return [(found, document) for document in tree.stream(found).documents] if found is not None else []
    return []


# -- merging -----------------------------------------------------------------------------------------------------------


def merged(base: Node, patch: Node, key: str = "", depth: int = 0, *, by_name: bool = True) -> Node:
    """A strategic merge: mappings key by key, lists of named things by name, everything else replaced.

    Args:
        by_name: whether lists of named things are merged, which Helm does not do with values.
    """
    if depth > 60:
        return patch
    if isinstance(base, Mapping) and isinstance(patch, Mapping):
        directive = scalar_at(patch, "$patch")
        if directive is not None and directive.value == "replace":
            return patch
        entries = {entry.key.value: entry for entry in base.items()}
        for entry in patch.items():
            name = entry.key.value
            if is_null(entry.value):
                entries.pop(name, None)
            elif name in entries:
                value = merged(entries[name].value, entry.value, name, depth + 1, by_name=by_name)
                entries[name] = Entry(entry.key, value)
            elif name != "$patch":
                entries[name] = entry
        return Mapping(patch.span, list(entries.values()))
    if by_name and isinstance(base, Sequence) and isinstance(patch, Sequence):
        for merge_key in _MERGE_KEYS.get(key, ()):
            if patch.items and all(text_at(item, merge_key) for item in patch.items):
                return _merged_lists(base, patch, merge_key, depth)
    return patch


def _merged_lists(base: Sequence, patch: Sequence, merge_key: str, depth: int) -> Sequence:
    items: list[Node] = list(base.items)
    for item in patch.items:
        name = text_at(item, merge_key)
        at = next((index for index, old in enumerate(items) if text_at(old, merge_key) == name), None)
        deleted = text_at(item, "$patch") == "delete"
        if at is None:
            if not deleted:
                items.append(item)
        elif deleted:
            del items[at]
        else:
            items[at] = merged(items[at], item, "", depth + 1)
    return Sequence(patch.span, items)


def _transformed(node: Node, kustomization: Node) -> Node:
    """An object under a kustomization's namespace, image and replica settings."""
    result = node
    namespace = scalar_at(kustomization, "namespace")
    if namespace is not None and namespace.value:
        result = _with(result, ("metadata", "namespace"), namespace)
    for item in items_at(kustomization, "replicas"):
        count = node_at(item, "count")
        if count is not None and text_at(item, "name") == text_at(node, "metadata", "name"):
            result = _with(result, ("spec", "replicas"), count)
    images = items_at(kustomization, "images")
    return _with_images(result, images, 0) if images else result


def transformed_by_owner(node: Node, owners: list[Node]) -> Node:
    """An object under the settings of the one kustomization beside it that lists its file."""
    return _transformed(node, owners[0]) if len(owners) == 1 else node


def owners(tree: Tree) -> dict[str, list[Node]]:
    """Paths of files -> the kustomizations in the same directory that list them as resources."""
    found: dict[str, list[Node]] = {}
    for file, document in _kustomizations(tree):
        folder = posixpath.dirname(file.path)
        for key in ("resources", "bases"):
            for item in items_at(document, key):
                if isinstance(item, Scalar) and "/" not in item.value.removeprefix("./"):
                    path = posixpath.normpath(posixpath.join(folder, item.value))
                    found.setdefault(path, []).append(document)
    return found


def _with(node: Node, keys: tuple[str, ...], value: Node) -> Node:
    """The node with a value set below a path of keys, mappings made where there are none."""
    if not keys:
        return value
    entries = node.items() if isinstance(node, Mapping) else []
    for index, entry in enumerate(entries):
        if entry.key.value == keys[0]:
            entries[index] = Entry(entry.key, _with(entry.value, keys[1:], value))
            return Mapping(node.span, entries)
    key = Scalar(value.span, keys[0])
    inner = _with(Mapping(value.span, []), keys[1:], value) if len(keys) > 1 else value
    return Mapping(node.span, [*entries, Entry(key, inner)])


def _with_images(node: Node, images: list[Node], depth: int) -> Node:
    if depth > 60:
        return node
    if isinstance(node, Sequence):
        return Sequence(node.span, [_with_images(item, images, depth + 1) for item in node.items], node.alias)
    if not isinstance(node, Mapping):
        return node
    entries: list[Entry] = []
    for entry in node.items():
        value = entry.value
        if entry.key.value == "image" and isinstance(value, Scalar):
            value = _renamed(value, images)
        elif isinstance(value, (Mapping, Sequence)):
            value = _with_images(value, images, depth + 1)
        entries.append(Entry(entry.key, value))
    return Mapping(node.span, entries, node.alias)


def _renamed(image: Scalar, images: list[Node]) -> Scalar:
    match = re.fullmatch(r"(?P<name>.*?)(?P<tag>:[\w][\w.-]*)?(?P<digest>@[\w:]+)?", image.value)
    if not match:
        return image
    for item in images:
        if text_at(item, "name") != match["name"]:
            continue
        name = text_at(item, "newName") or match["name"]
        tag, digest = scalar_at(item, "newTag"), scalar_at(item, "digest")
        if digest is not None:
            value = f"{name}@{digest.value}"
        elif tag is not None:
            value = f"{name}:{tag.value}"
        else:
            value = name + (match["tag"] or "") + (match["digest"] or "")
        span = (digest or tag or item).span
        return Scalar(span, value, image.style, None, Text.at(value, span))
    return image


# -- JSON 6902 ---------------------------------------------------------------------------------------------------------


def _of_operations(file: SourceFile, kustomization: Node, patch: _Patch, operations: Sequence) -> Iterator[Patched]:
    if _changes_specification(operations):
        yield from _without_base(file, kustomization, patch, operations)


def _pointer(operation: Node) -> list[str]:
    path = text_at(operation, "path") or ""
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _applied(node: Node, operation: Node) -> Node | None:
    """The node after one operation; None when it cannot be applied."""
    kind = text_at(operation, "op")
    value = node_at(operation, "value")
    if kind not in ("add", "replace", "remove") or (value is None and kind != "remove"):
        return None
    return _changed(node, _pointer(operation), kind, value, operation.span)


def _changed(node: Node, pointer: list[str], kind: str, value: Node | None, span: Span) -> Node | None:
    if not pointer:
        return value if kind != "remove" else None
    key, rest = pointer[0], pointer[1:]
    if isinstance(node, Mapping):
        entries = node.items()
        at = next((index for index, entry in enumerate(entries) if entry.key.value == key), None)
        if at is None:
            if rest or value is None:
                return None
            return Mapping(span, [*entries, Entry(Scalar(value.span, key), value)])
        if not rest and kind == "remove":
            del entries[at]
        else:
            changed = _changed(entries[at].value, rest, kind, value, span)
            if changed is None:
                return None
            entries[at] = Entry(entries[at].key, changed)
        # a container that an operation changes begins, as patched, where the operation stands
        return Mapping(span if not rest else node.span, entries)
    if isinstance(node, Sequence):
        items = list(node.items)
        if key == "-" and not rest and value is not None:
            return Sequence(node.span, [*items, value])
        if not key.isdigit() or int(key) > len(items):
            return None
        index = int(key)
        if not rest and kind == "add" and value is not None:
            items.insert(index, value)
        elif index == len(items):
            return None
        elif not rest and kind == "remove":
            del items[index]
        else:
            changed = _changed(items[index], rest, kind, value, span)
            if changed is None:
                return None
            items[index] = changed
        return Sequence(node.span, items)
    return None


_CONTAINER: Final = re.compile(
    r"(?P<pod>.*)/(?P<list>containers|initContainers)/(?P<index>[0-9]+)/(?P<field>[A-Za-z]+)"
)


def _without_base(file: SourceFile, document: Node, patch: _Patch, operations: Sequence) -> Iterator[Patched]:
    """What operations say of a container whose object is not in the tree: its fields, and nothing else."""
    containers: dict[str, tuple[Span, dict[str, Entry]]] = {}
    for operation in operations.items:
        match = _CONTAINER.fullmatch(text_at(operation, "path") or "")
        value = node_at(operation, "value")
        if match and value is not None and match["list"] == "containers" and text_at(operation, "op") != "remove":
            _, entries = containers.setdefault(match["index"], (operation.span, {}))
            entries[match["field"]] = Entry(Scalar(value.span, match["field"]), value)
    for span, entries in containers.values():
        container = Mapping(span, list(entries.values()))
        kind = (patch.target.kind if patch.target else None) or "Deployment"
        pod = _mapping(span, {"spec": _mapping(span, {"containers": Sequence(span, [container])})})
        metadata = _mapping(span, {"name": Scalar(span, (patch.target.name if patch.target else None) or "")})
        node = _mapping(
            span,
            {
                "apiVersion": Scalar(span, "apps/v1"),
                "kind": Scalar(span, kind),
                "metadata": metadata,
                "spec": _mapping(span, {"template": pod}),
            },
        )
        yield Patched(_transformed(node, document), file, span, None)


def _mapping(span: Span, values: dict[str, Node]) -> Mapping:
    return Mapping(span, [Entry(Scalar(span, key), value) for key, value in values.items()])
