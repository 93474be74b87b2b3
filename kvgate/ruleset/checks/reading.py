"""Checks of what could not be read, and of suppressions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvgate.findings.finding import Severity
from kvgate.ruleset.checks import NoParams, check
from kvgate.ruleset.model import Draft

if TYPE_CHECKING:
    from kvgate.findings.suppress import SuppressionProblem
    from kvgate.manifests.unit import Unread


@check("unread-file", values=("reason",), scope="file")
def unread_file(unread: Unread, params: NoParams) -> Iterator[Draft]:
    """A file, or a part of it, that is no YAML."""
    if unread.rule == "unparsable-manifest":
        yield Draft(
            at=unread.span,
            values={"reason": unread.reason},
            ceiling=None if unread.serves else Severity.WARNING,
        )


@check("useless-suppression", values=("rule", "detail", "hint"), scope="suppression")
def useless_suppression(problem: SuppressionProblem, params: NoParams) -> Iterator[Draft]:
    """A suppression that takes nothing away."""
    if problem.kind == "no-reason":
        return
    hint = f', did you mean "{problem.detail}"?' if problem.kind == "unknown" and problem.detail else ""
    yield Draft(
        at=problem.span,
        values={"rule": problem.rule or "", "detail": problem.detail, "hint": hint},
        variant=None if problem.kind == "unused" else problem.kind,
    )


@check("suppression-without-reason", scope="suppression")
def suppression_without_reason(problem: SuppressionProblem, params: NoParams) -> Iterator[Draft]:
    """A suppression that does not say why."""
    if problem.kind == "no-reason":
        yield Draft(at=problem.span)
