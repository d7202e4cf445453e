"""What a caller or a node should not have given: refused clearly, and nothing is lost."""

import asyncio
import operator
import threading
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest

from pregel import (
    GraphInterrupt,
    GraphValidationError,
    InMemorySaver,
    InvalidRequestError,
    InvalidUpdateError,
    NodeError,
    RetryPolicy,
    Saver,
    UntrackedValue,
    interrupt,
)
from pregel.checkpoint import Key
from tests.helpers import START, Ran, World, build


class State(TypedDict, total=False):
    x: int
    log: Annotated[list[str], operator.add]


@dataclass(frozen=True)
class FrozenError(Exception):
    code: int = 1


class UnprintableError(Exception):
    def __repr__(self) -> str:
        raise ValueError("no text")

    def add_note(self, note: str, /) -> None:
        raise ValueError("no notes")


@pytest.mark.parametrize("error", [FrozenError(), UnprintableError()])
def test_an_error_that_refuses_notes_is_raised_as_itself_and_siblings_stay(
    world: World, saver: Saver, ran: Ran, error: Exception
) -> None:
    """5.3, 5.5"""
    broken = [True]

    def bad(state: State) -> dict[str, Any]:
        if broken:
            raise error
        return {"log": ["bad"]}

    def sibling(state: State) -> dict[str, Any]:
        ran("sibling")
        return {"log": ["sibling"]}

    # the sibling comes first in task order and is done before the error, so it is kept
    nodes = {"sibling": world.node(sibling), "bad": world.node(bad)}
    graph = build(State, nodes, [(START, "sibling"), ("sibling", "bad")], saver)
    with pytest.raises(type(error)) as caught:
        world.invoke(graph, {}, thread_id="t")
    assert caught.value is error
    assert world.state(graph, thread_id="t").status == "failed"
    broken.clear()
    assert world.invoke(graph, None, thread_id="t")["log"] == ["sibling", "bad"]
    assert ran.take() == ["sibling"]


@pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError, GeneratorExit, GraphInterrupt])
def test_whatever_a_reducer_raises_fails_its_writers_alone(
    world: World, saver: Saver, ran: Ran, kind: type[BaseException]
) -> None:
    """2.7"""
    broken = [True]

    def fold(old: list[str], new: list[str]) -> list[str]:
        if broken and new == ["bad"]:
            raise kind("x")
        return old + new

    class Folded(TypedDict, total=False):
        log: Annotated[list[str], operator.add]
        odd: Annotated[list[str], fold]

    def sibling(state: Folded) -> dict[str, Any]:
        ran("sibling")
        return {"log": ["sibling"]}

    nodes = {"sibling": world.node(sibling), "bad": world.node(lambda s: {"odd": ["bad"]})}
    graph = build(Folded, nodes, [(START, "sibling"), (START, "bad")], saver)
    with pytest.raises(InvalidUpdateError):
        world.invoke(graph, {}, thread_id="t")
    broken.clear()
    assert world.invoke(graph, None, thread_id="t") == {"log": ["sibling"], "odd": ["bad"]}
    assert ran.take() == ["sibling"]


@pytest.mark.parametrize("items", [[], ()])
def test_a_node_that_asks_nothing_fails_instead_of_pausing_for_good(world: World, saver: Saver, items: Any) -> None:
    """6.2, 6.8"""
    graph = build(State, {"a": world.node(lambda s: GraphInterrupt(items))}, [(START, "a")], saver)
    with pytest.raises(NodeError, match="empty list"):
        world.invoke(graph, {}, thread_id="t")


def test_an_untracked_value_is_handed_on_as_it_is_in_deep_isolation(world: World, saver: Saver) -> None:
    """2.1"""

    class Held(TypedDict, total=False):
        lock: Annotated[Any, UntrackedValue]

    lock = threading.Lock()
    seen: list[Any] = []
    nodes = {"a": world.node(lambda s: seen.append(s["lock"]))}
    graph = build(Held, nodes, [(START, "a")], saver, isolation="deep")
    world.invoke(graph, {"lock": lock}, thread_id="t")
    assert seen[0] is lock


@pytest.mark.parametrize(
    "options",
    [
        {"config": "x"},
        {"config": {"configurable": None}},
        {"config": {"configurable": {"thread_id": "other"}}},
        {"step_timeout": float("nan")},
        {"step_timeout": float("inf")},
        {"grace": float("nan")},
        {"recursion_limit": 0},
        {"max_concurrency": True},
        {"tags": "x"},
        {"metadata": 3},
        {"run_id": 3},
        {"key": "k"},
        {"durability": "never"},
        {"interrupt_before": 3},
        {"nonsense": 1},
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_before_anything_is_written(
    world: World, saver: Saver, options: dict[str, Any]
) -> None:
    """11.1"""
    graph = build(State, {"a": world.node(lambda s: None)}, [(START, "a")], saver)
    with pytest.raises(InvalidRequestError):
        world.invoke(graph, {}, **{"thread_id": "t", **options})
    assert list(saver.threads()) == []


def test_a_policy_that_cannot_be_followed_is_refused() -> None:
    """5.7"""
    for wrong in ({"max_attempts": 0}, {"initial_interval": -1}, {"max_interval": float("nan")}, {"retry_on": 3}):
        with pytest.raises(GraphValidationError):
            RetryPolicy(**wrong)


def test_a_key_that_is_no_text_is_refused(world: World) -> None:
    """6.8: 3 and "3" would be one question."""
    graph = build(State, {"a": world.node(lambda s: interrupt("?", key=3))}, [(START, "a")], InMemorySaver())  # type: ignore[call-overload]
    with pytest.raises(InvalidRequestError, match="a key is text"):
        world.invoke(graph, {}, thread_id="t")


def test_a_read_of_a_stream_that_is_cancelled_cancels_the_node() -> None:
    """5.1, 5.6: also when each read is a task of its own."""

    async def slow(state: State) -> None:
        await asyncio.Event().wait()

    graph = build(State, {"a": slow}, [(START, "a")], InMemorySaver())

    async def main() -> None:
        events = graph.astream({}, thread_id="t")
        await events.__anext__()
        with pytest.raises((TimeoutError, asyncio.CancelledError)):
            await asyncio.wait_for(events.__anext__(), 0.02)

    asyncio.run(main())
    assert [task.status for task in graph.get_state(thread_id="t").tasks] == ["cancelled"]


def test_the_child_run_of_a_thread_that_was_left_behind_writes_nothing_more(saver: Saver) -> None:
    """5.3: what is stored when the call has returned stays as it is."""
    started, failed, go, ended = (threading.Event() for _ in range(4))

    def stuck(state: State) -> dict[str, Any]:
        started.set()
        assert go.wait(10)
        return {"log": ["late"]}

    child = build(State, {"stuck": stuck}, [(START, "stuck")])

    def caller(state: State) -> None:
        try:
            child.invoke({"x": 1})
        finally:
            ended.set()

    def bad(state: State) -> None:
        assert started.wait(10)
        failed.set()
        raise ValueError("bad")

    graph = build(State, {"caller": caller, "bad": bad}, [(START, "caller"), (START, "bad")], saver)
    with pytest.raises(ValueError, match="bad") as caught:
        graph.invoke({}, thread_id="t", grace=0.01)
    assert any("left behind" in note for note in caught.value.__notes__)
    before = [saver.get(Key("t", namespace)) for namespace in saver.namespaces("t")]
    go.set()
    assert ended.wait(10)
    assert [saver.get(Key("t", namespace)) for namespace in saver.namespaces("t")] == before
