"""CPU seconds of a training step: every method beside the bare mathematics of data-parallel Adam, in the same run.

    python -m benchmarks.training [--quick] [--rounds 9] [--relus 1792] [--json]

The network is an MLP on the digits, with batches of 32: 134,410 parameters with 1,792 ReLUs between 64 pixels and 10
classes, a million with 13,312 ReLUs, three with 39,936. A step is all of it: the batches, the gradient of each worker,
what the method does, and the bookkeeping. *Bare* is the gradients of as many batches that are there already, their
mean, and one ``torch.optim.Adam(fused=True)``, in plain torch. A *run* is a whole training of 200 steps with its two
evaluations.

Medians of CPU seconds of the process, with one thread; bare steps, DDP-Adam's and the method's take turns. ``--quick``
has fewer rounds and no runs.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from benchmarks.command import cpu_s, parser_of
from syncline.comm import SimulatedCommunicator
from syncline.methods import method_of
from syncline.optim.largest import KERNELS
from syncline.problems import Digits
from syncline.problems.digits import load_images, mlp
from syncline.training import parameter_groups, rows_of, train

WORKERS = (1, 4)
STEPS = 10
"""Of a turn: the period of what has one."""

RUN_STEPS = 200

ADAM = {"lr": 1e-3, "rule": "adam"}
METHODS: dict[str, dict[str, Any]] = {
    "ddp-adam": {"kind": "ddp", **ADAM},
    "diloco": {"kind": "diloco", **ADAM, "period": STEPS},
    "demo": {"kind": "demo", "lr": 1e-3},
    "top-k": {"kind": "ddp", **ADAM, "compressor": "top-k"},
    "qsgd": {"kind": "ddp", **ADAM, "compressor": "qsgd"},
    "dion-8bit": {"kind": "dion", "exchange": "compressed", "compressor": "lp", "lr": 0.02, "other_lr": 1e-3},
    "muon": {"kind": "ddp", "rule": "muon", "lr": 0.02, "other_lr": 1e-3},
}


class Measured(NamedTuple):
    """CPU seconds of a step, and of a whole run where it was made."""

    method: str
    workers: int
    step_s: float
    bare_s: float
    ddp_adam_s: float
    run_s: float | None

    @property
    def of_bare(self) -> float:
        return self.step_s / self.bare_s

    @property
    def of_ddp_adam(self) -> float:
        return self.step_s / self.ddp_adam_s


def bare(problem: Digits, workers: int) -> Callable[[], None]:
    """Steps of data-parallel Adam with nothing around them."""
    module, images = mlp(problem.hidden), load_images()
    batches = [
        (images.train[start:][: problem.batch_size].float(), images.train_labels[start:][: problem.batch_size])
        for start in range(0, workers * problem.batch_size, problem.batch_size)
    ]
    params = list(module.parameters())
    optimizer = torch.optim.Adam(params, lr=1e-3, fused=True)

    def work() -> None:
        for _ in range(STEPS):
            gradients = [torch.autograd.grad(F.cross_entropy(module(x), y), params) for x, y in batches]
            for p, *of_workers in zip(params, *gradients, strict=True):
                p.grad = torch.stack(of_workers).mean(0)
            optimizer.step()

    return work


def stepper(problem: Digits, name: str, workers: int) -> Callable[[], None]:
    """Steps of a method, one after the other, with the loops compiled that a longer training loads by itself."""
    KERNELS.load()
    comm = SimulatedCommunicator(workers)
    task = problem.build(rows_of(comm, (0,)))
    method = method_of(METHODS[name]).build(parameter_groups(task), comm)

    def work() -> None:
        for _ in range(STEPS):
            task.step_gradients(method.steps_done)
            method.step()

    return work


def run(problem: Digits, name: str, workers: int) -> Callable[[], None]:
    """A whole training, from the building of its parts to its last evaluation."""

    def work() -> None:
        comm = SimulatedCommunicator(workers)
        task = problem.build(rows_of(comm, (0,)))
        train(task, method_of(METHODS[name]).build(parameter_groups(task), comm), (0,), RUN_STEPS)

    return work


def in_turns(works: Sequence[Callable[[], None]], rounds: int) -> list[float]:
    """The median of each; the first round fills caches and does not count."""
    taken = [[cpu_s(work) for work in works] for _ in range(rounds + 1)][1:]
    return [statistics.median(of_work) for of_work in zip(*taken, strict=True)]


def measure(problem: Digits, rounds: int, quick: bool) -> list[Measured]:
    """All rows."""
    rows = []
    for workers in WORKERS:
        for name in METHODS:
            works = [bare(problem, workers), stepper(problem, "ddp-adam", workers), stepper(problem, name, workers)]
            bare_s, ddp_adam_s, step_s = (turn_s / STEPS for turn_s in in_turns(works, rounds))
            run_s = None if quick else cpu_s(run(problem, name, workers))
            rows.append(Measured(name, workers, step_s, bare_s, ddp_adam_s, run_s))
    return rows


def as_json(problem: Digits, rows: Sequence[Measured]) -> str:
    """One object: what was trained, and the rows."""
    of_rows = [row._asdict() | {"of_bare": row.of_bare, "of_ddp_adam": row.of_ddp_adam} for row in rows]
    parameters = sum(p.numel() for p in problem.module().parameters())
    return json.dumps({"parameters": parameters, "run_steps": RUN_STEPS, "rows": of_rows}, indent=2)


def table(rows: Sequence[Measured]) -> str:
    lines = [
        f"| method | workers | step, ms of CPU | of bare | of DDP-Adam | {RUN_STEPS} steps, s of CPU |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        run_s = "" if row.run_s is None else f"{row.run_s:.2f}"
        lines.append(
            f"| {row.method} | {row.workers} | {1e3 * row.step_s:.2f} | {row.of_bare:.2f} | {row.of_ddp_adam:.2f} "
            f"| {run_s} |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("benchmarks.training", __doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, and no whole runs")
    parser.add_argument("--rounds", type=int, default=9, help="of which medians are taken")
    parser.add_argument("--relus", type=int, default=1792, help="width of the network's hidden layer")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    problem = Digits(hidden=options.relus)
    rows = measure(problem, min(options.rounds, 3) if options.quick else options.rounds, options.quick)
    print(as_json(problem, rows) if options.json else table(rows))


if __name__ == "__main__":
    main()
