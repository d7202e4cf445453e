"""A task ends only when the child runs begun in it have ended."""

import asyncio
import threading
from typing import Any, TypedDict

import pytest

from pregel import Runtime, Saver, interrupt
from tests.helpers import START, World, build


class State(TypedDict, total=False):
    x: int


@pytest.mark.parametrize("asks", [True, False])
def test_a_child_in_an_asyncio_task_is_waited_for_after_a_pause_and_cancelled_after_a_return(
    world: World, saver: Saver, asks: bool
) -> None:
    """5.9"""
    seen: list[str] = []
    gates: dict[str, asyncio.Event] = {}

    async def slow(state: State) -> None:
        gates["started"].set()
        try:
            async with asyncio.timeout(None if not asks else 0.02):
                await asyncio.Event().wait()
        except TimeoutError:
            seen.append("ended")
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    child = build(State, {"slow": slow}, [(START, "slow")])

    async def node(state: State) -> dict[str, Any]:
        gates["started"] = asyncio.Event()
        running = asyncio.create_task(child.ainvoke({"x": 1}, key="k"))
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await gates["started"].wait()
        if asks:
            interrupt("?")
        return {"x": 5}

    graph = build(State, {"n": node}, [(START, "n")], saver)
    result = world.invoke(graph, {}, thread_id="t")
    assert ("__interrupt__" in result) is asks
    assert seen == ["ended" if asks else "cancelled"]


def test_a_child_in_a_bound_thread_is_waited_for_after_a_pause(world: World, saver: Saver) -> None:
    """5.9, 8.6: bind makes the thread's call a child of the node."""
    started, go = threading.Event(), threading.Event()
    seen: list[str] = []

    def slow(state: State) -> None:
        started.set()
        assert go.wait(10)
        seen.append("ended")

    child = build(State, {"slow": slow}, [(START, "slow")])
    threads: list[threading.Thread] = []

    def node(state: State, runtime: Runtime[None]) -> None:
        threads.append(threading.Thread(target=runtime.bind(lambda: child.invoke({"x": 1}, key="k"))))
        threads[0].start()
        assert started.wait(10)
        threading.Timer(0.02, go.set).start()
        interrupt("?")

    graph = build(State, {"n": node}, [(START, "n")], saver)
    assert "__interrupt__" in world.invoke(graph, {}, thread_id="t")
    threads[0].join(10)
    assert seen == ["ended"]
