"""One activation of a function while code is followed, and what the followers of code share."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kvgate.prompts.part import Change, Item, Kind, Part
from kvgate.prompts.python import chat
from kvgate.prompts.python.project import ModuleSource, Project
from kvgate.prompts.python.sinks import Sinks
from kvgate.prompts.python.tree import FunctionNode, emptiness, source_of
from kvgate.prompts.python.values import Class, Deferred, Fields, Function, Instance, Rows, Value, Written, either
from kvgate.prompts.vocabulary import is_history_name
from kvgate.source.text import SourceFile, Span

MAX_CALL_DEPTH: Final = 5
MAX_STEPS_PER_ROOT: Final = 30_000
MAX_STEPS: Final = 4_000_000
MAX_ITEMS: Final = 400
MAX_UNROLLED: Final = 12
#: Lines of a function that sends nothing from which on its value is not followed.
MAX_LINES_OF_HELPERS: Final = 80

#: Methods that run when an object begins: what they evaluate stays.
BEGINNINGS: Final = ("__init__", "__post_init__", "setup", "on_start", "__aenter__", "__enter__")

#: Words of names that hold settings, which stay while the program runs.
CONFIGURATION: Final = frozenset({"settings", "config", "cfg", "conf", "constants", "env", "configuration", "args"})


@dataclass(slots=True, eq=False)
class Frame:
    """One activation of a function, or a module's body.

    Attributes:
        path: see :attr:`kvgate.prompts.part.Part.path`.
        definitions: the expression that a local name was last assigned.
        conditions: tests of the branches around the statement.
        earlier: names that run over a history without its end.
        unordered: loops around the statement that run in no stable order.
        place: where everything stands that is evaluated now (inside an f-string).
        over_history: how many loops around the statement run over a history.
    """

    module: ModuleSource
    path: tuple[str, ...]
    names: dict[str, Value] = field(default_factory=dict)
    owner: Instance | None = None
    closure: Frame | None = None
    returns: list[Value] = field(default_factory=list)
    yields: list[Value] = field(default_factory=list)
    definitions: dict[str, ast.expr] = field(default_factory=dict)
    conditions: list[ast.expr] = field(default_factory=list)
    earlier: set[str] = field(default_factory=set)
    unordered: list[Part] = field(default_factory=list)
    place: Span | None = None
    over_history: int = 0
    target: str = ""
    node: FunctionNode | ast.Lambda | None = None


class BudgetError(Exception):
    """A root took too many steps; what was found until then counts."""


class Follower(ABC):
    """What the parts of the evaluator know of each other."""

    def __init__(self, project: Project, sinks: Sinks, templates: Mapping[str, SourceFile] | None = None) -> None:
        self.project = project
        self.sinks = sinks
        self.templates = templates or {}
        self.rendered: set[tuple[str, int]] = set()
        self.followed: set[int] = set()
        self.given_up: list[tuple[str, Span]] = []
        self.discarded: ast.expr | None = None
        self.spread: dict[int, Mapping[str, Span]] = {}
        self.results: dict[tuple[tuple[object, ...], tuple[str, ...] | None], Written] = {}
        self._relevance: dict[int, bool] = {}
        self._reading_loops: dict[int, bool] = {}
        self._assigning: dict[tuple[int, str], list[FunctionNode]] = {}
        self._globals: dict[str, dict[str, Value]] = {}
        self._imported: set[str] = set()
        self._instances: dict[int, Instance] = {}
        self._stack: list[int] = []
        self._steps = 0
        self._limit = MAX_STEPS

    def span(self, node: ast.expr | ast.stmt, frame: Frame) -> Span:
        """Where a node stands."""
        return frame.place or frame.module.places.span(node)

    def step(self) -> None:
        """Count a step.

        Raises:
            BudgetError: the root took too many.
        """
        self._steps += 1
        if self._steps > self._limit:
            raise BudgetError

    def relevant(self, node: FunctionNode, module: ModuleSource) -> bool:
        """Whether a function, or one that it calls, holds words of a prompt."""
        known = self._relevance.get(id(node))
        if known is None:
            known = self._relevance[id(node)] = self.project.is_relevant(node, module)
        return known

    @abstractmethod
    def global_value(self, module: ModuleSource, name: str) -> Value | None: ...

    @abstractmethod
    def resolved(self, deferred: Deferred) -> Value: ...

    @abstractmethod
    def instance(self, cls: Class) -> Instance: ...

    @abstractmethod
    def class_of(self, base: ast.expr, module: ModuleSource) -> Class | None: ...

    @abstractmethod
    def enter(
        self, function: Function, args: list[Value], kwargs: dict[str, Value], path: tuple[str, ...]
    ) -> Value: ...

    @abstractmethod
    def assign(self, target: ast.expr, value: Value, source: ast.expr | None, frame: Frame) -> None: ...

    @abstractmethod
    def expression(self, node: ast.expr, frame: Frame) -> Value: ...

    @abstractmethod
    def call(self, node: ast.Call, frame: Frame) -> Value: ...

    @abstractmethod
    def percent(self, node: ast.BinOp, left: Written, right: Value, frame: Frame) -> Value: ...


def asked_once(node: ast.If, frame: Frame) -> bool:
    """``if self.system is None: self.system = ...`` and the like: the branch runs once per conversation."""
    subject = emptiness(node.test)
    if subject is None:
        return False
    kept = isinstance(subject, ast.Attribute | ast.Subscript)
    history = isinstance(subject, ast.Name) and is_history_name(subject.id)
    shared = isinstance(subject, ast.Name) and subject.id not in frame.names
    if not (kept or history or shared):
        return False
    text = source_of(subject)
    for statement in node.body:
        for below in ast.walk(statement):
            if isinstance(below, ast.Assign) and any(source_of(target).startswith(text) for target in below.targets):
                return True
            if (
                isinstance(below, ast.Call)
                and isinstance(below.func, ast.Attribute)
                and below.func.attr in ("append", "insert", "extend", "update", "setdefault")
                and source_of(below.func.value) == text
            ):
                return True
    return False


def concat(left: tuple[Item, ...], right: tuple[Item, ...]) -> Written:
    return Written((left + right)[:MAX_ITEMS])


def unordered_of(value: Value) -> Part | None:
    if isinstance(value, Rows | Fields):
        return value.unordered
    return value.first(Kind.UNORDERED) if isinstance(value, Written) else None


def set_part(span: Span, path: tuple[str, ...]) -> Part:
    words = "a set, whose order changes between processes"
    return Part(Kind.UNORDERED, Change.REQUEST, span, words=words, path=path)


def ordered(value: Value) -> Value:
    if not isinstance(value, Written):
        return value
    kept = tuple(item for item in value.items if not (isinstance(item, Part) and item.kind is Kind.UNORDERED))
    return Written(kept)


def merge(left: dict[str, Value], right: dict[str, Value]) -> dict[str, Value]:
    merged = dict(left)
    for name, value in right.items():
        known = merged.get(name)
        merged[name] = value if known is None or known is value else either([known, value])
    return merged


def over_messages(elements: list[Value]) -> bool:
    """Whether a list is one of messages, over which a loop runs as over a history."""
    return sum(chat.is_message(element) for element in elements) > 1
