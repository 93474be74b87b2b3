"""What vLLM's own parser would refuse, warn of, or misread."""

from __future__ import annotations

from collections.abc import Iterator

from kvgate.findings.finding import Severity
from kvgate.records import record
from kvgate.ruleset.case import Case
from kvgate.ruleset.checks import NoParams, check
from kvgate.ruleset.model import Draft


@record
class ArgumentProblems:
    """``kinds``: kinds of :class:`kvgate.engine.arguments.ArgumentProblem`."""

    kinds: tuple[str, ...]


@check("argument-problems", params=ArgumentProblems, values=("flag", "problem", "instead", "release", "origin"))
def argument_problems(case: Case, params: ArgumentProblems) -> Iterator[Draft]:
    """Problems that reading the command line as that release does brings up."""
    origin = case.plan.origins.get("vllm_version")
    for problem in case.plan.parsed.problems:
        if problem.kind not in params.kinds:
            continue
        ceiling = None
        if not problem.certain:
            ceiling = Severity.INFO
        elif not problem.refused:
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
            rests_on=("vllm_version",),
            ceiling=ceiling,
        )


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
