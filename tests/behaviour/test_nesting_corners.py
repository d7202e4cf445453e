"""Where pauses, child graphs and their memories meet: what was once wrong there, by kind (4.1, 6 to 9)."""

import asyncio
import operator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest

from pregel import (
    END,
    CallOrderError,
    Command,
    GraphChangedError,
    GraphInterrupt,
    InvalidAnswerError,
    InvalidRequestError,
    NodeTimeoutError,
    Overwrite,
    RetryPolicy,
    Runtime,
    Saver,
    Send,
    interrupt,
)
from tests.helpers import START, Ran, World, build, ids


class State(TypedDict, total=False):
    x: int
    y: Any
    log: Annotated[list[Any], operator.add]


class Memory(TypedDict, total=False):
    i: int
    seen: Annotated[list[int], operator.add]


@dataclass
class Price:
    amount: int


class Priced(TypedDict, total=False):
    x: int
    price: Price


AT: dict[str, Any] = {"configurable": {"thread_id": "t"}}


def below(namespace: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}


def remembering(world: World, *, asks: bool = False, ran: Ran | None = None) -> Any:
    """Return a child that adds i to what it has seen, and asks before if it is told to."""

    def before(state: Memory) -> None:
        if ran is not None:
            ran(str(state["i"]))

    def add(state: Memory) -> Memory:
        return {"seen": [interrupt(state["i"]) if asks else state["i"]]}

    nodes = {"before": world.node(before), "add": world.node(add)}
    return build(Memory, nodes, [(START, "before"), ("before", "add")], True, name="memory")


def caller(child: Any, key: Any = None) -> Any:
    """Return a node that calls the child with x, and counts x up."""

    async def call(state: State) -> State:
        found = await child.ainvoke({"i": state.get("x", 0)}, **({"key": key} if key else {}))
        return {"log": [list(found["seen"])], "x": state.get("x", 0) + 1}

    return call


# --- what a child hands back --------------------------------------------------------------------------------------


def test_a_child_that_overwrites_hands_back_one_overwrite(world: World, saver: Saver) -> None:
    """8.1, 2.2: whatever it wrote before and after, in one step of its parent."""
    steps: list[Any] = [["a"], Overwrite(["b"]), ["c"]]
    nodes = {f"n{n}": world.node(lambda s, write=write: {"log": write}) for n, write in enumerate(steps)}
    child = build(State, nodes, [(START, "n0"), ("n0", "n1"), ("n1", "n2")])
    graph = build(State, {"child": child}, [(START, "child")], saver)
    assert world.invoke(graph, {"log": ["in"]}, thread_id="t")["log"] == ["b", "c"]


def test_an_edit_of_a_paused_child_is_handed_back(world: World, saver: Saver) -> None:
    """9.3, 8.1: of keys that the parent reduces as of others."""
    nodes: dict[str, Any] = {
        "write": lambda s: {"log": ["wrong"], "y": 1},
        "ask": world.node(lambda s: {"x": interrupt("?")}),
    }
    child = build(State, nodes, [(START, "write"), ("write", "ask")])
    graph = build(State, {"child": child}, [(START, "child")], saver)
    world.invoke(graph, {}, thread_id="t")
    world.update(graph, below("child@1"), {"log": Overwrite(["right"]), "y": 2})
    world.update(graph, below("child@1"), {"log": ["more"]})
    assert world.resume(graph, 1, thread_id="t") == {"log": ["right", "more"], "x": 1, "y": 2}


def test_an_edit_of_a_child_that_has_ended_is_refused(world: World, saver: Saver) -> None:
    """9.3: what it wrote is with its caller already, so the edit would be shown and have no effect."""
    child = build(State, {"a": lambda s: {"y": 1}}, [(START, "a")])
    nodes = {"child": child, "ask": world.node(lambda s: {"x": interrupt("?")})}
    graph = build(State, nodes, [(START, "child"), (START, "ask")], saver)
    world.invoke(graph, {}, thread_id="t")
    with pytest.raises(InvalidRequestError, match="has ended, and what it wrote is with its caller"):
        world.update(graph, below("child@1"), {"y": 2})


# --- branches of the history ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("memory", [None, True], ids=["plain", "memory"])
def test_a_branch_does_not_see_a_later_edit_of_its_child(world: World, saver: Saver, depth: int, memory: Any) -> None:
    """9.4: fork-and-answer takes the child as it was at that checkpoint; every level above has a commit of its own."""

    def ask(state: State) -> State:
        return {"y": state["x"] * 10 + interrupt("?")}

    child = build(State, {"ask": world.node(ask)}, [(START, "ask")], memory, name="child")
    namespace = "child" if memory else "child@1"
    for level in range(depth - 1):
        child = build(State, {"child": child}, [(START, "child")], name=f"around {level}")
        namespace = f"child|{namespace}" if memory else f"child@1|{namespace}"
    graph = build(State, {"child": child}, [(START, "child")], saver)
    world.invoke(graph, {"x": 1}, thread_id="t")
    before = world.state(graph, thread_id="t").config
    world.update(graph, below(namespace), {"x": 9})
    assert world.resume(graph, 1, before)["y"] == 11


def test_an_edit_counts_at_every_depth(world: World, saver: Saver) -> None:
    """9.3: the newest branch does see it."""

    def ask(state: State) -> State:
        return {"y": state["x"] * 10 + interrupt("?")}

    child = build(State, {"ask": world.node(ask)}, [(START, "ask")])
    for _ in range(2):
        child = build(State, {"child": child}, [(START, "child")])
    graph = build(State, {"child": child}, [(START, "child")], saver)
    paused = world.invoke(graph, {"x": 1}, thread_id="t")
    for x in (8, 9):
        world.update(graph, below("child@1|child@1|child@1"), {"x": x})
    world.update(graph, AT, {"log": ["edited"]})
    assert ids(world.recover(graph, thread_id="t")) == ids(paused)
    assert world.resume(graph, 1, thread_id="t")["y"] == 91


# --- memories -------------------------------------------------------------------------------------------------------


def test_a_memory_within_a_memory_is_used_by_one_task_of_a_step(world: World, saver: Saver, ran: Ran) -> None:
    """8.5: packets within a graph that has a memory itself are told apart as any others."""
    inner = remembering(world, asks=True, ran=ran)

    async def call(i: int) -> State:
        return {"log": [(await inner.ainvoke({"i": i}))["seen"]]}

    nodes = {"start": lambda s: Command(goto=[Send("call", 1), Send("call", 2)]), "call": call}
    middle = build(State, nodes, [(START, "start")], True, name="middle")
    graph = build(State, {"middle": middle}, [(START, "middle")], saver)
    with pytest.raises(CallOrderError, match=r"tasks 'middle\|call@2\.[01]' and 'middle\|call@2\.[01]'"):
        world.invoke(graph, {}, thread_id="t")


def test_an_edit_of_an_idle_memory_outlives_a_child_that_was_paused(world: World, saver: Saver) -> None:
    """8.5, 9.3: a child hands up only how far the memories below it got in its own run."""
    child = remembering(world)
    ask = build(State, {"ask": world.node(lambda s: {"y": interrupt("?")})}, [(START, "ask")], name="asking")
    nodes: dict[str, Any] = {"n": caller(child), "a": ask}
    branches = [("a", lambda s: "n" if s["x"] < 2 else END, ["n", END])]
    graph = build(State, nodes, [(START, "n"), ("n", "a")], saver, branches=branches)
    world.invoke(graph, {}, thread_id="t")
    world.update(child.with_checkpointer(saver), below("n"), {"seen": [7]})
    world.resume(graph, 1, thread_id="t")
    assert world.state(graph, thread_id="t").values["log"] == [[0], [0, 7, 1]]


def test_an_edit_of_a_memory_whose_call_is_not_folded_is_refused(world: World, saver: Saver) -> None:
    """9.3: its caller has the result."""
    child = remembering(world)
    nodes: dict[str, Any] = {"n": caller(child), "ask": world.node(lambda s: {"y": interrupt("?")})}
    graph = build(State, nodes, [(START, "n"), (START, "ask")], saver)
    world.invoke(graph, {}, thread_id="t")
    with pytest.raises(InvalidRequestError, match="has ended"):
        world.update(child.with_checkpointer(saver), below("n"), {"seen": [7]})


def test_a_memory_below_is_edited_when_the_run_is_done(world: World, saver: Saver) -> None:
    """9.3: until then a level between may know a newer state of it."""
    child = remembering(world)
    nodes: dict[str, Any] = {"n": caller(child), "ask": world.node(lambda s: {"y": interrupt("?")})}
    middle = build(State, nodes, [(START, "n"), ("n", "ask")], name="middle")
    graph = build(State, {"middle": middle}, [(START, "middle")], saver)
    for expected in ([0], [0, 7, 0]):
        world.invoke(graph, {"x": 0}, thread_id="t")
        with pytest.raises(InvalidRequestError, match=r"has ended|is not done|nothing is stored"):
            world.update(child.with_checkpointer(saver), below("middle|n"), {"seen": [6]})
        assert world.resume(graph, 1, thread_id="t")["log"][-1] == expected
        world.update(child.with_checkpointer(saver), below("middle|n"), {"seen": [7]})


def test_a_memory_that_a_router_calls_is_kept(world: World, saver: Saver) -> None:
    """8.5, 4.1: with its edge decided at once and later."""
    for late in (False, True):
        child = remembering(world)
        calls: list[Any] = []

        async def route(state: State, child: Any = child, calls: list[Any] = calls) -> str:
            calls.append((await child.ainvoke({"i": state["x"]}))["seen"])
            return "n" if state["x"] < 3 else END

        nodes = {"n": world.node(lambda s: {"x": s.get("x", 0) + 1})}
        options: dict[str, Any] = {"interrupt_before_edge": True, "interrupt_after": ["n"]} if late else {}
        graph = build(State, nodes, [(START, "n")], saver, branches=[("n", route, ["n", END])], **options)
        result = world.invoke(graph, {}, thread_id=str(late))
        while "__interrupt__" in result:
            result = world.invoke(graph, None, thread_id=str(late))
        assert calls == [[1], [1, 2], [1, 2, 3]]


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [None, True], ids=["plain", "memory"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_two_calls_at_once_under_one_key_are_refused(world: World, saver: Saver, memory: Any, durability: str) -> None:
    """8.4, 8.5: with the same error in each durability, and nobody gets the other's result."""

    async def add(state: Memory) -> Memory:
        await asyncio.sleep(0)
        return {"seen": [state["i"]]}

    child = build(Memory, {"add": add}, [(START, "add")], memory, name="child")

    async def call(state: State, runtime: Runtime[Any]) -> State:
        found = await runtime.gather(*(child.ainvoke({"i": i}, key="k") for i in (1, 2)))
        return {"log": [one["seen"] for one in found]}

    graph = build(State, {"call": call}, [(START, "call")], saver)
    with pytest.raises(CallOrderError, match=r"two calls at once|of one super-step call it there"):
        world.invoke(graph, {}, thread_id="t", durability=durability)


def test_a_memory_is_called_once_under_a_key(world: World, saver: Saver) -> None:
    """8.5: a second call in the same step would be taken for the first."""
    child = remembering(world)

    async def call(state: State) -> State:
        for i in (1, 2):
            await child.ainvoke({"i": i}, key="chat")
        return {}

    graph = build(State, {"call": call}, [(START, "call")], saver)
    with pytest.raises(CallOrderError, match="of one super-step call it there"):
        world.invoke(graph, {}, thread_id="t")


def test_a_retry_sees_the_result_of_a_call_as_it_was(world: World, saver: Saver) -> None:
    """5.7, 2.4: not what the attempt before did to it."""
    child = build(State, {"a": lambda s: {"log": [[1]]}}, [(START, "a")], isolation="deep")
    tries = iter([True, True, False])

    async def call(state: State) -> State:
        found = (await child.ainvoke({}, key="k"))["log"]
        found[0].append("changed")
        if next(tries):
            raise ConnectionError
        return {"log": found}

    options = {"retry_policy": RetryPolicy(initial_interval=0)}
    graph = build(State, {"call": (call, options)}, [(START, "call")], saver, isolation="deep")
    assert world.invoke(graph, {}, thread_id="t")["log"] == [[1, "changed"]]


# --- withheld edges -------------------------------------------------------------------------------------------------


def logs(world: World, *names: str) -> dict[str, Any]:
    return {name: world.node(lambda s, name=name: {"log": [name]}) for name in names}


def stops(world: World, graph: Any) -> list[list[str]]:
    """Return the ids of each pause, and what was logged last."""
    seen, result = [], world.invoke(graph, {}, thread_id="t")
    while "__interrupt__" in result:
        seen.append(ids(result))
        result = world.invoke(graph, None, thread_id="t")
    return [*seen, result["log"]]


@pytest.mark.parametrize("late", [False, True], ids=["edge at once", "edge later"])
def test_a_deferred_node_pauses_once_and_when_it_is_next(world: World, saver: Saver, late: bool) -> None:
    """7.1, 3.4: while an edge is undecided nobody knows that nothing else is due."""
    nodes: dict[str, Any] = logs(world, "n", "m") | {"d": (logs(world, "d")["d"], {"defer": True})}
    lists: dict[str, Any] = {"interrupt_after": ["n", "m"], "interrupt_before": ["d"]}
    edges = [(START, "n"), (START, "d"), ("n", "m")]
    graph = build(State, nodes, edges, saver, **lists, interrupt_before_edge=late)
    seen = stops(world, graph)
    assert seen[-1] == ["n", "m", "d"]
    assert [id_.rpartition("!")[0].partition("@")[0] for stop in seen[:-1] for id_ in stop] == ["n", "m", "d"]


def test_a_join_fires_as_often_with_its_edges_decided_later(world: World, saver: Saver) -> None:
    """2.6, 7.3: messages of one step belong to one fill, whenever the edge of one of them is decided."""
    nodes: dict[str, Any] = {
        "n0": world.node(lambda s: {"log": ["n0"], "x": s.get("x", 0) + 1}),
        **logs(world, "n1", "n2"),
    }
    edges: list[tuple[Any, str]] = [(START, "n0"), ("n0", "n1"), (["n0", "n1"], "n2")]
    branches = [("n0", lambda s: "n0" if s["x"] < 2 else END, ["n0", END])]
    plain = world.invoke(build(State, nodes, edges, branches=branches), {})["log"]
    late: dict[str, Any] = {"interrupt_after": ["n0"], "interrupt_before_edge": True}
    assert sorted(stops(world, build(State, nodes, edges, saver, branches=branches, **late))[-1]) == sorted(plain)


def test_a_router_may_wish_for_a_pause(world: World, saver: Saver) -> None:
    """7.4: it is part of its node's task."""

    def route(state: State, runtime: Runtime[Any]) -> str:
        runtime.interrupt_after("routed")
        return "b"

    graph = build(State, logs(world, "a", "b"), [(START, "a")], saver, branches=[("a", route, ["b"])])
    assert [(i.id, i.value) for i in world.invoke(graph, {}, thread_id="t")["__interrupt__"]] == [
        ("a@1!after", "routed")
    ]
    assert world.invoke(graph, None, thread_id="t")["log"] == ["a", "b"]


# --- questions ------------------------------------------------------------------------------------------------------


def test_an_answer_of_a_type_that_only_the_root_knows_reaches_a_child(world: World, saver: Saver) -> None:
    """6.13, 12.1: it is read as it was written."""

    class Root(TypedDict, total=False):
        x: int
        price: Price

    child = build(State, {"ask": world.node(lambda s: {"x": interrupt("?").amount})}, [(START, "ask")], name="child")
    graph = build(Root, {"child": child}, [(START, "child")], saver)
    world.invoke(graph, {}, thread_id="t")
    assert world.resume(graph, Price(3), thread_id="t")["x"] == 3


def test_questions_of_another_run_are_asked_as_ones_own(world: World, saver: Saver) -> None:
    """6.8, 8.6: the ids that they had there mean nothing here."""
    other = build(State, {"ask": lambda s: {"y": interrupt("inner?", schema=str)}}, [(START, "ask")], saver)

    def relay(state: State, runtime: Runtime[Any]) -> Any:
        if runtime.answers:
            return {"y": other.resume(runtime.answers[0], thread_id="inner")["y"]}
        return GraphInterrupt(other.invoke({}, thread_id="inner")["__interrupt__"])

    nodes = {"relay": relay, "ask": lambda s: {"log": [interrupt("mine?")]}}
    graph = build(State, nodes, [(START, "relay"), (START, "ask")], saver)
    paused = world.invoke(graph, {}, thread_id="t")
    assert [(i.id, i.value) for i in paused["__interrupt__"]] == [("relay@1#0", "inner?"), ("ask@1#0", "mine?")]
    with pytest.raises(InvalidAnswerError, match="expected string"):
        world.resume(graph, answers={"relay@1#0": 1}, thread_id="t")
    done = world.resume(graph, answers={"relay@1#0": "in", "ask@1#0": "my"}, thread_id="t")
    assert done == {"y": "in", "log": ["my"]}


def test_questions_that_branches_ask_come_in_a_fixed_order(world: World, saver: Saver) -> None:
    """3.1, 6.4: that of the awaitables, whoever asks first."""

    async def node(state: State, runtime: Runtime[Any]) -> State:
        async def ask(turns: int) -> Any:
            for _ in range(turns):
                await asyncio.sleep(0)
            return interrupt(turns, key=str(turns))

        return {"log": await runtime.gather(*(ask(turns) for turns in (3, 0, 2, 1)))}

    graph = build(State, {"n": node}, [(START, "n")], saver)
    asked = [i.value for i in world.invoke(graph, {}, thread_id="t")["__interrupt__"]]
    assert asked == [3, 0, 2, 1]


def test_what_is_pending_can_be_answered(world: World, saver: Saver) -> None:
    """6.5, 5.8: a question of a call that came too late is none."""

    async def late(state: State, runtime: Runtime[Any]) -> State:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return {"log": [interrupt("late")]}

    child = build(State, {"late": late}, [(START, "late")])
    graph = build(State, {"child": (child, {"timeout": 0.05})}, [(START, "child")], saver)
    with pytest.raises(NodeTimeoutError):
        world.invoke(graph, {}, thread_id="t")
    assert world.call(graph, "pending", "t") == list(world.state(graph, thread_id="t").interrupts) == []


def test_the_state_of_a_called_graph_is_shown_as_far_as_it_is_known(world: World, saver: Saver) -> None:
    """9.1: a type that only the called graph names does not hide the rest."""
    nodes: dict[str, Any] = {"a": lambda s: {"price": Price(2), "x": 1}, "ask": lambda s: {"x": interrupt("?")}}
    child = build(Priced, nodes, [(START, "a"), ("a", "ask")], name="child")

    async def call(state: State) -> State:
        return {"x": (await child.ainvoke({}))["x"]}

    graph = build(State, {"call": call}, [(START, "call")], saver)
    world.invoke(graph, {}, thread_id="t")
    assert [i.value for i in world.call(graph, "pending", "t")] == ["?"]
    inner = world.state(graph, subgraphs=True, thread_id="t").tasks[0].state
    assert inner is not None
    assert (inner.values, inner.next) == ({"x": 1}, ("ask",))
    own = child.with_checkpointer(saver)
    assert world.state(own, below("call@1")).values == {"x": 1, "price": Price(2)}


# --- input that is no input -----------------------------------------------------------------------------------------


def test_a_child_is_not_streamed_inside_a_node(world: World, saver: Saver) -> None:
    """6.5, 8.6: its pauses would be lost among its events."""
    child = build(State, {"ask": lambda s: {"x": interrupt("?")}}, [(START, "ask")], name="child")

    async def call(state: State) -> None:
        async for _ in child.astream({}):
            pass

    graph = build(State, {"call": call}, [(START, "call")], saver)
    with pytest.raises(InvalidRequestError, match="'child' is streamed inside a node"):
        world.invoke(graph, {}, thread_id="t")


@pytest.mark.parametrize("answers", [["ask@1#0"], 5, "ask@1#0"])
def test_answers_that_are_no_mapping_are_refused(world: World, saver: Saver, answers: Any) -> None:
    """6.6: by name, with nothing written."""
    graph = build(State, {"ask": lambda s: {"x": interrupt("?")}}, [(START, "ask")], saver)
    world.invoke(graph, {}, thread_id="t")
    with pytest.raises(InvalidRequestError, match="answers are a mapping"):
        world.resume(graph, answers=answers, thread_id="t")


@pytest.mark.parametrize("namespace", [5, None, b"x", ["x"], "\0"])
def test_a_namespace_that_is_no_text_is_refused(world: World, saver: Saver, namespace: Any) -> None:
    """9.1, 9.2: by each way to read."""
    graph = build(State, {"a": lambda s: None}, [(START, "a")], saver)
    for read in (world.state, world.history):
        with pytest.raises(InvalidRequestError, match="a checkpoint_ns is text"):
            read(graph, below(namespace))
    with pytest.raises(InvalidRequestError, match="a checkpoint_ns is text"):
        world.update(graph, below(namespace), {})


# --- reading and names ----------------------------------------------------------------------------------------------


def test_a_called_graph_with_the_name_of_its_caller_is_not_taken_for_it(world: World, saver: Saver) -> None:
    """9.1, 9.3: the same state class and first node give the same name; the nodes tell them apart."""
    nodes: dict[str, Any] = {"n": lambda s: None, "ask": lambda s: {"x": interrupt("?")}}
    child = build(State, nodes, [(START, "n"), ("n", "ask")])

    async def call(state: State) -> State:
        return {"x": (await child.ainvoke({"x": 1}))["x"]}

    graph = build(State, {"n": call}, [(START, "n")], saver)
    assert graph.name == child.name
    world.invoke(graph, {}, thread_id="t")
    assert [i.value for i in world.call(graph, "pending", "t")] == ["?"]
    inner = world.state(graph, subgraphs=True, thread_id="t").tasks[0].state
    assert inner is not None
    assert inner.next == ("ask",)
    with pytest.raises(InvalidRequestError, match="with_checkpointer"):
        world.update(graph, below("n@1"), {"x": 2})
    world.update(child.with_checkpointer(saver), below("n@1"), {"log": ["edited"]})


def test_an_old_answer_map_of_a_memory_is_no_value(world: World, saver: Saver) -> None:
    """6.6, 8.5: its ids have names where others have tasks."""
    child = build(State, {"ask": lambda s: {"log": [interrupt("?")]}}, [(START, "ask")], True)
    graph = build(State, {"child": child}, [(START, "child")], saver)
    old = ids(world.invoke(graph, {}, thread_id="t"))[0]
    world.resume(graph, 1, thread_id="t")
    world.invoke(graph, {}, thread_id="t")
    with pytest.raises(InvalidAnswerError, match="unknown, or answered before"):
        world.invoke(graph, Command(resume={old: 1}), thread_id="t")


def test_a_pending_packet_of_a_node_that_is_gone_is_named(world: World, saver: Saver) -> None:
    """9.7: by each way to read."""
    branches = [("a", lambda s: [Send("w", {})], ["w"])]
    nodes = {"a": lambda s: None, "w": lambda s: None}
    world.invoke(
        build(State, nodes, [(START, "a")], saver, branches=branches, interrupt_before=["w"]), {}, thread_id="t"
    )
    other = build(State, {"a": lambda s: None}, [(START, "a")], saver)
    with pytest.raises(GraphChangedError, match="'w'"):
        world.state(other, thread_id="t")
    with pytest.raises(GraphChangedError, match="'w'"):
        world.invoke(other, None, thread_id="t")


def test_a_question_keeps_the_time_of_its_first_asking(world: World, saver: Saver) -> None:
    """6.5: in each result, at any depth, as in `pending`."""

    async def several(state: State, runtime: Runtime[Any]) -> State:
        async def ask(key: str) -> Any:
            return interrupt(key, key=key)

        return {"log": await runtime.gather(*(ask(key) for key in "abc"))}

    child = build(State, {"several": several}, [(START, "several")])
    graph = build(State, {"child": child}, [(START, "child")], saver)
    first = {str(i.id): i.asked_at for i in world.invoke(graph, {}, thread_id="t")["__interrupt__"]}
    assert None not in first.values()
    for answered in list(first)[:2]:
        left = world.resume(graph, answers={answered: 1}, thread_id="t")["__interrupt__"]
        assert [i.asked_at for i in left] == [first[str(i.id)] for i in left]
        assert [i.asked_at for i in world.call(graph, "pending", "t")] == [i.asked_at for i in left]


def test_an_error_beside_questions_of_gather_is_noted(world: World, saver: Saver) -> None:
    """6.1: with the task that asks."""

    async def node(state: State, runtime: Runtime[Any]) -> State:
        async def ask() -> Any:
            return interrupt("?", key="k")

        async def fail() -> None:
            raise LookupError("lost")

        return {"log": await runtime.gather(ask(), fail())}

    graph = build(State, {"n": node}, [(START, "n")], saver)
    world.invoke(graph, {}, thread_id="t")
    assert repr(world.state(graph, thread_id="t").tasks[0].error) == "LookupError('lost')"
