"""A graph as far as a checkpoint tells: what reads the state of a graph that is not at hand.

A graph that a function calls is known when it is called; whoever reads its state later has its checkpoints only. What
cannot be told without the graph is left out: values of types that are not known here, values that only its reducers
can fold together, the input of packets, and what finished tasks wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import stored
from .channels import AnyValue, BarrierChannel, Channel
from .checkpoint import CorruptCheckpointError, Saved, Serializer
from .head import SCHEDULING, SENDS
from .task import Done, NodeTask, PregelNode


class StandIn:
    """The nodes that are due, in the order they are stored, and one plain channel for each value that can be told.

    `saved` is the checkpoint without the rest.
    """

    output_keys = None

    def __init__(self, saved: Saved, serializer: Serializer) -> None:
        self.name = saved.checkpoint.caller
        self.serializer = serializer
        self.nodes = {name: PregelNode(name, _not_here) for name in stored.waiting_nodes(saved, serializer)}
        for order, node in enumerate(self.nodes.values()):
            node.order = order
        self.saved = _told(saved, serializer)
        plain = {name: AnyValue() for name in self.saved.versions if name not in SCHEDULING}
        self.channels: Mapping[str, Channel] = {n: c for n, c in plain.items() if not n.startswith("__")}
        self.scheduling: Mapping[str, Channel] = {**plain, **SCHEDULING}
        self.barriers: Mapping[str, BarrierChannel] = {}
        self.entry: tuple[str, ...] = ()
        self.subscribers: Mapping[str, tuple[str, ...]] = {}

    def initial(self) -> dict[str, Any]:
        """Return nothing: what a channel starts with is not known."""
        return {}


def _told(saved: Saved, serializer: Serializer) -> Saved:
    values = {name: parts for name, parts in saved.values.items() if _is_readable(parts, serializer)}
    if SENDS in values:
        values[SENDS] = (_without_input(values[SENDS][0], serializer),)
    done = stored.record_of(Done(NodeTask(PregelNode("", _not_here)), []), "", "", 0, serializer).data
    records = tuple(r._replace(data=done) if r.kind == "done" else r for r in saved.records)
    versions = {name: version for name, version in saved.versions.items() if name in values}
    return saved._replace(versions=versions, values=values, records=records)


def _is_readable(parts: tuple[bytes, ...], serializer: Serializer) -> bool:
    try:
        _, for_reducer = stored.read_value(parts, serializer, "")
    except CorruptCheckpointError:
        return False  # of a type that only its own graph knows; damage is found when that graph reads it
    return not for_reducer


def _without_input(packets: bytes, serializer: Serializer) -> bytes:
    nothing = serializer.encode(None)
    return serializer.encode([[*packet[:3], nothing, packet[4]] for packet in serializer.decode(packets)])


def _not_here(state: Any) -> None:
    """Stand for a body that nobody runs."""
