"""A pipeline to simulate: its schedule, the durations of its tasks and the bytes of its messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.network.topology import Network, Topology
from syncline.costmodel.pipeline.averaging import LIBRARY
from syncline.errors import SpecError
from syncline.sim.pipelines.schedules import Kind, PipelineTask, Schedule
from syncline.sim.program.instructions import check_seconds

NetworkLike: TypeAlias = Link | Sequence[Link] | Network | Topology

Effects: TypeAlias = Callable[[int, PipelineTask], Callable[[], object] | None]
"""The math of a task at a stage, as a function that is called when the task completes."""


@dataclass(frozen=True, eq=False)
class Durations:
    """The durations of tasks, in seconds: of K stages and M micro-batches each, anything that broadcasts to ``(K, M)``.

    With several chunks per stage these are the durations of one chunk. Schedules that split the backward use
    ``weight_s`` for the weights' gradient, and ``backward_s`` for the input's gradient alone.
    """

    forward_s: ArrayLike = 1.0
    backward_s: ArrayLike = 2.0
    weight_s: ArrayLike = 0.0

    def seconds_by_kind(self, stages: int, microbatches: int) -> dict[Kind, Floats]:
        """Return the seconds of tasks by their kind, each ``(stages, microbatches)``.

        Raises:
            SpecError: a time that is negative or not finite, or a shape that does not fit.
        """
        fields: dict[Kind, ArrayLike] = {
            "forward": self.forward_s, "backward": self.backward_s, "weight": self.weight_s,
        }  # fmt: skip
        seconds: dict[Kind, Floats] = {}
        for kind, value in fields.items():
            values = np.asarray(value, dtype=np.float64)
            try:
                seconds[kind] = np.broadcast_to(values, (stages, microbatches))
            except ValueError:
                expected = f"a shape that broadcasts to ({stages}, {microbatches}): stages and micro-batches"
                raise SpecError(f"{kind}_s", values.shape, expected) from None
            check_seconds(f"{kind}_s", seconds[kind])
        return seconds


@dataclass(frozen=True)
class Pipeline:
    """A pipeline to simulate: a schedule, its times, the bytes of its messages, and its replicas.

    Args:
        schedule: the order of each stage's tasks.
        stages: K, number of stages.
        durations: durations of tasks.
        activation_bytes: bytes that one micro-batch sends from one stage to the next, and bytes of its gradient back.
        replicas: number of equal pipelines that train together; worker ``r K + k`` is stage k of replica r.
        gradient_bytes: bytes that the replicas of each stage average before an update, ``(K,)``; nothing if empty.
        averaging: name of the collectives that average, see `syncline.costmodel.pipeline.averaging`.
        update_s: seconds of each update of a stage's weights after the averaging, ``(K,)`` or one for all.
        effects: the math of each task of the first replica.
    """

    schedule: Schedule
    stages: int
    durations: Durations
    activation_bytes: float = 0.0
    replicas: int = 1
    gradient_bytes: Sequence[float] = ()
    averaging: str = LIBRARY
    update_s: ArrayLike = 0.0
    effects: Effects | None = None

    def updates_s(self) -> list[float]:
        """Return the seconds of each stage's update, ``(K,)``.

        Raises:
            SpecError: a time that is negative or not finite, or a shape that does not fit.
        """
        try:
            seconds = np.broadcast_to(np.asarray(self.update_s, dtype=np.float64), (self.stages,))
        except ValueError:
            expected = f"one time, or one for each of the {self.stages} stages"
            raise SpecError("update_s", np.shape(self.update_s), expected) from None
        check_seconds("update_s", seconds)
        return seconds.tolist()
