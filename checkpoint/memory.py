"""The saver that keeps everything in this process: for tests, and for runs that need not outlive it.

It keeps bytes, as every saver does, so that what works here works with a database.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection, Iterator, Sequence
from threading import Lock
from typing import Any

from .checkpoint import ChannelValue, Checkpoint, Commit, Found, Key, Run, Saved, TaskRecord
from .errors import CheckpointError, ConcurrentRunError
from .saver import (
    Saver,
    check_name,
    corrupt,
    fold_versions,
    gather_values,
    id_taken,
    overtaken,
    row_taken,
)


class _Space:
    """One namespace of a thread. Rows are only ever added, and checkpoints in ascending order."""

    __slots__ = ("checkpoints", "records", "values")

    def __init__(self) -> None:
        self.checkpoints: dict[int, Checkpoint] = {}
        self.values: dict[tuple[str, int], ChannelValue] = {}  # by channel and version
        self.records: dict[int, dict[str, TaskRecord]] = {}  # by checkpoint, then by task

    def top(self) -> int:
        return next(reversed(self.checkpoints), 0)


class _Thread:
    """One thread: its row, and its namespaces."""

    __slots__ = ("head", "incarnation", "spaces")

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.head = 0
        self.spaces: dict[str, _Space] = {}

    def run(self, thread_id: str) -> Run:
        return Run(thread_id, self.incarnation, self.head)


# What a put has added so far: the dict and the key. Taking it out again in reverse undoes the put.
_Undo = list[tuple[dict[Any, Any], Any]]

_EMPTY = _Space()


class InMemorySaver(Saver):
    """Keeps threads in memory; what it keeps is gone after `close`."""

    blocking = False

    def __init__(self) -> None:
        self._lock = Lock()
        self._threads: dict[str, _Thread] = {}
        self._closed = False

    def get(self, key: Key, epochs: Collection[int] | None = None) -> Found:
        """Read one checkpoint; see `Saver.get`."""
        thread_id, namespace, checkpoint_id = key
        with self._lock:
            thread = self._thread(thread_id)
            if thread is None:
                return Found(None, 0, None)
            space = thread.spaces.get(namespace, _EMPTY)
            top = space.top()
            if checkpoint_id is None:
                checkpoint_id = top if epochs is None else _highest(space, epochs)
            return Found(thread.run(thread_id), top, _saved(thread_id, space, checkpoint_id))

    def list(self, key: Key, *, before: int | None = None, limit: int | None = None) -> Iterator[Saved]:
        """Read checkpoints newest first; see `Saver.list`."""
        with self._lock:
            self._thread(key.thread_id)  # refuses here and now, not at the first item
        return self._list(key, before, limit)

    def _list(self, key: Key, before: int | None, limit: int | None) -> Iterator[Saved]:
        with self._lock:
            thread = self._thread(key.thread_id)
            space = thread.spaces.get(key.namespace, _EMPTY) if thread else _EMPTY
            ids = [n for n in reversed(space.checkpoints) if before is None or n < before]
            ids = ids if limit is None else ids[: max(limit, 0)]
        for checkpoint_id in ids:
            with self._lock:
                if self._thread(key.thread_id) is not thread:
                    return  # deleted meanwhile, and perhaps made anew
                saved = _saved(key.thread_id, space, checkpoint_id)
            if saved is not None:
                yield saved

    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        """Write commits and records, all or nothing; see `Saver.put`."""
        thread_id, incarnation, head = run
        with self._lock:
            thread = self._thread(thread_id)
            if thread is None:
                if head != 0:
                    raise overtaken(run, None)
                thread = _Thread(incarnation)
            elif thread.head != head or thread.incarnation != incarnation:
                if _was_applied(thread, run, commits, records):
                    return
                raise overtaken(run, thread.run(thread_id))
            added: _Undo = []
            try:
                head = _add_commits(thread, run, commits, added)
                if records:
                    _add_records(thread, run, records, added)
            except BaseException as error:
                for rows, place in reversed(added):
                    rows.pop(place, None)
                if isinstance(error, ConcurrentRunError) and _was_applied(thread, run, commits, records):
                    return
                raise
            thread.head = head
            self._threads[thread_id] = thread

    def threads(self) -> Iterator[str]:
        """List thread ids; see `Saver.threads`."""
        with self._lock:
            self._check_open()
            return iter(sorted(self._threads))

    def namespaces(self, thread_id: str) -> builtins.list[str]:  # plain `list` is the method above
        """Return the namespaces of a thread; see `Saver.namespaces`."""
        with self._lock:
            thread = self._thread(thread_id)
            spaces = thread.spaces if thread else {}
            return sorted(namespace for namespace, space in spaces.items() if space.checkpoints)

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread; see `Saver.delete_thread`."""
        with self._lock:
            self._thread(thread_id)
            self._threads.pop(thread_id, None)

    def close(self) -> None:
        """Drop everything; see `Saver.close`."""
        with self._lock:
            self._closed = True
            self._threads.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise CheckpointError("this InMemorySaver was closed", hint="make a new one; who made it closes it")

    def _thread(self, thread_id: str) -> _Thread | None:
        """Find a thread. Only an unknown id is looked at closely: a known one has passed."""
        thread = self._threads.get(thread_id)
        if thread is None:
            self._check_open()
            check_name("thread id", thread_id)
        return thread


def _highest(space: _Space, epochs: Collection[int]) -> int:
    return next((c.id for c in reversed(space.checkpoints.values()) if c.epoch in epochs), 0)


def _saved(thread_id: str, space: _Space, checkpoint_id: int) -> Saved | None:
    checkpoint = space.checkpoints.get(checkpoint_id)
    if checkpoint is None:
        return None
    versions = fold_versions(thread_id, checkpoint, _changes(thread_id, space, checkpoint))
    values = gather_values(thread_id, checkpoint, versions, space.values)
    records: tuple[TaskRecord, ...] = ()
    if space.records:
        records = tuple(r for n in checkpoint.line for r in space.records.get(n, {}).values())
    return Saved(checkpoint, versions, values, records)


def _changes(thread_id: str, space: _Space, checkpoint: Checkpoint) -> Iterator[bytes]:
    """Yield the packed versions of a checkpoint and the ancestors that it needs, oldest first."""
    newest_first = [checkpoint.versions]
    at = checkpoint
    while not at.complete and at.parent_id and at.parent_namespace == at.namespace:
        parent = space.checkpoints.get(at.parent_id)
        if parent is None or parent.id >= at.id:
            raise corrupt(thread_id, checkpoint, f"its ancestor {at.parent_id} is missing")
        newest_first.append(parent.versions)
        at = parent
    return reversed(newest_first)


def _add_commits(thread: _Thread, run: Run, commits: Sequence[Commit], added: _Undo) -> int:
    """Add commits and return the thread's new head."""
    head = thread.head
    for checkpoint, values in commits:
        namespace, number = checkpoint.namespace, checkpoint.id
        space = _space(thread, namespace, added)
        if number <= (top := space.top()):
            raise id_taken(run, checkpoint, top)
        added.append((space.checkpoints, number))
        space.checkpoints[number] = _frozen(checkpoint)
        rows = space.values
        for value in values:
            if type(value.data) is not bytes:
                value = value._replace(data=bytes(value.data))
            place = (value.channel, value.version)
            if place not in rows:
                check_name("channel", value.channel)
                added.append((rows, place))
                rows[place] = value
            elif rows[place] != value:
                raise row_taken(run, value, namespace)
        if not namespace:
            head = number
    return head


def _add_records(thread: _Thread, run: Run, records: Sequence[TaskRecord], added: _Undo) -> None:
    for record in records:
        if type(record.data) is not bytes:
            record = record._replace(data=bytes(record.data))
        space = _space(thread, record.namespace, added)
        rows = space.records.get(record.checkpoint_id)
        if rows is None:
            added.append((space.records, record.checkpoint_id))
            rows = space.records[record.checkpoint_id] = {}
        if record.task_id not in rows:
            check_name("task id", record.task_id)
            added.append((rows, record.task_id))
            rows[record.task_id] = record
        elif rows[record.task_id] != record:
            raise row_taken(run, record, record.namespace)


def _space(thread: _Thread, namespace: str, added: _Undo) -> _Space:
    space = thread.spaces.get(namespace)
    if space is None:
        check_name("namespace", namespace)
        added.append((thread.spaces, namespace))
        space = thread.spaces[namespace] = _Space()
    return space


def _frozen(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with everything in it immutable, itself if it is so already."""
    line, due, versions, metadata = checkpoint.line, checkpoint.due, checkpoint.versions, checkpoint.metadata
    if type(line) is tuple and type(due) is bytes and type(versions) is bytes and type(metadata) is bytes:
        return checkpoint
    return checkpoint._replace(line=tuple(line), due=bytes(due), versions=bytes(versions), metadata=bytes(metadata))


def _was_applied(thread: _Thread, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> bool:
    """Tell whether exactly this put was written before: its reply was lost. Records alone have no token to go by."""
    if not commits or thread.incarnation != run.incarnation:
        return False
    for checkpoint, _ in commits:
        there = thread.spaces.get(checkpoint.namespace, _EMPTY).checkpoints.get(checkpoint.id)
        if there is None or there.token != checkpoint.token:
            return False
    return all(
        thread.spaces.get(r.namespace, _EMPTY).records.get(r.checkpoint_id, {}).get(r.task_id) == r for r in records
    )
