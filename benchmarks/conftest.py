"""Prints, at the end of a run, each workload beside its floor and the ratio of the two."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the table of ratios."""
    session = getattr(config, "_benchmarksession", None)
    lines = list(table(session.benchmarks)) if session is not None else []
    if lines:
        terminalreporter.section("ratio to the hand-written floor (median µs per unit; best: of the fastest rounds)")
        for line in lines:
            terminalreporter.write_line(line)


def table(benchmarks: Iterable[Any]) -> Iterator[str]:
    """Yield the lines of the table, for workloads of which both sides were measured."""
    sides: dict[str, dict[str, Any]] = {}
    for measured in benchmarks:
        side = measured.extra_info.get("side")
        if side and not measured.has_error:
            sides.setdefault(measured.group, {})[side] = measured
    pairs = {name: (pair["floor"], pair["pregel"]) for name, pair in sides.items() if len(pair) == 2}
    if pairs:
        yield f"{'workload':34} {'unit':8} {'floor':>10} {'pregel':>10} {'ratio':>7} {'best':>7}"
    for name, (floor, pregel) in pairs.items():
        unit, units = pregel.extra_info["unit"], pregel.extra_info["units"]
        least, ours = floor.stats.median / units * 1e6, pregel.stats.median / units * 1e6
        best = pregel.stats.min / floor.stats.min
        yield f"{name:34} {unit:8} {least:10.2f} {ours:10.2f} {ours / least:7.2f} {best:7.2f}"
