"""What a run is asked to do, and how it ended: small values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .channels import MISSING
from .checkpoint import Status
from .head import Head
from .interrupt import Interrupt
from .task import Sent


class Outcome(NamedTuple):
    """How a run ended. `error` is what the call raises when it failed or was cancelled."""

    status: Status | str
    head: Head
    interrupts: tuple[Interrupt, ...] = ()
    error: BaseException | None = None


class Input(NamedTuple):
    """New input; `exact` takes the values instead of folding them (rule 8.1)."""

    values: Mapping[str, Any]
    exact: bool = False
    if_paused: str = "restart"


class Continue(NamedTuple):
    """Go on with what is unfinished; `passing` static pauses, or only recovering (rule 7.6)."""

    passing: bool = True


class Answer(NamedTuple):
    """Answers: `value` for the one pending question, or `by_id`; an update goes into the same commit (rule 4.4)."""

    value: Any = MISSING
    by_id: Mapping[str, Any] | None = None
    update: Mapping[str, Any] | None = None
    exact: bool = False  # `value` is a value for certain, whatever it looks like


class Change(NamedTuple):
    """New values, in the name of a node or of one of its tasks if `as_node` is given (rule 9.3)."""

    values: Any  # as the user gave it until it is checked, then a mapping
    as_node: str | None = None
    task_id: str | None = None


class Edit(NamedTuple):
    """Change the state, by one checkpoint for each step of changes; `run` it too if it came as input (rules 4.4, 9.3).

    Targets are woken by the last one.
    """

    steps: Sequence[Sequence[Change]]
    gotos: Sequence[str] = ()
    sends: Sequence[Sent] = ()
    run: bool = True


Request = Input | Continue | Answer | Edit


class Halted(Exception):
    """The saver refused or failed: the run ends here and writes nothing more."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error
