"""``docker run`` and its relatives in scripts: the container that such a command starts.

The options are those of ``docker run`` (Docker 28), ``podman run`` and ``nerdctl run``. Boolean options are listed,
since every other one takes a value; an option that is not known may shift what follows by a word at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kvgate.manifests.container import CONTAINER_PROGRAMS, Container, ContainerRun, Find
from kvgate.manifests.entrypoint import is_vllm_image
from kvgate.manifests.quantities import size_bytes
from kvgate.manifests.unit import GpuRequest, SharedMemory
from kvgate.records import record
from kvgate.shell.command import Command, basename, path_of
from kvgate.shell.expand import unset
from kvgate.shell.value import Value, value_of_word
from kvgate.source.text import Span, Text, Word

_STARTS: Final = frozenset({"run", "create"})

_SWITCHES: Final = frozenset(
    {
        "--detach", "--disable-content-trust", "--env-host", "--help", "--init", "--interactive", "--no-healthcheck",
        "--no-hosts", "--oom-kill-disable", "--privileged", "--publish-all", "--quiet", "--read-only", "--replace",
        "--rm", "--rmi", "--sig-proxy", "--tls-verify", "--tty",
    }
)  # fmt: skip
_SHORT_SWITCHES: Final = "dDiPqt"
# Global options that stand between the program and its command.
_GLOBAL_WITH_VALUE: Final = frozenset(
    {"-H", "--host", "-c", "--context", "-l", "--log-level", "--config", "-n", "--namespace", "--connection", "--url"}
)


@record
class _Options:
    """Options by their long name, each occurrence as a word, and where the image stands among the words."""

    values: Mapping[str, tuple[Word, ...]]
    image: int


_LONG_NAMES: Final = {"-e": "--env", "-v": "--volume", "-w": "--workdir", "-l": "--label", "-p": "--publish"}


def container_of(command: Command, find: Find | None) -> tuple[Container, ContainerRun] | None:
    """The container that a command of a script starts; None where it starts none."""
    words = command.words
    first = _first_option(words)
    if first is None:
        return None
    options = _options(words, first)
    if options is None:
        return None
    image = words[options.image]
    if runs_what_is_not_known(words) and not ("/" in image.value and is_vllm_image(image.value)):
        return None  # `uv run` and the like
    environment, spans = _environment(options.values, command, find)
    devices = tuple(_devices(options.values, environment, spans))
    name = next((word.value for word in options.values.get("--name", ()) if word.resolved), None)
    given, arguments = options.values.get("--entrypoint", ()), words[options.image + 1 :]
    entrypoint = tuple(word for word in given if word.value)
    if given and not entrypoint:
        entrypoint, arguments = arguments, ()  # an empty entry point clears the image's
    mounts = tuple(_mounts(options.values))
    container = Container(
        command=entrypoint or None,
        arguments=arguments,
        image=image,
        environment=environment,
        span=command.span,
        named="vllm" in f"{name or ''} {'' if image.resolved else image.value}".lower(),
        accelerated=bool(devices),
        find=lambda path: _mounted(mounts, path, find),
    )
    labels = {
        key: text.slice(len(key) + 1, len(text))
        for word in options.values.get("--label", ())
        for text in (word.text,)
        if (key := text.value.partition("=")[0]).startswith("kvgate.dev/") and word.resolved
    }
    run = ContainerRun(image, environment, spans, devices, _shared_memory(options.values), name, labels)
    return container, run


def _first_option(words: Sequence[Word]) -> int | None:
    """Where the options of ``run`` begin: after ``docker run``, ``docker container run``, ``sudo docker -H x run``."""
    for index, word in enumerate(words):
        if basename(word) not in CONTAINER_PROGRAMS:
            continue
        at = index + 1
        while at < len(words) and words[at].value.startswith("-"):
            at += 2 if words[at].value in _GLOBAL_WITH_VALUE else 1
        if at < len(words) and words[at].value in ("container", "service"):
            at += 1
        return at + 1 if at < len(words) and words[at].value in _STARTS else None
    return 2 if runs_what_is_not_known(words) else None


def runs_what_is_not_known(words: Sequence[Word]) -> bool:
    """``"$ENGINE" run ...``: whether a program that the files do not name is told to run something."""
    return len(words) > 2 and words[1].value == "run" and not words[0].resolved and not basename(words[0])


def _options(words: Sequence[Word], at: int) -> _Options | None:
    values: dict[str, list[Word]] = {}
    while at < len(words):
        word = words[at]
        text = word.value
        if not text.startswith("-"):
            if not _may_be_options(word):
                return _Options({name: tuple(found) for name, found in values.items()}, at)
            at += 1
            continue
        at += 1
        if word.splits and len(text.split()) > 1:  # options that are there on a condition
            if "--gpus" in text.split():
                values.setdefault("--gpus", []).append(word)
            continue
        if text.startswith("--"):
            name, equals, rest = text.partition("=")
            if equals:
                values.setdefault(name, []).append(_cut(word, len(text) - len(rest)))
            elif name not in _SWITCHES and at < len(words):
                values.setdefault(name, []).append(words[at])
                at += 1
            continue
        letters = text[1:]
        switches = len(letters) - len(letters.lstrip(_SHORT_SWITCHES))
        if switches == len(letters):
            continue
        name = _LONG_NAMES.get("-" + letters[switches], "-" + letters[switches])
        if switches + 1 < len(letters):
            values.setdefault(name, []).append(_cut(word, switches + 2 + (letters[switches + 1] == "=")))
        elif at < len(words):
            values.setdefault(name, []).append(words[at])
            at += 1
    return None


def _may_be_options(word: Word) -> bool:
    """Whether a word before the image stands for options that nobody can see (``$GPU_FLAGS``)."""
    if word.resolved or not word.splits:
        return False
    return not re.search(r"image|img|repo|tag|vllm", word.value, re.IGNORECASE)


def _cut(word: Word, start: int) -> Word:
    return value_of_word(word).slice(start, len(word.text)).word(quoted=not word.splits)


def _environment(
    options: Mapping[str, Sequence[Word]], command: Command, find: Find | None
) -> tuple[dict[str, Value], dict[str, Span]]:
    values: dict[str, Value] = {}
    spans: dict[str, Span] = {}
    exported = {item.name: item.value for item in command.environment}
    for word in options.get("--env-file", ()):
        found = find(word.value) if find is not None and word.resolved else None
        if found is not None:
            from kvgate.manifests.tree import read_env_text

            for name, value in read_env_text(found.text).items():
                values[name], spans[name] = value, word.span
    for word in options.get("--env", ()):
        name, equals, _ = word.value.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            continue
        if equals:
            values[name] = value_of_word(_cut(word, len(name) + 1))
        else:
            known = exported.get(name)
            values[name] = known or Value.unknown(Text.at(name, word.span), unset(name), splits=False)
        spans[name] = word.span
    return values, spans


def _devices(
    options: Mapping[str, Sequence[Word]], environment: Mapping[str, Value], spans: Mapping[str, Span]
) -> Iterator[GpuRequest]:
    visible = visible_devices(environment, spans)
    for word in options.get("--gpus", ()):
        yield visible or _gpus(word)
        return
    names = [word for word in options.get("--device", ()) if word.value.startswith("nvidia.com/gpu=")]
    if names:
        every = any(word.value.endswith("=all") for word in names)
        reason = "it gets all GPUs of the machine" if every else None
        yield visible or GpuRequest("device", None if every else len(names), names[0].span, reason)
        return
    for word in options.get("--generic-resource", ()):  # docker service create: NVIDIA-GPU=2
        name, _, count = word.value.partition("=")
        if "gpu" in name.lower():
            yield _gpus(_cut(word, len(name) + 1)) if count.isdecimal() else GpuRequest("device", 1, word.span)
            return
    for name, reason in (
        ("--runtime", "the nvidia runtime gives it what the machine has"),
        ("--device", "which devices it gets is not counted"),
    ):
        for word in options.get(name, ()):
            if word.value in ("nvidia", "habana") or word.value.startswith(("/dev/kfd", "/dev/dri", "/dev/accel")):
                yield visible or GpuRequest("device", None, word.span, reason)
                return


VISIBLE: Final = (
    "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "HABANA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
)  # fmt: skip


def visible_devices(environment: Mapping[str, Value], spans: Mapping[str, Span]) -> GpuRequest | None:
    """The devices that a variable leaves visible (``CUDA_VISIBLE_DEVICES=0,1``); None where none counts them."""
    counts: list[GpuRequest] = []
    for name in VISIBLE:
        value = environment.get(name)
        if value is None or not value.resolved:
            continue
        listed = [part.strip() for part in value.value.split(",") if part.strip()]
        if listed and all(re.fullmatch(r"[0-9]{1,3}|(?:GPU|MIG)-[\w-]+", part) for part in listed):
            counts.append(GpuRequest("device", len(listed), spans.get(name, value.span)))
    return min(counts, key=lambda request: request.count or 0, default=None)


def _gpus(word: Word) -> GpuRequest:
    """``all``, ``2``, ``device=0,1``, ``"device=0,1"``, ``count=2,capabilities=gpu``."""
    if not word.resolved:
        return GpuRequest("device", None, word.span, word.unresolved[0].reason)
    text = word.value.strip("\"' ")
    if re.fullmatch(r"[0-9]{1,4}", text):
        return GpuRequest("device", int(text), word.span)
    match = re.search(r"device=([^\"=]*?)\"?(?:,\w+=.*)?$", text)
    if match:
        names = [part for part in match.group(1).split(",") if part.strip()]
        if "all" not in names:
            return GpuRequest("device", len(names), word.span)
    match = re.search(r"count=([0-9]{1,4})\b", text)
    if match:
        return GpuRequest("device", int(match.group(1)), word.span)
    return GpuRequest("device", None, word.span, "it gets all GPUs of the machine")


def _shared_memory(options: Mapping[str, Sequence[Word]]) -> SharedMemory | None:
    for word in options.get("--ipc", ()):
        if word.value == "host":
            return SharedMemory(None, "ipc: host", word.span)
    for word in options.get("--shm-size", ()):
        return SharedMemory(size_bytes(word.value) if word.resolved else None, "shm_size", word.span)
    return None


@record
class _Mount:
    source: str
    target: str


def _mounts(options: Mapping[str, Sequence[Word]]) -> Iterator[_Mount]:
    for word in options.get("--volume", ()):
        source, _, rest = path_of(word).partition(":")
        target = rest.partition(":")[0].rstrip("/")
        if source.startswith((".", "/", "~")) and target:
            yield _Mount(source.rstrip("/"), target)
    for word in options.get("--mount", ()):
        parts = dict(part.partition("=")[::2] for part in path_of(word).split(","))
        source = parts.get("source") or parts.get("src") or ""
        target = parts.get("target") or parts.get("destination") or parts.get("dst") or ""
        if source and target:
            yield _Mount(source.rstrip("/"), target.rstrip("/"))


def _mounted(mounts: Sequence[_Mount], path: str, find: Find | None) -> Value | None:
    if find is None:
        return None
    for mount in sorted(mounts, key=lambda mount: -len(mount.target)):
        if path == mount.target or path.startswith(mount.target + "/"):
            return find(mount.source + path[len(mount.target) :])
    return None
