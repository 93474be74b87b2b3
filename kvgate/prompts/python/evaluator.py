"""Follows prompt-building code: what each expression is, and what is sent.

Statements are followed in order, branches one after the other, loops once; a function of the project is followed where
it is called, with the values it is called with. What cannot be followed is what its name says
(:mod:`kvgate.prompts.vocabulary`).

Every changing part remembers the functions and loops in which it was evaluated (its path): what is evaluated at import,
in ``__init__`` or before the loop of a conversation is the same for all requests that are sent inside.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kvgate.prompts.clock import RESOLUTION_WORDS, moment_change, prefix_change, seconds_change, strftime_change
from kvgate.prompts.part import Change, Item, Kind, Part, parts_of, static
from kvgate.prompts.python import chat
from kvgate.prompts.python.external import CACHES, LISTINGS, TEXT_METHODS, known_call, passes
from kvgate.prompts.python.placeholders import as_fine_as, fill, formatted, located
from kvgate.prompts.python.project import ModuleSource, Project
from kvgate.prompts.python.sinks import Sinks
from kvgate.prompts.python.values import (
    NOTHING,
    Class,
    Fields,
    Function,
    Instance,
    Method,
    Package,
    ProjectModule,
    Rows,
    Template,
    Value,
    Written,
    either,
    elements_of,
    entering,
    items_of,
    unknown,
    written,
)
from kvgate.prompts.vocabulary import (
    is_constant_name,
    is_history_name,
    meaning_of,
    meaning_of_call,
    words_of,
)
from kvgate.source.text import SourceFile, Span, Text

MAX_CALL_DEPTH: Final = 7
MAX_STEPS_PER_ROOT: Final = 40_000
MAX_STEPS: Final = 4_000_000
MAX_ITEMS: Final = 400
MAX_UNROLLED: Final = 12

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_CONFIGURATION: Final = frozenset({"settings", "config", "cfg", "conf", "constants", "env", "configuration", "args"})
_KNOWN_PACKAGES: Final = frozenset({"datetime", "time", "uuid", "random", "date", "json", "os", "timezone", "secrets"})
_SESSION_STARTS: Final = frozenset(
    {"start", "new", "create", "open", "begin", "reset", "init", "setup", "initialize", "on"}
)
_SESSIONS: Final = frozenset({"session", "conversation", "chat", "thread", "dialog", "dialogue", "startup", "call"})
_INPUTS: Final = frozenset(
    {
        "input",
        "receive",
        "receive_text",
        "receive_json",
        "recv",
        "readline",
        "prompt_ask",
        "ask",
        "get_message",
        "prompt",
    }
)


@dataclass(slots=True, eq=False)
class Frame:
    """One activation of a function, or a module's body.

    Attributes:
        path: see :attr:`kvgate.prompts.part.Part.path`.
        definitions: the expression that a local name was last assigned.
        conditions: tests of the branches around the statement.
        earlier: names that run over a history without its end.
        unordered: loops around the statement that run in no stable order.
        place: where everything stands that is evaluated now (inside an f-string).
    """

    module: ModuleSource
    path: tuple[str, ...]
    names: dict[str, Value] = field(default_factory=dict)
    owner: Instance | None = None
    closure: Frame | None = None
    returns: list[Value] = field(default_factory=list)
    yields: list[Value] = field(default_factory=list)
    definitions: dict[str, ast.expr] = field(default_factory=dict)
    conditions: list[ast.expr] = field(default_factory=list)
    earlier: set[str] = field(default_factory=set)
    unordered: list[Part] = field(default_factory=list)
    place: Span | None = None
    target: str = ""
    node: FunctionNode | ast.Lambda | None = None


class BudgetError(Exception):
    """A root took too many steps; what was found until then counts."""


class Evaluator:
    """Follows the code of a project and hands what is sent to the sinks."""

    def __init__(self, project: Project, sinks: Sinks, templates: Mapping[str, SourceFile] | None = None) -> None:
        self.project = project
        self.sinks = sinks
        self.templates = templates or {}
        self.rendered: set[tuple[str, int]] = set()
        self.followed: set[int] = set()
        self.exhausted = 0
        self._globals: dict[str, dict[str, Value]] = {}
        self._instances: dict[int, Instance] = {}
        self._stack: list[int] = []
        self._steps = 0
        self._limit = MAX_STEPS_PER_ROOT

    # -- roots -------------------------------------------------------------------------------------------------------

    def globals_of(self, module: ModuleSource) -> dict[str, Value]:
        """The names of a module, evaluated as an import does."""
        known = self._globals.get(module.file.path)
        if known is None:
            known = self._globals[module.file.path] = {}
            tree = module.parse()
            if tree is not None:
                frame = Frame(module, (), names=known)
                self._guarded(lambda: self.block(tree.body, frame))
        return known

    def root(self, module: ModuleSource, node: FunctionNode, cls: ast.ClassDef | None) -> None:
        """Follow a function that nothing in sight calls; its parameters are what their names say."""
        self.globals_of(module)
        owner = self.instance(Class(cls, module)) if cls is not None else None
        path = (
            () if _runs_once(node) or _starts_session(node.name) else (f"{module.file.path}:{node.name}:{node.lineno}",)
        )
        self._guarded(lambda: self._function(Function(node, module, owner), [], {}, path, None))

    def _guarded(self, follow: Callable[[], object]) -> None:
        limit, stack = self._limit, list(self._stack)
        self._limit = min(self._steps + MAX_STEPS_PER_ROOT, MAX_STEPS)
        try:
            follow()
        except (BudgetError, RecursionError):
            self.exhausted += 1
        finally:
            self._limit = max(limit, self._steps + 1)
            self._stack[:] = stack

    def _step(self) -> None:
        self._steps += 1
        if self._steps > self._limit:
            raise BudgetError

    # -- functions and objects ---------------------------------------------------------------------------------------

    def instance(self, cls: Class) -> Instance:
        """The object that stands for all of a class; what ``__init__`` sets is set once."""
        known = self._instances.get(id(cls.node))
        if known is not None:
            return known
        found = self._instances[id(cls.node)] = Instance(cls)
        for base in cls.node.bases:
            parent = self._class_of(base, cls.module)
            if parent is not None and parent.node is not cls.node:
                found.attributes.update(self.instance(parent).attributes)
        frame = Frame(cls.module, (), owner=found, names={})
        for statement in cls.node.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                value = self.expression(statement.value, frame)
                for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                    if isinstance(target, ast.Name):
                        found.attributes[target.id] = value
        for name in ("__init__", "__post_init__", "setup", "on_start", "__aenter__", "__enter__"):
            method = _method(cls.node, name)
            if method is not None:
                self.followed.add(id(method))
                self._function(Function(method, cls.module, found), [], {}, (), None)
        found.ready = True
        return found

    def _class_of(self, base: ast.expr, module: ModuleSource) -> Class | None:
        value: Value | None = None
        if isinstance(base, ast.Name):
            value = self.globals_of(module).get(base.id)
        return value if isinstance(value, Class) else None

    def _function(
        self,
        function: Function,
        args: list[Value],
        kwargs: dict[str, Value],
        path: tuple[str, ...],
        call: ast.Call | None,
    ) -> Value:
        node = function.node
        if id(node) in self._stack or len(self._stack) >= MAX_CALL_DEPTH:
            return NOTHING
        self._stack.append(id(node))
        try:
            frame = Frame(function.module, path, owner=function.owner, closure=function.closure, node=node)
            self._bind(function, args, kwargs, frame)
            if isinstance(node, ast.Lambda):
                return self.expression(node.body, frame)
            self.block(node.body, frame)
            if frame.yields and not frame.returns:
                return Rows(frame.yields, function.module.places.span(node))
            result = either(frame.returns) if frame.returns else NOTHING
            self.sinks.returned(node, result, frame.path, function.module)
            return result
        finally:
            self._stack.pop()

    def _bind(self, function: Function, args: list[Value], kwargs: dict[str, Value], frame: Frame) -> None:
        arguments = function.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults: dict[str, ast.expr] = {}
        defaults.update(
            (argument.arg, default)
            for argument, default in zip(reversed(positional), reversed(arguments.defaults), strict=False)
        )
        for keyword, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=False):
            if keyword_default is not None:
                defaults[keyword.arg] = keyword_default
        if function.owner is not None and positional and not _is_static(function.node):
            frame.names[positional[0].arg] = function.owner
            positional = positional[1:]
        given = dict(zip((argument.arg for argument in positional), args, strict=False))
        given.update(kwargs)
        for argument in (*positional, *arguments.kwonlyargs):
            name = argument.arg
            value = given.pop(name, None)
            named = self._parameter(argument, frame, function)
            if value is None:
                default = defaults.get(name)
                # a default is evaluated once, when the function is defined
                outer = Frame(function.module, (), names=dict(self._globals.get(function.module.file.path, {})))
                value = self.expression(default, outer) if default is not None else None
                plain = isinstance(value, Written) and (not value.items or value.text is not None)
                if value is None or (plain and isinstance(named, Written) and named.first(*_TELLING)):
                    value = named
            elif isinstance(value, Written) and all(part.kind is Kind.UNKNOWN for part in parts_of(value.items)):
                value = named
            frame.names[name] = value
        if arguments.vararg is not None:
            frame.names[arguments.vararg.arg] = Rows(args[len(positional) :])
        if arguments.kwarg is not None:
            frame.names[arguments.kwarg.arg] = Fields(given, literal=False)

    def _parameter(self, argument: ast.arg, frame: Frame, function: Function) -> Value:
        """What a parameter is by its name and annotation."""
        span = function.module.places.span(argument)
        annotation = _annotation(argument.annotation)
        if argument.arg in ("self", "cls"):
            return NOTHING
        meaning = meaning_of(argument.arg)
        if annotation in ("int", "float", "bool") and (meaning is None or meaning.kind not in _NUMBERS):
            return unknown(span)
        if annotation in ("datetime", "datetime.datetime"):
            words = f'{RESOLUTION_WORDS[Change.REQUEST]} (the parameter "{argument.arg}")'
            return written(Part(Kind.CLOCK, Change.REQUEST, span, words=words, path=frame.path, named=True))
        if meaning is None:
            return unknown(span)
        if meaning.kind is Kind.CLOCK and annotation in ("date", "datetime.date"):
            meaning = replace(meaning, change=Change.DAY, words=RESOLUTION_WORDS[Change.DAY])
        words = f'{meaning.words} (the parameter "{argument.arg}")'
        return written(Part(meaning.kind, meaning.change, span, words=words, path=frame.path, named=True))

    # -- statements --------------------------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt], frame: Frame) -> bool:
        """Follow statements; whether they end in a return, raise, break or continue."""
        return any(self.statement(statement, frame) for statement in body)

    def statement(self, node: ast.stmt, frame: Frame) -> bool:
        self._step()
        match node:
            case ast.Assign():
                frame.target = _source(node.targets[0])
                value = self.expression(node.value, frame)
                for target in node.targets:
                    self.assign(target, value, node.value, frame)
                frame.target = ""
            case ast.AnnAssign():
                if node.value is not None:
                    self.assign(node.target, self.expression(node.value, frame), node.value, frame)
            case ast.AugAssign():
                self.augment(node, frame)
            case ast.Expr():
                if isinstance(node.value, ast.Yield) and node.value.value is not None:
                    frame.yields.append(self.expression(node.value.value, frame))
                else:
                    self.expression(node.value, frame)
            case ast.Return():
                if node.value is not None:
                    frame.returns.append(self.expression(node.value, frame))
                return True
            case ast.Raise() | ast.Break() | ast.Continue():
                return True
            case ast.If():
                return self.branch(node, frame)
            case ast.For() | ast.AsyncFor():
                self.loop(node, frame)
            case ast.While():
                self.while_loop(node, frame)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    value = self.expression(item.context_expr, frame)
                    if item.optional_vars is not None:
                        self.assign(item.optional_vars, value, item.context_expr, frame)
                return self.block(node.body, frame)
            case ast.Try() | ast.TryStar():
                return self.attempt(node, frame)
            case ast.Match():
                self.expression(node.subject, frame)
                for case in node.cases:
                    self.block(case.body, frame)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                closure = frame if frame.node is not None else None
                frame.names[node.name] = Function(node, frame.module, None, closure)
            case ast.ClassDef():
                frame.names[node.name] = Class(node, frame.module)
            case ast.Import() | ast.ImportFrom():
                self.imports(node, frame)
            case ast.Delete():
                for target in node.targets:
                    self.delete(target, node, frame)
            case _:
                pass
        return False

    def imports(self, node: ast.Import | ast.ImportFrom, frame: Frame) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                module = self.project.find(alias.name, frame.module) if alias.asname or "." not in alias.name else None
                dotted = alias.name if alias.asname else name
                frame.names[name] = ProjectModule(module) if module is not None else Package(dotted)
            return
        source = node.module or ""
        module = (
            self.project.relative(node.level, source, frame.module)
            if node.level
            else self.project.find(source, frame.module)
        )
        for alias in node.names:
            name = alias.asname or alias.name
            below = (
                self.project.relative(node.level, f"{source}.{alias.name}".lstrip("."), frame.module)
                if node.level
                else self.project.find(f"{source}.{alias.name}", frame.module)
            )
            if below is not None and (module is None or alias.name not in module.functions):
                frame.names[name] = ProjectModule(below)
            elif module is not None and module is not frame.module:
                value = self.globals_of(module).get(alias.name)
                frame.names[name] = value if value is not None else Package(f"{source}.{alias.name}")
            else:
                frame.names[name] = Package(f"{source}.{alias.name}")

    def branch(self, node: ast.If, frame: Frame) -> bool:
        self.expression(node.test, frame)
        if _is_main_guard(node.test):
            inner = Frame(frame.module, ("__main__",), names=frame.names)
            self.block(node.body, inner)
            return False
        if _is_type_checking(node.test):
            return self.block(node.body, frame)
        outer = frame.path
        before = dict(frame.names)
        if _asked_once(node, frame):
            frame.path = ()
        frame.conditions.append(node.test)
        ended = self.block(node.body, frame)
        after_body = frame.names
        frame.path = outer
        frame.names = dict(before)
        ended_else = self.block(node.orelse, frame)
        frame.conditions.pop()
        after_else = frame.names
        if ended and not ended_else:
            merged = after_else
        elif ended_else and not ended:
            merged = after_body
        else:
            merged = _merge(after_body, after_else)
        self._rebind(frame, merged)
        return ended and ended_else and bool(node.orelse)

    def _rebind(self, frame: Frame, names: dict[str, Value]) -> None:
        """Give a frame its names; a module's names stay in the one dictionary that others look into."""
        known = self._globals.get(frame.module.file.path)
        if frame.node is None and frame.owner is None and known is not None:
            known.clear()
            known.update(names)
            frame.names = known
        else:
            frame.names = names

    def attempt(self, node: ast.Try | ast.TryStar, frame: Frame) -> bool:
        ended = self.block(node.body, frame)
        for handler in node.handlers:
            before = dict(frame.names)
            gone = self.block(handler.body, frame)
            self._rebind(frame, before if gone or ended else _merge(before, frame.names))
        if not ended:
            ended = self.block(node.orelse, frame)
        return self.block(node.finalbody, frame) or (ended and not node.handlers)

    def loop(self, node: ast.For | ast.AsyncFor, frame: Frame) -> None:
        over = self.expression(node.iter, frame)
        outer = frame.path
        before = dict(frame.names)
        if self._counts(node, frame):
            frame.path = (*outer, f"for:{node.lineno}")
        unordered = _unordered(over)
        if unordered is not None:
            frame.unordered.append(unordered)
        names = {name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)}
        if _without_end(node.iter, frame):
            frame.earlier |= names
        elements = over.elements if isinstance(over, Rows) else []
        if 0 < len(elements) <= MAX_UNROLLED and unordered is None and not over_messages(elements):
            for element in elements:
                self.assign(node.target, element, None, frame)
                if self.block(node.body, frame):
                    break
        else:
            self.assign(node.target, self.element(over, node.iter, frame), None, frame)
            self.block(node.body, frame)
        frame.earlier -= names
        if unordered is not None:
            frame.unordered.pop()
        frame.path = outer
        self.block(node.orelse, frame)
        self._rebind(frame, {**before, **frame.names})

    def while_loop(self, node: ast.While, frame: Frame) -> None:
        self.expression(node.test, frame)
        outer = frame.path
        if self._counts(node, frame):
            frame.path = (*outer, f"while:{node.lineno}")
        frame.conditions.append(node.test)
        self.block(node.body, frame)
        frame.conditions.pop()
        frame.path = outer
        self.block(node.orelse, frame)

    def _counts(self, node: ast.For | ast.AsyncFor | ast.While, frame: Frame) -> bool:
        """Whether a loop runs over requests or turns: what is evaluated before it is then the same for all of them.

        The loop of an agent, which sends one request again and again with what tools answered, is none.
        """
        if any(_reads_input(below) for below in ast.walk(node)):
            return True
        if isinstance(node, ast.While):
            return frame.node is None
        if isinstance(node.iter, ast.Call) and _name(node.iter.func) in ("range", "count", "trange"):
            return frame.node is None or not _has_parameters(frame.node)
        return True

    def delete(self, target: ast.expr, node: ast.Delete, frame: Frame) -> None:
        if not isinstance(target, ast.Subscript):
            return
        base = self.expression(target.value, frame)
        if not self._is_history(base, target.value):
            return
        index = target.slice
        front = isinstance(index, ast.Constant) and index.value in (0, 1)
        if isinstance(index, ast.Slice) and not _negative(index.lower):
            stop = index.upper
            start = index.lower.value if isinstance(index.lower, ast.Constant) else 0
            front = stop is not None and not _negative(stop)
            if isinstance(stop, ast.Constant) and isinstance(stop.value, int) and isinstance(start, int):
                front = front and stop.value - start < chat.STRIDE_MESSAGES
        if front:
            self.sinks.rewritten(frame.module.places.span(node), "the oldest messages are dropped", frame.module)

    # -- assignments -------------------------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: Value, source: ast.expr | None, frame: Frame) -> None:
        match target:
            case ast.Name():
                if source is not None:
                    frame.definitions[target.id] = source
                frame.names[target.id] = value
                self.sinks.assigned(target.id, value, frame.path, frame.module, self.span(target, frame))
            case ast.Attribute():
                owner = self.expression(target.value, frame)
                if isinstance(owner, Instance):
                    known = owner.attributes.get(target.attr)
                    owner.attributes[target.attr] = value if known is None or owner.ready else either([known, value])
                elif isinstance(owner, Fields):
                    owner.entries[target.attr] = value
                self.sinks.assigned(target.attr, value, frame.path, frame.module, self.span(target, frame))
                if target.attr == "content":
                    self.content(target.value, owner, value, target, source, frame)
            case ast.Subscript():
                self.assign_item(target, value, source, frame)
            case ast.Tuple() | ast.List():
                elements = value.elements if isinstance(value, Rows) else []
                for index, inner in enumerate(target.elts):
                    self.assign(inner, elements[index] if index < len(elements) else value, None, frame)
            case ast.Starred():
                self.assign(target.value, value, None, frame)
            case _:
                pass

    def assign_item(self, target: ast.Subscript, value: Value, source: ast.expr | None, frame: Frame) -> None:
        base = self.expression(target.value, frame)
        key = target.slice.value if isinstance(target.slice, ast.Constant) else None
        if isinstance(base, Fields):
            if isinstance(key, str):
                base.entries[key] = value
                base.keys[key] = self.span(target, frame)
            else:
                base.others.append(value)
                base.literal = False
            if frame.unordered:
                base.unordered = frame.unordered[-1]
        elif isinstance(base, Rows) and isinstance(key, int) and -len(base.elements) <= key < len(base.elements):
            base.elements[key] = value
        if key == "content":
            self.content(target.value, base, value, target, source, frame)
        if key == "cache_salt":
            self.sinks.salt(value, self.span(source or target, frame), frame.path)
        if isinstance(key, str):
            self.sinks.assigned(key, value, frame.path, frame.module, self.span(target, frame))

    def content(
        self,
        message: ast.expr,
        base: Value,
        value: Value,
        target: ast.expr,
        source: ast.expr | None,
        frame: Frame,
    ) -> None:
        """``message["content"] = value``: the system message of a request is rewritten, or an earlier turn is."""
        span = self.span(source if source is not None else target, frame)
        if isinstance(message, ast.Name) and message.id in frame.earlier:
            if not chat.reads(source, message.id) or chat.cuts(source):
                self.sinks.rewritten(span, "an earlier message is replaced", frame.module, "compaction")
            return
        if any(_counts_from_end(test) for test in frame.conditions) and self._is_history(base, message):
            self.sinks.rewritten(span, "an earlier message is replaced", frame.module, "compaction")
            return
        first = (
            isinstance(message, ast.Subscript) and isinstance(message.slice, ast.Constant) and message.slice.value == 0
        )
        named = isinstance(message, ast.Name) and bool(set(words_of(message.id)) & {"system", "sys"})
        asked = any(_mentions_system(test) for test in frame.conditions)
        if isinstance(base, Fields):
            return  # a message that is written out in sight is judged with its list
        if first or named or asked:
            self.sinks.system_rewritten(entering(value, span), span, frame.path)

    def augment(self, node: ast.AugAssign, frame: Frame) -> None:
        value = self.expression(node.value, frame)
        target = node.target
        if not isinstance(node.op, ast.Add):
            return
        current = self.expression(_load(target), frame)
        if isinstance(current, Rows):
            current.elements += value.elements if isinstance(value, Rows) else [value]
            if frame.unordered or _unordered(value) is not None:
                current.unordered = _unordered(value) or frame.unordered[-1]
            self.sinks.grown(current)
            return
        added = entering(value, self.span(node.value, frame))
        if frame.unordered and isinstance(current, Written):
            added = (frame.unordered[-1], *added)
        if isinstance(target, ast.Attribute | ast.Subscript) and _is_content(target) and isinstance(current, Written):
            whole = (
                current if current.items else Written((Part(Kind.STATIC, Change.PROCESS, self.span(target, frame)),))
            )
            self.assign(target, _concat(whole.items, added), node.value, frame)
            return
        self.assign(target, _concat(items_of(current), added), None, frame)

    # -- expressions -------------------------------------------------------------------------------------------------

    def span(self, node: ast.expr | ast.stmt, frame: Frame) -> Span:
        return frame.place or frame.module.places.span(node)

    def expression(self, node: ast.expr, frame: Frame) -> Value:
        self._step()
        match node:
            case ast.Constant():
                if isinstance(node.value, str):
                    return written(static(node.value, self.span(node, frame))) if node.value else NOTHING
                if isinstance(node.value, int | float) and not isinstance(node.value, bool):
                    return written(static(str(node.value), self.span(node, frame)))
                return NOTHING
            case ast.JoinedStr():
                return self.f_string(node, frame)
            case ast.Name():
                return self.name(node, frame)
            case ast.Attribute():
                return self.attribute(node, frame)
            case ast.Subscript():
                return self.subscript(node, frame)
            case ast.Call():
                return self.call(node, frame)
            case ast.BinOp():
                return self.operation(node, frame)
            case ast.BoolOp():
                return either([self.expression(value, frame) for value in node.values])
            case ast.IfExp():
                self.expression(node.test, frame)
                return either([self.expression(node.body, frame), self.expression(node.orelse, frame)])
            case ast.Await():
                return self.expression(node.value, frame)
            case ast.NamedExpr():
                value = self.expression(node.value, frame)
                self.assign(node.target, value, node.value, frame)
                return value
            case ast.List() | ast.Tuple():
                return self.rows(node, frame)
            case ast.Set():
                rows = Rows([self.expression(element, frame) for element in node.elts], self.span(node, frame))
                if len(node.elts) > 1:
                    rows.unordered = _set_part(self.span(node, frame))
                return rows
            case ast.Dict():
                return self.fields(node, frame)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                return self.comprehension(node, frame)
            case ast.Lambda():
                return Function(node, frame.module, None, frame)
            case ast.Starred():
                return self.expression(node.value, frame)
            case ast.UnaryOp():
                value = self.expression(node.operand, frame)
                return value if not isinstance(node.op, ast.Not) else NOTHING
            case ast.Compare():
                for operand in (node.left, *node.comparators):
                    self.expression(operand, frame)
                return NOTHING
            case ast.Yield() | ast.YieldFrom():
                if node.value is not None:
                    frame.yields.append(self.expression(node.value, frame))
                return NOTHING
            case _:
                return unknown(self.span(node, frame))

    def f_string(self, node: ast.JoinedStr, frame: Frame) -> Value:
        inside = frame.module.places.f_string(node) if frame.place is None else None
        fields = [value for value in node.values if isinstance(value, ast.FormattedValue)]
        placed = inside is not None and len(inside.expressions) == len(fields)
        items: list[Item] = []
        index = 0
        outer = frame.place
        for value in node.values:
            if isinstance(value, ast.Constant):
                text = str(value.value)
                span = self.span(node, frame)
                if placed and inside is not None:
                    literal = frame.module.places.literal(inside.literals[index], text)
                    span = literal.span
                items.append(static(text, span))
            elif isinstance(value, ast.FormattedValue):
                if placed and inside is not None:
                    frame.place = inside.expressions[index]
                elif outer is None:
                    frame.place = frame.module.places.span(node)
                span = frame.place or self.span(node, frame)
                written_items = entering(self.expression(value.value, frame), span)
                items += formatted(written_items, _constant_text(value.format_spec))
                frame.place = outer
                index += 1
        return Written(tuple(items[:MAX_ITEMS]))

    def name(self, node: ast.Name, frame: Frame) -> Value:
        found = self.lookup(node.id, frame)
        if found is not None:
            return found
        if node.id in _KNOWN_PACKAGES:
            return Package(node.id)
        return self.named(node.id, node, frame)

    def lookup(self, name: str, frame: Frame) -> Value | None:
        if name in frame.names:
            return frame.names[name]
        if frame.closure is not None:
            return self.lookup(name, frame.closure)
        return self.globals_of(frame.module).get(name)

    def named(self, name: str, node: ast.expr, frame: Frame, noun: str = "") -> Written:
        """What a name says that nothing else is known of."""
        span = self.span(node, frame)
        if is_constant_name(name):
            return written(Part(Kind.STATIC, Change.PROCESS, span))
        meaning = meaning_of(name)
        if meaning is None:
            return unknown(span)
        words = f'{meaning.words} ({noun or "the name"} "{name}")'
        return written(Part(meaning.kind, meaning.change, span, words=words, path=frame.path, named=True))

    def attribute(self, node: ast.Attribute, frame: Frame) -> Value:
        base = self.expression(node.value, frame)
        span = self.span(node, frame)
        match base:
            case Instance():
                return self.member(base, node.attr, node, frame)
            case Package():
                return Package(f"{base.dotted}.{node.attr}")
            case ProjectModule():
                found = self.globals_of(base.source).get(node.attr)
                return found if found is not None else self.named(node.attr, node, frame)
            case Class():
                method = _method(base.node, node.attr)
                if method is not None:
                    return Function(method, base.module, self.instance(base) if not _is_static(method) else None)
                return self.member(self.instance(base), node.attr, node, frame)
            case Fields():
                return base.entries.get(node.attr) or Method(base, node.attr, NOTHING)
            case Written():
                if isinstance(node.value, ast.Name) and set(words_of(node.value.id)) & _CONFIGURATION:
                    return written(Part(Kind.STATIC, Change.PROCESS, span))
                return self.part_of(base, node.attr, node, frame)
            case _:
                return Method(base, node.attr, NOTHING)

    def member(self, owner: Instance, name: str, node: ast.expr, frame: Frame) -> Value:
        """An attribute of an object of the project."""
        if name in owner.attributes:
            return owner.attributes[name]
        method = self._find_method(owner.cls, name)
        if method is not None:
            function, cls = method
            decorators = _decorators(function)
            bound = Function(function, cls.module, owner)
            if decorators & {"property", "cached_property", "computed_field"}:
                self.followed.add(id(function))
                path = () if decorators & CACHES else frame.path
                return self._function(bound, [], {}, path, None)
            return bound
        for assigning in _assigning(owner.cls.node, name):
            if id(assigning) not in self._stack and assigning.name not in ("__init__",):
                path = (
                    ()
                    if _starts_session(assigning.name) or _runs_once(assigning)
                    else (f"{owner.cls.module.file.path}:{assigning.name}:{assigning.lineno}",)
                )
                owner.attributes[name] = NOTHING
                self._function(Function(assigning, owner.cls.module, owner), [], {}, path, None)
                return owner.attributes[name]
        meaning = meaning_of(name)
        if meaning is not None and meaning.kind in (Kind.CLOCK, Kind.IDENTIFIER, Kind.RANDOM, Kind.COUNTER):
            return unknown(self.span(node, frame))  # set somewhere else, and who knows when
        return self.named(name, node, frame, "the attribute")

    def _find_method(self, cls: Class, name: str, depth: int = 0) -> tuple[FunctionNode, Class] | None:
        method = _method(cls.node, name)
        if method is not None:
            return method, cls
        for base in cls.node.bases if depth < 5 else []:
            parent = self._class_of(base, cls.module)
            if parent is not None:
                found = self._find_method(parent, name, depth + 1)
                if found is not None:
                    return found
        return None

    def part_of(self, base: Written, name: str, node: ast.expr, frame: Frame) -> Value:
        """An attribute or item of something that is known only as what it writes."""
        span = self.span(node, frame)
        part = base.single or base.first(Kind.CLOCK, Kind.UNORDERED, Kind.HISTORY, Kind.RETRIEVAL, Kind.USER)
        if part is None:
            return self.named(name, node, frame) if not base.items else base
        if part.kind is Kind.CLOCK:
            fine = {"year": Change.DAY, "month": Change.DAY, "day": Change.DAY, "hour": Change.HOUR}
            fine |= {"minute": Change.MINUTE, "weekday": Change.DAY, "day_of_week": Change.DAY}
            return written(as_fine_as(part, fine.get(name, Change.REQUEST)).at(span))
        if part.kind is Kind.UNORDERED or part.kind is Kind.CUT:
            return base
        if part.kind is Kind.STATIC and part.text is None:
            return base if not is_history_name(name) else self.named(name, node, frame, "the field")
        found = self.named(name, node, frame, "the field")
        known = found.single
        if known is not None and known.kind is not Kind.UNKNOWN:
            if part.kind in (Kind.RETRIEVAL, Kind.HISTORY, Kind.MEDIA) and known.kind in (Kind.INPUT, Kind.STATIC):
                return written(replace(part, span=span, origin=part.origin or part.span))
            return found
        if part.kind in (Kind.USER, Kind.RETRIEVAL, Kind.MEDIA, Kind.INPUT, Kind.HISTORY, Kind.RANDOM, Kind.TOOLS):
            return written(replace(part, span=span, origin=part.origin or part.span))
        return found

    def subscript(self, node: ast.Subscript, frame: Frame) -> Value:
        base = self.expression(node.value, frame)
        if isinstance(node.slice, ast.Slice):
            return self.sliced(node, base, node.slice, frame)
        key = node.slice.value if isinstance(node.slice, ast.Constant) else _negative_number(node.slice)
        if key is None:
            self.expression(node.slice, frame)
        match base:
            case Fields():
                if isinstance(key, str):
                    return base.entries.get(key) or self.named(key, node, frame, "the key")
                return either(base.others) if base.others else unknown(self.span(node, frame))
            case Rows():
                if isinstance(key, int) and -len(base.elements) <= key < len(base.elements):
                    return base.elements[key]
                return self.element(base, node, frame)
            case Package():
                return written(Part(Kind.STATIC, Change.PROCESS, self.span(node, frame)))
            case Written():
                if base.first(Kind.HISTORY) and isinstance(key, int):
                    if key == 0:
                        words = "the system message"
                        return written(Part(Kind.STATIC, Change.PROCESS, self.span(node, frame), words=words))
                    words = "a message"
                    return written(Part(Kind.INPUT, Change.REQUEST, self.span(node, frame), words=words))
                if isinstance(key, str):
                    if isinstance(node.value, ast.Name) and set(words_of(node.value.id)) & _CONFIGURATION:
                        return written(Part(Kind.STATIC, Change.PROCESS, self.span(node, frame)))
                    return self.part_of(base, key, node, frame)
                return base
            case Class() | Function() | Method():
                return base  # a generic in brackets
            case _:
                return unknown(self.span(node, frame))

    def sliced(self, node: ast.Subscript, base: Value, index: ast.Slice, frame: Frame) -> Value:
        if isinstance(base, Written) and base.first(Kind.CLOCK):
            clock = base.first(Kind.CLOCK)
            stop = index.upper.value if isinstance(index.upper, ast.Constant) else None
            if clock is not None and index.lower is None and isinstance(stop, int) and stop > 0:
                return written(as_fine_as(clock, prefix_change(stop)))
            return base
        if self._is_history(base, node.value) and self._drops_front(node, index, frame):
            span = self.span(node, frame)
            shown = " ".join(span.text.split())
            words = f"only the last messages ({shown if len(shown) <= 40 else shown[:37] + '...'})"
            cut = Part(Kind.CUT, Change.REQUEST, span, words=words, path=frame.path)
            return written(cut)
        if isinstance(base, Rows):
            low = index.lower.value if isinstance(index.lower, ast.Constant) else 0
            high = index.upper.value if isinstance(index.upper, ast.Constant) else None
            if isinstance(low, int) and (high is None or isinstance(high, int)) and index.step is None:
                kept = base.elements[low:high] if index.upper is None or high is not None else base.elements
                return Rows(list(kept), base.span, base.unordered)
            return Rows(list(base.elements), base.span, base.unordered)
        return base

    def _is_history(self, value: Value, node: ast.expr) -> bool:
        if isinstance(value, Written):
            return value.first(Kind.HISTORY, Kind.CUT) is not None
        if isinstance(value, Rows):
            if any(chat.is_message(element) for element in value.elements):
                return True
            if any(isinstance(element, Written) and element.first(Kind.HISTORY) for element in value.elements):
                return True
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            return bool(name) and is_history_name(name) and not value.elements
        return False

    def _drops_front(self, node: ast.Subscript, index: ast.Slice, frame: Frame) -> bool:
        """Whether a slice moves its beginning with each turn: a fixed number from the end, in no strides."""
        lower = index.lower
        if lower is None or index.upper is not None:
            return False
        defined = frame.definitions.get(lower.id) if isinstance(lower, ast.Name) else lower
        moving = _negative(lower)
        if not moving and defined is not None:
            moving = _from_length(defined) and not _in_strides(defined)
        if moving and _in_strides(defined if defined is not None else lower):
            moving = False
        if not moving:
            return False
        return not self._rare(node, lower, frame)

    def _rare(self, node: ast.Subscript, lower: ast.expr, frame: Frame) -> bool:
        """Whether the front is dropped in large strides: ``if len(history) > 200: history = history[-50:]``."""
        subject = _source(node.value)
        if frame.target != subject:
            return False  # cut anew for each request, whatever was kept
        kept = lower.operand if isinstance(lower, ast.UnaryOp) else lower
        for test in frame.conditions:
            limit = _limit_of(test, subject)
            if limit is None:
                continue
            if isinstance(limit, ast.Constant) and isinstance(kept, ast.Constant):
                low, high = kept.value, limit.value
                if isinstance(low, int | float) and isinstance(high, int | float):
                    return high - low >= chat.STRIDE_MESSAGES
            return _source(limit) != _source(kept)
        return False

    def element(self, value: Value, node: ast.expr, frame: Frame) -> Value:
        """What a loop over a value gives."""
        match value:
            case Rows():
                return either(list(value.elements)) if value.elements else unknown(self.span(node, frame))
            case Fields():
                return unknown(self.span(node, frame))
            case Written():
                part = value.first(
                    Kind.HISTORY, Kind.RETRIEVAL, Kind.MEDIA, Kind.USER, Kind.INPUT, Kind.CUT, Kind.TOOLS
                )
                if part is not None:
                    kind = Kind.HISTORY if part.kind is Kind.CUT else part.kind
                    return written(replace(part, kind=kind, path=frame.path))
                if value.first(Kind.UNORDERED):
                    return unknown(self.span(node, frame))
                return value
            case _:
                return unknown(self.span(node, frame))

    def rows(self, node: ast.List | ast.Tuple, frame: Frame) -> Rows:
        rows = Rows([], self.span(node, frame))
        for element in node.elts:
            value = self.expression(element, frame)
            if isinstance(element, ast.Starred):
                if isinstance(value, Rows):
                    rows.elements += value.elements
                    rows.unordered = rows.unordered or value.unordered
                else:
                    rows.elements.append(_re_placed(value, self.span(element.value, frame)))
            else:
                rows.elements.append(value)
        self.sinks.listed(rows, frame.path, frame.module)
        return rows

    def fields(self, node: ast.Dict, frame: Frame) -> Fields:
        fields = Fields(span=self.span(node, frame))
        for key, value in zip(node.keys, node.values, strict=True):
            found = self.expression(value, frame)
            if key is None:
                if isinstance(found, Fields):
                    fields.entries.update(found.entries)
                    fields.keys.update(found.keys)
                else:
                    fields.literal = False
                continue
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                placed = _re_placed(found, self.span(value, frame)) if key.value == "content" else found
                fields.entries[key.value] = placed
                fields.keys[key.value] = self.span(value, frame)
                if key.value == "cache_salt":
                    self.sinks.salt(found, self.span(value, frame), frame.path)
            else:
                self.expression(key, frame)
                fields.others.append(found)
        self.sinks.mapped(fields, frame.path, frame.module)
        return fields

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp, frame: Frame) -> Value:
        inner = Frame(
            frame.module,
            frame.path,
            names=dict(frame.names),
            owner=frame.owner,
            closure=frame.closure,
            definitions=frame.definitions,
            conditions=list(frame.conditions),
            place=frame.place,
            node=frame.node,
        )
        unordered: Part | None = None
        single: list[Value] | None = None
        cut: Part | None = None
        for position, generator in enumerate(node.generators):
            over = self.expression(generator.iter, inner)
            unordered = unordered or _unordered(over)
            if isinstance(over, Written):
                cut = cut or over.first(Kind.CUT)
            elements = over.elements if isinstance(over, Rows) else []
            if position == 0 and len(node.generators) == 1 and 0 < len(elements) <= MAX_UNROLLED:
                single = list(elements)
            self.assign(generator.target, self.element(over, generator.iter, inner), None, inner)
            for test in generator.ifs:
                self.expression(test, inner)
        span = self.span(node, frame)
        if isinstance(node, ast.DictComp):
            fields = Fields(span=span, unordered=unordered, literal=unordered is None)
            self.expression(node.key, inner)
            fields.others.append(self.expression(node.value, inner))
            return fields
        if isinstance(node, ast.SetComp):
            unordered = _set_part(span)
        rows = Rows([], span, unordered)
        if single is not None:
            for element in single:
                self.assign(node.generators[0].target, element, None, inner)
                rows.elements.append(self.expression(node.elt, inner))
        else:
            rows.elements.append(self.expression(node.elt, inner))
        if cut is not None:
            rows.elements.insert(0, written(cut))
        return rows

    def operation(self, node: ast.BinOp, frame: Frame) -> Value:
        left = self.expression(node.left, frame)
        right = self.expression(node.right, frame)
        match node.op:
            case ast.Add():
                return self.added(node, left, right, frame)
            case ast.Mod() if isinstance(left, Written) and left.text is not None and "%" in left.text:
                return self.percent(node, left, right, frame)
            case ast.Mult():
                return self.repeated(node, left, right, frame)
            case _:
                return self.arithmetic(node, left, right, frame)

    def added(self, node: ast.BinOp, left: Value, right: Value, frame: Frame) -> Value:
        if isinstance(left, Rows) or isinstance(right, Rows):
            rows = Rows([], self.span(node, frame))
            for value, side in ((left, node.left), (right, node.right)):
                if isinstance(value, Rows):
                    rows.elements += value.elements
                    rows.unordered = rows.unordered or value.unordered
                else:
                    rows.elements.append(_re_placed(value, self.span(side, frame)))
            self.sinks.listed(rows, frame.path, frame.module)
            return rows
        if isinstance(left, Written) and isinstance(right, Written):
            history = left.first(Kind.HISTORY, Kind.CUT) or right.first(Kind.HISTORY, Kind.CUT)
            if history is not None and left.single is not None and right.single is not None:
                return Rows([left, right], self.span(node, frame))
        return _concat(entering(left, self.span(node.left, frame)), entering(right, self.span(node.right, frame)))

    def repeated(self, node: ast.BinOp, left: Value, right: Value, frame: Frame) -> Value:
        value, times = (
            (left, node.right)
            if not isinstance(node.left, ast.Constant) or isinstance(node.left.value, str)
            else (right, node.left)
        )
        count = times.value if isinstance(times, ast.Constant) and isinstance(times.value, int) else None
        if isinstance(value, Rows):
            return Rows(list(value.elements), value.span, value.unordered, self.span(node, frame))
        if isinstance(value, Written):
            text = value.text
            if text is not None and count is not None and 0 < count * len(text) <= 200_000:
                return written(static(text * count, self.span(node, frame)))
            return value
        return NOTHING

    def arithmetic(self, node: ast.BinOp, left: Value, right: Value, frame: Frame) -> Value:
        span = self.span(node, frame)
        clocks = [clock for value in (left, right) if isinstance(value, Written) and (clock := value.first(Kind.CLOCK))]
        if not clocks:
            found = [part for value in (left, right) if isinstance(value, Written) for part in parts_of(value.items)]
            changing = [part for part in found if part.kind in (Kind.RANDOM, Kind.COUNTER)]
            return written(changing[0]) if changing else unknown(span)
        clock = max(clocks, key=lambda part: part.change)
        divisor = node.right.value if isinstance(node.right, ast.Constant) else None
        if isinstance(node.op, ast.FloorDiv | ast.Div) and isinstance(divisor, int | float) and divisor > 0:
            return written(as_fine_as(clock, seconds_change(divisor)))
        return written(clock)

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call, frame: Frame) -> Value:
        args: list[Value] = []
        for argument in node.args:
            value = self.expression(argument, frame)
            if isinstance(argument, ast.Starred) and isinstance(value, Rows):
                args += value.elements
            else:
                args.append(value)
        kwargs: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.expression(keyword.value, frame)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, Fields):
                kwargs.update(value.entries)
        result = self._called(node, args, kwargs, frame)
        self.sinks.called(
            chat.Call(node, _dotted(node.func), args, kwargs, frame.path, frame.module, self.spans(node, frame))
        )
        return result

    def spans(self, node: ast.Call, frame: Frame) -> dict[str, Span]:
        """Places of a call's arguments, by keyword or index."""
        found = {str(index): self.span(argument, frame) for index, argument in enumerate(node.args)}
        found.update({keyword.arg: self.span(keyword.value, frame) for keyword in node.keywords if keyword.arg})
        found[""] = self.span(node, frame)
        return found

    def _called(self, node: ast.Call, args: list[Value], kwargs: dict[str, Value], frame: Frame) -> Value:
        function = node.func
        if isinstance(function, ast.Attribute):
            receiver = self.expression(function.value, frame)
            return self.method(node, function, receiver, args, kwargs, frame)
        callee = (
            self.expression(function, frame) if not isinstance(function, ast.Name) else self.lookup(function.id, frame)
        )
        if callee is None and isinstance(function, ast.Name):
            return self.external(function.id, node, args, kwargs, frame)
        return self.invoke(callee, node, args, kwargs, frame)

    def invoke(
        self, callee: Value | None, node: ast.Call, args: list[Value], kwargs: dict[str, Value], frame: Frame
    ) -> Value:
        match callee:
            case Function():
                self.followed.add(id(callee.node))
                path = frame.path
                if isinstance(callee.node, FunctionNode):
                    if _runs_once(callee.node):
                        path = ()
                    elif _starts_session(callee.node.name):
                        path = path[:-1] if path else ()
                result = self._function(callee, args, kwargs, path, node)
                if isinstance(result, Written) and not result.items and isinstance(callee.node, FunctionNode):
                    return self._by_call_name(callee.node.name, node, args, kwargs, frame)
                return result
            case Class():
                return self.construct(callee, node, args, kwargs, frame)
            case Package():
                return self.external(callee.dotted, node, args, kwargs, frame)
            case Method():
                return self.external(callee.name, node, args, kwargs, frame)
            case Template():
                return self.filled(callee, node, args, kwargs, frame)
            case _:
                return self.external(_name(node.func) or "", node, args, kwargs, frame)

    def construct(self, cls: Class, node: ast.Call, args: list[Value], kwargs: dict[str, Value], frame: Frame) -> Value:
        instance = self.instance(cls)
        made = Instance(cls, dict(instance.attributes), ready=True)
        fields = [
            statement.target.id
            for statement in cls.node.body
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
        ]
        init = _method(cls.node, "__init__")
        names = [argument.arg for argument in init.args.args[1:]] if init is not None else fields
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            if init is None or name in made.attributes:
                made.attributes[name] = value
        return made

    def method(
        self,
        node: ast.Call,
        function: ast.Attribute,
        receiver: Value,
        args: list[Value],
        kwargs: dict[str, Value],
        frame: Frame,
    ) -> Value:
        name = function.attr
        match receiver:
            case Instance():
                member = self.member(receiver, name, function, frame)
                if isinstance(member, Function | Class | Template):
                    return self.invoke(member, node, args, kwargs, frame)
                return self.external(_dotted(function), node, args, kwargs, frame)
            case Class() | ProjectModule():
                member = self.attribute(function, frame)
                return self.invoke(member, node, args, kwargs, frame)
            case Package():
                return self.external(f"{receiver.dotted}.{name}", node, args, kwargs, frame)
            case Rows():
                return self.rows_method(node, function, receiver, args, frame)
            case Fields():
                return self.fields_method(node, name, receiver, args, kwargs, frame)
            case Template():
                return self.template_method(node, name, receiver, args, kwargs, frame)
            case Written():
                return self.text_method(node, function, receiver, args, kwargs, frame)
            case _:
                return self.external(_dotted(function), node, args, kwargs, frame)

    def rows_method(
        self, node: ast.Call, function: ast.Attribute, rows: Rows, args: list[Value], frame: Frame
    ) -> Value:
        name = function.attr
        if name in ("append", "appendleft") and args:
            if name == "append":
                rows.elements.append(_placed(args[0], node, frame, self))
            else:
                rows.elements.insert(0, args[0])
        elif name == "extend" and args:
            rows.elements += args[0].elements if isinstance(args[0], Rows) else [args[0]]
            rows.unordered = rows.unordered or _unordered(args[0])
        elif name == "insert" and len(args) > 1:
            at = node.args[0].value if isinstance(node.args[0], ast.Constant) else len(rows.elements)
            rows.elements.insert(at if isinstance(at, int) else len(rows.elements), args[1])
        elif name in ("pop", "popleft"):
            self.popped(node, function, rows, frame)
        elif name == "sort":
            rows.unordered = None
        elif name in ("copy", "__iter__"):
            return rows
        elif name in ("clear",):
            rows.elements.clear()
        else:
            return self.external(_dotted(function), node, args, {}, frame)
        if frame.unordered and name in ("append", "extend", "insert", "appendleft"):
            rows.unordered = frame.unordered[-1]
        self.sinks.grown(rows)
        if name in ("append", "extend", "insert", "appendleft"):
            self.sinks.listed(rows, frame.path, frame.module)
        return unknown(self.span(node, frame)) if name.startswith("pop") else NOTHING

    def popped(self, node: ast.Call, function: ast.Attribute, base: Value, frame: Frame) -> None:
        """``history.pop(0)``: the front of the history is cut off."""
        if not self._is_history(base, function.value):
            return
        index = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if function.attr == "popleft" or index in (0, 1):
            self.sinks.rewritten(self.span(node, frame), "the oldest message is dropped", frame.module)

    def fields_method(
        self,
        node: ast.Call,
        name: str,
        fields: Fields,
        args: list[Value],
        kwargs: dict[str, Value],
        frame: Frame,
    ) -> Value:
        span = self.span(node, frame)
        if name in ("get", "setdefault", "pop") and node.args:
            key = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            if isinstance(key, str) and key in fields.entries:
                return fields.entries[key]
            if name == "setdefault" and isinstance(key, str) and len(args) > 1:
                fields.entries[key] = args[1]
            options: list[Value] = list(args[1:2])
            if isinstance(key, str):
                options.insert(0, self.named(key, node, frame, "the key"))
            return either([*options, *fields.others]) if options or fields.others else unknown(span)
        if name in ("values", "items", "keys"):
            unordered = fields.unordered
            if unordered is None and (not fields.literal or not fields.entries):
                words = f"{name}() of a dictionary that is filled while the program runs"
                unordered = Part(Kind.UNORDERED, Change.REQUEST, span, words=words, path=frame.path)
            values = list(elements_of(fields))
            if name == "items":
                return Rows([Rows([unknown(span), value]) for value in values], span, unordered)
            return Rows(values if name == "values" else [unknown(span)], span, unordered)
        if name == "update":
            for value in args:
                if isinstance(value, Fields):
                    fields.entries.update(value.entries)
                    fields.others += value.others
                else:
                    fields.literal = False
            fields.entries.update(kwargs)
            return NOTHING
        if name in ("copy", "model_dump", "dict"):
            return Fields(dict(fields.entries), list(fields.others), fields.span, dict(fields.keys), fields.unordered)
        return self.external(name, node, args, kwargs, frame)

    def text_method(
        self,
        node: ast.Call,
        function: ast.Attribute,
        receiver: Written,
        args: list[Value],
        kwargs: dict[str, Value],
        frame: Frame,
    ) -> Value:
        name, span = function.attr, self.span(node, frame)
        clock = receiver.first(Kind.CLOCK)
        if clock is not None:
            return self.clock_method(node, name, clock, receiver, args, kwargs, span)
        if name in ("format", "format_map") and receiver.items:
            return self.format_text(node, receiver, args, kwargs, frame)
        if name == "join" and args:
            return self.joined(node, receiver, args[0], frame)
        if name in ("get", "pop", "setdefault") and node.args:
            if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                named = self.part_of(receiver, node.args[0].value, node, frame)
                part = named.single if isinstance(named, Written) else None
                if part is not None and part.kind is Kind.UNKNOWN and len(args) > 1:
                    return args[1] if items_of(args[1]) else named
                return either([named, *args[1:2]]) if part is None or not part.named else named
            if receiver.first(Kind.HISTORY):
                self.popped(node, function, receiver, frame)
                return unknown(span)
            if isinstance(function.value, ast.Name) and set(words_of(function.value.id)) & _CONFIGURATION:
                return written(Part(Kind.STATIC, Change.PROCESS, span))
            return receiver
        history = receiver.first(Kind.HISTORY, Kind.CUT)
        if history is not None and name in ("append", "insert", "extend", "pop", "popleft", "appendleft"):
            return self.grown_history(node, function, receiver, args, frame)
        if name in LISTINGS:
            return self.listing(name, span, frame)
        if name in TEXT_METHODS and receiver.items:
            return receiver
        if name in ("items", "values", "keys"):
            if receiver.first(Kind.UNORDERED):
                return receiver
            part = receiver.single
            if part is not None and part.kind in (Kind.TOOLS, Kind.UNKNOWN):
                words = f"{name}() of a dictionary that is filled while the program runs"
                return written(Part(Kind.UNORDERED, Change.REQUEST, span, words=words, path=frame.path))
            return receiver
        return self.external(_dotted(function), node, args, kwargs, frame, receiver)

    def clock_method(
        self,
        node: ast.Call,
        name: str,
        clock: Part,
        receiver: Written,
        args: list[Value],
        kwargs: dict[str, Value],
        span: Span,
    ) -> Value:
        form = args[0].text if args and isinstance(args[0], Written) else None
        match name:
            case "strftime":
                change = strftime_change(form) if form is not None else clock.change
                return written(as_fine_as(clock, change).at(span))
            case "format" | "to_format":
                change = clock.change if form is None else strftime_change(form) if "%" in form else moment_change(form)
                return written(as_fine_as(clock, change).at(span))
            case "date" | "to_date_string" | "weekday" | "isoweekday" | "isocalendar" | "to_formatted_date_string":
                return written(as_fine_as(clock, Change.DAY).at(span))
            case "isoformat":
                spec = kwargs.get("timespec")
                text = spec.text if isinstance(spec, Written) else None
                fine = {"hours": Change.HOUR, "minutes": Change.MINUTE}
                return written(as_fine_as(clock, fine.get(text or "", Change.REQUEST)).at(span))
            case "replace" | "floor" | "start_of":
                zeroed = set(kwargs)
                unit = form if name != "replace" else None
                if unit == "day" or "hour" in zeroed:
                    return written(as_fine_as(clock, Change.DAY).at(span))
                if unit == "hour" or "minute" in zeroed:
                    return written(as_fine_as(clock, Change.HOUR).at(span))
                if unit == "minute" or "second" in zeroed:
                    return written(as_fine_as(clock, Change.MINUTE).at(span))
                return receiver
            case "split" | "partition":
                if form in ("T", " "):
                    return Rows([written(as_fine_as(clock, Change.DAY)), written(clock)], span)
                return receiver
            case _:
                return receiver

    def grown_history(
        self, node: ast.Call, function: ast.Attribute, receiver: Written, args: list[Value], frame: Frame
    ) -> Value:
        """A list of messages that came from elsewhere is changed: it becomes a list of its own."""
        name = function.attr
        if name in ("pop", "popleft"):
            self.popped(node, function, receiver, frame)
            return unknown(self.span(node, frame))
        rows = Rows([receiver], self.span(function.value, frame))
        if name == "insert" and len(args) > 1:
            first = isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
            rows.elements.insert(0 if first else 1, args[1])
        elif name == "appendleft":
            rows.elements.insert(0, args[0])
        elif args:
            rows.elements += args[0].elements if name == "extend" and isinstance(args[0], Rows) else [args[0]]
        self.assign(function.value, rows, None, frame)
        self.sinks.listed(rows, frame.path, frame.module)
        return NOTHING

    def format_text(
        self, node: ast.Call, receiver: Written, args: list[Value], kwargs: dict[str, Value], frame: Frame
    ) -> Value:
        spans = self.spans(node, frame)
        mapping = args[0] if args and isinstance(args[0], Fields) else None
        given = dict(mapping.entries) if mapping is not None and not kwargs else kwargs
        positional = {str(index): value for index, value in enumerate(args)}
        open_ended = any(keyword.arg is None for keyword in node.keywords)

        def value_of(name: str, index: int, spec: str, place: Span) -> tuple[Item, ...]:
            key = name if index < 0 else str(index)
            value = given.get(key) if index < 0 else positional.get(key)
            if value is None:
                return items_of(self._placeholder(name, place, frame)) if open_ended or given or not positional else ()
            at = spans.get(key) or (mapping.keys.get(key) if mapping is not None else None) or place
            found = formatted(entering(value, at), spec)
            return tuple(
                replace(item, template=place) if isinstance(item, Part) and item.kind is not Kind.STATIC else item
                for item in found
            )

        return Written(fill(receiver.items, "format", value_of)[:MAX_ITEMS])

    def _placeholder(self, name: str, place: Span, frame: Frame) -> Written:
        meaning = meaning_of(name)
        if meaning is None or not name:
            return written(Part(Kind.UNKNOWN, Change.PROCESS, place))
        words = f"{meaning.words} (the placeholder {{{name}}})"
        return written(Part(meaning.kind, meaning.change, place, words=words, path=frame.path, named=True))

    def percent(self, node: ast.BinOp, left: Written, right: Value, frame: Frame) -> Value:
        values = right.elements if isinstance(right, Rows) else [right]
        spans = (
            [self.span(element, frame) for element in node.right.elts]
            if isinstance(node.right, ast.Tuple)
            else [self.span(node.right, frame)]
        )
        fields = right if isinstance(right, Fields) else None

        def value_of(name: str, index: int, spec: str, place: Span) -> tuple[Item, ...]:
            if fields is not None and name:
                value = fields.entries.get(name)
                at = fields.keys.get(name, place)
            else:
                value = values[index] if 0 <= index < len(values) else None
                at = spans[index] if 0 <= index < len(spans) else place
            return entering(value, at) if value is not None else ()

        return Written(fill(left.items, "percent", value_of)[:MAX_ITEMS])

    def joined(self, node: ast.Call, separator: Written, value: Value, frame: Frame) -> Value:
        if isinstance(value, Rows):
            items: list[Item] = [value.unordered] if value.unordered is not None else []
            for index, element in enumerate(value.elements[:MAX_ITEMS]):
                if index:
                    items += separator.items
                place = element.single.span if isinstance(element, Written) and element.single else None
                items += entering(element, place or self.span(node, frame))
            return Written(tuple(items[:MAX_ITEMS]))
        return Written(entering(value, self.span(node.args[0], frame)))

    def listing(self, name: str, span: Span, frame: Frame) -> Written:
        return written(Part(Kind.UNORDERED, Change.REQUEST, span, words=LISTINGS[name], path=frame.path))

    def external(
        self,
        dotted: str,
        node: ast.Call,
        args: list[Value],
        kwargs: dict[str, Value],
        frame: Frame,
        receiver: Written | None = None,
    ) -> Value:
        """A call into another package, or of something that nothing is known of but its name."""
        span = self.span(node, frame)
        name = dotted.rpartition(".")[2]
        built = chat.construct(name, dotted, args, kwargs, span, self.spans(node, frame), frame.path)
        if built is not None:
            if isinstance(built, Rows):
                self.sinks.listed(built, frame.path, frame.module)
            return built
        if name == "strftime":
            form = args[0].text if args and isinstance(args[0], Written) else None
            other = args[1] if len(args) > 1 and isinstance(args[1], Written) else None
            clock = other.first(Kind.CLOCK) if other is not None else None
            change = strftime_change(form) if form is not None else Change.REQUEST
            part = Part(Kind.CLOCK, Change.REQUEST, span, words="", path=clock.path if clock else frame.path)
            return written(as_fine_as(part, change))
        known = known_call(dotted, span)
        if known is not None:
            return written(replace(known, path=frame.path))
        match name:
            case "dumps" | "dump_json" | "to_json":
                return self.dumped(node, args, kwargs, span, frame)
            case "sorted" | "dictsort" | "natsorted":
                value = args[0] if args else NOTHING
                if isinstance(value, Rows):
                    return Rows(list(value.elements), span)
                return _ordered(value)
            case "set" | "frozenset":
                elements = list(elements_of(args[0])) if args else []
                return Rows(elements, span, _set_part(span))
            case "list" | "tuple" | "deque" | "iter" if args and isinstance(args[0], Rows):
                return Rows(list(args[0].elements), args[0].span, args[0].unordered)
            case "list" | "tuple" | "deque" if not args:
                return Rows([], span)
            case "deque":
                return self.deque(node, args, kwargs, span, frame)
            case "dict" | "OrderedDict" | "defaultdict":
                base = args[0] if args and isinstance(args[0], Fields) else None
                entries = dict(base.entries) if base is not None else {}
                fields = Fields({**entries, **kwargs}, span=span, literal=base is not None or bool(kwargs) or not args)
                fields.keys.update(self.spans(node, frame))
                self.sinks.mapped(fields, frame.path, frame.module)
                return fields
            case "enumerate" if args:
                return Rows([Rows([unknown(span), self.element(args[0], node, frame)])], span, _unordered(args[0]))
            case "zip":
                return Rows([Rows([self.element(value, node, frame) for value in args])], span)
            case "map" | "filter" if len(args) > 1:
                element = self.element(args[1], node, frame)
                if name == "map" and isinstance(args[0], Function):
                    element = self.invoke(args[0], node, [element], {}, frame)
                return Rows([element], span, _unordered(args[1]))
            case "len" | "range" | "isinstance" | "hasattr" | "print" | "any" | "all" | "sum" | "type" | "ord":
                return NOTHING
            case "input":
                return written(Part(Kind.INPUT, Change.REQUEST, span, words="what the user types", path=frame.path))
            case "next" if args and isinstance(args[0], Written) and args[0].first(Kind.COUNTER):
                return args[0]
            case "gather" | "wait":
                return Rows(args, span, next((found for value in args if (found := _unordered(value))), None))
            case _:
                pass
        if name in LISTINGS:
            return self.listing(name, span, frame)
        if passes(dotted) and args:
            return args[0]
        if dotted == "itertools.count":
            return written(Part(Kind.COUNTER, Change.REQUEST, span, words="a counter", path=frame.path))
        return self._by_call_name(name, node, args, kwargs, frame, receiver)

    def _by_call_name(
        self,
        name: str,
        node: ast.Call,
        args: list[Value],
        kwargs: dict[str, Value],
        frame: Frame,
        receiver: Written | None = None,
    ) -> Value:
        span = self.span(node, frame)
        if chat.trims(name):
            history = next(
                (
                    part
                    for value in (*args, *kwargs.values())
                    for part in parts_of(items_of(value))
                    if part.kind is Kind.HISTORY
                ),
                None,
            )
            if history is not None:
                words = f"only the last messages ({name}())"
                return written(Part(Kind.CUT, Change.REQUEST, span, words=words, path=frame.path, named=True))
        if set(words_of(name)) & _CONFIGURATION:
            return written(Part(Kind.STATIC, Change.PROCESS, span))
        meaning = meaning_of_call(name)
        if meaning is not None and meaning.kind not in (Kind.INPUT,):
            words = f"{meaning.words} ({name}())"
            if meaning.kind is Kind.HISTORY:
                words = "the history"
            return written(Part(meaning.kind, meaning.change, span, words=words, path=frame.path, named=True))
        passed = [part for value in (*args, *kwargs.values()) for part in parts_of(items_of(value))]
        for kind in (Kind.CLOCK, Kind.IDENTIFIER, Kind.RANDOM, Kind.RETRIEVAL, Kind.HISTORY, Kind.USER, Kind.MEDIA):
            part = next((part for part in passed if part.kind is kind), None)
            if part is not None:
                if kind is Kind.CLOCK and "date" in words_of(name) and "time" not in words_of(name):
                    part = as_fine_as(part, Change.DAY)
                return written(replace(part, span=span, origin=part.origin or part.span, via=f"{name}()"))
        if args and passed and all(part.kind is Kind.STATIC for part in passed):
            return written(Part(Kind.STATIC, Change.PROCESS, span))
        if receiver is not None and receiver.single is not None and receiver.single.kind in (Kind.USER, Kind.RETRIEVAL):
            return written(receiver.single.at(span))
        return unknown(span)

    def dumped(self, node: ast.Call, args: list[Value], kwargs: dict[str, Value], span: Span, frame: Frame) -> Value:
        """``json.dumps``: the order of keys is that of the dictionary unless they are sorted."""
        value = args[0] if args else NOTHING
        sort = next((keyword.value for keyword in node.keywords if keyword.arg == "sort_keys"), None)
        if isinstance(sort, ast.Constant) and sort.value:
            return (
                Fields(value.entries, value.others, value.span, value.keys)
                if isinstance(value, Fields)
                else _ordered(value)
            )
        if isinstance(value, Fields | Rows):
            return value
        subject = node.args[0] if node.args else None
        reason = chat.unstable_subject(subject)
        if reason is not None and isinstance(value, Written) and not value.first(Kind.UNORDERED):
            words = f"json.dumps() without sort_keys of {reason}"
            part = Part(Kind.UNORDERED, Change.REQUEST, span, words=words, path=frame.path, named=True)
            return Written((part, *entering(value, span)))
        return Written(entering(value, span))

    def deque(self, node: ast.Call, args: list[Value], kwargs: dict[str, Value], span: Span, frame: Frame) -> Value:
        bounded = "maxlen" in {keyword.arg for keyword in node.keywords} or len(node.args) > 1
        if bounded:
            words = "a deque with maxlen, which drops its oldest element"
            return Rows([written(Part(Kind.CUT, Change.REQUEST, span, words=words, path=frame.path))], span)
        return args[0] if args else Rows([], span)

    # -- templates that are filled later -----------------------------------------------------------------------------

    def template_method(
        self,
        node: ast.Call,
        name: str,
        template: Template,
        args: list[Value],
        kwargs: dict[str, Value],
        frame: Frame,
    ) -> Value:
        if name in ("partial", "with_config", "bind"):
            bound = {**template.bound, **kwargs}
            template.filled = True
            made = Template(list(template.messages), template.span, template.style, bound=bound)
            self.sinks.templated(made, frame.path, frame.module)
            return made
        if name in chat.FILLING:
            return self.filled(template, node, args, kwargs, frame)
        return template

    def filled(
        self, template: Template, node: ast.Call, args: list[Value], kwargs: dict[str, Value], frame: Frame
    ) -> Value:
        given = dict(template.bound)
        spans = self.spans(node, frame)
        for value in args:
            if isinstance(value, Fields):
                given.update(value.entries)
                spans.update(value.keys)
        given.update(kwargs)
        template.filled = True
        if template.style.startswith("jinja"):
            return self.rendered_template(template, given, spans, node, frame)
        rows = Rows([], self.span(node, frame))
        for role, items, span in template.messages:

            def value_of(name: str, index: int, spec: str, place: Span) -> tuple[Item, ...]:
                key = name.partition(".")[0]
                value = given.get(key)
                if isinstance(value, Function):
                    value = self._function(value, [], {}, frame.path, None)
                if value is None:
                    return self._placeholder(name, place, frame).items
                found = formatted(entering(value, spans.get(key, place)), spec)
                return tuple(
                    replace(item, template=place) if isinstance(item, Part) and item.kind is not Kind.STATIC else item
                    for item in found
                )

            text = fill(items, template.style, value_of)
            if role == "prompt":
                return Written(text[:MAX_ITEMS])
            if role == "history":
                rows.elements.append(Written(items))
            else:
                entries: dict[str, Value] = {"role": written(static(role, span)), "content": Written(text)}
                rows.elements.append(Fields(entries, span=span))
        self.sinks.listed(rows, frame.path, frame.module)
        return rows

    def rendered_template(
        self, template: Template, given: dict[str, Value], spans: dict[str, Span], node: ast.Call, frame: Frame
    ) -> Value:
        """What a Jinja template writes with the values that it is given."""
        from kvgate.prompts.jinja import read_template
        from kvgate.prompts.jinja_tree import TemplateProblem

        arguments = {name: entering(value, spans.get(name, template.span)) for name, value in given.items()}
        found: list[Item] = []
        for _, items, _ in template.messages:
            text = self.template_text(template, items)
            if text is None:
                continue
            self.rendered.add((text.span.path, text.span.start))
            read = read_template(text, arguments, path=frame.path)
            if isinstance(read, TemplateProblem):
                continue
            self.sinks.rendered(read.prompt, self.span(node, frame), frame.path)
            found += [item for message in read.prompt.messages for item in message.items]
        return Written(tuple(found[:MAX_ITEMS]))

    def template_text(self, template: Template, items: tuple[Item, ...]) -> Text | None:
        first = items[0] if items and isinstance(items[0], Part) else None
        if first is None:
            return None
        if template.style == "jinja-file":
            file = self.templates.get(first.words.rpartition("/")[2])
            return Text.of_span(Span(file, 0, len(file.text))) if file is not None else None
        if len(items) == 1 and first.text is not None:
            return located(first.span, first.text)
        return None


_NUMBERS: Final = frozenset({Kind.CLOCK, Kind.COUNTER, Kind.RANDOM, Kind.IDENTIFIER, Kind.USER, Kind.SESSION})
_TELLING: Final = tuple(kind for kind in Kind if kind not in (Kind.UNKNOWN, Kind.STATIC, Kind.INPUT))


# -- helpers over the tree -------------------------------------------------------------------------------------------


def over_messages(elements: list[Value]) -> bool:
    """Whether a list is one of messages, over which a loop runs as over a history."""
    return sum(chat.is_message(element) for element in elements) > 1


def _name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return f"{base}.{node.attr}" if base else node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call):
        return _dotted(node.func)
    if isinstance(node, ast.Await | ast.Subscript):
        return _dotted(node.value)
    return ""


def _source(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except (RecursionError, ValueError):
        return ""


def _load(node: ast.Name | ast.Attribute | ast.Subscript) -> ast.expr:
    """The target of an augmented assignment as an expression."""
    return node


def _is_content(node: ast.Attribute | ast.Subscript) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "content"
    return isinstance(node.slice, ast.Constant) and node.slice.value == "content"


def _concat(left: tuple[Item, ...], right: tuple[Item, ...]) -> Written:
    return Written((left + right)[:MAX_ITEMS])


def _re_placed(value: Value, span: Span) -> Value:
    """A bare changing value enters the prompt where it is put into a list."""
    if isinstance(value, Written) and value.single is not None and value.single.kind is not Kind.STATIC:
        return written(value.single.at(span))
    return value


def _placed(value: Value, node: ast.Call, frame: Frame, evaluator: Evaluator) -> Value:
    return _re_placed(value, evaluator.span(node.args[0], frame)) if node.args else value


def _unordered(value: Value) -> Part | None:
    if isinstance(value, Rows | Fields):
        return value.unordered
    return value.first(Kind.UNORDERED) if isinstance(value, Written) else None


def _set_part(span: Span) -> Part:
    return Part(Kind.UNORDERED, Change.REQUEST, span, words="a set, whose order changes between processes")


def _ordered(value: Value) -> Value:
    if not isinstance(value, Written):
        return value
    kept = tuple(item for item in value.items if not (isinstance(item, Part) and item.kind is Kind.UNORDERED))
    return Written(kept)


def _merge(left: dict[str, Value], right: dict[str, Value]) -> dict[str, Value]:
    merged = dict(left)
    for name, value in right.items():
        known = merged.get(name)
        merged[name] = value if known is None or known is value else either([known, value])
    return merged


def _constant_text(node: ast.expr | None) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(value.value) for value in node.values if isinstance(value, ast.Constant))
    return ""


def _annotation(node: ast.expr | None) -> str:
    if node is None:
        return ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    text = _source(node)
    for suffix in (" | None", "Optional[", "]"):
        text = text.replace(suffix, "")
    return text


def _method(node: ast.ClassDef, name: str) -> FunctionNode | None:
    for statement in node.body:
        if isinstance(statement, FunctionNode) and statement.name == name:
            return statement
    return None


def _assigning(node: ast.ClassDef, attribute: str) -> Iterator[FunctionNode]:
    """Methods that set an attribute of their object, those that begin something first."""
    found = [
        statement
        for statement in node.body
        if isinstance(statement, FunctionNode)
        and any(
            isinstance(below, ast.Attribute)
            and below.attr == attribute
            and isinstance(below.ctx, ast.Store)
            and isinstance(below.value, ast.Name)
            and below.value.id == "self"
            for below in ast.walk(statement)
        )
    ]
    yield from sorted(found, key=lambda method: not _starts_session(method.name))


def _decorators(node: FunctionNode) -> set[str]:
    found = set()
    for decorator in node.decorator_list:
        name = _name(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if name:
            found.add(name)
    return found


def _runs_once(node: FunctionNode) -> bool:
    return bool(_decorators(node) & CACHES)


def _is_static(node: FunctionNode | ast.Lambda) -> bool:
    return isinstance(node, FunctionNode) and "staticmethod" in _decorators(node)


def _starts_session(name: str) -> bool:
    words = words_of(name)
    return bool(words) and words[0] in _SESSION_STARTS and bool(set(words) & _SESSIONS)


def _has_parameters(node: FunctionNode | ast.Lambda) -> bool:
    arguments = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return any(name not in ("self", "cls", "args", "argv") for name in arguments)


def _is_main_guard(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and isinstance(test.comparators[0], ast.Constant)
    )


def _is_type_checking(test: ast.expr) -> bool:
    return _name(test) == "TYPE_CHECKING"


def _reads_input(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = _name(node.func)
    if name in _INPUTS:
        return name not in ("ask", "prompt") or isinstance(node.func, ast.Attribute)
    return False


def _asked_once(node: ast.If, frame: Frame) -> bool:
    """``if self.system is None: self.system = ...`` and the like: the branch runs once per conversation."""
    subject = _emptiness(node.test)
    if subject is None:
        return False
    kept = isinstance(subject, ast.Attribute | ast.Subscript)
    history = isinstance(subject, ast.Name) and is_history_name(subject.id)
    shared = isinstance(subject, ast.Name) and subject.id not in frame.names
    if not (kept or history or shared):
        return False
    text = _source(subject)
    for statement in node.body:
        for below in ast.walk(statement):
            if isinstance(below, ast.Assign) and any(_source(target).startswith(text) for target in below.targets):
                return True
            if (
                isinstance(below, ast.Call)
                and isinstance(below.func, ast.Attribute)
                and below.func.attr in ("append", "insert", "extend", "update", "setdefault")
                and _source(below.func.value) == text
            ):
                return True
    return False


def _emptiness(test: ast.expr) -> ast.expr | None:
    """What a test finds empty or missing."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        other = test.comparators[0]
        if isinstance(test.ops[0], ast.Is | ast.Eq) and isinstance(other, ast.Constant | ast.List):
            if isinstance(test.left, ast.Call) and _name(test.left.func) == "len" and test.left.args:
                return test.left.args[0]
            return test.left
        if isinstance(test.ops[0], ast.NotIn):
            return ast.Subscript(other, test.left, ast.Load())
    return None


def _negative(node: ast.expr | None) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)


def _negative_number(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, int) else None
    return None


def _from_length(node: ast.expr) -> bool:
    """Whether an index is counted from the length: ``max(0, len(messages) - 20)``."""
    return any(
        isinstance(below, ast.BinOp)
        and isinstance(below.op, ast.Sub)
        and isinstance(below.left, ast.Call)
        and _name(below.left.func) == "len"
        for below in ast.walk(node)
    )


def _in_strides(node: ast.expr) -> bool:
    return any(
        isinstance(below, ast.BinOp) and isinstance(below.op, ast.FloorDiv | ast.Mod) for below in ast.walk(node)
    )


def _limit_of(test: ast.expr, subject: str) -> ast.expr | None:
    """The limit in a test ``len(subject) > limit``."""
    for below in ast.walk(test):
        if isinstance(below, ast.Compare) and len(below.ops) == 1 and isinstance(below.ops[0], ast.Gt | ast.GtE):
            left = below.left
            if (
                isinstance(left, ast.Call)
                and _name(left.func) == "len"
                and left.args
                and _source(left.args[0]) == subject
            ):
                return below.comparators[0]
    return None


def _without_end(node: ast.expr, frame: Frame) -> bool:
    """Whether a loop runs over a history without its end: ``messages[:-5]``."""
    return any(
        isinstance(below, ast.Subscript)
        and isinstance(below.slice, ast.Slice)
        and _negative(below.slice.upper)
        and is_history_name(_name(below.value) or "")
        for below in ast.walk(node)
    )


def _counts_from_end(test: ast.expr) -> bool:
    """Whether a test compares a position with the end of a list: ``i < len(messages) - 5``."""
    return any(isinstance(below, ast.Compare) and _from_length(below) for below in ast.walk(test))


def _mentions_system(test: ast.expr) -> bool:
    return any(isinstance(below, ast.Constant) and below.value == "system" for below in ast.walk(test))
