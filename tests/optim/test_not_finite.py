"""What is not a number in one worker's gradient is told as divergence, by every method: no sign hides it."""

from __future__ import annotations

import math

import pytest
import torch

from syncline.comm import SimulatedCommunicator
from syncline.problems.base import Task
from syncline.training import parameter_groups, rows_of, train
from tests.methods.table import METHODS
from tests.methods.worlds import BOWLS

M, AT = 4, 3


class Poisoned:
    """A task of which one number of one worker's gradient is not finite in one step."""

    def __init__(self, task: Task, value: float) -> None:
        self.task, self.value = task, value

    def __getattr__(self, name: str) -> object:
        return getattr(self.task, name)

    def step_gradients(self, step: int) -> torch.Tensor:
        losses = self.task.step_gradients(step)
        if step == AT:
            for p in self.task.params.values():  # of every parameter, as an overflow in the loss would
                p.grad[1].view(-1)[-1] = self.value
        return losses


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", METHODS)
def test_it_is_told_as_divergence(name: str, value: float) -> None:
    comm = SimulatedCommunicator(M)
    task = Poisoned(BOWLS.build(rows_of(comm, (0,))), value)
    method = METHODS[name].spec.build(parameter_groups(task), comm)
    history = train(task, method, (0,), 9)
    assert history.diverged_at[0] is not None
    assert history.diverged_at[0] > AT
