"""Kustomize, read statically: what a kustomization's patches make of the objects they patch.

A patch is read together with the object it patches, as far as that is in the tree; what a patch leaves alone keeps its
place in the base, what it sets stands in the patch. Remote bases, plugins and generators other than ConfigMaps are not
followed: the patch is then read for what it says itself.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final

from kvgate.manifests.shapes import KUSTOMIZATION_NAMES, is_kustomization
from kvgate.manifests.tree import Tree, expand_list, items_at, node_at, scalar_at, text_at
from kvgate.records import record
from kvgate.source.text import SourceFile, Span, Text
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, Sequence, is_null, parse_embedded

MAX_DEPTH: Final = 8

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
class Patched:
    """An object as a patch leaves it, the file that holds the patch, and where the patch begins."""

    document: Node
    file: SourceFile
    span: Span


def patch_files(tree: Tree) -> dict[str, list[tuple[SourceFile, Node]]]:
    """Paths of files that kustomizations of the tree use as patches, with these kustomizations."""
    found: dict[str, list[tuple[SourceFile, Node]]] = {}
    for file, document in _kustomizations(tree):
        for patch in _patches(document):
            path = patch.path
            if path is not None:
                full = posixpath.normpath(posixpath.join(posixpath.dirname(file.path), path.value))
                found.setdefault(full, []).append((file, document))
    return found


def patched_by_file(tree: Tree, file: SourceFile, document: Node, users: list[tuple[SourceFile, Node]]) -> Patched:
    """A patch document of a file of its own, merged into what the first kustomization that uses it patches."""
    for kustomization, node in users:
        base = _find_base(tree, kustomization, node, _target_of(document, node, file, kustomization))
        if base is not None:
            return Patched(_transformed(merged(base, document), node), file, document.span)
    return Patched(document, file, document.span)


def inline_patches(tree: Tree, file: SourceFile, document: Node) -> Iterator[Patched]:
    """The objects that the patches written inside a kustomization make."""
    for patch in _patches(document):
        if patch.inline is None:
            continue
        for inner in parse_embedded(patch.inline.text).documents:
            if isinstance(inner, Mapping) and inner.get("spec") is not None:
                base = _find_base(tree, file, document, patch.target or _identity(inner))
                yield Patched(_transformed(merged(base, inner) if base else inner, document), file, inner.span)
            elif isinstance(inner, Sequence):
                yield from _operations(tree, file, document, patch, inner)


@record
class _Identity:
    kind: str | None
    name: str | None


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
        identity = _Identity(text_at(target, "kind"), text_at(target, "name")) if target is not None else None
        yield _Patch(identity, scalar_at(item, "path"), scalar_at(item, "patch"))
    for item in items_at(document, "patchesStrategicMerge"):
        if isinstance(item, Scalar):
            inline = "\n" in item.value.strip()
            yield _Patch(None, None if inline else item, item if inline else None)


def _target_of(document: Node, kustomization: Node, file: SourceFile, where: SourceFile) -> _Identity:
    """The target that a kustomization gives for a patch file, or the object the patch names."""
    for patch in _patches(kustomization):
        if patch.path is not None and patch.target is not None:
            full = posixpath.normpath(posixpath.join(posixpath.dirname(where.path), patch.path.value))
            if full == file.path:
                own = _identity(document)
                return _Identity(patch.target.kind or own.kind, patch.target.name or own.name)
    return _identity(document)


def _find_base(tree: Tree, file: SourceFile, kustomization: Node, wanted: _Identity, depth: int = 0) -> Node | None:
    """The one object below a kustomization that a target means; None when there is none, or no single one."""
    found = [node for node in _resources(tree, file, kustomization, depth) if _matches(node, wanted)]
    if len(found) > 1 and wanted.name is not None:
        exact = [node for node in found if text_at(node, "metadata", "name") == wanted.name]
        found = exact or found
    return found[0] if len(found) == 1 else None


def _matches(node: Node, wanted: _Identity) -> bool:
    if wanted.kind is not None and text_at(node, "kind") != wanted.kind:
        return False
    name = text_at(node, "metadata", "name") or ""
    if wanted.name is None or wanted.name == name:
        return True
    try:
        return re.fullmatch(wanted.name, name) is not None  # a target's name is a regular expression
    except re.error:
        return False


def _resources(tree: Tree, file: SourceFile, kustomization: Node, depth: int) -> Iterator[Node]:
    if depth > MAX_DEPTH:
        return
    folder = posixpath.dirname(file.path)
    for key in ("resources", "bases", "components"):
        for item in items_at(kustomization, key):
            if not isinstance(item, Scalar) or "://" in item.value or "?ref=" in item.value:
                continue
            path = posixpath.normpath(posixpath.join(folder, item.value))
            found = tree.read(path)
            if found is not None:
                for document in tree.stream(found).documents:
                    yield from expand_list(document)
                continue
            for name in KUSTOMIZATION_NAMES:
                inner = tree.read(posixpath.join(path, name))
                if inner is not None:
                    for document in tree.stream(inner).documents:
                        if document is not kustomization:
                            yield from patched_resources(tree, inner, document, depth + 1)
                    break


def patched_resources(tree: Tree, file: SourceFile, kustomization: Node, depth: int = 0) -> Iterator[Node]:
    """The objects of a base with that base's own strategic patches."""
    for node in _resources(tree, file, kustomization, depth):
        result = node
        for patch in _patches(kustomization):
            for document in _patch_documents(tree, file, patch):
                if isinstance(document, Mapping) and _matches(node, patch.target or _identity(document)):
                    result = merged(result, document)
                elif isinstance(document, Sequence) and patch.target and _matches(node, patch.target):
                    for operation in document.items:
                        result = _applied(result, operation) or result
        yield _transformed(result, kustomization)


def _patch_documents(tree: Tree, file: SourceFile, patch: _Patch) -> list[Node]:
    if patch.inline is not None:
        return parse_embedded(patch.inline.text).documents
    if patch.path is not None:
        found = tree.read(posixpath.join(posixpath.dirname(file.path), patch.path.value))
        return tree.stream(found).documents if found is not None else []
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


def _operations(tree: Tree, file: SourceFile, document: Node, patch: _Patch, operations: Sequence) -> Iterator[Patched]:
    base = _find_base(tree, file, document, patch.target) if patch.target else None
    if not any((text_at(operation, "path") or "").startswith("/spec") for operation in operations.items):
        return  # a label or an annotation makes no other server
    if base is not None:
        result = base
        for operation in operations.items:
            result = _applied(result, operation) or result
        yield Patched(_transformed(result, document), file, operations.span)
        return
    yield from _without_base(file, document, patch, operations)


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
        yield Patched(_transformed(node, document), file, span)


def _mapping(span: Span, values: dict[str, Node]) -> Mapping:
    return Mapping(span, [Entry(Scalar(span, key), value) for key, value in values.items()])
