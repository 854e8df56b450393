"""Which figures a run folder holds."""

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
from syncline.analysis.figures.waits import waits_for_whom
from syncline.experiments.folder import RunFolder
from syncline.experiments.records import eval_clock_s
from syncline.experiments.trained import Trained
from syncline.interrupts import is_interrupted
from syncline.sim import Clock, Timeline
from syncline.specs import CompareSpec, RunSpec, Training

STRIP_CALLS, STRIP_LEAD_STEPS, STRIP_WORKERS = 2, 3, 16
"""What a timeline strip shows: two collectives with the steps around them, and as many workers as can be read."""


def curve(trained: Trained, clocks: Mapping[str, Clock]) -> Curve:
    """Evaluation loss against steps and against each network's clock."""
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
    """Draw loss against simulated wall-clock (a panel per network) and against steps, and a landscape if it is one.

    An interrupted command draws nothing: its tables have it all.
    """
    if is_interrupted():
        return
    loss = _loss_name(spec)
    links = {link.name: link for link in spec.networks}
    known = [{name: clocks[one.method, name] for name in links if (one.method, name) in clocks} for one in trained]
    curves = [curve(one, own) for one, own in zip(trained, known, strict=True)]
    if all(len(own) == len(links) for own in known):
        save(loss_against_clock(curves, links, loss_label=loss, target=target), folder.figure("loss_against_clock"))
    else:  # trainings of one network alone
        for name, link in links.items():
            some = [one for one in curves if name in one.clock_s]
            if some:
                figure = loss_against_clock(some, {name: link}, loss_label=loss, target=target)
                save(figure, folder.figure(f"loss_against_clock_{name}"))
    save(loss_against_steps(curves, loss_label=loss, target=target), folder.figure("loss_against_steps"))
    ages_figure(folder, trained)
    _landscape_figures(folder, spec, trained)


def run_figures(folder: RunFolder, spec: RunSpec, trained: Trained, clock: Clock) -> None:
    """Draw loss against steps and clock, the first steps as a strip, and the landscape if there is one.

    An interrupted command draws nothing: its tables have it all.
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
    """Where workers came at their own pace: how late updates were, whose they were, and who waited for whom."""
    told = {one.method: one.apart.record() for one in trained if one.apart and one.apart.played.contributions}
    if told:
        ages = {name: record["ages"] for name, record in told.items()}
        whose = {name: record["contributions"] for name, record in told.items()}
        save(ages_and_contributions(ages, whose), folder.figure("ages"))
    waits = {one.method: one.apart.waited_for_s() for one in trained if one.method in told and one.apart}
    waits = {name: waited_s for name, waited_s in waits.items() if waited_s.any()}
    if waits:
        save(waits_for_whom(waits), folder.figure("waits"))


def strip_figure(folder: RunFolder, clock: Clock) -> None:
    """The first workers from a little before the first collective to the end of the second, if anything was kept."""
    found = strip_of(clock.timeline)
    if found is None:
        return
    shown, title = found
    start_s, end_s = float(shown.start_s.min()), float(shown.end_s.max())
    save(timeline_strip(shown.to_columns(), first_s=start_s, last_s=end_s, title=title), folder.figure("timeline"))


def strip_of(kept: Timeline) -> tuple[Timeline, str] | None:
    """What a strip shows of a timeline, and of what it is; None of an empty one."""
    timeline = kept[kept.worker < STRIP_WORKERS]
    if not len(timeline):
        return None
    syncs = np.unique(timeline.step[timeline.stream == "network"])[:STRIP_CALLS]
    first, last = (max(0, syncs[0] - STRIP_LEAD_STEPS), syncs[-1]) if len(syncs) else (0, STRIP_LEAD_STEPS)
    shown = timeline[(timeline.step >= first) & (timeline.step <= last)]
    of_all = f", first {STRIP_WORKERS} of the workers" if kept.workers > STRIP_WORKERS else ""
    return shown, f"steps {first} to {int(shown.step.max())}{of_all}"


def _loss_name(spec: Training) -> str:
    return getattr(spec.problem, "loss_label", "loss of the workers' mean")


def _landscape_figures(folder: RunFolder, spec: Training, trained: list[Trained]) -> None:
    """Distance to the optimum over the steps, beside the way there where that can be drawn."""
    if not all("distance" in one.history.trace for one in trained):
        return
    series = [
        SeedSeries(one.method, np.arange(1, one.history.steps + 1), one.history.trace["distance"].T) for one in trained
    ]
    if all("position" in one.history.trace for one in trained) and _can_be_drawn(spec.problem):
        ways = {one.method: one.history.trace["position"][:, 0] for one in trained}
        figure = landscape_convergence(series, landscape_of(spec, trained[0]), ways)
    else:
        figure = distance_over_steps(series)
    save(figure, folder.figure("distance"))


def _can_be_drawn(problem: object) -> bool:
    """Whether it is one surface: a landscape whose workers have no shifts of their own."""
    return hasattr(problem, "oracle") and not getattr(problem, "shift_std", 0.0)


def landscape_of(spec: Training, trained: Trained) -> Surface:
    """The surface that a landscape problem of two variables is drawn on."""
    import torch

    oracle = spec.problem.oracle(dtype=torch.float64)

    def f(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return oracle(torch.from_numpy(np.stack([x, y], axis=-1)))[0].numpy()

    start = tuple(spec.problem.start_point().tolist())
    optimum = tuple(trained.facts["optima"][0])
    return Surface(f, start, optimum)
