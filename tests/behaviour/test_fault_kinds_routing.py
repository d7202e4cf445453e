"""Faults of engines of this kind: targets that nobody checks, jumps that get lost between graphs, two worlds apart."""

import inspect
import operator
from collections.abc import Callable, Generator
from enum import StrEnum
from typing import Annotated, Any, TypedDict

import pytest

from pregel import (
    Command,
    GraphValidationError,
    InvalidRequestError,
    InvalidTargetError,
    ParentCommand,
    Pregel,
    PregelError,
    Saver,
    Send,
    interrupt,
)
from tests.behaviour.calling import Call, calling, noted
from tests.helpers import END, START, Ran, World, build, ids

Calls = Generator[Call, Any, Any]


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    x: int


def logs(world: World, *names: str) -> dict[str, Any]:
    return {name: world.node(lambda s, name=name: {"log": [name]}) for name in names}


class Name(StrEnum):
    A = "a"
    B = "b"


def by_goto(world: World, saver: Saver, target: Any) -> Any:
    jump = world.node(lambda s: Command(update={"log": ["a"]}, goto=target))
    return build(State, logs(world, "b") | {"a": (jump, {"destinations": ["b"]})}, [(START, "a")], saver)


ENUMS: dict[str, Callable[[World, Saver], Any]] = {
    "router": lambda w, s: build(State, logs(w, "a", "b"), [(START, "a")], s, branches=[("a", lambda s: Name.B)]),
    "path map": lambda w, s: build(
        State, logs(w, "a", "b"), [(START, "a")], s, branches=[(Name.A, lambda s: 1, {1: Name.B})]
    ),
    "edge": lambda w, s: build(State, logs(w, "a", "b"), [(START, Name.A), (Name.A, Name.B)], s),
    "join": lambda w, s: build(State, logs(w, "a", "b"), [(START, Name.A), ([Name.A], Name.B)], s),
    "node": lambda w, s: build(
        State, {Name(n): node for n, node in logs(w, "a", "b").items()}, [(START, "a"), ("a", "b")], s
    ),
    "goto": lambda w, s: by_goto(w, s, Name.B),
    "packet": lambda w, s: by_goto(w, s, Send(Name.B, {})),
}


@pytest.mark.parametrize("make", ENUMS.values(), ids=ENUMS)
def test_a_name_may_be_a_member_of_an_enum_of_texts(world: World, saver: Saver, make: Any) -> None:
    """1.3, 2.7: what is text names a node, with a saver as without one."""
    assert world.invoke(make(world, saver), {}, thread_id="t") == {"log": ["a", "b"]}


# --- what routers return ----------------------------------------------------------------------------------------------


class Label:
    """A value that only prints like the name of a node."""

    def __repr__(self) -> str:
        return "'b'"


WRONG: list[Any] = [
    "yes",
    "B",
    "",
    "b ",
    START,
    None,
    0,
    1,
    True,
    2.5,
    b"b",
    {},
    {"b": 1},
    {"b"},
    [["b"]],
    [END, "yes"],
    ["b", None],
    Label(),
    Label,
    Command(goto="b"),
    Send("yes", {}),
    Send(None, {}),  # type: ignore[arg-type] # what a mistake looks like
    Send(["b"], {}),  # type: ignore[arg-type] # what a mistake looks like
    [Send("b", {}), Send("yes", {})],
]


def routed(world: World, saver: Saver, source: str, answer: Any, path_map: Any = None) -> Any:
    """Return a graph whose router, of node `a` or of the start, returns `answer`."""
    edges: list[tuple[Any, str]] = [] if source == START else [(START, "a")]
    branches = [(source, lambda s: answer, path_map)]
    if source == START:
        branches.append((START, lambda s: [], ["a", "b"]))  # so that both can be reached
    return build(State, logs(world, "a", "b"), edges, saver, branches=branches)


@pytest.mark.parametrize("source", ["a", START])
def test_whatever_a_router_returns_is_a_name_or_refused_with_the_names(world: World, saver: Saver, source: str) -> None:
    """1.6, 2.7: values of a wrong kind fail the task, nothing is kept of it, and the mended graph goes on."""
    for number, answer in enumerate(WRONG):
        thread = str(number)
        with pytest.raises(InvalidTargetError, match=rf"router '<lambda>' of .*{source}.*\['a', 'b', '__end__'\]"):
            world.invoke(routed(world, saver, source, answer), {}, thread_id=thread)
        mended = routed(world, saver, source, "b")
        failed = world.state(mended, thread_id=thread)
        assert (failed.values, failed.next, failed.status) == ({"log": []}, (source,), "failed")
        assert world.invoke(mended, None, thread_id=thread)["log"] == (["b"] if source == START else ["a", "b"])


def test_whatever_a_router_returns_is_in_its_path_map_or_refused_with_the_labels(world: World, saver: Saver) -> None:
    """1.6: labels that cannot be looked up at all are refused like unknown ones; a name is no label."""
    for number, answer in enumerate([*WRONG[1:-5], "b", "a", Command(goto="b")]):
        with pytest.raises(InvalidTargetError, match=r"which its path map does not name; known are \['yes'\]"):
            world.invoke(routed(world, saver, "a", answer, {"yes": "b"}), {}, thread_id=str(number))
    assert world.invoke(routed(world, saver, "a", "yes", {"yes": "b"}), {}, thread_id="t")["log"] == ["a", "b"]


# --- jumps to the parent ----------------------------------------------------------------------------------------------


def jumping(world: World, ran: Ran, saver: Saver, depth: int, target: str, called: bool) -> Any:
    """Return graphs in graphs: the node at `depth` jumps to `target` of the graph above it.

    At each level `inner` holds the next one, `after` follows it by an edge and `land` is there to be jumped to; both
    end in the number of their level, 0 for the outermost.
    """
    jump = world.node(
        lambda s: noted(ran, "jump", Command(update={"log": ["jump"]}, goto=target, graph=Command.PARENT))
    )
    graph = build(State, {"jump": jump, **logs(world, "never")}, [(START, "jump"), ("jump", "never")])
    for level in range(depth - 1, -1, -1):

        def body(state: State, child: Any = graph) -> Calls:
            return {"log": (yield Call(child, {}))["log"]}

        def land(state: State, name: str = f"land{level}") -> dict[str, Any]:
            return {"log": [(name, interrupt(name))]}

        inner: Any = calling(world, body) if called else graph
        after, landing = f"after{level}", f"land{level}"
        nodes = {"inner": (inner, {"destinations": [landing]}), **logs(world, after), landing: world.node(land)}
        graph = build(State, nodes, [(START, "inner"), ("inner", after)], None if level else saver)
    return graph


@pytest.mark.parametrize("called", [True, False], ids=["called", "as nodes"])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_a_jump_lands_one_level_up_at_any_depth(world: World, saver: Saver, ran: Ran, depth: int, called: bool) -> None:
    """4.2: it is applied once, by the nearest caller, where it may pause; the graphs above go on as ever."""
    graph = jumping(world, ran, saver, depth, f"land{depth - 1}", called)
    (paused,) = world.invoke(graph, {}, thread_id="t")["__interrupt__"]
    assert (paused.node, len(paused.namespace)) == (f"land{depth - 1}", depth - 1)
    above = [f"after{level}" for level in range(depth - 2, -1, -1)]
    landed = ["jump", f"after{depth - 1}", (f"land{depth - 1}", 1)]
    assert world.resume(graph, 1, thread_id="t") == {"log": [*landed, *above]}
    assert ran.counts == {"jump": 1}


@pytest.mark.parametrize("called", [True, False], ids=["called", "as nodes"])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_a_jump_to_a_name_of_another_level_is_refused_where_it_lands(
    world: World, saver: Saver, ran: Ran, depth: int, called: bool
) -> None:
    """1.6, 4.2: unknown there, whatever the graphs below and above know; the error has the names of that level."""
    level = depth - 1
    names = rf"\['inner', 'after{level}', 'land{level}', '__end__'\]"
    for target in ("nope", "never", "jump", f"land{depth}", f"land{level - 1}"):
        graph = jumping(world, ran, saver, depth, target, called)
        with pytest.raises(InvalidTargetError, match=rf"node 'inner' leads to '{target}'.*{names}"):
            world.invoke(graph, {}, thread_id=target)
        assert world.state(graph, thread_id=target).status == "failed"


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_a_jump_is_handed_on_to_the_outermost_graph(world: World, saver: Saver, ran: Ran, depth: int) -> None:
    """4.2: functions that call a child may catch its command and pass it up, one level at a time."""
    up = Command(update={"log": ["jump"]}, goto="land", graph=Command.PARENT)
    graph = build(State, {"jump": world.node(lambda s: noted(ran, "jump", up))}, [(START, "jump")])

    def passing(child: Any, level: int) -> Callable[[State], Calls]:
        def body(state: State) -> Calls:
            try:
                yield Call(child, {})
            except ParentCommand as handed:
                update = {"log": [*handed.command.update["log"], level]}
                return Command(update=update, goto=handed.command.goto, graph=Command.PARENT if level else None)

        return body

    for level in range(depth - 1, -1, -1):
        inner = calling(world, passing(graph, level)), {"destinations": [] if level else ["land"]}
        beyond = logs(world, "land") if level == 0 else {}
        graph = build(State, {"inner": inner, **beyond}, [(START, "inner")], None if level else saver)
    assert world.invoke(graph, {}, thread_id="t") == {"log": ["jump", *range(depth - 1, -1, -1), "land"]}
    assert ran.counts == {"jump": 1}


def test_a_jump_beside_an_edge_runs_its_target_once(world: World, saver: Saver) -> None:
    """3.3, 4.2: a jump to where an edge or a router leads anyway is one message more to the same run."""
    nodes = {"a": (world.node(lambda s: Command(goto=["b", "b"])), {"destinations": ["b"]}), **logs(world, "b")}
    graph = build(State, nodes, [(START, "a"), ("a", "b")], saver, branches=[("a", lambda s: "b", ["b"])])
    assert world.invoke(graph, {}, thread_id="t") == {"log": ["b"]}


# --- two worlds, one engine -------------------------------------------------------------------------------------------

WORLDS = (World("sync"), World("async"))


def test_every_method_has_an_async_twin_with_the_same_parameters() -> None:
    """11.1: nothing can be said in one world only."""
    methods = {n: inspect.signature(f) for n, f in vars(Pregel).items() if inspect.isfunction(f) and n[0] != "_"}
    sync_only = {name for name in methods if f"a{name}" not in methods and name[1:] not in methods}
    assert sync_only == {"initial", "with_checkpointer"}  # which do no input or output
    pairs = [name for name in methods if f"a{name}" in methods]
    assert len(pairs) >= 8
    assert {n: methods[n].parameters for n in pairs} == {n: methods[f"a{n}"].parameters for n in pairs}


def edited(world: World, saver: Saver) -> list[Any]:
    """Edit a thread again and again without saying as which node: pending, answered in part, finished."""
    nodes = {n: world.node(lambda s, n=n: {"log": [(n, s["x"], interrupt(n))]}) for n in "ab"}
    nodes |= logs(world, "c")
    graph = build(State, nodes, [(START, "a"), (START, "b"), (["a", "b"], "c")], saver)
    first = ids(world.invoke(graph, {"x": 0}, thread_id=world.name))
    for x in (1, 2):
        world.update(graph, None, {"x": x}, thread_id=world.name)
    world.resume(graph, answers={first[1]: "B"}, thread_id=world.name)
    for x in (3, 4):
        world.update(graph, {"configurable": {"thread_id": world.name}}, {"x": x, "log": [x]})
    world.resume(graph, "A", thread_id=world.name)
    for x in (5, 6):
        world.update(graph, None, {"x": x}, thread_id=world.name)
    return world.history(graph, thread_id=world.name)


def test_edits_without_a_node_are_the_same_in_both_worlds(saver: Saver) -> None:
    """9.3: two in a row, with several nodes pending or none, are never ambiguous; each is a checkpoint of its own."""
    told = [[(s.values, s.next, s.status, s.tasks, s.metadata["source"]) for s in edited(w, saver)] for w in WORLDS]
    assert told[0] == told[1]
    assert [source for *_, source in told[0]].count("update") == 6
    assert told[0][0][0] == {"log": [3, 4, ("a", 4, "A"), ("b", 2, "B"), "c"], "x": 6}


Refused = Callable[[World, Any], Any]
REFUSED: dict[str, Refused] = {
    "an unknown thread": lambda w, g: w.invoke(g, None, thread_id="no"),
    "no thread": lambda w, g: w.invoke(g, {}),
    "a target": lambda w, g: w.invoke(g, Command(goto="nope"), thread_id="t"),
    "a key": lambda w, g: w.update(g, None, {"nope": 1}, thread_id="t"),
    "an edit of nothing": lambda w, g: w.update(g, None, {"x": 1}, thread_id="no"),
    "an id": lambda w, g: w.resume(g, answers={"nope": 1}, thread_id="t"),
    "an answer and a jump": lambda w, g: w.invoke(g, Command(resume=1, goto="a"), thread_id="t"),
    "a fork of nothing": lambda w, g: w.call(g, "fork", thread_id="t"),
    "a checkpoint": lambda w, g: w.recover(g, thread_id="t", checkpoint_id="000000000099"),
    "an option": lambda w, g: w.stream(g, {}, thread_id="t", nope=1),
    "a list of pauses": lambda w, g: w.stream(g, {}, thread_id="t", interrupt_after=["nope"]),
    "a state of no thread": lambda w, g: w.state(g),
    "a history of no thread": lambda w, g: w.history(g),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_a_refusal_is_the_same_in_both_worlds(saver: Saver, call: Refused) -> None:
    """11.1: the same error with the same words, and the thread as it was."""
    told = []
    for world in WORLDS:
        graph = build(State, {"a": world.node(lambda s: {"x": interrupt("?")})}, [(START, "a")], saver)
        saver.delete_thread("t")
        world.invoke(graph, {"x": 1}, thread_id="t")
        before = world.history(graph, thread_id="t")
        with pytest.raises(PregelError) as caught:
            call(world, graph)
        told.append((type(caught.value), str(caught.value), caught.value.code))
        assert world.history(graph, thread_id="t") == before
        assert list(saver.threads()) == ["t"]
    assert told[0] == told[1]


# --- lists of nodes to pause at ---------------------------------------------------------------------------------------

KINDS = ("interrupt_before", "interrupt_after")
WRONG_LISTS: list[Any] = [
    "",
    0,
    False,
    {},
    b"",
    "a",
    ["nope"],
    ("a", "nope"),
    ["*"],
    [START],
    [END],
    ["A"],
    [None],
    [1],
    [["a"]],
    {"a"},
    {"a": 1},
    5,
]


def asking(world: World, saver: Saver | None, **lists: Any) -> Any:
    nodes = {"a": world.node(lambda s: {"log": [interrupt("?")]}), **logs(world, "b")}
    return build(State, nodes, [(START, "a"), ("a", "b")], saver, **lists)


def test_a_wrong_list_of_pauses_does_not_compile(world: World) -> None:
    """1.5: neither list passes with a name that is none, whatever the other one is; two wrong ones are both named."""
    good = {kind: ["a"] for kind in KINDS}
    for wrong in WRONG_LISTS:
        for kind in KINDS:
            with pytest.raises(GraphValidationError, match=rf"1 fault\(s\):\n - {kind} "):
                asking(world, None, **good | {kind: wrong})
    with pytest.raises(GraphValidationError, match=r"(?s)interrupt_before names 'x'.*interrupt_after names 'y'"):
        asking(world, None, interrupt_before=["a", "x"], interrupt_after=["b", "y"])


CALLS: dict[str, Callable[..., Any]] = {
    "invoke": lambda w, g, **lists: w.invoke(g, {}, **lists),
    "go on": lambda w, g, **lists: w.invoke(g, None, **lists),
    "stream": lambda w, g, **lists: w.stream(g, {}, **lists),
    "resume": lambda w, g, **lists: w.resume(g, 1, **lists),
    "recover": lambda w, g, **lists: w.recover(g, **lists),
    "fork": lambda w, g, **lists: w.call(g, "fork", checkpoint_id="000000000001", **lists),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_with_a_wrong_list_of_pauses_is_refused(world: World, saver: Saver, call: Callable[..., Any]) -> None:
    """7.7: by each way to run, with nothing written and the question still there; two wrong lists are both named."""
    graph = asking(world, saver)
    paused = world.invoke(graph, {}, thread_id="t")
    before = world.history(graph, thread_id="t")
    for wrong in WRONG_LISTS:
        for kind in KINDS:
            with pytest.raises(InvalidRequestError, match=f"^{kind} "):
                call(world, graph, thread_id="t", **{kind: wrong})
    with pytest.raises(InvalidRequestError, match=r"interrupt_before names 'x'.*interrupt_after names 'y'"):
        call(world, graph, thread_id="t", interrupt_before=["a", "x"], interrupt_after=["b", "y"])
    assert world.history(graph, thread_id="t") == before
    assert world.invoke(graph, None, thread_id="t") == paused
