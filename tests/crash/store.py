"""What a store says by itself, read without the engine: which tasks are recorded, and whether the history is whole."""

from collections.abc import Iterable
from itertools import pairwise

from pregel import Saver
from pregel.checkpoint import Checkpoint, Key, Saved
from tests.crash.life import Began

Task = tuple[str, str]
"""Namespace and task id."""


def recorded(saver: Saver, thread_id: str, began: Iterable[Began]) -> set[Task]:
    """Return the tasks that may never run again: those with a record of their end, and those folded by a barrier."""
    found: set[Task] = set()
    bodies = list(began)
    for namespace in saver.namespaces(thread_id):
        for saved in saver.list(Key(thread_id, namespace)):
            found |= {(namespace, record.task_id) for record in saved.records if record.kind == "done"}
            if is_barrier(saved.checkpoint):
                # a step folds all that began on an earlier checkpoint of its namespace
                found |= {
                    (namespace, body.task_id)
                    for body in bodies
                    if body.namespace == namespace and body.checkpoint < saved.checkpoint.id
                }
    return found


def is_barrier(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint ends a super-step: it begins a new line, and is no beginning of a run."""
    return checkpoint.source == "loop" and len(checkpoint.line) == 1


def check_history(saver: Saver, thread_id: str) -> None:
    """Assert what holds for every thread that was never forked: one unbroken chain in each namespace, one head.

    Ids are unique and grow along the chain, each parent is there, and only the first checkpoint has none.
    """
    for namespace in saver.namespaces(thread_id):
        newest_first = [saved.checkpoint for saved in saver.list(Key(thread_id, namespace))]
        ids = [checkpoint.id for checkpoint in newest_first]
        assert ids == sorted(set(ids), reverse=True), (namespace, ids)
        for checkpoint, parent in pairwise(newest_first):
            assert (checkpoint.parent_namespace, checkpoint.parent_id) == (namespace, parent.id), (checkpoint, parent)
        assert newest_first[-1].parent_id == 0, newest_first[-1]
        assert all(checkpoint.id in checkpoint.line for checkpoint in newest_first)
        if namespace:
            assert all(checkpoint.epoch > 0 for checkpoint in newest_first)
            assert newest_first[-1].parent_namespace == namespace.rpartition("|")[0]
    _check_head(saver, thread_id)


def _check_head(saver: Saver, thread_id: str) -> None:
    found = saver.get(Key(thread_id))
    assert found.run is not None
    assert found.saved is not None
    assert found.run.head == found.top == found.saved.checkpoint.id


def head_of(saver: Saver, thread_id: str) -> Saved | None:
    """Return the head of a thread, None if it does not exist."""
    return saver.get(Key(thread_id)).saved
