"""The values that are stored without being registered: what is particular to each."""

import datetime as dt
import decimal
import io
import sys
import uuid
import zoneinfo
from decimal import Decimal
from pathlib import Path, PosixPath, PureWindowsPath, WindowsPath
from typing import Any
from zlib import crc32
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from pregel.checkpoint.errors import CorruptCheckpointError, SerializationError
from pregel.checkpoint.serde import Serializer

SERDE = Serializer()


def round_trip(value: Any) -> Any:
    found = SERDE.decode(SERDE.encode(value))
    assert type(found) is type(value)
    return found


@pytest.mark.parametrize("fold", [0, 1])
def test_a_time_that_the_clock_shows_twice_keeps_its_fold_and_zone_12_1(fold: int) -> None:
    found = round_trip(dt.datetime(2024, 10, 27, 2, 30, fold=fold, tzinfo=ZoneInfo("Europe/Paris")))
    assert found.fold == fold
    assert found.tzinfo is ZoneInfo("Europe/Paris")
    assert found.utcoffset() == dt.timedelta(hours=2 - fold)


def test_utc_stays_the_one_utc_and_a_name_is_kept_12_1() -> None:
    assert round_trip(dt.UTC) is dt.UTC
    assert round_trip(dt.timezone(dt.timedelta(0), "UTC")).tzname(None) == "UTC"
    assert round_trip(dt.timezone(-dt.timedelta(hours=3), "Here")).tzname(None) == "Here"


class Elsewhere(dt.tzinfo):
    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(0)

    dst = utcoffset

    def tzname(self, when: dt.datetime | None) -> str:
        return "elsewhere"


def test_a_zone_that_cannot_be_found_again_is_refused_12_2() -> None:
    with open(zone_file("Asia/Tokyo"), "rb") as file:
        stream = io.BytesIO(file.read())
    nameless = ZoneInfo.from_file(stream)
    stream.seek(0)
    invented = ZoneInfo.from_file(stream, key="Asia/Atlantis")
    for zone in (nameless, invented):
        with pytest.raises(SerializationError, match="no key that leads back"):
            SERDE.encode(zone)
    for value in (dt.datetime(2024, 1, 1, tzinfo=Elsewhere()), dt.time(tzinfo=Elsewhere())):
        with pytest.raises(SerializationError, match=r"its tzinfo is a .*Elsewhere"):
            SERDE.encode(value)


def zone_file(key: str) -> Path:
    return next(path for folder in zoneinfo.TZPATH if (path := Path(folder, key)).is_file())


def test_a_zone_of_the_package_tzdata_is_found_where_the_system_has_none_12_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "tzdata/zoneinfo/Asia"
    target.mkdir(parents=True)
    (target / "Tokyo").write_bytes(zone_file("Asia/Tokyo").read_bytes())
    data, zone = SERDE.encode(ZoneInfo("Asia/Tokyo")), ZoneInfo("Asia/Tokyo")
    monkeypatch.setattr(zoneinfo, "TZPATH", ())
    with pytest.raises(CorruptCheckpointError, match="no time zone 'Asia/Tokyo'"):
        SERDE.decode(data)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert SERDE.decode(data) is zone


@pytest.mark.parametrize("text", ["0", "-0", "1E+999999", "NaN", "-NaN12", "sNaN", "Infinity", "1.500", "0E-28"])
def test_a_decimal_keeps_sign_exponent_and_payload_in_any_context_12_1(text: str) -> None:
    with decimal.localcontext(prec=1):
        assert str(round_trip(Decimal(text))) == text


def test_text_that_is_no_decimal_is_refused_where_the_context_traps_nothing_12_3() -> None:
    data = SERDE.encode(Decimal("1.5"))
    body = data[5:].replace(b"1.5", b"a.5")
    with decimal.localcontext() as context:
        context.traps[decimal.InvalidOperation] = False
        with pytest.raises(CorruptCheckpointError, match="not a decimal"):
            SERDE.decode(sealed(body))


def sealed(body: bytes) -> bytes:
    """Put the header of one stored value before another body of the same kind."""
    return b"\x01" + crc32(body).to_bytes(4, "little") + body


def test_a_uuid_keeps_how_safely_it_was_made_12_1() -> None:
    for safe in uuid.SafeUUID:
        found = round_trip(uuid.UUID(int=2**128 - 1, is_safe=safe))
        assert (found.int, found.is_safe) == (2**128 - 1, safe)


def test_a_path_of_another_system_is_refused_there_12_3() -> None:
    here, there = (20, 19) if isinstance(Path(), WindowsPath) else (19, 20)
    data = SERDE.encode(Path("a"))
    assert SERDE.decode(data) == Path("a")
    with pytest.raises(CorruptCheckpointError):
        SERDE.decode(sealed(data[5:].replace(bytes([0, here]), bytes([0, there]))))


@pytest.mark.parametrize("text", ["", "/", "//server/x", "a/../b", "\ud800", r"c:\x", "c:x", r"\\host\share\x"])
def test_paths_round_trip_as_they_are_12_1(text: str) -> None:
    for kind in (PureWindowsPath, type(Path())):
        assert round_trip(kind(text)) == kind(text)
    assert isinstance(Path(), PosixPath | WindowsPath)


def test_a_path_that_reads_differently_once_written_is_refused_12_2() -> None:
    for text in ("./c:a", "c:a", "./a"):
        try:
            round_trip(value := PureWindowsPath(text))
        except SerializationError as error:
            assert "being written as text" in str(error)  # noqa: PT017  # depends on the version of Python
            assert PureWindowsPath(str(value)) != value


@pytest.mark.parametrize("bits", [63, 64, 65, 127, 128, 1000])
def test_integers_around_every_limit_round_trip_12_1(bits: int) -> None:
    for value in (2**bits - 1, 2**bits, -(2**bits), -(2**bits) - 1):
        assert round_trip(value) == value


SCALARS = [
    *(kind(1) for kind in (np.bool_, np.int8, np.uint64, np.longlong, np.ulonglong, np.float16, np.longdouble)),
    *(
        np.float64("nan"),
        np.complex128(-0.0 - 1j),
        np.datetime64("NaT"),
        np.datetime64(3, ("s", 25)),
        np.timedelta64(1, "D"),
    ),
    *(np.str_("a\0"), np.str_(""), np.bytes_(b"\0"), np.void(b"ab"), np.zeros(1, "i4,U2")[0]),
]


@pytest.mark.parametrize("value", SCALARS, ids=lambda value: type(value).__name__)
def test_a_numpy_scalar_comes_back_as_exactly_its_type_12_1(value: Any) -> None:
    found = round_trip(value)
    assert found.dtype == value.dtype
    if isinstance(value, str | bytes):
        assert value[:] == found[:]
        assert len(value) == len(found)
    else:
        assert found.tobytes() == value.tobytes()


def test_a_numpy_float_is_no_float_also_as_a_key_12_1() -> None:
    found = round_trip({np.float64(1.5): [np.float64(2.5), 2.5]})
    assert [type(key) for key in found] == [np.float64]
    assert [type(item) for item in found[1.5]] == [np.float64, float]


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype([("a", "i1"), ("b", "f8")], align=True),
        np.dtype({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [8, 0], "itemsize": 16}),
        np.dtype([("a", [("b", "U3"), ("c", "M8[us]")], (2, 2)), ("d", ">f4")]),
        np.dtype([(("a title", "a"), "i4")]),
    ],
    ids=["aligned", "own offsets", "nested", "titled"],
)
def test_a_structured_array_keeps_its_layout_12_1(dtype: Any) -> None:
    value = np.zeros((2, 1), dtype)
    found = round_trip(value)
    assert found.dtype == dtype
    assert found.dtype.isalignedstruct == dtype.isalignedstruct
    assert found.dtype.fields == dtype.fields
    assert found.tobytes() == value.tobytes()


@pytest.mark.parametrize("value", [np.zeros((0, 3)), np.array(5), np.asfortranarray(np.eye(3)), np.arange(9)[::-2]])
def test_arrays_of_any_layout_come_back_writable_12_1(value: Any) -> None:
    found = round_trip(value)
    assert found.shape == value.shape
    assert np.array_equal(found, value)
    found[...] = 1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.array([None]), "holds Python objects"),
        (np.zeros(1, [("a", "O")]), "holds Python objects"),
        (np.zeros(2, "V0"), "does not survive"),
        (np.zeros(1, np.dtype("f8", metadata={"unit": "m"})), "does not survive"),
        (np.zeros(1, np.dtype((np.record, [("a", "i4")]))), "does not survive"),
        (np.array(["a"], dtype=np.dtypes.StringDType()), "holds Python objects"),
    ],
)
def test_an_array_that_would_come_back_as_another_is_refused_12_2(value: Any, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        SERDE.encode({"a": value})


def test_a_numpy_value_is_refused_where_numpy_is_not_loaded_12_3(monkeypatch: pytest.MonkeyPatch) -> None:
    data = [SERDE.encode(value) for value in (np.arange(2), np.float64(1), np.str_("a"))]
    monkeypatch.delitem(sys.modules, "numpy")
    for each in data:
        with pytest.raises(CorruptCheckpointError, match="import it before"):
            SERDE.decode(each)
    assert "numpy" not in sys.modules
