"""When a growing value is stored by what was added to it, and when in full: what is written stays in proportion.

Each full value is at least twice the one before, so all of them together are at most twice the last; the additions
between them come once more. Hence at most three times the final size is written, and a reader follows additions that
are no longer than the full value below them.
"""

from __future__ import annotations

from typing import NamedTuple


class Growth(NamedTuple):
    """How a growing value is stored: its newest version, bytes of the last full value, bytes added since."""

    version: int
    full: int
    added: int


def is_addition(growth: Growth | None, size: int) -> bool:
    """Whether an addition of so many bytes is stored as such. Without anything to add it to, it is not."""
    return growth is not None and growth.added + size <= growth.full


def grown(growth: Growth, version: int, size: int) -> Growth:
    """Return how a value is stored after an addition."""
    return Growth(version, growth.full, growth.added + size)
