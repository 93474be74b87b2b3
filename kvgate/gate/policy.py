"""Who says what is allowed: the base. What the head says of it is reported, and counts once it is merged.

Policy is ``gate``, ``rules``, ``profile``, ``baseline``, ``exclude``, ``render``, ``online`` and ``smoke`` of
kvgate.yaml, the declared load and ``min_sustained`` of a unit, and ``.kvgate/``. What kvgate.yaml says of the machines
(``gpu``, ``vllm_version``, ``models``, and the same in ``units``) describes the deployment, and is each side's own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kvgate.config import NAMES, Config
from kvgate.records import record
from kvgate.source.text import SourceFile, Span
from kvgate.source.yaml_tree import Mapping as YamlMapping
from kvgate.source.yaml_tree import parse_yaml

FOLDER: Final = ".kvgate"
MODELS: Final = ".kvgate/models"
MAX_SHOWN_BYTES: Final = 1_000_000

#: Parts of kvgate.yaml that are read from the base: key of the file -> attributes of :class:`Config`.
_PARTS: Final = {
    "gate": ("gate",),
    "rules": ("rules",),
    "profile": ("profile",),
    "baseline": ("baseline",),
    "exclude": ("exclude",),
    "render": ("render",),
    "online": ("online",),
    "smoke": ("smoke",),
}


@record
class PolicyChange:
    """Something that the head says otherwise than the base.

    Attributes:
        what: ``gate``, ``.kvgate/rules/mine.yaml``, ...
        detail: how it differs, in words.
        span: where the head (else the base) says it.
        used: the head's own counts all the same: a lock of a model that the base has none of.
    """

    what: str
    detail: str
    span: Span
    used: bool = False


def under_policy_of(base: Config, head: Config) -> Config:
    """The head's configuration with everything that is policy taken from the base."""
    taken = {attribute: getattr(base, attribute) for names in _PARTS.values() for attribute in names}
    return replace(head, **taken)


def configuration_changes(base: Config, head: Config, head_file: SourceFile | None) -> Iterator[PolicyChange]:
    """Parts of kvgate.yaml that are policy and differ.

    Args:
        head_file: the head's kvgate.yaml, None where it has none.
    """
    if base.path is not None and head.path is None:
        yield PolicyChange(base.path, "removed", _nowhere(base.path))
        return
    for key, attributes in _PARTS.items():
        before = {name: _plain(getattr(base, name)) for name in attributes}
        after = {name: _plain(getattr(head, name)) for name in attributes}
        if before == after:
            continue
        path = head.path or NAMES[0]
        yield PolicyChange(f"{key} of {path}", _words(before, after), _place(head_file, key) or _nowhere(path))


def _words(before: dict[str, Any], after: dict[str, Any]) -> str:
    ((_, old),), ((_, new),) = before.items(), after.items()
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [key for key in (*old, *(key for key in new if key not in old)) if old.get(key) != new.get(key)]
        return ", ".join(f"{key}: {_said(old.get(key))} -> {_said(new.get(key))}" for key in keys[:8])
    return f"{_said(old)} -> {_said(new)}"


def _plain(value: Any) -> Any:
    """A part of the configuration without its places."""
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is not None:
        return {name: _plain(getattr(value, name)) for name in fields if name != "span"}
    if hasattr(value, "items"):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _said(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, dict):
        return "off" if value.get("off") else str(value.get("severity") or "on")
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "nothing"
    if isinstance(value, float):
        return f"{value:.0%}" if (value * 100).is_integer() else f"{value:.1%}"
    return str(value)


def _place(file: SourceFile | None, key: str) -> Span | None:
    if file is None:
        return None
    for document in parse_yaml(file).documents:
        entry = document.entry(key) if isinstance(document, YamlMapping) else None
        if entry is not None:
            return entry.key.span
    return file.line_span(1)


def _nowhere(path: str) -> Span:
    """A place in a file that is no longer there."""
    return Span(SourceFile(path, ""), 0, 0)


def folder_changes(base: Path, head: Path, baseline: str | None) -> Iterator[PolicyChange]:
    """Files of ``.kvgate/``, and the baseline file, that differ.

    Args:
        base, head: the folders of kvgate.yaml in the two snapshots.
        baseline: the file that the base's configuration names.
    """
    paths = {path for root in (base, head) for path in _files(root)}
    paths |= {baseline} if baseline else set()
    locked = {path.name.lower() for path in _folders(base / MODELS)}
    new_locks: dict[str, Span] = {}
    for path in sorted(paths):
        before, after = _bytes(base / path), _bytes(head / path)
        if before == after:
            continue
        span = _first_line(path, after if after is not None else before)
        parts = path.split("/")
        if path.startswith(MODELS + "/") and len(parts) > 3 and parts[2].lower() not in locked:
            new_locks.setdefault(parts[2], span)
        else:
            detail = "added" if before is None else "removed" if after is None else "changed"
            yield PolicyChange(path, detail, span)
    for name, span in new_locks.items():
        yield PolicyChange(f"{MODELS}/{name}", "added", span, used=True)


def overlay_folder(base: Path, head: Path) -> None:
    """Give a head's snapshot the base's ``.kvgate/``; locks of models that the base has none of stay."""
    locked = {path.name.lower() for path in _folders(base / MODELS)}
    kept = [path for path in _folders(head / MODELS) if path.name.lower() not in locked]
    spare = head / f"{FOLDER}.head"
    if (head / FOLDER).is_dir():
        (head / FOLDER).rename(spare)
    if (base / FOLDER).is_dir():
        shutil.copytree(base / FOLDER, head / FOLDER)
    for path in kept:
        (head / MODELS).mkdir(parents=True, exist_ok=True)
        (spare / "models" / path.name).rename(head / MODELS / path.name)
    shutil.rmtree(spare, ignore_errors=True)


def _files(root: Path) -> Iterator[str]:
    folder = root / FOLDER
    if folder.is_dir():
        yield from (path.relative_to(root).as_posix() for path in sorted(folder.rglob("*")) if path.is_file())


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _first_line(path: str, data: bytes | None) -> Span:
    try:
        file = SourceFile.from_bytes(path, (data or b"")[:MAX_SHOWN_BYTES])
    except UnicodeDecodeError:
        return _nowhere(path)
    return file.line_span(1)
