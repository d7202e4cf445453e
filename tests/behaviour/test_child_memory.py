"""Graphs within graphs that keep their memory over calls, and such that keep nothing (8.5)."""

import operator
from typing import Annotated, Any, TypedDict

import pytest

from pregel import (
    END,
    CallOrderError,
    GraphChangedError,
    InMemorySaver,
    InvalidRequestError,
    Saver,
    Send,
    StateGraph,
    interrupt,
)
from tests.helpers import START, Ran, World, build, ids


class Chat(TypedDict, total=False):
    said: str
    heard: Annotated[list[str], operator.add]
    reply: str


class Outer(TypedDict, total=False):
    said: str
    reply: str
    laps: int
    log: Annotated[list[str], operator.add]


def parrot(world: World, *, asks: str = "", **options: Any) -> Any:
    """Return a graph that remembers all it has heard; it asks before it hears what `asks` names."""

    def hear(state: Chat) -> Chat:
        extra = f"+{interrupt('really?')}" if state["said"] == asks else ""
        return {"heard": [state["said"] + extra]}

    def answer(state: Chat) -> Chat:
        return {"reply": " ".join(state["heard"])}

    builder = StateGraph(Chat)
    builder.add_node("hear", world.node(hear)).add_node("answer", world.node(answer))
    builder.add_edge(START, "hear").add_edge("hear", "answer")
    return builder.compile(**{"checkpointer": True, "name": "parrot", **options})


def as_node(world: World, saver: Saver, **options: Any) -> Any:
    return build(Outer, {"bird": parrot(world, **options)}, [(START, "bird")], saver)


def called(world: World, saver: Saver, child: Any, key: str | None = None) -> Any:
    """Return a graph whose function node calls the child."""

    def call(state: Outer) -> Outer:
        return {"reply": child.invoke({"said": state["said"]}, **({"key": key} if key else {}))["reply"]}

    async def acall(state: Outer) -> Outer:
        found = await child.ainvoke({"said": state["said"]}, **({"key": key} if key else {}))
        return {"reply": found["reply"]}

    return build(Outer, {"call": acall if world.is_async else call}, [(START, "call")], saver)


# --- a memory -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["node", "call", "key"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_memory_lasts_over_the_runs_of_a_thread(world: World, saver: Saver, how: str, durability: str) -> None:
    """8.5: each run adds to it; another thread has its own."""
    graph = (
        as_node(world, saver)
        if how == "node"
        else called(world, saver, parrot(world), key="k" if how == "key" else None)
    )
    options: dict[str, Any] = {"durability": durability}
    assert world.invoke(graph, {"said": "a"}, thread_id="t", **options)["reply"] == "a"
    assert world.invoke(graph, {"said": "b"}, thread_id="t", **options)["reply"] == "a b"
    assert world.invoke(graph, {"said": "c"}, thread_id="u", **options)["reply"] == "c"
    assert world.invoke(graph, {"said": "d"}, thread_id="t", **options)["reply"] == "a b d"


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_memory_lasts_over_the_laps_of_a_loop(world: World, saver: Saver, durability: str) -> None:
    """8.5: the same node in a later super-step goes on with what it knew, whatever its task id."""
    nodes = {"bird": parrot(world), "count": lambda s: {"laps": s.get("laps", 0) + 1, "log": [s["reply"]]}}
    branches = [("count", lambda s: "bird" if s["laps"] < 3 else END, ["bird", END])]
    graph = build(Outer, nodes, [(START, "bird"), ("bird", "count")], saver, branches=branches)
    options: dict[str, Any] = {"durability": durability}
    assert world.invoke(graph, {"said": "x"}, thread_id="t", **options)["log"] == ["x", "x x", "x x x"]


def test_a_memory_that_pauses_goes_on_and_later_begins_again(world: World, saver: Saver) -> None:
    """8.5: what is stored tells a resume from new input; a finished child is not skipped on the next visit."""
    graph = as_node(world, saver, asks="b")
    world.invoke(graph, {"said": "a"}, thread_id="t")
    asked = ids(world.invoke(graph, {"said": "b"}, thread_id="t"))
    assert world.resume(graph, "yes", thread_id="t")["reply"] == "a b+yes"
    again = ids(world.invoke(graph, {"said": "b"}, thread_id="t"))
    assert not set(asked) & set(again)
    assert world.resume(graph, "no", thread_id="t")["reply"] == "a b+yes b+no"


def test_a_memory_that_was_abandoned_knows_what_its_parent_knew(world: World, saver: Saver) -> None:
    """8.5, 6.12: new input drops the paused call; what it had written so far is not remembered."""

    def hear(state: Chat) -> Chat:
        return {"heard": [state["said"]]}

    def ask(state: Chat) -> Chat:
        return {"reply": interrupt("?") if state["said"] == "lost" else " ".join(state["heard"])}

    child = build(Chat, {"hear": hear, "ask": ask}, [(START, "hear"), ("hear", "ask")], True)
    graph = build(Outer, {"bird": child}, [(START, "bird")], saver)
    world.invoke(graph, {"said": "a"}, thread_id="t")
    assert ids(world.invoke(graph, {"said": "lost"}, thread_id="t"))
    assert world.invoke(graph, {"said": "b"}, thread_id="t")["reply"] == "a b"


def test_a_fork_starts_from_the_memory_as_its_parent_knew_it(world: World, saver: Saver) -> None:
    """8.5, 9.4: nothing of the other branch is read."""
    graph = as_node(world, saver)
    for said in "abc":
        world.invoke(graph, {"said": said}, thread_id="t")
    inputs = [s for s in world.history(graph, thread_id="t") if s.metadata["source"] == "input"]
    at = inputs[1].config["configurable"]["checkpoint_id"]
    assert world.call(graph, "fork", thread_id="t", checkpoint_id=at)["reply"] == "a b"
    assert world.invoke(graph, {"said": "d"}, thread_id="t")["reply"] == "a b d"


def test_a_memory_two_levels_down_lasts_as_well(world: World, saver: Saver) -> None:
    """8.5: the graph in between keeps nothing over calls, and hands up how far the memory below it got."""
    middle = build(Outer, {"bird": parrot(world, asks="c")}, [(START, "bird")], name="middle")
    graph = build(Outer, {"middle": middle}, [(START, "middle")], saver)
    world.invoke(graph, {"said": "a"}, thread_id="t")
    assert world.invoke(graph, {"said": "b"}, thread_id="t")["reply"] == "a b"
    assert ids(world.invoke(graph, {"said": "c"}, thread_id="t"))[0].startswith("middle|bird|hear@")
    assert world.resume(graph, "yes", thread_id="t")["reply"] == "a b c+yes"
    assert world.invoke(graph, {"said": "d"}, thread_id="t")["reply"] == "a b c+yes d"


def test_a_memory_within_a_memory_lasts(world: World, saver: Saver) -> None:
    """8.5: each keeps its own."""
    middle = StateGraph(Outer)
    middle.add_node("bird", parrot(world)).add_node("note", lambda s: {"log": [s["reply"]]})
    middle.add_edge(START, "bird").add_edge("bird", "note")
    graph = build(Outer, {"middle": middle.compile(checkpointer=True)}, [(START, "middle")], saver)
    world.invoke(graph, {"said": "a"}, thread_id="t")
    assert world.invoke(graph, {"said": "b"}, thread_id="t")["log"] == ["a", "a b"]


def test_parallel_memories_do_not_undo_each_other(world: World, saver: Saver) -> None:
    """8.5: siblings hand up only what moved on in them."""

    class Two(TypedDict, total=False):
        said: str
        log: Annotated[list[str], operator.add]

    def speak(child: Any, name: str) -> Any:
        async def node(state: Two) -> Two:
            found = await child.ainvoke({"said": name + state["said"]})
            return {"log": [found["reply"]]}

        return node

    child = parrot(world)
    nodes = {"one": speak(child, "1"), "two": speak(child, "2")}
    graph = build(Two, nodes, [(START, "one"), (START, "two")], saver)
    for said in "ab":
        world.invoke(graph, {"said": said}, thread_id="t")
    assert world.invoke(graph, {"said": "c"}, thread_id="t")["log"][-2:] == ["1a 1b 1c", "2a 2b 2c"]


def test_two_tasks_of_a_step_may_not_use_one_memory(world: World, saver: Saver) -> None:
    """8.5: refused by name; the thread can be read and goes on with other input."""
    child = parrot(world)
    fan = [("start", lambda s: [Send("bird", {"said": x}) for x in s["said"]], ["bird"])]
    graph = build(Outer, {"start": lambda s: None, "bird": child}, [(START, "start")], saver, branches=fan)
    world.invoke(graph, {"said": "a"}, thread_id="t")
    for _ in range(2):
        with pytest.raises(CallOrderError, match=r"'parrot' keeps a memory in namespace 'bird', and tasks 'bird@"):
            world.call(graph, "invoke", {"said": "bc"}, thread_id="t")
        with pytest.raises(CallOrderError, match="of one super-step call it there"):
            world.invoke(graph, None, thread_id="t")
    assert world.state(graph, thread_id="t").status == "failed"
    world.update(graph, {"configurable": {"thread_id": "t"}}, {"log": ["read and edited"]})
    assert world.invoke(graph, {"said": "d"}, thread_id="t")["reply"] == "a d"


def test_two_tasks_further_up_may_not_use_one_memory(world: World, saver: Saver) -> None:
    """8.5: packets of one step that lead to one memory are refused at any depth, laps one after another are not."""
    middle = build(Outer, {"bird": parrot(world)}, [(START, "bird")], name="middle")
    fan = [("start", lambda s: [Send("middle", {"said": x}) for x in s["said"]], ["middle"])]
    graph = build(Outer, {"start": lambda s: None, "middle": middle}, [(START, "start")], saver, branches=fan)
    with pytest.raises(CallOrderError, match=r"in namespace 'middle\|bird', and tasks 'middle@2\.[01]\|bird@1'"):
        world.invoke(graph, {"said": "ab"}, thread_id="t")
    assert world.invoke(graph, {"said": "c"}, thread_id="t")["reply"] == "c"
    assert world.invoke(graph, {"said": "d"}, thread_id="t")["reply"] == "c d"


def test_a_branch_of_the_history_keeps_its_paused_memory(world: World, saver: Saver) -> None:
    """8.5, 9.4: an answer given at an older checkpoint reaches the memory as it was paused there."""
    graph = as_node(world, saver, asks="b")
    world.invoke(graph, {"said": "a"}, thread_id="t")
    (asked,) = ids(world.invoke(graph, {"said": "b"}, thread_id="t"))
    at = world.state(graph, thread_id="t").config["configurable"]["checkpoint_id"]
    assert world.invoke(graph, {"said": "c"}, thread_id="t")["reply"] == "a c"
    found = world.resume(graph, answers={asked: "yes"}, thread_id="t", checkpoint_id=at)
    assert found["reply"] == "a b+yes"
    assert world.invoke(graph, {"said": "d"}, thread_id="t")["reply"] == "a b+yes d"


def test_two_calls_in_one_node_have_memories_of_their_own(world: World, saver: Saver) -> None:
    """8.4, 8.5: by order, or by key."""
    child = parrot(world)

    async def call(state: Outer) -> Outer:
        first = await child.ainvoke({"said": state["said"]})
        second = await child.ainvoke({"said": state["said"] * 2})
        return {"log": [first["reply"], second["reply"]]}

    graph = build(Outer, {"call": call}, [(START, "call")], saver)
    world.invoke(graph, {"said": "a"}, thread_id="t")
    assert world.invoke(graph, {"said": "b"}, thread_id="t")["log"][-2:] == ["a b", "aa bb"]


def test_a_finished_call_is_not_made_twice_when_its_node_runs_again(world: World, saver: Saver) -> None:
    """8.4: the memory has heard it once."""
    child = parrot(world)

    async def call(state: Outer) -> Outer:
        found = await child.ainvoke({"said": state["said"]})
        return {"reply": f"{found['reply']} {interrupt('?')}"}

    graph = build(Outer, {"call": call}, [(START, "call")], saver)
    world.invoke(graph, {"said": "a"}, thread_id="t")
    assert world.resume(graph, "x", thread_id="t")["reply"] == "a x"
    world.invoke(graph, {"said": "b"}, thread_id="t")
    assert world.resume(graph, "y", thread_id="t")["reply"] == "a b y"


def test_a_memory_of_another_graph_is_refused(world: World, saver: Saver) -> None:
    """8.4: it is not read as one's own."""
    world.invoke(as_node(world, saver), {"said": "a"}, thread_id="t")
    with pytest.raises(CallOrderError, match="holds the state of graph 'parrot'"):
        world.invoke(as_node(world, saver, name="other"), {"said": "b"}, thread_id="t")


def test_a_memory_needs_a_saver_above_it(world: World) -> None:
    """8.5, 8.6: nothing is silently forgotten."""
    graph = build(Outer, {"bird": parrot(world)}, [(START, "bird")])
    with pytest.raises(InvalidRequestError, match="under a graph that keeps nothing"):
        world.invoke(graph, {"said": "a"})


def test_a_graph_with_a_memory_is_no_run_of_its_own(world: World) -> None:
    """8.5: it has nowhere to keep it."""
    with pytest.raises(InvalidRequestError, match="compile it with a saver"):
        world.invoke(parrot(world), {"said": "a"}, thread_id="t")
    own = parrot(world).with_checkpointer(InMemorySaver())
    assert world.invoke(own, {"said": "a"}, thread_id="t")["reply"] == "a"


def test_a_child_is_compiled_with_true_false_or_a_saver() -> None:
    """1.5: anything else is a fault."""
    with pytest.raises(Exception, match="checkpointer must be a Saver, or True, False or None"):
        StateGraph(Chat).add_node("a", lambda s: None).add_edge(START, "a").compile(checkpointer="yes")  # type: ignore[arg-type]


def test_a_memory_survives_a_change_of_the_graph_or_says_what_is_missing(world: World, saver: Saver) -> None:
    """9.7: a key that the memory holds and the child has no more is named."""
    world.invoke(as_node(world, saver), {"said": "a"}, thread_id="t")

    class Less(TypedDict, total=False):
        said: str
        reply: str

    less = build(Less, {"hear": lambda s: {"reply": "?"}}, [(START, "hear")], True, name="parrot")
    graph = build(Outer, {"bird": less}, [(START, "bird")], saver)
    with pytest.raises(GraphChangedError, match="heard"):
        world.invoke(graph, {"said": "b"}, thread_id="t")


# --- nothing kept -------------------------------------------------------------------------------------------------


def test_a_child_that_keeps_nothing_runs_again_to_its_pause(world: World, saver: Saver, ran: Ran) -> None:
    """8.5: the questions have the same ids, answers are kept, and everything before them runs again."""

    def first(state: Chat) -> Chat:
        ran("first")
        return {"heard": ["first"]}

    def ask(state: Chat) -> Chat:
        ran("ask")
        return {"heard": [interrupt("one"), interrupt("two")]}

    nodes = {"first": world.node(first), "ask": world.node(ask)}
    child = build(Chat, nodes, [(START, "first"), ("first", "ask")], False)
    graph = build(Chat, {"child": child}, [(START, "child")], saver)
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["child@1|ask@2#0"]
    assert ids(world.resume(graph, 1, thread_id="t")) == ["child@1|ask@2#1"]
    assert world.resume(graph, 2, thread_id="t") == {"heard": ["first", 1, 2]}
    assert ran.counts == {"first": 3, "ask": 3}
    assert saver.namespaces("t") == [""]


def test_a_child_that_keeps_nothing_passes_its_static_pauses(world: World, saver: Saver) -> None:
    """7.6, 8.5: a pause that was passed does not come again, though the child begins anew."""
    nodes = {name: world.node(lambda s, name=name: {"heard": [name]}) for name in "ab"}
    options: dict[str, Any] = {"interrupt_before": ["b"], "interrupt_after": "*"}
    child = build(Chat, nodes, [(START, "a"), ("a", "b")], False, **options)
    graph = build(Chat, {"child": child}, [(START, "child")], saver)
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["child@1|a@1!after", "child@1|b@2!before"]
    assert ids(world.invoke(graph, None, thread_id="t")) == ["child@1|b@2!after"]
    assert world.invoke(graph, None, thread_id="t") == {"heard": ["a", "b"]}


def test_below_a_child_that_keeps_nothing_nothing_is_kept(world: World, saver: Saver) -> None:
    """8.5: at any depth; a memory there is refused."""
    leaf = build(Chat, {"ask": lambda s: {"heard": [interrupt("?")]}}, [(START, "ask")])
    middle = build(Chat, {"leaf": leaf}, [(START, "leaf")], False)
    graph = build(Chat, {"middle": middle}, [(START, "middle")], saver)
    world.invoke(graph, {}, thread_id="t")
    assert world.resume(graph, "yes", thread_id="t") == {"heard": ["yes"]}
    assert saver.namespaces("t") == [""]
    middle = build(Chat, {"leaf": parrot(world)}, [(START, "leaf")], False)
    with pytest.raises(InvalidRequestError, match="under a graph that keeps nothing"):
        world.invoke(build(Chat, {"middle": middle}, [(START, "middle")], saver), {"said": "x"}, thread_id="u")
