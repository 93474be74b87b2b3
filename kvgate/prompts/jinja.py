"""What a Jinja template puts out, in its order: chat templates and prompt templates.

Branches are all followed, loops once; macros are followed where they are called. A variable is what the template sets
it to, what the caller is known to pass, or what its name says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kvgate.prompts.clock import RESOLUTION_WORDS, moment_change, strftime_change
from kvgate.prompts.defect import Defect
from kvgate.prompts.jinja_tree import TemplateProblem, TemplateTree, parse_template
from kvgate.prompts.part import Change, Choice, Item, Kind, Message, Part, Prompt, parts_of, static
from kvgate.prompts.vocabulary import is_constant_name, meaning_of, meaning_of_call
from kvgate.records import record
from kvgate.source.text import SourceFile, Span, Text

if TYPE_CHECKING:
    from jinja2 import nodes

MAX_DEPTH: Final = 40
MAX_STEPS: Final = 60_000
#: Levels below which an include is not followed: two templates may include each other.
MAX_INCLUDES: Final = 12

_ROLES: Final = re.compile(
    r"<\|im_start\|>|<\|start_header_id\|>|<\|system\|>|\[INST\]|<start_of_turn>|<\|user\|>|<\|start\|>", re.IGNORECASE
)
_UUID: Final = frozenset({"uuid", "uuid1", "uuid4", "uuid7", "generate_uuid", "ulid"})
_CLOCK_CALLS: Final = frozenset(
    {"now", "utcnow", "strftime_now", "today", "current_time", "get_current_time", "localtime", "gmtime"}
)


@record
class Template:
    """A template as a prompt, and what is wrong with it beyond the order of its parts.

    Attributes:
        chat: it renders a list of messages.
        variables: names that the caller passes.
        included: paths of the files that it includes.
    """

    prompt: Prompt
    chat: bool
    variables: frozenset[str]
    defects: tuple[Defect, ...] = ()
    included: frozenset[str] = frozenset()


def read_template(
    text: Text,
    arguments: Mapping[str, tuple[Item, ...]] | None = None,
    name: str = "",
    path: tuple[str, ...] = (),
    library: Mapping[str, SourceFile] | None = None,
) -> Template | TemplateProblem:
    """Read a template.

    Args:
        text: the template with its places.
        arguments: what the caller is known to pass.
        name: how people call it.
        path: where it is rendered (:attr:`kvgate.prompts.part.Part.path`).
        library: templates that it may include, by the names of their files.
    """
    tree = parse_template(text)
    if isinstance(tree, TemplateProblem):
        return tree
    from jinja2 import nodes

    variables = frozenset(name.name for name in tree.root.find_all(nodes.Name) if name.ctx == "load")
    chat = "messages" in variables
    reader = _Reader(tree, dict(arguments or {}), path, library or {})
    items = tuple(reader.body(tree.root.body, 0))
    messages = tuple(_messages(items, reader.roles, text.slice(0, len(text.value)).span, chat))
    prompt = Prompt(messages, text.slice(0, 1).span, name=name, sent=True)
    defects = tuple(_thinking(tree)) if chat else ()
    return Template(prompt, chat, variables, defects, frozenset(reader.included))


def renders_roles(text: str) -> bool:
    """Whether a text holds the role markers of a chat."""
    return _ROLES.search(text) is not None


@record
class _Role:
    """A container of one role's text; a marker in the row of items."""

    role: str
    items: tuple[Item, ...]


def _messages(items: tuple[Item, ...], roles: dict[int, str], whole: Span, chat: bool) -> Iterator[Message]:
    """Messages of containers that name a role; one prompt where there are none."""
    loose: list[Item] = []
    for item in items:
        role = roles.get(id(item))
        if role is None or not isinstance(item, Choice):
            loose.append(item)
            continue
        if any(part.text is None or part.text.strip() for part in parts_of(tuple(loose))):
            yield Message("prompt", tuple(loose), whole)
        loose = []
        yield Message(role, item.options[0], whole)
    if loose and any(part.text is None or part.text.strip() for part in parts_of(tuple(loose))):
        yield Message("prompt", tuple(loose), whole)


_Value = tuple[Item, ...]


@dataclass(slots=True)
class _Reader:
    tree: TemplateTree
    bound: dict[str, _Value]
    path: tuple[str, ...] = ()
    library: Mapping[str, SourceFile] = field(default_factory=dict)
    included: set[str] = field(default_factory=set)
    macros: dict[str, nodes.Macro] = field(default_factory=dict)
    roles: dict[int, str] = field(default_factory=dict)
    steps: int = 0

    # -- statements --------------------------------------------------------------------------------------------------

    def body(self, statements: list[nodes.Node], depth: int) -> Iterator[Item]:
        for statement in statements:
            yield from self.statement(statement, depth)

    def statement(self, node: nodes.Node, depth: int) -> Iterator[Item]:
        from jinja2 import nodes

        self.steps += 1
        if depth > MAX_DEPTH or self.steps > MAX_STEPS:
            return
        match node:
            case nodes.Output():
                for child in node.nodes:
                    if isinstance(child, nodes.TemplateData):
                        if child.data:
                            yield static(child.data, self.tree.slice(child.lineno, child.lineno + len(child.data)))
                    else:
                        yield from self.entering(child, depth)
            case nodes.If():
                yield from self.branches(node, depth)
            case nodes.For():
                yield from self.loop(node, depth)
            case nodes.Assign():
                self.assign(node.target, self.value(node.node, depth))
            case nodes.AssignBlock():
                self.assign(node.target, tuple(self.body(node.body, depth + 1)))
            case nodes.Macro():
                self.macros[node.name] = node
            case nodes.Block():
                items = tuple(self.body(node.body, depth + 1))
                tag, _, role = node.name.partition(":")
                if role and tag in ("message", "chat"):
                    marker = Choice((items,))
                    self.roles[id(marker)] = role
                    yield marker
                else:
                    yield from items
            case nodes.CallBlock():
                yield from self.entering(node.call, depth)
                yield from self.body(node.body, depth + 1)
            case nodes.FilterBlock() | nodes.Scope() | nodes.ScopedEvalContextModifier():
                yield from self.body(node.body, depth + 1)
            case nodes.With():
                for target, value in zip(node.targets, node.values, strict=False):
                    self.assign(target, self.value(value, depth))
                yield from self.body(node.body, depth + 1)
            case nodes.Include():
                yield from self.include(node, depth)
            case _:
                return

    def branches(self, node: nodes.If, depth: int) -> Iterator[Item]:
        before = dict(self.bound)
        options: list[_Value] = []
        ends: list[dict[str, _Value]] = []
        bodies = [node.body, *(branch.body for branch in node.elif_), node.else_]
        for body in bodies:
            self.bound = dict(before)
            options.append(tuple(self.body(body, depth + 1)))
            ends.append(self.bound)
        self.bound = _merged(before, ends)
        written = [option for option in options if option]
        if len(written) == 1:
            yield from written[0]
        elif written:
            yield Choice(tuple(written))

    def include(self, node: nodes.Include, depth: int) -> Iterator[Item]:
        """What another template writes here, with what is set here."""
        from jinja2 import nodes

        named = node.template.value if isinstance(node.template, nodes.Const) else None
        file = self.library.get(named.rpartition("/")[2]) if isinstance(named, str) else None
        own = self.tree.text.span.file
        tree = parse_template(Text.of_span(Span(file, 0, len(file.text)))) if file not in (None, own) and file else None
        if tree is None or isinstance(tree, TemplateProblem) or depth > MAX_INCLUDES:
            yield Part(Kind.STATIC, Change.PROCESS, self.tree.span(node))
            return
        self.included.add(tree.text.span.path)
        inner = replace(self, tree=tree)
        yield from inner.body(tree.root.body, depth + 1)
        self.steps = inner.steps

    def loop(self, node: nodes.For, depth: int) -> Iterator[Item]:
        over = self.value(node.iter, depth)
        source = next((part for part in parts_of(over) if part.kind is not Kind.STATIC), None)
        if source is not None and source.kind is Kind.HISTORY:
            # the messages begin with the system text, unless the template took it off before
            yield Part(Kind.STATIC, Change.PROCESS, source.span, words="the messages")
        if source is not None and source.kind in (Kind.CUT, Kind.HISTORY):
            yield source
        one = (replace(source, kind=Kind.HISTORY, words="a message"),) if source and source.kind is Kind.CUT else over
        self.assign(node.target, one)
        yield from self.body(node.body, depth + 1)
        yield from self.body(node.else_, depth + 1)

    def assign(self, target: nodes.Node, value: _Value) -> None:
        from jinja2 import nodes

        match target:
            case nodes.Name():
                self.bound[target.name] = value
            case nodes.NSRef():
                self.bound[f"{target.name}.{target.attr}"] = value
            case nodes.Tuple():
                for item in target.items:
                    self.assign(item, value)
            case _:
                return

    # -- expressions -------------------------------------------------------------------------------------------------

    def entering(self, node: nodes.Node, depth: int) -> Iterator[Item]:
        """What an expression writes, each part at the place where it is written."""
        items = self.value(node, depth)
        if len(items) == 1 and isinstance(items[0], Part) and items[0].kind is not Kind.STATIC:
            yield items[0].at(self.tree.span(node))
        else:
            yield from items

    def value(self, node: nodes.Node, depth: int) -> _Value:
        from jinja2 import nodes

        self.steps += 1
        if depth > MAX_DEPTH or self.steps > MAX_STEPS:
            return ()
        match node:
            case nodes.Const():
                return (static(str(node.value), self.tree.span(node)),) if isinstance(node.value, str) else ()
            case nodes.TemplateData():
                return (static(node.data, self.tree.slice(node.lineno, node.lineno + len(node.data))),)
            case nodes.Name():
                return self.name(node)
            case nodes.Concat():
                return tuple(item for child in node.nodes for item in self.entering(child, depth + 1))
            case nodes.Add():
                return (*self.entering(node.left, depth + 1), *self.entering(node.right, depth + 1))
            case nodes.CondExpr():
                options = [self.value(node.expr1, depth + 1)]
                options += [self.value(node.expr2, depth + 1)] if node.expr2 is not None else []
                return _choice([option for option in options if option])
            case nodes.And() | nodes.Or():
                options = [self.value(child, depth + 1) for child in (node.left, node.right)]
                return _choice([option for option in options if option])
            case nodes.Filter():
                return self.filter(node, depth)
            case nodes.Call():
                return self.call(node, depth)
            case nodes.Getattr():
                return self.attribute(node, node.attr, depth)
            case nodes.Getitem():
                return self.item(node, depth)
            case nodes.List() | nodes.Tuple():
                return tuple(item for child in node.items for item in self.value(child, depth + 1))
            case _:
                return ()

    def name(self, node: nodes.Name) -> _Value:
        if node.name in self.bound:
            return self.bound[node.name]
        return self.named(node.name, node)

    def named(self, name: str, node: nodes.Node) -> _Value:
        span = self.tree.span(node)
        if name == "messages":
            return (Part(Kind.HISTORY, Change.SESSION, span, words="the messages"),)
        if name in ("bos_token", "eos_token", "add_generation_prompt", "loop", "caller", "namespace"):
            return ()
        if is_constant_name(name):
            return (Part(Kind.STATIC, Change.PROCESS, span),)
        meaning = meaning_of(name)
        if meaning is None:
            return (Part(Kind.UNKNOWN, Change.PROCESS, span),)
        words = f'{meaning.words} (the variable "{name}")'
        return (Part(meaning.kind, meaning.change, span, words=words, path=self.path, named=True),)

    def attribute(self, node: nodes.Getattr, attribute: str, depth: int) -> _Value:
        from jinja2 import nodes

        if isinstance(node.node, nodes.Name):
            dotted = f"{node.node.name}.{attribute}"
            if dotted in self.bound:
                return self.bound[dotted]
            if node.node.name not in self.bound and node.node.name in ("loop", "ns", "namespace"):
                return ()
        base = self.value(node.node, depth + 1)
        kinds = {part.kind for part in parts_of(base)}
        if kinds & {Kind.HISTORY, Kind.CLOCK, Kind.RETRIEVAL, Kind.MEDIA, Kind.CUT, Kind.TOOLS}:
            return base
        found = self.named(attribute, node)
        return found if found[:1] and getattr(found[0], "kind", None) is not Kind.UNKNOWN else base or found

    def item(self, node: nodes.Getitem, depth: int) -> _Value:
        from jinja2 import nodes

        base = self.value(node.node, depth + 1)
        history = next((part for part in parts_of(base) if part.kind is Kind.HISTORY), None)
        if isinstance(node.arg, nodes.Slice):
            start = node.arg.start
            if (
                history is not None
                and isinstance(start, nodes.Neg)
                and node.arg.stop is None
                and self._are_messages(node.node)
            ):
                words = f"only the last messages ({' '.join(self.tree.span(node).text.split())})"
                return (replace(history, kind=Kind.CUT, change=Change.REQUEST, words=words).at(self.tree.span(node)),)
            return base
        if isinstance(node.arg, nodes.Const):
            if history is not None and node.arg.value == 0:
                return (Part(Kind.STATIC, Change.PROCESS, self.tree.span(node), words="the system message"),)
            if isinstance(node.arg.value, str) and not base:
                return self.named(node.arg.value, node)
            if isinstance(node.arg.value, str) and history is None:
                found = self.named(node.arg.value, node)
                if all(part.kind is Kind.UNKNOWN for part in parts_of(base)):
                    return found
        return base

    def _are_messages(self, node: nodes.Expr) -> bool:
        """Whether what is cut is a list of messages, and no text inside one (``tool_call.id[-9:]``)."""
        from jinja2 import nodes

        name = node.attr if isinstance(node, nodes.Getattr) else node.arg if isinstance(node, nodes.Getitem) else None
        if name is None:
            return isinstance(node, nodes.Name | nodes.Filter)
        name = name.value if isinstance(name, nodes.Const) else name
        meaning = meaning_of(name) if isinstance(name, str) else None
        return name == "messages" or (meaning is not None and meaning.kind is Kind.HISTORY)

    def filter(self, node: nodes.Filter, depth: int) -> _Value:
        base = self.value(node.node, depth + 1) if node.node is not None else ()
        name = node.name
        clock = next((part for part in parts_of(base) if part.kind is Kind.CLOCK), None)
        form = _first_text(node.args)
        if name in ("random", "shuffle"):
            words = "a random choice"
            return (Part(Kind.RANDOM, Change.REQUEST, self.tree.span(node), words=words, path=self.path),)
        if name in ("length", "count", "int", "float", "abs", "round", "wordcount"):
            return ()
        if name in ("default", "d"):
            options = [base, *(self.value(argument, depth + 1) for argument in node.args[:1])]
            return _choice([option for option in options if option])
        if clock is not None and form is not None:
            change = strftime_change(form) if "%" in form else moment_change(form)
            return (_clock(change, self.tree.span(node), clock.origin, clock.path),)
        if clock is not None and name in ("date", "dateformat", "format_date", "to_date"):
            return (_clock(Change.DAY, self.tree.span(node), clock.origin, clock.path),)
        return base

    def call(self, node: nodes.Call, depth: int) -> _Value:
        from jinja2 import nodes

        span = self.tree.span(node)
        function = node.node
        if isinstance(function, nodes.Name):
            if function.name in self.macros and depth < MAX_DEPTH:
                return self.macro(self.macros[function.name], node, depth)
            return self.known_call(function.name, node, span)
        if isinstance(function, nodes.Getattr):
            base = self.value(function.node, depth + 1)
            root = function.node.name if isinstance(function.node, nodes.Name) else ""
            clock = next((part for part in parts_of(base) if part.kind is Kind.CLOCK), None)
            if function.attr in ("strftime", "format", "isoformat", "date", "to_date_string") and clock is not None:
                form = _first_text(node.args)
                if function.attr in ("date", "to_date_string"):
                    return (_clock(Change.DAY, span, clock.span, clock.path),)
                if form is not None:
                    change = strftime_change(form) if "%" in form else moment_change(form)
                    return (_clock(change, span, clock.span, clock.path),)
                return (_clock(clock.change, span, clock.span, clock.path),)
            if root in ("datetime", "date", "time", "timezone", "arrow", "pendulum", "uuid", "random") and (
                function.attr in _CLOCK_CALLS | _UUID or root == "random"
            ):
                return self.known_call(function.attr if root != "random" else "random", node, span)
            if function.attr in ("items", "values", "keys", "strip", "split", "rstrip", "lstrip", "replace", "title"):
                return base
            return base or self.known_call(function.attr, node, span)
        return ()

    def known_call(self, name: str, node: nodes.Call, span: Span) -> _Value:
        if name in ("raise_exception", "range", "namespace", "dict", "lipsum", "cycler", "joiner", "caller"):
            return ()
        if name in _UUID:
            return (Part(Kind.IDENTIFIER, Change.REQUEST, span, words="a new UUID", path=self.path),)
        if name in ("random", "randint", "choice", "rand"):
            return (Part(Kind.RANDOM, Change.REQUEST, span, words="a random value", path=self.path),)
        if name in _CLOCK_CALLS:
            form = _first_text(node.args)
            change = Change.DAY if name == "today" else Change.REQUEST
            if form is not None and "%" in form:
                change = strftime_change(form)
            return (_clock(change, span, None, self.path),)
        meaning = meaning_of_call(name)
        if meaning is None:
            return tuple(item for argument in node.args for item in self.value(argument, MAX_DEPTH))
        return (
            Part(meaning.kind, meaning.change, span, words=f"{meaning.words} ({name}())", path=self.path, named=True),
        )

    def macro(self, macro: nodes.Macro, call: nodes.Call, depth: int) -> _Value:
        before = dict(self.bound)
        for argument, passed in zip(macro.args, call.args, strict=False):
            self.bound[argument.name] = self.value(passed, depth + 1)
        for keyword in call.kwargs:
            self.bound[keyword.key] = self.value(keyword.value, depth + 1)
        items = tuple(self.body(macro.body, depth + 8))
        self.bound = before
        return items


def _clock(change: Change, span: Span, origin: Span | None, path: tuple[str, ...]) -> Part:
    if change is Change.NEVER:
        return Part(Kind.STATIC, Change.PROCESS, span)
    return Part(Kind.CLOCK, change, span, origin=origin, words=RESOLUTION_WORDS[change], path=path)


def _first_text(arguments: list[Any]) -> str | None:
    value = getattr(arguments[0], "value", None) if arguments else None
    return value if isinstance(value, str) else None


def _choice(options: list[_Value]) -> _Value:
    if len(options) < 2:
        return options[0] if options else ()
    return (Choice(tuple(options)),)


def _merged(before: dict[str, _Value], ends: list[dict[str, _Value]]) -> dict[str, _Value]:
    """Variables behind a branch: where its arms differ, one of their values."""
    merged = dict(before)
    for name in {name for end in ends for name in end}:
        values = list(dict.fromkeys(end[name] for end in ends if name in end))
        values = [value for value in values if value]
        merged[name] = values[0] if len(values) == 1 else _choice(values[:4]) if values else ()
    return merged


# -- turns that are rendered otherwise once they are history ---------------------------------------------------------


_EMPTY_THINKING: Final = re.compile(r"<think>\s*</think>")


def _thinking(tree: TemplateTree) -> Iterator[Defect]:
    """A reasoning block that opens the turn to be generated and is not rendered again when that turn is history."""
    from jinja2 import nodes

    opened: Span | None = None
    empty = False
    in_history = False
    splits = False
    for node, generation, loop in _texts(tree.root, False, False):
        if isinstance(node, nodes.Const | nodes.TemplateData):
            value = node.value if isinstance(node, nodes.Const) else node.data
            text = str(value)
            if "<think>" in text and generation:
                if opened is None:
                    opened = _inside(tree, node, text)
                empty = empty or _EMPTY_THINKING.search(text) is not None
            elif "<think>" in text and loop:
                in_history = True
            if "</think>" in text and loop and not generation:
                splits = True
    if opened is None or in_history:
        return
    if empty:
        yield Defect("history", opened, {"what": "the empty reasoning block"}, variant="think")
    elif splits:
        yield Defect("history", opened, {"what": "the reasoning"}, variant="think", mild=True)


def _inside(tree: TemplateTree, node: nodes.Node, text: str) -> Span:
    span = tree.span(node)
    written = span.file.text.find("<think>", span.start, max(span.end, span.start + len(text)))
    return Span(span.file, written, written + len("<think>")) if written >= 0 else span


def _texts(node: nodes.Node, generation: bool, loop: bool) -> Iterator[tuple[nodes.Node, bool, bool]]:
    """Texts that are written, each with whether only the generation prompt writes it and whether a loop does."""
    from jinja2 import nodes

    if isinstance(node, nodes.If):
        asked = any(name.name == "add_generation_prompt" for name in node.test.find_all(nodes.Name)) or (
            isinstance(node.test, nodes.Name) and node.test.name == "add_generation_prompt"
        )
        for child in node.body:
            yield from _texts(child, generation or asked, loop)
        for child in (*node.elif_, *node.else_):
            yield from _texts(child, generation, loop)
        return
    if isinstance(node, nodes.For):
        for child in (*node.body, *node.else_):
            yield from _texts(child, generation, True)
        return
    if isinstance(node, nodes.Compare | nodes.Test):
        return
    yield node, generation, loop
    for child in node.iter_child_nodes():
        yield from _texts(child, generation, loop)
