"""Scenarios of llm-d-benchmark that are shell scripts: exported variables that become values of a chart.

In a list of arguments ``____`` stands for what separates two of them and ``REPLACE_ENV_X`` for the variable ``X``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kvgate.manifests.container import Find, Start
from kvgate.manifests.started import Surroundings, unit_of
from kvgate.manifests.unit import TEMPLATE_ENTRY, GpuRequest, NodeHint, ServeUnit, Unread
from kvgate.shell.expand import unset
from kvgate.shell.script import variables
from kvgate.shell.value import Value
from kvgate.shell.words import split_words
from kvgate.source.text import SourceFile, Text, TooLargeError, Word

_ROLES: Final = ("MODELSERVICE_PREFILL", "MODELSERVICE_DECODE", "STANDALONE")
_SIZES: Final = (
    ("TENSOR_PARALLELISM", "tensor-parallel-size"),
    ("DATA_PARALLELISM", "data-parallel-size"),
    ("DATA_LOCAL_PARALLELISM", "data-parallel-size-local"),
)
_BLANK: Final = re.compile(r"_{4}")
_REPLACE: Final = re.compile(r"REPLACE_ENV_(\w+?)(?=_{4}|\W|$)")


def read_scenario(file: SourceFile, find: Find) -> Iterator[ServeUnit | Unread]:
    """The servers of a scenario, one for each role that has arguments and replicas."""
    text = Text.of_span(file.span(0, len(file.text)))
    try:
        known = variables(text, find=find)
    except TooLargeError as error:
        yield Unread(f"{error} is not read", file.line_span(1), serves=True)
        return
    models = known.get("LLMDBENCH_DEPLOY_MODEL_LIST")
    for role in _ROLES:
        prefix = f"LLMDBENCH_VLLM_{role}_"
        arguments = known.get(prefix + "EXTRA_ARGS") or known.get(prefix + "ARGS")
        replicas = _number(known.get(prefix + "REPLICAS"))
        if arguments is None or not arguments.value.strip() or replicas == 0:
            continue
        yield _server(file, role, arguments, models, known, replicas)


def _server(
    file: SourceFile,
    role: str,
    arguments: Value,
    models: Value | None,
    known: Mapping[str, Value],
    replicas: int | None,
) -> ServeUnit:
    words: list[Word] = []
    if models is not None and models.value:
        words += [Word(Text.at("--model", models.span)), _first(models).word()]
    product, place = 1, None
    for name, flag in _SIZES:
        size = known.get(f"LLMDBENCH_VLLM_{role}_{name}")
        number = _number(size)
        if size is None or number is None:
            continue
        if name != "DATA_PARALLELISM":
            product, place = product * number, size.span
        if number > 1:
            words += [Word(Text.at(f"--{flag}", size.span)), size.word()]
    words += split_words(_replaced(arguments, known))
    affinity = known.get("LLMDBENCH_VLLM_COMMON_AFFINITY")
    hints: tuple[NodeHint, ...] = ()
    if affinity is not None and ":" in affinity.value:
        key, _, value = affinity.value.partition(":")
        hints = (NodeHint(key, (value,), affinity.span),)
    count = known.get(f"LLMDBENCH_VLLM_{role}_REPLICAS")
    around = Surroundings(
        file=file,
        kind="script",
        names=(role.rpartition("_")[2].lower(),),
        devices=(GpuRequest("device", product, place),) if place is not None else (),
        hints=hints,
        replicas=replicas,
        replicas_span=count.span if count is not None and replicas is not None else None,
    )
    return unit_of(Start(tuple(words), TEMPLATE_ENTRY, False, (), arguments.span), around, 0)


def _first(models: Value) -> Value:
    end = models.masked().find(",")
    return models if end < 0 else models.slice(0, end)


def _number(value: Value | None) -> int | None:
    if value is None or not value.resolved or not re.fullmatch(r"[0-9]{1,6}", value.value):
        return None
    return int(value.value)


def _replaced(value: Value, known: Mapping[str, Value]) -> Value:
    """The list of arguments as a command line."""
    text = value.value
    begin = 1 if text.startswith("[") else 0
    end = len(text) - (1 if text.endswith("]") else 0)
    parts: list[Value] = []
    at = begin
    for match in re.finditer(f"{_REPLACE.pattern}|{_BLANK.pattern}", text[:end]):
        if match.start() < at:
            continue
        parts.append(value.slice(at, match.start()))
        at = match.end()
        use = value.slice(match.start(), match.end())
        name = match.group(1)
        if name is None:
            parts.append(Value(Text.at(" ", use.span)))
        elif name in known:
            parts.append(known[name].at(use.span))
        else:
            parts.append(Value.unknown(use.text, unset(name), splits=False))
    return Value.join([*parts, value.slice(at, end)])
