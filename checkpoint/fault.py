"""Where in a value a fault lies. Walks the value a second time, slowly, once it is known that there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from .builtin_types import ATOMS, BY_TYPE, PLAIN, Codec, Refused, type_name
from .class_types import class_codec, default_name
from .wire import refuse_foreign

_DEEPEST: Final = 2_000  # levels; the packer takes fewer
_LONGEST_PATH: Final = 300  # characters
_HELP: Final = "call register_type(T, encode=..., decode=...)"


def ask_for(name: str) -> str:
    """Say what to do about a class that is not known."""
    return f"annotate {name} in the state schema or call register_type({name})"


def unknown_type(cls: type) -> Refused:
    """Say why values of a type that nobody registered are not stored, and what would help."""
    base = next((each for each in cls.__mro__[1:] if each in PLAIN or each in BY_TYPE), None)
    if class_codec(cls, default_name(cls)):
        return Refused("its type is not known", ask_for(cls.__name__))
    if base is not None:
        return Refused(f"it would come back as a {base.__name__}", f"convert it to {base.__name__} or {_HELP}")
    return Refused("its type is not stored", _HELP)


class Place(NamedTuple):
    """A value and the way to it."""

    parent: Place | None
    step: str
    value: object

    def chain(self) -> Iterator[Place]:
        """Yield this place and those around it, outwards."""
        place: Place | None = self
        while place is not None:
            yield place
            place = place.parent

    def path(self) -> str:
        """Write the way as Python would, the middle left out where it is long."""
        steps = [place.step for place in self.chain()][::-1]
        path = "".join(steps)
        return path if len(path) <= _LONGEST_PATH else f"{path[: _LONGEST_PATH // 2]} ... {path[-_LONGEST_PATH // 2 :]}"


def first_fault(value: object, codec_of: Callable[[object], Codec]) -> tuple[Place, Exception] | None:
    """Find the first value that cannot be stored, in the order in which they are written."""
    stack = [Place(None, "", value)]
    while stack:
        place = stack.pop()
        if type(place.value) in ATOMS:
            continue
        try:
            _refuse_cycle(place)
            below = list(_parts(place.value, codec_of))
        except Exception as error:  # noqa: BLE001  # an encode of the user's may raise anything: that is the fault
            return place, error
        stack += [Place(place, step, part) for step, part in reversed(below)]
    return None


def _refuse_cycle(place: Place) -> None:
    for depth, around in enumerate(place.chain()):
        if depth and around.value is place.value:
            raise Refused("it contains itself", "store a tree, and ids in place of the references back")
        if depth > _DEEPEST:  # an encode that always returns another value of its class
            raise RecursionError


def _parts(value: Any, codec_of: Callable[[object], Codec]) -> Iterator[tuple[str, object]]:
    kind = type(value)
    if kind is dict:
        for at, (key, part) in enumerate(value.items()):
            yield f".keys()[{at}]", key
            yield f"[{repr(key)[:60] if type(key) in ATOMS else type_name(type(key))}]", part
    elif kind is list:
        yield from ((f"[{at}]", part) for at, part in enumerate(value))
    else:
        refuse_foreign(value)
        items = codec_of(value).pack(value)
        for at, part in enumerate(items):
            if kind in (tuple, set, frozenset):
                yield f"[{at}]", part
            elif type(part) is dict:  # fields, kept by name
                yield from ((f".{name}", each) for name, each in part.items())
            else:
                yield "", part
