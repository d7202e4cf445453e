"""What is seen and edited of graphs within graphs: their states, their open questions (6.5, 8.5, 8.7, 9.1, 9.3)."""

import operator
from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict

import pytest

from pregel import GraphInterrupt, InvalidRequestError, Runtime, Saver, Send, StateGraph, StateSnapshot, interrupt
from tests.helpers import START, Ran, World, build, ids

AT = {"configurable": {"thread_id": "t"}}


class State(TypedDict, total=False):
    x: int
    log: Annotated[list[Any], operator.add]


def below(namespace: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}


def asking(world: World, ran: Ran, **options: Any) -> Any:
    """Return a child that runs `first`, asks in `ask` and ends with `last`, each with the x that it sees."""

    def first(state: State) -> State:
        ran("first")
        return {"log": [("first", state.get("x"))]}

    def ask(state: State) -> State:
        ran("ask")
        return {"log": [("ask", state.get("x"), interrupt("?"))]}

    nodes = {"first": world.node(first), "ask": world.node(ask)}
    return build(State, nodes, [(START, "first"), ("first", "ask")], **{"name": "child", **options})


def calling(world: World, saver: Saver, child: Any, **options: Any) -> Any:
    """Return a graph whose function node calls the child twice."""

    async def call(state: State) -> State:
        found = await child.ainvoke({"x": 1})
        again = await child.ainvoke({"x": 2}, key="again")
        return {"log": [*found["log"], *again["log"]]}

    return build(State, {"call": call}, [(START, "call")], saver, name="outer", **options)


def tree(state: StateSnapshot) -> Any:
    """Return the names of what is due at each level."""
    return {task.id: [tree(child) for child in task.children] for task in state.tasks}


def test_a_state_has_the_states_below_it(world: World, saver: Saver, ran: Ran) -> None:
    """9.1: each pending task shows the graph that it runs, down to the last."""
    middle = build(State, {"child": asking(world, ran)}, [(START, "child")], name="middle")
    graph = build(State, {"middle": middle}, [(START, "middle")], saver)
    world.invoke(graph, {"x": 1}, thread_id="t")
    state = world.state(graph, subgraphs=True, thread_id="t")
    assert tree(state) == {"middle@1": [{"child@1": [{"ask@2": []}]}]}
    child = state.tasks[0].state.tasks[0].state  # type: ignore[union-attr] # as just seen
    assert child is not None
    assert (child.values, child.next, child.status) == ({"x": 1, "log": [("first", 1)]}, ("ask",), "paused")
    assert child.config["configurable"]["checkpoint_ns"] == "middle@1|child@1"
    assert world.state(graph, child.config).values == child.values
    assert tree(world.state(graph, thread_id="t")) == {"middle@1": []}


def test_every_packet_has_its_own_state(world: World, saver: Saver, ran: Ran) -> None:
    """9.1, 8.4: parallel runs of one child, finished ones included."""
    fan = [("start", lambda s: [Send("child", {"x": n}) for n in (1, 2)], ["child"])]
    nodes = {"start": lambda s: None, "child": asking(world, ran)}
    graph = build(State, nodes, [(START, "start")], saver, branches=fan)
    asked = ids(world.invoke(graph, {}, thread_id="t"))
    world.resume(graph, answers={asked[0]: "yes"}, thread_id="t")
    state = world.state(graph, subgraphs=True, thread_id="t")
    assert [(task.status, task.state and task.state.values["x"]) for task in state.tasks] == [
        ("done", 1),
        ("interrupted", 2),
    ]
    assert tree(state) == {"child@2.0": [{}], "child@2.1": [{"ask@2": []}]}


def test_a_graph_that_a_function_calls_is_shown_as_it_is_stored(world: World, saver: Saver, ran: Ran) -> None:
    """9.1: from the outer graph, which does not know it, and from its own."""
    child = asking(world, ran)
    graph = calling(world, saver, child)
    world.invoke(graph, {}, thread_id="t")
    world.resume(graph, "yes", thread_id="t")
    state = world.state(graph, subgraphs=True, thread_id="t")
    done, paused = state.tasks[0].children
    assert (done.status, done.values["log"]) == ("done", [("first", 1), ("ask", 1, "yes")])
    assert (paused.status, paused.next, paused.values["x"]) == ("paused", ("ask",), 2)
    assert [i.id for i in paused.interrupts] == ["call@1#=again|ask@2#0"]
    for reader in (graph, child.with_checkpointer(saver)):
        seen = world.state(reader, below("call@1#=again"))
        assert (seen.values, seen.next, seen.status) == (paused.values, ("ask",), "paused")
        assert world.history(reader, below("call@1"))[0].status == "done"


def test_a_join_and_packets_of_an_unknown_graph_are_shown(world: World, saver: Saver) -> None:
    """9.1: its scheduling is told as far as it is stored."""
    builder = StateGraph(State)
    for name in "abcd":
        builder.add_node(name, lambda s, name=name: {"log": [name]})
    builder.add_node("ask", lambda s: {"log": [interrupt("?")]})
    builder.add_edge(START, "a").add_edge(START, "b").add_edge("b", "c").add_edge(["a", "c"], "d")
    builder.add_conditional_edges("a", lambda s: [Send("ask", {}), Send("ask", {})], ["ask"])
    child = builder.compile(name="child")

    async def call(state: State) -> State:
        return {"log": (await child.ainvoke({}))["log"]}

    graph = build(State, {"call": call}, [(START, "call")], saver)
    world.invoke(graph, {}, thread_id="t")
    inner = world.state(graph, subgraphs=True, thread_id="t").tasks[0].state
    assert inner is not None
    assert [(task.id, task.status) for task in inner.tasks] == [
        ("c@2", "done"),
        ("ask@2.0", "interrupted"),
        ("ask@2.1", "interrupted"),
    ]


def test_an_edit_of_a_paused_child_by_its_namespace(world: World, saver: Saver, ran: Ran) -> None:
    """9.3, 8.7: the child's question stays, its nodes see the edit, nothing runs twice."""
    graph = build(State, {"child": asking(world, ran)}, [(START, "child")], saver)
    paused = world.invoke(graph, {"x": 1}, thread_id="t")
    world.update(graph, below("child@1"), {"x": 5})
    assert ids(world.recover(graph, thread_id="t")) == ids(paused)
    assert world.resume(graph, "yes", thread_id="t")["log"] == [("first", 1), ("ask", 5, "yes")]
    assert ran.counts == {"first": 1, "ask": 2}


def test_an_edit_of_the_parent_keeps_the_childs_progress(world: World, saver: Saver, ran: Ran) -> None:
    """8.7, 9.3: the child has its input already, and goes on where it was."""
    graph = build(State, {"child": asking(world, ran)}, [(START, "child")], saver)
    paused = world.invoke(graph, {"x": 1}, thread_id="t")
    for x in (5, 6):
        world.update(graph, AT, {"x": x, "log": ["edited"]})
    assert ids(world.recover(graph, thread_id="t")) == ids(paused)
    done = world.resume(graph, "yes", thread_id="t")
    assert done == {"x": 6, "log": ["edited", "edited", ("first", 1), ("ask", 1, "yes")]}
    assert ran.counts == {"first": 1, "ask": 2}


def test_an_edit_of_a_called_child_goes_by_its_own_graph(world: World, saver: Saver, ran: Ran) -> None:
    """9.3: the outer graph does not know how it folds, and says who does."""
    child = asking(world, ran)
    graph = calling(world, saver, child)
    world.invoke(graph, {}, thread_id="t")
    with pytest.raises(InvalidRequestError, match=r"holds the state of graph 'child'.*with_checkpointer"):
        world.update(graph, below("call@1"), {"x": 5})
    world.update(child.with_checkpointer(saver), below("call@1"), {"x": 5, "log": ["edited"]})
    world.resume(graph, "yes", thread_id="t")
    done = world.resume(graph, "no", thread_id="t")["log"]
    assert done == [("first", 1), "edited", ("ask", 5, "yes"), ("first", 2), ("ask", 2, "no")]


def test_a_memory_is_read_and_edited_whether_it_is_paused_or_idle(world: World, saver: Saver, ran: Ran) -> None:
    """8.5, 9.1, 9.3: by the names of nodes; an edit of an idle one is remembered by the next call."""
    graph = build(State, {"child": asking(world, ran, saver=True)}, [(START, "child")], saver)
    assert ids(world.invoke(graph, {"x": 1}, thread_id="t")) == ["child|ask@2#0"]
    assert tree(world.state(graph, subgraphs=True, thread_id="t")) == {"child@1": [{"ask@2": []}]}
    world.update(graph, below("child"), {"x": 2})
    world.resume(graph, "yes", thread_id="t")
    assert world.state(graph, below("child")).values["log"] == [("first", 1), ("ask", 2, "yes")]
    world.update(graph, below("child"), {"log": ["idle"]})
    idle = world.state(graph, below("child"))
    assert (idle.values["log"][-1], idle.status) == ("idle", "done")
    assert world.state(graph, thread_id="t").status == "done"


def test_an_edit_of_an_idle_memory_is_what_the_next_call_remembers(world: World, saver: Saver) -> None:
    """8.5, 9.3: keys that it does not share with its parent are its own."""

    class Child(TypedDict, total=False):
        x: int
        seen: Annotated[list[int], operator.add]
        log: Annotated[list[Any], operator.add]

    def look(state: Child) -> Child:
        return {"seen": [state["x"]], "log": [list(state["seen"])]}

    child = build(Child, {"look": world.node(look)}, [(START, "look")], True)
    graph = build(State, {"child": child}, [(START, "child")], saver)
    world.invoke(graph, {"x": 1}, thread_id="t")
    world.update(graph, below("child"), {"seen": [7]})
    world.update(graph, below("child"), {"seen": [8]})
    assert world.invoke(graph, {"x": 2}, thread_id="t")["log"] == [[], [1, 7, 8]]


def test_a_memory_further_down_is_found_while_paused_and_after(world: World, saver: Saver, ran: Ran) -> None:
    """8.5, 9.1: below a graph that has none."""
    middle = build(State, {"child": asking(world, ran, saver=True)}, [(START, "child")], name="middle")
    graph = build(State, {"middle": middle}, [(START, "middle")], saver)
    world.invoke(graph, {"x": 1}, thread_id="t")
    assert world.state(graph, below("middle|child")).next == ("ask",)
    assert tree(world.state(graph, subgraphs=True, thread_id="t")) == {"middle@1": [{"child@1": [{"ask@2": []}]}]}
    world.resume(graph, "yes", thread_id="t")
    assert world.state(graph, below("middle|child")).status == "done"
    assert world.state(graph, below("middle|other")).status is None


# --- what is open -------------------------------------------------------------------------------------------------


def test_all_open_questions_of_a_thread(world: World, saver: Saver, ran: Ran) -> None:
    """6.5: over all namespaces, with id, node, path, payload and time; what was answered is not open."""

    async def several(state: State, runtime: Runtime[Any]) -> Any:
        async def ask(key: str) -> Any:
            return interrupt(key, key=key)

        return {"log": await runtime.gather(ask("k"), ask("l"))}

    nodes = {"several": several, "child": asking(world, ran), "sure": lambda s: {"log": ["sure"]}}
    graph = build(State, nodes, [(START, name) for name in nodes], saver, interrupt_after=["sure"])
    before = datetime.now(UTC).isoformat()
    paused = world.invoke(graph, {}, thread_id="t")
    found = world.call(graph, "pending", "t")
    assert [(i.id, i.node, i.namespace, i.value) for i in found] == [
        ("several@1#=k", "several", (), "k"),
        ("several@1#=l", "several", (), "l"),
        ("child@1|ask@2#0", "ask", ("child@1",), "?"),
    ]
    assert found == paused["__interrupt__"]
    assert all(before <= i.asked_at <= datetime.now(UTC).isoformat() for i in found)
    times = {i.id: i.asked_at for i in found}
    world.resume(graph, answers={"several@1#=k": 1}, thread_id="t")
    left = world.call(graph, "pending", "t")
    assert {i.id: i.asked_at for i in left} == {id_: times[id_] for id_ in ("several@1#=l", "child@1|ask@2#0")}
    rest = world.resume(graph, answers={i.id: 2 for i in left}, thread_id="t")
    assert [i.when for i in rest["__interrupt__"]] == ["after"]
    assert world.call(graph, "pending", "t") == []


def test_a_question_whose_step_failed_is_open(world: World, saver: Saver) -> None:
    """5.4: the error is raised, the question stays pending."""

    def fails(state: State) -> State:
        raise LookupError("no")

    nodes = {"ask": world.node(lambda s: {"log": [interrupt("?")]}), "fails": world.node(fails)}
    graph = build(State, nodes, [(START, "ask"), (START, "fails")], saver)
    with pytest.raises(LookupError):
        world.invoke(graph, {}, thread_id="t", max_concurrency=1)
    assert [i.id for i in world.call(graph, "pending", "t")] == ["ask@1#0"]


def test_a_thread_without_questions_has_none_open(world: World, saver: Saver) -> None:
    """6.5, 9.1: nor has one that is not known."""
    graph = build(State, {"a": lambda s: None}, [(START, "a")], saver, interrupt_before=["a"])
    assert world.call(graph, "pending", "t") == []
    world.invoke(graph, {}, thread_id="t")
    assert world.call(graph, "pending", "t") == []


def test_what_a_node_raised_after_it_had_asked_is_shown(world: World, saver: Saver) -> None:
    """6.1: the pause stands, the error is noted with the task."""

    def node(state: State) -> Any:
        try:
            interrupt("?")
        except GraphInterrupt:
            raise OSError("closed") from None

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["a@1#0"]
    (task,) = world.state(graph, thread_id="t").tasks
    assert (task.status, repr(task.error)) == ("interrupted", "OSError('closed')")
