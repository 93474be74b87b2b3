"""Checks of prompts: what the prompts room found, put into the rules' words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvgate.findings.finding import Severity
from kvgate.prompts.defect import Defect
from kvgate.records import record
from kvgate.ruleset.checks import check
from kvgate.ruleset.model import Draft

_VALUES: Final = ("what", "text", "lost", "basis", "also", "how_often", "lever", "hit", "without", "requests", "share")


@record
class DefectParams:
    """``kind``: which of the prompts room's defects the rule is about."""

    kind: str


@check("prompt-defect", values=_VALUES, params=DefectParams, scope="prompt")
def prompt_defect(defect: Defect, params: DefectParams) -> Iterator[Draft]:
    """A prompt that shares less of its beginning with others than it could."""
    if defect.kind != params.kind:
        return
    yield Draft(
        at=defect.span,
        values={name: defect.values.get(name, "") for name in _VALUES},
        variant=defect.variant,
        ceiling=Severity.INFO if defect.mild else None,
        related=defect.related,
    )
