"""Questions from several branches of one node, threads or asyncio tasks (6.9)."""

import asyncio
import contextvars
import operator
import threading
from typing import Annotated, Any, TypedDict

from pregel import BranchError, GraphInterrupt, Saver, get_runtime, interrupt
from tests.helpers import START, World, build, ids

WAIT = 10


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


def test_a_second_thread_without_a_key_is_refused(world: World, saver: Saver) -> None:
    """6.9: unkeyed questions come from one branch; the second is told to give a key."""

    def node(state: State) -> dict[str, Any]:
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                interrupt("second")
            except BaseException as error:
                errors.append(error)

        first = interrupt("first", key="only so that it is answered first")
        interrupt_here = get_runtime().bind(ask)
        try:
            interrupt("mine")
        except GraphInterrupt:
            pass
        thread = threading.Thread(target=interrupt_here)
        thread.start()
        thread.join(WAIT)
        return {"log": [first, type(errors[0]).__name__]}

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    world.invoke(graph, {}, thread_id="t")
    paused = world.resume(graph, "f", thread_id="t")
    assert [i.value for i in paused["__interrupt__"]] == ["mine"]


def test_a_second_asyncio_task_without_a_key_is_refused(world: World, saver: Saver) -> None:
    """6.9: an error that nobody asked for before fails the task with the advice."""

    async def asks(value: str) -> Any:
        return get_runtime().answers if value == "none" else interrupt(value)

    async def node(state: State) -> dict[str, Any]:
        first = asyncio.ensure_future(asks("x"))
        second = asyncio.ensure_future(asks("y"))
        done = await asyncio.gather(first, second, return_exceptions=True)
        assert type(done[0]) is GraphInterrupt
        assert type(done[1]) is BranchError
        assert "key" in str(done[1])
        raise done[1]

    graph = build(State, {"a": node}, [(START, "a")], saver)
    assert [i.value for i in world.invoke(graph, {}, thread_id="t")["__interrupt__"]] == ["x"]


def test_branches_with_keys_ask_side_by_side(world: World, saver: Saver) -> None:
    """6.9: with keys several branches ask; what was asked before the body ended is reported, each gets its answer."""

    async def asks(key: str) -> Any:
        return interrupt(f"{key}?", key=key)

    async def node(state: State) -> dict[str, Any]:
        found = await asyncio.gather(*(asks(k) for k in "xyz"), return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return {"log": list(found)}

    graph = build(State, {"a": node}, [(START, "a")], saver)
    paused = world.invoke(graph, {}, thread_id="t")
    assert ids(paused) == ["a@1#=x", "a@1#=y", "a@1#=z"]
    answers = {id_: id_[-1].upper() for id_ in ids(paused)}
    assert world.resume(graph, answers=answers, thread_id="t") == {"log": ["X", "Y", "Z"]}


def test_keyed_questions_of_a_task_group_arrive_together(world: World, saver: Saver) -> None:
    """6.9, 6.10: a TaskGroup raises its questions in a group; all of those asked are reported."""

    async def asks(key: str) -> Any:
        return interrupt(key, key=key)

    async def node(state: State) -> dict[str, Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asks(key)) for key in "xy"]
        return {"log": [task.result() for task in tasks]}

    graph = build(State, {"a": node}, [(START, "a")], saver)
    paused = world.invoke(graph, {}, thread_id="t")
    assert ids(paused) == ["a@1#=x", "a@1#=y"]
    assert world.resume(graph, answers=dict(zip(ids(paused), "12", strict=True)), thread_id="t") == {"log": ["1", "2"]}


def test_threads_with_keys_ask_side_by_side(world: World, saver: Saver) -> None:
    """6.9: threads of a node are branches as well, bound to it by `runtime.bind` or a copied context."""

    def node(state: State) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def ask(key: str) -> None:
            try:
                found[key] = interrupt(key, key=key)
            except GraphInterrupt:
                pass

        bound = get_runtime().bind(ask)
        copied = contextvars.copy_context()
        threads = [threading.Thread(target=bound, args=("x",)), threading.Thread(target=copied.run, args=(ask, "y"))]
        for thread in threads:
            thread.start()
            thread.join(WAIT)
        return {"log": [found]}

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    paused = world.invoke(graph, {}, thread_id="t")
    assert sorted(ids(paused)) == ["a@1#=x", "a@1#=y"]
    answers = {"a@1#=x": 1, "a@1#=y": 2}
    assert world.resume(graph, answers=answers, thread_id="t") == {"log": [{"x": 1, "y": 2}]}
