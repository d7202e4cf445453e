"""Pregel: the façade that a user calls."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any, Generic, TypeVar, Unpack

from . import call as calls
from . import child, state, validate
from .attempt import Attempt, enclosing
from .channels import (
    MISSING,
    BarrierChannel,
    BinaryOperatorAggregate,
    Channel,
    Topic,
    TriggerChannel,
)
from .checkpoint import Saver, Serializer
from .drive import adrive, drive
from .errors import GraphValidationError
from .head import SCHEDULING
from .interrupt import Interrupt
from .request import Change, Continue, Outcome
from .schema import storable_types
from .stream import StreamModes, shaped, shaped_events
from .task import PregelNode
from .types import Command, Isolation, RunConfig, RunOptions, StateSnapshot, StateUpdate

StateT = TypeVar("StateT")


class Pregel(Generic[StateT]):
    """A compiled graph: immutable, safe to share between threads and concurrent runs.

    `StateGraph.compile` makes one; made by hand it is the low-level engine: `nodes` with their `triggers` (channels
    whose change makes a node due) and `writes` (scheduling channels and nodes that a finished run sends to), `channels`
    for state and scheduling, `entry` for the nodes that an input wakes. Raises GraphValidationError for names that lead
    nowhere.
    """

    is_pregel_graph = True

    def __init__(
        self,
        nodes: Iterable[PregelNode],
        channels: Mapping[str, Channel],
        *,
        entry: Sequence[str] = (),
        input_keys: Iterable[str] | None = None,
        output_keys: Iterable[str] | None = None,
        types: Iterable[Any] = (),
        checkpointer: Saver | bool | None = None,
        interrupt_before: Sequence[str] | str = (),
        interrupt_after: Sequence[str] | str = (),
        interrupt_before_edge: bool = False,
        isolation: Isolation = "shallow",
        store: Any = None,
        name: str = "graph",
    ) -> None:
        scheduling = {n: c for n, c in channels.items() if isinstance(c, (TriggerChannel, BarrierChannel))}
        self.name = name
        self.channels = MappingProxyType({n: c for n, c in channels.items() if n not in scheduling})
        self.barriers = MappingProxyType({n: c for n, c in scheduling.items() if isinstance(c, BarrierChannel)})
        self.scheduling = MappingProxyType({**SCHEDULING, **self.barriers})
        self.nodes = MappingProxyType(_resolved(nodes, scheduling))
        self.entry = tuple(entry)
        if lost := [name for name in self.entry if name not in self.nodes]:
            raise GraphValidationError(f"the entry names {lost}, which is no node; known are {[*self.nodes]}")
        for node in self.nodes.values():
            if lost := [name for name in node.triggers if name not in channels]:
                raise GraphValidationError(f"node {node.name!r} is triggered by {lost}, which is no channel")
        self.subscribers = MappingProxyType(_subscribers(self.nodes.values(), scheduling))
        self.reduced = frozenset(n for n, c in self.channels.items() if isinstance(c, (BinaryOperatorAggregate, Topic)))
        self.input_keys = None if input_keys is None else frozenset(input_keys)
        self.output_keys = None if output_keys is None else frozenset(output_keys)
        self.checkpointer = None if isinstance(checkpointer, bool) else checkpointer
        self.memory = checkpointer if isinstance(checkpointer, bool) else None
        self.pauses = validate.pauses_of(interrupt_before, interrupt_after, interrupt_before_edge, self.nodes)
        self.isolation: Isolation = isolation
        self.store = store
        self.types = frozenset(kind for hint in types for kind in storable_types(hint)) | frozenset(
            kind for node in self.nodes.values() if node.kind == "graph" for kind in node.fn.types
        )
        self.serializer = Serializer(self.types)
        self.fingerprint = _fingerprint(self.nodes, channels)
        # channels that start with a value, so that a run does not ask all of them
        self._seeded = tuple((n, c) for n, c in self.channels.items() if c.initial() is not MISSING)

    def initial(self) -> dict[str, Any]:
        """Return fresh first values of the channels that have one (rule 2.3)."""
        return {name: channel.initial() for name, channel in self._seeded}

    def with_checkpointer(self, saver: Saver | None) -> Pregel[StateT]:
        """Return the same graph with another place to keep its state; this one stays as it is."""
        other = copy(self)
        other.checkpointer, other.memory = saver, None
        return other

    def __repr__(self) -> str:
        return f"Pregel({self.name!r}, nodes={[*self.nodes]})"

    # --- running ------------------------------------------------------------------------------------------------

    def invoke(
        self,
        input: StateT | Mapping[str, Any] | Command | None,
        config: Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> dict[str, Any]:
        """Run to the end or to the next pause and return the output.

        A new input starts a run, None goes on with what is unfinished or paused (rule 5.5), a Command answers or edits.
        The result has "__interrupt__", a list of Interrupt, exactly when the run is paused (rule 6.4). Inside a node it
        runs the graph as a child of that node. Raises what a node raised, or an error of this package; nothing is
        written by a call that is refused.
        """
        attempt = enclosing()
        if attempt is not None and child.is_nested(config, options):
            request = child.called_with(self, input, options)
            return child.returned(self, child.run_child(self, attempt, request, options.get("key"), as_node=False))
        call = calls.prepare(self, calls.request_of(self, input, options), config, options)
        return calls.result(self, call.run())

    async def ainvoke(
        self,
        input: StateT | Mapping[str, Any] | Command | None,
        config: Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> dict[str, Any]:
        """Do `invoke` on the running event loop; sync nodes run on threads."""
        attempt = enclosing()
        if attempt is not None and child.is_nested(config, options):
            request = child.called_with(self, input, options)
            outcome = await child.arun_child(self, attempt, request, options.get("key"), as_node=False)
            return child.returned(self, outcome)
        call = calls.prepare(self, calls.request_of(self, input, options), config, options)
        return calls.result(self, await call.arun())

    def stream(
        self,
        input: StateT | Mapping[str, Any] | Command | None,
        config: Mapping[str, Any] | None = None,
        *,
        stream_mode: StreamModes = "values",
        subgraphs: bool = False,
        **options: Unpack[RunOptions],
    ) -> Iterator[Any]:
        """Run like `invoke` and yield what happens as it happens (rule 13.1).

        "values" yields the whole state after each step, "updates" `{node: update}` for each task, "custom" what nodes
        write. With a list of modes each item is `(mode, data)`; with `subgraphs` a tuple of task ids comes first.
        Closing the iterator stops the run; it can be resumed.
        """
        child.check_no_stream(self, config, options)
        call = calls.prepare(self, calls.request_of(self, input, options), config, options)
        shape = shaped(call, stream_mode, subgraphs)
        outcome = yield from shaped_events(drive(call.scope, call.request, call.number), shape)
        calls.result(self, outcome)

    async def astream(
        self,
        input: StateT | Mapping[str, Any] | Command | None,
        config: Mapping[str, Any] | None = None,
        *,
        stream_mode: StreamModes = "values",
        subgraphs: bool = False,
        **options: Unpack[RunOptions],
    ) -> AsyncIterator[Any]:
        """Do `stream` on the running event loop."""
        child.check_no_stream(self, config, options)
        call = calls.prepare(self, calls.request_of(self, input, options), config, options)
        shape = shaped(call, stream_mode, subgraphs)
        run = adrive(call.scope, call.request, call.number)
        try:
            async for item in run:
                if isinstance(item, Outcome):
                    calls.result(self, item)
                else:
                    yield shape(item)
        finally:
            await run.aclose()

    def resume(
        self,
        value: Any = MISSING,
        config: Mapping[str, Any] | None = None,
        *,
        answers: Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> dict[str, Any]:
        """Answer: `value` for the one pending question, or `answers` by interrupt id (rule 6.6).

        Raises InvalidAnswerError, with nothing written, if they do not fit.
        """
        call = calls.prepare(self, calls.answer_of(value, answers), config, options)
        return calls.result(self, call.run())

    async def aresume(
        self,
        value: Any = MISSING,
        config: Mapping[str, Any] | None = None,
        *,
        answers: Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> dict[str, Any]:
        """Do `resume` on the running event loop."""
        call = calls.prepare(self, calls.answer_of(value, answers), config, options)
        return calls.result(self, await call.arun())

    def recover(self, config: Mapping[str, Any] | None = None, **options: Unpack[RunOptions]) -> dict[str, Any]:
        """Go on with what a crash left unfinished, but stop at a recorded pause (rules 7.6, 10.2)."""
        return calls.result(self, calls.prepare(self, Continue(passing=False), config, options).run())

    async def arecover(self, config: Mapping[str, Any] | None = None, **options: Unpack[RunOptions]) -> dict[str, Any]:
        """Do `recover` on the running event loop."""
        call = calls.prepare(self, Continue(passing=False), config, options)
        return calls.result(self, await call.arun())

    def fork(self, config: Mapping[str, Any] | None = None, **options: Unpack[RunOptions]) -> dict[str, Any]:
        """Run again from an older checkpoint, as a new branch of the history (rule 9.4)."""
        return calls.result(self, calls.prepare_fork(self, config, options).run())

    async def afork(self, config: Mapping[str, Any] | None = None, **options: Unpack[RunOptions]) -> dict[str, Any]:
        """Do `fork` on the running event loop."""
        call = calls.prepare_fork(self, config, options)
        return calls.result(self, await call.arun())

    # --- state ----------------------------------------------------------------------------------------------------

    def get_state(
        self, config: Mapping[str, Any] | None = None, subgraphs: bool = False, *, thread_id: str | None = None
    ) -> StateSnapshot:
        """Return the state of a thread at its head, or at the checkpoint that `config` names (rule 9.1).

        With `subgraphs`, each task has the states of the graphs that it has called, and those of theirs. `config` may
        name a nested namespace as `checkpoint_ns`; the state of a graph that a function calls is shown as it is stored.
        """
        place = state.place_of(self, config, thread_id)
        names = place.saver.namespaces(place.key.thread_id) if subgraphs else None
        return state.read(place, state.snapshot(self, place.key, names))

    async def aget_state(
        self, config: Mapping[str, Any] | None = None, subgraphs: bool = False, *, thread_id: str | None = None
    ) -> StateSnapshot:
        """Do `get_state` without blocking the event loop."""
        place = state.place_of(self, config, thread_id)
        names = await place.saver.anamespaces(place.key.thread_id) if subgraphs else None
        return await state.aread(place, state.snapshot(self, place.key, names))

    def pending(self, thread_id: str) -> list[Interrupt]:
        """Return the questions of a thread that can be answered, over all namespaces (rule 6.5).

        Each says its `id`, `node`, `namespace`, `value` (the payload) and `asked_at`. Static pauses are no questions.
        """
        return state.open_questions(self.get_state(thread_id=thread_id))

    async def apending(self, thread_id: str) -> list[Interrupt]:
        """Do `pending` without blocking the event loop."""
        return state.open_questions(await self.aget_state(thread_id=thread_id))

    def get_state_history(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        thread_id: str | None = None,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> Iterator[StateSnapshot]:
        """Yield the states of a thread, newest first, read as they are asked for (rule 9.2).

        `filter` keeps those whose metadata has these values, `before` those older than a checkpoint.
        """
        place = state.place_of(self, config, thread_id)
        wanted = state.Wanted(self, place.key, filter or {}, limit)
        for saved in place.saver.list(place.key, before=state.number_in(before)):
            if wanted.is_full:
                return
            yield from wanted.shown(saved)

    async def aget_state_history(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        thread_id: str | None = None,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[StateSnapshot]:
        """Do `get_state_history` without blocking the event loop."""
        place = state.place_of(self, config, thread_id)
        wanted = state.Wanted(self, place.key, filter or {}, limit)
        async for saved in place.saver.alist(place.key, before=state.number_in(before)):
            if wanted.is_full:
                return
            for snapshot in wanted.shown(saved):
                yield snapshot

    def update_state(
        self,
        config: Mapping[str, Any] | None,
        values: StateT | Mapping[str, Any] | None,
        as_node: str | None = None,
        *,
        task_id: str | None = None,
        thread_id: str | None = None,
    ) -> RunConfig:
        """Change the state as a new checkpoint and return its config (rule 9.3).

        Without `as_node` pending tasks, their ids and pauses stay: fix the state, then resume. With it the last outcome
        of that node is replaced: what its last run has sent and nobody has used yet is withdrawn, with the questions of
        tasks that nothing else has woken, and its edges and routers are decided on the new state. `END` clears what is
        pending, `START` enters anew. A node that only Send reaches needs the `task_id` of the packet that is meant.

        Raises NoCheckpointError on a thread with nothing stored, InvalidUpdateError for what the state refuses, and
        what a router raises; nothing is written then.
        """
        call = calls.prepare_edit(self, config, [[Change(values, as_node, task_id)]], thread_id)
        return calls.config_after(call, call.run())

    async def aupdate_state(
        self,
        config: Mapping[str, Any] | None,
        values: StateT | Mapping[str, Any] | None,
        as_node: str | None = None,
        *,
        task_id: str | None = None,
        thread_id: str | None = None,
    ) -> RunConfig:
        """Do `update_state` without blocking the event loop."""
        call = calls.prepare_edit(self, config, [[Change(values, as_node, task_id)]], thread_id)
        return calls.config_after(call, await call.arun())

    def bulk_update_state(
        self,
        config: Mapping[str, Any] | None,
        supersteps: Sequence[Sequence[StateUpdate]],
        *,
        thread_id: str | None = None,
    ) -> RunConfig:
        """Do several `update_state` in one transaction: one checkpoint for each super-step of updates (rule 9.3)."""
        call = calls.prepare_edit(self, config, calls.changes_of(supersteps), thread_id)
        return calls.config_after(call, call.run())

    async def abulk_update_state(
        self,
        config: Mapping[str, Any] | None,
        supersteps: Sequence[Sequence[StateUpdate]],
        *,
        thread_id: str | None = None,
    ) -> RunConfig:
        """Do `bulk_update_state` without blocking the event loop."""
        call = calls.prepare_edit(self, config, calls.changes_of(supersteps), thread_id)
        return calls.config_after(call, await call.arun())

    # --- as a child -----------------------------------------------------------------------------------------------

    def run_child(self, attempt: Attempt, view: Any) -> Any:
        """Run this graph as the node of another and return what its nodes wrote, or a command (rule 8.1)."""
        outcome = child.run_child(self, attempt, child.started_with(self, view), None, as_node=True)
        return child.handed_back(self, attempt, outcome)

    async def arun_child(self, attempt: Attempt, view: Any) -> Any:
        """Do `run_child` on the running event loop."""
        outcome = await child.arun_child(self, attempt, child.started_with(self, view), None, as_node=True)
        return child.handed_back(self, attempt, outcome)


def _resolved(nodes: Iterable[PregelNode], scheduling: Mapping[str, Channel]) -> dict[str, PregelNode]:
    """Return the nodes by name, in order, each with its writes sorted into targets and barriers."""
    by_name = {}
    for order, given in enumerate(nodes):
        node = given.wired(given.writes, given.routers)
        if node.name in by_name:
            raise GraphValidationError(f"node {node.name!r} is given twice")
        node.order = order
        by_name[node.name] = node
    for node in by_name.values():
        targets, joins = [], []
        for name in node.writes:
            channel = scheduling.get(name)
            if isinstance(channel, BarrierChannel):
                joins.append(name)
            else:
                targets.append(channel.target if isinstance(channel, TriggerChannel) else name)
        wanted = [*targets, *(scheduling[name].target for name in joins)]  # type: ignore[attr-defined] # barriers
        if unknown := [name for name in wanted if name not in by_name]:
            raise GraphValidationError(
                f"node {node.name!r} writes to {unknown}, which is no node or scheduling channel"
            )
        node.targets, node.joins = tuple(dict.fromkeys(targets)), tuple(joins)
    return by_name


def _subscribers(nodes: Iterable[PregelNode], scheduling: Mapping[str, Channel]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        for name in node.triggers:
            if name not in scheduling:  # a scheduling channel names its target itself
                found[name] = (*found.get(name, ()), node.name)
    return found


def _fingerprint(nodes: Iterable[str], channels: Iterable[str]) -> str:
    text = "\0".join([*sorted(nodes), "", *sorted(channels)])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
