"""PregelLoop: the order of a run, written once as a generator of effects.

Nothing here does anything: rules decide, drivers act, and this file fixes what comes after what. Nothing is thrown into
the generator; a stop, a deadline or a failing saver is the reply of an effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import log, rules, stored
from .channels import MISSING
from .checkpoint import Found, Saved, SerializationError, Status, TaskRecord
from .effects import Cancel, Emit, Event, Load, Program, Put, Stop, following, start
from .errors import (
    CallOrderError,
    GraphChangedError,
    GraphRecursionError,
    InvalidUpdateError,
    NoCheckpointerError,
    NoCheckpointError,
    NodeTimeoutError,
    TaskCancelled,
    ThreadPausedError,
)
from .head import Head
from .interrupt import Interrupt, merge
from .scope import Scope
from .task import Cancelled, Done, Ending, Failed, Interrupted, NodeTask, Sent
from .types import INTERRUPT

forgetful = False
"""A switch for tests: forget everything after each super-step and read it back from the saver."""


class Outcome(NamedTuple):
    """How a run ended. `error` is what the call raises when it failed or was cancelled."""

    status: Status | str
    head: Head
    interrupts: tuple[Interrupt, ...] = ()
    error: BaseException | None = None


# --- requests -----------------------------------------------------------------------------------------------------


class Input(NamedTuple):
    """New input; `exact` takes the values instead of folding them (rule 8.1)."""

    values: Mapping[str, Any]
    exact: bool = False
    if_paused: str = "restart"


class Continue(NamedTuple):
    """Go on with what is unfinished; `passing` static pauses, or only recovering (rule 7.6)."""

    passing: bool = True


class Answer(NamedTuple):
    """Answers: `value` for the one pending question, or `by_id`; an update goes into the same commit (rule 4.4)."""

    value: Any = MISSING
    by_id: Mapping[str, Any] | None = None
    update: Mapping[str, Any] | None = None
    exact: bool = False  # `value` is a value for certain, whatever it looks like


class Edit(NamedTuple):
    """Change the state; `run` it too if it came as input. Targets are woken (rules 4.4, 9.3)."""

    values: Mapping[str, Any]
    gotos: Sequence[str] = ()
    sends: Sequence[Sent] = ()
    run: bool = True


Request = Input | Continue | Answer | Edit


class _Halt(Exception):
    """The saver refused or failed: the run ends here and writes nothing more."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class PregelLoop:
    """One run of one graph in one namespace.

    `run(request)` is the program for a driver; it returns an Outcome. A loop serves one run.
    """

    __slots__ = ("earlier", "graph", "head", "left", "saving", "scope", "top")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.graph = scope.graph
        self.saving = scope.root.journal is not None
        self.head = self._fresh_head()
        self.top = 0  # the highest number of the namespace
        self.left = 0  # tasks that have been started and have not ended
        self.earlier: dict[str, Ending] | None = None  # how the tasks of the first step ended in an earlier run

    def run(self, request: Request, number: int | None = None) -> Program[Outcome]:
        """Begin as requested, from the head or from the checkpoint `number`, and go on until the run ends."""
        try:
            ended = yield from self._begin(request, number)
            steps = 0
            while ended is None:
                tasks = rules.plan(self.graph, self.head)
                if steps == self.scope.limit:
                    return (yield from self._out_of_steps())
                steps += 1
                ended = yield from self._step(tasks)
            if ended.status == "paused" and self.scope.modes:
                yield from self._show_pause(ended.interrupts)
            return ended
        except _Halt as halt:
            yield from self._abandon()
            return Outcome("failed", self.head, error=halt.error)

    # --- beginning -----------------------------------------------------------------------------------------------

    def _begin(self, request: Request, number: int | None) -> Program[Outcome | None]:
        scope = self.scope
        found = Found(None, 0, None)
        if self.saving and not scope.fresh:
            found = yield Load(number, scope.epochs)
        self.top = found.top
        saved = found.saved
        if scope.nested:
            return (yield from self._call(request, saved))
        self._check_found(request, found, number)
        forked = number is not None and found.run is not None and number != found.run.head
        if saved is not None:
            self._restore(saved)
            scope.root.answers, scope.root.passed = stored.answers_of(saved)
        if isinstance(request, Input):
            return (yield from self._input(request))
        if isinstance(request, Edit):
            return (yield from self._edit(request, forked))
        if isinstance(request, Answer):
            return (yield from self._answer(request, forked))
        if forked:
            return (yield from self._replay())
        return (yield from self._continue(request))

    def _check_found(self, request: Request, found: Found, number: int | None) -> None:
        thread = self.scope.root.thread_id
        if not self.saving and not isinstance(request, Input):
            raise NoCheckpointerError(
                "no checkpointer: the graph keeps nothing to go on from", hint="compile(checkpointer=...)"
            )
        if found.saved is not None:
            return
        if number is not None:
            raise NoCheckpointError(f"no checkpoint {number} in thread {thread!r}", hint="see get_state_history()")
        if not isinstance(request, Input):
            raise NoCheckpointError(
                f"no checkpoint: nothing is stored for thread {thread!r}", hint="begin with an input"
            )

    def _restore(self, saved: Saved) -> None:
        head = self._fresh_head()
        missing = [f"channel {name!r}" for name in stored.missing_channels(saved, head)]
        if not missing:
            stored.restore(head, saved, self.graph.serializer)
            nodes = dict.fromkeys([*head.due, *(packet[2] for packet in head.packets)])
            missing = [f"node {name!r}" for name in nodes if name not in self.graph.nodes]
        if missing:
            raise GraphChangedError(
                f"thread {self.scope.root.thread_id!r}, checkpoint {saved.checkpoint.id}: the graph no longer has "
                f"{', '.join(missing)}",
                hint="bring them back, or start the thread anew",
                missing=tuple(missing),
            )
        self.head = head
        self.earlier = stored.endings_of(saved, rules.plan(self.graph, head), self.graph.serializer)

    def _fresh_head(self) -> Head:
        head = Head(self.graph.channels, self.graph.scheduling, self.graph.initial())
        head.epoch = self.scope.epoch
        return head

    def _input(self, request: Input) -> Program[Outcome | None]:
        head, root = self.head, self.scope.root
        pending = [task.id for task in rules.plan(self.graph, head)] if head.number else []
        if pending and request.if_paused == "error":
            raise ThreadPausedError(
                f"thread {root.thread_id!r} has pending tasks: {', '.join(pending)}",
                hint="resume it, or leave out if_paused to start again",
                pending=tuple(pending),
            )
        self.earlier, root.answers, root.passed = None, {}, set()
        self.top += 1
        rules.begin(self.graph, head, self.top, request.values, exact=request.exact)
        if pending:
            head.discarded = tuple(pending)
            log.info(log.RUN_DISCARDED, **self._bound(), tasks=pending)
        rules.settle(self.graph, head, self.scope.pauses, (), self.scope.namespace)
        return (yield from self._began())

    def _replay(self) -> Program[Outcome | None]:
        self.earlier, self.scope.root.answers, self.scope.root.passed = None, {}, set()
        self.top += 1
        rules.refork(self.graph, self.head, self.top)
        rules.settle(self.graph, self.head, self.scope.pauses, (), self.scope.namespace)
        return (yield from self._began())

    def _edit(self, request: Edit, forked: bool) -> Program[Outcome | None]:
        head = self.head
        folded = rules.prepare(head, list(request.values.items()), "the update")
        self.top += 1
        if forked:
            self.earlier, self.scope.root.answers, self.scope.root.passed = None, {}, set()
            rules.refork(self.graph, head, self.top)
        else:
            head.advance(self.top, "update", keep_line=True)
        head.channels.apply(folded, self.top)
        rules.edit(self.graph, head, self.top, request.gotos, request.sends)
        if forked or request.gotos or request.sends or (request.run and head.reasons):
            rules.pass_pauses(head)
        if forked:
            rules.settle(self.graph, head, self.scope.pauses, (), self.scope.namespace)
        yield from self._put(begins=True)
        return self._reached() if request.run else Outcome(head.status, head)

    def _answer(self, request: Answer, forked: bool) -> Program[Outcome | None]:
        head, root = self.head, self.scope.root
        waits = self._split(rules.plan(self.graph, head)).waits
        questions = rules.open_questions(waits.values(), root.answers)
        if request.by_id is not None:
            answers = rules.check_answers(request.by_id, questions)
        else:
            answers = rules.bind_answers(request.value, questions, exact=request.exact)
        encoded = {id_: self.graph.serializer.encode(value) for id_, value in answers.items()}
        folded = rules.prepare(head, list((request.update or {}).items()), "the command")
        passes = self._passes(waits.values())
        self.top += 1
        head.advance(self.top, "fork" if forked else "resume", keep_line=True)
        head.channels.apply(folded, self.top)
        rules.pass_pauses(head)
        records = [TaskRecord("", self.top, id_, "answer", data) for id_, data in encoded.items()]
        yield from self._put([*records, *self._pass_records(passes)], begins=True)
        root.answers.update(encoded)
        root.passed.update(passes)
        return self._reached()

    def _continue(self, request: Continue) -> Program[Outcome | None]:
        head, root = self.head, self.scope.root
        if head.status == "done":
            return Outcome("done", head)
        if head.status == "paused" and not request.passing:
            return self._paused(self._split(rules.plan(self.graph, head)).waits)
        waits = self._split(rules.plan(self.graph, head)).waits
        passes = self._passes(waits.values()) if request.passing else set()
        root.passed |= passes
        if not passes and not self._split(rules.plan(self.graph, head)).todo and waits:
            return self._paused(waits)
        self.top += 1
        head.advance(self.top, "resume", keep_line=True)
        rules.pass_pauses(head)
        yield from self._put(self._pass_records(passes), begins=True)
        return self._reached()

    def _call(self, request: Request, saved: Saved | None) -> Program[Outcome | None]:
        """Begin as a child: whether to start, go on or hand out the result is read from its own stored state."""
        if saved is None:
            assert isinstance(request, Input)
            self.top += 1
            values = dict(request.values)
            rules.begin(self.graph, self.head, self.top, values, exact=request.exact)
            rules.settle(self.graph, self.head, self.scope.pauses, (), self.scope.namespace)
            return (yield from self._began())
        if saved.checkpoint.caller != self.graph.name:
            raise CallOrderError(
                f"namespace {self.scope.namespace!r} holds the state of graph {saved.checkpoint.caller!r}, "
                f"and {self.graph.name!r} was called there",
                hint="give each call a key: child.invoke(x, key=...)",
            )
        self._restore(saved)
        head, root = self.head, self.scope.root
        if head.status in ("done", "handed_over"):
            return Outcome(head.status, head)
        parts = self._split(rules.plan(self.graph, head))
        passed = [reason.id in root.passed for reason in head.reasons]
        if not all(passed) or (parts.waits and not parts.todo):
            return self._paused(parts.waits)
        self.top += 1
        head.epoch = self.scope.epoch
        head.advance(self.top, "resume", keep_line=True)
        rules.pass_pauses(head)
        yield from self._put()
        return self._reached()

    def _began(self) -> Program[Outcome | None]:
        yield from self._put(begins=not self.scope.nested)
        yield from self._show()
        return self._reached()

    def _reached(self) -> Outcome | None:
        """Return how the run ends at the checkpoint that it has reached, None if it goes on."""
        status = self.head.status
        if status == "paused":
            return self._paused({})
        return None if status == "running" else Outcome(status, self.head)

    def _passes(self, waits: Sequence[Interrupted] | Any) -> set[str]:
        static = [i for ending in waits for i in ending.interrupts if i.when != "inside"]
        return {i.id or "" for i in (*self.head.reasons, *static)} - self.scope.root.passed

    def _pass_records(self, passes: set[str]) -> list[TaskRecord]:
        return [TaskRecord("", self.top, id_, "passed", b"") for id_ in sorted(passes)]

    def _split(self, tasks: Sequence[NodeTask]) -> rules.Split:
        root = self.scope.root
        return rules.split(tasks, self.earlier or {}, root.answers.keys() | root.passed)

    # --- a super-step --------------------------------------------------------------------------------------------

    def _step(self, tasks: list[NodeTask]) -> Program[Outcome | None]:
        parts = self._split(tasks) if self.earlier else rules.Split(tasks, {}, {})
        self.earlier = None
        step = _Step(parts)
        if parts.todo:
            if stop := (yield from start(parts.todo, self.head)):
                return Outcome("cancelled", self.head, error=stop.error)
            self.left = len(parts.todo)
            yield from self._collect(step)
        if (stop_error := step.stopped_by()) is not None:
            yield from self._put_records(step.fresh)
            return Outcome("cancelled", self.head, error=stop_error)
        if step.failed:
            return (yield from self._fail(tasks, step))
        if parts.waits:
            return (yield from self._pause(tasks, step))
        return (yield from self._fold(tasks, step))

    def _collect(self, step: _Step) -> Program[None]:
        """Take in the endings of a step, recording each batch but the last of a clean step (rule 10.1)."""
        timeout = self.scope.root.step_timeout
        cancelling = False
        while self.left:
            reply = yield from following(timeout)
            if isinstance(reply, Stop):
                step.stop = step.stop or reply.error
            elif reply:
                self.left -= len(reply)
                step.take(reply)
                if self.scope.modes:
                    yield from self._show_updates(reply)
            else:
                step.overdue = NodeTimeoutError(
                    f"super-step {self.head.step + 1} took longer than {timeout} s", limit=timeout
                )
                timeout = None
            if not cancelling and (step.failed or step.stop is not None or step.overdue is not None):
                cancelling, timeout = True, None
                yield Cancel()
            if self.left and step.fresh:
                yield from self._put_records(step.fresh)
                step.fresh = []

    def _fold(self, tasks: list[NodeTask], step: _Step) -> Program[Outcome | None]:
        done = step.parts.done
        endings = list(done.values()) if len(tasks) == 1 else [done[task.id] for task in tasks]
        head, scope, graph = self.head, self.scope, self.graph
        try:
            handed = _handed_over(endings)
            folded = rules.prepare_fold(head, endings)
            known = self._encode_folded(folded, endings)
        except rules.Refused as refused:
            return (yield from self._refuse(tasks, step, refused))
        self.top += 1
        rules.fold(graph, head, self.top, endings, folded, scope.collect)
        if handed is not None:
            head.status, head.handover, head.reasons = "handed_over", handed.parent, ()
        else:
            rules.settle(graph, head, scope.pauses, tasks, scope.namespace)
        yield from self._put(known=known)
        if head.status == "done" and self.graph.barriers:
            self._report_stalled()
        if scope.modes:
            yield from self._show()
        if forgetful and self.saving and head.status == "running":
            yield from self._forget()
        return self._reached()

    def _encode_folded(self, folded: Mapping[str, Any], endings: Sequence[Done]) -> stored.Encoded:
        if not self.saving:
            return stored.NO_BYTES
        try:
            return stored.encode_folded(self.head, self.graph.serializer, folded, endings)
        except SerializationError as error:
            raise rules.refusal(error.channel, error, endings) from error  # type: ignore[attr-defined] # set there

    def _pause(self, tasks: list[NodeTask], step: _Step) -> Program[Outcome]:
        waits = {task.id: step.parts.waits[task.id] for task in tasks if task.id in step.parts.waits}
        yield from self._settle("paused", step.fresh)
        return self._paused(waits)

    def _fail(self, tasks: list[NodeTask], step: _Step) -> Program[Outcome]:
        ending = rules.first_error(tasks, step.failed)
        error = ending.error or InvalidUpdateError(f"task {ending.task.id!r} was cancelled")
        self._annotate(error, ending.task, step)
        yield from self._settle("failed", step.fresh)
        return Outcome("failed", self.head, error=error)

    def _refuse(self, tasks: list[NodeTask], step: _Step, refused: rules.Refused) -> Program[Outcome]:
        """End a step whose fold failed: its writers have failed after all, their siblings have not (rule 2.7)."""
        failed = [Failed(task, refused.error) for task in refused.tasks]
        ids = {ending.task.id for ending in failed}
        step.failed.update({ending.task.id: ending for ending in failed})
        step.fresh = [*(ending for ending in step.fresh if ending.task.id not in ids), *failed]
        return (yield from self._fail(tasks, step))

    def _out_of_steps(self) -> Program[Outcome]:
        limit = self.scope.limit
        error = GraphRecursionError(
            f"graph {self.graph.name!r} needs more than {limit} super-steps",
            hint="raise recursion_limit; the state is saved and invoke(None) goes on from it",
            limit=limit,
        )
        yield from self._settle("failed", [])
        return Outcome("failed", self.head, error=error)

    def _settle(self, status: Status, endings: Sequence[Ending]) -> Program[None]:
        """Record that the run stops within a super-step: a checkpoint of the same line, with the last endings."""
        if not self.saving:
            return
        self.top += 1
        self.head.status = status
        self.head.advance(self.top, "loop", keep_line=True)
        yield from self._put(self._records(endings))

    def _abandon(self) -> Program[None]:
        if self.left:
            yield Cancel()
        while self.left:
            reply = yield from following(None)
            if not isinstance(reply, Stop):
                self.left -= len(reply)

    def _forget(self) -> Program[None]:
        found: Found = yield Load(self.head.number, None)
        assert found.saved is not None, "the checkpoint that was just written"
        self._restore(found.saved)

    # --- writing ---------------------------------------------------------------------------------------------------

    def _put(
        self, records: Sequence[TaskRecord] = (), *, begins: bool = False, known: stored.Encoded = stored.NO_BYTES
    ) -> Program[None]:
        if not self.saving:
            return
        scope, graph = self.scope, self.graph
        commit = stored.commit_of(
            self.head,
            graph.serializer,
            known,
            namespace=scope.namespace,
            parent_namespace=scope.namespace if self.head.parent else scope.parent_namespace,
            caller=graph.name,
            fingerprint=graph.fingerprint,
            metadata=scope.root.metadata,
        )
        reply: Stop | None = yield Put((commit,), records, begins)
        if reply is not None:
            raise _Halt(reply.error)

    def _put_records(self, endings: Sequence[Ending]) -> Program[None]:
        if self.saving and endings:
            reply: Stop | None = yield Put((), self._records(endings))
            if reply is not None:
                raise _Halt(reply.error)

    def _records(self, endings: Sequence[Ending]) -> list[TaskRecord]:
        number, namespace, serializer = self.head.number, self.scope.namespace, self.graph.serializer
        return [stored.record_of(ending, ending.task.id, namespace, number, serializer) for ending in endings]

    # --- telling ---------------------------------------------------------------------------------------------------

    def _paused(self, waits: Mapping[str, Interrupted]) -> Outcome:
        asked = merge(ending.interrupts for ending in waits.values())
        answered = self.scope.root.answers
        left = [i for i in asked if i.when != "inside" or i.id not in answered]
        return Outcome("paused", self.head, (*self.head.reasons, *left))

    def _show(self) -> Program[None]:
        """Emit the values of a checkpoint that was just reached; those of a pause are shown with it."""
        if "values" in self.scope.modes and self.head.status != "paused":
            yield Emit(Event("values", rules.output(self.graph, self.head), self.scope.namespace))

    def _show_updates(self, endings: Sequence[Ending]) -> Program[None]:
        if "updates" in self.scope.modes:
            for ending in endings:
                if isinstance(ending, Done):
                    update = {name: value for name, value, _ in ending.writes} or None
                    yield Emit(Event("updates", {ending.task.node.name: update}, self.scope.namespace))

    def _show_pause(self, interrupts: Sequence[Interrupt]) -> Program[None]:
        asked = {INTERRUPT: list(interrupts)}
        if "updates" in self.scope.modes:
            yield Emit(Event("updates", asked, self.scope.namespace))
        if "values" in self.scope.modes:
            yield Emit(Event("values", rules.output(self.graph, self.head) | asked, self.scope.namespace))

    def _report_stalled(self) -> None:
        for name, channel in self.graph.barriers.items():
            if (senders := self.head.scheduling.values.get(name)) is not None:
                log.warn(log.BARRIER_STALLED, **self._bound(), node=channel.target, senders=list(senders))

    def _annotate(self, error: BaseException, task: NodeTask, step: _Step) -> None:
        where = f" of {self.scope.namespace!r}" if self.scope.namespace else ""
        error.add_note(f"in node {task.node.name!r}, task {task.id!r}, super-step {self.head.step + 1}{where}")
        for ending in step.failed.values():
            if ending.task is not task and type(ending) is Failed:
                error.add_note(f"task {ending.task.id!r} failed too: {ending.error!r}")
            elif type(ending) is Cancelled and ending.abandoned:
                error.add_note(f"task {ending.task.id!r} did not stop in time and was left behind")

    def _bound(self) -> dict[str, Any]:
        return {"thread": self.scope.root.thread_id, "namespace": self.scope.namespace, "step": self.head.step}


class _Step:
    """What is known of the endings of one super-step. `fresh`: those not recorded yet."""

    __slots__ = ("failed", "fresh", "overdue", "parts", "stop")

    def __init__(self, parts: rules.Split) -> None:
        self.parts = parts
        self.failed: dict[str, Failed | Cancelled] = {}
        self.fresh: list[Ending] = []
        self.stop: BaseException | None = None
        self.overdue: NodeTimeoutError | None = None

    def stopped_by(self) -> BaseException | None:
        """Return what stopped the step from outside: told to the loop, or seen in tasks that all were cancelled."""
        if self.stop is None and self.failed and not any(type(e) is Failed for e in self.failed.values()):
            return next((e.error for e in self.failed.values() if e.error is not None), TaskCancelled("told to stop"))
        return self.stop

    def take(self, endings: Sequence[Ending]) -> None:
        """Sort in endings that have come."""
        for ending in endings:
            if self.overdue is not None:  # the ending was fixed when the limit passed (rule 5.8)
                ending = Failed(ending.task, self.overdue)
            kind = type(ending)
            if kind is Done:
                self.parts.done[ending.task.id] = ending  # type: ignore[assignment] # its exact type was checked
            elif kind is Interrupted:
                self.parts.waits[ending.task.id] = ending  # type: ignore[assignment] # its exact type was checked
            else:
                self.failed[ending.task.id] = ending  # type: ignore[assignment] # the two kinds that are left
            self.fresh.append(ending)


def _handed_over(endings: Sequence[Done]) -> Done | None:
    """Return the ending that addresses the parent graph. Raises Refused when there are two (rule 4.2)."""
    handed = [ending for ending in endings if ending.parent is not None]
    if len(handed) > 1:
        names = ", ".join(repr(ending.task.name) for ending in handed)
        error = InvalidUpdateError(f"{names} address the parent graph in the same step; only one may")
        raise rules.Refused(tuple(ending.task for ending in handed), error)
    return handed[0] if handed else None
