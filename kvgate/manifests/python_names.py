"""Names of a Python file and what they stand for, as far as its text says."""

from __future__ import annotations

import ast
import operator
import posixpath
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from kvgate.manifests.python_scopes import Assigned, Scopes
from kvgate.manifests.python_source import (
    FUNCTIONS,
    Source,
    attributes_of,
    called_name,
    default_of,
    has_init,
    is_text,
    key_of,
    made_or_called,
    parameters_of,
    place_of,
    put_before,
    written_call,
)
from kvgate.shell.value import Hole, Value, value_of_word
from kvgate.source.text import Span, Text, Unresolved, Word

MAX_DEPTH: Final = 12
MAX_TEXT: Final = 50_000
MAX_STEPS: Final = 100_000
GROWN: Final = 20  # steps that a part of a text counts for
# Calls that declare a field of a class or an option of a function, and take its default.
_DECLARES: Final = frozenset({"Argument", "Field", "Option", "Query", "field", "parameter"})
# Methods of texts that are followed, and the longest text on which they are.
_TEXT_METHODS: Final = frozenset(
    {"lower", "lstrip", "removeprefix", "removesuffix", "replace", "rsplit", "rstrip", "split", "strip", "upper"}
)
MAX_PLAIN_TEXT: Final = 1_000
# What makes a path of the same file: functions of os.path, methods of pathlib.
_PATH_FUNCTIONS: Final = frozenset({"abspath", "expanduser", "expandvars", "fspath", "normpath", "realpath"})
_PATH_METHODS: Final = frozenset({"absolute", "as_posix", "expanduser", "resolve"})
_CASTS: Final = frozenset({"str", "int", "float", "Path", "PurePath", "PosixPath"})
# Calls that stand for their first argument, whatever else they are given: a program by its name, a model to download.
_STANDS_FOR: Final = frozenset({"HuggingFaceModel", "which"})
_KINDS: Final[Mapping[str, type]] = {
    "bool": bool, "dict": dict, "float": float, "int": int, "list": list, "str": str, "tuple": list,
}  # fmt: skip
MAX_ROUNDS: Final = 100
_PERCENT: Final = re.compile(r"(?<!%)%(?:\.?\d+)?[sdifgr]")
_COMPARES: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.eq, ast.IsNot: operator.ne, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le, ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}  # fmt: skip

Others: TypeAlias = Callable[[str, int], "Names | None"]

Item = tuple[str, ast.expr, Span, str | None]
"""Key, value, place of the key, and the condition under which it is there; the key "" stands for all the entries of a
mapping that is not known."""

_NOT_KNOWN: Final = "what it holds is not in the files read"


_Round: TypeAlias = tuple[dict[str, ast.expr], str | None]
"""What the names of a loop stand for in one round, and the condition under which there is such a round."""

Bound: TypeAlias = tuple[ast.AST, dict[str, ast.expr]]
"""A loop, a function or a class, and what names stand for within it, this time."""


class Names(Scopes):
    """What the names of a module stand for.

    Raises:
        TooLargeError: the module has more nodes than are looked at.
    """

    def __init__(
        self,
        source: Source,
        module: ast.Module,
        limit: int,
        others: Others | None = None,
        given: Mapping[str, Value] | None = None,
    ) -> None:
        """
        Args:
            limit: of the nodes of the module.
            others: the names of another module of the tree, by its dotted name and the number of leading dots.
            given: environment variables that the program is started with.
        """
        super().__init__(source, module, limit)
        self._others = others
        self._environment = given or {}
        self._settled: dict[tuple[ast.AST, str], list[Assigned]] = {}
        self._returns: dict[ast.AST, list[ast.expr]] = {}
        self._arguments: dict[tuple[ast.AST, str], ast.expr | None] = {}
        self._told: set[tuple[ast.AST, str]] = set()
        self._bound: list[Bound] = []
        self._steps = 0

    @contextmanager
    def at(self, bound: Sequence[Bound]) -> Iterator[None]:
        """What names stand for this time: in a round of a loop, in a call of a function."""
        settled, self._settled = self._settled, {}  # under other conditions
        self._bound += bound
        try:
            yield
        finally:
            del self._bound[len(self._bound) - len(bound) :]
            self._settled = settled

    def given_in(self, function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call) -> dict[str, ast.expr]:
        """What the parameters of a function stand for in one call, save those that it sets anew."""
        given = dict(self._given(function, call))
        for name in parameters_of(function) - given.keys():
            default = self._default_in(default_of(function, name))
            if default is not None:
                given[name] = default
        rest = function.args.vararg
        if rest is not None and not any(isinstance(value, ast.Starred) for value in call.args):
            first = len(function.args.posonlyargs) + len(function.args.args)
            further = call.args[first - isinstance(self._parents.get(function), ast.ClassDef) :]
            given[rest.arg] = ast.copy_location(ast.Tuple(further, ast.Load()), call)
        rest = function.args.kwarg
        if rest is not None and all(keyword.arg is not None for keyword in call.keywords):
            more = {name: given.pop(name) for name in list(given) if name not in parameters_of(function)}
            keys = [ast.copy_location(ast.Constant(name), value) for name, value in more.items()]
            given[rest.arg] = ast.copy_location(ast.Dict(list(keys), list(more.values())), call)
        return {name: value for name, value in given.items() if (function, name) not in self._assigned}

    # -- assignments -------------------------------------------------------------------------------------------------

    def _of_scope(self, scope: ast.AST, key: str) -> list[Assigned] | None:
        """The assignments to a name in one scope that may happen; None where there are none at all."""
        written = self._assigned.get((scope, key))
        if written is None:
            return None
        settled = self._settled.get((scope, key))
        if settled is None:
            self._settled[scope, key] = [Assigned(None, False)]  # unknown to conditions that ask for the name itself
            settled = []
            for node, assigned, call in written:
                happens, condition = self._condition(node, scope)
                if call is not None and happens:
                    happens, around = self._condition(call, scope)
                    condition = condition or around
                if happens:
                    loop = self._loop(node, scope) if call is None and condition is not None else None
                    loop = None if loop is not None and self._is_bound(loop[0]) else loop
                    settled.append(Assigned(assigned.value, assigned.adds, condition, place_of(call or node), loop))
            self._settled[scope, key] = settled
        return settled or None

    def _condition(self, node: ast.AST, scope: ast.AST | None) -> tuple[bool, str | None]:
        """Whether a statement of a scope may run, and what must hold for that, as written."""
        inner, current = node, self._parents.get(node)
        while current is not None and current is not scope:
            if isinstance(current, ast.If):
                truth, first = self._truth(current.test), inner in current.body
                if truth is None:
                    test = self.source.written(current.test)
                    return True, test if first else f"not ({test})"
                if truth is not first:
                    return False, None
            elif isinstance(current, (ast.For, ast.AsyncFor, ast.While)) and not self._is_bound(current):
                return True, f"the loop in line {current.lineno} runs"
            elif isinstance(current, ast.ExceptHandler):
                return True, "something fails"
            elif isinstance(current, ast.match_case):
                return True, f"the case in line {current.pattern.lineno} is met"
            inner, current = current, self._parents.get(current)
        return True, None

    def _truth(self, test: ast.expr, depth: int = 0) -> bool | None:
        """Whether a condition holds, by what the file says; None where it does not say."""
        if depth > MAX_DEPTH:
            return None
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._truth(test.operand, depth + 1)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            parts = [self._truth(value, depth + 1) for value in test.values]
            decides = isinstance(test.op, ast.Or)
            return decides if decides in parts else None if None in parts else not decides
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            if isinstance(test.left, ast.Name) and test.left.id == "__name__":
                return True  # that the file is the main module
            if isinstance(test.ops[0], (ast.In, ast.NotIn)) and self._is_environment(test.comparators[0]):
                name, known = self.constant(test.left, depth + 1)
                return (name in self._environment) is isinstance(test.ops[0], ast.In) if known else None
            left, right = self.constant(test.left, depth + 1), self.constant(test.comparators[0], depth + 1)
            compare = _COMPARES.get(type(test.ops[0]))
            if not left[1] or not right[1] or compare is None:
                return None
            try:
                return bool(compare(left[0], right[0]))
            except TypeError:
                return None
        value, known = self.constant(test, depth + 1)
        return bool(value) if known else None

    # -- what is imported and called ---------------------------------------------------------------------------------

    def imported(self, node: ast.expr) -> str:
        """The dotted name of a callable, its first part as it was imported."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ".".join(reversed(parts))
        parts.append(self._imports.get(node.id, node.id))
        return ".".join(reversed(parts))

    def origin(self, node: ast.expr) -> str:
        """The dotted name of what a name stands for that is assigned: ``LLM = import_module("vllm").LLM``."""
        parts: list[str] = []
        for _ in range(MAX_DEPTH):
            node = self.followed(node)
            if (
                isinstance(node, ast.Call)
                and self.imported(node.func).rpartition(".")[2] == "import_module"
                and node.args
            ):
                name, known = self.constant(node.args[0])
                return ".".join([str(name), *reversed(parts)]) if known else ""
            if not isinstance(node, ast.Attribute):
                break
            parts.append(node.attr)
            node = node.value
        return ".".join([self.imported(node), *reversed(parts)])

    def made_of(self, call: ast.Call) -> ast.Call | None:
        """The call that made what is handed on as ``**asdict(made)`` or ``**vars(made)``."""
        for keyword in call.keywords:
            given = keyword.value
            if keyword.arg is None and isinstance(given, ast.Call) and called_name(given) in ("asdict", "vars"):
                made = self.followed(given.args[0]) if len(given.args) == 1 else None
                return made if isinstance(made, ast.Call) else None
        return None

    def forwarded(self, call: ast.Call) -> list[ast.Call]:
        """The calls whose keywords a function hands on with ``**kwargs``; none where it hands on something else."""
        rest = [keyword.value for keyword in call.keywords if keyword.arg is None]
        if len(rest) != 1 or not isinstance(rest[0], ast.Name):
            return []
        function = self._function(call)
        if function is None or function.args.kwarg is None or function.args.kwarg.arg != rest[0].id:
            return []
        owner = self._parents.get(function)
        name = owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
        found: list[ast.Call] = []
        for other in self.calls:
            if made_or_called(other) == name and (other.keywords or other.args):
                plain = all(keyword.arg is not None for keyword in other.keywords)
                if plain and other.keywords:
                    found.append(other)
        return found

    def deferred(self, call: ast.Call) -> ast.Call | None:
        """``f(x)`` for ``Process(target=f, args=(x,))``, ``pool.submit(f, x)`` and the like."""
        name, given = written_call(call)
        if name in ("Process", "Thread") and "target" in given:
            listed = self.followed(given["args"]) if "args" in given else None
            function, words = given["target"], listed.elts if isinstance(listed, (ast.List, ast.Tuple)) else []
        elif name in ("submit", "to_thread", "run_in_executor"):
            function, *words = call.args[name == "run_in_executor" :] or [call.func]
        else:
            return None
        made = ast.copy_location(ast.Call(function, list(words), []), call)
        self._parents[made] = self._parents[call]
        return made

    def texts(self, pattern: re.Pattern[str]) -> Iterator[ast.expr]:
        """The texts of the file that begin with a pattern, each whole as it is put together."""
        seen: set[ast.AST] = set()
        for node in list(self._parents):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and pattern.match(node.value):
                whole: ast.AST = node
                while isinstance(above := self._parents.get(whole), (ast.JoinedStr, ast.BinOp, ast.List)):
                    whole = above
                if isinstance(whole, ast.List):  # "\n".join(lines)
                    whole = above if isinstance(above, ast.Call) and self.joins_texts(above) else node
                if isinstance(whole, ast.expr) and whole not in seen:
                    seen.add(whole)
                    yield whole

    def lists(self) -> Iterator[tuple[ast.List, ast.expr | None]]:
        """The lists of the file that may be command lines of vLLM, in its order, and what each is assigned to."""
        for written in self._lists:
            texts = (item.value for item in written.elts if isinstance(item, ast.Constant))
            if any(isinstance(text, str) and ("vllm" in text.lower() or text == "-m") for text in texts):
                above = self._parents.get(written)
                if isinstance(above, ast.Assign) and len(above.targets) == 1:
                    yield written, above.targets[0]
                else:
                    yield written, above.target if isinstance(above, ast.AnnAssign) else None

    def elements(self, node: ast.expr | None) -> list[ast.expr]:
        """What a list that is written out holds."""
        listed = self.followed(node) if node is not None else None
        return listed.elts if isinstance(listed, (ast.List, ast.Tuple)) else []

    def around(self, node: ast.AST) -> Iterator[ast.Call]:
        """The calls that a node is an argument of, and the decorators that are calls, of the functions and classes
        around it; the nearest first."""
        current = self._parents.get(node)
        while current is not None:
            if isinstance(current, ast.Call) and isinstance(node, ast.Call):
                yield current
            if isinstance(current, (*FUNCTIONS, ast.ClassDef)):
                for decorator in current.decorator_list:
                    if isinstance(decorator, ast.Call):
                        yield decorator
            current = self._parents.get(current)

    def never_runs(self, node: ast.AST) -> bool:
        """Whether a node stands under ``if False:``."""
        inner, current = node, self._parents.get(node)
        while current is not None:
            if isinstance(current, ast.If) and isinstance(current.test, ast.Constant) and inner is not current.test:
                runs = inner in current.body
                if bool(current.test.value) is not runs:
                    return True
            inner, current = current, self._parents.get(current)
        return False

    def is_claim(self, node: ast.AST) -> bool:
        """Whether a node is a part of an ``assert`` or of a comparison: what is said about it, not done."""
        current: ast.AST | None = node
        while current is not None and not isinstance(current, (ast.Assert, ast.Compare)):
            current = self._parents.get(current) if isinstance(current, ast.expr | ast.keyword) else None
        return current is not None

    def environment_assignments(self) -> Iterator[tuple[str, ast.expr, Span]]:
        """``os.environ["X"] = value``, wherever it stands."""
        for node in ast.walk(self.module):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
                target = node.targets[0]
                if self.imported(target.value) in ("os.environ", "environ") and isinstance(target.slice, ast.Constant):
                    yield str(target.slice.value), node.value, self.source.span(node)
        for call in self.calls:
            name = self.imported(call.func)
            if name.endswith("environ.setdefault") and len(call.args) == 2 and isinstance(call.args[0], ast.Constant):
                yield str(call.args[0].value), call.args[1], self.source.span(call)
            elif name.endswith("environ.update") and call.args and isinstance(call.args[0], ast.Dict):
                for key, value in zip(call.args[0].keys, call.args[0].values, strict=True):
                    if isinstance(key, ast.Constant):
                        yield str(key.value), value, self.source.span(key)

    # -- following ---------------------------------------------------------------------------------------------------

    def _assignments(self, node: ast.expr, depth: int = 0) -> list[Assigned] | None:
        """The assignments that a name or attribute stands for, nearest scope first; None where there are none."""
        key = key_of(node)
        if depth > MAX_DEPTH:
            return None
        bound = self._in_round(node)
        if bound is not None:
            return [Assigned(bound, False)]
        if key is None:
            return self._field(node, depth) if isinstance(node, ast.Attribute) else None
        scope: ast.AST | None = self._class(node) if key.startswith("self.") else self._scope(node)
        while scope is not None:
            found = self._of_scope(scope, key)
            if found is not None:
                # what a name is given is made of what it was before: ``words = words + more``
                found = [each for each in found if each.value is None or not self._is_within(node, each.value)] or None
            if found is not None and not key.startswith("self."):
                found = _in_force(found, node if scope is self._scope(node) else None)
            if found is not None:
                first = found[0]
                unsure = first.condition is not None or first.adds
                if unsure and isinstance(scope, FUNCTIONS) and key in parameters_of(scope):
                    found = [Assigned(self._argument(scope, key), False), *found]
                return found
            if isinstance(scope, FUNCTIONS) and key in parameters_of(scope):
                return [Assigned(self._argument(scope, key), False)]
            scope = self._scope(scope) if scope is not self.module else None
        if isinstance(node, ast.Attribute):
            return self._field(node, depth) or self._option(node.attr)
        return None

    def _field(self, node: ast.Attribute, depth: int) -> list[Assigned] | None:
        """``Settings.model``, ``Settings().model`` and ``self.model``: what the class was made with, or says itself."""
        owner = node.value
        value: ast.expr | None = None
        if isinstance(owner, ast.Name) and owner.id == "self":
            found = self._class(node)
            made = [call for call in self.calls if found is not None and key_of(call.func) == found.name]
            if len(made) > 1 and not has_init(found):
                return None
            call = made[0] if made else None
        elif isinstance(owner, ast.Name) and owner.id in self._classes:
            found, call = self._classes[owner.id], None
        else:
            value = self.followed(owner, depth + 1)
            if not isinstance(value, ast.Call):
                found, call = self._classes.get(key_of(value) or ""), None
            else:
                found, call = self._classes.get(key_of(value.func) or ""), value
            if found is None and isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords:
                # bentoml.use_arguments(Settings), tyro.cli(Settings): its defaults, or what the command line says
                found, call = self._classes.get(key_of(value.args[0]) or ""), None
        if found is None:
            # an object of another library: what it was made with by that name
            keywords = written_call(value)[1] if isinstance(value, ast.Call) else {}
            return [Assigned(keywords[node.attr], False)] if node.attr in keywords else None
        if has_init(found):
            call = None  # what it is made with goes there
        for keyword in call.keywords if call is not None else ():
            if keyword.arg == node.attr:
                return [Assigned(keyword.value, False)]
            if keyword.arg is None:
                return None
        return self._said_by(found, node.attr, call, depth)

    def _said_by(self, owner: ast.ClassDef, name: str, call: ast.Call | None, depth: int) -> list[Assigned] | None:
        """What a class or those above it say of an attribute that it was not told of by name."""
        fields = [key_of(item.target) for item in owner.body if isinstance(item, ast.AnnAssign)]
        if call is not None and call.args:
            if name not in fields or any(isinstance(argument, ast.Starred) for argument in call.args):
                return None
            if fields.index(name) < len(call.args):
                return [Assigned(call.args[fields.index(name)], False)]
        found = self._of_scope(owner, name) or self._of_scope(owner, f"self.{name}")
        if found is not None:
            return [Assigned(self._default_in(each.value), each.adds, each.condition) for each in found]
        for base in owner.bases:
            above = self._classes.get(key_of(base) or "")
            if above is not None and depth < MAX_DEPTH:
                return self._said_by(above, name, None, depth + 1)
        return None

    def _default_in(self, value: ast.expr | None) -> ast.expr | None:
        """``Field(default="x")``, ``field(default_factory=lambda: [])``, ``typer.Option("x")``: the default inside."""
        if not isinstance(value, ast.Call) or written_call(value)[0] not in _DECLARES:
            return value
        given = written_call(value)[1]
        factory = given.get("default_factory")
        if isinstance(factory, ast.Lambda):
            return factory.body
        if factory is not None and key_of(factory) in ("dict", "list"):
            empty = ast.Dict([], []) if key_of(factory) == "dict" else ast.List([], ast.Load())
            return ast.copy_location(empty, factory)
        default = given.get("default") or next(iter(value.args), None)
        return None if isinstance(default, ast.Constant) and default.value is ... else default

    def _option(self, name: str) -> list[Assigned] | None:
        """``args.model``: the default of the option that ``argparse`` was told of."""
        call = self._options.get(name)
        if call is None:
            return None
        options = {keyword.arg: keyword.value for keyword in call.keywords}
        action = options.get("action")
        stores = isinstance(action, ast.Constant) and action.value in ("store_true", "store_false")
        if isinstance(action, ast.Constant) and stores and "default" not in options:
            value = ast.copy_location(ast.Constant(action.value == "store_false"), call)
            return [Assigned(value, False)]
        return [Assigned(options.get("default"), False)]

    def _argument(self, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
        """What a parameter is given: by the one call of the file, else its default."""
        if (function, name) not in self._arguments:
            self._arguments[function, name] = self._find_argument(function, name)
        return self._arguments[function, name]

    def _find_argument(self, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
        arguments = function.args
        ordered = [*arguments.posonlyargs, *arguments.args]
        position = next((index for index, item in enumerate(ordered) if item.arg == name), None)
        owner = self._parents.get(function)
        if position is not None and isinstance(owner, ast.ClassDef):
            position -= 1
        called = owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
        given: list[ast.expr] = []
        bare = 0
        for call in self.calls:
            if made_or_called(call) != called:
                continue
            value = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
            if value is None and position is not None and 0 <= position < len(call.args):
                value = call.args[position]
            if value is None:
                bare += 1
            else:
                given.append(value)
        if given:
            same = len({self.source.written(value) for value in given}) == 1
            return given[0] if same and not bare else None
        default = default_of(function, name)
        if default is not None:
            return self._default_in(default)
        for decorator in function.decorator_list:  # click.option("--model", default="x")
            if not isinstance(decorator, ast.Call) or not decorator.args:
                continue
            option = decorator.args[0]
            if isinstance(option, ast.Constant) and str(option.value).lstrip("-").replace("-", "_") == name:
                return next((item.value for item in decorator.keywords if item.arg == "default"), None)
        return None

    def given_by_callers(self, node: ast.expr) -> list[ast.expr]:
        """What the calls of a function give for a parameter, where they are several; none for other expressions, nor
        when asked again."""
        function = self._function(node)
        if not isinstance(node, ast.Name) or function is None or node.id not in parameters_of(function):
            return []
        key = (function, node.id)
        if key in self._assigned or key in self._told or function.name in self._repeated:
            return []
        self._told.add(key)
        given = [
            value
            for call in self._calls_of.get(function.name, ())
            for parameter, value in self._given(function, call)
            if parameter == node.id
        ]
        return given if len(given) > 1 else []

    def followed(self, node: ast.expr, depth: int = 0) -> ast.expr:
        """The expression that a name stands for; the node itself where it is none or stands for several."""
        if depth > MAX_DEPTH:
            return node
        entry = self._entry(node, depth)
        if entry is not None:
            return self.followed(entry, depth + 1)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            element = self._element(node.value, node.slice.value, depth)
            if element is not None:
                return self.followed(element, depth + 1)
            return node
        if isinstance(node, ast.Attribute) and node.attr == "value":
            member = self.followed(node.value, depth + 1)  # of an enumeration
            if isinstance(member, ast.Constant) and isinstance(member.value, str):
                return member
        if isinstance(node, ast.IfExp):
            truth = self._truth(node.test, depth + 1)
            return node if truth is None else self.followed(node.body if truth else node.orelse, depth + 1)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):  # config or Config()
            for part in node.values[:-1]:
                value, known = self.constant(part, depth + 1)
                if not known or value:
                    return self.followed(part, depth + 1) if known else node
            last = self.followed(node.values[-1], depth + 1)
            return last if isinstance(last, ast.Call) else node
        if isinstance(node, ast.Call) and called_name(node) == "getattr" and len(node.args) > 1:
            name, known = self.constant(node.args[1], depth + 1)
            if known and isinstance(name, str):
                attribute = self._attribute(node.args[0], name, node)
                reached = self.followed(attribute, depth + 1)
                return node if reached is attribute else reached
        if isinstance(node, ast.Call):
            returned = self._returned(node)
            if returned is None or self._condition(returned, self._function(returned)) != (True, None):
                return node
            return self.followed(returned, depth + 1)
        found = self._assignments(node, depth)
        if found is None or any(assigned.adds or assigned.value is None for assigned in found):
            return node
        values = [assigned.value for assigned in found if assigned.value is not None]
        if len(found) == 2 and found[0].condition is None and found[1].condition in _lacking(key_of(node) or ""):
            return ast.copy_location(ast.BoolOp(ast.Or(), values), node)  # if not x: x = "default"
        # an attribute of an object from elsewhere has a value before it is set under a condition
        unsure = found[0].condition is not None and isinstance(node, ast.Attribute) and key_of(node.value) != "self"
        return self.followed(values[0], depth + 1) if len(values) == 1 and not unsure else node

    def _element(self, node: ast.expr, index: object, depth: int) -> ast.expr | None:
        """One of a list that is written out."""
        listed = self.followed(node, depth + 1) if type(index) is int else None
        if not isinstance(listed, (ast.List, ast.Tuple)) or type(index) is not int:
            return None
        spread = any(isinstance(part, ast.Starred) for part in listed.elts)
        return listed.elts[index] if not spread and -len(listed.elts) <= index < len(listed.elts) else None

    def _entry(self, node: ast.expr, depth: int) -> ast.expr | None:
        """What ``mapping["key"]`` or ``mapping.get("key", default)`` stands for, where the mapping is written out."""
        if isinstance(node, ast.Subscript):
            owner, given = node.value, [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
            owner, given = node.func.value, node.args
        else:
            return None
        key, known = self.constant(given[0], depth + 1) if given else (None, False)
        if not known or not isinstance(key, str):
            return None
        items = self.items(owner, depth + 1)
        found = [item for item in items or () if item[0] in (key, "")]
        if found:
            return found[-1][1] if found[-1][3] is None else None
        return given[1] if items is not None and len(given) == 2 else None

    def why(self, node: ast.expr) -> str:
        """Why an expression has no value here."""
        found = self._assignments(node)
        if found is not None and len(found) > 1:
            return "it is assigned several times"
        variable = self._variable(node)
        if variable is not None:
            return f"{variable[0]} is set in no file here"
        if isinstance(node, ast.Call):
            return "what this call returns is known at run time only"
        return "what it stands for is not in the files read"

    # -- values ------------------------------------------------------------------------------------------------------

    def constant(self, node: ast.expr, depth: int = 0) -> tuple[Any, bool]:
        """The value of an expression, and whether it is known."""
        self._steps += 1
        if depth > MAX_DEPTH or self._steps > MAX_STEPS:
            return None, False
        node = self.followed(node, depth)
        if isinstance(node, ast.Constant):
            return (node.value, True) if isinstance(node.value, (str, int, float, bool, type(None))) else (None, False)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value, known = self.constant(node.operand, depth + 1)
            return (-value, True) if known and isinstance(value, (int, float)) else (None, False)
        if isinstance(node, ast.BinOp):
            return self._computed(node, depth)
        if isinstance(node, (ast.List, ast.Tuple)):
            items = [self.constant(item, depth + 1) for item in node.elts]
            return ([value for value, _ in items], True) if all(known for _, known in items) else (None, False)
        if isinstance(node, ast.Dict) or (isinstance(node, ast.Call) and self._makes_mapping(node)):
            return self._mapping(node, depth)
        variable = self._variable(node)
        if variable is not None:
            return self.constant(variable[1], depth + 1) if variable[1] is not None else (None, False)
        if isinstance(node, ast.Call):
            return self._called(node, depth)
        if isinstance(node, ast.Subscript):
            return self._item(node, depth)
        if isinstance(node, ast.JoinedStr):
            word = self.word(node)
            return (word.value, True) if word.resolved else (None, False)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):  # os.getenv("X") or "default"
            return self._first_known(node, depth)
        one_test = isinstance(node, ast.Compare) and len(node.ops) == 1
        if one_test or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            truth = self._truth(node, depth + 1)
            return truth, truth is not None
        return self._elsewhere(node, depth) if isinstance(node, (ast.Name, ast.Attribute)) else (None, False)

    def _elsewhere(self, node: ast.Name | ast.Attribute, depth: int) -> tuple[Any, bool]:
        """The value of a name that another module of the tree has."""
        first, *rest = (key_of(node) or "").split(".")
        if first not in self._origins:
            # an object of a class that another module has, made without a word
            owner: ast.expr = node
            while isinstance(owner, ast.Attribute):
                owner = owner.value
            made = self.followed(owner, depth + 1)
            if not isinstance(made, ast.Call) or made.args or made.keywords:
                return None, False
            first, *called = (key_of(made.func) or "").split(".")
            rest = [*called, "()", *(part.attr for part in reversed(list(attributes_of(node))))]
        if self._others is None or first not in self._origins:
            return None, False
        module, level, name = self._origins[first]
        if name is not None:
            inside = self._others(f"{module}.{name}".lstrip("."), level)  # from package import module
            if inside is not None:
                return inside.value_of(rest, depth + 1)
            rest = [name, *rest]
        other = self._others(module, level)
        return other.value_of(rest, depth + 1) if other is not None else (None, False)

    def value_of(self, path: Sequence[str], depth: int = 0) -> tuple[Any, bool]:
        """The value of ``name.attribute`` or ``Class().attribute`` in the whole module, and whether it is known."""
        if not path:
            return None, False
        place = {"lineno": 1, "col_offset": 0, "end_lineno": 1, "end_col_offset": 0}
        node: ast.expr = ast.Name(path[0], ast.Load(), **place)
        for attribute in path[1:]:
            self._parents[node] = self.module
            if attribute == "()":
                node = ast.Call(node, [], [], **place)
            else:
                node = ast.Attribute(node, attribute, ast.Load(), **place)
        self._parents[node] = self.module
        return self.constant(node, depth)

    def _first_known(self, node: ast.BoolOp, depth: int) -> tuple[Any, bool]:
        for value in node.values:
            variable = self._variable(self.followed(value))
            if variable is not None and variable[1] is None:
                continue  # a variable that is set nowhere here
            known = self.constant(value, depth + 1)
            if not known[1] or known[0]:
                return known
        return None, False

    def _path_steps(self, node: ast.expr) -> list[ast.expr] | None:
        """The steps of a path whose last one is known: ``folder / "vllm"``, ``os.path.join(folder, "vllm")``,
        ``Path(program).with_name("vllm")``; None for other expressions."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            steps = [node.left, node.right]
        elif not isinstance(node, ast.Call) or node.keywords or not isinstance(node.func, ast.Attribute):
            return None
        elif node.func.attr == "join" and self.imported(node.func).endswith("path.join"):
            steps = node.args
        elif node.func.attr in ("joinpath", "with_name"):
            steps = [node.func.value, *node.args]
        else:
            return None
        value, known = self.constant(steps[-1]) if steps else (None, False)
        return steps if known and isinstance(value, str) else None

    @staticmethod
    def _path(*parts: tuple[Any, bool]) -> tuple[Any, bool]:
        values = [value for value, known in parts if known and isinstance(value, str) and len(value) <= MAX_PLAIN_TEXT]
        return (posixpath.join(*values), True) if len(values) == len(parts) else (None, False)

    def _item(self, node: ast.Subscript, depth: int) -> tuple[Any, bool]:
        whole, index = self.constant(node.value, depth + 1), self.constant(node.slice, depth + 1)
        if not whole[1] or not index[1] or not isinstance(whole[0], (str, list, dict)):
            return None, False
        try:
            return whole[0][index[0]], True
        except (LookupError, TypeError):
            return None, False

    def _computed(self, node: ast.BinOp, depth: int) -> tuple[Any, bool]:
        left, right = self.constant(node.left, depth + 1), self.constant(node.right, depth + 1)
        if not left[1] or not right[1]:
            return None, False
        one, other = left[0], right[0]
        if isinstance(node.op, ast.Div) and isinstance(one, str):
            return self._path(left, right)
        if isinstance(node.op, ast.Add) and type(one) is type(other) and isinstance(one, (str, int, float)):
            return one + other, True
        numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (one, other))
        if not numbers or abs(one) > 1e12 or abs(other) > 1e12:
            return None, False
        if isinstance(node.op, ast.Mult):
            return one * other, True
        if isinstance(node.op, ast.Sub):
            return one - other, True
        if isinstance(node.op, ast.FloorDiv) and other:
            return one // other, True
        if isinstance(node.op, ast.Div) and other:
            return int(one / other) if one / other == int(one / other) else one / other, True
        if isinstance(node.op, ast.Pow) and 0 <= other <= 40 and abs(one) <= 1024:
            return one**other, True
        return None, False

    def _mapping(self, node: ast.expr, depth: int) -> tuple[Any, bool]:
        items = self.items(node, depth + 1)
        if items is None:
            return None, False
        result: dict[str, Any] = {}
        for name, value, _, condition in items:
            known = self.constant(value, depth + 1)
            if condition is not None or not known[1]:
                return None, False
            result[name] = known[0]
        return result, True

    def _called(self, node: ast.Call, depth: int) -> tuple[Any, bool]:
        name = self.imported(node.func).rpartition(".")[2]
        if name == "dumps" and len(node.args) == 1:
            value, known = self.constant(node.args[0], depth + 1)
            if known:
                import json

                return json.dumps(value, ensure_ascii=False), True
        if name in _TEXT_METHODS and isinstance(node.func, ast.Attribute) and not node.keywords:
            given = [self.constant(part, depth + 1) for part in (node.func.value, *node.args)]
            if all(known and isinstance(value, (str, int)) for value, known in given) and isinstance(given[0][0], str):
                return self._text_method(name, *(value for value, _ in given))
        if name == "join" and self.imported(node.func).endswith("path.join"):
            parts = [self.constant(part, depth + 1) for part in node.args]
            return self._path(*parts) if parts else (None, False)
        if name in _PATH_METHODS and isinstance(node.func, ast.Attribute) and not node.args:
            return self.constant(node.func.value, depth + 1)
        if name == "len" and len(node.args) == 1 and self.imported(node.args[0]) == "sys.argv":
            return 1, True  # nothing but the name of the program
        if name in ("max", "min") and len(node.args) > 1 and not node.keywords:
            given = [self.constant(part, depth + 1) for part in node.args]
            if all(known and type(value) in (int, float) for value, known in given):
                return (max if name == "max" else min)(value for value, _ in given), True
        if name == "isinstance" and len(node.args) == 2:
            return self._is_instance(node.args[0], node.args[1], depth)
        if node.args and name in _STANDS_FOR:
            return self.constant(node.args[0], depth + 1)
        if len(node.args) != 1 or node.keywords:
            return None, False
        value, known = self.constant(node.args[0], depth + 1)
        if known and name in _PATH_FUNCTIONS:
            return (value, True) if isinstance(value, str) else (None, False)
        if not known or name not in (*_CASTS, "bool"):
            return None, False
        try:
            if name == "int":
                return int(value), True
            if name == "float":
                return float(value), True
            if name == "bool":
                return bool(value), True
        except (TypeError, ValueError, OverflowError):
            return None, False
        return (str(value), True) if isinstance(value, (str, int, float)) else (None, False)

    def _is_instance(self, node: ast.expr, kinds: ast.expr, depth: int) -> tuple[Any, bool]:
        value, known = self.constant(node, depth + 1)
        asked = {key_of(kind) or "" for kind in (kinds.elts if isinstance(kinds, ast.Tuple) else [kinds])}
        if not known and isinstance(node := self.followed(node, depth + 1), ast.JoinedStr):
            value, known = "", True
        return (
            (any(isinstance(value, _KINDS[kind]) for kind in asked), True)
            if known and asked <= _KINDS.keys()
            else (None, False)
        )

    @staticmethod
    def _text_method(name: str, text: str, *given: object) -> tuple[Any, bool]:
        if len(text) > MAX_PLAIN_TEXT or any(isinstance(value, str) and len(value) > 100 for value in given):
            return None, False
        try:
            return getattr(text, name)(*given), True
        except (TypeError, ValueError):
            return None, False

    def _variable(self, node: ast.expr) -> tuple[str, ast.expr | None] | None:
        """``os.environ["X"]``, ``os.getenv("X", default)``: the variable, and what it is given or its default."""
        found = self._read_variable(node)
        given = self._environment.get(found[0]) if found is not None else None
        if found is None or given is None:
            return found
        return found[0], ast.copy_location(ast.Constant(given.value), node) if given.resolved else None

    def _read_variable(self, node: ast.expr) -> tuple[str, ast.expr | None] | None:
        if isinstance(node, ast.Subscript):
            if isinstance(node.slice, ast.Constant) and self._is_environment(node.value):
                return str(node.slice.value), None
            return None
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func
            mapping = called.value if isinstance(called, ast.Attribute) and called.attr == "get" else None
            of_mapping = mapping is not None and self._is_environment(mapping)
            if of_mapping or self.imported(called) in ("os.getenv", "getenv"):
                default = node.args[1] if len(node.args) > 1 else None
                default = next((item.value for item in node.keywords if item.arg == "default"), default)
                return str(node.args[0].value), default
        return None

    def _is_environment(self, node: ast.expr) -> bool:
        """``os.environ``, a copy of it, or a name that one call or assignment gives it."""
        for _ in range(MAX_DEPTH):
            if isinstance(node, ast.Call):
                name = self.imported(node.func)
                copied = node.func.value if isinstance(node.func, ast.Attribute) and name.endswith(".copy") else None
                node = copied or (node.args[0] if name == "dict" and len(node.args) == 1 else node)
            if self.imported(node) in ("os.environ", "environ"):
                return True
            found = self._assignments(node) if isinstance(node, ast.Name) else None
            if found is None or len(found) != 1 or found[0].value is None or found[0].condition is not None:
                return False
            node = found[0].value
        return False

    def items(self, node: ast.expr, depth: int = 0) -> list[Item] | None:
        """The entries of a mapping, later ones last; None where it is none that is written out."""
        if depth > MAX_DEPTH or self._steps > MAX_STEPS:
            return None
        found = self._assignments(node, depth)
        if found is not None:
            result: list[Item] = []
            for assigned in found:
                inner = self.items(assigned.value, depth + 1) if assigned.value is not None else None
                if inner is None:
                    inner = [self._rest(assigned.value if assigned.value is not None else node)]
                if not assigned.adds and assigned.condition is None:
                    result = []
                result += [(name, value, at, why or assigned.condition) for name, value, at, why in inner]
            result += self._set_keys(node)
            self._steps += len(result)
            return result if not result or any(name for name, *_ in result) else None
        if isinstance(node, ast.Dict):
            result = []
            for key, value in zip(node.keys, node.values, strict=True):
                if key is None:
                    inner = self.items(value, depth + 1)
                    result += inner if inner is not None else [self._rest(value)]
                elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                    result.append((key.value, value, self.source.string(key).span, None))
                else:
                    return None
            return result
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            sides = [(side, self.items(side, depth + 1)) for side in (node.left, node.right)]
            if all(found is None for _, found in sides):
                return None
            return [item for side, found in sides for item in (found if found is not None else [self._rest(side)])]
        if isinstance(node, ast.DictComp):
            return self._filtered(node, depth)
        if isinstance(node, ast.IfExp):
            chosen = self.followed(node, depth)
            return self.items(chosen, depth + 1) if chosen is not node else None
        if isinstance(node, ast.Attribute):
            returned = self._returned(node)  # a property
            return self.items(returned, depth + 1) if returned is not None else None
        return self._items_of_call(node, depth) if isinstance(node, ast.Call) else None

    def _makes_mapping(self, node: ast.Call) -> bool:
        """Whether a call's keywords are the entries of a mapping: of ``dict``, or an object of vLLM's configuration."""
        dotted = self.imported(node.func)
        name = dotted.rpartition(".")[2]
        of_vllm = dotted.startswith("vllm.") and name.endswith("Config") and not node.args
        return name in ("dict", "ModelLoadingConfig") or of_vllm

    def _items_of_call(self, node: ast.Call, depth: int) -> list[Item] | None:
        """``dict(base, key=value)``, ``base.copy()``, ``deepcopy(base)``, ``function_of_the_file()``."""
        name = self.imported(node.func).rpartition(".")[2]
        if name in ("copy", "deepcopy") and isinstance(node.func, ast.Attribute) and not node.args:
            return self.items(node.func.value, depth + 1)
        if name in ("copy", "deepcopy") and len(node.args) == 1:
            return self.items(node.args[0], depth + 1)
        if self._makes_mapping(node):
            result: list[Item] = []
            for base in node.args:
                inner = self.items(base, depth + 1)
                result += inner if inner is not None else [self._rest(base)]
            for keyword in node.keywords:
                if keyword.arg is None:
                    inner = self.items(keyword.value, depth + 1)
                    result += inner if inner is not None else [self._rest(keyword.value)]
                    continue
                start = self.source.offset(keyword.lineno, keyword.col_offset)
                place = Span(self.source.file, start, start + len(keyword.arg))
                result.append((keyword.arg, keyword.value, place, None))
            return result
        of_object = self._object_of(node)
        if of_object is not None:
            return self._items_of_object(of_object, node, depth)
        returned = self._returned(node)
        return self.items(returned, depth + 1) if returned is not None else None

    @staticmethod
    def _object_of(node: ast.Call) -> ast.expr | None:
        """``x`` of ``asdict(x)``, ``vars(x)``, ``x.model_dump()``: what a mapping of its fields is made of."""
        name = called_name(node)
        if name in ("asdict", "vars") and len(node.args) == 1:
            return node.args[0]
        dumps = name in ("dict", "model_dump") and isinstance(node.func, ast.Attribute) and not node.args
        return node.func.value if dumps and isinstance(node.func, ast.Attribute) else None

    def _items_of_object(self, node: ast.expr, use: ast.expr, depth: int) -> list[Item] | None:
        """The fields of an object of a class of the file, each with what it stands for."""
        if isinstance(node, ast.Name) and node.id == "self":
            owner = self._class(use)
        else:
            made = self.followed(node, depth + 1)
            owner = self._classes.get(key_of(made.func) or "") if isinstance(made, ast.Call) else None
        if owner is None or has_init(owner) or self._steps > MAX_STEPS:
            return None
        self._steps += len(owner.body)
        return [
            (item.target.id, self._attribute(node, item.target.id, use), self.source.span(item.target), None)
            for item in owner.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        ]

    def _attribute(self, node: ast.expr, name: str, use: ast.expr) -> ast.expr:
        """``node.name`` where another expression stands."""
        made = ast.copy_location(ast.Attribute(node, name, ast.Load()), use)
        self._parents[made] = self._parents.get(use, self.module)
        return made

    def _rest(self, node: ast.expr) -> Item:
        return ("", node, self.source.span(node), _NOT_KNOWN)

    def _filtered(self, node: ast.DictComp, depth: int) -> list[Item] | None:
        """``{key: value for key, value in mapping.items() if value is not None}``."""
        (part,) = node.generators if len(node.generators) == 1 else (None,)
        rounds = self._rounds(part.target, part.iter, depth + 1) if part is not None else None
        if part is None or rounds is None:
            return None
        result: list[Item] = []
        for names, given in rounds:
            self._bound.append((node, names))
            key, known = self.constant(node.key, depth + 1)
            value = self._in_round(node.value)
            holds = [self._truth(test) for test in part.ifs]
            self._bound.pop()
            if value is None or not (known and isinstance(key, str)):
                if given != _NOT_KNOWN or value is None:
                    return None
                key = ""
            if False not in holds:
                unsure = " and ".join(self.source.written(test) for test in part.ifs) if None in holds else None
                result.append((key, value, self.source.span(value), given or unsure))
        return result

    def _set_keys(self, node: ast.expr) -> list[Item]:
        """``config["key"] = value`` of the same scope."""
        result: list[Item] = []
        for target, value, statement in self._keyed.get((self._scope(node), key_of(node) or ""), ()):
            happens, condition = self._condition(statement, self._scope(statement))
            if happens:
                result.append((str(target.value), value, self.source.string(target).span, condition))
        return result

    # -- words -------------------------------------------------------------------------------------------------------

    def word(self, node: ast.expr, depth: int = 0) -> Word:
        """An expression as one word: its text, with a hole for each part that is not known."""
        return self._value(node, depth).word()

    def text(self, node: ast.expr) -> Value:
        """An expression as the text of a command line: what is not known in it may be several words."""
        value = self._value(node, 0)
        return Value(value.text, tuple(Hole(hole.start, hole.end, hole.unresolved) for hole in value.holes))

    def _value(self, node: ast.expr, depth: int) -> Value:
        node = self._plain(node)
        use = self._in_round(node) or node
        self._steps += 1
        if self._steps > MAX_STEPS:
            return Value.unknown(self.source.text(use), "it takes too long to follow", splits=False)
        grown = self._grown(node, depth)
        if grown is None:
            followed = self.followed(node)
            grown = self._grown(followed, depth) if followed is not node else None
            node = followed
        if grown is not None:
            return grown
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = self.source.string(node)
            return Value(text if len(text) <= MAX_TEXT else Text.at("", text.span))
        if isinstance(node, ast.JoinedStr) and depth <= MAX_DEPTH:
            parts: list[Value] = []
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    value = self._value(part.value, depth + 1).at(self.source.span(node))
                    parts.append(_in_braces(value) if len(node.values) > 1 else value)
                elif isinstance(part, ast.Constant):
                    parts.append(Value(Text.at(str(part.value), self.source.span(node))))
            return Value.join(parts) if parts else Value(Text.at("", self.source.span(node)))
        adds = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and depth <= MAX_DEPTH
        value, known = self.constant(node)
        if known and (isinstance(value, (int, float)) or (isinstance(value, str) and not adds)):
            return Value(Text.at(str(value), self.source.span(node)))
        if adds and isinstance(node, ast.BinOp):
            return Value.join([self._value(node.left, depth + 1), self._value(node.right, depth + 1)])
        while isinstance(node, ast.Call) and len(node.args) == 1 and written_call(node)[0] in _CASTS:
            use = node = node.args[0]  # int(x) is as little known as x
        if isinstance(node, ast.Call) and depth <= MAX_DEPTH and self.joins_texts(node) and len(node.args) == 1:
            words = self.words(node.args[0], depth + 1)
            if words is not None:
                mark = self.constant(node.func.value)[0] if isinstance(node.func, ast.Attribute) else None
                between = Value(Text.at(str(mark), self.source.span(node)))
                parts = [part for word in words for part in (between, value_of_word(word, splits=True))]
                return Value.join(parts[1:]) if parts else Value(Text.at("", self.source.span(node)))
        pieces = self._filled_in(node) if depth <= MAX_DEPTH else None
        if pieces is not None:
            place = self.source.span(node)
            filled = [Value(Text.at(it, place)) if isinstance(it, str) else self._value(it, depth + 1) for it in pieces]
            return Value.join(value.at(place) for value in filled) if filled else Value(Text.at("", place))
        steps = self._path_steps(node) if depth <= MAX_DEPTH else None
        if steps is not None:
            between = Value(Text.at("/", self.source.span(node)))
            parts = [part for step in steps for part in (between, self._value(step, depth + 1))]
            return Value.join(parts[1:])
        text = self.source.text(use)
        written = " ".join(text.value.split())
        return Value.unknown(text, self.why(node), written=written, splits=False)

    def _grown(self, node: ast.expr, depth: int) -> Value | None:
        """A text to which others are added (``line += " --flag"``); None for other expressions."""
        key = key_of(node)
        found = self._assignments(node, depth) if key is not None and depth <= MAX_DEPTH else None
        if found is None or len(found) < 2 or found[0].value is None or found[0].condition is not None:
            return None
        base = self.followed(found[0].value)
        if not is_text(base) and not self.joins_texts(base):
            return None
        self._steps += GROWN * len(found)  # what is added to a text may be made of it
        parts = [self._value(found[0].value, depth + 1)]
        for each in found[1:]:
            if not each.adds and each.value is not None and put_before(key or "", each.value):
                continue  # variables of the command that are set on a condition
            if not each.adds or each.value is None:
                return None
            parts += self._added(each, depth)
        if self._steps > MAX_STEPS:
            return Value.unknown(self.source.text(node), "it takes too long to follow", splits=False)
        return Value.join(parts)

    def _added(self, each: Assigned, depth: int) -> list[Value]:
        """What is added to a text, with a hole where it is added on a condition."""
        if each.value is None:
            return []
        node = self.followed(each.value)
        if isinstance(node, ast.IfExp) and each.condition is None:
            test = self.source.written(node.test)
            choices = ((node.body, f"only if {test}"), (node.orelse, f"only if not ({test})"))
            return [part for choice, why in choices for part in _without_value(self._value(choice, depth + 1), why)]
        value = self._value(each.value, depth + 1)
        if each.loop is not None:
            return _without_value(value, "what a loop adds is not followed")
        return [value] if each.condition is None else _without_value(value, f"only if {each.condition}")

    def _filled_in(self, node: ast.expr) -> list[str | ast.expr] | None:
        """The parts of ``"... {x}".format(x=1)`` and ``"... %s" % x``; None for other expressions."""
        template: ast.expr | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            template = node.func.value
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            template = node.left
        text, known = self.constant(template) if template is not None else (None, False)
        if not known or not isinstance(text, str):
            return None
        if isinstance(node, ast.BinOp):
            given = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
            pieces = _PERCENT.split(text)
            if len(pieces) != len(given) + 1:
                return None
            literal = [piece.replace("%%", "%") for piece in pieces]
            return [literal[0], *(part for pair in zip(given, literal[1:], strict=True) for part in pair)]
        if not isinstance(node, ast.Call):
            return None
        keywords = written_call(node)[1]
        parts: list[str | ast.expr] = []
        try:
            fields = list(string.Formatter().parse(text))
        except ValueError:
            return None
        counted = 0
        for before, name, _, _ in fields:
            parts.append(before)
            if name is None:
                continue
            index = counted if not name else int(name) if name.isdecimal() and len(name) < 4 else len(node.args)
            counted += not name
            value = keywords.get(name) if index >= len(node.args) else node.args[index]
            if value is None or isinstance(value, ast.Starred):
                return None
            parts.append(value)
        return parts

    def _plain(self, node: ast.expr) -> ast.expr:
        """``x`` for ``str(x)``: as a word it is the same."""
        while isinstance(node, ast.Call) and len(node.args) == 1 and key_of(node.func) == "str" and not node.keywords:
            node = node.args[0]
        return node

    def joined(self, node: ast.expr) -> ast.expr | None:
        """``" ".join(words)``, ``shlex.join(words)``, ``shlex.split(text)``: what is inside."""
        node = self.followed(node)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) != 1:
            return None
        return node.args[0] if node.func.attr == "join" else None

    def joins_texts(self, node: ast.expr) -> bool:
        """Whether it is ``" ".join(texts)``, which quotes nothing."""
        node = self.followed(node)
        owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        return isinstance(owner, ast.Constant)

    def given_by_parser(self, call: ast.Call) -> tuple[list[Word], list[Item]]:
        """The words that a parser reads for ``run(parser.parse_args())``, and what is set in its result behind that."""
        given = call.args[0] if call.args else None
        parsed = self.followed(given) if given is not None else call
        words: list[Word] | None = None
        if isinstance(parsed, ast.Call) and parsed.args and given is not None:
            words = self.words(parsed.args[0])
        elif isinstance(parsed, ast.Call) and given is not None and "args" in written_call(parsed)[1]:
            words = self.words(written_call(parsed)[1]["args"])
        elif parsed is call or (isinstance(parsed, ast.Call) and written_call(parsed)[0].startswith("parse_")):
            line = self._words_assigned(self._of_scope(self._scope(call), "sys.argv"), 0)
            words = line[1:] if line else None  # behind the name of the program
        if words is None:
            text = self.source.text(given or call)
            words = [Word(text, (Unresolved(text.value, "what the command line says"),), splits=True)]
        known = written_call(parsed)[1].get("namespace") if isinstance(parsed, ast.Call) else None
        if known is not None:  # what is parsed already
            words = [_unknown_words(self.source.text(known)), *words]
        return words, self._set_on(key_of(given), call) if given is not None else []

    def set_on_result(self, call: ast.Call) -> list[Item]:
        """What is set on the object that a call makes, by the name that it is assigned to: ``args.seed = 1``."""
        above = self._parents.get(call)
        if not isinstance(above, (ast.Assign, ast.AnnAssign)):
            return []
        target = above.targets[0] if isinstance(above, ast.Assign) else above.target
        return self._set_on(key_of(target), call)

    def _set_on(self, key: str | None, node: ast.AST) -> list[Item]:
        return [
            (name.rpartition(".")[2], each.value, self.source.span(each.value), each.condition)
            for where, name in list(self._assigned)
            if key is not None and name.rpartition(".")[0] == key and where in (self._scope(node), self.module)
            for each in self._of_scope(where, name) or ()
            if each.value is not None
        ]

    def _returned(self, node: ast.expr) -> ast.expr | None:
        """What a call of a function of the file, or a property of a class, returns where it has one ``return``."""
        called = isinstance(node, ast.Call)
        owner, _, name = (key_of(node.func if isinstance(node, ast.Call) else node) or "").rpartition(".")
        function = self._functions.get(name)
        if (
            function is None
            or name in self._repeated
            or owner.partition(".")[0] in self._imports
            or bool(owner) is not isinstance(self._parents.get(function), ast.ClassDef)
            or called is any((key_of(decorator) or "").endswith("property") for decorator in function.decorator_list)
        ):
            return None
        found = self.returns(function)
        return found[0] if len(found) == 1 else None

    def _within(self, returned: ast.expr, call: ast.expr) -> list[Bound]:
        """What the parameters of a function stand for in the call for which it returns something."""
        function = self._function(returned)
        if function is None or not isinstance(call, ast.Call) or self._is_bound(function):
            return []
        return [(function, self.given_in(function, call))]

    def _is_bound(self, node: ast.AST) -> bool:
        return any(owner is node for owner, _ in self._bound)

    def returns(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
        """What a function returns, in the order of its text."""
        if function not in self._returns:
            found = (part for part in ast.walk(function) if isinstance(part, ast.Return))
            self._returns[function] = [
                part.value for part in found if part.value is not None and self._function(part) is function
            ]
        return self._returns[function]

    def words(self, node: ast.expr, depth: int = 0) -> list[Word] | None:
        """The words of a list of arguments, with what is appended to it; None where it is no list."""
        if depth > MAX_DEPTH:
            return None
        if isinstance(node, (ast.IfExp, ast.Subscript)):
            chosen = self.followed(node, depth)
            return None if chosen is node else self.words(chosen, depth + 1)
        found = self._assignments(node, depth)
        if found is not None:
            return self._words_assigned(found, depth)
        if isinstance(node, (ast.List, ast.Tuple)):
            result = []
            for item in node.elts:
                if isinstance(item, ast.Starred):
                    inner = self.words(item.value, depth + 1)
                    result += inner if inner is not None else [_unknown_words(self.source.text(item.value))]
                else:
                    result.append(self.word(item))
            return result
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self._comprehended(node, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.words(node.left, depth + 1), self.words(node.right, depth + 1)
            if left is None:
                return None
            return [*left, *(right if right is not None else [_unknown_words(self.source.text(node.right))])]
        returned = self._returned(node)
        if returned is not None:
            with self.at(self._within(returned, node)):
                return self.words(returned, depth + 1)
        if isinstance(node, (ast.Name, ast.Attribute)):
            values, known = self._elsewhere(node, depth)
            if known and isinstance(values, list) and all(isinstance(value, (str, int, float)) for value in values):
                return [Word(Text.at(str(value), self.source.span(node))) for value in values]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "split" and self.imported(node.func) in ("shlex.split",) and node.args:
                from kvgate.shell.words import split_words

                return list(split_words(self._value(node.args[0], depth + 1)))
            if node.func.attr == "split" and not node.args:
                from kvgate.shell.words import split_words

                return list(split_words(self._value(node.func.value, depth + 1)))
        return None

    def _words_assigned(self, found: list[Assigned] | None, depth: int) -> list[Word] | None:
        """The words of a list that is assigned, and of what is appended to it."""
        result: list[Word] | None = None
        unrolled: ast.For | None = None
        for assigned in found or ():
            if assigned.loop is not None and assigned.adds:
                if assigned.loop[0] is unrolled:
                    continue
                together = [each for each in found or () if each.loop is not None and each.loop[0] is assigned.loop[0]]
                rounds = self._words_of_rounds(assigned.loop[0], together, depth)
                if rounds is not None:
                    unrolled = assigned.loop[0]
                    result = [*(result or ()), *rounds]
                    continue
            inner = self.words(assigned.value, depth + 1) if assigned.value is not None else None
            if inner is None:
                if result is None or not assigned.adds:
                    return None
                inner = [_unknown_words(self.source.text(assigned.value))] if assigned.value is not None else []
            if assigned.condition is not None:
                inner = [_conditional(word, assigned.condition) for word in inner]
            result = [*(result or ()), *inner] if assigned.adds or assigned.condition is not None else inner
        return result

    # -- loops -------------------------------------------------------------------------------------------------------

    def _words_of_rounds(self, loop: ast.For, additions: Sequence[Assigned], depth: int) -> list[Word] | None:
        """What a loop adds to a list, round by round; None where the files do not say over what it goes."""
        rounds = self._rounds(loop.target, loop.iter, depth)
        if rounds is None or depth > MAX_DEPTH or not all(each.adds for each in additions):
            return None
        _, outside = self._condition(loop, self._scope(loop))
        result: list[Word] = []
        for names, given in rounds:
            self._steps += 1
            if self._steps > MAX_STEPS:
                return None
            self._bound.append((loop, names))
            for addition in additions:
                statement = addition.loop[1] if addition.loop is not None else loop
                happens, condition = self._happens_in_round(statement, loop)
                inner = self.words(addition.value, depth + 1) if addition.value is not None and happens else []
                if inner is None and addition.value is not None:
                    inner = [_unknown_words(self.source.text(addition.value))]
                condition = outside or given or condition
                result += [_conditional(word, condition) for word in inner or ()] if condition else inner or ()
            self._bound.pop()
        return result

    def _happens_in_round(self, statement: ast.AST, loop: ast.For) -> tuple[bool, str | None]:
        happens, condition = self._condition(statement, loop)
        for other in loop.body:
            if not happens or self._is_within(statement, other):
                break
            if isinstance(other, ast.If) and isinstance(other.body[-1], ast.Continue):
                skips = self._truth(other.test)
                happens = skips is not True
                condition = condition or (f"not ({self.source.written(other.test)})" if skips is None else None)
        return happens, condition

    def _rounds(self, target: ast.expr, over: ast.expr, depth: int) -> list[_Round] | None:
        """The rounds of a loop over the entries of a mapping or over a list that is written out."""
        names = [key_of(part) or "" for part in _parts_of(target)]
        found: list[tuple[list[ast.expr], str | None]] = []
        view = self._view(over, depth)
        if view is not None:
            found = [(self._parts(target, entry, depth), condition) for entry, condition in view]
        elif isinstance(over, ast.Call) and called_name(over) == "fields" and len(over.args) == 1:
            for key, value, place, _ in self._items_of_object(over.args[0], over, depth) or ():
                # what dataclasses say of a field
                named = [ast.keyword("name", self._key_at(key, place)), ast.keyword("default", value)]
                found.append(([ast.copy_location(ast.Call(over.func, [], named), over)], None))
            if not found:
                return None
        else:
            listed = self._listed(over, depth + 1)
            if listed is None or len(listed) > MAX_ROUNDS:
                return None
            found = [(self._parts(target, item, depth), None) for item in listed]
        if len(found) > MAX_ROUNDS or any(len(parts) != len(names) for parts, _ in found):
            return None
        if any(isinstance(part, ast.Starred) for parts, _ in found for part in parts):
            return None
        return [(dict(zip(names, parts, strict=True)), condition) for parts, condition in found]

    def _view(self, over: ast.expr, depth: int) -> list[tuple[ast.expr, str | None]] | None:
        """``X.items()``, ``X.keys()`` or ``X.values()`` of a mapping that is known, each with its condition."""
        if not isinstance(over, ast.Call) or not isinstance(over.func, ast.Attribute) or over.args:
            return None
        kind = over.func.attr
        items = self.items(over.func.value, depth + 1) if kind in ("items", "keys", "values") else None
        if items is None:
            return None
        found: list[tuple[ast.expr, str | None]] = []
        latest = {name: (value, place, condition) for name, value, place, condition in items}
        for name, (value, place, condition) in latest.items():
            key = self._key_at(name, place) if name else value
            pair = ast.copy_location(ast.Tuple([key, value], ast.Load()), key)
            found.append(({"items": pair, "keys": key}.get(kind, value), condition))
        return found

    def _listed(self, over: ast.expr, depth: int) -> list[ast.expr] | None:
        """What a loop goes over: a list that is written out, ``zip`` and ``enumerate`` of such, a short ``range``, what
        a mapping holds."""
        node = self.followed(over, depth)
        if isinstance(node, (ast.List, ast.Tuple)):
            return node.elts
        if isinstance(node, ast.Dict):
            return [key for key in node.keys if key is not None] if None not in node.keys else None
        if not isinstance(node, ast.Call) or depth > MAX_DEPTH:
            return None
        name = called_name(node)
        view = self._view(node, depth)
        if view is not None:
            return [entry for entry, _ in view] if not any(condition for _, condition in view) else None
        if name in ("list", "sorted", "tuple") and len(node.args) == 1 and not node.keywords:
            inside = self._listed(node.args[0], depth + 1)
            return self._sorted(inside, depth) if name == "sorted" and inside is not None else inside
        if name not in ("enumerate", "range", "zip"):
            return None
        if name == "range":
            numbers = [self.constant(argument, depth + 1)[0] for argument in node.args]
            if (
                not numbers
                or len(numbers) > 3
                or not all(type(number) is int for number in numbers)
                or numbers[2:] == [0]
            ):
                return None
            counted = range(*numbers)
            return [_number(number, node) for number in counted] if len(counted) <= MAX_ROUNDS else None
        lists = [self._listed(argument, depth + 1) for argument in node.args[: 1 if name == "enumerate" else None]]
        columns = [column for column in lists if column is not None]
        if not columns or len(columns) < len(lists):
            return None
        if name == "enumerate":
            given = written_call(node)[1].get("start", node.args[1] if len(node.args) > 1 else None)
            first = self.constant(given, depth + 1)[0] if given is not None else 0
            if type(first) is not int:
                return None
            columns.insert(0, [_number(first + index, node) for index in range(len(columns[0]))])
        rows = zip(*columns, strict=False)
        return [ast.copy_location(ast.Tuple(list(row), ast.Load()), row[-1]) for row in rows]

    def _sorted(self, entries: list[ast.expr], depth: int) -> list[ast.expr] | None:
        """Texts, or rows that begin with one each, in their order."""
        firsts = [
            entry.elts[0] if isinstance(entry, (ast.List, ast.Tuple)) and entry.elts else entry for entry in entries
        ]
        texts = [self.constant(first, depth + 1)[0] for first in firsts]
        if not all(isinstance(text, str) for text in texts) or len(set(texts)) < len(texts):
            return None
        order = sorted(range(len(entries)), key=lambda index: str(texts[index]))
        return [entries[index] for index in order]

    def _parts(self, target: ast.expr, item: ast.expr, depth: int) -> list[ast.expr]:
        """What the names of a loop stand for in the round of one item."""
        if not isinstance(target, ast.Tuple):
            return [item]
        row = self.followed(item, depth + 1)
        if not isinstance(row, (ast.List, ast.Tuple)) or len(row.elts) != len(target.elts):
            return [item]
        return [
            part
            for inner, value in zip(target.elts, row.elts, strict=True)
            for part in self._parts(inner, value, depth)
        ]

    def _key_at(self, key: str, place: Span) -> ast.expr:
        line = place.line
        column = len(place.file.text[place.file.line_starts[line - 1] : place.start].encode())
        end = column + len(place.text.encode())
        return ast.Constant(key, lineno=line, col_offset=column, end_lineno=line, end_col_offset=end)

    def _comprehended(self, node: ast.ListComp | ast.GeneratorExp, depth: int) -> list[Word] | None:
        """The words that a comprehension makes; None where the files do not say over what it goes."""

        def made(level: int, condition: str | None) -> list[Word] | None:
            if level == len(node.generators):
                word = self.word(node.elt, depth + 1)
                return [word if condition is None else _conditional(word, condition)]
            part = node.generators[level]
            rounds = self._rounds(part.target, part.iter, depth + 1)
            if rounds is None:
                return None
            result: list[Word] = []
            for names, given in rounds:
                self._bound.append((node, names))
                holds = [(self._truth(test), test) for test in part.ifs]
                unsure = next((self.source.written(test) for truth, test in holds if truth is None), None)
                happens = all(truth is not False for truth, _ in holds)
                inner = made(level + 1, condition or given or unsure) if happens else []
                self._bound.pop()
                self._steps += 1
                if inner is None or self._steps > MAX_STEPS:
                    return None
                result += inner
            return result

        return made(0, None) if depth <= MAX_DEPTH else None

    def _in_round(self, node: ast.expr) -> ast.expr | None:
        """What a name of a loop stands for in the round that is looked at."""
        key = key_of(node) if self._bound else None
        for owner, names in reversed(self._bound) if key is not None else ():
            if key in names and self._is_within(node, owner):
                return names[key]
        return None


def _parts_of(target: ast.expr) -> list[ast.expr]:
    """The names of a loop, in their order."""
    return [part for inner in target.elts for part in _parts_of(inner)] if isinstance(target, ast.Tuple) else [target]


def _number(value: int, place: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Constant(value), place)


def _in_braces(value: Value) -> Value:
    """A part of an f-string; one that is not known as it is written there."""
    whole = [hole for hole in value.holes if hole.start == 0 and hole.end == len(value.text)]
    if not whole or "{" in value.value:
        return value
    written = Text.at(f"{{{value.value}}}", value.span)
    return Value.unknown(written, whole[0].unresolved.reason, splits=whole[0].splits)


def _unknown_words(text: Text) -> Word:
    return Word(text, (Unresolved(text.value, "what it holds is not in the files read"),), splits=True)


def _without_value(value: Value, reason: str) -> list[Value]:
    """A text that may be there, between the blanks that part it from what is beside it."""
    whole = value.value
    start, end = len(whole) - len(whole.lstrip()), len(whole.rstrip())
    if start >= end:
        return [value]
    hole = Value.unknown(value.text.slice(start, end), reason)
    return [value.slice(0, start), hole, value.slice(end, len(whole))]


def _conditional(word: Word, condition: str) -> Word:
    return Word(word.text, (Unresolved(word.value, f"only if {condition}"),), splits=True)


def _in_force(found: list[Assigned], use: ast.expr | None) -> list[Assigned]:
    """The assignments that a use may see: none behind it, and none before the last one that always happens.

    Args:
        use: None where it runs later than the whole text (in a function, of a name outside it).
    """
    if use is not None:
        place = (use.lineno, use.col_offset)
        found = [each for each in found if each.place < place or (each.condition or "").startswith("the loop")] or found
    always = [index for index, each in enumerate(found) if each.condition is None and not each.adds]
    return found[always[-1] :] if always else found


def _lacking(name: str) -> tuple[str, ...]:
    """Conditions, as written, that hold where a name has no value."""
    return f"not {name}", f"{name} is None", f"not ({name})"
