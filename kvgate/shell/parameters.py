"""What ``${parameter...}`` and ``$((...))`` mean, on plain strings."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from fnmatch import translate
from typing import Final

from kvgate.shell.value import Value

MAX_PATTERN: Final = 200
MAX_SUBJECT: Final = 5_000
_INTEGER_LIMIT: Final = 2**63

RUN_TIME_NAMES: Final = frozenset(
    {
        "BASHPID", "BASH_SOURCE", "EUID", "HOME", "HOSTNAME", "LINENO", "OLDPWD", "PPID", "PWD", "RANDOM", "SECONDS",
        "SHLVL", "UID", "USER",
    }
)  # fmt: skip

_NAME: Final = re.compile(r"[A-Za-z_]\w*|[0-9]+|[@*?$!#\-]")
_OPERATOR: Final = re.compile(r":?[-=+?]|##|#|%%|%|//|/|\^\^|\^|,,|,|@[A-Za-z]$|:")


_ARITHMETIC_NAME: Final = re.compile(
    r"\$\{(?P<braced>[A-Za-z_]\w*)(?::-(?P<default>[0-9]{1,18}))?\}"
    r"|\$(?P<plain>[A-Za-z_]\w*)|(?<![\w$])(?P<bare>[A-Za-z_]\w*)"
)


def split_operator(inside: str) -> tuple[str, str, str, int] | None:
    """Name, subscript, operator and where its word begins, of the inside of ``${...}``; None where it is no such thing.

    The operator of ``${#name}`` is ``length``.
    """
    length = len(inside) > 1 and inside[0] == "#" and re.fullmatch(r"#(?:[A-Za-z_]\w*(?:\[[^\]]*\])?|[0-9@*]+)", inside)
    at = 1 if length else 0
    if inside.startswith("!"):
        return None
    match = _NAME.match(inside, at)
    if not match:
        return None
    at = match.end()
    subscript = ""
    if at < len(inside) and inside[at] == "[":
        close = inside.find("]", at)
        if close < 0:
            return None
        subscript = inside[at + 1 : close].strip("\"'")
        at = close + 1
    if length:
        return match.group(), subscript, "length", at
    if at == len(inside):
        return match.group(), subscript, "", at
    operator = _OPERATOR.match(inside, at)
    if not operator:
        return None
    return match.group(), subscript, operator.group(), operator.end()


def matches_pattern(subject: str, pattern: str) -> bool:
    """Whether a shell pattern matches the whole subject."""
    if len(pattern) > MAX_PATTERN or len(subject) > MAX_SUBJECT:
        return subject == pattern
    return re.fullmatch(_regex(pattern), subject, re.DOTALL) is not None


_PLAIN_EXPRESSION: Final = re.compile(
    r"\^?(?:[\w /:@,.-]|\\[./-]|\[[\w ./-]+\][+*]?|\.\*|\((?:[\w /:@,.-]|\|)+\)\??|\|)*\$?"
)


def matches_expression(subject: str, expression: str) -> bool | None:
    """Whether an extended regular expression (``[[ x =~ expression ]]``) is found; None for all but plain ones."""
    plain = expression.strip("\"'")
    if len(plain) > MAX_PATTERN or len(subject) > MAX_SUBJECT or not _PLAIN_EXPRESSION.fullmatch(plain):
        return None
    return re.search(plain, subject) is not None


def _regex(pattern: str, *, lazy: bool = False) -> str:
    body = translate(re.sub(r"(?<=\*)\*+", "", pattern))
    body = body.removeprefix("(?s:").removesuffix(r")\Z").removesuffix(r")\z")
    return body.replace(".*", ".*?") if lazy else body


def apply_operator(value: str, operator: str, operand: str) -> str | None:
    """The string that a trimming, replacing, case or substring operator yields; None where it is not known."""
    if len(operand) > MAX_PATTERN or len(value) > MAX_SUBJECT:
        return None
    if operator in ("#", "##", "%", "%%"):
        return _trimmed(value, operator, operand)
    if operator in ("/", "//"):
        pattern, _, replacement = operand.partition("/")
        if not pattern:
            return value
        return re.sub(
            _regex(pattern), lambda _: replacement, value, count=0 if operator == "//" else 1, flags=re.DOTALL
        )
    if operator in ("^^", ",,") and not operand:
        return value.upper() if operator == "^^" else value.lower()
    if operator in ("^", ",") and not operand:
        return (value[:1].upper() if operator == "^" else value[:1].lower()) + value[1:]
    if operator == ":":
        match = re.fullmatch(r"\s*(-?\d{1,6})\s*(?::\s*(-?\d{1,6})\s*)?", operand)
        if not match:
            return None
        start = int(match.group(1))
        rest = value[start:]
        if match.group(2) is None:
            return rest
        return rest[: int(match.group(2))]
    return None


def _trimmed(value: str, operator: str, pattern: str) -> str:
    cuts = range(len(value) + 1)
    if operator in ("##", "%"):
        cuts = range(len(value), -1, -1)
    for cut in cuts:
        part = value[:cut] if operator[0] == "#" else value[cut:]
        if matches_pattern(part, pattern):
            return value[cut:] if operator[0] == "#" else value[:cut]
    return value


def evaluate_arithmetic(text: str, lookup: Callable[[str], Value | None]) -> int | str:
    """The integer an arithmetic expansion yields, or the reason why it is not known."""
    if len(text) > MAX_PATTERN:
        return "a long computation"
    missing: list[str] = []

    def number(match: re.Match[str]) -> str:
        name = match["braced"] or match["plain"] or match["bare"]
        value = lookup(name)
        if value is None and match["default"] is not None:
            return match["default"]
        if value is None or not value.resolved or not re.fullmatch(r"\s*-?[0-9]{1,18}\s*", value.value):
            missing.append(name)
            return "0"
        return f"({int(value.value)})"

    source = _ARITHMETIC_NAME.sub(number, text)
    if missing:
        return f"{missing[0]} is not known as a number"
    source = source.replace("/", "//").strip()
    try:
        result = _integer(ast.parse(source, mode="eval").body, 0)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return "a computation that is not followed here"
    return result


def _integer(node: ast.expr, depth: int) -> int:
    if depth > 50:
        raise ValueError
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_integer(node.operand, depth + 1)
    if isinstance(node, ast.BinOp):
        left, right = _integer(node.left, depth + 1), _integer(node.right, depth + 1)
        result: int
        if isinstance(node.op, ast.Add):
            result = left + right
        elif isinstance(node.op, ast.Sub):
            result = left - right
        elif isinstance(node.op, ast.Mult):
            result = left * right
        elif isinstance(node.op, ast.FloorDiv):
            result = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        elif isinstance(node.op, ast.Mod):
            result = abs(left) % abs(right) * (1 if left >= 0 else -1)
        elif isinstance(node.op, ast.Pow) and 0 <= right <= 62:
            result = left**right
        elif isinstance(node.op, ast.LShift) and 0 <= right <= 62:
            result = left << right
        else:
            raise ValueError
        if abs(result) >= _INTEGER_LIMIT:
            raise ValueError
        return result
    raise ValueError
