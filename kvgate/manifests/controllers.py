"""Kinds without a pod in them, whose controllers make vLLM's command line from fields of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvgate.manifests.custom import NOT_DEPLOYED
from kvgate.manifests.flags import words_of_entries
from kvgate.manifests.helm.charts import Chart
from kvgate.manifests.helm.values import Release, read_object, read_values
from kvgate.manifests.launch import Start, environment_of
from kvgate.manifests.tree import Tree, entries_at, expand_list, node_at, scalar_at, text_at
from kvgate.manifests.unit import NodeHint, ServeUnit, Unread
from kvgate.shell.expand import mark_placeholders
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Text, Unresolved, Word
from kvgate.source.yaml_tree import Node, parse_embedded, scalar_int

# Kind and the beginning of its group -> how its controller starts vLLM.
CONTROLLERS: Final[dict[str, tuple[str, Chart]]] = {
    # https://www.kubeai.org/reference/kubernetes-api/
    "Model": (
        "kubeai.org/",
        Chart(
            name="KubeAI",
            sites=(("spec",),),
            needs=(("url",),),
            equals=((("engine",), "vllm"),),
            model=(("url",),),
            words=(("args",),),
            image=((("image",),),),
            replicas=(("replicas",), ("minReplicas",)),
            gpus=(("resourceProfile",),),
            strip=("hf://",),
        ),
    ),
    # https://llmaz.inftyai.com, each recommended configuration is a server of its own
    "BackendRuntime": (
        "inference.llmaz.io/",
        Chart(
            name="llmaz",
            sites=(("spec", "recommendedConfigs", "[]"),),
            needs=(("args",),),
            words=(("args",),),
            commands=(("..", "command"),),
            image=((("..", "image"), ("..", "version")),),
        ),
    ),
    # https://kthena.volcano.sh
    "ModelBooster": (
        "workload.",
        Chart(
            name="kthena",
            sites=(("spec", "backends", "[]", "workers", "[]"), ("spec", "backend", "workers", "[]")),
            needs=(("config",), ("image",)),
            equals=((("..", "type"), "vllm"),),
            model=(("..", "modelURI"),),
            entries=(("config",),),
            image=((("image",),),),
            replicas=(("..", "minReplicas"), ("replicas",)),
            strip=("hf://",),
        ),
    ),
    # the operator of vLLM's production stack
    "VLLMRuntime": (
        "production-stack.vllm.ai/",
        Chart(
            name="vllm production-stack operator",
            sites=(("spec",),),
            needs=(("model", "modelURL"),),
            model=(("model", "modelURL"),),
            flags=(
                (("vllmConfig", "port"), "port"),
                (("model", "enableLoRA"), "enable-lora"),
                (("model", "enableTool"), "enable-auto-tool-choice"),
                (("model", "toolCallParser"), "tool-call-parser"),
                (("model", "maxModelLen"), "max-model-len"),
                (("model", "dtype"), "dtype"),
                (("vllmConfig", "tensorParallelSize"), "tensor-parallel-size"),
                (("model", "maxNumSeqs"), "max-num-seqs"),
                (("vllmConfig", "gpuMemoryUtilization"), "gpu-memory-utilization"),
                (("vllmConfig", "maxLoras"), "max-loras"),
            ),
            negated=(
                (("vllmConfig", "enableChunkedPrefill"), "enable-chunked-prefill"),
                (("vllmConfig", "enablePrefixCaching"), "enable-prefix-caching"),
            ),
            absent=frozenset({"enable-chunked-prefill", "enable-prefix-caching"}),
            words=(("vllmConfig", "extraArgs"),),
            image=((("deploymentConfig", "image", "name"),),),
            replicas=(("deploymentConfig", "replicas"),),
            gpus=(("deploymentConfig", "resources", "gpu"),),
        ),
    ),
}


def is_controlled(item: Node) -> bool:
    """Whether an object is of one of these kinds."""
    kind = text_at(item, "kind")
    row = CONTROLLERS.get(kind or "")
    version = text_at(item, "apiVersion") or ""
    return (row is not None and version.startswith(row[0])) or (kind == "Workspace" and version.startswith("kaito.sh/"))


def read_controlled(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The serve units of the objects of these kinds in a document."""
    for item in expand_list(document):
        if not is_controlled(item):
            continue
        kind = text_at(item, "kind") or ""
        if kind == "Workspace":
            yield from _workspace(tree, file, item)
            continue
        name = text_at(item, "metadata", "name") or ""
        release = Release(kind, text_at(item, "metadata", "namespace"), name, item)
        yield from read_object(tree, file, item, CONTROLLERS[kind][1], release)


def read_unknown(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The serve units of objects whose kind stands in no table: what speaks of vLLM in them as values of charts do."""
    for item in expand_list(document):
        kind, spec = text_at(item, "kind") or "", node_at(item, "spec")
        if kind not in NOT_DEPLOYED and "." in (text_at(item, "apiVersion") or "") and spec is not None:
            name = text_at(item, "metadata", "name") or ""
            yield from read_values(tree, file, spec, Release(kind, text_at(item, "metadata", "namespace"), name, item))


def _workspace(tree: Tree, file: SourceFile, item: Node) -> Iterator[ServeUnit]:
    """A Workspace of KAITO: a preset, and vLLM's arguments in a ConfigMap's `inference_config.yaml`."""
    preset = scalar_at(item, "inference", "preset", "name")
    if preset is None or not preset.value:
        return
    if text_at(item, "metadata", "annotations", "kaito.sh/runtime") == "transformers":
        return
    namespace = text_at(item, "metadata", "namespace")
    words = [Word(Text.at("--model", preset.span)), mark_placeholders(Value(preset.text)).word()]
    notes: tuple[Unresolved, ...] = ()
    config = scalar_at(item, "inference", "config")
    if config is not None and config.value:
        found = tree.config_map(config.value, namespace, file.path)
        text = found.data.get("inference_config.yaml") if found is not None else None
        documents = parse_embedded(text.text).documents if text is not None else []
        if documents:
            words += words_of_entries(entries_at(documents[0], "vllm"))
        else:
            notes = (Unresolved(config.value, "this ConfigMap is not among the files read"),)
    machine = scalar_at(item, "resource", "instanceType") or scalar_at(item, "resource", "preferredNodes")
    hints = (NodeHint("node.kubernetes.io/instance-type", (machine.value,), machine.span),) if machine else ()
    count = node_at(item, "resource", "count")
    name = text_at(item, "metadata", "name") or ""
    start = Start(tuple(words), "the controller's configuration", False, (), preset.span, notes=notes)
    yield ServeUnit(
        id="/".join(["Workspace", namespace or "default", name]),
        path=file.path,
        span=_first(item, "inference") or preset.span,
        kind="Workspace",
        name=name,
        container=None,
        namespace=namespace,
        words=start.words,
        positional_model=False,
        entry=start.entry,
        image=None,
        environment=environment_of({}, {}),
        gpu_requests=(),
        node_hints=hints,
        replicas=None if scalar_int(count) is None else 1,
        annotations={},
        shared_memory=None,
        node=item,
        document=item,
        notes=start.notes,
    )


def _first(item: Node, key: str) -> Span | None:
    for entry in entries_at(item):
        if entry.key.value == key:
            return entry.key.span
    return None
