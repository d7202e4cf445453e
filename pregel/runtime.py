"""What a node can reach: questions, the run's context, its writer, its branches. All of it is bound to the attempt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from typing import Any, Generic, TypeVar, overload

from .attempt import Attempt, current
from .effects import Event
from .interrupt import find_interrupts, merged
from .scope import config_of
from .threads import all_ended

T = TypeVar("T")
ContextT = TypeVar("ContextT")
StreamWriter = Callable[[Any], None]


class Runtime(Generic[ContextT]):
    """What a node may use besides its input; declare a parameter `runtime: Runtime[MyContext]` to get it.

    It serves its attempt only: afterwards every use raises AttemptEnded.
    """

    __slots__ = ("_attempt",)

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    @property
    def context(self) -> ContextT:
        """What the caller passed as `context=` (rule 11.3)."""
        return self._live.scope.root.context  # type: ignore[no-any-return] # the caller vouches for ContextT

    @property
    def store(self) -> Any:
        """The store that the graph was compiled with, or None."""
        return self._live.scope.root.store

    @property
    def config(self) -> Mapping[str, Any]:
        """The caller's config with the ids of where this node runs."""
        attempt = self._live
        return config_of(attempt.scope, attempt.scope.namespace, attempt.head.number)

    @property
    def answers(self) -> Mapping[int | str, Any]:
        """The answers to this task's own questions, by index or key (rule 6.1)."""
        return self._live.answers()

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1 (rule 5.7)."""
        return self._attempt.number

    @property
    def task_id(self) -> str:
        """The id of this task within its graph."""
        return self._attempt.task.id

    @property
    def cancelled(self) -> bool:
        """Whether the task was told to stop; a thread that runs long should look now and then (rule 5.3)."""
        return self._attempt.signal.stopped

    def writer(self, data: Any) -> None:
        """Send a custom event to whoever streams this run (rule 13.1)."""
        attempt = self._live
        sink = attempt.scope.root.sink
        if sink is not None:
            sink(Event("custom", data, attempt.scope.namespace))

    def interrupt_after(self, value: Any = None) -> None:
        """Let this node complete and its update be merged, and pause the run then (rule 7.4).

        `value` is shown to the caller with the pause; the last call counts. The pause is passed like one that
        `interrupt_after=` of `compile` makes: it asks nothing.
        """
        self._live.after = value

    async def gather(self, *awaitables: Awaitable[Any]) -> list[Any]:
        """Run awaitables side by side, wait until all have ended, and return their results in order (rule 6.9).

        So every question that one of them asks is reported, whoever asks or fails first. Give each question and child
        call in them a key. Raises one GraphInterrupt for all that asked, else the first error in order.
        """
        self._attempt.check()
        ended = await all_ended(awaitables)
        errors = [error for _, error in ended if error is not None]
        if questions := [found for error in errors for found in find_interrupts(error)]:
            together = merged(questions)
            self._attempt.reorder(together.interrupts)
            raise together from next((error for error in errors if not find_interrupts(error)), None)
        if errors:
            raise errors[0]
        return [result for result, _ in ended]

    def bind(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fn` bound to this task, for a thread that the node starts itself (rule 8.6)."""
        context = copy_context()

        def bound(*args: Any, **kwargs: Any) -> Any:
            return context.copy().run(fn, *args, **kwargs)

        return bound

    @property
    def _live(self) -> Attempt:
        self._attempt.check()
        return self._attempt


@overload
def interrupt(value: Any = None, key: str | None = None) -> Any: ...


@overload
def interrupt(value: Any = None, key: str | None = None, *, schema: type[T]) -> T: ...


@overload
def interrupt(value: Any = None, key: str | None = None, *, schema: Any) -> Any: ...


def interrupt(value: Any = None, key: str | None = None, *, schema: Any = None) -> Any:
    """Ask the caller of the run, from anywhere inside a node; returns the answer once there is one (rule 6.1).

    Without a key, questions are told apart by their order within the node, which runs again from its start when an
    answer arrives (rule 6.8). A key names a question whatever the order. With a `schema` (a plain type, a container of
    those, Literal, a union, a TypedDict, or a dataclass, enum or pydantic model that the graph's state or
    `register_type` names) an answer that does not fit is refused before anything runs, and a mapping that fits a class
    arrives as an instance of it (rule 6.13). Raises GraphInterrupt, which is no error and is left alone; AttemptEnded,
    BranchError, NodeError for a schema that cannot be kept, InvalidRequestError outside of a node.
    """
    return current().ask(value, key, schema)


def get_runtime() -> Runtime[Any]:
    """Return the runtime of the node that is calling (rule 1.2)."""
    return Runtime(current())


def get_config() -> Mapping[str, Any]:
    """Return the config of the node that is calling (rule 1.2)."""
    return get_runtime().config


def get_stream_writer() -> StreamWriter:
    """Return the writer of custom events of the node that is calling (rule 1.2)."""
    return get_runtime().writer
