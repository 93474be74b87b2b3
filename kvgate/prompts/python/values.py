"""What an expression of prompt-building code is known to be."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kvgate.prompts.part import Change, Choice, Item, Kind, Part, parts_of
from kvgate.prompts.vocabulary import is_constant_name, meaning_of
from kvgate.records import record
from kvgate.source.text import Span

if TYPE_CHECKING:
    from kvgate.prompts.python.frame import Frame
    from kvgate.prompts.python.project import ModuleSource


@record
class Written:
    """Anything as what it writes into a text: strings, numbers, times, objects that nothing more is known of."""

    items: tuple[Item, ...] = ()

    @property
    def single(self) -> Part | None:
        """The one part it consists of, None where it is a mixture."""
        return self.items[0] if len(self.items) == 1 and isinstance(self.items[0], Part) else None

    @property
    def text(self) -> str | None:
        """The text itself where it is wholly known."""
        texts = [item.text if isinstance(item, Part) and item.kind is Kind.STATIC else None for item in self.items]
        return "".join(text for text in texts if text is not None) if all(t is not None for t in texts) else None

    def first(self, *kinds: Kind) -> Part | None:
        """The first part of some kinds."""
        return next((part for part in parts_of(self.items) if part.kind in kinds), None)


@dataclass(slots=True, eq=False)
class Rows:
    """A list, tuple or set.

    Attributes:
        unordered: what makes its order change, None where it is stable.
        repeated: the one element is written many times (``[prompt] * 100``).
    """

    elements: list[Value] = field(default_factory=list)
    span: Span | None = None
    unordered: Part | None = None
    repeated: Span | None = None


@dataclass(slots=True, eq=False)
class Fields:
    """A dictionary by its constant keys.

    Attributes:
        others: values of keys that are not known.
        keys: where each key stands.
        unordered: what makes its order change.
        literal: its keys are written out.
        past: made in a loop over a history: a message of it is one of an earlier turn.
    """

    entries: dict[str, Value] = field(default_factory=dict)
    others: list[Value] = field(default_factory=list)
    span: Span | None = None
    keys: dict[str, Span] = field(default_factory=dict)
    unordered: Part | None = None
    literal: bool = True
    past: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function of the project; ``owner`` is the object that a method is bound to."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    module: ModuleSource
    owner: Instance | None = None
    closure: Frame | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Class:
    node: ast.ClassDef
    module: ModuleSource


@dataclass(slots=True, eq=False)
class Instance:
    """The one object that stands for all objects of a class."""

    cls: Class
    attributes: dict[str, Value] = field(default_factory=dict)
    ready: bool = False


@record
class Package:
    """A name of another package, dotted: ``datetime.datetime.now``."""

    dotted: str


@dataclass(frozen=True, slots=True, eq=False)
class Deferred:
    """A name that is imported from a file of the project, looked up when it is used."""

    source: ModuleSource
    name: str
    dotted: str
    below: ModuleSource | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ProjectModule:
    source: ModuleSource


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """An attribute of a value, not called yet."""

    receiver: Value
    name: str
    written: Written


@dataclass(slots=True, eq=False)
class Template:
    """A prompt template with placeholders that are filled later.

    Attributes:
        messages: role and items; a plain template is one of role ``prompt``.
        filled: a call has filled it, and was judged.
    """

    messages: list[tuple[str, tuple[Item, ...], Span]]
    span: Span
    style: str = "format"
    filled: bool = False
    bound: dict[str, Value] = field(default_factory=dict)


Value = Written | Rows | Fields | Function | Class | Instance | Package | ProjectModule | Method | Template | Deferred

NOTHING = Written()
#: Values that a branch, or a loop over a list, is followed for.
MAX_OPTIONS = 12
#: Parts of a text that branches decide over, those of all branches counted; beyond, the longest branch stands for all.
MAX_PARTS = 400


def written(part: Part) -> Written:
    return Written((part,))


def unknown(span: Span) -> Written:
    return Written((Part(Kind.UNKNOWN, Change.PROCESS, span),))


def elements_of(value: Value) -> Iterator[Value]:
    """The values inside a container."""
    if isinstance(value, Rows):
        yield from value.elements
    elif isinstance(value, Fields):
        yield from value.entries.values()
        yield from value.others


def items_of(value: Value, depth: int = 0) -> tuple[Item, ...]:
    """What a value writes into a text."""
    if depth > 6:
        return ()
    match value:
        case Written():
            return value.items
        case Rows() | Fields():
            found: list[Item] = [value.unordered] if value.unordered is not None else []
            for element in elements_of(value):
                found += items_of(element, depth + 1)
            return tuple(found)
        case Method():
            return value.written.items
        case Template():
            return tuple(item for _, items, _ in value.messages for item in items)
        case _:
            return ()


def entering(value: Value, span: Span) -> tuple[Item, ...]:
    """What a value writes where an expression stands: a bare value enters the prompt there."""
    if isinstance(value, Package):
        return _of_package(value.dotted, span)
    items = items_of(value)
    if len(items) == 1 and isinstance(items[0], Part):
        part = items[0]
        if part.kind in _STAYING or (part.kind is Kind.STATIC and part.text is not None):
            return items
        return (part.at(span),)
    if len(items) == 1 and isinstance(items[0], Choice) and all(_is_bare(option) for option in items[0].options):
        # one of several ways to write the same thing: the one that changes most stands for it
        return (max(parts_of(items), key=lambda part: part.change).at(span),)
    return items


#: Kinds that are told where they come about, not where they are written.
_STAYING = frozenset({Kind.CUT, Kind.UNORDERED})


def re_placed(value: Value, span: Span) -> Value:
    """A bare changing value enters the prompt where it is put into a list."""
    if isinstance(value, Package):
        return Written(_of_package(value.dotted, span))
    if isinstance(value, Written) and value.single is not None and value.single.kind not in _STAYING | {Kind.STATIC}:
        return written(value.single.at(span))
    return value


def _of_package(dotted: str, span: Span) -> tuple[Item, ...]:
    """A name that another package brings: what it says, and as constant as an import is."""
    name = dotted.rpartition(".")[2]
    meaning = meaning_of(name)
    if is_constant_name(name) or (meaning is not None and meaning.kind is Kind.STATIC):
        return (Part(Kind.STATIC, Change.PROCESS, span),)
    if meaning is not None and meaning.kind is Kind.TOOLS:
        return (Part(Kind.TOOLS, Change.PROCESS, span, words=meaning.words),)
    return (Part(Kind.UNKNOWN, Change.PROCESS, span),)


def _is_bare(option: tuple[Item, ...]) -> bool:
    """Whether a branch is one value, or one short word."""
    if len(option) != 1 or not isinstance(option[0], Part):
        return False
    return option[0].kind is not Kind.STATIC or len(option[0].text or "") <= 32


def choice(options: Iterable[tuple[Item, ...]]) -> tuple[Item, ...]:
    """One of several texts; what they begin with in common stands once."""
    several: list[tuple[Item, ...]] = []
    for option in options:
        if option not in several:
            several.append(option)
    if not several:
        return ()
    if len(several) == 1:
        return several[0]
    common = 0
    while all(len(option) > common for option in several) and len({option[common] for option in several}) == 1:
        common += 1
    rests = [option[common:] for option in several if option[common:]]
    head = several[0][:common]
    if len(rests) <= 1:
        return (*head, *rests[0]) if rests else head
    found = Choice(tuple(rests[:6]))
    # branches in branches of a loop double what there is to say with each of them
    return (*head, found) if found.size <= MAX_PARTS else (*head, *max(rests, key=len))


def either(values: list[Value]) -> Value:
    """One of several values, as branches decide."""
    distinct: list[Value] = []
    for value in values[:MAX_OPTIONS]:
        if not any(value is other for other in distinct):
            distinct.append(value)
    if len(distinct) == 1:
        return distinct[0]
    meaningful = [value for value in distinct if not (isinstance(value, Written) and not value.items)]
    if not meaningful:
        return NOTHING
    if len(meaningful) == 1:
        return meaningful[0]
    containers = [value for value in meaningful if isinstance(value, Rows | Fields)]
    if containers and len(containers) == len(meaningful):
        return max(containers, key=lambda value: sum(1 for _ in elements_of(value)))
    cut = next((value for value in meaningful if isinstance(value, Written) and value.first(Kind.CUT)), None)
    if cut is not None and containers:
        return Rows([cut, *elements_of(containers[0])])
    others = [value for value in meaningful if not isinstance(value, Written)]
    if others:
        return others[0]
    return Written(choice(items_of(value) for value in meaningful))


def changed(value: Written, **changes: object) -> Written:
    """The same with every part changed; static text stays."""
    return Written(_changed(value.items, changes))


def _changed(items: tuple[Item, ...], changes: dict[str, object]) -> tuple[Item, ...]:
    found: list[Item] = []
    for item in items:
        if isinstance(item, Choice):
            found.append(Choice(tuple(_changed(option, changes) for option in item.options)))
        elif item.kind is Kind.STATIC:
            found.append(item)
        else:
            found.append(replace(item, **changes))  # type: ignore[arg-type]
    return tuple(found)
