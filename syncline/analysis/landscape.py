"""Optimisation on a landscape: distance to the optimum, and trajectories on a contour plot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from syncline.analysis.axes import draw_line, label_ends, legend_above, new_figure, step_axis, thinned_indices
from syncline.analysis.curves import FloatArray, SeedSeries, median_and_range
from syncline.analysis.style import MethodStyle, figure_style, method_styles
from syncline.errors import SpecError

PlanePoint = tuple[float, float]
AxisLimits = tuple[float, float, float, float]
"""x from, x to, y from, y to."""

GRID_POINTS = 400  # points per axis on which contours are computed: finer than a printed panel resolves
NUM_CONTOURS = 12
LEAST_DISTANCE_OF_NAMES = 0.3
"""Distance of start and optimum, in widths of the panel, below which one name is above its point and one below."""
# Pale greys only, dark at the bottom of the valley, so that lines of every colour stand out.
_PALE_COLORS = LinearSegmentedColormap.from_list("pale", ["#D2D6DA", "#FFFFFF"])


@dataclass(frozen=True)
class Surface:
    """A function of two variables to be minimised, with the points and limits of its picture.

    Args:
        f: the function z = f(x, y) of two NumPy arrays of one shape.
        start: the point at which all methods begin.
        optimum: the point at which f is least.
        limits: limits of the axes; by default they hold every trajectory. Points outside are not drawn.
        names: names of the two axes.
    """

    f: Callable[[FloatArray, FloatArray], FloatArray]
    start: PlanePoint
    optimum: PlanePoint
    limits: AxisLimits | None = None
    names: tuple[str, str] = ("$x$", "$y$")


def distance_over_steps(series: Sequence[SeedSeries], *, log: bool = True) -> Figure:
    """Draw the distance to the optimum over the steps: lines of the median over the seeds, bands of their range.

    Args:
        series: one per method, with values (S, n).
        log: whether the axis of distances is logarithmic, which leaves out values at or below zero.
    """
    styles = method_styles(run.label for run in series)
    with figure_style():
        fig = new_figure(5.0, 2.7)
        ax = fig.add_subplot()
        ends = _draw_distance(ax, series, log, styles)
        label_ends(fig, ax, [(end, run.label, styles[run.label]) for end, run in zip(ends, series, strict=True)])
        ax.set_title(_band_title(series), loc="left")
    return fig


def landscape_convergence(
    series: Sequence[SeedSeries], landscape: Surface, trajectories: Mapping[str, ArrayLike]
) -> Figure:
    """Draw the distance to the optimum and, at its right, the trajectories on contours, with one legend.

    Args:
        series: one per method, with values (S, n).
        trajectories: method -> (n, 2) positions of one seed; the spread of the seeds is in the left panel.

    Raises:
        SpecError: there is no series, or a trajectory is not of shape (n, 2).
    """
    labels = list(dict.fromkeys([*(run.label for run in series), *trajectories]))
    styles = method_styles(labels)
    with figure_style():
        fig = new_figure(7.0, 2.9)
        distance_axes, trajectory_axes = fig.subplots(1, 2, width_ratios=[1.15, 1])
        _draw_distance(distance_axes, series, log=True, styles=styles)
        distance_axes.set_title(_band_title(series), loc="left")
        _draw_landscape(trajectory_axes, landscape, trajectories, styles)
        trajectory_axes.set_title("Trajectories on contours of $f$", loc="left")
        legend_above(fig, {label: styles[label] for label in labels})
    return fig


def _draw_distance(ax: Axes, series: Sequence[SeedSeries], log: bool, styles: Mapping[str, MethodStyle]) -> list[float]:
    """Draw the distances to the optimum as lines with bands, and return the y at which each line ends."""
    if not series:
        raise SpecError("series", [], "at least one series")
    step_axis(ax, max(float(run.step[-1]) for run in series))
    if log:
        ax.set_yscale("log")
    ends = []
    for run in series:
        style = styles[run.label]
        median, low, high = median_and_range(run.values)
        is_shown = np.isfinite(median)
        if log:  # a distance of 0 has no logarithm
            is_shown &= median > 0
        shown = np.flatnonzero(is_shown)
        drawn = shown[thinned_indices(shown.size)]
        draw_line(ax, run.step[drawn], y=median[drawn], style=style, label=run.label)
        if len(run.values) > 1:
            ax.fill_between(run.step[drawn], low[drawn], high[drawn], color=style.color, alpha=0.2, linewidth=0)
        ends.append(float(median[drawn[-1]]) if drawn.size else float("nan"))
    ax.set_ylabel("distance to the optimum")
    _, top = ax.get_ylim()  # a line without finite points is named at the top
    return [end if np.isfinite(end) else top for end in ends]


def _draw_landscape(
    ax: Axes, landscape: Surface, trajectories: Mapping[str, ArrayLike], styles: Mapping[str, MethodStyle]
) -> None:
    """Draw the contours, the trajectories with a mark at the end of each, the start and the optimum."""
    tracks = {name: _trajectory(name, landscape.start, positions) for name, positions in trajectories.items()}
    if landscape.limits is None:
        points = np.concatenate([*tracks.values(), [landscape.optimum, landscape.start]])
        (x0, y0), (x1, y1) = points.min(axis=0), points.max(axis=0)
        x_margin, y_margin = 0.08 * (x1 - x0) or 1.0, 0.12 * (y1 - y0) or 1.0  # 1 if all points have one coordinate
        x0, x1, y0, y1 = x0 - x_margin, x1 + x_margin, y0 - y_margin, y1 + y_margin
    else:
        x0, x1, y0, y1 = landscape.limits
    ax.set_xlim(x0, x1)
    ax.set_ylim(y0, y1)
    x, y = np.meshgrid(np.linspace(x0, x1, GRID_POINTS), np.linspace(y0, y1, GRID_POINTS))
    optimum_x, optimum_y = landscape.optimum
    minimum = float(landscape.f(np.array([optimum_x]), np.array([optimum_y]))[0])
    height = np.log1p(np.maximum(landscape.f(x, y) - minimum, 0))  # shows the valley, however high the walls are
    levels = np.linspace(0, float(height.max()), NUM_CONTOURS + 1)
    ax.contourf(x, y, height, levels=levels, cmap=_PALE_COLORS, zorder=0)
    # The first and the last level are only points: the optimum and the highest point.
    ax.contour(x, y, height, levels=levels[1:-1], colors="#AAB0B6", linewidths=0.5, zorder=1)
    ax.grid(visible=False)
    for name, track in tracks.items():
        style = styles[name]
        xs, ys = track[thinned_indices(len(track))].T
        (line,) = ax.plot(xs, ys, color=style.color, linestyle=style.linestyle, linewidth=1.1, label=name, zorder=3)
        line.set_path_effects([patheffects.Stroke(linewidth=1.9, foreground="white"), patheffects.Normal()])

    # If the two points are close together, one name is below its point, so that the names do not overlap.
    start_x, start_y = landscape.start
    distance = abs(start_x - optimum_x) / (x1 - x0) + abs(start_y - optimum_y) / (y1 - y0)  # in widths of the panel
    _draw_named_point(ax, landscape.start, marker="o", name="start", is_name_above=distance >= LEAST_DISTANCE_OF_NAMES)
    _draw_named_point(ax, landscape.optimum, marker="*", name="optimum", is_name_above=True)
    for name, track in tracks.items():
        ax.plot(*track[-1], marker=styles[name].marker, color=styles[name].color, markersize=4.5,
                markeredgecolor="white", markeredgewidth=0.5, zorder=8, label="_end")  # fmt: skip
    ax.set_xlabel(landscape.names[0])
    ax.set_ylabel(landscape.names[1])


def _draw_named_point(ax: Axes, point: PlanePoint, marker: str, name: str, is_name_above: bool) -> None:
    """Draw a point with its name above or below it."""
    ax.plot(*point, marker=marker, color="white", markeredgecolor="black", markeredgewidth=0.9,
            markersize=14 if marker == "*" else 5, zorder=6, label=f"_{name}")  # fmt: skip
    text = ax.annotate(name, point, xytext=(0, 7 if is_name_above else -9), textcoords="offset points", ha="center",
                       va="bottom" if is_name_above else "top", fontsize=7, zorder=7)  # fmt: skip
    text.set_path_effects([patheffects.Stroke(linewidth=2, foreground="white"), patheffects.Normal()])


def _trajectory(name: str, start: PlanePoint, positions: ArrayLike) -> FloatArray:
    """Return the start and the positions of a trajectory, up to its first position that is not finite, ``(n, 2)``."""
    path = np.asarray(positions, dtype=float)
    if path.ndim != 2 or path.shape[1] != 2:
        raise SpecError(f"trajectories.{name}", path.shape, "shape (n, 2), one position per row")
    is_finite = np.isfinite(path).all(axis=1)
    if not is_finite.all():
        path = path[: int(np.argmin(is_finite))]
    return np.concatenate([[start], path])


def _band_title(series: Sequence[SeedSeries]) -> str:
    """Return a title that explains line and band; empty for one seed."""
    seeds = max((len(run.values) for run in series), default=1)
    return f"Median and range of {seeds} seeds" if seeds > 1 else ""
