"""Points of a plane that walk side by side, each with a start, a function and a delay of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from syncline.comm import SimulatedCommunicator
from syncline.optim import EveryStep, Method
from syncline.optim.base import UpdateRule
from syncline.problems.delayed import DelayedTask
from syncline.problems.landscapes import Oracle

LOOK_EVERY = 50
"""Steps between looks at whether all have arrived."""

Reached = Callable[[Tensor, Tensor], Tensor]
"""Which points ``(..., R)`` are where they should be, from positions ``(..., R, 2)`` and values ``(..., R)``."""


class PointsTask:
    """R points on what an oracle gives them: the parameter ``x`` of shape ``(R, d)``."""

    flops_per_step: float | None = None
    matrices: tuple[str, ...] = ()

    def __init__(self, start: Tensor, oracle: Oracle) -> None:
        self.params = {"x": torch.nn.Parameter(start.clone())}
        self._oracle = oracle

    @torch.no_grad()
    def step_gradients(self, step: int) -> Tensor:
        """Values ``(R,)``; ``.grad`` is the exact gradient."""
        x = self.params["x"]
        loss, x.grad = self._oracle(x.detach())
        return loss


class Walk(NamedTuple):
    """Where points went.

    Attributes:
        steps: ``(R,)`` updates until each first arrived; infinite if it did not.
        way: ``(T + 1, R, d)`` positions from the start, until all had arrived.
    """

    steps: Tensor
    way: Tensor


MakeRule = Callable[[Callable[[int], Tensor]], UpdateRule]
"""From where the gradient of a step is taken, ``(R, d)``, to the update rule."""


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
    """Let points ``(R, d)`` walk until all have arrived, for so many steps at most.

    Args:
        start: where from.
        oracle: values and gradients of all points, each of its own function.
        rule: how gradients become steps.
        lr: the learning rate.
        delays: ``(R,)`` updates by which each point's gradient is late.
        steps: at most.
        reached: where to.
        on_step: called with the steps done, now and then.
    """
    # It is no whole task: it has what a step needs.
    task = DelayedTask(PointsTask(start, oracle), {"x": delays[:, None]})  # type: ignore[arg-type]
    x = task.params["x"]
    comm = SimulatedCommunicator(1, replicas=len(start))
    optimizer = Method([x], lr, rule(lambda step: task.stale["x"]), EveryStep(), comm=comm, worker_axis=True)
    arrived = torch.full(start.shape[:1], math.inf, dtype=torch.float64)
    way = [x.detach().clone()]
    looked = 0
    for t in range(steps + 1):
        if t % LOOK_EVERY == 0 or t == steps:
            arrived = arrived.minimum(_first(torch.stack(way[looked:]), looked, oracle, reached))
            looked = len(way)
            if t == steps or bool(arrived.isfinite().all()):
                break
            on_step(t)
        task.step_gradients(t)
        optimizer.step()
        way.append(x.detach().clone())
    on_step(steps)
    return Walk(arrived, torch.stack(way))


def _first(way: Tensor, step: int, oracle: Oracle, reached: Reached) -> Tensor:
    """When each point ``(R,)`` first was where it should be on a way ``(T, R, d)`` from a step on, or infinity."""
    steps = torch.arange(step, step + len(way), dtype=torch.float64)[:, None]
    return torch.where(reached(way, oracle(way)[0]), steps, math.inf).amin(0)


def loss_at_most(target: Tensor | float) -> Reached:
    """Down to a loss, one for all or ``(R,)``."""
    return lambda position, loss: loss <= target


def turned_by(start: Tensor, degrees: float) -> Reached:
    """Turned around the origin by an angle below 180 degrees, to either side."""
    least = math.cos(math.radians(degrees))

    def reached(position: Tensor, loss: Tensor) -> Tensor:
        cosine = (position * start).sum(-1) / (position.norm(dim=-1) * start.norm(dim=-1))
        return cosine <= least

    return reached
