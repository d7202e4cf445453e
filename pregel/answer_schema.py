"""What an answer must look like: a type becomes a plain description that is kept with its question (rule 6.13).

The description is what a front end needs to draw a form, in the words of JSON Schema; `class` names a class that the
serialiser knows, `standard` one of the standard library. It is kept instead of the type because the process that gets
the answer may be another one.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict
from uuid import UUID

from .schema import is_model

Described = dict[str, Any]

_JSON = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
_PYTHON: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "integer": (int,),
    "number": (float, int),
    "string": (str,),
    "null": (type(None),),
}


class MisfitError(Exception):
    """A value is not of the shape that a description asks for; the text says where in it and what was expected."""


_STANDARD: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(bytes, bytearray, complex, range, tuple, set, frozenset),
        *(date, datetime, time, timedelta, Decimal, Fraction, UUID),
    )
}


def describe(hint: Any, name_of: Callable[[type], str], within: tuple[Any, ...] = ()) -> Described:
    """Return the description of a type: plain ones, containers, Literal, unions, TypedDicts, classes (rule 6.13).

    What stands beside a type in `Annotated` is not looked at. Raises TypeError for a type that cannot be told in
    another process, or that contains itself (`within` is what it stands in); `name_of` may raise for a class unknown
    there.
    """
    if type(hint).__hash__ is None:
        raise TypeError(f"{hint!r} is no type that an answer can be checked against")
    if any(hint is outer for outer in within):
        raise TypeError(f"{hint.__name__} contains itself, which a description cannot")

    def inner(part: Any) -> Described:
        return describe(part, name_of, (*within, hint))

    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return {}
    if hint is None or hint in _JSON:
        return {"type": _JSON[type(None) if hint is None else hint]}
    if hint in _STANDARD.values():
        return {"standard": hint.__name__}
    if origin is Annotated:
        return inner(arguments[0])
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is Union or origin is types.UnionType:
        return {"anyOf": [inner(argument) for argument in arguments]}
    if hint is list or origin is list:
        return {"type": "array", "items": inner(arguments[0]) if arguments else {}}
    if hint is dict or origin is dict:
        key, value = [inner(argument) for argument in arguments] if arguments else [{}, {}]
        return {"type": "object", "propertyNames": key, "additionalProperties": value}
    if is_typeddict(hint):
        return _fields(get_type_hints(hint), sorted(hint.__required_keys__), inner)
    if not isinstance(hint, type):
        raise TypeError(f"{hint!r} is no type that an answer can be checked against")
    return {"class": name_of(hint), **_inside(hint, inner)}


def _inside(cls: type, inner: Callable[[Any], Described]) -> Described:
    """Return what can be told of a class besides its name."""
    if issubclass(cls, Enum):
        return {"enum": [member.value for member in cls]}
    if not dataclasses.is_dataclass(cls):
        return {}
    hints, missing = get_type_hints(cls), dataclasses.MISSING
    fields = [field for field in dataclasses.fields(cls) if field.init]
    required = [f.name for f in fields if f.default is missing and f.default_factory is missing]
    return _fields({field.name: hints[field.name] for field in fields}, required, inner)


def _fields(hints: Mapping[str, Any], required: list[str], inner: Callable[[Any], Described]) -> Described:
    return {"type": "object", "properties": {key: inner(hint) for key, hint in hints.items()}, "required": required}


def fit(value: Any, described: Described, class_of: Callable[[str], type], path: str = "the answer") -> Any:
    """Return a value as the described type; a mapping becomes the class that it describes. Raises MisfitError."""
    if "class" in described:
        return _instance(value, described, class_of, path)
    if "standard" in described:
        if type(value) is not _STANDARD[described["standard"]]:
            raise _misfit(path, value, f"a {described['standard']}")
        return value
    if "anyOf" in described:
        return _one_of(value, described["anyOf"], class_of, path)
    if "enum" in described:
        if any(type(option) is type(value) and option == value for option in described["enum"]):
            return value
        raise _misfit(path, value, f"one of {described['enum']!r}")
    kind = described.get("type")
    if kind == "array":
        if not isinstance(value, list):
            raise _misfit(path, value, "a list")
        return [fit(item, described["items"], class_of, f"{path}[{index}]") for index, item in enumerate(value)]
    if kind == "object":
        return _mapping(value, described, class_of, path)
    if kind is None or (isinstance(value, _PYTHON[kind]) and isinstance(value, bool) == (kind == "boolean")):
        return value
    raise _misfit(path, value, kind)


def _one_of(value: Any, options: list[Described], class_of: Callable[[str], type], path: str) -> Any:
    faults = []
    for option in options:
        try:
            return fit(value, option, class_of, path)
        except MisfitError as fault:
            faults.append(str(fault))
    raise MisfitError("; ".join(faults))


def _mapping(value: Any, described: Described, class_of: Callable[[str], type], path: str) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise _misfit(path, value, "a mapping")
    rest = described.get("additionalProperties")
    properties = described.get("properties", {})
    if missing := [name for name in described.get("required", ()) if name not in value]:
        raise MisfitError(f"{path} lacks {', '.join(map(repr, missing))}")
    if rest is None and (extra := [key for key in value if key not in properties]):
        raise MisfitError(f"{path} has {', '.join(map(repr, extra))}; expected are {list(properties)}")
    for key in value:
        fit(key, described.get("propertyNames", {}), class_of, f"the key {key!r} of {path}")
    return {key: fit(item, properties.get(key, rest), class_of, f"{path}[{key!r}]") for key, item in value.items()}


def _instance(value: Any, described: Described, class_of: Callable[[str], type], path: str) -> Any:
    cls: Any = class_of(described["class"])
    if isinstance(value, cls):
        return value
    try:
        if issubclass(cls, Enum):
            return cls(value)
        if is_model(cls):
            return cls.model_validate(value)
        if "properties" in described:
            return cls(**_mapping(value, described, class_of, path))
    except (TypeError, ValueError) as error:  # also what a validator of the user's class says
        raise MisfitError(f"{path} is no {cls.__name__}: {error}") from error
    raise _misfit(path, value, f"a {cls.__name__}")


def _misfit(path: str, value: Any, expected: str) -> MisfitError:
    shown = repr(value)
    return MisfitError(f"{path} is {shown if len(shown) <= 40 else type(value).__name__}, expected {expected}")
