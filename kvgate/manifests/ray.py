"""Ray: applications of Ray Serve, the clusters they run on, and jobs."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from kvgate.manifests.container import Start, environment_of, find_requirement
from kvgate.manifests.custom import cluster_devices, first_pod
from kvgate.manifests.entrypoint import VLLM_FLAGS, is_other_engine, is_vllm_image, says_engine
from kvgate.manifests.flags import words_of_entries
from kvgate.manifests.kubernetes import Environment, Pod, kvgate_annotations
from kvgate.manifests.launch import ARGUMENT_VARIABLES, MODEL_VARIABLES, starts_of_script, variable_words
from kvgate.manifests.ray_models import (
    devices_of_ranks,
    engine_arguments,
    find_models,
    parallel_sizes,
    ranks_of_model,
    served_name,
    serves_with_vllm,
    words_of_model,
)
from kvgate.manifests.shapes import is_serve_config, ray_models
from kvgate.manifests.tree import Tree, entries_at, expand_list, items_at, node_at, scalar_at, text_at
from kvgate.manifests.unit import GpuRequest, NodeHint, ServeUnit, SharedMemory, Unread
from kvgate.shell.expand import mark_placeholders
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, TooLargeError, Unresolved, Word
from kvgate.source.yaml_tree import Mapping, Node, Scalar, parse_embedded, scalar_int

# Arguments of an application's builder that are vLLM's own.
_ARGUMENTS: Final = VLLM_FLAGS | frozenset(ARGUMENT_VARIABLES.values()) | {"model", "tokenizer", "trust-remote-code"}

# The kinds of configuration files, which are no objects of Kubernetes.
_SERVE: Final = "ray-serve"
_MODEL: Final = "ray-model"


def read_ray(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The serve units of RayServices, RayJobs and Ray Serve's own configuration files."""
    if is_serve_config(document):
        cluster = _Cluster(tree, file, document, None)
        for model in ray_models(document):
            yield from cluster.model(model)
        yield from cluster.applications(document)
        return
    for item in expand_list(document):
        kind = text_at(item, "kind")
        if kind == "RayService":
            config = scalar_at(item, "spec", "serveConfigV2")
            cluster = _Cluster(tree, file, item, node_at(item, "spec", "rayClusterConfig"))
            for inner in parse_embedded(config.text).documents if config is not None else ():
                yield from cluster.applications(inner)
        elif kind == "RayJob":
            yield from _Cluster(tree, file, item, node_at(item, "spec", "rayClusterSpec")).job()


class _Cluster:
    """An object of Ray with the cluster it runs on."""

    def __init__(self, tree: Tree, file: SourceFile, item: Node, cluster: Node | None) -> None:
        self.tree = tree
        self.file = file
        self.item = item
        self.kind = text_at(item, "kind") or (_MODEL if ray_models(item) else _SERVE)
        self.name = text_at(item, "metadata", "name") or ""
        self.namespace = text_at(item, "metadata", "namespace")
        self.devices = cluster_devices(cluster) if isinstance(cluster, Mapping) else ()
        self.pod = self._pod(cluster)
        self.image = self._image()

    def _pod(self, cluster: Node | None) -> Pod | None:
        """The pod on which the engine runs: the first with accelerators, else the head."""
        candidates = [*items_at(cluster, "workerGroupSpecs"), node_at(cluster, "headGroupSpec")]
        found = [(candidate, first_pod(candidate)) for candidate in candidates if candidate is not None]
        chosen = next((pair for pair in found if pair[1] and pair[1][2]), found[-1] if found else None)
        if chosen is None or chosen[1] is None:
            return None
        spec, containers, _ = chosen[1]
        template = node_at(chosen[0], "template") or chosen[0]
        return Pod(
            self.tree,
            self.file,
            self.item,
            template,
            spec,
            self.kind,
            self.name,
            self.namespace,
            None,
            True,
            containers,
        )

    def _image(self) -> Word | None:
        container = self.pod.containers[0] if self.pod and self.pod.containers else None
        image = scalar_at(container, "image")
        return mark_placeholders(Value(image.text)).word() if image and image.value else None

    # -- applications ----------------------------------------------------------------------------------------------

    def applications(self, config: Node) -> Iterator[ServeUnit | Unread]:
        for application in items_at(config, "applications"):
            name = text_at(application, "name") or ""
            path = scalar_at(application, "import_path")
            if path is not None and is_other_engine(path.value.replace(":", "/")):
                continue
            models = False
            for part, model in find_models(node_at(application, "args")):
                models = True
                if isinstance(model, Mapping):
                    yield from self.model(model, name, part)
                else:
                    yield from self._model_file(name, model)
            if not models:
                yield from self._own_code(name, application)

    def _model_file(self, application: str, path: Scalar) -> Iterator[ServeUnit | Unread]:
        name = path.value.removeprefix("./")
        folder = posixpath.dirname(self.file.path)
        found = next((file for base in (folder, "") if (file := self.tree.use(posixpath.join(base, name)))), None)
        if found is None:
            yield Unread(f"{name}, a model of Ray Serve's, is not among the files read", path.span, serves=True)
            return
        for document in self.tree.stream(found).documents:
            if isinstance(document, Mapping):
                yield from self.model(document, application, span=path.span)

    def model(
        self, model: Node, application: str = "", part: str = "", span: Span | None = None
    ) -> Iterator[ServeUnit]:
        """The server of one model.

        Args:
            span: where it is named, if the model stands in another file.
        """
        if not isinstance(model, Mapping) or not serves_with_vllm(model):
            return
        served = served_name(model)
        replicas, replicas_span = _replicas(node_at(model, "deployment_config"))
        kind = scalar_at(model, "accelerator_type")
        hints = (NodeHint("accelerator_type", (kind.value,), kind.span),) if kind is not None else ()
        yield self._unit(
            [application, part, served.value if served is not None else ""],
            Start(words_of_model(model), "ray.serve.llm", False, (), span or model.span),
            _environment(node_at(model, "runtime_env")),
            ranks_of_model(model, self.devices) or self._share(replicas),
            (*hints, *self._hints()),
            replicas,
            replicas_span,
            items_at(model, "runtime_env", "pip"),
        )

    def _share(self, replicas: int | None) -> tuple[GpuRequest, ...]:
        """The share of one replica in the devices of the cluster."""
        if len(self.devices) == 1 and self.devices[0].count is not None and replicas:
            (whole,) = self.devices
            if whole.count is not None and whole.count % replicas == 0:
                return (GpuRequest(whole.resource, whole.count // replicas, whole.span),)
        return self.devices

    def _own_code(self, name: str, application: Node) -> Iterator[ServeUnit]:
        """An application of somebody's own that runs vLLM, with a model of its environment, arguments or code."""
        environment = _environment(node_at(application, "runtime_env"))
        packages = items_at(application, "runtime_env", "pip")
        variable = next((environment[0][key] for key in MODEL_VARIABLES if key in environment[0]), None)
        given = [entry for entry in entries_at(application, "args") if entry.key.value.replace("_", "-") in _ARGUMENTS]
        path = scalar_at(application, "import_path")
        if path is None:
            return
        deployments = items_at(application, "deployments")
        replicas, span = _replicas(deployments[0]) if len(deployments) == 1 else (None, None)
        configured = [(node_at(application, "args"), application)] if not given else []
        configured += [(node_at(deployment, "user_config"), deployment) for deployment in deployments]
        engines = [(found, where) for node, where in configured if (found := engine_arguments(node)) is not None]
        start = self._written(path, environment[0])
        if start is not None:
            # a program that hands on what it is configured with
            given = engines[0][0].items() if len(engines) == 1 and not given else given
            start = replace(start, words=(*start.words, *words_of_entries(given)), span=application.span)
            yield self._unit([name], start, environment, self.devices, self._hints(), replicas, span, packages)
            return
        unknown = Unresolved(path.value, "what the application hands to the engine is not in the files read")
        told, notes = variable_words(environment[0])
        lead = Word(path.text, (unknown,), splits=True)
        for arguments, where in engines:
            words = (lead, *told, *words_of_entries(arguments.items()))
            model = variable.word() if variable is not None and arguments.get("model") is None else None
            start = Start(words, path.value, False, (), where.span, model, notes)
            devices = devices_of_ranks(parallel_sizes(arguments), self.devices) or self.devices
            alone = len(engines) == 1 or where is application
            names = [name, "" if alone else text_at(where, "name") or ""]
            count = (replicas, span) if where is application else _replicas(where)
            yield self._unit(names, start, environment, devices, self._hints(), *count, packages)
        if engines:
            return
        if variable is None and not any(entry.key.value == "model" for entry in given):
            # it names no model: one that installs vLLM serves with it, and one that is called after it and told of
            # it, or runs on an image that is called so too
            installs = find_requirement(item.text for item in packages if isinstance(item, Scalar)) is not None
            runs = any(key.startswith("VLLM_") for key in environment[0])
            runs = runs or (self.image is not None and is_vllm_image(self.image.value))
            if not installs and not (runs and says_engine(self.name) and self.devices):
                return
        elif "vllm" not in application.span.text.lower() and not (self.image and says_engine(self.image.value)):
            return
        words = (lead, *told, *words_of_entries(given))
        model = variable.word() if variable is not None else None
        start = Start(words, path.value, False, (), application.span, model, notes)
        yield self._unit([name], start, environment, self.devices, self._hints(), replicas, span, packages)

    def _written(self, path: Scalar, variables: dict[str, Value]) -> Start | None:
        """The one server that an application's program starts, where a ConfigMap beside it or the tree has that."""
        module = path.value.partition(":")[0].replace(".", "/") + ".py"
        program = self._carried(posixpath.basename(module))
        for folder in (posixpath.dirname(self.file.path), "") if program is None else ():
            program = program or self.tree.read(posixpath.join(folder, module))
        if program is None:
            return None
        from kvgate.manifests.python_code import starts_of_python

        around = Environment(self.tree, self.file, self.namespace)
        if self.pod and self.pod.containers:
            around.read(self.pod.containers[0])
        starts = starts_of_python(self.tree, program, {**around.values, **variables})
        return starts[0] if len(starts) == 1 else None

    def _carried(self, name: str) -> SourceFile | None:
        """The program of that name that a ConfigMap carries, of this file or another one."""
        for file in (self.file, *self.tree.files.values()):
            if f"{name}:" not in file.text or "ConfigMap" not in file.text:
                continue
            for item in (each for document in self.tree.stream(file).documents for each in expand_list(document)):
                for entry in entries_at(item, "data") if text_at(item, "kind") == "ConfigMap" else ():
                    if entry.key.value == name and isinstance(entry.value, Scalar):
                        from kvgate.manifests.embedded import program_of

                        return program_of(file, entry.key.span, entry.value.span)
        return None

    # -- jobs ------------------------------------------------------------------------------------------------------

    def job(self) -> Iterator[ServeUnit | Unread]:
        entry = scalar_at(self.item, "spec", "entrypoint")
        if entry is None:
            return
        runtime = scalar_at(self.item, "spec", "runtimeEnvYAML")
        documents = parse_embedded(runtime.text).documents if runtime is not None else []
        environment = _environment(documents[0] if documents else None)
        try:
            starts = starts_of_script(mark_placeholders(Value(entry.text)), environment[0])
        except TooLargeError as error:
            yield Unread(f"{error} is not read", entry.span, serves=True)
            return
        for number, start in enumerate(starts):
            names = ["entrypoint", str(number + 1) if number else ""]
            yield self._unit(names, start, environment, self.devices, self._hints(), None, None)

    # -- units -----------------------------------------------------------------------------------------------------

    def _hints(self) -> tuple[NodeHint, ...]:
        return tuple(self.pod.node_hints()) if self.pod else ()

    def _shared_memory(self) -> SharedMemory | None:
        return self.pod.shared_memory(self.pod.containers[0]) if self.pod and self.pod.containers else None

    def _unit(
        self,
        names: list[str],
        start: Start,
        environment: tuple[dict[str, Value], dict[str, Span]],
        devices: tuple[GpuRequest, ...],
        hints: tuple[NodeHint, ...],
        replicas: int | None,
        replicas_span: Span | None,
        packages: Sequence[Node] = (),
    ) -> ServeUnit:
        of_kind = self.kind not in (_SERVE, _MODEL)
        around = Environment(self.tree, self.file, self.namespace)
        if self.pod and self.pod.containers:
            around.read(self.pod.containers[0])
        head = [self.kind, self.namespace or "default", self.name] if of_kind else [self.file.path]
        return ServeUnit(
            id="/".join([*head, *(name for name in names if name)]),
            path=self.file.path,
            span=start.span,
            kind=self.kind,
            name=self.name or next((name for name in names if name), ""),
            container=None,
            namespace=self.namespace,
            words=start.words,
            positional_model=start.positional_model,
            entry=start.entry,
            image=self.image,
            environment=environment_of(
                {**around.values, **environment[0]}, {**around.spans, **environment[1]}, start.environment
            ),
            gpu_requests=devices,
            node_hints=hints,
            replicas=replicas,
            replicas_span=replicas_span,
            annotations=kvgate_annotations(self.item, self.pod.template if self.pod else self.item),
            shared_memory=self._shared_memory(),
            node=self.item,
            document=self.item,
            storage_model=start.storage_model,
            notes=start.notes,
            requirement=find_requirement(item.text for item in packages if isinstance(item, Scalar)),
        )


def _replicas(deployment: Node | None) -> tuple[int | None, Span | None]:
    for keys in (("num_replicas",), ("autoscaling_config", "min_replicas")):
        node = node_at(deployment, *keys)
        count = scalar_int(node)
        if node is not None and count is not None:
            return count, node.span
    return None, None


def _environment(runtime_env: Node | None) -> tuple[dict[str, Value], dict[str, Span]]:
    values: dict[str, Value] = {}
    spans: dict[str, Span] = {}
    for entry in entries_at(runtime_env, "env_vars"):
        if isinstance(entry.value, Scalar):
            values[entry.key.value] = mark_placeholders(Value(entry.value.text))
            spans[entry.key.value] = entry.key.span
    return values, spans
