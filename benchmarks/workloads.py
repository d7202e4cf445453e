"""The workloads, each as two calls that must return the same: the engine's, and that of the hand-written floor."""

from __future__ import annotations

import asyncio
import functools
import operator
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from itertools import count, pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

from benchmarks import floor
from benchmarks.floor import Floor, Packet
from pregel import END, START, InMemorySaver, Pregel, Saver, Send, SqliteSaver, StateGraph, interrupt

Call = Callable[[], Any]


class Pair(NamedTuple):
    """Two calls that do the same, and what must be called in the end."""

    floor: Call
    pregel: Call
    close: Callable[[], None] = lambda: None


class Case(NamedTuple):
    """A workload: how to make it in a size and a folder of its own, its usual size, and how many units that is."""

    make: Callable[[int, Path], Pair]
    size: int
    unit: str
    units: int


# --- the two sides of a run ---------------------------------------------------------------------------------------


class Sides:
    """Runs a graph and its floor the sync or the async way, without a saver or on one, each run on a new thread."""

    def __init__(self, world: str, keeps: str, folder: Path) -> None:
        self.is_async = world == "async"
        self.keeps = keeps
        self._runner = asyncio.Runner() if self.is_async else None
        self._numbers = count()
        self.saver: Saver | None = None
        self._sqlite: floor.Sqlite | None = None
        if keeps == "memory":
            self.saver = InMemorySaver()
        elif keeps == "sqlite":
            self.saver = SqliteSaver(folder / "pregel.db")
            self._sqlite = floor.Sqlite(folder / "floor.db")

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        assert self._runner is not None
        return self._runner.run(coroutine)

    def node(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function as a node of this world."""
        if not self.is_async:
            return fn

        @functools.wraps(fn)
        async def node(state: Any) -> Any:
            return fn(state)

        return node

    def pair(self, graph: Pregel[Any], program: Floor, values: Mapping[str, Any], answer: Any = None) -> Pair:
        """Return both sides of running an input, and of answering it if there is an answer."""
        if self.is_async:
            return Pair(
                lambda: self.wait(self._afloor(program, values, answer)),
                lambda: self.wait(self._apregel(graph, values, answer)),
                self.close,
            )
        return Pair(
            lambda: self._floor(program, values, answer), lambda: self._pregel(graph, values, answer), self.close
        )

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
        if self.saver is not None:
            self.saver.close()
        if self._sqlite is not None:
            self._sqlite.close()

    def _store(self) -> floor.Store | None:
        if self._sqlite is not None:
            self._sqlite.thread = f"t{next(self._numbers)}"
            return self._sqlite
        return floor.Memory() if self.keeps == "memory" else None

    def _floor(self, program: Floor, values: Mapping[str, Any], answer: Any) -> Any:
        store = self._store()
        result = program.run(values, store)
        if answer is not None and store is not None:
            result = program.resume(answer, store)
        return result

    async def _afloor(self, program: Floor, values: Mapping[str, Any], answer: Any) -> Any:
        store = self._store()
        result = await program.arun(values, store)
        if answer is not None and store is not None:
            result = await program.aresume(answer, store)
        return result

    def _pregel(self, graph: Pregel[Any], values: Mapping[str, Any], answer: Any) -> Any:
        if self.saver is None:
            return graph.invoke(values)
        thread = f"t{next(self._numbers)}"
        result = graph.invoke(values, thread_id=thread)
        if answer is not None:
            result = graph.resume(answer, thread_id=thread)
        self._tidy(thread)
        return result

    async def _apregel(self, graph: Pregel[Any], values: Mapping[str, Any], answer: Any) -> Any:
        if self.saver is None:
            return await graph.ainvoke(values)
        thread = f"t{next(self._numbers)}"
        result = await graph.ainvoke(values, thread_id=thread)
        if answer is not None:
            result = await graph.aresume(answer, thread_id=thread)
        self._tidy(thread)
        return result

    def _tidy(self, thread: str) -> None:
        # as the floor's memory goes with its run; a file keeps the threads of both sides
        if self.keeps == "memory" and self.saver is not None:
            self.saver.delete_thread(thread)


# --- steps --------------------------------------------------------------------------------------------------------


class Counter(TypedDict, total=False):
    n: int


class Total(TypedDict, total=False):
    n: int
    total: Annotated[int, operator.add]


def step(state: Counter) -> Counter:
    return {"n": state["n"] + 1}


def chain(world: str, keeps: str, size: int, folder: Path) -> Pair:
    """Run `size` nodes one after the other."""
    sides = Sides(world, keeps, folder)
    names = [f"step{i}" for i in range(size)]
    node = sides.node(step)
    builder = StateGraph(Counter)
    builder.add_sequence([(name, node) for name in names])
    builder.set_entry_point(names[0])
    edges = {name: (after,) for name, after in pairwise(names)}
    program = Floor(dict.fromkeys(names, node), edges, names[:1], {"n": None})
    return sides.pair(builder.compile(sides.saver), program, {"n": 0})


def loop(world: str, keeps: str, size: int, folder: Path) -> Pair:
    """Run one node `size` times, a router deciding each time."""
    sides = Sides(world, keeps, folder)
    node = sides.node(step)
    builder = StateGraph(Counter)
    builder.add_node("step", node)
    builder.set_entry_point("step")
    builder.add_conditional_edges("step", lambda state: "step" if state["n"] < size else END, ["step", END])
    routers = {"step": lambda state: "step" if state["n"] < size else None}
    program = Floor({"step": node}, {}, ("step",), {"n": None}, routers)
    return sides.pair(builder.compile(sides.saver), program, {"n": 0})


# --- fan-out ------------------------------------------------------------------------------------------------------


def work(state: Total) -> dict[str, Any]:
    return {"total": state["n"]}


def done(state: Total) -> dict[str, Any]:
    return {"n": state["total"]}


def sends(world: str, keeps: str, size: int, folder: Path) -> Pair:
    """Send `size` packets to one node, and join."""
    sides = Sides(world, keeps, folder)
    worker, last = sides.node(work), sides.node(done)
    split = sides.node(lambda state: [Send("work", {"n": i}) for i in range(size)])
    builder = StateGraph(Total).add_node("split", split, destinations=["work"])
    builder.add_node("work", worker).add_node("done", last)
    builder.add_edge(START, "split").add_edge("work", "done")
    nodes = {"split": sides.node(lambda state: [Packet("work", {"n": i}) for i in range(size)])}
    nodes |= {"work": worker, "done": last}
    program = Floor(nodes, {"work": ("done",)}, ("split",), {"n": None, "total": operator.add})
    return sides.pair(builder.compile(sides.saver), program, {"n": 1, "total": 0})


def edges(world: str, keeps: str, size: int, folder: Path) -> Pair:
    """Lead from one node to `size` nodes by edges, and join."""
    sides = Sides(world, keeps, folder)
    worker, last, split = sides.node(work), sides.node(done), sides.node(lambda state: None)
    names = [f"work{i}" for i in range(size)]
    builder = StateGraph(Total).add_node("split", split).add_node("done", last).add_edge(START, "split")
    for name in names:
        builder.add_node(name, worker).add_edge("split", name).add_edge(name, "done")
    leads: dict[str, Any] = {"split": names, **dict.fromkeys(names, ("done",))}
    program = Floor(
        {"split": split, **dict.fromkeys(names, worker), "done": last},
        leads,
        ("split",),
        {"n": None, "total": operator.add},
    )
    return sides.pair(builder.compile(sides.saver), program, {"n": 1, "total": 0})


# --- nested graphs ------------------------------------------------------------------------------------------------


def _child(sides: Sides) -> tuple[Pregel[Any], Floor]:
    names, node = ["a", "b", "c"], sides.node(step)
    builder = StateGraph(Counter).add_sequence([(name, node) for name in names]).set_entry_point("a")
    return builder.compile(), Floor(dict.fromkeys(names, node), {"a": ("b",), "b": ("c",)}, ("a",), {"n": None})


def nested(world: str, keeps: str, size: int, folder: Path) -> Pair:
    """Run a graph of three nodes as each of `size` nodes in a row."""
    sides = Sides(world, keeps, folder)
    child, inner = _child(sides)
    names = [f"child{i}" for i in range(size)]
    builder = StateGraph(Counter).add_sequence([(name, child) for name in names]).set_entry_point(names[0])
    leads = {name: (after,) for name, after in pairwise(names)}
    nodes = {name: _calls(sides, inner, name) for name in names}
    program = Floor(nodes, leads, names[:1], {"n": None})
    return sides.pair(builder.compile(sides.saver), program, {"n": 0})


def nested_sends(world: str, keeps: str, size: int, folder: Path) -> Pair:
    """Send `size` packets to a graph of three nodes, and fold what they return."""
    sides = Sides(world, keeps, folder)
    child, inner = _child(sides)

    def call(state: Any) -> dict[str, Any]:
        return {"total": child.invoke(state)["n"]}

    async def acall(state: Any) -> dict[str, Any]:
        return {"total": (await child.ainvoke(state))["n"]}

    split = sides.node(lambda state: [Send("call", {"n": i}) for i in range(size)])
    builder = StateGraph(Total).add_node("split", split, destinations=["call"])
    builder.add_node("call", acall if sides.is_async else call).add_edge(START, "split")
    nodes = {
        "split": sides.node(lambda state: [Packet("call", {"n": i}) for i in range(size)]),
        "call": _calls(sides, inner, "call", "total"),
    }
    program = Floor(nodes, {}, ("split",), {"n": None, "total": operator.add})
    return sides.pair(builder.compile(sides.saver), program, {"n": 0, "total": 0})


def _calls(sides: Sides, inner: Floor, name: str, key: str = "n") -> Callable[[Any], Any]:
    """Return a floor's node that runs an inner floor, kept in a namespace of its own where the outer one is kept."""
    numbers = count()
    store: floor.Store | None = floor.Memory() if sides.keeps == "memory" else sides._sqlite

    def call(state: Any) -> Any:
        return {key: inner.run(state, store, f"{name}@{next(numbers)}")["n"]}

    async def acall(state: Any) -> Any:
        return {key: (await inner.arun(state, store, f"{name}@{next(numbers)}"))["n"]}

    return acall if sides.is_async else call


# --- pauses -------------------------------------------------------------------------------------------------------


def pauses(world: str, keeps: str, size: int, folder: Path) -> Pair:
    """Pause at a question and be answered, `size` times, each on a new thread."""
    return _asking(Sides(world, keeps, folder), 0, size)


def deep_pauses(world: str, keeps: str, size: int, folder: Path) -> Pair:
    """The same with the question five graphs below the root; the floor knows no levels, and asks at once."""
    return _asking(Sides(world, keeps, folder), 5, size)


def _asking(sides: Sides, depth: int, size: int) -> Pair:
    builder = StateGraph(Counter).add_node("ask", sides.node(lambda state: {"n": state["n"] + interrupt("?")}))
    builder.set_entry_point("ask")
    for _ in range(depth):
        builder = StateGraph(Counter).add_node("child", builder.compile()).set_entry_point("child")
    graph = builder.compile(sides.saver)
    program = Floor({"ask": sides.node(lambda state: {"n": state["n"] + floor.ask("?")})}, {}, ("ask",), {"n": None})
    once = sides.pair(graph, program, {"n": 1}, answer=2)
    return Pair(lambda: [once.floor() for _ in range(size)], lambda: [once.pregel() for _ in range(size)], once.close)


# --- building and importing ---------------------------------------------------------------------------------------


def building(size: int, folder: Path) -> Pair:
    """Build and compile a chain of nodes; the result is how many there are."""
    names = [f"step{i}" for i in range(size)]

    def build() -> int:
        builder = StateGraph(Counter)
        builder.add_node(names[0], step).add_edge(START, names[0])
        for before, name in pairwise(names):
            builder.add_node(name, step).add_edge(before, name)
        return len(builder.compile().nodes)

    def least() -> int:
        leads: dict[str, list[str]] = {}
        for before, name in pairwise(names):
            leads.setdefault(before, []).append(name)
        program = Floor(dict.fromkeys(names, step), leads, names[:1], {"n": None})
        unknown = [name for targets in program.edges.values() for name in targets if name not in program.nodes]
        reached, todo = set(names[:1]), names[:1]
        while todo:
            following = [name for name in program.edges[todo.pop()] if name not in reached]
            reached.update(following)
            todo += following
        return len(reached) - len(unknown)

    return Pair(least, build)


def importing(size: int, folder: Path) -> Pair:
    """Import in a fresh process, `size` times; the floor imports what everything rests on."""

    def imports(what: str) -> Call:
        program = [sys.executable, "-c", f"import {what}"]
        return lambda: [subprocess.run(program, check=True).returncode for _ in range(size)]

    return Pair(imports("structlog, msgpack, asyncio"), imports("pregel"))


Make = Callable[[str, str, int, Path], Pair]


def _cases() -> dict[str, Case]:
    cases: dict[str, Case] = {}

    def add(name: str, make: Make, world: str, keeps: str, size: int, unit: str) -> None:
        cases[name] = Case(functools.partial(make, world, keeps), size, unit, size)

    for world in ("sync", "async"):
        for keeps in ("none", "memory", "sqlite"):
            add(f"chain-1000-{world}-{keeps}", chain, world, keeps, 1_000, "step")
            add(f"loop-1000-{world}-{keeps}", loop, world, keeps, 1_000, "step")
        for size in (10, 100, 1_000):
            add(f"sends-{size}-{world}", sends, world, "none", size, "task")
            add(f"edges-{size}-{world}", edges, world, "none", size, "task")
        for keeps in ("none", "memory", "sqlite"):
            add(f"nested-100-{world}-{keeps}", nested, world, keeps, 100, "child")
        for keeps in ("none", "memory"):
            add(f"nested-sends-100-{world}-{keeps}", nested_sends, world, keeps, 100, "child")
        for keeps in ("memory", "sqlite"):
            add(f"sends-1000-{world}-{keeps}", sends, world, keeps, 1_000, "task")
            add(f"pause-and-resume-{world}-{keeps}", pauses, world, keeps, 20, "round")
            add(f"pause-and-resume-5-deep-{world}-{keeps}", deep_pauses, world, keeps, 20, "round")
    cases["build-1000"] = Case(building, 1_000, "node", 1_000)
    cases["import"] = Case(importing, 1, "import", 1)
    return cases


CASES = _cases()
"""Every workload by name; a name says size, world and saver."""
