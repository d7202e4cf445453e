"""A graph that changed while a thread was paused (9.7): it goes on, or says what is missing; it never guesses."""

import operator
from typing import Annotated, Any, TypedDict

import pytest

from pregel import GraphChangedError, Saver, Send, interrupt
from tests.helpers import START, World, build


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    x: int


class More(State, total=False):
    extra: int


class Fewer(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


def asking(world: World, saver: Saver, name: str = "a", state: type = State, **nodes: Any) -> Any:
    ask = world.node(lambda s: {"log": [interrupt("?")]})
    edges = [(START, name), *((name, other) for other in nodes)]
    return build(state, {name: ask, **nodes}, edges, saver)


def attempts(world: World, graph: Any) -> list[Any]:
    return [
        lambda: world.resume(graph, 1, thread_id="t"),
        lambda: world.invoke(graph, None, thread_id="t"),
        lambda: world.recover(graph, thread_id="t"),
        lambda: world.update(graph, None, {"log": [1]}, thread_id="t"),
    ]


def test_a_node_that_is_gone_is_refused_with_its_name(world: World, saver: Saver) -> None:
    """9.7: nodes gone that the checkpoint needs are refused with the list, nothing is written, and it can be undone."""
    graph = asking(world, saver)
    world.invoke(graph, {"x": 1}, thread_id="t")
    head = world.state(graph, thread_id="t").config
    for call in attempts(world, asking(world, saver, "renamed")):
        with pytest.raises(GraphChangedError, match="'a'") as caught:
            call()
        assert caught.value.missing == ("node 'a'",)
    assert world.state(graph, thread_id="t").config == head
    assert world.resume(graph, 1, thread_id="t") == {"x": 1, "log": [1]}


def test_a_channel_that_is_gone_is_refused_with_its_name(world: World, saver: Saver) -> None:
    """9.7: channels gone that the checkpoint holds are refused with the list."""
    world.invoke(asking(world, saver), {"x": 1}, thread_id="t")
    for call in attempts(world, asking(world, saver, state=Fewer)):
        with pytest.raises(GraphChangedError, match="'x'") as caught:
            call()
        assert caught.value.missing == ("channel 'x'",)


def test_the_target_of_a_packet_that_is_gone_is_refused(world: World, saver: Saver) -> None:
    """9.7: so is the node of a packet that is due."""
    route: Any = lambda s: [Send("a", {}), Send("a", {})]  # noqa: E731 - as a user writes it
    nodes = {"a": world.node(lambda s: {"log": [interrupt("?")]})}
    world.invoke(build(State, nodes, [], saver, branches=[(START, route, ["a"])]), {}, thread_id="t")
    with pytest.raises(GraphChangedError, match="'a'"):
        world.invoke(asking(world, saver, "b"), None, thread_id="t")


def test_additions_are_fine(world: World, saver: Saver) -> None:
    """9.7: new nodes, edges and channels are fine, and take part from here on."""
    world.invoke(asking(world, saver), {"x": 1}, thread_id="t")
    graph = asking(world, saver, state=More, b=world.node(lambda s: {"log": ["b"], "extra": 2}))
    assert [i.value for i in world.state(graph, thread_id="t").interrupts] == ["?"]
    assert world.resume(graph, 1, thread_id="t") == {"x": 1, "log": [1, "b"], "extra": 2}


def test_a_node_gone_that_nobody_waits_for_is_fine(world: World, saver: Saver) -> None:
    """9.7: only what the checkpoint needs counts: a finished node may go, also on a finished thread."""
    nodes = {"a": world.node(lambda s: {"x": 2}), "b": world.node(lambda s: {"log": [interrupt("?")]})}
    world.invoke(build(State, nodes, [(START, "a"), ("a", "b")], saver), {}, thread_id="t")
    graph = asking(world, saver, "b")
    assert world.resume(graph, 1, thread_id="t") == {"x": 2, "log": [1]}
    assert world.invoke(asking(world, saver, "c"), None, thread_id="t") == {"x": 2, "log": [1]}
