"""A stop from outside reaches the loop, is recorded, and is raised again; nothing is left running (rules 5.6, 5.9)."""

import asyncio
import operator
import threading
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

import pytest

from pregel import GraphInterrupt, Pregel, Runtime, Saver, WrongLoopError, interrupt, threads
from tests.helpers import END, START, Ran, World, build

WAIT = 5.0


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """After each test no node occupies a thread and no task is left on the library's loop."""
    yield
    pause = threading.Event()
    for _ in range(500):
        pool, loop = threads.THREADS, threads.LOOP
        busy = pool._count - pool._free
        tasks = asyncio.all_tasks(loop._loop) if loop._loop is not None else set()
        if not busy and not tasks:
            return
        pause.wait(0.01)
    raise AssertionError(f"{busy} busy threads, tasks {tasks}")


def waiting(ran: Ran, started: Any, *, once: bool = True) -> Any:
    """An async node that waits for ever in its first run."""

    async def node(state: State) -> dict[str, Any]:
        ran("wait")
        if ran.counts["wait"] == 1:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ran("cleanup")
        return {"log": ["wait"]}

    return node


def cancelled_once(graph: Pregel[Any], started: Any, **options: Any) -> None:
    """Start a run, cancel it from outside once its node waits, and see the cancel come back."""

    async def main() -> None:
        run = asyncio.create_task(graph.ainvoke({}, thread_id="t", **options))
        await asyncio.wait_for(asyncio.to_thread(started.wait, WAIT), WAIT)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        # a pool of database connections keeps workers of its own
        assert {t for t in asyncio.all_tasks() if not t.get_name().startswith("pool-")} == {asyncio.current_task()}

    asyncio.run(main())


@pytest.mark.parametrize("beside", [False, True], ids=["lone", "beside another"])
@pytest.mark.parametrize("options", [{}, {"timeout": 60.0}], ids=["no limit", "limit"])
def test_a_cancelled_run_can_be_gone_on_with(saver: Saver, ran: Ran, beside: bool, options: dict[str, Any]) -> None:
    """5.6: the node is cancelled and awaited, its ending recorded, the rest goes on later."""
    started = threading.Event()
    nodes: dict[str, Any] = {"wait": (waiting(ran, started), options)}
    if beside:
        nodes["b"] = lambda s: {"log": ["b"]}
    graph = build(State, nodes, [(START, name) for name in nodes], saver)
    cancelled_once(graph, started, grace=60.0)
    assert ran.counts["cleanup"] == 1
    assert "wait" in graph.get_state(thread_id="t").next
    assert graph.invoke(None, thread_id="t")["log"] == ["wait", *(["b"] if beside else [])]


@pytest.mark.parametrize("as_node", [True, False], ids=["as a node", "called"])
def test_a_cancel_reaches_nested_graphs(saver: Saver, ran: Ran, as_node: bool) -> None:
    """5.6: two graphs deep; finished inner tasks do not run again."""
    started = threading.Event()

    def first(state: State) -> dict[str, Any]:
        ran("first")
        return {"log": ["first"]}

    child = build(State, {"first": first, "wait": waiting(ran, started)}, [(START, "first"), ("first", "wait")])

    async def call(state: State) -> dict[str, Any]:
        return {"log": (await child.ainvoke({}))["log"]}

    graph = build(State, {"outer": child if as_node else call}, [(START, "outer")], saver)
    cancelled_once(graph, started)

    async def again() -> Any:
        return await graph.ainvoke(None, thread_id="t")

    assert asyncio.run(again()) == {"log": ["first", "wait"]}
    assert ran.counts == {"first": 1, "wait": 2, "cleanup": 1}


def test_a_cancel_reaches_a_child_in_a_thread(saver: Saver, ran: Ran) -> None:
    """5.6: a sync node waits in child.invoke; the child's node sees runtime.cancelled."""
    started = threading.Event()

    def wait(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        started.set()
        pause = threading.Event()
        while not runtime.cancelled:
            pause.wait(0.002)
        ran("stopped")
        return {"log": ["late"]}

    child = build(State, {"wait": wait, "after": lambda s: ran("after")}, [(START, "wait"), ("wait", "after")])

    def call(state: State) -> dict[str, Any]:
        return {"log": child.invoke({})["log"]}

    cancelled_once(build(State, {"call": call}, [(START, "call")], saver), started)
    assert ran.counts == {"stopped": 1}


@pytest.mark.parametrize("beside", [False, True], ids=["lone", "beside another"])
def test_a_node_that_swallows_the_cancel_is_done_and_the_run_ends_all_the_same(
    saver: Saver, ran: Ran, beside: bool
) -> None:
    """5.3, 5.6: its result is kept; the next node does not start."""
    started = threading.Event()

    async def stubborn(state: State) -> dict[str, Any]:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ran("swallowed")
        return {"log": ["stubborn"]}

    nodes: dict[str, Any] = {"a": stubborn, "next": lambda s: ran("next")}
    edges = [(START, "a"), ("a", "next")]
    if beside:
        nodes["b"] = waiting(ran, threading.Event())
        edges.append((START, "b"))
    graph = build(State, nodes, edges, saver)
    cancelled_once(graph, started)
    assert ran.counts["swallowed"] == 1
    assert ran.counts["next"] == 0
    assert graph.invoke(None, thread_id="t")["log"][0] == "stubborn"
    assert ran.counts["swallowed"] == 1


def test_a_time_limit_around_ainvoke_ends_the_run(saver: Saver, ran: Ran) -> None:
    """5.6: asyncio.timeout sees its own cancel come back."""
    graph = build(State, {"wait": waiting(ran, threading.Event())}, [(START, "wait")], saver)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await graph.ainvoke({}, thread_id="t")
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr] # this is a task
        assert await graph.ainvoke(None, thread_id="t") == {"log": ["wait"]}

    asyncio.run(main())


def test_a_time_limit_around_a_child_is_the_nodes_own_matter(world: World, ran: Ran) -> None:
    """5.6: a node may give up on its child and go on."""
    child = build(State, {"wait": waiting(ran, threading.Event())}, [(START, "wait")])

    async def node(state: State) -> dict[str, Any]:
        try:
            async with asyncio.timeout(0.05):
                await child.ainvoke({})
        except TimeoutError:
            return {"log": ["gave up"]}
        raise AssertionError("the child cannot end")

    graph = build(State, {"a": node, "b": lambda s: {"log": ["b"]}}, [(START, "a"), ("a", "b")])
    assert world.invoke(graph, {}) == {"log": ["gave up", "b"]}


def test_a_cancelled_error_of_the_nodes_own_is_its_failure(world: World, saver: Saver) -> None:
    """5.6: nobody outside asked for it."""

    async def own(state: State) -> None:
        raise asyncio.CancelledError("mine")

    graph = build(State, {"a": own, "b": lambda s: None}, [(START, "a"), (START, "b")], saver)
    with pytest.raises(asyncio.CancelledError):
        world.invoke(graph, {}, thread_id="t")
    assert graph.get_state(thread_id="t").tasks[0].status == "failed"


def test_child_runs_begun_in_a_node_end_before_its_task(world: World, saver: Saver, ran: Ran) -> None:
    """5.9: after a return they are cancelled, so nothing of them goes on behind the run's back."""
    started = threading.Event()
    child = build(State, {"wait": waiting(ran, started)}, [(START, "wait")])
    kept: list[Any] = []

    async def node(state: State) -> dict[str, Any]:
        kept.append(asyncio.ensure_future(child.ainvoke({}, key="k")))
        await asyncio.to_thread(started.wait, WAIT)
        return {"log": ["returned"]}

    graph = build(State, {"a": node}, [(START, "a")], saver)
    assert world.invoke(graph, {}, thread_id="t") == {"log": ["returned"]}
    assert ran.counts["cleanup"] == 1


def test_a_question_of_a_child_in_another_branch_is_waited_for(world: World, saver: Saver) -> None:
    """5.9, 6.9: after a pause the other branch's child is waited for, and its question is reported as well."""
    child = build(State, {"q": lambda s: {"log": [interrupt("child?")]}}, [(START, "q")])
    kept: list[Any] = []

    async def node(state: State) -> dict[str, Any]:
        kept.append(asyncio.ensure_future(child.ainvoke({}, key="k")))
        await asyncio.sleep(0)
        interrupt("own?", key="own")
        return {}

    graph = build(State, {"a": node}, [(START, "a")], saver)
    paused = world.invoke(graph, {}, thread_id="t")
    assert sorted(i.value for i in paused["__interrupt__"]) == ["child?", "own?"]
    for task in kept:
        with pytest.raises((GraphInterrupt, RuntimeError)):
            raise task.exception() or RuntimeError


def below(levels: int, child: Pregel[Any]) -> Pregel[Any]:
    """A graph whose async node calls invoke, with so many levels of parallel sync nodes below before the child."""

    def call(state: State) -> dict[str, Any]:
        return {"log": child.invoke({}).get("log", [])}

    if levels:
        lower = build(State, {"m": call, "n": call}, [(START, "m"), (START, "n")])
        return below(levels - 1, lower)

    async def acall(state: State) -> dict[str, Any]:
        return call(state)

    return build(State, {"top": acall}, [(START, "top")])


@pytest.mark.parametrize("levels", [0, 1, 2])
def test_waiting_for_the_loop_that_one_blocks_is_refused(ran: Ran, levels: int) -> None:
    """11.2: an async node under invoke that calls invoke of a graph with async nodes is told to await ainvoke."""

    async def inner(state: State) -> None:
        ran("inner")

    child = build(State, {"a": inner, "b": inner}, [(START, "a"), (START, "b")])
    with pytest.raises(WrongLoopError, match="ainvoke"):
        below(levels, child).invoke({})
    assert ran.counts == {}


def test_an_async_router_below_a_blocked_loop_is_refused() -> None:
    """11.2: as async nodes are."""

    async def route(state: State) -> str:
        return END

    child = build(State, {"a": lambda s: None}, [(START, "a")], branches=[("a", route, [END])])
    with pytest.raises(WrongLoopError, match="ainvoke"):
        below(0, child).invoke({})
