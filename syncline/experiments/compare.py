"""``syncline compare``: several methods trained once each, and timed on several networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from syncline.costmodel import Network
from syncline.costmodel.compute.hardware import HARDWARE
from syncline.experiments.bounds import Varied
from syncline.experiments.clock_bounds import bounds_record, clock_bounds, speedup_bounds
from syncline.experiments.curves import Bounds, Clocks, write_curves
from syncline.experiments.elastic.reforming import goes_by_clock
from syncline.experiments.figures import compare_figures
from syncline.experiments.folder import RunFolder, environment
from syncline.experiments.limits import check_training, tensors_of_problem
from syncline.experiments.measured_step import with_measured_step
from syncline.experiments.records import clock_record, final_loss, reachable_target, time_to_target
from syncline.experiments.shared_progress import SharedProgress, Watched, shared_progress, side_by_side
from syncline.experiments.streams import TrainingStream
from syncline.experiments.tables import (
    ledger_columns,
    metrics_tables,
    side_by_side_trace,
    timeline_columns,
    write_contributions,
    write_watched,
)
from syncline.experiments.trained import Trained, jobs_of, time_method, train_method, where_trained
from syncline.sim import Clock
from syncline.specs import CompareSpec, MethodBase


def compare(
    spec: CompareSpec,
    out: Path,
    *,
    exact: bool = False,
    jobs: int | None = None,
    figures: bool = True,
    on_progress: Callable[[list[int]], None] | None = None,
) -> dict[str, Any]:
    """Train each method once, time it on every network, and write the folder.

    Args:
        spec: what to compare.
        out: the folder to write; see ``RunFolder`` for ``exact``.
        jobs: processes that train side by side; one per core if none. It does not change any number.
        figures: whether the folder gets pictures.
        on_progress: called now and then with the completed steps of each method.

    Returns:
        ``rows`` (one per method and network), ``folder``, ``target_loss``, ``interrupted``. After Ctrl-C there are rows
        of every method that completed a step.
    """
    check_training(spec, *spec.methods)
    spec, step_s = with_measured_step(spec)
    with (
        RunFolder(out, exact) as folder,
        shared_progress(len(trainings(spec))) as progress,
        Watched(progress, on_progress and partial(_by_method, spec, on_progress)),
    ):
        folder.spec(spec)
        finished: list[Trained] = []
        for trained in _train_all(spec, folder, progress, jobs or jobs_of(spec)):
            finished = _in_order([*finished, trained], spec)
        folder.long_table("metrics", metrics_tables(finished))
        folder.table("ledger", ledger_columns(finished))
        write_watched(folder, finished)
        clocks: dict[tuple[str, str], Clock] = {}
        varied: dict[tuple[str, str], tuple[Varied, str]] = {}
        for trained in finished:
            for link in spec.networks:
                timed = time_method(spec, trained, link)
                if timed:
                    clocks[trained.method, link.name] = timed
                    again = partial(time_method, spec, trained, link)
                    varied[trained.method, link.name] = clock_bounds(spec, link, timed, again, step_s is not None)
        bounds = _bounds(spec, clocks, varied)
        target = reachable_target(finished) if spec.target_loss is None else spec.target_loss
        rows = [
            _record(spec, one, link, clocks, bounds, target)
            for link in spec.networks
            for one in finished
            if (one.method, link.name) in clocks
        ]
        _write(folder, spec, finished, clocks, bounds, rows, figures, step_s)
        interrupted = progress.stopped
    return {
        "rows": rows,
        "folder": str(folder.path),
        "target_loss": target,
        "interrupted": interrupted,
        "measured_step_s": step_s,
    }


def _train_all(spec: CompareSpec, folder: RunFolder, progress: SharedProgress, jobs: int | None) -> Iterator[Trained]:
    """Trainings as they finish; those that a stop left without a single step are not among them."""
    calls = [
        partial(train_method, spec, method, progress.reporter(i), TrainingStream(folder.working, i, method.name), link)
        for i, (method, link) in enumerate(trainings(spec))
    ]
    turns = range(len(calls)) if jobs == 1 else longest_first(spec)
    for trained in side_by_side([calls[i] for i in turns], jobs, progress, [spec.problem]):
        if trained.history.steps:
            yield trained


def trainings(spec: CompareSpec) -> list[tuple[MethodBase, Network | None]]:
    """Each method once; one that goes by the clock on each network, which decides who comes when, and named by it."""
    out: list[tuple[MethodBase, Network | None]] = []
    for method in spec.methods:
        if not goes_by_clock(spec, method):
            out.append((method, None))
            continue
        out += [(method.model_copy(update={"label": name_on(spec, method, link)}), link) for link in spec.networks]
    return out


def _by_method(spec: CompareSpec, tell: Callable[[list[int]], None], done: list[int]) -> None:
    """Tell of each method the steps that all of its trainings have completed."""
    of = iter(done)
    tell([min(next(of) for _ in (spec.networks if goes_by_clock(spec, method) else [0])) for method in spec.methods])


def name_on(spec: CompareSpec, method: MethodBase, network: Network) -> str:
    """What a method's training is called that is timed on a network."""
    alone = not goes_by_clock(spec, method) or len(spec.networks) == 1
    return method.name if alone else f"{method.name} on {network.name}"


def longest_first(spec: CompareSpec) -> list[int]:
    """The trainings in the order in which processes take them: a long one that begins last is waited for alone."""
    work = [_added_work(spec, method) for method, _ in trainings(spec)]
    return sorted(range(len(work)), key=work.__getitem__, reverse=True)


def _added_work(spec: CompareSpec, method: MethodBase) -> tuple[int, float, float]:
    """What a method does beside the gradients, which take all as long: the more, the longer it trains.

    Seeds that take turns; fp32 bytes that are encoded in a step; seconds of matrix products in an update.
    """
    turns = len(spec.seeds) if method.one_seed_at_a_time else 1
    tensors = tensors_of_problem(spec.problem)
    if tensors is None:
        return turns, 0.0, 0.0
    encoded = sum(float(one.encoded_bytes) / one.period for one in method.exchanges(tensors, spec.workers))
    return turns, encoded, method.added_update_s(tensors, HARDWARE["cpu-core"])


def _in_order(trained: list[Trained], spec: CompareSpec) -> list[Trained]:
    order = [method.name for method, _ in trainings(spec)]
    return sorted(trained, key=lambda one: order.index(one.method))


def _bounds(spec: CompareSpec, clocks: Clocks, varied: dict[tuple[str, str], tuple[Varied, str]]) -> Bounds:
    """Of each method on each network; of speedups None where the first method is missing."""
    told, links = {}, {link.name: link for link in spec.networks}
    for (method, network), clock in clocks.items():
        times, basis = varied[method, network]
        first = name_on(spec, spec.methods[0], links[network]), network
        sooner: dict[str, float | None] = {"speedup_low": None, "speedup_high": None}
        if first in clocks:
            sooner = {**speedup_bounds(clock, times, clocks[first], varied[first][0])}
        told[method, network] = bounds_record(clock, times, basis) | sooner
    return told


def _record(
    spec: CompareSpec, one: Trained, network: Network, clocks: Clocks, bounds: Bounds, target: float | None
) -> dict[str, Any]:
    """One row. Speedups are against the first method, on the same network; None where that one is missing."""
    timed = clocks[one.method, network.name]
    baseline = clocks.get((name_on(spec, spec.methods[0], network), network.name))
    loss, loss_min, loss_max = final_loss(one)
    diverged = [step for step in one.history.diverged_at if step is not None]
    return {
        "method": one.method,
        "network": network.name,
        "workers": spec.workers,
        "steps": one.history.steps,
        **clock_record(timed),
        "speedup": baseline.step_time_s / timed.step_time_s if baseline else None,
        **bounds[one.method, network.name],
        "loss": loss,
        "loss_min": loss_min,
        "loss_max": loss_max,
        "target_loss": target,
        "time_to_target_s": time_to_target(one, timed, target),
        "diverged_at": min(diverged) if diverged else None,
        "diverged_seeds": len(diverged),
        "interrupted": one.history.interrupted,
        **(one.apart.record() if one.apart is not None else {}),
    }


def _write(
    folder: RunFolder,
    spec: CompareSpec,
    finished: list[Trained],
    clocks: Clocks,
    bounds: Bounds,
    rows: list[dict[str, Any]],
    figures: bool,
    step_s: float | None,
) -> None:
    first = {(name_on(spec, spec.methods[0], link), link.name) for link in spec.networks}
    baseline = {row["network"]: row["time_to_target_s"] for row in rows if (row["method"], row["network"]) in first}
    for row in rows:
        own, base = row["time_to_target_s"], baseline.get(row["network"], math.inf)
        row["time_to_target_speedup"] = base / own if math.isfinite(own) and math.isfinite(base) and own else None
    folder.json(
        "run",
        environment()
        | where_trained(spec)
        | {
            "seeds": spec.seeds,
            "wall_s": {one.method: one.wall_s for one in finished},
            "measured_step_s": step_s,
            "interrupted": [one.method for one in finished if one.history.interrupted],
            "problem": finished[0].facts if finished else None,
            "rows": rows,
        },
    )
    if not finished:
        return
    target = rows[0]["target_loss"]
    write_curves(folder, spec, finished, clocks, {link.name: link for link in spec.networks}, target, bounds)
    timelines = [(method, network, timed.timeline) for (method, network), timed in clocks.items()]
    folder.table("timeline", timeline_columns(timelines))
    folder.trace(side_by_side_trace(timelines, spec.joined))
    write_contributions(folder, finished)
    if figures:
        compare_figures(folder, spec, finished, clocks, target)
