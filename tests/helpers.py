"""What tests share: the two worlds behind one set of methods, and recorders of what ran."""

import asyncio
import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pregel import END, START, Pregel, Saver, StateGraph, StateSnapshot


class World:
    """Calls a graph the sync or the async way, so that one test body serves both."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def is_async(self) -> bool:
        return self.name == "async"

    def call(self, graph: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call `graph.method` or `graph.amethod`."""
        if not self.is_async:
            return getattr(graph, method)(*args, **kwargs)

        async def call() -> Any:
            return await getattr(graph, f"a{method}")(*args, **kwargs)

        return asyncio.run(call())

    def collect(self, graph: Any, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Return all that `graph.method` or its async twin yields."""
        if not self.is_async:
            return list(getattr(graph, method)(*args, **kwargs))

        async def collect() -> list[Any]:
            return [item async for item in getattr(graph, f"a{method}")(*args, **kwargs)]

        return asyncio.run(collect())

    def invoke(self, graph: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        result: dict[str, Any] = self.call(graph, "invoke", *args, **kwargs)
        return result

    def resume(self, graph: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        result: dict[str, Any] = self.call(graph, "resume", *args, **kwargs)
        return result

    def recover(self, graph: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        result: dict[str, Any] = self.call(graph, "recover", *args, **kwargs)
        return result

    def state(self, graph: Any, *args: Any, **kwargs: Any) -> StateSnapshot:
        result: StateSnapshot = self.call(graph, "get_state", *args, **kwargs)
        return result

    def history(self, graph: Any, *args: Any, **kwargs: Any) -> list[StateSnapshot]:
        return self.collect(graph, "get_state_history", *args, **kwargs)

    def update(self, graph: Any, *args: Any, **kwargs: Any) -> Any:
        return self.call(graph, "update_state", *args, **kwargs)

    def stream(self, graph: Any, *args: Any, **kwargs: Any) -> list[Any]:
        return self.collect(graph, "stream", *args, **kwargs)

    def node(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as a node of this world: async in the async one."""
        if not self.is_async:
            return fn

        @functools.wraps(fn)
        async def node(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return node


class Ran:
    """Counts what ran, from any thread."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.order: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, name: str) -> None:
        with self._lock:
            self.counts[name] += 1
            self.order.append(name)

    def take(self) -> list[str]:
        """Return the names in order and forget them."""
        order, self.order = self.order, []
        self.counts.clear()
        return order


def build(
    state: type,
    nodes: Mapping[str, Any],
    edges: Iterable[tuple[Any, str]],
    saver: Saver | bool | None = None,
    *,
    branches: Iterable[tuple[Any, ...]] = (),
    **compile_options: Any,
) -> Pregel[Any]:
    """Build and compile a graph in check mode; `branches` are the arguments of add_conditional_edges."""
    builder: StateGraph[Any] = StateGraph(state)
    for name, fn in nodes.items():
        options = {}
        if isinstance(fn, tuple):
            fn, options = fn
        builder.add_node(name, fn, **options)
    for source, target in edges:
        builder.add_edge(source, target)
    for branch in branches:
        builder.add_conditional_edges(*branch)
    return builder.compile(saver, **{"isolation": "check", **compile_options})


def ids(result: Mapping[str, Any]) -> list[str]:
    """Return the interrupt ids of a result."""
    return [interrupt.id for interrupt in result.get("__interrupt__", [])]


__all__ = ["END", "START", "Ran", "World", "build", "ids"]
