"""Values files that are put over a chart of the tree: the servers that its templates, or its values, then make."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kvgate.manifests.entrypoint import flag_name
from kvgate.manifests.helm.application_sets import applications
from kvgate.manifests.helm.chart import (
    Over,
    Rendered,
    folder_of_chart,
    is_disabled,
    put_over,
    render_statically,
    values_of_chart,
)
from kvgate.manifests.helm.go_template import TemplateError
from kvgate.manifests.helm.read import units_of
from kvgate.manifests.helm.values import VALUES_NAME, looks_like_values, read_values
from kvgate.manifests.peers import peers_of
from kvgate.manifests.tree import Tree, expand_list, items_at, node_at, text_at
from kvgate.manifests.unit import ServeUnit, Unread, server_of
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.source.text import SourceFile, Span
from kvgate.source.yaml_tree import Mapping, Node, Scalar, is_go_template

# Folders inside a chart in which people keep the values of their environments.
_FOLDERS: Final = frozenset({"ci", "env", "environments", "envs", "overlays", "values"})
_HELM: Final = re.compile(r"\bhelm\b(?:[^\n\\;|&]+|\\\r?\n|\\)*")
_INSTALLS: Final = re.compile(r"\b(?:install|template|upgrade)\b")
# Words of a command behind which nothing is looked for any more.
_MAX_WORDS: Final = 200
_OWN: Final = ("values.yaml", "values.yml")
# What describes a chart is none of its values.
_METADATA: Final = ("Chart.yaml", "Chart.yml", "requirements.yaml")
# Keys that values may have though the chart's own do not name them.
_OF_EVERY_CHART: Final = frozenset({"fullnameOverride", "global", "nameOverride"})
# How many keys a file must share with a chart's values to be told by them.
MIN_COMMON_KEYS: Final = 3
# Installations whose servers are kept: each is asked for several times in a row.
MAX_KEPT: Final = 100


@record
class Overlay:
    """What is installed: the chart, by its folder, and values files in their order; the last one names it."""

    folder: str
    files: tuple[str, ...]


def overlay_of(tree: Tree, path: str) -> Overlay | None:
    """The installation that a values file makes of a chart of the tree; None where it stands by itself."""
    told = _told(tree).get(path)
    if told is not None:
        return told
    folder, _, name = path.rpartition("/")
    in_chart = VALUES_NAME.search(name) is not None and tree.read(posixpath.join(folder, "Chart.yaml")) is not None
    if name in _METADATA or folder_of_chart(path) is not None:
        return None
    if name in _OWN and (in_chart or folder in _chart_folders(tree)):
        return None
    if in_chart:
        return Overlay(folder, (path,))
    above, _, kept_in = folder.rpartition("/")
    if kept_in in _FOLDERS and tree.read(posixpath.join(above, "Chart.yaml")) is not None:
        return Overlay(above, (path,))
    return _fitting(tree, path)


def _told(tree: Tree) -> dict[str, Overlay]:
    """What files of the tree say is installed, by the last values file of each."""
    found = tree.memo.get("helm installations")
    if not isinstance(found, dict):
        found = tree.memo["helm installations"] = dict(_installations(tree))
    return found


def concerns(tree: Tree, path: str) -> bool:
    """Whether a file that is silent about vLLM has values of a chart that serves it: by its name, or as told."""
    charts = tree.memo.get("helm charts that serve")
    if not isinstance(charts, dict):
        charts = tree.memo["helm charts that serve"] = dict(_serving_charts(tree))
    if not charts:
        return False
    folder, _, name = path.rpartition("/")
    near = VALUES_NAME.search(name) is not None or folder.rpartition("/")[2] in _FOLDERS
    if not near and path not in _told(tree):
        return False
    overlay = overlay_of(tree, path)
    return overlay is not None and overlay.folder in charts


def _fitting(tree: Tree, path: str) -> Overlay | None:
    """The one chart of the tree whose templates start vLLM and whose values have every key of a file.

    In a folder of such a chart it is that chart's already where one key tells so.
    """
    file = tree.read(path)
    documents = tree.stream(file).documents if file is not None else []
    values = documents[0] if len(documents) == 1 else None
    if not isinstance(values, Mapping) or not looks_like_values(path, values):
        return None
    charts = tree.memo.get("helm charts that serve")
    if not isinstance(charts, dict):
        charts = tree.memo["helm charts that serve"] = dict(_serving_charts(tree))
    inside = [folder for folder in charts if path.startswith(f"{folder}/" if folder else "")]
    if inside:
        nearest = max(inside, key=len)
        known = {entry.key.value for entry in charts[nearest].items()} | _OF_EVERY_CHART
        fits = all(entry.key.value in known for entry in values.items()) and bool(values.entries)
        return Overlay(nearest, (path,)) if fits else None
    fitting = [folder for folder, own in charts.items() if _fits(values, own)]
    if not fitting:
        fitting = _made_to_serve(tree, values)
    return Overlay(fitting[0], (path,)) if len(fitting) == 1 else None


def _made_to_serve(tree: Tree, values: Mapping) -> list[str]:
    """The one chart that names vLLM, has every key of some values, and starts servers with them but none without."""
    charts = tree.memo.get("helm charts that name vLLM")
    if not isinstance(charts, dict):
        charts = tree.memo["helm charts that name vLLM"] = dict(_naming_charts(tree))
    keys = {entry.key.value for entry in values.items()} - _OF_EVERY_CHART
    having = [folder for folder, own in charts.items() if keys and keys <= {entry.key.value for entry in own.items()}]
    if len(having) != 1 or makes_servers(tree, having[0]):
        return []
    return having if next(_of_templates(tree, having[0], {having[0]: values}), None) is not None else []


def _naming_charts(tree: Tree) -> Iterator[tuple[str, Mapping]]:
    folders = dict.fromkeys(
        folder
        for path, file in tree.files.items()
        if (folder := folder_of_chart(path)) is not None and "vllm" in file.text
    )
    for folder in folders:
        own = values_of_chart(tree, folder)
        if isinstance(own, Mapping):
            yield folder, own


def _serving_charts(tree: Tree) -> Iterator[tuple[str, Mapping]]:
    speaking = _folders_that_name_vllm(tree)
    for folder in _chart_folders(tree):
        own = values_of_chart(tree, folder) if folder in speaking else None
        if isinstance(own, Mapping) and makes_servers(tree, folder):
            yield folder, own


def _chart_folders(tree: Tree) -> dict[str, None]:
    """Folders that templates of the tree stand in."""
    found = tree.memo.get("helm folders")
    if not isinstance(found, dict):
        folders = (folder for path in tree.files if (folder := folder_of_chart(path)) is not None)
        found = tree.memo["helm folders"] = dict.fromkeys(folders)
    return found


def _folders_that_name_vllm(tree: Tree) -> set[str]:
    """Folders with a file that names vLLM somewhere below them."""
    found: set[str] = set()
    for path, file in tree.files.items():
        if "vllm" in file.text or "vLLM" in file.text or "VLLM" in file.text:
            folder = posixpath.dirname(path)
            while folder not in found:
                found.add(folder)
                folder = posixpath.dirname(folder)
    return found


def _fits(values: Mapping, own: Mapping) -> bool:
    """Whether a chart's own values have all keys of others, several of them, and of each mapping below at least one."""
    entries = [entry for entry in values.items() if entry.key.value not in _OF_EVERY_CHART]
    for entry in entries:
        known = own.get(entry.key.value)
        if known is None:
            return False
        if isinstance(entry.value, Mapping) and isinstance(known, Mapping) and known.entries and entry.value.entries:
            inner = {below.key.value for below in known.items()}
            if not any(below.key.value in inner for below in entry.value.items()):
                return False
    return len(entries) >= MIN_COMMON_KEYS


def read_overlay(tree: Tree, file: SourceFile, document: Node, overlay: Overlay) -> Iterator[ServeUnit | Unread]:
    """The servers of an installation that are not those of the chart with its own values."""
    values: Node | None = None
    for path in overlay.files:
        source = tree.read(path)
        for inner in tree.stream(source).documents[:1] if source is not None else ():
            values = put_over(values, inner)
    if not isinstance(values, Mapping):
        values = document if isinstance(document, Mapping) else Mapping(document.span, [])
    # a file that is called as every chart's own is told apart by its folder
    name = "/".join(file.path.split("/")[-2 if posixpath.basename(file.path) in _OWN else -1 :])
    yield from read_installation(tree, file, values, overlay.folder, name)


def makes_servers(tree: Tree, folder: str) -> bool:
    """Whether the templates of a chart of the tree make servers with its own values."""
    return next(_of_templates(tree, folder, None), None) is not None


def read_installation(tree: Tree, file: SourceFile, values: Mapping, folder: str, name: str) -> Iterator[ServeUnit]:
    """The servers of a chart with values of a file over its own, where they are not those of the chart alone.

    Args:
        name: what the installation is told apart by.
    """
    over = {folder: values}
    # a loop of a template can give several servers one name
    plain = {(unit.id, server_of(unit)) for unit in _of_templates(tree, folder, None)}
    found = list(_of_templates(tree, folder, over))
    if not all(_knows_model(unit) for unit in found) or not (found or plain):
        # the chart, or a part of it, is not at hand: the values themselves may tell more
        whole = values_of_chart(tree, folder, over=over) or values
        told = [unit for unit in read_values(tree, file, whole) if isinstance(unit, ServeUnit)]
        if not found or (len(told) >= len(found) and all(_knows_model(unit) for unit in told)):
            own = values_of_chart(tree, folder)
            before = read_values(tree, file, own) if own is not None else ()
            plain = {(unit.id, server_of(unit)) for unit in before if isinstance(unit, ServeUnit)}
            found = told
    for unit in found:
        if (unit.id, server_of(unit)) in plain:
            continue  # labels and the like make no other server
        place = unit.span if unit.span.file is file else _place(unit, file)
        shown = unit.id if unit.id.startswith(file.path) else f"{unit.id}@{name}"
        yield replace(unit, id=shown, path=file.path, span=place)


def _knows_model(unit: ServeUnit) -> bool:
    """Whether the name of a server's model is known, or that of what is mounted as it."""
    if unit.storage_model is not None:
        return unit.storage_model.resolved
    for number, word in enumerate(unit.words):
        if flag_name(word) == "model":
            return word.resolved and (
                "=" in word.value or all(next_.resolved for next_ in unit.words[number + 1 :][:1])
            )
    return not unit.positional_model or not unit.words or unit.words[0].resolved


def _of_templates(tree: Tree, folder: str, over: Over | None) -> Iterator[ServeUnit]:
    """The servers that the templates of a chart, and of the charts below it, make; those of late are kept."""
    values = None if over is None else over.get(folder)
    key = (folder, None if values is None else id(values))
    kept = tree.memo.get("helm servers")
    if not isinstance(kept, dict):
        kept = tree.memo["helm servers"] = {}
    if key not in kept:
        made = tuple(_made_by_templates(tree, folder, over))
        if len(kept) >= MAX_KEPT:
            kept.clear()
        kept[key] = (values, made)  # with the values, so that no others come to stand at their place
    yield from kept[key][1]


def _made_by_templates(tree: Tree, folder: str, over: Over | None) -> Iterator[ServeUnit]:
    prefix = f"{folder}/" if folder else ""
    made: list[tuple[SourceFile, Rendered]] = []
    for path, file in tree.files.items():
        chart = folder_of_chart(path)
        if (
            chart is None
            or not path.startswith(prefix)
            or not (chart == folder or chart.startswith(f"{prefix}charts/"))
        ):
            continue
        if path.endswith(".tpl") or _is_silent(file) or is_disabled(tree, chart, over):
            continue
        try:
            made.append((file, render_statically(tree, file, over)))
        except TemplateError:
            continue
    with peers_of(tree).reading({file.path: rendered.documents for file, rendered in made}):
        found = [unit for file, rendered in made for unit in units_of(tree, file, rendered)]
    yield from (
        unit
        for unit in found
        if isinstance(unit, ServeUnit) and not peers_of(tree).is_used_runtime(unit.kind, unit.path, unit.document)
    )


_OBJECT: Final = regex(r"(?m)^kind:[ \t]*(\S+)")
# Kinds that have no server, and of which no server takes anything.
_SILENT: Final = frozenset(
    {
        "ClusterRole", "ClusterRoleBinding", "HTTPRoute", "Ingress", "NetworkPolicy", "PersistentVolume",
        "PersistentVolumeClaim", "PodDisruptionBudget", "PodMonitor", "PrometheusRule", "Role", "RoleBinding", "Route",
        "Secret", "Service", "ServiceAccount", "ServiceMonitor",
    }
)  # fmt: skip


def _is_silent(file: SourceFile) -> bool:
    """Whether all objects of a template are of kinds for which it need not be rendered."""
    kinds = set(_OBJECT.findall(file.text))
    return bool(kinds) and kinds <= _SILENT


def _place(unit: ServeUnit, file: SourceFile) -> Span:
    """The first line of a values file that a server's arguments, or else its image, come from."""
    texts = [word.text for word in (*unit.words, *([unit.image] if unit.image is not None else []))]
    starts = [piece.span.start for text in texts for piece in text.pieces if piece.span.file is file]
    return file.line_span(file.position(min(starts))[0] if starts else 1)


# -- who installs what -------------------------------------------------------------------------------------------------


def _installations(tree: Tree) -> Iterator[tuple[str, Overlay]]:
    for file in tree.files.values():
        if "helm" in file.text and ("-f" in file.text or "--values" in file.text):
            for match in _HELM.finditer(file.text):
                if _INSTALLS.search(match.group()):
                    yield from _of_command(tree, file.path, match.group())
        if "valueFiles" in file.text:
            for document in tree.stream(file).documents:
                for item in expand_list(document):
                    for made in applications(item):
                        yield from _of_application(tree, made)
        if "releases:" in file.text and "chart:" in file.text and not is_go_template(file.text):
            for document in tree.stream(file).documents:
                yield from _of_helmfile(tree, file.path, document)


def _of_helmfile(tree: Tree, path: str, document: Node) -> Iterator[tuple[str, Overlay]]:
    """Releases of a helmfile with values files beside it."""
    base = posixpath.dirname(path)
    for item in items_at(document, "releases"):
        folder = chart_in_tree(tree, base, text_at(item, "chart") or "")
        names = [name.value for name in items_at(item, "values") if isinstance(name, Scalar)]
        files = [posixpath.normpath(posixpath.join(base, name)) for name in names]
        files = [place for place in files if tree.read(place) is not None]
        if folder is not None and files:
            yield files[-1], Overlay(folder, tuple(files))


def _of_command(tree: Tree, path: str, command: str) -> Iterator[tuple[str, Overlay]]:
    """``helm upgrade NAME CHART -f values-a.yaml -f values-b.yaml``."""
    words = [word.strip("\"'") for word in re.sub(r"\\\r?\n", " ", command).split()[:_MAX_WORDS]]
    for base in dict.fromkeys((posixpath.dirname(path), "")):
        folder = next((place for word in words[1:] if (place := chart_in_tree(tree, base, word)) is not None), None)
        if folder is None:
            continue
        names: list[str] = []
        for index, word in enumerate(words):
            option, equals, rest = word.partition("=")
            if option in ("-f", "--values"):
                names += (rest if equals else words[index + 1] if index + 1 < len(words) else "").split(",")
        files = [posixpath.normpath(posixpath.join(base, name)) for name in names if name]
        if files and all(tree.read(place) is not None for place in files):
            yield files[-1], Overlay(folder, tuple(files))


def chart_in_tree(tree: Tree, base: str, word: str) -> str | None:
    """The folder of a chart that a word names from a folder, if that is in the tree."""
    if word.startswith("-") or "://" in word or "$" in word or not ("/" in word or word == "."):
        return None
    folder = posixpath.normpath(posixpath.join(base, word))
    folder = "" if folder == "." else folder
    return folder if tree.read(posixpath.join(folder, "Chart.yaml")) is not None else None


def _of_application(tree: Tree, item: Node) -> Iterator[tuple[str, Overlay]]:
    """An Application of Argo CD with values files in the chart's own repository, or one that it names by a ``ref``."""
    above = node_at(item, "spec", "template", "spec") or node_at(item, "spec")
    for source in (node_at(above, "source"), *items_at(above, "sources")):
        folder = text_at(source, "path")
        names = [name.value for name in items_at(source, "helm", "valueFiles") if isinstance(name, Scalar)]
        if folder is None or not names or chart_in_tree(tree, "", f"./{folder}") is None:
            continue
        # `$values/apps/x.yaml` is a path from the root of the repository that is called `values`
        files = [posixpath.normpath(name.partition("/")[2] if name.startswith("$") else posixpath.join(folder, name))
                 for name in names]  # fmt: skip
        own = [posixpath.normpath(posixpath.join(folder, name)) for name in _OWN]
        files = [place for place in files if place not in own and tree.read(place) is not None]
        if files:
            yield files[-1], Overlay(posixpath.normpath(folder), tuple(files))
