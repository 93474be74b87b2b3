"""Request logs: how much real requests share, where they part, and what moving that would give.

Read are JSON lines of OpenAI requests (the body, or a record that holds it), of ShareGPT conversations, and of prompts;
a JSON list of the same; and plain text with a prompt on each line. Chat messages are written one after the other under
their roles, tools behind the system text, as most chat templates do; the template itself is not rendered.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from kvgate.prompts.blocks import Checkpoints, HitTotal, common_prefix, predict_hits, total
from kvgate.prompts.defect import Defect
from kvgate.prompts.order import LEAST_TOKENS
from kvgate.prompts.tokens import Counting, by_bytes
from kvgate.records import record
from kvgate.source.text import SourceFile, Span

#: Blocks in which a log is summed up where the unit's block size is not known: vLLM's default.
DEFAULT_BLOCK_SIZE: Final = 16
#: Bounds of what is read of a log; what lies beyond is said to be unread. 32 MB take about 4 s and 300 MB of memory,
#: 4 million characters under a tokenizer about 9 s.
MAX_TOKENIZED: Final = 4_000_000
MAX_REQUESTS: Final = 20_000
MAX_LOG_BYTES: Final = 32_000_000
MAX_TEXT: Final = 400_000
#: Characters of prompts: each answer of a conversation repeats all that stands before it.
MAX_WRITTEN: Final = 64_000_000
#: Characters in which a changing stretch must end for the text behind it to count as the same.
MAX_STRETCH: Final = 400
_ANCHOR: Final = 40
_LOOK_BACK: Final = 16


@record
class LoggedRequest:
    """One request.

    Attributes:
        text: the prompt as written here.
        output: what was generated, None where the log does not say.
        span: its line in the log.
    """

    text: str
    output: str | None
    span: Span
    salt: str | None = None


@record
class Parting:
    """Where prompts part before text that they have in common.

    Attributes:
        span: the stretch that differs, in one request of the log.
        text: that stretch; ``other`` the same in another request.
        offset_bytes: where it begins in the prompt.
        behind: the common text behind it.
        requests: how many requests have it.
        moved: the hits if it stood at the end of each prompt.
    """

    span: Span
    text: str
    other: str
    offset_bytes: int
    behind: str
    requests: int
    moved: HitTotal


@record
class LogSettings:
    """What a log is summed up with: what is known of the server that it is for.

    Attributes:
        block_size: tokens of a block; of the largest where layers have several.
        counting: the model's tokenizer; None counts bytes.
        checkpoints: see :class:`kvgate.prompts.blocks.PrefixCache`; the interval in tokens.
        caching: whether prefix caching is on.
        drafts: see :class:`kvgate.prompts.blocks.PrefixCache`.
    """

    block_size: int = DEFAULT_BLOCK_SIZE
    counting: Counting | None = None
    checkpoints: Checkpoints | None = None
    caching: bool = True
    drafts: bool = False


@record
class LogSummary:
    """What a log says of its load. All tokens by ``basis``. ``hits``: with prefix caching on."""

    path: str
    requests: int
    prompt_tokens_p95: int
    output_tokens_p95: int | None
    shared_prefix_tokens: int
    block_size: int
    hits: HitTotal
    basis: str
    parting: Parting | None
    repeated: int
    caching: bool = True
    unread: str | None = None


@record
class LogProblem:
    """Why a file is no log of requests."""

    message: str
    span: Span


@record
class RequestLog:
    """The requests of a log, in their order.

    Attributes:
        unread: what of the log was not read, and why; None where all of it was.
    """

    requests: list[LoggedRequest]
    unread: str | None = None


def open_log(path: Path, shown: str) -> tuple[SourceFile, str | None]:
    """A log's beginning, whole lines of no more than :data:`MAX_LOG_BYTES`, and what was left unread.

    A name in ``.gz`` is unpacked as it is read.

    Args:
        path: the file.
        shown: its path as shown to people.

    Raises:
        OSError: it cannot be read.
        EOFError, zlib.error: it is no gzip, or a broken one.
        UnicodeDecodeError: it is no text.
    """
    import gzip

    packed = path.suffix == ".gz"
    with gzip.open(path) if packed else path.open("rb") as stream:
        data = stream.read(MAX_LOG_BYTES + 1)
    if len(data) <= MAX_LOG_BYTES:
        return SourceFile.from_bytes(shown, data), None
    whole = data.rfind(b"\n", 0, MAX_LOG_BYTES) + 1
    data = data[: whole or MAX_LOG_BYTES]
    of = "" if packed else f" of {path.stat().st_size / 1e6:,.1f} MB"
    text = data.decode("utf-8-sig", "strict" if whole else "ignore")
    return SourceFile(shown, text), f"only the first {len(data) / 1e6:,.1f} MB{of} are read"


def read_log(file: SourceFile, unread: str | None = None) -> RequestLog | LogProblem:
    """The requests of a log, in their order.

    Args:
        unread: what of the file was left unread before.
    """
    found: list[LoggedRequest] = []
    written = 0
    for entry, span in _entries(file):
        if isinstance(entry, LogProblem):
            if not found:
                return entry
            continue
        try:
            for request in _requests(entry, span):
                if len(found) >= MAX_REQUESTS or written >= MAX_WRITTEN:
                    return RequestLog(found, f"only the first {len(found):,} requests are read")
                found.append(request)
                written += len(request.text)
        except RecursionError:
            continue  # nested so deep that it could just be read
    if not found:
        return LogProblem("no request in it", file.line_span(1))
    return RequestLog(found, unread)


def _entries(file: SourceFile) -> Iterator[tuple[Any, Span]]:
    """What a log holds, piece by piece: JSON on each line, the elements of a JSON list, or else lines of text."""
    text = file.text
    start = len(text) - len(text.lstrip())
    if text.startswith("[", start):
        yield from _elements(file, start + 1)
        return
    is_json = text.startswith("{", start)
    at = 0
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        line = text[at:end].strip()
        span = Span(file, at, at + len(text[at:end].rstrip("\r\n")))
        at = end
        if not line:
            continue
        try:
            yield (json.loads(line) if is_json else line), span
        except (ValueError, RecursionError):
            yield LogProblem("no JSON on this line", span), span


_BETWEEN: Final = re.compile(r"[\s,]*")


def _elements(file: SourceFile, at: int) -> Iterator[tuple[Any, Span]]:
    """The elements of a JSON list, up to where it ends or breaks off."""
    decode = json.JSONDecoder().raw_decode
    while True:
        at = max(at, (_BETWEEN.match(file.text, at) or _BETWEEN.match("")).end())  # type: ignore[union-attr]
        if file.text.startswith("]", at):
            return
        try:
            element, end = decode(file.text, at)
        except (ValueError, RecursionError):
            yield LogProblem("no JSON list", file.line_span(1)), file.line_span(1)
            return
        yield element, Span(file, at, end)
        at = end


def looks_like_log(text: str) -> bool:
    """Whether the beginning of a text is that of a log of requests."""
    head = text[:4000]
    line = head.lstrip().partition("\n")[0]
    if not line.startswith("{"):
        return False
    return any(mark in line for mark in ('"messages"', '"conversations"', '"prompt"'))


def _requests(record: Any, span: Span) -> Iterator[LoggedRequest]:
    if isinstance(record, str):
        yield LoggedRequest(record[:MAX_TEXT], None, span)
        return
    if not isinstance(record, dict):
        return
    for key in ("body", "request", "payload", "input", "params", "data"):
        inner = record.get(key)
        if isinstance(inner, dict) and ("messages" in inner or "prompt" in inner):
            yield from _one({**record, **inner}, span)
            return
    yield from _one(record, span)


def _one(record: dict[str, Any], span: Span) -> Iterator[LoggedRequest]:
    salt = record.get("cache_salt")
    salt = salt if isinstance(salt, str) else None
    messages = record.get("messages")
    if isinstance(messages, list):
        sent, answer = _last_answer(messages)
        text = _written(sent, record.get("tools"))
        yield LoggedRequest(text[:MAX_TEXT], _output(record) or answer, span, salt)
    elif isinstance(record.get("conversations"), list):
        yield from _turns(record["conversations"], span)
    elif isinstance(record.get("prompt"), str):
        yield LoggedRequest(record["prompt"][:MAX_TEXT], _output(record), span, salt)
    elif isinstance(record.get("prompt"), list):
        for prompt in record["prompt"]:
            if isinstance(prompt, str):
                yield LoggedRequest(prompt[:MAX_TEXT], None, span, salt)
    elif isinstance(record.get("text"), str):
        yield LoggedRequest(record["text"][:MAX_TEXT], None, span)


def _last_answer(messages: list[Any]) -> tuple[list[Any], str | None]:
    """The messages that were sent, and the answer where the log holds it as the last of them."""
    last = messages[-1] if messages else None
    if isinstance(last, dict) and last.get("role") == "assistant" and len(messages) > 1:
        return messages[:-1], _content(last)
    return messages, None


def _turns(conversation: list[Any], span: Span) -> Iterator[LoggedRequest]:
    """Each answer of a ShareGPT conversation was a request with all that stands before it."""
    sent = ""
    for turn in conversation:
        if not isinstance(turn, dict):
            continue
        said = str(turn.get("from") or turn.get("role") or "user")
        role = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bard": "assistant"}.get(said, said)
        value = turn.get("value") or turn.get("content") or ""
        if role == "assistant":
            yield LoggedRequest(sent, str(value), span)
        if len(sent) < MAX_TEXT:
            sent = (sent + _turn(role, str(value)))[:MAX_TEXT]


def _written(messages: list[Any], tools: Any) -> str:
    parts: list[str] = []
    pending = json.dumps(tools, ensure_ascii=False) if tools else ""
    for message in messages:
        if not isinstance(message, dict):
            continue
        role = str(message.get("role", ""))
        if pending and role not in ("system", "developer"):
            parts.append(f"<tools>\n{pending}\n")
            pending = ""
        calls = message.get("tool_calls")
        more = json.dumps(calls, ensure_ascii=False) if calls else ""
        parts.append(_turn(role, _content(message) + more))
    if pending:
        parts.append(f"<tools>\n{pending}\n")
    return "".join(parts)


def _turn(role: str, content: str) -> str:
    return f"<{role}>\n{content}\n"


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        pieces = []
        for piece in content:
            if isinstance(piece, dict):
                text = piece.get("text")
                pieces.append(text if isinstance(text, str) else json.dumps(piece, ensure_ascii=False))
        return "".join(pieces)
    return ""


def _output(record: dict[str, Any]) -> str | None:
    """The answer that a record holds beside its request."""
    for key in ("output", "completion", "response", "answer"):
        value = record.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, dict):
            body = value.get("body") if isinstance(value.get("body"), dict) else value
            choices = body.get("choices") if isinstance(body, dict) else None
            if isinstance(choices, list) and choices and isinstance(choices[0], dict):
                message = choices[0].get("message")
                if isinstance(message, dict):
                    return _content(message)
                text = choices[0].get("text")
                return text if isinstance(text, str) else None
    return None


# -- what the requests share -------------------------------------------------------------------------------------------


def summarise(file: SourceFile, log: RequestLog, settings: LogSettings | None = None) -> LogSummary:
    """What the requests of a log share, in their order."""
    settings = settings or LogSettings()
    counting = settings.counting or by_bytes()
    requests, unread = log.requests, log.unread
    if counting.exact:
        sizes = accumulate(len(request.text) for request in requests)
        count = max(1, bisect_right(list(sizes), MAX_TOKENIZED))
        if count < len(requests):
            unread = f"only the first {count:,} of {len(requests):,} requests are read: a tokenizer takes its time"
            requests = requests[:count]
    cache = _Cache(settings, counting, requests)
    prompts = [counting.encode(request.text) for request in requests]
    hits = cache.hits(prompts)
    outputs = cache.outputs
    written = [counting.tokens(len(output)) for output in outputs if output]
    texts = Counter(request.text for request in requests)
    return LogSummary(
        path=file.path,
        requests=len(requests),
        prompt_tokens_p95=_percentile([counting.tokens(len(prompt)) for prompt in prompts]),
        output_tokens_p95=_percentile(written) if written else None,
        shared_prefix_tokens=counting.tokens(common_prefix(prompts)) if len(prompts) > 1 else 0,
        block_size=settings.block_size,
        hits=hits,
        basis=counting.basis,
        parting=_parting(requests, cache, hits),
        repeated=sum(count - 1 for count in texts.values()),
        caching=settings.caching,
        unread=unread,
    )


class _Cache:
    """The cache of the server that a log is for."""

    def __init__(self, settings: LogSettings, counting: Counting, requests: Sequence[LoggedRequest]) -> None:
        self.counting = counting
        self.outputs = [counting.encode(request.output or "") for request in requests]
        self._salts = [request.salt for request in requests]
        self._block = settings.block_size * counting.per_token
        self._drafts = settings.drafts
        kept = settings.checkpoints
        self._checkpoints = replace(kept, interval=kept.interval * counting.per_token) if kept is not None else None

    def hits(self, prompts: Sequence[Sequence[int] | bytes]) -> HitTotal:
        """What it serves of the prompts of the log, or of others in their place."""
        found = total(
            predict_hits(
                prompts,
                self._block,
                outputs=self.outputs,
                salts=self._salts,
                drafts=self._drafts,
                checkpoints=self._checkpoints,
            )
        )
        return HitTotal(self.counting.tokens(found.query_tokens), self.counting.tokens(found.hit_tokens))


def _percentile(values: Sequence[int]) -> int:
    """The 95th percentile: the smallest value that 95% of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-95 * len(ordered) // 100) - 1)] if ordered else 0


def _parting(requests: Sequence[LoggedRequest], cache: _Cache, hits: HitTotal) -> Parting | None:
    """The stretch that costs most: prompts are the same before it and behind it."""
    found: Counter[tuple[int, str]] = Counter()
    example: dict[tuple[int, str], tuple[LoggedRequest, LoggedRequest, int, int, int]] = {}
    for index, request in enumerate(requests[:2000]):
        best = 0
        nearest: LoggedRequest | None = None
        for other in requests[max(0, index - _LOOK_BACK) : index]:
            length = _common(request.text, other.text)
            if length > best:
                best, nearest = length, other
        if nearest is None:
            continue
        resumed = _resume(request.text, nearest.text, best)
        if resumed is None:
            continue
        begin = _word_start(request.text, best)
        mine, theirs = resumed
        more = _word_rest(request.text, mine)
        mine, theirs = mine + more, theirs + more
        key = (begin, request.text[mine : mine + _ANCHOR])
        found[key] += 1
        example.setdefault(key, (request, nearest, begin, mine, theirs))
    for key, count in found.most_common(3):
        request, other, begin, mine, theirs = example[key]
        behind = request.text[mine : mine + _common(request.text[mine:], other.text[theirs:])]
        if count < 2 and len(requests) > 3:
            continue
        if len(behind.encode()) // 4 <= LEAST_TOKENS:
            continue
        moved = _moved(requests, cache, begin, request.text[:begin], key[1])
        if moved.hit_tokens <= hits.hit_tokens:
            continue
        stretch = request.text[begin:mine]
        return Parting(
            span=_in_line(request.span, stretch),
            text=stretch,
            other=other.text[begin:theirs],
            offset_bytes=len(request.text[:begin].encode()),
            behind=behind,
            requests=count + 1,
            moved=moved,
        )
    return None


def _common(left: str, right: str) -> int:
    limit = min(len(left), len(right))
    low, high = 0, limit
    while low < high:  # the longest equal beginning, by halving
        middle = (low + high + 1) // 2
        if left[:middle] == right[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _resume(text: str, other: str, at: int) -> tuple[int, int] | None:
    """Where two texts go on alike after they part at ``at``."""
    window = other[at : at + MAX_STRETCH + _ANCHOR]
    for offset in range(min(MAX_STRETCH, max(0, len(text) - at - _ANCHOR))):
        anchor = text[at + offset : at + offset + _ANCHOR]
        if not any(character.isalpha() for character in anchor):
            continue
        place = window.find(anchor)
        if place >= 0:
            return at + offset, at + place
    return None


def _word_start(text: str, at: int) -> int:
    """The beginning of the word, number or time in which two texts part."""
    while at > 0 and (text[at - 1].isalnum() or text[at - 1] in "-:.+/_"):
        at -= 1
    return at


def _word_rest(text: str, at: int) -> int:
    """How many characters the word, number or time goes on that ends behind ``at``."""
    stop = at
    while stop < len(text) and stop < at + _ANCHOR and (text[stop].isalnum() or text[stop] in "-:.+/_"):
        stop += 1
    return stop - at if stop > at and _is_in_word(text, at) else 0


def _is_in_word(text: str, at: int) -> bool:
    return at > 0 and (text[at - 1].isalnum() or text[at - 1] in "-:.+/_")


def _moved(requests: Sequence[LoggedRequest], cache: _Cache, begin: int, head: str, anchor: str) -> HitTotal:
    """The hits if the stretch between a head and an anchor stood at the end of each prompt that has both."""
    prompts: list[Sequence[int] | bytes] = []
    for request in requests:
        text = request.text
        if text.startswith(head):
            stop = text.find(anchor, begin, begin + MAX_STRETCH + len(anchor))
            if stop >= 0:
                text = text[:begin] + text[stop:] + text[begin:stop]
        prompts.append(cache.counting.encode(text))
    return cache.hits(prompts)


def _in_line(span: Span, stretch: str) -> Span:
    """A stretch in the line of its request; the whole line where it is written otherwise there."""
    written = json.dumps(stretch.strip(), ensure_ascii=False)[1:-1]
    at = span.file.text.find(written, span.start, span.end) if written else -1
    return Span(span.file, at, at + len(written)) if at >= 0 else span


def log_defects(summary: LogSummary, requests: Sequence[LoggedRequest]) -> Iterator[Defect]:
    """What is wrong with the requests of a log."""
    parting = summary.parting
    if parting is not None:
        text = " ".join(parting.behind.split())
        size = len(parting.behind.encode())
        yield Defect(
            "volatile",
            parting.span,
            {
                "what": f'"{_short(parting.text)}" ("{_short(parting.other)}" in another request)',
                "text": f'"{_short(text, 48)}"',
                "lost": f"about {size // 4:,} tokens of static text ({size:,} bytes at 4 bytes a token)",
                "hit": f"{summary.hits.rate:.1%}",
                "without": f"{parting.moved.rate:.1%}",
                "requests": f"{summary.requests:,}",
                "basis": summary.basis,
            },
            variant="log",
        )
    if summary.requests >= 8 and summary.repeated >= 0.8 * (summary.requests - 1):
        last = requests[-1].span
        yield Defect(
            "benchmark",
            last,
            {
                "what": f"{summary.repeated + 1:,} of {summary.requests:,} requests are the same text",
                "share": f"{summary.hits.rate:.1%}",
            },
        )
    salts = [request.salt for request in requests if request.salt is not None]
    if len(salts) >= 8 and len(set(salts)) >= 0.9 * len(salts):
        yield Defect("cache-salt", requests[0].span, {"what": "another one in nearly every request of the log"})


def _short(text: str, limit: int = 32) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3].rstrip() + "..."


def describe_log(summary: LogSummary) -> list[str]:
    """A log for people: its load, what its prompts share, and where they part."""
    output = f" and {summary.output_tokens_p95:,} output" if summary.output_tokens_p95 is not None else ""
    lines = [
        f"{summary.path}: {summary.requests:,} requests, 95th percentile {summary.prompt_tokens_p95:,} prompt{output} "
        f"tokens ({summary.basis})",
        f"  all begin with the same {summary.shared_prefix_tokens:,} tokens; in blocks of {summary.block_size:,} "
        f"tokens the prefix cache {'serves' if summary.caching else 'is off, and would serve'} "
        f"{summary.hits.hit_tokens:,} of {summary.hits.query_tokens:,} prompt tokens ({summary.hits.rate:.1%})",
    ]
    if summary.unread is not None:
        lines.append(f"  {summary.unread}")
    parting = summary.parting
    if parting is not None:
        lines.append(
            f'  {parting.requests:,} part at byte {parting.offset_bytes:,}, at "{_short(parting.text)}" '
            f'("{_short(parting.other)}" in another), before text that they share; with it at the end '
            f"{parting.moved.rate:.1%} would be served"
        )
    return lines
