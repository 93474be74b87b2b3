"""How fine a written time is: formats of ``strftime``, of ``str.format`` and of Moment-like libraries."""

from __future__ import annotations

import re
from typing import Final

from kvgate.prompts.part import Change

# directive -> what it shows; %U, %j, %A and the like are of a day or coarser
_STRFTIME: Final = {
    **dict.fromkeys("SfsXcTr+", Change.REQUEST),
    **dict.fromkeys("MR", Change.MINUTE),
    **dict.fromkeys("HIklp", Change.HOUR),
    **dict.fromkeys("aAwdbBmyYjUWGuVxDeFhCgZz%nt", Change.DAY),
}
_DIRECTIVE: Final = re.compile(r"%[-_0^#EO]?\d*:*([A-Za-z+%])")

#: What a time in words says of how fine it is.
RESOLUTION_WORDS: Final = {
    Change.DAY: "the date",
    Change.HOUR: "the time to the hour",
    Change.MINUTE: "the time to the minute",
    Change.REQUEST: "the time to the second",
}


def strftime_change(form: str) -> Change:
    """How often a text written by ``strftime(form)`` changes; NEVER where nothing of the time is in it."""
    change = Change.NEVER
    for match in _DIRECTIVE.finditer(form):
        if match[1] != "%":
            change = max(change, _STRFTIME.get(match[1], Change.REQUEST))
    return change


# Moment-like tokens, longest first: arrow, pendulum, babel, day.js
_MOMENT: Final = re.compile(r"\[[^\]]*\]|'[^']*'|S+|s{1,2}|X|x|m{1,2}|H{1,2}|h{1,2}|K|k|a|A|Y+|y+|M+|D+|d+|[A-Za-z]+")


def moment_change(form: str) -> Change:
    """How often a text written by a format such as ``YYYY-MM-DD HH:mm`` changes."""
    change = Change.NEVER
    for match in _MOMENT.finditer(form):
        token = match[0]
        if token[0] in "['":
            continue
        if set(token) <= set("SsXx"):
            change = max(change, Change.REQUEST)
        elif set(token) == {"m"}:
            change = max(change, Change.MINUTE)
        elif set(token) <= set("HhKk"):
            change = max(change, Change.HOUR)
        elif set(token) <= set("YyMDd"):
            change = max(change, Change.DAY)
    return change


def seconds_change(seconds: float) -> Change:
    """How often a count of seconds changes that is rounded to so many."""
    if seconds >= 86_400:
        return Change.DAY
    if seconds >= 3_600:
        return Change.HOUR
    return Change.MINUTE if seconds >= 60 else Change.REQUEST


def prefix_change(characters: int) -> Change:
    """How often the first so many characters of an ISO 8601 time change (``2026-11-29T23:35:12``)."""
    if characters <= 10:
        return Change.DAY
    if characters <= 13:
        return Change.HOUR
    return Change.MINUTE if characters <= 16 else Change.REQUEST
