"""The two worlds: drivers that perform the effects of a loop, one with threads, one with asyncio.

With `pool.py`, `threads.py` and `journal.py` the only code that knows threads or asyncio. A driver may take short cuts
that nobody can observe: a lone task runs in place, and pools are made when they are first needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextvars import Context
from time import monotonic
from types import coroutine
from typing import Any, Final, TypeVar, assert_never

from .effects import Cancel, Effect, Emit, Event, Load, Next, Put, Start, Stop
from .errors import AttemptEnded, TaskCancelled, WrongLoopError
from .journal import Journal
from .loop import PregelLoop
from .perform import aperform, perform
from .pool import AsyncInbox, Item, SyncInbox, TaskExecutorPool
from .request import Outcome, Request
from .scope import Scope
from .task import Cancelled, Ending, Failed, NodeTask
from .threads import LOOP

T = TypeVar("T")

watch: Callable[[Effect], None] | None = None
"""A hook for tests: called after each effect was performed, before its reply is used."""

WAITING: Final = object()
"""Not a reply yet: only events have come."""


def drive(scope: Scope, request: Request, number: int | None = None) -> Generator[Event, None, Outcome]:
    """Perform a run in this thread, yielding the events of the top run to its reader."""
    program = PregelLoop(scope).run(request, number)
    world = _Sync(scope)
    reply: Any = None
    try:
        while True:
            try:
                effect = program.send(reply)
            except StopIteration as end:
                outcome: Outcome = end.value
                if world.journal is not None and not scope.nested:
                    world.journal.flush()
                return outcome
            reply = WAITING
            while reply is WAITING:
                reply = world.perform(effect)
                for event in world.events():
                    try:
                        yield event
                    except GeneratorExit as error:  # told to the program as the reply of its next effect
                        world.closed = error
                        break
            if watch is not None:
                watch(effect)
    finally:
        program.close()
        world.close()


async def adrive(scope: Scope, request: Request, number: int | None = None) -> AsyncGenerator[Event | Outcome, None]:
    """Perform a run on this event loop, yielding the events of the top run, and its outcome last."""
    program = PregelLoop(scope).run(request, number)
    world = _Async(scope)
    reply: Any = None
    try:
        while True:
            try:
                effect = program.send(reply)
            except StopIteration as end:
                outcome: Outcome = end.value
                if world.journal is not None and not scope.nested:
                    await world.whole(world.journal.aflush())
                break
            reply = WAITING
            while reply is WAITING:
                reply = await world.perform(effect)
                for event in world.events():
                    try:
                        yield event
                    except GeneratorExit as error:  # told to the program as the reply of its next effect
                        world.closed = error
                        break
            if watch is not None:
                watch(effect)
    finally:
        program.close()
        world.close()
    if world.cut is not None and outcome.status not in ("failed", "cancelled"):
        outcome = outcome._replace(status="cancelled", error=world.cut)  # it came too late for any effect
    if world.closed is None:
        yield outcome


async def finish(run: AsyncGenerator[Event | Outcome, None]) -> Outcome:
    """Run to the end without a reader and return the outcome."""
    outcome: Outcome | None = None
    async for item in run:  # to the very end: a generator that is left behind is closed by nobody
        if isinstance(item, Outcome):
            outcome = item
    assert outcome is not None, "a driver without a reader ends with an outcome"
    return outcome


class _World:
    """What both drivers do: keep the pool, the deadlines, the events, and a stop that has not been told yet."""

    __slots__ = (
        "closed",
        "cut",
        "grace",
        "head",
        "inbox",
        "journal",
        "limit",
        "live",
        "lone",
        "pending",
        "pool",
        "scope",
    )

    home: asyncio.AbstractEventLoop | None = None
    in_place: frozenset[str]
    """The kinds of nodes that a lone task may have to run in place."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.journal: Journal | None = scope.root.journal
        self.pool: TaskExecutorPool | None = None
        self.inbox: Any = None
        self.lone: NodeTask | None = None
        self.head: Any = None
        self.limit: float | None = None  # when the step must have ended
        self.grace: float | None = None  # when cancelled tasks are left behind
        self.pending: list[Event] = []
        self.closed: BaseException | None = None  # the reader has gone
        self.cut: BaseException | None = None  # somebody outside wants the run to end
        self.live = scope.root.sink is not None and not scope.nested  # somebody reads while tasks run
        if self.live:
            self.open_pool()

    def new_inbox(self) -> Any:
        """Return an inbox of this world."""
        raise NotImplementedError

    def open_pool(self) -> TaskExecutorPool:
        """Make the pool and its inbox."""
        scope = self.scope
        self.inbox = self.new_inbox()
        if self.live:
            scope.root.sink = self.inbox.post
        if scope.nested:
            scope.signal.watch(self.wake)

        def run(task: NodeTask) -> Ending:
            return perform(task, scope, self.head)

        def arun(task: NodeTask) -> Coroutine[Any, Any, Ending]:
            return aperform(task, scope, self.head)

        self.pool = TaskExecutorPool(
            run, arun, inbox=self.inbox, home=self.home, slots=scope.slots, signal=scope.signal
        )
        return self.pool

    def wake(self) -> None:
        """Make a waiting driver look around."""
        self.inbox.post(None)

    def start(self, effect: Start) -> Stop | None:
        """Start the tasks of a step, or say why not."""
        if (stop := self.stop()) is not None:
            return stop
        self.head = effect.head
        timeout = self.scope.root.step_timeout
        self.limit = None if timeout is None else monotonic() + timeout
        tasks = effect.tasks
        unwatched = timeout is None and not self.live and self.scope.slots is None
        if unwatched and len(tasks) == 1 and tasks[0].node.kind in self.in_place and tasks[0].node.timeout is None:
            self.lone = tasks[0]
        else:
            self.check(tasks)
            (self.pool or self.open_pool()).start(tasks)
        return None

    def check(self, tasks: Sequence[NodeTask]) -> None:
        """Refuse tasks that cannot run in this world."""

    def stop(self) -> Stop | None:
        """Return what has stopped the run, until it has been told."""
        if self.grace is not None:
            return None
        error = self.cut or self.closed
        if error is None and self.scope.nested and self.scope.signal.stopped:
            error = TaskCancelled(f"the run in {self.scope.namespace!r} was told to stop")
        return None if error is None else Stop(error)

    def left_behind(self) -> Stop | None:
        """Refuse the writes of a nested run whose calling task was left behind: its call has returned (rule 5.3)."""
        caller = self.scope.signal.parent
        if caller is None or not caller.cut_off:
            return None
        return Stop(AttemptEnded(f"the task that called the run in {self.scope.namespace!r} has ended"))

    def patience(self, effect: Next) -> float | None:
        """Return how many seconds may be waited now, None for ever."""
        deadline = self.grace if self.grace is not None else self.limit if effect.timeout is not None else None
        return None if deadline is None else max(0.0, deadline - monotonic())

    def arrived(self, items: Sequence[Item], patience: float | None) -> Any:
        """Return the reply for what an inbox gave within the given patience."""
        assert self.pool is not None
        if self.live:
            self.pending += [item for item in items if isinstance(item, Event)]
        endings = self.pool.accept(items)
        if endings or items or patience is None:
            return endings or WAITING
        return self.pool.abandon() if self.grace is not None else []

    def emit(self, event: Event) -> None:
        """Hand an event to the reader, from a nested run through the driver of the root run."""
        if not self.scope.nested:
            self.pending.append(event)
        elif self.scope.root.sink is not None:
            self.scope.root.sink(event)

    def events(self) -> list[Event]:
        """Return the events that have come and forget them."""
        if not self.pending:
            return self.pending
        events, self.pending = self.pending, []
        return [] if self.closed is not None else events

    def cancel(self) -> None:
        """Tell everything to stop, and let the grace time run."""
        self.grace = monotonic() + self.scope.root.grace
        if self.pool is not None:
            self.pool.cancel()

    def close(self) -> None:
        """Leave nothing running: what the program did not see the end of is told to stop and left behind."""
        if self.pool is not None:
            if self.scope.nested:
                self.scope.signal.unwatch(self.wake)
            if self.pool.outstanding:
                self.pool.cancel()
                self.pool.abandon()


class _Sync(_World):
    """Performs effects with threads."""

    __slots__ = ()
    in_place = frozenset({"sync", "graph"})

    def __init__(self, scope: Scope) -> None:
        scope.blocks_loop = scope.blocks_loop or LOOP.is_here()
        super().__init__(scope)

    def new_inbox(self) -> SyncInbox:
        return SyncInbox()

    def check(self, tasks: Sequence[NodeTask]) -> None:
        if self.scope.blocks_loop and (names := [task.node.name for task in tasks if task.node.kind == "async"]):
            raise WrongLoopError(
                f"an async node called invoke() of a graph whose node {names[0]!r} is async; "
                "it would wait for its own event loop",
                hint="await child.ainvoke(...) there",
            )

    def perform(self, effect: Effect) -> Any:
        """Perform one effect and return its reply, or WAITING."""
        if isinstance(effect, Start):
            return self.start(effect)
        if isinstance(effect, Next):
            return self.next(effect)
        if isinstance(effect, Put):
            assert self.journal is not None
            if (stop := self.left_behind()) is not None:
                return stop
            try:
                return self.journal.put(effect.commits, effect.records, effect.begins)
            except Exception as error:  # noqa: BLE001 - the reply says it; nothing is thrown into the program
                return Stop(error)
        if isinstance(effect, Emit):
            return self.emit(effect.event)
        if isinstance(effect, Load):
            assert self.journal is not None
            return self.journal.load(effect.namespace, effect.number, effect.epochs)
        if isinstance(effect, Cancel):
            return self.cancel()
        assert_never(effect)

    def next(self, effect: Next) -> Any:
        """Return endings, [] when time is up, Stop, or WAITING."""
        if self.lone is not None:
            task, self.lone = self.lone, None
            return [perform(task, self.scope, self.head)]
        if (stop := self.stop()) is not None:
            return stop
        assert self.pool is not None
        worked = self.pool.work()
        try:
            if worked is not None:
                return self.arrived([worked, *self.inbox.take(0.0)], None)
            patience = self.patience(effect)
            return self.arrived(self.inbox.take(patience), patience)
        except KeyboardInterrupt as error:
            self.cut = error
            return WAITING


class _Async(_World):
    """Performs effects with asyncio."""

    __slots__ = ("home",)
    in_place = frozenset({"async", "graph"})

    def __init__(self, scope: Scope) -> None:
        self.home = asyncio.get_running_loop()
        super().__init__(scope)

    def new_inbox(self) -> AsyncInbox:
        return AsyncInbox(asyncio.get_running_loop())

    async def perform(self, effect: Effect) -> Any:
        """Perform one effect and return its reply, or WAITING."""
        if isinstance(effect, Start):
            return self.start(effect)
        if isinstance(effect, Next):
            return await self.next(effect)
        if isinstance(effect, Put):
            assert self.journal is not None
            if (stop := self.left_behind()) is not None:
                return stop
            try:
                return await self.whole(self.journal.aput(effect.commits, effect.records, effect.begins))
            except Exception as error:  # noqa: BLE001 - the reply says it; nothing is thrown into the program
                return Stop(error)
        if isinstance(effect, Emit):
            return self.emit(effect.event)
        if isinstance(effect, Load):
            assert self.journal is not None
            return await self.whole(self.journal.aload(effect.namespace, effect.number, effect.epochs))
        if isinstance(effect, Cancel):
            return self.cancel()
        assert_never(effect)

    async def next(self, effect: Next) -> Any:
        """Return endings, [] when time is up, Stop, or WAITING."""
        if self.lone is not None:
            task, self.lone = self.lone, None
            return [await self.run_lone(task)]
        if (stop := self.stop()) is not None:
            return stop
        patience = self.patience(effect)
        try:
            items = await self.inbox.take(patience)
        except asyncio.CancelledError as error:
            self.cut = error
            return WAITING
        return self.arrived(items, patience)

    async def run_lone(self, task: NodeTask) -> Ending:
        """Run a task within the caller's asyncio task, and see whether that was cancelled meanwhile."""
        me = asyncio.current_task()  # asked each time: a reader may take every event in a task of its own
        cancels = 0 if me is None else me.cancelling()
        ending: Ending = await _in_context(self.scope.context.copy(), aperform(task, self.scope, self.head))
        if me is not None and me.cancelling() > cancels:
            # a cancel from outside, even if the node has swallowed it
            error = ending.error if isinstance(ending, (Failed, Cancelled)) else None
            self.cut = error if isinstance(error, asyncio.CancelledError) else asyncio.CancelledError()
            if error is not None:  # raised after it was told to stop (rule 5.3)
                return Cancelled(task, error)
        return ending

    async def whole(self, access: Coroutine[Any, Any, T]) -> T:
        """Await a read or write to its end, so that it is not torn; a cancel meanwhile is told at the next chance."""
        assert self.journal is not None
        if not self.journal.saver.blocking:
            return await access  # never suspends
        task = asyncio.ensure_future(access)
        while True:
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError as error:
                if task.cancelled():
                    raise
                self.cut = error


@coroutine
def _in_context(context: Context, awaitable: Coroutine[Any, Any, Ending]) -> Generator[Any, Any, Ending]:
    """Await a coroutine in another context without a new asyncio task: the current task stays the caller's."""
    step: Callable[[Any], Any] = awaitable.send
    value: Any = None
    while True:
        try:
            waits_for = context.run(step, value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return] # what the coroutine returns
        try:
            value = yield waits_for
            step = awaitable.send
        except BaseException as error:  # noqa: BLE001 - whatever is thrown in is for the awaited coroutine
            if isinstance(error, asyncio.CancelledError):
                _undo_leaked_cancel(awaitable)
            step, value = awaitable.throw, error


def _undo_leaked_cancel(suspended: Any) -> None:
    """Take back the cancel of a TaskGroup that waits for its own tasks and saw one fail.

    Before Python 3.13 such a group cancels the task it is in and forgets to take that back, and the count of cancels
    would then say that somebody outside wants the run to end.
    """
    while (inner := getattr(suspended, "cr_await", None)) is not None and hasattr(inner, "cr_await"):
        suspended = inner
    if getattr(suspended, "cr_code", None) is asyncio.TaskGroup.__aexit__.__code__:
        group = suspended.cr_frame.f_locals["self"]
        task = asyncio.current_task()
        if group._parent_cancel_requested and task is not None:
            task.uncancel()
