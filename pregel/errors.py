"""The error tree: split by whose fault it is. The root and the storage errors come from `pregel.checkpoint`."""

from __future__ import annotations

from .checkpoint import (
    CheckpointError,
    ConcurrentRunError,
    CorruptCheckpointError,
    PregelError,
    SerializationError,
    StorageVersionError,
)


class GraphValidationError(PregelError):
    """The graph as built cannot work; `faults` lists all that is wrong with it (rule 1.5)."""

    code = "invalid_graph"
    faults: tuple[str, ...] = ()


class InvalidRequestError(PregelError):
    """A call that cannot be carried out as it was made. Nothing was written."""

    code = "invalid_request"


class NoCheckpointerError(InvalidRequestError):
    """The call needs stored state, and the graph was compiled without a checkpointer (rule 6.11)."""

    code = "no_checkpointer"


class NoCheckpointError(InvalidRequestError):
    """Nothing is stored for this thread, or not under this checkpoint id (rule 6.11)."""

    code = "no_checkpoint"


class InvalidAnswerError(InvalidRequestError):
    """An answer does not fit the pending questions; `pending` lists their ids (rule 6.6)."""

    code = "invalid_answer"
    pending: tuple[str, ...] = ()


class GraphChangedError(InvalidRequestError):
    """The graph lacks nodes or channels that the stored run still needs; `missing` lists them (rule 9.7)."""

    code = "graph_changed"
    missing: tuple[str, ...] = ()


class ThreadPausedError(InvalidRequestError):
    """New input for a thread with something pending was refused, as asked by `if_paused="error"` (rule 6.12)."""

    code = "thread_paused"


class NodeError(PregelError):
    """A node broke a rule of the engine; the task has failed."""

    code = "node"


class InvalidUpdateError(NodeError):
    """A write that the state refuses: unknown key, two writers, wrong shape, a reducer that raised (rules 1.6, 2.1)."""

    code = "invalid_update"


class InvalidTargetError(NodeError):
    """A `goto`, `Send` or router names a node that does not exist (rule 1.6)."""

    code = "invalid_target"


class MutationError(NodeError):
    """A node changed state in place instead of returning an update; found by `isolation="check"` (rule 2.4)."""

    code = "mutation"


class NodeTimeoutError(NodeError, TimeoutError):
    """A node or a step took longer than its limit, in seconds (rule 5.8)."""

    code = "timeout"
    limit: float = 0.0


class BranchError(NodeError):
    """Questions or child calls without a key from a second branch of one node; give each a key (rule 6.9)."""

    code = "second_branch"


class CallOrderError(NodeError):
    """A call inside a node met the stored state of another call (rules 8.4, 15.1)."""

    code = "call_order"


class AttemptEnded(NodeError):
    """Code of a node called the engine after its attempt had ended; nothing was done."""

    code = "attempt_ended"


class WrongLoopError(NodeError):
    """`invoke` was called where it would wait for its own event loop; await `ainvoke` instead."""

    code = "wrong_loop"


class GraphRecursionError(PregelError):
    """The run needed more super-steps than `recursion_limit`; its state is saved (rule 3.5)."""

    code = "recursion_limit"
    limit: int = 0


class TaskCancelled(PregelError):
    """The ending of a task that was told to stop because of something else."""

    code = "cancelled"


def described(error: BaseException) -> str:
    """Return an error as a log line or a note shows it, also one whose own text raises."""
    try:
        return repr(error)
    except Exception:  # noqa: BLE001 - the error is the user's class; its fault must not hide what it was raised for
        return type(error).__name__


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error, also to one whose class is frozen or refuses notes."""
    notes = error.__dict__.get("__notes__")
    error.__dict__["__notes__"] = [*notes, note] if isinstance(notes, list) else [note]


__all__ = [
    "AttemptEnded",
    "BranchError",
    "CallOrderError",
    "CheckpointError",
    "ConcurrentRunError",
    "CorruptCheckpointError",
    "GraphChangedError",
    "GraphRecursionError",
    "GraphValidationError",
    "InvalidAnswerError",
    "InvalidRequestError",
    "InvalidTargetError",
    "InvalidUpdateError",
    "MutationError",
    "NoCheckpointError",
    "NoCheckpointerError",
    "NodeError",
    "NodeTimeoutError",
    "PregelError",
    "SerializationError",
    "StorageVersionError",
    "TaskCancelled",
    "ThreadPausedError",
    "WrongLoopError",
    "add_note",
    "described",
]
