"""The shapes of what a stream yields (rule 13.1)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from .call import Call
from .effects import Event
from .errors import InvalidRequestError
from .types import StreamMode

T = TypeVar("T")
StreamModes = StreamMode | Sequence[StreamMode]
Shape = Callable[[Event], Any]

MODES = ("values", "updates", "custom")


def shaped(call: Call, modes: StreamModes, subgraphs: bool) -> Shape:
    """Prepare a call for a reader and return the shape of what it yields. Raises InvalidRequestError."""
    wanted = [modes] if isinstance(modes, str) else list(modes) if isinstance(modes, Sequence) else []
    if not wanted or not all(mode in MODES for mode in wanted):
        raise InvalidRequestError(f"stream_mode must be of {list(MODES)}, not {modes!r}")
    scope = call.scope
    scope.modes = frozenset(wanted) - {"custom"}
    scope.root.subgraphs = subgraphs
    if "custom" in wanted or subgraphs:
        scope.root.sink = lambda event: None  # the driver puts its inbox here; events come while nodes run
    single = isinstance(modes, str)

    def shape(event: Event) -> Any:
        path = tuple(event.path.split("|")) if event.path else ()
        if subgraphs:
            return (path, event.data) if single else (path, event.kind, event.data)
        return event.data if single else (event.kind, event.data)

    return shape


def shaped_events(run: Generator[Event, None, T], shape: Shape) -> Generator[Any, None, T]:
    """Yield the events of a driver in their shape and return what it returns."""
    while True:
        try:
            event = next(run)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return] # what the generator returns
        try:
            yield shape(event)
        except GeneratorExit:
            run.close()
            raise
