"""From a unit to its prompts: how many tokens the prompts that code builds, or a log holds, have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvgate.prompts.order import frozen
from kvgate.prompts.part import Change, Choice, Item, Kind, Prompt, token_estimate
from kvgate.prompts.requests import LogProblem, LogSettings, LogSummary, read_log, summarise
from kvgate.records import record
from kvgate.source.text import SourceFile

LOG_SUFFIXES: Final = (".jsonl", ".json", ".txt", ".ndjson", ".jsonl.gz", ".ndjson.gz")


@record
class SharedPrefix:
    """What the prompts of a unit have in common.

    Attributes:
        tokens: leading tokens that all prompts share as they are built.
        possible_tokens: what they would share if all their static text stood first.
        basis: for people: how the tokens are counted.
        prompt_tokens_p95, output_tokens_p95: of a log; None for code.
        summary: of a log.
        prompt: of code.
    """

    tokens: int
    possible_tokens: int
    basis: str
    prompt_tokens_p95: int | None = None
    output_tokens_p95: int | None = None
    summary: LogSummary | None = None
    prompt: Prompt | None = None


def split_reference(reference: str) -> tuple[str, str | None]:
    """``app/rag.py:build_messages`` -> path and function; a log has no function."""
    path, colon, name = reference.rpartition(":")
    if colon and name.replace(".", "_").isidentifier() and path:
        return path, name
    return reference, None


def is_log(path: str) -> bool:
    return path.endswith(LOG_SUFFIXES)


def shared_by_log(
    file: SourceFile, unread: str | None = None, settings: LogSettings | None = None
) -> SharedPrefix | LogProblem:
    """What the requests of a log share."""
    log = read_log(file, unread)
    if isinstance(log, LogProblem):
        return log
    summary = summarise(file, log, settings)
    possible = summary.shared_prefix_tokens
    if summary.parting is not None:
        possible += token_estimate(len(summary.parting.behind.encode()))
    return SharedPrefix(
        summary.shared_prefix_tokens,
        possible,
        summary.basis,
        summary.prompt_tokens_p95,
        summary.output_tokens_p95,
        summary=summary,
    )


def shared_by_code(files: Sequence[SourceFile], path: str, function: str | None) -> SharedPrefix | None:
    """What the prompts that a function builds share; None where it builds none that can be followed.

    Args:
        files: the file itself, and what it imports.
        function: its name, ``Class.method`` for a method; None takes every prompt of the file.
    """
    from kvgate.prompts.analysis import read_python

    reading = read_python(files, named=(path,), only=(path, function))
    best: Prompt | None = None
    for prompt in reading.built:
        if best is None or _weight(prompt) > _weight(best):
            best = prompt
    if best is None:
        return None
    now, possible = _leading_bytes(best), _static_bytes(best)
    return SharedPrefix(token_estimate(now), token_estimate(max(now, possible)), "4 bytes a token", prompt=best)


def _weight(prompt: Prompt) -> tuple[int, int, int]:
    """A request that is sent tells more than a list, and more messages tell more than fewer."""
    return int(prompt.sent), len(prompt.messages), _static_bytes(prompt)


def _leading_bytes(prompt: Prompt) -> int:
    """Bytes of static text before the first part that changes."""
    size = 0
    for message in prompt.messages:
        more, stopped = _leading(message.items, prompt)
        size += more
        if stopped:
            break
    return size


def _leading(items: Sequence[Item], prompt: Prompt) -> tuple[int, bool]:
    size = 0
    for item in items:
        if isinstance(item, Choice):
            return size, True  # a branch decides, and requests may decide otherwise
        known = item.size_bytes
        if item.kind is Kind.STATIC and known is not None:
            size += known
        elif item.change <= Change.DAY or frozen(item, prompt.path):
            continue  # the same for all requests of a day, and of unknown length
        else:
            return size, True
    return size, False


def _static_bytes(prompt: Prompt) -> int:
    """Bytes of all static text but that of a last turn, which stands behind what the request brings."""
    size = 0
    for message in prompt.messages:
        if message.role in ("user", "history", "assistant") and size:
            break
        size += sum(
            item.size_bytes or 0 for item in message.items if not isinstance(item, Choice) and item.kind is Kind.STATIC
        )
    return size
