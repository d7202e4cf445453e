"""StateGraph: the builder of a graph (rules 1.1 to 1.4)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar, overload

from . import log, validate
from .channels import BarrierChannel, Channel, LastValue
from .checkpoint import Saver
from .engine import Pregel
from .errors import GraphValidationError
from .schema import Schema, schema_of
from .task import PregelNode, Router, injected, is_storable, plain
from .types import END, START, Isolation, RetryPolicy, is_seconds

StateT = TypeVar("StateT")
Retries = RetryPolicy | Sequence[RetryPolicy]
Group = str | set[str] | frozenset[str]

RESERVED = frozenset({START, END, "__input__", "__command__", "__interrupt__", "__error__", "__cancelled__"})


class StateGraph(Generic[StateT]):
    """Builds a graph of nodes that share a state.

    `state` is a TypedDict, dataclass or pydantic model; `Annotated[T, reducer]` makes a key that several nodes may
    write in one step. `input_schema` and `output_schema` narrow what a call passes and gets; `context_schema` is for
    type checkers only.
    """

    def __init__(
        self,
        state: type[StateT],
        context_schema: type | None = None,
        input_schema: type | None = None,
        output_schema: type | None = None,
    ) -> None:
        self._schema = schema_of(state)
        self._input = schema_of(input_schema) if input_schema else self._schema
        self._output = schema_of(output_schema) if output_schema else self._schema
        self._views: dict[str, Schema] = {}
        self._nodes: dict[str, PregelNode] = {}
        self._edges: list[validate.Edge] = []
        self._joins: list[validate.Join] = []
        self._branches: list[tuple[str, Router]] = []
        self._faults: list[str] = []
        self.context_schema = context_schema

    # --- nodes ----------------------------------------------------------------------------------------------------

    @overload
    def add_node(
        self,
        node: Callable[..., Any] | Pregel[Any],
        /,
        *,
        defer: bool = ...,
        retry_policy: Retries | None = ...,
        timeout: float | None = ...,
        input_schema: type | None = ...,
        metadata: Mapping[str, Any] | None = ...,
        destinations: Sequence[str] = ...,
    ) -> Self: ...

    @overload
    def add_node(
        self,
        node: str,
        fn: Any,
        /,
        *,
        defer: bool = ...,
        retry_policy: Retries | None = ...,
        timeout: float | None = ...,
        input_schema: type | None = ...,
        metadata: Mapping[str, Any] | None = ...,
        destinations: Sequence[str] = ...,
    ) -> Self: ...

    def add_node(
        self,
        node: Any,
        fn: Any = None,
        /,
        *,
        defer: bool = False,
        retry_policy: Retries | None = None,
        timeout: float | None = None,
        input_schema: type | None = None,
        metadata: Mapping[str, Any] | None = None,
        destinations: Sequence[str] = (),
    ) -> Self:
        """Add a node: a function, an object with invoke or ainvoke, or a compiled graph (rule 1.2).

        `defer` holds it while other tasks are due (rule 3.4); `timeout` bounds an attempt in seconds (rule 5.8): an
        async node is cancelled then, a thread is told by `runtime.cancelled`, waited for as long as the call's `grace`
        says, and left behind, so an attempt that a `retry_policy` adds may run beside it;
        `input_schema` narrows what it is shown; `destinations` names where its commands may go.
        """
        name, body = (plain(node), fn) if isinstance(node, str) else (_name_of(node), node)
        self._check_name(name)
        if timeout is not None and not is_seconds(timeout):
            self._faults.append(f"the timeout of {name!r} must be more than 0 seconds and finite, not {timeout!r}")
        view = self._schema if input_schema is None else schema_of(input_schema)
        if input_schema is not None:
            self._views[name] = view
        policies = (retry_policy,) if isinstance(retry_policy, RetryPolicy) else tuple(retry_policy or ())
        try:
            self._nodes[name] = PregelNode(
                name,
                body,
                defer=defer,
                retry_policy=policies,
                timeout=timeout,
                metadata=metadata,
                destinations=tuple(destinations),
                reads=None if view is self._schema else view.keys,
                view=view.view,
            )
        except TypeError as error:
            self._faults.append(f"node {name!r}: {error}")
        return self

    def _check_name(self, name: str) -> None:
        if name in self._nodes:
            self._faults.append(f"node {name!r} is added twice")
        if name in RESERVED or not name or not is_storable(name):
            self._faults.append(f"node name {name!r} is reserved or empty, or holds NUL or lone surrogates")

    # --- edges ----------------------------------------------------------------------------------------------------

    def add_edge(self, source: str | Sequence[Group], target: str) -> Self:
        """Lead from `source` to `target`; a list waits for all of its members, a set within it for one (rule 1.3)."""
        if not isinstance(target, str):
            self._faults.append(f"an edge leads to one node, not to {target!r}; add one edge for each")
        elif isinstance(source, str):
            self._edges.append(validate.Edge(plain(source), plain(target)))
        else:
            members = ([group] if isinstance(group, str) else group for group in source)
            groups = tuple(frozenset(map(plain, group)) for group in members)
            if not groups or not all(groups):
                self._faults.append(f"the join before {target!r} waits for nobody")
            else:
                self._joins.append(validate.Join(groups, plain(target)))
        return self

    def add_conditional_edges(
        self,
        source: str,
        router: Callable[..., Any],
        path_map: Mapping[Hashable, str] | Sequence[str] | None = None,
    ) -> Self:
        """Let a function of the state say where to go: a name, a Send, END, or a list of them (rule 1.3).

        `path_map` translates what it returns; a sequence only says which names it may return.
        """
        mapping = path_map if isinstance(path_map, Mapping) or path_map is None else {name: name for name in path_map}
        name = getattr(router, "__name__", type(router).__name__)
        self._branches.append((plain(source), Router(router, injected(router), mapping, name)))
        return self

    def add_sequence(self, nodes: Iterable[Callable[..., Any] | tuple[str, Any]]) -> Self:
        """Add nodes, each with an edge from the one before."""
        before: str | None = None
        for node in nodes:
            name, body = node if isinstance(node, tuple) else (_name_of(node), node)
            self.add_node(name, body)
            if before is not None:
                self.add_edge(before, name)
            before = name
        return self

    def set_entry_point(self, name: str) -> Self:
        """Begin at a node: an edge from START."""
        return self.add_edge(START, name)

    def set_finish_point(self, name: str) -> Self:
        """End after a node: an edge to END."""
        return self.add_edge(name, END)

    # --- compiling ------------------------------------------------------------------------------------------------

    def compile(
        self,
        checkpointer: Saver | bool | None = None,
        *,
        interrupt_before: Sequence[str] | str = (),
        interrupt_after: Sequence[str] | str = (),
        interrupt_before_edge: bool = False,
        isolation: Isolation = "shallow",
        store: Any = None,
        name: str | None = None,
    ) -> Pregel[StateT]:
        """Check the graph and return it ready to run, immutable and safe to share (rules 1.4, 1.5).

        `checkpointer` keeps the state of runs. A graph within another one uses that one's; there True keeps its memory
        over all calls of a thread, and False keeps nothing, so that a pause inside runs it again (rule 8.5).
        `interrupt_before` and `interrupt_after` name nodes to pause at, "*" all of them. With `interrupt_before_edge` a
        pause after a node comes before its edges are decided, so that `update_state` can re-route (rule 7.3). The
        builder can go on changing and be compiled again. Raises GraphValidationError with all faults.
        """
        channels, faults = self._channels()
        names = list(self._nodes)
        faults += validate.pause_faults("interrupt_before", interrupt_before, names)
        faults += validate.pause_faults("interrupt_after", interrupt_after, names)
        if isolation not in ("shallow", "deep", "check"):
            faults.append(f"isolation must be 'shallow', 'deep' or 'check', not {isolation!r}")
        if not isinstance(checkpointer, (Saver, bool, type(None))):
            faults.append(f"checkpointer must be a Saver, or True, False or None for a child, not {checkpointer!r}")
        validate.check(self._drawing(), channels, [*self._faults, *faults])
        for node in validate.uneven(self._edges):
            if not self._nodes[node].defer:
                log.warn(log.UNEVEN_BRANCHES, node=node)
        nodes, barriers, entry = self._wired()
        return Pregel(
            nodes,
            {**channels, **barriers},
            entry=entry,
            input_keys=self._input.keys,
            output_keys=None if self._output is self._schema else self._output.keys,
            types=[schema.type for schema in self._schemas()],
            checkpointer=checkpointer,
            interrupt_before=interrupt_before,
            interrupt_after=interrupt_after,
            interrupt_before_edge=interrupt_before_edge,
            isolation=isolation,
            store=store,
            name=name or f"{self._schema.type.__name__}.{names[0]}",
        )

    def _schemas(self) -> list[Schema]:
        return [self._schema, self._input, self._output, *self._views.values()]

    def _channels(self) -> tuple[dict[str, Channel], list[str]]:
        """Return the channels of all schemas together, and where two schemas disagree."""
        channels: dict[str, Channel] = dict(self._schema.channels)
        faults = [f"key {key!r} is reserved" for key in channels if key.startswith("__")]
        for schema in self._schemas()[1:]:
            for key, channel in schema.channels.items():
                known = channels.setdefault(key, channel)
                plain = type(channel) is LastValue
                if known is not channel and not plain and repr(known) != repr(channel):
                    faults.append(f"the schemas disagree about {key!r}: {known!r} and {channel!r}")
                elif plain and isinstance(known, LastValue) and schema.hints[key] != getattr(known, "type", None):
                    faults.append(f"the schemas disagree about {key!r}: {known.type!r} and {schema.hints[key]!r}")
        return channels, faults

    def _drawing(self) -> validate.Drawing:
        branches = []
        for source, router in self._branches:
            leads = router.path_map.values() if router.path_map else validate.annotated_targets(router.decide)
            branches.append(validate.Branch(source, router.name, None if leads is None else tuple(leads)))
        jumps: dict[str, tuple[str, ...] | None] = {}
        for name, node in self._nodes.items():
            # what a child graph hands over is decided inside of it, and may be anything
            targets = None if node.kind == "graph" else validate.command_targets(node.fn)
            if node.destinations:
                jumps[name] = node.destinations
            elif targets is not False:
                jumps[name] = targets
        return validate.Drawing(list(self._nodes), self._edges, self._joins, branches, jumps)

    def _wired(self) -> tuple[list[PregelNode], dict[str, BarrierChannel], tuple[str, ...]]:
        """Return copies of the nodes that know where they lead, the barriers, and the nodes that an input wakes."""
        writes: dict[str, list[str]] = {}
        for source, target in dict.fromkeys(self._edges):
            if target != END:
                writes.setdefault(source, []).append(target)
        barriers: dict[str, BarrierChannel] = {}
        for index, (groups, target) in enumerate(self._joins):
            barrier = f"__join__{index}:{target}"
            barriers[barrier] = BarrierChannel(target, groups)
            for source in sorted(frozenset().union(*groups)):
                writes.setdefault(source, []).append(barrier)
        routers: dict[str, list[Router]] = {}
        for source, router in self._branches:
            routers.setdefault(source, []).append(router)
        nodes = dict(self._nodes)
        entry = tuple(writes.get(START, ()))
        if START in routers or any(target in barriers for target in entry):
            nodes = {START: PregelNode(START, _begin, view=self._schema.view), **nodes}
            entry = (START,)
        wired = [node.wired(tuple(writes.get(name, ())), tuple(routers.get(name, ()))) for name, node in nodes.items()]
        return wired, barriers, entry


def _begin(state: Any) -> None:
    """Do nothing: the task `__start__` is there for its edges (rule 3.6)."""


def _name_of(node: Any) -> str:
    name = getattr(node, "__name__", None) or getattr(node, "name", None) or type(node).__name__
    if name == "<lambda>":
        raise GraphValidationError("a lambda has no name of its own", hint='add_node("name", lambda ...)')
    return str(name)
