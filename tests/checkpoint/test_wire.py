"""The packed bytes: header, checksum, and what msgpack alone would take for something else."""

import random
from typing import Any

import msgpack
import pytest

from pregel.checkpoint.errors import CorruptCheckpointError
from pregel.checkpoint.wire import marked, may_hold_lookalikes, refuse_timestamps, seal, unseal


def test_what_was_sealed_is_unsealed_12_3() -> None:
    for body in (b"\xc0", b"\x91\x01", bytes(range(256))):
        assert unseal(seal(body)) == body
        assert len(seal(body)) == len(body) + 5


def test_a_sealed_value_that_changed_is_refused_with_the_reason_12_3() -> None:
    data = seal(b"\x91\x01")
    for changed, reason in [
        (data[:-1], "checksum"),
        (data[:5], "too few"),
        (b"", "too few"),
        (b"\x02" + data[1:], "format 2"),
    ]:
        with pytest.raises(CorruptCheckpointError, match=reason):
            unseal(changed)


@pytest.mark.parametrize("size", [0, 1, 300, 70_000])
@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_packed_bytes_show_that_they_may_hold_a_lookalike_12_2(kind: Any, size: int) -> None:
    assert may_hold_lookalikes(msgpack.packb(["a", kind(bytes(size))]))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 8, 16, 17, 300, 70_000])
def test_packed_bytes_show_every_extension_12_2(size: int) -> None:
    assert may_hold_lookalikes(msgpack.packb({"k": msgpack.ExtType(1, bytes(size))}))


def test_ordinary_bytes_need_no_closer_look_12_2() -> None:
    assert not may_hold_lookalikes(msgpack.packb({"name": "x" * 100, "n": 100, "list": [None, True, -1, 0.0]}))


def test_items_without_lookalikes_are_handed_on_as_they_are_12_2() -> None:
    for items in ([], [1, "a"], [[1], {"a": {1: [2]}}], [(bytearray(),)]):
        assert marked(items) is items


@pytest.mark.parametrize("value", [bytearray(b"a"), [bytearray()], {"k": bytearray()}, {1: [{"x": [bytearray()]}]}])
def test_a_bytearray_is_marked_at_any_depth_and_the_value_left_alone_12_1(value: Any) -> None:
    before = repr(value)
    found = marked([value])
    assert "bytearray" not in repr(found)
    assert repr(value) == before


TIMES = [msgpack.Timestamp(1, 0), msgpack.Timestamp(1, 5), msgpack.Timestamp(2**34, 5), msgpack.Timestamp(-1, 0)]


@pytest.mark.parametrize("time", TIMES)
def test_a_time_of_msgpack_is_found_wherever_it_lies_12_3(time: Any) -> None:
    for value in (time, [1, time], {"k": [b"\xc7" * 40, time]}, {"\xff" * 40: 1.5, 70_000: {2**40: time}}):
        with pytest.raises(CorruptCheckpointError):
            refuse_timestamps(msgpack.packb(value))


@pytest.mark.parametrize("head", [b"\xc7\x04", b"\xc8\x00\x08", b"\xc9\x00\x00\x00\x0c", b"\xd6", b"\xd7"])
def test_a_time_is_found_however_its_length_is_written_12_3(head: bytes) -> None:
    body = b"\x92\x01" + head + b"\xff" + bytes(12)
    with pytest.raises(CorruptCheckpointError):
        refuse_timestamps(body)


def test_bytes_that_only_look_like_a_time_are_let_through_12_1() -> None:
    chance = random.Random(3)
    for _ in range(300):
        noise = b"\xd6\xff\xd7\xff\x0c\xff" + chance.randbytes(
            chance.choice([3, 200, 300, 70_000]) if _ % 50 == 0 else 20
        )
        value = [noise, {"\x0c": -1, 4: -1, "\xff" * 33: chance.random()}, msgpack.ExtType(1, noise), [8, -1] * 20]
        refuse_timestamps(msgpack.packb(value))
        refuse_timestamps(msgpack.packb([value] * 20))
