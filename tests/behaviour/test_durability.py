"""When what a run does is on disk, and who may write."""

import operator
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

from pregel import ConcurrentRunError, InMemorySaver, Saver, SqliteSaver
from pregel.checkpoint import Commit, Key, Run, TaskRecord
from pregel.types import Durability
from tests.helpers import START, World, build


class State(TypedDict, total=False):
    x: int
    log: Annotated[list[str], operator.add]


class Failing(InMemorySaver):
    """A saver whose n-th write fails."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number
        self.puts: list[tuple[int, int]] = []

    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError("disk full")
        super().put(run, commits, records)
        self.puts.append((len(commits), len(records)))


def _chain(world: World, saver: Saver, seen: list[Any] | None = None) -> Any:
    def node(name: str) -> Any:
        def run(state: State) -> dict[str, Any]:
            if seen is not None:
                found = saver.get(Key("t")).saved
                seen.append(None if found is None else found.checkpoint.step)
            return {"log": [name]}

        return world.node(run)

    return build(State, {n: node(n) for n in "abc"}, [(START, "a"), ("a", "b"), ("b", "c")], saver)


@pytest.mark.parametrize(("durability", "known"), [("sync", [0, 1, 2]), ("exit", [0, 0, 0])])
def test_what_is_stored_while_a_step_runs(world: World, durability: Durability, known: list[int]) -> None:
    """10.1: "sync" commits each step before the next one, "exit" only the beginning and the end."""
    seen: list[Any] = []
    saver = InMemorySaver()
    graph = _chain(world, saver, seen)
    assert world.invoke(graph, {}, thread_id="t", durability=durability)["log"] == ["a", "b", "c"]
    assert seen == known
    assert world.state(graph, thread_id="t").values["log"] == ["a", "b", "c"]


def test_async_durability_trails_by_at_most_one_step(world: World) -> None:
    """10.1"""
    seen: list[Any] = []
    graph = _chain(world, InMemorySaver(), seen)
    world.invoke(graph, {}, thread_id="t", durability="async")
    assert [max(0, step - 1) <= known <= step for step, known in enumerate(seen)] == [True] * 3


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_failing_saver_stops_the_run_with_everything_before_it_intact(
    world: World, durability: Durability, number: int
) -> None:
    """10.1: its error is raised; once it works again the run goes on to the same result."""
    saver = Failing(number)
    graph = _chain(world, saver)
    if durability == "exit" and number == 3:
        number = 0  # there are only two writes
    if number:
        with pytest.raises(OSError, match="disk full"):
            world.invoke(graph, {}, thread_id="t", durability=durability)
        given: dict[str, Any] | None = {} if number == 1 else None
        assert world.invoke(graph, given, thread_id="t", durability=durability)["log"] == ["a", "b", "c"]
    else:
        assert world.invoke(graph, {}, thread_id="t", durability=durability)["log"] == ["a", "b", "c"]


def test_exit_durability_writes_twice(world: World) -> None:
    """10.1: the beginning, then one transaction."""
    saver = Failing(0)
    world.invoke(_chain(world, saver), {}, thread_id="t", durability="exit")
    assert saver.puts == [(1, 0), (1, 0)]


def test_a_run_that_was_overtaken_writes_nothing_more(world: World, saver: Saver) -> None:
    """10.3: the run that began last goes on; an edit counts as a run."""
    graph = build(State, {"n": world.node(lambda s: {"log": ["mine"]})}, [(START, "n")], saver)

    def intrude(state: State) -> dict[str, Any]:
        graph.invoke({"x": 2}, thread_id="t")
        return {"log": ["overtaken"]}

    other = build(State, {"n": intrude}, [(START, "n")], saver)
    with pytest.raises(ConcurrentRunError):
        other.invoke({"x": 1}, thread_id="t")
    assert world.state(graph, thread_id="t").values == {"x": 2, "log": ["mine"]}


def test_a_deleted_and_reused_thread_is_another_thread(world: World, saver: Saver) -> None:
    """10.3"""

    def vanish(state: State) -> dict[str, Any]:
        saver.delete_thread("t")
        return {"log": ["ghost"]}

    graph = build(State, {"n": vanish}, [(START, "n")], saver)
    with pytest.raises(ConcurrentRunError):
        graph.invoke({}, thread_id="t")
    assert list(saver.threads()) == []


HAMMER = """
    import operator, sys
    from typing import Annotated, TypedDict
    from pregel import START, ConcurrentRunError, SqliteSaver, StateGraph

    class State(TypedDict, total=False):
        log: Annotated[list[str], operator.add]

    graph = StateGraph(State)
    for name in ("a", "b", "c"):
        graph.add_node(name, lambda s: {"log": ["x"]}).add_edge(START, name)
    won = 0
    with SqliteSaver(sys.argv[1]) as saver:
        app = graph.compile(saver)
        for _ in range(40):
            try:
                app.invoke({}, thread_id="t")
                won += 1
            except ConcurrentRunError:
                pass
    print(won)
"""


def test_two_processes_on_one_thread_never_both_win(tmp_path: Path) -> None:
    """10.3: whatever was reported as done is there, and the history is one line of parents."""
    path = tmp_path / "runs.db"
    command = [sys.executable, "-c", textwrap.dedent(HAMMER), str(path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    won = sum(int(process.communicate(timeout=60)[0]) for process in processes)
    with SqliteSaver(path) as saver:
        head = saver.get(Key("t")).saved
        assert head is not None
        chain = [saved.checkpoint for saved in saver.list(Key("t"))]
        assert [c.id for c in chain] == sorted({c.id for c in chain}, reverse=True)
        assert [c.parent_id for c in chain] == [c.id for c in chain[1:]] + [0]
        inputs = sum(c.source == "input" for c in chain)
        done = sum(c.status == "done" for c in chain)
    assert won <= done <= inputs
    assert won >= 1
