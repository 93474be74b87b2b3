"""Models on the Hugging Face Hub: the local cache of it, and (only when asked) the Hub itself.

The cache is read by its documented layout (``models--org--name/refs`` and ``/snapshots``), without importing
``huggingface_hub`` and without writing to it. The Hub is asked through ``huggingface_hub``, imported here only; code of
a repository is never run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from kvgate.models.local import (
    AUXILIARY,
    AUXILIARY_LIMIT_BYTES,
    CONFIG,
    CONFIG_LIMIT_BYTES,
    INDEX_LIMIT_BYTES,
    WEIGHT_INDEXES,
    ModelError,
    index_contents,
    read_directory,
    read_object,
)
from kvgate.models.model import Model
from kvgate.patterns import regex

TIMEOUT_SECONDS: Final = 10.0

# Endpoints that did not answer in this process, with what happened: forty units must not wait forty times.
_unreachable: dict[str | None, str] = {}

_REVISION: Final = regex(r"[A-Za-z0-9][A-Za-z0-9._\-]*(?:/[A-Za-z0-9][A-Za-z0-9._\-]*)*")
_COMMIT: Final = regex(r"[0-9a-f]{40}")
_TRUE: Final = frozenset(("1", "true", "yes", "on"))
_OFFLINE: Final = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TOKENS: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")


def cache_directory(environ: Mapping[str, str]) -> Path | None:
    """Where ``huggingface_hub`` keeps its cache under that environment; None when the environment names no home.

    ``HF_HUB_CACHE``, ``HUGGINGFACE_HUB_CACHE``, ``HF_HOME``/hub, ``XDG_CACHE_HOME``/huggingface/hub,
    ``~/.cache/huggingface/hub``, in this order.
    """
    home = environ.get("HOME") or environ.get("USERPROFILE")
    for name, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        if value := environ.get(name):
            if value.startswith("~"):
                if not home:
                    continue
                value = home + value[1:]
            return Path(value) / below
    return Path(home) / ".cache" / "huggingface" / "hub" if home else None


def find_cached(hub_id: str, environ: Mapping[str, str], revision: str | None = None) -> Model | None:
    """The model from the local cache, None when it holds no ``config.json`` of that revision.

    Raises:
        ModelError: the cached files are broken.
    """
    cache = cache_directory(environ)
    if cache is None:
        return None
    repository = cache / ("models--" + hub_id.replace("/", "--"))
    try:
        commit = _cached_commit(repository, revision)
        if commit is None:
            return None
        snapshot = repository / "snapshots" / commit
        if not (snapshot / CONFIG).exists():
            return None
        within = repository.resolve()
    except (OSError, ValueError, RuntimeError):
        return None
    return read_directory(
        snapshot, id=hub_id, source="cache", within=within, shown=f"{hub_id} (cache)", revision=commit
    )


def _cached_commit(repository: Path, revision: str | None) -> str | None:
    snapshots = repository / "snapshots"
    wanted = revision or "main"
    if _COMMIT.fullmatch(wanted):
        return wanted if (snapshots / wanted).is_dir() else None
    if not _REVISION.fullmatch(wanted):
        return None
    reference = repository / "refs" / wanted
    if reference.is_file() and reference.stat().st_size < 256:
        commit = reference.read_text(encoding="utf-8", errors="replace").strip()
        return commit if re.fullmatch(r"[0-9A-Za-z]{1,64}", commit) else None
    if revision is None and snapshots.is_dir():
        # A cache filled by commit has no refs/main; a single snapshot is then the one that was fetched.
        commits = [entry.name for entry in snapshots.iterdir() if entry.is_dir()]
        return commits[0] if len(commits) == 1 else None
    return None


def hub_is_offline(environ: Mapping[str, str]) -> str | None:
    """The variable that forbids asking the Hub, if one is set."""
    return next((name for name in _OFFLINE if environ.get(name, "").strip().lower() in _TRUE), None)


def fetch_model(hub_id: str, environ: Mapping[str, str], revision: str | None = None) -> Model:
    """The model's JSON files and weight bytes from the Hub.

    A model is asked for once in a process, whatever the answer.

    Raises:
        ModelError: it is missing, gated or private, the Hub cannot be reached or fails, or what it sends is no
            configuration.
    """
    if name := hub_is_offline(environ):
        raise ModelError(f"{hub_id}: {name} is set, so the Hub was not asked")
    endpoint = environ.get("HF_ENDPOINT") or None
    if failure := _unreachable.get(endpoint):
        raise ModelError(f"{hub_id}: the Hub was not asked again after {failure}")
    token = next((environ[name].strip() for name in _TOKENS if environ.get(name, "").strip()), None)
    answer = _ask(hub_id, revision, endpoint, token or _stored_token(environ))
    if isinstance(answer, str):
        raise ModelError(answer)
    return answer


def _stored_token(environ: Mapping[str, str]) -> str | None:
    """The token that ``hf auth login`` left, where that environment keeps it."""
    home = environ.get("HOME") or environ.get("USERPROFILE")
    if path := environ.get("HF_TOKEN_PATH"):
        place = Path(path)
    elif path := environ.get("HF_HOME"):
        place = Path(path) / "token"
    elif path := environ.get("XDG_CACHE_HOME"):
        place = Path(path) / "huggingface" / "token"
    elif home:
        place = Path(home) / ".cache" / "huggingface" / "token"
    else:
        return None
    try:
        return place.read_text(encoding="utf-8").strip()[:4096] or None
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=512)
def _ask(hub_id: str, revision: str | None, endpoint: str | None, token: str | None) -> Model | str:
    """The model, or the sentence that says why not."""
    from tempfile import TemporaryDirectory

    try:
        from huggingface_hub import HfApi, errors
    except ImportError as error:
        return f"{hub_id}: the Hub cannot be asked: {error}"
    at = f" at revision {revision}" if revision else ""
    api = HfApi(endpoint=endpoint, token=token if token else False, library_name="kvgate")
    try:
        info = api.model_info(hub_id, revision=revision, timeout=TIMEOUT_SECONDS, files_metadata=True)
        sizes = {file.rfilename: file.size for file in info.siblings or ()}
        with TemporaryDirectory(prefix="kvgate-") as directory:
            return _download(api, hub_id, info.sha, sizes, Path(directory))
    except ModelError as error:
        return str(error)
    except errors.GatedRepoError:
        return _gated(hub_id, token)
    except errors.DisabledRepoError:
        return f"{hub_id} is disabled on the Hub"
    except errors.RevisionNotFoundError:
        return f"{hub_id} has no revision {revision} on the Hub"
    except errors.RepositoryNotFoundError:
        return _unseen(hub_id, token)
    except errors.HFValidationError:
        return f'"{hub_id}" is no Hub id'
    except errors.OfflineModeIsEnabled:
        return f"{hub_id}: HF_HUB_OFFLINE is set, so the Hub was not asked"
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        if status == 401:
            return _unseen(hub_id, token)
        if status == 403:
            return _gated(hub_id, token)
        return f"{hub_id}{at}: the Hub answered with status {status}. Try again later."
    except errors.EntryNotFoundError as error:  # a local entry: the download itself failed
        return f"{hub_id}{at}: the Hub could not be reached: {_first_line(error.__cause__ or error)}"
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # an answer of another shape than the Hub's
        return f"{hub_id}{at}: the Hub's answer could not be read: {_first_line(error)}"
    except Exception as error:
        # The HTTP library below huggingface_hub, and with it the type of its errors, differs between its versions.
        if "Timeout" in type(error).__name__:
            _unreachable[endpoint] = f"no answer within {TIMEOUT_SECONDS:g} seconds for {hub_id}"
            return f"{hub_id}{at}: the Hub did not answer within {TIMEOUT_SECONDS:g} seconds"
        _unreachable[endpoint] = f"it could not be reached for {hub_id}"
        return f"{hub_id}{at}: the Hub could not be reached: {_first_line(error)}"


def _unseen(hub_id: str, token: str | None) -> str:
    # The Hub answers 401 alike for what is missing, for what is private, and for a token that it does not accept.
    if token:
        return f"{hub_id} does not exist on the Hub, or cannot be seen with this token. Check HF_TOKEN."
    return f"{hub_id} does not exist on the Hub, or is private. Set HF_TOKEN if it is private."


def _gated(hub_id: str, token: str | None) -> str:
    if token:
        return f"{hub_id} is gated: this token's account has no access. Ask for it on https://huggingface.co/{hub_id}."
    return f"{hub_id} is gated: accept its terms on https://huggingface.co/{hub_id} and set HF_TOKEN."


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


def _download(api: Any, hub_id: str, commit: str | None, sizes: Mapping[str, int | None], directory: Path) -> Model:
    if CONFIG not in sizes:
        raise ModelError(_nothing_to_read(hub_id, sizes))

    def get(name: str, limit_bytes: int) -> Path:
        size = sizes[name]
        if size is not None and size > limit_bytes:
            raise ModelError(f"{hub_id}: {name} is larger than {limit_bytes >> 20} MiB, which no configuration is")
        return Path(
            api.hf_hub_download(hub_id, name, revision=commit, cache_dir=directory, etag_timeout=TIMEOUT_SECONDS)
        )

    shown = f"{hub_id}/{CONFIG}"
    config = read_object(get(CONFIG, CONFIG_LIMIT_BYTES), shown, CONFIG_LIMIT_BYTES)
    files: dict[str, Mapping[str, Any]] = {}
    for name in AUXILIARY:
        if name in sizes and (sizes[name] or 0) <= AUXILIARY_LIMIT_BYTES:
            files[name] = read_object(get(name, AUXILIARY_LIMIT_BYTES), f"{hub_id}/{name}", AUXILIARY_LIMIT_BYTES)
    checkpoint_bytes, origin = None, None
    for name in WEIGHT_INDEXES:
        if name in sizes and (sizes[name] or 0) <= INDEX_LIMIT_BYTES:
            index = read_object(get(name, INDEX_LIMIT_BYTES), f"{hub_id}/{name}", INDEX_LIMIT_BYTES)
            total, _ = index_contents(index)
            if total is not None:
                checkpoint_bytes, origin = total, f"total_size of {name} on the Hub"
                break
    if checkpoint_bytes is None:
        checkpoint_bytes, origin = _sum_of_sizes(sizes)
    return Model(hub_id, config, "hub", files, checkpoint_bytes, origin, commit)


def _nothing_to_read(hub_id: str, names: Iterable[str]) -> str:
    known = set(names)
    if "adapter_config.json" in known:
        return f"{hub_id} is a LoRA adapter (adapter_config.json), not a model"
    if any(name.lower().endswith(".gguf") for name in known):
        return f"{hub_id} holds GGUF files only: kvgate reads the config.json of the original model"
    return f"{hub_id} has no config.json on the Hub"


def _sum_of_sizes(sizes: Mapping[str, int | None]) -> tuple[int | None, str | None]:
    for suffix, skip in ((".safetensors", "consolidated"), (".bin", "training_args")):
        found = {
            name: size
            for name, size in sizes.items()
            if name.endswith(suffix) and "/" not in name and not name.startswith(skip)
        }
        if found and all(size is not None for size in found.values()):
            total = sum(size for size in found.values() if size is not None)
            return total, f"size of {len(found)} {suffix} file(s) on the Hub"
    return None, None
