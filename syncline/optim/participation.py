"""Partial participation: an absent worker's row does not change, and a worker that joins adopts another's row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from syncline.comm import Membership
from syncline.errors import SpecError
from syncline.optim.method import Method


class PartialParticipation:
    """The rows of a method whose workers come and go.

    - An absent worker's parameters and states do not change, and nobody's mean contains them.
    - A worker that joins adopts parameters and states of the first of those present in the step before, as it would
      from a checkpoint. The time of that transfer is not counted.

    Args:
        method: method whose parameters have the worker axis first.
        membership: the workers that take part in each step.

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
        before = self._membership.present(step - 1)
        source = ([worker for worker in before if worker not in joining] or list(before))[:1]
        with torch.no_grad():
            for x in self._tensors():
                grouped = self._grouped(x)
                grouped[:, list(joining)] = grouped[:, source]
        for replica in range(self._replicas):
            first = replica * self._membership.workers
            for worker in joining:
                self._method.adopt(first + worker, first + source[0])

    @contextmanager
    def frozen(self, step: int) -> Iterator[None]:
        """Restore the rows of absent workers after the block, so that they do not change in this step."""
        away = list(self._membership.away(step))
        if not away:
            yield
            return
        saved = [(x, self._grouped(x)[:, away].clone()) for x in self._tensors()]
        yield
        with torch.no_grad():
            for x, rows in saved:
                self._grouped(x)[:, away] = rows

    def mean(self, x: Tensor, step: int) -> Tensor:
        """Return a number of each worker, ``(R,)``, as the mean over those present, ``(S,)``."""
        return self._grouped(x)[:, list(self._membership.present(step))].mean(1)

    def _grouped(self, x: Tensor) -> Tensor:
        return x.detach().unflatten(0, (self._replicas, self._membership.workers))

    def _tensors(self) -> Sequence[Tensor]:
        """Return parameters and states, each with the worker axis first."""
        params = [p for group in self._method.param_groups for p in group["params"]]
        return [x for p in params for x in (p, *self._method.state[p].values())]
