"""Locked models: what ``kvgate lock`` keeps in the tree, so that the same tree gives the same verdict offline.

``.kvgate/models/<org>__<name>/`` holds the repository's ``config.json`` and the JSON files beside it that vLLM reads,
and ``lock.json``::

    {"schema": "kvgate.lock/1", "id": "org/name", "requested_revision": null, "revision": "<commit>",
     "checkpoint_bytes": 16060522496, "checkpoint_source": "total_size of ...", "files": ["config.json", ...]}

Nothing in it depends on when or where it was written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kvgate.models.local import CONFIG, ModelError, read_directory, read_object
from kvgate.models.model import Model
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.source.files import write_whole

DIRECTORY: Final = ".kvgate/models"
LOCK: Final = "lock.json"
SCHEMA: Final = "kvgate.lock/1"

HUB_ID: Final = regex(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,95}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,95}")

# tokenizer_config.json can have a megabyte of added tokens; these are the keys that the engine's lengths depend on.
_TOKENIZER_KEYS: Final = ("model_max_length", "tokenizer_class")


@record
class Locked:
    """A model that was written to the tree: its directory, and whether anything in it changed."""

    model: Model
    directory: Path
    changed: bool

    def __str__(self) -> str:
        """One line for people: where, which revision, how many weight bytes, and whether anything changed."""
        size = self.model.checkpoint_bytes
        parts = [f"{DIRECTORY}/{self.directory.name}"]
        if self.model.revision:
            parts.append(f"revision {self.model.revision[:12]}")
        parts.append(f"{size:,} bytes of weights" if size else "weight bytes not known")
        return ", ".join(parts) + ("" if self.changed else " (unchanged)")


def lock_directory(hub_id: str, root: Path) -> Path:
    """Where a model is locked in a tree."""
    return root / DIRECTORY / hub_id.replace("/", "__")


def is_hub_id(reference: str) -> bool:
    """Whether a reference has the form of a Hub id (``org/name``, or a bare name of the early Hub)."""
    return HUB_ID.fullmatch(reference) is not None and "--" not in reference and ".." not in reference


def find_locked(hub_id: str, root: Path, revision: str | None = None) -> Model | None:
    """The locked model, None when there is none for that id (without regard to case) and revision.

    Raises:
        ModelError: the lock is broken.
    """
    directory = _find_directory(hub_id, root)
    if directory is None:
        return None
    shown = f"{DIRECTORY}/{directory.name}"
    within = directory.resolve()
    if not within.is_relative_to(root.resolve()):
        raise ModelError(f"{shown}: a link that leaves the tree")
    lock_path = directory / LOCK
    lock: Mapping[str, Any] = read_object(lock_path, f"{shown}/{LOCK}") if lock_path.is_file() else {}
    if revision is not None and revision not in {lock.get("revision"), lock.get("requested_revision")}:
        return None
    model = read_directory(directory, id=hub_id, source="lock", within=within, shown=shown)
    size, origin, commit = lock.get("checkpoint_bytes"), lock.get("checkpoint_source"), lock.get("revision")
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        model = replace(model, checkpoint_bytes=size, checkpoint_source=origin if isinstance(origin, str) else "lock")
    return replace(model, revision=commit if isinstance(commit, str) else None)


def _find_directory(hub_id: str, root: Path) -> Path | None:
    directory = lock_directory(hub_id, root)
    try:
        if directory.is_dir():
            return directory
        wanted = directory.name.lower()
        for entry in sorted(directory.parent.iterdir()):
            if entry.name.lower() == wanted and entry.is_dir():
                return entry
    except OSError:
        return None
    return None


def write_lock(model: Model, root: Path, requested_revision: str | None = None) -> Locked:
    """Write a model's files to the tree.

    Raises:
        ModelError: the directory cannot be written, or leads out of the tree.
    """
    if model.id is None or not is_hub_id(model.id):
        raise ModelError(f'"{model.id}" is no Hub id, so it cannot be locked')
    directory = _find_directory(model.id, root) or lock_directory(model.id, root)
    contents: dict[str, Mapping[str, Any]] = {CONFIG: model.config}
    for name, value in sorted(model.files.items()):
        kept = _TOKENIZER_KEYS if name == "tokenizer_config.json" else tuple(value)
        contents[name] = {key: value[key] for key in kept if key in value}
    contents[LOCK] = {
        "schema": SCHEMA,
        "id": model.id,
        "requested_revision": requested_revision,
        "revision": model.revision,
        "checkpoint_bytes": model.checkpoint_bytes,
        "checkpoint_source": model.checkpoint_source,
        "files": sorted(name for name in contents if name != LOCK),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not directory.resolve().is_relative_to(root.resolve()):
            raise ModelError(f"{DIRECTORY}: a link that leaves the tree")
        changed = False
        for stale in directory.glob("*.json"):
            if stale.name not in contents:
                stale.unlink()
                changed = True
        for name, value in contents.items():
            text = json.dumps(value, indent=1, ensure_ascii=False, sort_keys=name != LOCK) + "\n"
            changed |= _write(directory / name, text)
    except OSError as error:
        raise ModelError(f"{DIRECTORY}: cannot be written: {error.strerror}") from None
    return Locked(model, directory, changed)


def _write(path: Path, text: str) -> bool:
    """Write what is not there yet; false when nothing changes."""
    data = text.encode("utf-8")
    if not path.is_symlink() and path.is_file() and path.read_bytes() == data:
        return False
    write_whole(path, data, mode=0o644)
    return True
