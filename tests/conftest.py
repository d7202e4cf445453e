"""The worlds, savers and modes that behaviour tests run in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pregel import InMemorySaver, Saver, SqliteSaver, loop
from tests.helpers import Ran, World


@pytest.fixture(params=["sync", "async"])
def world(request: pytest.FixtureRequest) -> World:
    """Both ways to call a graph."""
    return World(request.param)


@pytest.fixture(params=["memory", "sqlite"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Saver]:
    """Each saver, empty."""
    made: Saver = InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / "runs.db")
    with made:
        yield made


@pytest.fixture
def ran() -> Ran:
    """A recorder of what ran."""
    return Ran()


@pytest.fixture(params=["remembering", "forgetful"])
def amnesia(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run as always, and with everything forgotten and read back after each super-step."""
    monkeypatch.setattr(loop, "forgetful", request.param == "forgetful")
    return bool(request.param == "forgetful")
