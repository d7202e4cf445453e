"""Faults of engines of this kind: joins that never fire, fire twice or lose a branch, above all after a restart."""

import operator
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

import pytest

from pregel import Saver, Send, SqliteSaver, interrupt
from pregel.checkpoint import Commit, Run, TaskRecord
from tests.behaviour.calling import noted
from tests.helpers import END, START, Ran, World, build, ids

WAIT = 10
PIECES = 200  # more than any shape below can be cut into


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


# --- shapes -----------------------------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """A graph and what its nodes must log: their names, or the text that a packet brings. `late` nodes are deferred."""

    sentence: str
    nodes: str
    edges: Sequence[tuple[Any, str]]
    log: str
    branches: Sequence[tuple[Any, ...]] = ()
    late: str = ""
    stalled: Mapping[str, tuple[str, ...]] = {}


def laps(node: str, number: int, again: str) -> Callable[[State], str]:
    """Return a router that goes `again` until `node` has run so many times."""
    return lambda s: again if s["log"].count(node) < number else END


def packets(node: str) -> Callable[[State], list[Send]]:
    return lambda s: [Send(node, f"{node}{number}") for number in (1, 2, 3)]


def routed(sentence: str, way: str, edges: Sequence[tuple[Any, str]], log: str, **options: Any) -> Shape:
    """Return a fork into `a`, for certain, and into `b` and then `c` or into `skip`, as a router says."""
    branch = (START, lambda s: way, ["b", "skip"])
    return Shape(sentence, "a b c skip m", [(START, "a"), ("b", "c"), *edges], log, [branch], **options)


FORK: list[tuple[Any, str]] = [(START, "a"), (START, "b"), ("b", "c")]  # a short branch and a long one
LOOP: list[tuple[Any, str]] = [(START, "g"), ("g", "a"), ("g", "b"), ("b", "c")]
AGAIN = [("m", laps("m", 3, "g"), ["g", END])]
ROWS: list[tuple[Any, str]] = [
    *((START, n) for n in "abc"),
    (["a", "b", "c"], "j"),
    *(("j", n) for n in "xyz"),
    (["x", "y", "z"], "k"),
]
BOTH: list[tuple[Any, str]] = [(["a", "c"], "m")]
EITHER: list[tuple[Any, str]] = [([{"c", "skip"}, "a"], "m")]
PLAIN: list[tuple[Any, str]] = [("a", "m"), ("c", "m")]

SHAPES = [
    Shape("plain edges of unequal branches run m twice", "a b c m", [*FORK, *PLAIN], "a b c m m"),
    Shape("a join of unequal branches runs m once", "a b c m", [*FORK, *BOTH], "a b c m"),
    Shape("a deferred m runs once", "a b c m", [*FORK, *PLAIN], "a b c m", late="m"),
    Shape("a group of both is filled by each", "a b c m", [*FORK, ([{"a", "c"}], "m")], "a b c m m"),
    Shape("START is a member too", "a m", [(START, "a"), ([START, "a"], "m")], "a m"),
    Shape(
        "two joins share a member",
        "a b c d m k",
        [*FORK, ("c", "d"), *BOTH, (["a", "d"], "k")],
        "a b c d m k",
    ),
    Shape("a join feeds a join", "a b c j x y z k", ROWS, "a b c j x y z k"),
    Shape(
        "a join of packets feeds a join of packets",
        "a p j q k",
        [(START, "a"), (["p"], "j"), (["q"], "k")],
        "a p1 p2 p3 j q1 q2 q3 k",
        [("a", packets("p"), ["p"]), ("j", packets("q"), ["q"])],
    ),
    Shape(
        "packets and a longer branch",
        "a b c p m",
        [(START, "a"), ("a", "b"), ("b", "c"), (["p", "c"], "m")],
        "a b p1 p2 p3 c m",
        [("a", packets("p"), ["p"])],
    ),
    Shape(
        "a member that comes twice fills nothing for another",
        "a b c d m",
        [*FORK, ("c", "d"), (["a", "d"], "m")],
        "a b a c d m",
        [("a", laps("a", 2, "a"), ["a", END])],
    ),
    Shape("a join in a loop starts empty on each lap", "g a b c m", [*LOOP, *BOTH], " ".join(["g a b c m"] * 3), AGAIN),
    Shape(
        "a deferred node in a loop is held on each lap",
        "g a b c m",
        [*LOOP, *PLAIN],
        " ".join(["g a b c m"] * 3),
        AGAIN,
        "m",
    ),
    routed("a join with a branch not taken is reported", "skip", BOTH, "a skip", stalled={"m": ("a",)}),
    routed("a join with the branch taken fires", "b", BOTH, "a b c m"),
    routed("a group lets the branch not taken stand in", "skip", EITHER, "a skip m"),
    routed("a group waits for the branch taken", "b", EITHER, "a b c m"),
    routed("a deferred node misses nobody who does not come", "skip", PLAIN, "a skip m", late="m"),
    routed("a deferred node waits for who comes", "b", PLAIN, "a b c m", late="m"),
]
DRAWN = {shape.sentence: (shape.log, shape.stalled) for shape in SHAPES}

Make = Callable[[Shape], Any]
Step = Callable[[str, Any], None]


def maker(world: World, saver: Saver, step: Step = lambda name, state: None) -> Make:
    """Return what compiles a shape anew each time; its nodes do `step(name)` before they log."""

    def node(name: str) -> Any:
        def run(state: Any) -> dict[str, Any]:
            mine = state if isinstance(state, str) else name
            step(mine, state)
            return {"log": [mine]}

        return world.node(run)

    def make(shape: Shape) -> Any:
        nodes = {n: (node(n), {"defer": n in shape.late}) for n in shape.nodes.split()}
        return build(State, nodes, shape.edges, saver, branches=shape.branches)

    return make


def seen(world: World, graph: Any, shape: Shape) -> tuple[str, Mapping[str, tuple[str, ...]]]:
    state = world.state(graph, thread_id=shape.sentence)
    assert state.status == "done"
    return " ".join(state.values["log"]), state.stalled


def in_pieces(
    world: World, make: Make, go_on: Callable[[Any, str, dict[str, Any]], dict[str, Any]], **options: Any
) -> dict[str, Any]:
    """Run each shape from pause to pause, each piece by a graph of its own; return what was logged and stalled."""
    found = {}
    for shape in SHAPES:
        result = world.invoke(make(shape), {}, thread_id=shape.sentence, **options)
        pieces = 1
        while "__interrupt__" in result and pieces < PIECES:
            result = go_on(make(shape), shape.sentence, result)
            pieces += 1
        assert pieces > 1
        found[shape.sentence] = seen(world, make(shape), shape)
    return found


def test_each_shape_runs_as_it_is_drawn(world: World, saver: Saver) -> None:
    """1.3, 2.6, 3.3, 3.4: once per fill, in loops too; plain edges once per step; what never fills is reported."""
    make, found = maker(world, saver), {}
    for shape in SHAPES:
        graph = make(shape)
        world.invoke(graph, {}, thread_id=shape.sentence)
        found[shape.sentence] = seen(world, graph, shape)
    assert found == DRAWN


@pytest.mark.parametrize("kind", ["interrupt_before", "interrupt_after"])
def test_a_restart_at_every_boundary_changes_nothing(world: World, saver: Saver, kind: str) -> None:
    """2.5, 2.6: half-filled barriers, held nodes and packets are read back by another engine after each step."""
    every = {kind: "*"}

    def go_on(graph: Any, thread: str, result: dict[str, Any]) -> dict[str, Any]:
        return world.invoke(graph, None, thread_id=thread, **every)

    assert in_pieces(world, maker(world, saver), go_on, **every) == DRAWN


def test_an_edit_at_every_boundary_changes_nothing(world: World, saver: Saver) -> None:
    """2.5, 9.3: an edit keeps what is due and what is half filled."""

    def go_on(graph: Any, thread: str, result: dict[str, Any]) -> dict[str, Any]:
        world.update(graph, None, {"log": []}, thread_id=thread)
        return world.invoke(graph, None, thread_id=thread, interrupt_before="*")

    assert in_pieces(world, maker(world, saver), go_on, interrupt_before="*") == DRAWN


def test_questions_in_every_node_change_nothing(world: World, saver: Saver) -> None:
    """2.5, 6.7: each task asks, one is answered at a time, each time by another engine."""

    def go_on(graph: Any, thread: str, result: dict[str, Any]) -> dict[str, Any]:
        return world.resume(graph, answers={ids(result)[-1]: "go on"}, thread_id=thread)

    make = maker(world, saver, lambda name, state: interrupt(name))
    assert in_pieces(world, make, go_on) == DRAWN


def test_a_failure_of_every_task_changes_nothing(world: World, saver: Saver, ran: Ran) -> None:
    """2.5, 5.5: each task fails once; another engine goes on with what had not finished."""

    def fails_at_first(name: str, state: Any) -> None:
        ran(name)
        if ran.counts[name] % 2:
            raise ConnectionError(name)

    make, found = maker(world, saver, fails_at_first), {}
    for shape in SHAPES:
        failures = 0
        given: dict[str, Any] | None = {}
        while failures < PIECES:
            try:
                world.invoke(make(shape), given, thread_id=shape.sentence)
                break
            except ConnectionError:
                failures, given = failures + 1, None
        assert failures >= 1
        found[shape.sentence] = seen(world, make(shape), shape)
        ran.take()
    assert found == DRAWN


def test_a_replay_of_every_checkpoint_changes_nothing(world: World, saver: Saver) -> None:
    """2.5, 9.4: what was stored replaces what came later: a run from any checkpoint ends like the first."""
    make = maker(world, saver)
    for shape in SHAPES:
        world.invoke(make(shape), {}, thread_id=shape.sentence)
        for state in world.history(make(shape), thread_id=shape.sentence)[::-1]:
            world.call(make(shape), "fork", state.config)
            assert (shape.sentence, *seen(world, make(shape), shape)) == (shape.sentence, shape.log, shape.stalled)


@pytest.mark.parametrize("paused", [True, False])
def test_a_new_input_finds_every_join_empty(world: World, saver: Saver, paused: bool) -> None:
    """6.12, 2.6: what half filled a join for one input, at its end or at a pause, does not count for the next."""

    class Routed(State):
        way: str

    nodes = {n: world.node(lambda s, n=n: {"log": [n]}) for n in ("a", "b", "c", "m")}
    branches = [(START, lambda s: s["way"], ["a", "b"])]
    edges: list[tuple[Any, str]] = [("a", "c"), (["a", "b"], "m")]
    graph = build(Routed, nodes, edges, saver, branches=branches)
    before = ["c"] if paused else []
    result = world.invoke(graph, {"way": "a"}, thread_id="t", interrupt_before=before)
    assert (result["log"], "__interrupt__" in result) == ((["a"], True) if paused else (["a", "c"], False))
    assert world.invoke(graph, {"way": "b"}, thread_id="t")["log"] == [*result["log"], "b"]
    assert world.state(graph, thread_id="t").stalled == {"m": ("b",)}


# --- siblings of unequal speed ----------------------------------------------------------------------------------------


class Watching(SqliteSaver):
    """A saver that tells when the ending of a task is on disk."""

    def __init__(self, path: Path, task_id: str) -> None:
        super().__init__(path)
        self.task_id = task_id
        self.recorded = threading.Event()

    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        super().put(run, commits, records)
        if any(record.task_id == self.task_id for record in records):
            self.recorded.set()


def test_what_is_stored_while_a_sibling_runs_is_enough(world: World, tmp_path: Path, ran: Ran) -> None:
    """2.5, 10.2: the file as it was while `slow` ran, `fast` done: `slow` runs again, the join once, with all of it."""
    early, late = tmp_path / "early.db", tmp_path / "late.db"
    watching = Watching(late, "fast@2")

    def slow(state: State) -> dict[str, Any]:
        assert watching.recorded.wait(WAIT)
        if not early.exists():
            with sqlite3.connect(late) as source, sqlite3.connect(early) as copy:
                source.backup(copy)
            source.close()
            copy.close()
        return noted(ran, "slow", {"log": ["slow"]})

    def graph(saver: Saver) -> Any:
        nodes = {n: world.node(lambda s, n=n: noted(ran, n, {"log": [n]})) for n in ("a", "fast", "join")}
        edges: list[tuple[Any, str]] = [(START, "a"), ("a", "fast"), ("a", "slow"), (["a", "fast", "slow"], "join")]
        return build(State, {"slow": slow, **nodes}, edges, saver)

    with watching:
        whole = world.invoke(graph(watching), {}, thread_id="t")
    assert whole == {"log": ["a", "slow", "fast", "join"]}
    assert sorted(ran.take()) == ["a", "fast", "join", "slow"]
    with SqliteSaver(early) as saver:
        assert world.state(graph(saver), thread_id="t").next == ("slow",)
        assert world.recover(graph(saver), thread_id="t") == whole
    assert ran.take() == ["slow", "join"]


def fast_and_after(world: World, ended: threading.Event) -> dict[str, Any]:
    """Return a quick node and the one after it, which logs what it sees and says that it ran."""

    def after(state: State) -> dict[str, Any]:
        ended.set()
        return {"log": [("after", list(state["log"]))]}

    return {"fast": world.node(lambda s: {"log": ["fast"]}), "after": world.node(after)}


def test_a_step_waits_for_all_of_its_tasks(world: World, saver: Saver) -> None:
    """3.2: what follows a quick branch starts with the next step, when it sees what the slow branch wrote."""
    nodes = {**fast_and_after(world, threading.Event()), "slow": world.node(lambda s: {"log": ["slow"]})}
    graph = build(State, nodes, [(START, "fast"), (START, "slow"), ("fast", "after")], saver)
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["fast", "slow", ("after", ["fast", "slow"])]


def test_a_chain_in_a_graph_of_its_own_does_not_wait_for_a_slow_sibling(world: World, saver: Saver) -> None:
    """3.2, 8.1: grouped as one task, a quick chain runs to its end while its sibling is still at work."""
    ended = threading.Event()

    def slow(state: State) -> dict[str, Any]:
        assert ended.wait(WAIT)
        return {"log": ["slow"]}

    chain = build(State, fast_and_after(world, ended), [(START, "fast"), ("fast", "after")])
    nodes = {"chain": chain, "slow": slow, "join": world.node(lambda s: {"log": ["join"]})}
    graph = build(State, nodes, [(START, "chain"), (START, "slow"), (["chain", "slow"], "join")], saver)
    assert world.invoke(graph, {}, thread_id="t")["log"] == ["fast", ("after", ["fast"]), "slow", "join"]
