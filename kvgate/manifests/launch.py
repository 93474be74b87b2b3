"""From a container's command, arguments and image to the vLLM starts in it. Every reader goes through here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from kvgate.manifests.container import CLOUD_PROGRAMS, CONTAINER_PROGRAMS, SHARING_PROGRAMS, Container, Find, Start
from kvgate.manifests.entrypoint import (
    HUGGINGFACE_SERVER,
    Entry,
    count_vllm_flags,
    find_entry,
    has_other_backend,
    is_called_vllm,
    is_companion,
    is_other_program,
    is_python_module,
    is_rank,
    is_simulator,
    is_vllm_image,
    names_model,
    renamed,
    repository_of,
    says_engine,
    speaks_vllm,
    stands_for_vllm_image,
    takes_engine_arguments,
    value_of_flag,
)
from kvgate.manifests.tree import Tree
from kvgate.manifests.unit import IMAGE_ENTRY
from kvgate.patterns import regex
from kvgate.shell.command import SHELLS, Command, basename, names_program, unwrap
from kvgate.shell.value import Value, value_of_word
from kvgate.source.text import SourceFile, Span, Text, Unresolved, Word

# Variables by which launch scripts that are not at hand are told their model, the most telling first.
MODEL_VARIABLES: Final = (
    "VLLM_MODEL",
    "VLLM_MODEL_ID",
    "VLLM_MODEL_NAME",
    "MODEL_ID",
    "HF_MODEL_ID",
    "MODEL_NAME",
    "MODEL_PATH",
    "MODEL",
)

# Variables by which they are told engine arguments, by the names that these have themselves.
ARGUMENT_VARIABLES: Final = {
    "TENSOR_PARALLEL_SIZE": "tensor-parallel-size",
    "TENSOR_PARALLELISM": "tensor-parallel-size",
    "PIPELINE_PARALLEL_SIZE": "pipeline-parallel-size",
    "PIPELINE_PARALLELISM": "pipeline-parallel-size",
    "DATA_PARALLEL_SIZE": "data-parallel-size",
    "MAX_MODEL_LEN": "max-model-len",
    "GPU_MEMORY_UTILIZATION": "gpu-memory-utilization",
    "MAX_NUM_SEQS": "max-num-seqs",
    "MAX_NUM_SEQ": "max-num-seqs",
    "MAX_NUM_BATCHED_TOKENS": "max-num-batched-tokens",
    "KV_CACHE_DTYPE": "kv-cache-dtype",
    "BLOCK_SIZE": "block-size",
    "QUANTIZATION": "quantization",
    "DTYPE": "dtype",
    "SERVED_MODEL_NAME": "served-model-name",
    "HOST": "host",
    "PORT": "port",
}

# Programs that start something else, which then starts vLLM.
_STARTERS: Final = CONTAINER_PROGRAMS | CLOUD_PROGRAMS | SHARING_PROGRAMS | {"dynamo"}

_ADDED: Final = "what the launcher adds to its arguments is not in the files read"

# What stands where the model would, and is none: other subcommands of vLLM, and programs that take its place.
_OTHER_COMMANDS: Final = frozenset(
    {"bench", "chat", "complete", "collect-env", "run-batch", "launch", "vllm", "ray", "sleep", "tail", "true"}
)


def find_starts(container: Container) -> list[Start]:
    """The vLLM servers that a container starts, the files that ``--config`` names read into their words.

    Raises:
        TooLargeError: a script in it is beyond the bounds within which scripts are read.
    """
    found: dict[tuple[object, ...], Start] = {}
    for start in _starts(container):
        if not _only_asks(start):
            # the same command line twice is one server, on two of the ways through the container's script
            found.setdefault(command_line(start), start)
    return list(found.values())


def command_line(start: Start) -> tuple[object, ...]:
    """What tells two servers apart: their words, their variables, and the container around them."""
    words = tuple((word.value, word.resolved) for word in start.words)
    run = start.run
    container = None if run is None else (run.name, run.image.value if run.image is not None else None)
    return (words, tuple((item.name, item.value.value) for item in start.environment), container)


def _starts(container: Container) -> list[Start]:
    image = container.image.value if container.image else ""
    if container.command:
        return _of_command((*container.command, *container.arguments), image, container)
    arguments = container.arguments
    words = renamed(arguments, HUGGINGFACE_SERVER.renames)
    embeds = _is_huggingface_server(image) and speaks_vllm(words, named=True)
    if (container.managed or embeds) and not has_other_backend(arguments):
        return _handed_to_shell(container) or [_start(words, "the controller's configuration", False, container)]
    if container.managed:
        return []
    if arguments and (find_entry(arguments) or _is_command(arguments)):
        return _of_command(arguments, image, container, repeats_entry=takes_engine_arguments(image))
    if takes_engine_arguments(image):
        return _of_image(arguments, container)
    if image and is_other_program(image) and not (is_companion(image) and _serves_in_spite(container)):
        return []
    named = container.named or is_vllm_image(image)
    if named and len(arguments) > 1 and arguments[0].value == "serve" and arguments[0].resolved:
        return [_start(arguments[1:], "vllm serve", True, container)]  # the entry point is vllm itself
    if speaks_vllm(arguments, named=named, stored=container.stored) or (
        is_vllm_image(image) and _begins_with_model(arguments)
    ):
        return [_bare(arguments, container)]
    alone = not arguments and container.service and not _asks_elsewhere(container)
    model = _model_variable(container)
    told, notes = variable_words(container.environment) if alone else ((), ())
    said = container.image.text if container.image and container.accelerated and _is_called_so(image) else None
    if said is None and container.image is None and model is not None and container.accelerated:
        said = container.unbuilt
    if said is None and container.image is not None and not container.image.resolved and container.serves:
        # a template of vLLM's whose image, left to the values, is told the model and arguments by variables
        said = container.image.text if named and model is not None and count_vllm_flags(told) else None
    if alone and said is not None:
        unknown = Unresolved(said.value, "the arguments are inside the image")
        word = Word(said, (unknown,), splits=True)
        return [_start((word, *told), IMAGE_ENTRY, False, container, model=model, notes=notes)]
    # a template whose values bring all arguments, or the model
    to_come = bool(arguments) and (not any(word.resolved for word in arguments) or _is_to_come(arguments[0]))
    if container.serves and container.service and named and to_come:
        # of all arguments the first need not be the model
        positional = not any(sign in arguments[0].value.lower() for sign in ("args", "toyaml"))
        return [_start(arguments, IMAGE_ENTRY, positional, container)]
    return []


def _handed_to_shell(container: Container) -> list[Start]:
    """The servers of a whole command that is the first argument: a controller may hand that to a shell's ``-c``."""
    first = next(iter(container.arguments), None)
    if first is None or "vllm" not in first.value or len(first.value.split()) < 2:
        return []
    return starts_of_script(value_of_word(first), container.environment, container.find)


def _is_called_so(image: str) -> bool:
    return is_called_vllm(image) or stands_for_vllm_image(image)


def _is_huggingface_server(image: str) -> bool:
    """Whether an image's entry point is KServe's server, which embeds the engine (``kserve/huggingfaceserver``)."""
    return repository_of(image).rpartition("/")[2].startswith("huggingfaceserver")


def _serves_in_spite(container: Container) -> bool:
    """Whether a container serves although its image is called after a client or the like: what it is given says so."""
    if container.image is not None and is_simulator(container.image.value):
        return False  # it takes vLLM's arguments, and serves nothing
    flags = count_vllm_flags(container.arguments)
    return container.accelerated and names_model(container.arguments) and flags >= (1 if container.named else 3)


_URL: Final = regex(r"https?://(?!localhost|127\.|0\.0\.0\.0|\[?::)[^/\s]+(?P<path>/v1)?")


def _asks_elsewhere(container: Container) -> bool:
    """Whether a container is told where a server like vLLM answers: what it runs itself is a client of that one."""
    return any(
        (match := _URL.match(value.value)) is not None and (match["path"] is not None or "vllm" in name.lower())
        for name, value in container.environment.items()
    )


def why_unread(container: Container) -> str | None:
    """Why a container in which no start was found may still serve: a vLLM image, or a service that is called after
    vLLM, that runs a script nobody can read."""
    named = is_vllm_image(container.image.value) if container.image else container.serves and container.named
    words = (*(container.command or ()), *container.arguments)
    if not words or not container.accelerated or not named or _asks_elsewhere(container):
        return None
    script = _script(words)
    if script is None:
        script = _script_elsewhere(_commands_of(words, container), container)
    if script is None or (container.find is not None and container.find(script.value) is not None):
        return None
    by = "a vLLM image" if container.image is not None else "a service of vLLM's name"
    return f"{script.value}, which {by} runs here, is not among the files read"


def starts_of_script(
    text: Text | Value,
    environment: Mapping[str, Value],
    find: Find | None = None,
    *,
    arguments: Sequence[Word] | None = None,
) -> list[Start]:
    """The vLLM servers that a whole shell script starts.

    Args:
        arguments: what it is started with; None when nobody knows.

    Raises:
        TooLargeError: the script is beyond the bounds within which scripts are read.
    """
    from kvgate.shell.script import commands

    return starts_of_commands(commands(text, environment, find=find, arguments=arguments), find, environment)


def starts_of_commands(
    found: Sequence[Command], find: Find | None = None, environment: Mapping[str, Value] | None = None
) -> list[Start]:
    """The vLLM servers that commands start, in containers of their own or directly."""
    starts: list[Start] = []
    for command in found:
        inside: list[Start] | None = None
        words = command.words
        # a variable may stand for `docker`
        if any(names_program(word, _STARTERS) for word in words) or (words[1:2] and words[1].value == "run"):
            inside = _of_container_run(command, find)
            if inside is None:
                inside = _of_graph(command, environment or {}, find)
        if inside is None:
            entry = find_entry(command.words)
            inside = [_with_config(_of_entry(entry, command), _find_settings(command, find))] if entry else []
            if entry is not None and has_other_backend(command.words, entry.point):
                inside = []
            inside = [start for start in inside if not _only_asks(start)]
        starts += [
            replace(start, words=tuple(map(_to_be_told, start.words)), caller=command.caller) for start in inside
        ]
    return _without_ranks(starts)


def _without_ranks(starts: list[Start]) -> list[Start]:
    """Without the starts of a script for other nodes of a server that it leads as well."""
    ranks = [is_rank(start.words) for start in starts]
    if not any(ranks):
        return starts
    led = {_model_of(start) for start, rank in zip(starts, ranks, strict=True) if not rank}
    return [start for start, rank in zip(starts, ranks, strict=True) if not rank or _model_of(start) not in led]


def _model_of(start: Start) -> str | None:
    named = value_of_flag(start.words, "model") or next(iter(start.words), None)
    return named.value if named is not None else None


_NAMED: Final = regex(r"\$\{?(?P<name>[A-Za-z_]\w*|[0-9])(?:[-:}][^\s\"'}]*\}?)?")


def _to_be_told(word: Word) -> Word:
    """A word that is empty for now, since it stands for a variable that a script is to be told, as an unknown one."""
    if word.value or not word.resolved or not word.text.pieces:
        return word
    span = word.span
    match = _NAMED.match(span.file.text, span.start)
    if match is None:
        return word
    unknown = Unresolved(match.group(), f"{match['name']} is empty unless the script is told it")
    return Word(Text.at(match.group(), Span(span.file, *match.span())), (unknown,), word.splits)


def _of_graph(command: Command, environment: Mapping[str, Value], find: Find | None) -> list[Start] | None:
    """What ``dynamo serve`` starts; None where a command is nothing of the kind."""
    from kvgate.manifests.dynamo_graph import starts_of_graph

    return starts_of_graph(command, environment, find)


_ASKS: Final = frozenset({"--help", "--version", "-h", "-v"})


def _only_asks(start: Start) -> bool:
    """Whether a command line only prints help or the version."""
    return any(word.resolved and word.value.partition("=")[0] in _ASKS for word in start.words)


def _of_container_run(command: Command, find: Find | None) -> list[Start] | None:
    """What ``docker run`` and the like start; None where a command is nothing of the kind."""
    from kvgate.manifests.apptainer import sharing_container_of
    from kvgate.manifests.cloud_run import cloud_container_of
    from kvgate.manifests.container_run import container_of

    found = container_of(command, find) or sharing_container_of(command, find) or cloud_container_of(command)
    if found is None:
        return None
    container, run = found
    conditions = _conditions(command)
    starts = [replace(start, run=run, notes=(*start.notes, *conditions)) for start in find_starts(container)]
    return starts if starts or not run.shares else None


def _find_settings(command: Command, find: Find | None) -> Find | None:
    """Looks files up as a command finds them: also those that its script has written."""
    if not command.settings:
        return find
    return lambda path: command.settings.get(path) or (find(path) if find is not None else None)


def _with_config(start: Start, find: Find | None) -> Start:
    if not any("--config" in word.text.value for word in start.words):
        return start
    from kvgate.manifests.vllm_config import with_config

    words, notes = with_config(start.words, start.positional_model, find)
    return replace(start, words=words, notes=(*start.notes, *notes))


def _of_command(
    words: tuple[Word, ...], image: str, container: Container, *, repeats_entry: bool = False
) -> list[Start]:
    found = _commands_of(words, container)
    starts = starts_of_commands(found, container.find, container.environment)
    if starts:
        return starts
    program = next((file for command in found if (file := _python_file(command.words, container)) is not None), None)
    if program is not None:
        from kvgate.manifests.python_code import starts_of_python

        return starts_of_python(container.tree or Tree([]), program, container.environment)
    script = _script(words)
    if any(
        command.span.start != words[0].span.start or command.span.file is not words[0].span.file for command in found
    ):
        script = _script_elsewhere(found, container)
        if script is None:
            return []  # a shell's script, read to its end, starts none
    rest = words[1:]
    named = container.named or is_vllm_image(image)
    if is_other_program(image) or is_python_module(words):
        return []
    if repeats_entry and words[0].value == "serve":
        return []
    # a Python program takes flags of its own; a wrapper script hands them on
    wrapper = named and not _PROGRAM.fullmatch(words[0].value.rpartition("/")[2]) and not words[0].value.endswith(".py")
    if _is_launcher(words) and speaks_vllm(rest, named=wrapper):
        first = next((index for index, word in enumerate(rest) if word.value.startswith("-")), 0)
        note = Unresolved(words[0].value, _ADDED)
        serves = first > 1 and rest[first - 2].value == "serve"  # wrapper.py serve MODEL --flags
        return [_start(rest[first - serves :], words[0].value, serves, container, notes=(note,))]
    if script is None and is_vllm_image(image) and _ENTRY_SCRIPT.search(words[0].value):
        script = words[0]
    if script is None or not container.accelerated or not container.service or _asks_elsewhere(container):
        return []
    model = _model_variable(container)
    if model is None and not container.serves:
        return []
    named_so = says_engine(script.value.rpartition("/")[2]) if container.serves else "vllm" in script.value.lower()
    if not (is_vllm_image(image) or named_so or (container.serves and container.named)):
        return []
    unknown = Unresolved(script.value, "the script is not among the files read")
    told, notes = variable_words(container.environment)
    if container.image is None and model is None and not told:
        return []  # that it starts vLLM is no more than a name
    itself = Word(script.text, (unknown,), splits=True)
    return [_start((itself, *told), script.value, False, container, model=model, notes=notes)]


def _commands_of(words: tuple[Word, ...], container: Container) -> Sequence[Command]:
    if find_entry(words) and not any(basename(word) in SHELLS for word in words):
        words, added = unwrap(words)
        return [Command(words, tuple(added), (), words[0].span)]
    from kvgate.shell.script import commands, commands_of_words

    if len(words) == 1 and words[0].resolved and re.search(r"\s", words[0].value.strip()):
        return commands(words[0].text, container.environment, find=container.find)  # a whole command line in one item
    return commands_of_words(words, container.environment, find=container.find)


def _of_entry(entry: Entry, command: Command) -> Start:
    words, point = command.words[entry.after :], entry.point
    notes = _conditions(command)
    if point.renames:
        words = renamed(words, point.renames)
    if point.adds:
        itself = command.words[entry.after - 1]
        words = (Word(itself.text, (Unresolved(itself.value, _ADDED),), splits=True), *words)
    if entry.note is not None:
        notes = (*notes, entry.note)
    model = value_of_flag(command.words, point.knows) if point.knows and not names_model(words) else None
    return Start(words, point.name, point.positional_model, command.environment, command.span, model, notes)


def _conditions(command: Command) -> tuple[Unresolved, ...]:
    return tuple(Unresolved(condition, "the server starts only if this holds") for condition in command.conditions)


def _of_image(arguments: tuple[Word, ...], container: Container) -> list[Start]:
    if not arguments and not container.accelerated:
        return []  # a patch of the image, or a container for something else
    if arguments and arguments[0].value == "serve":
        note = Unresolved("serve", "the image's entry point is `vllm serve` already")
        return [_start(arguments[1:], "vllm serve", True, container, notes=(note,))]
    if arguments and arguments[0].value in _OTHER_COMMANDS:
        return []
    return [_bare(arguments, container)]


def _bare(arguments: tuple[Word, ...], container: Container) -> Start:
    return _start(arguments, IMAGE_ENTRY, True, container)


def _start(
    words: tuple[Word, ...],
    entry: str,
    positional_model: bool,
    container: Container,
    *,
    model: Word | None = None,
    notes: tuple[Unresolved, ...] = (),
) -> Start:
    return _with_config(Start(words, entry, positional_model, (), container.span, model, notes), container.find)


def _is_to_come(word: Word) -> bool:
    """Whether a word is nothing but what a template puts in the model's place, or in that of the first arguments."""
    said = word.value.lower()
    return [item.text for item in word.unresolved] == [word.value] and ("model" in said or "args" in said)


def _begins_with_model(arguments: Sequence[Word]) -> bool:
    return bool(arguments) and "/" in arguments[0].value and not arguments[0].value.startswith("-")


def _is_command(words: Sequence[Word]) -> bool:
    """Whether what stands where the image's arguments go replaces its command (a shell, a script, a program)."""
    name = words[0].value.rpartition("/")[2]
    return name in SHELLS or bool(_PROGRAM.fullmatch(name)) or _script(words) is not None


def _is_launcher(words: Sequence[Word]) -> bool:
    """Whether a command is a script or program of somebody's own, by its path."""
    return "/" in words[0].value or words[0].value.endswith((".sh", ".py")) or _script(words) is not None


_PROGRAM: Final = regex(r"(?:python|pypy)[0-9.]*")


# A program by its path whose name says that it is what a container begins with.
_ENTRY_SCRIPT: Final = regex(r"/[\w.-]*(?:entry-?point|launch|serve|start)[\w-]*$")


def _script(words: Sequence[Word]) -> Word | None:
    """The script file that a command runs."""
    head = words[0].value
    name = head.rpartition("/")[2]
    if name in SHELLS or _PROGRAM.fullmatch(name):
        for word in words[1:]:
            if re.fullmatch(r"-[a-zA-Z]*c", word.value):
                return None  # the script itself follows
            if not word.value.startswith("-"):
                return word if word.value.endswith((".sh", ".py", ".bash")) or "/" in word.value else None
        return None
    return words[0] if head.endswith((".sh", ".py", ".bash")) else None


def _python_file(words: Sequence[Word], container: Container) -> SourceFile | None:
    """The Python file at hand that a command runs: by its path, as a module, or for the server of its application."""
    if container.find is None:
        return None
    for path in _python_paths([word.value for word in words]):
        found = container.find(path)
        if found is not None and found.span.file.text == found.value:
            return found.span.file
    return None


def _python_paths(words: Sequence[str]) -> list[str]:
    head = words[0].rpartition("/")[2]
    if head.endswith(".py"):
        return [words[0]]
    if head in _APPLICATION_SERVERS:
        modules = [match[1] for word in words[1:] if (match := _APPLICATION.fullmatch(word))]
    elif _PROGRAM.fullmatch(head):
        at = next((at for at, word in enumerate(words) if at and (word == "-m" or not word.startswith("-"))), 0)
        if words[at] != "-m":
            return [words[at]] if at and words[at].endswith(".py") else []
        modules = list(words[at + 1 : at + 2])
        if modules and modules[0] in _APPLICATION_SERVERS:
            return _python_paths(words[at + 1 :])
    else:
        return []
    return [name.replace(".", "/") + end for name in modules[:1] for end in (".py", "/__main__.py")]


# Programs that serve an application of a Python module: ``uvicorn package.module:app``.
_APPLICATION_SERVERS: Final = frozenset({"gunicorn", "hypercorn", "uvicorn"})
_APPLICATION: Final = regex(r"([A-Za-z_][\w.]*):\w+")


def _script_elsewhere(found: Sequence[Command], container: Container) -> Word | None:
    """The shell script among the commands of a script that is not at hand itself."""
    for command in found:
        script = _script(command.words)
        if script is not None and script.value.endswith(".sh"):
            return script if container.find is None or container.find(script.value) is None else None
    return None


def variable_words(environment: Mapping[str, Value]) -> tuple[tuple[Word, ...], tuple[Unresolved, ...]]:
    """Arguments that a launcher which is not at hand is told by variables, and a note for each."""
    words: list[Word] = []
    notes: list[Unresolved] = []
    for name, flag in ARGUMENT_VARIABLES.items():
        value = environment.get(f"VLLM_{name}") or environment.get(name)
        if value is not None and value.value and len(value.value) < 200:
            words += [Word(Text.at(f"--{flag}", value.span)), value.word()]
            notes.append(Unresolved(name, f"taken for --{flag}: what reads it is not among the files read"))
    return tuple(words), tuple(notes)


def _model_variable(container: Container) -> Word | None:
    for name in MODEL_VARIABLES:
        value = container.environment.get(name)
        if value is not None and value.value:
            return value.word()
    return None
