"""A refused value is named by the way to it."""

import dataclasses
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from pregel.checkpoint.errors import SerializationError
from pregel.checkpoint.serde import Serializer, register_type


@dataclasses.dataclass
class Node:
    name: Any


class Pair(NamedTuple):
    left: Any
    right: Any


class Model(BaseModel):
    field: Any


class Opaque:
    pass


class Custom:
    def __init__(self, inner: Any) -> None:
        self.inner = inner


register_type(Custom, name="test:custom", encode=lambda v: {"inner": v.inner}, decode=lambda s: Custom(s["inner"]))
SERDE = Serializer([Node, Pair, Model])
X = Opaque()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (X, ""),
        ([1, X], "[1]"),
        ({"a": [0, 1, 2, Node(X)]}, "['a'][3].name"),
        ({"a": {3: (1, X)}}, "['a'][3][1]"),
        ({None: {b"k": X}}, "[None][b'k']"),
        ({(1, 2): X}, "[tuple]"),
        ({"ok": 1, (1, X): 1}, ".keys()[1][1]"),
        ({X}, "[0]"),
        (Pair(1, Pair(X, 2)), ".right.left"),
        (Model(field=[Model(field=X)]), ".field[0].field"),
        (Custom({"k": X}), ".inner['k']"),
        (ValueError(1, X), ".args[1]"),
        ([{"a": 1}, memoryview(b"")], "[1]"),
        ([bytearray(b"ok"), {"deep": [bytearray(), (memoryview(b""),)]}], "[1]['deep'][1][0]"),
    ],
)
def test_the_path_leads_to_the_fault_12_2(value: Any, path: str) -> None:
    with pytest.raises(SerializationError) as caught:
        SERDE.encode(value)
    assert caught.value.path == path
    assert path in str(caught.value)


def test_of_several_faults_the_first_is_named_12_2() -> None:
    with pytest.raises(SerializationError) as caught:
        SERDE.encode({"a": [1, {"b": X}], "c": X})
    assert caught.value.path == "['a'][1]['b']"


def cycles() -> list[tuple[Any, str]]:
    a: list[Any] = [1]
    a.append(a)
    b: dict[str, Any] = {"x": []}
    b["x"].append((1, b))
    node = Node(None)
    node.name = {"self": [node]}
    error = ValueError()
    error.__dict__["me"] = error
    return [(a, "[1]"), (b, "['x'][0][1]"), (node, ".name['self'][0]"), (error, ".me"), ([[0], a], "[1][1]")]


@pytest.mark.parametrize(("value", "path"), cycles(), ids=["list", "dict", "dataclass", "exception", "inner"])
def test_a_value_that_contains_itself_is_refused_where_it_closes_12_2(value: Any, path: str) -> None:
    with pytest.raises(SerializationError, match="contains itself") as caught:
        SERDE.encode(value)
    assert caught.value.path == path


def test_one_object_in_two_places_is_no_cycle_12_1() -> None:
    shared = [1]
    assert SERDE.decode(SERDE.encode({"a": shared, "b": [shared, shared]})) == {"a": [1], "b": [[1], [1]]}


def test_an_encode_that_never_ends_is_refused_12_2() -> None:
    class Endless:
        pass

    register_type(Endless, encode=lambda _: [Endless()], decode=lambda _: Endless())
    with pytest.raises(SerializationError, match="nested too deeply"):
        SERDE.encode(Endless())


def test_a_long_path_is_cut_in_the_middle_12_2() -> None:
    value: Any = X
    for _ in range(400):
        value = [value]
    with pytest.raises(SerializationError) as caught:
        SERDE.encode({"start": value})
    assert caught.value.path.startswith("['start'][0]")
    assert " ... " in caught.value.path
    assert len(caught.value.path) < 320


def test_a_long_or_strange_key_cannot_spoil_the_message_12_2() -> None:
    class Loud:
        def __repr__(self) -> str:
            raise AssertionError("never asked for")

    register_type(Loud, encode=lambda _: 1, decode=lambda _: Loud())
    for key in ("k" * 10_000, Loud()):
        with pytest.raises(SerializationError) as caught:
            SERDE.encode({key: X})
        assert len(str(caught.value)) < 300


def test_a_value_is_never_shown_only_its_type_12_2() -> None:
    class Secret(str):
        __slots__ = ()

    with pytest.raises(SerializationError) as caught:
        SERDE.encode({"password": Secret("hunter2")})
    assert "hunter2" not in str(caught.value)
    assert "convert it to str" in str(caught.value)
