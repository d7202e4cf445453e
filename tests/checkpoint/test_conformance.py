"""The savers of this package pass the suite that every saver must pass, and savers with a fault do not."""

import asyncio
import builtins
import threading
from collections.abc import AsyncIterator, Collection, Coroutine, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pregel.checkpoint import (
    Commit,
    ConcurrentRunError,
    Found,
    InMemorySaver,
    Key,
    PostgresSaver,
    Run,
    Saved,
    Saver,
    SqliteSaver,
    TaskRecord,
)
from pregel.checkpoint.conformance import SaverConformance


class TestInMemorySaver(SaverConformance):
    @pytest.fixture
    def saver(self) -> Iterator[Saver]:
        with InMemorySaver() as saver:
            yield saver


class TestSqliteSaverOnDisk(SaverConformance):
    @pytest.fixture
    def saver(self, tmp_path: Path) -> Iterator[Saver]:
        with SqliteSaver(tmp_path / "threads.db") as saver:
            yield saver


class TestSqliteSaverInMemory(SaverConformance):
    @pytest.fixture
    def saver(self) -> Iterator[Saver]:
        with SqliteSaver(":memory:") as saver:
            yield saver


class TestPostgresSaver(SaverConformance):
    @pytest.fixture
    def saver(self, postgres: str) -> Iterator[Saver]:
        with PostgresSaver(postgres) as saver:
            yield saver


_T = TypeVar("_T")


class Awaited(Saver):
    """Does everything by the async methods of a saver, on one loop in a thread of its own."""

    def __init__(self, saver: Saver, loop: asyncio.AbstractEventLoop) -> None:
        self.saver = saver
        self.loop = loop

    def wait(self, access: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(access, self.loop).result()

    def each(self, items: AsyncIterator[_T]) -> Iterator[_T]:
        async def take() -> _T | None:
            return await anext(items, None)

        first = self.wait(take())  # so that a refusal is raised here and now
        rest = iter(lambda: self.wait(take()), None)
        return iter(()) if first is None else chain([first], rest)  # None ends it

    def get(self, key: Key, epochs: Collection[int] | None = None) -> Found:
        return self.wait(self.saver.aget(key, epochs))

    def list(self, key: Key, *, before: int | None = None, limit: int | None = None) -> Iterator[Saved]:
        return self.each(self.saver.alist(key, before=before, limit=limit))

    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        self.wait(self.saver.aput(run, commits, records))

    def threads(self) -> Iterator[str]:
        return self.each(self.saver.athreads())

    def namespaces(self, thread_id: str) -> builtins.list[str]:
        return self.wait(self.saver.anamespaces(thread_id))

    def delete_thread(self, thread_id: str) -> None:
        self.wait(self.saver.adelete_thread(thread_id))

    def close(self) -> None:
        self.wait(self.saver.aclose())


class TestPostgresSaverAwaited(SaverConformance):
    @pytest.fixture
    def saver(self, postgres: str) -> Iterator[Saver]:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            thread = threading.Thread(target=loop.run_forever)
            thread.start()
            with Awaited(PostgresSaver(postgres), loop) as saver:
                yield saver
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


class NoFence(InMemorySaver):
    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        super().put(self.get(Key(run.thread_id)).run or run._replace(head=0), commits, records)


class NoFenceForRecords(InMemorySaver):
    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        super().put((not commits and self.get(Key(run.thread_id)).run) or run, commits, records)


class NoIncarnation(InMemorySaver):
    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        found = self.get(Key(run.thread_id)).run or run
        super().put(run._replace(incarnation=found.incarnation), commits, records)


class NoRepeats(InMemorySaver):
    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        for checkpoint, _ in commits:
            if self.get(Key(run.thread_id, checkpoint.namespace, checkpoint.id)).saved:
                raise ConcurrentRunError("it is there")
        super().put(run, commits, records)


class NoTokens(InMemorySaver):
    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        same = [Commit(checkpoint._replace(token=""), values) for checkpoint, values in commits]
        super().put(run, same, records)


class TwoTransactions(InMemorySaver):
    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        super().put(run, commits, [])
        super().put(self.get(Key(run.thread_id)).run or run, [], records)


class NoEpochs(InMemorySaver):
    def get(self, key: Key, epochs: Collection[int] | None = None) -> Found:
        return super().get(key)


class RecordsBackwards(InMemorySaver):
    def get(self, key: Key, epochs: Collection[int] | None = None) -> Found:
        found = super().get(key, epochs)
        return found._replace(saved=found.saved and found.saved._replace(records=found.saved.records[::-1]))


class OldestFirst(InMemorySaver):
    def list(self, key: Key, *, before: int | None = None, limit: int | None = None) -> Iterator[Saved]:
        return reversed([*super().list(key, before=before, limit=limit)])


class OnePage(InMemorySaver):
    def list(self, key: Key, *, before: int | None = None, limit: int | None = None) -> Iterator[Saved]:
        return super().list(key, before=before, limit=100 if limit is None else limit)


class EagerList(InMemorySaver):
    def list(self, key: Key, *, before: int | None = None, limit: int | None = None) -> Iterator[Saved]:
        return iter([*super().list(key, before=before, limit=limit)])


class NamesThatIgnoreCase(InMemorySaver):
    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        super().put(run._replace(thread_id=run.thread_id.lower()), commits, records)

    def get(self, key: Key, epochs: Collection[int] | None = None) -> Found:
        return super().get(key._replace(thread_id=key.thread_id.lower()), epochs)


class DeletesByPrefix(InMemorySaver):
    def delete_thread(self, thread_id: str) -> None:
        for name in [name for name in self.threads() if name.startswith(thread_id)]:
            super().delete_thread(name)


class DeletesTheHeadOnly(InMemorySaver):
    def delete_thread(self, thread_id: str) -> None:
        kept = self._threads.get(thread_id)
        super().delete_thread(thread_id)
        if kept:
            kept.spaces.pop("", None)
            self._threads[thread_id] = kept


class NeverClosed(InMemorySaver):
    def close(self) -> None:
        pass


class NoTwin(InMemorySaver):
    async def aput(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        self.put(run, commits, [])


def failing_checks(kind: type[Saver]) -> list[str]:
    failing = []
    for name in dir(SaverConformance):
        if name.startswith("test_"):
            try:
                getattr(SaverConformance(), name)(kind())
            except Exception:
                failing.append(name)
    return failing


@pytest.mark.parametrize(
    "kind",
    [
        NoFence,
        NoFenceForRecords,
        NoIncarnation,
        NoRepeats,
        NoTokens,
        TwoTransactions,
        NoEpochs,
        RecordsBackwards,
        OldestFirst,
        OnePage,
        EagerList,
        NamesThatIgnoreCase,
        DeletesByPrefix,
        DeletesTheHeadOnly,
        NeverClosed,
        NoTwin,
    ],
)
def test_a_saver_with_a_fault_fails_the_suite(kind: type[Saver]) -> None:
    """10.5"""
    assert failing_checks(kind) != []


def test_the_faults_above_are_the_only_reason_to_fail() -> None:
    """10.5"""
    assert failing_checks(InMemorySaver) == []
