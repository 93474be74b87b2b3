"""Texts of values as vLLM's argument types read them."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from kvgate.patterns import regex

_HUMAN: Final = regex(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_DECIMAL: Final = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class ValueRefusedError(ValueError):
    """vLLM would refuse this text; the message says what was expected."""


def read_int(text: str) -> int:
    """A plain integer as Python's ``int`` reads it.

    Raises:
        ValueRefusedError: it is none.
    """
    try:
        return int(text)
    except ValueError:
        raise ValueRefusedError("an integer") from None


def read_float(text: str) -> float:
    """A number as Python's ``float`` reads it.

    Raises:
        ValueRefusedError: it is none.
    """
    try:
        return float(text)
    except ValueError:
        raise ValueRefusedError("a number") from None


def read_human_int(text: str) -> int:
    """An integer with an optional suffix: ``25.6k`` is 25,600 and ``2K`` is 2,048.

    Lower case is decimal, upper case binary; a binary suffix takes no decimals. From vLLM 0.33.0
    ``utils/argparse_utils.py``, ``human_readable_int``.

    Raises:
        ValueRefusedError: it is no such number.
    """
    text = text.strip()
    match = _HUMAN.fullmatch(text)
    if match is None:
        try:
            return int(text)
        except ValueError:
            raise ValueRefusedError("an integer, with k, m, g (decimal) or K, M, G (binary) as suffix") from None
    number, suffix = match.groups()
    if suffix in _DECIMAL:
        try:
            return int(float(number) * _DECIMAL[suffix])
        except (OverflowError, ValueError):
            raise ValueRefusedError("a smaller integer") from None
    if "." in number:
        raise ValueRefusedError(f"no decimals with the binary suffix {suffix} (decimal: {number}{suffix.lower()})")
    return read_int(number) * _BINARY[suffix]


def read_human_int_or_auto(text: str) -> int:
    """As :func:`read_human_int`; ``auto`` and ``-1`` are -1 (``human_readable_int_or_auto``, from vLLM 0.14.0).

    Raises:
        ValueRefusedError: it is no such number.
    """
    text = text.strip()
    return -1 if text == "-1" or text.lower() == "auto" else read_human_int(text)


def read_json(text: str) -> Any:
    """Any JSON value.

    Raises:
        ValueRefusedError: it is not JSON.
    """
    try:
        # NaN and Infinity are Python's, not JSON's; they stay texts so that every value is JSON again.
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        raise ValueRefusedError("JSON") from None


def read_json_object(text: str, *, numbers: bool = True) -> dict[str, Any]:
    """A JSON object; with ``numbers``, human-readable integers such as ``80g`` outside strings count as written out.

    From vLLM 0.20.0, ``engine/arg_utils.py``, ``_expand_json_human_readable_numbers``.

    Raises:
        ValueRefusedError: it is none.
    """
    try:
        value = read_json(text)
    except ValueRefusedError:
        if not numbers:
            raise
        value = read_json(_expand_numbers(text))
    if not isinstance(value, dict):
        raise ValueRefusedError("a JSON object")
    return value


def _expand_numbers(text: str) -> str:
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b", lambda match: str(read_human_int(match.group())), parts[at])
    return "".join(parts)


def read_json_object_or_text(text: str) -> Any:
    """JSON if it is in braces, else the text (``union_dict_and_str`` in vLLM's ``engine/arg_utils.py``).

    Raises:
        ValueRefusedError: it is in braces and not JSON.
    """
    return read_json(text) if re.fullmatch(r"(?s)\s*\{.*\}\s*", text) else text


def read_pairs(text: str) -> dict[str, int]:
    """``image=2,video=1`` as older releases take it (vLLM 0.8.5 ``engine/arg_utils.py``, ``nullable_kvs``).

    Raises:
        ValueRefusedError: an item is not ``name=integer``.
    """
    result: dict[str, int] = {}
    for item in text.split(","):
        key, equals, number = item.partition("=")
        try:
            if not equals or "=" in number:
                raise ValueError
            result[key.strip().lower()] = int(number)
        except ValueError:
            raise ValueRefusedError("name=integer, separated by commas") from None
    return result


def read_boolean(text: str) -> bool:
    """``true`` or ``false`` in any case.

    Raises:
        ValueRefusedError: it is neither.
    """
    lower = text.lower()
    if lower not in ("true", "false"):
        raise ValueRefusedError("true or false")
    return lower == "true"


def read_dotted_value(text: str, *, numbers: bool = True) -> Any:
    """The value of ``--config.field``: JSON, else with ``numbers`` (from vLLM 0.20.0) a human integer, else text."""
    try:
        return read_json(text)
    except ValueRefusedError:
        pass
    try:
        return read_human_int(text) if numbers else text
    except ValueRefusedError:
        return text
