"""What calls yield: functions of the project, methods of values, other packages."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Final

from kvgate.prompts.clock import moment_change, strftime_change
from kvgate.prompts.part import Change, Item, Kind, Part, parts_of, static
from kvgate.prompts.python import chat
from kvgate.prompts.python.expressions import PRESENT, Expressions
from kvgate.prompts.python.external import LISTINGS, TEXT_METHODS, known_call, makes_date, passes
from kvgate.prompts.python.frame import (
    CONFIGURATION,
    MAX_ITEMS,
    MAX_LINES_OF_HELPERS,
    Frame,
    ordered,
    set_part,
    unordered_of,
)
from kvgate.prompts.python.placeholders import as_fine_as, fill, formatted
from kvgate.prompts.python.tree import (
    FunctionNode,
    default_factory,
    dotted_name,
    method_of,
    name_of,
    negative_number,
    runs_once,
    starts_session,
)
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
    re_placed,
    unknown,
    written,
)
from kvgate.prompts.syntax import located
from kvgate.prompts.vocabulary import is_history_name, meaning_of, meaning_of_call, words_of
from kvgate.source.text import Span, Text

#: Words of functions that do something with what they are given, and yield something else.
DOES: Final = frozenset(
    {"run", "execute", "exec", "read", "load", "fetch", "post", "save", "write", "open", "send", "request", "query",
     "download", "upload", "check", "test", "tests", "dispatch", "process", "call", "glob", "iterdir", "exists"}
)  # fmt: skip
DRAWN: Final = frozenset({Kind.CLOCK, Kind.IDENTIFIER, Kind.RANDOM})
#: Words of names that hold tools; what one tool holds (its schema) keeps the order in which it is written.
REGISTRIES: Final = frozenset({"tools", "functions", "toolsets", "registry", "skills", "plugins"})
LOADS: Final = frozenset({"load", "read", "render", "template", "prompt", "text", "instructions", "persona", "rules"})


#: Words of functions that write what they are given.
FORMS: Final = frozenset(
    {"format", "render", "join", "str", "string", "text", "to", "build", "make", "truncate", "concat", "dump", "dumps",
     "escape", "clean", "strip", "rerank", "compress", "pack", "stringify", "prettify", "combine", "merge", "context",
     "docs", "documents", "chunks", "wrap", "indent", "dedupe", "sort", "filter", "limit", "trim"}
)  # fmt: skip


class Calls(Expressions):
    """Calls."""

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
                self.spread[id(node)] = value.keys
        result = self._called(node, args, kwargs, frame)
        if frame.over_history and isinstance(result, Fields):
            result.past = True
        self.sinks.called(
            chat.Call(node, dotted_name(node.func), args, kwargs, frame.path, frame.module, self.spans(node, frame))
        )
        return result

    def spans(self, node: ast.Call, frame: Frame) -> chat.ArgumentPlaces:
        """Places of a call's arguments."""
        return chat.ArgumentPlaces(node, frame.module.places, frame.place, self.spread.get(id(node), {}))

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
                if not self.worthwhile(callee, node):
                    return self._by_call_name(_function_name(callee), node, args, kwargs, frame)
                self.followed.add(id(callee.node))
                path = frame.path
                if isinstance(callee.node, FunctionNode):
                    if runs_once(callee.node):
                        path = ()
                    elif starts_session(callee.node.name):
                        path = path[:-1] if path else ()
                key = _signature(callee, args, kwargs)
                if key is not None and (known := self.results.get((key, path)) or self.results.get((key, None))):
                    return known
                result = self.enter(callee, args, kwargs, path)
                single = result.single if isinstance(result, Written) else None
                if key is not None and isinstance(result, Written) and result.items:
                    anywhere = all(part.change <= Change.PROCESS for part in parts_of(result.items))
                    self.results[key, None if anywhere else path] = result
                if single is not None and single.kind is Kind.UNKNOWN and isinstance(callee.node, FunctionNode):
                    named = self._by_call_name(callee.node.name, node, args, kwargs, frame)
                    told = isinstance(named, Written) and named.single is not None and named.single.kind is Kind.UNKNOWN
                    return result if told else named
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
                return self.external(name_of(node.func) or "", node, args, kwargs, frame)

    def worthwhile(self, function: Function, call: ast.Call) -> bool:
        """Whether following a call can say anything: it sends or builds something, or its value is used and short."""
        node = function.node
        if isinstance(node, ast.Lambda) or self.relevant(node, function.module):
            return True
        if call is self.discarded:
            return False
        return (node.end_lineno or node.lineno) - node.lineno <= MAX_LINES_OF_HELPERS

    def construct(self, cls: Class, node: ast.Call, args: list[Value], kwargs: dict[str, Value], frame: Frame) -> Value:
        instance = self.instance(cls)
        made = Instance(cls, dict(instance.attributes), ready=True)
        fields: list[str] = []
        for statement in cls.node.body:
            if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
                continue
            fields.append(statement.target.id)
            factory = default_factory(statement.value)
            if factory is not None:  # called anew for each object
                inner = Frame(cls.module, frame.path)
                called = ast.copy_location(ast.Call(factory, [], []), factory)
                value = self.invoke(self.expression(factory, inner), called, [], {}, inner)
                made.attributes[statement.target.id] = re_placed(value, self.span(factory, inner))
        init = method_of(cls.node, "__init__")
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
                return self.external(dotted_name(function), node, args, kwargs, frame)
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
                return self.external(dotted_name(function), node, args, kwargs, frame)

    def rows_method(
        self, node: ast.Call, function: ast.Attribute, rows: Rows, args: list[Value], frame: Frame
    ) -> Value:
        name = function.attr
        if name in ("append", "appendleft") and args:
            if name == "append":
                rows.elements.append(re_placed(args[0], self.span(node.args[0], frame)))
            else:
                rows.elements.insert(0, args[0])
        elif name == "extend" and args:
            unordered = unordered_of(args[0])
            if isinstance(args[0], Rows):
                rows.elements += args[0].elements
            else:
                rows.elements.append(args[0] if unordered is None else unknown(unordered.span))
            rows.unordered = rows.unordered or unordered
        elif name == "insert" and len(args) > 1:
            at = node.args[0].value if isinstance(node.args[0], ast.Constant) else negative_number(node.args[0])
            if at == -1 and rows.elements and chat.stands_for_many(rows.elements[-1]):
                at = len(rows.elements)  # one value stands for many messages
            rows.elements.insert(at if isinstance(at, int) else len(rows.elements), args[1])
        elif name in ("pop", "popleft"):
            self.popped(node, function, rows, frame)
        elif name == "sort":
            rows.unordered = None
            rows.elements = [ordered(element) for element in rows.elements]
        elif name in ("copy", "__iter__"):
            return rows
        elif name in ("clear",):
            rows.elements.clear()
        else:
            return self.external(dotted_name(function), node, args, {}, frame)
        if frame.unordered and name in ("append", "extend", "insert", "appendleft"):
            rows.unordered = frame.unordered[-1]
        self.sinks.grown(rows)
        if name in ("append", "extend", "insert", "appendleft"):
            self.sinks.listed(rows, frame.path, frame.module)
        return unknown(self.span(node, frame)) if name.startswith("pop") else NOTHING

    def popped(self, node: ast.Call, function: ast.Attribute, base: Value, frame: Frame) -> None:
        """``history.pop(0)``: the front of the history is cut off."""
        name = name_of(function.value) or ""
        written_out = isinstance(base, Rows) and any(chat.is_message(element) for element in base.elements)
        if not (is_history_name(name) or written_out) or not self._is_history(base, function.value):
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
            filled = not fields.literal or not (fields.entries or fields.others)
            if unordered is None and filled and _is_registry(node):
                words = f"{name}() of a dictionary that is filled while the program runs"
                unordered = Part(Kind.UNORDERED, Change.REQUEST, span, words=words, path=frame.path, via=chat.VIEW)
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
        if clock is not None and all(part.kind in (Kind.CLOCK, Kind.UNKNOWN) for part in parts_of(receiver.items)):
            return self.clock_method(node, name, clock, receiver, args, kwargs, span)
        if name in ("format", "format_map") and receiver.items:
            return self.format_text(node, receiver, args, kwargs, frame)
        if name == "join" and args:
            return self.joined(node, receiver, args[0], frame)
        if name == "replace" and len(args) > 1 and isinstance(args[0], Written) and args[0].text:
            return self.replaced(node, receiver, args[0].text, args[1], frame)
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
            if isinstance(function.value, ast.Name) and set(words_of(function.value.id)) & CONFIGURATION:
                return written(Part(Kind.STATIC, Change.PROCESS, span))
            return receiver
        history = receiver.first(Kind.HISTORY, Kind.CUT)
        if history is not None and name in ("append", "insert", "extend", "pop", "popleft", "appendleft"):
            return self.grown_history(node, function, receiver, args, frame)
        if chat.lists(name, node):
            return self.listing(name, span, frame)
        if name in TEXT_METHODS and receiver.items and not (receiver.first(Kind.UNKNOWN) and chat.remote(node)):
            return receiver
        if name in ("items", "values", "keys"):
            if receiver.first(Kind.UNORDERED):
                return receiver
            part = receiver.single
            registry = part is not None and part.kind is Kind.UNKNOWN and _is_registry(node)
            if registry or (part is not None and part.kind is Kind.TOOLS):
                words = f"{name}() of a dictionary that is filled while the program runs"
                return written(Part(Kind.UNORDERED, Change.REQUEST, span, words=words, path=frame.path, via=chat.VIEW))
            return receiver
        return self.external(dotted_name(function), node, args, kwargs, frame, receiver)

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
                if set(words_of(name)) & DOES:  # a file whose name says the time
                    return written(Part(Kind.STATIC, Change.PROCESS, span))
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

    def replaced(self, node: ast.Call, receiver: Written, old: str, new: Value, frame: Frame) -> Value:
        """``text.replace("{now}", stamp())``: a placeholder of one's own."""
        at = self.span(node.args[-1] if node.args else node, frame)  # one `*pair` is two arguments
        value = entering(new, at)
        items: list[Item] = []
        for item in receiver.items:
            if not isinstance(item, Part) or item.text is None or item.kind is not Kind.STATIC or old not in item.text:
                items.append(item)
                continue
            mapped = located(item.span, item.text)
            if "{{" not in item.text.replace(old, ""):
                self.rendered.add((mapped.span.path, mapped.span.start))
            begin = 0
            while (found := item.text.find(old, begin)) >= 0:
                if found > begin:
                    piece = mapped.slice(begin, found)
                    items.append(static(piece.value, piece.span))
                place = mapped.slice(found, found + len(old)).span
                items += [
                    replace(part, template=place) if isinstance(part, Part) and part.kind is not Kind.STATIC else part
                    for part in value
                ]
                begin = found + len(old)
            if begin < len(item.text):
                piece = mapped.slice(begin, len(item.text))
                items.append(static(piece.value, piece.span))
        return Written(tuple(items[:MAX_ITEMS]))

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
        if name == "strftime" and (receiver is None or set(words_of(dotted)) & PRESENT):
            form = args[0].text if args and isinstance(args[0], Written) else None
            other = args[1] if len(args) > 1 and isinstance(args[1], Written) else None
            clock = other.first(Kind.CLOCK) if other is not None else None
            change = strftime_change(form) if form is not None else Change.REQUEST
            part = Part(Kind.CLOCK, Change.REQUEST, span, words="", path=clock.path if clock else frame.path)
            return written(as_fine_as(part, change))
        if dotted == "random.shuffle" and args and isinstance(args[0], Rows):
            words = "a list that is shuffled"
            args[0].unordered = Part(Kind.UNORDERED, Change.REQUEST, span, words=words, path=frame.path)
            return NOTHING
        if makes_date(dotted):
            # the time of a record, or now where it is made of now
            clock = next(
                (found for value in args if isinstance(value, Written) and (found := value.first(Kind.CLOCK))), None
            )
            return written(clock.at(span)) if clock is not None else unknown(span)
        known = known_call(dotted, span)
        if known is not None:
            return written(replace(known, path=frame.path))
        match name:
            case "dumps" | "dump_json" | "to_json":
                return self.dumped(node, args, kwargs, span, frame)
            case "sorted" | "dictsort" | "natsorted":
                value = args[0] if args else NOTHING
                if isinstance(value, Rows):
                    return Rows([ordered(element) for element in value.elements], span)
                if isinstance(value, Fields):
                    return Rows([unknown(span)], span)
                return ordered(value)
            case "set" | "frozenset":
                elements = list(elements_of(args[0])) if args else []
                return Rows(elements, span, set_part(span, frame.path))
            case "list" | "tuple" | "iter" if args and isinstance(args[0], Rows):
                return Rows(list(args[0].elements), args[0].span, args[0].unordered)
            case "list" | "tuple" if not args:
                return Rows([], span)
            case "deque":
                return self.deque(node, args, kwargs, span, frame)
            case "dict" | "OrderedDict" | "defaultdict":
                base = args[0] if args and isinstance(args[0], Fields) else None
                entries = dict(base.entries) if base is not None else {}
                fields = Fields({**entries, **kwargs}, span=span, literal=base is not None or bool(kwargs) or not args)
                fields.keys.update({name: self.spans(node, frame)[name] for name in kwargs})
                self.sinks.mapped(fields, frame.path, frame.module)
                return fields
            case "enumerate" if args:
                return Rows([Rows([unknown(span), self.element(args[0], node, frame)])], span, unordered_of(args[0]))
            case "zip":
                return Rows([Rows([self.element(value, node, frame) for value in args])], span)
            case "map" | "filter" if len(args) > 1:
                element = self.element(args[1], node, frame)
                if name == "map" and isinstance(args[0], Function):
                    element = self.invoke(args[0], node, [element], {}, frame)
                return Rows([element], span, unordered_of(args[1]))
            case "len" | "range" | "isinstance" | "hasattr" | "print" | "any" | "all" | "sum" | "type" | "ord":
                return NOTHING
            case "input":
                return written(Part(Kind.INPUT, Change.REQUEST, span, words="what the user types", path=frame.path))
            case "next" if args and isinstance(args[0], Written) and args[0].first(Kind.COUNTER):
                return args[0]
            case "next" if args and isinstance(args[0], Rows):
                return self.element(args[0], node, frame)
            case "gather" | "wait":
                return Rows(args, span, next((found for value in args if (found := unordered_of(value))), None))
            case _:
                pass
        if chat.lists(name, node):
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
        if set(words_of(name)) & CONFIGURATION:
            return written(Part(Kind.STATIC, Change.PROCESS, span))
        owner = name_of(node.func.value) if isinstance(node.func, ast.Attribute) else None
        meaning = meaning_of_call(name, owner or "")
        if meaning is not None and meaning.kind not in (Kind.INPUT,):
            words = f"{meaning.words} ({name}())"
            if meaning.kind is Kind.HISTORY:
                words = "the history"
            return written(Part(meaning.kind, meaning.change, span, words=words, path=frame.path, named=True))
        if name in chat.ANSWERING:  # what a model says is not what it was told
            return written(Part(Kind.UNKNOWN, Change.REQUEST, span, path=frame.path))
        passed = [part for value in (*args, *kwargs.values()) for part in parts_of(items_of(value))]
        for kind in (Kind.CLOCK, Kind.IDENTIFIER, Kind.RANDOM, Kind.RETRIEVAL, Kind.HISTORY, Kind.USER, Kind.MEDIA):
            part = next((part for part in passed if part.kind is kind), None)
            if part is not None and kind is Kind.RETRIEVAL and not set(words_of(name)) & FORMS:
                part = None  # a model may have answered with something else
            if part is not None and kind in DRAWN and set(words_of(name)) & DOES:
                part = None  # what is read from a place is not the name of the place
            if part is not None:
                if kind is Kind.CLOCK and "date" in words_of(name) and "time" not in words_of(name):
                    part = as_fine_as(part, Change.DAY)
                return written(replace(part, span=span, origin=part.origin or part.span, via=f"{name}()"))
        if passed and all(part.kind is Kind.STATIC for part in passed) and set(words_of(name)) & LOADS:
            return written(Part(Kind.STATIC, Change.PROCESS, span))
        own = receiver.single if receiver is not None else None
        if own is not None and own.kind in (Kind.USER, Kind.RETRIEVAL, Kind.IDENTIFIER, Kind.RANDOM, Kind.COUNTER):
            return written(own.at(span))
        remote = chat.remote(node)
        return written(Part(Kind.UNKNOWN, Change.REQUEST, span, words=remote or "", path=frame.path))

    def dumped(self, node: ast.Call, args: list[Value], kwargs: dict[str, Value], span: Span, frame: Frame) -> Value:
        """``json.dumps``: the order of keys is that of the dictionary unless they are sorted."""
        value = args[0] if args else NOTHING
        sort = next((keyword.value for keyword in node.keywords if keyword.arg == "sort_keys"), None)
        if isinstance(sort, ast.Constant) and sort.value:
            return (
                Fields(value.entries, value.others, value.span, value.keys)
                if isinstance(value, Fields)
                else ordered(value)
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
        places = self.spans(node, frame)
        spans: dict[str, Span] = {}
        for value in args:
            if isinstance(value, Fields):
                given.update(value.entries)
                spans.update(value.keys)
        given.update(kwargs)
        spans.update({name: places[name] for name in kwargs})
        template.filled = True
        if template.style.startswith("jinja"):
            return self.rendered_template(template, given, spans, node, frame)
        rows = Rows([], self.span(node, frame))
        for role, items, span in template.messages:

            def value_of(name: str, index: int, spec: str, place: Span) -> tuple[Item, ...]:
                key = name.partition(".")[0]
                value = given.get(key)
                if isinstance(value, Function):
                    value = self.enter(value, [], {}, frame.path)
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
            read = read_template(text, arguments, path=frame.path, library=self.templates)
            if isinstance(read, TemplateProblem):
                continue
            self.rendered |= {(path, 0) for path in read.included}
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


def _is_registry(call: ast.Call) -> bool:
    """Whether a method is called on something that by its name holds tools."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return owner is not None and bool(set(words_of(name_of(owner) or "")) & REGISTRIES)


def _signature(function: Function, args: list[Value], kwargs: dict[str, Value]) -> tuple[object, ...] | None:
    """What a call of a function depends on; None where something that may change is handed in."""
    found: list[object] = [id(function.node), id(function.owner)]
    for name, value in (*((None, value) for value in args), *kwargs.items()):
        if isinstance(value, Written):
            found.append((name, value.items))
        elif isinstance(value, Instance | Class | Function | Package):
            found.append((name, id(value) if not isinstance(value, Package) else value.dotted))
        else:
            return None
    return tuple(found)


def _function_name(function: Function) -> str:
    return function.node.name if isinstance(function.node, FunctionNode) else ""
