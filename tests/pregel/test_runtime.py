"""What a node reaches through the engine is bound to its attempt (rules 1.2, 6.1, 6.9)."""

import threading
from typing import Any, TypedDict

import pytest

from pregel import (
    AttemptEnded,
    GraphInterrupt,
    InvalidRequestError,
    Runtime,
    get_config,
    get_runtime,
    get_stream_writer,
    interrupt,
)
from tests.helpers import START, World, build

WAIT = 10


class State(TypedDict, total=False):
    out: Any


def one(world: World, node: Any) -> Any:
    return build(State, {"a": world.node(node)}, [(START, "a")])


@pytest.mark.parametrize("reach", [get_runtime, get_config, get_stream_writer, interrupt])
def test_outside_of_a_node_nothing_is_reached(reach: Any) -> None:
    """1.2: what serves a node says so when it is called elsewhere."""
    with pytest.raises(InvalidRequestError, match="inside a node"):
        reach()


def test_a_node_reaches_its_runtime_by_name_and_by_call(world: World) -> None:
    """1.2: parameters are injected by name; `get_runtime()` serves code deep inside."""

    def node(state: State, runtime: Runtime[dict[str, int]], config: Any) -> Any:
        deep = get_runtime()
        same = deep.task_id == runtime.task_id and deep.config == config == get_config()
        return {"out": [runtime.context["k"], runtime.task_id, runtime.attempt, runtime.cancelled, same]}

    assert world.invoke(one(world, node), {}, context={"k": 5})["out"] == [5, "a@1", 1, False, True]


def test_after_the_attempt_everything_is_refused(world: World) -> None:
    """6.1, 5.3: a runtime that outlives its attempt raises AttemptEnded and writes nothing."""
    kept: list[Runtime[Any]] = []
    world.invoke(one(world, lambda s: kept.append(get_runtime())), {})
    (runtime,) = kept
    for use in (lambda: runtime.answers, lambda: runtime.writer(1), lambda: runtime.context, lambda: runtime.store):
        with pytest.raises(AttemptEnded, match="a@1"):
            use()


def test_a_question_after_the_attempt_is_refused(world: World) -> None:
    """6.9: only questions asked before the body ended count; a thread left behind cannot ask any more."""
    go_on, errors = threading.Event(), []

    def late() -> None:
        assert go_on.wait(WAIT)
        try:
            interrupt("late", key="late")
        except BaseException as error:
            errors.append(type(error))

    threads: list[threading.Thread] = []

    def node(state: State) -> Any:
        thread = threading.Thread(target=get_runtime().bind(late))
        thread.start()
        threads.append(thread)
        return {"out": 1}

    assert world.invoke(one(world, node), {}) == {"out": 1}
    go_on.set()
    threads[0].join(WAIT)
    assert errors == [AttemptEnded]


def test_answers_are_empty_until_there_are_some(world: World) -> None:
    """6.1: `runtime.answers` holds this task's own answers and nothing else."""
    assert world.invoke(one(world, lambda s: {"out": dict(get_runtime().answers)}), {}) == {"out": {}}


def test_an_asked_question_is_raised_as_an_interrupt_with_its_id(world: World) -> None:
    """6.1: what `interrupt` raises carries the question as the engine knows it."""
    seen: list[Any] = []

    def node(state: State) -> None:
        try:
            interrupt("?")
        except GraphInterrupt as pause:
            seen.append((pause.value, [i.id for i in pause.interrupts]))
            raise

    world.invoke(one(world, node), {})
    assert seen == [("?", ["a@1#0"])]
