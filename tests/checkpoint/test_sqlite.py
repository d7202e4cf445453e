"""What the SQLite saver promises beyond the conformance suite: durability, many processes, and bounded work."""

import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pregel.checkpoint import (
    CheckpointError,
    ConcurrentRunError,
    CorruptCheckpointError,
    Key,
    SqliteSaver,
    StorageVersionError,
)
from pregel.checkpoint.conformance import Writer, commit, ids, record, refusal
from tests.checkpoint.processes import check_turns, finish, process, start_together


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "threads.db"


@pytest.fixture
def saver(path: Path) -> Iterator[SqliteSaver]:
    with SqliteSaver(path) as saver:
        yield saver


def change(path: Path, *statements: str) -> None:
    """Do to the file what no saver does."""
    db = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


class TestDurability:
    def test_every_connection_writes_ahead_and_syncs_fully(self, saver: SqliteSaver) -> None:
        """10.1: with anything less a power cut takes the last commits."""
        with saver._pool.reading() as first, saver._pool.reading() as second:
            assert first is not second
            for db in (first, second):
                assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
                assert db.execute("PRAGMA synchronous").fetchone() == (2,)
                assert db.execute("PRAGMA fullfsync").fetchone() == (1,)

    def test_what_was_put_is_there_after_reopening(self, path: Path) -> None:
        """10.2"""
        with SqliteSaver(path) as first:
            writer = Writer(first)
            writer.put(commit(1, {"log": b"full"}), records=[record(1, "a@1")])
            writer.put(commit(2, {"log": (1, b"+")}, line=(1, 2)))
            before = writer.get()
        with SqliteSaver(str(path)) as second:
            assert second.get(Key("thread")) == before

    def test_every_acknowledged_put_survives_a_kill(self, path: Path) -> None:
        """10.2: killed at any instant, with four threads writing."""
        script = """
            saver = SqliteSaver(sys.argv[1])
            def write(name):
                writer = Writer(saver, name)
                writer.run = saver.get(Key(name)).run or writer.run
                while True:
                    n = writer.run.head + 1
                    writer.put(commit(n, {"x": b"%d" % n}), records=[record(n, "a@1"), record(n, "b@1")])
                    os.write(1, f"{name} {n}\\n".encode())
            for k in range(4):
                threading.Thread(target=write, args=(str(k),)).start()
        """
        acknowledged = dict.fromkeys("0123", 0)
        for lines in (1, 40, 133):
            writing = process(script, path)
            assert writing.stdout is not None
            printed = [writing.stdout.readline() for _ in range(lines)]
            os.kill(writing.pid, signal.SIGKILL)
            rest, _ = writing.communicate(timeout=60)
            for line in [*printed, *rest.splitlines()]:
                name, number = line.split()
                acknowledged[name] = int(number)
            with SqliteSaver(path) as saver:
                for name, last in acknowledged.items():
                    top = saver.get(Key(name)).top
                    assert last <= top <= last + 1  # one more may be there without its reply
                    listed = list(saver.list(Key(name)))
                    assert ids(listed) == list(range(top, 0, -1))
                    assert all(s.values["x"] == (b"%d" % s.checkpoint.id,) and len(s.records) == 2 for s in listed)
                    acknowledged[name] = top

    def test_closing_leaves_one_plain_file(self, path: Path) -> None:
        """10.5"""
        with SqliteSaver(path) as saver:
            Writer(saver).put(commit(1))
            assert len(list(path.parent.iterdir())) > 1
        assert list(path.parent.iterdir()) == [path]


class TestProcesses:
    def test_two_processes_on_their_own_threads_lose_nothing(self, path: Path) -> None:
        """10.5: and neither hears that the database is locked."""
        script = """
            sys.stdin.readline()
            with SqliteSaver(sys.argv[1]) as saver:
                writer = Writer(saver, sys.argv[2])
                for n in range(1, 201):
                    writer.put(commit(n, {"x": b"%d" % n}))
        """
        writing = [process(script, path, name) for name in ("one", "two")]
        for each in writing:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        for each in writing:
            finish(each)
        with SqliteSaver(path) as saver:
            for name in ("one", "two"):
                assert ids(saver.list(Key(name))) == list(range(200, 0, -1))

    def test_two_processes_on_one_thread_take_turns_by_refusal(self, path: Path, saver: SqliteSaver) -> None:
        """10.3: each checkpoint is one process's, and the other was told."""
        check_turns(saver, "SqliteSaver", path)

    def test_processes_may_create_the_file_at_once(self, path: Path) -> None:
        """10.5"""
        script = """
            print("ready", flush=True)
            sys.stdin.readline()
            with SqliteSaver(sys.argv[1]) as saver:
                Writer(saver, sys.argv[2]).put(commit(1))
        """
        opening = [process(script, path, n) for n in range(6)]
        start_together(opening)
        for each in opening:
            finish(each)
        with SqliteSaver(path) as saver:
            assert list(saver.threads()) == [str(n) for n in range(6)]

    def test_threads_may_create_the_file_at_once(self, path: Path) -> None:
        """10.5"""
        start = threading.Barrier(6)

        def create(n: int) -> None:
            start.wait()
            with SqliteSaver(path) as saver:
                Writer(saver, str(n)).put(commit(1))

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(create, range(6)))
        with SqliteSaver(path) as saver:
            assert list(saver.threads()) == [str(n) for n in range(6)]

    def test_a_forked_child_goes_on_after_its_parent_closed_the_saver(self, path: Path) -> None:
        """10.5: an inherited connection would hold no lock, so the parent would remove the log under the child."""
        script = """
            saver = SqliteSaver(sys.argv[1])
            parent, child = Writer(saver, "parent"), Writer(saver, "child")
            parent.put(*(commit(n) for n in range(1, 6)))
            closed, close = os.pipe()
            pid = os.fork()
            if pid == 0:
                child.put(*(commit(n) for n in range(1, 6)))
                os.close(close)
                os.read(closed, 1)
                for n in range(6, 11):
                    child.put(commit(n, {"x": b"after"}))
                os._exit(0)  # without closing, as a kill would
            parent.put(commit(6))
            saver.close()
            os.close(close)
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
        finish(process(script, path))
        with SqliteSaver(path) as saver:
            assert ids(saver.list(Key("parent"))) == list(range(6, 0, -1))
            assert ids(saver.list(Key("child"))) == list(range(10, 0, -1))

    @pytest.mark.parametrize("name", ["threads.db", ":memory:"])
    def test_a_process_may_fork_while_threads_write(self, path: Path, name: str) -> None:
        """10.5: the child finds no lock held by a thread that it does not have."""
        script = """
            saver = SqliteSaver(sys.argv[1])
            def write(name):
                writer = Writer(saver, name)
                for n in range(1, 101):
                    writer.put(commit(n))
            writing = [threading.Thread(target=write, args=(str(k),)) for k in range(4)]
            for thread in writing:
                thread.start()
            children = []
            for k in range(10):
                pid = os.fork()
                if pid == 0:
                    writer = Writer(saver, f"child {k}")
                    writer.put(commit(1))
                    writer.put(commit(2))
                    os._exit(0 if writer.get().top == 2 else 1)
                children.append(pid)
            for thread in writing:
                thread.join()
            assert [saver.get(Key(str(k))).top for k in range(4)] == [100] * 4
            saver.close()
            sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))
        """
        finish(process(script, name if name == ":memory:" else path))
        if name != ":memory:":
            with SqliteSaver(path) as saver:
                assert list(saver.threads()) == [*"0123", *(f"child {k}" for k in range(10))]


class TestFiles:
    def test_a_newer_schema_is_refused_and_left_alone(self, path: Path) -> None:
        """10.5"""
        SqliteSaver(path).close()
        change(path, "PRAGMA user_version = 9")
        error = refusal(StorageVersionError, SqliteSaver, path)
        assert "9" in str(error)
        assert "1" in str(error)
        assert str(path) in str(error)

    def test_a_newer_schema_is_refused_by_a_saver_that_is_open_already(self, path: Path) -> None:
        """10.5: another process may have upgraded the file."""
        with SqliteSaver(path) as saver:
            Writer(saver).put(commit(1))
            with saver._pool.reading():  # so that the next call needs a new connection
                change(path, "PRAGMA user_version = 9")
                refusal(StorageVersionError, saver.get, Key("thread"))
                change(path, "PRAGMA user_version = 1")
                assert saver.get(Key("thread")).top == 1

    def test_a_file_of_another_application_is_refused_and_left_alone(self, path: Path) -> None:
        """10.5"""
        for statement in ("CREATE TABLE theirs (x)", "PRAGMA application_id = 77", "PRAGMA user_version = 1"):
            path.unlink(missing_ok=True)
            change(path, statement)
            before = path.read_bytes()
            assert "another application" in str(refusal(CheckpointError, SqliteSaver, path))
            assert path.read_bytes() == before

    def test_a_file_that_is_no_database_is_refused_and_left_alone(self, path: Path) -> None:
        """10.5"""
        text = "these are somebody's notes, more than a hundred bytes of them" * 10
        path.write_text(text)
        error = refusal(CheckpointError, SqliteSaver, path)
        assert str(path) in str(error)
        assert isinstance(error.__cause__, sqlite3.DatabaseError)
        assert path.read_text() == text

    def test_an_empty_file_becomes_a_database(self, path: Path) -> None:
        """10.5"""
        path.touch()
        with SqliteSaver(path) as saver:
            Writer(saver).put(commit(1))

    def test_a_missing_directory_is_named(self, path: Path) -> None:
        """10.5"""
        missing = path / "no" / "such.db"
        error = refusal(CheckpointError, SqliteSaver, missing)
        assert str(missing) in str(error)
        assert "directory" in error.hint

    def test_a_relative_path_means_the_same_file_after_a_change_of_directory(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """10.5: connections are opened when they are needed, which may be later."""
        monkeypatch.chdir(path.parent)
        with SqliteSaver(path.name) as saver:
            Writer(saver).put(commit(1))
            (path.parent / "elsewhere").mkdir()
            monkeypatch.chdir("elsewhere")
            with saver._pool.reading():
                assert saver.get(Key("thread")).top == 1

    def test_a_damaged_file_is_reported(self, path: Path) -> None:
        """12.3"""
        with SqliteSaver(path) as saver:
            Writer(saver).put(*(commit(n, {"x": b"v" * 3000}) for n in range(1, 20)))
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (path.stat().st_size - 4096))
        with SqliteSaver(path) as saver:
            error = refusal(CorruptCheckpointError, saver.get, Key("thread"))
            assert str(path) in str(error)

    @pytest.mark.parametrize(
        ("statement", "names"),
        [
            ("DELETE FROM channel_values WHERE channel = 'x' AND version = 1", ["thread", "c@1", 3, "x"]),
            ("DELETE FROM channel_values WHERE channel = 'log' AND version = 1", ["thread", "c@1", 3, "log"]),
            ("DELETE FROM channel_values WHERE channel = 'log' AND version = 2", ["thread", "c@1", 3, "log"]),
            ("DELETE FROM wide_values", ["thread", "c@1", 3, "wide"]),
            ("UPDATE channel_values SET base = 3 WHERE channel = 'log' AND version = 3", ["thread", "c@1", 3, "log"]),
            ("DELETE FROM checkpoints WHERE ns = 'c@1' AND id = 1", ["thread", "c@1", 3]),
            ("UPDATE checkpoints SET parent_id = 3 WHERE ns = 'c@1' AND id = 2", ["thread", "c@1", 3]),
            ("UPDATE checkpoints SET versions = x'c1' WHERE ns = 'c@1' AND id = 2", ["thread", "c@1", 3]),
            ("UPDATE checkpoints SET line = x'c1' WHERE ns = 'c@1' AND id = 3", ["thread", "c@1", 3]),
        ],
    )
    def test_missing_and_damaged_rows_are_reported_by_name(
        self, path: Path, statement: str, names: list[object]
    ) -> None:
        """12.3"""
        with SqliteSaver(path) as saver:
            writer = Writer(saver)
            writer.put(commit(1), commit(1, {"log": b"full", "x": b"1", "wide": b"w" * 2_000}, namespace="c@1"))
            writer.put(*(commit(n, {"log": (n - 1, b"+")}, namespace="c@1") for n in (2, 3)))
            change(path, statement)
            error = refusal(CorruptCheckpointError, writer.get, "c@1")
            assert all(repr(name) in str(error) for name in names)
            assert writer.get().saved is not None  # what is whole can still be read


class TestLimits:
    def test_a_writer_gives_up_after_its_timeout_and_readers_go_on(self, path: Path) -> None:
        """10.5"""
        with SqliteSaver(path, timeout=0.01) as saver:
            writer = Writer(saver)
            writer.put(commit(1))
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            error = refusal(CheckpointError, writer.put, commit(2))
            assert "locked" in str(error)
            assert "timeout" in error.hint
            assert saver.get(Key("thread")).top == 1
            other.close()
            writer.put(commit(2))

    def test_a_thread_gives_up_after_its_timeout_when_another_writes(self, path: Path) -> None:
        """10.5"""
        with SqliteSaver(path, timeout=0.01) as saver, saver._pool.writing():
            error = refusal(CheckpointError, Writer(saver).put, commit(1))
            assert "timeout" in error.hint
            assert saver.get(Key("thread")).run is None

    def test_a_full_disk_is_reported_and_writes_nothing(self, saver: SqliteSaver) -> None:
        """10.1"""
        writer = Writer(saver)
        writer.put(commit(1))
        with saver._pool.reading() as db:
            db.execute("PRAGMA max_page_count = 20")
        error = refusal(CheckpointError, writer.put, commit(2, {"x": b"v" * 1_000_000}))
        assert "disk" in error.hint
        assert writer.get().top == 1
        with saver._pool.reading() as db:
            db.execute("PRAGMA max_page_count = 1000000")
        writer.put(commit(2, {"x": b"v" * 1_000_000}))

    def test_connections_that_many_readers_needed_are_given_back(self, saver: SqliteSaver) -> None:
        """10.5"""
        start = threading.Barrier(20)

        def hold() -> None:
            with saver._pool.reading():
                start.wait()

        with ThreadPoolExecutor(20) as pool:
            for done in [pool.submit(hold) for _ in range(20)]:
                done.result()
        assert len(saver._pool._idle) == saver._pool.MAX_IDLE

    def test_closing_waits_for_calls_that_are_under_way(self, path: Path) -> None:
        """10.5"""
        saver = SqliteSaver(path)
        lent, go = threading.Event(), threading.Event()

        def work() -> None:
            with saver._pool.writing() as db:
                lent.set()
                go.wait()
                db.execute("SELECT 1 FROM threads")

        with ThreadPoolExecutor(2) as pool:
            working = pool.submit(work)
            lent.wait()
            closing = pool.submit(saver.close)
            assert not closing.done()
            go.set()
            working.result()
            closing.result()
        assert list(path.parent.iterdir()) == [path]


def history(saver: SqliteSaver, length: int) -> Writer:
    """Write a root and a child with deltas, a complete map every 20 commits, and a record each."""
    writer = Writer(saver, f"thread {length}")
    for n in range(1, length + 1):
        complete = n % 20 == 1
        values = {"x": b"1", "log": b"full" if complete else (n - 1, b"+")}
        child = commit(n, values, namespace="c@1", epoch=n, complete=complete)
        writer.put(commit(n, values, complete=complete), child, records=[record(n, "a@1")])
    return writer


def readings(writer: Writer, length: int) -> list[Callable[[], object]]:
    """Return each way to read one checkpoint of a history."""
    thread_id = writer.run.thread_id
    return [
        lambda: writer.get(),
        lambda: writer.get("c@1"),
        lambda: writer.get("c@1", checkpoint_id=length // 2),
        lambda: writer.saver.get(Key(thread_id, "c@1"), [3, 4]),
        lambda: writer.saver.get(Key(thread_id, "c@1"), [length + 1]),
        lambda: next(writer.saver.list(Key(thread_id), before=length // 2 + 1)),
        lambda: writer.saver.namespaces(thread_id),
    ]


class TestWork:
    def test_a_read_takes_four_statements_however_long_the_history_is(self, saver: SqliteSaver) -> None:
        """9.2"""
        for length in (2, 40, 300):
            writer = history(saver, length)
            for read in readings(writer, length):
                statements: list[str] = []
                with saver._pool.reading() as db:
                    db.set_trace_callback(statements.append)
                read()
                db.set_trace_callback(None)
                assert len([s for s in statements if s.split()[0] not in ("BEGIN", "COMMIT")]) <= 4, statements

    def test_the_steps_of_a_read_do_not_grow_with_the_history(self, saver: SqliteSaver) -> None:
        """9.2: no statement scans a table."""
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        def measure(length: int) -> list[int]:
            nonlocal steps
            writer, measured = history(saver, length), []
            for read in readings(writer, length):
                with saver._pool.reading() as db:
                    db.set_progress_handler(count, 20)
                steps = 0
                read()
                measured.append(steps)
                db.set_progress_handler(None, 0)
            return measured

        short, long = measure(40), measure(400)
        assert all(after <= before + 5 for before, after in zip(short, long, strict=True)), (short, long)

    def test_a_commit_takes_a_fixed_number_of_statements(self, saver: SqliteSaver) -> None:
        """10.1: one transaction, whatever is kept already."""
        writer = history(saver, 30)
        statements: list[str] = []
        with saver._pool.reading() as db:
            db.set_trace_callback(statements.append)
        statements.clear()  # of the end of this transaction
        writer.put(commit(31, {"x": b"1"}))
        db.set_trace_callback(None)
        assert [statement.split()[0] for statement in statements] == ["BEGIN", "SELECT", "INSERT", "INSERT", "COMMIT"]

    def test_what_only_grows_is_stored_once(self, path: Path) -> None:
        """10.5: bytes follow what was added."""
        with SqliteSaver(path) as saver:
            writer = Writer(saver)
            writer.put(commit(1, {"log": b"v" * 1000}))
            for n in range(2, 501):
                writer.put(commit(n, {"log": (n - 1, b"v" * 1000)}))
            assert sum(map(len, writer.saved().values["log"])) == 500_000
        assert path.stat().st_size < 1_000_000

    def test_a_refused_put_leaves_the_connection_usable(self, saver: SqliteSaver) -> None:
        """10.3"""
        writer = Writer(saver)
        writer.put(commit(1))
        for _ in range(20):
            refusal(ConcurrentRunError, Writer(saver).put, commit(5))
        assert len(saver._pool._idle) == 1
        writer.put(commit(2))
