"""Channels that hold one value as it was written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .base import MISSING, Channel, ChannelError, Overwrite


def _plain(write: Any) -> Any:
    return write.value if type(write) is Overwrite else write


class AnyValue(Channel):
    """The last write in task order wins (rule 2.1)."""

    __slots__ = ("default", "type")

    def __init__(self, type: Any = object, default: Callable[[], Any] | None = None) -> None:
        self.type = type
        self.default = default

    def initial(self) -> Any:
        """Return a fresh default, or MISSING."""
        return MISSING if self.default is None else self.default()

    def update(self, value: Any, writes: Sequence[Any]) -> Any:
        """Return the last write."""
        return _plain(writes[-1])


class LastValue(AnyValue):
    """One write a step; a second one is refused (rule 2.1)."""

    __slots__ = ()

    def update(self, value: Any, writes: Sequence[Any]) -> Any:
        """Return the only write. Raises ChannelError when there are more."""
        if len(writes) > 1:
            raise ChannelError("takes one write a step; use a reducer (Annotated[T, reducer]) to take several")
        return _plain(writes[0])


class EphemeralValue(LastValue):
    """Lives for the one super-step after it was written (rule 2.1)."""

    __slots__ = ()
    fleeting = True

    def finish(self, value: Any) -> Any:
        """Leave nothing."""
        return MISSING


class UntrackedValue(LastValue):
    """Never stored and never copied: connections, caches, handles (rule 2.1)."""

    __slots__ = ()
    stored = False
