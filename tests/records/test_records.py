"""A record behaves as the standard library's frozen, slotted dataclass of the same body."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.records import record

_standard = dataclasses.dataclass(frozen=True, slots=True)


def _bodies(make: Callable[[type], Any]) -> tuple[Any, Any]:
    @make
    class Point:
        """A point."""

        kind: ClassVar[str] = "point"
        x: int
        y: int = 2
        tags: list[str] = dataclasses.field(default_factory=list)
        note: str = dataclasses.field(default="", compare=False, repr=False)

        @property
        def total(self) -> int:
            return self.x + self.y

    @make
    class Named(Point):
        name: str = "n"

        def __post_init__(self) -> None:
            if not self.name:
                raise ValueError("a name is needed")

    return Point, Named


OURS, OURS_NAMED = _bodies(record)
THEIRS, THEIRS_NAMED = _bodies(_standard)


@record
class Pickled:
    a: int
    b: tuple[int, ...] = ()


@settings(deadline=None)
@given(st.integers(), st.integers(), st.lists(st.text()), st.text())
def test_same_values_text_and_equality(x: int, y: int, tags: list[str], note: str) -> None:
    ours, theirs = OURS(x, y, tags, note), THEIRS(x, y, tags=tags, note=note)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert repr(ours) == repr(theirs)
    assert ours.total == theirs.total
    assert ours == OURS(x, y, list(tags), "another note")
    assert ours != OURS(x + 1, y, tags)
    assert ours != theirs
    assert dataclasses.replace(ours, x=5) == OURS(5, y, tags)


def test_hash_counts_compared_fields_only() -> None:
    assert hash(Pickled(1, (2,))) == hash(Pickled(1, (2,)))
    assert len({Pickled(1), Pickled(1), Pickled(2)}) == 2


def test_slots_without_a_dictionary() -> None:
    point = OURS(1)
    assert not hasattr(point, "__dict__")
    with pytest.raises(AttributeError):
        point.other = 2
    assert point.tags == []
    assert OURS(1).tags is not point.tags, "each its own"
    assert OURS.kind == "point"
    assert OURS.__doc__ == "A point."


def test_inheritance_and_post_init() -> None:
    assert [field.name for field in dataclasses.fields(OURS_NAMED)] == [
        field.name for field in dataclasses.fields(THEIRS_NAMED)
    ]
    assert OURS_NAMED(1).name == "n"
    with pytest.raises(ValueError, match="a name is needed"):
        OURS_NAMED(1, name="")


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2, [], "", "more"), {}), ((1,), {"x": 2}), ((1,), {"z": 1})]
)
def test_wrong_calls_are_type_errors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for cls in (OURS, THEIRS):
        with pytest.raises(TypeError):
            cls(*args, **kwargs)


def test_copied_pickled_and_matched() -> None:
    value = Pickled(1, (2, 3))
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == value
    assert copy.copy(value) is not value
    match value:
        case Pickled(a, b):
            assert (a, b) == (1, (2, 3))
    assert dataclasses.is_dataclass(value)


def test_few_and_many_are_made_alike() -> None:
    """Before and after the initialiser is compiled: values, defaults, refusals and ``__post_init__``."""
    ours, theirs = _bodies(record), _bodies(_standard)
    wrong: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
        ((), {}), ((1, 2, [], "", "n", "more"), {}), ((1,), {"x": 2}), ((1,), {"z": 1}), ((1,), {"name": ""}),
    )  # fmt: skip
    for at in range(40):
        for our_class, their_class in zip(ours, theirs, strict=True):
            one, other = our_class(at, tags=["t"]), their_class(at, tags=["t"])
            assert dataclasses.asdict(one) == dataclasses.asdict(other)
            assert one == our_class(at, 2, ["t"], "another note")
        args, kwargs = wrong[at % len(wrong)]
        with pytest.raises((TypeError, ValueError)):
            ours[1](*args, **kwargs)
