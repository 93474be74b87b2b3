"""Files for vLLM's ``--config``: their keys are engine arguments, which the command line wins over.

``FlexibleArgumentParser._pull_args_from_config`` (vLLM 0.6.0 to 0.33.0) puts them right after the model, before the
other words; a list becomes several words, a mapping JSON.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import Final

from kvgate.manifests.container import Find
from kvgate.manifests.entrypoint import VLLM_FLAGS, value_of_flag
from kvgate.manifests.flags import words_of_entries
from kvgate.manifests.unit import ServeUnit
from kvgate.shell.command import path_of
from kvgate.source.text import SourceFile, Unresolved, Word
from kvgate.source.yaml_tree import Mapping, Node, Scalar, parse_embedded

KIND: Final = "vllm-config"
_MAX_KEYS: Final = 200
# Further keys of such files, which other programs have as well.
_COMMON: Final = frozenset(
    {
        "api-key", "api-server-count", "attention-backend", "chat-template", "compilation-config", "config-format",
        "cpu-offload-gb", "data-parallel-size", "device", "disable-log-requests", "disable-log-stats",
        "distributed-executor-backend", "download-dir", "dtype", "generation-config", "hf-overrides", "host",
        "load-format", "logits-processors", "max-log-len", "mm-processor-cache-gb", "mm-processor-cache-type",
        "mm-processor-kwargs", "model", "no-enable-log-requests", "port", "quantization", "reasoning-parser",
        "renderer-num-workers", "revision", "rope-scaling", "runner", "safetensors-load-strategy", "scheduling-policy",
        "seed", "task", "tokenizer", "tokenizer-mode", "trust-remote-code", "uvicorn-log-level",
    }
)  # fmt: skip
_NAMES_MODEL: Final = frozenset({"model", "model-tag"})


def with_config(
    words: Sequence[Word], positional_model: bool, find: Find | None
) -> tuple[tuple[Word, ...], tuple[Unresolved, ...]]:
    """A command line with the arguments of the file that its ``--config`` names; a note where that is not at hand."""
    place = value_of_flag(words, "config")
    if place is None:
        return tuple(words), ()
    path = posixpath.normpath(path_of(place)) if path_of(place) else ""
    text = find(path) if find is not None and path else None
    if text is None:
        why = place.unresolved[0].reason if place.unresolved else "is not among the files read"
        return tuple(words), (Unresolved(place.value, f"the arguments in this --config file: {why}"),)
    documents = parse_embedded(text.text).documents
    if not documents or not isinstance(documents[0], Mapping):
        return tuple(words), (Unresolved(place.value, "this --config file holds no arguments"),)
    leads = positional_model and bool(words) and not words[0].value.startswith("-")
    skip = _NAMES_MODEL if leads else frozenset()
    added = words_of_entries(documents[0].items(), skip=skip, spread=True)
    cut = 1 if leads else 0
    return (*words[:cut], *added, *words[cut:]), ()


def is_vllm_config(document: Node, path: str) -> bool:
    """Whether a document reads as a file for ``--config``: every key a flag by its form, most of them vLLM's.

    Args:
        path: of the file; a name that says vllm makes one flag that only vLLM has enough, else it takes two.
    """
    if not isinstance(document, Mapping) or not 1 <= len(document.entries) <= _MAX_KEYS:
        return False
    own = common = 0
    for entry in document.items():
        name = entry.key.value
        if not name or not name.replace("-", "").replace("_", "").isalnum() or name != name.lower():
            return False
        if name == "model" and not isinstance(entry.value, Scalar):
            return False
        flag = name.replace("_", "-")
        own += flag in VLLM_FLAGS
        common += flag in _COMMON
    needed = 1 if "vllm" in path.lower() else 2
    return (own >= needed or (own >= 1 and common >= 2)) and (own + common) / len(document.entries) >= 0.6


def find_vllm_config(document: Node, path: str) -> Mapping | None:
    """The mapping of a document that reads as such a file: the document, or its section ``vllm`` with the model."""
    if not isinstance(document, Mapping):
        return None
    if is_vllm_config(document, path):
        return document
    section = document.get("vllm")
    if isinstance(section, Mapping) and section.get("model") is not None and is_vllm_config(section, ""):
        return section
    return None


def read_vllm_config(file: SourceFile, document: Node) -> Iterator[ServeUnit]:
    """The server that a ``--config`` file by itself describes."""
    if not isinstance(document, Mapping):
        return
    note = Unresolved(file.path, "the command that reads this --config file is not among the files read")
    words = words_of_entries(document.items(), spread=True)
    yield ServeUnit(
        id=f"{file.path}/{KIND}",
        path=file.path,
        span=document.entries[0].key.span,
        kind=KIND,
        name=file.path.rpartition("/")[2],
        container=None,
        namespace=None,
        words=tuple(words),
        positional_model=False,
        entry="--config",
        image=None,
        environment=(),
        gpu_requests=(),
        node_hints=(),
        replicas=None,
        annotations={},
        shared_memory=None,
        node=document,
        document=document,
        notes=(note,),
    )
