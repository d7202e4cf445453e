"""The small public values: commands, packets, policies, snapshots."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, NamedTuple, NotRequired, TypedDict

from .channels import MISSING
from .checkpoint import Status
from .errors import GraphValidationError, NodeError, NodeTimeoutError
from .interrupt import Interrupt

if TYPE_CHECKING:  # a type parameter with a default, which checkers know long before Python does
    from typing_extensions import TypeVar

    NodeName = TypeVar("NodeName", bound=str, default=str)
else:
    from typing import TypeVar

    NodeName = TypeVar("NodeName")

START: Final = "__start__"
END: Final = "__end__"
INTERRUPT: Final = "__interrupt__"

Durability = Literal["sync", "async", "exit"]
Isolation = Literal["shallow", "deep", "check"]
StreamMode = Literal["values", "updates", "custom"]


class Send:
    """A packet: run `node` in the next step with `arg` itself as its input (rule 3.7)."""

    __slots__ = ("arg", "node")

    def __init__(self, node: str, arg: Any) -> None:
        self.node = node
        self.arg = arg

    def __eq__(self, other: object) -> bool:
        return type(other) is Send and self.node == other.node and bool(self.arg == other.arg)

    def __hash__(self) -> int:
        return hash(self.node)

    def __repr__(self) -> str:
        return f"Send({self.node!r}, {self.arg!r})"


class Command(Generic[NodeName]):
    """What a node returns to update and route at once, or what a caller passes to answer or edit (rules 4.2, 4.4, 6.6).

    `goto` is a node name, a Send, END, or a list of them. `resume` answers pending questions: any value counts, None
    too, and a mapping whose keys are pending ids answers several. `graph=Command.PARENT` addresses the calling graph.
    As an annotation, `Command[Literal["a", "b"]]` names where a node may go (rule 1.5).
    """

    PARENT: ClassVar[Literal["__parent__"]] = "__parent__"
    __slots__ = ("goto", "graph", "resume", "update")

    def __init__(
        self,
        *,
        update: Any = None,
        goto: str | Send | Sequence[str | Send] = (),
        resume: Any = MISSING,
        graph: str | None = None,
    ) -> None:
        self.update = update
        self.goto = goto
        self.resume = resume
        self.graph = graph

    @property
    def targets(self) -> tuple[str | Send, ...]:
        """`goto` as a tuple."""
        several = isinstance(self.goto, (list, tuple))
        return tuple(self.goto) if several else (self.goto,)  # type: ignore[arg-type,return-value] # as just checked

    def __eq__(self, other: object) -> bool:
        return type(other) is Command and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    __hash__ = None  # type: ignore[assignment] # as mutable as what it holds

    def __repr__(self) -> str:
        given = {"update": None, "goto": (), "resume": MISSING, "graph": None}
        told = [f"{n}={getattr(self, n)!r}" for n, unset in given.items() if getattr(self, n) is not unset]
        return f"Command({', '.join(told)})"


def retryable(error: BaseException) -> bool:
    """Say whether to retry by default: time-outs and faults of the world, not of the program (rule 5.7)."""
    if isinstance(error, (NodeTimeoutError, ConnectionError, TimeoutError)):
        return True
    mistakes = (
        ArithmeticError,
        AssertionError,
        AttributeError,
        ImportError,
        LookupError,
        NameError,
        NodeError,
        NotImplementedError,
        RecursionError,
        SyntaxError,
        TypeError,
        ValueError,
    )
    return isinstance(error, Exception) and not isinstance(error, mistakes)


LONGEST: Final = 1e9
"""Seconds beyond which no limit is taken: clocks and locks of some systems cannot wait longer."""


def is_seconds(value: object, *, zero: bool = False) -> bool:
    """Whether a value is a finite number of seconds above 0, or from 0 on."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value <= LONGEST:
        return False
    return value >= 0 if zero else value > 0


RetryOn = type[Exception] | Sequence[type[Exception]] | Callable[[Exception], bool]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and when a failed attempt of a node is repeated (rule 5.7). Times are seconds.

    `max_attempts` counts the first one. `retry_on` is an exception class, several, or a predicate; by default
    time-outs and errors that are not mistakes of the program (`retryable`).
    """

    max_attempts: int = 3
    initial_interval: float = 0.5
    backoff_factor: float = 2.0
    max_interval: float = 128.0
    jitter: bool = True
    retry_on: RetryOn = retryable

    def __post_init__(self) -> None:
        if not isinstance(self.max_attempts, int) or isinstance(self.max_attempts, bool) or self.max_attempts < 1:
            raise GraphValidationError(f"max_attempts must be a whole number of at least 1, not {self.max_attempts!r}")
        for name in ("initial_interval", "backoff_factor", "max_interval"):
            if not is_seconds(getattr(self, name), zero=True):
                raise GraphValidationError(f"{name} must be a number of at least 0, not {getattr(self, name)!r}")
        kinds = self.retry_on if isinstance(self.retry_on, Sequence) else ()
        if not (callable(self.retry_on) or kinds) or not all(isinstance(kind, type) for kind in kinds):
            raise GraphValidationError(f"retry_on is a class of errors, several, or a predicate, not {self.retry_on!r}")

    def covers(self, error: Exception) -> bool:
        """Whether this policy repeats after such an error."""
        if isinstance(self.retry_on, type):
            return isinstance(error, self.retry_on)
        if callable(self.retry_on):
            return self.retry_on(error)
        return isinstance(error, tuple(self.retry_on))

    def pause(self, attempt: int) -> float:
        """Seconds to wait after the failed attempt number `attempt`, counted from 1."""
        wait = min(self.max_interval, self.initial_interval * self.backoff_factor ** (attempt - 1))
        return wait * random.uniform(0.5, 1.5) if self.jitter else wait


class ConfigIds(TypedDict, total=False):
    """The part of a config that says which state is meant; other keys are the caller's and never stored (rule 11.3)."""

    thread_id: str
    checkpoint_id: str
    checkpoint_ns: str


class RunConfig(TypedDict, total=False):
    """What a call may carry as `config=` (rule 11.1)."""

    configurable: Mapping[str, Any]
    tags: Sequence[str]
    metadata: Mapping[str, Any]
    recursion_limit: int
    max_concurrency: int | None
    run_id: str


class RunOptions(TypedDict, total=False):
    """What every call that runs a graph takes by keyword; each may stand in `config` instead where that has it.

    - `thread_id`, `checkpoint_id`: which state; a checkpoint id that is not the head means a fork (rule 9.4).
    - `context`: anything the nodes need at run time; never stored (rule 11.3).
    - `durability`: "sync" (default), "async" or "exit" (rule 10.1).
    - `recursion_limit`: super-steps allowed, default 10 000 (rule 3.5).
    - `max_concurrency`: node bodies executing at once, nested ones included (rule 11.2).
    - `interrupt_before`, `interrupt_after`: replace the compiled lists of this graph for this call (rule 7.7).
    - `if_paused`: "error" refuses new input for a thread with anything pending (rule 6.12).
    - `step_timeout`: seconds a super-step may take (rule 5.8).
    - `grace`: seconds that cancelled threads are waited for, default 5 (rule 5.3).
    - `tags`, `metadata`, `run_id`: kept in the checkpoints of this run.
    - `key`: for a call inside a node: names the call, so that it keeps its state whatever the order (rule 8.4).
    """

    thread_id: str
    checkpoint_id: str
    context: Any
    durability: Durability
    recursion_limit: int
    max_concurrency: int | None
    interrupt_before: Sequence[str] | str
    interrupt_after: Sequence[str] | str
    if_paused: Literal["restart", "error"]
    step_timeout: float
    grace: float
    tags: Sequence[str]
    metadata: Mapping[str, Any]
    run_id: str
    key: NotRequired[str]


class StateUpdate(NamedTuple):
    """One edit of a super-step for `bulk_update_state` (rule 9.3)."""

    values: Any
    as_node: str | None = None
    task_id: str | None = None


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A task of a step as `get_state` shows it: what it asks, how it failed (or what it raised after it had asked),
    what it wrote.

    `error` is what was raised if its class is built in or registered (`register_type`), else a `StoredError` that
    tells its name and text. `children` are the states of the graphs that it has called, in the order of their
    namespaces, if they were asked for with `get_state(..., subgraphs=True)`.
    """

    id: str
    name: str
    status: Literal["pending", "done", "interrupted", "failed", "cancelled"]
    interrupts: tuple[Interrupt, ...] = ()
    error: BaseException | None = None
    result: Mapping[str, Any] | None = None
    children: tuple[StateSnapshot, ...] = ()

    @property
    def state(self) -> StateSnapshot | None:
        """The state of the graph that the task runs, the first if there are several; None if it runs none."""
        return self.children[0] if self.children else None


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """The state of a thread at one checkpoint (rule 9.1). An unknown thread gives an empty one.

    `next` names the nodes that are due; `config` and `parent_config` address this checkpoint and the one before;
    `stalled` maps a node to the senders that its half-filled barrier has, when the run has ended without it.
    """

    values: dict[str, Any]
    next: tuple[str, ...]
    config: RunConfig
    metadata: dict[str, Any]
    created_at: str | None
    parent_config: RunConfig | None
    tasks: tuple[TaskSnapshot, ...]
    interrupts: tuple[Interrupt, ...]
    status: Status | None
    stalled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
