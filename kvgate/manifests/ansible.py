"""Roles of Ansible: what a role's own defaults and variables give to its tasks, and to the files that it templates.

Variables come from ``defaults/main.yml`` of the role, ``group_vars/all`` beside the roles, and ``vars/main.yml`` of the
role, each over the ones before ("Understanding variable precedence"). What they do not name is given elsewhere.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from typing import Final

from kvgate.manifests.tree import Tree
from kvgate.patterns import regex
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Text
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, Sequence, is_null, scalar_bool

MAX_DEPTH: Final = 8
MAX_NESTING: Final = 64
MAX_FILLED: Final = 1_000_000

_ROLE: Final = re.compile(r"(?P<role>(?:.*/)?)(?:tasks|handlers|templates)/")
_VARIABLES: Final = (
    "defaults/main", "../../group_vars/all", "../../group_vars/all/main", "../../group_vars/all/vars", "vars/main",
)  # fmt: skip
_NAME: Final = r"[A-Za-z_]\w{0,200}"
_B: Final = r"[ ]{0,9}"
_USE: Final = regex(
    rf"\{{\{{-?{_B}(?P<name>{_NAME}){_B}(?P<filters>(?:\|{_B}(?:int|float|string|trim|quote|d(?:efault)?\([^()|]{{0,200}}\)"
    rf"|join\((?P<quote>['\"])(?P<between>[ ,]{{0,9}})(?P=quote)\)){_B}){{0,9}})-?\}}\}}"
)


def _tag(words: str, alone: str) -> str:
    """A tag; with its line, where it stands ``alone`` on one."""
    shut = rf"{_B}(?:-%\}}\s{{0,100}}|\+?%\}}(?({alone})\n?))"
    return rf"(?P<{alone}>^[ \t]{{0,40}})?\{{%[-+]?{_B}{words}{shut}"


_BODY: Final = r"(?:(?!\{%).){0,4000}?"
_FOR: Final = regex(
    _tag(rf"for {_B}(?P<item>{_NAME}){_B}(?:,{_B}(?P<value>{_NAME}){_B})?in {_B}(?P<name>{_NAME})(?:\.items\(\))?", "a")
    + rf"(?P<body>{_BODY}){_tag('endfor', 'b')}",
    re.DOTALL | re.MULTILINE,
)
_TEST: Final = rf"\|{_B}(?:bool|length)(?: > 0)?|is defined"
_IF: Final = regex(
    _tag(rf"if {_B}(?P<not>not {_B})?(?P<name>{_NAME}){_B}(?P<test>{_TEST})?", "a")
    + rf"(?P<body>{_BODY})(?:{_tag('else', 'b')}(?P<otherwise>{_BODY}))?{_tag('endif', 'c')}",
    re.DOTALL | re.MULTILINE,
)
_ZERO: Final = re.compile(r"0{1,9}(?:\.0{0,9})?")
_PLAIN: Final = re.compile(r"[\w@%+=:,./-]+")


class Role:
    """The variables of a role.

    Attributes:
        variables: what is stated for each, by its name.
    """

    def __init__(self, variables: dict[str, Node]) -> None:
        self.variables = variables
        self._left = MAX_FILLED  # characters and parts of documents that they may still fill in

    def filled(self, value: Value) -> Value:
        """A text with what the variables decide of its tags and placeholders."""
        for _ in range(MAX_DEPTH):
            turned = value.replaced(_FOR.finditer(value.value), self._repeated) if "{%" in value.value else value
            turned = turned.replaced(_IF.finditer(turned.value), self._chosen)
            if turned is value:
                break
            value = turned
        return self._with_values(value, {}, MAX_DEPTH)

    def document(self, node: Node, depth: int = MAX_NESTING) -> Node:
        """A document with the variables filled in; a placeholder that is all of a text becomes what it stands for."""
        self._left -= 1
        if not depth or self._left < 0:
            return node
        if isinstance(node, Scalar):
            return self._scalar(node, depth) if "{{" in node.value else node
        if isinstance(node, Sequence):
            return Sequence(node.span, [self.document(item, depth - 1) for item in node.items], node.alias)
        entries = [Entry(entry.key, self.document(entry.value, depth - 1)) for entry in node.entries]
        return Mapping(node.span, entries, node.alias)

    def _scalar(self, node: Scalar, depth: int) -> Node:
        whole = _USE.fullmatch(node.value.strip())
        known = self.variables.get(whole["name"]) if whole and not whole["filters"] else None
        if isinstance(known, (Mapping, Sequence)):
            return self.document(known, min(depth - 1, MAX_DEPTH))
        value = Value(node.text)
        filled = self._with_values(value, {}, MAX_DEPTH)
        return node if filled is value else replace(node, value=filled.value, mapped=filled.text)

    def _with_values(self, value: Value, bound: dict[str, Value], depth: int) -> Value:
        def known(match: re.Match[str], _: Value) -> Value | None:
            found = bound.get(match["name"]) or (self._value(match, depth) if self._left >= 0 else None)
            if found is None or ("quote" in match["filters"] and not _PLAIN.fullmatch(found.value)):
                return None
            self._left -= len(found.text) + 1
            return found if self._left >= 0 else None

        return value.replaced(_USE.finditer(value.value), known) if "{{" in value.value else value

    def _value(self, match: re.Match[str], depth: int) -> Value | None:
        node = self.variables.get(match["name"])
        if isinstance(node, Sequence) and match["between"] is not None:
            parts: list[Value] = []
            for item in node.items:
                part = self._text(item, depth)
                if part is None:
                    return None
                parts += [*([Value(Text.at(match["between"], part.span))] if parts else []), part]
            return Value.join(parts) if parts else Value(Text.at("", node.span))
        return self._text(node, depth)

    def _text(self, node: Node | None, depth: int) -> Value | None:
        """What a variable puts into a text; an empty one is to be given elsewhere."""
        if not isinstance(node, Scalar) or is_null(node) or not node.value or not depth:
            return None
        if scalar_bool(node) is not None and node.plain:
            return None
        return self._with_values(Value(node.text), {}, depth - 1)

    def _repeated(self, match: re.Match[str], whole: Value) -> Value | None:
        node = self.variables.get(match["name"])
        items: list[tuple[Node, Node | None]]
        if isinstance(node, Mapping) and match["value"]:
            items = [(entry.key, entry.value) for entry in node.items()]
        elif isinstance(node, Sequence) and not match["value"]:
            items = [(item, None) for item in node.items]
        else:
            return None
        body = whole.slice(match.start("body") - match.start(), match.end("body") - match.start())
        parts: list[Value] = []
        for item, beside in items:
            first, second = self._text(item, MAX_DEPTH), self._text(beside, MAX_DEPTH)
            if first is None or (beside is not None and second is None):
                return None
            bound = {match["item"]: first, **({match["value"]: second} if second is not None else {})}
            self._left -= len(body.text) + 1
            if self._left < 0:
                return None
            parts.append(self._with_values(body, bound, MAX_DEPTH))
        return Value.join(parts) if parts else Value(Text.at("", whole.span))

    def _chosen(self, match: re.Match[str], whole: Value) -> Value | None:
        holds = self._holds(self.variables.get(match["name"]), match["test"] or "")
        if holds is None:
            return None
        group = "body" if holds is not bool(match["not"]) else "otherwise"
        if match[group] is None:
            return Value(Text.at("", whole.span))
        return whole.slice(match.start(group) - match.start(), match.end(group) - match.start())

    def _holds(self, node: Node | None, test: str) -> bool | None:
        if node is None or (isinstance(node, Scalar) and "{{" in node.value):
            return None
        if test.startswith("is"):
            return True
        if not isinstance(node, Scalar):
            return bool(node.items() if isinstance(node, Mapping) else node.items)
        if is_null(node) or not node.value:
            return False
        stated = scalar_bool(node)
        if stated is not None or "bool" in test:
            return stated
        return not (node.plain and _ZERO.fullmatch(node.value))


def role_of(tree: Tree, file: SourceFile) -> Role | None:
    """The role that a file with placeholders is a part of, where it has variables of its own."""
    match = _ROLE.match(file.path) if "{{" in file.text else None
    if match is None:
        return None
    key = f"role {match['role']}"
    if key not in tree.memo:
        variables: dict[str, Node] = {}
        own = False
        for place in _VARIABLES:
            for suffix in (".yml", ".yaml"):
                path = posixpath.normpath(posixpath.join(match["role"], place + suffix))
                source = None if path.startswith("..") else tree.read(path)
                for document in tree.stream(source).documents if source is not None else ():
                    if isinstance(document, Mapping):
                        own = own or not place.startswith("..")
                        variables.update((entry.key.value, entry.value) for entry in document.items())
        tree.memo[key] = Role(variables) if own else None
    found = tree.memo[key]
    return found if isinstance(found, Role) else None


def as_role_has_it(tree: Tree, file: SourceFile) -> Value:
    """The text of a file, filled in by the role whose template it is."""
    value = Value(Text.of_span(file.span(0, len(file.text))))
    role = role_of(tree, file)
    return role.filled(value) if role is not None else value
