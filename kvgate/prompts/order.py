"""The order of a prompt's parts, judged: what changes must stand behind what does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kvgate.prompts.defect import Defect
from kvgate.prompts.part import (
    BYTES_PER_TOKEN,
    VOLATILE,
    Change,
    Choice,
    Item,
    Kind,
    Message,
    Part,
    Prompt,
    parts_of,
    token_estimate,
)
from kvgate.records import record
from kvgate.source.text import Span

#: Tokens of static text behind a part from which on it costs blocks: more than vLLM's default block.
LEAST_TOKENS: Final = 16
#: In a last user turn: tokens of instructions behind the data from which on it is worth saying.
LEAST_TOKENS_IN_TURN: Final = 32
#: Below this many tokens a stretch is small beside what stands before it, and not worth a warning.
SMALL_TOKENS: Final = 64
#: What static text of unknown length counts for: a name that stands for instructions is longer than a block.
UNKNOWN_BYTES: Final = 64 * BYTES_PER_TOKEN


#: Roles of messages that a conversation only appends.
_APPENDED: Final = frozenset({"assistant", "tool", "history", "unknown"})


@record
class _Behind:
    """What stands behind a part: static bytes, how many of them are only assumed, the first text, history, tools."""

    static_bytes: int = 0
    assumed_bytes: int = 0
    text: Part | None = None
    history: bool = False
    tools: bool = False

    @property
    def tokens(self) -> int:
        return (self.static_bytes + self.assumed_bytes) // BYTES_PER_TOKEN

    def with_static(self, part: Part) -> _Behind:
        size = part.size_bytes
        shown = part if self.text is None or _telling(part) >= min(_telling(self.text), 40) else self.text
        if size is None:
            return replace(self, assumed_bytes=self.assumed_bytes + UNKNOWN_BYTES, text=shown)
        return replace(self, static_bytes=self.static_bytes + size, text=shown)


def _telling(part: Part) -> int:
    """How well a text can be told by its beginning: a name stands for instructions of some length."""
    return len(part.text.strip()) if part.text is not None else 20


@record
class _Place:
    """A part with what stands before and behind it."""

    part: Part
    message: Message
    before_bytes: int
    behind: _Behind
    in_last_turn: bool

    @property
    def before_tokens(self) -> int:
        return self.before_bytes // BYTES_PER_TOKEN


def judge(prompt: Prompt) -> Iterator[Defect]:
    """What is wrong with the order of a prompt."""
    seen: set[tuple[str, int]] = set()
    unshared = _behind_history(prompt)
    for place in _places(prompt):
        part = place.part
        if id(part) in unshared and not place.behind.history and part.kind in VOLATILE | {Kind.RETRIEVAL, Kind.MEDIA}:
            continue  # no request has this beginning in common with another anyway
        if frozen(part, prompt.path):
            continue
        source = part.origin or part.span
        if (source.path, source.start) in seen and part.kind in VOLATILE | {Kind.RETRIEVAL}:
            continue  # the first time that it stands there is the one that counts
        seen.add((source.path, source.start))
        if place.message.role in _APPENDED and part.kind in VOLATILE | {Kind.RETRIEVAL, Kind.MEDIA}:
            continue  # written once, and kept as it is from then on
        if part.kind in VOLATILE:
            yield from _volatile(place)
        elif part.kind is Kind.RETRIEVAL:
            yield from _retrieval(place)
        elif part.kind is Kind.MEDIA:
            yield from _media(place)
        elif part.kind is Kind.UNORDERED and part.via != "view" and not _is_last_turn(place):
            yield Defect("tool-order", part.span, {"what": part.words}, related=_origin(part))
        elif part.kind is Kind.CUT:
            # told within a text of the last turn, it is what a question is about, or what is searched for
            mild = _is_last_turn(place)
            yield Defect("history", part.span, {"what": part.words}, related=_origin(part), mild=mild)


def _behind_history(prompt: Prompt) -> set[int]:
    """The parts that stand behind a history, by their identity."""
    found: set[int] = set()
    begun = False
    for message in prompt.messages:
        for part in parts_of(message.items):
            if begun:
                found.add(id(part))
            begun = begun or message.role == "history" or part.kind in (Kind.HISTORY, Kind.CUT)
    return found


def _is_last_turn(place: _Place) -> bool:
    return place.in_last_turn and place.message.role == "user" and place.before_bytes > 0


def frozen(part: Part, path: tuple[str, ...]) -> bool:
    """Whether the part was evaluated once for many prompts: its loops and functions are fewer than the prompt's."""
    if part.kind in (Kind.MEDIA, Kind.HISTORY, Kind.INPUT, Kind.CUT):
        return False  # a request brings them
    return len(part.path) < len(path) and path[: len(part.path)] == part.path


# -- the row of parts ------------------------------------------------------------------------------------------------


def _places(prompt: Prompt) -> list[_Place]:
    """Every part that is no static text, with what stands around it, in order."""
    last_turn = _last_turn(prompt)
    places: list[_Place] = []
    behind = _Behind()
    messages = list(enumerate(prompt.messages))
    tools_after = _tools_position(prompt)
    before = _bytes_before(prompt)
    for index, message in reversed(messages):
        if prompt.tools is not None and index == tools_after:
            behind = _walk(prompt.tools, replace(behind, tools=True), message, before[index], False, places)
        if any(isinstance(item, Part) and item.kind is Kind.INPUT for item in message.items) and index != 0:
            inner = _walk(message.items, behind, message, before[index], index == last_turn, places)
            # what stands behind the request's own text can never be shared by what stands before this message
            behind = replace(_Behind(), history=inner.history)
            leading = _leading_static(message.items)
            for part in leading:
                behind = behind.with_static(part)
            continue
        behind = _walk(message.items, behind, message, before[index], index == last_turn, places)
    places.reverse()
    return places


def _last_turn(prompt: Prompt) -> int | None:
    """The index of the last message when it is the user's and something stands before it."""
    index = len(prompt.messages) - 1
    while index > 0 and prompt.messages[index].role == "assistant":
        index -= 1
    if index >= 0 and prompt.messages[index].role == "user":
        return index
    return None


def _tools_position(prompt: Prompt) -> int:
    """The message behind which the tools are rendered: the leading system text, in most chat templates; else none."""
    position = -1
    for index, message in enumerate(prompt.messages):
        if message.role != "system":
            break
        position = index
    return position


def _leading_static(items: tuple[Item, ...]) -> list[Part]:
    found: list[Part] = []
    for item in items:
        if not isinstance(item, Part) or item.kind is not Kind.STATIC:
            break
        found.insert(0, item)
    return found


def _bytes_before(prompt: Prompt) -> list[int]:
    sizes: list[int] = []
    total = 0
    for message in prompt.messages:
        sizes.append(total)
        total += _static_bytes(message.items)
    return sizes


def _static_bytes(items: tuple[Item, ...]) -> int:
    total = 0
    for item in items:
        if isinstance(item, Choice):
            total += max((_static_bytes(option) for option in item.options), default=0)
        elif item.kind in (Kind.STATIC, Kind.TOOLS, Kind.HISTORY):
            size = item.size_bytes
            total += UNKNOWN_BYTES if size is None else size
    return total


def _walk(
    items: tuple[Item, ...], behind: _Behind, message: Message, before: int, last_turn: bool, places: list[_Place]
) -> _Behind:
    """Go through a row from its end; returns what stands behind whatever comes before it."""
    sizes: list[int] = []
    total = before
    for item in items:
        sizes.append(total)
        total += _static_bytes((item,))
    for item, start in zip(reversed(items), reversed(sizes), strict=True):
        if isinstance(item, Choice):
            ends = [_walk(option, behind, message, start, last_turn, places) for option in item.options]
            behind = max(ends, key=lambda end: end.tokens, default=behind)
        elif item.kind is Kind.STATIC:
            behind = behind.with_static(item)
        else:
            places.append(_Place(item, message, start, behind, last_turn))
            if item.kind in (Kind.HISTORY, Kind.CUT):
                behind = _Behind(history=True, text=behind.text)
            elif item.kind is Kind.TOOLS:
                behind = replace(behind.with_static(item), tools=True)
    return behind


# -- what is wrong ---------------------------------------------------------------------------------------------------


def _origin(part: Part) -> tuple[tuple[Span, str], ...]:
    related: list[tuple[Span, str]] = []
    if part.template is not None:
        related.append((part.template, "its placeholder"))
    if part.origin is not None and part.origin != part.span:
        related.append((part.origin, "where it comes from"))
    return tuple(related)


def _volatile(place: _Place) -> Iterator[Defect]:
    part, behind = place.part, place.behind
    once_a_day = part.change is Change.DAY
    shared_by_session = part.change in (Change.USER, Change.SESSION)
    history = behind.history and not shared_by_session and not once_a_day
    tokens = behind.tokens
    if place.in_last_turn and place.message.role == "user":
        if tokens < LEAST_TOKENS_IN_TURN or tokens <= place.before_tokens:
            return
        history = False
    elif tokens <= LEAST_TOKENS and not history and not behind.tools:
        return
    small = not history and not behind.tools and tokens < SMALL_TOKENS and tokens * 10 < place.before_tokens
    yield Defect(
        "volatile",
        part.span,
        {"what": part.words, **_cost(behind, history), "how_often": HOW_OFTEN[part.change]},
        variant=_variant(part, behind, tokens, history),
        mild=once_a_day or small,
        related=_related(part, behind),
    )


def _variant(part: Part, behind: _Behind, tokens: int, history: bool) -> str | None:
    if part.change is Change.DAY:
        return "date"
    if tokens <= LEAST_TOKENS:
        return "before-tools" if behind.tools else "before-history"
    return "per-user" if part.change in (Change.USER, Change.SESSION) else None


HOW_OFTEN: Final = {
    Change.NEVER: "never",
    Change.PROCESS: "with each start",
    Change.DAY: "once a day",
    Change.USER: "with each user",
    Change.SESSION: "with each session",
    Change.HOUR: "every hour",
    Change.MINUTE: "every minute",
    Change.REQUEST: "with each request",
}


def _cost(behind: _Behind, history: bool) -> dict[str, object]:
    size = behind.static_bytes
    more = ", and more of a length that the files do not say" if behind.assumed_bytes else ""
    if behind.assumed_bytes and token_estimate(size) < LEAST_TOKENS:
        lost = "static text of a length that the files do not say"
    else:
        basis = f"{size:,} bytes at {BYTES_PER_TOKEN} bytes a token{more}"
        lost = f"about {token_estimate(size):,} tokens of static text ({basis})"
    return {
        "lost": lost,
        "text": preview(behind.text) if behind.text is not None else "",
        "also": " and the history" if history else "",
    }


def preview(part: Part) -> str:
    """The beginning of a text, in quotes; the expression where the text is not known."""
    text = " ".join((part.text or "").split()).lstrip(".,:;)-] ")
    if not text:
        written = " ".join(part.span.text.split())
        return written if len(written) <= 60 else written[:57] + "..."
    return f'"{text}"' if len(text) <= 50 else f'"{text[:47].rstrip()}..."'


def _related(part: Part, behind: _Behind) -> tuple[tuple[Span, str], ...]:
    related = list(_origin(part))
    if behind.text is not None:
        related.append((behind.text.span, "the static text behind it"))
    return tuple(related)


def _retrieval(place: _Place) -> Iterator[Defect]:
    part, behind = place.part, place.behind
    tokens, history = behind.tokens, behind.history
    if (place.message.role == "user" and place.in_last_turn) or place.message.role == "prompt":
        if (tokens < LEAST_TOKENS_IN_TURN or tokens <= place.before_tokens) and not behind.history:
            return
    elif tokens <= LEAST_TOKENS and not history and not behind.tools:
        return
    small = not history and not behind.tools and tokens < SMALL_TOKENS and tokens * 10 < place.before_tokens
    variant = None
    if tokens <= LEAST_TOKENS:
        variant = "before-history" if history else "before-tools"
    yield Defect(
        "retrieval",
        part.span,
        {"what": part.words, **_cost(behind, history)},
        variant=variant,
        mild=small,
        related=_related(part, behind),
    )


def _media(place: _Place) -> Iterator[Defect]:
    behind = place.behind
    if behind.tokens < LEAST_TOKENS_IN_TURN or behind.tokens <= place.before_tokens:
        return
    yield Defect(
        "media",
        place.part.span,
        {"what": place.part.words, **_cost(behind, False)},
        related=_related(place.part, behind),
    )
