"""Faults of engines of this kind: child graphs that share a place, are looked for by name, or outlive their thread."""

import asyncio
import operator
from collections.abc import Callable, Generator
from typing import Annotated, Any, TypedDict

import pytest

from pregel import END, AnyValue, NoCheckpointError, Saver, Send, interrupt
from tests.behaviour.calling import Call, calling, noted
from tests.helpers import START, Ran, World, build, ids

Calls = Generator[Call, Any, Any]


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    me: Annotated[str, AnyValue]


def asks(world: World, ran: Ran, name: str) -> Any:
    def node(state: State) -> dict[str, Any]:
        ran(f"ask {name}")
        return {"log": [(name, interrupt(name))]}

    return world.node(node)


def child_of(world: World, ran: Ran, name: str) -> Any:
    """Return a graph whose nodes are always called `work` and `ask`; they log `name`."""
    nodes = {
        "work": world.node(lambda s: noted(ran, f"work {name}", {"log": [name], "me": name})),
        "ask": asks(world, ran, name),
    }
    return build(State, nodes, [(START, "work"), ("work", "ask")])


def place(namespace: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}


# --- several children in one task -------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [(None, None), ("x", "y"), (None, "y"), ("x", None)])
def test_a_node_calls_two_graphs_in_turn(world: World, saver: Saver, ran: Ran, keys: tuple[str | None, ...]) -> None:
    """8.4: allowed with a saver, keyed or not: each call has its own place, pauses and goes on where it was."""
    children = [child_of(world, ran, name) for name in "xy"]

    def body(state: State) -> Calls:
        log: list[Any] = []
        for child, key in zip(children, keys, strict=True):
            log += (yield Call(child, {}, key))["log"]
        return {"log": log}

    graph = build(State, {"a": calling(world, body)}, [(START, "a")], saver)
    seen = ids(world.invoke(graph, {}, thread_id="t"))
    seen += ids(world.resume(graph, 1, thread_id="t"))
    assert len(set(seen)) == 2
    assert world.resume(graph, 2, thread_id="t") == {"log": ["x", ("x", 1), "y", ("y", 2)]}
    assert ran.counts == {"work x": 1, "ask x": 2, "work y": 1, "ask y": 2}


def test_a_node_calls_two_graphs_side_by_side(world: World, saver: Saver, ran: Ran) -> None:
    """6.9, 8.4: with keys both run at once and both questions are told; one is answered, the other stays as it is."""
    children = {name: child_of(world, ran, name) for name in "xy"}

    async def node(state: State) -> dict[str, Any]:
        calls = [child.ainvoke({}, key=name) for name, child in children.items()]
        log: list[Any] = []
        for one in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(one, BaseException):
                raise one
            log += one["log"]
        return {"log": log}

    graph = build(State, {"a": node}, [(START, "a")], saver)
    paused = world.invoke(graph, {}, thread_id="t")["__interrupt__"]
    assert sorted(i.value for i in paused) == ["x", "y"]
    id_of = {i.value: i.id for i in paused}
    assert ids(world.resume(graph, answers={id_of["y"]: 2}, thread_id="t")) == [id_of["x"]]
    assert world.resume(graph, 1, thread_id="t") == {"log": ["x", ("x", 1), "y", ("y", 2)]}
    assert ran.counts == {"work x": 1, "ask x": 2, "work y": 1, "ask y": 2}


@pytest.mark.parametrize("key", [None, "agent"])
def test_tools_that_run_in_parallel_each_hold_an_agent(world: World, saver: Saver, ran: Ran, key: str | None) -> None:
    """8.4: a key names a call within its task: packets that use the same one do not meet; the thread stays readable."""
    agent = child_of(world, ran, "agent")

    def body(arg: str) -> Calls:
        return {"log": [arg, *(yield Call(agent, {}, key))["log"]]}

    route: Any = lambda s: [Send("tool", "one"), Send("tool", "two")]  # noqa: E731 - as a user writes it
    graph = build(State, {"tool": calling(world, body)}, [], saver, branches=[(START, route, ["tool"])])
    one, two = ids(world.invoke(graph, {}, thread_id="t"))
    assert [t.status for t in world.state(graph, thread_id="t").tasks] == ["interrupted", "interrupted"]
    assert ids(world.resume(graph, answers={two: 2}, thread_id="t")) == [one]
    world.update(graph, None, {"log": ["edit"]}, thread_id="t")
    log = ["edit", "one", "agent", ("agent", 1), "two", "agent", ("agent", 2)]
    assert world.resume(graph, 1, thread_id="t") == {"log": log}
    assert ran.counts == {"work agent": 2, "ask agent": 4}


# --- places that look alike -------------------------------------------------------------------------------------------

ALIKE = ["sub", "sub2", "sub@1", "sub|ask", "su", "%73ub", "sub#0", "sub@1|ask@2", "ask", "Sub", "sub "]


def test_children_with_names_alike_do_not_meet(world: World, saver: Saver, ran: Ran) -> None:
    """8.4: a place is compared whole: names with a common beginning, or separators in them, are places of their own."""
    nodes = {name: child_of(world, ran, name) for name in ALIKE}
    graph = build(State, nodes, [(START, name) for name in ALIKE], saver)
    paused = world.invoke(graph, {}, thread_id="t")["__interrupt__"]
    assert [i.value for i in paused] == ALIKE
    assert len({i.id for i in paused}) == len({i.namespace for i in paused}) == len(ALIKE)
    for one in paused:
        state = world.state(graph, place("|".join(one.namespace)))
        assert (state.values, state.next) == ({"log": [one.value], "me": one.value}, ("ask",))
    answers = {i.id: i.value.upper() for i in paused}
    result = world.resume(graph, answers=answers, thread_id="t")
    assert result["log"] == [entry for name in ALIKE for entry in (name, (name, name.upper()))]
    assert ran.counts == {f"work {name}": 1 for name in ALIKE} | {f"ask {name}": 2 for name in ALIKE}


def test_an_edit_of_one_place_leaves_those_with_names_alike(world: World, saver: Saver, ran: Ran) -> None:
    """8.4, 8.7, 9.3: `sub` and `sub2` are edited each for itself; a place that does not exist is refused."""
    nodes = {name: child_of(world, ran, name) for name in ("sub", "sub2")}
    graph = build(State, nodes, [(START, name) for name in nodes], saver)
    world.invoke(graph, {}, thread_id="t")
    world.update(graph, place("sub2@1"), {"me": "edited"})
    shown = {name: world.state(graph, place(f"{name}@1")).values["me"] for name in nodes}
    assert shown == {"sub": "sub", "sub2": "edited"}
    with pytest.raises(NoCheckpointError):
        world.update(graph, place("sub@2"), {"me": "edited"})


def test_every_lap_has_a_place_of_its_own(world: World, saver: Saver) -> None:
    """8.4, 9.2: twelve laps of one child leave twelve places, the twelfth not mistaken for the first."""
    work = world.node(lambda s: {"me": f"lap {len(s['log']) + 1}", "log": [len(s["log"]) + 1]})
    child = build(State, {"work": work}, [(START, "work")])
    route: Any = lambda s: "p" if len(s["log"]) < 12 else END  # noqa: E731 - as a user writes it
    graph = build(State, {"p": child}, [(START, "p")], saver, branches=[("p", route, ["p", END])])
    assert world.invoke(graph, {}, thread_id="t")["log"] == list(range(1, 13))
    places = sorted(saver.namespaces("t")[1:], key=lambda name: int(name.partition("@")[2]))
    last = [world.history(graph, place(name), limit=1)[0].values["me"] for name in places]
    assert last == [f"lap {number}" for number in range(1, 13)]


class Holder:
    """An object that is a node and keeps its child to itself."""

    def __init__(self, child: Any) -> None:
        self._child = child

    def __call__(self, state: State) -> dict[str, Any]:
        return {"log": self._child.invoke({})["log"]}

    async def acall(self, state: State) -> dict[str, Any]:
        return {"log": (await self._child.ainvoke({}))["log"]}


@pytest.mark.parametrize("kept", ["in an attribute", "in a list", "nowhere"])
def test_a_child_is_known_by_its_call_wherever_it_is_kept(world: World, saver: Saver, ran: Ran, kept: str) -> None:
    """8.2, 8.4: nobody looks for children beforehand: one in an attribute or made anew in each run goes on as well."""
    child = child_of(world, ran, "c")
    children = [child]

    def body(state: State) -> Calls:
        mine = children[0] if kept == "in a list" else child_of(world, ran, "c")
        return {"log": (yield Call(mine, {}))["log"]}

    holder = Holder(child)
    node: Any = calling(world, body)
    if kept == "in an attribute":
        node = holder.acall if world.is_async else holder
    graph = build(State, {"a": node}, [(START, "a")], saver)
    assert [i.namespace for i in world.invoke(graph, {}, thread_id="t")["__interrupt__"]] == [("a@1",)]
    assert world.resume(graph, "yes", thread_id="t") == {"log": ["c", ("c", "yes")]}
    assert ran.counts == {"work c": 1, "ask c": 2}


# --- how long a child's state lives -----------------------------------------------------------------------------------


def nested(world: World, saver: Saver, ran: Ran) -> Any:
    """Return a graph with the same child twice as a node, and a third time two levels down."""
    child = child_of(world, ran, "c")
    middle = build(State, {"one": child}, [(START, "one")])
    nodes = {"one": child, "two": child, "middle": middle}
    return build(State, nodes, [(START, name) for name in nodes], saver)


@pytest.mark.parametrize("finished", [True, False])
def test_a_thread_is_deleted_with_all_that_lies_below(world: World, saver: Saver, ran: Ran, finished: bool) -> None:
    """8.4, 9.6: names within graphs need not be unique; a deleted thread leaves nothing, and its name starts anew."""
    graph = nested(world, saver, ran)
    places = ["", "middle@1", "middle@1|one@1", "one@1", "two@1"]
    for thread in ("t", "t2"):
        paused = world.invoke(graph, {}, thread_id=thread)
        assert len(ids(paused)) == 3
        if finished:
            world.resume(graph, answers=dict.fromkeys(ids(paused), "old"), thread_id=thread)
        assert saver.namespaces(thread) == places
    saver.delete_thread("t")
    assert saver.namespaces("t") == []
    assert [world.history(graph, place(name)) for name in places] == [[]] * 5
    assert (list(saver.threads()), saver.namespaces("t2")) == (["t2"], places)
    ran.take()
    answers = dict.fromkeys(ids(world.invoke(graph, {}, thread_id="t")), "new")
    assert world.resume(graph, answers=answers, thread_id="t")["log"] == ["c", ("c", "new")] * 3
    assert ran.counts == {"work c": 3, "ask c": 6}


def test_a_second_input_starts_children_anew(world: World, saver: Saver, ran: Ran) -> None:
    """6.12, 8.3: neither finished nor paused children of an earlier input count for the next one."""
    graph = nested(world, saver, ran)
    for lap in (1, 2):
        paused = world.invoke(graph, {}, thread_id="t")
        world.resume(graph, answers={ids(paused)[0]: lap}, thread_id="t")
    paused = world.invoke(graph, {}, thread_id="t")
    assert ran.counts["work c"] == 9
    assert world.resume(graph, answers=dict.fromkeys(ids(paused), 3), thread_id="t")["log"] == ["c", ("c", 3)] * 3


# --- a pause is no result ---------------------------------------------------------------------------------------------


def simply(child: Any, ran: Ran) -> Callable[[State], Calls]:
    def body(state: State) -> Calls:
        result = yield Call(child, {})
        return noted(ran, "after the call", {"log": result["log"]})

    return body


def with_a_catch_all(catch: type[BaseException]) -> Callable[[Any, Ran], Callable[[State], Calls]]:
    def make(child: Any, ran: Ran) -> Callable[[State], Calls]:
        def body(state: State) -> Calls:
            try:
                result = yield Call(child, {})
            except catch:
                return {"log": ["the child failed"]}
            return noted(ran, "after the call", {"log": result["log"]})

        return body

    return make


PARENTS = {"called": simply, "Exception": with_a_catch_all(Exception), "BaseException": with_a_catch_all(BaseException)}


@pytest.mark.parametrize("parent", ["as a node", *PARENTS])
def test_a_parent_waits_for_its_paused_child(world: World, saver: Saver, ran: Ran, parent: str) -> None:
    """6.1, 8.2: neither the code after the call nor the next node runs, and nothing is written, until it has ended."""
    child = child_of(world, ran, "c")
    node = child if parent == "as a node" else calling(world, PARENTS[parent](child, ran))
    nodes = {"p": node, "next": world.node(lambda s: noted(ran, "next", {"log": ["next"]}))}
    graph = build(State, nodes, [(START, "p"), ("p", "next")], saver)
    given: list[Any] = [{}, None]
    for one in given:
        assert world.invoke(graph, one, thread_id="t")["log"] == []
        assert world.state(graph, thread_id="t").next == ("p",)
    assert ran.take() == ["work c", "ask c"]
    assert world.resume(graph, 1, thread_id="t")["log"] == ["c", ("c", 1), "next"]
    assert ran.take() == ["ask c", *(["after the call"] if parent != "as a node" else []), "next"]


def test_a_child_without_a_saver_pauses_its_parent_all_the_same(world: World, ran: Ran) -> None:
    """6.11: a question of a child is told to the caller of the whole run, and the parent has not gone on."""
    child = child_of(world, ran, "c")
    nodes = {"p": calling(world, simply(child, ran)), "next": world.node(lambda s: ran("next"))}
    graph = build(State, nodes, [(START, "p"), ("p", "next")])
    paused = world.invoke(graph, {})
    assert [(i.value, i.namespace) for i in paused["__interrupt__"]] == [("c", ("p@1",))]
    assert ran.order == ["work c", "ask c"]
