"""Classes come back with the state they had, and nothing of theirs runs on the way."""

import dataclasses
import enum
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, model_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass

from pregel.checkpoint.errors import CorruptCheckpointError, SerializationError
from pregel.checkpoint.serde import Serializer

T = TypeVar("T")


def round_trip(value: Any, *types: type) -> Any:
    serde = Serializer([type(value), *types])
    found = serde.decode(serde.encode(value))
    assert type(found) is type(value)
    return found


def renamed(value: Any, cls: type) -> bytes:
    """Encode a value as if it were of another class: what an older release of the application wrote."""
    type(value).__module__, type(value).__qualname__ = cls.__module__, cls.__qualname__
    return Serializer([type(value)]).encode(value)


# --- dataclasses ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    made: ClassVar[int] = 0
    x: int
    start: dataclasses.InitVar[int] = 0
    double: int = dataclasses.field(init=False)

    def __post_init__(self, start: int) -> None:
        type(self).made += 1
        object.__setattr__(self, "double", self.x * 2 + start)


def test_a_dataclass_is_restored_without_running_its_code_again_12_1() -> None:
    value = Frozen(3, 100)
    before = Frozen.made
    assert round_trip(value) == value
    assert Frozen.made == before


@dataclasses.dataclass
class Derived:
    parts: list[int]

    def __post_init__(self) -> None:
        self.total = sum(self.parts)  # no field, and nobody would compute it again

    @cached_property
    def lock(self) -> object:
        return object()  # cannot be stored, and need not be


def test_a_dataclass_keeps_what_its_post_init_set_besides_the_fields_12_1() -> None:
    value = Derived([1, 2])
    assert value.lock is value.lock
    found = round_trip(value)
    assert vars(found) == {"parts": [1, 2], "total": 3}
    assert found.lock is not value.lock


def test_a_dataclass_with_a_field_that_is_not_set_is_refused_12_2() -> None:
    value = object.__new__(Frozen)
    object.__setattr__(value, "x", 1)
    with pytest.raises(SerializationError, match="its field 'double' is not set") as caught:
        Serializer([Frozen]).encode({"k": value})
    assert caught.value.path == "['k']"


@dataclasses.dataclass
class Box(Generic[T]):
    item: T


@pydantic_dataclass
class Checked:
    x: int


@dataclasses.dataclass(eq=False)
class Failure(Exception):
    code: int


def test_generic_and_checked_dataclasses_and_those_that_are_exceptions_round_trip_12_1() -> None:
    assert round_trip(Box[int](1)).item == 1
    assert round_trip(Checked(5)).x == 5
    found = round_trip(Failure(4))
    assert (found.code, found.args) == (4, (4,))


def test_missing_and_extra_fields_are_named_12_3() -> None:
    old = dataclasses.make_dataclass("old", ["item", "colour", "size"])
    data = renamed(old(1, 2, 3), Checked)
    with pytest.raises(CorruptCheckpointError, match=r"missing \['x'\], extra \['colour', 'item', 'size'\]"):
        Serializer([Checked]).decode(data)


# --- NamedTuples ------------------------------------------------------------------------------------------------------


class Position(NamedTuple):
    line: int
    column: int = 0


class Named(Position):
    """A subclass without slots: it can hold attributes."""


def test_a_named_tuple_is_restored_by_the_names_of_its_fields_12_1() -> None:
    assert round_trip(Position(1, 2)) == (1, 2)
    assert round_trip(Named(1)) == (1, 0)

    class Swapped(NamedTuple):
        column: int
        line: int

    found = Serializer([Position]).decode(renamed(Swapped(column=5, line=7), Position))
    assert found == Position(line=7, column=5)


def test_a_named_tuple_with_other_fields_is_refused_12_3() -> None:
    class Longer(NamedTuple):
        line: int
        page: int

    with pytest.raises(CorruptCheckpointError, match=r"missing \['column'\], extra \['page'\]"):
        Serializer([Position]).decode(renamed(Longer(1, 2), Position))


def test_a_named_tuple_with_attributes_is_refused_12_2() -> None:
    value = Named(1)
    value.mood = "good"  # type: ignore[attr-defined]
    with pytest.raises(SerializationError, match="attributes besides its fields"):
        Serializer([Named]).encode(value)


# --- enums ------------------------------------------------------------------------------------------------------------


class Shade(enum.Enum):
    DARK = enum.auto()
    LIGHT = enum.auto()
    PALE = LIGHT


class Odd(enum.Enum):
    name = "a member called name"
    value = "and one called value"


class Rights(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Loose(enum.IntFlag, boundary=enum.KEEP):
    A = 1
    B = 4


class Strict(enum.Flag, boundary=enum.STRICT):
    A = 1
    C = 4


@pytest.mark.parametrize(
    "value", [Shade.PALE, Odd.value, Rights(0), Rights(3), ~Rights.READ, Loose(9), Loose(-1), Strict(5)]
)
def test_enum_members_and_combined_flags_come_back_as_the_same_object_12_1(value: Any) -> None:
    assert round_trip(value) is value


@pytest.mark.parametrize("cls", [Shade, Rights])
def test_a_value_that_is_no_member_of_its_enum_is_refused_12_2(cls: Any) -> None:
    stranger = object.__new__(cls)  # as `_missing_` of a class may make one
    stranger._name_, stranger._value_ = "STRANGE", 1
    with pytest.raises(SerializationError, match=r"no named member|do not lead back"):
        Serializer([cls]).encode(stranger)


def test_an_enum_is_read_by_name_so_that_values_may_be_renumbered_12_1() -> None:
    old = enum.Enum("old", ["LIGHT", "DARK"])
    assert Serializer([Shade]).decode(renamed(old.DARK, Shade)) is Shade.DARK
    flags = enum.Flag("flags", {"WRITE": 1, "READ": 2})
    assert Serializer([Rights]).decode(renamed(flags.READ, Rights)) is Rights.READ


def test_a_member_that_is_gone_is_an_error_and_never_none_12_3() -> None:
    old = enum.Enum("old", ["BRIGHT"])
    with pytest.raises(CorruptCheckpointError, match="BRIGHT"):
        Serializer([Shade]).decode(renamed(old.BRIGHT, Shade))


# --- exceptions -------------------------------------------------------------------------------------------------------


class Renaming(Exception):
    """Its arguments do not show what it was made with, and its text is not among them."""

    def __init__(self, *, shop: str) -> None:
        self.shop = shop
        super().__init__()

    def __str__(self) -> str:
        return f"no {self.shop}"


class NoFile(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "not there", path)


class Swapping(ValueError):
    def __new__(cls, *args: object) -> "Swapping":
        raise AssertionError("never called when reading")

    def __init__(self) -> None:
        raise AssertionError("never called when reading")


def test_exceptions_are_restored_without_calling_their_init_12_1() -> None:
    assert str(round_trip(Renaming(shop="bakery"))) == "no bakery"
    found = round_trip(NoFile("a/b"))
    assert (found.errno, found.strerror, found.filename) == (2, "not there", "a/b")
    value = ValueError.__new__(Swapping, "x")
    assert round_trip(value).args == ("x",)


def test_an_exception_whose_arguments_do_not_lead_back_is_refused_12_2() -> None:
    error = UnicodeDecodeError("utf-8", b"", 0, 1, "r")
    error.args = ("changed",)
    with pytest.raises(SerializationError, match="TypeError"):
        Serializer().encode(error)
    blank = OSError()
    blank.args = (2, "made a FileNotFoundError")
    with pytest.raises(SerializationError, match="do not lead back to it"):
        Serializer().encode(blank)


# --- pydantic ---------------------------------------------------------------------------------------------------------


class Order(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)
    made: ClassVar[int] = 0
    size: int = Field(alias="Size", default=1)
    tags: set[str] = set()
    _seen: list[int] = PrivateAttr(default_factory=list)

    @model_validator(mode="after")
    def count(self) -> "Order":
        Order.made += 1
        return self

    @cached_property
    def slow(self) -> object:
        return object()


class Plain(BaseModel):
    x: int
    inner: "Plain | None" = None


class Names(RootModel[list[str]]):
    pass


class Wrapped(BaseModel, Generic[T]):
    item: T


def test_a_model_keeps_fields_extras_private_attributes_and_what_was_set_12_1() -> None:
    value = Order.model_validate({"Size": 3, "colour": "red"})
    value._seen.append(5)
    assert value.slow is value.slow
    before = Order.made
    found = round_trip(value)
    assert Order.made == before
    assert found == value
    assert found.model_fields_set == {"size", "colour"}
    assert (found.model_extra, found._seen, found.tags) == ({"colour": "red"}, [5], set())
    assert "slow" not in vars(found)


def test_a_model_whose_values_no_longer_pass_its_validators_round_trips_12_1() -> None:
    assert round_trip(Plain.model_construct(x="no number", inner=None)).x == "no number"


@pytest.mark.parametrize("value", [Plain(x=1, inner=Plain(x=2)), Names(["a"]), Wrapped[int](item=4)])
def test_models_of_every_kind_round_trip_12_1(value: Any) -> None:
    assert round_trip(value) == value


def test_a_model_that_is_not_complete_is_refused_12_2() -> None:
    with pytest.raises(SerializationError, match=r"its fields \['x'\] are not set"):
        Serializer([Plain]).encode(Plain.model_construct(inner=None))
    value = Plain(x=1)
    value.__dict__["other"] = 2
    with pytest.raises(SerializationError, match=r"besides its fields: \['other'\]"):
        Serializer([Plain]).encode(value)


def test_a_model_with_other_fields_is_refused_12_3() -> None:
    class Older(BaseModel):
        x: int
        note: str = ""

    with pytest.raises(CorruptCheckpointError, match=r"missing \['inner'\], extra \['note'\]"):
        Serializer([Plain]).decode(renamed(Older(x=1), Plain))
