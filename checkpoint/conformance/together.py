"""What holds when many use a saver at once, and on an event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from pregel.checkpoint import CheckpointError, ConcurrentRunError, Found, Key, Run, Saved, Saver

from .kit import Writer, commit, ids, record, refusal


class Together:
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


class Twins:
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
