"""Values that grow are stored by what was added, and read as they were, on every branch (10.1, 9.4; 2.1, 2.2)."""

import operator
from typing import Annotated, Any, TypedDict

import pytest

from pregel import END, Overwrite, Pregel, Saver, StateGraph, Topic, foldable
from pregel.checkpoint import Key
from tests.helpers import START, World, build

AT = {"configurable": {"thread_id": "t"}}


@foldable
def by_id(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    """Merge, the newer one counts."""
    return {**left, **right}


class State(TypedDict, total=False):
    n: int
    listed: Annotated[list[Any], operator.add]
    topic: Annotated[list[Any], Topic(object, accumulate=True)]
    ids: Annotated[dict[str, int], by_id]
    plain: Annotated[int, operator.add]


def laps(world: World, saver: Saver | None, size: int = 1, **options: Any) -> Pregel[Any]:
    """Return a loop that writes to each growing key, `n` laps long."""

    def lap(state: State) -> State:
        n = state["n"]
        return {
            "n": n - 1,
            "listed": [f"{n}" * size],
            "topic": [n] if n % 2 else (n, n),  # type: ignore[typeddict-item] # a topic takes single messages too
            "ids": {str(n % 7): n},
            "plain": 1,
        }

    branches = [("lap", lambda s: "lap" if s["n"] > 0 else END, ["lap", END])]
    return build(State, {"lap": world.node(lap)}, [(START, "lap")], saver, branches=branches, **options)


def rows(saver: Saver, namespace: str = "") -> dict[str, list[int]]:
    """Return the sizes of what the newest checkpoint's channels are read from: a full value, then additions."""
    saved = saver.get(Key("t", namespace)).saved
    assert saved is not None
    return {name: [len(data) for data in parts] for name, parts in saved.values.items()}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_the_end_is_the_same_with_a_saver_as_without(world: World, saver: Saver, durability: str) -> None:
    """10.1: whatever is stored by additions is read as it was, at each checkpoint."""
    given: Any = {"n": 20, "listed": ["in"], "ids": {"in": 0}}
    expected = world.invoke(laps(world, None), given)
    graph = laps(world, saver)
    assert world.invoke(graph, given, thread_id="t", durability=durability) == expected
    assert world.state(graph, thread_id="t").values == expected
    for state in world.history(graph, thread_id="t"):
        done = 20 - state.values["n"]
        assert state.values["listed"] == expected["listed"][: 1 + done]
        assert state.values["plain"] == done


def test_long_values_are_read_from_a_full_one_and_additions(world: World, saver: Saver) -> None:
    """The additions after a full value are never longer than it; what does not grow has none."""
    graph = laps(world, saver, size=100)
    world.invoke(graph, {"n": 40}, thread_id="t", durability="exit")
    world.invoke(graph, {"n": 40}, thread_id="t")
    sizes = rows(saver)
    assert len(sizes["listed"]) > 5
    assert len(sizes["topic"]) > 2
    assert len(sizes["n"]) == len(sizes["plain"]) == 1
    assert all(sum(additions) <= full for full, *additions in sizes.values())


def test_an_input_and_an_edit_add_as_well(world: World, saver: Saver) -> None:
    """2.3, 9.3: a turn of a conversation does not write the whole of it again."""
    graph = build(State, {"a": lambda s: None}, [(START, "a")], saver)
    world.invoke(graph, {"listed": ["x" * 1000]}, thread_id="t")
    for turn in range(3):
        world.invoke(graph, {"listed": [turn]}, thread_id="t")
        world.update(graph, AT, {"listed": [f"edit {turn}"]})
    assert len(rows(saver)["listed"]) == 7
    found = ["x" * 1000, *(item for turn in range(3) for item in (turn, f"edit {turn}"))]
    assert world.state(graph, thread_id="t").values["listed"] == found


def test_a_branch_reads_its_own_additions(world: World, saver: Saver) -> None:
    """9.4: a fork follows its parents, never the other branch."""
    graph = build(State, {"a": lambda s: {"listed": [s["n"]]}}, [(START, "a")], saver)
    world.invoke(graph, {"n": 1, "listed": ["x" * 1000]}, thread_id="t")
    at = world.state(graph, thread_id="t").config
    for n in (2, 3):
        world.invoke(graph, {"n": n}, thread_id="t")
    world.invoke(graph, {"n": 4}, at)
    world.invoke(graph, {"n": 5}, thread_id="t")
    assert world.state(graph, thread_id="t").values["listed"][1:] == [1, 4, 5]
    assert len(rows(saver)["listed"]) > 2


def test_an_overwritten_value_is_stored_in_full(world: World, saver: Saver) -> None:
    """2.2: nothing is added to what was replaced."""
    nodes: dict[str, Any] = {
        "a": lambda s: {"listed": ["y" * 100]},
        "b": lambda s: {"listed": Overwrite(["z" * 50])},
        "c": lambda s: {"listed": ["c"]},
    }
    graph = build(State, nodes, [(START, "a"), ("a", "b"), ("b", "c")], saver)
    world.invoke(graph, {"listed": ["x" * 1000]}, thread_id="t")
    assert world.state(graph, thread_id="t").values["listed"] == ["z" * 50, "c"]
    assert len(rows(saver)["listed"]) == 2


def test_what_a_child_hands_back_grows_too(world: World, saver: Saver) -> None:
    """8.1: its writes to a key that the parent reduces are kept one by one, and not all again each step."""
    child = laps(world, None, size=100, name="child")
    graph = build(State, {"child": child}, [(START, "child")], saver)
    expected = world.invoke(build(State, {"child": child}, [(START, "child")]), {"n": 20})
    assert world.invoke(graph, {"n": 20}, thread_id="t") == expected
    assert len(rows(saver, "child@1")["__wrote__"]) > 1


def test_the_state_of_an_unknown_graph_is_read_with_its_additions(world: World, saver: Saver) -> None:
    """9.1: a list that was added to is shown whole; what only its own reducer can fold is left out."""
    child = laps(world, None, size=100, name="child")

    async def call(state: State) -> State:
        await child.ainvoke({"n": 20})
        return {}

    graph = build(State, {"call": call}, [(START, "call")], saver, interrupt_after=["call"])
    world.invoke(graph, {}, thread_id="t")
    below = {"configurable": {"thread_id": "t", "checkpoint_ns": "call@1"}}
    (newest, *_) = world.history(graph, below)
    assert newest.values["listed"] == [f"{n}" * 100 for n in range(20, 0, -1)]
    assert ("ids" in newest.values) == (len(rows(saver, "call@1")["ids"]) == 1)


def test_a_reducer_that_is_not_declared_is_never_folded_again(world: World, saver: Saver) -> None:
    """Only lists that are added to, topics that accumulate and what says so are stored by their writes."""

    class Other(TypedDict, total=False):
        total: Annotated[list[int], lambda left, right: [*left, *right]]

    builder = StateGraph(Other).add_node("a", lambda s: {"total": [1]}).add_edge(START, "a")
    graph = builder.compile(saver)
    for _ in range(5):
        world.invoke(graph, {"total": [2] * 100}, thread_id="t")
    assert [len(parts) for parts in rows(saver).values()] == [1]
