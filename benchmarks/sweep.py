"""What a sweep costs beside its trainings, and what a second process brings."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil

from benchmarks.command import parser_of, show
from syncline.runs.sweep.sweep import sweep
from syncline.runs.training.train_and_time import time_method, train_method
from syncline.specs import RunSpec, load_spec

RATES = (0.01, 0.02, 0.04, 0.08)
FIELDS: dict[str, Any] = {
    "kind": "run", "name": "short", "problem": {"kind": "rosenbrock", "noise_std": 1.0}, "workers": 2, "steps": 5,
    "method": {"kind": "local", "lr": 0.01, "period": 2}, "network": "10gbe", "compute": {"seconds": "1 ms"},
}  # fmt: skip
LONG_STEPS = 4000
"""Of the runs that are timed in one process and in two: about a second each."""


class Row(NamedTuple):
    """A number and what it is."""

    what: str
    value: float
    unit: str


def cpu_s() -> float:
    """Of this process and of the children that it has."""
    here = psutil.Process()
    return sum(sum(one.cpu_times()[:4]) for one in (here, *here.children(recursive=True)))


def taken(call: Callable[[], object], clock: Callable[[], float] = cpu_s) -> float:
    """Seconds of a call."""
    begun = clock()
    call()
    return clock() - begun


def swept(runs: int, jobs: int, steps: int) -> None:
    """So many runs, into a folder that is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        grid, overrides = {"method.lr": RATES}, {"steps": steps}
        result = sweep(FIELDS, grid, seeds=runs // len(RATES), overrides=overrides, out=Path(folder) / "out", jobs=jobs)
        assert len(result.rows) == runs


def looped(runs: int) -> None:
    """The same trainings and clocks in a loop, with nothing around them."""
    for rate in RATES:
        base = load_spec(FIELDS, {"method.lr": rate}, RunSpec)
        for seed in range(runs // len(RATES)):
            spec = base.model_copy(update={"seeds": (seed,)})
            time_method(spec, train_method(spec, spec.method), spec.network)


def overhead(runs: int, rounds: int) -> list[Row]:
    """CPU milliseconds per run, in one process; sweep and loop take turns."""
    swept(len(RATES), 1, FIELDS["steps"])  # imports
    pairs = [(taken(lambda: swept(runs, 1, FIELDS["steps"])), taken(lambda: looped(runs))) for _ in range(rounds)]
    with_sweep, alone = (1e3 / runs * median(column) for column in zip(*pairs, strict=True))
    return [
        Row(f"a run of {runs:,} short ones, in a sweep", with_sweep, "ms of CPU"),
        Row("the same, in a loop", alone, "ms of CPU"),
        Row("overhead (goal: at most 10)", with_sweep - alone, "ms of CPU"),
    ]


def speedup(runs: int, rounds: int) -> list[Row]:
    """One process over two that have started: wall-clock time; and CPU time, which a busy machine changes less."""
    swept(len(RATES), 2, FIELDS["steps"])
    wall_s: dict[int, list[float]] = {1: [], 2: []}
    busy_s: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for jobs in (1, 2):
            begun_s = cpu_s()
            wall_s[jobs].append(taken(partial(swept, runs, jobs, LONG_STEPS), time.perf_counter))
            busy_s[jobs].append(cpu_s() - begun_s)
    one, two = (median(wall_s[jobs]) for jobs in (1, 2))
    cpu_of_one, cpu_of_two = (median(busy_s[jobs]) for jobs in (1, 2))
    return [
        Row(f"{runs} runs of {LONG_STEPS:,} steps in one process", one, "s"),
        Row("in two", two, "s"),
        Row("speedup (goal: at least 1.8)", one / two, ""),
        Row("CPU time of one process", cpu_of_one, "s"),
        Row("of two", cpu_of_two, "s"),
        Row("speedup where both have a core to themselves", 2 * cpu_of_one / cpu_of_two, ""),
    ]


def table(rows: Sequence[Row]) -> str:
    """Rows for people."""
    return "\n".join(f"{row.what:50} {row.value:10.3g} {row.unit}" for row in rows)


def main() -> None:
    """Measure and print."""
    parser = parser_of("benchmarks.sweep", __doc__)
    parser.add_argument("--runs", type=int, default=1000, help="short ones, of the overhead")
    parser.add_argument("--long-runs", type=int, default=16, help="of the speedup")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    show(overhead(given.runs, given.rounds) + speedup(given.long_runs, given.rounds), table, given.json)


if __name__ == "__main__":
    main()
