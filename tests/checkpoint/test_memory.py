"""What the memory saver promises beyond the conformance suite: it never waits, and it costs little."""

import asyncio
import gc
import sys
import threading
import tracemalloc
from types import FrameType
from typing import Any

from pregel.checkpoint import InMemorySaver, Key
from pregel.checkpoint.conformance import Writer, commit, record


def test_async_calls_are_made_in_place() -> None:
    """10.5: nothing waits, so no worker thread is woken."""

    async def check() -> int:
        async with InMemorySaver() as saver:
            writer = Writer(saver)
            await saver.aput(writer.run, [commit(1)], [])
            await saver.aget(Key("thread"))
            assert [saved.checkpoint.id async for saved in saver.alist(Key("thread"))] == [1]
            return threading.active_count()

    before = threading.active_count()
    assert not InMemorySaver.blocking
    assert asyncio.run(check()) == before


def test_bytes_are_kept_without_a_copy() -> None:
    """2.4: what is immutable already is not copied again."""
    saver, data = InMemorySaver(), b"x" * 1000
    writer = Writer(saver)
    writer.put(commit(1, {"x": data}))
    assert writer.saved().values["x"][0] is data


def test_two_savers_share_nothing() -> None:
    """10.5"""
    first, second = InMemorySaver(), InMemorySaver()
    Writer(first).put(commit(1))
    assert list(second.threads()) == []


def test_a_commit_costs_a_fixed_number_of_calls() -> None:
    """10.1: whatever is kept already."""
    writer = Writer(InMemorySaver())
    for number in range(1, 200):
        writer.put(commit(number, {"x": b"1"}), records=[record(number, "a@1")])
    there, calls = commit(200, {"x": b"1"}), 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        writer.saver.put(writer.run, [there], [])
    finally:
        sys.setprofile(None)
    assert calls <= 16


def test_a_deleted_thread_gives_its_memory_back() -> None:
    """9.6"""
    saver = InMemorySaver()

    def live_and_die() -> None:
        for n in range(20):
            writer = Writer(saver, f"thread {n}")
            writer.put(*(commit(k, {"x": b"%d" % k * 100}) for k in range(1, 20)), records=[record(1, "a@1")])
        for thread_id in list(saver.threads()):
            saver.delete_thread(thread_id)
        gc.collect()

    live_and_die()
    tracemalloc.start()
    try:
        live_and_die()
        before, _ = tracemalloc.get_traced_memory()
        live_and_die()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 2_000
