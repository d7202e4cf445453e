"""What `get` promises."""

from __future__ import annotations

import msgpack

from pregel.checkpoint import CorruptCheckpointError, Found, Key, Run, Saved, Saver

from .kit import Writer, commit, record, refusal


class Reading:
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
