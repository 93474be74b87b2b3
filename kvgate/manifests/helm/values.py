"""Values of Helm charts -> serve units, without the chart's templates.

Rows of :mod:`kvgate.manifests.helm.charts` come first. Other values are read by shape: a mapping that holds a vLLM
image, a command line, or several keys that are vLLM's arguments in camel case is a server; what it lacks (image,
resources, model, replicas) is looked for in the mappings around it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from typing import Any, Final

from kvgate.manifests.container import Container, Start, environment_of
from kvgate.manifests.entrypoint import (
    VLLM_FLAGS,
    find_entry,
    flag_name,
    is_other_program,
    is_vllm_image,
    names_model,
)
from kvgate.manifests.flags import word_of_node, words_of_entries
from kvgate.manifests.formats import is_template_name
from kvgate.manifests.helm.charts import CHARTS, Chart, Path, flag_of_key
from kvgate.manifests.kubernetes import accelerator_requests, hints_of_terms
from kvgate.manifests.launch import MODEL_VARIABLES, find_starts, starts_of_script, variable_words
from kvgate.manifests.quantities import quantity_bytes
from kvgate.manifests.tree import Tree, entries_at, items_at, node_at, scalar_at, text_at
from kvgate.manifests.unit import TEMPLATE_ENTRY, GpuRequest, NodeHint, ServeUnit, SharedMemory, Unread
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.shell.expand import interpolate, mark_placeholders
from kvgate.shell.value import Value, value_of_word
from kvgate.shell.words import split_words
from kvgate.source.text import SourceFile, Span, Text, TooLargeError, Unresolved, Word
from kvgate.source.yaml_tree import (
    Entry,
    Mapping,
    Node,
    Scalar,
    is_null,
    scalar_bool,
    scalar_int,
)
from kvgate.source.yaml_tree import (
    Sequence as YamlSequence,
)

KIND: Final = "helm-values"
MAX_SITES: Final = 2_000
MAX_DEPTH: Final = 12

# Keys under which charts keep further words, arguments by name, the model, and what is around them.
_WORD_KEYS: Final = (
    "args", "extraArgs", "additionalArgs", "extraCmdArgs", "vllmExtraArgs", "engineExtraArgs", "cmdArgs",
    "commandArgs", "serverArgs", "vllmArgs", "engineArgs", "customArgs", "extra_args", "arguments",
)  # fmt: skip
# Further keys of words, by their ends, where the words begin with a flag.
_WORD_KEY: Final = re.compile(r"(?:args|arguments|extra|flags|options|opts|params)$", re.IGNORECASE)
_NO_WORD_KEY: Final = re.compile(r"init|download|build|test|probe|node|docker|helm|lora", re.IGNORECASE)
_ARGUMENT_KEYS: Final = (
    "config", "vllmConfig", "engineArgs", "engine_args", "engineConfig", "engine", "serverArgs", "vllmArgs", "args",
    "extraArgs", "engineKwargs", "engine_kwargs", "parameters", "serving", "settings", "modelConfig", "runtime",
)  # fmt: skip
_SERVER_KEYS: Final = ("server", "apiServer")
_MODEL_KEYS: Final = (
    "model", "modelId", "modelID", "modelName", "modelURL", "modelUrl", "modelPath", "model_id", "model_name",
    "modelRepo", "repoId", "huggingfaceId", "hfModel", "hfModelName", "modelUri", "modelURI", "storageUri", "weights",
    "vllmModel", "vllmModelName", "huggingface_id", "huggingface_name", "hf_model", "hf_model_id", "hf_repo",
    "model_path", "repo_id",
)  # fmt: skip
_TELLS_MODEL: Final = frozenset({*_MODEL_KEYS, "storage"})  # keys without which a mapping names none
_INSIDE_MODEL: Final = (
    "name", "id", "repoId", "repo", "path", "huggingfaceId", "hfId", "uri", "url", "modelId", "huggingfaceRepo",
    "huggingfaceName", "hfRepo", "hfModel", "hfName", "repository", "storageUri", "storage",
)  # fmt: skip
# What stands beside a server and names the model that all of a chart is about.
_MODEL_HOLDERS: Final = (
    "huggingface", "huggingFace", "hf", "llm", "modelConfig", "configuration", "modelArtifacts", "global",
)  # fmt: skip
# Variables that vLLM itself reads; its clients have theirs for where it answers, and what it serves.
_SERVER_VARIABLE: Final = re.compile(
    r"VLLM_(?:ALLOW|ATTENTION|CACHE|CPU|ENGINE|FLASHINFER|FLASH|LOGGING|NCCL|NO_USAGE|RPC|TORCH|USE|WORKER)_"
)
# Of an image in parts, and of one whose parts stand among other keys.
_REPOSITORY_KEYS: Final = ("repository", "name", "repo", "image", "containerImage")
_TAG_KEYS: Final = ("tag", "version")
_FLAT_REPOSITORY_KEYS: Final = ("image", "imageName", "imageRepository", "imageRepo", "vllmImage", "containerImage")
_FLAT_TAG_KEYS: Final = ("imageTag", "imageVersion", "tag", "vllmVersion")
_COMMAND_KEYS: Final = ("command", "customCommand", "server_cmd", "serverCommand", "startCommand", "entrypoint", "cmd")
# A command that starts vLLM, whatever the key under which it stands.
_STARTING: Final = regex(
    r"(?:^|[;&\n])[ \t]*(?:exec[ \t]+)?"
    r"(?:\S{0,99}python[\d.]{0,9}[ \t]+-m[ \t]+vllm\.entrypoints\.|(?:\S{0,99}/)?vllm[ \t]+serve\s)"
)
_REPLICA_KEYS: Final = ("replicaCount", "replicas", "minReplicas")
_ALIASES: Final = {
    "enable-chunk-prefill": "enable-chunked-prefill",
    "gpu-memory-util": "gpu-memory-utilization",
    "gpu-mem-util": "gpu-memory-utilization",
    "gpu-memory-fraction": "gpu-memory-utilization",
    "memory-fraction": "gpu-memory-utilization",
    "memory-utilization": "gpu-memory-utilization",
    "max-model-length": "max-model-len",
    "max-sequences": "max-num-seqs",
    "served-name": "served-model-name",
    "tensor-parallel": "tensor-parallel-size",
    "tensor-parallelism": "tensor-parallel-size",
    "pipeline-parallelism": "pipeline-parallel-size",
    "tp-size": "tensor-parallel-size",
    "pp-size": "pipeline-parallel-size",
    "kv-cache-data-type": "kv-cache-dtype",
    "prefix-caching": "enable-prefix-caching",
    "chunked-prefill": "enable-chunked-prefill",
    "enable-lo-ra": "enable-lora",
    "lora": "enable-lora",
    "lora-max-rank": "max-lora-rank",
    "tool-calling": "enable-auto-tool-choice",
    "tool-calling-parser": "tool-call-parser",
}
# Of these, those that a mapping may stand under: it is switched on by its `enabled`.
_SWITCHES: Final = frozenset(
    {"enable-auto-tool-choice", "enable-chunked-prefill", "enable-lora", "enable-prefix-caching"}
)
# Flags that other programs have as keys too: they are taken where a mapping is a server already.
_PLAIN_FLAGS: Final = frozenset(
    {
        "api-key", "async-scheduling", "attention-backend", "chat-template", "chat-template-content-format",
        "compilation-config", "config-format", "convert", "cpu-offload-gb", "data-parallel-size",
        "default-chat-template-kwargs", "disable-log-requests", "distributed-executor-backend", "download-dir", "dtype",
        "enable-log-requests", "enable-sleep-mode", "generation-config", "guided-decoding-backend", "host",
        "hf-overrides", "kv-events-config", "kv-offloading-backend", "kv-offloading-size", "language-model-only",
        "load-format", "lora-modules", "mamba-cache-dtype", "mamba-cache-mode", "mamba-ssm-cache-dtype",
        "max-num-partial-prefills", "max-seq-len-to-capture", "max-seq-len", "mm-processor-kwargs",
        "override-generation-config", "port", "prefix-caching-hash-algo", "quantization", "reasoning-parser",
        "revision", "rope-scaling", "root-path", "runner", "safetensors-load-strategy", "seed", "task", "tokenizer",
        "tokenizer-mode", "trust-remote-code", "uvicorn-log-level",
    }
)  # fmt: skip


@record
class Release:
    """What installs a chart with these values: its kind, namespace and name."""

    kind: str
    namespace: str | None
    name: str
    document: Node


def read_values(
    tree: Tree, file: SourceFile, root: Node, release: Release | None = None
) -> Iterator[ServeUnit | Unread]:
    """The serve units that a chart makes of a mapping of values."""
    if isinstance(root, YamlSequence) and any(node_at(item, "modelURL") is not None for item in root.items):
        # the models of vLLM's production-stack alone, as they are handed to its chart under this key
        root = Mapping(root.span, [Entry(Scalar(root.span, "modelSpec"), root)])
    if not isinstance(root, Mapping):
        return
    if release is None and not looks_like_values(file.path, root):
        return
    reader = _Reader(tree, file, root, release)
    try:
        yield from reader.units()
    except TooLargeError as error:
        yield Unread(f"{error} is not read", root.span, serves=True)


# Keys of values files about the deployment, which the configuration of a program hardly has.
_DEPLOYMENT_KEYS: Final = frozenset(
    {
        "affinity", "autoscaling", "fullnameOverride", "global", "hpa", "image", "imagePullSecrets", "ingress",
        "modelArtifacts", "nameOverride", "nodeSelector", "persistence", "podAnnotations", "podSecurityContext",
        "replicaCount", "replicas", "resources", "securityContext", "service", "serviceAccount", "serviceMonitor",
        "servingEngineSpec", "tolerations", "workload",
    }
)  # fmt: skip
MIN_DEPLOYMENT_KEYS: Final = 3
VALUES_NAME: Final = re.compile(r"(?:^|[/._-])values?(?:[._-]|$)|\bhelm\b|\bcharts?\b", re.IGNORECASE)


def looks_like_values(path: str, root: Mapping) -> bool:
    """Whether a mapping is the values of a chart, by its file's name or its keys; not of a test or a schema of one."""
    keys = {entry.key.value for entry in root.items()}
    named_so = path.endswith((".yaml", ".yml", ".gotmpl", "-")) or is_template_name(path)
    if not named_so and "." in path.rpartition("/")[2]:
        return False
    if keys & {"suite", "$schema", "apiVersion", "openapi"} or isinstance(root.get("tests"), YamlSequence):
        return False
    if "kind" in keys and len(keys & _DEPLOYMENT_KEYS) < MIN_DEPLOYMENT_KEYS:
        return False  # charts let their users choose between a Deployment and others
    if keys & {"scenario", "modelSpec", "LLM_MODEL_ID"} or VALUES_NAME.search(path):
        return True
    below = {
        inner.key.value for entry in root.items() if isinstance(entry.value, Mapping) for inner in entry.value.items()
    }
    return bool((keys | below) & _DEPLOYMENT_KEYS)


def read_object(
    tree: Tree, file: SourceFile, item: Node, chart: Chart, release: Release
) -> Iterator[ServeUnit | Unread]:
    """The serve units of one object whose controller a row of a table describes."""
    if not isinstance(item, Mapping) or not item.entries:
        return
    reader = _Reader(tree, file, item, release)
    top = _Site(item, (), (), item.entries[0].key.span)
    try:
        for path in chart.sites:
            for site in _walk(top, path):
                if _applies(chart, site):
                    yield from reader.of_chart(chart, site)
    except TooLargeError as error:
        yield Unread(f"{error} is not read", item.span, serves=True)


@record
class _Site:
    """A mapping of the values, the mappings around it, the nearest first, and the keys that lead to it."""

    node: Mapping
    around: tuple[Mapping, ...]
    keys: tuple[str, ...]
    span: Span


class _Reader:
    def __init__(self, tree: Tree, file: SourceFile, root: Mapping, release: Release | None) -> None:
        self.tree = tree
        self.file = file
        self.used: set[int] = set()  # values that others stand for, or a file that is written of them
        if ".Values." in file.text:  # a chart's `tpl` puts values into values
            root = self._with_own(root)
            # those of a chart below have their own root
            root = Mapping(root.span, [Entry(e.key, self._with_own(e.value)) for e in root.entries], root.alias)
        lowered = file.text.lower()
        self.root = root = _with_choices(root) if _offers_choices(lowered) else root
        self.release = release
        # what is not only like the values of a chart
        self.for_chart = release is not None or VALUES_NAME.search(file.path) is not None
        self.vllm = "vllm" in lowered
        self.count = 0

    def _with_own(self, node: Any) -> Any:
        return with_references(node, _OWN_VALUE, node, self.used) if isinstance(node, Mapping) else node

    def units(self) -> Iterator[ServeUnit]:
        top = _Site(self.root, (), (), self.root.entries[0].key.span if self.root.entries else self.root.span)
        for chart in CHARTS:
            found = [
                unit
                for site in self._sites_of(chart, top)
                if _applies(chart, site)
                for unit in self.of_chart(chart, site)
            ]
            if found:
                yield from found
                return
        units = list(self._by_shape(top))
        if len(units) > 1:
            units = [unit for unit in units if not self._is_used(unit)]
        yield from _with_runtime(_without_sections(units))

    def _is_used(self, unit: ServeUnit) -> bool:
        """Whether all that a server is made of stands for something of another one."""
        values = [word for word in unit.words if not word.value.startswith("-")]
        pieces = [piece.span.start for word in values for piece in word.text.pieces]
        return unit.entry == TEMPLATE_ENTRY and bool(pieces) and self.used.issuperset(pieces)

    # -- known charts ------------------------------------------------------------------------------------------------

    def _sites_of(self, chart: Chart, top: _Site) -> Iterator[_Site]:
        for path in chart.sites:
            yield from _walk(top, path)

    def of_chart(self, chart: Chart, site: _Site) -> Iterator[ServeUnit]:
        image = _image_of(chart, site)
        if image is not None and image.resolved and is_other_program(image.value):
            return
        environment, spans = _environment(site.node)
        for name, path in chart.environment:
            value = _at(site, path)
            if isinstance(value, Scalar):
                environment.setdefault(name, Value(value.text))
                spans.setdefault(name, value.span)
        gpus = _gpus_of(chart, site) or _devices(site)
        starts: list[Start] = []
        for path in chart.scripts:
            script = _at(site, path)
            if isinstance(script, Scalar):
                starts += starts_of_script(Value(script.text), environment)
        if not chart.scripts:
            starts = self._start_of_chart(chart, site, image)
        replicas = next((node for path in chart.replicas if (node := _at(site, path)) is not None), None)
        for number, start in enumerate(starts):
            unit = self._unit(site, start, number, image, environment, spans, gpus, replicas)
            profile = _profile(chart, site)
            if profile is not None:
                hint = NodeHint("gpu", (profile[1]["name"],), profile[0].span)
                unit = replace(unit, node_hints=(hint, *unit.node_hints))
            yield unit

    def _start_of_chart(self, chart: Chart, site: _Site, image: Word | None) -> list[Start]:
        model = next((node for path in chart.model if isinstance(node := _at(site, path), Scalar) and node.value), None)
        rest = [word for path in chart.words for word in _words(_at(site, path))]
        for path in chart.entries:
            rest += words_of_entries(entries_at(_at(site, path)), bare_empty=True)
        command = next((found for path in chart.commands if (found := _words(_at(site, path)))), [])
        if command and find_entry(command):
            container = Container(tuple(command), tuple(rest), image, {}, site.span, True, True)
            return find_starts(container)
        words: list[Word] = []
        if model is not None:
            named = mark_placeholders(Value(model.text))
            for prefix in chart.strip:
                if named.value.startswith(prefix):
                    named = named.slice(len(prefix), len(named.text))
            words += [Word(Text.at("--model", model.span)), named.word()]
        for path, flag in chart.flags:
            node = _at(site, path)
            if _number(node) <= dict(chart.above).get(path, -math.inf):
                continue
            words += _flag_words(flag, node)
        for path, flag in chart.negated:
            node = _at(site, path)
            truth = scalar_bool(node) if node is not None else None
            unsaid = node is None and flag in chart.absent
            unsaid = unsaid and (not chart.within or bool(entries_at(_at(site, path[:-1]))))
            if truth is False or unsaid:
                words.append(Word(Text.at(f"--no-{flag}", node.span if node is not None else site.span)))
            else:
                words += _flag_words(flag, node)
        words += [Word(Text.at(text, site.span)) for text in chart.constants]
        return [Start((*words, *rest), chart.name, False, (), site.span)]

    # -- by shape ----------------------------------------------------------------------------------------------------

    def _by_shape(self, site: _Site) -> Iterator[ServeUnit]:
        self.count += 1
        if self.count > MAX_SITES or len(site.keys) > MAX_DEPTH:
            return
        if scalar_bool(site.node.get("enabled")) is False:
            return
        found = list(self._server(site))
        whole = _with_section(site)
        if found and whole is not None:
            found = list(self._server(whole))
        elif not found or (_image_of_node(site.node) is None and all(unit.entry == TEMPLATE_ENTRY for unit in found)):
            inner = [unit for below in _below(site) for unit in self._by_shape(below)]
            # a container that starts vLLM below arguments is what they are for
            found = inner if not found or any(unit.entry != TEMPLATE_ENTRY for unit in inner) else found
        for alone in (site, whole):
            if not found and alone is not None and self._is_alone(alone):
                found = list(self._server(alone, alone=True))
        yield from found

    def _is_alone(self, site: _Site) -> bool:
        """Whether a mapping has a model and a pod's settings, and an image of vLLM or arguments that stand with the
        model: a server that nothing below it tells more of."""
        image, model = _image_of_node(site.node), site.node.get("model")
        serves = image is not None and is_vllm_image(image.value)
        own = _model_of_node(site.node) is not None
        if not (serves or own):
            return False
        runtime = scalar_at(site.node, "runtime")
        if own and runtime is not None and "vllm" in runtime.value.lower():
            return True  # KServe's predictors name theirs
        if own and self.for_chart:
            around = image
            if image is None and _ONE_OF_MODELS.search("/".join(site.keys)):
                around = _image(site)  # each model of a list is served by the image that all of them share
            if around is not None and is_vllm_image(around.value):
                return True
        told = {flag_name(word) for word in _flags_inside(model)} - {None} if isinstance(model, Mapping) else set()
        environment, _ = _environment(site.node)
        named = own or (serves and (_model(site) is not None or _model_variable(environment) is not None))
        if serves and named and len(told) >= 2:
            return True
        told_vllm = any(map(_SERVER_VARIABLE.match, environment))
        plain = {flag_name(word) for word in _plain_flags(model)} if told and isinstance(model, Mapping) else set()
        if not (
            (serves and (named or len(told | plain) >= 2))
            or (self.vllm and named and len(told) >= (1 if told_vllm else 3))
        ):
            return False
        return _is_pod(site.node)

    def _server(self, site: _Site, *, alone: bool = False) -> Iterator[ServeUnit]:
        node = site.node
        parts = _parts(node)
        beside = _image_of_node(node)  # with an image of vLLM, a model's arguments are the server's
        told = node.get("model")
        model_of = [told] if isinstance(told, Mapping) else []
        if not (beside is not None and is_vllm_image(beside.value)):
            model_of = [inner for inner in model_of if any(_flags_inside(inner))]
        names = {entry.key.value for entry in node.items()}
        keys = [key for key in (*_ARGUMENT_KEYS, *_SERVER_KEYS) if key in names]
        holders = [node, *(held for key in keys if (held := _held(node, key))), *parts]
        rest = [word for holder in (*holders, *model_of) for word in _words_of_keys(holder)]
        flags = [*_flags(node), *(word for part in parts for word in (*_flags(part, 1), *_plain_flags(part)))]
        if not rest and not flags and not alone and next(_commands(node), None) is None:
            return  # nothing is said here that a server could be made of
        image = _image(site)
        own = {name for word in (*flags, *rest) if (name := flag_name(word)) in VLLM_FLAGS}
        named = _is_named(site, image)
        environment, spans = _environment(node)
        starts = self._starts_of_command(site, rest, image, environment, named)
        starts = [self._configured(site, start) for start in starts]
        bare = starts if len(starts) == 1 and not starts[0].words else []  # `vllm serve`, and nothing behind it
        if not starts or bare:
            if image is not None and image.resolved and is_other_program(image.value):
                return
            serves = image is not None and is_vllm_image(image.value)
            if not serves and not rest and any(map(_asks, holders)):
                return
            model = _model(site, holders) if not names_model(rest) and not names_model(flags) else None
            given = model is not None or names_model(rest) or names_model(flags)
            many = named and sum(flag_name(word) in VLLM_FLAGS | _PLAIN_FLAGS for word in rest) >= 2
            enough = len(own) >= 2 or many or (bool(own) and given) or alone
            enough = enough or ((serves or (named and _is_pod(node))) and given and bool(rest or flags))
            if serves and named and own:  # a chart of vLLM's that is yet to be told the model
                enough = enough or len(own | {flag_name(word) for word in _plain_flags(node)}) >= 2
            direct = bool(rest) or any(_flag_of(entry.key.value) in VLLM_FLAGS for entry in node.items())
            direct = direct or len(holders) > 1 + len(parts)
            whole = site.keys[-1:] != ("model",) or _is_served_model(node) or (len(own) >= 2 and _is_pod(node))
            direct = (direct and whole) or alone
            if not bare and (not enough or not direct or not (named or self.vllm) or _is_other(site)):
                return
            flags += _flags_of_model(site)
            flags += _deep_config(node, own, 0)
            flags += _plain_flags(node)
            words = [*_model_words(model), *flags, *rest]
            positional = bool(rest) and not flags and model is None and not rest[0].value.startswith("-")
            start = bare[0] if bare else Start((), TEMPLATE_ENTRY, positional, (), site.span)
            variable = _model_variable(environment) if alone and serves and not given else None
            if variable is not None:  # what the template does with them, it alone knows
                added, notes = variable_words(environment)
                words = [*added, *words]
                start = replace(start, storage_model=variable, notes=(*start.notes, *notes))
            starts = [replace(start, words=tuple(words))]
        replicas = _nearest(site, _REPLICA_KEYS)
        for number, start in enumerate(starts):
            yield self._unit(site, start, number, image, environment, spans, _devices(site), replicas)

    def _configured(self, site: _Site, start: Start) -> Start:
        """A start with the arguments of its ``--config`` file, where values around hold what is written there."""
        if {flag_name(word) for word in start.words} - {None} != {"config"}:
            return start
        near = (site.node, *site.around)
        beside = (entry.value for node in near for entry in node.items() if isinstance(entry.value, Mapping))
        for node in (*near, *beside):
            for key in _ARGUMENT_KEYS:
                given = _arguments(node.get(key))
                if given is not None and sum(_flag_of(entry.key.value) in VLLM_FLAGS for entry in given.items()) >= 2:
                    self.used.update(start for entry in given.items() for start in _starts(entry.value))
                    return replace(start, words=(*start.words, *words_of_entries(given.items(), spread=True)))
        return start

    def _starts_of_command(
        self, site: _Site, rest: list[Word], image: Word | None, environment: dict[str, Value], named: bool
    ) -> list[Start]:
        """The server that a command written in the values starts, or an image that takes arguments by itself."""
        for command in _commands(site.node):
            if isinstance(command, Scalar) and re.search(r"\s", command.value.strip()):
                found = starts_of_script(Value(command.text), environment)
                if found:
                    return found
            words = _words(command)
            if words and (
                find_entry(words) or any(re.search(r"vllm\s+serve|vllm\.entry", word.value) for word in words)
            ):
                return find_starts(Container(tuple(words), tuple(rest), image, environment, site.span, named, True))
        written = site.node.get("args")
        if image is not None and isinstance(written, YamlSequence) and written.items:
            arguments = tuple(_words(written))
            program = tuple(next(filter(None, (_words(site.node.get(key)) for key in _COMMAND_KEYS)), ()))
            devices = bool(_devices(site))
            return find_starts(Container(program or None, arguments, image, environment, site.span, named, devices))
        return []

    def _unit(
        self,
        site: _Site,
        start: Start,
        number: int,
        image: Word | None,
        environment: dict[str, Value],
        spans: dict[str, Span],
        devices: tuple[GpuRequest, ...],
        replicas: Node | None,
    ) -> ServeUnit:
        name = site.keys[-1] if site.keys else self.file.path.rpartition("/")[2]
        count = scalar_int(replicas)
        release = self.release
        keys = site.keys if release is None or release.kind in ("HelmRelease", "helmfile") else site.keys[1:]
        head = [self.file.path] if release is None else [release.kind, release.namespace or "default", release.name]
        parts = [*head, *(keys or (("values",) if release is None else ())), str(number + 1) if number else ""]
        return ServeUnit(
            id="/".join(part for part in parts if part),
            path=self.file.path,
            span=site.span,
            kind=KIND if release is None else release.kind,
            name=name if release is None else release.name or name,
            container=None,
            namespace=None if release is None else release.namespace,
            words=start.words,
            positional_model=start.positional_model,
            entry=start.entry,
            image=image,
            environment=environment_of(environment, spans, start.environment),
            gpu_requests=devices,
            node_hints=tuple(_hints(site)),
            replicas=count,
            replicas_span=replicas.span if replicas is not None and count is not None else None,
            annotations={},
            shared_memory=_shared_memory(site.node),
            node=site.node,
            document=self.root if release is None else release.document,
            storage_model=start.storage_model,
            notes=(*start.notes, Unresolved(site.span.text, "the template or controller is not among the files read")),
        )


# Where a mapping is one of several models, or what vLLM is told.
_ONE_OF_MODELS: Final = re.compile(r"(?:^|/)(?:models/(?:\[\d+\]|[^/]+)|vllm)$", re.IGNORECASE)


def _with_section(site: _Site) -> _Site | None:
    """A server with what stands in a section of its own for vLLM (``{model: org/m, vllm: {image: x}}``); None where
    there is none, or one that is a server by itself."""
    sections = [
        (entry, entry.value)
        for entry in site.node.items()
        if isinstance(entry.value, Mapping) and "vllm" in entry.key.value.lower()
    ]
    if not sections or _model_of_node(site.node) is None or _image_of_node(site.node) is not None:
        return None
    for entry, section in sections:
        image = _image_of_node(section) if _model_of_node(section) is None else None
        if image is not None and is_vllm_image(image.value):
            rest = Mapping(site.node.span, [other for other in site.node.items() if other.key is not entry.key])
            return replace(site, node=_filled(rest, section))
    return None


def _is_served_model(node: Node | None) -> bool:
    """Whether a mapping is the ``predictor.model`` of KServe's, in a format that vLLM serves."""
    return (text_at(node, "modelFormat", "name") or "").lower() in ("vllm", "huggingface")


def _with_runtime(units: list[ServeUnit]) -> list[ServeUnit]:
    """The servers of values; a model of KServe's and the one container that runs it are one."""
    models = [unit for unit in units if _is_served_model(unit.node)]
    others = [unit for unit in units if unit not in models]
    if len(models) != 1 or len(others) != 1:
        return units
    (model,), (runtime,) = models, others
    words, stored = model.words, None
    if len(words) > 1 and words[0].value == "--model":
        words, stored = words[2:], words[1]
    return [replace(model, words=(*runtime.words, *words), storage_model=stored, entry=runtime.entry,
                    positional_model=runtime.positional_model, image=runtime.image or model.image)]  # fmt: skip


def _without_sections(units: list[ServeUnit]) -> list[ServeUnit]:
    """The servers of values. Sections of a configuration (``distributed:``, ``service:``) beside its only model are
    one, where none of them has anything of a pod, nor repeats an argument of another."""
    if len(units) < 2 or len({unit.words[1].span if len(unit.words) > 1 else unit.span for unit in units}) > 1:
        return units
    for unit in units:
        own = unit.node.items() if isinstance(unit.node, Mapping) else []
        if (
            unit.entry != TEMPLATE_ENTRY
            or unit.words[0].value != "--model"
            or not own
            or any(isinstance(entry.value, YamlSequence) for entry in own)
            or unit.words[1].span.start in {entry.value.span.start for entry in own}
            or any(value is not None for value in (unit.image, unit.replicas, *unit.gpu_requests))
        ):
            return units
    words = {(word.span.start, word.value): word for unit in units for word in unit.words}.values()
    flags = [word.value for word in words if word.value.startswith("--")]
    return [replace(units[0], words=tuple(words))] if len(flags) == len(set(flags)) else units


# -- values that are given by other values -----------------------------------------------------------------------------

_OWN_VALUE: Final = re.compile(r"\{\{-?\s*\.Values\.([A-Za-z_][\w.]*)\s*(?:\|\s*(?:quote|toString)\s*)?-?\}\}")


def with_references(root: Node, reference: re.Pattern[str], values: Mapping, used: set[int] | None = None) -> Node:
    """A tree in which each reference, a path of keys in its first group, stands for what the values say there.

    Args:
        used: where the values begin that are referred to; they are added.
    """
    entries: dict[int, list[Entry]] = {}  # aliases share theirs
    items: dict[int, list[Node]] = {}

    def given(node: Node) -> Node:
        if isinstance(node, Scalar):
            return _with_values(node, reference, values, used)
        if isinstance(node, YamlSequence):
            if id(node.items) not in items:
                items[id(node.items)] = [given(item) for item in node.items]
            return YamlSequence(node.span, items[id(node.items)], node.alias)
        if id(node.entries) not in entries:
            entries[id(node.entries)] = [Entry(entry.key, given(entry.value)) for entry in node.entries]
        return Mapping(node.span, entries[id(node.entries)], node.alias)

    return given(root)


def _with_values(node: Scalar, reference: re.Pattern[str], values: Mapping, used: set[int] | None) -> Scalar:
    if "{" not in node.value:
        return node

    def known(match: re.Match[str], _: Value) -> Value | None:
        value = scalar_at(values, *match.group(1).split("."))
        if value is None or not value.value or is_null(value) or "{{" in value.value:
            return None
        if used is not None:
            used.update(_starts(value))
        return Value(value.text)

    whole = Value(node.text)
    filled = whole.replaced(reference.finditer(node.value), known)
    return node if filled is whole else Scalar(node.span, filled.value, node.style or '"', node.alias, filled.text)


def _starts(node: Node) -> set[int]:
    """Where a value and the pieces of its text begin."""
    pieces = node.text.pieces if isinstance(node, Scalar) else ()
    return {node.span.start, *(piece.span.start for piece in pieces)}


# -- values of which another value chooses some -----------------------------------------------------------------------

_CHOICES: Final = ("profiles", "presets", "variants", "flavors", "flavours", "modelconfigs", "model_configs")
_CHOOSER: Final = re.compile(r"(?:profile|preset|variant|flavou?r|model(?:_?(?:id|name))?)$", re.IGNORECASE)


def _offers_choices(lowered: str) -> bool:
    """Whether a key, or a text with all its keys, says in lower case that there is something to choose from."""
    return any(mark in lowered for mark in _CHOICES)


def _with_choices(root: Mapping) -> Mapping:
    """Values in which what ``profile: big`` chooses of ``profiles`` stands where it is used: in the mapping around it,
    or in that of vLLM there. Without a choice the profiles are left out, unless they are whole servers."""
    chosen: set[str] = set()
    stack: list[Node] = [root]
    count = 0
    while stack and count < MAX_SITES:
        node = stack.pop()
        count += 1
        if isinstance(node, Mapping):
            chosen |= {
                entry.value.value
                for entry in node.items()
                if isinstance(entry.value, Scalar) and _CHOOSER.search(entry.key.value)
            }
            stack += [entry.value for entry in node.items() if not isinstance(entry.value, Scalar)]
        elif isinstance(node, YamlSequence):
            stack += [item for item in node.items if not isinstance(item, Scalar)]
    return _chosen_below(root, chosen, 0)


def _chosen_below(node: Mapping, chosen: set[str], depth: int) -> Mapping:
    entries: list[Entry] = []
    picked: list[Mapping] = []
    for entry in node.items():
        value = entry.value
        if isinstance(value, Mapping) and _offers_choices(entry.key.value.lower()):
            inner = [item for item in value.items() if isinstance(item.value, Mapping)]
            picks = [item.value for item in inner if item.key.value in chosen and isinstance(item.value, Mapping)]
            if len(picks) == 1:
                picked += picks
                continue
            if inner and not any(isinstance(item.value, Mapping) and _model_of_node(item.value) for item in inner):
                continue
        elif isinstance(value, Mapping) and depth < MAX_DEPTH:
            value = _chosen_below(value, chosen, depth + 1)
        entries.append(Entry(entry.key, value))
    for choice in picked:
        at = next((n for n, entry in enumerate(entries) if entry.key.value == "vllm"), None)
        inside = entries[at].value if at is not None else None
        if at is not None and isinstance(inside, Mapping):
            entries[at] = Entry(entries[at].key, _filled(inside, choice))
        else:
            entries = list(_filled(Mapping(node.span, entries), choice).items())
    return Mapping(node.span, entries, node.alias)


def _filled(node: Mapping, choice: Mapping) -> Mapping:
    """A mapping with what a choice says where the mapping says nothing."""
    entries: dict[str, Entry] = {entry.key.value: entry for entry in node.items()}
    for entry in choice.items():
        own = entries.get(entry.key.value)
        if own is None or not _says(own.value):
            entries[entry.key.value] = entry
        elif isinstance(own.value, Mapping) and isinstance(entry.value, Mapping):
            entries[entry.key.value] = Entry(own.key, _filled(own.value, entry.value))
    return Mapping(node.span, list(entries.values()), node.alias)


def _says(node: Node) -> bool:
    if isinstance(node, Scalar):
        return bool(node.value) and not is_null(node)
    return bool(node.entries if isinstance(node, Mapping) else node.items)


# -- walking -----------------------------------------------------------------------------------------------------------


def _walk(site: _Site, path: Path) -> Iterator[_Site]:
    if scalar_bool(site.node.get("enabled")) is False:
        return
    if not path:
        yield site
        return
    key, rest = path[0], path[1:]
    for inner in _children(site, key):
        yield from _walk(inner, rest)


def _children(site: _Site, key: str) -> Iterator[_Site]:
    """The mappings that one step of a path leads to; a list counts as its items, and as a step of its own."""
    for entry in site.node.items():
        wanted = "[]" if entry.key.value.startswith("[") else "*"
        if key in (entry.key.value, wanted):
            yield from _entered(site, entry)


def _entered(site: _Site, entry: Entry) -> Iterator[_Site]:
    value = entry.value
    around = (site.node, *site.around)
    if isinstance(value, Mapping):
        yield _Site(value, around, (*site.keys, entry.key.value), entry.key.span)
    elif isinstance(value, YamlSequence):
        yield _Site(Mapping(value.span, [_numbered(n, item) for n, item in enumerate(value.items)]), around,
                    (*site.keys, entry.key.value), entry.key.span)  # fmt: skip


def _numbered(number: int, item: Node) -> Entry:
    return Entry(Scalar(item.span, f"[{number}]"), item)


def _below(site: _Site) -> Iterator[_Site]:
    for entry in site.node.items():
        if isinstance(entry.value, (Mapping, YamlSequence)):
            yield from _entered(site, entry)


def _at(site: _Site, path: Path) -> Node | None:
    node: Node | None = site.node
    around = list(site.around)
    for key in path:
        if key == "..":
            # an item's list is a step of its own
            node = around.pop(0) if around else None
            if isinstance(node, Mapping) and node.entries and node.entries[0].key.value == "[0]":
                node = around.pop(0) if around else None
        else:
            node = node_at(node, key)
        if node is None:
            return None
    return node


def _applies(chart: Chart, site: _Site) -> bool:
    for paths in (chart.needs, chart.needs_too):
        if paths and not any(not is_null(_at(site, path)) for path in paths):
            return False
    if any(_at(site, path) is not None for path in chart.without):
        return False
    for path, text in chart.equals:
        found = _at(site, path)
        if not isinstance(found, Scalar) or text not in found.value.lower():
            return False
    return True


# -- parts of a site ---------------------------------------------------------------------------------------------------


def _words(node: Node | None) -> list[Word]:
    """Words of a list, of a text, or of a mapping of arguments."""
    if isinstance(node, YamlSequence):
        words = [mark_placeholders(Value(item.text)).word() for item in node.items if isinstance(item, Scalar)]
        return [] if _is_script_of_shell(words) else words
    if isinstance(node, Scalar) and not is_null(node):
        # a shell reads it in the end, as a part of a command
        written = interpolate(Value(node.text), {}) if _SHELL_NAME.search(node.value) else Value(node.text)
        return list(split_words(mark_placeholders(written)))
    if isinstance(node, Mapping):
        return words_of_entries(
            [entry for entry in node.items() if flag_of_key(entry.key.value) == entry.key.value.replace("_", "-")]
        )
    return []


def _commands(node: Mapping) -> Iterator[Node]:
    """What may start the server of a mapping: what stands under the keys of commands, and texts that are commands."""
    yield from (found for key in _COMMAND_KEYS if (found := node.get(key)) is not None)
    for entry in node.items():
        key, text = entry.key.value, entry.value.value if isinstance(entry.value, Scalar) else ""
        if "vllm" in text and key not in _COMMAND_KEYS and key[:1] != "[" and _STARTING.search(text):
            yield entry.value


_SHELL_NAME: Final = re.compile(r"(?:^|[\s=])\"?\$[A-Za-z_]")


def _is_script_of_shell(words: Sequence[Word]) -> bool:
    """``[-c, "aws s3 sync ..."]``: what a shell is given, which stands somewhere else."""
    if len(words) < 2 or re.fullmatch(r"-[a-z]{0,4}c[a-z]{0,4}", words[0].value) is None:
        return False
    return re.search(r"\s", words[1].value.strip()) is not None and find_entry(split_words(words[1].text)) is None


def _words_of_keys(node: Mapping) -> Iterator[Word]:
    """The words under the keys of a mapping that say so."""
    for key in _WORD_KEYS:
        yield from _words(node.get(key))
    for entry in node.items():
        if _is_word_key(entry):
            yield from _words(entry.value)


def _is_word_key(entry: Entry) -> bool:
    key, value = entry.key.value, entry.value
    first = value.items[0] if isinstance(value, YamlSequence) and value.items else value
    if not isinstance(first, Scalar) or not first.value.lstrip().startswith("-"):
        return False
    if key in _WORD_KEYS or not _WORD_KEY.search(key) or _NO_WORD_KEY.search(key):
        return False
    return not re.search(_OTHERS, key, re.IGNORECASE)


def _arguments(node: Node | None) -> Mapping | None:
    """A mapping of arguments, also where it is written as a list of names and values."""
    if isinstance(node, Mapping):
        return node
    entries: list[Entry] = []
    for item in node.items if isinstance(node, YamlSequence) else ():
        name = scalar_at(item, "key") or scalar_at(item, "name")
        value = node_at(item, "value")
        if name is None or value is None:
            return None
        entries.append(Entry(name, value))
    return Mapping(node.span, entries) if node is not None and entries else None


def _held(node: Mapping, key: str) -> Mapping | None:
    """The mapping of arguments under a key that says so, or that says `server` and holds no other thing of one."""
    if key in _SERVER_KEYS:
        inner = node.get(key)
        own = isinstance(inner, Mapping) and _OWN_KEYS.isdisjoint(entry.key.value for entry in inner.items())
        return inner if own and isinstance(inner, Mapping) else None
    return _arguments(node.get(key)) if key in _ARGUMENT_KEYS else None


def _flag_words(flag: str, node: Node | None) -> list[Word]:
    """A value under a flag; empty ones, null and false give none."""
    if node is None or is_null(node):
        return []
    if isinstance(node, Scalar):
        if not node.value:
            return []
        if node.plain and node.value.lower() in ("true", "false"):
            return [Word(Text.at(f"--{flag}", node.span))] if node.value.lower() == "true" else []
    elif not (node.entries if isinstance(node, Mapping) else node.items):
        return []
    return [Word(Text.at(f"--{flag}", node.span)), word_of_node(node)]


def _parts(node: Mapping) -> list[Mapping]:
    """The mappings below a server that hold nothing but arguments of it, under whatever key; none where one of them
    says what another does, as those of several servers do."""
    found: list[Mapping] = []
    said: set[str] = set()
    for entry in node.items():
        inner = entry.value
        if not isinstance(inner, Mapping) or entry.key.value in (*_ARGUMENT_KEYS, *_SERVER_KEYS, "model"):
            continue
        keys = {item.key.value for item in inner.items()}
        lists = {key for key in keys & set(_WORD_KEYS) if any(flag_name(word) for word in _words(inner.get(key)))}
        lists |= {item.key.value for item in inner.items() if _is_word_key(item)}
        names = lists | {flag for key in keys if (flag := _flag_of(key)) in VLLM_FLAGS}
        own = keys & (_OWN_KEYS if scalar_bool(inner.get("enabled")) is False else _OWN_KEYS - {"enabled"})
        identity = scalar_at(inner, "id")  # `models: {small: {id: org/m, args: []}}`
        if identity is not None and _PLACE.search(identity.value):
            continue
        if not names or own or re.search(rf"{_OTHERS}|multi_?-?node|draft|specul", entry.key.value, re.IGNORECASE):
            continue
        if names & said:
            return []
        said |= names
        found.append(inner)
    return found


_POD_KEYS: Final = frozenset({"nodeSelector", "replicaCount", "replicas", "resources", "service", "tolerations"})


def _is_pod(node: Mapping) -> bool:
    return not _POD_KEYS.isdisjoint(entry.key.value for entry in node.items())


# What a mapping that is a server, or a whole pod, has of its own.
_OWN_KEYS: Final = frozenset(
    {*_MODEL_KEYS, *_COMMAND_KEYS, *_REPLICA_KEYS, "container", "containers", "enabled", "image", "resources"}
)


def _number(node: Node | None) -> float:
    try:
        return float(node.value) if isinstance(node, Scalar) else 0.0
    except ValueError:
        return 0.0


def _flag_of(key: str) -> str:
    flag = flag_of_key(key)
    if flag.startswith("vllm-"):  # `vllmMaxModelLen`, `vllmIsTrustRemoteCode`
        flag = flag.removeprefix("vllm-").removeprefix("is-")
    return _ALIASES.get(flag, flag)


def _flags(node: Mapping, depth: int = 0) -> Iterator[Word]:
    """Arguments that stand in a mapping under their names."""
    for entry in node.items():
        key, value = entry.key.value, entry.value
        flag = _flag_of(key)
        if isinstance(value, Mapping) and flag in _SWITCHES:
            yield from _switch(flag, key, value)
        elif flag in VLLM_FLAGS:
            yield from _flag_words(flag, value)
        elif depth == 0 and (given := _held(node, key)) is not None:
            yield from _flags(given, 1)
            yield from _plain_flags(given)
        elif depth == 0 and key == "model" and isinstance(value, Mapping):
            yield from _flags_inside(value)


# What the length of a model means to its server; of another mapping it may be that of anything.
_LENGTHS_INSIDE: Final = frozenset({"max-len", "max-length"})


def _flags_inside(model: Mapping) -> Iterator[Word]:
    """Arguments that stand with the model's name in a mapping of its own: ``model: {id: x, maxLen: 4096}``."""
    for entry in model.items():
        if flag_of_key(entry.key.value) in _LENGTHS_INSIDE:
            yield from _flag_words("max-model-len", entry.value)
    yield from _flags(model, 1)


def _switch(flag: str, key: str, node: Mapping) -> Iterator[Word]:
    """What ``toolCalling: {enabled: true, parser: hermes}`` says."""
    truth = node.get("enabled")
    if scalar_bool(truth) is not True:
        return
    yield from _flag_words(flag, truth)
    for entry in node.items():
        joined = _flag_of(f"{key}-{flag_of_key(entry.key.value)}")
        if joined in VLLM_FLAGS:
            yield from _flag_words(joined, entry.value)


def _deep_config(node: Mapping, told: Set[str], depth: int) -> Iterator[Word]:
    """Arguments by their own names under a ``config`` somewhere below a server, where nothing else is one."""
    for entry in node.items():
        value = entry.value
        if not isinstance(value, Mapping) or depth > MAX_CONFIG_DEPTH or _model_of_node(value) or value.get("image"):
            continue
        names = {item.key.value for item in value.items()}
        if depth and entry.key.value == "config" and names & VLLM_FLAGS and all("_" not in name for name in names):
            for item in value.items():
                if item.key.value not in told:
                    yield from _flag_words(item.key.value, item.value)
        elif not re.search(_OTHERS, entry.key.value, re.IGNORECASE):
            yield from _deep_config(value, told, depth + 1)


MAX_CONFIG_DEPTH: Final = 3


def _flags_of_model(site: _Site) -> list[Word]:
    """Arguments that stand with the model in a mapping around the server: ``model: {name: x, maxModelLen: 4096}``."""
    for node in (site.node, *site.around):
        model = node.get("model")
        if isinstance(model, Mapping):
            return [*(_flags_inside(model) if node is not site.node else ()), *_plain_flags(model)]
    return []


def _plain_flags(node: Mapping) -> Iterator[Word]:
    for entry in node.items():
        if isinstance(entry.value, Scalar) and (flag := _flag_of(entry.key.value)) in _PLAIN_FLAGS:
            yield from _flag_words(flag, entry.value)


_ASKED: Final = re.compile(r"(?:url|uri|endpoint|base|host)$", re.IGNORECASE)
_SERVER: Final = re.compile(r"https?://[^/\s]*vllm|https?://[^/\s]+/v1/?$", re.IGNORECASE)


def _asks(node: Mapping) -> bool:
    """Whether a mapping says where a server like vLLM answers: it is of a client's settings."""
    return any(
        isinstance(entry.value, Scalar) and _ASKED.search(entry.key.value) and _SERVER.match(entry.value.value)
        for entry in node.items()
    )


def _is_other(site: _Site) -> bool:
    """Whether the keys on the way, or the engine that a mapping names, are those of another program."""
    named = scalar_at(site.node, "backend") or scalar_at(site.node, "engine") or scalar_at(site.node, "framework")
    if named is not None and named.plain and named.value and "vllm" not in named.value.lower():
        return True
    return any(re.search(_OTHERS, key, re.IGNORECASE) for key in site.keys)


_OTHERS: Final = (
    r"router|benchmark|client|scheduler|epp|sidecar|proxy|download|sglang|trtllm|tgi\b|llama_?cpp|ollama|lmdeploy"
)


def _model(site: _Site, holders: Sequence[Mapping] = ()) -> Scalar | None:
    """The model that a server's mapping names, the mappings of its arguments, or one around it."""
    own = site.keys[-1:] == ("model",) and site.node.get("image") is None
    listed = site.keys[-2:-1] == ("models",)  # what it is called by there says less than its other keys
    itself = [Mapping(site.node.span, [Entry(Scalar(site.span, "model"), site.node)])] if own or listed else []
    for node in (*(itself if own else ()), site.node, *itself, *holders, *site.around):
        found = _model_of_node(node)
        if found is not None:
            return found
    for node in (site.node, *site.around):
        for key in _MODEL_HOLDERS:
            inner = node.get(key)
            found = _model_of_node(inner) if isinstance(inner, Mapping) else None
            if found is not None:
                return found
    return None


def _model_of_node(node: Mapping) -> Scalar | None:
    """The model that a mapping names: of several names, the first that tells where the model is."""
    if not node.has_any(_TELLS_MODEL):
        return None
    found: list[Scalar] = []
    for key in _MODEL_KEYS:
        value = node.get(key)
        found += [value] if isinstance(value, Scalar) else _names_inside(value)
    stored = scalar_at(node.get("storage"), "storageUri")  # a volume has a storage of its own
    found += [stored] if stored is not None else []
    found = [value for value in found if value.value and not is_null(value)]
    return next((value for value in found if _PLACE.search(value.value)), found[0] if found else None)


def _names_inside(model: Node | None) -> list[Scalar]:
    found: list[Scalar] = []
    for key in _INSIDE_MODEL if isinstance(model, Mapping) else ():
        value = node_at(model, key)
        value = value if isinstance(value, Scalar) else scalar_at(value, "uri")
        found += [value] if value is not None else []
    return found


# A repository, a path or an address; a page of the web is none of a model.
_PLACE: Final = re.compile(r"^(?!https?:)[^\s]*/|\{\{")


def _model_variable(environment: dict[str, Value]) -> Word | None:
    found = (environment[name] for name in MODEL_VARIABLES if name in environment)
    return next((value.word() for value in found if value.value), None)


def _model_words(model: Scalar | None) -> list[Word]:
    if model is None:
        return []
    value = mark_placeholders(Value(model.text))
    if value.value.startswith("hf://"):
        value = value.slice(5, len(value.text))
    return [Word(Text.at("--model", model.span)), value.word()]


def _nearest(site: _Site, keys: Sequence[str]) -> Node | None:
    for node in (site.node, *site.around):
        for key in keys:
            found = node.get(key)
            if isinstance(found, Scalar) and not is_null(found):
                return found
    return None


def _image(site: _Site) -> Word | None:
    return next((word for node in (site.node, *site.around) if (word := _image_of_node(node)) is not None), None)


def _image_of_node(node: Mapping) -> Word | None:
    image = node.get("image")
    word = _image_word(image)
    if word is not None:
        return word
    for several in (image, node.get("images")):  # one image for each of several backends
        for entry in entries_at(several):
            if "vllm" in entry.key.value.lower() and (word := _image_word(entry.value)) is not None:
                return word
    for keys, tags in ((("repository",), ("tag",)), (_FLAT_REPOSITORY_KEYS, _FLAT_TAG_KEYS)):
        joined = _joined(_first(node, keys), _first(node, tags))
        if joined is not None and "vllm" in joined.value.lower():
            return joined
    return None


def _first(node: Node, keys: Sequence[str]) -> Scalar | None:
    return next((found for key in keys if (found := scalar_at(node, key)) is not None and found.value), None)


def _image_word(image: Node | None) -> Word | None:
    if isinstance(image, Scalar):
        return mark_placeholders(Value(image.text)).word() if image.value and not is_null(image) else None
    if image is None:
        return None
    tag = _first(image, _TAG_KEYS)
    word = _joined(_first(image, _REPOSITORY_KEYS), tag)
    if word is None and tag is not None and "/" in tag.value:
        return _image_word(tag)  # all of it under one key
    registry = scalar_at(image, "registry")
    if word is None or registry is None or not registry.value:
        return word
    return Value.join([Value(registry.text), Value(Text.at("/", registry.span)), value_of_word(word)]).word()


def _joined(repository: Scalar | None, tag: Scalar | None) -> Word | None:
    if repository is None or not repository.value or is_null(repository):
        return None
    parts = [mark_placeholders(Value(repository.text))]
    if tag is not None and tag.value and not is_null(tag):
        separator = "@" if tag.value.startswith("sha256:") else ":"
        parts += [Value(Text.at(separator, tag.span)), mark_placeholders(Value(tag.text))]
    return Value.join(parts).word()


def _image_of(chart: Chart, site: _Site) -> Word | None:
    for paths in chart.image:
        first = _at(site, paths[0])
        if isinstance(first, Scalar):
            second = _at(site, paths[1]) if len(paths) == 2 else None
            word = _joined(first, second if isinstance(second, Scalar) else None)
            if word is not None:
                return word
    return None


def _is_named(site: _Site, image: Word | None) -> bool:
    keys = " ".join(site.keys).lower()
    backend = scalar_at(site.node, "backend") or scalar_at(site.node, "engine") or scalar_at(site.node, "framework")
    return (
        "vllm" in keys
        or (image is not None and is_vllm_image(image.value))
        or (backend is not None and backend.value.lower() == "vllm")
    )


def _environment(node: Mapping) -> tuple[dict[str, Value], dict[str, Span]]:
    values: dict[str, Value] = {}
    spans: dict[str, Span] = {}
    for key in ("env", "envs", "extraEnv", "extraEnvs", "extraEnvVars", "environment"):
        holder = node.get(key)
        if isinstance(holder, Mapping):
            for entry in holder.items():
                if isinstance(entry.value, Scalar):
                    values[entry.key.value] = mark_placeholders(Value(entry.value.text))
                    spans[entry.key.value] = entry.key.span
        elif isinstance(holder, YamlSequence):
            for item in holder.items:
                name, value = scalar_at(item, "name"), scalar_at(item, "value")
                if name is not None and name.value:
                    unknown = Value.unknown(Text.at(name.value, item.span), "its source is not read", splits=False)
                    values[name.value] = mark_placeholders(Value(value.text)) if value is not None else unknown
                    spans[name.value] = item.span
    return values, spans


_GPU_COUNT: Final = re.compile(
    r"(?:num|amd|nvidia|request|n)?_?gpus?_?(?:request|limit)?_?(?:count|num|number)?", re.IGNORECASE
)


def _devices(site: _Site) -> tuple[GpuRequest, ...]:
    for node in (site.node, *site.around):
        requests, _ = accelerator_requests(node)
        if requests:
            return requests
        resources = node.get("resources")
        for entry in (*node.items(), *(resources.items() if isinstance(resources, Mapping) else ())):
            count: Node | None = entry.value if _GPU_COUNT.fullmatch(entry.key.value) else None
            if isinstance(count, Mapping):
                count = count.get("count") or count.get("number")
            number = scalar_int(count)
            if number is not None and count is not None:
                return (GpuRequest("device", number, count.span),)
        if node.get("resources") is not None:
            return ()  # what is around describes something else
    return ()


# A resource profile of KubeAI: the machine's name, how many of it.
_PROFILE: Final = re.compile(r"(?:(?:nvidia|amd|intel|google)-(?:gpu-)?)?(?P<name>[\w.-]+):(?P<count>[0-9]{1,4})")


def _profile(chart: Chart, site: _Site) -> tuple[Scalar, re.Match[str]] | None:
    for path in chart.gpus:
        node = _at(site, path)
        match = _PROFILE.fullmatch(node.value) if isinstance(node, Scalar) else None
        if isinstance(node, Scalar) and match is not None:
            return node, match
    return None


def _gpus_of(chart: Chart, site: _Site) -> tuple[GpuRequest, ...]:
    profile = _profile(chart, site)
    if profile is not None:
        written, match = profile
        return () if match["name"] == "cpu" else (GpuRequest("device", int(match["count"]), written.span),)
    product, place = 1, None
    for path in chart.gpus:
        node = _at(site, path)
        count = scalar_int(node)
        if node is not None and count is not None:
            product, place = product * count, node.span
    return (GpuRequest("device", product, place),) if place is not None else ()


def _hints(site: _Site) -> Iterator[NodeHint]:
    for node in (site.node, *site.around):
        entries = entries_at(node, "nodeSelector")
        for entry in entries:
            if isinstance(entry.value, Scalar):
                yield NodeHint(entry.key.value, (entry.value.value,), entry.key.span)
        terms = items_at(node, "nodeSelectorTerms")
        yield from hints_of_terms(terms)
        if entries or terms:
            return


def _shared_memory(node: Mapping) -> SharedMemory | None:
    for keys in (("shmSize",), ("shmSizeLimit",), ("shm", "size"), ("shm", "sizeLimit"), ("dshm", "sizeLimit")):
        size = scalar_at(node, *keys)
        if size is not None and size.value:
            return SharedMemory(quantity_bytes(size.value), "emptyDir", size.span)
    return None
