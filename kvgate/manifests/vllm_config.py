"""Files for vLLM's ``--config``: their keys are engine arguments, which the command line wins over.

``FlexibleArgumentParser._pull_args_from_config`` (vLLM 0.6.0 to 0.33.0) puts them right after the model, before the
other words; a list becomes several words, a mapping JSON.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import Final

from kvgate.manifests.container import Find
from kvgate.manifests.entrypoint import VLLM_FLAGS, is_other_program, value_of_flag
from kvgate.manifests.flags import words_of_entries
from kvgate.manifests.shapes import is_measurement
from kvgate.manifests.tree import entries_at, node_at, scalar_at, text_at
from kvgate.manifests.unit import ServeUnit
from kvgate.shell.command import path_of
from kvgate.source.text import SourceFile, Span, Text, Unresolved, Word
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, is_null, parse_embedded

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
_TOLD: Final = (VLLM_FLAGS | _COMMON) - _NAMES_MODEL


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
    """The mapping of a document that reads as such a file: the document, its section ``vllm`` with the model, or the
    settings of a program with engines in them."""
    if not isinstance(document, Mapping):
        return None
    if is_vllm_config(document, path):
        return document
    section = document.get("vllm")
    if isinstance(section, Mapping) and section.get("model") is not None and is_vllm_config(section, ""):
        return section
    return document if next(_engines(document), None) is not None else None


def read_vllm_config(file: SourceFile, document: Node) -> Iterator[ServeUnit]:
    """The servers that a ``--config`` file, or the settings of a program that runs the engine, by itself describe."""
    if not isinstance(document, Mapping):
        return
    engines = list(_engines(document))
    for name, key, words in engines:
        yield _unit(file, document, f"{KIND}/{name}", key.span, words, "the program that reads these settings")
    if not engines:
        words = words_of_entries(document.items(), spread=True)
        what = "the command that reads this --config file"
        yield _unit(file, document, KIND, document.entries[0].key.span, words, what)


# Sections of a program's settings that say where it answers, and those of its model.
_ANSWERS: Final = ("server", "api", "api_server", "http")
_MODEL_KEYS: Final = ("model", "path", "model_path", "id", "model_id", "name", "model_name")
_LEAST_FLAGS: Final = 3
_DEPTH: Final = 2  # of sections within sections
_MAX_SECTIONS: Final = 2_000  # aliases are walked once per use
# What stands beside them where they are another reader's: values of charts, commands that are told them.
_OTHER_SECTIONS: Final = frozenset(
    {
        "cmd", "command", "commands", "image", "nodeSelector", "replicaCount", "replicas", "resources", "run", "script",
        "tolerations",
    }
)  # fmt: skip


def _engines(document: Mapping) -> Iterator[tuple[str, Scalar, list[Word]]]:
    """The engines in the settings of a program that answers requests: sections with several of vLLM's arguments by
    their names; the model there, around it, or in a section of its own."""
    if is_measurement(document):
        return
    answers = any(node_at(document, key, "port") is not None for key in _ANSWERS)
    found: list[tuple[str, Scalar, list[Word]]] = []
    common: list[tuple[str, Scalar, dict[str, Entry]]] = []
    below: list[tuple[str, Entry, Mapping]] = [("", entry, document) for entry in document.items()]
    for prefix, entry, around in below:  # which grows
        if entry.key.value in _OTHER_SECTIONS and prefix.count(".") < _DEPTH:
            return
        name, section = f"{prefix}{entry.key.value}", entry.value
        if not isinstance(section, Mapping):
            continue
        if name.count(".") < _DEPTH and len(below) < _MAX_SECTIONS:
            below += [(f"{name}.", inner, section) for inner in section.items()]
        own = _told(section)
        if sum(flag in VLLM_FLAGS for flag in own) < _LEAST_FLAGS or _is_other(section):
            continue
        own_port = any(node.get("port") is not None for node in (section, around))
        model = _first_said(*(scalar_at(section, key) for key in _MODEL_KEYS), scalar_at(around, "model"))
        if not (answers or own_port):
            continue
        if model is None:
            common.append((name, entry.key, own))  # all of them are about one model
        else:
            found.append((name, entry.key, _words_of(model, {**_told(document.get("model")), **own})))
    model = _first_said(*(scalar_at(document.get("model"), key) for key in _MODEL_KEYS))
    if common and model is not None:
        told = dict(_told(document.get("model")))
        for _, _, own in reversed(common):
            told |= own
        found.append((common[0][0], common[0][1], _words_of(model, told)))
    yield from found


def _first_said(*named: Scalar | None) -> Scalar | None:
    return next((scalar for scalar in named if scalar is not None and scalar.value), None)


def _words_of(model: Scalar, told: dict[str, Entry]) -> list[Word]:
    words = [Word(Text.at("--model", model.span)), Word(model.text)]
    return [*words, *words_of_entries(told.values(), spread=True)]


def _is_other(section: Node) -> bool:
    """Whether a section says that it is about another engine."""
    named = (text_at(section, key) for key in ("backend", "engine", "framework", "type"))
    return any(name and is_other_program(name) for name in named)


def _told(section: Node | None) -> dict[str, Entry]:
    """The arguments of vLLM that a section has under their own names."""
    entries = ((entry.key.value.replace("_", "-"), entry) for entry in entries_at(section))
    return {flag: entry for flag, entry in entries if flag in _TOLD and not is_null(entry.value)}


def _unit(file: SourceFile, document: Mapping, name: str, span: Span, words: Sequence[Word], reader: str) -> ServeUnit:
    return ServeUnit(
        id=f"{file.path}/{name}",
        path=file.path,
        span=span,
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
        notes=(Unresolved(file.path, f"{reader} is not among the files read"),),
    )
