"""Losses of a replication over networks: when methods that were trained once get where on others, by arithmetic."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from syncline.analysis import Curve, median_and_range, time_to_target_s
from syncline.costmodel import calls_of
from syncline.errors import SpecError
from syncline.experiments.elastic.reforming import reforms
from syncline.experiments.replicating.averages import AveragedTraining, Averages
from syncline.experiments.replicating.kept import KeptStage, StageRows
from syncline.experiments.replicating.stages import ReplicationStage
from syncline.experiments.sweep.grid import SweptSpec, configurations
from syncline.experiments.sweep.identity import canonical
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.specs import RunSpec
from syncline.specs.replications import Cell, ReplicationSpec
from syncline.specs.stages import TimedModelSpec

if TYPE_CHECKING:
    from syncline.costmodel import Exchange, TensorShape
    from syncline.methods import MethodBase
    from syncline.sim import Clock
    from syncline.sim.online.served import PlayedApart

BYTES_AGREE = 1e-6
"""Relative: what a training sent is what its method's closed form says, or its clock depends on its values."""

NETWORKS_TABLE, FINALS = "networks.parquet", "finals"

CALLS, AVERAGES, EVENTS = "calls", "averages", "events"
"""What a clock is made of: calls in closed form; the steps that were seen to average; events."""

TO_ALL, TO_FIRST = "to_all_s", "to_first_s"
"""Until the loss that every method of the finals reached; until the one with which the first of them ended."""

WON = {TO_ALL: "seeds_first_to_all", TO_FIRST: "seeds_first_to_first"}
"""On how many seeds a method of the finals is there before all others."""


@dataclass(frozen=True)
class TimedCell:
    """A method in a setting: its losses, and when each network's clock gets there.

    Args:
        cell: which.
        curve: losses ``(S, n)``, and clocks of those networks on which it could be timed, means over the seeds.
        clock_s: by network the clock of each seed, ``(S, n)``.
        bytes_per_worker: mean per step, over the seeds.
        step_time_s: by network, mean over the seeds.
        timed_by: `CALLS`, `AVERAGES` or `EVENTS`; none where it has no clock.
    """

    cell: Cell
    curve: Curve
    clock_s: Mapping[str, np.ndarray]
    bytes_per_worker: float
    step_time_s: Mapping[str, float]
    timed_by: str | None

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
    spec: ReplicationSpec,
    stages: Sequence[ReplicationStage],
    kept: Mapping[str, KeptStage],
    averages: Averages | None = None,
) -> list[TimedCell]:
    """All cells of finals and extras that are whole, on the spec's networks; nothing is trained.

    A clock takes the calls that a method's closed form has, the same that its ledger holds; of a method with a trigger
    those of the steps that each seed was seen to average, whose losses no network changes. Workers at their own pace
    are played, and have a clock where all come in the order of the training, so that its losses are those of that
    network; else that would be another training, of which the step time alone is told. Where what was sent is not what
    is said, a cell has no clock either.

    Args:
        spec: what is replicated.
        stages: finals and extras that are whole, the finals first.
        kept: their tables, by name.
        averages: which steps averaged, of the cells that say so.
    """
    tasks, cells = _Tasks(), []
    for stage in stages:
        runs: dict[str, list[RunSpec]] = {}
        trained = {run.method.name: run for run in _runs_over(stage, (None,))}
        for run in _runs_over(stage, spec.networks):
            runs.setdefault(run.method.name, []).append(run)
        extra = stage.name.removeprefix("extra ") if stage.name != FINALS else ""
        for label, of_networks in runs.items():
            rows = [row for row in kept[stage.name].rows if row["method"] == label]
            if rows:
                cell = Cell(label, extra)
                seen = (averages or {}).get(cell)
                cells.append(_timed(cell, rows, of_networks, tasks, spec.timed, seen, trained[label]))
    return cells


def _runs_over(stage: ReplicationStage, networks: Sequence[Any]) -> Iterator[RunSpec]:
    """Each method of a stage on each network, None being that of the trainings.

    Of an extra without those that cannot join as few workers, or as many.
    """
    one_seed = stage.parts()[0]  # where seeds differ in what they send, no closed form agrees with their mean
    for network in networks:
        try:
            own = {} if network is None else {"networks": [network]}
            base = SweptSpec.of(one_seed.fields() | own, one_seed.overrides(), [])
            made = configurations(base, list(base.grids), one_seed.seeds)
        except SpecError:
            if stage.name == FINALS:
                raise
            continue
        for one in made:
            yield one.spec


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
    at = {(row["seed"], row["step"]): row["loss"] for row in rows}
    loss = np.array([[at.get((seed, step), math.nan) for step in steps] for seed in seeds])
    sent = {row["seed"]: row["bytes_per_worker"] for row in rows if row["bytes_per_worker"] is not None}
    sent_per_step = fmean(sent.values()) if sent else math.nan
    clocks: dict[str, np.ndarray] = {}
    step_s: dict[str, float] = {}
    by = CALLS if seen is None else AVERAGES
    for run in runs:
        method = run.method.in_precision(run.number_format)
        if reforms(run, method):
            raise SpecError("failures.recovery", "reform", "restart, where a training is timed on networks of its own")
        if asynchronous_of(method) is not None:
            played = tasks.played(run, method)
            if played is None:
                break
            step_s[run.network.name] = played.clock.step_time_s
            own = tasks.played(trained, method)
            if own is None or not played.in_order_of(own, steps):
                continue
            by, ends = EVENTS, [played.clock]
        elif run.pipeline is not None:
            from syncline.experiments.late.staged import timed_stages

            by, ends = EVENTS, [timed_stages(run, method, timed).time(run.network)]
            sent_per_step = ends[0].bytes_per_worker
        else:
            averaged = [None] if seen is None else [seen[seed].steps for seed in seeds]
            told = [sent_per_step] if seen is None else [sent.get(seed, math.nan) for seed in seeds]
            found = [tasks.exchanges(run, method, one) for one in averaged]
            exchanges = [one for one in found if one is not None]
            if len(exchanges) < len(told) or not all(map(partial(_agree, steps=run.steps), exchanges, told)):
                break
            ends = [tasks.clock(run, method, one) for one in exchanges]
        name = run.network.name
        clocks[name] = np.stack([np.concatenate([[0.0], one.step_end_s])[steps] for one in ends])
        step_s[name] = fmean(one.step_time_s for one in ends)
    curve = Curve(cell.method, np.array(steps), loss, {name: of_seeds.mean(0) for name, of_seeds in clocks.items()})
    by_seed = {name: np.broadcast_to(of_seeds, loss.shape) for name, of_seeds in clocks.items()}
    return TimedCell(cell, curve, by_seed, sent_per_step, step_s, by if clocks else None)


def _agree(exchanges: Sequence[Exchange], sent_per_step: float, steps: int) -> bool:
    """Whether they are what was sent."""
    told = sum(call.payload_bytes for call in calls_of(exchanges, steps)) / steps
    return math.isclose(told, sent_per_step, rel_tol=BYTES_AGREE)


class PlayedCell(NamedTuple):
    """Workers at their own pace on a network: who came when, and the clock of it."""

    played: PlayedApart
    clock: Clock

    def in_order_of(self, other: PlayedCell, steps: Sequence[int]) -> bool:
        """Whether the math of both is the same: who steps after whom, with which model, in which version.

        Args:
            other: on another network.
            steps: after which a model is evaluated, with what has arrived by then.
        """
        if self.played.step_worker.tolist() != other.played.step_worker.tolist():
            return False
        ones, others = self.played.columns(), other.played.columns()
        if any(ones[name].tolist() != others[name].tolist() for name in ("worker", "steps", "model", "version")):
            return False
        at = np.array([step - 1 for step in steps if step])
        seen = [
            np.searchsorted(columns["arrived_s"], cell.clock.step_end_s[at], side="right")
            for columns, cell in ((ones, self), (others, other))
        ]
        return bool((seen[0] == seen[1]).all())


class _Tasks:
    """The problems at work: what methods send of each, and when; each is made once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[list[TensorShape], float | None]] = {}
        self._played: dict[tuple[str, str], PlayedCell] = {}

    def _of(self, run: RunSpec) -> tuple[list[TensorShape], float | None]:
        """Shapes and operations of one worker."""
        key = repr(run.problem), run.workers
        if key not in self._known:
            import torch

            from syncline.experiments.trained import build_task, task_tensors
            from syncline.problems import Rows

            task = build_task(run.problem, Rows((run.seeds[0],), (0,), run.workers), torch.device("cpu"))
            self._known[key] = task_tensors(task), task.flops_per_step
        return self._known[key]

    def exchanges(self, run: RunSpec, method: MethodBase, averaged: Sequence[int] | None) -> list[Exchange] | None:
        """In closed form; with the steps that averaged, where these are known only afterwards."""
        tensors, _ = self._of(run)
        if run.workers == 1:
            return []
        if averaged is None:
            return method.exchanges(tensors, run.workers)
        return method.exchanges_at(tensors, run.workers, run.steps, averaged)

    def played(self, run: RunSpec, method: MethodBase) -> PlayedCell | None:
        """Workers at their own pace, without math; None where their batches differ, whose times their own tasks say."""
        from syncline.experiments.elastic.clock_apart import clock_apart, plan_apart
        from syncline.experiments.trained import base_s

        how = asynchronous_of(method)
        if how is None or how.adapt == "batch":
            return None
        key = run.network.name, canonical(run.model_dump(mode="json"))
        if key not in self._played:
            tensors, flops = self._of(run)
            plan = plan_apart(run, method, tensors, base_s(run, flops), run.network)
            played = plan.play()
            self._played[key] = PlayedCell(played, clock_apart(played, plan.served, run.steps))
        return self._played[key]

    def clock(self, run: RunSpec, method: MethodBase, exchanges: Sequence[Exchange]) -> Clock:
        """Of a whole training."""
        from syncline.experiments.trained import Trained, time_method
        from syncline.training import History

        tensors, flops = self._of(run)
        history = History((0,), run.steps, np.zeros((run.steps, 1)), {}, np.array([]), {}, (None,))
        read = dict.fromkeys(range(run.steps), method.readbacks(tensors))
        calls = calls_of(exchanges, run.steps)
        clock = time_method(
            run, Trained(method.name, history, calls, {}, flops, 0.0, tuple(tensors), read), run.network
        )
        assert clock is not None  # it has steps
        return clock


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
                "timed_by": one.timed_by if network in one.curve.clock_s else None,
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
        [
            [
                time_to_target_s(clock, loss, aim)
                for clock, loss in zip(one.clock_s[network], one.curve.loss, strict=True)
            ]
            for one in raced
        ]
    )
    best = times.min(0)
    alone = (times == best) & ((times == best).sum(0) == 1) & np.isfinite(best)
    return {one.cell: int(count) for one, count in zip(raced, alone.sum(1), strict=True)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def firsts(rows: Sequence[Mapping[str, Any]], column: str, extras: bool = False) -> dict[str, Mapping[str, Any]]:
    """By network the row of the method that is the first at a loss; only networks on which one gets there.

    Of the finals alone: knobs were searched for their setting, with equal effort, and for that of no extra. With
    ``extras`` of all settings. Nobody is where not all of the finals have a clock.
    """
    found: dict[str, Mapping[str, Any]] = {}
    without = untimed(rows)
    for row in rows:
        if row["network"] not in without and (extras or row["setting"] == FINALS) and row[column] is not None:
            before = found.get(row["network"])
            if before is None or row[column] < before[column]:
                found[row["network"]] = row
    return found


def untimed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Networks on which not all methods of the finals have a clock."""
    return list(dict.fromkeys(row["network"] for row in rows if row["setting"] == FINALS and row["timed_by"] is None))
