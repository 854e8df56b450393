"""Predicted against measured times: a scatter plot, and errors grouped by what they may depend on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from syncline.analysis.axes import draw_legend, new_figure, place_ticks, time_ticks
from syncline.analysis.curves import FloatArray
from syncline.analysis.style import MethodStyle, figure_style, method_styles
from syncline.errors import SpecError

PANELS_PER_ROW = 3
LETTER_IN = 0.055
"""Width in inches of a letter of a group's name."""
NARROW_GAP = 0.24
"""Least distance of two labels of the scatter's time axes, as a share of them."""
BAND_WIDTH = 0.1
"""Relative errors within which the scatter is shaded."""

Points = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""Measured and predicted seconds by kind of point."""


def predicted_against_measured(
    points: Points, errors: Mapping[str, Mapping[str, Sequence[float]]], *, title: str = "", measured: str = "step time"
) -> Figure:
    """Draw predicted against measured times with a 10 % band, errors by kind of point, and errors by other groupings.

    Args:
        points: kind of point -> measured and predicted seconds, above 0; one marker for each kind.
        errors: name of the grouping -> group -> ``predicted / measured - 1``, the groups in order. A grouping has a
            panel, in which a bar is a group's median; all these panels share one axis.
        title: title above these panels, which names their points.
        measured: title above the scatter plot, which names the kind of time.
    """
    if not any(len(measured_s) for measured_s, _ in points.values()):
        raise SpecError("points", [], "at least one point")
    styles = method_styles(points)
    num_rows = 1 if len(errors) <= PANELS_PER_ROW else 2
    num_columns = math.ceil(len(errors) / num_rows)
    with figure_style():
        # A panel has room for the group names of the grouping with the longest names, with gaps of four letters.
        letters = 0
        for groups in errors.values():
            letters = max(letters, sum(len(group) + 4 for group in groups))
        panel_in = max(1.8, 0.8 + LETTER_IN * letters)  # 0.8 inches are the vertical axis and the margins
        fig = new_figure(5.0 + panel_in * num_columns, 3.2 if num_rows == 1 else 4.4)
        widths_in = [5.0, panel_in * num_columns] if errors else [5.0]
        parts = fig.subfigures(1, len(widths_in), width_ratios=widths_in, squeeze=False)[0]
        scatter_axes, kind_axes = parts[0].subplots(1, 2, width_ratios=[2.2, 1])
        _draw_scatter(scatter_axes, points, styles, time_name=measured)
        _draw_errors_by_kind(kind_axes, points, styles)
        if errors:
            panels = parts[1].subplots(num_rows, num_columns, squeeze=False)
            panels[0, 0].set_title(title, loc="left")
            all_errors = [error for groups in errors.values() for group in groups.values() for error in group]
            largest = max((abs(error) for error in all_errors), default=0.0)
            for index, (name, groups) in enumerate(errors.items()):
                row, column = divmod(index, num_columns)
                _draw_errors_by_group(panels[row, column], name, groups, largest, labelled=column == 0)
            for ax in panels.ravel()[len(errors) :]:
                ax.set_visible(False)
        draw_legend(fig, [Line2D([], [], **_marker_properties(styles[name], label=name)) for name in points])
    return fig


def _draw_scatter(ax: Axes, points: Points, styles: Mapping[str, MethodStyle], time_name: str) -> None:
    """Draw predicted over measured times, the line on which they are equal, and the band around it."""
    times = np.concatenate([np.concatenate(pair) for pair in points.values()])
    low, high = float(times.min()) / 1.3, float(times.max()) * 1.3
    ends = np.array([low, high])
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    # Clip the band to the axes, so that its corners lie inside.
    diagonal = np.geomspace(low, high, 50)
    band = np.clip(diagonal * (1 - BAND_WIDTH), low, high), np.clip(diagonal * (1 + BAND_WIDTH), low, high)
    ax.fill_between(diagonal, *band, color="#DDDDDD", linewidth=0, zorder=1)
    ax.plot(ends, ends, color="#333333", linewidth=0.8, zorder=2)
    # The kinds that are named first lie above the others.
    for depth, (name, (measured, predicted)) in enumerate(points.items()):
        ax.plot(measured, predicted, zorder=3 + 1 / (1 + depth), **_marker_properties(styles[name]))
    ticks = time_ticks(low, high, NARROW_GAP)
    for axis in (ax.xaxis, ax.yaxis):
        place_ticks(axis, ticks)
        axis.minorticks_off()
    ax.set_xlabel("measured")
    ax.set_ylabel("predicted")
    ax.set_title(f"{time_name}; band: {BAND_WIDTH:.0%}", loc="left")


def _draw_errors_by_kind(ax: Axes, points: Points, styles: Mapping[str, MethodStyle]) -> None:
    """Draw the relative errors of every kind of point side by side, with a bar at the median of each kind."""
    ax.axhline(0.0, color="#333333", linewidth=0.8, zorder=1)
    largest = 0.0
    for index, (name, (measured, predicted)) in enumerate(points.items()):
        errors = np.asarray(predicted, dtype=float) / np.asarray(measured, dtype=float) - 1
        if errors.size:
            largest = max(largest, float(np.abs(errors).max()))
            x = index + _spread_offsets(errors.size)
            ax.plot(x, errors, zorder=2, alpha=0.7, **_marker_properties(styles[name]))
            ax.hlines(float(np.median(errors)), index - 0.38, index + 0.38, color="#333333", linewidth=1.5, zorder=3)
    ax.set_xlim(-0.6, len(points) - 0.4)
    _error_axis(ax, largest)
    ax.set_xticks([])  # the legend of the figure has the kinds
    ax.set_xlabel("all kinds")
    ax.set_ylabel("error (bar: median)")
    ax.set_title("errors of all", loc="left")


def _spread_offsets(count: int) -> FloatArray:
    """Return offsets from -0.28 to 0.28 that separate points at one position, in steps of the golden section."""
    return 0.28 * (2 * ((0.5 + 0.618 * np.arange(count)) % 1) - 1)


def _error_axis(ax: Axes, largest: float) -> None:
    """Set up a y axis of relative errors in percent, up to the largest error on both sides of 0."""
    limit = 1.1 * largest if largest > 0 else 0.01  # without errors any limits will do, but they must differ
    ax.set_ylim(-limit, limit)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))


def _marker_properties(style: MethodStyle, label: str = "") -> dict[str, Any]:
    """Return matplotlib's properties of points in a style, without a line."""
    return {
        "linestyle": "none", "marker": style.marker, "color": style.color, "markersize": 3.0,
        "markeredgecolor": "white", "markeredgewidth": 0.3, "label": label or None,
    }  # fmt: skip


def _draw_errors_by_group(
    ax: Axes, name: str, groups: Mapping[str, Sequence[float]], largest: float, *, labelled: bool
) -> None:
    """Draw the errors and the median error of each group of a grouping.

    Args:
        name: name of the grouping, below the axes.
        largest: largest absolute error, the limit of the axes.
    """
    ax.axhline(0.0, color="#333333", linewidth=0.8, zorder=1)
    for index, group_errors in enumerate(groups.values()):
        offsets = _spread_offsets(len(group_errors))
        ax.plot(index + offsets, group_errors, linestyle="none", marker="o", markersize=1.8, color="#0072B2",
                alpha=0.6, zorder=2)  # fmt: skip
        ax.hlines(float(np.median(group_errors)), index - 0.38, index + 0.38, color="#D55E00", linewidth=1.8, zorder=3)
    ax.set_xlim(-0.6, len(groups) - 0.4)
    _error_axis(ax, largest)
    ax.set_xticks(range(len(groups)), list(groups))
    ax.grid(False, axis="x")
    ax.tick_params(labelleft=labelled)
    ax.set_xlabel(name)
    if labelled:
        ax.set_ylabel("error (bar: median)")
