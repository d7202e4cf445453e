"""How values of a user's classes are stored without help: enums, exceptions, pydantic models, NamedTuples, dataclasses.

Law: reading gives a value the state it had, field by field, and calls no `__init__`, `__new__`, `__post_init__` or
validator. They ran when it was made; a second time they would repeat their side effects, or refuse what they once made.
"""

from __future__ import annotations

import builtins
import dataclasses
import sys
from collections.abc import Callable, Iterable
from enum import Enum, Flag
from functools import cached_property
from types import BuiltinFunctionType, MemberDescriptorType
from typing import Any, Final

import msgpack

from .builtin_types import NAMED, Codec, Items, Refused, require, type_name
from .errors import CorruptCheckpointError

State = dict[str, Any]

BUILTIN_ERRORS: Final[frozenset[type[BaseException]]] = frozenset(
    found for found in vars(builtins).values() if isinstance(found, type) and issubclass(found, BaseException)
)


def default_name(cls: type) -> str:
    """Name a class in stored bytes when nobody chose a name for it."""
    return f"{cls.__module__}:{cls.__qualname__}"


def named_codec(cls: type, name: str, pack: Callable[[Any], Items], unpack: Callable[[Items], Any]) -> Codec:
    """Make the codec of a registered class."""
    return Codec(cls, msgpack.ExtType(NAMED, name.encode()), pack, unpack)


def class_codec(cls: type, name: str) -> Codec | None:
    """Make the codec of a class of a kind known here, `None` for any other class."""
    for belongs, make in _KINDS:
        if belongs(cls):
            return named_codec(cls, name, *make(cls))
    return None


def check_fields(cls: type, expected: Iterable[str], state: Any) -> State:
    """Return the stored fields if they are exactly those of the class."""
    stored, wanted = set(require(state, dict)), set(expected)
    if stored != wanted:
        missing, extra = sorted(wanted - stored), sorted(map(str, stored - wanted))
        raise CorruptCheckpointError(
            f"{type_name(cls)} was stored with other fields than it has: missing {missing}, extra {extra}",
            hint="give the class its stored fields back, or register it with decode= that reads the old ones",
        )
    found: State = state
    return found


def _own_attributes(value: Any, fields: Iterable[str]) -> State:
    """Return what an instance holds besides its fields, but for `cached_property`: that is computed again."""
    known, cls = {*fields, "__orig_class__"}, type(value)  # the latter is left by typing: Box[int](1) knows its alias
    return {
        name: held
        for name, held in getattr(value, "__dict__", {}).items()
        if name not in known and not isinstance(getattr(cls, name, None), cached_property)
    }


# --- enums ------------------------------------------------------------------------------------------------------------


def _enum(cls: type[Enum]) -> tuple[Callable[[Enum], Items], Callable[[Items], Enum]]:
    def pack(value: Enum) -> Items:
        name = value._name_  # `name` may be a member or a property of the class
        if cls.__members__.get(name) is not value:
            raise Refused("it is no named member of its enum")
        return [name]

    def unpack(items: Items) -> Enum:
        (name,) = items
        return cls.__members__[name]

    return pack, unpack


def _flag(cls: type[Flag]) -> tuple[Callable[[Flag], Items], Callable[[Items], Flag]]:
    def pack(value: Flag) -> Items:
        names, rest = [], value._value_
        for member in value:
            names.append(member._name_)
            rest &= ~member._value_
        items = [names, rest]
        if unpack(items) is not value:
            raise Refused("its bits do not lead back to it")
        return items

    def unpack(items: Items) -> Flag:
        names, bits = items
        for name in names:
            bits |= cls.__members__[name]._value_
        value: Flag = require(cls(bits), cls)  # a boundary may drop bits, or give an int
        return value

    return pack, unpack


# --- exceptions -------------------------------------------------------------------------------------------------------


def _error(cls: type[BaseException]) -> tuple[Callable[[BaseException], Items], Callable[[Items], BaseException]]:
    base: Any = next(each for each in cls.__mro__ if each in BUILTIN_ERRORS)
    members = [name for name in ("name", "path") if isinstance(getattr(base, name, None), MemberDescriptorType)]

    def pack(error: BaseException) -> Items:
        # OSError hides its file names from `args` and shows them to pickle.
        fields = {"args": base.__reduce__(error)[1], **{name: getattr(error, name) for name in members}}
        attributes = dict(error.__dict__)
        again = build(fields, attributes)
        if type(again) is not cls or len(again.args) != len(error.args) or not all(map(_same, again.args, error.args)):
            raise Refused("its arguments do not lead back to it", "call register_type(T, encode=..., decode=...)")
        return [fields, attributes]

    def build(fields: State, attributes: State) -> BaseException:
        args = fields["args"]
        error: BaseException = base.__new__(cls, *args)
        base.__init__(error, *args)  # the class's own may take other arguments than those it handed on
        for name in members:
            object.__setattr__(error, name, fields[name])
        error.__dict__.update(attributes)  # the notes are among them
        return error

    def unpack(items: Items) -> BaseException:
        fields, attributes = items
        require(check_fields(cls, ["args", *members], fields)["args"], tuple)
        error: BaseException = require(build(fields, attributes), cls)
        return error

    return pack, unpack


def _same(a: object, b: object) -> bool:
    return a is b


def copy_error(error: BaseException, keep: Callable[[object], bool]) -> BaseException:
    """Copy an exception with those of its attributes that `keep` accepts; its arguments and notes stay."""
    cls = type(error)
    pack, unpack = _error(cls)
    fields, attributes = pack(error)
    return unpack([fields, {name: held for name, held in attributes.items() if keep(held)}])


# --- classes with fields ----------------------------------------------------------------------------------------------


def _dataclass(cls: Any) -> tuple[Callable[[Any], Items], Callable[[Items], Any]]:
    names = [field.name for field in dataclasses.fields(cls)]

    def pack(value: Any) -> Items:
        state = {}
        for name in names:
            try:
                state[name] = getattr(value, name)
            except AttributeError:
                raise Refused(f"its field {name!r} is not set") from None
        others = _own_attributes(value, names)
        return [state, others] if others else [state]

    def unpack(items: Items) -> Any:
        state, *others = items
        check_fields(cls, names, state)
        value = object.__new__(cls)
        for name in names:
            object.__setattr__(value, name, state[name])  # frozen or not
        for each in others:
            value.__dict__.update(require(each, dict))
        return value

    return pack, unpack


def _named_tuple(cls: Any) -> tuple[Callable[[Any], Items], Callable[[Items], Any]]:
    names: tuple[str, ...] = cls._fields

    def pack(value: Any) -> Items:
        if getattr(value, "__dict__", None):
            raise Refused("it holds attributes besides its fields")
        return [dict(zip(names, value, strict=True))]

    def unpack(items: Items) -> Any:
        (state,) = items
        check_fields(cls, names, state)
        return tuple.__new__(cls, [state[name] for name in names])

    return pack, unpack


def _model(cls: Any) -> tuple[Callable[[Any], Items], Callable[[Items], Any]]:
    def pack(value: Any) -> Items:
        state, names = value.__dict__, cls.model_fields  # asked for late: a model may be completed after its class
        if others := _own_attributes(value, names):
            raise Refused(f"it holds attributes besides its fields: {sorted(others)}")
        if missing := [name for name in names if name not in state]:
            raise Refused(f"its fields {missing} are not set")
        fields = {name: state[name] for name in names}
        return [fields, sorted(value.__pydantic_fields_set__), value.__pydantic_extra__, value.__pydantic_private__]

    def unpack(items: Items) -> Any:
        state, fields_set, extra, private = items
        value = object.__new__(cls)
        object.__setattr__(value, "__dict__", check_fields(cls, cls.model_fields, state))
        object.__setattr__(value, "__pydantic_fields_set__", {require(name, str) for name in fields_set})
        object.__setattr__(value, "__pydantic_extra__", extra if extra is None else require(extra, dict))
        object.__setattr__(value, "__pydantic_private__", private if private is None else require(private, dict))
        return value

    return pack, unpack


def _is_model(cls: type) -> bool:
    pydantic = sys.modules.get("pydantic")  # a model cannot be there without it
    return pydantic is not None and issubclass(cls, pydantic.BaseModel) and _is_bare(cls)


def _is_dataclass(cls: type) -> bool:
    return dataclasses.is_dataclass(cls) and _is_bare(cls)


def _is_bare(cls: type) -> bool:
    """Say whether instances hold nothing but attributes. A base that holds more is written in C."""
    return not any(isinstance(vars(each).get("__new__"), BuiltinFunctionType) for each in cls.__mro__[:-1])


# In this order: an exception or an enum may be a dataclass too, and a NamedTuple is a tuple with fields.
_KINDS: tuple[
    tuple[Callable[[type], bool], Callable[[Any], tuple[Callable[[Any], Items], Callable[[Items], Any]]]], ...
]
_KINDS = (
    (lambda cls: issubclass(cls, Flag), _flag),
    (lambda cls: issubclass(cls, Enum), _enum),
    (lambda cls: issubclass(cls, BaseException), _error),
    (_is_model, _model),
    (lambda cls: issubclass(cls, tuple) and hasattr(cls, "_fields"), _named_tuple),
    (_is_dataclass, _dataclass),
)
