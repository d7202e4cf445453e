"""Random graphs that ask and pause: descriptions, how to draw them, and the graph of the engine that each means."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from typing import Annotated, Any, Literal, TypedDict

from hypothesis import strategies as st

from pregel import GraphInterrupt, Interrupt, Pregel, Saver, Send, get_config, get_runtime, interrupt
from tests.behaviour.calling import Call, calling
from tests.helpers import END, START, Ran, World, build

Way = Literal["called", "keyed", "raised", "returned"]
Names = tuple[str, ...] | Literal["*"]


@dataclass(frozen=True)
class Ask:
    """Questions: `called` and `keyed` ones come one by one, `raised` (by key) and `returned` ones all at once."""

    way: Way
    size: int


@dataclass(frozen=True)
class Nest:
    """`child.invoke(...)`, so many times, each time with a key of its own if `keyed`."""

    child: Graph
    times: int
    keyed: bool


@dataclass(frozen=True)
class Node:
    """A function that does its acts in order, or else the graph `child`. `sends`: packets to `<name>_w` after it.

    One that `wishes` wants a pause after itself.
    """

    name: str
    acts: tuple[Ask | Nest, ...] = ()
    child: Graph | None = None
    is_async: bool = False
    defer: bool = False
    sends: int = 0
    wishes: bool = False
    routes: tuple[str, ...] = ()  # it is followed by one of these, which one is for the state to say


@dataclass(frozen=True)
class Graph:
    """Nodes and edges; an edge from several nodes waits for all of them. `back` leads from a node to one before it."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[tuple[tuple[str, ...], str], ...]
    back: tuple[str, str, int] | None = None  # the last: how often the first may run and still lead back
    before: Names = ()
    after: Names = ()
    before_edge: bool = False
    keeps: bool | None = None  # of a child: True has a memory, False keeps nothing

    @property
    def compile_options(self) -> dict[str, Any]:
        """What compiling takes when the graph may pause."""
        return {
            "interrupt_before": self.before,
            "interrupt_after": self.after,
            "interrupt_before_edge": self.before_edge,
        }

    @property
    def children(self) -> list[Graph]:
        called = [act.child for node in self.nodes for act in node.acts if isinstance(act, Nest)]
        return [*called, *(node.child for node in self.nodes if node.child)]

    def all(self) -> Iterator[Graph]:
        """Yield this graph and all below."""
        yield self
        for child in self.children:
            yield from child.all()

    def lost(self, depth: int = 0, since: int = 0) -> dict[str, int]:
        """Return the nodes of which nothing is kept, each with the depth of the outermost graph that keeps nothing."""
        since = since or (depth if self.keeps is False else 0)
        found = {node.name: since for node in self.nodes if since}
        for child in self.children:
            found |= child.lost(depth + 1, since)
        return found

    @property
    def remembers(self) -> bool:
        """Whether a graph below has a memory."""
        return any(graph.keeps for graph in self.all())

    @property
    def is_ordered(self) -> bool:
        """Whether pauses leave the order of packets as it is: not where edges of some nodes come after all others."""
        return all(graph.after == "*" or not graph.before_edge for graph in self.all())

    def withheld(self) -> set[str]:
        """Return the nodes, here and below, whose edges are decided after a pause after them (7.3)."""
        return {node.name for graph in self.all() if graph.before_edge for node in graph.nodes}

    def listed(self) -> set[tuple[str, str]]:
        """Return the nodes, here and below, that are paused at, each with "before" or "after"."""
        found: set[tuple[str, str]] = set()
        for graph in self.all():
            for node in graph.nodes:
                for when, names in (("before", graph.before), ("after", graph.after)):
                    if names == "*" or node.name in names or (node.wishes and when == "after"):
                        found.add((node.name, when))
        return found


# --- what a description means -------------------------------------------------------------------------------------


class State(TypedDict, total=False):
    log: Annotated[list[Any], add]  # what each body wrote: its node, its label, the answers that it got
    tag: str  # the label of the call that this graph runs for


class Memory(State, total=False):
    kept: Annotated[list[str], add]  # the name of the graph for each body of it that ran, in all calls


Asker = Callable[[Way, Sequence[str], int, bool], "list[Any] | GraphInterrupt"]
"""Gets the answers to payloads, the first of which has a number among the unkeyed questions; last, whether the
questions of a list must have been answered together, since the task is kept."""


@dataclass(frozen=True)
class Kit:
    """What a description is built with: how bodies ask, whether graphs pause, and what is noted of bodies."""

    ask: Asker
    pauses: bool
    started: Ran = field(default_factory=Ran)  # by task
    completed: Ran = field(default_factory=Ran)  # by task
    labels: Ran = field(default_factory=Ran)  # of those completed
    # by namespace: how many bodies each body found in `kept`, and its node
    memories: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    wishes: dict[str, str] = field(default_factory=dict)  # by task: the value of the pause that it wants after itself


_ODD: list[Any] = [None, False, "", {}, [1]]


def answer_to(payload: str) -> Any:
    """Return the answer to a question: always the same one, and now and then a value that is easily lost."""
    choice = zlib.crc32(payload.encode()) % 16
    return _ODD[choice] if choice < len(_ODD) else f"yes to {payload}"


def known(way: Way, payloads: Sequence[str], first: int, kept: bool) -> list[Any]:
    """Answer without asking."""
    return [answer_to(payload) for payload in payloads]


def asked(way: Way, payloads: Sequence[str], first: int, kept: bool) -> list[Any] | GraphInterrupt:
    """Ask in one of the four ways."""
    if way == "called":
        return [interrupt(payload) for payload in payloads]
    keys = list(payloads)
    if way == "keyed":
        return [interrupt(payload, key=key) for key, payload in zip(keys, payloads, strict=True)]
    if way == "raised":
        items = [Interrupt(payload, id=key) for key, payload in zip(keys, payloads, strict=True)]
        return _answers_of(keys, kept) or _raise(GraphInterrupt(items))
    return _answers_of(range(first, first + len(payloads)), kept) or GraphInterrupt(list(payloads))


def _answers_of(keys: Sequence[int | str], kept: bool) -> list[Any]:
    """Return the answers to a list of questions, nothing if one is open; a part of them starts no kept body (6.8)."""
    answers = get_runtime().answers
    found = [answers[key] for key in keys if key in answers]
    is_whole = len(found) == len(keys)
    assert is_whole or not found or not kept, "the node was started with a part of the answers to its list"
    return found if is_whole else []


def _raise(error: BaseException) -> list[Any]:
    raise error


def compiled(graph: Graph, kit: Kit, saver: Saver | None = None, kept: bool = True) -> Pregel[Any]:
    """Compile a description; `saver` is the root's, without `kept` one above it keeps nothing."""
    kept = kept and graph.keeps is not False
    state = Memory if graph.keeps else State
    nodes: dict[str, Any] = {}
    branches: list[tuple[Any, ...]] = []
    for node in graph.nodes:
        fn: Any
        if node.child:
            fn = compiled(node.child, kit, None, kept)
        else:
            fn = calling(_world(node), _body(node, kit, kept, graph.name if graph.keeps else ""))
        nodes[node.name] = (fn, {"defer": node.defer})
        if node.sends:
            branches.append((node.name, _sender(node), [f"{node.name}_w"]))
        if node.routes:
            branches.append((node.name, _router(node, graph), list(node.routes)))
    if graph.back:
        source, target, laps = graph.back
        branches.append((source, _returner(source, target, laps), [target, END]))
    edges = [(sources[0] if len(sources) == 1 else list(sources), target) for sources, target in graph.edges]
    options = graph.compile_options if kit.pauses else {}
    keeper = saver if graph.keeps is None else graph.keeps
    return build(state, nodes, edges, keeper, branches=branches, name=graph.name, **options)


def _world(node: Node) -> World:
    return World("async" if node.is_async else "sync")


def _runs(state: Mapping[str, Any], name: str) -> int:
    return sum(entry[0] == name for entry in state.get("log", ()))


def _written(state: Mapping[str, Any], name: str) -> int:
    """Count what a node wrote, with all below it."""
    return sum(entry[0].startswith(name) and entry[0] != f"{name}_w" for entry in state["log"])


def _body(node: Node, kit: Kit, kept: bool, memory: str) -> Callable[[Any], Generator[Call, Any, Any]]:
    calls = [(index, act.child) for index, act in enumerate(node.acts) if isinstance(act, Nest)]
    children = {index: compiled(child, kit, None, kept) for index, child in calls}

    def body(given: Mapping[str, Any]) -> Generator[Call, Any, Any]:
        task = "|".join(filter(None, [get_config()["configurable"]["checkpoint_ns"], get_runtime().task_id]))
        kit.started(task)
        label = given.get("packet") or f"{given['tag']}/{node.name}.{_runs(given, node.name)}"
        if node.wishes and kit.pauses:
            kit.wishes[task] = f"{label}!"
            get_runtime().interrupt_after(kit.wishes[task])
        heard: list[Any] = []
        answers: list[Any] = []
        unkeyed = 0
        for index, act in enumerate(node.acts):
            if isinstance(act, Nest):
                for time in range(act.times):
                    call = f">{index}.{time}"
                    result = yield Call(children[index], {"tag": label + call}, call if act.keyed else None)
                    heard += result["log"]
            else:
                payloads = [f"{label}?{index}.{item}" for item in range(act.size)]
                replies = kit.ask(act.way, payloads, unkeyed, kept)
                if isinstance(replies, GraphInterrupt):
                    return replies
                answers += replies
                unkeyed += act.size if act.way == "called" else 0
        kit.completed(task)
        kit.labels(label)
        update = {"log": [*heard, (node.name, label, answers)]}
        if not memory or "packet" in given:
            return update
        found = (given.get("kept", []).count(memory), node.name)
        kit.memories.setdefault(task.rpartition("|")[0], []).append(found)
        return {**update, "kept": [memory]}

    return body


def _sender(node: Node) -> Callable[[State], list[Send]]:
    def send(state: State) -> list[Send]:
        label = f"{state['tag']}/{node.name}_w.{_runs(state, node.name)}"
        return [Send(f"{node.name}_w", {"packet": f"{label}[{number}]"}) for number in range(node.sends)]

    return send


def _router(node: Node, graph: Graph) -> Callable[[State], str]:
    """Return a router by all that it sees, or by its node's own part if it may see more after a pause (7.3)."""

    def route(state: State) -> str:
        number = _written(state, node.name) if graph.before_edge else len(state["log"])
        return node.routes[number % len(node.routes)]

    return route


def _returner(source: str, target: str, laps: int) -> Callable[[State], str]:
    return lambda state: target if _runs(state, source) <= laps else END


# --- random descriptions ------------------------------------------------------------------------------------------

DEPTH = 3


@st.composite
def graphs(draw: st.DrawFn, depth: int = 0, name: str = "", kept: bool = True) -> Graph:
    """Draw a graph: edges lead from earlier nodes to later ones, and at most one leads back."""
    keeps = draw(st.sampled_from([None, False, True] if kept else [None, False])) if depth else None
    size = draw(st.integers(1, 2) if depth else st.integers(2, 5))
    heads = [draw(_nodes(depth, f"{name}{letter}", kept and keeps is not False)) for letter in "abcde"[:size]]
    heads = [_routed(draw, node, heads[index + 1 :]) for index, node in enumerate(heads)]
    nodes: list[Node] = []
    edges: list[tuple[tuple[str, ...], str]] = []
    routed = {target for node in heads for target in node.routes}
    for node in heads:
        earlier = [other.name for other in nodes]
        sources = draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)) if earlier else []
        if draw(st.booleans()):
            edges += [((source,), node.name) for source in sources]
        elif sources:
            edges.append((tuple(sources), node.name))
        if not sources and (node.name not in routed or draw(st.booleans())):
            edges.append(((START,), node.name))
        nodes.append(node)
        if node.sends:
            nodes.append(draw(_workers(f"{node.name}_w")))
    names = [node.name for node in nodes]
    back = draw(_backs(heads))
    before, after = draw(_pauses(names)), draw(_pauses(names))
    # a join must hear of all in one go: filled by the edges that wait for nothing, it would be half filled once more
    may_wait = after == "*" or all(len(sources) == 1 for sources, _ in edges)
    before_edge = may_wait and draw(st.booleans())
    return Graph(name or "root", tuple(nodes), tuple(edges), back, before, after, before_edge, keeps)


def _routed(draw: st.DrawFn, node: Node, later: Sequence[Node]) -> Node:
    if not later or draw(st.integers(0, 3)):
        return node
    targets = st.sampled_from([*(other.name for other in later), END])
    return replace(node, routes=tuple(draw(st.lists(targets, min_size=1, max_size=3, unique=True))))


def _backs(nodes: Sequence[Node]) -> st.SearchStrategy[tuple[str, str, int] | None]:
    """Draw a way back, never a long one: from the last function, since functions are counted by what they log."""
    functions = [index for index, node in enumerate(nodes) if not node.child]
    if not functions:
        return st.none()
    last = functions[-1]
    target = st.sampled_from([node.name for node in nodes[: last + 1][-2:]])
    return st.none() | st.tuples(st.just(nodes[last].name), target, st.integers(1, 2))


@st.composite
def _pauses(draw: st.DrawFn, names: Sequence[str]) -> Names:
    kind = draw(st.sampled_from(["none", "none", "none", "some", "some", "all"]))
    if kind == "all":
        return "*"
    return tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))) if kind == "some" else ()


@st.composite
def _nodes(draw: st.DrawFn, depth: int, name: str, kept: bool) -> Node:
    nested = ["caller", "graph"] if depth < DEPTH else []
    kind = draw(st.sampled_from(["function"] * (3 + depth) + nested))
    defer = draw(st.sampled_from([False, False, False, True]))
    if kind == "graph":
        return Node(name, child=draw(graphs(depth + 1, name, kept)), defer=defer)
    acts = draw(_asks())
    if kind == "caller":
        nest = Nest(draw(graphs(depth + 1, name, kept)), draw(st.sampled_from([1, 1, 2])), draw(st.booleans()))
        acts.insert(draw(st.integers(0, len(acts))), nest)
    sends = draw(st.sampled_from([0, 0, 0, 0, 1, 2, 3]))
    return Node(name, tuple(acts), None, draw(st.booleans()), defer, sends, draw(_wishes))


_wishes = st.sampled_from([False, False, False, False, True])


@st.composite
def _workers(draw: st.DrawFn, name: str) -> Node:
    return Node(name, tuple(draw(_asks())), None, draw(st.booleans()), draw(st.booleans()), wishes=draw(_wishes))


@st.composite
def _asks(draw: st.DrawFn) -> list[Any]:
    """Draw up to three questions. A returned list comes last: later on it would no longer count its items."""
    sizes = draw(st.sampled_from([(), (), (), (), (1,), (1,), (1,), (2,), (3,), (1, 1), (1, 2), (2, 1)]))
    early: list[Way] = ["called", "keyed", "raised"]
    ways = [draw(st.sampled_from(early)) for _ in sizes[1:]]
    ways += [draw(st.sampled_from([*early, "returned"])) for _ in sizes[:1]]
    return [Ask(way, size) for way, size in zip(ways, sizes, strict=True)]
