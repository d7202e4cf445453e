"""The one place that logs. Silent until the application configures logging; state values are never logged."""

from __future__ import annotations

import logging
from typing import Any, Final

import structlog

_standard = logging.getLogger("pregel")
_standard.addHandler(logging.NullHandler())

RUN_DISCARDED: Final = "pending work discarded by new input"
QUESTION_SWALLOWED: Final = "a node swallowed its own question; it pauses all the same"
ERROR_AFTER_QUESTION: Final = "a node raised after it had asked; it pauses"
BARRIER_STALLED: Final = "the run ended with a half-filled barrier"
UNEVEN_BRANCHES: Final = "plain edges of unequal length meet: the node runs once for each; a join or defer=True waits"
TASK_ABANDONED: Final = "a task did not stop in time and was left behind"
TASK_RETRIED: Final = "a failed attempt is repeated"
DECISION_IGNORED: Final = "a decision on a tool call that is not waiting for one; it is ignored"

_logger: Any = structlog.wrap_logger(
    _standard,
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.stdlib.add_log_level,
        structlog.stdlib.render_to_log_kwargs,
    ],
    wrapper_class=structlog.stdlib.BoundLogger,
)


def warn(event: str, **bound: Any) -> None:
    """Log something that the user should look at; `bound` says thread, namespace, node, task."""
    _logger.warning(event, **bound)


def info(event: str, **bound: Any) -> None:
    """Log something worth knowing."""
    _logger.info(event, **bound)
