"""Messages about pipelines that cannot finish; in them stages, micro-batches and chunks count from 1."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from syncline.errors import SynclineError
from syncline.sim.pipelines.schedules import Kind, Orders, PipelineTask, Schedule, target_stage
from syncline.sim.program.instructions import First, Instruction, Recv

NEEDS: dict[Kind, Kind] = {"backward": "forward", "weight": "backward"}
"""Kind of task that a stage must have done with a micro-batch before each kind."""


def tag_of(kind: Kind, microbatch: int, chunk: int) -> str:
    """Return the tag of the message with a task's input."""
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
    return f"{task.kind} {task.microbatch + 1}" + f" of chunk {task.chunk + 1}" * (task.chunk > 0)


def check_orders(schedule: Schedule, stages: int) -> None:
    """Refuse orders that lack a task, have one twice, or contradict themselves.

    Raises:
        SynclineError: names the task and its stage, and the stage that waits for it.
    """
    stage_orders = schedule.orders or schedule.limits
    if len(stage_orders) != stages:
        raise SynclineError(
            f"schedule {schedule.name}: got {len(stage_orders)} stages; expected the pipeline's {stages}"
        )
    kinds = schedule.kinds
    if isinstance(schedule.orders, Orders) and schedule.orders.are_whole(len(kinds)):
        return
    wanted = {PipelineTask(*fields) for fields in product(kinds, range(schedule.microbatches), range(schedule.chunks))}
    checked: set[int] = set()  # several stages may share one order
    for stage, order in enumerate(schedule.orders):
        if id(order) in checked:
            continue
        checked.add(id(order))
        place = {task: index for index, task in enumerate(order)}
        name = f"stage {stage + 1}"
        if len(place) < len(order):
            twice = next(task for index, task in enumerate(order) if place[task] != index)
            raise SynclineError(f"{name} runs {name_of(twice)} twice; expected each task once")
        if not wanted.issuperset(place):
            unknown = next(task for task in order if task not in wanted)
            raise SynclineError(f"{name} runs {name_of(unknown)}, which {schedule.name} has not; expected others only")
        if len(place) < len(wanted):
            lack = min(wanted.difference(place), key=lambda task: (kinds.index(task.kind), *task[1:]))
            target = target_stage(lack, stage, stages, schedule.chunks)
            waits = "" if target is None else f": stage {target + 1} waits for it"
            raise SynclineError(
                f"{name} never runs {name_of(lack)}, which is not in its order{waits}; expected it once"
            )
        for (kind, microbatch, chunk), index in place.items():
            if kind != "forward" and place[PipelineTask(NEEDS[kind], microbatch, chunk)] > index:
                task, first = PipelineTask(kind, microbatch, chunk), PipelineTask(NEEDS[kind], microbatch, chunk)
                raise SynclineError(
                    f"{name} never runs {name_of(task)}: it waits for {name_of(first)} of {name}, which comes after it "
                    "in its order; expected it before"
                )


def deadlock(current_instructions: Mapping[int, Instruction], stages: int) -> SynclineError | None:
    """Return the error that names the stages that wait for each other; None if no stage waits for another.

    Args:
        current_instructions: the current instruction of each worker that has not finished.
        stages: K; worker ``r K + k`` is stage k of replica r.
    """

    def label(worker: int) -> str:
        replica, stage = divmod(worker, stages)
        return f"stage {stage + 1}" + f" of replica {replica + 1}" * (replica > 0)

    for worker, instruction in current_instructions.items():
        if isinstance(instruction, First) and not instruction.options:
            return SynclineError(f"{label(worker)} never runs forward 1: its in-flight limit is 0; expected at least 1")
    wanted = {
        worker: recv
        for worker, instruction in current_instructions.items()
        if (recv := _awaited(instruction)) is not None
    }
    worker, seen = min(wanted, default=-1), set[int]()
    while worker not in seen:
        if worker not in wanted:
            return None
        seen.add(worker)
        worker = wanted[worker].source
    recv = wanted[worker]  # a receive of the cycle
    task, source = name_of(task_of(str(recv.tag))), label(recv.source)
    other = wanted[recv.source]
    return SynclineError(
        f"{label(worker)} never runs {task}: it waits for {source}, which is at {name_of(task_of(str(other.tag)))} and "
        f"itself waits for {label(other.source)}; expected orders in which one of them can go on"
    )


def _awaited(instruction: Instruction) -> Recv | None:
    if isinstance(instruction, First):
        return next((recv for recv in instruction.options if recv is not None), None)
    return instruction if isinstance(instruction, Recv) else None
