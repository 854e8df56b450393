"""Optimization trajectories of many points at once, each with its own start, function and gradient delay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from syncline.comm import SimulatedCommunicator
from syncline.optim import EveryStep, Method, UpdateRule
from syncline.problems import DelayedTask
from syncline.problems.landscapes import Oracle

LOOK_EVERY = 50
"""Number of steps between checks whether all points have arrived."""

Reached = Callable[[Tensor, Tensor], Tensor]
"""A function of positions ``(..., R, 2)`` and losses ``(..., R)`` that returns which points are at the target."""


class PointsTask:
    """A task of R points: the parameter ``x`` of shape ``(R, d)``, with losses and gradients from an oracle."""

    flops_per_step: float | None = None
    matrices: tuple[str, ...] = ()

    def __init__(self, start: Tensor, oracle: Oracle) -> None:
        self.params = {"x": torch.nn.Parameter(start.clone())}
        self._oracle = oracle

    @torch.no_grad()
    def step_gradients(self, step: int) -> Tensor:
        """Write the exact gradients into ``.grad`` and return the losses ``(R,)``."""
        x = self.params["x"]
        loss, x.grad = self._oracle(x.detach())
        return loss


class Walk(NamedTuple):
    """Trajectories of R points, with their arrival times.

    Attributes:
        steps: updates until each point first arrived, ``(R,)``; infinite if it did not.
        way: positions from the start until all points had arrived, ``(T + 1, R, d)``.
    """

    steps: Tensor
    way: Tensor


MakeRule = Callable[[Callable[[int], Tensor]], UpdateRule]
"""A function that makes the update rule.

Its argument returns the positions ``(R, d)`` at which the gradient of a step was taken.
"""


def walk(
    start: Tensor,
    oracle: Oracle,
    rule: MakeRule,
    lr: float,
    delays: Tensor,
    steps: int,
    reached: Reached,
    on_step: Callable[[int], None] = lambda done: None,
) -> Walk:
    """Update R points until all have arrived or the steps are used up, and return their trajectories.

    Args:
        start: starting positions, ``(R, d)``.
        oracle: returns losses and gradients of all points, each of its own function.
        rule: makes the update rule.
        lr: the learning rate.
        delays: updates by which each point's gradient is delayed, ``(R,)``.
        steps: maximum number of steps.
        reached: returns which points are at the target.
        on_step: called from time to time with the number of completed steps.
    """
    # `PointsTask` has only the part of a task that a step needs.
    task = DelayedTask(PointsTask(start, oracle), {"x": delays[:, None]})  # type: ignore[arg-type]
    x = task.params["x"]
    comm = SimulatedCommunicator(1, replicas=len(start))
    optimizer = Method([x], lr, rule(lambda step: task.stale["x"]), EveryStep(), comm=comm, worker_axis=True)
    arrived = torch.full(start.shape[:1], math.inf, dtype=torch.float64)
    trajectory = [x.detach().clone()]
    next_check = 0
    for t in range(steps + 1):
        if t % LOOK_EVERY == 0 or t == steps:
            arrived = arrived.minimum(_first(torch.stack(trajectory[next_check:]), next_check, oracle, reached))
            next_check = len(trajectory)
            if t == steps or bool(arrived.isfinite().all()):
                break
            on_step(t)
        task.step_gradients(t)
        optimizer.step()
        trajectory.append(x.detach().clone())
    on_step(steps)
    return Walk(arrived, torch.stack(trajectory))


def _first(trajectory: Tensor, step: int, oracle: Oracle, reached: Reached) -> Tensor:
    """Return the first step ``(R,)`` at which each point is at the target, or infinity.

    The trajectory ``(T, R, d)`` begins at step ``step``.
    """
    steps = torch.arange(step, step + len(trajectory), dtype=torch.float64)[:, None]
    return torch.where(reached(trajectory, oracle(trajectory)[0]), steps, math.inf).amin(0)


def loss_at_most(target: Tensor | float) -> Reached:
    """Return the check that a point's loss is at most the target, one target for all points or ``(R,)``."""
    return lambda position, loss: loss <= target


def turned_by(start: Tensor, degrees: float) -> Reached:
    """Return the check that a point has turned around the origin by an angle below 180 degrees, to either side."""
    max_cosine = math.cos(math.radians(degrees))

    def reached(position: Tensor, loss: Tensor) -> Tensor:
        cosine = (position * start).sum(-1) / (position.norm(dim=-1) * start.norm(dim=-1))
        return cosine <= max_cosine

    return reached
