"""Environment variables that vLLM reads otherwise than meant, or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from kvgate.findings.finding import Severity
from kvgate.manifests.tree import node_at
from kvgate.patterns import regex
from kvgate.ruleset.case import Case
from kvgate.ruleset.checks import NoParams, check
from kvgate.ruleset.checks.arguments import ArgumentProblems, argument_problems
from kvgate.ruleset.model import Draft
from kvgate.ruleset.scene import Scene
from kvgate.source.yaml_tree import is_go_template

_VLLM: Final = regex(r"VLLM_[A-Z0-9_]+")
#: Variables whose only remaining meaning is what every release does anyway, with the value that says so.
_HARMLESS: Final = {"VLLM_USE_V1": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}


@check(
    "unknown-to-release",
    params=ArgumentProblems,
    values=("flag", "problem", "instead", "release", "origin", "name", "lifetime"),
)
def unknown_to_release(case: Case, params: ArgumentProblems) -> Iterator[Draft]:
    """Flags that the release does not have, and variables that it does not read."""
    for draft in argument_problems(case, params):
        yield Draft(
            at=draft.at,
            values={**draft.values, "name": "", "lifetime": ""},
            rests_on=draft.rests_on,
            ceiling=draft.ceiling,
            fix=draft.fix,
        )
    yield from _unread_variables(case)


def _unread_variables(case: Case) -> Iterator[Draft]:
    from kvgate.engine.defaults import env_known
    from kvgate.engine.replacements import replacement_of

    version = case.plan.version
    origin = case.plan.origins.get("vllm_version")
    if case.backend in ("tpu", "hpu") or (case.plan.image is not None and not case.plan.image.is_vllm):
        return
    for variable in case.unit.environment:
        if not _VLLM.fullmatch(variable.name):
            continue
        known = env_known(variable.name, version)
        if known is None or known.present != "absent":
            continue
        from kvgate.engine.releases import compare_versions

        later = compare_versions(known.lifetime.first, version) > 0
        lifetime = (
            f"it came with {known.lifetime.first}"
            if later
            else f"it is gone since {known.lifetime.gone_in or known.lifetime.last}"
        )
        other = replacement_of(variable.name, version)
        value = variable.value.value if variable.value is not None else None
        harmless = value is not None and _HARMLESS.get(variable.name) == value and not later
        yield Draft(
            at=variable.span,
            variant="variable",
            values={
                "flag": variable.name,
                "problem": "",
                "instead": f" Instead: {other.text}." if other is not None and not later else "",
                "release": version,
                "origin": str(origin) if origin is not None else "unknown",
                "name": variable.name,
                "lifetime": lifetime,
            },
            rests_on=("vllm_version",),
            ceiling=Severity.INFO if harmless else None,
        )


#: Entry points that are vLLM's own, which read no variables beside the ones that vLLM declares.
_OWN_ENTRIES: Final = ("vllm serve", "vllm.entrypoints", "the image's entry point")


@check("vllm-environment", values=("service", "variable", "value", "flag", "why", "name", "release"), scope="tree")
def vllm_environment(scene: Scene, params: NoParams) -> Iterator[Draft]:
    """Variables that Kubernetes invents for a Service and vLLM takes for its own, or that only look like vLLM's."""
    # a file that does not say vllm holds no Service of that name, and need not be read as YAML
    named = any("vllm" in file.text.lower() or is_go_template(file.text) for file in scene.objects.files_of("Service"))
    for case in scene.cases:
        if named:
            yield from _collisions(scene, case)
        yield from _broken_port(case)
        yield from _invented(case)


def _collisions(scene: Scene, case: Case) -> Iterator[Draft]:
    """``VLLM_PORT=tcp://10.0.0.1:8000`` from a Service named vllm (``envs.py``, ``get_vllm_port``: ValueError)."""
    from kvgate.engine.defaults import env_presence
    from kvgate.manifests.objects import nearest

    if not case.host.is_object or case.host.pod is None or not case.host.service_links:
        return
    own = {variable.name for variable in case.unit.environment}
    services = [
        found
        for found in scene.objects.of_kind("Service")
        if found.namespace is None or case.unit.namespace is None or found.namespace == case.unit.namespace
    ]
    renamed = _renamed(scene)
    for service in nearest(services, case.unit.path, lambda found: found.path):
        variable = re.sub(r"[^A-Z0-9]", "_", service.name.upper()) + "_PORT"
        if not variable.startswith("VLLM_") or variable in own:
            continue
        if service.text("spec", "type") == "ExternalName" or service.text("spec", "clusterIP") == "None":
            continue  # no variables come of these
        if (service.path, service.node.span.start) in renamed:
            continue
        if env_presence(variable, case.plan.version) != "present":
            continue
        yield Draft(
            at=service.span,
            case=case,
            values={
                "service": service.name,
                "variable": variable,
                "value": f"tcp://<cluster IP>:{_port(service.items('spec', 'ports'))}",
                "flag": "",
                "why": "",
                "name": "",
                "release": case.release_words,
            },
            related=(("unit", "the server that gets the variable"),),
        )


def _renamed(scene: Scene) -> frozenset[tuple[str, int]]:
    """Path and beginning of each object to whose name kustomizations add something."""
    from kvgate.manifests.kustomize import renamed_objects

    return renamed_objects(scene.tree)


def _port(ports: list[Any]) -> str:
    node = node_at(ports[0], "port") if ports else None
    return getattr(node, "value", "<port>")


def _broken_port(case: Case) -> Iterator[Draft]:
    value = case.plan.environment.get("VLLM_PORT")
    if value is None or value.strip().isdecimal() or not value.strip():
        return
    yield Draft(
        at="env:VLLM_PORT",
        case=case,
        variant="no-number",
        values={
            "service": "", "variable": "VLLM_PORT", "value": value, "flag": "", "why": "", "name": "VLLM_PORT",
            "release": case.release_words,
        },
    )  # fmt: skip


def _invented(case: Case) -> Iterator[Draft]:
    """``VLLM_MAX_MODEL_LEN`` and the like, which no release reads."""
    from kvgate.engine.defaults import env_known
    from kvgate.tables import load_table

    image = case.plan.image
    if image is None or not image.official or not case.unit.entry.startswith(_OWN_ENTRIES):
        return
    flags = {entry["dest"]: name for name, entry in load_table("engine/flags")["flags"].items()}
    used = _command_text(case)
    # a program that makes the command line reads what it likes
    files = {word.span.file.path: word.span.file.text for word in case.unit.words}
    programs = [text for path, text in files.items() if path != case.unit.span.file.path]
    for variable in case.unit.environment:
        if not _VLLM.fullmatch(variable.name) or env_known(variable.name, case.plan.version) is not None:
            continue
        if re.search(rf"\$[{{(]?{variable.name}\b", used) or any(variable.name in text for text in programs):
            continue
        dest = variable.name.removeprefix("VLLM_").lower()
        dest = {"model_name": "model", "model_id": "model", "args": "", "extra_args": ""}.get(dest, dest)
        if dest not in flags and dest != "model":
            continue
        set_anyway = dest in case.plan.parsed.arguments or (dest == "model" and case.plan.parsed.model is not None)
        flag = "the model as first argument" if dest == "model" else flags[dest]
        yield Draft(
            at=variable.span,
            case=case,
            variant="invented",
            values={
                "service": "", "variable": variable.name, "value": "", "flag": flag, "why": "",
                "name": variable.name, "release": case.release_words,
            },
            ceiling=Severity.INFO if set_anyway else None,
        )  # fmt: skip


def _command_text(case: Case) -> str:
    """Everything from which the command line is made, as written."""
    node = case.unit.node
    parts = [word.value for word in case.unit.words]
    parts += [word.span.text for word in case.unit.words]
    for key in ("command", "args", "entrypoint"):
        inner = node_at(node, key)
        if inner is not None:
            parts.append(inner.span.text)
    if not case.host.is_object and not case.host.is_compose:
        parts.append(case.unit.span.file.text)
    return "\n".join(parts)
