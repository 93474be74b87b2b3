"""Kinds without a pod in them, whose controllers make vLLM's command line from fields of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kvgate.manifests.container import Argument
from kvgate.manifests.controlled import Controlled
from kvgate.manifests.custom import NOT_DEPLOYED
from kvgate.manifests.entrypoint import VLLM_FLAGS, is_vllm_image, says_engine
from kvgate.manifests.flags import words_of_entries
from kvgate.manifests.helm.charts import Chart, Path, flag_of_key
from kvgate.manifests.helm.values import Release, read_object, read_values
from kvgate.manifests.peers import peers_of
from kvgate.manifests.tree import Tree, entries_at, expand_list, items_at, node_at, scalar_at, text_at
from kvgate.manifests.unit import ServeUnit, Unread
from kvgate.patterns import regex
from kvgate.shell.expand import mark_placeholders
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Unresolved, Word
from kvgate.source.yaml_tree import Node, Scalar, parse_embedded, scalar_int

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
    # https://github.com/llm-d-incubation/llm-d-fast-model-actuation: a launcher starts vLLM with these on request
    "InferenceServerConfig": (
        "fma.llm-d.ai/",
        Chart(
            name="llm-d fast model actuation",
            sites=(("spec", "modelServerConfig"),),
            needs=(("options",),),
            flags=((("port",), "port"),),
            words=(("options",),),
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
    return (row is not None and version.startswith(row[0])) or (kind in _KAITO and version.startswith("kaito.sh/"))


def read_controlled(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The serve units of the objects of these kinds in a document."""
    for item in expand_list(document):
        if not is_controlled(item):
            continue
        kind = text_at(item, "kind") or ""
        if kind in _KAITO:
            yield from _of_kaito(tree, file, item)
            continue
        name = text_at(item, "metadata", "name") or ""
        release = Release(kind, text_at(item, "metadata", "namespace"), name, item)
        yield from read_object(tree, file, item, CONTROLLERS[kind][1], release)


# Kinds by the ends of their names that ask for, judge, make or measure models and serve none.
_ABOUT_MODELS: Final = regex(
    r"\w*(?:Approval|Benchmark|Binding|Cache|Eval|Evaluation|Experiment|Job|Policy|Promotion|Registration|Report"
    r"|Request|Result|Route|Test)s?"
)


def read_unknown(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The serve units of objects whose kind stands in no table: what speaks of vLLM in them as values of charts do."""
    if "vllm" not in file.text.lower():
        return
    for item in expand_list(document):
        kind, spec = text_at(item, "kind") or "", node_at(item, "spec")
        if _ABOUT_MODELS.fullmatch(kind):
            continue
        if kind in NOT_DEPLOYED or "." not in (text_at(item, "apiVersion") or "") or spec is None:
            continue
        name = text_at(item, "metadata", "name") or ""
        release = Release(kind, text_at(item, "metadata", "namespace"), name, item)
        by_name = [unit for chart in _of_engine(kind, spec) for unit in read_object(tree, file, item, chart, release)]
        by_shape = list(read_values(tree, file, spec, release))
        for found in max(by_name, by_shape, key=_words_in):
            yield _with_image(spec, found)


def _with_image(spec: Node, found: ServeUnit | Unread) -> ServeUnit | Unread:
    """A server that is told of no image, with that of vLLM's container beside what tells it."""
    if isinstance(found, ServeUnit) and found.image is None:
        images = (scalar_at(node, "image") for node in items_at(spec, "containers"))
        image = next((image for image in images if image is not None and is_vllm_image(image.value)), None)
        return replace(found, image=mark_placeholders(Value(image.text)).word()) if image is not None else found
    return found


def _words_in(found: list[ServeUnit | Unread]) -> int:
    return sum(len(unit.words) for unit in found if isinstance(unit, ServeUnit))


# Where an object says which engine serves, alone or as the type of a mapping with what the engine is told.
_ENGINES: Final = ("engine", "backend", "runtime", "framework", "inferenceEngine", "servingEngine")
_ENGINE_NAMES: Final[tuple[Path, ...]] = (
    *((key, inner) for key in _ENGINES for inner in ("type", "name")), *((key,) for key in _ENGINES),
)  # fmt: skip
_MODELS: Final[tuple[Path, ...]] = (
    ("model", "id"), ("model", "name"), ("model", "uri"), ("model",), ("modelId",), ("modelName",), ("modelURI",),
)  # fmt: skip
# What a server has that a route to one, or the settings of its client, have not.
_OF_SERVERS: Final = frozenset({"replicas", "resources", "scaling"})
_URL: Final = regex(r"https?://")
# What an engine is told under other names than vLLM's, and what other programs are told under the same.
_TOLD: Final = {
    "context-length": "max-model-len",
    **{flag: flag for flag in (*VLLM_FLAGS, "dtype", "quantization", "trust-remote-code")},
}


def _of_engine(kind: str, spec: Node) -> Iterator[Chart]:
    """The servers of an object that says of its engine little more than that it is vLLM, by a key or by its kind."""
    named = next((path for path in _ENGINE_NAMES if (text_at(spec, *path) or "").lower() == "vllm"), None)
    models = [path for path in _MODELS if text_at(spec, *path)]
    own = {entry.key.value: entry.value for entry in entries_at(spec)}
    asks = any(isinstance(value, Scalar) and _URL.match(value.value) for value in own.values())
    if (named is None and not says_engine(kind)) or not models or asks or _OF_SERVERS.isdisjoint(own):
        return
    engine: Path = named[:1] if named is not None else ("vllm",) if entries_at(spec, "vllm") else ()
    flags: list[tuple[Path, str]] = [(("model", "servedName"), "served-model-name")]
    flags += [
        ((*engine, entry.key.value), _TOLD[flag])
        for entry in entries_at(spec, *engine)
        if (flag := flag_of_key(entry.key.value)) in _TOLD
    ]
    roles = [role for role in ("prefill", "decode") if entries_at(spec, "scaling", role)]
    for role in roles or [""]:
        up: Path = ("..", "..") if role else ()
        yield Chart(
            name="the controller's configuration",
            sites=(("spec", "scaling", role) if role else ("spec",),),
            needs=(),
            model=tuple((*up, *path) for path in models),
            flags=tuple(((*up, *path), flag) for path, flag in flags),
            entries=((*up, *engine, "args"),),
            words=((*up, *engine, "extraArgs"),),
            image=(((*up, *engine, "image"),), ((*up, "image"),)),
            replicas=(("replicas",), (*up, "scaling", "replicas")),
            gpus=(("gpu", "count"),) if role else (("resources", "gpu", "count"),),
            strip=("hf://",),
        )


# Kinds of KAITO that serve presets: where what a Workspace holds is, and where replicas are counted.
_KAITO: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "Workspace": ((), ()),
    "InferenceSet": (("spec", "template"), ("spec", "replicas")),
    "MultiRoleInference": (("spec",), ()),
}


def _of_kaito(tree: Tree, file: SourceFile, item: Node) -> Iterator[ServeUnit]:
    """A Workspace of KAITO, or what makes several: a preset, and vLLM's arguments in a ConfigMap."""
    kind = text_at(item, "kind") or ""
    place, counted = _KAITO[kind]
    holder = node_at(item, *place)
    if not place and node_at(item, "inference") is None:
        holder = node_at(item, "spec")  # where a Workspace has none, but everything else
    preset = scalar_at(holder, "inference", "preset", "name") or scalar_at(holder, "model", "name")
    if holder is None or preset is None or not preset.value:
        return
    if text_at(item, "metadata", "annotations", "kaito.sh/runtime") == "transformers":
        return
    namespace = text_at(item, "metadata", "namespace")
    words, notes = _of_preset(tree, file, holder, preset, namespace)
    whole = Controlled(
        kind=kind,
        namespace=namespace,
        name=text_at(item, "metadata", "name") or "",
        words=words,
        span=_first(holder, "inference") or preset.span,
        node=item,
        document=item,
        notes=notes,
    )
    roles = items_at(holder, "roles") if kind == "MultiRoleInference" else [holder]
    for role in roles:
        resource = node_at(role, "resource") or role
        machine = scalar_at(resource, "instanceType") or scalar_at(resource, "preferredNodes")
        stated = node_at(item, *counted) if counted else node_at(role, "replicas")
        # the nodes of a Workspace are counted, and are one server
        count = (
            scalar_int(stated) if stated is not None else None if scalar_int(node_at(resource, "count")) is None else 1
        )
        yield replace(
            whole,
            role=text_at(role, "type") or "",
            machine=("node.kubernetes.io/instance-type", machine),
            replicas=count,
            replicas_span=stated.span if stated is not None and count is not None else None,
        ).unit(file)


def _of_preset(
    tree: Tree, file: SourceFile, holder: Node, preset: Scalar, namespace: str | None
) -> tuple[list[Word], tuple[Unresolved, ...]]:
    words = [*Argument("--model", preset).words()]
    config = scalar_at(holder, "inference", "config")
    if config is None or not config.value:
        return words, ()
    found = peers_of(tree).config_map(config.value, namespace, file.path)
    text = found.data.get("inference_config.yaml") if found is not None else None
    documents = parse_embedded(text.text).documents if text is not None else []
    if not documents:
        return words, (Unresolved(config.value, "this ConfigMap is not among the files read"),)
    return [*words, *words_of_entries(entries_at(documents[0], "vllm"))], ()


def _first(item: Node, key: str) -> Span | None:
    for entry in entries_at(item):
        if entry.key.value == key:
            return entry.key.span
    return None
