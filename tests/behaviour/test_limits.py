"""max_concurrency counts executing node bodies at every nesting, and no setting deadlocks (rule 11.2)."""

import asyncio
import contextvars
import operator
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypedDict

import pytest

from pregel import InvalidRequestError, Pregel, Saver, Send
from tests.helpers import END, START, World, build

GIVE_UP = 8.0
VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")


class State(TypedDict, total=False):
    n: int
    log: Annotated[list[str], operator.add]


class Meter:
    """Counts bodies that execute at once. A body that waits for a child is not executing: only leaves are measured."""

    def __init__(self) -> None:
        self.now = self.most = self.total = 0
        self._lock = threading.Lock()

    @contextmanager
    def inside(self) -> Iterator[None]:
        with self._lock:
            self.now += 1
            self.total += 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self._lock:
                self.now -= 1

    def leaf(self, state: State) -> dict[str, Any]:
        with self.inside():
            threading.Event().wait(0.002)  # long enough that bodies would meet
        return {"log": ["leaf"]}

    async def aleaf(self, state: State) -> dict[str, Any]:
        with self.inside():
            for _ in range(50):  # turns of the loop in which bodies would meet
                await asyncio.sleep(0)
        return {"log": ["leaf"]}


@pytest.fixture
def meter() -> Meter:
    return Meter()


def bounded(world: World, graph: Pregel[Any], **options: Any) -> dict[str, Any]:
    """Invoke, and fail instead of hanging."""
    found: list[Any] = []

    def call() -> None:
        try:
            found.append(world.invoke(graph, {"n": 1}, **options))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(GIVE_UP)
    assert found, "the run hangs"
    if isinstance(found[0], BaseException):
        raise found[0]
    result: dict[str, Any] = found[0]
    return result


def fan(leaf: Any, other: Any, width: int, saver: Saver | None = None) -> Pregel[Any]:
    """A graph of `width` parallel nodes, taken in turns from two bodies."""
    nodes = {f"n{i}": leaf if i % 2 else other for i in range(width)}
    return build(State, nodes, [(START, name) for name in nodes], saver)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_sync_and_async_nodes_are_counted_together(world: World, meter: Meter, limit: int) -> None:
    """11.2: ten nodes of both kinds, never more at once than allowed."""
    result = bounded(world, fan(meter.leaf, meter.aleaf, 10), max_concurrency=limit)
    assert result["log"] == ["leaf"] * 10
    assert meter.most <= limit
    assert meter.total == 10


def test_the_limit_may_stand_in_the_config(world: World, meter: Meter) -> None:
    """11.1, 11.2: `config["max_concurrency"]` is the same thing."""
    bounded(world, fan(meter.leaf, meter.aleaf, 6), config={"max_concurrency": 1})
    assert meter.most == 1


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "2"])
def test_a_limit_that_is_no_count_is_refused(world: World, meter: Meter, limit: Any) -> None:
    """11.2: before anything runs."""
    with pytest.raises(InvalidRequestError, match="max_concurrency"):
        world.invoke(fan(meter.leaf, meter.aleaf, 2), {"n": 1}, max_concurrency=limit)
    assert meter.total == 0


def test_without_a_limit_async_nodes_all_run_at_once(world: World) -> None:
    """11.2: a hundred async nodes that wait for each other."""
    arrived: set[int] = set()
    everyone: list[asyncio.Event] = []

    def meet(index: int) -> Any:
        async def node(state: State) -> None:
            if not everyone:
                everyone.append(asyncio.Event())
            arrived.add(index)
            if len(arrived) == 100:
                everyone[0].set()
            await asyncio.wait_for(everyone[0].wait(), 5)

        return node

    nodes = {f"n{i}": meet(i) for i in range(100)}
    bounded(world, build(State, nodes, [(START, name) for name in nodes]))
    assert len(arrived) == 100


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("depth", [1, 3])
def test_graphs_as_nodes_share_the_limit_with_their_parents(world: World, meter: Meter, limit: int, depth: int) -> None:
    """11.2: fan-outs of graphs that fan out again, at any depth."""
    graph = fan(meter.leaf, meter.aleaf, 4)
    for _ in range(depth):
        graph = fan(graph, graph, 2)
    result = bounded(world, graph, max_concurrency=limit)
    assert len(result["log"]) == 4 * 2**depth
    assert meter.most <= limit


@pytest.mark.parametrize("lone", [True, False], ids=["lone child node", "parallel child nodes"])
def test_sync_nodes_that_invoke_children_share_the_limit(world: World, saver: Saver, meter: Meter, lone: bool) -> None:
    """11.2: sync nodes calling child.invoke, three deep, at a limit of one."""
    graph = fan(meter.leaf, meter.leaf, 1 if lone else 3)
    for level in range(3):
        graph = calling(graph, 2 if level else 3, saver if level == 2 else None)
    result = bounded(world, graph, max_concurrency=1, thread_id="t")
    assert len(result["log"]) == 3 * 2 * 2 * (1 if lone else 3)
    assert meter.most == 1


def calling(child: Pregel[Any], width: int, saver: Saver | None) -> Pregel[Any]:
    def node(state: State) -> dict[str, Any]:
        return {"log": child.invoke({"n": 1})["log"]}

    return fan(node, node, width, saver)


@pytest.mark.parametrize("lone", [True, False], ids=["lone child node", "parallel child nodes"])
def test_async_nodes_that_await_children_share_the_limit(world: World, saver: Saver, meter: Meter, lone: bool) -> None:
    """11.2: async nodes awaiting child.ainvoke, three deep, at a limit of one."""
    graph = fan(meter.aleaf, meter.leaf, 1 if lone else 3)
    for level in range(3):
        graph = awaiting(graph, 2 if level else 3, saver if level == 2 else None)
    result = bounded(world, graph, max_concurrency=1, thread_id="t")
    assert len(result["log"]) == 3 * 2 * 2 * (1 if lone else 3)
    assert meter.most == 1


def awaiting(child: Pregel[Any], width: int, saver: Saver | None) -> Pregel[Any]:
    async def node(state: State) -> dict[str, Any]:
        return {"log": (await child.ainvoke({"n": 1}))["log"]}

    return fan(node, node, width, saver)


@pytest.mark.parametrize("width", [1, 3], ids=["lone parent", "parallel parents"])
@pytest.mark.parametrize("inner", [1, 2], ids=["lone child node", "parallel child nodes"])
@pytest.mark.parametrize("limit", [1, 2])
def test_gathered_children_share_the_limit(world: World, meter: Meter, width: int, inner: int, limit: int) -> None:
    """11.2: children called at once from one async node count like any others, and all of them get their turn."""
    child = fan(meter.aleaf, meter.leaf, inner)

    async def gather(state: State) -> dict[str, Any]:
        results = await asyncio.gather(*[child.ainvoke({"n": 1}, key=str(i)) for i in range(5)])
        return {"log": [line for result in results for line in result["log"]]}

    result = bounded(world, fan(gather, gather, width), max_concurrency=limit)
    assert len(result["log"]) == width * inner * 5
    assert meter.most <= limit


@pytest.mark.parametrize("limit", [1, 3, None])
def test_a_hundred_packets_to_a_graph_finish_at_any_limit(world: World, meter: Meter, limit: int | None) -> None:
    """8.4, 11.2: Send fan-outs of children, each with nodes of both kinds, more than there are threads."""
    child = fan(meter.leaf, meter.aleaf, 2)

    def spread(state: State) -> list[Send]:
        return [Send("child", {"n": i}) for i in range(100)]

    graph = build(
        State,
        {"a": lambda s: None, "child": child},
        [(START, "a"), ("child", END)],
        branches=[("a", spread, ["child"])],
    )
    result = bounded(world, graph, max_concurrency=limit)
    assert len(result["log"]) == 200
    assert limit is None or meter.most <= limit


def test_sync_nodes_nested_deeper_than_there_are_threads_finish(world: World, meter: Meter) -> None:
    """11.2: a hundred parallel sync nodes, each of which waits for a child that fans out again."""
    graph = calling(calling(fan(meter.leaf, meter.leaf, 2), 2, None), 100, None)
    result = bounded(world, graph)
    assert len(result["log"]) == 400


def test_an_async_node_started_by_a_freed_slot_sees_the_callers_context(world: World) -> None:
    """11.2: whoever gives the slot back, the context of a node is the caller's."""
    seen: list[str] = []

    def note(state: State) -> None:
        seen.append(VARIABLE.get())

    async def anote(state: State) -> None:
        seen.append(VARIABLE.get())

    nodes = {"a": note, "b": anote, "c": note, "d": anote}
    graph = build(State, nodes, [(START, name) for name in nodes])

    def call() -> None:
        VARIABLE.set("mine")
        world.invoke(graph, {"n": 1}, max_concurrency=1)

    contextvars.copy_context().run(call)
    assert seen == ["mine"] * 4
