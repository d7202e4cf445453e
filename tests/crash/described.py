"""A described graph as a graph of the engine, and random descriptions."""

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from hypothesis import strategies as st

from pregel import END, START, Pregel, Saver, Send, interrupt
from tests.crash.interpreter import BrokenError, Kind, NodeSpec, Spec, World, name_of
from tests.crash.life import LIFE, begin
from tests.helpers import build


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    n: Annotated[int, operator.add]
    x: int


def compiled(spec: Spec, env: World, is_async: bool | None, saver: Saver | None = None) -> Pregel[Any]:
    """Compile a description; `is_async` None makes every node sync."""
    nodes: dict[str, Any] = {}
    branches: list[tuple[Any, ...]] = []
    for node in spec.nodes:
        child = None if node.child is None else compiled(node.child, env, is_async)
        asynchronous = is_async is not None and is_async != node.flip
        body = child if node.kind == "child" else _body(spec, node, env, child, asynchronous)
        nodes[node.name] = (body, {"defer": node.defer})
        if node.kind == "fan":
            branches.append((node.name, _sender(node), [f"{node.name}_w"]))
        elif node.kind == "loop":
            first = spec.nodes[0].name
            branches.append((node.name, _lapper(first, node.size), [first, END]))
    edges: list[tuple[Any, str]] = [(START, name) for name in spec.entry]
    edges += [(sources[0] if len(sources) == 1 else list(sources), target) for sources, target in spec.edges]
    return build(State, nodes, edges, saver, branches=branches, name=spec.name)


def _sender(node: NodeSpec) -> Callable[[Any], list[Send]]:
    return lambda state: [Send(f"{node.name}_w", arg) for arg in range(node.size)]


def _lapper(first: str, laps: int) -> Callable[[Any], str]:
    return lambda state: first if state["n"] < laps else END


def _body(spec: Spec, node: NodeSpec, env: World, child: Pregel[Any] | None, asynchronous: bool) -> Any:
    calls = node.size if node.kind == "call" else 0

    def finish(given: Any, heard: list[str]) -> Any:
        arg = None if isinstance(given, dict) else given
        path = name_of(spec, node, arg)
        questions = node.size if node.kind == "ask" else int(node.asks)
        answers = [interrupt(f"{path}?{index}") for index in range(questions)]
        update: dict[str, Any] = {"log": [f"{path}:{given['x'] if arg is None else arg}", *heard, *answers]}
        if node.kind == "loop":
            update["n"] = 1
        return update

    def sync_body(given: Any) -> Any:
        body = begin()._replace(node=name_of(spec, node, None if isinstance(given, dict) else given))
        if node.kind == "fail" and env.broken:
            raise BrokenError(node.name)
        heard: list[str] = []
        for _ in range(calls):
            assert child is not None
            heard += child.invoke({"x": given["x"]})["log"]
        update = finish(given, heard)
        LIFE.get().end(body)
        return update

    async def async_body(given: Any) -> Any:
        body = begin()._replace(node=name_of(spec, node, None if isinstance(given, dict) else given))
        if node.kind == "fail" and env.broken:
            raise BrokenError(node.name)
        heard: list[str] = []
        for _ in range(calls):
            assert child is not None
            heard += (await child.ainvoke({"x": given["x"]}))["log"]
        update = finish(given, heard)
        LIFE.get().end(body)
        return update

    return async_body if asynchronous else sync_body


# --- random descriptions ------------------------------------------------------------------------------------------

_PLAIN: list[Kind] = ["work", "work", "ask", "fail", "fan"]


@st.composite
def specs(draw: st.DrawFn, depth: int = 2, name: str = "g") -> Spec:
    """Draw a graph: later nodes follow earlier ones or the start, some wait for two; children down to `depth`."""
    nodes: list[NodeSpec] = []
    entry: list[str] = []
    edges: list[tuple[tuple[str, ...], str]] = []
    most = 4 if depth == 2 else 3
    for index in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from([*_PLAIN, "child", "call"] if depth else _PLAIN))
        node = _node(draw, f"{'abcd'[index]}", kind, depth, name)
        earlier = [other.name for other in nodes if not other.name.endswith("_w")]
        sources = draw(st.sets(st.sampled_from(earlier), max_size=2)) if earlier else set()
        if sources:
            edges.append((tuple(sorted(sources)), node.name))
        else:
            entry.append(node.name)
        nodes.append(node)
    leaders = list(nodes)
    for node in leaders:
        if node.kind == "fan":
            worker: Kind = draw(st.sampled_from(["work", "ask", "fail"]))
            nodes.append(NodeSpec(f"{node.name}_w", worker, flip=draw(st.booleans())))
    if draw(st.booleans()):
        nodes.append(NodeSpec("z", "loop", size=2, flip=draw(st.booleans())))
        edges.append(((leaders[-1].name,), "z"))
    return Spec(name, tuple(nodes), tuple(entry), tuple(edges))


def _node(draw: st.DrawFn, node: str, kind: Kind, depth: int, name: str) -> NodeSpec:
    child = draw(specs(depth=depth - 1, name=f"{name}{node}")) if kind in ("child", "call") else None
    size = draw(st.integers(1, 3 if kind == "fan" else 2))
    asks = kind == "call" and draw(st.booleans())
    return NodeSpec(node, kind, size, draw(st.booleans()), asks, child, draw(st.sampled_from([False, False, True])))
