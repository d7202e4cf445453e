"""What a saver is, sync and async, and what it promises.

A saver keeps bytes and knows no value types. It keeps an immutable tree of checkpoints for every thread and lets one
run at a time write to it. `conformance/` holds every promise made here as a test; a saver that passes it may be used.
The functions below the class are for those who write savers, so that all savers refuse in the same words.
"""

from __future__ import annotations

import asyncio
import builtins
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import ClassVar, ParamSpec, Self, TypeVar

import msgpack

from .checkpoint import ChannelValue, Checkpoint, Commit, Found, Key, Run, Saved, TaskRecord
from .errors import CheckpointError, ConcurrentRunError, CorruptCheckpointError

_P = ParamSpec("_P")
_T = TypeVar("_T")

_READ_AGAIN = "read the thread again and begin a new run"


class Saver(ABC):
    """Keeps the checkpoints of threads.

    Promises that hold for every method:

    - It may be called from several threads at once, and holds no lock or transaction when it returns or yields.
    - What it is given is copied or immutable: later changes by the caller reach nothing that is kept.
    - Thread ids, namespaces, channel names and task ids may contain anything but NUL and lone surrogates, which are
      refused with `CheckpointError`.
    - After `close` every call raises `CheckpointError`, except `close` itself.
    - Each `a...` twin does what its sync method does. Cancelling one does not undo it: the work may still take effect.
    """

    blocking: ClassVar[bool] = True
    """Whether a call may wait for I/O. If not, async callers may call the sync methods in place."""

    @abstractmethod
    def get(self, key: Key, epochs: Collection[int] | None = None) -> Found:
        """Read what is known of a thread and one of its namespaces, all from one instant.

        The checkpoint is the one of `key.checkpoint_id`; without an id the highest of the namespace whose epoch is in
        `epochs`; without epochs the head of the thread in the root namespace, the highest elsewhere. `Found.saved` is
        None if there is no such checkpoint, `Found.run` if there is no such thread.

        `Saved.versions` is complete: changes are followed through parents of the same namespace up to a complete map,
        and version 0 removes the channel. `Saved.values` holds for each of these channels the full value and the
        deltas to add, found through `base`. `Saved.records` holds the records of every checkpoint of the line in the
        line's order, those of one checkpoint in the order in which they were put.

        Raise `CorruptCheckpointError`, naming what is missing, if rows that the checkpoint needs are gone.
        """

    async def aget(self, key: Key, epochs: Collection[int] | None = None) -> Found:
        """Do `get` without blocking the event loop."""
        return await self._aside(self.get, key, epochs)

    @abstractmethod
    def list(self, key: Key, *, before: int | None = None, limit: int | None = None) -> Iterator[Saved]:
        """Read the checkpoints of a namespace with ids below `before`, newest first, lazily.

        Each one is read when it is asked for and is complete as in `get`; the id in `key` plays no part. What is
        committed meanwhile does not show. If the thread is deleted meanwhile, the iteration ends.
        """

    async def alist(self, key: Key, *, before: int | None = None, limit: int | None = None) -> AsyncIterator[Saved]:
        """Do `list` without blocking the event loop."""
        async for saved in self._aside_each(self.list(key, before=before, limit=limit)):
            yield saved

    @abstractmethod
    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        """Write commits, then records, durably, all or nothing, if the thread is still this run's (rules 10.1, 10.3).

        The fence: a thread that does not exist may be written to only with `run.head` 0, and then gets
        `run.incarnation`; one that exists must have the incarnation and the head of `run`. A commit of the root
        namespace moves the head to its id. The id of a commit must be above all earlier ones of its namespace.

        A put that was applied before is recognised by the tokens of its commits and does nothing (rule 10.4); so does
        a record that is there with equal bytes.

        Raise `ConcurrentRunError`, with nothing written, if the fence does not hold, an id is not above the earlier
        ones, or a row is there with another token or other bytes.
        """

    async def aput(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        """Do `put` without blocking the event loop."""
        await self._aside(self.put, run, commits, records)

    @abstractmethod
    def threads(self) -> Iterator[str]:
        """List the ids of all threads in ascending order, lazily."""

    async def athreads(self) -> AsyncIterator[str]:
        """Do `threads` without blocking the event loop."""
        async for thread_id in self._aside_each(self.threads()):
            yield thread_id

    @abstractmethod
    def namespaces(self, thread_id: str) -> builtins.list[str]:  # plain `list` is the method above
        """Return the namespaces of a thread that have checkpoints, in ascending order; none for an unknown thread."""

    async def anamespaces(self, thread_id: str) -> builtins.list[str]:
        """Do `namespaces` without blocking the event loop."""
        return await self._aside(self.namespaces, thread_id)

    @abstractmethod
    def delete_thread(self, thread_id: str) -> None:
        """Remove everything that is kept of a thread; an unknown thread is no error.

        A run of it that is still going cannot write any more, also if the id is used again (rule 10.3).
        """

    async def adelete_thread(self, thread_id: str) -> None:
        """Do `delete_thread` without blocking the event loop."""
        await self._aside(self.delete_thread, thread_id)

    @abstractmethod
    def close(self) -> None:
        """Give back what the saver holds, after calls that are under way have ended; closing twice is no error."""

    async def aclose(self) -> None:
        """Do `close` without blocking the event loop."""
        await self._aside(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _aside(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call on a worker thread, or in place if no call of this saver waits."""
        if not self.blocking:
            return call(*args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(None, lambda: call(*args, **kwargs))

    async def _aside_each(self, items: Iterator[_T]) -> AsyncIterator[_T]:
        """Take each item as `_aside` would; items are never None."""
        while (item := await self._aside(next, items, None)) is not None:
            yield item


def check_name(kind: str, name: str) -> None:
    """Refuse a name that not every storage could keep: one with a NUL or a lone surrogate."""
    if name.isascii():  # the usual case, and it has no surrogates
        good = "\0" not in name
    else:
        encoded = name.encode(errors="replace")
        good = "\0" not in name and encoded.decode() == name
    if not good:
        hint = "use one without NUL characters and lone surrogates"
        raise CheckpointError(f"{kind} {name!r} cannot be stored", name=name, hint=hint)


def check_key(key: Key) -> None:
    """Refuse a key with a name that cannot be stored."""
    check_name("thread id", key.thread_id)
    check_name("namespace", key.namespace)


def check_names(run: Run, commits: Iterable[Commit], records: Iterable[TaskRecord]) -> None:
    """Refuse a put with a name that cannot be stored."""
    check_name("thread id", run.thread_id)
    for checkpoint, values in commits:
        check_name("namespace", checkpoint.namespace)
        for value in values:
            check_name("channel", value.channel)
    for record in records:
        check_name("namespace", record.namespace)
        check_name("task id", record.task_id)


def overtaken(run: Run, found: Run | None) -> ConcurrentRunError:
    """Make the error for a run that the fence refuses: the thread is now as in `found`, None if it is gone."""
    if found is None:
        state = "the thread does not exist any more"
    elif found.incarnation != run.incarnation:
        state = f"it belongs to another run, with head {found.head}: it was created, or deleted and reused, since"
    else:
        state = f"found {found.head}: another run has begun since"
    return ConcurrentRunError(
        f"thread {run.thread_id!r}: expected head {run.head}, {state}; nothing was written",
        hint=_READ_AGAIN,
        thread_id=run.thread_id,
        expected=run.head,
        found=found.head if found else None,
    )


def id_taken(run: Run, checkpoint: Checkpoint, top: int) -> ConcurrentRunError:
    """Make the error for a commit whose id is not above `top`, the highest of its namespace."""
    return ConcurrentRunError(
        f"thread {run.thread_id!r}, namespace {checkpoint.namespace!r}: checkpoint {checkpoint.id} is not above {top}, "
        "which is there already; nothing was written",
        hint=_READ_AGAIN,
        thread_id=run.thread_id,
        namespace=checkpoint.namespace,
        checkpoint_id=checkpoint.id,
    )


def row_taken(run: Run, row: ChannelValue | TaskRecord, namespace: str) -> ConcurrentRunError:
    """Make the error for a value or record whose place is taken by other bytes."""
    if isinstance(row, ChannelValue):
        what = f"version {row.version} of channel {row.channel!r}"
    else:
        what = f"the record of task {row.task_id!r} at checkpoint {row.checkpoint_id}"
    return ConcurrentRunError(
        f"thread {run.thread_id!r}, namespace {namespace!r}: {what} is there already with other content; "
        "nothing was written",
        hint=_READ_AGAIN,
        thread_id=run.thread_id,
        namespace=namespace,
    )


def corrupt(thread_id: str, checkpoint: Checkpoint, what: str, channel: str | None = None) -> CorruptCheckpointError:
    """Make the error for a checkpoint that cannot be read because of `what`."""
    where = f"thread {thread_id!r}, namespace {checkpoint.namespace!r}, checkpoint {checkpoint.id}"
    return CorruptCheckpointError(
        f"{where}: {what}",
        hint="restore the storage from a backup, or go on from another checkpoint",
        thread_id=thread_id,
        namespace=checkpoint.namespace,
        checkpoint_id=checkpoint.id,
        channel=channel,
    )


def fold_versions(thread_id: str, checkpoint: Checkpoint, changes: Iterable[bytes]) -> dict[str, int]:
    """Merge the `versions` of a checkpoint and its ancestors, oldest first, into one complete map."""
    versions: dict[str, int] = {}
    try:
        for packed in changes:
            versions.update(**msgpack.unpackb(packed))  # ** takes only a map with text keys
    except (ValueError, TypeError) as error:
        raise corrupt(thread_id, checkpoint, "its channel versions are not readable") from error
    if not {type(version) for version in versions.values()} <= {int}:
        raise corrupt(thread_id, checkpoint, "its channel versions are not numbers")
    if 0 in versions.values():
        return {channel: version for channel, version in versions.items() if version}
    return versions


def gather_values(
    thread_id: str, checkpoint: Checkpoint, versions: Mapping[str, int], rows: Mapping[tuple[str, int], ChannelValue]
) -> dict[str, tuple[bytes, ...]]:
    """Find each channel's full value and deltas among `rows`, which are kept by channel and version."""
    values: dict[str, tuple[bytes, ...]] = {}
    for channel, version in versions.items():
        row = rows.get((channel, version))
        newest_first: list[bytes] = []
        # A base is always older. A damaged one that is not would make this loop endless.
        while row is not None and row.kind == "delta" and row.base < row.version:
            newest_first.append(row.data)
            row = rows.get((channel, row.base))
        if row is None or row.kind == "delta":
            raise corrupt(thread_id, checkpoint, f"version {version} of channel {channel!r} is not complete", channel)
        values[channel] = (row.data, *reversed(newest_first)) if newest_first else (row.data,)
    return values
