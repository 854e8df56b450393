"""The optimizer of one stage of a pipeline, in whichever world its stages are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from syncline.methods import MethodBase
    from syncline.problems import Task


def stage_optimizer(
    method: MethodBase, task: Task, named: list[tuple[str, nn.Parameter]], delay: int, delays: list[int]
) -> Optimizer:
    """A stage's, with its matrices and what is none in groups of their own."""
    from syncline.comm import SimulatedCommunicator

    groups = [
        {"params": [p for p in named if (p[0] in task.matrices) == matrix], "matrix": matrix}
        | {"delay": delay, "delays": tuple(delays)}
        for matrix in (True, False)
    ]
    return method.build([g for g in groups if g["params"]], SimulatedCommunicator(1), worker_axis=False)
