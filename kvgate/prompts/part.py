"""A prompt as a row of parts, each of which says how often its text changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from enum import Enum, IntEnum
from typing import Final

from kvgate.records import record
from kvgate.source.text import Span

#: Bytes that stand for one token where no tokenizer is at hand: English prose under the usual 32k to 200k vocabularies
#: takes 3.9 to 4.7 bytes a token, code and other languages fewer.
BYTES_PER_TOKEN: Final = 4


class Change(IntEnum):
    """How often a text changes; ordered by how little of it two requests have in common."""

    NEVER = 0
    PROCESS = 1  # frozen at start: environment, settings, import time
    DAY = 2
    USER = 3
    SESSION = 4
    HOUR = 5
    MINUTE = 6
    REQUEST = 7  # seconds, random, ids, content of a request


class Kind(Enum):
    """What a part of a prompt is."""

    STATIC = "static"
    CLOCK = "clock"
    RANDOM = "random"
    IDENTIFIER = "identifier"
    COUNTER = "counter"
    STATE = "state"
    SESSION = "session"
    USER = "user"
    RETRIEVAL = "retrieval"
    HISTORY = "history"
    TOOLS = "tools"
    MEDIA = "media"
    INPUT = "input"
    UNORDERED = "unordered"
    CUT = "cut"  # history whose front is cut off
    UNKNOWN = "unknown"


#: Kinds whose text voids what follows although nobody needs it to stand there.
VOLATILE: Final = frozenset(
    {Kind.CLOCK, Kind.RANDOM, Kind.IDENTIFIER, Kind.COUNTER, Kind.STATE, Kind.SESSION, Kind.USER}
)


@record
class Part:
    """A stretch of a prompt.

    Attributes:
        span: where it enters the prompt: the literal, or the expression that stands for it.
        text: the text itself, None where it is not known.
        origin: what makes it change (the call, the parameter), None where it is the span itself.
        words: what it is, for people: ``the time to the second``.
        path: the loops and functions in which it is evaluated, outermost first; a shorter path is evaluated less often.
        named: it is known by its name only.
        template: where its placeholder stands, if that is elsewhere than ``span``.
        via: what else it went through (helpers), for people.
    """

    kind: Kind
    change: Change
    span: Span
    text: str | None = None
    origin: Span | None = None
    words: str = ""
    path: tuple[str, ...] = ()
    named: bool = False
    template: Span | None = None
    via: str | None = None

    @property
    def size_bytes(self) -> int | None:
        """UTF-8 bytes of a known text."""
        return len(self.text.encode()) if self.text is not None else None

    def at(self, span: Span) -> Part:
        """The same, entering the prompt elsewhere."""
        return replace(self, span=span, origin=self.origin or self.span)


@record
class Choice:
    """One of several texts, as a branch decides. ``size``: how many parts are in it, those of all branches counted."""

    options: tuple[tuple[Item, ...], ...]
    size: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        size = sum(item.size if isinstance(item, Choice) else 1 for option in self.options for item in option)
        object.__setattr__(self, "size", size)


Item = Part | Choice


def static(text: str, span: Span) -> Part:
    """A text that never changes."""
    return Part(Kind.STATIC, Change.NEVER, span, text)


def parts_of(items: tuple[Item, ...]) -> Iterator[Part]:
    """Every part, those of all branches included."""
    for item in items:
        if isinstance(item, Part):
            yield item
        else:
            for option in item.options:
                yield from parts_of(option)


@record
class Message:
    """One message of a prompt, or a whole prompt that is no chat (role ``prompt``)."""

    role: str
    items: tuple[Item, ...]
    span: Span


@record
class Prompt:
    """What one request sends, in the order in which it is rendered.

    Attributes:
        tools: tool definitions, which most chat templates render after the system text; None where there are none.
        path: see :attr:`Part.path`; of the place where the request is made.
        complete: nothing else can follow: a whole request, not a piece that is put into one.
        name: how people call it.
        sent: a call sends it; otherwise it is only built.
    """

    messages: tuple[Message, ...]
    span: Span
    tools: tuple[Item, ...] | None = None
    path: tuple[str, ...] = ()
    complete: bool = True
    name: str = ""
    sent: bool = False


def token_estimate(size_bytes: int) -> int:
    """Tokens of so many bytes, rounded down; :data:`BYTES_PER_TOKEN` is the basis."""
    return size_bytes // BYTES_PER_TOKEN
