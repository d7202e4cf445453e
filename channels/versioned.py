"""The channels of one run with their values and versions: fold the writes of a step, say what changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .base import MISSING, Channel

CONTAINERS = frozenset({list, dict, set})
"""The types whose top level is copied for each reader (rule 2.4)."""


class FoldError(Exception):
    """The writes of one channel could not be folded; `channel` names it, the cause says why (rule 2.7)."""

    def __init__(self, channel: str, cause: BaseException) -> None:
        super().__init__(channel)
        self.channel = channel
        self.cause = cause


class VersionedChannels:
    """Values and versions of a set of channels. Every cost is in what is written, not in how much there is.

    `values` holds no entry for an empty channel, `versions` none for one that was never written. `stale` collects the
    names whose stored form is out of date; whoever stores them empties it.
    """

    __slots__ = ("_fleeting", "channels", "containers", "stale", "values", "versions")

    def __init__(self, channels: Mapping[str, Channel], initial: Mapping[str, Any] | None = None) -> None:
        self.channels = channels
        self.values: dict[str, Any] = {}
        self.versions: dict[str, int] = {}
        self.stale: set[str] = set()
        self.containers: set[str] = set()
        self._fleeting: set[str] = set()
        for name, value in (initial or {}).items():
            self._place(name, value)

    def fix(self, version: int) -> None:
        """Count first values as written: a default that differs each time must not differ after a restart."""
        for name in self.values:
            self.versions[name] = version
            self.stale.add(name)

    def restore(self, name: str, version: int, stored: Any) -> None:
        """Take over a stored value."""
        self._place(name, self.channels[name].restore(stored))
        self.versions[name] = version

    def prepare(self, writes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        """Fold writes, given in task order, and return the new values without keeping them. Raises FoldError."""
        buckets: dict[str, list[Any]] = {}
        for name, value in writes:
            bucket = buckets.get(name)
            if bucket is None:
                buckets[name] = [value]
            else:
                bucket.append(value)
        present = self.values
        folded = {}
        for name, bucket in buckets.items():
            try:
                folded[name] = self.channels[name].update(present.get(name, MISSING), bucket)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a reducer is the user's code: whatever it raises is its refusal
                raise FoldError(name, error) from error
        return folded

    def apply(self, folded: Mapping[str, Any], version: int) -> None:
        """Make folded values the present ones, all under one new version."""
        for name, value in folded.items():
            self._place(name, value)
            self.versions[name] = version
            self.stale.add(name)

    def expire(self, written: Mapping[str, Any]) -> None:
        """End a super-step: channels that it did not write keep what their `finish` leaves."""
        if self._fleeting:
            for name in [name for name in self._fleeting if name not in written]:
                self.set(name, self.channels[name].finish(self.values[name]), self.versions.get(name, 0))

    def set(self, name: str, value: Any, version: int) -> None:
        """Put a value in place of the present one; MISSING empties the channel."""
        if value is self.values.get(name, MISSING):
            return
        self.stale.add(name)
        if value is MISSING:
            del self.values[name]
            self.versions.pop(name, None)
            self.containers.discard(name)
            self._fleeting.discard(name)
        else:
            self._place(name, value)
            self.versions[name] = version

    def read(self) -> dict[str, Any]:
        """Return a mapping that is the reader's own, top-level lists, dicts and sets included."""
        view = self.values.copy()
        for name in self.containers:
            view[name] = view[name].copy()
        return view

    def _place(self, name: str, value: Any) -> None:
        self.values[name] = value
        channel = self.channels[name]
        if type(value) in CONTAINERS and channel.stored:
            self.containers.add(name)
        else:
            self.containers.discard(name)
        if channel.fleeting:
            self._fleeting.add(name)
