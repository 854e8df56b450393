"""The command ``syncline compare``: several methods are trained, and timed on several networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from syncline.costmodel import Network
from syncline.costmodel.compute.hardware import HARDWARE
from syncline.methods import MethodBase
from syncline.runs.folders.folder import RunFolder, environment
from syncline.runs.folders.streams import TrainingStream
from syncline.runs.processes.shared_progress import SharedProgress, shared_progress, side_by_side, watched
from syncline.runs.training import results
from syncline.runs.training.clock_bounds import BoundedClock
from syncline.runs.training.figures import compare_figures
from syncline.runs.training.limits import check_training, tensors_of_problem
from syncline.runs.training.tables import side_by_side_trace, timeline_columns, write_contributions, write_measurements
from syncline.runs.training.train_and_time import jobs_of, time_with_bounds, train_method, where_trained
from syncline.runs.training.trained import Trained, depends_on_clock, with_measured_step
from syncline.specs import CompareSpec

Timings = dict[tuple[str, str], BoundedClock]
"""Timed trainings by (method, network)."""


def compare(
    spec: CompareSpec,
    out: Path,
    *,
    exact: bool = False,
    jobs: int | None = None,
    figures: bool = True,
    on_progress: Callable[[list[int]], None] | None = None,
) -> dict[str, Any]:
    """Make all `trainings` of the methods, time them on the networks, and write the folder.

    Args:
        jobs: number of parallel processes; one per core if None. Results do not depend on it.
        on_progress: function that is called now and then with the completed steps of each method.

    Returns:
        ``rows`` (one per method and network), ``folder``, ``target_loss``, ``interrupted``, ``measured_step_s``. After
        Ctrl-C there are rows of every method that completed a step.
    """
    check_training(spec, *spec.methods)
    spec, step_s = with_measured_step(spec)

    def report(steps_by_training: list[int]) -> None:
        """Report for each method the steps that all of its trainings have completed."""
        assert on_progress is not None, "otherwise nothing is watched"
        steps_of_trainings = iter(steps_by_training)
        steps_by_method = []
        for method in spec.methods:  # the trainings of a method are consecutive, see `trainings`
            num_trainings = len(spec.networks) if depends_on_clock(spec, method) else 1
            steps_by_method.append(min(islice(steps_of_trainings, num_trainings)))
        on_progress(steps_by_method)

    with (
        RunFolder(out, exact) as folder,
        shared_progress(len(trainings(spec))) as progress,
        watched(progress, None if on_progress is None else report),
    ):
        folder.spec(spec)
        names_in_order_of_spec = [method.name for method, _ in trainings(spec)]
        trained_in_any_order = _train_all(spec, folder, progress, jobs=jobs or jobs_of(spec))
        finished = sorted(trained_in_any_order, key=lambda trained: names_in_order_of_spec.index(trained.method))
        write_measurements(folder, finished)
        timings: Timings = {}
        for trained in finished:
            for network in spec.networks:
                timing = time_with_bounds(spec, trained, network, measured=step_s is not None)
                if timing is not None:
                    timings[trained.method, network.name] = timing
        target = results.reachable_target(finished) if spec.target_loss is None else spec.target_loss
        bounds = _bounds(spec, timings)
        rows = _rows(spec, finished, timings, bounds=bounds, target=target)
        facts = {
            "seeds": spec.seeds, "wall_s": {trained.method: trained.wall_s for trained in finished},
            "measured_step_s": step_s,
            "interrupted": [trained.method for trained in finished if trained.history.interrupted],
            "problem": finished[0].facts if finished else None, "rows": rows,
        }  # fmt: skip
        folder.json("run", environment() | where_trained(spec) | facts)
        if finished:
            clocks = {key: timing.clock for key, timing in timings.items()}
            networks = {network.name: network for network in spec.networks}
            results.write_curves(folder, spec, finished, clocks, networks, target=target, bounds=bounds)
            timelines = [(method, network, clock.timeline) for (method, network), clock in clocks.items()]
            folder.table("timeline", timeline_columns(timelines))
            folder.trace(side_by_side_trace(timelines, spec.num_endpoints))
            write_contributions(folder, finished)
            if figures:
                compare_figures(folder, spec, trained=finished, clocks=clocks, target=target)
        interrupted = progress.stopped
    return {
        "rows": rows, "folder": str(folder.path), "target_loss": target, "interrupted": interrupted,
        "measured_step_s": step_s,
    }  # fmt: skip


def _train_all(spec: CompareSpec, folder: RunFolder, progress: SharedProgress, jobs: int | None) -> Iterator[Trained]:
    """Train all methods in several processes, and yield each result as it finishes.

    Trainings that were stopped before their first step yield nothing.
    """
    calls = []
    for index, (method, network) in enumerate(trainings(spec)):
        stream = TrainingStream(folder.working, index, method.name)
        calls.append(partial(train_method, spec, method, progress.reporter(index), stream, network))
    if jobs != 1:  # a long training that starts last would run alone at the end
        calls = [calls[index] for index in longest_first(spec)]
    for trained in side_by_side(calls, jobs, progress, shared=[spec.problem]):
        if trained.history.steps:
            yield trained


def trainings(spec: CompareSpec) -> list[tuple[MethodBase, Network | None]]:
    """Return the trainings of a comparison as pairs of a method and its network.

    A method is trained once, with None for its network, unless its updates depend on the clock, as those of an
    asynchronous method do. Such a method is trained for each network, and its label names the network.
    """
    pairs: list[tuple[MethodBase, Network | None]] = []
    for method in spec.methods:
        if not depends_on_clock(spec, method):
            pairs.append((method, None))
            continue
        for network in spec.networks:
            labelled_method = method.model_copy(update={"label": name_of_training(spec, method, network)})
            pairs.append((labelled_method, network))
    return pairs


def name_of_training(spec: CompareSpec, method: MethodBase, network: Network) -> str:
    """Return the name of a method's training, with the network's name if it has a training for each of several."""
    trains_for_each_network = depends_on_clock(spec, method) and len(spec.networks) > 1
    return f"{method.name} on {network.name}" if trains_for_each_network else method.name


def longest_first(spec: CompareSpec) -> list[int]:
    """Return the indices of a comparison's trainings, the longest first, as a long one that starts last delays the end.

    They are ordered by the number of seeds that train one after another, then by the fp32 bytes encoded in a step, then
    by the seconds that the method adds to an update. Gradients take equally long in all of them.
    """
    tensors = tensors_of_problem(spec.problem)
    durations = []
    for method, _ in trainings(spec):
        sequential_seeds = len(spec.seeds) if method.one_seed_at_a_time else 1
        encoded_bytes = update_s = 0.0
        if tensors is not None:  # None: the problem does not list the shapes of its parameters
            exchanges = method.exchanges(tensors, spec.workers)
            encoded_bytes = sum(float(exchange.encoded_bytes) / exchange.period for exchange in exchanges)
            update_s = method.added_update_s(tensors, HARDWARE["cpu-core"])  # any hardware gives this order
        durations.append((sequential_seeds, encoded_bytes, update_s))
    return sorted(range(len(durations)), key=lambda index: durations[index], reverse=True)


def _baseline_timing(spec: CompareSpec, timings: Timings, network: Network) -> BoundedClock | None:
    """Return the timing of the first method on a network; None if it has no time there."""
    return timings.get((name_of_training(spec, spec.methods[0], network), network.name))


def _bounds(spec: CompareSpec, timings: Timings) -> results.Bounds:
    """Return the columns with the bounds of times and of speedups over the first method, by (method, network).

    Bounds of speedups are None if the first method has no time on the network.
    """
    bounds = {}
    networks = {network.name: network for network in spec.networks}
    for (method, network_name), timing in timings.items():
        baseline = _baseline_timing(spec, timings, networks[network_name])
        speedups: dict[str, Any] = {"speedup_low": None, "speedup_high": None}
        if baseline is not None:
            speedups = timing.speedup_bounds(baseline)
        bounds[method, network_name] = timing.bounds() | speedups
    return bounds


def _rows(
    spec: CompareSpec, finished: list[Trained], timings: Timings, bounds: results.Bounds, target: float | None
) -> list[dict[str, Any]]:
    """Return a row for each network and each method that is timed on it.

    Speedups compare a method with the first method on the same network; they are None if that method has no time there.
    """
    rows = []
    trained_by_name = {trained.method: trained for trained in finished}
    for network in spec.networks:
        baseline = _baseline_timing(spec, timings, network)
        baseline_reached_s = math.inf  # never
        if baseline is not None:
            trained_baseline = trained_by_name[name_of_training(spec, spec.methods[0], network)]
            baseline_reached_s = results.time_to_target(trained_baseline, baseline.clock, target)
        for trained in finished:
            key = trained.method, network.name
            if key not in timings:  # a method that was trained for another network
                continue
            clock, history = timings[key].clock, trained.history
            loss, loss_min, loss_max = results.final_loss(trained)
            diverged_steps = [step for step in history.diverged_at if step is not None]
            reached_s = results.time_to_target(trained, clock, target)
            both_reach_target = reached_s > 0 and math.isfinite(reached_s) and math.isfinite(baseline_reached_s)
            rows.append({
                "method": trained.method, "network": network.name, "workers": spec.workers, "steps": history.steps,
                **results.clock_record(clock),
                "speedup": None if baseline is None else baseline.clock.step_time_s / clock.step_time_s,
                **bounds[key],
                "loss": loss, "loss_min": loss_min, "loss_max": loss_max, "target_loss": target,
                "time_to_target_s": reached_s, "diverged_at": min(diverged_steps, default=None),
                "diverged_seeds": len(diverged_steps), "interrupted": history.interrupted,
                **({} if trained.asynchronous is None else trained.asynchronous.record()),
                "time_to_target_speedup": baseline_reached_s / reached_s if both_reach_target else None,
            })  # fmt: skip
    return rows
