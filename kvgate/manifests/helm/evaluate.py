"""Evaluates Go templates as far as values are known; what is not known stays as a hole, with its place.

Nothing is fetched and no cluster is asked. Where a condition is not known, the branch that starts vLLM or has vLLM's
arguments is taken, else the first; what stands in it by itself (a flag, an item of a list) is there only if the
condition holds.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from collections.abc import Mapping as MappingType
from collections.abc import Sequence as SequenceType
from typing import Any, Final

from kvgate.manifests.helm.go_template import (
    Action,
    Branch,
    Call,
    Expression,
    Literal,
    Node,
    Pipeline,
    Range,
    Template,
    TemplateError,
    TextNode,
    parse_template,
)
from kvgate.records import record
from kvgate.shell.value import Hole, Value
from kvgate.source.text import SourceFile, Span, Text, Unresolved
from kvgate.source.yaml_tree import Mapping, Scalar, Sequence, is_null, parse_embedded, scalar_bool

MAX_STEPS: Final = 60_000
MAX_OUTPUT: Final = 1_000_000
MAX_DEPTH: Final = 40
MAX_ITEMS: Final = 200

# Stand for the braces of a tag that a script's reader is to see, where YAML's would stumble over them.
OPENS: Final = "\ue002"
CLOSES: Final = "\ue003"

# What hardly another program than vLLM is given, where the command line begins in the image.
_ARGUES: Final = re.compile(
    r"--(?:max-model-len|gpu-memory-utilization|tensor-parallel-size|max-num-(?:seqs|batched-tokens))\b"
)
STARTS: Final = re.compile(r"vllm[\"',\s]+serve\b|vllm\.entrypoints|-m\s+dynamo\.(?!frontend)", re.IGNORECASE)


@record
class Unknown:
    """A value that the files do not determine.

    Attributes:
        indent: where it would begin on a line of its own.
        written: how a template names it.
    """

    reason: str
    indent: int | None = None
    written: str = "unknown"


Item = Any
"""What an expression yields: a node of the values, a :class:`Value` (a text), a plain Python value, or Unknown."""


@record
class _Frame:
    """Where text comes from: the template's file, and the definitions that it may include."""

    file: SourceFile
    template: Template


class Evaluator:
    """Evaluates the templates of one chart.

    Args:
        defined: named templates: name -> (the file they stand in, its parsed text, the nodes).
        roots: what ``.Values``, ``.Chart`` and the like stand for; names that are missing are unknown.
    """

    def __init__(
        self,
        defined: MappingType[str, tuple[SourceFile, Template, tuple[Node, ...]]],
        roots: MappingType[str, Item],
    ) -> None:
        self.defined = defined
        self.roots: dict[str, Item] = dict(roots)
        self.steps = 0
        self.size = 0
        self.depth = 0
        self.doubts = 0  # branches and loops around that may not be taken
        self.open: list[dict[str, Item]] = []  # mappings that may have more than is known

    def render(self, file: SourceFile, template: Template) -> Value:
        """The text of a template, its holes where something is not known.

        Raises:
            TemplateError: it grows beyond all measure.
        """
        output = _Output()
        variables: dict[str, Item] = {"$": self.roots}
        self.nodes(template.nodes, _Frame(file, template), self.roots, variables, output)
        return output.value(file)

    # -- nodes -------------------------------------------------------------------------------------------------------

    def nodes(
        self, nodes: SequenceType[Node], frame: _Frame, dot: Item, variables: dict[str, Item], output: _Output
    ) -> None:
        for node in nodes:
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise TemplateError("a template of too many steps")
            if isinstance(node, TextNode):
                text = Text.of_span(Span(frame.file, node.start, node.end))
                self.size += len(text)
                if self.size > MAX_OUTPUT:
                    raise TemplateError("a template of too much text")
                output.add(Value(text))
            elif isinstance(node, Action):
                result = self.pipeline(node.pipeline, dot, variables)
                if not node.pipeline.assigns:
                    self.write(result, Span(frame.file, node.start, node.end), output)
            elif isinstance(node, Branch):
                self.branch(node, frame, dot, variables, output)
            elif isinstance(node, Range):
                self.range(node, frame, dot, variables, output)
            else:
                argument = self.pipeline(node.pipeline, dot, variables) if node.pipeline is not None else None
                self.write(self.included(node.name, argument), Span(frame.file, node.start, node.end), output)

    def write(self, item: Item, place: Span, output: _Output) -> None:
        if isinstance(item, Unknown):
            if item.indent is not None:
                output.add(Value(Text.at("\n" + " " * item.indent, place)))
            output.unknown(place, item.reason)
            return
        value = text_of(item, place)
        self.size += len(value.text)
        if self.size > MAX_OUTPUT:
            raise TemplateError("a template of too much text")
        output.add(value)

    def branch(self, node: Branch, frame: _Frame, dot: Item, variables: dict[str, Item], output: _Output) -> None:
        open_: list[tuple[Pipeline | None, tuple[Node, ...], Item, tuple[int, int]]] = []
        for condition, body, tag in node.alternatives:
            result = self.pipeline(condition, dot, variables) if condition is not None else True
            verdict = truth(result)
            if verdict is False:
                continue
            inner = result if node.word == "with" and condition is not None else dot
            open_.append((condition, body, inner, tag))
            if verdict is True:
                break
        if not open_:
            return
        certain = len(open_) == 1 and self._is_certain(node, open_[0][1], dot, variables)
        condition, body, inner, tag = open_[0] if certain else self._chosen(open_, frame)
        scoped = _Scope(variables)
        if certain:
            self.nodes(body, frame, inner, scoped, output)
            return
        written = _plain(frame.file.text[slice(*open_[0][3])])
        self.uncertain(body, frame, inner, scoped, output, Span(frame.file, *tag), written)

    def _is_certain(self, node: Branch, body: tuple[Node, ...], dot: Item, variables: dict[str, Item]) -> bool:
        """Whether the one alternative that is left is sure to be taken."""
        for condition, other, _ in node.alternatives:
            if other is body:
                return condition is None or truth(self.pipeline(condition, dot, variables)) is True
        return False

    def _chosen(self, alternatives: list[tuple[Any, tuple[Node, ...], Item, tuple[int, int]]], frame: _Frame) -> Any:
        bodies = [_source(alternative[1], frame.template.text) for alternative in alternatives]
        for signs in (STARTS, _ARGUES):
            for alternative, body in zip(alternatives, bodies, strict=True):
                if signs.search(body):
                    return alternative
        return alternatives[0]

    def uncertain(
        self,
        body: SequenceType[Node],
        frame: _Frame,
        dot: Item,
        variables: dict[str, Item],
        output: _Output,
        tag: Span,
        condition: str,
    ) -> None:
        """Text that is there only if a condition holds which nobody knows."""
        inner = _Output()
        self.doubts += 1
        self.nodes(body, frame, dot, variables, inner)
        self.doubts -= 1
        value = inner.value(frame.file)
        if STARTS.search(value.value):
            output.add(value)
            return
        if output.in_block_scalar():
            # a script: its reader knows what a branch in it means, and whether its tags stand alone on their lines
            source = frame.file.text
            line = source.rfind("\n", 0, tag.start) + 1
            before = source[line : tag.start]
            break_ = "\n" + before if line and not before.strip() else ""
            for part in (f"{OPENS}if {condition}{CLOSES}", value, f"{OPENS}end{CLOSES}"):
                if isinstance(part, Value):
                    output.add(part)
                else:  # an empty line more would end a command in a folded text
                    output.add(Value(Text.at(part if output.at_line_start() else f"{break_}{part}", tag)))
            return
        stripped = value.value.strip()
        items = [item for line in stripped.splitlines() if (item := line.strip()) and not item.startswith("#")]
        if items and all(map(_PLAIN_ITEM.match, items)):
            output.add(_conditional_items(value, condition))
        elif output.at_line_start() or "\n" in stripped or _PAIR.match(stripped):
            output.add(value)
        elif stripped:
            output.conditional(value, tag, condition)

    def range(self, node: Range, frame: _Frame, dot: Item, variables: dict[str, Item], output: _Output) -> None:
        listed = self.pipeline(node.pipeline, dot, variables)
        if any(listed is item for item in self.open):
            listed = Unknown("what is put into it is not known")
        if isinstance(listed, Unknown):
            scoped = _Scope(variables)
            for name in node.variables:
                scoped[name] = listed
            written = "range " + _plain(frame.file.text[node.start : node.end].partition("}}")[0][2:])
            tag = Span(frame.file, node.start, node.start + frame.file.text[node.start : node.end].find("}}") + 2)
            self.uncertain(node.body, frame, listed, scoped, output, tag, written)
            return
        pairs = _pairs(listed)
        if not pairs:
            self.nodes(node.otherwise, frame, dot, _Scope(variables), output)
        for key, item in pairs[:MAX_ITEMS]:
            scoped = _Scope(variables)
            if len(node.variables) == 2:
                scoped[node.variables[0]], scoped[node.variables[1]] = key, item
            elif node.variables:
                scoped[node.variables[0]] = item
            self.nodes(node.body, frame, item, scoped, output)

    def included(self, name: str, argument: Item) -> Item:
        found = self.defined.get(name)
        if found is None:
            return Unknown(f'the template "{name}" is not among the files read')
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH:
                raise TemplateError("templates that include each other")
            file, template, nodes = found
            output = _Output()
            self.nodes(nodes, _Frame(file, template), argument, {"$": argument}, output)
            return output.value(file)
        finally:
            self.depth -= 1

    # -- expressions -------------------------------------------------------------------------------------------------

    def pipeline(self, pipeline: Pipeline, dot: Item, variables: dict[str, Item]) -> Item:
        self.depth += 1
        try:
            if self.depth > 3 * MAX_DEPTH:
                raise TemplateError("expressions nested too deeply")
            result: Item = None
            for number, command in enumerate(pipeline.commands):
                piped = () if number == 0 else (result,)
                if isinstance(command, Call):
                    result = self.call(command, dot, variables, piped)
                else:
                    result = self.expression(command, dot, variables)
            if pipeline.assigns:
                name = pipeline.assigns[-1]
                if pipeline.declares or not isinstance(variables, _Scope):
                    variables[name] = result
                else:
                    variables.assign(name, result)
            return result
        finally:
            self.depth -= 1

    def expression(self, node: Expression, dot: Item, variables: dict[str, Item]) -> Item:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise TemplateError("a template of too many steps")
        if isinstance(node, Literal):
            return node.value
        if isinstance(node, Pipeline):
            return self.pipeline(node, dot, variables)
        if isinstance(node, Call):
            return self.call(node, dot, variables, ())
        start: Item
        if isinstance(node.start, str):
            start = dot if node.start == "." else variables.get(node.start, Unknown(f"{node.start} is not set"))
        else:
            start = self.expression(node.start, dot, variables)
        path = node.start if isinstance(node.start, str) else "(...)"
        for key in node.keys:
            path = f"{path}.{key}" if path != "." else f".{key}"
            start = field_of(start, key, path)
        return start

    def call(self, node: Call, dot: Item, variables: dict[str, Item], piped: tuple[Item, ...]) -> Item:
        name = node.name
        if name in ("and", "or"):
            return self.logic(name, node.arguments, dot, variables, piped)
        arguments = [self.expression(argument, dot, variables) for argument in node.arguments]
        arguments += piped
        if name in ("include", "template"):
            if not arguments or isinstance(arguments[0], Unknown):
                return Unknown("the name of the template is not known")
            return self.included(plain_text(arguments[0]) or "", arguments[1] if len(arguments) > 1 else None)
        if name == "tpl":
            return self.tpl(arguments)
        if name == "set" and len(arguments) == 3 and isinstance(arguments[0], dict):
            return self.set(arguments[0], arguments[1], arguments[2])
        function = FUNCTIONS.get(name) or FUNCTIONS.get(name[4:5].lower() + name[5:] if name.startswith("must") else "")
        if function is None:
            return Unknown(f"the function {name} is not followed")
        if name not in _TAKES_UNKNOWN:
            for argument in arguments:
                if isinstance(argument, Unknown):
                    return argument
        try:
            return function(arguments)
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, ZeroDivisionError, OverflowError):
            return Unknown(f"{name} is not followed for these arguments")

    def logic(
        self,
        name: str,
        arguments: SequenceType[Expression],
        dot: Item,
        variables: dict[str, Item],
        piped: tuple[Item, ...],
    ) -> Item:
        """``and`` and ``or``: the first value that decides, unknown as soon as one before it is."""
        unknown: Unknown | None = None
        values: list[Item] = []
        for argument in arguments:
            values.append(self.expression(argument, dot, variables))
            if truth(values[-1]) is (name == "or") and unknown is None:
                return values[-1]
            if truth(values[-1]) is (name == "or"):
                return name == "or"
            if isinstance(values[-1], Unknown):
                unknown = unknown or values[-1]
        for item in piped:
            values.append(item)
            if isinstance(item, Unknown):
                unknown = unknown or item
        if unknown is not None:
            # one false value makes `and` false whatever the others are
            return False if name == "and" and any(truth(value) is False for value in values) else unknown
        return values[-1] if values else None

    def set(self, mapping: dict[str, Item], key: Item, value: Item) -> Item:
        """``set`` changes the mapping itself; what it may not do is not known afterwards."""
        name = plain_text(key)
        if name is None or (self.doubts and name not in mapping):
            self.open.append(mapping)
        if name is not None:
            mapping[name] = Unknown("it is set under a condition that is not known") if self.doubts else value
        return mapping

    def tpl(self, arguments: list[Item]) -> Item:
        if not arguments or isinstance(arguments[0], Unknown):
            return arguments[0] if arguments else Unknown("tpl of nothing")
        value = text_of(arguments[0], None)
        if "{{" not in value.value:
            return value
        file = SourceFile(value.span.path if value.text.pieces else "", value.value)
        try:
            template = parse_template(value.value)
        except TemplateError:
            return Unknown("a text that is no template")
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH:
                raise TemplateError("templates that include each other")
            output = _Output()
            dot = arguments[1] if len(arguments) > 1 else self.roots
            self.nodes(template.nodes, _Frame(file, template), dot, {"$": dot}, output)
            rendered = output.value(file)
            if not value.text.pieces:
                return rendered
            # the text of a value: all of it counts as written where the value is
            return Value(Text.at(rendered.value, value.span), rendered.holes)
        finally:
            self.depth -= 1


class _Scope(dict[str, Any]):
    """Variables of a block; a plain assignment reaches the block that declared the name."""

    def __init__(self, outer: dict[str, Item]) -> None:
        super().__init__(outer)
        self.outer = outer

    def assign(self, name: str, value: Item) -> None:
        self[name] = value
        if isinstance(self.outer, _Scope) and name in self.outer:
            self.outer.assign(name, value)
        elif name in self.outer:
            self.outer[name] = value


# -- output ------------------------------------------------------------------------------------------------------------

_PLAIN_ITEM: Final = re.compile(r"- (?!\s*[\w./-]+:(?:\s|$))\S")
_PAIR: Final = re.compile(r"[\w./\"'-]+:(?:\s|$)")
_BLOCK: Final = re.compile(r"(?:^|[:\-]\s+|:)[|>][-+0-9]*\s*(?:#.*)?$")


def ends_in_block_scalar(text: str, indent: int = 1_000) -> bool:
    """Whether a line indented by ``indent`` would stand inside a block scalar of YAML, by the text before it."""
    for line in reversed(text.split("\n")):
        if not line.strip():
            continue
        width = len(line) - len(line.lstrip(" "))
        if width < indent:
            if _BLOCK.search(line):
                return True
            indent = width
        if indent == 0:
            return False
    return False


class _Output:
    """Collects text with holes."""

    def __init__(self) -> None:
        self.parts: list[Value] = []
        self._tail = ""

    def add(self, value: Value) -> None:
        self.parts.append(value)
        self._tail = (self._tail + value.masked())[-6000:]

    def value(self, file: SourceFile) -> Value:
        return Value.join(self.parts) if self.parts else Value(Text.of_span(Span(file, 0, 0)))

    def at_line_start(self) -> bool:
        return not self._tail.rpartition("\n")[2].strip()

    def unknown(self, place: Span, reason: str) -> None:
        written = "{{ " + _plain(place.text) + " }}"
        whole = Text.at(written, place)
        self.add(Value(whole, (Hole(0, len(written), Unresolved(written, reason)),)))

    def conditional(self, value: Value, tag: Span, condition: str) -> None:
        written = f"{{{{ if {condition} }}}}{_plain_body(value.value.strip())}{{{{ end }}}}"
        lead = len(value.value) - len(value.value.lstrip())
        tail = len(value.value.rstrip())
        self.add(value.slice(0, lead))
        self.add(Value(Text.at(written, tag), (Hole(0, len(written), Unresolved(written, f"only if {condition}")),)))
        self.add(value.slice(tail, len(value.text)))

    def in_block_scalar(self) -> bool:
        """Whether what comes next stands inside a block scalar of YAML, by the lines before it."""
        return ends_in_block_scalar(self._tail)


def _conditional_items(value: Value, condition: str) -> Value:
    """A list's items, each of them there only if a condition holds."""
    parts: list[Value] = []
    at = 0
    for match in re.finditer(r"(?m)^([ \t]*- )(\S.*)$", value.value):
        inner, length = _plain_item(match.group(2))
        start = match.start(2)
        end = start + length
        parts.append(value.slice(at, start))
        written = f"{{{{ if {condition} }}}}{_plain_body(inner)}{{{{ end }}}}"
        hole = Hole(0, len(written), Unresolved(written, f"only if {condition}"))
        parts.append(Value(Text.at(written, value.slice(start, end).span), (hole,)))
        at = end
    return Value.join([*parts, value.slice(at, len(value.text))])


_TAG: Final = r"\{\{[^}\n]*+\}\}|\{(?!\{)"
_QUOTED: Final = re.compile(rf'"(?:{_TAG}|[^"\\{{\n]|\\.)*+"' + "|" + rf"'(?:{_TAG}|[^'{{\n]|'')*+'")


def _plain_item(body: str) -> tuple[str, int]:
    """What an item on a line means, and the length of it as written; quotes inside of tags do not end its own."""
    match = _QUOTED.match(body)
    if match is not None and not body[match.end() :].partition("#")[0].strip():
        inner = match.group()[1:-1]
        inner = re.sub(r'\\(["\\])', r"\1", inner) if body[0] == '"' else inner.replace("''", "'")
        return inner, match.end()
    comment = re.search(r"[ \t]#", body)
    inner = body[: comment.start()].rstrip() if comment is not None else body.rstrip()
    return inner, len(inner)


def _plain(action: str) -> str:
    """What an action says, on one line and without anything that ends it."""
    inside = action.removeprefix("{{").removesuffix("}}").strip("- \t\r\n")
    inside = re.sub(r"^(?:else\s+)?#?(?:if|with|range|each)\b\s*", "", inside.replace("#unless ", "not "))
    return " ".join(re.sub(r"[{}]", "", inside).split())[:200]


def _plain_body(text: str) -> str:
    return re.sub(r"\{\{|\}\}", "", text)


def _source(nodes: SequenceType[Node], text: str) -> str:
    starts = [node.start for node in nodes]
    ends = [node.end for node in nodes]
    return text[min(starts) : max(ends)] if nodes else ""


# -- items -------------------------------------------------------------------------------------------------------------


def field_of(item: Item, key: str, path: str) -> Item:
    """A key of a mapping; a missing one is nil."""
    if isinstance(item, Unknown):
        return Unknown(f"{path} is set in no file here", written=path)
    if isinstance(item, Mapping):
        return item.get(key)
    if isinstance(item, dict):
        if key in item:
            return item[key]
        # the names that Helm gives a template are known to be missing here, keys of `dict` are not there
        known = Unknown(f"{path} is known when the chart is installed", written=path)
        return known if item.get("__roots__") else None
    return None


def typed(node: Scalar) -> Any:
    """What a scalar of a values file means."""
    if not node.plain:
        return node.value
    if is_null(node):
        return None
    truth_value = scalar_bool(node)
    if truth_value is not None and node.value.lower() not in ("y", "n"):
        return truth_value
    if re.fullmatch(r"[-+]?(?:0|[1-9][0-9]{0,18})", node.value):
        return int(node.value)
    if re.fullmatch(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]{1,3})?", node.value):
        return float(node.value)
    return node.value


def plain(item: Item) -> Any:
    """An item as a plain Python value; a text loses its place."""
    if isinstance(item, Scalar):
        return typed(item)
    if isinstance(item, Value):
        return item.value
    return item


def plain_text(item: Item) -> str | None:
    """A text without its place; None for what is none, or not all of it known."""
    if isinstance(item, Value) and not item.resolved:
        return None
    value = plain(item)
    return value if isinstance(value, str) else None


def truth(item: Item) -> bool | None:
    """What ``if`` makes of an item; None where that is not known."""
    if isinstance(item, Unknown):
        return None
    if isinstance(item, Value):
        if item.resolved:
            return bool(item.value)
        return True if item.masked("\0").replace("\0", "").strip() else None
    if isinstance(item, Mapping):
        return bool(item.items())
    if isinstance(item, Sequence):
        return bool(item.items)
    return bool(plain(item))


def text_of(item: Item, place: Span | None) -> Value:
    """An item as Go prints it."""
    if isinstance(item, Unknown):
        return _open(item, place)
    if isinstance(item, Value):
        return item
    if isinstance(item, Scalar):
        value = typed(item)
        if isinstance(value, str):
            return Value(item.text)
        # Helm reads every number of a values file as a float
        text = go_float(value) if isinstance(value, int) and not isinstance(value, bool) else _printed(value)
        return Value(item.text if text == item.value else Text.at(text, item.span))
    if isinstance(item, (Mapping, Sequence, dict, list)):
        return json_text(item, item.span if isinstance(item, (Mapping, Sequence)) else place)
    return Value(_placed(_printed(item), place))


def _placed(text: str, place: Span | None) -> Text:
    return Text.at(text, place) if place is not None else Text(text, ())


def _open(item: Unknown, place: Span | None = None) -> Value:
    text = f"{{{{ {item.written} }}}}"
    return Value(_placed(text, place), (Hole(0, len(text), Unresolved(text, item.reason)),))


def _printed(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_float(value)
    return str(value)


def go_float(value: float) -> str:
    """A float as Go's ``%v`` prints it: ``1e+06`` for a million (strconv, format ``g``, shortest)."""
    if not math.isfinite(value):
        return {"inf": "+Inf", "-inf": "-Inf"}.get(str(value), "NaN")
    digits = repr(float(value))  # the shortest digits that read back as the same number
    if not value:
        return "0"
    power = int(f"{value:e}".partition("e")[2])
    if -4 <= power < 6:
        if "e" in digits:
            digits = f"{value:.20f}".rstrip("0")
        return digits.removesuffix(".0")
    mantissa = "".join(char for char in digits.partition("e")[0] if char.isdigit()).strip("0") or "0"
    sign = "-" if value < 0 else ""
    return (
        f"{sign}{mantissa[0]}{'.' + mantissa[1:] if mantissa[1:] else ''}e{'-' if power < 0 else '+'}{abs(power):02d}"
    )


_MARK: Final = re.compile("\ue004([0-9]+)\ue005")


def json_text(item: Item, place: Span | None = None, **style: Any) -> Value:
    """An item as JSON, with what is not known of it left open.

    Args:
        style: how ``json.dumps`` writes it.
    """
    parts: list[Value] = []
    written = json.dumps(_to_json(item, parts), ensure_ascii=False, **style)
    pieces: list[Value] = []
    at = 0
    marks = [match for match in _MARK.finditer(written) if int(match.group(1)) < len(parts)] if parts else []
    for match in marks:
        pieces += [Value(_placed(written[at : match.start()], place)), _escaped(parts[int(match.group(1))])]
        at = match.end()
    return Value.join([*pieces, Value(_placed(written[at:], place))])


def _to_json(item: Item, parts: list[Value]) -> Any:
    """An item as JSON has it; what is not known, or not all of it, is added to the parts and a mark stands for it."""
    from kvgate.manifests.flags import json_of_node

    if isinstance(item, (Mapping, Sequence, Scalar)):
        return json_of_node(item)
    if isinstance(item, Value) and item.resolved:
        return item.value
    if isinstance(item, (Unknown, Value)):
        parts.append(_open(item) if isinstance(item, Unknown) else item)
        return f"\ue004{len(parts) - 1}\ue005"
    if isinstance(item, dict):
        return {key: _to_json(value, parts) for key, value in item.items() if key != "__roots__"}
    if isinstance(item, list):
        return [_to_json(value, parts) for value in item]
    return item if isinstance(item, (str, int, float, bool, type(None))) else str(item)


def _pairs(item: Item) -> list[tuple[Item, Item]]:
    if isinstance(item, Mapping):
        return [(Value(entry.key.text), entry.value) for entry in sorted(item.items(), key=lambda e: e.key.value)]
    if isinstance(item, Sequence):
        return list(enumerate(item.items))
    if isinstance(item, dict):
        return sorted(item.items())
    if isinstance(item, list):
        return list(enumerate(item))
    value = plain(item)
    if isinstance(value, int) and not isinstance(value, bool):
        return [(number, number) for number in range(min(value, MAX_ITEMS))]
    return []


# -- YAML --------------------------------------------------------------------------------------------------------------

_SAFE: Final = re.compile(r"(?:[A-Za-z0-9_./+=]|-(?=\S))[A-Za-z0-9_./@%+=,:\- ]*")


def to_yaml(item: Item) -> Value:
    """``toYaml``: block style, each scalar with its place in the values."""
    parts: list[Value] = []
    _yaml(item, 0, parts, first=True)
    while parts and parts[-1].value == "\n":
        parts.pop()
    return Value.join(parts) if parts else Value(Text("", ()))


def _yaml(item: Item, indent: int, parts: list[Value], *, first: bool) -> None:
    """Write an item; ``first``: its first line goes on with the current one."""
    pad = " " * indent
    if isinstance(item, (Mapping, dict)):
        entries = [
            (entry.key.text, entry.value) for entry in sorted(item.items(), key=lambda e: e.key.value)
        ] if isinstance(item, Mapping) else [
            (Text(key, ()), value) for key, value in sorted(item.items()) if key != "__roots__"
        ]  # fmt: skip
        if not entries:
            parts.append(_at("{}", item))
        for number, (key, value) in enumerate(entries):
            anchor = key if key.pieces else None
            lead = "" if number == 0 and first else pad
            if number:
                parts.append(_plain_text("\n", anchor))
            parts.append(_plain_text(lead, anchor))
            parts.append(Value(key if _SAFE.fullmatch(key.value) else Text.at(json.dumps(key.value), _place(key))))
            parts.append(_plain_text(":", anchor))
            _yaml_value(value, indent, parts)
        return
    if isinstance(item, (Sequence, list)):
        items = item.items if isinstance(item, Sequence) else item
        if not items:
            parts.append(_at("[]", item))
        for number, value in enumerate(items):
            if number:
                parts.append(_at("\n", value))
            parts.append(_at(("" if number == 0 and first else pad) + "- ", value))
            _yaml(value, indent + 2, parts, first=True)
        return
    parts.append(_yaml_scalar(item))


def _yaml_value(value: Item, indent: int, parts: list[Value]) -> None:
    nested = isinstance(value, (Mapping, dict)) and (value.items() if isinstance(value, (Mapping, dict)) else ())
    listed = isinstance(value, (Sequence, list)) and (value.items if isinstance(value, Sequence) else value)
    if nested:
        parts.append(_at("\n" + " " * (indent + 2), value))
        _yaml(value, indent + 2, parts, first=True)
    elif listed:
        parts.append(_at("\n" + " " * indent, value))
        _yaml(value, indent, parts, first=True)
    else:
        parts.append(_at(" ", value))
        _yaml(value, indent, parts, first=True)


def _yaml_scalar(item: Item) -> Value:
    if isinstance(item, Unknown):
        return _open(item)
    if isinstance(item, Value):
        # what a helper made of values, in quotes
        return Value.join([_plain_text('"', item.text), _escaped(item), _plain_text('"', item.text)])
    if isinstance(item, Scalar):
        value = typed(item)
        if isinstance(value, str):
            if (
                typed(Scalar(item.span, item.value)) == item.value
                and _SAFE.fullmatch(item.value)
                and ": " not in item.value
            ):
                return Value(item.text)
            return Value(Text.at(json.dumps(item.value, ensure_ascii=False), item.span))
        if value is None:
            return Value(Text.at("null", item.span))
        return Value(item.text if isinstance(value, (int, float)) else Text.at(_printed(value), item.span))
    if item is None or isinstance(item, (int, float)):
        return Value(Text(json.dumps(item), ()))
    return Value(Text(json.dumps(str(item), ensure_ascii=False), ()))


def _escaped(value: Value) -> Value:
    """The inside of a double-quoted scalar."""
    if not re.search(r"[\"\\\n\r\t]", value.masked()):
        return value
    parts: list[Value] = []
    at = 0
    masked = value.masked()
    for match in re.finditer(r"[\"\\\n\r\t]", masked):
        parts.append(value.slice(at, match.start()))
        at = match.end()
        place = value.slice(match.start(), match.end()).text
        escape = json.dumps(match.group())[1:-1]
        parts.append(Value(Text.at(escape, place.span) if place.pieces else Text(escape, ())))
    return Value.join([*parts, value.slice(at, len(masked))])


def _place(text: Text) -> Span:
    return text.span


def _at(text: str, item: Item) -> Value:
    span = item.span if isinstance(item, (Mapping, Sequence, Scalar)) else None
    if isinstance(item, Value) and item.text.pieces:
        span = item.span
    return Value(Text.at(text, span) if span is not None else Text(text, ()))


def _plain_text(text: str, anchor: Text | None) -> Value:
    if anchor is not None and anchor.pieces:
        return Value(Text.at(text, anchor.span))
    return Value(Text(text, ()))


# -- functions ---------------------------------------------------------------------------------------------------------


def _indented(width: int, value: Value, *, newline: bool) -> Value:
    pad = " " * min(width, 200)
    parts: list[Value] = []
    text = value.masked()
    at = 0
    place = value.text
    if newline:
        parts.append(_plain_text("\n", place))
    while True:
        parts.append(_plain_text(pad, place))
        end = text.find("\n", at)
        if end < 0:
            parts.append(value.slice(at, len(text)))
            return Value.join(parts)
        parts.append(value.slice(at, end + 1))
        at = end + 1


def _on_new_line(items: list[Item], *, newline: bool = True) -> Item:
    width = _whole(items[0])
    if isinstance(items[-1], Unknown):
        return Unknown(items[-1].reason, min(width, 200))
    return _indented(width, text_of(items[-1], None), newline=newline)


def _trimmed(value: Value) -> Value:
    text = value.masked()
    lead = len(text) - len(text.lstrip())
    return value.slice(lead, max(len(text.rstrip()), lead))


def _quoted(items: list[Item]) -> Value:
    parts: list[Value] = []
    for item in items:
        if item is None:
            continue
        value = text_of(item, None)
        if parts:
            parts.append(Value(Text(" ", ())))
        parts += [_plain_text('"', value.text), _escaped(value), _plain_text('"', value.text)]
    return Value.join(parts) if parts else Value(Text("", ()))  # nil is left out


def _default(items: list[Item]) -> Item:
    if len(items) < 2:
        return items[0]
    fallback, given = items[0], items[-1]
    verdict = truth(given)
    if verdict is None:
        return given
    return given if verdict else fallback


def _string(item: Item) -> str:
    item = text_of(item, None) if isinstance(item, (Unknown, Mapping, Sequence, dict, list)) else item
    if isinstance(item, Value) and not item.resolved:
        raise ValueError
    return _printed(plain(item)) if not isinstance(plain(item), str) else str(plain(item))


def _same(left: Item, right: Item) -> bool:
    one, other = plain(left), plain(right)
    if any(isinstance(item, Value) and not item.resolved for item in (left, right)):
        raise ValueError
    numbers = isinstance(one, (int, float)) and isinstance(other, (int, float))
    if numbers and isinstance(one, bool) is isinstance(other, bool):
        return bool(one == other)
    return type(one) is type(other) and bool(one == other)


def _number(item: Item) -> float:
    value = plain(item)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (int, float)):
        return value
    return float(str(value).strip() or 0)


def _whole(item: Item) -> int:
    try:
        return int(_number(item))
    except ValueError:
        return 0


def _index(items: list[Item]) -> Item:
    current = items[0]
    for key in items[1:]:
        if isinstance(current, Unknown):
            return current
        name = plain(key)
        if isinstance(current, (Mapping, dict)):
            current = field_of(current, str(name), f"the key {name}")
        elif isinstance(current, Sequence):
            current = current.items[int(name)]
        else:
            current = current[int(name)]
    return current


def _dict(items: list[Item]) -> dict[str, Item]:
    return {_string(items[at]): items[at + 1] for at in range(0, len(items) - 1, 2)}


def _keys(item: Item) -> list[str]:
    return [entry.key.value for entry in item.items()] if isinstance(item, Mapping) else list(item)


def _entries(item: Item) -> dict[str, Item]:
    if isinstance(item, Mapping):
        return {entry.key.value: entry.value for entry in item.items()}
    return dict(item) if isinstance(item, dict) else {}


def _merged(items: list[Item], *, later_wins: bool) -> Item:
    result: dict[str, Item] = {}
    for item in reversed(items) if not later_wins else items:
        if isinstance(item, Unknown):
            return item
        result = _merged_two(result, _entries(item))
    return result


def _merged_two(base: dict[str, Item], other: dict[str, Item]) -> dict[str, Item]:
    result = dict(base)
    for key, value in other.items():
        inner = result.get(key)
        if isinstance(inner, (dict, Mapping)) and isinstance(value, (dict, Mapping)):
            result[key] = _merged_two(_entries(inner), _entries(value))
        else:
            result[key] = value
    return result


def copy_of(item: Item) -> Item:
    """A mapping or list that ``set`` may change without changing the one it is a copy of."""
    if isinstance(item, (dict, Mapping)):
        return {key: copy_of(value) for key, value in _entries(item).items()}
    return item


def _listed(item: Item) -> list[Item]:
    if isinstance(item, Sequence):
        return list(item.items)
    return list(item) if isinstance(item, list) else []


def _from_yaml(items: list[Item]) -> Item:
    value = text_of(items[-1], None)
    if not value.resolved or not value.text.pieces:
        raise ValueError
    documents = parse_embedded(value.text).documents
    return documents[0] if documents else {}


def _dug(items: list[Item]) -> Item:
    *keys, fallback, found = items
    for key in keys:
        found = field_of(found, _string(key), _string(key))
        if isinstance(found, Unknown):
            return found
        if found is None:
            return fallback
    return found


def _kebab(text: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_\s]+", "-", text).lower()


def _distinct(items: list[Item]) -> Item:
    found: list[Item] = []
    for item in _listed(items[-1]):
        if not any(_same(item, other) for other in found):
            found.append(item)
    return found


def _printf(items: list[Item]) -> Item:
    pattern = _string(items[0])
    arguments = list(items[1:])
    parts: list[Value] = []
    at = 0
    for match in re.finditer(r"%(?:[-+# 0]*[0-9]*(?:\.[0-9]+)?)([a-zA-Z%])", pattern):
        parts.append(Value(Text(pattern[at : match.start()], ())))
        at = match.end()
        verb = match.group(1)
        if verb == "%":
            parts.append(Value(Text("%", ())))
            continue
        item = arguments.pop(0) if arguments else None
        if verb == "q":
            parts.append(_quoted([item]))
        elif isinstance(item, Unknown):
            parts.append(text_of(item, None))
        elif verb in "dxX" or "." in match.group():
            number = _number(item)
            written = match.group() % (int(number) if verb in "dxX" else number)
            parts.append(Value(Text(written, ())))
        else:
            parts.append(text_of(item, None))
    parts.append(Value(Text(pattern[at:], ())))
    return Value.join(parts)


def _joined(items: list[Item]) -> Value:
    separator = _string(items[0])
    parts: list[Value] = []
    for item in _listed(items[1]):
        if parts:
            parts.append(Value(Text(separator, ())))
        parts.append(text_of(item, None))
    return Value.join(parts) if parts else Value(Text("", ()))


def _of_text(function: Callable[[str], str]) -> Callable[[list[Item]], Item]:
    """A function of one text; what it leaves as it is keeps its place."""

    def apply(items: list[Item]) -> Item:
        value = text_of(items[-1], None)
        if not value.resolved:
            raise ValueError
        changed = function(value.value)
        if changed == value.value:
            return value
        return Value(Text.at(changed, value.span)) if value.text.pieces else Value(Text(changed, ()))

    return apply


def _with_option(function: Callable[[str, str], str]) -> Callable[[list[Item]], Item]:
    def apply(items: list[Item]) -> Item:
        option = _string(items[0])
        return _of_text(lambda text: function(option, text))([items[-1]])

    return apply


def _kind_of(item: Item) -> str:
    value = plain(item)
    if isinstance(item, (Mapping, dict)):
        return "map"
    if isinstance(item, (Sequence, list)):
        return "slice"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "float64"
    return "string" if isinstance(value, str) else "invalid"


def _numbered(parts: SequenceType[str]) -> dict[str, Item]:
    """What ``split`` yields: ``(split "/" "a/b")._1`` is ``b``."""
    return {f"_{number}": part for number, part in enumerate(parts)}


# Expressions that match in a time that is bounded: no groups, one repetition at most, and a short text.
_PLAIN_EXPRESSION: Final = re.compile(r"\^?(?:\\[.\w+/-]|\[[^\]\[]*\]|[\w/:@ ,.=-])*[+*?]?(?:[\w/:@ ,=-]*)\$?")
MAX_MATCHED: Final = 1_000


def _matched(expression: Item, text: Item) -> re.Pattern[str]:
    source = _string(expression)
    if len(source) > MAX_MATCHED or len(_string(text)) > MAX_MATCHED or not _PLAIN_EXPRESSION.fullmatch(source):
        raise ValueError
    try:
        return re.compile(source)
    except re.error as error:
        raise ValueError from error


def _split(items: list[Item]) -> Item:
    most = _whole(items[2])
    text = _string(items[1])
    return [text] if most == 1 else _matched(items[0], items[1]).split(text, max(most - 1, 0))


def _literal(item: Item) -> str:
    text = _string(item)
    if "$" in text:
        raise ValueError
    return text


def _end(item: Item) -> int | None:
    end = _whole(item)
    return end if end >= 0 else None


_VERSION: Final = re.compile(r"v?([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?(?:[-+.].*)?")
_CONSTRAINT: Final = re.compile(r"\s*(>=|<=|!=|==|[<>=^~]?)\s*([^\s,]+)\s*,?")


def _satisfies(version: str, constraints: str) -> bool:
    """What ``semverCompare`` says, by the numbers of a version alone."""
    found = _release(version)
    at = 0
    while at < len(constraints):
        match = _CONSTRAINT.match(constraints, at)
        if match is None:
            raise ValueError
        sign, bound, at = match[1], _release(match[2]), match.end()
        above = (bound[0] + 1, 0, 0) if sign == "^" else (bound[0], bound[1] + 1, 0)
        holds = {
            "<": found < bound, "<=": found <= bound, ">": found > bound, ">=": found >= bound, "!=": found != bound,
            "^": bound <= found < above, "~": bound <= found < above,
        }.get(sign, found == bound)  # fmt: skip
        if not holds:
            return False
    return True


def _release(version: str) -> tuple[int, int, int]:
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        raise ValueError
    return int(match[1]), int(match[2] or 0), int(match[3] or 0)


def _truncated(items: list[Item]) -> Item:
    width = _whole(items[0])
    return _of_text(lambda text: text[:width] if width >= 0 else text[width:])([items[-1]])


def _replaced(items: list[Item]) -> Item:
    old, new = _string(items[0]), _string(items[1])
    return _of_text(lambda text: text.replace(old, new))([items[-1]])


def _converted(kind: Callable[[Item], float]) -> Callable[[list[Item]], Item]:
    def apply(items: list[Item]) -> Item:
        item = items[-1]
        number = kind(item)
        text = _printed(number)
        if isinstance(item, Scalar):
            return Value(item.text if text == item.value else Text.at(text, item.span)) if text else number
        return number

    return apply


def _arithmetic(function: Callable[[float, float], float]) -> Callable[[list[Item]], Item]:
    def apply(items: list[Item]) -> Item:
        result = _whole(items[0])
        for item in items[1:]:
            result = int(function(result, _whole(item)))
        if abs(result) > 2**62:
            raise ValueError
        return result

    return apply


def _ternary(items: list[Item]) -> Item:
    verdict = truth(items[-1])
    if verdict is None:
        return Unknown("a condition that is not known")
    return items[0] if verdict else items[1]


def _coalesced(items: list[Item]) -> Item:
    for item in items:
        verdict = truth(item)
        if verdict is None:
            return item
        if verdict:
            return item
    return None


def _negated(items: list[Item]) -> Item:
    verdict = truth(items[-1])
    return items[-1] if verdict is None else not verdict


def _contains(items: list[Item]) -> bool:
    return _string(items[0]) in _string(items[1])


def _has(items: list[Item]) -> bool:
    return any(_same(items[0], item) for item in _listed(items[1]))


def _has_key(items: list[Item]) -> Item:
    return items[1] if isinstance(items[1], Unknown) else _string(items[1]) in _keys(items[0])


_TAKES_UNKNOWN: Final = frozenset(
    {"default", "coalesce", "ternary", "not", "dict", "list", "index", "merge", "mergeOverwrite", "set", "toYaml",
     "nindent", "indent", "required", "empty", "append", "prepend", "tuple", "dig", "printf"}
)  # fmt: skip


def _required(items: list[Item]) -> Item:
    return items[-1]


def _through(function: Callable[[list[Item]], Item]) -> Callable[[list[Item]], Item]:
    """A function whose last argument, unknown, makes the result unknown."""

    def apply(items: list[Item]) -> Item:
        return items[-1] if isinstance(items[-1], Unknown) else function(items)

    return apply


FUNCTIONS: Final[dict[str, Callable[[list[Item]], Item]]] = {
    "default": _default,
    "coalesce": _coalesced,
    "ternary": _ternary,
    "required": _required,
    "not": _negated,
    "empty": lambda items: items[-1] if truth(items[-1]) is None else not truth(items[-1]),
    "quote": _quoted,
    "squote": lambda items: Value.join([_plain_text("'", None), text_of(items[-1], None), _plain_text("'", None)]),
    "toYaml": _through(lambda items: to_yaml(items[-1])),
    "toJson": lambda items: json_text(items[-1], separators=(",", ":")),
    "toRawJson": lambda items: json_text(items[-1], separators=(",", ":")),
    "toPrettyJson": lambda items: json_text(items[-1], indent=2),
    "nindent": _on_new_line,
    "indent": lambda items: _on_new_line(items, newline=False),
    "trim": lambda items: _trimmed(text_of(items[-1], None)),
    "trimSuffix": _with_option(lambda option, text: text.removesuffix(option)),
    "trimPrefix": _with_option(lambda option, text: text.removeprefix(option)),
    "trimAll": _with_option(lambda option, text: text.strip(option)),
    "trunc": _truncated,
    "base": _of_text(lambda text: text.rstrip("/").rpartition("/")[2] or text[:1] or "."),
    "dir": _of_text(lambda text: text.rpartition("/")[0] or ("/" if text.startswith("/") else ".")),
    "kebabcase": _of_text(_kebab),
    "snakecase": _of_text(lambda text: _kebab(text).replace("-", "_")),
    "nospace": _of_text(lambda text: re.sub(r"\s", "", text)),
    "lower": _of_text(str.lower),
    "upper": _of_text(str.upper),
    "title": _of_text(str.title),
    "replace": _replaced,
    "printf": _printf,
    "print": lambda items: Value.join([text_of(item, None) for item in items]),
    "println": lambda items: Value.join([text_of(item, None) for item in items]),
    "toString": lambda items: text_of(items[-1], None),
    "int": _converted(_whole),
    "int64": _converted(_whole),
    "float64": _converted(_number),
    "atoi": _converted(_whole),
    "eq": lambda items: any(_same(items[0], item) for item in items[1:]),
    "ne": lambda items: not _same(items[0], items[1]),
    "lt": lambda items: _number(items[0]) < _number(items[1]),
    "le": lambda items: _number(items[0]) <= _number(items[1]),
    "gt": lambda items: _number(items[0]) > _number(items[1]),
    "ge": lambda items: _number(items[0]) >= _number(items[1]),
    "add": _arithmetic(lambda left, right: left + right),
    "add1": lambda items: _whole(items[-1]) + 1,
    "sub": _arithmetic(lambda left, right: left - right),
    "mul": _arithmetic(lambda left, right: left * right),
    "div": _arithmetic(lambda left, right: left // right),
    "mod": _arithmetic(lambda left, right: left % right),
    "max": _arithmetic(max),
    "min": _arithmetic(min),
    "ceil": lambda items: math.ceil(_number(items[-1])),
    "floor": lambda items: math.floor(_number(items[-1])),
    "list": list,
    "tuple": list,
    "dict": _dict,
    "dig": _dug,
    "deepCopy": lambda items: copy_of(items[-1]),
    "fromYaml": _from_yaml,
    "fromJson": _from_yaml,
    "fromYamlArray": _from_yaml,
    "fromJsonArray": _from_yaml,
    "get": lambda items: field_of(items[0], _string(items[1]), _string(items[1])),
    "hasKey": _has_key,
    "keys": lambda items: _keys(items[-1]),
    "values": lambda items: list(_entries(items[-1]).values()),
    "index": _index,
    "len": lambda items: len(_pairs(items[-1])) if not isinstance(plain(items[-1]), str) else len(plain(items[-1])),
    "first": lambda items: _listed(items[-1])[0],
    "last": lambda items: _listed(items[-1])[-1],
    "rest": lambda items: _listed(items[-1])[1:],
    "initial": lambda items: _listed(items[-1])[:-1],
    "reverse": lambda items: _listed(items[-1])[::-1],
    "prepend": lambda items: items[0] if isinstance(items[0], Unknown) else [items[1], *_listed(items[0])],
    "compact": lambda items: [item for item in _listed(items[-1]) if truth(item) is not False],
    "uniq": _distinct,
    "without": lambda items: [item for item in _listed(items[0]) if not any(_same(item, no) for no in items[1:])],
    "sortAlpha": lambda items: sorted(_listed(items[-1]), key=_string),
    "has": _has,
    "append": lambda items: items[0] if isinstance(items[0], Unknown) else [*_listed(items[0]), items[1]],
    "concat": lambda items: [value for item in items for value in _listed(item)],
    "until": lambda items: list(range(min(_whole(items[-1]), MAX_ITEMS))),
    "join": _joined,
    "splitList": lambda items: list(_string(items[1]).split(_string(items[0]))),
    "split": lambda items: _numbered(_string(items[1]).split(_string(items[0]))),
    "splitn": lambda items: _numbered(_string(items[2]).split(_string(items[0]), max(_whole(items[1]) - 1, 0))),
    "regexSplit": _split,
    "regexMatch": lambda items: _matched(items[0], items[1]).search(_string(items[1])) is not None,
    "regexReplaceAll": lambda items: _matched(items[0], items[1]).sub(lambda _: _literal(items[2]), _string(items[1])),
    "substr": lambda items: _of_text(lambda text: text[max(_whole(items[0]), 0) : _end(items[1])])([items[2]]),
    "semverCompare": lambda items: _satisfies(_string(items[1]), _string(items[0])),
    "b64dec": lambda items: base64.b64decode(_string(items[-1]), validate=True).decode(),
    "cat": lambda items: _joined([" ", items]),
    "toStrings": lambda items: [text_of(item, None) for item in _listed(items[-1])],
    "any": lambda items: any(truth(item) for item in items),
    "all": lambda items: all(truth(item) for item in items),
    "omit": lambda items: {k: v for k, v in _entries(items[0]).items() if k not in {_string(i) for i in items[1:]}},
    "pick": lambda items: {k: v for k, v in _entries(items[0]).items() if k in {_string(i) for i in items[1:]}},
    "set": lambda items: {**_entries(items[0]), _string(items[1]): items[2]},
    "merge": lambda items: _merged(items, later_wins=False),
    "mergeOverwrite": lambda items: _merged(items, later_wins=True),
    "contains": _contains,
    "hasPrefix": lambda items: _string(items[1]).startswith(_string(items[0])),
    "hasSuffix": lambda items: _string(items[1]).endswith(_string(items[0])),
    "kindIs": lambda items: _kind_of(items[1]) == _string(items[0]),
    "kindOf": lambda items: _kind_of(items[0]),
    "typeOf": lambda items: _kind_of(items[0]),
    "lookup": lambda items: {},
}
