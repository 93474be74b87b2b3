"""The command line: parse, call :mod:`kvgate.app`, print, exit. The only reader of ``os.environ``.

Data goes to stdout, words to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from kvgate import __version__
from kvgate.exits import ExitCode

if TYPE_CHECKING:
    from kvgate.findings.report import Report
    from kvgate.gate.pipeline import DiffOptions
    from kvgate.inputs import CheckOptions

FORMATS: Final = ("text", "json", "sarif", "github", "gitlab", "junit", "markdown")
COMMAND_OPTIONS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

F = TypeVar("F", bound=Callable[..., Any])


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


_output_options: Callable[[F], F] = _options(
    click.option(
        "--format",
        "formats",
        multiple=True,
        type=click.Choice(FORMATS),
        help="Output format, repeatable; each is paired with the --output at the same position. [default: text]",
    ),
    click.option(
        "--output",
        "outputs",
        multiple=True,
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Where the format at the same position goes; stdout where there is none.",
    ),
    click.option("--no-color", is_flag=True, help="No colours (NO_COLOR is honoured too)."),
    click.option("-q", "--quiet", is_flag=True, help="No words on stderr, no table of units."),
    click.option("-v", "--verbose", is_flag=True, help="Where every resolved value came from."),
)
_source_options: Callable[[F], F] = _options(
    click.option("--gpu", metavar="NAME", help="The GPU of every unit, whatever the files say."),
    click.option("--vllm-version", metavar="V", help="The vLLM release of every unit, whatever the files say."),
    click.option(
        "--online/--offline", default=None, help="Ask the Hugging Face Hub for models not at hand. [default: offline]"
    ),
    click.option(
        "--config", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="kvgate.yaml to use."
    ),
)
_render_option: Callable[[F], F] = click.option(
    "--render",
    multiple=True,
    type=click.Choice(["helm", "kustomize"]),
    help="Render charts or kustomizations first; needs kvgate[helm], kvgate[kustomize]. Nothing is fetched.",
)
_rule_options: Callable[[F], F] = _options(
    click.option("--select", multiple=True, metavar="RULE|FAMILY,...", help="Only these rules or families."),
    click.option("--ignore", multiple=True, metavar="RULE|FAMILY,...", help="Not these rules or families."),
    click.option("--preview", is_flag=True, help="Rules in preview too."),
    click.option("--profile", type=click.Choice(["recommended", "all"]), help="Which rules. [default: recommended]"),
    click.option(
        "--fail-on",
        type=click.Choice(["error", "warning", "info", "never"]),
        default="error",
        show_default=True,
        help="The lowest severity that makes the exit code 1.",
    ),
    click.option(
        "--strict", is_flag=True, help="Exit 1 as well for no units, anything unchecked, an unknown prediction."
    ),
    click.option(
        "--baseline",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Accepted findings, which are not reported again.",
    ),
)


@click.group(context_settings=COMMAND_OPTIONS)
@click.version_option(__version__, prog_name="kvgate", message="%(prog)s %(version)s")
def cli() -> None:
    """How many requests will this vLLM deployment really hold?

    kvgate reads serving manifests, predicts the KV cache pool and the concurrency, and judges them with rules.

    Exit codes: 0 clean, 1 findings at or above --fail-on, 2 usage or configuration, 3 internal error.
    """


@cli.command(context_settings=COMMAND_OPTIONS, short_help="Lint and predict the vLLM servers in files.")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@_rule_options
@click.option(
    "--write-baseline", is_flag=True, help="Accept what is found now: write the baseline file, and exit with 0."
)
@click.option("--fix", is_flag=True, help="Make the safe fixes, and report what is left.")
@click.option("--diff", "show_diff", is_flag=True, help="Show the safe fixes as a diff; files change only with --fix.")
@_render_option
@_source_options
@_output_options
def check(paths: tuple[Path, ...], **options: Any) -> NoReturn:
    """Lint and predict the vLLM servers in PATHS (default: the current folder; - reads stdin)."""
    from kvgate import app
    from kvgate.inputs import STDIN

    named = paths or (Path(),)
    options["stdin"] = _read_stdin() if STDIN in named else None
    report = app.check_paths(named, _check_options(options))
    if options["fix"] or options["show_diff"]:
        report = _mend(report, named, options)
    if options["write_baseline"]:
        _words(app.write_baseline(report, named, _check_options(options)), options)
    _write(report, options)
    sys.exit(_exit_code(report, options))


@cli.command(context_settings=COMMAND_OPTIONS, short_help="Find what keeps prompts from sharing their prefix.")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@_rule_options
@click.option(
    "--write-baseline", is_flag=True, help="Accept what is found now: write the baseline file, and exit with 0."
)
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="kvgate.yaml to use.")
@click.option("--online/--offline", default=None, hidden=True)
@_output_options
def prompts(paths: tuple[Path, ...], **options: Any) -> NoReturn:
    """Find what keeps prompts from sharing their prefix, in code, templates and request logs (default: here).

    Python code is followed without running it, Jinja templates are parsed without rendering them, and JSON lines of
    requests are compared by vLLM's block rule.
    """
    from kvgate import app

    named = paths or (Path(),)
    chosen = _check_options(options)
    report, log_lines = app.prompt_run(named, chosen)
    if options["write_baseline"]:
        _words(app.write_baseline(report, named, chosen), options)
    as_data = (options["formats"] or ("text",)) == ("text",) and not options["outputs"]
    for line in log_lines:
        click.echo(line, err=not as_data)
    _write(report, options, app.prompts_sentence)
    code = _exit_code(report, {**options, "strict": False})  # no servers are looked for
    unread = options["strict"] and bool(report.unchecked)
    sys.exit(ExitCode.FINDINGS if unread and code is ExitCode.CLEAN else code)


def _mend(report: Report, paths: Sequence[Path], options: dict[str, Any]) -> Report:
    """Make or show the safe fixes; with a diff alone the report is not printed."""
    from kvgate import app

    chosen = _check_options(options)
    mended = app.mend_paths(report, paths, chosen)
    if options["show_diff"]:
        _emit(mended.diff, None)
    for finding in mended.refused:
        _words(f"{finding.primary.path}:{finding.primary.line}: {finding.rule} is not fixed: it changes more", options)
    if options["fix"]:
        _words(app.write_mended(mended, paths, chosen), options)
        return mended.report
    _words(f"{len(mended.fixed)} of {len(report.findings)} findings can be fixed with --fix", options)
    sys.exit(_exit_code(report, options))


def _check_options(options: dict[str, Any]) -> CheckOptions:
    from kvgate.inputs import CheckOptions

    return CheckOptions(
        **_run_options(options),
        ignore_baseline=options.get("write_baseline", False),
        stdin=options.get("stdin"),
    )


def _run_options(options: dict[str, Any]) -> dict[str, Any]:
    """The fields of :class:`kvgate.options.RunOptions` that a command has."""
    from kvgate.options import RunOptions

    given: dict[str, Any] = {name: options[name] for name in RunOptions.__match_args__ if name in options}
    given |= {name: _names(given[name]) for name in ("select", "ignore") if name in given}
    return {**given, "environ": dict(os.environ)}


def _read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    except OSError as error:
        raise click.UsageError(f"standard input cannot be read: {error.strerror or error}") from None


def _names(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def _write(report: Report, options: dict[str, Any], sentence: Callable[[Report], str] | None = None) -> None:
    from kvgate.report.render import render_report
    from kvgate.report.text import summary_sentence

    def render(name: str, color: bool) -> str:
        return render_report(
            report, name, color=color, verbose=options["verbose"], quiet=options["quiet"], width=_width()
        )

    _write_formats(render, options)
    _words((sentence or summary_sentence)(report), options)


def _write_formats(render: Callable[[str, bool], str], options: dict[str, Any]) -> None:
    """Every format to its own output."""
    formats = options["formats"] or ("text",)
    outputs = options["outputs"]
    if len(outputs) > len(formats):
        raise click.UsageError(f"{len(outputs)} --output for {len(formats)} --format")
    for position, name in enumerate(formats):
        target: Path | None = outputs[position] if position < len(outputs) else None
        _emit(render(name, target is None and _color(options)), target)


def _emit(text: str, target: Path | None) -> None:
    """Print, or write a file in one go; nothing is half written."""
    from kvgate.errors import KvgateError

    if target is None:
        try:
            sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise KvgateError(f"standard output cannot be written: {error.strerror or error}") from None
        return
    from kvgate.source.files import write_whole

    try:
        write_whole(target, text.encode())
    except OSError as error:
        raise KvgateError(f"{target}: cannot be written: {error.strerror or error}") from None


def _words(text: str, options: dict[str, Any]) -> None:
    if text and not options["quiet"]:
        click.echo(text, err=True)


def _color(options: dict[str, Any]) -> bool:
    if options["no_color"] or os.environ.get("NO_COLOR"):
        return False
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def _width() -> int:
    if "COLUMNS" not in os.environ and not sys.stdout.isatty():
        return 120
    import shutil

    return max(60, min(shutil.get_terminal_size((120, 24)).columns, 200))


def _exit_code(report: Report, options: dict[str, Any]) -> ExitCode:
    from kvgate import app

    if report.errors:
        return ExitCode.INTERNAL
    fail_on = "never" if options.get("write_baseline") else options["fail_on"]  # all findings were just accepted
    return ExitCode.FINDINGS if app.fails(report, fail_on, strict=options["strict"]) else ExitCode.CLEAN


@cli.command(context_settings=COMMAND_OPTIONS, short_help="What a change does to the capacity; the gate.")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--base", metavar="REF", help="What to compare with. [default: the pull request's base, or the merge base]"
)
@click.option("--head", metavar="REF", help="What to compare. [default: the working tree]")
@click.option(
    "--override-label",
    metavar="LABEL",
    default="kvgate/accept-capacity-drop",
    show_default=True,
    help="The label of a pull request by which a maintainer accepts what the gate stops.",
)
@click.option(
    "--comment",
    type=click.Choice(["update", "delete"]),
    help="Write one comment on the pull request of this run (GITHUB_TOKEN); once clean, update or delete it.",
)
@click.option("--summary", is_flag=True, help="Add to the summary of this job (GITHUB_STEP_SUMMARY).")
@_rule_options
@_render_option
@_source_options
@_output_options
def diff(paths: tuple[Path, ...], **options: Any) -> NoReturn:
    """What a change does to the capacity of the vLLM servers in PATHS, and which findings are new.

    The base is read from git, and so is the policy: gate, rules, baseline and .kvgate/ are those of the base.
    """
    from kvgate import app
    from kvgate.errors import KvgateError
    from kvgate.report.difference.render import render_difference
    from kvgate.report.difference.text import difference_sentence

    chosen = _diff_options(options)
    difference = app.diff_paths(paths or (Path(),), chosen)

    def render(name: str, color: bool) -> str:
        return render_difference(
            difference, name, color=color, verbose=options["verbose"], quiet=options["quiet"], width=_width()
        )

    _write_formats(render, options)
    _words(difference_sentence(difference), options)
    if options["summary"]:
        _words(app.write_summary(difference, chosen.environ), options)
    if options["comment"]:
        try:
            _words(app.write_comment(difference, chosen.event, options["comment"], chosen.environ), options)
        except KvgateError as error:
            # what GitHub makes of a comment says nothing about the change
            click.echo(_line(str(error)), err=True)
    sys.exit(_exit_code(difference.report, options))


def _diff_options(options: dict[str, Any]) -> DiffOptions:
    from kvgate import app
    from kvgate.gate.pipeline import DiffOptions

    common = _run_options(options)
    return DiffOptions(
        **common,
        base=options["base"],
        head=options["head"],
        event=app.read_event(common["environ"]),
        override_label=options["override_label"],
    )


@cli.command(context_settings=COMMAND_OPTIONS, short_help="Predict one server from the command line.")
@click.argument("model")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--prompt-tokens", type=click.IntRange(min=0), help="Prompt tokens of a request (95th percentile).")
@click.option("--output-tokens", type=click.IntRange(min=0), help="Output tokens of a request (95th percentile).")
@click.option(
    "--shared-prefix-tokens", type=click.IntRange(min=0), default=0, help="Tokens that all prompts begin with."
)
@click.option("--peak-concurrency", type=click.IntRange(min=1), help="Requests at once, over all replicas.")
@click.option(
    "--kv-cache-tokens",
    type=click.IntRange(min=1),
    help="Skip the budget: the pool's size in tokens, as the server's own log prints it.",
)
@click.option("--gpu-memory-bytes", type=click.IntRange(min=1), help="Total memory of one GPU as torch reports it.")
@click.option("--weight-bytes", type=click.IntRange(min=1), help="Bytes of the weights on one GPU.")
@_source_options
@_output_options
def predict(model: str, args: tuple[str, ...], **options: Any) -> NoReturn:
    """Predict one server: MODEL is a Hub id, a directory or a config.json; ARGS follow "--" as for vllm serve.

    \b
    kvgate predict meta-llama/Llama-3.1-8B-Instruct --gpu "RTX 4090" --prompt-tokens 7500 --output-tokens 1000 \\
        --peak-concurrency 20 -- --max-model-len 32768
    """
    from kvgate import app

    prediction, advice = app.predict_command(model, args, options, dict(os.environ))
    _write_formats(
        lambda name, _: app.render_prediction(prediction, name, verbose=options["verbose"], advice=advice), options
    )
    sys.exit(ExitCode.CLEAN)


@cli.command(context_settings=COMMAND_OPTIONS, short_help="Compare a server's log with the prediction.")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--log", required=True, metavar="FILE|-", help="The server's log; - reads it from stdin.")
@click.option("--unit", metavar="ID", help="The unit that the log is of; an id or the end of one.")
@click.option("--record", is_flag=True, help="Keep what was measured in .kvgate/measured.json for later predictions.")
@_source_options
@_output_options
def verify(path: Path | None, log: str, unit: str | None, record: bool, **options: Any) -> NoReturn:
    """Compare a real server's log with the prediction for the manifest in PATH; without PATH, explain the log."""
    from kvgate import servers

    verdict, words = servers.verify_log(path, _read_log(log), _check_options(options), unit=unit, record=record)
    _write_formats(lambda name, _: servers.render_verdict(verdict, name), options)
    for line in words:
        _words(line, options)
    sys.exit(_verdict_code(verdict.outcome, alone=path is None))


@cli.command(context_settings=COMMAND_OPTIONS, short_help="Start or attach to vLLM, load it, compare.")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--unit", metavar="ID", help="The unit to run; an id or the end of one.")
@click.option("--url", metavar="URL", help="Attach to this server instead of starting one.")
@click.option("--log", metavar="FILE", help="With --url: the server's log, compared too.")
@click.option(
    "--python", metavar="FILE", help="Interpreter that has vLLM. [default: KVGATE_VLLM_PYTHON, or kvgate's own]"
)
@click.option("--model", metavar="DIR|ID", help="Load this model instead of the manifest's.")
@click.option("--dummy-weights", is_flag=True, help="Random weights: only configuration and tokenizer are loaded.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the server. [default: a free one]")
@click.option("--start-seconds", type=click.FloatRange(min=1), default=900, show_default=True, help="Time to be ready.")
@click.option("--load-seconds", type=click.FloatRange(min=1), default=180, show_default=True, help="Time for the load.")
@click.option("--no-load", is_flag=True, help="Compare memory and pool only.")
@click.option(
    "--requests", type=click.IntRange(min=1), help="Requests at the declared concurrency. [default: 2 a client]"
)
@click.option("--max-request-tokens", type=click.IntRange(min=2), help="Scale requests down to this many tokens.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the prompts.")
@click.option(
    "--keep-log", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Where the server's log goes."
)
@click.option("--record", is_flag=True, help="Keep what was measured in .kvgate/measured.json for later predictions.")
@click.option("--dry-run", is_flag=True, help="Print the command that would be started, and start nothing.")
@_source_options
@_output_options
def smoke(path: Path, **options: Any) -> NoReturn:
    """Start vLLM as the unit in PATH says, or attach to a server; put a short load on it; compare with the prediction.

    The command line is made from the parsed arguments, by an allow-list; kvgate.yaml (smoke: allow:) widens it. A key
    that the server wants is taken from VLLM_API_KEY.
    """
    from kvgate import servers
    from kvgate.smoke.run import SmokeOptions

    wanted = SmokeOptions(
        url=options["url"],
        key=os.environ.get("VLLM_API_KEY"),
        python=options["python"] or os.environ.get("KVGATE_VLLM_PYTHON") or sys.executable,
        port=options["port"],
        model=options["model"],
        dummy_weights=options["dummy_weights"],
        token_cap=options["max_request_tokens"],
        requests=options["requests"],
        seed=options["seed"],
        start_s=options["start_seconds"],
        load_s=options["load_seconds"],
        load=not options["no_load"],
        keep_log=options["keep_log"],
        log=_read_log(options["log"]) if options["log"] else None,
    )
    if options["dry_run"]:
        import shlex

        command = servers.smoke_command_line(path, _check_options(options), wanted, unit=options["unit"])
        for words in command.left_out:
            _words(f"left out: {words}", options)
        variables = [f"{name}={shlex.quote(value)}" for name, value in command.environment.items()]
        _emit(" ".join((*variables, shlex.join(command.argv))), None)
        sys.exit(ExitCode.CLEAN)
    with _progress_bar(options) as progress:
        verdict = servers.smoke_unit(
            path,
            _check_options(options),
            wanted,
            unit=options["unit"],
            record=options["record"],
            progress=progress,
            say=lambda words: _words(words, options),
        )
    _write_formats(lambda name, _: servers.render_verdict(verdict, name), options)
    sys.exit(_verdict_code(verdict.outcome))


@contextmanager
def _progress_bar(options: dict[str, Any]) -> Iterator[Callable[[int, int, Any], None]]:
    """A bar on stderr while a load runs; nothing where stderr is no terminal."""
    if options["quiet"] or not sys.stderr.isatty():
        yield lambda done, total, moment: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("load"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True, no_color=options["no_color"] or bool(os.environ.get("NO_COLOR")))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, start=False)

        def show(done: int, total: int, moment: Any) -> None:
            bar.start_task(task)
            words = f"{moment.running} running, {moment.waiting} waiting" if moment is not None else ""
            bar.update(task, completed=done, total=total, description=words)

        yield show


def _read_log(name: str) -> str:
    from kvgate.errors import KvgateError

    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise KvgateError(f"--log {name}: {error.strerror or error}") from None
    return data.decode("utf-8", "replace")


def _verdict_code(outcome: str, *, alone: bool = False) -> ExitCode:
    """A log on its own is explained, not judged: that nothing could be compared is no failure then."""
    if outcome in ("contradicted", "refused"):
        return ExitCode.FINDINGS
    return ExitCode.CLEAN if outcome == "holds" or alone else ExitCode.USAGE


@cli.command(context_settings=COMMAND_OPTIONS, short_help="Explain a rule, or what changed between releases.")
@click.argument("words", nargs=-1, metavar="RULE | --release A..B [PATHS]...")
@click.option("--release", metavar="A..B", help="What changed for the numbers from one vLLM release to another.")
def explain(words: tuple[str, ...], release: str | None) -> None:
    """Print the documentation of RULE: why, what does not fire, how to mend it.

    With --release: what changed from release A to B, in general and for the servers in PATHS.
    """
    from kvgate import app

    if release is not None:
        _emit(app.explain_releases(release, [Path(word) for word in words], dict(os.environ)), None)
        return
    if len(words) != 1:
        raise click.UsageError("one RULE expected, or --release A..B")
    _emit(app.explain_rule(words[0]), None)


@cli.command(context_settings=COMMAND_OPTIONS, short_help="List the rules, or the facts they use.")
@click.option("--format", "format_", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True)
@click.option("--facts", is_flag=True, help="The facts that a rule's condition may use, with their types.")
def rules(format_: str, facts: bool) -> None:
    """List the rules, or the facts they are written over."""
    from kvgate import app

    _emit(app.list_facts(format_) if facts else app.list_rules(format_), None)


@cli.command(context_settings=COMMAND_OPTIONS, short_help="Write kvgate.yaml, a workflow and a hook.")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show the files, write none.")
@click.option("-q", "--quiet", is_flag=True, help="No words on stderr.")
def init(paths: tuple[Path, ...], **options: Any) -> NoReturn:
    """Write kvgate.yaml, a workflow and a pre-commit entry for the servers in PATHS; nothing is overwritten."""
    from kvgate import app

    shown, written = app.init(paths or (Path(),), write=not options["dry_run"])
    _emit(shown, None)
    for line in written:
        _words(line, options)
    sys.exit(ExitCode.CLEAN)


@cli.command(context_settings=COMMAND_OPTIONS, short_help="Keep models' configurations in the tree.")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--online/--offline", default=None, help="Ask the Hugging Face Hub. [default: offline]")
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="kvgate.yaml to use.")
@click.option("-q", "--quiet", is_flag=True, help="No words on stderr.")
def lock(paths: tuple[Path, ...], **options: Any) -> NoReturn:
    """Keep each unit's config.json and weight bytes in .kvgate/models/, with its revision (needs --online)."""
    from kvgate import app

    lines, complete = app.lock_models(paths or (Path(),), _check_options(options))
    for line in lines:
        _words(line, options)
    sys.exit(ExitCode.CLEAN if complete else ExitCode.FINDINGS)


def main() -> NoReturn:
    """Entry point of the console script: every failure is one line and an exit code."""
    import gc

    # a run makes many small objects, keeps nearly all of them and ends: collecting often finds nothing, and the
    # interpreter need not look through all of them once more when it ends
    gc.set_threshold(100_000, 20, 20)
    try:
        _run()
    finally:
        gc.freeze()


def _run() -> NoReturn:
    from kvgate.errors import KvgateError

    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(ExitCode.USAGE)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f' (see "{context.command_path} --help")' if context else ""
        if isinstance(error, click.NoSuchOption) and context and context.info_name == "predict":
            hint = " (vLLM's own arguments follow --)"
        click.echo(_line(f"{error.format_message().removesuffix('.')}{hint}"), err=True)
        sys.exit(ExitCode.USAGE)
    except KvgateError as error:
        click.echo(_line(str(error)), err=True)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        # where a KeyboardInterrupt has passed through exec() of a text (a dataclass being made, say), `python -m` ends
        # by the signal itself, whatever the exit code; running another text makes CPython forget that
        exec("")  # noqa: S102
        sys.exit(130)
    except BrokenPipeError:
        # the reader of our output has gone: nothing to say to it, nor at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.CLEAN)
    except Exception as error:
        if os.environ.get("KVGATE_DEBUG"):
            raise
        where = _deepest(error)
        click.echo(
            f"kvgate: internal error: {type(error).__name__}: {error} ({where}); please report it, with the output of "
            "the same command under KVGATE_DEBUG=1",
            err=True,
        )
        sys.exit(ExitCode.INTERNAL)
    sys.exit(ExitCode.CLEAN)


def _line(text: str) -> str:
    """One line for stderr, whatever stands in it: it may quote an argument or a file."""
    from kvgate.report.escape import visible

    return f"kvgate: {visible(text)}"


def _deepest(error: BaseException) -> str:
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "unknown place"
