"""Graphs inside graphs (8.1 to 8.4, 8.6): each call has its own namespace, its own progress and its own answers."""

import operator
from collections.abc import Callable, Generator
from typing import Annotated, Any, TypedDict

import pytest

from pregel import CallOrderError, InMemorySaver, InvalidRequestError, Saver, Send, interrupt
from tests.behaviour.calling import Call, calling, noted
from tests.helpers import START, Ran, World, build, ids

Calls = Generator[Call, Any, Any]


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    x: int
    y: int


class Mine(TypedDict, total=False):
    out: Annotated[list[Any], operator.add]


def asking(world: World, ran: Ran, name: str = "c") -> Any:
    """Return a child that runs `name1`, asks in `name2` and then runs `name3`."""

    def step(node: str, asks: bool) -> Callable[[State], Any]:
        def run(state: State) -> dict[str, Any]:
            ran(node)
            return {"log": [interrupt(f"{node}?") if asks else node]}

        return world.node(run)

    names = [f"{name}{number}" for number in (1, 2, 3)]
    nodes = {node: step(node, node == names[1]) for node in names}
    return build(State, nodes, [(START, names[0]), (names[0], names[1]), (names[1], names[2])], name=name)


def quick(world: World, **written: Any) -> Any:
    return build(State, {"n": world.node(lambda s: written or None)}, [(START, "n")])


def inside(world: World, saver: Saver | None, body: Callable[[Any], Calls], state: type = Mine) -> Any:
    return build(state, {"p": calling(world, body)}, [(START, "p")], saver)


# --- 8.1 ----------------------------------------------------------------------------------------------------------


def test_a_list_reduced_in_parent_and_child_is_counted_once(world: World, saver: Saver) -> None:
    """8.1: a child starts from the parent's values and hands back the writes of its own nodes only."""
    nodes = {n: world.node(lambda s, n=n: {"log": [(n, list(s["log"]))]}) for n in "cd"}
    child = build(State, nodes, [(START, "c"), ("c", "d")])
    graph = build(State, {"p": child}, [(START, "p")], saver)
    first = ("c", ["in"])
    assert world.invoke(graph, {"log": ["in"], "x": 1}, thread_id="t")["log"] == ["in", first, ("d", ["in", first])]


def test_parallel_children_that_do_not_write_a_key_do_not_collide(world: World, saver: Saver) -> None:
    """8.1: two children share a key that neither changes: nothing is handed back for it."""
    graph = build(State, {"a": quick(world), "b": quick(world, y=2)}, [(START, "a"), (START, "b")], saver)
    assert world.invoke(graph, {"x": 1}, thread_id="t") == {"log": [], "x": 1, "y": 2}


def test_a_child_that_writes_the_value_it_was_given_has_written(world: World, saver: Saver) -> None:
    """8.1: the last value, if written; also when it equals the one before."""
    seen = build(State, {"a": quick(world, x=1), "b": quick(world, x=1)}, [(START, "a"), ("a", "b")], saver)
    assert world.invoke(seen, {"x": 1}, thread_id="t") == {"log": [], "x": 1}


def test_only_shared_keys_cross(world: World, saver: Saver) -> None:
    """8.1: keys that only the child or only the parent has stay where they are."""

    class Child(TypedDict, total=False):
        x: int
        own: int

    seen: list[Any] = []

    def node(state: Child) -> dict[str, Any]:
        seen.append(dict(state))
        return {"x": state["x"] + 1, "own": 5}

    nodes = {"n": world.node(node)}
    graph = build(State, {"p": build(Child, nodes, [(START, "n")])}, [(START, "p")], saver)
    assert world.invoke(graph, {"x": 1, "y": 2}, thread_id="t") == {"log": [], "x": 2, "y": 2}
    assert seen == [{"x": 1}]


def test_a_function_calls_a_child_with_any_input(world: World, saver: Saver) -> None:
    """8.1: the input is folded as for any run, the output is what the child returns."""

    def body(state: Mine) -> Calls:
        result = yield Call(quick(world, log=["n"], x=3), {"log": ["in"]})
        return {"out": [result]}

    assert world.invoke(inside(world, saver, body), {}, thread_id="t") == {"out": [{"log": ["in", "n"], "x": 3}]}


# --- 8.2, 8.3 -----------------------------------------------------------------------------------------------------


def test_resume_reaches_the_paused_task_of_a_node_graph(world: World, saver: Saver, ran: Ran) -> None:
    """8.2: finished inner tasks and finished siblings do not run again."""
    sibling = world.node(lambda s: ran("sibling"))
    graph = build(State, {"p": asking(world, ran), "s": sibling}, [(START, "p"), (START, "s")], saver)
    paused = world.invoke(graph, {}, thread_id="t")
    question = paused["__interrupt__"][0]
    assert (question.node, question.namespace) == ("c2", ("p@1",))
    assert question.id.startswith("p@1|c2@")
    assert world.resume(graph, "yes", thread_id="t") == {"log": ["c1", "yes", "c3"]}
    assert ran.counts == {"c1": 1, "c2": 2, "c3": 1, "sibling": 1}


@pytest.mark.parametrize("call", [True, False], ids=["called", "as nodes"])
def test_five_deep(world: World, saver: Saver, ran: Ran, call: bool) -> None:
    """8.2: at depth five only the asking node, and function nodes that lead to it, run again."""
    graph = asking(world, ran)
    for level in range(5):

        def body(state: State, child: Any = graph, level: int = level) -> Calls:
            ran(f"level{level}")
            result = yield Call(child, {})
            return {"log": result["log"]}

        last = saver if level == 4 else None
        before = world.node(lambda s, level=level: ran(f"before{level}"))
        nodes = {"before": before, "p": calling(world, body) if call else graph}
        graph = build(State, nodes, [(START, "before"), ("before", "p")], last, name=f"level{level}")
    paused = world.invoke(graph, {}, thread_id="t")
    assert len(paused["__interrupt__"][0].namespace) == 5
    assert world.resume(graph, "yes", thread_id="t") == {"log": ["c1", "yes", "c3"]}
    assert (ran.counts["c1"], ran.counts["c2"], ran.counts["c3"]) == (1, 2, 1)
    assert all(ran.counts[f"before{level}"] == 1 for level in range(5))
    assert all(ran.counts[f"level{level}"] == (2 if call else 0) for level in range(5))


def test_a_second_child_starts_fresh(world: World, saver: Saver, ran: Ran) -> None:
    """8.3: two children in sequence: the first is answered and ends; the second sees no answer and asks."""
    first, second = asking(world, ran, "c"), asking(world, ran, "d")
    graph = build(State, {"p": first, "q": second}, [(START, "p"), ("p", "q")], saver)
    world.invoke(graph, {}, thread_id="t")
    paused = world.resume(graph, 1, thread_id="t")
    assert [i.value for i in paused["__interrupt__"]] == ["d2?"]
    assert world.resume(graph, 2, thread_id="t") == {"log": ["c1", 1, "c3", "d1", 2, "d3"]}
    assert ran.counts == {"c1": 1, "c2": 2, "c3": 1, "d1": 1, "d2": 2, "d3": 1}


# --- 8.4 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [(None, None), ("x", "y"), ("1", None)])
def test_the_same_child_twice_in_one_node(world: World, saver: Saver, ran: Ran, keys: tuple[str | None, ...]) -> None:
    """8.4: separate namespaces, by order or by key; a finished call is not run again when the node is."""
    child = asking(world, ran)

    def body(state: Mine) -> Calls:
        results = []
        for key in keys:
            results.append((yield Call(child, {}, key))["log"])
        return {"out": results}

    graph = inside(world, saver, body)
    first = ids(world.invoke(graph, {}, thread_id="t"))
    second = ids(world.resume(graph, 1, thread_id="t"))
    assert first != second
    expected = {"out": [["c1", 1, "c3"], ["c1", 2, "c3"]]}
    assert world.resume(graph, 2, thread_id="t") == expected
    assert ran.counts == {"c1": 2, "c2": 4, "c3": 2}


def test_the_same_key_twice_is_the_same_call(world: World, saver: Saver, ran: Ran) -> None:
    """8.4: a key names a call: called again under it, its finished state is the result and nothing runs again."""
    child = build(State, {"n": world.node(lambda s: noted(ran, "n", {"x": ran.counts["n"]}))}, [(START, "n")])

    def body(state: Mine) -> Calls:
        one = yield Call(child, {}, "k")
        two = yield Call(child, {}, "k")
        return {"out": [one["x"], two["x"]]}

    assert world.invoke(inside(world, saver, body), {}, thread_id="t") == {"out": [0, 0]}


def test_a_child_in_a_loop_asks_on_every_lap(world: World, saver: Saver, ran: Ran) -> None:
    """8.4: in a loop each lap is a call of its own, with its own question."""
    route: Any = lambda s: "p" if len(s["log"]) < 9 else "__end__"  # noqa: E731 - as a user writes it
    graph = build(State, {"p": asking(world, ran)}, [(START, "p")], saver, branches=[("p", route, ["p", "__end__"])])
    result, seen = world.invoke(graph, {}, thread_id="t"), []
    for lap in range(3):
        seen += ids(result)
        result = world.resume(graph, lap, thread_id="t")
    assert result["log"] == ["c1", 0, "c3", "c1", 1, "c3", "c1", 2, "c3"]
    assert len(set(seen)) == 3


def test_a_hundred_packets_to_one_child(world: World, ran: Ran) -> None:
    """8.4: a child run by 100 `Send`s: 100 namespaces, 100 questions, answered in one call in task order."""
    route: Any = lambda s: [Send("p", {"log": []})] * 100  # noqa: E731 - as a user writes it
    graph = build(State, {"p": asking(world, ran)}, [], InMemorySaver(), branches=[(START, route, ["p"])])
    questions = ids(world.invoke(graph, {}, thread_id="t"))
    assert len(set(questions)) == 100
    half = {id_: number for number, id_ in enumerate(questions) if number % 2}
    assert ids(world.resume(graph, answers=half, thread_id="t")) == questions[::2]
    rest = {id_: number for number, id_ in enumerate(questions) if not number % 2}
    log = world.resume(graph, answers=rest, thread_id="t")["log"]
    assert log == [item for number in range(100) for item in ("c1", number, "c3")]
    assert ran.counts == {"c1": 100, "c2": 200, "c3": 100}


def test_a_call_that_meets_another_graphs_state_is_refused(world: World, saver: Saver, ran: Ran) -> None:
    """8.4: calls that change their order over a pause are refused, and told to use keys."""
    first, second = asking(world, ran, "c"), asking(world, ran, "d")
    order = [first, second]

    def body(state: Mine) -> Calls:
        for child in order:
            yield Call(child, {})
        return None

    graph = inside(world, saver, body)
    world.invoke(graph, {}, thread_id="t")
    order.reverse()
    with pytest.raises(CallOrderError, match="key"):
        world.resume(graph, 1, thread_id="t")


def test_a_swallowed_child_pause_still_pauses_the_parent(world: World, saver: Saver, ran: Ran) -> None:
    """6.1, 8.2: a node that catches its child's pause asks its questions all the same."""
    child = asking(world, ran)

    def body(state: Mine) -> Calls:
        try:
            result = yield Call(child, {})
        except BaseException:
            return {"out": ["swallowed"]}
        return {"out": [result["log"]]}

    graph = inside(world, saver, body)
    assert len(ids(world.invoke(graph, {}, thread_id="t"))) == 1
    assert world.resume(graph, 1, thread_id="t") == {"out": [["c1", 1, "c3"]]}


# --- 5.5, 7 and 8.6 in children -----------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [True, False], ids=["called", "as nodes"])
def test_a_child_error_goes_on_where_it_failed(world: World, saver: Saver, ran: Ran, call: bool) -> None:
    """5.5, 8.2: after an error in a child, `invoke(None)` runs its failed task only."""

    def fails(state: State) -> dict[str, Any]:
        ran("b")
        if ran.counts["b"] == 1:
            raise ValueError("once")
        return {"log": ["b"]}

    nodes = {"a": world.node(lambda s: ran("a")), "b": world.node(fails)}
    child = build(State, nodes, [(START, "a"), ("a", "b")])

    def body(state: State) -> Calls:
        return {"log": (yield Call(child, {}))["log"]}

    graph = inside(world, saver, body, State) if call else build(State, {"p": child}, [(START, "p")], saver)
    with pytest.raises(ValueError, match="once"):
        world.invoke(graph, {}, thread_id="t")
    assert world.invoke(graph, None, thread_id="t") == {"log": ["b"]}
    assert ran.counts == {"a": 1, "b": 2}


def test_a_static_pause_in_a_child(world: World, saver: Saver, ran: Ran) -> None:
    """7.1, 7.6, 8.6: a child's static pause pauses the run; `invoke(None)` passes it, `recover` does not."""
    nodes = {"a": world.node(lambda s: ran("a")), "b": world.node(lambda s: ran("b"))}
    child = build(State, nodes, [(START, "a"), ("a", "b")], interrupt_before=["b"], interrupt_after=["b"])
    graph = build(State, {"p": child}, [(START, "p")], saver)
    when = [[(i.node, i.when) for i in world.invoke(graph, {}, thread_id="t")["__interrupt__"]]]
    when.append([(i.node, i.when) for i in world.recover(graph, thread_id="t")["__interrupt__"]])
    when.append([(i.node, i.when) for i in world.invoke(graph, None, thread_id="t")["__interrupt__"]])
    assert when == [[("b", "before")], [("b", "before")], [("b", "after")]]
    assert world.invoke(graph, None, thread_id="t") == {"log": []}
    assert ran.counts == {"a": 1, "b": 1}


def test_a_child_with_a_saver_needs_a_parent_with_one(world: World, saver: Saver, ran: Ran) -> None:
    """8.6: the root's saver serves the whole run; a child with its own under a root without one is refused."""
    child = build(State, {"n": world.node(lambda s: None)}, [(START, "n")], saver)
    with pytest.raises(InvalidRequestError, match="checkpointer"):
        world.invoke(build(State, {"p": child}, [(START, "p")]), {})
    assert list(saver.threads()) == []


def test_a_call_that_names_its_thread_is_a_run_of_its_own(world: World, saver: Saver, ran: Ran) -> None:
    """8.6: such a call keeps its own state under its own thread, and its pause is a result."""
    child = build(State, {"n": world.node(lambda s: {"x": interrupt("?")})}, [(START, "n")], saver)

    def node(state: Mine) -> dict[str, Any]:
        return {"out": [ids(child.invoke({}, thread_id="other"))]}

    graph = build(Mine, {"p": node}, [(START, "p")], saver)
    assert world.invoke(graph, {}, thread_id="t") == {"out": [["n@1#0"]]}
    assert world.resume(child, 5, thread_id="other") == {"log": [], "x": 5}
