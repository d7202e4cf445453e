"""The graphs that are killed: each with its input, the answers to its questions, and what comes out."""

import asyncio
import operator
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypedDict

from pregel import END, START, Pregel, Saver, Send, get_runtime, interrupt
from tests.crash.life import begin
from tests.helpers import build

Graph = Pregel[Any]
Node = Callable[..., Any]


class State(TypedDict, total=False):
    x: int
    y: int
    log: Annotated[list[Any], operator.add]


class Heard(TypedDict, total=False):
    x: int
    heard: Annotated[list[Any], operator.add]
    log: Annotated[list[Any], operator.add]


class Case(NamedTuple):
    """`make(is_async, saver)` compiles the graph anew, as a new process would."""

    name: str
    make: Callable[[bool, Saver | None], Graph]
    input: Mapping[str, Any]
    answers: Mapping[Any, Any]
    output: Mapping[str, Any]


def node(is_async: bool, fn: Callable[[Any], Any]) -> Node:
    """Return a node that says that it begins, then does what `fn` does."""

    def sync_node(state: Any) -> Any:
        begin()
        return fn(state)

    async def async_node(state: Any) -> Any:
        begin()
        await asyncio.sleep(0)
        return fn(state)

    return async_node if is_async else sync_node


def log(name: Any) -> Callable[[Any], Any]:
    return lambda state: {"log": [name]}


def plus_one(state: Any) -> Any:
    return {"x": state["x"] + 1}


def chain(is_async: bool, saver: Saver | None) -> Graph:
    nodes = {f"n{i}": node(is_async, plus_one) for i in range(4)}
    return build(State, nodes, [(START, "n0"), ("n0", "n1"), ("n1", "n2"), ("n2", "n3")], saver)


def join(is_async: bool, saver: Saver | None) -> Graph:
    nodes = {name: node(is_async, log(name)) for name in "sabcd"}
    edges = [(START, "s"), ("s", "a"), ("s", "b"), ("s", "c"), (["a", "b", "c"], "d")]
    return build(State, nodes, edges, saver)


def loop(is_async: bool, saver: Saver | None) -> Graph:
    """Two nodes in turn, three laps; on each lap one of two nodes and another one fill a barrier."""
    nodes = {
        "s": node(is_async, plus_one),
        **{name: node(is_async, log(name)) for name in "abc"},
        "d": node(is_async, log("d")),
    }
    edges: list[tuple[Any, str]] = [(START, "s"), ("s", "c"), ([{"a", "b"}, "c"], "d")]
    branches = [
        ("s", lambda state: "a" if state["x"] % 2 else "b", ["a", "b"]),
        ("d", lambda state: "s" if state["x"] < 3 else END, ["s", END]),
    ]
    return build(State, nodes, edges, saver, branches=branches)


def one_asks(is_async: bool, saver: Saver | None) -> Graph:
    """One of three parallel nodes asks, twice; its siblings complete."""

    def ask(state: Any) -> Any:
        return {"log": [interrupt("one"), interrupt("two")]}

    nodes = {name: node(is_async, log(name)) for name in "sabcd"} | {"b": node(is_async, ask)}
    edges = [(START, "s"), ("s", "a"), ("s", "b"), ("s", "c"), (["a", "b", "c"], "d")]
    return build(State, nodes, edges, saver)


def nested(is_async: bool, saver: Saver | None) -> Graph:
    """Two deep: one graph as a node that holds another, which is also called twice inside a function node."""
    inner_nodes = {
        "i1": node(is_async, plus_one),
        "i2": node(is_async, lambda state: {"x": state["x"] + interrupt("in")}),
        "i3": node(is_async, plus_one),
    }
    inner = build(State, inner_nodes, [(START, "i1"), ("i1", "i2"), ("i2", "i3")], name="inner")
    middle_nodes = {"m0": node(is_async, log("m0")), "mc": inner, "ms": node(is_async, log("ms"))}
    middle = build(State, middle_nodes, [(START, "m0"), ("m0", "mc"), ("m0", "ms")], name="middle")

    def call(state: Any) -> Any:
        begin()
        return {"y": inner.invoke({"x": 50})["x"] + inner.invoke({"x": 70})["x"]}

    async def acall(state: Any) -> Any:
        begin()
        return {"y": (await inner.ainvoke({"x": 50}))["x"] + (await inner.ainvoke({"x": 70}))["x"]}

    nodes = {
        "s": node(is_async, log("s")),
        "c": middle,
        "f": acall if is_async else call,
        "b": node(is_async, log("b")),
        "e": node(is_async, log("e")),
    }
    edges = [(START, "s"), ("s", "c"), ("s", "f"), ("s", "b"), (["c", "f", "b"], "e")]
    return build(State, nodes, edges, saver, name="outer")


def packets(is_async: bool, saver: Saver | None) -> Graph:
    """Five packets, two of which ask."""

    def work(arg: int) -> Any:
        return {"log": [interrupt(arg) if arg % 3 == 0 else arg]}

    nodes = {
        "s": node(is_async, log("s")),
        "w": node(is_async, work),
        "e": node(is_async, log("e")),
    }
    branches = [("s", lambda state: [Send("w", i) for i in range(5)], ["w"])]
    return build(State, nodes, [(START, "s"), ("w", "e")], saver, branches=branches)


def mixed(is_async: bool, saver: Saver | None) -> Graph:
    """Sync and async nodes side by side, in a loop of two laps with two questions on each."""

    def ask(state: Any) -> Any:
        return {"log": [interrupt("?"), interrupt("??")]}

    nodes = {
        "s": node(not is_async, plus_one),
        "a": node(True, log("a")),
        "b": node(False, log("b")),
        "q": node(is_async, ask),
        "d": node(False, log("d")),
    }
    edges: list[tuple[Any, str]] = [(START, "s"), ("s", "a"), ("s", "b"), ("s", "q"), ([{"a", "b"}, "q"], "d")]
    branches = [("d", lambda state: "s" if state["x"] < 2 else END, ["s", END])]
    return build(State, nodes, edges, saver, branches=branches)


def memory(is_async: bool, saver: Saver | None) -> Graph:
    """A child that keeps its memory over three laps of a loop, and asks on each."""

    def hear(state: Any) -> Any:
        return {"heard": [(state["x"], interrupt("heard"))]}

    def tell(state: Any) -> Any:
        return {"log": [len(state["heard"])]}

    nodes = {"h": node(is_async, hear), "t": node(is_async, tell)}
    child = build(Heard, nodes, [(START, "h"), ("h", "t")], True, name="child")
    outer: dict[str, Any] = {"c": child, "s": node(is_async, plus_one)}
    branches = [("s", lambda state: "c" if state["x"] < 3 else END, ["c", END])]
    return build(State, outer, [(START, "c"), ("c", "s")], saver, branches=branches)


def edges(is_async: bool, saver: Saver | None) -> Graph:
    """Pauses before and after nodes, listed and wished for, with the edges decided later, at the root and below."""

    def wish(state: Any) -> Any:
        get_runtime().interrupt_after("wish")
        return {"log": ["w"]}

    def made(name: str, saver: Saver | None) -> Graph:
        nodes = {"a": node(is_async, log("a")), "w": node(is_async, wish), "z": node(is_async, log("z"))}
        branches = [("a", lambda state: Send("w", {}), ["w"]), ("w", lambda state: "z", ["z"])]
        options: dict[str, Any] = {"interrupt_after": ["a"], "interrupt_before": ["z"], "interrupt_before_edge": True}
        return build(State, nodes, [(START, "a")], saver, branches=branches, name=name, **options)

    nodes = {"one": made("below", None), "two": node(is_async, wish), "end": node(is_async, log("end"))}
    between: list[tuple[Any, str]] = [(START, "one"), (START, "two"), (["one", "two"], "end")]
    return build(State, nodes, between, saver, interrupt_before_edge=True, interrupt_after="*")


CASES = [
    Case("chain", chain, {"x": 0}, {}, {"x": 4, "log": []}),
    Case("join", join, {}, {}, {"log": ["s", "a", "b", "c", "d"]}),
    Case("loop", loop, {"x": 0}, {}, {"x": 3, "log": ["a", "c", "d", "b", "c", "d", "a", "c", "d"]}),
    Case("one_asks", one_asks, {}, {"one": 1, "two": 2}, {"log": ["s", "a", 1, 2, "c", "d"]}),
    Case("nested", nested, {"x": 0}, {"in": 100}, {"x": 102, "y": 324, "log": ["s", "m0", "ms", "b", "e"]}),
    Case("packets", packets, {}, {0: "zero", 3: None}, {"log": ["s", "zero", 1, 2, None, 4, "e"]}),
    Case("memory", memory, {"x": 0}, {"heard": "yes"}, {"x": 3, "log": [1, 2, 3]}),
    Case("edges", edges, {}, {}, {"log": ["a", "w", "z", "w", "end"]}),
    Case("mixed", mixed, {"x": 0}, {"?": 1, "??": 2}, {"x": 2, "log": ["a", "b", 1, 2, "d"] * 2}),
]
