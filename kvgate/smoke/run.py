"""``kvgate smoke``: start a server as the unit says, or attach to one, put a short load on it, and compare."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvgate.engine.logs import ServerLog, read_log
from kvgate.records import record
from kvgate.smoke.command import Command, build_command
from kvgate.smoke.compare import judge
from kvgate.smoke.identity import same_release
from kvgate.smoke.load import (
    Endpoint,
    Greeting,
    LoadPlan,
    Outcome,
    Progress,
    greet,
    plan_load,
    run_load,
    scaled_workload,
)
from kvgate.smoke.server import (
    HOST,
    Readiness,
    Server,
    ended_from_outside,
    exit_words,
    free_port,
    guard_environment,
    interruptible,
    server_environment,
)
from kvgate.smoke.subject import Subject, subject_of_plan
from kvgate.smoke.verdict import Difference, Refused, Verdict
from kvgate.smoke.verify import SmokeError

if TYPE_CHECKING:
    from kvgate.capacity.prediction import Prediction
    from kvgate.config import Config
    from kvgate.plan import ServingPlan

_DEFAULT_VOCABULARY: Final = 30_000


@record
class SmokeOptions:
    """What a smoke run was asked for.

    Attributes:
        url: attach to this server instead of starting one.
        key: bearer token of the server.
        python: interpreter that has vLLM.
        port: None takes a free one.
        model: directory or Hub id to load instead of the manifest's.
        token_cap: most tokens of a request; None sends what is declared.
        requests: requests of the declared phase; None is two a client.
        start_s, load_s: bounds, in seconds.
        load: send a load; without one only memory and pool are compared.
        keep_log: where the server's log is copied.
        log: text of an attached server's log, None where it is not at hand.
    """

    url: str | None = None
    key: str | None = None
    python: str = "python3"
    port: int | None = None
    model: str | None = None
    dummy_weights: bool = False
    token_cap: int | None = None
    requests: int | None = None
    seed: int = 0
    start_s: float = 900.0
    load_s: float = 180.0
    load: bool = True
    keep_log: Path | None = None
    log: str | None = None


@record
class SmokeRun:
    """A verdict, the plan that it is about, and the server's log (None for a server that was attached to without)."""

    verdict: Verdict
    plan: ServingPlan
    log: ServerLog | None


Replan = Callable[[str], "ServingPlan"]
Say = Callable[[str], None]


def smoke_command(plan: ServingPlan, config: Config, options: SmokeOptions) -> Command:
    """The command that a run would start.

    Raises:
        SmokeError: see :func:`kvgate.smoke.command.build_command`.
    """
    return build_command(
        plan,
        config,
        python=options.python,
        host=HOST,
        port=options.port or 8000,
        model=options.model,
        dummy_weights=options.dummy_weights,
    )


def run_smoke(
    plan: ServingPlan,
    config: Config,
    options: SmokeOptions,
    environ: Mapping[str, str],
    *,
    replan: Replan,
    progress: Progress,
    say: Say,
) -> SmokeRun:
    """One smoke run. Whatever happens, nothing that it started is left when this returns or raises.

    Args:
        replan: the plan for another release, used where the files do not declare one.
        say: takes a line for people about what is happening.

    Raises:
        SmokeError: the run could not be made: the model is not allowed, the port is in use, nothing answers.
        KeyboardInterrupt: ctrl-C, SIGTERM or SIGHUP.
    """
    if plan.model is None:
        raise SmokeError(f"no prediction to compare with: {plan.model_reason or 'the model is not known'}")
    if options.url is not None:
        with interruptible():
            return _attached(plan, config, options, replan, progress)
    return _started(plan, config, options, environ, replan, progress, say)


# --- attach -----------------------------------------------------------------------------------------------------------


def _attached(plan: ServingPlan, config: Config, options: SmokeOptions, replan: Replan, progress: Progress) -> SmokeRun:
    assert options.url is not None
    log = read_log(options.log) if options.log is not None else None
    greeting = greet(options.url, options.key)
    version = greeting.version or (log.version if log else None)
    plan = _of_release(plan, version, replan)
    subject = _subject(plan, config)
    served, differences = _served(plan, subject, greeting, version if log is None else None)
    if any(one.decisive for one in differences):
        verdict = judge(subject, log, command="smoke", metrics=greeting.metrics)
        return SmokeRun(_with(verdict, differences, greeting), plan, log)
    endpoint = Endpoint(options.url, served, options.key)
    outcome, expected, notes = _load(plan, endpoint, options, progress, lambda: True)
    ended = None
    if outcome is not None and outcome.stopped is not None:
        ended = _ended("crashed", outcome.stopped)
    verdict = judge(
        subject,
        log,
        command="smoke",
        metrics=(outcome.metrics if outcome else None) or greeting.metrics,
        load=outcome.load if outcome else None,
        timeline=outcome.timeline if outcome else (),
        ended=ended,
        notes=notes,
        loaded_prediction=expected,
        served=True,
        unsent=outcome.refused if outcome else None,
    )
    return SmokeRun(_with(verdict, differences, greeting), plan, log)


def _served(
    plan: ServingPlan, subject: Subject, greeting: Greeting, version: str | None
) -> tuple[str, tuple[Difference, ...]]:
    """The model to ask for, and what the server says of itself otherwise than the manifest."""
    names = plan.values.get("served_model_name")
    wanted = [str(name) for name in names] if isinstance(names, list) else [str(names)] if names else []
    wanted += [name for name in (subject.model, *subject.model_paths) if name]
    offered = dict(greeting.models)
    found = next((name for name in wanted if name in offered), None)
    differences: list[Difference] = []
    if found is None:
        shown = ", ".join(offered) or "none"
        differences.append(Difference("model", wanted[0] if wanted else "not known", shown, decisive=True))
    if version is not None and not same_release(version, plan.version):
        declared = plan.version_basis == "declared"
        differences.append(Difference("vllm_version", plan.version, version, declared))
    length = offered.get(found or "")
    prediction = plan.predict()
    expected = prediction.kv_cache.max_model_len if prediction else None
    if isinstance(length, int) and expected is not None and length != expected:
        differences.append(
            Difference("max_model_len", f"{expected:,}", f"{length:,}", decisive=True, figures=("concurrency",))
        )
    return found or next(iter(offered), ""), tuple(differences)


def _with(verdict: Verdict, differences: tuple[Difference, ...], greeting: Greeting) -> Verdict:
    server = {**verdict.server, "version": verdict.server.get("version") or greeting.version}
    if not differences:
        return replace(verdict, server=server)
    decisive = [one for one in differences if one.decisive]
    cause = verdict.cause
    if decisive and verdict.outcome != "refused":
        words = [f"{one.name} was {one.sides}" for one in decisive]
        cause = f"this is not the deployment: {'; '.join(words)}"
    return replace(
        verdict,
        server=server,
        differences=(*differences, *verdict.differences),
        outcome="contradicted" if decisive and verdict.outcome != "refused" else verdict.outcome,
        cause=cause,
    )


# --- start ------------------------------------------------------------------------------------------------------------


def _started(
    plan: ServingPlan,
    config: Config,
    options: SmokeOptions,
    environ: Mapping[str, str],
    replan: Replan,
    progress: Progress,
    say: Say,
) -> SmokeRun:
    if os.name != "posix":
        raise SmokeError("vLLM can be started on Linux and macOS only; attach to a server with --url")
    port = free_port(options.port)
    command = smoke_command(plan, config, replace(options, port=port))
    for words in command.left_out:
        say(f"left out: {words}")
    with interruptible(), _folder() as folder:
        log_file = folder / "server.log"
        own = server_environment(environ, command.environment)
        server = Server(command.argv, own, guard_environment(environ), log_file, folder)
        say(f"started vLLM as process {server.pid}, port {port}")
        try:
            with server:
                return _serve(server, port, plan, config, command, options, replan, progress, say)
        finally:
            if options.keep_log is not None and log_file.exists():
                shutil.copyfile(log_file, options.keep_log)


@contextmanager
def _folder() -> Iterator[Path]:
    """An empty folder for the server to run in: a relative path of a manifest leads nowhere."""
    with tempfile.TemporaryDirectory(prefix="kvgate-smoke-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _serve(
    server: Server,
    port: int,
    plan: ServingPlan,
    config: Config,
    command: Command,
    options: SmokeOptions,
    replan: Replan,
    progress: Progress,
    say: Say,
) -> SmokeRun:
    readiness = server.wait_ready(port, options.start_s)
    if readiness != "ready":
        server.end()
        text = server.text()
        if readiness == "exited" and re.search(r"No module named '?vllm\b", text):
            raise SmokeError(
                f"{options.python} has no vLLM: name an interpreter that has it with --python or KVGATE_VLLM_PYTHON"
            )
        log = read_log(text)
        plan = _of_release(plan, log.version, replan)
        return _judged(plan, config, command, log, ended=_not_ready(readiness, server, options))
    url = f"http://{HOST}:{port}"
    key = options.key
    try:
        greeting = greet(url, key)
    except SmokeError:
        if server.gone() is None:
            raise
        return _judged(plan, config, command, read_log(server.text()), ended=_gone(server))
    plan = _of_release(plan, greeting.version or read_log(server.text()).version, replan)
    name = next((name for name, _ in greeting.models), command.model)
    say("the server is ready" + ("; the load begins" if options.load else ""))
    outcome, expected, notes = _load(
        plan, Endpoint(url, name, key), options, progress, lambda: server.exit_code is None
    )
    ended = None
    if outcome is not None and outcome.stopped is not None:
        ended = _gone(server) if server.gone() is not None else _ended("crashed", outcome.stopped)
    elif server.exit_code is not None:
        ended = _gone(server)
    server.end()
    return _judged(
        plan,
        config,
        command,
        read_log(server.text()),
        ended=ended,
        greeting=greeting,
        outcome=outcome,
        expected=expected,
        notes=notes,
    )


def _judged(
    plan: ServingPlan,
    config: Config,
    command: Command,
    log: ServerLog,
    *,
    ended: Refused | None,
    greeting: Greeting | None = None,
    outcome: Outcome | None = None,
    expected: Prediction | None = None,
    notes: tuple[str, ...] = (),
) -> SmokeRun:
    # the model was loaded from where this machine has it
    subject = replace(_subject(plan, config), model=command.model)
    metrics = (outcome.metrics if outcome else None) or (greeting.metrics if greeting else None)
    verdict = judge(
        subject,
        None if log.empty else log,
        command="smoke",
        metrics=metrics,
        load=outcome.load if outcome else None,
        timeline=outcome.timeline if outcome else (),
        ended=ended,
        notes=(*notes, *(f"left out: {words}" for words in command.left_out)),
        loaded_prediction=expected,
        served=greeting is not None and ended is None,
        unsent=outcome.refused if outcome else None,
    )
    return SmokeRun(verdict, plan, log)


def _not_ready(readiness: Readiness, server: Server, options: SmokeOptions) -> Refused:
    code = server.exit_code
    if readiness == "hang":
        return _ended("hang", f"not ready after {options.start_s:.0f} seconds")
    if readiness == "exited" and code is not None:
        words = f"{exit_words(code)} before it was ready"
        return _ended("killed" if ended_from_outside(code) else "exited", words)
    return _ended("error", "it printed an error and did not end by itself")


def _gone(server: Server) -> Refused:
    code = server.exit_code or 0
    kind = "killed" if ended_from_outside(code) else "crashed"
    return _ended(kind, f"{exit_words(code)} during the load")


def _ended(kind: str, message: str) -> Refused:
    return Refused(kind, message, None, None, None, "bytes", None, expected=False)


# --- both -------------------------------------------------------------------------------------------------------------


def _of_release(plan: ServingPlan, version: str | None, replan: Replan) -> ServingPlan:
    """The plan for the release that runs, where the files declare none."""
    if version is None or plan.version_basis == "declared" or same_release(version, plan.version):
        return plan
    return replan(version)


def _subject(plan: ServingPlan, config: Config) -> Subject:
    mapped = config.models.get(plan.model_reference or "")
    return subject_of_plan(plan, (mapped,) if mapped else ())


def _load(
    plan: ServingPlan,
    endpoint: Endpoint,
    options: SmokeOptions,
    progress: Progress,
    alive: Callable[[], bool],
) -> tuple[Outcome | None, Prediction | None, tuple[str, ...]]:
    if not options.load:
        return None, None, ()
    prediction = plan.predict()
    if prediction is None:
        raise SmokeError("no prediction to compare with")
    workload, scaling = scaled_workload(plan.workload, prediction, replicas=plan.replicas, token_cap=options.token_cap)
    expected = plan.predict(workload=workload)
    load: LoadPlan = plan_load(
        workload,
        scaling,
        expected or prediction,
        vocabulary=_vocabulary(plan),
        seconds=options.load_s,
        seed=options.seed,
        requests=options.requests,
        data_parallel_size=plan.data_parallel_size,
    )
    outcome = run_load(endpoint, load, alive=alive, progress=progress)
    notes = []
    if any(phase.cut_short for phase in outcome.load.phases) or len(outcome.load.phases) < len(load.phases):
        notes.append(f"the load was cut short after {options.load_s:.0f} seconds")
    return outcome, expected, tuple(notes)


def _vocabulary(plan: ServingPlan) -> int:
    config: Any = plan.model.config if plan.model else {}
    text = config.get("text_config")
    size = config.get("vocab_size") or (text.get("vocab_size") if isinstance(text, Mapping) else None)
    return size if isinstance(size, int) and size > 0 else _DEFAULT_VOCABULARY
