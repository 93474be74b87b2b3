"""What names in prompt code usually stand for.

Used where the value itself cannot be followed: parameters, attributes of unknown objects, placeholders, calls into
other packages. A name is split into its words (``currentTime``, ``current_time``); the longest entry whose words it
holds in a row decides.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from kvgate.prompts.clock import RESOLUTION_WORDS
from kvgate.prompts.part import Change, Kind
from kvgate.records import record


@record
class Meaning:
    """What a name stands for, how often its text changes, and how people call it."""

    kind: Kind
    change: Change
    words: str


_SECOND = Meaning(Kind.CLOCK, Change.REQUEST, RESOLUTION_WORDS[Change.REQUEST])
_MINUTE = Meaning(Kind.CLOCK, Change.MINUTE, "the time of day")
_DATE = Meaning(Kind.CLOCK, Change.DAY, RESOLUTION_WORDS[Change.DAY])
_REQUEST_ID = Meaning(Kind.IDENTIFIER, Change.REQUEST, "an id that is new with each request")
_RANDOM = Meaning(Kind.RANDOM, Change.REQUEST, "a random value")
_SESSION = Meaning(Kind.SESSION, Change.SESSION, "the id of the session")
_USER = Meaning(Kind.USER, Change.USER, "text about the user")
_COUNTER = Meaning(Kind.COUNTER, Change.REQUEST, "a counter")
_STATE = Meaning(Kind.STATE, Change.REQUEST, "state that changes during a conversation")
_RETRIEVAL = Meaning(Kind.RETRIEVAL, Change.REQUEST, "retrieved text")
_MEMORY = Meaning(Kind.RETRIEVAL, Change.REQUEST, "memories")
_HISTORY = Meaning(Kind.HISTORY, Change.SESSION, "the history")
_MEDIA = Meaning(Kind.MEDIA, Change.REQUEST, "an image")
_INPUT = Meaning(Kind.INPUT, Change.REQUEST, "what the user asks")
_TOOLS = Meaning(Kind.TOOLS, Change.NEVER, "the tools")
_STATIC = Meaning(Kind.STATIC, Change.PROCESS, "static text")

# "=time" is the whole name; other entries may stand anywhere in a name, one of a single word only at its end.
_TABLE: Final[dict[Meaning, str]] = {
    _SECOND: """now | utcnow | timestamp | current timestamp | current datetime | datetime | date time | datetime now
        | now str | now iso | iso now | time now | clock | epoch | unix time | system time | server time | =ts""",
    _MINUTE: """=time | current time | time of day | local time | wall time | utc time | time string | time str
        | the time""",
    _DATE: """today | todays date | today date | current date | =date | date string | date str | date today | yesterday
        | tomorrow | current day | weekday | day of week | current year | current month""",
    _REQUEST_ID: """request id | req id | trace id | span id | correlation id | run id | message id | msg id | turn id
        | nonce | uuid | uuid4 | guid | job id | completion id | invocation id | transaction id | ulid""",
    _RANDOM: "random value | random number | random string | rand | entropy",
    _SESSION: """session id | conversation id | thread id | chat id | dialog id | dialogue id | =sid | session key
        | session token | chat uuid | conv id""",
    _USER: """=user | user id | user name | username | user email | user profile | user info | user context
        | user memory | user memories | user preferences | user data | user details | user facts | =profile | =customer
        | customer id | customer name | customer ctx | customer context | customer profile | account id | =account
        | member id | =member | =patient | =caller | display name | first name | last name | full name | user location
        | user timezone | nickname | per user""",
    _COUNTER: """turn number | turn count | turn index | turn no | message count | request count | request number
        | counter | attempt | step number | iteration | sequence number | remaining tokens | tokens left | tokens used
        | token count | budget left""",
    _STATE: """session state | agent state | conversation state | current state | directive | session directive
        | scratchpad | todo list | todos | current status | system status | environment details | env details
        | git status | open files | active file | live data | telemetry | current weather | stock price
        | session context | session info""",
    _RETRIEVAL: """context | contexts | retrieved | retrieved docs | retrieved chunks | chunks | docs
        | documents | passages | passage | search results | hits | snippets | snippet | retrieved knowledge
        | rag context | evidence | web results | relevant docs | relevant documents | context str | context text
        | context block""",
    _MEMORY: "memory | memories | memory block | memory context | recollections",
    _HISTORY: """history | chat history | conversation history | messages | message history | past messages | turns
        | conversation | previous messages | dialog | dialogue | prior turns | chat log | agent scratchpad
        | intermediate steps""",
    _MEDIA: """image | images | image url | img | image b64 | base64 image | image data | photo | screenshot
        | screenshots | picture | =video | video url | =audio | audio url | frames | pixel values""",
    _INPUT: """query | question | user input | user message | user query | user question | user msg | user prompt
        | user text | =input | utterance | transcript | human input | message | content | text | request text | topic
        | document | doc | article | =prompt""",
    _TOOLS: """tools | tool list | tool specs | tool schemas | tool definitions | functions | function specs
        | tool descriptions | tools text | tools description | command docs | commands docs | tool docs | tools docs
        | function docs""",
    _STATIC: """rules | instructions | instruction | system prompt | guidelines | policy | policies | preamble
        | few shot | fewshot | few shots | examples | format instructions | prompt template | template | base prompt
        | system message | system text | system instructions | schema | constitution | manual | handbook | playbook
        | persona | style guide | boilerplate | personality | personality context | persona context | system context
        | agent context | brand context | business context | company context | product context | app context""",
}

# Before "history" and the like: what is no conversation.
_RECORDED: Final = frozenset(
    {"name", "names", "counter", "command", "price", "order", "login", "browser", "metric", "metrics", "loss", "train",
     "training", "version", "job", "run", "error", "call", "calls", "edit", "event", "events", "download", "git",
     "score", "status", "usage", "latency", "audit", "reward", "kafka", "log", "mood", "emotion", "stock", "market",
     "trade", "purchase", "payment", "location", "watch", "fitness", "position", "balance", "build", "deploy", "sensor",
     "weight"}
)  # fmt: skip

# Words that say in which form a text is, not what it is.
_FORMS: Final = frozenset(
    {"text", "str", "string", "block", "section", "content", "json", "list", "data", "xml", "md", "lines", "formatted",
     "joined", "rendered", "info", "part", "line", "value", "items"}
)  # fmt: skip

#: Words of names that hold something of a prompt, and not the prompt.
_ABOUT_PROMPTS: Final = frozenset(
    {"tokens", "token", "count", "length", "len", "size", "cost", "price", "hash", "id", "ids", "key", "path", "paths",
     "file", "files", "dir", "folder", "version", "index", "number", "num", "limit", "ratio", "score", "usage"}
)  # fmt: skip
_WORDS: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

#: Verbs of calls that look something up for one request.
_LOOKUPS: Final = frozenset({"retrieve", "search", "recall", "rerank", "similarity", "retriever", "aretrieve"})
_STORES: Final = frozenset({"retriever", "index", "vectorstore", "vectordb", "collection", "qdrant", "chroma", "faiss"})
_ASKS: Final = frozenset({"invoke", "ainvoke", "query", "search", "get", "similarity"})
_GETTERS: Final = frozenset(
    {"get", "build", "fetch", "load", "make", "format", "render", "read", "create", "compute", "generate", "compose"}
)


def words_of(name: str) -> tuple[str, ...]:
    """``currentTime`` and ``current_time`` -> ``("current", "time")``."""
    return tuple(word.lower() for word in _WORDS.findall(name))


@lru_cache(maxsize=1)
def _entries() -> tuple[dict[tuple[str, ...], Meaning], dict[tuple[str, ...], Meaning]]:
    """Entries that may stand anywhere in a name, and those that are a whole name."""
    anywhere: dict[tuple[str, ...], Meaning] = {}
    whole: dict[tuple[str, ...], Meaning] = {}
    for meaning, text in _TABLE.items():
        for entry in text.split("|"):
            words = entry.strip()
            (whole if words.startswith("=") else anywhere)[tuple(words.removeprefix("=").split())] = meaning
    return anywhere, whole


@lru_cache(maxsize=4096)
def meaning_of(name: str) -> Meaning | None:
    """What a name stands for, None where nothing is known of it.

    A longer entry wins over a shorter one, and among equally long ones the last: in English the head noun comes last.
    """
    words = words_of(name)
    found = _lookup(words)
    while found is None and len(words) > 1 and (words[-1] in _FORMS or words[0] in _FORMS):
        words = words[:-1] if words[-1] in _FORMS else words[1:]
        found = _lookup(words)
    return found


def _lookup(words: tuple[str, ...]) -> Meaning | None:
    anywhere, whole = _entries()
    if words in whole:
        return whole[words]
    for length in range(min(len(words), 4), 1, -1):
        for start in range(len(words) - length, -1, -1):
            found = anywhere.get(words[start : start + length])
            if found is not None:
                return found
    found = anywhere.get(words[-1:])
    return None if found is _HISTORY and words[-2:-1] and words[-2] in _RECORDED else found


@lru_cache(maxsize=4096)
def meaning_of_call(name: str, receiver: str = "") -> Meaning | None:
    """What a call of an unknown function yields, by its name and what it is called on."""
    words = words_of(name)
    if not words:
        return None
    owner = set(words_of(receiver))
    if (owner & _STORES or {"vector", "store"} <= owner) and words[0] in _ASKS:
        return _RETRIEVAL
    if words[0] in _LOOKUPS or words[-1] in _LOOKUPS:
        return _MEMORY if {"memory", "memories", "recall"} & set(words) else _RETRIEVAL
    if words[0] in _GETTERS:
        words = words[1:]
    return meaning_of("_".join(words)) if words else None


def is_constant_name(name: str) -> bool:
    """``SHARED_RULES``: by convention nothing that changes."""
    return name.isupper() and len(name) > 1


def is_history_name(name: str) -> bool:
    meaning = meaning_of(name)
    return meaning is not None and meaning.kind is Kind.HISTORY


def is_prompt_name(name: str) -> bool:
    """Whether a variable, parameter or function of this name holds a prompt."""
    words = set(words_of(name))
    if words & _ABOUT_PROMPTS:
        return False
    return bool(words & {"prompt", "prompts", "instruction", "instructions", "preamble"}) or bool(
        words == {"system"} or ("system" in words and words & {"message", "msg", "text", "content", "template"})
    )
