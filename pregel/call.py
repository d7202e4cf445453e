"""The arguments of a call become a request and a place to run it; an outcome becomes a result."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from . import rules
from .attempt import enclosing
from .channels import MISSING
from .checkpoint import SerializationError
from .drive import adrive, drive, finish
from .effects import Event
from .ending import own
from .errors import InvalidRequestError, InvalidUpdateError, NoCheckpointerError
from .journal import Journal
from .namespace import parts, without_ids
from .request import Answer, Change, Continue, Edit, Input, Outcome, Request
from .schema import as_mapping
from .scope import Graph, Root, Scope, checkpoint_text
from .task import is_storable, plain
from .threads import Slots
from .types import END, INTERRUPT, START, Command, Durability, RunConfig, RunOptions, StateUpdate, is_seconds
from .validate import nearest, only_by_packets, pause_faults, pauses_of

T = TypeVar("T")


class Call(NamedTuple):
    """A run about to be driven: where, what, and from which checkpoint if not from the head."""

    scope: Scope
    request: Request
    number: int | None

    def run(self) -> Outcome:
        """Drive it in this thread, without a reader."""
        return exhaust(drive(self.scope, self.request, self.number))

    async def arun(self) -> Outcome:
        """Drive it on the running event loop, without a reader."""
        return await finish(adrive(self.scope, self.request, self.number))


def exhaust(run: Generator[Event, None, T]) -> T:
    """Run a driver to its end and return what it returns."""
    while True:
        try:
            next(run)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return] # what the generator returns


# --- requests -----------------------------------------------------------------------------------------------------


def request_of(graph: Graph, input: Any, options: RunOptions) -> Request:
    """Return what an input asks for: None goes on, a Command answers or edits, else it begins (rules 4.4, 5.5, 6.6)."""
    if input is None:
        return Continue()
    if isinstance(input, Command):
        return _commanded(graph, input)
    return Input(input_values(graph, input), if_paused=_if_paused(options))


def _if_paused(options: RunOptions) -> str:
    wish = options.get("if_paused", "restart")
    if wish not in ("restart", "error"):
        raise InvalidRequestError(f"if_paused must be 'restart' or 'error', not {wish!r}")
    return wish


def _commanded(graph: Graph, command: Command) -> Request:
    if command.graph is not None:
        raise InvalidRequestError("a command given as input cannot address a parent graph")
    update = _update(graph, command.update)
    if command.resume is not MISSING:
        if command.targets:
            raise InvalidRequestError(
                "a command cannot answer and jump at once", hint="answer first, or jump without resume= (rule 4.4)"
            )
        return Answer(value=command.resume, update=update)
    gotos, sends = rules.route_command(graph, command.targets, "the command", _sent(graph))
    if not update and not gotos and not sends:
        raise InvalidRequestError("the command changes nothing: give update=, resume=, or a node to go to")
    return Edit([[Change(update)]], gotos, sends)


def _sent(graph: Graph) -> Any:
    def sent(node: str, given: Any) -> tuple[str, Any, bytes]:
        arg = own(given)
        return node, arg, graph.serializer.encode(arg)

    return sent


def input_values(graph: Graph, input: Any) -> Mapping[str, Any]:
    """Return the values of an input, copied as rule 2.4 says. Raises InvalidUpdateError for unknown keys."""
    values = _update(graph, input)
    known = graph.input_keys if graph.input_keys is not None else graph.channels.keys()
    if unknown := [name for name in values if name not in known]:
        raise rules.unknown_keys(unknown, known, "the input")
    return values


def _update(graph: Graph, update: Any) -> dict[str, Any]:
    if update is None:
        return {}
    mapping = as_mapping(update)
    if mapping is None:
        raise InvalidUpdateError(f"expected a mapping of {sorted(graph.channels)}, not {type(update).__name__}")
    values = {name: own(value) for name, value in mapping.items()}
    if graph.checkpointer is not None:
        for name, value in values.items():
            _check_storable(graph, name, value)
    return values


def _check_storable(graph: Graph, name: str, value: Any) -> None:
    channel = graph.channels.get(name)
    if channel is not None and channel.stored:
        try:
            graph.serializer.encode(value)
        except SerializationError as error:
            raise SerializationError(f"key {name!r}: {error.args[0]}", hint=error.hint, path=error.path) from error


def answer_of(value: Any, answers: Mapping[str, Any] | None) -> Answer:
    """Return the request of `resume(value)` or `resume(answers={...})`."""
    if (value is MISSING) == (answers is None):
        raise InvalidRequestError(
            "give either one answer or answers={id: value}", hint="invoke(None) goes on from a pause that asks nothing"
        )
    if answers is not None and not isinstance(answers, Mapping):
        raise InvalidRequestError(f"answers are a mapping from interrupt ids, not {type(answers).__name__}")
    return Answer(value=value, by_id=answers, exact=True)


# --- where a call runs --------------------------------------------------------------------------------------------


def prepare(graph: Graph, request: Request, config: Mapping[str, Any] | None, options: RunOptions) -> Call:
    """Return a call of a root run, everything resolved once (rule 11.1). Raises InvalidRequestError."""
    merged = checked_config(config)
    _check_options(merged, options)
    configurable = merged.get("configurable", {})
    thread_id = _either("thread_id", options.get("thread_id"), configurable.get("thread_id"))
    checkpoint_id = _either("checkpoint_id", options.get("checkpoint_id"), configurable.get("checkpoint_id"))
    if configurable.get("checkpoint_ns"):
        raise InvalidRequestError("a run begins in the root graph", hint="leave out checkpoint_ns")
    if graph.memory:
        raise InvalidRequestError(
            f"graph {graph.name!r} keeps a memory within another graph (checkpointer=True) and is called by itself",
            hint="compile it with a saver for a run of its own",
        )
    journal = None
    if graph.checkpointer is not None:
        durability = options.get("durability", "sync")
        _check_durability(durability)
        journal = Journal(graph.checkpointer, _checked_thread(thread_id), durability)
    elif not isinstance(request, Input):
        raise NoCheckpointerError(
            "no checkpointer: the graph keeps nothing to go on from", hint="compile(checkpointer=...)"
        )
    root = Root(thread_id or "", graph.serializer, journal, merged)
    scope = Scope(graph, root)
    if (around := enclosing()) is not None:
        scope.blocks_loop = around.scope.blocks_loop
    _apply(graph, scope, merged, options)
    return Call(scope, request, number_of(checkpoint_id))


def prepare_fork(graph: Graph, config: Mapping[str, Any] | None, options: RunOptions) -> Call:
    """Return a call that replays from the checkpoint that it names."""
    call = prepare(graph, Continue(), config, options)
    if call.number is None:
        raise InvalidRequestError("a fork begins at a checkpoint_id", hint="take one from get_state_history()")
    return call


def prepare_edit(
    graph: Graph, config: Mapping[str, Any] | None, steps: Sequence[Sequence[Change]], thread_id: str | None
) -> Call:
    """Return a call that edits the state and runs no node (rule 9.3)."""
    options: RunOptions = {} if thread_id is None else {"thread_id": thread_id}
    merged = checked_config(config)
    configurable = dict(merged.get("configurable", {}))
    namespace = configurable.pop("checkpoint_ns", "")
    merged["configurable"] = configurable
    known = graph_at(graph, namespace)
    target = graph if known is None else known
    checked = [[_checked_change(target, change) for change in step] for step in steps]
    call = prepare(graph, Edit(checked, run=False), merged, options)
    call.scope.graph = target
    call.scope.namespace = namespace
    call.scope.guessed = known is None
    above = graph_at(graph, namespace.rpartition("|")[0])
    if namespace and above is not None and target is not graph:
        call.scope.collect = above.reduced & target.channels.keys()
    return call


def changes_of(supersteps: Any) -> list[list[Change]]:
    """Return the steps of `bulk_update_state`. Raises InvalidRequestError for another shape."""
    if not isinstance(supersteps, Sequence) or isinstance(supersteps, str) or not supersteps:
        raise InvalidRequestError("give a list of super-steps, each a list of StateUpdate")
    steps = []
    for step in supersteps:
        if not isinstance(step, Sequence) or not step or not all(isinstance(update, StateUpdate) for update in step):
            raise InvalidRequestError(f"a super-step is a list of StateUpdate, not {type(step).__name__}")
        steps.append([Change(update.values, update.as_node, update.task_id) for update in step])
    return steps


def _checked_change(graph: Graph, change: Change) -> Change:
    name, task_id = change.as_node, change.task_id
    if name is None:
        if task_id is not None:
            raise InvalidRequestError("task_id says which task of a node is meant", hint="give as_node too")
    elif name not in (START, END) and name not in graph.nodes:
        known = [each for each in graph.nodes if each != START]
        raise InvalidRequestError(f"as_node={name!r} is no node; {nearest(name, [*known, START, END])}")
    elif task_id is not None and task_id.partition("@")[0] != graph.nodes[name].key:
        raise InvalidRequestError(f"task {task_id!r} is none of node {name!r}")
    elif task_id is None and name in graph.nodes and only_by_packets(graph, name):
        raise InvalidRequestError(
            f"node {name!r} is only reached by Send, so each packet has an outcome of its own",
            hint="give task_id, as `tasks` of a snapshot show it",
        )
    return Change(_update(graph, change.values), None if name is None else plain(name), task_id)


def graph_at(graph: Graph, namespace: str) -> Graph | None:
    """Return the graph whose state a namespace holds, None if a function calls it, which nobody knows beforehand."""
    for part in parts(without_ids(namespace)):
        node = next((node for node in graph.nodes.values() if node.key == part.partition("#")[0]), None)
        if node is None or node.kind != "graph":
            return None
        graph = node.fn
    return graph


def checked_config(config: Any) -> RunConfig:
    """Return a copy of a config. Raises InvalidRequestError for one of another shape."""
    if config is None:
        return {}
    if not isinstance(config, Mapping) or not isinstance(config.get("configurable", {}), Mapping):
        raise InvalidRequestError(
            f"a config is a mapping, not {config!r}", hint='{"configurable": {"thread_id": "..."}}, or pass thread_id='
        )
    namespace = config.get("configurable", {}).get("checkpoint_ns", "")
    if not isinstance(namespace, str) or not is_storable(namespace):
        raise InvalidRequestError(f"a checkpoint_ns is text, not {namespace!r}", hint="take one from a StateSnapshot")
    return {**config}  # type: ignore[typeddict-item] # its keys are checked where it runs something


def _either(what: str, option: Any, configured: Any) -> Any:
    if option is not None and configured is not None and option != configured:
        raise InvalidRequestError(f"{what} is {option!r} as an option and {configured!r} in the config")
    return configured if option is None else option


_KNOWN = frozenset(RunOptions.__annotations__)


def _check_options(config: RunConfig, options: RunOptions) -> None:
    if "key" in options:
        raise InvalidRequestError("key= names a call inside a node; this call is a run of its own")
    if unknown := sorted(set(options) - _KNOWN):
        raise InvalidRequestError(f"unknown option {', '.join(map(repr, unknown))}; known are {sorted(_KNOWN)}")
    if unknown := sorted(set(config) - set(RunConfig.__annotations__)):
        known = sorted(RunConfig.__annotations__)
        raise InvalidRequestError(f"unknown config key {', '.join(map(repr, unknown))}; known are {known}")


def _checked_thread(thread_id: Any) -> str:
    if thread_id is None:
        raise InvalidRequestError(
            "a graph with a checkpointer runs on a thread", hint='pass thread_id="...", or compile without one'
        )
    if not isinstance(thread_id, str) or not thread_id or not is_storable(thread_id):
        raise InvalidRequestError(f"a thread_id is non-empty text without NUL or lone surrogates, not {thread_id!r}")
    return thread_id


def _check_durability(durability: Any) -> None:
    if durability not in Durability.__args__:  # type: ignore[attr-defined] # a Literal has them
        raise InvalidRequestError(f"durability must be 'sync', 'async' or 'exit', not {durability!r}")


def _apply(graph: Graph, scope: Scope, config: RunConfig, options: RunOptions) -> None:
    root = scope.root
    root.context = options.get("context")
    root.store = graph.store
    if "grace" in options:
        root.grace = _seconds("grace", options["grace"], zero=True)
    if "step_timeout" in options:
        root.step_timeout = _seconds("step_timeout", options["step_timeout"])
    limit = options.get("recursion_limit", config.get("recursion_limit"))
    if limit is not None:
        scope.limit = _count("recursion_limit", limit)
    concurrency = options.get("max_concurrency", config.get("max_concurrency"))
    if concurrency is not None:
        scope.slots = Slots(_count("max_concurrency", concurrency))
    before, after = options.get("interrupt_before"), options.get("interrupt_after")
    if before is not None or after is not None:
        names = list(graph.nodes)
        faults = [
            *pause_faults("interrupt_before", () if before is None else before, names),
            *pause_faults("interrupt_after", () if after is None else after, names),
        ]
        if faults:
            raise InvalidRequestError("; ".join(faults))
        given = pauses_of(before or (), after or (), graph.pauses.before_edge, graph.nodes)
        scope.pauses = given._replace(
            before=graph.pauses.before if before is None else given.before,
            after=graph.pauses.after if after is None else given.after,
        )
    if root.journal is not None:
        root.metadata = graph.serializer.encode(_metadata(config, options))


def _metadata(config: RunConfig, options: RunOptions) -> dict[str, Any]:
    for given in (config, options):
        if not isinstance(given.get("metadata", {}), Mapping):
            raise InvalidRequestError(f"metadata is a mapping, not {given['metadata']!r}")
        if isinstance(given.get("tags", ()), str) or not isinstance(given.get("tags", ()), Sequence):
            raise InvalidRequestError(f"tags are a list of texts, not {given['tags']!r}")
        if not isinstance(given.get("run_id", ""), str):
            raise InvalidRequestError(f"a run_id is text, not {given['run_id']!r}")
    metadata = {**config.get("metadata", {}), **options.get("metadata", {})}
    tags = [*config.get("tags", ()), *options.get("tags", ())]
    run_id = options.get("run_id", config.get("run_id"))
    return {**metadata, **({"tags": tags} if tags else {}), **({"run_id": run_id} if run_id else {})}


def _count(what: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidRequestError(f"{what} must be a whole number of at least 1, not {value!r}")
    return value


def _seconds(what: str, value: Any, *, zero: bool = False) -> float:
    if not is_seconds(value, zero=zero):
        raise InvalidRequestError(
            f"{what} must be a finite number of seconds {'from' if zero else 'above'} 0, not {value!r}"
        )
    return float(value)


def number_of(checkpoint_id: Any) -> int | None:
    """Return the number of a checkpoint id. Raises InvalidRequestError for one of another form."""
    if checkpoint_id is None:
        return None
    if isinstance(checkpoint_id, str) and checkpoint_id.isascii() and checkpoint_id.isdigit():
        return int(checkpoint_id)
    raise InvalidRequestError(f"{checkpoint_id!r} is no checkpoint id", hint="take one from get_state_history()")


# --- results ------------------------------------------------------------------------------------------------------


def result(graph: Graph, outcome: Outcome) -> dict[str, Any]:
    """Return the output of a root run, with "__interrupt__" if it is paused; raise what ended it (rule 6.4)."""
    if outcome.error is not None:
        raise outcome.error
    values = rules.output(graph, outcome.head)
    if outcome.status == "paused":
        values[INTERRUPT] = list(outcome.interrupts)
    return values


def config_after(call: Call, outcome: Outcome) -> RunConfig:
    """Return the config of the checkpoint that an edit made."""
    if outcome.error is not None:
        raise outcome.error
    return {
        "configurable": {
            "thread_id": call.scope.root.thread_id,
            "checkpoint_ns": call.scope.namespace,
            "checkpoint_id": checkpoint_text(outcome.head.number),
        }
    }
