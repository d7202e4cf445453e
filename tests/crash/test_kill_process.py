"""SIGKILL of a real process at the boundaries of the SQLite saver, and of the process that recovers.

A sample of the boundaries by default, each one with PREGEL_FULL=1.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.graphs import CASES

ROOT = Path(__file__).parents[2]
FULL = os.environ.get("PREGEL_FULL") == "1"
SAMPLE = [1, 2, 3, 4, 7, 10, 13, 16, 21, 26, 33, 42]


def told(case: str, world: str, folder: Path, boundaries: list[int]) -> list[tuple[int, bool, str | None]]:
    """Return for each boundary whether a process was killed there, and what went wrong."""
    command = [sys.executable, "-m", "tests.crash.victim", case, world, str(folder), *map(str, boundaries)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300 if FULL else 60, check=False)
    assert done.returncode == 0, done.stderr
    stories = [json.loads(line) for line in done.stdout.splitlines()]
    assert not [story for story in stories if story[2]], done.stderr
    return [(boundary, died, fault) for boundary, died, fault in stories]


@pytest.mark.parametrize("world", ["sync", "async"])
@pytest.mark.parametrize("case", [case.name for case in CASES])
def test_a_killed_process_is_recovered_by_another_that_is_killed_too(case: str, world: str, tmp_path: Path) -> None:
    """10.2: same result as without the kills, no recorded task begins again, the history is whole."""
    stories = told(case, world, tmp_path, [] if FULL else SAMPLE)
    assert stories[0] == (1, True, None)
    assert sum(died for _, died, _ in stories) >= 5
