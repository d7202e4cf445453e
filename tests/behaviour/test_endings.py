"""How tasks end, what an ending does to the others, and what a later run goes on with (rules 5.1 to 5.5)."""

import operator
import pickle
import threading
from typing import Annotated, Any, TypedDict

import pytest

from pregel import InvalidRequestError, NoCheckpointError, Runtime, Saver, interrupt
from tests.helpers import START, Ran, World, build

WAIT = 5.0


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


class Boom(Exception):
    """An error of the user's own."""


def test_an_error_keeps_finished_siblings_and_only_the_failed_task_runs_again(
    world: World, saver: Saver, ran: Ran
) -> None:
    """5.5: after an error, `invoke(None)` never runs a finished sibling again."""
    done, broken = threading.Event(), [True]

    def good(state: State) -> dict[str, Any]:
        ran("good")
        done.set()
        return {"log": ["good"]}

    def bad(state: State) -> dict[str, Any]:
        ran("bad")
        assert done.wait(WAIT)
        if broken:
            raise Boom("once")
        return {"log": ["bad"]}

    graph = build(State, {"bad": bad, "good": good}, [(START, "bad"), (START, "good")], saver)
    with pytest.raises(Boom, match="once"):
        world.invoke(graph, {}, thread_id="t")
    assert world.state(graph, thread_id="t").status == "failed"
    broken.clear()
    assert world.invoke(graph, None, thread_id="t") == {"log": ["bad", "good"]}
    assert ran.counts == {"good": 1, "bad": 2}


def test_the_first_error_in_task_order_is_raised_as_itself(world: World) -> None:
    """5.3: two nodes fail by themselves; the first in the order of adding is raised, the other is noted."""
    meet = threading.Barrier(2, timeout=WAIT)
    errors = {"a": Boom("a"), "b": Boom("b")}

    def failing(name: str) -> Any:
        def node(state: State) -> None:
            meet.wait()
            raise errors[name]

        return node

    graph = build(State, {n: failing(n) for n in errors}, [(START, n) for n in errors])
    with pytest.raises(Boom) as caught:
        world.invoke(graph, {})
    assert caught.value in errors.values()
    assert any("super-step 1" in note for note in caught.value.__notes__)


def test_notes_name_node_step_and_namespace(world: World, saver: Saver) -> None:
    """5.3: an error from a nested graph tells where it was raised, and survives pickling."""

    def bad(state: State) -> None:
        raise Boom("deep")

    child = build(State, {"inner": world.node(bad)}, [(START, "inner")])
    graph = build(
        State, {"first": world.node(lambda s: None), "outer": child}, [(START, "first"), ("first", "outer")], saver
    )
    with pytest.raises(Boom) as caught:
        world.invoke(graph, {}, thread_id="t")
    notes = "\n".join(caught.value.__notes__)
    assert "'inner'" in notes
    assert "'outer@2'" in notes
    assert "super-step 2" in notes
    assert str(pickle.loads(pickle.dumps(caught.value))) == "deep"


def test_a_sibling_that_sees_the_stop_and_raises_is_cancelled(world: World, saver: Saver) -> None:
    """5.3: the error raised is the cause, also when the stopped task comes first in task order."""
    started = threading.Event()

    def first(state: State, runtime: Runtime[Any]) -> None:
        started.set()
        pause = threading.Event()
        for _ in range(1000):
            if runtime.cancelled:
                raise RuntimeError("told to stop")
            pause.wait(0.005)

    def second(state: State) -> None:
        assert started.wait(WAIT)
        raise Boom("cause")

    graph = build(State, {"a": first, "b": second}, [(START, "a"), (START, "b")], saver)
    with pytest.raises(Boom, match="cause"):
        world.invoke(graph, {}, thread_id="t")
    assert {t.name: t.status for t in world.state(graph, thread_id="t").tasks} == {"a": "cancelled", "b": "failed"}


def test_an_error_beside_a_question_leaves_the_question_pending(world: World, saver: Saver, ran: Ran) -> None:
    """5.4: the error is raised; the later run re-runs the failed task only and reports the question."""
    asked, broken = threading.Event(), [True]

    def ask(state: State) -> dict[str, Any]:
        ran("ask")
        asked.set()
        return {"log": [interrupt("?")]}

    def bad(state: State) -> dict[str, Any]:
        ran("bad")
        assert asked.wait(WAIT)
        if broken:
            threading.Event().wait(0.05)
            raise Boom("x")
        return {"log": ["bad"]}

    graph = build(State, {"ask": ask, "bad": bad}, [(START, "ask"), (START, "bad")], saver)
    with pytest.raises(Boom):
        world.invoke(graph, {}, thread_id="t")
    assert [i.value for i in world.state(graph, thread_id="t").interrupts] == ["?"]
    broken.clear()
    again = world.invoke(graph, None, thread_id="t")
    assert [i.value for i in again["__interrupt__"]] == ["?"]
    assert ran.counts == {"ask": 1, "bad": 2}
    assert world.resume(graph, "yes", thread_id="t") == {"log": ["yes", "bad"]}
    assert ran.counts == {"ask": 2, "bad": 2}


def test_a_finished_thread_returns_its_output_and_runs_nothing(world: World, saver: Saver, ran: Ran) -> None:
    """5.5: `invoke(None)` on a finished thread."""

    def node(state: State) -> dict[str, Any]:
        ran("a")
        return {"log": ["a"]}

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    assert world.invoke(graph, {}, thread_id="t") == world.invoke(graph, None, thread_id="t")
    assert ran.counts == {"a": 1}
    assert len(world.history(graph, thread_id="t")) == 2


def test_an_unknown_thread_cannot_go_on(world: World, saver: Saver) -> None:
    """5.5: refused, and nothing is written."""
    graph = build(State, {"a": world.node(lambda s: None)}, [(START, "a")], saver)
    with pytest.raises(NoCheckpointError, match="'nobody'") as caught:
        world.invoke(graph, None, thread_id="nobody")
    assert isinstance(caught.value, InvalidRequestError)
    assert list(saver.threads()) == []


def test_a_thread_that_does_not_stop_is_left_behind_and_named(world: World, saver: Saver) -> None:
    """5.3: after the grace time; its later calls of the engine are refused."""
    started, release, over = threading.Event(), threading.Event(), threading.Event()
    late: list[BaseException] = []

    def deaf(state: State, runtime: Runtime[Any]) -> None:
        started.set()
        release.wait(WAIT)
        for call in (lambda: runtime.writer("x"), lambda: interrupt("?"), lambda: runtime.config):
            try:
                call()
            except BaseException as error:
                late.append(error)
        over.set()

    def bad(state: State) -> None:
        assert started.wait(WAIT)
        raise Boom("x")

    graph = build(State, {"deaf": deaf, "bad": bad}, [(START, "deaf"), (START, "bad")], saver)
    with pytest.raises(Boom) as caught:
        world.invoke(graph, {}, thread_id="t", grace=0.05)
    release.set()
    assert over.wait(WAIT)
    assert any("'deaf@1'" in note and "left behind" in note for note in caught.value.__notes__)
    assert [type(error).__name__ for error in late] == ["AttemptEnded"] * 3
