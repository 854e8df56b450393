"""Clocks of replayed records, the losses by step, the lines of the script that wait, and the rows of results.

There is a row per record and network, with the fields of a comparison of trainings.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from syncline.analysis import time_to_target_s
from syncline.costmodel import Call, Network
from syncline.costmodel.bases import TIMED_STEPS, communication_uncertainty, computing_uncertainty
from syncline.costmodel.collectives.policies import algorithm_or_auto
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.uncertainty import uncertainties
from syncline.measure.recording.record import Loss, MessageAwaited, MessageSent, RankRecord, Started, Stepped
from syncline.measure.replaying.replay import MeasuredComputing, Replayed, host_behaviour, replay
from syncline.measure.replaying.scenario import Changes, ReplayedOn
from syncline.planner.bounds import AS_PREDICTED, Factors
from syncline.runs.training.clock_bounds import BoundedClock, clock_bounds
from syncline.runs.training.results import clock_record
from syncline.sim import Clock, Timeline
from syncline.sim.program.timeline import WAITING


class TraceRecord(NamedTuple):
    """A record with its name.

    Attributes:
        name: name of the script, as rows show it.
        folder: the folder that holds the record, for messages.
    """

    name: str
    ranks: Sequence[RankRecord]
    folder: str = ""

    @property
    def steps(self) -> int:
        """Return the number of steps of the rank that has the most steps."""
        return max((rank.steps for rank in self.ranks), default=0)


class Window(NamedTuple):
    """The steps that a mean step averages: all steps after the first, because the first one includes the start-up.

    Attributes:
        last: the step after the last step of the window.
    """

    first: int
    last: int

    @classmethod
    def for_steps(cls, steps: int) -> Window:
        """Return the window of a run of this number of optimizer steps; of at most one step, the whole run."""
        return cls(first=1, last=steps) if steps > 1 else cls(first=0, last=1)

    @property
    def steps(self) -> int:
        """Return the number of steps in the window."""
        return self.last - self.first

    @property
    def is_whole_run(self) -> bool:
        """Return whether the run has at most one step; then the window contains all that happens in the run."""
        return self.first == 0

    def contains(self, step: int) -> bool:
        """Return whether the window includes a step; work after the last step has the number of steps as its step."""
        return self.is_whole_run or self.first <= step < self.last

    def select(self, timeline: Timeline) -> Timeline:
        """Return the spans of a timeline that belong to the steps of the window."""
        if self.is_whole_run:
            return timeline
        return timeline[(timeline.step >= self.first) & (timeline.step < self.last)]


def replay_clock(record: TraceRecord, replayed: Replayed) -> Clock:
    """Return the clock of a replayed record; its mean step is over the steps after the first, see `Window`."""
    timeline = replayed.timeline
    window = Window.for_steps(record.steps)
    spans = window.select(timeline)
    per_worker_and_step = 1 / (len(record.ranks) * window.steps)
    end_s = np.zeros(len(record.ranks))
    np.maximum.at(end_s, timeline.worker, timeline.end_s)
    if window.is_whole_run:
        step_s = timeline.makespan_s
        sent_bytes = bytes_by_step(record).sum()  # the mean over workers
    else:
        step_s = float(replayed.step_end_s[-1] - replayed.step_end_s[0]) / window.steps  # since the end of step 0
        sent_bytes = bytes_by_step(record)[window.first : window.last].sum()
    return Clock(
        step_end_s=replayed.step_end_s,
        end_s=end_s,
        step_time_s=step_s,
        compute_s=float(spans.compute_s().sum()) * per_worker_and_step,
        encode_s=0.0,  # a record does not split computing any further
        trigger_s=0.0,
        optimizer_s=0.0,
        communication_s=float(spans.communication_s().sum()) * per_worker_and_step,
        exposed_communication_s=float(spans.exposed_communication_s().sum()) * per_worker_and_step,
        bytes_per_worker=float(sent_bytes) / window.steps,
        wall_s=timeline.makespan_s,
        evaluator="events",
        timeline=timeline,
    )


def bytes_by_step(record: TraceRecord) -> Floats:
    """Return the payload bytes that a worker sends in each step, ``(T + 1,)``, as the mean over the workers.

    The last entry has the bytes that are sent after the last step.
    """
    sent_bytes = np.zeros(record.steps + 1)
    for rank in record.ranks:
        for step, event in rank.by_step():
            # A collective of one rank sends nothing.
            if isinstance(event, MessageSent) or (isinstance(event, Started) and len(event.ranks) > 1):
                sent_bytes[step] += event.payload_bytes
    return sent_bytes / len(record.ranks)


def losses_by_step(record: TraceRecord) -> Floats:
    """Return the loss of each step, ``(T,)``: the mean over its backward passes, then over the ranks that have a loss.

    A step without a loss has NaN. Losses after the last step do not count.
    """
    sums, num_ranks = np.zeros(record.steps), np.zeros(record.steps)
    for rank in record.ranks:
        losses_of_step: list[float] = []
        for step, event in rank.by_step():
            if isinstance(event, Loss):
                losses_of_step.append(event.loss)
            elif isinstance(event, Stepped) and losses_of_step:
                sums[step] += float(np.mean(losses_of_step))
                num_ranks[step] += 1
                losses_of_step = []
    return np.divide(sums, num_ranks, out=np.full(record.steps, np.nan), where=num_ranks > 0)


def trailing_means(losses: Floats) -> Floats:
    """Return for each of T steps the mean loss of the ``max(1, T // 10)`` steps that end with it.

    Steps without a loss are left out of the mean, which is NaN if no step is left.

    >>> trailing_means(np.array([4.0, 2.0, np.nan])).tolist()
    [4.0, 2.0, nan]
    """
    width = max(1, len(losses) // 10)
    is_finite = np.isfinite(losses)
    # The difference of two of these sums (or counts) is the sum (or count) of the steps between them.
    sums = np.concatenate([[0.0], np.cumsum(np.where(is_finite, losses, 0.0))])
    counts = np.concatenate([[0], np.cumsum(is_finite)])
    ends = np.arange(1, len(losses) + 1)
    begins = np.maximum(ends - width, 0)
    window_counts = counts[ends] - counts[begins]
    means = np.full(len(losses), np.nan)
    return np.divide(sums[ends] - sums[begins], window_counts, out=means, where=window_counts > 0)


def loss_reached_s(clock: Clock, losses: Floats, target: float | None) -> float:
    """Return the seconds until the trailing mean of the losses reached the target; infinity if it never did."""
    if target is None:
        return np.inf
    has_loss = np.isfinite(losses)
    return time_to_target_s(clock.step_end_s[has_loss], trailing_means(losses)[has_loss], target)


def reachable_loss(losses_of_records: Iterable[Floats]) -> float | None:
    """Return the highest final loss of the records whose loss fell, which all of them reached; None if no loss fell.

    Losses are trailing means. A record that diverged counts up to its last finite loss.
    """
    final_losses = []
    for losses in losses_of_records:
        means = trailing_means(losses)
        finite_means = means[np.isfinite(means)]
        if len(finite_means) and finite_means[-1] < finite_means[0]:
            final_losses.append(float(finite_means[-1]))
    return max(final_losses, default=None)


def list_calls(record: TraceRecord) -> list[Call]:
    """Return each collective and message once, from the first rank that has it, in the order of the ranks' programs."""
    listed_keys: set[tuple[str, int]] = set()
    calls: list[Call] = []
    for sender, rank in enumerate(record.ranks):
        for step, event in rank.by_step():
            if isinstance(event, Started) and len(event.ranks) > 1 and event.key not in listed_keys:
                listed_keys.add(event.key)
                calls.append(Call(step, event.kind, event.payload_bytes, event.ranks, label=event.site))
            elif isinstance(event, MessageSent):
                calls.append(Call(step, "send", event.payload_bytes, group=(sender, event.to), label=event.site))
    return sorted(calls, key=lambda call: call.step)


def line_rows(record: TraceRecord, network: Network, replayed: Replayed) -> list[dict[str, Any]]:
    """Return a row for each line of the script that communicates, with the workers' waits, the longest wait first.

    All values are means per worker and step, over the steps after the first. A wait is charged to the line that started
    the awaited call, wherever in the script the worker waits.
    """
    window = Window.for_steps(record.steps)
    columns = ("calls", "bytes", "communication_s", "exposed_communication_s")
    totals: defaultdict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(columns, 0.0))  # by line
    kinds: defaultdict[str, dict[str, None]] = defaultdict(dict)  # by line: an ordered set
    for rank in record.ranks:
        for step, event in rank.by_step():
            if isinstance(event, Started) and len(event.ranks) > 1:
                kind, nbytes = event.asked, event.payload_bytes
            elif isinstance(event, MessageSent):
                kind, nbytes = "send", event.payload_bytes
            elif isinstance(event, MessageAwaited):
                kind, nbytes = "recv", 0
            else:
                continue
            kinds[event.site][kind] = None
            totals_of_line = totals[event.site]
            if window.contains(step):
                totals_of_line["calls"] += 1
                totals_of_line["bytes"] += nbytes

    spans = window.select(replayed.timeline)
    is_wait = spans.what.isin(WAITING)
    for column, selected in (("exposed_communication_s", is_wait), ("communication_s", ~spans.on_compute)):
        labels, seconds = spans.label[selected], spans.duration_s[selected]  # a label is a line of the script
        sums = np.bincount(labels.codes, weights=seconds, minlength=len(labels.words))
        for line, seconds_of_line in zip(labels.words.tolist(), sums.tolist(), strict=True):
            if seconds_of_line:
                totals[line][column] += seconds_of_line

    per_worker_and_step = 1 / (len(record.ranks) * window.steps)
    rows = []
    for line, totals_of_line in totals.items():
        row: dict[str, Any] = {"method": record.name, "network": network.name, "site": line}
        row["collective"] = ", ".join(kinds.get(line, ()))
        rows.append(row | {column: total * per_worker_and_step for column, total in totals_of_line.items()})
    return sorted(rows, key=lambda row: (-row["exposed_communication_s"], -row["communication_s"]))


@dataclass(frozen=True)
class TimedReplay(BoundedClock):
    """The clock of a record that was replayed on a network.

    Args:
        network: the network, without the user's changes.
        replayed: the timeline of the replay.
        unchanged_step_s: seconds of a mean step without the user's changes.
    """

    record: TraceRecord
    network: Network
    replayed: Replayed
    unchanged_step_s: float


def replay_and_time(
    record: TraceRecord, network: Network, question: ReplayedOn, slowdown: Factors = AS_PREDICTED
) -> tuple[Replayed, Clock]:
    """Replay a record on a network, with computing and communication slowed by factors, and return replay and clock."""
    changed_network = question.changed_network(network, slowdown)
    record = record._replace(ranks=question.changes.apply_to_record(record.ranks))
    replayed = replay(
        record.ranks, changed_network, question.hardware, algorithm=question.algorithm, host=question.host,
        computing_factor=float(slowdown.computing) / question.changes.compute,
    )  # fmt: skip
    return replayed, replay_clock(record, replayed)


def replay_step_s(record: TraceRecord, network: Network, question: ReplayedOn) -> float:
    """Replay a record on a network, and return the seconds of a mean step; see `replay_and_time`."""
    _, clock = replay_and_time(record, network, question)
    return clock.step_time_s


def timed_replays(records: Sequence[TraceRecord], question: ReplayedOn) -> list[TimedReplay]:
    """Replay every record on every network and return the replays with bounds, in order of network, then of record."""
    return [_replay_with_bounds(record, network, question) for network in question.networks for record in records]


def _replay_with_bounds(record: TraceRecord, network: Network, question: ReplayedOn) -> TimedReplay:
    """Replay a record on a network as predicted, at the bounds of its times, and without the user's changes."""
    replayed, clock = replay_and_time(record, network, question)
    if isinstance(question.hardware, MeasuredComputing):
        computing = uncertainties()[TIMED_STEPS]
    else:
        computing = computing_uncertainty(question.hardware, width=None)  # a record does not tell the model's width
    communication = communication_uncertainty(network, algorithm_or_auto(question.algorithm, network))
    unchanged_step_s = clock.step_time_s
    if question.changes != Changes():
        unchanged_step_s = replay_step_s(record, network, replace(question, changes=Changes()))

    def retime(factors: Factors) -> Clock:
        _, clock_at_bound = replay_and_time(record, network, question, factors)
        return clock_at_bound

    bounds = clock_bounds(clock, retime, computing, communication)
    return TimedReplay(clock, *bounds, record, network, replayed, unchanged_step_s)


def replay_rows(replays: Sequence[TimedReplay], question: ReplayedOn) -> list[dict[str, Any]]:
    """Return one row per record and network; speedups are relative to the first record on the same network."""
    losses = {timed.record.name: losses_by_step(timed.record) for timed in replays}
    target = question.target_loss
    if target is None and len(losses) > 1:
        target = reachable_loss(losses.values())
    base_replays: dict[str, TimedReplay] = {}  # replays of the first record, by network
    base_target_s: dict[str, float] = {}  # seconds of the first record to the target loss, by network
    rows = []
    for timed in replays:
        network = timed.network.name
        base = base_replays.setdefault(network, timed)  # the first replay on a network is that of the first record
        row = _row(timed, base, losses[timed.record.name], target, question)
        target_s = row["time_to_target_s"]
        base_s = base_target_s.setdefault(network, target_s)
        # A record that does not reach the target (infinite seconds), or takes no time, has no speedup.
        has_speedup = target_s and math.isfinite(target_s) and math.isfinite(base_s)
        row["time_to_target_speedup"] = base_s / target_s if has_speedup else None
        rows.append(row)
    return rows


def _row(
    timed: TimedReplay, base: TimedReplay, losses: Floats, target: float | None, question: ReplayedOn
) -> dict[str, Any]:
    """Return the row of a replay, with its clock, its speedup, and the seconds to a target loss.

    Args:
        base: the replay of the first record on the same network; the speedup is relative to it.
        losses: the loss of each step, ``(T,)``; NaN for a step without a loss.
        target: the target loss; None: the time to it is infinite.
    """
    clock = timed.clock
    diverged_steps = [
        step
        for rank in timed.record.ranks
        for step, event in rank.by_step()
        if isinstance(event, Loss) and not math.isfinite(event.loss)
    ]
    diverged_at = min(diverged_steps, default=None)
    is_finite = np.isfinite(losses)
    loss, last_loss = None, None  # the last trailing mean, and the last loss
    if diverged_at is None and is_finite.any():
        loss, last_loss = float(trailing_means(losses)[is_finite][-1]), float(losses[is_finite][-1])
    return {
        "method": timed.record.name,
        "network": timed.network.name,
        "hardware": question.hardware.name,
        "host": host_behaviour(question.host, question.hardware),
        "workers": len(timed.record.ranks),
        "steps": timed.record.steps,
        **question.changes.columns(),
        **clock_record(clock),
        "unchanged_step_time_s": timed.unchanged_step_s,
        "speedup": base.clock.step_time_s / clock.step_time_s if clock.step_time_s else 1.0,
        **timed.bounds(),
        **timed.speedup_bounds(base),
        "loss": loss,
        "last_loss": last_loss,
        "target_loss": target,
        "time_to_target_s": loss_reached_s(clock, losses, target),
        "diverged_at": diverged_at,
    }


def loss_rows(records: Sequence[TraceRecord]) -> list[dict[str, Any]]:
    """Return one row per step of each record with its losses; the loss is NaN if a step has none."""
    rows: list[dict[str, Any]] = []
    for record in records:
        losses = losses_by_step(record)
        for step, (loss, mean) in enumerate(zip(losses.tolist(), trailing_means(losses).tolist(), strict=True)):
            rows.append({"method": record.name, "step": step + 1, "train_loss": loss, "loss": mean})
    return rows
