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
    pack_versions,
    unpack_versions,
)
from .delta import Growth, grown, is_addition
from .errors import (
    CheckpointError,
    ConcurrentRunError,
    CorruptCheckpointError,
    PregelError,
    SerializationError,
    StorageVersionError,
)
from .memory import InMemorySaver
from .saver import Saver
from .serde import Serializer, StoredError, register_type
from .sqlite import SqliteSaver

__all__ = [
    "ChannelValue",
    "Checkpoint",
    "CheckpointError",
    "Commit",
    "ConcurrentRunError",
    "CorruptCheckpointError",
    "Found",
    "Growth",
    "InMemorySaver",
    "Key",
    "PregelError",
    "RecordKind",
    "Run",
    "Saved",
    "Saver",
    "SerializationError",
    "Serializer",
    "Source",
    "SqliteSaver",
    "Status",
    "StorageVersionError",
    "StoredError",
    "Tag",
    "TaskRecord",
    "grown",
    "is_addition",
    "pack_versions",
    "register_type",
    "unpack_versions",
]
