"""``dynamo serve graphs.x:Service``: NVIDIA Dynamo before 0.4, whose workers take their arguments from one file.

The file (``-f``, or its text in ``DYN_DEPLOYMENT_CONFIG``) has a section for each service; a section names the keys
that it takes from ``Common``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kvgate.manifests.container import Find, Start
from kvgate.manifests.entrypoint import VLLM_FLAGS, flag_name
from kvgate.manifests.flags import words_of_entries
from kvgate.manifests.tree import entries_at, items_at, node_at
from kvgate.shell.command import Command, basename
from kvgate.shell.value import Value
from kvgate.source.text import Text, Word
from kvgate.source.yaml_tree import Entry, Node, Scalar, parse_embedded
from kvgate.source.yaml_tree import Mapping as YamlMapping

VARIABLE: Final = "DYN_DEPLOYMENT_CONFIG"
# Services of the graphs that are no engine, and keys of the engines' sections that are Dynamo's own.
_OTHERS: Final = frozenset({"Common", "Frontend", "Planner", "Processor", "Router"})
_OWN_KEYS: Final = frozenset(
    {
        "ServiceArgs", "common-configs", "conditional-disagg", "endpoint", "max-local-prefill-length",
        "max-prefill-queue-size", "remote-prefill", "router", "router-num-threads",
    }
)  # fmt: skip


def starts_of_graph(command: Command, environment: Mapping[str, Value], find: Find | None) -> list[Start] | None:
    """The engines that one command starts; None where it is no such command."""
    words = command.words
    at = next((index for index, word in enumerate(words) if basename(word) == "dynamo"), None)
    if at is None or at + 2 >= len(words) or words[at + 1].value != "serve":
        return None
    config = _config(words, command, environment, find)
    if config is None:
        return []
    service = _option(words, "--service-name")
    return list(_starts(config, service, command))


def _config(
    words: Sequence[Word], command: Command, environment: Mapping[str, Value], find: Find | None
) -> YamlMapping | None:
    text: Text | None = None
    path = _option(words, "-f")
    if path is not None and find is not None:
        found = find(path)
        text = found.text if found is not None else None
    exported = {item.name: item.value for item in command.environment}
    variable = exported.get(VARIABLE) or environment.get(VARIABLE)
    if text is None and variable is not None:
        text = variable.text
    documents = parse_embedded(text).documents if text is not None else []
    return documents[0] if documents and isinstance(documents[0], YamlMapping) else None


def _option(words: Sequence[Word], name: str) -> str | None:
    for index, word in enumerate(words):
        if word.value == name and index + 1 < len(words):
            return words[index + 1].value
        if word.value.startswith(name + "="):
            return word.value[len(name) + 1 :]
    return None


def _starts(config: YamlMapping, service: str | None, command: Command) -> Iterator[Start]:
    for section in config.items():
        name = section.key.value
        if name in _OTHERS or (service is not None and name != service):
            continue
        words = words_of_entries(_entries(config, section.value), skip=_OWN_KEYS)
        if "vllm" in name.lower() or any(flag_name(word) in VLLM_FLAGS for word in words):
            yield Start(tuple(words), f"dynamo serve {name}", False, command.environment, command.span)


def _entries(config: YamlMapping, section: Node) -> list[Entry]:
    common = node_at(config, "Common")
    shared: list[Entry] = []
    for item in items_at(section, "common-configs"):
        if isinstance(item, Scalar) and isinstance(common, YamlMapping):
            entry = common.entry(item.value)
            if entry is not None:
                shared.append(entry)
    return [*shared, *entries_at(section)]
