"""The work of the stages of a trained pipeline, from which its clock follows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from syncline.costmodel import Network
from syncline.costmodel.network.slowdown import slow_down
from syncline.planner.bounds import AS_PREDICTED, Factors
from syncline.runs.training.delayed_gradients.updates import (
    StageWork,
    timeline_of_stages,
    updates_of,
)
from syncline.sim import Clock

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class TrainedStages:
    """The work of each stage of a training in each batch, from which its clock follows.

    Args:
        work: work of a batch.
        steps: number of completed steps.
        kept_steps: number of steps that the timeline keeps.
        microbatches: micro-batches of a synchronous batch; None: the pipeline is asynchronous.
    """

    work: StageWork
    steps: int
    kept_steps: int
    microbatches: int | None

    def time(self, network: Network, factors: Factors = AS_PREDICTED) -> Clock:
        """Return the clock on a network, with computing and communication times multiplied by factors.

        The time in which a stage does not compute counts as waiting, for the network or for a neighbour.
        """
        work, slower = self.work, float(factors.computing)
        if factors != AS_PREDICTED:
            network = slow_down(network, float(factors.communication))
            work = dataclasses.replace(
                work,
                forward_s=tuple(slower * seconds for seconds in work.forward_s),
                update_s=tuple(slower * seconds for seconds in work.update_s),
            )
        stages = len(work.forward_s)
        ends_s = updates_of(work, network, self.microbatches).seconds_until(np.arange(1, self.steps + 1))
        wall_s = float(ends_s[-1])
        compute_s = (3 * sum(work.forward_s) + sum(work.update_s)) / stages
        waited_s = max(wall_s / self.steps - compute_s, 0.0)
        shown_steps = min(self.steps, max(self.kept_steps, 1))
        return Clock(
            step_end_s=ends_s,
            end_s=np.full(stages, wall_s),
            step_time_s=wall_s / self.steps,
            compute_s=compute_s,
            encode_s=0.0,
            trigger_s=0.0,
            optimizer_s=0.0,
            communication_s=waited_s,
            exposed_communication_s=waited_s,
            bytes_per_worker=2 * (stages - 1) * work.activation_bytes / stages,
            wall_s=wall_s,
            evaluator="events",
            timeline=timeline_of_stages(work, network, shown_steps, self.microbatches),
        )
