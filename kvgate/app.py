"""The pipeline of each command as a function. No printing, no exiting, no reading of the environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from kvgate.errors import KvgateError
from kvgate.options import RunOptions
from kvgate.records import record
from kvgate.source.text import SourceFile, words_of_command_line

if TYPE_CHECKING:
    from kvgate.capacity.levers import Advice
    from kvgate.capacity.prediction import Basis, Prediction, Workload
    from kvgate.config import Config, RuleConfig
    from kvgate.engine.logs import ServerLog
    from kvgate.findings.finding import InternalError, Unchecked
    from kvgate.findings.mend import Mended
    from kvgate.findings.report import Report, UnitReport
    from kvgate.gate.difference import Difference
    from kvgate.gate.event import Event
    from kvgate.gate.pipeline import DiffOptions
    from kvgate.hardware.gpu import Gpu
    from kvgate.manifests.collect import Collection
    from kvgate.manifests.rendering import Rendering
    from kvgate.manifests.unit import Reading
    from kvgate.models.model import Model
    from kvgate.plan import ModelContext, ServingPlan
    from kvgate.prompts.analysis import UnreadPrompt
    from kvgate.prompts.defect import Defect
    from kvgate.prompts.requests import LogSettings
    from kvgate.ruleset.load import RuleSet
    from kvgate.ruleset.run import Judgement, Selection
    from kvgate.smoke.command import Command
    from kvgate.smoke.load import Progress
    from kvgate.smoke.run import SmokeOptions
    from kvgate.smoke.subject import Subject
    from kvgate.smoke.verdict import Verdict

#: The path that stands for standard input.
STDIN: Final = Path("-")


class InputError(KvgateError):
    """What was asked for cannot be done: a path that does not exist, a model that is not known."""


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
        _find_model(model, Path(), online=False, environ={}),
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


def _find_model(
    model: str | Path | Mapping[str, Any],
    root: Path,
    *,
    online: bool,
    environ: Mapping[str, str],
    mapping: Mapping[str, str] | None = None,
) -> Model:
    from kvgate.models.resolve import ModelError, find_model, load_model, model_from_mapping

    try:
        if isinstance(model, Mapping):
            return model_from_mapping(model)
        if not str(model).strip():
            raise InputError("the model is empty: a Hub id, a directory or a config.json expected")
        path = Path(model)
        if path.exists():
            return load_model(path)
        if isinstance(model, Path) or path.is_absolute() or path.suffix == ".json" or model.startswith((".", "~")):
            raise InputError(f"{model}: no such file or directory")
        lookup = find_model(model, root=root, online=online, environ=environ, mapping=mapping or {})
    except (ModelError, OSError) as error:
        raise InputError(str(error)) from None
    if lookup.model is None:
        raise InputError(lookup.reason or f'model "{model}" is not known')
    return lookup.model


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
        _find_model(model, config.root, online=online, environ=environ, mapping=config.models),
        args,
        gpu=gpu,
        gpu_memory_bytes=options["gpu_memory_bytes"],
        vllm_version=_release(options["vllm_version"]) or config.vllm_version,
        env={},
        weight_bytes=options["weight_bytes"],
        workload=workload,
        context=ModelContext(config.root, online, environ),
        kv_cache_tokens=options["kv_cache_tokens"],
    )


def load_configuration(path: Path | None, start: Path) -> Config:
    """The kvgate.yaml at ``path``, else the one found from ``start`` upwards, else the defaults.

    Raises:
        KvgateError: it cannot be read or says something unknown.
    """
    from kvgate.config import Config, find_config, load_config

    found = path or find_config(start.resolve())
    if found is None:
        return Config(root=tree_root(start))
    return load_config(found)


def tree_root(start: Path) -> Path:
    """The root of the git working tree that holds ``start``, else the folder itself."""
    folder = start.resolve()
    folder = folder if folder.is_dir() else folder.parent
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return candidate
    return folder


@record
class CheckOptions(RunOptions):
    """What ``kvgate check`` was asked for beyond the paths.

    Attributes:
        ignore_baseline: report accepted findings too (they are about to be written anew).
        texts: other texts for some files, by their path as shown; they are checked in place of what is on the disk.
        stdin: the text that the path ``-`` stands for.
    """

    ignore_baseline: bool = False
    texts: Mapping[str, str] = field(default_factory=dict)
    stdin: str | None = None


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

    for path in paths:
        if not path.exists() and (options.stdin is None or path != STDIN):
            raise InputError(f"{path}: no such file or directory")
    config = _configuration_of_run(paths, options)
    collection, reading = _read(paths, config, options)
    plans = _plans(reading, config, options)
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
        _distinct_files([*collection.files, *linked.files]),
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

    config = _configuration_of_run(paths, options)
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

    config = _configuration_of_run(paths, options)
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

    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file or directory")
    config = _configuration_of_run(paths, options)
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

    _, reading = _read([config.root], config)
    return log_settings(_plans(reading, config, options), config.root, config.models)


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
    for file in collection.files:
        file.secrets = frozenset(secret for secret in secrets if secret in file.text)
    return redacted(report, lambda text: redact(text, secrets))


def _rules_over_one_state(config: Config) -> dict[str, RuleConfig]:
    """kvgate.yaml's rules without those that only a comparison has."""
    if not config.rules:
        return {}
    from kvgate.gate.rules import RULES

    return {name: said for name, said in config.rules.items() if name not in RULES}


def _configuration_of_run(paths: Sequence[Path], options: CheckOptions) -> Config:
    """kvgate.yaml of the current folder for paths inside it, of the first path otherwise."""
    from kvgate.config import Config, find_config, load_config

    here = Path.cwd()
    first = paths[0].resolve()
    start = here if first.is_relative_to(here) else first
    found = options.config or find_config(start)
    return load_config(found) if found else Config(root=here)


def _read(paths: Sequence[Path], config: Config, options: RunOptions | None = None) -> tuple[Collection, Reading]:
    from kvgate.manifests.collect import collect
    from kvgate.manifests.read import read_tree

    collection = collect(paths, config.root, exclude=config.exclude)
    if isinstance(options, CheckOptions):
        collection = _with_other_texts(collection, options)
    reading = read_tree(collection.files, config.root, named=collection.named, rendering=_rendering(config, options))
    return collection, reading


def _with_other_texts(collection: Collection, options: CheckOptions) -> Collection:
    """The collection with the texts that an invocation brings along: those of fixes, and standard input."""
    texts = options.texts
    if texts:
        files = (SourceFile(file.path, texts[file.path]) if file.path in texts else file for file in collection.files)
        collection = replace(collection, files=tuple(files))
    if options.stdin is None:
        return collection
    given = SourceFile("<stdin>", options.stdin)
    missing = tuple(path for path in collection.missing if path != str(STDIN))
    return replace(collection, files=(*collection.files, given), missing=missing, named=collection.named | {given.path})


def _rendering(config: Config, options: RunOptions | None) -> Rendering | None:
    """What Helm and kustomize render before anything is read; None is nothing."""
    asked = {*config.render, *(options.render if options is not None else ())}
    if not asked:
        return None
    from kvgate.manifests.rendering import ChartValues, Rendering

    charts = tuple(ChartValues(item.path, item.values, item.release, item.namespace) for item in config.charts)
    search_path = options.environ.get("PATH", "") if options is not None else ""
    return Rendering("helm" in asked, "kustomize" in asked, charts, search_path)


def _plans(reading: Reading, config: Config, options: CheckOptions) -> list[ServingPlan]:
    from kvgate.plan import ModelContext, PlanOverrides, make_plan

    if options.gpu:
        from kvgate.hardware.catalogue import explain_gpu, find_gpu

        if find_gpu(options.gpu) is None:
            raise InputError(f"--gpu: {explain_gpu(options.gpu)}")
    overrides = PlanOverrides(vllm_version=_release(options.vllm_version), gpu=options.gpu)
    online = config.online if options.online is None else options.online
    context = ModelContext(root=config.root, online=online, environ=options.environ)
    return [make_plan(unit, config, overrides, context) for unit in reading.units]


def _release(text: str | None, option: str = "--vllm-version") -> str | None:
    """A release as people write it (``v0.11.2``).

    Raises:
        InputError: it is no release.
    """
    if text is None:
        return None
    from kvgate.engine.images import release_named

    named = release_named(text)
    if named is None:
        raise InputError(f'{option}: a release such as 0.11.2 expected, got "{text}"')
    return named


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

    file = _baseline_file(_configuration_of_run(paths, options), options)
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
    from kvgate.models.lock import lock_model
    from kvgate.models.resolve import ModelError

    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file or directory")
    configuration = _configuration_of_run(paths, options)
    _, reading = _read(paths, configuration, options)
    asked = configuration.online if options.online is None else options.online
    lines: list[str] = []
    complete = True
    plans = _plans(reading, configuration, replace(options, online=False))
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
    asked = replace(options, vllm_version=_release(options.vllm_version), version=__version__)
    return diff_trees(paths, asked, Checking(partial(_read, options=options), judge=judge_state))


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

    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file or directory")
    root = tree_root(Path())
    config = Config(root=root)
    _, reading = _read(paths, config)
    plans = _plans(reading, config, CheckOptions())
    proposals = starter.propose(plans, root, __version__)
    if write:
        starter.write(proposals, root)
    written = [f"{proposal.path}: written" for proposal in proposals if not proposal.present]
    return starter.show(proposals), written if write else []


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
    if not path.exists():
        raise InputError(f"{path}: no such file or directory")
    config = _configuration_of_run([path], options)
    _, reading = _read([path], config, options)
    return config, _plans(reading, config, options)


def _subject(plan: ServingPlan, config: Config) -> Subject:
    from kvgate.smoke.subject import subject_of_plan

    mapped = config.models.get(plan.model_reference or "")
    return subject_of_plan(plan, (mapped,) if mapped else ())


def _model_of_log(name: str | None, options: CheckOptions) -> tuple[Model | None, str | None]:
    if name is None:
        return None, "the log does not name the model"
    config = _configuration_of_run([Path()], options)
    online = config.online if options.online is None else options.online
    try:
        return _find_model(name, config.root, online=online, environ=options.environ, mapping=config.models), None
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
    versions = [_release(text, "--release") or "" for text in (old, new)]
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
