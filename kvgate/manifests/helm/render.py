"""Charts rendered by Helm's own engine, each line of the result with the place it came from."""

from __future__ import annotations

import difflib
import json
import posixpath
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kvgate.manifests.helm.chart import Chart, Rendered, chart_of, documents_of, folder_of_chart, put_over
from kvgate.manifests.helm.evaluate import Evaluator
from kvgate.manifests.helm.go_template import TemplateError, parse_template
from kvgate.manifests.helm.read import units_of
from kvgate.manifests.peers import peers_of
from kvgate.manifests.rendering import (
    MAX_OUTPUT_BYTES,
    MEMORY_BYTES,
    SECONDS,
    ChartValues,
    RenderError,
    Rendering,
    closed_environment,
    copied,
    files_below,
    run,
)
from kvgate.manifests.tree import Tree
from kvgate.manifests.unit import ServeUnit, Unread
from kvgate.records import record
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Text
from kvgate.source.yaml_tree import Mapping, Node

MAX_LINES: Final = 20_000
# What a rendered manifest has in it that may be a server, or be told to one.
_CONCERNS: Final = re.compile(r"vllm|InferenceService|ConfigMap|HorizontalPodAutoscaler|ScaledObject", re.IGNORECASE)
_CHILD: Final = Path(__file__).with_name("child.py")


@record
class RenderedCharts:
    """What rendering yields, and the files that need no reading of their own any more."""

    found: tuple[ServeUnit | Unread, ...]
    read: frozenset[str]


def render_charts(tree: Tree, root: Path, rendering: Rendering) -> RenderedCharts:
    """Render every chart of a tree that has to do with vLLM.

    Raises:
        RenderError: the engine is not installed.
    """
    if find_spec("helm_python") is None:
        raise RenderError("rendering with Helm needs the extra: pip install 'kvgate[helm]'")
    found: list[ServeUnit | Unread] = []
    read: set[str] = set()
    for folder in _charts(tree):
        releases = [item for item in rendering.charts if _means(item.path, folder)] or [ChartValues(folder)]
        for release in releases:
            units, done = _release(tree, root, folder, release)
            found += units
            read |= done
    return RenderedCharts(tuple(found), frozenset(read))


def _means(pattern: str, folder: str) -> bool:
    pattern = posixpath.normpath(pattern)
    return pattern == (folder or ".") or fnmatchcase(folder, pattern)


def _charts(tree: Tree) -> list[str]:
    """Folders of the charts of a tree, without those below ``charts/`` of another, that mention vLLM."""
    folders = {posixpath.dirname(path) for path in tree.files if posixpath.basename(path) == "Chart.yaml"}
    for path in tree.files:
        folder = folder_of_chart(path)
        if folder is not None and tree.read(posixpath.join(folder, "Chart.yaml")) is not None:
            folders.add(folder)
    tops = [folder for folder in sorted(folders) if not any(_below(folder, other) for other in folders)]
    return [
        folder
        for folder in tops
        if any(_inside(path, folder) and "vllm" in file.text.lower() for path, file in tree.files.items())
    ]


def _below(folder: str, other: str) -> bool:
    return folder.startswith((f"{other}/" if other else "") + "charts/")


def _inside(path: str, folder: str) -> bool:
    return not folder or path.startswith(folder + "/")


def _release(
    tree: Tree, root: Path, folder: str, release: ChartValues
) -> tuple[list[ServeUnit | Unread], frozenset[str]]:
    metadata = tree.read(posixpath.join(folder, "Chart.yaml"))
    if metadata is None:
        return [], frozenset()
    place = metadata.line_span(1)
    files = files_below(root, folder)
    if isinstance(files, str):
        return [Unread(f"the chart is not rendered: {files}", place)], frozenset()
    values: list[SourceFile] = []
    for name in release.values:
        source = tree.read(name)
        if source is None:
            raise RenderError(f"{name}: the values file of kvgate.yaml cannot be read")
        values.append(source)
    rendered = _render(files, [source.text for source in values], release)
    if isinstance(rendered, str):
        return [Unread(f"the chart is not rendered: {rendered}", place, serves=True)], frozenset()
    chart = _with_values(tree, chart_of(tree, folder), values)
    found: list[ServeUnit | Unread] = []
    read: set[str] = set()
    found += [
        Unread(f"dependency {name} is not below charts/, so it is not rendered", place) for name in rendered.absent
    ]
    made: list[tuple[SourceFile, Rendered]] = []
    for path, text in rendered.manifests:
        full = posixpath.join(folder, path) if folder else path
        file = tree.read(full)
        if file is not None:
            read.add(full)
        if text.strip() and _CONCERNS.search(text):
            if file is not None:
                written = _located(text, file, chart)
            else:  # of a packaged chart: what stands in the tree are the values that are handed to it
                file = next((source for name in _own_values(folder) if (source := tree.read(name))), metadata)
                written = Text.at(text, file.line_span(1))
            made.append((file, Rendered(documents_of(Value(written)).documents, True)))
    with peers_of(tree).reading({file.path: rendering.documents for file, rendering in made}):
        for file, rendering in made:
            found += [_named(unit, release) for unit in units_of(tree, file, rendering, templated=False)]
    read |= {path for path in tree.files if folder_of_chart(path) == folder or _below(path, folder)}
    if not rendered.absent:  # else they say what the dependencies are told
        read |= set(_own_values(folder))
    return found, frozenset(read | set(release.values))


def _own_values(folder: str) -> tuple[str, ...]:
    return tuple(posixpath.join(folder, name) for name in ("values.yaml", "values.yml"))


def _named(unit: ServeUnit | Unread, release: ChartValues) -> ServeUnit | Unread:
    """A unit in the namespace it is installed in, which its manifest need not name."""
    if isinstance(unit, ServeUnit) and unit.namespace is None and release.namespace != "default":
        return replace(unit, namespace=release.namespace, id=unit.id.replace("/default/", f"/{release.namespace}/", 1))
    return unit


@record
class _Output:
    manifests: tuple[tuple[str, str], ...]
    absent: tuple[str, ...]


def _render(files: dict[str, bytes], values: Sequence[str], release: ChartValues) -> _Output | str:
    """The manifests of a chart by their path inside it, or why there are none."""
    with copied({f"chart/{path}": data for path, data in files.items()}) as folder:
        job = {
            "chart": str(folder / "chart"),
            "values": list(values),
            "name": release.release,
            "namespace": release.namespace,
            "memory_bytes": MEMORY_BYTES,
            "seconds": SECONDS,
            "output_bytes": MAX_OUTPUT_BYTES,
        }
        words = [sys.executable, "-I", str(_CHILD)]
        output, problem = run(words, json.dumps(job).encode(), closed_environment(folder), folder)
    if problem is not None:
        return problem
    try:
        result = json.loads(output)
    except ValueError:
        return "the engine's answer cannot be read"
    if "missing" in result:
        raise RenderError(f"rendering with Helm needs the extra: pip install 'kvgate[helm]' ({result['missing']})")
    if "error" in result:
        return _short(str(result["error"]), str(folder))
    name = str(result["name"])
    manifests = [
        (path.removeprefix(f"{name}/"), text)
        for path, text in sorted(result["manifests"].items())
        if path.endswith((".yaml", ".yml", ".json"))
    ]
    return _Output(tuple(manifests), tuple(result["absent"]))


def _short(message: str, folder: str) -> str:
    return " ".join(message.replace(folder + "/", "").split())[:300]


def _with_values(tree: Tree, chart: Chart, files: Sequence[SourceFile]) -> Chart:
    """The chart with values files over its own, for finding out where a value came from."""
    values: Node | None = chart.roots.get("Values")
    for file in files:
        documents = tree.stream(file).documents
        if documents and isinstance(documents[0], Mapping):
            values = put_over(values, documents[0])
    return replace(chart, roots={**chart.roots, "Values": values}) if values is not None else chart


# -- places ------------------------------------------------------------------------------------------------------------


def _located(text: str, file: SourceFile, chart: Chart) -> Text:
    """A rendered text with the place of each line: in the values where they decide it, else in the template."""
    own = _own_text(file, chart)
    lines = text.splitlines(keepends=True)
    if len(lines) > MAX_LINES:
        return Text.at(text, file.line_span(1))
    known = list(_lines(own))
    patterns = [_pattern(line) for line in known]
    written = [line.value for line in known]
    parts: list[Text] = []
    last = file.line_span(1)
    matcher = difflib.SequenceMatcher(None, [_plain(line) for line in written], [_plain(line) for line in lines], False)
    for _, left, left_end, right, right_end in matcher.get_opcodes():
        candidate = left
        for number in range(right, right_end):
            line = lines[number]
            match = next((at for at in range(candidate, left_end) if _fits(known[at], patterns[at], line)), None)
            if match is None:
                anchor = known[min(candidate, len(known) - 1)].text if known and candidate < left_end else None
                last = anchor.span if anchor is not None and anchor.pieces else last
                parts.append(Text.at(line, last))
                continue
            candidate = match + 1
            placed = _placed(line, known[match])
            last = placed.span if placed.pieces else last
            parts.append(placed)
    return Text.join(parts)


def _own_text(file: SourceFile, chart: Chart) -> Value:
    """The template as kvgate evaluates it; its own text where it cannot."""
    try:
        template = parse_template(file.text)
        own = {name: (file, template, nodes) for name, nodes in template.defined.items()}
        return Evaluator({**chart.defined, **own}, chart.roots).render(file, template)
    except TemplateError:
        return Value(Text.of_span(Span(file, 0, len(file.text))))


def _lines(value: Value) -> Iterator[Value]:
    at = 0
    text = value.masked("\0")
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end + 1
        yield value.slice(at, end)
        at = end


def _plain(line: str) -> str:
    return line.strip()


def _pattern(line: Value) -> tuple[str, ...] | None:
    """The known stretches of a line with holes, between which anything may stand."""
    if line.resolved:
        return None
    parts: list[str] = []
    at = 0
    for hole in line.holes:
        parts.append(line.value[at : hole.start])
        at = hole.end
    parts.append(line.value[at:])
    return (parts[0].lstrip(), *parts[1:-1], parts[-1].rstrip())


def _fits(line: Value, pattern: tuple[str, ...] | None, rendered: str) -> bool:
    rendered = rendered.strip()
    if pattern is None:
        return line.value.strip() == rendered
    first, *between, last = pattern
    if not line.value.strip() or not rendered.startswith(first) or not rendered.endswith(last):
        return False
    at, end = len(first), len(rendered) - len(last)
    for part in between:
        found = rendered.find(part, at, max(end, at))
        if found < 0:
            return False
        at = found + len(part)
    return at <= end


def _placed(rendered: str, line: Value) -> Text:
    """A rendered line with the places of the line it came from."""
    if line.resolved and line.value.strip() == rendered.strip():
        lead = len(rendered) - len(rendered.lstrip())
        own = len(line.value) - len(line.value.lstrip())
        body = line.text.slice(own, own + len(rendered.strip()))
        tail = rendered[lead + len(rendered.strip()) :]
        anchor = body.span if body.pieces else line.span
        return Text.join([Text.at(rendered[:lead], anchor), body, Text.at(tail, anchor)])
    # the known beginning and end keep their places, what is between comes from the hole
    first, last = line.holes[0], line.holes[-1]
    head = line.text.slice(0, first.start)
    lead = len(rendered) - len(rendered.lstrip())
    known = len(head.value.lstrip())
    cut = lead + known
    span = line.text.slice(first.start, max(last.end, first.start + 1)).span
    if rendered[lead:cut] != head.value.lstrip():
        return Text.at(rendered, span)
    before = head.slice(len(head.value) - known, len(head.value))
    return Text.join([Text.at(rendered[:lead], span), before, Text.at(rendered[cut:], span)])
