"""Graphs as they are built: states, kinds of nodes, what nodes reach, what is refused while they run (section 1)."""

import asyncio
import functools
import operator
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, Any, Required, TypedDict

import pytest
from pydantic import BaseModel, Field

from pregel import (
    Command,
    InvalidRequestError,
    InvalidTargetError,
    InvalidUpdateError,
    Pregel,
    Runtime,
    Saver,
    Send,
    StateGraph,
    StreamWriter,
    get_config,
    get_runtime,
    get_stream_writer,
)
from tests.helpers import END, START, Ran, World, build


class State(TypedDict, total=False):
    x: Required[int]
    log: Annotated[list[str], operator.add]


@dataclass
class Data:
    x: int = 0
    log: Annotated[list[str], operator.add] = field(default_factory=list)


class Model(BaseModel):
    x: int = 0
    log: Annotated[list[str], operator.add] = Field(default_factory=list)


@pytest.mark.parametrize("state", [Data, Model])
def test_a_node_is_shown_an_instance_of_the_state_class(world: World, saver: Saver, state: Any) -> None:
    """1.1: with a dataclass or model as state, nodes and routers get instances, defaults filled in."""

    def grow(s: Any) -> dict[str, Any]:
        assert type(s) is state
        return {"x": s.x + 1, "log": [f"saw {s.log}"]}

    graph = build(
        state,
        {"grow": world.node(grow)},
        [(START, "grow")],
        saver,
        branches=[("grow", lambda s: END if s.x > 2 else "grow")],
    )
    assert world.invoke(graph, {"x": 1}, thread_id="t") == {"x": 3, "log": ["saw []", "saw ['saw []']"]}


@pytest.mark.parametrize("make", [Data, Model, dict])
def test_input_and_updates_may_be_instances_too(world: World, make: Callable[..., Any]) -> None:
    """1.1: what a dataclass holds, or a model sets, is written."""
    graph = build(Model, {"n": world.node(lambda s: make(x=s.x + 1, log=["n"]))}, [(START, "n")])
    assert world.invoke(graph, make(x=1, log=["in"])) == {"x": 2, "log": ["in", "n"]}


def test_a_model_that_refuses_its_values_fails_the_task(world: World) -> None:
    """1.1: pydantic checks what a node is shown."""
    graph = build(Model, {"n": world.node(lambda s: None)}, [(START, "n")])
    with pytest.raises(ValueError, match="valid integer") as caught:
        world.invoke(graph, {"x": "no number"})
    assert "in node 'n'" in caught.value.__notes__[0]


def test_input_and_output_schemas_narrow_what_goes_in_and_out(world: World, saver: Saver) -> None:
    """1.1: keys of the state that are not in the output schema stay inside; others are refused as input."""

    class In(TypedDict):
        x: int

    class Out(TypedDict):
        y: int

    class Whole(TypedDict, total=False):
        x: int
        y: int
        secret: int

    builder: StateGraph[Any] = StateGraph(Whole, input_schema=In, output_schema=Out)
    builder.add_node("n", world.node(lambda s: {"y": s["x"] + 1, "secret": 9})).add_edge(START, "n")
    graph = builder.compile(saver)
    assert world.invoke(graph, {"x": 1}, thread_id="t") == {"y": 2}
    with pytest.raises(InvalidUpdateError, match=r"the input writes the undeclared 'secret'; declared are \['x'\]"):
        world.invoke(graph, {"x": 1, "secret": 1}, thread_id="u")
    assert world.state(graph, thread_id="u").status is None


def test_a_node_schema_narrows_what_the_node_is_shown(world: World) -> None:
    """1.2: the node may write what it cannot read, and its routers see that write folded."""

    class Narrow(TypedDict):
        x: int

    seen: list[Any] = []

    def router(s: Any) -> str:
        seen.append(s["log"])
        return END

    node = world.node(lambda s: {"log": [str(sorted(s))]}), {"input_schema": Narrow}
    graph = build(State, {"n": node}, [(START, "n")], branches=[("n", router)])
    assert world.invoke(graph, {"x": 1, "log": ["in"]}) == {"x": 1, "log": ["in", "['x']"]}
    assert seen == [["in", "['x']"]]


# --- kinds of nodes -----------------------------------------------------------------------------------------------


def plain(s: State) -> dict[str, Any]:
    return {"log": ["plain"]}


async def coroutine(s: State) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"log": ["coroutine"]}


def _logs(name: str, s: State) -> dict[str, Any]:
    return {"log": [name]}


async def _alogs(name: str, s: State) -> dict[str, Any]:
    return {"log": [name]}


class Callee:
    def __call__(self, s: State) -> dict[str, Any]:
        return {"log": ["callable"]}


class AsyncCallable:
    async def __call__(self, s: State) -> dict[str, Any]:
        return {"log": ["async callable"]}


class Invokable:
    def invoke(self, s: State, config: Any = None) -> dict[str, Any]:
        return {"log": [f"invoke for {config['configurable']['thread_id']}"]}


class AsyncInvokable:
    async def ainvoke(self, s: State) -> dict[str, Any]:
        return {"log": ["ainvoke"]}

    def method(self, s: State) -> dict[str, Any]:
        return {"log": ["method"]}


def decorator(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapped


@decorator
def decorated(s: State, runtime: Runtime[Any]) -> dict[str, Any]:
    return {"log": [f"decorated on {runtime.task_id}"]}


def _child() -> Pregel[Any]:
    return build(State, {"inner": plain}, [(START, "inner")])


KINDS: list[tuple[Any, str]] = [
    (plain, "plain"),
    (coroutine, "coroutine"),
    (functools.partial(_logs, "partial"), "partial"),
    (functools.partial(_alogs, "async partial"), "async partial"),
    (Callee(), "callable"),
    (AsyncCallable(), "async callable"),
    (Invokable(), "invoke for t"),
    (AsyncInvokable(), "ainvoke"),
    (AsyncInvokable().method, "method"),
    (decorated, "decorated on n@1"),
    (_child(), "plain"),
]


@pytest.mark.parametrize(("node", "logged"), KINDS)
def test_every_kind_of_node_runs_in_both_worlds(world: World, saver: Saver, node: Any, logged: str) -> None:
    """1.2: functions, callables, objects with invoke or ainvoke, partials, methods, compiled graphs."""
    graph = build(State, {"n": node}, [(START, "n")], saver)
    assert world.invoke(graph, {"x": 1}, thread_id="t") == {"x": 1, "log": [logged]}


def test_all_kinds_run_side_by_side_in_one_step(world: World, saver: Saver) -> None:
    """1.2, 3.1: sync and async nodes mixed in one step, folded in task order."""
    nodes = {f"n{i}": node for i, (node, _) in enumerate(KINDS)}
    graph = build(State, nodes, [(START, name) for name in nodes], saver)
    logged = [text.replace("n@1", "n9@1") for _, text in KINDS]
    assert world.invoke(graph, {"x": 1}, thread_id="t")["log"] == logged


def test_a_node_is_named_by_its_function_class_or_graph(world: World) -> None:
    """1.2: add_node(fn) needs no name."""
    builder: StateGraph[Any] = StateGraph(State)
    builder.add_node(plain).add_node(Callee()).add_node(_child())
    for name in ("plain", "Callee", "State.inner"):
        builder.add_edge(START, name)
    assert world.invoke(builder.compile(), {"x": 1})["log"] == ["plain", "callable", "plain"]


def test_a_sync_function_that_returns_an_awaitable_is_told_to_be_async(world: World) -> None:
    """1.2: nothing is awaited behind the back of a sync node."""
    graph = build(State, {"n": lambda s: coroutine(s)}, [(START, "n")])
    with pytest.raises(InvalidUpdateError, match="declare it with async def"):
        world.invoke(graph, {"x": 1})


# --- what a node reaches ------------------------------------------------------------------------------------------


def test_parameters_beyond_the_state_are_injected_by_name(world: World, saver: Saver) -> None:
    """1.2: runtime, config, writer and store, in any order, keyword-only or not."""
    store = object()
    seen: dict[str, Any] = {}

    def sync_node(s: State, writer: StreamWriter, *, store: Any, config: Any, runtime: Runtime[str]) -> None:
        writer("hello")
        seen.update(store=store, thread=config["configurable"]["thread_id"], context=runtime.context)

    async def async_node(s: State, runtime: Runtime[str], config: Any, store: Any, writer: StreamWriter) -> None:
        sync_node(s, writer, store=store, config=config, runtime=runtime)

    node = async_node if world.is_async else sync_node
    graph = build(State, {"n": node}, [(START, "n")], saver, store=store)
    options: Any = {"thread_id": "t", "context": "ctx", "stream_mode": "custom"}
    assert world.stream(graph, {"x": 1}, **options) == ["hello"]
    assert seen == {"store": store, "thread": "t", "context": "ctx"}


def test_routers_get_injected_parameters_too(world: World) -> None:
    """1.2, 1.3: a router asks for them like a node."""

    def router(s: State, runtime: Runtime[str]) -> str:
        return runtime.context

    nodes = {name: world.node(functools.partial(_logs, name)) for name in "abc"}
    graph = build(State, nodes, [(START, "a")], branches=[("a", router)])
    assert world.invoke(graph, {"x": 1}, context="c")["log"] == ["a", "c"]


def test_code_deep_inside_a_node_reaches_what_belongs_to_it(world: World) -> None:
    """1.2: get_runtime, get_config and get_stream_writer serve helpers, each task its own."""

    def helper() -> dict[str, Any]:
        get_stream_writer()(get_runtime().task_id)
        return {"log": [get_config()["configurable"]["mine"]]}

    nodes = {name: world.node(lambda s: helper()) for name in "ab"}
    graph = build(State, nodes, [(START, "a"), (START, "b")])
    config: Any = {"configurable": {"mine": "m"}}
    items = world.stream(graph, {"x": 1}, config, stream_mode=["custom", "values"])
    assert sorted(data for mode, data in items if mode == "custom") == ["a@1", "b@1"]
    assert items[-1] == ("values", {"x": 1, "log": ["m", "m"]})


@pytest.mark.parametrize("reach", [get_runtime, get_config, get_stream_writer])
def test_outside_of_a_node_there_is_nothing_to_reach(reach: Callable[[], Any]) -> None:
    """1.2: the refusal says what to do in a thread of one's own."""
    with pytest.raises(InvalidRequestError, match=r"only inside a node"):
        reach()


# --- builder and compiled graph -----------------------------------------------------------------------------------


def test_a_compiled_graph_does_not_follow_its_builder(world: World) -> None:
    """1.4: the builder goes on changing and is compiled again."""
    builder: StateGraph[Any] = StateGraph(State)
    builder.add_node("a", world.node(functools.partial(_logs, "a"))).set_entry_point("a")
    first = builder.compile()
    builder.add_node("b", world.node(functools.partial(_logs, "b"))).add_edge("a", "b").set_finish_point("b")
    second = builder.compile()
    assert world.invoke(first, {"x": 1})["log"] == ["a"]
    assert world.invoke(second, {"x": 1})["log"] == ["a", "b"]
    with pytest.raises(TypeError):
        first.nodes["b"] = second.nodes["b"]  # type: ignore[index] # it is read-only, and that is the point


def test_a_sequence_is_a_chain(world: World) -> None:
    """1.3: add_sequence takes functions and pairs."""
    builder: StateGraph[Any] = StateGraph(State)
    builder.add_sequence([plain, ("second", world.node(functools.partial(_logs, "second"))), coroutine])
    builder.set_entry_point("plain")
    assert world.invoke(builder.compile(), {"x": 1})["log"] == ["plain", "second", "coroutine"]


def test_one_graph_serves_concurrent_runs(saver: Saver) -> None:
    """1.4: eight runs meet inside the node, and each keeps its own state."""
    meeting = threading.Barrier(8)

    def meet(s: State) -> dict[str, Any]:
        meeting.wait(timeout=10)
        return {"log": [str(s["x"])]}

    graph = build(State, {"n": meet}, [(START, "n")], saver)
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda i: graph.invoke({"x": i}, thread_id=f"t{i}"), range(8)))
    assert results == [{"x": i, "log": [str(i)]} for i in range(8)]


# --- refused while running ----------------------------------------------------------------------------------------


def _unknown_update() -> Any:
    return {"x": 1, "lgo": []}


WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda s: {"lgo": []}, InvalidUpdateError, r"node 'bad' writes the undeclared 'lgo'; declared are \['log', 'x'\]"),
    (lambda s: Command(update={"lgo": []}), InvalidUpdateError, r"undeclared 'lgo'; declared are \['log', 'x'\]"),
    (lambda s: Command(goto="nope"), InvalidTargetError, r"node 'bad' leads to 'nope'.*\['bad', 'good', '__end__'\]"),
    (lambda s: Command(goto=["good", "nope"]), InvalidTargetError, r"'nope', which is no node"),
    (lambda s: Command(goto=START), InvalidTargetError, r"'__start__', which is no node"),
    (lambda s: Command(goto=Send("nope", 1)), InvalidTargetError, r"'nope'.*\['bad', 'good', '__end__'\]"),
    (lambda s: [Send("good", 1), Send(END, 1)], InvalidTargetError, "sends a packet to END"),
    (lambda s: Command(goto=5), InvalidTargetError, "5, which is no node"),  # type: ignore[arg-type] # the point
    (lambda s: "text", InvalidUpdateError, r"node 'bad' returned str; expected a mapping"),
    (lambda s: 5, InvalidUpdateError, r"returned int"),
    (lambda s: Command(resume=1), InvalidUpdateError, r"only callers answer"),
    (lambda s: Command(graph=Command.PARENT), InvalidTargetError, r"there is none"),
    (lambda s: Command(graph="other"), InvalidTargetError, r"Command.PARENT, not 'other'"),
]


@pytest.mark.parametrize(("bad", "kind", "text"), WRONG)
def test_a_wrong_update_or_target_fails_its_task_only(
    world: World, saver: Saver, ran: Ran, bad: Any, kind: type[Exception], text: str
) -> None:
    """1.6, 2.7: the error lists the valid names; the sibling is kept; nothing is written."""

    def good(s: State) -> dict[str, Any]:
        ran("good")
        return {"log": ["good"]}

    edges: list[tuple[Any, str]] = [(START, "bad"), (START, "good")]
    node = world.node(bad), {"destinations": ["good"]}
    graph = build(State, {"bad": node, "good": world.node(good)}, edges, saver)
    with pytest.raises(kind, match=text):
        world.invoke(graph, {"x": 1}, thread_id="t")
    mended = build(State, {"bad": lambda s: {"log": ["mended"]}, "good": world.node(good)}, edges, saver)
    kept = world.state(mended, thread_id="t")
    assert (kept.values, kept.status) == ({"x": 1, "log": []}, "failed")
    assert world.invoke(mended, None, thread_id="t") == {"x": 1, "log": ["mended", "good"]}
    assert ran.counts["good"] <= 2  # it may have been cancelled before it ran; if it ended, it does not run again


@pytest.mark.parametrize(
    "router", [lambda s: "nope", lambda s: ["n", "nope"], lambda s: Send("nope", 1), lambda s: None]
)
def test_a_router_with_a_wrong_target_fails_the_task(world: World, router: Any) -> None:
    """1.6: the error names router, node and the valid names."""
    graph = build(State, {"n": world.node(plain)}, [(START, "n")], branches=[("n", router)])
    with pytest.raises(InvalidTargetError, match=r"router '<lambda>' of node 'n' leads to .*\['n', '__end__'\]"):
        world.invoke(graph, {"x": 1})


@pytest.mark.parametrize("path_map", [{"yes": "n", "no": END}, ["n"]])
def test_a_router_that_leaves_its_path_map_fails_the_task(world: World, path_map: Any) -> None:
    """1.6: the labels that the map names are listed."""
    graph = build(State, {"n": world.node(plain)}, [(START, "n")], branches=[("n", lambda s: "maybe", path_map)])
    with pytest.raises(InvalidTargetError, match=r"returned 'maybe', which its path map does not name; known are \['"):
        world.invoke(graph, {"x": 1})


def test_unknown_input_keys_are_refused_before_anything_is_written(world: World, saver: Saver, ran: Ran) -> None:
    """1.6: the input is checked like an update."""
    graph = build(State, {"n": world.node(lambda s: ran("n"))}, [(START, "n")], saver)
    with pytest.raises(InvalidUpdateError, match="the input writes the undeclared 'y'"):
        world.invoke(graph, {"y": 1}, thread_id="t")
    assert world.state(graph, thread_id="t").status is None
    assert ran.order == []
