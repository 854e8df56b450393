"""Figures over the steps of trainings: values of measures, and the steps at which triggers and placements averaged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from syncline import SpecError
from syncline.analysis import figure_style, method_styles
from syncline.analysis.axes import legend_above, new_figure

Measured = Mapping[str, Mapping[str, Mapping[int, Sequence[float]]]]
"""Measure -> method -> step -> values of its seeds and layers."""

COLUMNS = 3
RUNNING_STEPS = 20
"""Number of steps over which the running mean of a trigger is taken."""

RANGE = 100.0
"""Ratio of a measure's largest to its smallest value, all above 0, from which its axis is logarithmic."""


class Placed(NamedTuple):
    """The averages of one line: its label, per seed whether each step averaged, and the values of its trigger.

    ``trigger`` is empty if the method looks at no value, ``threshold`` is None without a threshold.
    """

    label: str
    averaged: Sequence[Sequence[bool]]
    trigger: Sequence[float] = ()
    threshold: float | None = None


def measures_over_steps(measured: Measured, *, title: str = "") -> Figure:
    """Draw a panel per measure with a line per method: the median over seeds and layers, their range as a band.

    Args:
        measured: the measured values; an axis is logarithmic where values span two orders of magnitude.
        title: an optional title.

    Returns:
        the figure.

    Raises:
        SpecError: there is no measure.
    """
    if not measured:
        raise SpecError("measured", dict(measured), "at least one measure")
    styles = method_styles(
        list(dict.fromkeys(method for values_by_step in measured.values() for method in values_by_step))
    )
    columns = min(COLUMNS, len(measured))
    rows = -(-len(measured) // columns)
    with figure_style():
        fig = new_figure(2.6 * columns, 0.7 + 1.7 * rows)
        axes = fig.subplots(rows, columns, squeeze=False, sharex=True).ravel()
        for ax, (measure, methods) in zip(axes, measured.items(), strict=False):
            values = [
                value
                for values_by_step in methods.values()
                for step_values in values_by_step.values()
                for value in step_values
            ]
            if min(values) > 0 and max(values) / min(values) > RANGE:
                ax.set_yscale("log")
            for method, values_by_step in methods.items():
                steps = sorted(values_by_step)
                style = styles[method]
                ax.plot(
                    steps, [float(np.median(values_by_step[t])) for t in steps], color=style.color,
                    linestyle=style.linestyle,
                )  # fmt: skip
                low, high = [min(values_by_step[t]) for t in steps], [max(values_by_step[t]) for t in steps]
                ax.fill_between(steps, low, high, color=style.color, alpha=0.15, linewidth=0)
            ax.set_title(measure.replace("_", " "), loc="left", fontsize="small")
            ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        for ax in axes[len(measured) :]:
            ax.set_visible(False)
        for ax in axes[max(0, len(measured) - columns) : len(measured)]:
            ax.set_xlabel("steps")
            ax.tick_params(labelbottom=True)
        fig.supylabel("what each panel names")
        legend_above(fig, styles, title)
    return fig


def averages_over_steps(placed: Sequence[Placed], *, title: str = "") -> Figure:
    """Draw the number of averages up to each step on the left and the triggers' values on the right.

    The left panel shows medians over seeds, with their range. On the right, dots are the first seed's trigger values,
    the line is their running mean over 20 steps, the dashed line is the threshold; strokes mark the steps that
    averaged.

    Args:
        placed: the lines.
        title: an optional title.

    Returns:
        the figure.

    Raises:
        SpecError: there is no line.
    """
    if not placed:
        raise SpecError("placed", list(placed), "at least one line")
    styles = method_styles([line.label for line in placed])
    triggers = [line for line in placed if any(map(math.isfinite, line.trigger))]
    rows = max(len(triggers), 1)
    with figure_style():
        fig = new_figure(7.2 if triggers else 4.0, 1.2 + max(1.5 * rows, 2.2))
        grid = fig.add_gridspec(rows, 2 if triggers else 1)
        count_axes = fig.add_subplot(grid[:, 0])
        for line in placed:
            style = styles[line.label]
            counts = np.cumsum(np.array(line.averaged, dtype=np.int64), axis=1)
            steps = np.arange(1, counts.shape[1] + 1)
            count_axes.fill_between(steps, counts.min(0), counts.max(0), color=style.color, alpha=0.15, linewidth=0)
            count_axes.plot(steps, np.median(counts, axis=0), color=style.color, linestyle=style.linestyle)
        count_axes.set_xlabel("steps")
        count_axes.set_ylabel("averages so far")
        count_axes.set_ylim(bottom=0)
        for row, line in enumerate(triggers):
            ax = fig.add_subplot(grid[row, 1])
            _draw_trigger(ax, line, styles[line.label].color)
            if row < len(triggers) - 1:
                ax.tick_params(labelbottom=False)
            else:
                ax.set_xlabel("steps")
        legend_above(fig, styles, title)
    return fig


def _draw_trigger(ax: Axes, line: Placed, color: str) -> None:
    values = np.array([value if math.isfinite(value) and value > 0 else np.nan for value in line.trigger])
    steps = np.arange(1, len(values) + 1)
    ax.plot(steps, values, linestyle="none", marker=".", markersize=2, color="0.6")
    near = [values[max(0, t - RUNNING_STEPS + 1) : t + 1] for t in range(len(values))]
    ax.plot(steps, [np.nan if np.isnan(part).all() else np.nanmean(part) for part in near], color=color)
    if line.threshold is not None and 0 < line.threshold < math.inf:
        ax.axhline(line.threshold, color="0.3", linestyle="dashed", linewidth=0.8)
    ax.set_yscale("log")
    fired = [t + 1 for t, averaged in enumerate(line.averaged[0]) if averaged]
    ax.plot(fired, [0.02] * len(fired), linestyle="none", marker="|", markersize=5, color=color,
            transform=ax.get_xaxis_transform())  # fmt: skip
    ax.set_title(line.label, loc="left", fontsize="small")
    ax.set_ylabel("trigger")
