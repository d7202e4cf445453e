"""How a node asks (6.1, 6.4, 6.5, 6.10, 6.11): every way a question can arrive is the same pause."""

import asyncio
import logging
import operator
import threading
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

from pregel import (
    Command,
    GraphInterrupt,
    InMemorySaver,
    Interrupt,
    InvalidRequestError,
    NoCheckpointerError,
    NoCheckpointError,
    NodeError,
    RetryPolicy,
    Saver,
    get_runtime,
    interrupt,
)
from tests.helpers import START, Ran, World, build, ids

WAIT = 10


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    other: Any


def answered() -> Any:
    """Return the first answer, or None: what a node reads that returns or raises its question."""
    return get_runtime().answers.get(0)


# Each of these asks "?" once in its own way, and returns the answer.


def calls() -> Any:
    return interrupt("?")


def raises() -> Any:
    if 0 in get_runtime().answers:
        return answered()
    raise GraphInterrupt("?")


def raises_from_cause() -> Any:
    try:
        return interrupt("?")
    except GraphInterrupt as pause:
        raise ValueError("wrapped") from pause


def raises_in_context() -> Any:
    try:
        return raises()
    except GraphInterrupt:
        raise ValueError("while handling")  # noqa: B904 - the context is what is tested


def raises_deep() -> Any:
    try:
        return raises_in_context()
    except ValueError as error:
        raise RuntimeError("outer") from error


def raises_in_group() -> Any:
    try:
        return raises()
    except GraphInterrupt as pause:
        raise BaseExceptionGroup("several", [ValueError("a sibling"), BaseExceptionGroup("", [pause])])  # noqa: B904


def raises_in_circle() -> Any:
    try:
        return raises()
    except GraphInterrupt as pause:
        first, second = ValueError(1), ValueError(2)
        first.__cause__, second.__cause__ = second, first
        group = BaseExceptionGroup("", [first, pause])
        second.__context__ = group
        raise group  # noqa: B904 - it leads back to itself


def swallows() -> Any:
    try:
        return interrupt("?")
    except BaseException:
        return "swallowed"


def swallows_then_fails() -> Any:
    try:
        return interrupt("?")
    except BaseException:
        raise KeyError("an error after the question") from None


WAYS = [
    calls,
    raises,
    raises_from_cause,
    raises_in_context,
    raises_deep,
    raises_in_group,
    raises_in_circle,
    swallows,
    swallows_then_fails,
]


def one_node(world: World, saver: Saver | None, fn: Callable[[State], Any], **options: Any) -> Any:
    return build(State, {"a": (world.node(fn), options)}, [(START, "a")], saver)


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
def test_every_way_to_ask_is_the_same_pause(world: World, saver: Saver, way: Callable[[], Any], ran: Ran) -> None:
    """6.1, 6.10: called, raised, wrapped at any depth, grouped, in a circle, swallowed: the task asks once."""

    def node(state: State) -> dict[str, Any]:
        ran("a")
        return {"log": [way()]}

    graph = one_node(world, saver, node)
    paused = world.invoke(graph, {}, thread_id="t")
    assert paused == {"log": [], "__interrupt__": [Interrupt("?", id="a@1#0")]}
    assert world.state(graph, thread_id="t").status == "paused"
    assert world.resume(graph, "yes", thread_id="t") == {"log": ["yes"]}
    assert ran.take() == ["a", "a"]


RETURNED: list[Any] = [GraphInterrupt("?"), GraphInterrupt(Interrupt("?")), GraphInterrupt([Interrupt("?")])]


@pytest.mark.parametrize("pause", RETURNED, ids=repr)
def test_a_returned_interrupt_asks(world: World, saver: Saver, pause: GraphInterrupt) -> None:
    """6.1: `return GraphInterrupt(Interrupt(v))` asks, and the node then reads `runtime.answers`."""
    graph = one_node(world, saver, lambda s: pause if answered() is None else {"log": [answered()]})
    paused = world.invoke(graph, {}, thread_id="t")
    assert paused["__interrupt__"] == [Interrupt("?", id="a@1#0")]
    assert world.resume(graph, "yes", thread_id="t") == {"log": ["yes"]}


def test_answers_are_read_by_index_or_key(world: World, saver: Saver) -> None:
    """6.1, 6.8: returned items are questions 0, 1, ...; an item with an id of its own is a keyed one."""

    def node(state: State) -> Any:
        answers = get_runtime().answers
        if len(answers) < 3:
            return GraphInterrupt(["x", "y", Interrupt("z", id="k")])
        return {"log": [answers[0], answers[1], answers["k"]]}

    graph = one_node(world, saver, node)
    paused = world.invoke(graph, {}, thread_id="t")
    assert ids(paused) == ["a@1#0", "a@1#1", "a@1#=k"]
    answers = dict(zip(ids(paused), [1, 2, 3], strict=True))
    assert world.resume(graph, answers=answers, thread_id="t") == {"log": [1, 2, 3]}


def test_interrupt_returns_the_answer_and_nothing_is_asked_again(world: World, saver: Saver) -> None:
    """6.1: `interrupt(value)` asks or, when answered, returns the answer; the payload defaults to None."""
    graph = one_node(world, saver, lambda s: {"log": [interrupt(), interrupt(None)]})
    assert world.invoke(graph, {}, thread_id="t")["__interrupt__"] == [Interrupt(None, id="a@1#0")]
    assert world.resume(graph, 1, thread_id="t")["__interrupt__"] == [Interrupt(None, id="a@1#1")]
    assert world.resume(graph, 2, thread_id="t") == {"log": [1, 2]}


def test_a_swallowed_question_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """6.1: a question that the node swallowed still pauses, with a warning; an error after it is logged."""
    caplog.set_level(logging.WARNING, "pregel")
    graph = one_node(world, InMemorySaver(), lambda s: {"log": [swallows()]})
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["a@1#0"]
    assert "swallowed" in caplog.text
    caplog.clear()
    graph = one_node(world, InMemorySaver(), lambda s: {"log": [swallows_then_fails()]})
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["a@1#0"]
    assert "raised after" in caplog.text


def test_a_pause_is_no_attempt(world: World, saver: Saver, ran: Ran) -> None:
    """6.10: an interrupt is found before retry: it is never retried, wrapped or not."""

    def node(state: State) -> dict[str, Any]:
        ran("a")
        return {"log": [raises_from_cause()]}

    policy = RetryPolicy(max_attempts=3, initial_interval=0.001, retry_on=Exception)
    graph = one_node(world, saver, node, retry_policy=policy)
    world.invoke(graph, {}, thread_id="t")
    assert ran.take() == ["a"]


def test_a_question_stands_over_a_retry(world: World, saver: Saver, ran: Ran) -> None:
    """6.8: answers are kept over retries: a later attempt reads the same one."""

    def node(state: State) -> dict[str, Any]:
        answer = interrupt("?")
        ran("after")
        if ran.counts["after"] == 1:
            raise ConnectionError("once")
        return {"log": [answer]}

    policy = RetryPolicy(max_attempts=2, initial_interval=0.001)
    graph = one_node(world, saver, node, retry_policy=policy)
    world.invoke(graph, {}, thread_id="t")
    assert world.resume(graph, "yes", thread_id="t") == {"log": ["yes"]}
    assert ran.take() == ["after", "after"]


def test_several_raised_at_once_are_merged(world: World, saver: Saver) -> None:
    """6.10: several interrupts in one error are all asked, in order."""

    def node(state: State) -> dict[str, Any]:
        if len(get_runtime().answers) < 2:
            raise BaseExceptionGroup("", [GraphInterrupt("x"), ValueError(), GraphInterrupt("y")])
        return {"log": [get_runtime().answers[0], get_runtime().answers[1]]}

    graph = one_node(world, saver, node)
    paused = world.invoke(graph, {}, thread_id="t")
    assert [(i.value, i.id) for i in paused["__interrupt__"]] == [("x", "a@1#0"), ("y", "a@1#1")]
    assert world.resume(graph, answers={"a@1#1": 2, "a@1#0": 1}, thread_id="t") == {"log": [1, 2]}


@pytest.mark.parametrize("stop", [SystemExit, asyncio.CancelledError])
def test_under_a_stop_an_interrupt_is_no_question(world: World, stop: type[BaseException]) -> None:
    """6.10: not under SystemExit or CancelledError: the task fails."""

    def node(state: State) -> dict[str, Any]:
        try:
            raise GraphInterrupt("?")
        except GraphInterrupt:
            raise stop  # noqa: B904 - the context is what is tested

    graph = one_node(world, InMemorySaver(), node)
    with pytest.raises(stop):
        world.invoke(graph, {}, thread_id="t")
    assert world.state(graph, thread_id="t").interrupts == ()


def test_asking_again_what_was_answered_fails_the_task(world: World, saver: Saver) -> None:
    """6.1: a node that raises the same answered question for ever fails, with advice, instead of pausing for ever."""

    def node(state: State) -> dict[str, Any]:
        raise GraphInterrupt("?")

    graph = one_node(world, saver, node)
    world.invoke(graph, {}, thread_id="t")
    with pytest.raises(NodeError, match=r"runtime\.answers"):
        world.resume(graph, 1, thread_id="t")


# --- 6.4, 6.5 -----------------------------------------------------------------------------------------------------


def test_the_list_follows_task_order_not_arrival(world: World, saver: Saver) -> None:
    """6.4: interrupts of a step form one flat list in task order, list payloads spliced in."""
    last = threading.Event()

    def first(state: State) -> Any:
        assert last.wait(WAIT)
        interrupt("first")

    def second(state: State) -> Any:
        return GraphInterrupt(["second", "third"])

    def fourth(state: State) -> Any:
        last.set()
        interrupt("fourth")

    nodes = {"a": first, "b": world.node(second), "c": fourth}
    graph = build(State, nodes, [(START, "a"), (START, "b"), (START, "c")], saver)
    paused = world.invoke(graph, {"other": 1}, thread_id="t")
    assert [i.value for i in paused["__interrupt__"]] == ["first", "second", "third", "fourth"]
    assert ids(paused) == ["a@1#0", "b@1#0", "b@1#1", "c@1#0"]


def test_the_result_is_the_output_so_far_plus_a_list(world: World, saver: Saver) -> None:
    """6.4: "__interrupt__" is always a list, present exactly when the run is paused."""
    nodes = {"a": world.node(lambda s: {"log": ["a"]}), "b": world.node(lambda s: {"log": [interrupt("?")]})}
    graph = build(State, nodes, [(START, "a"), ("a", "b")], saver)
    paused = world.invoke(graph, {"other": 1}, thread_id="t")
    assert paused == {"log": ["a"], "other": 1, "__interrupt__": [Interrupt("?", id="b@2#0")]}
    assert type(paused["__interrupt__"]) is list
    assert world.resume(graph, "b", thread_id="t") == {"log": ["a", "b"], "other": 1}


def test_every_pause_is_in_the_result_and_in_the_state(world: World, saver: Saver) -> None:
    """6.5, 6.3: the same interrupts, with node, when and next, in result and state, from a new engine too."""

    def graph() -> Any:
        nodes = {"a": world.node(lambda s: {"log": [interrupt("x")]}), "b": world.node(lambda s: GraphInterrupt("y"))}
        return build(State, nodes, [(START, "a"), (START, "b")], saver)

    told = world.invoke(graph(), {}, thread_id="t")["__interrupt__"]
    state = world.state(graph(), thread_id="t")
    assert [i.as_dict() for i in state.interrupts] == [i.as_dict() for i in told]
    assert [(i.node, i.namespace, i.when, i.next) for i in told] == [
        ("a", (), "inside", ("a",)),
        ("b", (), "inside", ("b",)),
    ]
    assert [task.status for task in state.tasks] == ["interrupted", "interrupted"]
    assert state.next == ("a", "b")


def test_an_interrupt_cancels_nobody(world: World, saver: Saver) -> None:
    """5.2: B asks before A and C are done; they complete, only B is left."""
    asked = threading.Event()

    def waits(name: str) -> Callable[[State], Any]:
        def node(state: State) -> dict[str, Any]:
            assert asked.wait(WAIT)
            return {"log": [name]}

        return node

    def asks(state: State) -> dict[str, Any]:
        try:
            return {"log": [interrupt("?")]}
        finally:
            asked.set()

    graph = build(State, {"a": waits("a"), "b": asks, "c": waits("c")}, [(START, n) for n in "abc"], saver)
    world.invoke(graph, {}, thread_id="t")
    tasks = world.state(graph, thread_id="t").tasks
    assert [(task.id, task.status) for task in tasks] == [("a@1", "done"), ("b@1", "interrupted"), ("c@1", "done")]
    assert world.resume(graph, "b", thread_id="t") == {"log": ["a", "b", "c"]}


# --- 6.11 ---------------------------------------------------------------------------------------------------------


def test_without_a_checkpointer_a_pause_is_told_and_cannot_be_answered(world: World) -> None:
    """6.11: `__interrupt__` is returned without a checkpointer too; resuming says that there is none."""
    graph = one_node(world, None, lambda s: {"log": [interrupt("?")]})
    assert world.invoke(graph, {}) == {"log": [], "__interrupt__": [Interrupt("?", id="a@1#0")]}
    calls: list[Callable[[], Any]] = [
        lambda: world.resume(graph, 1),
        lambda: world.invoke(graph, Command(resume=1), thread_id="t"),
    ]
    for answer in calls:
        with pytest.raises(NoCheckpointerError, match="no checkpointer"):
            answer()
    with pytest.raises(NoCheckpointerError, match="no checkpointer"):
        world.invoke(graph, None)


def test_with_nothing_stored_resuming_is_another_error(world: World, saver: Saver) -> None:
    """6.11, 5.5: with a checkpointer but nothing stored: "no checkpoint", and nothing is written."""
    graph = one_node(world, saver, lambda s: {"log": [interrupt("?")]})
    calls: list[Callable[[], Any]] = [
        lambda: world.resume(graph, 1, thread_id="t"),
        lambda: world.invoke(graph, None, thread_id="t"),
        lambda: world.recover(graph, thread_id="t"),
    ]
    for ask in calls:
        with pytest.raises(NoCheckpointError, match="no checkpoint") as caught:
            ask()
        assert "checkpointer" not in str(caught.value)
    assert list(saver.threads()) == []


def test_a_checkpointer_asks_for_a_thread(world: World, saver: Saver) -> None:
    """6.11: a graph with a checkpointer called without thread id is refused."""
    graph = one_node(world, saver, lambda s: None)
    with pytest.raises(InvalidRequestError, match="thread_id"):
        world.invoke(graph, {})
    with pytest.raises(InvalidRequestError, match="thread_id"):
        world.resume(graph, 1)
