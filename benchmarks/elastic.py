"""CPU seconds of workers at their own pace: the events beside the same effects without them, and beside plain torch.

    python -m benchmarks.elastic [--quick] [--rounds 5] [--month] [--json]

64 workers of speeds from 1 to 4, 20 steps of each in the mean, of two problems: an MLP of 134,410 parameters (64
pixels, 1,792 ReLUs, 10 classes) on the digits with batches of 32, whose step is so short that events are dear; and the
network of 363,168 parameters with batches of 8 windows of text that all trained findings are of. *Events* is a whole
training that is played, without building it; *effects* the same math, called in the order in which the events had
called it; *bare* as many steps of single workers in plain torch: the gradient of a batch that is there already, and
``torch.optim.Adam(fused=True)``.

With ``--month``: a simulated month of 10,000 workers with steps of 10 s, no math, and failures at the rate of Llama 3
(one in 5 hours, repaired within an hour), by each way to go on.

Medians of CPU seconds of the process, with one thread; the three take turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.command import cpu_s, parser_of, show
from syncline import goodput
from syncline.problems import Digits, Problem, Rows, TextGPT
from syncline.problems.digits import load_images, mlp
from syncline.runs.training.async_clock import async_plan
from syncline.runs.training.async_training import AsyncWorkers
from syncline.runs.training.trained import build_task, task_tensors
from syncline.specs import RunSpec, validate
from syncline.training import Recorder

PROBLEMS: tuple[Digits | TextGPT, ...] = (Digits(hidden=1792), TextGPT())
WORKERS, STEPS = 64, 20
METHODS: dict[str, dict[str, Any]] = {
    "async-ddp-adam": {"kind": "ddp", "rule": "adam", "lr": 1e-4, "asynchronous": {"buffer_size": 8}},
    "async-diloco": {"kind": "diloco", "lr": 1e-3, "period": 10, "asynchronous": {"buffer_size": 8}},
}


class MeasuredApart(NamedTuple):
    """CPU seconds of a local step."""

    problem: str
    method: str
    events_s: float
    effects_s: float
    bare_s: float


class Noted:
    """Passes on what happens, and keeps it."""

    def __init__(self, to: Any) -> None:
        self.to = to
        self.calls: list[tuple[str, tuple[int, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*values: int) -> None:
            self.calls.append((name, values))
            getattr(self.to, name)(*values)

        return call


def spec_of(method: dict[str, Any], steps: int = STEPS, problem: Problem = PROBLEMS[0]) -> RunSpec:
    """A run of 64 workers whose speeds go from 1 to 1/4."""
    speeds = [1 / (1 + 3 * m / (WORKERS - 1)) for m in range(WORKERS)]
    return validate(
        RunSpec,
        {
            "kind": "run", "name": "elastic", "problem": problem, "workers": WORKERS, "steps": steps,
            "method": method, "network": "10gbe", "compute": {"seconds": 0.1}, "speeds": speeds,
        },
    )  # fmt: skip


def math_of(spec: RunSpec) -> AsyncWorkers:
    """The effects, made anew."""

    def build(rows: Rows, problem: Any) -> Any:
        return build_task(problem, rows, torch.device("cpu"))

    return AsyncWorkers(spec, spec.method, build, Recorder(), lambda done: None)


def batch_of(problem: Digits | TextGPT) -> tuple[Tensor, Tensor]:
    """A batch that is there already; of text any bytes, as the time of a step is the same for all."""
    if isinstance(problem, Digits):
        data = load_images()
        return data.train[:32].float(), data.train_labels[:32]
    windows = torch.randint(256, (problem.batch_size, problem.context + 1))
    return windows[:, :-1], windows[:, 1:].flatten()


def bare_steps(problem: Digits | TextGPT, count: int) -> Callable[[], None]:
    """So many steps of single workers in plain torch, turn by turn."""
    x, y = batch_of(problem)
    models = [
        mlp(problem.hidden) if isinstance(problem, Digits) else problem.initial_network(0) for _ in range(WORKERS)
    ]
    optimizers = [torch.optim.Adam(list(one.parameters()), lr=1e-3, fused=True) for one in models]

    def work() -> None:
        for t in range(count):
            model, optimizer = models[t % WORKERS], optimizers[t % WORKERS]
            optimizer.zero_grad()
            F.cross_entropy(model(x).flatten(0, -2), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return work


def turn(problem: Digits | TextGPT, method: dict[str, Any], steps: int) -> tuple[float, float, float]:
    """CPU seconds of the events, of their effects alone, and of plain torch."""
    spec, count = spec_of(method, steps, problem), WORKERS * steps
    played, alone, bare = math_of(spec), math_of(spec), bare_steps(problem, count)
    noted = Noted(played)
    plan = async_plan(spec, spec.method, task_tensors(played.server_task), 0.1, spec.network)
    events_s = cpu_s(lambda: plan.play(noted))

    def effects() -> None:
        for name, values in noted.calls:
            getattr(alone, name)(*values)

    return events_s, cpu_s(effects), cpu_s(bare)


def measure(rounds: int, steps: int) -> list[MeasuredApart]:
    """All rows; the first round fills caches and does not count."""
    rows = []
    for problem in PROBLEMS:
        for name, fields in METHODS.items():
            turns = [turn(problem, fields, steps) for _ in range(rounds + 1)][1:]
            medians = (statistics.median(one) / (WORKERS * steps) for one in zip(*turns, strict=True))
            rows.append(MeasuredApart(problem.name, name, *medians))
    return rows


class MeasuredMonth(NamedTuple):
    """CPU seconds of a simulated month."""

    recovery: str
    cpu_s: float
    steps: float
    interruptions: float
    goodput: float


def months(rounds: int) -> list[MeasuredMonth]:
    """All ways to go on; the first round does not count."""
    failures = {
        "rates": "llama-3",
        "repair_time": "1 h",
        "restart_time": "5 min",
        "detection_timeout": "1 min",
        "regroup_time": "30 s",
    }
    failures |= {"spares": 16, "checkpoint": {"write_time": 30}}
    rows = []
    for recovery in ("restart", "elastic", "alone"):
        told: list[dict[str, Any]] = []
        taken = [
            cpu_s(lambda: told.extend(goodput(failures, 10_000, "10 s", recovery=recovery).rows))  # noqa: B023
            for _ in range(rounds + 1)
        ][1:]
        row = told[0]
        rows.append(
            MeasuredMonth(recovery, statistics.median(taken), row["steps"], row["interruptions"], row["goodput"])
        )
    return rows


def month_table(rows: Sequence[MeasuredMonth]) -> str:
    """Seconds, and what was played in them."""
    lines = [f"{'recovery':10} {'CPU':>8} {'steps':>10} {'failures':>9} {'goodput':>8}"]
    lines += [
        f"{one.recovery:10} {one.cpu_s:6.3f} s {one.steps:10,.0f} {one.interruptions:9.0f} {one.goodput:8.4f}"
        for one in rows
    ]
    return "\n".join(lines)


def table(rows: Sequence[MeasuredApart]) -> str:
    """Milliseconds of CPU, and ratios."""
    header = f"{'problem':9} {'method':16} {'events':>9} {'effects':>9} {'bare':>9} {'/effects':>9} {'/bare':>7}"
    lines = [header]
    for row in rows:
        times = " ".join(f"{1e3 * s:6.3f} ms" for s in (row.events_s, row.effects_s, row.bare_s))
        ratios = f"{row.events_s / row.effects_s:9.2f} {row.events_s / row.bare_s:7.2f}"
        lines.append(f"{row.problem:9} {row.method:16} {times} {ratios}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = parser_of("benchmarks.elastic", __doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds of fewer steps")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--month", action="store_true", help="machines that fail, without math")
    options = parser.parse_args()
    if options.month:
        show(months(1 if options.quick else options.rounds), month_table, options.json)
        return
    torch.set_num_threads(1)
    show(measure(1 if options.quick else options.rounds, 4 if options.quick else STEPS), table, options.json)


if __name__ == "__main__":
    main()
