"""Faults of engines of this kind: two runs on one thread, objects that are shared, values that change when stored."""

import operator
import threading
from collections import OrderedDict
from concurrent.futures import Future
from enum import Enum
from fractions import Fraction
from typing import Annotated, Any, NamedTuple, TypedDict

import pytest

from pregel import (
    ConcurrentRunError,
    GraphInterrupt,
    MutationError,
    Saver,
    Send,
    SerializationError,
    interrupt,
)
from tests.behaviour.calling import noted
from tests.helpers import END, START, Ran, World, build, ids

WAIT = 10


class Owner:
    class Mood(Enum):
        GOOD = "good"


class Point(NamedTuple):
    x: int
    mood: Owner.Mood


def extended(left: list[Any], right: list[Any]) -> list[Any]:
    left.extend(right)
    return left


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    items: list[Any]
    point: Point
    mood: Owner.Mood
    value: Any


def single(world: World, saver: Saver | None, node: Any, **options: Any) -> Any:
    return build(State, {"a": world.node(node)}, [(START, "a")], saver, **options)


# --- two runs on one thread -----------------------------------------------------------------------------------------


def overtaken(saver: Saver, meanwhile: Any) -> tuple[Any, BaseException | None]:
    """Run a graph that is overtaken by `meanwhile(graph)` while its first node runs; return graph and error."""
    started, go_on = threading.Event(), threading.Event()

    def slow(state: State) -> dict[str, Any]:
        if state.get("value") == "slow":
            started.set()
            assert go_on.wait(WAIT)
        return {"log": [state.get("value")]}

    graph = build(State, {"a": slow, "b": lambda s: {"log": ["b"]}}, [(START, "a"), ("a", "b")], saver)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            graph.invoke({"value": "slow"}, thread_id="t")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(WAIT)
    meanwhile(graph)
    go_on.set()
    thread.join(WAIT)
    assert not thread.is_alive()
    return graph, errors[0] if errors else None


def test_the_run_that_began_last_goes_on(saver: Saver) -> None:
    """10.3: the other gets ConcurrentRunError at its next write; the chain of parents has no lost branch."""
    graph, error = overtaken(saver, lambda g: g.invoke({"value": "fast"}, thread_id="t"))
    assert type(error) is ConcurrentRunError
    assert graph.get_state(thread_id="t").values == {"value": "fast", "log": ["fast", "b"]}
    states = list(graph.get_state_history(thread_id="t"))
    assert [s.parent_config for s in states] == [*(s.config for s in states[1:]), None]


def test_a_late_run_changes_nothing_of_a_deleted_and_reused_thread(saver: Saver) -> None:
    """10.3: a deleted and reused thread id is another thread; what ends late cannot write to it."""

    def reuse(graph: Any) -> None:
        saver.delete_thread("t")
        graph.invoke({"value": "new"}, thread_id="t")

    graph, error = overtaken(saver, reuse)
    assert type(error) is ConcurrentRunError
    assert graph.get_state(thread_id="t").values["log"] == ["new", "b"]
    graph, error = overtaken(saver, lambda g: saver.delete_thread("t"))
    assert type(error) is ConcurrentRunError
    assert list(saver.threads()) == []


def test_an_edit_overtakes_a_run(saver: Saver) -> None:
    """10.3: `update_state` counts as a run."""
    graph, error = overtaken(saver, lambda g: g.update_state(None, {"items": [1]}, thread_id="t"))
    assert type(error) is ConcurrentRunError
    assert graph.get_state(thread_id="t").values["items"] == [1]


def test_one_graph_serves_interleaved_runs(saver: Saver) -> None:
    """1.4: a compiled graph keeps nothing of a run: two that cross each other keep their own values."""
    both = threading.Barrier(2)

    def node(state: State) -> dict[str, Any]:
        both.wait(WAIT)
        return {"log": [state["value"]]}

    graph = build(State, {"a": node, "b": node}, [(START, "a"), ("a", "b")], saver)
    found: dict[str, Any] = {}
    run = lambda name: found.update({name: graph.invoke({"value": name}, thread_id=name)["log"]})  # noqa: E731
    threads = [threading.Thread(target=run, args=(name,)) for name in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert found == {"x": ["x", "x"], "y": ["y", "y"]}


# --- objects that are shared ----------------------------------------------------------------------------------------


def test_a_router_that_changes_its_list_changes_nothing(world: World, saver: Saver) -> None:
    """2.4, 4.1: a router's list is its own: state, the caller's input and the next node's view stay."""

    def route(state: State) -> str:
        state["items"].append("router")
        state["log"].sort()
        return "b"

    nodes = {"a": world.node(lambda s: {"log": [3]}), "b": world.node(lambda s: {"value": (s["items"], s["log"])})}
    graph = build(State, nodes, [(START, "a")], saver, branches=[("a", route, ["b", END])])
    given = [2, 1]
    result = world.invoke(graph, {"items": given, "log": [9]}, thread_id="t")
    assert given == [2, 1]
    assert result == {"items": [2, 1], "log": [9, 3], "value": ([2, 1], [9, 3])}


def test_earlier_checkpoints_keep_their_values(world: World, saver: Saver) -> None:
    """2.4: no later step, caller or reader changes what a checkpoint holds."""
    nodes = {n: world.node(lambda s, n=n: {"log": [n]}) for n in "abc"}
    graph = build(State, nodes, [(START, "a"), ("a", "b"), ("b", "c")], saver)
    result = world.invoke(graph, {"items": [[]]}, thread_id="t", durability="async")
    result["items"][0].append("caller")
    world.state(graph, thread_id="t").values["items"][0].append("reader")
    states = world.history(graph, thread_id="t")
    assert [s.values["log"] for s in states] == [["a", "b", "c"], ["a", "b"], ["a"], []]
    assert all(s.values["items"] == [[]] for s in states)


def test_one_checkpoint_is_resumed_twice_with_equal_results(world: World, saver: Saver) -> None:
    """9.4, 2.4: a stored checkpoint is not changed by the run that goes on from it."""
    graph = single(world, saver, lambda s: {"log": [interrupt("?"), *s["items"]]})
    world.invoke(graph, {"items": [1]}, thread_id="t")
    pause = world.state(graph, thread_id="t")
    first = world.call(graph, "resume", "yes", pause.config)
    assert world.call(graph, "resume", "yes", pause.config) == first == {"items": [1], "log": ["yes", 1]}
    assert world.state(graph, pause.config) == pause


def test_parallel_nodes_do_not_share_what_they_read(world: World, saver: Saver) -> None:
    """2.4: top-level containers are each node's own, with "deep" all of it; "check" names who changed deeper ones."""

    def changes(state: State) -> dict[str, Any]:
        state["items"][0].append(1)
        return {"log": [len(state["items"][0])]}

    nodes = {"a": world.node(changes), "b": world.node(changes)}
    edges: list[tuple[Any, str]] = [(START, "a"), (START, "b")]
    deep = build(State, nodes, edges, saver, isolation="deep")
    assert world.invoke(deep, {"items": [[]]}, thread_id="t") == {"items": [[]], "log": [1, 1]}
    with pytest.raises(MutationError, match="'items'"):
        world.invoke(build(State, nodes, edges, saver), {"items": [[]]}, thread_id="u")


def test_a_reducer_that_extends_in_place_does_not_double(world: World, saver: Saver) -> None:
    """4.1: a router's peek at its own task's writes never touches the live value."""

    class Extended(TypedDict, total=False):
        log: Annotated[list[Any], extended]

    seen: list[Any] = []
    route: Any = lambda s: (seen.append(list(s["log"])), END)[1]  # type: ignore[func-returns-value]  # noqa: E731 - as a user writes it
    nodes = {"a": world.node(lambda s: {"log": ["a"]})}
    graph = build(Extended, nodes, [(START, "a")], saver, branches=[("a", route, [END])])
    assert world.invoke(graph, {"log": ["in"]}, thread_id="t") == {"log": ["in", "a"]}
    assert seen == [["in", "a"]]
    assert world.state(graph, thread_id="t").values == {"log": ["in", "a"]}


# --- values that change when stored ---------------------------------------------------------------------------------


def test_values_come_back_as_they_were(world: World, saver: Saver) -> None:
    """12.1: nested enums, named tuples, big numbers, keys that are no text, NULs: type and value are kept."""
    value = {1: 2**80, (1, 2): Fraction(1, 3), None: range(3), "nul": "a\0b", "odd": "\ud800", False: {1.5: b"\0"}}
    given = {"mood": Owner.Mood.GOOD, "point": Point(1, Owner.Mood.GOOD), "value": value}
    graph = single(world, saver, lambda s: {"log": [interrupt(given["value"])]})
    question = world.invoke(graph, given, thread_id="t")["__interrupt__"][0]
    assert question.value == value
    again = single(world, saver, lambda s: {"log": [interrupt(), type(s["point"]), s["mood"]][:1], "value": s["value"]})
    state = world.state(again, thread_id="t")
    assert state.values["mood"] is Owner.Mood.GOOD
    assert type(state.values["point"]) is Point
    assert state.values == {**given, "log": []}
    assert list(state.values["value"]) == list(value)
    assert world.resume(again, value, thread_id="t")["log"] == [value]


class Unknown:
    """A class that nobody registered."""


@pytest.mark.parametrize(
    "bad", [Unknown(), lambda: 1, OrderedDict(a=1), threading.Lock()], ids=lambda value: type(value).__name__
)
def test_an_unstorable_value_fails_its_task(world: World, saver: Saver, bad: Any) -> None:
    """12.2, 2.7: naming node, key and path; the sibling's record is kept and the thread is not stuck."""
    ran = Ran()
    values = [{"k": [0, bad]}, "good"]
    nodes = {
        "a": world.node(lambda s: {"value": values[0]}),
        "b": world.node(lambda s: noted(ran, "b", {"log": ["b"]})),
    }
    graph = build(State, nodes, [(START, "a"), (START, "b")], saver)
    with pytest.raises(SerializationError) as caught:
        world.invoke(graph, {}, thread_id="t")
    assert "'a'" in str(caught.value)
    assert "'value'" in str(caught.value)
    assert caught.value.path == "['k'][1]"
    assert world.state(graph, thread_id="t").tasks[0].status == "failed"
    del values[0]
    assert world.invoke(graph, None, thread_id="t") == {"value": "good", "log": ["b"]}


@pytest.mark.parametrize("ask", [interrupt, GraphInterrupt], ids=["called", "returned"])
def test_an_unstorable_question_fails_its_task(world: World, saver: Saver, ask: Any) -> None:
    """12.2: question payloads too; the error names the node and the path, and a later run can ask again."""
    graph = single(world, saver, lambda s: ask({"q": [Unknown()]}))
    with pytest.raises(SerializationError, match="'a'") as caught:
        world.invoke(graph, {}, thread_id="t")
    assert "'q'" in caught.value.path
    state = world.state(graph, thread_id="t")
    assert (state.interrupts, state.next) == ((), ("a",))
    assert world.call(single(world, saver, lambda s: ask("fine")), "invoke", None, thread_id="t")["__interrupt__"]


def test_an_unstorable_packet_or_input_is_refused(world: World, saver: Saver) -> None:
    """12.2: so do packets, in the task that sends; input is refused before anything is written."""
    route: Any = lambda s: [Send("b", {"k": Unknown()})]  # noqa: E731 - as a user writes it
    nodes = {"a": world.node(lambda s: None), "b": world.node(lambda s: None)}
    graph = build(State, nodes, [(START, "a")], saver, branches=[("a", route, ["b"])])
    with pytest.raises(SerializationError, match="'value'"):
        world.invoke(graph, {"value": Unknown()}, thread_id="t")
    assert list(saver.threads()) == []
    with pytest.raises(SerializationError, match="'a'") as caught:
        world.invoke(graph, {}, thread_id="t")
    assert caught.value.path == "['k']"


def test_an_error_that_cannot_be_stored_whole_is_told_all_the_same(world: World, saver: Saver) -> None:
    """12.1, 5.4: the cause is raised as itself and kept as type and text, whatever it carried."""

    class Carrying(Exception):
        pass

    def node(state: State) -> None:
        error = Carrying("the cause", Future())
        error.future = Future()  # type: ignore[attr-defined] # what an error carries
        raise error

    graph = single(world, saver, node)
    with pytest.raises(Carrying, match="the cause"):
        world.invoke(graph, {}, thread_id="t")
    task = world.state(graph, thread_id="t").tasks[0]
    assert task.status == "failed"
    assert "the cause" in str(task.error)
    assert ids({"__interrupt__": world.state(graph, thread_id="t").interrupts}) == []


def test_without_a_saver_nothing_needs_to_be_stored(world: World) -> None:
    """12.2: a graph without a checkpointer takes any value."""
    graph = single(world, None, lambda s: {"log": [Unknown()]}, isolation="shallow")
    assert type(world.invoke(graph, {})["log"][0]) is Unknown
