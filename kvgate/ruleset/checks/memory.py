"""What takes GPU or host memory beside the weights and the pool."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvgate.findings.finding import Severity
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.ruleset.case import Case, weight_bytes_of_name
from kvgate.ruleset.certainty import Input
from kvgate.ruleset.checks import NoParams, check
from kvgate.ruleset.comments import claims_capacity, claims_memory
from kvgate.ruleset.model import Draft
from kvgate.ruleset.words import GIB, amount, gib, listed
from kvgate.source.text import Span
from kvgate.source.yaml_tree import Scalar, scalar_bool

if TYPE_CHECKING:
    from kvgate.capacity.prediction import Prediction
    from kvgate.models.model import Model

_POOL: Final[tuple[Input, ...]] = ("prediction", "vllm_version", "gpu", "model")


def available(prediction: Prediction | None) -> int | None:
    """Bytes of the pool, None where unknown."""
    return prediction.memory.kv_cache_available.bytes if prediction is not None else None


# -- utilization -------------------------------------------------------------------------------------------------------


@record
class Utilization:
    """Shares of the GPU from which on there is something to say.

    ``most`` is the share that is too much with what takes memory beside the budget, ``always`` the one that is too much
    anyway, ``drafting`` the one with a drafter in the model. ``graphs_gib`` is what CUDA graphs of releases that do not
    count them are seen to take, ``spare_gib`` what they leave alone.
    """

    most: float = 0.95
    always: float = 0.98
    drafting: float = 0.9
    graphs_gib: float = 1.0
    spare_gib: float = 3.0
    small_gib: float = 24.6


@check("utilization", params=Utilization, values=("share", "left", "of_total", "why", "advice", "bytes", "release"))
def utilization(case: Case, params: Utilization) -> Iterator[Draft]:
    """gpu_memory_utilization leaves too little for what vLLM takes outside its budget."""
    share = case.argument("gpu_memory_utilization")
    if not isinstance(share, int | float) or isinstance(share, bool) or case.backend in ("cpu", "tpu"):
        return
    values: dict[str, Any] = {
        "share": f"{share:g}",
        "left": "",
        "of_total": "",
        "why": "",
        "advice": "0.85 to 0.92",
        "bytes": None,
        "release": case.release_words,
    }
    fixed = case.argument("kv_cache_memory_bytes")
    if fixed is not None:
        if "gpu_memory_utilization" in case.plan.parsed.arguments:
            yield Draft(variant="overridden", values={**values, "bytes": fixed if isinstance(fixed, int) else None})
        return
    total = case.prediction.memory.total.bytes if case.prediction is not None else None
    total = total or (case.plan.gpu.memory_bytes if case.plan.gpu is not None else None)
    left = total * (1 - share) if total is not None else None
    eager = case.argument("enforce_eager") is True
    counted = case.since("0.20.0") and case.plan.environment.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS") != "0"
    reasons = list(_beside_budget(case, params, total, share, eager=eager, counted=counted))
    drafting = _drafts_itself(case) and share >= params.drafting and case.since("0.20.0")
    graphs = left is not None and left < params.graphs_gib * GIB and not counted and not eager and share > 0.9
    if not (share >= params.always or (share >= params.most and reasons and not eager) or graphs or drafting):
        if share < params.most or eager:
            return
        reasons = []
    ceiling = None
    if eager or not (reasons or graphs or drafting or share >= params.always):
        ceiling = Severity.INFO
    if left is not None and total is not None:
        values |= {"left": f"{gib(left)} of {gib(total)}", "of_total": f" ({case.gpu_words})"}
    else:
        values["left"] = f"{(1 - share) * 100:.3g}% of the GPU"
    values["why"] = f": {listed(reasons)}" if reasons else ""
    by_release = (graphs or drafting) and share < params.most
    yield Draft(
        variant="drafting" if drafting and share < params.most else None,
        values=values,
        rests_on=("vllm_version",) if by_release else (),
        ceiling=ceiling,
    )


def _beside_budget(
    case: Case, params: Utilization, total: int | None, share: float, *, eager: bool, counted: bool
) -> Iterator[str]:
    """What makes the memory outside the budget large, or the budget itself uncertain."""
    spare = total * (1 - share) if total is not None else 0
    if not counted and not eager and spare < params.spare_gib * GIB:
        yield f"CUDA graphs, which {case.release_words} does not count"
    gpus = case.local_gpus
    if gpus is not None and gpus > 1:
        yield f"communication between {gpus} GPUs"
    if case.geometry is not None and case.geometry.num_experts:
        yield "the experts' activations, which vary with the routing"
    if case.plan.values.get("speculative_config") or case.plan.values.get("speculative_model"):
        yield "the drafter"
    if case.argument("enable_lora"):
        yield "adapters that are loaded later"
    if total is not None and total < params.small_gib * GIB:
        yield "whatever else uses a GPU of this size"


def _drafts_itself(case: Case) -> bool:
    speculative = case.argument("speculative_config")
    method = speculative.get("method") if isinstance(speculative, Mapping) else None
    return isinstance(method, str) and (method == "mtp" or method.endswith("_mtp"))


# -- activations -------------------------------------------------------------------------------------------------------


@record
class Budget:
    """``from_tokens`` is the smallest budget that is looked at, ``plain_tokens`` what it is compared with.

    ``share`` of the pool or ``least_gib`` must be at stake; ``blind_tokens`` are too many where the pool is unknown.
    """

    from_tokens: int = 16384
    plain_tokens: int = 8192
    share: float = 0.1
    least_gib: float = 4.0
    blind_tokens: int = 32768


@check(
    "batched-tokens",
    params=Budget,
    values=("budget", "plain", "cost", "pool", "plain_pool", "share", "set_by", "machine", "effect"),
)
def batched_tokens(case: Case, params: Budget) -> Iterator[Draft]:
    """max_num_batched_tokens is so large that the activations of a full step eat the pool."""
    if case.is_unresolved("max_num_batched_tokens") or case.backend in ("cpu", "tpu"):
        return
    budget = case.integer("max_num_batched_tokens")
    if budget is None or budget < params.from_tokens:
        return
    explicit = case.argument("max_num_batched_tokens") is not None
    pool = available(case.prediction)
    smaller = case.predict(changes={"max_num_batched_tokens": params.plain_tokens})
    plain = available(smaller)
    values: dict[str, Any] = {
        "budget": budget,
        "plain": params.plain_tokens,
        "cost": None,
        "pool": pool,
        "plain_pool": plain,
        "share": "",
        "set_by": "--max-num-batched-tokens" if explicit else f"{case.release_words}'s default for this GPU",
        "machine": case.gpu_words,
        "effect": "",
    }
    if pool is None or plain is None:
        if explicit and budget >= params.blind_tokens:
            yield Draft(variant="unknown-pool", values=values)
        return
    cost = plain - pool
    if plain <= 0 or cost <= 0 or (cost < params.share * plain and cost < params.least_gib * GIB):
        if explicit and budget >= 4 * params.blind_tokens:
            yield Draft(variant="unknown-pool", values=values, ceiling=Severity.WARNING)
        return
    values["cost"] = cost
    values["share"] = f"{min(cost / plain, 1):.0%}"
    fails = case.prediction is not None and case.prediction.starts == "no" and smaller is not None
    values["effect"] = "; vLLM does not start" if fails and smaller is not None and smaller.starts == "yes" else ""
    yield Draft(values=values, rests_on=_POOL if explicit else (*_POOL, "words"), ceiling=Severity.WARNING)


# -- what is loaded beside the model -----------------------------------------------------------------------------------


@record
class Drafter:
    """The part of the pool, and the utilization of the GPU, from which on a drafter is worth a warning."""

    share: float = 0.1
    utilization: float = 0.95


@check("drafter-memory", params=Drafter, values=("drafter", "drafter_bytes", "pool", "left", "share", "utilization"))
def drafter_memory(case: Case, params: Drafter) -> Iterator[Draft]:
    """A draft model takes its share of memory, and nothing of the budget says so."""
    name, dest = _drafter(case)
    if name is None or case.backend in ("cpu", "tpu"):
        return
    weights = model_bytes(case, name)
    pool = available(case.predict(without=(dest,)))
    share = case.effective("gpu_memory_utilization")
    high = (
        isinstance(share, int | float) and share >= params.utilization and "gpu_memory_utilization" in case.plan.values
    )
    ranks = case.integer("tensor_parallel_size") or 1
    each = weights // ranks if weights is not None else None
    values = {
        "drafter": name,
        "drafter_bytes": f" (~{gib(weights)} of weights)" if weights is not None else "",
        "pool": pool,
        "left": f"~{gib(max(0, pool - each))}" if pool is not None and each is not None else "less",
        "share": f"{each / pool:.0%}" if pool and pool > 0 and each is not None else "",
        "utilization": f"{share:g}" if isinstance(share, int | float) else "",
    }
    if pool is not None and pool > 0 and each is not None:
        if each >= params.share * pool:
            starves = each >= pool
            yield Draft(
                at=f"arg:{dest}",
                variant="no-pool" if starves else None,
                values=values,
                rests_on=("gpu", "model"),
            )
            return
    elif pool is not None and pool <= 0:
        return  # that the weights do not fit is said already
    if high:
        yield Draft(at=f"arg:{dest}", variant="near-full", values=values)


def _drafter(case: Case) -> tuple[str | None, str]:
    """The model that drafts, where it is one of its own."""
    speculative = case.argument("speculative_config")
    if isinstance(speculative, Mapping):
        model = speculative.get("model")
        if isinstance(model, str) and model not in ("ngram", "[ngram]") and model != case.plan.model_reference:
            return model, "speculative_config"
    model = case.argument("speculative_model")
    if isinstance(model, str) and model not in ("ngram", "[ngram]"):
        return model, "speculative_model"
    return None, ""


def model_of(case: Case, reference: str) -> Model | None:
    """Another model that the unit names (a drafter, an adapter's base), as far as it is at hand."""
    from kvgate.models.resolve import find_model

    config = case.scene.config
    root = config.root if config is not None else Path()
    return find_model(
        reference, root=root, mapping=config.models if config is not None else {}, online=False, environ={}
    ).model


def model_bytes(case: Case, reference: str) -> int | None:
    """Bytes of another model's weights, by its files or else by its name."""
    model = model_of(case, reference)
    if model is not None:
        from kvgate.models.weights import parameter_bytes

        estimate = parameter_bytes(model, version=case.plan.version)
        if estimate.parameters_bytes is not None:
            return estimate.parameters_bytes
    return weight_bytes_of_name(reference)


@record
class Adapters:
    """``share`` is the part of the pool, ``utilization`` the share of the GPU, ``rank`` and ``slots`` the figures from
    which on adapters are worth a warning."""

    share: float = 0.1
    utilization: float = 0.95
    rank: int = 128
    slots: int = 8


@check(
    "adapter-memory",
    params=Adapters,
    values=("slots", "rank", "cost", "pool", "plain_pool", "share", "largest", "utilization", "release"),
)
def adapter_memory(case: Case, params: Adapters) -> Iterator[Draft]:
    """LoRA slots take memory that nothing plans for."""
    if case.argument("enable_lora") is not True:
        return
    slots, rank = case.integer("max_loras") or 1, case.integer("max_lora_rank") or 16
    pool = available(case.prediction)
    without = available(case.predict(without=("enable_lora", "max_loras", "max_lora_rank", "lora_modules")))
    share = case.argument("gpu_memory_utilization")
    largest = max((found.rank for found in adapters(case) if found.rank is not None), default=None)
    values: dict[str, Any] = {
        "slots": slots,
        "rank": rank,
        "cost": without - pool if pool is not None and without is not None else None,
        "pool": pool,
        "plain_pool": without,
        "share": "",
        "largest": largest,
        "utilization": f"{share:g}" if isinstance(share, int | float) else "",
        "release": case.release_words,
    }
    at = "arg:max_lora_rank" if case.argument("max_lora_rank") is not None else "arg:enable_lora"
    if largest is not None and rank >= 4 * largest and rank > 32:
        yield Draft(at=at, variant="rank-above-adapters", values=values)
        return
    if pool is not None and without is not None and without > 0 and without - pool >= params.share * without:
        values["share"] = f"{(without - pool) / without:.0%}"
        yield Draft(at=at, values=values, rests_on=_POOL)
        return
    many = rank >= params.rank and slots >= params.slots
    if not case.since("0.8.0") and (many or rank >= 2 * params.rank):
        yield Draft(at=at, variant="not-profiled", values=values)
    elif isinstance(share, int | float) and share >= params.utilization:
        yield Draft(at="arg:gpu_memory_utilization", variant="near-full", values=values)
    elif many and pool is None:
        yield Draft(at=at, variant="large", values=values)


@record
class Adapter:
    """An adapter that a unit loads; ``rank`` None where its files are not at hand."""

    name: str
    path: str
    rank: int | None


def adapters(case: Case) -> list[Adapter]:
    """The adapters that ``--lora-modules`` names."""
    given = case.plan.values.get("lora_modules")
    found: list[Adapter] = []
    for item in given if isinstance(given, list | tuple) else [given]:
        name, path = "", ""
        if isinstance(item, Mapping):
            name, path = str(item.get("name") or ""), str(item.get("path") or "")
        elif isinstance(item, str):
            name, _, path = item.partition("=")
        if path:
            found.append(Adapter(name, path, _rank_of(case, path)))
    return found


def _rank_of(case: Case, path: str) -> int | None:
    """``r`` in an adapter's ``adapter_config.json``: of the tree, by kvgate.yaml's ``models`` or a bind mount."""
    import json
    import posixpath

    config = case.scene.config
    candidates: list[str] = []
    if config is not None and path in config.models:
        candidates.append(config.models[path])
    folder = posixpath.dirname(case.unit.path)
    if not path.startswith("/"):
        candidates += [posixpath.join(folder, path), path]
    else:
        mount = case.host.mounted_at(path)
        if mount is not None and mount.kind in ("bind", "hostPath") and mount.source.startswith("."):
            below = path[len(mount.target.rstrip("/")) :].lstrip("/")
            candidates.append(posixpath.join(folder, mount.source, below))
    for candidate in candidates:
        file = case.scene.tree.read(posixpath.join(candidate, "adapter_config.json"))
        if file is None:
            continue
        try:
            data = json.loads(file.text)
        except ValueError:
            continue
        rank = data.get("r") if isinstance(data, dict) else None
        return rank if isinstance(rank, int) else None
    return None


#: Ranks that LoRA's kernels are built for, since vLLM 0.12.0 (``config/lora.py``, ``MaxLoRARanks``).
LORA_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)


@check("lora-rank", values=("rank", "adapter", "most", "set_by", "allowed", "next"))
def lora_rank(case: Case, params: NoParams) -> Iterator[Draft]:
    """An adapter's rank is more than --max-lora-rank, or that is no rank vLLM knows."""
    if case.argument("enable_lora") is not True:
        return
    # a rank that the release's parser refuses counts as unresolved everywhere else
    written = case.plan.parsed.arguments.get("max_lora_rank")
    text = written.text.value.strip() if written is not None and written.text is not None else ""
    if written is not None and not (text.isdecimal() and len(text) < 10):
        return
    given = written is not None
    most = int(text) if given else 16
    found = [one for one in adapters(case) if one.rank is not None and one.rank > most]
    largest = max(found, key=lambda one: one.rank or 0, default=None)
    needed = largest.rank if largest is not None and largest.rank is not None else most
    values: dict[str, Any] = {
        "rank": needed,
        "adapter": largest.name if largest is not None else "",
        "most": most,
        "set_by": "--max-lora-rank" if given else "the default of --max-lora-rank",
        "allowed": [str(rank) for rank in LORA_RANKS],
        "next": next((rank for rank in LORA_RANKS if rank >= needed), LORA_RANKS[-1]),
    }
    if largest is not None:
        at = "arg:max_lora_rank" if given else "arg:lora_modules"
        yield Draft(at=at, values=values, rests_on=() if given else ("words",))
    elif given and most not in LORA_RANKS and case.since("0.6.0"):
        yield Draft(at="arg:max_lora_rank", variant="not-allowed", values=values)


# -- images ------------------------------------------------------------------------------------------------------------


@record
class Media:
    """``share`` is the part of the pool that media must cost, ``items`` the number of images or videos of one prompt
    that is much where the pool is unknown."""

    share: float = 0.15
    items: int = 4


@check(
    "media-profile",
    params=Media,
    values=("limits", "cost", "pool", "plain_pool", "share", "machine", "tokens", "items"),
)
def media_profile(case: Case, params: Media) -> Iterator[Draft]:
    """The worst case of images and videos is set aside although nothing bounds it."""
    if case.argument("language_model_only") or case.is_unresolved("limit_mm_per_prompt"):
        return
    geometry = case.geometry
    limits = case.argument("limit_mm_per_prompt")
    given = limits if isinstance(limits, Mapping) else None
    processor = case.argument("mm_processor_kwargs")
    bounded = isinstance(processor, Mapping) and any("max_pixels" in key or key == "size" for key in processor)
    counts = {kind: _count(value) for kind, value in (given or {}).items() if kind in ("image", "video")}
    most = max(counts.values(), default=None)
    tokens = geometry.family.item_tokens if geometry is not None else None
    values: dict[str, Any] = {
        "limits": listed(f"{count} of kind {kind}" for kind, count in counts.items()) if counts else "no limit",
        "cost": None,
        "pool": available(case.prediction),
        "plain_pool": None,
        "share": "",
        "machine": case.gpu_words,
        "tokens": f", {amount(tokens)} tokens each at most" if tokens else "",
        "items": most,
    }
    if geometry is not None and not geometry.is_multimodal:
        return
    if most is not None and most >= params.items and not bounded:
        yield Draft(variant="many", values=values)
    if geometry is None or bounded or given is not None:
        return
    pool = available(case.prediction)
    plain = available(case.predict(changes={"limit_mm_per_prompt": {"image": 0, "video": 0}}))
    if pool is None or plain is None:
        yield Draft(variant="unset", values=values, ceiling=Severity.INFO, at="model")
        return
    cost = plain - pool
    if plain > 0 and cost >= params.share * plain:
        figures = {"cost": cost, "plain_pool": plain, "share": f"{min(1, cost / plain):.0%}"}
        yield Draft(at="model", values={**values, **figures}, rests_on=(*_POOL, "words"))


def _count(value: Any) -> int:
    if isinstance(value, Mapping):
        value = value.get("count", 999)
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0


# -- host memory -------------------------------------------------------------------------------------------------------


@record
class HostMemory:
    """``factor`` is what offloading a byte costs in host memory: pinned copies round up to powers of two and the like
    (seen 1.9 and more)."""

    factor: float = 1.9
    swap_default_gib: float = 4.0


@check("host-memory", params=HostMemory, values=("needed", "limit", "parts", "factor"))
def host_memory(case: Case, params: HostMemory) -> Iterator[Draft]:
    """The memory limit is less than what is offloaded to the host."""
    limit = case.host.memory_limit
    if limit is None or limit.value is None:
        return
    parts = list(_offloaded(case, params))
    needed = sum(size for _, size, _ in parts)
    if not parts or needed <= limit.value:
        return
    certain = sum(size / factor for (_, size, _), factor in zip(parts, _factors(parts, params), strict=True))
    yield Draft(
        at=limit.span,
        values={
            "needed": needed,
            "limit": int(limit.value),
            "parts": listed(words for words, _, _ in parts),
            "factor": params.factor,
        },
        ceiling=None if certain >= limit.value else Severity.WARNING,  # the process itself needs some beside
        related=tuple((place, "this part") for _, _, place in parts),
    )


def _factors(parts: list[tuple[str, int, str | Span]], params: HostMemory) -> Iterator[float]:
    for words, _, _ in parts:
        yield params.factor if f"x {params.factor:g}" in words else 1.0


def _offloaded(case: Case, params: HostMemory) -> Iterator[tuple[str, int, str | Span]]:
    """Parts of the host's memory that the server asks for: words, bytes, and the place."""
    ranks = (case.integer("tensor_parallel_size") or 1) * (case.integer("pipeline_parallel_size") or 1)

    def scaled(name: str, size_gib: float, times: int, place: str) -> tuple[str, int, str]:
        each = f"{times} x " if times > 1 else ""
        return (
            f"{each}{size_gib:g} GiB x {params.factor:g} for {name}",
            int(size_gib * times * params.factor * GIB),
            place,
        )

    offload = _number(case.argument("cpu_offload_gb"))
    if offload:
        yield scaled("--cpu-offload-gb", offload, ranks, "arg:cpu_offload_gb")
    cache = _number(case.argument("kv_offloading_size"))
    if cache:
        yield scaled("--kv-offloading-size", cache, 1, "arg:kv_offloading_size")
    swap = _number(case.argument("swap_space"))
    if swap is None and not case.since("0.8.0") and ranks > 1 and "swap_space" not in case.plan.values:
        swap = params.swap_default_gib
    if swap and not case.since("0.11.0"):
        words = "--swap-space" if "swap_space" in case.plan.values else "the default of --swap-space"
        yield f"{f'{ranks} x ' if ranks > 1 else ''}{swap:g} GiB for {words}", int(swap * ranks * GIB), "arg:swap_space"
    buffer = case.host.value("lmcacheConfig", "cpuOffloadingBufferSize")
    if isinstance(buffer, Scalar) and scalar_bool(case.host.value("lmcacheConfig", "enabled")) is True:
        size = _number(buffer.value) or 0.0
        yield f"{size:g} GiB for lmcacheConfig.cpuOffloadingBufferSize", int(size * GIB), buffer.span
    local = _number(case.plan.environment.get("LMCACHE_MAX_LOCAL_CPU_SIZE"))
    if local and case.plan.environment.get("LMCACHE_LOCAL_CPU", "true").lower() in ("true", "1"):
        yield (
            f"{f'{ranks} x ' if ranks > 1 else ''}{local:g} GiB for LMCache",
            int(local * ranks * GIB),
            "env:LMCACHE_MAX_LOCAL_CPU_SIZE",
        )
    yield from _connector_memory(case, params)
    space = _number(case.plan.environment.get("VLLM_CPU_KVCACHE_SPACE"))
    if space and (case.backend == "cpu"):
        weights = case.weight_bytes
        yield f"{space:g} GiB for VLLM_CPU_KVCACHE_SPACE", int(space * ranks * GIB), "env:VLLM_CPU_KVCACHE_SPACE"
        if weights:
            yield f"{gib(weights)} for the weights", weights, "model"


def _connector_memory(case: Case, params: HostMemory) -> Iterator[tuple[str, int, str]]:
    transfer = case.argument("kv_transfer_config")
    extra = transfer.get("kv_connector_extra_config") if isinstance(transfer, Mapping) else None
    if not isinstance(extra, Mapping):
        return
    for key in ("cpu_bytes_to_use", "cpu_bytes_to_use_per_rank"):
        size = _number(extra.get(key))
        if size:
            words = f"{gib(size)} x {params.factor:g} for {key} of --kv-transfer-config"
            yield words, int(size * params.factor), "arg:kv_transfer_config"
    blocks = _number(extra.get("num_cpu_blocks"))
    each = case.prediction.kv_cache.bytes_per_block if case.prediction is not None else None
    if blocks and each:
        ranks = case.integer("tensor_parallel_size") or 1
        size = int(blocks) * each * ranks
        words = f"{amount(int(blocks))} blocks of {amount(each * ranks)} bytes x {params.factor:g} (num_cpu_blocks)"
        yield words, int(size * params.factor), "arg:kv_transfer_config"


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str) and re.fullmatch(r"\d+(?:\.\d+)?", value.strip()):
        return float(value)
    return None


_PREFIXES: Final = regex(r"prefix|reuse|re-use|idle|warm", re.IGNORECASE)
_CACHE: Final = regex(r"kv|cache|concurren|capacity|\busers?\b|requests|sessions", re.IGNORECASE)
_OFFLOADS: Final = ("cpu_offload_gb", "swap_space", "kv_offloading_size", "kv_transfer_config")


@check("offload-as-capacity", values=("flag", "claim", "effect"))
def offload_as_capacity(case: Case, params: NoParams) -> Iterator[Draft]:
    """Offloading to the host is said to make the cache of running requests larger."""
    effects = {
        "cpu_offload_gb": "it moves weights to the host; every step copies them back over PCIe",
        "swap_space": "V1 swaps nothing: preempted requests are computed again",
        "kv_offloading_size": "it keeps prefixes that no running request uses; a running request stays on the GPU",
        "kv_transfer_config": "a connector keeps or moves prefixes; a running request stays on the GPU",
    }
    for dest in _OFFLOADS:
        argument = case.plan.parsed.arguments.get(dest)
        if argument is None:
            continue
        claim = claims_capacity(argument.span) or claims_memory(argument.span)
        if claim is None or _PREFIXES.search(claim) or (dest == "swap_space" and not case.since("0.8.0")):
            continue
        if dest == "cpu_offload_gb" and not _CACHE.search(claim):
            continue  # that it saves GPU memory is true
        flag = "--" + dest.replace("_", "-")
        yield Draft(at=f"arg:{dest}", values={"flag": flag, "claim": claim, "effect": effects[dest]})
