"""What the checks are made of: small checkpoints, awkward names, a run that writes, expected refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from pregel.checkpoint import ChannelValue, Checkpoint, Commit, Found, Key, Run, Saved, Saver, TaskRecord, pack_versions

_P = ParamSpec("_P")
_E = TypeVar("_E", bound=Exception)

# Names that have broken storages: quotes and wildcards of SQL, patterns, separators, other alphabets, empty.
HOSTILE = (
    "",
    " ",
    "a b ",
    "'; DROP TABLE checkpoints; --",
    '"quoted"',
    "%",
    "_",
    "a%",
    "a_",
    ".*",
    "[a-z]+",
    "a/b",
    "a\\b",
    "a|b",
    "a:b",
    "$1 ?1 :ns {x}",
    "\n\t\x01",
    "ä",
    "a\u0308",  # looks like the one above and is another name
    "名前",
    "\U0001f600",
    "A",
    "a",
    "x" * 900,
)


def commit(
    number: int,
    values: Mapping[str, bytes | tuple[int, bytes]] | None = None,
    *,
    namespace: str = "",
    removed: Iterable[str] = (),
    versions: Mapping[str, int] | None = None,
    **fields: Any,
) -> Commit:
    """Make a commit that changes `values`: bytes are a full value, (base, bytes) is a delta.

    The parent is the number below in the same namespace, the line only itself; `fields` are other fields of Checkpoint.
    """
    values = values or {}
    changes = {**dict.fromkeys(values, number), **dict.fromkeys(removed, 0), **(versions or {})}
    checkpoint = Checkpoint(
        namespace=namespace,
        id=number,
        parent_namespace=namespace,
        parent_id=number - 1,
        token=f"token {namespace} {number}",
        source="loop",
        status="running",
        step=number,
        created_at=1_700_000_000.25 + number,
        epoch=0,
        caller="graph",
        fingerprint="fingerprint",
        line=(number,),
        due=b"due",
        complete=False,
        versions=pack_versions(changes),
        metadata=b"metadata",
    )
    rows = [
        full(channel, number, data) if isinstance(data, bytes) else ChannelValue(channel, number, "delta", *data)
        for channel, data in values.items()
    ]
    return Commit(checkpoint._replace(**fields), tuple(rows))


def full(channel: str, version: int = 1, data: bytes = b"") -> ChannelValue:
    """Make the row of a full value."""
    return ChannelValue(channel, version, "full", 0, data)


def record(checkpoint_id: int, task_id: str, data: bytes = b"ending", *, namespace: str = "") -> TaskRecord:
    """Make the record of a task that is done."""
    return TaskRecord(namespace, checkpoint_id, task_id, "done", data)


class Writer:
    """Writes to one thread as a run does, and keeps what it knows of it."""

    def __init__(self, saver: Saver, thread_id: str = "thread", incarnation: str = "incarnation") -> None:
        self.saver = saver
        self.run = Run(thread_id, incarnation, 0)

    def put(self, *commits: Commit, records: Sequence[TaskRecord] = ()) -> None:
        """Write, and know the new head."""
        self.saver.put(self.run, commits, records)
        self.run = self.run._replace(head=max([c.id for c, _ in commits if not c.namespace], default=self.run.head))

    def get(self, namespace: str = "", checkpoint_id: int | None = None) -> Found:
        """Read from the thread."""
        return self.saver.get(Key(self.run.thread_id, namespace, checkpoint_id))

    def saved(self, namespace: str = "", checkpoint_id: int | None = None) -> Saved:
        """Read a checkpoint that must be there."""
        saved = self.get(namespace, checkpoint_id).saved
        assert saved is not None
        return saved


def refusal(kind: type[_E], call: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> _E:
    """Call, and return the error that it must raise."""
    try:
        call(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def ids(found: Iterable[Saved]) -> list[int]:
    """Return the numbers of the checkpoints."""
    return [saved.checkpoint.id for saved in found]
