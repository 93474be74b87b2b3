"""YAML as a tree in which every node knows where it stands.

Built from libyaml's events: ``yaml.compose`` loses the use site of an alias and accepts duplicate keys in silence.
Scalars stay text; what they mean is decided where the type is known, since Kubernetes and Compose resolve them
otherwise than YAML 1.1 (``12:30:45``, ``0o17``, ``on``).

A broken document does not cost its neighbours: documents are read one by one, and inside a broken one the lines that
libyaml refuses are set aside, each as a :class:`YamlProblem`, until the rest can be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, Literal

from kvgate.patterns import regex
from kvgate.records import record
from kvgate.source.text import Piece, SourceFile, Span, Text

MAX_DEPTH: Final = 200
MAX_REPAIRS: Final = 24
MAX_REPAIRED_CHARACTERS: Final = 400_000
MAX_EXPANDED_NODES: Final = 200_000

# Kept as text: only some files need them, and compiling them all costs more than reading a small file.
_SEPARATOR: Final = r"(?m)^---(?=\s|$)"
_INDENTED_SEPARATOR: Final = r"(?m)^[ \t]+---[ \t]*$(?=\r?\n[ \t]+(?:apiVersion|kind)[ \t]*:)"
_PLACEHOLDER: Final = r"\{\{[^{}\n]*\}\}"
_VARIABLE: Final = r"\$\{[^{}\n]*\}"
_GO_TEMPLATE: Final = (
    r"\{\{-?\s*(?:if|else|end|range|with|define|include|template|block|tpl|toYaml)\b"
    r"|\{\{[^{}\n]*\.(?:Values|Release|Chart|Capabilities|Files)\b"
)
_COMMENT_LINES: Final = r"(?m)^[ \t]*#.*$"
_PROPERTIES: Final = r"(?:[&!]\S*\s+)+"
_ESCAPE: Final = r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|\r?\n[ \t]*|[^\r\n])"


@record
class Scalar:
    """A scalar. ``span`` covers what is written, quotes or block indicator included.

    ``mapped`` is its text where that is not to be found at the span; ``embedded`` is the same scalar in a document that
    itself stands in a text, with that text.
    """

    span: Span
    value: str
    style: str = ""
    alias: Span | None = None
    mapped: Text | None = None
    embedded: tuple[Scalar, Text] | None = field(default=None, repr=False, compare=False)

    @property
    def text(self) -> Text:
        """The value with the place of each of its characters."""
        if self.embedded is not None:
            return _embedded_text(*self.embedded) or _text_of(self)
        return self.mapped or _text_of(self)

    @property
    def plain(self) -> bool:
        return self.style == ""


@record
class Entry:
    key: Scalar
    value: Node


@record
class Mapping:
    """A mapping with its entries in order, duplicates included; ``<<`` entries are kept and looked through by get."""

    span: Span
    entries: list[Entry]
    alias: Span | None = None
    _index: dict[str, Entry] | None = field(default=None, repr=False, compare=False)

    def get(self, key: str) -> Node | None:
        """The value of a key: the last of its own entries, else what merge keys (``<<``) bring, the first winning."""
        entry = self.entry(key)
        return entry.value if entry is not None else None

    def entry(self, key: str) -> Entry | None:
        """The entry that :meth:`get` looks at."""
        index = self._index if self._index is not None else self._indexed()
        found = index.get(key)
        if found is None:
            return self._find(key, set()) if "<<" in index else None
        return found if key != "<<" or not _is_merge(found.key) else None

    def has_any(self, keys: AbstractSet[str]) -> bool:
        """Whether :meth:`get` may find a value for one of some keys; False is certain."""
        index = self._index if self._index is not None else self._indexed()
        return "<<" in index or not keys.isdisjoint(index)

    def _indexed(self) -> dict[str, Entry]:
        """The last entry of each key, in the order in which the keys first appear."""
        index = {entry.key.value: entry for entry in self.entries}
        object.__setattr__(self, "_index", index)
        return index

    def _find(self, key: str, seen: set[int]) -> Entry | None:
        for entry in reversed(self.entries):
            if entry.key.value == key and not _is_merge(entry.key):
                return entry
        seen.add(id(self.entries))  # a base that is merged over and over says nothing new
        for entry in self.entries:
            if _is_merge(entry.key):
                for base in _merged(entry.value):
                    found = None if id(base.entries) in seen else base._find(key, seen)
                    if found:
                        return found
        return None

    def items(self) -> list[Entry]:
        """Effective entries: merge keys resolved, later duplicates winning, in order of first appearance."""
        index = self._index if self._index is not None else self._indexed()
        if "<<" not in index:
            return list(index.values())
        found: dict[str, Entry] = {}
        self._collect(found, set())
        return list(found.values())

    def _collect(self, found: dict[str, Entry], seen: set[int]) -> None:
        own: dict[str, Entry] = {}
        for entry in self.entries:
            if not _is_merge(entry.key):
                own[entry.key.value] = entry
        for key, entry in own.items():
            found.setdefault(key, entry)
        seen.add(id(self.entries))
        for entry in self.entries:
            if _is_merge(entry.key):
                for base in _merged(entry.value):
                    if id(base.entries) not in seen:
                        base._collect(found, seen)


@record
class Sequence:
    span: Span
    items: list[Node]
    alias: Span | None = None


Node = Scalar | Mapping | Sequence


def _is_merge(key: Scalar) -> bool:
    return key.value == "<<" and key.style == ""


def _merged(node: Node) -> list[Mapping]:
    if isinstance(node, Mapping):
        return [node]
    if isinstance(node, Sequence):
        return [item for item in node.items if isinstance(item, Mapping)]
    return []


@record
class YamlProblem:
    """What is wrong with the text of a file. ``syntax`` and ``depth`` cost content; ``duplicate-key`` does not."""

    kind: Literal["syntax", "duplicate-key", "depth", "encoding"]
    message: str
    span: Span


@record
class YamlStream:
    """The readable documents of a file (None for an empty one) and what could not be read."""

    file: SourceFile
    documents: list[Node]
    problems: list[YamlProblem] = field(default_factory=list)


@lru_cache(maxsize=256)
def is_go_template(text: str) -> bool:
    """Whether the text is a Go template (a Helm chart's, say), which is no YAML before it is rendered.

    ``a: {{ .Values.x }}`` is valid YAML, a mapping with a mapping for a key, so this must be asked first. A text in
    which every expression stands inside a scalar can be read; what it stands for is then unknown.
    """
    if "{{" not in text:
        return False
    text = re.sub(
        _COMMENT_LINES, lambda match: match.group().replace("{{", "xx"), text
    )  # values files quote them there
    return any(not inside for inside in _inside_scalars(text, _GO_TEMPLATE))


def _inside_scalars(text: str, pattern: str) -> Iterator[bool]:
    """For each match whether it begins within a scalar; false for the rest of a text that is no YAML."""
    import yaml

    starts = [match.start() for match in re.finditer(pattern, text)]
    found = 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if starts else ():
            if isinstance(event, yaml.ScalarEvent) and event.start_mark and event.end_mark:
                while found < len(starts) and starts[found] < event.end_mark.index:
                    yield starts[found] >= event.start_mark.index
                    found += 1
    except (yaml.YAMLError, RecursionError):
        pass
    yield from (False for _ in starts[found:])


def parse_yaml(file: SourceFile) -> YamlStream:
    """Read every document of a file. Never raises for what the file holds."""
    text = _neutral(_without_definitions(file.text))
    if file.path.lower().endswith((".json", ".jsonc")) and "\\ud" in text.lower():
        text = re.sub(_SURROGATE, r"\\u003f", text)
    problems: list[YamlProblem] = []
    try:
        documents = _parse(file, text, 0, problems)
        return YamlStream(file, documents, problems)
    except _RefusedError:
        problems.clear()
    # variables that are put in before YAML reads it end a plain scalar only between the braces of a flow mapping
    if not (_OPEN in file.text or _CLOSE in file.text):
        text = re.sub(_VARIABLE, lambda match: "$" + _OPEN + match.group()[2:-1] + _CLOSE, text)
    documents = []
    starts = [match.start() for match in re.finditer(_SEPARATOR, text)]
    bounds = [0, *[at for at in starts if at > 0], len(text)]
    for start, end in pairwise(bounds):
        found: list[YamlProblem] = []
        try:
            documents += _parse(file, text[start:end], start, found)
        except _RefusedError as refused:
            found = []
            repaired = _repaired(file, text[start:end], start, found, refused)
            # what is left of a document may be nothing
            documents += [node for node in repaired if not (isinstance(node, Scalar) and node.value == "")]
        problems += found
    return YamlStream(file, documents, problems)


# Half a character beyond the first 65,536, as JSON escapes it and YAML does not.
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_DEFINITION: Final = re.compile(r"^kind:[ \t]*[\"']?CustomResourceDefinition\b", re.MULTILINE)


def _without_definitions(text: str) -> str:
    """A text with its Kubernetes schemas blanked, at the same length: megabytes that describe objects and are none."""
    if "CustomResourceDefinition" not in text or not _DEFINITION.search(text):
        return text
    bounds = [0, *(match.start() for match in re.finditer(_SEPARATOR, text) if match.start()), len(text)]
    parts: list[str] = []
    for start, end in pairwise(bounds):
        part = text[start:end]
        if _DEFINITION.search(part):
            line = 0 if not part.startswith("---") else part.find("\n") + 1 or len(part)
            part = part[:line] + " " * (len(part) - line - 1) + "\n" * (line < len(part))
        parts.append(part)
    return "".join(parts)


def parse_embedded(text: Text) -> YamlStream:
    """Read YAML that stands inside another text (a ConfigMap's entry, a patch); its nodes lie in the outer file.

    Never raises for what the text holds.
    """
    inner = parse_yaml(SourceFile(text.span.path, text.value))
    outer = text.span.file
    return YamlStream(
        outer,
        [_outward(document, text, {}) for document in inner.documents],
        [replace(problem, span=_outer_span(problem.span, text)) for problem in inner.problems],
    )


def _outer_span(span: Span, text: Text) -> Span:
    return text.span_of(span.start, span.end)


def _outward(node: Node, text: Text, shared: dict[int, list[Any]]) -> Node:
    span = _outer_span(node.span, text)
    alias = None if node.alias is None else _outer_span(node.alias, text)
    if isinstance(node, Scalar):
        return Scalar(span, node.value, node.style, alias, None, (node, text))
    if isinstance(node, Sequence):
        items = shared.get(id(node.items))
        if items is None:  # aliases share their target's content
            items = shared[id(node.items)] = [_outward(item, text, shared) for item in node.items]
        return Sequence(span, items, alias)
    entries = shared.get(id(node.entries))
    if entries is None:
        entries = shared[id(node.entries)] = []
        for entry in node.entries:
            key = _outward(entry.key, text, shared)
            assert isinstance(key, Scalar)
            entries.append(Entry(key, _outward(entry.value, text, shared)))
    return Mapping(span, entries, alias)


def _embedded_text(inner: Scalar, text: Text) -> Text:
    parts = [
        text.slice(piece.span.start, piece.span.end)
        if piece.exact
        else Text.at(inner.value[at : at + piece.length], _outer_span(piece.span, text))
        for at, piece in _positions(inner.text)
    ]
    return Text.join(parts)


def _positions(text: Text) -> Iterator[tuple[int, Piece]]:
    at = 0
    for piece in text.pieces:
        yield at, piece
        at += piece.length


# What stands for the braces of a placeholder while YAML is parsed; private characters, so no text holds them.
_OPEN: Final = "\ue0f1"
_CLOSE: Final = "\ue0f2"


def _neutral(text: str) -> str:
    """Placeholders such as ``{{HF_TOKEN}}`` with their braces made inert; every offset stays."""
    if "{{" not in text or _OPEN in text or _CLOSE in text:
        return text
    return re.sub(_PLACEHOLDER, lambda match: _OPEN * 2 + match.group()[2:-2] + _CLOSE * 2, text)


class _RefusedError(Exception):
    def __init__(self, message: str, start: int, kind: Literal["syntax", "depth"] = "syntax") -> None:
        super().__init__(message)
        self.message = message
        self.start = start  # offset in the text handed to the parser
        self.kind: Literal["syntax", "depth"] = kind


def _parse(file: SourceFile, text: str, base: int, problems: list[YamlProblem]) -> list[Node]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: list[YamlProblem] = []
    try:
        documents = _Builder(file, base, len(text), found, text != file.text, loader(text).get_event).documents()
    except yaml.reader.ReaderError as error:
        # a reader error carries no line: its position counts characters already read
        at = _first_unacceptable(text, error.position)
        raise _RefusedError(f"character {text[at : at + 1]!r} is not allowed in YAML", at) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = error.problem or error.context or "not YAML"
        if error.context and error.problem:
            message = f"{error.context}: {error.problem}"
        raise _RefusedError(message, min(mark.index if mark else 0, len(text))) from None
    except RecursionError:
        raise _RefusedError("nested too deeply", 0, "depth") from None
    problems += found
    return documents


def _first_unacceptable(text: str, fallback: int) -> int:
    match = re.search("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text)
    return match.start() if match else min(fallback, max(len(text) - 1, 0))


def _repaired(
    file: SourceFile, text: str, base: int, problems: list[YamlProblem], refused: _RefusedError
) -> list[Node]:
    """Read a broken document with the refused lines set aside."""
    separators = [match.start() for match in re.finditer(_INDENTED_SEPARATOR, text)]
    if separators:
        bounds = [0, *separators, len(text)]
        problems.append(YamlProblem("syntax", refused.message, file.line_span(file.position(base + refused.start)[0])))
        documents: list[Node] = []
        for start, end in pairwise(bounds):
            part = text[start:end]
            if start:
                part = re.sub(r"^[ \t]+---", lambda match: " " * len(match.group()), part)
            try:
                documents += _parse(file, part, base + start, [])
            except _RefusedError as inner:
                documents += _without_bad_lines(file, part, base + start, problems, inner)
        return documents
    return _without_bad_lines(file, text, base, problems, refused)


def _without_bad_lines(
    file: SourceFile, text: str, base: int, problems: list[YamlProblem], refused: _RefusedError
) -> list[Node]:
    problems.append(YamlProblem(refused.kind, refused.message, _problem_span(file, base + refused.start)))
    if refused.kind == "depth" or len(text) > MAX_REPAIRED_CHARACTERS:
        return []
    for _ in range(MAX_REPAIRS):
        best: tuple[int, str, _RefusedError] | None = None
        for candidate in _repairs(text, refused.start):
            try:
                return _parse(file, candidate, base, [])
            except _RefusedError as error:
                if best is None or error.start > best[0]:
                    best = (error.start, candidate, error)
        if best is None:
            return []
        # a repair that moves the error nowhere would be tried for ever
        if best[0] <= refused.start and best[1] == text:
            return []
        text, refused = best[1], best[2]
    return []


def _problem_span(file: SourceFile, offset: int) -> Span:
    offset = min(offset, max(len(file.text) - 1, 0))
    line_end = file.text.find("\n", offset)
    end = line_end if line_end > offset else min(offset + 1, len(file.text))
    return Span(file, offset, end)


def _repairs(text: str, offset: int) -> Iterator[str]:
    """The text with one thing near the refused place made harmless, the mildest change first; offsets stay."""
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    line = text[start:end]
    if "\t" in line:
        yield text[:start] + line.replace("\t", " ") + text[end:]
    if "{{" in line:
        yield text[:start] + line.replace("{", "_").replace("}", "_") + text[end:]
    if re.search("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", line):
        yield (
            text[:start]
            + re.sub("[^\t\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", line)
            + text[end:]
        )
    if line.strip():
        yield text[:start] + " " * len(line) + text[end:]
    before = start - 1
    while before > 0:
        previous = text.rfind("\n", 0, before) + 1
        content = text[previous:before]
        if content.strip() and not content.lstrip().startswith("#"):
            yield text[:previous] + " " * len(content) + text[before:]
            return
        before = previous - 1


class _Builder:
    """Nodes from events, taken one by one as they come; written to cost little, since every scalar comes by here."""

    def __init__(
        self,
        file: SourceFile,
        base: int,
        length: int,
        problems: list[YamlProblem],
        altered: bool,
        next_event: Callable[[], Any],
    ) -> None:
        import yaml

        self.file = file
        self.base = base
        self.length = length
        self.problems = problems
        self.altered = altered
        self.next_event = next_event
        self.anchors: dict[str, Node | None] = {}
        self.scalar_event: type[Any] = yaml.ScalarEvent
        self.alias_event: type[Any] = yaml.AliasEvent
        self.mapping_start: type[Any] = yaml.MappingStartEvent
        self.mapping_end: type[Any] = yaml.MappingEndEvent
        self.sequence_end: type[Any] = yaml.SequenceEndEvent
        self.stream_end: type[Any] = yaml.StreamEndEvent
        self.document_start: type[Any] = yaml.DocumentStartEvent
        self.document_end: type[Any] = yaml.DocumentEndEvent

    def documents(self) -> list[Node]:
        roots: list[Node] = []
        while True:
            event = self.next_event()
            if event is None or type(event) is self.stream_end:
                return roots
            if type(event) is self.document_start:
                self.anchors = {}
                first = self.next_event()
                if type(first) is not self.document_end:
                    roots.append(self.node(first, 0))

    def span(self, start: int, end: int) -> Span:
        # the marks of a text without final line end may lie beyond it
        length = self.length
        if end > length:
            start, end = min(start, length), length
        return Span(self.file, self.base + start, self.base + end)

    def node(self, event: Any, depth: int) -> Node:
        kind = type(event)
        if kind is self.scalar_event and event.anchor is None:
            return self.scalar(event)
        if depth > MAX_DEPTH:
            raise _RefusedError("nested too deeply", event.start_mark.index, "depth")
        if kind is self.alias_event:
            return self.aliased(event)
        anchor = event.anchor
        if anchor is not None:
            self.anchors[anchor] = None
        node: Node
        if kind is self.scalar_event:
            node = self.scalar(event)
        elif kind is self.mapping_start:
            node = self.mapping(event, depth)
        else:
            node = self.sequence(event, depth)
        if anchor is not None:
            self.anchors[anchor] = node
        return node

    def aliased(self, event: Any) -> Node:
        target = self.anchors.get(event.anchor)
        if target is None:
            known = "a parent of itself" if event.anchor in self.anchors else "not defined"
            raise _RefusedError(f"alias {event.anchor!r} is {known}", event.start_mark.index)
        return replace(target, alias=self.span(event.start_mark.index, event.end_mark.index))

    def scalar(self, event: Any) -> Scalar:
        start, end, length = event.start_mark.index, event.end_mark.index, self.length
        if end > length:
            start, end = min(start, length), length
        style: str = event.style or ""
        value: str = event.value
        if style in ("|", ">"):
            # the end mark is where the next token begins
            start += self.base
            span = Span(self.file, start, start + len(self.file.text[start : self.base + end].rstrip()))
        else:
            span = Span(self.file, self.base + start, self.base + end)
            if start == end:
                return Scalar(span, "", "")
        if event.anchor is not None or event.tag is not None:
            span = _without_properties(span, style)
        if self.altered and _OPEN in value:
            value = value.replace(_OPEN, "{").replace(_CLOSE, "}")
        return Scalar(span, value, style)

    def mapping(self, event: Any, depth: int) -> Mapping:
        entries: list[Entry] = []
        index: dict[str, Entry] = {}
        value: Node | None = None
        next_event, scalar_event, mapping_end = self.next_event, self.scalar_event, self.mapping_end
        while True:
            inner = next_event()
            kind = type(inner)
            if kind is scalar_event and inner.anchor is None:
                key = self.scalar(inner)
            elif kind is mapping_end:
                return Mapping(self.collection_span(event, inner, value), entries, None, index)
            else:
                node = self.node(inner, depth + 1)
                key = node if isinstance(node, Scalar) else Scalar(node.span, node.span.text, "?")
            inner = next_event()
            if type(inner) is scalar_event and inner.anchor is None:
                value = self.scalar(inner)
            else:
                value = self.node(inner, depth + 1)
            entry = Entry(key, value)
            before = index.get(key.value)
            if before is not None and not _is_merge(key):
                message = f'key "{key.value}" stands already in line {before.key.span.line}'
                self.problems.append(YamlProblem("duplicate-key", message, key.span))
            index[key.value] = entry
            entries.append(entry)

    def sequence(self, event: Any, depth: int) -> Sequence:
        items: list[Node] = []
        while True:
            inner = self.next_event()
            if type(inner) is self.sequence_end:
                return Sequence(self.collection_span(event, inner, items[-1] if items else None), items)
            items.append(self.node(inner, depth + 1))

    def collection_span(self, opening: Any, closing: Any, last: Node | None) -> Span:
        """A flow collection ends with its bracket; a block collection, whose end mark is the next token, with its last
        node."""
        start = opening.start_mark.index
        if opening.anchor is not None or opening.tag is not None:
            span = _without_properties(self.span(start, closing.end_mark.index), "")
            start = span.start - self.base
        if opening.flow_style or last is None:
            return self.span(start, closing.end_mark.index)
        end = (last.alias or last.span).end
        start = self.base + min(start, self.length)
        return Span(self.file, start, end if end > start else start)


def _without_properties(span: Span, style: str) -> Span:
    """The span of a scalar without the anchor and tag before it."""
    match = re.match(_PROPERTIES, span.text)
    if match and match.end() < span.end - span.start:
        return Span(span.file, span.start + match.end(), span.end)
    return span


def _text_of(scalar: Scalar) -> Text:
    span = scalar.span
    raw = span.text
    value = scalar.value
    if scalar.style == "" and raw == value:
        return Text(value, (Piece(len(value), span, True),))
    if value and scalar.style in ('"', "'") and len(raw) == len(value) + 2 and raw[1:-1] == value:
        return Text(value, (Piece(len(value), Span(span.file, span.start + 1, span.end - 1), True),))
    return _align(scalar, value)


def _align(scalar: Scalar, value: str) -> Text:
    """Walk the value along the raw text of its scalar; where they part for good, the whole scalar stands for it."""
    span = scalar.span
    source = span.file.text
    at, end = span.start, span.end
    style = scalar.style
    out: list[str] = []
    pieces: list[Piece] = []

    def emit(chars: str, start: int, stop: int, exact: bool) -> None:
        last = pieces[-1] if pieces else None
        out.append(chars)
        if exact and last and last.exact and last.span.end == start:
            pieces[-1] = Piece(last.length + len(chars), Span(span.file, last.span.start, stop), True)
        else:
            pieces.append(Piece(len(chars), Span(span.file, start, stop), exact))

    if style in ('"', "'"):
        at, end = at + 1, end - 1
    elif style in ("|", ">"):
        newline = source.find("\n", at, end)
        if newline < 0:
            return Text.at(value, span)
        at = newline + 1
        indent = _block_indent(source, span.start, at, end)
        if style == "|":
            pieces_of_lines = _literal_pieces(span, at, indent, value)
            if pieces_of_lines:
                return Text(value, tuple(pieces_of_lines))
        for _ in range(indent):
            if at < end and source[at] == " ":
                at += 1
    else:
        indent = 0
    index, size = 0, len(value)
    while index < size:
        if at >= end:
            if style in ("|", ">") and value[index:].strip() == "":
                emit(value[index:], end, end, False)  # the final line end lies beyond the trimmed span
                index = size
                break
            return Text.at(value, span)
        char, raw = value[index], source[at]
        if raw == char and raw != "\n":
            run = _run(source, at, end, value, index, style)
            if run:
                emit(value[index : index + run], at, at + run, True)
                index, at = index + run, at + run
                continue
        if raw in "\r\n":
            stop = at
            breaks = 0
            while stop < end and source[stop] in " \t\r\n":
                if source[stop] == "\n":
                    breaks += 1
                    line = stop + 1
                    stop = line
                    if style in ("|", ">"):
                        width = 0
                        while width < indent and line + width < end and source[line + width] == " ":
                            width += 1
                        stop = line + width
                        # deeper indentation is content of a literal, and of a folded block's "more indented" line
                        if stop < end and source[stop] not in "\r\n":
                            break
                    continue
                stop += 1
            count = 0
            while index + count < size and value[index + count] == "\n":
                count += 1
            if style == "|" or count:
                take = min(count, breaks)
            elif char == " ":
                take = 1
            else:
                take = 0  # an escaped or trailing line end
            if take:
                emit(value[index : index + take], at, stop, False)
                index += take
            elif style in ("|", ">"):
                return Text.at(value, span)
            at = stop
            continue
        if style == '"' and raw == "\\":
            match = re.compile(_ESCAPE).match(source, at, end)
            if not match:
                return Text.at(value, span)
            if match.group()[1] in "\r\n":
                at = match.end()
                continue
            emit(char, at, match.end(), False)
            index, at = index + 1, match.end()
            continue
        if style == "'" and raw == "'" and source[at : at + 2] == "''":
            emit(char, at, at + 2, False)
            index, at = index + 1, at + 2
            continue
        if raw == char:
            emit(raw, at, at + 1, True)
            index, at = index + 1, at + 1
            continue
        if raw in " \t":  # white space that folding swallows
            at += 1
            continue
        return Text.at(value, span)
    if not pieces:
        pieces = [Piece(0, Span(span.file, at, at), False)]
    return Text("".join(out), tuple(pieces))


def _literal_pieces(span: Span, at: int, indent: int, value: str) -> list[Piece]:
    """The pieces of a literal block, line by line; none where its text holds more than lines with their indentation."""
    file, end = span.file, span.end
    source = file.text
    break_of_line = re.compile(rf"\n {{0,{indent}}}")
    at += indent
    pieces: list[Piece] = []
    index, size = 0, len(value)
    while index < size:
        stop = value.find("\n", index)
        line = value[index:stop] if stop >= 0 else value[index:]
        if line:
            after = at + len(line)
            if after > end or not source.startswith(line, at):
                return []
            pieces.append(Piece(len(line), Span(file, at, after), True))
            at = after
        if stop < 0:
            break
        index = stop
        while index < size and value[index] == "\n":
            index += 1
        if at >= end:  # the final line ends lie beyond the trimmed span
            if index < size:
                return []
            pieces.append(Piece(index - stop, Span(file, end, end), False))
            break
        after = at
        for _ in range(index - stop):
            match = break_of_line.match(source, after, end)
            if match is None:
                return []
            after = match.end()
        pieces.append(Piece(index - stop, Span(file, at, after), False))
        at = after
    return pieces


_RUN_ENDS: Final = {
    '"': regex(r"[\\\r\n]"),
    "'": regex(r"['\r\n]"),
}
_LINE_END: Final = regex(r"[\r\n]")


def _run(source: str, at: int, end: int, value: str, index: int, style: str) -> int:
    """How many characters from here to the next one that may be written otherwise stand one for one."""
    match = _RUN_ENDS.get(style, _LINE_END).search(source, at, end)
    run = min((match.start() if match else end) - at, len(value) - index)
    return run if source.startswith(value[index : index + run], at) else 0


def _block_indent(source: str, header: int, start: int, end: int) -> int:
    explicit = re.match(r"[|>][-+]?([1-9])", source[header : header + 4])
    indents = []
    at = start
    while at < end:
        newline = source.find("\n", at, end)
        newline = end if newline < 0 else newline
        line = source[at:newline]
        if line.strip():
            width = len(line) - len(line.lstrip(" "))
            if not explicit:
                return width
            indents.append(width)
        at = newline + 1
    # with an explicit indicator the parent's indentation is not known here: the least indented line shows it
    return min(indents, default=0)


def scalar_bool(node: Node | None) -> bool | None:
    """A plain scalar as a boolean in the way of Kubernetes' and Compose's readers; None when it is none."""
    if isinstance(node, Scalar) and node.plain:
        lowered = node.value.lower()
        if lowered in ("true", "yes", "on", "y"):
            return True
        if lowered in ("false", "no", "off", "n"):
            return False
    return None


def scalar_int(node: Node | None) -> int | None:
    """A scalar that is written as a decimal integer; None when it is none (quoted ones count: ``"1"``)."""
    if isinstance(node, Scalar) and re.fullmatch(r"[+-]?[0-9]{1,18}", node.value):
        return int(node.value)
    return None


def is_null(node: Node | None) -> bool:
    """Absent, empty or an explicit null."""
    return node is None or (isinstance(node, Scalar) and node.plain and node.value in ("", "~", "null", "Null", "NULL"))


def walk(node: Node) -> Iterator[Node]:
    """Every node below and including this one, aliases once per use, bounded against alias bombs."""
    stack = [node]
    count = 0
    while stack and count < MAX_EXPANDED_NODES:
        current = stack.pop()
        count += 1
        yield current
        if isinstance(current, Mapping):
            stack.extend(entry.value for entry in reversed(current.entries))
        elif isinstance(current, Sequence):
            stack.extend(reversed(current.items))
