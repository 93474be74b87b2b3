"""Comments beside a value, and what they claim."""

from __future__ import annotations

import re
from typing import Final

from kvgate.patterns import regex
from kvgate.source.text import Span

_COMMENT: Final = regex(r"(?:^|(?<=\s))#+\s?(.*)$")

#: Words by which a comment says that a value buys concurrency.
_CAPACITY: Final = regex(
    r"concurren|\busers?\b|\bcapacity\b|throughput|\bmore (?:\w+ )?(?:requests?|sessions?|clients?|parallel)\b"
    r"|\brequests? (?:at once|in parallel|simultaneous)|\bparallel(?:ism)?\b|\bsimultaneous",
    re.IGNORECASE,
)
#: Words by which a comment says that a value saves memory.
_MEMORY: Final = regex(
    r"\b(?:save|saves|saving|reduce|reduces|less|lower|free|frees|cut|cuts|shrink|limit|limits|extend|extends|more|increase)"
    r"\b.{0,24}(?:\bv?ram\b|memory|kv.?cache|\bcache\b)",
    re.IGNORECASE,
)
_DENIAL: Final = regex(r"\b(?:not|no|never|nothing|without|neither|regardless)\b|n't\b|kvgate", re.IGNORECASE)


def comments_beside(span: Span) -> tuple[str, ...]:
    """The comment behind a value on its last line, and the comment lines right above its first."""
    file = span.file
    found: list[str] = []
    line = span.line - 1
    while line >= 1 and file.line_text(line).lstrip().startswith("#"):
        found.insert(0, file.line_text(line).strip().lstrip("#").strip())
        line -= 1
    last = file.line_text(span.end_line)
    behind = _COMMENT.search(last, span.end_column - 1)
    if behind is not None:
        found.append(behind[1].strip())
    return tuple(found)


def claims_capacity(span: Span) -> str | None:
    """The comment beside a value that says it buys concurrency, None if there is none."""
    return _claim(span, _CAPACITY)


def claims_memory(span: Span) -> str | None:
    """The comment beside a value that says it saves or yields memory, None if there is none."""
    return _claim(span, _MEMORY)


def _claim(span: Span, words: re.Pattern[str]) -> str | None:
    for comment in comments_beside(span):
        if words.search(comment) and not _DENIAL.search(comment):
            return comment
    return None
