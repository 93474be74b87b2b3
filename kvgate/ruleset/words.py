"""Messages with placeholders: ``{available_bytes:gib}``, and how numbers are written for people."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kvgate.patterns import regex
from kvgate.records import record

GIB: Final = 2**30
_PLACEHOLDER: Final = r"\{(?P<name>[a-z_][a-z0-9_.]*)(?::(?P<format>[a-z]*))?\}"
_BRACES: Final = regex(rf"\{{\{{|\}}\}}|{_PLACEHOLDER}|[{{}}]")
_FILLED: Final = regex(rf"\{{\{{|\}}\}}|{_PLACEHOLDER}")


def gib(value: float) -> str:
    """Bytes as GiB with two decimals (one from 100 GiB on)."""
    amount = value / GIB
    return f"{amount:,.1f} GiB" if abs(amount) >= 100 else f"{amount:,.2f} GiB"


def amount(value: float) -> str:
    """A number with thousands separators; whole floats without decimals, others with two."""
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else f"{value:,.2f}"
    return f"{value:,d}"


def plural(count: float, noun: str) -> str:
    """``1 request``, ``5 requests``."""
    return f"{amount(count)} {noun}" if count == 1 else f"{amount(count)} {noun}s"


def listed(values: Any, before_last: str = "and") -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    items = [str(value) for value in values]
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {before_last} {items[-1]}"


_FORMATS: Final[dict[str, Callable[[Any], str]]] = {
    "gib": gib,
    "int": amount,
    "tokens": lambda value: plural(value, "token"),
    "requests": lambda value: plural(value, "request"),
    "gpus": lambda value: plural(value, "GPU"),
    "replicas": lambda value: plural(value, "replica"),
    "blocks": lambda value: plural(value, "block"),
    "x": lambda value: f"{value:.2f}x",
    "list": listed,
    "either": lambda values: listed(values, "or"),
}


class TemplateError(ValueError):
    """The text is no message; ``offset`` is where in it."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


@record
class Template:
    """A text with placeholders, checked when it was read."""

    text: str
    names: tuple[str, ...]

    def fill(self, values: Mapping[str, Any]) -> str:
        """The text with its values; a value that is None reads ``unknown``.

        Raises:
            KeyError: a value is missing.
        """

        def one(match: re.Match[str]) -> str:
            if match["name"] is None:
                return match.group()[0]  # a doubled brace
            value = values[match["name"]]
            if value is None:
                return "unknown"
            form = match["format"]
            return _FORMATS[form](value) if form else str(value)

        return _FILLED.sub(one, self.text)


def read_template(text: str) -> Template:
    """Read a message.

    Raises:
        TemplateError: a brace that begins no placeholder, or an unknown format.
    """
    names: list[str] = []
    for match in _BRACES.finditer(text):
        if match["name"] is None:
            if len(match.group()) == 1:
                raise TemplateError(
                    "a placeholder is {name} or {name:format}; a brace itself is doubled", match.start()
                )
            continue
        form = match["format"]
        if form is not None and form not in _FORMATS:
            raise TemplateError(f'unknown format "{form}"; known: {", ".join(_FORMATS)}', match.start())
        names.append(match["name"])
    return Template(text, tuple(dict.fromkeys(names)))
