"""States that are read, edited, replayed and forked (9.1 to 9.4)."""

import operator
from typing import Annotated, Any, TypedDict

import pytest

from pregel import InvalidUpdateError, NoCheckpointerError, NoCheckpointError, Saver, interrupt
from tests.behaviour.calling import noted
from tests.helpers import START, Ran, World, build, ids


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    x: int


def graph_of(world: World, saver: Saver | None, ran: Ran) -> Any:
    """Return `first`, then `ask` beside `done`, then `last`."""

    def log(name: str) -> Any:
        return world.node(lambda s: noted(ran, name, {"log": [name]}))

    def ask(state: State) -> dict[str, Any]:
        ran("ask")
        return {"log": [(state.get("x"), interrupt("?"))]}

    nodes = {"first": log("first"), "ask": world.node(ask), "done": log("done"), "last": log("last")}
    edges: list[tuple[Any, str]] = [(START, "first"), ("first", "ask"), ("first", "done"), (["ask", "done"], "last")]
    return build(State, nodes, edges, saver)


def at(world: World, graph: Any, *following: str) -> Any:
    """Return the config of the oldest state with just these nodes next."""
    return [s for s in world.history(graph, thread_id="t") if s.next == following][-1].config


def test_a_paused_thread_shows_its_tasks(world: World, saver: Saver, ran: Ran) -> None:
    """9.1: finished siblings of a paused step show in `tasks`, not in `values`."""
    graph = graph_of(world, saver, ran)
    world.invoke(graph, {"x": 1}, thread_id="t", tags=["tag"], metadata={"who": "me"})
    state = world.state(graph, thread_id="t")
    assert (state.values, state.next, state.status) == ({"log": ["first"], "x": 1}, ("ask",), "paused")
    assert [(t.name, t.status, t.result) for t in state.tasks] == [
        ("ask", "interrupted", None),
        ("done", "done", {"log": ["done"]}),
    ]
    assert [i.value for i in state.interrupts] == ["?"]
    assert state.metadata["who"] == "me"
    assert state.metadata["tags"] == ["tag"]
    assert state.created_at is not None
    assert world.state(graph, state.parent_config).config == state.parent_config


def test_an_unknown_thread_is_empty(world: World, saver: Saver, ran: Ran) -> None:
    """9.1: an unknown thread gives an empty snapshot; without a checkpointer there is nothing to ask."""
    state = world.state(graph_of(world, saver, ran), thread_id="no")
    assert (state.values, state.next, state.tasks, state.status, state.parent_config) == ({}, (), (), None, None)
    assert world.history(graph_of(world, saver, ran), thread_id="no") == []
    with pytest.raises(NoCheckpointerError):
        world.state(graph_of(world, None, ran), thread_id="t")


def test_a_history_is_newest_first(world: World, saver: Saver, ran: Ran) -> None:
    """9.2: newest first, each with the link to its parent; filter, before and limit narrow it; it is lazy."""
    graph = graph_of(world, saver, ran)
    world.invoke(graph, {"x": 1}, thread_id="t")
    world.resume(graph, 1, thread_id="t")
    states = world.history(graph, thread_id="t")
    assert [s.metadata["source"] for s in states] == ["loop", "loop", "resume", "loop", "loop", "input"]
    assert [s.parent_config for s in states] == [*(s.config for s in states[1:]), None]
    assert world.history(graph, thread_id="t", limit=2) == states[:2]
    assert world.history(graph, thread_id="t", limit=0) == []
    assert world.history(graph, thread_id="t", before=states[3].config) == states[4:]
    assert world.history(graph, thread_id="t", filter={"source": "resume"}) == [states[2]]
    assert world.history(graph, thread_id="t", filter={"nobody": 1}) == []
    assert next(graph.get_state_history(thread_id="t")) == states[0]


def test_an_edit_of_a_paused_thread_keeps_what_is_pending(world: World, saver: Saver, ran: Ran) -> None:
    """9.3: always a new checkpoint with parent link; tasks, ids, records and pauses stay; then resume."""
    graph = graph_of(world, saver, ran)
    world.invoke(graph, {"x": 1}, thread_id="t")
    before = world.state(graph, thread_id="t")
    config = world.update(graph, None, {"x": 2, "log": ["edit"]}, thread_id="t")
    after = world.state(graph, thread_id="t")
    assert (after.config, after.parent_config, after.metadata["source"]) == (config, before.config, "update")
    assert (after.tasks, after.interrupts, after.next, after.status) == (
        before.tasks,
        before.interrupts,
        before.next,
        "paused",
    )
    assert world.resume(graph, "yes", thread_id="t") == {"log": ["first", "edit", (2, "yes"), "done", "last"], "x": 2}
    assert ran.counts == {"first": 1, "ask": 2, "done": 1, "last": 1}


def test_an_edit_is_refused_where_nothing_is(world: World, saver: Saver, ran: Ran) -> None:
    """9.3, 1.6: refused on a thread with nothing stored, and for keys that are not declared."""
    graph = graph_of(world, saver, ran)
    with pytest.raises(NoCheckpointError):
        world.update(graph, None, {"x": 1}, thread_id="t")
    assert list(saver.threads()) == []
    world.invoke(graph, {}, thread_id="t")
    head = world.state(graph, thread_id="t")
    with pytest.raises(InvalidUpdateError, match="nope"):
        world.update(graph, None, {"nope": 1}, thread_id="t")
    assert world.state(graph, thread_id="t") == head


@pytest.mark.parametrize("replay", ["invoke", "fork"])
def test_a_replay_runs_everything_again(world: World, saver: Saver, ran: Ran, replay: str) -> None:
    """9.4: `invoke(None)` at an older checkpoint or `fork` activate anew: new ids, no records, pauses again."""
    graph = graph_of(world, saver, ran)
    first = ids(world.invoke(graph, {"x": 1}, thread_id="t"))
    world.resume(graph, "old", thread_id="t")
    ran.take()
    config = at(world, graph, "ask", "done")
    paused = world.invoke(graph, None, config) if replay == "invoke" else world.call(graph, "fork", config)
    assert sorted(ran.take()) == ["ask", "done"]
    assert paused["log"] == ["first"]
    assert ids(paused) != first
    assert world.resume(graph, "new", thread_id="t")["log"] == ["first", (1, "new"), "done", "last"]


def test_a_fork_and_answer_keeps_finished_siblings(world: World, saver: Saver, ran: Ran) -> None:
    """9.4: `resume` at an older pause keeps ids and the records of finished siblings; the other branch is not read."""
    graph = graph_of(world, saver, ran)
    world.invoke(graph, {"x": 1}, thread_id="t")
    pause = world.state(graph, thread_id="t")
    world.resume(graph, "old", thread_id="t")
    for answer in ("new", "newer"):
        ran.take()
        result = world.call(graph, "resume", answer, pause.config)
        assert result["log"] == ["first", (1, answer), "done", "last"]
        assert ran.take() == ["ask", "last"]
    assert world.state(graph, pause.config).interrupts == pause.interrupts


def test_an_edit_of_an_older_state_forks(world: World, saver: Saver, ran: Ran) -> None:
    """9.4: `update_state` at an older checkpoint activates its due tasks anew, and nothing of the old branch shows."""
    graph = graph_of(world, saver, ran)
    world.invoke(graph, {"x": 1}, thread_id="t")
    world.resume(graph, "old", thread_id="t")
    ran.take()
    world.update(graph, at(world, graph, "ask", "done"), {"x": 5})
    assert ran.take() == []
    world.invoke(graph, None, thread_id="t")
    assert world.resume(graph, "new", thread_id="t") == {"log": ["first", (5, "new"), "done", "last"], "x": 5}


def test_new_input_at_an_older_state_forks_and_starts(world: World, saver: Saver, ran: Ran) -> None:
    """9.4: new input there starts from the entry on the values of that checkpoint."""
    graph = graph_of(world, saver, ran)
    world.invoke(graph, {"x": 1}, thread_id="t")
    world.resume(graph, "old", thread_id="t")
    result = world.invoke(graph, {"log": ["in"]}, at(world, graph, "first"))
    assert result["log"] == ["in", "first"]
    assert len(ids(result)) == 1


def test_the_head_as_a_checkpoint_id_means_go_on(world: World, saver: Saver, ran: Ran) -> None:
    """9.4: a checkpoint id that is the head means continue; an unknown one is refused."""
    graph = graph_of(world, saver, ran)
    paused = world.invoke(graph, {}, thread_id="t")
    head = world.state(graph, thread_id="t").config
    ran.take()
    assert world.invoke(graph, None, head) == paused
    assert ran.take() == []
    with pytest.raises(NoCheckpointError):
        world.invoke(graph, None, thread_id="t", checkpoint_id="000000000999")


def test_a_fork_goes_back_into_a_child_as_it_was(world: World, saver: Saver, ran: Ran) -> None:
    """9.4: fork-and-answer keeps child states as they were there; a replay runs the child from its start."""

    def named(name: str) -> Any:
        return world.node(lambda s: noted(ran, name, {"log": [name]}))

    def asking(state: State) -> dict[str, Any]:
        ran("ask")
        return {"log": [interrupt("?")]}

    ask = world.node(asking)
    nodes = {"a": named("a"), "ask": ask, "c": named("c")}
    child = build(State, nodes, [(START, "a"), ("a", "ask"), ("ask", "c")])
    graph = build(State, {"p": child}, [(START, "p")], saver)
    world.invoke(graph, {}, thread_id="t")
    pause = world.state(graph, thread_id="t").config
    world.resume(graph, 1, thread_id="t")
    ran.take()
    assert world.call(graph, "resume", 2, pause) == {"log": ["a", 2, "c"]}
    assert ran.take() == ["ask", "c"]
    world.invoke(graph, None, at(world, graph, "p"))
    assert ran.take() == ["a", "ask"]
