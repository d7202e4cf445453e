"""The ordered queue of a root run's writes: nothing is written before what it rests on (rule 10.1)."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future

from .checkpoint import Commit, Found, Key, Run, Saver, TaskRecord, pack_versions, unpack_versions
from .namespace import is_memory
from .threads import THREADS
from .types import Durability

Batch = tuple[Run, Sequence[Commit], Sequence[TaskRecord]]


class Journal:
    """Writes for one root run, children included, under one fence.

    "sync" writes at once; "async" lets one write trail behind; "exit" keeps all but the beginning for `flush`, which is
    called at the end, and before a namespace is read that it has kept something of.
    """

    __slots__ = (
        "_commits",
        "_failed",
        "_lock",
        "_records",
        "_run",
        "_trailing",
        "_writing",
        "durability",
        "saver",
        "thread_id",
    )

    def __init__(self, saver: Saver, thread_id: str, durability: Durability) -> None:
        self.saver = saver
        self.thread_id = thread_id
        self.durability = durability
        self._run: Run | None = None
        self._lock = threading.Lock()
        self._trailing: Future[None] | None = None
        self._commits: dict[str, Commit] = {}  # "exit" only: the newest of each namespace
        self._records: list[TaskRecord] = []
        self._writing = threading.Lock()  # while what was kept is written, nobody writes what rests on it
        self._failed: BaseException | None = None

    def load(self, namespace: str, number: int | None, epochs: Collection[int] | None) -> Found:
        """Read a checkpoint; the first read fixes the fence."""
        self._make_readable(namespace)
        return self._found(self.saver.get(Key(self.thread_id, namespace, number), epochs))

    async def aload(self, namespace: str, number: int | None, epochs: Collection[int] | None) -> Found:
        """Do `load` without blocking the event loop."""
        if self.durability == "exit" and self.saver.blocking:
            await asyncio.shield(asyncio.wrap_future(THREADS.submit(lambda: self._make_readable(namespace))))
        else:
            await self._await()
            self._make_readable(namespace)
        return self._found(await self.saver.aget(Key(self.thread_id, namespace, number), epochs))

    def _make_readable(self, namespace: str) -> None:
        self._wait()
        if self.durability == "exit":
            with self._writing:  # what another thread is writing now is no longer kept, and not there yet
                kept = namespace in self._commits
            if kept:
                self.flush()

    def _found(self, found: Found) -> Found:
        if self._run is None:
            self._run = found.run or Run(self.thread_id, secrets.token_hex(8), 0)
        return found

    def put(self, commits: Sequence[Commit], records: Sequence[TaskRecord], begins: bool) -> None:
        """Write, or have it written, as the durability says; what begins a run is durable on return."""
        if self.durability == "exit" and not begins:
            self._keep(commits, records)
            return
        self._wait()
        batch = self._batch(commits, records)
        if self.durability == "async" and not begins:
            self._trail(batch)
        else:
            self.saver.put(*batch)

    async def aput(self, commits: Sequence[Commit], records: Sequence[TaskRecord], begins: bool) -> None:
        """Do `put` without blocking the event loop."""
        if self.durability == "exit" and not begins:
            self._keep(commits, records)
            return
        await self._await()
        batch = self._batch(commits, records)
        if self.durability == "async" and not begins:
            self._trail(batch)
        else:
            await self.saver.aput(*batch)

    def flush(self) -> None:
        """Make everything durable. Raises what an earlier flush has raised: what it was to write is lost."""
        self._wait()
        with self._writing:
            if self._failed is not None:
                raise self._failed
            if self._commits or self._records:
                try:
                    self.saver.put(*self._kept())
                except BaseException as error:
                    self._failed = error
                    raise

    async def aflush(self) -> None:
        """Do `flush` without blocking the event loop; on a thread, since flushes take turns by a lock."""
        await self._await()
        if not self.saver.blocking:
            self.flush()
        elif self._commits or self._records or self._failed is not None:
            await asyncio.shield(asyncio.wrap_future(THREADS.submit(self.flush)))

    def _batch(self, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> Batch:
        run = self._run
        assert run is not None, "a run loads before it writes"
        for commit in commits:
            if not commit.checkpoint.namespace:
                self._run = Run(run.thread_id, run.incarnation, commit.checkpoint.id)
        return run, commits, records

    # --- one write behind -----------------------------------------------------------------------------------------

    def _trail(self, batch: Batch) -> None:
        with self._lock:
            before, saver = self._trailing, self.saver

            def write() -> None:
                if before is not None:
                    before.result()  # in order, and nothing after a failure
                saver.put(*batch)

            self._trailing = THREADS.submit(write)

    def _wait(self) -> None:
        if self._trailing is not None:
            self._trailing.result()

    async def _await(self) -> None:
        if self._trailing is not None:
            await asyncio.shield(asyncio.wrap_future(self._trailing))

    # --- one write at the end -------------------------------------------------------------------------------------

    def _keep(self, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        with self._lock:
            for commit in commits:
                self._forget_below(commit)
                namespace = commit.checkpoint.namespace
                earlier = self._commits.get(namespace)
                self._commits[namespace] = commit if earlier is None else merged(earlier, commit)
            self._records.extend(records)

    def _forget_below(self, commit: Commit) -> None:
        """Drop what a barrier has made past: children of the folded tasks, and records outside the new line."""
        if commit.checkpoint.source != "loop" or len(commit.checkpoint.line) > 1:
            return
        namespace = commit.checkpoint.namespace
        below = f"{namespace}|" if namespace else ""
        self._commits = {
            name: kept
            for name, kept in self._commits.items()
            if name == namespace or is_memory(name) or not name.startswith(below)
        }
        self._records = [
            record
            for record in self._records
            if record.namespace != namespace and not record.namespace.startswith(below)
        ]

    def _kept(self) -> Batch:
        with self._lock:
            commits, records = list(self._commits.values()), self._records
            self._commits, self._records = {}, []
        return self._batch(commits, records)


def merged(earlier: Commit, later: Commit) -> Commit:
    """Return one commit that does what two in a row of a namespace do; the checkpoint between them is not kept."""
    whole = {value.channel for value in later.values if value.kind == "full"}
    values = [*(value for value in earlier.values if value.channel not in whole), *later.values]
    first, last = earlier.checkpoint, later.checkpoint
    complete = first.complete or last.complete
    versions = last.versions
    if not last.complete:
        changes = unpack_versions(first.versions) | unpack_versions(last.versions)
        if complete:
            changes = {name: version for name, version in changes.items() if version}
        versions = pack_versions(changes)
    checkpoint = last._replace(
        parent_namespace=first.parent_namespace, parent_id=first.parent_id, complete=complete, versions=versions
    )
    return Commit(checkpoint, tuple(values))
