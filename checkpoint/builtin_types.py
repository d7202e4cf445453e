"""How each built-in, standard library and numpy value is stored: as a list that begins with its codec's mark.

Law: a codec gives back exactly the type and value it was given, or refuses when writing. When reading it checks what
it is handed, since the bytes may be forged: it may raise anything, and the reader turns that into one error.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import re
import sys
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from types import NoneType
from typing import Any, Final
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo

import msgpack

# What msgpack stores itself, at C speed. Lists and dicts are walked by it as well.
ATOMS: Final[frozenset[type]] = frozenset({NoneType, bool, int, float, str, bytes})
PLAIN: Final[frozenset[type]] = ATOMS | {list, dict}

# The mark of a registered class carries the name it was registered under; all other marks are a number alone.
NAMED: Final = 0

Items = list[Any]


class Refused(Exception):
    """A value cannot be stored, and why; the serializer adds where it lies."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


@dataclass(eq=False, slots=True)
class Codec:
    """How values of one exact type become items that can be stored, and back. `mark` goes before the items."""

    cls: type
    mark: Any
    pack: Callable[[Any], Items]
    unpack: Callable[[Items], Any]


def type_name(cls: type) -> str:
    """Name a type as a reader knows it."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def require(value: Any, kind: type) -> Any:
    """Return the value if it is exactly of this type. Constructors are lenient, stored bytes must not use that."""
    if type(value) is not kind:
        raise TypeError(f"{kind.__name__} expected, not {type(value).__name__}")
    return value


def _pack_int(value: int) -> Items:
    return [value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)]  # only beyond 64 bits


def _unpack_int(items: Items) -> int:
    (data,) = items
    return int.from_bytes(require(data, bytes), "little", signed=True)


def _unpack_bytearray(items: Items) -> bytearray:
    (data,) = items
    return bytearray(require(data, bytes))  # bytearray(10**12) would fill the memory


def _unpack_set(kind: type[set[Any]] | type[frozenset[Any]]) -> Callable[[Items], Any]:
    def unpack(items: Items) -> Any:
        found = kind(items)
        if len(found) != len(items):
            raise ValueError("an element is there twice")
        return found

    return unpack


def _unpack_complex(items: Items) -> complex:
    real, imaginary = items
    return complex(require(real, float), require(imaginary, float))


def _unpack_decimal(items: Items) -> Decimal:
    (text,) = items
    value = Decimal(require(text, str))
    if str(value) != text:  # where the caller's context traps nothing, any text would be a NaN
        raise ValueError("not a decimal")
    return value


def _unpack_fraction(items: Items) -> Fraction:
    numerator, denominator = items
    return Fraction(require(numerator, int), require(denominator, int))  # text like "1e999999999" would compute


def _pack_datetime(v: dt.datetime) -> Items:
    return [v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.fold, _storable_zone(v.tzinfo)]


def _unpack_datetime(items: Items) -> dt.datetime:
    year, month, day, hour, minute, second, microsecond, fold, zone = items
    return dt.datetime(year, month, day, hour, minute, second, microsecond, zone, fold=fold)


def _pack_time(v: dt.time) -> Items:
    return [v.hour, v.minute, v.second, v.microsecond, v.fold, _storable_zone(v.tzinfo)]


def _unpack_time(items: Items) -> dt.time:
    hour, minute, second, microsecond, fold, zone = items
    return dt.time(hour, minute, second, microsecond, zone, fold=fold)


def _storable_zone(zone: dt.tzinfo | None) -> dt.tzinfo | None:
    if zone is None or type(zone) is dt.timezone or type(zone) is ZoneInfo:
        return zone
    raise Refused(f"its tzinfo is a {type_name(type(zone))}", "use datetime.timezone or zoneinfo.ZoneInfo")


def _pack_timezone(value: dt.timezone) -> Items:
    return [*value.__getinitargs__()]  # type: ignore[attr-defined]  # pickle's own view: the offset, the name if given


def _unpack_timezone(items: Items) -> dt.timezone:
    offset, *name = items
    return dt.timezone(offset, *name)


_ZONE_KEY = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")


def _zone_exists(key: str) -> bool:
    """Say whether the key names a zone of the system or of the package tzdata, without importing anything.

    ZoneInfo itself would import a package that is named by the key, whether there is such a zone or not.
    """
    if not _ZONE_KEY.fullmatch(key):
        return False
    folders = chain(zoneinfo.TZPATH, (os.path.join(path, "tzdata", "zoneinfo") for path in sys.path))
    return any(os.path.isfile(os.path.join(folder, key)) for folder in folders)


def _pack_zone(value: ZoneInfo) -> Items:
    if value.key is None or not _zone_exists(value.key):
        raise Refused("this ZoneInfo has no key that leads back to it", "use ZoneInfo(key)")
    return [value.key]


def _unpack_zone(items: Items) -> ZoneInfo:
    (key,) = items
    if not _zone_exists(require(key, str)):
        raise ValueError(f"there is no time zone {key!r} here")
    return ZoneInfo(key)


def _unpack_uuid(items: Items) -> UUID:
    data, safe = items
    return UUID(bytes=require(data, bytes), is_safe=SafeUUID(safe))


def _pack_path(value: PurePath) -> Items:
    text = str(value)
    if type(value)(text) != value:  # r".\c:" reads as a drive on some versions of Python
        raise Refused("this path does not survive being written as text")
    return [text]


def _unpack_path(kind: type[PurePath]) -> Callable[[Items], PurePath]:
    def unpack(items: Items) -> PurePath:
        (text,) = items
        return kind(require(text, str))

    return unpack


# Scalars by kind and size, with the unit of dates: what may be handed to numpy.dtype(), which knows many more words.
_SCALAR_DTYPE = re.compile(r"[<>|=](?:[biufcSUVqQ]\d*|[mM]8(?:\[\d*[A-Za-z]+\])?)")


def _numpy() -> Any:
    """Return numpy if the application has imported it: neither writing nor reading does."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        raise ValueError("numpy is not imported here: import it before this value is read")
    return numpy


def _pack_dtype(dtype: Any) -> Any:
    """Describe a dtype: text for a scalar, a list for a subarray, a dict for a structure."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [_pack_dtype(base), *shape]
    if dtype.names is None:
        # `str` is the same for int64 and longlong where both have 64 bits, and they are two types.
        return dtype.str[0] + dtype.char if dtype.char in "qQ" else dtype.str
    fields = [dtype.fields[name] for name in dtype.names]
    return {
        "names": list(dtype.names),
        "formats": [_pack_dtype(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "titles": [field[2] if len(field) > 2 else None for field in fields],
        "itemsize": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
    }


def _unpack_dtype(stored: Any) -> Any:
    numpy = _numpy()
    if type(stored) is list:
        base, *shape = stored
        return numpy.dtype((_unpack_dtype(base), tuple(require(size, int) for size in shape)))
    if type(stored) is dict:
        formats = [_unpack_dtype(each) for each in stored["formats"]]
        return numpy.dtype({**stored, "formats": formats})
    if not _SCALAR_DTYPE.fullmatch(stored):
        raise ValueError(f"{stored!r} is not a dtype that is stored")
    return numpy.dtype(stored)


def _storable_dtype(dtype: Any) -> Any:
    if dtype.hasobject:
        raise Refused(f"its dtype {dtype} holds Python objects", "store a list instead")
    stored = _pack_dtype(dtype)
    try:
        found = _unpack_dtype(stored)
    except (ValueError, TypeError):
        found = None
    if found != dtype or found.type is not dtype.type or dtype.metadata or not dtype.itemsize:
        raise Refused(f"its dtype {dtype} does not survive being described", "convert it with astype()")
    return stored


def _pack_array(value: Any) -> Items:
    return [_storable_dtype(value.dtype), list(value.shape), value.tobytes()]


def _unpack_array(items: Items) -> Any:
    numpy = _numpy()
    stored, shape, data = items
    dtype = _unpack_dtype(stored)
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("not a shape")
    if dtype.hasobject or not dtype.itemsize or math.prod(shape) * dtype.itemsize != len(require(data, bytes)):
        raise ValueError("the bytes do not fill the shape")
    if not data:
        return numpy.zeros(tuple(shape), dtype)  # the other way wants a buffer of one byte at least
    # on a buffer of its own, so that it can be written to; a copy would fill the padding of a structure with anything
    return numpy.ndarray(tuple(shape), dtype, bytearray(data))


def _pack_scalar(value: Any) -> Items:
    if isinstance(value, str | bytes):  # an array would strip trailing NULs
        return ["text", value[:]]
    return _pack_array(value)


def _unpack_scalar(items: Items) -> Any:
    if items[0] != "text":
        stored, shape, data = items
        if shape:
            raise ValueError("not a scalar")
        return _unpack_array([stored, shape, data])[()]
    _, text = items
    return _numpy().str_(text) if type(text) is str else _numpy().bytes_(require(text, bytes))


def numpy_codec(cls: type) -> Codec | None:
    """Find the codec of exactly this numpy type; `None` for any other, subclasses of numpy's included."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(cls, type):
        return None
    if cls is numpy.ndarray:
        return _ARRAY
    if not issubclass(cls, numpy.generic) or cls.__module__ != "numpy" or cls is numpy.record:
        return None
    return _SCALAR


def _codec(code: int, cls: type, pack: Callable[[Any], Items], unpack: Callable[[Items], Any]) -> Codec:
    return Codec(cls, msgpack.ExtType(code, b""), pack, unpack)


_ARRAY = _codec(21, object, _pack_array, _unpack_array)
_SCALAR = _codec(22, object, _pack_scalar, _unpack_scalar)

# The numbers are in stored bytes: they are never changed and never used again for something else.
_ALL = (
    _codec(1, tuple, list, tuple),
    _codec(2, set, list, _unpack_set(set)),
    _codec(3, frozenset, list, _unpack_set(frozenset)),
    _codec(4, bytearray, lambda v: [bytes(v)], _unpack_bytearray),
    _codec(5, int, _pack_int, _unpack_int),
    _codec(6, complex, lambda v: [v.real, v.imag], _unpack_complex),
    _codec(7, range, lambda v: [v.start, v.stop, v.step], lambda items: range(*items)),
    _codec(8, Decimal, lambda v: [str(v)], _unpack_decimal),
    _codec(9, Fraction, lambda v: [v.numerator, v.denominator], _unpack_fraction),
    _codec(10, dt.datetime, _pack_datetime, _unpack_datetime),
    _codec(11, dt.date, lambda v: [v.year, v.month, v.day], lambda items: dt.date(*items)),
    _codec(12, dt.time, _pack_time, _unpack_time),
    _codec(13, dt.timedelta, lambda v: [v.days, v.seconds, v.microseconds], lambda items: dt.timedelta(*items)),
    _codec(14, dt.timezone, _pack_timezone, _unpack_timezone),
    _codec(15, ZoneInfo, _pack_zone, _unpack_zone),
    _codec(16, UUID, lambda v: [v.bytes, v.is_safe.value], _unpack_uuid),
    _codec(17, PurePosixPath, _pack_path, _unpack_path(PurePosixPath)),
    _codec(18, PureWindowsPath, _pack_path, _unpack_path(PureWindowsPath)),
    _codec(19, PosixPath, _pack_path, _unpack_path(PosixPath)),
    _codec(20, WindowsPath, _pack_path, _unpack_path(WindowsPath)),
)

BY_TYPE: Final[dict[type, Codec]] = {codec.cls: codec for codec in _ALL}
BY_CODE: Final[dict[int, Codec]] = {codec.mark.code: codec for codec in (*_ALL, _ARRAY, _SCALAR)}
