"""What the text of a Python file defines, assigns and calls, and in which scope, whatever it is worth."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvgate.manifests.python_source import (
    FUNCTIONS,
    Source,
    added_to,
    called_name,
    element_of,
    global_names,
    is_zero,
    key_of,
    names_of,
    parameters_of,
    place_of,
)
from kvgate.records import record
from kvgate.source.text import TooLargeError


@record
class Assigned:
    """One assignment to a name: its value (None where it is none that can be read), whether it always happens, its line
    and column, and the loop around it with the statement itself."""

    value: ast.expr | None
    adds: bool
    condition: str | None = None
    place: tuple[int, int] = (0, 0)
    loop: tuple[ast.For, ast.AST] | None = None


class Scopes:
    """The definitions, assignments and calls of a module.

    Raises:
        TooLargeError: the module has more nodes than are looked at.
    """

    def __init__(self, source: Source, module: ast.Module, limit: int) -> None:
        self.source = source
        self.module = module
        self.calls: list[ast.Call] = []
        self._origins: dict[str, tuple[str, int, str | None]] = {}
        self._imports: dict[str, str] = {}
        self._parents: dict[ast.AST, ast.AST] = {}
        # a statement that assigns, what it does, and the call of a function that does it for its caller
        self._assigned: dict[tuple[ast.AST, str], list[tuple[ast.AST, Assigned, ast.Call | None]]] = {}
        self._classes: dict[str, ast.ClassDef] = {}
        self._functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self._repeated: set[str] = set()
        self._lists: list[ast.List] = []
        self.mappings: list[ast.Dict] = []
        # entries of mappings that are set one by one: the key, the value and the statement
        self._keyed: dict[tuple[ast.AST, str], list[tuple[ast.Constant, ast.expr, ast.AST]]] = {}
        self._calls_of: dict[str, list[ast.Call]] = {}
        self._options: dict[str, ast.Call] = {}
        self._visit(limit)
        self._note_helpers()

    def _visit(self, limit: int) -> None:
        stack: list[ast.AST] = [self.module]
        count = 0
        while stack:
            node = stack.pop()
            count += 1
            if count > limit:
                raise TooLargeError("a Python file of so many parts")
            children = list(ast.iter_child_nodes(node))
            for child in children:
                self._parents[child] = node
            stack += reversed(children)
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname or "." not in alias.name:
                        self._origins[alias.asname or alias.name] = (alias.name, 0, None)
                    self._imports[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self._origins[alias.asname or alias.name] = (node.module or "", node.level, alias.name)
                    self._imports[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
            elif isinstance(node, FUNCTIONS):
                self._repeated |= {node.name} & self._functions.keys()
                self._functions[node.name] = node
            elif isinstance(node, ast.List):
                self._lists.append(node)
            elif isinstance(node, ast.Dict):
                self.mappings.append(node)
            elif isinstance(node, ast.ClassDef):
                self._classes.setdefault(node.name, node)
            elif isinstance(node, ast.Call):
                self.calls.append(node)
                self._calls_of.setdefault(called_name(node), []).append(node)
                self._note_call(node)
            elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor, ast.NamedExpr)):
                self._note_assignment(node)

    # -- assignments -------------------------------------------------------------------------------------------------

    def _note_assignment(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            targets, value, adds = node.targets, node.value, False
            if len(targets) == 1 and isinstance(targets[0], ast.Subscript):
                self._note_entry(node, targets[0])
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            if node.value is None:
                return
            targets, value, adds = [node.target], node.value, False
        elif isinstance(node, ast.AugAssign):
            targets, value, adds = [node.target], node.value, isinstance(node.op, ast.Add)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            for name in names_of(node.target):
                self._add(node, name, None, adds=False)
            return
        else:
            return
        for target in targets:
            if isinstance(target, (ast.Tuple, ast.List)):
                values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
                matched = len(values) == len(target.elts) and not any(isinstance(v, ast.Starred) for v in values)
                given = isinstance(value, ast.Call) and not any(isinstance(part, ast.Starred) for part in target.elts)
                for index, inner in enumerate(target.elts):
                    if key := key_of(inner):
                        part = values[index] if matched else element_of(value, index) if given else None
                        self._add(node, key, part, adds=adds)
            elif key := key_of(target):
                more = added_to(key, value) if isinstance(node, ast.Assign) else None
                self._add(node, key, value if more is None else more, adds=adds or more is not None)

    def _note_entry(self, node: ast.Assign, target: ast.Subscript) -> None:
        """``config["key"] = value`` as an entry of the mapping."""
        owner, key = key_of(target.value), target.slice
        if owner and isinstance(key, ast.Constant) and isinstance(key.value, str):
            self._keyed.setdefault((self._scope(node), owner), []).append((key, node.value, node))

    def _note_call(self, node: ast.Call) -> None:
        """``x.append(y)``, ``x.extend([..])``, ``x.update({..})`` as additions, ``add_argument`` as an option."""
        if not isinstance(node.func, ast.Attribute):
            return
        name = node.func.attr
        key = key_of(node.func.value)
        if name == "add_argument":
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    option = argument.value.lstrip("-").replace("-", "_")
                    self._options.setdefault(option, node)
        elif key and name == "insert" and len(node.args) == 2 and not is_zero(node.args[0]):
            self._add(node, key, ast.copy_location(ast.List([node.args[1]], ast.Load()), node.args[1]), adds=True)
        elif key and len(node.args) == 1 and name in ("append", "extend", "update"):
            value = node.args[0]
            if name == "append":
                value = ast.copy_location(ast.List([value], ast.Load()), value)
            self._add(node, key, value, adds=True)

    def _add(self, node: ast.AST, key: str, value: ast.expr | None, *, adds: bool) -> None:
        scope: ast.AST | None = self._scope(node)
        if key.startswith("self."):
            scope = self._class(node) or scope
        if key in global_names(scope):
            scope = self.module
        self._assigned.setdefault((scope or self.module, key), []).append((node, Assigned(value, adds), None))

    def _note_helpers(self) -> None:
        """``add_flags(command)``: what a function appends to a list of its caller, as additions where it is called."""
        helpers: dict[str, dict[str, list[tuple[ast.AST, Assigned, ast.Call | None]]]] = {}
        for (scope, key), entries in self._assigned.items():
            if not isinstance(scope, FUNCTIONS) or scope.name in self._repeated or key not in parameters_of(scope):
                continue
            if self._functions[scope.name] is scope and all(assigned.adds for _, assigned, _ in entries):
                helpers.setdefault(scope.name, {})[key] = list(entries)
        for call in self.calls if helpers else ():
            added = helpers.get(called_name(call), {})
            for key, given in self._given(self._functions[called_name(call)], call) if added else ():
                target = key_of(given) if key in added else None
                if target is None:
                    continue
                above: ast.AST | None = self._class(call) if target.startswith("self.") else self._scope(call)
                known = self._assigned.get((above or self.module, target))
                if known is not None and above is not self._functions[called_name(call)]:
                    known += [(node, assigned, call) for node, assigned, _ in added[key]]
                    known.sort(key=lambda entry: place_of(entry[2] or entry[0]))

    def _given(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call
    ) -> Iterator[tuple[str, ast.expr]]:
        """The parameters of a function and what a call gives for them."""
        names = [item.arg for item in (*function.args.posonlyargs, *function.args.args)]
        bound = isinstance(self._parents.get(function), ast.ClassDef) and not any(
            key_of(decorator) == "staticmethod" for decorator in function.decorator_list
        )
        yield from zip(names[bound:], call.args, strict=False)
        yield from ((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg)

    # -- where something stands --------------------------------------------------------------------------------------

    def _loop(self, node: ast.AST, scope: ast.AST) -> tuple[ast.For, ast.AST] | None:
        """The outermost loop around a statement of a scope, and the statement."""
        found: ast.For | None = None
        current = self._parents.get(node)
        while current is not None and current is not scope:
            found = current if isinstance(current, ast.For) else found
            current = self._parents.get(current)
        return (found, node) if found is not None else None

    def _scope(self, node: ast.AST) -> ast.AST:
        current = self._parents.get(node)
        while current is not None and not isinstance(current, (*FUNCTIONS, ast.ClassDef, ast.Module)):
            current = self._parents.get(current)
        return current or self.module

    def _class(self, node: ast.AST) -> ast.ClassDef | None:
        current: ast.AST | None = node
        while current is not None:
            if isinstance(current, ast.ClassDef):
                return current
            current = self._parents.get(current)
        return None

    def _function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        current = self._parents.get(node)
        while current is not None and not isinstance(current, FUNCTIONS):
            current = self._parents.get(current)
        return current

    def _is_within(self, node: ast.AST, owner: ast.AST) -> bool:
        current: ast.AST | None = node
        while current is not None and current is not owner:
            current = self._parents.get(current)
        return current is not None
