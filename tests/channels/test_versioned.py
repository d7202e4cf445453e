"""The channels of a run: folding a step, saying what changed, at a cost of what was written."""

import operator
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from pregel.channels import (
    MISSING,
    BarrierChannel,
    BinaryOperatorAggregate,
    Channel,
    EphemeralValue,
    FoldError,
    LastValue,
    Topic,
    UntrackedValue,
    VersionedChannels,
)


class Counting(LastValue):
    """Counts, in one place for all, what is asked of channels."""

    calls: Counter[str] = Counter()

    def update(self, value: Any, writes: Sequence[Any]) -> Any:
        self.calls["update"] += 1
        return super().update(value, writes)

    def finish(self, value: Any) -> Any:
        self.calls["finish"] += 1
        return super().finish(value)

    def consume(self, value: Any) -> Any:
        self.calls["consume"] += 1
        return super().consume(value)

    def snapshot(self, value: Any) -> Any:
        self.calls["snapshot"] += 1
        return super().snapshot(value)

    def initial(self) -> Any:
        self.calls["initial"] += 1
        return super().initial()


def _channels(**channels: Channel) -> VersionedChannels:
    return VersionedChannels(channels)


def _step(channels: VersionedChannels, number: int, *writes: tuple[str, Any]) -> None:
    folded = channels.prepare(writes)
    channels.expire(folded)
    channels.apply(folded, number)


def test_3_1_writes_are_folded_in_the_order_given_whatever_lies_between_them() -> None:
    channels = _channels(log=BinaryOperatorAggregate(str, operator.add, str), x=LastValue(int))
    _step(channels, 1, ("log", "a"), ("x", 1), ("log", "b"))
    assert channels.values == {"log": "ab", "x": 1}


def test_3_2_what_is_prepared_changes_nothing_until_it_is_applied_and_then_all_at_once() -> None:
    channels = _channels(x=LastValue(int), y=LastValue(int))
    folded = channels.prepare([("x", 1), ("y", 2)])
    assert (channels.values, channels.versions, channels.stale) == ({}, {}, set())
    channels.apply(folded, 7)
    assert channels.values == {"x": 1, "y": 2}
    assert channels.versions == {"x": 7, "y": 7}


def test_2_7_a_fold_that_fails_names_its_channel_and_changes_nothing() -> None:
    channels = _channels(x=LastValue(int), y=LastValue(int))
    with pytest.raises(FoldError) as caught:
        channels.prepare([("x", 1), ("y", 1), ("y", 2)])
    assert caught.value.channel == "y"
    assert "one write a step" in str(caught.value.cause)
    assert channels.values == {}


def test_only_written_channels_get_a_version_and_become_stale() -> None:
    channels = _channels(x=LastValue(int), y=LastValue(int))
    _step(channels, 1, ("x", 1), ("y", 1))
    channels.stale.clear()
    _step(channels, 2, ("y", 2))
    assert channels.versions == {"x": 1, "y": 2}
    assert channels.stale == {"y"}


def test_a_fold_asks_only_the_channels_that_are_written_however_many_there_are() -> None:
    Counting.calls.clear()
    channels = VersionedChannels({f"k{i}": Counting(int) for i in range(10_000)})
    _step(channels, 1, *((f"k{i}", i) for i in range(10_000)))
    Counting.calls.clear()
    for number in range(2, 12):
        _step(channels, number, ("k3", number), ("k7", number))
    assert Counting.calls == {"update": 20}


def test_ending_a_step_asks_only_the_fleeting_channels_that_hold_something() -> None:
    class Fleeting(Counting):
        fleeting = True

    Counting.calls.clear()
    channels = VersionedChannels({f"k{i}": Fleeting(int) for i in range(1_000)})
    _step(channels, 1, ("k1", 1))
    assert Counting.calls["finish"] == 0
    _step(channels, 2)
    assert Counting.calls["finish"] == 1


def test_2_1_an_ephemeral_value_and_a_topic_last_until_the_next_super_step_ends() -> None:
    channels = _channels(e=EphemeralValue(int), t=Topic(str), x=LastValue(int))
    _step(channels, 1, ("e", 1), ("t", "m"))
    assert channels.read() == {"e": 1, "t": ["m"]}
    channels.stale.clear()
    _step(channels, 2, ("x", 1))
    assert channels.read() == {"x": 1}
    assert channels.stale == {"e", "t", "x"}
    assert channels.versions == {"x": 2}


def test_2_1_an_ephemeral_value_that_is_written_again_holds_what_was_written() -> None:
    channels = _channels(e=EphemeralValue(int))
    _step(channels, 1, ("e", 1))
    _step(channels, 2, ("e", 2))
    assert channels.values == {"e": 2}


def test_2_2_none_is_kept_and_read_as_a_value() -> None:
    channels = _channels(x=LastValue(object))
    _step(channels, 1, ("x", None))
    assert channels.read() == {"x": None}


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}])
def test_2_4_each_reader_gets_top_level_containers_of_its_own(value: Any) -> None:
    channels = _channels(x=LastValue(object))
    _step(channels, 1, ("x", value))
    first, second = channels.read(), channels.read()
    assert first == second == {"x": value}
    first["x"].clear()
    del first["x"]
    assert second["x"] == channels.values["x"] == channels.read()["x"] != type(value)()


def test_2_1_an_untracked_value_is_never_copied() -> None:
    handle: list[int] = []
    channels = _channels(u=UntrackedValue(list))
    _step(channels, 1, ("u", handle))
    assert channels.read()["u"] is handle


def test_2_4_a_container_replaced_by_something_else_is_no_longer_copied() -> None:
    channels = _channels(x=LastValue(object))
    _step(channels, 1, ("x", [1]))
    _step(channels, 2, ("x", 5))
    assert channels.read() == {"x": 5}
    assert channels.containers == set()


def test_2_3_initial_values_are_there_without_a_version_and_written_over() -> None:
    channels = VersionedChannels({"x": LastValue(int)}, {"x": 3})
    assert (channels.read(), channels.versions) == ({"x": 3}, {})
    _step(channels, 1, ("x", 4))
    assert channels.read() == {"x": 4}


def test_2_5_a_restored_value_passes_its_channel_and_keeps_its_version() -> None:
    channels = _channels(b=BarrierChannel("n", ["a", "b"]))
    channels.restore("b", 5, ["a"])
    assert channels.values == {"b": ("a",)}
    assert channels.versions == {"b": 5}
    assert channels.stale == set()


def test_setting_missing_empties_a_channel_once_and_the_same_value_again_is_no_change() -> None:
    channels = _channels(x=LastValue(list))
    _step(channels, 1, ("x", [1]))
    channels.stale.clear()
    channels.set("x", channels.values["x"], 2)
    assert channels.stale == set()
    channels.set("x", MISSING, 3)
    channels.set("x", MISSING, 4)
    assert (channels.values, channels.versions, channels.stale) == ({}, {}, {"x"})
