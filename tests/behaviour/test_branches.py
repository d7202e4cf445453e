"""Questions from several branches of one node, threads or asyncio tasks (6.9)."""

import asyncio
import contextvars
import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest

from pregel import BranchError, GraphInterrupt, Interrupt, Runtime, Saver, get_runtime, interrupt
from tests.helpers import START, World, build, ids

WAIT = 10


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


def test_a_second_thread_without_a_key_fails_the_task(world: World, saver: Saver) -> None:
    """6.9: which thread asks first is chance, so nothing is asked, even if the node swallows the refusal."""

    def node(state: State) -> dict[str, Any]:
        def ask(value: str) -> None:
            try:
                interrupt(value)
            except BaseException:
                return

        ask("mine")
        thread = threading.Thread(target=get_runtime().bind(ask), args=("second",))
        thread.start()
        thread.join(WAIT)
        return {"log": ["swallowed"]}

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    with pytest.raises(BranchError, match=r"'a' asks for a question from a second branch.*give each of them a key"):
        world.invoke(graph, {}, thread_id="t")
    assert world.state(graph, thread_id="t").interrupts == ()


def test_a_second_asyncio_task_without_a_key_fails_the_task(world: World, saver: Saver) -> None:
    """6.9: the refusal outranks the question of the first branch, for the answer might reach the wrong one."""

    async def asks(value: str) -> Any:
        return interrupt(value)

    async def node(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        return {"log": await runtime.gather(asks("x"), asks("y"))}

    graph = build(State, {"a": node}, [(START, "a")], saver)
    with pytest.raises(BranchError, match="key"):
        world.invoke(graph, {}, thread_id="t")
    assert world.state(graph, thread_id="t").interrupts == ()


def test_gather_reports_all_questions_and_takes_any_subset_of_answers(world: World, saver: Saver) -> None:
    """6.7, 6.9: three calls in one node ask at once; each has its id and gets its answer, in whatever order."""

    async def asks(key: str) -> Any:
        return interrupt(f"{key}?", key=key)

    async def node(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        return {"log": await runtime.gather(*(asks(key) for key in "xyz"))}

    graph = build(State, {"a": node}, [(START, "a")], saver)
    paused = world.invoke(graph, {}, thread_id="t")
    assert [(i.id, i.value) for i in paused["__interrupt__"]] == [(f"a@1#={k}", f"{k}?") for k in "xyz"]
    assert ids(world.resume(graph, answers={"a@1#=y": "Y"}, thread_id="t")) == ["a@1#=x", "a@1#=z"]
    assert ids(world.resume(graph, answers={"a@1#=z": "Z"}, thread_id="t")) == ["a@1#=x"]
    assert world.resume(graph, "X", thread_id="t") == {"log": ["X", "Y", "Z"]}


def test_gather_reports_questions_beside_an_error(world: World, saver: Saver) -> None:
    """6.1, 6.9: a branch that fails first does not take the question of a slower one."""

    async def node(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        failed = asyncio.Event()

        async def fails() -> None:
            failed.set()
            raise LookupError("no record")

        async def asks() -> Any:
            await failed.wait()
            return interrupt("slower", key="slow")

        return {"log": await runtime.gather(fails(), asks())}

    graph = build(State, {"a": node}, [(START, "a")], saver)
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["a@1#=slow"]
    with pytest.raises(LookupError, match="no record"):
        world.resume(graph, 1, thread_id="t")


def test_gather_reports_children_that_ask_side_by_side(world: World, saver: Saver) -> None:
    """6.9, 8.4: child graphs called by key in several branches each pause in their own namespace."""
    child = build(State, {"ask": lambda state: {"log": [interrupt("?")]}}, [(START, "ask")], name="child")

    async def node(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        found = await runtime.gather(*(child.ainvoke({}, key=key) for key in "xy"))
        return {"log": [one["log"] for one in found]}

    graph = build(State, {"a": node}, [(START, "a")], saver)
    asked = ids(world.invoke(graph, {}, thread_id="t"))
    assert asked == ["a@1#=x|ask@1#0", "a@1#=y|ask@1#0"]
    assert ids(world.resume(graph, answers={asked[1]: "Y"}, thread_id="t")) == asked[:1]
    assert world.resume(graph, "X", thread_id="t") == {"log": [["X"], ["Y"]]}


def test_gather_merges_what_branches_raise_themselves(world: World, saver: Saver) -> None:
    """6.2, 6.10: interrupts that branches raise by hand are questions as well, in the order of the branches."""

    async def raises(key: str) -> Any:
        answers = get_runtime().answers
        if key in answers:
            return answers[key]
        raise GraphInterrupt(Interrupt(key, id=key))

    async def node(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        return {"log": await runtime.gather(raises("x"), raises("y"))}

    graph = build(State, {"a": node}, [(START, "a")], saver)
    asked = ids(world.invoke(graph, {}, thread_id="t"))
    assert asked == ["a@1#=x", "a@1#=y"]
    assert world.resume(graph, answers=dict(zip(asked, "XY", strict=True)), thread_id="t") == {"log": ["X", "Y"]}


def test_a_cancelled_gather_takes_its_branches_along() -> None:
    """5.6, 5.9: no branch outlives the node."""
    ended: list[str] = []

    async def waits(started: asyncio.Event) -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async def main() -> None:
        started = asyncio.Event()

        async def node(state: State, runtime: Runtime[Any]) -> None:
            await runtime.gather(waits(started), waits(started))

        run = asyncio.ensure_future(build(State, {"a": node}, [(START, "a")]).ainvoke({}))
        await started.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(main())
    assert ended == ["ended", "ended"]


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
