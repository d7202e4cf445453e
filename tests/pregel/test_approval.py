"""Approval of tool calls (14.1 to 14.3): what is asked, what is a decision, and that nothing runs without one."""

import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

from pregel import (
    GraphValidationError,
    InMemorySaver,
    InvalidRequestError,
    Saver,
    SqliteSaver,
    get_runtime,
    interrupt,
)
from pregel.approval import Policy, ToolCall, approve, tool_node
from tests.helpers import START, Ran, World, build
from tests.helpers import ids as full_ids


class State(TypedDict, total=False):
    calls: list[Any]
    messages: Annotated[list[Any], operator.add]
    log: Annotated[list[Any], operator.add]


def ids(result: Mapping[str, Any]) -> list[str]:
    """Return the interrupt ids without what they say of the calls."""
    return [id_.rpartition(".")[0] for id_ in full_ids(result)]


def call(id_: str, name: str = "pay", **arguments: Any) -> ToolCall:
    return {"id": id_, "name": name, "arguments": arguments}


def decision(id_: str, decided: Any, name: str = "pay", **more: Any) -> dict[str, Any]:
    return {"id": id_, "name": name, "decision": decided, **more}


def response(id_: str, content: Any, name: str = "pay") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "name": name, "content": content}


def asked(id_: str, name: str = "pay", description: str = "", **arguments: Any) -> dict[str, Any]:
    return {**call(id_, name, **arguments), "description": description, "question": f"Run {name}?"}


def deciding(world: World, saver: Saver | None, policy: Policy = ("pay",), key: str | None = None) -> Any:
    """Return a graph whose node logs what was decided on the calls of its state."""

    def node(state: State) -> dict[str, Any]:
        decided = approve(state["calls"], policy, key)
        return {"log": [decided.calls, decided.responses]}

    return build(State, {"a": world.node(node)}, [(START, "a")], saver)


def start(world: World, saver: Saver, *calls: ToolCall, policy: Policy = ("pay",)) -> tuple[Any, dict[str, Any]]:
    """Return a graph that has been run with these calls, and the payload of its pause."""
    graph = deciding(world, saver, policy)
    return graph, payload(world.invoke(graph, {"calls": list(calls)}, thread_id="t"))


def payload(result: dict[str, Any]) -> dict[str, Any]:
    [question] = result["__interrupt__"]
    value: dict[str, Any] = question.value
    return value


def waiting(result: dict[str, Any]) -> list[str]:
    return [each["id"] for each in payload(result)["needs_approval"]]


def answer(world: World, graph: Any, value: Any) -> dict[str, Any]:
    return world.resume(graph, value, thread_id="t")


TWO = (call("1", amount=1), call("2", amount=2))


# --- 14.1 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [(), [], {}, {"burn"}, {"pay": False}, {"pay": lambda call: False}])
def test_where_no_call_needs_approval_nothing_pauses(world: World, saver: Saver, policy: Policy) -> None:
    """14.1: none needs it, no pause: every call is approved as it is."""
    graph = deciding(world, saver, policy)
    assert world.invoke(graph, {"calls": list(TWO)}, thread_id="t")["log"] == [list(TWO), []]


def test_no_calls_need_no_approval(world: World, saver: Saver) -> None:
    """14.1: an empty list asks nothing."""
    assert world.invoke(deciding(world, saver), {"calls": []}, thread_id="t")["log"] == [[], []]


def test_one_pause_lists_what_needs_approval_and_what_does_not(world: World, saver: Saver) -> None:
    """14.1: one pause with id, name, arguments, description and question of each, and the automatic calls beside."""
    policy = {"pay": "Moves money", "burn": True}
    calls = call("1", amount=5), call("2", "look", at="it"), call("3", "burn"), call("4", "look")
    graph, told = start(world, saver, *calls, policy=policy)
    assert told == {
        "needs_approval": [asked("1", description="Moves money", amount=5), asked("3", "burn")],
        "automatic": [call("2", "look", at="it"), call("4", "look")],
        "refused": [],
    }
    assert world.state(graph, thread_id="t").interrupts[0].value == told


def test_both_lists_are_there_when_one_is_empty(world: World, saver: Saver) -> None:
    """14.1: both lists are always present."""
    _, told = start(world, saver, call("1"))
    assert told == {"needs_approval": [asked("1")], "automatic": [], "refused": []}


def test_a_rule_may_look_at_the_call(world: World, saver: Saver) -> None:
    """14.1: the policy may be a function of the call, which says yes, no or a description."""

    def rule(call: ToolCall) -> bool | str:
        amount = call["arguments"]["amount"]
        return f"Moves {amount} EUR" if amount > 99 else amount > 9

    calls = [call(str(amount), amount=amount) for amount in (1, 10, 100)]
    _, told = start(world, saver, *calls, policy={"pay": rule})
    assert told["needs_approval"] == [asked("10", amount=10), asked("100", description="Moves 100 EUR", amount=100)]
    assert told["automatic"] == [call("1", amount=1)]


def test_a_call_carries_only_what_a_call_has(world: World, saver: Saver) -> None:
    """14.1: what a model adds to its calls is neither shown nor handed on."""
    graph, told = start(world, saver, {**call("1"), "type": "function"})  # type: ignore[typeddict-unknown-key] # as said
    assert told["needs_approval"] == [asked("1")]
    assert answer(world, graph, [decision("1", "approve")])["log"] == [[call("1")], []]


def test_an_empty_description_is_a_description() -> None:
    """14.1, 14.2: it means that the call needs approval; a gate does not open because nobody described it."""
    with pytest.raises(InvalidRequestError, match="only inside a node"):
        approve([call("1")], {"pay": ""})


def test_what_is_decided_is_a_copy() -> None:
    """14.1, 2.4: to change the arguments of a decided call does not change the state that it came from."""
    calls = [call("1", amount=1)]
    approve(calls, ()).calls[0]["arguments"]["amount"] = 2
    assert calls == [call("1", amount=1)]


# --- 14.2: decisions ----------------------------------------------------------------------------------------------


def test_each_call_gets_its_own_decision_whatever_their_order(world: World, saver: Saver) -> None:
    """14.2: approve, edit and reject, matched by id and name; calls keep their order."""
    calls = call("1", a=1), call("2", "look"), call("3", a=3), call("4", a=4)
    graph, _ = start(world, saver, *calls)
    decisions = [
        decision("4", "reject", reason="no"),
        decision("3", "edit", arguments={"a": 9}),
        decision("1", "approve"),
    ]
    done = answer(world, graph, decisions)
    assert done["log"] == [[call("1", a=1), call("2", "look"), call("3", a=9)], [response("4", "rejected: no")]]


def test_an_edit_changes_arguments_only(world: World, saver: Saver) -> None:
    """14.2: an edit replaces the arguments as a whole, with none too, and nothing else."""
    graph, _ = start(world, saver, *TWO)
    edits = [decision("1", "edit", arguments={}), decision("2", "edit", arguments={"b": 1}, question="other")]
    assert answer(world, graph, edits)["log"] == [[call("1"), call("2", b=1)], []]


EMPTY: list[Any] = [
    None,
    "",
    {},
    [],
    (),
    [None],
    [{}],
    [decision("1", None)],
    [decision("1", "")],
    [decision("1", {}), {"id": "2", "name": "pay"}],
]


@pytest.mark.parametrize("nothing", EMPTY, ids=repr)
def test_an_empty_decision_asks_again(world: World, nothing: Any) -> None:
    """14.2: what decides nothing is asked again, for as long as it takes, and is no fault."""
    graph, told = start(world, InMemorySaver(), *TWO)
    assert payload(answer(world, graph, nothing)) == told
    again = answer(world, graph, nothing)
    assert payload(again) == told
    assert ids(again) == ["a@1#=approve.2"]
    done = answer(world, graph, [decision("1", "approve"), decision("2", "approve")])
    assert done["log"] == [list(TWO), []]


def test_only_the_missing_ones_are_asked_again(world: World, saver: Saver) -> None:
    """14.2: decisions that were given are kept, over several rounds; the automatic calls are listed each time."""
    calls = call("1"), call("2"), call("3"), call("x", "look")
    graph, _ = start(world, saver, *calls)
    second = answer(world, graph, [decision("2", "reject", reason="no")])
    assert payload(second) == {
        "needs_approval": [asked("1"), asked("3")],
        "automatic": [call("x", "look")],
        "refused": [],
    }
    assert waiting(answer(world, graph, [decision("3", "edit", arguments={"b": 1})])) == ["1"]
    done = answer(world, graph, [decision("1", "approve")])
    assert done["log"] == [[call("1"), call("3", b=1), call("x", "look")], [response("2", "rejected: no")]]


UNKNOWN = {
    "an unknown id": decision("9", "approve"),
    "another name": decision("2", "approve", name="look"),
    "an automatic call": decision("x", "reject", name="look", reason="no"),
    "a decided call": decision("1", "reject", reason="no"),
}


@pytest.mark.parametrize("entry", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_unknown_entries_are_ignored_with_a_warning(
    world: World, saver: Saver, entry: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """14.2: an entry for a call that does not wait decides nothing; the log says so, without its arguments."""
    graph, _ = start(world, saver, *TWO, call("x", "look"))
    answer(world, graph, [decision("1", "approve")])
    caplog.set_level(logging.WARNING, "pregel")
    again = answer(world, graph, [entry])
    assert payload(again) == {"needs_approval": [asked("2", amount=2)], "automatic": [call("x", "look")], "refused": []}
    [record] = caplog.records
    assert "is not waiting" in record.getMessage()
    assert vars(record).items() >= {"task": "a@1", "call": entry["id"], "tool": entry["name"]}.items()
    done = answer(world, graph, [decision("2", "approve")])
    assert done["log"] == [[*TWO, call("x", "look")], []]


WRONG: list[tuple[Any, str]] = [
    ("approve", "a list of decisions, not str"),
    (True, "a list of decisions, not bool"),
    (False, "a list of decisions, not bool"),
    (0, "a list of decisions, not int"),
    (b"", "a list of decisions, not bytes"),
    ({"1": "approve"}, "a list of decisions, not dict"),
    (decision("1", "approve"), "a list of decisions, not dict"),
    (["approve"], "entry 0 is no dict"),
    ([False], "entry 0 is no dict"),
    ([None, ["1", "pay", "approve"]], "entry 1 is no dict"),
    ([{"decision": "approve"}], "entry 0 is no dict with the texts `id` and `name`"),
    ([{"id": "1", "decision": "approve"}], "entry 0 is no dict with the texts `id` and `name`"),
    ([{"id": 1, "name": "pay", "decision": "approve"}], "entry 0 is no dict with the texts `id` and `name`"),
    ([{"id": "1", "name": ["pay"], "decision": "approve"}], "entry 0 is no dict with the texts `id` and `name`"),
    ([decision("1", "yes")], "pay 1: a decision is `approve`, `edit` or `reject`, not 'yes'"),
    ([decision("1", "Approve")], "not 'Approve'"),
    ([decision("1", True)], "not True"),
    ([decision("1", False)], "not False"),
    ([decision("1", ["approve"])], "not ['approve']"),
    ([decision("1", "edit")], "pay 1: an edit needs `arguments`"),
    ([decision("1", "edit", arguments=None)], "an edit needs `arguments`"),
    ([decision("1", "edit", arguments=["amount", 1])], "an edit needs `arguments`"),
    ([decision("1", "edit", arguments='{"amount": 1}')], "an edit needs `arguments`"),
    ([decision("1", "edit", arguments={1: 2})], "an edit needs `arguments`"),
    ([decision("1", "reject", reason=7)], "pay 1: the reason of a rejection is a text"),
    ([decision("1", "reject", reason=["no"])], "the reason of a rejection is a text"),
    ([decision("1", "approve", arguments={"amount": 2})], "pay 1: it has other arguments than were approved"),
    ([decision("1", "approve"), decision("1", "reject"), decision("1", "approve")], "pay 1: it is decided twice"),
]


@pytest.mark.parametrize(("wrong", "reason"), WRONG, ids=[repr(wrong) for wrong, _ in WRONG])
def test_a_wrong_type_is_refused_with_the_reason_and_a_right_answer_goes_on(
    world: World, wrong: Any, reason: str
) -> None:
    """14.2: a wrong type is refused: nothing is decided, the question says why, and the thread is not stuck."""
    graph, told = start(world, InMemorySaver(), call("1", amount=1))
    again = payload(answer(world, graph, wrong))
    [refused] = again.pop("refused")
    assert reason in refused
    assert again == {name: told[name] for name in again}
    assert world.state(graph, thread_id="t").values == {"calls": [call("1", amount=1)], "messages": [], "log": []}
    assert answer(world, graph, [decision("1", "approve")])["log"] == [[call("1", amount=1)], []]


def test_what_is_right_beside_a_refused_decision_counts(world: World, saver: Saver) -> None:
    """14.2: the others of the same answer are kept, and what was refused is told once."""
    graph, _ = start(world, saver, *TWO)
    again = answer(world, graph, [decision("1", "yes"), decision("2", "approve"), 5])
    assert waiting(again) == ["1"]
    assert len(payload(again)["refused"]) == 2
    assert payload(answer(world, graph, []))["refused"] == []
    assert answer(world, graph, [decision("1", "approve")])["log"] == [list(TWO), []]


def test_the_same_decision_twice_is_one(world: World, saver: Saver) -> None:
    """14.2: a decision that is repeated word for word contradicts nothing."""
    graph, _ = start(world, saver, call("1"))
    assert answer(world, graph, [decision("1", "approve")] * 2)["log"] == [[call("1")], []]


def test_a_front_end_may_send_back_what_it_was_shown(world: World, saver: Saver) -> None:
    """14.2: the listed call with a decision added is a decision."""
    graph, told = start(world, saver, *TWO)
    decisions = [{**each, "decision": "approve"} for each in told["needs_approval"]]
    assert answer(world, graph, decisions)["log"] == [list(TWO), []]


def test_an_approval_holds_for_what_was_shown_only(world: World, saver: Saver) -> None:
    """14.2: if the state is edited between question and answer, nobody has decided on what is there now."""
    graph, _ = start(world, saver, call("1", amount=1))
    world.update(graph, {"configurable": {"thread_id": "t"}}, {"calls": [call("1", amount=1000)]})
    again = answer(world, graph, [decision("1", "approve")])
    assert payload(again) == {"needs_approval": [asked("1", amount=1000)], "automatic": [], "refused": []}
    assert answer(world, graph, [decision("1", "approve")])["log"] == [[call("1", amount=1000)], []]


def test_an_approval_with_other_arguments_is_refused(world: World, saver: Saver) -> None:
    """14.2: whoever changes arguments says that it is an edit."""
    graph, _ = start(world, saver, call("1", amount=1))
    again = answer(world, graph, [decision("1", "approve", arguments={"amount": 2})])
    assert "other arguments" in payload(again)["refused"][0]


def test_a_tool_that_returns_an_awaitable_unexpectedly_is_no_silent_success(world: World, saver: Saver) -> None:
    """14.2: a sync function that returns a coroutine has not run."""

    async def pay() -> None:
        """Do nothing."""

    pending = pay()
    node = tool_node({"pay": lambda: pending})
    graph = build(State, {"a": node}, [(START, "a")], saver)
    with pytest.raises(InvalidRequestError, match="'pay' returned an awaitable"):
        world.invoke(graph, {"messages": [{"tool_calls": [call("1")]}]}, thread_id="t")
    pending.close()


# --- 14.2: rounds, keys and places --------------------------------------------------------------------------------


def test_two_approvals_in_one_node_have_their_own_answers(world: World, saver: Saver) -> None:
    """14.2, 6.8: a node that approves in a loop asks for each lap, if it names them."""

    def node(state: State) -> dict[str, Any]:
        return {"log": [approve(state["calls"], ["pay"], f"lap {lap}").calls for lap in range(2)]}

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    assert ids(world.invoke(graph, {"calls": [call("1")]}, thread_id="t")) == ["a@1#=lap 0.0"]
    assert ids(answer(world, graph, [])) == ["a@1#=lap 0.1"]
    assert ids(answer(world, graph, [decision("1", "approve")])) == ["a@1#=lap 1.0"]
    done = answer(world, graph, [decision("1", "edit", arguments={"lap": 2})])
    assert done["log"] == [[call("1")], [call("1", lap=2)]]


def test_approvals_with_keys_keep_their_answers_in_any_order(world: World, saver: Saver) -> None:
    """14.2, 6.8: with a key an approval is told apart by it, in each of its rounds."""

    def node(state: State) -> dict[str, Any]:
        order = ["x", "y"] if len(get_runtime().answers) % 2 == 0 else ["y", "x"]
        decided = {key: approve([call("1", of=key)], ["pay"], key).responses for key in order}
        return {"log": [decided["x"], decided["y"]]}

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    assert ids(world.invoke(graph, {}, thread_id="t")) == ["a@1#=x.0"]
    assert ids(answer(world, graph, [decision("1", "reject", reason="x")])) == ["a@1#=y.0"]
    assert ids(answer(world, graph, [])) == ["a@1#=y.1"]
    done = answer(world, graph, [decision("1", "reject", reason="y")])
    assert done["log"] == [[response("1", "rejected: x")], [response("1", "rejected: y")]]


def test_an_answer_under_a_used_key_decides_on_no_other_call(world: World, saver: Saver) -> None:
    """14.2, 6.8: the same key gives the same answer, which is of no use to calls with other ids."""

    def node(state: State) -> dict[str, Any]:
        return {"log": [approve([each], ["pay"], "k").calls for each in state["calls"]]}

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    assert waiting(world.invoke(graph, {"calls": list(TWO)}, thread_id="t")) == ["1"]
    assert waiting(answer(world, graph, [decision("1", "approve")])) == ["2"]
    assert answer(world, graph, [decision("2", "approve")])["log"] == [[TWO[0]], [TWO[1]]]


def test_an_approval_in_a_nested_graph_is_its_own(world: World, saver: Saver) -> None:
    """14.1, 8.3: two nested graphs in sequence ask about calls that look the same; the second sees no decision."""
    child = deciding(world, None)
    graph = build(State, {"p": child, "q": child}, [(START, "p"), ("p", "q")], saver)
    assert ids(world.invoke(graph, {"calls": [call("1")]}, thread_id="t")) == ["p@1|a@1#=approve.0"]
    second = answer(world, graph, [decision("1", "reject", reason="p")])
    assert ids(second) == ["q@4|a@1#=approve.0"]
    assert payload(second)["refused"] == []
    done = answer(world, graph, [decision("1", "approve")])
    assert done["log"] == [[], [response("1", "rejected: p")], [call("1")], []]


def test_parallel_approvals_are_answered_one_by_one(world: World, saver: Saver) -> None:
    """14.1, 6.7: two nodes ask in one step; each is answered by the id of its question."""
    nodes = {name: world.node(lambda s, n=name: {"log": [(n, approve([call("1")], ["pay"]).calls)]}) for name in "ab"}
    graph = build(State, nodes, [(START, "a"), (START, "b")], saver)
    paused = world.invoke(graph, {}, thread_id="t")
    assert ids(paused) == ["a@1#=approve.0", "b@1#=approve.0"]
    yes, no = [decision("1", "approve")], [decision("1", "reject")]
    assert ids(world.resume(graph, answers={full_ids(paused)[1]: no}, thread_id="t")) == ["a@1#=approve.0"]
    assert answer(world, graph, yes)["log"] == [("a", [call("1")]), ("b", [])]


def test_decisions_survive_a_restart(world: World, tmp_path: Path) -> None:
    """14.2, 6.8: asked, answered in part and finished by three graphs on three connections to one database."""
    answers: Sequence[Any] = [decision("2", "approve")], [decision("1", "edit", arguments={"amount": 3})]
    with SqliteSaver(tmp_path / "runs.db") as saver:
        start(world, saver, *TWO)
    with SqliteSaver(tmp_path / "runs.db") as saver:
        assert waiting(answer(world, deciding(world, saver), answers[0])) == ["1"]
    with SqliteSaver(tmp_path / "runs.db") as saver:
        assert answer(world, deciding(world, saver), answers[1])["log"] == [[call("1", amount=3), TWO[1]], []]


# --- 14.1: what is malformed --------------------------------------------------------------------------------------

MALFORMED: list[tuple[Any, str]] = [
    ("pay", "tool calls are a list, not str"),
    (None, "tool calls are a list, not NoneType"),
    (call("1"), "tool calls are a list, not dict"),
    (["pay"], "tool call 0 is malformed"),
    ([call("1"), {"id": "2", "name": "pay"}], "tool call 1 is malformed"),
    ([{"id": "1", "name": "pay", "args": {}}], "tool call 0 is malformed"),
    ([{"id": 1, "name": "pay", "arguments": {}}], "tool call 0 is malformed"),
    ([{"id": "1", "name": None, "arguments": {}}], "tool call 0 is malformed"),
    ([{"id": "1", "name": "pay", "arguments": "{}"}], "a dict, not JSON"),
    ([{"id": "1", "name": "pay", "arguments": {1: 2}}], "tool call 0 is malformed"),
    ([call("1"), call("1", "look")], "two tool calls have the id '1'"),
]


@pytest.mark.parametrize(("calls", "reason"), MALFORMED, ids=[repr(calls) for calls, _ in MALFORMED])
def test_malformed_calls_are_refused_before_anything_is_asked(calls: Any, reason: str) -> None:
    """14.1: calls are lists of dicts with id, name and arguments, and no two have one id."""
    with pytest.raises(InvalidRequestError, match=reason):
        approve(calls, ["pay"])


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("pay", "not the text 'pay'"),
        ({"pay": None}, "the rule for 'pay' says None"),
        ({"pay": 1}, "the rule for 'pay' says 1"),
        ({"pay": lambda call: None}, "the rule for 'pay' says None"),
    ],
)
def test_a_malformed_policy_opens_no_gate(policy: Any, reason: str) -> None:
    """14.2: a rule that says neither yes nor no is refused; nothing runs without a decision."""
    with pytest.raises(InvalidRequestError, match=reason):
        approve([call("1")], policy)


def test_a_policy_for_a_tool_that_the_node_lacks_is_refused_when_it_is_built() -> None:
    """14.1: a gate with a misspelt name would stand open."""
    with pytest.raises(GraphValidationError, match=r"\['pya'\]; it has \['pay'\]"):
        tool_node({"pay": print}, ["pya"])
    with pytest.raises(InvalidRequestError, match="not the text"):
        tool_node({"pay": print}, "pay")


# --- 14.3 and the ready node --------------------------------------------------------------------------------------


def running(world: World, saver: Saver, ran: Ran, **tools: Callable[..., Any]) -> Any:
    """Return a graph with a node that runs tools: a gated `pay`, a `look`, and others."""

    def pay(amount: int = 0) -> str:
        ran("pay")
        return f"paid {amount}"

    def look() -> dict[str, int]:
        ran("look")
        return {"seen": 1}

    every: dict[str, Callable[..., Any]] = {"pay": pay, "look": look, **tools}
    node = tool_node({name: world.node(tool) for name, tool in every.items()}, ["pay"])
    return build(State, {"tools": node}, [(START, "tools")], saver)


def run(world: World, graph: Any, *calls: ToolCall) -> dict[str, Any]:
    message = {"role": "assistant", "content": "", "tool_calls": list(calls)}
    return world.invoke(graph, {"messages": [message]}, thread_id="t")


def test_a_rejected_call_is_not_executed_and_has_one_response(world: World, saver: Saver, ran: Ran) -> None:
    """14.3: exactly one tool response with the reason, or without where none was given."""
    graph = running(world, saver, ran)
    run(world, graph, *TWO)
    done = answer(world, graph, [decision("1", "reject", reason="too much"), decision("2", "reject")])
    assert done["messages"][1:] == [response("1", "rejected: too much"), response("2", "rejected")]
    assert ran.order == []


def test_the_node_gives_one_response_per_call_in_their_order(world: World, saver: Saver, ran: Ran) -> None:
    """14.1, 14.3: rejected, automatic, edited, unknown and approved calls, each answered in its place."""
    graph = running(world, saver, ran)
    calls = call("1"), call("2", "look"), call("3", amount=3), call("4", "jump"), call("5", amount=5)
    paused = run(world, graph, *calls)
    assert waiting(paused) == ["1", "3", "5"]
    assert payload(paused)["automatic"] == [call("2", "look")]
    assert ran.order == []
    decisions = [decision("5", "approve"), decision("1", "reject", reason="no")]
    done = answer(world, graph, [*decisions, decision("3", "edit", arguments={"amount": 4})])
    assert done["messages"][1:] == [
        response("1", "rejected: no"),
        response("2", {"seen": 1}, "look"),
        response("3", "paid 4"),
        response("4", "unknown tool; known are ['pay', 'look']", "jump"),
        response("5", "paid 5"),
    ]
    assert ran.order == ["look", "pay", "pay"]


def test_no_tool_runs_before_all_are_decided(world: World, saver: Saver, ran: Ran) -> None:
    """14.2: nothing runs in any round of the questions, and each tool once after them."""
    graph = running(world, saver, ran)
    run(world, graph, call("x", "look"), *TWO)
    for value in (None, "approve", [decision("2", "approve")], [decision("1", "yes")]):
        assert "1" in waiting(answer(world, graph, value))
        assert ran.order == []
    answer(world, graph, [decision("1", "approve")])
    assert ran.order == ["look", "pay", "pay"]


def test_calls_that_need_nothing_run_without_a_pause(world: World, saver: Saver, ran: Ran) -> None:
    """14.1: none needs it, no pause."""
    done = run(world, running(world, saver, ran), call("1", "look"))
    assert done["messages"][1:] == [response("1", {"seen": 1}, "look")]


@pytest.mark.parametrize("last", [[], [{"role": "user"}], [{"tool_calls": None}], [{"tool_calls": []}]], ids=repr)
def test_without_calls_the_node_does_nothing(world: World, saver: Saver, last: list[Any], ran: Ran) -> None:
    """14.1: no message, or one without calls, is answered by nothing."""
    assert world.invoke(running(world, saver, ran), {"messages": last}, thread_id="t") == {"messages": last, "log": []}


def test_a_message_that_is_no_dict_is_refused(world: World, saver: Saver, ran: Ran) -> None:
    """14.1: calls that the node could not see must not pass for none."""
    with pytest.raises(InvalidRequestError, match="the last of 'messages' is no plain dict but str"):
        world.invoke(running(world, saver, ran), {"messages": ["pay!"]}, thread_id="t")


def test_the_node_reads_any_kind_of_state_and_any_key(world: World, saver: Saver) -> None:
    """14.1: the messages may lie in a dataclass, under a name of their own."""

    @dataclass
    class Chat:
        turns: Annotated[list[Any], operator.add] = field(default_factory=list)

    node = tool_node({"look": world.node(lambda: 1)}, messages_key="turns")
    graph = build(Chat, {"tools": node}, [(START, "tools")], saver)
    done = world.invoke(graph, {"turns": [{"tool_calls": [call("1", "look")]}]}, thread_id="t")
    assert done["turns"][1:] == [response("1", 1, "look")]


def test_what_a_tool_raises_is_raised_and_the_decisions_stay(world: World, saver: Saver, ran: Ran) -> None:
    """14.2, 5.5: a tool's error is the node's; going on runs the approved calls again and asks nobody."""

    def fails_once() -> str:
        ran("fails")
        if ran.counts["fails"] == 1:
            raise ZeroDivisionError("of the tool")
        return "late"

    graph = running(world, saver, ran, fails=fails_once)
    run(world, graph, call("1", amount=1), call("2", "fails"))
    with pytest.raises(ZeroDivisionError, match="of the tool"):
        answer(world, graph, [decision("1", "approve")])
    done = world.invoke(graph, None, thread_id="t")
    assert done["messages"][1:] == [response("1", "paid 1"), response("2", "late", "fails")]


def test_a_tool_may_ask_and_those_before_it_run_again(world: World, saver: Saver, ran: Ran) -> None:
    """6.8: the stated limit: a question inside a tool comes after the decisions and repeats the tools before it."""
    graph = running(world, saver, ran, ask=lambda: interrupt("how much?"))
    run(world, graph, call("1", amount=1), call("2", "ask"))
    paused = answer(world, graph, [decision("1", "approve")])
    assert [question.value for question in paused["__interrupt__"]] == ["how much?"]
    done = answer(world, graph, 7)
    assert done["messages"][1:] == [response("1", "paid 1"), response("2", 7, "ask")]
    assert ran.order == ["pay", "pay"]


def test_sync_and_async_tools_mix(world: World, saver: Saver) -> None:
    """14.1: one async tool, also an object with an async call, makes the node async; the others run as they are."""

    class Slow:
        async def __call__(self, x: int) -> int:
            return x * 2

    node = tool_node({"slow": Slow(), "look": lambda x: x})
    graph = build(State, {"tools": node}, [(START, "tools")], saver)
    done = run(world, graph, call("1", "look", x=1), call("2", "slow", x=2))
    assert done["messages"][1:] == [response("1", 1, "look"), response("2", 4, "slow")]


def test_a_request_needs_no_saver_to_be_told(world: World) -> None:
    """14.1, 6.11: without a checkpointer the pause is returned too."""
    paused = world.invoke(deciding(world, None), {"calls": [call("1")]})
    assert waiting(paused) == ["1"]


def test_outside_of_a_node_nobody_can_be_asked() -> None:
    """14.1: what needs a decision is refused there, and what needs none is not."""
    assert approve([call("1", "look")], ["pay"]).calls == [call("1", "look")]
    with pytest.raises(InvalidRequestError, match="only inside a node"):
        approve([call("1")], ["pay"])
