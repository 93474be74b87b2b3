"""A run over files: which hold prompts, and what is wrong with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kvgate.prompts.benchmarks import same_seeds
from kvgate.prompts.defect import Defect, each_once
from kvgate.prompts.generators import load_generators
from kvgate.prompts.jinja import read_template, renders_roles
from kvgate.prompts.jinja_tree import TemplateProblem
from kvgate.prompts.languages import unfollowed
from kvgate.prompts.order import judge
from kvgate.prompts.part import Prompt
from kvgate.prompts.python.evaluator import Evaluator
from kvgate.prompts.python.project import ModuleSource, Project
from kvgate.prompts.python.sinks import Sinks, placeholder_prompt
from kvgate.prompts.requests import (
    LogProblem,
    LogSettings,
    LogSummary,
    RequestLog,
    log_defects,
    looks_like_log,
    read_log,
    summarise,
)
from kvgate.prompts.syntax import located
from kvgate.prompts.templates import SUFFIXES, FoundTemplate, is_prompt_template, templates_in, whole
from kvgate.prompts.vocabulary import is_prompt_name, words_of
from kvgate.records import record
from kvgate.source.text import SourceFile, Span, Text

# A Python file without any of these sends no prompt and builds none. Plain words: a search for each is one pass in C.
_MARKS: Final = (
    '"role"', "'role'", "role=", '"messages"', "'messages'", "messages=", "chat.completions", "SystemMessage",
    "HumanMessage", "from_messages", "PromptTemplate", "apply_chat_template", "cache_salt", "bind_tools", "tools=",
    "<|im_start|>", "<|start_header_id|>", "{% message", "{% now", " llm", "llm.", "_llm", "llm_", "(llm", "LLM",
    "openai", "OpenAI", "langchain",
    "litellm", "anthropic", "ollama", "system_prompt", "SYSTEM_PROMPT", "You are ", "HttpUser", "WindowMemory",
    "instructions=", '["content"]', "['content']", "messages[", "messages.append(", "messages.insert(",
)  # fmt: skip
# ... nor does one that only speaks of prompts, unless it builds one
_BUILDS: Final = re.compile(r"def \w*prompt|\b[A-Z_]*PROMPT[A-Z_]*\s*=|\bprompts?\s*=\s*\(?\s*[rf]?[\"']|\.Template\(")
# ... nor one whose prompts are those of a terminal
_TERMINAL: Final = re.compile(
    r"\b(?:prompt_toolkit|PromptSession|questionary|InquirerPy|inquirer|readline|cmd2?\.Cmd|PS1"
    r"|(?:rich|click|typer)\.prompt)\b"
)
#: Functions beyond which it is the tree that is too large to be followed.
MAX_GIVEN_UP: Final = 20
_CALLS_AT_TOP: Final = re.compile(r"(?m)^\S.*?\b([A-Za-z_]\w{3,})\(")
_TEST_FILE: Final = re.compile(
    r"(?:^|/)(?:tests?|__tests__|testing)/"
    r"|(?:^|/)(?:test_[^/]*|[^/]*(?<!load)(?<!stress)(?<!perf)_test|conftest)\.py$"
)


@record
class UnreadPrompt:
    """A file, or a template in it, that could not be followed, and why."""

    reason: str
    span: Span


@record
class PromptReading:
    """What a run found.

    Attributes:
        prompts: how many prompts were looked at.
        rendered: paths of template files that code renders, and which were judged with what it gives them.
        built: the prompts themselves.
        logs: what request logs say of their load.
    """

    defects: tuple[Defect, ...]
    unread: tuple[UnreadPrompt, ...]
    prompts: int
    rendered: frozenset[str] = frozenset()
    built: tuple[Prompt, ...] = ()
    logs: tuple[LogSummary, ...] = ()


def read_prompts(
    files: Sequence[SourceFile],
    *,
    named: Iterable[str] = (),
    log_settings: Mapping[str, LogSettings] | None = None,
    unread: Mapping[str, str] | None = None,
) -> PromptReading:
    """Look at every file of a run by its kind: Python, Jinja, YAML and JSON with templates in them, request logs.

    Args:
        named: paths of files that were named rather than found.
        log_settings: what is known of the servers that logs are linked to, by path.
        unread: what of a log was left unread, by path.
    """
    settings = log_settings or {}
    logs: list[LogSummary] = []
    asked = set(named)
    python = [file for file in files if file.path.endswith((".py", ".pyi"))]
    jinja = [file for file in files if _suffix(file.path) in SUFFIXES]
    reading = read_python(python, named=asked, templates=jinja)
    defects, problems, count = list(reading.defects), list(reading.unread), reading.prompts

    library = by_name(jinja)
    judged: list[tuple[str, list[Defect]]] = []
    included: set[str] = set()

    def read(file: SourceFile) -> None:
        log = read_log(file, (unread or {}).get(file.path))
        if isinstance(log, LogProblem):
            problems.append(UnreadPrompt(log.message, log.span))
            return
        _sum_up(file, log, settings.get(file.path), logs, defects, problems)

    for file in files:
        suffix = _suffix(file.path.removesuffix(".gz"))
        if suffix in SUFFIXES:
            if file.path in reading.rendered or not (file.path in asked or is_prompt_template(file)):
                continue
            found: list[FoundTemplate] = [FoundTemplate(whole(file), "jinja", file.path)]
        elif suffix in (".yaml", ".yml", ".json"):
            if suffix == ".json" and looks_like_requests(file.text):
                read(file)
                continue
            found = list(templates_in(file))
            defects += load_generators(file) if suffix != ".json" else ()
        elif suffix in (".sh", ".bash"):
            defects += load_generators(file)
            continue
        elif suffix in (".jsonl", ".ndjson") or (suffix in (".txt", ".log") and file.path in asked):
            if file.path in asked or looks_like_log(file.text):
                read(file)
            continue
        else:
            if file.path in asked and suffix not in (".py", ".pyi"):
                problems.append(UnreadPrompt(unfollowed(file.path), file.line_span(1)))
            continue
        for template in found:
            count += 1
            _read_template(template, library, judged, included, problems)
    for path, said in judged:
        if path in asked or path not in included:
            defects += said
    return PromptReading(
        tuple(each_once(defects)), tuple(problems), count, reading.rendered, reading.built, tuple(logs)
    )


def looks_like_requests(text: str) -> bool:
    """Whether a JSON file is a list of requests."""
    head = text[:4000].lstrip()
    return head.startswith("[") and ('"messages"' in head or '"conversations"' in head)


def _suffix(path: str) -> str:
    name = path.rpartition("/")[2]
    return "." + name.rpartition(".")[2].lower() if "." in name else ""


def by_name(templates: Iterable[SourceFile]) -> dict[str, SourceFile]:
    """Template files by their names, by which code and other templates call them."""
    return {file.path.rpartition("/")[2]: file for file in templates}


def _read_template(
    template: FoundTemplate,
    library: Mapping[str, SourceFile],
    judged: list[tuple[str, list[Defect]]],
    included: set[str],
    problems: list[UnreadPrompt],
) -> None:
    path = template.text.span.path
    if template.style == "format":
        judged.append((path, list(judge(placeholder_prompt(template.text, template.name)))))
        return
    read = read_template(template.text, name=template.name, library=library)
    if isinstance(read, TemplateProblem):
        if _suffix(path) in SUFFIXES:
            problems.append(UnreadPrompt(read.message, read.span))
        return
    included |= read.included
    judged.append((path, [*read.defects, *judge(read.prompt)]))


def _sum_up(
    file: SourceFile,
    log: RequestLog,
    settings: LogSettings | None,
    logs: list[LogSummary],
    defects: list[Defect],
    problems: list[UnreadPrompt],
) -> None:
    summary = summarise(file, log, settings)
    if summary.unread is not None:
        problems.append(UnreadPrompt(summary.unread, log.requests[summary.requests - 1].span))
    logs.append(summary)
    defects += log_defects(summary, log.requests)


def read_python(
    files: Sequence[SourceFile],
    *,
    named: Iterable[str] = (),
    templates: Sequence[SourceFile] = (),
    only: tuple[str, str | None] | None = None,
) -> PromptReading:
    """Follow the Python files of a run.

    Args:
        files: every file that an import may mean.
        templates: Jinja files that code may render.
        named: paths of files and directories that were named: what a name says of a test counts below them only.
        only: path of the one file to look at, and the function in it (``Class.method``), None for all of them.
    """
    project = Project(files)
    asked = set(named)
    chosen = [
        module
        for path, module in project.modules.items()
        if (path == only[0] if only else not is_test(path, asked) and may_hold_prompts(module.file.text))
    ]
    sinks = Sinks()
    evaluator = Evaluator(project, sinks, by_name(templates))
    unread: list[UnreadPrompt] = []
    called: set[str] = set()
    roots: list[tuple[ModuleSource, ast.FunctionDef | ast.AsyncFunctionDef, ast.ClassDef | None]] = []
    for module in chosen:
        tree = module.parse()
        if tree is None:
            if module.problem is not None:
                unread.append(UnreadPrompt(module.problem.message, module.problem.span))
            continue
        own = list(_functions(tree))
        for node, _ in own:
            called |= project.look_at(module, node).calls
        called |= set(_CALLS_AT_TOP.findall(module.file.text))
        roots += [(module, node, cls) for node, cls in own]
    project.settle()
    for module in chosen:
        evaluator.run_module(module)
    # callers first: a function that one of them follows is not looked at again without its arguments
    for late in (False, True):
        for module, node, cls in roots:
            if (
                id(node) not in evaluator.followed
                and (node.name in called) is late
                and (evaluator.relevant(node, module) if only is None else _is_meant(node, cls, only[1]))
            ):
                evaluator.followed.add(id(node))
                evaluator.root(module, node, cls)
    for module in chosen if only is None else ():
        for text in _jinja_constants(module):
            if (text.span.path, text.span.start) not in evaluator.rendered:
                template = read_template(text)
                if not isinstance(template, TemplateProblem):
                    sinks.prompts.append(template.prompt)
                    sinks.defects += template.defects
        sinks.defects += same_seeds(module)
    unread += _given_up(evaluator.given_up)
    defects = tuple(sinks.finish())
    return PromptReading(
        defects,
        tuple(unread),
        len(sinks.prompts) + len(sinks.weak),
        frozenset(path for path, _ in evaluator.rendered),
        tuple(sinks.prompts) or tuple(sinks.weak),
    )


def _given_up(functions: Sequence[tuple[str, Span]]) -> Iterator[UnreadPrompt]:
    """The functions that were not followed to their end; of a tree that is too large, the first stands for all."""
    if len(functions) > MAX_GIVEN_UP:
        (name, span), others = functions[0], len(functions) - 1
        yield UnreadPrompt(f"{name}() and {others:,} other functions take too many steps to follow to their end", span)
        return
    for name, span in functions:
        yield UnreadPrompt(f"{name}() takes too many steps to follow to its end", span)


def _is_meant(node: ast.FunctionDef | ast.AsyncFunctionDef, cls: ast.ClassDef | None, name: str | None) -> bool:
    """Whether a function is the one that is named."""
    return name is None or name == (f"{cls.name}.{node.name}" if cls is not None and "." in name else node.name)


_JINJA: Final = re.compile(r"\{%-?\s*\w|\{\{-?\s*[A-Za-z_]")


def _jinja_constants(module: ModuleSource) -> Iterator[Text]:
    """Constants of a module that are Jinja templates of prompts."""
    if module.tree is None or not _JINJA.search(module.file.text):
        return
    for statement in module.tree.body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or not isinstance(statement.value, ast.Constant):
            continue
        value = statement.value.value
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        name = target.id if isinstance(target, ast.Name) else ""
        if not isinstance(value, str) or not _JINJA.search(value):
            continue
        if is_prompt_name(name) or "template" in words_of(name) or renders_roles(value):
            yield located(module.places.span(statement.value), value)


def may_hold_prompts(text: str) -> bool:
    """Whether a Python file may send or build a prompt; asked of every file of a tree, and cheap."""
    if any(mark in text for mark in _MARKS):
        return True
    speaks = "prompt" in text or "PROMPT" in text
    return speaks and _BUILDS.search(text) is not None and _TERMINAL.search(text) is None


def is_test(path: str, named: Iterable[str] = ()) -> bool:
    """Whether a path is that of a test, whose prompts nobody sends; only what stands below a named directory counts."""
    for name in named:
        if path == name:
            return False
        if path.startswith(name + "/"):
            path = path[len(name) + 1 :]
            break
    return _TEST_FILE.search(path) is not None


def _functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, ast.ClassDef | None]]:
    """Functions of a module and methods of its classes; functions inside others belong to those."""

    def inside(
        body: list[ast.stmt], cls: ast.ClassDef | None
    ) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, ast.ClassDef | None]]:
        for statement in body:
            match statement:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    yield statement, cls
                case ast.ClassDef():
                    yield from inside(statement.body, statement)
                case ast.If() | ast.For() | ast.While():
                    yield from inside([*statement.body, *statement.orelse], cls)
                case ast.Try() | ast.With():
                    yield from inside(statement.body, cls)
                case _:
                    pass

    yield from inside(tree.body, None)
