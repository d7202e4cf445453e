"""What a child graph takes over from the run that calls it, and what it does not (8.6)."""

import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest

from pregel import END, GraphRecursionError, Runtime, Saver, get_config, get_runtime, interrupt
from pregel.checkpoint import Key
from tests.helpers import START, World, build

WAIT = 10


class State(TypedDict, total=False):
    n: int
    log: Annotated[list[Any], operator.add]


def around(world: World, saver: Saver | None, child: Any, called: bool, **options: Any) -> Any:
    """Return a graph that runs the child as a node, or calls it in one."""

    def call(state: State) -> State:
        return {"log": child.invoke({"n": state.get("n", 0)})["log"]}

    async def acall(state: State) -> State:
        return {"log": (await child.ainvoke({"n": state.get("n", 0)}))["log"]}

    node = (acall if world.is_async else call) if called else child
    return build(State, {"child": node}, [(START, "child")], saver, **options)


@pytest.mark.parametrize("called", [False, True], ids=["node", "called"])
def test_a_child_shares_what_the_root_run_has(world: World, saver: Saver, called: bool) -> None:
    """8.6: saver, store, context, writer and tags; its config names its own place."""
    store = object()

    def look(state: State, runtime: Runtime[str]) -> State:
        runtime.writer("from below")
        configurable = get_config()["configurable"]
        return {"log": [runtime.context, runtime.store is store, configurable["checkpoint_ns"], configurable["mine"]]}

    child = build(State, {"look": world.node(look)}, [(START, "look")])
    graph = around(world, saver, child, called, store=store)
    config = {"configurable": {"thread_id": "t", "mine": 7}, "tags": ["blue"]}
    events = world.stream(graph, {}, config, context="ours", stream_mode="custom")
    assert events == ["from below"]
    assert world.state(graph, thread_id="t").values["log"] == ["ours", True, "child@1", 7]
    saved = saver.get(Key("t", "child@1")).saved
    assert saved is not None
    assert graph.serializer.decode(saved.checkpoint.metadata)["tags"] == ["blue"]


@pytest.mark.parametrize("called", [False, True], ids=["node", "called"])
def test_a_child_has_a_step_budget_of_its_own(world: World, saver: Saver, called: bool) -> None:
    """8.6, 3.5: the root's limit is neither used up by a child nor handed to it."""
    nodes = {"step": world.node(lambda s: {"n": s["n"] + 1, "log": [s["n"]]})}
    branches = [("step", lambda s: "step" if s["n"] < 5 else END, ["step", END])]
    child = build(State, nodes, [(START, "step")], branches=branches)
    graph = around(world, saver, child, called)
    assert len(world.invoke(graph, {"n": 0}, thread_id="t", recursion_limit=1)["log"]) == 5
    looping = build(State, nodes, [(START, "step")], saver, branches=branches)
    with pytest.raises(GraphRecursionError):
        world.invoke(looping, {"n": 0}, thread_id="u", recursion_limit=4)


def test_a_call_from_a_thread_of_the_node_is_a_root_run(world: World, saver: Saver) -> None:
    """8.6: it keeps nothing here and its pause is its result, unless `runtime.bind` makes it the node's."""
    child = build(State, {"ask": lambda s: {"log": [interrupt("?")]}}, [(START, "ask")])

    def call(state: State) -> State:
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(child.invoke({})))
        thread.start()
        thread.join(WAIT)
        assert get_runtime().answers == {}
        return {"log": [[i.value for i in results[0]["__interrupt__"]]]}

    graph = build(State, {"call": world.node(call)}, [(START, "call")], saver)
    assert world.invoke(graph, {}, thread_id="t") == {"log": [["?"]]}
    assert saver.namespaces("t") == [""]
