"""Bytes and back, by an allow-list.

Law: bytes never choose what is called. A mark in them is looked up among the codecs of this process, and what is not
there is an error, never a guess (rules 12.1 to 12.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import msgpack

from .builtin_types import BY_CODE, BY_TYPE, NAMED, PLAIN, Codec, Items, Refused, numpy_codec, require, type_name
from .class_types import BUILTIN_ERRORS, class_codec, copy_error, default_name, named_codec
from .errors import (
    CheckpointError,
    ConcurrentRunError,
    CorruptCheckpointError,
    PregelError,
    SerializationError,
    StorageVersionError,
)
from .fault import Place, ask_for, first_fault, unknown_type
from .wire import LOOKALIKES, marked, may_hold_lookalikes, refuse_timestamps, seal, unseal

__all__ = ["Serializer", "StoredError", "register_type"]

_T = TypeVar("_T")

_KEEP_PACKER: Final = 1 << 20  # bytes: a packer never gives back the memory that its largest value needed


class StoredError(PregelError):
    """Stands for a stored exception that cannot be made again here: its class is unknown, or its arguments are.

    `type_name` and `message` say what it was; its notes are the notes of this one.
    """

    code = "stored_error"
    type_name: str = ""
    message: str = ""


# --- the registry -----------------------------------------------------------------------------------------------------

_registered: dict[type, Codec] = {}
_registered_names: dict[bytes, Codec] = {}


def register_type(
    cls: type[_T],
    *,
    name: str | None = None,
    encode: Callable[[_T], object] | None = None,
    decode: Callable[[Any], _T] | None = None,
) -> type[_T]:
    """Let values of exactly this class be stored and read, in every graph of this process.

    `name` stands in the stored bytes for the class and defaults to `"module:qualname"`; a class that moves should keep
    its old one. `encode` returns anything that can be stored, `decode` makes the value from it. Without them the class
    must be a dataclass, NamedTuple, Enum, pydantic model or exception: those are stored field by field and restored
    without calling `__init__`. Returns the class, so it serves as a decorator. Refused with `SerializationError`: a
    class that is stored anyway or cannot be, and a name that another class has.
    """
    if not isinstance(cls, type) or cls in BY_TYPE or cls in PLAIN or cls in LOOKALIKES or cls in BUILTIN_ERRORS:
        raise SerializationError(f"{cls!r} cannot be registered", hint="register a class of your own")
    if (encode is None) != (decode is None):
        raise SerializationError(f"{type_name(cls)} needs both encode and decode, or neither")
    name = default_name(cls) if name is None else name
    if encode is not None and decode is not None:
        codec: Codec | None = _custom_codec(cls, name, encode, decode)
    else:
        codec = class_codec(cls, name)
    if codec is None:
        kinds = "no dataclass, NamedTuple, Enum, pydantic model or exception"
        raise SerializationError(f"{type_name(cls)} is {kinds}", hint="call register_type(T, encode=..., decode=...)")
    other = _registered_names.setdefault(codec.mark.data, codec)
    _refuse_same_name(other, codec)
    _registered_names[codec.mark.data] = _registered[cls] = codec
    return cls


def _custom_codec(cls: type[_T], name: str, encode: Callable[[_T], object], decode: Callable[[Any], _T]) -> Codec:
    def unpack(items: Items) -> _T:
        (state,) = items
        value = decode(state)
        if type(value) is not cls:
            raise TypeError(f"decode made a {type_name(type(value))} for {type_name(cls)}")
        return value

    return named_codec(cls, name, lambda value: [encode(value)], unpack)


def _refuse_same_name(first: Codec, second: Codec) -> None:
    if first.cls is not second.cls:
        raise SerializationError(
            f"two classes have the name {first.mark.data.decode()!r} in stored bytes: {first.cls!r} and {second.cls!r}",
            hint="register one of them under another name",
        )


# --- the serializer ---------------------------------------------------------------------------------------------------


class Serializer:
    """Turns values into bytes and back, for one graph.

    `types` are allowed besides the built-in and the registered ones: what the graph's schemas mention. Those that are
    stored anyway, or that only `register_type(T, encode=..., decode=...)` could store, are passed over: a value of such
    a type is refused when it is written. May be used from many threads.
    """

    def __init__(self, types: Iterable[type] = ()) -> None:
        self._own: dict[type, Codec] = {}
        self._own_names: dict[bytes, Codec] = {}
        # Packers that nobody uses now. One belongs to a single call while it is at work: it is not thread-safe, and an
        # `encode` of the user's may call this serializer again. pop and append are atomic, so no lock is needed.
        self._packers: list[Any] = []
        for cls in types:
            if not self.knows(cls) and (codec := class_codec(cls, default_name(cls))):
                name = codec.mark.data
                _refuse_same_name(self._own_names.setdefault(name, codec), codec)
                _refuse_same_name(_registered_names.get(name, codec), codec)
                self._own[cls] = codec

    def knows(self, cls: type) -> bool:
        """Say whether values of exactly this type are stored."""
        return cls in PLAIN or self._find(cls) is not None

    def name_of(self, cls: type) -> str:
        """Return the name that stands for a class in stored bytes. Raises `SerializationError` if it is not known."""
        codec = self._find(cls)
        if codec is None or not codec.mark.data:
            raise SerializationError(f"the type {type_name(cls)} is not known here", hint=ask_for(cls.__name__))
        name: str = codec.mark.data.decode()
        return name

    def class_of(self, name: str) -> type:
        """Return the class that a name stands for. Raises `CorruptCheckpointError` if it is not known."""
        return self._find_named(name.encode()).cls

    def encode(self, value: object) -> bytes:
        """Turn a value into bytes. Raises `SerializationError` whose `path` says where in it the fault lies."""
        try:
            return seal(self._pack(value))
        except MemoryError:
            raise
        except Exception as error:
            raise self._refusal(value, error) from error

    def decode(self, data: bytes) -> Any:
        """Turn bytes back into the value. Whatever is wrong with them raises `CorruptCheckpointError`."""
        try:
            body = unseal(data)
            refuse_timestamps(body)
            return _Reader(self._find_named).read(body)
        except CorruptCheckpointError:
            raise
        except Exception as error:  # anything, MemoryError too: forged bytes may claim any size
            raise CorruptCheckpointError(
                f"the bytes are no stored value: {type(error).__name__}: {_text(error)}"
            ) from error

    def encode_error(self, error: BaseException) -> bytes:
        """Turn any exception into bytes. Never fails: what cannot be stored of it is left out, its text never is."""
        name, notes = type_name(type(error)), _notes(error)
        return self.encode([name, _text(error), notes, self._whole_error(error)])

    def decode_error(self, data: bytes) -> BaseException:
        """Give back the exception, or a `StoredError` that tells of it if it cannot be made here."""
        name, message, notes, whole = _read_error_parts(self.decode(data))
        if whole is not None:
            try:
                return _require_error(self.decode(whole))
            except CorruptCheckpointError:
                pass  # undamaged, as the checksum around it says, but unknown here: what it said must not be lost
        stored = StoredError(f"{name}: {message}" if message else name, type_name=name)
        stored.message = message
        for note in notes:
            stored.add_note(note)
        return stored

    def _whole_error(self, error: BaseException) -> bytes | None:
        try:
            return self.encode(error)
        except SerializationError:
            pass
        try:
            return self.encode(copy_error(error, self._can_encode))  # a Future among its attributes, say
        except Exception:  # noqa: BLE001  # the class is the user's and may do anything
            return None

    def _can_encode(self, value: object) -> bool:
        try:
            self.encode(value)
        except SerializationError:
            return False
        return True

    def _find(self, cls: type) -> Codec | None:
        codec = BY_TYPE.get(cls) or _registered.get(cls)
        if codec is None:
            return self._own.get(cls) or numpy_codec(cls)
        own = self._own_names.get(codec.mark.data)
        return codec if own is None or own.cls is cls else None  # its name would be read as the graph's own class

    def _find_named(self, name: bytes) -> Codec:
        # The class of this graph's own schema stands before another that was registered later.
        codec, own = _registered_names.get(name), self._own_names.get(name)
        if codec is None or (own is not None and own.cls is not codec.cls):
            codec = own
        if codec is None:
            kind = name.decode(errors="replace")
            raise CorruptCheckpointError(f"the type {kind!r} is not known here", hint=ask_for(kind.rpartition(":")[2]))
        return codec

    def _pack(self, value: object) -> bytes:
        # In a list, because the packer takes one level more than the unpacker; without the byte that begins it.
        items: Items = [value]
        body = self._pack_items(items)
        if may_hold_lookalikes(body) and (clear := marked(items)) is not items:
            body = self._pack_items(clear)
        return body[1:]

    def _pack_items(self, items: Items) -> bytes:
        try:
            packer = self._packers.pop()
        except IndexError:
            packer = msgpack.Packer(default=self._default, strict_types=True, buf_size=4096)
        try:
            body: bytes = packer.pack(items)
        except UnicodeEncodeError:  # lone surrogates: a packer that allows them is slower by half with every text
            lenient = msgpack.Packer(default=self._default, strict_types=True, unicode_errors="surrogatepass")
            body = lenient.pack(items)
        if len(body) < _KEEP_PACKER:
            self._packers.append(packer)
        return body

    def _default(self, value: object) -> Items:
        codec = self._codec_of(value)
        return [codec.mark, *marked(codec.pack(value))]

    def _codec_of(self, value: object) -> Codec:
        cls = type(value)
        codec = self._find(cls)
        if codec is None and cls in _registered:
            raise Refused("another class has its name in stored bytes", "register it under another name")
        if codec is None:
            raise unknown_type(cls)
        return codec

    def _refusal(self, value: object, error: Exception) -> SerializationError:
        """Walk the value again, slowly, to say where the fault lies."""
        place, cause = first_fault(value, self._codec_of) or (Place(None, "", value), error)
        path = place.path()
        where = f" at {path}" if path else ""
        text = _text(cause)
        reason = text if isinstance(cause, Refused) else f"{type(cause).__name__}: {text}"
        if isinstance(cause, RecursionError) or text == "recursion limit exceeded.":  # the packer's own words
            reason = "it is nested too deeply"
        hint = cause.hint if isinstance(cause, Refused) else ""
        message = f"cannot store a {type_name(type(place.value))}{where}: {reason}"
        return SerializationError(message, path=path, hint=hint)


# --- reading ----------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads one value. msgpack builds it from the inside out, so nothing here recurses, however deep it is nested."""

    __slots__ = ("_find", "_open")

    def __init__(self, find: Callable[[bytes], Codec]) -> None:
        self._find = find
        self._open = 0  # marks met that are not yet the head of a list: one that stands elsewhere is forged

    def read(self, body: bytes) -> Any:
        value = msgpack.unpackb(
            body,
            strict_map_key=False,
            unicode_errors="surrogatepass",
            list_hook=self._list,
            ext_hook=self._mark,
        )
        if self._open:
            raise CorruptCheckpointError("a mark stands where no value of its type begins")
        return value

    def _mark(self, code: int, name: bytes) -> Codec:
        self._open += 1
        if code == NAMED:
            return self._find(name)
        if name or code not in BY_CODE:
            raise CorruptCheckpointError(f"mark {code} is unknown")
        return BY_CODE[code]

    def _list(self, items: Items) -> Any:
        if not items or type(items[0]) is not Codec:
            return items
        self._open -= 1
        codec: Codec = items.pop(0)
        return codec.unpack(items)


# --- exceptions -------------------------------------------------------------------------------------------------------


def _text(error: BaseException) -> str:
    try:
        return str.__str__(str(error))  # exactly a str, whatever its class returns
    except Exception:  # noqa: BLE001  # the class is the user's; its text is lost, the fault it stands for must not be
        return "<no text: its __str__ failed>"


def _notes(error: BaseException) -> list[str]:
    notes = error.__dict__.get("__notes__")
    return [str.__str__(note) for note in notes if isinstance(note, str)] if isinstance(notes, list) else []


def _read_error_parts(parts: Any) -> tuple[str, str, list[str], bytes | None]:
    try:
        name, message, notes, whole = require(parts, list)
        texts = [require(note, str) for note in require(notes, list)]
        return require(name, str), require(message, str), texts, whole if whole is None else require(whole, bytes)
    except (TypeError, ValueError) as error:
        raise CorruptCheckpointError("the bytes are a stored value, but no exception") from error


def _require_error(value: object) -> BaseException:
    if not isinstance(value, BaseException):
        raise CorruptCheckpointError("the bytes are a stored value, but no exception")
    return value


_ERRORS = (PregelError, CheckpointError, SerializationError, CorruptCheckpointError, ConcurrentRunError)


def _register_errors() -> None:
    for cls in BUILTIN_ERRORS:
        codec = class_codec(cls, default_name(cls))
        assert codec is not None
        _registered[cls] = _registered_names[codec.mark.data] = codec
    for cls in (*_ERRORS, StorageVersionError, StoredError):
        register_type(cls, name=f"pregel:{cls.__name__}")  # files inside the package may be renamed, stored names not


_register_errors()
