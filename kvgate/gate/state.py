"""One state of a tree, read and predicted."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from kvgate.config import Config, find_config, load_config
from kvgate.findings.finding import InternalError, Unchecked
from kvgate.manifests.collect import SKIPPED_DIRECTORIES, LeftOut
from kvgate.plan import ModelContext, PlanOverrides, ServingPlan, make_plan, predict_all, unchecked_places
from kvgate.records import record

if TYPE_CHECKING:
    from kvgate.capacity.prediction import Prediction
    from kvgate.manifests.collect import Collection
    from kvgate.manifests.unit import Reading
    from kvgate.ruleset.load import RuleSet
    from kvgate.ruleset.run import Judgement, Selection
    from kvgate.source.snapshot import Snapshot

# Contents that no reader takes: media, archives, and languages in which nobody starts vLLM.
_OF_NO_INTEREST: Final = frozenset({
    ".avi", ".bmp", ".dll", ".dylib", ".eot", ".exe", ".gif", ".gz", ".ico", ".jar", ".jpeg", ".jpg", ".mkv", ".mov",
    ".mp3", ".mp4", ".onnx", ".otf", ".parquet", ".pdf", ".png", ".pyc", ".so", ".tar", ".tgz", ".tif", ".tiff",
    ".ttf", ".wasm", ".wav", ".webm", ".webp", ".whl", ".woff", ".woff2", ".xz", ".zip", ".zst", ".adoc", ".c", ".cc",
    ".cpp", ".cs", ".css", ".csv", ".cxx", ".h", ".hpp", ".htm", ".html", ".java", ".kt", ".less", ".lock", ".map",
    ".md", ".php", ".po", ".proto", ".rb", ".rs", ".rst", ".scala", ".scss", ".snap", ".sql", ".sum", ".svg",
    ".swift", ".tsv",
})  # fmt: skip
_MANIFESTS: Final = frozenset({".yaml", ".yml"})
_STARTS: Final = re.compile(r"vllm[\"',\s]+serve\b|vllm\.entrypoints|image:[^\n]*vllm", re.IGNORECASE)


def is_of_no_interest(path: str) -> bool:
    """Whether no reader takes a path; writing it out of git's objects would only cost time."""
    *folders, name = path.split("/")
    if folders[-1:] == ["charts"] and name.endswith(".tgz"):
        return False  # a packaged dependency, which Helm renders
    return os.path.splitext(name)[1].lower() in _OF_NO_INTEREST or not SKIPPED_DIRECTORIES.isdisjoint(folders)


class Read(Protocol):
    """Collects and reads files, as ``kvgate check`` does."""

    def __call__(self, paths: Sequence[Path], config: Config, /) -> tuple[Collection, Reading]: ...


class Judge(Protocol):
    """What the rules say of everything in a state, as ``kvgate check`` asks them, and what could not be judged."""

    def __call__(
        self,
        rules: RuleSet,
        selection: Selection,
        predicted: Sequence[tuple[ServingPlan, Prediction | None]],
        collection: Collection,
        reading: Reading,
        config: Config,
        paths: Sequence[Path],
        /,
    ) -> tuple[Judgement, list[Unchecked]]: ...


@record
class Checking:
    """How ``kvgate check`` reads and judges one state of a tree; a comparison does it twice."""

    read: Read
    judge: Judge


@record
class State:
    """What one state of a tree holds.

    Attributes:
        root: the folder that shown paths are relative to, inside the snapshot.
        config: what it is read by.
        paths: the places inside the snapshot that were asked for.
        units: each plan with its prediction.
        crashes: predictions that failed, which cost one unit and not the comparison.
    """

    root: Path
    config: Config
    paths: tuple[Path, ...]
    collection: Collection
    reading: Reading
    units: tuple[tuple[ServingPlan, Prediction | None], ...]
    unchecked: tuple[Unchecked, ...]
    crashes: tuple[InternalError, ...] = ()

    def unread_reason(self, path: str) -> str | None:
        """Why a file that is there, or a place in it, was not read; None where it was, or is not there."""
        for place in self.reading.unread:
            if place.span.path == path:
                return place.reason
        for left in self.collection.left_out:
            if left.path == path:
                return left.reason
        file = next((file for file in self.collection.files if file.path == path), None)
        if file is None:
            if _speaks_of_vllm(self.root / path):
                return "the file is left out, by .gitignore, exclude or the paths that were named"
            return None
        if _STARTS.search(file.text) and not any(plan.unit.path == path for plan, _ in self.units):
            return "its text still starts vLLM, but no server could be read from it"
        return None


def _speaks_of_vllm(place: Path) -> bool:
    return place.is_file() and b"vllm" in place.read_bytes().lower()


def find_configuration(folder: Path, start: Path, named: Path | None) -> Config:
    """kvgate.yaml of a state: the named one, else the one found from ``start`` up to ``folder``, else the defaults.

    Raises:
        KvgateError: it cannot be read or says something unknown.
    """
    found = named if named is not None else find_config(start if start.is_dir() else folder)
    if found is None or not found.exists():
        return Config(root=start)
    return load_config(found)


def read_state(
    snapshot: Snapshot,
    paths: Sequence[Path],
    config: Config,
    read: Read,
    *,
    overrides: PlanOverrides,
    online: bool,
    environ: Mapping[str, str],
) -> State:
    """Read and predict the units below paths of a snapshot.

    Args:
        paths: places inside the snapshot; one that is not there holds nothing.
        config: the configuration of this state, by whoever's policy; its root is what shown paths are relative to.
    """
    root = config.root
    paths = tuple(path for path in paths if path.exists())
    collection, reading = read(paths, config)
    left_out = [*collection.left_out, *_left_out_by_git(snapshot, root, paths)]
    collection = replace(collection, left_out=tuple(left_out))
    context = ModelContext(root=root, online=online, environ=environ)
    plans = [make_plan(unit, config, overrides, context) for unit in reading.units]
    unchecked = unchecked_places(collection, reading, plans)
    predicted, crashes = predict_all(plans)
    return State(
        root=root,
        config=config,
        paths=paths,
        collection=collection,
        reading=reading,
        units=tuple(predicted),
        unchecked=tuple(sorted(unchecked, key=lambda place: (place.path, place.line, place.reason))),
        crashes=tuple(crashes),
    )


def _left_out_by_git(snapshot: Snapshot, root: Path, paths: Sequence[Path]) -> list[LeftOut]:
    """Manifests below the paths that the snapshot does not hold: links, submodules, oversized files."""
    found = []
    for path, reason in sorted(snapshot.left_out.items()):
        place = snapshot.folder / path
        wanted = os.path.splitext(path)[1].lower() in _MANIFESTS or "submodule" in reason
        if wanted and place.is_relative_to(root) and any(place.is_relative_to(named) for named in paths):
            found.append(LeftOut(place.relative_to(root).as_posix(), reason))
    return found
