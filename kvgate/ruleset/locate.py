"""Symbolic places -> spans: the only module that knows where a unit's things stand.

``arg:max_model_len`` is a flag with its value, ``image``, ``model``, ``replicas``, ``resource:gpu``,
``env:VLLM_PORT``, ``shared-memory``, ``gpu`` (what names the GPU), ``workload`` (where the load is declared) and
``unit``, its own first line. What is not written falls back to ``unit``: an absence is found at the unit.
"""

from __future__ import annotations

from typing import Final

from kvgate.patterns import regex
from kvgate.ruleset.case import Case
from kvgate.source.text import Span

_PLACE: Final = regex(
    r"unit|image|model|replicas|shared-memory|workload|gpu|resource:gpu|arg:[a-z_][a-z0-9_]*|env:[A-Za-z_][A-Za-z0-9_]*"
)


class PlaceError(ValueError):
    """The text is no symbolic place."""


def read_place(text: str) -> str:
    """The place itself.

    Raises:
        PlaceError: it is none.
    """
    if not _PLACE.fullmatch(text):
        raise PlaceError(
            f'"{text}" is no place; known: unit, image, model, replicas, shared-memory, workload, gpu, resource:gpu, '
            "arg:NAME, env:NAME"
        )
    return text


def locate(case: Case, place: str) -> Span:
    """The span of a place, the unit's own line where the files do not have it."""
    return find(case, place) or unit_line(case)


def unit_line(case: Case) -> Span:
    """The first line of the unit."""
    span = case.unit.span
    return span.file.line_span(span.line)


def find(case: Case, place: str) -> Span | None:
    """The span of a place, None where the files do not have it."""
    kind, _, name = place.partition(":")
    unit, plan = case.unit, case.plan
    match kind:
        case "arg":
            argument = plan.parsed.arguments.get(name)
            return argument.span if argument is not None else None
        case "env":
            return next((variable.span for variable in unit.environment if variable.name == name), None)
        case "image":
            return unit.image.span if unit.image is not None else None
        case "model":
            if plan.parsed.model is not None:
                return plan.parsed.model.span
            return unit.storage_model.span if unit.storage_model is not None else None
        case "replicas":
            return unit.replicas_span
        case "resource":
            return unit.gpu_requests[0].span if unit.gpu_requests else None
        case "shared-memory":
            return unit.shared_memory.span if unit.shared_memory is not None else None
        case "workload" | "gpu":
            origin = plan.origins.get(kind)
            return origin.span if origin is not None else None
        case _:
            return unit_line(case)
