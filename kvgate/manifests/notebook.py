"""Jupyter notebooks (nbformat 4): the Python of their cells as one program, the commands that they hand to a shell, and
the files that they write.

A cell's line stands in a line of the file, as Jupyter writes them; in a notebook that is one long line nothing has a
place of its own, and it is not read.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from kvgate.manifests.container import beside, find_requirement
from kvgate.manifests.formats import format_of_name
from kvgate.manifests.launch import starts_of_script
from kvgate.manifests.started import Surroundings, unit_of
from kvgate.manifests.tree import Tree, items_at, text_at
from kvgate.manifests.unit import ServeUnit, Unread
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Text, TooLargeError
from kvgate.source.yaml_tree import Scalar

MAX_LINES: Final = 20_000
MAX_WRITTEN: Final = 50  # files that a notebook writes

_SHELL_CELL: Final = re.compile(r"%%(?:bash|sh|script\s+\S*sh)\b")
_FILE_CELL: Final = re.compile(r"%%(?:writefile|file)[ \t]+(?:-a[ \t]+)?(?P<name>[\w./-]+)\s*$")
_OTHER_CELL: Final = re.compile(r"%%(?!time\b|capture\b|timeit\b)")
_COMMAND: Final = re.compile(r"[ \t]*!{1,2}")
_MAGIC: Final = re.compile(r"[ \t]*[%?]")
_ASSIGNED_COMMAND: Final = re.compile(r"(=[ \t]*)[!%][^\n]*")
_REFERENCE: Final = re.compile(r"(?<![{$])\{(?P<braced>[A-Za-z_]\w*)\}")
_NAMED: Final = re.compile(r"\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)")
_LONG_QUOTE: Final = re.compile(r"\"\"\"|\'\'\'")

ReadAs: TypeAlias = Callable[[SourceFile, str], Iterator[ServeUnit | Unread]]
"""Reads a text as a file of that name."""


def read_notebook(tree: Tree, file: SourceFile, read_as: ReadAs) -> Iterator[ServeUnit | Unread]:
    """The serve units of one notebook.

    Args:
        read_as: how the files are read that its cells write.
    """
    lines: dict[int, Scalar] = {}
    program: dict[int, str] = {}
    commands: list[list[Scalar]] = []
    written: list[tuple[str, list[Scalar]]] = []
    for document in tree.stream(file).documents:
        for cell in items_at(document, "cells"):
            if text_at(cell, "cell_type") != "code":
                continue
            source = [item for item in items_at(cell, "source") if isinstance(item, Scalar)]
            for item in source:
                if lines.setdefault(item.span.line, item) is not item:
                    yield Unread("a notebook that is written in one line is not read", file.line_span(1))
                    return
            head = _FILE_CELL.match(source[0].value) if source else None
            if head is not None:
                written.append((head["name"], source[1:]))
            else:
                _sort(source, program, commands)
    if len(lines) > MAX_LINES:
        yield Unread(f"a notebook of {len(lines):,} lines is not read", file.line_span(1))
        return
    python = _python(file, program)
    if python is not None:
        from kvgate.manifests.python_code import read_python

        yield from read_python(tree, python)
    if commands:
        yield from _shell(tree, file, commands, _constants(python))
    for name, texts in written[:MAX_WRITTEN]:
        # one that the tree has as well is read there
        form = format_of_name(name)
        if form not in (None, "notebook") and tree.read(posixpath.join(posixpath.dirname(file.path), name)) is None:
            yield from read_as(_alone(file, {item.span.line: item.value.rstrip("\n") for item in texts}), name)


def _sort(source: list[Scalar], program: dict[int, str], commands: list[list[Scalar]]) -> None:
    """A cell's lines into the program (by their line in the file) and the commands for a shell."""
    first = source[0].value if source else ""
    if _SHELL_CELL.match(first):
        commands.append(source[1:])
        return
    if _OTHER_CELL.match(first):
        return
    continued: list[Scalar] | None = None
    quote = ""
    for item in source:
        if continued is not None or (not quote and _COMMAND.match(item.value)):
            if continued is None:
                continued = []
                commands.append(continued)
            continued.append(item)
            if not item.value.rstrip().endswith("\\"):
                continued = None
        elif quote or not _MAGIC.match(item.value):
            for mark in _LONG_QUOTE.findall(item.value):  # what stands in a long text is no command
                quote = mark if not quote else "" if mark == quote else quote
            program[item.span.line] = _ASSIGNED_COMMAND.sub(r"\1None", item.value.rstrip("\n"))


def _python(file: SourceFile, program: dict[int, str]) -> SourceFile | None:
    """The program with each line in its line of the file; the indentation of the file's own lines stays."""
    if not program:
        return None
    indent = len(file.line_text(min(program))) - len(file.line_text(min(program)).lstrip()) + 1
    indented = {line: " " * indent + text if text.strip() else "" for line, text in program.items()}
    return _alone(file, {**indented, 1: "if 1:"})


def _alone(file: SourceFile, lines: dict[int, str]) -> SourceFile:
    """A file with nothing but some texts, each in its line."""
    texts = [""] * max(lines, default=0)
    for line, text in lines.items():
        texts[line - 1] = text
    return SourceFile(file.path, "\n".join(texts) + "\n")


def _constants(python: SourceFile | None) -> dict[str, Value]:
    """Names that the program gives one text, for commands that refer to them in braces."""
    found: dict[str, Value] = {}
    seen: set[str] = set()
    try:
        module = ast.parse(python.text) if python is not None else ast.Module([], [])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return found
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
            if name in seen:
                found.pop(name, None)
            elif isinstance(value, ast.Constant) and isinstance(value.value, (str, int, float)) and python is not None:
                found[name] = Value(Text.at(str(value.value), python.line_span(value.lineno)))
            seen.add(name)
    return found


def _shell(
    tree: Tree, file: SourceFile, commands: list[list[Scalar]], constants: dict[str, Value]
) -> Iterator[ServeUnit | Unread]:
    number = 0
    whole = [item.text for command in commands for item in command]
    speaking = {name for name, value in constants.items() if "vllm" in value.value.lower()}
    requirement = find_requirement(whole)
    for command in commands:
        text = Text.join(item.text for item in command) if command else None
        names = (match[1] or match[2] for match in _NAMED.finditer(text.value)) if text is not None else ()
        if text is None or not ("vllm" in text.value.lower() or any(name in speaking for name in names)):
            continue
        mark = _COMMAND.match(text.value)
        value = _filled(Value(text.slice(mark.end() if mark else 0, len(text))), constants)
        try:
            starts = starts_of_script(value, constants, beside(tree, file))
        except TooLargeError as error:
            yield Unread(f"{error} is not read", text.span, serves=True)
            continue
        for start in starts:
            yield unit_of(start, Surroundings(file=file, kind="notebook", requirement=requirement), number)
            number += 1


def _filled(value: Value, constants: dict[str, Value]) -> Value:
    """A command with the names in braces that IPython replaces by their values."""

    def known(match: re.Match[str], use: Value) -> Value:
        found = constants.get(match["braced"])
        if found is not None:
            return found.at(use.span)
        return Value.unknown(use.text, f"{match['braced']} is known when the notebook runs only", splits=False)

    return value.replaced(_REFERENCE.finditer(value.value), known)
