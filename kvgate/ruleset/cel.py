"""Conditions in CEL: the only module that imports the CEL library.

Every fact is a variable with a dotted name and a type. A condition is compiled twice: once against the declared types,
so that unknown names and wrong types are found when the rules are loaded, and once for evaluation, where a fact that
can be unknown is dynamic (CEL's wrapper types exist only for protocol buffers). An unknown fact is ``null``: comparing
it with a number is an error in CEL, so conditions say ``x != null && x > 3``; what they forget is found at load by
evaluating them with facts missing (:func:`Condition.unguarded`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from kvgate.patterns import regex
from kvgate.records import record

FactType = Literal["bool", "int", "double", "string", "list", "map", "any"]

_POSITION: Final = regex(r"ERROR: <input>:(\d+):(\d+): (.*?)(?:\n \||\Z)", re.DOTALL)
_STATUS: Final = regex(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_NAME: Final = regex(r"[a-z_][a-zA-Z0-9_]*(?:\.[a-z_][a-zA-Z0-9_]*)+|[a-z_][a-zA-Z0-9_]*")
_STRING: Final = regex(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")

SAMPLES: Final[dict[FactType, Any]] = {
    "bool": True,
    "int": 2,
    "double": 2.0,
    "string": "a",
    "list": ["a"],
    "map": {"a": "a"},
    "any": 2,
}


class CelError(ValueError):
    """A condition that does not compile; ``line`` and ``column`` (from 1) are within its text."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


class EvaluationError(RuntimeError):
    """A condition that could not be evaluated over some facts: an error of the rule, never a finding."""


@record
class Variable:
    """A fact as CEL sees it."""

    name: str
    type: FactType
    nullable: bool


class Environment:
    """Compiles conditions over a fixed set of variables."""

    def __init__(self, variables: tuple[Variable, ...]) -> None:
        from cel_expr_python import cel

        wrappers = {
            "bool": cel.Type("google.protobuf.BoolValue"),
            "int": cel.Type("google.protobuf.Int64Value"),
            "double": cel.Type("google.protobuf.DoubleValue"),
            "string": cel.Type("google.protobuf.StringValue"),
        }
        types = _types()
        self.variables = {variable.name: variable for variable in variables}
        self._strict = cel.NewEnv(
            variables={v.name: wrappers.get(v.type, cel.Type.DYN) if v.nullable else types[v.type] for v in variables}
        )

    def compile(self, text: str) -> Condition:
        """Compile a condition and check it.

        Raises:
            CelError: it is no CEL, names an unknown fact, mixes types, or is no condition.
        """
        from cel_expr_python import cel

        try:
            checked = self._strict.compile(text)
        except RuntimeError as error:
            raise _explain(str(error)) from None
        if checked.return_type().name() != cel.Type.BOOL.name():
            raise CelError(f"a condition is true or false, this is of type {checked.return_type().name().lower()}")
        return Condition(text, self.variables.get)


def _types() -> dict[FactType, Any]:
    from cel_expr_python import cel

    return {
        "bool": cel.Type.BOOL,
        "int": cel.Type.INT,
        "double": cel.Type.DOUBLE,
        "string": cel.Type.STRING,
        "list": cel.Type.List(cel.Type.STRING),
        "map": cel.Type.Map(cel.Type.STRING, cel.Type.STRING),
        "any": cel.Type.DYN,
    }


class Condition:
    """A condition, compiled for evaluation when it is first asked.

    Args:
        text: the CEL expression, already checked (:meth:`Environment.compile`) or known to be right.
        find: a variable by its name, None for what is none.
    """

    def __init__(self, text: str, find: Callable[[str], Variable | None]) -> None:
        self.text = text
        self.variables = _used(text, find)
        self._program: Any = None

    @property
    def names(self) -> tuple[str, ...]:
        """The facts it uses."""
        return tuple(self.variables)

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Evaluate the condition.

        Raises:
            EvaluationError: CEL could not (a null without a guard, a missing key, an overflow).
        """
        if self._program is None:
            from cel_expr_python import cel

            types = _types()
            loose = {name: cel.Type.DYN if v.nullable else types[v.type] for name, v in self.variables.items()}
            self._program = cel.NewEnv(variables=loose).compile(self.text)
        result = self._program.eval(data={name: facts[name] for name in self.variables})
        value = result.value()
        if isinstance(value, bool):
            return value
        raise EvaluationError(f"{_STATUS.sub('', str(value))} in the condition {' '.join(self.text.split())}")

    def unguarded(self) -> str | None:
        """A fact that breaks the condition when it is unknown, None if there is none.

        Facts are tried missing one by one, in pairs, and all together, the others at sample values.
        """
        nullable = [name for name, variable in self.variables.items() if variable.nullable and variable.type != "any"]
        samples = {name: SAMPLES[variable.type] for name, variable in self.variables.items()}
        trials: list[tuple[str, ...]] = [(name,) for name in nullable]
        trials += [(a, b) for at, a in enumerate(nullable) for b in nullable[at + 1 :]]
        trials.append(tuple(nullable))
        for missing in trials:
            try:
                self.holds({**samples, **dict.fromkeys(missing)})
            except EvaluationError:
                return missing[0] if missing else None
        return None


def _used(text: str, find: Callable[[str], Variable | None]) -> dict[str, Variable]:
    """The facts that a condition uses."""
    found: dict[str, Variable] = {}
    for match in _NAME.finditer(_STRING.sub("''", text)):
        parts = match.group().split(".")
        for length in range(len(parts), 0, -1):
            variable = find(".".join(parts[:length]))
            if variable is not None:
                found[variable.name] = variable
                break
    return found


def _explain(text: str) -> CelError:
    match = _POSITION.search(text)
    if match is None:
        return CelError(_STATUS.sub("", text))
    message = _STATUS.sub("", match[3].strip())
    message = re.sub(r" \(in container ''\)", "", message)
    message = message.replace("wrapper(", "optional(")
    unknown = re.match(r"undeclared reference to '(.+?)'", message)
    if unknown:
        message = f'there is no fact "{unknown[1]}" (`kvgate rules --facts` lists them)'
    return CelError(message, int(match[1]), int(match[2]))
