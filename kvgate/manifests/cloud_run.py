"""Programs of clouds and clusters that start a container: ``gcloud run deploy``, ``kubectl run`` and others.

One table says under which options each takes its image, command, arguments, variables and GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from kvgate.manifests.container import Container, ContainerRun
from kvgate.manifests.unit import GpuRequest, NodeHint
from kvgate.records import record
from kvgate.shell.command import Command, basename
from kvgate.shell.value import Value, value_of_word
from kvgate.shell.words import split_words
from kvgate.source.text import Span, Word


@record
class CloudProgram:
    """One way to start a container.

    Attributes:
        words: the program and its subcommand; release tracks (``beta``) between them do not count.
        lists: how its lists are written: ``comma`` as gcloud does, ``text`` as a command line, ``words`` one by one.
        image, command, arguments, environment, gpus: options; the arguments may stand behind ``--`` instead.
        gpu_type: the option that names the GPU.
    """

    words: tuple[str, ...]
    lists: Literal["comma", "text", "words"]
    image: str
    command: str = ""
    arguments: str = ""
    environment: tuple[str, ...] = ()
    gpus: str = ""
    gpu_type: str = ""
    name: str = ""


PROGRAMS: Final = (
    # https://cloud.google.com/sdk/gcloud/reference/run/deploy
    CloudProgram(
        ("gcloud", "run", "deploy"), "comma", "--image", "--command", "--args", ("--set-env-vars", "--update-env-vars"),
        "--gpu", "--gpu-type",
    ),
    CloudProgram(
        ("gcloud", "run", "jobs", "create"), "comma", "--image", "--command", "--args", ("--set-env-vars",),
        "--gpu", "--gpu-type",
    ),
    # https://cloud.google.com/sdk/gcloud/reference/ai/models/upload
    CloudProgram(
        ("gcloud", "ai", "models", "upload"), "comma", "--container-image-uri", "--container-command",
        "--container-args", ("--container-env-vars",),
    ),
    # https://kubernetes.io/docs/reference/kubectl/generated/kubectl_run/
    CloudProgram(("kubectl", "run"), "words", "--image", environment=("--env",)),
    CloudProgram(("oc", "run"), "words", "--image", environment=("--env",)),
    # https://learn.microsoft.com/cli/azure/container
    CloudProgram(("az", "container", "create"), "text", "--image", "--command-line", gpus="--gpu-count", name="--name"),
    # https://github.com/runpod/runpodctl and https://docs.vast.ai/cli
    CloudProgram(
        ("runpodctl", "create", "pod"), "text", "--imageName", arguments="--args", environment=("--env",),
        gpus="--gpuCount", gpu_type="--gpuType", name="--name",
    ),
    CloudProgram(("vastai", "create", "instance"), "text", "--image", "--onstart-cmd", "--args"),
)  # fmt: skip
_TRACKS: Final = frozenset({"alpha", "beta", "preview"})
_SEPARATOR: Final = re.compile(r"\^([^\^]+)\^")


def cloud_container_of(command: Command) -> tuple[Container, ContainerRun] | None:
    """The container that a command starts with one of these programs; None where it is no such command."""
    for program in PROGRAMS:
        at = _after(command.words, program.words)
        if at is not None:
            return _container(program, command, command.words[at:])
    return None


def _after(words: Sequence[Word], names: Sequence[str]) -> int | None:
    """Where the words behind a program and its subcommand begin."""
    left = list(names)
    for index, word in enumerate(words):
        value = basename(word) if len(left) == len(names) else word.value
        if value == left[0]:
            left.pop(0)
            if not left:
                return index + 1
        elif len(left) < len(names) and value not in _TRACKS:
            return None
    return None


def _container(program: CloudProgram, command: Command, words: Sequence[Word]) -> tuple[Container, ContainerRun] | None:
    options, rest = _options(words)
    image = next(iter(options.get(program.image, ())), None)
    if image is None:
        return None
    environment: dict[str, Value] = {}
    spans: dict[str, Span] = {}
    for name in program.environment:
        for item in _listed(options.get(name, ()), "comma" if program.lists == "comma" else "words"):
            key, equals, _ = item.value.partition("=")
            if equals:
                environment[key] = value_of_word(item).slice(len(key) + 1, len(item.text))
                spans[key] = item.span
    devices = tuple(_devices(program, options))
    arguments = (*_listed(options.get(program.arguments, ()), program.lists), *rest)
    start = tuple(_listed(options.get(program.command, ()), program.lists))
    if program.words[-1] == "run" and "--command" in options:
        start, arguments = arguments, ()
    named = next((word.value for word in options.get(program.name, ()) if word.resolved), None)
    if named is None and words and words[0].resolved and not words[0].value.startswith("-"):
        named = words[0].value
    container = Container(
        command=start or None,
        arguments=arguments,
        image=image,
        environment=environment,
        span=command.span,
        named="vllm" in f"{named or ''} {'' if image.resolved else image.value}".lower(),
        accelerated=bool(devices),
    )
    hints = tuple(
        NodeHint("gpu", (word.value,), word.span) for word in options.get(program.gpu_type, ()) if word.resolved
    )
    return container, ContainerRun(image, environment, spans, devices, None, named, {}, hints)


def _options(words: Sequence[Word]) -> tuple[dict[str, list[Word]], tuple[Word, ...]]:
    """Options with their values (``--x=y``, ``--x y``), and what is behind ``--``."""
    options: dict[str, list[Word]] = {}
    current: list[Word] | None = None
    for index, word in enumerate(words):
        text = word.value
        if text == "--":
            return options, tuple(words[index + 1 :])
        if current is not None and (not text.startswith("-") or " " in text):
            current.append(word)
            current = None
        elif text.startswith("-"):
            name, equals, _ = text.partition("=")
            current = options.setdefault(name, [])
            if equals:
                current.append(value_of_word(word).slice(len(name) + 1, len(word.text)).word())
                current = None
    return options, ()


def _listed(values: Sequence[Word], lists: str) -> Iterator[Word]:
    for word in values:
        value = value_of_word(word)
        if lists == "words":
            yield word
        elif lists == "text":
            yield from split_words(value)
        else:
            # `gcloud topic escaping`: ^X^ in front makes X the separator
            match = _SEPARATOR.match(word.value)
            separator, at = (match.group(1), match.end()) if match else (",", 0)
            for part in word.value[at:].split(separator):
                if part:
                    yield value.slice(at, at + len(part)).word()
                at += len(part) + len(separator)


def _devices(program: CloudProgram, options: Mapping[str, Sequence[Word]]) -> Iterator[GpuRequest]:
    for word in options.get(program.gpus, ()):
        known = word.resolved and re.fullmatch(r"[0-9]{1,4}", word.value)
        reason = None if known else word.unresolved[0].reason if word.unresolved else "not stated as a number"
        yield GpuRequest("device", int(word.value) if known else None, word.span, reason)
        return
    for word in options.get(program.gpu_type, ()):
        yield GpuRequest("device", 1, word.span)
