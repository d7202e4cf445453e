"""Bytes and back: what round-trips, what is refused and where, what damage and forgery lead to."""

import dataclasses
import datetime as dt
import json
import pickle
import random
import struct
import subprocess
import sys
import zlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from threading import Barrier
from typing import Any, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pydantic import BaseModel, ConfigDict

from pregel.checkpoint.errors import ConcurrentRunError, CorruptCheckpointError, PregelError, SerializationError
from pregel.checkpoint.serde import Serializer, StoredError, register_type

ROOT = Path(__file__).parents[2]
E = TypeVar("E", bound=BaseException)


class Team(BaseModel):
    model_config = ConfigDict(extra="allow")

    class Colour(Enum):
        RED = "red"
        BLUE = ("b", 1)

    colour: Colour = Colour.RED
    counts: dict[int, Any] = {}


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Word(StrEnum):
    YES = "yes"


class Access(Flag):
    READ = 1
    WRITE = 2
    BOTH = 3


class Bits(IntFlag):
    ONE = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: Any
    y: Any = 0


@dataclasses.dataclass
class Note:
    text: Any


class Pair(NamedTuple):
    first: Any
    second: Any


class Rejected(Exception):
    """Takes other arguments than those it hands on."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Money:
    """A plain class, so that it needs an encode and a decode."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    def __hash__(self) -> int:
        return hash(self.cents)


register_type(Money, name="test:money", encode=lambda money: {"cents": money.cents}, decode=lambda s: Money(s["cents"]))

TYPES = [Team, Team.Colour, Level, Word, Access, Bits, Point, Note, Pair, Rejected]
SERDE = Serializer(TYPES)


def same(value: Any, serde: Serializer = SERDE) -> Any:
    """Round-trip a value, check that nothing of it changed, and return what came back."""
    found = serde.decode(serde.encode(value))
    assert form(found) == form(value)
    return found


def form(value: Any) -> Any:
    """Spell a value out so that `==` sees types, signs, NaN, folds, order and everything else that must not change."""
    kind = type(value)
    if isinstance(value, np.ndarray | np.generic):
        return (
            kind,
            value.dtype.str,
            str(value.dtype),
            value.shape,
            value.tobytes(),
            str.__str__(value) if kind is np.str_ else 0,
        )
    if kind is float:
        return kind, struct.pack("<d", value)
    if kind is complex:
        return kind, form(value.real), form(value.imag)
    if kind in (list, tuple):
        return kind, [form(item) for item in value]
    if kind in (set, frozenset):
        return kind, sorted(repr(form(item)) for item in value)
    if kind is dict:
        return kind, [(form(key), form(item)) for key, item in value.items()]
    if kind in (dt.datetime, dt.time):
        return kind, value.replace(tzinfo=None).isoformat(), value.fold, form(value.tzinfo)
    if kind is dt.timezone:
        return kind, value.utcoffset(None), value.tzname(None)
    if kind is UUID:
        return kind, value.bytes, value.is_safe
    if isinstance(value, BaseException):
        return kind, form(value.args), form(dict(value.__dict__))
    if dataclasses.is_dataclass(value):
        return kind, [form(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if kind is Pair:
        return kind, [form(item) for item in value]
    if kind is Team:
        return kind, form(value.__dict__), value.model_fields_set, form(value.__pydantic_extra__)
    if kind is Money:
        return kind, value.cents
    return kind, repr(value)


# --- what round-trips -------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=()), max_size=12)  # lone surrogates and NUL among them
zones = (
    st.none() | st.timezones() | st.builds(dt.timezone, st.integers(-1439, 1439).map(lambda m: dt.timedelta(minutes=m)))
)
hashable_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    texts,
    st.binary(max_size=12),
    st.datetimes(timezones=zones, allow_imaginary=True),
    st.dates(),
    st.times(timezones=st.none() | st.just(dt.UTC)),
    st.timedeltas(),
    st.decimals().filter(lambda d: not d.is_snan()),  # cannot be hashed
    st.fractions(),
    st.complex_numbers(),
    st.builds(range, st.integers(-9, 9), st.integers(), st.sampled_from([1, -3, 2**70])),
    st.uuids(),
    texts.map(PurePosixPath),
    st.sampled_from([Path("a/b"), PureWindowsPath(r"c:\x"), dt.UTC, ZoneInfo("Asia/Tokyo"), Money(7)]),
    st.sampled_from([*Team.Colour, *Level, *Word, Access(0), ~Access.READ, Bits(5)]),
)
hashables = st.recursive(
    hashable_leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=3),
        st.builds(Point, inner, inner),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=4,
)
errors = st.builds(ValueError, texts) | st.builds(Rejected, st.integers(), texts)
values = st.recursive(
    st.one_of(hashables, st.binary(max_size=12).map(bytearray), st.just(Decimal("sNaN5")), errors),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(hashables, max_size=3),
        st.dictionaries(hashables, inner, max_size=4),
        st.builds(Note, inner),
        st.builds(Team, colour=st.sampled_from(Team.Colour), counts=st.dictionaries(st.integers(), inner), more=inner),
        st.builds(KeyError, inner, inner),
    ),
    max_leaves=12,
)


@given(values)
@settings(max_examples=200, deadline=None)
def test_every_stated_type_round_trips_with_type_and_value_however_nested_12_1(value: Any) -> None:
    same(value)


any_dtype = st.one_of(hnp.scalar_dtypes(), hnp.array_dtypes(allow_subarrays=True)).filter(
    lambda dtype: dtype.itemsize > 0
)


@given(hnp.arrays(any_dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)))
@settings(max_examples=80, deadline=None)
def test_numpy_arrays_and_their_scalars_round_trip_12_1(array: Any) -> None:
    found = same({"a": (np.asarray(array),)})["a"][0]
    assert found.flags.writeable
    assert found.flags.writeable
    if array.size:
        scalar = np.asarray(array).reshape(-1)[0]
        same([scalar])


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, Fraction(1, 3), 1 - 0j, range(0, 9, 2), PurePosixPath("//a")])
def test_types_beyond_those_of_msgpack_round_trip_12_1(value: Any) -> None:
    same({"k": [value], value: 1})


@pytest.mark.parametrize("key", [1, -1, 2**80, None, True, 1.5, b"k", (1, (2,)), frozenset({1}), Level.LOW, dt.UTC])
def test_a_dict_with_keys_of_any_stated_type_round_trips_12_1(key: Any) -> None:
    same({key: {key: key}})


def test_an_enum_inside_a_class_comes_back_as_its_member_12_1() -> None:
    found = same(Team(colour=Team.Colour.BLUE))
    assert found.colour is Team.Colour.BLUE


def test_the_order_of_a_dict_is_kept_12_1() -> None:
    assert list(same({"b": 1, "a": 2, 3: 3, (0,): 4})) == ["b", "a", 3, (0,)]


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800", "\udfff\ud800", "\U0010ffff"])
def test_nul_and_lone_surrogates_survive_as_values_and_keys_12_1(text: str) -> None:
    same({text: [text, (text,)]})


def test_a_bytearray_stays_one_wherever_it_lies_12_1() -> None:
    same(
        [
            bytearray(b"a"),
            {"b": [bytearray()]},
            (bytearray(b"c"), [{"d": bytearray(b"\xff")}]),
            Note([bytearray(b"e")]),
            b"f",
        ]
    )


def test_what_was_decoded_shares_nothing_with_what_was_encoded_12_1() -> None:
    value = {"list": [1], "note": Note([2])}
    data = SERDE.encode(value)
    value["list"].append(3)  # type: ignore[attr-defined]
    value["note"].text.append(4)  # type: ignore[attr-defined]
    assert SERDE.decode(data) == {"list": [1], "note": Note([2])}


def test_a_value_of_several_megabytes_round_trips_12_1() -> None:
    same({"bytes": bytes(3 << 20), "array": np.zeros(1 << 17), "text": "x" * (1 << 20)})


# --- what is refused --------------------------------------------------------------------------------------------------


class MyStr(str):
    __slots__ = ()


class MyFloat64(np.float64):
    pass


@pytest.mark.parametrize(
    "value",
    [
        MyStr("a"),
        OrderedDict(a=1),
        defaultdict(list),
        type("MyInt", (int,), {})(1),
        type("MyList", (list,), {})(),
        type("MyTuple", (tuple,), {})(),
        type("MyTime", (dt.datetime,), {})(2020, 1, 1),
        type("MyError", (ValueError,), {})("x"),
        MyFloat64(1.0),
        np.ma.masked_array([1], [True]),
        np.zeros(1, "i4,i4").view(np.recarray),
        np.array([None]),
        memoryview(b"abc"),
        msgpack.ExtType(1, b""),
        msgpack.ExtType(0, b"test:money"),
        msgpack.Timestamp(1, 2),
        object(),
        lambda: 1,
        int,
        iter([]),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"k": (1, [v])}, lambda v: Note(v)])
def test_a_type_that_is_not_stored_is_refused_and_never_becomes_a_near_one_12_2(
    value: Any, wrap: Callable[[Any], Any]
) -> None:
    with pytest.raises(SerializationError):
        SERDE.encode(wrap(value))


@pytest.mark.parametrize(
    "key", [memoryview(b"abc"), msgpack.ExtType(1, b""), msgpack.Timestamp(1, 2), MyStr("k"), object()]
)
def test_a_key_that_is_not_stored_is_refused_12_2(key: Any) -> None:
    with pytest.raises(SerializationError) as caught:
        SERDE.encode({"a": {1: 1, key: 2}})
    assert caught.value.path == "['a'].keys()[1]"


@pytest.mark.parametrize(
    ("value", "kind"),
    [(Note(1), "Note"), (Pair(1, 2), "Pair"), (Level.LOW, "Level"), (Team(), "Team"), (Rejected(1, "r"), "Rejected")],
)
def test_a_class_that_nobody_allowed_is_refused_with_what_to_do_12_2(value: Any, kind: str) -> None:
    with pytest.raises(SerializationError) as caught:
        Serializer().encode({"a": [value]})
    assert caught.value.path == "['a'][0]"
    assert f"annotate {kind} in the state schema or call register_type({kind})" in str(caught.value)


def test_an_encode_that_fails_is_named_with_its_reason_12_2() -> None:
    class Broken:
        pass

    def fail(_: Broken) -> object:
        raise LookupError("no such thing")

    register_type(Broken, encode=fail, decode=lambda _: Broken())
    with pytest.raises(SerializationError, match=r"LookupError: no such thing") as caught:
        SERDE.encode({"a": [Broken()]})
    assert caught.value.path == "['a'][0]"
    assert isinstance(caught.value.__cause__, LookupError)
    assert SERDE.decode(SERDE.encode("the packer is whole")) == "the packer is whole"


@pytest.mark.parametrize("depth", [600, *range(1020, 1026)])
@pytest.mark.parametrize("around", [lambda v: [v], lambda v: (v,), lambda v: {"k": v}])
def test_a_value_too_deep_to_be_read_is_refused_when_it_is_written_12_2(
    depth: int, around: Callable[[Any], Any]
) -> None:
    value: Any = 1
    for _ in range(depth):
        value = around(value)
    try:
        data = SERDE.encode(value)
    except SerializationError as error:
        data, reason = b"", str(error)
    assert SERDE.decode(data) if data else "nested too deeply" in reason


def test_the_packer_of_a_refused_value_leaves_nothing_behind_12_2() -> None:
    serde = Serializer()
    for _ in range(3):
        with pytest.raises(SerializationError):
            serde.encode(["x" * 100, {"k": (1, object())}])
        assert serde.decode(serde.encode({"x": 1})) == {"x": 1}


# --- the allow-list ---------------------------------------------------------------------------------------------------


def test_known_are_the_built_in_the_registered_and_the_graphs_own_types_12_3() -> None:
    serde = Serializer([Note, int, Money])
    assert all(serde.knows(cls) for cls in (int, dict, tuple, Decimal, ValueError, Money, Note, np.ndarray, np.int8))
    assert not any(serde.knows(cls) for cls in (Point, object, memoryview, MyStr, OrderedDict, MyFloat64, type))


def test_a_graph_does_not_know_the_types_of_another_12_3() -> None:
    data = Serializer([Note]).encode(Note(1))
    with pytest.raises(CorruptCheckpointError, match=r"Note' is not known here .*register_type\(Note\)"):
        Serializer([Point]).decode(data)


def test_schema_types_that_cannot_be_stored_without_help_are_passed_over_12_2() -> None:
    class Connection:
        pass

    serde = Serializer([Connection, MyStr, object, memoryview])
    with pytest.raises(SerializationError, match="Connection"):
        serde.encode(Connection())


def test_register_type_is_a_decorator_and_registering_again_is_fine_12_3() -> None:
    @register_type
    @dataclasses.dataclass
    class Here:
        x: int

    assert register_type(Here) is Here
    assert Serializer().decode(Serializer().encode(Here(1))) == Here(1)


def test_a_class_reads_under_every_name_it_was_registered_under_12_3() -> None:
    class Moved(Enum):
        A = 1

    register_type(Moved, name="test:old place")
    old = SERDE.encode(Moved.A)
    register_type(Moved, name="test:new place")
    assert b"new place" in SERDE.encode(Moved.A)
    assert SERDE.decode(old) is Moved.A


def test_two_classes_under_one_name_are_refused_12_3() -> None:
    def make() -> type:
        return dataclasses.make_dataclass("Twin", ["x"], namespace={"__module__": "test"})

    first, second, third = make(), make(), make()
    with pytest.raises(SerializationError, match="two classes have the name 'test:Twin'"):
        Serializer([first, second])
    serde = Serializer([first])
    register_type(second)
    with pytest.raises(SerializationError, match="two classes"):
        register_type(third)
    with pytest.raises(SerializationError, match="two classes"):
        Serializer([third])
    # Registered after the serializer was made: its own class keeps the name, the other is refused.
    assert type(serde.decode(serde.encode(first(1)))) is first
    assert not serde.knows(second)
    with pytest.raises(SerializationError, match="another class has its name"):
        serde.encode(second(1))


@pytest.mark.parametrize(
    ("cls", "hooks", "reason"),
    [
        (int, {}, "cannot be registered"),
        (tuple, {}, "cannot be registered"),
        (ValueError, {}, "cannot be registered"),
        (msgpack.ExtType, {"encode": list, "decode": list}, "cannot be registered"),
        (Note(1), {}, "cannot be registered"),
        (OrderedDict, {}, "is no dataclass"),
        (type("Plain", (), {}), {}, "is no dataclass"),
        (type("Plain", (), {}), {"encode": list}, "needs both encode and decode"),
        (dataclasses.make_dataclass("Sub", ["x"], bases=(dict,)), {}, "is no dataclass"),
    ],
)
def test_a_class_without_a_stored_form_is_refused_at_registration_12_3(cls: Any, hooks: Any, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        register_type(cls, **hooks)


def test_a_subclass_of_a_builtin_is_stored_with_encode_and_decode_12_1() -> None:
    class Counts(dict[str, int]):
        pass

    register_type(Counts, encode=dict, decode=Counts)
    found = SERDE.decode(SERDE.encode([Counts(a=1)]))
    assert type(found[0]) is Counts
    assert found == [{"a": 1}]


def test_a_decode_that_makes_another_type_is_refused_12_2() -> None:
    class Odd:
        pass

    register_type(Odd, encode=lambda _: None, decode=lambda _: {})  # type: ignore[arg-type, return-value]
    with pytest.raises(CorruptCheckpointError, match="decode made a dict"):
        SERDE.decode(SERDE.encode(Odd()))


def test_an_encode_may_call_the_serializer_itself_12_1() -> None:
    class Sealed:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

    register_type(Sealed, encode=lambda v: SERDE.encode(v.inner), decode=lambda data: Sealed(SERDE.decode(data)))
    found = SERDE.decode(SERDE.encode([1, Sealed((Sealed([2]), 3)), 4]))
    assert found[1].inner[0].inner == [2]
    assert (found[0], found[1].inner[1], found[2]) == (1, 3, 4)


def test_one_serializer_serves_many_threads_12_1() -> None:
    start = Barrier(8)

    def work(seed: int) -> bool:
        start.wait()
        mine = {
            "n": [seed] * 50,
            "t": (seed, {seed}),
            "s": str(seed) * 50,
            "b": bytearray(seed),
            "p": [Point(seed)] * 20,
        }
        return all(SERDE.decode(SERDE.encode(mine)) == mine for _ in range(60))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


# --- damage and forgery -----------------------------------------------------------------------------------------------

BLOBS = [
    SERDE.encode(value)
    for value in (
        None,
        {"x": 1},
        [1.5, "text", b"bytes", 2**70, {"k": (1, {2})}],
        {"now": dt.datetime(2024, 5, 1, 12, tzinfo=ZoneInfo("Europe/Paris")), "id": UUID(int=5), "d": Decimal("1.50")},
        [Team(colour=Team.Colour.BLUE, counts={1: 1}), Point(1), Pair(1, 2), Access.BOTH, Note([None]), Money(5)],
        [np.arange(4), np.float64(1), np.array([(1, 2.0)], dtype="i4,f8"), Fraction(1, 2), 1j, range(3), Path("a")],
        [
            ValueError("x"),
            FileNotFoundError(2, "no", "file"),
            Rejected(1, "r"),
            bytearray(b"x"),
            dt.timezone(dt.timedelta(1) / 2),
        ],
    )
]


def forge(body: bytes) -> bytes:
    """Put a right checksum before any body, as who writes to the database on purpose would."""
    return struct.pack("<BI", 1, zlib.crc32(body)) + body


@pytest.mark.parametrize("data", BLOBS)
def test_every_single_flipped_bit_is_noticed_12_3(data: bytes) -> None:
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptCheckpointError):
            SERDE.decode(bytes(damaged))


@pytest.mark.parametrize("data", BLOBS)
def test_every_truncation_and_any_trailing_garbage_is_noticed_12_3(data: bytes) -> None:
    damaged = [data[:cut] for cut in range(len(data))] + [data + b"\0", data + data, b"\0" + data]
    forged = [forge(data[5:cut]) for cut in range(5, len(data))] + [forge(data[5:] + b"\xc0")]
    for each in damaged + forged:
        with pytest.raises(CorruptCheckpointError):
            SERDE.decode(each)


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_no_value_12_3(data: bytes) -> None:
    with pytest.raises(CorruptCheckpointError):
        SERDE.decode(data)


def test_changed_bytes_under_a_right_checksum_give_a_value_or_corrupt_checkpoint_error_12_3() -> None:
    """No other exception, and never a value with a mark or a time of msgpack's own inside."""
    chance = random.Random(12)
    read = 0
    for _ in range(6_000):
        body = bytearray(chance.choice(BLOBS)[5:])
        for _ in range(chance.randint(1, 3)):
            body[chance.randrange(len(body))] = chance.choice(
                [0xC7, 0xD6, 0xD7, 0xFF, 0x91, 0x81, 0xDD, chance.randrange(256)]
            )
        try:
            value = SERDE.decode(forge(bytes(body)))
        except CorruptCheckpointError:
            continue
        read += 1
        assert "Codec(" not in repr(value)
        assert "Timestamp(" not in repr(value)
    assert read > 50


def mark(code: int, name: bytes = b"") -> msgpack.ExtType:
    return msgpack.ExtType(code, name)


TUPLE, NAMED = 1, 0

FORGERIES = {
    "a mark alone": mark(TUPLE),
    "a mark as a value": {"k": mark(TUPLE)},
    "a mark as a key": {mark(TUPLE): 1},
    "a mark that is not first": [1, mark(TUPLE)],
    "a mark inside a tuple": [mark(TUPLE), 1, mark(TUPLE)],
    "a mark inside a field": [mark(NAMED, b"test:money"), {"cents": mark(TUPLE)}],
    "an unknown mark": [mark(99)],
    "a mark with a name where none belongs": [mark(TUPLE, b"x")],
    "a name nobody registered": [mark(NAMED, b"os:system"), "true"],
    "a builtin that is no exception": [mark(NAMED, b"builtins:eval"), "1"],
    "a name that is no text": [mark(NAMED, b"\xff\xfe"), 1],
    "a timestamp": [1, {"k": msgpack.Timestamp(1, 2)}],
    "a timestamp of 4 bytes": mark(-1 & 0x7F) and msgpack.Timestamp(1, 0),
    "a timestamp of 12 bytes": [mark(TUPLE), msgpack.Timestamp(-1, 2)],
    "too few items": [mark(9), 1],
    "too many items": [mark(9), 1, 2, 3],
    "items of another type": [mark(9), "1e999999999", 1],
    "an allocation": [mark(4), 2**40],
    "an integer for a big integer": [mark(5), 2**40],
    "an element twice": [mark(2), 1, 1],
    "an element that cannot be hashed": [mark(2), {}],
    "no decimal": [mark(8), "elephant"],
    "a file for a time zone": [mark(15), "../../etc/passwd"],
    "a time zone that a package would be imported for": [mark(15), "Nowhere/Nothing"],
    "a fraction of zero": [mark(9), 1, 0],
    "a month that is none": [mark(11), 2020, 13, 1],
    "an array larger than its bytes": [mark(21), "<f8", [2**40], b""],
    "an array of negative size": [mark(21), "<f8", [-1], b""],
    "an array of nothing": [mark(21), "|V0", [2**60], b""],
    "an array of objects": [mark(21), "|O", [1], b"12345678"],
    "an array of a dtype by name": [mark(21), "float64", [1], b"12345678"],
    "an array of a nested dtype of objects": [mark(21), {"names": ["a"], "formats": ["|O"]}, [1], b"12345678"],
    "a scalar with a shape": [mark(22), "<f8", [1], b"12345678"],
    "no member of the enum": [mark(NAMED, f"{__name__}:Level".encode()), "__class__"],
    "an attribute for a member": [mark(NAMED, f"{__name__}:Level".encode()), "_member_map_"],
    "no bits of the flag": [mark(NAMED, f"{__name__}:Access".encode()), [], 64],
    "an exception of another type": [mark(NAMED, b"builtins:OSError"), {"args": [mark(TUPLE), 2, "x"]}, {}],
    "an exception without arguments": [mark(NAMED, b"builtins:ValueError"), {}, {}],
    "a number for arguments": [mark(NAMED, b"builtins:ValueError"), {"args": 10**6}, {}],
    "a missing field": [mark(NAMED, f"{__name__}:Point".encode()), {"x": 1}],
    "a field too many": [mark(NAMED, f"{__name__}:Point".encode()), {"x": 1, "y": 2, "__class__": 3}],
    "attributes of a class with slots": [mark(NAMED, f"{__name__}:Point".encode()), {"x": 1, "y": 2}, {"z": 3}],
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_mark_is_refused_12_3(forgery: Any) -> None:
    body = msgpack.packb(forgery)
    with pytest.raises(CorruptCheckpointError):
        SERDE.decode(forge(body))
    with pytest.raises(CorruptCheckpointError):
        SERDE.decode(forge(msgpack.packb(["\xff\xff\xff", -1, b"\xd6\xff", forgery, {"more": -1}])))


@pytest.mark.parametrize(
    "body",
    [
        b"\x91" * 5_000,
        b"\x91" * 1_000_000 + b"\xc0",
        b"\x92\xc7\x00\x01" * 20_000 + b"\xc0",
        b"\x81\x01" * 20_000 + b"\xc0",
        b"\xdd\xff\xff\xff\xff" * 100,
        b"\xdf\x7f\xff\xff\xff",
        b"\xdd\x00\x0f\xff\xff" + b"\xc0" * 100,
        b"\xc9\xff\xff\xff\xff\x01",
        b"\xc1",
        b"",
        b"\x81\x90\xc0",  # a list as a key
        b"\xa1\xff",  # a text that is no utf-8
    ],
)
def test_hostile_nesting_and_sizes_are_refused_12_3(body: bytes) -> None:
    with pytest.raises(CorruptCheckpointError):
        SERDE.decode(forge(body))


def test_a_blob_of_another_format_says_so_12_3() -> None:
    with pytest.raises(CorruptCheckpointError, match="format 7"):
        SERDE.decode(b"\x07" + BLOBS[0][1:])


@pytest.mark.parametrize("data", [None, 5, "text"])
def test_what_is_no_bytes_is_refused_like_damage_12_3(data: Any) -> None:
    with pytest.raises(CorruptCheckpointError):
        SERDE.decode(data)


class Gadget:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('executed')",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_bytes_are_never_executed_12_3(protocol: int) -> None:
    payload = pickle.dumps(Gadget(), protocol)
    for data in (payload, forge(payload), forge(msgpack.packb([mark(5, payload), payload]))):
        with pytest.raises(CorruptCheckpointError):
            SERDE.decode(data)


AUDITED = """
import json, sys
from pregel.checkpoint.serde import Serializer
from pregel.checkpoint.errors import CorruptCheckpointError
good, bad = {good!r}, {bad!r}
serde, refused, events = Serializer(), 0, []
sys.addaudithook(lambda event, args: events.append((event, repr(args))))
serde.decode(good)
for data in bad:
    try:
        serde.decode(data)
    except CorruptCheckpointError:
        refused += 1
print(json.dumps([list(events), refused]))
"""


def test_decoding_imports_and_executes_nothing_12_3() -> None:
    now = dt.datetime.now(ZoneInfo("Asia/Tokyo"))
    good = Serializer().encode([{"a": (1, {2})}, 2**70, Decimal(1), now, KeyError("k"), Path("a"), 1j])
    names = (b"os:system", b"antigravity:geohash", b"builtins:exec", b"subprocess:Popen", b"builtins:__import__")
    bad = [forge(msgpack.packb([mark(code, name), "true"])) for name in names for code in (NAMED, 5, 99)]
    bad += [forge(msgpack.packb([mark(15), key])) for key in ("Evil/Zone", "os", "antigravity", "../x")]
    bad += [forge(pickle.dumps(Gadget())), *BLOBS[4:6]]  # numpy is not loaded there, so its values are refused
    code = AUDITED.format(good=good, bad=bad)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    events, refused = json.loads(done.stdout)
    assert refused == len(bad)
    assert [event for event, args in events if not (event == "open" and "Asia/Tokyo" in args)] == []


# --- exceptions -------------------------------------------------------------------------------------------------------


def with_notes(error: E, *notes: str) -> E:
    for note in notes:
        error.add_note(note)
    return error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x", 2**70),
        with_notes(KeyError("k"), "at node a", "in step 3"),
        FileNotFoundError(2, "gone", "file.txt"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        ExceptionGroup("several", [ValueError(1), with_notes(TypeError(2), "n")]),
        KeyboardInterrupt(),
        ModuleNotFoundError("no", name="n", path="p"),
        Rejected(5, "because"),
        ConcurrentRunError("lost", thread_id="t", hint="again"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_keeps_type_arguments_attributes_and_notes_12_1(error: BaseException) -> None:
    for found in (SERDE.decode(SERDE.encode(error)), SERDE.decode_error(SERDE.encode_error(error))):
        assert type(found) is type(error)
        assert repr(found) == repr(error)
        assert str(found) == str(error)
        assert {k: repr(v) for k, v in vars(found).items()} == {k: repr(v) for k, v in vars(error).items()}
        for name in ("filename", "errno", "start", "name", "path", "code"):
            assert getattr(found, name, None) == getattr(error, name, None)


def test_an_error_that_carries_a_future_keeps_its_type_and_text_12_1() -> None:
    error = with_notes(Rejected(7, "the cause"), "a note")
    error.future = Future()  # type: ignore[attr-defined]
    found = SERDE.decode_error(SERDE.encode_error(error))
    assert type(found) is Rejected
    assert (str(found), found.code, found.__notes__) == ("the cause", 7, ["a note"])
    assert not hasattr(found, "future")
    with pytest.raises(SerializationError) as caught:  # as a value in the state it is refused like any other
        SERDE.encode({"error": error})
    assert caught.value.path == "['error'].future"


def test_an_error_with_a_future_among_its_arguments_is_told_of_12_1() -> None:
    found = SERDE.decode_error(SERDE.encode_error(with_notes(ValueError("the cause", Future()), "a note")))
    assert isinstance(found, StoredError)
    assert isinstance(found, PregelError)
    assert found.type_name == "ValueError"
    assert "the cause" in found.message
    assert "the cause" in str(found)
    assert found.__notes__ == ["a note"]


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")

    @property
    def args(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no arguments")


def test_storing_an_error_never_fails_12_1() -> None:
    class Strange(Exception):
        def __str__(self) -> str:
            return MyStr("strange")

    recursive = ValueError()
    recursive.args = (recursive,)
    for error in (Hostile(), Strange(), recursive, with_notes(Rejected(1, "\ud800\0"), "\udfff")):
        for serde in (SERDE, Serializer([Hostile, Strange])):
            found = serde.decode_error(serde.encode_error(error))
            assert isinstance(found, StoredError | Rejected | Strange)


def test_an_error_is_told_of_where_its_class_is_unknown_12_1() -> None:
    data = Serializer([Rejected]).encode_error(with_notes(Rejected(1, "because"), "a note"))
    found = Serializer().decode_error(data)
    assert isinstance(found, StoredError)
    assert found.type_name.endswith(".Rejected")
    assert (found.message, found.__notes__) == ("because", ["a note"])
    again = SERDE.decode_error(SERDE.encode_error(found))  # stored a second time it is the same
    assert (type(again), vars(again), str(again)) == (StoredError, vars(found), str(found))


@pytest.mark.parametrize(
    "value", [None, 5, [1, 2, 3, 4], ["n", "m", [1], None], ["n", "m", [], 5], {1: 1, 2: 2, 3: 3, 4: 4}]
)
def test_a_value_that_is_no_stored_error_is_refused_12_3(value: Any) -> None:
    with pytest.raises(CorruptCheckpointError, match="no exception"):
        SERDE.decode_error(SERDE.encode(value))


def test_an_error_whose_stored_object_is_no_exception_is_told_of_12_3() -> None:
    found = SERDE.decode_error(SERDE.encode(["ValueError", "x", [], SERDE.encode(5)]))
    assert isinstance(found, StoredError)
    assert str(found) == "ValueError: x"


def test_every_flipped_bit_of_a_stored_error_is_noticed_12_3() -> None:
    data = SERDE.encode_error(ValueError("x"))
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptCheckpointError):
            SERDE.decode_error(bytes(damaged))


def test_a_class_of_the_old_process_is_an_error_and_never_a_map_12_2() -> None:
    """What another process wrote with a class that is not known here."""
    for value in (Note("x"), Pair(1, 2), Team(), Level.LOW, Rejected(1, "r")):
        with pytest.raises(CorruptCheckpointError, match=f"{type(value).__name__}' is not known here"):
            Serializer().decode(SERDE.encode({"messages": [value]}))
