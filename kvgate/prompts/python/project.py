"""The Python files of a run as modules: which file an import means, parsed when it is needed."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kvgate.prompts.syntax import Places, Problem, parse_python
from kvgate.records import record
from kvgate.source.text import SourceFile


@dataclass(slots=True, eq=False)
class ModuleSource:
    """One file.

    Attributes:
        name: dotted name from the root of the run.
        tree: None where it cannot be parsed; ``problem`` says why.
    """

    file: SourceFile
    name: str
    package: bool
    places: Places
    tree: ast.Module | None = None
    problem: Problem | None = None
    parsed: bool = False
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    bindings: dict[str, ast.stmt] = field(default_factory=dict)

    def parse(self) -> ast.Module | None:
        if not self.parsed:
            self.parsed = True
            tree = parse_python(self.file)
            if isinstance(tree, Problem):
                self.problem = tree
            else:
                self.tree = tree
                for statement in _top(tree.body):
                    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                        self.functions[statement.name] = statement
                    elif isinstance(statement, ast.ClassDef):
                        self.classes[statement.name] = statement
                    else:
                        self.bindings.update((name, statement) for name in _bound(statement))
        return self.tree


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements at the top of a module, those of its branches included."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from _top(statement.body)
            yield from _top(statement.orelse)
        elif isinstance(statement, ast.Try):
            yield from _top(statement.body)
            for handler in statement.handlers:
                yield from _top(handler.body)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement at the top of a module binds."""
    match statement:
        case ast.Assign():
            for target in statement.targets:
                yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
        case ast.AnnAssign() if statement.value is not None and isinstance(statement.target, ast.Name):
            yield statement.target.id
        case ast.Import() | ast.ImportFrom():
            yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
        case _:
            return


#: What a function holds that sends a prompt, or builds one.
_WORDS: Final = re.compile(
    r"\brole\b|\b[mM]essages\b|[pP]rompt|PROMPT|[iI]nstructions?\b|INSTRUCTIONS|Message\(|cache_salt|\btools\b|[hH]istory\b"
    r"|[\"']content[\"']|\.content\b|\bLLMs?\b|[\"']system[\"']|system_|\bsystem\s*=|[tT]emplate\(|\.render\(|[Mm]emory\("
    r"|\.(?:a?invoke|a?generate|chat|completions?|a?complete|acompletion|create)\("
)
_ROUNDS: Final = 3
_CALLED: Final = re.compile(r"\b([A-Za-z_]\w{3,})\(")


@record
class FunctionFacts:
    """What a look at a function says.

    Attributes:
        told: it holds words of a prompt.
        calls: names of what it calls.
    """

    name: str
    told: bool
    calls: frozenset[str]


class Project:
    """All Python files of a run."""

    def __init__(self, files: Iterable[SourceFile]) -> None:
        self.modules: dict[str, ModuleSource] = {}
        self._by_tail: dict[str, list[ModuleSource]] = {}
        self._facts: dict[int, FunctionFacts] = {}
        self._relevant: set[str] = set()
        for file in files:
            parts = file.path.removesuffix(".py").removesuffix(".pyi").split("/")
            package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if package else parts)
            module = ModuleSource(file, name, package, Places(file))
            self.modules[file.path] = module
            self._by_tail.setdefault(name.rpartition(".")[2], []).append(module)

    def look_at(self, module: ModuleSource, node: ast.FunctionDef | ast.AsyncFunctionDef) -> FunctionFacts:
        """What a function holds and calls."""
        known = self._facts.get(id(node))
        if known is None:
            lines = module.file.line_starts
            end = node.end_lineno or node.lineno
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            text = module.file.text[lines[first - 1] : lines[end] if end < len(lines) else len(module.file.text)]
            calls = frozenset(_CALLED.findall(text))
            known = self._facts[id(node)] = FunctionFacts(node.name, _WORDS.search(text) is not None, calls)
        return known

    def settle(self) -> None:
        """Find out which functions lead to one that holds words of a prompt, by their names."""
        self._relevant = {facts.name for facts in self._facts.values() if facts.told}
        for _ in range(_ROUNDS):
            more = {
                facts.name
                for facts in self._facts.values()
                if facts.name not in self._relevant and facts.calls & self._relevant
            }
            if not more:
                break
            self._relevant |= more

    def is_relevant(self, node: ast.FunctionDef | ast.AsyncFunctionDef, module: ModuleSource) -> bool:
        """Whether a function holds words of a prompt, or calls one that does."""
        facts = self.look_at(module, node)
        return facts.told or bool(facts.calls & self._relevant)

    def find(self, dotted: str, near: ModuleSource) -> ModuleSource | None:
        """The file that an absolute import means: the one whose path ends so, the nearest of several."""
        if dotted.partition(".")[0] in sys.stdlib_module_names:
            return None
        candidates = [
            module
            for module in self._by_tail.get(dotted.rpartition(".")[2], ())
            if module.name == dotted or module.name.endswith("." + dotted)
        ]
        if not candidates:
            return None
        return max(candidates, key=lambda module: _shared(module.name, near.name))

    def relative(self, level: int, dotted: str, near: ModuleSource) -> ModuleSource | None:
        """The file that ``from ..x import y`` means."""
        parts = near.name.split(".") if near.name else []
        drop = level - 1 if near.package else level
        base = parts[: len(parts) - drop] if drop else parts
        name = ".".join([*base, *([dotted] if dotted else [])])
        for module in self._by_tail.get(name.rpartition(".")[2], ()):
            if module.name == name:
                return module
        return None


def _shared(left: str, right: str) -> int:
    """How many leading parts two dotted names share."""
    count = 0
    for one, other in zip(left.split("."), right.split("."), strict=False):
        if one != other:
            break
        count += 1
    return count
