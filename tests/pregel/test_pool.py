"""TaskExecutorPool as its users know it: submit, wait_all, cancel_all, and what it tells of each task."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pregel import GraphInterrupt, Interrupt, NodeTask, PregelNode, TaskExecutorPool
from tests.helpers import Ran

WAIT = 5.0
Body = Callable[[Any], Any]


@pytest.fixture(params=["sync", "async"])
def task(request: pytest.FixtureRequest) -> Callable[..., NodeTask]:
    """Make a task of a sync or of an async node from a plain function; async bodies block on a thread of their own."""

    def make(name: str, body: Body, index: int = -1) -> NodeTask:
        if request.param == "sync":
            return NodeTask(PregelNode(name, body), arg={}, activation=1, index=index)

        async def abody(arg: Any) -> Any:
            return await asyncio.to_thread(body, arg)

        return NodeTask(PregelNode(name, abody), arg={}, activation=1, index=index)

    return make


Make = Callable[..., NodeTask]


def submit(pool: TaskExecutorPool, *tasks: NodeTask) -> None:
    for task in tasks:
        pool.submit(task)


def after(event: threading.Event, result: Any = None) -> Body:
    """A body that waits for an event, then returns or raises."""

    def body(arg: Any) -> Any:
        assert event.wait(WAIT)
        if isinstance(result, BaseException):
            raise result
        return result

    return body


def raising(error: BaseException) -> Body:
    def body(arg: Any) -> Any:
        raise error

    return body


def test_wait_all_returns_what_every_task_wrote(task: Make) -> None:
    """5.1: messages by the task's name, once all have ended."""
    pool = TaskExecutorPool()
    submit(pool, task("a", lambda arg: {"x": 1}), task("b", lambda arg: {"y": 2}), task("c", lambda arg: None))
    messages = pool.wait_all()
    assert {name: [(w[0], w[1]) for w in writes] for name, writes in messages.items()} == {
        "a": [("x", 1)],
        "b": [("y", 2)],
        "c": [],
    }
    assert messages == pool.succeed_messages
    assert pool.failed == {}


def test_packets_go_by_node_and_index(task: Make) -> None:
    """5.1: `failed` and `succeed_messages` go by NodeTask.name."""
    pool = TaskExecutorPool()
    submit(pool, task("n", lambda arg: {"x": 1}, 0), task("n", raising(GraphInterrupt("?")), 1))
    with pytest.raises(GraphInterrupt):
        pool.wait_all()
    assert list(pool.succeed_messages) == ["n.0"]
    assert list(pool.failed) == ["n.1"]


def test_an_interrupt_cancels_nobody(task: Make) -> None:
    """5.2: B interrupts first; A and C complete, only B is in `failed`."""
    pool = TaskExecutorPool()
    asked = threading.Event()

    def ask(arg: Any) -> Any:
        asked.set()
        raise GraphInterrupt("why?")

    submit(pool, task("a", after(asked, {"x": 1})), task("b", ask), task("c", after(asked, {"y": 2})))
    with pytest.raises(GraphInterrupt) as caught:
        pool.wait_all()
    assert caught.value.value == "why?"
    assert sorted(pool.succeed_messages) == ["a", "c"]
    assert {name: ending.status for name, ending in pool.failed.items()} == {"b": "__interrupt__"}


def test_a_returned_interrupt_is_a_raised_one(task: Make) -> None:
    """6.1: returning a GraphInterrupt asks too."""
    pool = TaskExecutorPool()
    submit(pool, task("a", lambda arg: GraphInterrupt({"ask": 1})))
    with pytest.raises(GraphInterrupt) as caught:
        pool.wait_all()
    assert caught.value.value == {"ask": 1}
    assert pool.failed["a"].status == "__interrupt__"


@pytest.mark.parametrize("payload", ["text", 7, None, {"k": 1}, ["x", "y"], ("x",)], ids=repr)
def test_one_interrupted_task_gives_its_payload_as_it_was(task: Make, payload: Any) -> None:
    """6.4: from one task, the payload as given."""
    pool = TaskExecutorPool()
    submit(pool, task("a", raising(GraphInterrupt(payload))), task("b", lambda arg: None))
    with pytest.raises(GraphInterrupt) as caught:
        pool.wait_all()
    assert caught.value.value == payload
    assert type(caught.value.value) is type(payload)


def test_several_interrupted_tasks_give_one_flat_list_in_task_order(task: Make) -> None:
    """6.4: lists are spliced in; the order is that of submission, not of arrival."""
    pool = TaskExecutorPool()
    late = threading.Event()

    def last(arg: Any) -> Any:
        late.set()
        raise GraphInterrupt(Interrupt("z"))

    submit(
        pool,
        task("a", after(late, GraphInterrupt("x"))),
        task("b", after(late, GraphInterrupt(["y1", "y2"]))),
        task("c", last),
    )
    with pytest.raises(GraphInterrupt) as caught:
        pool.wait_all()
    assert caught.value.value == ["x", "y1", "y2", Interrupt("z")]
    assert [interrupt.value for interrupt in caught.value.interrupts] == ["x", "y1", "y2", "z"]


def test_empty_lists_beside_one_question_leave_that_question(task: Make) -> None:
    """6.4: a list of exactly one item that is no Interrupt is that item."""
    pool = TaskExecutorPool()
    submit(pool, task("a", raising(GraphInterrupt([]))), task("b", raising(GraphInterrupt("only"))))
    with pytest.raises(GraphInterrupt) as caught:
        pool.wait_all()
    assert caught.value.value == "only"


def test_an_error_is_raised_as_itself_and_finished_siblings_stay(task: Make) -> None:
    """5.1, 5.3: the error itself, not a wrapper; what has finished is kept."""
    pool = TaskExecutorPool()
    done = threading.Event()
    error = ValueError("boom")

    def first(arg: Any) -> Any:
        done.set()
        return {"x": 1}

    submit(pool, task("a", first), task("b", after(done, error)))
    with pytest.raises(ValueError) as caught:
        pool.wait_all()
    assert caught.value is error
    assert pool.failed["b"].status == "__error__"


def test_an_error_keeps_queued_tasks_from_starting(task: Make, ran: Ran) -> None:
    """5.3: with room for one task, those behind the failing one never start and are cancelled."""
    pool = TaskExecutorPool(max_concurrency=1)

    def other(arg: Any) -> Any:
        ran("other")

    submit(pool, task("a", raising(ValueError("boom"))), *[task("b", other, index) for index in range(20)])
    with pytest.raises(ValueError, match="boom"):
        pool.wait_all()
    # submitted one by one, some may have run before the failing task was taken; none after it
    cancelled = {name for name, ending in pool.failed.items() if ending.status == "__cancelled__"}
    assert ran.counts["other"] == 0
    assert cancelled == {f"b.{index}" for index in range(20)}


def test_a_task_that_raises_after_it_was_told_to_stop_is_cancelled(ran: Ran) -> None:
    """5.3: the first error in task order among those not caused by the cancelling."""
    pool = TaskExecutorPool()
    waiting = threading.Event()
    stop = threading.Event()
    pool.signal.watch(stop.set)

    def first(arg: Any) -> Any:
        waiting.set()
        assert stop.wait(WAIT)
        raise RuntimeError("because of the other")

    submit(pool, NodeTask(PregelNode("a", first)), NodeTask(PregelNode("b", after(waiting, ValueError("cause")))))
    with pytest.raises(ValueError, match="cause"):
        pool.wait_all()
    assert pool.failed["a"].status == "__cancelled__"
    assert pool.failed["b"].status == "__error__"


def test_a_task_that_returns_in_spite_of_a_cancel_is_done() -> None:
    """5.3: its messages are kept."""
    pool = TaskExecutorPool()
    waiting = threading.Event()
    stop = threading.Event()
    pool.signal.watch(stop.set)

    def stubborn(arg: Any) -> Any:
        waiting.set()
        assert stop.wait(WAIT)
        return {"x": 1}

    submit(pool, NodeTask(PregelNode("a", stubborn)), NodeTask(PregelNode("b", after(waiting, ValueError("cause")))))
    with pytest.raises(ValueError, match="cause"):
        pool.wait_all()
    assert [w[:2] for w in pool.succeed_messages["a"]] == [("x", 1)]


def test_an_async_task_is_cancelled_and_awaited(ran: Ran) -> None:
    """5.3: its cleanup has run when wait_all raises."""
    pool = TaskExecutorPool()
    waiting = threading.Event()

    async def sleeper(arg: Any) -> Any:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            ran("cleanup")

    submit(pool, NodeTask(PregelNode("a", sleeper)), NodeTask(PregelNode("b", after(waiting, ValueError("boom")))))
    with pytest.raises(ValueError, match="boom"):
        pool.wait_all()
    assert ran.counts["cleanup"] == 1
    assert pool.failed["a"].status == "__cancelled__"


def test_a_cancelled_error_of_the_tasks_own_is_its_failure() -> None:
    """5.6: a CancelledError that a node raises by itself."""
    pool = TaskExecutorPool()

    async def own(arg: Any) -> Any:
        raise asyncio.CancelledError("mine")

    submit(pool, NodeTask(PregelNode("a", own)))
    with pytest.raises(asyncio.CancelledError, match="mine"):
        pool.wait_all()
    assert pool.failed["a"].status == "__error__"


def test_a_thread_that_does_not_stop_is_left_behind_after_the_grace_time() -> None:
    """5.3: wait_all does not wait for ever."""
    pool = TaskExecutorPool(grace=0.05)
    started, release = threading.Event(), threading.Event()

    def deaf(arg: Any) -> Any:
        started.set()
        release.wait(WAIT)
        return {"x": 1}

    submit(pool, NodeTask(PregelNode("a", deaf)), NodeTask(PregelNode("b", after(started, ValueError("boom")))))
    with pytest.raises(ValueError, match="boom"):
        pool.wait_all()
    release.set()
    left = pool.failed["a"]
    assert left.status == "__cancelled__"
    assert getattr(left, "abandoned", False)
    assert "a" not in pool.succeed_messages


def test_cancel_all_ends_everything_and_raises_nothing(task: Make, ran: Ran) -> None:
    """5.1: after cancel_all every task has ended; what was queued is cancelled."""
    pool = TaskExecutorPool(max_concurrency=1)
    started, stop = threading.Event(), threading.Event()
    pool.signal.watch(stop.set)

    def running(arg: Any) -> Any:
        started.set()
        assert stop.wait(WAIT)
        return {"x": 1}

    submit(pool, task("a", running), task("b", lambda arg: ran("b")))
    assert started.wait(WAIT)
    pool.cancel_all()
    assert not pool.outstanding
    assert pool.failed["b"].status == "__cancelled__"
    assert ran.counts["b"] == 0


def test_cancel_all_waits_no_longer_than_the_grace_time() -> None:
    """5.3: a thread that does not stop is left behind."""
    pool = TaskExecutorPool(grace=0.05)
    started, release = threading.Event(), threading.Event()

    def deaf(arg: Any) -> Any:
        started.set()
        release.wait(WAIT)

    pool.submit(NodeTask(PregelNode("a", deaf)))
    assert started.wait(WAIT)
    pool.cancel_all()
    assert not release.is_set()
    release.set()
    assert pool.failed["a"].status == "__cancelled__"


def test_max_concurrency_bounds_sync_and_async_tasks_together() -> None:
    """11.2: never more bodies at once than allowed."""
    pool = TaskExecutorPool(max_concurrency=2)
    lock = threading.Lock()
    now = most = 0

    def body(arg: Any) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.002)
        with lock:
            now -= 1

    async def abody(arg: Any) -> None:
        await asyncio.to_thread(body, arg)

    for index in range(12):
        pool.submit(NodeTask(PregelNode("n", abody if index % 2 else body), {}, 1, index))
    pool.wait_all()
    assert most <= 2
    assert len(pool.succeed_messages) == 12


def test_a_pool_takes_a_second_step() -> None:
    """5.1: after wait_all more tasks may be submitted."""
    pool = TaskExecutorPool()
    pool.submit(NodeTask(PregelNode("a", lambda arg: {"x": 1})))
    pool.wait_all()
    pool.submit(NodeTask(PregelNode("b", lambda arg: {"y": arg["n"]}), {"n": 5}))
    assert [w[:2] for w in pool.wait_all()["b"]] == [("y", 5)]
