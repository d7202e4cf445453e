"""Nodes that call child graphs, from one body for both worlds."""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from tests.helpers import Ran, World

T = TypeVar("T")


class Call(NamedTuple):
    """`child.invoke(value, key=key)`, awaited in the async world."""

    child: Any
    value: Any
    key: str | None = None

    @property
    def options(self) -> dict[str, str]:
        return {} if self.key is None else {"key": self.key}


Body = Callable[[Any], Generator[Call, Any, Any]]


def calling(world: World, body: Body) -> Callable[[Any], Any]:
    """Return a node from a generator that yields calls and is sent their results, or has their errors thrown in."""

    def node(state: Any) -> Any:
        program = body(state)
        try:
            call = next(program)
            while True:
                try:
                    result = call.child.invoke(call.value, **call.options)
                except BaseException as error:
                    call = program.throw(error)
                else:
                    call = program.send(result)
        except StopIteration as end:
            return end.value

    async def anode(state: Any) -> Any:
        program = body(state)
        try:
            call = next(program)
            while True:
                try:
                    result = await call.child.ainvoke(call.value, **call.options)
                except BaseException as error:
                    call = program.throw(error)
                else:
                    call = program.send(result)
        except StopIteration as end:
            return end.value

    return anode if world.is_async else node


def noted(ran: Ran, name: str, update: T) -> T:
    """Count what ran and return its update: a node in one line."""
    ran(name)
    return update
