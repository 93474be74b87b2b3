"""A run over files: which hold prompts, and what is wrong with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kvgate.prompts.defect import Defect
from kvgate.prompts.jinja import read_template, renders_roles
from kvgate.prompts.jinja_tree import TemplateProblem
from kvgate.prompts.python.evaluator import Evaluator
from kvgate.prompts.python.placeholders import located
from kvgate.prompts.python.project import ModuleSource, Project
from kvgate.prompts.python.sinks import Sinks
from kvgate.prompts.vocabulary import is_prompt_name, words_of
from kvgate.source.text import SourceFile, Span, Text

# A Python file without any of these sends no prompt and builds none.
_MATTERS: Final = re.compile(
    r"[\"']role[\"']|\bmessages\b|prompt|instructions|SystemMessage|cache_salt|from_messages|system_message|bind_tools"
    r"|\btools\s*=|HttpUser|\brole=|\{%-?\s*(?:message|now|generation)\b|<\|im_start\|>",
    re.IGNORECASE,
)
_CALLS_AT_TOP: Final = re.compile(r"(?m)^\S.*?\b([A-Za-z_]\w{3,})\(")
_TEST_FILE: Final = re.compile(r"(?:^|/)(?:tests?|__tests__|testing)/|(?:^|/)(?:test_[^/]*|conftest)\.py$")


@dataclass(frozen=True, slots=True)
class UnreadPrompt:
    """A file, or a template in it, that could not be followed, and why."""

    reason: str
    span: Span


@dataclass(frozen=True, slots=True)
class PromptReading:
    """What a run found.

    Attributes:
        prompts: how many prompts were looked at.
        rendered: paths of template files that code renders, and which were judged with what it gives them.
    """

    defects: tuple[Defect, ...]
    unread: tuple[UnreadPrompt, ...]
    prompts: int
    rendered: frozenset[str] = frozenset()


def read_python(
    files: Sequence[SourceFile], *, named: Iterable[str] = (), templates: Sequence[SourceFile] = ()
) -> PromptReading:
    """Follow the Python files of a run.

    Args:
        files: every file that an import may mean.
        templates: Jinja files that code may render.
        named: paths of files that were named, and are looked at although they look like tests.
    """
    project = Project(files)
    asked = set(named)
    chosen = [
        module
        for path, module in project.modules.items()
        if _MATTERS.search(module.file.text) and (path in asked or not is_test(path))
    ]
    sinks = Sinks()
    evaluator = Evaluator(project, sinks, {file.path.rpartition("/")[2]: file for file in templates})
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
        evaluator.globals_of(module)
    # callers first: a function that one of them follows is not looked at again without its arguments
    for late in (False, True):
        for module, node, cls in roots:
            if (
                id(node) not in evaluator.followed
                and (node.name in called) is late
                and evaluator.relevant(node, module)
            ):
                evaluator.followed.add(id(node))
                evaluator.root(module, node, cls)
    for module in chosen:
        for text in _jinja_constants(module):
            if (text.span.path, text.span.start) not in evaluator.rendered:
                template = read_template(text)
                if not isinstance(template, TemplateProblem):
                    sinks.prompts.append(template.prompt)
                    sinks.defects += template.defects
    defects = tuple(sinks.finish())
    return PromptReading(
        defects, tuple(unread), len(sinks.prompts) + len(sinks.weak), frozenset(path for path, _ in evaluator.rendered)
    )


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


def is_test(path: str) -> bool:
    """Whether a path is that of a test: what it builds is sent by nobody."""
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
