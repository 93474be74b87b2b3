"""Follows prompt-building code: what each expression is, and what is sent.

Statements are followed in order, branches one after the other, loops once; a function of the project is followed where
it is called, with the values it is called with. What cannot be followed is what its name says
(:mod:`kvgate.prompts.vocabulary`).

Every changing part remembers the functions and loops in which it was evaluated (its path): what is evaluated at import,
in ``__init__`` or before the loop of a conversation is the same for all requests that are sent inside.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kvgate.prompts.clock import RESOLUTION_WORDS
from kvgate.prompts.part import Change, Kind, Part, parts_of
from kvgate.prompts.python import chat
from kvgate.prompts.python.calls import Calls
from kvgate.prompts.python.frame import (
    BEGINNINGS,
    MAX_CALL_DEPTH,
    MAX_STEPS,
    MAX_STEPS_PER_ROOT,
    MAX_UNROLLED,
    BudgetError,
    Frame,
    asked_once,
    concat,
    merge,
    over_messages,
    unordered_of,
)
from kvgate.prompts.python.project import ModuleSource
from kvgate.prompts.python.tree import (
    FunctionNode,
    annotation_text,
    budgeted,
    counts_from_end,
    has_parameters,
    is_content,
    is_main_guard,
    is_negative,
    is_static_method,
    is_type_checking,
    mentions_system,
    method_of,
    name_of,
    reads_input,
    runs_once,
    source_of,
    starts_session,
    without_end,
)
from kvgate.prompts.python.values import (
    NOTHING,
    Class,
    Deferred,
    Fields,
    Function,
    Instance,
    Package,
    ProjectModule,
    Rows,
    Value,
    Written,
    either,
    entering,
    items_of,
    unknown,
    written,
)
from kvgate.prompts.vocabulary import (
    meaning_of,
    words_of,
)

NUMBERS: Final = frozenset({Kind.CLOCK, Kind.COUNTER, Kind.RANDOM, Kind.IDENTIFIER, Kind.USER, Kind.SESSION})
TELLING: Final = tuple(kind for kind in Kind if kind not in (Kind.UNKNOWN, Kind.STATIC, Kind.INPUT))


class Evaluator(Calls):
    """Follows the code of a project and hands what is sent to the sinks."""

    # -- roots -------------------------------------------------------------------------------------------------------

    def run_module(self, module: ModuleSource) -> None:
        """Follow the statements of a module, as an import does."""
        tree = module.parse()
        if tree is None or module.file.path in self._imported:
            return
        self._imported.add(module.file.path)
        names = self._globals.setdefault(module.file.path, {})
        frame = Frame(module, (), names=names)
        self._guarded(lambda: self.block(tree.body, frame))

    def global_value(self, module: ModuleSource, name: str) -> Value | None:
        """What a name of a module is; of a module that is only imported, no more than this name is followed."""
        names = self._globals.setdefault(module.file.path, {})
        if name in names:
            found = names[name]
            if isinstance(found, Deferred):
                found = names[name] = self.resolved(found)
            return found
        if module.file.path in self._imported or module.parse() is None:
            return None
        if name in module.functions:
            names[name] = Function(module.functions[name], module)
        elif name in module.classes:
            names[name] = Class(module.classes[name], module)
        elif name in module.bindings:
            names[name] = NOTHING  # meets itself while it is followed
            frame = Frame(module, (), names=names)
            statement = module.bindings[name]
            self._guarded(lambda: self.statement(statement, frame))
            return self.global_value(module, name)
        return names.get(name)

    def resolved(self, deferred: Deferred) -> Value:
        """What an imported name is."""
        found = self.global_value(deferred.source, deferred.name)
        if found is not None:
            return found
        return ProjectModule(deferred.below) if deferred.below is not None else Package(deferred.dotted)

    def root(self, module: ModuleSource, node: FunctionNode, cls: ast.ClassDef | None) -> None:
        """Follow a function that nothing in sight calls; its parameters are what their names say."""

        def follow() -> None:
            owner = self.instance(Class(cls, module)) if cls is not None else None
            if cls is not None and node.name in BEGINNINGS:
                return  # followed with its object
            once = runs_once(node) or starts_session(node.name)
            path = () if once else (f"{module.file.path}:{node.name}:{node.lineno}",)
            self.enter(Function(node, module, owner), [], {}, path)

        if not self._guarded(follow):
            self.given_up.append((node.name, module.file.line_span(node.lineno)))

    def _guarded(self, follow: Callable[[], object]) -> bool:
        """Follow something within a budget of steps; whether that was enough."""
        begun, limit, stack = self._steps, self._limit, list(self._stack)
        self._limit = min(begun + MAX_STEPS_PER_ROOT, MAX_STEPS)
        try:
            follow()
        except (BudgetError, RecursionError):
            return False
        finally:
            # what was followed on the way costs the outer root nothing
            self._limit = min(limit + self._steps - begun, MAX_STEPS)
            self._stack[:] = stack
        return True

    # -- functions and objects ---------------------------------------------------------------------------------------

    def instance(self, cls: Class) -> Instance:
        """The object that stands for all of a class; what ``__init__`` sets is set once."""
        known = self._instances.get(id(cls.node))
        if known is not None:
            return known
        found = self._instances[id(cls.node)] = Instance(cls)
        for base in cls.node.bases:
            parent = self.class_of(base, cls.module)
            if parent is not None and parent.node is not cls.node:
                found.attributes.update(self.instance(parent).attributes)
        frame = Frame(cls.module, (), owner=found, names={})
        for statement in cls.node.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                value = self.expression(statement.value, frame)
                for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                    if isinstance(target, ast.Name):
                        found.attributes[target.id] = value
        for name in BEGINNINGS:
            method = method_of(cls.node, name)
            if method is not None:
                self.followed.add(id(method))
                self.enter(Function(method, cls.module, found), [], {}, ())
        found.ready = True
        return found

    def class_of(self, base: ast.expr, module: ModuleSource) -> Class | None:
        value: Value | None = None
        if isinstance(base, ast.Name):
            value = self.global_value(module, base.id)
        return value if isinstance(value, Class) else None

    def enter(
        self,
        function: Function,
        args: list[Value],
        kwargs: dict[str, Value],
        path: tuple[str, ...],
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
        if function.owner is not None and positional and not is_static_method(function.node):
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
                if value is None or (plain and isinstance(named, Written) and named.first(*TELLING)):
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
        annotation = annotation_text(argument.annotation)
        if argument.arg in ("self", "cls"):
            return NOTHING
        meaning = meaning_of(argument.arg)
        if annotation in ("int", "float", "bool") and (meaning is None or meaning.kind not in NUMBERS):
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
        self.step()
        match node:
            case ast.Assign():
                frame.target = source_of(node.targets[0])
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
                    self.discarded = node.value.value if isinstance(node.value, ast.Await) else node.value
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
            if below is not None and module is None:
                frame.names[name] = ProjectModule(below)
            elif module is not None and module is not frame.module:
                frame.names[name] = Deferred(module, alias.name, f"{source}.{alias.name}", below)
            else:
                frame.names[name] = Package(f"{source}.{alias.name}")

    def branch(self, node: ast.If, frame: Frame) -> bool:
        self.expression(node.test, frame)
        if is_main_guard(node.test):
            inner = Frame(frame.module, ("__main__",), names=frame.names)
            self.block(node.body, inner)
            return False
        if is_type_checking(node.test):
            return self.block(node.body, frame)
        outer = frame.path
        before = dict(frame.names)
        if asked_once(node, frame):
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
            merged = merge(after_body, after_else)
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
            self._rebind(frame, before if gone or ended else merge(before, frame.names))
        if not ended:
            ended = self.block(node.orelse, frame)
        return self.block(node.finalbody, frame) or (ended and not node.handlers)

    def loop(self, node: ast.For | ast.AsyncFor, frame: Frame) -> None:
        over = self.expression(node.iter, frame)
        outer = frame.path
        before = dict(frame.names)
        if self._counts(node, frame):
            frame.path = (*outer, f"for:{node.lineno}")
        unordered = unordered_of(over)
        if unordered is not None:
            frame.unordered.append(unordered)
        over_history = self._is_history(over, node.iter)
        frame.over_history += over_history
        names = {name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)}
        if without_end(node.iter):
            frame.earlier |= names
        elements = over.elements if isinstance(over, Rows) else []
        if 0 < len(elements) <= MAX_UNROLLED and unordered is None and not over_messages(elements):
            for element in elements:
                self.assign(node.target, element, None, frame)
                if self.block(node.body, frame):
                    break
        else:
            element = self.element(over, node.iter, frame)
            if budgeted(node) and self._is_history(over, node.iter):
                words = "only as many of the last messages as fit"
                span = self.span(node.iter, frame)
                element = written(Part(Kind.CUT, Change.REQUEST, span, words=words, path=frame.path))
            self.assign(node.target, element, None, frame)
            self.block(node.body, frame)
        frame.earlier -= names
        frame.over_history -= over_history
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
        known = self._reading_loops.get(id(node))
        if known is None:
            known = self._reading_loops[id(node)] = any(reads_input(below) for below in ast.walk(node))
        if known:
            return True
        if isinstance(node, ast.While):
            return frame.node is None
        if isinstance(node.iter, ast.Call) and name_of(node.iter.func) in ("range", "count", "trange"):
            return frame.node is None or not has_parameters(frame.node)
        return True

    def delete(self, target: ast.expr, node: ast.Delete, frame: Frame) -> None:
        if not isinstance(target, ast.Subscript):
            return
        base = self.expression(target.value, frame)
        if not self._is_history(base, target.value):
            return
        index = target.slice
        front = isinstance(index, ast.Constant) and index.value in (0, 1)
        if isinstance(index, ast.Slice) and not is_negative(index.lower):
            stop = index.upper
            start = index.lower.value if isinstance(index.lower, ast.Constant) else 0
            front = stop is not None and not is_negative(stop)
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
                value = self.told_by_name(target, value, frame)
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

    def told_by_name(self, target: ast.Name, value: Value, frame: Frame) -> Value:
        """What nothing is known of is what the variable is called."""
        part = value.single if isinstance(value, Written) else None
        if part is None or part.kind is not Kind.UNKNOWN:
            return value
        meaning = meaning_of(target.id)
        if meaning is None or meaning.kind not in (Kind.RETRIEVAL, Kind.HISTORY, Kind.USER, Kind.STATE, Kind.MEDIA):
            return value
        words = f'{meaning.words} (the variable "{target.id}")'
        return written(Part(meaning.kind, meaning.change, part.span, words=words, path=frame.path, named=True))

    def assign_item(self, target: ast.Subscript, value: Value, source: ast.expr | None, frame: Frame) -> None:
        base = self.expression(target.value, frame)
        key = target.slice.value if isinstance(target.slice, ast.Constant) else None
        if isinstance(base, Fields):
            if isinstance(key, str):
                base.entries[key] = value
                base.keys[key] = self.span(target, frame)
            else:
                base.others.append(value)
                # a dictionary that the function itself fills keeps the order of what it is filled from
                base.literal = base.literal and _fills_own(target.value, frame)
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
        if any(counts_from_end(test) for test in frame.conditions) and self._is_history(base, message):
            self.sinks.rewritten(span, "an earlier message is replaced", frame.module, "compaction")
            return
        first = (
            isinstance(message, ast.Subscript) and isinstance(message.slice, ast.Constant) and message.slice.value == 0
        )
        named = isinstance(message, ast.Name) and bool(set(words_of(message.id)) & {"system", "sys"})
        asked = any(mentions_system(test) for test in frame.conditions)
        if isinstance(base, Fields):
            return  # a message that is written out in sight is judged with its list
        if first or named or asked:
            self.sinks.system_rewritten(entering(value, span), span, frame.path)

    def augment(self, node: ast.AugAssign, frame: Frame) -> None:
        value = self.expression(node.value, frame)
        target = node.target
        if not isinstance(node.op, ast.Add):
            return
        current = self.expression(target, frame)
        counts = isinstance(node.value, ast.Constant) and isinstance(node.value.value, int)
        if counts and isinstance(target, ast.Name) and target.id in frame.names:
            return  # counts within one call
        if counts and not isinstance(current, Rows):
            span = self.span(node, frame)
            counter = Part(
                Kind.COUNTER, Change.REQUEST, span, words=f'the counter "{source_of(target)}"', path=frame.path
            )
            self.assign(target, written(counter), None, frame)
            return
        if isinstance(current, Rows):
            current.elements += value.elements if isinstance(value, Rows) else [value]
            if frame.unordered or unordered_of(value) is not None:
                current.unordered = unordered_of(value) or frame.unordered[-1]
            self.sinks.grown(current)
            return
        added = entering(value, self.span(node.value, frame))
        if frame.unordered and isinstance(current, Written):
            added = (frame.unordered[-1], *added)
        if isinstance(target, ast.Attribute | ast.Subscript) and is_content(target) and isinstance(current, Written):
            whole = (
                current if current.items else Written((Part(Kind.STATIC, Change.PROCESS, self.span(target, frame)),))
            )
            self.assign(target, concat(whole.items, added), node.value, frame)
            return
        self.assign(target, concat(items_of(current), added), None, frame)


def _fills_own(target: ast.expr, frame: Frame) -> bool:
    """Whether a function fills a dictionary that it made: a local one, or the object's when it begins."""
    if isinstance(target, ast.Name):
        return frame.node is not None and target.id in frame.names
    begins = isinstance(frame.node, FunctionNode) and frame.node.name in BEGINNINGS
    return begins and isinstance(target, ast.Attribute)
