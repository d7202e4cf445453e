"""State and channels as nodes and callers see them (section 2)."""

import itertools
import logging
import operator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest

from pregel import (
    AnyValue,
    EphemeralValue,
    InvalidUpdateError,
    MutationError,
    Overwrite,
    Saver,
    SerializationError,
    Topic,
    UntrackedValue,
    interrupt,
)
from tests.helpers import START, Ran, World, build


class State(TypedDict, total=False):
    x: Any
    log: Annotated[list[str], operator.add]
    any_value: Annotated[int, AnyValue]
    brief: Annotated[int, EphemeralValue]
    handle: Annotated[Any, UntrackedValue]
    topic: Annotated[list[str], Topic]
    topics: Annotated[list[str], Topic(str, accumulate=True)]


def _log(name: str) -> Any:
    return lambda s: {"log": [name]}


# --- channels -----------------------------------------------------------------------------------------------------


def test_two_writers_of_one_key_are_refused_and_the_thread_is_not_stuck(world: World, saver: Saver, ran: Ran) -> None:
    """2.1, 2.7: the error names key and nodes; once one is mended, only the writers run again."""

    def writer(name: str, update: dict[str, Any]) -> Any:
        def node(s: State) -> dict[str, Any]:
            ran(name)
            return update

        return world.node(node)

    edges: list[tuple[Any, str]] = [(START, "a"), (START, "b"), (START, "c"), ("a", "d")]
    nodes = {
        "a": writer("a", {"x": 1}),
        "b": writer("b", {"x": 2}),
        "c": writer("c", {"log": ["c"]}),
        "d": writer("d", {}),
    }
    graph = build(State, nodes, edges, saver)
    with pytest.raises(InvalidUpdateError, match=r"'a', 'b' to 'x'.*one write a step") as caught:
        world.invoke(graph, {"x": 0}, thread_id="t")
    assert (caught.value.channel, caught.value.nodes) == ("x", ("a", "b"))  # type: ignore[attr-defined] # carried data
    state = world.state(graph, thread_id="t")
    assert (state.values, state.status, state.next) == ({"x": 0, "log": []}, "failed", ("a", "b"))
    assert [task.status for task in state.tasks] == ["failed", "failed", "done"]
    assert sorted(ran.take()) == ["a", "b", "c"]
    mended = build(State, {**nodes, "b": writer("b", {"log": ["b"]})}, edges, saver)
    assert world.invoke(mended, None, thread_id="t") == {"x": 1, "log": ["b", "c"]}
    assert sorted(ran.take()) == ["a", "b", "d"]


def test_a_reducer_that_raises_fails_only_the_tasks_that_it_was_folding(world: World, saver: Saver, ran: Ran) -> None:
    """2.7: what the reducer raised is the cause; the sibling is kept and does not run again."""
    broken = [True]

    def reducer(a: int, b: int) -> int:
        if broken[0]:
            raise ZeroDivisionError("the reducer is broken")
        return a + b

    class Folded(TypedDict, total=False):
        total: Annotated[int, reducer]
        log: Annotated[list[str], operator.add]

    def add(s: Folded) -> dict[str, Any]:
        ran("add")
        return {"total": 1}

    def other(s: Folded) -> dict[str, Any]:
        ran("other")
        return {"log": ["other"]}

    nodes = {"add": world.node(add), "other": world.node(other)}
    graph = build(Folded, nodes, [(START, "add"), (START, "other")], saver)
    with pytest.raises(InvalidUpdateError, match="the reducer is broken") as caught:
        world.invoke(graph, {"log": ["in"]}, thread_id="t")
    assert type(caught.value.__cause__) is ZeroDivisionError
    ran.take()
    broken[0] = False
    assert world.invoke(graph, None, thread_id="t") == {"total": 1, "log": ["in", "other"]}
    assert ran.take() == ["add"]


def test_a_reducer_whose_result_cannot_be_stored_fails_its_writers(world: World, saver: Saver) -> None:
    """2.7, 12.2: the thread can be run again after the reducer is mended."""
    broken = [True]

    def reducer(a: Any, b: Any) -> Any:
        return (lambda: None) if broken[0] else b

    class Folded(TypedDict, total=False):
        value: Annotated[Any, reducer]

    graph = build(Folded, {"n": world.node(lambda s: {"value": 1})}, [(START, "n")], saver)
    with pytest.raises(InvalidUpdateError, match=r"'n' to 'value' cannot be folded.*function"):
        world.invoke(graph, {"value": 0}, thread_id="t")
    broken[0] = False
    assert world.invoke(graph, None, thread_id="t") == {"value": 1}


def test_input_that_cannot_be_folded_is_refused_and_nothing_is_written(world: World, saver: Saver) -> None:
    """2.3, 2.7: input is folded like any write."""
    graph = build(State, {"n": world.node(_log("n"))}, [(START, "n")], saver)
    with pytest.raises(InvalidUpdateError, match="the input cannot be folded into 'log'"):
        world.invoke(graph, {"log": 5}, thread_id="t")
    assert world.state(graph, thread_id="t").status is None


def test_of_several_writes_to_any_value_the_last_in_task_order_counts(world: World, saver: Saver) -> None:
    """2.1: a reads as written last, though c was added last and a first as edge."""
    nodes = {name: world.node(lambda s, n=n: {"any_value": n}) for n, name in enumerate("abc")}
    graph = build(State, nodes, [(START, "c"), (START, "a"), (START, "b")], saver)
    assert world.invoke(graph, {}, thread_id="t")["any_value"] == 2


def test_an_ephemeral_value_lives_one_super_step(world: World, saver: Saver) -> None:
    """2.1, 3.6: written as input it is there in step 1; written in a step, in the next; also across a pause."""
    seen: list[Any] = []

    def first(s: State) -> dict[str, Any]:
        seen.append(s.get("brief"))
        return {"brief": 2}

    def second(s: State) -> None:
        interrupt("?")
        seen.append(s.get("brief"))

    def third(s: State) -> None:
        seen.append(s.get("brief"))

    nodes = {"a": world.node(first), "b": world.node(second), "c": world.node(third)}
    graph = build(State, nodes, [(START, "a"), ("a", "b"), ("b", "c")], saver)
    world.invoke(graph, {"brief": 1}, thread_id="t")
    assert "brief" not in world.resume(graph, "!", thread_id="t")
    assert seen == [1, 2, None]


def test_a_topic_holds_the_last_step_or_everything(world: World, saver: Saver) -> None:
    """2.1: several nodes may write to it; a list is spliced in."""
    seen: list[Any] = []
    nodes = {
        "a": world.node(lambda s: {"topic": "a", "topics": "a"}),
        "b": world.node(lambda s: {"topic": ["b", "c"], "topics": ["b"]}),
        "c": world.node(lambda s: seen.append((s["topic"], s["topics"]))),
        "d": world.node(lambda s: seen.append((s.get("topic"), s["topics"]))),
    }
    graph = build(State, nodes, [(START, "a"), (START, "b"), (["a", "b"], "c"), ("c", "d")], saver)
    result = world.invoke(graph, {"x": 1}, thread_id="t")
    assert seen == [(["a", "b", "c"], ["a", "b"]), (None, ["a", "b"])]
    assert result["topics"] == ["a", "b"]


def test_an_untracked_value_is_shared_and_never_stored(world: World) -> None:
    """2.1: within a run each node gets the object itself; another call has nothing of it."""
    from pregel import InMemorySaver

    handle = {"open": object()}
    seen: list[Any] = []

    def look(s: State) -> None:
        seen.append(s.get("handle"))

    nodes = {"a": world.node(lambda s: {"handle": handle}), "b": world.node(look)}
    with InMemorySaver() as saver:
        graph = build(State, nodes, [(START, "a"), ("a", "b")], saver)
        world.invoke(graph, {"x": 1}, thread_id="t")
        assert seen[0] is handle
        assert "handle" not in world.state(graph, thread_id="t").values
        assert "handle" not in world.update(graph, None, {"x": 2}, thread_id="t")


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
def test_none_and_other_falsy_values_are_written_and_stored(world: World, saver: Saver, value: Any) -> None:
    """2.2: None is a value like any other."""
    seen: list[Any] = []
    nodes = {"a": world.node(lambda s: {"x": value}), "b": world.node(lambda s: seen.append(s["x"]))}
    graph = build(State, nodes, [(START, "a"), ("a", "b")], saver)
    assert world.invoke(graph, {"x": 1}, thread_id="t")["x"] == value
    assert seen == [value]
    assert world.state(graph, thread_id="t").values["x"] == value


# --- Overwrite ----------------------------------------------------------------------------------------------------


def test_overwrite_replaces_a_reduced_value(world: World, saver: Saver) -> None:
    """2.2: from a node, as input, and by update_state."""
    graph = build(State, {"n": world.node(lambda s: {"log": Overwrite(["n"])})}, [(START, "n")], saver)
    assert world.invoke(graph, {"log": ["in"]}, thread_id="t")["log"] == ["n"]
    world.update(graph, None, {"log": Overwrite(["edited"])}, thread_id="t")
    assert world.state(graph, thread_id="t").values["log"] == ["edited"]
    seen: list[Any] = []
    looking = build(State, {"n": world.node(lambda s: seen.append(s["log"]))}, [(START, "n")], saver)
    world.invoke(looking, {"log": Overwrite(["new"])}, thread_id="t")
    assert seen == [["new"]]


@pytest.mark.parametrize("other", [["b"], Overwrite(["b"])])
def test_overwrite_beside_another_write_is_refused_with_both_nodes(world: World, saver: Saver, other: Any) -> None:
    """2.2, 2.7: at most one per key and step, and nothing beside it."""
    nodes = {"a": world.node(lambda s: {"log": Overwrite(["a"])}), "b": world.node(lambda s: {"log": other})}
    graph = build(State, nodes, [(START, "a"), (START, "b")], saver)
    with pytest.raises(InvalidUpdateError, match=r"'a', 'b' to 'log' cannot be folded: an Overwrite stands beside"):
        world.invoke(graph, {"x": 1}, thread_id="t")
    mended = build(State, {**nodes, "b": world.node(lambda s: None)}, [(START, "a"), (START, "b")], saver)
    assert world.invoke(mended, None, thread_id="t")["log"] == ["a"]


# --- defaults -----------------------------------------------------------------------------------------------------


def test_defaults_are_fresh_in_each_run(world: World) -> None:
    """2.3: what one run does to its copy, another does not see."""

    @dataclass
    class Data:
        items: list[str] = field(default_factory=list)
        nested: dict[str, list[str]] = field(default_factory=lambda: {"a": []})

    def grow(s: Data) -> dict[str, Any]:
        s.nested["a"].append("mine")
        return {"items": [*s.items, "one"], "nested": s.nested}

    graph = build(Data, {"n": world.node(grow)}, [(START, "n")], isolation="shallow")
    for _ in range(2):
        assert world.invoke(graph, {}) == {"items": ["one"], "nested": {"a": ["mine"]}}


def test_a_default_is_made_once_for_a_thread(world: World, saver: Saver) -> None:
    """2.3: a default that differs each time is the same for all nodes, over pauses and in later calls."""
    numbers = itertools.count()
    seen: list[Any] = []

    @dataclass
    class Data:
        number: int = field(default_factory=lambda: next(numbers))

    def ask(s: Data) -> None:
        seen.append(s.number)
        interrupt("?")

    nodes = {"a": world.node(lambda s: seen.append(s.number)), "b": world.node(ask)}
    graph = build(Data, nodes, [(START, "a"), ("a", "b")], saver)
    world.invoke(graph, {}, thread_id="t")
    seen.append(world.resume(graph, "!", thread_id="t")["number"])
    seen.append(world.state(graph, thread_id="t").values["number"])
    assert len(set(seen)) == 1


def test_a_stored_value_stands_before_a_default_and_input_is_folded_onto_it(world: World, saver: Saver) -> None:
    """2.3: the second input on a thread starts from what the first run left."""

    @dataclass
    class Data:
        count: int = 1
        log: Annotated[list[str], operator.add] = field(default_factory=lambda: ["default"])

    node = world.node(lambda s: {"count": s.count + 1})
    graph = build(Data, {"n": node}, [(START, "n")], saver)
    assert world.invoke(graph, {"log": ["one"]}, thread_id="t") == {"count": 2, "log": ["default", "one"]}
    assert world.invoke(graph, {"log": ["two"]}, thread_id="t") == {"count": 3, "log": ["default", "one", "two"]}


# --- isolation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["shallow", "deep", "check"])
@pytest.mark.parametrize("wrap", [lambda v: v, Overwrite], ids=["plain", "overwrite"])
def test_what_a_node_does_to_its_result_afterwards_reaches_nobody(
    world: World, saver: Saver, isolation: Any, wrap: Any
) -> None:
    """2.4: a list is copied when it is written."""
    mine = ["a"]
    seen: list[Any] = []

    def look(s: State) -> None:
        mine.append("late")
        seen.append(s["log"])

    nodes = {"a": world.node(lambda s: {"log": wrap(mine)}), "b": world.node(look)}
    nodes["c"] = world.node(lambda s: seen.append(s["log"]))
    graph = build(State, nodes, [(START, "a"), ("a", "b"), ("b", "c")], saver, isolation=isolation)
    assert world.invoke(graph, {"x": 1}, thread_id="t")["log"] == ["a"]
    assert seen == [["a"], ["a"]]
    assert world.state(graph, thread_id="t").values["log"] == ["a"]


@pytest.mark.parametrize("isolation", ["shallow", "deep", "check"])
@pytest.mark.parametrize("value", [["v"], {"v": 1}, {"v"}])
def test_what_a_node_does_to_its_input_reaches_nobody(world: World, isolation: Any, value: Any) -> None:
    """2.4: the mapping and the lists, dicts and sets in it are the node's own; siblings and callers keep theirs."""
    kept = value.copy()
    seen: list[Any] = []

    def clear(s: State) -> None:
        s["x"].clear()
        s.clear()  # type: ignore[attr-defined] # it is a dict at run time

    nodes = {"a": world.node(clear), "b": world.node(lambda s: seen.append(s["x"]))}
    graph = build(State, nodes, [(START, "a"), ("a", "b")], isolation=isolation)
    assert world.invoke(graph, {"x": value})["x"] == kept == value
    assert seen == [kept]


def test_with_deep_isolation_nothing_is_shared_at_any_level(world: World) -> None:
    """2.4: neither what is read nor what is written."""
    deep = {"a": [[1]]}

    def change(s: State) -> dict[str, Any]:
        s["x"]["a"][0].append(2)
        return {"log": [str(s["x"])]}

    nodes = {"a": world.node(change), "b": world.node(lambda s: {"log": [str(s["x"])]})}
    graph = build(State, nodes, [(START, "a"), ("a", "b")], isolation="deep")
    assert world.invoke(graph, {"x": deep})["log"] == ["{'a': [[1, 2]]}", "{'a': [[1]]}"]


def test_the_check_mode_finds_a_deep_change_and_names_node_and_key(world: World, saver: Saver) -> None:
    """2.4: the task fails, the stored state is as it was."""
    node = world.node(lambda s: s["x"]["a"].append(2))
    graph = build(State, {"bad": node}, [(START, "bad")], saver)
    with pytest.raises(MutationError, match="node 'bad' changed 'x' in place") as caught:
        world.invoke(graph, {"x": {"a": [1]}}, thread_id="t")
    assert caught.value.keys == ["x"]  # type: ignore[attr-defined] # carried data
    assert world.state(graph, thread_id="t").values["x"] == {"a": [1]}


def test_a_value_that_cannot_be_stored_fails_its_task(world: World, saver: Saver) -> None:
    """2.7, 12.2: refused at the task's end, naming node, key and path."""
    node = world.node(lambda s: {"x": {"deep": [print]}})
    graph = build(State, {"n": node}, [(START, "n")], saver)
    with pytest.raises(SerializationError, match=r"node 'n', key 'x': .*deep"):
        world.invoke(graph, {"x": 1}, thread_id="t")


# --- what is left when a run ends -----------------------------------------------------------------------------------


def test_a_half_filled_barrier_at_the_end_is_reported(
    world: World, saver: Saver, caplog: pytest.LogCaptureFixture
) -> None:
    """2.6: as a warning and in the snapshot, with the senders that it has."""
    nodes = {name: world.node(_log(name)) for name in "abc"}
    branches = [(START, lambda s: ["a"] if s["x"] else ["a", "b"])]
    graph = build(State, nodes, [(["a", "b"], "c")], saver, branches=branches)
    with caplog.at_level(logging.WARNING, "pregel"):
        assert world.invoke(graph, {"x": True}, thread_id="t")["log"] == ["a"]
    (record,) = caplog.records
    assert record.getMessage() == "the run ended with a half-filled barrier"
    assert (record.node, record.senders, record.thread_id) == ("c", ["a"], "t")  # type: ignore[attr-defined] # bound
    assert world.state(graph, thread_id="t").stalled == {"c": ("a",)}
    caplog.clear()
    assert world.invoke(graph, {"x": False}, thread_id="t")["log"] == ["a", "a", "b", "c"]
    assert caplog.records == []
    assert world.state(graph, thread_id="t").stalled == {}
