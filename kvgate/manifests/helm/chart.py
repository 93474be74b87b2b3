"""Chart templates, read as far as their text and the chart's own values allow.

A template is evaluated with the values of its chart (``values.yaml``, and for a chart below ``charts/`` what its parent
hands down); what they do not say stays unresolved. A text that is a Go template and stands in no chart is read in the
same way, with nothing known.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from collections.abc import Mapping as PlainMapping
from typing import Any, Final

from kvgate.manifests.helm.evaluate import CLOSES, OPENS, Evaluator, ends_in_block_scalar
from kvgate.manifests.helm.go_template import Node as TemplateNode
from kvgate.manifests.helm.go_template import Template, TemplateError, parse_template
from kvgate.manifests.kustomize import merged
from kvgate.manifests.tree import Tree, items_at, node_at, scalar_at, text_at
from kvgate.records import record
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Text
from kvgate.source.yaml_tree import Entry, Mapping, Node, Scalar, Sequence, parse_embedded, scalar_bool

MAX_PARENTS: Final = 4
_TOKEN: Final = re.compile(f"\ue000([0-9]+)\ue001|{OPENS}([^{CLOSES}]*){CLOSES}")


@record
class Chart:
    """A chart of the tree: its folder, what its templates know, and the named templates they may include."""

    folder: str
    roots: dict[str, Any]
    defined: dict[str, tuple[SourceFile, Template, tuple[TemplateNode, ...]]]
    known: bool


@record
class Rendered:
    """What a template yields: its documents, and whether anything in it is not known."""

    documents: tuple[Node, ...]
    complete: bool


def folder_of_chart(path: str) -> str | None:
    """The folder of the chart that a template belongs to, by its path; None where it is in no ``templates`` folder."""
    parts = path.split("/")
    for at in range(len(parts) - 2, -1, -1):
        if parts[at] == "templates":
            return "/".join(parts[:at])
    return None


Over = PlainMapping[str, Node]
"""Values that an installation puts over those of a chart, by its folder."""


def render_statically(tree: Tree, file: SourceFile, over: Over | None = None) -> Rendered:
    """The documents of a template file.

    Raises:
        TemplateError: it is no template that can be followed.
    """
    folder = folder_of_chart(file.path)
    chart = chart_of(tree, folder)
    if over and folder is not None:
        values = values_of_chart(tree, folder, over=over)
        chart = Chart(chart.folder, {**chart.roots, "Values": values}, chart.defined, known=True)
    template = _template_of(tree, file)
    own = {name: (file, template, nodes) for name, nodes in template.defined.items()}
    value = Evaluator({**chart.defined, **own}, chart.roots).render(file, template)
    return documents_of(value)


def _template_of(tree: Tree, file: SourceFile) -> Template:
    """A template file, parsed once however many installations there are of its chart."""
    known = tree.memo.get(f"helm template:{file.path}")
    if not isinstance(known, tuple) or known[0] is not file:
        template: Template | TemplateError
        try:
            template = parse_template(file.text)
        except TemplateError as error:
            template = error
        known = tree.memo[f"helm template:{file.path}"] = (file, template)
    if isinstance(known[1], TemplateError):
        raise known[1]
    found: Template = known[1]
    return found


def objects_of_template(tree: Tree, file: SourceFile) -> tuple[Node, ...]:
    """The documents of a template of a chart whose values are at hand; none where it cannot be followed."""
    folder = folder_of_chart(file.path)
    if not chart_of(tree, folder).known:
        return ()
    try:
        return render_statically(tree, file).documents
    except TemplateError:
        return ()


def render_embedded(text: Text, given: Mapping | None = None) -> Rendered:
    """The documents of a template that stands in a text (a ConfigMap's entry); nothing around it is known but what it
    is given.

    Raises:
        TemplateError: it is no template that can be followed.
    """
    inner = SourceFile(text.span.path, text.value)
    template = parse_template(inner.text)
    defined = {name: (inner, template, nodes) for name, nodes in template.defined.items()}
    roots: dict[str, Any] = {entry.key.value: entry.value for entry in given.items()} if given is not None else {}
    roots = roots or {"__roots__": True}
    value = Evaluator(defined, roots).render(inner, template)
    parts = [
        text.slice(piece.span.start, piece.span.end)
        if piece.exact
        else Text.at(value.value[at : at + piece.length], text.slice(piece.span.start, piece.span.end).span)
        for at, piece in _positions(value.text)
    ]
    return documents_of(Value(Text.join(parts), value.holes) if parts else value)


def documents_of(value: Value) -> Rendered:
    """The YAML of a rendered text. A hole becomes a name that no YAML reader stumbles over, and itself afterwards."""
    text = value.text
    parts: list[Text] = []
    written: list[str] = []
    at = 0
    for hole in value.holes:
        parts.append(text.slice(at, hole.start))
        place = text.slice(hole.start, hole.end)
        parts.append(_token(text, hole.start, hole.end, len(written)))
        written.append(place.value)
        at = hole.end
    parts.append(text.slice(at, len(text)))
    marked = _separated(_without_lonely_holes(Text.join(parts)))
    if not marked.pieces or not marked.value.strip():
        return Rendered((), not value.holes)
    documents = parse_embedded(marked).documents
    return Rendered(tuple(_restored(document, written) for document in documents), not value.holes)


# Helm takes a line that begins with three dashes for the end of a document, whatever follows on it.
_JOINED: Final = re.compile(r"(?m)^---(?=\w)")


def _separated(text: Text) -> Text:
    """A rendered text in which what a trimmed tag leaves right behind a separator stands on its own line."""

    def ended(_: re.Match[str], separator: Value) -> Value:
        return Value.join([separator, Value(Text.at("\n", separator.span))])

    return Value(text).replaced(_JOINED.finditer(text.value), ended).text


def _token(text: Text, start: int, end: int, number: int) -> Text:
    return Text.at(f"\ue000{number}\ue001", text.slice(start, max(end, start + 1)).span)


_LONELY: Final = re.compile("(?m)^([ \t]*)(\ue000[0-9]+\ue001)[ \t]*$")
_LIST_KEY: Final = re.compile(r"^\s*(?:- )?(?:args|command|extraArgs|cmd)\s*:\s*$")


def _without_lonely_holes(text: Text) -> Text:
    """Lines that are nothing but a hole stand for mappings or lists that nobody knows: items below ``args:``, else
    nothing."""
    source = text.value
    if "\ue000" not in source:
        return text
    parts: list[Text] = []
    at = 0
    for match in _LONELY.finditer(source):
        before = source[: match.start()].rstrip("\n").rpartition("\n")[2]
        if ends_in_block_scalar(source[max(0, match.start() - 20_000) : match.start()], len(match.group(1))):
            continue
        parts.append(text.slice(at, match.start()))
        at = match.end()
        token = text.slice(match.start(2), match.end(2))
        if _LIST_KEY.match(before) or (before.lstrip().startswith("- ") and _below_list_key(source, match.start())):
            parts += [text.slice(match.start(1), match.end(1)), Text.at("- ", token.span), token]
    return Text.join([*parts, text.slice(at, len(source))])


def _below_list_key(source: str, at: int) -> bool:
    """Whether the items before a place belong to ``args:`` or the like."""
    lines = source[:at].rstrip("\n").split("\n")
    width = len(lines[-1]) - len(lines[-1].lstrip())
    for line in reversed(lines[-200:]):
        indent = len(line) - len(line.lstrip())
        if line.strip() and not line.lstrip().startswith("- ") and indent <= width:
            return _LIST_KEY.match(line) is not None
    return False


def _restored(node: Node, written: list[str]) -> Node:
    if isinstance(node, Scalar):
        if "\ue000" not in node.value and OPENS not in node.value:
            return node
        text = node.text
        parts: list[Text] = []
        at = 0
        for match in _TOKEN.finditer(text.value):
            parts.append(text.slice(at, match.start()))
            place = text.slice(match.start(), match.end()).span
            tag = match.group(2)
            parts.append(Text.at(f"{{{{ {tag} }}}}" if tag is not None else written[int(match.group(1))], place))
            at = match.end()
        whole = Text.join([*parts, text.slice(at, len(text))])
        return Scalar(node.span, whole.value, node.style or '"', node.alias, whole)
    if isinstance(node, Sequence):
        return Sequence(node.span, [_restored(item, written) for item in node.items], node.alias)
    restored: list[Entry] = []
    for entry in node.entries:
        key = _restored(entry.key, written)
        assert isinstance(key, Scalar)
        restored.append(Entry(key, _restored(entry.value, written)))
    return Mapping(node.span, restored, node.alias)


def _positions(text: Text) -> Iterator[tuple[int, Any]]:
    at = 0
    for piece in text.pieces:
        yield at, piece
        at += piece.length


# -- charts ------------------------------------------------------------------------------------------------------------


def chart_of(tree: Tree, folder: str | None) -> Chart:
    """The chart in a folder of the tree; one that knows nothing where there is none."""
    key = f"chart:{folder}"
    found = tree.memo.get(key)
    if not isinstance(found, Chart):
        found = tree.memo[key] = _load(tree, folder)
    return found


def _load(tree: Tree, folder: str | None) -> Chart:
    if folder is None:
        return Chart("", {"__roots__": True}, {}, known=False)
    metadata = _document(tree, posixpath.join(folder, "Chart.yaml"))
    values = values_of_chart(tree, folder) if metadata is not None else None
    roots: dict[str, Any] = {"__roots__": True}
    if values is not None:
        roots["Values"] = values
    if metadata is not None:
        roots["Chart"] = {
            "Name": scalar_at(metadata, "name"),
            "Version": scalar_at(metadata, "version"),
            "AppVersion": scalar_at(metadata, "appVersion"),
        }
    return Chart(folder, roots, _definitions(tree, folder), known=values is not None)


def values_of_chart(tree: Tree, folder: str, depth: int = 0, over: Over | None = None) -> Node | None:
    """The values of a chart: its own, and over them what the chart whose ``charts/`` it stands in hands down, and what
    is put over them."""
    own = _document(tree, posixpath.join(folder, "values.yaml")) or _document(
        tree, posixpath.join(folder, "values.yml")
    )
    own = put_over(own, over.get(folder) if over else None)
    parent, _, name = folder.rpartition("/charts/")
    if not parent or "/" in name or depth > MAX_PARENTS:
        return own
    metadata = _document(tree, posixpath.join(parent, "Chart.yaml"))
    if metadata is None:
        return own
    outer = values_of_chart(tree, parent, depth + 1, over)
    handed = node_at(outer, _alias(metadata, name))
    shared = node_at(outer, "global")
    return put_over(put_over(own, handed), _keyed("global", shared))


def put_over(values: Node | None, above: Node | None) -> Node | None:
    """Values with others over them, as Helm puts them together; either may be missing."""
    if values is None or above is None:
        return values if above is None else above
    return merged(values, above, by_name=False)


def is_disabled(tree: Tree, folder: str, over: Over | None = None) -> bool:
    """Whether the chart that a chart below ``charts/`` belongs to switches it off (``condition`` of a dependency)."""
    parent, _, name = folder.rpartition("/charts/")
    if not parent or "/" in name:
        return False
    metadata = _document(tree, posixpath.join(parent, "Chart.yaml"))
    values = values_of_chart(tree, parent, over=over)
    for item in items_at(metadata, "dependencies"):
        condition = text_at(item, "condition")
        if name in (text_at(item, "name"), text_at(item, "alias")) and condition:
            return scalar_bool(node_at(values, *condition.partition(",")[0].split("."))) is False
    return False


def _alias(metadata: Node, name: str) -> str:
    for item in items_at(metadata, "dependencies"):
        if text_at(item, "name") == name:
            return text_at(item, "alias") or name
    return name


def _keyed(key: str, node: Node | None) -> Node | None:
    return Mapping(node.span, [Entry(Scalar(node.span, key), node)]) if node is not None else None


def _document(tree: Tree, path: str) -> Node | None:
    found = tree.read(path)
    documents = tree.stream(found).documents if found is not None else []
    return documents[0] if documents and isinstance(documents[0], Mapping) else None


def _definitions(tree: Tree, folder: str) -> dict[str, tuple[SourceFile, Template, tuple[TemplateNode, ...]]]:
    """The named templates of a chart and of the charts below it."""
    found: dict[str, tuple[SourceFile, Template, tuple[TemplateNode, ...]]] = {}
    prefix = f"{folder}/" if folder else ""
    files = [
        file
        for path, file in tree.files.items()
        if path.startswith(prefix) and "templates/" in path[len(prefix) :] and "define" in file.text
    ]
    helpers = tree.read(posixpath.join(folder, "templates/_helpers.tpl"))
    if helpers is not None:
        files.insert(0, helpers)
    # a chart below `charts/` may use the named templates of the charts around it
    above = folder.rpartition("/charts/")[0]
    if above:
        found.update(chart_of(tree, above).defined)
    for file in files:
        try:
            template = parse_template(file.text)
        except TemplateError:
            continue
        for name, nodes in template.defined.items():
            found[name] = (file, template, nodes)
    return found
