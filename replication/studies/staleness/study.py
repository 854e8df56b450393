"""Pieces and rows of a staleness study: losses under the delays of pipeline stages, and times of both pipelines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from replication.studies.staleness.spec import LateMethod, StalenessSpec
from replication.theory.basis_rotation import effective_delay
from replication.timed_models import stage_work
from syncline.analysis import lost_seeds, median_and_range, time_to_target_s
from syncline.costmodel import Network
from syncline.costmodel.layouts.pipelines import stage_delays
from syncline.methods import MethodBase
from syncline.runs.training.stage_updates import StageWork, UpdateTimes, async_update_times, sync_update_times
from syncline.specs import Piece, Record, Report

if TYPE_CHECKING:
    from syncline.training import History


@dataclass(frozen=True, eq=False)
class Path:
    """Losses of one method at one depth and learning rate.

    Args:
        lr: the learning rate.
        step: evaluated steps, ``(E,)``.
        loss: losses of S seeds at the evaluated steps, ``(S, E)``.
        diverged_at: per seed the step at which it diverged, or None.
    """

    lr: float
    step: np.ndarray
    loss: np.ndarray
    diverged_at: tuple[int | None, ...]

    def final(self) -> tuple[float, float, float]:
        """Return the median, lowest and highest final loss over the seeds; infinite if most seeds diverged."""
        return _final(self.loss[:, -1], self.diverged_at)

    def median(self) -> np.ndarray:
        """Return the median loss over the seeds at each evaluated step, ``(E,)``."""
        return median_and_range(self.loss)[0]

    def steps_to(self, target: float | None) -> float:
        """Return the steps until the median loss reaches the target; infinite if it never does.

        Losses between evaluations are interpolated linearly.
        """
        return math.inf if target is None else time_to_target_s(self.step, self.median(), target)


def _final(loss: np.ndarray, diverged_at: Sequence[int | None]) -> tuple[float, float, float]:
    """Return the median, lowest and highest of the final losses, ``(S,)``; seeds that diverged count as the worst."""
    has_diverged = np.array([step is not None for step in diverged_at])
    middle, low, high = median_and_range(np.where(has_diverged, np.nan, loss)[:, None])
    return float(middle[0]), float(low[0]), float(high[0])


BestPaths = dict[tuple[str, int], Path]
"""The path at the best learning rate, by method and number of stages."""


def staleness_pieces(spec: StalenessSpec) -> list[Piece]:
    """Return a piece per depth and distinct method; lengths are in steps.

    A piece trains at every rate, and at the best rate once more if rates are tuned. It returns a record per rate, seed
    and evaluation for every method that shares its trainings.
    """
    pieces = []
    for methods, stages in _trainings(spec):
        num_trainings = len(spec.rates_of(methods[0])) + spec.tunes_rate(methods[0])
        pieces.append(Piece(spec.steps * num_trainings, partial(late_records, spec, methods, stages)))
    return pieces


def max_processes(spec: StalenessSpec) -> int | None:
    """Return the number of parallel processes: one on a GPU, otherwise None for the default.

    Raises:
        SpecError: the spec has ``device: cuda`` but torch finds no GPU.
    """
    from replication.studies.staleness.training import check_device  # only here: torch is slow to load

    check_device(spec)
    return 1 if spec.device == "cuda" else None


def _trainings(spec: StalenessSpec) -> list[tuple[list[LateMethod], int]]:
    """Return groups of methods with a number of stages, one group per training.

    The longest trainings, which follow the events of the pipeline, come first. Without delay a remedy has no effect,
    so at one stage methods that differ only in their remedy share a training.
    """
    follow_events, others = list[tuple[list[LateMethod], int]](), list[tuple[list[LateMethod], int]]()
    undelayed: dict[Any, list[LateMethod]] = {}  # methods that share a training at one stage
    for delayed_method in spec.methods:
        for stages in spec.stages:
            if stages > 1:
                is_stashed = delayed_method.backward_weights == "stashed"
                (others if is_stashed else follow_events).append(([delayed_method], stages))
                continue
            key = delayed_method.method.model_copy(update={"label": ""}), spec.rates_of(delayed_method)
            if key not in undelayed:
                undelayed[key] = []
                others.append((undelayed[key], stages))
            undelayed[key].append(delayed_method)
    return follow_events + others


def late_records(
    spec: StalenessSpec, delayed_methods: Sequence[LateMethod], stages: int, report: Report
) -> list[Record]:
    """Train the first of these methods at one depth, at each of its rates, and record it for all of them.

    If rates are tuned, trainings of the tuning seeds are evaluated only at their ends.

    Returns:
        A record per method, rate, seed and evaluation; after Ctrl-C the existing records, marked as interrupted.
    """
    from replication.studies.staleness import training  # only here: torch is slow to load

    first, records = delayed_methods[0], []
    steps_before, final_losses = 0, dict[float, float]()  # steps of earlier trainings, and losses by rate

    def train(seeds_spec: StalenessSpec, lr: float) -> History:
        """Train at a rate on the seeds of a spec, and record the losses for all methods."""
        nonlocal steps_before
        start, steps_before = steps_before, steps_before + spec.steps
        history = training.train_late(seeds_spec, first, stages, lr=lr, on_step=lambda done: report(start + done))
        for delayed_method in delayed_methods:
            records.extend(_records(delayed_method, stages, lr, history))
        return history

    tuning_spec = spec
    if spec.tunes_rate(first):
        tuning_spec = spec.model_copy(update={"seeds": spec.tuning_seeds, "eval_every": 0})
    for lr in spec.rates_of(first):
        history = train(tuning_spec, lr)
        if history.interrupted:
            return records
        final_losses[lr], _, _ = _final(history.evaluation["loss"][-1], history.diverged_at)
    if tuning_spec is not spec:
        train(spec, lr=min(final_losses, key=final_losses.__getitem__))
    return records


def _records(delayed_method: LateMethod, stages: int, lr: float, history: History) -> list[Record]:
    """Return a record per seed and evaluation of a training, with the mean training loss since the last evaluation."""
    steps, records = history.eval_step.tolist(), []
    for seed_index, seed in enumerate(history.seeds):
        for index, step in enumerate(steps):
            train_loss = None
            if index > 0:
                train_loss = float(history.loss[steps[index - 1] : step].mean(0)[seed_index])
            records.append({
                "method": delayed_method.name, "stages": stages, "lr": lr, "seed": seed, "step": step,
                "loss": float(history.evaluation["loss"][index, seed_index]), "train_loss": train_loss,
                "diverged_at": history.diverged_at[seed_index], "interrupted": history.interrupted,
            })  # fmt: skip
    return records


def paths(spec: StalenessSpec, records: Sequence[Record]) -> BestPaths:
    """Return the path with the lowest median final loss per method and depth, among the finished trainings."""
    grouped: dict[tuple[str, int, float], list[Record]] = {}
    for record in records:
        if record["seed"] in spec.seeds and not record["interrupted"]:
            grouped.setdefault((record["method"], record["stages"], record["lr"]), []).append(record)
    best: BestPaths = {}
    for (method, stages, lr), group in sorted(grouped.items()):
        path = _path(spec, lr, group)
        if (method, stages) not in best or path.final()[0] < best[method, stages].final()[0]:
            best[method, stages] = path
    return best


def _path(spec: StalenessSpec, lr: float, records: list[Record]) -> Path:
    by_seed_and_step = {(record["seed"], record["step"]): record for record in records}
    steps = sorted({step for _, step in by_seed_and_step})
    loss = [[by_seed_and_step[seed, step]["loss"] for step in steps] for seed in spec.seeds]
    diverged_at = tuple(by_seed_and_step[seed, 0]["diverged_at"] for seed in spec.seeds)
    return Path(lr, np.array(steps), np.array(loss, dtype=float), diverged_at)


def target_of(spec: StalenessSpec, best: BestPaths) -> float | None:
    """Return the target loss: that of the spec, or one that every method reaches in half of its steps without delay.

    The latter is the highest loss, over the methods, of the trainings without delay at the evaluation nearest to half
    of the steps. A training whose loss there is not below its initial loss is ignored. Without any, the result is None.
    """
    if spec.target_loss is not None:
        return spec.target_loss
    losses = []
    for delayed_method in spec.methods:
        undelayed = best.get((delayed_method.name, 1))
        if undelayed is None:
            continue
        medians = undelayed.median()
        halfway = 1 + int(abs(undelayed.step[1:] - spec.steps / 2).argmin())
        if medians[halfway] < medians[0]:
            losses.append(medians[halfway])
    return float(max(losses)) if losses else None


def staleness_rows(spec: StalenessSpec, records: list[Record]) -> list[Record]:
    """Return a row per finished method, depth and network, in the order of the spec.

    Without networks there is a row per method and depth. Steps and times to the target are those of the median loss
    over the seeds.
    """
    best = paths(spec, records)
    target = target_of(spec, best)
    networks: Sequence[Network | None] = spec.clock.networks if spec.clock else (None,)
    rows = []
    for delayed_method in spec.methods:
        for stages in spec.stages:
            if (delayed_method.name, stages) not in best:
                continue
            losses = _losses(spec, delayed_method, stages, best, target)
            rows += [losses | _times(spec, delayed_method, stages, best, target, network) for network in networks]
    return rows


def _losses(
    spec: StalenessSpec, delayed_method: LateMethod, stages: int, best: BestPaths, target: float | None
) -> Record:
    """Return the columns of a row about losses and steps, without the clock."""
    path, undelayed = best[delayed_method.name, stages], best.get((delayed_method.name, 1))
    loss, low, high = path.final()
    steps_to_target = path.steps_to(target)
    undelayed_steps = math.inf if undelayed is None else undelayed.steps_to(target)
    is_finite = math.isfinite(steps_to_target) and math.isfinite(undelayed_steps) and undelayed_steps > 0
    diverged_at = [step for step in path.diverged_at if step is not None]
    delay = effective_delay(stage_delays(stages)) if spec.delay == "per-stage" else float(stages - 1)
    return {
        "method": delayed_method.name, "remedy": delayed_method.remedy.kind if delayed_method.remedy else None,
        "backward_weights": delayed_method.backward_weights, "stages": stages, "effective_delay": delay,
        "lr": path.lr, "steps": spec.steps, "seeds": len(path.loss), "loss": loss, "loss_min": low, "loss_max": high,
        "diverged_at": min(diverged_at, default=None), "diverged_seeds": max(len(diverged_at), lost_seeds(path.loss)),
        "target_loss": target, "steps_to_target": steps_to_target,
        "slowdown": steps_to_target / undelayed_steps if is_finite else None,
    }  # fmt: skip


def _times(
    spec: StalenessSpec,
    delayed_method: LateMethod,
    stages: int,
    best: BestPaths,
    target: float | None,
    network: Network | None,
) -> Record:
    """Return the columns of a row about the times of both pipelines; all are None without a network."""
    if network is None:
        names = ("network", "update_s", "time_to_target_s", "sync_update_s", "sync_time_to_target_s", "speedup")
        return dict.fromkeys(names)
    late_times, sync_times = clocks(spec, delayed_method, stages, network)
    late_s = time_to(best[delayed_method.name, stages], late_times, target)
    undelayed = best.get((delayed_method.name, 1))
    sync_s = time_to(undelayed, sync_times, target) if undelayed else math.inf
    is_finite = math.isfinite(late_s) and math.isfinite(sync_s) and late_s > 0
    return {
        "network": network.name, "update_s": late_times.update_s, "time_to_target_s": late_s,
        "sync_update_s": sync_times.update_s, "sync_time_to_target_s": sync_s,
        "speedup": sync_s / late_s if is_finite else None,
    }  # fmt: skip


def work_of(spec: StalenessSpec, method: MethodBase, stages: int) -> StageWork:
    """Return the work of a batch in the stages of the pipeline that the clock times."""
    assert spec.clock is not None
    model, tokens = spec.clock.model_and_tokens(spec.problem)
    return stage_work(method, model, tokens, spec.clock.hardware, stages)


def clocks(
    spec: StalenessSpec, delayed_method: LateMethod, stages: int, network: Network
) -> tuple[UpdateTimes, UpdateTimes]:
    """Return the times of a method's updates in an asynchronous and in a synchronous pipeline of ``stages`` stages."""
    assert spec.clock is not None
    work = work_of(spec, delayed_method.method, stages)
    return async_update_times(work, network), sync_update_times(work, network, spec.clock.microbatches)


def time_to(path: Path, times: UpdateTimes, target: float | None) -> float:
    """Return the seconds until the median loss of a path reaches the target; infinite if it never does."""
    steps = path.steps_to(target)
    return float(times.seconds_until(steps)) if math.isfinite(steps) else math.inf
