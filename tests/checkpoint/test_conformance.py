"""The savers of this package pass the suite that every saver must pass."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pregel.checkpoint import InMemorySaver, Saver, SqliteSaver
from pregel.checkpoint.conformance import SaverConformance


class TestInMemorySaver(SaverConformance):
    @pytest.fixture
    def saver(self) -> Iterator[Saver]:
        with InMemorySaver() as saver:
            yield saver


class TestSqliteSaverOnDisk(SaverConformance):
    @pytest.fixture
    def saver(self, tmp_path: Path) -> Iterator[Saver]:
        with SqliteSaver(tmp_path / "threads.db") as saver:
            yield saver


class TestSqliteSaverInMemory(SaverConformance):
    @pytest.fixture
    def saver(self) -> Iterator[Saver]:
        with SqliteSaver(":memory:") as saver:
            yield saver
