"""Prompt templates inside other files: ConfigMaps, tokenizer_config.json, values and prompt files in YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kvgate.prompts.jinja import renders_roles
from kvgate.prompts.vocabulary import is_prompt_name, words_of
from kvgate.records import record
from kvgate.source.text import SourceFile, Span, Text
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, Sequence, is_go_template, parse_yaml

MAX_DEPTH: Final = 40
_MAY_HOLD: Final = re.compile(r"chat_template|prompt|instructions|\.jinja|\.j2|template|system", re.IGNORECASE)
_JINJA: Final = re.compile(r"\{%|\{\{")
_PLACEHOLDER: Final = re.compile(r"\{[A-Za-z_]\w*\}")
_TEMPLATE_KEY: Final = re.compile(r"\.(?:jinja2?|j2|tmpl|tpl)$|chat_?template", re.IGNORECASE)

#: Endings of template files. What stands before them may say that it is no prompt (``nginx.conf.j2``).
SUFFIXES: Final = frozenset({".jinja", ".jinja2", ".j2"})
_OTHER_LANGUAGES: Final = re.compile(
    r"\.(?:html?|xml|conf|cfg|ini|ya?ml|json|toml|sh|sql|service|env|tf|css|js|py|csv|tex|rst|nginx|cnf|properties)"
    r"\.(?:jinja2?|j2)$",
    re.IGNORECASE,
)
_PROMPT_PATH: Final = re.compile(
    r"prompt|system|instruction|chat[-_]?template|template_|persona|agent|assistant", re.IGNORECASE
)
_PROMPT_TEXT: Final = re.compile(
    r"\bYou are\b|\bmessages\b|\bassistant\b|\{%-?\s*message\b|\badd_generation_prompt\b", re.IGNORECASE
)


@record
class FoundTemplate:
    """A template and how its placeholders are written: ``jinja``, or ``format`` for ``{name}``."""

    text: Text
    style: str
    name: str


def is_prompt_template(file: SourceFile) -> bool:
    """Whether a Jinja file is one of a prompt rather than of a configuration or a page."""
    if _OTHER_LANGUAGES.search(file.path):
        return "messages" in file.text and "role" in file.text
    return bool(_PROMPT_PATH.search(file.path) or _PROMPT_TEXT.search(file.text) or renders_roles(file.text))


def whole(file: SourceFile) -> Text:
    """The text of a file with its places."""
    return Text.of_span(Span(file, 0, len(file.text)))


def templates_in(file: SourceFile) -> Iterator[FoundTemplate]:
    """The templates of a YAML or JSON file."""
    if not _MAY_HOLD.search(file.text) or is_go_template(file.text):
        return
    for document in parse_yaml(file).documents:
        yield from _walk(document, 0)


def _walk(node: Node, depth: int) -> Iterator[FoundTemplate]:
    if depth > MAX_DEPTH:
        return
    if isinstance(node, Mapping):
        for entry in node.entries:
            if isinstance(entry.value, Scalar):
                yield from _scalar(entry)
            elif entry.key.value == "chat_template" and isinstance(entry.value, Sequence):
                yield from _named_templates(entry.value)
            else:
                yield from _walk(entry.value, depth + 1)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _walk(item, depth + 1)


def _named_templates(node: Sequence) -> Iterator[FoundTemplate]:
    """``chat_template`` as a list of templates, each with a name."""
    for item in node.items:
        if isinstance(item, Mapping):
            template = item.get("template")
            if isinstance(template, Scalar) and _JINJA.search(template.value):
                yield FoundTemplate(template.text, "jinja", "chat_template")


def _scalar(entry: Entry) -> Iterator[FoundTemplate]:
    value, key = entry.value, entry.key.value
    assert isinstance(value, Scalar)
    text = value.value
    if len(text) < 16:
        return
    if _TEMPLATE_KEY.search(key) and _JINJA.search(text):
        yield FoundTemplate(value.text, "jinja", key)
    elif _is_prompt_key(key) or ("role" not in key and renders_roles(text)):
        if _JINJA.search(text):
            yield FoundTemplate(value.text, "jinja", key)
        elif _PLACEHOLDER.search(text):
            yield FoundTemplate(value.text, "format", key)


def _is_prompt_key(key: str) -> bool:
    stem = re.sub(r"\.(?:txt|md|j2|jinja2?)$", "", key, flags=re.IGNORECASE)
    return is_prompt_name(stem) or words_of(stem) in (("system",), ("preamble",), ("persona",))
