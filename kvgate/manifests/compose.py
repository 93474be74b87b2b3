"""Docker Compose files -> serve units (Compose specification; interpolation first, then splitting)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Final

from kvgate.manifests.compose_files import NAMES, Together, included, services_of, together
from kvgate.manifests.compose_runs import sourced_beside, told_by_commands
from kvgate.manifests.container import Container, Find, Start, environment_of, find_requirement
from kvgate.manifests.entrypoint import is_companion, is_vllm_image, says_engine
from kvgate.manifests.launch import find_starts, why_unread
from kvgate.manifests.quantities import size_bytes
from kvgate.manifests.tree import Tree, node_at, read_env_file, text_at
from kvgate.manifests.unit import GpuRequest, NodeHint, ServeUnit, SharedMemory, Unread
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.shell.expand import interpolate, mark_placeholders, unset
from kvgate.shell.value import Value
from kvgate.shell.words import split_words
from kvgate.source.text import SourceFile, Span, Text, TooLargeError, Unresolved, Word
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, Sequence, is_null, scalar_int

if TYPE_CHECKING:
    from kvgate.manifests.dockerfile import Image

MAX_EXTENDS: Final = 8
ANNOTATION_PREFIX: Final = "kvgate.dev/"


def read_compose(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The serve units of one Compose file.

    A service that another file always overrides is one server with it; one that a list of files puts over another is a
    server of the file on top. Services that other files only extend are none, nor are included files that are read
    anyway.
    """
    related = together(tree)
    yield from _included(tree, file, document)
    services = node_at(document, "services")
    if not isinstance(services, Mapping):
        return
    bases = {name for path, above in related.over.items() if file.path in above for name in _names(tree, path)}
    plain = posixpath.basename(file.path) in NAMES
    project = _Project(tree, file, document, related)
    for entry in services.items():
        name = entry.key.value
        if name in bases or ((file.path, name) in related.extended and not plain):
            continue
        if isinstance(entry.value, Mapping):
            yield from project.service(entry)


def _names(tree: Tree, path: str) -> frozenset[str]:
    found = services_of(tree, path)
    return frozenset(entry.key.value for entry in found[1].items()) if found is not None else frozenset()


def _included(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """What included files start that are not read by themselves."""
    for paths in included(document, file.path):
        for path in paths:
            found = tree.read(path)
            if found is None:
                place = node_at(document, "include")
                yield Unread(f"{path}, which is included, is not among the files read", (place or document).span)
            elif path not in tree.files and path not in tree.used:
                tree.used.add(path)
                for inner in tree.stream(found).documents:
                    yield from read_compose(tree, found, inner)


@record
class _Layer:
    """One service definition and the file it stands in; extended ones lie below."""

    file: SourceFile
    node: Mapping
    variables: dict[str, Value]


@record
class _Project:
    tree: Tree
    file: SourceFile
    document: Node
    related: Together
    _variables: dict[str, dict[str, Value]] = field(default_factory=dict)

    def variables(self, file: SourceFile) -> dict[str, Value]:
        """Variables of the ``.env`` file beside a Compose file, those that commands give it, and those beside files
        that include it; else those of a script that is there to be sourced."""
        if file.path not in self._variables:
            values = dict(sourced_beside(self.tree, file.path))
            for path in (file.path, *self.related.includers.get(file.path, ())):
                found = self.tree.read(posixpath.join(posixpath.dirname(path), ".env"))
                values |= read_env_file(found) if found else {}
                values |= told_by_commands(self.tree).get(path, {})
            self._variables[file.path] = values
        return self._variables[file.path]

    def beside(self, file: SourceFile, *parts: str) -> tuple[SourceFile, str] | tuple[None, None]:
        """A file that a Compose file names, and the folder from which: its own, else one above it.

        Of several files that are put over each other, the folder of the first one counts.
        """
        folder = posixpath.dirname(file.path)
        above = not any(part.startswith(("/", "..")) for part in parts)
        while (found := self.tree.read(posixpath.join(folder, *parts))) is None and above and folder not in ("", "/"):
            folder = posixpath.dirname(folder)
        return (found, folder) if found is not None else (None, None)

    def definitions(self, name: str, paths: Iterable[str]) -> Iterator[tuple[SourceFile, Mapping, Node]]:
        """What stands for a service in other files, a mapping or not, with its file and the services around it."""
        for path in paths:
            found = services_of(self.tree, path)
            node = found[1].get(name) if found is not None else None
            if found is not None and node is not None:
                yield *found, node

    def stacked(self, name: str, paths: Iterable[str]) -> list[_Layer]:
        """The definitions of a service in other files, the nearest first."""
        return [
            layer
            for file, services, node in self.definitions(name, paths)
            if isinstance(node, Mapping)
            for layer in self.layers(file, services, node)
        ]

    def layers(self, file: SourceFile, services: Mapping, node: Mapping, depth: int = 0) -> list[_Layer]:
        """A service and what it extends, the nearest first."""
        result = [_Layer(file, node, self.variables(file))]
        extended = node.get("extends")
        name = extended.value if isinstance(extended, Scalar) else text_at(extended, "service")
        if not name or depth >= MAX_EXTENDS:
            return result
        other = text_at(extended, "file") if isinstance(extended, Mapping) else None
        if other:
            found = self.tree.read(posixpath.join(posixpath.dirname(file.path), other))
            if found is None:
                return result
            file = found
            for document in self.tree.stream(found).documents:
                candidates = node_at(document, "services")
                if isinstance(candidates, Mapping):
                    services = candidates
                    break
            else:
                return result
        base = services.get(name)
        if isinstance(base, Mapping) and base is not node:
            result += self.layers(file, services, base, depth + 1)
        return result

    def service(self, entry: Entry) -> Iterator[ServeUnit | Unread]:
        services = node_at(self.document, "services")
        assert isinstance(entry.value, Mapping)
        assert isinstance(services, Mapping)
        name, path = entry.key.value, self.file.path
        above = self.related.over.get(path, ())
        if any(_merge_tag(node) == "reset" for _, _, node in self.definitions(name, above)):
            return  # the file above takes it away
        layers = [
            *self.stacked(name, reversed(above)),
            *self.layers(self.file, services, entry.value),
            *self.stacked(name, reversed(self.related.under.get(path, ()))),
        ]
        yield from _Service(self, entry, layers).units()


@record
class _Built:
    path: str
    image: Image
    find: Find


@record
class _Service:
    project: _Project
    entry: Entry
    layers: list[_Layer]

    def written(self, *keys: str) -> Iterator[tuple[_Layer, Node]]:
        """The definitions of an attribute that hold, the nearest first: ``!reset`` and ``!override`` end them."""
        for layer in self.layers:
            node: Node | None = layer.node
            replaces = False
            for key in keys:
                node = node.get(key) if isinstance(node, Mapping) else None
                if node is None:
                    break
                tag = _merge_tag(node)
                if tag == "reset":
                    return
                replaces = replaces or tag == "override"
            if node is not None:
                yield layer, node
            if replaces:
                return

    def find(self, *keys: str) -> tuple[_Layer, Node] | None:
        """The nearest definition of an attribute."""
        return next(self.written(*keys), None)

    def value(self, *keys: str) -> Value | None:
        found = self.find(*keys)
        if not found or not isinstance(found[1], Scalar):
            return None
        return _value(found[1].text, found[0].variables)

    def words(self, key: str) -> tuple[Word, ...] | None:
        """``command`` or ``entrypoint``: None when it is not given."""
        found = self.find(key)
        if not found or is_null(found[1]):
            return None
        layer, node = found
        if isinstance(node, Scalar):
            return tuple(split_words(_value(node.text, layer.variables)))
        items = node.items if isinstance(node, Sequence) else []
        return tuple(_value(item.text, layer.variables).word() for item in items if isinstance(item, Scalar))

    def units(self) -> Iterator[ServeUnit | Unread]:
        name = self.entry.key.value
        node = self.entry.value
        environment, spans = self.environment()
        image = self.value("image")
        requests = tuple(self.devices())
        build = self.find("build")
        entrypoint, command = self.words("entrypoint"), self.words("command")
        written = image.value if image and not image.resolved else "" if image else _build_text(build)
        handed = {key: value for _, key, value, _ in self.pairs("build", "args") if value is not None}
        built = self.built(build, handed)
        told = image.word() if image else None
        if built is not None:
            # what is built here runs what its Dockerfile says; of a vLLM image it keeps the release
            command = built.image.command or () if command is None and entrypoint is None else command
            entrypoint = built.image.entrypoint if entrypoint is None else entrypoint
            environment = {**built.image.environment, **environment}
            spans = {**built.image.spans, **spans}
            told = built.image.base if told is None or is_vllm_image(built.image.base.value) else told
        elif build is not None and (told is None or not is_vllm_image(told.value)):
            # what is built of a Dockerfile that is not at hand may be told which vLLM image to begin with
            told = next((value.word() for value in handed.values() if is_vllm_image(value.value)), told)
        if entrypoint == () and command:
            entrypoint, command = command, ()  # an empty entrypoint clears the image's
        container = Container(
            command=entrypoint or None,
            arguments=command or (),
            image=told,
            environment=environment,
            span=self.entry.key.span,
            named="vllm" in f"{name} {written}".lower(),
            accelerated=any(request.count != 0 for request in requests),
            tree=self.project.tree,
            find=self.mounted if built is None else lambda path: self.mounted(path) or built.find(path),
            unbuilt=Text.at(name, self.entry.key.span)
            if build and built is None and _says_engine(name, build)
            else None,
        )
        installs = built.image.installs if built is not None else ()
        try:
            starts = find_starts(container)
        except TooLargeError as error:
            yield Unread(f"{error} is not read", node.span, serves=True)
            return
        if not starts and (reason := why_unread(container)):
            yield Unread(reason, self.entry.key.span)
        if starts and built is not None:
            self.project.tree.built.add(built.path)
        for number, start in enumerate(starts):
            yield self.unit(name, start, number, container, environment, spans, requests, installs)

    def unit(
        self,
        name: str,
        start: Start,
        number: int,
        container: Container,
        environment: dict[str, Value],
        spans: dict[str, Span],
        requests: tuple[GpuRequest, ...],
        installs: tuple[Text, ...],
    ) -> ServeUnit:
        file = self.project.file
        replicas, replicas_span, notes = self.replicas()
        words = (*(container.command or ()), *container.arguments)
        requirement = find_requirement(word.text for word in words) or find_requirement(installs)
        return ServeUnit(
            id=f"{file.path}/{name}" + (f"/{number + 1}" if number else ""),
            path=file.path,
            span=self.entry.key.span,
            kind="compose",
            name=name,
            container=None,
            namespace=None,
            words=start.words,
            positional_model=start.positional_model,
            entry=start.entry,
            image=container.image,
            environment=environment_of(environment, spans, start.environment),
            gpu_requests=requests,
            node_hints=tuple(self.hints()),
            replicas=replicas,
            replicas_span=replicas_span,
            annotations=self.annotations(),
            shared_memory=self.shared_memory(),
            node=self.entry.value,
            document=self.project.document,
            storage_model=start.storage_model,
            notes=(*start.notes, *notes),
            requirement=requirement,
        )

    def built(self, build: tuple[_Layer, Node] | None, handed: dict[str, Value]) -> _Built | None:
        """The image that a service builds from a Dockerfile of the tree, with the build arguments handed to it."""
        if build is None:
            return None
        layer, node = build
        context = node if isinstance(node, Scalar) else node_at(node, "context")
        place = interpolate(context.text, layer.variables).value if isinstance(context, Scalar) else "."
        from kvgate.manifests.dockerfile import copied, image_of, image_of_text

        inline = node_at(node, "dockerfile_inline")
        if isinstance(inline, Scalar):
            image = image_of_text(interpolate(inline.text, layer.variables).text, text_at(node, "target"), handed)
            folder = posixpath.normpath(posixpath.join(posixpath.dirname(layer.file.path), place))
            return _Built("", image, copied(self.project.tree, layer.file, image, folder)) if image else None
        name = text_at(node, "dockerfile")
        file, base = self.project.beside(layer.file, place, name or "Dockerfile")
        if file is None and name is None:  # Docker takes this spelling too
            file, base = self.project.beside(layer.file, place, "dockerfile")
        if file is None or base is None:
            return None
        folder = posixpath.normpath(posixpath.join(base, place))
        image = image_of(file, text_at(node, "target"), handed)
        if image is None:
            return None
        self.project.tree.used.add(file.path)
        return _Built(file.path, image, copied(self.project.tree, file, image, "" if folder == "." else folder))

    # -- attributes ------------------------------------------------------------------------------------------------

    def pairs(self, *keys: str) -> Iterator[tuple[_Layer, str, Value | None, Span]]:
        """Entries of a map-or-list attribute over all layers, the farthest first; value None where none is written."""
        for layer, node in reversed(list(self.written(*keys))):
            if isinstance(node, Mapping):
                for entry in node.items():
                    if isinstance(entry.value, Scalar):
                        absent = is_null(entry.value)
                        value = None if absent else interpolate(entry.value.text, layer.variables)
                        span = Span(layer.file, entry.key.span.start, max(entry.value.span.end, entry.key.span.end))
                        if entry.value.span.start < entry.key.span.start:
                            span = entry.key.span
                        yield layer, entry.key.value, value, span
            elif isinstance(node, Sequence):
                for item in node.items:
                    if isinstance(item, Scalar):
                        name, equals, rest = item.value.partition("=")
                        text = item.text.slice(len(item.value) - len(rest), len(item.value))
                        yield layer, name, interpolate(text, layer.variables) if equals else None, item.span

    def environment(self) -> tuple[dict[str, Value], dict[str, Span]]:
        values: dict[str, Value] = {}
        spans: dict[str, Span] = {}
        for layer, node in reversed(list(self.written("env_file"))):
            for path in _paths(node):
                written = interpolate(path.text, layer.variables)
                found, _ = self.project.beside(layer.file, written.value)
                for key, stated in (read_env_file(found) if found and written.resolved else {}).items():
                    values[key] = stated
                    spans[key] = path.span
        for layer, name, given, span in self.pairs("environment"):
            value = given
            if value is None:  # passed on from where Compose runs, or from .env
                known = layer.variables.get(name)
                value = known.at(span) if known else Value.unknown(Text.at(name, span), unset(name), splits=False)
            values[name] = value
            spans[name] = span
        return values, spans

    def annotations(self) -> dict[str, Text]:
        return {
            name: value.text
            for key in ("labels", "annotations")
            for _, name, value, _ in self.pairs(key)
            if name.startswith(ANNOTATION_PREFIX) and value is not None
        }

    def devices(self) -> Iterator[GpuRequest]:
        found = self.find("deploy", "resources", "reservations", "devices")
        if found:
            layer, node = found
            for item in node.items if isinstance(node, Sequence) else []:
                capabilities = node_at(item, "capabilities")
                kinds = (
                    [c.value for c in capabilities.items if isinstance(c, Scalar)]
                    if isinstance(capabilities, Sequence)
                    else []
                )
                if "gpu" in kinds or text_at(item, "driver") in ("nvidia", "amd"):
                    yield self._device(layer, item)
        found = self.find("gpus")
        if found:
            layer, node = found
            if isinstance(node, Sequence):
                for item in node.items:
                    yield self._device(layer, item)
            elif isinstance(node, Scalar):
                yield _counted(interpolate(node.text, layer.variables), node.span)
        found = self.find("deploy", "resources", "reservations", "generic_resources")
        if found and isinstance(found[1], Sequence):
            for item in found[1].items:
                if "gpu" in (text_at(item, "discrete_resource_spec", "kind") or "").lower():
                    count = scalar_int(node_at(item, "discrete_resource_spec", "value"))
                    yield GpuRequest("device", count, item.span, None if count is not None else "no number is given")
        if any(self.find(key) for key in ("gpus",)) or self.find("deploy", "resources", "reservations", "devices"):
            return
        yield from self._raw_devices()

    def _raw_devices(self) -> Iterator[GpuRequest]:
        found = self.find("devices")
        if found and isinstance(found[1], Sequence):
            for item in found[1].items:
                if isinstance(item, Scalar) and item.value.startswith(("/dev/kfd", "/dev/dri", "nvidia.com/gpu=")):
                    yield GpuRequest("device", None, item.span, "which devices it gets is not counted")
                    return
        runtime = self.find("runtime")
        if runtime and isinstance(runtime[1], Scalar) and runtime[1].value == "nvidia":
            yield GpuRequest("device", None, runtime[1].span, "the nvidia runtime gives it what the machine has")

    def _device(self, layer: _Layer, item: Node) -> GpuRequest:
        ids = node_at(item, "device_ids")
        if isinstance(ids, Sequence):
            values = [interpolate(i.text, layer.variables) for i in ids.items if isinstance(i, Scalar)]
            unknown = next((value.holes[0].unresolved for value in values if not value.resolved), None)
            if unknown:
                return GpuRequest("device", None, item.span, unknown.reason)
            names = [name for value in values for name in value.value.split(",") if name.strip()]
            if "all" in names:
                return GpuRequest("device", None, item.span, "it gets all GPUs of the machine")
            return GpuRequest("device", len(names), item.span)
        count = node_at(item, "count")
        if isinstance(count, Scalar):
            return _counted(interpolate(count.text, layer.variables), item.span)
        return GpuRequest("device", None, item.span, "it gets all GPUs of the machine")

    def hints(self) -> Iterator[NodeHint]:
        found = self.find("deploy", "placement", "constraints")
        if found and isinstance(found[1], Sequence):
            for item in found[1].items:
                match = (
                    re.fullmatch(r"\s*node\.labels\.([\w./-]+)\s*==\s*(\S+)\s*", item.value)
                    if isinstance(item, Scalar)
                    else None
                )
                if match:
                    yield NodeHint(match.group(1), (match.group(2),), item.span)

    def replicas(self) -> tuple[int | None, Span | None, tuple[Unresolved, ...]]:
        for keys in (("deploy", "replicas"), ("scale",)):
            found = self.find(*keys)
            if found and isinstance(found[1], Scalar):
                value = interpolate(found[1].text, found[0].variables)
                if value.resolved and re.fullmatch(r"[0-9]{1,9}", value.value):
                    return int(value.value), found[1].span, ()
                reason = "the number of replicas is not stated as a number"
                return None, found[1].span, (Unresolved(value.value, reason),)
        return None, None, ()

    def shared_memory(self) -> SharedMemory | None:
        found = self.find("ipc")
        if found and isinstance(found[1], Scalar) and found[1].value == "host":
            return SharedMemory(None, "ipc: host", found[1].span)
        found = self.find("shm_size")
        if found and isinstance(found[1], Scalar):
            value = interpolate(found[1].text, found[0].variables)
            return SharedMemory(size_bytes(value.value) if value.resolved else None, "shm_size", found[1].span)
        return None

    def mounted(self, path: str) -> Value | None:
        """Text of a file of the tree that a bind mount or a config puts at a path inside the container."""
        folder = self.value("working_dir")
        if folder is not None and folder.resolved:
            path = posixpath.normpath(posixpath.join(folder.value, path))
        configured = self._configured(path)
        if configured is not None:
            return configured
        for layer, node in self.written("volumes"):
            for item in node.items if isinstance(node, Sequence) else ():
                file = self._behind(layer, item, path)
                if file is not None:
                    self.project.tree.used.add(file.path)
                    return Value(Text.of_span(Span(file, 0, len(file.text))))
        return None

    def _behind(self, layer: _Layer, item: Node, path: str) -> SourceFile | None:
        """The file of the tree that one bind mount puts at a path."""
        if isinstance(item, Scalar):
            source, _, rest = interpolate(item.text, layer.variables).value.partition(":")
            target = rest.partition(":")[0]
        else:
            source, target = text_at(item, "source") or "", text_at(item, "target") or ""
        below = _below(path, target.rstrip("/")) if target and source.startswith((".", "/")) else None
        if below is None:
            return None
        return self.project.beside(layer.file, posixpath.join(source, below).rstrip("/"))[0]

    def _configured(self, path: str) -> Value | None:
        """Text of a ``configs`` entry that stands at a path inside the container."""
        found = self.find("configs")
        for item in found[1].items if found and isinstance(found[1], Sequence) else ():
            name = item.value if isinstance(item, Scalar) else text_at(item, "source") or ""
            if path != (text_at(item, "target") or f"/{name}"):
                continue
            content = node_at(self.project.document, "configs", name, "content")
            if isinstance(content, Scalar):
                return _value(content.text, self.project.variables(self.project.file))
            place = text_at(self.project.document, "configs", name, "file")
            file = self.project.tree.use(posixpath.join(posixpath.dirname(self.project.file.path), place or ""))
            if place and file is not None:
                return Value(Text.of_span(Span(file, 0, len(file.text))))
        return None


def _below(path: str, target: str) -> str | None:
    """What of a path lies below a mount's target ("" for the target itself); None where it is somewhere else.

    A relative path counts from a folder that the image knows: it is what the mount's target ends with.
    """
    if path == target or (not path.startswith("/") and target.endswith("/" + path)):
        return ""
    if path.startswith(target + "/"):
        return path[len(target) + 1 :]
    head, _, rest = path.partition("/")
    return rest if head and rest and target.endswith("/" + head) else None


_MERGE_TAG: Final = regex(r"!(reset|override)\b[ \t]*(?:#[^\n]*)?\s*\Z")


def _merge_tag(node: Node) -> str | None:
    """The tag by which an attribute of one file is not merged with that of the files below it (Compose 2.24)."""
    text, start = node.span.file.text, node.span.start
    if "!" not in text:
        return None
    # a tag without a value is all that its scalar spans
    end = node.span.end if text.startswith("!", start) else start
    match = _MERGE_TAG.search(text, max(0, end - 200), end)
    return match.group(1) if match else None


def _value(text: Text, variables: dict[str, Value]) -> Value:
    """A scalar as Compose reads it; what another program fills in before stays a hole."""
    if "{{" in text.value:
        return interpolate(mark_placeholders(Value(text), variables=False), variables)
    return interpolate(text, variables)


def _build_text(build: tuple[_Layer, Node] | None) -> str:
    if build is None:
        return ""
    node = build[1]
    if isinstance(node, Scalar):
        return node.value
    return " ".join(text_at(node, key) or "" for key in ("context", "dockerfile", "target"))


def _says_engine(name: str, build: tuple[_Layer, Node]) -> bool:
    """Whether a service, or what it is built of, is called after vLLM."""
    names = (name, *(posixpath.basename(part.rstrip("/")) for part in _build_text(build).split()))
    return any(map(says_engine, names)) and not any(map(is_companion, names))


def _paths(node: Node | None) -> Iterator[Scalar]:
    for item in node.items if isinstance(node, Sequence) else [node]:
        if isinstance(item, Scalar):
            yield item
        elif isinstance(item, Mapping) and isinstance(path := item.get("path"), Scalar):
            yield path


def _counted(value: Value, span: Span) -> GpuRequest:
    if not value.resolved:
        return GpuRequest("device", None, span, value.holes[0].unresolved.reason)
    if re.fullmatch(r"[0-9]{1,6}", value.value):
        return GpuRequest("device", int(value.value), span)
    if value.value in ("all", "-1"):
        return GpuRequest("device", None, span, "it gets all GPUs of the machine")
    return GpuRequest("device", None, span, f'"{value.value}" is no number of GPUs')
