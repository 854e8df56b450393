"""A pipeline to simulate, the check of its orders, and the errors about pipelines that cannot finish.

In error messages stages, micro-batches and chunks count from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.layouts.pipelines import LIBRARY
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Floats, Network, Topology
from syncline.errors import SpecError, SynclineError
from syncline.sim.pipelines.schedules import Kind, Orders, PipelineTask, Schedule, target_stage
from syncline.sim.program.instructions import First, Instruction, Recv, broadcast_seconds, check_seconds

NetworkLike: TypeAlias = Link | Sequence[Link] | Network | Topology

Effects: TypeAlias = Callable[[int, PipelineTask], Callable[[], object] | None]
"""The math of a task at a stage, as a function that is called when the task completes."""


@dataclass(frozen=True, eq=False)
class Durations:
    """The durations of tasks in seconds: numbers, or arrays that broadcast to ``(K, M)`` for K stages, M micro-batches.

    With several chunks per stage these are the durations of one chunk. Schedules that split the backward use
    ``weight_s`` for the weights' gradient, and ``backward_s`` for the input's gradient alone.
    """

    forward_s: ArrayLike = 1.0
    backward_s: ArrayLike = 2.0
    weight_s: ArrayLike = 0.0

    def seconds_by_kind(self, stages: int, microbatches: int) -> dict[Kind, Floats]:
        """Return the seconds of each task as an array ``(stages, microbatches)`` for each kind of task."""
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
    """The pipeline to simulate: schedule, seconds of tasks, bytes of messages, and replicas.

    Args:
        schedule: the order of each stage's tasks.
        stages: K, number of stages.
        activation_bytes: bytes of a micro-batch's message from one stage to the next; its gradient has as many.
        replicas: number of equal pipelines that train together; worker ``r K + k`` is stage k of replica r.
        gradient_bytes: bytes that the replicas of each stage average before an update, ``(K,)``; nothing if empty.
        averaging: name of the collectives that average, see `syncline.costmodel.layouts.pipelines`.
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
        """Return the seconds of an update of each of the K stages."""
        return broadcast_seconds("update_s", self.update_s, count=self.stages, noun="stages").tolist()


PREREQUISITES: dict[Kind, Kind] = {"backward": "forward", "weight": "backward"}
"""By kind of task: the kind that a stage must run before for the same micro-batch and chunk."""


def tag_of(kind: Kind, microbatch: int, chunk: int) -> str:
    """Return the tag of the message with a task's input; a chunk number of 0 is left out."""
    return f"{kind}.{chunk} {microbatch}" if chunk else f"{kind} {microbatch}"


def task_of(tag: str) -> PipelineTask:
    """Return the task whose input has this tag.

    >>> task_of(tag_of("backward", 3, 1))
    PipelineTask(kind='backward', microbatch=3, chunk=1)
    """
    label, _, microbatch = tag.partition(" ")
    kind, _, chunk = label.partition(".")
    return PipelineTask(kind, int(microbatch), int(chunk or 0))  # type: ignore[arg-type]


def name_of(task: PipelineTask) -> str:
    """Return the name of a task for error messages."""
    name = f"{task.kind} {task.microbatch + 1}"
    return f"{name} of chunk {task.chunk + 1}" if task.chunk else name


def check_orders(schedule: Schedule, stages: int) -> None:
    """Raise an error for orders that lack a task, have a task twice, or have a task before its prerequisite.

    Raises:
        SynclineError: names the task and its stage, and the stage that waits for it.
    """
    stage_orders = schedule.orders or schedule.limits  # a greedy schedule has limits alone
    if len(stage_orders) != stages:
        problem = f"got {len(stage_orders)} stages; expected the pipeline's {stages}"
        raise SynclineError(f"schedule {schedule.name}: {problem}")
    kinds = schedule.kinds
    if isinstance(schedule.orders, Orders) and schedule.orders.are_complete(len(kinds)):
        return  # the loops below only find out what is wrong
    required = [PipelineTask(*task) for task in product(kinds, range(schedule.microbatches), range(schedule.chunks))]
    required_set = set(required)
    checked_orders: set[int] = set()  # several stages may share one order
    for stage, order in enumerate(schedule.orders):
        if id(order) in checked_orders:
            continue
        checked_orders.add(id(order))
        position = {task: index for index, task in enumerate(order)}
        stage_name = f"stage {stage + 1}"
        repeated = [task for index, task in enumerate(order) if position[task] != index]
        if repeated:
            raise SynclineError(f"{stage_name} runs {name_of(repeated[0])} twice; expected each task once")
        unknown = [task for task in order if task not in required_set]
        if unknown:
            problem = f"{stage_name} runs {name_of(unknown[0])}, which {schedule.name} does not have"
            raise SynclineError(f"{problem}; expected only its own tasks")
        missing = [task for task in required if task not in position]
        if missing:
            target = target_stage(missing[0], stage, stages, schedule.chunks)
            waits = "" if target is None else f": stage {target + 1} waits for it"
            problem = f"{stage_name} never runs {name_of(missing[0])}, which is not in its order{waits}"
            raise SynclineError(f"{problem}; expected it once")
        for task, index in position.items():
            if task.kind not in PREREQUISITES:
                continue
            prerequisite = task._replace(kind=PREREQUISITES[task.kind])
            if position[prerequisite] > index:
                raise SynclineError(
                    f"{stage_name} never runs {name_of(task)}: it waits for {name_of(prerequisite)} of {stage_name}, "
                    "which comes after it in its order; expected it before"
                )


def deadlock(current_instructions: Mapping[int, Instruction], stages: int) -> SynclineError | None:
    """Return an error about a stage that can run no task, or about stages that wait for each other; else None.

    Args:
        current_instructions: the current instruction of each worker that has not finished.
        stages: K; worker ``r K + k`` is stage k of replica r.
    """

    def stage_name(worker: int) -> str:
        """Return the name of a worker's stage for the error line."""
        replica, stage = divmod(worker, stages)
        return f"stage {stage + 1} of replica {replica + 1}" if replica else f"stage {stage + 1}"

    awaited: dict[int, Recv] = {}  # by worker
    for worker, instruction in current_instructions.items():
        if isinstance(instruction, Recv):
            awaited[worker] = instruction
        elif isinstance(instruction, First):  # the choice of a greedy stage
            if not instruction.options:
                problem = f"{stage_name(worker)} never runs forward 1: its in-flight limit is 0"
                return SynclineError(f"{problem}; expected at least 1")
            receives = [receive for receive in instruction.options if receive is not None]
            if receives:  # the first option is the preferred task
                awaited[worker] = receives[0]

    # Go from a worker to the worker whose message it awaits, until a worker comes for the second time.
    worker = min(awaited, default=-1)  # -1, no worker, ends the search at once
    visited: set[int] = set()
    while worker not in visited:
        if worker not in awaited:  # a worker that waits for no message, so there is no circle
            return None
        visited.add(worker)
        worker = awaited[worker].source
    source = awaited[worker].source
    task, source_task = task_of(str(awaited[worker].tag)), task_of(str(awaited[source].tag))
    return SynclineError(
        f"{stage_name(worker)} never runs {name_of(task)}: it waits for {stage_name(source)}, which is at "
        f"{name_of(source_task)} and itself waits for {stage_name(awaited[source].source)}; "
        "expected orders in which one of them can go on"
    )
