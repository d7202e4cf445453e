"""Pauses after a node that come before its edges are decided, and pauses that a node asks for itself (7.3, 7.4)."""

import operator
from typing import Annotated, Any, Literal, TypedDict

import pytest

from pregel import (
    END,
    START,
    Command,
    GraphChangedError,
    InMemorySaver,
    InvalidTargetError,
    Runtime,
    Saver,
    Send,
    SerializationError,
    interrupt,
)
from tests.helpers import Ran, World, build, ids

AT = {"configurable": {"thread_id": "t"}}


class State(TypedDict, total=False):
    to: str
    log: Annotated[list[str], operator.add]


def route(state: State) -> str | list[str]:
    return [] if state.get("to") == "nowhere" else state.get("to", "b")


def step(world: World, ran: Ran, name: str) -> Any:
    """Return a node that logs its name."""

    def node(state: State) -> State:
        ran(name)
        return {"log": [name]}

    return world.node(node)


def routed(world: World, ran: Ran, saver: Saver | None, **options: Any) -> Any:
    """Return a -?-> b, c or END."""
    nodes = {name: step(world, ran, name) for name in "abc"}
    return build(State, nodes, [(START, "a")], saver, branches=[("a", route, ["b", "c", END])], **options)


# --- edges withheld -----------------------------------------------------------------------------------------------


def test_an_edit_at_the_pause_changes_the_route(world: World, saver: Saver, ran: Ran) -> None:
    """7.3: the router sees the state as it is when the run goes on."""
    graph = routed(world, ran, saver, interrupt_after=["a"], interrupt_before_edge=True)
    paused = world.invoke(graph, {"to": "b"}, thread_id="t")
    assert [(i.id, i.when, i.next) for i in paused["__interrupt__"]] == [("a@1!after", "after", ("a/edge",))]
    assert world.state(graph, thread_id="t").next == ("a/edge",)
    world.update(graph, AT, {"to": "c"})
    assert world.invoke(graph, None, thread_id="t")["log"] == ["a", "c"]
    assert ran.order == ["a", "c"]


def test_without_it_the_route_is_fixed_at_the_pause(world: World, saver: Saver, ran: Ran) -> None:
    """7.3: the router ran with the node."""
    graph = routed(world, ran, saver, interrupt_after=["a"])
    paused = world.invoke(graph, {"to": "b"}, thread_id="t")
    assert paused["__interrupt__"][0].next == ("b",)
    world.update(graph, AT, {"to": "c"})
    assert world.invoke(graph, None, thread_id="t")["log"] == ["a", "b"]


def test_it_says_nothing_without_a_pause_after_a_node(world: World, saver: Saver, ran: Ran) -> None:
    """1.5: interrupt_before_edge alone changes nothing."""
    graph = routed(world, ran, saver, interrupt_before_edge=True)
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["a", "b"]
    assert [s.metadata["step"] for s in world.history(graph, thread_id="t")] == [2, 1, 0]


@pytest.mark.parametrize("to", [END, "nowhere"])
def test_a_route_to_the_end_ends_the_run(world: World, saver: Saver, ran: Ran, to: str) -> None:
    """7.3: END, or no target, when the edge is decided."""
    graph = routed(world, ran, saver, interrupt_after=["a"], interrupt_before_edge=True)
    world.invoke(graph, {"to": to}, thread_id="t")
    assert world.invoke(graph, None, thread_id="t") == {"to": to, "log": ["a"]}
    state = world.state(graph, thread_id="t")
    assert (state.status, state.next) == ("done", ())


def test_a_target_that_is_paused_before_pauses_there(world: World, saver: Saver, ran: Ran) -> None:
    """7.3, 7.1: first the pause after a, then the one before b; b's edge is not decided again."""
    graph = routed(world, ran, saver, interrupt_after=["a"], interrupt_before=["b"], interrupt_before_edge=True)
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["a@1!after"]
    second = world.invoke(graph, None, thread_id="t")["__interrupt__"]
    assert [(i.node, i.when, i.next) for i in second] == [("b", "before", ("b",))]
    world.update(graph, AT, {"to": "c"})
    assert world.invoke(graph, None, thread_id="t")["log"] == ["a", "b"]


def test_deciding_edges_is_no_super_step(world: World, saver: Saver, ran: Ran) -> None:
    """7.3, 3.5: neither `step` nor the budget of a run counts it."""
    graph = routed(world, ran, saver, interrupt_after=["a"], interrupt_before_edge=True)
    world.invoke(graph, {}, thread_id="t", recursion_limit=1)
    world.invoke(graph, None, thread_id="t", recursion_limit=1)
    assert [s.metadata["step"] for s in world.history(graph, thread_id="t")] == [2, 1, 1, 1, 0]


def test_a_jump_of_the_node_is_kept(world: World, saver: Saver) -> None:
    """7.3, 4.2: `goto` is the node's own word; static edges, joins and routers are withheld."""

    def a(state: State) -> Command[Literal["b"]]:
        return Command(update={"log": ["a"]}, goto="b")

    nodes = {"a": world.node(a), "b": lambda s: {"log": ["b"]}, "c": lambda s: {"log": ["c"]}}
    options: dict[str, Any] = {"interrupt_after": ["a"], "interrupt_before_edge": True}
    graph = build(State, nodes, [(START, "a"), ("a", "c")], saver, **options)
    paused = world.invoke(graph, {}, thread_id="t")
    assert paused["__interrupt__"][0].next == ("a/edge", "b")
    assert world.state(graph, thread_id="t").next == ("a/edge", "b")
    assert world.invoke(graph, None, thread_id="t")["log"] == ["a", "b", "c"]


def test_a_jump_that_was_paused_before_does_not_pause_twice(world: World, saver: Saver) -> None:
    """7.1, 7.5: both reasons are passed by one resume, though the edges are decided in between."""

    def a(state: State) -> Command[Literal["b"]]:
        return Command(goto="b")

    nodes = {"a": world.node(a), "b": lambda s: {"log": ["b"]}, "c": lambda s: {"log": ["c"]}}
    options: dict[str, Any] = {"interrupt_before": ["b"], "interrupt_after": ["a"], "interrupt_before_edge": True}
    graph = build(State, nodes, [(START, "a"), ("a", "c")], saver, **options)
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["a@1!after", "b@2!before"]
    assert world.invoke(graph, None, thread_id="t") == {"log": ["b", "c"]}


def test_a_withheld_join_fills_when_its_edge_is_decided(world: World, saver: Saver, ran: Ran) -> None:
    """7.3, 2.6: b has sent at the pause, a sends when the run goes on; the join fires once."""
    nodes = {name: step(world, ran, name) for name in "abc"}
    edges: list[tuple[Any, str]] = [(START, "a"), (START, "b"), (["a", "b"], "c")]
    graph = build(State, nodes, edges, saver, interrupt_after=["a"], interrupt_before_edge=True)
    world.invoke(graph, {}, thread_id="t")
    assert world.state(graph, thread_id="t").next == ("a/edge",)
    assert world.invoke(graph, None, thread_id="t")["log"] == ["a", "b", "c"]
    assert ran.counts == {"a": 1, "b": 1, "c": 1}


def test_every_packet_of_a_node_has_its_edge(world: World, saver: Saver, ran: Ran) -> None:
    """7.3, 3.7: routers run once for each packet that ran; each may send packets on."""

    def fan(state: State) -> list[Send]:
        return [Send("work", {"log": [str(n)]}) for n in range(3)]

    def work(state: State) -> State:
        return {"log": [f"work {state['log'][0]}"]}

    def on(state: State) -> Send:
        return Send("last", len(state["log"]))

    def last(count: int) -> State:
        return {"log": [f"last {count}"]}

    nodes = {"a": lambda s: None, "work": world.node(work), "last": world.node(last)}
    branches = [("a", fan, ["work"]), ("work", on, ["last"])]
    options: dict[str, Any] = {"interrupt_after": ["work"], "interrupt_before_edge": True}
    graph = build(State, nodes, [(START, "a")], saver, branches=branches, **options)
    paused = world.invoke(graph, {}, thread_id="t")
    assert ids(paused) == [f"work@2.{n}!after" for n in range(3)]
    assert [task.id for task in world.state(graph, thread_id="t").tasks] == [f"work@2.{n}/edge" for n in range(3)]
    expected = [*(f"work {n}" for n in range(3)), *["last 3"] * 3]
    assert world.invoke(graph, None, thread_id="t")["log"] == expected


def test_a_self_loop_pauses_every_lap_and_leaves_by_an_edit(world: World, saver: Saver, ran: Ran) -> None:
    """7.2, 7.3: each lap is decided anew."""

    def again(state: State) -> str:
        return state.get("to", "b")

    nodes = {"b": step(world, ran, "b"), "c": step(world, ran, "c")}
    options: dict[str, Any] = {"interrupt_after": ["b"], "interrupt_before_edge": True}
    graph = build(State, nodes, [(START, "b")], saver, branches=[("b", again, ["b", "c", END])], **options)
    seen = [ids(world.invoke(graph, {}, thread_id="t"))]
    seen += [ids(world.invoke(graph, None, thread_id="t")) for _ in range(2)]
    assert len({id_ for lap in seen for id_ in lap}) == 3
    world.update(graph, AT, {"to": "c"})
    assert world.invoke(graph, None, thread_id="t")["log"] == ["b", "b", "b", "c"]


def test_a_router_that_fails_can_be_helped_by_an_edit(world: World, saver: Saver, ran: Ran) -> None:
    """7.3, 5.5: the edge is the unfinished task, not the node."""
    graph = routed(world, ran, saver, interrupt_after=["a"], interrupt_before_edge=True)
    world.invoke(graph, {"to": "unknown"}, thread_id="t")
    with pytest.raises(InvalidTargetError, match="unknown"):
        world.invoke(graph, None, thread_id="t")
    state = world.state(graph, thread_id="t")
    assert (state.status, state.next) == ("failed", ("a/edge",))
    world.update(graph, AT, {"to": "c"})
    assert world.invoke(graph, None, thread_id="t")["log"] == ["a", "c"]
    assert ran.counts == {"a": 1, "c": 1}


def test_new_input_drops_edges_that_are_not_decided(world: World, saver: Saver, ran: Ran) -> None:
    """6.12: they are pending like tasks, and listed among what was discarded."""
    graph = routed(world, ran, saver, interrupt_after=["a"], interrupt_before_edge=True)
    world.invoke(graph, {}, thread_id="t")
    world.invoke(graph, {}, thread_id="t")
    discarded = [s.metadata.get("discarded") for s in world.history(graph, thread_id="t") if s.metadata["step"] == 0]
    assert discarded == [["a@1/edge"], None]
    assert ran.order == ["a", "a"]


def test_recover_stays_at_the_pause_and_a_fork_decides_anew(world: World, saver: Saver, ran: Ran) -> None:
    """7.6, 9.4: a replay of the paused checkpoint decides the edge on its own state."""
    graph = routed(world, ran, saver, interrupt_after=["a"], interrupt_before_edge=True)
    world.invoke(graph, {}, thread_id="t")
    at = world.state(graph, thread_id="t").config["configurable"]["checkpoint_id"]
    assert ids(world.recover(graph, thread_id="t")) == ["a@1!after"]
    world.update(graph, AT, {"to": "c"})
    assert world.invoke(graph, None, thread_id="t")["log"] == ["a", "c"]
    assert world.call(graph, "fork", thread_id="t", checkpoint_id=at)["log"] == ["a", "b"]


def test_a_node_gone_whose_edge_is_pending_is_named(world: World, saver: Saver, ran: Ran) -> None:
    """9.7: the checkpoint needs it."""
    world.invoke(
        routed(world, ran, saver, interrupt_after=["a"], interrupt_before_edge=True), {"to": "b"}, thread_id="t"
    )
    other = build(State, {"b": lambda s: None}, [(START, "b")], saver)
    with pytest.raises(GraphChangedError, match="'a'"):
        world.invoke(other, None, thread_id="t")
    with pytest.raises(GraphChangedError, match="'a'"):
        world.state(other, thread_id="t")


def test_a_child_decides_its_edges_when_the_root_goes_on(world: World, saver: Saver, ran: Ran) -> None:
    """7.3, 7.7: a child pauses by its own lists, and its edge is decided on its own edited state."""
    child = routed(world, ran, None, interrupt_after=["a"], interrupt_before_edge=True, name="child")
    graph = build(State, {"child": child}, [(START, "child")], saver)
    assert ids(world.invoke(graph, {"to": "b"}, thread_id="t")) == ["child@1|a@1!after"]
    below = {"configurable": {"thread_id": "t", "checkpoint_ns": "child@1"}}
    assert world.state(graph, below).next == ("a/edge",)
    world.update(graph, below, {"to": "c"})
    assert world.invoke(graph, None, thread_id="t")["log"] == ["a", "c"]


def test_a_record_keeps_whether_its_edges_were_decided(world: World, saver: Saver, ran: Ran) -> None:
    """7.3, 7.7: the lists of the call that goes on after a question decide about the pause, not about the edges."""
    nodes = {"a": lambda s: None, "ask": lambda s: {"log": [interrupt("?")]}, "b": lambda s: {"log": ["b"]}}
    edges: list[tuple[Any, str]] = [(START, "a"), (START, "ask")]
    options: dict[str, Any] = {"interrupt_after": ["a"], "interrupt_before_edge": True}
    graph = build(State, nodes, edges, saver, branches=[("a", route, ["b"])], **options)
    world.invoke(graph, {}, thread_id="t")
    assert world.resume(graph, "yes", thread_id="t", interrupt_after=[]) == {"log": ["yes", "b"]}


# --- pauses that a node asks for ----------------------------------------------------------------------------------


def asking(world: World, ran: Ran, value: Any = None) -> Any:
    def a(state: State, runtime: Runtime[Any]) -> State:
        ran("a")
        runtime.interrupt_after(value)
        return {"log": ["a"]}

    return world.node(a)


def test_a_node_pauses_after_itself(world: World, saver: Saver, ran: Ran) -> None:
    """7.4: it completes, its update is merged, then the run pauses with the value."""
    nodes = {"a": asking(world, ran, {"why": "high"}), "b": lambda s: {"log": ["b"]}}
    graph = build(State, nodes, [(START, "a"), ("a", "b")], saver)
    paused = world.invoke(graph, {}, thread_id="t")
    (reason,) = paused["__interrupt__"]
    assert (reason.id, reason.when, reason.node, reason.value) == ("a@1!after", "after", "a", {"why": "high"})
    assert (paused["log"], reason.next) == (["a"], ("b",))
    assert world.state(graph, thread_id="t").interrupts == (reason,)
    assert world.invoke(graph, None, thread_id="t") == {"log": ["a", "b"]}
    assert ran.counts == {"a": 1}


def test_a_node_pauses_after_itself_as_the_last_one(world: World, saver: Saver, ran: Ran) -> None:
    """7.2, 7.4: there is nothing left to run, and the run is paused all the same."""
    graph = build(State, {"a": asking(world, ran)}, [(START, "a")], saver)
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["a@1!after"]
    assert world.state(graph, thread_id="t").status == "paused"
    assert world.invoke(graph, None, thread_id="t") == {"log": ["a"]}


def test_a_listed_node_that_asks_itself_is_one_reason(world: World, saver: Saver, ran: Ran) -> None:
    """7.5: the node's own value is shown."""
    graph = build(State, {"a": asking(world, ran, 1)}, [(START, "a")], saver, interrupt_after=["a"])
    assert [(i.id, i.value) for i in world.invoke(graph, {}, thread_id="t")["__interrupt__"]] == [("a@1!after", 1)]


def test_its_wish_waits_for_a_sibling_that_asks(world: World, saver: Saver, ran: Ran) -> None:
    """5.2, 7.4: the wish is kept with the node's ending while the step is paused inside."""
    nodes = {"a": asking(world, ran, "later"), "ask": lambda s: {"log": [interrupt("?")]}}
    graph = build(State, nodes, [(START, "a"), (START, "ask")], saver)
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["ask@1#0"]
    paused = world.resume(graph, "yes", thread_id="t")
    assert [(i.id, i.value) for i in paused["__interrupt__"]] == [("a@1!after", "later")]
    assert world.invoke(graph, None, thread_id="t") == {"log": ["a", "yes"]}
    assert ran.counts == {"a": 1}


def test_an_attempt_that_asks_has_no_other_wish(world: World, saver: Saver) -> None:
    """6.1, 7.4: a question comes before; the wish counts when the node completes."""

    def a(state: State, runtime: Runtime[Any]) -> State:
        runtime.interrupt_after("after")
        return {"log": [interrupt("inside")]}

    graph = build(State, {"a": world.node(a)}, [(START, "a")], saver)
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["a@1#0"]
    assert ids(world.resume(graph, "yes", thread_id="t")) == ["a@1!after"]
    assert world.invoke(graph, None, thread_id="t") == {"log": ["yes"]}


def test_a_node_that_pauses_itself_has_its_edges_withheld(world: World, saver: Saver, ran: Ran) -> None:
    """7.3, 7.4: the correction at the pause changes the route."""
    nodes = {"a": asking(world, ran), "b": lambda s: {"log": ["b"]}, "c": lambda s: {"log": ["c"]}}
    graph = build(State, nodes, [(START, "a")], saver, branches=[("a", route, ["b", "c"])], interrupt_before_edge=True)
    world.invoke(graph, {}, thread_id="t")
    world.update(graph, AT, {"to": "c"})
    assert world.invoke(graph, None, thread_id="t")["log"] == ["a", "c"]


def test_a_value_that_cannot_be_stored_fails_the_node(world: World, saver: Saver, ran: Ran) -> None:
    """12.2: as any value that is to be kept."""
    graph = build(State, {"a": asking(world, ran, object())}, [(START, "a")], saver)
    with pytest.raises(SerializationError, match=r"node 'a', the value of its pause"):
        world.invoke(graph, {}, thread_id="t")


def test_a_child_that_hands_over_pauses_first(world: World, saver: Saver) -> None:
    """4.2, 6.5, 7.2: the pause after the node is not lost; the parent gets the command when it is passed."""

    def leave(state: State) -> Command[str]:
        return Command(graph=Command.PARENT, update={"log": ["left"]}, goto="b")

    child = build(State, {"leave": world.node(leave)}, [(START, "leave")], interrupt_after=["leave"], name="child")
    nodes = {"child": (child, {"destinations": ["b"]}), "b": lambda s: {"log": ["b"]}}
    graph = build(State, nodes, [(START, "child")], saver)
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["child@1|leave@1!after"]
    assert world.invoke(graph, None, thread_id="t") == {"log": ["left", "b"]}


def test_without_a_saver_the_pause_is_told(world: World, ran: Ran) -> None:
    """6.11: as any pause."""
    graph = build(State, {"a": asking(world, ran)}, [(START, "a")])
    assert ids(world.invoke(graph, {})) == ["a@1!after"]


def test_streams_end_with_the_pause_and_show_no_edge() -> None:
    """13.1, 7.3: deciding an edge writes nothing, so it is no update and no new value."""
    ran, world, saver = Ran(), World("sync"), InMemorySaver()
    graph = routed(world, ran, saver, interrupt_after=["a"], interrupt_before_edge=True)
    modes = {"stream_mode": ["updates", "values"], "thread_id": "t"}
    first = [(mode, list(data)) for mode, data in world.stream(graph, {"to": "b"}, **modes)]
    assert first[-2:] == [("updates", ["__interrupt__"]), ("values", ["to", "log", "__interrupt__"])]
    assert [mode for mode, _ in world.stream(graph, None, **modes)] == ["updates", "values"]
