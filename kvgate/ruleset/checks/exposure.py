"""Who can reach the server, and what it trusts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kvgate.manifests.tree import node_at
from kvgate.patterns import regex
from kvgate.ruleset.case import Case
from kvgate.ruleset.checks import NoParams, check
from kvgate.ruleset.model import Draft
from kvgate.source.text import Span
from kvgate.source.yaml_tree import Mapping, Scalar, scalar_bool

if TYPE_CHECKING:
    from kvgate.manifests.objects import ClusterObject

_GUARD: Final = regex(
    r"auth|oauth|jwt|oidc|whitelist|allowlist|allow-list|source-range|middlewares|mtls|client-cert|basic|cidr|authelia|forward",
    re.IGNORECASE,
)
_INTERNAL: Final = regex(r"internal", re.IGNORECASE)


@check("exposed", values=("how", "name", "keyed", "port"))
def exposed(case: Case, params: NoParams) -> Iterator[Draft]:
    """A server that anybody who reaches the node or the load balancer can use."""
    host = case.argument("host")
    if isinstance(host, str) and host.startswith(("127.", "localhost", "::1")):
        return
    names = {variable.name for variable in case.unit.environment}
    keyed = case.plan.values.get("api_key") is not None or "VLLM_API_KEY" in names
    keyed = keyed or case.host.value("vllmApiKey") is not None or case.host.value("apiKey") is not None
    found = _way_in(case)
    if found is None or (case.has_hidden_words and not keyed and found[0] == "compose"):
        return
    variant, how, name, place = found
    yield Draft(
        at=place,
        variant=("key-only" if variant is None else "key-only-host") if keyed else variant,
        values={"how": how, "name": name, "keyed": "", "port": how},
    )


def _way_in(case: Case) -> tuple[str | None, str, str, Span] | None:
    """How the server is reached from outside: a variant, words, a name, and the place that opens it."""
    host = case.host
    if host.is_object:
        return _through_cluster(case)
    if host.is_values:
        return _through_chart(case)
    if host.host_network is not None:
        return "host", "the host's network", case.unit.name, host.host_network
    port = _served_port(case)
    for published in host.published:
        inner = published.port.rpartition(":")[2] or published.port
        if published.local or (port is not None and inner.isdecimal() and inner != port):
            continue
        return "host", f"port {inner} of the host", case.unit.name, published.span
    return None


def _through_chart(case: Case) -> tuple[str | None, str, str, Span] | None:
    host = case.host
    kind = host.value("service", "type") or host.value("serviceType")
    if isinstance(kind, Scalar) and kind.value in ("LoadBalancer", "NodePort"):
        return None, f"the chart's Service of type {kind.value}", case.unit.name, kind.span
    switch = host.value("ingress", "enabled")
    annotations = host.value("ingress", "annotations")
    guarded = annotations is not None and _GUARD.search(annotations.span.text) is not None
    if isinstance(switch, Scalar) and scalar_bool(switch) and not guarded and host.value("ingress", "mtls") is None:
        return None, "the chart's Ingress", case.unit.name, switch.span
    return None


def _served_port(case: Case) -> str | None:
    port = case.plan.values.get("port")
    if port is None:
        return "8000" if "port" not in case.plan.values else None
    return str(port) if isinstance(port, int) else None


def _through_cluster(case: Case) -> tuple[str | None, str, str, Span] | None:
    objects = case.scene.objects
    if objects.policies(case.unit):
        return None
    for service in objects.services(case.unit):
        kind = node_at(service.at("spec"), "type")
        if not isinstance(kind, Scalar) or kind.value not in ("LoadBalancer", "NodePort"):
            continue
        if _internal(service) or service.at("spec", "loadBalancerSourceRanges") is not None:
            continue
        return None, f"Service {service.name} of type {kind.value}", service.name, kind.span
    for route in objects.routes(case.unit):
        if route.kind == "VirtualService" or _guarded(route):
            continue
        return None, f"{route.kind} {route.name}", route.name, route.span
    host = case.host
    if host.host_network is not None:
        return "host", "the node's network", case.unit.name, host.host_network
    for published in host.published:
        if not published.local:
            return "host", f"host port {published.port}", case.unit.name, published.span
    return None


def _internal(service: ClusterObject) -> bool:
    annotations = service.at("metadata", "annotations")
    if not isinstance(annotations, Mapping):
        return False
    return any(
        _INTERNAL.search(f"{entry.key.value}={entry.value.value}") is not None
        for entry in annotations.items()
        if isinstance(entry.value, Scalar) and entry.value.value.lower() not in ("false", "internet-facing", "external")
    )


def _guarded(route: ClusterObject) -> bool:
    annotations = route.at("metadata", "annotations")
    keys = [entry.key.value for entry in annotations.items()] if isinstance(annotations, Mapping) else []
    filters = [item for rule in route.items("spec", "rules") for item in [node_at(rule, "filters")] if item is not None]
    return any(_GUARD.search(key) for key in keys) or bool(filters) or _internal(route)


_PLAIN_PATH: Final = regex(r"[/.~]")


@check("trusted-code", values=("model",))
def trusted_code(case: Case, params: NoParams) -> Iterator[Draft]:
    """Code of a model repository is run in whatever state it has today."""
    if case.argument("trust_remote_code") is not True:
        return
    if case.plan.values.get("revision") is not None or case.plan.values.get("code_revision") is not None:
        return
    reference = case.plan.model_reference
    if reference is not None and (_PLAIN_PATH.match(reference) or "://" in reference):
        return
    yield Draft(at="arg:trust_remote_code", values={"model": reference or "whatever model is named"})


#: Values that stand for a secret and are none.
_PLACEHOLDER: Final = regex(
    r"^$|^\*+$|^<.*>$|^\{\{.*\}\}$|\$[{(A-Za-z]|empty|change[-_ ]?me|your|xxx+|dummy|example|none|null|token-abc123"
    r"|test|placeholder|redact|censor|hidden"
    r"|replace|secret|todo|sk-?(?:local|fake|1234|no-key|xxx)|^\.+$|^hf_x*$|^-$|insert|fake|local|abc123|my[-_]|some[-_]",
    re.IGNORECASE,
)
_TOKEN: Final = regex(r"^(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|nvapi-\S{20,})$")
_SECRET_NAMES: Final = regex(
    r"(?:^|_)(?:HF_TOKEN|HUGGING_?FACE(?:_HUB)?_TOKEN|API_KEY|SECRET_KEY|ACCESS_KEY|PASSWORD|SECRET)$", re.IGNORECASE
)


@check("inline-secret", values=("name", "where"))
def inline_secret(case: Case, params: NoParams) -> Iterator[Draft]:
    """A token or key that is written into the file."""
    for variable in case.unit.environment:
        if variable.value is None or not _SECRET_NAMES.search(variable.name):
            continue
        value = variable.value.value.strip()
        if _looks_real(value):
            yield Draft(at=_name_of(variable.span, variable.name), values=_said(variable.name, "the environment"))
    argument = case.plan.parsed.arguments.get("api_key")
    if argument is not None and argument.text is not None and argument.resolved:
        value = argument.text.span.text.strip().strip("\"'")  # the text itself is masked
        from_variable = any(
            variable.value is not None and variable.value.value.strip() == value for variable in case.unit.environment
        )
        if _looks_real(value) and not from_variable:
            flag = argument.flag.span if argument.flag is not None else argument.span
            yield Draft(at=_name_of(flag, "--api-key"), values=_said("--api-key", "the command line"))


def _said(name: str, where: str) -> dict[str, str]:
    return {"name": name, "where": where}


def _name_of(span: Span, name: str) -> Span:
    """The name alone: reports print the text of a place, and the value must not stand there."""
    at = span.text.find(name)
    return (
        Span(span.file, span.start + at, span.start + at + len(name))
        if at >= 0
        else Span(span.file, span.start, span.start)
    )


def _looks_real(value: str) -> bool:
    if _TOKEN.match(value) and not re.search(r"x{6,}|\.{3}", value, re.IGNORECASE):
        return True
    return len(value) >= 16 and _PLACEHOLDER.search(value) is None and not re.search(r"\s", value)
