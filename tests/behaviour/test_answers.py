"""How a run is answered (6.6 to 6.8, 6.12): by id, in any order, with any value, once, and in any process."""

import logging
import operator
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

from pregel import (
    Command,
    EphemeralValue,
    GraphInterrupt,
    InMemorySaver,
    Interrupt,
    InvalidAnswerError,
    InvalidRequestError,
    InvalidUpdateError,
    Saver,
    SerializationError,
    SqliteSaver,
    ThreadPausedError,
    get_runtime,
    interrupt,
)
from pregel.checkpoint import Key
from tests.helpers import START, Ran, World, build, ids


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    x: int
    flash: Annotated[int, EphemeralValue]


def content(saver: Saver) -> list[Any]:
    """Return all that a saver holds."""
    return [
        (thread, namespace, saver.get(Key(thread, namespace)), list(saver.list(Key(thread, namespace))))
        for thread in saver.threads()
        for namespace in saver.namespaces(thread)
    ]


def refused(saver: Saver, call: Callable[[], Any], error: type[Exception], match: str | None = None) -> BaseException:
    """Check that a call is refused and writes nothing."""
    before = content(saver)
    with pytest.raises(error, match=match) as caught:
        call()
    assert content(saver) == before
    return caught.value


def asks(world: World, ran: Ran | None, *names: str) -> dict[str, Any]:
    """Return nodes that ask `name?` and log `name=answer`."""

    def node(name: str) -> Callable[[State], Any]:
        def ask(state: State) -> dict[str, Any]:
            if ran is not None:
                ran(name)
            return {"log": [(name, interrupt(f"{name}?"))]}

        return world.node(ask)

    return {name: node(name) for name in names}


def one(world: World, saver: Saver) -> Any:
    graph = build(State, asks(world, None, "a"), [(START, "a")], saver)
    world.invoke(graph, {"x": 1}, thread_id="t")
    return graph


def three(world: World, saver: Saver, ran: Ran | None = None) -> Any:
    return build(State, asks(world, ran, "a", "b", "c"), [(START, n) for n in "abc"], saver)


ANY: list[Any] = [
    None,
    False,
    0,
    "",
    {},
    [],
    {1: "x"},
    {"deadbeef" * 4: "yes"},
    {"a": {"b": None}},
    (1, 2),
    b"",
    {"a@1#0": 1},
]


def test_the_one_pending_question_takes_any_value(world: World, saver: Saver) -> None:
    """6.6: with exactly one pending question any value counts, dicts whose keys look like anything too."""
    for value in ANY[:-1]:
        assert world.invoke(one(world, saver), Command(resume=value), thread_id="t")["log"][-1] == ("a", value)


def test_resume_takes_a_value_as_a_value(world: World, saver: Saver) -> None:
    """6.6: `graph.resume(value)` says without guessing that it is a value, whatever its keys."""
    for value in ANY:
        assert world.resume(one(world, saver), value, thread_id="t")["log"][-1] == ("a", value)


def test_an_answer_by_id_takes_any_value(world: World, saver: Saver) -> None:
    """6.6: so do `graph.resume(answers={id: v})` and a mapping whose keys are all pending ids."""
    graph = build(State, asks(world, None, "a", "b"), [(START, "a"), (START, "b")], saver)
    for value in ANY:
        first, second = ids(world.invoke(graph, {}, thread_id="t"))
        world.resume(graph, answers={first: value}, thread_id="t")
        result = world.invoke(graph, Command(resume={second: value}), thread_id="t")
        assert result["log"][-2:] == [("a", value), ("b", value)]


def test_the_first_answer_may_be_several(world: World, saver: Saver, ran: Ran) -> None:
    """6.6: a mapping whose keys are all pending ids answers those."""
    graph = three(world, saver, ran)
    questions = ids(world.invoke(graph, {}, thread_id="t"))
    answers = {id_: number for number, id_ in enumerate(reversed(questions))}
    assert world.invoke(graph, Command(resume=answers), thread_id="t") == {"log": [("a", 2), ("b", 1), ("c", 0)]}
    assert ran.counts == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
def test_partial_answers_come_in_any_order(world: World, saver: Saver, order: str, ran: Ran) -> None:
    """6.7: only answered tasks run again; the rest are not run and are reported again with the same ids."""
    graph = three(world, saver, ran)
    paused = world.invoke(graph, {"x": 1}, thread_id="t")
    pending = dict(zip("abc", ids(paused), strict=True))
    ran.take()
    for name in order:
        id_ = pending.pop(name)
        result = world.resume(graph, answers={id_: name.upper()}, thread_id="t")
        assert ran.take() == [name]
        assert ids(result) == list(pending.values())
        assert [i.id for i in world.state(graph, thread_id="t").interrupts] == list(pending.values())
    assert result == {"x": 1, "log": [("a", "A"), ("b", "B"), ("c", "C")]}


def test_a_task_answered_in_part_asks_the_rest_again(world: World, saver: Saver, ran: Ran) -> None:
    """6.8: a node runs from its start; the i-th question gets the i-th answer, over many pauses."""

    def node(state: State) -> dict[str, Any]:
        ran("a")
        return {"log": [interrupt(number) for number in range(4)]}

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    result = world.invoke(graph, {}, thread_id="t")
    for number in range(4):
        assert [(i.value, i.id) for i in result["__interrupt__"]] == [(number, f"a@1#{number}")]
        result = world.resume(graph, -number, thread_id="t")
    assert result == {"log": [0, -1, -2, -3]}
    assert ran.counts == {"a": 5}


def test_keyed_questions_keep_their_answers_in_any_order(world: World, saver: Saver) -> None:
    """6.8: a keyed question gets its own answer whatever the order; the same key asked again the same one."""
    order = ["x", "y"]

    def node(state: State) -> dict[str, Any]:
        return {"log": [(key, interrupt(key, key=key)) for key in order]}

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["a@1#=x"]
    order[:] = ["y", "x", "y"]
    assert ids(world.resume(graph, 1, thread_id="t")) == ["a@1#=y"]
    assert world.resume(graph, 2, thread_id="t") == {"log": [("y", 2), ("x", 1), ("y", 2)]}


def test_a_key_and_an_index_are_different_questions(world: World, saver: Saver) -> None:
    """6.8: key "0" and question 0 differ; keys with separators in them stay apart."""

    def node(state: State) -> dict[str, Any]:
        return {
            "log": [interrupt("k", key="0"), interrupt("i"), interrupt("s", key="a|b#0=@1"), interrupt("e", key="")]
        }

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    world.invoke(graph, {}, thread_id="t")
    for answer in "kis":
        paused = world.resume(graph, answer, thread_id="t")
        assert len(ids(paused)) == 1
    assert world.resume(graph, "e", thread_id="t") == {"log": ["k", "i", "s", "e"]}


def test_a_returned_list_runs_again_when_all_are_answered(world: World, saver: Saver, ran: Ran) -> None:
    """6.8: item i is question i whether answered or not; the task runs again when all items are answered."""

    def node(state: State) -> Any:
        ran("a")
        answers = get_runtime().answers
        return {"log": [answers[i] for i in range(3)]} if 0 in answers else GraphInterrupt(["x", "y", "z"])

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["a@1#0", "a@1#1", "a@1#2"]
    assert ids(world.resume(graph, answers={"a@1#1": 1}, thread_id="t")) == ["a@1#0", "a@1#2"]
    refused(saver, lambda: world.resume(graph, answers={"a@1#1": 9}, thread_id="t"), InvalidAnswerError)
    assert ids(world.resume(graph, answers={"a@1#2": 2}, thread_id="t")) == ["a@1#0"]
    assert ran.take() == ["a"]
    assert world.resume(graph, 0, thread_id="t") == {"log": [0, 1, 2]}
    assert ran.take() == ["a"]


# --- refusals -----------------------------------------------------------------------------------------------------


def test_a_bare_value_for_several_questions_is_refused(world: World, saver: Saver) -> None:
    """6.6: with several pending a bare value, also a dict that names none of them, is refused with their ids."""
    graph = three(world, saver)
    pending = ids(world.invoke(graph, {}, thread_id="t"))
    for value in ("yes", None, {}, {"a": 1}):
        for call in (
            lambda v=value: world.invoke(graph, Command(resume=v), thread_id="t"),
            lambda v=value: world.resume(graph, v, thread_id="t"),
        ):
            error = refused(saver, call, InvalidAnswerError, "3 questions")
            assert isinstance(error, InvalidAnswerError)
            assert list(error.pending) == pending
            assert all(id_ in str(error) for id_ in pending)


def test_an_unknown_id_is_refused_with_the_pending_ones(world: World, saver: Saver) -> None:
    """6.6: unknown ids, alone or beside a known one, are refused and named; nothing is written."""
    graph = one(world, saver)
    stranger = "0123456789abcdef" * 2
    for answers in ({stranger: "ok"}, {"a@1#0": "ok", stranger: "ok"}, {"a@1#1": 1}, {}):
        error = refused(saver, lambda: world.resume(graph, answers=answers, thread_id="t"), InvalidAnswerError)
        assert "a@1#0" in str(error)
    mixed = {"a@1#0": "ok", stranger: "ok"}
    refused(saver, lambda: world.invoke(graph, Command(resume=mixed), thread_id="t"), InvalidAnswerError, stranger)
    assert world.resume(graph, "ok", thread_id="t")["log"] == [("a", "ok")]


def test_a_used_id_is_refused(world: World, saver: Saver) -> None:
    """6.6: an answer is given once: a used id is refused, while others are pending and when nothing is."""
    graph = three(world, saver)
    world.invoke(graph, {}, thread_id="t")
    world.resume(graph, answers={"a@1#0": 1, "b@1#0": 2}, thread_id="t")
    used = {"a@1#0": 5}
    refused(saver, lambda: world.resume(graph, answers=used, thread_id="t"), InvalidAnswerError, "a@1#0")
    refused(saver, lambda: world.invoke(graph, Command(resume=used), thread_id="t"), InvalidAnswerError, "a@1#0")
    assert world.resume(graph, 3, thread_id="t") == {"log": [("a", 1), ("b", 2), ("c", 3)]}


def test_an_answer_when_nothing_is_pending_is_refused(world: World, saver: Saver) -> None:
    """6.6: nothing pending: refused, on a finished thread and at a static pause, which is no question."""
    graph = build(State, {"a": lambda s: {"x": 2}}, [(START, "a")], saver)
    world.invoke(graph, {}, thread_id="done")
    world.invoke(graph, {}, thread_id="static", interrupt_before=["a"])
    for thread in ("done", "static"):
        for call in (
            lambda t=thread: world.resume(graph, 1, thread_id=t),
            lambda t=thread: world.invoke(graph, Command(resume=None), thread_id=t),
            lambda t=thread: world.resume(graph, answers={"a@1!before": 1}, thread_id=t),
        ):
            refused(saver, call, InvalidAnswerError)


def test_resume_wants_one_kind_of_answer(world: World, saver: Saver) -> None:
    """6.6: `resume` takes a value or answers, neither none nor both."""
    graph = one(world, saver)
    refused(saver, lambda: world.resume(graph, thread_id="t"), InvalidRequestError)
    refused(saver, lambda: world.resume(graph, 1, answers={"a@1#0": 1}, thread_id="t"), InvalidRequestError)


def test_an_answer_that_cannot_be_stored_is_refused(world: World, saver: Saver) -> None:
    """12.2, 6.6: an answer of a type that is not stored is refused before anything runs, and the question stays."""
    graph = one(world, saver)
    refused(saver, lambda: world.resume(graph, {"k": [object()]}, thread_id="t"), SerializationError)
    assert [i.id for i in world.state(graph, thread_id="t").interrupts] == ["a@1#0"]


def test_an_answer_with_a_jump_is_refused(world: World, saver: Saver) -> None:
    """4.4: `goto` together with `resume` is refused: an answer never binds to a jump's target."""
    graph = one(world, saver)
    jump = Command(resume=1, goto="a")
    refused(saver, lambda: world.invoke(graph, jump, thread_id="t"), InvalidRequestError, "answer and jump")


def test_an_answer_with_an_update_is_one_commit(world: World, saver: Saver, ran: Ran) -> None:
    """4.4: `update` beside `resume` is applied by the same commit before the tasks run; a bad one refuses both."""

    def node(state: State) -> dict[str, Any]:
        return {"log": [(state.get("x"), interrupt("?"))]}

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    world.invoke(graph, {"x": 1}, thread_id="t")
    bad = Command(resume=1, update={"nope": 1})
    refused(saver, lambda: world.invoke(graph, bad, thread_id="t"), InvalidUpdateError, "nope")
    result = world.invoke(graph, Command(resume="yes", update={"x": 7, "log": ["edit"]}), thread_id="t")
    assert result == {"x": 7, "log": ["edit", (7, "yes")]}


def test_an_answer_is_spent_on_its_own_question(world: World, saver: Saver) -> None:
    """6.8: a plain continue carries no answer: the next node's question pauses for itself."""
    graph = build(State, asks(world, None, "a", "b"), [(START, "a"), ("a", "b")], saver)
    world.invoke(graph, {}, thread_id="t")
    paused = world.resume(graph, 1, thread_id="t")
    assert paused["log"] == [("a", 1)]
    for call in (world.invoke, world.recover):
        arguments = (None,) if call == world.invoke else ()
        assert ids(call(graph, *arguments, thread_id="t")) == ids(paused)
    assert world.resume(graph, 2, thread_id="t") == {"log": [("a", 1), ("b", 2)]}


def test_answers_of_every_run_of_a_loop_are_their_own(world: World, saver: Saver) -> None:
    """6.8: the same node asks on each lap under a new id; no lap gets an earlier lap's answer."""

    def node(state: State) -> Command:
        answer = interrupt("?")
        return Command(update={"log": [answer]}, goto="a" if answer < 3 else ())

    graph = build(State, {"a": (world.node(node), {"destinations": ["a"]})}, [(START, "a")], saver)
    result, seen = world.invoke(graph, {}, thread_id="t"), []
    for lap in range(4):
        seen += ids(result)
        result = world.resume(graph, lap, thread_id="t")
    assert result == {"log": [0, 1, 2, 3]}
    assert len(set(seen)) == 4


PROCESS = """
    import json, operator, sys
    from typing import Annotated, Any, TypedDict
    from pregel import START, SqliteSaver, StateGraph, get_runtime, interrupt

    class State(TypedDict, total=False):
        log: Annotated[list[Any], operator.add]

    def a(state):
        return {"log": [interrupt({"q": "first"}), interrupt("second", key="k")]}

    def b(state):
        return {"log": [interrupt("b")]}

    path, step = sys.argv[1:]
    builder = StateGraph(State).add_node("a", a).add_node("b", b).add_edge(START, "a").add_edge(START, "b")
    with SqliteSaver(path) as saver:
        graph = builder.compile(saver)
        if step == "ask":
            result = graph.invoke({"log": ["in"]}, thread_id="t")
        else:
            (first, *rest) = graph.get_state(thread_id="t").interrupts
            result = graph.resume(answers={first.id: [step]}, thread_id="t")
    print(json.dumps([result["log"], [i.id for i in result.get("__interrupt__", [])]]))
"""


def test_answers_survive_processes(tmp_path: Path) -> None:
    """6.8: asked in one process, answered in others, one question in each: answers and ids are kept."""

    def process(step: str) -> str:
        command = [sys.executable, "-c", textwrap.dedent(PROCESS), str(tmp_path / "runs.db"), step]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    assert process("ask") == '[["in"], ["a@1#0", "b@1#0"]]'
    assert process("1") == '[["in"], ["a@1#=k", "b@1#0"]]'
    assert process("2") == '[["in"], ["b@1#0"]]'
    assert process("3") == '[["in", ["1"], ["2"], ["3"]], []]'


def test_another_engine_answers(world: World, tmp_path: Path) -> None:
    """6.8: the graph and saver may be built anew between question and answer."""
    with SqliteSaver(tmp_path / "runs.db") as saver:
        one(world, saver)
    with SqliteSaver(tmp_path / "runs.db") as saver:
        graph = build(State, asks(world, None, "a"), [(START, "a")], saver)
        assert world.resume(graph, "later", thread_id="t") == {"x": 1, "log": [("a", "later")]}


# --- 6.12 ---------------------------------------------------------------------------------------------------------


def test_new_input_on_a_paused_thread_starts_again(
    world: World, saver: Saver, ran: Ran, caplog: pytest.LogCaptureFixture
) -> None:
    """6.12: new input starts at the entry on the stored state; what was dropped is logged and listed."""
    caplog.set_level(logging.INFO, "pregel")
    nodes = {"s": world.node(lambda s: {"log": ["s"], "flash": 1}), **asks(world, ran, "a", "b")}
    graph = build(State, nodes, [(START, "s"), ("s", "a"), ("s", "b")], saver)
    world.invoke(graph, {"x": 1}, thread_id="t")
    world.resume(graph, answers={"a@2#0": 1}, thread_id="t")
    result = world.invoke(graph, {"log": ["new"]}, thread_id="t")
    assert result["log"] == ["s", "new", "s"]
    assert result["x"] == 1
    history = world.history(graph, thread_id="t")
    begun = next(state for state in history if state.metadata["source"] == "input")
    assert begun.metadata["discarded"] == ["a@2", "b@2"]
    assert "flash" not in begun.values
    assert "discarded" in caplog.text
    assert ran.counts == {"a": 3, "b": 2}
    assert not set(ids(result)) & {"a@2#0", "b@2#0"}


def test_a_discarded_question_cannot_be_answered(world: World, saver: Saver) -> None:
    """6.12: the questions of discarded tasks are gone, and answers given to them reach nobody."""
    graph = one(world, saver)
    paused = world.invoke(graph, {"x": 2}, thread_id="t")
    assert ids(paused) != ["a@1#0"]
    refused(saver, lambda: world.resume(graph, answers={"a@1#0": 1}, thread_id="t"), InvalidAnswerError)
    assert world.resume(graph, "new", thread_id="t") == {"x": 2, "log": [("a", "new")]}


def test_new_input_can_be_refused_on_a_paused_thread(world: World, saver: Saver) -> None:
    """6.12: `if_paused="error"` refuses instead, names what is pending, and allows input when nothing is."""
    graph = one(world, saver)
    error = refused(saver, lambda: world.invoke(graph, {}, thread_id="t", if_paused="error"), ThreadPausedError)
    assert "a@1" in str(error)
    world.resume(graph, 1, thread_id="t")
    assert ids(world.invoke(graph, {}, thread_id="t", if_paused="error"))
    refused(saver, lambda: world.invoke(graph, {}, thread_id="t", if_paused="maybe"), InvalidRequestError)


def test_a_question_of_the_entry_needs_no_earlier_step(world: World) -> None:
    """6.8: pausing in the very first step works and costs nothing more."""
    saver = InMemorySaver()
    graph = one(world, saver)
    assert [i.id for i in world.state(graph, thread_id="t").interrupts] == ["a@1#0"]


@pytest.mark.parametrize("key", ["a/b", "50%", "a|b", "x@1", "n#0", "wow!", "%2f", ""])
def test_answers_are_read_by_the_key_as_it_was_given(world: World, saver: Saver, key: str) -> None:
    """6.1, 6.8: `runtime.answers` has a keyed question's own key, separators and all."""

    def node(state: State) -> Any:
        answers = get_runtime().answers
        return {"log": [answers[key]]} if key in answers else GraphInterrupt([Interrupt("?", id=key)])

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    world.invoke(graph, {}, thread_id="t")
    assert world.resume(graph, 1, thread_id="t") == {"log": [1]}
