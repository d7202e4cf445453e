"""A graph run by a node of another: as that node, or called inside of it (section 8 of the rules)."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from . import rules
from .attempt import Attempt, enclosing
from .begin import memory_in_use, other_caller
from .call import exhaust, input_values
from .drive import adrive, drive, finish
from .ending import Wrote
from .errors import InvalidRequestError
from .interrupt import GraphInterrupt, ParentCommand
from .request import Input, Outcome, Request
from .schema import as_mapping
from .scope import Graph, Scope
from .threads import cancel_here
from .types import Command, RunOptions


def is_nested(config: Mapping[str, Any] | None, options: RunOptions) -> bool:
    """Whether a call inside a node belongs to it; one that names its own thread is a run of its own (rule 8.6)."""
    return "thread_id" not in options and "thread_id" not in (config or {}).get("configurable", {})


def check_no_stream(graph: Graph, config: Mapping[str, Any] | None, options: RunOptions) -> None:
    """Refuse a stream that would be a child's: its pauses would be lost among its events."""
    if enclosing() is not None and is_nested(config, options):
        raise InvalidRequestError(
            f"graph {graph.name!r} is streamed inside a node",
            hint="call invoke() there; the outer stream shows it with subgraphs=True",
        )


def called_with(graph: Graph, input: Any, options: RunOptions) -> Request:
    """Return the request of `child.invoke(input)` inside a node. Raises InvalidRequestError for anything but input."""
    if input is None or isinstance(input, Command):
        raise InvalidRequestError(
            f"graph {graph.name!r} is called inside a node with {input!r}; a child goes on when its parent does",
            hint="pass it an input, or a thread_id of its own",
        )
    if unknown := sorted(set(options) - {"key"}):
        raise InvalidRequestError(
            f"{', '.join(unknown)} cannot be given to a call inside a node",
            hint="only key= may; a child pauses by its own lists and shares the rest with the outermost run",
        )
    return Input(input_values(graph, input))


def started_with(graph: Graph, view: Any) -> Request:
    """Return the request of a graph that is a node: the values of the keys that it shares (rule 8.1)."""
    values = as_mapping(view)
    if values is None:
        raise InvalidRequestError(
            f"graph {graph.name!r} takes a mapping, not {type(view).__name__}", hint="send it a mapping of its keys"
        )
    keys = graph.channels.keys() if graph.input_keys is None else graph.input_keys
    return Input({name: value for name, value in values.items() if name in keys}, exact=True)


def run_child(graph: Graph, attempt: Attempt, request: Request, key: str | None, *, as_node: bool) -> Outcome:
    """Run a child to its end or pause, in its own namespace."""
    namespace = attempt.child_namespace(key, memory=graph.memory is True)
    if (memo := _memo(graph, attempt, namespace)) is not None:
        return memo
    scope = _scope(graph, attempt, namespace, as_node)
    with attempt.open_call(namespace, scope.signal.set):
        outcome = exhaust(drive(scope, request))
    return _kept(attempt, scope, outcome)


async def arun_child(graph: Graph, attempt: Attempt, request: Request, key: str | None, *, as_node: bool) -> Outcome:
    """Do `run_child` on the running event loop."""
    namespace = attempt.child_namespace(key, memory=graph.memory is True)
    if (memo := _memo(graph, attempt, namespace)) is not None:
        return memo
    scope = _scope(graph, attempt, namespace, as_node)
    with attempt.open_call(namespace, cancel_here()):
        outcome = await finish(adrive(scope, request))
    return _kept(attempt, scope, outcome)


def _memo(graph: Graph, attempt: Attempt, namespace: str) -> Outcome | None:
    """Return the outcome of a call that was finished before. Raises CallOrderError if it was another graph's."""
    name, outcome = attempt.finished_call(namespace) or (graph.name, None)
    if outcome is not None and graph.memory and attempt.was_called(namespace):
        raise memory_in_use(graph.name, namespace, attempt.prefix, attempt.prefix)
    if name != graph.name:
        raise other_caller(namespace, name, graph.name)
    return outcome


def _scope(graph: Graph, attempt: Attempt, namespace: str, as_node: bool) -> Scope:
    if graph.checkpointer is not None and attempt.scope.root.journal is None:
        raise InvalidRequestError(
            f"graph {graph.name!r} has a checkpointer and is called under a graph that has none (rule 8.6)",
            hint="compile the outermost graph with the checkpointer",
        )
    if graph.memory and not attempt.scope.saving:
        raise InvalidRequestError(
            f"graph {graph.name!r} keeps a memory (checkpointer=True) and is called under a graph that keeps nothing",
            hint="compile the outermost graph with a checkpointer",
        )
    if graph.memory and attempt.was_called(namespace):
        raise memory_in_use(graph.name, namespace, attempt.prefix, attempt.prefix)
    claims = attempt.scope.root.claims
    if graph.memory and (owner := claims.take(namespace, attempt.prefix, attempt.goes_on)) is not None:
        raise memory_in_use(graph.name, namespace, owner, attempt.prefix)
    return attempt.child_scope(graph, namespace, as_node=as_node)


def _kept(attempt: Attempt, scope: Scope, outcome: Outcome) -> Outcome:
    """Note what the call tells the attempt: its questions, or a result that a retry need not compute again."""
    if outcome.error is not None:
        raise outcome.error
    if outcome.status == "paused":
        for question in outcome.interrupts:
            attempt.note(question)
        error = GraphInterrupt([question.value for question in outcome.interrupts])
        error.interrupts = outcome.interrupts
        if len(outcome.interrupts) == 1:
            error.value = outcome.interrupts[0].value
        raise error
    attempt.memory.update(outcome.head.memory)
    if scope.called_by:
        attempt.memory[scope.namespace] = outcome.head.number
    attempt.finish_call(scope.namespace, (scope.graph.name, outcome))
    return outcome


def returned(graph: Graph, outcome: Outcome) -> dict[str, Any]:
    """Return the output of a call inside a node; raise ParentCommand for a command that it hands over (rule 4.2)."""
    if outcome.status == "handed_over":
        raise ParentCommand(outcome.head.handover)
    values = rules.output(graph, outcome.head)
    return deepcopy(values) if graph.isolation == "deep" else values


def handed_back(graph: Graph, attempt: Attempt, outcome: Outcome) -> Command | Wrote:
    """Return what a graph that is a node gives its parent: its own writes, or a command (rules 4.2, 8.1)."""
    command = outcome.head.handover
    if outcome.status == "handed_over" and command is not None:
        return Command(update=command.update, goto=command.goto)
    parent = attempt.scope.graph
    keys: Any = parent.channels.keys() if graph.output_keys is None else graph.output_keys & parent.channels.keys()
    return Wrote([(n, v) for n, v in rules.handed_back(outcome.head, parent.reduced) if n in keys])
