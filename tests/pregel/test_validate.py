"""All that can be known to be wrong before the run, in one error (rule 1.5)."""

import operator
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypedDict

import pytest

from pregel import END, START, Command, GraphValidationError, Send, StateGraph, log, validate


class State(TypedDict, total=False):
    x: int
    log: Annotated[list[str], operator.add]


def _node(state: State) -> None: ...


def _builder(*names: str) -> "StateGraph[Any]":
    builder: StateGraph[Any] = StateGraph(State)
    for name in names:
        builder.add_node(name, _node)
    return builder


def _chain(*names: str) -> "StateGraph[Any]":
    builder = _builder(*names)
    for source, target in zip((START, *names), names, strict=False):
        builder.add_edge(source, target)
    return builder


def _faults(builder: "StateGraph[Any]", **options: Any) -> tuple[str, ...]:
    with pytest.raises(GraphValidationError) as caught:
        builder.compile(**options)
    assert caught.value.code == "invalid_graph"
    for fault in caught.value.faults:
        assert fault in str(caught.value)
    return caught.value.faults


Build = Callable[["StateGraph[Any]"], Any]

MISSPELT: list[tuple[str, Build]] = [
    ("source of an edge", lambda b: b.add_edge("revew", "write")),
    ("target of an edge", lambda b: b.add_edge("write", "revew")),
    ("member of a join", lambda b: b.add_edge(["write", "revew"], "review")),
    ("member of a group", lambda b: b.add_edge([{"write", "revew"}, "write"], "review")),
    ("target of a join", lambda b: b.add_edge(["write", "review"], "revew")),
    ("source of a router", lambda b: b.add_conditional_edges("revew", lambda s: "write")),
    ("value of a path map", lambda b: b.add_conditional_edges("write", lambda s: 1, {1: "revew"})),
    ("member of a path list", lambda b: b.add_conditional_edges("write", lambda s: "write", ["revew"])),
    ("destination", lambda b: b.add_node("third", _node, destinations=["revew"]).add_edge("write", "third")),
]


@pytest.mark.parametrize("wrong", [build for _, build in MISSPELT], ids=[name for name, _ in MISSPELT])
def test_1_5_an_unknown_node_is_refused_with_the_nearest_spelling(wrong: Build) -> None:
    builder = _chain("write", "review")
    wrong(builder)
    (fault,) = _faults(builder)
    assert "'revew'" in fault
    assert "did you mean 'review'?" in fault


@pytest.mark.parametrize("option", ["interrupt_before", "interrupt_after"])
def test_1_5_an_unknown_node_in_an_interrupt_list_is_refused_with_the_nearest_spelling(option: str) -> None:
    (fault,) = _faults(_chain("write", "review"), **{option: ["revew"]})
    assert fault == f"{option} names 'revew', which is no node; did you mean 'review'?"


@pytest.mark.parametrize("option", ["interrupt_before", "interrupt_after"])
def test_1_5_an_interrupt_list_that_is_plain_text_is_refused(option: str) -> None:
    (fault,) = _faults(_chain("write"), **{option: "write"})
    assert 'takes a list of names or "*"' in fault


def test_1_5_the_literals_of_annotations_are_checked_like_path_maps_and_destinations() -> None:
    def router(state: State) -> Literal["revew"]:
        return "revew"

    def jump(state: State) -> Command[Literal["revew"]]:
        return Command(goto="revew")

    builder = _chain("write", "review").add_conditional_edges("write", router)
    builder.add_node("jump", jump).add_edge("write", "jump")
    faults = _faults(builder)
    assert len(faults) == 2
    assert all("'revew', which is no node; did you mean 'review'?" in fault for fault in faults)


def _sends(state: State) -> list[Send]:
    return _helper()  # type: ignore[no-any-return] # only the annotation matters


def _jumps(state: State) -> Command | None:
    return _helper()  # type: ignore[no-any-return] # only the annotation matters


def _updates(state: State) -> dict[str, int]:
    return _helper()  # type: ignore[no-any-return] # only the annotation matters


def _helper() -> Any: ...


@pytest.mark.parametrize(("node", "reaches"), [(_sends, True), (_jumps, True), (_updates, False)])
def test_1_5_an_annotation_says_whether_a_node_may_jump(node: Any, reaches: bool) -> None:
    builder = _chain("a").add_node("b", _node).add_node("c", node).add_edge("a", "c")
    if reaches:
        assert "b" in builder.compile().nodes
    else:
        assert _faults(builder) == ("node 'b' cannot be reached from START",)


def test_1_5_without_a_near_spelling_all_names_are_listed() -> None:
    (fault,) = _faults(_chain("write", "review").add_edge("review", "zzz"))
    assert "known are ['__end__', 'review', 'write']" in fault


def test_1_5_start_is_no_target_and_end_is_no_source() -> None:
    faults = _faults(_chain("a").add_edge("a", START).add_edge(END, "a"))
    assert len(faults) == 2
    assert "'__start__', which is no node" in faults[0]
    assert "'__end__', which is no node" in faults[1]


def test_1_5_a_name_that_is_added_twice_is_refused() -> None:
    (fault,) = _faults(_chain("a").add_node("a", _node))
    assert fault == "node 'a' is added twice"


@pytest.mark.parametrize("name", [START, END, "__interrupt__", "__error__", "__cancelled__", "", "a\0b"])
def test_1_5_a_reserved_or_empty_name_is_refused(name: str) -> None:
    faults = _faults(_chain("a").add_node(name, _node))
    assert any("reserved or empty" in fault and repr(name) in fault for fault in faults)


def test_1_5_a_reserved_key_of_the_state_is_refused() -> None:
    state = TypedDict("state", {"__mine": int})
    builder: StateGraph[Any] = StateGraph(state)
    assert _faults(builder.add_node("a", _node).add_edge(START, "a")) == ("key '__mine' is reserved",)


def test_1_5_a_graph_without_nodes_or_without_entry_is_refused() -> None:
    assert _faults(_builder()) == ("the graph has no nodes",)
    (fault,) = _faults(_builder("a", "b").add_edge("a", "b"))
    assert "no entry" in fault
    assert "set_entry_point" in fault


def test_1_5_a_node_that_nothing_leads_to_is_refused() -> None:
    builder = _chain("a", "b")
    builder.add_node("c", _node).add_node("d", _node).add_edge("c", "d").add_edge("d", "c")
    assert _faults(builder) == ("node 'c' cannot be reached from START", "node 'd' cannot be reached from START")


def _send(state: State) -> Any:
    return Send("c", 1)


def _literal_router(state: State) -> Literal["c"]:
    return "c"


def _commanding(state: State) -> Any:
    return Command(goto="c")


REACHING: list[tuple[str, Build]] = [
    ("edge", lambda b: b.add_edge("a", "c")),
    ("join", lambda b: b.add_edge(["a", "b"], "c")),
    ("path map", lambda b: b.add_conditional_edges("a", lambda s: 1, {1: "c"})),
    ("annotated router", lambda b: b.add_conditional_edges("a", _literal_router)),
    ("router that may go anywhere", lambda b: b.add_conditional_edges("a", lambda s: "c")),
    ("router that sends", lambda b: b.add_conditional_edges("a", _send)),
    ("entry router", lambda b: b.add_conditional_edges(START, lambda s: "c")),
    ("destinations", lambda b: b.add_node("d", _node, destinations=["c"]).add_edge("a", "d")),
    ("command in the code", lambda b: b.add_node("d", _commanding).add_edge("a", "d")),
]


@pytest.mark.parametrize("way", [build for _, build in REACHING], ids=[name for name, _ in REACHING])
def test_1_5_an_edge_a_router_a_destination_or_a_command_reaches_a_node(way: Build) -> None:
    builder = _chain("a", "b").add_node("c", _node)
    way(builder)
    assert "c" in builder.compile().nodes


def test_1_5_a_decorated_function_reaches_what_its_body_may_jump_to() -> None:
    from functools import wraps

    @wraps(_commanding)
    def decorated(*args: Any) -> Any:
        return _commanding(*args)

    builder = _chain("a").add_node("c", _node).add_node("d", decorated).add_edge("a", "d")
    assert "c" in builder.compile().nodes


def test_1_5_a_router_with_a_path_map_reaches_nothing_else() -> None:
    builder = _chain("a", "b").add_node("c", _node).add_conditional_edges("a", lambda s: 1, {1: "b"})
    assert _faults(builder) == ("node 'c' cannot be reached from START",)


def test_1_5_a_barrier_that_can_never_fill_is_refused() -> None:
    builder = _chain("a", "b").add_node("c", _node).add_edge(["a", "c"], "b")
    assert "the join before 'b' can never fill: none of ['c'] is reached" in _faults(builder)
    builder = _chain("a", "b").add_edge(["a", "b"], "c").add_node("c", _node)
    assert "c" in builder.compile().nodes


@pytest.mark.parametrize("sources", [[], ["a", set()]])
def test_1_5_a_join_that_waits_for_nobody_is_refused(sources: Any) -> None:
    assert "the join before 'b' waits for nobody" in _faults(_chain("a", "b").add_edge(sources, "b"))


def test_1_5_a_reducer_that_does_not_take_two_arguments_is_refused() -> None:
    class Bad(TypedDict):
        x: Annotated[int, lambda a: a]

    builder: StateGraph[Any] = StateGraph(Bad)
    (fault,) = _faults(builder.add_node("a", _node).add_edge(START, "a"))
    assert "the reducer of 'x' does not take two arguments" in fault


class Narrow(TypedDict):
    x: str


class OtherFold(TypedDict):
    log: Annotated[list[str], operator.concat]


@pytest.mark.parametrize("where", ["input_schema", "output_schema"])
@pytest.mark.parametrize(("other", "key"), [(Narrow, "x"), (OtherFold, "log")])
def test_1_5_two_schemas_that_disagree_about_a_key_are_refused(where: str, other: type, key: str) -> None:
    options: dict[str, Any] = {where: other}
    builder: StateGraph[Any] = StateGraph(State, **options)
    (fault,) = _faults(builder.add_node("a", _node).add_edge(START, "a"))
    assert f"the schemas disagree about {key!r}" in fault


def test_1_5_a_node_schema_may_disagree_no_more_than_others() -> None:
    builder: StateGraph[Any] = StateGraph(State)
    builder.add_node("a", _node, input_schema=Narrow).add_edge(START, "a")
    assert "the schemas disagree about 'x'" in _faults(builder)[0]


def test_1_5_something_that_is_no_node_and_a_limit_of_no_time_are_refused() -> None:
    builder = _chain("a")
    builder.add_node("b", 5).add_node("c", _node, timeout=0).add_edge("a", "b").add_edge("a", "c")
    faults = _faults(builder)
    assert any("node 'b': a node must be a function" in fault for fault in faults)
    assert any("the timeout of 'c' must be more than 0 seconds" in fault for fault in faults)


def test_1_5_wrong_compile_options_are_faults_too() -> None:
    (fault,) = _faults(_chain("a"), isolation="none")
    assert "isolation must be" in fault
    (fault,) = _faults(_chain("a"), checkpointer="runs.db")
    assert "checkpointer must be a Saver" in fault


def test_1_5_all_faults_are_listed_in_one_error() -> None:
    builder = _chain("write", "review").add_node("lost", _node).add_node("review", _node)
    builder.add_edge("review", "wrte").add_edge("revew", "write").add_conditional_edges("write", str, {"a": "lst"})
    faults = _faults(builder, interrupt_before=["writ"], isolation="none")
    text = "\n".join(faults)
    for part in ("added twice", "'wrte'", "'revew'", "'lst'", "'lost' cannot be reached", "'writ'", "isolation"):
        assert part in text
    assert len(faults) == 7


def test_1_5_a_lambda_needs_a_name() -> None:
    builder: StateGraph[Any] = StateGraph(State)
    with pytest.raises(GraphValidationError, match="lambda has no name"):
        builder.add_node(lambda state: None)


UNEVEN: list[tuple[str, list[str]]] = [
    ("sa ab", []),
    ("sa sb ad bd", []),
    ("sa sb ad bc cd", ["d"]),
    ("sa sb ad bc cd de", ["d"]),
    ("sa sb ad bc cd ae dz", ["d"]),
    ("sa ab bc ca", []),
    ("sa ab ba bc ac", []),
    ("sa sb bc az cz", []),
    ("sa sa sb bc ad cd", ["d"]),
    ("xa sb", []),
]


@pytest.mark.parametrize(("ways", "expected"), UNEVEN)
def test_plain_edges_of_unequal_length_that_meet_are_found(ways: str, expected: list[str]) -> None:
    """3.3: their target runs once for each; cycles and ends are not counted."""
    names = {"s": START, "z": END}
    edges = [validate.Edge(names.get(way[0], way[0]), names.get(way[1], way[1])) for way in ways.split()]
    assert validate.uneven(edges) == expected


def test_a_node_that_runs_more_than_once_is_warned_of_unless_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    """3.3, 3.4: with a join or `defer` it runs once, and nothing is said."""

    def compiled(defer: bool) -> None:
        builder = StateGraph(State)
        for name in "abcd":
            builder.add_node(name, lambda state: None, defer=defer and name == "d")
        for source, target in ((START, "a"), (START, "b"), ("a", "d"), ("b", "c"), ("c", "d")):
            builder.add_edge(source, target)
        builder.compile()

    with caplog.at_level("WARNING", logger="pregel"):
        compiled(defer=True)
        assert caplog.records == []
        compiled(defer=False)
    assert [record.getMessage() for record in caplog.records] == [log.UNEVEN_BRANCHES]
