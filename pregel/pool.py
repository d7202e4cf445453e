"""TaskExecutorPool: the tasks of one super-step at a time, on threads and on an event loop. It has no policy.

Workers pull from one queue; endings come back in batches through an inbox. `wait_all` applies the rule of an ending to
the others (rules 5.1 to 5.3) for those who use a pool without a loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextvars import copy_context
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Protocol

from . import log
from .effects import Event
from .interrupt import GraphInterrupt, as_exception
from .task import Cancelled, Done, Ending, Failed, Interrupted, NodeTask, Write
from .threads import LOOP, THREADS, Slots, StopSignal, running_loop

Item = Ending | Event | None
"""What an inbox takes; None only wakes the reader."""


class Inbox(Protocol):
    """Where endings and events arrive, from any thread."""

    def post(self, item: Item) -> None:
        """Put something in."""


class SyncInbox:
    """An inbox that a thread waits on."""

    __slots__ = ("_items", "post")

    def __init__(self) -> None:
        self._items: SimpleQueue[Item] = SimpleQueue()
        self.post: Callable[[Item], None] = self._items.put

    def take(self, seconds: float | None) -> list[Item]:
        """Return all that is there, waiting for the first item at most so long; [] when nothing came."""
        batch: list[Item] = []
        try:
            if seconds is None or seconds > 0:
                batch.append(self._items.get(timeout=seconds))
            while True:
                batch.append(self._items.get_nowait())
        except Empty:
            return batch


class AsyncInbox:
    """An inbox that a coroutine waits on: one wake-up of the loop for a burst of items."""

    __slots__ = ("_items", "_loop", "_waiter", "_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[Item] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._woken = False

    def post(self, item: Item) -> None:
        """Put something in, from any thread."""
        self._items.append(item)
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # the loop has closed: whoever waited is gone, and so is the run
                pass

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self, seconds: float | None) -> list[Item]:
        """Return all that is there, waiting for the first item at most so long; [] when nothing came."""
        self._woken = False
        if not self._items:
            self._waiter = self._loop.create_future()
            if seconds is None:
                await self._waiter
            else:
                await asyncio.wait([self._waiter], timeout=max(0.0, seconds))
            self._waiter = None
            self._woken = False
        batch: list[Item] = []
        while self._items:
            batch.append(self._items.popleft())
        return batch


Perform = Callable[[NodeTask], Ending]
APerform = Callable[[NodeTask], Coroutine[Any, Any, Ending]]


class TaskExecutorPool:
    """Runs tasks: sync nodes on threads, async nodes on an event loop.

    `failed` maps the name of each task that did not complete to its ending, whose `status` is "__interrupt__",
    "__error__" or "__cancelled__"; `succeed_messages` maps the names of the others to what they wrote (rule 5.1).
    `max_concurrency` bounds how many node bodies execute at once; `grace` is how many seconds `cancel_all` waits.
    """

    def __init__(
        self,
        perform: Perform | None = None,
        aperform: APerform | None = None,
        *,
        inbox: Inbox | None = None,
        home: asyncio.AbstractEventLoop | None = None,
        slots: Slots | None = None,
        signal: StopSignal | None = None,
        max_concurrency: int | None = None,
        grace: float = 5.0,
    ) -> None:
        self.failed: dict[str, Interrupted | Failed | Cancelled] = {}
        self.succeed_messages: dict[str, list[Write]] = {}
        self.signal = StopSignal() if signal is None else signal
        self.grace = grace
        self.outstanding: set[NodeTask] = set()
        self._perform = perform or self._run_alone
        self._aperform = aperform or self._arun_alone
        self._inbox: Inbox = SyncInbox() if inbox is None else inbox
        self._home = home
        self._slots = slots if max_concurrency is None else Slots(max_concurrency)
        self._context = copy_context()
        self._queue: deque[NodeTask] = deque()  # sync tasks; workers pull
        self._waiting: deque[NodeTask] = deque()  # async tasks; touched on the home loop only
        self._running: dict[asyncio.Task[None], NodeTask] = {}
        self._workers = 0
        self._lock = threading.Lock()  # of the number of workers
        self._shut = False  # a task has failed: what is queued would only be cancelled (rule 5.3)
        self._order: list[NodeTask] = []

    # --- for drivers ------------------------------------------------------------------------------------------------

    def start(self, tasks: Iterable[NodeTask]) -> None:
        """Start tasks. Those of sync nodes and graphs go to threads, unless the home loop can run a graph."""
        self._context = copy_context()  # on the caller's thread: a task that starts later sees it too
        on_loop = ("async", "graph") if self._home is not None else ("async",)
        apart: list[NodeTask] = []
        for task in tasks:
            self.outstanding.add(task)
            (apart if task.node.kind in on_loop else self._queue).append(task)
        if apart:
            self._on_loop(self._admit, apart)
        if self._queue:
            self._hire()

    def work(self) -> Ending | None:
        """Run one queued task here if no worker could be had for it (only then: it delays records and cancels)."""
        if self._workers or self._shut or not self._queue or not self._take():
            return None
        try:
            return self._noted(self._perform(self._queue.popleft()))
        except IndexError:  # a worker has come after all
            return None
        finally:
            self._give()

    def cancel(self) -> None:
        """Tell everything to stop; what is queued never starts."""
        self.signal.set()
        while self._queue:
            try:
                self._inbox.post(Cancelled(self._queue.popleft()))
            except IndexError:  # a worker was faster
                break
        if self._waiting or self._running:
            self._on_loop(self._cancel_running)

    def abandon(self) -> list[Ending]:
        """Leave behind what has not stopped: its result and its calls to the engine are refused (rule 5.3)."""
        self.signal.abandoned = True
        left: list[Ending] = [Cancelled(task, abandoned=True) for task in self.outstanding]
        for ending in left:
            log.warn(log.TASK_ABANDONED, task=ending.task.id)
        self.outstanding.clear()
        return left

    def accept(self, items: Iterable[Item]) -> list[Ending]:
        """Return the endings among what an inbox gave, but for those of tasks left behind."""
        endings: list[Ending] = []
        for item in items:
            if item is not None and not isinstance(item, Event) and item.task in self.outstanding:
                self.outstanding.remove(item.task)
                endings.append(item)
        return endings

    # --- threads ----------------------------------------------------------------------------------------------------

    def _hire(self) -> None:
        if self._queue and not self._shut and self._take():
            with self._lock:
                self._workers += 1
                first = self._workers == 1
            # a coroutine cannot work itself while it waits, so its tasks must have a thread
            if not THREADS.offer(self._drain, must=first and self._home is not None):
                with self._lock:
                    self._workers -= 1
                self._give()
                self._inbox.post(None)  # whoever waits may have counted on this worker

    def _drain(self) -> None:
        queue, perform, post = self._queue, self._perform, self._inbox.post
        if len(queue) > 1:
            self._hire()  # each worker wakes the next one, and only while there is work left
        try:
            while not self._shut:
                post(self._noted(perform(queue.popleft())))
        except IndexError:
            pass
        with self._lock:
            self._workers -= 1
        self._give()
        self._look()

    # --- slots ------------------------------------------------------------------------------------------------------

    def _take(self) -> bool:
        return self._slots is None or self._slots.take(self._look)

    def _give(self) -> None:
        if self._slots is not None:
            self._slots.give()

    def _look(self) -> None:
        """Use what has become free; called from any thread."""
        if self._queue:
            self._hire()
        if self._waiting:
            self._on_loop(self._launch)
        self._inbox.post(None)  # whoever waits may work itself now

    def _noted(self, ending: Ending) -> Ending:
        if isinstance(ending, Failed):
            self._shut = True
        return ending

    # --- the event loop ---------------------------------------------------------------------------------------------

    def _on_loop(self, call: Callable[..., None], *args: Any) -> None:
        home = self._home or LOOP.get()
        if running_loop() is home:
            call(*args)
        else:
            try:
                home.call_soon_threadsafe(call, *args)
            except RuntimeError:  # the loop has closed: whoever waited is gone, and so is the run
                pass

    def _admit(self, tasks: list[NodeTask]) -> None:
        self._waiting.extend(tasks)
        self._launch()

    def _launch(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and not self._shut and not self.signal.stopped and self._take():
            task = self._waiting.popleft()
            running = loop.create_task(self._report(task), context=self._context.copy())
            self._running[running] = task
            running.add_done_callback(self._ended)
        if self.signal.stopped:
            self._cancel_running()

    async def _report(self, task: NodeTask) -> None:
        # the ending is posted from inside: a done callback would cost one more turn of the loop
        self._inbox.post(self._noted(await self._aperform(task)))
        self._give()
        if self._waiting:
            self._launch()
        if self._queue:
            self._hire()

    def _ended(self, running: asyncio.Task[None]) -> None:
        task = self._running.pop(running)
        if running.cancelled():  # before its first step, so that nothing was posted from inside
            self._inbox.post(Cancelled(task))
            self._give()

    def _cancel_running(self) -> None:
        while self._waiting:
            self._inbox.post(Cancelled(self._waiting.popleft()))
        for running in list(self._running):
            running.cancel()

    # --- for users of a pool alone ----------------------------------------------------------------------------------

    def submit(self, task: NodeTask) -> None:
        """Start a task; its input is `task.arg`."""
        self._order.append(task)
        self.start([task])

    def wait_all(self) -> dict[str, list[Write]]:
        """Wait until every task has ended; return the messages of all, or raise (rules 5.1 to 5.3).

        An interrupt cancels nobody and is raised as one GraphInterrupt; an error cancels the rest and is raised as
        itself, the first in the order of submission. Only for pools that were not given an inbox of another world.
        """
        assert isinstance(self._inbox, SyncInbox), "a pool with an inbox of its own is driven by its owner"
        cancelled = self.signal.stopped
        deadline = monotonic() + self.grace if cancelled else None
        endings: dict[NodeTask, Ending] = {}
        while self.outstanding:
            worked = self.work()
            items = [worked] if worked is not None else self._inbox.take(_left(deadline))
            fresh = self.accept(items)
            if deadline is not None and not fresh and monotonic() >= deadline:
                fresh = self.abandon()
            endings.update((ending.task, ending) for ending in fresh)
            if not cancelled and any(type(ending) is Failed for ending in fresh):
                cancelled = True
                deadline = monotonic() + self.grace
                self.cancel()
        return self._judge([endings[task] for task in self._order if task in endings])

    def cancel_all(self) -> None:
        """Tell everything to stop and wait for it, at most the grace time; never raises what the tasks did."""
        self.cancel()
        try:
            self.wait_all()
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise

    def _run_alone(self, task: NodeTask) -> Ending:
        """Run a task without a graph: what it returns are its writes."""
        try:
            return _alone(task, task.node.fn(task.arg))
        except BaseException as error:  # noqa: BLE001 - every ending is a value
            return self._broken(task, error)

    async def _arun_alone(self, task: NodeTask) -> Ending:
        try:
            return _alone(task, await task.node.fn(task.arg))
        except BaseException as error:  # noqa: BLE001 - every ending is a value
            return self._broken(task, error)

    def _broken(self, task: NodeTask, error: BaseException) -> Ending:
        if self.signal.stopped and not isinstance(error, GraphInterrupt):
            return Cancelled(task, error)
        return _alone(task, error)

    def _judge(self, endings: list[Ending]) -> dict[str, list[Write]]:
        self._order = []
        for ending in endings:
            if type(ending) is Done:
                self.succeed_messages[ending.task.name] = ending.writes
            else:
                self.failed[ending.task.name] = ending  # type: ignore[assignment] # the three kinds that are left
        errors = [ending for ending in endings if type(ending) is Failed]
        if errors:
            raise errors[0].error
        asked = [ending.as_exception() for ending in endings if type(ending) is Interrupted]
        if asked:
            raise as_exception(asked)
        return self.succeed_messages


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - monotonic())


def _alone(task: NodeTask, result: Any) -> Ending:
    if isinstance(result, GraphInterrupt):
        return Interrupted(task, result.interrupts, payload=result.value)
    if isinstance(result, BaseException):
        return Failed(task, result)
    return Done(task, [(name, value, None) for name, value in (result or {}).items()])
