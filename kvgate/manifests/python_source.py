"""A Python file by the positions of its syntax tree, and what the nodes of such a tree say of themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

from kvgate.source.text import SourceFile, Span, Text

FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


class Source:
    """A file by the positions of Python's syntax trees (lines, and columns in UTF-8 bytes)."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file

    def offset(self, line: int, column: int) -> int:
        text = self.file.line_text(line)
        if not text.isascii():
            column = len(text.encode("utf-8")[:column].decode("utf-8", "ignore"))
        return self.file.line_starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt | ast.keyword | ast.arg) -> Span:
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return Span(self.file, self.offset(node.lineno, node.col_offset), self.offset(end_line, end_column))

    def text(self, node: ast.expr) -> Text:
        return Text.of_span(self.span(node))

    def written(self, node: ast.expr) -> str:
        return " ".join(self.span(node).text.split())

    def string(self, node: ast.Constant) -> Text:
        """A string constant, character by character where it is written so."""
        span = self.span(node)
        match = re.match(r"[rRbBuU]*(\"\"\"|'''|\"|')", span.text)
        if match:
            start, end = span.start + match.end(), span.end - len(match.group(1))
            if self.file.text[start:end] == node.value:
                return Text.of_span(Span(self.file, start, end))
        return Text.at(str(node.value), span)


def written_call(call: ast.Call) -> tuple[str, Mapping[str, ast.expr]]:
    """The last part of a call's name, and its keywords."""
    return called_name(call), {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def key_of(node: ast.AST) -> str | None:
    """``name``, ``self.name`` or ``self.settings.name`` as a key."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = key_of(node.value)
        return f"{owner}.{node.attr}" if owner is not None else None
    return None


def is_text(node: ast.AST) -> bool:
    """Whether an expression is a text by its form."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, (ast.Add, ast.Mod)) and (is_text(node.left) or is_text(node.right))
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and is_text(node.func.value)  # "...".format(x), "...".strip()
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def added_to(key: str, value: ast.expr) -> ast.expr | None:
    """What ``x = x + "more"`` and ``x = f"{x} more"`` add to a text or a list; None for other values."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and key_of(value.left) == key:
        return value.right if isinstance(value.right, ast.List) or is_text(value.right) else None
    if isinstance(value, ast.JoinedStr) and len(value.values) > 1:
        first = value.values[0]
        if isinstance(first, ast.FormattedValue) and first.format_spec is None and key_of(first.value) == key:
            return ast.copy_location(ast.JoinedStr(value.values[1:]), value)
    return None


def put_before(key: str, value: ast.expr) -> bool:
    """Whether a value is ``"more" + x``: a text that is put in front of what a name stands for."""
    return isinstance(value, ast.BinOp) and is_text(value.left) and key_of(value.right) == key


def is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def element_of(node: ast.expr, index: int) -> ast.expr:
    """``value[index]``, which nobody wrote."""
    return ast.copy_location(ast.Subscript(node, ast.copy_location(ast.Constant(index), node), ast.Load()), node)


def called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def place_of(node: ast.AST) -> tuple[int, int]:
    return (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))


def made_or_called(call: ast.Call) -> str | None:
    """The name of the function or class that is called: ``f(x)``, ``f.remote(x)``, ``Class.options(...).bind(x)``."""
    target = call.func
    if isinstance(target, ast.Attribute) and target.attr in ("bind", "remote"):
        target = target.value
        if isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
            target = target.func.value
    return target.id if isinstance(target, ast.Name) else None


def has_init(owner: ast.ClassDef | None) -> bool:
    return owner is not None and any(isinstance(item, FUNCTIONS) and item.name == "__init__" for item in owner.body)


def attributes_of(node: ast.expr) -> Iterator[ast.Attribute]:
    """The attributes of a chain, the last one first."""
    while isinstance(node, ast.Attribute):
        yield node
        node = node.value


def names_of(node: ast.expr) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id


def global_names(scope: ast.AST | None) -> frozenset[str]:
    if not isinstance(scope, FUNCTIONS):
        return frozenset()
    return frozenset(name for node in scope.body if isinstance(node, ast.Global) for name in node.names)


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    arguments = function.args
    return frozenset(item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))


def default_of(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    arguments = function.args
    ordered = [*arguments.posonlyargs, *arguments.args]
    for item, value in zip(reversed(ordered), reversed(arguments.defaults), strict=False):
        if item.arg == name:
            return value
    for item, keyword_value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if item.arg == name:
            return keyword_value
    return None
