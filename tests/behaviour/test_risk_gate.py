"""The risk gate of the examples, in both worlds and over restarts (7.1, 7.3 to 7.6, 9.3)."""

from typing import Any

import pytest

from examples.risk_gate import risk_gate
from pregel import Saver
from tests.helpers import World, ids

AT = {"configurable": {"thread_id": "t"}}
RISKY = {"amount": 4000, "country": "unknown"}


def test_a_small_payment_pauses_before_it_is_paid(world: World, saver: Saver) -> None:
    """7.1: there is no question of risk."""
    paused = world.invoke(risk_gate(saver), {"amount": 100, "country": "NL"}, thread_id="t")
    assert ids(paused) == ["execute@2!before"]
    assert world.invoke(risk_gate(saver), None, thread_id="t")["log"] == ["scored 1", "paid 100 EUR"]


def test_a_risky_payment_pauses_after_its_score(world: World, saver: Saver) -> None:
    """7.4: the node has run, its update is merged, the payload says why."""
    paused = world.invoke(risk_gate(saver), RISKY, thread_id="t")
    (reason,) = paused["__interrupt__"]
    assert (reason.when, reason.value["risk"], paused["risk"]) == ("after", 100, 100)
    assert world.state(risk_gate(saver), thread_id="t").next == ("score/edge",)


def test_uncorrected_it_is_rejected_and_its_score_runs_once(world: World, saver: Saver) -> None:
    """7.3: the edge is decided when the run goes on."""
    world.invoke(risk_gate(saver), RISKY, thread_id="t")
    assert world.invoke(risk_gate(saver), None, thread_id="t")["log"] == ["scored 100", "rejected"]


@pytest.mark.parametrize("early", [True, False], ids=["edge later", "edge at once"])
def test_the_correction_changes_the_route_only_if_the_edge_comes_later(world: World, saver: Saver, early: bool) -> None:
    """7.3, 9.3: with interrupt_before_edge the route follows the corrected state, without it the route was fixed."""

    def gate() -> Any:
        return risk_gate(saver, interrupt_before_edge=early)

    world.invoke(gate(), RISKY, thread_id="t")
    world.update(gate(), AT, {"risk": 10})
    second = world.invoke(gate(), None, thread_id="t")
    if not early:
        assert second["log"] == ["scored 100", "rejected"]
        return
    assert [pause.when for pause in second["__interrupt__"]] == ["before"]
    assert world.invoke(gate(), None, thread_id="t")["log"] == ["scored 100", "paid 4000 EUR"]


def test_a_correction_before_the_payment_is_what_is_paid(world: World, saver: Saver) -> None:
    """9.3: state is corrected between the second pause and its resume; the route stays."""
    world.invoke(risk_gate(saver), {"amount": 100, "country": "NL"}, thread_id="t")
    world.update(risk_gate(saver), AT, {"amount": 90, "risk": 99})
    assert world.invoke(risk_gate(saver), None, thread_id="t")["log"] == ["scored 1", "paid 90 EUR"]


def test_recover_pays_nothing(world: World, saver: Saver) -> None:
    """7.6: after a crash the gate is as closed as before."""
    world.invoke(risk_gate(saver), RISKY, thread_id="t")
    world.update(risk_gate(saver), AT, {"risk": 10})
    assert [p.when for p in world.recover(risk_gate(saver), thread_id="t")["__interrupt__"]] == ["after"]
    world.invoke(risk_gate(saver), None, thread_id="t")
    assert [p.when for p in world.recover(risk_gate(saver), thread_id="t")["__interrupt__"]] == ["before"]
    assert world.state(risk_gate(saver), thread_id="t").values["log"] == ["scored 100"]
