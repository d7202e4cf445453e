"""The closed set of effects: all that the loop asks of the world, and what the world may answer."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from typing import Any, NamedTuple, TypeVar

from .checkpoint import Commit, Found, TaskRecord
from .head import Head
from .task import NodeTask

T = TypeVar("T")


class Event(NamedTuple):
    """Something for a live reader: `kind` is a stream mode, `path` the namespace it comes from."""

    kind: str
    data: Any
    path: str = ""


class Load(NamedTuple):
    """Read a checkpoint of a namespace: that number, else the newest of these epochs. Reply: Found."""

    namespace: str
    number: int | None
    epochs: Collection[int] | None


class Put(NamedTuple):
    """Write in one transaction. `begins`: nothing may run before it is durable. No reply."""

    commits: Sequence[Commit]
    records: Sequence[TaskRecord]
    begins: bool = False


class Start(NamedTuple):
    """Start tasks on the state of a head. Reply: None, or Stop and nothing was started."""

    tasks: Sequence[NodeTask]
    head: Head


class Next(NamedTuple):
    """Wait for endings, until `deadline` seconds of the driver's clock at the latest; None waits for ever.

    Reply: the endings at hand, none when the deadline has passed, or Stop.
    """

    timeout: float | None = None


class Emit(NamedTuple):
    """Hand an event to whoever reads this run. No reply: that the reader has gone is told by the next effect."""

    event: Event


class Cancel(NamedTuple):
    """Tell what runs to stop; what does not within the grace time is left behind as Cancelled. No reply."""


class Stop(NamedTuple):
    """A reply instead of the expected one: somebody outside wants the run to end with this error."""

    error: BaseException


FOREVER = Next()
"""What is asked most often, made once."""

Effect = Load | Put | Start | Next | Emit | Cancel
Program = Generator[Effect, Any, T]


def load(namespace: str, number: int | None = None, epochs: Collection[int] | None = None) -> Program[Found]:
    """Ask for a checkpoint."""
    found: Found = yield Load(namespace, number, epochs)
    return found
