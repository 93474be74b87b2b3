"""HCL (Terraform, OpenTofu, Nomad) as the tree that YAML makes: blocks and objects are mappings, tuples are sequences.

tree-sitter-hcl reads the syntax. Of expressions, those are followed that files decide: variables with defaults or in
``terraform.tfvars``, locals, templates of them, and a few functions; every other one becomes a placeholder.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from kvgate.manifests.flags import json_of_node
from kvgate.manifests.tree import Tree
from kvgate.records import record
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Text, character
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, Sequence

MAX_CHARACTERS: Final = 400_000
MAX_DEPTH: Final = 60
MAX_STEPS: Final = 100_000
MAX_FOLLOWED: Final = 12
MAX_EACH: Final = 50

# Files beside one that give its variables their values; the later ones win.
_BESIDE: Final = ("variables.tf", "vars.tf", "locals.tf", "terraform.tfvars", "terraform.auto.tfvars")

# Functions that hand on their first argument as far as this reader looks at it.
_IDENTITIES: Final = frozenset(
    {
        "abspath", "base64encode", "base64gzip", "chomp", "jsondecode", "jsonencode", "nonsensitive", "sensitive",
        "tolist", "tomap", "tonumber", "toset", "tostring", "trimspace", "try", "yamldecode", "yamlencode",
    }
)  # fmt: skip
# The folder of the file, as an expression that is not followed shows it before a path.
MODULE: Final = re.compile(r"^\{\{ path\.(?:module|root|cwd) \}\}/")
# A variable or local with what is taken out of it; what an index names is one itself.
_NAME: Final = r"(?:var|local|each|data\.template_file)\.[\w-]+"
_REFERENCE: Final = re.compile(rf"({_NAME})((?:\.[\w-]+|\[(?:\"[^\"\[\]]*\"|[0-9]{{1,4}}|{_NAME}(?:\.[\w-]+)*)\])*)")
_PART: Final = re.compile(rf"\.([\w-]+)|\[\"([^\"]*)\"\]|\[([0-9]+)\]|\[({_NAME}[\w.-]*)\]")
_ESCAPE: Final = re.compile(r"\\(?:u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)|\$\$\{|%%\{", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}


@record
class Block:
    """A block: its type, its labels (``resource "kubernetes_deployment" "chat"``) and its body."""

    type: str
    labels: tuple[str, ...]
    body: Mapping
    key: Scalar


class NotHCLError(Exception):
    """A text that is no HCL, or more of it than is read."""


@lru_cache(maxsize=1)
def _parser() -> Any:
    import tree_sitter
    import tree_sitter_hcl

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_hcl.language()))


def read_blocks(tree: Tree, file: SourceFile) -> list[Block]:
    """The blocks of a file, from the top; variables come from it and from the files beside it.

    Raises:
        NotHCLError: it has errors of syntax, or is too large.
    """
    symbols = _Symbols(tree, file)
    return list(_Converter(file, symbols).blocks())


class _Symbols:
    """The expressions behind ``var.x`` and ``local.x``, found when first asked for."""

    def __init__(self, tree: Tree, file: SourceFile) -> None:
        self._tree = tree
        self._file = file
        self._known: dict[str, tuple[_Converter, Any] | None] | None = None
        self._following: list[str] = []
        self.steps = 0

    def value(self, name: str) -> Node | None:
        """What a name (``var.x``) stands for."""
        if self._known is None:
            self._known = {}
            for file in self._files():
                try:
                    self._known.update(_Converter(file, self).definitions())
                except NotHCLError:
                    continue
            self._known.update(self._told())
        found = self._known.get(name)
        if found is None or name in self._following or len(self._following) >= MAX_FOLLOWED:
            return None
        self._following.append(name)
        converter, node = found
        try:
            return converter.template_file(node) if node.type == "block" else converter.expression(node, 0)
        finally:
            self._following.pop()

    def _told(self) -> dict[str, tuple[_Converter, Any] | None]:
        """What the calls of the module that a folder is set; nothing is known of what several set."""
        folder = posixpath.dirname(self._file.path)
        key = f"terraform calls:{folder}"
        calls = self._tree.memo.get(key)
        if not isinstance(calls, list):
            self._tree.memo[key] = []  # modules that go round have none
            calls = self._tree.memo[key] = list(self._calls(folder))
        told: dict[str, tuple[_Converter, Any] | None] = {}
        for converter, attributes in calls:
            told.update((f"var.{name}", (converter, node) if len(calls) == 1 else None) for name, node in attributes)
        return told

    def _calls(self, folder: str) -> Iterator[tuple[_Converter, list[tuple[str, Any]]]]:
        name = posixpath.basename(folder)
        for file in self._tree.files.values():
            if not name or not file.path.endswith(".tf") or "module" not in file.text or f"/{name}" not in file.text:
                continue
            try:
                converter = _Converter(file, _Symbols(self._tree, file))
            except NotHCLError:
                continue
            for attributes in converter.calls():
                source = next((converter.text(node).strip('"') for key, node in attributes if key == "source"), "")
                if posixpath.normpath(posixpath.join(posixpath.dirname(file.path), source)) == folder:
                    yield converter, attributes

    def _files(self) -> Iterator[SourceFile]:
        folder = posixpath.dirname(self._file.path)
        names = [name for name in _BESIDE if name.endswith(".tf")]
        others = [path for path in self._tree.files if path.endswith(".tf") and posixpath.dirname(path) == folder]
        paths = dict.fromkeys([*(posixpath.join(folder, name) for name in names), *others])
        for path in paths:
            found = None if path == self._file.path else self._tree.read(path)
            if found is not None:
                yield found
        yield self._file
        for name in _BESIDE:
            found = self._tree.read(posixpath.join(folder, name)) if name.endswith(".tfvars") else None
            if found is not None:
                yield found

    def text(self, path: str) -> SourceFile | None:
        """A file of the module, by the path that ``file()`` names."""
        folder = posixpath.dirname(self._file.path)
        found = self._tree.use(posixpath.normpath(posixpath.join(folder, path)))
        self._tree.filled.update({found.path} if found is not None else ())
        return found


class _Converter:
    def __init__(self, file: SourceFile, symbols: _Symbols) -> None:
        if len(file.text) > MAX_CHARACTERS:
            raise NotHCLError(f"a file of {len(file.text):,} characters")
        self.file = file
        self.symbols = symbols
        self.each: dict[str, Node] = {}
        # one byte per character, so that tree-sitter's offsets are ours
        masked = re.sub(r"[^\x00-\x7f]", "x", file.text)
        self.root = _parser().parse(masked.encode("ascii")).root_node
        if self.root.has_error:
            raise NotHCLError("not HCL that can be parsed")

    def text(self, node: Any) -> str:
        return self.file.text[node.start_byte : node.end_byte]

    def span(self, node: Any) -> Span:
        return Span(self.file, node.start_byte, node.end_byte)

    def step(self, depth: int) -> None:
        self.symbols.steps += 1
        if depth > MAX_DEPTH or self.symbols.steps > MAX_STEPS:
            raise NotHCLError("more than is read")

    # -- blocks ----------------------------------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block]:
        for body in self.root.named_children:
            for node in body.named_children if body.type == "body" else ():
                if node.type == "block":
                    yield from self._instances(node)

    def _instances(self, node: Any) -> Iterator[Block]:
        """A block, or as many as ``for_each`` has entries where files say which."""
        attributes = dict(self._attributes(self._parts(node)[2]))
        over = self.expression(attributes["for_each"], 0) if "for_each" in attributes else None
        entries = over.entries if isinstance(over, Mapping) else []
        if isinstance(over, Sequence) and all(isinstance(item, Scalar) for item in over.items):
            entries = [Entry(item, item) for item in over.items if isinstance(item, Scalar)]
        for entry in entries[:MAX_EACH]:
            self.each = {"each.key": entry.key, "each.value": entry.value}
            yield self.block(node, 0)
        self.each = {}
        if not entries:
            yield self.block(node, 0)

    def definitions(self) -> dict[str, tuple[_Converter, Any]]:
        """The expressions of variables' defaults, of locals, and of a file that sets variables."""
        found: dict[str, tuple[_Converter, Any]] = {}
        for body in self.root.named_children:
            for node in body.named_children if body.type == "body" else ():
                if node.type == "attribute":
                    found[f"var.{self.text(node.named_children[0])}"] = self, node.named_children[-1]
                    continue
                kind, labels, inner = self._parts(node)
                if kind == "data" and labels[:1] == ("template_file",):
                    found[".".join((kind, *labels))] = self, node
                for name, value in self._attributes(inner) if kind in ("variable", "locals") else ():
                    if kind == "locals":
                        found[f"local.{name}"] = self, value
                    elif name == "default" and labels:
                        found[f"var.{labels[0]}"] = self, value
        return found

    def calls(self) -> Iterator[list[tuple[str, Any]]]:
        """The attributes of each block that calls a module."""
        for body in self.root.named_children:
            for node in body.named_children if body.type == "body" else ():
                kind, _, inner = self._parts(node) if node.type == "block" else ("", (), None)
                if kind == "module":
                    yield list(self._attributes(inner))

    def _attributes(self, body: Any) -> Iterator[tuple[str, Any]]:
        for node in body.named_children if body is not None else ():
            if node.type == "attribute":
                yield self.text(node.named_children[0]), node.named_children[-1]

    def _parts(self, node: Any) -> tuple[str, tuple[str, ...], Any]:
        kind, labels, body = "", [], None
        for child in node.named_children:
            if child.type == "body":
                body = child
            elif child.type == "identifier" and not kind:
                kind = self.text(child)
            elif child.type in ("identifier", "string_lit"):
                labels.append(self.text(child).strip('"'))
        return kind, tuple(labels), body

    def block(self, node: Any, depth: int) -> Block:
        self.step(depth)
        kind, labels, body = self._parts(node)
        first = node.named_children[0]
        key = Scalar(self.span(first), kind)
        entries = list(self._entries(body, depth + 1)) if body is not None else []
        return Block(kind, labels, Mapping(self.span(node), entries), key)

    def _entries(self, body: Any, depth: int) -> Iterator[Entry]:
        """Attributes as they are; blocks of one type as one mapping, or as a list where there are several."""
        repeated: dict[str, list[Block]] = {}
        for node in body.named_children:
            if node.type == "attribute":
                name = node.named_children[0]
                key = Scalar(self.span(name), self.text(name))
                yield Entry(key, self.expression(node.named_children[-1], depth + 1))
            elif node.type == "block":
                block = self.block(node, depth + 1)
                if block.type == "dynamic" and block.labels:
                    block = Block(block.labels[0], (), _content(block.body), block.key)
                repeated.setdefault(block.type, []).append(block)
        for kind, blocks in repeated.items():
            bodies: list[Node] = [_labelled(block) for block in blocks]
            span = Span(self.file, blocks[0].body.span.start, blocks[-1].body.span.end)
            yield Entry(Scalar(blocks[0].key.span, kind), bodies[0] if len(bodies) == 1 else Sequence(span, bodies))

    # -- expressions -----------------------------------------------------------------------------------------------

    def expression(self, node: Any, depth: int) -> Node:
        """What an expression stands for; a placeholder where files do not say."""
        self.step(depth)
        parts = [child for child in node.named_children if child.type != "comment"]
        if node.type in ("expression", "literal_value", "template_expr", "collection_value") and len(parts) == 1:
            return self.expression(parts[0], depth + 1)
        reader: Callable[[Any, int], Node | None] | None = {
            "expression": self._reference,
            "variable_expr": self._reference,
            "conditional": self._choice,
            "operation": self._operation,
            "string_lit": self._template,
            "quoted_template": self._template,
            "heredoc_template": self._template,
            "tuple": self._tuple,
            "object": self._object,
            "function_call": self._call,
        }.get(node.type)
        if node.type in ("numeric_lit", "bool_lit", "null_lit"):
            return Scalar(self.span(node), self.text(node))
        found = reader(node, depth) if reader is not None else None
        return found if found is not None else self._placeholder(node)

    def _placeholder(self, node: Any) -> Scalar:
        span = self.span(node)
        text = " ".join(span.text.split()).replace("{", "(").replace("}", ")")
        value = "{{ " + text[:120] + " }}"
        return Scalar(span, value, '"', mapped=Text.at(value, span))

    def _reference(self, node: Any, depth: int) -> Node | None:
        """``var.x``, ``local.x.y``, ``local.x["y"]``."""
        found = self._named(self.text(node))
        return _at(found, self.span(node)) if found is not None else None

    def _named(self, written: str) -> Node | None:
        match = _REFERENCE.fullmatch(written)
        if match is None:
            return None
        name = match.group(1)
        found = self.each.get(name) if name.startswith("each.") else self.symbols.value(name)
        for part in _PART.finditer(match.group(2)):
            plain, quoted, number, other = part.groups()
            if other is not None:
                index = self._named(other)
                quoted = index.value if isinstance(index, Scalar) else None
            if number is not None and not isinstance(found, Mapping):  # a data source that is counted is one here
                found = (
                    found.items[int(number)] if isinstance(found, Sequence) and int(number) < len(found.items) else None
                )
            elif number is None:
                key = plain if plain is not None else quoted
                found = found.get(key) if isinstance(found, Mapping) and key is not None else None
        return found

    def _choice(self, node: Any, depth: int) -> Node | None:
        """The branch that a conditional takes, where files decide it."""
        test, *branches = [child for child in node.named_children if child.type == "expression"]
        holds = _truth(self.expression(test, depth + 1))
        return self.expression(branches[not holds], depth + 1) if holds is not None and len(branches) == 2 else None

    def _operation(self, node: Any, depth: int) -> Node | None:
        """What a comparison, or conditions together, come to."""
        parts = node.named_children[0].children
        at = next((index for index, part in enumerate(parts) if not part.is_named), 0)
        left = self._operand(parts[:at], depth) if at else None
        right = self._operand(parts[at + 1 :], depth)
        holds = _compared(self.text(parts[at]), left, right)
        return None if holds is None else Scalar(self.span(node), str(holds).lower())

    def _operand(self, parts: list[Any], depth: int) -> Node | None:
        if len(parts) == 1:
            return self.expression(parts[0], depth + 1)
        return self._named(self.file.text[parts[0].start_byte : parts[-1].end_byte]) if parts else None

    def _template(self, node: Any, depth: int) -> Node:
        heredoc = node.type == "heredoc_template"
        at, end = self._inside(node, heredoc=heredoc)
        self.symbols.steps += (end - at) // 1_000  # what others refer to is read each time
        texts: list[Text] = []
        for child in node.named_children:
            if child.type not in ("template_interpolation", "template_directive"):
                continue
            # the blanks around an interpolation belong to no node
            texts += self._literal(at, child.start_byte, escapes=not heredoc)
            at = child.end_byte
            inner = next((part for part in child.named_children if part.type == "expression"), None)
            value = self.expression(inner, depth + 1) if inner is not None else None
            texts.append((value if isinstance(value, Scalar) else self._placeholder(child)).text)
        texts += self._literal(at, end, escapes=not heredoc)
        text = Text.join(texts)
        if heredoc and self.text(node).startswith("<<-"):
            text = _without_indentation(text)
        return Scalar(self.span(node), text.value, '"', mapped=text)

    def _inside(self, node: Any, *, heredoc: bool) -> tuple[int, int]:
        """Where the text of a template begins and ends, without its quotes or the marks of a here document."""
        if not heredoc:
            return node.start_byte + 1, max(node.end_byte - 1, node.start_byte + 1)
        marks = [child for child in node.named_children if child.type == "heredoc_identifier"]
        begin = self.file.text.find("\n", marks[0].end_byte) + 1 if marks else node.start_byte
        end = self.file.text.rfind("\n", 0, marks[-1].start_byte) + 1 if len(marks) > 1 else node.end_byte
        return begin, max(begin, end)

    def _literal(self, at: int, end: int, *, escapes: bool) -> Iterator[Text]:
        for match in _ESCAPE.finditer(self.file.text, at, end):
            if not escapes and match.group().startswith("\\"):
                continue
            yield Text.of_span(Span(self.file, at, match.start()))
            whole = match.group()
            if whole[0] != "\\":
                value = whole[1:]
            elif whole[1] in "uU" and len(whole) > 2:
                value = character(int(whole[2:], 16))
            else:
                value = _ESCAPED.get(whole[1], whole[1])
            yield Text.at(value, Span(self.file, match.start(), match.end()))
            at = match.end()
        yield Text.of_span(Span(self.file, at, end))

    def _tuple(self, node: Any, depth: int) -> Node:
        items = [self._item(child, depth + 1) for child in node.named_children if child.type == "expression"]
        return Sequence(self.span(node), items)

    def _item(self, node: Any, depth: int) -> Node:
        """One of several values, among which JSON is a text: ``["--hf-overrides", jsonencode({ x = 1 })]``."""
        found = self.expression(node, depth)
        if isinstance(found, Mapping) and self.text(node).lstrip().startswith("jsonencode"):
            text = Text.at(json.dumps(json_of_node(found), ensure_ascii=False), self.span(node))
            return Scalar(text.span, text.value, '"', mapped=text)
        return found

    def _object(self, node: Any, depth: int) -> Node:
        entries: list[Entry] = []
        for child in node.named_children:
            if child.type != "object_elem":
                continue
            name, value = child.child_by_field_name("key"), child.child_by_field_name("val")
            if name is None or value is None:
                continue
            written = self.text(name)
            key = self.expression(name, depth + 1) if not re.fullmatch(r"[\w-]+", written) else None
            if not isinstance(key, Scalar):
                key = Scalar(self.span(name), written)
            entries.append(Entry(key, self.expression(value, depth + 1)))
        return Mapping(self.span(node), entries)

    def _call(self, node: Any, depth: int) -> Node | None:
        name = self.text(node.named_children[0])
        holder = next((child for child in node.named_children if child.type == "function_arguments"), None)
        nodes = [child for child in holder.named_children if child.type == "expression"] if holder is not None else []
        if not nodes:
            return None
        first = self.expression(nodes[0], depth + 1)
        if name in _IDENTITIES:
            return first
        rest = [self.expression(child, depth + 1) for child in nodes[1:]]
        if name in ("file", "templatefile") and isinstance(first, Scalar):
            return self._file(first.value, rest[0] if rest else None, self.span(node))
        if name == "join" and isinstance(first, Scalar) and rest and isinstance(rest[0], Sequence):
            return _joined(first, rest[0], self.span(node))
        if name in ("concat", "flatten"):
            lists = [*(first.items if isinstance(first, Sequence) and name == "flatten" else [first]), *rest]
            return Sequence(self.span(node), [item for part in lists for item in _items(part)])
        if name == "compact" and isinstance(first, Sequence):
            return Sequence(self.span(node), [item for item in first.items if not _is_empty(item)])
        if name == "coalesce":
            return next((item for item in (first, *rest) if not _is_empty(item)), None)
        if name == "merge":
            maps = [part for part in (first, *rest) if isinstance(part, Mapping)]
            return Mapping(self.span(node), [entry for part in maps for entry in part.entries])
        return None

    def template_file(self, node: Any) -> Node | None:
        """What ``data "template_file"`` makes of its template: ``rendered``."""
        block = self.block(node, 0)
        template, variables = block.body.get("template"), block.body.get("vars")
        if not isinstance(template, Scalar):
            return None
        text = _filled(template.text, variables) if isinstance(variables, Mapping) else template.text
        rendered = Scalar(template.span, text.value, '"', mapped=text)
        return Mapping(block.body.span, [Entry(Scalar(block.key.span, "rendered"), rendered)])

    def _file(self, path: str, variables: Node | None, use: Span) -> Node | None:
        found = self.symbols.text(MODULE.sub("", path))
        if found is None:
            return None
        text = Text.of_span(found.span(0, len(found.text)))
        if isinstance(variables, Mapping):
            text = _filled(text, variables)
        return Scalar(use, text.value, '"', mapped=text)


_INDENTATION: Final = re.compile(r"(?m)^[ \t]*(?=[^ \t\r\n])")


def _without_indentation(text: Text) -> Text:
    """The text of a here document without the blanks that all its lines begin with."""
    depth = min((len(match.group()) for match in _INDENTATION.finditer(text.value)), default=0)
    if not depth:
        return text
    common = re.compile(rf"(?m)^[ \t]{{{depth}}}")
    empty = Value(Text.at("", text.span))
    return Value(text).replaced(common.finditer(text.value), lambda *_: empty).text


_INTERPOLATION: Final = re.compile(r"(?<!\$)\$\{([A-Za-z_]\w*)\}")


def _filled(text: Text, variables: Mapping) -> Text:
    """The text of a template file with the variables that it is given."""

    def known(match: re.Match[str], _: Value) -> Value | None:
        found = variables.get(match.group(1))
        return Value(found.text) if isinstance(found, Scalar) else None

    return Value(text).replaced(_INTERPOLATION.finditer(text.value), known).text


def _items(node: Node) -> list[Node]:
    return node.items if isinstance(node, Sequence) else [node]


def _truth(node: Node | None) -> bool | None:
    return {"true": True, "false": False}.get(node.value) if isinstance(node, Scalar) else None


def _compared(operator: str, left: Node | None, right: Node | None) -> bool | None:
    """The truth of an operation on two values, or on the right one alone; None where files do not decide it."""
    if operator in ("!", "&&", "||"):
        one, other = _truth(left), _truth(right)
        if operator == "!":
            return None if other is None else not other
        decides = operator == "||"
        return decides if decides in (one, other) else None if None in (one, other) else not decides
    if not isinstance(left, Scalar) or not isinstance(right, Scalar) or "{{" in left.value + right.value:
        return None
    if operator in ("==", "!="):
        same = left.value == right.value and _is_null(left) == _is_null(right)
        return same if operator == "==" else not same
    order = {"<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}.get(operator)
    try:
        one_number, other_number = float(left.value), float(right.value)
    except ValueError:
        return None
    return (one_number > other_number) - (one_number < other_number) in order if order is not None else None


def _is_null(node: Scalar) -> bool:
    return node.value == "null" and not node.style


def _is_empty(node: Node) -> bool:
    return isinstance(node, Scalar) and (not node.value or _is_null(node))


def _joined(separator: Scalar, items: Sequence, use: Span) -> Scalar:
    parts: list[Text] = []
    for item in items.items:
        if isinstance(item, Scalar):
            parts += [Text.at(separator.value, use)] if parts else []
            parts.append(item.text)
    text = Text.join(parts) if parts else Text.at("", use)
    return Scalar(use, text.value, '"', mapped=text)


def _at(node: Node, use: Span) -> Node:
    """A value that stands elsewhere, used here: one word counts as written where it is used."""
    if isinstance(node, Scalar) and "\n" not in node.value:
        return Scalar(use, node.value, node.style, mapped=Text.at(node.value, use))
    return node


def _labelled(block: Block) -> Mapping:
    """A nested block's body; its label becomes its name where it has none (``task "vllm" {``)."""
    if not block.labels or block.body.get("name") is not None:
        return block.body
    name = Scalar(block.key.span, block.labels[-1], mapped=Text.at(block.labels[-1], block.key.span))
    return Mapping(block.body.span, [Entry(Scalar(block.key.span, "name"), name), *block.body.entries])


def _content(body: Mapping) -> Mapping:
    """What a ``dynamic`` block repeats: what it holds is known, how often is not."""
    content = body.get("content")
    return content if isinstance(content, Mapping) else body


def walk_mappings(nodes: Iterable[Node]) -> Iterator[Mapping]:
    """Every mapping in a tree, outer ones first."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            yield node
            stack += [entry.value for entry in reversed(node.entries)]
        elif isinstance(node, Sequence):
            stack += reversed(node.items)
