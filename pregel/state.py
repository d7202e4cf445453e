"""What is kept of a thread, shown as snapshots (rules 9.1, 9.2)."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar

from . import rules, stored
from .call import checked_config, graph_at, number_of
from .checkpoint import Found, Key, Saved, Saver
from .effects import Load, Program, load
from .errors import GraphChangedError, InvalidRequestError, NoCheckpointerError
from .head import Head
from .interrupt import Interrupt
from .locate import locate
from .namespace import is_memory, join, owner, without_ids
from .scope import Graph, checkpoint_text, is_of
from .standin import StandIn
from .task import Cancelled, Done, Ending, Failed, Interrupted, NodeTask
from .types import RunConfig, StateSnapshot, TaskSnapshot

T = TypeVar("T")
Shape = Graph | StandIn
"""What is read of a graph."""


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


class _Reading(Generic[T]):
    """A program that only reads: what it asks for next, or what it has returned."""

    result: T

    def __init__(self, place: Place, program: Program[T]) -> None:
        self._thread_id = place.key.thread_id
        self._program = program
        self.ask = self._after(None)

    def tell(self, found: Found) -> None:
        """Go on with what was found."""
        self.ask = self._after(found)

    def _after(self, found: Found | None) -> tuple[Key, Collection[int] | None] | None:
        try:
            ask = self._program.send(found)
        except StopIteration as end:
            self.result = end.value
            return None
        assert isinstance(ask, Load), "a program that reads does nothing else"
        return Key(self._thread_id, ask.namespace, ask.number), ask.epochs


def read(place: Place, program: Program[T]) -> T:
    """Run a program that only reads."""
    reading = _Reading(place, program)
    while reading.ask is not None:
        reading.tell(place.saver.get(*reading.ask))
    return reading.result


async def aread(place: Place, program: Program[T]) -> T:
    """Do `read` without blocking the event loop."""
    reading = _Reading(place, program)
    while reading.ask is not None:
        reading.tell(await place.saver.aget(*reading.ask))
    return reading.result


def snapshot(graph: Graph, key: Key, namespaces: Sequence[str] | None = None) -> Program[StateSnapshot]:
    """Read a state, with those of the graphs below it if the thread's `namespaces` are given.

    An unknown thread gives an empty snapshot.
    """
    if key.checkpoint_id is None:
        at = yield from locate(key.namespace, graph.serializer)
        root, found = at.root, at.found
    else:
        found = yield from load(key.namespace, key.checkpoint_id)
        root = (yield from load("")) if key.namespace else found
    if root.saved is None or found.saved is None:
        return StateSnapshot({}, (), _config(key, None), {}, None, None, (), (), None)
    answered = _answered(root.saved)
    state = shown(graph_of(graph, key.namespace, found.saved), key, found.saved, answered)
    if namespaces is None:
        return state
    below = _Below(graph, key.thread_id, root.saved.checkpoint.line, answered, namespaces)
    return (yield from below.filled(state, key.namespace, found.saved))


def _answered(root: Saved) -> Container[str]:
    answers, passed = stored.answers_of(root)
    return answers.keys() | passed


def graph_of(graph: Graph, namespace: str, saved: Saved) -> Shape:
    """Return the graph that a namespace belongs to, or what can be told of it."""
    known = graph_at(graph, namespace)
    if known is not None:
        return known
    return graph if is_of(saved.checkpoint, graph) else StandIn(saved, graph.serializer)


class _Below:
    """Reads the states of the graphs that tasks have called, down to the last."""

    def __init__(
        self, graph: Graph, thread_id: str, line: tuple[int, ...], answered: Container[str], namespaces: Sequence[str]
    ) -> None:
        self._graph = graph
        self._thread_id = thread_id
        self._line = line
        self._answered = answered
        self._called: dict[str, list[str]] = {}
        for namespace in namespaces:
            self._called.setdefault(owner(namespace), []).append(namespace)

    def filled(self, state: StateSnapshot, namespace: str, saved: Saved) -> Program[StateSnapshot]:
        """Return a state with the states below it."""
        tasks = []
        for task in state.tasks:
            children = yield from self._children(join(namespace, task.id), saved.checkpoint.line)
            tasks.append(replace(task, children=children))
        return replace(state, tasks=tuple(tasks))

    def _children(self, task: str, line: tuple[int, ...]) -> Program[tuple[StateSnapshot, ...]]:
        states = []
        for namespace in [*self._called.get(task, ()), *self._called.get(without_ids(task), ())]:
            found = yield from load(namespace, None, self._line if is_memory(namespace) else line)
            if found.saved is None or (is_memory(namespace) and self._calling_task(found.saved) != task):
                continue
            graph, key = graph_of(self._graph, namespace, found.saved), Key(self._thread_id, namespace)
            state = shown(graph, key, found.saved, self._answered)
            states.append((yield from self.filled(state, namespace, found.saved)))
        return tuple(states)

    def _calling_task(self, saved: Saved) -> str:
        return stored.calling_task(saved, self._graph.serializer)


def open_questions(state: StateSnapshot) -> list[Interrupt]:
    """Return the questions of a root state that wait for an answer; those of the graphs below are among them."""
    return [interrupt for interrupt in state.interrupts if interrupt.when == "inside"]


def shown(graph: Shape, key: Key, saved: Saved, answered: Container[str]) -> StateSnapshot:
    """Return one stored checkpoint as a snapshot. Raises GraphChangedError."""
    if isinstance(graph, StandIn):
        saved = graph.saved
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


def _tasks(graph: Shape, head: Head) -> list[NodeTask]:
    if gone := [name for name in head.waiting if name not in graph.nodes]:
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


def _stalled(graph: Shape, head: Head) -> Mapping[str, tuple[str, ...]]:
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
        self._graph = graph
        self._key = key
        self._filter = filter
        self._left = limit

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self._left is not None and self._left <= 0

    def shown(self, saved: Saved) -> Iterator[StateSnapshot]:
        """Yield the state if it is wanted."""
        state = shown(graph_of(self._graph, self._key.namespace, saved), self._key, saved, _answered(saved))
        if all(name in state.metadata and state.metadata[name] == value for name, value in self._filter.items()):
            if self._left is not None:
                self._left -= 1
            yield state
