"""Several servers behind one address, and caches that they share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kvgate.findings.finding import Severity
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.ruleset.case import Case
from kvgate.ruleset.checks import NoParams, check
from kvgate.ruleset.model import Draft
from kvgate.ruleset.scene import Scene
from kvgate.source.text import SourceFile, Span
from kvgate.source.yaml_tree import scalar_int

_AWARE: Final = regex(
    r"prefix[-_ ]?aware|kv[-_ ]?aware|cache[-_ ]?aware|prefix[-_]?hash|prefix-cache-scorer|precise-prefix"
    r"|router-mode[\"'=\s,]+kv\b"
    r"|kind:\s*InferencePool|consistent[-_ ]?hash|chash|ip_hash|hash\s+\$|session[-_]?affinity:\s*[\"']?ClientIP"
    r"|routing[-_]?logic[\"'=:\s,]+(?:session|ttft|lookup)|session-key|sessionKey|x-session|sticky|upstream-hash-by"
    r"|affinity:\s*[\"']?cookie|llm-d-inference-scheduler|balance\s+(?:source|hdr|uri)",
    re.IGNORECASE,
)
_BLIND: Final = regex(
    r"routing[-_]?logic[\"'=:\s,]+[\"']?(?P<logic>round[-_]?robin|random|least[-_]?loaded)"
    r"|(?:^|\s)balance\s+(?P<haproxy>roundrobin|leastconn)|routing_strategy[\"':\s]+(?P<litellm>simple-shuffle|least-busy)"
    r"|--policy[\"'=\s,]+(?P<policy>round_robin|random)|router-mode[\"'=\s,]+(?P<dynamo>round-robin|random)",
    re.IGNORECASE,
)
_UPSTREAM: Final = regex(r"\bupstream\s+[\w.-]+\s*\{(?P<body>[^}]*)\}")
_PROXIES: Final = regex(
    r"\bupstream\b|\bbackend\b|\bmodel_list\b|\blb_policy\b|\bloadBalancer\b|\breverse_proxy\b", re.IGNORECASE
)
#: How other proxies spread requests: words, the place that makes it one, and where the list of servers ends.
_BALANCERS: Final = (
    (
        "HAProxy, which takes them by turns",
        regex(r"(?m)^backend\s+\S+$(?![^\n]*\n(?:[ \t]++.*\n)*?[ \t]+balance\s+(?:source|hdr|uri|url_param|hash))"),
        regex(r"(?m)^\w"),
    ),
    ("LiteLLM, which picks among deployments of one name at random", regex(r"(?m)^model_list:[ \t]*$"), None),
    ("Envoy, by turns", regex(r"\blb_policy:\s*[\"']?(?:ROUND_ROBIN|RANDOM|LEAST_REQUEST)"), None),
    ("Traefik, by turns", regex(r"(?m)^[ \t]*loadBalancer:[ \t]*$"), None),
    (
        "Caddy, at random",
        regex(
            r"\breverse_proxy\s+[^\n{]*\S+[ \t]+\S+:\d+[^\n]*"
            r"(?![^}]*lb_policy\s+(?:header|cookie|ip_hash|uri_hash|query))"
        ),
        regex(r"\n\}"),
    ),
)
_SESSION: Final = regex(r"routing[-_]?logic[\"'=:\s,]+[\"']?session\b", re.IGNORECASE)
_SESSION_KEY: Final = regex(r"session[-_]?key", re.IGNORECASE)


@record
class Routing:
    """``share`` is the part of a prompt that must be common to all for routing to matter."""

    share: float = 0.3


@check(
    "prefix-blind-routing",
    params=Routing,
    values=("count", "what", "share", "shared", "prompt", "router", "caches"),
    scope="tree",
)
def prefix_blind_routing(scene: Scene, params: Routing) -> Iterator[Draft]:
    """Requests with one prefix are spread over servers that do not share it."""
    yield from _sessions_without_key(scene)
    told: set[str] = set()
    for case in scene.cases:
        yield from _of_replicas(scene, case, params, told)
        yield from _of_ranks(case, params)
    yield from _of_upstreams(scene, params)


def _weight(case: Case, params: Routing) -> tuple[Severity | None, str] | None:
    """The ceiling and the words for what is known of the shared prefix; None where it is known to be small."""
    workload = case.plan.workload
    if case.effective("enable_prefix_caching") is False:
        return None
    if workload is not None and workload.prompt_tokens:
        share = workload.shared_prefix_tokens / workload.prompt_tokens
        if share < params.share:
            # nothing is declared of a prefix: then the flag says whether one is meant
            if workload.shared_prefix_tokens or case.argument("enable_prefix_caching") is not True:
                return None
        else:
            return None, f" that share {share:.0%} of their prompt"
    if case.argument("enable_prefix_caching") is True or case.argument("enable_prompt_tokens_details") is True:
        return None, ""
    return Severity.INFO, ""


def _values(count: int, what: str, share: str, router: str) -> dict[str, Any]:
    return {"count": count, "what": what, "share": share, "shared": "", "prompt": "", "router": router, "caches": ""}


def _of_replicas(scene: Scene, case: Case, params: Routing, told: set[str]) -> Iterator[Draft]:
    count = _most_replicas(case)
    if (
        count < 2
        or not (case.host.is_object or case.host.is_values)
        or case.unit.kind in ("Job", "CronJob", "DynamoGraphDeployment")
    ):
        return
    weight = _weight(case, params)
    if weight is None or (case.host.is_object and scene.objects.pools(case.unit)):
        return
    services = scene.objects.services(case.unit) if case.host.is_object else []
    files = _around(scene, case)
    if any(_AWARE.search(_code(file)) for file in files):
        return
    blind = next(
        (
            (file, match)
            for file in files
            for match in _BLIND.finditer(file.text)
            if not _commented(file, match.start())
        ),
        None,
    )
    if blind is None and not services:
        return
    ceiling, share = weight
    if blind is not None:
        file, match = blind
        logic = next(group for group in match.groups() if group)
        key = f"{file.path}:{match.start()}"
        if key in told:
            return
        told.add(key)
        place: Span | str = Span(file, match.start(), match.end())
        router, ceiling = f"a router that goes by {logic}", None
    else:
        service = services[0]
        place, router = "replicas", f"Service {service.name}, which picks a pod at random"
    yield Draft(
        at=place,
        case=case,
        values=_values(count, "replicas", share, router),
        ceiling=ceiling,
        related=tuple((service.span, "the Service in front") for service in services[:1]),
    )


def _most_replicas(case: Case) -> int:
    """Replicas as stated, or as many as an autoscaler may make of them."""
    count = case.plan.replicas
    for scaler in case.scene.objects.autoscalers(case.unit) if case.host.is_object else ():
        most = scalar_int(scaler.at("spec", "maxReplicas")) or scalar_int(scaler.at("spec", "maxReplicaCount"))
        count = max(count, most or 0)
    return count


def _around(scene: Scene, case: Case) -> list[SourceFile]:
    from kvgate.manifests.tree import distance

    return [file for file in scene.everything.values() if distance(file.path, case.unit.path) <= 1]


def _code(file: SourceFile) -> str:
    """A file without its comment lines."""
    return re.sub(r"(?m)^\s*#.*$|\s#\s.*$", "", file.text)


def _commented(file: SourceFile, at: int) -> bool:
    start = file.text.rfind("\n", 0, at) + 1
    return re.search(r"(?:^|\s)#", file.text[start:at]) is not None


def _of_ranks(case: Case, params: Routing) -> Iterator[Draft]:
    """vLLM's own balancing over data-parallel ranks goes by waiting and running requests alone."""
    ranks = case.integer("data_parallel_size") or 1
    outside = ("data_parallel_external_lb", "data_parallel_hybrid_lb", "data_parallel_rank", "headless")
    if ranks < 2 or any(case.plan.values.get(dest) not in (None, False) for dest in outside) or not case.since("0.9.0"):
        return
    weight = _weight(case, params)
    if weight is None:
        return
    ceiling, share = weight
    yield Draft(
        at="arg:data_parallel_size",
        case=case,
        values=_values(ranks, "data-parallel ranks", share, "vLLM, by waiting and running requests"),
        ceiling=ceiling if share or case.argument("api_server_count") is None else None,
    )


def _of_upstreams(scene: Scene, params: Routing) -> Iterator[Draft]:
    """A proxy in front of several servers of one model, by turns or at random."""
    for file in scene.everything.values():
        if not _PROXIES.search(file.text) or _AWARE.search(_code(file)):
            continue
        for proxy, start, end, body in _balancers(file):
            cases = _servers_named(scene, body)
            if len(cases) < 2 or len({case.plan.model_reference for case in cases}) > 1:
                continue
            weight = _weight(cases[0], params)
            if weight is None:
                continue
            yield Draft(
                at=Span(file, start, end),
                case=cases[0],
                values=_values(len(cases), "servers", weight[1], proxy),
            )


def _balancers(file: SourceFile) -> Iterator[tuple[str, int, int, str]]:
    """Proxy in words, the place that says how it balances, and the part of the file that names its servers."""
    for match in _UPSTREAM.finditer(file.text):
        if not re.search(r"\bhash\b|ip_hash|sticky", match["body"]):
            start = match.start()
            how = "by turns" if not re.search(r"\bleast_conn\b", match["body"]) else "by open connections"
            yield f"nginx, which takes them {how}", start, file.text.find("{", start) + 1, match["body"]
    for name, pattern, body_end in _BALANCERS:
        for match in pattern.finditer(file.text):
            if _commented(file, match.start()):
                continue
            rest = file.text[match.start() :]
            end = body_end.search(rest, match.end() - match.start()) if body_end is not None else None
            yield name, match.start(), match.end(), rest[: end.start()] if end is not None else rest
            break


def _servers_named(scene: Scene, text: str) -> list[Case]:
    """The units that a text names as hosts."""
    hosts = set(re.findall(r"(?:^|[\s\"'/@])([A-Za-z0-9][\w.-]*):\d{2,5}\b", text))
    hosts |= set(re.findall(r"\baddress[\"']?:\s*[\"']?([A-Za-z0-9][\w.-]*)", text))
    names = {host.split(".")[0] for host in hosts}
    found = []
    for case in scene.cases:
        services = scene.objects.services(case.unit) if case.host.is_object else []
        if names & {case.unit.name, *(service.name for service in services)}:
            found.append(case)
    return found


def _sessions_without_key(scene: Scene) -> Iterator[Draft]:
    for file in scene.everything.values():
        match = _SESSION.search(file.text)
        if match is not None and not _SESSION_KEY.search(file.text) and not _commented(file, match.start()):
            yield Draft(
                at=Span(file, match.start(), match.end()),
                variant="no-session-key",
                values=_values(0, "", "", "a router that goes by session"),
            )


# -- shared caches -----------------------------------------------------------------------------------------------------

_SHARED_CONNECTORS: Final = regex(
    r"LMCache|Mooncake.*Store|SharedStorage|HF3FS|FileSystem|Offloading.*Shared|P2p", re.I
)
_INDEXER_BLOCK: Final = regex(
    r"(?:tokenProcessorConfig|precise-prefix-cache|indexerConfig|kvCacheIndexConfig)[\s\S]{0,400}?\bblockSize\b[\"']?\s*:\s*[\"']?(?P<size>\d{1,9})\b"
)
_ROUTER_BLOCK: Final = regex(r"kv[-_]cache[-_]block[-_]size[\"'=:\s,]+(?P<size>\d{1,9})\b")
_HASH_SEED: Final = regex(r"\bhashSeed\b[\"']?\s*:\s*[\"']?(?P<seed>\w+)")


@check(
    "kv-sharing",
    values=("what", "connector", "count", "router_size", "engine_size", "router", "release", "seed"),
    scope="tree",
)
def kv_sharing(scene: Scene, params: NoParams) -> Iterator[Draft]:
    """Servers that share a cache, or a router that keeps an index of it, and do not agree on its keys."""
    for case in scene.cases:
        yield from _without_seed(scene, case)
        yield from _other_block_size(scene, case)


def _base(case: Case) -> dict[str, Any]:
    return {
        "what": "", "connector": "", "count": case.plan.replicas, "router_size": None, "engine_size": None,
        "router": "", "release": case.release_words, "seed": "",
    }  # fmt: skip


def _without_seed(scene: Scene, case: Case) -> Iterator[Draft]:
    """Block hashes begin from a random value unless PYTHONHASHSEED is set (until 0.29.0, vllm-project/vllm#51875)."""
    if case.since("0.29.0") or not case.since("0.8.0"):
        return
    names = {variable.name for variable in case.unit.environment}
    if "PYTHONHASHSEED" in names or any(note.reason for note in case.unit.notes if "Secret" in note.reason):
        return
    connector = _shares_through(case)
    if connector is None:
        return
    same = [other for other in scene.siblings(case) if _shares_through(other) is not None]
    several = _most_replicas(case) > 1 or bool(same)
    yield Draft(
        at="arg:kv_transfer_config"
        if case.plan.values.get("kv_transfer_config") is not None
        else "arg:kv_events_config",
        case=case,
        values={**_base(case), "connector": connector, "count": max(_most_replicas(case), 1 + len(same))},
        rests_on=("vllm_version",),
        ceiling=None if several else Severity.INFO,
    )


def _shares_through(case: Case) -> str | None:
    """What lets other processes use a server's cache, None where nothing does."""
    transfer = case.argument("kv_transfer_config")
    events = case.argument("kv_events_config")
    if isinstance(events, Mapping) and events.get("enable_kv_cache_events"):
        return "KV cache events"
    if not isinstance(transfer, Mapping):
        return None
    connector = str(transfer.get("kv_connector") or "")
    if not _SHARED_CONNECTORS.search(connector):
        return None
    if "lmcache" in connector.lower():
        environment = {variable.name for variable in case.unit.environment}
        extra = str(transfer.get("kv_connector_extra_config") or "")
        remote = environment & {
            "LMCACHE_REMOTE_URL",
            "LMCACHE_CONFIG_FILE",
            "LMCACHE_ENABLE_P2P",
            "LMCACHE_CONTROLLER_URL",
        }
        if not remote and "remote" not in extra and "p2p" not in extra:
            return None
    return connector


def _other_block_size(scene: Scene, case: Case) -> Iterator[Draft]:
    from kvgate.manifests.objects import nearest
    from kvgate.manifests.tree import distance

    size = case.argument("block_size")
    if case.is_unresolved("block_size"):
        return
    effective = size if isinstance(size, int) else case.integer("block_size")
    for file in scene.everything.values():
        near = nearest(scene.cases, file.path, lambda other: other.unit.path)
        if case not in near or distance(file.path, case.unit.path) > 2:
            continue
        for pattern, router in ((_INDEXER_BLOCK, "the router's index"), (_ROUTER_BLOCK, "the router")):
            match = pattern.search(file.text)
            if match is None or _commented(file, match.start("size")) or _own_argument(case, file, match.start()):
                continue
            wanted = int(match["size"])
            if effective is None or wanted == effective:
                continue
            yield Draft(
                at=Span(file, match.start("size"), match.end("size")),
                case=case,
                variant="block-size",
                values={**_base(case), "router_size": wanted, "engine_size": effective, "router": router},
                rests_on=() if size is not None else ("words",),
                related=(("arg:block_size", "the server's block size"),),
            )
        seed, ours = _HASH_SEED.search(file.text), case.plan.environment.get("PYTHONHASHSEED")
        if seed is not None and ours is not None and seed["seed"] != ours:
            yield Draft(
                at=Span(file, seed.start("seed"), seed.end("seed")),
                case=case,
                variant="hash-seed",
                values={**_base(case), "seed": seed["seed"], "router": ours},
                related=(("env:PYTHONHASHSEED", "the server's seed"),),
            )


def _own_argument(case: Case, file: SourceFile, at: int) -> bool:
    return any(word.span.file is file and word.span.start <= at < word.span.end for word in case.unit.words)
