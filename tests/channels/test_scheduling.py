"""Trigger and barrier (rules 1.3, 2.1, 2.6)."""

from collections.abc import Iterable
from itertools import permutations
from typing import Any

import pytest

from pregel.channels import MISSING, BarrierChannel, ChannelError, TriggerChannel


def test_2_1_a_trigger_keeps_each_sender_once_in_the_order_of_messages() -> None:
    trigger = TriggerChannel("n")
    assert trigger.update(MISSING, ["b", "a", "b"]) == ("b", "a")
    assert trigger.update(("b",), ["a", "b"]) == ("b", "a")


def test_3_3_a_trigger_is_available_until_it_is_consumed() -> None:
    trigger = TriggerChannel("n")
    value = trigger.update(MISSING, ["a"])
    assert trigger.is_available(value)
    assert not trigger.is_available(trigger.consume(value))


def _sent(barrier: BarrierChannel, *steps: Iterable[str]) -> Any:
    value: Any = MISSING
    for step in steps:
        value = barrier.update(value, list(step))
    return value


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_1_3_a_barrier_is_full_when_all_have_sent_in_any_order(order: tuple[str, ...]) -> None:
    barrier = BarrierChannel("n", ["a", "b", "c"])
    assert not barrier.is_available(_sent(barrier, *order[:2]))
    assert barrier.is_available(_sent(barrier, *order))


def test_2_6_the_same_sender_twice_counts_once() -> None:
    barrier = BarrierChannel("n", ["a", "b"])
    value = _sent(barrier, "a", "a", ["a", "a"])
    assert value == ("a",)
    assert not barrier.is_available(value)


@pytest.mark.parametrize(
    ("senders", "full"),
    [("a", False), ("b", False), ("c", False), ("ab", False), ("ac", True), ("bc", True), ("abc", True)],
)
def test_1_3_a_group_waits_for_one_of_its_members_and_the_barrier_for_all_groups(senders: str, full: bool) -> None:
    barrier = BarrierChannel("n", [{"a", "b"}, "c"])
    assert barrier.is_available(_sent(barrier, senders)) is full


def test_1_3_a_sender_in_two_groups_fills_both() -> None:
    barrier = BarrierChannel("n", [{"a", "b"}, {"a", "c"}])
    assert barrier.is_available(_sent(barrier, "a"))
    assert not barrier.is_available(_sent(barrier, "b"))
    assert barrier.is_available(_sent(barrier, "bc"))


def test_2_6_consuming_empties_a_full_barrier_and_leaves_a_half_filled_one() -> None:
    barrier = BarrierChannel("n", ["a", "b"])
    assert barrier.consume(_sent(barrier, "a")) == ("a",)
    assert barrier.consume(_sent(barrier, "ab")) is MISSING
    assert barrier.consume(MISSING) is MISSING


def test_2_5_a_half_filled_barrier_survives_being_stored_with_its_senders() -> None:
    barrier = BarrierChannel("n", ["a", "b", "c"])
    stored = barrier.snapshot(_sent(barrier, "c", "a"))
    assert stored == ["c", "a"]
    assert barrier.restore(stored) == ("c", "a")


def test_2_1_a_barrier_refuses_a_sender_that_it_does_not_await() -> None:
    with pytest.raises(ChannelError, match=r"'x' is not awaited by the barrier before 'n'"):
        BarrierChannel("n", ["a"]).update(MISSING, ["x"])


@pytest.mark.parametrize("groups", [[], [set()], ["a", set()]])
def test_1_5_a_barrier_that_waits_for_nobody_is_refused(groups: Any) -> None:
    with pytest.raises(ChannelError, match="waits for nobody"):
        BarrierChannel("n", groups)


def test_scheduling_channels_show_their_target_and_groups() -> None:
    assert repr(TriggerChannel("n")) == "TriggerChannel('n')"
    assert repr(BarrierChannel("n", [{"b", "a"}, "c"])) == "BarrierChannel('n', [['a', 'b'], ['c']])"
