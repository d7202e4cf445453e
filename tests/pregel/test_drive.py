"""The two drivers: the same effects in the same order, and short cuts that nobody can observe."""

import asyncio
import contextvars
import operator
import threading
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

from pregel import InMemorySaver, Send, drive, interrupt
from pregel.effects import Effect, Next, Start
from tests.helpers import START, Ran, World, build


class State(TypedDict, total=False):
    x: int
    log: Annotated[list[str], operator.add]


class Turns:
    """Lets tasks end one after the other in a given order, each only once the driver has recorded the one before."""

    def __init__(self, order: list[str]) -> None:
        self.gates = {name: threading.Event() for name in order}
        self.order = list(order)
        self.effects: list[str] = []

    def watch(self, effect: Effect) -> None:
        self.effects.append(type(effect).__name__)
        if isinstance(effect, (Start, Next)):  # one at a time: each ending is taken in before the next task may end
            self.open_next()

    def open_next(self) -> None:
        for name in self.order[:1]:
            self.gates[name].set()
            self.order.remove(name)

    def pass_by(self, name: str) -> None:
        assert self.gates[name].wait(10), f"{name} never had its turn"


def _effects(world: World, order: list[str], monkeypatch: pytest.MonkeyPatch, ends: Callable[[str], Any]) -> list[str]:
    turns = Turns(order)

    def node(name: str) -> Any:
        def run(state: State) -> Any:
            turns.pass_by(name)
            return ends(name)

        return run  # a thread in both worlds, so that the order can be scripted

    nodes: dict[str, Any] = {name: node(name) for name in sorted(order)}
    edges = [(START, name) for name in nodes] + [(sorted(nodes), "z")]
    graph = build(State, {**nodes, "z": lambda s: {"log": ["z"]}}, edges, InMemorySaver())
    monkeypatch.setattr(drive, "watch", turns.watch)
    try:
        world.invoke(graph, {}, thread_id="t")
    except ValueError:
        turns.effects.append("raised")
    finally:
        monkeypatch.setattr(drive, "watch", None)
    return turns.effects


def _ask(name: str) -> Any:
    return {"log": [interrupt("?")]} if name == "b" else {"log": [name]}


@pytest.mark.parametrize("ends", [lambda name: {"log": [name]}, _ask])
@pytest.mark.parametrize("order", [["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"]])
def test_both_drivers_perform_the_same_effects_in_the_same_order(
    monkeypatch: pytest.MonkeyPatch, order: list[str], ends: Callable[[str], Any]
) -> None:
    sync, async_ = (_effects(World(name), order, monkeypatch, ends) for name in ("sync", "async"))
    assert sync == async_
    assert sync.count("Start") >= 1
    assert sync[:2] == ["Load", "Put"]


def test_a_lone_sync_task_runs_in_the_callers_thread_and_under_ainvoke_on_another() -> None:
    seen: list[int] = []
    graph = build(State, {"a": lambda s: seen.append(threading.get_ident())}, [(START, "a")])
    graph.invoke({})
    asyncio.run(graph.ainvoke({}))
    assert seen[0] == threading.get_ident() != seen[1]


def test_a_lone_async_task_needs_no_asyncio_task_of_its_own() -> None:
    seen: list[Any] = []

    async def node(state: State) -> None:
        seen.append(asyncio.current_task())

    graph = build(State, {"a": node}, [(START, "a")])

    async def main() -> None:
        await graph.ainvoke({})
        seen.append(asyncio.current_task())

    asyncio.run(main())
    assert seen[0] is seen[1]


def test_every_task_sees_the_callers_context_and_changes_only_its_own(world: World) -> None:
    var: contextvars.ContextVar[int] = contextvars.ContextVar("var", default=0)
    seen: list[int] = []

    def node(state: State) -> None:
        seen.append(var.get())
        var.set(99)

    nodes = {name: world.node(node) for name in "abc"}
    graph = build(State, nodes, [(START, "a"), ("a", "b"), ("a", "c")])
    token = var.set(7)
    try:
        world.invoke(graph, {})
        assert var.get() == 7
    finally:
        var.reset(token)
    assert seen == [7, 7, 7]


def test_a_graph_shared_by_many_threads_keeps_their_runs_apart(ran: Ran) -> None:
    """A compiled graph is immutable (rule 1.4)."""
    graph = build(
        State,
        {"w": lambda n: {"log": [str(n)]}},
        [],
        InMemorySaver(),
        branches=[(START, lambda s: [Send("w", s["x"] * 10 + i) for i in range(5)], ["w"])],
    )
    results: dict[int, Any] = {}

    def run(number: int) -> None:
        results[number] = graph.invoke({"x": number}, thread_id=str(number))["log"]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == {number: [str(number * 10 + i) for i in range(5)] for number in range(8)}
