"""Workers that step at the same instants, whose steps are one batch over the worker axis, as synchronous ones are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from syncline.comm import SimulatedCommunicator

if TYPE_CHECKING:
    from syncline.experiments.elastic.clock_apart import PlanApart
    from syncline.problems import Task

Teams = tuple[tuple[int, ...], ...]
"""Every worker in one."""


class Team:
    """Workers with one task: its rows are theirs, replica by replica.

    Args:
        workers: which, W of them, in their order.
        task: of these workers and S seeds.
        seeds: S.
    """

    def __init__(self, workers: tuple[int, ...], task: Task, seeds: int) -> None:
        self.workers, self.task, self.seeds = workers, task, seeds
        self.params: list[Tensor] = list(task.params.values())
        self._place = {worker: place for place, worker in enumerate(workers)}
        self._comm = SimulatedCommunicator(len(workers), seeds)
        self._losses: Tensor | None = None
        self._untold: set[int] = set()

    @property
    def rows(self) -> int:
        """S x W."""
        return self.seeds * len(self.workers)

    def steps(self, worker: int, number: int) -> bool:
        """A worker's step: True where it is the first of its instant, and the gradients of all have been made."""
        first = worker not in self._untold
        if first:
            self._losses, self._untold = self.task.step_gradients(number), set(self.workers)
        self._untold.discard(worker)
        return first

    def loss_of(self, worker: int) -> Tensor:
        """Its loss in the last step, ``(S,)``."""
        assert self._losses is not None
        return self.of(self._losses, worker)

    def of(self, x: Tensor, worker: int) -> Tensor:
        """A worker's part of ``(R, *s)``, ``(S, *s)``."""
        if len(self.workers) == 1:
            return x
        return x.view(self.seeds, len(self.workers), *x.shape[1:])[:, self._place[worker]]

    def mean(self, begins: list[Tensor] | None) -> list[Tensor]:
        """The mean of the workers' updates, ``(S, *s)``, with the bits of a collective among them.

        Args:
            begins: the model that all of them began with; None: an update is a gradient.
        """
        count = len(self.workers)
        if begins is None:
            updates = [p.new_zeros(p.shape) if p.grad is None else p.grad for p in self.params]
        else:
            updates = [b.repeat_interleave(count, 0).sub_(p.detach()) for b, p in zip(begins, self.params, strict=True)]
        return [x[::count].clone() for x in self._comm.all_reduce_coalesced(updates)]


def alone(workers: int) -> Teams:
    """Everybody by himself."""
    return tuple((worker,) for worker in range(workers))


def teams_of(plan: PlanApart) -> Teams:
    """Who steps whenever the others of his team do, to the bit: such steps have the same effects in one batch.

    Who comes when does not depend on the math, so it is played without it first, where workers of equal pace may be in
    step. A team's steps are of one instant, between which nothing happens; its members have their models by then.
    """
    spec, workers = plan.spec, plan.served.workers
    if spec.failures is not None or plan.work is not None or not plan.pace().any_alike():
        return alone(workers)  # who has failed is out of step, and batches that differ are no team's
    played = plan.play()
    server = [s for s, size in enumerate(plan.served.groups or (workers,)) for _ in range(size)]
    found: dict[tuple[int, bytes], list[int]] = {}
    for worker in range(workers):
        ends_s = played.step_end_s[played.step_worker == worker]
        if len(ends_s) and not (np.diff(ends_s) > 0).all():
            return alone(workers)
        found.setdefault((server[worker], ends_s.tobytes()), []).append(worker)
    return tuple(tuple(members) for members in found.values())
