"""A first look at everything at once."""

import operator
from typing import Annotated, Any, TypedDict

from pregel import Saver, interrupt
from tests.helpers import START, Ran, World, build


class State(TypedDict, total=False):
    x: int
    log: Annotated[list[str], operator.add]


def test_a_pause_in_one_of_two_parallel_nodes_keeps_its_sibling(world: World, saver: Saver, ran: Ran) -> None:
    """5.2, 6.4, 6.7: B asks, C completes; the answer runs B alone."""

    def ask(state: State) -> dict[str, Any]:
        ran("b")
        return {"log": ["b" + interrupt("?")]}

    def other(state: State) -> dict[str, Any]:
        ran("c")
        return {"log": ["c"]}

    nodes = {"b": world.node(ask), "c": world.node(other), "d": world.node(lambda s: {"log": ["d"]})}
    graph = build(State, nodes, [(START, "b"), (START, "c"), (["b", "c"], "d")], saver)
    paused = world.invoke(graph, {"x": 1}, thread_id="t")
    assert [i.id for i in paused["__interrupt__"]] == ["b@1#0"]
    ran.take()
    assert world.resume(graph, "!", thread_id="t") == {"x": 1, "log": ["b!", "c", "d"]}
    assert ran.take() == ["b"]
