"""The facts that conditions are written over: one table of name, type, meaning and where the value comes from.

Names are dotted (``unit.replicas``). A fact that can be unknown is *optional*: it is ``null`` then, and conditions ask
``unit.gpus != null`` first. Integers are CEL's 64-bit integers (``7 / 2 == 3``; bytes times bytes overflow and raise);
figures with a fraction are doubles and compare with ``1.0``, not ``1``. ``args.*`` is what the command line sets,
``engine.*`` what counts in the end (set, derived or default).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from kvgate.records import record
from kvgate.ruleset.case import Case, pool_figure, quantity_at, sustained_at
from kvgate.ruleset.cel import Environment, FactType, Variable
from kvgate.ruleset.certainty import Bound, Input
from kvgate.source.yaml_tree import Mapping as YamlMapping
from kvgate.source.yaml_tree import is_null

if TYPE_CHECKING:
    from kvgate.engine.images import Image
    from kvgate.ruleset.host import ProbeKind

Getter = Callable[[Case, Bound], Any]


@record
class Fact:
    """One fact.

    Attributes:
        name: its dotted name.
        type: its CEL type; ``any`` is dynamic.
        optional: it is ``null`` where unknown or unset.
        text: what it means, with the unit of its quantity.
        inputs: what it rests on; a condition that uses it is only as certain as these.
        get: its value.
    """

    name: str
    type: FactType
    optional: bool
    text: str
    inputs: tuple[Input, ...]
    get: Getter

    @property
    def shown_type(self) -> str:
        names = {"list": "list(string)", "map": "map(string, string)", "any": "dyn"}
        shown = names.get(self.type, self.type)
        return f"optional {shown}" if self.optional else shown


def _version_part(index: int) -> Getter:
    def get(case: Case, bound: Bound) -> int:
        numbers = re.findall(r"\d+", case.plan.version)
        return int(numbers[index]) if index < len(numbers) else 0

    return get


def _image(read: Callable[[Image], Any], missing: Any = None) -> Getter:
    def get(case: Case, bound: Bound) -> Any:
        return read(case.plan.image) if case.plan.image is not None else missing

    return get


def _environment(case: Case, bound: Bound) -> dict[str, str]:
    from kvgate.engine.secrets import MASK, is_secret

    return {name: MASK if is_secret(name) else value for name, value in case.plan.environment.items()}


def longest_max_model_len(case: Case) -> int | None:
    """The longest max_model_len that vLLM accepts: the derived length, or ``model_max_length`` where that is more.

    Before 0.30.0 YaRN's factor multiplied the original length (``config/model.py``, ``_get_and_verify_max_len``); since
    then config.json must state the extended one.
    """
    from kvgate.engine.releases import at_least

    geometry = case.geometry
    if geometry is None or geometry.derived_max_model_len is None:
        return None
    lengths = [geometry.derived_max_model_len, geometry.text.get("model_max_length")]
    if not at_least(case.plan.version, "0.30.0"):
        for key in ("rope_scaling", "rope_parameters"):
            rope = geometry.text.get(key)
            if isinstance(rope, Mapping) and rope.get("rope_type", rope.get("type")) == "yarn":
                original, factor = rope.get("original_max_position_embeddings"), rope.get("factor")
                if isinstance(original, int) and isinstance(factor, int | float):
                    lengths.append(int(original * factor))
    return max(length for length in lengths if isinstance(length, int))


def _longest(case: Case, bound: Bound) -> int | None:
    return longest_max_model_len(case)


def _container_gpus(case: Case, bound: Bound) -> int | None:
    """GPUs of the container alone, where several pods make one server."""
    from kvgate.manifests.tree import node_at
    from kvgate.source.yaml_tree import scalar_int

    for section in ("limits", "requests"):
        for name in ("nvidia.com/gpu", "amd.com/gpu"):
            count = scalar_int(node_at(case.unit.node, "resources", section, name))
            if count is not None:
                return count
    return None


def _names(find: str) -> Getter:
    """Names of the objects around a unit (:class:`kvgate.manifests.objects.Objects`)."""

    def get(case: Case, bound: Bound) -> list[str]:
        if not case.host.is_object:
            return []
        return [found.name for found in getattr(case.scene.objects, find)(case.unit)]

    return get


def _service_types(case: Case, bound: Bound) -> list[str]:
    if not case.host.is_object:
        return []
    return [found.text("spec", "type") or "ClusterIP" for found in case.scene.objects.services(case.unit)]


def _scaled_on(case: Case, bound: Bound) -> list[str]:
    """Names or queries of the metrics that autoscalers of the unit watch."""
    from kvgate.ruleset.scalers import watched

    if not case.host.is_object:
        return []
    scalers = case.scene.objects.autoscalers(case.unit)
    return [" ".join(metric.text.split()) for scaler in scalers for metric in watched(scaler)]


def _memory_limit(case: Case, bound: Bound) -> int | None:
    limit = case.host.memory_limit
    return int(limit.value) if limit is not None and limit.value is not None else None


def _probe_budget(kind: ProbeKind) -> Getter:
    def get(case: Case, bound: Bound) -> float | None:
        probe = case.host.probe(kind)
        return probe.budget_seconds if probe is not None else None

    return get


def _mount_paths(case: Case, bound: Bound) -> list[str]:
    return [mount.target for mount in case.host.mounts]


def _is_built(case: Case, bound: Bound) -> bool:
    """Whether a Compose service builds its image: the image's name is then only what the result is called."""
    node = case.unit.node
    return case.unit.kind == "compose" and isinstance(node, YamlMapping) and not is_null(node.get("build"))


def _shape(name: str) -> Getter:
    def get(case: Case, bound: Bound) -> Any:
        return getattr(case.geometry, name) if case.geometry is not None else None

    return get


def _pool(name: str) -> Getter:
    return lambda case, bound: pool_figure(case.prediction, name, bound)


def _memory(name: str) -> Getter:
    def get(case: Case, bound: Bound) -> int | None:
        if case.prediction is None:
            return None
        return quantity_at(getattr(case.prediction.memory, name), bound)

    return get


def _opposite(name: str) -> Getter:
    """A share of the memory that makes the pool smaller: its high end belongs to the pool's low one."""
    swap = {Bound.LOW: Bound.HIGH, Bound.HIGH: Bound.LOW, Bound.ESTIMATE: Bound.ESTIMATE}
    get = _memory(name)
    return lambda case, bound: get(case, swap[bound])


def _load(name: str) -> Getter:
    def get(case: Case, bound: Bound) -> Any:
        return getattr(case.plan.workload, name) if case.plan.workload is not None else None

    return get


def _concurrency(name: str) -> Getter:
    def get(case: Case, bound: Bound) -> Any:
        concurrency = case.prediction.concurrency if case.prediction is not None else None
        return getattr(concurrency, name) if concurrency is not None else None

    return get


def _capacity(case: Case, bound: Bound) -> int | None:
    sustained = sustained_at(case.prediction, bound)
    return None if sustained is None else sustained * case.replicas_held()


def _engine(dest: str) -> Getter:
    return lambda case, bound: case.effective(dest)


def _gpu_capability(case: Case, bound: Bound) -> int | None:
    capability = case.plan.gpu.compute_capability if case.plan.gpu is not None else None
    return None if capability is None else capability[0] * 10 + capability[1]


def _standing(case: Case, bound: Bound) -> str:
    return case.plan.parsed.version.standing


_V: Final[tuple[Input, ...]] = ("vllm_version",)
_G: Final[tuple[Input, ...]] = ("gpu",)
_M: Final[tuple[Input, ...]] = ("model",)
_W: Final[tuple[Input, ...]] = ("workload",)
_P: Final[tuple[Input, ...]] = ("prediction", "vllm_version", "gpu", "model")
_S: Final[tuple[Input, ...]] = (*_P, "workload")

_OWN: Final = (
    Fact("unit.id", "string", False, "stable id: kind/namespace/name/container", (), lambda c, b: c.unit.id),
    Fact("unit.path", "string", False, "file it stands in, relative to the root", (), lambda c, b: c.unit.path),
    Fact("unit.kind", "string", False, "Kubernetes kind, or `compose`", (), lambda c, b: c.unit.kind),
    Fact("unit.name", "string", False, "name of the object or service", (), lambda c, b: c.unit.name),
    Fact("unit.container", "string", True, "name of the container", (), lambda c, b: c.unit.container),
    Fact("unit.namespace", "string", True, "Kubernetes namespace", (), lambda c, b: c.unit.namespace),
    Fact("unit.entry", "string", False, "entry point: `vllm serve`, a module", (), lambda c, b: c.unit.entry),
    Fact(
        "unit.replicas",
        "int",
        False,
        "replicas that run at least (1 when not stated)",
        (),
        lambda c, b: c.plan.replicas,
    ),
    Fact(
        "unit.replicas_stated",
        "bool",
        False,
        "a file states the replicas",
        (),
        lambda c, b: c.unit.replicas is not None,
    ),
    Fact(
        "unit.annotations",
        "map",
        False,
        "annotations of the object and its pod template",
        (),
        lambda c, b: {key: text.value for key, text in c.unit.annotations.items()},
    ),
    Fact(
        "unit.env",
        "map",
        False,
        "environment variables whose value the files determine (secrets masked)",
        (),
        _environment,
    ),
    Fact(
        "unit.env_names",
        "list",
        False,
        "names of all environment variables",
        (),
        lambda c, b: [variable.name for variable in c.unit.environment],
    ),
    Fact("unit.gpus", "int", True, "whole GPUs that one replica requests", (), lambda c, b: c.requested_gpus),
    Fact(
        "unit.gpu_resources",
        "list",
        False,
        "resource names of its GPU requests",
        (),
        lambda c, b: [request.resource for request in c.unit.gpu_requests],
    ),
    Fact("unit.services", "list", False, "names of the Services that lead to it", (), _names("services")),
    Fact("unit.service_types", "list", False, "their types: ClusterIP, NodePort, LoadBalancer", (), _service_types),
    Fact("unit.routes", "list", False, "names of the Ingresses and routes to those Services", (), _names("routes")),
    Fact("unit.inference_pools", "list", False, "names of the InferencePools that take it", (), _names("pools")),
    Fact("unit.autoscalers", "list", False, "names of the autoscalers that scale it", (), _names("autoscalers")),
    Fact("unit.scaled_on", "list", False, "metrics or queries that those autoscalers watch", (), _scaled_on),
    Fact("unit.network_policies", "list", False, "names of the NetworkPolicies for it", (), _names("policies")),
    Fact("unit.mount_paths", "list", False, "paths in the container at which volumes are mounted", (), _mount_paths),
    Fact("unit.memory_limit_bytes", "int", True, "memory limit of the container in bytes", (), _memory_limit),
    Fact(
        "unit.startup_seconds",
        "double",
        True,
        "seconds after which its startup probe gives up",
        (),
        _probe_budget("startup"),
    ),
    Fact(
        "unit.liveness_seconds",
        "double",
        True,
        "seconds after its start at which its liveness probe gives up at the earliest",
        (),
        _probe_budget("liveness"),
    ),
    Fact("unit.container_gpus", "int", True, "GPUs that the container itself requests", (), _container_gpus),
    Fact(
        "unit.gpus_used",
        "int",
        True,
        "tensor x pipeline x local data parallel size",
        ("words",),
        lambda c, b: c.local_gpus,
    ),
    Fact(
        "unit.spans_nodes",
        "bool",
        False,
        "Ray, or several nodes or pods make one server",
        (),
        lambda c, b: c.spans_nodes,
    ),
    Fact(
        "unit.backend",
        "string",
        True,
        "cuda, rocm, cpu, tpu, xpu, hpu or neuron, where image or GPU say",
        (),
        lambda c, b: c.backend,
    ),
    Fact(
        "unit.shared_memory",
        "string",
        True,
        "how /dev/shm is enlarged: emptyDir, shm_size, `ipc: host`, hostIPC",
        (),
        lambda c, b: c.unit.shared_memory.how if c.unit.shared_memory else None,
    ),
    Fact(
        "unit.shared_memory_bytes",
        "int",
        True,
        "size of /dev/shm in bytes, where a limit is stated",
        (),
        lambda c, b: c.unit.shared_memory.bytes if c.unit.shared_memory else None,
    ),
    Fact(
        "unit.unresolved_args",
        "list",
        False,
        "engine arguments whose value the files do not determine",
        (),
        lambda c, b: c.unresolved_arguments,
    ),
    Fact(
        "unit.complete",
        "bool",
        False,
        "every word of the command line is resolved",
        (),
        lambda c, b: not c.has_hidden_words,
    ),
    Fact(
        "image.reference",
        "string",
        True,
        "the image as written",
        (),
        lambda c, b: c.unit.image.value if c.unit.image else None,
    ),
    Fact(
        "image.resolved",
        "bool",
        False,
        "the image is written out, without variables",
        (),
        lambda c, b: c.unit.image is not None and c.unit.image.resolved,
    ),
    Fact(
        "image.repository",
        "string",
        True,
        "repository without registry, tag and digest",
        (),
        _image(lambda i: i.repository),
    ),
    Fact("image.registry", "string", True, "registry host", (), _image(lambda i: i.registry)),
    Fact("image.tag", "string", True, "tag", (), _image(lambda i: i.tag)),
    Fact("image.digest", "string", True, "digest with its algorithm", (), _image(lambda i: i.digest)),
    Fact("image.pinned", "bool", False, "names the same image tomorrow", (), _image(lambda i: i.pinned, False)),
    Fact(
        "image.official",
        "bool",
        False,
        "vLLM's own, or one that ships its releases unchanged",
        (),
        _image(lambda i: i.official, False),
    ),
    Fact("image.built_here", "bool", False, "a Compose service that builds it", (), _is_built),
    Fact("image.is_vllm", "bool", False, "a vLLM engine by its name", (), _image(lambda i: i.is_vllm, False)),
    Fact("image.mutable_reason", "string", True, "why it is not pinned", (), _image(lambda i: i.mutable_reason)),
    Fact("vllm.version", "string", False, "the release the unit is judged by", _V, lambda c, b: c.plan.version),
    Fact(
        "vllm.assumed", "bool", False, "no file states the release", (), lambda c, b: c.plan.version_basis == "assumed"
    ),
    Fact(
        "vllm.standing",
        "string",
        False,
        "read, between, newer, older or unknown: where it stands among the releases whose flags are known",
        (),
        _standing,
    ),
    Fact("vllm.major", "int", False, "first number of the release", _V, _version_part(0)),
    Fact("vllm.minor", "int", False, "second number of the release", _V, _version_part(1)),
    Fact("vllm.patch", "int", False, "third number of the release", _V, _version_part(2)),
    Fact(
        "model.reference", "string", True, "the model as the command names it", (), lambda c, b: c.plan.model_reference
    ),
    Fact("model.known", "bool", False, "its config.json is at hand", (), lambda c, b: c.plan.model is not None),
    Fact("model.reason", "string", True, "why it is not at hand", (), lambda c, b: c.plan.model_reason),
    Fact("model.architecture", "string", True, "class that vLLM serves it with", _M, _shape("architecture")),
    Fact("model.attention_heads", "int", True, "query heads", _M, _shape("num_heads")),
    Fact("model.kv_heads", "int", True, "key/value heads", _M, _shape("num_kv_heads")),
    Fact("model.layers", "int", True, "decoder layers", _M, _shape("num_layers")),
    Fact(
        "model.max_position_tokens",
        "int",
        True,
        "context length that its configuration implies",
        _M,
        _shape("derived_max_model_len"),
    ),
    Fact("model.max_model_len", "int", True, "longest max_model_len that vLLM accepts for it", _M, _longest),
    Fact("model.quantization", "string", True, "quant_method of the checkpoint", _M, _shape("quantization_method")),
    Fact("model.uses_mla", "bool", True, "multi-head latent attention", _M, _shape("uses_mla")),
    Fact("model.is_hybrid", "bool", True, "mixes attention with state-space or linear layers", _M, _shape("is_hybrid")),
    Fact("model.is_multimodal", "bool", True, "takes more than text", _M, _shape("is_multimodal")),
    Fact(
        "gpu.name",
        "string",
        True,
        "catalogue name of the GPU",
        _G,
        lambda c, b: c.plan.gpu.name if c.plan.gpu else None,
    ),
    Fact(
        "gpu.vendor", "string", True, "nvidia, amd or cpu", _G, lambda c, b: c.plan.gpu.vendor if c.plan.gpu else None
    ),
    Fact(
        "gpu.known",
        "bool",
        False,
        "a file, kvgate.yaml or --gpu names the GPU",
        (),
        lambda c, b: c.plan.gpu is not None or c.plan.gpu_memory_bytes is not None,
    ),
    Fact("gpu.reason", "string", True, "why it is unknown", (), lambda c, b: c.plan.gpu_reason),
    Fact("gpu.compute_capability", "int", True, "89 for 8.9", _G, _gpu_capability),
    Fact(
        "gpu.memory_bytes",
        "int",
        True,
        "memory of one GPU as the driver reports it",
        _G,
        lambda c, b: c.plan.gpu_memory_bytes or (c.plan.gpu.memory_bytes if c.plan.gpu else None),
    ),
    Fact("workload.declared", "bool", False, "a workload is declared", (), lambda c, b: c.plan.workload is not None),
    Fact("workload.peak_concurrency", "int", True, "requests at once over all replicas", _W, _load("peak_concurrency")),
    Fact(
        "workload.prompt_tokens", "int", True, "prompt tokens of a request, 95th percentile", _W, _load("prompt_tokens")
    ),
    Fact("workload.output_tokens", "int", True, "output tokens of a request", _W, _load("output_tokens")),
    Fact(
        "workload.shared_prefix_tokens",
        "int",
        True,
        "tokens that all prompts begin with",
        _W,
        _load("shared_prefix_tokens"),
    ),
    Fact("workload.request_tokens", "int", True, "prompt plus output tokens", _W, _load("request_tokens")),
    Fact(
        "prediction.known",
        "bool",
        False,
        "the pool could be predicted",
        (),
        lambda c, b: pool_figure(c.prediction, "num_gpu_blocks", b) is not None,
    ),
    Fact(
        "prediction.starts",
        "string",
        False,
        "yes, unlikely, no or unknown",
        _P,
        lambda c, b: c.prediction.starts if c.prediction else "unknown",
    ),
    Fact("prediction.total_bytes", "int", True, "memory of one GPU", _G, _memory("total")),
    Fact("prediction.requested_bytes", "int", True, "memory that vLLM may use of it", _P, _memory("requested")),
    Fact("prediction.weights_bytes", "int", True, "weights on one GPU", _P, _opposite("weights")),
    Fact("prediction.activation_bytes", "int", True, "activation peak", _P, _opposite("activation_peak")),
    Fact("prediction.cuda_graphs_bytes", "int", True, "CUDA graphs", _P, _opposite("cuda_graphs")),
    Fact(
        "prediction.kv_cache_bytes",
        "int",
        True,
        "memory left for the KV cache of one GPU",
        _P,
        _memory("kv_cache_available"),
    ),
    Fact(
        "prediction.bytes_per_token", "int", True, "KV cache of one more token, per GPU", _M, _pool("bytes_per_token")
    ),
    Fact("prediction.block_size", "int", True, "tokens per KV cache block", _P, _pool("block_size")),
    Fact("prediction.num_gpu_blocks", "int", True, "blocks in the pool", _P, _pool("num_gpu_blocks")),
    Fact(
        "prediction.size_tokens",
        "int",
        True,
        "tokens in the pool, as that release prints them",
        _P,
        _pool("size_tokens"),
    ),
    Fact("prediction.max_model_len", "int", True, "effective max_model_len", _P, _pool("max_model_len")),
    Fact(
        "prediction.max_concurrency",
        "double",
        True,
        "requests of max_model_len that the pool holds",
        _P,
        _pool("max_concurrency"),
    ),
    Fact(
        "prediction.estimated_max_model_len",
        "int",
        True,
        "longest request that the pool holds",
        _P,
        _pool("estimated_max_model_len"),
    ),
    Fact(
        "prediction.sustained",
        "int",
        True,
        "requests of the declared workload that one data-parallel rank sustains",
        _S,
        lambda c, b: sustained_at(c.prediction, b),
    ),
    Fact("prediction.capacity", "int", True, "the same over all ranks and replicas", _S, _capacity),
    Fact(
        "prediction.admitted",
        "int",
        True,
        "requests that the admission check lets in at once",
        _S,
        _concurrency("admitted"),
    ),
    Fact("prediction.limited_by", "string", True, "kv_cache or max_num_seqs", _S, _concurrency("limited_by")),
    Fact(
        "prediction.preemption_expected",
        "bool",
        True,
        "more requests are admitted than sustained",
        _S,
        _concurrency("preemption_expected"),
    ),
    Fact(
        "engine.tensor_parallel_size",
        "int",
        True,
        "effective tensor parallel size",
        ("words",),
        _engine("tensor_parallel_size"),
    ),
    Fact(
        "engine.pipeline_parallel_size",
        "int",
        True,
        "effective pipeline parallel size",
        ("words",),
        _engine("pipeline_parallel_size"),
    ),
    Fact(
        "engine.data_parallel_size",
        "int",
        True,
        "effective data parallel size",
        ("words",),
        _engine("data_parallel_size"),
    ),
    Fact("engine.max_model_len", "int", True, "effective max_model_len", _M, _engine("max_model_len")),
    Fact("engine.max_num_seqs", "int", True, "effective max_num_seqs", (*_V, *_G), _engine("max_num_seqs")),
    Fact(
        "engine.max_num_batched_tokens",
        "int",
        True,
        "effective max_num_batched_tokens",
        (*_V, *_G),
        _engine("max_num_batched_tokens"),
    ),
    Fact(
        "engine.gpu_memory_utilization",
        "double",
        True,
        "effective gpu_memory_utilization",
        _V,
        _engine("gpu_memory_utilization"),
    ),
    Fact("engine.block_size", "int", True, "effective block size in tokens", _V, _engine("block_size")),
    Fact("engine.kv_cache_dtype", "string", True, "effective KV cache dtype", _V, _engine("kv_cache_dtype")),
    Fact(
        "engine.enable_prefix_caching", "bool", True, "effective prefix caching", _V, _engine("enable_prefix_caching")
    ),
)

_KINDS: Final[dict[str, FactType]] = {
    "flag": "bool",
    "boolean": "bool",
    "str": "string",
    "int": "int",
    "human-int": "int",
    "human-int-or-auto": "int",
    "float": "double",
}


def _argument_type(runs: list[dict[str, Any]]) -> FactType:
    """The one CEL type of an argument over all releases, ``any`` where they differ."""
    found: set[FactType] = set()
    for run in runs:
        several = run.get("many") or run.get("append") or run.get("bare")
        found.add("any" if several else _KINDS.get(run["kind"], "any"))
    return found.pop() if len(found) == 1 else "any"


@lru_cache(maxsize=1)
def _argument_runs() -> dict[str, tuple[str, list[dict[str, Any]]]]:
    """Every engine argument with the first spelling of its flag and its definitions over all releases."""
    from kvgate.tables import load_table

    found: dict[str, tuple[str, list[dict[str, Any]]]] = {}
    for name, entry in load_table("engine/flags")["flags"].items():
        dest = entry["dest"]
        if dest.isidentifier() and dest not in ("model", "model_tag"):
            found.setdefault(dest, (name, []))[1].extend(entry["runs"])
    return found


@lru_cache(maxsize=1)
def _own_facts() -> dict[str, Fact]:
    return {fact.name: fact for fact in _OWN}


@cache
def find_fact(name: str) -> Fact | None:
    """A fact by its name, None if there is none."""
    head, _, dest = name.partition(".")
    if head != "args":
        return _own_facts().get(name)
    found = _argument_runs().get(dest)
    if found is None:
        return None
    spelled, runs = found
    return Fact(
        name, _argument_type(runs), True, f"{spelled} as set", ("words",), lambda case, bound: case.argument(dest)
    )


@lru_cache(maxsize=1)
def facts() -> Mapping[str, Fact]:
    """Every fact by its name, in the order they are documented."""
    arguments = [find_fact(f"args.{dest}") for dest in sorted(_argument_runs())]
    return {fact.name: fact for fact in (*_OWN, *arguments) if fact is not None}


def find_variable(name: str) -> Variable | None:
    """A fact as CEL's variable."""
    fact = find_fact(name)
    return Variable(fact.name, fact.type, fact.optional) if fact is not None else None


def variables() -> tuple[Variable, ...]:
    """The facts as CEL's variables."""
    return tuple(Variable(fact.name, fact.type, fact.optional) for fact in facts().values())


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The environment of all facts, made once."""
    return Environment(variables())


class UnitFacts(Mapping[str, Any]):
    """The facts of one unit at one bound, each computed when it is asked for."""

    __slots__ = ("_bound", "_case")

    def __init__(self, case: Case, bound: Bound = Bound.ESTIMATE) -> None:
        self._case = case
        self._bound = bound

    def __getitem__(self, name: str) -> Any:
        fact = find_fact(name)
        if fact is None:
            raise KeyError(name)
        return _typed(fact, fact.get(self._case, self._bound))

    def __iter__(self) -> Iterator[str]:
        return iter(facts())

    def __len__(self) -> int:
        return len(facts())


def _typed(fact: Fact, value: Any) -> Any:
    """A value of the type that the fact declares; a text where a number should be (vLLM would refuse it) is unknown."""
    if value is None or fact.type == "any":
        return value
    if fact.type == "double":
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    wanted: dict[FactType, type | tuple[type, ...]] = {
        "bool": bool,
        "int": int,
        "string": str,
        "list": list,
        "map": dict,
    }
    if fact.type == "int" and (isinstance(value, bool) or (isinstance(value, int) and abs(value) >= 2**63)):
        return None
    return value if isinstance(value, wanted[fact.type]) else None
