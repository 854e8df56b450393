"""The picture of the study: losses over batches at equal counts, and what the trigger sees over the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from replication.when.results import (
    COMPARED,
    LEAST_SEEDS,
    Cell,
    closed_form_deviations,
    equal_workers,
    finals,
    noise,
    over_even,
)
from syncline.analysis import figure_style
from syncline.analysis.axes import new_figure

COLOURS = {"trigger": "#D55E00", "mean-trigger": "#CC79A7", "early": "#0072B2", "random": "#009E73", "even": "#000000"}
MARKERS = {"trigger": "o", "mean-trigger": "D", "early": "v", "random": "s", "even": "_"}
FORMS = {"gradients": "gradients are averaged (as published)", "parameters": "parameters are averaged"}


def when_figure(trainings: pd.DataFrame, setting: Mapping[str, Any]) -> Figure:
    """Draw differences to the even schedule by batch for each form and count, and what the trigger sees.

    Args:
        trainings: all stored trainings.
        setting: the fields of ``when.yaml``.
    """
    frame = finals(trainings)
    batches = [batch for batch in setting["tokens"] if (frame["tokens"] == batch).any()]
    with figure_style():
        figure = new_figure(10.0, 6.4)
        grid = figure.subplots(2, 3)
        for row, form in zip(grid, FORMS, strict=True):
            for axes, count in zip(row[:2], setting["counts"], strict=True):
                draw_differences(axes, frame, form, count, batches)
        draw_signal(grid[0, 2], grid[1, 2], trainings, setting)
        handles, names = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False)
    return figure


def draw_differences(axes: Axes, frame: pd.DataFrame, form: str, count: int, batches: list[int]) -> None:
    """Draw each seed's loss less that of the even schedule with as many averages, and medians of at least three."""
    for place, arm in enumerate(COMPARED):
        xs, ys, middles = [], [], []
        for number, batch in enumerate(batches):
            values = over_even(frame, Cell(form, batch, count), arm).to_numpy()
            x = number + 0.17 * (place - 1.5)
            xs += [x] * len(values)
            ys += values.tolist()
            if len(values) >= LEAST_SEEDS:
                middles.append((x, float(np.median(values))))
        axes.plot(xs, ys, MARKERS[arm], color=COLOURS[arm], markersize=3.5, alpha=0.55, linestyle="none")
        axes.plot(*zip(*middles, strict=True), "_", color=COLOURS[arm], markersize=11, markeredgewidth=2.2, label=arm)
    axes.axhline(0, color="0.4", linewidth=0.8)
    axes.set_xlim(-0.5, len(batches) - 0.5)
    axes.set_xticks(range(len(batches)), [f"{batch // 1024}k" for batch in batches])
    axes.set(title=f"{FORMS[form]}, about {count} times", xlabel="tokens per step")
    axes.set(ylabel="loss less even schedule's (nats)")


def draw_signal(shares: Axes, deviations: Axes, trainings: pd.DataFrame, setting: Mapping[str, Any]) -> None:
    """Draw what workers share of the momentum's changes, and the deviation of each worker's own part, by batch."""
    batches, frame = setting["tokens"], finals(trainings)
    by_form = {form: noise(frame, form, batches, setting["counts"]) for form in FORMS}
    for (form, rows), style in zip(by_form.items(), ("-o", "-s"), strict=True):
        label, color = f"apart ({form} averaged 12 times)", "#D55E00" if form == "gradients" else "#E69F00"
        shares.plot(list(rows), [row.share for row in rows.values()], style, color=color, markersize=4, label=label)
        deviations.plot(list(rows), [row.deviation for row in rows.values()], style, color=color, markersize=4)
    equal = equal_workers(trainings)
    shares.plot(
        list(equal), [share for _, share in equal.values()], "-^", color="#0072B2", markersize=4,
        label="equal (averaged in every step)",
    )  # fmt: skip
    deviations.plot(list(equal), [deviation for deviation, _ in equal.values()], "-^", color="#0072B2", markersize=4)
    closed = closed_form_deviations(by_form["gradients"][min(batches)].deviation, batches)
    deviations.plot(list(closed), list(closed.values()), ":", color="black", label="noise in closed form")
    shares.axhline(0.5, color="0.5", linewidth=0.8)
    shares.set(ylim=(-0.05, 1), title="what workers see alike", ylabel="shared share of momentum changes")
    deviations.set(ylim=(0, None), title="what each sees alone", ylabel="deviation of its own part")
    for axes in (shares, deviations):
        axes.set(xscale="log", xlabel="tokens per step")
        axes.set_xticks(batches, [f"{batch // 1024}k" for batch in batches], minor=False)
        axes.set_xticks([], minor=True)
        axes.legend(loc="upper left" if axes is shares else "lower left", fontsize="small")
