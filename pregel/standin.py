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
    """The nodes that are due, in the order they are stored, and one plain channel for each stored value."""

    output_keys = None

    def __init__(self, saved: Saved, serializer: Serializer) -> None:
        self.name = saved.checkpoint.caller
        self.serializer = serializer
        keys = [name for name in saved.versions if name not in SCHEDULING]
        self.channels: Mapping[str, Channel] = {name: AnyValue() for name in keys if not name.startswith("__")}
        joins: Mapping[str, Channel] = {name: AnyValue() for name in keys if name.startswith("__")}
        self.scheduling: Mapping[str, Channel] = {**SCHEDULING, **joins}
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
