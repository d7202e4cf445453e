"""The root of the package's errors, and what can go wrong with what is kept.

The root stands here because this is the lowest folder whose errors reach a user; `pregel.errors` adds the rest.
"""

from __future__ import annotations

from typing import Any, ClassVar


class PregelError(Exception):
    """Every error that this package raises on purpose.

    `code` is stable over releases, `hint` says what to do next. Keyword data becomes attributes
    (names of nodes, keys, threads ...), and all of it survives pickling.
    """

    code: ClassVar[str] = "pregel"
    hint: str = ""

    def __init__(self, message: str = "", **data: Any) -> None:
        super().__init__(message)
        self.__dict__.update(data)

    def __str__(self) -> str:
        message = str(self.args[0]) if self.args else ""
        return f"{message} ({self.hint})" if self.hint else message


class CheckpointError(PregelError):
    """What is kept cannot be written or read."""

    code = "checkpoint"


class SerializationError(CheckpointError):
    """A value is of a type that is not stored; `path` says where inside the value (rule 12.2)."""

    code = "serialization"
    path: str = ""


class CorruptCheckpointError(CheckpointError):
    """Stored bytes are damaged, forged, or of a type this process has not registered (rule 12.3)."""

    code = "corrupt_checkpoint"
    path: str = ""


class ConcurrentRunError(CheckpointError):
    """Another run of this thread began later, so this one may not write any more (rule 10.3)."""

    code = "concurrent_run"


class StorageVersionError(CheckpointError):
    """The database was written by a newer release of this package."""

    code = "storage_version"
