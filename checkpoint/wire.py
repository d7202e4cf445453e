"""What msgpack would get wrong: types it takes for others when writing, times it makes by itself when reading, damage.

Stored bytes are a format number, a checksum and one msgpack object. A value that msgpack has no type for is a list
whose first item is its codec's mark, an extension type that plain data cannot contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from struct import Struct
from typing import Any, Final
from zlib import crc32

import msgpack

from .builtin_types import BY_TYPE, Items, Refused
from .errors import CorruptCheckpointError

_FORMAT: Final = 1
_HEADER: Final = Struct("<BI")

_BYTEARRAY = BY_TYPE[bytearray]

# Stored natively, but as if they were another type: bytearrays and views as bytes, msgpack's own types as marks.
_FOREIGN = frozenset({memoryview, msgpack.ExtType, msgpack.Timestamp})
LOOKALIKES: Final = _FOREIGN | {bytearray}
_CLOSER_LOOK = LOOKALIKES | {list, dict}


def seal(body: bytes) -> bytes:
    """Put the format number and the checksum before the packed bytes."""
    return _HEADER.pack(_FORMAT, crc32(body)) + body


def unseal(data: bytes) -> bytes:
    """Return the packed bytes if nothing has touched them."""
    if len(data) <= _HEADER.size:
        raise CorruptCheckpointError(f"{len(data)} bytes are too few to be a stored value")
    number, checksum = _HEADER.unpack_from(data)
    if number != _FORMAT:
        raise CorruptCheckpointError(f"the value has format {number}, this release reads {_FORMAT}")
    body = data[_HEADER.size :]
    if crc32(body) != checksum:
        raise CorruptCheckpointError("the checksum does not fit: the bytes were damaged or cut")
    return body


def may_hold_lookalikes(body: bytes) -> bool:
    """Say whether packed bytes have a byte with which msgpack begins binary data or an extension.

    Looking for them is far cheaper than looking at each value. They may as well be part of a text or a number: then
    the values are looked at for nothing.
    """
    return (
        0xC4 in body
        or 0xC5 in body
        or 0xC6 in body
        or 0xC7 in body
        or 0xC8 in body
        or 0xC9 in body
        or 0xD4 in body
        or 0xD5 in body
        or 0xD6 in body
        or 0xD7 in body
        or 0xD8 in body
    )


def marked(items: Items) -> Items:
    """Return the items with each bytearray in plain lists and dicts marked as one, themselves if there is none."""
    if _CLOSER_LOOK.isdisjoint(map(type, items)) or not _has_lookalikes(items):
        return items
    return [_mark(item) for item in items]


def _has_lookalikes(items: Items) -> bool:
    """Look through plain lists and dicts level by level, so that the loops over the values run in C."""
    lists: list[list[Any]] = [items]
    dicts: list[dict[Any, Any]] = []
    while lists or dicts:
        level = [*chain.from_iterable(lists), *chain.from_iterable(map(dict.values, dicts))]
        kinds = {*map(type, level), *_kinds_of_keys(dicts)}
        if not kinds.isdisjoint(LOOKALIKES):
            return True
        lists = [x for x in level if type(x) is list] if list in kinds else []
        dicts = [x for x in level if type(x) is dict] if dict in kinds else []
    return False


def _kinds_of_keys(dicts: list[dict[Any, Any]]) -> Iterable[type]:
    try:
        "".join(chain.from_iterable(dicts))  # takes texts only, and is ten times as fast as asking each for its type
    except TypeError:
        return map(type, chain.from_iterable(dicts))
    return ()


def refuse_foreign(value: object) -> None:
    """Refuse a value that the packer would take, and that would come back as something else."""
    if type(value) in _FOREIGN:
        raise Refused("its type is not stored", "store bytes(value) instead")


def _mark(value: Any) -> Any:
    refuse_foreign(value)
    kind = type(value)
    if kind is bytearray:
        return [_BYTEARRAY.mark, *_BYTEARRAY.pack(value)]
    if kind is list:
        return [_mark(item) for item in value]
    if kind is dict:
        return {_mark(key): _mark(item) for key, item in value.items()}
    return value


# How an extension begins that can be a time: one of 4, 8 or 12 bytes, then the code, which is -1. The code is written
# first, so that the search goes from one 0xff to the next.
_MAY_BE_TIME: Final = re.compile(rb"\xff(?<=[\xd6\xd7\x04\x08\x0c]\xff)")


def refuse_timestamps(body: bytes) -> None:
    """Refuse an extension that the unpacker turns into a time by itself: no hook sees it, and we never write one.

    Nearly all bytes have none of the pairs with which one can begin. Those that do are read header by header.
    """
    if _MAY_BE_TIME.search(body) and 0xFF in _extension_codes(body):
        raise CorruptCheckpointError("the bytes contain a mark that this package never writes")


def _extension_codes(body: bytes) -> set[int]:
    """Collect the codes of all extensions. Containers need no stack: their items simply follow."""
    codes: set[int] = set()
    at, end = 0, len(body)
    while at < end:
        first = body[at]
        at += 1
        if 0xA0 <= first <= 0xBF:
            at += first & 0x1F
        elif 0xC0 <= first <= 0xDF:
            width, fixed, extension = _HEADS[first - 0xC0]
            at += width
            length = int.from_bytes(body[at - width : at], "big") + fixed
            if first in _ARRAYS_AND_MAPS:
                continue
            if extension:
                codes.update(body[at : at + 1])
                at += 1
            at += length
    return codes


# For the first bytes 0xc0 to 0xdf: how many bytes give a length, how many follow anyway, whether it is an extension.
_HEADS: Final[tuple[tuple[int, int, bool], ...]] = (
    *((0, 0, False) for _ in range(4)),  # nil, one that is not used, false, true
    *((width, 0, False) for width in (1, 2, 4)),  # binary
    *((width, 0, True) for width in (1, 2, 4)),  # extension
    *((0, size, False) for size in (4, 8, 1, 2, 4, 8, 1, 2, 4, 8)),  # float, unsigned, signed
    *((0, size, True) for size in (1, 2, 4, 8, 16)),  # extension of a fixed size
    *((width, 0, False) for width in (1, 2, 4)),  # text
    *((width, 0, False) for width in (2, 4, 2, 4)),  # array, map
)
_ARRAYS_AND_MAPS: Final = range(0xDC, 0xE0)
