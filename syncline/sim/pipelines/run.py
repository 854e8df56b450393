"""A pipeline: a schedule compiled to one program per stage, run by the events, and what its history says.

Stage k is worker k. A task waits for its input (`Recv`), computes, and sends its output on: activations to the next
part of the model, their gradients to the one before. Nothing about delay is assumed: what an update is late by is
counted on the timeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from syncline.allocator import no_collection
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.network.topology import Network, Topology
from syncline.errors import SpecError
from syncline.sim.events.run import run_events
from syncline.sim.pipelines.deadlocks import check_orders, deadlock, tag_of
from syncline.sim.pipelines.played import played
from syncline.sim.pipelines.report import PipelineReport, StageReport, TaskSpan, report, task_spans
from syncline.sim.pipelines.schedules import TASK_KINDS, Kind, Order, PipelineTask, Schedule, source_stage, target_stage
from syncline.sim.programs import Collective, Compute, First, Instruction, Recv, Send, Stuck, Wait, check_seconds
from syncline.sim.timeline import Timeline

__all__ = [
    "Durations",
    "Pipeline",
    "PipelineReport",
    "StageReport",
    "TaskSpan",
    "pipeline_programs",
    "report",
    "run_pipeline",
    "task_spans",
]

NetworkLike: TypeAlias = Link | Sequence[Link] | Network | Topology
Effects: TypeAlias = Callable[[int, PipelineTask], Callable[[], object] | None]
"""The math of a task at a stage: what happens when it completes."""


@dataclass(frozen=True, eq=False)
class Durations:
    """How long tasks take, in seconds: ``(K, M)`` each, or anything that broadcasts to it.

    With v chunks these are of one stage's chunk. ``weight_s`` is used by schedules that split the backward; there
    ``backward_s`` is of the input's gradient alone.
    """

    forward_s: ArrayLike = 1.0
    backward_s: ArrayLike = 2.0
    weight_s: ArrayLike = 0.0

    def of(self, stages: int, microbatches: int) -> dict[Kind, Floats]:
        """Seconds by kind, each ``(K, M)``.

        Raises:
            SpecError: a time that is negative or not finite, or a shape that does not fit.
        """
        named: dict[Kind, ArrayLike] = {"forward": self.forward_s, "backward": self.backward_s, "weight": self.weight_s}
        out: dict[Kind, Floats] = {}
        for kind, value in named.items():
            given = np.asarray(value, dtype=np.float64)
            try:
                seconds = np.broadcast_to(given, (stages, microbatches))
            except ValueError:
                expected = f"a shape that broadcasts to ({stages}, {microbatches}): stages and micro-batches"
                raise SpecError(f"{kind}_s", given.shape, expected) from None
            check_seconds(f"{kind}_s", seconds)
            out[kind] = seconds
        return out


@dataclass(frozen=True)
class Pipeline:
    """What is compiled: a schedule, its times, what travels, how many replicas average their gradients.

    Args:
        schedule: who runs what when.
        stages: K.
        durations: how long tasks take.
        activation_bytes: what one micro-batch sends from one stage to the next, and its gradient back.
        replicas: D pipelines side by side; worker ``r K + k`` is stage k of replica r.
        gradient_bytes: what the replicas of each stage average before an update, ``(K,)``; nothing if none.
        effects: the math of each task of the first replica.
    """

    schedule: Schedule
    stages: int
    durations: Durations
    activation_bytes: float = 0.0
    replicas: int = 1
    gradient_bytes: Sequence[float] = ()
    effects: Effects | None = None


def pipeline_programs(of: Pipeline) -> list[list[Instruction]]:
    """One program per worker; those of a greedy schedule grow while they run."""
    seconds = of.durations.of(of.stages, of.schedule.microbatches)
    programs = []
    for worker in range(of.replicas * of.stages):
        stage = _Stage(of, seconds, *divmod(worker, of.stages))
        if of.schedule.orders:
            programs.append(stage.in_order(of.schedule.orders[stage.number]))
        else:
            programs.append(_Greedy(stage, of.schedule).next())
    return programs


class _Stage:
    """The instructions of one stage of one replica."""

    def __init__(self, of: Pipeline, seconds: dict[Kind, Floats], replica: int, stage: int) -> None:
        self.of, self.replica, self.number = of, replica, stage
        self.seconds: dict[Kind, list[float]] = {kind: rows[stage].tolist() for kind, rows in seconds.items()}
        self.effects = of.effects if replica == 0 else None
        schedule = of.schedule
        chunks, first = schedule.chunks, replica * of.stages
        self.released_by = schedule.released_by
        self.sources: dict[tuple[Kind, int], int] = {}
        self.targets: dict[tuple[Kind, int], tuple[int, int]] = {}  # the worker, and its chunk
        for kind in TASK_KINDS:
            for chunk in range(chunks):
                task = PipelineTask(kind, 0, chunk)
                source, target = (end(task, stage, of.stages, chunks) for end in (source_stage, target_stage))
                if source is not None:
                    self.sources[kind, chunk] = first + source
                if target is not None:
                    part = chunk * of.stages + stage + (1 if kind == "forward" else -1)
                    self.targets[kind, chunk] = first + target, part // of.stages
        nbytes = of.gradient_bytes[stage] if of.gradient_bytes else 0.0
        self.averaged_bytes = nbytes if of.replicas > 1 else 0.0
        self.group = tuple(range(stage, of.replicas * of.stages, of.stages))

    def in_order(self, order: Order) -> list[Instruction]:
        """The program of an order."""
        program: list[Instruction] = []
        every, released_by, left = self.of.schedule.updates == "every", self.released_by, 0
        if self.averaged_bytes and not every:
            left = sum(task.kind == released_by for task in order)
        for task in order:
            recv = self.recv(task)
            if recv is not None:
                program.append(recv)
            program += self.run(task)
            if self.averaged_bytes and task.kind == released_by:
                left -= 1
                if every or left == 0:
                    program += self.average(task.microbatch)
        return program

    def recv(self, task: PipelineTask) -> Recv | None:
        """Wait for the input."""
        source = self.sources.get((task.kind, task.chunk))
        return None if source is None else Recv(source, tag_of(*task), task.microbatch)

    def run(self, task: PipelineTask) -> list[Instruction]:
        """Compute, and send the output on."""
        kind, i, chunk = task
        effect = None if self.effects is None else self.effects(self.number, task)
        what = kind if self.of.schedule.chunks == 1 else f"{kind}.{chunk}"
        compute = Compute(self.seconds[kind][i], what, i, effect, what)
        target = self.targets.get((kind, chunk))
        if target is None:
            return [compute]
        return [compute, Send(target[0], self.of.activation_bytes, tag_of(kind, i, target[1]), i)]

    def average(self, microbatch: int) -> list[Instruction]:
        """The replicas of the stage average its gradient, and go on when they have it."""
        if not self.averaged_bytes:
            return []
        key = self.number, microbatch
        sums = Collective("all_reduce", self.averaged_bytes, key, "gradient", microbatch, group=self.group)
        return [sums, Wait(key)]


class _Greedy:
    """A stage that decides when it can go on: micro-batches keep their order, each way."""

    def __init__(self, stage: _Stage, schedule: Schedule) -> None:
        self.stage, self.microbatches, self.limit = stage, schedule.microbatches, schedule.limits[stage.number]
        self.at: dict[Kind, int] = {"forward": 0, "backward": 0}  # the next of each
        self.recvs = {kind: stage.recv(PipelineTask(kind, 0)) for kind in self.at}

    def next(self) -> list[Instruction]:
        """The decision what to do next."""
        forward, backward = self.at["forward"], self.at["backward"]
        if backward == self.microbatches:
            return []
        options: list[Kind] = ["backward"] if backward < forward else []
        if forward < self.microbatches and forward - backward < self.limit:
            options.append("forward")
        return [First([self.recvs[kind] for kind in options], lambda taken: self.go(options[taken]))]

    def go(self, kind: Kind) -> list[Instruction]:
        """Run a task, then decide again."""
        i = self.at[kind]
        self.at[kind] = i + 1
        self.recvs[kind] = self.stage.recv(PipelineTask(kind, i + 1))
        average = self.stage.average(i) if kind == "backward" else []
        return [*self.stage.run(PipelineTask(kind, i)), *average, *self.next()]


def run_pipeline(of: Pipeline, network: NetworkLike) -> Timeline:
    """What happens when the stages of a pipeline play its schedule.

    Raises:
        SpecError: times that cannot be.
        SynclineError: a schedule that cannot finish; says which stage waits for what.
    """
    check_orders(of.schedule, of.stages)
    made = played(of, network)
    if made is not None:
        return made
    with nullcontext() if of.effects else no_collection():
        try:
            return run_events(pipeline_programs(of), network)
        except Stuck as stuck:
            raise deadlock(stuck.at, of.stages) or stuck from None
