"""Predicted against measured: a scatter of times, and errors by what they may depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from syncline.analysis.figures.axes import new_figure, place_ticks, time_ticks
from syncline.analysis.style import MethodStyle, figure_style, method_styles
from syncline.errors import SpecError

PANELS_PER_ROW = 3
BAND = 0.1
"""Relative errors within which the scatter is shaded."""


def predicted_against_measured(
    points: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    errors: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    title: str = "",
    measured: str = "step time",
) -> Figure:
    """Times over each other, with a band of 10 %, larger; beside it a panel of errors for each of what groups them.

    Args:
        points: kind of point -> measured and predicted seconds; one marker for each kind.
        errors: what points are grouped by -> group -> ``predicted / measured - 1``, the groups in order; a bar is the
            group's median.
        title: above the errors: of which points they are.
        measured: above the scatter: what took the times.

    Raises:
        SpecError: there is no point.
    """
    if not any(len(measured) for measured, _ in points.values()):
        raise SpecError("points", [], "at least one point")
    styles = method_styles(points)
    down = max(1, -(-len(errors) // PANELS_PER_ROW))
    with figure_style():
        across = min(PANELS_PER_ROW, len(errors))
        fig = new_figure(3.6 + 2.1 * across, max(3.4, 0.7 + 2.0 * down))
        grid = fig.add_gridspec(down, across + 1, width_ratios=[1.7, *([1.0] * across)])
        _scatter(fig.add_subplot(grid[:, 0]), points, styles, measured)
        most = max((abs(e) for groups in errors.values() for of in groups.values() for e in of), default=0.0)
        for place, (name, groups) in enumerate(errors.items()):
            row, column = divmod(place, across)
            ax = fig.add_subplot(grid[row, column + 1])
            _errors(ax, name, groups, most, labelled=column == 0)
            if place == 0:
                ax.set_title(title, loc="left")
        marks = [_marks(styles[name], label=name) for name in points]
        fig.legend(
            handles=[Line2D([], [], **mark) for mark in marks],
            loc="outside upper center",
            ncols=2 if len(points) <= 4 else 4,
        )
    return fig


def _scatter(
    ax: Axes,
    points: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    styles: Mapping[str, MethodStyle],
    what: str,
) -> None:
    times = np.concatenate([np.concatenate(pair) for pair in points.values()])
    low, high = float(times.min()) / 1.3, float(times.max()) * 1.3
    ends = np.array([low, high])
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    ax.fill_between(ends, ends * (1 - BAND), ends * (1 + BAND), color="#DDDDDD", linewidth=0, zorder=1)
    ax.plot(ends, ends, color="#333333", linewidth=0.8, zorder=2)
    # The kinds that are named first lie above the others.
    for depth, (name, (measured, predicted)) in enumerate(points.items()):
        ax.plot(measured, predicted, zorder=3 + 1 / (1 + depth), **_marks(styles[name]))
    ticks = time_ticks(low, high)
    for axis in (ax.xaxis, ax.yaxis):
        place_ticks(axis, ticks)
        axis.minorticks_off()
    ax.set_xlabel("measured")
    ax.set_ylabel("predicted")
    ax.set_title(f"{what}; band: {BAND:.0%}", loc="left")


def _marks(style: MethodStyle, label: str = "") -> dict[str, Any]:
    return {
        "linestyle": "none", "marker": style.marker, "color": style.color, "markersize": 3.0,
        "markeredgecolor": "white", "markeredgewidth": 0.3, "label": label or None,
    }  # fmt: skip


def _errors(ax: Axes, name: str, groups: Mapping[str, Sequence[float]], most: float, *, labelled: bool) -> None:
    ax.axhline(0.0, color="#333333", linewidth=0.8, zorder=1)
    for place, of in enumerate(groups.values()):
        aside = 0.28 * (2 * ((0.5 + 0.618 * np.arange(len(of))) % 1) - 1)  # spread out, the same in every picture
        ax.plot(place + aside, of, linestyle="none", marker="o", markersize=1.8, color="#0072B2", alpha=0.6, zorder=2)
        ax.hlines(float(np.median(of)), place - 0.38, place + 0.38, color="#D55E00", linewidth=1.8, zorder=3)
    ax.set_xlim(-0.6, len(groups) - 0.4)
    ax.set_ylim(-1.1 * most or -0.01, 1.1 * most or 0.01)
    ax.set_xticks(range(len(groups)), list(groups))
    ax.grid(False, axis="x")
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.tick_params(labelleft=labelled)
    ax.set_xlabel(name)
    if labelled:
        ax.set_ylabel("error")
