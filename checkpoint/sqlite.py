"""The saver that keeps threads in one SQLite file, for many threads and processes of one machine.

Nothing that was acknowledged is lost by `kill -9` or a power cut: write-ahead log, and every commit synced (rule 10.1).
"""

from __future__ import annotations

import builtins
import json
import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgpack

from .checkpoint import ChannelValue, Checkpoint, Commit, Found, Key, Run, Saved, TaskRecord
from .errors import ConcurrentRunError
from .saver import Saver, check_name, corrupt, fold_versions, gather_values, id_taken, overtaken, row_taken
from .sqlite_pool import Pool, Schema, transaction

# What leads to each version of the schema from the one before. Only ever append.
# Values and checkpoints may be wide, and wide rows grow several times over in a table without rowid.
_VERSIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE threads (
            thread TEXT NOT NULL PRIMARY KEY, incarnation TEXT NOT NULL, head INTEGER NOT NULL
        ) WITHOUT ROWID""",
        """CREATE TABLE checkpoints (
            thread TEXT NOT NULL, ns TEXT NOT NULL, id INTEGER NOT NULL,
            parent_ns TEXT NOT NULL, parent_id INTEGER NOT NULL, token TEXT NOT NULL, source TEXT NOT NULL,
            status TEXT NOT NULL, step INTEGER NOT NULL, created_at REAL NOT NULL, epoch INTEGER NOT NULL,
            caller TEXT NOT NULL, fingerprint TEXT NOT NULL, line BLOB NOT NULL, due BLOB NOT NULL,
            complete INTEGER NOT NULL, versions BLOB NOT NULL, metadata BLOB NOT NULL,
            PRIMARY KEY (thread, ns, id)
        )""",
        # A child that keeps its memory is looked up by epoch among all its earlier calls. The root never is.
        "CREATE INDEX checkpoints_by_epoch ON checkpoints (thread, ns, epoch, id) WHERE ns <> ''",
        """CREATE TABLE channel_values (
            thread TEXT NOT NULL, ns TEXT NOT NULL, channel TEXT NOT NULL, version INTEGER NOT NULL,
            kind TEXT NOT NULL, base INTEGER NOT NULL, data BLOB NOT NULL,
            PRIMARY KEY (thread, ns, channel, version)
        )""",
        """CREATE TABLE task_records (
            thread TEXT NOT NULL, ns TEXT NOT NULL, checkpoint INTEGER NOT NULL, task TEXT NOT NULL,
            kind TEXT NOT NULL, data BLOB NOT NULL,
            PRIMARY KEY (thread, ns, checkpoint, task)
        )""",
    ),
)
_SCHEMA = Schema(application_id=0x5052474C, versions=_VERSIONS)  # "PRGL"

_TABLES = ("task_records", "channel_values", "checkpoints", "threads")

# Reading. Named parameters; CROSS JOIN is SQLite's way to fix the order of a join.

_COLUMNS = (  # in the order of the fields of Checkpoint
    "c.ns, c.id, c.parent_ns, c.parent_id, c.token, c.source, c.status, c.step, c.created_at, c.epoch, c.caller, "
    "c.fingerprint, c.line, c.due, c.complete, c.versions, c.metadata"
)
_TOP = "SELECT max(id) FROM checkpoints WHERE thread = :thread AND ns = :ns"


def _find(choice: str) -> str:
    """Compose the statement that reads the thread, the top of the namespace and the chosen checkpoint."""
    return (
        f"SELECT t.incarnation, t.head, ({_TOP}), {_COLUMNS} FROM threads AS t"
        f" LEFT JOIN checkpoints AS c ON c.thread = :thread AND c.ns = :ns AND c.id = ({choice})"
        " WHERE t.thread = :thread"
    )


_FIND_HEAD = _find("t.head")
_FIND_TOP = _find(_TOP)
_FIND_ID = _find(":want")
_FIND_BELOW = _find(f"{_TOP} AND id < :want")
_FIND_EPOCH_OF_ROOT = _find(f"{_TOP} AND epoch IN (SELECT value FROM json_each(:want))")
# One descent into the index for each epoch, however many checkpoints it has.
_FIND_EPOCH = _find(f"SELECT max(({_TOP} AND ns <> '' AND epoch = e.value)) FROM json_each(:want) AS e")

# A parent's id is lower than its child's. Without that condition a damaged row could make an endless walk.
_ANCESTORS = """
WITH RECURSIVE walk (depth, id, parent_ns, parent_id, complete, versions) AS (
    SELECT 0, id, parent_ns, parent_id, complete, versions FROM checkpoints
    WHERE thread = :thread AND ns = :ns AND id = :want
    UNION ALL
    SELECT w.depth + 1, c.id, c.parent_ns, c.parent_id, c.complete, c.versions
    FROM walk AS w CROSS JOIN checkpoints AS c
    WHERE NOT w.complete AND w.parent_ns = :ns AND w.parent_id < w.id
    AND c.thread = :thread AND c.ns = :ns AND c.id = w.parent_id
)
SELECT versions, complete, parent_ns, parent_id FROM walk ORDER BY depth DESC
"""
# The walk carries row numbers and not the data, which may be large and would be copied at every step.
_VALUES = """
WITH RECURSIVE chain (place, channel, version, kind, base) AS (
    SELECT v.rowid, v.channel, v.version, v.kind, v.base FROM json_each(:want) AS j CROSS JOIN channel_values AS v
    WHERE v.thread = :thread AND v.ns = :ns AND v.channel = j.key AND v.version = j.value
    UNION ALL
    SELECT v.rowid, v.channel, v.version, v.kind, v.base FROM chain AS n CROSS JOIN channel_values AS v
    WHERE n.kind = 'delta' AND n.base < n.version
    AND v.thread = :thread AND v.ns = :ns AND v.channel = n.channel AND v.version = n.base
)
SELECT v.channel, v.version, v.kind, v.base, v.data
FROM chain CROSS JOIN channel_values AS v ON v.rowid = chain.place
"""
_RECORDS = """
SELECT r.ns, r.checkpoint, r.task, r.kind, r.data FROM json_each(:want) AS j CROSS JOIN task_records AS r
WHERE r.thread = :thread AND r.ns = :ns AND r.checkpoint = j.value
ORDER BY j.key, r.rowid
"""
_THREADS = "SELECT thread FROM threads WHERE thread >= :after ORDER BY thread LIMIT 256"
# Hops from one namespace to the next. DISTINCT would read every checkpoint of the thread.
_NAMESPACES = """
WITH RECURSIVE hop (ns) AS (
    SELECT min(ns) FROM checkpoints WHERE thread = :thread
    UNION ALL
    SELECT (SELECT min(ns) FROM checkpoints WHERE thread = :thread AND ns > hop.ns) FROM hop WHERE hop.ns IS NOT NULL
)
SELECT ns FROM hop WHERE ns IS NOT NULL
"""

# Writing. A row that is there already is passed over and counted, then compared.

_ADD_THREAD = "INSERT INTO threads VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_MOVE_HEAD = "UPDATE threads SET head = ? WHERE thread = ? AND incarnation = ? AND head = ?"
_READ_THREAD = "SELECT thread, incarnation, head FROM threads WHERE thread = ?"
_ADD_CHECKPOINT = f"""
INSERT INTO checkpoints SELECT {", ".join("?" * 18)}
WHERE NOT EXISTS (SELECT 1 FROM checkpoints WHERE thread = ? AND ns = ? AND id >= ?)
"""
_ADD_VALUE = "INSERT INTO channel_values VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_ADD_RECORD = "INSERT INTO task_records VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_SAME_CHECKPOINT = "SELECT 1 FROM checkpoints WHERE thread = ? AND ns = ? AND id = ? AND token = ?"
_SAME_VALUE = """
SELECT 1 FROM channel_values
WHERE thread = ? AND ns = ? AND channel = ? AND version = ? AND kind = ? AND base = ? AND data = ?
"""
_SAME_RECORD = """
SELECT 1 FROM task_records WHERE thread = ? AND ns = ? AND checkpoint = ? AND task = ? AND kind = ? AND data = ?
"""


class SqliteSaver(Saver):
    """Keeps threads in the SQLite file at `path`, or in memory for ":memory:".

    The file is made if it is not there, its directory is not. `timeout` is how many seconds a call waits for other
    writers before it raises `CheckpointError`. The file must lie on a local disk: network file systems do not carry
    the log's shared memory. After `os.fork` both sides may go on with the saver.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 30.0) -> None:
        self._pool = Pool(path, _SCHEMA, timeout)

    def get(self, key: Key, epochs: Collection[int] | None = None) -> Found:
        """Read one checkpoint; see `Saver.get`."""
        _check_key(key)
        with self._pool.lend() as db, transaction(db, "BEGIN"):
            return _get(db, key, *_choose(key, epochs))

    def list(self, key: Key, *, before: int | None = None, limit: int | None = None) -> Iterator[Saved]:
        """Read checkpoints newest first; see `Saver.list`."""
        _check_key(key)
        self._pool.check_open()
        return self._list(key, before, limit)

    def _list(self, key: Key, before: int | None, limit: int | None) -> Iterator[Saved]:
        statement, below = (_FIND_TOP, 0) if before is None else (_FIND_BELOW, before)
        incarnation: str | None = None
        while limit is None or limit > 0:
            with self._pool.lend() as db, transaction(db, "BEGIN"):
                run, _, saved = _get(db, key, statement, below)
            if run is None or saved is None or incarnation not in (None, run.incarnation):
                return
            yield saved
            incarnation = run.incarnation
            statement, below = _FIND_BELOW, saved.checkpoint.id
            limit = None if limit is None else limit - 1

    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        """Write commits and records in one transaction; see `Saver.put`."""
        _check_names(run, commits, records)
        with self._pool.lend(writing=True) as db:
            try:
                with transaction(db, "BEGIN IMMEDIATE"):
                    _pass_fence(db, run, commits)
                    for commit in commits:
                        _add_commit(db, run, commit)
                    _add_records(db, run, records)
            except ConcurrentRunError:
                # Looked at after the roll-back, so that nothing of this put is taken for something that was there.
                with transaction(db, "BEGIN"):
                    if not _was_applied(db, run, commits, records):
                        raise

    def threads(self) -> Iterator[str]:
        """List thread ids; see `Saver.threads`."""
        self._pool.check_open()
        return self._threads()

    def _threads(self) -> Iterator[str]:
        after = ""
        while True:
            with self._pool.lend() as db:
                page = [thread_id for (thread_id,) in db.execute(_THREADS, {"after": after})]
            if not page:
                return
            yield from page
            after = page[-1] + "\0"  # the least text above it, since no id has a NUL

    def namespaces(self, thread_id: str) -> builtins.list[str]:  # plain `list` is the method above
        """Return the namespaces of a thread; see `Saver.namespaces`."""
        check_name("thread id", thread_id)
        with self._pool.lend() as db:
            return [namespace for (namespace,) in db.execute(_NAMESPACES, {"thread": thread_id})]

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread; see `Saver.delete_thread`."""
        check_name("thread id", thread_id)
        with self._pool.lend(writing=True) as db, transaction(db, "BEGIN IMMEDIATE"):
            for table in _TABLES:
                db.execute(f"DELETE FROM {table} WHERE thread = ?", (thread_id,))

    def close(self) -> None:
        """Close the connections; see `Saver.close`."""
        self._pool.close()


def _check_key(key: Key) -> None:
    check_name("thread id", key.thread_id)
    check_name("namespace", key.namespace)


def _check_names(run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
    check_name("thread id", run.thread_id)
    for checkpoint, values in commits:
        check_name("namespace", checkpoint.namespace)
        for value in values:
            check_name("channel", value.channel)
    for record in records:
        check_name("namespace", record.namespace)
        check_name("task id", record.task_id)


def _choose(key: Key, epochs: Collection[int] | None) -> tuple[str, int | str]:
    """Choose the statement that finds the checkpoint, and what it wants to know."""
    if key.checkpoint_id is not None:
        return _FIND_ID, key.checkpoint_id
    if epochs is not None:
        return _FIND_EPOCH if key.namespace else _FIND_EPOCH_OF_ROOT, json.dumps(list(epochs))
    return _FIND_TOP if key.namespace else _FIND_HEAD, 0


def _get(db: sqlite3.Connection, key: Key, find: str, want: int | str) -> Found:
    """Read in four statements, however long the history is. The caller has begun a transaction."""
    names = {"thread": key.thread_id, "ns": key.namespace, "want": want}
    row = db.execute(find, names).fetchone()
    if row is None:
        return Found(None, 0, None)
    incarnation, head, top, *columns = row
    saved = None if columns[0] is None else _saved(db, names, _checkpoint(key.thread_id, columns))
    return Found(Run(key.thread_id, incarnation, head), top or 0, saved)


def _checkpoint(thread_id: str, columns: list[Any]) -> Checkpoint:
    checkpoint = Checkpoint._make(columns)
    try:
        line = tuple(msgpack.unpackb(checkpoint.line))
    except (ValueError, TypeError) as error:
        raise corrupt(thread_id, checkpoint, "its line is not readable") from error
    return checkpoint._replace(line=line, complete=bool(checkpoint.complete))


def _saved(db: sqlite3.Connection, names: dict[str, Any], checkpoint: Checkpoint) -> Saved:
    thread_id: str = names["thread"]
    names["want"] = checkpoint.id
    changes = [checkpoint.versions]
    if not checkpoint.complete:
        rows = db.execute(_ANCESTORS, names).fetchall()
        _, complete, parent_ns, parent_id = rows[0]
        if parent_id and not complete and parent_ns == checkpoint.namespace:
            raise corrupt(thread_id, checkpoint, f"its ancestor {parent_id} is missing")
        changes = [row[0] for row in rows]
    versions = fold_versions(thread_id, checkpoint, changes)
    names["want"] = json.dumps(versions)
    found = {(row[0], row[1]): ChannelValue._make(row) for row in db.execute(_VALUES, names)} if versions else {}
    values = gather_values(thread_id, checkpoint, versions, found)
    names["want"] = json.dumps(checkpoint.line)
    return Saved(checkpoint, versions, values, tuple(map(TaskRecord._make, db.execute(_RECORDS, names))))


def _pass_fence(db: sqlite3.Connection, run: Run, commits: Sequence[Commit]) -> None:
    """Compare the thread's row with what the run knows, and move its head."""
    head = max((commit.checkpoint.id for commit in commits if not commit.checkpoint.namespace), default=run.head)
    if run.head == 0 and db.execute(_ADD_THREAD, (run.thread_id, run.incarnation, head)).rowcount:
        return
    if head == run.head:  # an update would write a page for nothing
        if db.execute(_READ_THREAD, (run.thread_id,)).fetchone() == run:
            return
    elif db.execute(_MOVE_HEAD, (head, *run)).rowcount:
        return
    there = db.execute(_READ_THREAD, (run.thread_id,)).fetchone()
    raise overtaken(run, there and Run._make(there))


def _add_commit(db: sqlite3.Connection, run: Run, commit: Commit) -> None:
    c = commit.checkpoint
    place = (run.thread_id, c.namespace, c.id)
    row = (run.thread_id, *c._replace(line=msgpack.packb(c.line)))
    if not db.execute(_ADD_CHECKPOINT, (*row, *place)).rowcount:
        top = db.execute(_TOP, {"thread": run.thread_id, "ns": c.namespace}).fetchone()[0]
        raise id_taken(run, c, top)
    rows = [(run.thread_id, c.namespace, *value) for value in commit.values]
    if db.executemany(_ADD_VALUE, rows).rowcount < len(rows):
        for value, values_row in zip(commit.values, rows, strict=True):
            if db.execute(_SAME_VALUE, values_row).fetchone() is None:
                raise row_taken(run, value, c.namespace)


def _add_records(db: sqlite3.Connection, run: Run, records: Sequence[TaskRecord]) -> None:
    rows = [(run.thread_id, *record) for record in records]
    if db.executemany(_ADD_RECORD, rows).rowcount < len(rows):
        for record, row in zip(records, rows, strict=True):
            if db.execute(_SAME_RECORD, row).fetchone() is None:
                raise row_taken(run, record, record.namespace)


def _was_applied(db: sqlite3.Connection, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> bool:
    """Tell whether exactly this put was written before: its reply was lost. Records alone have no token to go by."""
    there = db.execute(_READ_THREAD, (run.thread_id,)).fetchone()
    if not commits or there is None or there[1] != run.incarnation:
        return False
    places = [(run.thread_id, c.namespace, c.id, c.token) for c, _ in commits]
    return all(db.execute(_SAME_CHECKPOINT, place).fetchone() for place in places) and all(
        db.execute(_SAME_RECORD, (run.thread_id, *record)).fetchone() for record in records
    )
