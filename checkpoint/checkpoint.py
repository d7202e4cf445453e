"""What is kept, as plain immutable values.

A checkpoint and its records are never changed once written. Numbers (`id`, `version`, `epoch`) count the commits of one
`(thread, namespace)`: they only grow, may have gaps, and are never used twice, across forks either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgpack

Source = Literal["input", "loop", "update", "fork", "resume"]
Status = Literal["running", "paused", "done", "failed", "handed_over"]
RecordKind = Literal["done", "interrupted", "failed", "cancelled", "answer", "passed", "step"]


class Key(NamedTuple):
    """Where a checkpoint lies. `namespace` is escaped task ids joined by "|", "" for the root; no id means the head."""

    thread_id: str
    namespace: str = ""
    checkpoint_id: int | None = None


class Run(NamedTuple):
    """What a run knows of its thread, and stakes with every write: the fence.

    `incarnation` is drawn at random by the run that creates the thread; `head` is the newest root checkpoint it knows,
    0 when the thread has none.
    """

    thread_id: str
    incarnation: str
    head: int


class Checkpoint(NamedTuple):
    """The state of one namespace between two super-steps, without its values."""

    namespace: str
    id: int
    parent_namespace: str
    parent_id: int  # 0: none
    token: str  # random; lets a run recognise its own commit when the reply was lost
    source: Source
    status: Status
    step: int  # super-steps since the last input
    created_at: float  # seconds since the epoch, UTC
    epoch: int  # number of the calling graph's checkpoint under which this was made; 0 in the root
    caller: str  # name of the graph that this namespace belongs to
    fingerprint: str  # of the graph's nodes and channels
    line: tuple[int, ...]  # checkpoints of this super-step whose records count, oldest first, itself included
    due: bytes  # the pending tasks, packed by the engine
    complete: bool  # `versions` holds every channel, not only the changes against the parent
    versions: bytes  # msgpack map: channel -> version; version 0 in a change means the channel is empty again
    metadata: bytes  # packed by the engine


class ChannelValue(NamedTuple):
    """One version of one channel: a full value, or what was added to the version `base`."""

    channel: str
    version: int
    kind: Literal["full", "delta"]
    base: int  # 0 for a full value
    data: bytes


class TaskRecord(NamedTuple):
    """How one task of a checkpoint ended, or another fact about it. Append-only; the newest of the line counts."""

    namespace: str
    checkpoint_id: int
    task_id: str
    kind: RecordKind
    data: bytes


class Commit(NamedTuple):
    """A checkpoint with the values that it changed."""

    checkpoint: Checkpoint
    values: tuple[ChannelValue, ...]


class Saved(NamedTuple):
    """A checkpoint as it is read: `versions` complete, every value it needs, the records of its line."""

    checkpoint: Checkpoint
    versions: dict[str, int]
    values: dict[str, tuple[bytes, ...]]  # channel -> the full value, then the deltas to add, in order
    records: tuple[TaskRecord, ...]  # in the order of the line, so a later one replaces an earlier one


class Found(NamedTuple):
    """What a saver knows at one instant of a thread and one of its namespaces."""

    run: Run | None  # None: there is no such thread
    top: int  # the highest number in the namespace, 0 if none
    saved: Saved | None  # the checkpoint that was asked for, or None


class Tag(NamedTuple):
    """What `release` gave back: the thread and how many checkpoints of it are gone."""

    thread_id: str
    checkpoints: int


def pack_versions(versions: Mapping[str, int]) -> bytes:
    """Return a map of versions as a checkpoint keeps it."""
    return msgpack.packb(versions)  # type: ignore[no-any-return] # bytes without autoreset


def unpack_versions(data: bytes) -> dict[str, int]:
    """Return what `pack_versions` packed. Raises ValueError for other bytes."""
    return dict(msgpack.unpackb(data))
