"""Questions to Python's syntax tree that need no values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from kvgate.prompts.python.external import CACHES
from kvgate.prompts.vocabulary import is_history_name, words_of

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_SESSION_STARTS: Final = frozenset(
    {"start", "new", "create", "open", "begin", "reset", "init", "setup", "initialize", "on"}
)
_SESSIONS: Final = frozenset({"session", "conversation", "chat", "thread", "dialog", "dialogue", "startup", "call"})
_INPUTS: Final = frozenset(
    {"input", "receive", "receive_text", "receive_json", "recv", "readline", "prompt_ask", "ask", "get_message",
     "prompt"}
)  # fmt: skip


def name_of(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def dotted_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return f"{base}.{node.attr}" if base else node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call):
        return dotted_name(node.func)
    if isinstance(node, ast.Await | ast.Subscript):
        return dotted_name(node.value)
    return ""


def source_of(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except (RecursionError, ValueError):
        return ""


def is_content(node: ast.Attribute | ast.Subscript) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "content"
    return isinstance(node.slice, ast.Constant) and node.slice.value == "content"


def constant_text(node: ast.expr | None) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(value.value) for value in node.values if isinstance(value, ast.Constant))
    return ""


def annotation_text(node: ast.expr | None) -> str:
    if node is None:
        return ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    text = source_of(node)
    for suffix in (" | None", "Optional[", "]"):
        text = text.replace(suffix, "")
    return text


def method_of(node: ast.ClassDef, name: str) -> FunctionNode | None:
    for statement in node.body:
        if isinstance(statement, FunctionNode) and statement.name == name:
            return statement
    return None


def assigning_methods(node: ast.ClassDef, attribute: str) -> Iterator[FunctionNode]:
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
    yield from sorted(found, key=lambda method: not starts_session(method.name))


def decorators_of(node: FunctionNode) -> set[str]:
    found = set()
    for decorator in node.decorator_list:
        name = name_of(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if name:
            found.add(name)
    return found


def runs_once(node: FunctionNode) -> bool:
    return bool(decorators_of(node) & CACHES)


def is_static_method(node: FunctionNode | ast.Lambda) -> bool:
    return isinstance(node, FunctionNode) and "staticmethod" in decorators_of(node)


def starts_session(name: str) -> bool:
    words = words_of(name)
    return bool(words) and words[0] in _SESSION_STARTS and bool(set(words) & _SESSIONS)


def has_parameters(node: FunctionNode | ast.Lambda) -> bool:
    arguments = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return any(name not in ("self", "cls", "args", "argv") for name in arguments)


def is_main_guard(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and isinstance(test.comparators[0], ast.Constant)
    )


def is_type_checking(test: ast.expr) -> bool:
    return name_of(test) == "TYPE_CHECKING"


def reads_input(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = name_of(node.func)
    if name in _INPUTS:
        return name not in ("ask", "prompt") or isinstance(node.func, ast.Attribute)
    return False


def emptiness(test: ast.expr) -> ast.expr | None:
    """What a test finds empty or missing."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        other = test.comparators[0]
        if isinstance(test.ops[0], ast.Is | ast.Eq) and isinstance(other, ast.Constant | ast.List):
            if isinstance(test.left, ast.Call) and name_of(test.left.func) == "len" and test.left.args:
                return test.left.args[0]
            return test.left
        if isinstance(test.ops[0], ast.NotIn):
            return ast.Subscript(other, test.left, ast.Load())
    return None


def is_negative(node: ast.expr | None) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)


def default_factory(node: ast.expr | None) -> ast.expr | None:
    """What makes the default of a field: ``field(default_factory=uuid4)``."""
    if not isinstance(node, ast.Call) or name_of(node.func) not in ("field", "Field", "attrib", "ib"):
        return None
    return next((keyword.value for keyword in node.keywords if keyword.arg in ("default_factory", "factory")), None)


def negative_number(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, int) else None
    return None


def from_length(node: ast.expr, subject: str | None = None) -> bool:
    """Whether an index is counted from the length of a list: ``max(0, len(messages) - 20)``."""
    if isinstance(node, ast.Call) and name_of(node.func) == "max":
        return any(from_length(argument, subject) for argument in node.args)
    if isinstance(node, ast.IfExp):
        return from_length(node.body, subject) or from_length(node.orelse, subject)
    if not isinstance(node, ast.BinOp):
        return False
    length = node.left
    if isinstance(node.op, ast.Sub) and isinstance(length, ast.Call) and name_of(length.func) == "len" and length.args:
        return subject is None or source_of(length.args[0]) == subject
    return from_length(node.left, subject)


def in_strides(node: ast.expr) -> bool:
    return any(
        isinstance(below, ast.BinOp) and isinstance(below.op, ast.FloorDiv | ast.Mod) for below in ast.walk(node)
    )


def limit_of(test: ast.expr, subject: str) -> ast.expr | None:
    """The limit in a test ``len(subject) > limit``."""
    for below in ast.walk(test):
        if isinstance(below, ast.Compare) and len(below.ops) == 1 and isinstance(below.ops[0], ast.Gt | ast.GtE):
            left = below.left
            if (
                isinstance(left, ast.Call)
                and name_of(left.func) == "len"
                and left.args
                and source_of(left.args[0]) == subject
            ):
                return below.comparators[0]
    return None


def without_end(node: ast.expr) -> bool:
    """Whether a loop runs over a history without its end: ``messages[:-5]``."""
    return any(
        isinstance(below, ast.Subscript)
        and isinstance(below.slice, ast.Slice)
        and is_negative(below.slice.upper)
        and is_history_name(name_of(below.value) or "")
        for below in ast.walk(node)
    )


def budgeted(node: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop takes elements from the end until something is full: ``for m in reversed(x): ... break``."""
    backwards = isinstance(node.iter, ast.Call) and name_of(node.iter.func) == "reversed"
    if isinstance(node.iter, ast.Subscript) and isinstance(node.iter.slice, ast.Slice):
        backwards = negative_number(node.iter.slice.step) == -1 if node.iter.slice.step is not None else False
    return backwards and any(isinstance(below, ast.Break) for below in ast.walk(node))


def counts_from_end(test: ast.expr) -> bool:
    """Whether a test compares a position with the end of a list: ``i < len(messages) - 5``."""
    return any(
        isinstance(below, ast.Compare) and any(from_length(operand) for operand in (below.left, *below.comparators))
        for below in ast.walk(test)
    )


def mentions_system(test: ast.expr) -> bool:
    return any(isinstance(below, ast.Constant) and below.value == "system" for below in ast.walk(test))
