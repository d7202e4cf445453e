"""The threads of the process, kept between runs, and the small primitives that both worlds share."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
Job = Callable[[], None]

WORKERS = 32
"""How many threads the process keeps for nodes (rule 11.2)."""
IDLE = 10.0
"""Seconds after which an idle thread ends."""


class StopSignal:
    """Tells running work to stop. Set once; work below sees what is set above it.

    `abandoned` says that nobody waits any more: what still runs may do nothing more to the run.
    """

    __slots__ = ("_calls", "_set", "abandoned", "parent")

    def __init__(self, parent: StopSignal | None = None) -> None:
        self.parent = parent
        self.abandoned = False
        self._set = False
        self._calls: list[Job] = []

    @property
    def stopped(self) -> bool:
        """Whether this signal or one above it is set."""
        signal: StopSignal | None = self
        while signal is not None:
            if signal._set:
                return True
            signal = signal.parent
        return False

    @property
    def cut_off(self) -> bool:
        """Whether this signal or one above it was abandoned."""
        signal: StopSignal | None = self
        while signal is not None:
            if signal.abandoned:
                return True
            signal = signal.parent
        return False

    def set(self) -> None:
        """Stop."""
        self._set = True
        for call in list(self._calls):
            call()

    def watch(self, call: Job) -> None:
        """Have `call` called when this or a higher signal is set; look at `stopped` after: it may be set already."""
        signal: StopSignal | None = self
        while signal is not None:
            signal._calls.append(call)
            signal = signal.parent

    def unwatch(self, call: Job) -> None:
        """Take a watch back."""
        signal: StopSignal | None = self
        while signal is not None:
            signal._calls.remove(call)
            signal = signal.parent

    def wait(self, seconds: float) -> bool:
        """Sleep, but no longer than until stopped; return whether it is."""
        event = threading.Event()
        self.watch(event.set)
        try:
            return self.stopped or event.wait(seconds)
        finally:
            self.unwatch(event.set)


class Slots:
    """A budget of node bodies that may execute at once (rule 11.2), possibly on top of another one.

    Nobody blocks on it, so it cannot deadlock: who got nothing leaves a call, which is made when there is something
    again. A task that holds a slot gives its children a budget of one on top of what it was taken from: the slot is
    theirs while the task waits for them.
    """

    __slots__ = ("_above", "_borrowed", "_free", "_lock", "_wanted")

    def __init__(self, count: int, above: Slots | None = None) -> None:
        self._free = count
        self._above = above
        self._borrowed = 0
        self._wanted: set[Job] = set()
        self._lock = threading.Lock()

    def take(self, again: Job) -> bool:
        """Take a slot if one is free; else `again` is called, from any thread, once one may be."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return True
            self._wanted.add(again)  # before looking above, so that nothing given meanwhile is missed
        if self._above is None or not self._above.take(again):
            return False
        with self._lock:
            self._borrowed += 1
        return True

    def give(self) -> None:
        """Give a slot back."""
        with self._lock:
            borrowed = self._borrowed > 0
            if borrowed:
                self._borrowed -= 1
            else:
                self._free += 1
            wanted, self._wanted = self._wanted, set()
        if borrowed and self._above is not None:
            self._above.give()
        for again in wanted:
            again()


class Threads:
    """Worker threads, started when first needed and kept while there is work."""

    def __init__(self, most: int = WORKERS, idle: float = IDLE) -> None:
        self.most = most
        self._idle = idle
        self._reset()
        os.register_at_fork(after_in_child=self._reset)  # threads do not survive a fork, counts of them do

    def _reset(self) -> None:
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._free = 0

    def offer(self, job: Job, must: bool = False) -> bool:
        """Have a job done by a free or a new thread; return False if there is none, unless it `must` be done."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
            elif self._count < self.most or must:
                # What must be done is waited for by something that may itself hold a thread: queueing it could deadlock
                self._count += 1
                threading.Thread(target=self._work, name="pregel-worker", daemon=True).start()
            else:
                return False
        self._jobs.put(job)
        return True

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Have a call done in a thread for certain, and return its future."""
        future: Future[T] = Future()

        def job() -> None:
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - it is raised again by whoever reads the future
                future.set_exception(error)

        self.offer(job, must=True)
        return future

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._idle)
            except Empty:
                with self._lock:
                    if self._free > 0 and self._jobs.empty():
                        self._free -= 1
                        self._count -= 1
                        return
                continue
            job()
            del job  # an idle thread must not keep a finished run alive
            with self._lock:
                if self._count > self.most:
                    self._count -= 1
                    return
                self._free += 1


class LoopThread:
    """One event loop in a thread of its own, for async nodes under `invoke`."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def get(self) -> asyncio.AbstractEventLoop:
        """Return the loop, running."""
        if self._loop is None:
            with self._lock:
                if self._loop is None:
                    loop = asyncio.new_event_loop()
                    threading.Thread(target=loop.run_forever, name="pregel-loop", daemon=True).start()
                    self._loop = loop
        return self._loop

    def is_here(self) -> bool:
        """Whether the calling code runs on that loop."""
        return self._loop is not None and running_loop() is self._loop

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.get()).result()


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def branch() -> object:
    """Return what stands for the calling branch: its asyncio task, else its thread."""
    return threading.get_ident() if running_loop() is None else asyncio.current_task()


class Claims:
    """Which call of a run uses which namespace, so that a second one at the same time is seen."""

    __slots__ = ("_lock", "_owners")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[str, str] = {}

    def take(self, namespace: str, caller: str, goes_on: Callable[[str], bool]) -> str | None:
        """Give the namespace to a caller, or return its owner if that one still goes on."""
        with self._lock:
            owner = self._owners.get(namespace, caller)
            if owner != caller and goes_on(owner):
                return owner
            self._owners[namespace] = caller
            return None


async def all_ended(awaitables: Iterable[Awaitable[T]]) -> list[tuple[T | None, BaseException | None]]:
    """Run awaitables side by side and return, when all have ended, what each returned and what it raised."""

    async def ended(awaitable: Awaitable[T]) -> tuple[T | None, BaseException | None]:
        try:
            return await awaitable, None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - the ending is a value; a cancel of all is raised by gather
            return None, error

    return await asyncio.gather(*(ended(awaitable) for awaitable in awaitables))


def cancel_here() -> Job:
    """Return what cancels the asyncio task that is calling."""
    task = asyncio.current_task()
    assert task is not None, "called from a coroutine that a task runs"

    def cancel() -> None:
        task.get_loop().call_soon_threadsafe(task.cancel)

    return cancel


THREADS = Threads()
LOOP = LoopThread()
