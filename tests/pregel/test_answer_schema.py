"""What an answer must look like: types described, and values fitted to the description (6.13)."""

import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from pydantic import BaseModel, Field

from pregel.answer_schema import MisfitError, describe, fit


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Limits(BaseModel):
    top: int = Field(gt=0)


@dataclass
class Point:
    x: int
    y: float = 0.0
    tags: list[str] = field(default_factory=list)


@dataclass
class Route:
    start: Point
    via: list[Point]


class Form(TypedDict):
    name: str
    age: NotRequired[int | None]


CLASSES: dict[str, type] = {cls.__name__: cls for cls in (Colour, Limits, Point, Route)}


def name_of(cls: type) -> str:
    if CLASSES.get(cls.__name__) is not cls:
        raise LookupError(cls.__name__)
    return cls.__name__


def fitted(value: Any, hint: Any) -> Any:
    """Return the value as the type, by way of a description that has been text."""
    return fit(value, json.loads(json.dumps(describe(hint, name_of))), CLASSES.__getitem__)


FITS: list[tuple[Any, Any, Any]] = [
    (Any, object, object),
    (bool, True, True),
    (int, 3, 3),
    (float, 3, 3),
    (float, 0.5, 0.5),
    (str, "", ""),
    (None, None, None),
    (int | None, None, None),
    (Literal["yes", "no"], "no", "no"),
    (Literal[1, True], True, True),
    (Annotated[str, "a label"], "x", "x"),
    (list, [1, "a"], [1, "a"]),
    (list[int], [1, 2], [1, 2]),
    (dict, {1: 2}, {1: 2}),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (Form, {"name": "n"}, {"name": "n"}),
    (Form, {"name": "n", "age": None}, {"name": "n", "age": None}),
    (Colour, Colour.RED, Colour.RED),
    (Colour, "blue", Colour.BLUE),
    (Limits, {"top": 1}, Limits(top=1)),
    (Limits, Limits(top=2), Limits(top=2)),
    (Point, {"x": 1}, Point(1)),
    (Point, Point(1), Point(1)),
    (Route, {"start": {"x": 1}, "via": [{"x": 2, "y": 1}]}, Route(Point(1), [Point(2, 1)])),
    (list[Point] | str, [{"x": 1}], [Point(1)]),
    (bytes, b"x", b"x"),
    (date, date(2026, 1, 2), date(2026, 1, 2)),
    (Decimal | None, Decimal(1), Decimal(1)),
    (list[tuple], [(1,)], [(1,)]),  # type: ignore[type-arg] # without arguments is what is tested
    (set, {1}, {1}),
    (dict[Colour, int], {Colour.RED: 1}, {Colour.RED: 1}),
]


@pytest.mark.parametrize(("hint", "value", "expected"), FITS)
def test_a_value_that_fits_becomes_the_type(hint: Any, value: Any, expected: Any) -> None:
    """6.13: a mapping becomes the class that it describes, everything else stays as it is."""
    found = fitted(value, hint)
    assert (type(found), found) == (type(expected), expected)


MISFITS: list[tuple[Any, Any, str]] = [
    (bool, 1, "the answer is 1, expected boolean"),
    (int, True, "the answer is True, expected integer"),
    (int, 1.0, "expected integer"),
    (float, False, "expected number"),
    (str, None, "the answer is None, expected string"),
    (None, 0, "expected null"),
    (int | None, "x", "expected integer; the answer is 'x', expected null"),
    (Literal["yes", "no"], "maybe", r"the answer is 'maybe', expected one of \['yes', 'no'\]"),
    (Literal[1], True, "expected one of"),
    (list[int], [1, "2"], r"the answer\[1\] is '2', expected integer"),
    (list, (1,), "expected a list"),
    (dict[str, int], {"a": "b"}, r"the answer\['a'\] is 'b'"),
    (dict, [], "expected a mapping"),
    (Form, {}, "the answer lacks 'name'"),
    (Form, {"name": "n", "nam": 1}, r"the answer has 'nam'; expected are \['name', 'age'\]"),
    (Form, {"name": 1}, r"the answer\['name'\] is 1"),
    (Colour, "green", "the answer is no Colour"),
    (Limits, {"top": 0}, "the answer is no Limits"),
    (Limits, "x", "the answer is no Limits"),
    (Point, {"y": 1.0}, "the answer lacks 'x'"),
    (Point, 3, "the answer is 3, expected a mapping"),
    (Route, {"start": {"x": 1}, "via": [{"x": "2"}]}, r"the answer\['via'\]\[0\]\['x'\] is '2', expected integer"),
    (bytes, "x", "the answer is 'x', expected a bytes"),
    (date, "2026-01-02", "expected a date"),
    (date, datetime(2026, 1, 2, tzinfo=UTC), "expected a date"),
    (dict[int, str], {"a": "b"}, "the key 'a' of the answer is 'a', expected integer"),
    (dict[Colour, int], {"zzz": 1}, "the key 'zzz' of the answer is no Colour"),
    (int, "x" * 100, "the answer is str, expected integer"),
]


@pytest.mark.parametrize(("hint", "value", "says"), MISFITS)
def test_a_value_that_does_not_fit_is_refused_with_the_place(hint: Any, value: Any, says: str) -> None:
    """6.13: the text says where, what was there and what was expected."""
    with pytest.raises(MisfitError, match=says):
        fitted(value, hint)


@pytest.mark.parametrize("hint", [list[Any] | Any, "Point", 3, tuple[int, str]])
def test_a_type_that_cannot_be_told_is_refused(hint: Any) -> None:
    """6.13: what no other process could check is no schema; what means anything is one."""
    if hint == list[Any] | Any:
        assert fitted(object, hint) is object
        return
    with pytest.raises(TypeError, match="no type that an answer can be checked against"):
        describe(hint, name_of)


def test_a_class_that_is_not_known_is_refused_when_asking() -> None:
    """6.13: an answer may come in a process that could not make it."""

    class Local:
        pass

    with pytest.raises(LookupError, match="Local"):
        describe(list[Local], name_of)


@dataclass
class Tree:
    below: "list[Tree]"


class Nested(TypedDict):
    below: "list[Nested]"


@pytest.mark.parametrize("hint", [Tree, Nested, list[Tree] | None])
def test_a_type_within_itself_is_refused_and_does_not_run_for_ever(hint: Any) -> None:
    """6.13: a description is finite."""
    with pytest.raises(TypeError, match=r"(Tree|Nested) contains itself"):
        describe(hint, lambda cls: cls.__name__)
