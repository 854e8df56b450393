"""Workers that step at the same instants, so that their steps form one batch over the worker axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from syncline.comm import SimulatedCommunicator
from syncline.problems import Task

if TYPE_CHECKING:
    from syncline.runs.training.elastic.async_clock import AsyncPlan

Teams = tuple[tuple[int, ...], ...]
"""The workers of each team; every worker is in exactly one."""


class Team:
    """Workers that share a task, whose rows are theirs, replica by replica.

    Args:
        workers: indices of the W workers, in order.
        task: task of these workers and S seeds.
        seeds: S, the number of seeds.
    """

    def __init__(self, workers: tuple[int, ...], task: Task, seeds: int) -> None:
        self.workers, self.task, self.seeds = workers, task, seeds
        self.params: list[Tensor] = list(task.params.values())
        self._place = {worker: place for place, worker in enumerate(workers)}
        self._comm = SimulatedCommunicator(len(workers), seeds)
        self._losses: Tensor | None = None
        self._pending: set[int] = set()

    @property
    def rows(self) -> int:
        """Return the number of rows of the task, S x W."""
        return self.seeds * len(self.workers)

    def steps(self, worker: int, number: int) -> bool:
        """Make one step of a worker; return True if this call computes the gradients of the whole team.

        The members of a team step at the same simulated times. The first member that steps at such a time computes the
        gradients of all members in one batch. The other members use the gradients of that batch.

        Args:
            worker: index of the worker.
            number: number of the step.
        """
        first = worker not in self._pending
        if first:
            self._losses, self._pending = self.task.step_gradients(number), set(self.workers)
        self._pending.discard(worker)
        return first

    def loss_of(self, worker: int) -> Tensor:
        """Return a worker's loss in the last step, ``(S,)``."""
        assert self._losses is not None
        return self.worker_rows(self._losses, worker)

    def worker_rows(self, x: Tensor, worker: int) -> Tensor:
        """Return a worker's part of ``(R, *s)``, which is ``(S, *s)``."""
        if len(self.workers) == 1:
            return x
        return x.view(self.seeds, len(self.workers), *x.shape[1:])[:, self._place[worker]]

    def mean(self, begins: list[Tensor] | None) -> list[Tensor]:
        """Return the mean of the workers' updates, ``(S, *s)``, bit for bit as a collective among them would.

        Args:
            begins: the model that all workers began with; None: an update is a gradient.
        """
        count = len(self.workers)
        if begins is None:
            updates = [p.new_zeros(p.shape) if p.grad is None else p.grad for p in self.params]
        else:
            updates = [b.repeat_interleave(count, 0).sub_(p.detach()) for b, p in zip(begins, self.params, strict=True)]
        return [x[::count].clone() for x in self._comm.all_reduce_coalesced(updates)]


def alone(workers: int) -> Teams:
    """Return teams of one worker each."""
    return tuple((worker,) for worker in range(workers))


def teams_of(plan: AsyncPlan) -> Teams:
    """Return the teams of workers that always step at the same instant, to the bit; one batch has the same effect.

    The order of events does not depend on the math, so a first simulation runs without it if workers of equal pace may
    be in step. A team's steps belong to one instant, and nothing happens between them; its members have their models by
    then.
    """
    spec, workers = plan.spec, plan.served.workers
    if spec.failures is not None or plan.work is not None or not plan.pace().any_alike():
        return alone(workers)  # a failed worker falls out of step, and a team needs equal batches
    played = plan.play()
    server = [s for s, size in enumerate(plan.served.groups or (workers,)) for _ in range(size)]
    teams: dict[tuple[int, bytes], list[int]] = {}
    for worker in range(workers):
        ends_s = played.step_end_s[played.step_worker == worker]
        if len(ends_s) and not (np.diff(ends_s) > 0).all():
            return alone(workers)
        teams.setdefault((server[worker], ends_s.tobytes()), []).append(worker)
    return tuple(tuple(members) for members in teams.values())
