"""Losses of a replication over networks: trained once, and timed on other networks by arithmetic."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from replication.replications.averages import AveragedTraining, Averages
from replication.replications.spec import Cell, ReplicationSpec
from replication.replications.stage_tables import CompletedStage, StageRows
from replication.replications.stages import ReplicationStage
from syncline import SpecError
from syncline.analysis import Curve, median_and_range, time_to_target_s
from syncline.costmodel import Exchange, TensorShape, calls_of
from syncline.methods import MethodBase
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.runs.sweep.grid import SweptSpec, configurations
from syncline.runs.sweep.identity import canonical
from syncline.runs.training.trained import Trained, base_s, reforms
from syncline.sim import Clock
from syncline.sim.online.server_interface import AsyncResult
from syncline.specs import RunSpec
from syncline.specs.stages import TimedModelSpec
from syncline.training import History

BYTES_AGREE = 1e-6
"""Relative tolerance between the bytes that a training sent and its method's closed form.

A larger difference means that the clock depends on the values of the training.
"""

NETWORKS_TABLE, FINALS = "networks.parquet", "finals"

CALLS, AVERAGES, EVENTS = "calls", "averages", "events"
"""Sources of a clock: calls in closed form; the steps that averaged in the training; simulated events."""

TO_ALL, TO_FIRST = "to_all_s", "to_first_s"
"""Columns: seconds to the loss that every method of the finals reached, and to the final loss of the first method."""

WON = {TO_ALL: "seeds_first_to_all", TO_FIRST: "seeds_first_to_first"}
"""Columns: number of seeds on which a method of the finals reaches the loss before all others."""


@dataclass(frozen=True)
class TimedCell:
    """A method in a setting: its losses, and the clocks of the networks.

    Args:
        cell: method and setting.
        curve: losses ``(S, n)``, and clocks of the networks on which it could be timed, means over the seeds.
        clock_s: by network the clock of each seed, ``(S, n)``.
        bytes_per_worker: mean per step, over the seeds.
        step_time_s: by network, mean over the seeds.
        compute_s: what a worker alone takes for a step; NaN if the cell has no clock.
        timed_by: `CALLS`, `AVERAGES` or `EVENTS`; None if the cell has no clock.
    """

    cell: Cell
    curve: Curve
    clock_s: Mapping[str, np.ndarray]
    bytes_per_worker: float
    step_time_s: Mapping[str, float]
    compute_s: float
    timed_by: str | None

    @property
    def last_loss(self) -> float:
        """Return the median of the last loss over the seeds; infinite if most seeds diverged."""
        return float(median_and_range(self.curve.loss)[0][-1])


def networks_identity(spec: ReplicationSpec, stages: Sequence[ReplicationStage], code: str) -> str:
    """Return a digest of the inputs of a table of networks."""
    parts = [network if isinstance(network, str) else canonical(network) for network in spec.networks]
    if spec.pipeline_clock is not None:
        parts.append(canonical(spec.pipeline_clock.model_dump(mode="json")))
    text = "\n".join([*(stage.identity for stage in stages), *parts, code])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def timed_cells(
    spec: ReplicationSpec,
    stages: Sequence[ReplicationStage],
    completed: Mapping[str, CompletedStage],
    averages: Averages | None = None,
) -> list[TimedCell]:
    """Return all cells of the completed finals and extras, timed on the spec's networks; nothing is trained.

    A clock uses the calls of a method's closed form, which are also those of its ledger. For a method with a trigger it
    uses the steps at which each seed averaged in the training, because no network changes the losses of this method.

    Workers at their own pace are simulated. They have a clock if all workers arrive in the order of the training, so
    that the training's losses are valid on that network. In any other order it would be another training, and only the
    step time is reported. A cell has no clock either if the bytes sent differ from those of the closed form.

    Args:
        spec: the replication.
        stages: completed finals and extras, the finals first.
        completed: tables of the stages, by name.
        averages: the steps that averaged, for cells that record them.
    """
    tasks, cells = _Tasks(), []
    for stage in stages:
        runs: dict[str, list[RunSpec]] = {}
        trained = {run.method.name: run for run in runs_over(stage, (None,))}
        for run in runs_over(stage, spec.networks):
            runs.setdefault(run.method.name, []).append(run)
        extra = stage.name.removeprefix("extra ") if stage.name != FINALS else ""
        for label, label_runs in runs.items():
            rows = [row for row in completed[stage.name].rows if row["method"] == label]
            if rows:
                cell = Cell(label, extra)
                cell_averages = (averages or {}).get(cell)
                cells.append(_timed(cell, rows, label_runs, tasks, spec.pipeline_clock, cell_averages, trained[label]))
    return cells


def runs_over(stage: ReplicationStage, networks: Sequence[Any]) -> Iterator[RunSpec]:
    """Yield each method of a stage on each network; the network None stands for that of the trainings.

    A network that cannot join the number of workers of an extra is left out.
    """
    one_seed = stage.parts()[0]  # if seeds send different bytes, no closed form agrees with their mean
    for network in networks:
        try:
            overrides: dict[str, Any] = {"device": "cpu", "execution": "eager"}  # no clock depends on where it trained
            overrides |= {} if network is None else {"networks": [network]}
            base = SweptSpec.from_spec(one_seed.fields() | overrides, one_seed.overrides(), [])
            configured = configurations(base, list(base.grids), one_seed.seeds)
        except SpecError:
            if stage.name == FINALS:
                raise
            continue
        for configuration in configured:
            yield configuration.spec


def _timed(
    cell: Cell,
    rows: StageRows,
    runs: Sequence[RunSpec],
    tasks: _Tasks,
    timed: TimedModelSpec | None,
    seen: Mapping[int, AveragedTraining] | None,
    trained: RunSpec,
) -> TimedCell:
    steps, seeds = sorted({row["step"] for row in rows}), sorted({row["seed"] for row in rows})
    loss_at = {(row["seed"], row["step"]): row["loss"] for row in rows}
    loss = np.array([[loss_at.get((seed, step), math.nan) for step in steps] for seed in seeds])
    sent = {row["seed"]: row["bytes_per_worker"] for row in rows if row["bytes_per_worker"] is not None}
    sent_per_step = fmean(sent.values()) if sent else math.nan
    clocks: dict[str, np.ndarray] = {}
    step_s: dict[str, float] = {}
    compute_s = math.nan
    source = CALLS if seen is None else AVERAGES
    for run in runs:
        method = run.method.in_precision(run.number_format)
        if reforms(run, method):
            raise SpecError("failures.recovery", "elastic", "restart, where a training is timed on networks of its own")
        if asynchronous_of(method) is not None:
            played = tasks.played(run, method)
            if played is None:
                break
            step_s[run.network.name] = played.clock.step_time_s
            in_training = tasks.played(trained, method)
            if in_training is None or not played.in_order_of(in_training, steps):
                continue
            source, ends = EVENTS, [played.clock]
        elif run.pipeline is not None:
            from syncline.runs.training.delayed_gradients import timed_stages

            source, ends = EVENTS, [timed_stages(run, method, timed).time(run.network)]
            sent_per_step = ends[0].bytes_per_worker
        else:
            averaged = [None] if seen is None else [seen[seed].steps for seed in seeds]
            expected_bytes = [sent_per_step] if seen is None else [sent.get(seed, math.nan) for seed in seeds]
            maybe_exchanges = [tasks.exchanges(run, method, steps_averaged) for steps_averaged in averaged]
            exchanges = [per_seed for per_seed in maybe_exchanges if per_seed is not None]
            if len(exchanges) < len(expected_bytes) or not all(
                map(partial(_agree, steps=run.steps), exchanges, expected_bytes)
            ):
                break
            ends = [tasks.clock(run, method, per_seed) for per_seed in exchanges]
        name = run.network.name
        clocks[name] = np.stack([np.concatenate([[0.0], clock.step_end_s])[steps] for clock in ends])
        step_s[name] = fmean(clock.step_time_s for clock in ends)
        compute_s = ends[0].compute_s
    curve = Curve(cell.method, np.array(steps), loss, {name: of_seeds.mean(0) for name, of_seeds in clocks.items()})
    by_seed = {name: np.broadcast_to(of_seeds, loss.shape) for name, of_seeds in clocks.items()}
    return TimedCell(cell, curve, by_seed, sent_per_step, step_s, compute_s, source if clocks else None)


def _agree(exchanges: Sequence[Exchange], sent_per_step: float, steps: int) -> bool:
    """Return whether the bytes of the exchanges are the bytes that were sent."""
    bytes_per_step = sum(call.payload_bytes for call in calls_of(exchanges, steps)) / steps
    return math.isclose(bytes_per_step, sent_per_step, rel_tol=BYTES_AGREE)


class PlayedCell(NamedTuple):
    """Simulated workers at their own pace on a network: their order of arrival, and the clock."""

    played: AsyncResult
    clock: Clock

    def in_order_of(self, other: PlayedCell, steps: Sequence[int]) -> bool:
        """Return whether the math of both is the same: the order of the workers' steps, their models and versions.

        Args:
            other: the same workers on another network.
            steps: steps after which a model is evaluated, with the updates that have arrived by then.
        """
        if self.played.step_worker.tolist() != other.played.step_worker.tolist():
            return False
        columns, others = self.played.columns(), other.played.columns()
        if any(columns[name].tolist() != others[name].tolist() for name in ("worker", "steps", "model", "version")):
            return False
        evaluated = np.array([step - 1 for step in steps if step])
        seen = [
            np.searchsorted(side["arrived_s"], cell.clock.step_end_s[evaluated], side="right")
            for side, cell in ((columns, self), (others, other))
        ]
        return bool((seen[0] == seen[1]).all())


class _Tasks:
    """The problems of runs: what methods send for each, and at which times; each result is computed once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[list[TensorShape], float | None]] = {}
        self._played: dict[tuple[str, str], PlayedCell] = {}

    def _tensors_and_flops(self, run: RunSpec) -> tuple[list[TensorShape], float | None]:
        """Return the tensor shapes and the operations of one worker."""
        key = repr(run.problem), run.workers
        if key not in self._known:
            import torch

            from syncline.problems import Rows
            from syncline.runs.training.trained import build_task, task_tensors

            task = build_task(run.problem, Rows((run.seeds[0],), (0,), run.workers), torch.device("cpu"))
            self._known[key] = task_tensors(task), task.flops_per_step
        return self._known[key]

    def exchanges(self, run: RunSpec, method: MethodBase, averaged: Sequence[int] | None) -> list[Exchange] | None:
        """Return the exchanges in closed form, from the steps that averaged if only the training determines them."""
        tensors, _ = self._tensors_and_flops(run)
        if run.workers == 1:
            return []
        if averaged is None:
            return method.exchanges(tensors, run.workers)
        return method.exchanges_at(tensors, run.workers, run.steps, averaged)

    def played(self, run: RunSpec, method: MethodBase) -> PlayedCell | None:
        """Return simulated workers at their own pace; None if batches adapt, whose times only the tasks give."""
        from syncline.runs.training.async_clock import async_plan, async_training_clock

        asynchronous = asynchronous_of(method)
        if asynchronous is None or asynchronous.dynamic_local_updates == "batch":
            return None
        key = run.network.name, canonical(run.model_dump(mode="json"))
        if key not in self._played:
            tensors, flops = self._tensors_and_flops(run)
            plan = async_plan(run, method, tensors, base_s(run, flops), run.network)
            played = plan.play()
            self._played[key] = PlayedCell(played, async_training_clock(played, plan.served, run.steps))
        return self._played[key]

    def clock(self, run: RunSpec, method: MethodBase, exchanges: Sequence[Exchange]) -> Clock:
        """Return the clock of a whole training."""
        from syncline.runs.training.train_and_time import time_method

        tensors, flops = self._tensors_and_flops(run)
        history = History((0,), run.steps, np.zeros((run.steps, 1)), {}, np.array([]), {}, (None,))
        read = dict.fromkeys(range(run.steps), method.readbacks(tensors))
        calls = calls_of(exchanges, run.steps)
        clock = time_method(
            run, Trained(method.name, history, calls, {}, flops, 0.0, tuple(tensors), read), run.network
        )
        assert clock is not None  # the training has steps
        return clock


def targets(cells: Sequence[TimedCell]) -> dict[str, float | None]:
    """Return the two target losses of the finals: one that all methods reached, and the final loss of the first."""
    finals = [cell for cell in cells if not cell.cell.extra]
    lasts = [cell.last_loss for cell in finals if cell.last_loss < float(median_and_range(cell.curve.loss)[0][0])]
    first = finals[0].last_loss if finals and math.isfinite(finals[0].last_loss) else None
    return {TO_ALL: max(lasts) if lasts else None, TO_FIRST: first}


def rows_over_networks(cells: Sequence[TimedCell], networks: Sequence[str]) -> StageRows:
    """Return a row per cell and network: loss, bytes and seconds; null without a clock, or for a loss not reached."""
    aims = targets(cells)
    return list(_rows_over_networks(cells, networks, aims))


def _rows_over_networks(
    cells: Sequence[TimedCell], networks: Sequence[str], aims: Mapping[str, float | None]
) -> Iterator[dict[str, Any]]:
    won = {(name, network): _seeds_won(cells, network, aim) for name, aim in aims.items() for network in networks}
    for cell in cells:
        middle = median_and_range(cell.curve.loss)[0]
        for network in networks:
            clock = cell.curve.clock_s.get(network)
            times = {
                name: None if clock is None or aim is None else _finite(time_to_target_s(clock, middle, aim))
                for name, aim in aims.items()
            }
            yield {
                "method": cell.cell.method, "setting": cell.cell.extra or FINALS, "network": network,
                "loss": _finite(cell.last_loss), "bytes_per_worker": _finite(cell.bytes_per_worker),
                "timed_by": cell.timed_by if network in cell.curve.clock_s else None,
                "step_time_s": cell.step_time_s.get(network), "training_s": None if clock is None else float(clock[-1]),
                **times, "to_all_loss": aims[TO_ALL], "to_first_loss": aims[TO_FIRST],
                **{WON[name]: won[name, network].get(cell.cell) for name in aims},
            }  # fmt: skip


def _seeds_won(cells: Sequence[TimedCell], network: str, aim: float | None) -> dict[Cell, int]:
    """Return for each method of the finals the number of seeds on which it is first at a loss, without ties."""
    raced = [cell for cell in cells if not cell.cell.extra and network in cell.curve.clock_s]
    if aim is None or not raced:
        return {}
    times = np.array(
        [
            [
                time_to_target_s(clock, loss, aim)
                for clock, loss in zip(cell.clock_s[network], cell.curve.loss, strict=True)
            ]
            for cell in raced
        ]
    )
    best = times.min(0)
    is_sole_first = (times == best) & ((times == best).sum(0) == 1) & np.isfinite(best)
    return {cell.cell: int(count) for cell, count in zip(raced, is_sole_first.sum(1), strict=True)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def firsts(rows: Sequence[Mapping[str, Any]], column: str, extras: bool = False) -> dict[str, Mapping[str, Any]]:
    """Return by network the row of the method that reaches a loss first; networks on which no method does are left out.

    Only the finals count, because the search tuned the knobs for their setting with equal effort, and for no extra.
    With ``extras`` all settings count. A network on which a method of the finals has no clock has no first method.
    """
    first_rows: dict[str, Mapping[str, Any]] = {}
    without = untimed(rows)
    for row in rows:
        if row["network"] not in without and (extras or row["setting"] == FINALS) and row[column] is not None:
            best = first_rows.get(row["network"])
            if best is None or row[column] < best[column]:
                first_rows[row["network"]] = row
    return first_rows


def untimed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the networks on which not all methods of the finals have a clock."""
    return list(dict.fromkeys(row["network"] for row in rows if row["setting"] == FINALS and row["timed_by"] is None))
