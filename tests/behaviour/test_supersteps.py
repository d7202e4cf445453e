"""The super-step: order, visibility, barriers, deferral, limits, packets (sections 2.5, 2.6 and 3)."""

import asyncio
import operator
import threading
import tracemalloc
from typing import Annotated, Any, TypedDict

import pytest

from pregel import GraphRecursionError, Saver, Send, interrupt
from tests.helpers import END, START, Ran, World, build


class State(TypedDict, total=False):
    x: int
    total: Annotated[int, operator.add]
    log: Annotated[list[str], operator.add]


def _logs(world: World, names: str) -> dict[str, Any]:
    return {name: world.node(lambda s, name=name: {"log": [name]}) for name in names}


def _after(world: World, name: str, waits: Any, sets: Any) -> Any:
    """Return a node that ends only when its turn has come."""

    def node(s: State) -> dict[str, Any]:
        assert waits is None or waits.wait(timeout=10)
        sets.set()
        return {"log": [name]}

    async def anode(s: State) -> dict[str, Any]:
        if waits is not None:
            await asyncio.wait_for(waits.wait(), 10)
        sets.set()
        return {"log": [name]}

    return anode if world.is_async else node


def test_the_state_follows_task_order_and_not_arrival(world: World, saver: Saver) -> None:
    """3.1: c ends first, then b, then a; the fold is a, b, c."""
    make: Any = asyncio.Event if world.is_async else threading.Event
    done_a, done_b, done_c = make(), make(), make()
    nodes = {
        "a": _after(world, "a", done_b, done_a),
        "b": _after(world, "b", done_c, done_b),
        "c": _after(world, "c", None, done_c),
    }
    graph = build(State, nodes, [(START, "c"), (START, "b"), (START, "a")], saver)
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["a", "b", "c"]


def test_writes_are_seen_in_the_next_step_and_not_before(world: World, saver: Saver) -> None:
    """3.2: siblings see the snapshot only."""
    seen: list[list[str]] = []

    def look(s: State) -> dict[str, Any]:
        seen.append(s["log"])
        return {"log": ["x"]}

    graph = build(State, {name: world.node(look) for name in "abc"}, [(START, "a"), (START, "b"), ("a", "c")], saver)
    world.invoke(graph, {}, thread_id="t")
    assert seen == [[], [], ["x", "x"]]


def test_several_messages_before_a_node_runs_make_one_run_and_in_different_steps_two(
    world: World, saver: Saver
) -> None:
    """3.3: a and b wake d at once; c wakes it a step later."""
    edges = [(START, "a"), (START, "b"), ("a", "d"), ("b", "d"), ("a", "c"), ("c", "d")]
    graph = build(State, _logs(world, "abcd"), edges, saver)
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["a", "b", "c", "d", "d"]


def test_a_node_can_wake_itself(world: World, saver: Saver) -> None:
    """3.3: its trigger is consumed before its messages are applied."""
    node = world.node(lambda s: {"x": s["x"] + 1})
    graph = build(State, {"n": node}, [(START, "n")], saver, branches=[("n", lambda s: END if s["x"] > 4 else "n")])
    assert world.invoke(graph, {"x": 0}, thread_id="t")["x"] == 5


def test_a_barrier_fires_once_per_fill_in_a_loop(world: World, saver: Saver) -> None:
    """2.6: three laps, the members arriving in different steps."""
    nodes = _logs(world, "abcd")
    edges: list[tuple[Any, str]] = [(START, "a"), ("a", "b"), ("a", "c"), ("c", "x"), (["b", "x"], "d")]
    nodes["x"] = nodes.pop("d")
    nodes["d"] = world.node(lambda s: {"log": ["|"]})
    branches = [("d", lambda s: "a" if s["log"].count("|") < 3 else END)]
    graph = build(State, nodes, edges, saver, branches=branches)
    assert "".join(world.invoke(graph, {}, thread_id="t")["log"]) == "abcd|abcd|abcd|"


def test_the_same_sender_twice_does_not_fill_a_barrier(world: World, saver: Saver) -> None:
    """2.6: a runs twice, b never."""
    branches = [("a", lambda s: "a" if s["log"] == ["a"] else END), (START, lambda s: "a", {"a": "a", "b": "b"})]
    graph = build(State, _logs(world, "abc"), [(["a", "b"], "c")], saver, branches=branches)
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["a", "a"]
    assert world.state(graph, thread_id="t").stalled == {"c": ("a",)}


def test_a_group_fires_on_one_of_its_members(world: World, saver: Saver) -> None:
    """1.3: (a or b) and c."""
    branches = [(START, lambda s: ["b", "c"], ["a", "b", "c"])]
    graph = build(State, _logs(world, "abcd"), [([{"a", "b"}, "c"], "d")], saver, branches=branches)
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["b", "c", "d"]


def test_scheduling_state_survives_a_pause_and_another_engine(world: World, saver: Saver) -> None:
    """2.5: a half-filled barrier, a deferred node and packets are read back from the saver."""

    def graph() -> Any:
        nodes = {
            "a": world.node(lambda s: {"log": ["a"]}),
            "b": world.node(lambda s: {"log": [interrupt("?")]}),
            "c": world.node(lambda s: {"log": ["c"]}),
            "late": (world.node(lambda s: {"log": ["late"]}), {"defer": True}),
            "packet": world.node(lambda arg: {"log": [arg]}),
        }
        edges = [(START, "a"), ("a", "b"), (["a", "b"], "c"), ("a", "late")]
        return build(State, nodes, edges, saver, branches=[("a", lambda s: [Send("packet", "p"), Send("packet", "q")])])

    world.invoke(graph(), {}, thread_id="t")
    assert world.resume(graph(), "b", thread_id="t")["log"] == ["a", "b", "p", "q", "c", "late"]


def test_deferred_nodes_wait_for_all_others_and_then_run_together(world: World, saver: Saver) -> None:
    """3.4: both run in the step after the longest branch."""
    nodes = _logs(world, "abc")
    late = {name: (fn, {"defer": True}) for name, fn in _logs(world, "yz").items()}
    edges = [(START, "a"), ("a", "b"), ("b", "c"), ("a", "y"), (START, "z")]
    graph = build(State, {**late, **nodes}, edges, saver)
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["a", "b", "c", "y", "z"]
    assert world.state(graph, thread_id="t").metadata["step"] == 4


def test_a_packet_to_a_deferred_node_is_not_held(world: World, saver: Saver) -> None:
    """3.4: it runs beside b."""
    nodes = {**_logs(world, "abc"), "d": (world.node(lambda arg: {"log": ["d"]}), {"defer": True})}
    edges = [(START, "a"), ("a", "b"), ("b", "c")]
    graph = build(State, nodes, edges, saver, branches=[("a", lambda s: Send("d", 1))])
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["a", "b", "d", "c"]


@pytest.mark.parametrize("durable", [True, False])
def test_the_recursion_limit_is_exact(world: World, saver: Saver, durable: bool) -> None:
    """3.5: N steps are allowed; one more raises with the state saved, and a resume has a fresh budget."""
    edges = [(START, "a"), ("a", "b"), ("b", "c")]
    graph = build(State, _logs(world, "abc"), edges, saver if durable else None)
    options: Any = {"thread_id": "t"} if durable else {}
    assert world.invoke(graph, {}, recursion_limit=3, **options)["log"] == ["a", "b", "c"]
    with pytest.raises(GraphRecursionError, match="more than 2 super-steps") as caught:
        world.invoke(graph, {}, recursion_limit=2, **options)
    assert caught.value.limit == 2
    if durable:
        assert world.state(graph, thread_id="t").next == ("c",)
        assert world.invoke(graph, None, recursion_limit=1, **options)["log"] == [*"abcabc"]


def test_the_input_is_step_0_and_steps_count_from_the_last_input(world: World, saver: Saver) -> None:
    """3.6: edits and resumes are no super-steps."""
    nodes = {**_logs(world, "a"), "b": world.node(lambda s: {"log": [interrupt("?")]})}
    graph = build(State, nodes, [(START, "a"), ("a", "b")], saver)
    world.invoke(graph, {"x": 1}, thread_id="t")
    world.update(graph, None, {"x": 2}, thread_id="t")
    world.resume(graph, "!", thread_id="t")
    history = world.history(graph, thread_id="t")[::-1]
    assert [s.metadata["step"] for s in history if s.metadata["source"] == "input"] == [0]
    assert [s.metadata["step"] for s in history if s.metadata["source"] in ("update", "resume")] == [1, 1]
    assert history[-1].metadata["step"] == 2
    assert history[0].next == ("a",)


def test_a_conditional_entry_makes_start_a_task_of_step_1(world: World, saver: Saver) -> None:
    """3.6: then the static entry edges leave from it too."""
    graph = build(State, _logs(world, "ab"), [(START, "b")], saver, branches=[(START, lambda s: "a")])
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["a", "b"]
    history = world.history(graph, thread_id="t")
    assert [s.next for s in history] == [(), ("a", "b"), ("__start__",)]


# --- packets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arg", [None, 0, "text", [1], {"x": {"y": 1}}, (1, 2)])
def test_a_packet_carries_its_argument_itself(world: World, saver: Saver, arg: Any) -> None:
    """3.7: any value, not a state."""
    seen: list[Any] = []
    nodes = {**_logs(world, "a"), "b": world.node(seen.append)}
    graph = build(State, nodes, [(START, "a")], saver, branches=[("a", lambda s: Send("b", arg))])
    world.invoke(graph, {}, thread_id="t")
    assert seen == [arg]
    assert type(seen[0]) is type(arg)


def test_packets_run_after_nodes_in_the_order_written(world: World, saver: Saver) -> None:
    """3.1: b is added last and runs before the packets."""
    nodes = {"p": world.node(lambda arg: {"log": [arg]}), **_logs(world, "ab")}
    branches = [("a", lambda s: [Send("p", "2"), Send("p", "1")])]
    graph = build(State, nodes, [(START, "a"), ("a", "b")], saver, branches=branches)
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["a", "b", "2", "1"]


def test_ten_thousand_packets_run_once_each(world: World, ran: Ran) -> None:
    """3.7: in one step."""

    def packet(arg: int) -> dict[str, Any]:
        ran("p")
        return {"total": arg}

    nodes = {"a": world.node(lambda s: None), "p": world.node(packet)}
    branches = [("a", lambda s: [Send("p", i) for i in range(10_000)])]
    graph = build(State, nodes, [(START, "a")], branches=branches, isolation="shallow")
    assert world.invoke(graph, {}, recursion_limit=2)["total"] == sum(range(10_000))
    assert ran.counts["p"] == 10_000


def test_a_loop_of_a_hundred_thousand_steps_needs_no_more_memory_than_a_short_one(world: World) -> None:
    """3.5: the last two thousand laps leave nothing behind."""

    def lap(s: State) -> dict[str, Any]:
        if s["x"] == 98_000:
            tracemalloc.start()
        return {"x": s["x"] + 1}

    branches = [("n", lambda s: END if s["x"] == 100_000 else "n", ["n", END])]
    graph = build(State, {"n": world.node(lap)}, [(START, "n")], branches=branches, isolation="shallow")
    try:
        assert world.invoke(graph, {"x": 0}, recursion_limit=100_000)["x"] == 100_000
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
