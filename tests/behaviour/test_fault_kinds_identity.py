"""Faults of engines of this kind: answers that reach the wrong question, work done twice, pauses taken for errors."""

import asyncio
import operator
from collections.abc import Generator
from typing import Annotated, Any, TypedDict

import pytest

from pregel import Command, InvalidRequestError, RetryPolicy, Saver, Send, SqliteSaver, interrupt
from tests.behaviour.calling import Call, calling, noted
from tests.helpers import START, Ran, World, build, ids

Calls = Generator[Call, Any, Any]


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    items: list[Any]


def asks(world: World, ran: Ran, name: str) -> Any:
    def node(state: State) -> dict[str, Any]:
        ran(f"before {name}")
        return {"log": [(name, interrupt(name))]}

    return world.node(node)


def marks(world: World, ran: Ran, name: str) -> Any:
    return world.node(lambda s: noted(ran, name, {"log": [name]}))


def child_of(world: World, ran: Ran, *names: str) -> Any:
    """Return a graph whose nodes in sequence ask if their names start with "?"."""
    nodes = {n: asks(world, ran, n) if n[0] == "?" else marks(world, ran, n) for n in names}
    return build(State, nodes, list(zip((START, *names), names, strict=False)))


def test_calls_that_pause_together_are_all_reported_with_ids_of_their_own(world: World, saver: Saver) -> None:
    """6.9: branches of one node that ask side by side give distinct ids, stable over re-runs; none is hidden."""

    async def ask(number: int) -> Any:
        await asyncio.sleep(0)
        return interrupt(number, key=f"call-{number}")

    async def node(state: State) -> dict[str, Any]:
        found = await asyncio.gather(*(ask(number) for number in range(3)), return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return {"log": found}

    graph = build(State, {"a": node}, [(START, "a")], saver)
    first = ids(world.invoke(graph, {}, thread_id="t"))
    assert len(set(first)) == 3
    assert ids(world.resume(graph, answers={first[1]: "B"}, thread_id="t")) == [first[0], first[2]]
    assert world.resume(graph, answers={first[2]: "C", first[0]: "A"}, thread_id="t") == {"log": ["A", "B", "C"]}


def test_a_child_that_asks_twice_gets_each_answer_once(world: World, saver: Saver, ran: Ran) -> None:
    """6.8, 8.2: the second question of a called child pauses instead of eating the first answer."""
    child = child_of(world, ran, "?p", "?q")

    def body(state: State) -> Calls:
        return {"log": (yield Call(child, {}))["log"]}

    graph = build(State, {"a": calling(world, body)}, [(START, "a")], saver)
    assert [i.value for i in world.invoke(graph, {}, thread_id="t")["__interrupt__"]] == ["?p"]
    assert [i.value for i in world.resume(graph, 1, thread_id="t")["__interrupt__"]] == ["?q"]
    assert [i.value for i in world.invoke(graph, None, thread_id="t")["__interrupt__"]] == ["?q"]
    assert world.resume(graph, 2, thread_id="t") == {"log": [("?p", 1), ("?q", 2)]}


def test_a_child_called_in_a_python_loop_asks_each_time(world: World, saver: Saver, ran: Ran) -> None:
    """8.4: a loop inside a node over a pausing child: each call has its own question and its own answer."""
    child = child_of(world, ran, "?p")

    def body(state: State) -> Calls:
        log: list[Any] = []
        for _ in range(3):
            log += (yield Call(child, {}))["log"]
        return {"log": log}

    graph = build(State, {"a": calling(world, body)}, [(START, "a")], saver)
    seen = ids(world.invoke(graph, {}, thread_id="t"))
    for answer in (1, 2):
        seen += ids(world.resume(graph, answer, thread_id="t"))
    assert len(set(seen)) == 3
    assert world.resume(graph, 3, thread_id="t") == {"log": [("?p", 1), ("?p", 2), ("?p", 3)]}


def test_one_call_answers_several_children_and_packets(world: World, saver: Saver, ran: Ran) -> None:
    """6.7, 6.8: packets to one asking child share no question; one call answers any subset, the rest keep their ids."""
    route: Any = lambda s: [Send("p", {}), Send("p", {}), Send("p", {})]  # noqa: E731 - as a user writes it
    graph = build(State, {"p": child_of(world, ran, "x", "?p")}, [], saver, branches=[(START, route, ["p"])])
    one, two, three = ids(world.invoke(graph, {}, thread_id="t"))
    assert ids(world.resume(graph, answers={three: 3, one: 1}, thread_id="t")) == [two]
    assert world.resume(graph, 2, thread_id="t")["log"] == [e for n in (1, 2, 3) for e in ("x", ("?p", n))]
    assert ran.counts == {"x": 3, "before ?p": 6}


def test_packets_to_one_asking_node_share_no_question(world: World, saver: Saver, ran: Ran) -> None:
    """6.7, 6.8: the id holds the task: three packets without a key are three questions, answered in any order."""

    def node(arg: str) -> dict[str, Any]:
        ran(arg)
        return {"log": [(arg, interrupt("?"))]}

    route: Any = lambda s: [Send("p", name) for name in "xyz"]  # noqa: E731 - as a user writes it
    graph = build(State, {"p": world.node(node)}, [], saver, branches=[(START, route, ["p"])])
    left = ids(world.invoke(graph, {}, thread_id="t"))
    assert len(set(left)) == 3
    for place, name in ((1, "y"), (1, "z")):
        answered = left.pop(place)
        assert ids(world.resume(graph, answers={answered: name.upper()}, thread_id="t")) == left
    assert world.resume(graph, "X", thread_id="t") == {"log": [("x", "X"), ("y", "Y"), ("z", "Z")]}
    assert ran.counts == {"x": 2, "y": 2, "z": 2}


def test_different_children_in_one_step_are_answered_by_one_call(world: World, saver: Saver, ran: Ran) -> None:
    """6.7, 8.2: two graphs as nodes pause side by side, at different depths; one call lets both go on."""
    deep = build(State, {"inner": child_of(world, ran, "m", "?q")}, [(START, "inner")])
    nodes = {"p": child_of(world, ran, "?p", "n"), "q": deep}
    graph = build(State, nodes, [(START, "p"), (START, "q")], saver)
    answers = {i.id: i.value.upper() for i in world.invoke(graph, {}, thread_id="t")["__interrupt__"]}
    assert world.resume(graph, answers=answers, thread_id="t") == {"log": [("?p", "?P"), "n", "m", ("?q", "?Q")]}
    assert ran.counts == {"before ?p": 2, "n": 1, "m": 1, "before ?q": 2}


def test_an_answer_does_not_reach_the_next_question_after_a_failure(world: World, saver: Saver, ran: Ran) -> None:
    """6.8, 5.5: the answered node, or the one after it, fails; whoever goes on, the next question asks for itself."""

    def fails_once(name: str) -> Any:
        def node(state: State) -> dict[str, Any]:
            answer = interrupt(name) if name == "p" else None
            ran(f"after {name}")
            if ran.counts[f"after {name}"] == 1:
                raise ConnectionError(name)
            return {"log": [(name, answer or interrupt(name))]}

        return world.node(node)

    nodes = {"p": fails_once("p"), "q": fails_once("q")}
    graph = build(State, nodes, [(START, "p"), ("p", "q")], saver)
    world.invoke(graph, {}, thread_id="t")
    with pytest.raises(ConnectionError, match="p"):
        world.resume(graph, 1, thread_id="t")
    with pytest.raises(ConnectionError, match="q"):
        world.recover(graph, thread_id="t")
    for paused in (world.invoke(graph, None, thread_id="t"), world.recover(graph, thread_id="t")):
        assert [i.value for i in paused["__interrupt__"]] == ["q"]
        assert paused["log"] == [("p", 1)]
    assert world.resume(graph, 2, thread_id="t") == {"log": [("p", 1), ("q", 2)]}


def test_the_result_alone_is_enough_to_answer(world: World, saver: Saver, ran: Ran) -> None:
    """6.3: id, payload and place are in the result, as plain values for a front end, and build the answer."""
    nodes = {"a": asks(world, ran, "?a"), "p": child_of(world, ran, "?p")}
    graph = build(State, nodes, [(START, "a"), (START, "p")], saver)
    shown = [i.as_dict() for i in world.invoke(graph, {}, thread_id="t")["__interrupt__"]]
    assert [(d["value"], d["namespace"]) for d in shown] == [("?a", ()), ("?p", ("p@1",))]
    answers = {d["id"]: d["value"].upper() for d in shown}
    assert world.resume(graph, answers=answers, thread_id="t") == {"log": [("?a", "?A"), ("?p", "?P")]}


def test_a_child_is_not_asked_again_after_a_restart(world: World, tmp_path: Any, ran: Ran) -> None:
    """6.8, 8.2: what was answered is known at all levels in another engine too, and used ids stay used."""
    answers: list[Any] = [None, 1, 2]
    for number, answer in enumerate(answers):
        with SqliteSaver(tmp_path / "runs.db") as saver:
            graph = build(State, {"p": child_of(world, ran, "a", "?p", "b", "?q")}, [(START, "p")], saver)
            if number == 0:
                result = world.invoke(graph, {}, thread_id="t")
            else:
                result = world.resume(graph, answer, thread_id="t")
    assert result == {"log": ["a", ("?p", 1), "b", ("?q", 2)]}
    assert ran.counts == {"a": 1, "before ?p": 2, "b": 1, "before ?q": 2}


def test_a_sibling_child_that_never_paused_starts_fresh_on_resume(world: World, saver: Saver, ran: Ran) -> None:
    """8.3, 8.6: resuming is known to the paused namespace only: the next child starts, with nothing stored."""
    nodes = {"p": child_of(world, ran, "?p"), "q": child_of(world, ran, "m", "n")}
    graph = build(State, nodes, [(START, "p"), ("p", "q")], saver)
    world.invoke(graph, {}, thread_id="t")
    assert world.resume(graph, 1, thread_id="t") == {"log": [("?p", 1), "m", "n"]}


def test_a_jump_never_takes_an_answer_along(world: World, saver: Saver, ran: Ran) -> None:
    """4.4: an answer with a jump is refused; a jump alone wakes its target, which asks for itself."""
    nodes = {"a": asks(world, ran, "?a"), "b": asks(world, ran, "?b")}
    graph = build(State, nodes, [(START, "a"), ("a", "b")], saver)
    world.invoke(graph, {}, thread_id="t")
    with pytest.raises(InvalidRequestError):
        world.invoke(graph, Command(resume=1, goto="b"), thread_id="t")
    paused = world.invoke(graph, Command(goto="b"), thread_id="t")
    assert [i.value for i in paused["__interrupt__"]] == ["?a", "?b"]
    assert ran.counts == {"before ?a": 1, "before ?b": 1}


def test_a_jump_to_who_is_asking_keeps_the_question(world: World, saver: Saver, ran: Ran) -> None:
    """3.3, 4.4: a node that is due already stays due as it was: same id, not run again, answered once."""
    graph = build(State, {"a": asks(world, ran, "?a")}, [(START, "a")], saver)
    paused = world.invoke(graph, {}, thread_id="t")
    assert ids(world.invoke(graph, Command(goto="a"), thread_id="t")) == ids(paused)
    assert ran.counts == {"before ?a": 1}
    assert world.resume(graph, answers={ids(paused)[0]: 1}, thread_id="t") == {"log": [("?a", 1)]}


# --- work that is not repeated --------------------------------------------------------------------------------------


def test_code_before_an_unanswered_question_is_not_repeated(world: World, saver: Saver, ran: Ran) -> None:
    """6.7: a task starts again only when an answer for it has come."""
    graph = build(
        State, {"a": asks(world, ran, "?a"), "b": asks(world, ran, "?b")}, [(START, "a"), (START, "b")], saver
    )
    _, second = ids(world.invoke(graph, {}, thread_id="t"))
    world.resume(graph, answers={second: 2}, thread_id="t")
    assert ran.counts == {"before ?a": 1, "before ?b": 2}
    world.resume(graph, 1, thread_id="t")
    assert ran.counts == {"before ?a": 2, "before ?b": 2}


def test_a_finished_call_in_a_node_is_not_repeated(world: World, saver: Saver, ran: Ran) -> None:
    """8.4: a node calls two tools that are graphs; the second asks; after the answer the first does not run again."""
    effect, asking = child_of(world, ran, "effect"), child_of(world, ran, "?tool")

    def body(state: State) -> Calls:
        one = yield Call(effect, {}, "one")
        two = yield Call(asking, {}, "two")
        return {"log": [*one["log"], *two["log"]]}

    graph = build(State, {"a": calling(world, body)}, [(START, "a")], saver)
    world.invoke(graph, {}, thread_id="t")
    assert world.resume(graph, 1, thread_id="t") == {"log": ["effect", ("?tool", 1)]}
    assert ran.counts == {"effect": 1, "before ?tool": 2}


def test_tools_that_are_tasks_of_their_own_run_once(world: World, saver: Saver, ran: Ran) -> None:
    """5.2, 6.7: of three tool calls sent by one node one asks; neither the others nor the sender run again."""

    def tool(name: str) -> dict[str, Any]:
        ran(name)
        return {"log": [(name, interrupt("sure?") if name == "pay" else "done")]}

    def route(state: State) -> list[Send]:
        ran("plan")
        return [Send("tool", name) for name in ("look", "pay", "mail")]

    nodes = {"model": world.node(lambda s: ran("model")), "tool": world.node(tool)}
    graph = build(State, nodes, [(START, "model")], saver, branches=[("model", route, ["tool"])])
    assert len(ids(world.invoke(graph, {}, thread_id="t"))) == 1
    assert world.invoke(graph, None, thread_id="t")["log"] == []
    assert world.resume(graph, "yes", thread_id="t") == {"log": [("look", "done"), ("pay", "yes"), ("mail", "done")]}
    assert ran.counts == {"model": 1, "plan": 1, "look": 1, "pay": 2, "mail": 1}


def test_a_finished_thread_runs_nothing_when_continued(world: World, saver: Saver, ran: Ran) -> None:
    """5.5: going on from the last checkpoint of a finished run runs zero tasks and writes nothing."""
    names = ["a", "b", "c"]
    nodes = {n: marks(world, ran, n) for n in names}
    graph = build(State, nodes, list(zip((START, *names), names, strict=False)), saver)
    result = world.invoke(graph, {}, thread_id="t")
    head = world.state(graph, thread_id="t").config
    ran.take()
    assert world.invoke(graph, None, thread_id="t") == world.recover(graph, thread_id="t") == result
    assert world.invoke(graph, None, head) == result
    assert ran.take() == []
    assert world.state(graph, thread_id="t").config == head


def test_what_a_paused_node_did_to_its_input_is_gone(world: World, saver: Saver) -> None:
    """2.4, 4.3: only what a node returns counts; changes to its copies before a pause reach nobody."""

    def node(state: State) -> dict[str, Any]:
        state["items"].append("mine")
        return {"log": [interrupt("?"), list(state["items"])]}

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    assert world.invoke(graph, {"items": ["in"]}, thread_id="t")["items"] == ["in"]
    assert world.resume(graph, 1, thread_id="t") == {"items": ["in"], "log": [1, ["in", "mine"]]}


# --- pauses that are no errors --------------------------------------------------------------------------------------


def test_a_catch_all_around_a_tool_does_not_take_the_pause(world: World, saver: Saver) -> None:
    """6.1: `except Exception`, as tool runners have it, does not see a pause; `except BaseException` does not win."""

    def tool_runner(catch: type[BaseException]) -> Any:
        def node(state: State) -> dict[str, Any]:
            try:
                return {"log": [interrupt("tool?")]}
            except catch as error:
                return {"log": [f"the tool failed: {error}"]}

        return world.node(node)

    nodes = {"a": tool_runner(Exception), "b": tool_runner(BaseException)}
    graph = build(State, nodes, [(START, "a"), (START, "b")], saver)
    answers = dict.fromkeys(ids(world.invoke(graph, {}, thread_id="t")), "ok")
    assert len(answers) == 2
    assert world.resume(graph, answers=answers, thread_id="t") == {"log": ["ok", "ok"]}


def test_retries_do_not_see_pauses_of_children(world: World, saver: Saver, ran: Ran) -> None:
    """5.7: a pause is never retried and takes no attempt, in a child under a retried node neither."""
    child = child_of(world, ran, "?p")

    def body(state: State) -> Calls:
        ran("entry")
        return {"log": (yield Call(child, {}))["log"]}

    policy = RetryPolicy(max_attempts=3, initial_interval=0.001, retry_on=lambda error: True)
    graph = build(State, {"a": (calling(world, body), {"retry_policy": policy})}, [(START, "a")], saver)
    world.invoke(graph, {}, thread_id="t")
    assert ran.counts == {"entry": 1, "before ?p": 1}
    assert world.resume(graph, 1, thread_id="t") == {"log": [("?p", 1)]}


def test_retries_and_catch_alls_do_not_see_a_jump_to_the_parent(world: World, saver: Saver, ran: Ran) -> None:
    """4.2, 5.7: a child's command for its parent passes `except Exception` and a policy that covers everything."""
    up = Command(update={"log": ["up"]}, goto="b", graph=Command.PARENT)
    child = build(State, {"up": world.node(lambda s: noted(ran, "up", up))}, [(START, "up")])

    def body(state: State) -> Calls:
        ran("entry")
        try:
            return {"log": (yield Call(child, {}))["log"]}
        except Exception as error:
            return {"log": [f"the child failed: {error}"]}

    policy = RetryPolicy(max_attempts=3, initial_interval=0.001, retry_on=lambda error: True)
    nodes = {"a": (calling(world, body), {"retry_policy": policy, "destinations": ["b"]}), "b": marks(world, ran, "b")}
    graph = build(State, nodes, [(START, "a")], saver)
    assert world.invoke(graph, {}, thread_id="t") == {"log": ["up", "b"]}
    assert ran.counts == {"entry": 1, "up": 1, "b": 1}


def test_a_tool_runner_that_gathers_errors_does_not_take_pauses(world: World, saver: Saver) -> None:
    """6.1, 6.9: errors and pauses that a runner collected as values are told apart: the questions are asked."""

    async def tool(name: str) -> Any:
        if name == "broken":
            raise ValueError(name)
        return interrupt(name, key=name)

    async def node(state: State) -> dict[str, Any]:
        found = await asyncio.gather(*map(tool, ("x", "broken", "y")), return_exceptions=True)
        return {"log": [f"failed: {one}" if isinstance(one, BaseException) else one for one in found]}

    graph = build(State, {"a": node}, [(START, "a")], saver)
    paused = world.invoke(graph, {}, thread_id="t")
    assert (paused["log"], [i.value for i in paused["__interrupt__"]]) == ([], ["x", "y"])
    answers = {i.id: i.value.upper() for i in paused["__interrupt__"]}
    assert world.resume(graph, answers=answers, thread_id="t") == {"log": ["X", "failed: broken", "Y"]}
