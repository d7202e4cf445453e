"""A run killed after its n-th effect, for every n, then resumed in a new engine, ends as if nothing had happened.

Every n is tried with the memory saver and "sync"; of the other combinations a part, all of it with PREGEL_FULL=1.
"""

import os
from itertools import count
from pathlib import Path

import pytest

from pregel import InMemorySaver, Saver, SqliteSaver
from pregel.types import Durability
from tests.crash.graphs import CASES, Case
from tests.crash.story import Story
from tests.helpers import World

FULL = os.environ.get("PREGEL_FULL") == "1"
DURABILITIES: list[Durability] = ["sync", "async", "exit"]


@pytest.fixture(params=CASES, ids=[case.name for case in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    """Each graph."""
    made: Case = request.param
    return made


@pytest.fixture(params=DURABILITIES)
def durability(request: pytest.FixtureRequest) -> Durability:
    """Each durability."""
    made: Durability = request.param
    return made


class Stores:
    """Makes an empty store for each story."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._folder = folder
        self._numbers = count()

    def __call__(self) -> Saver:
        if self.kind == "memory":
            return InMemorySaver()
        return SqliteSaver(self._folder / f"{next(self._numbers)}.db")


@pytest.fixture(params=["memory", "sqlite"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """Each kind of store."""
    return Stores(request.param, tmp_path)


def test_a_run_that_nobody_kills_gives_the_expected_output(
    case: Case, world: World, stores: Stores, durability: Durability
) -> None:
    """10.1: each case, in each durability, gives the output that is written beside it."""
    with stores() as store:
        story = Story(case, world, store, durability)
        assert story.tell([]) == case.output


def test_a_run_killed_after_any_effect_ends_as_without_and_repeats_nothing_recorded(
    case: Case, world: World, stores: Stores, durability: Durability
) -> None:
    """10.2: killed after effect n, for every n, then recovered; begun again only where no beginning was durable."""
    stride = 1 if FULL or (stores.kind, durability) == ("memory", "sync") else 5 if stores.kind == "sqlite" else 3
    for breaths in count(DURABILITIES.index(durability), stride):
        with stores() as store:
            story = Story(case, world, store, durability)
            assert story.tell([breaths]) == case.output, breaths
            if not story.died:
                break
    assert breaths > 5


def test_a_recovery_that_is_killed_too_is_recovered(case: Case, world: World, stores: Stores) -> None:
    """10.2: the second life ends after one effect more each time, the third finishes."""
    for breaths in count(0, 1 if FULL else 4):
        with stores() as store:
            story = Story(case, world, store, "sync")
            assert story.tell([breaths, 1 + breaths % 7]) == case.output, breaths
            if story.died < 2:
                break
    assert breaths > 3
