"""What the PostgreSQL saver promises beyond the conformance suite: connections, sessions, the schema, bounded work."""

import asyncio
import functools
import gc
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool, NullConnectionPool

from pregel.checkpoint import (
    CheckpointError,
    CorruptCheckpointError,
    Found,
    Key,
    PostgresSaver,
    Run,
    StorageVersionError,
)
from pregel.checkpoint.conformance import Writer, commit, ids, record, refusal
from tests.checkpoint.processes import check_turns, finish, process, start_together
from tests.helpers import World


@pytest.fixture
def saver(postgres: str) -> Iterator[PostgresSaver]:
    with PostgresSaver(postgres) as saver:
        yield saver


class Admin:
    """Another connection to the same tables, which does what no saver does."""

    def __init__(self, conninfo: str) -> None:
        self.application = conninfo_to_dict(conninfo)["application_name"]
        self.connection = psycopg.connect(make_conninfo(conninfo, application_name="admin"), autocommit=True)

    def ask(self, statement: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []

    def connected(self) -> int:
        """Count the connections of the savers."""
        return len(self.ask("SELECT 1 FROM pg_stat_activity WHERE application_name = %s", self.application))

    def wait_until_connected(self, count: int) -> None:
        deadline = time.monotonic() + 30
        while (found := self.connected()) != count:
            assert time.monotonic() < deadline, f"{found} are connected"

    def terminate(self, condition: LiteralString = "true") -> int:
        """End connections of the savers, as a pooler, a fail-over or an administrator does."""
        ended = self.ask(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE application_name = %s AND " + condition,
            self.application,
        )
        return len(ended)


@pytest.fixture
def admin(postgres: str) -> Iterator[Admin]:
    admin = Admin(postgres)
    with admin.connection:
        yield admin


class Counting(psycopg.Connection[Any]):
    """Counts how often it waits for the server; it can do something before the second time."""

    exchanges = 0
    before_second: Callable[[], None] | None = None

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        def counted() -> Generator[Any, Any, Any]:
            try:
                ready = yield next(gen)
            except StopIteration as done:
                return done.value
            self.exchanges += 1
            while True:
                try:
                    ready = yield gen.send(ready)
                except StopIteration as done:
                    return done.value

        if self.exchanges == 1 and self.before_second is not None:
            act, self.before_second = self.before_second, None
            act()
        return super().wait(counted(), *args, **kwargs)


@pytest.fixture
def counted(postgres: str) -> Iterator[ConnectionPool[Counting]]:
    options = {"autocommit": True}
    with ConnectionPool(postgres, connection_class=Counting, kwargs=options, min_size=1, max_size=1, open=True) as pool:
        yield pool


class TestConnections:
    def test_a_connection_that_ended_between_two_calls_is_replaced(
        self, postgres: str, admin: Admin, world: World
    ) -> None:
        """10.5: all of them may be gone at once, and no call hears of it."""
        run = Run("thread", "incarnation", 0)

        async def check() -> None:
            async with PostgresSaver(postgres, min_size=4, max_size=4) as saver:
                await saver.aput(run, [commit(1)], [])
                await asyncio.to_thread(admin.wait_until_connected, 4)
                assert admin.terminate() == 4
                await saver.aput(run._replace(head=1), [commit(2)], [])
                assert admin.terminate() > 0
                assert (await saver.aget(Key("thread"))).top == 2

        if world.is_async:
            asyncio.run(check())
            return
        with PostgresSaver(postgres, min_size=4, max_size=4) as saver:
            saver.put(run, [commit(1)], [])
            admin.wait_until_connected(4)
            assert admin.terminate() == 4
            saver.put(run._replace(head=1), [commit(2)], [])
            assert admin.terminate() > 0
            assert saver.get(Key("thread")).top == 2

    def test_a_put_whose_connection_dies_is_said_once_more(self, saver: PostgresSaver, admin: Admin) -> None:
        """10.4: it is recognised if it had been applied, so saying it again is no harm."""
        writer = Writer(saver)
        writer.put(commit(1))
        done = self.while_the_thread_is_locked(admin, lambda: writer.put(commit(2)))
        assert done.exception(10) is None
        assert ids(saver.list(Key("thread"))) == [2, 1]

    def test_a_delete_whose_connection_dies_is_not_said_again(self, saver: PostgresSaver, admin: Admin) -> None:
        """9.6: it could take a thread that has the id since."""
        writer = Writer(saver)
        writer.put(commit(1))
        done = self.while_the_thread_is_locked(admin, lambda: saver.delete_thread("thread"))
        assert isinstance(done.exception(10), CheckpointError)
        assert writer.get().top == 1

    def while_the_thread_is_locked(self, admin: Admin, call: Callable[[], None]) -> Future[None]:
        """Call, and end the connection while the call waits for the row of the thread."""
        waits: LiteralString = "wait_event_type = 'Lock'"
        with ThreadPoolExecutor(1) as pool:
            with admin.connection.transaction():
                admin.ask("SELECT FROM pregel_threads WHERE thread = 'thread' FOR UPDATE")
                done = pool.submit(call)
                deadline = time.monotonic() + 30
                while admin.terminate(waits) == 0:
                    assert time.monotonic() < deadline, "nobody waits"
            return done

    def test_a_server_that_is_not_there_is_reported_in_time(self, world: World) -> None:
        """10.5: each time anew, since it may come back."""

        async def aget() -> None:
            async with PostgresSaver("host=/nowhere", timeout=0.2) as saver:
                for _ in range(2):
                    with pytest.raises(CheckpointError, match=r"0\.2.* sec .*the server can be reached"):
                        await saver.aget(Key("thread"))

        if world.is_async:
            asyncio.run(aget())
            return
        with PostgresSaver("host=/nowhere", timeout=0.2) as saver:
            for _ in range(2):
                error = refusal(CheckpointError, saver.get, Key("thread"))
                assert "0.20 sec" in str(error)
                assert "server can be reached" in error.hint

    def test_more_callers_than_connections_take_turns(self, postgres: str, admin: Admin) -> None:
        """10.5"""
        with PostgresSaver(postgres, max_size=2) as saver, ThreadPoolExecutor(12) as pool:
            for done in [pool.submit(Writer(saver, str(n)).put, commit(1)) for n in range(40)]:
                done.result()
            assert len(list(saver.threads())) == 40
            assert admin.connected() <= 2

    def test_nothing_of_a_saver_is_connected_after_it_was_closed(self, postgres: str, admin: Admin) -> None:
        """10.5"""

        async def read(saver: PostgresSaver) -> None:
            async with saver:
                await saver.aget(Key("thread"))

        saver = PostgresSaver(postgres)
        saver.get(Key("thread"))
        assert admin.connected() > 0
        asyncio.run(read(saver))
        admin.wait_until_connected(0)

    def test_each_event_loop_has_connections_of_its_own_until_it_ends(
        self, postgres: str, admin: Admin, caplog: pytest.LogCaptureFixture
    ) -> None:
        """10.5: one saver serves one `asyncio.run` after another, and none leaves anything."""
        caplog.set_level(logging.CRITICAL, "psycopg.pool")  # pytest would keep its records, and they the connection
        saver = PostgresSaver(postgres)
        run = Run("thread", "incarnation", 0)

        async def work(number: int) -> None:
            await saver.aput(run._replace(head=number - 1), [commit(number)], [])
            if number % 2:  # so many at once that more connections are being made when the loop ends
                await asyncio.gather(*(saver.aget(Key("thread")) for _ in range(6)))

        for n in range(1, 9):
            asyncio.run(work(n))
            gc.collect()  # takes one that was being made, which psycopg leaves to it
            admin.wait_until_connected(0)
        assert asyncio.run(saver.aget(Key("thread"))).top == 8
        saver.close()
        admin.wait_until_connected(0)

    def test_a_loop_that_cancelled_all_tasks_may_go_on(self, postgres: str) -> None:
        """10.5"""

        async def check() -> None:
            async with PostgresSaver(postgres) as saver:
                await saver.aget(Key("thread"))
                others = asyncio.all_tasks() - {asyncio.current_task()}
                for task in others:
                    task.cancel()
                await asyncio.wait(others)
                await saver.aput(Run("thread", "incarnation", 0), [commit(1)], [])

        asyncio.run(check())

    def test_closing_from_outside_closes_on_a_loop_that_runs(self, postgres: str, admin: Admin) -> None:
        """10.5"""

        async def check() -> None:
            saver = PostgresSaver(postgres)
            await saver.aget(Key("thread"))
            saver.close()
            await asyncio.to_thread(admin.wait_until_connected, 0)
            with pytest.raises(CheckpointError, match="closed"):
                await saver.aget(Key("thread"))

        asyncio.run(check())

    def test_a_forked_child_leaves_its_parents_connections_alone(self, postgres: str) -> None:
        """10.5"""
        script = """
            saver = pregel.PostgresSaver(sys.argv[1])
            parent, child = Writer(saver, "parent"), Writer(saver, "child")
            parent.put(*(commit(n) for n in range(1, 6)))
            pid = os.fork()
            if pid == 0:
                child.put(*(commit(n) for n in range(1, 6)))
                saver.close()
                sys.exit(0)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            parent.put(commit(6))
            saver.close()
            sys.exit(code)
        """
        finish(process(script, postgres))
        with PostgresSaver(postgres) as saver:
            assert ids(saver.list(Key("parent"))) == list(range(6, 0, -1))
            assert ids(saver.list(Key("child"))) == list(range(5, 0, -1))


class TestCallersPool:
    def test_a_pool_of_the_caller_stays_open(self, postgres: str) -> None:
        """10.5: closed by who made it. Its connections may be of any kind, these begin transactions by themselves."""
        options = {"row_factory": dict_row, "prepare_threshold": 0}
        with ConnectionPool(postgres, kwargs=options, open=True) as pool:
            with PostgresSaver(pool) as saver:
                Writer(saver).put(commit(1, {"x": b"1"}), records=[record(1, "a@1")])
            refusal(CheckpointError, saver.get, Key("thread"))
            with PostgresSaver(pool) as saver:
                assert Writer(saver).saved().values == {"x": (b"1",)}

    def test_an_async_pool_of_the_caller_stays_open(self, postgres: str) -> None:
        """10.5"""

        async def check() -> None:
            options = {"row_factory": dict_row, "prepare_threshold": 0}
            async with AsyncConnectionPool(postgres, kwargs=options, open=False) as pool:
                async with PostgresSaver(pool) as saver:
                    await saver.aput(Run("thread", "incarnation", 0), [commit(1)], [])
                async with PostgresSaver(pool) as saver:
                    assert (await saver.aget(Key("thread"))).top == 1

        asyncio.run(check())

    def test_the_other_world_is_refused_with_what_to_do(self, postgres: str) -> None:
        """10.5"""

        async def check() -> None:
            async with AsyncConnectionPool(postgres, open=False) as pool:
                error = refusal(CheckpointError, PostgresSaver(pool).get, Key("thread"))
                assert "only an async pool" in str(error)
                assert "ConnectionPool" in error.hint

        asyncio.run(check())
        with ConnectionPool(postgres, open=True) as pool, pytest.raises(CheckpointError, match="only a sync pool"):
            asyncio.run(PostgresSaver(pool).aget(Key("thread")))

    def test_a_pool_that_is_not_open_is_reported(self, postgres: str) -> None:
        """10.5"""
        error = refusal(CheckpointError, PostgresSaver(ConnectionPool(postgres, open=False)).get, Key("thread"))
        assert "open the pool" in error.hint

    def test_options_beside_a_pool_are_refused(self, postgres: str) -> None:
        """10.5"""
        with pytest.raises(CheckpointError, match="a pool has its options already"):
            PostgresSaver(ConnectionPool(postgres, open=False), max_size=3)


SESSION: tuple[LiteralString, ...] = (
    "SELECT name, setting FROM pg_settings WHERE source = 'session'",
    "SELECT statement FROM pg_prepared_statements",
    "SELECT locktype FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'",
    "SELECT name FROM pg_cursors WHERE name <> ''",
    "SELECT pg_listening_channels()",
    "SELECT pg_my_temp_schema()",
)


def use(saver: PostgresSaver) -> None:
    """Call every method, some until the server would plan or prepare differently."""
    saver.setup()
    writer = Writer(saver)
    for n in range(1, 12):
        writer.put(commit(n, {"x": b"1"}), commit(n, namespace="c@1", epoch=n), records=[record(n, "a@1")])
        writer.get("c@1")
    refusal(CheckpointError, Writer(saver).put, commit(5, token="another"))
    assert saver.get(Key("thread", "c@1"), [3]).saved is not None
    assert len(list(saver.list(Key("thread")))) == 11
    assert list(saver.threads()) == ["thread"]
    assert saver.namespaces("thread") == ["", "c@1"]
    saver.delete_thread("thread")


class TestSessions:
    def test_nothing_is_left_in_a_session(self, empty_schema: str) -> None:
        """10.5: behind a pooler the next to use it may be another application."""
        with ConnectionPool(empty_schema, min_size=1, max_size=1, open=True) as pool, PostgresSaver(pool) as saver:

            def session() -> list[list[tuple[Any, ...]]]:
                with pool.connection() as connection:
                    return [connection.execute(view, prepare=False).fetchall() for view in SESSION]

            before = session()
            use(saver)
            assert session() == before

    def test_every_statement_may_go_to_another_session(self, empty_schema: str) -> None:
        """10.5"""
        with NullConnectionPool(empty_schema, open=True) as pool, PostgresSaver(pool) as saver:
            use(saver)

    def test_every_session_may_be_reset_after_each_transaction(self, empty_schema: str) -> None:
        """10.5"""

        def reset(connection: psycopg.Connection[Any]) -> None:
            connection.execute("DISCARD ALL", prepare=False)

        options = {"autocommit": True}
        with ConnectionPool(empty_schema, kwargs=options, reset=reset, open=True) as pool, PostgresSaver(pool) as saver:
            use(saver)


class TestSchema:
    def test_setting_up_twice_does_nothing_more(self, empty_schema: str) -> None:
        """10.5"""
        with PostgresSaver(empty_schema) as first:
            first.setup()
            Writer(first).put(commit(1))
            first.setup()
        with PostgresSaver(empty_schema) as second:
            second.setup()
            asyncio.run(second.asetup())
            assert second.get(Key("thread")).top == 1

    def test_threads_may_set_up_at_once(self, empty_schema: str) -> None:
        """10.5"""
        start = threading.Barrier(8)

        def create(n: int) -> None:
            with PostgresSaver(empty_schema) as saver:
                start.wait()
                Writer(saver, str(n)).put(commit(1))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(create, range(8)))
        with PostgresSaver(empty_schema) as saver:
            assert list(saver.threads()) == [str(n) for n in range(8)]

    def test_processes_may_set_up_at_once(self, empty_schema: str) -> None:
        """10.5"""
        script = """
            saver = pregel.PostgresSaver(sys.argv[1])
            print("ready", flush=True)
            sys.stdin.readline()
            with saver:
                Writer(saver, sys.argv[2]).put(commit(1))
        """
        opening = [process(script, empty_schema, n) for n in range(3)]
        start_together(opening)
        for each in opening:
            finish(each)
        with PostgresSaver(empty_schema) as saver:
            assert list(saver.threads()) == ["0", "1", "2"]

    def test_a_newer_schema_is_refused_and_left_alone(self, empty_schema: str) -> None:
        """10.5"""
        PostgresSaver(empty_schema).setup()
        admin = Admin(empty_schema)
        with admin.connection:
            admin.ask("INSERT INTO pregel_schema VALUES (9)")
            with PostgresSaver(empty_schema) as saver:
                for call in (saver.setup, lambda: saver.get(Key("thread"))):
                    error = refusal(StorageVersionError, call)
                    assert "version 9" in str(error)
                    assert "up to 1" in str(error)
            assert admin.ask("SELECT version FROM pregel_schema ORDER BY version") == [(1,), (9,)]

    def test_who_may_not_make_tables_may_use_them(self, empty_schema: str) -> None:
        """10.5"""
        admin = Admin(empty_schema)
        name = admin.application
        with admin.connection:
            for statement in ("CREATE ROLE {0}_app LOGIN", "GRANT USAGE ON SCHEMA {0} TO {0}_app"):
                admin.ask(statement.format(name))
            theirs = make_conninfo(empty_schema, user=f"{name}_app")
            with PostgresSaver(theirs) as saver:
                error = refusal(CheckpointError, saver.get, Key("thread"))
                assert "setup" in error.hint
                with PostgresSaver(empty_schema) as ours:
                    ours.setup()
                admin.ask(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name} TO {name}_app")
                use(saver)


class TestProcesses:
    def test_two_processes_on_one_thread_take_turns_by_refusal(self, postgres: str, saver: PostgresSaver) -> None:
        """10.3: each checkpoint is one process's, and the other was told."""
        check_turns(saver, "PostgresSaver", postgres)


class TestRows:
    @pytest.mark.parametrize(
        ("statement", "names"),
        [
            ("DELETE FROM pregel_values WHERE channel = 'x' AND version = 1", ["thread", "c@1", 3, "x"]),
            ("DELETE FROM pregel_values WHERE channel = 'log' AND version = 1", ["thread", "c@1", 3, "log"]),
            ("DELETE FROM pregel_values WHERE channel = 'log' AND version = 2", ["thread", "c@1", 3, "log"]),
            ("UPDATE pregel_values SET base = 3 WHERE channel = 'log' AND version = 3", ["thread", "c@1", 3, "log"]),
            ("DELETE FROM pregel_checkpoints WHERE ns = 'c@1' AND id = 1", ["thread", "c@1", 3]),
            ("UPDATE pregel_checkpoints SET parent_id = 3 WHERE ns = 'c@1' AND id = 2", ["thread", "c@1", 3]),
            ("UPDATE pregel_checkpoints SET versions = '\\xc1' WHERE ns = 'c@1' AND id = 2", ["thread", "c@1", 3]),
        ],
    )
    def test_missing_and_damaged_rows_are_reported_by_name(
        self, saver: PostgresSaver, admin: Admin, statement: LiteralString, names: list[object]
    ) -> None:
        """12.3"""
        writer = Writer(saver)
        writer.put(commit(1), commit(1, {"log": b"full", "x": b"1"}, namespace="c@1"))
        writer.put(*(commit(n, {"log": (n - 1, b"+")}, namespace="c@1") for n in (2, 3)))
        admin.ask(statement)
        error = refusal(CorruptCheckpointError, writer.get, "c@1")
        assert all(repr(name) in str(error) for name in names)
        assert writer.get().saved is not None  # what is whole can still be read

    def test_a_name_that_fits_into_no_index_is_refused(self, saver: PostgresSaver) -> None:
        """10.5"""
        name = "".join(map(chr, range(0x4E00, 0x4E00 + 3_000)))  # nothing in it repeats, so it does not compress
        error = refusal(CheckpointError, Writer(saver, name).put, commit(1))
        assert "shorter" in error.hint
        assert saver.get(Key(name)) == Found(None, 0, None)

    def test_a_thread_that_is_made_anew_between_two_statements_is_read_anew(
        self, saver: PostgresSaver, counted: ConnectionPool[Counting]
    ) -> None:
        """10.5: a reader never sees rows of two threads that had one id."""
        Writer(saver, incarnation="old").put(commit(1, {"x": b"old"}))
        reader = PostgresSaver(counted)
        assert reader.get(Key("thread")).run == Run("thread", "old", 1)

        def make_anew() -> None:
            saver.delete_thread("thread")
            Writer(saver, incarnation="new").put(commit(1, {"x": b"new"}))

        with counted.connection() as connection:
            connection.exchanges, connection.before_second = 0, make_anew
        found = reader.get(Key("thread"))
        assert found.run == Run("thread", "new", 1)
        assert found.saved is not None
        assert found.saved.values == {"x": (b"new",)}


class TestWork:
    def test_a_commit_is_one_round_trip_and_a_read_two(self, counted: ConnectionPool[Counting]) -> None:
        """10.1: however long the history is, and however much is in them."""
        saver = PostgresSaver(counted)
        writer = Writer(saver)
        writer.put(commit(1))

        def count(call: Callable[[], object]) -> int:
            with counted.connection() as connection:
                connection.exchanges = 0
            call()
            with counted.connection() as connection:
                return connection.exchanges

        for n in (2, 100, 300):
            many = {f"channel {k}": b"v" for k in range(n)}
            both = [commit(n, many), commit(n, many, namespace="c@1", parent_id=0)]
            rows = [record(n, f"a@{k}") for k in range(n)]
            writer.put(*(commit(k) for k in range(writer.run.head + 1, n)))
            assert count(functools.partial(writer.put, *both, records=rows)) == 1
            assert count(writer.get) == 2
            assert count(functools.partial(writer.get, "c@1")) == 2
            assert count(lambda: next(saver.list(Key("thread")))) == 2
            assert count(lambda: saver.namespaces("thread")) == 1


class TestExtra:
    def test_who_lacks_the_extra_is_told_how_to_get_it(self) -> None:
        """10.5: and only who asks for this saver."""
        script = """
            sys.modules["psycopg"] = None
            from pregel import *
            try:
                pregel.PostgresSaver
            except ImportError as error:
                print(error)
            try:
                pregel.PostgresServer
            except AttributeError as error:
                print(error)
        """
        printed = finish(process(script)).splitlines()
        assert "pip install 'pregel[postgres]'" in printed[0]
        assert printed[1] == "module 'pregel' has no attribute 'PostgresServer'"
