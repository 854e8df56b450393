"""How fast the clock runs: messages of ring all-reduces among workers that do not keep step."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
import simpy

from benchmarks.conftest import Compare
from syncline.sim import Call, ComputeTime, LogNormalJitter, Timeline, data_parallel, run_events, run_lockstep
from syncline.sim.events import ranks
from syncline.sim.events.ranks import RankMessage
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


class ProcessMessage(RankMessage):
    """A message as a SimPy process; each is alone on its channels here."""

    __slots__ = ()

    def start(self) -> None:
        self.sender.fabric.env.process(self.run())

    def run(self) -> Generator[simpy.Event, Any, None]:
        env, route = self.sender.fabric.env, self.route
        if route.before_s:
            yield env.timeout(route.before_s)
        yield env.timeout(self.nbytes / route.rate)
        self.sender.left(self)
        self.receiver.took()
        yield env.timeout(route.after_s)
        self.receiver.got(self)


def test_callbacks_tell_what_processes_tell(against: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why `syncline.sim.events.flows.Later` is no process."""
    programs = data_parallel(COMPUTE_S, CALLS)

    def by_processes() -> Timeline:
        with monkeypatch.context() as patch:
            patch.setattr(ranks, "RankMessage", ProcessMessage)
            return run_events(programs, WAN)

    assert by_processes().end_s.tolist() == run_events(programs, WAN).end_s.tolist()
    against(
        f"events by callbacks, {WORKERS} workers",
        lambda: run_events(programs, WAN),
        "a SimPy process per message",
        by_processes,
        unit="us per message",
        scale=1e6 / MESSAGES,
    )


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
