"""Where a run stands: the checkpoint it is at, decoded. Owned by the loop, changed between super-steps only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .channels import AnyValue, Channel, Topic, VersionedChannels
from .checkpoint import Growth, Source, Status
from .interrupt import Interrupt
from .types import Command

SENDS = "__sends__"
"""The scheduling channel that holds the packets of the next step."""
WROTE = "__wrote__"
"""The scheduling channel that holds what a child graph wrote to keys that its parent reduces (rule 8.1)."""

MEMORY = "__memory__"
"""The scheduling channel that points to the memories of child graphs: namespace to checkpoint number (rule 8.5)."""

SCHEDULING: dict[str, Channel] = {SENDS: AnyValue(), WROTE: Topic(accumulate=True), MEMORY: AnyValue()}

Packet = tuple[int, int, str, Any, bytes | None, str]
"""Activation, index, then as `task.Sent`, and the task that sent it."""
Due = tuple[int, dict[str, None]]
"""Activation, and who woke the node, in order."""
Withheld = tuple[str, int, int]
"""A node that has run and whose edges wait for a pause to be passed: name, activation, index (rule 7.3)."""


class Head:
    """The state of one namespace of a run.

    `due` holds the nodes with an unspent message, by name; packets lie in the scheduling channels; `withheld` the
    nodes that have run and whose edges are to be decided before anything else runs. `line` is the
    checkpoints of this super-step whose records count, `began` the number of the last input commit, `reasons` the
    static pauses that the run has reached, `handover` the command that ended a child (rule 4.2).
    """

    __slots__ = (
        "began",
        "called_by",
        "channels",
        "discarded",
        "due",
        "epoch",
        "growth",
        "handover",
        "line",
        "number",
        "parent",
        "reasons",
        "restored",
        "scheduling",
        "source",
        "status",
        "step",
        "unlisted",
        "withheld",
    )

    def __init__(
        self, channels: Mapping[str, Channel], scheduling: Mapping[str, Channel], initial: Mapping[str, Any]
    ) -> None:
        self.number = 0
        self.parent = 0
        self.step = 0
        self.source: Source = "input"
        self.status: Status = "running"
        self.channels = VersionedChannels(channels, initial)
        self.scheduling = VersionedChannels(scheduling)
        self.due: dict[str, Due] = {}
        self.growth: dict[str, Growth] = {}  # how values that grow are stored
        self.withheld: tuple[Withheld, ...] = ()
        self.line: tuple[int, ...] = ()
        self.epoch = 0
        self.began = 0
        self.reasons: tuple[Interrupt, ...] = ()
        self.discarded: tuple[str, ...] = ()
        self.handover: Command | None = None
        self.called_by = ""  # the task that called a child with a memory
        self.restored = False  # read back, and not yet through a barrier: its tasks may have run before
        self.unlisted = 0  # changes of versions since a checkpoint listed all of them

    @property
    def packets(self) -> list[Packet]:
        """The packets that are due."""
        return self.scheduling.values.get(SENDS) or []

    @property
    def waiting(self) -> list[str]:
        """The names of the nodes that are to run, or whose edges are to be decided, each once."""
        return list(dict.fromkeys([*(item[0] for item in self.withheld), *self.due, *(p[2] for p in self.packets)]))

    @property
    def memory(self) -> dict[str, int]:
        """Where the memories of child graphs stand; never changed in place."""
        return self.scheduling.values.get(MEMORY) or {}

    def advance(self, number: int, source: Source, *, keep_line: bool) -> None:
        """Move on to a new checkpoint; a run that goes on in the same super-step keeps the line."""
        self.parent = self.number
        self.number = number
        self.source = source
        self.line = (*self.line, number) if keep_line else (number,)
        self.discarded = ()
        self.restored = self.restored and keep_line
