"""A pipeline: a schedule compiled to one program per stage, run by the events, and what its history says.

Stage k is worker k. A task waits for its input (`Recv`), computes, and sends its output on: activations to the next
part of the model, their gradients to the one before. Nothing about delay is assumed: what an update is late by is
counted on the timeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.costmodel.link import Link
from syncline.costmodel.topology import Network, Topology
from syncline.errors import SpecError
from syncline.sim.events import run_events
from syncline.sim.programs import Collective, Compute, Instruction, Recv, Send, Wait
from syncline.sim.schedules import Kind, Schedule, Task
from syncline.sim.timeline import Timeline

Floats: TypeAlias = NDArray[np.float64]
AnyNetwork: TypeAlias = Link | Sequence[Link] | Network | Topology
Effects: TypeAlias = Callable[[int, Task], Callable[[], object] | None]
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

    def of(self, stages: int, microbatches: int) -> dict[Kind, list[list[float]]]:
        """Seconds by kind, stage and micro-batch.

        Raises:
            SpecError: a time that is negative or not finite, or a shape that does not fit.
        """
        named: dict[Kind, ArrayLike] = {"forward": self.forward_s, "backward": self.backward_s, "weight": self.weight_s}
        out: dict[Kind, list[list[float]]] = {}
        for kind, value in named.items():
            given = np.asarray(value, dtype=np.float64)
            try:
                seconds = np.broadcast_to(given, (stages, microbatches))
            except ValueError:
                expected = f"a shape that broadcasts to ({stages}, {microbatches}): stages and micro-batches"
                raise SpecError(f"{kind}_s", given.shape, expected) from None
            usable = np.isfinite(seconds) & (seconds >= 0)
            if not usable.all():
                raise SpecError(f"{kind}_s", float(seconds[~usable][0]), "seconds, finite and at least 0")
            out[kind] = seconds.tolist()
        return out


def source_of(task: Task, stage: int, stages: int, chunks: int) -> int | None:
    """The stage whose output a task waits for; None if it needs none from another stage."""
    part, last = task.chunk * stages + stage, chunks * stages - 1
    if task.kind == "forward":
        return None if part == 0 or stages == 1 else (stage - 1) % stages
    if task.kind == "backward":
        return None if part == last or stages == 1 else (stage + 1) % stages
    return None


def target_of(task: Task, stage: int, stages: int, chunks: int) -> int | None:
    """The stage that waits for a task's output; None if no other does."""
    part, last = task.chunk * stages + stage, chunks * stages - 1
    if task.kind == "forward":
        return None if part == last or stages == 1 else (stage + 1) % stages
    if task.kind == "backward":
        return None if part == 0 or stages == 1 else (stage - 1) % stages
    return None


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
    """One program per worker, of a schedule whose order is fixed."""
    seconds = of.durations.of(of.stages, of.schedule.microbatches)
    programs = []
    for replica in range(of.replicas):
        for stage, order in enumerate(of.schedule.orders):
            program: list[Instruction] = []
            left = Counter(task.kind for task in order)["weight" if of.schedule.splits_backward else "backward"]
            for task in order:
                program += _task(of, replica, stage, task, seconds[task.kind][stage][task.microbatch])
                if task.kind == ("weight" if of.schedule.splits_backward else "backward"):
                    left -= 1
                    if of.schedule.updates == "every" or left == 0:
                        program += _average(of, stage, task.microbatch)
            programs.append(program)
    return programs


def _average(of: Pipeline, stage: int, microbatch: int) -> list[Instruction]:
    """The replicas of a stage average its gradient, and go on when they have it."""
    if of.replicas == 1 or not of.gradient_bytes or not of.gradient_bytes[stage]:
        return []
    key = stage, microbatch
    group = tuple(replica * of.stages + stage for replica in range(of.replicas))
    nbytes = of.gradient_bytes[stage]
    return [Collective("all_reduce", nbytes, key, "gradient", microbatch, group=group), Wait(key)]


def _task(of: Pipeline, replica: int, stage: int, task: Task, seconds: float) -> list[Instruction]:
    """Wait for the input, compute, send the output on."""
    out: list[Instruction] = []
    chunks, first = of.schedule.chunks, replica * of.stages
    source, target = source_of(task, stage, of.stages, chunks), target_of(task, stage, of.stages, chunks)
    if source is not None:
        out.append(Recv(first + source, _message(task, stage, of.stages), task.microbatch))
    effect = of.effects(stage, task) if of.effects and replica == 0 else None
    out.append(Compute(seconds, label_of(task, chunks), task.microbatch, effect))
    if target is not None:
        out.append(Send(first + target, of.activation_bytes, _sent(task, stage, of.stages), task.microbatch))
    return out


def label_of(task: Task, chunks: int) -> str:
    """A task's label on the timeline, beside its micro-batch, which is the span's step."""
    return f"{task.kind}.{task.chunk}" if chunks > 1 else task.kind


def _message(task: Task, stage: int, stages: int) -> tuple[str, int, int]:
    """The tag under which a task's input travels: which way, which micro-batch, into which part of the model."""
    return task.kind, task.microbatch, task.chunk * stages + stage


def _sent(task: Task, stage: int, stages: int) -> tuple[str, int, int]:
    step = 1 if task.kind == "forward" else -1
    return task.kind, task.microbatch, task.chunk * stages + stage + step


def run_pipeline(of: Pipeline, network: AnyNetwork) -> Timeline:
    """What happens when the stages of a pipeline play its schedule.

    Raises:
        SynclineError: a schedule that cannot finish.
    """
    return run_events(pipeline_programs(of), network)


@dataclass(frozen=True, eq=False)
class StageReport:
    """What the history of one stage says.

    Args:
        utilisation: the part of the makespan in which it computes.
        delays: per micro-batch, updates between its forward and the update by its gradient (0: none came between).
        delay_steady: the delay of the last micro-batch.
        peak_activations: the most micro-batches (of one chunk each) between forward and last use.
        weight_versions: the most versions of the weights that are needed at once, with stashing.
    """

    utilisation: float
    delays: tuple[int, ...]
    delay_steady: int
    peak_activations: int
    weight_versions: int


@dataclass(frozen=True, eq=False)
class PipelineReport:
    """What the history of a pipeline says.

    Args:
        makespan_s: from the first forward to the end of the last task, in seconds.
        bubble: the part of all stages' time in which nothing computes.
        microbatches_per_s: throughput over the makespan.
        stages: one report per stage.
    """

    makespan_s: float
    bubble: float
    microbatches_per_s: float
    stages: tuple[StageReport, ...]


def report(timeline: Timeline, schedule: Schedule, stages: int) -> PipelineReport:
    """Read bubble, utilisation, memory and delays off a timeline of `run_pipeline`; of the stages, the first replica's.

    The bubble is over all replicas.
    """
    utilisation = timeline.utilisation()
    makespan_s = timeline.makespan_s
    of_stage = tuple(_stage_report(timeline, k, schedule, float(utilisation[k])) for k in range(stages))
    return PipelineReport(
        makespan_s=makespan_s,
        bubble=float(1 - utilisation.mean()),
        microbatches_per_s=schedule.microbatches / makespan_s if makespan_s else float("inf"),
        stages=of_stage,
    )


def _stage_report(timeline: Timeline, stage: int, schedule: Schedule, utilisation: float) -> StageReport:
    mine = (timeline.worker == stage) & (timeline.what == "compute")
    labels, microbatch = timeline.label[mine].tolist(), timeline.step[mine].tolist()
    released_by = "weight" if schedule.splits_backward else "backward"
    updates, version = 0, {}
    delays = dict.fromkeys(range(schedule.microbatches), 0)
    in_flight, peak, versions = 0, 0, 1
    for label, i in zip(labels, microbatch, strict=True):
        kind = label.partition(".")[0]
        if kind == "forward":
            version[i] = updates
            in_flight += 1
            peak = max(peak, in_flight)
            versions = max(versions, len({*version.values(), updates}))
        if kind == "backward" and schedule.updates == "every":
            delays[i] = updates - version.pop(i)
            updates += 1
        if kind == released_by:
            in_flight -= 1
    return StageReport(utilisation, tuple(delays.values()), delays[schedule.microbatches - 1], peak, versions)


class TaskSpan(NamedTuple):
    """A task as it happened: whose, what, when, and whether an update followed."""

    stage: int
    kind: str
    microbatch: int
    chunk: int
    start_s: float
    end_s: float
    updates: bool


def task_spans(timeline: Timeline, schedule: Schedule) -> list[TaskSpan]:
    """The tasks of a timeline of `run_pipeline`, by worker and time."""
    released_by = "weight" if schedule.splits_backward else "backward"
    last = {int(worker): 0.0 for worker in range(timeline.workers)}
    rows = np.flatnonzero(timeline.what == "compute")
    for row in rows.tolist():
        last[int(timeline.worker[row])] = float(timeline.end_s[row])
    out = []
    for row in rows.tolist():
        kind, _, chunk = str(timeline.label[row]).partition(".")
        worker, end_s = int(timeline.worker[row]), float(timeline.end_s[row])
        updates = kind == released_by and (schedule.updates == "every" or end_s == last[worker])
        start_s = float(timeline.start_s[row])
        out.append(TaskSpan(worker, kind, int(timeline.step[row]), int(chunk or 0), start_s, end_s, updates))
    return out
