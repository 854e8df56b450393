"""Rows of replays: one per record and network, as a comparison of trainings has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from syncline.backend.tracing.record import Lost
from syncline.costmodel import Network
from syncline.costmodel.bases import communicating, computing, measured_computing
from syncline.costmodel.collectives.policies import unless_named
from syncline.costmodel.network.paths import Floats
from syncline.experiments.bounds import AS_PREDICTED, Factors, Varied, at_bounds, basis_text
from syncline.experiments.clock_bounds import bounds_record, speedup_bounds
from syncline.experiments.records import clock_record
from syncline.experiments.tracing.clocks import (
    TraceRecord,
    clock_of,
    loss_reached_s,
    losses_by_step,
    reachable_loss,
    trailing_means,
)
from syncline.experiments.tracing.computing import MeasuredComputing
from syncline.experiments.tracing.programs import known_host
from syncline.experiments.tracing.replay import Replayed, replay
from syncline.experiments.tracing.scenario import Changes, ReplayedOn
from syncline.sim import Clock


@dataclass(frozen=True)
class TimedReplay:
    """A record that was replayed on a network.

    Args:
        record: it.
        on: the network, as it is described.
        replayed: what happened.
        clock: what a mean step went into.
        varied: mean steps at the bounds of computing and of communication.
        basis: what these rest on.
        before_s: a mean step where nothing is changed.
    """

    record: TraceRecord
    on: Network
    replayed: Replayed
    clock: Clock
    varied: Varied
    basis: str
    before_s: float


def replay_timed(
    record: TraceRecord, on: Network, question: ReplayedOn, off: Factors = AS_PREDICTED
) -> tuple[Replayed, Clock]:
    """A record on a network, with computing and communication off by factors."""
    network, machine = question.there(on, off)
    ranks = question.changes.of_record(record.ranks)
    changed = record._replace(ranks=ranks)
    told = replay(ranks, network, machine, question.algorithm, question.host)
    return told, clock_of(changed, told)


def timed_replays(records: Sequence[TraceRecord], question: ReplayedOn) -> list[TimedReplay]:
    """Every record on every network, networks first, with bounds."""
    return [_with_bounds(record, on, question) for on in question.networks for record in records]


def _with_bounds(record: TraceRecord, on: Network, question: ReplayedOn) -> TimedReplay:
    told, clock = replay_timed(record, on, question)
    machine = question.hardware
    k = measured_computing() if isinstance(machine, MeasuredComputing) else computing(machine, None)
    c = communicating(on, unless_named(question.algorithm, on))
    varied = [
        np.array((clock if off == AS_PREDICTED else replay_timed(record, on, question, off)[1]).step_time_s)
        for off in at_bounds(k, c)
    ]
    before_s = clock.step_time_s
    if question.changes != Changes():
        before_s = replay_timed(record, on, replace(question, changes=Changes()))[1].step_time_s
    return TimedReplay(record, on, told, clock, Varied(*varied), basis_text(k.basis, c.basis), before_s)


def replay_rows(timed: Sequence[TimedReplay], question: ReplayedOn) -> list[dict[str, Any]]:
    """One row per record and network; speedups are over the first record, on the same network."""
    losses = {one.record.name: losses_by_step(one.record) for one in timed}
    target = question.target_loss
    if target is None and len(losses) > 1:
        target = reachable_loss(losses.values())
    first: dict[str, TimedReplay] = {}
    for one in timed:
        first.setdefault(one.on.name, one)
    rows = [_row(one, first[one.on.name], losses[one.record.name], target, question) for one in timed]
    base = {row["network"]: row["time_to_target_s"] for row in reversed(rows)}
    for row in rows:
        own, of_first = row["time_to_target_s"], base[row["network"]]
        reached = own and math.isfinite(own) and math.isfinite(of_first)
        row["time_to_target_speedup"] = of_first / own if reached else None
    return rows


def _row(
    one: TimedReplay, base: TimedReplay, losses: Floats, target: float | None, question: ReplayedOn
) -> dict[str, Any]:
    clock, lost = one.clock, lost_at(one.record)
    known = np.isfinite(losses)
    final = None if lost is not None or not known.any() else float(trailing_means(losses)[known][-1])
    return {
        "method": one.record.name,
        "network": one.on.name,
        "hardware": question.hardware.name,
        "host": known_host(question.host, question.hardware),
        "workers": len(one.record.ranks),
        "steps": one.record.steps,
        **question.changes.record(),
        **clock_record(clock),
        "unchanged_step_time_s": one.before_s,
        "speedup": base.clock.step_time_s / clock.step_time_s if clock.step_time_s else 1.0,
        **bounds_record(clock, one.varied, one.basis),
        **speedup_bounds(clock, one.varied, base.clock, base.varied),
        "loss": final,
        "last_loss": None if final is None else float(losses[known][-1]),
        "target_loss": target,
        "time_to_target_s": loss_reached_s(clock, losses, target),
        "diverged_at": lost,
    }


def lost_at(record: TraceRecord) -> int | None:
    """The first step with a loss that is not finite; none if there is none."""
    of_ranks = (one for rank in record.ranks for one in rank.by_step())
    return min((step for step, one in of_ranks if isinstance(one, Lost) and not math.isfinite(one.loss)), default=None)


def loss_rows(records: Sequence[TraceRecord]) -> list[dict[str, Any]]:
    """The loss of each step of each record; none where a step has none."""
    rows: list[dict[str, Any]] = []
    for record in records:
        losses = losses_by_step(record)
        for step, (loss, mean) in enumerate(zip(losses.tolist(), trailing_means(losses).tolist(), strict=True)):
            rows.append({"method": record.name, "step": step + 1, "train_loss": loss, "loss": mean})
    return rows
