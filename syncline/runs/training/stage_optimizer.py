"""The optimizer of one stage of a pipeline, for simulated and for real stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from syncline.methods import MethodBase
    from syncline.optim import Method
    from syncline.problems import Task


def stage_optimizer(
    method: MethodBase, task: Task, named: list[tuple[str, nn.Parameter]], stage: int, delays: list[int], seed: int
) -> Method:
    """Return the optimizer of a stage, with its matrices and its other parameters in separate groups."""
    from syncline.comm import SimulatedCommunicator
    from syncline.seeds import seed64

    groups = [
        {"params": [p for p in named if (p[0] in task.matrices) == matrix], "matrix": matrix}
        | {"delay": delays[stage], "delays": tuple(delays)}
        for matrix in (True, False)
    ]
    built = method.build([g for g in groups if g["params"]], SimulatedCommunicator(1), worker_axis=False)
    built.seeds = (seed64(seed, "stage", stage),)  # each stage has its own draws
    return built
