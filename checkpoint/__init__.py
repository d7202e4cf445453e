"""What is kept: checkpoint values, savers and serialisation."""

from .checkpoint import (
    ChannelValue,
    Checkpoint,
    Commit,
    Found,
    Key,
    RecordKind,
    Run,
    Saved,
    Source,
    Status,
    Tag,
    TaskRecord,
)
from .errors import (
    CheckpointError,
    ConcurrentRunError,
    CorruptCheckpointError,
    PregelError,
    SerializationError,
    StorageVersionError,
)

__all__ = [
    "ChannelValue",
    "Checkpoint",
    "CheckpointError",
    "Commit",
    "ConcurrentRunError",
    "CorruptCheckpointError",
    "Found",
    "Key",
    "PregelError",
    "RecordKind",
    "Run",
    "Saved",
    "SerializationError",
    "Source",
    "Status",
    "StorageVersionError",
    "Tag",
    "TaskRecord",
]
