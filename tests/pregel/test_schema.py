"""A state class becomes channels (rules 1.1, 2.3)."""

import dataclasses
import operator
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Required, TypedDict

import pytest
from pydantic import BaseModel, Field

from pregel import GraphValidationError
from pregel.channels import (
    MISSING,
    AnyValue,
    BinaryOperatorAggregate,
    EphemeralValue,
    LastValue,
    Topic,
    UntrackedValue,
)
from pregel.schema import Schema, as_mapping, schema_of, storable_types, takes_two


class Typed(TypedDict, total=False):
    plain: int
    needed: Required[int]
    maybe: NotRequired[list[str]]
    folded: Annotated[list[str], operator.add]
    wrapped: Required[Annotated[int, operator.add]]
    inner: Annotated[NotRequired[int], max]
    ephemeral: Annotated[int, EphemeralValue]
    topic: Annotated[list[str], Topic(str, accumulate=True)]
    noted: Annotated[int, "only a note"]


def test_1_1_each_key_of_a_typed_dict_becomes_the_channel_that_its_annotation_names() -> None:
    kinds = {key: type(channel) for key, channel in schema_of(Typed).channels.items()}
    assert kinds == {
        "plain": LastValue,
        "needed": LastValue,
        "maybe": LastValue,
        "folded": BinaryOperatorAggregate,
        "wrapped": BinaryOperatorAggregate,
        "inner": BinaryOperatorAggregate,
        "ephemeral": EphemeralValue,
        "topic": Topic,
        "noted": LastValue,
    }


def test_1_1_an_instance_of_a_channel_is_taken_as_it_is_and_a_class_gets_the_type() -> None:
    channels: dict[str, Any] = dict(schema_of(Typed).channels)
    assert channels["topic"].accumulate
    assert channels["ephemeral"].type is int


def test_1_1_required_and_not_required_are_no_part_of_the_type() -> None:
    channels: dict[str, Any] = dict(schema_of(Typed).channels)
    assert channels["maybe"].type == list[str]
    assert channels["wrapped"].type is int
    assert schema_of(Typed).hints["needed"] is int


@dataclass
class Data:
    plain: int
    defaulted: int = 3
    made: list[str] = field(default_factory=list)
    folded: Annotated[list[str], operator.add] = field(default_factory=lambda: ["first"])
    nested: dict[str, list[int]] = field(default_factory=lambda: {"a": []})
    any_value: Annotated[int, AnyValue] = 7
    untracked: Annotated[Any, UntrackedValue] = field(default_factory=object)


class Model(BaseModel):
    plain: int
    defaulted: int = 3
    made: list[str] = Field(default_factory=list)
    folded: Annotated[list[str], operator.add] = ["first"]
    nested: dict[str, list[int]] = {"a": []}
    bounded: Annotated[int, Field(ge=0)] = 1
    any_value: Annotated[int, AnyValue] = 7


@pytest.mark.parametrize("state", [Data, Model])
def test_1_1_the_defaults_of_dataclasses_and_models_are_honoured(state: type) -> None:
    starts = {key: channel.initial() for key, channel in schema_of(state).channels.items()}
    assert starts["plain"] is MISSING
    assert starts["defaulted"] == 3
    assert starts["made"] == []
    assert starts["folded"] == ["first"]
    assert starts["nested"] == {"a": []}
    assert starts["any_value"] == 7


def test_1_1_the_default_of_an_untracked_key_is_honoured() -> None:
    channel = schema_of(Data).channels["untracked"]
    assert type(channel.initial()) is object
    assert channel.initial() is not channel.initial()


@pytest.mark.parametrize("state", [Data, Model])
def test_2_3_defaults_are_fresh_objects_down_to_the_last_level(state: type) -> None:
    channels = schema_of(state).channels
    for key in ("made", "folded", "nested"):
        assert channels[key].initial() is not channels[key].initial()
    first = channels["nested"].initial()
    first["a"].append(1)
    assert channels["nested"].initial() == {"a": []}


def test_1_1_a_model_field_with_a_constraint_is_a_last_value() -> None:
    assert type(schema_of(Model).channels["bounded"]) is LastValue


@pytest.mark.parametrize("state", [Data, Model])
def test_1_1_a_node_is_shown_an_instance_of_its_class(state: Any) -> None:
    view = schema_of(state).view
    assert view is not None
    shown = view({"plain": 1, "made": ["x"]})
    assert type(shown) is state
    assert (shown.plain, shown.defaulted, shown.made) == (1, 3, ["x"])


def test_1_1_a_typed_dict_is_shown_as_a_mapping() -> None:
    assert schema_of(Typed).view is None


@pytest.mark.parametrize("state", [int, dict, "State", Enum])
def test_1_1_any_other_state_is_refused_and_the_kinds_that_fit_are_named(state: Any) -> None:
    with pytest.raises(GraphValidationError, match="TypedDict, a dataclass or a pydantic model"):
        Schema(state)


def test_1_1_an_annotation_that_cannot_be_resolved_is_refused() -> None:
    broken = TypedDict("broken", {"x": "NoSuchName"})  # type: ignore[name-defined] # noqa: F821, UP013 - the point
    with pytest.raises(GraphValidationError, match="cannot be resolved"):
        Schema(broken)


def test_an_update_may_be_a_mapping_a_dataclass_or_what_a_model_sets() -> None:
    assert as_mapping({"x": 1}) == {"x": 1}
    assert as_mapping(Model(plain=1)) == {"plain": 1}
    data = as_mapping(dataclasses.replace(Data(1), made=["m"]))
    assert data is not None
    assert (data["plain"], data["made"]) == (1, ["m"])


@pytest.mark.parametrize("value", [None, 1, "text", ["x"], Data, Model])
def test_anything_else_is_no_update(value: Any) -> None:
    assert as_mapping(value) is None


def _one(a: Any) -> Any: ...
def _two(a: Any, b: Any) -> Any: ...
def _three(a: Any, b: Any, c: Any) -> Any: ...
def _default(a: Any, b: Any, c: Any = 1) -> Any: ...
def _star(*args: Any) -> Any: ...
def _named(a: Any, *, b: Any) -> Any: ...
def _needs_named(a: Any, b: Any, *, c: Any) -> Any: ...


@pytest.mark.parametrize("reducer", [_two, _default, _star, operator.add, operator.or_, max, set.union])
def test_1_5_a_reducer_of_two_arguments_is_known_as_one(reducer: Any) -> None:
    assert takes_two(reducer)


@pytest.mark.parametrize("reducer", [_one, _three, _named, _needs_named, operator.neg])
def test_1_5_a_reducer_of_any_other_shape_is_found_out(reducer: Any) -> None:
    assert not takes_two(reducer)


class Colour(Enum):
    RED = 1


class Point(NamedTuple):
    colour: Colour


@dataclass
class Leaf:
    points: list[Point]


class Inner(TypedDict):
    leaf: Leaf


class Tree(TypedDict):
    children: "dict[str, list[Tree]]"
    inner: Inner | None
    kind: Literal["a"]


def test_12_3_the_classes_in_a_schema_are_found_at_any_depth_and_cycles_end() -> None:
    assert set(storable_types(Tree)) == {Colour, Point, Leaf}
