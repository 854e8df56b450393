"""Benchmarks measure against a yardstick in the same run, as machines differ and are shared; ratios end the report."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

LINES = pytest.StashKey[list[str]]()

Compare = Callable[..., dict[str, float]]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LINES] = []
    torch.set_num_threads(1)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.stash[LINES]:
        terminalreporter.section("against the yardsticks, medians")
        for line in config.stash[LINES]:
            terminalreporter.write_line(line)


def seconds(work: Callable[[], Any]) -> float:
    start_s = time.perf_counter()
    work()
    return time.perf_counter() - start_s


@pytest.fixture
def against(benchmark: Any, request: pytest.FixtureRequest) -> Compare:
    """Time a piece of work and its yardstick in turns, and note the ratio of their medians.

    ``against(name, work, yardstick_name, yardstick, unit, scale, rounds)``: medians are printed as ``seconds * scale``.
    """

    def compare(
        name: str,
        work: Callable[[], Any],
        yardstick_name: str,
        yardstick: Callable[[], Any],
        *,
        unit: str = "ms",
        scale: float = 1e3,
        rounds: int = 7,
    ) -> dict[str, float]:
        work(), yardstick()  # caches, and the first draw of a stream
        other_s: list[float] = []

        def setup() -> None:
            other_s.append(seconds(yardstick))

        benchmark.pedantic(work, setup=setup, rounds=rounds)
        own, other = benchmark.stats.stats.median * scale, statistics.median(other_s) * scale
        result = {"median": own, "yardstick": other, "ratio": own / other}
        benchmark.extra_info.update({"unit": unit, **result})
        request.config.stash[LINES].append(
            f"{name}: {own:.3g} {unit}; {yardstick_name}: {other:.3g} {unit}; ratio {own / other:.2f}"
        )
        return result

    return compare
