"""What is kept: checkpoint values, savers and serialisation."""

from typing import TYPE_CHECKING, Any

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

# Loaded when it is asked for, since it needs an extra. Not in __all__: a star import must not need it.
if TYPE_CHECKING:
    from .postgres import PostgresSaver as PostgresSaver
else:

    def __getattr__(name: str) -> Any:
        if name != "PostgresSaver":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            from .postgres import PostgresSaver
        except ImportError as error:
            message = f"PostgresSaver needs psycopg and psycopg_pool: pip install 'pregel[postgres]' ({error})"
            raise ImportError(message, name=error.name) from error
        return PostgresSaver
