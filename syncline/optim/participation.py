"""Partial participation: workers may be absent in some steps of a training, and join it later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from syncline.comm import Membership
from syncline.errors import SpecError
from syncline.optim.method import Method


class PartialParticipation:
    """The training of a method whose workers leave and join.

    - Parameters and states of an absent worker do not change, and no mean includes them.
    - A worker that joins copies parameters and states of the first worker that was present in the step before, as from
      a checkpoint. The time of this copy is not counted.

    Args:
        method: method whose parameters have the worker axis first.
        membership: the workers that are present in each step.

    Raises:
        SpecError: the method has no worker axis.
    """

    def __init__(self, method: Method, membership: Membership) -> None:
        if not method.worker_axis:
            raise SpecError("worker_axis", method.worker_axis, "a worker axis, where workers may be absent")
        self._method, self._membership = method, membership
        self._replicas = method.comm.replicas

    def join(self, step: int) -> None:
        """Copy parameters and states to the workers that join in this step."""
        joining = self._membership.joining(step)
        if not joining:
            return
        present_before = self._membership.present(step - 1)
        staying = [worker for worker in present_before if worker not in joining]
        # If all workers are replaced at once, the row of the first one still has its state.
        source = staying[0] if staying else present_before[0]
        with torch.no_grad():
            for x in self._tensors():
                by_replica = self._by_replica(x)
                by_replica[:, list(joining)] = by_replica[:, [source]]
        for replica in range(self._replicas):
            first_row = replica * self._membership.workers
            for worker in joining:
                self._method.copy_private_state(first_row + source, target_row=first_row + worker)

    @contextmanager
    def frozen(self, step: int) -> Iterator[None]:
        """Return a context that restores the rows of absent workers at its end, so that a step does not change them."""
        absent = list(self._membership.away(step))
        if not absent:
            yield
            return
        saved_rows = [(x, self._by_replica(x)[:, absent].clone()) for x in self._tensors()]
        yield
        with torch.no_grad():
            for x, rows in saved_rows:
                self._by_replica(x)[:, absent] = rows

    def mean(self, x: Tensor, step: int) -> Tensor:
        """Return the mean over the present workers of one number per worker: ``(S,)`` for S replicas, from ``(R,)``."""
        present = list(self._membership.present(step))
        return self._by_replica(x)[:, present].mean(1)

    def _by_replica(self, x: Tensor) -> Tensor:
        """Return a view ``(S, M, *s)`` of a tensor ``(R, *s)`` of S replicas with M workers each."""
        return x.detach().unflatten(0, (self._replicas, self._membership.workers))

    def _tensors(self) -> Sequence[Tensor]:
        """Return all parameters and states of the method, each ``(R, *s)``."""
        tensors: list[Tensor] = []
        for group in self._method.param_groups:
            for p in group["params"]:
                tensors += [p, *self._method.state[p].values()]
        return tensors
