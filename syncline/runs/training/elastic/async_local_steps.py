"""The math of one worker at its own pace: its learning rate, its local steps, and the update that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from syncline.comm import WIRE_FORMATS, SimulatedCommunicator
from syncline.methods.ddp import DDPSpec
from syncline.methods.diloco import DiLoCoSpec
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.optim import Method
from syncline.problems import Task
from syncline.specs import MethodBase, Training
from syncline.training import parameter_groups

INNER = ("rule", "lr", "other_lr", "weight_decay", "clip_norm")
"""Fields of a method that a worker's inner optimizer takes over."""


def inner_of(method: DiLoCoSpec) -> DDPSpec:
    """Return a worker's inner optimizer, as a method that sends nothing."""
    knobs: dict[str, Any] = {name: getattr(method, name) for name in INNER}
    return DDPSpec(**knobs)


class Rates:
    """The learning rates of an optimizer, following the schedule.

    Args:
        optimizer: the optimizer, with its initial learning rates.
        factors: learning-rate factor of each step, see `lr_factors`.
        spec: specification of the training.
    """

    def __init__(self, optimizer: Method, factors: Sequence[float] | None, spec: Training) -> None:
        self.optimizer, self.factors, self.workers, self.steps = optimizer, factors, spec.workers, spec.steps
        self.whole = [group["lr"] for group in optimizer.param_groups]

    def set(self, count: int) -> None:
        """Set the rate of the training's step that contains number ``count`` of all workers' steps, counted from 0."""
        if self.factors is not None:
            factor = self.factors[min(count // self.workers, self.steps - 1)]
            for group, lr in zip(self.optimizer.param_groups, self.whole, strict=True):
                group["lr"] = lr * factor


def lr_factors(spec: Training) -> list[float] | None:
    """Return the factor of the learning rate in each step, or None if it is 1 in all steps."""
    probe = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = spec.schedule.build(probe, spec.steps)
    if schedule is None:
        return None
    factors = []
    for _ in range(spec.steps):
        factors.append(float(probe.param_groups[0]["lr"]))
        probe.step()
        schedule.step()
    return factors


class LocalWorker:
    """A worker's task and, in local methods, its optimizer, which keeps its state across models.

    Args:
        spec: specification of the training.
        method: an asynchronous method.
        task: task on this worker's rows.
        factors: learning-rate factor of each step of the training.
    """

    def __init__(self, spec: Training, method: MethodBase, task: Task, factors: Sequence[float] | None) -> None:
        asynchronous = asynchronous_of(method)
        assert asynchronous is not None
        self.spec, self.asynchronous, self.task, self.factors = spec, asynchronous, task, factors
        self.wire = WIRE_FORMATS[method.travels_as]
        self.comm = SimulatedCommunicator(1, len(spec.seeds))
        self.params: list[Tensor] = list(task.params.values())
        self.since = 0  # local steps since its last update
        self.inner: DDPSpec | None = None
        self.begin: list[Tensor] = []
        if isinstance(method, DiLoCoSpec):
            self.inner = inner_of(method)
            self.begin = [p.detach().clone() for p in self.params]
        self._new_optimizer()

    def _new_optimizer(self) -> None:
        self.optimizer: Method | None = None
        if self.inner is not None:
            self.optimizer = self.inner.build(parameter_groups(self.task), self.comm)
            self.rates = Rates(self.optimizer, self.factors, self.spec)

    def gradients(self, number: int) -> Tensor:
        """Compute the gradients of step ``number`` and return its loss, ``(S,)``."""
        return self.task.step_gradients(number)

    def step(self, count: int) -> None:
        """Make an optimizer step in local methods, as number ``count`` of all workers' steps."""
        if self.optimizer is not None:
            self.rates.set(count)
            self.optimizer.step()
        self.since += 1

    @torch.no_grad()
    def update(self) -> list[Tensor]:
        """Return the update of the local steps: start minus end, or gradients.

        With ``start="server"``, return only the end, because the server takes the difference from its current model.
        """
        if self.optimizer is None:
            return [torch.zeros_like(p) if p.grad is None else p.grad for p in self.params]
        if self.asynchronous.reference == "server":
            return [p.detach() for p in self.params]
        return [begin - p for begin, p in zip(self.begin, self.params, strict=True)]

    @torch.no_grad()
    def take(self, model: Sequence[Tensor]) -> None:
        """Start again from a server's model."""
        for p, x in zip(self.params, model, strict=True):
            p.copy_(x)
        for begin, x in zip(self.begin, model, strict=False):
            begin.copy_(x)

    def fail(self) -> None:
        """Reset the optimizer, which the machine loses when it fails; the next model replaces the parameters."""
        self.since = 0
        self._new_optimizer()
