"""The queue of a run's writes: order, what is kept back, what a failure does (10.1)."""

import threading
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from pregel import InMemorySaver
from pregel.checkpoint import Checkpoint, Commit, Found, Key, Run, TaskRecord, pack_versions
from pregel.journal import Journal, merged
from tests.helpers import World

WAIT = 10


class Slow(InMemorySaver):
    """Notes what is written, and holds the first write that is told to wait until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[str, int]] = []
        self.reads: list[str] = []
        self.holds = False
        self.fails = False
        self.inside = threading.Event()
        self.go_on = threading.Event()

    def get(self, key: Key, epochs: Collection[int] | None = None) -> Found:
        self.reads.append(key.namespace)
        return super().get(key, epochs)

    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        if self.fails:
            raise OSError("disk full")
        if self.holds:
            self.holds = False
            self.inside.set()
            assert self.go_on.wait(WAIT)
        super().put(run, commits, records)
        self.written += [(commit.checkpoint.namespace, commit.checkpoint.id) for commit in commits]


class Blocking(Slow):
    """The same, for an event loop a saver that may not be called from it."""

    blocking = True


def commit(namespace: str, number: int, **fields: Any) -> Commit:
    """Return a commit that stands on the one before it."""
    plain = Checkpoint(
        *(namespace, number, namespace, number - 1, f"token {namespace} {number}", "loop", "running", number, 0.0),
        *(1 if namespace else 0, "graph", "print", (number,), b"", number == 1, pack_versions({}), b""),
    )
    return Commit(plain._replace(**fields), ())


def begun(world: World, saver: Slow, durability: Any = "exit") -> Journal:
    """Return the journal of a run that has begun."""
    journal = Journal(saver, "t", durability)
    world.call(journal, "load", "", None, None)
    world.call(journal, "put", [commit("", 1, source="input")], [], True)
    return journal


@pytest.fixture(params=[Slow, Blocking])
def saver(request: pytest.FixtureRequest) -> Slow:
    made: Slow = request.param()
    return made


def test_what_is_kept_back_is_one_write_at_the_end(world: World, saver: Slow) -> None:
    """10.1: "exit" merges the commits of a namespace."""
    journal = begun(world, saver)
    for number in (1, 2, 3):
        world.call(journal, "put", [commit("c@1", number)], [], False)
    assert saver.written == [("", 1)]
    world.call(journal, "flush")
    assert saver.written == [("", 1), ("c@1", 3)]
    world.call(journal, "flush")
    assert len(saver.written) == 2


def test_reading_another_namespace_writes_nothing(world: World, saver: Slow) -> None:
    """10.1: only what is to be read has to be there."""
    journal = begun(world, saver)
    world.call(journal, "put", [commit("c@1", 1)], [], False)
    world.call(journal, "load", "d@1", None, (1,))
    assert saver.written == [("", 1)]
    found = world.call(journal, "load", "c@1", None, (1,))
    assert found.saved.checkpoint.id == 1
    assert saver.written == [("", 1), ("c@1", 1)]


def test_nothing_overtakes_what_it_rests_on(saver: Slow) -> None:
    """10.1: while one thread writes what was kept, another one's later commit waits for its turn."""
    world = World("sync")
    journal = begun(world, saver)
    journal.put([commit("c@1", 1)], [], False)
    saver.holds = True
    first = threading.Thread(target=journal.flush)
    first.start()
    assert saver.inside.wait(WAIT)
    journal.put([commit("c@1", 2)], [], False)
    second = threading.Thread(target=journal.flush)
    second.start()
    second.join(0.05)
    assert second.is_alive()
    saver.go_on.set()
    first.join(WAIT)
    second.join(WAIT)
    assert saver.written == [("", 1), ("c@1", 1), ("c@1", 2)]


def test_nothing_is_written_after_a_failure(world: World, saver: Slow) -> None:
    """10.1: what was to be written is lost, so what rests on it must not be written either."""
    journal = begun(world, saver)
    world.call(journal, "put", [commit("c@1", 1)], [], False)
    saver.fails = True
    with pytest.raises(OSError, match="disk full"):
        world.call(journal, "flush")
    saver.fails = False
    world.call(journal, "put", [commit("c@1", 2)], [], False)
    with pytest.raises(OSError, match="disk full"):
        world.call(journal, "flush")
    assert saver.written == [("", 1)]


def test_what_is_being_written_is_read_when_it_is_there(saver: Slow) -> None:
    """10.1: a reader of a namespace waits for the thread that is writing what was kept of it."""
    journal = begun(World("sync"), saver)
    journal.put([commit("c@1", 1)], [], False)
    saver.holds = True
    writer = threading.Thread(target=journal.flush)
    writer.start()
    assert saver.inside.wait(WAIT)
    found: list[Found] = []
    reader = threading.Thread(target=lambda: found.append(journal.load("c@1", None, (1,))))
    reader.start()
    reader.join(0.05)
    assert reader.is_alive()
    saver.go_on.set()
    reader.join(WAIT)
    writer.join(WAIT)
    assert [one.top for one in found] == [1]


def test_a_write_trails_behind_by_one_and_in_order(world: World, saver: Slow) -> None:
    """10.1: "async" waits for the write before the last."""
    journal = begun(world, saver, "async")
    for number in (1, 2, 3):
        world.call(journal, "put", [commit("c@1", number)], [], False)
        assert saver.written[-1][1] >= number - 1
    world.call(journal, "flush")
    assert saver.written == [("", 1), ("c@1", 1), ("c@1", 2), ("c@1", 3)]


def test_merged_commits_keep_the_first_parent_and_the_last_state() -> None:
    """10.1: a chain has no gap where checkpoints were not kept."""
    one = commit("c@1", 2, complete=True, versions=pack_versions({"a": 2, "b": 2}))
    two = commit("c@1", 3, complete=False, versions=pack_versions({"b": 0, "c": 3}))
    found = merged(one, two).checkpoint
    assert (found.id, found.parent_id, found.complete) == (3, 1, True)
    assert found.versions == pack_versions({"a": 2, "c": 3})
