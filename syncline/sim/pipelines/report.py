"""Reports about the timeline of a pipeline: bubble, utilisation, memory, and the delay of each gradient in updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.paths import Ints
from syncline.sim.pipelines.schedules import TASK_KINDS, Schedule
from syncline.sim.program.timeline import Strings, Timeline

UPDATE = "update"
"""The name of the spans in which a stage updates its weights."""


@dataclass(frozen=True, eq=False)
class StageReport:
    """The report about the timeline of one stage.

    Args:
        utilisation: the fraction of the makespan in which the stage computes.
        delays: per micro-batch, number of updates between its forward and the update by its gradient.
        delay_steady: the delay of the last micro-batch, in updates.
        peak_activations: largest number of activations in memory, each of a micro-batch in one chunk.
        weight_versions: largest number of versions of the weights that are needed at once, with stashing.
    """

    utilisation: float
    delays: tuple[int, ...]
    delay_steady: int
    peak_activations: int
    weight_versions: int


@dataclass(frozen=True, eq=False)
class PipelineReport:
    """The report about the timeline of a pipeline.

    Args:
        makespan_s: seconds from the first forward to the end of the last task.
        bubble: the fraction of all stages' time in which nothing computes.
        microbatches_per_s: throughput over the makespan.
        stages: one report per stage.
    """

    makespan_s: float
    bubble: float
    microbatches_per_s: float
    stages: tuple[StageReport, ...]


def report(timeline: Timeline, schedule: Schedule, stages: int) -> PipelineReport:
    """Return bubble, utilisation, memory and delays from a timeline of `run_pipeline`.

    The stages are those of the first replica; the bubble is over all replicas.
    """
    utilisation = timeline.utilisation()
    makespan_s = timeline.makespan_s
    tasks = np.flatnonzero(timeline.computes)
    first_task_of_stage = np.searchsorted(timeline.worker[tasks], np.arange(stages + 1))  # spans are by worker
    kind_of_word, chunk_of_word = _kinds_and_chunks(timeline.what.words)
    word = timeline.what.codes[tasks]
    kind = kind_of_word[word]
    activation = chunk_of_word[word] * schedule.microbatches + timeline.step[tasks]  # of a micro-batch in a chunk
    stage_reports = []
    for stage, stage_utilisation in enumerate(utilisation[:stages].tolist()):
        of_stage = slice(first_task_of_stage[stage], first_task_of_stage[stage + 1])
        stage_reports.append(_stage_report(kind[of_stage], activation[of_stage], schedule, stage_utilisation))
    return PipelineReport(
        makespan_s=makespan_s,
        bubble=float(1 - utilisation.mean()),
        microbatches_per_s=schedule.microbatches / makespan_s if makespan_s else float("inf"),
        stages=tuple(stage_reports),
    )


def _kinds_and_chunks(words: Strings) -> tuple[Ints, Ints]:
    """Return the index in ``TASK_KINDS`` and the chunk of each task name ``kind.chunk``; other words have index -1."""
    kind_and_chunk = [word.partition(".") for word in words.tolist()]
    kinds = [TASK_KINDS.index(kind) if kind in TASK_KINDS else -1 for kind, _, _ in kind_and_chunk]
    chunks = [int(chunk) if chunk.isdecimal() else 0 for _, _, chunk in kind_and_chunk]
    return np.array(kinds, dtype=np.int64), np.array(chunks, dtype=np.int64)


def _stage_report(kind: Ints, activation: Ints, schedule: Schedule, utilisation: float) -> StageReport:
    """Return the report about the tasks of one stage.

    A task of the kind ``schedule.released_by`` releases the activation of its forward. If weights are updated by every
    gradient, such a task also ends with an update.

    Args:
        kind: index in ``TASK_KINDS`` of each task, in the order of time.
        activation: index of each task's activation, ``chunk M + microbatch``.
        utilisation: the fraction of the makespan in which the stage computes.
    """
    is_forward = kind == TASK_KINDS.index("forward")
    is_release = kind == TASK_KINDS.index(schedule.released_by)
    num_activations = np.cumsum(is_forward.astype(np.int64) - is_release)  # in memory after each task
    delays: Ints = np.zeros(schedule.microbatches, dtype=np.int64)
    weight_versions = 1
    if schedule.updates == "every":
        delays, weight_versions = _delays_and_versions(is_forward, is_release, activation, schedule)
    return StageReport(
        utilisation, delays=tuple(delays.tolist()), delay_steady=int(delays[-1]),
        peak_activations=int(num_activations.max(initial=0)), weight_versions=weight_versions,
    )  # fmt: skip


def _delays_and_versions(
    is_forward: NDArray[np.bool_], is_release: NDArray[np.bool_], activation: Ints, schedule: Schedule
) -> tuple[Ints, int]:
    """Return the delay of each micro-batch in updates, and the largest number of versions of the weights in use.

    The delay of a micro-batch is that of its last chunk.

    Args:
        is_forward: whether each task is a forward pass, in the order of time.
        is_release: whether each task releases an activation and ends with an update.
        activation: index of each task's activation, ``chunk M + microbatch``.
    """
    delays = np.zeros(schedule.microbatches, dtype=np.int64)
    num_updates = np.cumsum(is_release)  # after each task
    forward_version = np.zeros(schedule.microbatches * schedule.chunks, dtype=np.int64)
    forward_version[activation[is_forward]] = num_updates[is_forward]
    released_version = forward_version[activation[is_release]]
    release = np.flatnonzero(is_release)
    # A delay is the number of updates between the forward and the task's own update. The last chunk's delay stays.
    delays[activation[is_release] % schedule.microbatches] = num_updates[is_release] - 1 - released_version
    # A version is needed from the first forward that uses it until the last activation of these forwards is released.
    change = np.zeros(len(activation), dtype=np.int64)  # each task's change of the number of needed versions
    forwards = np.flatnonzero(is_forward)
    _, first_use = np.unique(num_updates[forwards], return_index=True)  # the first forward of each version
    _, last_release = np.unique(released_version[::-1], return_index=True)  # the last of each version, from the end
    change[forwards[first_use]] = 1
    change[release[::-1][last_release]] = -1
    num_versions = (np.cumsum(change) + is_release)[is_forward | is_release]  # an update adds the new version
    return delays, int(num_versions.max(initial=1))


class TaskSpan(NamedTuple):
    """A task on the timeline; ``updates`` says whether an update of the weights follows it."""

    stage: int
    kind: str
    microbatch: int
    chunk: int
    start_s: float
    end_s: float
    updates: bool


def task_spans(timeline: Timeline, schedule: Schedule, until_s: float = float("inf")) -> list[TaskSpan]:
    """Return the tasks of a timeline of `run_pipeline` that end by ``until_s``, by worker and time.

    The field ``stage`` has the number of the worker.
    """
    tasks = timeline[timeline.computes & (timeline.what != UPDATE)]
    if schedule.updates == "every":
        updates = tasks.what == schedule.released_by
    else:
        next_worker = np.append(tasks.worker[1:], -1)
        updates = tasks.worker != next_worker  # an update follows a worker's last task
    has_ended = tasks.end_s <= until_s
    tasks, updates = tasks[has_ended], updates[has_ended]
    kind_of_word, chunk_of_word = _kinds_and_chunks(tasks.what.words)
    kind, chunk = np.array(TASK_KINDS)[kind_of_word[tasks.what.codes]], chunk_of_word[tasks.what.codes]
    columns = (tasks.worker, kind, tasks.step, chunk, tasks.start_s, tasks.end_s, updates)
    return [TaskSpan(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
