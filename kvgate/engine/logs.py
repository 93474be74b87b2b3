"""A vLLM server's log -> the figures it measured, by the wordings of the releases that were read (0.4.2 to 0.33.0).

Lines may come as the server wrote them, from ``kubectl logs``, docker or a log store (JSON objects), with colours, with
the output of several workers interleaved. Memory is printed in GiB, which some releases call GB.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from functools import cache
from typing import Any, Final, Literal

from kvgate.engine.releases import at_least, index_of
from kvgate.engine.secrets import MASK, mask_secrets
from kvgate.engine.wordings import (
    BYTES,
    CONSEQUENCES,
    EXCEPTION,
    RATIOS,
    REFUSALS,
    WORDINGS,
    RefusalKind,
)
from kvgate.records import record
from kvgate.tables import load_table

GIB: Final = 1 << 30


@record
class Reading:
    """A figure as a line prints it.

    Attributes:
        value: bytes, tokens, blocks or a ratio, by the figure's name.
        low, high: what the printed digits stand for (5.30 GiB is 5.295 to 5.305).
        line: line of the log, from 1.
        process: the worker or engine that printed it, None where the line does not say.
    """

    value: float
    low: float
    high: float
    line: int
    process: str | None = None


@record
class RunningSample:
    """What the server says of itself every ten seconds.

    ``usage`` and ``hit_rate`` are shares. ``preemptions`` counts those since the last sample, None where the release
    does not print them.
    """

    line: int
    time: str | None
    engine: int | None
    running: int
    waiting: int
    usage: float | None
    hit_rate: float | None
    preemptions: int | None


@record
class Refusal:
    """Why the server did not start, or ended.

    ``message`` is the line as printed, without its prefix, secrets masked. ``needed`` and ``available`` are bytes, or
    tokens for the engine that says it in tokens (``unit``).
    """

    kind: RefusalKind
    message: str
    line: int
    needed: int | None = None
    available: int | None = None
    unit: Literal["bytes", "tokens"] = "bytes"
    max_model_len: int | None = None
    estimated_max_model_len: int | None = None


@record
class ServerLog:
    """What one start of a server says.

    Attributes:
        version: the release, as the log states it or as its source lines give it away (``version_stated`` False).
        candidates: the releases that the source lines allow, where the log does not state one.
        arguments: engine arguments by dest as the log prints them; None where it does not. ``complete`` is true where
            they are all there (older releases), false where only those that differ from the defaults are.
        engine: the effective configuration that the engine prints (``max_seq_len``, ``dtype``...), as text.
        readings: by name: ``total``, ``requested``, ``weights``, ``activation_peak``, ``non_torch``, ``consumed``
            (weights and non-torch together), ``cuda_graphs``, ``cuda_graphs_estimated``, ``free_at_start``,
            ``kv_cache_available`` (all bytes); ``num_gpu_blocks``, ``size_tokens``, ``max_model_len``,
            ``max_concurrency``, ``utilization``, ``block_size``, ``max_num_batched_tokens``.
        preemptions: as counted by warnings and running lines; None where the log holds neither.
        ready: the server accepted requests.
        starts: how often a server starts in the log; the figures are those of the last one.
        lines: lines that the last start has.
        device: ``GPU`` or ``CPU`` as the pool's line says, None where there is none.
    """

    version: str | None
    version_stated: bool
    candidates: tuple[str, ...]
    model: str | None
    arguments: Mapping[str, Any] | None
    complete: bool
    engine: Mapping[str, str]
    readings: Mapping[str, tuple[Reading, ...]]
    refusals: tuple[Refusal, ...]
    samples: tuple[RunningSample, ...]
    preemptions: int | None
    ready: bool
    starts: int
    lines: int
    device: str | None = None

    def figure(self, name: str) -> Reading | None:
        """One figure of all the workers' ones: the pool is as large as on the worker with the least, and so on."""
        found = self.readings.get(name, ())
        if not found:
            return None
        chosen = min if name in _SMALLEST else max
        return chosen(found, key=lambda reading: reading.value)

    @property
    def empty(self) -> bool:
        """Nothing in it is vLLM's."""
        return not (self.readings or self.refusals or self.samples or self.version or self.arguments)

    @property
    def cause(self) -> Refusal | None:
        """The refusal that explains the others: a particular one before a general one, then the first."""
        return min(self.refusals, key=lambda one: (_GENERAL.get(one.kind, 0), one.line), default=None)


_SMALLEST: Final = frozenset(
    ("kv_cache_available", "num_gpu_blocks", "size_tokens", "max_concurrency", "free_at_start", "total", "requested")
)
_GENERAL: Final[Mapping[str, int]] = {"error": 1, "process-died": 2}

# --- one line ---------------------------------------------------------------------------------------------------------

_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
_LEVELS: Final = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
_HEADER: Final = re.compile(
    rf"(?:^|[\s|)\]>])(?:{_LEVELS})\s+(?P<time>\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)\s+"
    r"\[?(?P<file>[\w./-]*\w\.py):(?P<line>\d+)\](?: |$)"
)
# What stands before a line that carries no header of vLLM's.
_PREFIXES: Final = (
    re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\s+"),
    re.compile(r"(?:stdout|stderr) [FP] "),
    re.compile(r"[\w./-]+\s+\| "),  # docker compose
    re.compile(r"\[pod/[^\]]+\] "),
    re.compile(r"\((?P<process>[A-Za-z_][\w ]*?)(?: (?P<rank>rank=\d+))?(?:,? pid=\d+)?(?:, ip=[\d.:a-f]+)?\) "),
    re.compile(r"\[rank(?P<process>\d+)\]:(?:\[[A-Z]\d+ [^\]]*\])? ?"),
    re.compile(rf"(?:{_LEVELS})[:\s]\s*"),
)
_PROCESS: Final = re.compile(r"\((?P<process>[A-Za-z_]\w*)(?: (?P<rank>rank=\d+))?(?:,? pid=\d+)(?:, ip=[\d.:a-f]+)?\)")
_ENGINE_OF: Final = re.compile(r"(?:EngineCore_(?:DP)?|DP)(\d+)")
_CRI: Final = re.compile(r"\d{4}-\d\d-\d\dT\S+ (?:stdout|stderr) (?P<tag>[FP]) ")
_TEXT_KEYS: Final = ("log", "message", "msg", "textPayload", "text", "line", "event", "body", "MESSAGE", "content")
_NESTED_KEYS: Final = ("jsonPayload", "attributes", "record", "data", "_source")


@record
class _Line:
    number: int
    text: str  # the message, without prefix and header
    time: str | None
    place: tuple[str, int] | None  # the source line that printed it
    process: str | None


def _lines(text: str) -> Iterator[_Line]:
    if text.lstrip()[:1] == "[" and (entries := _exported(text)) is not None:
        raw: Iterable[str] = entries
    else:
        raw = text.split("\n")
    partial = ""
    for number, given in enumerate(raw, 1):
        line = given.rstrip("\r\n")
        wrapped = _CRI.match(line)
        if wrapped:
            line = partial + line[wrapped.end() :]
            partial = line if wrapped["tag"] == "P" else ""
            if partial:
                continue
        # one quick look: a log of a busy server has a million lines that say nothing here
        if _INTEREST.search(line):
            for part in _unwrapped(line):
                yield _read_line(number, part)
    if partial:
        yield _read_line(number, partial)


def _exported(text: str) -> list[str] | None:
    """The entries of a log store's export: one JSON array."""
    try:
        entries = json.loads(text)
    except ValueError:
        return None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return None
    return [_text_of(entry) or "" for entry in entries]


def _unwrapped(line: str) -> list[str]:
    """The text of a JSON line; any other line as it is."""
    begin = line.find("{")
    if begin >= 0 and line.rstrip().endswith("}") and (begin == 0 or _bare(line[:begin])):
        try:
            entry = json.loads(line[begin:])
        except ValueError:
            return [line]
        if isinstance(entry, dict):
            text = _text_of(entry)
            if text is not None:
                return text.rstrip("\r\n").split("\n")
    return [line]


def _bare(prefix: str) -> bool:
    return all(not part for part in _strip(prefix)[0].split())


def _text_of(entry: Mapping[str, Any]) -> str | None:
    for key in _TEXT_KEYS:
        value = entry.get(key)
        if isinstance(value, str):
            if value.startswith("{") and value.rstrip().endswith("}"):
                inner = _unwrapped(value)
                return "\n".join(inner)
            place = entry.get("filename") or entry.get("file") or entry.get("fileinfo")
            number = entry.get("lineno") or entry.get("line_number")
            if isinstance(place, str) and place.endswith(".py") and isinstance(number, int):
                return f"INFO 01-01 00:00:00 [{place}:{number}] {value}"
            return value
    for key in _NESTED_KEYS:
        inner_entry = entry.get(key)
        if isinstance(inner_entry, dict):
            found = _text_of(inner_entry)
            if found is not None:
                return found
    return None


def _strip(text: str) -> tuple[str, str | None]:
    process: str | None = None
    stripped = True
    while stripped:
        stripped = False
        for pattern in _PREFIXES:
            match = pattern.match(text)
            if match and match.end():
                groups = match.groupdict()
                process = _process_name(groups.get("process"), groups.get("rank")) or process
                text, stripped = text[match.end() :], True
    return text, process


def _process_name(name: str | None, rank: str | None) -> str | None:
    return f"{name} {rank}" if name and rank else name


def _read_line(number: int, line: str) -> _Line:
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    header = _HEADER.search(line)
    if header is None:
        text, process = _strip(line)
        return _Line(number, text, None, None, process)
    names = list(_PROCESS.finditer(line, 0, header.start() + 1))
    named = names[-1] if names else None
    process = _process_name(named["process"], named["rank"]) if named else None
    file = header["file"].rsplit("/", 1)[-1]
    return _Line(number, line[header.end() :], header["time"], (file, int(header["line"])), process)


# --- what the lines say -----------------------------------------------------------------------------------------------

# Every pattern below matches only lines that hold one of these.
_INTEREST: Final = re.compile(
    r"KV [Cc]ache|took|blocks|emory|concurrency|block size|Chunked prefill|Running: |args|version|LLM engine|preempted"
    r"|hit rate|startup complete|Uvicorn running|Auto-fit|rror|died|xception|max seq len|max_model_len|divisible"
    r"|supported|No CUDA|driver|Errno|gated|Client Error|not a |Not Found|Cannot |Segfault|world_size|Explicitly"
    r"|Auto set|Initial free|graph|device type|EADDR|bad_alloc|Externally|unexpectedly|Shutting down|\[shutdown\]|[▀-▟]"
)

_VERSIONS: Final = (
    re.compile(r"vLLM API server version (?P<version>\S+)$"),
    re.compile(r"vLLM server version (?P<version>[^\s,]+), serving model (?P<model>.+)$"),
    re.compile(r"[▀-▟ ]*█[▀-▟ ]*  version (?P<version>\S+)$"),
    re.compile(r"Initializing an? (?:V[01] )?LLM engine \(v(?P<version>[^)\s]+)\) with config:? ?(?P<config>.*)$"),
)
_BANNER_MODEL: Final = re.compile(r"[▀-▟ ]*█[▀-▟ ]*  model   (?P<model>.+)$")
_ARGUMENTS: Final = re.compile(r"(?P<how>non-default args|args): (?P<text>[{N].*)$")
_CONFIG_ITEM: Final = re.compile(
    r"(?:^|[\s(,])(?P<key>model|dtype|max_seq_len|tensor_parallel_size|pipeline_parallel_size|data_parallel_size"
    r"|decode_context_parallel_size|quantization|enforce_eager|kv_cache_dtype|enable_prefix_caching"
    r"|chunked_prefill_enabled|enable_chunked_prefill|load_format|trust_remote_code)="
    r"(?P<value>'[^']*'|[^\s,()]+)"
)
_RUNNING: Final = re.compile(r"Running: (?P<running>\d+) reqs")
_WAITING: Final = re.compile(r"(?:Waiting|Pending): (?P<waiting>\d+) reqs")
_SWAPPED: Final = re.compile(r"Swapped: (?P<swapped>\d+) reqs")
_USAGE: Final = re.compile(r"\b(?!CPU KV cache usage: [\d.]+%\.?$)\w+ KV cache usage: (?P<usage>[\d.]+)%")
_HITS: Final = re.compile(r"(?<!External )(?:^|, )Prefix cache hit rate: (?:GPU: )?(?P<rate>[\d.]+)%")
_PREEMPTED: Final = re.compile(r"Preemptions: (?P<count>\d+)")
_PREEMPTION: Final = re.compile(r"Sequence group \S+ is preempted by .*total_num_cumulative_preemption=(?P<count>\d+)")
_ENGINE_NUMBER: Final = re.compile(r"Engine (?P<engine>\d+): ")
_READY: Final = re.compile(r"Application startup complete|Uvicorn running on")
#: The server was told to end: uvicorn's words, then those of the launcher and the engine core.
_STOPPED: Final = re.compile(
    r"^(?:INFO: +)?Shutting down$|Shutting down FastAPI HTTP server|\[shutdown\] API server: shutdown triggered"
    r"|\[shutdown\] EngineCore: trigger received signal"
)
_REQUEST: Final = re.compile(r"Received request |prompt: ['\"]")
_SECRET_WORD: Final = re.compile(r"(--[\w-]*(?:key|token|secret|password)[\w-]*[= ]+|\bhf_)\S+", re.IGNORECASE)


@record
class _Start:
    """What is gathered of one start."""

    version: list[str] = field(default_factory=list)
    model: list[str] = field(default_factory=list)
    arguments: dict[str, Any] = field(default_factory=dict)
    complete: list[bool] = field(default_factory=list)
    engine: dict[str, str] = field(default_factory=dict)
    readings: dict[str, list[Reading]] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    samples: list[RunningSample] = field(default_factory=list)
    preemptions: list[int] = field(default_factory=list)
    places: list[tuple[str, int]] = field(default_factory=list)
    ready: list[bool] = field(default_factory=list)
    device: list[str] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    begin: int = 1

    @property
    def begun(self) -> bool:
        """Something happened after the banner, so that another banner is another start."""
        return bool(self.readings or self.refusals or self.ready or self.engine)


def read_log(text: str) -> ServerLog:
    """Read a server's log; of several starts the last one.

    Never raises for whatever stands in the text. Requests that the server logs are not read, whatever they say.
    """
    start = _Start()
    starts = 1
    for line in _lines(text):
        if _banner(line) and start.begun:
            start, starts = _Start(begin=line.number), starts + 1
        if line.place is not None:
            start.places.append(line.place)
        if _REQUEST.search(line.text):
            continue
        _take(line, start)
    return _finished(start, starts, text.count("\n") + (not text.endswith("\n")))


def _banner(line: _Line) -> bool:
    return any(pattern.match(line.text) is not None for pattern in _VERSIONS[:3])


def _take(line: _Line, start: _Start) -> None:
    text = line.text
    if _RUNNING.search(text):
        _take_sample(line, start)
        return
    if _take_identity(text, start):
        return
    warned = _PREEMPTION.search(text)
    if warned:
        start.preemptions.append(int(warned["count"]))
        return
    if _READY.search(text):
        start.ready.append(True)
        return
    if _STOPPED.search(text):
        start.stopped.append(line.number)
        return
    rate = _HITS.search(text)
    if rate and start.samples:
        last = start.samples[-1]
        start.samples[-1] = RunningSample(
            last.line, last.time, last.engine, last.running, last.waiting, last.usage, float(rate["rate"]) / 100,
            last.preemptions,
        )  # fmt: skip
        return
    anchored = line.place is not None
    for wording in WORDINGS:
        match = wording.pattern.match(text) if anchored else wording.pattern.search(text)
        if match:
            _take_figures(match, line, start)
            break
    else:
        _take_refusal(line, start)


def _take_figures(match: re.Match[str], line: _Line, start: _Start) -> None:
    device = re.match(r"(\w+) KV cache size", match.group())
    if device:
        start.device.append(device[1])
    for name, digits in match.groupdict().items():
        if digits is not None:
            start.readings.setdefault(name, []).append(_reading(name, digits, line))


def _reading(name: str, digits: str, line: _Line) -> Reading:
    plain = digits.replace(",", "")
    value = float(plain)
    if name in BYTES:
        # round(x, 2) prints 5.3 for 5.30: never less than two decimals are known
        half = 0.5 * 10.0 ** -max(2, len(plain.partition(".")[2])) * GIB
        return Reading(value * GIB, value * GIB - half, value * GIB + half, line.number, line.process)
    if name in RATIOS:
        half = 0.5 * 10.0 ** -len(plain.partition(".")[2]) if name == "max_concurrency" else 0.0
        return Reading(value, value - half, value + half, line.number, line.process)
    return Reading(int(value), int(value), int(value), line.number, line.process)


def _take_identity(text: str, start: _Start) -> bool:
    for pattern in _VERSIONS:
        match = pattern.match(text)
        if match:
            found = match.groupdict()
            start.version.append(found["version"].removeprefix("v"))
            if found.get("model"):
                start.model.append(found["model"].strip())
            if found.get("config"):
                for item in _CONFIG_ITEM.finditer(found["config"]):
                    start.engine.setdefault(item["key"], item["value"].strip("'"))
            return True
    banner = _BANNER_MODEL.match(text)
    if banner:
        start.model.append(banner["model"].strip())
        return True
    match = _ARGUMENTS.match(text)
    if match:
        found_arguments = read_arguments(match["text"])
        if found_arguments:
            start.arguments.update(found_arguments)
            start.complete.append(match["how"] == "args")
        return True
    return False


def _take_sample(line: _Line, start: _Start) -> None:
    text = line.text
    running, waiting = _RUNNING.search(text), _WAITING.search(text)
    if running is None or waiting is None:
        return
    usage, hits, preempted = _USAGE.search(text), _HITS.search(text), _PREEMPTED.search(text)
    swapped = _SWAPPED.search(text)
    named = _ENGINE_NUMBER.match(text) or (_ENGINE_OF.search(line.process) if line.process else None)
    start.samples.append(
        RunningSample(
            line=line.number,
            time=line.time,
            engine=int(named[1]) if named else None,
            running=int(running["running"]),
            waiting=int(waiting["waiting"]) + (int(swapped["swapped"]) if swapped else 0),
            usage=float(usage["usage"]) / 100 if usage else None,
            hit_rate=float(hits["rate"]) / 100 if hits else None,
            preemptions=int(preempted["count"]) if preempted else None,
        )
    )


def _take_refusal(line: _Line, start: _Start) -> None:
    for kind, pattern in REFUSALS:
        match = pattern.search(line.text)
        if match:
            # a server that was told to end takes its processes with it, and some notice each other's end
            if kind != "process-died" or not start.stopped:
                start.refusals.append(_refusal(kind, match, line))
            return
    if EXCEPTION.match(line.text) and not CONSEQUENCES.match(line.text):
        start.refusals.append(Refusal("error", _shown(line.text), line.number))


def _shown(text: str) -> str:
    return _SECRET_WORD.sub(lambda match: match[1] + MASK, text.strip())[:500]


def _refusal(kind: RefusalKind, match: re.Match[str], line: _Line) -> Refusal:
    found = {name: digits.replace(",", "") for name, digits in match.groupdict().items() if digits is not None}

    def whole(name: str) -> int | None:
        return int(float(found[name])) if name in found else None

    def gib(name: str) -> int | None:
        return round(float(found[name]) * GIB) if name in found else None

    needed, available, unit = gib("needed"), gib("available"), "bytes"
    if "tokens" in found:
        needed, available, unit = whole("max_model_len"), whole("tokens"), "tokens"
    if "needed_any" in found:
        scale = {"K": 1 << 10, "M": 1 << 20, "G": GIB}.get(found.get("scale", ""), 1)
        needed = round(float(found["needed_any"]) * scale)
    return Refusal(
        kind=kind,
        message=_shown(line.text),
        line=line.number,
        needed=needed,
        available=available,
        unit="tokens" if unit == "tokens" else "bytes",
        max_model_len=whole("max_model_len"),
        estimated_max_model_len=whole("estimated"),
    )


def _finished(start: _Start, starts: int, last: int) -> ServerLog:
    version = next(iter(start.version), None)
    candidates: tuple[str, ...] = ()
    if version is None:
        candidates = releases_of_places(start.places)
        version = candidates[-1] if candidates else None
    model = next(iter(start.model), None) or start.engine.get("model")
    named = start.arguments.get("model_tag") or start.arguments.get("model")
    counted = [sample.preemptions for sample in start.samples if sample.preemptions is not None]
    # a release that prints preemptions prints none where there were none
    silent = bool(start.samples) and version is not None and at_least(version, "0.11.1")
    preemptions = max(start.preemptions) if start.preemptions else sum(counted) if counted or silent else None
    return ServerLog(
        version=version,
        version_stated=bool(start.version),
        candidates=candidates,
        model=named if isinstance(named, str) else model,
        arguments=mask_secrets(start.arguments) if start.complete else None,
        complete=any(start.complete),
        engine=start.engine,
        readings=_derived({name: tuple(found) for name, found in start.readings.items()}),
        refusals=tuple(start.refusals),
        samples=tuple(start.samples),
        preemptions=preemptions,
        ready=bool(start.ready or start.samples),
        starts=starts,
        lines=max(0, last - start.begin + 1),
        device=next(iter(start.device), None),
    )


def _derived(readings: dict[str, tuple[Reading, ...]]) -> dict[str, tuple[Reading, ...]]:
    """Terms that a release prints only as a part of a sum."""
    weights = readings.get("weights")
    parts = (("peak_torch", "activation_peak"), ("consumed", "non_torch"))
    for whole, part in parts:
        if whole in readings and part not in readings and weights:
            base = max(weights, key=lambda reading: reading.value)
            readings[part] = tuple(
                Reading(
                    one.value - base.value, one.low - base.high, one.high - base.low, one.line, one.process
                )
                for one in readings[whole]
            )  # fmt: skip
    return readings


# --- arguments --------------------------------------------------------------------------------------------------------


def read_arguments(text: str) -> dict[str, Any]:
    """``{'max_model_len': 8192, ...}`` or ``Namespace(max_model_len=8192, ...)`` as a log prints it.

    What is no Python literal (the representation of an object) stays text.
    """
    text = text.strip()
    body = text[1:] if text.startswith("{") else text.removeprefix("Namespace(")
    separator = ":" if text.startswith("{") else "="
    result: dict[str, Any] = {}
    for item in _split(body.rstrip()[:-1] if body.rstrip()[-1:] in "})" else body, ","):
        key, *value = _split(item, separator, most=1)
        name = key.strip().strip("'\"")
        if value and re.fullmatch(r"\w+", name):
            result[name] = _literal(value[0].strip())
    return result


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _split(text: str, separator: str, most: int = -1) -> list[str]:
    """Split at a separator outside of quotes and brackets."""
    parts: list[str] = []
    depth, begin, quote = 0, 0, ""
    at = 0
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{<":
            depth += 1
        elif char in ")]}>":
            depth -= 1
        elif char == separator and depth <= 0:
            parts.append(text[begin:at])
            begin = at + 1
            if len(parts) == most:
                break
        at += 1
    parts.append(text[begin:])
    return parts


# --- releases ---------------------------------------------------------------------------------------------------------


@cache
def _places() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    return {
        file: {line: tuple(releases) for line, releases in lines.items()}
        for file, lines in load_table("engine/log_lines").items()
    }


def releases_of_places(places: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """The releases whose source prints figures from most of these lines, oldest first; empty where none is known."""
    votes: dict[str, int] = {}
    for file, line in dict.fromkeys(places):
        for release in _places().get(file, {}).get(str(line), ()):
            votes[release] = votes.get(release, 0) + 1
    most = max(votes.values(), default=0)
    return tuple(release for release in sorted(votes, key=index_of) if votes[release] == most)
