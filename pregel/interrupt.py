"""Questions that a graph asks its caller: the values, finding them in an error, merging them into one list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

When = Literal["inside", "before", "after"]


class Interrupt:
    """One question, or one static pause (rule 6.3). Equal by id and value, hashed by id.

    `id` names it over restarts, `node` and `namespace` say where it stands (`namespace` is a tuple of task ids, empty
    for the root graph), `next` lists the nodes that run once it is resumed. `schema` is the type that an answer must
    have (rule 6.13), in the result of a run its description in the words of JSON Schema. `asked_at` is the time of the
    question, ISO 8601 in UTC. The engine fills all but `value` and `schema`; an `id` given in a node is taken as a key.
    """

    __slots__ = ("asked_at", "id", "namespace", "next", "node", "schema", "value", "when")

    def __init__(
        self,
        value: Any = None,
        id: str | None = None,
        node: str | None = None,
        namespace: tuple[str, ...] = (),
        when: When = "inside",
        next: tuple[str, ...] = (),
        schema: Any = None,
        asked_at: str | None = None,
    ) -> None:
        self.value = value
        self.id = id
        self.node = node
        self.namespace = namespace
        self.when = when
        self.next = next
        self.schema = schema
        self.asked_at = asked_at

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Interrupt):
            return NotImplemented
        return self.id == other.id and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Interrupt(value={self.value!r}, id={self.id!r})"

    def as_dict(self) -> dict[str, Any]:
        """Return everything as a dict of plain values, for a front end; `value` is as it was given."""
        names = ("id", "value", "node", "namespace", "when", "next", "schema", "asked_at")
        return {name: getattr(self, name) for name in names}


class GraphInterrupt(BaseException):
    """Return or raise it from a node to ask the caller (rules 6.1, 6.2).

    It derives from BaseException since it is no error: `except Exception` must not catch a pause. Without an argument
    the payload is None; a list or tuple asks several questions at once.
    """

    def __init__(self, value: Any = None) -> None:
        super().__init__(value)
        self.value = value
        items = value if isinstance(value, (list, tuple)) else (value,)
        self.interrupts = tuple(item if isinstance(item, Interrupt) else Interrupt(item) for item in items)

    def __str__(self) -> str:
        return str(self.value)


class ParentCommand(BaseException):
    """Raised by `child.invoke` inside a function node when the child ended by a command for its parent (rule 4.2).

    It derives from BaseException since it is no error; left alone, the engine applies the command.
    """

    def __init__(self, command: Any) -> None:
        super().__init__(command)
        self.command = command


# An interrupt found below one of these is not a question: somebody wants the run to stop (rule 6.10).
_STOPS = ("KeyboardInterrupt", "SystemExit", "CancelledError")


def find_interrupts(error: BaseException) -> tuple[GraphInterrupt, ...]:
    """Return the interrupts hidden in an error: itself, causes, contexts, members of groups (rule 6.10)."""
    return tuple(_search(error, set()))


def _search(error: BaseException | None, seen: set[int]) -> Iterator[GraphInterrupt]:
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, GraphInterrupt):
            yield error
            return
        if any(kind.__name__ in _STOPS for kind in type(error).__mro__):
            return
        if isinstance(error, BaseExceptionGroup):
            for member in error.exceptions:
                yield from _search(member, seen)
        if error.__cause__ is not None:  # not `or`: an error may be false
            error = error.__cause__
        else:
            error = None if error.__suppress_context__ else error.__context__


def merge(interrupts: Iterable[Sequence[Interrupt]]) -> list[Interrupt]:
    """Return one flat list, in the order of the tasks (rule 6.4)."""
    return [interrupt for several in interrupts for interrupt in several]


def merged(raised: Sequence[GraphInterrupt]) -> GraphInterrupt:
    """Return one GraphInterrupt with the questions of several; the ids that they have already stay."""
    error = as_exception(raised)
    error.interrupts = tuple(merge(several.interrupts for several in raised))
    return error


def as_exception(endings: Sequence[GraphInterrupt]) -> GraphInterrupt:
    """Return one GraphInterrupt for the tasks of a step: one task's payload as given, several flat (rule 6.4)."""
    if len(endings) == 1:
        return endings[0]
    items: list[Any] = []
    for ending in endings:
        items.extend(ending.value if isinstance(ending.value, (list, tuple)) else (ending.value,))
    return GraphInterrupt(items[0] if len(items) == 1 and not isinstance(items[0], Interrupt) else items)


def pause_between(current: str | None, following: str | None) -> bool:
    """Say whether a pause falls between two nodes: not without a current one, not when it follows itself (rule 7.8).

    The seed predicate of older engines. This engine's own rule, "executed since the last recorded pause", differs in
    those two cases on purpose.
    """
    return current is not None and current != following
