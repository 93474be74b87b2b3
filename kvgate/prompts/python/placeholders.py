"""Texts with placeholders: ``str.format``, ``%``, ``string.Template``, and their filling."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kvgate.prompts.clock import RESOLUTION_WORDS, moment_change, strftime_change
from kvgate.prompts.part import Change, Choice, Item, Kind, Part, static
from kvgate.prompts.syntax import located
from kvgate.source.text import Span, Text

_FORMAT: Final = re.compile(
    r"\{\{|\}\}|\{(?P<name>[^{}!:\[.]*)(?P<rest>[\[.][^{}!:]*)?(?:![rsa])?(?::(?P<spec>[^{}]*))?\}"
)
_PERCENT: Final = re.compile(
    r"%(?:%|\((?P<name>[^()]*)\))?[-#0 +]*[\d*]*(?:\.[\d*]+)?[hlL]?(?P<type>[diouxXeEfFgGcrsa%])?"
)
_DOLLAR: Final = re.compile(r"\$(?:\$|(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})")
_MUSTACHE: Final = re.compile(r"\{\{\{?\s*(?P<name>[A-Za-z_][\w.]*)\s*\}?\}\}")

#: What a placeholder stands for: its name, its index among unnamed ones, its format, its place.
Fill = Callable[[str, int, str, Span], tuple[Item, ...]]


def fill(items: tuple[Item, ...], style: str, value_of: Fill) -> tuple[Item, ...]:
    """Static text with its placeholders filled; other parts stay.

    Args:
        style: ``format``, ``percent``, ``dollar`` or ``mustache``.
        value_of: what stands for a placeholder.
    """
    counter = [0]
    return _fill(items, style, value_of, counter)


def _fill(items: tuple[Item, ...], style: str, value_of: Fill, counter: list[int]) -> tuple[Item, ...]:
    found: list[Item] = []
    for item in items:
        if isinstance(item, Choice):
            found.append(Choice(tuple(_fill(option, style, value_of, counter) for option in item.options)))
        elif item.kind is Kind.STATIC and item.text is not None:
            found += _fill_text(item, item.text, style, value_of, counter)
        else:
            found.append(item)
    return tuple(found)


def _fill_text(part: Part, text: str, style: str, value_of: Fill, counter: list[int]) -> list[Item]:
    pattern = {"format": _FORMAT, "percent": _PERCENT, "dollar": _DOLLAR, "mustache": _MUSTACHE}[style]
    mapped = located(part.span, text)
    found: list[Item] = []
    at = 0
    for match in pattern.finditer(text):
        groups = match.groupdict()
        name = groups.get("name") or groups.get("braced")
        if name is None and style in ("dollar", "mustache"):
            continue
        if style == "format" and match[0] in ("{{", "}}"):
            continue
        if style == "percent" and groups["type"] in (None, "%"):
            continue
        if match.start() > at:
            found.append(_stretch(mapped, at, match.start()))
        index = -1
        if not name:
            index = counter[0]
            counter[0] += 1
        elif name.isdecimal():
            index = int(name)
        span = mapped.slice(match.start(), match.end()).span
        found += value_of(name or "", index, groups.get("spec") or "", span)
        at = match.end()
    if at == 0:
        return [part]
    if at < len(text):
        found.append(_stretch(mapped, at, len(text)))
    return found


def _stretch(mapped: Text, start: int, end: int) -> Part:
    piece = mapped.slice(start, end)
    return static(piece.value, piece.span)


def formatted(items: tuple[Item, ...], spec: str) -> tuple[Item, ...]:
    """A time written in a format (``{now:%Y-%m-%d}``); other things do not mind."""
    if not spec or len(items) != 1 or not isinstance(items[0], Part) or items[0].kind is not Kind.CLOCK:
        return items
    part = items[0]
    if "%" in spec:
        change = strftime_change(spec)
    elif re.fullmatch(r"[YMDHhmsaAdE\s:./,\[\]'-]+", spec):
        change = moment_change(spec)
    else:
        return items
    return (as_fine_as(part, change),)


def as_fine_as(part: Part, change: Change) -> Part:
    """A time that is written to a certain resolution, no finer than it is known."""
    if part.kind is not Kind.CLOCK:
        return part
    change = min(change, part.change)
    if change is Change.NEVER:
        return Part(Kind.STATIC, Change.PROCESS, part.span)
    words = part.words
    for resolution in RESOLUTION_WORDS.values():
        words = words.replace(resolution, RESOLUTION_WORDS[change]) if resolution in words else words
    if not any(words.startswith(resolution) for resolution in RESOLUTION_WORDS.values()):
        words = RESOLUTION_WORDS[change]
    return replace(part, change=change, words=words, named=False)
