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
#: Words by which a comment says that a value makes the KV cache itself smaller; less use of it is another thing.
_SMALLER_CACHE: Final = regex(
    r"\b(?:save|saves|saving|reduce|reduces|reducing|less|lower|lowers|free|frees|cut|cuts|shrink|shrinks|smaller)\b"
    r".{0,24}\bkv.?cache\b(?!.{0,3}(?:pressure|us(?:e|age)|contention|pre-?empt|evict))",
    re.IGNORECASE,
)
#: What else a comment may thank for room: the weights are smaller.
_WEIGHTS: Final = regex(r"\b(?:awq|gptq|gguf|nvfp4|mxfp4|fp[48]|int[48]|[48]-?bit|quant\w*)\b", re.IGNORECASE)
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
    return _claim(span, _CAPACITY, _WEIGHTS)


def claims_memory(span: Span) -> str | None:
    """The comment beside a value that says it saves or yields memory, None if there is none."""
    return _claim(span, _MEMORY, _WEIGHTS)


def claims_smaller_cache(span: Span) -> str | None:
    """The comment beside a value that says it makes the KV cache smaller, None if there is none."""
    return _claim(span, _SMALLER_CACHE)


def _claim(span: Span, words: re.Pattern[str], other: re.Pattern[str] | None = None) -> str | None:
    for comment in comments_beside(span):
        if words.search(comment) and not _DENIAL.search(comment) and not (other is not None and other.search(comment)):
            return comment
    return None
