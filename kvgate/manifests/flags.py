"""Engine arguments that are written as YAML keys -> the words of the command line they stand for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from kvgate.shell.expand import mark_placeholders
from kvgate.shell.value import Value
from kvgate.source.text import Text, Word
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, Sequence, is_null, scalar_bool

_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?(?:[eE][-+]?[0-9]{1,3})?")


def words_of_entries(
    entries: Iterable[Entry], *, skip: frozenset[str] = frozenset(), spread: bool = False, bare_empty: bool = False
) -> list[Word]:
    """``max_model_len: 4096`` as ``--max-model-len 4096``, ``enforce_eager: true`` as a bare flag.

    Mappings become JSON, and so do lists, as Ray's ``engine_kwargs`` mean them; with ``spread`` a list becomes several
    words, as in vLLM's own ``--config`` files, and an empty one none. With ``bare_empty`` an empty text makes a bare
    flag.
    """
    words: list[Word] = []
    for entry in entries:
        name, value = entry.key.value, entry.value
        if name in skip or not re.fullmatch(r"[A-Za-z][\w.-]*", name):
            continue
        if spread and isinstance(value, Sequence) and not value.items:
            continue
        truth = scalar_bool(value) if isinstance(value, Scalar) and value.value.lower() in ("true", "false") else None
        prefix = "--no-" if truth is False else "--"
        key = entry.key.text
        flag = Text.join([Text.at(prefix, entry.key.span), _dashed(key)])
        words.append(Word(flag))
        if spread and isinstance(value, Sequence):
            words += [word_of_node(item) for item in value.items]
        elif (
            truth is None and not is_null(value) and not (bare_empty and isinstance(value, Scalar) and not value.value)
        ):
            words.append(word_of_node(value))
    return words


def _dashed(text: Text) -> Text:
    return Text.at(text.value.replace("_", "-"), text.span) if "_" in text.value else text


def word_of_node(node: Node) -> Word:
    """A value as one word: a scalar as it is, everything else as JSON."""
    if isinstance(node, Scalar):
        return mark_placeholders(Value(node.text)).word()
    return mark_placeholders(Value(Text.at(json.dumps(json_of_node(node), ensure_ascii=False), node.span))).word()


def json_of_node(node: Node, depth: int = 0) -> Any:
    """What a node means in JSON; aliases that nest beyond reason become null."""
    if depth > 60:
        return None
    if isinstance(node, Mapping):
        return {entry.key.value: json_of_node(entry.value, depth + 1) for entry in node.items()}
    if isinstance(node, Sequence):
        return [json_of_node(item, depth + 1) for item in node.items[:1000]]
    if not node.plain:
        return node.value
    if is_null(node):
        return None
    if node.value.lower() in ("true", "false"):
        return node.value.lower() == "true"
    if _NUMBER.fullmatch(node.value):
        return json.loads(node.value.removeprefix("+"))
    return node.value
