"""The command ``syncline compare``: several methods trained once each, and timed on several networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from syncline.costmodel import Network
from syncline.costmodel.compute.hardware import HARDWARE
from syncline.planner.bounds import StepTimeVariants
from syncline.runs.folders.folder import RunFolder, environment
from syncline.runs.folders.streams import TrainingStream
from syncline.runs.processes.shared_progress import SharedProgress, Watched, shared_progress, side_by_side
from syncline.runs.training.clock_bounds import bounds_record, clock_bounds, speedup_bounds
from syncline.runs.training.curves import Bounds, Clocks, write_curves
from syncline.runs.training.elastic.clock_dependence import goes_by_clock
from syncline.runs.training.figures import compare_figures
from syncline.runs.training.limits import check_training, tensors_of_problem
from syncline.runs.training.measured_step import with_measured_step
from syncline.runs.training.records import clock_record, final_loss, reachable_target, time_to_target
from syncline.runs.training.tables import (
    ledger_columns,
    metrics_tables,
    side_by_side_trace,
    timeline_columns,
    write_contributions,
    write_watched,
)
from syncline.runs.training.train_and_time import jobs_of, time_method, train_method, where_trained
from syncline.runs.training.trained import Trained
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
        spec: the comparison.
        out: the folder to write; see ``RunFolder`` for ``exact``.
        jobs: number of processes that train side by side; one per core if None. It changes no number.
        figures: whether the folder gets figures.
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
        varied: dict[tuple[str, str], tuple[StepTimeVariants, str]] = {}
        for trained in finished:
            for link in spec.networks:
                timed = time_method(spec, trained, link)
                if timed:
                    clocks[trained.method, link.name] = timed
                    time_again = partial(time_method, spec, trained, link)
                    varied[trained.method, link.name] = clock_bounds(spec, link, timed, time_again, step_s is not None)
        bounds = _bounds(spec, clocks, varied)
        target = reachable_target(finished) if spec.target_loss is None else spec.target_loss
        rows = [
            _record(spec, result, link, clocks, bounds, target)
            for link in spec.networks
            for result in finished
            if (result.method, link.name) in clocks
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
    """Yield trainings as they finish; trainings that were stopped before their first step are left out."""
    calls = [
        partial(train_method, spec, method, progress.reporter(i), TrainingStream(folder.working, i, method.name), link)
        for i, (method, link) in enumerate(trainings(spec))
    ]
    turns = range(len(calls)) if jobs == 1 else longest_first(spec)
    for trained in side_by_side([calls[i] for i in turns], jobs, progress, [spec.problem]):
        if trained.history.steps:
            yield trained


def trainings(spec: CompareSpec) -> list[tuple[MethodBase, Network | None]]:
    """Return each method once, with None for its network.

    A method whose training depends on the clock, because the clock decides the order of arrivals, is returned for each
    network, with a label that names the network.
    """
    out: list[tuple[MethodBase, Network | None]] = []
    for method in spec.methods:
        if not goes_by_clock(spec, method):
            out.append((method, None))
            continue
        out += [(method.model_copy(update={"label": name_on(spec, method, link)}), link) for link in spec.networks]
    return out


def _by_method(spec: CompareSpec, report: Callable[[list[int]], None], done: list[int]) -> None:
    """Report for each method the steps that all of its trainings have completed."""
    counts = iter(done)
    report(
        [min(next(counts) for _ in (spec.networks if goes_by_clock(spec, method) else [0])) for method in spec.methods]
    )


def name_on(spec: CompareSpec, method: MethodBase, network: Network) -> str:
    """Return the name of the training of a method that is timed on a network."""
    is_single = not goes_by_clock(spec, method) or len(spec.networks) == 1
    return method.name if is_single else f"{method.name} on {network.name}"


def longest_first(spec: CompareSpec) -> list[int]:
    """Return the trainings, the longest first, because a long training that starts last delays the end."""
    work = [_added_work(spec, method) for method, _ in trainings(spec)]
    return sorted(range(len(work)), key=work.__getitem__, reverse=True)


def _added_work(spec: CompareSpec, method: MethodBase) -> tuple[int, float, float]:
    """Return the work of a method besides the gradients, which take equally long for all: more work takes longer.

    The parts are the seeds that take turns, the fp32 bytes that are encoded in a step, and the seconds of matrix
    products in an update.
    """
    turns = len(spec.seeds) if method.one_seed_at_a_time else 1
    tensors = tensors_of_problem(spec.problem)
    if tensors is None:
        return turns, 0.0, 0.0
    encoded = sum(
        float(exchange.encoded_bytes) / exchange.period for exchange in method.exchanges(tensors, spec.workers)
    )
    return turns, encoded, method.added_update_s(tensors, HARDWARE["cpu-core"])


def _in_order(trained: list[Trained], spec: CompareSpec) -> list[Trained]:
    order = [method.name for method, _ in trainings(spec)]
    return sorted(trained, key=lambda training: order.index(training.method))


def _bounds(spec: CompareSpec, clocks: Clocks, varied: dict[tuple[str, str], tuple[StepTimeVariants, str]]) -> Bounds:
    """Return the bounds of each method on each network; those of speedups are None if the first method is missing."""
    records, links = {}, {link.name: link for link in spec.networks}
    for (method, network), clock in clocks.items():
        times, basis = varied[method, network]
        first = name_on(spec, spec.methods[0], links[network]), network
        sooner: dict[str, float | None] = {"speedup_low": None, "speedup_high": None}
        if first in clocks:
            sooner = {**speedup_bounds(clock, times, clocks[first], varied[first][0])}
        records[method, network] = bounds_record(clock, times, basis) | sooner
    return records


def _record(
    spec: CompareSpec, training: Trained, network: Network, clocks: Clocks, bounds: Bounds, target: float | None
) -> dict[str, Any]:
    """Return one row. Speedups are over the first method, on the same network; None if that one is missing."""
    timed = clocks[training.method, network.name]
    baseline = clocks.get((name_on(spec, spec.methods[0], network), network.name))
    loss, loss_min, loss_max = final_loss(training)
    diverged = [step for step in training.history.diverged_at if step is not None]
    return {
        "method": training.method,
        "network": network.name,
        "workers": spec.workers,
        "steps": training.history.steps,
        **clock_record(timed),
        "speedup": baseline.step_time_s / timed.step_time_s if baseline else None,
        **bounds[training.method, network.name],
        "loss": loss,
        "loss_min": loss_min,
        "loss_max": loss_max,
        "target_loss": target,
        "time_to_target_s": time_to_target(training, timed, target),
        "diverged_at": min(diverged) if diverged else None,
        "diverged_seeds": len(diverged),
        "interrupted": training.history.interrupted,
        **(training.apart.record() if training.apart is not None else {}),
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
        reached_s, base = row["time_to_target_s"], baseline.get(row["network"], math.inf)
        row["time_to_target_speedup"] = (
            base / reached_s if math.isfinite(reached_s) and math.isfinite(base) and reached_s else None
        )
    folder.json(
        "run",
        environment()
        | where_trained(spec)
        | {
            "seeds": spec.seeds,
            "wall_s": {training.method: training.wall_s for training in finished},
            "measured_step_s": step_s,
            "interrupted": [training.method for training in finished if training.history.interrupted],
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
    folder.trace(side_by_side_trace(timelines, spec.num_endpoints))
    write_contributions(folder, finished)
    if figures:
        compare_figures(folder, spec, finished, clocks, target)
