"""The super-step below the builder: nodes, channels and wake-ups made by hand (rules 1.3, 2.1, 3.3)."""

from typing import Any

import pytest

from pregel import (
    BarrierChannel,
    BinaryOperatorAggregate,
    GraphValidationError,
    LastValue,
    Pregel,
    PregelNode,
    TriggerChannel,
)
from pregel.channels import Channel
from tests.helpers import World


def _add(a: list[str], b: list[str]) -> list[str]:
    return a + b


def _node(world: World, name: str, **options: Any) -> PregelNode:
    return PregelNode(name, world.node(lambda s: {"log": [name]}), **options)


def _engine(nodes: list[PregelNode], entry: tuple[str, ...] = (), **channels: Channel) -> Pregel[Any]:
    log = BinaryOperatorAggregate(list, _add)
    return Pregel(nodes, {"log": log, "x": LastValue(int), **channels}, entry=entry, isolation="check")


def test_2_1_a_trigger_channel_wakes_its_target(world: World) -> None:
    nodes = [_node(world, "a", writes=("go",)), _node(world, "b", triggers=("go",))]
    assert world.invoke(_engine(nodes, ("a",), go=TriggerChannel("b")), {})["log"] == ["a", "b"]


@pytest.mark.parametrize(("entry", "log"), [("ac", "acd"), ("bc", "bcd"), ("ab", "ab"), ("abc", "abcd"), ("c", "c")])
def test_1_3_a_barrier_of_groups_wakes_its_target_when_all_have_sent(world: World, entry: str, log: str) -> None:
    nodes = [_node(world, name, writes=("all",)) for name in "abc"] + [_node(world, "d", triggers=("all",))]
    engine = _engine(nodes, tuple(entry), all=BarrierChannel("d", [{"a", "b"}, "c"]))
    assert "".join(world.invoke(engine, {})["log"]) == log


def test_2_1_a_node_that_subscribes_to_a_channel_is_woken_by_each_commit_that_changes_it(world: World) -> None:
    def count(s: Any) -> dict[str, Any]:
        return {"log": ["count"], **({"x": s["x"] + 1} if s["x"] < 3 else {})}

    engine = _engine([PregelNode("count", world.node(count), triggers=("x",))])
    assert world.invoke(engine, {"x": 1}) == {"x": 3, "log": ["count"] * 3}
    assert world.invoke(engine, {"log": ["other"]}) == {"log": ["other"]}


def test_a_name_that_leads_nowhere_is_refused(world: World) -> None:
    with pytest.raises(GraphValidationError, match=r"'a' writes to \['nowhere'\]"):
        _engine([_node(world, "a", writes=("nowhere",))], ("a",))
    with pytest.raises(GraphValidationError, match="'a' is given twice"):
        _engine([_node(world, "a"), _node(world, "a")], ("a",))
    with pytest.raises(GraphValidationError, match="nope"):
        _engine([_node(world, "a")], ("nope",))
    with pytest.raises(GraphValidationError, match="nope"):
        _engine([_node(world, "a", triggers=("nope",))])
