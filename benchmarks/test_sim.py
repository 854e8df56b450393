"""How fast the clock runs: messages of ring all-reduces among workers that do not keep step."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
import simpy

from benchmarks.conftest import Compare
from syncline.sim import Call, ComputeTime, LogNormalJitter, data_parallel, run_events, run_lockstep
from syncline.specs import network

WORKERS, STEPS = 16, 20
MESSAGES = STEPS * 2 * (WORKERS - 1) * WORKERS
CALLS = [Call(step, "all_reduce", 1e6) for step in range(STEPS)]
COMPUTE_S = ComputeTime(1e-3, (LogNormalJitter(0.2),)).sample(STEPS, WORKERS, np.random.default_rng(0))
WAN = network("wan")

EVALUATORS: dict[str, Callable[[], Any]] = {
    "events": lambda: run_events(data_parallel(COMPUTE_S, CALLS), WAN),
    "lockstep": lambda: run_lockstep(COMPUTE_S, CALLS, WAN),
}


def plain_simpy() -> None:
    """As many time-outs as there are messages, one process per worker."""
    environment = simpy.Environment()

    def worker() -> Generator[simpy.Event, Any, None]:
        for _ in range(MESSAGES // WORKERS):
            yield environment.timeout(1.0)

    for _ in range(WORKERS):
        environment.process(worker())
    environment.run()


@pytest.mark.parametrize("evaluator", EVALUATORS)
def test_messages(against: Compare, evaluator: str) -> None:
    against(
        f"{evaluator}, {WORKERS} workers",
        EVALUATORS[evaluator],
        "one SimPy time-out per message",
        plain_simpy,
        unit="us per message",
        scale=1e6 / MESSAGES,
        rounds=11,
    )
