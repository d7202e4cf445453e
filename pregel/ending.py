"""What a node returned or raised becomes its task's ending: pure judgement, in the attempt that it is about.

A question outranks every other ending; what can be refused of an update is refused here, at the task's end (rule 2.7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from inspect import isawaitable
from typing import Any, NamedTuple

from . import log, rules, stored
from .attempt import Attempt
from .channels import CONTAINERS, MISSING, Overwrite
from .checkpoint import SerializationError
from .errors import InvalidTargetError, InvalidUpdateError, MutationError, NodeError, described
from .interrupt import GraphInterrupt, Interrupt, find_interrupts
from .schema import as_mapping
from .task import Cancelled, Done, Ending, Failed, Interrupted, Router, Sent, Write
from .types import Command, Send


class Again(NamedTuple):
    """Not an ending yet: another attempt follows after so many seconds."""

    seconds: float


class Wrote(NamedTuple):
    """The result of a child graph run as a node: what its own nodes wrote (rule 8.1)."""

    writes: list[tuple[str, Any]]


def own(value: Any) -> Any:
    """Return a value whose top level belongs to the receiver (rule 2.4)."""
    return value.copy() if type(value) in CONTAINERS else value


def digests(attempt: Attempt) -> dict[str, bytes]:
    """Return the bytes of the state that the attempt runs on, to see what the node changes in place (rule 2.4)."""
    encode = attempt.scope.graph.serializer.encode
    channels = attempt.head.channels
    return {name: encode(value) for name, value in channels.values.items() if channels.channels[name].stored}


def _check_unchanged(attempt: Attempt, before: Mapping[str, bytes]) -> None:
    after = digests(attempt)
    if changed := sorted(name for name, data in before.items() if after.get(name) != data):
        raise MutationError(
            f"node {attempt.task.node.name!r} changed {', '.join(map(repr, changed))} in place",
            hint="return an update instead",
            node=attempt.task.node.name,
            keys=changed,
        )


# --- from a result to an ending -----------------------------------------------------------------------------------


def close(attempt: Attempt, result: Any, before: Mapping[str, bytes] | None = None) -> Ending:
    """Return the ending for what a node returned, its routers not yet asked. Raises what makes the task fail."""
    if before is not None:
        _check_unchanged(attempt, before)
    if attempt.fault is not None:
        raise attempt.fault
    ending = _closed(attempt, result)
    pauses = attempt.scope.pauses
    if type(ending) is Done and pauses.before_edge:
        ending.withheld = attempt.after is not MISSING or attempt.task.node.name in pauses.after
    return ending


def complete(attempt: Attempt, ending: Done) -> None:
    """Add what the node and its routers did besides: a pause that they want, memories that moved on."""
    if attempt.after is not MISSING:
        if attempt.scope.saving:
            _encoded(attempt, attempt.after, "the value of its pause")
        ending.after = attempt.after
    if attempt.memory:
        ending.memory = attempt.memory


def _closed(attempt: Attempt, result: Any) -> Ending:
    if attempt.asked:
        log.warn(log.QUESTION_SWALLOWED, task=attempt.task.id, namespace=attempt.scope.namespace)
        return _interrupted(attempt, attempt.questions())
    if isinstance(result, GraphInterrupt):
        return _asks(attempt, (result,))
    task = attempt.task
    if result is None:
        return Done(task, [])
    if type(result) is dict:
        return Done(task, _writes(attempt, result.items()))
    if type(result) is Wrote:
        return Done(task, _writes(attempt, result.writes))
    if type(result) is Command:
        return _commanded(attempt, result)
    if isinstance(result, (list, tuple)) and result and all(type(item) in (Command, Send) for item in result):
        return _many(attempt, result)
    update = as_mapping(result)
    if update is None:
        raise _unusable(attempt, result)
    return Done(task, _writes(attempt, update.items()))


def _unusable(attempt: Attempt, result: Any) -> InvalidUpdateError:
    if isawaitable(result):
        close_ = getattr(result, "close", None)
        if close_ is not None:
            close_()
        reason = "returned an awaitable from a sync function; declare it with async def"
    else:
        reason = f"returned {type(result).__name__}; expected a mapping of updates, a Command or None"
    return InvalidUpdateError(f"node {attempt.task.node.name!r} {reason}", node=attempt.task.node.name)


def _writes(attempt: Attempt, items: Any) -> list[Write]:
    """Return the writes of an update, copied and encoded (rules 1.6, 2.4, 12.2)."""
    graph = attempt.scope.graph
    channels = graph.channels
    saving = attempt.scope.saving
    writes: list[Write] = []
    for name, value in items:
        channel = channels.get(name)
        if channel is None:
            unknown = [key for key, _ in items if key not in channels]
            raise rules.unknown_keys(unknown, channels, f"node {attempt.task.node.name!r}")
        if type(value) in CONTAINERS and channel.stored:
            value = value.copy()
        elif type(value) is Overwrite:
            value = Overwrite(own(value.value))
        if graph.isolation == "deep" and channel.stored:
            value = deepcopy(value)
        data = _encoded(attempt, value, f"key {name!r}") if saving and channel.stored else None
        writes.append((name, value, data))
    return writes


def _encoded(attempt: Attempt, value: Any, what: str) -> bytes:
    try:
        return attempt.scope.graph.serializer.encode(value)
    except SerializationError as error:
        raise SerializationError(
            f"node {attempt.task.node.name!r}, {what}: {error.args[0]}",
            hint=error.hint,
            path=error.path,
            node=attempt.task.node.name,
        ) from error


def _commanded(attempt: Attempt, command: Command) -> Done:
    if command.resume is not MISSING:
        raise InvalidUpdateError(
            f"node {attempt.task.node.name!r} returned a Command with resume=; only callers answer"
        )
    if command.graph == Command.PARENT:
        if not attempt.scope.nested:
            raise InvalidTargetError(f"node {attempt.task.node.name!r} addresses a parent graph, and there is none")
        if attempt.scope.saving:
            _encoded(attempt, command, "the command for the parent graph")
        return Done(attempt.task, [], parent=command)
    if command.graph is not None:
        raise InvalidTargetError(f"a command may address Command.PARENT, not {command.graph!r}")
    update = _update_of(attempt, command.update)
    gotos, sends = rules.route_command(attempt.scope.graph, command.targets, _source(attempt), _packer(attempt))
    return Done(attempt.task, _writes(attempt, update), tuple(gotos), tuple(sends))


def _update_of(attempt: Attempt, update: Any) -> list[tuple[str, Any]]:
    if update is None:
        return []
    if isinstance(update, list) and all(isinstance(item, tuple) and len(item) == 2 for item in update):
        return update
    mapping = as_mapping(update)
    if mapping is None:
        raise _unusable(attempt, update)
    return list(mapping.items())


def _many(attempt: Attempt, results: Any) -> Done:
    writes: list[Write] = []
    gotos: list[str] = []
    sends: list[Sent] = []
    for result in results:
        command = Command(goto=result) if type(result) is Send else result
        part = _commanded(attempt, command)
        if part.parent is not None:
            raise InvalidUpdateError("a command for the parent graph is returned alone")
        writes += part.writes
        gotos += part.gotos
        sends += part.sends
    return Done(attempt.task, writes, tuple(gotos), tuple(sends))


def _source(attempt: Attempt) -> str:
    return f"node {attempt.task.node.name!r}"


def _packer(attempt: Attempt) -> Callable[[str, Any], Sent]:
    saving = attempt.scope.saving
    deep = attempt.scope.graph.isolation == "deep"

    def sent(node: str, given: Any) -> Sent:
        arg = deepcopy(given) if deep else own(given)
        return node, arg, _encoded(attempt, arg, f"a packet for {node!r}") if saving else None

    return sent


# --- where routers lead -------------------------------------------------------------------------------------------


def route(attempt: Attempt, ending: Done, router: Router, decided: Any) -> None:
    """Add to an ending where a router has decided to go (rules 1.3, 4.1). Raises InvalidTargetError."""
    source = f"router {router.name!r} of {_source(attempt)}"
    if attempt.asked:
        raise NodeError(f"{source} asked a question; ask in a node")
    targets = list(decided) if isinstance(decided, (list, tuple)) else [decided]
    if router.path_map is not None:
        targets = [target if type(target) is Send else _mapped(router.path_map, target, source) for target in targets]
    gotos, sends = rules.route_command(attempt.scope.graph, targets, source, _packer(attempt))
    ending.gotos = (*ending.gotos, *gotos)
    ending.sends = (*ending.sends, *sends)


def _mapped(path_map: Mapping[Any, str], label: Any, source: str) -> str:
    try:
        return path_map[label]
    except (KeyError, TypeError):
        raise InvalidTargetError(
            f"{source} returned {label!r}, which its path map does not name; known are {list(path_map)}", target=label
        ) from None


# --- from an error to an ending -----------------------------------------------------------------------------------


def broken(attempt: Attempt, error: BaseException) -> Ending | Again:
    """Return the ending for what a node raised: a question outranks all else (rules 5.3, 5.7, 6.1, 6.10)."""
    try:
        return _judged(attempt, error)
    except BaseException as worse:  # noqa: BLE001 - a question that cannot be stored fails the task
        return Failed(attempt.task, worse)


def _judged(attempt: Attempt, error: BaseException) -> Ending | Again:
    task = attempt.task
    found = find_interrupts(error)
    if attempt.fault is not None:
        return Failed(task, attempt.fault)
    if attempt.asked:
        raised = error.__cause__ if isinstance(error, GraphInterrupt) else None if found else error
        if raised is not None:
            log.warn(log.ERROR_AFTER_QUESTION, task=task.id, namespace=attempt.scope.namespace, error=described(raised))
        asked = set(attempt.asked)
        for item in (item for interrupt in found for item in interrupt.interrupts if item.id not in asked):
            attempt.note(_question(attempt, item))  # raised beside those that were asked
        return _interrupted(attempt, attempt.questions(), error=raised)
    if found:
        try:
            return _asks(attempt, found)
        except NodeError as fault:
            error = fault
    stopped = attempt.scope.signal.stopped
    if stopped:
        return Cancelled(task, error)
    if isinstance(error, Exception) and (again := _retry(attempt, error)) is not None:
        return again
    return Failed(task, error)


def _retry(attempt: Attempt, error: Exception) -> Again | None:
    for policy in attempt.task.node.retry_policy:
        if policy.covers(error):
            if attempt.number >= policy.max_attempts:
                return None
            log.info(log.TASK_RETRIED, task=attempt.task.id, attempt=attempt.number, error=described(error))
            return Again(policy.pause(attempt.number))
    return None


def _asks(attempt: Attempt, raised: tuple[GraphInterrupt, ...]) -> Interrupted:
    """Return the ending for interrupts that were returned or raised; each item is a question (rules 6.1, 6.8)."""
    questions = [_question(attempt, item) for interrupt in raised for item in interrupt.interrupts]
    if not questions:
        raise NodeError(
            f"node {attempt.task.node.name!r} asks with an empty list, which nobody can answer",
            hint="return an update when there is nothing to ask",
            node=attempt.task.node.name,
        )
    if all(map(attempt.is_answered, questions)):
        raise NodeError(
            f"node {attempt.task.node.name!r} asks again what was answered: {[q.id for q in questions]}",
            hint="read runtime.answers, call interrupt(), or give the new question a key",
            node=attempt.task.node.name,
        )
    payload = raised[0].value if len(raised) == 1 else MISSING
    return _interrupted(attempt, tuple(questions), whole=len(raised) == 1 and len(questions) > 1, payload=payload)


def _question(attempt: Attempt, item: Interrupt) -> Interrupt:
    """Return an item that a node returned or raised as a question of its own; its id counts only as a key.

    One that has a node was asked by another run, and its id says nothing here.
    """
    if item.node is None:
        return attempt.question(item.value, item.id, item.schema)
    question = attempt.question(item.value, None, None)
    question.schema = item.schema  # described already
    return question


def _interrupted(
    attempt: Attempt,
    questions: tuple[Interrupt, ...],
    *,
    whole: bool = False,
    payload: Any = MISSING,
    error: BaseException | None = None,
) -> Interrupted:
    ending = Interrupted(attempt.task, questions, whole, payload, error)
    if attempt.scope.saving:
        try:
            stored.record_of(ending, attempt.task.id, "", 0, attempt.scope.graph.serializer)
        except SerializationError as error:
            raise SerializationError(
                f"node {attempt.task.node.name!r} asks with a payload that cannot be stored: {error.args[0]}",
                hint=error.hint,
                path=error.path,
                node=attempt.task.node.name,
            ) from error
    return ending


def with_later_questions(attempt: Attempt, result: Ending | Again) -> Ending | Again:
    """Return a pause with the questions of child calls that were waited for."""
    if not isinstance(result, Interrupted) or len(attempt.asked) <= len(result.interrupts):
        return result
    try:
        return _interrupted(attempt, attempt.questions(), error=result.error)
    except SerializationError as error:
        return Failed(attempt.task, error)
