"""Typed checks: what a condition over facts cannot say.

A check is registered with :func:`check`; a rule file names it, and its parameters are the fields of a dataclass, so
that a wrong name or type fails when the rule is loaded. A check yields :class:`~kvgate.ruleset.model.Draft` values: it
says where by symbol and what by numbers; severity, words and positions are made elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, TypeVar

from kvgate.records import record
from kvgate.ruleset.model import Draft, Scope

F = TypeVar("F", bound=Callable[..., Iterable[Draft]])

_MODULES: Final = (
    "capacity", "arguments", "parallelism", "reading", "hardware", "memory", "validity", "runtime", "sharing",
    "autoscaling", "exposure", "environment", "routing", "drift", "prompts", "prefix",
)  # fmt: skip


@record
class NoParams:
    """Parameters of a check that takes none."""


@record
class Check:
    """A registered check.

    Attributes:
        run: called with what the scope looks at (a :class:`~kvgate.ruleset.case.Case`, an ``Unread`` or a
            ``SuppressionProblem``) and the parameters.
        params: the dataclass of its parameters.
        values: names that its drafts give to the message's placeholders.
        scope: what it looks at.
    """

    name: str
    run: Callable[..., Iterable[Draft]]
    params: type[Any]
    values: tuple[str, ...]
    scope: Scope
    text: str


_REGISTRY: Final[dict[str, Check]] = {}


def check(
    name: str, *, values: tuple[str, ...] = (), params: type[Any] = NoParams, scope: Scope = "unit"
) -> Callable[[F], F]:
    """Register a check under the name that rule files use."""

    def register(function: F) -> F:
        text = (function.__doc__ or "").strip().partition("\n")[0]
        _REGISTRY[name] = Check(name, function, params, values, scope, text)
        return function

    return register


@lru_cache(maxsize=1)
def checks() -> Mapping[str, Check]:
    """Every check by its name."""
    for module in _MODULES:
        import_module(f"{__name__}.{module}")
    return _REGISTRY
