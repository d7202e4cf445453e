"""What people count on when joins, loops, packets and nested graphs pause (5.2, 6.6 to 6.8, 7.1, 7.2, 7.8, 8)."""

import asyncio
import operator
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

from pregel import (
    Command,
    GraphInterrupt,
    InvalidAnswerError,
    Saver,
    Send,
    SqliteSaver,
    get_runtime,
    interrupt,
    pause_between,
)
from tests.behaviour.calling import Call, calling, noted
from tests.helpers import END, START, Ran, World, build, ids

WAIT = 10
Calls = Generator[Call, Any, Any]


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    x: int


class Child(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    x: int
    own: Annotated[list[str], operator.add]


def marks(world: World, ran: Ran, *names: str) -> dict[str, Any]:
    """Return nodes that log their names."""
    return {name: world.node(lambda s, name=name: noted(ran, name, {"log": [name]})) for name in names}


def asks(world: World, ran: Ran, name: str) -> Any:
    """Return a node that asks its name and logs the answer."""

    def node(state: State) -> dict[str, Any]:
        ran(name)
        return {"log": [interrupt(name)]}

    return world.node(node)


def told(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(i.node, i.when, i.next) for i in result.get("__interrupt__", [])]


def the_call(child: Any, ran: Ran, name: str) -> Callable[[Any], Calls]:
    """Return the body of a function node that calls a child with its own input."""

    def body(state: Any) -> Calls:
        ran(name)
        return {"log": (yield Call(child, {key: value for key, value in state.items() if key == "x"}))["log"]}

    return body


@contextmanager
def reopened(saver: Saver, folder: Path) -> Iterator[Saver]:
    """Give the saver as another process has it: for a file, opened anew."""
    if isinstance(saver, SqliteSaver):
        with SqliteSaver(folder / "runs.db") as again:
            yield again
    else:
        yield saver


# --- siblings and joins ----------------------------------------------------------------------------------------------


def test_siblings_messages_outlive_the_pause(world: World, saver: Saver, tmp_path: Path, ran: Ran) -> None:
    """5.2, 2.5: b asks first, a and c finish and are kept; then b alone runs again, and all lead on together, once."""
    asked: Any = asyncio.Event() if world.is_async else threading.Event()

    def waits(name: str) -> Callable[[State], Any]:
        def node(state: State) -> dict[str, Any]:
            assert asked.wait(WAIT)
            return noted(ran, name, {"log": [name]})

        async def anode(state: State) -> dict[str, Any]:
            await asyncio.wait_for(asked.wait(), WAIT)
            return noted(ran, name, {"log": [name]})

        return anode if world.is_async else node

    def b(state: State) -> dict[str, Any]:
        ran("b")
        try:
            return {"log": [interrupt("?")]}
        finally:
            asked.set()

    def graph(saver: Saver) -> Any:
        nodes = {"a": waits("a"), "b": world.node(b), "c": waits("c"), **marks(world, ran, "a2", "b2", "c2", "join")}
        edges = [edge for n in "abc" for edge in ((START, n), (n, f"{n}2"))]
        return build(State, nodes, [*edges, (["a", "b", "c"], "join")], saver)

    assert ids(world.invoke(graph(saver), {}, thread_id="t")) == ["b@1#0"]
    assert ran.order[0] == "b"
    assert ran.counts == {"a": 1, "b": 1, "c": 1}
    ran.take()
    with reopened(saver, tmp_path) as again:
        result = world.resume(graph(again), "yes", thread_id="t")
    assert result == {"log": ["a", "yes", "c", "a2", "b2", "c2", "join"]}
    assert ran.counts == dict.fromkeys(["b", "a2", "b2", "c2", "join"], 1)


@pytest.mark.parametrize("entry", ["b", "slow"], ids=["filled in one step", "half filled a step before"])
def test_a_join_half_filled_at_the_pause_fires_once(
    world: World, saver: Saver, tmp_path: Path, entry: str, ran: Ran
) -> None:
    """2.5, 2.6: a has filled its half, b asks; after each answer, in another process, the join fires once a lap."""
    laps = 3

    def graph(saver: Saver) -> Any:
        nodes = {**marks(world, ran, "a", "slow"), "b": asks(world, ran, "b"), **marks(world, ran, "join")}
        edges = [(START, "a"), (START, entry), ("slow", "b"), (["a", "b"], "join")]
        route: Any = lambda s: ["a", entry] if s["log"].count("join") < laps else END  # noqa: E731 - as a user writes it
        return build(State, nodes, edges, saver, branches=[("join", route, ["a", "slow", "b", END])])

    result = world.invoke(graph(saver), {}, thread_id="t")
    for lap in range(laps):
        assert [i.value for i in result["__interrupt__"]] == ["b"]
        assert (ran.counts["a"], ran.counts["b"], ran.counts["join"]) == (lap + 1, 2 * lap + 1, lap)
        with reopened(saver, tmp_path) as again:
            result = world.resume(graph(again), lap, thread_id="t")
    slow = ["slow"] if entry == "slow" else []
    assert result == {"log": [item for lap in range(laps) for item in ("a", *slow, lap, "join")]}
    assert (ran.counts["a"], ran.counts["b"], ran.counts["join"]) == (laps, 2 * laps, laps)


# --- answers ---------------------------------------------------------------------------------------------------------


def test_an_id_that_is_nearly_right_is_refused(world: World, saver: Saver, ran: Ran) -> None:
    """6.6, 8.2: of a nested question only its whole id counts; anything else writes and runs nothing."""
    middle = build(State, {"m": build(State, {"ask": asks(world, ran, "?")}, [(START, "ask")])}, [(START, "m")])
    graph = build(State, {"p": middle}, [(START, "p")], saver)
    paused = world.invoke(graph, {}, thread_id="t")
    right = "p@1|m@1|ask@1#0"
    assert ids(paused) == [right]
    history = world.history(graph, thread_id="t")
    near = ["ask@1#0", "m@1|ask@1#0", "p@1#0", "p@1", "p@1|m@1|ask@1", f"{right}0", f" {right}", right.upper(), ""]
    for wrong in near:
        with pytest.raises(InvalidAnswerError, match="ask@1#0"):
            world.resume(graph, answers={wrong: "lost"}, thread_id="t")
        with pytest.raises(InvalidAnswerError, match="ask@1#0"):
            world.invoke(graph, Command(resume={right: "lost", wrong: "lost"}), thread_id="t")
    assert world.history(graph, thread_id="t") == history
    assert world.state(graph, thread_id="t").interrupts == tuple(paused["__interrupt__"])
    assert ran.counts == {"?": 1}
    assert world.resume(graph, answers={right: "yes"}, thread_id="t") == {"log": ["yes"]}


@pytest.mark.parametrize("empty", ["", {}, None, False, 0, []], ids=repr)
def test_an_empty_answer_is_an_answer_everywhere(world: World, saver: Saver, empty: Any) -> None:
    """6.6, 6.8: to a nested question, a keyed one and a returned one too, whose node finds it in `answers`."""

    def returns(state: State) -> Any:
        answers = get_runtime().answers
        return {"log": [answers[0]]} if 0 in answers else GraphInterrupt("?")

    nodes = {"keyed": world.node(lambda s: {"log": [interrupt("?", key="k")]}), "returns": world.node(returns)}
    child = build(State, nodes, [(START, "keyed"), ("keyed", "returns")])
    graph = build(State, {"p": child}, [(START, "p")], saver)
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["p@1|keyed@1#=k"]
    assert [i.node for i in world.resume(graph, empty, thread_id="t")["__interrupt__"]] == ["returns"]
    result = world.invoke(graph, Command(resume=empty), thread_id="t")
    assert result == {"log": [empty, empty]}
    assert [type(item) for item in result["log"]] == [type(empty)] * 2


# --- layers ----------------------------------------------------------------------------------------------------------


def layers(world: World, ran: Ran, depth: int, called: Callable[[int], bool], saver: Saver) -> tuple[Any, list[Any]]:
    """Return nested graphs and the log of their run with answers 1 and 2.

    Each has a node before, a sibling beside and a node after what leads down, at the bottom a node that asks twice.
    """

    def bottom(state: State) -> dict[str, Any]:
        ran("bottom")
        return {"log": [interrupt("first"), interrupt("second")]}

    way: Any = world.node(bottom)
    log: list[Any] = [1, 2]
    for level in reversed(range(depth)):
        before, beside, after = (f"{place}{level}" for place in ("before", "beside", "after"))
        nodes = {**marks(world, ran, before), "down": way, **marks(world, ran, beside, after)}
        edges = [(START, before), (before, "down"), (before, beside), (["down", beside], after)]
        graph = build(State, nodes, edges, saver if level == 0 else None, name=f"layer{level}")
        way = calling(world, the_call(graph, ran, f"call{level}")) if called(level) else graph
        log = [before, *log, beside, after]
    return graph, log


WAYS_DOWN: dict[str, Callable[[int], bool]] = {
    "as nodes": lambda level: False,
    "called": lambda level: True,
    "by turns": lambda level: level % 2 == 1,
}


@pytest.mark.parametrize("depth", [3, 5])
@pytest.mark.parametrize("called", WAYS_DOWN.values(), ids=WAYS_DOWN)
def test_a_question_below_layers_of_agents(
    world: World, saver: Saver, tmp_path: Path, depth: int, called: Callable[[int], bool], ran: Ran
) -> None:
    """8.2: graphs as nodes, called, or by turns: only the asking task and the calls that lead to it run again.

    Finished inner tasks and siblings do not, at any depth, over two answers given in other processes.
    """
    graph, log = layers(world, ran, depth, called, saver)
    questions = list(world.invoke(graph, {}, thread_id="t")["__interrupt__"])
    for answer in (1, 2):
        with reopened(saver, tmp_path) as again:
            result = world.resume(layers(world, ran, depth, called, again)[0], answer, thread_id="t")
        questions += result.get("__interrupt__", [])
    assert result == {"log": log}
    assert [(i.value, i.node, len(i.namespace)) for i in questions] == [
        ("first", "down", depth - 1),
        ("second", "down", depth - 1),
    ]
    calls = {f"call{level}": 3 for level in range(1, depth) if called(level)}
    once = {f"{place}{level}": 1 for level in range(depth) for place in ("before", "beside", "after")}
    assert ran.counts == {"bottom": 3, **calls, **once}


# --- loops -----------------------------------------------------------------------------------------------------------


def remembering(world: World, ran: Ran, asks_at: Callable[[int], bool] = lambda x: True) -> Any:
    """Return a child that notes in its own state that it was there, then asks, and logs both with the answer."""

    def first(state: Child) -> dict[str, Any]:
        return noted(ran, f"first {state.get('x')}", {"own": ["here"]})

    def second(state: Child) -> dict[str, Any]:
        x = state.get("x", 0)
        ran(f"second {state.get('x')}")
        return {"log": [(x, len(state["own"]), interrupt(x) if asks_at(x) else None)]}

    nodes = {"first": world.node(first), "second": world.node(second)}
    return build(Child, nodes, [(START, "first"), ("first", "second")])


@pytest.mark.parametrize("called", [True, False], ids=["called", "as a node"])
def test_each_lap_has_a_child_of_its_own(world: World, saver: Saver, called: bool, ran: Ran) -> None:
    """8.3, 8.4, 6.8: each lap's child starts fresh, with an id of its own; an answer to an old one is refused."""
    child = remembering(world, ran)
    nodes = {
        "p": calling(world, the_call(child, ran, "call")) if called else child,
        "next": world.node(lambda s: {"x": s["x"] + 1}),
    }
    route: Any = lambda s: "p" if s["x"] < 3 else END  # noqa: E731 - as a user writes it
    edges = [(START, "p"), ("p", "next")]
    graph = build(State, nodes, edges, saver, branches=[("next", route, ["p", END])])
    result, old = world.invoke(graph, {"x": 0}, thread_id="t"), list[str]()
    for lap in range(3):
        (question,) = result["__interrupt__"]
        assert question.value == lap
        assert question.id not in old
        for id_ in old:
            with pytest.raises(InvalidAnswerError, match=question.id.replace("|", r"\|")):
                world.resume(graph, answers={id_: "old"}, thread_id="t")
        assert ids(world.invoke(graph, None, thread_id="t")) == [question.id]
        old.append(question.id)
        result = world.resume(graph, f"answer {lap}", thread_id="t")
    assert result == {"x": 3, "log": [(lap, 1, f"answer {lap}") for lap in range(3)]}
    assert all((ran.counts[f"first {lap}"], ran.counts[f"second {lap}"]) == (1, 2) for lap in range(3))


def test_a_python_loop_over_a_child_that_asks_now_and_then(world: World, saver: Saver, ran: Ran) -> None:
    """8.4, 6.8: calls that asked nothing and calls that were answered are not made again; each call starts fresh."""
    child = remembering(world, ran, lambda x: x % 2 == 1)

    def body(state: State) -> Calls:
        ran("loop")
        log: list[Any] = []
        for lap in range(6):
            log += (yield Call(child, {"x": lap}))["log"]
        return {"log": log}

    graph = build(State, {"p": calling(world, body)}, [(START, "p")], saver)
    result, seen = world.invoke(graph, {}, thread_id="t"), list[str]()
    for lap in (1, 3, 5):
        assert [i.value for i in result["__interrupt__"]] == [lap]
        seen += ids(result)
        result = world.resume(graph, -lap, thread_id="t")
    assert result == {"log": [(lap, 1, -lap if lap % 2 else None) for lap in range(6)]}
    assert len(set(seen)) == 3
    firsts = {f"first {lap}": 1 for lap in range(6)}
    seconds = {f"second {lap}": 1 + lap % 2 for lap in range(6)}
    assert ran.counts == {"loop": 4, **firsts, **seconds}


# --- static pauses ---------------------------------------------------------------------------------------------------


def looping(world: World, ran: Ran, laps: int, saver: Saver, **pauses: Any) -> Any:
    """Return a graph whose node `a` leads to itself, then to `b`, the last one."""
    route: Any = lambda s: "a" if s["log"].count("a") < laps else "b"  # noqa: E731 - as a user writes it
    return build(State, marks(world, ran, "a", "b"), [(START, "a")], saver, branches=[("a", route)], **pauses)


def stops(world: World, graph: Any) -> list[list[tuple[Any, ...]]]:
    """Run a graph to its end and return the pauses on the way."""
    found = []
    result = world.invoke(graph, {}, thread_id="t")
    while "__interrupt__" in result:
        found.append(told(result))
        result = world.invoke(graph, None, thread_id="t")
    assert result == {"log": ["a", "a", "a", "b"]}
    return found


def test_a_pause_before_every_lap_of_a_loop(world: World, saver: Saver, ran: Ran) -> None:
    """7.1: a node that leads to itself pauses before each of its laps, the first too."""
    graph = looping(world, ran, 3, saver, interrupt_before=["a"])
    assert stops(world, graph) == [[("a", "before", ("a",))]] * 3
    assert ran.counts == {"a": 3, "b": 1}


def test_a_pause_before_the_last_node(world: World, saver: Saver, ran: Ran) -> None:
    """7.1: nothing is left to run but that node, and then the run is done."""
    graph = looping(world, ran, 3, saver, interrupt_before=["b"])
    assert stops(world, graph) == [[("b", "before", ("b",))]]
    assert world.state(graph, thread_id="t").status == "done"
    assert ran.counts == {"a": 3, "b": 1}


def test_a_loop_with_a_pause_on_both_sides(world: World, saver: Saver, ran: Ran) -> None:
    """7.1, 7.2, 7.5: between two laps both reasons are one pause and one resume."""
    graph = looping(world, ran, 3, saver, interrupt_before=["a"], interrupt_after=["a"])
    between = [("a", "after", ("a",)), ("a", "before", ("a",))]
    assert stops(world, graph) == [[("a", "before", ("a",))], between, between, [("a", "after", ("b",))]]
    assert ran.counts == {"a": 3, "b": 1}


@pytest.mark.parametrize(
    "lists", [("interrupt_before",), ("interrupt_after",), ("interrupt_before", "interrupt_after")]
)
def test_the_seed_predicate_and_the_engines_own_rule(
    world: World, saver: Saver, lists: tuple[str, ...], ran: Ran
) -> None:
    """7.8: where the predicate pauses the engine does, and besides before the first node and within a self-loop."""
    graph = looping(world, ran, 2, saver, **dict.fromkeys(lists, "*"))
    paused_at = []
    result = world.invoke(graph, {}, thread_id="t")
    while "__interrupt__" in result:
        (following,) = {i.next for i in result["__interrupt__"]}
        paused_at.append((ran.order[-1] if ran.order else None, following[0] if following else None))
        result = world.invoke(graph, None, thread_id="t")
    boundaries = [(None, "a"), ("a", "a"), ("a", "b"), ("b", None)]
    if "interrupt_before" not in lists:
        boundaries.remove((None, "a"))
    if "interrupt_after" not in lists:
        boundaries.remove(("b", None))
    assert paused_at == boundaries
    on_purpose = [pair for pair in paused_at if not pause_between(*pair)]
    assert on_purpose == [pair for pair in [(None, "a"), ("a", "a")] if pair in boundaries]


# --- packets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("called", [True, False], ids=["called", "as a node"])
def test_a_hundred_packets_of_which_a_third_ask(world: World, saver: Saver, called: bool, ran: Ran) -> None:
    """8.4, 6.7: each packet has a child of its own; answered in two batches, only the asking tasks run twice."""
    child = remembering(world, ran, lambda x: x % 3 == 0)
    route: Any = lambda s: [Send("p", {"x": number}) for number in range(100)]  # noqa: E731 - as a user writes it
    node = calling(world, the_call(child, ran, "call")) if called else child
    graph = build(State, {"p": node}, [], saver, branches=[(START, route, ["p"])])
    paused = world.invoke(graph, {}, thread_id="t")
    asked = {question.id: question.value for question in paused["__interrupt__"]}
    assert list(asked.values()) == list(range(0, 100, 3))
    late = [id_ for id_, number in asked.items() if number % 2]
    early = {id_: -number for id_, number in asked.items() if not number % 2}
    assert ids(world.resume(graph, answers=early, thread_id="t")) == late
    result = world.resume(graph, answers={id_: -asked[id_] for id_ in late}, thread_id="t")
    assert result["log"] == [(number, 1, None if number % 3 else -number) for number in range(100)]
    firsts = {f"first {number}": 1 for number in range(100)}
    seconds = {f"second {number}": 1 if number % 3 else 2 for number in range(100)}
    calls = {"call": 134} if called else {}
    assert ran.counts == {**firsts, **seconds, **calls}
