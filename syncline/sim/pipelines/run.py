"""The simulation of a pipeline: from arrays to arrays if possible, else as one program per stage for the events.

Stage k is worker k. A task waits for its input (`Recv`), computes, and sends its output on: activations to the next
part of the model, their gradients to the part before. The simulation assumes no delay of updates: `report` counts the
delays on the timeline.

The event simulation handles effects, collectives, shared channels and delays as well, and defines the result. From
arrays to arrays (`array_timeline`) no instruction and no span is an object, a greedy stage chooses without a callback,
and a timeline is columns from the start: 64 stages with 1,024 micro-batches take tens of milliseconds and megabytes,
where lists of instructions take seconds and hundreds of megabytes. The timeline is the same to the last bit, which a
property test checks. The event simulation runs all other pipelines: those that deadlock, for which it reports the
reason, those on other networks, and those too small to be worth loading the compiled loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.acceleration import Kernels, paused_garbage_collection
from syncline.costmodel.layouts.pipelines import averaging_calls
from syncline.costmodel.network.link import topology
from syncline.costmodel.network.paths import Floats, Star
from syncline.costmodel.network.software_costs import messages_ahead
from syncline.sim.events.codes import LEFT_OVER
from syncline.sim.events.run import run_events
from syncline.sim.pipelines import schedules
from syncline.sim.pipelines.orders import part_of
from syncline.sim.pipelines.pipeline import NetworkLike, Pipeline, check_orders, deadlock, tag_of
from syncline.sim.pipelines.report import UPDATE
from syncline.sim.program.instructions import Collective, Compute, First, Instruction, Recv, Send, Stuck, Wait
from syncline.sim.program.timeline import Timeline, Words

KERNELS = Kernels("syncline.sim.pipelines.compiled", break_even_units=2**16)
"""The compiled loop over tasks and messages; its work is the number of both."""


def array_timeline(pipeline: Pipeline, network: NetworkLike) -> Timeline | None:
    """Return the timeline of a pipeline by the compiled simulation; None if only the event simulation can follow it."""
    schedule, stages = pipeline.schedule, pipeline.stages
    has_fixed_order = len(schedule.orders) > 0  # otherwise the stages are greedy
    tasks = schedule.microbatches * schedule.chunks * len(schedule.kinds)
    has_valid_bytes = math.isfinite(pipeline.activation_bytes) and pipeline.activation_bytes >= 0
    if pipeline.effects or pipeline.replicas > 1 or any(pipeline.updates_s()) or not has_valid_bytes:
        return None  # there are instructions besides tasks and messages, or an error to report
    if not has_fixed_order and (schedule.chunks > 1 or schedule.splits_backward):
        return None  # a compiled greedy stage chooses between one forward and one backward
    seconds = pipeline.durations.seconds_by_kind(stages, schedule.microbatches)
    stage_topology = topology(network, stages)
    if not isinstance(stage_topology, Star) or stage_topology.half_duplex.any():
        return None  # flows may share channels in ways that `compiled` does not search for
    kernels = KERNELS.for_work(2 * stages * tasks)
    if kernels is None:  # the work is too little to load the kernels
        return None
    tasks_table = np.zeros((stages, tasks), dtype=kernels.TASK)
    if has_fixed_order:
        numbering = schedules.TaskNumbering(schedule.microbatches, schedule.chunks)
        tasks_table["number"] = schedules.Orders.from_lists(schedule.orders, numbering).numbers
    # Tasks are numbered by kind, then by chunk; all chunks of a kind take equally long.
    kind_seconds = [np.tile(seconds[kind], (1, schedule.chunks)) for kind in schedule.kinds]
    tasks_table["seconds"] = np.concatenate(kind_seconds, axis=1)
    pipeline_table = np.zeros(1, dtype=kernels.PIPELINE)
    pipeline_table["microbatches"], pipeline_table["chunks"] = schedule.microbatches, schedule.chunks
    pipeline_table["greedy"] = not has_fixed_order
    pipeline_table["nbytes"], pipeline_table["tolerance"] = pipeline.activation_bytes, LEFT_OVER
    pipeline_table["messages_ahead"] = messages_ahead(stage_topology, pipeline.activation_bytes)
    stages_table = _stage_records(stage_topology, schedule.limits, kernels.STAGE)
    num_tasks_left = kernels.simulate(pipeline_table, stages_table, tasks_table)
    if num_tasks_left:  # the stages deadlock
        return None
    return _timeline(schedule, tasks_table, float(pipeline.activation_bytes))


def _stage_records(stage_topology: Star, limits: Sequence[int], record_type: np.dtype[Any]) -> NDArray[Any]:
    """Return the initial records of the stages, with latency and bandwidth of the routes to their neighbours."""
    stage, records = np.arange(stage_topology.workers), np.zeros(stage_topology.workers, dtype=record_type)
    up, down = stage_topology.bandwidth_bytes_per_s.reshape(2, -1)
    # With several chunks the model continues at the first stage after the last, so the stages form a ring.
    next_stage, previous_stage = (stage + 1) % len(stage), (stage - 1) % len(stage)
    for route, neighbour in enumerate((next_stage, previous_stage)):
        records["latency_s"][:, route] = stage_topology.paths(stage, neighbour).latency_s
        records["route_bytes_per_s"][:, route] = np.minimum(up, down[neighbour])
    records["overhead_s"], records["up_bytes_per_s"], records["down_bytes_per_s"] = stage_topology.overhead_s, up, down
    if limits:  # the schedule is greedy
        records["limit"] = limits
    for name in ("awaited_task", "sending_task", "incoming", "other_incoming"):
        records[name] = -1
    return records


def _timeline(schedule: schedules.Schedule, tasks_table: NDArray[Any], nbytes: float) -> Timeline:
    """Return the spans of each stage: each task's wait for its input and its computing, then all messages.

    ``tasks_table`` has the simulated records, ``(stages, tasks)``; ``nbytes`` are the bytes of a message.
    """
    stages, tasks = tasks_table.shape
    chunks, microbatches = schedule.chunks, schedule.microbatches
    numbers = np.ascontiguousarray(tasks_table["number"])
    block, step = np.divmod(numbers, np.int32(microbatches))  # block: kind and chunk; step: micro-batch
    is_forward = block < chunks
    part = block % chunks * stages + np.arange(stages)[:, None]  # index of the task's part of the model
    is_first, is_last = part == 0, part == chunks * stages - 1
    has_neighbours = (block < 2 * chunks) & (stages > 1)
    receives = has_neighbours & ~np.where(is_forward, is_first, is_last)
    sends = has_neighbours & ~np.where(is_forward, is_last, is_first)
    receiving_chunk = (part + np.where(is_forward, 1, -1)) // stages
    receiving_task = (block // chunks * chunks + receiving_chunk) * microbatches + step

    # Rows of a stage: a wait and a task in turn, then messages. Only tasks with a neighbour have a wait or a message.
    waits_rows, tasks_rows = slice(0, 2 * tasks, 2), slice(1, 2 * tasks, 2)
    messages_rows = slice(2 * tasks, 3 * tasks)
    exists = np.empty((stages, 3 * tasks), dtype=np.bool_)
    exists[:, waits_rows], exists[:, tasks_rows], exists[:, messages_rows] = receives, True, sends

    def column(wait: Any, task: Any, message: Any, dtype: type) -> Any:
        """Return a column of the timeline from its values in the spans of waits, of tasks and of messages."""
        rows = np.empty((stages, 3 * tasks), dtype=dtype)
        rows[:, waits_rows], rows[:, tasks_rows], rows[:, messages_rows] = wait, task, message
        return rows[exists]

    blocks = [(kind, chunk) for kind in schedule.kinds for chunk in range(chunks)]
    names = [kind if chunks == 1 else f"{kind}.{chunk}" for kind, chunk in blocks]
    tags = [tag_of(kind, microbatch, chunk) for kind, chunk in blocks for microbatch in range(microbatches)]
    wait_begin_s = np.concatenate([np.zeros((stages, 1)), tasks_table["end_s"][:, :-1]], axis=1)
    # Indices of labels: the names of blocks come first, then the tags in the order of task numbers.
    labels = column(numbers + len(names), block, receiving_task + len(names), np.int32)
    return Timeline(
        workers=stages, worker=np.repeat(np.arange(stages), exists.sum(axis=1)),
        stream=Words(column(wait=0, task=0, message=1, dtype=np.int8), np.array(["compute", "send"])),
        what=Words(column(wait=0, task=block + 2, message=1, dtype=np.int16), np.array(["recv", "send", *names])),
        label=Words(labels, np.array([*names, *tags])),
        start_s=column(wait_begin_s, tasks_table["begin_s"], tasks_table["send_begin_s"], np.float64),
        end_s=column(tasks_table["begin_s"], tasks_table["end_s"], tasks_table["send_end_s"], np.float64),
        nbytes=column(wait=nbytes, task=0.0, message=nbytes, dtype=np.float64),
        step=column(step, step, step, np.int64),
    )  # fmt: skip


def pipeline_programs(pipeline: Pipeline) -> list[list[Instruction]]:
    """Return a program for each worker; with a greedy schedule the program is made while it runs."""
    seconds = pipeline.durations.seconds_by_kind(pipeline.stages, pipeline.schedule.microbatches)
    programs = []
    for replica in range(pipeline.replicas):
        for number in range(pipeline.stages):
            stage = _Stage(pipeline, seconds, replica, number)
            if pipeline.schedule.orders:
                programs.append(stage.program(pipeline.schedule.orders[number]))
            else:
                programs.append(_GreedyStage(stage, pipeline.schedule).choice())
    return programs


class _Stage:
    """The instructions of one stage of one replica, both counted from 0.

    ``seconds`` has the durations of tasks by kind, ``(K, M)`` for K stages and M micro-batches.
    """

    def __init__(self, pipeline: Pipeline, seconds: dict[schedules.Kind, Floats], replica: int, stage: int) -> None:
        self.pipeline, self.number = pipeline, stage
        self.seconds: dict[schedules.Kind, list[float]] = {kind: rows[stage].tolist() for kind, rows in seconds.items()}
        self.effects = pipeline.effects if replica == 0 else None  # only the first replica computes values
        chunks, first_worker = pipeline.schedule.chunks, replica * pipeline.stages
        self.sources: dict[tuple[schedules.Kind, int], int] = {}  # by kind and chunk: the worker that sends the input
        self.targets: dict[
            tuple[schedules.Kind, int], tuple[int, int]
        ] = {}  # the worker that gets the output, and its chunk
        for kind in schedules.TASK_KINDS:
            for chunk in range(chunks):
                task = schedules.PipelineTask(
                    kind, microbatch=0, chunk=chunk
                )  # the stages are the same for all micro-batches
                source = schedules.source_stage(task, stage, pipeline.stages, chunks)
                target = schedules.target_stage(task, stage, pipeline.stages, chunks)
                if source is not None:
                    self.sources[kind, chunk] = first_worker + source
                if target is not None:
                    target_part = part_of(task, stage, pipeline.stages) + (1 if kind == "forward" else -1)
                    self.targets[kind, chunk] = first_worker + target, target_part // pipeline.stages
        nbytes = pipeline.gradient_bytes[stage] if pipeline.gradient_bytes else 0.0
        self.averaged_bytes = nbytes if pipeline.replicas > 1 else 0.0
        self.averaging_calls = averaging_calls(pipeline.averaging) if self.averaged_bytes else ()
        self.update_s = pipeline.updates_s()[stage]
        self.group = tuple(range(stage, pipeline.replicas * pipeline.stages, pipeline.stages))

    def program(self, order: schedules.Order) -> list[Instruction]:
        """Return the program that runs the stage's tasks in this order."""
        program: list[Instruction] = []
        updates_always = self.pipeline.schedule.updates == "every"
        released_by = self.pipeline.schedule.released_by
        num_gradients_left = sum(task.kind == released_by for task in order)
        for task in order:
            receive = self.receive(task)
            if receive is not None:
                program.append(receive)
            program += self.run(task)
            if task.kind == released_by:
                num_gradients_left -= 1
                if updates_always or num_gradients_left == 0:
                    program += self.update(task.microbatch)
        return program

    def receive(self, task: schedules.PipelineTask) -> Recv | None:
        """Return the instruction that waits for a task's input; None if the input is not from another stage."""
        source = self.sources.get((task.kind, task.chunk))
        return None if source is None else Recv(source, tag_of(*task), task.microbatch)

    def run(self, task: schedules.PipelineTask) -> list[Instruction]:
        """Return the instructions that compute a task and send its output to the next stage."""
        kind, microbatch, chunk = task
        effect = None if self.effects is None else self.effects(self.number, task)
        name = kind if self.pipeline.schedule.chunks == 1 else f"{kind}.{chunk}"
        compute = Compute(self.seconds[kind][microbatch], name, step=microbatch, effect=effect, what=name)
        if (kind, chunk) not in self.targets:
            return [compute]
        target, target_chunk = self.targets[kind, chunk]
        tag = tag_of(kind, microbatch, target_chunk)
        return [compute, Send(target, self.pipeline.activation_bytes, tag, step=microbatch)]

    def update(self, microbatch: int) -> list[Instruction]:
        """Return the instructions with which a stage averages its gradient over replicas and updates its weights."""
        program: list[Instruction] = []
        for call_number, (kind, algorithm) in enumerate(self.averaging_calls):
            key = self.number, microbatch, call_number
            average = Collective(
                kind, self.averaged_bytes, key, label="gradient", step=microbatch, algorithm=algorithm, group=self.group
            )
            program += [average, Wait(key)]
        if self.update_s:
            program.append(Compute(self.update_s, UPDATE, microbatch, what=UPDATE))
        return program


class _GreedyStage:
    """The instructions of a stage that, whenever it is free, chooses between its next forward and its next backward."""

    def __init__(self, stage: _Stage, schedule: schedules.Schedule) -> None:
        self.stage, self.microbatches = stage, schedule.microbatches
        self.in_flight_limit = schedule.limits[stage.number]
        self.next_microbatch: dict[schedules.Kind, int] = {"forward": 0, "backward": 0}

    def choice(self) -> list[Instruction]:
        """Return the instruction that chooses the next task; none after the last backward."""
        forward, backward = self.next_microbatch["forward"], self.next_microbatch["backward"]
        if backward == self.microbatches:
            return []
        kinds: list[schedules.Kind] = ["backward"] if backward < forward else []
        if forward < self.microbatches and forward - backward < self.in_flight_limit:
            kinds.append("forward")
        # The order of options is the preference: a backward before a forward.
        receives = [self.stage.receive(schedules.PipelineTask(kind, self.next_microbatch[kind])) for kind in kinds]
        return [First(options=receives, then=lambda index: self.run(kinds[index]))]

    def run(self, kind: schedules.Kind) -> list[Instruction]:
        """Return the instructions of the next task of a kind, followed by the next choice."""
        microbatch = self.next_microbatch[kind]
        self.next_microbatch[kind] = microbatch + 1
        update = self.stage.update(microbatch) if kind == "backward" else []
        return [*self.stage.run(schedules.PipelineTask(kind, microbatch)), *update, *self.choice()]


def run_pipeline(pipeline: Pipeline, network: NetworkLike) -> Timeline:
    """Return the timeline of a pipeline whose stages run its schedule.

    Raises:
        SpecError: invalid times.
        SynclineError: a schedule that cannot finish; the message names the waiting stage and its missing input.
    """
    check_orders(pipeline.schedule, pipeline.stages)
    timeline = array_timeline(pipeline, network)
    if timeline is not None:
        return timeline
    # Programs without effects make no garbage, so a collection would only take time.
    with nullcontext() if pipeline.effects else paused_garbage_collection():
        try:
            return run_events(pipeline_programs(pipeline), network)
        except Stuck as stuck:
            raise deadlock(stuck.current_instructions, pipeline.stages) or stuck from None
