"""Edits in the name of a node: its last outcome is replaced (9.3)."""

import operator
from typing import Annotated, Any, TypedDict

import pytest

from pregel import (
    END,
    InvalidRequestError,
    InvalidTargetError,
    InvalidUpdateError,
    NoCheckpointError,
    Saver,
    Send,
    StateUpdate,
    interrupt,
)
from tests.helpers import START, Ran, World, build, ids

AT: dict[str, Any] = {"configurable": {"thread_id": "t"}}


class State(TypedDict, total=False):
    to: str
    log: Annotated[list[str], operator.add]


def step(world: World, ran: Ran, name: str) -> Any:
    def node(state: State) -> State:
        ran(name)
        return {"log": [name]}

    return world.node(node)


def ask(world: World, ran: Ran, name: str) -> Any:
    def node(state: State) -> State:
        ran(name)
        return {"log": [f"{name} {interrupt(name)}"]}

    return world.node(node)


def routed(world: World, ran: Ran, saver: Any, **options: Any) -> Any:
    """Return a -?-> b or c, which both ask."""
    nodes = {"a": step(world, ran, "a"), "b": ask(world, ran, "b"), "c": ask(world, ran, "c")}
    branches = [("a", lambda s: s.get("to", "b"), ["b", "c", END])]
    return build(State, nodes, [(START, "a")], saver, branches=branches, **options)


def test_the_edges_of_the_node_are_decided_on_the_new_state(world: World, saver: Saver, ran: Ran) -> None:
    """9.3: what it had woken is withdrawn with its question, and listed."""
    graph = routed(world, ran, saver)
    (asked,) = ids(world.invoke(graph, {}, thread_id="t"))
    config = world.update(graph, AT, {"to": "c"}, "a")
    state = world.state(graph, config)
    assert (state.next, state.interrupts, state.status) == (("c",), (), "running")
    assert state.metadata["discarded"] == [asked.partition("#")[0]]
    assert [i.value for i in world.invoke(graph, None, thread_id="t")["__interrupt__"]] == ["c"]
    assert world.resume(graph, "yes", thread_id="t")["log"] == ["a", "c yes"]
    assert ran.counts == {"a": 1, "b": 1, "c": 2}


def test_the_same_route_again_is_a_new_task(world: World, saver: Saver, ran: Ran) -> None:
    """9.3: the old question is gone, an answer to it is refused, the node asks anew under a new id."""
    graph = routed(world, ran, saver)
    (old,) = ids(world.invoke(graph, {}, thread_id="t"))
    world.update(graph, AT, {"log": ["edited"]}, "a")
    with pytest.raises(InvalidRequestError, match="pending"):
        world.resume(graph, answers={old: 1}, thread_id="t")
    (new,) = ids(world.invoke(graph, None, thread_id="t"))
    assert new != old
    assert world.resume(graph, "yes", thread_id="t")["log"] == ["a", "edited", "b yes"]


def test_a_route_to_the_end_ends_the_run(world: World, saver: Saver, ran: Ran) -> None:
    """9.3: nothing is left to run."""
    graph = routed(world, ran, saver)
    world.invoke(graph, {}, thread_id="t")
    world.update(graph, AT, {"to": END}, "a")
    state = world.state(graph, thread_id="t")
    assert (state.status, state.next) == ("done", ())
    assert world.invoke(graph, None, thread_id="t")["log"] == ["a"]


def test_a_finished_thread_goes_on_after_the_node(world: World, saver: Saver, ran: Ran) -> None:
    """9.3: its edges are walked again from the state as it is now."""
    nodes = {name: step(world, ran, name) for name in "abc"}
    graph = build(State, nodes, [(START, "a"), ("a", "b"), ("b", "c")], saver)
    world.invoke(graph, {}, thread_id="t")
    world.update(graph, AT, {"log": ["as a"]}, "a")
    assert world.state(graph, thread_id="t").next == ("b",)
    assert world.invoke(graph, None, thread_id="t")["log"] == ["a", "b", "c", "as a", "b", "c"]


def test_tasks_woken_by_others_stay_with_their_questions(world: World, saver: Saver, ran: Ran) -> None:
    """9.3: ids, records and answers of what has nothing to do with the node."""
    nodes = {n: (step if n in "ab" else ask)(world, ran, n) for n in "abcd"}
    graph = build(State, nodes, [(START, "a"), (START, "b"), ("a", "c"), ("b", "d"), ("b", "c")], saver)
    paused = world.invoke(graph, {}, thread_id="t")
    assert ids(paused) == ["c@2#0", "d@2#0"]
    world.update(graph, AT, {"log": ["as a"]}, "a")
    assert [i.id for i in world.state(graph, thread_id="t").interrupts] == ids(paused)
    done = world.resume(graph, answers={"c@2#0": 1, "d@2#0": 2}, thread_id="t")
    assert done["log"] == ["a", "b", "as a", "c 1", "d 2"]


def test_what_a_finished_task_has_used_stays(world: World, saver: Saver, ran: Ran) -> None:
    """9.3: a sibling that has ended keeps its result; the node's message to it was spent."""
    nodes = {"a": step(world, ran, "a"), "b": step(world, ran, "b"), "c": ask(world, ran, "c")}
    graph = build(State, nodes, [(START, "a"), ("a", "b"), ("a", "c")], saver)
    world.invoke(graph, {}, thread_id="t")
    world.update(graph, AT, {"log": ["as a"]}, "a")
    (again,) = ids(world.invoke(graph, None, thread_id="t"))
    assert again != "c@2#0"
    assert world.resume(graph, "yes", thread_id="t")["log"] == ["a", "as a", "b", "c yes"]
    assert ran.counts["b"] == 1


@pytest.mark.parametrize("fired", [True, False], ids=["fired", "half filled"])
def test_a_join_counts_the_node_once(world: World, saver: Saver, ran: Ran, fired: bool) -> None:
    """9.3, 2.6: a barrier that has fired is half filled again until the node's message comes."""
    nodes = {"a": step(world, ran, "a"), "b": (step if fired else ask)(world, ran, "b"), "j": ask(world, ran, "j")}
    graph = build(State, nodes, [(START, "a"), (START, "b"), (["a", "b"], "j")], saver)
    world.invoke(graph, {}, thread_id="t")
    world.update(graph, AT, {"log": ["as a"]}, "a")
    if not fired:
        world.resume(graph, "yes", thread_id="t")
    else:
        world.invoke(graph, None, thread_id="t")
    done = world.resume(graph, "yes", thread_id="t")
    assert done["log"][-1] == "j yes"
    state = world.state(graph, thread_id="t")
    assert (state.status, state.stalled) == ("done", {})


def test_an_end_clears_what_is_pending_and_keeps_what_is_finished(world: World, saver: Saver, ran: Ran) -> None:
    """9.3: as_node=END; questions go, a finished sibling's update is merged."""
    nodes = {"a": step(world, ran, "a"), "b": ask(world, ran, "b"), "c": step(world, ran, "c")}
    graph = build(State, nodes, [(START, "a"), (START, "b"), ("a", "c")], saver, interrupt_before=["c"])
    world.invoke(graph, {}, thread_id="t")
    world.update(graph, AT, {"log": ["enough"]}, END)
    state = world.state(graph, thread_id="t")
    assert (state.status, state.next, state.interrupts) == ("done", (), ())
    assert state.values["log"] == ["a", "enough"]
    assert state.metadata["discarded"] == ["b@1"]


def test_an_end_that_cannot_keep_what_is_finished_is_refused(world: World, saver: Saver, ran: Ran) -> None:
    """9.3, 2.1: two finished siblings wrote one key; nothing is written, and the error is the state's own."""
    nodes = {n: world.node(lambda s, n=n: {"to": n}) for n in "ab"} | {"c": ask(world, ran, "c")}
    graph = build(State, nodes, [(START, n) for n in "abc"], saver)
    paused = world.invoke(graph, {}, thread_id="t")
    with pytest.raises(InvalidUpdateError, match="'to'"):
        world.update(graph, AT, {}, END)
    assert ids(world.recover(graph, thread_id="t")) == ids(paused)


def test_a_second_end_folds_nothing_again(world: World, saver: Saver, ran: Ran) -> None:
    """9.3: what was finished is kept once, whatever follows in the same transaction."""
    nodes = {"a": step(world, ran, "a"), "b": ask(world, ran, "b")}
    graph = build(State, nodes, [(START, "a"), (START, "b")], saver)
    world.invoke(graph, {}, thread_id="t")
    world.call(graph, "bulk_update_state", AT, [[StateUpdate({}, END)], [StateUpdate({}, END)]])
    assert world.state(graph, thread_id="t").values["log"] == ["a"]


def test_a_child_that_is_ended_hands_back_what_its_tasks_had_finished(world: World, saver: Saver, ran: Ran) -> None:
    """9.3, 8.1: their writes to keys that the parent reduces are among them."""
    child = build(State, {"a": step(world, ran, "a"), "b": ask(world, ran, "b")}, [(START, "a"), (START, "b")])
    graph = build(State, {"child": child}, [(START, "child")], saver)
    world.invoke(graph, {}, thread_id="t")
    world.update(graph, {"configurable": {"thread_id": "t", "checkpoint_ns": "child@1"}}, {"log": ["enough"]}, END)
    assert world.invoke(graph, None, thread_id="t")["log"] == ["a", "enough"]


def test_a_start_enters_anew(world: World, saver: Saver, ran: Ran) -> None:
    """9.3: in the sync call as in the async one, and then an edit without a node keeps what is due."""
    graph = routed(world, ran, saver)
    world.invoke(graph, {}, thread_id="t")
    world.update(graph, AT, {"to": "c"}, START)
    assert set(world.state(graph, thread_id="t").next) == {"a", "b"}
    world.update(graph, AT, {"log": ["edited"]})
    assert set(world.state(graph, thread_id="t").next) == {"a", "b"}


def test_a_node_that_only_packets_reach_needs_the_task(world: World, saver: Saver, ran: Ran) -> None:
    """9.3: each packet has an outcome of its own; what that one has sent is withdrawn."""

    def fan(state: State) -> list[Send]:
        return [Send("w", {"log": [str(n)]}) for n in range(2)]

    def onward(state: State) -> list[Send]:
        return [Send("v", {"to": state["log"][0]})]

    def work(state: State) -> State:
        return {"log": [f"w{state['log'][0]}"]}

    def last(state: State) -> State:
        return {"log": [f"v{state['to']} {interrupt(state['to'])}"]}

    nodes = {"a": step(world, ran, "a"), "w": world.node(work), "v": world.node(last)}
    graph = build(State, nodes, [(START, "a")], saver, branches=[("a", fan, ["w"]), ("w", onward, ["v"])])
    world.invoke(graph, {}, thread_id="t")
    with pytest.raises(InvalidRequestError, match="only reached by Send"):
        world.update(graph, AT, {}, "w")
    with pytest.raises(InvalidRequestError, match="is none of node 'w'"):
        world.update(graph, AT, {}, "w", task_id="v@3.0")
    with pytest.raises(InvalidRequestError, match="give as_node too"):
        world.update(graph, AT, {}, task_id="w@2.0")
    assert [task.id for task in world.state(graph, thread_id="t").tasks] == ["v@3.0", "v@3.1"]
    config = world.update(graph, AT, {}, "w", task_id="w@2.1")
    number = int(config["configurable"]["checkpoint_id"])
    assert [task.id for task in world.state(graph, thread_id="t").tasks] == ["v@3.0", f"v@{number}.0"]


@pytest.mark.parametrize("router", ["raises", "asks", "nowhere"])
def test_a_router_that_does_not_decide_refuses_the_edit(world: World, saver: Saver, ran: Ran, router: str) -> None:
    """9.3: nothing is written."""

    def route(state: State) -> str:
        if state.get("to") is None:
            return "b"
        if router == "raises":
            raise LookupError("no route")
        return interrupt("where?") if router == "asks" else "nowhere"

    nodes = {"a": step(world, ran, "a"), "b": ask(world, ran, "b")}
    graph = build(State, nodes, [(START, "a")], saver, branches=[("a", route)])
    paused = world.invoke(graph, {}, thread_id="t")
    before = world.history(graph, thread_id="t")
    kinds = {"raises": LookupError, "asks": InvalidRequestError, "nowhere": InvalidTargetError}
    with pytest.raises(kinds[router]):
        world.update(graph, AT, {"to": "x"}, "a")
    assert world.history(graph, thread_id="t") == before
    assert ids(world.recover(graph, thread_id="t")) == ids(paused)


def test_a_pause_before_the_new_target_is_made(world: World, saver: Saver, ran: Ran) -> None:
    """9.3, 7.1: and passed by the next resume."""
    graph = routed(world, ran, saver, interrupt_before=["c"])
    world.invoke(graph, {}, thread_id="t")
    world.update(graph, AT, {"to": "c"}, "a")
    assert [i.when for i in world.recover(graph, thread_id="t")["__interrupt__"]] == ["before"]
    assert [i.when for i in world.invoke(graph, None, thread_id="t")["__interrupt__"]] == ["inside"]


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("memory", [None, True], ids=["plain", "memory"])
def test_a_nested_graph_is_edited_as_one_of_its_nodes(
    world: World, saver: Saver, ran: Ran, depth: int, memory: Any
) -> None:
    """9.3, 8.7: by its namespace; the tasks above go on in the new way, and a question that is gone is not shown."""
    child = routed(world, ran, memory, name="child")
    namespace = "child" if memory else "child@1"
    for level in range(depth - 1):
        child = build(State, {"child": child}, [(START, "child")], memory, name=f"around {level}")
        namespace = f"child|{namespace}" if memory else f"child@1|{namespace}"
    graph = build(State, {"child": child}, [(START, "child")], saver)
    world.invoke(graph, {}, thread_id="t")
    below = {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}
    world.update(graph, below, {"to": "c"}, "a")
    assert world.state(graph, below).next == ("c",)
    assert world.call(graph, "pending", "t") == []
    (asked,) = world.invoke(graph, None, thread_id="t")["__interrupt__"]
    assert (asked.value, "|".join(asked.namespace)) == ("c", namespace)
    assert world.resume(graph, "yes", thread_id="t")["log"] == ["a", "c yes"]


def test_a_memory_below_a_graph_without_one_is_not_edited_as_a_node(world: World, saver: Saver, ran: Ran) -> None:
    """9.3: the level between would not know; without as_node it may be edited."""
    child = routed(world, ran, True, name="child")
    middle = build(State, {"child": child}, [(START, "child")], name="middle")
    graph = build(State, {"middle": middle}, [(START, "middle")], saver)
    paused = world.invoke(graph, {}, thread_id="t")
    below = {"configurable": {"thread_id": "t", "checkpoint_ns": "middle|child"}}
    with pytest.raises(InvalidRequestError, match="cannot be edited as a node"):
        world.update(graph, below, {"to": "c"}, "a")
    world.update(graph, below, {"to": "c"})
    assert ids(world.recover(graph, thread_id="t")) == ids(paused)


def test_an_old_checkpoint_is_edited_as_a_branch(world: World, saver: Saver, ran: Ran) -> None:
    """9.4: new ids, nothing of the other branch."""
    graph = routed(world, ran, saver)
    world.invoke(graph, {}, thread_id="t")
    old = world.state(graph, thread_id="t").config
    world.resume(graph, "first", thread_id="t")
    world.update(graph, old, {"to": "c"}, "a")
    assert [i.value for i in world.invoke(graph, None, thread_id="t")["__interrupt__"]] == ["c"]
    assert world.resume(graph, "second", thread_id="t")["log"] == ["a", "c second"]


def test_several_edits_are_one_transaction(world: World, saver: Saver, ran: Ran) -> None:
    """9.3: one checkpoint each; a wrong one refuses them all."""
    graph = routed(world, ran, saver)
    world.invoke(graph, {}, thread_id="t")
    before = len(world.history(graph, thread_id="t"))
    steps = [[StateUpdate({"log": ["one"]})], [StateUpdate({"log": ["two"]}), StateUpdate({"to": "c"}, "a")]]
    world.call(graph, "bulk_update_state", AT, steps)
    newest, second, *_ = world.history(graph, thread_id="t")
    assert newest.values["log"] == ["a", "one", "two"]
    assert second.values["log"] == ["a", "one"]
    assert newest.next == ("c",)
    with pytest.raises(InvalidUpdateError, match="nope"):
        world.call(graph, "bulk_update_state", AT, [[StateUpdate({"log": ["x"]})], [StateUpdate({"nope": 1})]])
    assert len(world.history(graph, thread_id="t")) == before + 2


@pytest.mark.parametrize("wrong", [[], [[]], "x", [StateUpdate({})], [[{}]], 3])
def test_what_are_no_steps_of_updates_is_refused(world: World, saver: Saver, ran: Ran, wrong: Any) -> None:
    """9.3: by its shape."""
    graph = routed(world, ran, saver)
    world.invoke(graph, {}, thread_id="t")
    with pytest.raises(InvalidRequestError, match="StateUpdate"):
        world.call(graph, "bulk_update_state", AT, wrong)


def test_a_wrong_node_or_thread_is_refused(world: World, saver: Saver, ran: Ran) -> None:
    """9.3: with the nearest name; an edit begins no thread."""
    graph = routed(world, ran, saver)
    with pytest.raises(NoCheckpointError):
        world.update(graph, AT, {}, "a")
    world.invoke(graph, {}, thread_id="t")
    with pytest.raises(InvalidRequestError, match=r"as_node='aa' is no node; did you mean 'a'\?"):
        world.update(graph, AT, {}, "aa")
