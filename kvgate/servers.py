"""The pipelines of ``kvgate verify`` and ``kvgate smoke``: what a real server says of the prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kvgate.inputs import CheckOptions, InputError, configuration_of_run, model_of, plans_of, read_paths, require

if TYPE_CHECKING:
    from kvgate.config import Config
    from kvgate.engine.logs import ServerLog
    from kvgate.models.model import Model
    from kvgate.plan import ServingPlan
    from kvgate.smoke.command import Command
    from kvgate.smoke.load import Progress
    from kvgate.smoke.run import SmokeOptions
    from kvgate.smoke.subject import Subject
    from kvgate.smoke.verdict import Verdict


def verify_log(
    path: Path | None, text: str, options: CheckOptions, *, unit: str | None = None, record: bool = False
) -> tuple[Verdict, tuple[str, ...]]:
    """The pipeline of ``kvgate verify``: the verdict, and words about what was recorded.

    Args:
        path: files with the unit; None explains the log on its own.
        text: the server's log.
        record: keep the measured terms in ``.kvgate/measured.json``.

    Raises:
        KvgateError: the path does not exist, the log is not vLLM's, the unit is not clear, kvgate.yaml is wrong.
    """
    from kvgate.engine.logs import read_log
    from kvgate.smoke.compare import judge
    from kvgate.smoke.verify import choose_plan, subject_of_log

    log = read_log(text)
    if log.empty:
        raise InputError("--log: nothing in it is a line of vLLM's")
    if path is None:
        model, reason = _model_of_log(log.model, options)
        return _signed(judge(subject_of_log(log, model, reason), log, command="verify")), ()
    config, plans = _units_of(path, options)
    plan = choose_plan(plans, unit, log)
    if plan.version_basis == "assumed" and log.version is not None:
        _, plans = _units_of(path, replace(options, vllm_version=log.version))
        plan = next(one for one in plans if one.unit.id == plan.unit.id)
    verdict = _signed(judge(_subject(plan, config), log, command="verify"))
    return verdict, (_record(plan, verdict, log, config),) if record else ()


def smoke_unit(
    path: Path,
    options: CheckOptions,
    smoke: SmokeOptions,
    *,
    unit: str | None = None,
    record: bool = False,
    progress: Progress,
    say: Callable[[str], None],
) -> Verdict:
    """The pipeline of ``kvgate smoke``. Nothing that it started is left when it returns or raises.

    Args:
        path: files with the unit.
        record: keep the measured terms in ``.kvgate/measured.json``.
        progress, say: take what people may want to see meanwhile.

    Raises:
        KvgateError: the run could not be made; see :func:`kvgate.smoke.run.run_smoke`.
    """
    from kvgate.smoke.run import run_smoke

    config, plan = _smoke_plan(path, options, unit)

    def replan(version: str) -> ServingPlan:
        _, plans = _units_of(path, replace(options, vllm_version=version))
        return next(one for one in plans if one.unit.id == plan.unit.id)

    run = run_smoke(plan, config, smoke, options.environ, replan=replan, progress=progress, say=say)
    if record and run.log is not None:
        say(_record(run.plan, run.verdict, run.log, config))
    return _signed(run.verdict)


def smoke_command_line(path: Path, options: CheckOptions, smoke: SmokeOptions, *, unit: str | None = None) -> Command:
    """What ``kvgate smoke --dry-run`` shows: the command that would be started.

    Raises:
        KvgateError: as for :func:`smoke_unit`.
    """
    from kvgate.smoke.run import smoke_command

    config, plan = _smoke_plan(path, options, unit)
    return smoke_command(plan, config, smoke)


def _smoke_plan(path: Path, options: CheckOptions, unit: str | None) -> tuple[Config, ServingPlan]:
    from kvgate.smoke.verify import choose_plan

    config, plans = _units_of(path, options)
    return config, choose_plan(plans, unit)


def _signed(verdict: Verdict) -> Verdict:
    from kvgate import __version__

    return replace(verdict, version=__version__)


def _record(plan: ServingPlan, verdict: Verdict, log: ServerLog, config: Config) -> str:
    """Keep what a server measured, and say so, or say why not."""
    from datetime import date

    from kvgate.measured import write_measurement
    from kvgate.smoke.verify import SmokeError, measurement_of

    if verdict.prediction is None:
        return "nothing recorded: the model is not known"
    try:
        kept = measurement_of(plan, verdict.prediction, log, date.today().isoformat())
    except SmokeError as error:
        return str(error)
    return f"{write_measurement(config.root, kept)}: recorded what {kept.unit} measured"


def _units_of(path: Path, options: CheckOptions) -> tuple[Config, list[ServingPlan]]:
    require([path])
    config = configuration_of_run([path], options)
    _, reading = read_paths([path], config, options)
    return config, plans_of(reading, config, options)


def _subject(plan: ServingPlan, config: Config) -> Subject:
    from kvgate.smoke.subject import subject_of_plan

    mapped = config.models.get(plan.model_reference or "")
    return subject_of_plan(plan, (mapped,) if mapped else ())


def _model_of_log(name: str | None, options: CheckOptions) -> tuple[Model | None, str | None]:
    if name is None:
        return None, "the log does not name the model"
    config = configuration_of_run([Path()], options)
    online = config.online if options.online is None else options.online
    try:
        return model_of(name, config.root, online=online, environ=options.environ, mapping=config.models), None
    except InputError as error:
        way = "" if online else ", --online fetches a model of the Hub"
        return (
            None,
            f'the configuration of "{name}" is not at hand ({error}); models: in kvgate.yaml says what it is{way}',
        )


def render_verdict(verdict: Verdict, form: str) -> str:
    """A verdict as text, JSON or Markdown.

    Raises:
        InputError: verdicts have no such format.
    """
    from kvgate.report.smoke import FORMATS
    from kvgate.report.smoke import render_verdict as render

    if form not in FORMATS:
        raise InputError(f"verify and smoke print {', '.join(FORMATS)}, not {form}")
    return render(verdict, form)
