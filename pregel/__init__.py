"""A bulk-synchronous engine for workflows that pause for people and survive crashes."""

from typing import TYPE_CHECKING, Any

from . import checkpoint as _checkpoint
from .channels import (
    AnyValue,
    BarrierChannel,
    BinaryOperatorAggregate,
    EphemeralValue,
    LastValue,
    Overwrite,
    Topic,
    TriggerChannel,
    UntrackedValue,
    foldable,
)
from .checkpoint import InMemorySaver, Saver, SqliteSaver, StoredError, register_type
from .engine import Pregel
from .errors import (
    AttemptEnded,
    BranchError,
    CallOrderError,
    CheckpointError,
    ConcurrentRunError,
    CorruptCheckpointError,
    GraphChangedError,
    GraphRecursionError,
    GraphValidationError,
    InvalidAnswerError,
    InvalidRequestError,
    InvalidTargetError,
    InvalidUpdateError,
    MutationError,
    NoCheckpointerError,
    NoCheckpointError,
    NodeError,
    NodeTimeoutError,
    PregelError,
    SerializationError,
    StorageVersionError,
    TaskCancelled,
    ThreadPausedError,
    WrongLoopError,
)
from .graph import StateGraph
from .interrupt import GraphInterrupt, Interrupt, ParentCommand, pause_between
from .loop import PregelLoop
from .pool import TaskExecutorPool
from .runtime import Runtime, StreamWriter, get_config, get_runtime, get_stream_writer, interrupt
from .task import NodeTask, PregelNode
from .types import (
    END,
    START,
    Command,
    RetryPolicy,
    RunConfig,
    RunOptions,
    Send,
    StateSnapshot,
    StateUpdate,
    TaskSnapshot,
)
from .version import __version__

__all__ = [
    "END",
    "START",
    "AnyValue",
    "AttemptEnded",
    "BarrierChannel",
    "BinaryOperatorAggregate",
    "BranchError",
    "CallOrderError",
    "CheckpointError",
    "Command",
    "ConcurrentRunError",
    "CorruptCheckpointError",
    "EphemeralValue",
    "GraphChangedError",
    "GraphInterrupt",
    "GraphRecursionError",
    "GraphValidationError",
    "InMemorySaver",
    "Interrupt",
    "InvalidAnswerError",
    "InvalidRequestError",
    "InvalidTargetError",
    "InvalidUpdateError",
    "LastValue",
    "MutationError",
    "NoCheckpointError",
    "NoCheckpointerError",
    "NodeError",
    "NodeTask",
    "NodeTimeoutError",
    "Overwrite",
    "ParentCommand",
    "Pregel",
    "PregelError",
    "PregelLoop",
    "PregelNode",
    "RetryPolicy",
    "RunConfig",
    "RunOptions",
    "Runtime",
    "Saver",
    "Send",
    "SerializationError",
    "SqliteSaver",
    "StateGraph",
    "StateSnapshot",
    "StateUpdate",
    "StorageVersionError",
    "StoredError",
    "StreamWriter",
    "TaskCancelled",
    "TaskExecutorPool",
    "TaskSnapshot",
    "ThreadPausedError",
    "Topic",
    "TriggerChannel",
    "UntrackedValue",
    "WrongLoopError",
    "__version__",
    "foldable",
    "get_config",
    "get_runtime",
    "get_stream_writer",
    "interrupt",
    "pause_between",
    "register_type",
]

# Loaded when it is asked for, since it needs an extra. Not in __all__: a star import must not need it.
if TYPE_CHECKING:
    from .checkpoint import PostgresSaver as PostgresSaver
else:

    def __getattr__(name: str) -> Any:
        if name != "PostgresSaver":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return _checkpoint.PostgresSaver
