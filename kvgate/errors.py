"""Errors that end a run with one line for people and an exit code."""

from __future__ import annotations

from kvgate.exits import ExitCode
from kvgate.source.text import Span


class KvgateError(Exception):
    """Base of all errors that the command line prints as one line.

    Args:
        message: what is wrong and what to do, without the place.
        span: the place, where there is one; it becomes ``path:line:column:`` in front of the message.
    """

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, message: str, span: Span | None = None) -> None:
        where = f"{span.path}:{span.line}:{span.column}: " if span else ""
        super().__init__(where + message)
        self.message = message
        self.span = span
