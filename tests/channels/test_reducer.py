"""A value into which writes are folded (rules 2.1, 2.2, 2.3)."""

import operator
from typing import Any

import pytest

from pregel.channels import MISSING, BinaryOperatorAggregate, ChannelError, Overwrite


@pytest.mark.parametrize(
    ("kind", "empty"),
    [(int, 0), (str, ""), (list, []), (list[str], []), (dict[str, int], {}), (set, set()), (float, 0.0)],
)
def test_2_1_it_starts_at_an_empty_value_of_its_type(kind: Any, empty: Any) -> None:
    assert BinaryOperatorAggregate(kind, operator.add).initial() == empty


def test_2_1_the_default_of_the_schema_stands_before_the_empty_value() -> None:
    assert BinaryOperatorAggregate(int, operator.add, lambda: 10).initial() == 10


def test_2_3_each_start_is_a_fresh_object() -> None:
    channel = BinaryOperatorAggregate(list, operator.add)
    assert channel.initial() is not channel.initial()


def _of_two(a: int, b: int) -> int:
    return a * 10 + b


class NeedsArgument:
    def __init__(self, value: int) -> None:
        self.value = value


@pytest.mark.parametrize("kind", [NeedsArgument, int | None, Any])
def test_2_1_without_an_empty_value_the_first_write_is_taken_as_it_is(kind: Any) -> None:
    channel = BinaryOperatorAggregate(kind, _of_two)
    assert channel.initial() is MISSING
    assert channel.update(MISSING, [1, 2]) == 12


def test_2_1_writes_are_folded_in_the_order_given() -> None:
    assert BinaryOperatorAggregate(int, _of_two).update(7, [1, 2, 3]) == 7123


def test_2_1_folding_leaves_the_present_value_alone() -> None:
    present = ["a"]
    assert BinaryOperatorAggregate(list, operator.add).update(present, [["b"], ["c"]]) == ["a", "b", "c"]
    assert present == ["a"]


def test_2_2_an_overwrite_replaces_the_value() -> None:
    assert BinaryOperatorAggregate(list, operator.add).update(["a"], [Overwrite(["z"])]) == ["z"]


@pytest.mark.parametrize("replacement", [None, 0, []])
def test_2_2_an_overwrite_may_replace_by_anything(replacement: Any) -> None:
    assert BinaryOperatorAggregate(int, operator.add).update(5, [Overwrite(replacement)]) is replacement


@pytest.mark.parametrize("writes", [[Overwrite(1), 2], [2, Overwrite(1)], [Overwrite(1), Overwrite(1)]])
def test_2_2_an_overwrite_beside_any_other_write_is_refused(writes: list[Any]) -> None:
    with pytest.raises(ChannelError, match="Overwrite stands beside other writes"):
        BinaryOperatorAggregate(int, operator.add).update(0, writes)


def test_2_2_none_is_handed_to_the_reducer_like_any_value() -> None:
    channel = BinaryOperatorAggregate(list, lambda a, b: [*a, b])
    assert channel.update([], [None, 1]) == [None, 1]


def test_2_7_what_the_reducer_raises_comes_out_as_it_is() -> None:
    with pytest.raises(TypeError):
        BinaryOperatorAggregate(int, operator.add).update(0, ["x"])


def test_a_reducer_channel_shows_its_type_and_operator() -> None:
    assert repr(BinaryOperatorAggregate(int, operator.add)) == (
        "BinaryOperatorAggregate(<class 'int'>, <built-in function add>)"
    )
