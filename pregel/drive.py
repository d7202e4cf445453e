"""The two worlds: drivers that perform the effects of a loop, one with threads, one with asyncio.

With `pool.py`, `threads.py` and `journal.py` the only code that knows threads or asyncio. A driver may take short cuts
that nobody can observe: a lone task runs in place, and pools are made when they are first needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextvars import Context
from time import monotonic
from types import coroutine
from typing import Any, assert_never

from .effects import Cancel, Effect, Emit, Event, Load, Next, Program, Put, Start, Stop
from .errors import TaskCancelled, WrongLoopError
from .head import Head
from .journal import Journal
from .loop import Outcome, PregelLoop, Request
from .perform import aperform, perform
from .pool import AsyncInbox, Item, SyncInbox, TaskExecutorPool
from .scope import Scope
from .task import Cancelled, Ending, Failed, NodeTask
from .threads import LOOP, Permits, running_loop

watch: Callable[[Effect], None] | None = None
"""A hook for tests: called after each effect was performed, before its reply is used."""


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
            reply = None
            if type(effect) is Start:
                reply = world.start(effect)
            elif type(effect) is Next:
                while (reply := world.next(effect)) is None:
                    for event in world.events():
                        try:
                            yield event
                        except GeneratorExit as error:
                            world.closed = error
                if world.live:
                    for event in world.events():
                        try:
                            yield event
                        except GeneratorExit as error:
                            world.closed = error
            elif type(effect) is Emit:
                if scope.nested:
                    world.sink(effect.event)
                elif world.closed is None:
                    try:
                        yield effect.event
                    except GeneratorExit as error:
                        world.closed = error
                        reply = Stop(error)
            else:
                reply = world.perform(effect)
            if watch is not None:
                watch(effect)
    finally:
        program.close()
        world.close()


class _World:
    """What both drivers keep: the pool, the deadlines, and a stop that has not been told yet."""

    __slots__ = ("closed", "grace", "head", "journal", "lent", "limit", "live", "lone", "pending", "pool", "scope")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.lent = scope.lent
        self.journal: Journal | None = scope.root.journal
        self.pool: TaskExecutorPool | None = None
        self.lone: NodeTask | None = None
        self.head: Head | None = None
        self.limit: float | None = None  # when the step must have ended
        self.grace: float | None = None  # when cancelled tasks are left behind
        self.pending: list[Event] = []
        self.closed: BaseException | None = None
        self.live = bool(scope.root.sink) and not scope.nested  # somebody reads while tasks run

    def sink(self, event: Event) -> None:
        """Hand an event to the driver of the root run."""
        if self.scope.root.sink is not None:
            self.scope.root.sink(event)

    def begin_step(self, effect: Start, home: str) -> bool:
        """Note what a step runs on; return whether its only task can run in place."""
        self.head = effect.head
        timeout = self.scope.root.step_timeout
        self.limit = None if timeout is None else monotonic() + timeout
        in_place = len(effect.tasks) == 1 and timeout is None and not self.live
        lone = in_place and effect.tasks[0].node.kind in (home, "graph")
        # a task in the pool holds a slot that its children may use; one in place has only what its own caller lent
        self.scope.lent = self.lent if lone else self.scope.root.slots is not None
        return lone

    def deadline(self, effect: Next) -> float | None:
        if self.grace is not None:
            return self.grace
        return self.limit if effect.timeout is not None else None

    def sort(self, items: Sequence[Item]) -> list[Ending]:
        """Keep events for the reader and return the endings."""
        assert self.pool is not None
        if self.live:
            self.pending += [item for item in items if type(item) is Event]
        return self.pool.accept(items)

    def events(self) -> list[Event]:
        """Return the events that have come and forget them."""
        events, self.pending = self.pending, []
        return [] if self.closed is not None else events

    def stopped(self) -> Stop:
        return Stop(TaskCancelled(f"a run in {self.scope.namespace!r} was told to stop"))


class _Sync(_World):
    """Performs effects with threads."""

    __slots__ = ("inbox",)

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.inbox: SyncInbox | None = None
        if self.live:
            self._open()

    def _open(self) -> TaskExecutorPool:
        self.inbox = inbox = SyncInbox()
        scope = self.scope
        if self.live:
            scope.root.sink = inbox.post
        if scope.nested:
            scope.signal.watch(self._wake)

        def run(task: NodeTask) -> Ending:
            return perform(task, scope, self.head)  # type: ignore[arg-type] # set before anything starts

        async def arun(task: NodeTask) -> Ending:
            return await aperform(task, scope, self.head)  # type: ignore[arg-type] # set before anything starts

        permits = Permits(scope.root.slots, self.lent)
        self.pool = TaskExecutorPool(run, arun, inbox=inbox, permits=permits, signal=scope.signal)
        return self.pool

    def _wake(self) -> None:
        if self.inbox is not None:
            self.inbox.post(None)

    def start(self, effect: Start) -> Stop | None:
        if self.scope.signal.stopped:
            return self.stopped()
        if self.closed is not None:
            return Stop(self.closed)
        if self.begin_step(effect, "sync"):
            self.lone = effect.tasks[0]
            return None
        if LOOP.is_here() and any(task.node.kind == "async" for task in effect.tasks):
            name = next(task.node.name for task in effect.tasks if task.node.kind == "async")
            raise WrongLoopError(
                f"an async node called invoke() of a graph whose node {name!r} is async: it would wait for its own loop",
                hint="await child.ainvoke(...) there",
            )
        (self.pool or self._open()).start(effect.tasks)
        return None

    def next(self, effect: Next) -> list[Ending] | Stop | None:
        """Return endings, [] when time is up, Stop, or None when only events have come."""
        if self.lone is not None:
            task, self.lone = self.lone, None
            return [perform(task, self.scope, self.head)]  # type: ignore[arg-type] # set by start
        if self.closed is not None and self.grace is None:
            return Stop(self.closed)
        if self.scope.nested and self.grace is None and self.scope.signal.stopped:
            return self.stopped()
        pool, inbox = self.pool, self.inbox
        assert pool is not None
        assert inbox is not None
        worked = pool.work()
        if worked is not None:
            return pool.accept([worked, *self._at_hand()]) or None
        deadline = self.deadline(effect)
        try:
            items = inbox.take(None if deadline is None else max(0.0, deadline - monotonic()))
        except KeyboardInterrupt as error:
            return Stop(error)
        endings = self.sort(items)
        if endings or items or deadline is None or monotonic() < deadline:
            return endings or None
        return pool.abandon() if self.grace is not None else []

    def _at_hand(self) -> list[Item]:
        assert self.inbox is not None
        items = self.inbox.take(0)
        if self.live:
            self.pending += [item for item in items if type(item) is Event]
        return items

    def perform(self, effect: Load | Put | Cancel) -> Any:
        if type(effect) is Put:
            try:
                self.journal.put(*effect)  # type: ignore[union-attr] # a loop without a journal writes nothing
            except Exception as error:  # noqa: BLE001 - the reply says it; nothing is thrown into the program
                return Stop(error)
            return None
        if type(effect) is Load:
            return self.journal.load(self.scope.namespace, *effect)  # type: ignore[union-attr] # as above
        if type(effect) is Cancel:
            self.grace = monotonic() + self.scope.root.grace
            if self.pool is not None:
                self.pool.cancel()
            return None
        assert_never(effect)

    def close(self) -> None:
        """Leave nothing running: what the program did not see the end of is told to stop and left behind."""
        if self.pool is not None:
            if self.scope.nested:
                self.scope.signal.unwatch(self._wake)
            if self.pool.outstanding:
                self.pool.cancel()
                self.pool.abandon()


# --- asyncio ------------------------------------------------------------------------------------------------------


async def adrive(
    scope: Scope, request: Request, number: int | None = None
) -> AsyncGenerator[Event | Outcome, None]:
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
            reply = None
            if type(effect) is Start:
                reply = world.start(effect)
            elif type(effect) is Next:
                while (reply := await world.next(effect)) is None:
                    for event in world.events():
                        try:
                            yield event
                        except GeneratorExit as error:
                            world.closed = error
                if world.live:
                    for event in world.events():
                        try:
                            yield event
                        except GeneratorExit as error:
                            world.closed = error
            elif type(effect) is Emit:
                if scope.nested:
                    world.sink(effect.event)
                elif world.closed is None:
                    try:
                        yield effect.event
                    except GeneratorExit as error:
                        world.closed = error
                        reply = Stop(error)
            else:
                reply = await world.perform(effect)
            if watch is not None:
                watch(effect)
    finally:
        program.close()
        world.close()
    if world.cut is not None and outcome.status not in ("failed", "cancelled"):
        outcome = outcome._replace(status="cancelled", error=world.cut)
    if world.closed is None:
        yield outcome


@coroutine
def _in_context(context: Context, awaitable: Any) -> Generator[Any, Any, Any]:
    """Await a coroutine in another context without a new asyncio task: the current task stays the caller's."""
    step, value = awaitable.send, None
    while True:
        try:
            waits_for = context.run(step, value)
        except StopIteration as end:
            return end.value
        try:
            value = yield waits_for
            step = awaitable.send
        except BaseException as error:  # noqa: BLE001 - whatever is thrown in is the awaited coroutine's to handle
            step, value = awaitable.throw, error  # type: ignore[assignment] # the one argument that throw takes


class _Async(_World):
    """Performs effects with asyncio."""

    __slots__ = ("cancels", "cut", "inbox", "me")

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.inbox: AsyncInbox | None = None
        self.me = asyncio.current_task()
        self.cancels = self.me.cancelling() if self.me is not None else 0
        self.cut: asyncio.CancelledError | None = None  # a cancel from outside, until it has been told
        if self.live:
            self._open()

    def _open(self) -> TaskExecutorPool:
        loop = asyncio.get_running_loop()
        self.inbox = inbox = AsyncInbox(loop)
        scope = self.scope
        if self.live:
            scope.root.sink = inbox.post
        if scope.nested:
            scope.signal.watch(self._wake)

        def run(task: NodeTask) -> Ending:
            return perform(task, scope, self.head)  # type: ignore[arg-type] # set before anything starts

        async def arun(task: NodeTask) -> Ending:
            return await aperform(task, scope, self.head)  # type: ignore[arg-type] # set before anything starts

        permits = Permits(scope.root.slots, self.lent)
        self.pool = TaskExecutorPool(run, arun, inbox=inbox, home=loop, permits=permits, signal=scope.signal)
        return self.pool

    def _wake(self) -> None:
        if self.inbox is not None:
            self.inbox.post(None)

    def start(self, effect: Start) -> Stop | None:
        if self.cut is not None:
            return Stop(self.cut)
        if self.scope.signal.stopped:
            return self.stopped()
        if self.closed is not None:
            return Stop(self.closed)
        if self.begin_step(effect, "async"):
            self.lone = effect.tasks[0]
        else:
            (self.pool or self._open()).start(effect.tasks)
        return None

    async def next(self, effect: Next) -> list[Ending] | Stop | None:
        """Return endings, [] when time is up, Stop, or None when only events have come."""
        if self.lone is not None:
            task, self.lone = self.lone, None
            return [await self._run_lone(task)]
        if self.grace is None:
            if self.cut is not None:
                return Stop(self.cut)
            if self.closed is not None:
                return Stop(self.closed)
            if self.scope.nested and self.scope.signal.stopped:
                return self.stopped()
        pool, inbox = self.pool, self.inbox
        assert pool is not None
        assert inbox is not None
        deadline = self.deadline(effect)
        try:
            items = await inbox.take(None if deadline is None else deadline - monotonic())
        except asyncio.CancelledError as error:
            self.cut = error
            return None
        endings = self.sort(items)
        if endings or items or deadline is None or monotonic() < deadline:
            return endings or None
        return pool.abandon() if self.grace is not None else []

    async def _run_lone(self, task: NodeTask) -> Ending:
        scope, head = self.scope, self.head
        ending: Ending = await _in_context(scope.context.copy(), aperform(task, scope, head))  # type: ignore[arg-type]
        if self.me is not None and self.me.cancelling() > self.cancels:
            # a cancel from outside, even if the node has swallowed it
            error = ending.error if isinstance(ending, (Failed, Cancelled)) else None
            self.cut = error if isinstance(error, asyncio.CancelledError) else asyncio.CancelledError()
            if type(ending) is Failed and error is self.cut:
                return Cancelled(task, error)
        return ending

    async def perform(self, effect: Load | Put | Cancel) -> Any:
        journal = self.journal
        if type(effect) is Put:
            try:
                await self.whole(journal.aput(*effect))  # type: ignore[union-attr] # a loop without one writes nothing
            except Exception as error:  # noqa: BLE001 - the reply says it; nothing is thrown into the program
                return Stop(error)
            return None
        if type(effect) is Load:
            return await self.whole(journal.aload(self.scope.namespace, *effect))  # type: ignore[union-attr] # as above
        if type(effect) is Cancel:
            self.grace = monotonic() + self.scope.root.grace
            if self.pool is not None:
                self.pool.cancel()
            return None
        assert_never(effect)

    async def whole(self, write: Any) -> Any:
        """Await a read or write to its end; a cancel meanwhile is told at the next chance: a write is not torn."""
        if self.journal is not None and not self.journal.saver.blocking:
            return await write  # never suspends
        task = asyncio.ensure_future(write)
        while True:
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError as error:
                if task.cancelled():
                    raise
                self.cut = error

    def close(self) -> None:
        """Leave nothing running: what the program did not see the end of is told to stop and left behind."""
        if self.pool is not None:
            if self.scope.nested:
                self.scope.signal.unwatch(self._wake)
            if self.pool.outstanding:
                self.pool.cancel()
                self.pool.abandon()


async def finish(run: AsyncGenerator[Event | Outcome, None]) -> Outcome:
    """Run to the end without a reader and return the outcome."""
    outcome: Outcome | None = None
    async for item in run:
        if type(item) is Outcome:
            outcome = item
    assert outcome is not None, "a driver ends with an outcome"
    return outcome
