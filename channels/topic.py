"""A list of messages: those of the last step, or all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .base import MISSING, Channel, sole_overwrite


class Topic(Channel):
    """Collects what a step writes; a list is spliced in. With `accumulate` it keeps earlier steps too (rule 2.1)."""

    __slots__ = ("accumulate", "fleeting", "grows", "type")

    def __init__(self, type: Any = object, accumulate: bool = False) -> None:
        self.type = type
        self.accumulate = accumulate
        self.fleeting = not accumulate
        self.grows = "append" if accumulate else ""

    def update(self, value: Any, writes: Sequence[Any]) -> list[Any]:
        """Return the messages after the step. Raises ChannelError for an Overwrite beside others."""
        replaced = sole_overwrite(writes)
        if replaced is not MISSING:
            return list(replaced)
        kept = list(value) if self.accumulate and value is not MISSING else []
        for write in writes:
            if isinstance(write, list):
                kept.extend(write)
            else:
                kept.append(write)
        return kept

    def finish(self, value: Any) -> Any:
        """Keep the messages only when accumulating."""
        return value if self.accumulate else MISSING

    def __repr__(self) -> str:
        return f"Topic({self.type!r}, accumulate={self.accumulate})"
