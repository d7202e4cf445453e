"""What a channel is: the rule by which one piece of state changes.

A channel holds no value. Its methods take the present value (`MISSING` when it is empty) and return the next one, so
one channel serves every run of a graph at once, and a fold that fails has changed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, Literal


class _Missing(Enum):
    MISSING = "MISSING"

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing.MISSING
Missing = Literal[_Missing.MISSING]


class ChannelError(Exception):
    """A write that the channel's rule refuses, or a read of an empty channel; the engine adds who wrote it."""


class Overwrite:
    """A write that replaces a reduced value instead of being folded into it (rule 2.2)."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Overwrite({self.value!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is Overwrite and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment] # as mutable as what it holds


class Channel:
    """The base of all channels: keeps what it is given until it is written again."""

    __slots__ = ()

    fleeting: bool = False
    """`finish` may change the value: the channel is looked at when a super-step ends."""
    stored: bool = True
    """The value is part of checkpoints."""
    grows: Literal["", "append", "fold"] = ""
    """What is written may be stored instead of the value: "append" adds it to a list, a list is spliced in; "fold" is
    `update` with the same writes, which gives the same value in every process."""

    def initial(self) -> Any:
        """Return a fresh first value, or MISSING when the channel starts empty (rule 2.3)."""
        return MISSING

    def update(self, value: Any, writes: Sequence[Any]) -> Any:
        """Return `value` with the writes of one step folded in, in task order. Raises ChannelError."""
        raise NotImplementedError

    def get(self, value: Any) -> Any:
        """Return what a node reads. Raises ChannelError when the channel is empty."""
        if value is MISSING:
            raise ChannelError("the channel is empty")
        return value

    def is_available(self, value: Any) -> bool:
        """Whether there is something to read, or, for a scheduling channel, something to run."""
        return value is not MISSING

    def consume(self, value: Any) -> Any:
        """Return what is left once the tasks that the value woke are folded."""
        return value

    def finish(self, value: Any) -> Any:
        """Return what is left when a super-step ends that did not write the channel."""
        return value

    def snapshot(self, value: Any) -> Any:
        """Return what is stored for the value."""
        return value

    def restore(self, stored: Any) -> Any:
        """Return the value for what was stored."""
        return stored

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def sole_overwrite(writes: Sequence[Any]) -> Any:
    """Return the value of the step's Overwrite, or MISSING without one. Raises ChannelError beside other writes."""
    for write in writes:
        if type(write) is Overwrite:
            if len(writes) > 1:
                raise ChannelError("an Overwrite stands beside other writes of the same step")
            return write.value
    return MISSING
