"""Where a run stands, and how it writes that: its place, its head, its checkpoints and records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import answers, pauses, rules, stored
from .checkpoint import Commit, Saved, TaskRecord
from .effects import Emit, Event, Program, Put, Stop
from .errors import GraphChangedError
from .head import Head
from .interrupt import merge
from .request import Halted, Outcome
from .scope import Scope
from .task import Done, Ending, Interrupted, NodeTask


class Standing:
    """A run in one namespace: the part that every way to begin, and every step, stands on."""

    __slots__ = ("earlier", "graph", "head", "saving", "scope", "top")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.graph = scope.graph
        self.saving = scope.saving
        self.head = self.fresh_head()
        self.top = 0  # the highest number of the namespace
        self.earlier: dict[str, Ending] | None = None  # how the tasks of the first step ended in an earlier run

    def restore(self, saved: Saved) -> None:
        """Take over what was read. Raises GraphChangedError (rule 9.7)."""
        head = self.fresh_head()
        missing = [f"channel {name!r}" for name in stored.missing_channels(saved, head)]
        if not missing:
            stored.restore(head, saved, self.graph.serializer)
            missing = [f"node {name!r}" for name in head.waiting if name not in self.graph.nodes]
        if missing:
            raise GraphChangedError(
                f"thread {self.scope.root.thread_id!r}, checkpoint {saved.checkpoint.id}: the graph no longer has "
                f"{', '.join(missing)}",
                hint="bring them back, or start the thread anew",
                missing=tuple(missing),
            )
        self.head = head
        self.earlier = stored.endings_of(saved, rules.plan(self.graph, head), self.graph.serializer)

    def fresh_head(self) -> Head:
        """Return the head of a namespace in which nothing is stored."""
        head = Head(self.graph.channels, self.graph.scheduling, self.graph.initial())
        head.epoch = self.scope.epoch
        return head

    def show(self) -> Program[None]:
        """Emit the values of a checkpoint that was just reached; those of a pause are shown with it."""
        if "values" in self.scope.modes and self.head.status != "paused":
            yield Emit(Event("values", rules.output(self.graph, self.head), self.scope.namespace))

    def settle(self, ran: Sequence[Done] = ()) -> None:
        """Decide how things stand at the checkpoint that was just reached, after the tasks that ran."""
        scope = self.scope
        pauses.settle(self.graph, self.head, scope.pauses, ran, scope.namespace, scope.root.passed)

    def reached(self) -> Outcome | None:
        """Return how the run ends at the checkpoint that it has reached, None if it goes on."""
        status = self.head.status
        if status == "paused":
            return self.paused({})
        return None if status == "running" else Outcome(status, self.head)

    def passes(self, waits: Iterable[Interrupted]) -> set[str]:
        """Return the ids of the static pauses that the run stands at and has not passed, those of children included."""
        static = [i for ending in waits for i in ending.interrupts if i.when != "inside"]
        return {i.id or "" for i in (*self.head.reasons, *static)} - self.scope.root.passed

    def pass_records(self, passes: set[str]) -> list[TaskRecord]:
        """Return the records of static pauses that are passed now."""
        return [TaskRecord("", self.top, id_, "passed", b"") for id_ in sorted(passes)]

    def split(self, tasks: Sequence[NodeTask]) -> answers.Split:
        """Sort tasks by how they ended in an earlier run."""
        root = self.scope.root
        return answers.split(tasks, self.earlier or {}, root.answers.keys() | root.passed)

    def put(
        self, records: Sequence[TaskRecord] = (), *, begins: bool = False, known: stored.Encoded = stored.NO_BYTES
    ) -> Program[None]:
        """Write the checkpoint that the head has just reached, with records. Raises Halted."""
        if self.saving:
            reply: Stop | None = yield Put((self.commit(known),), records, begins)
            if reply is not None:
                raise Halted(reply.error)

    def commit(self, known: stored.Encoded = stored.NO_BYTES) -> Commit:
        """Return the checkpoint that the head has just reached; `known` has the bytes of values encoded before."""
        scope, graph = self.scope, self.graph
        return stored.commit_of(
            self.head,
            graph.serializer,
            known,
            namespace=scope.namespace,
            parent_namespace=scope.namespace if self.head.parent else scope.parent_namespace,
            caller=graph.name,
            fingerprint=graph.fingerprint,
            metadata=scope.root.metadata,
        )

    def put_records(self, endings: Sequence[Ending]) -> Program[None]:
        """Write how tasks have ended. Raises Halted."""
        if self.saving and endings:
            reply: Stop | None = yield Put((), self.records(endings))
            if reply is not None:
                raise Halted(reply.error)

    def records(self, endings: Sequence[Ending]) -> list[TaskRecord]:
        """Return the records of endings, under the present checkpoint."""
        number, namespace, serializer = self.head.number, self.scope.namespace, self.graph.serializer
        return [stored.record_of(ending, ending.task.id, namespace, number, serializer) for ending in endings]

    def paused(self, waits: Mapping[str, Interrupted]) -> Outcome:
        """Return how the run stands when it is paused: the static pauses, then the questions still open."""
        asked = merge(ending.interrupts for ending in waits.values())
        answered = self.scope.root.answers
        left = [i for i in asked if i.when != "inside" or i.id not in answered]
        return Outcome("paused", self.head, (*self.head.reasons, *left))

    def bound(self) -> dict[str, Any]:
        """Return what a log line says of this run."""
        # not "thread": a standard log record has an attribute of that name, and refuses a second one
        return {"thread_id": self.scope.root.thread_id, "namespace": self.scope.namespace, "step": self.head.step}

    def began(self) -> Program[Outcome | None]:
        """Write the checkpoint with which a run begins; return how it has ended if it has."""
        yield from self.put(begins=not self.scope.nested)
        yield from self.show()
        return self.reached()
