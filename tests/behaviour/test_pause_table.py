"""Every kind of pause at every place, from one table (5.2, 6.1 to 6.8, 7.1 to 7.7, 8.2).

`Moment` has the rules of a pause, `KINDS` the ways to make one, `PLACES` where its node may stand. `course` works out
from these few facts what a run shows at each of its stops; no expectation comes from the engine.
"""

import operator
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar

import pytest

from pregel import GraphInterrupt, InMemorySaver, Interrupt, Runtime, Saver, Send, SqliteSaver, interrupt
from tests.behaviour.calling import Call, calling
from tests.helpers import START, Ran, World, build

ROOT = Path(__file__).parents[2]


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    to: str


# --- the kinds of pause -------------------------------------------------------------------------------------------


class Moment(NamedTuple):
    """When a node pauses, and what that means. The edge is the one that leads on from the node."""

    when: str  # as the reason says it
    body_ran: bool  # at the pause
    merged: bool  # its update is in the state at the pause
    edge_decided: bool  # at the pause: an edit of the state comes too late to re-route
    answered: bool  # goes on by resume(answer), else by invoke(None)
    bodies: int  # how often its body has run at the end


INSIDE = Moment("inside", body_ran=True, merged=False, edge_decided=False, answered=True, bodies=2)
BEFORE = Moment("before", body_ran=False, merged=False, edge_decided=False, answered=False, bodies=1)
AFTER = Moment("after", body_ran=True, merged=True, edge_decided=True, answered=False, bodies=1)
EDGE = Moment("after", body_ran=True, merged=True, edge_decided=False, answered=False, bodies=1)

Body = Callable[[Runtime[Any]], Any]


def plain(runtime: Runtime[Any]) -> Any:
    return "x"


def asks(runtime: Runtime[Any]) -> Any:
    return f"x {interrupt('?')}"


def asks_by_key(runtime: Runtime[Any]) -> Any:
    return f"x {interrupt('?', key='k')}"


def returns_question(runtime: Runtime[Any]) -> Any:
    return f"x {runtime.answers[0]}" if runtime.answers else GraphInterrupt(Interrupt("?"))


def raises_question(runtime: Runtime[Any]) -> Any:
    if not runtime.answers:
        raise GraphInterrupt("?")
    return f"x {runtime.answers[0]}"


def wishes(runtime: Runtime[Any]) -> Any:
    runtime.interrupt_after("look")
    return "x"


@dataclass(frozen=True, eq=False)
class Kind:
    """A way to make node x pause."""

    name: str
    at: Moment
    mark: str  # how the id of the reason ends
    body: Body = plain  # of x: returns what x logs, or its question
    value: Any = None  # of the reason
    compiled: Mapping[str, Any] = field(default_factory=dict)  # options of the graph that x is in
    called: Mapping[str, Any] = field(default_factory=dict)  # options of each call: the root's alone (7.7)
    everywhere: bool = False  # every node of x's graph pauses, not x alone


LIST: Any = {"before": {"interrupt_before": ["x"]}, "after": {"interrupt_after": ["x"]}}
STAR: Any = {"before": {"interrupt_before": "*"}, "after": {"interrupt_after": "*"}}
WITHHELD = {"interrupt_before_edge": True}

KINDS = [
    Kind("interrupt()", INSIDE, "#0", asks, "?"),
    Kind("interrupt(key=)", INSIDE, "#=k", asks_by_key, "?"),
    Kind("return GraphInterrupt", INSIDE, "#0", returns_question, "?"),
    Kind("raise GraphInterrupt", INSIDE, "#0", raises_question, "?"),
    Kind("before, compiled", BEFORE, "!before", compiled=LIST["before"]),
    Kind("before, per call", BEFORE, "!before", called=LIST["before"]),
    Kind("before *", BEFORE, "!before", compiled=STAR["before"], everywhere=True),
    Kind("after, compiled", AFTER, "!after", compiled=LIST["after"]),
    Kind("after, per call", AFTER, "!after", called=LIST["after"]),
    Kind("after *", AFTER, "!after", compiled=STAR["after"], everywhere=True),
    Kind("runtime.interrupt_after", AFTER, "!after", wishes, "look"),
    Kind("edge, compiled", EDGE, "!after", compiled=LIST["after"] | WITHHELD),
    Kind("edge, per call", EDGE, "!after", compiled=WITHHELD, called=LIST["after"]),
    Kind("edge, runtime.interrupt_after", EDGE, "!after", wishes, "look", compiled=WITHHELD),
]


# --- the places of the node that pauses -----------------------------------------------------------------------------


def again(state: State) -> str:
    """Lead from x to x for a second lap, then on."""
    return "x" if sum(entry.startswith("x") for entry in state["log"]) < 2 else "b"


def two_packets(state: State) -> list[Send]:
    return [Send("x", {}), Send("x", {})]


@dataclass(frozen=True, eq=False)
class Place:
    """Where x stands: the graph around it, the tasks of each of its super-steps, and the graphs around that one."""

    name: str
    steps: tuple[tuple[str, ...], ...]
    edges: tuple[tuple[Any, str], ...]
    branches: tuple[tuple[Any, ...], ...] = ()
    depth: int = 0  # how many graphs are around it: each runs `before`, then `g` with it inside, then `behind`
    called: bool = False  # g is a function that calls child.invoke, so it runs again with each resume; else a graph


CHAIN: Any = {"steps": (("a",), ("x",), ("b",)), "edges": ((START, "a"), ("a", "x"), ("x", "b"))}

PLACES = [
    Place("first", (("x",), ("b",)), ((START, "x"), ("x", "b"))),
    Place("middle", **CHAIN),
    Place("last", (("a",), ("x",)), ((START, "a"), ("a", "x"))),
    Place("branch", (("a",), ("x", "s"), ("b",)), ((START, "a"), ("a", "x"), ("a", "s"), (["x", "s"], "b"))),
    Place("lap", (("a",), ("x",), ("x",), ("b",)), ((START, "a"), ("a", "x")), (("x", again, ["x", "b"]),)),
    Place("packet", (("a",), ("x", "x"), ("b",)), ((START, "a"), ("x", "b")), (("a", two_packets, ["x"]),)),
    Place("graph as node", **CHAIN, depth=1),
    Place("child.invoke", **CHAIN, depth=1, called=True),
    Place("five deep", (("x",),), ((START, "x"),), depth=5),
]


# --- what follows from the two --------------------------------------------------------------------------------------


class Stop(NamedTuple):
    """What a run shows where it stops: at a pause, or at its end, which has no reasons."""

    reasons: list[tuple[Any, ...]]  # each as `told` has it
    next: tuple[str, ...]
    counts: Counter[str]  # how often each body has run by then
    log: list[str]


def course(kind: Kind, place: Place) -> list[Stop]:
    """Return the stops of a run, from its input to its end."""
    return [seen_from_outside(place, entered, stop) for entered, stop in enumerate(inner_course(kind, place), 1)]


def inner_course(kind: Kind, place: Place) -> Iterator[Stop]:
    """Yield the stops as x's own graph has them. Its commits are counted: the one that wakes a task names it."""
    at, counts, log = kind.at, Counter[str](), list[str]()
    commit = woken = 1  # the input
    for tasks, behind in zip(place.steps, (*place.steps[1:], ()), strict=True):
        pausing = [name for name in tasks if kind.everywhere or name == "x"]
        following = next_of(at, tasks, pausing, behind)
        reasons = [
            reason(kind, place, id_, following) for id_ in task_ids(woken, tasks) if id_.split("@")[0] in pausing
        ]
        if pausing and not at.merged:
            yield Stop(reasons, following, counts + Counter(tasks if at.body_ran else ()), [*log])
            commit += 2 if at.body_ran else 1  # the resume; a step that is left half done is a commit of its own (7.6)
        counts.update([*tasks, *pausing * (at.bodies - 1)])
        log += ["x yes" if at.answered and name == "x" else name for name in tasks]
        commit += 1  # the step
        woken = commit
        if pausing and at.merged:
            yield Stop(reasons, following, counts.copy(), [*log])
            commit += 1  # the resume
            if not at.edge_decided:
                commit += 1  # the edge
                woken = commit
    yield Stop([], (), counts, log)


def next_of(at: Moment, tasks: tuple[str, ...], pausing: list[str], behind: tuple[str, ...]) -> tuple[str, ...]:
    """Return what the pause shows as `next`: rules 7.1, 5.2, 7.2 and 7.3, a line each."""
    if at is BEFORE:
        return unique(tasks)  # no task of the step has started
    if at is INSIDE:
        return unique(pausing)  # the siblings have finished
    if at is AFTER:
        return unique(behind)
    return unique(f"{name}/edge" for name in pausing)  # withheld, and nothing behind the join is due


def unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def task_ids(woken: int, tasks: tuple[str, ...]) -> list[str]:
    """Return the ids of the tasks of a step; packets to one node have a number."""
    packets = len(tasks) > len(set(tasks))
    return [f"{name}@{woken}.{index}" if packets else f"{name}@{woken}" for index, name in enumerate(tasks)]


def reason(kind: Kind, place: Place, task_id: str, following: tuple[str, ...]) -> tuple[Any, ...]:
    namespace = ("g@2",) * place.depth
    id_ = "|".join([*namespace, task_id + kind.mark])
    return (id_, kind.value, task_id.split("@")[0], namespace, kind.at.when, following)


def seen_from_outside(place: Place, entered: int, stop: Stop) -> Stop:
    """Return the stop as the outermost graph has it, which has entered g so often (8.2)."""
    if not place.depth:
        return stop
    ended, depth = not stop.reasons, place.depth
    around = Counter(before=depth, g=depth * entered if place.called else 0, behind=depth if ended else 0)
    log = ["before"] * depth + stop.log + ["behind"] * depth if ended else ["before"]
    return Stop(stop.reasons, () if ended else ("g",), stop.counts + around, log)


# --- the graph of a case, and its calls -----------------------------------------------------------------------------


class Mixed(World):
    """Calls a graph one way, its nodes are of the other way."""

    def node(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return self.of_nodes.node(fn)

    @property
    def of_nodes(self) -> World:
        return World("sync" if self.is_async else "async")


WORLDS = {"sync": World("sync"), "async": World("async"), "invoke+async": Mixed("sync"), "ainvoke+sync": Mixed("async")}


def step(world: World, ran: Ran, name: str) -> Any:
    def node(state: State) -> Any:
        ran(name)
        return {"log": [name]}

    return world.node(node)


def pausing_node(kind: Kind, world: World, ran: Ran) -> Any:
    def x(state: State, runtime: Runtime[Any]) -> Any:
        ran("x")
        said = kind.body(runtime)
        return said if isinstance(said, GraphInterrupt) else {"log": [said]}

    return world.node(x)


def graph_of(kind: Kind, place: Place, world: World, ran: Ran, saver: Saver) -> Any:
    """Build the graph of a case: x's own, then those around it."""
    nodes = {name: step(world, ran, name) for tasks in place.steps for name in tasks}
    nodes["x"] = pausing_node(kind, world, ran)
    kept = None if place.depth else saver
    graph = build(State, nodes, place.edges, kept, branches=place.branches, name="depth0", **kind.compiled)
    for depth in range(1, place.depth + 1):
        inside = calling_node(world, ran, graph) if place.called else graph
        nodes = {"before": step(world, ran, "before"), "g": inside, "behind": step(world, ran, "behind")}
        edges = [(START, "before"), ("before", "g"), ("g", "behind")]
        graph = build(State, nodes, edges, saver if depth == place.depth else None, name=f"depth{depth}")
    return graph


def calling_node(world: World, ran: Ran, child: Any) -> Any:
    def body(state: State) -> Generator[Call, Any, Any]:
        ran("g")
        return (yield Call(child, {}))

    return calling(world.of_nodes if isinstance(world, Mixed) else world, body)


def told(interrupts: Iterable[Interrupt]) -> list[tuple[Any, ...]]:
    return [(i.id, i.value, i.node, i.namespace, i.when, i.next) for i in interrupts]


def go_on(world: World, graph: Any, kind: Kind, pause: Stop) -> dict[str, Any]:
    """Pass a pause: answer what it asks, or call with None."""
    options = {"thread_id": "t", **kind.called}
    if not kind.at.answered:
        return world.invoke(graph, None, **options)
    if len(pause.reasons) == 1:
        return world.resume(graph, "yes", **options)
    return world.resume(graph, answers={id_: "yes" for id_, *_ in pause.reasons}, **options)


# --- the table ------------------------------------------------------------------------------------------------------

PROCESSES = ["same", "new"]  # the same graph object all along, or all dropped and built anew for every call

Case = tuple[Kind, Place, str, str, str]


def cases() -> Iterator[Case]:
    """Yield the table: each kind at each place, twice or thrice; worlds, savers and processes take turns."""
    for (k, kind), (p, place) in product(enumerate(KINDS), enumerate(PLACES)):
        if kind.called and place.depth:
            continue  # the lists of a call are the root's, and no child sees them (7.7)
        worlds, turn = [*WORLDS], k + p
        yield kind, place, worlds[turn % 4], "memory", "same"
        yield kind, place, worlds[(turn + 1) % 4], "memory", "new"
        if turn % 3:  # not always: this one waits for the disk
            yield kind, place, worlds[(turn + 2) % 4], "sqlite", PROCESSES[turn // 4 % 2]


CASES = [*cases()]


def test_the_table_is_large() -> None:
    assert len(CASES) == len({*CASES}) >= 300


@pytest.mark.parametrize(("left", "right"), [*combinations(range(5), 2)])
def test_any_two_values_of_the_table_meet(left: int, right: int) -> None:
    """Each kind is at each place, in each world, on each saver, in each process, and so on; but see `cases`."""
    columns: list[list[Any]] = [KINDS, PLACES, [*WORLDS], ["memory", "sqlite"], PROCESSES]
    senseless = {(kind, place) for kind in KINDS for place in PLACES if kind.called and place.depth}
    met = {(case[left], case[right]) for case in CASES}
    assert met == {*product(columns[left], columns[right])} - senseless


def savers(saver: str, path: Path) -> Callable[[], AbstractContextManager[Saver]]:
    """Return what opens the place where a case keeps its runs, as often as it is called."""
    if saver == "sqlite":
        return lambda: SqliteSaver(path)
    memory = InMemorySaver()
    return lambda: nullcontext(memory)


@pytest.mark.parametrize(
    ("kind", "place", "world", "saver", "process"),
    [
        pytest.param(kind, place, WORLDS[world], *where, id="-".join([kind.name, place.name, world, *where]))
        for kind, place, world, *where in CASES
    ],
)
def test_a_pause_keeps_its_rules(
    kind: Kind, place: Place, world: World, saver: str, process: str, ran: Ran, tmp_path: Path
) -> None:
    """What ran, what is told, what is next and what comes of it, at every stop of a run (6.4, 6.5, 7.1 to 7.4, 8.2)."""
    opens, stops = savers(saver, tmp_path / "runs.db"), course(kind, place)
    with ExitStack() as engine:
        graph = graph_of(kind, place, world, ran, engine.enter_context(opens()))
        check(world, graph, ran, world.invoke(graph, {}, thread_id="t", **kind.called), stops[0])
        for pause, stop in pairwise(stops):
            if process == "new":
                engine.close()
                graph = graph_of(kind, place, world, ran, engine.enter_context(opens()))
            check(world, graph, ran, go_on(world, graph, kind, pause), stop)


def check(world: World, graph: Any, ran: Ran, result: dict[str, Any], stop: Stop) -> None:
    """Compare a stop with the result, the stored state and what ran; a crash recovery changes none of it (7.6)."""
    state = world.state(graph, thread_id="t")
    assert told(result.get("__interrupt__", [])) == told(state.interrupts) == stop.reasons
    assert ("__interrupt__" in result) == bool(stop.reasons)
    assert result["log"] == state.values["log"] == stop.log
    assert (state.status, state.next) == ("paused" if stop.reasons else "done", stop.next)
    assert world.recover(graph, thread_id="t") == result
    assert graph.get_state(thread_id="t") == state
    assert ran.counts == stop.counts


# --- in another process ---------------------------------------------------------------------------------------------

Row = TypeVar("Row", Kind, Place)


def named(name: str, rows: list[Row]) -> Row:
    return next(row for row in rows if row.name == name)


CODE = "import sys; from tests.behaviour.test_pause_table import pass_pause; pass_pause(*sys.argv[1:])"


def pass_pause(kind: str, place: str, world: str, number: str, folder: str) -> None:
    """Pass one pause of a case as a process of its own, and leave the result and what ran in a file."""
    how, where, ran = named(kind, KINDS), named(place, PLACES), Ran()
    with SqliteSaver(Path(folder, "runs.db")) as saver:
        graph = graph_of(how, where, WORLDS[world], ran, saver)
        result = go_on(WORLDS[world], graph, how, course(how, where)[int(number)])
    Path(folder, "result").write_bytes(pickle.dumps((result, ran.order)))


@pytest.mark.parametrize(
    ("kind", "place", "world"),
    [
        ("interrupt(key=)", "packet", "invoke+async"),
        ("before, compiled", "five deep", "async"),
        ("runtime.interrupt_after", "child.invoke", "sync"),
        ("edge, per call", "branch", "ainvoke+sync"),
    ],
)
def test_a_pause_is_passed_in_another_process(kind: str, place: str, world: str, ran: Ran, tmp_path: Path) -> None:
    """6.8, 7.6: each call but the first in a process of its own; this one only looks."""
    how, where = named(kind, KINDS), named(place, PLACES)
    stops = course(how, where)
    with SqliteSaver(tmp_path / "runs.db") as saver:
        graph = graph_of(how, where, WORLDS[world], ran, saver)
        check(WORLDS[world], graph, ran, WORLDS[world].invoke(graph, {}, thread_id="t", **how.called), stops[0])
        for number, stop in enumerate(stops[1:]):
            command = [sys.executable, "-c", CODE, kind, place, world, str(number), str(tmp_path)]
            subprocess.run(command, cwd=ROOT, check=True, timeout=60)
            result, names = pickle.loads((tmp_path / "result").read_bytes())
            for name in names:
                ran(name)
            check(WORLDS[world], graph, ran, result, stop)


# --- the columns of the table that the README prints ------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_what_a_kind_of_pause_means(kind: Kind, world: World, saver: Saver, ran: Ran) -> None:
    """7.1 to 7.3, 4.1, 4.3: a -?-> x -?-> b or c, where the state is edited while x pauses.

    The edge to x is decided and stays so. The edge from x follows the edit exactly if it is not decided at the pause.
    """

    def edge(name: str, target: str) -> Callable[[State], str]:
        def route(state: State) -> str:
            ran(name)
            return state.get("to", target)

        return route

    nodes = {name: step(world, ran, name) for name in "abc"} | {"x": pausing_node(kind, world, ran)}
    branches = [("a", edge("to x", "x"), ["x", "c"]), ("x", edge("from x", "b"), ["b", "c"])]
    graph = build(State, nodes, [(START, "a")], saver, branches=branches, **kind.compiled)
    result = world.invoke(graph, {}, thread_id="t", **kind.called)
    if kind.everywhere:  # a "*" pauses at a too
        result = world.invoke(graph, None, thread_id="t", **kind.called)

    at = kind.at
    assert [(i.node, i.when) for i in result["__interrupt__"]] == [("x", at.when)]
    assert ("x" in result["log"], ran.counts["x"]) == (at.merged, int(at.body_ran))
    assert (ran.counts["to x"], ran.counts["from x"]) == (1, int(at.edge_decided))
    assert (result["__interrupt__"][0].next == ("b",)) == at.edge_decided

    world.update(graph, None, {"to": "c"}, thread_id="t")
    assert told(world.state(graph, thread_id="t").interrupts) == told(result["__interrupt__"])
    result = world.resume(graph, "yes", thread_id="t") if at.answered else world.invoke(graph, None, thread_id="t")
    if kind.everywhere:  # and at the last node
        result = world.invoke(graph, None, thread_id="t")
    assert result["log"] == ["a", "x yes" if at.answered else "x", "b" if at.edge_decided else "c"]
    assert (ran.counts["x"], ran.counts["to x"], ran.counts["from x"]) == (at.bodies, 1, 1)
