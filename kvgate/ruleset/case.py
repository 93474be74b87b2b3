"""One serve unit as the rules look at it: its plan, its prediction, and what is derived from both."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kvgate.manifests.unit import TEMPLATE_ENTRY
from kvgate.patterns import regex
from kvgate.ruleset.certainty import Bound, Input, doubtful_inputs
from kvgate.source.text import Unresolved
from kvgate.source.yaml_tree import scalar_bool

if TYPE_CHECKING:
    from kvgate.capacity.prediction import Prediction, Quantity
    from kvgate.hardware.gpu import Gpu
    from kvgate.manifests.unit import ServeUnit
    from kvgate.models.geometry import ModelGeometry
    from kvgate.plan import ServingPlan
    from kvgate.ruleset.host import Host
    from kvgate.ruleset.scene import Scene

#: GPUs that stand for what people have, where the files do not name one.

#: Engine arguments that the prediction resolves -> their names in ``Prediction.resolved``.
RESOLVED_NAMES: Final = {
    "dtype": "dtype",
    "max_model_len": "max_model_len",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "gpu_memory_utilization": "utilization",
    "block_size": "block_size",
    "kv_cache_dtype": "cache_dtype",
    "enable_prefix_caching": "prefix_caching",
    "enable_chunked_prefill": "chunked_prefill",
    "async_scheduling": "async_scheduling",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
}

_WHOLE_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu", "device")
_MANY_NODES: Final = ("nnodes", "node_rank", "master_addr", "data_parallel_address", "data_parallel_rank", "headless")
_MANY_NODE_KINDS: Final = ("LeaderWorkerSet", "RayCluster", "RayService", "RayJob", "DynamoGraphDeployment")

_UNASKED: Final[Any] = object()


class Case:
    """A plan with its prediction.

    Args:
        plan: the resolved unit.
        prediction: ``plan.predict()``, None where the model is unknown.
        scene: the run that it belongs to; a scene of its own where there is none.
    """

    def __init__(self, plan: ServingPlan, prediction: Prediction | None, scene: Scene | None = None) -> None:
        self.plan = plan
        self.prediction = prediction
        self._scene = scene
        self._host: Host | None = None
        self.doubtful: frozenset[Input] = doubtful_inputs(plan, prediction)
        self._geometry: Any = _UNASKED
        self._predicted: dict[Any, Prediction | None] = {}

    @property
    def unit(self) -> ServeUnit:
        return self.plan.unit

    @property
    def scene(self) -> Scene:
        """What stands around the unit: files, objects, other units."""
        if self._scene is None:
            from kvgate.ruleset.scene import Scene

            self._scene = Scene([self.unit.span.file])
            self._scene.cases = (self,)
        return self._scene

    @property
    def host(self) -> Host:
        """What the manifest says around the command line: probes, volumes, limits, ports."""
        if self._host is None:
            from kvgate.ruleset.host import Host

            self._host = Host(self)
        return self._host

    # -- arguments -------------------------------------------------------------------------------------------------

    def argument(self, dest: str) -> Any:
        """The value that the command line gives an engine argument, None where it is unset or unresolved."""
        value = self.plan.values.get(dest)
        return None if isinstance(value, Unresolved) else value

    def is_unresolved(self, dest: str) -> bool:
        return isinstance(self.plan.values.get(dest), Unresolved)

    @property
    def unresolved_arguments(self) -> list[str]:
        return [dest for dest, value in self.plan.values.items() if isinstance(value, Unresolved)]

    def effective(self, dest: str) -> Any:
        """The value that counts: set, computed by the prediction, or that release's default; None where unknown."""
        if self.is_unresolved(dest):
            return None
        computed = RESOLVED_NAMES.get(dest)
        if computed is not None and self.prediction is not None and self.prediction.resolved.get(computed) is not None:
            return self.prediction.resolved[computed]
        if dest in self.plan.values:
            return self.plan.values[dest]
        from kvgate.engine.defaults import DYNAMIC, default_of

        try:
            value = default_of(dest, self.plan.version)
        except KeyError:
            return None
        return None if value is DYNAMIC else value

    def integer(self, dest: str) -> int | None:
        value = self.effective(dest)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def has_hidden_words(self) -> bool:
        """Whether the command line has words that could be any flag: unresolved ones, or of an absent template."""
        return "words" in self.doubtful or self.unit.entry == TEMPLATE_ENTRY

    # -- machine ---------------------------------------------------------------------------------------------------

    @property
    def requested_gpus(self) -> int | None:
        """Whole GPUs that one replica asks for; None where the files do not say or ask for slices."""
        counts = [request.count for request in self.unit.gpu_requests]
        whole = all(request.resource in _WHOLE_GPUS for request in self.unit.gpu_requests)
        if not counts or not whole or any(count is None for count in counts):
            return None
        return sum(count for count in counts if count is not None)

    @property
    def local_data_parallel(self) -> int | None:
        """Data-parallel ranks that this server starts itself."""
        local = self.integer("data_parallel_size_local")
        return local if local is not None else self.integer("data_parallel_size")

    @property
    def local_gpus(self) -> int | None:
        """GPUs that the server uses: tensor x pipeline x local data parallel size."""
        sizes = (self.integer("tensor_parallel_size"), self.integer("pipeline_parallel_size"))
        data = self.local_data_parallel or (1 if "data_parallel_size" not in self.plan.values else None)
        if None in sizes or data is None:
            return None
        tensor, pipeline = sizes
        return (tensor or 1) * (pipeline or 1) * data

    @property
    def spans_nodes(self) -> bool:
        """Whether the server may span several machines or pods: Ray, or vLLM's own multi-node flags."""
        backend = self.plan.values.get("distributed_executor_backend")
        if isinstance(backend, Unresolved) or backend in ("ray", "external_launcher"):
            return True
        if self.host.value("raySpec") is not None and scalar_bool(self.host.value("raySpec", "enabled")) is not False:
            return True  # the production stack starts a Ray cluster of as many pods
        if self.unit.kind in _MANY_NODE_KINDS or _nodes_of_task(self.unit) > 1:
            return True
        return any(self.plan.values.get(dest) not in (None, False, 1, 0) for dest in _MANY_NODES)

    @property
    def backend(self) -> str | None:
        """``cuda``, ``rocm``, ``cpu``, ``tpu``, ...; None where nothing says."""
        if self.plan.gpu is not None and self.plan.gpu.vendor == "cpu":
            return "cpu"
        if any(request.resource.startswith("aws.amazon.com/neuron") for request in self.unit.gpu_requests):
            return "neuron"  # whose images are called after vLLM alone
        return self.plan.image.backend if self.plan.image is not None else None

    @property
    def capability(self) -> tuple[int, int] | None:
        """Compute capability of the GPU, also where only its memory is open; None where it is unknown."""
        if self.plan.gpu is not None:
            return self.plan.gpu.compute_capability
        found = {gpu.compute_capability for gpu in self.plan.gpu_candidates}
        return found.pop() if len(found) == 1 else None

    @property
    def gpu_words(self) -> str:
        """The GPU for people."""
        if self.plan.gpu is not None:
            return self.plan.gpu.name
        names = [gpu.name for gpu in self.plan.gpu_candidates]
        return " or ".join(names) if names else "the GPU"

    @property
    def gpu_doubt(self) -> tuple[Input, ...]:
        """What a claim about the compute capability rests on."""
        return ("gpu",) if self.plan.gpu is not None or not self.plan.gpu_candidates else ()

    def since(self, release: str) -> bool:
        """Whether the unit runs a release or a newer one."""
        from kvgate.engine.releases import at_least

        return at_least(self.plan.version, release)

    @property
    def release_words(self) -> str:
        """The release for people: ``vLLM 0.19.1``."""
        assumed = " (assumed)" if self.plan.version_basis == "assumed" else ""
        return f"vLLM {self.plan.version}{assumed}"

    @property
    def weight_bytes(self) -> int | None:
        """Bytes of the weights over all GPUs; from the size in the model's name where its files are not at hand."""
        memory = self.prediction.memory if self.prediction is not None else None
        if memory is not None and memory.parameters_bytes is not None:
            ranks = (self.integer("tensor_parallel_size") or 1) * (self.integer("pipeline_parallel_size") or 1)
            return memory.parameters_bytes * ranks
        return weight_bytes_of_name(self.plan.model_reference)

    # -- model and prediction --------------------------------------------------------------------------------------

    @property
    def geometry(self) -> ModelGeometry | None:
        """The model's shape, None where the model or its architecture is unknown."""
        if self._geometry is _UNASKED:
            self._geometry = None
            if self.plan.model is not None:
                from kvgate.models.geometry import UnknownModelError, read_geometry

                overrides = self.argument("hf_overrides")
                try:
                    self._geometry = read_geometry(
                        self.plan.model, hf_overrides=overrides if isinstance(overrides, Mapping) else None
                    )
                except UnknownModelError:
                    self._geometry = None
        geometry: ModelGeometry | None = self._geometry
        return geometry

    def predict(
        self,
        *,
        without: tuple[str, ...] = (),
        changes: Mapping[str, Any] | None = None,
        gpu: Gpu | None = None,
    ) -> Prediction | None:
        """What would be predicted otherwise (:meth:`ServingPlan.predict`), each question asked once."""
        key = (without, repr(sorted((changes or {}).items())), gpu)
        if key not in self._predicted:
            self._predicted[key] = self.plan.predict(without=without, changes=changes, gpu=gpu)
        return self._predicted[key]

    def at_release(self, version: str) -> Case:
        """The same unit with another release, as if the files stated it."""
        from kvgate.plan import at_release

        plan = at_release(self.plan, version)
        return Case(plan, plan.predict(), self.scene)

    def common_gpus(self) -> tuple[Gpu, ...]:
        """GPUs to say something of where the unit's own is not known."""
        from kvgate.hardware.catalogue import common_gpus

        return common_gpus()

    def replicas_held(self) -> int:
        """What multiplies the concurrency of one rank: replicas x data-parallel ranks."""
        return self.plan.replicas * max(1, self.plan.data_parallel_size)


_SIZE: Final = regex(r"(?<![A-Za-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)[bB](?![A-Za-z0-9])")


def _nodes_of_task(unit: ServeUnit) -> int:
    """Machines that a SkyPilot or dstack task runs on."""
    from kvgate.manifests.tree import node_at
    from kvgate.source.yaml_tree import scalar_int

    if unit.kind not in ("skypilot", "dstack"):
        return 1
    counts = (scalar_int(node_at(unit.document, key)) for key in ("num_nodes", "nodes"))
    return next((count for count in counts if count is not None), 1)


#: Names whose figure is not the number of their own parameters: drafters of a model, experts beside an active size.
_NO_SIZE: Final = regex(r"speculator|eagle|medusa|dflash|draft|[-_]mtp|\d+B-\d+E\b|\.gguf|lora", re.IGNORECASE)
_FOUR_BITS: Final = regex(
    r"awq|gptq|int4|w4a16|nvfp4|mxfp4|[-_]fp4|4[-_]?bit|[-_]4b?it|bnb|q4_|gpt-oss|quantized\.w4", re.I
)
_EIGHT_BITS: Final = regex(r"fp8|int8|w8a8|w8a16|8[-_]?bit|q8_", re.I)


def weight_bytes_of_name(name: str | None) -> int | None:
    """Bytes of the weights by the number of parameters and the format in a model's name, None where it has none."""
    if name is None or _NO_SIZE.search(name):
        return None
    found = _SIZE.search(name.rpartition("/")[2].replace("_", "-"))
    if found is None:
        return None
    billions = float(found[2]) * int(found[1] or 1)
    bytes_each = 0.56 if _FOUR_BITS.search(name) else 1.05 if _EIGHT_BITS.search(name) else 2
    return int(billions * bytes_each * 10**9)


def pool_figure(prediction: Prediction | None, name: str, bound: Bound) -> Any:
    """A figure of the KV cache (``num_gpu_blocks``, ``max_concurrency``, ...) at a bound of its interval."""
    if prediction is None:
        return None
    value = getattr(prediction.kv_cache, name)
    if bound is Bound.ESTIMATE or value is None:
        return value
    bounds = prediction.kv_cache.interval.get(name)
    if bounds is None:
        return value
    end = bounds[0] if bound is Bound.LOW else bounds[1]
    return value if end is None else end


def quantity_at(quantity: Quantity, bound: Bound) -> int | None:
    """A quantity of bytes at a bound of its interval."""
    if bound is Bound.LOW and quantity.low is not None:
        return quantity.low
    if bound is Bound.HIGH and quantity.high is not None:
        return quantity.high
    return quantity.bytes


def sustained_at(prediction: Prediction | None, bound: Bound) -> int | None:
    """Requests of the declared workload that one rank sustains, at a bound of the interval."""
    if prediction is None or prediction.concurrency is None:
        return None
    concurrency = prediction.concurrency
    low, high = concurrency.sustained_interval
    if bound is Bound.LOW and low is not None:
        return low
    if bound is Bound.HIGH and high is not None:
        return high
    return concurrency.sustained
