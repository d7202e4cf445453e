"""A list of messages (rules 2.1, 2.2)."""

import pytest

from pregel.channels import MISSING, ChannelError, Overwrite, Topic


def test_2_1_a_topic_holds_the_messages_of_the_last_step() -> None:
    topic = Topic(str)
    assert topic.update(MISSING, ["a"]) == ["a"]
    assert topic.update(["a"], ["b", "c"]) == ["b", "c"]


def test_2_1_an_accumulating_topic_keeps_earlier_messages_first() -> None:
    assert Topic(str, accumulate=True).update(["a"], ["b", "c"]) == ["a", "b", "c"]


def test_2_1_a_list_is_spliced_in_and_its_inner_lists_are_not() -> None:
    assert Topic(object).update(MISSING, [["a", ["b"]], "c"]) == ["a", ["b"], "c"]


def test_2_1_a_step_without_writes_leaves_only_an_accumulating_topic_as_it_is() -> None:
    assert Topic(str).finish(["a"]) is MISSING
    assert Topic(str).fleeting
    assert Topic(str, accumulate=True).finish(["a"]) == ["a"]
    assert not Topic(str, accumulate=True).fleeting


def test_2_1_folding_leaves_the_present_list_and_the_written_one_alone() -> None:
    present, written = ["a"], ["b"]
    folded = Topic(str, accumulate=True).update(present, [written])
    folded.append("c")
    assert (present, written) == (["a"], ["b"])


def test_2_2_an_overwrite_replaces_all_messages_and_stands_alone() -> None:
    topic = Topic(str, accumulate=True)
    assert topic.update(["a"], [Overwrite(["z"])]) == ["z"]
    with pytest.raises(ChannelError, match="Overwrite"):
        topic.update(["a"], [Overwrite(["z"]), "b"])


def test_2_2_none_is_a_message_like_any_other() -> None:
    assert Topic(object).update(MISSING, [None, [None]]) == [None, None]


def test_2_1_a_topic_starts_empty_and_is_stored_as_it_is() -> None:
    topic = Topic(str)
    assert topic.initial() is MISSING
    assert topic.restore(topic.snapshot(["a"])) == ["a"]
    assert repr(topic) == "Topic(<class 'str'>, accumulate=False)"
