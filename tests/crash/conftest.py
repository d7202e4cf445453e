"""The hook that lets a test end a run after any of its effects."""

import pytest

from pregel import drive
from tests.crash.life import breathe


@pytest.fixture(autouse=True)
def _breath_for_each_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count every effect of the life that performs it."""
    monkeypatch.setattr(drive, "watch", breathe)
