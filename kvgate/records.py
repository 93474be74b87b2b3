"""Frozen value classes with slots that cost little to define and to make.

``@record`` means what ``@dataclasses.dataclass(frozen=True, slots=True)`` means, and its classes are dataclasses to
``dataclasses.fields``, ``replace``, ``asdict`` and ``is_dataclass``. The standard decorator writes and compiles six
methods for each class, about 0.5 ms; with 200 classes that is a third of the time in which a small tree is checked.
Here only ``__init__`` is compiled, and only for a class of which many records are made; the other methods are shared.

It is the type checker that keeps a record from being changed. A guard at run time would double what each record costs
to make, since its own ``__init__`` had to go round it, and files are read into hundreds of thousands of them.
"""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import MISSING, Field
from operator import attrgetter
from typing import Any, Final, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def record(cls: type[T]) -> type[T]:
    """Make a frozen, slotted dataclass of a class with annotated fields.

    Supported are defaults, ``dataclasses.field`` (``default``, ``default_factory``, ``compare``, ``repr``), methods and
    properties, ``__post_init__`` and inheritance from other records.
    """
    namespace = dict(cls.__dict__)
    fields: dict[str, Field[Any]] = {}
    for base in reversed(cls.__mro__[1:]):
        fields.update(getattr(base, "__dataclass_fields__", {}))
    own: list[str] = []
    for name, annotation in inspect.get_annotations(cls).items():
        if "ClassVar" in str(annotation):
            continue
        default = namespace.pop(name, MISSING)
        entry = default if isinstance(default, Field) else dataclasses.field(default=default)
        entry.name, entry.type = name, annotation
        entry._field_type = dataclasses._FIELD  # type: ignore[union-attr, attr-defined]
        fields[name] = entry
        own.append(name)
    compared = tuple(name for name, entry in fields.items() if entry.compare)
    namespace |= {
        "__qualname__": cls.__qualname__,
        "__slots__": tuple(own),
        "__dataclass_fields__": fields,
        "__dataclass_params__": _PARAMS,
        # one call into C for all fields; a record is compared and hashed often as a key
        "__record_key__": staticmethod(attrgetter(*compared) if compared else _nothing),
        "__init__": _nothing,
        "__getstate__": _state,
        "__setstate__": _restore,
    }
    namespace.setdefault("__match_args__", tuple(fields))
    namespace.setdefault("__repr__", _represent)
    if "__eq__" not in namespace:
        namespace["__eq__"] = _equal
        namespace["__hash__"] = cls.__dict__.get("__hash__") or _hash
    for leftover in ("__dict__", "__weakref__"):
        namespace.pop(leftover, None)
    metaclass: Any = type(cls)
    made: type[T] = metaclass(cls.__name__, cls.__bases__, namespace)
    made.__init__ = _first_initialiser(made, fields)  # type: ignore[method-assign]
    return made


@dataclasses.dataclass(frozen=True, slots=True)
class _Model:
    """Stands for what every record's ``__dataclass_params__`` says."""


_PARAMS = _Model.__dataclass_params__  # type: ignore[attr-defined]


#: So many records of a class are made without a compiled ``__init__``: most classes have few in a run.
_FEW: Final = 16


def _first_initialiser(cls: type, fields: dict[str, Field[Any]]) -> Any:
    """An ``__init__`` that any record can have; it is slow, and puts the compiled one in its place when that pays.

    What it cannot make of its arguments it leaves to the compiled one, which says what is wrong with them.
    """
    made = 0

    def initialise(self: Any, *args: Any, **named: Any) -> None:
        nonlocal made
        made += 1
        values = dict(zip(fields, args, strict=False)) | named
        if made > _FEW or len(values) != len(args) + len(named) or not values.keys() <= fields.keys():
            return compiled(self, *args, **named)
        for name, entry in fields.items():
            if name in values:
                setattr(self, name, values[name])
            elif entry.default is not MISSING:
                setattr(self, name, entry.default)
            elif entry.default_factory is not MISSING:
                setattr(self, name, entry.default_factory())
            else:
                return compiled(self, *args, **named)
        if hasattr(self, "__post_init__"):
            self.__post_init__()
        return None

    def compiled(self: Any, *args: Any, **named: Any) -> None:
        initialiser = _initialiser(cls, fields)
        cls.__init__ = initialiser  # type: ignore[misc]
        initialiser(self, *args, **named)

    return initialise


def _initialiser(cls: type, fields: dict[str, Field[Any]]) -> Any:
    scope: dict[str, Any] = {"_missing": MISSING}
    parameters: list[str] = []
    body: list[str] = []
    for name, entry in fields.items():
        value = name
        if entry.default_factory is not MISSING:
            scope[f"_make_{name}"] = entry.default_factory
            parameters.append(f"{name}=_missing")
            value = f"_make_{name}() if {name} is _missing else {name}"
        elif entry.default is not MISSING:
            scope[f"_default_{name}"] = entry.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        body.append(f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    source = f"def __init__(self, {', '.join(parameters)}):\n" + ("\n".join(body) or " pass")
    exec(source, scope)  # noqa: S102 - written above, from the names of a class body
    made = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    return made


def _represent(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name, entry in self.__dataclass_fields__.items() if entry.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self.__record_key__(self) == other.__record_key__(other)


def _hash(self: Any) -> int:
    return hash(self.__record_key__(self))


def _nothing(self: Any) -> tuple[()]:
    return ()


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__dataclass_fields__]


def _restore(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__dataclass_fields__, state, strict=True):
        setattr(self, name, value)
