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
from .sqlite_pool import Pool, Schema

# What leads to each version of the schema from the one before. Only ever append.
# A commit of one small checkpoint pays for each page that it touches. So rows lie in their key where they can, and the
# head of a thread is its highest root checkpoint and no column of its own. But wide rows grow several times over in a
# table without rowid, so wide values lie elsewhere.
_VERSIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE threads (thread TEXT NOT NULL PRIMARY KEY, incarnation TEXT NOT NULL) WITHOUT ROWID",
        """CREATE TABLE checkpoints (
            thread TEXT NOT NULL, ns TEXT NOT NULL, id INTEGER NOT NULL,
            parent_ns TEXT NOT NULL, parent_id INTEGER NOT NULL, token TEXT NOT NULL, source TEXT NOT NULL,
            status TEXT NOT NULL, step INTEGER NOT NULL, created_at REAL NOT NULL, epoch INTEGER NOT NULL,
            caller TEXT NOT NULL, fingerprint TEXT NOT NULL, line BLOB NOT NULL, due BLOB NOT NULL,
            complete INTEGER NOT NULL, versions BLOB NOT NULL, metadata BLOB NOT NULL,
            PRIMARY KEY (thread, ns, id)
        ) WITHOUT ROWID""",
        # A child that keeps its memory is looked up by epoch among all its earlier calls. The root never is.
        "CREATE INDEX checkpoints_by_epoch ON checkpoints (thread, ns, epoch, id) WHERE ns <> ''",
        """CREATE TABLE channel_values (
            thread TEXT NOT NULL, ns TEXT NOT NULL, channel TEXT NOT NULL, version INTEGER NOT NULL,
            kind TEXT NOT NULL, base INTEGER NOT NULL, data BLOB,
            PRIMARY KEY (thread, ns, channel, version)
        ) WITHOUT ROWID""",
        """CREATE TABLE wide_values (
            thread TEXT NOT NULL, ns TEXT NOT NULL, channel TEXT NOT NULL, version INTEGER NOT NULL, data BLOB NOT NULL,
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

_TABLES = ("task_records", "wide_values", "channel_values", "checkpoints", "threads")
_WIDE = 600  # bytes; what is longer goes to `wide_values`. At about 1,000 a row would need a second page.

# Reading. Named parameters; CROSS JOIN is SQLite's way to fix the order of a join.

_COLUMNS = (  # in the order of the fields of Checkpoint
    "c.ns, c.id, c.parent_ns, c.parent_id, c.token, c.source, c.status, c.step, c.created_at, c.epoch, c.caller, "
    "c.fingerprint, c.line, c.due, c.complete, c.versions, c.metadata"
)
_LINE = Checkpoint._fields.index("line")  # the one field that is not stored as it is
_TOP = "SELECT max(id) FROM checkpoints WHERE thread = :thread AND ns = :ns"
_HEAD = "coalesce((SELECT max(id) FROM checkpoints WHERE thread = :thread AND ns = ''), 0)"


def _find(choice: str) -> str:
    """Compose the statement that reads the thread, the top of the namespace and the chosen checkpoint."""
    return (
        f"SELECT t.incarnation, {_HEAD}, ({_TOP}), {_COLUMNS} FROM threads AS t"
        f" LEFT JOIN checkpoints AS c ON c.thread = :thread AND c.ns = :ns AND c.id = ({choice})"
        " WHERE t.thread = :thread"
    )


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
# Where the data of value v is, if it is not in its own row.
_WIDE_OF_V = (
    "SELECT data FROM wide_values AS w WHERE (thread, ns, channel, version) = (v.thread, v.ns, v.channel, v.version)"
)
# The walk carries no data: it may be large and would be copied at every step.
_VALUES = f"""
WITH RECURSIVE chain (channel, version, kind, base) AS (
    SELECT v.channel, v.version, v.kind, v.base FROM json_each(:want) AS j CROSS JOIN channel_values AS v
    WHERE v.thread = :thread AND v.ns = :ns AND v.channel = j.key AND v.version = j.value
    UNION ALL
    SELECT v.channel, v.version, v.kind, v.base FROM chain AS n CROSS JOIN channel_values AS v
    WHERE n.kind = 'delta' AND n.base < n.version
    AND v.thread = :thread AND v.ns = :ns AND v.channel = n.channel AND v.version = n.base
)
SELECT v.channel, v.version, v.kind, v.base, ifnull(v.data, ({_WIDE_OF_V}))
FROM chain AS n CROSS JOIN channel_values AS v
WHERE v.thread = :thread AND v.ns = :ns AND v.channel = n.channel AND v.version = n.version
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

_RUN = f"SELECT thread, incarnation, {_HEAD} FROM threads WHERE thread = :thread"
_ADD_THREAD = "INSERT INTO threads VALUES (?, ?)"
_ADD_CHECKPOINT = f"INSERT INTO checkpoints VALUES ({', '.join('?' * 18)})"
_ADD_VALUE = "INSERT INTO channel_values VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_ADD_WIDE = "INSERT INTO wide_values VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_ADD_RECORD = "INSERT INTO task_records VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_SAME_CHECKPOINT = "SELECT 1 FROM checkpoints WHERE thread = ? AND ns = ? AND id = ? AND token = ?"
_SAME_VALUE = f"""
SELECT 1 FROM channel_values AS v
WHERE thread = ? AND ns = ? AND channel = ? AND version = ? AND kind = ? AND base = ?
AND ifnull(data, ({_WIDE_OF_V})) = ?
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
        check_key(key)
        with self._pool.reading() as db:
            return _get(db, key, *_choose(key, epochs))

    def list(self, key: Key, *, before: int | None = None, limit: int | None = None) -> Iterator[Saved]:
        """Read checkpoints newest first; see `Saver.list`."""
        check_key(key)
        self._pool.check_open()
        return self._list(key, before, limit)

    def _list(self, key: Key, before: int | None, limit: int | None) -> Iterator[Saved]:
        statement, below = (_FIND_TOP, 0) if before is None else (_FIND_BELOW, before)
        incarnation: str | None = None
        while limit is None or limit > 0:
            with self._pool.reading() as db:
                run, _, saved = _get(db, key, statement, below)
            if run is None or saved is None or incarnation not in (None, run.incarnation):
                return
            yield saved
            incarnation = run.incarnation
            statement, below = _FIND_BELOW, saved.checkpoint.id
            limit = None if limit is None else limit - 1

    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        """Write commits and records in one transaction; see `Saver.put`."""
        check_names(run, commits, records)
        try:
            with self._pool.writing() as db:
                _pass_fence(db, run)
                _add_commits(db, run, commits)
                _add_records(db, run, records)
        except ConcurrentRunError:
            # Looked at after the roll-back, so that nothing of this put is taken for something that was there.
            with self._pool.reading() as db:
                if not _was_applied(db, run, commits, records):
                    raise

    def threads(self) -> Iterator[str]:
        """List thread ids; see `Saver.threads`."""
        self._pool.check_open()
        return self._threads()

    def _threads(self) -> Iterator[str]:
        after = ""
        while True:
            with self._pool.reading() as db:
                page = [thread_id for (thread_id,) in db.execute(_THREADS, {"after": after})]
            if not page:
                return
            yield from page
            after = page[-1] + "\0"  # the least text above it, since no id has a NUL

    def namespaces(self, thread_id: str) -> builtins.list[str]:  # plain `list` is the method above
        """Return the namespaces of a thread; see `Saver.namespaces`."""
        check_name("thread id", thread_id)
        with self._pool.reading() as db:
            return [namespace for (namespace,) in db.execute(_NAMESPACES, {"thread": thread_id})]

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread; see `Saver.delete_thread`."""
        check_name("thread id", thread_id)
        with self._pool.writing() as db:
            for table in _TABLES:
                db.execute(f"DELETE FROM {table} WHERE thread = ?", (thread_id,))

    def close(self) -> None:
        """Close the connections; see `Saver.close`."""
        self._pool.close()


def _choose(key: Key, epochs: Collection[int] | None) -> tuple[str, int | str]:
    """Choose the statement that finds the checkpoint, and what it wants to know."""
    if key.checkpoint_id is not None:
        return _FIND_ID, key.checkpoint_id
    if epochs is not None:
        return _FIND_EPOCH if key.namespace else _FIND_EPOCH_OF_ROOT, json.dumps(list(epochs))
    return _FIND_TOP, 0


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
    rows = db.execute(_VALUES, names).fetchall() if versions else []
    found = {(row[0], row[1]): ChannelValue._make(row) for row in rows if row[-1] is not None}
    values = gather_values(thread_id, checkpoint, versions, found)
    names["want"] = str([*checkpoint.line])  # numbers print as JSON
    return Saved(checkpoint, versions, values, tuple(map(TaskRecord._make, db.execute(_RECORDS, names))))


def _run(db: sqlite3.Connection, thread_id: str) -> Run | None:
    row = db.execute(_RUN, {"thread": thread_id}).fetchone()
    return row and Run._make(row)


def _pass_fence(db: sqlite3.Connection, run: Run) -> None:
    """Compare the thread with what the run knows of it."""
    found = _run(db, run.thread_id)
    if found is None and run.head == 0:
        db.execute(_ADD_THREAD, (run.thread_id, run.incarnation))
    elif found != run:
        raise overtaken(run, found)


def _add_commits(db: sqlite3.Connection, run: Run, commits: Sequence[Commit]) -> None:
    tops = {"": run.head}
    for c, values in commits:
        if c.namespace not in tops:
            tops[c.namespace] = db.execute(_TOP, {"thread": run.thread_id, "ns": c.namespace}).fetchone()[0] or 0
        if c.id <= tops[c.namespace]:
            raise id_taken(run, c, tops[c.namespace])
        tops[c.namespace] = c.id
        db.execute(_ADD_CHECKPOINT, (run.thread_id, *c[:_LINE], msgpack.packb(c.line), *c[_LINE + 1 :]))
        if values:
            _add_values(db, run, c.namespace, values)


def _add_values(db: sqlite3.Connection, run: Run, namespace: str, values: Sequence[ChannelValue]) -> None:
    place = (run.thread_id, namespace)
    wide = [(*place, v.channel, v.version, v.data) for v in values if len(v.data) > _WIDE]
    rows = [(*place, *v) if len(v.data) <= _WIDE else (*place, *v[:-1], None) for v in values]
    added = db.executemany(_ADD_VALUE, rows).rowcount
    if wide:
        db.executemany(_ADD_WIDE, wide)
    if added < len(rows):
        for value in values:
            if db.execute(_SAME_VALUE, (*place, *value)).fetchone() is None:
                raise row_taken(run, value, namespace)


def _add_records(db: sqlite3.Connection, run: Run, records: Sequence[TaskRecord]) -> None:
    rows = [(run.thread_id, *record) for record in records]
    if rows and db.executemany(_ADD_RECORD, rows).rowcount < len(rows):
        for record, row in zip(records, rows, strict=True):
            if db.execute(_SAME_RECORD, row).fetchone() is None:
                raise row_taken(run, record, record.namespace)


def _was_applied(db: sqlite3.Connection, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> bool:
    """Tell whether exactly this put was written before: its reply was lost. Records alone have no token to go by."""
    found = _run(db, run.thread_id)
    if not commits or found is None or found.incarnation != run.incarnation:
        return False
    places = [(run.thread_id, c.namespace, c.id, c.token) for c, _ in commits]
    return all(db.execute(_SAME_CHECKPOINT, place).fetchone() for place in places) and all(
        db.execute(_SAME_RECORD, (run.thread_id, *record)).fetchone() for record in records
    )
