"""One task, one ending: attempts, time limits, child graphs.

`perform` and `aperform` run what the functions below them prepare and judge; every ending is a value made in here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from concurrent.futures import Future, wait
from copy import deepcopy
from inspect import isawaitable
from typing import Any

from .attempt import Attempt, enter
from .channels import MISSING
from .ending import Again, broken, close, complete, digests, own, route, with_later_questions
from .errors import NodeTimeoutError, WrongLoopError
from .head import Head
from .interrupt import ParentCommand
from .runtime import Runtime
from .scope import Scope
from .task import Cancelled, Done, Ending, Interrupted, NodeTask, Router
from .threads import LOOP, THREADS, StopSignal
from .types import Command


def perform(task: NodeTask, scope: Scope, head: Head) -> Ending:
    """Run a task in this thread, in a copy of the caller's context."""
    attempt = Attempt(task, scope, head)
    while True:
        body = _limited if task.node.timeout is not None else _inside
        result = body(attempt)
        if attempt.calls:
            wait(*_left_running(attempt, result))
            result = with_later_questions(attempt, result)
        attempt.ended = True
        if not isinstance(result, Again):
            return result
        if scope.signal.wait(result.seconds):  # the attempt's own says only that it took too long
            return Cancelled(task)
        attempt = _next(attempt)


async def aperform(task: NodeTask, scope: Scope, head: Head) -> Ending:
    """Run an async task on this event loop; the context is the one that it is awaited in."""
    attempt = Attempt(task, scope, head)
    while True:
        body = _alimited if task.node.timeout is not None else _abody
        result = await body(attempt)
        if attempt.calls:
            calls, patience = _left_running(attempt, result)
            await asyncio.wait([asyncio.wrap_future(call) for call in calls], timeout=patience)
            result = with_later_questions(attempt, result)
        attempt.ended = True
        if not isinstance(result, Again):
            return result
        try:
            await asyncio.sleep(result.seconds)
        except asyncio.CancelledError as error:
            return Cancelled(task, error)
        attempt = _next(attempt)


def _next(attempt: Attempt) -> Attempt:
    following = Attempt(attempt.task, attempt.scope, attempt.head, attempt.number + 1)
    following.memos, following.memory = attempt.memos, attempt.memory
    return following


# --- the body, in the two worlds ----------------------------------------------------------------------------------


def _inside(attempt: Attempt) -> Ending | Again:
    return attempt.scope.context.copy().run(_body, attempt)


def _body(attempt: Attempt) -> Ending | Again:
    enter(attempt)
    node = attempt.task.node
    try:
        if attempt.task.edge:
            ending: Ending = Done(attempt.task, [])
        else:
            view, before = _view(attempt)
            try:
                if node.kind == "graph":
                    result = node.fn.run_child(attempt, view)
                else:
                    result = node.fn(view, **_injected(attempt)) if node.inject else node.fn(view)
            except ParentCommand as handed:
                result = _here_instead(handed)
            ending = close(attempt, result, before)
        if node.routers and type(ending) is Done and not ending.withheld:
            state = _after(attempt, ending)
            for router in node.routers:
                targets = _decide(router, attempt, state)
                route(attempt, ending, router, _waited_for(attempt, targets) if _is_pending(targets) else targets)
        if type(ending) is Done:
            complete(attempt, ending)
        return ending
    except BaseException as error:  # noqa: BLE001 - every ending is a value, whatever the node raised
        return broken(attempt, error)


async def _abody(attempt: Attempt) -> Ending | Again:
    enter(attempt)
    node = attempt.task.node
    try:
        if attempt.task.edge:
            ending: Ending = Done(attempt.task, [])
        else:
            view, before = _view(attempt)
            try:
                if node.kind == "graph":
                    result = await node.fn.arun_child(attempt, view)
                else:
                    result = await (node.fn(view, **_injected(attempt)) if node.inject else node.fn(view))
            except ParentCommand as handed:
                result = _here_instead(handed)
            ending = close(attempt, result, before)
        if node.routers and type(ending) is Done and not ending.withheld:
            state = _after(attempt, ending)
            for router in node.routers:
                targets = _decide(router, attempt, state)
                route(attempt, ending, router, await targets if _is_pending(targets) else targets)
        if type(ending) is Done:
            complete(attempt, ending)
        return ending
    except BaseException as error:  # noqa: BLE001 - every ending is a value, whatever the node raised
        return broken(attempt, error)


def _here_instead(handed: ParentCommand) -> Command:
    """Return what a child's command for its parent says to the graph that called the child (rule 4.2)."""
    return Command(update=handed.command.update, goto=handed.command.goto)


def _is_pending(targets: Any) -> bool:
    return type(targets) is not str and isawaitable(targets)  # the first is cheap, and most often all there is to ask


def _waited_for(attempt: Attempt, targets: Any) -> Any:
    if attempt.scope.blocks_loop:
        targets.close()
        raise WrongLoopError(
            f"an async router of node {attempt.task.node.name!r} runs below invoke() of an async node; "
            "it would wait for that node's event loop",
            hint="await child.ainvoke(...) there",
        )
    return LOOP.run(_awaited(targets))


async def _awaited(targets: Awaitable[Any]) -> Any:
    return await targets


def _limited(attempt: Attempt) -> Ending | Again:
    """Run the body in another thread, and fix the ending when the limit passes (rule 5.8)."""
    attempt.signal = StopSignal(attempt.scope.signal)
    limit = attempt.task.node.timeout
    future = THREADS.submit(lambda: _inside(attempt))
    if wait([future], limit).done:
        return future.result()
    _overdue(attempt)
    wait([future], attempt.scope.root.grace)
    attempt.signal.abandoned = True
    return broken(attempt, _too_long(attempt))


async def _alimited(attempt: Attempt) -> Ending | Again:
    attempt.signal = StopSignal(attempt.scope.signal)
    body = asyncio.ensure_future(_abody(attempt))
    try:
        done, _ = await asyncio.wait([body], timeout=attempt.task.node.timeout)
    except asyncio.CancelledError as error:
        await _stop(body, attempt.scope.root.grace)
        if body.done():
            return body.result()
        attempt.signal.abandoned = True
        return Cancelled(attempt.task, error, abandoned=True)
    if done:
        return body.result()
    _overdue(attempt)
    await _stop(body, attempt.scope.root.grace)
    attempt.signal.abandoned = True
    return broken(attempt, _too_long(attempt))


def _overdue(attempt: Attempt) -> None:
    """Tell a body that its limit has passed; its ending is fixed, so what it asks now comes too late."""
    attempt.ended = True
    attempt.signal.set()


async def _stop(task: asyncio.Future[Any], grace: float) -> None:
    task.cancel()
    await asyncio.wait([task], timeout=grace)


def _too_long(attempt: Attempt) -> NodeTimeoutError:
    node = attempt.task.node
    return NodeTimeoutError(f"node {node.name!r} took longer than {node.timeout} s", node=node.name, limit=node.timeout)


def _left_running(attempt: Attempt, result: Ending | Again) -> tuple[list[Future[None]], float | None]:
    """Return the child calls that the body left running, and how long to wait for them (rule 5.9).

    After a question they are waited for; after a return or an error they are told to stop.
    """
    calls = [] if attempt.signal.abandoned else list(attempt.calls.values())
    if isinstance(result, Interrupted):
        return [ended for ended, _ in calls], None
    for _, stop in calls:
        stop()
    return [ended for ended, _ in calls], attempt.scope.root.grace


# --- what goes into a body ----------------------------------------------------------------------------------------


def _view(attempt: Attempt) -> tuple[Any, Mapping[str, bytes] | None]:
    """Return the node's input, its own down to the first level, and what the check mode compares later (rule 2.4)."""
    task, graph = attempt.task, attempt.scope.graph
    if task.arg is not MISSING:
        view = deepcopy(task.arg) if graph.isolation == "deep" else own(task.arg)
    else:
        view = _state(attempt)
        if task.node.view is not None:
            view = task.node.view(view)
    return view, (digests(attempt) if graph.isolation == "check" else None)


def _state(attempt: Attempt) -> dict[str, Any]:
    state = attempt.head.channels.read()
    reads = attempt.task.node.reads
    if reads is not None:
        state = {name: value for name, value in state.items() if name in reads}
    if attempt.scope.graph.isolation == "deep":
        channels = attempt.head.channels.channels
        return {name: deepcopy(value) if channels[name].stored else value for name, value in state.items()}
    return state


def _injected(attempt: Attempt) -> dict[str, Any]:
    runtime: Runtime[Any] = Runtime(attempt)
    values = {}
    for name in attempt.task.node.inject:
        values[name] = runtime if name == "runtime" else getattr(runtime, name)
    return values


# --- routers ------------------------------------------------------------------------------------------------------


def _after(attempt: Attempt, ending: Done) -> Any:
    """Return the state for routers: the snapshot with this task's own writes (rule 4.1)."""
    state = _state(attempt)
    own_writes: dict[str, list[Any]] = {}
    for name, value, _ in ending.writes:
        own_writes.setdefault(name, []).append(value)
    channels, present = attempt.scope.graph.channels, attempt.head.channels.values
    for name, values in own_writes.items():
        before = state.get(name, present.get(name, MISSING))  # a node may write what it is not shown
        state[name] = channels[name].update(before, [own(value) for value in values])
    view = attempt.task.node.view
    return state if view is None else view(state)


def _decide(router: Router, attempt: Attempt, state: Any) -> Any:
    if not router.inject:
        return router.decide(state)
    runtime: Runtime[Any] = Runtime(attempt)
    return router.decide(state, **{n: runtime if n == "runtime" else getattr(runtime, n) for n in router.inject})
