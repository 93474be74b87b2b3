"""Definition files of Apptainer and Singularity: what the containers of an image run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvgate.manifests.apptainer import host_memory
from kvgate.manifests.container import beside
from kvgate.manifests.launch import starts_of_script
from kvgate.manifests.started import Surroundings, unit_of
from kvgate.manifests.tree import Tree
from kvgate.manifests.unit import ServeUnit, Unread
from kvgate.patterns import regex
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Text, TooLargeError, Word

_BOOTSTRAP: Final = regex(r"(?im)^bootstrap[ \t]*:[ \t]*(?P<from>[\w-]+)")
_FROM: Final = regex(r"(?im)^from[ \t]*:[ \t]*(?P<image>\S+)")
_SECTION: Final = regex(r"(?m)^%(?P<name>[a-z]+)[^\n]*(?:\n|\Z)")


def read_definition(tree: Tree, file: SourceFile) -> Iterator[ServeUnit | Unread]:
    """The servers that a container runs as which a definition file describes, those with arguments of its own."""
    bootstrap = _BOOTSTRAP.search(file.text)
    if bootstrap is None:
        return
    base = _FROM.search(file.text) if bootstrap["from"].lower() == "docker" else None
    image = Word(Text.of_span(file.span(*base.span("image")))) if base is not None else None
    sections: dict[str, Value] = {}
    matches = list(_SECTION.finditer(file.text))
    for match, following in zip(matches, [*matches[1:], None], strict=True):
        end = following.start() if following is not None else len(file.text)
        sections[match["name"]] = Value(Text.of_span(file.span(match.end(), end)))
    seen: set[tuple[str, ...]] = set()
    for name in ("runscript", "startscript"):
        if name not in sections:
            continue
        parts = [sections[part] for part in ("environment", name) if part in sections]
        try:
            starts = starts_of_script(Value.join(parts), {}, beside(tree, file))
        except TooLargeError as error:
            yield Unread(f"{error} is not read", sections[name].span, serves=True)
            continue
        around = Surroundings(
            file=file, kind="script", names=(name,), image=image, shared_memory=host_memory(sections[name].span)
        )
        number = 0
        for start in starts:
            words = tuple(word.value for word in start.words)
            if words not in seen and any(word.resolved for word in start.words):
                seen.add(words)
                yield unit_of(start, around, number)
                number += 1
