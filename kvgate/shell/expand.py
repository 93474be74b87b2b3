"""Expansion before any shell sees the text: Kubernetes' ``$(VAR)`` and Compose's ``${VAR:-default}``.

Kubernetes: ``third_party/forked/golang/expansion/expand.go`` (``$$`` is a dollar, an unknown name stays as written).
Compose: the interpolation of the Compose specification, "Interpolation"; a name without value and default, which
Compose replaces by nothing with a warning, is unresolved here: somebody sets it elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from kvgate.patterns import regex
from kvgate.shell.value import Hole, Value
from kvgate.shell.words import closing_bracket
from kvgate.source.text import Text, Unresolved

MAX_NESTING: Final = 20
_NAME: Final = regex(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE: Final = regex(r"\$(?:\$|\(([^()\s]*)\))")
# Nothing is a placeholder without one of these.
_MARKS: Final = ("$", "{{", "<", "__", "PLACEHOLDER")
_PLACEHOLDER: Final = regex(
    r"\{\{ if (?P<condition>[^{}\n]*) \}\}[^\n]*?\{\{ end \}\}"
    r"|\$\{(?P<envsubst>[A-Za-z_][A-Za-z0-9_.\-]*)(?::?[-=][^{}]*)?\}"
    r"|\A\$(?P<bare>[A-Z_][A-Z0-9_]+)\Z"
    r"|\{\{[^{}\n]*\}\}|\$\[\[[^\]\n]*\]\]"
    r"|(?<![^\s=\"',:/])<[A-Za-z][A-Za-z0-9_ .\-/]*>(?![^\s\"',:/])"
    r"|(?<![^\s=])_{3,}(?!\S)|\b__[A-Z][A-Z0-9_]*__\b|\b(?:[A-Z0-9]+_)*PLACEHOLDER(?:_[A-Z0-9]+)*\b"
)


_UNSET: Final = " is set in no file here"
_ASKED: Final = " is asked for at run time"
_ARGUMENT: Final = "argument "
_ONLY_IF: Final = " is set only if "


def unset(name: str) -> str:
    """Why a variable has no value."""
    return f"{name}{_UNSET}"


def argument(name: str) -> str:
    """Why an argument of a script has no value."""
    return f"{_ARGUMENT}{name} of the script"


def asked(name: str) -> str:
    """Why a variable has no value that somebody types in."""
    return f"{name}{_ASKED}"


def set_only_if(name: str, condition: str) -> str:
    """Why a variable has no value that is set on a condition which does not hold without any settings."""
    return f"{name}{_ONLY_IF}{condition}"


def is_unset(unresolved: Unresolved) -> bool:
    """Whether a text is unresolved since nobody sets the variable, gives the argument or answers what is asked."""
    reason = unresolved.reason
    return reason.endswith((_UNSET, _ASKED)) or reason.startswith(_ARGUMENT) or _ONLY_IF in reason


def mark_placeholders(value: Value, *, variables: bool = True) -> Value:
    """A text that no shell and no Compose reads, with what a later step fills in (``${X}``, ``{{ x }}``) as holes.

    Args:
        variables: whether ``${X}`` is one of them, rather than something that the reader expands itself.
    """
    text = value.text.value
    if not any(mark in text for mark in _MARKS):
        return value
    holes: list[Hole] = []
    json_like = text.lstrip()[:1] in ("{", "[")
    for match in _PLACEHOLDER.finditer(text):
        if json_like and match.group().startswith("<"):
            continue  # a tag of a chat template: {"reasoning_start_str": "<think>"}
        name = match.group("envsubst") or match.group("bare")
        if name and not variables:
            continue
        reason = f"{unset(name)}, and this place does not expand it itself" if name else "a placeholder to be filled in"
        if match.group("condition") is not None:
            reason = f"only if {match.group('condition')}"
        holes.append(Hole(match.start(), match.end(), Unresolved(match.group(), reason), splits=False))
    return value.with_holes(holes)


def expand_kubernetes(
    text: Text | Value,
    environment: Mapping[str, Value],
    *,
    reason: Callable[[str], str] = lambda name: f"{name} is not in the container's environment",
    keep_unknown: bool = False,
) -> Value:
    """Expand ``$(NAME)`` from the container's environment.

    Args:
        reason: says why a name has no value.
        keep_unknown: leave ``$(NAME)`` without a hole where the name is unknown, for a text that a shell reads next.
    """
    value = Value(text) if isinstance(text, Text) else text
    source = value.masked()
    if "$" not in source:
        return value
    parts: list[Value] = []
    at = 0
    for match in _REFERENCE.finditer(source):
        parts.append(value.slice(at, match.start()))
        at = match.end()
        name = match.group(1)
        whole = value.slice(match.start(), match.end())
        if name is None:  # $$
            parts.append(value.slice(match.start() + 1, match.end()))
        elif name in environment:
            parts.append(environment[name].at(whole.span))
        elif keep_unknown or not _NAME.fullmatch(name):
            parts.append(whole)
        else:
            parts.append(Value.unknown(whole.text, reason(name), splits=False))
    parts.append(value.slice(at, len(source)))
    return Value.join(parts)


def interpolate(
    text: Text | Value,
    variables: Mapping[str, Value],
    *,
    reason: Callable[[str], str] = unset,
) -> Value:
    """Interpolate ``$NAME``, ``${NAME}`` and its operators as Compose does; ``$$`` is a dollar.

    The characters of a default count as written where they stand, those of a variable's value where it is used.
    """
    value = Value(text) if isinstance(text, Text) else text
    if "$" not in value.text.value:
        return value
    return _interpolate(value, variables, reason, 0)


def _interpolate(value: Value, variables: Mapping[str, Value], reason: Callable[[str], str], depth: int) -> Value:
    source = value.masked()
    parts: list[Value] = []
    at = 0
    size = len(source)
    while True:
        dollar = source.find("$", at)
        if dollar < 0 or dollar + 1 >= size:
            break
        parts.append(value.slice(at, dollar))
        follower = source[dollar + 1]
        if follower == "$":
            parts.append(value.slice(dollar + 1, dollar + 2))
            at = dollar + 2
            continue
        if follower == "{" and depth < MAX_NESTING:
            close = closing_bracket(source, dollar + 1, size)
            name = _NAME.match(source, dollar + 2)
            if close < size and name and not source.startswith("[", name.end()):  # an array is the shell's
                parts.append(_braced(value, dollar, name, close, variables, reason, depth))
                at = close + 1
                continue
        else:
            name = _NAME.match(source, dollar + 1)
            if name:
                whole = value.slice(dollar, name.end())
                known = variables.get(name.group())
                parts.append(known.at(whole.span) if known else Value.unknown(whole.text, reason(name.group())))
                at = name.end()
                continue
        parts.append(value.slice(dollar, dollar + 1))
        at = dollar + 1
    parts.append(value.slice(at, size))
    return Value.join(parts)


def _braced(
    value: Value,
    start: int,
    name: re.Match[str],
    close: int,
    variables: Mapping[str, Value],
    reason: Callable[[str], str],
    depth: int,
) -> Value:
    source = value.masked()
    whole = value.slice(start, close + 1)
    known = variables.get(name.group())
    rest = source[name.end() : close]
    if not rest:
        return known.at(whole.span) if known else Value.unknown(whole.text, reason(name.group()))
    operator = re.match(r":?[-+?]", rest)
    if not operator:
        return Value.unknown(whole.text, f"{whole.value} is no interpolation that Compose knows")
    sign = operator.group()[-1]
    present = known is not None and (not operator.group().startswith(":") or known.value != "")
    if sign == "+":
        if not present:
            return whole.slice(0, 0)
        return _interpolate(value.slice(name.end() + operator.end(), close), variables, reason, depth + 1)
    if present and known is not None:
        return known.at(whole.span)
    if sign == "-":
        return _interpolate(value.slice(name.end() + operator.end(), close), variables, reason, depth + 1)
    message = rest[operator.end() :].strip()
    return Value.unknown(whole.text, reason(name.group()) + (f" ({message})" if message else ""))
