"""What a run costs grows with what it does: counted, not timed, so that a busy machine changes nothing.

The unit is the line or call of Python that is executed, builtins that are called included, so a scan shows even if it
calls nothing.
"""

import asyncio
import operator
import sqlite3
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TypedDict

import pytest

from pregel import END, START, Command, InMemorySaver, Pregel, Saver, Send, SqliteSaver, StateGraph, pool
from pregel.checkpoint import Key
from pregel.threads import Threads
from tests.helpers import World


class Counter(TypedDict, total=False):
    n: int


class Total(TypedDict, total=False):
    n: int
    total: Annotated[int, operator.add]


def work(call: Callable[[], Any]) -> int:
    """Return how many lines and calls of Python this thread executes in a call."""
    count = 0

    def line(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += 1
        return line

    def builtin(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        if event == "c_call":
            count += 1

    before = sys.gettrace(), sys.getprofile()
    sys.setprofile(builtin)
    sys.settrace(line)
    try:
        call()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return count


def per_unit(cost: Callable[[int], int], small: int, large: int) -> tuple[float, float]:
    """Return the cost of a unit between `small` and twice that, and from there to `large`."""
    first, second, last = cost(small), cost(2 * small), cost(large)
    return (second - first) / small, (last - second) / (large - 2 * small)


def about(value: float) -> Any:
    """What recurs seldom, as a full list of versions does, falls on some counts and not on others."""
    return pytest.approx(value, rel=0.05)


def looping(
    world: World, limit: Callable[[], int], saver: Saver | None = None, *, keys: int = 1, spare: int = 0
) -> Pregel[Any]:
    """Return a graph of one node that runs as often as `limit` says, with so many keys and so many nodes beside it."""
    fields: Any = {"n": int, **{f"k{i}": int for i in range(keys - 1)}}
    state: Any = TypedDict("state", fields, total=False)  # type: ignore[misc] # the number of keys is a parameter
    names = [f"spare{i}" for i in range(spare)]
    builder: StateGraph[Any] = StateGraph(state)
    builder.add_node("step", world.node(lambda state: {"n": state["n"] + 1}))
    builder.add_conditional_edges("step", lambda state: "step" if state["n"] < limit() else END, ["step", END, *names])
    for name in names:
        builder.add_node(name, lambda state: None)
    return builder.set_entry_point("step").compile(saver)


def run(world: World, graph: Pregel[Any], values: dict[str, Any], thread: str | None) -> int:
    """Return the work of one run of a graph."""
    options: Any = {"recursion_limit": 100_000} | ({} if thread is None else {"thread_id": thread})
    if not world.is_async:
        return work(lambda: graph.invoke(values, **options))

    async def call() -> Any:
        return await graph.ainvoke(values, **options)

    with asyncio.Runner() as runner:
        runner.run(asyncio.sleep(0))  # the loop is made outside of what is counted
        return work(lambda: runner.run(call()))


@pytest.mark.parametrize("kept", [False, True], ids=["unkept", "kept"])
def test_a_step_costs_the_same_however_many_there_were(world: World, kept: bool) -> None:
    size = 0
    graph = looping(world, lambda: size, InMemorySaver() if kept else None)

    def cost(steps: int) -> int:
        nonlocal size
        size = steps
        return run(world, graph, {"n": 0}, f"t{steps}" if kept else None)

    cost(1)
    early, late = per_unit(cost, 100, 2_000)
    assert late == about(early)


@pytest.mark.parametrize("kept", [False, True], ids=["unkept", "kept"])
def test_a_task_costs_the_same_however_many_packets_there_are(
    world: World, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.7: the thread that waits does the work itself, so that it is counted."""
    monkeypatch.setattr(pool, "THREADS", Threads(most=0))
    size = 0

    def split(state: Total) -> Command:
        return Command(goto=[Send("one", {"n": i}) for i in range(size)])

    builder = StateGraph(Total).add_node("split", world.node(split), destinations=["one"])
    builder.add_node("one", world.node(lambda state: {"total": 1})).add_edge(START, "split")
    graph = builder.compile(InMemorySaver() if kept else None)

    def cost(tasks: int) -> int:
        nonlocal size
        size = tasks
        return run(world, graph, {"n": 0}, f"t{tasks}" if kept else None)

    cost(1)
    few, many = per_unit(cost, 100, 1_500)
    assert many == about(few)


def chained(nodes: int) -> StateGraph[Any]:
    """Return a builder with so many nodes in a row."""
    names = [f"step{i}" for i in range(nodes)]
    builder: StateGraph[Any] = StateGraph(Counter)
    builder.add_sequence([(name, lambda state: {"n": state["n"] + 1}) for name in names])
    return builder.set_entry_point(names[0])


def test_a_node_costs_the_same_to_build_and_compile_however_many_there_are() -> None:
    few, many = per_unit(lambda nodes: work(lambda: chained(nodes).compile()), 50, 1_000)
    assert many == about(few)


@pytest.mark.parametrize("kept", [False, True], ids=["unkept", "kept"])
def test_a_step_costs_the_same_however_many_nodes_the_graph_has(world: World, kept: bool) -> None:
    def cost(nodes: int) -> int:
        graph = looping(world, lambda: 20, InMemorySaver() if kept else None, spare=nodes - 1)
        return run(world, graph, {"n": 0}, "t" if kept else None)

    cost(1)
    assert cost(1_000) == cost(10)


@pytest.mark.parametrize("kept", [False, True], ids=["unkept", "kept"])
def test_a_step_costs_the_same_however_many_keys_the_state_has(world: World, kept: bool) -> None:
    def cost_of_a_step(keys: int) -> float:
        size = 0
        graph = looping(world, lambda: size, InMemorySaver() if kept else None, keys=keys)
        values = {"n": 0, **{f"k{i}": i for i in range(keys - 1)}}

        def cost(steps: int) -> int:
            nonlocal size
            size = steps
            return run(world, graph, values, f"t{steps}" if kept else None)

        cost(1)
        return (cost(620) - cost(20)) / 600  # 600 steps: two rounds of full lists

    few, many = cost_of_a_step(3), cost_of_a_step(300)
    # a full list of versions comes once in as many steps as there are keys, so it costs a step at most two lines
    assert many == (pytest.approx(few, abs=4) if kept else few)


@pytest.mark.parametrize("world", [World("sync")], ids=["sync"])
def test_reading_the_state_costs_the_same_however_long_the_history_is(world: World, saver: Saver) -> None:
    size = 0
    graph = looping(world, lambda: size, saver)
    for steps in (20, 400):
        size = steps
        graph.invoke({"n": 0}, thread_id=f"t{steps}")
    short, long = (work(lambda t=thread: graph.get_state(thread_id=t)) for thread in ("t20", "t400"))  # type: ignore[misc]
    assert long == about(short)


def rows_and_bytes(path: Path) -> tuple[int, int]:
    """Return how many rows a SQLite file holds, and how many bytes these hold."""
    db = sqlite3.connect(path)
    try:
        rows = size = 0
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in db.execute(f"SELECT * FROM {table}"):
                rows += 1
                size += sum(len(value) if isinstance(value, (bytes, str)) else 8 for value in row if value is not None)
        return rows, size
    finally:
        db.close()


def kept_by(folder: Path, steps: int, keys: int) -> tuple[int, int]:
    """Return what a run of so many steps over so many keys leaves in a SQLite file."""
    path = folder / f"{steps}-{keys}.db"
    with SqliteSaver(path) as saver:
        graph = looping(World("sync"), lambda: steps, saver, keys=keys)
        graph.invoke({"n": 0, **{f"k{i}": i for i in range(keys - 1)}}, thread_id="t")
    return rows_and_bytes(path)


def test_a_step_leaves_as_many_rows_and_bytes_however_many_there_were(tmp_path: Path) -> None:
    (rows50, bytes50), (rows100, bytes100), (rows400, bytes400) = (
        kept_by(tmp_path, steps, 1) for steps in (50, 100, 400)
    )
    assert rows400 - rows100 == 6 * (rows100 - rows50)
    assert bytes400 - bytes100 < 6 * (bytes100 - bytes50) * 1.1  # a larger number takes more bytes


def test_a_step_that_changes_one_key_leaves_about_as_much_however_many_keys_there_are(tmp_path: Path) -> None:
    def of_150_steps(keys: int) -> tuple[int, int]:
        (rows, size), (more_rows, more_size) = kept_by(tmp_path, 150, keys), kept_by(tmp_path, 300, keys)
        return more_rows - rows, more_size - size

    (few_rows, few_bytes), (many_rows, many_bytes) = of_150_steps(3), of_150_steps(150)
    assert many_rows == few_rows
    assert many_bytes < 2 * few_bytes


def test_reading_a_thread_follows_no_more_checkpoints_than_there_are_channels() -> None:
    """What a read follows stays bounded when every run makes few commits (rule 9.1)."""
    keys = {f"k{i}": int for i in range(12)}
    state = TypedDict("state", keys, total=False)  # type: ignore[misc] # made at run time
    saver = InMemorySaver()
    graph = StateGraph(state).add_node("n", lambda s: {"k0": 1}).add_edge(START, "n").compile(saver)
    graph.invoke(dict.fromkeys(keys, 0), thread_id="t")
    for _ in range(40):
        graph.invoke({"k1": 1}, thread_id="t")
    chain = [saved.checkpoint.complete for saved in saver.list(Key("t"))]
    longest = max(len(list(run)) for complete, run in groupby(chain) if not complete)
    assert longest <= len(keys)
