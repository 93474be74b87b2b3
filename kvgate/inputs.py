"""From paths and options to configuration, files, plans and models: how every command begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvgate.errors import KvgateError
from kvgate.options import RunOptions
from kvgate.records import record
from kvgate.source.text import SourceFile

if TYPE_CHECKING:
    from kvgate.config import Config
    from kvgate.manifests.collect import Collection
    from kvgate.manifests.rendering import Rendering
    from kvgate.manifests.unit import Reading
    from kvgate.models.model import Model
    from kvgate.plan import ServingPlan

#: The path that stands for standard input.
STDIN: Final = Path("-")


class InputError(KvgateError):
    """What was asked for cannot be done: a path that does not exist, a model that is not known."""


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


def require(paths: Sequence[Path], *, stdin: bool = False) -> None:
    """Refuse paths that do not exist.

    Args:
        stdin: ``-`` stands for standard input.

    Raises:
        InputError: there is no such file or directory.
    """
    for path in paths:
        if not path.exists() and not (stdin and path == STDIN):
            raise InputError(f"{path}: no such file or directory")


def model_of(
    model: str | Path | Mapping[str, Any],
    root: Path,
    *,
    online: bool,
    environ: Mapping[str, str],
    mapping: Mapping[str, str] | None = None,
) -> Model:
    """A model by what people name it with: a Hub id, a directory, a config.json, or a parsed one.

    Raises:
        InputError: it cannot be found or read.
    """
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


def configuration_of_run(paths: Sequence[Path], options: RunOptions) -> Config:
    """kvgate.yaml of the current folder for paths inside it, of the first path otherwise."""
    from kvgate.config import Config, find_config, load_config

    here = Path.cwd()
    first = paths[0].resolve()
    start = here if first.is_relative_to(here) else first
    found = options.config or find_config(start)
    return load_config(found) if found else Config(root=here)


def read_paths(paths: Sequence[Path], config: Config, options: RunOptions | None = None) -> tuple[Collection, Reading]:
    """The files below paths, and the servers in them."""
    from kvgate.manifests.collect import collect
    from kvgate.manifests.read import read_tree

    collection = collect(paths, config.root, exclude=config.exclude)
    if collection.named:
        from kvgate.manifests.surroundings import with_surroundings

        collection = with_surroundings(collection, config.root, exclude=config.exclude)
    if isinstance(options, CheckOptions):
        collection = _with_other_texts(collection, options)
    reading = read_tree(
        collection.files,
        config.root,
        around=collection.around,
        named=collection.named,
        rendering=_rendering(config, options),
    )
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


def plans_of(reading: Reading, config: Config, options: RunOptions) -> list[ServingPlan]:
    """A plan for each server.

    Raises:
        InputError: the options name a GPU or a release that there is not.
    """
    from kvgate.plan import ModelContext, PlanOverrides, make_plan

    if options.gpu:
        from kvgate.hardware.catalogue import explain_gpu, find_gpu

        if find_gpu(options.gpu) is None:
            raise InputError(f"--gpu: {explain_gpu(options.gpu)}")
    overrides = PlanOverrides(vllm_version=release_of(options.vllm_version), gpu=options.gpu)
    online = config.online if options.online is None else options.online
    context = ModelContext(root=config.root, online=online, environ=options.environ)
    return [make_plan(unit, config, overrides, context) for unit in reading.units]


def release_of(text: str | None, option: str = "--vllm-version") -> str | None:
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
