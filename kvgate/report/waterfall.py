"""A prediction as text for people: the waterfall line by line, the pool, what fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kvgate.capacity.levers import Advice
from kvgate.capacity.prediction import KVCache, Prediction, Quantity
from kvgate.findings.report import Predicted, UnitReport
from kvgate.report.escape import visible, width

GIB: Final = 2**30


def gib(value: int | None) -> str:
    """Bytes as GiB (2**30) with two decimals; ``?`` when unknown."""
    return "?" if value is None else f"{value / GIB:.2f} GiB"


def count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def span(low: float | None, high: float | None, decimals: int = 0) -> str:
    """An interval as ``low..high``, empty when it is a point or unknown."""
    if low is None or high is None or low == high:
        return ""
    return f"{low:,.{decimals}f}..{high:,.{decimals}f}"


def _gib_span(quantity: Quantity) -> str:
    if quantity.low is None or quantity.high is None:
        return ""
    return span(quantity.low / GIB, quantity.high / GIB, decimals=2)


def render_prediction(prediction: Prediction, *, verbose: bool = False, advice: Advice | None = None) -> str:
    """The whole prediction, one fact a line, plain text; what would make it start, and what would hold more."""
    lines = list(_lines(prediction, verbose))
    if advice is not None and advice.remedy:
        lines.append(f"  it would start with {advice.remedy}")
    if advice is not None and advice.on_gpus:
        lines += ["", "it would hold:", *lines_on_gpus(advice.on_gpus)]
    if advice is not None and advice.levers:
        lines += ["", "what would hold more:", *(f"  {lever}" for lever in advice.levers)]
    return "\n".join(lines) + "\n"


def lines_on_gpus(predictions: Iterable[tuple[str, Prediction]]) -> Iterator[str]:
    """What common GPUs would hold, a line each."""
    rows = [(f"  on {name}", *_on_gpu(prediction)) for name, prediction in predictions]
    widths = [max(width(row[column]) for row in rows) for column in range(4)] if rows else []
    for row in rows:
        yield "  ".join(
            (cell.ljust(size) if at in (0, 3) else cell.rjust(size))
            for at, (cell, size) in enumerate(zip(row, widths, strict=True))
        ).rstrip()


def _on_gpu(prediction: Prediction) -> tuple[str, str, str]:
    cache = prediction.kv_cache
    available = prediction.memory.kv_cache_available.bytes
    if available is not None and available <= 0:
        return "nothing", "", "the weights leave no room"
    pool = f"~{gib(available)}" if available is not None else "?"
    tokens = f"~{cache.size_tokens:,} tokens" if cache.size_tokens is not None else "?"
    held = prediction.concurrency.sustained if prediction.concurrency else None
    if held is not None and prediction.workload is not None and prediction.workload.request_tokens is not None:
        return pool, tokens, f"~{held:,} requests of {prediction.workload.request_tokens:,} tokens"
    if cache.max_concurrency is not None and cache.max_model_len is not None:
        if cache.max_concurrency < 1:
            return pool, tokens, f"less than one request of max_model_len {cache.max_model_len:,}"
        return pool, tokens, f"~{cache.max_concurrency:.2f} requests of max_model_len {cache.max_model_len:,}"
    return pool, tokens, ""


def _lines(prediction: Prediction, verbose: bool) -> Iterator[str]:
    gpu = prediction.gpu_name or ("GPU of the given memory" if prediction.gpu_memory_bytes else "unknown GPU")
    times = f"{prediction.gpu_count} x " if prediction.gpu_count and prediction.gpu_count > 1 else ""
    architecture = prediction.architecture or "unknown architecture"
    yield f"{prediction.model_id or 'model'} ({architecture}, {prediction.model_source})"
    yield f"vLLM {prediction.vllm_version} ({prediction.vllm_basis}), {times}{gpu} ({prediction.gpu_basis})"
    yield ""
    memory = prediction.memory
    rows: list[tuple[str, str, Quantity]] = [
        (" ", "total memory", memory.total),
        (" ", "requested", memory.requested),
        ("-", "weights", memory.weights),
        ("-", "activation peak", memory.activation_peak),
        ("-", "non-torch", memory.non_torch),
        ("-", "CUDA graphs", memory.cuda_graphs),
        ("=", "left, unused" if prediction.kv_cache.absent else "KV cache", memory.kv_cache_available),
    ]
    cells = [
        (
            f"{sign} {name}",
            gib(quantity.bytes),
            _gib_span(quantity),
            quantity.basis,
            quantity.formula,
        )
        for sign, name, quantity in rows
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    for name, size, interval, basis, formula in cells:
        yield (
            f"{name:<{widths[0]}}  {size:>{widths[1]}}  {interval:<{widths[2]}}  {basis:<{widths[3]}}  {formula}"
        ).rstrip()
    yield ""
    yield from _pool(prediction)
    yield from _load(prediction)
    yield ""
    yield f"starts: {prediction.starts}"
    for reason in prediction.reasons:
        yield f"  {reason}"
    if verbose:
        yield ""
        yield "effective engine arguments:"
        for name, value in sorted(prediction.resolved.items()):
            yield f"  {name} = {value}"


def _pool(prediction: Prediction) -> Iterator[str]:
    cache = prediction.kv_cache
    if prediction.kv_cache.absent:
        yield "no KV cache: each request is computed in one pass, and nothing of it is kept"
        return
    if cache.bytes_per_block is None:
        yield "KV cache: unknown"
        return
    yield _cost(cache)
    for group in cache.groups:
        yield (
            f"  {group.layers} layers {group.kind.replace('_', ' ')}: block size {group.block_size}, "
            f"{group.page_size_bytes:,} bytes per block and layer"
        )
    if cache.num_gpu_blocks is None:
        yield "the pool is unknown"
        return
    bounds = cache.interval
    blocks = span(*bounds.get("num_gpu_blocks", (None, None)))
    tokens = span(*bounds.get("size_tokens", (None, None)))
    times = span(*bounds.get("max_concurrency", (None, None)), decimals=2)
    printed = f"printed as {count(cache.size_tokens)} tokens{_in(tokens)}"
    yield f"{count(cache.num_gpu_blocks)} blocks{_in(blocks)}, {printed}"
    if cache.max_concurrency is not None:
        yield (
            f"{cache.max_concurrency:.2f}x{_in(times)} requests of max_model_len {count(cache.max_model_len)}; "
            f"the longest that fits is {count(cache.estimated_max_model_len)} tokens"
        )


def pool_cells(prediction: Prediction | None, mark: str) -> tuple[str, str]:
    """The pool and its tokens: ``none`` where a model keeps none, ``?`` where they are unknown."""
    if prediction is None:
        return "?", "?"
    if prediction.kv_cache.absent:
        return "none", "none"
    available, size = prediction.memory.kv_cache_available.bytes, prediction.kv_cache.size_tokens
    return (
        f"{mark}{gib(available)}" if available is not None else "?",
        f"{mark}{count(size)}" if size is not None else "?",
    )


def _cost(cache: KVCache) -> str:
    """What a request costs: by the token, or, where it stops to grow, what it grows to."""
    each = f"{count(cache.bytes_per_block)} bytes"
    if cache.bytes_per_token == 0 and all(group.kind == "mamba" for group in cache.groups):
        return f"a state of {each} per request, of whatever length ({cache.dtype})"
    more = "no more bytes per token once the windows are full"
    per_token = f"{count(cache.bytes_per_token)} bytes per token" if cache.bytes_per_token != 0 else more
    return f"{per_token} ({cache.dtype}); blocks of {count(cache.block_size)} tokens, {each} each"


def _in(interval: str) -> str:
    return f" ({interval})" if interval else ""


def _load(prediction: Prediction) -> Iterator[str]:
    workload, load = prediction.workload, prediction.concurrency
    if workload is None or workload.prompt_tokens is None or load is None:
        return
    shared = f", {workload.shared_prefix_tokens:,} of them shared" if workload.shared_prefix_tokens else ""
    peak = f"; {workload.peak_concurrency:,} at once" if workload.peak_concurrency else ""
    yield ""
    yield f"workload: {workload.prompt_tokens:,} prompt + {workload.output_tokens or 0:,} output tokens{shared}{peak}"
    ratio = "?" if load.ratio is None else f"{load.ratio:.2f}"
    limit = {"kv_cache": "the KV cache", "max_num_seqs": "max_num_seqs", None: "what is unknown"}[load.limited_by]
    yield (
        f"sustained: {count(load.sustained)}{_in(span(*load.sustained_interval))} requests without preemption "
        f"({ratio}), limited by {limit}"
    )
    yield f"admitted at once: {count(load.admitted)}" + ("; preemption expected" if load.preemption_expected else "")


def compare_releases(
    versions: Sequence[str], changes: Sequence[str], units: Sequence[tuple[UnitReport, UnitReport]]
) -> str:
    """What changed between two releases: sentences, then each server's figures side by side."""
    lines = [f"vLLM {versions[0]} -> {versions[1]}", ""]
    lines += [f"- {change}" for change in changes] or ["nothing that the numbers rest on"]
    for old, new in units:
        lines += ["", visible(f"{old.id} ({old.path}:{old.line})")]
        lines += list(_side_by_side(old.prediction, new.prediction, versions))
    return "\n".join(lines) + "\n"


def _side_by_side(old: Predicted | None, new: Predicted | None, versions: Sequence[str]) -> Iterator[str]:
    if not isinstance(old, Prediction) or not isinstance(new, Prediction):
        yield "  the model is unknown"
        return
    rows = [("", *versions), *(_figures(name, old, new) for name in _FIGURES)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, before, after in rows:
        mark = "  *" if name and before != after else ""
        yield f"  {name:<{widths[0]}}  {before:>{widths[1]}}  {after:>{widths[2]}}{mark}"


_FIGURES: Final = (
    "requested", "weights", "activation peak", "non-torch", "CUDA graphs", "KV cache", "blocks", "tokens", "sustained",
    "admitted", "starts",
)  # fmt: skip


def _figures(name: str, old: Prediction, new: Prediction) -> tuple[str, str, str]:
    return name, _figure(name, old), _figure(name, new)


def _figure(name: str, prediction: Prediction) -> str:
    memory, load = prediction.memory, prediction.concurrency
    match name:
        case "blocks":
            return count(prediction.kv_cache.num_gpu_blocks)
        case "tokens":
            return count(prediction.kv_cache.size_tokens)
        case "sustained":
            return count(load.sustained) if load else "-"
        case "admitted":
            return count(load.admitted) if load else "-"
        case "starts":
            return prediction.starts
    quantity = {
        "requested": memory.requested,
        "weights": memory.weights,
        "activation peak": memory.activation_peak,
        "non-torch": memory.non_torch,
        "CUDA graphs": memory.cuda_graphs,
    }.get(name, memory.kv_cache_available)
    return gib(quantity.bytes)
