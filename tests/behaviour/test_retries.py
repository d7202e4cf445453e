"""Attempts and time limits (rules 5.7, 5.8)."""

import asyncio
import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest

from pregel import NodeTimeoutError, RetryPolicy, Runtime, Saver, interrupt
from tests.helpers import START, Ran, World, build

WAIT = 5.0


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


def policy(attempts: int = 3, **options: Any) -> RetryPolicy:
    return RetryPolicy(attempts, initial_interval=0.001, jitter=False, **options)


@pytest.mark.parametrize(
    "retry_on",
    [KeyError, [ValueError, KeyError], (KeyError,), lambda error: isinstance(error, KeyError)],
    ids=["type", "list", "tuple", "predicate"],
)
def test_what_a_policy_covers_is_tried_again_with_a_higher_number(world: World, ran: Ran, retry_on: Any) -> None:
    """5.7: attempts count from 1, and a failed one loses its writes."""
    numbers: list[int] = []

    def node(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        numbers.append(runtime.attempt)
        if runtime.attempt < 3:
            raise KeyError("flaky")
        return {"log": ["ok"]}

    async def anode(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        return node(state, runtime)

    body = anode if world.is_async else node
    graph = build(State, {"a": (body, {"retry_policy": policy(retry_on=retry_on)})}, [(START, "a")])
    assert world.invoke(graph, {}) == {"log": ["ok"]}
    assert numbers == [1, 2, 3]


@pytest.mark.parametrize("error", [ValueError("mistake"), KeyError("k")])
def test_what_no_policy_covers_is_raised_at_once(world: World, ran: Ran, error: Exception) -> None:
    """5.7: by default mistakes of the program are not tried again."""

    def node(state: State) -> None:
        ran("a")
        raise error

    graph = build(State, {"a": (world.node(node), {"retry_policy": policy()})}, [(START, "a")])
    with pytest.raises(type(error)):
        world.invoke(graph, {})
    assert ran.counts == {"a": 1}


def test_the_last_attempts_error_is_raised(world: World, ran: Ran) -> None:
    """5.7: max_attempts counts the first one."""

    def node(state: State) -> None:
        ran("a")
        raise ConnectionError(str(ran.counts["a"]))

    graph = build(State, {"a": (world.node(node), {"retry_policy": policy(2)})}, [(START, "a")])
    with pytest.raises(ConnectionError, match="2"):
        world.invoke(graph, {})
    assert ran.counts == {"a": 2}


def test_an_interrupt_is_no_failure(world: World, saver: Saver, ran: Ran) -> None:
    """5.7: never tried again, also under a policy that covers everything."""

    def node(state: State) -> dict[str, Any]:
        ran("a")
        return {"log": [interrupt("?")]}

    body = (world.node(node), {"retry_policy": policy(5, retry_on=Exception)})
    graph = build(State, {"a": body}, [(START, "a")], saver)
    assert world.invoke(graph, {}, thread_id="t")["__interrupt__"]
    assert ran.counts == {"a": 1}
    assert world.resume(graph, "!", thread_id="t") == {"log": ["!"]}


@pytest.mark.parametrize("kept", [True, False], ids=["saver", "no saver"])
def test_a_finished_child_call_is_not_made_again(world: World, saver: Saver, ran: Ran, kept: bool) -> None:
    """5.7: the second attempt has the child's result of the first, with a saver and without."""

    def inner(state: State) -> dict[str, Any]:
        ran("inner")
        return {"log": ["inner"]}

    child = build(State, {"inner": world.node(inner)}, [(START, "inner")])

    def node(state: State) -> dict[str, Any]:
        found = child.invoke({})
        ran("outer")
        if ran.counts["outer"] == 1:
            raise ConnectionError
        return {"log": found["log"]}

    async def anode(state: State) -> dict[str, Any]:
        found = await child.ainvoke({})
        ran("outer")
        if ran.counts["outer"] == 1:
            raise ConnectionError
        return {"log": found["log"]}

    body = (anode if world.is_async else node, {"retry_policy": policy()})
    graph = build(State, {"a": body}, [(START, "a")], saver if kept else None)
    assert world.invoke(graph, {}, thread_id="t") == {"log": ["inner"]}
    assert ran.counts == {"inner": 1, "outer": 2}


def hanging(world: World, ran: Ran, attempts_that_hang: int = 99) -> Any:
    """A node that waits until it is stopped."""

    def node(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        ran("a")
        pause = threading.Event()
        while runtime.attempt <= attempts_that_hang and not runtime.cancelled:
            pause.wait(0.002)
        return {"log": [str(runtime.attempt)]}

    async def anode(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        ran("a")
        if runtime.attempt <= attempts_that_hang:
            await asyncio.Event().wait()
        return {"log": [str(runtime.attempt)]}

    return anode if world.is_async else node


@pytest.mark.parametrize("beside", [False, True], ids=["lone", "beside another"])
def test_a_node_that_takes_too_long_fails_with_its_name_and_limit(
    world: World, saver: Saver, ran: Ran, beside: bool
) -> None:
    """5.8: the ending is fixed at the limit, whatever the node returns afterwards."""
    nodes: dict[str, Any] = {"a": (hanging(world, ran), {"timeout": 0.02})}
    if beside:
        nodes["b"] = world.node(lambda s: None)
    graph = build(State, nodes, [(START, name) for name in nodes], saver)
    with pytest.raises(NodeTimeoutError, match=r"'a'.*0\.02") as caught:
        world.invoke(graph, {}, thread_id="t")
    assert caught.value.limit == 0.02
    assert isinstance(caught.value, TimeoutError)
    assert world.state(graph, thread_id="t").values.get("log", []) == []


def test_an_attempt_that_takes_too_long_is_tried_again(world: World, ran: Ran) -> None:
    """5.7, 5.8: a time-out is retried, and the limit holds for each attempt."""
    body = (hanging(world, ran, 1), {"timeout": 0.05, "retry_policy": policy()})
    graph = build(State, {"a": body}, [(START, "a")])
    assert world.invoke(graph, {}) == {"log": ["2"]}
    assert ran.counts == {"a": 2}


def test_a_step_that_takes_too_long_fails(world: World, saver: Saver, ran: Ran) -> None:
    """5.8: step_timeout; what had finished stays."""
    nodes = {"a": hanging(world, ran), "b": world.node(lambda s: {"log": ["b"]})}
    graph = build(State, nodes, [(START, "a"), (START, "b")], saver)
    with pytest.raises(NodeTimeoutError, match=r"0\.1") as caught:
        world.invoke(graph, {}, thread_id="t", step_timeout=0.1)
    assert any("'a'" in note for note in caught.value.__notes__)
    assert {t.name: t.status for t in world.state(graph, thread_id="t").tasks} == {"a": "failed", "b": "done"}


def test_a_sibling_with_a_time_limit_is_cancelled_at_once(world: World, ran: Ran) -> None:
    """5.3, 5.8: an error stops a node with a limit as any other, long before the grace time."""

    def bad(state: State) -> None:
        pause = threading.Event()
        while not ran.counts["a"]:
            pause.wait(0.002)
        raise ValueError("boom")

    nodes = {"a": (hanging(world, ran), {"timeout": 60.0}), "bad": bad}
    graph = build(State, nodes, [(START, "a"), (START, "bad")])
    with pytest.raises(ValueError, match="boom") as caught:
        world.invoke(graph, {}, grace=60.0)
    assert not any("left behind" in note for note in caught.value.__notes__)


def test_a_thread_that_a_step_leaves_behind_is_named(world: World) -> None:
    """5.3, 5.8: at the limit of a step as after an error."""
    release = threading.Event()

    def deaf(state: State) -> None:
        release.wait(WAIT)

    graph = build(State, {"deaf": deaf, "b": lambda s: None}, [(START, "deaf"), (START, "b")])
    with pytest.raises(NodeTimeoutError) as caught:
        world.invoke(graph, {}, step_timeout=0.05, grace=0.02)
    release.set()
    assert any("'deaf@1'" in note and "left behind" in note for note in caught.value.__notes__)
