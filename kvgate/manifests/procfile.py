"""Procfiles: a process in each line, its name before a colon."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kvgate.manifests.container import beside
from kvgate.manifests.launch import starts_of_script
from kvgate.manifests.started import Surroundings, unit_of
from kvgate.manifests.tree import Tree
from kvgate.manifests.unit import ServeUnit, Unread
from kvgate.source.text import SourceFile, Text, TooLargeError

_PROCESS: Final = re.compile(r"(?m)^(?P<name>[\w-]{1,60}):[ \t]*(?P<command>\S[^\r\n]*)")


def read_procfile(tree: Tree, file: SourceFile) -> Iterator[ServeUnit | Unread]:
    """The serve units of the processes of one file."""
    for match in _PROCESS.finditer(file.text):
        if "vllm" not in match.group().lower():
            continue
        command = Text.of_span(file.span(*match.span("command")))
        around = Surroundings(file=file, kind="script", names=(match["name"],))
        try:
            starts = starts_of_script(command, {}, beside(tree, file))
        except TooLargeError as error:
            yield Unread(f"{error} is not read", command.span, serves=True)
            continue
        for number, start in enumerate(starts):
            yield unit_of(start, around, number)
