"""Jinja templates as Jinja's own parser reads them, with the place of every node. Nothing is rendered.

Jinja's nodes know their line only. Its lexer's tokens are therefore numbered by their offset in place of their line, so
that a node's ``lineno`` is the offset of its first token. Tags that are not Jinja's own (``{% generation %}``,
``{% now %}``, ``{% message %}``) are read as containers or statements instead of being refused.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from kvgate.records import record
from kvgate.source.text import Span, Text

if TYPE_CHECKING:
    from jinja2 import nodes

MAX_TEMPLATE_CHARACTERS: Final = 400_000
_OWN_TAGS: Final = frozenset(
    {"for", "if", "block", "extends", "print", "macro", "include", "from", "import", "set", "with", "autoescape",
     "call", "filter", "else", "elif", "pluralize", "raw"}
)  # fmt: skip
_OPEN: Final = {"(": ")", "[": "]", "{": "}"}


@record
class TemplateProblem:
    """Why a template could not be read, and where."""

    message: str
    span: Span


@record
class _Token:
    start: int
    end: int
    type: str
    value: str


class TemplateTree:
    """A parsed template.

    Attributes:
        text: the template with the place of each of its characters.
        root: Jinja's node; every node's ``lineno`` is an offset into the text.
    """

    def __init__(self, text: Text, root: nodes.Template, tokens: list[_Token]) -> None:
        self.text = text
        self.root = root
        self._tokens = tokens
        self._starts = [token.start for token in tokens]

    def span(self, node: nodes.Node) -> Span:
        """The place of a node."""
        start, last = node.lineno, node.lineno
        for below in _below(node):
            start, last = min(start, below.lineno), max(last, below.lineno)
        return self.slice(start, self._end(start, last))

    def slice(self, start: int, end: int) -> Span:
        return self.text.slice(start, end).span

    def _end(self, start: int, last: int) -> int:
        """The end of the token at ``last``, with the brackets that were opened since ``start`` closed."""
        index = bisect_left(self._starts, start)
        expected: list[str] = []
        while index < len(self._tokens):
            token = self._tokens[index]
            if token.value in _OPEN:
                expected.append(_OPEN[token.value])
            elif expected and token.value == expected[-1]:
                expected.pop()
            if token.start >= last and not expected:
                # an attribute's node begins at its dot
                following = self._tokens[index + 1] if index + 1 < len(self._tokens) else None
                return following.end if token.value in (".", "|") and following else token.end
            index += 1
        return self._tokens[-1].end if self._tokens else 0


def _below(node: nodes.Node) -> Iterator[nodes.Node]:
    for child in node.iter_child_nodes():
        yield child
        yield from _below(child)


def parse_template(text: Text) -> TemplateTree | TemplateProblem:
    """Parse a template."""
    if len(text.value) > MAX_TEMPLATE_CHARACTERS:
        limit = f"a template of {len(text.value):,} characters is not read (limit {MAX_TEMPLATE_CHARACTERS:,})"
        return TemplateProblem(limit, text.slice(0, 1).span)
    from jinja2 import Environment, TemplateSyntaxError
    from jinja2.lexer import TokenStream

    environment = Environment(keep_trailing_newline=True, autoescape=False)  # noqa: S701 (nothing is rendered)
    # Jinja counts a line end as one character
    source = text.value.replace("\r\n", " \n").replace("\r", "\n")
    try:
        lexed = list(environment.lexer.tokeniter(source, None))
    except TemplateSyntaxError as error:
        return TemplateProblem(_words(error), _line(text, error.lineno))
    tokens = list(_placed(source, lexed))
    stream = TokenStream(environment.lexer.wrap((token.start, token.type, token.value) for token in tokens), None, None)
    try:
        root = _parser(environment, stream, tokens).parse()
    except TemplateSyntaxError as error:
        return TemplateProblem(_words(error), text.slice(error.lineno, error.lineno + 1).span)
    except RecursionError:
        return TemplateProblem("the template is nested too deeply", text.slice(0, 1).span)
    return TemplateTree(text, root, tokens)


def _words(error: Any) -> str:
    message = str(error.message or "it cannot be read").strip().rstrip(".")
    return f"no Jinja template: {message[:1].lower()}{message[1:]}"


def _line(text: Text, line: int) -> Span:
    at = 0
    for _ in range(line - 1):
        at = text.value.find("\n", at) + 1
        if not at:
            return text.slice(0, 1).span
    return text.slice(at, at + 1).span


def _placed(source: str, lexed: list[tuple[int, str, str]]) -> Iterator[_Token]:
    """Tokens with their offsets; only white space can stand between two of them, since ``-`` takes it away."""
    at = 0
    for _, kind, value in lexed:
        start = source.find(value, at)
        if start < 0:
            start = at
        at = start + len(value)
        yield _Token(start, at, kind, value)


def _parser(environment: Any, stream: Any, tokens: list[_Token]) -> Any:
    from jinja2.parser import Parser

    class OffsetParser(Parser):
        def __init__(self) -> None:
            super().__init__(environment, "", None, None)
            self.stream = stream
            for tag in unknown:
                self.extensions[tag] = self.unknown_tag

        def unknown_tag(self, parser: Any) -> Any:
            return _read_unknown_tag(parser, unknown)

    names = [token for token in tokens if token.type not in ("whitespace",)]
    used = {
        following.value
        for token, following in pairwise(names)
        if token.type == "block_begin" and following.type == "name"
    }
    foreign = {
        tag for tag in used if tag not in _OWN_TAGS and not (tag.startswith("end") and tag[3:] in used | _OWN_TAGS)
    }
    unknown = {tag: f"end{tag}" in used for tag in foreign}
    return OffsetParser()


_STRFTIME: Final = re.compile(r"%[A-Za-z]")


def _read_unknown_tag(parser: Any, unknown: dict[str, bool]) -> Any:
    """A tag of an extension: ``now`` is a call, a tag with an end is a container, others are nothing.

    A container becomes a block that is named after the tag and its ``role``.
    """
    from jinja2 import nodes

    tag = next(parser.stream)
    strings: list[str] = []
    last = tag.lineno
    role = ""
    previous = ""
    while parser.stream.current.type != "block_end":
        if parser.stream.current.type == "eof":
            parser.fail(f"the tag {tag.value} is not closed", tag.lineno)
        token = next(parser.stream)
        if token.type == "string":
            strings.append(token.value)
            last = token.lineno
            if previous == "role":
                role = token.value
        if token.type == "name":
            previous = token.value
    if tag.value == "now":
        form = next((text for text in reversed(strings) if _STRFTIME.search(text)), "%Y-%m-%d")
        name = nodes.Name("strftime_now", "load", lineno=tag.lineno)
        constant = nodes.Const(form, lineno=last)
        call = nodes.Call(name, [constant], [], None, None, lineno=tag.lineno)
        return nodes.Output([call], lineno=tag.lineno)
    if not unknown.get(tag.value):
        return []
    body = parser.parse_statements((f"name:end{tag.value}",), drop_needle=True)
    while parser.stream.current.type not in ("block_end", "eof"):
        next(parser.stream)
    return nodes.Block(f"{tag.value}:{role}", body, False, False, lineno=tag.lineno)
