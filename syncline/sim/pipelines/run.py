"""The simulation of a pipeline: a schedule becomes one program per stage, which the event simulation runs.

Stage k is worker k. A task waits for its input (`Recv`), computes, and sends its output on: activations to the next
part of the model, their gradients to the part before. The simulation assumes no delay of updates: `report` counts the
delays on the timeline.
"""

from __future__ import annotations

from contextlib import nullcontext

from syncline.allocator import paused_garbage_collection
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.pipeline.averaging import averaging_calls
from syncline.sim.events.run import run_events
from syncline.sim.pipelines.array_pipeline import array_timeline
from syncline.sim.pipelines.deadlocks import check_orders, deadlock, tag_of
from syncline.sim.pipelines.pipeline import NetworkLike, Pipeline
from syncline.sim.pipelines.report import UPDATE
from syncline.sim.pipelines.schedules import TASK_KINDS, Kind, Order, PipelineTask, Schedule, source_stage, target_stage
from syncline.sim.program.instructions import Collective, Compute, First, Instruction, Recv, Send, Stuck, Wait
from syncline.sim.program.timeline import Timeline


def pipeline_programs(pipeline: Pipeline) -> list[list[Instruction]]:
    """Return one program per worker; the programs of a greedy schedule grow while they run."""
    seconds = pipeline.durations.seconds_by_kind(pipeline.stages, pipeline.schedule.microbatches)
    programs = []
    for worker in range(pipeline.replicas * pipeline.stages):
        stage = _Stage(pipeline, seconds, *divmod(worker, pipeline.stages))
        if pipeline.schedule.orders:
            programs.append(stage.program(pipeline.schedule.orders[stage.number]))
        else:
            programs.append(_GreedyStage(stage, pipeline.schedule).choice())
    return programs


class _Stage:
    """The instructions of one stage of one replica; ``seconds`` has the durations of tasks by kind, ``(K, M)``."""

    def __init__(self, pipeline: Pipeline, seconds: dict[Kind, Floats], replica: int, stage: int) -> None:
        self.pipeline, self.number = pipeline, stage
        self.seconds: dict[Kind, list[float]] = {kind: rows[stage].tolist() for kind, rows in seconds.items()}
        self.effects = pipeline.effects if replica == 0 else None
        chunks, first_worker = pipeline.schedule.chunks, replica * pipeline.stages
        self.sources: dict[tuple[Kind, int], int] = {}
        self.targets: dict[tuple[Kind, int], tuple[int, int]] = {}  # the worker, and its chunk
        for kind in TASK_KINDS:
            for chunk in range(chunks):
                task = PipelineTask(kind, 0, chunk)
                source = source_stage(task, stage, pipeline.stages, chunks)
                target = target_stage(task, stage, pipeline.stages, chunks)
                if source is not None:
                    self.sources[kind, chunk] = first_worker + source
                if target is not None:
                    part = chunk * pipeline.stages + stage + (1 if kind == "forward" else -1)
                    self.targets[kind, chunk] = first_worker + target, part // pipeline.stages
        nbytes = pipeline.gradient_bytes[stage] if pipeline.gradient_bytes else 0.0
        self.averaged_bytes = nbytes if pipeline.replicas > 1 else 0.0
        self.averaging_calls = averaging_calls(pipeline.averaging) if self.averaged_bytes else ()
        self.update_s = pipeline.updates_s()[stage]
        self.group = tuple(range(stage, pipeline.replicas * pipeline.stages, pipeline.stages))

    def program(self, order: Order) -> list[Instruction]:
        """Return the program that runs the tasks in this order."""
        program: list[Instruction] = []
        updates_always, released_by = self.pipeline.schedule.updates == "every", self.pipeline.schedule.released_by
        remaining = 0 if updates_always else sum(task.kind == released_by for task in order)
        for task in order:
            receive = self.receive(task)
            if receive is not None:
                program.append(receive)
            program += self.run(task)
            if task.kind == released_by:
                remaining -= 1
                if updates_always or remaining == 0:
                    program += self.update(task.microbatch)
        return program

    def receive(self, task: PipelineTask) -> Recv | None:
        """Return the instruction that waits for a task's input; None if the input is not from another stage."""
        source = self.sources.get((task.kind, task.chunk))
        return None if source is None else Recv(source, tag_of(*task), task.microbatch)

    def run(self, task: PipelineTask) -> list[Instruction]:
        """Return the instructions that compute a task and send its output on."""
        kind, microbatch, chunk = task
        effect = None if self.effects is None else self.effects(self.number, task)
        name = kind if self.pipeline.schedule.chunks == 1 else f"{kind}.{chunk}"
        compute = Compute(self.seconds[kind][microbatch], name, microbatch, effect, name)
        if (kind, chunk) not in self.targets:
            return [compute]
        target, target_chunk = self.targets[kind, chunk]
        tag = tag_of(kind, microbatch, target_chunk)
        return [compute, Send(target, self.pipeline.activation_bytes, tag, microbatch)]

    def update(self, microbatch: int) -> list[Instruction]:
        """Return the instructions with which the stage's replicas average its gradient, and update its weights."""
        program: list[Instruction] = []
        for call_number, (kind, algorithm) in enumerate(self.averaging_calls):
            key = self.number, microbatch, call_number
            program.append(
                Collective(kind, self.averaged_bytes, key, "gradient", microbatch, algorithm, group=self.group)
            )
            program.append(Wait(key))
        if self.update_s:
            program.append(Compute(self.update_s, UPDATE, microbatch, what=UPDATE))
        return program


class _GreedyStage:
    """A stage that chooses its next task when it can go on; micro-batches keep their order in each direction."""

    def __init__(self, stage: _Stage, schedule: Schedule) -> None:
        self.stage, self.microbatches, self.limit = stage, schedule.microbatches, schedule.limits[stage.number]
        self.next_microbatch: dict[Kind, int] = {"forward": 0, "backward": 0}

    def choice(self) -> list[Instruction]:
        """Return the instruction that chooses the next task; none after the last backward."""
        forward, backward = self.next_microbatch["forward"], self.next_microbatch["backward"]
        if backward == self.microbatches:
            return []
        kinds: list[Kind] = ["backward"] if backward < forward else []
        if forward < self.microbatches and forward - backward < self.limit:
            kinds.append("forward")
        receives = [self.stage.receive(PipelineTask(kind, self.next_microbatch[kind])) for kind in kinds]
        return [First(receives, lambda index: self.run(kinds[index]))]

    def run(self, kind: Kind) -> list[Instruction]:
        """Return the instructions of the next task of a kind, followed by the next choice."""
        microbatch = self.next_microbatch[kind]
        self.next_microbatch[kind] = microbatch + 1
        update = self.stage.update(microbatch) if kind == "backward" else []
        return [*self.stage.run(PipelineTask(kind, microbatch)), *update, *self.choice()]


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
    with nullcontext() if pipeline.effects else paused_garbage_collection():
        try:
            return run_events(pipeline_programs(pipeline), network)
        except Stuck as stuck:
            raise deadlock(stuck.current_instructions, pipeline.stages) or stuck from None
