"""The figures of a run folder: loss, timeline, asynchronous workers, distance to the optimum of a landscape."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from syncline.analysis import (
    Curve,
    SeedSeries,
    distance_over_steps,
    landscape_convergence,
    loss_against_clock,
    loss_against_steps,
    save,
    timeline_strip,
)
from syncline.analysis.landscape import Surface
from syncline.analysis.timelines import ages_and_contributions, waiting_matrix
from syncline.interrupts import is_interrupted
from syncline.runs.folders.folder import RunFolder
from syncline.runs.training.results import eval_clock_s, loss_label
from syncline.runs.training.trained import Trained
from syncline.sim import Clock
from syncline.sim.program.timeline import around_first_collectives
from syncline.specs import CompareSpec, RunSpec, Training


def compare_figures(
    folder: RunFolder,
    spec: CompareSpec,
    trained: list[Trained],
    clocks: Mapping[tuple[str, str], Clock],
    target: float | None,
) -> None:
    """Draw the figures of a comparison into its folder; an interrupted command draws nothing.

    Loss is drawn against the simulated seconds, with a panel per network, and against steps.

    Args:
        clocks: clocks by (method, network).
        target: loss that is marked; None without one.
    """
    if is_interrupted():
        return
    networks = {network.name: network for network in spec.networks}
    curves = []
    for training in trained:
        method_clocks = {network: clock for (method, network), clock in clocks.items() if method == training.method}
        curves.append(_curve(training, method_clocks))
    are_timed_everywhere = all(len(curve.clock_s) == len(networks) for curve in curves)
    if are_timed_everywhere:
        networks_by_figure = {"loss_against_clock": networks}
    else:  # some methods have a training for each network
        networks_by_figure = {f"loss_against_clock_{name}": {name: network} for name, network in networks.items()}
    for figure_name, panels in networks_by_figure.items():
        timed_curves = [curve for curve in curves if panels.keys() <= curve.clock_s.keys()]
        if timed_curves:
            figure = loss_against_clock(timed_curves, panels, loss_label=loss_label(spec), target=target)
            save(figure, folder.figure(figure_name))
    save(loss_against_steps(curves, loss_label=loss_label(spec), target=target), folder.figure("loss_against_steps"))
    _async_figures(folder, trained)
    _landscape_figures(folder, spec, trained)


def run_figures(folder: RunFolder, spec: RunSpec, trained: Trained, clock: Clock) -> None:
    """Draw the figures of a run into its folder: loss against seconds, and a timeline around the first collectives.

    An interrupted command draws nothing.
    """
    if is_interrupted():
        return
    name = spec.network.name
    figure = loss_against_clock([_curve(trained, {name: clock})], {name: spec.network}, loss_label=loss_label(spec))
    save(figure, folder.figure("loss_against_clock"))
    timeline_and_title = around_first_collectives(clock.timeline)
    if timeline_and_title is not None:
        shown_timeline, title = timeline_and_title
        start_s, end_s = float(shown_timeline.start_s.min()), float(shown_timeline.end_s.max())
        figure = timeline_strip(shown_timeline.to_columns(), first_s=start_s, last_s=end_s, title=title)
        save(figure, folder.figure("timeline"))
    _async_figures(folder, [trained])
    _landscape_figures(folder, spec, [trained])


def _curve(trained: Trained, clocks: Mapping[str, Clock]) -> Curve:
    """Return a method's curve of evaluation losses over steps and over the clocks of networks, by their names."""
    history = trained.history
    clock_s = {network: eval_clock_s(trained, clock) for network, clock in clocks.items()}
    return Curve(trained.method, history.eval_step, loss=history.evaluation["loss"].T, clock_s=clock_s)


def _async_figures(folder: RunFolder, trained: list[Trained]) -> None:
    """Draw the ages of asynchronous updates, the number of updates of each worker, and the workers' waits."""
    ages: dict[str, list[int]] = {}
    contributions: dict[str, list[int]] = {}
    waits_s: dict[str, np.ndarray] = {}
    for training in trained:
        if training.asynchronous and training.asynchronous.result.contributions:
            record = training.asynchronous.record()
            ages[training.method], contributions[training.method] = record["ages"], record["contributions"]
            waited_s = training.asynchronous.waited_for_s()
            if waited_s.any():
                waits_s[training.method] = waited_s
    if ages:
        save(ages_and_contributions(ages, contributions), folder.figure("ages"))
    if waits_s:
        save(waiting_matrix(waits_s), folder.figure("waits"))


def _landscape_figures(folder: RunFolder, spec: Training, trained: list[Trained]) -> None:
    """Draw the distance to the optimum over the steps, for problems that trace it.

    If all workers share one surface, the paths on its contours are drawn beside the distance.
    """
    if not all("distance" in training.history.trace for training in trained):
        return
    series = []
    for training in trained:
        steps = np.arange(1, training.history.steps + 1)
        series.append(SeedSeries(training.method, steps, training.history.trace["distance"].T))
    # A problem with ``shift_std`` shifts the surface of each worker.
    is_one_surface = hasattr(spec.problem, "oracle") and not getattr(spec.problem, "shift_std", 0.0)
    if is_one_surface and all("position" in training.history.trace for training in trained):
        first_seed_paths = {training.method: training.history.trace["position"][:, 0] for training in trained}
        figure = landscape_convergence(series, _surface_of_landscape(spec, trained[0]), first_seed_paths)
    else:
        figure = distance_over_steps(series)
    save(figure, folder.figure("distance"))


def _surface_of_landscape(spec: Training, trained: Trained) -> Surface:
    """Return the surface of a landscape problem of two variables, with its start and its optimum, for a figure."""
    loss_and_gradient = spec.problem.oracle(dtype=torch.float64)

    def losses(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        loss, *_ = loss_and_gradient(torch.from_numpy(np.stack([x, y], axis=-1)))
        return loss.numpy()

    first_optimum, *_ = trained.facts["optima"]
    return Surface(losses, start=tuple(spec.problem.start_point().tolist()), optimum=tuple(first_optimum))
