"""Custom resources -> serve units, by shape.

Operators wrap pods in kinds of their own, and new ones appear every month. Whatever holds a list of ``containers``, or
one of a few keys that stand for a single container, is a pod here; what is peculiar to a kind (where its replicas,
models and further arguments are, what makes several pods one server) stands in tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvgate.manifests.container import Argument
from kvgate.manifests.entrypoint import is_other_engine, is_rank
from kvgate.manifests.kubernetes import Pod, accelerator_requests, is_other_kind
from kvgate.manifests.peers import ServingRuntime, peers_of
from kvgate.manifests.tree import Tree, expand_list, items_at, node_at, scalar_at, text_at
from kvgate.manifests.unit import GpuRequest, ServeUnit, Unread
from kvgate.records import record
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Text
from kvgate.source.yaml_tree import MAX_EXPANDED_NODES, Entry, Mapping, Node, Scalar, Sequence, scalar_bool, scalar_int

MAX_SITES: Final = 200
MAX_DEPTH: Final = 40

# Kinds whose documents describe, check or generate objects instead of being one.
NOT_DEPLOYED: Final = frozenset(
    {
        "Application", "ApplicationSet", "ClusterPolicy", "CompositeResourceDefinition", "ConfigMap",
        "ConstraintTemplate", "CustomResourceDefinition", "HelmRelease", "Kustomization", "Policy", "Secret", "Service",
    }
)  # fmt: skip

# Keys under which a single container stands.
SINGLE_CONTAINER: Final = frozenset({"runner", "mainContainer"})

# Steps on the way to a pod that say nothing about its role.
_PLAIN_STEPS: Final = frozenset(
    {
        "containers", "engineConfig", "extraPodSpec", "headGroupSpec", "leaderTemplate", "leaderWorkerTemplate",
        "mainContainer", "podSpec", "podTemplate", "predictor", "rayClusterConfig", "rayClusterSpec", "roles", "runner",
        "services", "spec", "template", "workerGroupSpecs",
    }
)  # fmt: skip

# Keys of the pod that leads a group: in a LeaderWorkerSet, and in a role of kthena's ModelServing.
_LEADERS: Final = ("leaderTemplate", "entryTemplate")

# Kinds whose outer replicas multiply those of their parts; everywhere else the nearest count is the whole.
_NESTED_REPLICAS: Final = frozenset({"StormService"})


@record
class Managed:
    """What the controller of a kind adds to the containers it starts.

    Attributes:
        model: path to the storage URI that it mounts as the model.
        flags: path to a value, flag under which the server gets it.
        sizes: path from a workload to a value, flag under which its servers get it.
        workloads: paths to what has pods of its own: without containers these run what the controller knows.
        variable: environment variable whose text the entry script takes for further arguments.
        beside: key under ``spec`` whose pods stand before the servers.
    """

    model: tuple[str, ...] | None = None
    flags: tuple[tuple[tuple[str, ...], str], ...] = ()
    sizes: tuple[tuple[tuple[str, ...], str], ...] = ()
    workloads: tuple[tuple[str, ...], ...] = ()
    variable: str | None = None
    beside: str | None = None


MANAGED: Final[dict[str, Managed]] = {
    # the well-known configurations of KServe start `vllm serve /mnt/models` with these and with VLLM_ADDITIONAL_ARGS
    "LLMInferenceService": Managed(
        model=("spec", "model", "uri"),
        flags=((("spec", "model", "name"), "--served-model-name"),),
        sizes=(
            (("parallelism", "tensor"), "--tensor-parallel-size"),
            (("parallelism", "pipeline"), "--pipeline-parallel-size"),
            (("parallelism", "data"), "--data-parallel-size"),
            (("parallelism", "dataLocal"), "--data-parallel-size-local"),
            (("parallelism", "expert"), "--enable-expert-parallel"),
        ),
        workloads=(("spec",), ("spec", "prefill")),
        variable="VLLM_ADDITIONAL_ARGS",
        beside="router",  # its scheduler's container has the server's name, main
    ),
}


@record
class _Site:
    """A pod found by its shape: its specification, its containers, and what stands around it, the nearest first."""

    spec: Mapping
    containers: tuple[Node, ...]
    steps: tuple[str, ...]
    around: tuple[Mapping, ...]
    span: Span | None = None


def read_custom(
    tree: Tree, file: SourceFile, document: Node, *, templated: bool = False
) -> Iterator[ServeUnit | Unread]:
    """The serve units in the custom resources of a document."""
    for item in expand_list(document):
        kind = text_at(item, "kind") or ""
        # a workload whose containers are not where they belong was indented wrongly: still a server to its author
        if kind not in NOT_DEPLOYED and is_other_kind(item):
            yield from read_by_shape(tree, file, item, templated=templated)


def read_by_shape(tree: Tree, file: SourceFile, item: Node, *, templated: bool = False) -> Iterator[ServeUnit | Unread]:
    """The serve units of one object, wherever its containers are."""
    kind = text_at(item, "kind") or ""
    managed = MANAGED.get(kind)
    sites = _sites(item) if managed is None else _managed_sites(item, managed)
    workers: list[tuple[Mapping, ServeUnit]] = []
    leaders: set[int] = set()  # groups whose leader is a server
    for site in sites:
        runtime = _served_by_runtime(site)
        holder = next((node for node in site.around if node.get("metadata") is not None), None)
        pod = Pod(
            tree=tree,
            file=file,
            document=item,
            template=holder if holder is not None and holder is not item else item,
            spec=site.spec,
            kind=kind,
            name=text_at(item, "metadata", "name") or text_at(item, "metadata", "generateName") or "",
            namespace=text_at(item, "metadata", "namespace"),
            replicas=_replicas(site),
            restarts=True,
            containers=site.containers,
            role="/".join(step for step in site.steps if step not in _PLAIN_STEPS),
            devices=_group_devices(site),
            around=site.around,
            span=site.span,
            factor=_outer_replicas(site) if kind in _NESTED_REPLICAS else 1,
            arguments=tuple(_managed_arguments(item, site, managed)) if managed else (),
            variable=managed.variable if managed else None,
            storage=scalar_at(item, *managed.model) if managed and managed.model else _storage(site),
            managed=runtime,
            runtime=_runtime_of(tree, file, item, site),
            image_runs=not {"headGroupSpec", "workerGroupSpecs"} & set(site.steps),
            templated=templated,
            given=tuple(_group_variables(site)),
        )
        group = _led_group(site)
        for unit in pod.units():
            if isinstance(unit, ServeUnit) and group is not None:
                if "workerTemplate" in site.steps:
                    workers.append((group, unit))
                    continue
                leaders.add(id(group))
            yield unit
    for group, unit in workers:
        if not _joins_leader(group, unit, leads=id(group) in leaders):
            yield unit


def _led_group(site: _Site) -> Mapping | None:
    """What holds the templates of a leader and its workers, around the pod of either."""
    for node in site.around:
        if any(node.get(key) is not None for key in _LEADERS):
            return node
    return None


def _joins_leader(group: Mapping, unit: ServeUnit, *, leads: bool) -> bool:
    """Whether a worker is no server beside its leader: it is told nothing, has no API of its own where its leader is a
    server, runs a script that nobody can read, as its leader does, or there is none, where the leader is the whole
    group."""
    alone = scalar_int(group.get("size")) == 1 or scalar_int(group.get("workerReplicas")) == 0
    if alone or not unit.words or unit.words[0].value == unit.entry:
        return True
    return leads and is_rank(unit.words, leads=False)


def _sites(item: Node) -> Iterator[_Site]:
    count = visited = 0
    stack: list[tuple[Node, tuple[str, ...], tuple[Mapping, ...]]] = [(item, (), ())]
    # aliases are walked once per use, and a few lines of them can stand for millions of nodes
    while stack and count < MAX_SITES and visited < MAX_EXPANDED_NODES:
        visited += 1
        node, steps, around = stack.pop()
        if len(around) > MAX_DEPTH:
            continue
        if isinstance(node, Sequence):
            for index, inner in reversed(list(enumerate(node.items))):
                name = text_at(inner, "name") or text_at(inner, "groupName") or str(index)
                if isinstance(inner, (Mapping, Sequence)):
                    stack.append((inner, (*steps, name), around))
            continue
        if not isinstance(node, Mapping):
            continue
        containers = node.get("containers")
        if isinstance(containers, Sequence) and any(isinstance(inner, Mapping) for inner in containers.items):
            count += 1
            yield _Site(node, tuple(containers.items), steps, (node, *around))
        below: list[Entry] = []
        for entry in node.items():
            if (entry.key.value in SINGLE_CONTAINER and isinstance(entry.value, Mapping)) or (
                entry.key.value == "model" and steps[-1:] == ("predictor",) and isinstance(entry.value, Mapping)
            ):
                count += 1
                yield _Site(node, (entry.value,), steps, (node, *around), entry.key.span)
            elif entry.key.value not in ("containers", "initContainers", "status"):
                below.append(entry)
        stack += [(entry.value, (*steps, entry.key.value), (node, *around)) for entry in reversed(below)]


def _served_by_runtime(site: _Site) -> bool:
    """Whether a KServe ``predictor.model`` is served by a runtime that embeds vLLM, by its format or its name."""
    (container, *_) = site.containers
    name = text_at(container, "modelFormat", "name")
    if name is None:
        return False
    return name.lower() in ("vllm", "huggingface") or "vllm" in (text_at(container, "runtime") or "").lower()


def _runtime_of(tree: Tree, file: SourceFile, item: Node, site: _Site) -> ServingRuntime | None:
    """The runtime that a KServe ``predictor.model`` names."""
    runtime = text_at(site.containers[0], "runtime") if len(site.containers) == 1 else None
    return peers_of(tree).runtime(runtime, text_at(item, "metadata", "namespace"), file.path) if runtime else None


def _storage(site: _Site) -> Scalar | None:
    (container, *_) = site.containers
    return scalar_at(container, "storageUri") or scalar_at(container, "storage", "path")


def _replicas(site: _Site) -> Node | None:
    for node in site.around:
        for key in ("replicas", "minReplicas"):
            found = node.get(key)
            if found is not None:
                return found
    return None


def _outer_replicas(site: _Site) -> int:
    """The product of the counts beyond the nearest one."""
    counts = [scalar_int(found) for node in site.around if (found := node.get("replicas")) is not None]
    product = 1
    for count in counts[1:]:
        product *= 1 if count is None else count
    return product


def _managed_sites(item: Node, managed: Managed) -> Iterator[_Site]:
    """The pods of an object whose controller knows what to run in them, also where it is told nothing of a pod."""
    told: set[tuple[str, ...]] = set()
    for site in _sites(item):
        if site.steps[1:2] != (managed.beside,):
            told.add(_workload(site, managed))
            yield site
    for path in managed.workloads:
        node = node_at(item, *path)
        model = node_at(item, *managed.model) if managed.model else None
        if path in told or not isinstance(item, Mapping) or not isinstance(node, Mapping) or model is None:
            continue
        if any(is_other_engine(text_at(base, "name") or "") for base in items_at(item, "spec", "baseRefs")):
            continue
        template = node.get("template")
        bare = Mapping(node.span, [])
        yield _Site(template if isinstance(template, Mapping) else node, (bare,), path, (node, item), model.span)


def _workload(site: _Site, managed: Managed) -> tuple[str, ...]:
    """Which workload of its object a pod belongs to: the innermost."""
    around = (path for path in managed.workloads if site.steps[: len(path)] == path)
    return max(around, key=len, default=())


def _managed_arguments(item: Node, site: _Site, managed: Managed) -> Iterator[Argument]:
    own = tuple(((*_workload(site, managed), *path), flag) for path, flag in managed.sizes)
    for path, flag in (*managed.flags, *own):
        value = scalar_at(item, *path)
        if value is not None and value.value and scalar_bool(value) is not False:
            yield Argument(flag, value)


def _group_variables(site: _Site) -> Iterator[tuple[str, Value]]:
    """What the pods of a LeaderWorkerSet are told about their group (https://lws.sigs.k8s.io/docs/reference/)."""
    group = next((node for node in site.around if node.get("workerTemplate") is not None), None)
    size = scalar_at(group, "size")
    if size is not None and scalar_int(size) is not None:
        yield "LWS_GROUP_SIZE", Value(size.text)
        if "leaderTemplate" in site.steps:
            yield "LWS_WORKER_INDEX", Value(Text.at("0", size.span))


# Where an object around a pod says how many of it make up one server.
_POD_COUNTS: Final = (
    ("multinode", "nodeCount"),  # Dynamo
    ("leaderWorkerPattern", "size"),  # RoleBasedGroup
    ("podGroupSize",),  # AIBrix' StormService
)


# -- several pods, one server ------------------------------------------------------------------------------------------


def _group_devices(site: _Site) -> tuple[GpuRequest, ...] | None:
    """The devices of all pods that make up one server; None where the pod is alone."""
    for node in site.around:
        if node.get("headGroupSpec") is not None and "headGroupSpec" in site.steps:
            return cluster_devices(node)
        worker, size = node.get("workerTemplate"), scalar_int(node.get("size"))
        if worker is not None and size is not None:
            leader = node.get("leaderTemplate") or worker
            return _summed([(_devices_of(leader), 1), (_devices_of(worker), size - 1)])
        entry, workers = node.get("entryTemplate"), scalar_int(node.get("workerReplicas"))  # kthena's ModelServing
        if entry is not None and worker is not None and workers:
            return _summed([(_devices_of(entry), 1), (_devices_of(worker), workers)])
        for path in _POD_COUNTS:
            size = scalar_int(node_at(node, *path))
            if size is not None and size > 1:
                return _summed([(_own_devices(site), size)])
    return None


def _own_devices(site: _Site) -> tuple[GpuRequest, ...]:
    """The devices that a pod's first container asks for, itself or beside it."""
    for node in (site.containers[0], *site.around):
        if isinstance(node, Mapping) and node_at(node, "resources") is not None:
            requests, _ = accelerator_requests(node)
            if requests:
                return requests
    return ()


def cluster_devices(cluster: Mapping) -> tuple[GpuRequest, ...]:
    """The devices of a Ray cluster: its head and all its worker groups."""
    parts: list[tuple[tuple[GpuRequest, ...], int | None]] = [(_devices_of(cluster.get("headGroupSpec")), 1)]
    waiting: list[tuple[tuple[GpuRequest, ...], int | None]] = []
    for group in items_at(cluster, "workerGroupSpecs"):
        replicas = node_at(group, "replicas")
        hosts = scalar_int(node_at(group, "numOfHosts")) or 1
        count = 1 if replicas is None else scalar_int(replicas)
        parts.append((_devices_of(group), None if count is None else count * hosts))
        if count == 0 and (scalar_int(node_at(group, "maxReplicas")) or 0) > 0 and parts[-1][0]:
            waiting.append((parts[-1][0], hosts))
    found = _summed(parts)
    # a cluster without devices scales up by a pod of the first group that has some, once an application asks for them
    return _summed(waiting[:1]) if waiting and all(request.count == 0 for request in found) else found


def _devices_of(template: Node | None) -> tuple[GpuRequest, ...]:
    """The devices of the first pod below a node."""
    if template is None:
        return ()
    for site in _sites(template):
        return tuple(request for container in site.containers for request in accelerator_requests(container)[0])
    return ()


def first_pod(node: Node) -> tuple[Mapping, tuple[Node, ...], bool] | None:
    """The first pod below a node: its specification, its containers, and whether they ask for accelerators."""
    for site in _sites(node):
        return site.spec, site.containers, any(accelerator_requests(container)[0] for container in site.containers)
    return None


def _summed(parts: list[tuple[tuple[GpuRequest, ...], int | None]]) -> tuple[GpuRequest, ...]:
    total: dict[str, GpuRequest] = {}
    for requests, times in parts:
        for request in requests:
            count = None if request.count is None or times is None else request.count * times
            reason = request.reason if count is None else None
            if count is None and reason is None:
                reason = "the number of pods is not stated as a number"
            known = total.get(request.resource)
            if known is None:
                total[request.resource] = GpuRequest(request.resource, count, request.span, reason)
            elif count is None or known.count is None:
                total[request.resource] = GpuRequest(request.resource, None, known.span, known.reason or reason)
            else:
                total[request.resource] = GpuRequest(request.resource, known.count + count, known.span)
    return tuple(total.values())
