"""PregelLoop: the order of a run, written once as a generator of effects.

Nothing here does anything: rules decide, drivers act, and this file fixes what comes after what. Nothing is thrown into
the generator; a stop, a deadline or a failing saver is the reply of an effect.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import log, rules, stored
from .answers import Split
from .begin import Beginning
from .channels import Folded
from .checkpoint import Found, SerializationError, Status
from .effects import FOREVER, Cancel, Emit, Event, Load, Next, Program, Start, Stop
from .errors import (
    GraphRecursionError,
    InvalidUpdateError,
    NodeTimeoutError,
    TaskCancelled,
    add_note,
    described,
)
from .interrupt import Interrupt
from .request import Halted, Outcome, Request
from .scope import Scope
from .task import Cancelled, Done, Ending, Failed, Interrupted, NodeTask
from .types import INTERRUPT, START, Command

forgetful = False
"""A switch for tests: forget everything after each super-step and read it back from the saver."""


class PregelLoop(Beginning):
    """One run of one graph in one namespace.

    `run(request)` is the program for a driver; it returns an Outcome. A loop serves one run.
    """

    __slots__ = ("left",)

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.left = 0  # tasks that have been started and have not ended

    def run(self, request: Request, number: int | None = None) -> Program[Outcome]:
        """Begin as requested, from the head or from the checkpoint `number`, and go on until the run ends."""
        try:
            ended = yield from self.begin(request, number)
            steps = 0
            while ended is None:
                tasks = rules.plan(self.graph, self.head)
                if not self.head.withheld:  # deciding about edges is no super-step (rule 7.3)
                    if steps == self.scope.limit:
                        return (yield from self._out_of_steps())
                    steps += 1
                ended = yield from self._step(tasks)
            if ended.status == "paused" and self.scope.modes:
                yield from self._show_pause(ended.interrupts)
            return ended
        except Halted as halt:
            yield from self._abandon()
            return Outcome("failed", self.head, error=halt.error)

    # --- a super-step --------------------------------------------------------------------------------------------

    def _step(self, tasks: list[NodeTask]) -> Program[Outcome | None]:
        parts = self.split(tasks) if self.earlier else Split(tasks, {}, {})
        step = _Step(parts, self._asked_before() if self.earlier else {})
        self.earlier = None
        if parts.todo:
            stop: Stop | None = yield Start(parts.todo, self.head)
            if stop is not None:
                return Outcome("cancelled", self.head, error=stop.error)
            self.left = len(parts.todo)
            yield from self._collect(step)
        if (stop_error := step.stopped_by()) is not None:
            yield from self.put_records(step.fresh)
            return Outcome("cancelled", self.head, error=stop_error)
        if step.failed:
            return (yield from self._fail(tasks, step))
        if parts.waits:
            return (yield from self._pause(tasks, step))
        return (yield from self._fold(tasks, step))

    def _asked_before(self) -> dict[str | None, str | None]:
        """Return when the questions of an earlier run were asked first."""
        asked = [ending for ending in (self.earlier or {}).values() if isinstance(ending, Interrupted)]
        return {question.id: question.asked_at for ending in asked for question in ending.interrupts}

    def _collect(self, step: _Step) -> Program[None]:
        """Take in the endings of a step, recording each batch but the last of a clean step (rule 10.1)."""
        timeout = self.scope.root.step_timeout
        cancelling = False
        while self.left:
            reply: list[Ending] | Stop = yield FOREVER if timeout is None else Next(timeout)
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
                yield from self.put_records(step.fresh)
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
        if head.withheld:
            rules.fold_edges(graph, head, self.top, endings)
        else:
            rules.fold(graph, head, self.top, endings, folded, scope.collect)
        if handed is not None:
            rules.hand_over(head, handed)
        self.settle(endings)
        yield from self.put(known=known)
        if head.status == "done" and self.graph.barriers:
            self._report_stalled()
        if scope.modes and not tasks[0].edge:
            yield from self.show()
        if forgetful and self.saving and head.status == "running":
            yield from self._forget()
        return self.reached()

    def _encode_folded(self, folded: Folded, endings: Sequence[Done]) -> stored.Encoded:
        if not self.saving:
            return stored.NO_BYTES
        try:
            return stored.encode_folded(self.head, self.graph.serializer, folded, endings)
        except SerializationError as error:
            raise rules.refusal(error.channel, error, endings) from error  # type: ignore[attr-defined] # set there

    def _pause(self, tasks: list[NodeTask], step: _Step) -> Program[Outcome]:
        waits = {task.id: step.parts.waits[task.id] for task in tasks if task.id in step.parts.waits}
        yield from self._stop_here("paused", step.fresh)
        return self.paused(waits)

    def _fail(self, tasks: list[NodeTask], step: _Step) -> Program[Outcome]:
        ending = rules.first_error(tasks, step.failed)
        error = ending.error or InvalidUpdateError(f"task {ending.task.id!r} was cancelled")
        self._annotate(error, ending.task, step)
        yield from self._stop_here("failed", step.fresh)
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
            hint="raise recursion_limit" + ("; the state is saved and invoke(None) goes on" if self.saving else ""),
            limit=limit,
        )
        yield from self._stop_here("failed", [])
        return Outcome("failed", self.head, error=error)

    def _stop_here(self, status: Status, endings: Sequence[Ending]) -> Program[None]:
        """Record that the run stops within a super-step: a checkpoint of the same line, with the last endings."""
        if not self.saving:
            return
        self.top += 1
        self.head.status = status
        self.head.advance(self.top, "loop", keep_line=True)
        yield from self.put(self.records(endings))

    def _abandon(self) -> Program[None]:
        if self.left:
            yield Cancel()
        while self.left:
            reply: list[Ending] | Stop = yield FOREVER
            if not isinstance(reply, Stop):
                self.left -= len(reply)

    def _forget(self) -> Program[None]:
        found: Found = yield Load(self.scope.namespace, self.head.number, None)
        assert found.saved is not None, "the checkpoint that was just written"
        self.restore(found.saved)

    # --- telling ---------------------------------------------------------------------------------------------------

    def _show_updates(self, endings: Sequence[Ending]) -> Program[None]:
        if "updates" in self.scope.modes:
            for ending in endings:
                if isinstance(ending, Done) and ending.task.node.name != START and not ending.task.edge:
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
                log.warn(log.BARRIER_STALLED, **self.bound(), node=channel.target, senders=list(senders))

    def _annotate(self, error: BaseException, task: NodeTask, step: _Step) -> None:
        where = f" of {self.scope.namespace!r}" if self.scope.namespace else ""
        add_note(error, f"in node {task.node.name!r}, task {task.id!r}, super-step {self.head.step + 1}{where}")
        for ending in step.failed.values():
            if ending.task is not task and type(ending) is Failed:
                add_note(error, f"task {ending.task.id!r} failed too: {described(ending.error)}")
        for left in step.left_behind:
            add_note(error, f"task {left.id!r} did not stop in time and was left behind")


class _Step:
    """What is known of the endings of one super-step. `fresh`: those not recorded yet."""

    __slots__ = ("asked", "failed", "fresh", "left_behind", "overdue", "parts", "stop")

    def __init__(self, parts: Split, asked: dict[str | None, str | None]) -> None:
        self.parts = parts
        self.asked = asked  # when questions were asked that are asked again now
        self.failed: dict[str, Failed | Cancelled] = {}
        self.fresh: list[Ending] = []
        self.left_behind: list[NodeTask] = []
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
            if isinstance(ending, Cancelled) and ending.abandoned:
                self.left_behind.append(ending.task)
            if self.overdue is not None:  # the ending was fixed when the limit passed (rule 5.8)
                ending = Failed(ending.task, self.overdue)
            kind = type(ending)
            if kind is Done:
                self.parts.done[ending.task.id] = ending  # type: ignore[assignment] # its exact type was checked
            elif kind is Interrupted:
                for question in ending.interrupts if self.asked else ():  # type: ignore[union-attr] # as just checked
                    question.asked_at = self.asked.get(question.id, question.asked_at)
                self.parts.waits[ending.task.id] = ending  # type: ignore[assignment] # its exact type was checked
            else:
                self.failed[ending.task.id] = ending  # type: ignore[assignment] # the two kinds that are left
            self.fresh.append(ending)


def _handed_over(endings: Sequence[Done]) -> Command | None:
    """Return the command that addresses the parent graph. Raises Refused when there are two (rule 4.2)."""
    handed = [ending for ending in endings if ending.parent is not None]
    if len(handed) > 1:
        names = ", ".join(repr(ending.task.name) for ending in handed)
        error = InvalidUpdateError(f"{names} address the parent graph in the same step; only one may")
        raise rules.Refused(tuple(ending.task for ending in handed), error)
    return handed[0].parent if handed else None
