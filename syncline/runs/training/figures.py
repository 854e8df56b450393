"""The figures of a run folder."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

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
from syncline.analysis.figures import Surface
from syncline.analysis.figures.ages import ages_and_contributions
from syncline.analysis.figures.waits import waiting_matrix
from syncline.interrupts import is_interrupted
from syncline.runs.folders.folder import RunFolder
from syncline.runs.training.records import eval_clock_s
from syncline.runs.training.trained import Trained
from syncline.sim import Clock, Timeline
from syncline.specs import CompareSpec, RunSpec, Training

STRIP_CALLS, STRIP_LEAD_STEPS, STRIP_WORKERS = 2, 3, 16
"""Limits of a timeline strip: two collectives with the steps around them, and as many workers as a reader can read."""


def curve(trained: Trained, clocks: Mapping[str, Clock]) -> Curve:
    """Return the evaluation loss against steps and against each network's clock."""
    history = trained.history
    clock_s = {network: eval_clock_s(trained, clock) for network, clock in clocks.items()}
    return Curve(trained.method, history.eval_step, history.evaluation["loss"].T, clock_s)


def compare_figures(
    folder: RunFolder,
    spec: CompareSpec,
    trained: list[Trained],
    clocks: Mapping[tuple[str, str], Clock],
    target: float | None = None,
) -> None:
    """Draw loss against simulated wall-clock (a panel per network) and against steps, and a landscape if there is one.

    An interrupted command draws nothing, because its tables have all results.
    """
    if is_interrupted():
        return
    loss = _loss_name(spec)
    links = {link.name: link for link in spec.networks}
    clocks_of = [
        {name: clocks[training.method, name] for name in links if (training.method, name) in clocks}
        for training in trained
    ]
    curves = [curve(training, method_clocks) for training, method_clocks in zip(trained, clocks_of, strict=True)]
    if all(len(method_clocks) == len(links) for method_clocks in clocks_of):
        save(loss_against_clock(curves, links, loss_label=loss, target=target), folder.figure("loss_against_clock"))
    else:  # trainings that exist on one network only
        for name, link in links.items():
            some = [line for line in curves if name in line.clock_s]
            if some:
                figure = loss_against_clock(some, {name: link}, loss_label=loss, target=target)
                save(figure, folder.figure(f"loss_against_clock_{name}"))
    save(loss_against_steps(curves, loss_label=loss, target=target), folder.figure("loss_against_steps"))
    ages_figure(folder, trained)
    _landscape_figures(folder, spec, trained)


def run_figures(folder: RunFolder, spec: RunSpec, trained: Trained, clock: Clock) -> None:
    """Draw loss against steps and clock, the first steps as a strip, and the landscape if there is one.

    An interrupted command draws nothing, because its tables have all results.
    """
    if is_interrupted():
        return
    curves = [curve(trained, {spec.network.name: clock})]
    links = {spec.network.name: spec.network}
    save(loss_against_clock(curves, links, loss_label=_loss_name(spec)), folder.figure("loss_against_clock"))
    strip_figure(folder, clock)
    ages_figure(folder, [trained])
    _landscape_figures(folder, spec, [trained])


def ages_figure(folder: RunFolder, trained: list[Trained]) -> None:
    """Draw, for workers at their own pace, the ages of updates, each worker's updates, and the waits for each."""
    records = {
        training.method: training.apart.record()
        for training in trained
        if training.apart and training.apart.played.contributions
    }
    if records:
        ages = {name: record["ages"] for name, record in records.items()}
        counts = {name: record["contributions"] for name, record in records.items()}
        save(ages_and_contributions(ages, counts), folder.figure("ages"))
    waits = {
        training.method: training.apart.waited_for_s()
        for training in trained
        if training.method in records and training.apart
    }
    waits = {name: waited_s for name, waited_s in waits.items() if waited_s.any()}
    if waits:
        save(waiting_matrix(waits), folder.figure("waits"))


def strip_figure(folder: RunFolder, clock: Clock) -> None:
    """Draw the first workers from shortly before the first collective to the end of the second, if there are spans."""
    strip = strip_of(clock.timeline)
    if strip is None:
        return
    shown, title = strip
    start_s, end_s = float(shown.start_s.min()), float(shown.end_s.max())
    save(timeline_strip(shown.to_columns(), first_s=start_s, last_s=end_s, title=title), folder.figure("timeline"))


def strip_of(full_timeline: Timeline) -> tuple[Timeline, str] | None:
    """Return the spans that a strip shows, and their title; None for an empty timeline."""
    timeline = full_timeline[full_timeline.worker < STRIP_WORKERS]
    if not len(timeline):
        return None
    syncs = np.unique(timeline.step[timeline.stream == "network"])[:STRIP_CALLS]
    first, last = (max(0, syncs[0] - STRIP_LEAD_STEPS), syncs[-1]) if len(syncs) else (0, STRIP_LEAD_STEPS)
    shown = timeline[(timeline.step >= first) & (timeline.step <= last)]
    of_all = f", first {STRIP_WORKERS} of the workers" if full_timeline.workers > STRIP_WORKERS else ""
    return shown, f"steps {first} to {int(shown.step.max())}{of_all}"


def _loss_name(spec: Training) -> str:
    return getattr(spec.problem, "loss_label", "loss of the workers' mean")


def _landscape_figures(folder: RunFolder, spec: Training, trained: list[Trained]) -> None:
    """Draw the distance to the optimum over the steps, next to the path on the surface if it can be drawn."""
    if not all("distance" in training.history.trace for training in trained):
        return
    series = [
        SeedSeries(training.method, np.arange(1, training.history.steps + 1), training.history.trace["distance"].T)
        for training in trained
    ]
    if all("position" in training.history.trace for training in trained) and _can_be_drawn(spec.problem):
        paths = {training.method: training.history.trace["position"][:, 0] for training in trained}
        figure = landscape_convergence(series, landscape_of(spec, trained[0]), paths)
    else:
        figure = distance_over_steps(series)
    save(figure, folder.figure("distance"))


def _can_be_drawn(problem: object) -> bool:
    """Return whether a problem is one surface: a landscape that is the same for all workers."""
    return hasattr(problem, "oracle") and not getattr(problem, "shift_std", 0.0)


def landscape_of(spec: Training, trained: Trained) -> Surface:
    """Return the surface on which a landscape problem of two variables is drawn."""
    import torch

    oracle = spec.problem.oracle(dtype=torch.float64)

    def f(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return oracle(torch.from_numpy(np.stack([x, y], axis=-1)))[0].numpy()

    start = tuple(spec.problem.start_point().tolist())
    optimum = tuple(trained.facts["optima"][0])
    return Surface(f, start, optimum)
