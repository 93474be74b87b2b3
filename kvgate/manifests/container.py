"""What the readers know of a container and of a start of vLLM in it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kvgate.manifests.tree import Tree
from kvgate.manifests.unit import EnvironmentVariable, GpuRequest, NodeHint, SharedMemory
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.shell.command import Assignment
from kvgate.shell.expand import mark_placeholders
from kvgate.shell.value import Value
from kvgate.source.text import SourceFile, Span, Text, Unresolved, Word
from kvgate.source.yaml_tree import Scalar, scalar_bool

# Programs that start containers, and what of theirs looks like it.
SHARING_PROGRAMS: Final = frozenset({"apptainer", "singularity"})
CONTAINER_PROGRAMS: Final = frozenset({"docker", "podman", "nerdctl", "finch"})
CLOUD_PROGRAMS: Final = frozenset({"az", "gcloud", "kubectl", "oc", "runpodctl", "vastai"})

# Text of a file by the path under which it is known where a start happens.
Find = Callable[[str], "Value | None"]


@record
class ContainerRun:
    """What a script says about a container that it starts itself (``docker run``), and about the machine it gets.

    ``shares``: the container sees the devices of what starts it, and its variables.
    """

    image: Word | None
    environment: Mapping[str, Value]
    spans: Mapping[str, Span]
    devices: tuple[GpuRequest, ...]
    shared_memory: SharedMemory | None
    name: str | None
    labels: Mapping[str, Text]
    hints: tuple[NodeHint, ...] = ()
    shares: bool = False


@record
class Start:
    """One start of vLLM: the words after its entry point and what is known around it.

    ``run`` is the container that the script puts around it, None where it starts it in its own surroundings; ``caller``
    is where the script runs the one in which the start stands, None where that is the script itself.
    """

    words: tuple[Word, ...]
    entry: str
    positional_model: bool
    environment: tuple[Assignment, ...]
    span: Span
    storage_model: Word | None = None
    notes: tuple[Unresolved, ...] = ()
    run: ContainerRun | None = None
    caller: Span | None = None


@record
class Container:
    """What a reader knows of one container.

    Attributes:
        command: what replaces the image's entry point; None when the manifest does not say.
        arguments: what follows the command or the image's entry point.
        image: None where the file names none (a patch, a build).
        environment: name -> value.
        span: where the container begins.
        named: the name of the container, its object or its build says vLLM.
        accelerated: it asks for an accelerator.
        service: it keeps running (no Job).
        find: texts of files by their path inside the container.
        managed: a controller starts vLLM in it with these arguments unless it has a command of its own.
        stored: its controller mounts the model that it serves.
        tree: files among which Python programs look for modules; None where only the program itself is at hand.
        serves: it exists to serve, so that a script which is not at hand starts vLLM if it says so in any way.
        unbuilt: by what it is called after vLLM whose image is built of files that are not at hand.
    """

    command: tuple[Word, ...] | None
    arguments: tuple[Word, ...]
    image: Word | None
    environment: Mapping[str, Value]
    span: Span
    named: bool
    accelerated: bool
    service: bool = True
    find: Find | None = None
    managed: bool = False
    stored: bool = False
    serves: bool = False
    tree: Tree | None = None
    unbuilt: Text | None = None


@record
class Argument:
    """A value of a manifest that a controller hands to the server under a flag; for true the flag alone."""

    flag: str
    value: Scalar

    def words(self) -> tuple[Word, ...]:
        flag = Word(Text.at(self.flag, self.value.span))
        if scalar_bool(self.value) is True:
            return (flag,)
        return flag, mark_placeholders(Value(self.value.text)).word()


def beside(tree: Tree, file: SourceFile) -> Find:
    """Looks files up as a script of the tree names them: from its own folder, else from the root."""
    folder = posixpath.dirname(file.path)

    def find(path: str) -> Value | None:
        if path.startswith(("/", "~")):
            return None
        for base in dict.fromkeys((folder, "")):
            found = tree.use(posixpath.join(base, path))
            if found is not None and found is not file:
                return Value(Text.of_span(found.span(0, len(found.text))))
        return None

    return find


_REQUIREMENT: Final = regex(r"vllm(?<![\w./-]vllm)(?:\[[\w,-]+\])?\s?==\s?[0-9][\w.+!]*")


def find_requirement(texts: Iterable[Text]) -> Word | None:
    """The pip requirement that pins vLLM in one of the texts; None where none does, or they disagree."""
    found: dict[str, Word] = {}
    for text in texts:
        for match in _REQUIREMENT.finditer(text.value):
            found.setdefault(re.sub(r"\s", "", match.group()), Word(text.slice(match.start(), match.end())))
    return next(iter(found.values())) if len(found) == 1 else None


def environment_of(
    values: Mapping[str, Value], spans: Mapping[str, Span], added: Sequence[Assignment] = ()
) -> tuple[EnvironmentVariable, ...]:
    """The environment of a unit: what its container declares, then what its script exports."""
    result: dict[str, EnvironmentVariable] = {}
    for name, value in values.items():
        result[name] = _variable(name, value, spans.get(name, value.span))
    for item in added:
        result[item.name] = _variable(item.name, item.value, item.span)
    return tuple(result.values())


def _variable(name: str, value: Value, span: Span) -> EnvironmentVariable:
    if value.resolved:
        return EnvironmentVariable(name, value.text, None, span)
    unresolved = Unresolved(value.value, value.holes[0].unresolved.reason)
    return EnvironmentVariable(name, None, unresolved, span)
