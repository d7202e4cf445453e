"""The benchmarks run, and the floor that they measure against does the same as the engine."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.workloads import CASES

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", [name for name in CASES if name != "import"])
def test_the_floor_computes_what_the_engine_computes(name: str, tmp_path: Path) -> None:
    """Twice, since a benchmark calls many times; a pause shows its questions on both sides."""
    pair = CASES[name].make(3, tmp_path)
    try:
        expected = pair.pregel()
        assert expected
        assert [pair.floor(), pair.pregel(), pair.floor()] == [expected] * 3
    finally:
        pair.close()


def test_a_run_of_the_benchmarks_ends_with_the_ratio_to_the_floor() -> None:
    options = [
        "--benchmark-min-rounds=1",
        "--benchmark-max-time=0.01",
        "--benchmark-warmup=off",
        "-p",
        "no:cacheprovider",
    ]
    command = [sys.executable, "-m", "pytest", "benchmarks", "--benchmark-only", *options, "-k", "sends-10-sync"]
    # the tests may run in several workers; benchmarks refuse to measure in one
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^workload .* floor +pregel +ratio", done.stdout, re.MULTILINE)
    assert re.search(r"^sends-10-sync +task +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+$", done.stdout, re.MULTILINE)
