"""Go's text/template, parsed: what Helm's templates are written in (https://pkg.go.dev/text/template).

The syntax tree keeps the place of every action, so that what is evaluated still knows where it was written.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final

from kvgate.records import record

MAX_NODES: Final = 20_000
MAX_DEPTH: Final = 60


class TemplateError(Exception):
    """A text that Go's parser would refuse, or that is beyond all measure."""


# -- expressions -------------------------------------------------------------------------------------------------------


@record
class Literal:
    value: str | int | float | bool | None


@record
class FieldPath:
    """``.Values.x``, ``$.x``, ``$name.x``, ``(pipeline).x``: a start and the keys after it."""

    start: Expression | str  # "." and "$name" as they are written
    keys: tuple[str, ...]


@record
class Call:
    name: str
    arguments: tuple[Expression, ...]


@record
class Pipeline:
    """Commands, each of which takes the result of the one before as its last argument."""

    commands: tuple[Expression, ...]
    assigns: tuple[str, ...] = ()
    declares: bool = False


Expression = Literal | FieldPath | Call | Pipeline


# -- nodes -------------------------------------------------------------------------------------------------------------


@record
class TextNode:
    """Characters ``[start, end)`` of the template, trimmed as the actions around them say."""

    start: int
    end: int


@record
class Action:
    """``{{ pipeline }}``; ``start`` and ``end`` are those of the whole action."""

    pipeline: Pipeline
    start: int
    end: int


@record
class Branch:
    """``if`` and ``with``: alternatives with their conditions (None for ``else``), each with its tag's place."""

    word: str
    alternatives: tuple[tuple[Pipeline | None, tuple[Node, ...], tuple[int, int]], ...]
    start: int
    end: int


@record
class Range:
    pipeline: Pipeline
    variables: tuple[str, ...]
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]
    start: int
    end: int


@record
class Include:
    """``{{ template "name" pipeline }}`` and ``{{ block }}``."""

    name: str
    pipeline: Pipeline | None
    start: int
    end: int


Node = TextNode | Action | Branch | Range | Include


@record
class Template:
    """A parsed text: its nodes and the templates it defines."""

    text: str
    nodes: tuple[Node, ...]
    defined: dict[str, tuple[Node, ...]] = field(default_factory=dict)


# -- lexing ------------------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<raw>`[^`]*`)"
    r"|(?P<char>'(?:[^'\\\n]|\\.)+')"
    r"|(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?))"
    r"|(?P<declare>:=)|(?P<assign>=)|(?P<pipe>\|)|(?P<open>\()|(?P<close>\))|(?P<comma>,)"
    r"|(?P<variable>\$\w*(?:\.\w+)*)"
    r"|(?P<field>(?:\.[A-Za-z_]\w*)+)"
    r"|(?P<dot>\.)"
    r"|(?P<word>[A-Za-z_]\w*)"
)


@record
class _Lexed:
    """One action: what is inside, its place, and whether it trims the text before and after it."""

    inside: str
    start: int
    end: int
    left: bool
    right: bool


def _actions(text: str) -> list[_Lexed]:
    found: list[_Lexed] = []
    at = 0
    while True:
        start = text.find("{{", at)
        if start < 0:
            return found
        left = text.startswith("{{-", start) and text[start + 3 : start + 4].isspace()
        begin = start + (3 if left else 2)
        comment = re.compile(r"\s*/\*.*?\*/\s*", re.DOTALL).match(text, begin)
        close = _closing(text, comment.end() if comment else begin)
        if close < 0:
            raise TemplateError("an action that is not closed")
        inside = text[begin:close]
        right = inside[-1:] == "-" and inside[-2:-1].isspace()
        found.append(_Lexed("" if comment else inside[: -1 if right else None], start, close + 2, left, right))
        if len(found) > MAX_NODES:
            raise TemplateError("a template of too many actions")
        at = close + 2


def _closing(text: str, at: int) -> int:
    """Where the ``}}`` of an action stands, strings looked over."""
    size = len(text)
    while at < size:
        char = text[at]
        if char == "}" and text.startswith("}}", at):
            return at
        if char in "\"'":
            end = at + 1
            while end < size and text[end] not in (char, "\n"):
                end += 2 if text[end] == "\\" else 1
            at = end + 1
        elif char == "`":
            end = text.find("`", at + 1)
            at = size if end < 0 else end + 1
        else:
            at += 1
    return -1


# -- parsing -----------------------------------------------------------------------------------------------------------


def parse_template(text: str) -> Template:
    """Parse a template, also one whose tags are those of Handlebars.

    Raises:
        TemplateError: see the class.
    """
    if "{{#" in text or "{{{" in text:
        text = _HANDLEBARS.sub(_as_go, text)
    return _Parser(text).parse()


# Tags that Go refuses: `{{{x}}}`, `{{#if x}}`, `{{/if}}`.
_HANDLEBARS: Final = re.compile(
    r"\{\{\{([^{}]*)\}\}\}|\{\{#(if|unless|each|with)\b([^{}]*)\}\}|\{\{/(?:if|unless|each|with)\s*\}\}"
)
_WORDS_OF_GO: Final = {"if": "if", "unless": "if not", "each": "range", "with": "with"}


def _as_go(match: re.Match[str]) -> str:
    """A tag of Handlebars in Go's words, of the same length: what is around it keeps its place."""
    if match[1] is not None:
        return f"{{{{ {match[1]} }}}}"
    inside = "end" if match[2] is None else _WORDS_OF_GO[match[2]] + match[3]
    return "{{" + inside.ljust(len(match[0]) - 4) + "}}"


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.actions = _actions(text)
        self.index = 0
        self.at = 0
        self.defined: dict[str, tuple[Node, ...]] = {}

    def parse(self) -> Template:
        nodes, closing = self.nodes(0)
        if closing is not None:
            raise TemplateError(f"an {closing} too many")
        return Template(self.text, nodes, self.defined)

    def nodes(self, depth: int) -> tuple[tuple[Node, ...], str | None]:
        """Nodes up to the ``else`` or ``end`` that closes them (which stays the current action)."""
        if depth > MAX_DEPTH:
            raise TemplateError("a template nested too deeply")
        result: list[Node] = []
        while True:
            action = self.actions[self.index] if self.index < len(self.actions) else None
            self.literal(result, action.start if action else len(self.text), action.left if action else False)
            if action is None:
                return tuple(result), None
            word = re.match(r"\s*(\w+)", action.inside)
            keyword = word.group(1) if word else ""
            rest = action.inside[word.end() :] if word else action.inside
            if keyword in ("end", "else"):
                return tuple(result), keyword
            self.take(action)
            if not action.inside.strip():
                continue
            if keyword in ("if", "with"):
                result.append(self.branch(keyword, rest, action, depth))
            elif keyword == "range":
                result.append(self.range(rest, action, depth))
            elif keyword in ("define", "block"):
                self.definition(keyword, rest, action, result, depth)
            elif keyword == "template":
                name, pipeline = self.reference(rest)
                result.append(Include(name, pipeline, action.start, action.end))
            elif keyword not in ("break", "continue"):
                result.append(Action(parse_pipeline(action.inside), action.start, action.end))

    def literal(self, result: list[Node], end: int, trims: bool) -> None:
        start = self.at
        if trims:
            end = start + len(self.text[start:end].rstrip())
        if start < end:
            result.append(TextNode(start, end))

    def take(self, action: _Lexed) -> None:
        self.index += 1
        self.at = action.end
        if action.right:
            rest = self.text[self.at :]
            self.at += len(rest) - len(rest.lstrip())
            if self.index < len(self.actions):
                self.at = min(self.at, self.actions[self.index].start)

    def branch(self, keyword: str, rest: str, action: _Lexed, depth: int) -> Branch:
        alternatives: list[tuple[Pipeline | None, tuple[Node, ...], tuple[int, int]]] = []
        condition: Pipeline | None = parse_pipeline(rest)
        start, tag = action.start, (action.start, action.end)
        while True:
            body, closing = self.nodes(depth + 1)
            alternatives.append((condition, body, tag))
            if closing is None:
                raise TemplateError(f"an {keyword} that is not closed")
            last = self.actions[self.index]
            self.take(last)
            if closing == "end":
                return Branch(keyword, tuple(alternatives), start, last.end)
            further = re.match(r"\s*else\s+(?:if|with)\b(.*)", last.inside, re.DOTALL)
            condition = parse_pipeline(further.group(1)) if further else None
            tag = (last.start, last.end)

    def range(self, rest: str, action: _Lexed, depth: int) -> Range:
        pipeline = parse_pipeline(rest)
        body, closing = self.nodes(depth + 1)
        otherwise: tuple[Node, ...] = ()
        if closing == "else":
            self.take(self.actions[self.index])
            otherwise, closing = self.nodes(depth + 1)
        if closing != "end":
            raise TemplateError("a range that is not closed")
        last = self.actions[self.index]
        self.take(last)
        plain = Pipeline(pipeline.commands)
        return Range(plain, pipeline.assigns, body, otherwise, action.start, last.end)

    def definition(self, keyword: str, rest: str, action: _Lexed, result: list[Node], depth: int) -> None:
        name, pipeline = self.reference(rest)
        body, closing = self.nodes(depth + 1)
        if closing != "end":
            raise TemplateError(f"a {keyword} that is not closed")
        last = self.actions[self.index]
        self.take(last)
        self.defined[name] = body
        if keyword == "block":
            result.append(Include(name, pipeline, action.start, last.end))

    def reference(self, rest: str) -> tuple[str, Pipeline | None]:
        match = re.match(r"\s*(?:\"([^\"]*)\"|`([^`]*)`)", rest)
        if not match:
            raise TemplateError("a template without a name")
        further = rest[match.end() :].strip()
        return match.group(1) or match.group(2) or "", parse_pipeline(further) if further else None


def parse_pipeline(text: str) -> Pipeline:
    """Parse what stands inside an action."""
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise TemplateError(f"{text[at : at + 10]!r} inside an action")
        kind = match.lastgroup or ""
        # a field right after a closing bracket belongs to it
        tokens.append((kind, match.group()))
        at = match.end()
    return _Tokens(tokens).pipeline()


class _Tokens:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    def peek(self, *, blanks: bool = False) -> tuple[str, str]:
        at = self.at
        while not blanks and at < len(self.tokens) and self.tokens[at][0] == "space":
            at += 1
        return self.tokens[at] if at < len(self.tokens) else ("", "")

    def next(self) -> tuple[str, str]:
        while self.at < len(self.tokens) and self.tokens[self.at][0] == "space":
            self.at += 1
        token = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        self.at += 1
        return token

    def pipeline(self) -> Pipeline:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TemplateError("an expression nested too deeply")
        assigns, declares = self.declaration()
        commands: list[Expression] = []
        while True:
            commands.append(self.command())
            if self.peek()[0] != "pipe":
                break
            self.next()
        if self.peek()[0] not in ("", "close"):
            raise TemplateError(f"{self.peek()[1]!r} inside an action")
        self.depth -= 1
        return Pipeline(tuple(commands), assigns, declares)

    def declaration(self) -> tuple[tuple[str, ...], bool]:
        """``$x :=``, ``$x, $y :=``, ``$x =``."""
        start = self.at
        names: list[str] = []
        while self.peek()[0] == "variable":
            names.append(self.next()[1])
            kind = self.peek()[0]
            if kind == "comma":
                self.next()
            elif kind in ("declare", "assign"):
                self.next()
                return tuple(names), kind == "declare"
            else:
                break
        self.at = start
        return (), False

    def command(self) -> Expression:
        kind, word = self.peek()
        if kind == "word" and word not in ("true", "false", "nil"):
            self.next()
            name = word
            arguments: list[Expression] = []
            while self.peek()[0] not in ("", "pipe", "close"):
                arguments.append(self.operand())
            return Call(name, tuple(arguments))
        first = self.operand()
        while self.peek()[0] not in ("", "pipe", "close"):  # a method or a value with arguments
            self.operand()
            first = Call("call", (first,))
        return first

    def operand(self) -> Expression:
        kind, word = self.next()
        found: Expression
        if kind == "open":
            found = self.pipeline()
            if self.next()[0] != "close":
                raise TemplateError("a bracket that is not closed")
            if self.peek(blanks=True)[0] == "field":
                found = FieldPath(found, tuple(self.next()[1][1:].split(".")))
            return found
        if kind == "string":
            return Literal(_unquoted(word))
        if kind == "raw":
            return Literal(word[1:-1])
        if kind == "char":
            return Literal(word[1:-1])
        if kind == "number":
            return Literal(_number(word))
        if kind == "variable":
            name, *keys = word.split(".")
            return FieldPath(name, tuple(keys))
        if kind == "field":
            return FieldPath(".", tuple(word[1:].split(".")))
        if kind == "dot":
            return FieldPath(".", ())
        if kind == "word":
            if word in ("true", "false"):
                return Literal(word == "true")
            return Literal(None) if word == "nil" else Call(word, ())
        raise TemplateError(f"{word!r} inside an action")


def _unquoted(text: str) -> str:
    import ast

    try:
        return str(ast.literal_eval(text))
    except (SyntaxError, ValueError):
        return text[1:-1]


def _number(text: str) -> int | float:
    plain = text.replace("_", "")
    try:
        return int(plain, 16) if plain.lower().startswith(("0x", "+0x", "-0x")) else int(plain)
    except ValueError:
        try:
            return float(plain)
        except ValueError:
            raise TemplateError(f"{text!r} inside an action") from None
