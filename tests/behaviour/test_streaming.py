"""What a stream yields, when it yields it, and what closing it early leaves (rules 5.6, 13.1)."""

import asyncio
import contextlib
import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest

from pregel import InvalidRequestError, Runtime, Saver, interrupt
from tests.helpers import START, Ran, World, build

WAIT = 5.0


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


def two_steps(world: World, saver: Saver | None = None) -> Any:
    nodes = {"a": world.node(lambda s: {"log": ["a"]}), "b": world.node(lambda s: {"log": ["b"]})}
    return build(State, nodes, [(START, "a"), ("a", "b")], saver)


def test_values_are_the_whole_state_after_each_step(world: World, saver: Saver) -> None:
    """13.1: the input first; the last one, the result and get_state agree."""
    graph = two_steps(world, saver)
    values = world.stream(graph, {"log": ["in"]}, thread_id="t", stream_mode="values")
    assert values == [{"log": ["in"]}, {"log": ["in", "a"]}, {"log": ["in", "a", "b"]}]
    assert values[-1] == world.state(graph, thread_id="t").values


def test_updates_are_what_each_node_wrote(world: World, saver: Saver) -> None:
    """13.1: one mapping from node to update for each task."""
    found = world.stream(two_steps(world, saver), {}, thread_id="t", stream_mode="updates")
    assert found == [{"a": {"log": ["a"]}}, {"b": {"log": ["b"]}}]


def test_several_modes_come_as_pairs(world: World, saver: Saver) -> None:
    """13.1: `(mode, data)` for a list, also for a list of one."""
    found = world.stream(two_steps(world, saver), {}, thread_id="t", stream_mode=["updates", "values"])
    assert [mode for mode, _ in found] == ["values", "updates", "values", "updates", "values"]
    assert world.stream(two_steps(world), {}, stream_mode=["updates"])[0] == ("updates", {"a": {"log": ["a"]}})


def test_a_pause_is_streamed_with_its_questions(world: World, saver: Saver) -> None:
    """13.1, 6.5: the last value is what invoke would return."""

    def node(state: State) -> None:
        interrupt("?")

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    last = world.stream(graph, {}, thread_id="t", stream_mode="values")[-1]
    assert [i.value for i in last["__interrupt__"]] == ["?"]
    updates = world.stream(graph, None, thread_id="t", stream_mode="updates")
    assert [i.id for i in updates[-1]["__interrupt__"]] == ["a@1#0"]


@pytest.mark.parametrize("mode", ["nothing", [], ["values", "nothing"]], ids=repr)
def test_an_unknown_mode_is_refused(world: World, mode: Any) -> None:
    """13.1: before anything runs."""
    with pytest.raises(InvalidRequestError, match="stream_mode"):
        world.stream(two_steps(world), {}, stream_mode=mode)


def test_events_of_nested_graphs_come_with_their_path(world: World, saver: Saver) -> None:
    """13.1: with subgraphs=True a tuple of task ids comes first."""
    child = build(State, {"inner": world.node(lambda s: {"log": ["inner"]})}, [(START, "inner")])
    graph = build(State, {"outer": child}, [(START, "outer")], saver)
    found = world.stream(graph, {}, thread_id="t", stream_mode="updates", subgraphs=True)
    assert found == [(("outer@1",), {"inner": {"log": ["inner"]}}), ((), {"outer": {"log": ["inner"]}})]
    assert len(world.stream(graph, {}, thread_id="u", stream_mode="updates")) == 1


def live(read: threading.Event, ran: Ran, world: World) -> Any:
    """A node that goes on only after its first event was read."""

    def node(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        ran("start")
        runtime.writer(1)
        assert read.wait(WAIT)
        runtime.writer(2)
        return {"log": ["live"]}

    async def anode(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        ran("start")
        runtime.writer(1)
        assert await asyncio.to_thread(read.wait, WAIT)
        runtime.writer(2)
        return {"log": ["live"]}

    return anode if world.is_async else node


def test_custom_events_arrive_while_the_node_runs(world: World, saver: Saver, ran: Ran) -> None:
    """13.1: the node waits until the reader has its first event."""
    read = threading.Event()
    graph = build(State, {"a": live(read, ran, world)}, [(START, "a")], saver)
    found: list[Any] = []
    if not world.is_async:
        for item in graph.stream({}, thread_id="t", stream_mode=["custom", "updates"]):
            found.append(item)
            read.set()
    else:

        async def main() -> None:
            async for item in graph.astream({}, thread_id="t", stream_mode=["custom", "updates"]):
                found.append(item)
                read.set()

        asyncio.run(main())
    assert found == [("custom", 1), ("custom", 2), ("updates", {"a": {"log": ["live"]}})]


def test_a_stream_closed_in_the_middle_of_a_step_can_be_gone_on_with(world: World, saver: Saver, ran: Ran) -> None:
    """5.6, 13.2: the running node is told to stop, its ending recorded; nothing of the step is lost or run twice."""

    def node(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        ran("a")
        runtime.writer(1)
        runtime.writer(2)
        pause = threading.Event()
        while ran.counts["a"] == 1 and not runtime.cancelled:
            pause.wait(0.002)
        if runtime.cancelled:
            raise RuntimeError("stopped")
        return {"log": ["a"]}

    async def anode(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        ran("a")
        runtime.writer(1)
        runtime.writer(2)
        if ran.counts["a"] == 1:
            await asyncio.Event().wait()
        return {"log": ["a"]}

    nodes = {"a": anode if world.is_async else node, "b": lambda s: {"log": ["b"]}}
    graph = build(State, nodes, [(START, "a"), ("a", "b")], saver)
    _first_then_close(world, graph, "custom")
    assert graph.get_state(thread_id="t").next == ("a",)
    assert world.invoke(graph, None, thread_id="t") == {"log": ["a", "b"]}
    assert ran.counts == {"a": 2}


@pytest.mark.parametrize("mode", ["values", "updates"])
def test_a_stream_closed_between_steps_can_be_gone_on_with(world: World, saver: Saver, mode: str) -> None:
    """5.6: what was shown is stored, the rest runs later."""
    graph = two_steps(world, saver)
    _first_then_close(world, graph, mode)
    assert world.invoke(graph, None, thread_id="t") == {"log": ["a", "b"]}


def _first_then_close(world: World, graph: Any, mode: str) -> None:
    if not world.is_async:
        with contextlib.closing(graph.stream({}, thread_id="t", stream_mode=mode)) as stream:
            next(stream)
        return

    async def main() -> None:
        async with contextlib.aclosing(graph.astream({}, thread_id="t", stream_mode=mode)) as stream:
            await anext(stream)

    asyncio.run(main())
