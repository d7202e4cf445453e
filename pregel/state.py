"""What is kept of a thread, shown as snapshots (rules 9.1, 9.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from . import rules, stored
from .call import checked_config, graph_at, number_of
from .checkpoint import Found, Key, Saved, Saver
from .errors import GraphChangedError, InvalidRequestError, NoCheckpointerError
from .head import Head
from .interrupt import Interrupt
from .scope import Graph, checkpoint_text, levels
from .task import Cancelled, Done, Ending, Failed, Interrupted, NodeTask
from .types import RunConfig, StateSnapshot, TaskSnapshot


class Place(NamedTuple):
    """Where state lies."""

    saver: Saver
    key: Key


def place_of(graph: Graph, config: Mapping[str, Any] | None, thread_id: str | None) -> Place:
    """Return the place that a config names. Raises NoCheckpointerError, InvalidRequestError."""
    if graph.checkpointer is None:
        raise NoCheckpointerError("no checkpointer: the graph keeps no state", hint="compile(checkpointer=...)")
    configurable = checked_config(config).get("configurable", {})
    thread = thread_id if thread_id is not None else configurable.get("thread_id")
    if not isinstance(thread, str) or not thread:
        raise InvalidRequestError("which thread?", hint='pass thread_id="..."')
    namespace = configurable.get("checkpoint_ns", "")
    return Place(graph.checkpointer, Key(thread, namespace, number_of(configurable.get("checkpoint_id"))))


def number_in(config: Mapping[str, Any] | None) -> int | None:
    """Return the checkpoint number that a config names, if any."""
    return number_of(checked_config(config).get("configurable", {}).get("checkpoint_id"))


def read(place: Place) -> Found:
    """Read the checkpoint of a place; below the root, the one that the present line of its callers knows."""
    if place.key.checkpoint_id is not None:
        return place.saver.get(place.key)
    found = place.saver.get(Key(place.key.thread_id))
    for namespace in levels(place.key.namespace):
        if found.saved is not None:
            found = place.saver.get(Key(place.key.thread_id, namespace), found.saved.checkpoint.line)
    return found


async def aread(place: Place) -> Found:
    """Do `read` without blocking the event loop."""
    if place.key.checkpoint_id is not None:
        return await place.saver.aget(place.key)
    found = await place.saver.aget(Key(place.key.thread_id))
    for namespace in levels(place.key.namespace):
        if found.saved is not None:
            found = await place.saver.aget(Key(place.key.thread_id, namespace), found.saved.checkpoint.line)
    return found


def snapshot(graph: Graph, place: Place, found: Found) -> StateSnapshot:
    """Return what a read found; an unknown thread gives an empty snapshot."""
    graph = graph_at(graph, place.key.namespace)
    if found.saved is None:
        return StateSnapshot({}, (), _config(place.key, None), {}, None, None, (), (), None)
    return shown(graph, place.key, found.saved)


def shown(graph: Graph, key: Key, saved: Saved) -> StateSnapshot:
    """Return one stored checkpoint as a snapshot. Raises GraphChangedError."""
    checkpoint = saved.checkpoint
    head = Head(graph.channels, graph.scheduling, graph.initial())
    if missing := stored.missing_channels(saved, head):
        raise GraphChangedError(
            f"checkpoint {checkpoint.id} of thread {key.thread_id!r} holds {missing}, which the graph no longer has",
            missing=tuple(missing),
        )
    stored.restore(head, saved, graph.serializer)
    tasks = _tasks(graph, head)
    endings = stored.endings_of(saved, tasks, graph.serializer)
    answers, passed = stored.answers_of(saved)
    answered = answers.keys() | passed
    shown_tasks = tuple(_task(task, endings.get(task.id), answered) for task in tasks)
    asked = [interrupt for task in shown_tasks for interrupt in task.interrupts]
    metadata = {
        **graph.serializer.decode(checkpoint.metadata),
        "source": checkpoint.source,
        "step": checkpoint.step,
        **({"discarded": list(head.discarded)} if head.discarded else {}),
    }
    return StateSnapshot(
        values=rules.output(graph, head),
        next=tuple(dict.fromkeys(task.name for task in shown_tasks if task.status != "done")),
        config=_config(key, checkpoint.id),
        metadata=metadata,
        created_at=datetime.fromtimestamp(checkpoint.created_at, UTC).isoformat(),
        parent_config=_config(key, checkpoint.parent_id) if checkpoint.parent_id else None,
        tasks=shown_tasks,
        interrupts=(*head.reasons, *asked),
        status=checkpoint.status,
        stalled=_stalled(graph, head) if checkpoint.status == "done" else {},
    )


def _tasks(graph: Graph, head: Head) -> list[NodeTask]:
    if gone := [name for name in [*(name for name, _, _ in head.withheld), *head.due] if name not in graph.nodes]:
        raise GraphChangedError(f"the graph no longer has the pending {gone}", missing=tuple(gone))
    return rules.pending(graph, head)


def _task(task: NodeTask, ending: Ending | None, answered: Any) -> TaskSnapshot:
    name = task.label
    if isinstance(ending, Done):
        return TaskSnapshot(task.id, name, "done", result={key: value for key, value, _ in ending.writes})
    if isinstance(ending, Failed):
        return TaskSnapshot(task.id, name, "failed", error=ending.error)
    if isinstance(ending, Cancelled):
        return TaskSnapshot(task.id, name, "cancelled")
    if isinstance(ending, Interrupted) and (left := _unanswered(ending, answered)):
        return TaskSnapshot(task.id, name, "interrupted", interrupts=left, error=ending.error)
    return TaskSnapshot(task.id, name, "pending")


def _unanswered(ending: Interrupted, answered: Any) -> tuple[Interrupt, ...]:
    return tuple(interrupt for interrupt in ending.interrupts if interrupt.id not in answered)


def _stalled(graph: Graph, head: Head) -> Mapping[str, tuple[str, ...]]:
    values = head.scheduling.values
    return {channel.target: tuple(values[name]) for name, channel in graph.barriers.items() if name in values}


def _config(key: Key, number: int | None) -> RunConfig:
    configurable: dict[str, Any] = {"thread_id": key.thread_id, "checkpoint_ns": key.namespace}
    if number is not None:
        configurable["checkpoint_id"] = checkpoint_text(number)
    return {"configurable": configurable}


class Wanted:
    """Which states of a history are shown: those whose metadata match, up to a limit."""

    __slots__ = ("_filter", "_graph", "_key", "_left")

    def __init__(self, graph: Graph, key: Key, filter: Mapping[str, Any], limit: int | None) -> None:
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise InvalidRequestError(f"limit is a whole number from 0 on, not {limit!r}")
        if not isinstance(filter, Mapping):
            raise InvalidRequestError(f"filter is a mapping of metadata, not {filter!r}")
        self._graph = graph_at(graph, key.namespace)
        self._key = key
        self._filter = filter
        self._left = limit

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self._left is not None and self._left <= 0

    def shown(self, saved: Saved) -> Iterator[StateSnapshot]:
        """Yield the state if it is wanted."""
        state = shown(self._graph, self._key, saved)
        if all(name in state.metadata and state.metadata[name] == value for name, value in self._filter.items()):
            if self._left is not None:
                self._left -= 1
            yield state
