"""The saver that keeps threads in a PostgreSQL database, for many machines.

Nothing that was acknowledged is lost as long as the server keeps its word (rule 10.1): each put is one transaction.
Each statement is a transaction of its own and leaves nothing in the session, so the server may stand behind a pooler
that hands every transaction to another connection (PgBouncer in transaction mode).
"""

from __future__ import annotations

import builtins
import json
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from typing import Any, TypeVar, Unpack

from . import postgres_schema as schema
from .checkpoint import ChannelValue, Checkpoint, Commit, Found, Key, Run, Saved, TaskRecord
from .errors import ConcurrentRunError, StorageVersionError
from .postgres_pool import Ask, AsyncPool, PoolOptions, Pools, Refused, SyncPool, Talk
from .saver import (
    Saver,
    check_key,
    check_name,
    check_names,
    corrupt,
    fold_versions,
    gather_values,
    id_taken,
    overtaken,
    row_taken,
)

_T = TypeVar("_T")


class PostgresSaver(Saver):
    """Keeps threads in a PostgreSQL database, in tables whose names begin with `pregel_`.

    `database` is a conninfo: then the saver makes its pools when they are needed, one for threads and one for each
    event loop, and closes them. Their options are `min_size` (1), `max_size` (10), and in seconds `max_idle` (600),
    `max_lifetime` (3600) and `timeout` (30), which is how long a call waits for a connection.

    Or `database` is an open pool of psycopg_pool, which stays the caller's: a `ConnectionPool` serves the sync methods,
    an `AsyncConnectionPool` the async ones on its loop.

    The tables are made at the first use, or by `setup`, where the role that runs graphs may not make them.
    """

    def __init__(self, database: str | SyncPool | AsyncPool, **options: Unpack[PoolOptions]) -> None:
        self._pools = Pools(database, options)
        self._is_set_up = False

    def setup(self) -> None:
        """Make the tables, or bring them to the version of this release; nothing is done twice.

        Raise `StorageVersionError` if a newer release was here.
        """
        self._pools.do(_set_up())
        self._is_set_up = True

    async def asetup(self) -> None:
        """Do `setup` on the running loop."""
        await self._pools.ado(_set_up())
        self._is_set_up = True

    def get(self, key: Key, epochs: Collection[int] | None = None) -> Found:
        """Read one checkpoint; see `Saver.get`."""
        check_key(key)
        return self._do(_get(key, epochs=epochs))

    async def aget(self, key: Key, epochs: Collection[int] | None = None) -> Found:
        """Do `get` on the running loop."""
        check_key(key)
        return await self._ado(_get(key, epochs=epochs))

    def list(self, key: Key, *, before: int | None = None, limit: int | None = None) -> Iterator[Saved]:
        """Read checkpoints newest first; see `Saver.list`."""
        check_key(key)
        self._pools.check_open()
        history = _History(key, before, limit)
        return iter(lambda: self._do(history.next()), None)

    async def alist(self, key: Key, *, before: int | None = None, limit: int | None = None) -> AsyncIterator[Saved]:
        """Do `list` on the running loop."""
        check_key(key)
        history = _History(key, before, limit)
        while (saved := await self._ado(history.next())) is not None:
            yield saved

    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        """Write commits and records in one statement; see `Saver.put`."""
        check_names(run, commits, records)
        self._do(_put(run, commits, records))

    async def aput(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        """Do `put` on the running loop."""
        check_names(run, commits, records)
        await self._ado(_put(run, commits, records))

    def threads(self) -> Iterator[str]:
        """List thread ids; see `Saver.threads`."""
        self._pools.check_open()
        return self._threads()

    def _threads(self) -> Iterator[str]:
        page = self._do(_page(""))
        while page:
            yield from page
            page = self._do(_page(_above(page[-1])))

    async def athreads(self) -> AsyncIterator[str]:
        """Do `threads` on the running loop."""
        page = await self._ado(_page(""))
        while page:
            for thread_id in page:
                yield thread_id
            page = await self._ado(_page(_above(page[-1])))

    def namespaces(self, thread_id: str) -> builtins.list[str]:  # plain `list` is the method above
        """Return the namespaces of a thread; see `Saver.namespaces`."""
        check_name("thread id", thread_id)
        return self._do(_namespaces(thread_id))

    async def anamespaces(self, thread_id: str) -> builtins.list[str]:
        """Do `namespaces` on the running loop."""
        check_name("thread id", thread_id)
        return await self._ado(_namespaces(thread_id))

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread; see `Saver.delete_thread`."""
        check_name("thread id", thread_id)
        self._do(_delete(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Do `delete_thread` on the running loop."""
        check_name("thread id", thread_id)
        await self._ado(_delete(thread_id))

    def close(self) -> None:
        """Close the pools made here; see `Saver.close`. Those of running loops are closed on their loops, soon."""
        self._pools.close()

    async def aclose(self) -> None:
        """Do `close`; the pool of the running loop is closed before this returns."""
        await self._pools.aclose()

    def _do(self, talk: Talk[_T]) -> _T:
        if not self._is_set_up:
            self.setup()
        return self._pools.do(talk)

    async def _ado(self, talk: Talk[_T]) -> _T:
        if not self._is_set_up:
            await self.asetup()
        return await self._pools.ado(talk)


# --- what is said to the server ----------------------------------------------------------------------------------


def _set_up() -> Talk[None]:
    version = yield from _version()
    if version < schema.NEWEST:
        yield Ask(schema.migration())
        version = yield from _version()  # again: a newer release may have done it while this one waited
    if version > schema.NEWEST:
        message = f"the database has version {version} of the schema, this release knows versions up to {schema.NEWEST}"
        raise StorageVersionError(message, hint="upgrade pregel", found=version, known=schema.NEWEST)


def _version() -> Talk[int]:
    """Read the version of the tables; 0 if there are none."""
    rows = yield Ask(schema.IS_SET_UP)
    if not rows[0][0]:
        return 0
    rows = yield Ask(schema.VERSION)
    return rows[0][0] or 0


def _get(key: Key, *, below: int | None = None, epochs: Collection[int] | None = None) -> Talk[Found]:
    """Read in two statements, however long the history is.

    What the first read never changes but goes with the thread, so the second looks whether it is still the same one.
    """
    thread_id, namespace, checkpoint_id = key
    choice = (checkpoint_id, below, None if epochs is None else list(epochs))
    while True:
        rows = yield Ask(schema.FIND, (thread_id, namespace, *choice))
        incarnation, head, top, changes, lost, *records = rows[0][:9]
        if incarnation is None:
            return Found(None, 0, None)
        run, columns = Run(thread_id, incarnation, head), rows[0][9:]
        if columns[0] is None:
            return Found(run, top, None)
        checkpoint = Checkpoint._make(columns)
        checkpoint = checkpoint._replace(line=tuple(checkpoint.line))
        if lost:
            raise corrupt(thread_id, checkpoint, f"its ancestor {lost} is missing")
        versions = fold_versions(thread_id, checkpoint, changes)
        rows = []
        if versions:
            now, *rows = (yield Ask(schema.VALUES, (thread_id, namespace, json.dumps(versions)))) or [(None,)]
            if now[0] != incarnation:
                continue  # deleted meanwhile, and perhaps made anew
        found = {(row[1], row[2]): ChannelValue._make(row[1:]) for row in rows}
        values = gather_values(thread_id, checkpoint, versions, found)
        return Found(run, top, Saved(checkpoint, versions, values, _records(namespace, records)))


def _records(namespace: str, columns: list[Any]) -> tuple[TaskRecord, ...]:
    if columns[0] is None:
        return ()
    return tuple(TaskRecord(namespace, *row) for row in zip(*columns, strict=True))


class _History:
    """How far a list has been read."""

    def __init__(self, key: Key, before: int | None, limit: int | None) -> None:
        self._key = key._replace(checkpoint_id=None)
        self._below = before
        self._left = limit
        self._incarnation: str | None = None

    def next(self) -> Talk[Saved | None]:
        """Read the next older checkpoint, None at the end."""
        if self._left is not None and self._left <= 0:
            return None
        run, _, saved = yield from _get(self._key, below=self._below)
        if run is None or saved is None or self._incarnation not in (None, run.incarnation):
            self._left = 0
            return None
        self._incarnation = run.incarnation
        self._below = saved.checkpoint.id
        self._left = None if self._left is None else self._left - 1
        return saved


def _page(first: str) -> Talk[list[str]]:
    rows = yield Ask(schema.THREADS, (first,))
    return [thread_id for (thread_id,) in rows]


def _above(thread_id: str) -> str:
    """Return the least text above it, since no id has a NUL."""
    return thread_id + "\x01"


def _namespaces(thread_id: str) -> Talk[list[str]]:
    rows = yield Ask(schema.NAMESPACES, {"thread": thread_id})
    return [namespace for (namespace,) in rows]


def _delete(thread_id: str) -> Talk[None]:
    # Not repeatable: a thread that took the id after the first time would go as well.
    yield Ask(schema.DELETE, (thread_id,), repeatable=False)


def _put(run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> Talk[None]:
    """Write in one statement. Repeating it is no harm: a put that was applied is recognised."""
    data = _Data()
    head, look, checkpoints = _pack_checkpoints(run, commits, data)
    values = _pack_values(commits, data)
    rows = _pack_records(records, data)
    packed = data.joined()
    answer = yield Ask(schema.PUT, (*run, head, look, checkpoints, values, rows, packed), refused=schema.REFUSED)
    if not isinstance(answer[0], Refused):
        return
    error = _refusal(run, commits, records, json.loads(answer[0][0]))
    # Looked at after the roll-back, so that nothing of this put is taken for something that was there.
    # Records alone have no token to go by.
    if commits:
        answer = yield Ask(schema.WAS_APPLIED, (run.thread_id, run.incarnation, checkpoints, rows, packed))
        if answer[0][0]:
            return
    raise error


class _Data:
    """The bytes of a put, one behind another: an array of them would cost more than all the rest."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 1  # as SQL counts

    def add(self, *parts: bytes) -> int:
        """Put parts at the end, and return where the first begins."""
        at = self._at
        self._parts += parts
        self._at += sum(map(len, parts))
        return at

    def joined(self) -> bytes:
        """Return all parts as one."""
        return b"".join(self._parts)


def _pack_checkpoints(run: Run, commits: Sequence[Commit], data: _Data) -> tuple[int, bool, str | None]:
    """Return the head after these commits, whether the server must look at their numbers, and their rows."""
    tops = {"": run.head}
    look = False
    rows = []
    for i, (c, _) in enumerate(commits):
        above = tops.get(c.namespace)
        look = look or above is None or c.id <= above
        tops[c.namespace] = c.id
        rows.append(
            {
                "i": i,
                "above": above,  # what the number must be above, None if only the server knows
                "at": data.add(c.due, c.versions, c.metadata),
                "due": len(c.due),
                "versions": len(c.versions),
                "metadata": len(c.metadata),
                "ns": c.namespace,
                "id": c.id,
                "parent_ns": c.parent_namespace,
                "parent_id": c.parent_id,
                "token": c.token,
                "source": c.source,
                "status": c.status,
                "step": c.step,
                "created_at": c.created_at,
                "epoch": c.epoch,
                "caller": c.caller,
                "fingerprint": c.fingerprint,
                "line": c.line,
                "complete": c.complete,
            }
        )
    return tops[""], look, _json(rows)


def _pack_values(commits: Sequence[Commit], data: _Data) -> str | None:
    values = [(c.namespace, value) for c, values in commits for value in values]
    return _json(
        [
            {
                "i": i,
                "at": data.add(v.data),
                "size": len(v.data),
                "ns": namespace,
                "channel": v.channel,
                "version": v.version,
                "kind": v.kind,
                "base": v.base,
            }
            for i, (namespace, v) in enumerate(values)
        ]
    )


def _pack_records(records: Sequence[TaskRecord], data: _Data) -> str | None:
    return _json(
        [
            {
                "i": i,
                "at": data.add(r.data),
                "size": len(r.data),
                "ns": r.namespace,
                "checkpoint": r.checkpoint_id,
                "task": r.task_id,
                "kind": r.kind,
            }
            for i, r in enumerate(records)
        ]
    )


def _json(rows: list[dict[str, Any]]) -> str | None:
    return json.dumps(rows) if rows else None


def _refusal(run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord], why: list[Any]) -> ConcurrentRunError:
    """Make the error for what the server has found."""
    what, *found = why
    if what == "fence":
        return overtaken(run, None if found[0] is None else Run(run.thread_id, *found))
    if what == "id":
        return id_taken(run, commits[found[0]].checkpoint, found[1])
    if what == "value":
        rows = [(value, c.namespace) for c, values in commits for value in values]
        return row_taken(run, *rows[found[0]])
    assert what == "record", what
    return row_taken(run, records[found[0]], records[found[0]].namespace)
