"""Pauses that are named before the run (7.1, 7.2, 7.5 to 7.7): before and after nodes, at the boundary of a step."""

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

from pregel import (
    Command,
    GraphValidationError,
    InvalidAnswerError,
    InvalidRequestError,
    Saver,
    Send,
    SqliteSaver,
    interrupt,
)
from tests.helpers import END, START, Ran, World, build, ids


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    x: int


def logs(world: World, ran: Ran, *names: str) -> dict[str, Any]:
    def node(name: str) -> Callable[[State], Any]:
        def log(state: State) -> dict[str, Any]:
            ran(name)
            return {"log": [name]}

        return world.node(log)

    return {name: node(name) for name in names}


def chain(world: World, ran: Ran, saver: Saver, **options: Any) -> Any:
    return build(State, logs(world, ran, "a", "b", "c"), [(START, "a"), ("a", "b"), ("b", "c")], saver, **options)


def told(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the pauses of a result in the words of rule 7.5."""
    return [(i.node, i.when, i.next) for i in result.get("__interrupt__", [])]


def test_a_pause_before_a_node_is_at_the_boundary(world: World, saver: Saver, ran: Ran) -> None:
    """7.1: if a due task is listed, no task of the step starts, its siblings neither; resuming runs them all."""
    nodes = logs(world, ran, "a", "b", "c")
    graph = build(State, nodes, [(START, "a"), ("a", "b"), ("a", "c")], saver, interrupt_before=["c"])
    paused = world.invoke(graph, {}, thread_id="t")
    assert ran.take() == ["a"]
    assert paused["log"] == ["a"]
    assert told(paused) == [("c", "before", ("b", "c"))]
    assert world.invoke(graph, None, thread_id="t") == {"log": ["a", "b", "c"]}
    assert sorted(ran.take()) == ["b", "c"]


def test_a_pause_before_the_first_node_fires_once(world: World, saver: Saver, ran: Ran) -> None:
    """7.1: it fires on the first node too, and not again when resumed; on new input it fires again."""
    graph = chain(world, ran, saver, interrupt_before=["a"])
    assert told(world.invoke(graph, {"x": 1}, thread_id="t")) == [("a", "before", ("a",))]
    assert ran.take() == []
    assert world.state(graph, thread_id="t").next == ("a",)
    assert world.invoke(graph, None, thread_id="t") == {"x": 1, "log": ["a", "b", "c"]}
    assert told(world.invoke(graph, {}, thread_id="t")) == [("a", "before", ("a",))]


def test_the_edge_before_is_not_evaluated_again(world: World, saver: Saver, ran: Ran) -> None:
    """7.1: at a pause before n, n's incoming edge is not evaluated again, not by resuming nor by an edit."""

    def route(state: State) -> str:
        ran("router")
        return "b" if state.get("x", 0) < 5 else "c"

    nodes = logs(world, ran, "a", "b", "c")
    graph = build(State, nodes, [(START, "a")], saver, branches=[("a", route, ["b", "c"])], interrupt_before=["b"])
    world.invoke(graph, {"x": 1}, thread_id="t")
    world.update(graph, None, {"x": 9}, thread_id="t")
    assert ran.take() == ["a", "router"]
    assert world.invoke(graph, None, thread_id="t")["log"] == ["a", "b"]
    assert ran.take() == ["b"]


def test_a_pause_before_every_node(world: World, saver: Saver, ran: Ran) -> None:
    """7.1: "*" pauses before each step."""
    graph = chain(world, ran, saver, interrupt_before="*")
    result = world.invoke(graph, {}, thread_id="t")
    for name in "abc":
        assert told(result) == [(name, "before", (name,))]
        result = world.invoke(graph, None, thread_id="t")
    assert told(result) == []


def test_a_pause_before_a_packet(world: World, saver: Saver, ran: Ran) -> None:
    """7.1: packets are due tasks too; each one is named."""
    nodes = logs(world, ran, "b")
    route: Any = lambda s: [Send("b", {}), Send("b", {})]  # noqa: E731 - as a user writes it
    graph = build(State, nodes, [], saver, branches=[(START, route, ["b"])], interrupt_before=["b"])
    paused = world.invoke(graph, {}, thread_id="t")
    assert told(paused) == [("b", "before", ("b",))] * 2
    assert len(set(ids(paused))) == 2
    assert world.invoke(graph, None, thread_id="t") == {"log": ["b", "b"]}


def test_a_pause_after_a_node_has_its_update(world: World, saver: Saver, ran: Ran) -> None:
    """7.2: n ran and its update is merged, those of its siblings too."""
    nodes = logs(world, ran, "a", "b", "c")
    graph = build(State, nodes, [(START, "a"), (START, "b"), ("a", "c")], saver, interrupt_after=["a"])
    paused = world.invoke(graph, {}, thread_id="t")
    assert paused["log"] == ["a", "b"]
    assert told(paused) == [("a", "after", ("c",))]
    assert world.invoke(graph, None, thread_id="t") == {"log": ["a", "b", "c"]}
    assert ran.counts == {"a": 1, "b": 1, "c": 1}


def test_a_pause_after_the_last_node(world: World, saver: Saver, ran: Ran) -> None:
    """7.2: also on the last node; resuming ends the run without running anything."""
    graph = chain(world, ran, saver, interrupt_after=["c"])
    paused = world.invoke(graph, {}, thread_id="t")
    assert told(paused) == [("c", "after", ())]
    assert world.state(graph, thread_id="t").status == "paused"
    ran.take()
    assert world.invoke(graph, None, thread_id="t") == {"log": ["a", "b", "c"]}
    assert ran.take() == []
    assert world.state(graph, thread_id="t").status == "done"


def test_a_pause_after_every_lap_of_a_loop(world: World, saver: Saver, ran: Ran) -> None:
    """7.2: a node that leads to itself pauses on every lap."""
    nodes = logs(world, ran, "a")
    route: Any = lambda s: "a" if len(s["log"]) < 3 else END  # noqa: E731 - as a user writes it
    graph = build(State, nodes, [(START, "a")], saver, branches=[("a", route, ["a", END])], interrupt_after=["a"])
    result = world.invoke(graph, {}, thread_id="t")
    for lap in range(1, 4):
        assert result["log"] == ["a"] * lap
        assert told(result) == [("a", "after", ("a",) if lap < 3 else ())]
        result = world.invoke(graph, None, thread_id="t")
    assert result == {"log": ["a", "a", "a"]}


def test_the_route_after_a_node_is_fixed_at_the_pause(world: World, saver: Saver, ran: Ran) -> None:
    """7.3: without `interrupt_before_edge` an edit at the pause changes the state, not the route."""
    nodes = logs(world, ran, "a", "b", "c")
    route: Any = lambda s: "c" if s.get("x") else "b"  # noqa: E731 - as a user writes it
    graph = build(State, nodes, [(START, "a")], saver, branches=[("a", route, ["b", "c"])], interrupt_after=["a"])
    world.invoke(graph, {}, thread_id="t")
    world.update(graph, None, {"x": 1}, thread_id="t")
    assert [i.when for i in world.state(graph, thread_id="t").interrupts] == ["after"]
    assert world.invoke(graph, None, thread_id="t") == {"x": 1, "log": ["a", "b"]}


# --- 7.5, 7.6 -----------------------------------------------------------------------------------------------------


def test_several_reasons_are_one_pause(world: World, saver: Saver, ran: Ran) -> None:
    """7.5, 6.5: one pause and one resume; the list names all with node, when and next, and so does the state."""
    options: dict[str, Any] = {"interrupt_after": ["a"], "interrupt_before": ["b", "c"]}
    nodes = logs(world, ran, "a", "b", "c")
    graph = build(State, nodes, [(START, "a"), ("a", "b"), ("a", "c")], saver, **options)
    paused = world.invoke(graph, {}, thread_id="t")
    following = ("b", "c")
    assert told(paused) == [("a", "after", following), ("b", "before", following), ("c", "before", following)]
    state = world.state(graph, thread_id="t")
    assert [i.as_dict() for i in state.interrupts] == [i.as_dict() for i in paused["__interrupt__"]]
    assert len(set(ids(paused))) == 3
    assert told(world.invoke(graph, None, thread_id="t")) == []


def test_a_static_pause_is_no_question(world: World, saver: Saver, ran: Ran) -> None:
    """6.6: static pauses are not counted and not answerable, by value or by their id."""
    graph = chain(world, ran, saver, interrupt_before=["b"])
    paused = world.invoke(graph, {}, thread_id="t")
    head = world.state(graph, thread_id="t").config
    for answers in ({ids(paused)[0]: 1}, {}):
        with pytest.raises(InvalidAnswerError):
            world.resume(graph, answers=answers, thread_id="t")
    with pytest.raises(InvalidAnswerError):
        world.invoke(graph, Command(resume=1), thread_id="t")
    assert world.state(graph, thread_id="t").config == head


def test_recover_stops_at_a_recorded_pause(world: World, saver: Saver, ran: Ran) -> None:
    """7.6: `recover` stops at a recorded pause, however often; the caller's `invoke(None)` passes it."""
    graph = chain(world, ran, saver, interrupt_before=["b"])
    paused = world.invoke(graph, {}, thread_id="t")
    head = world.state(graph, thread_id="t").config
    for _ in range(2):
        assert world.recover(graph, thread_id="t") == paused
    assert world.state(graph, thread_id="t").config == head
    assert world.invoke(graph, None, thread_id="t") == {"log": ["a", "b", "c"]}
    assert world.recover(graph, thread_id="t") == {"log": ["a", "b", "c"]}


def test_recover_goes_on_and_makes_the_next_pause(world: World, saver: Saver, ran: Ran) -> None:
    """7.6: `recover` goes on with unfinished work, and makes a pause that was not recorded yet."""

    def node(state: State) -> dict[str, Any]:
        ran("b")
        if ran.counts["b"] == 1:
            raise ConnectionError("like a crash")
        return {"log": ["b"]}

    nodes = logs(world, ran, "a", "c") | {"b": world.node(node)}
    graph = build(State, nodes, [(START, "a"), ("a", "b"), ("b", "c")], saver, interrupt_before=["c"])
    with pytest.raises(ConnectionError):
        world.invoke(graph, {}, thread_id="t")
    assert told(world.recover(graph, thread_id="t")) == [("c", "before", ("c",))]
    assert told(world.recover(graph, thread_id="t")) == [("c", "before", ("c",))]
    assert ran.counts == {"a": 1, "b": 2}


def test_a_passed_pause_does_not_come_back_after_an_error(world: World, saver: Saver, ran: Ran) -> None:
    """7.6, 7.1: once passed, a pause stays passed when its node fails and is run again."""

    def node(state: State) -> dict[str, Any]:
        ran("b")
        if ran.counts["b"] == 1:
            raise ConnectionError("once")
        return {"log": ["b"]}

    nodes = {"b": world.node(node)}
    graph = build(State, nodes, [(START, "b")], saver, interrupt_before=["b"])
    world.invoke(graph, {}, thread_id="t")
    with pytest.raises(ConnectionError):
        world.invoke(graph, None, thread_id="t")
    assert world.recover(graph, thread_id="t") == {"log": ["b"]}


def test_a_question_behind_a_static_pause(world: World, saver: Saver, ran: Ran) -> None:
    """7.6: answering passes no more than the recorded pauses; a question asked after one is its own pause."""
    nodes = {"a": world.node(lambda s: {"log": [interrupt("?")]}), **logs(world, ran, "b")}
    graph = build(State, nodes, [(START, "a"), ("a", "b")], saver, interrupt_before=["a"], interrupt_after=["a", "b"])
    assert told(world.invoke(graph, {}, thread_id="t")) == [("a", "before", ("a",))]
    assert told(world.invoke(graph, None, thread_id="t")) == [("a", "inside", ("a",))]
    assert told(world.resume(graph, 1, thread_id="t")) == [("a", "after", ("b",))]
    assert told(world.invoke(graph, None, thread_id="t")) == [("b", "after", ())]
    assert world.invoke(graph, None, thread_id="t") == {"log": [1, "b"]}


def test_a_pause_is_passed_in_another_engine(world: World, tmp_path: Any, ran: Ran) -> None:
    """7.6: a pause is recorded in the commit that reaches it: another engine on the same file goes on from it."""
    with SqliteSaver(tmp_path / "runs.db") as saver:
        paused = world.invoke(chain(world, ran, saver, interrupt_after=["a"]), {}, thread_id="t")
    with SqliteSaver(tmp_path / "runs.db") as saver:
        graph = chain(world, ran, saver, interrupt_after=["a"])
        assert world.recover(graph, thread_id="t") == paused
        assert world.invoke(graph, None, thread_id="t") == {"log": ["a", "b", "c"]}


# --- 7.7 ----------------------------------------------------------------------------------------------------------


def test_the_lists_of_a_call_replace_the_compiled_ones(world: World, saver: Saver, ran: Ran) -> None:
    """7.7: per-call lists hold for that call; an empty one switches off; the other kind stays as compiled."""
    graph = chain(world, ran, saver, interrupt_before=["b"], interrupt_after=["c"])
    paused = world.invoke(graph, {}, thread_id="t", interrupt_before=["c"])
    assert told(paused) == [("c", "before", ("c",))]
    assert told(world.invoke(graph, None, thread_id="t")) == [("c", "after", ())]
    assert told(world.invoke(graph, {}, thread_id="u", interrupt_before=[])) == [("c", "after", ())]
    assert told(world.invoke(graph, {}, thread_id="v", interrupt_before="*")) == [("a", "before", ("a",))]
    off: dict[str, Any] = {"interrupt_before": [], "interrupt_after": []}
    assert told(world.invoke(graph, {}, thread_id="w", **off)) == []


def test_children_keep_their_lists(world: World, saver: Saver, ran: Ran) -> None:
    """7.7, 8.6: the lists of a call are the root's; a child pauses by its own and is not asked for its names."""
    child = build(State, logs(world, ran, "b", "c"), [(START, "b"), ("b", "c")], interrupt_before=["c"])
    graph = build(State, {"b": child}, [(START, "b")], saver)
    paused = world.invoke(graph, {}, thread_id="t", interrupt_before=[], interrupt_after=["b"])
    assert told(paused) == [("c", "before", ("c",))]
    assert paused["__interrupt__"][0].namespace == ("b@1",)
    assert told(world.invoke(graph, None, thread_id="t", interrupt_after=["b"])) == [("b", "after", ())]
    assert ran.order == ["b", "c"]


def test_names_that_name_nothing_are_refused(world: World, saver: Saver, ran: Ran) -> None:
    """1.5, 7.7: both lists are checked, at compile and per call, each for itself."""
    for kind in ("interrupt_before", "interrupt_after"):
        with pytest.raises(GraphValidationError, match="nope"):
            chain(world, ran, saver, **{kind: ["nope"]})
        with pytest.raises(InvalidRequestError, match="nope"):
            world.invoke(chain(world, ran, saver), {}, thread_id="t", **{kind: ["nope"]})
    assert list(saver.threads()) == []
