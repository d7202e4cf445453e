"""A run's head becomes stored bytes, and comes back from them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from .channels import MISSING, Channel, Folded, Overwrite, VersionedChannels
from .checkpoint import (
    ChannelValue,
    Checkpoint,
    Commit,
    Growth,
    Saved,
    SerializationError,
    Serializer,
    TaskRecord,
    grown,
    is_addition,
    pack_versions,
    register_type,
)
from .errors import CorruptCheckpointError, PregelError
from .head import MEMORY, SENDS, Head, Packet
from .interrupt import Interrupt
from .task import Cancelled, Done, Ending, Failed, Interrupted, NodeTask
from .types import Command, Send

Encoded = Mapping[str, tuple[Literal["full", "delta"], bytes]]
"""The bytes of channel values that are known already, by channel: in full, or what was added."""

NO_BYTES: Encoded = {}


# --- a head becomes a commit ------------------------------------------------------------------------------------


def commit_of(
    head: Head,
    serializer: Serializer,
    known: Encoded,
    *,
    namespace: str,
    parent_namespace: str,
    caller: str,
    fingerprint: str,
    metadata: bytes,
) -> Commit:
    """Return the commit of a head that has just advanced; only what changed since the last one is encoded."""
    versions, values = _changes(head, serializer, known)
    head.unlisted += len(versions)
    complete = not head.parent or head.unlisted >= len(head.channels.versions) + len(head.scheduling.versions)
    if complete:  # now and then, so that a reader follows no more changes than there are channels
        head.unlisted = 0
        stored = head.channels.channels
        versions = {name: v for name, v in head.channels.versions.items() if stored[name].stored}
        versions |= head.scheduling.versions
    due = [[name, entry[0], list(entry[1])] for name, entry in head.due.items()]
    pauses = [list(head.reasons), [list(item) for item in head.withheld]]
    rest = [head.began, pauses, list(head.discarded), head.handover, head.unlisted, head.called_by]
    checkpoint = Checkpoint(
        namespace,
        head.number,
        parent_namespace,
        head.parent,
        secrets.token_hex(8),
        head.source,
        head.status,
        head.step,
        time.time(),
        head.epoch,
        caller,
        fingerprint,
        head.line,
        serializer.encode([due, *rest]),
        complete,
        pack_versions(versions),
        metadata,
    )
    return Commit(checkpoint, tuple(values))


def _changes(head: Head, serializer: Serializer, known: Encoded) -> tuple[dict[str, int], list[ChannelValue]]:
    """Return the versions and values that changed since the last commit, and forget that they did."""
    versions: dict[str, int] = {}
    values: list[ChannelValue] = []
    for channels in (head.channels, head.scheduling):
        for name in channels.stale:
            channel = channels.channels[name]
            if not channel.stored:
                continue
            value = channels.values.get(name, MISSING)
            versions[name] = 0 if value is MISSING else head.number
            if value is MISSING:
                head.growth.pop(name, None)
                continue
            kind, data = known.get(name) or _encoded(head, serializer, channels, name)
            growth = head.growth.get(name)
            if kind == "delta" and growth is not None:
                values.append(ChannelValue(name, head.number, kind, growth.version, data))
                head.growth[name] = grown(growth, head.number, len(data))
            else:
                values.append(ChannelValue(name, head.number, "full", 0, data))
                if channel.grows:
                    head.growth[name] = Growth(head.number, len(data), 0)
        channels.stored()
    return versions, values


def _encoded(
    head: Head, serializer: Serializer, channels: VersionedChannels, name: str
) -> tuple[Literal["full", "delta"], bytes]:
    channel, value = channels.channels[name], channels.values[name]
    if name == SENDS:
        return "full", _encode_packets(serializer, value)
    if name in channels.grown:
        pieces = [serializer.encode(write) for write in channels.grown[name]]
        if (data := _addition(head, serializer, name, channel, pieces)) is not None:
            return "delta", data
    return "full", serializer.encode(channel.snapshot(value))


def _addition(head: Head, serializer: Serializer, name: str, channel: Channel, pieces: Sequence[bytes]) -> bytes | None:
    """Return what was added to a growing value as it is stored, None if the whole value is stored instead."""
    growth = head.growth.get(name)
    if not is_addition(growth, sum(map(len, pieces))):
        return None
    data = serializer.encode([channel.grows, list(pieces)])
    return data if is_addition(growth, len(data)) else None


def encode_folded(head: Head, serializer: Serializer, folded: Folded, endings: Sequence[Done]) -> Encoded:
    """Return the bytes of folded values; what was written has them already, and of a value that grows only that is.

    Raises SerializationError with `channel`.
    """
    encoded: dict[str, tuple[Literal["full", "delta"], bytes]] = {}
    channels = head.channels.channels
    pieces: dict[str, list[bytes]] = {}
    for ending in endings:
        for name, value, data in ending.writes:
            if data is None:
                continue
            if channels[name].grows:
                pieces.setdefault(name, []).append(data)
            elif folded[name] is value and type(channels[name]).snapshot is Channel.snapshot:
                encoded[name] = "full", data
    for name, added in pieces.items():
        is_added = not any(type(write) is Overwrite for write in folded.writes[name])
        if is_added and (data := _addition(head, serializer, name, channels[name], added)) is not None:
            encoded[name] = "delta", data
    for name, value in folded.items():
        if name not in encoded and channels[name].stored:
            try:
                encoded[name] = "full", serializer.encode(channels[name].snapshot(value))
            except SerializationError as error:
                error.channel = name  # type: ignore[attr-defined] # PregelError carries any data
                raise
    return encoded


def _encode_packets(serializer: Serializer, packets: Iterable[Packet]) -> bytes:
    return serializer.encode(
        [
            [act, index, node, serializer.encode(arg) if data is None else data, sender]
            for act, index, node, arg, data, sender in packets
        ]
    )


def claim(checkpoint: Checkpoint, number: int, epoch: int = 0, memory: bytes | None = None) -> Commit:
    """Return a commit that changes nothing but the numbers: the part of the levels above in an edit of a namespace.

    With `memory`, packed, it points to where memories stand now.
    """
    values = () if memory is None else (ChannelValue(MEMORY, number, "full", 0, memory),)
    line = (*checkpoint.line, number)
    next_ = checkpoint._replace(
        id=number,
        parent_namespace=checkpoint.namespace,
        parent_id=checkpoint.id,
        token=secrets.token_hex(8),
        source="update",
        created_at=time.time(),
        epoch=epoch,
        line=line,
        complete=False,
        versions=pack_versions({value.channel: number for value in values}),
    )
    return Commit(next_, values)


# --- a commit becomes a head ------------------------------------------------------------------------------------


def restore(head: Head, saved: Saved, serializer: Serializer) -> None:
    """Fill a fresh head from what was read. Raises CorruptCheckpointError naming checkpoint and channel."""
    checkpoint = saved.checkpoint
    head.number = checkpoint.id
    head.parent = checkpoint.parent_id
    head.restored = True
    head.step = checkpoint.step
    head.source = checkpoint.source
    head.status = checkpoint.status
    head.line = checkpoint.line
    head.epoch = checkpoint.epoch
    where = f"checkpoint {checkpoint.id} of namespace {checkpoint.namespace!r}"
    due, began, pauses, discarded, handover, unlisted, called_by = _decode(serializer, checkpoint.due, where)
    reasons, withheld = pauses
    head.due = {name: (act, dict.fromkeys(senders)) for name, act, senders in due}
    head.began = began
    head.reasons = tuple(reasons)
    head.withheld = tuple((name, act, index) for name, act, index in withheld)
    head.discarded = tuple(discarded)
    head.handover = handover
    head.called_by = called_by
    head.unlisted = unlisted
    for name, version in saved.versions.items():
        channels = head.channels if name in head.channels.channels else head.scheduling
        stored, added = read_value(saved.values[name], serializer, f"channel {name!r} of {where}")
        if name == SENDS:
            stored = [
                (act, index, node, _decode(serializer, data, f"a packet of {where}"), data, sender)
                for act, index, node, data, sender in stored
            ]
        channels.restore(name, version, stored, added)
        if channels.channels[name].grows:
            full, *additions = map(len, saved.values[name])
            head.growth[name] = Growth(version, full, sum(additions))


def read_value(parts: Sequence[bytes], serializer: Serializer, where: str) -> tuple[Any, list[Any]]:
    """Return a stored value, and the writes that only its channel can fold into it."""
    stored = _decode(serializer, parts[0], where)
    added: list[Any] = []
    for addition in parts[1:]:
        how, pieces = _decode(serializer, addition, where)
        writes = [_decode(serializer, piece, where) for piece in pieces]
        if how == "append":  # whatever the channel does now, this is what it did
            stored.extend(item for write in writes for item in (write if isinstance(write, list) else [write]))
        else:
            added += writes
    return stored, added


def _decode(serializer: Serializer, data: bytes, where: str) -> Any:
    try:
        return serializer.decode(data)
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(f"{where}: {error}", path=error.path) from error


def missing_channels(saved: Saved, head: Head) -> list[str]:
    """Return the channels of a stored checkpoint that the graph no longer has (rule 9.7)."""
    return [n for n in saved.versions if n not in head.channels.channels and n not in head.scheduling.channels]


def waiting_nodes(saved: Saved, serializer: Serializer) -> list[str]:
    """Return the names of the nodes that a checkpoint is to run, without a graph that knows them."""
    due, _, (_, withheld), *_ = serializer.decode(saved.checkpoint.due)
    packets = serializer.decode(saved.values[SENDS][0]) if SENDS in saved.values else []
    return list(dict.fromkeys([name for name, *_ in withheld] + [d[0] for d in due] + [p[2] for p in packets]))


def calling_task(saved: Saved, serializer: Serializer) -> str:
    """Return the task that called a graph with a memory."""
    task: str = serializer.decode(saved.checkpoint.due)[-1]
    return task


def memory_of(saved: Saved, serializer: Serializer) -> dict[str, int]:
    """Return where the memories of child graphs stand at a checkpoint."""
    return dict(serializer.decode(saved.values[MEMORY][0])) if MEMORY in saved.values else {}


# --- endings become records, and back ----------------------------------------------------------------------------


def record_of(ending: Ending, task_id: str, namespace: str, number: int, serializer: Serializer) -> TaskRecord:
    """Return the record of an ending. Raises SerializationError only for the payload of a question."""
    if type(ending) is Done:
        writes = [[name, data] for name, _, data in ending.writes if data is not None]
        sends = [[node, data] for node, _, data in ending.sends]
        after = [] if ending.after is MISSING else [ending.after]
        told = [ending.parent, after, ending.withheld, dict(ending.memory)]
        data = serializer.encode([writes, list(ending.gotos), sends, *told])
        return TaskRecord(namespace, number, task_id, "done", data)
    if type(ending) is Interrupted:
        error = None if ending.error is None else serializer.encode_error(ending.error)
        data = serializer.encode([list(ending.interrupts), ending.whole, error])
        return TaskRecord(namespace, number, task_id, "interrupted", data)
    if type(ending) is Failed:
        return TaskRecord(namespace, number, task_id, "failed", serializer.encode_error(ending.error))
    return TaskRecord(namespace, number, task_id, "cancelled", b"")


def endings_of(saved: Saved, tasks: Iterable[NodeTask], serializer: Serializer) -> dict[str, Ending]:
    """Return how the tasks of a checkpoint ended, by task id; a later record of the line replaces an earlier one."""
    by_id = {task.id: task for task in tasks}
    newest = {record.task_id: record for record in saved.records if record.task_id in by_id}
    where = f"checkpoint {saved.checkpoint.id} of namespace {saved.checkpoint.namespace!r}"
    return {id_: _ending_of(record, by_id[id_], serializer, where) for id_, record in newest.items()}


def _ending_of(record: TaskRecord, task: NodeTask, serializer: Serializer, where: str) -> Ending:
    if record.kind == "cancelled":
        return Cancelled(task)
    where = f"task {record.task_id!r} of {where}"
    if record.kind == "failed":
        return Failed(task, serializer.decode_error(record.data))
    if record.kind == "interrupted":
        interrupts, whole, error = _decode(serializer, record.data, where)
        after = None if error is None else serializer.decode_error(error)
        return Interrupted(task, tuple(interrupts), whole, error=after)
    if record.kind == "done":
        writes, gotos, sends, parent, after, withheld, memory = _decode(serializer, record.data, where)
        return Done(
            task,
            [(name, _decode(serializer, data, where), data) for name, data in writes],
            tuple(gotos),
            tuple((node, _decode(serializer, data, where), data) for node, data in sends),
            parent,
            after[0] if after else MISSING,
            withheld,
            memory,
        )
    raise PregelError(f"{where} has a record of unknown kind {record.kind!r}")


def answers_of(saved: Saved) -> tuple[dict[str, bytes], set[str]]:
    """Return the answers, still encoded, and the static pauses passed, from the records of a root line."""
    answers = {record.task_id: record.data for record in saved.records if record.kind == "answer"}
    passed = {record.task_id for record in saved.records if record.kind == "passed"}
    return answers, passed


# The engine's own values may be part of state and of questions, so every serialiser knows them (rule 12.1).
register_type(
    Interrupt,
    name="pregel.Interrupt",
    encode=lambda i: (i.value, i.id, i.node, i.namespace, i.when, i.next, i.schema, i.asked_at),
    decode=lambda fields: Interrupt(*fields),
)
register_type(Send, name="pregel.Send", encode=lambda s: (s.node, s.arg), decode=lambda fields: Send(*fields))
register_type(Overwrite, name="pregel.Overwrite", encode=lambda o: o.value, decode=Overwrite)


def _encode_command(command: Command) -> tuple[Any, ...]:
    answered = command.resume is not MISSING
    return command.update, command.goto, answered, command.resume if answered else None, command.graph


def _decode_command(fields: tuple[Any, ...]) -> Command:
    update, goto, answered, resume, graph = fields
    return Command(update=update, goto=goto, resume=resume if answered else MISSING, graph=graph)


register_type(Command, name="pregel.Command", encode=_encode_command, decode=_decode_command)
