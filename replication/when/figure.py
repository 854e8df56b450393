"""The picture of the study: losses over batches at equal counts, and what the trigger sees over the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from replication.when.results import LEAST_SEEDS, Cell, noise, over_even
from syncline.analysis import figure_style
from syncline.analysis.axes import new_figure

COLOURS = {"trigger": "#D55E00", "mean-trigger": "#CC79A7", "early": "#0072B2", "random": "#009E73", "even": "#000000"}
MARKERS = {"trigger": "o", "mean-trigger": "D", "early": "v", "random": "s", "even": "_"}
FORMS = {"gradients": "gradients are averaged (as published)", "parameters": "parameters are averaged"}


def when_figure(frame: pd.DataFrame, setting: Mapping[str, Any]) -> Figure:
    """Draw differences to the even schedule by batch for each form and count, and the shares of noise.

    Args:
        frame: the trainings of the finals that count.
        setting: the fields of ``when.yaml``.
    """
    batches = [batch for batch in setting["tokens"] if (frame["tokens"] == batch).any()]
    with figure_style():
        figure = new_figure(10.0, 6.4)
        grid = figure.subplots(2, 3)
        for row, form in zip(grid, FORMS, strict=True):
            for axes, count in zip(row[:2], setting["counts"], strict=True):
                draw_differences(axes, frame, form, count, batches)
        draw_shares(grid[0, 2], frame, setting)
        draw_exceeded(grid[1, 2], frame, setting)
        handles, names = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False)
    return figure


def draw_differences(axes: Axes, frame: pd.DataFrame, form: str, count: int, batches: list[int]) -> None:
    """Draw each seed's loss less that of the even schedule with as many averages, and medians of at least three."""
    arms = ("trigger", "mean-trigger", "early", "random")
    for place, arm in enumerate(arms):
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


def draw_shares(axes: Axes, frame: pd.DataFrame, setting: Mapping[str, Any]) -> None:
    """Draw the share of the momentum's changes that all workers have in common, over the batches."""
    for form, style in (("gradients", "-o"), ("parameters", "--s")):
        by_batch = noise(frame, form, setting["tokens"], setting["counts"])
        axes.plot(
            list(by_batch), [row.share for row in by_batch.values()], style, color="black", markersize=4, label=form
        )
    axes.axhline(0.5, color="0.5", linewidth=0.8)
    axes.set(xscale="log", ylim=(-0.05, 1), xlabel="tokens per step", title="what workers see alike")
    axes.set(ylabel="shared share of momentum changes")
    axes.set_xticks(setting["tokens"], [f"{batch // 1024}k" for batch in setting["tokens"]], minor=False)
    axes.set_xticks([], minor=True)
    axes.legend(loc="upper left")


def draw_exceeded(axes: Axes, frame: pd.DataFrame, setting: Mapping[str, Any]) -> None:
    """Draw the steps above one threshold over the batches: of gradients, and how many of them are early."""
    by_batch = noise(frame, "gradients", setting["tokens"], setting["counts"])
    batches = list(by_batch)
    axes.plot(
        batches, [row.exceeded for row in by_batch.values()], "-o", color="black", markersize=4, label="all steps"
    )
    axes.plot(batches, [row.early for row in by_batch.values()], ":v", color="black", markersize=4, label="first sixth")
    axes.set(xscale="log", ylim=(0, None), xlabel="tokens per step", title="steps above 2k's threshold")
    axes.set(ylabel="steps of 400")
    axes.set_xticks(batches, [f"{batch // 1024}k" for batch in batches], minor=False)
    axes.set_xticks([], minor=True)
    axes.legend(loc="best")
