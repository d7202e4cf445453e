"""A head and its endings as stored bytes, and back."""

from typing import Any

import pytest

from pregel import Command, CorruptCheckpointError, Interrupt, NodeTask, Overwrite, PregelNode, Send
from pregel.channels import LastValue, UntrackedValue
from pregel.checkpoint import Saved, SerializationError, Serializer, unpack_versions
from pregel.head import SCHEDULING, Head
from pregel.stored import answers_of, commit_of, endings_of, missing_channels, record_of, restore
from pregel.task import Cancelled, Done, Ending, Failed, Interrupted

SERIALIZER = Serializer()
TASK = NodeTask(PregelNode("a", lambda s: None), activation=1)


def head_of(*channels: str) -> Head:
    plain: dict[str, Any] = {name: LastValue(int) for name in channels}
    return Head({**plain, "loose": UntrackedValue(int)}, SCHEDULING, {})


def saved_of(head: Head, *records: Any) -> Saved:
    commit = commit_of(
        head,
        SERIALIZER,
        {},
        namespace="",
        parent_namespace="",
        caller="g",
        fingerprint="f",
        metadata=SERIALIZER.encode({}),
    )
    values: dict[str, tuple[bytes, ...]] = {value.channel: (value.data,) for value in commit.values}
    return Saved(commit.checkpoint, unpack_versions(commit.checkpoint.versions), values, records)


def filled() -> Head:
    head = head_of("x", "y")
    head.channels.apply({"x": 1, "loose": object()}, 3)
    head.due = {"a": (3, {"s": None, "r": None})}
    head.scheduling.set("__sends__", [(3, 0, "a", {"k": (1,)}, None, "s@2")], 3)
    head.reasons = (Interrupt(None, id="a@3!before", node="a", when="before", next=("a",)),)
    head.status, head.handover = "paused", Command(update={"x": 1}, goto=[Send("a", 1)], graph=Command.PARENT)
    head.advance(3, "input", keep_line=False)
    head.discarded = ("b@1",)
    return head


def test_a_head_comes_back_as_it_was() -> None:
    """2.5: due tasks, packets, reasons and the rest survive; untracked values are not stored."""
    head, back = filled(), head_of("x", "y")
    restore(back, saved_of(head), SERIALIZER)
    for name in ("number", "parent", "step", "source", "status", "due", "line", "began", "handover", "discarded"):
        assert getattr(back, name) == getattr(head, name), name
    assert [i.as_dict() for i in back.reasons] == [i.as_dict() for i in head.reasons]
    assert back.channels.values == {"x": 1}
    assert [packet[:4] for packet in back.packets] == [(3, 0, "a", {"k": (1,)})]
    assert back.restored


def test_a_channel_that_is_gone_is_named() -> None:
    """9.7: stored channels that the graph lacks are listed; those that were never written are no matter."""
    saved = saved_of(filled())
    assert missing_channels(saved, head_of("x")) == []
    assert missing_channels(saved, head_of("y")) == ["x"]


def test_damaged_bytes_are_told_with_their_place() -> None:
    """12.3: checkpoint, namespace and channel are named."""
    saved = saved_of(filled())
    for broken, place in (
        (saved._replace(values={**saved.values, "x": (b"\xc1",)}), "channel 'x' of checkpoint 3"),
        (saved._replace(checkpoint=saved.checkpoint._replace(due=b"\xc1")), "checkpoint 3"),
    ):
        with pytest.raises(CorruptCheckpointError, match=place):
            restore(head_of("x", "y"), broken, SERIALIZER)


def back_and_forth(*endings: Ending) -> Ending:
    records = [record_of(ending, ending.task.id, "", 3, SERIALIZER) for ending in endings]
    return endings_of(saved_of(filled(), *records), [TASK], SERIALIZER)[TASK.id]


def test_endings_come_back_as_they_were() -> None:
    """5.1: each of the four; writes, targets, packets, questions and errors are kept."""
    value = Overwrite([1])
    sent = {"k": 1}
    writes: Any = [("x", value, SERIALIZER.encode(value)), ("loose", 1, None)]
    done = back_and_forth(Done(TASK, writes, ("b",), (("a", sent, SERIALIZER.encode(sent)),)))
    assert isinstance(done, Done)
    assert [write[0] for write in done.writes] == ["x"]
    assert (done.gotos, [packet[:2] for packet in done.sends], done.parent) == (("b",), [("a", sent)], None)
    asked = back_and_forth(Interrupted(TASK, (Interrupt("?", id="a@1#0"),), whole=True))
    assert isinstance(asked, Interrupted)
    assert (asked.interrupts, asked.whole) == ((Interrupt("?", id="a@1#0"),), True)
    failed = back_and_forth(Failed(TASK, ValueError("why", 1)))
    assert isinstance(failed, Failed)
    assert (type(failed.error), failed.error.args) == (ValueError, ("why", 1))
    assert isinstance(back_and_forth(Cancelled(TASK)), Cancelled)


def test_the_newest_record_of_a_task_counts() -> None:
    """5.5: a success after an error replaces it."""
    assert isinstance(back_and_forth(Failed(TASK, ValueError()), Done(TASK, [])), Done)


def test_a_question_that_cannot_be_stored_is_refused() -> None:
    """12.2: its record says what and where."""
    with pytest.raises(SerializationError):
        record_of(Interrupted(TASK, (Interrupt(object(), id="i"),)), "a@1", "", 3, SERIALIZER)


def test_answers_and_passed_pauses_are_read_apart() -> None:
    """6.6, 7.6: both lie in the records of the root's line."""
    done = record_of(Done(TASK, []), "a@1", "", 3, SERIALIZER)
    records = [done, done._replace(kind="answer", task_id="q", data=b"1"), done._replace(kind="passed", task_id="p")]
    assert answers_of(saved_of(filled(), *records)) == ({"q": b"1"}, {"p"})
