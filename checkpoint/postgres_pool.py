"""Connections to PostgreSQL: lent for one statement, looked at before, kept for threads and for event loops.

This file knows psycopg, threads and loops; it knows nothing of checkpoints. What is said to the server is written
once, as a generator that yields statements and is sent their rows; `do` and `ado` carry it out.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Generator
from contextlib import suppress
from threading import Lock
from typing import Any, LiteralString, NamedTuple, TypeAlias, TypedDict, TypeVar

import psycopg
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolClosed, PoolTimeout

from .errors import CheckpointError

_T = TypeVar("_T")

SyncPool: TypeAlias = "ConnectionPool[Any]"
AsyncPool: TypeAlias = "AsyncConnectionPool[Any]"
Rows: TypeAlias = list[tuple[Any, ...]]


class Ask(NamedTuple):
    """One statement, which is one transaction."""

    statement: LiteralString
    values: tuple[Any, ...] | dict[str, Any] = ()
    repeatable: bool = True  # doing it twice is as good as once, so it may be said again when its reply was lost
    refused: str = ""  # the error code that is an answer: `Refused`, with the detail of the error


Talk: TypeAlias = Generator[Ask, Rows, _T]


class Refused(tuple[Any, ...]):
    """The row that stands for a refusal."""


class PoolOptions(TypedDict, total=False):
    """How the connections of one pool are kept; times in seconds."""

    min_size: int  # open at any time
    max_size: int  # at once; who comes when all are lent waits
    max_idle: float  # one above `min_size` that nobody needed for so long is closed
    max_lifetime: float  # an older one is replaced
    timeout: float  # how long a call waits for a connection


_DEFAULTS = PoolOptions(min_size=1, max_size=10, max_idle=600.0, max_lifetime=3600.0, timeout=30.0)

# No prepared statements: behind a pooler the next transaction may be on a connection that does not have them.
_CONNECTION: dict[str, Any] = {"autocommit": True, "prepare_threshold": None}


class Pools:
    """Lends connections: from one pool for threads and one for each event loop, or from the caller's pool."""

    def __init__(self, database: str | SyncPool | AsyncPool, options: PoolOptions) -> None:
        self._conninfo = database if isinstance(database, str) else None
        if self._conninfo is None and options:
            raise CheckpointError("a pool has its options already", hint="give them to the pool, or give a conninfo")
        self._options: PoolOptions = {**_DEFAULTS, **options}
        self._sync: SyncPool | None = None if isinstance(database, str | AsyncConnectionPool) else database
        self._given: AsyncPool | None = database if isinstance(database, AsyncConnectionPool) else None
        self._async: dict[asyncio.AbstractEventLoop, _Kept] = {}
        self._lock = Lock()  # guards the making of pools
        self._process = os.getpid()
        self._closed = False

    def check_open(self) -> None:
        """Refuse if the saver was closed."""
        if self._closed:
            raise CheckpointError("this PostgresSaver was closed", hint="make a new one; who made it closes it")

    def do(self, talk: Talk[_T]) -> _T:
        """Carry out what is to be said, in this thread."""
        try:
            ask = next(talk)
            while True:
                ask = talk.send(self._answer(ask))
        except StopIteration as done:
            result: _T = done.value
            return result

    async def ado(self, talk: Talk[_T]) -> _T:
        """Carry out what is to be said, on the running loop."""
        try:
            ask = next(talk)
            while True:
                ask = talk.send(await self._aanswer(ask))
        except StopIteration as done:
            result: _T = done.value
            return result

    def _answer(self, ask: Ask) -> Rows:
        """Say one thing on one connection; once more on another one if the first has died and that does no harm."""
        pool = self._pool()
        spare, said = pool.max_size, False
        while True:
            connection: psycopg.Connection[Any] | None = None
            try:
                with pool.connection() as connection:
                    if spare and is_dead(connection):  # the pool replaces it when it comes back closed
                        spare -= 1
                        connection.close()
                        continue
                    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
                    cursor.execute(ask.statement, ask.values or None, prepare=False, binary=True)
                    return cursor.fetchall() if cursor.rownumber is not None else []
            except psycopg.Error as error:
                if error.sqlstate and error.sqlstate == ask.refused:
                    return [Refused((error.diag.message_detail,))]
                if said or not ask.repeatable or connection is None or not connection.closed:
                    raise explained(error) from error
                said = True

    async def _aanswer(self, ask: Ask) -> Rows:
        """Do `_answer` on the running loop."""
        pool = await self._apool()
        spare, said = pool.max_size, False
        while True:
            connection: psycopg.AsyncConnection[Any] | None = None
            try:
                async with pool.connection() as connection:
                    if spare and is_dead(connection):
                        spare -= 1
                        await connection.close()
                        continue
                    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
                    await cursor.execute(ask.statement, ask.values or None, prepare=False, binary=True)
                    return await cursor.fetchall() if cursor.rownumber is not None else []
            except psycopg.Error as error:
                if error.sqlstate and error.sqlstate == ask.refused:
                    return [Refused((error.diag.message_detail,))]
                if said or not ask.repeatable or connection is None or not connection.closed:
                    raise explained(error) from error
                said = True

    # --- the pools ------------------------------------------------------------------------------------------------

    def _pool(self) -> SyncPool:
        if self._sync is None or self._process != os.getpid():
            self._make_pool()
        self.check_open()
        assert self._sync is not None
        return self._sync

    def _make_pool(self) -> None:
        if self._given is not None:
            raise CheckpointError(
                "this PostgresSaver has only an async pool",
                hint="use the async methods, or give it a ConnectionPool or a conninfo",
            )
        self._leave_inherited()
        with self._lock:
            self.check_open()
            if self._sync is None:
                assert self._conninfo is not None
                self._sync = ConnectionPool(self._conninfo, kwargs=_CONNECTION, open=True, **self._options)

    async def _apool(self) -> AsyncPool:
        if self._given is not None:
            self.check_open()
            return self._given
        if self._conninfo is None:
            raise CheckpointError(
                "this PostgresSaver has only a sync pool",
                hint="use the sync methods, or give it an AsyncConnectionPool or a conninfo",
            )
        kept = self._async.get(asyncio.get_running_loop())
        if kept is None or kept.is_gone() or self._process != os.getpid():
            kept = self._keep_apool(self._conninfo)
        self.check_open()
        if not kept.opening.done():
            try:
                await asyncio.shield(kept.opening)  # it is for all who wait
            except psycopg.Error as error:
                raise explained(error) from error
        return kept.pool

    def _keep_apool(self, conninfo: str) -> _Kept:
        self._leave_inherited()
        with self._lock:
            self.check_open()
            for other in [each for each in self._async if each.is_closed()]:
                del self._async[other]
            kept = _Kept(AsyncConnectionPool(conninfo, kwargs=_CONNECTION, open=False, **self._options))
            self._async[asyncio.get_running_loop()] = kept
        return kept

    def _leave_inherited(self) -> None:
        """After `os.fork` leave the parent's connections alone: even a goodbye on one would be the parent's."""
        if self._process != os.getpid() and self._conninfo is not None:
            _inherited.append((self._sync, self._async))
            self._lock, self._sync, self._async, self._process = Lock(), None, {}, os.getpid()

    def close(self) -> None:
        """Close the pools that were made here; a pool of a loop that is running is closed there, soon."""
        for loop, kept in self._take_made():
            if not loop.is_closed():
                loop.call_soon_threadsafe(kept.enough.set)

    async def aclose(self) -> None:
        """Close the pools that were made here, the one of the running loop before this returns."""
        running = asyncio.get_running_loop()
        for loop, kept in self._take_made():
            if loop is running:
                kept.enough.set()
                await asyncio.wait([kept.keeper])
            elif not loop.is_closed():
                loop.call_soon_threadsafe(kept.enough.set)

    def _take_made(self) -> list[tuple[asyncio.AbstractEventLoop, _Kept]]:
        """Close for good, and the pool for threads; return the pools of loops. What is lent closes as it comes back."""
        self._leave_inherited()
        with self._lock:
            self._closed = True
            made = list(self._async.items())
            self._async = {}
            if self._conninfo is not None and self._sync is not None:
                self._sync.close()  # waits for its idle helpers only, so a loop may do it too
        return made


_inherited: list[object] = []  # never touched, never collected


class _Kept:
    """The pool of one loop, with a task that closes it, at the latest when the loop ends: that cancels all tasks.

    Without it, a worker of the pool that is making a connection would take the cancel for a failure of that, and go on.
    """

    def __init__(self, pool: AsyncPool) -> None:
        self.pool = pool
        # Opened once its first connections are made: who came earlier would have it make more than are needed.
        self.opening = asyncio.create_task(pool.open(wait=True, timeout=pool.timeout))
        self.enough = asyncio.Event()
        self.keeper = asyncio.create_task(self._keep())

    def is_gone(self) -> bool:
        """Tell whether it was closed, or could not be opened."""
        return self.keeper.done() or (
            self.opening.done() and (self.opening.cancelled() or self.opening.exception() is not None)
        )

    async def _keep(self) -> None:
        try:
            await self.enough.wait()
        except asyncio.CancelledError:
            await self.pool.drain()  # the connections first: `close` waits for workers, and these are cancelled too
            with suppress(asyncio.CancelledError):
                await self.pool.close()
            raise
        await self.pool.close()


def is_dead(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Look whether the server has left, without a round trip: then there is something to read, and after it the end."""
    try:
        while _readable(connection.pgconn.socket):
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return True
    return False


if hasattr(select, "poll"):

    def _readable(socket: int) -> bool:
        poll = select.poll()
        poll.register(socket, select.POLLIN)
        return bool(poll.poll(0))

else:  # Windows, whose select knows no highest number

    def _readable(socket: int) -> bool:
        return bool(select.select([socket], [], [], 0)[0])


_HINTS: dict[str, str] = {  # by error code
    "3D000": "create the database first",
    "3F000": "let the search path of the connection name a schema that exists",
    "42501": "call `setup` once as a role that may create tables and functions, and let this role use them",
    "42883": "the schema is damaged: a function of it is gone",
    "42P01": "the schema is damaged: a table of it is gone",
    "53100": "make room on the disk; what was acknowledged is there",
    "54000": "use shorter names of threads, tasks and channels: a name must fit into an index",
}
_UNREACHABLE = (
    "see that the server can be reached, or raise `max_size` or `timeout`; the logger psycopg.pool says what failed"
)


def explained(error: psycopg.Error) -> CheckpointError:
    """Say what to do about psycopg's error."""
    if isinstance(error, PoolTimeout):
        return CheckpointError(f"PostgreSQL: {error}", hint=_UNREACHABLE)
    if isinstance(error, PoolClosed):
        return CheckpointError(f"PostgreSQL: {error}", hint="open the pool before, and close it after its saver")
    return CheckpointError(f"PostgreSQL: {error}", hint=_HINTS.get(error.sqlstate or "", ""))
