"""What the pool holds, and what does not change it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kvgate.findings.finding import Severity
from kvgate.records import record
from kvgate.ruleset.case import Case, pool_figure, quantity_at, sustained_at
from kvgate.ruleset.certainty import Bound, Input
from kvgate.ruleset.checks import NoParams, check
from kvgate.ruleset.comments import claims_capacity, claims_memory, claims_smaller_cache
from kvgate.ruleset.model import Draft
from kvgate.ruleset.words import amount, gib, plural

if TYPE_CHECKING:
    from kvgate.capacity.prediction import Prediction
    from kvgate.hardware.gpu import Gpu

_POOL: Final[tuple[Input, ...]] = ("prediction", "vllm_version", "gpu", "model")
#: Levers that a message names; `kvgate predict` lists them all.
_SHOWN_LEVERS: Final = 4
_LOAD: Final[tuple[Input, ...]] = (*_POOL, "workload")


def _opposite(bound: Bound) -> Bound:
    return {Bound.LOW: Bound.HIGH, Bound.HIGH: Bound.LOW}.get(bound, bound)


def _machine(case: Case) -> str:
    """What the prediction is for, in words."""
    gpu = case.plan.gpu.name if case.plan.gpu is not None else "the GPU"
    assumed = " (assumed)" if case.plan.version_basis == "assumed" else ""
    return f"{gpu} with vLLM {case.plan.version}{assumed}"


def _about(prediction: Prediction | None) -> str:
    """``~`` before figures of a pool that is not exact."""
    known = prediction.memory.kv_cache_available.basis if prediction is not None else "unknown"
    return "" if known in ("exact", "declared", "measured") else "~"


def _no_room(prediction: Prediction | None) -> bool:
    """Whether nothing is left for the pool, which is another finding."""
    available = prediction.memory.kv_cache_available.bytes if prediction is not None else None
    return available is not None and available <= 0


def _levers(case: Case, demanded: int) -> str:
    """The changes that help most, each with what the deployment would then sustain; empty where none does."""
    from kvgate.capacity.levers import find_levers

    if case.prediction is None:
        return ""
    times = case.replicas_held()
    words = ""
    found = find_levers(
        case.prediction, lambda changes: case.predict(changes=changes), gpu=case.plan.gpu, geometry=case.geometry
    )
    for lever in found[:_SHOWN_LEVERS]:
        total = lever.sustained * times
        change = lever.change[0].upper() + lever.change[1:]
        words += f" {change} would sustain {amount(total)}{'' if total < demanded else ', enough'}."
    return words


@check(
    "peak-concurrency",
    values=(
        "demanded",
        "asked_by",
        "request_tokens",
        "shared",
        "capacity",
        "range",
        "breakdown",
        "pool_bytes",
        "size_tokens",
        "about",
        "machine",
        "admitted",
        "consequence",
        "replicas_needed",
        "levers",
    ),
)
def peak_concurrency(case: Case, params: NoParams) -> Iterator[Draft]:
    """The declared peak is more than the pool sustains."""
    plan, prediction = case.plan, case.prediction
    workload = plan.workload
    peak = workload.peak_concurrency if workload is not None else None
    demanded = max(peak or 0, plan.min_sustained or 0)
    if prediction is None or workload is None or not demanded or prediction.starts == "no" or _no_room(prediction):
        return
    length = prediction.kv_cache.max_model_len
    if workload.request_tokens and length and workload.request_tokens > length:
        return  # none of them is served: workload-exceeds-max-model-len says so
    times = case.replicas_held()
    sustained = _pool_sustains(prediction, Bound.ESTIMATE)
    if sustained is None:
        return
    low, high = _pool_sustains(prediction, Bound.LOW), _pool_sustains(prediction, Bound.HIGH)
    ranks = max(1, plan.data_parallel_size)
    factors = [(plan.replicas, "replica"), (ranks, "data-parallel rank")]
    parts = [plural(count, noun) for count, noun in factors if count > 1]
    admitted = prediction.concurrency.admitted if prediction.concurrency is not None else None
    levers = _levers(case, demanded)
    needed = -(-demanded // (sustained * ranks)) if sustained else None
    queue = case.argument("max_num_queued_reqs")
    held_back = min(admitted if admitted is not None else demanded, -(-demanded // times))
    yield Draft(
        values={
            "demanded": demanded,
            "asked_by": "are declared" if demanded == peak else "are required by min_sustained",
            "request_tokens": workload.request_tokens,
            "shared": f" ({amount(shared)} of them shared)" if (shared := workload.shared_prefix_tokens) else "",
            "capacity": sustained * times,
            "range": _range(low, high, times),
            "breakdown": f" ({' x '.join([*parts, plural(sustained, 'request')])})" if parts else "",
            "pool_bytes": prediction.memory.kv_cache_available.bytes,
            "size_tokens": prediction.kv_cache.size_tokens,
            "about": _about(prediction),
            "machine": _machine(case),
            "admitted": admitted,
            "consequence": f"{amount(held_back)} are let in at once and preempt each other"
            if held_back > sustained
            else "the rest waits",
            "replicas_needed": needed,
            "levers": (f" Or run {amount(needed)} replicas." if needed is not None else "") + levers,
        },
        holds=lambda bound: _less(_pool_sustains(prediction, bound), demanded, times),
        rests_on=_LOAD,
        ceiling=Severity.INFO if queue is not None else None,
        related=(("workload", "the load is declared here"),),
    )


def _pool_sustains(prediction: Prediction, bound: Bound) -> int | None:
    """Requests that the pool of one rank sustains, were all let in: waiting for a free sequence is no fault of it."""
    load, blocks = prediction.concurrency, prediction.kv_cache.num_gpu_blocks
    if load is None or load.ratio is None or load.limited_by != "max_num_seqs" or not blocks:
        return sustained_at(prediction, bound)
    return int(load.ratio * pool_figure(prediction, "num_gpu_blocks", bound) / blocks)


def _less(sustained: int | None, demanded: int, times: int) -> bool:
    return sustained is not None and sustained * times < demanded


def _range(low: int | None, high: int | None, times: int) -> str:
    if low is None or high is None or low == high:
        return ""
    return f" ({amount(low * times)} to {amount(high * times)} within what is known)"


@check(
    "max-model-len-fits",
    values=(
        "length",
        "set_by",
        "need_bytes",
        "pool_bytes",
        "size_tokens",
        "about",
        "machine",
        "longest",
        "safe",
        "range",
    ),
)
def max_model_len_fits(case: Case, params: NoParams) -> Iterator[Draft]:
    """One request of max_model_len needs more than the pool."""
    prediction = case.prediction
    if prediction is None or prediction.starts not in ("no", "unlikely") or _no_room(prediction):
        return
    cache, available = prediction.kv_cache, prediction.memory.kv_cache_available
    held, length = cache.max_concurrency, cache.max_model_len
    low = pool_figure(prediction, "max_concurrency", Bound.LOW)
    if held is not None and min(held, low if low is not None else held) >= 1:
        return  # whatever keeps it from starting, it is not the length
    if cache.num_gpu_blocks is None or not held or length is None or cache.bytes_per_block is None:
        return
    if case.argument("max_model_len") in (-1, "auto") or prediction.resolved.get("refusal"):
        return  # fitted to the pool, or refused before the pool is looked at
    starts = prediction.starts
    need = round(cache.num_gpu_blocks / held) * cache.bytes_per_block
    longest = cache.estimated_max_model_len
    low = pool_figure(prediction, "num_gpu_blocks", Bound.LOW)
    safe = longest
    if longest is not None and low is not None and cache.num_gpu_blocks:
        block = cache.block_size or 1
        safe = max(0, longest * int(low) // cache.num_gpu_blocks // block * block)
    set_here = case.argument("max_model_len") is not None
    yield Draft(
        values={
            "length": length,
            "set_by": "--max-model-len" if set_here else "the model's own length, since --max-model-len is not set",
            "need_bytes": need,
            "pool_bytes": available.bytes,
            "size_tokens": cache.size_tokens,
            "about": _about(prediction),
            "machine": _machine(case),
            "longest": longest,
            "safe": safe,
            "range": _gib_range(available.low, available.high),
        },
        holds=lambda bound: starts == "no" or bound is not Bound.HIGH,
        rests_on=_POOL if set_here else (*_POOL, "words"),
    )


def _gib_range(low: int | None, high: int | None) -> str:
    if low is None or high is None or low == high:
        return ""
    return f" ({gib(low)} to {gib(high)} within what is known)"


@check(
    "weights-fit",
    values=(
        "weights_bytes",
        "requested_bytes",
        "total_bytes",
        "rest_bytes",
        "missing_bytes",
        "about",
        "machine",
        "levers",
        "pool_bytes",
    ),
)
def weights_fit(case: Case, params: NoParams) -> Iterator[Draft]:
    """The weights, and what vLLM needs beside them, leave nothing for the pool."""
    prediction = case.prediction
    if prediction is None:
        return
    memory = prediction.memory
    weights, requested, total = memory.weights, memory.requested, memory.total
    if weights.bytes is None or total.bytes is None or prediction.memory.kv_cache_available.bytes is None:
        return
    explicit = case.argument("kv_cache_memory_bytes") is not None

    def left(bound: Bound) -> int | None:
        if not explicit:
            return quantity_at(memory.kv_cache_available, bound)
        parts = [quantity_at(part, _opposite(bound)) for part in (weights, memory.activation_peak, memory.non_torch)]
        room = quantity_at(total, bound)
        if room is None or any(part is None for part in parts):
            return None
        return room - sum(part for part in parts if part is not None) - (memory.kv_cache_available.bytes or 0)

    estimate = left(Bound.ESTIMATE)
    if estimate is None:
        return
    rest = (requested.bytes or 0) - weights.bytes - estimate if not explicit else 0
    yield Draft(
        at="arg:kv_cache_memory_bytes" if explicit else None,
        variant="explicit-pool" if explicit else None,
        values={
            "weights_bytes": weights.bytes,
            "requested_bytes": requested.bytes,
            "total_bytes": total.bytes,
            "rest_bytes": max(0, rest),
            "missing_bytes": max(0, -estimate),
            "pool_bytes": memory.kv_cache_available.bytes,
            "about": _about(prediction),
            "machine": _machine(case),
            "levers": _sharding_lever(case),
        },
        holds=lambda bound: (value := left(bound)) is not None and value <= 0,
        rests_on=_POOL,
    )


def _sharding_lever(case: Case) -> str:
    """The smallest tensor parallel size with room for one request, where there is one up to 8."""
    now = case.integer("tensor_parallel_size") or 1
    for size in (2, 4, 8):
        if size <= now:
            continue
        prediction = case.predict(changes={"tensor_parallel_size": size})
        if prediction is not None and prediction.starts == "yes":
            return f" Sharded over {size} GPUs (--tensor-parallel-size {size}) it fits."
    return ""


@record
class AsCapacity:
    """``tolerance`` is the share of the pool that counts as no change.

    ``near`` is the share of the longest length that needs no claim. A sequence that gets fewer than ``least_tokens``,
    and less than ``share`` of max_model_len, is none that a comment may count on.
    """

    tolerance: float = 0.02
    near: float = 0.9
    least_tokens: int = 1024
    share: float = 0.125


@check(
    "max-model-len-as-capacity",
    params=AsCapacity,
    values=(
        "length",
        "own_length",
        "with_pool",
        "without_pool",
        "with_held",
        "without_held",
        "claim",
        "about",
        "machine",
        "longest",
        "change",
    ),
)
def max_model_len_as_capacity(case: Case, params: AsCapacity) -> Iterator[Draft]:
    """max_model_len is lowered, and the pool is the same without it."""
    argument = case.plan.parsed.arguments.get("max_model_len")
    length, own = case.argument("max_model_len"), case.geometry.derived_max_model_len if case.geometry else None
    if argument is None or not isinstance(length, int) or length <= 0 or own is None or length >= own:
        return
    request = case.plan.workload.request_tokens if case.plan.workload is not None else None
    if request is not None and request > length:
        return  # the requests do not fit at all, which is another finding
    claim = claims_capacity(argument.span)
    memory_claim = claims_memory(argument.span)
    if case.plan.gpu is not None or case.plan.gpu_memory_bytes is not None:
        draft = _length_draft(case, params, length, own, claim, memory_claim, None)
        if draft is not None:
            yield draft
        return
    if claim is None and memory_claim is None:
        return
    # whatever the GPU: what a comment claims must be wrong on every common one that has room
    drafts = [_length_draft(case, params, length, own, claim, memory_claim, gpu) for gpu in _roomy_gpus(case)]
    if drafts and all(draft is not None for draft in drafts):
        yield from drafts[:1]  # type: ignore[misc]


def _length_draft(
    case: Case, params: AsCapacity, length: int, own: int, claim: str | None, memory_claim: str | None, gpu: Gpu | None
) -> Draft | None:
    other = gpu
    kept = case.predict(gpu=other) if other is not None else case.prediction
    unset = case.predict(without=("max_model_len",), gpu=other)
    if kept is None or unset is None or _no_room(kept):
        return None
    with_pool, without_pool = kept.memory.kv_cache_available.bytes, unset.memory.kv_cache_available.bytes
    if with_pool is None or without_pool is None or with_pool <= 0:
        return None
    needed = unset.starts in ("no", "unlikely")  # without the flag it would not start: it is there for a reason
    longest = unset.kv_cache.estimated_max_model_len or own
    smaller = (with_pool - without_pool) / with_pool
    held, held_unset = sustained_at(kept, Bound.ESTIMATE), sustained_at(unset, Bound.ESTIMATE)
    peak = case.plan.workload.peak_concurrency if case.plan.workload is not None else None
    times = case.replicas_held()
    unfit = held is not None and peak is not None and held * times < peak
    if memory_claim is not None and not needed:
        claim = claim or memory_claim
    if smaller > params.tolerance and not (unfit and held == held_unset):
        return None  # the flag does leave a larger pool
    if claim is None and (not unfit or (needed and length >= params.near * min(longest, own))):
        return None
    if claim is not None and not unfit and peak is not None:
        return None  # the declared load fits
    return Draft(
        variant="claim" if claim is not None else None,
        values={
            "length": length,
            "own_length": own,
            "with_pool": with_pool,
            "without_pool": without_pool,
            "with_held": _held(kept, held),
            "without_held": _held(unset, held_unset),
            "claim": claim,
            "about": _about(kept),
            "machine": _machine(case) if other is None else f"{other.name} (for example) with vLLM {case.plan.version}",
            "longest": min(longest, own),
            "change": _change(with_pool, without_pool),
        },
        ceiling=Severity.INFO if claim is None and needed else None,
        rests_on=("model", "vllm_version") if other is not None else _LOAD if peak is not None else _POOL,
    )


def _roomy_gpus(case: Case) -> list[Gpu]:
    """The common GPUs on which the server has a pool, where no file names its own."""
    return [gpu for gpu in case.common_gpus() if not _no_room(case.predict(gpu=gpu))]


def _held(prediction: Prediction, sustained: int | None) -> str:
    """What a pool holds, in the terms of the declared load, else in tokens."""
    if sustained is not None and prediction.workload is not None and prediction.workload.request_tokens is not None:
        return f"{plural(sustained, 'request')} of {amount(prediction.workload.request_tokens)} tokens"
    blocks, size = prediction.kv_cache.num_gpu_blocks, prediction.kv_cache.block_size
    if blocks is not None and size is not None and len(prediction.kv_cache.groups) == 1:
        return f"{amount(blocks * size)} tokens"
    return f"{amount(blocks)} blocks" if blocks is not None else "an unknown number of tokens"


def _change(with_pool: int, without_pool: int) -> str:
    difference = with_pool - without_pool
    if abs(difference) < 2**20:
        return "the same"
    return f"{gib(abs(difference))} {'smaller' if difference > 0 else 'larger'}"


@check(
    "max-num-seqs-as-capacity",
    params=AsCapacity,
    values=(
        "utilization",
        "sequences",
        "peak",
        "capacity",
        "range",
        "with_pool",
        "without_pool",
        "with_held",
        "claim",
        "about",
        "machine",
        "change",
        "sustained",
        "each",
        "length",
        "tokens",
    ),
)
def max_num_seqs_as_capacity(case: Case, params: AsCapacity) -> Iterator[Draft]:
    """max_num_seqs lets in what the pool does not sustain, or is set to save memory that it does not save."""
    argument = case.plan.parsed.arguments.get("max_num_seqs")
    sequences = case.argument("max_num_seqs")
    prediction = case.prediction
    if argument is None or not isinstance(sequences, int) or sequences <= 0:
        return
    smaller, share = claims_smaller_cache(argument.span), case.effective("gpu_memory_utilization")
    if smaller is not None and share is not None and case.plan.values.get("kv_cache_memory_bytes") is None:
        set_by = "" if "gpu_memory_utilization" in case.plan.values else " (the default)"
        values = {"claim": smaller, "sequences": sequences, "utilization": f"{share:g}{set_by}"}
        yield Draft(variant="smaller-cache", values=values)
        return
    if prediction is None or prediction.starts == "no" or _no_room(prediction):
        return
    workload, times = case.plan.workload, case.replicas_held()
    peak = workload.peak_concurrency if workload is not None else None
    pool = prediction.memory.kv_cache_available.bytes
    sustained = sustained_at(prediction, Bound.ESTIMATE)
    claim = claims_capacity(argument.span)
    values = {
        "utilization": "",
        "sequences": sequences,
        "peak": peak,
        "capacity": None if sustained is None else sustained * times,
        "sustained": sustained,
        "range": _range(sustained_at(prediction, Bound.LOW), sustained_at(prediction, Bound.HIGH), times),
        "with_pool": pool,
        "without_pool": None,
        "with_held": _held(prediction, sustained),
        "claim": claim,
        "about": _about(prediction),
        "machine": _machine(case),
        "change": "",
        "each": None,
        "length": None,
        "tokens": None,
    }
    if peak is not None and sustained is not None and sequences * times >= peak:
        yield Draft(
            values=values,
            holds=lambda bound: (
                _less(sustained_at(prediction, bound), peak, times)
                and _below(sustained_at(prediction, bound), sequences)
            ),
            rests_on=_LOAD,
        )
        return
    memory_claim = claims_memory(argument.span)
    if memory_claim is not None:
        draft = _sequences_draft(case, params, memory_claim, values)
        if draft is not None:
            yield draft
            return
    tokens, length = prediction.kv_cache.size_tokens, prediction.kv_cache.max_model_len
    if claim is None or peak is not None or not tokens or not length or workload is not None:
        return
    # no load is declared: then a claim is wrong where each sequence would get a fraction of a context
    each = tokens // sequences
    if each < min(params.least_tokens, params.share * length):
        yield Draft(
            variant="claim", values={**values, "each": each, "length": length, "tokens": tokens}, rests_on=_POOL
        )


def _sequences_draft(case: Case, params: AsCapacity, claim: str, values: dict[str, Any]) -> Draft | None:
    """The pool is the same without the flag; where no file names the GPU, on every common one that has room."""
    known = case.plan.gpu is not None or case.plan.gpu_memory_bytes is not None
    shown: dict[str, Any] = {}
    for gpu in [None] if known else _roomy_gpus(case):
        kept, unset = case.predict(gpu=gpu), case.predict(without=("max_num_seqs",), gpu=gpu)
        if kept is None or unset is None:
            return None
        pool, without = kept.memory.kv_cache_available.bytes, unset.memory.kv_cache_available.bytes
        if not pool or without is None or abs(pool - without) > params.tolerance * pool:
            return None
        if not shown:
            machine = {"machine": f"{gpu.name} (for example) with {case.release_words}"} if gpu is not None else {}
            shown = {
                "with_pool": pool, "without_pool": without, "change": _change(pool, without), "about": _about(kept),
                "with_held": _held(kept, sustained_at(kept, Bound.ESTIMATE)), **machine,
            }  # fmt: skip
    if not shown:
        return None
    return Draft(
        variant="memory-claim",
        values={**values, **shown, "claim": claim},
        rests_on=_POOL if known else ("model", "vllm_version"),
    )


def _below(sustained: int | None, sequences: int) -> bool:
    return sustained is not None and sustained < sequences


@check("unknown-gpu", values=("reason", "what_if", "bytes_per_token"))
def unknown_gpu(case: Case, params: NoParams) -> Iterator[Draft]:
    """No file says which GPU the server gets."""
    plan = case.plan
    if plan.gpu is not None or plan.gpu_memory_bytes is not None or case.backend in ("cpu", "tpu", "xpu", "hpu"):
        return
    cache = case.prediction.kv_cache if case.prediction is not None else None
    held = [
        f"{gpu.name} {_one_pool(prediction)}"
        for gpu in (case.common_gpus() if case.prediction is not None else [])
        if (prediction := case.predict(gpu=gpu)) is not None
    ]
    yield Draft(
        at="resource:gpu",
        variant="what-if" if held and cache is not None and cache.bytes_per_token is not None else None,
        values={
            "reason": (plan.gpu_reason or "no file names it").partition(": name it")[0],
            "what_if": "; ".join(held),
            "bytes_per_token": cache.bytes_per_token if cache is not None else None,
        },
    )


def _one_pool(prediction: Prediction) -> str:
    available, tokens = prediction.memory.kv_cache_available.bytes, prediction.kv_cache.size_tokens
    if available is None:
        return "unknown"
    if available <= 0:
        return "nothing (the weights leave no room)"
    sustained = sustained_at(prediction, Bound.ESTIMATE)
    shown = f"~{gib(available)}" + (f", {amount(tokens)} tokens" if tokens is not None else "")
    if sustained is not None and prediction.workload is not None:
        return f"{shown}, {plural(sustained, 'request')}"
    return shown
