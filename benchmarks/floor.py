"""The floor: the least that a hand-written program could do for the same result and the same guarantees.

Dict channels, whole-number versions, wake-ups by edge, writes folded in task order, and one commit per step where
something is kept: nothing runs before the input is kept, a commit is refused if somebody else has written meanwhile,
what a node is given is its own. No names are checked, nothing is retried, timed, cancelled, streamed or forked.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

import msgpack

Node = Callable[[Any], Any]
Fold = Callable[[Any, Any], Any] | None
"""How a key takes a write: a function of two arguments, or None for one write a step."""
Task = tuple[str, Any]
"""A node and its own input, `STATE` if that is the state."""

STATE: Any = object()
NO_ANSWER: Any = object()
_answer: ContextVar[Any] = ContextVar("floor_answer", default=NO_ANSWER)


class Packet(NamedTuple):
    """Run `node` in the next step with `arg`; a node returns a list of them."""

    node: str
    arg: Any


class Asked(BaseException):
    """A node asks; no error, so a node that handles errors does not stop it."""


def ask(question: Any) -> Any:
    """Return the answer, or pause."""
    answer = _answer.get()
    if answer is NO_ANSWER:
        raise Asked(question)
    return answer


class Run:
    """Where a run stands."""

    __slots__ = ("changed", "clock", "due", "namespace", "packets", "question", "state", "versions")

    def __init__(self, namespace: str, state: dict[str, Any], due: dict[str, int]) -> None:
        self.namespace = namespace
        self.clock = 1
        self.state = state
        self.versions = dict.fromkeys(state, 1)
        self.changed: Iterable[str] = state
        self.due = due
        self.packets: list[Packet] = []
        self.question: Any = None


class Store(Protocol):
    """Keeps a thread."""

    def commit(self, run: Run) -> None:
        """Keep what changed."""

    def load(self, namespace: str) -> Run:
        """Read the newest."""


class Floor:
    """A graph: nodes in order, where each leads, where an input goes, how keys take writes, who says what follows."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        edges: Mapping[str, Sequence[str]],
        entry: Sequence[str],
        folds: Mapping[str, Fold],
        routers: Mapping[str, Node] | None = None,
    ) -> None:
        self.nodes = nodes
        self.order = {name: place for place, name in enumerate(nodes)}
        self.edges = {name: edges.get(name, ()) for name in nodes}
        self.entry = entry
        self.folds = folds
        self.routers = routers or {}

    def run(self, values: Mapping[str, Any], store: Store | None = None, namespace: str = "") -> dict[str, Any]:
        """Run an input to its end or pause."""
        return self._go(self._begin(values, store, namespace), store)

    def resume(self, answer: Any, store: Store) -> dict[str, Any]:
        """Answer the question of a paused run, and run it to its end."""
        run = self._answered(answer, store)
        before = _answer.set(answer)
        try:
            return self._go(run, store)
        finally:
            _answer.reset(before)

    def _begin(self, values: Mapping[str, Any], store: Store | None, namespace: str) -> Run:
        run = Run(namespace, dict(values), dict.fromkeys(self.entry, 1))
        if store is not None:
            store.commit(run)
        return run

    def _answered(self, answer: Any, store: Store) -> Run:
        run = store.load("")
        run.clock += 1
        run.question = [run.question, answer]
        run.changed = ()
        store.commit(run)
        run.question = None
        return run

    def _go(self, run: Run, store: Store | None) -> dict[str, Any]:
        while run.due or run.packets:
            tasks = self._due(run)
            try:
                if len(tasks) == 1:
                    results = [self._perform(run, tasks[0])]
                else:
                    results = WORKERS.each(lambda task: self._perform(run, task), tasks)
            except Asked as asked:
                return _pause(run, asked, store)
            self._fold(run, tasks, results)
            if store is not None:
                store.commit(run)
        return run.state.copy()

    def _due(self, run: Run) -> list[Task]:
        tasks: list[Task] = [(name, STATE) for name in run.due]
        if len(tasks) > 1:
            tasks.sort(key=lambda task: self.order[task[0]])
        if run.packets:
            tasks += [(packet.node, packet.arg) for packet in run.packets]
        return tasks

    def _perform(self, run: Run, task: Task) -> tuple[Any, Any]:
        name, arg = task
        result = self.nodes[name](run.state.copy() if arg is STATE else arg)
        router = self.routers.get(name)
        return result, None if router is None else router(run.state | result)

    def _fold(self, run: Run, tasks: list[Task], results: list[tuple[Any, Any]]) -> None:
        run.clock = number = run.clock + 1
        due: dict[str, int] = {}
        packets: list[Packet] = []
        written: dict[str, list[Any]] = {}
        for (name, _), (result, decided) in zip(tasks, results, strict=True):
            if type(result) is list:
                packets += result
            elif result is not None:
                for key, value in result.items():
                    if key in written:
                        written[key].append(value)
                    else:
                        written[key] = [value]
            for target in self.edges[name]:
                due.setdefault(target, number)
            if decided is not None:
                due.setdefault(decided, number)
        state, versions, folds = run.state, run.versions, self.folds
        for key, writes in written.items():
            fold = folds[key]
            if fold is not None:
                value = state[key]
                for write in writes:
                    value = fold(value, write)
            elif len(writes) > 1:
                raise ValueError(f"{key!r} takes one write a step")
            else:
                value = writes[0]
            state[key] = value
            versions[key] = number
        run.due, run.packets, run.changed = due, packets, written

    # --- asyncio ----------------------------------------------------------------------------------------------------

    async def arun(self, values: Mapping[str, Any], store: Store | None = None, namespace: str = "") -> dict[str, Any]:
        """Do `run` on the running event loop, with async nodes."""
        return await self._ago(self._begin(values, store, namespace), store)

    async def aresume(self, answer: Any, store: Store) -> dict[str, Any]:
        """Do `resume` on the running event loop."""
        run = self._answered(answer, store)
        before = _answer.set(answer)
        try:
            return await self._ago(run, store)
        finally:
            _answer.reset(before)

    async def _ago(self, run: Run, store: Store | None) -> dict[str, Any]:
        while run.due or run.packets:
            tasks = self._due(run)
            try:
                if len(tasks) == 1:
                    results = [await self._aperform(run, tasks[0])]
                else:
                    results = await each(lambda task: self._aperform(run, task), tasks)
            except Asked as asked:
                return _pause(run, asked, store)
            self._fold(run, tasks, results)
            if store is not None:
                store.commit(run)
        return run.state.copy()

    async def _aperform(self, run: Run, task: Task) -> tuple[Any, Any]:
        name, arg = task
        result = await self.nodes[name](run.state.copy() if arg is STATE else arg)
        router = self.routers.get(name)
        return result, None if router is None else router(run.state | result)


def _pause(run: Run, asked: Asked, store: Store | None) -> dict[str, Any]:
    run.clock += 1
    run.question = asked.args[0]
    run.changed = ()
    if store is not None:
        store.commit(run)
    return {**run.state, "__interrupt__": [run.question]}


# --- many at once -------------------------------------------------------------------------------------------------


class Workers:
    """Threads that pull from one queue; each wakes the next one while there is work left."""

    def __init__(self, most: int = 32) -> None:
        self._most = most
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._count = 0
        self._free = 0
        self._lock = threading.Lock()

    def each(self, call: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Call with each item and return the results in order; raises what a call raised."""
        results: list[Any] = [None] * len(items)
        left = deque(range(len(items)))
        ended: SimpleQueue[BaseException | None] = SimpleQueue()

        def pull() -> None:
            if len(left) > 1:
                self._offer(pull)
            try:
                while True:
                    index = left.popleft()
                    try:
                        results[index] = call(items[index])
                    except BaseException as error:  # noqa: BLE001 - it is raised again below
                        ended.put(error)
                    else:
                        ended.put(None)
            except IndexError:
                pass

        self._offer(pull)
        errors = [ended.get() for _ in items]
        for error in errors:
            if error is not None:
                raise error
        return results

    def _offer(self, job: Callable[[], None]) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
            elif self._count < self._most:
                self._count += 1
                threading.Thread(target=self._work, daemon=True).start()
            else:
                return  # all are at work and will look at the queue again
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            job()
            del job
            with self._lock:
                self._free += 1


WORKERS = Workers()


async def each(call: Callable[[Any], Awaitable[Any]], items: Sequence[Any]) -> list[Any]:
    """Await a call with each item at once and return the results in order; raises what a call raised."""
    loop = asyncio.get_running_loop()
    results: list[Any] = [None] * len(items)
    errors: list[BaseException] = []
    left = len(items)
    all_ended = loop.create_future()

    async def one(index: int) -> None:
        nonlocal left
        try:
            results[index] = await call(items[index])
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            errors.append(error)
        left -= 1
        if not left:
            all_ended.set_result(None)

    tasks = [loop.create_task(one(index)) for index in range(len(items))]
    await all_ended
    del tasks
    if errors:
        raise errors[0]
    return results


# --- what is kept -------------------------------------------------------------------------------------------------


def _loaded(namespace: str, clock: int, rest: bytes, values: Iterable[tuple[str, int, bytes]]) -> Run:
    due, packets, question = msgpack.unpackb(rest)
    run = Run(namespace, {}, due)
    for key, version, data in values:
        run.state[key] = msgpack.unpackb(data)
        run.versions[key] = version
    run.clock = clock
    run.packets = [Packet(*packet) for packet in packets]
    run.question = question
    return run


class Memory:
    """Keeps bytes in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checkpoints: dict[tuple[str, int], tuple[bytes, tuple[tuple[str, int, bytes], ...]]] = {}
        self._heads: dict[str, int] = {}

    def commit(self, run: Run) -> None:
        """Keep what changed, if nobody else has written."""
        pack, number, namespace = msgpack.packb, run.clock, run.namespace
        values = tuple((key, number, pack(run.state[key])) for key in run.changed)
        rest = pack((run.due, run.packets, run.question))
        with self._lock:
            if self._heads.get(namespace, 0) >= number:
                raise ValueError("somebody else has written")
            self._checkpoints[namespace, number] = (rest, values)
            self._heads[namespace] = number

    def load(self, namespace: str) -> Run:
        """Read the newest."""
        number = self._heads[namespace]
        newest: dict[str, tuple[str, int, bytes]] = {}
        for earlier in range(1, number + 1):
            newest.update((value[0], value) for value in self._checkpoints[namespace, earlier][1])
        return _loaded(namespace, number, self._checkpoints[namespace, number][0], newest.values())


class Sqlite:
    """Keeps one thread in a SQLite file shared with others: one transaction a commit, synced to disk."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS checkpoints"
            " (thread TEXT, ns TEXT, id INTEGER, rest BLOB, PRIMARY KEY (thread, ns, id)) WITHOUT ROWID"
        )
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS channel_values (thread TEXT, ns TEXT, channel TEXT, version INTEGER, data BLOB,"
            " PRIMARY KEY (thread, ns, channel, version)) WITHOUT ROWID"
        )
        self.thread = ""

    def commit(self, run: Run) -> None:
        """Keep what changed, if nobody else has written."""
        pack, number, place = msgpack.packb, run.clock, (self.thread, run.namespace)
        values = [(*place, key, number, pack(run.state[key])) for key in run.changed]
        rest = pack((run.due, run.packets, run.question))
        with self._lock:
            execute = self._db.execute
            execute("BEGIN IMMEDIATE")
            try:
                head = execute("SELECT max(id) FROM checkpoints WHERE thread = ? AND ns = ?", place).fetchone()[0]
                if (head or 0) >= number:
                    raise ValueError("somebody else has written")
                execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?)", (*place, number, rest))
                if values:
                    self._db.executemany("INSERT INTO channel_values VALUES (?, ?, ?, ?, ?)", values)
            except BaseException:
                execute("ROLLBACK")
                raise
            execute("COMMIT")

    def load(self, namespace: str) -> Run:
        """Read the newest."""
        place = (self.thread, namespace)
        with self._lock:
            number, rest = self._db.execute(
                "SELECT id, rest FROM checkpoints WHERE thread = ? AND ns = ? ORDER BY id DESC LIMIT 1", place
            ).fetchone()
            values = self._db.execute(
                "SELECT channel, max(version), data FROM channel_values WHERE thread = ? AND ns = ? GROUP BY channel",
                place,
            ).fetchall()
        return _loaded(namespace, number, rest, values)

    def close(self) -> None:
        """Close the file."""
        self._db.close()
