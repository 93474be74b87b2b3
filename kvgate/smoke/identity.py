"""Is this the server that the manifest describes? Version, model, arguments and device, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from packaging.version import InvalidVersion, Version

from kvgate.engine.exposition import EngineMetrics
from kvgate.engine.flags import DYNAMIC, flags_of_version
from kvgate.engine.logs import ServerLog
from kvgate.engine.shaping import SHAPES
from kvgate.smoke.subject import Subject
from kvgate.smoke.verdict import NOT_SET, Difference
from kvgate.source.text import Unresolved

# How far a GPU's total memory may lie from the catalogue's figure: error correction takes 6%, Windows shows 5% more
# than Linux, and products differ by more.
_MEMORY_SHARE: Final = 0.07


def find_differences(
    subject: Subject, log: ServerLog | None, metrics: EngineMetrics | None = None
) -> tuple[Difference, ...]:
    """What the server is otherwise than the subject says, the decisive first."""
    found: list[Difference] = []
    if log is not None:
        found += _version(subject, log)
        found += _model(subject, log.model)
        found += _device(subject, log)
        if log.arguments is not None:
            found += _arguments(subject, log)
    if metrics is not None and (log is None or log.arguments is None):
        found += _cache_labels(subject, metrics)
    return tuple(sorted(found, key=lambda one: not one.decisive))


def same_release(left: str, right: str) -> bool:
    """Whether two versions are the same but for the build."""
    try:
        return Version(left).public == Version(right).public
    except InvalidVersion:
        return left == right


def _version(subject: Subject, log: ServerLog) -> Iterator[Difference]:
    if log.version is None or same_release(log.version, subject.version):
        return
    if not log.version_stated and any(same_release(one, subject.version) for one in log.candidates):
        return
    found = log.version if log.version_stated else " or ".join(log.candidates)
    yield Difference("vllm_version", subject.version, found, subject.declared)


def _model(subject: Subject, served: str | None) -> Iterator[Difference]:
    if served is None or subject.model is None:
        return
    known = {_plain(name) for name in (subject.model, *subject.model_paths)}
    if _plain(served) in known:
        return
    # a path inside a container says nothing about the repository it was filled from
    paths = served.startswith(("/", ".")) or subject.model.startswith(("/", "."))
    yield Difference("model", subject.model, served, decisive=not paths)


def _plain(name: str) -> str:
    return name.removeprefix("hf://").rstrip("/").lower()


def _device(subject: Subject, log: ServerLog) -> Iterator[Difference]:
    if subject.gpu is None:
        return
    if log.device is not None and (log.device == "CPU") != (subject.gpu == "cpu"):
        yield Difference("gpu", subject.gpu, log.device, decisive=True)
    total = log.figure("total")
    expected = subject.gpu_memory_bytes
    if total and expected and abs(total.value - expected) > _MEMORY_SHARE * expected:
        yield Difference(
            "gpu_memory", f"{expected / 2**30:.2f} GiB ({subject.gpu})", f"{total.value / 2**30:.2f} GiB", decisive=True
        )


def _arguments(subject: Subject, log: ServerLog) -> Iterator[Difference]:
    assert log.arguments is not None
    flags = flags_of_version(log.version or subject.version)
    for dest, figures in SHAPES.items():
        declared = subject.values.get(dest)
        served = log.arguments.get(dest)
        if isinstance(declared, Unresolved) or dest == "revision":
            continue
        flag = flags.of_dest(dest)
        default = flag.default if flag is not None and flag.default is not DYNAMIC else None
        if _same(declared, served) or _same(
            default if declared is None else declared, default if served is None else served
        ):
            continue
        if _opaque(declared, served):
            continue
        yield Difference(dest, _shown(declared), _shown(served), decisive=True, figures=figures)


def _same(left: Any, right: Any) -> bool:
    return bool(_normal(left) == _normal(right))


def _normal(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str):
        text = value.strip().lower()
        return {"none": None, "true": True, "false": False}.get(text, text)
    if isinstance(value, dict):
        return {str(key): _normal(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_normal(item) for item in value]
    return str(value)


def _opaque(declared: Any, served: Any) -> bool:
    """Nothing to compare by text: one side is an object's representation, or holds more than was written."""
    if _representation(served):
        return True
    if isinstance(declared, dict) and isinstance(served, dict):
        # vLLM fills in what was not written
        return all(_same(served.get(key), item) or _opaque(item, served.get(key)) for key, item in declared.items())
    return isinstance(declared, dict) and isinstance(served, str)


def _representation(value: Any) -> bool:
    return isinstance(value, str) and ("(" in value or value.startswith("<"))


def _shown(value: Any) -> str:
    if value is None:
        return NOT_SET
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


_LABELS: Final = (
    ("gpu_memory_utilization", "gpu_memory_utilization"),
    ("enable_prefix_caching", "enable_prefix_caching"),
    ("num_gpu_blocks_override", "num_gpu_blocks_override"),
    ("cache_dtype", "kv_cache_dtype"),
)


def _cache_labels(subject: Subject, metrics: EngineMetrics) -> Iterator[Difference]:
    """What an attached server says of its cache, for arguments that the files set."""
    for label, dest in _LABELS:
        declared, served = subject.values.get(dest), metrics.cache.get(label)
        if declared is None or served is None or isinstance(declared, Unresolved):
            continue
        value: Any = float(served) if _number(served) else served
        if not _same(declared, value):
            yield Difference(dest, _shown(declared), served, decisive=True, figures=SHAPES[dest])


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
