"""Models on disk: ``config.json``, the JSON files beside it, and the bytes of the weight files.

Nothing here trusts what it reads: sizes are bounded, links are followed only where the caller allows it, and what is no
model gives one sentence with file, line and column.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from kvgate.errors import KvgateError
from kvgate.models.mistral import PARAMS, as_config
from kvgate.models.model import Model, ModelSource
from kvgate.patterns import regex

CONFIG_LIMIT_BYTES: Final = 8 << 20
AUXILIARY_LIMIT_BYTES: Final = 8 << 20
INDEX_LIMIT_BYTES: Final = 64 << 20
HEADER_LIMIT_BYTES: Final = 128 << 20
DEPTH_LIMIT: Final = 64

CONFIG: Final = "config.json"
WEIGHT_INDEXES: Final = ("model.safetensors.index.json", "pytorch_model.bin.index.json")

# Files beside config.json that change what vLLM computes: quantisation (ModelOpt, older GPTQ and AWQ), sampling and
# length defaults, the sequence length of sentence encoders, image sizes.
AUXILIARY: Final = (
    "hf_quant_config.json",
    "quantize_config.json",
    "quant_config.json",
    "generation_config.json",
    "params.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "tokenizer_config.json",
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
    "config_sentence_transformers.json",
)

_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"
_TOKEN: Final = regex(r'"(?:[^"\\\n]|\\.)*"|[{}\[\]:,]')


class ModelError(KvgateError):
    """A model that cannot be used; the message is one sentence for people."""


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """A JSON object from bytes.

    ``Infinity`` is accepted because published configurations carry it (``time_step_limit``); ``NaN``, duplicate keys
    and nesting beyond 64 levels are not.

    Raises:
        ModelError: naming ``where`` with line and column.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ModelError(f"{where}:{line}: not UTF-8 text") from None
    try:
        value = json.loads(text, object_pairs_hook=_unique_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise ModelError(f"{where}:{error.lineno}:{error.colno}: not JSON: {_lower(error.msg)}") from None
    except RecursionError:
        raise ModelError(f"{where}: nested more than {DEPTH_LIMIT} levels deep") from None
    except _DuplicateKeyError as error:
        line, column = _position(text, _duplicate_offset(text))
        raise ModelError(f'{where}:{line}:{column}: the key "{_shorten(error.key)}" stands twice') from None
    except _NotANumberError:
        line, column = _position(text, max(_constant_offset(text), 0))
        raise ModelError(f"{where}:{line}:{column}: NaN is no value") from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise ModelError(f"{where}: not JSON: {_lower(str(error))}") from None
    if not isinstance(value, dict):
        raise ModelError(f"{where}:1:1: an object expected, got {_kind(value)}")
    if _depth(value) > DEPTH_LIMIT:
        raise ModelError(f"{where}: nested more than {DEPTH_LIMIT} levels deep")
    return value


class _DuplicateKeyError(Exception):
    def __init__(self, key: str) -> None:
        self.key = key


class _NotANumberError(Exception):
    pass


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKeyError(key)
            seen.add(key)
    return result


def _constant(name: str) -> float:
    if name == "NaN":
        raise _NotANumberError
    return float(name.replace("Infinity", "inf"))


def _duplicate_offset(text: str) -> int:
    """Offset of the first key that its object already has."""
    objects: list[set[str] | None] = []
    previous = ""
    for match in _TOKEN.finditer(text):
        word = match[0]
        if word == "{":
            objects.append(set())
        elif word == "[":
            objects.append(None)
        elif word in "}]":
            if objects:
                objects.pop()
        elif word.startswith('"') and objects and (keys := objects[-1]) is not None and previous in "{,":
            if word in keys:
                return match.start()
            keys.add(word)
        previous = word
    return 0


def _constant_offset(text: str) -> int:
    outside = re.sub(r'"(?:[^"\\\n]|\\.)*"', lambda match: " " * len(match[0]), text)
    return outside.find("NaN")


def _position(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1


def _depth(value: Any) -> int:
    deepest, stack = 0, [(value, 1)]
    while stack:
        node, depth = stack.pop()
        deepest = max(deepest, depth)
        if depth > DEPTH_LIMIT:
            break
        children: Iterable[Any] = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        stack.extend((child, depth + 1) for child in children if isinstance(child, (dict, list)))
    return deepest


def _kind(value: Any) -> str:
    return {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(type(value), "a number")


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def _shorten(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def read_object(path: Path, where: str | None = None, limit_bytes: int = CONFIG_LIMIT_BYTES) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        ModelError: missing, unreadable, no regular file, larger than ``limit_bytes``, or no JSON object.
    """
    where = where or str(path)
    return parse_object(_read(path, where, limit_bytes), where)


def _read(path: Path, where: str, limit_bytes: int) -> bytes:
    try:
        # Non-blocking, because a pipe would wait for a writer for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise ModelError(f"{where}: no such file") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{where}: cannot be read: {_system_message(error)}") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ModelError(f"{where}: no regular file")
        try:
            data = file.read(limit_bytes + 1)
        except OSError as error:
            raise ModelError(f"{where}: cannot be read: {_system_message(error)}") from None
    if len(data) > limit_bytes:
        raise ModelError(f"{where}: larger than {limit_bytes >> 20} MiB, which no configuration is")
    if data.startswith(_LFS_POINTER):
        raise ModelError(f"{where}: a Git LFS pointer, not the file itself. Run `git lfs pull`.")
    return data


def _system_message(error: Exception) -> str:
    return _lower(error.strerror or "") if isinstance(error, OSError) else str(error)


def read_directory(
    directory: Path,
    *,
    id: str | None,
    source: ModelSource,
    within: Path | None = None,
    shown: str | None = None,
    revision: str | None = None,
) -> Model:
    """The model in a directory.

    Args:
        directory: holds ``config.json``, or Mistral's ``params.json`` alone.
        id: what the model is called.
        source: as :class:`Model` records it.
        within: a resolved directory that every file read must lie in after following links; None follows any.
        shown: the directory as messages show it.
        revision: commit, where known.

    Raises:
        ModelError: there is no usable ``config.json``, or a file beside it that vLLM reads is broken.
    """
    shown = (shown if shown is not None else str(directory)).rstrip("/") or "/"
    name = next((name for name in (CONFIG, PARAMS) if _exists(directory / name)), None)
    if name is None:
        raise ModelError(_no_config(directory, shown))
    files: dict[str, Mapping[str, Any]] = {}
    config = as_config(read_object(_inside(directory / name, within, f"{shown}/{name}"), f"{shown}/{name}"))
    for name in AUXILIARY:
        path = directory / name
        if not _exists(path):
            continue
        data = _read(_inside(path, within, f"{shown}/{name}"), f"{shown}/{name}", AUXILIARY_LIMIT_BYTES)
        if data.lstrip()[:1] != b"[":
            files[name] = parse_object(data, f"{shown}/{name}")
    size, origin = directory_checkpoint_bytes(directory, within)
    return Model(id, config, source, files, size, origin, revision)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _inside(path: Path, within: Path | None, shown: str) -> Path:
    if within is None:
        return path
    try:
        resolved = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise ModelError(f"{shown}: cannot be read: {_system_message(error)}") from None
    if not resolved.is_relative_to(within):
        raise ModelError(f"{shown}: a link that leaves {within.name or within}")
    return resolved


def _no_config(directory: Path, shown: str) -> str:
    if _exists(directory / "adapter_config.json"):
        return f"{shown} holds a LoRA adapter (adapter_config.json), not a model"
    try:
        gguf = any(path.suffix.lower() == ".gguf" for path in directory.iterdir())
    except OSError:
        gguf = False
    if gguf:
        return f"{shown} holds GGUF files only: kvgate reads the config.json of the original model"
    return f"{shown} has no config.json"


def directory_checkpoint_bytes(directory: Path, within: Path | None = None) -> tuple[int | None, str | None]:
    """Bytes of the tensors in a directory's weight files, and where the figure comes from.

    The files that the safetensors index names are measured where all are there (Git LFS pointers count as the file they
    stand for); otherwise the index's ``total_size``; otherwise a single or unindexed set of weight files.
    """
    for name in WEIGHT_INDEXES:
        path = directory / name
        if not _exists(path):
            continue
        try:
            index = read_object(_inside(path, within, name), name, INDEX_LIMIT_BYTES)
        except ModelError:
            continue
        total, files = index_contents(index)
        measured = _sum_of_files(directory, files, within) if files else None
        if measured is not None:
            return measured, f"{len(files)} files of {name}"
        if total is not None:
            return total, f"total_size of {name}"
    for pattern, skip in (("*.safetensors", "consolidated"), ("pytorch_model*.bin", "")):
        try:
            names = sorted(path.name for path in directory.glob(pattern))
        except OSError:
            names = []
        kept = [name for name in names if not (skip and name.startswith(skip))] or names
        measured = _sum_of_files(directory, kept, within) if kept else None
        if measured is not None:
            return measured, f"size of {kept[0]}" if len(kept) == 1 else f"size of {len(kept)} files ({pattern})"
    return None, None


def index_contents(index: Mapping[str, Any]) -> tuple[int | None, tuple[str, ...]]:
    """``total_size`` and the file names of a parsed weight index; names with path separators are dropped."""
    metadata, weights = index.get("metadata"), index.get("weight_map")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    # Some tools write the figure as a float.
    size = (
        int(total) if isinstance(total, (int, float)) and not isinstance(total, bool) and 0 < total < 1 << 60 else None
    )
    names = set(weights.values()) if isinstance(weights, Mapping) and _all_strings(weights.values()) else set()
    return size, tuple(
        sorted(name for name in names if "/" not in name and "\\" not in name and name not in {"", ".."})
    )


def _all_strings(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _sum_of_files(directory: Path, names: Iterable[str], within: Path | None) -> int | None:
    total = 0
    for name in names:
        try:
            size = _tensor_bytes(_inside(directory / name, within, name))
        except (ModelError, OSError, ValueError):
            return None
        if size is None:
            return None
        total += size
    return total or None


def _tensor_bytes(path: Path) -> int | None:
    """Bytes of the tensors in one weight file: a safetensors file less its header, any other file's size."""
    if not stat.S_ISREG(path.stat().st_mode):
        return None
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(512)
    if start.startswith(_LFS_POINTER):
        pointer = re.search(rb"^size (\d{1,18})$", start, re.MULTILINE)
        return int(pointer[1]) if pointer else None
    if path.suffix != ".safetensors":
        return size
    header = int.from_bytes(start[:8], "little")
    if len(start) < 8 or header > min(HEADER_LIMIT_BYTES, size - 8):
        return None
    return size - 8 - header


def load_path(path: str | Path) -> Model:
    """A model from a directory or a configuration file that the user named.

    Raises:
        ModelError: there is no such place, or no usable configuration in it.
    """
    place = Path(path)
    try:
        is_directory, is_there = place.is_dir(), place.exists()
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {_system_message(error)}") from None
    if not is_there:
        raise ModelError(f"{path}: no such file or directory")
    if is_directory:
        return read_directory(place, id=str(path), source="local")
    if place.suffix.lower() == ".gguf":
        raise ModelError(f"{path}: a GGUF file: kvgate reads the config.json of the original model")
    config = as_config(read_object(place))
    if place.name not in (CONFIG, PARAMS):
        return Model(str(path), config, "local")
    return read_directory(place.parent, id=str(place.parent), source="local")
