"""Losses of a replication over networks: when methods that were trained once get where on others, by arithmetic."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.analysis import Curve, median_and_range, time_to_target_s
from syncline.costmodel import calls_of
from syncline.errors import SpecError
from syncline.experiments.replicating.kept import KeptStage, StageRows
from syncline.experiments.replicating.stages import ReplicationStage
from syncline.experiments.sweep.grid import SweptSpec, configurations
from syncline.experiments.sweep.identity import canonical
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.specs import RunSpec
from syncline.specs.replications import Cell, ReplicationSpec
from syncline.specs.stages import TimedModelSpec

if TYPE_CHECKING:
    from syncline.costmodel import TensorShape
    from syncline.methods.base import MethodBase
    from syncline.sim import Clock

BYTES_AGREE = 1e-6
"""Relative: what a training sent is what its method's closed form says, or its clock depends on its values."""

NETWORKS_TABLE, FINALS = "networks.parquet", "finals"

TO_ALL, TO_FIRST = "to_all_s", "to_first_s"
"""Until the loss that every method of the finals reached; until the one with which the first of them ended."""

WON = {TO_ALL: "seeds_first_to_all", TO_FIRST: "seeds_first_to_first"}
"""On how many seeds a method of the finals is there before all others."""


@dataclass(frozen=True)
class TimedCell:
    """A method in a setting: its losses, and when each network's clock gets there.

    Args:
        cell: which.
        curve: losses ``(S, n)``, and clocks of those networks on which it could be timed.
        bytes_per_worker: mean per step, over the seeds.
        step_time_s: by network.
    """

    cell: Cell
    curve: Curve
    bytes_per_worker: float
    step_time_s: Mapping[str, float]

    @property
    def last_loss(self) -> float:
        """The median over the seeds; infinite where most diverged."""
        return float(median_and_range(self.curve.loss)[0][-1])


def networks_identity(spec: ReplicationSpec, stages: Sequence[ReplicationStage], code: str) -> str:
    """A digest of what a table of networks is made of."""
    asked = [one if isinstance(one, str) else canonical(one) for one in spec.networks]
    if spec.timed is not None:
        asked.append(canonical(spec.timed.model_dump(mode="json")))
    told = "\n".join([*(one.identity for one in stages), *asked, code])
    return hashlib.sha256(told.encode()).hexdigest()[:20]


def timed_cells(
    spec: ReplicationSpec, stages: Sequence[ReplicationStage], kept: Mapping[str, KeptStage]
) -> list[TimedCell]:
    """All cells of finals and extras that are whole, on the spec's networks; nothing is trained.

    A clock takes the calls that a method's closed form has, the same that its ledger holds. Where what was sent is not
    what it says, as with a trigger, a cell has no clock. Workers at their own pace are played on each network: the
    losses are of the order of events that trained, the times of that network's.

    Args:
        spec: what is replicated.
        stages: finals and extras that are whole, the finals first.
        kept: their tables, by name.
    """
    tasks, cells = _Tasks(), []
    for stage in stages:
        runs: dict[str, list[RunSpec]] = {}
        for run in _runs_over(spec, stage):
            runs.setdefault(run.method.name, []).append(run)
        extra = stage.name.removeprefix("extra ") if stage.name != FINALS else ""
        for label, of_networks in runs.items():
            rows = [row for row in kept[stage.name].rows if row["method"] == label]
            if rows:
                cells.append(_timed(Cell(label, extra), rows, of_networks, tasks, spec.timed))
    return cells


def _runs_over(spec: ReplicationSpec, stage: ReplicationStage) -> Iterator[RunSpec]:
    """Each method of a stage on each network; of an extra without those that cannot join as few, or as many."""
    one_seed = stage.parts()[0]  # where seeds differ in what they send, no closed form agrees with their mean
    for network in spec.networks:
        try:
            base = SweptSpec.of(one_seed.fields() | {"networks": [network]}, one_seed.overrides(), [])
            made = configurations(base, list(base.grids), one_seed.seeds)
        except SpecError:
            if stage.name == FINALS:
                raise
            continue
        for one in made:
            yield one.spec


def _timed(
    cell: Cell, rows: StageRows, runs: Sequence[RunSpec], tasks: _Tasks, timed: TimedModelSpec | None
) -> TimedCell:
    from syncline.experiments.late.staged import timed_stages
    from syncline.experiments.trained import Trained, time_method
    from syncline.training import History

    steps, seeds = sorted({row["step"] for row in rows}), sorted({row["seed"] for row in rows})
    at = {(row["seed"], row["step"]): row["loss"] for row in rows}
    loss = np.array([[at.get((seed, step), math.nan) for step in steps] for seed in seeds])
    sent = [row["bytes_per_worker"] for row in rows if row["bytes_per_worker"] is not None]
    sent_per_step = fmean(sent) if sent else math.nan
    clocks, step_s = {}, {}
    for run in runs:
        total = run.steps
        method = run.method.in_precision(run.number_format)
        if asynchronous_of(method) is not None:
            clock = _clock_apart(run, method, *tasks.of(run))
            if clock is None:
                break
            clocks[run.network.name] = np.concatenate([[0.0], clock.step_end_s])[steps]
            step_s[run.network.name] = clock.step_time_s
            continue
        if run.pipeline is not None:
            played = timed_stages(run, method, timed).time(run.network)
            sent_per_step = played.bytes_per_worker
            clocks[run.network.name] = np.concatenate([[0.0], played.step_end_s])[steps]
            step_s[run.network.name] = played.step_time_s
            continue
        tensors, flops = tasks.of(run)
        calls = calls_of(method.exchanges(tensors, run.workers), total) if run.workers > 1 else []
        if not math.isclose(sum(call.payload_bytes for call in calls) / total, sent_per_step, rel_tol=BYTES_AGREE):
            break
        history = History((0,), total, np.zeros((total, 1)), {}, np.array([]), {}, (None,))
        sizes = tuple(tensor.elements for tensor in tensors)
        clock = time_method(run, Trained(method.name, history, calls, {}, flops, 0.0, sizes), run.network)
        if clock is not None:
            clocks[run.network.name] = np.concatenate([[0.0], clock.step_end_s])[steps]
            step_s[run.network.name] = clock.step_time_s
    return TimedCell(cell, Curve(cell.method, np.array(steps), loss, clocks), sent_per_step, step_s)


def _clock_apart(run: RunSpec, method: MethodBase, tensors: Sequence[TensorShape], flops: float | None) -> Clock | None:
    """When workers at their own pace have made so many steps, of nobody's math; None where batches differ."""
    from syncline.experiments.elastic.clock_apart import clock_apart, plan_apart
    from syncline.experiments.trained import base_s

    how = asynchronous_of(method)
    if how is None or how.adapt == "batch":  # whose steps take what their own tasks say
        return None
    plan = plan_apart(run, method, tensors, base_s(run, flops), run.network)
    return clock_apart(plan.play(), plan.served, run.steps)


class _Tasks:
    """Shapes and operations of the problems at work, each found out once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[list[TensorShape], float | None]] = {}

    def of(self, run: RunSpec) -> tuple[list[TensorShape], float | None]:
        """Of one worker."""
        key = repr(run.problem), run.workers
        if key not in self._known:
            import torch

            from syncline.experiments.trained import build_task, task_tensors
            from syncline.problems import Rows

            task = build_task(run.problem, Rows((run.seeds[0],), (0,), run.workers), torch.device("cpu"))
            self._known[key] = task_tensors(task), task.flops_per_step
        return self._known[key]


def targets(cells: Sequence[TimedCell]) -> dict[str, float | None]:
    """The losses whose times are told, both of the finals: that which all reached, and the first method's last one."""
    finals = [one for one in cells if not one.cell.extra]
    lasts = [one.last_loss for one in finals if one.last_loss < float(median_and_range(one.curve.loss)[0][0])]
    first = finals[0].last_loss if finals and math.isfinite(finals[0].last_loss) else None
    return {TO_ALL: max(lasts) if lasts else None, TO_FIRST: first}


def rows_over_networks(cells: Sequence[TimedCell], networks: Sequence[str]) -> StageRows:
    """One per cell and network: loss, bytes, and seconds; null where there is no clock, or a loss was not reached."""
    aims = targets(cells)
    return list(_rows_over_networks(cells, networks, aims))


def _rows_over_networks(
    cells: Sequence[TimedCell], networks: Sequence[str], aims: Mapping[str, float | None]
) -> Iterator[dict[str, Any]]:
    won = {(name, network): _seeds_won(cells, network, aim) for name, aim in aims.items() for network in networks}
    for one in cells:
        middle = median_and_range(one.curve.loss)[0]
        for network in networks:
            clock = one.curve.clock_s.get(network)
            times = {
                name: None if clock is None or aim is None else _finite(time_to_target_s(clock, middle, aim))
                for name, aim in aims.items()
            }
            yield {
                "method": one.cell.method, "setting": one.cell.extra or FINALS, "network": network,
                "loss": _finite(one.last_loss), "bytes_per_worker": _finite(one.bytes_per_worker),
                "step_time_s": one.step_time_s.get(network), "training_s": None if clock is None else float(clock[-1]),
                **times, "to_all_loss": aims[TO_ALL], "to_first_loss": aims[TO_FIRST],
                **{WON[name]: won[name, network].get(one.cell) for name in aims},
            }  # fmt: skip


def _seeds_won(cells: Sequence[TimedCell], network: str, aim: float | None) -> dict[Cell, int]:
    """Of the finals: on how many seeds a method reaches a loss before all others; nobody does where two tie."""
    raced = [one for one in cells if not one.cell.extra and network in one.curve.clock_s]
    if aim is None or not raced:
        return {}
    times = np.array(
        [[time_to_target_s(one.curve.clock_s[network], loss, aim) for loss in one.curve.loss] for one in raced]
    )
    best = times.min(0)
    alone = (times == best) & ((times == best).sum(0) == 1) & np.isfinite(best)
    return {one.cell: int(count) for one, count in zip(raced, alone.sum(1), strict=True)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def firsts(rows: Sequence[Mapping[str, Any]], column: str, extras: bool = False) -> dict[str, Mapping[str, Any]]:
    """By network the row of the method that is the first at a loss; only networks on which one gets there.

    Of the finals alone: knobs were searched for their setting, with equal effort, and for that of no extra. With
    ``extras`` of all settings.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if (extras or row["setting"] == FINALS) and row[column] is not None:
            before = found.get(row["network"])
            if before is None or row[column] < before[column]:
                found[row["network"]] = row
    return found
