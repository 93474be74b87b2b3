#!/usr/bin/env python3
"""Read flags and environment variables of released vLLM wheels into kvgate/engine/data.

Add a release (the usual case, after vLLM has published one)::

    python .github/scripts/update_release_tables.py 0.34.0

Start the tables anew, from folders that already hold unpacked wheels (``DIR/<version>/vllm/...``)::

    python .github/scripts/update_release_tables.py --fresh --sources DIR $(ls DIR)

Each wheel is fetched with ``pip download --no-deps`` into a temporary folder and only its Python files are unpacked.
Nothing of it is imported or run: everything is read from the syntax trees.

How it reads. vLLM declares its flags in ``EngineArgs.add_cli_args`` (``engine/arg_utils.py``), ``AsyncEngineArgs``, the
frontend arguments (``cli_args.py`` below ``entrypoints``) and the ``serve``
subcommand (``entrypoints/cli/serve.py``, before 0.7 ``scripts.py``). :class:`Interpreter` walks these functions, takes
every branch, and collects the calls of ``add_argument``. From 0.8.5 most keywords come from ``get_kwargs(SomeConfig)``,
which derives them from the annotations of the configuration classes; :meth:`Interpreter.kwargs_of` follows the same
rules. Environment variables are the annotated names and dictionary keys of ``vllm/envs.py``.

What is written. A flag's runs are spans of consecutive read releases with one definition. ``kind`` says how a value is
read (see ``kvgate/engine/flags.py``), ``dynamic`` that the default is computed when vLLM starts. After a run, look at
the difference: a flag that vanished and came back, or a kind that changed, is more often a new idiom that this script
does not read than a change of vLLM. The last lines on stderr name what changed against the release before.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import Version

DATA = Path(__file__).resolve().parents[2] / "kvgate" / "engine" / "data"
PLATFORMS = ("manylinux1_x86_64", "manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux_2_35_x86_64")

Spec = dict[str, Any]


DEPRECATED = re.compile(r"DEPRECATED|^\W*[Dd]eprecated|\b(?:is|are|been) deprecated")


class Opaque:
    """A value that cannot be read from the source alone; ``text`` is its expression."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Opaque({self.text})"


@dataclass(frozen=True)
class Ref:
    """A class or function definition, or a value's expression, and the module that it stands in."""

    module: Module
    node: ast.AST


@dataclass(eq=False)
class Module:
    """A parsed file; ``names`` maps what its top level defines or imports to the defining nodes."""

    name: str
    path: Path
    tree: ast.Module
    names: dict[str, ast.AST] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for statement in _flat(self.tree.body):
            match statement:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    self.names[statement.name] = statement
                case ast.Assign():
                    for target in statement.targets:
                        if isinstance(target, ast.Name):
                            self.names.setdefault(target.id, statement.value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self.names.setdefault(name, value)
                case ast.Import() | ast.ImportFrom():
                    for alias in statement.names:
                        self.names.setdefault(alias.asname or alias.name, statement)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body and of the conditional blocks in it."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            for name in ("body", "orelse", "finalbody"):
                yield from _flat(getattr(statement, name, ()))
            for handler in getattr(statement, "handlers", ()):
                yield from _flat(handler.body)


class Release:
    """The unpacked Python files of one release."""

    def __init__(self, version: str, root: Path) -> None:
        self.version = version
        self.root = root
        self.modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        if name not in self.modules:
            base = self.root / Path(*name.split("."))
            path = next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)
            if path is None:
                self.modules[name] = None
            else:
                self.modules[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8")))
        return self.modules[name]

    def find(self, module: Module, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> Ref | None:
        """What a name in a module stands for, through imports."""
        key = (module.name, name)
        node = module.names.get(name)
        if node is None or key in seen:
            return None
        if not isinstance(node, ast.Import | ast.ImportFrom):
            return Ref(module, node)
        alias = next(a for a in node.names if (a.asname or a.name) == name)
        if isinstance(node, ast.Import):
            return None
        origin = node.module or ""
        if node.level:
            package = module.name.split(".") if module.path.name == "__init__.py" else module.name.split(".")[:-1]
            package = package[: len(package) - node.level + 1]
            origin = ".".join([*package, *([node.module] if node.module else [])])
        target = self.module(origin)
        return self.find(target, alias.name, seen | {key}) if target is not None else None


# -- types -------------------------------------------------------------------------------------------------------------

# Type hints are a list of tuples: ("bool",), ("none",), ("literal", [values]), ("list", hints), ("dataclass", name)...
Hints = list[tuple[Any, ...]]
BUILTIN = {"bool", "int", "float", "str"}
COLLECTIONS = {"list": "list", "List": "list", "set": "set", "Set": "set", "tuple": "tuple", "Tuple": "tuple"}
TRANSPARENT = {"Annotated", "SkipValidation", "Required", "NotRequired", "ClassVar", "InitVar", "Final"}


class Interpreter:
    """Collects the flags that a release's parser functions declare."""

    def __init__(self, release: Release) -> None:
        self.release = release
        self.flags: dict[str, Spec] = {}
        self.kwargs_cache: dict[str, dict[str, Spec]] = {}
        self.depth = 0
        arg_utils = release.module("vllm.engine.arg_utils")
        assert arg_utils is not None, "no vllm/engine/arg_utils.py"
        self.arg_utils = arg_utils
        self.human = self._human_readable_fields()
        # Flags declared without a default end up with that of EngineArgs.
        self.engine_defaults: dict[str, Any] = {}
        for name in ("EngineArgs", "AsyncEngineArgs"):
            engine_args = arg_utils.names.get(name)
            if isinstance(engine_args, ast.ClassDef):
                owner = Ref(arg_utils, engine_args)
                for found, (statement, _) in self._fields(owner).items():
                    self.engine_defaults[found] = self._default_of_field(statement, owner).get("default")

    # annotations

    def hints(self, node: ast.AST, module: Module, depth: int = 0) -> Hints:
        if depth > 12:
            return [("other", "deep")]
        match node:
            case ast.Constant(value=None):
                return [("none",)]
            case ast.Constant(value=str() as text):
                try:
                    return self.hints(ast.parse(text, mode="eval").body, module, depth + 1)
                except SyntaxError:
                    return [("other", text)]
            case ast.BinOp(op=ast.BitOr()):
                return self.hints(node.left, module, depth + 1) + self.hints(node.right, module, depth + 1)
            case ast.Subscript():
                name = ast.unparse(node.value).rpartition(".")[2]
                items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                if name == "Optional":
                    return [*self.hints(items[0], module, depth + 1), ("none",)]
                if name == "Union":
                    return [hint for item in items for hint in self.hints(item, module, depth + 1)]
                if name == "Literal":
                    return [("literal", [value for item in items for value in self._literal(item, module)])]
                if name in TRANSPARENT:
                    return self.hints(items[0], module, depth + 1)
                if name in COLLECTIONS:
                    return [(COLLECTIONS[name], self.hints(items[0], module, depth + 1))]
                if name in ("dict", "Dict", "Mapping"):
                    return [("dict",)]
                return [("other", name)]
            case ast.Name() | ast.Attribute():
                return self._named(node, module, depth)
        return [("other", ast.unparse(node))]

    def _literal(self, item: ast.AST, module: Module) -> list[Any]:
        if isinstance(item, ast.Constant):
            return [item.value]
        nested = self.hints(item, module)
        return [value for hint in nested if hint[0] == "literal" for value in hint[1]]

    def _named(self, node: ast.Name | ast.Attribute, module: Module, depth: int) -> Hints:
        name = ast.unparse(node).rpartition(".")[2]
        if isinstance(node, ast.Name):
            if name in BUILTIN:
                return [(name,)]
            if name == "None":
                return [("none",)]
            if name in COLLECTIONS:
                return [(COLLECTIONS[name], [("str",)])]
            if name in ("dict", "Dict"):
                return [("dict",)]
            found = self.release.find(module, name)
            if found is not None:
                if isinstance(found.node, ast.ClassDef):
                    return [self._class_hint(found)]
                if isinstance(found.node, ast.Subscript | ast.BinOp | ast.Name | ast.Attribute):
                    return self.hints(found.node, found.module, depth + 1)
        return [("other", name)]

    def _class_hint(self, found: Ref) -> tuple[Any, ...]:
        assert isinstance(found.node, ast.ClassDef)
        for decorator in found.node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if ast.unparse(called).rpartition(".")[2] in ("config", "dataclass"):
                return ("dataclass", found.node.name)
        bases = [ast.unparse(base).rpartition(".")[2].split("[")[0] for base in found.node.bases]
        if "dict" in bases or "Dict" in bases:
            return ("dict",)
        for base in bases:
            parent = self.release.find(found.module, base)
            if parent is not None and isinstance(parent.node, ast.ClassDef):
                hint = self._class_hint(parent)
                if hint[0] in ("dataclass", "dict"):
                    return hint
        return ("other", found.node.name)

    # configuration classes

    def _fields(self, ref: Ref) -> dict[str, tuple[ast.AnnAssign, Module]]:
        """The fields of a class and its bases, without class variables."""
        assert isinstance(ref.node, ast.ClassDef)
        result: dict[str, tuple[ast.AnnAssign, Module]] = {}
        for base in ref.node.bases:
            parent = self.release.find(ref.module, ast.unparse(base).rpartition(".")[2])
            if parent is not None and isinstance(parent.node, ast.ClassDef):
                result.update(self._fields(parent))
        for statement in ref.node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                if ast.unparse(statement.annotation).startswith(("ClassVar", "InitVar")):
                    continue
                result[statement.target.id] = (statement, ref.module)
        return result

    def _human_readable_fields(self) -> dict[str, str]:
        """Fields whose integers may have a suffix, from the comparisons in ``get_kwargs``."""
        result: dict[str, str] = {}
        for name in ("get_kwargs", "_compute_kwargs"):
            function = self.arg_utils.names.get(name)
            if not isinstance(function, ast.FunctionDef):
                continue
            sets = {
                target.id: node.value
                for node in ast.walk(function)
                if isinstance(node, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name) and isinstance(node.value, ast.Set)
            }
            for node in ast.walk(function):
                if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
                    continue
                readers = [
                    inner.value.id
                    for statement in node.body
                    for inner in ast.walk(statement)
                    if isinstance(inner, ast.Assign)
                    and isinstance(inner.value, ast.Name)
                    and inner.value.id.startswith("human_readable_int")
                ]
                if not readers:
                    continue
                where = node.test.comparators[0]
                if isinstance(where, ast.Name):
                    where = sets.get(where.id, where)
                for constant in ast.walk(where):
                    if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                        result[constant.value] = "human-int-or-auto" if "auto" in readers[0] else "human-int"
        return result

    def kwargs_of(self, ref: Ref) -> dict[str, Spec]:
        """What ``get_kwargs`` derives from a configuration class: field -> keywords for ``add_argument``."""
        assert isinstance(ref.node, ast.ClassDef)
        if ref.node.name not in self.kwargs_cache:
            result = {}
            for name, (statement, module) in self._fields(ref).items():
                spec = self._spec_of_hints(name, self.hints(statement.annotation, module))
                spec |= self._default_of_field(statement, ref if module is ref.module else Ref(module, ref.node))
                if DEPRECATED.search(self._documentation(statement, ref.node).split("\n\n")[0]):
                    spec["note"] = True
                result[name] = spec
            self.kwargs_cache[ref.node.name] = result
        return {name: {**spec} for name, spec in self.kwargs_cache[ref.node.name].items()}

    def _documentation(self, field: ast.AnnAssign, owner: ast.ClassDef) -> str:
        """The string right after a field."""
        for statement, after in zip(owner.body, owner.body[1:], strict=False):
            if statement is field and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                return str(after.value.value).strip()
        return ""

    def _spec_of_hints(self, name: str, hints: Hints) -> Spec:
        kinds = {hint[0] for hint in hints}
        spec: Spec = {}
        if "dataclass" in kinds:
            spec["type"] = "json"
        elif kinds == {"bool", "str", "none"}:
            spec |= {"type": "str", "nargs": "?"}
        elif "bool" in kinds:
            return {"action": "BooleanOptionalAction"}
        elif "literal" in kinds:
            values = list(dict.fromkeys(value for hint in hints if hint[0] == "literal" for value in hint[1]))
            spec["type"] = "int" if all(isinstance(value, int) for value in values) else "str"
            spec["known" if "str" in kinds else "choices"] = values
        elif kinds & {"tuple", "list", "set"}:
            elements = next(hint[1] for hint in hints if hint[0] in ("tuple", "list", "set"))
            element = self._spec_of_hints("", elements)
            spec |= {"type": element.get("type", "str"), "nargs": "+"}
            if "choices" in element:
                spec["choices"] = element["choices"]
            if spec["type"] not in ("int", "float", "json"):
                spec["type"] = "str"
        elif "int" in kinds:
            spec["type"] = self.human.get(name, "int")
        elif "float" in kinds:
            spec["type"] = "float"
        elif "dict" in kinds and (kinds - {"dict", "none"}):
            spec["type"] = "json-or-str"
        elif "dict" in kinds:
            spec["type"] = "json"
        else:
            spec["type"] = "str"
        if "none" in kinds:
            spec["optional"] = True
        return spec

    def _default_of_field(self, statement: ast.AnnAssign, owner: Ref) -> Spec:
        """Default and bounds of a field."""
        value = statement.value
        if value is None:
            return {}
        if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in ("Field", "field"):
            keywords = {keyword.arg: keyword.value for keyword in value.keywords}
            spec: Spec = {}
            bounds = {}
            for bound in ("gt", "ge", "lt", "le"):
                limit = self.value(keywords[bound], owner) if bound in keywords else None
                if isinstance(limit, int | float):
                    bounds[bound] = limit
            if bounds:
                spec["bounds"] = bounds
            if "default" in keywords:
                spec["default"] = self.value(keywords["default"], owner)
            elif value.args:
                spec["default"] = self.value(value.args[0], owner)
            elif "default_factory" in keywords:
                spec["default"] = self._made_by(keywords["default_factory"], owner)
            return spec
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "get_field":
            target = self.release.find(owner.module, ast.unparse(value.args[0]))
            name = self.value(value.args[1], owner)
            if target is not None and isinstance(name, str):
                found = self._fields(target).get(name)
                if found is not None:
                    return self._default_of_field(found[0], Ref(found[1], target.node))
        return {"default": self.value(value, owner)}

    def _made_by(self, factory: ast.AST, owner: Ref) -> Any:
        if isinstance(factory, ast.Name) and factory.id in ("list", "dict", "set"):
            return {} if factory.id == "dict" else []
        if isinstance(factory, ast.Lambda):
            return self.value(factory.body, owner)
        return Opaque(ast.unparse(factory))

    # expressions

    def value(self, node: ast.AST, owner: Ref, scope: dict[str, Any] | None = None) -> Any:
        """The value of an expression as far as the source determines it."""
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError):
            pass
        match node:
            case ast.Name():
                return self._name(node.id, owner, scope or {})
            case ast.Attribute():
                return self._attribute(node, owner, scope)
            case ast.UnaryOp(op=ast.USub()):
                inner = self.value(node.operand, owner, scope)
                return -inner if isinstance(inner, int | float) else Opaque(ast.unparse(node))
            case ast.BinOp():
                return self._arithmetic(node, owner, scope)
            case ast.List() | ast.Tuple() | ast.Set():
                items: list[Any] = []
                for element in node.elts:
                    if isinstance(element, ast.Starred):
                        inner = self.value(element.value, owner, scope)
                        if not isinstance(inner, list | tuple):
                            return Opaque(ast.unparse(node))
                        items += inner
                    else:
                        items.append(self.value(element, owner, scope))
                return Opaque(ast.unparse(node)) if any(isinstance(item, Opaque) for item in items) else items
            case ast.ListComp():
                return self._enum_values(node, owner)
            case ast.Subscript():
                inner = self.value(node.value, owner, scope)
                key = self.value(node.slice, owner, scope)
                if isinstance(inner, dict) and isinstance(key, str) and key in inner:
                    return inner[key]
            case ast.Dict():
                result: dict[Any, Any] = {}
                for key_node, value_node in zip(node.keys, node.values, strict=True):
                    inner = self.value(value_node, owner, scope)
                    if key_node is None:
                        if isinstance(inner, dict):
                            result |= inner
                    else:
                        result[self.value(key_node, owner, scope)] = inner
                return result
            case ast.JoinedStr():
                parts: list[Any] = [
                    part.value if isinstance(part, ast.Constant) else self.value(part.value, owner, scope)
                    for part in node.values
                    if isinstance(part, ast.Constant | ast.FormattedValue)
                ]
                return "".join(parts) if all(isinstance(part, str) for part in parts) else Opaque(ast.unparse(node))
            case ast.Call():
                return self._call_value(node, owner, scope)
            case ast.Lambda():
                return Opaque(ast.unparse(node))
        return Opaque(ast.unparse(node))

    def _name(self, name: str, owner: Ref, scope: dict[str, Any]) -> Any:
        if name in scope:
            return scope[name]
        if isinstance(owner.node, ast.ClassDef):
            for statement in owner.node.body:
                match statement:
                    case (
                        ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as expression)
                        | ast.Assign(targets=[ast.Name(id=found)], value=expression)
                    ) if found == name:
                        return self.value(expression, Ref(owner.module, ast.Pass()))
        target = self.release.find(owner.module, name)
        if target is not None and isinstance(target.node, ast.expr):
            return self.value(target.node, Ref(target.module, ast.Pass()))
        return Opaque(name)

    def _attribute(self, node: ast.Attribute, owner: Ref, scope: dict[str, Any] | None) -> Any:
        text = ast.unparse(node)
        if not isinstance(node.value, ast.Name):
            return Opaque(text)
        if scope and isinstance(scope.get(node.value.id), Ref):
            target: Ref | None = scope[node.value.id]
        else:
            target = self.release.find(owner.module, node.value.id)
        if target is None or not isinstance(target.node, ast.ClassDef):
            return Opaque(text)
        found = self._fields(target).get(node.attr)
        if found is not None:
            return self._default_of_field(found[0], Ref(found[1], target.node)).get("default", Opaque(text))
        for statement in target.node.body:
            if isinstance(statement, ast.Assign) and any(
                isinstance(item, ast.Name) and item.id == node.attr for item in statement.targets
            ):
                inner = self.value(statement.value, target)
                return inner if not isinstance(inner, Opaque) else Opaque(text)
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and statement.target.id == node.attr
                and statement.value is not None
            ):
                return self.value(statement.value, target)
        return Opaque(text)

    def _arithmetic(self, node: ast.BinOp, owner: Ref, scope: dict[str, Any] | None) -> Any:
        left, right = self.value(node.left, owner, scope), self.value(node.right, owner, scope)
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            return Opaque(ast.unparse(node))
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Pow() if abs(right) < 64:
                return left**right
            case ast.LShift() if isinstance(left, int) and isinstance(right, int) and right < 64:
                return left << right
        return Opaque(ast.unparse(node))

    def _enum_values(self, node: ast.ListComp, owner: Ref) -> Any:
        """``[member.value for member in SomeEnum]``."""
        source = node.generators[0].iter
        target = self.release.find(owner.module, source.id) if isinstance(source, ast.Name) else None
        if target is None or not isinstance(target.node, ast.ClassDef) or not isinstance(node.elt, ast.Attribute):
            return Opaque(ast.unparse(node))
        values = [
            self.value(statement.value, target)
            for statement in target.node.body
            if isinstance(statement, ast.Assign) and not ast.unparse(statement.targets[0]).startswith("_")
        ]
        return values if all(isinstance(value, str) for value in values) else Opaque(ast.unparse(node))

    def _call_value(self, node: ast.Call, owner: Ref, scope: dict[str, Any] | None) -> Any:
        name = ast.unparse(node.func)
        if name == "get_kwargs" and len(node.args) == 1:
            target: Any = self.value(node.args[0], owner, scope)
            if not isinstance(target, Ref):
                target = self.release.find(owner.module, ast.unparse(node.args[0]))
            if target is not None and isinstance(target.node, ast.ClassDef):
                return self.kwargs_of(target)
        if name == "get_args" and len(node.args) == 1:
            hints = self.hints(node.args[0], owner.module)
            return [value for hint in hints if hint[0] == "literal" for value in hint[1]] or Opaque(ast.unparse(node))
        if name in ("list", "sorted", "tuple") and len(node.args) == 1:
            inner = self.value(node.args[0], owner, scope)
            return list(inner) if isinstance(inner, list | tuple) else Opaque(ast.unparse(node))
        if isinstance(node.func, ast.Attribute):
            inner = self.value(node.func.value, owner, scope)
            arguments = [self.value(argument, owner, scope) for argument in node.args]
            if node.func.attr == "replace" and isinstance(inner, str):
                return inner.replace(*arguments)
            if node.func.attr == "pop" and isinstance(inner, dict) and arguments:
                return inner.pop(arguments[0], arguments[1] if len(arguments) > 1 else Opaque("pop"))
            if node.func.attr == "copy" and isinstance(inner, dict):
                return {**inner}
        return Opaque(ast.unparse(node))

    # statements

    def run(self, ref: Ref, scope: dict[str, Any] | None = None) -> Any:
        """Interpret a function for the flags that it declares; its last returned value."""
        assert isinstance(ref.node, ast.FunctionDef)
        if self.depth > 8:
            return None
        self.depth += 1
        result = self.block(ref.node.body, ref, dict(scope or {}))
        self.depth -= 1
        return result

    def block(self, body: Iterable[ast.stmt], owner: Ref, scope: dict[str, Any]) -> Any:
        result = None
        for statement in body:
            match statement:
                case ast.Expr(value=ast.Call() as call):
                    self.call(call, owner, scope)
                case ast.Assign(targets=[target]):
                    self.assign(target, statement.value, owner, scope)
                case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as expression):
                    self.assign(target, expression, owner, scope)
                case ast.AugAssign(target=ast.Subscript() as grown):
                    self.augment(grown, statement.value, owner, scope)
                case ast.Delete():
                    for item in statement.targets:
                        if isinstance(item, ast.Subscript):
                            inner = self.value(item.value, owner, scope)
                            if isinstance(inner, dict):
                                inner.pop(self.value(item.slice, owner, scope), None)
                case ast.For(target=ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)])):
                    for key, item in self.pairs(statement.iter, owner, scope):
                        self.block(statement.body, owner, {**scope, first: key, second: item})
                case ast.If():
                    self.block(statement.body, owner, scope)
                    self.block(statement.orelse, owner, scope)
                case ast.With():
                    self.block(statement.body, owner, scope)
                case ast.ImportFrom():
                    for alias in statement.names:
                        target_module = self.release.module(statement.module or "")
                        if target_module is not None:
                            found_ref = self.release.find(target_module, alias.name)
                            if found_ref is not None and isinstance(found_ref.node, ast.ClassDef | ast.FunctionDef):
                                scope[alias.asname or alias.name] = found_ref
                case ast.Return(value=ast.Call() as call):
                    result = self.call(call, owner, scope)
                case ast.Return(value=ast.expr() as expression):
                    result = self.value(expression, owner, scope)
        return result

    def pairs(self, over: ast.expr, owner: Ref, scope: dict[str, Any]) -> list[tuple[Any, Any]]:
        """What a loop over two names runs over: ``x.items()``, or a list of pairs written out."""
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "items":
            inner = self.value(over.func.value, owner, scope)
            return list(inner.items()) if isinstance(inner, dict) else []
        if isinstance(over, ast.List | ast.Tuple):
            return [
                (self.value(element.elts[0], owner, scope), self.value(element.elts[1], owner, scope))
                for element in over.elts
                if isinstance(element, ast.Tuple) and len(element.elts) == 2
            ]
        return []

    def assign(self, target: ast.expr, node: ast.expr, owner: Ref, scope: dict[str, Any]) -> None:
        if isinstance(node, ast.Call):
            called = self.call(node, owner, scope)
            value = called if called is not None else self.value(node, owner, scope)
        else:
            value = self.value(node, owner, scope)
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, ast.Subscript):
            holder = self.value(target.value, owner, scope)
            key = self.value(target.slice, owner, scope)
            if isinstance(holder, dict) and isinstance(key, str):
                holder |= (
                    self._keyword(key, node, owner, scope) if "type" in holder or "action" in holder else {key: value}
                )

    def augment(self, target: ast.Subscript, node: ast.expr, owner: Ref, scope: dict[str, Any]) -> None:
        holder = self.value(target.value, owner, scope)
        key = self.value(target.slice, owner, scope)
        if isinstance(holder, dict) and key == "choices":
            extra = self.value(node, owner, scope)
            if isinstance(extra, list) and isinstance(holder.get("choices"), list):
                holder["choices"] = [*holder["choices"], *extra]
            else:
                # The choices grow by something that is not written out: they are not known.
                holder.pop("choices", None)

    def call(self, node: ast.Call, owner: Ref, scope: dict[str, Any]) -> Any:
        if not isinstance(node.func, ast.Attribute):
            if isinstance(node.func, ast.Name) and node.func.id == "make_arg_parser":
                target = scope.get("make_arg_parser") or self.release.find(owner.module, "make_arg_parser")
                if isinstance(target, Ref):
                    return self.run(target)
            return None
        method = node.func.attr
        if method == "add_argument":
            self.add_argument(node, owner, scope)
        elif method == "remove" and isinstance(node.func.value, ast.Subscript):
            choices = self.value(node.func.value, owner, scope)
            gone = self.value(node.args[0], owner, scope)
            if isinstance(choices, list) and gone in choices:
                choices.remove(gone)
        elif method in ("add_cli_args", "_customize_cli_kwargs", "add_cli_args_"):
            return self._method(node, owner, scope)
        return None

    def _method(self, node: ast.Call, owner: Ref, scope: dict[str, Any]) -> Any:
        assert isinstance(node.func, ast.Attribute)
        holder = node.func.value
        classes: list[Ref] = []
        if isinstance(holder, ast.Call) and ast.unparse(holder.func) == "super":
            defining = scope.get("__class__")
            classes = self._bases(defining) if isinstance(defining, Ref) else []
        elif isinstance(holder, ast.Name):
            found = scope.get(holder.id) or self.release.find(owner.module, holder.id)
            classes = [found] if isinstance(found, Ref) else []
        for start in classes:
            for candidate in [start, *self._bases(start, deep=True)]:
                assert isinstance(candidate.node, ast.ClassDef)
                for statement in candidate.node.body:
                    if isinstance(statement, ast.FunctionDef) and statement.name == node.func.attr:
                        bound = scope.get("cls") if isinstance(holder, ast.Call) else start
                        inner = {"cls": bound, "__class__": candidate}
                        names = [argument.arg for argument in statement.args.args]
                        names = names[1:] if names[:1] in (["cls"], ["self"]) else names
                        for name, argument in zip(names, node.args, strict=False):
                            inner[name] = self.value(argument, owner, scope)
                        return self.run(Ref(candidate.module, statement), inner)
        return None

    def _bases(self, ref: Ref, deep: bool = False) -> list[Ref]:
        assert isinstance(ref.node, ast.ClassDef)
        result: list[Ref] = []
        for base in ref.node.bases:
            parent = self.release.find(ref.module, ast.unparse(base).rpartition(".")[2])
            if parent is not None and isinstance(parent.node, ast.ClassDef):
                result.append(parent)
                if deep:
                    result += self._bases(parent, deep=True)
        return result

    # add_argument

    def add_argument(self, node: ast.Call, owner: Ref, scope: dict[str, Any]) -> None:
        names: list[str] = []
        for argument in node.args:
            value = self.value(argument.value if isinstance(argument, ast.Starred) else argument, owner, scope)
            names += value if isinstance(value, list) else [value]
        # Before 0.5.1 a few were declared with underscores; they are the same flags.
        names = [
            name.replace("_", "-") if name.startswith("--") else name
            for name in names
            if isinstance(name, str) and name.startswith("-")
        ]
        if not names:
            return
        spec: Spec = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                given = self.value(keyword.value, owner, scope)
                if isinstance(given, dict):
                    spec |= given
            else:
                spec |= self._keyword(keyword.arg, keyword.value, owner, scope)
        main = next((name for name in names if name.startswith("--")), names[0])
        if len([name for name in names if name.startswith("--")]) > 1:
            main = _main_spelling(names, spec.get("dest"))
        spec["names"] = names
        if "default" not in spec:
            dest = spec["dest"] if isinstance(spec.get("dest"), str) else main.lstrip("-").replace("-", "_")
            default = self.engine_defaults.get(dest)
            if not isinstance(default, Opaque):
                spec["default"] = default
        self.flags[main] = spec

    def _keyword(self, name: str, node: ast.expr, owner: Ref, scope: dict[str, Any]) -> Spec:
        """One keyword of ``add_argument``, as the part of the spec that it sets."""
        if name == "type":
            return self._type(node, scope)
        value = self.value(node, owner, scope)
        match name:
            case "action":
                return {"action": value if isinstance(value, str) else ast.unparse(node).rpartition(".")[2]}
            case "choices":
                return {"choices": value} if isinstance(value, list) else {"open_choices": True}
            case "nargs" | "dest" | "deprecated" | "default":
                return {name: value}
            case "help":
                text = " ".join(
                    c.value for c in ast.walk(node) if isinstance(c, ast.Constant) and isinstance(c.value, str)
                )
                referenced = "" if not isinstance(node, ast.Name) else str(self.value(node, owner, scope))
                text = f"{text} {referenced}"
                return {"note": True} if DEPRECATED.search(text.strip()) else {}
        return {}

    def _type(self, node: ast.expr, scope: dict[str, Any]) -> Spec:
        bound = scope.get(node.id) if isinstance(node, ast.Name) else None
        text = bound.text if isinstance(bound, Opaque) else ast.unparse(node)
        known = {
            "int": "int",
            "float": "float",
            "str": "str",
            "bool": "boolean",
            "json.loads": "json-value",
            "nullable_kvs": "pairs",
            "human_readable_int": "human-int",
            "human_readable_int_or_auto": "human-int-or-auto",
            "union_dict_and_str": "json-or-str",
        }
        if text in known:
            return {"type": known[text]}
        if text.endswith((".from_cli", ".from_json")):
            return {"type": "json"}
        wrapped = re.fullmatch(r"(?:optional_type|optional_arg|parse_type)\((.+)\)", text)
        if wrapped:
            inner = known.get(wrapped[1], "str")
            return {"type": "json" if inner == "json-value" else inner} | (
                {} if text.startswith("parse_type") else {"optional": True}
            )
        if text in ("nullable_str", "nullable_int"):
            return {"type": "int" if text == "nullable_int" else "str", "optional": True}
        if ".lower().replace" in text:
            return {"type": "str", "fold": True}
        return {"type": "str"}


def _main_spelling(names: list[str], dest: Any) -> str:
    """Of several long spellings the one that is the dest, else the longest-known: the last."""
    long = [name for name in names if name.startswith("--")]
    wanted = f"--{dest.replace('_', '-')}" if isinstance(dest, str) else None
    return wanted if wanted in long else long[-1]


# -- rows --------------------------------------------------------------------------------------------------------------


def row_of(main: str, spec: Spec) -> dict[str, Any]:
    """The compact row of a flag: only what differs from the plain case is written."""
    row: dict[str, Any] = {}
    action = spec.get("action")
    many = spec.get("nargs") == "+" or isinstance(spec.get("nargs"), int)
    if action in ("store_true", "BooleanOptionalAction"):
        row["kind"] = "flag"
    elif action == "StoreBoolean":
        row["kind"] = "boolean"
        row["bare"] = True
    elif spec.get("type") == "json-value":
        row["kind"] = "json"
        row["any"] = True
    else:
        row["kind"] = spec.get("type", "str")
    if main == "--model-tag":
        row["kind"] = "str"
    names = list(dict.fromkeys(spec["names"]))
    if names != [main]:
        row["names"] = names
    if many and row["kind"] != "flag":
        row["many"] = True
    if action == "append":
        row["append"] = True
    if spec.get("nargs") == "?" and row["kind"] != "boolean":
        row["bare"] = True
    if spec.get("optional") and row["kind"] not in ("flag", "boolean"):
        row["optional"] = True
    if spec.get("fold"):
        row["fold"] = True
    default = spec.get("default")
    if default is None and action == "store_true":
        default = False
    if isinstance(default, Opaque) and default.text.endswith("SUPPRESS"):
        default = None
    if isinstance(default, tuple | set):
        default = list(default)
    if not _plain(default) or (isinstance(default, str) and row["kind"] in ("flag", "int", "float", "json")):
        row["dynamic"] = True
    elif default is not None:
        row["default"] = default
    choices = [choice for choice in spec.get("choices", ()) if choice is not None]
    if choices and all(isinstance(choice, str | int) for choice in choices):
        row["choices"] = sorted(choices, key=str)
    if spec.get("known"):
        row["known"] = sorted(spec["known"], key=str)
    if spec.get("bounds") and row["kind"] in ("int", "float", "human-int", "human-int-or-auto") and not many:
        row["bounds"] = spec["bounds"]
    if action == "BooleanOptionalAction":
        row["negatable"] = True
    if spec.get("deprecated") or spec.get("note") or (isinstance(action, str) and action.startswith("Deprecated")):
        row["deprecated"] = True
    return row


def _plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def read_flags(release: Release) -> dict[str, tuple[str, dict[str, Any]]]:
    """Flag -> (dest, row) of ``vllm serve`` and the API server module."""
    interpreter = Interpreter(release)
    for module_name, class_name, function_name in (
        *((name, None, "make_arg_parser") for name in FRONTENDS),
        ("vllm.scripts", None, "main"),
        ("vllm.entrypoints.cli.serve", "ServeSubcommand", "subparser_init"),
    ):
        module = release.module(module_name)
        if module is None:
            continue
        node: ast.AST | None = module.names.get(class_name or function_name)
        if isinstance(node, ast.ClassDef):
            node = next((s for s in node.body if isinstance(s, ast.FunctionDef) and s.name == function_name), None)
        if not isinstance(node, ast.FunctionDef):
            continue
        if module_name == "vllm.scripts":
            node = _serve_part(node)
        interpreter.run(Ref(module, node))
    noted = _noted_deprecations(interpreter.arg_utils)
    result = {}
    for main, spec in interpreter.flags.items():
        if spec.get("dest") in ("help", "version"):
            continue
        if main in noted:
            spec["note"] = True
        dest = spec["dest"] if isinstance(spec.get("dest"), str) else main.lstrip("-").replace("-", "_")
        result[main] = (dest, row_of(main, spec))
    return result


def _noted_deprecations(module: Module) -> set[str]:
    """Flags of which a message in ``arg_utils`` says that they are deprecated."""
    texts = [
        node.value for node in ast.walk(module.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return {flag for text in texts for flag in re.findall(r"(--[a-z0-9-]+)`?\)? (?:option |flag )?is deprecated", text)}


def _serve_part(function: ast.FunctionDef) -> ast.FunctionDef:
    """Of ``vllm/scripts.py``'s ``main`` the statements about the ``serve`` parser."""
    body = [statement for statement in function.body if "serve_parser" in ast.unparse(statement)]
    return ast.FunctionDef(name="main", args=function.args, body=body or [ast.Pass()], decorator_list=[])


# Where ``make_arg_parser`` stood: to 0.28, from 0.29 to 0.32, and since.
FRONTENDS = (
    "vllm.entrypoints.openai.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.common.cli_args",
)
# What a release's parser does beyond argparse, and the code in its parser class, ``arg_utils`` or ``make_arg_parser``
# that shows it.
BEHAVIOURS = {
    "underscores": r"class FlexibleArgumentParser",
    "disable-for-enable": r"class EnableDisableAction",
    "dotted-keys": r"def create_nested_dict",
    "dotted-lists": r"""endswith\(["']\+["']\)""",
    "dotted-numbers": r"human_readable_int\(value_str\)",
    "json-numbers": r"def _expand_json_human_readable_numbers",
    "json-pairs": r"return_type is json\.loads and not re\.match",
    "level-for-o": r"processed_args \+= \[.--optimization-level., ",
    "config-for-o-dotted": r"arg\.replace\(.-O., .-cc., 1\)",
    # The API server module takes a free word since its parser is the one of ``vllm serve``, and does nothing with it.
    "module-ignores-model": r"def make_arg_parser[\s\S]*?[\"']model_tag[\"']",
    "model-flag-moves": r"Move <model> to the front",
    "model-first": r"should be provided as the first positional argument",
}


def read_parser(release: Release) -> dict[str, dict[str, Any]]:
    """Behaviour -> empty row, for what the release's parser does."""
    text = ""
    for name in ("vllm.utils.argparse_utils", "vllm.utils", "vllm.engine.arg_utils", *FRONTENDS):
        module = release.module(name)
        text += module.path.read_text(encoding="utf-8") if module is not None else ""
    return {name: {} for name, pattern in BEHAVIOURS.items() if re.search(pattern, text)}


def read_environment(release: Release) -> dict[str, dict[str, Any]]:
    """Variable -> row: the names that ``vllm/envs.py`` annotates or reads, with the annotated default expression."""
    module = release.module("vllm.envs")
    assert module is not None, "no vllm/envs.py"
    result: dict[str, dict[str, Any]] = {}
    for statement in _flat(module.tree.body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name = statement.target.id
        if name == "environment_variables" and isinstance(statement.value, ast.Dict):
            for key in statement.value.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    result.setdefault(key.value, {"default": None})
        elif re.fullmatch(r"[A-Z][A-Z0-9_]+", name):
            result[name] = {"default": ast.unparse(statement.value) if statement.value is not None else None}
    return result


# -- tables ------------------------------------------------------------------------------------------------------------


def expand(runs_of: dict[str, Any], releases: list[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """release -> name -> row, from runs."""
    result: dict[str, dict[str, dict[str, Any]]] = {release: {} for release in releases}
    for name, runs in runs_of.items():
        for run in runs:
            row = {key: value for key, value in run.items() if key not in ("first", "last")}
            for release in releases[releases.index(run["first"]) : releases.index(run["last"]) + 1]:
                result[release][name] = row
    return result


def compress(rows: dict[str, dict[str, dict[str, Any]]], releases: list[str]) -> dict[str, list[dict[str, Any]]]:
    """name -> runs of consecutive releases with the same row."""
    result: dict[str, list[dict[str, Any]]] = {}
    for name in sorted({name for release in releases for name in rows[release]}):
        runs: list[dict[str, Any]] = []
        previous: dict[str, Any] | None = None
        for release in releases:
            row = rows[release].get(name)
            if row is not None and row == previous:
                runs[-1]["last"] = release
            elif row is not None:
                runs.append({"first": release, "last": release, **row})
            previous = row
        result[name] = runs
    return result


def write(path: Path, schema: str, releases: list[str], tables: dict[str, dict[str, Any]]) -> None:
    """One entry a line, so that a release's changes are readable as a difference."""

    def compact(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"))

    parts = [f'"schema":{compact(schema)}', f'"releases":{compact(releases)}']
    for key, entries in tables.items():
        body = ",\n".join(f"{compact(name)}:{compact(entry)}" for name, entry in entries.items())
        parts.append(f"{compact(key)}:{{\n{body}\n}}")
    path.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


def unpack(version: str, into: Path) -> Path:
    """Download a release's wheel with pip and unpack its Python files."""
    downloads = into / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--python-version", "3.12", "--dest", str(downloads), f"vllm=={version}"]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run(command, check=True)
    target = into / version
    for wheel in downloads.glob("vllm-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target, [name for name in archive.namelist() if name.endswith(".py")])
        wheel.unlink()
    return target


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="+", help="releases to read")
    parser.add_argument("--sources", type=Path, help="folder with unpacked wheels: DIR/<version>/vllm")
    parser.add_argument("--fresh", action="store_true", help="start the tables anew instead of extending them")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    options = parser.parse_args()
    flag_rows: dict[str, dict[str, dict[str, Any]]] = {}
    env_rows: dict[str, dict[str, dict[str, Any]]] = {}
    parser_rows: dict[str, dict[str, dict[str, Any]]] = {}
    dests: dict[str, str] = {}
    if not options.fresh:
        flags = json.loads((options.data / "flags.json").read_text(encoding="utf-8"))
        env = json.loads((options.data / "env.json").read_text(encoding="utf-8"))
        flag_rows = expand({name: entry["runs"] for name, entry in flags["flags"].items()}, flags["releases"])
        parser_rows = expand(flags["parser"], flags["releases"])
        env_rows = expand(env["env"], env["releases"])
        dests = {name: entry["dest"] for name, entry in flags["flags"].items()}
    with tempfile.TemporaryDirectory() as temporary:
        for version in options.versions:
            root = options.sources / version if options.sources else unpack(version, Path(temporary))
            release = Release(version, root)
            found = read_flags(release)
            flag_rows[version] = {name: row for name, (_, row) in found.items()}
            dests |= {name: dest for name, (dest, _) in found.items()}
            parser_rows[version] = read_parser(release)
            env_rows[version] = read_environment(release)
            print(f"{version}: {len(flag_rows[version])} flags, {len(env_rows[version])} variables", file=sys.stderr)
    releases = sorted(flag_rows, key=Version)
    runs = compress(flag_rows, releases)
    entries = {name: {"dest": dests[name], "runs": found_runs} for name, found_runs in runs.items()}
    tables: dict[str, dict[str, Any]] = {"parser": compress(parser_rows, releases), "flags": entries}
    write(options.data / "flags.json", "kvgate.flags/1", releases, tables)
    for version in options.versions if not options.fresh else releases[-1:]:
        at = releases.index(version)
        before, after = flag_rows[releases[max(at - 1, 0)]].keys(), flag_rows[version].keys()
        print(f"{version}: gone {sorted(before - after)}, new {sorted(after - before)}", file=sys.stderr)
    write(options.data / "env.json", "kvgate.env/1", releases, {"env": compress(env_rows, releases)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
