"""The channels of one run with their values and versions: fold the writes of a step, say what changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .base import MISSING, Channel, Overwrite

CONTAINERS = frozenset({list, dict, set})
"""The types whose top level is copied for each reader (rule 2.4)."""


class FoldError(Exception):
    """The writes of one channel could not be folded; `channel` names it, the cause says why (rule 2.7)."""

    def __init__(self, channel: str, cause: BaseException) -> None:
        super().__init__(channel)
        self.channel = channel
        self.cause = cause


class Folded(dict[str, Any]):
    """New values by channel, with the writes that were folded into each."""

    __slots__ = ("writes",)
    writes: dict[str, list[Any]]


class VersionedChannels:
    """Values and versions of a set of channels. Every cost is in what is written, not in how much there is.

    `values` holds no entry for an empty channel, `versions` none for one that was never written. `stale` collects the
    names whose stored form is out of date, `grown` the writes since then of those that may be stored by their writes;
    whoever stores them calls `stored`.
    """

    __slots__ = ("_fleeting", "channels", "containers", "grown", "stale", "values", "versions")

    def __init__(self, channels: Mapping[str, Channel], initial: Mapping[str, Any] | None = None) -> None:
        self.channels = channels
        self.values: dict[str, Any] = {}
        self.versions: dict[str, int] = {}
        self.stale: set[str] = set()
        self.grown: dict[str, list[Any]] = {}
        self.containers: set[str] = set()
        self._fleeting: set[str] = set()
        for name, value in (initial or {}).items():
            self._place(name, value)

    def fix(self, version: int) -> None:
        """Count first values as written: a default that differs each time must not differ after a restart."""
        for name in self.values:
            self.versions[name] = version
            self.stale.add(name)

    def restore(self, name: str, version: int, stored: Any, added: Sequence[Any] = ()) -> None:
        """Take over a stored value, with what was written to it since."""
        channel = self.channels[name]
        value = channel.restore(stored)
        self._place(name, channel.update(value, added) if added else value)
        self.versions[name] = version

    def prepare(self, writes: Iterable[tuple[str, Any]]) -> Folded:
        """Fold writes, given in task order, and return the new values without keeping them. Raises FoldError."""
        buckets: dict[str, list[Any]] = {}
        for name, value in writes:
            bucket = buckets.get(name)
            if bucket is None:
                buckets[name] = [value]
            else:
                bucket.append(value)
        present = self.values
        folded = Folded()
        folded.writes = buckets
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
        writes = folded.writes if type(folded) is Folded else None
        for name, value in folded.items():
            self._place(name, value)
            self.versions[name] = version
            if self.channels[name].grows:
                self._grow(name, None if writes is None else writes[name])
            self.stale.add(name)

    def _grow(self, name: str, writes: list[Any] | None) -> None:
        """Note what was written, if the stored value and that make the present one."""
        is_whole = name not in self.stale or name in self.grown
        if writes is None or not is_whole or any(type(write) is Overwrite for write in writes):
            self.grown.pop(name, None)
        else:
            self.grown[name] = [*self.grown.get(name, ()), *writes]

    def stored(self) -> None:
        """Say that the stored form is what there is now."""
        self.stale.clear()
        self.grown.clear()

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
        self.grown.pop(name, None)
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
