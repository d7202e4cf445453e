"""A graph as far as a checkpoint tells: what reads the state of a graph that is not at hand.

A graph that a function calls is known when it is called; whoever reads its state later has its checkpoints only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import stored
from .channels import AnyValue, BarrierChannel, Channel
from .checkpoint import Saved, Serializer
from .head import SCHEDULING
from .task import PregelNode


class StandIn:
    """The nodes that are due, in the order they are stored, and one plain channel for each value that can be told.

    A value that only the reducer of its graph can fold together is left out.
    """

    output_keys = None

    def __init__(self, saved: Saved, serializer: Serializer) -> None:
        self.name = saved.checkpoint.caller
        self.serializer = serializer
        told: dict[str, Channel] = {}
        rest: dict[str, Channel] = {}
        for name in saved.versions:
            hidden = name.startswith("__") or stored.needs_reducer(saved, name, serializer)
            (rest if hidden else told)[name] = AnyValue()
        self.channels: Mapping[str, Channel] = told
        self.scheduling: Mapping[str, Channel] = {**rest, **SCHEDULING}
        self.barriers: Mapping[str, BarrierChannel] = {}
        self.entry: tuple[str, ...] = ()
        self.subscribers: Mapping[str, tuple[str, ...]] = {}
        self.nodes = {name: PregelNode(name, _not_here) for name in stored.waiting_nodes(saved, serializer)}
        for order, node in enumerate(self.nodes.values()):
            node.order = order

    def initial(self) -> dict[str, Any]:
        """Return nothing: what a channel starts with is not known."""
        return {}


def _not_here(state: Any) -> None:
    """Stand for a body that nobody runs."""
