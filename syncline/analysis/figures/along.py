"""Along trainings: what measures found, and when triggers and placements averaged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from syncline.analysis.figures.axes import legend_above, new_figure
from syncline.analysis.figures.style import figure_style, method_styles
from syncline.errors import SpecError

Measured = Mapping[str, Mapping[str, Mapping[int, Sequence[float]]]]
"""Measure -> method -> step -> values of its seeds and layers."""

COLUMNS = 3
RUNNING_STEPS = 20
"""Over which the running mean of a trigger is taken."""

RANGE = 100.0
"""Of a measure whose values are above 0, the largest over the smallest from which its axis is logarithmic."""


class Placed(NamedTuple):
    """A line of the averages: its label, and of each seed whether each step averaged and what its trigger saw.

    ``trigger`` is empty where nothing is looked at, ``threshold`` None where there is none.
    """

    label: str
    averaged: Sequence[Sequence[bool]]
    trigger: Sequence[float] = ()
    threshold: float | None = None


def measures_over_steps(measured: Measured, *, title: str = "") -> Figure:
    """A panel per measure, a line per method: the median over seeds and layers, with their range as a band.

    Args:
        measured: what was found; an axis is logarithmic where values span two orders of magnitude.
        title: an optional title.

    Returns:
        the figure.

    Raises:
        SpecError: there is no measure.
    """
    if not measured:
        raise SpecError("measured", dict(measured), "at least one measure")
    styles = method_styles(list(dict.fromkeys(method for found in measured.values() for method in found)))
    columns = min(COLUMNS, len(measured))
    rows = -(-len(measured) // columns)
    with figure_style():
        fig = new_figure(2.6 * columns, 0.7 + 1.7 * rows)
        axes = fig.subplots(rows, columns, squeeze=False, sharex=True).ravel()
        for ax, (measure, methods) in zip(axes, measured.items(), strict=False):
            values = [one for found in methods.values() for of_step in found.values() for one in of_step]
            if min(values) > 0 and max(values) / min(values) > RANGE:
                ax.set_yscale("log")
            for method, found in methods.items():
                steps = sorted(found)
                style = styles[method]
                ax.plot(
                    steps, [float(np.median(found[t])) for t in steps], color=style.color, linestyle=style.linestyle
                )
                low, high = [min(found[t]) for t in steps], [max(found[t]) for t in steps]
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
    """On the left how many averages were made up to each step, on the right what triggers saw.

    On the left medians over seeds, with their range. Of a trigger the first seed's values are dots, their running mean
    over 20 steps a line, the threshold dashed; strokes below mark the steps that averaged.

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
    styles = method_styles([one.label for one in placed])
    triggers = [one for one in placed if any(map(math.isfinite, one.trigger))]
    rows = max(len(triggers), 1)
    with figure_style():
        fig = new_figure(7.2 if triggers else 4.0, 1.2 + max(1.5 * rows, 2.2))
        grid = fig.add_gridspec(rows, 2 if triggers else 1)
        left = fig.add_subplot(grid[:, 0])
        for one in placed:
            style = styles[one.label]
            counts = np.cumsum(np.array(one.averaged, dtype=np.int64), axis=1)
            steps = np.arange(1, counts.shape[1] + 1)
            left.fill_between(steps, counts.min(0), counts.max(0), color=style.color, alpha=0.15, linewidth=0)
            left.plot(steps, np.median(counts, axis=0), color=style.color, linestyle=style.linestyle)
        left.set_xlabel("steps")
        left.set_ylabel("averages so far")
        left.set_ylim(bottom=0)
        for row, one in enumerate(triggers):
            ax = fig.add_subplot(grid[row, 1])
            _draw_trigger(ax, one, styles[one.label].color)
            if row < len(triggers) - 1:
                ax.tick_params(labelbottom=False)
            else:
                ax.set_xlabel("steps")
        legend_above(fig, styles, title)
    return fig


def _draw_trigger(ax: Axes, one: Placed, color: str) -> None:
    values = np.array([value if math.isfinite(value) and value > 0 else np.nan for value in one.trigger])
    steps = np.arange(1, len(values) + 1)
    ax.plot(steps, values, linestyle="none", marker=".", markersize=2, color="0.6")
    near = [values[max(0, t - RUNNING_STEPS + 1) : t + 1] for t in range(len(values))]
    ax.plot(steps, [np.nan if np.isnan(part).all() else np.nanmean(part) for part in near], color=color)
    if one.threshold is not None and 0 < one.threshold < math.inf:
        ax.axhline(one.threshold, color="0.3", linestyle="dashed", linewidth=0.8)
    ax.set_yscale("log")
    fired = [t + 1 for t, averaged in enumerate(one.averaged[0]) if averaged]
    ax.plot(fired, [0.02] * len(fired), linestyle="none", marker="|", markersize=5, color=color,
            transform=ax.get_xaxis_transform())  # fmt: skip
    ax.set_title(one.label, loc="left", fontsize="small")
    ax.set_ylabel("trigger")
