"""Questions that say what an answer must look like (6.13), and the list of what is open (pending)."""

import operator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel

from pregel import (
    GraphInterrupt,
    Interrupt,
    InvalidAnswerError,
    NodeError,
    Runtime,
    Saver,
    get_runtime,
    interrupt,
    register_type,
)
from tests.helpers import START, Ran, World, build, ids


@dataclass
class Decision:
    approved: bool
    reason: str = ""


class Budget(BaseModel):
    limit: int


register_type(Decision)
register_type(Budget)


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


def asking(world: World, saver: Saver, schema: Any, ran: Ran | None = None) -> Any:
    def ask(state: State) -> State:
        if ran is not None:
            ran("ask")
        return {"log": [interrupt("?", schema=schema)]}

    return build(State, {"ask": world.node(ask)}, [(START, "ask")], saver)


def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(world: World, saver: Saver, ran: Ran) -> None:
    """6.13: nothing runs, nothing is written."""
    graph = asking(world, saver, Literal["yes", "no"], ran)
    (question,) = world.invoke(graph, {}, thread_id="t")["__interrupt__"]
    assert question.schema == {"enum": ["yes", "no"]}
    before = len(world.history(graph, thread_id="t"))
    for wrong in (None, "maybe", ["yes"], {"ask@1#0": "yes"}):
        with pytest.raises(InvalidAnswerError, match=r"'ask@1#0'.*expected one of \['yes', 'no'\]") as refused:
            world.resume(graph, wrong, thread_id="t")
        assert refused.value.pending == ("ask@1#0",)
    assert len(world.history(graph, thread_id="t")) == before
    assert ran.counts == {"ask": 1}
    assert world.resume(graph, "yes", thread_id="t") == {"log": ["yes"]}


@pytest.mark.parametrize(
    ("schema", "given", "expected"),
    [
        (Decision, {"approved": True}, Decision(True)),
        (Decision, Decision(False, "no"), Decision(False, "no")),
        (Budget, {"limit": 3}, Budget(limit=3)),
        (list[Decision] | None, [{"approved": True}], [Decision(True)]),
    ],
)
def test_a_mapping_arrives_as_the_class(world: World, saver: Saver, schema: Any, given: Any, expected: Any) -> None:
    """6.13: a front end sends plain data, the node gets what it asked for, in another process too."""
    world.invoke(asking(world, saver, schema), {}, thread_id="t")
    (answer,) = world.resume(asking(world, saver, schema), given, thread_id="t")["log"]
    assert (type(answer), answer) == (type(expected), expected)


def test_one_wrong_answer_of_several_refuses_all(world: World, saver: Saver) -> None:
    """6.13, 6.6: a map is taken whole or not at all."""

    def ask(state: State, runtime: Runtime[Any]) -> Any:
        if len(runtime.answers) == 2:
            return {"log": [runtime.answers[0], runtime.answers[1]]}
        return GraphInterrupt([Interrupt("number", schema=int), Interrupt("text", schema=str)])

    graph = build(State, {"ask": world.node(ask)}, [(START, "ask")], saver)
    one, two = ids(world.invoke(graph, {}, thread_id="t"))
    with pytest.raises(InvalidAnswerError, match=f"'{two}': the answer is 2, expected string"):
        world.resume(graph, answers={one: 1, two: 2}, thread_id="t")
    assert ids(world.recover(graph, thread_id="t")) == [one, two]
    assert world.resume(graph, answers={one: 1, two: "2"}, thread_id="t") == {"log": [1, "2"]}


def test_a_schema_that_cannot_be_kept_fails_the_task(world: World, saver: Saver) -> None:
    """6.13: said when asking, not when an answer has come."""

    class Local:
        pass

    with pytest.raises(NodeError, match=r"node 'ask' asks with a schema that cannot be kept.*register_type"):
        world.invoke(asking(world, saver, Local), {}, thread_id="t")


def test_a_question_below_is_checked_as_well(world: World, saver: Saver) -> None:
    """6.13, 8.2: a nested graph's question says what it takes, and the root refuses what does not fit."""

    def ask(state: State) -> State:
        return {"log": [interrupt("?", schema=Decision)]}

    child = build(State, {"ask": world.node(ask)}, [(START, "ask")], name="child")
    graph = build(State, {"child": child}, [(START, "child")], saver)
    (question,) = world.invoke(graph, {}, thread_id="t")["__interrupt__"]
    assert question.id == "child@1|ask@1#0"
    with pytest.raises(InvalidAnswerError, match="lacks 'approved'"):
        world.resume(graph, {}, thread_id="t")
    assert world.resume(graph, {"approved": False}, thread_id="t") == {"log": [Decision(False)]}


def test_an_answer_is_given_once_however_often_the_node_runs(world: World, saver: Saver) -> None:
    """6.8: the fitted answer is what is kept."""

    def ask(state: State) -> State:
        first = interrupt("one", schema=Decision)
        assert get_runtime().answers[0] == first
        return {"log": [first, interrupt("two", schema=int)]}

    graph = build(State, {"ask": world.node(ask)}, [(START, "ask")], saver)
    world.invoke(graph, {}, thread_id="t")
    world.resume(graph, {"approved": True}, thread_id="t")
    assert world.resume(graph, 2, thread_id="t") == {"log": [Decision(True), 2]}
