"""A bulk-synchronous engine for workflows that pause for people and survive crashes."""

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
)
from .checkpoint import InMemorySaver, Saver, SqliteSaver, register_type
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
    TaskSnapshot,
)
from .version import __version__

__all__ = [name for name in dir() if not name.startswith("_")]
