"""CPU seconds of a worker's update beside its gradient: what the clock of a training leaves out unless it is told.

    python -m benchmarks.updates [--quick] [--json]

Beside it what ``compute.optimizer_time: counted`` counts, by the shapes of the parameters: the operations of its matrix
products and decompositions over those of the gradient.

The byte-level GPT of the trained comparisons (363,168 parameters, 512 tokens per worker and step), and one of 3.2
million parameters. One worker, so that nobody else's update is in it, with exchanges that go nowhere: what a method
computes for them counts. Of 32 steps, the period of what has one; the smallest of three rounds, with one thread.
``--quick`` has the small problem alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from benchmarks.command import cpu_s, parser_of, show
from syncline.comm import SimulatedCommunicator
from syncline.methods import method_of
from syncline.optim.largest import KERNELS
from syncline.problems import TextGPT
from syncline.runs.training.trained import task_tensors
from syncline.specs import ComputeSpec
from syncline.training import parameter_groups, rows_of

PROBLEMS = {"text-gpt": TextGPT(), "text-gpt, 3.2M": TextGPT(layers=4, width=256)}

STEPS = 32
ROUNDS = 3

ADAM: dict[str, Any] = {"rule": "adam", "lr": 1e-3}
METHODS: dict[str, dict[str, Any]] = {
    "ddp-adam": {"kind": "ddp", **ADAM},
    "ddp-lion": {"kind": "ddp", "rule": "lion", "lr": 1e-4},
    "local-adam": {"kind": "local", **ADAM, "period": STEPS},
    "diloco": {"kind": "diloco", **ADAM, "period": STEPS},
    "mt-dao": {"kind": "mt-dao", "period": STEPS, "lr": 1e-3},
    "demo": {"kind": "demo", "lr": 1e-3},
    "dion": {"kind": "dion", "lr": 0.01, "other_lr": 1e-3},
    "dion-scheduled": {"kind": "dion", "period": STEPS, "lr": 0.01, "other_lr": 1e-3},
    "curvadion": {"kind": "curvadion", "threshold": 0.5, "lr": 0.01, "other_lr": 1e-3},
    "lion-cub-1bit": {"kind": "lion-cub", "vote": "one-bit", "lr": 1e-4},
    "lion-cub-8bit": {"kind": "lion-cub", "lr": 1e-4},
    "local-muon": {"kind": "local", "rule": "muon", "period": STEPS, "lr": 0.01, "other_lr": 1e-3},
    "basis-rotation": {"kind": "basis-rotation", "lr": 1e-3},
}


class Measured(NamedTuple):
    """CPU seconds of a step's update, and of its gradient; and what is counted of it, in gradients."""

    problem: str
    method: str
    update_s: float
    gradient_s: float
    counted: float

    @property
    def of_gradient(self) -> float:
        return self.update_s / self.gradient_s


def measured(problem: str, name: str) -> Measured:
    """The smallest of a few rounds; the first one fills caches and does not count."""
    comm = SimulatedCommunicator(1)
    task = PROBLEMS[problem].build(rows_of(comm, (0,)))
    spec = method_of(METHODS[name])
    counted = ComputeSpec(optimizer_time="counted").optimizer_s(
        spec, task_tensors(task), 1.0, task.flops_per_step, problem
    )
    method = spec.build(parameter_groups(task), comm)
    rounds = []
    for _ in range(1 + ROUNDS):
        gradient_s = update_s = 0.0
        for _ in range(STEPS):
            gradient_s += cpu_s(lambda: task.step_gradients(method.steps_done))
            update_s += cpu_s(method.step)
        rounds.append((update_s / STEPS, gradient_s / STEPS))
    updates, gradients = zip(*rounds[1:], strict=True)
    return Measured(problem, name, min(updates), min(gradients), counted)


def table(rows: Sequence[Measured]) -> str:
    names = ("problem", "method", "gradient, ms", "update, ms", "update over gradient", "counted")
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for row in rows:
        lines.append(
            f"| {row.problem} | {row.method} | {1e3 * row.gradient_s:.1f} | {1e3 * row.update_s:.2f} "
            f"| {row.of_gradient:.0%} | {row.counted:.0%} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_of("benchmarks.updates", __doc__)
    parser.add_argument("--quick", action="store_true", help="the small problem alone")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    KERNELS.load()
    problems = list(PROBLEMS)[: 1 if options.quick else None]
    show([measured(problem, name) for problem in problems for name in METHODS], table, options.json)


if __name__ == "__main__":
    main()
