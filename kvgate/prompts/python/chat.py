"""Shapes of chat code: messages, requests, and the classes of the common packages that build them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kvgate.prompts.part import Change, Item, Kind, Message, Part, static
from kvgate.prompts.python.external import LISTINGS
from kvgate.prompts.python.values import (
    Fields,
    Method,
    Package,
    Rows,
    Template,
    Value,
    Written,
    entering,
    items_of,
    written,
)
from kvgate.prompts.vocabulary import words_of
from kvgate.records import record
from kvgate.source.text import Span

if TYPE_CHECKING:
    from kvgate.prompts.python.project import ModuleSource
    from kvgate.prompts.syntax import Places

#: Messages that are dropped at once from which on a cut counts as rare: each cut then voids the cache once in so many
#: turns, not every turn.
STRIDE_MESSAGES: Final = 8

#: What a part goes through that is the view of a dictionary: a text that is written from one keeps its order.
VIEW: Final = "view"

#: Methods that fill a template.
FILLING: Final = frozenset(
    {"format", "format_messages", "format_prompt", "invoke", "ainvoke", "stream", "astream", "render", "substitute",
     "safe_substitute", "format_map", "render_async", "batch", "apply"}
)  # fmt: skip

#: Methods of models, and of chains and agents that end in one.
ANSWERING: Final = frozenset(
    {"invoke", "ainvoke", "create", "acreate", "generate", "agenerate", "complete", "acomplete", "completion",
     "acompletion", "predict", "apredict", "chat", "achat", "run", "arun", "parse", "stream", "astream"}
)  # fmt: skip

_ROLE_OF_CLASS: Final = {
    **dict.fromkeys(("SystemMessage", "SystemMessagePromptTemplate", "SystemPromptPart", "DeveloperMessage"), "system"),
    **dict.fromkeys(("ChatCompletionSystemMessageParam", "SystemChatMessage", "from_system"), "system"),
    **dict.fromkeys(("HumanMessage", "UserMessage", "HumanMessagePromptTemplate", "UserPromptPart"), "user"),
    **dict.fromkeys(("ChatCompletionUserMessageParam", "from_user"), "user"),
    **dict.fromkeys(("AIMessage", "AssistantMessage", "AIMessagePromptTemplate", "from_assistant"), "assistant"),
    **dict.fromkeys(("ToolMessage", "FunctionMessage", "from_tool"), "tool"),
}
_ROLES: Final = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "placeholder": "history",
    "messages_placeholder": "history",
}
_TOOL_CLASSES: Final = frozenset(
    {"StructuredTool", "Tool", "FunctionTool", "BaseTool", "DynamicTool", "QueryEngineTool"}
)
_MEDIA_TYPES: Final = frozenset(
    {"image_url", "image", "input_image", "video_url", "video", "audio_url", "input_audio", "audio", "image_embeds"}
)


@record
class ArgumentPlaces:
    """Places of a call's arguments by keyword or index; of the call itself by the empty text.

    Attributes:
        fixed: the one place of everything, inside an f-string.
        spread: places of keywords that came in a dictionary (``**context``).
    """

    node: ast.Call
    places: Places
    fixed: Span | None
    spread: Mapping[str, Span]

    def get(self, key: str, default: Span | None = None) -> Span | None:
        if self.fixed is not None:
            return self.fixed
        if not key:
            return self.places.span(self.node)
        if key.isdecimal():
            index = int(key)
            return self.places.span(self.node.args[index]) if index < len(self.node.args) else default
        for keyword in self.node.keywords:
            if keyword.arg == key:
                return self.places.span(keyword.value)
        return self.spread.get(key, default)

    def __getitem__(self, key: str) -> Span:
        """The place of an argument; the call's where it came in a dictionary."""
        found = self.get(key)
        return found if found is not None else self.places.span(self.node)


@record
class Call:
    """One call with the values of its arguments."""

    node: ast.Call
    dotted: str
    args: list[Value]
    kwargs: dict[str, Value]
    path: tuple[str, ...]
    module: ModuleSource
    spans: ArgumentPlaces

    @property
    def name(self) -> str:
        return self.dotted.rpartition(".")[2]


def role_of(value: Value) -> str | None:
    """The role that a message says, None where it is no message."""
    if not isinstance(value, Fields):
        return None
    role = value.entries.get("role") or value.entries.get("from")
    if role is None:
        return None
    if not any(key in value.entries for key in ("content", "value", "parts", "tool_calls", "text")):
        return None
    text = role.text if isinstance(role, Written) else None
    if text is None:
        return "unknown"
    return _ROLES.get(text.lower(), text.lower())


def is_message(value: Value) -> bool:
    return role_of(value) is not None


def stands_for_many(value: Value) -> bool:
    """Whether a value in a list of messages is what a loop over a history appends."""
    return not isinstance(value, Fields) or value.past or role_of(value) in (None, "unknown")


def content_items(message: Fields) -> tuple[Item, ...]:
    """What a message writes, in order: text, images and other media, calls of tools."""
    content = next(
        (message.entries[key] for key in ("content", "value", "parts", "text") if key in message.entries), None
    )
    span = message.keys.get("content") or message.keys.get("value") or message.span
    items: tuple[Item, ...] = ()
    if isinstance(content, Rows):
        for element in content.elements:
            items += _piece(element, content.span or span)
    elif content is not None:
        items = entering(content, span) if span is not None else items_of(content)
    calls = message.entries.get("tool_calls")
    if calls is None:
        return items
    # ids and names of calls stay as they were made; their arguments may be dumped anew
    return items + tuple(item for item in items_of(calls) if isinstance(item, Part) and item.kind is Kind.UNORDERED)


def _piece(element: Value, span: Span | None) -> tuple[Item, ...]:
    if isinstance(element, Fields):
        kind = element.entries.get("type")
        kind_text = kind.text if isinstance(kind, Written) else None
        place = element.span or span
        if kind_text in _MEDIA_TYPES or (kind_text is None and set(element.entries) & _MEDIA_TYPES):
            shown = next((name for name in ("image", "video", "audio") if name in (kind_text or "image")), "media")
            article = "an" if shown[0] in "aeiou" else "a"
            return (Part(Kind.MEDIA, Change.REQUEST, place, words=f"{article} {shown}"),) if place is not None else ()
        text = element.entries.get("text") or element.entries.get("content")
        place = element.keys.get("text") or place
        return entering(text, place) if text is not None and place is not None else ()
    return items_of(element)


def messages_of(rows: Rows) -> list[Message]:
    """The messages of a list; what is no message in sight is history, or unknown."""
    found: list[Message] = []
    for element in rows.elements:
        role = role_of(element)
        if role is not None and isinstance(element, Fields):
            span = element.span or rows.span
            if span is not None:
                past = element.past and role == "user"
                found.append(Message("history" if past else role, content_items(element), span))
            continue
        if isinstance(element, Rows) and any(is_message(inner) for inner in element.elements):
            found += messages_of(element)
            continue
        if isinstance(element, Template):
            found += [Message(role, items, span) for role, items, span in element.messages]
            continue
        items = items_of(element)
        span = _span_of(items) or rows.span
        if items and span is not None:
            found.append(Message("history" if _is_history(items) else "unknown", items, span))
    return found


def _is_history(items: tuple[Item, ...]) -> bool:
    return any(isinstance(item, Part) and item.kind in (Kind.HISTORY, Kind.CUT) for item in items)


def _span_of(items: tuple[Item, ...]) -> Span | None:
    return next((item.span for item in items if isinstance(item, Part)), None)


def construct(
    name: str,
    dotted: str,
    args: list[Value],
    kwargs: dict[str, Value],
    span: Span,
    spans: ArgumentPlaces,
    path: tuple[str, ...],
) -> Value | None:
    """What a call of a known class builds, None where the class is not known."""
    owner = dotted.rpartition(".")[0].rpartition(".")[2]
    if name in ("from_template", "from_messages", "from_string", "from_examples"):
        return _template(name, owner, args, kwargs, span)
    role = _ROLE_OF_CLASS.get(name)
    if role is not None and (name[0].isupper() or owner in ("ChatMessage", "Message")):
        key = next((key for key in ("content", "text", "prompt") if key in kwargs), "0")
        content = kwargs.get(key) or (args[0] if args else None)
        return _message(role, content, span, spans.get(key) or span)
    if name in ("ChatMessage", "Message", "Msg") and ("role" in kwargs or len(args) > 1):
        said = kwargs.get("role") or args[0]
        text = said.text if isinstance(said, Written) else None
        if isinstance(said, Method):
            text = said.name
        elif isinstance(said, Package):
            text = said.dotted.rpartition(".")[2]
        content = kwargs.get("content") or (args[1] if len(args) > 1 else None)
        place = spans.get("content") or spans.get("1") or span
        return _message(_ROLES.get((text or "unknown").lower(), "unknown"), content, span, place)
    if "description" in kwargs and _TOOL_CLASSES & {name, owner}:
        return Fields({key: kwargs[key] for key in ("name", "description") if key in kwargs}, span=span)
    if name == "MessagesPlaceholder":
        return written(Part(Kind.HISTORY, Change.SESSION, span, words="the history", path=path))
    if name in ("PromptTemplate", "ChatPromptTemplate", "StringPromptTemplate", "RichPromptTemplate"):
        keys = ("template", "messages", "message_templates")
        template = next((kwargs[key] for key in keys if key in kwargs), args[0] if args else None)
        if isinstance(template, Rows):
            return _template("from_messages", name, [template], kwargs, span)
        if template is not None:
            return _template("from_template", name, [template], kwargs, span)
    if name == "Template" and args and isinstance(args[0], Written):
        text = args[0].text
        if text is not None:
            return Template(
                [("prompt", args[0].items, span)], span, "jinja" if "{{" in text or "{%" in text else "dollar"
            )
    if name in ("get_template", "select_template") and args and isinstance(args[0], Written) and args[0].text:
        file = Part(Kind.UNKNOWN, Change.PROCESS, span, text=None, words=args[0].text)
        return Template([("prompt", (file,), span)], span, "jinja-file")
    return None


def _message(role: str, content: Value | None, span: Span, place: Span) -> Value:
    entries: dict[str, Value] = {"role": written(static(role, span))}
    entries["content"] = content if content is not None else Written()
    if isinstance(content, Template):
        return Template([(role, items, where) for _, items, where in content.messages], span, content.style)
    return Fields(entries, span=span, keys={"content": place})


def _template(name: str, owner: str, args: list[Value], kwargs: dict[str, Value], span: Span) -> Value | None:
    source = args[0] if args else kwargs.get("template") or kwargs.get("messages") or kwargs.get("template_code")
    style = kwargs.get("template_format")
    form = style.text if isinstance(style, Written) else None
    kind = {"jinja2": "jinja", "mustache": "mustache"}.get(form or "", "format")
    partial = kwargs.get("partial_variables")
    bound = dict(partial.entries) if isinstance(partial, Fields) else {}
    if isinstance(source, Written) and source.items:
        text = source.text
        if name == "from_string" and text is not None:
            kind = "jinja"
        role = _ROLE_OF_CLASS.get(owner, "user" if owner == "ChatPromptTemplate" else "prompt")
        return Template([(role, source.items, span)], span, kind, bound=bound)
    if not isinstance(source, Rows):
        return None
    messages: list[tuple[str, tuple[Item, ...], Span]] = []
    for element in source.elements:
        if isinstance(element, Rows) and len(element.elements) == 2:
            said, content = element.elements
            text = said.text if isinstance(said, Written) else None
            role = _ROLES.get((text or "").lower(), text or "unknown")
            place = element.span or span
            if role == "history":
                part = Part(Kind.HISTORY, Change.SESSION, place, words="the history")
                messages.append(("history", (part,), place))
            else:
                messages.append((role, items_of(content), place))
        elif isinstance(element, Template):
            messages += element.messages
        elif is_message(element) and isinstance(element, Fields):
            messages.append((role_of(element) or "unknown", content_items(element), element.span or span))
        elif isinstance(element, Written) and element.items:
            messages.append(("history" if _is_history(element.items) else "user", element.items, span))
    return Template(messages, span, kind, bound=bound)


_TRIMS: Final = frozenset({"trim", "truncate", "prune", "window", "clip", "shorten", "limit", "cut"})


def trims(name: str) -> bool:
    """Whether a function of this name cuts a history."""
    words = set(words_of(name))
    return bool(words & _TRIMS) and bool(words & {"messages", "history", "conversation", "message", "context", "chat"})


_SERVERS: Final = frozenset({"mcp", "client", "server", "servers", "session", "multi", "remote"})


def lists(name: str, call: ast.Call) -> bool:
    """Whether a call lists things in an order that nobody promises."""
    if name != "get_tools":
        return name in LISTINGS
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return bool(set(words_of(owner)) & _SERVERS)


def reads(node: ast.expr | None, name: str) -> bool:
    """Whether an expression uses a name."""
    return node is not None and any(isinstance(below, ast.Name) and below.id == name for below in ast.walk(node))


def cuts(node: ast.expr | None) -> bool:
    """Whether an expression takes a part of something."""
    return node is not None and any(isinstance(below, ast.Slice) for below in ast.walk(node))


_UNSTABLE: Final = frozenset(
    {"args", "arguments", "schema", "schemas", "parameters", "tool", "tools", "row", "record", "function", "functions",
     "spec", "specs", "metadata", "properties"}
)  # fmt: skip


def unstable_subject(node: ast.expr | None) -> str | None:
    """What is dumped as JSON, where the order of its keys is whoever's made it."""
    if isinstance(node, ast.Attribute | ast.Name | ast.Subscript):
        last = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            last = str(node.slice.value)
        words = words_of(last)
        own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if words and words[-1] in _UNSTABLE and not last.isupper() and not own:
            return f'"{ast.unparse(node)}"'
    return None


_ROWS: Final = frozenset({"fetchall", "fetchmany", "fetch", "scalars", "all", "find", "scan", "aggregate"})
_HTTP: Final = frozenset({"requests", "httpx", "response", "resp", "res", "session", "http", "client", "get", "r"})
_STORES: Final = frozenset({"db", "session", "cursor", "conn", "connection", "collection", "query", "execute", "table"})


def remote(node: ast.Call) -> str | None:
    """Whether a call lists what another machine holds, in whatever order that gives, with why."""
    if not isinstance(node.func, ast.Attribute):
        return None
    name = node.func.attr
    source = ast.unparse(node.func.value).lower()
    words = set(words_of(source.replace("(", " ").replace(".", " ")))
    if name == "json" and words & _HTTP:
        return "what a server lists, in an order that nobody promises"
    if name in _ROWS and words & _STORES and "order" not in source and "sort" not in source:
        return "rows of a query without an order"
    return None
