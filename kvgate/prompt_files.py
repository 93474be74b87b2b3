"""Which files hold prompts, for the commands: collects them, reads them, and says what the reading found."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import lcm
from pathlib import Path
from traceback import format_exc
from typing import TYPE_CHECKING, Final

from kvgate.findings.finding import InternalError
from kvgate.manifests.collect import LeftOut, collect, shown_path
from kvgate.prompts.analysis import PromptReading, UnreadPrompt, read_prompts
from kvgate.prompts.blocks import Checkpoints
from kvgate.prompts.defect import Defect
from kvgate.prompts.link import is_log, split_reference
from kvgate.prompts.requests import DEFAULT_BLOCK_SIZE, LogSettings, LogSummary, open_log
from kvgate.prompts.tokens import load_tokenizer, tokenizer_folder
from kvgate.records import record
from kvgate.source.text import SourceFile

if TYPE_CHECKING:
    from kvgate.plan import ServingPlan

_LARGE_LOGS: Final = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
#: Endings of files that may hold prompts.
SUFFIXES: Final = frozenset(
    {".py", ".jinja", ".jinja2", ".j2", ".yaml", ".yml", ".json", ".jsonl", ".ndjson", ".sh", ".bash"}
)


@record
class PromptFiles:
    """What was read.

    Attributes:
        files: files whose suppressions count.
        left_out: path and reason of files that were not read.
        crashes: of the reading itself; what was found elsewhere stays.
        logs: what request logs say of their load.
    """

    defects: tuple[Defect, ...] = ()
    unread: tuple[UnreadPrompt, ...] = ()
    files: tuple[SourceFile, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    crashes: tuple[InternalError, ...] = ()
    logs: tuple[LogSummary, ...] = ()


def read_prompt_paths(
    paths: Sequence[Path],
    root: Path,
    exclude: Iterable[str],
    log_settings: Mapping[str, LogSettings] | None = None,
) -> PromptFiles:
    """The prompts in files and directories; logs with the settings of the units that they are linked to."""
    collection = collect(paths, root, exclude=exclude, suffixes=SUFFIXES)
    crashes: list[InternalError] = []
    folders = {shown_path(path, root.resolve()) for path in paths if path.is_dir()}
    logs, unread, left_out = _large_logs(collection.left_out, root)
    files = (*collection.files, *logs)
    reading = _guarded(files, collection.named | folders, crashes, log_settings, unread)
    return PromptFiles(
        defects=tuple(_of_releases(reading.defects, collection.files, root)),
        unread=reading.unread,
        files=tuple(_with_comments(files, reading)),
        left_out=left_out,
        crashes=tuple(crashes),
        logs=reading.logs,
    )


def _large_logs(
    left_out: Sequence[LeftOut], root: Path
) -> tuple[list[SourceFile], dict[str, str], tuple[tuple[str, str], ...]]:
    """Logs that are packed, or too large to be read as other files are: their beginnings, and what is unread."""
    logs: list[SourceFile] = []
    unread: dict[str, str] = {}
    rest: list[tuple[str, str]] = []
    for left in left_out:
        if not left.path.endswith(_LARGE_LOGS):
            rest.append((left.path, left.reason))
            continue
        try:
            file, beyond = open_log(root / left.path, left.path)
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            rest.append((left.path, f"no log that can be read: {error}"))
            continue
        logs.append(file)
        if beyond is not None:
            unread[left.path] = beyond
    return logs, unread, tuple(rest)


def log_settings(plans: Sequence[ServingPlan], root: Path, models: Mapping[str, str]) -> dict[str, LogSettings]:
    """What is known of the servers of the logs that kvgate.yaml links to units, by path."""
    found: dict[str, LogSettings] = {}
    for plan in plans:
        reference = plan.workload_config.prompt if plan.workload_config is not None else None
        if reference is None or not is_log(reference) or reference in found:
            continue
        prediction = plan.predict()
        groups = prediction.kv_cache.groups if prediction is not None else ()
        block = lcm(*(group.block_size for group in groups)) if groups else DEFAULT_BLOCK_SIZE
        found[reference] = LogSettings(
            block,
            load_tokenizer(tokenizer_folder(plan.model_reference, root, models)),
            _checkpoints(plan, block),
            prediction is None or bool(prediction.resolved.get("enable_prefix_caching", True)),
            _drops_blocks(plan),
        )
    return found


def _drops_blocks(plan: ServingPlan) -> bool:
    """Whether drafts need the hidden states of a hit's last block (vLLM 0.32.0 ``config/speculative.py``)."""
    given = plan.values.get("speculative_config")
    method = given.get("method") if isinstance(given, dict) else None
    return isinstance(method, str) and (method in ("eagle", "eagle3", "dflash", "dspark") or method.endswith("mtp"))


def _checkpoints(plan: ServingPlan, block_size: int) -> Checkpoints | None:
    """What sliding windows and recurrent states keep for later prompts (vLLM 0.29.0 ``config/cache.py``)."""
    if plan.model is None or not _reaches(plan.version, "0.29.0"):
        return None
    from kvgate.models.geometry import UnknownModelError, read_geometry

    interval = plan.values.get("prefix_cache_retention_interval", 0)
    if not isinstance(interval, int):
        return None
    try:
        layers = read_geometry(plan.model).layers
    except UnknownModelError:
        return None
    needed = [-(-(layer.window - 1) // block_size) for layer in layers if layer.window is not None and layer.window > 1]
    needed += [1 for layer in layers if layer.kind == "recurrent"]
    return Checkpoints(max(needed), interval) if needed else None


def _guarded(
    files: Sequence[SourceFile],
    named: Iterable[str],
    crashes: list[InternalError],
    settings: Mapping[str, LogSettings] | None = None,
    unread: Mapping[str, str] | None = None,
) -> PromptReading:
    """A crash costs the report nothing but what would have been found."""
    try:
        return read_prompts(files, named=named, log_settings=settings, unread=unread)
    except Exception:
        crashes.append(InternalError("prompts", None, None, format_exc()))
        return PromptReading((), (), 0)


def _of_releases(defects: Sequence[Defect], files: Sequence[SourceFile], root: Path) -> Iterator[Defect]:
    """Defects of certain releases count in full only where a server of such a release stands in the same files."""
    releases: list[str] | None = None
    for defect in defects:
        if defect.since is None:
            yield defect
            continue
        if releases is None:
            releases = list(_releases(files, root))
        since = defect.since
        yield defect if any(_reaches(release, since) for release in releases) else replace(defect, mild=True)


def _releases(files: Sequence[SourceFile], root: Path) -> Iterator[str]:
    """The vLLM releases of the servers in some manifests."""
    from kvgate.engine.images import parse_image
    from kvgate.manifests.read import read_tree

    manifests = [file for file in files if file.path.endswith((".yaml", ".yml")) and "vllm" in file.text.lower()]
    for unit in read_tree(manifests, root).units if manifests else ():
        image = parse_image(unit.image.value) if unit.image is not None and unit.image.resolved else None
        if image is not None and image.vllm_version:
            yield image.vllm_version


def _reaches(release: str, since: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(release) >= Version(since)
    except InvalidVersion:
        return True  # nightly and the like


def _with_comments(files: Sequence[SourceFile], reading: PromptReading) -> Iterator[SourceFile]:
    """Files in which a suppression can be meant for a finding of a prompt; manifests only where they have one."""
    found = {defect.span.path for defect in reading.defects}
    for file in files:
        if file.path in found or not file.path.endswith((".yaml", ".yml", ".json")):
            yield file


# -- what units name -------------------------------------------------------------------------------------------------


def linked_prompts(
    root: Path,
    exclude: Iterable[str],
    references: Iterable[str],
    plans: Sequence[ServingPlan],
    models: Mapping[str, str],
) -> PromptFiles:
    """Chat templates of command lines, and prompt code or logs by kvgate.yaml's references.

    A template that is named by a path is looked for by its name anywhere below the root, since a path inside a
    container says no more.
    """
    templates = (plan.values.get("chat_template") for plan in plans)
    names = {Path(template).name for template in templates if isinstance(template, str) and "{" not in template} - {""}
    wanted = {split_reference(reference)[0] for reference in references}
    code = any(not is_log(path) for path in wanted)
    suffixes = frozenset({".jinja", ".jinja2", ".j2", ".yaml", ".yml"}) | (frozenset({".py"}) if code else frozenset())
    files = list(collect([root], root, exclude=exclude, suffixes=suffixes).files)
    named = _template_files(files, names)
    if not wanted:  # of the manifests, only those that carry a template matter
        files = [file for file in files if file.path in named or not file.path.endswith((".yaml", ".yml"))]
    known = {file.path for file in files}
    missing = collect(
        [root / path for path in sorted(wanted - known) if is_log(path) and (root / path).is_file()], root
    )
    logs, unread, _ = _large_logs(missing.left_out, root)
    files += [*missing.files, *logs]
    crashes: list[InternalError] = []
    reading = _guarded(files, wanted, crashes, log_settings(plans, root, models), unread)
    meant = wanted | named
    versions = [plan.version for plan in plans if plan.version_basis == "declared"]
    defects = tuple(
        defect
        if defect.since is None or any(_reaches(version, defect.since) for version in versions)
        else replace(defect, mild=True)
        for defect in reading.defects
        if _is_meant(defect, meant, wanted)
    )
    return PromptFiles(
        defects=_with_levers(defects, plans, files),
        unread=tuple(place for place in reading.unread if place.span.path in meant),
        files=tuple(file for file in files if file.path in meant),
        crashes=tuple(crashes),
    )


def _template_files(files: Sequence[SourceFile], names: set[str]) -> set[str]:
    found: set[str] = set()
    for file in files:
        if file.path.rpartition("/")[2] in names or (
            file.path.endswith((".yaml", ".yml")) and any(f"{name}:" in file.text for name in names)
        ):
            found.add(file.path)
    return found


def _is_meant(defect: Defect, meant: set[str], wanted: set[str]) -> bool:
    """Whether a defect is of a named file, or of a helper that a named file's prompts go through."""
    if defect.span.path in meant:
        return True
    return any(span.path in wanted for span, _ in defect.related)


def _with_levers(
    defects: Sequence[Defect], plans: Sequence[ServingPlan], files: Sequence[SourceFile]
) -> tuple[Defect, ...]:
    """Defects with what mending them gives to the unit that the prompt is linked to."""
    levers: dict[str, str] = {}
    for plan in plans:
        link = plan.prompt_link
        if link is None or plan.workload is None or link.possible_tokens <= link.tokens:
            continue
        now = plan.predict()
        better = plan.predict(workload=replace(plan.workload, shared_prefix_tokens=link.possible_tokens))
        if now is None or better is None or now.concurrency is None or better.concurrency is None:
            continue
        before, after = now.concurrency.sustained, better.concurrency.sustained
        if before is not None and after is not None and after > before:
            path = split_reference(link.reference)[0]
            levers[path] = (
                f"; behind the static text, one replica of {plan.unit.id} sustains {after} requests, not {before}"
            )
    return tuple(
        replace(defect, values={**defect.values, "lever": levers[defect.span.path]})
        if defect.kind in ("volatile", "retrieval") and defect.span.path in levers
        else defect
        for defect in defects
    )
