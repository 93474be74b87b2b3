"""Files -> serve units: which reader takes which document, and what could not be read."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvgate.manifests.formats import Format, format_of, is_template_name
from kvgate.manifests.parts import has_part_in, whole_servers, with_own_names
from kvgate.manifests.requirements import with_requirements
from kvgate.manifests.shapes import (
    KUSTOMIZATION_NAMES,
    is_compose,
    is_kubernetes,
    is_kustomization,
    is_measurement,
    is_serve_config,
)
from kvgate.manifests.tree import Tree, node_at
from kvgate.manifests.unit import Reading, ServeUnit, Unread, servers_among
from kvgate.patterns import regex
from kvgate.source.text import SourceFile, Span, TooLargeError
from kvgate.source.yaml_tree import Node, YamlStream, is_go_template

if TYPE_CHECKING:
    from kvgate.manifests.rendering import Rendering

MAX_UNITS: Final = 1_000  # of one file

# A file without any of these, in lower case, starts no vLLM: a patch may lack the word but not the flags.
_FLAGS: Final = (
    ("max", "model", "len"), ("gpu", "memory", "util"), ("tensor", "parallel", "size"), ("kv", "cache", "dtype"),
)  # fmt: skip
_MATTERS: Final = (
    "vllm", "kaito.sh/", "serveconfigv2", "ray.serve.llm", "llm_configs", "engine_kwargs", "model_loading_config",
    "kind: llminferenceservice", "--max-num-", "--max_num_",
    *(mark.join(words) for words in _FLAGS for mark in ("", "-", "_")),
)  # fmt: skip
_CARRIED_CODE: Final = regex(r"(?m)^[ \t]+[\w.-]+\.py:[ \t]*\|")
_STARTS: Final = regex(
    r"vllm[\"',\s]+(?:args[\"':\s\[]+)?serve\b|vllm\.entrypoints|vllm/vllm-openai|image:[^\n]*vllm[^\n]*", re.IGNORECASE
)
# Comments in JSON, as editors allow them in their settings, and the strings that may hold what looks like one.
_COMMENT_LINE: Final = regex(r"(?m)^[ \t]*//")
_JSON_COMMENT: Final = regex(r"\"(?:[^\"\\\n]|\\.)*\"|//[^\n]*")
# Variables of Ansible: tasks and templates make something of them.
_ROLE_VARIABLES: Final = regex(r"(?:^|/)(?:(?:defaults|vars)/main\.ya?ml$|group_vars/)")
# What a text has in it where it may describe containers to a cloud's own service.
TASK_MARKS: Final = (
    "containerDefinitions", "ContainerDefinitions", "docker_container:", "podman_container:", "recipe_image_uri",
)  # fmt: skip


def read_tree(
    files: Sequence[SourceFile],
    root: Path | None = None,
    *,
    around: Sequence[SourceFile] = (),
    lookup: Callable[[str], SourceFile | None] | None = None,
    named: frozenset[str] = frozenset(),
    rendering: Rendering | None = None,
) -> Reading:
    """Read every file of a run.

    Args:
        files: what was collected, in the order in which units are reported.
        root: the directory below which files that these name (``.env``, mounted scripts) are looked up.
        around: what these files belong to (the other files of their chart): of the servers in it only those are
            reported that a file of the run has a part in.
        lookup: looks such files up elsewhere (a git snapshot), by path relative to the root.
        named: paths of files that must be readable whatever they hold; of the others, those that cannot start vLLM are
            not parsed.
        rendering: what is rendered by Helm or kustomize first.

    Raises:
        RenderError: rendering was asked for, and the tool is not there.
    """
    given = frozenset(file.path for file in files)
    files = [*files, *around]
    tree = Tree(files, root, lookup)
    kustomize = Kustomize(tree)
    rendered, done = _rendered(tree, root, rendering)
    units: list[ServeUnit] = [found for found in rendered if isinstance(found, ServeUnit)]
    unread: list[Unread] = [found for found in rendered if isinstance(found, Unread)]
    matter = [_matters(file.text.lower()) for file in files]
    some = any(matter)
    for file, matters in zip(files, matter, strict=True):
        if file.path in done:
            continue
        if not matters and file.path not in named and not (some and _concerns(tree, file, kustomize)):
            continue
        for found in _within_bounds(tree, file, kustomize):
            if isinstance(found, ServeUnit):
                units.append(found)
            else:
                unread.append(found)
    units = list(with_own_names(with_requirements(tree, whole_servers(tree, units, _read_object))))
    if around:
        units = [unit for unit in units if unit.path in given or has_part_in(given, unit)]
        unread = [place for place in unread if place.span.path in given]
    return Reading(tuple(units), tuple(unread))


def _within_bounds(tree: Tree, file: SourceFile, kustomize: Kustomize) -> Iterator[ServeUnit | Unread]:
    """The serve units of one file, as far as it is no larger and not nested deeper than what is read."""
    units = 0
    try:
        for found in read_file(tree, file, kustomize):
            units += isinstance(found, ServeUnit)
            if units > MAX_UNITS:
                raise TooLargeError(f"what a file has beyond {MAX_UNITS:,} servers")
            yield found
    except (TooLargeError, RecursionError) as error:
        what = str(error) if isinstance(error, TooLargeError) else "what is nested so deeply"
        yield Unread(f"{what} is not read", file.line_span(1), serves=True)


def _matters(text: str) -> bool:
    return any(word in text for word in _MATTERS) or ("modelformat" in text and "huggingface" in text)


def _concerns(tree: Tree, file: SourceFile, kustomize: Kustomize) -> bool:
    """Whether a file may have a server that others describe: a kustomization, services on top of others."""
    if kustomize.concerns(file.path):
        return True
    if format_of(file.path, file.text) != "yaml":
        return False
    if _has_charts(tree):
        from kvgate.manifests.helm.overlays import concerns

        if concerns(tree, file.path):
            return True
    if "services:" not in file.text:
        return False
    if re.search(r"\b(?:build|extends):", file.text) is not None:
        return True
    return _lies_over(tree, file)


def _has_charts(tree: Tree) -> bool:
    known = tree.memo.get("has charts")
    if not isinstance(known, bool):
        known = tree.memo["has charts"] = any(posixpath.basename(path) == "Chart.yaml" for path in tree.files)
    return known


def _lies_over(tree: Tree, file: SourceFile) -> bool:
    """Whether a command puts a Compose file over others."""
    if "services:" not in file.text:
        return False
    from kvgate.manifests.compose_files import together

    return file.path in together(tree).under


def _rendered(
    tree: Tree, root: Path | None, rendering: Rendering | None
) -> tuple[list[ServeUnit | Unread], frozenset[str]]:
    """What the tools render, and the files that are read thereby."""
    found: list[ServeUnit | Unread] = []
    done: frozenset[str] = frozenset()
    if rendering is None or root is None:
        return found, done
    if rendering.helm:
        from kvgate.manifests.helm.render import render_charts

        charts = render_charts(tree, root, rendering)
        found += charts.found
        done |= charts.read
    if rendering.kustomize:
        from kvgate.manifests.kustomize_build import build_kustomizations

        built = build_kustomizations(tree, rendering)
        found += built.found
        done |= built.read
    return found, done


class Kustomize:
    """What the kustomizations of a tree say about its other files, found out when first asked."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._used = any(
            posixpath.basename(path) in KUSTOMIZATION_NAMES or "kustomize.config.k8s.io" in file.text
            for path, file in tree.files.items()
        )
        self._patches: frozenset[str] | None = None
        self._owners: dict[str, list[Node]] | None = None

    def is_patch(self, path: str) -> bool:
        """Whether a kustomization uses a file as a patch: what it makes of others is read there."""
        if not self._used:
            return False
        if self._patches is None:
            from kvgate.manifests.kustomize import patch_files

            self._patches = patch_files(self._tree)
        return path in self._patches

    def concerns(self, path: str) -> bool:
        """Whether a file is a kustomization: it may change a server that another file describes."""
        return self._used and posixpath.basename(path) in KUSTOMIZATION_NAMES

    def owners(self, path: str) -> list[Node]:
        """Kustomizations beside a file that list it as a resource."""
        if not self._used:
            return []
        if self._owners is None:
            from kvgate.manifests.kustomize import owners

            self._owners = owners(self._tree)
        return self._owners.get(path, [])


def read_file(tree: Tree, file: SourceFile, kustomize: Kustomize) -> Iterator[ServeUnit | Unread]:
    """The serve units of one file."""
    yield from _read_as(tree, file, file.path, kustomize)


def _read_as(tree: Tree, file: SourceFile, name: str, kustomize: Kustomize) -> Iterator[ServeUnit | Unread]:
    """The serve units of a text that is a file of that name."""
    form = format_of(name, file.text)
    if form == "notebook":
        from kvgate.manifests.notebook import read_notebook

        yield from read_notebook(tree, file, lambda text, inner: _read_as(tree, text, inner, kustomize))
        return
    if form != "yaml":
        yield from _read_code(tree, file, form)
        return
    if name.endswith(".tpl") and "define" in file.text:
        return  # named templates: others include them
    if is_go_template(file.text) or tree.is_chart_template(file):
        from kvgate.manifests.helm.read import read_template

        yield from read_template(tree, file)
        return
    if "{%" in file.text and is_template_name(name):
        from kvgate.shell.template import without_tags

        yield from _read_jinja(tree, SourceFile(file.path, without_tags(file.text)), kustomize)
        return
    if name.lower().endswith((".json", ".jsonc")) and _COMMENT_LINE.search(file.text):
        file = SourceFile(file.path, _JSON_COMMENT.sub(_blanked, file.text))
    stream = tree.stream(file)
    yield from _problems(stream)
    found = False
    for document in stream.documents:
        for unit in _read_document(tree, file, document, kustomize):
            found = True
            yield unit
    if not found and _CARRIED_CODE.search(file.text):
        from kvgate.manifests.embedded import read_carried_code

        for document in stream.documents:
            yield from read_carried_code(tree, file, document)


def _blanked(match: re.Match[str]) -> str:
    return match.group() if match.group().startswith('"') else " " * len(match.group())


def _read_jinja(tree: Tree, file: SourceFile, kustomize: Kustomize) -> Iterator[ServeUnit | Unread]:
    """A Jinja template of a manifest, its tags taken out: what they decide is not known."""
    found = False
    for document in tree.stream(file).documents:
        for unit in _read_document(tree, file, document, kustomize):
            found = True
            yield unit
    match = _STARTS.search(file.text)
    if found or match:
        place = file.line_span(file.position(match.start())[0] if match else 1)
        yield Unread("a template, not rendered: its text was read without values", place, serves=not found)


def _read_code(tree: Tree, file: SourceFile, form: Format) -> Iterator[ServeUnit | Unread]:
    if form == "shell":
        from kvgate.manifests.scripts import read_script

        yield from read_script(tree, file)
    elif form == "dockerfile":
        from kvgate.manifests.dockerfile import read_dockerfile

        yield from read_dockerfile(tree, file)
    elif form == "systemd":
        from kvgate.manifests.systemd import read_systemd

        yield from read_systemd(tree, file)
    elif form in ("batch", "powershell"):
        from kvgate.manifests.batch import read_batch

        yield from read_batch(tree, file, form)
    elif form == "make":
        from kvgate.manifests.makefile import read_makefile

        yield from read_makefile(tree, file)
    elif form == "toml":
        yield from _read_toml(tree, file)
    elif form == "apptainer":
        from kvgate.manifests.apptainer_definition import read_definition

        yield from read_definition(tree, file)
    elif form == "procfile":
        from kvgate.manifests.procfile import read_procfile

        yield from read_procfile(tree, file)
    elif form == "hcl":
        from kvgate.manifests.terraform import read_terraform

        yield from read_terraform(tree, file)
    elif form == "python":
        from kvgate.manifests.python_code import read_python

        yield from read_python(tree, file)


def _read_toml(tree: Tree, file: SourceFile) -> Iterator[ServeUnit | Unread]:
    """The servers of commands among settings, or of the settings themselves."""
    from kvgate.source.toml_tree import parse_toml

    document = parse_toml(file)
    found = None
    if _STARTS.search(file.text):
        from kvgate.manifests.keyed_commands import read_keyed_commands

        for found in read_keyed_commands(tree, file, document):
            yield found
    if found is None:
        from kvgate.manifests.vllm_config import find_vllm_config, read_vllm_config

        config = find_vllm_config(document, file.path)
        if config is not None:
            yield from read_vllm_config(file, config)


def _read_document(tree: Tree, file: SourceFile, document: Node, kustomize: Kustomize) -> Iterator[ServeUnit | Unread]:
    # each reader is imported by the first document that needs it
    if "{{" in file.text:
        from kvgate.manifests.ansible import role_of

        role = role_of(tree, file)
        document = role.document(document) if role is not None else document
    if is_kustomization(document):
        yield from _read_kustomization(tree, file, document)
    elif kustomize.is_patch(file.path) or (_ROLE_VARIABLES.search(file.path) and not is_compose(document)):
        return
    elif is_kubernetes(document):
        yield from _read_kubernetes(tree, file, document, kustomize)
    elif is_serve_config(document):
        from kvgate.manifests.ray import read_ray

        yield from read_ray(tree, file, document)
    elif is_compose(document) or _lies_over(tree, file):
        from kvgate.manifests.compose import read_compose

        yield from read_compose(tree, file, document)
    elif any(mark in file.text for mark in TASK_MARKS):
        from kvgate.manifests.task_definitions import read_task_definitions

        yield from _or_commands(tree, file, document, read_task_definitions(tree, file, document))
    else:
        from kvgate.manifests.vllm_config import find_vllm_config, read_vllm_config

        config = find_vllm_config(document, file.path)
        if config is not None:
            yield from read_vllm_config(file, config)
            return
        from kvgate.manifests.scripted import is_scripted, read_scripted

        if is_measurement(document):
            return
        if is_scripted(document, file):
            yield from _or_commands(tree, file, document, read_scripted(tree, file, document))
        else:
            from kvgate.manifests.helm.overlays import overlay_of, read_overlay
            from kvgate.manifests.helm.releases import is_helmfile, read_helmfile
            from kvgate.manifests.helm.values import read_values

            overlay = overlay_of(tree, file.path)
            if overlay is not None:
                yield from read_overlay(tree, file, document, overlay)
                return
            reader = read_helmfile if is_helmfile(document) else read_values
            yield from _or_commands(tree, file, document, reader(tree, file, document))


def _or_commands(
    tree: Tree, file: SourceFile, document: Node, found: Iterator[ServeUnit | Unread]
) -> Iterator[ServeUnit | Unread]:
    """What a reader found; where that is nothing, what the commands of the document start."""
    first = next(found, None)
    if first is not None:
        yield first
        yield from found
    elif _STARTS.search(file.text, document.span.start, document.span.end):
        from kvgate.manifests.keyed_commands import read_keyed_commands

        yield from read_keyed_commands(tree, file, document)


def _read_kubernetes(
    tree: Tree, file: SourceFile, document: Node, kustomize: Kustomize
) -> Iterator[ServeUnit | Unread]:
    owners = kustomize.owners(file.path)
    if owners:
        from kvgate.manifests.kustomize import transformed_by_owner

        document = transformed_by_owner(document, owners)
    yield from _read_object(tree, file, document)


def _read_kustomization(tree: Tree, file: SourceFile, document: Node) -> Iterator[ServeUnit | Unread]:
    """The servers that a kustomization makes of those of its resources."""
    from kvgate.manifests.kustomize import built_objects, origins_of_config_maps
    from kvgate.manifests.peers import peers_of

    if node_at(document, "helmCharts") is not None:
        from kvgate.manifests.helm.releases import read_helm_charts

        yield from read_helm_charts(tree, file, document)

    @cache
    def made() -> tuple[tuple[SourceFile, Node], ...]:
        return tuple(origins_of_config_maps(tree, file, document))

    moves = node_at(document, "namespace") is not None
    folder = posixpath.dirname(file.path)
    for built in built_objects(tree, file, document):
        with peers_of(tree).moved(moves, made):
            found = list(_read_object(tree, built.file, built.document, built.span))
        if built.given is not None and any(isinstance(unit, ServeUnit) for unit in found):
            place = built.given.origin.span
            if not built.patched:
                before = _read_object(tree, place.file, built.given.node)
                if servers_among(found) == servers_among(before):
                    continue
            tree.overlaid.setdefault((place.file.path, place.start), set()).add(file.path)
        own = built.given is not None and posixpath.dirname(built.given.origin.span.path) == folder
        for unit in found:
            if isinstance(unit, ServeUnit) and folder and not own:
                # overlays of one base are told apart by their folders
                yield replace(unit, id=f"{unit.id}@{posixpath.basename(folder)}")
            else:
                yield unit


def _read_object(
    tree: Tree, file: SourceFile, document: Node, span: Span | None = None
) -> Iterator[ServeUnit | Unread]:
    """The serve units of one Kubernetes object, whatever its kind.

    Args:
        span: where what stands in another file (a patched base) counts as beginning.
    """
    from kvgate.manifests.kinds import read_kinds

    for found in read_kinds(tree, file, document):
        if span is not None and isinstance(found, ServeUnit) and found.span.file is not file:
            yield replace(found, span=span)
        else:
            yield found


def _problems(stream: YamlStream) -> Iterator[Unread]:
    if not stream.problems:
        return
    serves = _STARTS.search(stream.file.text) is not None
    if is_template_name(stream.file.path):
        if serves:  # another program makes YAML of it
            yield Unread("a template, not rendered: it is no YAML before", stream.problems[0].span, serves=True)
        return
    lines: set[int] = set()
    for problem in stream.problems:
        if problem.kind != "duplicate-key" and problem.span.line not in lines:
            lines.add(problem.span.line)
            yield Unread(problem.message, problem.span, rule="unparsable-manifest", serves=serves)
