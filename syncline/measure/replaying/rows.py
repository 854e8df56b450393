"""Rows of replays: one per record and network, with the fields of a comparison of trainings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from syncline.costmodel import Network
from syncline.costmodel.bases import communication_uncertainty, computing_uncertainty, timed_computing_uncertainty
from syncline.costmodel.collectives.policies import algorithm_or_auto
from syncline.costmodel.network.paths import Floats
from syncline.measure.recording.record import Lost
from syncline.measure.replaying.clocks import (
    TraceRecord,
    clock_of,
    loss_reached_s,
    losses_by_step,
    reachable_loss,
    trailing_means,
)
from syncline.measure.replaying.programs import MeasuredComputing, known_host
from syncline.measure.replaying.replay import Replayed, replay
from syncline.measure.replaying.scenario import Changes, ReplayedOn
from syncline.planner.bounds import AS_PREDICTED, Factors, StepTimeVariants, at_bounds, basis_text
from syncline.runs.training.clock_bounds import bounds_record, speedup_bounds
from syncline.runs.training.records import clock_record
from syncline.sim import Clock


@dataclass(frozen=True)
class TimedReplay:
    """A record that was replayed on a network.

    Args:
        record: the record.
        on: the network, without changes.
        replayed: the timeline of the replay.
        clock: the parts of a mean step.
        varied: mean steps at the bounds of computing and of communication.
        basis: basis of the bounds.
        before_s: seconds of a mean step without changes.
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
    replayed = replay(record.ranks, network, machine, question.algorithm, question.host)
    return replayed, clock_of(record, replayed)


def timed_replays(records: Sequence[TraceRecord], question: ReplayedOn) -> list[TimedReplay]:
    """Replay every record on every network and return the replays with bounds, in order of network, then of record."""
    return [_with_bounds(record, on, question) for on in question.networks for record in records]


def _with_bounds(record: TraceRecord, on: Network, question: ReplayedOn) -> TimedReplay:
    """Replay a record on a network, also at the bounds of computing and of communication."""
    replayed, clock = replay_timed(record, on, question)
    computing = (
        timed_computing_uncertainty()
        if isinstance(question.hardware, MeasuredComputing)
        else computing_uncertainty(question.hardware, None)
    )
    communication = communication_uncertainty(on, algorithm_or_auto(question.algorithm, on))
    varied = []
    for factors in at_bounds(computing, communication):
        varied_clock = clock if factors == AS_PREDICTED else replay_timed(record, on, question, factors)[1]
        varied.append(np.array(varied_clock.step_time_s))
    before_s = clock.step_time_s
    if question.changes != Changes():
        before_s = replay_timed(record, on, replace(question, changes=Changes()))[1].step_time_s
    basis = basis_text(computing.basis, communication.basis)
    return TimedReplay(record, on, replayed, clock, StepTimeVariants(*varied), basis, before_s)


def replay_rows(replays: Sequence[TimedReplay], question: ReplayedOn) -> list[dict[str, Any]]:
    """Return one row per record and network; speedups are over the first record, on the same network."""
    losses = {timed.record.name: losses_by_step(timed.record) for timed in replays}
    target = question.target_loss
    if target is None and len(losses) > 1:
        target = reachable_loss(losses.values())
    first: dict[str, TimedReplay] = {}
    for timed in replays:
        first.setdefault(timed.on.name, timed)
    rows = [_row(timed, first[timed.on.name], losses[timed.record.name], target, question) for timed in replays]
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
    clock, lost = timed.clock, lost_at(timed.record)
    finite = np.isfinite(losses)
    final = None if lost is not None or not finite.any() else float(trailing_means(losses)[finite][-1])
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
        **speedup_bounds(clock, timed.varied, base.clock, base.varied),
        "loss": final,
        "last_loss": None if final is None else float(losses[finite][-1]),
        "target_loss": target,
        "time_to_target_s": loss_reached_s(clock, losses, target),
        "diverged_at": lost,
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
