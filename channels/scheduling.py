"""Channels that say when a node is due: trigger and barrier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .base import MISSING, Channel, ChannelError

Group = str | Iterable[str]


class TriggerChannel(Channel):
    """Any message makes `target` due. Its stored form is the node's entry among the due tasks (rule 2.1)."""

    __slots__ = ("target",)

    def __init__(self, target: str) -> None:
        self.target = target

    def update(self, value: Any, writes: Sequence[str]) -> tuple[str, ...]:
        """Return the senders, each once, in the order of their messages."""
        return tuple(dict.fromkeys((*(() if value is MISSING else value), *writes)))

    def consume(self, value: Any) -> Any:
        """Leave nothing: the run that the messages asked for has happened."""
        return MISSING

    def __repr__(self) -> str:
        return f"TriggerChannel({self.target!r})"


class BarrierChannel(Channel):
    """Makes `target` due once every group has sent: `["a", "b"]` is a and b, `[{"a", "b"}, "c"]` is (a or b) and c.

    The value is the tuple of senders so far. It fires once a fill; the same sender twice counts once (rule 2.6).
    """

    __slots__ = ("groups", "senders", "target")

    def __init__(self, target: str, groups: Iterable[Group]) -> None:
        self.target = target
        self.groups = tuple(frozenset([group] if isinstance(group, str) else group) for group in groups)
        if not self.groups or not all(self.groups):
            raise ChannelError(f"the barrier before {target!r} waits for nobody")
        self.senders: frozenset[str] = frozenset().union(*self.groups)

    def update(self, value: Any, writes: Sequence[str]) -> tuple[str, ...]:
        """Return the senders so far. Raises ChannelError for a sender that is in no group."""
        for sender in writes:
            if sender not in self.senders:
                raise ChannelError(f"{sender!r} is not awaited by the barrier before {self.target!r}")
        return tuple(dict.fromkeys((*(() if value is MISSING else value), *writes)))

    def is_available(self, value: Any) -> bool:
        """Whether every group has sent."""
        if value is MISSING:
            return False
        sent = set(value)
        return not any(group.isdisjoint(sent) for group in self.groups)

    def consume(self, value: Any) -> Any:
        """Empty a full barrier; a half-filled one keeps its senders."""
        return MISSING if self.is_available(value) else value

    def snapshot(self, value: Any) -> Any:
        """Return the senders as a list."""
        return list(value)

    def restore(self, stored: Any) -> Any:
        """Return the senders as a tuple."""
        return tuple(stored)

    def __repr__(self) -> str:
        return f"BarrierChannel({self.target!r}, {[sorted(group) for group in self.groups]!r})"
