"""Where prompt-building code ends: lists of messages, requests, and texts that are called prompts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kvgate.prompts.defect import Defect, each_once
from kvgate.prompts.order import HOW_OFTEN, LEAST_TOKENS, frozen, judge
from kvgate.prompts.part import BYTES_PER_TOKEN, Change, Choice, Item, Kind, Message, Part, Prompt, parts_of, static
from kvgate.prompts.python import chat
from kvgate.prompts.python.placeholders import Fill, fill
from kvgate.prompts.python.tree import decorators_of
from kvgate.prompts.python.values import Fields, Rows, Template, Value, Written, entering, items_of
from kvgate.prompts.syntax import located
from kvgate.prompts.vocabulary import is_prompt_name, meaning_of, words_of
from kvgate.source.text import Span, Text

if TYPE_CHECKING:
    from kvgate.prompts.python.project import ModuleSource

_SYSTEM_KEYWORDS: Final = (
    "system", "system_prompt", "instructions", "system_message", "system_instruction", "sys_prompt", "preamble",
    "developer_prompt",
)  # fmt: skip
_SENDING: Final = frozenset(
    {"create", "acreate", "chat", "completion", "acompletion", "completions", "complete", "acomplete", "generate",
     "agenerate", "invoke", "ainvoke", "stream", "astream", "predict", "apredict", "parse", "apply_chat_template",
     "text_generation", "send_message", "query_llm", "call_llm", "ask_llm", "batch", "chat_completion",
     "generate_text", "add_request"}
)  # fmt: skip
_OTHERS: Final = frozenset({"bind_tools", "bind_functions", "ConversationBufferWindowMemory"})
_MODELS: Final = frozenset(
    {"llm", "model", "client", "engine", "openai", "vllm", "chat", "agent", "lm", "litellm", "ollama"}
)
_BODY_KEYWORDS: Final = ("json", "data", "body", "payload", "content", "params", "extra_body", "request", "inputs")
_BESIDE_PROMPT: Final = frozenset(
    {"model", "max_tokens", "max_completion_tokens", "temperature", "stream", "tools", "cache_salt", "multi_modal_data",
     "sampling_params"}
)  # fmt: skip
#: What no tool needs to say of itself.
_CHANGING: Final = frozenset({Kind.CLOCK, Kind.IDENTIFIER, Kind.RANDOM, Kind.COUNTER})
_BENCHMARK: Final = re.compile(r"bench|load_?test|locust|stress|perf_test|throughput|loadgen", re.IGNORECASE)
_LOCUST: Final = re.compile(r"\b(?:Fast)?HttpUser\b")
_REPEATS: Final = re.compile(
    r"(?m)^[ \t]*(?:async )?(?:for|while)\b|\bfor \w+ in\b|\bHttpUser\b|\.map\(|Thread\(|Process\("
)
#: What makes a function's text a part of the system text, behind the static parts of it (Pydantic AI).
_PROMPT_DECORATORS: Final = frozenset({"system_prompt", "instructions"})
#: Prompts of models that paint: nothing of theirs is cached.
_PICTURES: Final = re.compile(r"\bdiffusers\b|\.images\.generate\b|\bnum_inference_steps\b")
_PICTURE_KEYWORDS: Final = frozenset(
    {"num_inference_steps", "guidance_scale", "negative_prompt", "num_images_per_prompt"}
)
_LLM_WORDS: Final = re.compile(r"\bllms?\b|\bprompts?\b|\bopenai\b|\bvllm\b|language model", re.IGNORECASE)


@dataclass(slots=True)
class Sinks:
    """Collects what is sent or built, and judges it when everything has been followed."""

    prompts: list[Prompt] = field(default_factory=list)
    weak: list[Prompt] = field(default_factory=list)
    defects: list[Defect] = field(default_factory=list)
    _lists: dict[int, tuple[Rows, tuple[str, ...], ModuleSource]] = field(default_factory=dict)
    _bodies: dict[int, tuple[Fields, tuple[str, ...], ModuleSource]] = field(default_factory=dict)
    _templates: list[tuple[Template, tuple[str, ...]]] = field(default_factory=list)
    _loads: dict[str, list[tuple[Span, str | None]]] = field(default_factory=dict)
    _sent: set[int] = field(default_factory=set)
    _kept: list[object] = field(default_factory=list)

    # -- what the evaluator reports ----------------------------------------------------------------------------------

    def listed(self, rows: Rows, path: tuple[str, ...], module: ModuleSource) -> None:
        """A list was built; it may be one of messages."""
        if id(rows) not in self._lists and any(chat.is_message(element) for element in rows.elements):
            self._lists[id(rows)] = rows, path, module

    def grown(self, rows: Rows) -> None:
        """A list grew."""

    def mapped(self, fields: Fields, path: tuple[str, ...], module: ModuleSource, *, literal: bool = False) -> None:
        """A dictionary was built; it may be a request, or a message. ``literal``: its keys stand in the code."""
        entries = fields.entries
        if "messages" in entries or ("prompt" in entries and entries.keys() & _BESIDE_PROMPT):
            self._bodies[id(fields)] = fields, path, module
        role = chat.role_of(fields)
        if literal and role == "assistant" and "reasoning_content" in entries and "reasoning" not in entries:
            span = fields.keys.get("reasoning_content") or fields.span
            if span is not None:
                what = "reasoning is sent back as reasoning_content"
                self.defects.append(Defect("history", span, {"what": what}, variant="reasoning-field", since="0.20.0"))

    def templated(self, template: Template, path: tuple[str, ...], module: ModuleSource) -> None:
        self._templates.append((template, path))

    def rendered(self, prompt: Prompt, span: Span, path: tuple[str, ...]) -> None:
        """A Jinja template was rendered."""
        self.prompts.append(Prompt(prompt.messages, span, None, path, complete=False))

    def rewritten(self, span: Span, what: str, module: ModuleSource, variant: str | None = None) -> None:
        """The history is changed before its end."""
        self.defects.append(Defect("history", span, {"what": what}, variant=variant))

    def salt(self, value: Value, span: Span, path: tuple[str, ...]) -> None:
        """A ``cache_salt`` is set."""
        for part in parts_of(entering(value, span)):
            changing = part.kind in (Kind.CLOCK, Kind.IDENTIFIER, Kind.RANDOM, Kind.COUNTER)
            if changing and part.change >= Change.HOUR and not frozen(part, path):
                self.defects.append(Defect("cache-salt", part.span, {"what": part.words}))
                return

    def system_rewritten(self, items: tuple[Item, ...], span: Span, path: tuple[str, ...]) -> None:
        """The system message of a request that came from elsewhere is changed."""
        history = Part(Kind.HISTORY, Change.SESSION, span, words="the history")
        messages = (Message("system", items, span), Message("history", (history,), span))
        self.prompts.append(Prompt(messages, span, path=path))

    def assigned(self, name: str, value: Value, path: tuple[str, ...], module: ModuleSource, span: Span) -> None:
        if isinstance(value, Template):
            self.templated(value, path, module)
        elif path and isinstance(value, Written) and len(value.items) > 1 and is_prompt_name(name):
            if _PICTURES.search(module.file.text):
                return
            self.weak.append(_text_prompt(name, value.items, span, path))

    def returned(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, value: Value, path: tuple[str, ...], module: ModuleSource
    ) -> None:
        if isinstance(value, Rows):
            self.listed(value, path, module)
        elif isinstance(value, Written) and value.items and decorators_of(node) & _PROMPT_DECORATORS:
            self.system_rewritten(value.items, module.places.span(node), path)
        elif isinstance(value, Written) and len(value.items) > 1:
            told = "context" in words_of(node.name) and _LLM_WORDS.search(ast.get_docstring(node) or "")
            if is_prompt_name(node.name) or told:
                span = module.places.span(node)
                self.weak.append(_text_prompt(node.name, value.items, span, path))

    def called(self, call: chat.Call) -> None:
        """A call was made; it may send a request."""
        name = call.name
        if not call.kwargs and name not in _SENDING and name not in _OTHERS:
            return
        self._check_memory(call)
        tools = call.kwargs.get("tools") or call.kwargs.get("functions")
        if tools is None and name in ("bind_tools", "bind_functions") and call.args:
            tools = call.args[0]
        if tools is not None:
            place = call.spans.get("tools") or call.spans.get("functions") or call.spans.get("0") or call.spans[""]
            self._check_tools(tools, place, call.path)
        for keyword in _BODY_KEYWORDS:
            body = call.kwargs.get(keyword)
            if isinstance(body, Fields) and id(body) in self._bodies:
                self._send_body(body, call.path, call.module)
        salt = call.kwargs.get("cache_salt")
        if salt is not None:
            self.salt(salt, call.spans["cache_salt"], call.path)
        if name in ("append", "insert", "extend", "print", "info", "debug", "warning", "error", "log", "exception"):
            return
        self._check_sending(call, tools)

    def _check_sending(self, call: chat.Call, tools: Value | None) -> None:
        name = call.name
        messages = call.kwargs.get("messages")
        if messages is None:
            given = call.kwargs.get("input") or call.kwargs.get("contents")
            messages = given if isinstance(given, Rows) else None
        sends = name in _SENDING and bool(
            set(words_of(call.dotted)) & _MODELS or name not in ("create", "batch", "stream")
        )
        if messages is None and sends:
            messages = next(
                (
                    value
                    for value in call.args[:2]
                    if isinstance(value, Rows) and any(chat.is_message(element) for element in value.elements)
                ),
                None,
            )
        system = next(((key, call.kwargs[key]) for key in _SYSTEM_KEYWORDS if key in call.kwargs), None)
        found: list[Message] = []
        if system is not None:
            span = call.spans[system[0]]
            found.append(Message("system", entering(system[1], span), span))
        if messages is not None:
            self._sent.add(id(messages))
            if isinstance(messages, Rows):
                found += chat.messages_of(messages)
            else:
                items = items_of(messages)
                if items:
                    found.append(Message("history", items, call.spans[""]))
        tool_items = _tool_items(tools, call.spans["tools"]) if tools is not None else None
        if found and (messages is not None or system is not None):
            constructs = name[:1].isupper() or name in ("create_react_agent", "create_agent", "initialize_agent")
            prompt = Prompt(tuple(found), call.spans[""], tool_items, call.path, name=name, sent=messages is not None)
            if constructs and messages is None:
                if call.path:
                    self.weak.append(prompt)
            else:
                self.prompts.append(prompt)
                self._check_benchmark(prompt, call.module)
            return
        self._check_text(call, sends, tool_items)

    def _check_text(self, call: chat.Call, sends: bool, tools: tuple[Item, ...] | None) -> None:
        """A call that is given a prompt as a text."""
        key: str | None = next(
            (key for key in ("prompt", "prompts", "prompt_text", "text_prompt") if key in call.kwargs), None
        )
        if key is None and sends and call.args:
            key = "0"
        if key is None or call.kwargs.keys() & _PICTURE_KEYWORDS or {"image", "images"} & set(words_of(call.dotted)):
            return
        value = call.args[0] if key == "0" else call.kwargs[key]
        span = call.spans[key]
        if isinstance(value, Rows):
            if value.repeated is not None and len(value.elements) == 1 and _is_static(items_of(value)):
                self.defects.append(Defect("benchmark", value.repeated, {"what": "one prompt is sent many times"}))
            texts = [element for element in value.elements if isinstance(element, Written)]
            for element in texts[:8]:
                self.prompts.append(
                    Prompt((Message("prompt", element.items, span),), span, tools, call.path, sent=True)
                )
            return
        if isinstance(value, Written) and value.items and call.name not in ("input", "open", "getenv"):
            prompt = Prompt((Message("prompt", value.items, span),), span, tools, call.path, sent=sends)
            (self.prompts if sends else self.weak).append(prompt)
            if sends:
                self._check_benchmark(prompt, call.module)

    def _send_body(self, body: Fields, path: tuple[str, ...], module: ModuleSource) -> None:
        self._sent.add(id(body))
        prompt = self._body_prompt(body, path)
        if prompt is not None:
            self.prompts.append(prompt)
            self._check_benchmark(prompt, module)

    def _body_prompt(self, body: Fields, path: tuple[str, ...]) -> Prompt | None:
        span = body.span
        if span is None:
            return None
        found = [
            Message("system", entering(body.entries[key], body.keys.get(key, span)), span)
            for key in ("system", "instructions")
            if key in body.entries
        ]
        messages = body.entries.get("messages")
        if messages is not None:
            self._sent.add(id(messages))
            if isinstance(messages, Rows):
                found += chat.messages_of(messages)
            elif items_of(messages):
                found.append(Message("history", items_of(messages), span))
        elif "prompt" in body.entries:
            found.append(Message("prompt", entering(body.entries["prompt"], body.keys.get("prompt", span)), span))
        tools = body.entries.get("tools") or body.entries.get("functions")
        items = None
        if tools is not None:
            place = body.keys.get("tools") or body.keys.get("functions") or span
            self._check_tools(tools, place, path)
            items = _tool_items(tools, place)
        return Prompt(tuple(found), span, items, path, sent=True) if found else None

    # -- what is wrong beyond the order ------------------------------------------------------------------------------

    def _check_tools(self, tools: Value, span: Span, path: tuple[str, ...]) -> None:
        for part in parts_of(items_of(tools)):
            if part.kind in _CHANGING and not part.named and not frozen(part, path):
                values = {"what": part.words, "how_often": HOW_OFTEN[part.change]}
                related = ((span, "the tools that are sent"),)
                mild = part.change <= Change.DAY
                self.defects.append(Defect("volatile", part.span, values, "in-tools", mild, related))
        unordered = tools.unordered if isinstance(tools, Rows | Fields) else None
        if isinstance(tools, Rows) and unordered is None and len(tools.elements) == 1:
            tools = tools.elements[0]  # made from one listing
        if isinstance(tools, Written):
            unordered = tools.first(Kind.UNORDERED)
            single = tools.single
            if unordered is None and single is not None and single.kind is Kind.UNKNOWN and single.words:
                unordered = single
        if unordered is None or frozen(unordered, path):
            return
        places = ((span, "the tools that are sent"),) if unordered.span != span else ()
        self.defects.append(Defect("tool-order", unordered.span, {"what": unordered.words}, related=places))

    def _check_memory(self, call: chat.Call) -> None:
        if call.name == "ConversationBufferWindowMemory":
            what = "the memory keeps a window of the last turns"
            self.defects.append(Defect("history", call.spans[""], {"what": what}))

    def _check_benchmark(self, prompt: Prompt, module: ModuleSource) -> None:
        if not (_BENCHMARK.search(module.file.path.rpartition("/")[2]) or _LOCUST.search(module.file.text)):
            return
        if not _REPEATS.search(module.file.text):
            return
        items = tuple(item for message in prompt.messages for item in message.items)
        # a branch or an element of a list is static, and may be another one for each request
        one = all(isinstance(item, Part) and (item.text is not None or "read" in item.span.text) for item in items)
        text = "".join(part.text or part.span.text for part in parts_of(items)) if one and _is_static(items) else None
        self._loads.setdefault(module.file.path, []).append((prompt.messages[-1].span, text))

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> Iterator[Defect]:
        """Judge everything; each place once for each kind of defect, the worst of what was said of it."""
        for fields, path, module in self._bodies.values():
            if id(fields) not in self._sent and fields.entries.keys() & _BESIDE_PROMPT:
                self._send_body(fields, path, module)
        for rows, path, _ in self._lists.values():
            if id(rows) not in self._sent and path:
                messages = tuple(chat.messages_of(rows))
                span = rows.span or messages[0].span
                prompt = Prompt(messages, span, None, path)
                self.prompts.append(prompt)
        for template, path in self._templates:
            if not template.filled:
                self.prompts.append(_template_prompt(template, path))
        for load in self._loads.values():
            span, text = load[0]
            if (
                text is not None
                and len({other for _, other in load}) == 1
                and len(text) > LEAST_TOKENS * BYTES_PER_TOKEN
            ):
                self.defects.append(Defect("benchmark", span, {"what": "each request is the same text"}))
        yield from each_once((*self.defects, *self._judged()))

    def _judged(self) -> Iterator[Defect]:
        seen: set[tuple[str, int, int]] = set()
        for found in self.prompts:
            prompt = _with_media(_with_placeholders(found))
            for message in prompt.messages:
                for part in parts_of(message.items):
                    seen.add((part.span.path, part.span.start, part.span.end))
            yield from judge(prompt)
        for prompt in self.weak:
            for defect in judge(prompt):
                if (defect.span.path, defect.span.start, defect.span.end) not in seen:
                    yield defect


def _text_prompt(name: str, items: tuple[Item, ...], span: Span, path: tuple[str, ...]) -> Prompt:
    words = set(words_of(name))
    role = "user" if words & {"user", "human", "query", "question"} else "system" if "system" in words else "prompt"
    return Prompt((Message(role, items, span),), span, None, path, complete=False, name=name)


def _template_prompt(template: Template, path: tuple[str, ...]) -> Prompt:
    messages = []
    for role, items, span in template.messages:
        filled = fill(items, template.style, _by_name(path)) if template.style != "jinja-file" else items
        messages.append(Message(role, filled, span))
    return Prompt(tuple(messages), template.span, None, path)


def placeholder_prompt(text: Text, name: str) -> Prompt:
    """A text with ``{placeholders}`` that somebody fills: those that plainly change are told by their names."""
    span = text.span
    part = Part(Kind.STATIC, Change.NEVER, span, text.value)
    items: list[Item] = []
    at = 0
    for match in _OPEN_PLACEHOLDER.finditer(text.value):
        meaning = meaning_of(match[1])
        if meaning is None or meaning.kind not in _TELLING:
            continue
        if match.start() > at:
            piece = text.slice(at, match.start())
            items.append(static(piece.value, piece.span))
        place = text.slice(match.start(), match.end()).span
        words = f"{meaning.words} (the placeholder {match[0]})"
        items.append(Part(meaning.kind, meaning.change, place, words=words, named=True))
        at = match.end()
    rest = text.slice(at, len(text.value))
    items += [static(rest.value, rest.span)] if at else [part]
    return Prompt((Message("system", tuple(items), span),), span, name=name, complete=False)


def _by_name(path: tuple[str, ...]) -> Fill:
    def value_of(name: str, index: int, spec: str, place: Span) -> tuple[Item, ...]:
        meaning = meaning_of(name) if name else None
        if meaning is None:
            return (Part(Kind.UNKNOWN, Change.PROCESS, place),)
        words = f"{meaning.words} (the placeholder {{{name}}})"
        return (Part(meaning.kind, meaning.change, place, words=words, path=path, named=True),)

    return value_of


_MEDIA: Final = re.compile(
    r"<(?:image|video|audio|img)>|<\|(?:image|video|audio)(?:_pad|_\d+)?\|>|<start_of_image>|\[IMG\]|<image_soft_token>"
)


def _with_media(prompt: Prompt) -> Prompt:
    """Marks in a text that an image stands there."""

    def split(item: Item) -> tuple[Item, ...]:
        if isinstance(item, Choice) or item.text is None or not _MEDIA.search(item.text):
            return (item,)
        mapped = located(item.span, item.text)
        items: list[Item] = []
        at = 0
        for match in _MEDIA.finditer(item.text):
            if match.start() > at:
                piece = mapped.slice(at, match.start())
                items.append(static(piece.value, piece.span))
            place = mapped.slice(match.start(), match.end()).span
            items.append(Part(Kind.MEDIA, Change.REQUEST, place, words=f"an image ({match[0]})"))
            at = match.end()
        piece = mapped.slice(at, len(item.text))
        return (*items, static(piece.value, piece.span))

    def is_marked(message: Message) -> bool:
        return any(part.text is not None and _MEDIA.search(part.text) for part in parts_of(message.items))

    if not any(message.role in ("user", "prompt") and is_marked(message) for message in prompt.messages):
        return prompt
    messages = tuple(
        Message(message.role, tuple(piece for item in message.items for piece in split(item)), message.span)
        if message.role in ("user", "prompt")
        else message
        for message in prompt.messages
    )
    return Prompt(messages, prompt.span, prompt.tools, prompt.path, prompt.complete, prompt.name, prompt.sent)


_OPEN_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_]\w*)\}")
_TELLING: Final = frozenset({Kind.CLOCK, Kind.IDENTIFIER, Kind.SESSION})


def _with_placeholders(prompt: Prompt) -> Prompt:
    """Placeholders that nothing in sight fills: somebody does, where their names say so plainly."""

    def opened(item: Item) -> bool:
        if isinstance(item, Choice) or item.text is None or item.kind is not Kind.STATIC:
            return False
        names = _OPEN_PLACEHOLDER.findall(item.text)
        return any((meaning := meaning_of(name)) is not None and meaning.kind in _TELLING for name in names)

    def value_of(name: str, index: int, spec: str, place: Span) -> tuple[Item, ...]:
        meaning = meaning_of(name) if name else None
        if meaning is None or meaning.kind not in _TELLING:
            return (static(place.text, place),)
        words = f"{meaning.words} (the placeholder {{{name}}})"
        return (Part(meaning.kind, meaning.change, place, words=words, path=prompt.path, named=True),)

    if not any(opened(item) for message in prompt.messages for item in message.items):
        return prompt
    messages = []
    for message in prompt.messages:
        items: list[Item] = []
        for item in message.items:
            items += fill((item,), "format", value_of) if opened(item) else (item,)
        messages.append(Message(message.role, tuple(items), message.span))
    return Prompt(tuple(messages), prompt.span, prompt.tools, prompt.path, prompt.complete, prompt.name, prompt.sent)


def _tool_items(tools: Value, span: Span) -> tuple[Item, ...] | None:
    if isinstance(tools, Rows) and not tools.elements:
        return None
    single = tools.single if isinstance(tools, Written) else None
    if single is not None and single.named and "parameter" in single.words:
        return None  # handed on, and often none
    return (Part(Kind.TOOLS, Change.NEVER, span, words="the tools"),)


def _is_static(items: tuple[Item, ...]) -> bool:
    return bool(items) and all(part.kind is Kind.STATIC for part in parts_of(items))
