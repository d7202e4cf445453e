"""Every way a question can arrive (4.3, 5.7, 5.8, 6.1, 6.2, 6.8, 6.10), wherever its node stands: one pause.

The ways are a table, the places another; one test crosses them. What asks nothing after all has tests of its own below.
"""

import asyncio
import contextlib
import functools
import operator
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, NamedTuple, TypedDict

import pytest

from pregel import (
    Command,
    GraphInterrupt,
    Interrupt,
    InvalidAnswerError,
    NodeError,
    NodeTimeoutError,
    RetryPolicy,
    Runtime,
    Saver,
    get_runtime,
    interrupt,
)
from tests.behaviour.calling import Call, calling, noted
from tests.helpers import END, START, Ran, World, build, ids


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


Ask = Callable[[], Any]
"""Asks in one way; once answered, returns the list of answers."""

Shape = Callable[[Ask], Any]
"""What a node does around its question."""


def answered(*marks: int | str) -> list[Any]:
    """Return the answers by index or key if all are there: what a node reads that returns or raises its questions."""
    answers = get_runtime().answers
    return [answers[mark] for mark in marks] if all(mark in answers for mark in marks) else []


# --- ways to ask ----------------------------------------------------------------------------------------------------


def returns(payload: Any, *marks: int | str) -> Ask:
    return lambda: answered(*marks or (0,)) or GraphInterrupt(payload)


def raising(payload: Any, *marks: int | str) -> Ask:
    def ask() -> list[Any]:
        if not (found := answered(*marks or (0,))):
            raise GraphInterrupt(payload)
        return found

    return ask


raises = raising("?")


def asks() -> list[Any]:
    return [interrupt("?")]


def returns_nothing() -> Any:
    return answered(0) or GraphInterrupt()


def raises_the_class() -> Any:
    if not (found := answered(0)):
        raise GraphInterrupt
    return found


def raises_beside_an_empty_list() -> Any:
    if not (found := answered(0)):
        raise BaseExceptionGroup("", [GraphInterrupt([]), GraphInterrupt("?")])
    return found


def in_helpers(ask: Ask, depth: int = 5) -> Any:
    return in_helpers(ask, depth - 1) if depth else ask()


def in_a_generator(ask: Ask) -> Any:
    def found() -> Iterator[Any]:
        yield from ask()

    return list(found())


def in_a_callback(ask: Ask) -> Any:
    return functools.reduce(lambda found, one: found + one(), [ask], [])


# --- what can be around a question -----------------------------------------------------------------------------------


def as_a_cause(ask: Ask) -> Any:
    try:
        return ask()
    except BaseException as pause:
        raise ValueError("wrapped") from pause


def as_a_context(ask: Ask) -> Any:
    try:
        return ask()
    except BaseException:
        raise ValueError("while handling")  # noqa: B904 - the context is what is tested


def deep_in_a_chain(ask: Ask) -> Any:
    for wrap in (as_a_cause, as_a_context) * 4:
        ask = partial(wrap, ask)
    return ask()


def under_a_failing_cleanup(ask: Ask) -> Any:
    found = None
    try:
        found = ask()
    finally:
        if found is None:
            raise OSError("closed already")
    return found


class Closing:
    """A context manager that cannot be left by an exception."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, *error: object) -> None:
        if kind is not None:
            raise OSError("closed already")


def under_a_failing_exit(ask: Ask) -> Any:
    with Closing():
        return ask()


def in_a_group(ask: Ask) -> Any:
    try:
        return ask()
    except BaseException as pause:
        raise BaseExceptionGroup("tools", [ValueError("another"), pause]) from None


def in_a_group_of_groups(ask: Ask) -> Any:
    try:
        return ask()
    except BaseException as pause:
        inner = BaseExceptionGroup("inner", [KeyError("third"), BaseExceptionGroup("innermost", [pause])])
        raise BaseExceptionGroup("outer", [ExceptionGroup("first", [ValueError("another")]), inner]) from None


def under_a_member_of_a_group(ask: Ask) -> Any:
    try:
        return ask()
    except BaseException as pause:
        member = ValueError("one tool")
        member.__cause__ = pause
        raise ExceptionGroup("tools", [KeyError("another"), member]) from None


def under_a_group(ask: Ask) -> Any:
    try:
        return ask()
    except BaseException as pause:
        raise ExceptionGroup("tools", [KeyError("another")]) from pause


def in_a_circle_of_causes(ask: Ask) -> Any:
    try:
        return ask()
    except BaseException as pause:
        first, second = ValueError("first"), ValueError("second")
        first.__cause__ = second
        second.__cause__ = group = BaseExceptionGroup("", [first, pause])
        group.__cause__ = first
        raise first  # noqa: B904 - its cause is set above


def in_a_circle_of_contexts(ask: Ask) -> Any:
    try:
        return ask()
    except BaseException as error:
        pause = error
    first, second = ValueError("first"), ValueError("second")
    first.__context__ = second
    second.__context__ = group = BaseExceptionGroup("", [first, pause])
    group.__context__ = second
    raise first  # outside of the handler, which would set another context


def turned_to_text(ask: Ask) -> Any:
    try:
        return ask()
    except BaseException as error:
        return [f"failed: {error!r}"]


def in_a_loop_with_a_bare_except(ask: Ask) -> Any:
    found: list[Any] = []
    for _ in range(3):
        try:
            found += ask()
        except:  # noqa: E722 - as a user writes it
            continue
    return found


def in_a_tool_runner(ask: Ask) -> Any:
    tools = {"first": ask, "harmless": list, "second": ask}
    messages: list[Any] = []
    for name, tool in tools.items():
        try:
            messages += tool()
        except BaseException as error:
            messages.append(f"tool {name} failed: {error}")
    return messages


def suppressed(ask: Ask) -> Any:
    with contextlib.suppress(BaseException):
        return ask()
    return ["suppressed"]


def turned_into_a_jump(ask: Ask) -> Any:
    try:
        return ask()
    except BaseException:
        return Command(update={"log": ["lost"]}, goto="jumped")


def followed_by_an_error(ask: Ask) -> Any:
    with contextlib.suppress(BaseException):
        return ask()
    raise KeyError("after the question")


def hidden_by_from_none(ask: Ask) -> Any:
    try:
        return ask()
    except BaseException:
        raise ValueError("hidden") from None


def hidden_by_another_cause(ask: Ask) -> Any:
    try:
        return ask()
    except BaseException:
        raise ValueError("hidden") from KeyError("the cause given")


PLAIN: list[Shape] = [in_helpers, in_a_generator, in_a_callback]
WRAPPED: list[Shape] = [
    as_a_cause,
    as_a_context,
    deep_in_a_chain,
    under_a_failing_cleanup,
    under_a_failing_exit,
    in_a_group,
    in_a_group_of_groups,
    under_a_member_of_a_group,
    under_a_group,
    in_a_circle_of_causes,
    in_a_circle_of_contexts,
]
HIDDEN: list[Shape] = [followed_by_an_error, hidden_by_from_none, hidden_by_another_cause]
SWALLOWED: list[Shape] = [
    turned_to_text,
    in_a_loop_with_a_bare_except,
    in_a_tool_runner,
    suppressed,
    turned_into_a_jump,
]
QUESTIONS: dict[Shape, int] = {in_a_loop_with_a_bare_except: 3, in_a_tool_runner: 2}
"""How many questions a shape asks with `interrupt()`, if more than one: a swallowed one does not stop the node."""


def several_at_once(*ways: Ask) -> Ask:
    """Return what asks in several ways, like several tools, and raises what stopped them as a group."""

    def ask() -> list[Any]:
        found: list[Any] = []
        stopped: list[BaseException] = []
        for one in ways:
            try:
                found += one()
            except BaseException as error:
                stopped.append(error)
        if stopped:
            raise BaseExceptionGroup("several", stopped)
        return found

    return ask


class Arrival(NamedTuple):
    """A way to ask, and what is asked: payloads and marks, in order."""

    ask: Ask
    questions: list[tuple[Any, str]] = [("?", "0")]


def named(shape: Shape) -> str:
    return shape.__name__.replace("_", " ")


MIXED: list[Any] = ["x", Interrupt({"q": 1}), Interrupt("z", id="k"), None]
MIXED_MARKS: list[tuple[Any, str]] = [("x", "0"), ({"q": 1}, "1"), ("z", "=k"), (None, "2")]

ARRIVALS: dict[str, Arrival] = {
    "returned: nothing": Arrival(returns_nothing, [(None, "0")]),
    "returned: a value": Arrival(returns({"q": [1]}), [({"q": [1]}, "0")]),
    "returned: an Interrupt": Arrival(returns(Interrupt("?"))),
    "returned: a list of one": Arrival(returns(["?"])),
    "returned: a tuple": Arrival(returns(("x", "y"), 0, 1), [("x", "0"), ("y", "1")]),
    "returned: a list of all kinds": Arrival(returns(MIXED, 0, 1, "k", 2), MIXED_MARKS),
    "raised: the class": Arrival(raises_the_class, [(None, "0")]),
    "raised: a value": Arrival(raises),
    "raised: an Interrupt with a key": Arrival(raising(Interrupt("?", id="k"), "k"), [("?", "=k")]),
    "raised: a list of all kinds": Arrival(raising(MIXED, 0, 1, "k", 2), MIXED_MARKS),
    "raised: several merged": Arrival(
        several_at_once(raising("x", 0), raising(["y", "z"], 1, 2)), [("x", "0"), ("y", "1"), ("z", "2")]
    ),
    "raised: beside an empty list": Arrival(raises_beside_an_empty_list),
    "raised: beside an asked one": Arrival(several_at_once(asks, raising("y", 1)), [("?", "0"), ("y", "1")]),
    "asked: plainly": Arrival(asks),
    "asked: under a key": Arrival(lambda: [interrupt("?", key="k")], [("?", "=k")]),
    "asked: several merged": Arrival(several_at_once(asks, asks), [("?", "0"), ("?", "1")]),
}
ARRIVALS |= {f"raised: {named(shape)}": Arrival(partial(shape, raises)) for shape in PLAIN + WRAPPED}
ARRIVALS |= {
    f"asked: {named(shape)}": Arrival(partial(shape, asks), [("?", str(n)) for n in range(QUESTIONS.get(shape, 1))])
    for shape in PLAIN + WRAPPED + HIDDEN + SWALLOWED
}


# --- where the node stands -------------------------------------------------------------------------------------------

ASKERS = ("asks", "async_asks")
POLICY = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False, retry_on=lambda error: True)


class Setting(NamedTuple):
    """Options of the asking nodes, and the node of an outer graph that runs theirs, if any.

    `flaky`: the first attempt of each run of a node fails before it asks, so that the question comes with the second.
    """

    options: dict[str, Any] = {}
    flaky: bool = False
    outer: str = ""

    @property
    def bodies(self) -> int:
        """How many bodies one run of an asking node takes."""
        return 2 if self.flaky else 1


SETTINGS = {
    "retried": Setting({"retry_policy": POLICY}, flaky=True),
    "retried, with a time limit": Setting({"retry_policy": POLICY, "timeout": 60.0}, flaky=True),
    "in a graph as a node": Setting(outer="node"),
    "in a called graph": Setting(outer="call"),
}


def asker(ran: Ran, name: str, ask: Ask, setting: Setting) -> Callable[[State], Any]:
    """Return a node that asks, and that leads to `jumped` with its answers."""

    def node(state: State) -> Any:
        ran(name)
        if setting.flaky and get_runtime().attempt == 1:
            raise ConnectionError("the first attempt")
        result = ask()
        return (
            result if isinstance(result, GraphInterrupt | Command) else Command(update={"log": result}, goto="jumped")
        )

    return node


def marks(world: World, ran: Ran, *names: str) -> dict[str, Any]:
    return {name: world.node(lambda s, name=name: noted(ran, name, {"log": [name]})) for name in names}


def asking(world: World, ran: Ran, ask: Ask, setting: Setting, saver: Saver | None) -> Any:
    """Return a graph in which a sync and an async node ask beside one that does not, with every kind of way onward."""
    options = {**setting.options, "destinations": ["jumped"]}
    nodes: dict[str, Any] = {
        "asks": (asker(ran, "asks", ask, setting), options),
        "async_asks": (World("async").node(asker(ran, "async_asks", ask, setting)), options),
        **marks(world, ran, "beside", "then", "jumped"),
    }
    edges = [*((START, name) for name in (*ASKERS, "beside")), *((name, "then") for name in ASKERS)]
    branches = [(name, lambda s: noted(ran, "router", END)) for name in ASKERS]
    return build(State, nodes, edges, saver, branches=branches)


def placed(world: World, ran: Ran, ask: Ask, setting: Setting, saver: Saver) -> Any:
    """Return the asking graph where the setting puts it: alone, or in a graph with a sibling and a successor."""
    if not setting.outer:
        return asking(world, ran, ask, setting, saver)
    child = asking(world, ran, ask, setting, None)

    def body(state: State) -> Any:
        return {"log": (yield Call(child, {}))["log"]}

    nodes = {"p": child if setting.outer == "node" else calling(world, body), **marks(world, ran, "outside", "after")}
    return build(State, nodes, [(START, "p"), (START, "outside"), ("p", "after")], saver)


@pytest.mark.parametrize("saver", ["memory"], indirect=True)  # what is stored is the same for all; see the next test
@pytest.mark.parametrize("where", SETTINGS)
@pytest.mark.parametrize("arrival", ARRIVALS)
def test_every_arrival_is_the_same_pause(world: World, saver: Saver, arrival: str, where: str, ran: Ran) -> None:
    """However a question arrives and wherever its node stands, its task pauses alone and goes on with the answer.

    6.1, 6.2, 6.10: the ids and payloads; 4.3: no write and no way onward of the asking tasks; 5.2: siblings are kept;
    5.7, 5.8: a pause is not retried and takes no attempt, with a time limit as without; 6.8: the answers.
    """
    (ask, questions), setting = ARRIVALS[arrival], SETTINGS[where]
    graph = placed(world, ran, ask, setting, saver)
    prefix, outside = ("p@1|", ["outside"]) if setting.outer else ("", [])
    paused = world.invoke(graph, {}, thread_id="t")
    asked = {f"{prefix}{name}@1#{mark}": payload for name in ASKERS for payload, mark in questions}
    assert [(i.id, i.value) for i in paused.pop("__interrupt__")] == list(asked.items())
    assert paused == {"log": []}
    finished = dict.fromkeys(["beside", *outside], 1)
    assert ran.counts == {**finished, **dict.fromkeys(ASKERS, setting.bodies)}

    result = world.resume(graph, answers={id_: f"answer to {id_}" for id_ in asked}, thread_id="t")
    inner = [*(f"answer to {id_}" for id_ in asked), "beside", "then", "jumped"]
    assert result == {"log": [*inner, *outside, *(["after"] if outside else [])]}
    onward = dict.fromkeys(["then", "jumped", *(["after"] if outside else [])], 1)
    assert ran.counts == {**finished, **onward, "router": 2, **dict.fromkeys(ASKERS, 2 * setting.bodies)}


# --- what asks all the same ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [*WRAPPED, *HIDDEN, *SWALLOWED], ids=named)
def test_a_childs_question_arrives_through_its_caller(world: World, saver: Saver, shape: Shape, ran: Ran) -> None:
    """6.1, 6.10, 8.2: whatever a function node does around `child.invoke`, its child's question is asked and answered.

    5.7: and the caller is not retried for it; a finished node of the child does not run again.
    """

    def asking(state: State) -> dict[str, Any]:
        ran("asks")
        return {"log": asks()}

    inner = {**marks(world, ran, "before"), "asks": world.node(asking)}
    child = build(State, inner, [(START, "before"), ("before", "asks")])

    def caller(state: State) -> Any:
        ran("caller")
        result = shape(lambda: child.invoke({})["log"])
        return result if isinstance(result, Command) else {"log": result}

    asked = QUESTIONS.get(shape, 1)
    options = {"retry_policy": POLICY, "destinations": ["jumped"]}
    nodes = {"p": (caller, options), **marks(world, ran, "jumped")}
    graph = build(State, nodes, [(START, "p")], saver)
    questions = ids(world.invoke(graph, {}, thread_id="t"))
    assert len(set(questions)) == asked
    assert ran.counts == {"caller": 1, "before": asked, "asks": asked}
    result = world.resume(graph, answers=dict.fromkeys(questions, "yes"), thread_id="t")
    assert result == {"log": ["before", "yes"] * asked}
    assert ran.counts == {"caller": 2, "before": asked, "asks": 2 * asked}


def test_a_question_returned_beside_a_swallowed_one_is_asked_in_its_turn(world: World, saver: Saver) -> None:
    """6.1, 6.8: what the attempt noted outranks what it returns; the re-run returns it again, as question 1."""

    def node(state: State) -> Any:
        with contextlib.suppress(BaseException):
            interrupt("x")
        return {"log": answered(0, 1)} if answered(0, 1) else GraphInterrupt("y")

    graph = build(State, {"a": world.node(node)}, [(START, "a")], saver)
    assert world.invoke(graph, {}, thread_id="t")["__interrupt__"] == [Interrupt("x", id="a@1#0")]
    assert world.resume(graph, 1, thread_id="t")["__interrupt__"] == [Interrupt("y", id="a@1#1")]
    assert world.resume(graph, 2, thread_id="t") == {"log": [1, 2]}


def hangs(world: World, first: Callable[[], Any], last: Callable[[], Any]) -> Any:
    """Return a node that does `first`, and if that does not return, hangs until it is stopped and then does `last`."""

    def node(state: State, runtime: Runtime[Any]) -> Any:
        with contextlib.suppress(GraphInterrupt):
            return first()
        pause = threading.Event()
        while not runtime.cancelled:
            pause.wait(0.002)
        return last()

    async def anode(state: State) -> Any:
        with contextlib.suppress(GraphInterrupt):
            return first()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass  # it does not care about its stop, no more than `node` does
        return last()

    return anode if world.is_async else node


def test_a_question_stands_when_the_time_limit_passes(world: World, saver: Saver, ran: Ran) -> None:
    """6.1, 5.8: a noted question outranks the time-out of its attempt, and is not retried for it (5.7)."""

    def first() -> dict[str, Any]:
        ran("a")
        return {"log": asks()}

    node = hangs(world, first, lambda: {"log": ["too late"]})
    graph = build(State, {"a": (node, {"timeout": 0.2, "retry_policy": POLICY})}, [(START, "a")], saver)
    assert world.invoke(graph, {}, thread_id="t") == {"log": [], "__interrupt__": [Interrupt("?", id="a@1#0")]}
    assert ran.counts == {"a": 1}
    assert world.resume(graph, "yes", thread_id="t") == {"log": ["yes"]}


@pytest.mark.parametrize("last", [raises, returns("?"), asks], ids=["raised", "returned", "asked"])
def test_a_question_after_the_time_limit_is_none(world: World, saver: Saver, last: Ask) -> None:
    """5.8: the ending is fixed at the limit: what the node raises, returns or asks when it was stopped is nothing."""
    node = hangs(world, raises, last)
    graph = build(State, {"a": (node, {"timeout": 0.05})}, [(START, "a")], saver)
    with pytest.raises(NodeTimeoutError, match="'a'"):
        world.invoke(graph, {}, thread_id="t")
    assert world.state(graph, thread_id="t").interrupts == ()


# --- what asks nothing -----------------------------------------------------------------------------------------------

KINDS = ["sync", "async"]


def lone(ran: Ran, kind: str, ask: Ask, saver: Saver, **options: Any) -> Any:
    """Return a graph of one asking node of either kind."""
    setting = Setting({**options, "destinations": ["jumped"]})
    nodes = {
        "a": (World(kind).node(asker(ran, "a", ask, setting)), setting.options),
        "jumped": lambda s: noted(ran, "jumped", None),
    }
    return build(State, nodes, [(START, "a")], saver)


def nothing_is_asked(world: World, graph: Any, status: str) -> None:
    """Check that a thread has no question, and takes no answer."""
    state = world.state(graph, thread_id="t")
    assert (state.interrupts, state.status) == ((), status)
    with pytest.raises(InvalidAnswerError):
        world.resume(graph, "yes", thread_id="t")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", [None, POLICY], ids=["once", "retried"])
@pytest.mark.parametrize("shape", HIDDEN, ids=named)
def test_a_hidden_interrupt_is_an_error(
    world: World, saver: Saver, shape: Shape, policy: RetryPolicy | None, kind: str, ran: Ran
) -> None:
    """6.10, 5.7: behind `from None`, another cause or a later error a raised interrupt is no question but an error."""
    graph = lone(ran, kind, partial(shape, raises), saver, retry_policy=policy)
    with pytest.raises((ValueError, KeyError)):
        world.invoke(graph, {}, thread_id="t")
    assert ran.counts == {"a": 3 if policy else 1}
    nothing_is_asked(world, graph, "failed")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SWALLOWED, ids=named)
def test_an_interrupt_that_never_leaves_its_node_asks_nothing(
    world: World, saver: Saver, shape: Shape, kind: str, ran: Ran
) -> None:
    """6.1: what a node raises and catches itself the engine never sees, unlike what `interrupt()` has noted."""
    graph = lone(ran, kind, partial(shape, raises), saver)
    assert "__interrupt__" not in world.invoke(graph, {}, thread_id="t")
    assert ran.counts == {"a": 1, "jumped": 1}
    nothing_is_asked(world, graph, "done")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [in_helpers, as_a_cause, in_a_group_of_groups], ids=named)
def test_an_empty_list_that_is_raised_fails(world: World, saver: Saver, shape: Shape, kind: str, ran: Ran) -> None:
    """6.2: a pause without a question could never be answered, so it is an error, wherever it is found."""
    graph = lone(ran, kind, partial(shape, raising([])), saver)
    with pytest.raises(NodeError, match="empty list"):
        world.invoke(graph, {}, thread_id="t")
    assert ran.counts == {"a": 1}
    nothing_is_asked(world, graph, "failed")
