"""The circumstances under which a line of a Python file runs: rounds of loops, and calls of the function around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice
from typing import Final

from kvgate.manifests.python_names import MAX_STEPS, Bound, Names
from kvgate.manifests.python_source import FUNCTIONS, has_init, key_of

MAX_TIMES: Final = 16
MAX_CALLS: Final = 3  # of functions, one within the other
# Calls that are given a function to run.
_LATER: Final = ("Process", "Thread", "run_in_executor", "submit", "to_thread")


class Times(Names):
    """What the names of a module stand for, each time that a line of it runs."""

    def times(self, node: ast.AST, depth: int = 0) -> list[list[Bound]]:
        """What the names around a node stand for, each time that it runs; once nothing where that is not told apart."""
        found: list[list[Bound]] = [[]]
        self._steps += 1
        if self._steps > MAX_STEPS:
            return found
        inner, current = node, self._parents.get(node)
        while current is not None and not isinstance(current, FUNCTIONS):
            part: ast.For | ast.comprehension | None = None
            if isinstance(current, ast.For) and inner in current.body:
                part = current
            elif isinstance(current, (ast.ListComp, ast.GeneratorExp, ast.DictComp)) and len(current.generators) == 1:
                part = current.generators[0] if inner is not current.generators[0] else None
            if part is not None:
                rounds = self._rounds(part.target, part.iter, 0)
                if rounds is not None and all(condition is None for _, condition in rounds):
                    found = [[(current, names), *rest] for names, _ in rounds for rest in found]
            if len(found) > MAX_TIMES:
                return [[]]
            inner, current = current, self._parents.get(current)
        if isinstance(current, FUNCTIONS) and depth < MAX_CALLS:
            calls = list(islice(self._calls_around(current), MAX_TIMES + 1))
            outside = [[*above, bound] for call, bound in calls for above in self.times(call, depth + 1)]
            if outside and len(calls) <= MAX_TIMES and len(outside) * len(found) <= MAX_TIMES:
                return [[*above, *rest] for above in outside for rest in found]
        return found

    def _calls_around(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[ast.Call, Bound]]:
        """The calls through which a function runs, and what they give it; those that make its object, for a method
        that is given nothing itself."""
        owner = self._parents.get(function)
        told = function.args.args[1:] or function.args.kwonlyargs
        if not isinstance(owner, ast.ClassDef) or (told and function.name != "__init__"):
            if function.name in self._repeated:
                return
            later = (call for name in _LATER for call in self._calls_of.get(name, ()))
            deferred = (made for call in later if (made := self.deferred(call)) is not None)
            handed = [call for call in deferred if (key_of(call.func) or "").rpartition(".")[2] == function.name]
            called = ast.Attribute if isinstance(owner, ast.ClassDef) else ast.Name
            plain = [call for call in self._calls_of.get(function.name, ()) if isinstance(call.func, called)]
            for call in (*plain, *handed):
                if not self._is_within(call, function) and not self.never_runs(call):
                    yield call, (function, self.given_in(function, call))
            return
        first = next((item for item in owner.body if isinstance(item, FUNCTIONS) and item.name == "__init__"), None)
        for call in self._calls_of.get(owner.name, ()):
            if self._is_within(call, owner):
                continue
            if first is not None:
                yield call, (first, self.given_in(first, call))
            elif not has_init(owner):
                yield call, (owner, dict(self._fields(owner, call)))

    def _fields(self, owner: ast.ClassDef, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
        """The fields of an object, by what its call says of them."""
        names = [key_of(item.target) for item in owner.body if isinstance(item, ast.AnnAssign)]
        for name, value in zip(names, call.args, strict=False):
            yield f"self.{name}", value
        for keyword in call.keywords:
            if keyword.arg is not None:
                yield f"self.{keyword.arg}", keyword.value
