"""Where a run stands among others: what it shares with its whole root run, and what is its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping
from contextvars import Context, copy_context
from typing import Any, Protocol

from .channels import Channel
from .checkpoint import Checkpoint, Saver, Serializer
from .effects import Event
from .journal import Journal
from .pauses import Pauses
from .rules import Plan
from .threads import Claims, Slots, StopSignal
from .types import Isolation, RunConfig

NO_PAUSES = Pauses()
NO_MODES: frozenset[str] = frozenset()
DEFAULT_LIMIT = 10_000
"""Super-steps that a run may take (rule 3.5)."""
DEFAULT_GRACE = 5.0
"""Seconds that cancelled threads are waited for (rule 5.3)."""


class Graph(Plan, Protocol):
    """A compiled graph, as the engine reads it."""

    @property
    def name(self) -> str:
        """What it is called in checkpoints."""

    @property
    def scheduling(self) -> Mapping[str, Channel]:
        """The channels that hold packets, half-filled barriers and the like."""

    @property
    def serializer(self) -> Serializer:
        """How its values become bytes."""

    @property
    def fingerprint(self) -> str:
        """A hash of the names of nodes and channels."""

    @property
    def isolation(self) -> Isolation:
        """How values are kept apart (rule 2.4)."""

    @property
    def pauses(self) -> Pauses:
        """Where it pauses."""

    @property
    def input_keys(self) -> frozenset[str] | None:
        """The keys of the input, None for all."""

    @property
    def checkpointer(self) -> Saver | None:
        """What keeps its state."""

    @property
    def memory(self) -> bool | None:
        """As a child: True keeps its state over calls of a thread, False keeps nothing (rule 8.5)."""

    @property
    def store(self) -> Any:
        """What its nodes share beyond their state."""

    @property
    def reduced(self) -> frozenset[str]:
        """The keys into which writes are folded."""

    def initial(self) -> dict[str, Any]:
        """Return fresh default values."""


class Root:
    """What all namespaces of one root run share. Only `answers` and `passed` change, and only as the run begins."""

    __slots__ = (
        "answers",
        "claims",
        "config",
        "context",
        "grace",
        "journal",
        "metadata",
        "passed",
        "serializer",
        "sink",
        "step_timeout",
        "store",
        "subgraphs",
        "thread_id",
    )

    def __init__(self, thread_id: str, serializer: Serializer, journal: Journal | None, config: RunConfig) -> None:
        self.thread_id = thread_id
        self.serializer = serializer  # of the root graph, which reads the answers of all namespaces
        self.journal = journal
        self.config = config
        self.answers: dict[str, bytes] = {}
        self.claims = Claims()
        self.passed: set[str] = set()
        self.context: Any = None
        self.store: Any = None
        self.metadata = b""
        self.step_timeout: float | None = None
        self.grace = DEFAULT_GRACE
        self.sink: Callable[[Event], None] | None = None  # takes events of nodes and nested runs, from any thread
        self.subgraphs = False


class Caller(Protocol):
    """The attempt that has called a child graph."""

    def goes_on(self, task: str) -> bool:
        """Whether a task, given with its namespace, belongs to the super-steps that are going on."""


class Scope:
    """Where one run stands: its graph, its namespace, its limits, and what it was called from."""

    __slots__ = (
        "blocks_loop",
        "called_by",
        "calling",
        "collect",
        "context",
        "epoch",
        "epochs",
        "fresh",
        "graph",
        "guessed",
        "limit",
        "memory",
        "modes",
        "namespace",
        "nested",
        "parent_namespace",
        "pauses",
        "root",
        "saving",
        "signal",
        "slots",
    )

    def __init__(self, graph: Graph, root: Root, modes: frozenset[str] = NO_MODES) -> None:
        self.graph = graph
        self.root = root
        self.modes = modes
        self.namespace = ""
        self.parent_namespace = ""
        self.nested = False
        self.guessed = False  # no node of the graph leads to the namespace: it may be another graph's
        self.saving = root.journal is not None
        self.calling: Caller | None = None
        self.called_by = ""  # the calling task with its namespace, if the child has a memory
        self.memory: MutableMapping[str, int] = {}  # where memories stood when the calling task began
        self.epochs: Collection[int] | None = None  # the line of the calling run
        self.epoch = 0
        self.fresh = False  # certainly nothing stored: the calling task runs for the first time
        self.limit = DEFAULT_LIMIT
        self.pauses = graph.pauses
        self.collect: frozenset[str] = frozenset()  # keys that the calling graph reduces (rule 8.1)
        self.slots: Slots | None = None  # how many node bodies may execute at once (rule 11.2)
        self.signal = StopSignal()
        self.blocks_loop = False  # an async node on the library's loop waits for this run without awaiting it
        self.context: Context = copy_context()  # taken on the caller's thread: a worker's context is not the caller's


def config_of(scope: Scope, namespace: str, checkpoint: int) -> Mapping[str, Any]:
    """Return the config that a node sees: the caller's, with the ids of where it runs."""
    configurable = dict(scope.root.config.get("configurable", {}))
    configurable |= {
        "thread_id": scope.root.thread_id,
        "checkpoint_ns": namespace,
        "checkpoint_id": checkpoint_text(checkpoint),
    }
    return {**scope.root.config, "configurable": configurable}


def is_of(checkpoint: Checkpoint, graph: Graph) -> bool:
    """Whether a checkpoint was made by a graph as it is now; its name alone may be another's too."""
    return (checkpoint.caller, checkpoint.fingerprint) == (graph.name, graph.fingerprint)


def checkpoint_text(number: int) -> str:
    """Return a checkpoint number as users see it: text whose order is the order of time."""
    return f"{number:012d}"
