"""What vLLM's own parser would refuse, warn of, or misread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvgate.findings.finding import Severity
from kvgate.manifests.entrypoint import OTHER_PROGRAMS
from kvgate.records import record
from kvgate.ruleset.case import Case
from kvgate.ruleset.checks import NoParams, check
from kvgate.ruleset.model import Draft

if TYPE_CHECKING:
    from kvgate.engine.arguments import ArgumentProblem


@record
class ArgumentProblems:
    """Kinds of :class:`kvgate.engine.arguments.ArgumentProblem`.

    ``refused`` are further kinds that count where the release refuses them. ``mild`` are those that count where it does
    not, as an info.
    """

    kinds: tuple[str, ...]
    refused: tuple[str, ...] = ()
    mild: tuple[str, ...] = ()


@check("argument-problems", params=ArgumentProblems, values=("flag", "problem", "instead", "release", "origin"))
def argument_problems(case: Case, params: ArgumentProblems) -> Iterator[Draft]:
    """Problems that reading the command line as that release does brings up."""
    origin = case.plan.origins.get("vllm_version")
    for problem in case.plan.parsed.problems:
        if problem.kind not in (*params.kinds, *(params.refused if problem.refused else params.mild)):
            continue
        if problem.kind == "unknown-flag" and (_is_omni(case) or _may_be_of_another_program(case, problem)):
            continue
        if problem.kind == "invalid-value" and problem.refused and _told_elsewhere(case, problem):
            continue
        # what no release has is wrong whatever the release; that it is one of vLLM's flags at all is likely
        misspelt = _is_misspelt(problem) and case.plan.version_basis != "declared"
        ceiling = None
        if not problem.certain or problem.kind in params.mild:
            ceiling = Severity.INFO
        elif misspelt or not problem.refused:
            ceiling = Severity.WARNING
        yield Draft(
            at=problem.span,
            values={
                "flag": problem.flag,
                "problem": problem.message,
                "instead": f" Instead: {problem.suggestion}." if problem.suggestion else "",
                "release": case.plan.version,
                "origin": str(origin) if origin is not None else "unknown",
            },
            rests_on=() if misspelt else ("vllm_version",),
            ceiling=ceiling,
        )


def _is_omni(case: Case) -> bool:
    """Whether vLLM-Omni serves, which takes the command line of vLLM and flags of its own (``vllm serve --omni``)."""
    image = case.unit.image.value if case.unit.image is not None else ""
    return "vllm-omni" in image or any(word.value == "--omni" for word in case.unit.words)


def _may_be_of_another_program(case: Case, problem: ArgumentProblem) -> bool:
    """Whether a flag that no release of vLLM has may be one of the program that starts the engine (Dynamo, KServe)."""
    return case.unit.entry in OTHER_PROGRAMS and not (problem.added_in or problem.removed_after or problem.removed_in)


def _is_misspelt(problem: ArgumentProblem) -> bool:
    """Whether a flag is that of no release, and close to one that there is."""
    known = problem.added_in or problem.removed_after or problem.removed_in
    return problem.kind == "unknown-flag" and known is None and problem.suggestion is not None


def _told_elsewhere(case: Case, problem: ArgumentProblem) -> bool:
    """Whether a stable rule of its own says so: a number with an exponent (Helm's way), a rank without kernels."""
    for argument in case.plan.parsed.arguments.values():
        inside = argument.span.file is problem.span.file and argument.span.start <= problem.span.start
        if inside and problem.span.end <= argument.span.end and argument.text is not None:
            text = argument.text.value.strip()
            if argument.dest == "max_lora_rank":
                return case.argument("enable_lora") is True and text.isdecimal()
            return re.fullmatch(r"\d+(?:\.\d+)?[eE]\+\d+", text) is not None
    return False


@check("abbreviated-flags", values=("flag", "full"))
def abbreviated_flags(case: Case, params: NoParams) -> Iterator[Draft]:
    """A flag that is written as the beginning of its name."""
    for argument in case.plan.parsed.arguments.values():
        definition, flag = argument.definition, argument.flag
        if definition is None or flag is None or not flag.value.startswith("--"):
            continue
        written = "--" + flag.value[2:].partition("=")[0].partition(".")[0].replace("_", "-")
        names = (*definition.names, *definition.negations)
        if written in names or not any(name.startswith(written) for name in names):
            continue
        full = next(name for name in names if name.startswith(written))
        yield Draft(at=flag.span, values={"flag": written, "full": full}, rests_on=("vllm_version",))
