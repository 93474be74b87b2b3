"""A server's own figures against the prediction, term by term, and the first cause of what does not agree.

Two questions are kept apart. Given the memory that the server had for its pool, do blocks, tokens and concurrency
follow exactly? And does that memory lie where the budget said?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from kvgate.capacity.prediction import Memory, Prediction, Quantity
from kvgate.engine.exposition import EngineMetrics
from kvgate.engine.logs import Reading, Refusal, ServerLog
from kvgate.engine.shaping import TERMS
from kvgate.records import record
from kvgate.smoke.identity import find_differences
from kvgate.smoke.running import explain_running, moments_of_samples, thin_out
from kvgate.smoke.subject import Subject
from kvgate.smoke.verdict import (
    CHECK_WORDS,
    TERM_WORDS,
    Check,
    Difference,
    Figure,
    Load,
    Moment,
    Outcome,
    Refused,
    Running,
    Term,
    Verdict,
)

GIB: Final = 1 << 30
#: Bytes of a term that are worth a word.
WEIGHTY: Final = 0.05 * GIB
#: What a check's prediction starts from.
ARGUMENTS: Final = "the arguments alone"
MEASURED_TOKENS: Final = "the measured tokens"
WHOLE_BLOCKS: Final = "the nearest whole number of blocks"

_MOST_LINES: Final = 12


@record
class Measured:
    """What a server said of itself: bytes by term, and its pool."""

    terms: Mapping[str, Figure]
    blocks: int | None = None
    tokens: int | None = None
    concurrency: Figure | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    overridden: bool = False


def gather(log: ServerLog | None, metrics: EngineMetrics | None) -> Measured:
    """The figures of a log and of ``/metrics``; where both say something, the exact one of ``/metrics`` counts."""
    terms: dict[str, Figure] = {}
    numbers: dict[str, float | None] = dict.fromkeys(("blocks", "tokens", "max_model_len", "block_size"))
    concurrency: Figure | None = None
    if log is not None:
        for name in (*TERM_WORDS, "cuda_graphs_estimated", "consumed"):
            reading = log.figure(name)
            if reading is not None:
                terms[name] = _figure(reading)
        names = {"blocks": "num_gpu_blocks", "tokens": "size_tokens", "max_model_len": "max_model_len"}
        for name, figure in names.items():
            reading = log.figure(figure)
            numbers[name] = reading.value if reading else None
        reading = log.figure("max_concurrency")
        concurrency = _figure(reading) if reading else None
    if metrics is not None:
        for name, labels in _LABELS.items():
            value = metrics.cache_number(*labels)
            numbers[name] = value if value is not None else numbers[name]
    whole = {name: None if value is None else round(value) for name, value in numbers.items()}
    overridden = log is not None and "blocks_profiled" in log.readings
    return Measured(terms, concurrency=concurrency, overridden=overridden, **whole)


_LABELS: Final = {
    "blocks": ("num_gpu_blocks",),
    "tokens": ("kv_cache_size_tokens",),
    "block_size": ("block_size",),
}


def _figure(reading: Reading) -> Figure:
    return Figure(reading.value, reading.low, reading.high)


# --- memory -----------------------------------------------------------------------------------------------------------


def compare_terms(memory: Memory, measured: Measured) -> tuple[Term, ...]:
    """Each term of the budget; a term holds when what was printed meets the predicted interval."""
    rows: list[Term] = []
    for name in TERM_WORDS:
        predicted: Quantity = getattr(memory, name)
        found = measured.terms.get(name)
        if name == "cuda_graphs":
            # the budget counts the estimate, not what was captured later
            found = measured.terms.get("cuda_graphs_estimated", found)
            if predicted.basis == "exact":
                found = None
        if name == "activation_peak" and found is not None and predicted.bytes is not None:
            found = _without_graphs(found, measured)
        rows.append(Term(name, predicted, found, _meets(predicted, found)))
    return tuple(rows)


def _without_graphs(found: Figure, measured: Measured) -> Figure:
    """Releases that print weights and non-torch as one count the estimate of CUDA graphs into the activation peak."""
    estimate = measured.terms.get("cuda_graphs_estimated")
    if estimate is None or "consumed" not in measured.terms:
        return found
    return Figure(found.value - estimate.value, found.low - estimate.high, found.high - estimate.low)


def _meets(predicted: Quantity, found: Figure | None) -> bool | None:
    if found is None or predicted.low is None or predicted.high is None:
        return None
    return found.low <= predicted.high and found.high >= predicted.low


# --- pool -------------------------------------------------------------------------------------------------------------


def compare_pool(subject: Subject, prediction: Prediction, measured: Measured) -> tuple[Check, ...]:
    """Blocks, tokens and concurrency, from what the server had for its pool."""
    cache = prediction.kv_cache
    available = measured.terms.get("kv_cache_available")
    low: Prediction | None = None
    high: Prediction | None = None
    given = ""
    if cache.basis == "exact" and cache.num_gpu_blocks is not None:
        low = high = prediction
        given = ARGUMENTS
    elif available is not None and available.high > 0:
        low, high = (_of_memory(subject, bound) for bound in (available.low, available.high))
        given = "the measured available memory"
    # a model without attention has the blocks of its states
    states = cache.groups and all(group.kind == "mamba" for group in cache.groups)
    size = cache.groups[0].block_size if states else cache.block_size
    length = cache.max_model_len
    checks = [
        _check("num_gpu_blocks", (_blocks(low), _blocks(high)), measured.blocks, given),
        _check("block_size", (size, size), measured.block_size, ARGUMENTS),
        _check("max_model_len", (length, length), measured.max_model_len, ARGUMENTS),
    ]
    if measured.blocks is not None:
        checks += _from_pool(_of_blocks(subject, measured.blocks), measured, "the measured blocks")
    elif measured.tokens:
        checks += _from_tokens(subject, measured.tokens, measured, low, high, given)
    return tuple(check for check in checks if check.measured is not None)


def _from_pool(pool: Prediction | None, measured: Measured, given: str) -> list[Check]:
    if pool is None:
        return []
    tokens, times = pool.kv_cache.size_tokens, pool.kv_cache.max_concurrency
    return [
        _check("size_tokens", (tokens, tokens), measured.tokens, given),
        _check("max_concurrency", (times, times), measured.concurrency, given),
    ]


def _from_tokens(
    subject: Subject, tokens: int, measured: Measured, low: Prediction | None, high: Prediction | None, given: str
) -> list[Check]:
    """Where no line says how many blocks there are: the tokens must be what the memory gives, and what some whole
    number of blocks gives; several numbers can give the same tokens, and the concurrency is that of one of them."""
    first = subject.predict(kv_cache_tokens=tokens)
    if first is None or first.kv_cache.num_gpu_blocks is None:
        return []
    checks = []
    if low is not None and high is not None:
        checks.append(_check("size_tokens", (low.kv_cache.size_tokens, high.kv_cache.size_tokens), tokens, given))
    if first.kv_cache.size_tokens != tokens:
        if not any(check.holds is False for check in checks):
            checks = _from_pool(first, measured, WHOLE_BLOCKS)
        return checks
    least, most = first.kv_cache.num_gpu_blocks, _most_blocks(subject, tokens, first.kv_cache.num_gpu_blocks)
    bounds = _blocks(low), _blocks(high)
    if bounds[0] is not None and bounds[1] is not None and least <= bounds[1] and bounds[0] <= most:
        least, most = max(least, bounds[0]), min(most, bounds[1])
    fewest, largest = (_of_blocks(subject, count) for count in (least, most))
    if not checks:
        checks.append(_check("size_tokens", (tokens, tokens), tokens, MEASURED_TOKENS))
    if fewest is not None and largest is not None:
        span = fewest.kv_cache.max_concurrency, largest.kv_cache.max_concurrency
        checks.append(_check("max_concurrency", span, measured.concurrency, MEASURED_TOKENS))
    return checks


def _most_blocks(subject: Subject, tokens: int, least: int) -> int:
    """The most blocks that are printed as so many tokens, of which ``least`` are the fewest."""
    step = 1
    while _tokens(_of_blocks(subject, least + step)) == tokens:
        step *= 2
    known, beyond = least + step // 2, least + step
    while beyond - known > 1:
        middle = (known + beyond) // 2
        known, beyond = (middle, beyond) if _tokens(_of_blocks(subject, middle)) == tokens else (known, middle)
    return known


def compare_refusal(subject: Subject, cause: Refusal) -> tuple[Check, ...]:
    """The longest request that a server says would fit in what it had, against what the prediction says of that."""
    if cause.estimated_max_model_len is None or cause.available is None or cause.unit != "bytes":
        return ()
    slack = GIB // 200  # printed with two decimals
    bounds = [_of_memory(subject, cause.available + sign * slack) for sign in (-1, 1)]
    low, high = (one.kv_cache.estimated_max_model_len if one else None for one in bounds)
    given = "the memory that was available"
    return (_check("estimated_max_model_len", (low, high), cause.estimated_max_model_len, given),)


def _known_pool(subject: Subject, measured: Measured) -> Prediction | None:
    """The prediction for the pool that the server had; None where it does not say which."""
    if measured.blocks is not None:
        return _of_blocks(subject, measured.blocks)
    return subject.predict(kv_cache_tokens=measured.tokens) if measured.tokens else None


def _of_memory(subject: Subject, amount: float) -> Prediction | None:
    return subject.predict(changes={"kv_cache_memory_bytes": max(0, int(amount))})


def _of_blocks(subject: Subject, count: int) -> Prediction | None:
    return subject.predict(changes={"num_gpu_blocks_override": count})


def _tokens(prediction: Prediction | None) -> int | None:
    return prediction.kv_cache.size_tokens if prediction else None


def _blocks(prediction: Prediction | None) -> int | None:
    return prediction.kv_cache.num_gpu_blocks if prediction else None


def _check(name: str, bounds: tuple[float | None, float | None], found: Figure | float | None, given: str) -> Check:
    figure = found if isinstance(found, Figure) or found is None else Figure.exact(found)
    low, high = bounds
    holds = None
    if figure is not None and low is not None and high is not None:
        slack = 1e-9 * max(1.0, abs(high))  # the printed digits are rounded from a float
        holds = figure.low - slack <= high and figure.high + slack >= low
    return Check(name, low, high, figure, holds, given)


# --- load -------------------------------------------------------------------------------------------------------------


def compare_load(load: Load, prediction: Prediction | None, ranks: int = 1) -> tuple[Check, ...]:
    """What the load showed against the sustained and admitted requests at the load as it was sent.

    With as many clients as are sustained nothing may be preempted. No more than are admitted may run at once, and when
    the pool is full, no fewer than are sustained. ``ranks`` data-parallel engines share the load.
    """
    expected = prediction.concurrency if prediction else None
    if expected is None or expected.sustained is None or expected.admitted is None:
        return ()
    bounds = [expected.sustained if bound is None else bound for bound in expected.sustained_interval]
    low, high, admitted = bounds[0] * ranks, bounds[1] * ranks, expected.admitted * ranks
    checks: list[Check] = []
    for phase in load.phases:
        if phase.peak_running is None or not phase.completed:
            continue
        peak = phase.peak_running
        given = f"{phase.clients} clients"
        most = min(phase.clients, max(admitted, high))
        checks.append(_check("running", (0, most), peak, given))
        if phase.running_when_full is not None:
            checks.append(_check("running_when_full", (min(phase.clients, low), most), phase.running_when_full, given))
        if phase.clients <= low and phase.preemptions is not None:
            checks.append(_check("preemptions", (0, 0), phase.preemptions, given))
    return tuple(checks)


# --- verdict ----------------------------------------------------------------------------------------------------------


def judge(
    subject: Subject,
    log: ServerLog | None,
    *,
    command: Literal["verify", "smoke"],
    metrics: EngineMetrics | None = None,
    load: Load | None = None,
    timeline: Sequence[Moment] = (),
    ended: Refused | None = None,
    notes: Sequence[str] = (),
    server: Mapping[str, Any] | None = None,
    loaded_prediction: Prediction | None = None,
    served: bool = False,
    unsent: str | None = None,
) -> Verdict:
    """Compare everything that is known of a server with its subject.

    Args:
        load, loaded_prediction: the load that was sent, and the prediction for it.
        served: the server was seen to serve; what its log says after that is how it was ended.
        unsent: why the load could not be sent, so that nothing is shown to hold.
        ended: why the server ended where no line of its log says so (killed, never ready).
    """
    prediction = subject.predict()
    measured = gather(log, metrics)
    # a log on its own has nothing that it could differ from
    differences = find_differences(subject, log, metrics) if subject.id is not None else ()
    said = list(notes)
    about = {**_server(log, metrics), **(server or {})}
    terms: tuple[Term, ...] = ()
    checks: tuple[Check, ...] = ()
    if prediction is not None:
        terms = compare_terms(prediction.memory, measured)
        checks = compare_pool(subject, prediction, measured)
        if subject.id is None and prediction.memory.total.bytes is None:
            said.append("a log does not name its GPU: with the manifest the memory is compared too")
        if log is not None and log.cause is not None and not log.ready:
            checks += compare_refusal(subject, log.cause)
    else:
        said.append(f"no prediction: {subject.model_reason or 'the model is not known'}")
        about["figures"] = _figures(measured)
    if load is not None:
        loaded = loaded_prediction or prediction
        load = replace(load, expected=loaded.concurrency if loaded else None)
        checks += compare_load(load, loaded, subject.data_parallel_size)
    running: Running | None = None
    if log is not None:
        # what ran is explained by the pool that the server had, not by the one that it should have had
        had = _known_pool(subject, measured) or prediction
        running = explain_running(log.samples, log.preemptions, had, data_parallel_size=subject.data_parallel_size)
        said += _remarks(log)
    refused = _refused(log, prediction, ended, served=served or load is not None)
    outcome = _outcome(differences, terms, checks, refused)
    if outcome == "holds" and unsent is not None:
        outcome = "unknown"
    cause = _cause(outcome, subject, prediction, measured, differences, terms, checks, refused, log)
    return Verdict(
        command=command,
        outcome=outcome,
        cause=cause or unsent,
        unit=subject.id,
        path=subject.path,
        line=subject.line,
        server=about,
        differences=differences,
        terms=terms,
        checks=checks,
        refused=refused,
        running=running if load is None else None,
        load=load,
        timeline=thin_out(timeline) or (moments_of_samples(log.samples) if log else ()),
        lines=_decisive_lines(log) if refused else (),
        notes=tuple(said),
        prediction=prediction,
    )


def _server(log: ServerLog | None, metrics: EngineMetrics | None) -> dict[str, Any]:
    if log is None:
        return {"version": None, "model": metrics.model if metrics else None, "ready": metrics is not None}
    return {
        "version": log.version,
        "version_basis": "stated" if log.version_stated else "deduced" if log.version else "unknown",
        "model": log.model,
        "ready": log.ready,
        "starts": log.starts,
        "lines": log.lines,
    }


def _figures(measured: Measured) -> dict[str, str]:
    """What was measured, in words, where there is nothing to set it against."""
    figures = {
        TERM_WORDS[name]: f"{found.value / GIB:.2f} GiB" for name, found in measured.terms.items() if name in TERM_WORDS
    }
    counts = {"blocks": measured.blocks, "tokens": measured.tokens, "max_model_len": measured.max_model_len}
    figures |= {name: f"{value:,}" for name, value in counts.items() if value is not None}
    if measured.concurrency is not None:
        figures["requests of max_model_len"] = f"{measured.concurrency.value:.2f}x"
    return figures


def _remarks(log: ServerLog) -> list[str]:
    remarks = []
    if log.starts > 1:
        remarks.append(f"the log holds {log.starts} starts; the last one is compared")
    if not log.version_stated and log.candidates:
        remarks.append(
            f"the log does not name its release; its source lines are those of {' or '.join(log.candidates)}"
        )
    if not log.ready and not log.refusals:
        remarks.append("the log ends before the server is ready")
    return remarks


def _refused(
    log: ServerLog | None, prediction: Prediction | None, ended: Refused | None, *, served: bool
) -> Refused | None:
    cause = log.cause if log is not None else None
    starts = prediction.starts if prediction is not None else "unknown"
    expected = None if starts == "unknown" else starts in ("no", "unlikely")
    if cause is not None and (log is None or not log.ready or ended is not None or (not served and _fatal(cause))):
        return Refused(
            cause.kind, cause.message, cause.line, cause.needed, cause.available, cause.unit,
            cause.estimated_max_model_len, expected,
        )  # fmt: skip
    return ended


def _fatal(cause: Refusal) -> bool:
    """Whether a server that was ready before has ended by this."""
    return cause.kind in ("out-of-memory", "process-died")


def _decisive_lines(log: ServerLog | None) -> tuple[tuple[int, str], ...]:
    if log is None:
        return ()
    chosen = sorted(log.refusals, key=lambda one: (one is not log.cause, one.line))[:_MOST_LINES]
    return tuple((one.line, one.message) for one in sorted(chosen, key=lambda one: one.line))


def _outcome(
    differences: Sequence[Difference], terms: Sequence[Term], checks: Sequence[Check], refused: Refused | None
) -> Outcome:
    if refused is not None:
        return "refused"
    available = next((term.holds for term in terms if term.name == "kv_cache_available"), None)
    results = [check.holds for check in checks] + [available]
    if any(one.decisive for one in differences) or False in results:
        return "contradicted"
    return "holds" if True in results else "unknown"


# --- cause ------------------------------------------------------------------------------------------------------------


def _cause(
    outcome: Outcome,
    subject: Subject,
    prediction: Prediction | None,
    measured: Measured,
    differences: Sequence[Difference],
    terms: Sequence[Term],
    checks: Sequence[Check],
    refused: Refused | None,
    log: ServerLog | None,
) -> str | None:
    """The first cause, one sentence without a period; None where there is nothing to explain."""
    if refused is not None:
        return _refusal_words(refused)
    if outcome != "contradicted":
        return None
    available = next((term for term in terms if term.name == "kv_cache_available"), None)
    identity = next((one for one in differences if one.name in ("vllm_version", "model", "gpu", "gpu_memory")), None)
    if identity is not None and identity.decisive:
        return f"this is not the deployment: {_difference_words(identity)}"
    if available is not None and available.holds is False:
        return _budget_words(available, terms, differences, prediction, log)
    failed = next((check for check in checks if check.holds is False), None)
    if failed is not None:
        return _check_words(failed, prediction, measured, differences)
    decisive = [one for one in differences if one.decisive]
    return "; ".join(_difference_words(one) for one in decisive[:3]) or None


def _difference_words(one: Difference) -> str:
    return f"{one.name} was {one.sides}"


def _shaped(differences: Sequence[Difference], figures: Sequence[str]) -> str:
    found = [one for one in differences if one.decisive and set(one.figures) & set(figures)]
    return "; ".join(_difference_words(one) for one in found[:3])


def _budget_words(
    available: Term,
    terms: Sequence[Term],
    differences: Sequence[Difference],
    prediction: Prediction | None,
    log: ServerLog | None,
) -> str:
    excess = available.excess or 0
    short = excess < 0
    parts = []
    for term in terms:
        if term.name in TERMS and term.excess is not None:
            parts.append((term.name, term.excess))
        if term.name == "requested" and term.excess is not None:
            parts.append((term.name, -term.excess))
    # what takes from the pool counts up, what gives to it counts down
    weighty = sorted((part for part in parts if (part[1] > 0) == short), key=lambda part: -abs(part[1]))
    words = f"the pool is {abs(excess) / GIB:.1f} GiB {'short' if short else 'larger than predicted'}"
    named = [f"{TERM_WORDS[name]} {abs(size) / GIB:.1f}" for name, size in weighty if abs(size) >= WEIGHTY]
    rest = abs(excess) - sum(size if short else -size for _, size in parts)
    unprinted = [
        TERM_WORDS[term.name]
        for term in terms
        if term.name in TERMS and term.measured is None and term.predicted.basis != "exact"
    ]
    if rest >= WEIGHTY and unprinted:
        named.append(f"{rest / GIB:.1f} in what the log does not print ({', '.join(unprinted)})")
    if named:
        words += f": {', '.join(named)}"
    reason = _shaped(differences, [name for name, _ in weighty[:2]] or [*TERMS, "requested", "kv_cache_available"])
    if not reason and weighty and weighty[0][0] == "activation_peak":
        reason = _batch_words(prediction, log)
    return f"{words}: {reason}" if reason else words


def _batch_words(prediction: Prediction | None, log: ServerLog | None) -> str:
    """The token budget explains most activation peaks; the engine prints the one that it chose."""
    served = log.figure("max_num_batched_tokens") if log else None
    expected = prediction.resolved.get("max_num_batched_tokens") if prediction else None
    if served is None or not isinstance(expected, int) or round(served.value) == expected:
        return ""
    return f"max_num_batched_tokens was {round(served.value):,}, {expected:,} was predicted"


def _check_words(
    failed: Check, prediction: Prediction | None, measured: Measured, differences: Sequence[Difference]
) -> str:
    found = _number(failed.measured.value if failed.measured else None)
    low, high = _number(failed.low), _number(failed.high)
    expected = high if low == high else f"at most {high}" if failed.low == 0 else f"{low} to {high}"
    words = f"{CHECK_WORDS[failed.name][1].format(found)}, predicted {expected}"
    if failed.given:
        words += f" from {failed.given}" if failed.given.startswith("the ") else f" with {failed.given}"
    if failed.name in ("num_gpu_blocks", "size_tokens"):
        words += _block_words(prediction, measured)
    figures = {
        "num_gpu_blocks": ("pool", "kv_cache_available", "requested"),
        "size_tokens": ("pool", "concurrency"),
        "max_concurrency": ("concurrency", "pool"),
        "max_model_len": ("concurrency",),
        "block_size": ("pool",),
    }.get(failed.name, ("load", "pool", "concurrency"))
    reason = _shaped(differences, figures)
    return f"{words}: {reason}" if reason else words


def _block_words(prediction: Prediction | None, measured: Measured) -> str:
    """What a block takes on the server: half the bytes is an 8-bit cache, another factor another block size."""
    available, cache = measured.terms.get("kv_cache_available"), prediction.kv_cache if prediction else None
    if available is None or not measured.blocks or cache is None or not cache.bytes_per_block:
        return ""
    if measured.overridden or (prediction and prediction.resolved.get("blocks_override") is not None):
        return ""  # the blocks do not follow from the memory
    each = available.value / measured.blocks
    if abs(each - cache.bytes_per_block) < 0.02 * cache.bytes_per_block:
        return ""
    return f" (a block takes about {round(each):,} bytes, {cache.bytes_per_block:,} were predicted)"


def _number(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


_KINDS: Final[Mapping[str, str]] = {
    "kv-cache-too-small": "the server did not start: one request of max_model_len does not fit the KV cache",
    "no-kv-cache-memory": "the server did not start: nothing is left for the KV cache",
    "memory-in-use": "the server did not start: the memory it asks for is in use",
    "out-of-memory": "the server ran out of memory",
    "length-exceeds-model": "the server did not start: --max-model-len is more than the model's own length",
    "not-divisible": "the server did not start: the model cannot be split by the parallel size",
    "unsupported-device": "the server did not start: the device cannot do what was asked for",
    "no-device": "the server did not start: it found no accelerator",
    "invalid-arguments": "the server refused its arguments",
    "model-not-found": "the server did not find the model",
    "not-authorised": "the server may not fetch the model: the Hub wants a token that has access",
    "address-in-use": "the server's port is in use",
    "process-died": "a process of the server died",
    "hang": "the server was not ready in time",
    "killed": "the server was ended from outside",
    "crashed": "the server ended during the load",
    "exited": "the server ended by itself",
    "error": "the server failed",
}


def _refusal_words(refused: Refused) -> str:
    words = _KINDS.get(refused.kind, "the server ended")
    if refused.needed is not None and refused.available is not None:
        if refused.unit == "bytes":
            words += f": {refused.needed / GIB:.2f} GiB needed, {refused.available / GIB:.2f} GiB available"
        else:
            words += f": {refused.needed:,} tokens needed, {refused.available:,} fit"
    elif refused.needed is not None:
        words += f": an allocation of {refused.needed / GIB:.2f} GiB failed"
    elif refused.kind in ("error", "hang", "killed", "crashed", "exited", "invalid-arguments", "process-died"):
        words += f": {refused.message}"
    if refused.estimated_max_model_len is not None:
        words += f"; up to {refused.estimated_max_model_len:,} tokens would fit"
    if refused.kind in ("kv-cache-too-small", "no-kv-cache-memory") and refused.expected is not None:
        words += "; this was predicted" if refused.expected else "; it was predicted to start"
    return words
