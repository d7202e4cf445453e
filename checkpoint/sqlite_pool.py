"""Connections to one SQLite database: opened, made durable, lent to threads, and closed, over forks too.

This file knows locks, processes and pragmas; it knows nothing of checkpoints.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from threading import Condition, Lock
from typing import NamedTuple
from weakref import WeakSet

from .errors import CheckpointError, CorruptCheckpointError, StorageVersionError


class Schema(NamedTuple):
    """What a database of this application holds."""

    application_id: int  # stands in the header of the file
    versions: tuple[tuple[str, ...], ...]  # for each version the statements that lead to it from the one before


class Pool:
    """Open connections to the database at `path`, each used by one transaction at a time.

    Readers get one each, so nobody who reads waits for a writer's disk. Writers take turns here, where they are woken,
    and not in SQLite, where they would poll. ":memory:" lives in its only connection: all take turns for it.
    `timeout` is how many seconds a writer waits for others. Everything raised about the database is a
    `CheckpointError` that names it.
    """

    MAX_IDLE = 8

    def __init__(self, path: str | os.PathLike[str], schema: Schema, timeout: float) -> None:
        self._single = os.fspath(path) == ":memory:"
        # Absolute, since connections are opened later too, and the process may have changed its directory by then.
        self.path = ":memory:" if self._single else os.path.abspath(path)
        self._schema = schema
        self._timeout = timeout
        self._turn = Lock()  # for writers
        self._gate = Lock()  # guards what follows
        self._returned = Condition(self._gate)
        self._idle: list[sqlite3.Connection] = []
        self._lent = 0
        self._awaited = False  # somebody waits for all that is lent
        self._closed = False
        with _fork_lock:
            _pools.add(self)
        self.give_back(self.take(None), None)  # so a file that cannot be used is refused here

    def reading(self) -> Transaction:
        """Begin a transaction that sees one instant, to be used with `with`."""
        return Transaction(self, self._turn if self._single else None, "BEGIN")

    def writing(self) -> Transaction:
        """Begin a transaction that no other writer can come between, to be used with `with`."""
        return Transaction(self, self._turn, "BEGIN IMMEDIATE")

    def check_open(self) -> None:
        """Refuse if the pool was closed."""
        if self._closed:
            raise CheckpointError(f"{self.path}: this saver was closed", hint="make a new one; who made it closes it")

    def close(self) -> None:
        """Close all connections, after those that are lent have come back."""
        with self._gate:
            self._closed = True
            self._drain()

    def take(self, turn: Lock | None) -> sqlite3.Connection:
        """Lend a connection, when it is the caller's turn."""
        if turn and not turn.acquire(timeout=self._timeout):
            message = f"{self.path}: waited {self._timeout} s for other threads of this process"
            raise CheckpointError(message, hint=_WAIT, path=self.path)
        try:
            with self._gate:
                self._lent += 1
                self.check_open()
                db = self._idle.pop() if self._idle else None
            return db or _connect(self.path, self._schema, self._timeout)
        except BaseException:
            self.give_back(None, turn)
            raise

    def give_back(self, db: sqlite3.Connection | None, turn: Lock | None) -> None:
        """Take a connection back, and close it if it cannot be used again."""
        with self._gate:
            if db is None:
                pass  # none could be had
            # One that is still in a transaction could not roll back, and is good for nothing but closing.
            elif self._closed or db.in_transaction or len(self._idle) == self.MAX_IDLE:
                db.close()
            else:
                self._idle.append(db)
            self._lent -= 1
            if self._awaited:
                self._returned.notify_all()
        if turn:
            turn.release()

    def before_fork(self) -> None:
        """Leave no connection open, and the gate shut."""
        self._gate.acquire()
        self._drain()

    def after_fork(self, *, in_child: bool) -> None:
        """Open the gate again; in the child, without those who do not exist there."""
        if in_child:
            self._turn = Lock()  # a thread that exists only in the parent may hold the other one
            self._lent = 0
        self._gate.release()

    def _drain(self) -> None:
        """Wait for what is lent, then close what may be closed. The caller has the gate."""
        self._awaited = True
        self._returned.wait_for(lambda: self._lent == 0, self._timeout)
        if self._closed or not self._single:  # a database in memory goes with its connection; a fork may copy it
            while self._idle:
                self._idle.pop().close()


class Transaction:
    """One transaction on a connection of the pool: all of it or nothing.

    A class and not a generator, since it stands around everything that a run waits for.
    """

    __slots__ = ("_begin", "_db", "_pool", "_turn")

    def __init__(self, pool: Pool, turn: Lock | None, begin: str) -> None:
        self._pool = pool
        self._turn = turn  # kept, since a fork may put another in the pool
        self._begin = begin

    def __enter__(self) -> sqlite3.Connection:
        db = self._db = self._pool.take(self._turn)
        try:
            db.execute(self._begin)
        except BaseException as error:
            self._pool.give_back(db, self._turn)
            if isinstance(error, sqlite3.Error):
                raise _explained(error, self._pool.path) from error
            raise
        return db

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        db = self._db
        try:
            try:
                if error is None:
                    db.execute("COMMIT")
            finally:
                if db.in_transaction:  # not committed, and not rolled back by the error itself, as some are
                    db.execute("ROLLBACK")
        except sqlite3.Error as late:
            raise _explained(late, self._pool.path) from late
        finally:
            self._pool.give_back(db, self._turn)
        if isinstance(error, sqlite3.Error):
            raise _explained(error, self._pool.path) from error


# SQLite's locks belong to the process and its notes about them to the memory, so a child that inherits an open
# connection believes in locks that it does not have, and loses commits when the parent closes the file. Therefore no
# connection is open while the process forks; opening new ones in the child alone would not help.

_pools: WeakSet[Pool] = WeakSet()
_forking: list[Pool] = []
_fork_lock = Lock()  # guards both; held over a fork


def _before_fork() -> None:
    _fork_lock.acquire()
    for pool in _pools:
        _forking.append(pool)
        pool.before_fork()


def _after_fork(*, in_child: bool) -> None:
    while _forking:
        _forking.pop().after_fork(in_child=in_child)
    _fork_lock.release()


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=partial(_after_fork, in_child=False),
        after_in_child=partial(_after_fork, in_child=True),
    )


def _connect(path: str, schema: Schema, timeout: float) -> sqlite3.Connection:
    """Open a connection to a database that has this schema, or get it first."""
    db: sqlite3.Connection | None = None
    try:
        db = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
        with _all_or_nothing(db, "BEGIN"):
            version = _version(db, path, schema)  # before anything is changed in a file that may be another's
        if path != ":memory:":
            _make_durable(db, path, timeout)
        if version < len(schema.versions):
            _migrate(db, path, schema)
    except BaseException as error:
        if db is not None:
            db.close()
        if isinstance(error, sqlite3.Error):
            raise _explained(error, path) from error
        raise
    return db


@contextmanager
def _all_or_nothing(db: sqlite3.Connection, begin: str) -> Iterator[None]:
    db.execute(begin)
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _version(db: sqlite3.Connection, path: str, schema: Schema) -> int:
    """Return the version of the schema in the file, 0 for a new file; refuse any other file.

    The caller has begun a transaction: between two of these statements another process may make its tables.
    """
    application = int(db.execute("PRAGMA application_id").fetchone()[0])
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    known = len(schema.versions)
    if application != schema.application_id:
        if application or version or db.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise CheckpointError(f"{path} belongs to another application", hint="choose another path", path=path)
        return 0
    if version > known:
        message = f"{path} has version {version} of the schema, this release knows versions up to {known}"
        raise StorageVersionError(message, hint="upgrade pregel", path=path, found=version, known=known)
    return version


def _migrate(db: sqlite3.Connection, path: str, schema: Schema) -> None:
    with _all_or_nothing(db, "BEGIN IMMEDIATE"):
        version = _version(db, path, schema)  # again: another process may have done it while this one waited
        for statement in chain.from_iterable(schema.versions[version:]):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {schema.application_id}")
        db.execute(f"PRAGMA user_version = {len(schema.versions)}")


def _make_durable(db: sqlite3.Connection, path: str, timeout: float) -> None:
    mode = _write_ahead(db, timeout)
    if mode != "wal":
        message = f"{path} cannot have a write-ahead log (journal mode {mode!r})"
        raise CheckpointError(message, hint="put it on a local disk", path=path)
    db.execute("PRAGMA synchronous = FULL")  # NORMAL may lose the last commits in a power cut
    db.execute("PRAGMA fullfsync = ON")  # matters on macOS only, where a plain fsync stops at the drive's cache


def _write_ahead(db: sqlite3.Connection, timeout: float) -> str:
    """Switch to the write-ahead log, and return the journal mode that the file has now.

    SQLite does not wait here as it does elsewhere: of several that switch a new file at once, some are told at once
    that it is locked. When the first has switched it, there is nothing left to do for the others.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return str(db.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.001)


_WAIT = "others wrote for longer than `timeout`: raise it, or find who holds the lock"
_EXPLANATIONS: dict[int, tuple[type[CheckpointError], str]] = {
    sqlite3.SQLITE_BUSY: (CheckpointError, _WAIT),
    sqlite3.SQLITE_CANTOPEN: (CheckpointError, "see that its directory exists and may be written to"),
    sqlite3.SQLITE_CORRUPT: (CorruptCheckpointError, "restore the file from a backup"),
    sqlite3.SQLITE_FULL: (CheckpointError, "make room on the disk; what was acknowledged is there"),
    sqlite3.SQLITE_NOTADB: (CheckpointError, "choose another path"),
    sqlite3.SQLITE_READONLY: (CheckpointError, "see that the file and its directory may be written to"),
    sqlite3.SQLITE_TOOBIG: (CheckpointError, "keep the value elsewhere and store where it is"),
}


def _explained(error: sqlite3.Error, path: str) -> CheckpointError:
    """Say which file SQLite's error is about and what to do."""
    kind, hint = _EXPLANATIONS.get(_code(error), (CheckpointError, ""))
    return kind(f"{path}: {error}", hint=hint, path=path)


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's code without the detail in its higher bits; 0 for an error of Python's module itself."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
