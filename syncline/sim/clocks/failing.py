"""The clock of synchronous training, whose workers wait for each other, on machines that fail."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from syncline.costmodel.network.topology import Floats
from syncline.errors import SynclineError
from syncline.sim.clocks.training import Clock
from syncline.sim.failures.outages import Outage
from syncline.sim.failures.outcome import FailureCosts, Stretch
from syncline.sim.failures.restarts import RestartedTraining
from syncline.sim.failures.roster import FailingGroup
from syncline.sim.failures.work import CheckpointTimes, SavedSteps
from syncline.sim.program.timeline import Span, Timeline

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
        outages: outages in the order of time.
        keep_steps: number of steps to keep in the timeline.

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
    """Return a clock whose steps are delayed to their final execution.

    Args:
        clock: clock without failures.
        step_end_s: end of each step's final execution, ``(T,)`` seconds.
        costs: costs of failures, and the stretches between steps.
        keep_steps: number of steps to keep in the timeline.
    """
    wall_s = float(step_end_s[-1])
    return replace(
        clock,
        step_end_s=step_end_s,
        end_s=clock.end_s + (wall_s - clock.wall_s),
        step_time_s=wall_s / len(step_end_s),
        wall_s=wall_s,
        timeline=_timeline(clock, step_end_s, costs, min(keep_steps, len(step_end_s))),
        failed=costs,
    )


def _final_step_ends(work: SavedSteps, costs: FailureCosts) -> Floats:
    """Return the final end of each step, ``(T,)`` seconds; an earlier end of a step that was lost does not count."""
    ends_s = np.zeros(work.steps)
    for stretch in costs.stretches:
        if stretch.what == "steps":
            for step in range(stretch.first + 1, stretch.first + stretch.steps + 1):
                ends_s[step - 1] = stretch.start_s + work.end_s(step) - work.ready_s(stretch.first)
    return ends_s


def _timeline(clock: Clock, step_end_s: Floats, costs: FailureCosts, keep_steps: int) -> Timeline:
    """Return the spans of the final steps, with the stretches of failures and checkpoints between these steps."""
    if not keep_steps:
        return clock.timeline
    step_delay_s = step_end_s - clock.step_end_s
    timeline = clock.timeline
    span_delay_s = step_delay_s[np.clip(timeline.step, 0, len(step_delay_s) - 1)]
    columns = timeline.to_columns()
    columns["start_s"], columns["end_s"] = timeline.start_s + span_delay_s, timeline.end_s + span_delay_s
    last_step = keep_steps - 1
    end_s = float(step_end_s[last_step])
    stretches = [stretch for stretch in costs.stretches if stretch.what != "steps" and stretch.start_s < end_s]
    stretches += _checkpoints(clock, step_end_s[:keep_steps], stretches)
    stretches.sort(key=lambda stretch: stretch.start_s)
    spans = []
    for worker in range(timeline.workers):
        for what, start_s, stop_s, step, *_ in stretches:
            spans.append(Span(worker, FAILURES, what, what, start_s, stop_s, 0.0, min(step, last_step)))
    failure_columns = Timeline.from_spans(spans, timeline.workers).to_columns()
    joined = {name: np.concatenate([columns[name], failure_columns[name]]) for name in columns}
    order = np.lexsort((joined["start_s"], joined["stream"], joined["worker"]))
    return Timeline.from_columns({name: column[order] for name, column in joined.items()}, timeline.workers)


def _checkpoints(clock: Clock, step_end_s: Floats, others: list[Stretch]) -> list[Stretch]:
    """Return a stretch for each checkpoint: from the end of a step to the next step, or to a stretch in ``others``."""
    checkpoints = []
    for step, (end_s, next_end_s) in enumerate(pairwise(step_end_s.tolist())):
        next_start_s = next_end_s - float(clock.step_end_s[step + 1] - clock.step_end_s[step])
        other_starts_s = [stretch.start_s for stretch in others if end_s <= stretch.start_s < next_start_s]
        resume_s = min([next_start_s, *other_starts_s])
        if resume_s - end_s > 1e-9 * max(end_s, 1e-3):
            checkpoints.append(Stretch("checkpoint", end_s, resume_s, step))
    return checkpoints
