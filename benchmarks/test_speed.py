"""Every workload, the floor and the engine one after the other; `conftest.py` prints their ratio."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.workloads import CASES


@pytest.mark.parametrize("side", ["floor", "pregel"])
@pytest.mark.parametrize("name", CASES)
def test_speed(name: str, side: str, benchmark: Any, tmp_path: Path) -> None:
    case = CASES[name]
    pair = case.make(case.size, tmp_path)
    benchmark.group = name
    benchmark.extra_info.update(side=side, unit=case.unit, units=case.units)
    try:
        benchmark(getattr(pair, side))
    finally:
        pair.close()
