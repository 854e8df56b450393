"""The clock of a training whose workers wait for each other, on machines that fail."""

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
from syncline.sim.failures.restarts import play_restarts
from syncline.sim.failures.roster import FailingGroup
from syncline.sim.failures.work import SavedSteps, Saving
from syncline.sim.timeline import Timeline

IDLE = "failures"
"""The stream of a worker on which it is shown what failures make it do."""


def failing_clock(
    clock: Clock, group: FailingGroup, saving: Saving, outages: Iterable[Outage], keep_steps: int
) -> Clock:
    """The clock of the same training where machines fail: steps are lost and done again, and each takes as long.

    What is trained is not changed: a step that is done again from a checkpoint sees the same state and the same data.

    Args:
        clock: in which nothing fails; each of its steps takes what it takes there, from the end of the one before.
        group: who trains, and what it takes to begin again.
        saving: how the state is kept.
        outages: in the order of time.
        keep_steps: of how many steps the timeline is kept.

    Returns:
        The clock with each step where it is done for good, and with ``failed``: means per step are of these alone, but
        for ``step_time_s`` and ``wall_s``, in which is all that failures cost.

    Raises:
        SynclineError: no progress is possible, and since when.
    """
    ends_s = np.concatenate([[0.0], clock.step_end_s])
    work = SavedSteps(len(clock.step_end_s), lambda step: float(ends_s[step]), saving)
    told = play_restarts(group, work, outages)
    if told.stuck is not None:
        raise SynclineError(f"failures: {told.stuck}")
    return placed_clock(clock, _for_good(work, told), told, keep_steps)


def placed_clock(clock: Clock, step_end_s: Floats, told: FailureCosts, keep_steps: int) -> Clock:
    """A clock whose steps are where they are done for good.

    Args:
        clock: in which nothing fails.
        step_end_s: when each step ends, ``(T,)``.
        told: what failures cost, and what all did between steps.
        keep_steps: of how many steps the timeline is kept.
    """
    wall_s = float(step_end_s[-1])
    return replace(
        clock,
        step_end_s=step_end_s,
        end_s=clock.end_s + (wall_s - clock.wall_s),
        step_time_s=wall_s / len(step_end_s),
        wall_s=wall_s,
        timeline=_timeline(clock, step_end_s, told, min(keep_steps, len(step_end_s))),
        failed=told,
    )


def _for_good(work: SavedSteps, told: FailureCosts) -> Floats:
    """When each step ends for the last time, ``(T,)``: where all was lost, an earlier end does not count."""
    ends_s = np.zeros(work.steps)
    for one in told.stretches:
        if one.what == "steps":
            for step in range(one.first + 1, one.first + one.steps + 1):
                ends_s[step - 1] = one.start_s + work.end_s(step) - work.ready_s(one.first)
    return ends_s


def _timeline(clock: Clock, step_end_s: Floats, told: FailureCosts, keep_steps: int) -> Timeline:
    """The spans of steps where these are done for good, and between them what failures and checkpoints make of it."""
    if not keep_steps:
        return clock.timeline
    later_s = step_end_s - clock.step_end_s
    kept = clock.timeline
    moved_s = later_s[np.clip(kept.step, 0, len(later_s) - 1)]
    columns = {name: np.asarray(column) for name, column in kept.to_columns().items()}
    columns["start_s"], columns["end_s"] = kept.start_s + moved_s, kept.end_s + moved_s
    until_s = float(step_end_s[keep_steps - 1])
    shown = [one for one in told.stretches if one.what != "steps" and one.start_s < until_s]
    shown += _checkpoints(clock, step_end_s[:keep_steps], shown)
    shown.sort(key=lambda one: one.start_s)
    if not shown:
        return Timeline.of_columns(columns, kept.workers)
    rows = len(shown)
    added = {
        "worker": np.repeat(np.arange(kept.workers), rows),
        "stream": np.full(rows * kept.workers, IDLE),
        "what": np.tile([one.what for one in shown], kept.workers),
        "label": np.tile([one.what for one in shown], kept.workers),
        "start_s": np.tile([one.start_s for one in shown], kept.workers),
        "end_s": np.tile([one.end_s for one in shown], kept.workers),
        "nbytes": np.zeros(rows * kept.workers),
        "step": np.tile([min(one.first, keep_steps - 1) for one in shown], kept.workers),
    }
    joined = {name: np.concatenate([columns[name], added[name]]) for name in columns}
    order = np.lexsort((joined["start_s"], joined["stream"], joined["worker"]))
    return Timeline.of_columns({name: column[order] for name, column in joined.items()}, kept.workers)


def _checkpoints(clock: Clock, step_end_s: Floats, others: list[Stretch]) -> list[Stretch]:
    """Where all stand still between two steps, and nothing else is told of it."""
    found = []
    busy = [(one.start_s, one.end_s) for one in others]
    for step, (end_s, next_s) in enumerate(pairwise(step_end_s.tolist())):
        begins_s = next_s - float(clock.step_end_s[step + 1] - clock.step_end_s[step])
        starts = [start_s for start_s, _ in busy if end_s <= start_s < begins_s]
        until_s = min([begins_s, *starts])
        if until_s - end_s > 1e-9 * max(end_s, 1e-3):
            found.append(Stretch("checkpoint", end_s, until_s, step))
    return found
