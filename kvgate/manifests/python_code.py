"""Python that starts vLLM, by its syntax tree: nothing is imported or run.

Read are ``AsyncEngineArgs(...)`` and ``EngineArgs(...)``, ``vllm.LLM(...)`` (an offline engine, a kind of its own),
command lines handed to ``subprocess`` and ``os`` (by a function of the file for its callers, by another process), those
that are written out word by word, scripts of a shell that a program writes, and ``LLMConfig(...)`` of Ray Serve.

A value is followed through plain assignments, loops and comprehensions over what is written out, functions with one
``return``, parameters with defaults, ``os.environ.get(name, default)`` and options of ``argparse`` and ``click``; what
only a run knows is unresolved. A line that is run several times, with other values, is several servers (python_times).
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from kvgate.manifests.container import Container, ContainerRun, Start, beside, find_requirement
from kvgate.manifests.launch import find_starts, starts_of_commands, starts_of_script
from kvgate.manifests.python_names import Item, Names, Others
from kvgate.manifests.python_source import Source, key_of, written_call
from kvgate.manifests.python_times import Times
from kvgate.manifests.started import Surroundings, unit_of
from kvgate.manifests.tree import Tree
from kvgate.manifests.unit import GpuRequest, NodeHint, ServeUnit, Unread
from kvgate.records import record
from kvgate.shell.command import Assignment, Command, unwrap
from kvgate.shell.value import Value, value_of_word
from kvgate.source.text import SourceFile, Span, Text, TooLargeError, Unresolved, Word

MAX_CHARACTERS: Final = 500_000
MAX_NODES: Final = 60_000
MAX_WORDS: Final = 400
# Of the modules of a tree that its files take names from.
MAX_MODULES: Final = 200
MAX_MODULE_CHARACTERS: Final = 100_000

OFFLINE: Final = "offline-engine"
_ENGINES: Final[Mapping[str, str]] = {
    "AsyncEngineArgs": "python", "EngineArgs": OFFLINE, "LLM": OFFLINE,
    "VLLMArgs": "python",  # beam.integrations
}  # fmt: skip
# Functions of vllm.entrypoints that are a server, and classes that are made from a command line.
_SERVES: Final = frozenset({"main", "run_server", "run_server_worker"})
_FROM_COMMAND_LINE: Final = ".from_cli_args"
_RUNS_WORDS: Final = frozenset(
    {
        "Popen", "call", "check_call", "check_output", "create_subprocess_exec", "create_subprocess_shell", "execl",
        "execlp", "execv", "execve", "execvp", "execvpe", "getoutput", "popen", "run", "spawnl", "spawnv", "spawnvp",
        "system", "system_piped", "system_raw",
    }
)  # fmt: skip

_WAITS: Final = frozenset({"call", "check_call", "check_output", "getoutput", "run"})


@record
class _ContainerKeys:
    """Calls of a library that start a container, and the keywords under which they take it."""

    calls: frozenset[str]
    image: str
    command: str
    arguments: str
    environment: str


# Keywords under which the call of a library takes a command line to run on a machine that it rents or a job it submits.
_COMMAND_KEYWORDS: Final = frozenset({"cmd", "command", "run", "run_command", "start_command", "startup_command"})

# A script of a shell as a text of a program, which writes it into a file or hands it on.
_SCRIPT: Final = re.compile(r"\s*#!\s*/\S*(?:/env )?\S*sh\b")
_WRITES_SCRIPT: Final = re.compile(r"[\"'](?:\\\n)?\s*#!\s*/\S*(?:/env )?\S*sh\b")

_SAYS: Final = frozenset({"critical", "debug", "error", "exception", "info", "log", "print", "warning"})

_CONTAINERS: Final = (
    # google.cloud.aiplatform.Model.upload
    _ContainerKeys(
        frozenset({"upload"}),
        "serving_container_image_uri",
        "serving_container_command",
        "serving_container_args",
        "serving_container_environment_variables",
    ),
    # kubernetes.client.V1Container, and the like of it
    _ContainerKeys(frozenset({"Container", "V1Container"}), "image", "command", "args", "env"),
    # docker.DockerClient.containers.run: the command follows the image's entry point
    _ContainerKeys(frozenset({"create", "run"}), "image", "entrypoint", "command", "environment"),
)


@record
class _Around:
    """What the decorators around a call say about the machine, and the name of what they stand at."""

    devices: tuple[GpuRequest, ...] = ()
    hints: tuple[NodeHint, ...] = ()
    replicas: int | None = None
    replicas_span: Span | None = None


_Found: TypeAlias = tuple[Start, str, _Around]
"""What starts, of which kind, and what is said around it."""


_MAKES_ENGINE: Final = re.compile(
    r"\b(?:AsyncEngineArgs|EngineArgs|LLM|LLMConfig|VLLMArgs|run_server|run_server_worker|vLLMEngineProcessorConfig)\s*\("
    r"|\.from_cli_args\s*\(|\bvllm\.entrypoints\.[\w.]+\s+import\s[^\n]*\bmain\b"
)
# The first words of a command line, one by one.
_WORDS: Final = re.compile(r"[\"']vllm[\"']\s*,\s*[\"']serve[\"']|[\"']-m[\"']\s*,\s*[\"']vllm\.entrypoints\.")
_RUNS: Final = re.compile(
    r"\b(?:subprocess|create_subprocess_\w+|Popen|system(?:_raw|_piped)?|exec[lv]p?e?|spawn[lv]p?e?|serving_container_args|V1Container|containers\.run)\b"
    r"|[\"']image[\"']:"
    r"|\b(?:cmd|commands?|run|run_command|start_command|startup_command)=[\[(f\"']|[\"'](?:\\\n)?\s*#!\s*/"
)
# A file of tests: it imports what tests are written with, or defines some.
_TEST: Final = re.compile(
    r"(?m)^(?:import|from)[ \t]+(?:pytest|unittest)\b|^[ \t]*(?:async[ \t]+)?def[ \t]+test_\w+\(|^class[ \t]+Test[A-Z_]"
)
_TEST_PATH: Final = re.compile(r"(?:^|/)(?:tests?/[^/]*|test_[^/]*|[^/]*_test|conftest)\.py$")
_STARTS: Final = re.compile(
    r"vllm[\"',\s]+serve\b|vllm\.(?:entrypoints|scripts)|vllm-openai|vllm/vllm|dynamo\.vllm|[\"']vllm[\"']"
    r"|serving_container_args|V1Container|containers\.run",
    re.IGNORECASE,
)


RAY_SERVE: Final = "ray.serve.llm"  # builds servers of vLLM without a word of it


def may_start(text: str) -> bool:
    """Whether a Python text is worth parsing; cheap."""
    if "vllm" not in text.lower() and RAY_SERVE not in text:
        return False
    made = _MAKES_ENGINE.search(text) or _WORDS.search(text)
    return bool(made or (_RUNS.search(text) and _STARTS.search(text)))


def read_python(tree: Tree, file: SourceFile) -> Iterator[ServeUnit | Unread]:
    """The serve units of one Python file."""
    if not may_start(file.text):
        return
    if len(file.text) > MAX_CHARACTERS or re.search(r"\r(?!\n)", file.text):
        yield Unread("a Python file of this size is not read", file.line_span(1))
        return
    try:
        module = ast.parse(file.text)
        reader = _Reader(tree, file, module)
        found = list(reader.starts())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        yield Unread("not Python that can be parsed", file.line_span(1))
        return
    except TooLargeError as error:
        yield Unread(f"{error} is not read", file.line_span(1), serves=True)
        return
    values = {name: value for name, (value, _) in reader.environment.items()}
    spans = {name: span for name, (_, span) in reader.environment.items()}
    requirement = find_requirement([Text.of_span(file.span(0, len(file.text)))])
    found.sort(key=lambda item: item[0].span.start)
    for number, (start, kind, around) in enumerate(found):
        surroundings = Surroundings(
            file=file,
            kind=kind,
            variables=values,
            spans=spans,
            devices=around.devices,
            hints=around.hints,
            replicas=around.replicas,
            replicas_span=around.replicas_span,
            requirement=requirement,
        )
        yield unit_of(start, surroundings, number)


def starts_of_python(tree: Tree, file: SourceFile, environment: Mapping[str, Value]) -> list[Start]:
    """The vLLM servers that a container starts by running a Python file, with the variables that it has."""
    if not may_start(file.text) or len(file.text) > MAX_CHARACTERS or re.search(r"\r(?!\n)", file.text):
        return []
    try:
        reader = _Reader(tree, file, ast.parse(file.text), environment)
        found = [start for start, kind, _ in reader.starts() if kind != OFFLINE]
    except (SyntaxError, ValueError, RecursionError, MemoryError, TooLargeError):
        return []
    tree.used.update({file.path} if found else ())
    own = tuple(Assignment(name, value, span) for name, (value, span) in reader.environment.items())
    found.sort(key=lambda start: start.span.start)
    return [replace(start, environment=(*start.environment, *own)) for start in found]


class _Modules:
    """The modules of a tree that a file takes names from, as far as they are asked for."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._found: dict[str, Names | None] = {}

    def beside(self, file: SourceFile) -> Others:
        """Looks modules up as a program of that file imports them: from its folder, and from the folders above it."""
        folders = [posixpath.dirname(file.path)]
        while (above := posixpath.dirname(folders[-1])) != folders[-1]:
            folders.append(above)

        def find(module: str, level: int) -> Names | None:
            parts = module.split(".")
            if not module or (not level and parts[0] in sys.stdlib_module_names):
                return None
            for folder in folders[level - 1 : level] if level else (*folders, "src"):
                for end in (".py", "/__init__.py"):
                    path = posixpath.join(folder, *parts) + end
                    found = None if path == file.path else self._tree.read(path)
                    if found is not None:
                        return self._names(found)
            return None

        return find

    def _names(self, file: SourceFile) -> Names | None:
        if file.path not in self._found:
            self._found[file.path] = None  # what imports itself in a circle says nothing
            if len(file.text) <= MAX_MODULE_CHARACTERS and len(self._found) <= MAX_MODULES:
                try:
                    module = ast.parse(file.text)
                    self._found[file.path] = Names(Source(file), module, MAX_NODES, self.beside(file))
                except (SyntaxError, ValueError, RecursionError, MemoryError, TooLargeError):
                    pass
        return self._found[file.path]


def _modules_of(tree: Tree) -> _Modules:
    found = tree.memo.get("python modules")
    if not isinstance(found, _Modules):
        found = tree.memo["python modules"] = _Modules(tree)
    return found


class _Reader:
    def __init__(
        self, tree: Tree, file: SourceFile, module: ast.Module, given: Mapping[str, Value] | None = None
    ) -> None:
        self.source = Source(file)
        self.names = Times(self.source, module, MAX_NODES, _modules_of(tree).beside(file), given)
        self.find = beside(tree, file)
        self.module = module
        self._calls = [call for call in self.names.calls if not self.names.never_runs(call)]
        self.probes: set[int] = set()
        self.heads: set[int] = set()  # where the words of the command lines begin that are run
        self.is_test = _TEST.search(file.text) is not None or _TEST_PATH.search(file.path) is not None
        self.environment = self._environment()

    def starts(self) -> Iterator[_Found]:
        seen: set[tuple[tuple[int, str], ...]] = set()
        run: set[tuple[object, ...]] = set()
        for found in self._run():
            places = _places(found[0])
            once = (places, *((item.name, item.value.value) for item in found[0].environment))
            if not places or once not in run:  # a line that is run in two places is one server
                run.add(once)
                seen.add(places)
                yield found
        for call in self._calls:
            for start in self._handed_over(call):
                if _places(start) not in seen:  # a line that is run, and told to a log as well, is one server
                    seen.add(_places(start))
                    yield start, "python", self._rented(self._around(call))
        if self.is_test:
            return
        for written in self.names.texts(_SCRIPT) if _WRITES_SCRIPT.search(self.source.file.text) else ():
            if self.names.is_claim(written) or self.names.never_runs(written):
                continue
            for start in self._of_text(self.names.text(written), written):
                if _places(start) not in seen:  # a script that the program writes
                    seen.add(_places(start))
                    yield start, "python", self._around(written)
        heads = {places[0][0] for places in seen if places} | self.probes | self.heads
        lines: set[tuple[str, ...]] = set()
        for written, name in self.names.lists():
            if self.names.is_claim(written) or self.names.never_runs(written):
                continue
            # a command line word by word: a function of the file's own runs it, a framework, another file
            line = written if name is None else name
            starts, begins = self._each_time(line, written)
            if not starts and line is not written:
                starts, begins = self._each_time(written, written)
            told_apart = bool(begins) and begins <= heads
            for start in starts:
                if not start.words or told_apart or start.words[0].span.start in heads:
                    continue
                begins.add(start.words[0].span.start)
                # two ways to the same program (`uv run` where there is uv) are one server
                told = (self.source.written(name), *(word.value for word in start.words)) if name is not None else ()
                if not told or told not in lines:
                    lines.add(told)
                    yield start, "python", self._around(written)
            heads |= begins

    def _each_time(self, line: ast.expr, place: ast.expr) -> tuple[list[Start], set[int]]:
        """What a command line starts, each time that it is run, and where its words begin if it is looked at once."""
        once, apart = self._apart(place, lambda: [(start, "", _Around()) for start in self._started(line, place)])
        return [start for start, _, _ in apart], {start.words[0].span.start for start, _, _ in once if start.words}

    def _apart(self, place: ast.expr, look: Callable[[], Iterable[_Found]]) -> tuple[list[_Found], list[_Found]]:
        """What a line starts that is looked at once, and each time that it runs.

        Only where that says more of all of its servers: a round that is as little known as all of them is one of them.
        """
        once = list(look())
        unknown = _unknown(once)
        times = self.names.times(place) if unknown else []
        apart: dict[tuple[object, ...], _Found] = {}
        for bound in times:
            with self.names.at(bound):
                found = list(look())
            if not found or _unknown(found) >= unknown:
                return once, once
            for each in found:
                values = (word.value for word in each[0].words)
                variables = ((item.name, item.value.value) for item in each[0].environment)
                apart.setdefault((*values, *variables), each)
        return once, list(apart.values()) or once

    def _run(self) -> Iterator[_Found]:
        """What calls start whose meaning is known."""
        deferred = [found for call in self._calls if (found := self.names.deferred(call)) is not None]
        deferred = [call for call in deferred if "." in self.names.imported(call.func)]  # none of the file's own
        engines = {self._given_to(call) for call in self._calls if written_call(call)[0] in ("AsyncEngineArgs", "LLM")}
        for call in (*self._calls, *deferred):
            dotted = self.names.imported(call.func)
            name = dotted.rpartition(".")[2]
            if name == "EngineArgs" and self._given_to(call) in engines:
                continue  # looks at what an engine of the file is made with
            if name in _ENGINES and (_is_vllm(dotted) or (name == dotted and _is_vllm(self.names.origin(call.func)))):
                look = partial(self._engine, call, name, dotted)
                yield from look() if _ENGINES[name] == OFFLINE else self._apart(call, look)[1]
            elif (kind := _runs_parser(dotted)) is not None:
                for start in self._of_parser(call, dotted):
                    yield start, kind, self._around(call)
            elif name == "LLMConfig" and "ray" in dotted:
                yield from self._apart(call, partial(self._ray_model, call))[1]
            elif name == "vLLMEngineProcessorConfig":
                yield self._processor(call, dotted), OFFLINE, self._around(call)
            elif name in _RUNS_WORDS and call.args and "mock" not in dotted and not self.names.is_claim(call):
                ends = name in _WAITS and "timeout" in written_call(call)[1]  # what is waited for so long is no server
                for start in self._command(call, name) or self._of_callers(call, name):
                    if start.run is not None or not ends:
                        yield start, "python", self._around(call)
                    elif start.words:
                        self.probes.add(start.words[0].span.start)
            for start in self._container(call):
                yield start, "python", self._around(call)
        for node in self.names.mappings if not self.is_test else ():
            for start in self._container_of_mapping(node):
                yield start, "python", _Around()

    def _given_to(self, call: ast.Call) -> str:
        return self.source.written(call).partition("(")[2]

    # -- engines -----------------------------------------------------------------------------------------------------

    def _engine(self, call: ast.Call, name: str, dotted: str) -> Iterator[_Found]:
        kind = _ENGINES[name]
        made = self.names.made_of(call)
        if made is not None and written_call(made)[0] in _ENGINES:
            return  # LLM(**asdict(engine_args)): found where its arguments are made
        forwarded = self.names.forwarded(call)
        if forwarded:
            # the class hands on what it is made with: each place that makes one is a server
            for outer in forwarded:
                words = [*self._words_of_call(call, skip_rest=True), *self._words_of_call(outer)]
                yield self._start(words, dotted, outer), kind, self._around(call)
            return
        words = [*self._words_of_call(call), *self._words_of_items(self.names.set_on_result(call))]
        yield self._start(words, dotted, call), kind, self._around(call)

    def _of_parser(self, call: ast.Call, dotted: str) -> Iterator[Start]:
        """``run_server(parser.parse_args())``: a server whose arguments vLLM's own parser reads."""
        words, items = self.names.given_by_parser(call)
        if dotted.startswith("vllm.entrypoints.cli."):  # the whole program: only one of its commands is a server
            if not words or words[0].value != "serve" or not words[0].resolved:
                return
            yield replace(self._start(words[1:], dotted, call), positional_model=True)
            return
        items = [*items, *self.names.set_on_result(call)]
        yield self._start([*words, *self._words_of_items(items)], dotted, call)

    def _start(self, words: Sequence[Word], entry: str, call: ast.Call) -> Start:
        return Start(tuple(words[:MAX_WORDS]), entry, False, (), self.source.span(call))

    def _words_of_call(self, call: ast.Call, *, skip_rest: bool = False) -> list[Word]:
        words: list[Word] = []
        for number, argument in enumerate(call.args):
            if number == 0 and not isinstance(argument, ast.Starred):
                words += self._words_of("model", argument, self.source.span(argument))
        for keyword in call.keywords:
            if keyword.arg is not None:
                start = self.source.offset(keyword.lineno, keyword.col_offset)
                place = Span(self.source.file, start, start + len(keyword.arg))
                words += self._words_of(keyword.arg, keyword.value, place)
            elif not skip_rest:
                words += self._words_of_rest(keyword.value)
        return words

    def _words_of_rest(self, node: ast.expr) -> list[Word]:
        """``**rest``: its keys where they are written, else words that nobody can see."""
        items = self.names.items(node)
        if items is None:
            known, resolved = self.names.constant(node)
            if resolved and isinstance(known, dict):  # of another module
                place = self.source.span(node)
                values = [(name, ast.copy_location(ast.Constant(value), node)) for name, value in known.items()]
                return self._words_of_items([(name, value, place, None) for name, value in values])
            text = self.source.text(node)
            unknown = Unresolved(text.value, "what it holds is not in the files read")
            return [Word(text, (unknown,), splits=True)]
        return self._words_of_items(items)

    def _words_of_items(self, items: Sequence[Item]) -> list[Word]:
        words: list[Word] = []
        for name, value, place, condition in items:
            if not name:
                text = self.source.text(value)
                words.append(Word(text, (Unresolved(text.value, condition or ""),), splits=True))
                continue
            found = self._words_of(name, value, place)
            words += found if condition is None else _only_if(found, condition)
        return words

    def _words_of(self, name: str, value: ast.expr, place: Span) -> list[Word]:
        flag = name.replace("_", "-")
        known, resolved = self.names.constant(value)
        if resolved and known is None:
            return []
        if resolved and isinstance(known, bool):
            return [Word(Text.at(f"--{flag}" if known else f"--no-{flag}", place))]
        head = Word(Text.at(f"--{flag}", place))
        if isinstance(known, list) and known and all(isinstance(item, str) for item in known):
            return [head, *(Word(Text.at(item, self.source.span(value))) for item in known)]
        return [head, self._word(value)]

    def _word(self, node: ast.expr) -> Word:
        """A value as one word."""
        known, resolved = self.names.constant(node)
        if not resolved:
            return self.names.word(node)
        if isinstance(known, str):
            return self.names.word(node)
        text = json.dumps(known, ensure_ascii=False) if isinstance(known, (dict, list)) else str(known)
        return Word(Text.at(text, self.source.span(node)))

    # -- Ray Serve ---------------------------------------------------------------------------------------------------

    def _ray_model(self, call: ast.Call) -> Iterator[_Found]:
        given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        for keyword in call.keywords:
            if keyword.arg is None:
                given |= dict(self._plain_items(keyword.value))
        loading = dict(self._plain_items(given.get("model_loading_config")))
        words: list[Word] = []
        origin = loading.get("model_source") or loading.get("model_id")
        if origin is not None:
            words += self._words_of("model", origin, self.source.span(origin))
        if "model_id" in loading:
            words += self._words_of("served_model_name", loading["model_id"], self.source.span(loading["model_id"]))
        engine = given.get("engine_kwargs")
        if engine is not None:
            words += self._words_of_rest(engine)
        around = self._around(call)
        ranks = 1
        options = dict(self._plain_items(engine))
        for way in ("tensor_parallel_size", "pipeline_parallel_size"):
            size, known = self.names.constant(options[way]) if way in options else (None, False)
            ranks *= size if known and isinstance(size, int) else 1
        replicas, span = self._replicas(dict(self._plain_items(given.get("deployment_config"))))
        kind, known = self.names.constant(given["accelerator_type"]) if "accelerator_type" in given else (None, False)
        place = self.source.span(call)
        hints = (NodeHint("accelerator_type", (kind,), place),) if known and isinstance(kind, str) else ()
        devices = around.devices or ((GpuRequest("device", ranks, place),) if engine is not None else ())
        variables = dict(self._plain_items(given.get("runtime_env"))).get("env_vars")
        start = self._with_variables(self._start(words, "ray.serve.llm", call), variables)
        yield start, "python", _Around(devices, hints, replicas, span)

    def _processor(self, call: ast.Call, dotted: str) -> Start:
        """The engine that Ray Data runs over a data set."""
        given = written_call(call)[1]
        words: list[Word] = []
        if "model_source" in given:
            words += self._words_of("model", given["model_source"], self.source.span(given["model_source"]))
        if "engine_kwargs" in given:
            words += self._words_of_rest(given["engine_kwargs"])
        return self._start(words, dotted, call)

    def _plain_items(self, node: ast.expr | None) -> Iterator[tuple[str, ast.expr]]:
        for name, value, _, condition in (self.names.items(node) or ()) if node is not None else ():
            if condition is None:
                yield name, value

    def _replicas(self, options: Mapping[str, ast.expr]) -> tuple[int | None, Span | None]:
        scaling = options.get("autoscaling_config")
        inner = dict(self._plain_items(scaling)) if scaling is not None else {}
        for node in (options.get("num_replicas"), inner.get("min_replicas")):
            if node is not None:
                count, known = self.names.constant(node)
                if known and type(count) is int:
                    return count, self.source.span(node)
        return None, None

    # -- command lines -----------------------------------------------------------------------------------------------

    def _command(self, call: ast.Call, name: str) -> list[Start]:
        first = call.args[0]
        if name.startswith(("exec", "spawn")) and len(call.args) > 1:
            first = call.args[-1] if isinstance(call.args[-1], ast.List | ast.Tuple | ast.Name) else first
            if name.endswith("e") and len(call.args) > 2:
                first = call.args[1]
        if name == "create_subprocess_exec" or name in ("execl", "execlp", "spawnl"):
            first = ast.copy_location(ast.List(call.args, ast.Load()), call)
        starts, begins = self._each_time(first, call)
        self.heads |= begins
        return starts

    def _started(self, line: ast.expr, place: ast.expr) -> list[Start]:
        """What a command line starts, with the variables of ``Popen(line, env={**os.environ, "X": "1"})``."""
        starts = self._of_line(line, place)
        given = written_call(place)[1].get("env") if isinstance(place, ast.Call) and starts else None
        return [self._with_variables(start, given) for start in starts]

    def _with_variables(self, start: Start, given: ast.expr | None) -> Start:
        """A start with the variables of a mapping."""
        if given is None:
            return start
        values, spans = self._variables_of(given)
        added = [Assignment(name, value, spans[name]) for name, value in values.items()]
        return replace(start, environment=_before(added, start))

    def _of_callers(self, call: ast.Call, name: str) -> list[Start]:
        """What a function of the file runs for those that call it: ``def sh(line): os.system(line)``."""
        if name.startswith(("exec", "spawn", "create_subprocess")):
            return []
        return [start for line in self.names.given_by_callers(call.args[0]) for start in self._of_line(line, line)]

    def _of_line(self, first: ast.expr, call: ast.expr) -> list[Start]:
        """What a list of words or the text of a command line starts."""
        joined = self.names.joined(first)
        words_of_list = self.names.words(joined if joined is not None else first)
        # texts that are put behind each other are a command line, whatever is in each of them
        is_text = self.names.joins_texts(first) and any(map(_has_blank, words_of_list or ()))
        if words_of_list is not None and not is_text:
            return self._of_words(words_of_list, call)
        return self._of_text(self.names.text(first), first)

    def _of_text(self, value: Value, written: ast.expr) -> list[Start]:
        if not re.search("vllm", self.source.written(written) + value.value, re.IGNORECASE) or not value.value.strip():
            return []
        return starts_of_script(value, {}, self.find)

    def _handed_over(self, call: ast.Call) -> list[Start]:
        """What a command line starts that a call takes by a keyword, whatever the library.

        In a test such calls make up the data that is tested.
        """
        name, given = written_call(call)
        if (
            self.is_test
            or name in _SAYS
            or self.names.is_claim(call)
            or any(keys.image in given for keys in _CONTAINERS if name in keys.calls)
        ):
            return []
        lines = [value for key, value in given.items() if key in _COMMAND_KEYWORDS]
        several = given.get("commands")  # one below the other
        if isinstance(several, (ast.List, ast.Tuple)):
            lines += [item for item in several.elts if not isinstance(item, ast.Starred)]
        return [start for line in lines for start in self._of_line(line, call) if start.words]

    def _container(self, call: ast.Call) -> list[Start]:
        """What a container does that a library is told to start: an image with its command and arguments."""
        name, given = written_call(call)
        if len(call.args) > 1 and (key_of(call.func) or "").endswith(("containers.run", "containers.create")):
            given = {"command": call.args[1], **given}
        for keys in _CONTAINERS:
            if name not in keys.calls or not any(key in given for key in (keys.command, keys.arguments)):
                continue
            image_node = given.get(keys.image) or next(iter(call.args), None)
            image = self._word(image_node) if image_node is not None else None
            if image is None or not (image.value or image.unresolved):
                continue
            command = self._words_or_text(given[keys.command]) if keys.command in given else None
            arguments = self._words_or_text(given[keys.arguments]) if keys.arguments in given else None
            if not command and not arguments:
                continue
            environment, spans = self._variables_of(given.get(keys.environment))
            place = self.source.span(call)
            named = "vllm" in self.source.written(call).lower()
            first, rest = tuple(command or ()), tuple(arguments or ())
            container = Container(first or None, rest, image, environment, place, named, True)
            devices = self._requested(given.get("device_requests"))
            run = ContainerRun(image, environment, spans, devices, None, None, {})
            found = [replace(start, run=run, span=place) for start in find_starts(container)]
            if found:
                return found
        return []

    def _words_or_text(self, node: ast.expr) -> list[Word] | None:
        """The words of a list, or of a text that is split as a shell does."""
        words = self.names.words(node)
        if words is not None:
            return words
        from kvgate.shell.words import split_words

        text = self.names.text(node)
        return list(split_words(text)) if re.search(r"\s", text.value) else None

    def _requested(self, node: ast.expr | None) -> tuple[GpuRequest, ...]:
        """``device_requests=[DeviceRequest(count=-1)]`` of Docker's library: -1 is all of them."""
        listed = self.names.followed(node) if node is not None else None
        first = listed.elts[0] if isinstance(listed, (ast.List, ast.Tuple)) and listed.elts else None
        made = self.names.followed(first) if first is not None else None
        if not isinstance(made, ast.Call):
            return ()
        options = written_call(made)[1]
        ids = self.names.constant(options["device_ids"])[0] if "device_ids" in options else None
        count = self.names.constant(options["count"])[0] if "count" in options else None
        known = len(ids) if isinstance(ids, list) else count if type(count) is int and count > 0 else None
        reason = None if known is not None else "it gets all GPUs of the machine"
        return (GpuRequest("device", known, self.source.span(made), reason),)

    def _container_of_mapping(self, node: ast.Dict) -> list[Start]:
        """What a container of a manifest does that a program makes itself: ``{"image": "vllm/...", "args": [...]}``."""
        if not any(isinstance(key, ast.Constant) and key.value == "image" for key in node.keys):
            return []
        given = dict(self._plain_items(node))
        image = self._word(given["image"]) if "image" in given else None
        first = tuple(self.names.words(given["command"]) or ()) if "command" in given else ()
        rest = tuple(self.names.words(given["args"]) or ()) if "args" in given else ()
        if image is None or not (first or rest) or self.names.is_claim(node) or self.names.never_runs(node):
            return []
        environment, spans = self._variables_of(given.get("environment"))
        for pair in self.names.elements(given.get("env")):
            each = dict(self._plain_items(pair))
            name, known = self.names.constant(each["name"]) if "name" in each else (None, False)
            if known and isinstance(name, str) and "value" in each:
                environment[name], spans[name] = value_of_word(self._word(each["value"])), self.source.span(pair)
        limits = dict(self._plain_items(dict(self._plain_items(given.get("resources"))).get("limits")))
        devices = tuple(self._limit(value) for name, value in limits.items() if name.endswith("/gpu"))
        place = self.source.span(node)
        called = self._word(given["name"]).value if "name" in given else ""
        named = "vllm" in f"{called} {image.value}".lower()
        container = Container(first or None, rest, image, environment, place, named, True)
        run = ContainerRun(image, environment, spans, devices, None, None, {})
        return [replace(start, run=run, span=place) for start in find_starts(container)]

    def _limit(self, node: ast.expr) -> GpuRequest:
        count, known = self.names.constant(node)
        number = int(count) if known and re.fullmatch(r"[0-9]{1,4}", str(count)) else None
        return GpuRequest("device", number, self.source.span(node), None if number else "not stated as a number")

    def _variables_of(self, node: ast.expr | None) -> tuple[dict[str, Value], dict[str, Span]]:
        values: dict[str, Value] = {}
        spans: dict[str, Span] = {}
        for name, value, place, condition in (self.names.items(node) or ()) if node is not None else ():
            if not name:
                continue
            (word,) = [self._word(value)] if condition is None else _only_if([self._word(value)], condition)
            values[name], spans[name] = value_of_word(word), place
        return values, spans

    def _of_words(self, words: Sequence[Word], call: ast.expr) -> list[Start]:
        unknown = len(words) > 2 and words[1].value == "serve" and not words[0].resolved
        if not unknown and not any("vllm" in word.value.lower() for word in words):
            return []
        plain, added = unwrap(tuple(words[:MAX_WORDS]))
        command = Command(plain, tuple(added), (), self.source.span(call))
        found = starts_of_commands([command], self.find)
        if found:
            return found
        from kvgate.shell.script import commands_of_words

        return starts_of_commands(commands_of_words(words), self.find)

    # -- around ------------------------------------------------------------------------------------------------------

    def _environment(self) -> dict[str, tuple[Value, Span]]:
        found: dict[str, tuple[Value, Span]] = {}
        for name, value, place in self.names.environment_assignments():
            word = self._word(value)
            found[name] = (value_of_word(word), place)
        return found

    def _around(self, call: ast.AST) -> _Around:
        """What decorators say (``@serve.deployment(...)``, ``@ray.remote(num_gpus=1)``, ``@app.function(gpu="H100")``),
        and calls that the engine's arguments are handed to (``VLLM(gpu_count=2, vllm_args=VLLMArgs(...))``)."""
        found = _Around()
        for decorator in self.names.around(call):
            options = written_call(decorator)[1]
            for inner in ("ray_actor_options", "resources"):
                options = {**options, **dict(self._plain_items(options.get(inner)))}
            devices, hints = found.devices, found.hints
            for name in ("num_gpus", "gpu"):
                if name in options and not devices:
                    devices, hints = self._accelerators(options[name], options.get("gpu_count"))
            replicas, span = found.replicas, found.replicas_span
            if replicas is None:
                replicas, span = self._replicas(options)
            found = _Around(devices, hints, replicas, span)
        return found

    def _rented(self, around: _Around) -> _Around:
        """With the accelerators of ``Resources(accelerators="A100:4")``, where the file asks for a machine once."""
        given = [written_call(call)[1] for call in self._calls if written_call(call)[0] == "Resources"]
        asked = [options.get("accelerators") or options.get("gpu") for options in given]
        if around.devices or len(asked) != 1 or asked[0] is None:
            return around
        devices, hints = self._accelerators(asked[0], None)
        return replace(around, devices=devices, hints=hints)

    def _accelerators(
        self, node: ast.expr, times: ast.expr | None
    ) -> tuple[tuple[GpuRequest, ...], tuple[NodeHint, ...]]:
        """``1``, ``1.0``, ``"H100:2"``, ``"A10G"`` with a count of its own, ``modal.gpu.H100(count=2)``."""
        place = self.source.span(node)
        known, resolved = self.names.constant(node)
        if resolved and isinstance(known, dict) and len(known) == 1:
            ((name, count),) = known.items()
            if type(count) is int:
                return (GpuRequest("device", count, place),), (NodeHint("gpu", (name,), place),)
        if resolved and isinstance(known, (int, float)) and not isinstance(known, bool):
            if known == 0:
                return (), ()  # its engine asks for what it needs itself
            whole = int(known) if known == int(known) else None
            reason = None if whole is not None else "a share of a GPU"
            return (GpuRequest("device", whole, place, reason),), ()
        if resolved and isinstance(known, str):
            name, _, count = known.partition(":")
            number = int(count) if count.isdecimal() and len(count) < 5 else 1
            if times is not None:
                told, stated = self.names.constant(times)
                if not stated or type(told) is not int:
                    return (GpuRequest("device", None, place, "not stated as a number"),), ()
                number = told
            return (GpuRequest("device", number, place),), (NodeHint("gpu", (name,), place),)
        if isinstance(node, ast.Call):
            name, options = written_call(node)
            if name == "GPU":  # one of dstack's, which are named by an argument
                told, stated = self.names.constant(options["name"]) if "name" in options else ("", True)
                name = told if stated and isinstance(told, str) else ""
            count_node = options.get("count")
            count_value, count_known = self.names.constant(count_node) if count_node is not None else (1, True)
            if count_known and isinstance(count_value, int):
                hints = (NodeHint("gpu", (name,), place),) if name else ()
                return (GpuRequest("device", count_value, place),), hints
        return (GpuRequest("device", None, place, "not stated as a number"),), ()


def _only_if(words: Sequence[Word], condition: str) -> list[Word]:
    return [Word(word.text, (Unresolved(word.value, f"only if {condition}"),)) for word in words]


def _runs_parser(dotted: str) -> str | None:
    """The kind of what a function of vLLM starts that is given a parsed command line; None for other functions."""
    owner, _, name = dotted.rpartition(".")
    if name in _SERVES and owner.startswith("vllm.entrypoints."):
        return "python"
    made, dot, _ = dotted.partition(_FROM_COMMAND_LINE)
    return _ENGINES.get(made.rpartition(".")[2]) if dot and _is_vllm(made) else None


def _has_blank(word: Word) -> bool:
    return word.resolved and re.search(r"\s", word.value) is not None


def _places(start: Start) -> tuple[tuple[int, str], ...]:
    return tuple((word.span.start, word.value) for word in start.words)


def _unknown(found: Sequence[_Found]) -> int:
    """How many words and variables of some command lines are not known."""
    words = sum(not word.resolved for start, _, _ in found for word in start.words)
    return words + sum(not item.value.resolved for start, _, _ in found for item in start.environment)


def _before(added: Sequence[Assignment], start: Start) -> tuple[Assignment, ...]:
    """The variables of a start and those that it is given, unless it runs in a container or sets them itself."""
    own = {item.name for item in start.environment}
    given = [] if start.run is not None else [item for item in added if item.name not in own]
    return (*given, *start.environment)


def _is_vllm(dotted: str) -> bool:
    owner, _, name = dotted.rpartition(".")
    return "vllm" in owner.split(".") or (name == "VLLMArgs" and owner == "beam.integrations")
