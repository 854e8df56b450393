"""Losses of a replication over networks: trained once, and timed on other networks by arithmetic."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from replication.replications.averages import AveragedTraining, Averages
from replication.replications.spec import Cell, ReplicationSpec
from replication.replications.stage_tables import CompletedStage, StageRows
from replication.replications.stages import ReplicationStage
from replication.timed_models import TimedModelSpec, timed_stages
from syncline import SpecError
from syncline.analysis import Curve, median_and_range, time_to_target_s
from syncline.costmodel import Exchange, TensorShape, calls_of
from syncline.methods import MethodBase
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.runs.sweep.grid import SweptSpec, configurations
from syncline.runs.sweep.identity import canonical
from syncline.runs.training.trained import Trained, regroups_after_failures, undisturbed_step_s
from syncline.sim import Clock
from syncline.sim.online.server_interface import AsyncResult
from syncline.specs import RunSpec
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

    def times_s(self, network: str, target: float) -> list[float]:
        """Return the seconds after which each seed reaches a loss on a network; infinite for a seed that never does."""
        by_seed = zip(self.clock_s[network], self.curve.loss, strict=True)
        return [time_to_target_s(clock_s, loss, target) for clock_s, loss in by_seed]


def networks_identity(spec: ReplicationSpec, stages: Sequence[ReplicationStage], code: str) -> str:
    """Return a digest of the inputs of a table of networks; ``code`` is the version of the code."""
    inputs = [stage.identity for stage in stages]
    inputs += [network if isinstance(network, str) else canonical(network) for network in spec.networks]
    if spec.pipeline_clock is not None:
        inputs.append(canonical(spec.pipeline_clock.model_dump(mode="json")))
    return hashlib.sha256("\n".join([*inputs, code]).encode()).hexdigest()[:20]


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
    problems, cells = _ProblemTimes(), []
    for stage in stages:
        runs_of_method: dict[str, list[RunSpec]] = {}
        trained_run = {run.method.name: run for run in runs_over(stage, (None,))}
        for run in runs_over(stage, spec.networks):
            runs_of_method.setdefault(run.method.name, []).append(run)
        extra = "" if stage.name == FINALS else stage.name.removeprefix("extra ")
        for label, runs in runs_of_method.items():
            rows = [row for row in completed[stage.name].rows if row["method"] == label]
            if rows:
                cell = Cell(label, extra)
                averaged = None if averages is None else averages.get(cell)
                cells.append(_timed_cell(cell, rows, runs, trained_run[label], problems, spec.pipeline_clock, averaged))
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


def _timed_cell(
    cell: Cell,
    rows: StageRows,
    runs: Sequence[RunSpec],
    trained_run: RunSpec,
    problems: _ProblemTimes,
    timed_model: TimedModelSpec | None,
    averages: Mapping[int, AveragedTraining] | None,
) -> TimedCell:
    """Return a method in a setting, timed on networks, see `timed_cells`.

    Args:
        cell: the method and the setting.
        rows: losses of the trainings, a row per seed and evaluation.
        runs: spec of a training on each network.
        trained_run: spec of the trainings that were made.
        problems: times of the methods on the problems.
        timed_model: model and hardware for the times of a pipeline's stages; None for the problem's own.
        averages: the steps at which each seed averaged; None if no trigger decides this.
    """
    steps, seeds = sorted({row["step"] for row in rows}), sorted({row["seed"] for row in rows})
    loss_at = {(row["seed"], row["step"]): row["loss"] for row in rows}
    loss = np.array([[loss_at.get((seed, step), math.nan) for step in steps] for seed in seeds])
    sent_bytes = {row["seed"]: row["bytes_per_worker"] for row in rows if row["bytes_per_worker"] is not None}
    mean_sent_bytes = fmean(sent_bytes.values()) if sent_bytes else math.nan
    clock_s: dict[str, np.ndarray] = {}  # by network
    step_time_s: dict[str, float] = {}
    compute_s = math.nan
    timed_by = CALLS if averages is None else AVERAGES
    for run in runs:
        name, method = run.network.name, run.method.in_precision(run.number_format)
        if regroups_after_failures(run, method):
            raise SpecError("failures.recovery", "elastic", "restart, where a training is timed on networks of its own")
        if asynchronous_of(method) is not None:
            timed_by, simulated = EVENTS, problems.simulated(run, method)
            if simulated is None:
                break
            step_time_s[name] = simulated.clock.step_time_s
            in_training = problems.simulated(trained_run, method)
            if in_training is None or not simulated.has_math_of(in_training, steps):
                continue
            clocks = [simulated.clock]
        elif run.pipeline is not None:
            timed_by, clocks = EVENTS, [timed_stages(run, method, timed_model).time(run.network)]
            mean_sent_bytes = clocks[0].bytes_per_worker
        else:
            clocks = []  # one for all seeds, or one for each
            for seed in [None] if averages is None else seeds:
                averaged = None if averages is None or seed is None else averages[seed].steps
                expected_bytes = mean_sent_bytes if seed is None else sent_bytes.get(seed, math.nan)
                exchanges = problems.exchanges(run, method, averaged)
                if exchanges is not None and _sends(exchanges, expected_bytes, run.steps):
                    clocks.append(problems.clock(run, method, exchanges))
            if len(clocks) < (1 if averages is None else len(seeds)):
                break
        clock_s[name] = np.stack([np.concatenate([[0.0], clock.step_end_s])[steps] for clock in clocks])
        step_time_s[name] = fmean(clock.step_time_s for clock in clocks)
        compute_s = clocks[0].compute_s
    mean_clock_s = {name: seed_clocks_s.mean(0) for name, seed_clocks_s in clock_s.items()}
    return TimedCell(
        cell, Curve(cell.method, np.array(steps), loss, mean_clock_s),
        clock_s={name: np.broadcast_to(seed_clocks_s, loss.shape) for name, seed_clocks_s in clock_s.items()},
        bytes_per_worker=mean_sent_bytes, step_time_s=step_time_s, compute_s=compute_s,
        timed_by=timed_by if clock_s else None,
    )  # fmt: skip


def _sends(exchanges: Sequence[Exchange], sent_bytes: float, steps: int) -> bool:
    """Return whether the exchanges of a training send this number of bytes per step."""
    bytes_per_step = sum(call.payload_bytes for call in calls_of(exchanges, steps)) / steps
    return math.isclose(bytes_per_step, sent_bytes, rel_tol=BYTES_AGREE)


class SimulatedWorkers(NamedTuple):
    """Simulated workers at their own pace on a network: their steps and updates, and the clock."""

    result: AsyncResult
    clock: Clock

    def has_math_of(self, other: SimulatedWorkers, steps: Sequence[int]) -> bool:
        """Return whether the math of both is the same: the order of the workers' steps, their models and versions.

        Args:
            other: the same workers on another network.
            steps: steps after which a model is evaluated, with the updates that have arrived by then.
        """
        if self.result.step_worker.tolist() != other.result.step_worker.tolist():
            return False
        updates, other_updates = self.result.columns(), other.result.columns()
        for name in ("worker", "steps", "model", "version"):
            if updates[name].tolist() != other_updates[name].tolist():
                return False
        evaluated = np.array([step - 1 for step in steps if step])
        arrived = np.searchsorted(updates["arrived_s"], self.clock.step_end_s[evaluated], side="right")
        other_arrived = np.searchsorted(other_updates["arrived_s"], other.clock.step_end_s[evaluated], side="right")
        return bool((arrived == other_arrived).all())


class _ProblemTimes:
    """The problems of runs: what methods send for each, and at which times; each result is computed once."""

    def __init__(self) -> None:
        self._tensors: dict[tuple[str, int], tuple[list[TensorShape], float | None]] = {}
        self._simulated: dict[tuple[str, str], SimulatedWorkers] = {}

    def _tensors_and_flops(self, run: RunSpec) -> tuple[list[TensorShape], float | None]:
        """Return the shapes of a problem's tensors, and the floating-point operations of one worker's step."""
        key = repr(run.problem), run.workers
        if key not in self._tensors:
            import torch

            from syncline.problems import Rows
            from syncline.runs.training.trained import build_task, task_tensors

            task = build_task(run.problem, Rows((run.seeds[0],), (0,), run.workers), torch.device("cpu"))
            self._tensors[key] = task_tensors(task), task.flops_per_step
        return self._tensors[key]

    def exchanges(self, run: RunSpec, method: MethodBase, averaged: Sequence[int] | None) -> list[Exchange] | None:
        """Return the exchanges in closed form, from the steps that averaged if only the training determines them."""
        tensors, _ = self._tensors_and_flops(run)
        if run.workers == 1:
            return []
        if averaged is None:
            return method.exchanges(tensors, run.workers)
        return method.exchanges_of_training(tensors, run.workers, run.steps, averaged)

    def simulated(self, run: RunSpec, method: MethodBase) -> SimulatedWorkers | None:
        """Return simulated workers at their own pace; None if batch sizes adapt, which only a training can do."""
        from syncline.runs.training.async_clock import async_plan, async_training_clock

        asynchronous = asynchronous_of(method)
        if asynchronous is None or asynchronous.dynamic_local_updates == "batch":
            return None
        key = run.network.name, canonical(run.model_dump(mode="json"))
        if key not in self._simulated:
            tensors, flops = self._tensors_and_flops(run)
            plan = async_plan(run, method, tensors, base_s=undisturbed_step_s(run, flops), network=run.network)
            result = plan.simulate()
            self._simulated[key] = SimulatedWorkers(result, async_training_clock(result, plan.settings, run.steps))
        return self._simulated[key]

    def clock(self, run: RunSpec, method: MethodBase, exchanges: Sequence[Exchange]) -> Clock:
        """Return the clock of a whole training."""
        from syncline.runs.training.train_and_time import time_method

        tensors, flops = self._tensors_and_flops(run)
        history = History((0,), run.steps, np.zeros((run.steps, 1)), {}, np.array([]), {}, (None,))  # without losses
        read = dict.fromkeys(range(run.steps), method.readbacks(tensors))
        calls = calls_of(exchanges, run.steps)
        trained = Trained(method.name, history, calls, {}, flops, 0.0, tuple(tensors), read)
        clock = time_method(run, trained, run.network)
        assert clock is not None  # the training has steps
        return clock


def targets(cells: Sequence[TimedCell]) -> dict[str, float | None]:
    """Return the two target losses of the finals: one that all methods reached, and the final loss of the first."""
    finals = [cell for cell in cells if not cell.cell.extra]
    reached = []  # last losses of the methods that improved
    for cell in finals:
        medians, _, _ = median_and_range(cell.curve.loss)
        if cell.last_loss < float(medians[0]):
            reached.append(cell.last_loss)
    loss_of_first = finals[0].last_loss if finals and math.isfinite(finals[0].last_loss) else None
    return {TO_ALL: max(reached, default=None), TO_FIRST: loss_of_first}


def rows_over_networks(cells: Sequence[TimedCell], networks: Sequence[str]) -> StageRows:
    """Return a row per cell and network: loss, bytes and seconds; null without a clock, or for a loss not reached."""
    target_losses, rows = targets(cells), []
    seeds_won: dict[tuple[str, str], dict[Cell, int]] = {}
    for network in networks:
        for name, target in target_losses.items():
            seeds_won[name, network] = _seeds_won(cells, network, target)
    for cell in cells:
        medians, _, _ = median_and_range(cell.curve.loss)
        for network in networks:
            clock = cell.curve.clock_s.get(network)
            row = {
                "method": cell.cell.method, "setting": cell.cell.extra or FINALS, "network": network,
                "loss": _finite(cell.last_loss), "bytes_per_worker": _finite(cell.bytes_per_worker),
                "timed_by": None if clock is None else cell.timed_by,
                "step_time_s": cell.step_time_s.get(network), "training_s": None if clock is None else float(clock[-1]),
            }  # fmt: skip
            for name, target in target_losses.items():
                row[name] = None
                if clock is not None and target is not None:
                    row[name] = _finite(time_to_target_s(clock, medians, target))
            row |= {"to_all_loss": target_losses[TO_ALL], "to_first_loss": target_losses[TO_FIRST]}
            row |= {WON[name]: seeds_won[name, network].get(cell.cell) for name in target_losses}
            rows.append(row)
    return rows


def _seeds_won(cells: Sequence[TimedCell], network: str, target: float | None) -> dict[Cell, int]:
    """Return for each method of the finals the number of seeds on which it is first at a loss, without ties."""
    timed = [cell for cell in cells if not cell.cell.extra and network in cell.curve.clock_s]
    if target is None or not timed:
        return {}
    times_s = np.array([cell.times_s(network, target) for cell in timed])
    first_s = times_s.min(0)
    is_first = times_s == first_s
    is_sole_first = is_first & (is_first.sum(0) == 1) & np.isfinite(first_s)
    return {cell.cell: int(count) for cell, count in zip(timed, is_sole_first.sum(1), strict=True)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def firsts(rows: Sequence[Mapping[str, Any]], column: str, extras: bool = False) -> dict[str, Mapping[str, Any]]:
    """Return by network the row of the method that reaches a loss first; networks on which no method does are left out.

    Only the finals count, because the search tuned the knobs for their setting with equal effort, and for no extra.
    With ``extras`` all settings count. A network on which a method of the finals has no clock has no first method.
    """
    first_rows: dict[str, Mapping[str, Any]] = {}
    untimed_networks = untimed(rows)
    for row in rows:
        counts = extras or row["setting"] == FINALS
        if not counts or row["network"] in untimed_networks or row[column] is None:
            continue
        best = first_rows.get(row["network"])
        if best is None or row[column] < best[column]:
            first_rows[row["network"]] = row
    return first_rows


def untimed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the networks on which not all methods of the finals have a clock."""
    return list(dict.fromkeys(row["network"] for row in rows if row["setting"] == FINALS and row["timed_by"] is None))
