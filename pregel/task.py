"""Nodes as they are run, the tasks of a super-step, and the ways a task can end."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from inspect import iscoroutinefunction, signature
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from .channels import MISSING
from .interrupt import GraphInterrupt, Interrupt
from .types import Command, RetryPolicy

Kind = Literal["sync", "async", "graph"]
Write = tuple[str, Any, bytes | None]
"""Channel, value, and the value's bytes if they are known."""

Sent = tuple[str, Any, bytes | None]
"""Node, argument, and the argument's bytes if they are known."""

NO_MEMORY: Mapping[str, int] = MappingProxyType({})
_ESCAPES = str.maketrans({c: f"%{ord(c):02x}" for c in "%|@#!/"})
_ESCAPED = re.compile("%(..)")


def escape(name: str) -> str:
    """Return a name free of the characters that separate the parts of ids and namespaces."""
    return name.translate(_ESCAPES)


def unescape(text: str) -> str:
    """Return what `escape` was given."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def plain(name: str) -> str:
    """Return a name as exactly a text: a member of an enum of texts is one to Python, and not to stored bytes."""
    return name if type(name) is str else str.__str__(name)


def is_storable(text: str) -> bool:
    """Whether every saver can keep a text as a name."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


class Router(NamedTuple):
    """A conditional edge: where to go is decided by a function of the state (rule 1.3)."""

    decide: Callable[..., Any]
    inject: tuple[str, ...]
    path_map: Mapping[Any, str] | None
    name: str


class PregelNode:
    """One node with everything about it that is known before the run.

    `fn` is called with the node's view of the state and the injected parameters named in `inject`. `writes` names
    scheduling channels, and nodes, that a finished run of this node sends to; `triggers` names channels whose change
    makes it due.
    """

    __slots__ = (
        "defer",
        "destinations",
        "error_handler",
        "fn",
        "inject",
        "joins",
        "key",
        "kind",
        "metadata",
        "name",
        "order",
        "reads",
        "retry_policy",
        "routers",
        "targets",
        "timeout",
        "triggers",
        "view",
        "writes",
    )

    def __init__(
        self,
        name: str,
        fn: Any,
        *,
        triggers: tuple[str, ...] = (),
        writes: tuple[str, ...] = (),
        routers: tuple[Router, ...] = (),
        defer: bool = False,
        retry_policy: tuple[RetryPolicy, ...] = (),
        timeout: float | None = None,
        error_handler: Callable[..., Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        destinations: tuple[str, ...] = (),
        reads: frozenset[str] | None = None,
        view: Callable[[Mapping[str, Any]], Any] | None = None,
    ) -> None:
        self.name = name
        self.key = escape(name)
        self.kind, self.fn, self.inject = callable_of(fn)
        self.triggers = triggers
        self.writes = writes
        self.routers = routers
        self.defer = defer
        self.retry_policy = retry_policy
        self.timeout = timeout
        self.error_handler = error_handler
        self.metadata = metadata or {}
        self.destinations = destinations
        self.reads = reads
        self.view = view
        self.order = 0
        self.targets: tuple[str, ...] = ()
        self.joins: tuple[str, ...] = ()

    def wired(self, writes: tuple[str, ...], routers: tuple[Router, ...]) -> PregelNode:
        """Return a copy that leads elsewhere: what is compiled does not follow a builder that goes on changing."""
        node = PregelNode.__new__(PregelNode)  # `copy.copy` costs six times this
        for slot in PregelNode.__slots__:
            setattr(node, slot, getattr(self, slot))
        node.writes = writes
        node.routers = routers
        return node

    def __repr__(self) -> str:
        return f"PregelNode({self.name!r})"


INJECTED = frozenset({"runtime", "config", "writer", "store"})


def callable_of(fn: Any) -> tuple[Kind, Any, tuple[str, ...]]:
    """Return how to run something given as a node: its kind, what to call, which parameters to inject (rule 1.2)."""
    if getattr(fn, "is_pregel_graph", False):
        return "graph", fn, ()
    if hasattr(fn, "compile") and hasattr(fn, "add_node"):
        raise TypeError("a graph is compiled before it is a node: add graph.compile()")
    if not callable(fn):
        for method, kind in (("invoke", "sync"), ("ainvoke", "async")):
            if callable(bound := getattr(fn, method, None)):
                return kind, bound, injected(bound)  # type: ignore[return-value] # the two literals above
        raise TypeError(f"a node must be a function, an object with invoke or ainvoke, or a graph, not {fn!r}")
    call = fn if hasattr(fn, "__code__") else getattr(fn, "__call__", fn)  # noqa: B004 - an object's own __call__
    return ("async" if iscoroutinefunction(fn) or iscoroutinefunction(call) else "sync"), fn, injected(fn)


def injected(fn: Any) -> tuple[str, ...]:
    """Return the names of the parameters, beyond the first, that the engine fills in."""
    code = getattr(fn, "__code__", None)
    if code is not None and not hasattr(fn, "__wrapped__"):
        # `signature` costs ten times this, and most nodes are plain functions or methods
        own = 2 if hasattr(fn, "__self__") else 1
        names = code.co_varnames[own : code.co_argcount + code.co_kwonlyargcount]
    else:
        try:
            names = tuple(signature(fn).parameters)[1:]
        except (TypeError, ValueError):  # a builtin without a signature takes the state alone
            names = ()
    return tuple(name for name in names if name in INJECTED)


class NodeTask:
    """One run of a node that is due. `arg` is the packet's own input, MISSING for a run on the state.

    `edge`: the node has run, and only where it leads is still to be decided (rule 7.3).
    """

    __slots__ = ("activation", "arg", "edge", "index", "node")

    def __init__(
        self, node: PregelNode, arg: Any = MISSING, activation: int = 0, index: int = -1, edge: bool = False
    ) -> None:
        self.node = node
        self.arg = arg
        self.activation = activation
        self.index = index
        self.edge = edge

    @property
    def id(self) -> str:
        """`node@activation`, or `node@activation.index` for a packet: the same until the task is folded."""
        text = f"{self.node.key}@{self.activation}"
        if self.index >= 0:
            text = f"{text}.{self.index}"
        return f"{text}/edge" if self.edge else text

    @property
    def name(self) -> str:
        """The node's name, or `node.index` for a packet; "/edge" follows if only its edges are left."""
        name = self.node.name if self.index < 0 else f"{self.node.name}.{self.index}"
        return f"{name}/edge" if self.edge else name

    @property
    def label(self) -> str:
        """What users see in `next`: the node's name, with "/edge" if only its edges are left (rule 7.3)."""
        return f"{self.node.name}/edge" if self.edge else self.node.name

    def __repr__(self) -> str:
        return f"NodeTask({self.id!r})"


class Done:
    """The task returned: what it wrote, where it goes, what it sends, and a command for the parent graph if any.

    `after` is the value with which the node asked for a pause after itself (rule 7.4), MISSING if it did not;
    `withheld`: its edges are decided after the pause (rule 7.3). `memory`: how far child graphs with a memory got.
    """

    __slots__ = ("after", "gotos", "memory", "parent", "sends", "task", "withheld", "writes")
    status = "__done__"

    def __init__(
        self,
        task: NodeTask,
        writes: list[Write],
        gotos: tuple[str, ...] = (),
        sends: tuple[Sent, ...] = (),
        parent: Command | None = None,
        after: Any = MISSING,
        withheld: bool = False,
        memory: Mapping[str, int] = NO_MEMORY,
    ) -> None:
        self.task = task
        self.writes = writes
        self.gotos = gotos
        self.sends = sends
        self.parent = parent
        self.after = after
        self.withheld = withheld
        self.memory = memory


class Interrupted:
    """The task asks. `whole`: it runs again only when all of its questions are answered (rule 6.8).

    `error` is what the node raised after it had asked (rule 6.1).
    """

    __slots__ = ("error", "interrupts", "payload", "task", "whole")
    status = "__interrupt__"

    def __init__(
        self,
        task: NodeTask,
        interrupts: tuple[Interrupt, ...],
        whole: bool = False,
        payload: Any = MISSING,
        error: BaseException | None = None,
    ) -> None:
        self.task = task
        self.interrupts = interrupts
        self.whole = whole
        self.payload = payload
        self.error = error

    def as_exception(self) -> GraphInterrupt:
        """Return the pause as the node gave it."""
        error = GraphInterrupt(self.interrupts[0].value if len(self.interrupts) == 1 else list(self.interrupts))
        error.interrupts = self.interrupts
        if self.payload is not MISSING:
            error.value = self.payload
        return error


class Failed:
    """The task raised, or broke a rule."""

    __slots__ = ("error", "task")
    status = "__error__"

    def __init__(self, task: NodeTask, error: BaseException) -> None:
        self.task = task
        self.error = error


class Cancelled:
    """The task was told to stop. `abandoned`: it did not, and was left behind."""

    __slots__ = ("abandoned", "error", "task")
    status = "__cancelled__"

    def __init__(self, task: NodeTask, error: BaseException | None = None, abandoned: bool = False) -> None:
        self.task = task
        self.error = error
        self.abandoned = abandoned


Ending = Done | Interrupted | Failed | Cancelled
