"""A staleness study: methods trained with the delays of a pipeline's stages, and both kinds of pipeline's clocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.analysis import median_and_range, time_to_target_s
from syncline.analysis.statistics.curves import lost_seeds
from syncline.costmodel import Network
from syncline.costmodel.pipeline.closed_form import effective_delay, stage_delays
from syncline.runs.training.delayed_gradients.updates import (
    StageWork,
    UpdateTimes,
    asynchronous,
    stage_work,
    synchronous,
)
from syncline.specs.study import Piece, Record, Report
from syncline.studies.staleness.spec import LateMethod, StalenessSpec
from syncline.studies.staleness.training import check_device, train_late

if TYPE_CHECKING:
    from syncline.methods import MethodBase
    from syncline.training import History


@dataclass(frozen=True, eq=False)
class Path:
    """The loss of one method at one depth and rate.

    Args:
        lr: the learning rate.
        step: evaluated steps, ``(E,)``.
        loss: ``(S, E)``.
        diverged_at: per seed, None for one that did not.
    """

    lr: float
    step: np.ndarray
    loss: np.ndarray
    diverged_at: tuple[int | None, ...]

    def final(self) -> tuple[float, float, float]:
        """Median, lowest and highest final loss over the seeds; infinite where most seeds diverged."""
        return _final(self.loss[:, -1], self.diverged_at)

    def median(self) -> np.ndarray:
        """Over the seeds, ``(E,)``."""
        return median_and_range(self.loss)[0]

    def steps_to(self, target: float | None) -> float:
        """Steps until the median is at the target, between evaluations by a line; infinite if it never is."""
        return math.inf if target is None else time_to_target_s(self.step, self.median(), target)


def _final(loss: np.ndarray, diverged_at: Sequence[int | None]) -> tuple[float, float, float]:
    lost = np.array([step is not None for step in diverged_at])
    middle, low, high = median_and_range(np.where(lost, np.nan, loss)[:, None])
    return float(middle[0]), float(low[0]), float(high[0])


BestPaths = dict[tuple[str, int], Path]
"""The path that counts, by method and stages."""


def staleness_pieces(spec: StalenessSpec) -> list[Piece]:
    """One per training, in steps: of a training per rate, and of the best once more where it is tuned.

    Each returns a record per rate, seed and evaluation of every method that it is of.
    """
    return [
        Piece(
            spec.steps * (len(spec.rates_of(lates[0])) + spec.tunes(lates[0])),
            partial(late_records, spec, lates, stages),
        )
        for lates, stages in _trainings(spec)
    ]


def one_on_a_gpu(spec: StalenessSpec) -> int | None:
    """Processes side by side: a GPU serves one.

    Raises:
        SpecError: ``device: cuda`` where torch finds none.
    """
    check_device(spec)
    return 1 if spec.device == "cuda" else None


def _trainings(spec: StalenessSpec) -> list[tuple[list[LateMethod], int]]:
    """Methods and depths, the longest trainings first: those that go by the events.

    Without delay no remedy does anything: what differs in nothing else is trained once.
    """
    out: dict[Any, tuple[list[LateMethod], int]] = {}
    for late in spec.methods:
        for stages in spec.stages:
            plain = late.method.model_copy(update={"label": ""}), spec.rates_of(late)
            out.setdefault(plain if stages == 1 else (late.name, stages), ([], stages))[0].append(late)
    return sorted(out.values(), key=lambda one: one[0][0].weights == "stashed" or one[1] == 1)


def late_records(spec: StalenessSpec, lates: Sequence[LateMethod], stages: int, report: Report) -> list[Record]:
    """Train the first of these methods at one depth, at each of its rates, on behalf of them all.

    Where rates are tuned, trainings of the tuning seeds are evaluated at their ends alone.

    Returns:
        A record per method, rate, seed and evaluation; after Ctrl-C those there are, marked as interrupted.
    """
    first, records = lates[0], []
    before, finals = 0, dict[float, float]()

    def trained(of: StalenessSpec, lr: float) -> History:
        nonlocal before
        start, before = before, before + spec.steps
        history = train_late(of, first, stages, lr=lr, on_step=lambda done: report(start + done))
        for late in lates:
            records.extend(_records(late, stages, lr, history))
        return history

    tuning = spec.model_copy(update={"seeds": spec.tuning_seeds, "eval_every": 0}) if spec.tunes(first) else spec
    for lr in spec.rates_of(first):
        history = trained(tuning, lr)
        if history.interrupted:
            return records
        finals[lr] = _final(history.evaluation["loss"][-1], history.diverged_at)[0]
    if tuning is not spec:
        trained(spec, min(finals, key=finals.__getitem__))
    return records


def _records(late: LateMethod, stages: int, lr: float, history: History) -> list[Record]:
    means = _between(history)
    return [
        {
            "method": late.name,
            "stages": stages,
            "lr": lr,
            "seed": seed,
            "step": int(step),
            "loss": float(history.evaluation["loss"][e, s]),
            "train_loss": None if e == 0 else float(means[e - 1, s]),
            "diverged_at": history.diverged_at[s],
            "interrupted": history.interrupted,
        }
        for s, seed in enumerate(history.seeds)
        for e, step in enumerate(history.eval_step)
    ]


def _between(history: History) -> np.ndarray:
    """The training loss between evaluations, ``(E - 1, S)``."""
    steps = history.eval_step.tolist()
    parts = [history.loss[first:last].mean(0) for first, last in pairwise(steps)]
    return np.stack(parts) if parts else np.zeros((0, len(history.seeds)))


def paths(spec: StalenessSpec, records: Sequence[Record]) -> BestPaths:
    """Of each method and depth, the training with the lowest final loss, of those of its seeds that were finished."""
    grouped: dict[tuple[str, int, float], list[Record]] = {}
    for record in records:
        if record["seed"] in spec.seeds and not record["interrupted"]:
            grouped.setdefault((record["method"], record["stages"], record["lr"]), []).append(record)
    best: BestPaths = {}
    for (method, stages, lr), own in sorted(grouped.items()):
        path = _path(spec, lr, own)
        if (method, stages) not in best or path.final()[0] < best[method, stages].final()[0]:
            best[method, stages] = path
    return best


def _path(spec: StalenessSpec, lr: float, records: list[Record]) -> Path:
    found = {(record["seed"], record["step"]): record for record in records}
    steps = sorted({step for _, step in found})
    loss = [[found[seed, step]["loss"] for step in steps] for seed in spec.seeds]
    lost = tuple(found[seed, 0]["diverged_at"] for seed in spec.seeds)
    return Path(lr, np.array(steps), np.array(loss, dtype=float), lost)


def target_of(spec: StalenessSpec, best: BestPaths) -> float | None:
    """The loss whose steps are told: the spec's, or what every method reaches in half of its steps without delay.

    That is the highest, over the methods, of the losses of the plain trainings at the evaluation nearest to half of the
    steps; one that is not below where it began says nothing.
    """
    if spec.target_loss is not None:
        return spec.target_loss
    losses = []
    for late in spec.methods:
        if plain := best.get((late.name, 1)):
            half = 1 + int(abs(plain.step[1:] - spec.steps / 2).argmin())
            losses += [plain.median()[half]] if plain.median()[half] < plain.median()[0] else []
    return float(max(losses)) if losses else None


def staleness_rows(spec: StalenessSpec, records: list[Record]) -> list[Record]:
    """One row per method, depth and network that was finished, in the order of the spec; without networks one for all.

    Steps to the target, and so times, are those of the median over the seeds.
    """
    best = paths(spec, records)
    target = target_of(spec, best)
    networks: Sequence[Network | None] = spec.clock.networks if spec.clock else (None,)
    return [
        _losses(spec, late, stages, best, target) | _times(spec, late, stages, best, target, network)
        for late in spec.methods
        for stages in spec.stages
        if (late.name, stages) in best
        for network in networks
    ]


def _losses(spec: StalenessSpec, late: LateMethod, stages: int, best: BestPaths, target: float | None) -> Record:
    path, plain = best[late.name, stages], best.get((late.name, 1))
    loss, low, high = path.final()
    to_target, without = path.steps_to(target), plain.steps_to(target) if plain else math.inf
    known = math.isfinite(to_target) and math.isfinite(without) and without > 0
    diverged = [step for step in path.diverged_at if step is not None]
    return {
        "method": late.name,
        "remedy": late.remedy.kind if late.remedy else None,
        "weights": late.weights,
        "stages": stages,
        "effective_delay": effective_delay(stage_delays(stages)) if spec.delay == "per-stage" else float(stages - 1),
        "lr": path.lr,
        "steps": spec.steps,
        "seeds": len(path.loss),
        "loss": loss,
        "loss_min": low,
        "loss_max": high,
        "diverged_at": min(diverged) if diverged else None,
        "diverged_seeds": max(len(diverged), lost_seeds(path.loss)),
        "target_loss": target,
        "steps_to_target": to_target,
        "slowdown": to_target / without if known else None,
    }


def _times(
    spec: StalenessSpec, late: LateMethod, stages: int, best: BestPaths, target: float | None, network: Network | None
) -> Record:
    names = ("network", "update_s", "time_to_target_s", "sync_update_s", "sync_time_to_target_s", "speedup")
    if network is None:
        return dict.fromkeys(names)
    late_times, sync_times = clocks(spec, late, stages, network)
    own = time_to(best[late.name, stages], late_times, target)
    plain = best.get((late.name, 1))
    sync = time_to(plain, sync_times, target) if plain else math.inf
    known = math.isfinite(own) and math.isfinite(sync) and own > 0
    values = (network.name, late_times.update_s, own, sync_times.update_s, sync, sync / own if known else None)
    return dict(zip(names, values, strict=True))


def work_of(spec: StalenessSpec, method: MethodBase, stages: int) -> StageWork:
    """What a batch is to the pipeline that is timed."""
    assert spec.clock is not None
    model, tokens = spec.clock.timed(spec.problem)
    return stage_work(method, model, tokens, spec.clock.hardware, stages)


def clocks(spec: StalenessSpec, late: LateMethod, stages: int, network: Network) -> tuple[UpdateTimes, UpdateTimes]:
    """When a method's updates are done by an asynchronous and by a synchronous pipeline of so many stages."""
    assert spec.clock is not None
    work = work_of(spec, late.method, stages)
    return asynchronous(work, network), synchronous(work, network, spec.clock.microbatches)


def time_to(path: Path, times: UpdateTimes, target: float | None) -> float:
    """Seconds until a path is at the target; infinite if it never is."""
    steps = path.steps_to(target)
    return float(times.at(steps)) if math.isfinite(steps) else math.inf
