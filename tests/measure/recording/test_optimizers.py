"""Steps that are counted once count as if each had been."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from syncline.measure.recording.operations import OperationCounter

Costs = list[tuple[float, float]]
Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def counted(
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer], knows: bool
) -> tuple[list[Costs], list[float], int]:
    """What each of six steps has cost, what came of them, and how many were dispatched to the counter."""
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(5))]
    optimizer = make(parameters)
    told: Costs = []
    seen = 0

    def listens() -> bool:
        nonlocal seen
        seen += 1
        return True

    counter = OperationCounter(told.append, listens)
    steps = []
    with counter.count_steps_once(told.extend, lambda: 0) if knows else counter:
        for step in range(6):
            for number, one in enumerate(parameters):
                one.grad = None if (step, number) == (3, 1) else torch.full_like(one, 0.1 * step)
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
            told.clear()
            optimizer.step()
            steps.append(list(told))
    return steps, [float(one.detach().double().sum()) for one in parameters], seen


@pytest.mark.parametrize(
    "make",
    [
        lambda of: torch.optim.SGD(of, 0.1),
        lambda of: torch.optim.SGD(of, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
        lambda of: torch.optim.AdamW(of, 0.1),
        lambda of: torch.optim.Adam(of, 0.1, amsgrad=True),
        lambda of: torch.optim.RAdam(of, 0.1),
    ],
    ids=["sgd", "nesterov", "adamw", "amsgrad", "radam"],
)
def test_steps_cost_and_do_the_same(make: Make) -> None:
    plain, values, dispatched = counted(make, knows=False)
    known, same, fewer = counted(make, knows=True)
    assert (known, same) == (plain, values)
    if make([nn.Parameter(torch.ones(1))]).__class__ is torch.optim.RAdam:  # it looks at how many steps there were
        assert fewer == dispatched
    else:
        assert fewer < dispatched


def test_a_step_that_does_anything_else_is_counted_each_time() -> None:
    parameter = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([parameter], 0.1)
    told: Costs = []
    calls = iter(range(100))
    with OperationCounter(told.append, lambda: True).count_steps_once(told.extend, lambda: next(calls)) as counter:
        for _ in range(2):
            parameter.grad = torch.ones(4)
            optimizer.step()
    assert isinstance(counter, OperationCounter) and counter.known_steps is not None
    assert not counter.known_steps._known_steps


def test_a_closure_computes_what_it_likes() -> None:
    parameter = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([parameter], 0.1)
    told: Costs = []
    with OperationCounter(told.append, lambda: True).count_steps_once(told.extend, lambda: 0):
        for size in (2, 3):
            parameter.grad = torch.ones(4)
            optimizer.step(lambda size=size: float(torch.ones(size).sum()))
    assert {8.0, 12.0} <= {op.nbytes for op in told if not op.flops}
