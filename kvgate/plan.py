"""From a serve unit and the configuration to what will really run: version, model, GPU, arguments, workload.

Each resolved value keeps its origin, so that a report can say where it came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from kvgate.capacity.prediction import Basis, Prediction, Starts, Workload
from kvgate.config import Config, UnitConfig, WorkloadConfig
from kvgate.findings.finding import InternalError, Unchecked
from kvgate.records import record
from kvgate.source.text import Span, Unresolved
from kvgate.spelling import nearest

if TYPE_CHECKING:
    from kvgate.capacity.measured import MeasuredTerms
    from kvgate.engine.arguments import ParsedArguments
    from kvgate.engine.images import Image
    from kvgate.hardware.gpu import Gpu
    from kvgate.manifests.collect import Collection
    from kvgate.manifests.unit import Reading, ServeUnit
    from kvgate.measured import Measurement
    from kvgate.models.model import Model


# where KServe puts the model that its storage initializer fetches or mounts (kserve, pkg/constants/constants.go)
STORAGE_MOUNT: Final = "/mnt/models"


@record
class Origin:
    """Where a value came from: a place in a file, or words (``default of vLLM 0.20.0``, ``kvgate.yaml``, ``--gpu``)."""

    words: str
    span: Span | None = None

    def __str__(self) -> str:
        if self.span is None:
            return self.words
        return f"{self.span.path}:{self.span.line}"


@record
class ServingPlan:
    """What one serve unit will run as, each value with its basis and origin.

    Attributes:
        version: the vLLM release the unit is judged by; ``version_basis`` is ``declared`` or ``assumed``.
        model: None when it is neither locked, local, cached nor bundled; ``model_reason`` then says what to do.
        gpu: None when unknown; ``gpu_reason`` says why.
        gpu_count: GPUs of one replica; None when unknown.
        values: engine arguments that were set, dest -> typed value (the model aside).
        origins: name of a value (an engine argument's dest, ``model``, ``vllm_version``, ``gpu``, ``gpu_count``,
            ``workload``, ``replicas``) -> where it came from.
        measurements: what servers measured (``.kvgate/measured.json``), used where it still holds.
        min_sustained: the number of requests that kvgate.yaml demands, None when it demands none.
        draft: the draft model of speculative decoding, where it is one of its own and at hand.
        gpu_candidates: the GPUs that remain possible where the files leave several.
        gpu_shared: the GPU is time-sliced: other pods use the same memory.
        prompt_link: what the prompts share that kvgate.yaml links to the unit, None without a link.
    """

    unit: ServeUnit
    parsed: ParsedArguments
    image: Image | None
    version: str
    version_basis: Literal["declared", "assumed"]
    model_reference: str | None
    model: Model | None
    model_reason: str | None
    gpu: Gpu | None
    gpu_count: int | None
    gpu_memory_bytes: int | None
    gpu_basis: Basis
    gpu_reason: str | None
    values: Mapping[str, Any]
    environment: Mapping[str, str]
    workload: Workload | None
    replicas: int
    origins: Mapping[str, Origin] = field(default_factory=dict)
    min_sustained: int | None = None
    data_parallel_size: int = 1
    workload_config: WorkloadConfig | None = None
    problems: tuple[tuple[str, Span], ...] = ()
    draft: Model | None = None
    gpu_candidates: tuple[Gpu, ...] = ()
    gpu_shared: bool = False
    prompt_link: PromptLink | None = None

    measurements: tuple[Measurement, ...] = ()
    tolerance: float = 0.05

    @property
    def revision(self) -> str | None:
        """The model's revision that the command line asks for."""
        value = self.values.get("revision")
        return value if isinstance(value, str) else None

    def predict(
        self,
        *,
        without: tuple[str, ...] = (),
        changes: Mapping[str, Any] | None = None,
        workload: Workload | None = None,
        gpu: Gpu | None = None,
        kv_cache_tokens: int | None = None,
    ) -> Prediction | None:
        """The prediction for this plan, or for the plan with some engine arguments unset or changed.

        None when the model is not known. ``kv_cache_tokens`` is the pool where a server has printed it.
        """
        if self.model is None:
            return None
        from kvgate.capacity.predict import predict_capacity

        values = {dest: value for dest, value in self.values.items() if dest not in without}
        values.update(changes or {})
        used = gpu or self.gpu
        prediction = predict_capacity(
            self.model,
            values,
            version=self.version,
            version_basis=self.version_basis,
            gpu=used,
            gpu_count=self.gpu_count,
            gpu_memory_bytes=None if gpu else self.gpu_memory_bytes,
            gpu_basis="assumed" if gpu else self.gpu_basis,
            env=self.environment,
            workload=workload or self.workload,
            kv_cache_tokens=kv_cache_tokens,
            measured=self._measured(values, used),
            draft=self.draft,
            official_image=self.image is not None and self.image.official and self.image.backend == "cuda",
        )
        return with_refusals(prediction, self.parsed)

    def _measured(self, values: Mapping[str, Any], gpu: Gpu | None) -> MeasuredTerms | None:
        if not self.measurements:
            return None
        from kvgate.measured import measured_terms

        return measured_terms(
            self.measurements,
            unit=self.unit.id,
            model=self.model_reference,
            vllm_version=self.version,
            gpu=gpu.name if gpu else None,
            values=values,
            tolerance=self.tolerance,
        )


@record
class PlanOverrides:
    """What the command line says about every unit; it wins over manifests and kvgate.yaml."""

    vllm_version: str | None = None
    gpu: str | None = None
    workload: Workload | None = None


@record
class ModelContext:
    """Where models may be looked up. ``environ`` is handed in: only the command line reads the process environment."""

    root: Path
    online: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)


_ANNOTATION = "kvgate.dev/"
_COUNTS = {
    "peak-concurrency": "peak_concurrency",
    "prompt-tokens": "prompt_tokens",
    "output-tokens": "output_tokens",
    "shared-prefix-tokens": "shared_prefix_tokens",
}
_KNOWN_ANNOTATIONS = (*_COUNTS, "gpu", "vllm-version")


def make_plan(unit: ServeUnit, config: Config, overrides: PlanOverrides, context: ModelContext) -> ServingPlan:
    """Resolve everything that the prediction and the rules need of one unit.

    Precedence of a value: command line, annotation on the object, the manifest itself, the matching entry of
    kvgate.yaml, kvgate.yaml's general value, an assumption that is marked as one. Only the GPU of a matching
    kvgate.yaml entry wins over node selectors, since selectors often allow several.
    """
    from kvgate.engine.arguments import parse_arguments
    from kvgate.engine.images import parse_image
    from kvgate.measured import read_measurements

    entry = config.unit(path=unit.path, container=unit.container, name=unit.name, kind=unit.kind, id=unit.id)
    origins: dict[str, Origin] = {}
    image = parse_image(unit.image.value) if unit.image and unit.image.resolved else None
    version, version_basis = _version(unit, image, config, entry, overrides, origins)
    positional, assumed = takes_positional_model(unit, image), version_basis == "assumed"
    parsed = parse_arguments(unit.words, version, positional_model=positional, assumed=assumed)
    values = usable_values(parsed)
    for dest, argument in parsed.arguments.items():
        origins[dest] = Origin("argument", argument.span)
    environment = {variable.name: variable.value.value for variable in unit.environment if variable.value is not None}

    reference, model, model_reason = _model(unit, parsed, values, config, context, origins)
    gpu_choice = _gpu(unit, image, config, entry, overrides, origins)
    gpu_count = _gpu_count(unit, entry, origins)
    replicas = unit.replicas if unit.replicas is not None else 1
    origins["replicas"] = (
        Origin("manifest", unit.replicas_span) if unit.replicas is not None else Origin("default of 1")
    )
    problems = _unknown_annotations(unit)
    link = _prompt_link(entry, context, problems, reference, config.models)
    workload = _workload(unit, entry, overrides, origins, problems, link)
    data_parallel = values.get("data_parallel_size")
    return ServingPlan(
        unit=unit,
        parsed=parsed,
        image=image,
        version=version,
        version_basis=version_basis,
        model_reference=reference,
        model=model,
        model_reason=model_reason,
        gpu=gpu_choice.gpu,
        gpu_count=gpu_count,
        gpu_memory_bytes=None,
        gpu_basis=gpu_choice.basis,
        gpu_reason=gpu_choice.reason,
        values=values,
        environment=environment,
        workload=workload,
        workload_config=entry.workload if entry else None,
        replicas=replicas,
        origins=origins,
        min_sustained=entry.min_sustained if entry else None,
        data_parallel_size=data_parallel if isinstance(data_parallel, int) and data_parallel > 0 else 1,
        problems=tuple(problems),
        draft=find_draft(values, config.models, context),
        gpu_candidates=gpu_choice.candidates,
        gpu_shared=gpu_choice.shared,
        prompt_link=link,
        measurements=read_measurements(context.root),
        tolerance=config.smoke.tolerance,
    )


def at_release(plan: ServingPlan, version: str) -> ServingPlan:
    """The same plan as if the files stated another release: its command line is read by that release's flags."""
    from kvgate.engine.arguments import parse_arguments

    positional = takes_positional_model(plan.unit, plan.image)
    parsed = parse_arguments(plan.unit.words, version, positional_model=positional)
    return replace(plan, version=version, version_basis="declared", parsed=parsed, values=usable_values(parsed))


def takes_positional_model(unit: ServeUnit, image: Image | None) -> bool:
    """Whether the unit's first free word is the model.

    What an image starts where the manifest gives no command depends on its release: the API server module, which takes
    none, or ``vllm serve``. Where that is not known, the words decide.
    """
    from kvgate.manifests.unit import IMAGE_ENTRY

    if unit.entry != IMAGE_ENTRY or not unit.positional_model:
        return unit.positional_model
    if image is not None and image.entrypoint is not None:
        return "serve" in image.entrypoint
    return bool(unit.words) and not unit.words[0].value.startswith("-")


def with_refusals(prediction: Prediction, parsed: ParsedArguments) -> Prediction:
    """A prediction of a command line that vLLM refuses says so, whatever its pool would be.

    A refusal by a release whose table was read, for a declared version, is certain; by an assumed one it is likely.
    """
    # words that the files do not determine are no refusal: nobody knows what they are
    refusals = [problem for problem in parsed.problems if problem.refused and problem.kind != "unresolved-words"]
    if not refusals:
        return prediction
    certain = prediction.vllm_basis == "declared" and any(problem.certain for problem in refusals)
    starts: Starts = "no" if certain or prediction.starts == "no" else "unlikely"
    reasons = tuple(problem.message for problem in refusals)
    return replace(prediction, starts=starts, reasons=(*reasons, *prediction.reasons))


def usable_values(parsed: ParsedArguments) -> dict[str, Any]:
    """Engine arguments by dest; one whose value vLLM refuses is unresolved, since nothing can be computed with it."""
    refused = [problem for problem in parsed.problems if problem.kind in ("invalid-value", "missing-value")]
    values: dict[str, Any] = {}
    for dest, argument in parsed.arguments.items():
        values[dest] = argument.value
        for problem in refused:
            if _inside(problem.span, argument.span) and not isinstance(argument.value, Unresolved):
                values[dest] = Unresolved(argument.text.value if argument.text else "", problem.message)
    return values


def _version(
    unit: ServeUnit,
    image: Image | None,
    config: Config,
    entry: UnitConfig | None,
    overrides: PlanOverrides,
    origins: dict[str, Origin],
) -> tuple[str, Literal["declared", "assumed"]]:
    from kvgate.engine.releases import newest_release

    annotation = unit.annotations.get(_ANNOTATION + "vllm-version")
    image_span = unit.image.span if unit.image else None
    if overrides.vllm_version:
        origins["vllm_version"] = Origin("--vllm-version")
        return overrides.vllm_version, "declared"
    if annotation is not None:
        origins["vllm_version"] = Origin("annotation", annotation.span)
        return annotation.value.removeprefix("v"), "declared"
    installed = _installed(unit)
    if installed is not None and unit.requirement is not None:
        origins["vllm_version"] = Origin("pip requirement", unit.requirement.span)
        return installed, "declared"
    if image and image.vllm_version and image.version_declared:
        origins["vllm_version"] = Origin("image", image_span)
        return image.vllm_version, "declared"
    if entry and entry.vllm_version:
        origins["vllm_version"] = Origin(f"kvgate.yaml, units entry in line {entry.span.line}", entry.span)
        return entry.vllm_version, "declared"
    if config.vllm_version:
        origins["vllm_version"] = Origin("kvgate.yaml", config.vllm_version_span)
        return config.vllm_version, "declared"
    if image and image.vllm_version:
        origins["vllm_version"] = Origin("tag of an image that is not vLLM's own", image_span)
        return image.vllm_version, "assumed"
    newest = newest_release()
    origins["vllm_version"] = Origin("newest release known to kvgate, since no file says")
    return newest, "assumed"


def _installed(unit: ServeUnit) -> str | None:
    """The release that the unit's own script installs over whatever its image brings."""
    if unit.requirement is None or not unit.requirement.resolved:
        return None
    from packaging.version import InvalidVersion, Version

    text = unit.requirement.value.partition("==")[2].strip()
    try:
        return str(Version(text))
    except InvalidVersion:
        return None


def _model(
    unit: ServeUnit,
    parsed: ParsedArguments,
    values: Mapping[str, Any],
    config: Config,
    context: ModelContext,
    origins: dict[str, Origin],
) -> tuple[str | None, Model | None, str | None]:
    from kvgate.models.resolve import find_model

    reference: str | None = None
    named = parsed.model
    # a command that names the place where the controller puts the model leaves it to the controller which one that is
    place = named.value.rstrip("/") if named is not None and isinstance(named.value, str) else None
    if place == STORAGE_MOUNT and STORAGE_MOUNT not in config.models:
        mounted = unit.storage_model
    else:
        mounted = unit.storage_model if named is None else None
    if mounted is not None:
        origins["model"] = Origin("mounted model", mounted.span)
        reference = mounted.value
    elif named is not None:
        origins["model"] = Origin("argument", named.span)
        if isinstance(named.value, Unresolved):
            return named.value.text, None, named.value.reason
        reference = str(named.value)
    if not reference:  # a script's variable may be empty until the script is told the model
        return None, None, "no file names the model"
    # as the unit's own command names it; what a runtime's command says is the same for all models
    own = named is not None and unit.node is not None and _inside(named.span, unit.node.span)
    shown = str(named.value) if named is not None and own else reference
    if mounted is not None and mounted.unresolved:
        return shown, None, mounted.unresolved[0].reason
    revision = values.get("revision")
    lookup = find_model(
        reference,
        root=context.root,
        mapping=config.models,
        online=context.online,
        environ=context.environ,
        revision=revision if isinstance(revision, str) else None,
    )
    return shown, lookup.model, lookup.reason


def _inside(inner: Span, outer: Span) -> bool:
    return inner.file is outer.file and outer.start <= inner.start <= inner.end <= outer.end


@record
class _GpuChoice:
    gpu: Gpu | None
    basis: Basis
    reason: str | None = None
    candidates: tuple[Gpu, ...] = ()
    shared: bool = False


def _gpu(
    unit: ServeUnit,
    image: Image | None,
    config: Config,
    entry: UnitConfig | None,
    overrides: PlanOverrides,
    origins: dict[str, Origin],
) -> _GpuChoice:
    from kvgate.hardware.catalogue import match_gpu
    from kvgate.hardware.hints import GpuHint, gpu_from_hints

    def named(name: str, origin: Origin) -> _GpuChoice:
        origins["gpu"] = origin
        match = match_gpu(name)
        if match.gpu is not None:
            return _GpuChoice(match.gpu, "declared")
        return _GpuChoice(None, "unknown", match.reason, match.candidates)

    annotation = unit.annotations.get(_ANNOTATION + "gpu")
    if overrides.gpu:
        return named(overrides.gpu, Origin("--gpu"))
    if annotation is not None:
        return named(annotation.value, Origin("annotation", annotation.span))
    if entry and entry.gpu:
        return named(entry.gpu, Origin(f"kvgate.yaml, units entry in line {entry.span.line}", entry.span))
    if image and image.backend == "cpu":
        return named("cpu", Origin("CPU image", unit.image.span if unit.image else None))
    if image and image.backend == "tpu":
        return _GpuChoice(None, "unknown", "a TPU image: kvgate knows GPUs and vLLM's CPU backend")
    hints = [GpuHint(hint.key, hint.values) for hint in unit.node_hints]
    hints += [GpuHint(request.resource, (str(request.count or ""),)) for request in unit.gpu_requests]
    finding = gpu_from_hints(hints)
    if finding.gpu:
        spans = {hint.key: hint.span for hint in unit.node_hints}
        spans.update({request.resource: request.span for request in unit.gpu_requests})
        key = finding.hint.key if finding.hint else ""
        origins["gpu"] = Origin(key or "manifest", spans.get(key))
        return _GpuChoice(finding.gpu, finding.basis, finding.reason, shared=finding.shared)
    if config.gpu:
        return named(config.gpu, Origin("kvgate.yaml", config.gpu_span))
    reason = finding.reason or "no file names the GPU"
    return _GpuChoice(None, "unknown", reason, finding.candidates, finding.shared)


def _gpu_count(unit: ServeUnit, entry: UnitConfig | None, origins: dict[str, Origin]) -> int | None:
    counts = [request.count for request in unit.gpu_requests]
    if counts and all(count is not None for count in counts):
        origins["gpu_count"] = Origin("resources", unit.gpu_requests[0].span)
        return sum(count for count in counts if count is not None)
    if entry and entry.gpu_count:
        origins["gpu_count"] = Origin(f"kvgate.yaml, units entry in line {entry.span.line}", entry.span)
        return entry.gpu_count
    return None


def find_draft(values: Mapping[str, Any], mapping: Mapping[str, str], context: ModelContext) -> Model | None:
    """The draft model of speculative decoding, where it is one of its own and its configuration is at hand."""
    speculative = values.get("speculative_config")
    named = speculative.get("model") if isinstance(speculative, Mapping) else values.get("speculative_model")
    if not isinstance(named, str) or not named or named.startswith("["):  # [ngram]
        return None
    from kvgate.models.resolve import find_model

    return find_model(named, root=context.root, mapping=mapping, online=context.online, environ=context.environ).model


def _unknown_annotations(unit: ServeUnit) -> list[tuple[str, Span]]:
    """Annotations of ours that mean nothing: a misspelt one would leave the load undeclared in silence."""
    problems: list[tuple[str, Span]] = []
    for name, text in unit.annotations.items():
        own = name.removeprefix(_ANNOTATION)
        if own != name and own not in _KNOWN_ANNOTATIONS:
            near = nearest(own, _KNOWN_ANNOTATIONS)
            hint = f', did you mean "{_ANNOTATION}{near}"?' if near else ""
            problems.append((f'kvgate knows no annotation "{name}"{hint}', text.span))
    return problems


def _workload(
    unit: ServeUnit,
    entry: UnitConfig | None,
    overrides: PlanOverrides,
    origins: dict[str, Origin],
    problems: list[tuple[str, Span]],
    link: PromptLink | None = None,
) -> Workload | None:
    if overrides.workload is not None:
        origins["workload"] = Origin("command line")
        return overrides.workload
    fields: dict[str, int | None] = {}
    if entry and entry.workload:
        declared = entry.workload
        origins["workload"] = Origin(f"kvgate.yaml, workload in line {declared.span.line}", declared.span)
        fields = {
            "peak_concurrency": declared.peak_concurrency,
            "prompt_tokens": declared.prompt_tokens.tokens if declared.prompt_tokens else None,
            "output_tokens": declared.output_tokens.tokens if declared.output_tokens else None,
            "shared_prefix_tokens": declared.shared_prefix_tokens,
        }
        if link is not None:
            fields = _with_link(fields, link)
    for suffix, name in _COUNTS.items():
        annotation = unit.annotations.get(_ANNOTATION + suffix)
        if annotation is None:
            continue
        text = annotation.value.strip()
        if not text.isdecimal() or len(text) > 9:
            problems.append(
                (f'{_ANNOTATION}{suffix}: a whole number expected, got "{annotation.value}"', annotation.span)
            )
            continue
        fields[name] = int(text)
        origins["workload"] = Origin("annotation", annotation.span)
    given: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    return Workload(**given) if given else None


# -- prompts that kvgate.yaml links to a unit --------------------------------------------------------------------------


@record
class PromptLink:
    """What the prompts share that ``workload.prompt`` names.

    Attributes:
        reference: as kvgate.yaml has it: ``app/rag.py:build_messages``, or a request log.
        tokens: leading tokens that all prompts share; an estimate, whose basis ``basis`` states.
        possible_tokens: what they would share with all static text first.
        prompt_tokens, output_tokens: 95th percentile over a request log, None for code.
    """

    reference: str
    tokens: int
    possible_tokens: int
    basis: str
    prompt_tokens: int | None = None
    output_tokens: int | None = None


def _prompt_link(
    entry: UnitConfig | None,
    context: ModelContext,
    problems: list[tuple[str, Span]],
    model: str | None,
    models: Mapping[str, str],
) -> PromptLink | None:
    declared = entry.workload if entry else None
    if declared is None or declared.prompt is None:
        return None
    from kvgate.prompts.tokens import tokenizer_folder

    found = _read_link(declared.prompt, context.root, tokenizer_folder(model, context.root, models))
    if isinstance(found, str):
        problems.append((f"workload.prompt: {found}", declared.span))
        return None
    return found


def _read_link(reference: str, root: Path, tokenizer: Path | None) -> PromptLink | str:
    """What a reference shares, or why that cannot be said."""
    import zlib

    from kvgate.manifests.collect import collect
    from kvgate.prompts.languages import unfollowed
    from kvgate.prompts.link import is_log, shared_by_code, shared_by_log, split_reference
    from kvgate.prompts.requests import LogProblem, LogSettings, open_log
    from kvgate.prompts.tokens import load_tokenizer

    path, function = split_reference(reference)
    file = root / path
    if not file.is_file() or not file.resolve().is_relative_to(root.resolve()):
        return f"{path}: no such file in the tree"
    if is_log(path):
        try:
            log = shared_by_log(*open_log(file, path), LogSettings(counting=load_tokenizer(tokenizer)))
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            return f"{path}: it cannot be read: {error}"
        if isinstance(log, LogProblem):
            return f"{path}: {log.message}"
        return PromptLink(
            reference, log.tokens, log.possible_tokens, log.basis, log.prompt_tokens_p95, log.output_tokens_p95
        )
    if file.suffix not in (".py", ".pyi"):
        return f"{path}: {unfollowed(path)}"
    code = shared_by_code(collect([root, file], root, suffixes=frozenset({".py"})).files, path, function)
    if code is None:
        return f"{reference}: no prompt is built there that can be followed"
    return PromptLink(reference, code.tokens, code.possible_tokens, code.basis)


def _with_link(fields: dict[str, int | None], link: PromptLink) -> dict[str, int | None]:
    """A declared load with what it leaves to the prompts; what is declared wins."""
    prompt = fields["prompt_tokens"] if fields["prompt_tokens"] is not None else link.prompt_tokens
    output = fields["output_tokens"] if fields["output_tokens"] is not None else link.output_tokens
    shared = fields["shared_prefix_tokens"]
    if shared is None:
        shared = link.tokens if prompt is None else min(link.tokens, prompt)
    return {**fields, "prompt_tokens": prompt, "output_tokens": output, "shared_prefix_tokens": shared}


def predict_all(
    plans: Iterable[ServingPlan],
) -> tuple[list[tuple[ServingPlan, Prediction | None]], list[InternalError]]:
    """Each plan with its prediction; a crash of the arithmetic is kept apart: it costs one unit and not the report."""
    predicted: list[tuple[ServingPlan, Prediction | None]] = []
    crashes: list[InternalError] = []
    for plan in plans:
        try:
            predicted.append((plan, plan.predict()))
        except Exception:
            from traceback import format_exc

            crashes.append(InternalError("prediction", plan.unit.id, plan.unit.span, format_exc()))
            predicted.append((plan, None))
    return predicted, crashes


def unchecked_places(collection: Collection, reading: Reading, plans: Iterable[ServingPlan]) -> list[Unchecked]:
    """What could not be read or resolved on the way from files to plans."""
    return [
        *(Unchecked(left.reason, left.path) for left in collection.left_out),
        *(Unchecked(place.reason, place.span.path, place.span.line) for place in reading.unread if place.rule is None),
        *(Unchecked(words, span.path, span.line) for plan in plans for words, span in plan.problems),
    ]
