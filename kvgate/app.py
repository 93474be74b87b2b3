"""The pipeline of each command as a function. No printing, no exiting, no reading of the environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kvgate.inputs import (
    CheckOptions,
    InputError,
    configuration_of_run,
    load_configuration,
    model_of,
    plans_of,
    read_paths,
    release_of,
    require,
    tree_root,
)
from kvgate.records import record
from kvgate.source.text import SourceFile, words_of_command_line

if TYPE_CHECKING:
    from kvgate.capacity.levers import Advice
    from kvgate.capacity.prediction import Basis, Prediction, Workload
    from kvgate.config import Config, RuleConfig
    from kvgate.findings.finding import InternalError, Unchecked
    from kvgate.findings.mend import Mended
    from kvgate.findings.report import Report, UnitReport
    from kvgate.gate.difference import Difference
    from kvgate.gate.event import Event
    from kvgate.gate.pipeline import DiffOptions
    from kvgate.hardware.gpu import Gpu
    from kvgate.manifests.collect import Collection
    from kvgate.manifests.unit import Reading
    from kvgate.models.model import Model
    from kvgate.plan import ModelContext, ServingPlan
    from kvgate.prompts.analysis import UnreadPrompt
    from kvgate.prompts.defect import Defect
    from kvgate.prompts.requests import LogSettings
    from kvgate.ruleset.load import RuleSet
    from kvgate.ruleset.run import Judgement, Selection


def predict(
    model: str | Path | Mapping[str, Any],
    args: Sequence[str] = (),
    *,
    gpu: str | None = None,
    gpu_memory_bytes: int | None = None,
    vllm_version: str | None = None,
    env: Mapping[str, str] | None = None,
    weight_bytes: int | None = None,
    workload: Workload | Mapping[str, Any] | None = None,
) -> Prediction:
    """Predict one vLLM server.

    Args:
        model: a Hub id, a directory, a config.json, or a parsed config.json.
        args: engine arguments as for ``vllm serve``, without the model.
        gpu: name of the GPU by the catalogue's aliases, or ``cpu`` for vLLM's CPU backend; None is unknown.
        gpu_memory_bytes: total memory of one GPU as torch reports it, in bytes; wins over the catalogue's figure.
        vllm_version: release; None assumes the newest one known.
        env: environment variables of the server.
        weight_bytes: bytes of the weights on one GPU; None computes them.
        workload: the load over all replicas, as :class:`Workload` or a mapping of its fields.

    Raises:
        KvgateError: the model cannot be found or read. A flag that the release lacks, an unknown GPU or an unknown
            architecture raise nothing: ``reasons`` says so, and what depends on them is unknown.
    """
    from kvgate.plan import ModelContext

    if isinstance(args, str):
        raise InputError("args: a list of words expected, not one text")
    if gpu_memory_bytes is not None and gpu_memory_bytes <= 0:
        raise InputError(f"gpu_memory_bytes: a positive number expected, got {gpu_memory_bytes}")
    prediction, _ = _predict(
        model_of(model, Path(), online=False, environ={}),
        args,
        gpu=gpu,
        gpu_memory_bytes=gpu_memory_bytes,
        vllm_version=vllm_version,
        env=env or {},
        weight_bytes=weight_bytes,
        workload=_workload(workload),
        context=ModelContext(Path()),
    )
    return prediction


def _workload(workload: Workload | Mapping[str, Any] | None) -> Workload | None:
    from kvgate.capacity.prediction import Workload

    if workload is None or isinstance(workload, Workload):
        return workload
    try:
        return Workload(**workload)
    except TypeError:
        raise InputError(
            f"workload: {', '.join(Workload.__match_args__)} expected, got {', '.join(workload)}"
        ) from None


def _predict(
    model: Model,
    args: Sequence[str],
    *,
    gpu: str | None,
    gpu_memory_bytes: int | None,
    vllm_version: str | None,
    env: Mapping[str, str],
    weight_bytes: int | None,
    workload: Workload | None,
    context: ModelContext,
    kv_cache_tokens: int | None = None,
) -> tuple[Prediction, Callable[[], Advice]]:
    """The prediction, and what would let the server hold more for whoever asks."""
    from kvgate.capacity.predict import predict_capacity
    from kvgate.engine.arguments import parse_arguments
    from kvgate.engine.images import release_named
    from kvgate.engine.releases import newest_release, resolve_version
    from kvgate.hardware.catalogue import explain_gpu, find_gpu
    from kvgate.plan import find_draft, usable_values, with_refusals

    reasons: list[str] = []
    version = newest_release()
    version_basis: Basis = "assumed"
    if vllm_version is not None:
        named = release_named(vllm_version)
        if named is None:
            reasons.append(f'"{vllm_version}" is no vLLM release: judged as {version}')
        else:
            version, version_basis = named, "declared"
        if resolve_version(named).standing == "newer":
            reasons.append(f"vLLM {version} is newer than {newest_release()}, the newest release that kvgate knows")
    parsed = parse_arguments(words_of_command_line(args), version, positional_model=False)
    found = find_gpu(gpu) if gpu else None
    if gpu and found is None:
        reasons.append(explain_gpu(gpu))
    values = usable_values(parsed)
    draft = find_draft(values, {}, context)

    def run(changes: Mapping[str, Any], other: Gpu | None = None) -> Prediction:
        changed = {**values, **changes}
        used = other or found
        return predict_capacity(
            model,
            changed,
            version=version,
            version_basis=version_basis,
            gpu=used,
            gpu_count=_ranks(changed),
            gpu_memory_bytes=gpu_memory_bytes,
            gpu_basis="declared" if used or gpu_memory_bytes else "unknown",
            env=env,
            workload=workload,
            weight_bytes=weight_bytes,
            kv_cache_tokens=kv_cache_tokens,
            draft=draft,
        )

    prediction = with_refusals(run({}), parsed)
    if reasons:
        prediction = replace(prediction, reasons=(*prediction.reasons, *reasons))
    return prediction, lambda: _advice(prediction, run, found, model)


def _advice(prediction: Prediction, run: Callable[..., Prediction], gpu: Gpu | None, model: Model) -> Advice:
    from kvgate.capacity.levers import Advice, find_levers, find_remedy
    from kvgate.hardware.catalogue import common_gpus
    from kvgate.models.geometry import UnknownModelError, read_geometry

    try:
        geometry = read_geometry(model)
    except UnknownModelError:
        geometry = None
    unknown = prediction.gpu_basis == "unknown" and prediction.kv_cache.num_gpu_blocks is None
    return Advice(
        on_gpus=tuple((other.name, run({}, other)) for other in common_gpus()) if unknown else (),
        remedy=find_remedy(prediction, run, gpu=gpu),
        levers=find_levers(prediction, run, gpu=gpu, geometry=geometry),
    )


def _ranks(values: Mapping[str, Any]) -> int | None:
    """GPUs of one server: the product of its parallel sizes; None where one is not known."""
    count = 1
    for dest in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        size = values.get(dest, 1)
        if not isinstance(size, int) or size < 1:
            return None
        count *= size
    return count


def predict_command(
    model: str, args: Sequence[str], options: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[Prediction, Callable[[], Advice]]:
    """``kvgate predict``: the model from the tree, the cache, a card or (online) the Hub; kvgate.yaml's values where
    no option says otherwise. Also gives what would let the server hold more, for whoever asks.

    Raises:
        KvgateError: see :func:`predict`; also an unusable kvgate.yaml.
    """
    from kvgate.capacity.prediction import Workload
    from kvgate.hardware.catalogue import explain_gpu, find_gpu
    from kvgate.plan import ModelContext

    config = load_configuration(options["config"], Path())
    gpu: str | None = options["gpu"] or config.gpu
    if options["gpu"] and find_gpu(options["gpu"]) is None:
        raise InputError(explain_gpu(options["gpu"]))
    prompt_tokens = options["prompt_tokens"]
    for name in ("output_tokens", "shared_prefix_tokens"):
        if prompt_tokens is None and options[name]:
            raise InputError(f"--{name.replace('_', '-')} says nothing without --prompt-tokens")
    if prompt_tokens is not None and options["shared_prefix_tokens"] > prompt_tokens:
        raise InputError(
            f"--shared-prefix-tokens {options['shared_prefix_tokens']} is more than --prompt-tokens {prompt_tokens}, "
            "of which it is a part"
        )
    workload = None
    if prompt_tokens is not None or options["peak_concurrency"] is not None:
        workload = Workload(
            prompt_tokens, options["output_tokens"], options["shared_prefix_tokens"], options["peak_concurrency"]
        )
    online = config.online if options["online"] is None else options["online"]
    return _predict(
        model_of(model, config.root, online=online, environ=environ, mapping=config.models),
        args,
        gpu=gpu,
        gpu_memory_bytes=options["gpu_memory_bytes"],
        vllm_version=release_of(options["vllm_version"]) or config.vllm_version,
        env={},
        weight_bytes=options["weight_bytes"],
        workload=workload,
        context=ModelContext(config.root, online, environ),
        kv_cache_tokens=options["kv_cache_tokens"],
    )


def check(
    paths: str | Path | Sequence[str | Path], *, config: str | Path | None = None, online: bool | None = None
) -> Report:
    """Lint and predict the vLLM servers in files and directories.

    Args:
        paths: one or several files or directories.
        config: a kvgate.yaml; None finds one from the first path upwards.
        online: whether the Hugging Face Hub may be asked for models that are not at hand; None leaves it to
            kvgate.yaml.

    Raises:
        KvgateError: a path does not exist, kvgate.yaml or a rule file is wrong.
    """
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    options = CheckOptions(config=Path(config) if config else None, online=online)
    return check_paths([Path(path) for path in several], options)


def check_paths(paths: Sequence[Path], options: CheckOptions) -> Report:
    """The pipeline of ``kvgate check``.

    Paths in the report are relative to the folder of kvgate.yaml, or to the current one where there is none.

    Raises:
        KvgateError: see :func:`check`.
    """
    from kvgate.plan import predict_all, unchecked_places
    from kvgate.ruleset.load import load_rules
    from kvgate.ruleset.units import unit_report

    require(paths, stdin=options.stdin is not None)
    config = configuration_of_run(paths, options)
    collection, reading = read_paths(paths, config, options)
    plans = plans_of(reading, config, options)
    rules = load_rules(config.root, thorough=False, preview=options.preview)
    predicted, crashes = predict_all(plans)
    judgement, unread_prompts = judge_state(
        rules, _selection(config, options), predicted, collection, reading, config, paths
    )
    whole = any(config.root.is_relative_to(path.resolve()) for path in paths)
    unchecked = [
        *unchecked_places(collection, reading, plans),
        *unread_prompts,
        *_unmatched_entries(config, collection, plans, whole=whole),
    ]
    units = [unit_report(plan, prediction) for plan, prediction in predicted]
    report = _report(judgement, unchecked, crashes, config, options, units)
    return _without_secrets(report, plans, collection)


def _selection(config: Config, options: CheckOptions) -> Selection:
    from kvgate.ruleset.run import Selection

    return Selection(
        select=options.select,
        ignore=options.ignore,
        preview=options.preview,
        profile=options.profile or config.profile,
        config=_rules_over_one_state(config),
    )


def _report(
    judgement: Judgement,
    unchecked: Iterable[Unchecked],
    crashes: Iterable[InternalError],
    config: Config,
    options: CheckOptions,
    units: Iterable[UnitReport] = (),
) -> Report:
    """The report of a judgement, without the findings that the baseline accepts."""
    from kvgate import __version__
    from kvgate.findings.report import Report

    findings, accepted = judgement.findings, 0
    if not options.ignore_baseline:
        findings, accepted = _without_accepted(findings, config, options)
    return Report(
        units=tuple(units),
        findings=findings,
        unchecked=tuple(sorted(unchecked, key=lambda place: (place.path, place.line, place.reason))),
        errors=(*crashes, *judgement.errors),
        suppressed=judgement.suppressed + accepted,
        version=__version__,
        rules=judgement.rules,
    )


def judge_state(
    rules: RuleSet,
    selection: Selection,
    predicted: Sequence[tuple[ServingPlan, Prediction | None]],
    collection: Collection,
    reading: Reading,
    config: Config,
    paths: Sequence[Path],
) -> tuple[Judgement, list[Unchecked]]:
    """What the rules say of everything that was read, and which linked prompts could not be read."""
    from kvgate.findings.finding import Unchecked
    from kvgate.manifests.tree import Tree
    from kvgate.ruleset.run import judge

    linked = _linked_prompts([plan for plan, _ in predicted], config)
    judgement = judge(
        rules,
        selection,
        predicted,
        reading.unread,
        _distinct_files([*collection.files, *collection.around, *linked.files]),
        tree=Tree(collection.files, config.root),
        config=config,
        prompts=linked.defects,
        beside=lambda: _beside(paths, config),
    )
    judgement = replace(judgement, errors=(*linked.crashes, *judgement.errors))
    return judgement, [Unchecked(place.reason, place.span.path, place.span.line) for place in linked.unread]


@record
class _LinkedPrompts:
    """Prompts that units and kvgate.yaml name: what is wrong with them, and the files that were read for it."""

    defects: tuple[Defect, ...] = ()
    unread: tuple[UnreadPrompt, ...] = ()
    files: tuple[SourceFile, ...] = ()
    crashes: tuple[InternalError, ...] = ()


def _linked_prompts(plans: Sequence[ServingPlan], config: Config) -> _LinkedPrompts:
    """Chat templates of the units' command lines, and the prompt code or logs that kvgate.yaml links to them."""
    templated = any(isinstance(plan.values.get("chat_template"), str) for plan in plans)
    references = {
        plan.workload_config.prompt
        for plan in plans
        if plan.workload_config is not None and plan.workload_config.prompt is not None
    }
    if not templated and not references:
        return _LinkedPrompts()
    from kvgate.prompt_files import linked_prompts

    found = linked_prompts(config.root, config.exclude, references, plans, config.models)
    return _LinkedPrompts(found.defects, found.unread, found.files, found.crashes)


def mend_paths(report: Report, paths: Sequence[Path], options: CheckOptions) -> Mended:
    """What the safe fixes of a report make of the tree; nothing is written.

    Raises:
        KvgateError: see :func:`check`.
    """
    from kvgate.findings.mend import mend
    from kvgate.manifests.collect import collect

    config = configuration_of_run(paths, options)
    files = {file.path for file in collect(paths, config.root, exclude=config.exclude).files}
    inside = [config.root.resolve(), *(path.resolve() for path in paths)]

    def may_change(path: str) -> bool:
        real = (config.root / path).resolve()
        return path in files and any(real == place or real.is_relative_to(place) for place in inside)

    return mend(report, lambda texts: check_paths(paths, replace(options, texts=texts)), may_change)


def write_mended(mended: Mended, paths: Sequence[Path], options: CheckOptions) -> str:
    """Write the files that fixes change, each in one go, and say what was done.

    Raises:
        InputError: a file has changed meanwhile, or cannot be written.
    """
    from kvgate.source.files import write_whole

    config = configuration_of_run(paths, options)
    for path, text in mended.after.items():
        file = config.root / path
        try:
            data = file.read_bytes()
            if SourceFile.from_bytes(path, data).text != mended.before[path]:
                raise InputError(f"{path}: changed while it was checked; nothing is written to it")
            write_whole(file.resolve(), _encoded(text, data), mode=file.stat().st_mode & 0o7777)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    count = len(mended.fixed)
    return f"{count} finding{'' if count == 1 else 's'} fixed in {len(mended.after)} files" if count else ""


def _encoded(text: str, old: bytes) -> bytes:
    """A text in the encoding that a file had, with its mark."""
    if old.startswith((b"\xff\xfe", b"\xfe\xff")):
        name = "utf-16-le" if old.startswith(b"\xff\xfe") else "utf-16-be"
        return old[:2] + text.encode(name)
    return (b"\xef\xbb\xbf" if old.startswith(b"\xef\xbb\xbf") else b"") + text.encode("utf-8")


def _beside(paths: Sequence[Path], config: Config) -> tuple[SourceFile, ...]:
    """What stands beside the manifests: clients, dashboards, alerts, proxies."""
    from kvgate.manifests.collect import collect
    from kvgate.ruleset.scene import BESIDE_SUFFIXES

    return collect(paths, config.root, exclude=config.exclude, suffixes=BESIDE_SUFFIXES).files


def _distinct_files(files: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
    """Each file once, by its path."""
    return tuple({file.path: file for file in reversed(files)}.values())


def prompt_paths(paths: Sequence[Path], options: CheckOptions) -> Report:
    """The report of ``kvgate prompts``: prompt code, templates and request logs.

    Raises:
        KvgateError: see :func:`check`.
    """
    return prompt_run(paths, options)[0]


def prompt_run(paths: Sequence[Path], options: CheckOptions) -> tuple[Report, list[str]]:
    """The pipeline of ``kvgate prompts``: the report, and lines about the load that request logs show.

    Raises:
        KvgateError: see :func:`check`.
    """
    from kvgate.findings.finding import Unchecked
    from kvgate.prompt_files import read_prompt_paths
    from kvgate.prompts.requests import describe_log
    from kvgate.ruleset.load import load_rules
    from kvgate.ruleset.run import judge

    require(paths)
    config = configuration_of_run(paths, options)
    reading = read_prompt_paths(paths, config.root, config.exclude, _log_settings(config, options))
    judgement = judge(
        load_rules(config.root, thorough=False),
        _selection(config, options),
        (),
        files=reading.files,
        config=config,
        prompts=reading.defects,
        only=("prompt", "suppression"),
    )
    unchecked = [Unchecked(reason, path) for path, reason in reading.left_out]
    unchecked += [Unchecked(place.reason, place.span.path, place.span.line) for place in reading.unread]
    report = _report(judgement, unchecked, reading.crashes, config, options)
    return report, [line for summary in reading.logs for line in describe_log(summary)]


def _log_settings(config: Config, options: CheckOptions) -> dict[str, LogSettings]:
    """Block sizes and tokenizers for the logs that kvgate.yaml links to units."""
    from kvgate.prompts.link import is_log

    declared = [entry.workload.prompt for entry in config.units if entry.workload is not None]
    if not any(prompt is not None and is_log(prompt) for prompt in declared):
        return {}
    from kvgate.prompt_files import log_settings

    _, reading = read_paths([config.root], config)
    return log_settings(plans_of(reading, config, options), config.root, config.models)


def prompts_sentence(report: Report) -> str:
    """The closing sentence of ``kvgate prompts`` for stderr."""
    from kvgate.report.text import summary_sentence as sentence

    said = sentence(report)
    if said.startswith("nothing to check"):
        return "no findings in prompts"
    return said.replace("0 servers checked: ", "prompts checked: ", 1)


def _unmatched_entries(
    config: Config, collection: Collection, plans: Sequence[ServingPlan], *, whole: bool
) -> list[Unchecked]:
    """Entries of kvgate.yaml that no server answers to: what they declare counts for nothing."""
    from kvgate.config import UnitKey
    from kvgate.findings.finding import Unchecked

    units = [
        UnitKey(path=unit.path, container=unit.container, name=unit.name, kind=unit.kind, id=unit.id)
        for unit in (plan.unit for plan in plans)
    ]
    read = [file.path for file in collection.files]
    return [
        Unchecked("this entry of units matches no server", config.path or "kvgate.yaml", entry.span.line)
        for entry in config.unmatched(read, units, whole=whole)
    ]


def _without_secrets(report: Report, plans: Sequence[ServingPlan], collection: Collection) -> Report:
    """The report with the secrets of its command lines and environments masked wherever they were quoted."""
    from kvgate.engine.secrets import find_secrets, redact
    from kvgate.findings.report import redacted

    secrets: set[str] = set()
    for plan in plans:
        variables = [(item.name, item.value.value) for item in plan.unit.environment if item.value is not None]
        secrets |= find_secrets([word.value for word in plan.unit.words], variables)
    if not secrets:
        return report
    for file in (*collection.files, *collection.around):
        file.secrets = frozenset(secret for secret in secrets if secret in file.text)
    return redacted(report, lambda text: redact(text, secrets))


def _rules_over_one_state(config: Config) -> dict[str, RuleConfig]:
    """kvgate.yaml's rules without those that only a comparison has."""
    if not config.rules:
        return {}
    from kvgate.gate.rules import RULES

    return {name: said for name, said in config.rules.items() if name not in RULES}


def _baseline_file(config: Config, options: CheckOptions) -> Path | None:
    if options.baseline is not None:
        return options.baseline
    return config.root / config.baseline if config.baseline else None


def _without_accepted(findings: Any, config: Config, options: CheckOptions) -> tuple[Any, int]:
    from kvgate.findings.baseline import BaselineError, apply_baseline, read_baseline

    file = _baseline_file(config, options)
    # a baseline that kvgate.yaml names may not have been written yet; one that was asked for must be there
    if file is None or (options.baseline is None and not file.exists()):
        return findings, 0
    try:
        return apply_baseline(findings, read_baseline(file.read_text(encoding="utf-8")))
    except (BaselineError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: {error}") from None
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from None


def write_baseline(report: Report, paths: Sequence[Path], options: CheckOptions) -> str:
    """Accept what a report found: write the baseline file, and say so.

    Raises:
        InputError: no file is named, or it cannot be written.
    """
    from kvgate.findings.baseline import write_baseline as text_of
    from kvgate.source.files import write_whole

    file = _baseline_file(configuration_of_run(paths, options), options)
    if file is None:
        raise InputError("--write-baseline: no file is named (--baseline FILE, or baseline: in kvgate.yaml)")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text_of(report.findings).encode())
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error.strerror or error}") from None
    return f"{file}: {len(report.findings)} findings accepted"


def fails(report: Report, fail_on: str, *, strict: bool) -> bool:
    """Whether the exit code is 1: findings at or above a severity; with ``strict`` also what could not be judged."""
    from kvgate.findings.finding import Severity

    if strict:
        unknown = any(_is_unknown(unit.prediction) for unit in report.units)
        if not report.units or report.unchecked or unknown:
            return True
    if fail_on == "never":
        return False
    floor = Severity(fail_on).rank
    return any(finding.severity.rank >= floor for finding in report.findings)


def _is_unknown(prediction: Any) -> bool:
    return prediction is None or prediction.kv_cache.num_gpu_blocks is None


def render_prediction(
    prediction: Prediction, form: str, *, verbose: bool, advice: Callable[[], Advice] | None = None
) -> str:
    """A prediction as text or JSON.

    Raises:
        InputError: predictions have no such format.
    """
    if form == "json":
        import json

        return json.dumps(prediction.as_dict(), indent=2, ensure_ascii=False) + "\n"
    if form == "text":
        from kvgate.report.waterfall import render_prediction as render

        return render(prediction, verbose=verbose, advice=advice() if advice else None)
    raise InputError(f"predict prints text or json, not {form}")


def lock_models(paths: Sequence[Path], options: CheckOptions) -> tuple[list[str], bool]:
    """``kvgate lock``: one line per model, and whether all could be locked.

    Raises:
        KvgateError: see :func:`check`.
    """
    from kvgate.models.resolve import ModelError, lock_model

    require(paths)
    configuration = configuration_of_run(paths, options)
    _, reading = read_paths(paths, configuration, options)
    asked = configuration.online if options.online is None else options.online
    lines: list[str] = []
    complete = True
    plans = plans_of(reading, configuration, replace(options, online=False))
    named: dict[tuple[str, str | None], list[ServingPlan]] = {}
    for plan in plans:
        if plan.model_reference:
            named.setdefault((plan.model_reference, plan.revision), []).append(plan)
    for reference, revision in sorted(named, key=lambda pair: (pair[0], pair[1] or "")):
        try:
            locked = lock_model(
                reference,
                configuration.root,
                mapping=configuration.models,
                online=asked,
                environ=options.environ,
                revision=revision,
            )
        except ModelError as error:
            if not asked and any(plan.model and plan.model.source == "bundled" for plan in named[reference, revision]):
                lines.append(f"{reference}: the bundled card is used; --online locks the configuration of a revision")
                continue
            lines.append(str(error))
            complete = False
        else:
            lines.append(f"{reference}: {locked}")
    return lines or ["no unit names a model"], complete


def diff_paths(paths: Sequence[Path], options: DiffOptions) -> Difference:
    """The pipeline of ``kvgate diff``.

    Raises:
        KvgateError: see :func:`kvgate.gate.pipeline.diff_trees`.
    """
    from kvgate import __version__
    from kvgate.gate.pipeline import diff_trees
    from kvgate.gate.state import Checking

    if options.gpu:
        from kvgate.hardware.catalogue import explain_gpu, find_gpu

        if find_gpu(options.gpu) is None:
            raise InputError(f"--gpu: {explain_gpu(options.gpu)}")
    asked = replace(options, vllm_version=release_of(options.vllm_version), version=__version__)
    return diff_trees(paths, asked, Checking(partial(read_paths, options=options), judge=judge_state))


def read_event(environ: Mapping[str, str]) -> Event | None:
    """What the CI system says of the change that is being checked."""
    from kvgate.gate.event import MAX_EVENT_BYTES
    from kvgate.gate.event import read_event as read

    payload = None
    place = environ.get("GITHUB_EVENT_PATH")
    if place:
        try:
            with Path(place).open("rb") as file:
                payload = file.read(MAX_EVENT_BYTES).decode("utf-8", "replace")
        except OSError as error:
            raise InputError(f"GITHUB_EVENT_PATH: {place}: {error.strerror or error}") from None
    return read(environ, payload)


def write_comment(
    difference: Difference, event: Event | None, mode: Literal["update", "delete"], environ: Mapping[str, str]
) -> str:
    """The comment on the pull request of this run, and what became of it, in words.

    Raises:
        KvgateError: it could not be written.
    """
    from kvgate.github.comment import API, PullRequest
    from kvgate.github.comment import write_comment as write
    from kvgate.report.difference.markdown import render_difference_markdown

    repository, token = environ.get("GITHUB_REPOSITORY"), environ.get("GITHUB_TOKEN")
    if event is None or event.number is None or not event.name.startswith("pull_request"):
        return "no comment: this run is not for a pull request"
    if not repository or not token:
        return "no comment: GITHUB_REPOSITORY and GITHUB_TOKEN are not set"
    pull_request = PullRequest(repository, event.number, token, environ.get("GITHUB_API_URL") or API)
    return write(pull_request, render_difference_markdown(difference), clean=difference.is_clean, mode=mode)


def write_summary(difference: Difference, environ: Mapping[str, str]) -> str:
    """The summary of this job, and what became of it, in words."""
    from kvgate.github.summary import append_summary, room_bytes
    from kvgate.report.difference.markdown import render_difference_markdown

    place = environ.get("GITHUB_STEP_SUMMARY")
    if not place:
        return "no summary: GITHUB_STEP_SUMMARY is not set"
    file = Path(place)
    try:
        append_summary(file, render_difference_markdown(difference, limit_bytes=room_bytes(file)))
    except OSError as error:
        raise InputError(f"GITHUB_STEP_SUMMARY: {place}: {error.strerror or error}") from None
    return ""


def init(paths: Sequence[Path], *, write: bool) -> tuple[str, list[str]]:
    """``kvgate init``: the files that this repository begins with.

    Args:
        write: write what is not there; otherwise it is only shown.

    Returns:
        The new files as a diff, and a line for each file that was written.

    Raises:
        KvgateError: a path does not exist, or a file cannot be written.
    """
    from kvgate import __version__, starter
    from kvgate.config import Config

    require(paths)
    root = tree_root(Path())
    config = Config(root=root)
    _, reading = read_paths(paths, config)
    plans = plans_of(reading, config, CheckOptions())
    proposals = starter.propose(plans, root, __version__)
    if write:
        starter.write(proposals, root)
    written = [f"{proposal.path}: written" for proposal in proposals if not proposal.present]
    return starter.show(proposals), written if write else []


def explain_rule(rule_id: str) -> str:
    """The documentation of a rule.

    Raises:
        InputError: there is no such rule.
    """
    from kvgate.gate.rules import RULES, explain
    from kvgate.ruleset.documents import render_explain
    from kvgate.ruleset.load import load_rules

    rule = load_rules(tree_root(Path())).find(rule_id)
    if rule is None and rule_id in RULES:
        return explain(RULES[rule_id])
    if rule is None:
        raise InputError(f'there is no rule "{rule_id}"; `kvgate rules` lists them')
    return render_explain(rule)


def explain_releases(span: str, paths: Sequence[Path], environ: Mapping[str, str]) -> str:
    """What changed from one release to another: in general, and for the servers in ``paths``.

    Raises:
        InputError: the span is not ``A..B`` with two releases, or a path does not exist.
    """
    from kvgate.capacity.release_changes import release_changes
    from kvgate.report.waterfall import compare_releases

    old, separator, new = span.partition("..")
    if not separator:
        raise InputError(f'--release: two releases such as 0.19.1..0.20.0 expected, got "{span}"')
    versions = [release_of(text, "--release") or "" for text in (old, new)]
    reports = [
        check_paths(paths, CheckOptions(vllm_version=version, environ=environ)) if paths else None
        for version in versions
    ]
    units = [report.units if report else () for report in reports]
    return compare_releases(versions, release_changes(*versions), list(zip(*units, strict=True)))


def list_rules(form: str) -> str:
    """All rules as text, JSON or a Markdown table."""
    from kvgate.gate.rules import RULES as GATE_RULES
    from kvgate.ruleset.documents import render_rules
    from kvgate.ruleset.load import load_rules

    return render_rules(load_rules(tree_root(Path())), form, GATE_RULES.values())


def list_facts(form: str) -> str:
    """The facts that conditions are written over, with their types."""
    from kvgate.ruleset.documents import render_facts

    return render_facts(form)
