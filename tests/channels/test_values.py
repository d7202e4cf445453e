"""Channels that hold one value as it was written (rule 2.1)."""

from typing import Any

import pytest

from pregel.channels import (
    MISSING,
    AnyValue,
    Channel,
    ChannelError,
    EphemeralValue,
    LastValue,
    Overwrite,
    UntrackedValue,
)

ALL = [AnyValue, LastValue, EphemeralValue, UntrackedValue]
SINGLE = [LastValue, EphemeralValue, UntrackedValue]


@pytest.mark.parametrize("kind", ALL)
def test_2_1_one_write_becomes_the_value(kind: type[AnyValue]) -> None:
    assert kind(int).update(MISSING, [1]) == 1
    assert kind(int).update(1, [2]) == 2


@pytest.mark.parametrize("kind", SINGLE)
def test_2_1_a_second_write_in_one_step_is_refused(kind: type[AnyValue]) -> None:
    with pytest.raises(ChannelError, match="one write a step"):
        kind(int).update(MISSING, [1, 2])


def test_2_1_the_last_of_several_writes_to_any_value_wins() -> None:
    assert AnyValue(int).update(9, [1, 2, 3]) == 3


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("value", [None, False, 0, "", {}, []])
def test_2_2_none_and_other_falsy_values_are_values_like_any_other(kind: type[AnyValue], value: Any) -> None:
    channel = kind(object)
    written = channel.update("before", [value])
    assert written is value
    assert channel.is_available(written)
    assert channel.get(written) is value


@pytest.mark.parametrize("kind", ALL)
def test_2_2_an_overwrite_of_a_plain_value_is_a_write(kind: type[AnyValue]) -> None:
    assert kind(int).update(1, [Overwrite(2)]) == 2


@pytest.mark.parametrize("kind", ALL)
def test_2_1_an_empty_channel_has_nothing_to_read(kind: type[AnyValue]) -> None:
    channel = kind(int)
    assert channel.initial() is MISSING
    assert not channel.is_available(MISSING)
    with pytest.raises(ChannelError, match="empty"):
        channel.get(MISSING)


@pytest.mark.parametrize("kind", ALL)
def test_2_3_a_default_is_a_fresh_object_each_time(kind: type[AnyValue]) -> None:
    channel = kind(list, list)
    first, second = channel.initial(), channel.initial()
    assert first == second == []
    assert first is not second


def test_2_1_an_ephemeral_value_ends_with_its_super_step_and_the_others_stay() -> None:
    assert EphemeralValue(int).finish(1) is MISSING
    assert [kind(int).finish(1) for kind in (AnyValue, LastValue, UntrackedValue)] == [1, 1, 1]
    assert [kind.fleeting for kind in ALL] == [False, False, True, False]


def test_2_1_only_an_untracked_value_is_not_stored() -> None:
    assert [kind.stored for kind in ALL] == [True, True, True, False]


@pytest.mark.parametrize("kind", ALL)
def test_2_1_consuming_storing_and_restoring_leave_a_value_as_it_is(kind: type[AnyValue]) -> None:
    channel, value = kind(object), object()
    assert channel.consume(value) is value
    assert channel.restore(channel.snapshot(value)) is value


def test_the_base_class_says_nothing_about_how_to_fold() -> None:
    with pytest.raises(NotImplementedError):
        Channel().update(MISSING, [1])


def test_channels_and_overwrites_have_readable_representations() -> None:
    assert repr(LastValue(int)) == "LastValue()"
    assert repr(Overwrite([1])) == "Overwrite([1])"
    assert repr(MISSING) == "MISSING"


def test_2_2_overwrites_are_equal_by_value_and_not_hashable() -> None:
    assert Overwrite([1]) == Overwrite([1])
    assert Overwrite([1]) != Overwrite([2])
    assert Overwrite(1) != 1
    with pytest.raises(TypeError):
        hash(Overwrite(1))
