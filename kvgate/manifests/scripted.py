"""YAML that carries shell scripts which start vLLM: SkyPilot, dstack, Truss, GitHub and GitLab pipelines.

One table says where each format keeps its scripts, variables, image, accelerators and replicas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import Final

from kvgate.manifests.container import find_requirement
from kvgate.manifests.launch import starts_of_script
from kvgate.manifests.started import Surroundings, is_launcher_to_be, unit_of
from kvgate.manifests.tree import Tree, entries_at, items_at, node_at, scalar_at
from kvgate.manifests.unit import GpuRequest, NodeHint, ServeUnit, Unread
from kvgate.records import record
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Text, TooLargeError, Word
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, Sequence, is_null, scalar_int


@record
class Script:
    """One script of a document with what surrounds it."""

    name: str
    text: Value
    node: Node
    variables: dict[str, Value] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    image: Word | None = None
    devices: tuple[GpuRequest, ...] = ()
    hints: tuple[NodeHint, ...] = ()
    replicas: Node | None = None
    setup: Text | None = None


def is_scripted(document: Node, file: SourceFile) -> bool:
    """Whether a document is of one of these formats."""
    return isinstance(document, Mapping) and any(applies(document, file) for _, applies, _ in FORMATS)


def read_scripted(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The serve units in the scripts of a document of one of these formats."""
    if not isinstance(document, Mapping):
        return
    for kind, applies, scripts in FORMATS:
        if applies(document, file):
            for script in scripts(document):
                yield from _units(file, document, kind, script)
                if "<<" in script.text.value:
                    from kvgate.manifests.scripts import read_here_documents

                    yield from read_here_documents(tree, file, script.text)
            for entry in _jobs(document):
                services = node_at(entry.value, "services")
                if services is not None:
                    from kvgate.manifests.keyed_commands import read_keyed_commands

                    yield from read_keyed_commands(tree, file, services, (entry.key.value, "services"))
            return


def _jobs(document: Mapping) -> Iterator[Entry]:
    """The jobs of a pipeline, beside which services may run."""
    yield from entries_at(document, "jobs") or document.items()


def _units(file: SourceFile, document: Mapping, kind: str, script: Script) -> Iterator[ServeUnit | Unread]:
    if "vllm" not in script.text.value.lower():
        return
    try:
        starts = starts_of_script(script.text, script.variables)
    except TooLargeError as error:
        yield Unread(f"{error} is not read", script.node.span, serves=True)
        return
    count = scalar_int(script.replicas)
    requirement = find_requirement([script.text.text, *([script.setup] if script.setup is not None else [])])
    around = Surroundings(
        file=file,
        kind=kind,
        names=(script.name,),
        variables=script.variables,
        spans=script.spans,
        image=script.image,
        devices=script.devices,
        hints=script.hints,
        replicas=count,
        replicas_span=script.replicas.span if script.replicas is not None and count is not None else None,
        node=script.node,
        document=document,
        requirement=requirement,
    )
    for number, start in enumerate(start for start in starts if not is_launcher_to_be(start)):
        yield unit_of(start, around, number)


def _variables(*holders: Node | None) -> tuple[dict[str, Value], dict[str, Span]]:
    """Variables written as a mapping, or as a list of ``NAME=value``; the later holders win."""
    values: dict[str, Value] = {}
    spans: dict[str, Span] = {}
    for holder in holders:
        for entry in holder.items() if isinstance(holder, Mapping) else ():
            if isinstance(entry.value, Scalar) and not is_null(entry.value):
                values[entry.key.value] = Value(entry.value.text)
                spans[entry.key.value] = entry.key.span
        for item in holder.items if isinstance(holder, Sequence) else ():
            if isinstance(item, Scalar) and "=" in item.value:
                name, _, rest = item.value.partition("=")
                values[name] = Value(item.text.slice(len(item.value) - len(rest), len(item.value)))
                spans[name] = item.span
    return values, spans


def _tell(numbers: dict[str, int], span: Span, variables: dict[str, Value], spans: dict[str, Span]) -> None:
    """Adds the variables by which a script learns about its machines."""
    for name, number in numbers.items():
        variables.setdefault(name, Value(Text.at(str(number), span)))
        spans.setdefault(name, span)


def _joined(nodes: list[Node]) -> Value | None:
    """Command lines one below the other."""
    parts: list[Value] = []
    for node in nodes:
        if isinstance(node, Scalar):
            if parts:
                parts.append(Value(Text.at("\n", node.span)))
            parts.append(Value(node.text))
    return Value.join(parts) if parts else None


def _image(node: Scalar | None) -> Word | None:
    if node is None or not node.value:
        return None
    text = node.text
    return Value(text.slice(7, len(text)) if text.value.startswith("docker:") else text).word()


# -- SkyPilot ----------------------------------------------------------------------------------------------------------


def _is_skypilot(document: Mapping, file: SourceFile) -> bool:
    return isinstance(document.get("run"), Scalar) and any(
        document.get(key) is not None for key in ("resources", "setup", "envs", "num_nodes")
    )


# SkyPilot names the larger boards apart (`sky show-gpus`): plain names are the smaller ones.
_SKYPILOT_NAMES: Final = {"A100": "A100-40GB", "V100": "V100-16GB"}


def _skypilot(document: Mapping) -> Iterator[Script]:
    run = scalar_at(document, "run")
    if run is None:
        return
    variables, spans = _variables(document.get("envs"), document.get("secrets"))
    devices, hints = _accelerators(_wanted(node_at(document, "resources")))
    hints = tuple(
        replace(hint, values=tuple(_SKYPILOT_NAMES.get(name, name) for name in hint.values)) for hint in hints
    )
    nodes = document.get("num_nodes")
    count = scalar_int(nodes) or 1
    if devices and devices[0].count is not None:
        # https://docs.skypilot.co/en/latest/running-jobs/environment-variables.html
        told = {"SKYPILOT_NUM_GPUS_PER_NODE": devices[0].count, "SKYPILOT_NUM_NODES": count}
        _tell(told, devices[0].span, variables, spans)
    replicas = node_at(document, "service", "replicas") or node_at(
        document, "service", "replica_policy", "min_replicas"
    )
    name, setup = scalar_at(document, "name"), scalar_at(document, "setup")
    yield Script(
        name.value if name is not None else "run",
        Value(run.text),
        run,
        variables,
        spans,
        _image(scalar_at(document, "resources", "image_id")),
        devices,
        hints,
        replicas,
        setup.text if setup is not None else None,
    )


def _wanted(resources: Node | None) -> list[Node]:
    """The accelerators that a task asks for; those of its alternatives (``any_of``, ``ordered``) where it has some."""
    for key in ("any_of", "ordered"):
        found = [node for item in items_at(resources, key) if (node := node_at(item, "accelerators")) is not None]
        if found:
            return found
    own = node_at(resources, "accelerators")
    return [] if own is None else [own]


def _accelerators(nodes: list[Node]) -> tuple[tuple[GpuRequest, ...], tuple[NodeHint, ...]]:
    """``A100:8``, ``{A100: 8, H100: 4}``, ``[A100:8, H100:8]``: one of them is taken, so counts must agree."""
    choices: list[tuple[str, int]] = []
    for node in nodes:
        listed = node.items if isinstance(node, Sequence) else [node]
        choices += [_named_count(item.value) for item in listed if isinstance(item, Scalar)]
        for entry in node.items() if isinstance(node, Mapping) else ():
            count = scalar_int(entry.value)
            # `{L4:8, A100:4}` without blanks is a set of keys
            choices.append((entry.key.value, count) if count is not None else _named_count(entry.key.value))
    if not choices:
        return (), ()
    node = nodes[0]
    counts = {count for _, count in choices}
    count = counts.pop() if len(counts) == 1 else None
    reason = None if count is not None else "the accelerators to choose from differ in number"
    names = tuple(dict.fromkeys(name for name, _ in choices))
    return (GpuRequest("device", count, node.span, reason),), (NodeHint("gpu", names, node.span),)


def _named_count(text: str) -> tuple[str, int]:
    name, _, count = text.strip().partition(":")
    return name, int(count) if re.fullmatch(r"[0-9]{1,6}", count) else 1


# -- dstack ------------------------------------------------------------------------------------------------------------


def _is_dstack(document: Mapping, file: SourceFile) -> bool:
    kind = scalar_at(document, "type")
    return kind is not None and kind.value in ("service", "task") and document.get("commands") is not None


def _dstack(document: Mapping) -> Iterator[Script]:
    text = _joined(items_at(document, "commands"))
    node = document.get("commands")
    if text is None or node is None:
        return
    variables, spans = _variables(document.get("env"))
    devices, hints = _dstack_gpu(node_at(document, "resources", "gpu"))
    if devices and devices[0].count is not None:
        # https://dstack.ai/docs/reference/environment-variables
        each, nodes = devices[0].count, scalar_int(document.get("nodes")) or 1
        told = {"DSTACK_GPUS_PER_NODE": each, "DSTACK_NODES_NUM": nodes, "DSTACK_GPUS_NUM": each * nodes}
        _tell(told, devices[0].span, variables, spans)
    name = scalar_at(document, "name")
    image = _image(scalar_at(document, "image"))
    replicas = document.get("replicas")
    yield Script(
        name.value if name is not None else "commands", text, node, variables, spans, image, devices, hints, replicas
    )


def _dstack_gpu(node: Node | None) -> tuple[tuple[GpuRequest, ...], tuple[NodeHint, ...]]:
    """``A100:2``, ``80GB:2``, ``24GB``, ``2``, ``{name: [A100, H100], count: 2}``."""
    if isinstance(node, Mapping):
        count_node, names = node.get("count"), node.get("name")
        count = 1 if count_node is None else scalar_int(count_node)
        listed = names.items if isinstance(names, Sequence) else [names] if names is not None else []
        found = tuple(item.value for item in listed if isinstance(item, Scalar))
    elif isinstance(node, Scalar):
        parts = node.value.split(":")
        numbers = [part for part in parts if re.fullmatch(r"[0-9]{1,6}", part)]
        count = int(numbers[0]) if numbers else None if any(".." in part for part in parts[1:]) else 1
        found = tuple(name for part in parts for name in part.split(",") if re.fullmatch(r"[A-Za-z][\w-]*", name))
    else:
        return (), ()
    reason = None if count is not None else "the number of GPUs is a range"
    hints = (NodeHint("gpu", found, node.span),) if found else ()
    return (GpuRequest("device", count, node.span, reason),), hints


# -- pipelines ---------------------------------------------------------------------------------------------------------


def _is_github(document: Mapping, file: SourceFile) -> bool:
    return _has_steps(document.get("jobs")) or isinstance(node_at(document, "runs", "steps"), Sequence)


def _has_steps(jobs: Node | None) -> bool:
    return isinstance(jobs, Mapping) and any(
        isinstance(node_at(entry.value, "steps"), Sequence) for entry in jobs.items()
    )


def _github(document: Mapping) -> Iterator[Script]:
    jobs = [(entry.key.value, entry.value) for entry in entries_at(document, "jobs")]
    runs = document.get("runs")
    if runs is not None:
        jobs.append(("", runs))
    inputs = _inputs(document)
    for job, node in jobs:
        image = scalar_at(node, "container") or scalar_at(node, "container", "image")
        context = {**inputs, **_matrix(node)}
        for number, step in enumerate(items_at(node, "steps")):
            run = scalar_at(step, "run")
            if run is None:
                continue
            values, spans = _variables(document.get("env"), node_at(node, "env"), node_at(step, "env"))
            variables = {key: _expressions(value, context) for key, value in values.items()}
            known = {**context, **{f"env.{key}": value for key, value in variables.items()}}
            label = scalar_at(step, "id") or scalar_at(step, "name")
            name = "/".join(part for part in (job, label.value if label is not None else str(number)) if part)
            yield Script(name, _expressions(Value(run.text), known), run, variables, spans, _image(image))


def _inputs(document: Mapping) -> dict[str, Value]:
    """What a workflow, or an action, takes its inputs for where nobody gives others."""
    known: dict[str, Value] = {}
    for place in (("inputs",), ("on", "workflow_call", "inputs"), ("on", "workflow_dispatch", "inputs")):
        for entry in entries_at(document, *place):
            default = scalar_at(entry.value, "default")
            if default is not None and default.value:
                for name in ("inputs", "github.event.inputs"):
                    known.setdefault(f"{name}.{entry.key.value}", Value(default.text))
    return known


def _matrix(job: Node) -> dict[str, Value]:
    """What of a job's matrix has one value only."""
    known: dict[str, Value] = {}
    if node_at(job, "strategy", "matrix", "include") is not None:
        return known
    for entry in entries_at(job, "strategy", "matrix"):
        values = entry.value.items if isinstance(entry.value, Sequence) else []
        if len(values) == 1 and isinstance(values[0], Scalar):
            known[f"matrix.{entry.key.value}"] = Value(values[0].text)
    return known


_EXPRESSION: Final = re.compile(r"\$\{\{(?P<body>.*?)\}\}", re.DOTALL)
_OPERAND: Final = re.compile(r"\s*(?:'(?P<text>[^']*)'|(?P<number>[0-9.]+)|(?P<name>[A-Za-z_][\w.-]*))\s*")
# Contexts of which what is given nowhere is empty, so that the next operand counts.
_EMPTY: Final = re.compile(r"(?:env|inputs|vars|github\.event\.inputs)\.")


def _expressions(value: Value, context: dict[str, Value]) -> Value:
    """``${{ env.X }}`` and ``${{ inputs.x || 'y' }}`` by what is known, every other expression as a hole.

    https://docs.github.com/en/actions/reference/workflows-and-actions/expressions
    """

    def known(match: re.Match[str], whole: Value) -> Value:
        at = match.start("body")
        for operand in match["body"].split("||"):
            term = _OPERAND.fullmatch(operand)
            if term is None:
                break
            if term["name"] is None:
                start = at - match.start()
                return whole.slice(*(start + end for end in term.span("text" if term["number"] is None else "number")))
            found = context.get(term["name"])
            if found is not None:
                return found.at(whole.span)
            if not _EMPTY.match(term["name"]):
                break
            at += len(operand) + 2
        return Value.unknown(whole.text, "an expression that the pipeline evaluates")

    return value.replaced(_EXPRESSION.finditer(value.value), known)


def _is_gitlab(document: Mapping, file: SourceFile) -> bool:
    return file.path.endswith((".gitlab-ci.yml", ".gitlab-ci.yaml")) or (
        isinstance(document.get("stages"), Sequence)
        and any(node_at(entry.value, "script") is not None for entry in document.items())
    )


def _gitlab(document: Mapping) -> Iterator[Script]:
    for entry in document.items():
        lines: list[Node] = []
        for key in ("before_script", "script"):
            node = node_at(entry.value, key)
            lines += node.items if isinstance(node, Sequence) else [node] if node is not None else []
        text = _joined(lines)
        if text is None:
            continue
        variables, spans = _variables(document.get("variables"), node_at(entry.value, "variables"))
        image = scalar_at(entry.value, "image") or scalar_at(entry.value, "image", "name")
        yield Script(entry.key.value, text, entry.value, variables, spans, _image(image))


# -- Truss -------------------------------------------------------------------------------------------------------------


def _is_truss(document: Mapping, file: SourceFile) -> bool:
    return isinstance(node_at(document, "docker_server", "start_command"), Scalar)


def _truss(document: Mapping) -> Iterator[Script]:
    """``config.yaml`` of Baseten's Truss with a server of its own."""
    command = scalar_at(document, "docker_server", "start_command")
    if command is None:
        return
    variables, spans = _variables(document.get("environment_variables"))
    accelerator = node_at(document, "resources", "accelerator")
    devices, hints = _accelerators([] if accelerator is None else [accelerator])
    name = scalar_at(document, "model_name")
    yield Script(
        name.value if name is not None else "start_command",
        Value(command.text),
        command,
        variables,
        spans,
        _image(scalar_at(document, "base_image", "image")),
        devices,
        hints,
    )


FORMATS: Final[tuple[tuple[str, Callable[[Mapping, SourceFile], bool], Callable[[Mapping], Iterator[Script]]], ...]] = (
    ("github-workflow", _is_github, _github),
    ("gitlab-ci", _is_gitlab, _gitlab),
    ("dstack", _is_dstack, _dstack),
    ("skypilot", _is_skypilot, _skypilot),
    ("truss", _is_truss, _truss),
)
