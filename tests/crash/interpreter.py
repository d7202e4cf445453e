"""What a graph means, in the plainest words: one loop, no threads, nothing stored. The engine is compared with it.

A graph is described by plain values. A frame is a graph that runs: its state, its due tasks, its barriers. A frame is
advanced until it is done, waits for answers, or breaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

Kind = Literal["work", "ask", "fail", "child", "call", "fan", "loop"]


@dataclass(frozen=True)
class NodeSpec:
    """A node. `size`: how many questions, calls, packets or laps; `asks`: a call asks once its children have ended."""

    name: str
    kind: Kind
    size: int = 1
    flip: bool = False  # async where the world is sync, and the other way round
    asks: bool = False
    child: Spec | None = None
    defer: bool = False  # held while other tasks of its graph are due


@dataclass(frozen=True)
class Spec:
    """A graph. An edge from several nodes waits for all of them; a fan sends to the node `<name>_w`."""

    name: str
    nodes: tuple[NodeSpec, ...]
    entry: tuple[str, ...]
    edges: tuple[tuple[tuple[str, ...], str], ...]

    def order(self, name: str) -> int:
        return next(index for index, node in enumerate(self.nodes) if node.name == name)


class BrokenError(Exception):
    """What a failing node raises while the world is broken."""


_serials = count()


@dataclass(eq=False)
class Task:
    """One run of a node, until it is folded. `asked` is the question it waits with, `children` the graphs it called."""

    node: NodeSpec
    arg: int | None = None
    answers: list[Any] = field(default_factory=list)
    asked: str | None = None
    children: list[Frame] = field(default_factory=list)
    done: bool = False
    writes: list[tuple[str, Any]] = field(default_factory=list)
    sends: list[tuple[str, int]] = field(default_factory=list)
    goto: str | None = None
    serial: int = field(default_factory=lambda: next(_serials))


@dataclass(frozen=True)
class Question:
    """A question that is pending: which task asks, the how many-eth of it, and what."""

    task: Task
    index: int
    value: str


class World:
    """What frames share: whether failing nodes fail, and the names of the bodies that have run to their end."""

    def __init__(self) -> None:
        self.broken = False
        self.completed: list[str] = []


class Frame:
    """A graph that runs."""

    def __init__(self, spec: Spec, world: World, state: dict[str, Any]) -> None:
        self.spec = spec
        self.world = world
        self.state = {"log": [], "n": 0, **state}
        self.wrote: list[tuple[str, Any]] = []
        self.due: dict[str, Task] = {}
        self.packets: list[Task] = []
        self.sent: dict[tuple[tuple[str, ...], str], set[str]] = {}

    def begin(self, values: dict[str, Any]) -> None:
        """Take an input: fold it, forget what was pending, wake the entry."""
        self.fold(list(values.items()))
        self.packets, self.due, self.sent = [], {}, {}
        for name in self.spec.entry:
            self.wake(name)

    @property
    def tasks(self) -> list[Task]:
        """The tasks of this step in task order: nodes as they were added, then packets as they were sent."""
        named = sorted(self.due.values(), key=lambda task: self.spec.order(task.node.name))
        return [task for task in named if not task.node.defer] + self.packets or named

    def questions(self) -> list[Question]:
        return [question for task in self.tasks for question in asked_by(task)]

    def advance(self) -> bool:
        """Go on until done (True) or until all that is left waits for answers (False). Raises BrokenError."""
        while self.tasks:
            broken = False
            for task in self.tasks:
                if not task.done and task.asked is None:
                    try:
                        self.run(task)
                    except BrokenError:
                        broken = True
            if broken:
                raise BrokenError
            if not all(task.done for task in self.tasks):
                return False
            self.barrier()
        return True

    def barrier(self) -> None:
        folded = self.tasks
        self.due = {name: task for name, task in self.due.items() if task not in folded}
        writes = [write for task in folded for write in task.writes]
        self.fold(writes)
        self.wrote += writes
        self.packets = [
            Task(self.spec.nodes[self.spec.order(name)], arg) for task in folded for name, arg in task.sends
        ]
        for task in folded:
            if task.goto is not None:
                self.wake(task.goto)
        ran = {task.node.name for task in folded}
        for sources, target in self.spec.edges:
            sent = self.sent.setdefault((sources, target), set())
            sent |= ran & set(sources)
            if sent == set(sources):
                sent.clear()
                self.wake(target)

    def fold(self, writes: list[tuple[str, Any]]) -> None:
        for key, value in writes:
            self.state[key] = value if key == "x" else self.state[key] + value

    def wake(self, name: str) -> None:
        self.due.setdefault(name, Task(self.spec.nodes[self.spec.order(name)]))

    # --- nodes ----------------------------------------------------------------------------------------------------

    def run(self, task: Task) -> None:
        """Run a node from its start. It is done, or waits, or raises BrokenError."""
        node, world = task.node, self.world
        path = name_of(self.spec, node, task.arg)
        if node.kind == "child":
            assert node.child is not None
            if not self.child(task, 0, node.child, self.state):
                return
            task.writes = [(key, value) for key, value in task.children[0].wrote if key != "x"]
            task.done = True
            return
        if node.kind == "fail" and world.broken:
            raise BrokenError
        heard = []
        if node.kind == "call":
            assert node.child is not None
            for index in range(node.size):
                if not self.child(task, index, node.child, {"x": self.state["x"]}):
                    return
                heard += task.children[index].state["log"]
        questions = node.size if node.kind == "ask" else int(node.asks)
        for index in range(questions):
            if index == len(task.answers):
                task.asked = f"{path}?{index}"
                return
        seen = self.state["x"] if task.arg is None else task.arg
        task.writes = [("log", [f"{path}:{seen}", *heard, *task.answers])]
        if node.kind == "fan":
            task.sends = [(f"{node.name}_w", arg) for arg in range(node.size)]
        if node.kind == "loop":
            task.writes.append(("n", 1))
            task.goto = self.spec.nodes[0].name if self.state["n"] + 1 < node.size else None
        task.done = True
        world.completed.append(path)

    def child(self, task: Task, index: int, spec: Spec, state: dict[str, Any]) -> bool:
        """Advance the child graph that a task calls, made at the first time; return whether it is done."""
        if index == len(task.children):
            frame = Frame(spec, self.world, {key: state[key] for key in ("log", "n", "x") if key in state})
            frame.begin({})
            task.children.append(frame)
        return task.children[index].advance()


def asked_by(task: Task) -> Iterator[Question]:
    """Yield the questions that a task, or a graph that it has called, waits with."""
    if task.asked is not None:
        yield Question(task, len(task.answers), task.asked)
    for frame in task.children:
        yield from frame.questions()


def answer(question: Question, value: Any) -> None:
    """Give the answer; the task runs again when its frame is advanced."""
    question.task.answers.append(value)
    question.task.asked = None


def name_of(spec: Spec, node: NodeSpec, arg: int | None) -> str:
    """Return what a node calls itself in logs and questions."""
    return f"{spec.name}.{node.name}" if arg is None else f"{spec.name}.{node.name}[{arg}]"
