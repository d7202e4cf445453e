"""What savers promise about names and about lists."""

from __future__ import annotations

from pregel.checkpoint import CheckpointError, Found, Key, Run, Saved, Saver

from .kit import HOSTILE, Writer, commit, full, ids, record, refusal


class Names:
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


class Listing:
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
