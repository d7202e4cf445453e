"""What every saver must pass, also third parties'.

Give it a fixture and pytest runs every promise of `Saver` against a saver of yours:

    class TestMySaver(SaverConformance):
        @pytest.fixture
        def saver(self):
            with MySaver() as saver:
                yield saver

Each check gets a saver that keeps nothing yet. `pytest.register_assert_rewrite("pregel.checkpoint.conformance")` in a
`conftest.py` makes failures tell the values. This file itself needs no pytest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, ParamSpec, TypeVar

import msgpack

from .checkpoint import ChannelValue, Checkpoint, Commit, Found, Key, Run, Saved, TaskRecord, pack_versions
from .errors import CheckpointError, ConcurrentRunError, CorruptCheckpointError
from .saver import Saver

_P = ParamSpec("_P")
_E = TypeVar("_E", bound=Exception)

# Names that have broken storages: quotes and wildcards of SQL, patterns, separators, other alphabets, empty.
HOSTILE = (
    "",
    " ",
    "a b ",
    "'; DROP TABLE checkpoints; --",
    '"quoted"',
    "%",
    "_",
    "a%",
    "a_",
    ".*",
    "[a-z]+",
    "a/b",
    "a\\b",
    "a|b",
    "a:b",
    "$1 ?1 :ns {x}",
    "\n\t\x01",
    "ä",
    "a\u0308",  # looks like the one above and is another name
    "名前",
    "\U0001f600",
    "A",
    "a",
    "x" * 900,
)


def commit(
    number: int,
    values: Mapping[str, bytes | tuple[int, bytes]] | None = None,
    *,
    namespace: str = "",
    removed: Iterable[str] = (),
    versions: Mapping[str, int] | None = None,
    **fields: Any,
) -> Commit:
    """Make a commit that changes `values`: bytes are a full value, (base, bytes) is a delta.

    The parent is the number below in the same namespace, the line only itself; `fields` are other fields of Checkpoint.
    """
    values = values or {}
    changes = {**dict.fromkeys(values, number), **dict.fromkeys(removed, 0), **(versions or {})}
    checkpoint = Checkpoint(
        namespace=namespace,
        id=number,
        parent_namespace=namespace,
        parent_id=number - 1,
        token=f"token {namespace} {number}",
        source="loop",
        status="running",
        step=number,
        created_at=1_700_000_000.25 + number,
        epoch=0,
        caller="graph",
        fingerprint="fingerprint",
        line=(number,),
        due=b"due",
        complete=False,
        versions=pack_versions(changes),
        metadata=b"metadata",
    )
    rows = [
        full(channel, number, data) if isinstance(data, bytes) else ChannelValue(channel, number, "delta", *data)
        for channel, data in values.items()
    ]
    return Commit(checkpoint._replace(**fields), tuple(rows))


def full(channel: str, version: int = 1, data: bytes = b"") -> ChannelValue:
    """Make the row of a full value."""
    return ChannelValue(channel, version, "full", 0, data)


def record(checkpoint_id: int, task_id: str, data: bytes = b"ending", *, namespace: str = "") -> TaskRecord:
    """Make the record of a task that is done."""
    return TaskRecord(namespace, checkpoint_id, task_id, "done", data)


class Writer:
    """Writes to one thread as a run does, and keeps what it knows of it."""

    def __init__(self, saver: Saver, thread_id: str = "thread", incarnation: str = "incarnation") -> None:
        self.saver = saver
        self.run = Run(thread_id, incarnation, 0)

    def put(self, *commits: Commit, records: Sequence[TaskRecord] = ()) -> None:
        """Write, and know the new head."""
        self.saver.put(self.run, commits, records)
        self.run = self.run._replace(head=max([c.id for c, _ in commits if not c.namespace], default=self.run.head))

    def get(self, namespace: str = "", checkpoint_id: int | None = None) -> Found:
        """Read from the thread."""
        return self.saver.get(Key(self.run.thread_id, namespace, checkpoint_id))

    def saved(self, namespace: str = "", checkpoint_id: int | None = None) -> Saved:
        """Read a checkpoint that must be there."""
        saved = self.get(namespace, checkpoint_id).saved
        assert saved is not None
        return saved


def refusal(kind: type[_E], call: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> _E:
    """Call, and return the error that it must raise."""
    try:
        call(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def ids(found: Iterable[Saved]) -> list[int]:
    """Return the numbers of the checkpoints."""
    return [saved.checkpoint.id for saved in found]


class _Reading:
    """What `get` finds."""

    def test_an_unknown_thread_is_found_as_nothing(self, saver: Saver) -> None:
        """10.5"""
        assert saver.get(Key("nobody")) == Found(None, 0, None)
        assert saver.get(Key("nobody", "child@1", 7), epochs=[1]) == Found(None, 0, None)

    def test_an_unknown_namespace_of_a_thread_has_a_run_and_no_checkpoint(self, saver: Saver) -> None:
        """10.5"""
        writer = Writer(saver)
        writer.put(commit(1))
        assert writer.get("child@1") == Found(writer.run, 0, None)

    def test_what_was_put_is_what_is_read(self, saver: Saver) -> None:
        """10.5"""
        writer = Writer(saver)
        first, rows = commit(1, {"x": b"one", "y": b"two"}), [record(1, "a@1"), record(1, "b@1")]
        writer.put(first, records=rows)
        saved = Saved(first.checkpoint, {"x": 1, "y": 1}, {"x": (b"one",), "y": (b"two",)}, tuple(rows))
        assert writer.get() == Found(Run("thread", "incarnation", 1), 1, saved)

    def test_every_field_of_a_checkpoint_is_kept_exactly(self, saver: Saver) -> None:
        """10.5"""
        writer = Writer(saver)
        number = 2**53 + 1  # a float could not hold it
        there = commit(
            number,
            parent_namespace="é|b",
            parent_id=number - 3,
            token="tökén'",
            source="fork",
            status="handed_over",
            step=0,
            created_at=1234567890.123456,
            epoch=2**53 + 3,
            caller='c"',
            fingerprint="",
            line=(1, number - 1, number),
            due=bytes(range(256)),
            complete=True,
            metadata=b"\xff\x00\xfe",
        )
        writer.put(there)
        saved = writer.saved()
        assert saved.checkpoint == there.checkpoint
        assert list(map(type, saved.checkpoint)) == list(map(type, there.checkpoint))

    def test_the_head_of_the_root_is_read_without_an_id(self, saver: Saver) -> None:
        """9.4"""
        writer = Writer(saver)
        for number in (1, 4, 9):  # numbers may have gaps
            writer.put(commit(number, parent_id=0))
        assert writer.saved().checkpoint.id == 9

    def test_the_highest_of_a_child_is_read_without_an_id(self, saver: Saver) -> None:
        """8.2"""
        writer = Writer(saver)
        writer.put(commit(1), commit(1, namespace="c@1"), commit(3, namespace="c@1", parent_id=1))
        found = writer.get("c@1")
        assert found.top == 3
        assert writer.saved("c@1").checkpoint.id == 3

    def test_a_checkpoint_is_read_by_its_id(self, saver: Saver) -> None:
        """9.4"""
        writer = Writer(saver)
        writer.put(commit(1, {"x": b"old"}))
        writer.put(commit(2, {"x": b"new"}))
        assert writer.saved(checkpoint_id=1).values == {"x": (b"old",)}
        assert writer.saved(checkpoint_id=2).values == {"x": (b"new",)}

    def test_an_id_that_is_not_there_finds_no_checkpoint_but_the_thread(self, saver: Saver) -> None:
        """9.4"""
        writer = Writer(saver)
        writer.put(commit(2))
        for number in (0, 1, 3):
            assert writer.get(checkpoint_id=number) == Found(writer.run, 2, None)

    def test_with_epochs_the_highest_of_these_epochs_is_read(self, saver: Saver) -> None:
        """9.4"""
        writer = Writer(saver)
        children = [commit(n, namespace="c@1", epoch=epoch) for n, epoch in ((1, 5), (2, 7), (3, 5), (4, 9), (5, 7))]
        writer.put(commit(9), *children)
        for epochs, number in (([5], 3), ([7], 5), ([5, 9], 4), ({5, 7, 9}, 5), ((1, 5), 3)):
            found = saver.get(Key("thread", "c@1"), epochs)
            assert found.top == 5
            assert found.saved is not None
            assert found.saved.checkpoint.id == number

    def test_epochs_that_nothing_was_made_under_find_no_checkpoint(self, saver: Saver) -> None:
        """9.4"""
        writer = Writer(saver)
        writer.put(commit(1), commit(1, namespace="c@1", epoch=5))
        for epochs in ([], [4, 6], range(10, 12)):
            assert saver.get(Key("thread", "c@1"), epochs) == Found(writer.run, 1, None)

    def test_epochs_choose_in_the_root_too(self, saver: Saver) -> None:
        """9.4"""
        writer = Writer(saver)
        writer.put(commit(1), commit(2))
        found = saver.get(Key("thread"), [0])
        assert found.saved == writer.saved(checkpoint_id=2)
        assert saver.get(Key("thread"), [1]).saved is None

    def test_an_id_is_stronger_than_epochs(self, saver: Saver) -> None:
        """9.4"""
        writer = Writer(saver)
        writer.put(commit(1), commit(1, namespace="c@1", epoch=5), commit(2, namespace="c@1", epoch=6))
        found = saver.get(Key("thread", "c@1", 1), [6])
        assert found.saved is not None
        assert found.saved.checkpoint.id == 1

    def test_changes_of_versions_are_completed_through_parents(self, saver: Saver) -> None:
        """10.5"""
        writer = Writer(saver)
        writer.put(commit(1, {"x": b"x1", "y": b"y1"}))
        writer.put(commit(2, {"y": b"y2"}))
        writer.put(commit(3, {"z": b"z3"}))
        saved = writer.saved()
        assert saved.versions == {"x": 1, "y": 2, "z": 3}
        assert saved.values == {"x": (b"x1",), "y": (b"y2",), "z": (b"z3",)}

    def test_a_complete_map_of_versions_ends_the_walk(self, saver: Saver) -> None:
        """10.5"""
        writer = Writer(saver)
        writer.put(commit(1, {"x": b"x1", "gone": b"g1"}))
        writer.put(commit(2, {"y": b"y2"}, versions={"x": 1}, complete=True))
        writer.put(commit(3))
        assert writer.saved().versions == {"x": 1, "y": 2}

    def test_version_zero_takes_a_channel_out_until_it_is_written_again(self, saver: Saver) -> None:
        """2.1"""
        writer = Writer(saver)
        writer.put(commit(1, {"x": b"x1", "y": b"y1"}))
        writer.put(commit(2, removed=["x"]))
        writer.put(commit(3, {"x": b"x3"}))
        assert writer.saved(checkpoint_id=2).versions == {"y": 1}
        assert writer.saved(checkpoint_id=2).values == {"y": (b"y1",)}
        assert writer.saved(checkpoint_id=3).versions == {"x": 3, "y": 1}

    def test_a_parent_in_another_namespace_ends_the_walk(self, saver: Saver) -> None:
        """9.5"""
        writer = Writer(saver)
        writer.put(commit(1, {"x": b"x1"}, namespace="old"))
        writer.put(commit(2, {"y": b"y2"}, namespace="new", parent_namespace="old", parent_id=1))
        assert writer.saved("new").versions == {"y": 2}

    def test_a_fork_reads_its_own_branch_only(self, saver: Saver) -> None:
        """9.4"""
        writer = Writer(saver)
        writer.put(commit(1, {"x": b"x1"}))
        writer.put(commit(2, {"x": b"other branch", "y": b"other branch"}))
        writer.put(commit(3, {"z": b"z3"}, parent_id=1))
        assert writer.saved().values == {"x": (b"x1",), "z": (b"z3",)}

    def test_a_long_history_of_changes_is_read(self, saver: Saver) -> None:
        """10.5"""
        writer = Writer(saver)
        writer.put(*(commit(n, {f"c{n % 7}": b"%d" % n}) for n in range(1, 401)))
        saved = writer.saved()
        assert saved.values == {f"c{n % 7}": (b"%d" % n,) for n in range(394, 401)}

    def test_deltas_come_after_their_full_value_in_order(self, saver: Saver) -> None:
        """10.5"""
        writer = Writer(saver)
        writer.put(commit(1, {"log": b"full"}))
        writer.put(commit(2, {"log": (1, b"a")}))
        writer.put(commit(3, {"x": b"x3"}))
        writer.put(commit(4, {"log": (2, b"b")}))
        assert writer.saved().values["log"] == (b"full", b"a", b"b")
        assert writer.saved(checkpoint_id=3).values["log"] == (b"full", b"a")
        writer.put(commit(5, {"log": b"full again"}))
        writer.put(commit(6, {"log": (5, b"c")}))
        assert writer.saved().values["log"] == (b"full again", b"c")

    def test_deltas_of_a_fork_follow_their_base(self, saver: Saver) -> None:
        """9.4"""
        writer = Writer(saver)
        writer.put(commit(1, {"log": b"full"}))
        writer.put(commit(2, {"log": (1, b"left")}))
        writer.put(commit(3, {"log": (1, b"right")}, parent_id=1))
        writer.put(commit(4, {"log": (3, b"more")}))
        assert writer.saved().values["log"] == (b"full", b"right", b"more")
        assert writer.saved(checkpoint_id=2).values["log"] == (b"full", b"left")

    def test_records_come_in_the_order_of_the_line(self, saver: Saver) -> None:
        """10.2"""
        writer = Writer(saver)
        writer.put(commit(1), records=[record(1, "b@1", b"1"), record(1, "a@1", b"2")])
        writer.put(commit(2, line=(1, 2)), records=[record(2, "b@1", b"3")])
        writer.put(commit(3, line=(1, 2, 3)))
        writer.put(records=[record(3, "a@1", b"4")])
        assert [(r.task_id, r.data) for r in writer.saved().records] == [
            ("b@1", b"1"),
            ("a@1", b"2"),
            ("b@1", b"3"),
            ("a@1", b"4"),
        ]

    def test_records_outside_the_line_are_not_read(self, saver: Saver) -> None:
        """9.4"""
        writer = Writer(saver)
        writer.put(commit(1), records=[record(1, "a@1")])
        writer.put(commit(2, line=(1, 2)), records=[record(2, "a@1", b"other branch")])
        writer.put(commit(3, line=(1, 3), parent_id=1), records=[record(3, "b@1"), record(1, "a@1", namespace="c@1")])
        assert writer.saved().records == (record(1, "a@1"), record(3, "b@1"))

    def test_a_record_may_come_later_than_its_checkpoint(self, saver: Saver) -> None:
        """10.1"""
        writer = Writer(saver)
        writer.put(commit(1))
        writer.put(records=[record(1, "a@1")])
        writer.put(records=[record(1, "b@1")])
        assert writer.saved().records == (record(1, "a@1"), record(1, "b@1"))

    def test_a_value_that_is_missing_is_reported_by_name(self, saver: Saver) -> None:
        """12.3"""
        writer = Writer(saver)
        writer.put(commit(1), commit(3, {"there": b"1"}, namespace="c@1", parent_id=0, versions={"lost": 2}))
        error = refusal(CorruptCheckpointError, writer.get, "c@1")
        assert all(repr(name) in str(error) for name in ("thread", "c@1", 3, "lost"))

    def test_a_base_of_a_delta_that_is_missing_is_reported(self, saver: Saver) -> None:
        """12.3"""
        writer = Writer(saver)
        writer.put(commit(1, {"log": (0, b"no base")}), commit(2, {"log": (2, b"its own base")}))
        refusal(CorruptCheckpointError, writer.get, "", 1)
        refusal(CorruptCheckpointError, writer.get, "", 2)

    def test_an_ancestor_that_is_missing_is_reported(self, saver: Saver) -> None:
        """12.3"""
        writer = Writer(saver)
        writer.put(commit(5, {"x": b"1"}, parent_id=4))
        assert "4" in str(refusal(CorruptCheckpointError, writer.get))
        writer.put(commit(6, {"x": b"1"}, parent_id=6))
        refusal(CorruptCheckpointError, writer.get)

    def test_versions_that_are_not_readable_are_reported(self, saver: Saver) -> None:
        """12.3"""
        damaged = (b"", b"\xc1", b"\x81\xa1x", msgpack.packb([["x", 1]]), msgpack.packb(3), msgpack.packb({"x": "1"}))
        for n, packed in enumerate(damaged):
            writer = Writer(saver, f"thread {n}")
            writer.put(commit(1, complete=True)._replace(checkpoint=commit(1).checkpoint._replace(versions=packed)))
            refusal(CorruptCheckpointError, writer.get)


class _Writing:
    """What `put` writes and what it refuses."""

    def test_a_thread_that_does_not_exist_begins_at_head_zero(self, saver: Saver) -> None:
        """10.3"""
        error = refusal(ConcurrentRunError, saver.put, Run("thread", "incarnation", 3), [commit(4)], [])
        assert "'thread'" in str(error)
        assert saver.get(Key("thread")).run is None

    def test_the_run_that_began_last_goes_on_and_the_other_writes_nothing(self, saver: Saver) -> None:
        """10.3"""
        first = Writer(saver)
        first.put(commit(1), commit(1, namespace="c@1"))
        second = Writer(saver)
        second.run = first.run
        second.put(commit(2, token="second"))
        for commits, records in (
            ((commit(2),), ()),
            ((commit(3),), ()),
            ((commit(2, namespace="c@1"),), ()),
            ((), (record(1, "a@1"),)),
            ((), (record(1, "a@1", namespace="c@1"),)),
            ((), ()),
        ):
            refusal(ConcurrentRunError, saver.put, first.run, commits, records)
        second.put(commit(3), records=[record(3, "a@1")])
        assert ids(saver.list(Key("thread"))) == [3, 2, 1]
        assert ids(saver.list(Key("thread", "c@1"))) == [1]
        assert first.saved("c@1").records == ()
        assert second.saved(checkpoint_id=2).checkpoint.token == "second"

    def test_the_error_says_which_thread_and_heads(self, saver: Saver) -> None:
        """10.3"""
        writer = Writer(saver)
        writer.put(commit(7))
        error = refusal(ConcurrentRunError, saver.put, writer.run._replace(head=5), [commit(8)], [])
        assert all(text in str(error) for text in ("'thread'", "5", "7"))
        assert error.hint

    def test_another_incarnation_is_another_thread(self, saver: Saver) -> None:
        """10.3"""
        writer = Writer(saver)
        writer.put(commit(1))
        stranger = writer.run._replace(incarnation="stranger")
        refusal(ConcurrentRunError, saver.put, stranger, [commit(2)], [])
        refusal(ConcurrentRunError, saver.put, stranger._replace(head=0), [commit(2)], [])
        refusal(ConcurrentRunError, saver.put, stranger, [], [record(1, "a@1")])
        assert ids(saver.list(Key("thread"))) == [1]

    def test_two_runs_cannot_both_create_a_thread(self, saver: Saver) -> None:
        """10.3"""
        Writer(saver, incarnation="first").put(commit(1, {"x": b"first"}))
        refusal(ConcurrentRunError, Writer(saver, incarnation="second").put, commit(1, {"x": b"second"}, token="2"))
        assert Writer(saver).saved().values == {"x": (b"first",)}

    def test_a_run_of_a_deleted_thread_cannot_write(self, saver: Saver) -> None:
        """10.3"""
        writer = Writer(saver)
        writer.put(commit(1))
        saver.delete_thread("thread")
        refusal(ConcurrentRunError, writer.put, commit(2))
        refusal(ConcurrentRunError, saver.put, writer.run, [], [record(1, "a@1")])
        assert saver.get(Key("thread")).run is None

    def test_a_deleted_and_reused_thread_id_is_another_thread(self, saver: Saver) -> None:
        """10.3"""
        old = Writer(saver, incarnation="old")
        old.put(commit(1, {"x": b"old"}))
        saver.delete_thread("thread")
        new = Writer(saver, incarnation="new")
        new.put(commit(1, {"x": b"new"}))
        refusal(ConcurrentRunError, old.put, commit(2))
        refusal(ConcurrentRunError, saver.put, old.run._replace(head=0), [commit(1, {"x": b"old"})], [])
        assert new.saved().values == {"x": (b"new",)}

    def test_commits_of_several_namespaces_are_one_put(self, saver: Saver) -> None:
        """10.1"""
        writer = Writer(saver)
        writer.put(commit(1), commit(1, namespace="c@1"), commit(2), commit(2, namespace="c@1"))
        assert writer.get() == Found(Run("thread", "incarnation", 2), 2, writer.saved(checkpoint_id=2))
        assert ids(saver.list(Key("thread", "c@1"))) == [2, 1]

    def test_a_commit_of_a_child_does_not_move_the_head(self, saver: Saver) -> None:
        """10.3"""
        writer = Writer(saver)
        writer.put(commit(1))
        writer.put(commit(8, namespace="c@1", parent_id=0))
        assert writer.get().run == Run("thread", "incarnation", 1)

    def test_numbers_only_grow(self, saver: Saver) -> None:
        """9.4"""
        writer = Writer(saver)
        writer.put(commit(5, parent_id=0), commit(5, namespace="c@1", parent_id=0))
        for late in (
            [commit(4, token="late")],
            [commit(5, token="late")],
            [commit(4, namespace="c@1")],
            [commit(7, namespace="c@1"), commit(6, namespace="c@1")],
            [commit(7), commit(6)],
        ):
            refusal(ConcurrentRunError, saver.put, writer.run, late, [])
        assert writer.get().run == writer.run
        assert ids(saver.list(Key("thread"))) == [5]
        assert ids(saver.list(Key("thread", "c@1"))) == [5]

    def test_a_put_whose_reply_was_lost_may_be_repeated(self, saver: Saver) -> None:
        """10.4"""
        run = Run("thread", "incarnation", 0)
        commits = [commit(1, {"x": b"1"}), commit(1, namespace="c@1")]
        saver.put(run, commits, [record(1, "a@1")])
        once = saver.get(Key("thread"))
        saver.put(run, commits, [record(1, "a@1")])
        assert saver.get(Key("thread")) == once
        run = run._replace(head=1)
        saver.put(run, [commit(2, namespace="c@1")], [])
        saver.put(run, [commit(2, namespace="c@1")], [])
        assert ids(saver.list(Key("thread", "c@1"))) == [2, 1]

    def test_a_repeated_put_is_recognised_after_another_run_began(self, saver: Saver) -> None:
        """10.4"""
        run = Run("thread", "incarnation", 0)
        saver.put(run, [commit(1, {"x": b"1"})], [])
        saver.put(run._replace(head=1), [commit(2, {"x": b"2"})], [])
        saver.put(run, [commit(1, {"x": b"1"})], [])
        assert saver.get(Key("thread")).run == Run("thread", "incarnation", 2)

    def test_the_same_number_with_another_token_is_refused(self, saver: Saver) -> None:
        """10.4"""
        run = Run("thread", "incarnation", 0)
        saver.put(run, [commit(1, {"x": b"1"}, token="mine")], [])
        refusal(ConcurrentRunError, saver.put, run, [commit(1, {"x": b"2"}, token="yours")], [])
        assert Writer(saver).saved().values == {"x": (b"1",)}

    def test_a_repeated_put_with_more_in_it_is_refused(self, saver: Saver) -> None:
        """10.4"""
        run = Run("thread", "incarnation", 0)
        saver.put(run, [commit(1)], [record(1, "a@1")])
        refusal(ConcurrentRunError, saver.put, run, [commit(1)], [record(1, "a@1"), record(1, "b@1")])
        refusal(ConcurrentRunError, saver.put, run, [commit(1)], [record(1, "a@1", b"other")])
        refusal(ConcurrentRunError, saver.put, run, [commit(1), commit(2)], [])
        refusal(ConcurrentRunError, saver.put, run._replace(head=1), [commit(2), commit(1)], [])
        assert ids(saver.list(Key("thread"))) == [1]
        assert Writer(saver).saved().records == (record(1, "a@1"),)

    def test_a_record_may_be_repeated_with_equal_bytes_only(self, saver: Saver) -> None:
        """10.4"""
        writer = Writer(saver)
        writer.put(commit(1))
        writer.put(records=[record(1, "a@1")])
        writer.put(records=[record(1, "a@1"), record(1, "b@1")])
        refusal(ConcurrentRunError, saver.put, writer.run, [], [record(1, "c@1"), record(1, "a@1", b"other")])
        refusal(ConcurrentRunError, saver.put, writer.run, [], [record(1, "a@1")._replace(kind="failed")])
        assert writer.saved().records == (record(1, "a@1"), record(1, "b@1"))

    def test_a_version_of_a_channel_is_never_written_twice(self, saver: Saver) -> None:
        """10.5"""
        writer = Writer(saver)
        writer.put(commit(1, {"x": b"1"}))
        writer.put(commit(2)._replace(values=(full("x", 1, b"1"),)))  # the same once more is no harm
        for other in (b"other", b"", b"long" * 1_000):
            refusal(ConcurrentRunError, writer.put, commit(3)._replace(values=(full("x", 1, other),)))
        assert writer.saved().values == {"x": (b"1",)}
        writer.put(commit(3, {"y": b"long" * 1_000}))
        writer.put(commit(4)._replace(values=(full("y", 3, b"long" * 1_000),)))
        for other in (b"other", b"", b"longer" * 1_000):
            refusal(ConcurrentRunError, writer.put, commit(5)._replace(values=(full("y", 3, other),)))
        assert writer.saved().values == {"x": (b"1",), "y": (b"long" * 1_000,)}

    def test_a_put_whose_last_record_is_refused_writes_nothing(self, saver: Saver) -> None:
        """10.1"""
        writer = Writer(saver)
        writer.put(commit(1, {"x": b"1"}), records=[record(1, "a@1")])
        before = writer.get()
        commits = [commit(2, {"x": b"2"}), commit(2, {"x": b"2"}, namespace="c@1")]
        records = [record(2, "a@2"), record(1, "b@1", namespace="d@1"), record(1, "a@1", b"other")]
        refusal(ConcurrentRunError, saver.put, writer.run, commits, records)
        assert writer.get() == before
        assert saver.namespaces("thread") == [""]
        saver.put(writer.run, commits, records[:2])  # and nothing is in its way
        assert writer.saved(checkpoint_id=2).values == {"x": (b"2",)}

    def test_a_refused_put_creates_no_thread(self, saver: Saver) -> None:
        """10.1"""
        twice = [record(1, "a@1"), record(1, "a@1", b"other")]
        refusal(ConcurrentRunError, Writer(saver).put, commit(1), records=twice)
        assert saver.get(Key("thread")).run is None
        assert list(saver.threads()) == []

    def test_a_put_that_cannot_be_carried_out_writes_nothing(self, saver: Saver) -> None:
        """10.1"""
        writer = Writer(saver)
        writer.put(commit(1))
        before = writer.get()
        broken: Any = object()
        records = [record(2, "a@2", broken)]
        refusal(Exception, saver.put, writer.run, [commit(2, {"x": b"2"})], records)
        assert writer.get() == before
        writer.put(commit(2, {"x": b"2"}))

    def test_what_was_put_does_not_change_with_the_callers_objects(self, saver: Saver) -> None:
        """2.4"""
        data, due, row = bytearray(b"value"), bytearray(b"due"), bytearray(b"record")
        line, versions = [1], bytearray(pack_versions({"x": 1}))
        mutable: Any = {"line": line, "due": due, "metadata": due}
        there = commit(1, **mutable)
        values: Any = [full("x", 1, data)]  # type: ignore[arg-type]  # the mistake to survive
        checkpoint = there.checkpoint._replace(versions=versions)  # type: ignore[arg-type]
        commits, rows = [Commit(checkpoint, values)], [record(1, "a@1")._replace(data=row)]  # type: ignore[arg-type]
        saver.put(Run("thread", "incarnation", 0), commits, rows)
        for buffer in (data, due, row, versions):
            buffer[:] = b"!"
        for items in (line, values, commits, rows):
            items.clear()
        saved = Writer(saver).saved()
        assert saved.values == {"x": (b"value",)}
        assert (saved.checkpoint.due, saved.checkpoint.line) == (b"due", (1,))
        assert saved.records == (record(1, "a@1", b"record"),)

    def test_what_was_read_may_be_changed_by_the_reader(self, saver: Saver) -> None:
        """2.4"""
        writer = Writer(saver)
        writer.put(commit(1, {"x": b"1"}))
        before = writer.saved()
        for read in (before, next(iter(saver.list(Key("thread"))))):
            read.versions.clear()
            read.values.clear()
        assert writer.saved().versions == {"x": 1}
        assert writer.saved().values == {"x": (b"1",)}

    def test_values_of_any_bytes_and_size_are_kept(self, saver: Saver) -> None:
        """10.5"""
        writer = Writer(saver)
        values = {"empty": b"", "all": bytes(range(256)), "zeros": b"\0" * 4096, "big": b"0123456789abcdef" * 327_680}
        values |= {f"of {size}": b"v" * size for size in range(500, 1_100, 50)}
        writer.put(commit(1, values), records=[record(1, "a@1", values["big"]), record(1, "b@1", b"")])
        saved = writer.saved()
        assert saved.values == {channel: (data,) for channel, data in values.items()}
        assert [r.data for r in saved.records] == [values["big"], b""]

    def test_a_checkpoint_with_many_channels_and_records_is_kept(self, saver: Saver) -> None:
        """10.5"""
        writer = Writer(saver)
        values = {f"channel {n}": b"%d" % n for n in range(2_000)}
        rows = [record(1, f"task@1.{n}", b"%d" % n) for n in range(2_000)]
        writer.put(commit(1, values), records=rows)
        saved = writer.saved()
        assert saved.values == {channel: (data,) for channel, data in values.items()}
        assert list(saved.records) == rows


class _Names:
    """Identifiers are data: nothing in them means anything to a saver."""

    def test_threads_with_hostile_ids_are_kept_apart(self, saver: Saver) -> None:
        """10.5"""
        for name in HOSTILE:
            Writer(saver, name).put(commit(1, {"x": name.encode()}), records=[record(1, "a@1", name.encode())])
        for name in HOSTILE:
            saved = Writer(saver, name).saved()
            assert saved.values == {"x": (name.encode(),)}
            assert saved.records == (record(1, "a@1", name.encode()),)
        assert list(saver.threads()) == sorted(HOSTILE)

    def test_namespaces_with_hostile_names_are_kept_apart(self, saver: Saver) -> None:
        """8.4"""
        writer = Writer(saver)
        writer.put(*(commit(1, {"x": name.encode()}, namespace=name) for name in HOSTILE))
        assert saver.namespaces("thread") == sorted(HOSTILE)
        for name in HOSTILE:
            assert writer.saved(name).values == {"x": (name.encode(),)}
            assert ids(saver.list(Key("thread", name))) == [1]

    def test_channels_and_tasks_with_hostile_names_are_kept_apart(self, saver: Saver) -> None:
        """10.5"""
        writer = Writer(saver)
        rows = [record(1, name, name.encode()) for name in HOSTILE]
        writer.put(commit(1, {name: name.encode() for name in HOSTILE}), records=rows)
        writer.put(commit(2, dict.fromkeys(HOSTILE, (1, b"+")), line=(1, 2)))
        saved = writer.saved()
        assert saved.values == {name: (name.encode(), b"+") for name in HOSTILE}
        assert list(saved.records) == rows

    def test_no_name_matches_as_a_pattern_when_a_thread_is_deleted(self, saver: Saver) -> None:
        """9.6"""
        for name in HOSTILE:
            Writer(saver, name).put(commit(1))
        for n, name in enumerate(sorted(HOSTILE)):
            saver.delete_thread(name)
            assert list(saver.threads()) == sorted(HOSTILE)[n + 1 :]

    def test_names_that_cannot_be_stored_everywhere_are_refused(self, saver: Saver) -> None:
        """10.5"""
        for name in ("a\0b", "\0", "lone \ud800"):
            for call in (
                lambda name: saver.get(Key(name)),
                lambda name: saver.list(Key(name)),
                lambda name: saver.namespaces(name),
                lambda name: saver.delete_thread(name),
                lambda name: saver.put(Run(name, "incarnation", 0), [commit(1)], []),
                lambda name: saver.put(Run("t", "incarnation", 0), [commit(1), commit(1, namespace=name)], []),
                lambda name: saver.put(Run("t", "incarnation", 0), [commit(1)._replace(values=(full(name),))], []),
                lambda name: saver.put(Run("t", "incarnation", 0), [commit(1)], [record(1, name)]),
            ):
                assert repr(name) in str(refusal(CheckpointError, call, name))
        assert list(saver.threads()) == []


class _Listing:
    """What `list`, `threads` and `namespaces` show, and what `delete_thread` removes."""

    def test_checkpoints_are_listed_newest_first(self, saver: Saver) -> None:
        """9.2"""
        writer = Writer(saver)
        writer.put(*(commit(n, parent_id=0) for n in (1, 3, 4, 9)))
        key = Key("thread")
        assert ids(saver.list(key)) == [9, 4, 3, 1]
        assert ids(saver.list(key, before=4)) == [3, 1]
        assert ids(saver.list(key, before=5)) == [4, 3, 1]
        assert ids(saver.list(key, limit=2)) == [9, 4]
        assert ids(saver.list(key, before=9, limit=2)) == [4, 3]
        assert ids(saver.list(key, before=100, limit=100)) == [9, 4, 3, 1]
        assert ids(saver.list(key, limit=0)) == ids(saver.list(key, before=1)) == []

    def test_nothing_is_listed_of_what_does_not_exist(self, saver: Saver) -> None:
        """9.2"""
        Writer(saver).put(commit(1))
        assert ids(saver.list(Key("nobody"))) == ids(saver.list(Key("thread", "c@1"))) == []
        assert saver.namespaces("nobody") == []

    def test_a_listed_checkpoint_is_the_one_that_get_reads(self, saver: Saver) -> None:
        """9.2"""
        writer = Writer(saver)
        writer.put(commit(1, {"log": b"full", "x": b"1"}), records=[record(1, "a@1")])
        writer.put(commit(2, {"log": (1, b"+")}, line=(1, 2)), records=[record(2, "a@1")])
        writer.put(commit(3, {"x": b"3"}, parent_id=1, line=(1, 3)))
        listed = list(saver.list(Key("thread")))
        assert listed == [writer.saved(checkpoint_id=n) for n in (3, 2, 1)]

    def test_a_long_history_is_listed_completely(self, saver: Saver) -> None:
        """9.2"""
        writer = Writer(saver)
        writer.put(*(commit(n, {"x": b"%d" % n}, complete=True) for n in range(1, 501)))
        listed = list(saver.list(Key("thread")))
        assert [saved.values["x"] for saved in listed] == [(b"%d" % n,) for n in range(500, 0, -1)]

    def test_writing_goes_on_while_a_history_is_read(self, saver: Saver) -> None:
        """9.2"""
        writer = Writer(saver)
        writer.put(*(commit(n) for n in range(1, 6)))
        history = saver.list(Key("thread"))
        assert next(history).checkpoint.id == 5
        for n in range(6, 9):
            writer.put(commit(n))
        assert ids(history) == [4, 3, 2, 1]

    def test_a_history_that_is_not_read_to_its_end_holds_nothing(self, saver: Saver) -> None:
        """9.2"""
        writer = Writer(saver)
        writer.put(*(commit(n) for n in range(1, 6)))
        histories = [saver.list(Key("thread")) for _ in range(50)]
        assert [next(history).checkpoint.id for history in histories] == [5] * 50
        saver.delete_thread("thread")
        Writer(saver).put(commit(1))

    def test_a_history_ends_when_the_thread_is_deleted(self, saver: Saver) -> None:
        """9.6"""
        Writer(saver, incarnation="old").put(*(commit(n) for n in range(1, 6)))
        first, second = saver.list(Key("thread")), saver.list(Key("thread"))
        assert next(first).checkpoint.id == next(second).checkpoint.id == 5
        saver.delete_thread("thread")
        assert ids(first) == []
        Writer(saver, incarnation="new").put(*(commit(n) for n in range(1, 6)))
        assert ids(second) == []

    def test_threads_are_listed_in_order(self, saver: Saver) -> None:
        """10.5"""
        names = [f"thread {n}" for n in range(600)]
        for name in names:
            Writer(saver, name).put(commit(1))
        assert list(saver.threads()) == sorted(names)

    def test_namespaces_are_listed_in_order_and_only_with_checkpoints(self, saver: Saver) -> None:
        """10.5"""
        writer = Writer(saver)
        names = ["", "b@2", "a@1", "a@1|c@1", "a@10"]
        writer.put(*(commit(n, namespace=name) for name in names for n in (1, 2)))
        writer.put(records=[record(1, "x@1", namespace="records only")])
        assert saver.namespaces("thread") == sorted(names)

    def test_deleting_a_thread_leaves_nothing_of_it(self, saver: Saver) -> None:
        """9.6"""
        doomed = Writer(saver, incarnation="old")
        neighbour = Writer(saver, "thread 2")
        for writer in (doomed, neighbour):
            writer.put(commit(1, {"x": b"1"}), commit(1, {"y": b"1"}, namespace="c@1", epoch=1))
            writer.put(records=[record(1, "a@1"), record(1, "b@1", namespace="c@1")])
        before = [neighbour.get(namespace) for namespace in ("", "c@1")]
        saver.delete_thread("thread")
        saver.delete_thread("thread")
        assert doomed.get() == doomed.get("c@1") == Found(None, 0, None)
        assert list(saver.threads()) == ["thread 2"]
        assert saver.namespaces("thread") == []
        assert ids(saver.list(Key("thread"))) == []
        assert [neighbour.get(namespace) for namespace in ("", "c@1")] == before
        again = Writer(saver, incarnation="new")  # nor does a row of it stand in the way of the next
        again.put(commit(1, {"x": b"other"}), commit(1, {"y": b"other"}, namespace="c@1"))
        assert again.saved() == Saved(commit(1, {"x": b""}).checkpoint, {"x": 1}, {"x": (b"other",)}, ())
        assert again.saved("c@1").records == ()

    def test_deleting_an_unknown_thread_is_no_error(self, saver: Saver) -> None:
        """9.6"""
        saver.delete_thread("nobody")
        assert list(saver.threads()) == []


class _Together:
    """Many threads at once."""

    def test_writers_of_different_threads_do_not_disturb_each_other(self, saver: Saver) -> None:
        """10.5"""

        def write(name: str) -> None:
            writer = Writer(saver, name)
            for n in range(1, 26):
                writer.put(commit(n, {"x": b"%d" % n}), records=[record(n, "a@1")])

        names = [f"thread {n}" for n in range(8)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, names))
        for name in names:
            assert ids(saver.list(Key(name))) == list(range(25, 0, -1))
            assert Writer(saver, name).saved().values == {"x": (b"25",)}

    def test_of_runs_that_begin_at_once_exactly_one_goes_on(self, saver: Saver) -> None:
        """10.3"""
        runners = 6
        start = Barrier(runners)

        def begin(run: Run, token: str) -> bool:
            start.wait()
            try:
                saver.put(run, [commit(run.head + 1, {"x": token.encode()}, token=token)], [])
            except ConcurrentRunError:
                return False
            return True

        run = Run("thread", "incarnation", 0)
        with ThreadPoolExecutor(runners) as pool:
            for head in range(20):
                tokens = [f"{head} {n}" for n in range(runners)]
                won = list(pool.map(begin, [run._replace(head=head)] * runners, tokens))
                assert won.count(True) == 1
                assert Writer(saver).saved().values == {"x": (tokens[won.index(True)].encode(),)}
        assert ids(saver.list(Key("thread"))) == list(range(20, 0, -1))

    def test_a_reader_sees_one_instant(self, saver: Saver) -> None:
        """10.5"""

        def write() -> None:
            writer = Writer(saver)
            for n in range(1, 101):
                data = b"%d" % n
                writer.put(commit(n, {"x": data, "y": data}), records=[record(n, "a@1", data), record(n, "b@1", data)])

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            while not writing.done():
                found = saver.get(Key("thread"))
                if found.saved is not None:
                    number = found.saved.checkpoint.id
                    data = b"%d" % number
                    assert found.run == Run("thread", "incarnation", number)
                    assert found.top == number
                    assert found.saved.values == {"x": (data,), "y": (data,)}
                    assert [r.data for r in found.saved.records] == [data, data]
            writing.result()

    def test_deleting_and_writing_at_once_leaves_a_whole_thread_or_none(self, saver: Saver) -> None:
        """9.6"""

        def write(life: int) -> None:
            writer = Writer(saver, incarnation=f"life {life}")
            try:
                for n in range(1, 6):
                    writer.put(commit(n, {"x": b"%d" % life}), commit(n, {"x": b"%d" % life}, namespace="c@1"))
            except ConcurrentRunError:
                pass

        with ThreadPoolExecutor(4) as pool:
            for life in range(20):
                for done in [pool.submit(write, life), pool.submit(saver.delete_thread, "thread")]:
                    done.result()
                found = saver.get(Key("thread"))
                listed = [ids(saver.list(Key("thread", namespace))) for namespace in ("", "c@1")]
                assert listed[0] == listed[1] == list(range(found.top, 0, -1))
                saver.delete_thread("thread")


class _Twins:
    """The async methods, and the end of a saver."""

    def test_async_methods_do_what_the_sync_ones_do(self, saver: Saver) -> None:
        """10.5"""

        async def check() -> None:
            run = Run("thread", "incarnation", 0)
            first, child = commit(1, {"x": b"1"}), commit(1, {"y": b"1"}, namespace="c@1", epoch=4)
            await saver.aput(run, [first, child], [record(1, "a@1")])
            read = Found(
                run._replace(head=1), 1, Saved(first.checkpoint, {"x": 1}, {"x": (b"1",)}, (record(1, "a@1"),))
            )
            assert await saver.aget(Key("thread")) == saver.get(Key("thread")) == read
            read = Found(run._replace(head=1), 1, Saved(child.checkpoint, {"y": 1}, {"y": (b"1",)}, ()))
            assert await saver.aget(Key("thread", "c@1"), [4]) == saver.get(Key("thread", "c@1"), [4]) == read
            assert await saver.aget(Key("thread", "c@1"), [5]) == read._replace(saved=None)
            await saver.aput(run._replace(head=1), [commit(2)], [])
            listed = [saved async for saved in saver.alist(Key("thread"), before=3, limit=5)]
            assert listed == list(saver.list(Key("thread")))
            assert [name async for name in saver.athreads()] == ["thread"]
            assert await saver.anamespaces("thread") == ["", "c@1"]
            await saver.adelete_thread("thread")
            assert await saver.aget(Key("thread")) == Found(None, 0, None)

        asyncio.run(check())

    def test_async_methods_refuse_what_the_sync_ones_refuse(self, saver: Saver) -> None:
        """10.3"""

        async def check() -> None:
            await saver.aput(Run("thread", "incarnation", 0), [commit(1)], [])
            try:
                await saver.aput(Run("thread", "incarnation", 0), [commit(2)], [])
            except ConcurrentRunError:
                return
            raise AssertionError("ConcurrentRunError was not raised")

        asyncio.run(check())

    def test_async_calls_may_run_at_once(self, saver: Saver) -> None:
        """10.5"""

        async def write(name: str) -> None:
            for n in range(1, 6):
                await saver.aput(Run(name, "incarnation", n - 1), [commit(n, {"x": b"%d" % n})], [])

        async def check() -> None:
            await asyncio.gather(*(write(f"thread {n}") for n in range(20)))

        asyncio.run(check())
        assert [Writer(saver, name).saved().values for name in saver.threads()] == [{"x": (b"5",)}] * 20

    def test_an_async_history_may_be_left_early(self, saver: Saver) -> None:
        """9.2"""
        Writer(saver).put(*(commit(n) for n in range(1, 6)))

        async def check() -> None:
            history = saver.alist(Key("thread"))
            assert (await anext(history)).checkpoint.id == 5
            await saver.adelete_thread("thread")

        asyncio.run(check())

    def test_a_closed_saver_refuses_every_call(self, saver: Saver) -> None:
        """10.5"""
        Writer(saver).put(commit(1))
        with saver as entered:
            assert entered is saver
        saver.close()
        for call in (
            lambda: saver.get(Key("thread")),
            lambda: saver.list(Key("thread")),
            lambda: saver.put(Run("thread", "incarnation", 1), [commit(2)], []),
            lambda: saver.threads(),
            lambda: saver.namespaces("thread"),
            lambda: saver.delete_thread("thread"),
        ):
            assert "closed" in str(refusal(CheckpointError, call))

    def test_a_saver_is_an_async_context_manager(self, saver: Saver) -> None:
        """10.5"""

        async def check() -> None:
            async with saver as entered:
                await entered.aput(Run("thread", "incarnation", 0), [commit(1)], [])
            await saver.aclose()

        asyncio.run(check())
        refusal(CheckpointError, saver.get, Key("thread"))


class SaverConformance(_Reading, _Writing, _Names, _Listing, _Together, _Twins):
    """Every promise of `Saver` as a test method that takes the fixture `saver`."""
