"""Apptainer and Singularity (user guide of Apptainer 1.3): containers of scripts that share what starts them.

They see the environment of the command, but for what ``--cleanenv`` takes away, and the GPUs and shared memory of its
machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kvgate.manifests.container import SHARING_PROGRAMS, Container, ContainerRun, Find
from kvgate.manifests.unit import SharedMemory
from kvgate.patterns import regex
from kvgate.shell.command import Command, basename
from kvgate.shell.value import Value, value_of_word
from kvgate.source.text import Span, Text, Word

_WITH_VALUE: Final = frozenset(
    {
        "--add-caps", "--app", "--apply-cgroups", "--bind", "--config", "--cpus", "--cpuset-cpus", "--cwd", "--dns",
        "--docker-host", "--drop-caps", "--env", "--env-file", "--fusemount", "--home", "--hostname", "--memory",
        "--mount", "--network", "--network-args", "--overlay", "--pwd", "--scratch", "--security", "--shell",
        "--workdir", "-B", "-H", "-S", "-W", "-o",
    }
)  # fmt: skip
_PREFIXES: Final = ("APPTAINERENV_", "SINGULARITYENV_")
# What `pull` calls the file of an image of Docker Hub: by its name and its tag.
_FILE: Final = regex(r"(?:.*/)?(?P<name>vllm-openai(?:-[a-z]+)?)_(?P<tag>[\w.-]+)\.sif")
_PAIR: Final = re.compile(r"(?:^|,)(?P<name>[A-Za-z_]\w*)=")


def sharing_container_of(command: Command, find: Find | None) -> tuple[Container, ContainerRun] | None:
    """The container that a command starts with one of these programs; None where it is no such command."""
    words = command.words
    at = next((index for index, word in enumerate(words) if basename(word) in SHARING_PROGRAMS), None)
    if at is None:
        return None
    _, at = _options(words, at + 1)
    stage = words[at].value if at < len(words) else ""
    if stage == "instance" and at + 1 < len(words):
        at += 1
        if words[at].value not in ("run", "start"):
            return None
    elif stage not in ("exec", "run"):
        return None
    options, at = _options(words, at + 1)
    behind = at + (2 if stage == "instance" else 1)
    if behind > len(words):
        return None
    image = _image(words[at])
    environment, spans = _environment(options, command)
    accelerated = any(name in ("--nv", "--nvccli", "--rocm") for name, _ in options)
    container = Container(
        command=words[behind:] if stage == "exec" else None,
        arguments=() if stage == "exec" else words[behind:],
        image=image,
        environment=environment,
        span=command.span,
        named="vllm" in words[at].value.lower(),
        accelerated=accelerated,
        find=find,
    )
    return container, ContainerRun(image, environment, spans, (), host_memory(command.span), None, {}, shares=True)


def host_memory(span: Span) -> SharedMemory:
    """The shared memory of the machine, which the container sees whole."""
    return SharedMemory(None, "ipc: host", span)


def _options(words: Sequence[Word], at: int) -> tuple[list[tuple[str, Word | None]], int]:
    """Options with their values, and where what is none begins."""
    found: list[tuple[str, Word | None]] = []
    while at < len(words):
        word = words[at]
        name, equals, _ = word.value.partition("=")
        if not name.startswith("-") and (word.resolved or not word.splits or "/" in name or _says_image(name)):
            break
        at += 1
        if equals:
            found.append((name, value_of_word(word).slice(len(name) + 1, len(word.text)).word()))
        elif name in _WITH_VALUE and at < len(words):
            found.append((name, words[at]))
            at += 1
        else:
            found.append((name, None))
    return found, at


def _says_image(text: str) -> bool:
    return re.search(r"sif|ima?ge?|container|vllm", text, re.IGNORECASE) is not None


def _image(word: Word) -> Word | None:
    """The image that a container is made from; None for a file whose name does not say."""
    text = word.value
    if text.startswith("docker://"):
        return value_of_word(word).slice(len("docker://"), len(word.text)).word()
    match = _FILE.fullmatch(value_of_word(word).masked("\0").rpartition("/")[2])
    return None if match is None else Word(Text.at(f"vllm/{match['name']}:{match['tag']}", word.span))


def _environment(
    options: Sequence[tuple[str, Word | None]], command: Command
) -> tuple[dict[str, Value], dict[str, Span]]:
    values: dict[str, Value] = {}
    cleared = any(name in ("--cleanenv", "-e", "--containall", "-C") for name, _ in options)
    for item in command.environment:
        prefix = next((prefix for prefix in _PREFIXES if item.name.startswith(prefix)), "")
        if prefix or not cleared:
            values[item.name.removeprefix(prefix)] = item.value
    for name, word in options:
        if name != "--env" or word is None:
            continue
        stated = value_of_word(word)
        matches = list(_PAIR.finditer(stated.masked()))
        for match, following in zip(matches, [*matches[1:], None], strict=True):
            end = following.start() if following is not None else len(stated.text)
            values[match["name"]] = stated.slice(match.end(), end)
    return values, {name: value.span for name, value in values.items()}
