"""What expressions are."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Final

from kvgate.prompts.clock import prefix_change, seconds_change
from kvgate.prompts.part import Change, Item, Kind, Part, parts_of, static
from kvgate.prompts.python import chat
from kvgate.prompts.python.external import CACHES
from kvgate.prompts.python.frame import (
    CONFIGURATION,
    MAX_ITEMS,
    MAX_UNROLLED,
    Follower,
    Frame,
    concat,
    set_part,
    unordered_of,
)
from kvgate.prompts.python.placeholders import as_fine_as, formatted
from kvgate.prompts.python.tree import (
    FunctionNode,
    assigning_methods,
    constant_text,
    decorators_of,
    from_length,
    in_strides,
    is_negative,
    is_static_method,
    limit_of,
    method_of,
    negative_number,
    runs_once,
    source_of,
    starts_session,
)
from kvgate.prompts.python.values import (
    NOTHING,
    Class,
    Deferred,
    Fields,
    Function,
    Instance,
    Method,
    Package,
    ProjectModule,
    Rows,
    Value,
    Written,
    either,
    entering,
    re_placed,
    unknown,
    written,
)
from kvgate.prompts.vocabulary import (
    is_constant_name,
    is_history_name,
    is_prompt_name,
    meaning_of,
    words_of,
)

KNOWN_PACKAGES: Final = frozenset({"datetime", "time", "uuid", "random", "date", "json", "os", "timezone", "secrets"})


#: What has a name and is no person.
THINGS: Final = frozenset(
    {"repository", "repo", "project", "organization", "org", "branch", "file", "model", "tool", "channel", "team",
     "group", "product", "field", "column", "table", "category", "device", "entity", "agent", "bot", "dataset"}
)  # fmt: skip
PERSONS: Final = frozenset(
    {"user", "customer", "member", "patient", "caller", "profile", "account", "person", "author"}
)
#: Words of names that are about this moment.
PRESENT: Final = frozenset({"now", "current", "today", "utcnow", "todays", "date"})


_OF_PATHS: Final = frozenset({"name", "stem", "suffix", "parent", "parents", "parts"})


def _names_a_thing(name: str, node: ast.expr) -> bool:
    """Whether a name is that of something that is no person, by what it is read from."""
    owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else node
    words = {word for below in ast.walk(owner) for word in words_of(_word_of(below))} - set(words_of(name))
    return bool(words & THINGS) and not words & PERSONS


def _word_of(node: ast.AST) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case ast.Constant():
            return node.value if isinstance(node.value, str) else ""
        case _:
            return ""


class Expressions(Follower):
    """Expressions but calls."""

    # -- expressions -------------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr, frame: Frame) -> Value:
        self.step()
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
                    rows.unordered = set_part(self.span(node, frame), frame.path)
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
                items += formatted(written_items, constant_text(value.format_spec))
                frame.place = outer
                index += 1
        return Written(tuple(items[:MAX_ITEMS]))

    def name(self, node: ast.Name, frame: Frame) -> Value:
        found = self.lookup(node.id, frame)
        if found is not None:
            return found
        if node.id in KNOWN_PACKAGES:
            return Package(node.id)
        return self.named(node.id, node, frame)

    def lookup(self, name: str, frame: Frame) -> Value | None:
        if name in frame.names:
            found = frame.names[name]
            if isinstance(found, Deferred):
                found = frame.names[name] = self.resolved(found)
            return found
        if frame.closure is not None:
            return self.lookup(name, frame.closure)
        return self.global_value(frame.module, name)

    def named(self, name: str, node: ast.expr, frame: Frame, noun: str = "") -> Written:
        """What a name says that nothing else is known of."""
        span = self.span(node, frame)
        if is_constant_name(name):
            return written(Part(Kind.STATIC, Change.PROCESS, span))
        meaning = meaning_of(name)
        if meaning is None:
            return unknown(span)
        if noun and meaning.kind is Kind.CLOCK and not set(words_of(name)) & PRESENT:
            return unknown(span)  # the time of a record is written once
        if noun and meaning.kind is Kind.USER and _names_a_thing(name, node):
            return unknown(span)  # repository["full_name"]
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
                found = self.global_value(base.source, node.attr)
                return found if found is not None else self.named(node.attr, node, frame)
            case Class():
                method = method_of(base.node, node.attr)
                if method is not None:
                    return Function(method, base.module, self.instance(base) if not is_static_method(method) else None)
                return self.member(self.instance(base), node.attr, node, frame)
            case Fields():
                return base.entries.get(node.attr) or Method(base, node.attr, NOTHING)
            case Written():
                if isinstance(node.value, ast.Name) and set(words_of(node.value.id)) & CONFIGURATION:
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
            decorators = decorators_of(function)
            bound = Function(function, cls.module, owner)
            if decorators & {"property", "cached_property", "computed_field"}:
                self.followed.add(id(function))
                path = () if decorators & CACHES else frame.path
                return self.enter(bound, [], {}, path)
            return bound
        key = (id(owner.cls.node), name)
        if key not in self._assigning:
            self._assigning[key] = list(assigning_methods(owner.cls.node, name))
        for assigning in self._assigning[key]:
            if id(assigning) not in self._stack and assigning.name not in ("__init__",):
                path = (
                    ()
                    if starts_session(assigning.name) or runs_once(assigning)
                    else (f"{owner.cls.module.file.path}:{assigning.name}:{assigning.lineno}",)
                )
                owner.attributes[name] = NOTHING
                self.enter(Function(assigning, owner.cls.module, owner), [], {}, path)
                return owner.attributes[name]
        meaning = meaning_of(name)
        if meaning is not None and meaning.kind in (Kind.CLOCK, Kind.IDENTIFIER, Kind.RANDOM, Kind.COUNTER):
            return unknown(self.span(node, frame))  # set somewhere else, and who knows when
        return self.named(name, node, frame, "the attribute")

    def _find_method(self, cls: Class, name: str, depth: int = 0) -> tuple[FunctionNode, Class] | None:
        method = method_of(cls.node, name)
        if method is not None:
            return method, cls
        for base in cls.node.bases if depth < 5 else []:
            parent = self.class_of(base, cls.module)
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
            return self.named(name, node, frame, "the field") if not base.items else base
        if part.kind is Kind.CLOCK and name in _OF_PATHS:
            return unknown(span)  # of a file whose name says the time
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
            held = known.kind in (Kind.INPUT, Kind.STATIC) and not is_prompt_name(name)
            if part.kind in (Kind.RETRIEVAL, Kind.HISTORY, Kind.MEDIA) and held:
                return written(replace(part, span=span, origin=part.origin or part.span))
            return found
        if part.kind not in (Kind.UNKNOWN, Kind.STATIC):
            return written(replace(part, span=span, origin=part.origin or part.span))
        return found

    def subscript(self, node: ast.Subscript, frame: Frame) -> Value:
        base = self.expression(node.value, frame)
        if isinstance(node.slice, ast.Slice):
            return self.sliced(node, base, node.slice, frame)
        key = node.slice.value if isinstance(node.slice, ast.Constant) else negative_number(node.slice)
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
                    if isinstance(node.value, ast.Name) and set(words_of(node.value.id)) & CONFIGURATION:
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
        moving = is_negative(lower) or self._drops_a_few(node, lower, frame)
        if not moving and defined is not None:
            moving = from_length(defined, source_of(node.value)) and not in_strides(defined)
        if moving and in_strides(defined if defined is not None else lower):
            moving = False
        if not moving:
            return False
        return not self._rare(node, lower, frame)

    def _rare(self, node: ast.Subscript, lower: ast.expr, frame: Frame) -> bool:
        """Whether the front is dropped in large strides: ``if len(history) > 200: history = history[-50:]``."""
        subject = source_of(node.value)
        if frame.target != subject:
            return False  # cut anew for each request, whatever was kept
        if not isinstance(lower, ast.UnaryOp):
            return False
        kept = lower.operand
        for test in frame.conditions:
            limit = limit_of(test, subject)
            if limit is None:
                continue
            low, high = self._number(kept, frame), self._number(limit, frame)
            if low is not None and high is not None:
                return high - low >= chat.STRIDE_MESSAGES
            # two names are two numbers; a number made from the limit is near it
            return source_of(limit) not in source_of(kept)
        return False

    def _drops_a_few(self, node: ast.Subscript, lower: ast.expr, frame: Frame) -> bool:
        """``history = history[2:]`` where the history is too long: the oldest turn is dropped."""
        dropped = self._number(lower, frame)
        if dropped is None or not 0 < dropped < chat.STRIDE_MESSAGES:
            return False
        subject = source_of(node.value)
        return frame.target == subject and any(limit_of(test, subject) is not None for test in frame.conditions)

    def _number(self, node: ast.expr, frame: Frame) -> float | None:
        """A number that is written out, or that a name stands for."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, int | float) else None
        if isinstance(node, ast.BinOp):
            left, right = self._number(node.left, frame), self._number(node.right, frame)
            if left is None or right is None:
                return None
            return {ast.Add: left + right, ast.Sub: left - right, ast.Mult: left * right}.get(type(node.op))
        value = self.expression(node, frame) if isinstance(node, ast.Name | ast.Attribute) else None
        text = value.text if isinstance(value, Written) else None
        return int(text) if text is not None and text.isdecimal() and len(text) < 9 else None

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
                    rows.elements.append(re_placed(value, self.span(element.value, frame)))
            else:
                rows.elements.append(value)
        self.sinks.listed(rows, frame.path, frame.module)
        return rows

    def fields(self, node: ast.Dict, frame: Frame) -> Fields:
        fields = Fields(span=self.span(node, frame), past=bool(frame.over_history))
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
                placed = re_placed(found, self.span(value, frame)) if key.value == "content" else found
                fields.entries[key.value] = placed
                fields.keys[key.value] = self.span(value, frame)
                if key.value == "cache_salt":
                    self.sinks.salt(found, self.span(value, frame), frame.path)
            else:
                self.expression(key, frame)
                fields.others.append(found)
        self.sinks.mapped(fields, frame.path, frame.module, literal=True)
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
        known = True
        single: list[Value] | None = None
        cut: Part | None = None
        for position, generator in enumerate(node.generators):
            over = self.expression(generator.iter, inner)
            inner.over_history += self._is_history(over, generator.iter)
            unordered = unordered or unordered_of(over)
            known = known and isinstance(over, Rows | Fields)
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
            fields = Fields(span=span, unordered=unordered, literal=unordered is None and known)
            self.expression(node.key, inner)
            fields.others.append(self.expression(node.value, inner))
            return fields
        if isinstance(node, ast.SetComp):
            unordered = set_part(span, frame.path)
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
                    rows.elements.append(re_placed(value, self.span(side, frame)))
            self.sinks.listed(rows, frame.path, frame.module)
            return rows
        if isinstance(left, Written) and isinstance(right, Written):
            history = left.first(Kind.HISTORY, Kind.CUT) or right.first(Kind.HISTORY, Kind.CUT)
            if history is not None and left.single is not None and right.single is not None:
                return Rows([left, right], self.span(node, frame))
        return concat(entering(left, self.span(node.left, frame)), entering(right, self.span(node.right, frame)))

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
        if isinstance(left, Rows) and isinstance(right, Rows) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub):
            parts = [part for part in (left.unordered, right.unordered) if part is not None]
            unordered = max(parts, key=lambda part: len(part.path), default=None)
            return Rows([*left.elements, *right.elements], span, unordered)
        if isinstance(left, Fields) and isinstance(right, Fields) and isinstance(node.op, ast.BitOr):
            merged = {**left.entries, **right.entries}
            both = left.literal and right.literal
            return Fields(
                merged, [*left.others, *right.others], span, unordered=left.unordered or right.unordered, literal=both
            )
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
