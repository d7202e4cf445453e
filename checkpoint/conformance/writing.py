"""What `put` and `delete_thread` promise: one transaction, the fence, repeated writes."""

from __future__ import annotations

from typing import Any

from pregel.checkpoint import Commit, ConcurrentRunError, Found, Key, Run, Saver, pack_versions

from .kit import Writer, commit, full, ids, record, refusal


class Writing:
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
