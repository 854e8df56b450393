"""The clock of a training whose workers change from phase to phase, and of one whose machines fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.costmodel.network.link import Link, among, topology
from syncline.costmodel.network.paths import Floats, Ints, Network, Topology
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.overlap import WHOLE, Bucket, buckets_on
from syncline.errors import SpecError, SynclineError
from syncline.sim.clocks.overlap import overlapped
from syncline.sim.clocks.training import Clock, clock
from syncline.sim.failures.costs import CheckpointTimes, FailureCosts, SavedSteps, Stretch
from syncline.sim.failures.outages import FailingGroup, Outage
from syncline.sim.failures.trainings import RestartedTraining
from syncline.sim.program.instructions import Delay, broadcast_seconds, delay_at, start_times
from syncline.sim.program.timeline import Span, Timeline

Bools = NDArray[np.bool_]

TOTALS = ("step_time_s", "bytes_per_worker", "wall_s")
"""Fields of a `Clock` that are not means over steps and workers."""


def phased_clock(
    present: Bools,
    calls: Iterable[Call],
    compute_s: ArrayLike,
    network: Network | Topology | Sequence[Link],
    *,
    starts_s: ArrayLike | None = None,
    overlap: str = "none",
    buckets: Sequence[Bucket] = WHOLE,
    trigger_s: ArrayLike = 0.0,
    optimizer_s: ArrayLike = 0.0,
    keep_steps: int = 50,
    delay: Delay | None = None,
    **options: Any,
) -> Clock:
    """Return the clock of a training in which worker i takes part in step t if ``present[t, i]``.

    Each collective is among the workers that are present in its step. Before these workers change, they await all
    calls. Workers that stay then go on, each in its own time. Workers that join begin when the slowest worker of the
    phase before has ended its last step. Transfers to a joining worker are not counted.

    Args:
        present: whether each of P workers takes part in each of T steps, ``(T, P)``; at least one worker does.
        compute_s: seconds that each worker computes in each step in which it takes part, ``(T, P)``.
        starts_s: earliest beginning of each worker, ``(P,)`` seconds; 0 by default.
        overlap: whether and how calls overlap with computing, as in `clock`.
        trigger_s: seconds of deciding whether to send, one number or ``(T,)``.
        optimizer_s: seconds of an update, one number or ``(P,)``.
        options: other options of `clock`.

    Returns:
        A clock whose means are per step and present worker.

    Raises:
        SpecError: a step without workers, or an argument that `clock` refuses.
    """
    present = np.asarray(present)
    steps, workers = present.shape
    empty_steps = np.flatnonzero(~present.any(axis=1))
    if len(empty_steps):
        raise SpecError("present", int(empty_steps[0]), "at least one worker present in every step")
    compute_s = np.broadcast_to(np.asarray(compute_s, dtype=np.float64), (steps, workers))
    calls, full_network = list(calls), topology(network, workers)
    trigger_of_step_s = broadcast_seconds("clock.trigger_s", trigger_s, steps, "steps")
    optimizer_of_worker_s = broadcast_seconds("clock.optimizer_s", optimizer_s, workers, "workers")
    sent_calls = overlapped(calls, overlap, buckets_on(full_network, buckets))
    end_s = start_times(starts_s, workers).copy()  # end of each worker's last phase; at first its beginning
    was_present = np.ones(workers, dtype=bool)  # so that nobody joins, and waits for others, in the first phase
    phases: list[_Phase] = []
    later_phases = np.flatnonzero((present[1:] != present[:-1]).any(axis=1)) + 1  # the first step of each
    for begin, end in pairwise([0, *later_phases.tolist(), steps]):
        is_present = present[begin]
        members, joining = np.flatnonzero(is_present), is_present & ~was_present
        if joining.any():
            end_s[joining] = np.maximum(end_s[joining], end_s[was_present].max())
        phase_clock = clock(
            _phase_calls(sent_calls, begin, end, steps, members), compute_s[begin:end, members],
            among(full_network, members), len(members), end - begin, starts_s=end_s[members],
            trigger_s=trigger_of_step_s[begin:end], optimizer_s=optimizer_of_worker_s[members],
            keep_steps=max(keep_steps - begin, 0), delay=None if delay is None else delay_at(members, delay),
            **options,
        )  # fmt: skip
        end_s[members], was_present = phase_clock.end_s, is_present
        phases.append(_Phase(begin, members, phase_clock))
    return _joined_clock(phases, present, sum(call.payload_bytes for call in calls), end_s)


def _phase_calls(calls: Iterable[Call], begin: int, end: int, steps: int, members: Ints) -> list[Call]:
    """Return the collectives of a phase, steps ``begin`` to ``end - 1``, all awaited before the next phase.

    Their steps count from the first step of the phase. ``steps`` is the number of steps of the training, and
    ``members`` are the workers of the phase.

    Raises:
        SpecError: a call among other workers than the members of the phase.
    """
    calls = [call for call in calls if begin <= call.step < end]
    member_set = set(members.tolist())
    for group in dict.fromkeys(call.group for call in calls):
        if group is not None and (len(group) != len(member_set) or set(group) != member_set):
            expected = f"those present in steps {begin} to {end - 1}, or none, which means all of these"
            raise SpecError("calls.group", group, expected)
    phase_calls = []
    is_last_phase = end == steps  # its calls may still be under way when the training ends
    for call in calls:
        wait_steps = call.wait_steps if is_last_phase else min(call.wait_steps, end - 1 - call.step)
        phase_calls.append(call._replace(step=call.step - begin, group=None, wait_steps=wait_steps))  # None: all
    return phase_calls


@dataclass(frozen=True)
class _Phase:
    """The clock of one phase, with the phase's first step and its workers in ascending order."""

    first_step: int
    members: Ints
    clock: Clock


def _joined_clock(phases: Sequence[_Phase], present: Bools, nbytes: float, end_s: Floats) -> Clock:
    """Return the clock of a training, joined from its phases; ``nbytes`` are a worker's payload bytes in all steps."""
    steps, workers = present.shape
    # Means per step and present worker: the weight of a phase is its fraction of all steps of present workers.
    weight = np.array([len(phase.clock.step_end_s) * len(phase.members) for phase in phases]) / present.sum()
    means: dict[str, Any] = {}
    for field in fields(Clock):
        if field.type == "float" and field.name not in TOTALS:  # types of fields are strings in this project
            means[field.name] = float(weight @ [getattr(phase.clock, field.name) for phase in phases])
    step_end_s = np.concatenate([phase.clock.step_end_s for phase in phases])
    wall_s = float(step_end_s[-1])
    return replace(
        phases[0].clock, step_end_s=step_end_s, end_s=end_s, step_time_s=wall_s / steps,
        bytes_per_worker=nbytes / steps, wall_s=wall_s,
        evaluator="events" if any(phase.clock.evaluator == "events" for phase in phases) else "lockstep",
        timeline=_joined_timeline(phases, workers), **means,
    )  # fmt: skip


def _joined_timeline(phases: Sequence[_Phase], workers: int) -> Timeline:
    """Return the timeline of a whole training from its phases; renumber their workers and steps."""
    tables = []
    for phase in phases:
        columns = phase.clock.timeline.to_columns()
        step = np.where(columns["step"] >= 0, columns["step"] + phase.first_step, columns["step"])
        tables.append(columns | {"worker": phase.members[columns["worker"]], "step": step})
    return Timeline.joined(tables, workers)


FAILURES = "failures"
"""Name of a worker's stream that shows the effects of failures."""


def failing_clock(
    clock: Clock, group: FailingGroup, saving: CheckpointTimes, outages: Iterable[Outage], keep_steps: int
) -> Clock:
    """Return the clock of the same training on machines that fail: steps are lost and repeated.

    Failures do not change the trained model: a step that is repeated from a checkpoint sees the same state and the same
    data.

    Args:
        clock: clock without failures; each step takes as long as in this clock, from the end of the step before.
        group: the workers, and the costs of a restart.
        saving: settings of checkpoints.

    Returns:
        The clock with the final execution of each step, and with ``failed``. Means per step cover these executions
        alone, except ``step_time_s`` and ``wall_s``, which include all costs of failures.

    Raises:
        SynclineError: no progress is possible; the message says since when.
    """
    ends_s = np.concatenate([[0.0], clock.step_end_s])
    work = SavedSteps(len(clock.step_end_s), lambda step: float(ends_s[step]), saving)
    costs = RestartedTraining(group, work, outages).simulate()
    if costs.stuck is not None:
        raise SynclineError(f"failures: {costs.stuck}")
    return delayed_clock(clock, _final_step_ends(work, costs), costs, keep_steps)


def delayed_clock(clock: Clock, step_end_s: Floats, costs: FailureCosts, keep_steps: int) -> Clock:
    """Return the clock of a training whose steps are delayed by failures.

    Args:
        step_end_s: end of the final execution of each of T steps, ``(T,)`` seconds.
        costs: costs of failures, with the stretches that they add between steps.
    """
    wall_s = float(step_end_s[-1])
    return replace(
        clock, step_end_s=step_end_s, end_s=clock.end_s + (wall_s - clock.wall_s),
        step_time_s=wall_s / len(step_end_s), wall_s=wall_s,
        timeline=_timeline(clock, step_end_s, costs, min(keep_steps, len(step_end_s))), failed=costs,
    )  # fmt: skip


def _final_step_ends(work: SavedSteps, costs: FailureCosts) -> Floats:
    """Return the end of the final execution of each of T steps, ``(T,)`` seconds; failures make steps be repeated."""
    ends_s = np.zeros(work.steps)
    for stretch in costs.stretches:
        if stretch.what == "steps":
            # Within a stretch, steps and checkpoints take as long as without failures.
            for num_done in range(stretch.first_step + 1, stretch.first_step + stretch.num_steps + 1):
                ends_s[num_done - 1] = stretch.start_s + work.end_s(num_done) - work.next_start_s(stretch.first_step)
    return ends_s


def _timeline(clock: Clock, step_end_s: Floats, costs: FailureCosts, keep_steps: int) -> Timeline:
    """Return the timeline of the final executions of steps, and of the failures and checkpoints between them."""
    timeline = clock.timeline
    if not keep_steps:
        return timeline
    step_delay_s = step_end_s - clock.step_end_s
    # A span moves with its step; a span without a step (-1) moves with step 0.
    span_delay_s = step_delay_s[np.clip(timeline.step, 0, len(step_delay_s) - 1)]
    columns = timeline.to_columns()
    columns["start_s"], columns["end_s"] = timeline.start_s + span_delay_s, timeline.end_s + span_delay_s
    last_step = keep_steps - 1
    end_s = float(step_end_s[last_step])
    stretches = [stretch for stretch in costs.stretches if stretch.what != "steps" and stretch.start_s < end_s]
    stretches += _checkpoints(clock, step_end_s[:keep_steps], stretches)
    stretches.sort(key=lambda stretch: stretch.start_s)
    spans = []
    for worker in range(timeline.workers):  # all workers do the same in a stretch
        for stretch in stretches:
            spans.append(Span(
                worker, FAILURES, stretch.what, label=stretch.what, start_s=stretch.start_s, end_s=stretch.end_s,
                nbytes=0.0, step=min(stretch.first_step, last_step),
            ))  # fmt: skip
    failure_columns = Timeline.from_spans(spans, timeline.workers).to_columns()
    all_columns = {name: np.concatenate([columns[name], failure_columns[name]]) for name in columns}
    order = np.argsort(all_columns["start_s"], kind="stable")
    return Timeline.from_columns({name: column[order] for name, column in all_columns.items()}, timeline.workers)


def _checkpoints(clock: Clock, step_end_s: Floats, failures: list[Stretch]) -> list[Stretch]:
    """Return a stretch for each checkpoint, from the end of a step until the next step or a stretch of failures begins.

    ``clock`` is without failures; ``step_end_s`` has the end of each step with failures.
    """
    checkpoints = []
    for step, (end_s, next_end_s) in enumerate(pairwise(step_end_s.tolist())):
        next_start_s = next_end_s - float(clock.step_end_s[step + 1] - clock.step_end_s[step])
        failure_starts_s = [stretch.start_s for stretch in failures if end_s <= stretch.start_s < next_start_s]
        checkpoint_end_s = min([next_start_s, *failure_starts_s])
        if checkpoint_end_s - end_s > 1e-9 * max(end_s, 1e-3):  # more than a rounding error
            checkpoints.append(Stretch("checkpoint", end_s, checkpoint_end_s, step))
    return checkpoints
