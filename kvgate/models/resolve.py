"""From the model that a server names to its configuration.

In this order: ``models:`` of kvgate.yaml, ``.kvgate/models/`` (written by ``kvgate lock``), a directory of the tree,
the Hugging Face cache, a bundled card and, only with ``online``, the Hub. A path inside a container is never read from
the host, and nothing outside the tree and the cache is ever read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kvgate.models.local import CONFIG, ModelError, load_path, read_directory
from kvgate.models.lock import Locked, find_locked, is_hub_id, write_lock
from kvgate.models.mistral import as_config
from kvgate.models.model import Model
from kvgate.patterns import regex
from kvgate.records import record

__all__ = ["ModelError", "ModelLookup", "find_model", "hub_id_of", "load_model", "lock_model", "model_from_mapping"]

_URI: Final = regex(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_WINDOWS: Final = regex(r"[A-Za-z]:[\\/]|\\\\")
_QUANT_TAG: Final = regex(r":(?:[A-Z0-9]{1,8}_?)*Q\d\w*$|:BF16$|:F16$", re.IGNORECASE)
_PAGE: Final = regex(r"(?:www\.)?(?:huggingface\.co|hf\.co)/([^/?#]+/[^/?#]+)(?:/tree/main)?/?")
# The cache's own directory names say which repository a path stands for, wherever the cache is mounted.
_CACHED: Final = regex(r"(?:^|/)models--([A-Za-z0-9._-]+?--[A-Za-z0-9._-]+)(?:/snapshots/([0-9a-f]{40}))?/?$")
_TEMPLATE: Final = regex(r"\{\{|\$\{|\$\(|<[^>]*>|\$[A-Za-z_]")

_STORES: Final = {
    "s3": "an S3 bucket",
    "gs": "a Google Cloud Storage bucket",
    "oci": "an OCI image",
    "pvc": "a volume claim",
    "az": "Azure storage",
    "abfs": "Azure storage",
    "azureml": "an Azure ML registry",
    "http": "a web address",
    "https": "a web address",
    "ftp": "a server",
    "file": "a path inside the container",
    "hostpath": "a path of the node",
    "docker": "a container image",
    "modelcar": "an OCI image",
    "ms": "ModelScope",
    "modelscope": "ModelScope",
    "ngc": "NGC",
    "runai": "a Run:ai store",
    "dataset": "a data set",
    "ollama": "an Ollama library",
}


@record
class ModelLookup:
    """What was found: a model, or one sentence that says why not and what to do."""

    model: Model | None
    reason: str | None = None


@record
class _Reference:
    """A reference taken apart: the Hub id it stands for, or why it stands for none."""

    hub_id: str | None
    revision: str | None
    directory: str | None
    reason: str | None


def _read_reference(reference: str) -> _Reference:
    text = reference.strip()
    if not text:
        return _Reference(None, None, None, "the model is empty")
    shown = text if len(text) <= 200 else text[:199] + "…"
    if _TEMPLATE.search(text):
        return _Reference(None, None, None, f'"{shown}" is a placeholder, not a model')
    if uri := _URI.fullmatch(text):
        scheme, rest = uri[1].lower(), uri[2]
        if scheme in {"hf", "huggingface"}:
            return _read_hub_uri(rest, shown)
        if scheme in {"http", "https"} and (page := _PAGE.fullmatch(rest)):
            return _read_hub_uri(page[1], shown)
        store = _STORES.get(scheme, f"a {scheme}:// address")
        return _Reference(None, None, None, f'"{shown}" names {store}: {_hint(rest)}')
    if "gguf" in text.lower() or _QUANT_TAG.search(text):
        wrong = f'"{shown}" is a GGUF model: kvgate reads the config.json of the original model. {_MAP_HINT_SENTENCE}'
        return _Reference(None, None, None, wrong)
    if cached := _CACHED.search(text):
        return _Reference(cached[1].replace("--", "/", 1), cached[2], None, None)
    if text.startswith(("/", "~")) or _WINDOWS.match(text):
        return _Reference(None, None, None, f'"{shown}" is a path inside the container: {_hint(text)}')
    hub_id = text if is_hub_id(text) else None
    directory = text if "\\" not in text and "\0" not in text else None
    reason = None
    if hub_id is None and directory is None:
        reason = f'"{shown}" is neither a Hub id nor a directory of the tree'
    return _Reference(hub_id, None, directory, reason)


_MAP_HINT: Final = "say in kvgate.yaml under models: which Hub id or directory of the tree it is"
_MAP_HINT_SENTENCE: Final = "Say in kvgate.yaml under models: which Hub id or directory of the tree it is."


def _hint(path: str) -> str:
    from kvgate.models.cards import suggest_card

    suggestion = suggest_card(path)
    return f"{_MAP_HINT} ({suggestion}?)" if suggestion else _MAP_HINT


def _read_hub_uri(rest: str, shown: str) -> _Reference:
    """``hf://org/name``, with a revision after ``:`` (KServe) or ``@`` (huggingface_hub)."""
    name, _, revision = rest.strip("/").partition("@") if "@" in rest else rest.strip("/").partition(":")
    if not is_hub_id(name) or "/" not in name:
        return _Reference(None, None, None, f'"{shown}" names no Hub model (hf://org/name expected)')
    return _Reference(name, revision or None, None, None)


def find_model(
    reference: str,
    *,
    root: Path,
    mapping: Mapping[str, str] | None = None,
    online: bool = False,
    environ: Mapping[str, str] | None = None,
    revision: str | None = None,
) -> ModelLookup:
    """The model that a server names.

    Args:
        reference: the model as the command or the storage URI names it.
        root: root of the tree; nothing of it outside this directory is read.
        mapping: ``models:`` of kvgate.yaml, from names to Hub ids or directories of the tree.
        online: whether the Hub may be asked.
        environ: where the Hugging Face cache and token are; an empty one means neither.
        revision: the revision that the server asks for.
    """
    try:
        return _find(reference, root, mapping or {}, online, environ or {}, revision)
    except ModelError as error:
        return ModelLookup(None, str(error))


def _find(
    reference: str,
    root: Path,
    mapping: Mapping[str, str],
    online: bool,
    environ: Mapping[str, str],
    revision: str | None,
) -> ModelLookup:
    mapped = _mapped(reference, mapping)
    if mapped is not None:
        lookup = _find_target(_read_reference(mapped), root, online, environ, None)
        if lookup.model or lookup.reason is None:
            return lookup
        return replace(lookup, reason=f'models: maps "{reference}" to "{mapped}": {lookup.reason}')
    parsed = _read_reference(reference)
    if parsed.revision and revision is None:
        revision = parsed.revision
    return _find_target(parsed, root, online, environ, revision)


def _mapped(reference: str, mapping: Mapping[str, str]) -> str | None:
    trimmed = reference.strip()
    for key in (trimmed, trimmed.rstrip("/"), trimmed.rstrip("/") + "/"):
        if key in mapping:
            return mapping[key]
    return None


def _find_target(
    parsed: _Reference, root: Path, online: bool, environ: Mapping[str, str], revision: str | None
) -> ModelLookup:
    hub_id = parsed.hub_id
    if hub_id and (model := find_locked(hub_id, root, revision)):
        return ModelLookup(model)
    if parsed.directory is not None:
        directory = _directory_in_tree(parsed.directory, root)
        if directory is not None and ((directory / CONFIG).exists() or not hub_id):
            within = root.resolve()
            return ModelLookup(
                read_directory(directory, id=parsed.directory, source="local", within=within, shown=parsed.directory)
            )
    if hub_id is None:
        reason = parsed.reason or f'"{parsed.directory}" is no directory of the tree with a config.json'
        return ModelLookup(None, reason)
    return _find_hub(hub_id, online, environ, revision)


def _find_hub(hub_id: str, online: bool, environ: Mapping[str, str], revision: str | None) -> ModelLookup:
    from kvgate.models.cards import find_card
    from kvgate.models.hub import fetch_model, find_cached

    if model := find_cached(hub_id, environ, revision):
        return ModelLookup(model)
    if model := find_card(hub_id):
        return ModelLookup(model)
    if online:
        return ModelLookup(fetch_model(hub_id, environ, revision))
    return ModelLookup(
        None,
        f"{hub_id} is neither locked, local, cached nor bundled. Run `kvgate lock --online` to keep its config.json in "
        f"the tree.",
    )


def _directory_in_tree(name: str, root: Path) -> Path | None:
    """A directory of the tree by its path relative to the root, None when there is none.

    Raises:
        ModelError: the path leads out of the tree.
    """
    try:
        base = root.resolve()
        directory = (base / name).resolve()
        if not directory.is_relative_to(base):
            # The place outside is not looked at, so that the answer does not depend on the machine.
            if ".." in Path(name).parts:
                raise ModelError(f'"{name}" leads out of the tree')
            raise ModelError(f'"{name}" is a link that leaves the tree')
        return directory if directory.is_dir() else None
    except (OSError, ValueError, RuntimeError):
        return None


def hub_id_of(reference: str, *, root: Path, mapping: Mapping[str, str]) -> str:
    """The Hub id that a reference stands for.

    Raises:
        ModelError: it stands for a directory, a place inside a container, or another store.
    """
    text = _mapped(reference, mapping) or reference
    parsed = _read_reference(text)
    if parsed.directory is not None and parsed.hub_id:
        directory = _directory_in_tree(parsed.directory, root)
        if directory is not None and (directory / CONFIG).exists():
            raise ModelError(f'"{text}" is a directory of the tree: it needs no lock')
    if parsed.hub_id is None:
        raise ModelError(parsed.reason or f'"{text}" is no Hub id')
    return parsed.hub_id


def lock_model(
    reference: str,
    root: Path,
    *,
    mapping: Mapping[str, str] | None = None,
    online: bool = False,
    environ: Mapping[str, str] | None = None,
    revision: str | None = None,
) -> Locked:
    """Fetch a model's configuration and weight bytes and keep them in the tree.

    With ``online`` the Hub is asked; without, the local Hub cache must hold the model. A bundled card is not locked: it
    is in every installation already.

    Raises:
        ModelError: the reference is no Hub model, or it cannot be had.
    """
    from kvgate.models.hub import fetch_model, find_cached

    hub_id = hub_id_of(reference, root=root, mapping=mapping or {})
    environ = environ or {}
    model = fetch_model(hub_id, environ, revision) if online else find_cached(hub_id, environ, revision)
    if model is None:
        raise ModelError(f"{hub_id} is not in the Hugging Face cache. Run `kvgate lock --online` to ask the Hub.")
    return write_lock(model, root, revision)


def load_model(path: str | Path) -> Model:
    """A model from a directory or a ``config.json`` that the user named explicitly, wherever it lies.

    Raises:
        ModelError: one sentence that says what is wrong, with file, line and column where it is the file's content.
    """
    return load_path(path)


def model_from_mapping(config: Mapping[str, Any]) -> Model:
    """A model from a parsed ``config.json`` (or Mistral's ``params.json``), without name and files."""
    return Model(None, as_config(config), "mapping")
