"""Which answers belong to which questions, and which tasks they release: pure functions (rules 6.6 to 6.8, 6.13)."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .answer_schema import MisfitError, fit
from .checkpoint import CorruptCheckpointError
from .errors import InvalidAnswerError
from .interrupt import Interrupt
from .task import Done, Ending, Interrupted, NodeTask


class Split(NamedTuple):
    """The tasks of a step by what their records say: to run, finished, waiting for answers."""

    todo: list[NodeTask]
    done: dict[str, Done]
    waits: dict[str, Interrupted]


def split(tasks: Iterable[NodeTask], records: Mapping[str, Ending], answered: Container[str]) -> Split:
    """Sort the tasks of a step that was begun before (rules 5.5, 6.7, 6.8)."""
    parts = Split([], {}, {})
    for task in tasks:
        record = records.get(task.id)
        if type(record) is Done:
            parts.done[task.id] = record
        elif type(record) is Interrupted and not _released(record, answered):
            parts.waits[task.id] = record
        else:
            parts.todo.append(task)
    return parts


def _released(record: Interrupted, answered: Container[str]) -> bool:
    found = [interrupt.id in answered for interrupt in record.interrupts]
    return all(found) if record.whole else any(found)


def open_questions(waits: Iterable[Interrupted], answered: Container[str] = ()) -> list[Interrupt]:
    """Return the questions without an answer, in task order (rule 6.4)."""
    return [i for ending in waits for i in ending.interrupts if i.id not in answered]


# A mapping whose keys all have the form of interrupt ids, none of them pending, is an old or foreign answer map and not
# a value: taken for one it would answer the wrong question. `graph.resume(value)` gives such a mapping as a value.
_ID = re.compile(r"([^@#|]+(@[\d.]+)?(#[^|]+)?\|)*[^@#|]+@[\d.]+#[^|]+")

# --- answers ----------------------------------------------------------------------------------------------------


def bind_answers(resume: Any, questions: Sequence[Interrupt], *, exact: bool) -> dict[str, Any]:
    """Return the answers by interrupt id, from a `Command(resume=...)` (rule 6.6). Raises InvalidAnswerError."""
    ids = [question.id or "" for question in questions if question.when == "inside"]
    if not ids:
        raise InvalidAnswerError("no question is pending", hint="use invoke(None) to go on", pending=())
    if isinstance(resume, Mapping) and resume and not exact:
        keys = set(resume)
        if keys <= set(ids):
            return dict(resume)
        if known := keys & set(ids):
            strangers = sorted(map(repr, keys - known))
            raise _mismatch(f"{', '.join(strangers)} is not a pending question", ids)
        if all(isinstance(key, str) and _ID.fullmatch(key) for key in keys):
            raise _mismatch(f"{', '.join(map(repr, resume))} is not pending: unknown, or answered before", ids)
    if len(ids) > 1:
        raise _mismatch(f"{len(ids)} questions are pending and the answer does not say which one it is for", ids)
    return {ids[0]: resume}


def check_answers(answers: Mapping[str, Any], questions: Sequence[Interrupt]) -> dict[str, Any]:
    """Return answers given by id, if each belongs to a pending question (rule 6.6). Raises InvalidAnswerError."""
    ids = [question.id or "" for question in questions if question.when == "inside"]
    if unknown := [key for key in answers if key not in ids]:
        raise _mismatch(f"{', '.join(map(repr, unknown))} is not a pending question", ids)
    if not answers:
        raise _mismatch("no answer was given", ids)
    return dict(answers)


def fit_answers(
    answers: Mapping[str, Any], questions: Sequence[Interrupt], class_of: Callable[[str], type]
) -> dict[str, Any]:
    """Return answers as the types that their questions ask for (rule 6.13). Raises InvalidAnswerError."""
    fitting = dict(answers)
    for question in questions:
        id_ = question.id or ""
        if question.schema is not None and id_ in answers:
            try:
                fitting[id_] = fit(answers[id_], question.schema, class_of)
            except MisfitError as fault:
                raise InvalidAnswerError(
                    f"question {id_!r}: {fault}",
                    hint="the question stays; answer it again",
                    pending=(id_,),
                ) from None
            except CorruptCheckpointError as error:
                raise InvalidAnswerError(
                    f"question {id_!r} asks for a class that is not known in this process: {error.args[0]}",
                    hint="import what registers it; a class of __main__ has another name where it is imported",
                    pending=(id_,),
                ) from error
    return fitting


def _mismatch(reason: str, ids: Sequence[str]) -> InvalidAnswerError:
    pending = ", ".join(map(repr, ids)) or "none"
    return InvalidAnswerError(
        f"{reason}; pending: {pending}", hint="pass answers={id: value, ...} to resume()", pending=tuple(ids)
    )
