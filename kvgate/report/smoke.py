"""A server compared with its prediction: text for people, JSON, Markdown for a job summary."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from kvgate.report.escape import markdown, markdown_code, visible
from kvgate.report.json_v1 import finite
from kvgate.report.waterfall import GIB, count, gib, span
from kvgate.smoke.verdict import CHECK_WORDS, TERM_WORDS, Check, Load, Moment, Outcome, Phase, Term, Verdict

FORMATS: Final = ("text", "json", "markdown")

_HEADLINES: Final[dict[Outcome, str]] = {
    "holds": "the prediction holds",
    "contradicted": "the prediction is contradicted",
    "refused": "the server did not serve",
    "unknown": "nothing could be compared",
}
_MARKS: Final = {True: "holds", False: "CONTRADICTED", None: ""}
_PHASES: Final = (
    "phase", "clients", "requests", "failed", "seconds", "running", "waiting", "usage", "preempted", "hits",
)  # fmt: skip


def render_verdict(verdict: Verdict, form: str) -> str:
    """A verdict in one of the formats.

    Raises:
        ValueError: there is no such format.
    """
    if form == "json":
        return json.dumps(finite(verdict.as_dict()), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if form == "text":
        return "\n".join(_text(verdict)) + "\n"
    if form == "markdown":
        return "\n".join(_markdown(verdict)) + "\n"
    raise ValueError(f'there is no format "{form}"')


# --- text -------------------------------------------------------------------------------------------------------------


def _text(verdict: Verdict) -> Iterator[str]:
    yield _headline(verdict)
    if verdict.cause:
        yield f"  {visible(verdict.cause)}"
    yield ""
    yield from _identity(verdict)
    rows = _memory_rows(verdict.terms)
    if rows:
        yield ""
        yield from _columns([("memory per GPU", "predicted", "", "measured", ""), *rows], words=(4,))
    elif verdict.prediction is None:
        yield from _measured_only(verdict)
    if verdict.checks:
        yield ""
        header = ("pool and load", "predicted", "measured", "", "from")
        yield from _columns([header, *map(_check_row, verdict.checks)], words=(3, 4))
    if verdict.running:
        yield ""
        yield f"running: {verdict.running.words}"
        yield f"  {_running_facts(verdict)}"
    if verdict.load:
        yield ""
        yield from _load(verdict.load)
    if verdict.timeline:
        yield ""
        yield from _columns(_timeline(verdict.timeline))
    if verdict.lines:
        yield ""
        yield "decisive lines of the log:"
        for number, text in verdict.lines:
            yield f"  {number}: {visible(text)}"
    for note in verdict.notes:
        yield f"note: {visible(note)}"


def _headline(verdict: Verdict) -> str:
    subject = f"{visible(verdict.unit)}: " if verdict.unit else ""
    return subject + _outcome(verdict)


def _outcome(verdict: Verdict) -> str:
    if verdict.outcome == "unknown" and verdict.unit is None:
        return "what the log says; there is nothing to compare it with"
    return _HEADLINES[verdict.outcome]


def _identity(verdict: Verdict) -> Iterator[str]:
    server = verdict.server
    version = server.get("version") or "of unknown release"
    deduced = " (by its source lines)" if server.get("version_basis") == "deduced" else ""
    yield f"server: vLLM {visible(str(version))}{deduced}, model {visible(str(server.get('model') or 'unknown'))}"
    if verdict.unit:
        same = not any(one.decisive for one in verdict.differences)
        words = (
            "the server is the one that the manifest describes" if same else "the server is not what the manifest says:"
        )
        yield words
    for one in verdict.differences:
        mark = "" if one.decisive else " (does not matter here)"
        yield f"  {visible(one.name)}: {visible(one.sides)}{mark}"


def _memory_rows(terms: Sequence[Term]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    signs = {"total": " ", "requested": " ", "kv_cache_available": "="}
    for term in terms:
        quantity = term.predicted
        if quantity.bytes is None and term.measured is None:
            continue
        bounds = ""
        if quantity.low is not None and quantity.high is not None:
            bounds = span(quantity.low / GIB, quantity.high / GIB, decimals=2)
        measured = f"{term.measured.value / GIB:.2f} GiB" if term.measured else ""
        decisive = term.name == "kv_cache_available"
        mark = _MARKS[term.holds] if decisive else "outside" if term.holds is False else ""
        rows.append(
            (f"{signs.get(term.name, '-')} {TERM_WORDS[term.name]}", gib(quantity.bytes), bounds, measured, mark)
        )
    return rows


def _measured_only(verdict: Verdict) -> Iterator[str]:
    figures = verdict.server.get("figures")
    if isinstance(figures, dict) and figures:
        yield ""
        for name, words in figures.items():
            yield f"  {name}: {words}"


def _check_row(check: Check) -> tuple[str, ...]:
    measured = _figure(check.measured.value if check.measured else None, check.name)
    return (
        CHECK_WORDS[check.name][0],
        _bounds(check),
        measured,
        _MARKS[check.holds],
        check.given,
    )


def _bounds(check: Check) -> str:
    if check.low is None or check.high is None:
        return "?"
    low, high = _figure(check.low, check.name), _figure(check.high, check.name)
    if check.name == "running":
        return f"up to {high}"
    return low if low == high else f"{low}..{high}"


def _figure(value: float | None, name: str) -> str:
    if value is None:
        return "?"
    return f"{value:,.2f}x" if name == "max_concurrency" else f"{value:,.0f}"


def _running_facts(verdict: Verdict) -> str:
    running = verdict.running
    assert running is not None
    facts = [f"{running.samples} lines", f"at most {running.peak_waiting} waiting"]
    if running.peak_usage is not None:
        facts.append(f"KV cache up to {running.peak_usage:.1%} full")
    if running.hit_rate is not None:
        facts.append(f"prefix cache hit rate {running.hit_rate:.1%}")
    if running.preemptions is not None:
        facts.append(f"{running.preemptions:,} preemptions")
    return ", ".join(facts)


def _load(load: Load) -> Iterator[str]:
    sent = load.workload
    shared = f", {sent.shared_prefix_tokens:,} of them shared" if sent.shared_prefix_tokens else ""
    yield f"load: {count(sent.prompt_tokens)} prompt{shared} + {count(sent.output_tokens)} output tokens a request"
    for words in (*load.scaling, *_expected(load)):
        yield f"  {visible(words)}"
    yield from _columns([_PHASES, *map(_phase_row, load.phases)])
    for error in load.errors:
        yield f"  failed: {visible(error)}"


def _expected(load: Load) -> Iterator[str]:
    """What was predicted of the load beside what it showed, in one sentence."""
    expected = load.expected
    if expected is None or expected.sustained is None or expected.admitted is None:
        return
    words = f"predicted: {expected.sustained:,} sustained without preemption, {expected.admitted:,} let in at once"
    if expected.preemption_expected is not None:
        words += ", preemptions expected" if expected.preemption_expected else ", no preemption"
    running = max((phase.peak_running for phase in load.phases if phase.peak_running is not None), default=None)
    preempted = [phase.preemptions for phase in load.phases if phase.preemptions is not None]
    if running is not None and preempted:
        times = sum(preempted)
        words += f"; seen: {running:,} at once, {times:,} preemption{'' if times == 1 else 's'}"
    yield words


def _phase_row(phase: Phase) -> tuple[str, ...]:
    return (
        phase.name,
        str(phase.clients),
        f"{phase.completed}/{phase.requests}" + (" (cut short)" if phase.cut_short else ""),
        str(phase.failed),
        f"{phase.seconds:.0f}",
        count(phase.peak_running),
        count(phase.peak_waiting),
        _share(phase.peak_usage),
        count(phase.preemptions),
        _share(phase.hit_rate),
    )


def _share(value: float | None) -> str:
    return "?" if value is None else f"{value:.1%}"


def _timeline(moments: Sequence[Moment]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("time", "running", "waiting", "usage", "preempted")]
    for one in moments:
        when = f"{one.seconds:.0f} s" if one.seconds is not None else one.time or "?"
        preempted = "" if one.preemptions is None else f"{one.preemptions:,}"
        rows.append((when, str(one.running), str(one.waiting), _share(one.usage), preempted))
    return rows


def _columns(rows: Sequence[tuple[str, ...]], words: Sequence[int] = ()) -> Iterator[str]:
    """Rows under each other; the first column and ``words`` are set left, numbers right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            f"{cell:<{width}}" if at == 0 or at in words else f"{cell:>{width}}"
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


# --- markdown ---------------------------------------------------------------------------------------------------------


def _markdown(verdict: Verdict) -> Iterator[str]:
    subject = f"{markdown_code(verdict.unit)}: " if verdict.unit else ""
    yield f"**kvgate {verdict.command}**: {subject}{_outcome(verdict)}"
    if verdict.cause:
        yield ""
        yield markdown(verdict.cause)
    for one in verdict.differences:
        yield f"- {markdown_code(one.name)}: {markdown(one.sides)}"
    rows = _memory_rows(verdict.terms)
    if rows:
        yield ""
        yield from _table(("memory per GPU", "predicted", "interval", "measured", ""), rows)
    if verdict.checks:
        yield ""
        yield from _table(("", "predicted", "measured", "", "from"), [_check_row(check) for check in verdict.checks])
    if verdict.running:
        yield ""
        yield markdown(f"{verdict.running.words} ({_running_facts(verdict)})")
    if verdict.load:
        yield ""
        header = (
            "phase",
            "clients",
            "requests",
            "failed",
            "seconds",
            "running",
            "waiting",
            "usage",
            "preempted",
            "hits",
        )
        yield from _table(header, [_phase_row(phase) for phase in verdict.load.phases])
        for words in (*verdict.load.scaling, *_expected(verdict.load), *verdict.load.errors):
            yield f"- {markdown(words)}"
    if verdict.timeline:
        yield ""
        header_row, *rows = _timeline(verdict.timeline)
        yield from _table(header_row, rows)
    for number, text in verdict.lines:
        yield f"- line {number}: {markdown_code(text)}"
    for note in verdict.notes:
        yield f"- {markdown(note)}"


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|---|{'---:|' * (len(header) - 1)}"
    for first, *rest in rows:
        cells = [markdown(first.lstrip("=- ")), *map(markdown, rest)]
        yield f"| {' | '.join(cells)} |"
