"""What is running, shown on a terminal: a live line per running node; what has finished scrolls up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from pregel import Command, Pregel, StateSnapshot

Path = tuple[str, ...]
Watch = Callable[[Path, str, Any], None]


def advance(graph: Pregel[Any], thread: str, input: Any, console: Console) -> StateSnapshot:
    """Run a graph to its end or its next pause, shown on the console if that is a terminal, and return its state."""
    events = graph.stream(input, thread_id=thread, stream_mode=["values", "updates", "custom"], subgraphs=True)
    with _shown(graph, thread, input, console) as watch, closing(events):  # type: ignore[type-var] # a generator
        for path, kind, data in events:
            watch(path, kind, data)
    return graph.get_state(thread_id=thread)


@contextmanager
def _shown(graph: Pregel[Any], thread: str, input: Any, console: Console) -> Iterator[Watch]:
    if not console.is_terminal:
        yield lambda path, kind, data: None
        return
    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}", style="dim", markup=False),
        console=console,
        transient=True,
    )
    lines = Lines(bars)
    if not isinstance(input, dict):  # what an input makes due is known once it is stored
        lines.begin(_resumed(graph.get_state(thread_id=thread), input))

    def watch(path: Path, kind: str, data: Any) -> None:
        if kind != "values":
            lines.show(path, kind, data)
        elif not path:  # a commit of the root graph: a super-step has ended, another is about to begin
            lines.begin(task.name for task in graph.get_state(thread_id=thread).tasks)

    with bars:
        yield watch


def _resumed(state: StateSnapshot, input: Any) -> list[str]:
    """Return the nodes of the tasks that a resume runs again."""
    answered = input.resume if isinstance(input, Command) else {}
    return [
        task.name
        for task in state.tasks
        if task.status != "done" and all(question.id in answered for question in task.interrupts)
    ]


class Lines:
    """The lines of the nodes of one super-step; tasks of the same node share theirs."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._ids: dict[str, TaskID] = {}

    def begin(self, nodes: Iterable[str]) -> None:
        """Begin a super-step with a task for each of these nodes, repeated as often as they have tasks."""
        for id_ in self._ids.values():
            self._bars.remove_task(id_)
        self._ids = {
            node: self._bars.add_task(node, total=total, count=f"0/{total}" if total > 1 else "", detail="")
            for node, total in Counter(nodes).items()
        }

    def show(self, path: Path, kind: str, data: Any) -> None:
        """Show an update or a custom event of the root graph (path `()`), or of a graph below one of its tasks."""
        node = path[0].rpartition("@")[0] if path else ""
        if kind == "custom" and node not in self._ids:
            self._bars.console.print(Text(f"· {data}"))
        elif node in self._ids:
            told = data if kind == "custom" else ", ".join(name for name in data if name != "__interrupt__")
            self._bars.update(self._ids[node], detail=_short(told))
        elif not path:
            for name in data:
                if name in self._ids:
                    self._finish(name)

    def _finish(self, node: str) -> None:
        """Count an ended task of a node; the line of its last one scrolls up."""
        id_ = self._ids[node]
        self._bars.advance(id_)
        task = self._task(id_)
        total = int(task.total or 1)
        if task.completed < total:
            self._bars.update(id_, count=f"{int(task.completed)}/{total}")
            return
        many = f" x {total}" if total > 1 else ""
        self._bars.console.print(Text(f"✓ {node}{many}  {task.elapsed or 0.0:.1f} s", style="green"))
        self._bars.remove_task(id_)
        del self._ids[node]

    def _task(self, id_: TaskID) -> Task:
        return next(task for task in self._bars.tasks if task.id == id_)


def _short(told: Any) -> str:
    text = str(told).partition("\n")[0]
    return text if len(text) <= 40 else f"{text[:39]}…"
