"""What a server's running lines say, and whether the declared workload accounts for it."""

from __future__ import annotations

from collections.abc import Sequence

from kvgate.capacity.prediction import Prediction
from kvgate.engine.logs import RunningSample
from kvgate.smoke.verdict import Moment, Running

MOST_MOMENTS = 24


def explain_running(
    samples: Sequence[RunningSample],
    preemptions: int | None,
    prediction: Prediction | None,
    *,
    data_parallel_size: int = 1,
) -> Running | None:
    """The peak of a log's running lines against the sustained and admitted requests of one engine; None without lines.

    Requests that wait while the pool is full make the peak the limit; as long as nothing waits, it is only what
    clients asked for.
    """
    if not samples:
        return None
    peak = max(samples, key=lambda one: (one.running, one.waiting))
    # lines that name no engine add all data-parallel engines up
    share = data_parallel_size if peak.engine is None and data_parallel_size > 1 else 1
    limited = [one for one in samples if one.waiting > 0]
    usages = [one.usage for one in samples if one.usage is not None]
    rates = [one.hit_rate for one in samples if one.hit_rate is not None]
    explained, words = _explained(peak, bool(limited), prediction, share)
    return Running(
        peak_running=peak.running,
        waiting_at_peak=peak.waiting,
        peak_waiting=max(one.waiting for one in samples),
        peak_usage=max(usages, default=None),
        hit_rate=rates[-1] if rates else None,
        preemptions=preemptions,
        samples=len(samples),
        explained=explained,
        words=words,
    )


def _explained(
    peak: RunningSample, limited: bool, prediction: Prediction | None, share: int
) -> tuple[bool | None, str]:
    if not limited:
        return None, f"nothing waited: {peak.running} at once is what clients asked for, not what the server holds"
    seen = f"{peak.running} ran at once with {peak.waiting} waiting"
    load = prediction.concurrency if prediction else None
    if load is None or load.sustained is None or load.admitted is None:
        return None, f"{seen}; without a declared workload nothing says how many should"
    low = load.sustained_interval[0] if load.sustained_interval[0] is not None else load.sustained
    running = -(-peak.running // share)
    limits = f"{load.sustained} requests of the declared workload are sustained and {load.admitted} admitted"
    if low <= running <= max(load.admitted, load.sustained):
        return True, f"{seen}: {limits}"
    size = _request_tokens(peak, prediction, running)
    by_size = f"; requests of about {size:,} tokens would account for it" if size else ""
    more_or_less = "more" if running > load.admitted else "fewer"
    return False, f"{seen}, {more_or_less} than predicted: {limits}{by_size}"


def _request_tokens(peak: RunningSample, prediction: Prediction | None, running: int) -> int | None:
    cache = prediction.kv_cache if prediction else None
    if cache is None or cache.size_tokens is None or not running:
        return None
    return round(cache.size_tokens * (peak.usage or 1.0) / running)


def moments_of_samples(samples: Sequence[RunningSample]) -> tuple[Moment, ...]:
    """The running lines as a short timeline."""
    return thin_out(
        [Moment(None, one.time, one.running, one.waiting, one.usage, one.preemptions, one.hit_rate) for one in samples]
    )


def thin_out(moments: Sequence[Moment]) -> tuple[Moment, ...]:
    """At most 24 moments, evenly, the peak always among them."""
    if len(moments) <= MOST_MOMENTS:
        return tuple(moments)
    peak = max(range(len(moments)), key=lambda at: (moments[at].running, moments[at].waiting))
    step = (len(moments) - 1) / (MOST_MOMENTS - 2)
    chosen = {round(at * step) for at in range(MOST_MOMENTS - 1)} | {peak}
    return tuple(moments[at] for at in sorted(chosen))
