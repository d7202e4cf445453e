"""A state class becomes channels, a way to show state to a node, and a list of types that may be stored."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping
from copy import deepcopy
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, NotRequired, Required, get_args, get_origin, get_type_hints, is_typeddict

from .channels import AnyValue, BinaryOperatorAggregate, Channel, LastValue
from .errors import GraphValidationError

Default = Callable[[], Any] | None


class Schema:
    """What one state class says: `hints` by key, `defaults` by key, and how a node is shown it.

    `view` makes an instance of the class from a mapping of what exists, or is None when the class is a TypedDict and
    the mapping itself is shown.
    """

    __slots__ = ("channels", "hints", "keys", "type", "view")

    def __init__(self, type_: type) -> None:
        self.type = type_
        self.hints = _hints(type_)
        self.keys = frozenset(self.hints)
        defaults = _defaults(type_)
        self.channels = {key: _channel(hint, defaults.get(key)) for key, hint in self.hints.items()}
        self.view = _view(type_)

    def __repr__(self) -> str:
        return f"Schema({self.type.__name__})"


def schema_of(type_: type) -> Schema:
    """Return the schema of a TypedDict, dataclass or pydantic model (rule 1.1). Raises GraphValidationError."""
    return _cached(type_)


@lru_cache(maxsize=1024)
def _cached(type_: Hashable) -> Schema:
    return Schema(type_)  # type: ignore[arg-type] # a class, which is hashable


def is_model(type_: Any) -> bool:
    """Whether a class is a pydantic model, found without importing pydantic."""
    return isinstance(type_, type) and hasattr(type_, "model_fields") and hasattr(type_, "model_construct")


def model_fields(type_: Any) -> Mapping[str, Any]:
    """Return the fields of a pydantic model by name."""
    fields: Mapping[str, Any] = type_.model_fields
    return fields


def _hints(type_: type) -> dict[str, Any]:
    if not (is_typeddict(type_) or dataclasses.is_dataclass(type_) or is_model(type_)):
        raise GraphValidationError(f"a state must be a TypedDict, a dataclass or a pydantic model, not {type_!r}")
    try:
        hints = get_type_hints(type_, include_extras=True)
    except Exception as error:
        raise GraphValidationError(
            f"the annotations of {type_.__name__} cannot be resolved: {error}",
            hint="import what they name at run time, not only for type checking",
        ) from error
    if is_model(type_):  # pydantic moves Annotated metadata into its own field objects, but keeps class variables out
        hints = {key: hints[key] for key in model_fields(type_)}
    elif dataclasses.is_dataclass(type_):
        hints = {field.name: hints[field.name] for field in dataclasses.fields(type_)}
    return {key: _unwrapped(hint) for key, hint in hints.items()}


def _unwrapped(hint: Any) -> Any:
    while get_origin(hint) in (Required, NotRequired):
        hint = get_args(hint)[0]
    return hint


def _defaults(type_: type) -> dict[str, Default]:
    if dataclasses.is_dataclass(type_):
        fields = dataclasses.fields(type_)
        plain = {f.name: _fresh(f.default) for f in fields if f.default is not dataclasses.MISSING}
        made = {f.name: f.default_factory for f in fields if f.default_factory is not dataclasses.MISSING}
        return {**plain, **made}
    if is_model(type_):
        return {
            name: field.default_factory or _fresh(field.default)
            for name, field in model_fields(type_).items()
            if not field.is_required()
        }
    return {}


def _fresh(default: Any) -> Callable[[], Any]:
    return lambda: deepcopy(default)  # one object per run: a default must not carry values over (rule 2.3)


def _channel(hint: Any, default: Default) -> Channel:
    if get_origin(hint) is not Annotated:
        return LastValue(hint, default)
    type_, *extras = get_args(hint)
    for extra in reversed(extras):
        if isinstance(extra, Channel):
            return extra
        if isinstance(extra, type) and issubclass(extra, AnyValue):
            return extra(type_, default)
        if isinstance(extra, type) and issubclass(extra, Channel):
            return extra(type_)  # type: ignore[call-arg] # every channel for state takes its type first
        if callable(extra) and not isinstance(extra, type) and not hasattr(extra, "__pydantic_validator__"):
            return BinaryOperatorAggregate(type_, extra, default)
    return LastValue(hint, default)


def _view(type_: type) -> Callable[[Mapping[str, Any]], Any] | None:
    if is_typeddict(type_):
        return None
    if is_model(type_):
        return lambda values: type_(**values)
    names = [field.name for field in dataclasses.fields(type_)]
    return lambda values: type_(**{name: values[name] for name in names if name in values})


def as_mapping(value: Any) -> Mapping[str, Any] | None:
    """Return an update given as a mapping, dataclass or model as a mapping of what it sets; None if it is neither."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if is_model(type(value)):
        return {name: getattr(value, name) for name in value.model_fields_set}
    return None


def takes_two(operator: Callable[..., Any]) -> bool:
    """Whether a reducer can be called with two arguments; what cannot be inspected is believed."""
    try:
        inspect.signature(operator).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


def storable_types(hint: Any, seen: set[Any] | None = None) -> Iterator[type]:
    """Yield the classes in an annotation that the serialiser must be told of, at any depth."""
    seen = set() if seen is None else seen
    if id(hint) in seen:
        return
    seen.add(id(hint))
    for argument in get_args(hint):
        yield from storable_types(argument, seen)
    if not isinstance(hint, type):
        return
    is_named_tuple = issubclass(hint, tuple) and hasattr(hint, "_fields")
    if issubclass(hint, Enum):
        yield hint
    elif dataclasses.is_dataclass(hint) or is_model(hint) or is_named_tuple:
        yield hint
        yield from _field_types(hint, seen)
    elif is_typeddict(hint):
        yield from _field_types(hint, seen)


def _field_types(type_: type, seen: set[Any]) -> Iterator[type]:
    try:
        hints = get_type_hints(type_, include_extras=True)
    except Exception:  # noqa: BLE001 - a field whose hint cannot be resolved names no type; encoding it says so
        hints = {}
    for hint in hints.values():
        yield from storable_types(hint, seen)
