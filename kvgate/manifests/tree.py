"""The files of a run as one tree, each read and parsed once, and how what is parsed is walked."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Text
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, YamlStream, parse_yaml
from kvgate.source.yaml_tree import Sequence as YamlSequence

MAX_SIDE_FILE_BYTES: Final = 1_000_000
MAX_ENV_CHARACTERS: Final = 200_000
MAX_ENV_LINE: Final = 5_000


class Tree:
    """Files by path, and their YAML, parsed when first asked for.

    Args:
        files: files of the run.
        root: directory to which their paths are relative; None when there is none (a snapshot).
        lookup: reads another file of the same tree by its path; by default below ``root``, never outside.

    Attributes:
        used: paths of files that others run, mount or hand to vLLM.
        built: paths of Dockerfiles whose image a server of another file runs.
        filled: paths of those whose text another one makes objects of, a template that it fills.
        overlaid: path and beginning of each object that kustomizations (their paths) make other servers of.
        memo: what readers found out about the tree and want to keep.
    """

    def __init__(
        self,
        files: Sequence[SourceFile],
        root: Path | None = None,
        lookup: Callable[[str], SourceFile | None] | None = None,
    ) -> None:
        self.files = {file.path: file for file in files}
        self._root = root
        self._lookup = lookup
        self._streams: dict[str, YamlStream] = {}
        self._side: dict[str, SourceFile | None] = {}
        self.used: set[str] = set()
        self.filled: set[str] = set()
        self.built: set[str] = set()
        self.overlaid: dict[tuple[str, int], set[str]] = {}
        self.memo: dict[str, object] = {}

    def stream(self, file: SourceFile) -> YamlStream:
        """The YAML of a file."""
        stream = self._streams.get(file.path)
        if stream is None or stream.file is not file:
            stream = self._streams[file.path] = parse_yaml(file)
        return stream

    def read(self, path: str) -> SourceFile | None:
        """A file of the tree by its path, of the run or beside it; None when there is none or it is not readable."""
        path = posixpath.normpath(path)
        if path in self.files:
            return self.files[path]
        if path not in self._side:
            self._side[path] = self._lookup(path) if self._lookup else self._read(path)
        return self._side[path]

    def use(self, path: str) -> SourceFile | None:
        """A file that another one runs, mounts or hands to vLLM: what it starts is started there."""
        found = self.read(path)
        if found is not None:
            self.used.add(found.path)
        return found

    def _read(self, path: str) -> SourceFile | None:
        if self._root is None or path.startswith(("../", "/")) or path == "..":
            return None
        try:
            place = os.path.join(self._root, path)
            if not os.path.isfile(place):  # most of what is asked for is not there
                return None
            full = Path(place).resolve()
            if not full.is_relative_to(self._root.resolve()):
                return None
            if full.stat().st_size > MAX_SIDE_FILE_BYTES:
                return None
            return SourceFile.from_bytes(path, full.read_bytes())
        except (OSError, ValueError):
            return None

    def is_chart_template(self, file: SourceFile) -> bool:
        """Whether Helm renders a file, also one in which every expression stands inside a value."""
        chart, found, _ = f"/{file.path}".rpartition("/templates/")
        return (
            bool(found) and "{{" in file.text and self.read(posixpath.join(chart.lstrip("/"), "Chart.yaml")) is not None
        )


def distance(left: str, right: str) -> int:
    """Directories between two files; -1 for the same file."""
    if left == right:
        return -1
    here, there = left.split("/")[:-1], right.split("/")[:-1]
    shared = 0
    for one, other in zip(here, there, strict=False):
        if one != other:
            break
        shared += 1
    return len(here) + len(there) - 2 * shared


# -- walking -----------------------------------------------------------------------------------------------------------


def node_at(node: Node | None, *keys: str) -> Node | None:
    """The node below a path of keys."""
    for key in keys:
        if not isinstance(node, Mapping):
            return None
        node = node.get(key)
    return node


def scalar_at(node: Node | None, *keys: str) -> Scalar | None:
    """The scalar below a path of keys."""
    found = node_at(node, *keys)
    return found if isinstance(found, Scalar) else None


def text_at(node: Node | None, *keys: str) -> str | None:
    """The text of the scalar below a path of keys; None when it is missing or empty."""
    found = scalar_at(node, *keys)
    return found.value or None if found else None


def items_at(node: Node | None, *keys: str) -> list[Node]:
    """The items of the sequence below a path of keys."""
    found = node_at(node, *keys)
    return found.items if isinstance(found, YamlSequence) else []


def entries_at(node: Node | None, *keys: str) -> list[Entry]:
    """The effective entries of the mapping below a path of keys."""
    found = node_at(node, *keys)
    return found.items() if isinstance(found, Mapping) else []


def expand_list(document: Node) -> Iterator[Node]:
    """A document, or the objects in it where it is a ``List`` or an OpenShift Template."""
    kind = text_at(document, "kind") or ""
    key = "objects" if kind == "Template" else "items" if kind.endswith("List") else None
    if key and isinstance(node_at(document, key), YamlSequence):
        for item in items_at(document, key):
            yield from expand_list(item)
    else:
        yield document


_ENV_LINE: Final = (
    r"^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_.]*)[ \t]*[=:][ \t]*"
    r"(?:\"(?P<double>(?:[^\"\\]|\\.)*)\"|'(?P<single>[^']*)'|(?P<plain>[^\r\n]*?))[ \t]*(?:[ \t]#[^\r\n]*)?\r?$"
)


_ESCAPED: Final = re.compile(r"\\([\"\\nrt])")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


def _unescaped(match: re.Match[str], there: Value) -> Value:
    return Value(Text.at(_ESCAPES.get(match[1], match[1]), there.span))


def read_env_file(file: SourceFile) -> dict[str, Value]:
    """Variables of an ``.env`` file, as Compose reads them: quotes, comments, references to earlier variables."""
    return read_env_text(Text.of_span(Span(file, 0, len(file.text))))


def read_env_text(text: Text) -> dict[str, Value]:
    """Variables in a text of that form, see :func:`read_env_file`."""
    from kvgate.shell.expand import interpolate

    values: dict[str, Value] = {}
    written = text.value
    if len(written) > MAX_ENV_CHARACTERS or any(len(line) > MAX_ENV_LINE for line in written.splitlines()):
        return values
    for match in re.finditer(_ENV_LINE, written, re.MULTILINE):
        group = "double" if match["double"] is not None else "single" if match["single"] is not None else "plain"
        value = Value(text.slice(match.start(group), match.end(group)))
        if group == "double" and "\\" in value.value:
            value = value.replaced(_ESCAPED.finditer(value.value), _unescaped)
        if group == "plain" and value.value.startswith("#"):
            value = value.slice(0, 0)
        if group != "single":
            value = interpolate(value, values)
        values[match["name"]] = value
    return values
