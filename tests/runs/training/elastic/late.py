"""What the tests of trainings at workers' own pace share: a small run, its gradients, its last loss."""

from __future__ import annotations

from typing import Any

import torch

from syncline.problems import Rows
from syncline.runs.training.train_and_time import train_method
from syncline.runs.training.trained import Trained
from syncline.specs import RunSpec, validate

SHARED: dict[str, Any] = {
    "kind": "run",
    "name": "late",
    "problem": {"kind": "quadratic", "spectrum": [1.0, 0.3, 3.0], "noise_std": 0.2, "shift_std": 0.5},
    "workers": 4,
    "steps": 24,
    "seeds": [0, 1],
    "eval_every": 6,
    "compute": {"seconds": 1.0},
    "network": "wan",
    "dtype": "float64",
}

DDP = {"kind": "ddp", "rule": "sgdm", "lr": 0.05}
ADAM = {"kind": "ddp", "rule": "adam", "lr": 0.05, "weight_decay": 0.1, "clip_norm": 2.0}
DILOCO = {"kind": "diloco", "lr": 0.02, "period": 6}
LOCAL_SGD = {"kind": "diloco", "rule": {"kind": "sgdm", "momentum": 0.0}, "lr": 0.05, "period": 6, "outer_lr": 1.0,
             "outer_momentum": 0.0}  # fmt: skip


def spec_of(method: dict[str, Any], how: dict[str, Any] | None = None, **fields: Any) -> RunSpec:
    late = {} if how is None else {"asynchronous": how}
    return validate(RunSpec, SHARED | {"method": method | late} | fields)


def trained(*arguments: Any, **fields: Any) -> Trained:
    spec = spec_of(*arguments, **fields)
    return train_method(spec, spec.method)


def gradient_of(spec: RunSpec, worker: int, number: int, x: torch.Tensor) -> torch.Tensor:
    """A worker's gradient at x in its own step, from a task of its own."""
    task = spec.problem.build(Rows((0,), (worker,), spec.workers), dtype=torch.float64)
    (p,) = task.params.values()
    with torch.no_grad():
        p.copy_(x.unsqueeze(0))
    task.step_gradients(number)
    assert p.grad is not None
    return p.grad[0].clone()


def loss_at(spec: RunSpec, x: torch.Tensor) -> float:
    """What is evaluated at x, by a task of its own."""
    task = spec.problem.build(Rows((0,), (0,), spec.workers), dtype=torch.float64)
    return float(task.evaluate({"x": x.unsqueeze(0)})["loss"])
