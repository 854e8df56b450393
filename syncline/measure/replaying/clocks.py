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
from syncline.costmodel.bases import communication_uncertainty, computing_uncertainty, timed_computing_uncertainty
from syncline.costmodel.collectives.policies import algorithm_or_auto
from syncline.costmodel.network.paths import Floats
from syncline.measure.recording.record import Lost, MessageAwaited, MessageSent, RankRecord, Started, Stepped
from syncline.measure.replaying.replay import MeasuredComputing, Replayed, known_host, replay
from syncline.measure.replaying.scenario import Changes, ReplayedOn
from syncline.planner.bounds import AS_PREDICTED, Factors, StepTimeVariants, at_bounds, basis_text
from syncline.runs.training.clock_bounds import bounds_record, speedup_bounds
from syncline.runs.training.results import clock_record
from syncline.sim import Clock, Timeline
from syncline.sim.program.timeline import WAITING


class TraceRecord(NamedTuple):
    """A record with its name.

    Attributes:
        name: name of the script, as rows show it.
        ranks: the record of each rank.
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
        first: the first step of the window.
        last: the step after the last step of the window.
    """

    first: int
    last: int

    @classmethod
    def for_steps(cls, steps: int) -> Window:
        """Return the window of a run with this number of steps; a single step is its own window."""
        return cls(min(1, steps - 1), steps) if steps else cls(0, 1)

    @property
    def steps(self) -> int:
        """Return the number of steps in the window."""
        return self.last - self.first

    def of_timeline(self, timeline: Timeline) -> Timeline:
        """Return the spans of these steps, or all spans if the window begins at step 0."""
        if self.first == 0:
            return timeline
        return timeline[(timeline.step >= self.first) & (timeline.step < self.last)]


def clock_of(record: TraceRecord, played: Replayed) -> Clock:
    """Return the clock of a replay, which splits a mean step into parts; the mean is over the steps after the first."""
    ranks, timeline = record.ranks, played.timeline
    window = Window.for_steps(record.steps)
    is_inside = window.of_timeline(timeline)
    per_step = 1 / (len(ranks) * window.steps)
    wall_s = timeline.makespan_s
    ends = np.zeros(len(ranks))
    np.maximum.at(ends, timeline.worker, timeline.end_s)
    is_single_step = window.first == 0
    step_s = wall_s if is_single_step else float(played.step_end_s[-1] - played.step_end_s[0]) / window.steps
    sent_bytes = bytes_by_step(record)
    return Clock(
        step_end_s=played.step_end_s,
        end_s=ends,
        step_time_s=step_s,
        compute_s=float(is_inside.compute_s().sum()) * per_step,
        encode_s=0.0,
        trigger_s=0.0,
        optimizer_s=0.0,
        communication_s=float(is_inside.communication_s().sum()) * per_step,
        exposed_communication_s=float(is_inside.exposed_communication_s().sum()) * per_step,
        bytes_per_worker=float(sent_bytes.sum() if is_single_step else sent_bytes[window.first : window.last].sum())
        / window.steps,
        wall_s=wall_s,
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
            if isinstance(event, Started | MessageSent):
                sent_bytes[step] += event.payload_bytes
    return sent_bytes / len(record.ranks)


def losses_by_step(record: TraceRecord) -> Floats:
    """Return the loss of each step, ``(T,)``: the mean over its backward passes, then over the ranks that have a loss.

    A step without a loss has NaN.
    """
    total, ranks = np.zeros(record.steps), np.zeros(record.steps)
    for rank in record.ranks:
        step_losses = list[float]()
        for step, event in rank.by_step():
            if isinstance(event, Lost):
                step_losses.append(event.loss)
            elif isinstance(event, Stepped) and step_losses:
                total[step] += float(np.mean(step_losses))
                ranks[step] += 1
                step_losses = []
    return np.divide(total, ranks, out=np.full(record.steps, np.nan), where=ranks > 0)


def trailing_means(losses: Floats) -> Floats:
    """Return for each step the mean loss of the last tenth of all steps up to it; steps without a loss are left out.

    >>> trailing_means(np.array([4.0, 2.0, np.nan])).tolist()
    [4.0, 2.0, nan]
    """
    width = max(1, len(losses) // 10)
    finite = np.isfinite(losses)
    sums = np.concatenate([[0.0], np.cumsum(np.where(finite, losses, 0.0))])
    counts = np.concatenate([[0], np.cumsum(finite)])
    ends = np.arange(1, len(losses) + 1)
    begins = np.maximum(ends - width, 0)
    number = counts[ends] - counts[begins]
    return np.divide(sums[ends] - sums[begins], number, out=np.full(len(losses), np.nan), where=number > 0)


def loss_reached_s(clock: Clock, losses: Floats, target: float | None) -> float:
    """Return the seconds until the trailing mean of the losses reached the target; infinity if it never did."""
    if target is None:
        return np.inf
    finite = np.isfinite(losses)
    return time_to_target_s(clock.step_end_s[finite], trailing_means(losses)[finite], target)


def reachable_loss(records: Iterable[Floats]) -> float | None:
    """Return the highest final loss among the records whose loss fell, by trailing means; None if there is none."""
    means = [mean[np.isfinite(mean)] for mean in map(trailing_means, records)]
    learned = [float(mean[-1]) for mean in means if len(mean) and mean[-1] < mean[0]]
    return max(learned) if learned else None


def ledger_of(record: TraceRecord) -> list[Call]:
    """Return each collective and message once, from the first rank that has it, in the order of the ranks' programs."""
    all_ranks, noted_calls, calls = tuple(range(len(record.ranks))), set[Any](), list[Call]()
    for sender, rank in enumerate(record.ranks):
        for step, event in rank.by_step():
            if isinstance(event, Started):
                if len(event.ranks) > 1 and event.key not in noted_calls:
                    noted_calls.add(event.key)
                    group = None if event.ranks == all_ranks else event.ranks
                    calls.append(Call(step, event.kind, event.payload_bytes, group, label=event.site))
            elif isinstance(event, MessageSent):
                calls.append(Call(step, "send", event.payload_bytes, group=(sender, event.to), label=event.site))
    return sorted(calls, key=lambda call: call.step)


def sites_of(record: TraceRecord, network: Network, played: Replayed) -> list[dict[str, Any]]:
    """Return the lines of the script that communicate, with the workers' waits for each, the longest wait first.

    All values are means per worker and step, over the steps of `Window`. A wait is charged to the line that started the
    awaited call, wherever in the script the worker waits.
    """
    window = Window.for_steps(record.steps)
    inside = window.of_timeline(played.timeline)
    totals: defaultdict[str, dict[str, float]] = defaultdict(
        lambda: dict.fromkeys(("calls", "bytes", "communication_s", "exposed_communication_s"), 0.0)
    )
    collectives: defaultdict[str, dict[str, None]] = defaultdict(dict)  # an ordered set for each line
    for rank in record.ranks:
        for step, event in rank.by_step():
            if isinstance(event, Started) and len(event.ranks) > 1:
                collective, nbytes = event.asked, event.payload_bytes
            elif isinstance(event, MessageSent):
                collective, nbytes = "send", event.payload_bytes
            elif isinstance(event, MessageAwaited):
                collective, nbytes = "recv", 0
            else:
                continue
            collectives[event.site][collective] = None
            is_inside = window.first == 0 or window.first <= step < window.last
            totals[event.site]["calls"] += is_inside
            totals[event.site]["bytes"] += nbytes * is_inside
    waits = inside.what.isin(WAITING)
    for name, spans in (("exposed_communication_s", waits), ("communication_s", ~inside.on_compute)):
        labels, seconds = inside.label[spans], inside.duration_s[spans]
        sums = np.bincount(labels.codes, seconds, minlength=len(labels.words)) if len(labels) else np.zeros(0)
        for label, total in zip(labels.words.tolist(), sums.tolist(), strict=False):
            if total:
                totals[label][name] += total
    scale = 1 / (len(record.ranks) * window.steps)
    rows = [
        {
            "method": record.name,
            "network": network.name,
            "site": line,
            "collective": ", ".join(collectives.get(line, ())),
        }
        | {name: value * scale for name, value in values.items()}
        for line, values in totals.items()
    ]
    return sorted(rows, key=lambda row: (-row["exposed_communication_s"], -row["communication_s"]))


@dataclass(frozen=True)
class TimedReplay:
    """A record that was replayed on a network.

    Args:
        record: the record.
        on: the network, without the user's changes.
        replayed: the timeline of the replay.
        clock: the parts of a mean step.
        varied: mean steps at the bounds of computing and of communication.
        basis: the measurements on which the bounds rest, in words.
        before_s: seconds of a mean step without the user's changes.
    """

    record: TraceRecord
    on: Network
    replayed: Replayed
    clock: Clock
    varied: StepTimeVariants
    basis: str
    before_s: float


def replay_timed(
    record: TraceRecord, on: Network, question: ReplayedOn, slowdown: Factors = AS_PREDICTED
) -> tuple[Replayed, Clock]:
    """Replay a record on a network, with computing and communication slowed by factors, and return replay and clock."""
    network, machine = question.network_and_hardware(on, slowdown)
    record = record._replace(ranks=question.changes.of_record(record.ranks))
    replayed = replay(record.ranks, network, hardware=machine, algorithm=question.algorithm, host=question.host)
    return replayed, clock_of(record, replayed)


def timed_replays(records: Sequence[TraceRecord], question: ReplayedOn) -> list[TimedReplay]:
    """Replay every record on every network and return the replays with bounds, in order of network, then of record."""
    return [_replay_with_bounds(record, network, question) for network in question.networks for record in records]


def _replay_with_bounds(record: TraceRecord, network: Network, question: ReplayedOn) -> TimedReplay:
    """Replay a record on a network, also at the bounds of computing and of communication and without changes."""
    replayed, clock = replay_timed(record, network, question)
    computing = (
        timed_computing_uncertainty()
        if isinstance(question.hardware, MeasuredComputing)
        else computing_uncertainty(question.hardware, None)
    )
    communication = communication_uncertainty(network, algorithm_or_auto(question.algorithm, network))
    varied = []
    for factors in at_bounds(computing, communication):
        varied_clock = (
            clock if factors == AS_PREDICTED else replay_timed(record, network, question, slowdown=factors)[1]
        )
        varied.append(np.array(varied_clock.step_time_s))
    before_s = clock.step_time_s
    if question.changes != Changes():
        before_s = replay_timed(record, network, replace(question, changes=Changes()))[1].step_time_s
    basis = basis_text(computing.basis, communication.basis)
    return TimedReplay(
        record, network, replayed, clock, varied=StepTimeVariants(*varied), basis=basis, before_s=before_s
    )


def replay_rows(replays: Sequence[TimedReplay], question: ReplayedOn) -> list[dict[str, Any]]:
    """Return one row per record and network; speedups are over the first record, on the same network."""
    losses = {timed_replay.record.name: losses_by_step(timed_replay.record) for timed_replay in replays}
    target = question.target_loss
    if target is None and len(losses) > 1:
        target = reachable_loss(losses.values())
    first: dict[str, TimedReplay] = {}
    for timed_replay in replays:
        first.setdefault(timed_replay.on.name, timed_replay)
    rows = [
        _row(timed_replay, first[timed_replay.on.name], losses[timed_replay.record.name], target, question)
        for timed_replay in replays
    ]
    base = {row["network"]: row["time_to_target_s"] for row in reversed(rows)}
    for row in rows:
        reached_s, first_s = row["time_to_target_s"], base[row["network"]]
        reached = reached_s and math.isfinite(reached_s) and math.isfinite(first_s)
        row["time_to_target_speedup"] = first_s / reached_s if reached else None
    return rows


def _row(
    timed: TimedReplay, base: TimedReplay, losses: Floats, target: float | None, question: ReplayedOn
) -> dict[str, Any]:
    """Return the row of a replay; ``base`` is the replay that its speedup is over."""
    clock, lost_at_step = timed.clock, lost_at(timed.record)
    finite = np.isfinite(losses)
    final = None if lost_at_step is not None or not finite.any() else float(trailing_means(losses)[finite][-1])
    return {
        "method": timed.record.name,
        "network": timed.on.name,
        "hardware": question.hardware.name,
        "host": known_host(question.host, question.hardware),
        "workers": len(timed.record.ranks),
        "steps": timed.record.steps,
        **question.changes.record(),
        **clock_record(clock),
        "unchanged_step_time_s": timed.before_s,
        "speedup": base.clock.step_time_s / clock.step_time_s if clock.step_time_s else 1.0,
        **bounds_record(clock, timed.varied, timed.basis),
        **speedup_bounds(clock, timed.varied, base=base.clock, base_varied=base.varied),
        "loss": final,
        "last_loss": None if final is None else float(losses[finite][-1]),
        "target_loss": target,
        "time_to_target_s": loss_reached_s(clock, losses, target),
        "diverged_at": lost_at_step,
    }


def lost_at(record: TraceRecord) -> int | None:
    """Return the first step whose loss is not finite; None if all losses are finite."""
    events = (event for rank in record.ranks for event in rank.by_step())
    return min(
        (step for step, event in events if isinstance(event, Lost) and not math.isfinite(event.loss)), default=None
    )


def loss_rows(records: Sequence[TraceRecord]) -> list[dict[str, Any]]:
    """Return one row per step of each record with its losses; the loss is NaN if a step has none."""
    rows: list[dict[str, Any]] = []
    for record in records:
        losses = losses_by_step(record)
        for step, (loss, mean) in enumerate(zip(losses.tolist(), trailing_means(losses).tolist(), strict=True)):
            rows.append({"method": record.name, "step": step + 1, "train_loss": loss, "loss": mean})
    return rows
