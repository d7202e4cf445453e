"""Where a task leads: routers, commands, packets, commands for a parent (section 4)."""

import operator
from typing import Annotated, Any, TypedDict

import pytest

from pregel import (
    Command,
    InvalidRequestError,
    InvalidTargetError,
    InvalidUpdateError,
    ParentCommand,
    Saver,
    Send,
    interrupt,
)
from pregel.checkpoint import Key
from tests.helpers import END, START, Ran, World, build, ids


class State(TypedDict, total=False):
    x: int
    log: Annotated[list[str], operator.add]


def _log(world: World, name: str) -> Any:
    return world.node(lambda s: {"log": [name]})


def _logs(world: World, names: str) -> dict[str, Any]:
    return {name: _log(world, name) for name in names}


def test_a_router_sees_the_snapshot_and_its_own_task_only(world: World, saver: Saver) -> None:
    """4.1: own writes are folded in, a sibling's are not there."""
    seen: dict[str, Any] = {}

    def router(name: str) -> Any:
        return lambda s: seen.update({name: list(s["log"])}) or END

    branches = [(name, router(name)) for name in "ab"]
    graph = build(State, _logs(world, "ab"), [(START, "a"), (START, "b")], saver, branches=branches)
    assert world.invoke(graph, {"log": ["in"]}, thread_id="t")["log"] == ["in", "a", "b"]
    assert seen == {"a": ["in", "a"], "b": ["in", "b"]}


def test_routers_may_be_async(world: World, saver: Saver) -> None:
    """4.1: in both worlds, under sync and async nodes."""

    async def router(s: State) -> list[str]:
        return ["b", "c"]

    graph = build(State, _logs(world, "abc"), [(START, "a")], saver, branches=[("a", router)])
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("router", "path_map", "log"),
    [
        (lambda s: "b", None, ["a", "b"]),
        (lambda s: ["c", "b"], None, ["a", "b", "c"]),
        (lambda s: END, None, ["a"]),
        (lambda s: [], None, ["a"]),
        (lambda s: True, {True: "b", False: "c"}, ["a", "b"]),
        (lambda s: [1, 2], {1: "c", 2: END}, ["a", "c"]),
        (lambda s: None, {None: "c"}, ["a", "c"]),
        (lambda s: "c", ["b", "c"], ["a", "c"]),
        (lambda s: [Send("b", {}), "c"], None, ["a", "c", "b"]),
    ],
)
def test_a_router_returns_a_name_a_packet_end_or_a_list(
    world: World, saver: Saver, router: Any, path_map: Any, log: list[str]
) -> None:
    """1.3, 4.1: through a path map if there is one."""
    nodes = _logs(world, "abc")
    nodes["d"] = world.node(lambda s: None), {"destinations": ["b", "c"]}
    edges = [(START, "a"), (START, "d")]
    graph = build(State, nodes, edges, saver, branches=[("a", router, path_map)])
    assert world.invoke(graph, {}, thread_id="t")["log"] == log


def test_several_routers_on_one_node_are_kept_apart_by_position(world: World, saver: Saver) -> None:
    """1.3: all have the same name, and all are asked."""
    branches = [("a", lambda s: "b", ["b"]), ("a", lambda s: "c", {"c": "d"}), ("a", lambda s: "c", {"c": "c"})]
    graph = build(State, _logs(world, "abcd"), [(START, "a")], saver, branches=branches)
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["a", "b", "c", "d"]


def test_a_router_that_raises_fails_its_task(world: World, saver: Saver, ran: Ran) -> None:
    """4.1: the node runs again with it; its writes were not kept."""
    broken = [True]

    def node(s: State) -> dict[str, Any]:
        ran("a")
        return {"log": ["a"]}

    def router(s: State) -> str:
        if broken[0]:
            raise ZeroDivisionError("router")
        return END

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver, branches=[("a", router)])
    with pytest.raises(ZeroDivisionError, match="router"):
        world.invoke(graph, {}, thread_id="t")
    broken[0] = False
    assert world.invoke(graph, None, thread_id="t")["log"] == ["a"]
    assert ran.order == ["a", "a"]


def test_a_command_updates_and_adds_to_static_edges(world: World, saver: Saver) -> None:
    """4.2: goto does not replace an edge or a router."""
    nodes = _logs(world, "bcd")
    nodes = {"a": world.node(lambda s: Command(update={"log": ["a"]}, goto="c")), **nodes}
    graph = build(State, nodes, [(START, "a"), ("a", "b")], saver, branches=[("a", lambda s: "d")])
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["a", "b", "c", "d"]


def test_a_node_may_return_a_list_of_commands_and_packets(world: World, saver: Saver) -> None:
    """4.2: all updates, targets and packets count, in order."""

    def many(s: State) -> Any:
        return [Command(update={"log": ["1"]}, goto="b"), Send("c", {}), Command(update={"log": ["2"]})]

    graph = build(State, {"a": world.node(many), **_logs(world, "bc")}, [(START, "a"), ("a", "b"), ("a", "c")], saver)
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["1", "2", "b", "c", "c"]


def test_the_start_task_is_no_target(world: World) -> None:
    """1.6: also where a conditional entry makes it a task."""
    nodes = {"a": world.node(lambda s: Command(goto=START))}
    graph = build(State, nodes, [], branches=[(START, lambda s: "a")])
    with pytest.raises(InvalidTargetError, match="'__start__', which is no node"):
        world.invoke(graph, {})


def test_an_interrupt_suppresses_routing_and_writes(world: World, saver: Saver, ran: Ran) -> None:
    """4.3: neither edges nor routers of the pausing task are followed until it is answered."""

    def router(s: State) -> str:
        ran("router")
        return "c"

    nodes = {"a": world.node(lambda s: {"log": [interrupt("?")]}), **_logs(world, "bc")}
    graph = build(State, nodes, [(START, "a"), ("a", "b")], saver, branches=[("a", router)])
    assert world.invoke(graph, {}, thread_id="t")["log"] == []
    assert ran.order == []
    assert world.resume(graph, "yes", thread_id="t")["log"] == ["yes", "b", "c"]


# --- commands as input ----------------------------------------------------------------------------------------------


def test_a_command_as_input_edits_and_wakes(world: World, saver: Saver) -> None:
    """4.4: on a finished thread, with names and packets."""
    graph = build(State, _logs(world, "ab"), [(START, "a"), ("a", "b")], saver)
    world.invoke(graph, {}, thread_id="t")
    command = Command(update={"log": ["edit"]}, goto=["b", Send("b", {})])
    assert world.invoke(graph, command, thread_id="t")["log"] == ["a", "b", "edit", "b", "b"]
    with pytest.raises(InvalidTargetError, match="'nope'"):
        world.invoke(graph, Command(goto="nope"), thread_id="t")
    with pytest.raises(InvalidUpdateError, match="undeclared 'nope'"):
        world.invoke(graph, Command(update={"nope": 1}), thread_id="t")


def test_a_command_that_only_edits_reports_what_is_pending(world: World, saver: Saver) -> None:
    """4.4, 6.5: the question is in the result, and stays answerable."""
    graph = build(State, {"a": world.node(lambda s: {"log": [interrupt("?")]})}, [(START, "a")], saver)
    world.invoke(graph, {}, thread_id="t")
    edited = world.invoke(graph, Command(update={"log": ["edit"]}), thread_id="t")
    assert (edited["log"], ids(edited)) == (["edit"], ["a@1#0"])
    assert world.resume(graph, "yes", thread_id="t")["log"] == ["edit", "yes"]


def test_an_answer_may_bring_an_update_but_no_goto(world: World, saver: Saver) -> None:
    """4.4: the update is there when the answered task runs."""
    node = world.node(lambda s: {"log": [f"{s['x']}{interrupt('?')}"]})
    graph = build(State, {"a": node}, [(START, "a")], saver)
    world.invoke(graph, {"x": 1}, thread_id="t")
    with pytest.raises(InvalidRequestError, match="answer and jump"):
        world.invoke(graph, Command(resume="!", goto="a"), thread_id="t")
    assert world.invoke(graph, Command(resume="!", update={"x": 2}), thread_id="t")["log"] == ["2!"]


# --- commands for the parent ----------------------------------------------------------------------------------------


def _handing(world: World, up: Command) -> Any:
    nodes = {"up": world.node(lambda s: up), "beside": _log(world, "beside"), "never": _log(world, "never")}
    return build(State, nodes, [(START, "up"), (START, "beside"), ("up", "never"), ("beside", "never")])


@pytest.mark.parametrize("kind", ["graph", "function"])
def test_a_command_for_the_parent_ends_the_child(world: World, saver: Saver, kind: str) -> None:
    """4.2: it is applied in place of the child's output; the child's status says so."""
    inner = _handing(world, Command(update={"log": ["up"]}, goto="b", graph=Command.PARENT))

    def call(s: State) -> Any:
        return inner.invoke({"log": []})

    async def acall(s: State) -> Any:
        return await inner.ainvoke({"log": []})

    child = inner if kind == "graph" else acall if world.is_async else call
    nodes = {"child": (child, {"destinations": ["b", "c"]}), **_logs(world, "bc")}
    graph = build(State, nodes, [(START, "child")], saver, branches=[("child", lambda s: "c")])
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["up", "b", "c"]
    saved = saver.get(Key("t", "child@1", None)).saved
    assert saved is not None
    assert saved.checkpoint.status == "handed_over"


def test_a_command_for_the_parent_reaches_the_nearest_graph_only(world: World, saver: Saver) -> None:
    """4.2: from depth 2 it is the middle graph that goes on."""
    inner = _handing(world, Command(update={"log": ["up"]}, goto="m", graph=Command.PARENT))
    middle = build(State, {"inner": inner, **_logs(world, "m")}, [(START, "inner")])
    graph = build(State, {"middle": middle, **_logs(world, "z")}, [(START, "middle"), ("middle", "z")], saver)
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["up", "m", "z"]


def test_a_function_node_may_catch_the_command_of_its_child(world: World, saver: Saver) -> None:
    """4.2: child.invoke raises ParentCommand, which `except Exception` does not catch."""
    inner = _handing(world, Command(goto="anywhere", graph=Command.PARENT))

    def call(s: State) -> Any:
        try:
            inner.invoke({})
        except ParentCommand as handed:
            return {"log": [handed.command.goto]}

    async def acall(s: State) -> Any:
        try:
            await inner.ainvoke({})
        except ParentCommand as handed:
            return {"log": [handed.command.goto]}

    graph = build(State, {"n": acall if world.is_async else call}, [(START, "n")], saver)
    assert not issubclass(ParentCommand, Exception)
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["anywhere"]


def test_a_command_for_the_parent_is_checked_by_the_parent(world: World, saver: Saver) -> None:
    """1.6, 4.2: its names are the parent's."""
    inner = _handing(world, Command(goto="never", graph=Command.PARENT))
    graph = build(State, {"child": inner}, [(START, "child")], saver)
    with pytest.raises(InvalidTargetError, match=r"'never'.*\['child', '__end__'\]"):
        world.invoke(graph, {}, thread_id="t")
