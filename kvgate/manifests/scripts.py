"""Shell scripts, and what is read as one: batch files, Makefiles, heredocs."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from kvgate.manifests.ansible import as_role_has_it
from kvgate.manifests.container import Find, Start, beside, find_requirement
from kvgate.manifests.launch import command_line, starts_of_script
from kvgate.manifests.started import Surroundings, unit_of
from kvgate.manifests.tree import Tree
from kvgate.manifests.unit import GpuRequest, NodeHint, ServeUnit, Unread
from kvgate.patterns import regex
from kvgate.shell.expand import interpolate
from kvgate.shell.script import MAX_CHARACTERS
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Text, TooLargeError, Word

MAX_MODES: Final = 12
MAX_IMAGES: Final = 20  # whose Dockerfiles a script writes

# A script without any of these starts no vLLM, nor runs one that does.
_MAY_START: Final = re.compile(
    r"\bserve\b|vllm\.(?:entrypoints|scripts)|vllm[\w.-]{0,100}[/:]|/[\w.-]*vllm|dynamo\.vllm|huggingfaceserver|\.sh\b|\.py\b"
    r"|\b(?:apptainer|docker|finch|nerdctl|podman|singularity)\b[^\n]{0,400}\b(?:create|instance|run)\b"
)
# Variables of llm-d-benchmark's scenarios, which fill a chart's values.
SCENARIO: Final = re.compile(r"\bLLMDBENCH_VLLM_(?:MODELSERVICE|STANDALONE)_\w*ARGS\b")


def read_script(tree: Tree, file: SourceFile) -> Iterator[ServeUnit | Unread]:
    """The serve units of a shell script, one for each server that its modes start, and those of the objects that it
    writes out for Kubernetes."""
    yield from _written_out(tree, file)
    if not _MAY_START.search(file.text) and not SCENARIO.search(file.text):
        return
    text = as_role_has_it(tree, file).text
    find = beside(tree, file)
    try:
        starts = _starts_of_modes(text, find, _of_job(file))
    except TooLargeError as error:
        yield Unread(f"{error} is not read", file.line_span(1), serves=True)
        return
    if not starts and SCENARIO.search(file.text):
        from kvgate.manifests.llmdbench import read_scenario

        yield from read_scenario(file, find)
        return
    if not starts:
        yield from _written_images(tree, file)
    requirement = find_requirement([text])
    allotted, hints = _allotted(file)
    numbers: dict[str, int] = {}
    for mode, start in starts:
        around = Surroundings(
            file=file,
            kind="script",
            names=(mode,) if mode else (),
            allotted=allotted,
            hints=hints,
            requirement=requirement,
        )
        yield unit_of(start, around, numbers.get(mode, 0))
        numbers[mode] = numbers.get(mode, 0) + 1


# Options of Slurm's sbatch (man page of 24.05) by which a job asks for GPUs, and for more nodes than one; without such
# lines, those of srun.
_SRUN: Final = r"(?m)(?:^#SBATCH|^[^#\n]{0,200}\bsrun\b(?:[^\n\\]|\\\n){0,400}?)[ \t]+"
_JOB_GPUS: Final = regex(
    _SRUN + r"(?:--gres[= ]gpu:|--gpus(?:-per-node)?[= ]|-G[ \t]*)(?:(?P<name>[A-Za-z][\w.-]*):)?"
    r"(?P<count>[0-9]{1,3})(?![\w:])"
)
_JOB_NODES: Final = regex(_SRUN + r"(?:--nodes[= ]|-N[ \t]*)(?!1(?!\S))\S")


# The variables that Slurm sets for a job by its options (man page of sbatch 24.05, "OUTPUT ENVIRONMENT VARIABLES").
_JOB_VARIABLES: Final = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "gres": ("SLURM_GPUS_ON_NODE",),
    "gpus-per-node": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
    "gpus": ("SLURM_GPUS",),
    "gpus-per-task": ("SLURM_GPUS_PER_TASK",),
    "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "cpus-per-task": ("SLURM_CPUS_PER_TASK",),
}
_JOB_LETTERS: Final = {"N": "nodes", "n": "ntasks", "G": "gpus", "c": "cpus-per-task"}
_JOB_OPTION: Final = regex(
    r"(?m)^#SBATCH[ \t]+(?:--(?P<name>gres)[= \t]gpu:|--(?!gres)(?P<other>[a-z-]+)[= \t]|-(?P<letter>[NnGc])[ \t]*)"
    r"(?:[A-Za-z][\w.-]*:)?(?P<count>[0-9]{1,5})(?![\w:,-])"
)


def _of_job(file: SourceFile) -> dict[str, Value]:
    """What a batch job of Slurm finds set: what its script asks for."""
    found: dict[str, Value] = {}
    for match in _JOB_OPTION.finditer(file.text) if "#SBATCH" in file.text else ():
        option = match["name"] or match["other"] or _JOB_LETTERS[match["letter"]]
        for name in _JOB_VARIABLES.get(option, ()):
            found.setdefault(name, Value(Text.of_span(file.span(*match.span("count")))))
    return found


def _allotted(file: SourceFile) -> tuple[tuple[GpuRequest, ...], tuple[NodeHint, ...]]:
    """The GPUs of the one node that a job of Slurm runs on, and their name."""
    match = _JOB_GPUS.search(file.text) if "#SBATCH" in file.text or "srun" in file.text else None
    if match is None or _JOB_NODES.search(file.text):
        return (), ()
    place = file.span(match.start(), match.end())
    hints = (NodeHint("gpu", (match["name"],), place),) if match["name"] else ()
    return (GpuRequest("device", int(match["count"]), place),), hints


_HERE_DOCUMENT: Final = regex(r"<<-?[ \t]*(?P<quote>['\"]?)(?P<end>[A-Za-z_]\w*)(?P=quote)[^\n]*(?:\n|\Z)")
_LONE_WORD: Final = regex(r"(?m)^[ \t]*([A-Za-z_]\w*)[ \t]*$")


def _here_documents(text: str) -> Iterator[tuple[bool, int, int]]:
    """Whether variables stay as they are in it, begin and end of each here document of a script."""
    ends: dict[str, list[int]] = {}
    for match in _LONE_WORD.finditer(text):
        ends.setdefault(match[1], []).append(match.start())
    at = 0
    while (opening := _HERE_DOCUMENT.search(text, at)) is not None:
        begin = at = opening.end()
        places = ends.get(opening["end"], [])
        index = bisect_left(places, begin)
        if index < len(places):
            at = places[index]
            yield bool(opening["quote"]), begin, at


# What a here document has in it that is written for another program: an object, a Compose file, a unit.
# Each is known by lines that it has all of.
_UNIT: Final = (regex(r"(?m)^\[(?:Service|Container)\][ \t]*\r?$"),)
_WRITTEN: Final = (
    (regex(r"(?m)^[ \t]*apiVersion:"), regex(r"(?m)^[ \t]*kind:")),
    (regex(r"(?m)^services:[ \t]*\r?$"),),
    _UNIT,
)


def _written_out(tree: Tree, file: SourceFile) -> Iterator[ServeUnit | Unread]:
    """What stands in here documents (``kubectl apply -f - <<EOF``), with the variables that the script ends with."""
    if "<<" not in file.text or len(file.text) > MAX_CHARACTERS:
        return
    documents = list(_here_documents(file.text))
    known: Mapping[str, Value] | None = None

    def filled(quoted: bool, begin: int, end: int) -> Value:
        nonlocal known
        value = Value(Text.of_span(file.span(begin, end)))
        if quoted:
            return value
        if known is None:
            known = _variables(tree, file, Text.of_span(file.span(0, len(file.text))))
        return _filled_in(value, known)

    targets: dict[str, tuple[bool, int, int]] = {}

    def written_to(path: str) -> Value | None:
        """What the script writes into the file of a path itself."""
        if not targets:
            for document in documents:
                line = file.text[file.text.rfind("\n", 0, document[1] - 1) + 1 : document[1]]
                targets.update({word.lstrip(">").strip("\"'"): document for word in line.split()})
        return filled(*targets[path]) if path in targets else None

    for quoted, begin, end in documents:
        body = file.text[begin:end]
        marks = next((marks for marks in _WRITTEN if all(mark.search(body) for mark in marks)), None)
        if marks is None or not _may_serve(body):
            continue
        value = filled(quoted, begin, end)
        if marks is _UNIT:
            from kvgate.manifests.systemd import read_systemd

            yield from read_systemd(tree, file, value, written_to)
        else:
            yield from _written_documents(tree, file, value)


def _may_serve(body: str) -> bool:
    return "vllm" in body.lower() or "kaito.sh/" in body


def read_here_documents(
    tree: Tree, file: SourceFile, script: Value, *, units: bool = False
) -> Iterator[ServeUnit | Unread]:
    """The serve units of objects and services in the here documents of a script that another file carries.

    Args:
        units: also those of systemd's unit files, as a machine's first script writes them.
    """
    known: Mapping[str, Value] | None = None if units else {}
    for quoted, begin, end in _here_documents(script.value) if "<<" in script.value else ():
        body = script.value[begin:end]
        marks = next((marks for marks in _WRITTEN if all(mark.search(body) for mark in marks)), None)
        if marks is None or (marks is _UNIT and not units) or not _may_serve(body) or end > MAX_CHARACTERS:
            continue
        value = script.slice(begin, end)
        if not quoted:
            if known is None:
                known = _variables(tree, file, script.text)
            value = _filled_in(value, known)
        if marks is _UNIT:
            from kvgate.manifests.systemd import read_systemd

            yield from read_systemd(tree, file, value)
        else:
            yield from _written_documents(tree, file, value)


def _variables(tree: Tree, file: SourceFile, script: Text) -> Mapping[str, Value]:
    """The variables that a script ends with."""
    from kvgate.shell.script import variables

    try:
        return variables(script, find=beside(tree, file))
    except TooLargeError:
        return {}


_IMAGE: Final = (regex(r"(?m)^[ \t]*FROM[ \t]+\S"), regex(r"(?m)^[ \t]*(?:CMD|ENTRYPOINT)[ \t]"))


def _written_images(tree: Tree, file: SourceFile) -> Iterator[ServeUnit | Unread]:
    """What the images start whose Dockerfiles a script writes, where it starts no server with words of its own."""
    count = 0
    for _, begin, end in _here_documents(file.text) if "FROM" in file.text else ():
        body = file.text[begin:end]
        if count < MAX_IMAGES and "vllm" in body.lower() and all(mark.search(body) for mark in _IMAGE):
            from kvgate.manifests.dockerfile import read_dockerfile

            count += 1
            # every line stays where it is
            yield from read_dockerfile(tree, SourceFile(file.path, re.sub(r"[^\n]", " ", file.text[:begin]) + body))


_ESCAPED: Final = regex(r"\\(?:[$`\\]|\r?\n)")


def _filled_in(value: Value, known: Mapping[str, Value]) -> Value:
    """A here document whose end mark is unquoted, as the shell hands it on."""
    parts: list[Value] = []
    at = 0
    for match in _ESCAPED.finditer(value.value):
        parts.append(interpolate(value.slice(at, match.start()), known))
        if not match.group().endswith("\n"):
            parts.append(value.slice(match.start() + 1, match.end()))
        at = match.end()
    return Value.join([*parts, interpolate(value.slice(at, len(value.text)), known)])


def _written_documents(tree: Tree, file: SourceFile, value: Value) -> Iterator[ServeUnit | Unread]:
    from kvgate.manifests.compose import read_compose
    from kvgate.manifests.helm.chart import documents_of
    from kvgate.manifests.kinds import read_kinds
    from kvgate.manifests.shapes import is_compose, is_kubernetes

    for document in documents_of(value).documents:
        if is_kubernetes(document):
            yield from read_kinds(tree, file, document)
        elif is_compose(document):
            yield from read_compose(tree, file, document)


def _starts_of_modes(text: Text, find: Find, environment: Mapping[str, Value]) -> list[tuple[str, Start]]:
    """The servers that the words of a script's ``case "$1"`` make it start, and those that it starts without.

    A server of a mode begins where the mode's name stands before its settings.
    """
    by_itself = _once(starts_of_script(text, environment, find))
    seen: dict[tuple[object, ...], Start] = {}
    of_modes: list[tuple[str, Start]] = []
    modes = _modes(text)
    for mode in modes:
        for start in starts_of_script(text, environment, find, arguments=(mode,)):
            if _key(start) not in seen and not any(word.span == mode.span for word in start.words):
                seen[_key(start)] = start
                of_modes.append((mode.value, replace(start, span=mode.span)))
    if len({_key(start) for _, start in of_modes}) < 2:
        # a script may stop if it is told nothing
        return [("", start) for start in by_itself or seen.values()]
    # without its first argument a script may stop, or know less than with each of those it offers
    holes = {start.span.start: _holes(start) for start in reversed(seen.values())}
    rest = [
        ("", start)
        for start in by_itself
        if _key(start) not in seen and _holes(start) <= holes.get(start.span.start, _holes(start))
    ]
    return rest + of_modes


def _once(starts: list[Start]) -> list[Start]:
    """Without the servers of words that another place of the script starts already: one list of words, run in the
    foreground by one function and in the background by another, is one server."""
    places: dict[tuple[object, ...], Span] = {}
    kept: list[Start] = []
    for start in starts:
        key = (command_line(start), tuple(word.span for word in start.words))
        if places.setdefault(key, start.span) == start.span or not start.words:
            kept.append(start)
    return kept


def _holes(start: Start) -> int:
    return sum(len(word.unresolved) for word in start.words)


def _key(start: Start) -> tuple[object, ...]:
    words = tuple(word.value for word in start.words)
    image = start.run.image if start.run is not None else None
    return (words, start.entry, image.value if image is not None else None)


_CASE: Final = re.compile(r"""(?m)\bcase\s+["']?\$\{?(?P<name>1|[A-Za-z_]\w*)(?::-[^}"']*)?\}?["']?\s+in\b""")
# A comparison of the same, of a script that tells its modes apart by `if`.
_IF: Final = re.compile(
    r"""(?m)^(?:el)?if[ \t]+\[\[?\s+["']?\$\{?(?P<name>1|[A-Za-z_]\w*)(?::-[^}"']*)?\}?["']?\s+==?\s+"""
    r"""["']?(?P<word>[\w+./-]+)["']?\s+\]"""
)
_FROM_FIRST: Final = r"(?m)^[ \t]*(?:(?:local|export|readonly)[ \t]+)*{}=[\"']?\$(?:1\b|\{{1[}}:])"
_PATTERN: Final = re.compile(r"(?m)^[ \t]*(?:\([ \t]*)?(?P<patterns>[\"'\w+./|-][\"'\w+./|\t -]*?)\)(?=\s|$)")


def _modes(text: Text) -> list[Word]:
    """Words that a script offers as its first argument: the plain patterns of a ``case`` over it, or what it is
    compared with.

    Each stands where it has a case of its own, else where it is mentioned first.
    """
    source = text.value
    found: dict[str, tuple[int, Word]] = {}
    first: dict[str, bool] = {"1": True}

    def is_first(name: str) -> bool:
        if name not in first:
            first[name] = re.search(_FROM_FIRST.format(re.escape(name)), source) is not None
        return first[name]

    for match in _IF.finditer(source):
        if is_first(match["name"]) and not match["word"].startswith("-"):
            found.setdefault(match["word"], (1, Word(text.slice(*match.span("word")))))
    for case in _CASE.finditer(source):
        if not is_first(case["name"]):
            continue
        end = re.compile(r"(?m)^[ \t]*esac\b").search(source, case.end())
        for match in _PATTERN.finditer(source, case.end(), end.start() if end else len(source)):
            at = match.start("patterns")
            parts = match["patterns"].split("|")
            for part in parts:
                word = part.strip().strip("\"'")
                if word and not word.startswith("-") and not re.search(r"\s", word):
                    start = at + part.index(word)
                    if word not in found or len(parts) < found[word][0]:
                        found[word] = (len(parts), Word(text.slice(start, start + len(word))))
                at += len(part) + 1
    return [word for _, word in found.values()][:MAX_MODES]
