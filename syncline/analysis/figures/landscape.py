"""Optimisation on a landscape: distance to the optimum, and the way there on a contour plot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from syncline.analysis.figures.axes import draw_line, label_ends, legend_above, new_figure, step_axis, thinned
from syncline.analysis.figures.style import MethodStyle, figure_style, method_styles
from syncline.analysis.statistics.curves import FloatArray, SeedSeries, median_and_range
from syncline.errors import SpecError

PlanePoint = tuple[float, float]
AxisLimits = tuple[float, float, float, float]
"""x from, x to, y from, y to."""

GRID = 400  # points per axis on which contours are computed: finer than a printed panel resolves
CONTOURS = 12
NEAR = 0.3  # start and optimum, in widths of the panel: then one is named above and one below
# Pale greys only, dark at the bottom of the valley, so that lines of every colour stand out.
_PALE = LinearSegmentedColormap.from_list("pale", ["#D2D6DA", "#FFFFFF"])


@dataclass(frozen=True)
class Surface:
    """A function of two variables to be minimised, with what a picture of it shows.

    Args:
        f: z = f(x, y), of two NumPy arrays of one shape.
        start: where all methods begin.
        optimum: where f is least.
        limits: of the axes; by default they hold every trajectory. What lies outside is not drawn.
        names: of the two axes.
    """

    f: Callable[[FloatArray, FloatArray], FloatArray]
    start: PlanePoint
    optimum: PlanePoint
    limits: AxisLimits | None = None
    names: tuple[str, str] = ("$x$", "$y$")


def distance_over_steps(
    series: Sequence[SeedSeries],
    *,
    label: str = "distance to the optimum",
    log: bool = True,
    title: str | None = None,
    styles: Mapping[str, MethodStyle] | None = None,
) -> Figure:
    """A distance over the steps: the median over the seeds as a line, their range as a band, named at the end.

    Args:
        series: one per method, with values (S, n).
        label: what is shown, with its unit if it has one.
        log: a logarithmic axis of distances (values at or below zero are left out).
        title: by default it tells what line and band are.
        styles: label -> style; by default ``method_styles``.

    Returns:
        the figure.

    Raises:
        SpecError: there is no series.
    """
    styles = styles or method_styles(one.label for one in series)
    with figure_style():
        fig = new_figure(5.0, 2.7)
        ax = fig.add_subplot()
        ends = _draw_distance(ax, series, label, log, styles)
        label_ends(fig, ax, [(end, one.label, styles[one.label]) for end, one in zip(ends, series, strict=True)])
        ax.set_title(_band_title(series) if title is None else title, loc="left")
    return fig


def landscape_convergence(
    series: Sequence[SeedSeries],
    landscape: Surface,
    trajectories: Mapping[str, ArrayLike],
    *,
    styles: Mapping[str, MethodStyle] | None = None,
) -> Figure:
    """Distance to the optimum beside the trajectories, with one legend: the figure of a landscape experiment.

    Args:
        series: one per method, with values (S, n).
        landscape: the function, its start and its optimum.
        trajectories: method -> (n, 2) positions of one seed; the spread of the seeds is in the left panel.
        styles: label -> style; by default ``method_styles``.

    Returns:
        the figure.

    Raises:
        SpecError: there is no series, or a trajectory is not of shape (n, 2).
    """
    labels = list(dict.fromkeys([*(one.label for one in series), *trajectories]))
    styles = styles or method_styles(labels)
    with figure_style():
        fig = new_figure(7.0, 2.9)
        left, right = fig.subplots(1, 2, width_ratios=[1.15, 1])
        _draw_distance(left, series, "distance to the optimum", True, styles)
        left.set_title(_band_title(series), loc="left")
        _draw_landscape(right, landscape, trajectories, styles)
        right.set_title("Trajectories on contours of $f$", loc="left")
        legend_above(fig, {label: styles[label] for label in labels})
    return fig


def _draw_distance(
    ax: Axes, series: Sequence[SeedSeries], label: str, log: bool, styles: Mapping[str, MethodStyle]
) -> list[float]:
    """Draw lines and bands; return where each line ends."""
    if not series:
        raise SpecError("series", [], "at least one series")
    step_axis(ax, max(float(one.step[-1]) for one in series))
    if log:
        ax.set_yscale("log")
    ends = []
    for one in series:
        style = styles[one.label]
        middle, low, high = median_and_range(one.values)
        shown = np.flatnonzero(np.isfinite(middle) & (middle > 0) if log else np.isfinite(middle))
        shown = shown[thinned(shown.size)]
        draw_line(ax, one.step[shown], middle[shown], style, one.label)
        if len(one.values) > 1:
            ax.fill_between(one.step[shown], low[shown], high[shown], color=style.color, alpha=0.2, linewidth=0)
        ends.append(float(middle[shown[-1]]) if shown.size else float("nan"))
    ax.set_ylabel(label)
    top = ax.get_ylim()[1]
    return [end if np.isfinite(end) else top for end in ends]


def _draw_landscape(
    ax: Axes, landscape: Surface, trajectories: Mapping[str, ArrayLike], styles: Mapping[str, MethodStyle]
) -> None:
    ways = {name: _way(name, landscape.start, positions) for name, positions in trajectories.items()}
    x0, x1, y0, y1 = landscape.limits or _limits_of([*ways.values(), np.array([landscape.optimum, landscape.start])])
    ax.set_xlim(x0, x1)
    ax.set_ylim(y0, y1)
    x, y = np.meshgrid(np.linspace(x0, x1, GRID), np.linspace(y0, y1, GRID))
    least = float(landscape.f(*np.array(landscape.optimum)[:, None])[0])
    height = np.log1p(np.maximum(landscape.f(x, y) - least, 0))
    levels = np.linspace(0, float(height.max()), CONTOURS + 1)
    ax.contourf(x, y, height, levels=levels, cmap=_PALE, zorder=0)
    ax.contour(x, y, height, levels=levels[1:-1], colors="#AAB0B6", linewidths=0.5, zorder=1)
    ax.grid(visible=False)
    for name, way in ways.items():
        style, drawn = styles[name], way[thinned(len(way))]
        (line,) = ax.plot(*drawn.T, color=style.color, linestyle=style.linestyle, linewidth=1.1, label=name, zorder=3)
        line.set_path_effects([patheffects.Stroke(linewidth=1.9, foreground="white"), patheffects.Normal()])
    near = bool(np.abs(np.subtract(landscape.start, landscape.optimum)) @ [1 / (x1 - x0), 1 / (y1 - y0)] < NEAR)
    _mark(ax, landscape.start, "o", "start", above=not near)
    _mark(ax, landscape.optimum, "*", "optimum")
    for name, way in ways.items():
        ax.plot(*way[-1], marker=styles[name].marker, color=styles[name].color, markersize=4.5, markeredgecolor="white",
                markeredgewidth=0.5, zorder=8, label="_end")  # fmt: skip
    ax.set_xlabel(landscape.names[0])
    ax.set_ylabel(landscape.names[1])


def _mark(ax: Axes, at: PlanePoint, marker: str, text: str, *, above: bool = True) -> None:
    ax.plot(*at, marker=marker, color="white", markeredgecolor="black", markeredgewidth=0.9,
            markersize=14 if marker == "*" else 5, zorder=6, label=f"_{text}")  # fmt: skip
    note = ax.annotate(text, at, xytext=(0, 7 if above else -9), textcoords="offset points", ha="center",
                       va="bottom" if above else "top", fontsize=7, zorder=7)  # fmt: skip
    note.set_path_effects([patheffects.Stroke(linewidth=2, foreground="white"), patheffects.Normal()])


def _way(name: str, start: PlanePoint, positions: ArrayLike) -> FloatArray:
    """From the start along the trajectory, up to its first position that is not finite."""
    way = np.asarray(positions, dtype=float)
    if way.ndim != 2 or way.shape[1] != 2:
        raise SpecError(f"trajectories.{name}", way.shape, "shape (n, 2), one position per row")
    lost = ~np.isfinite(way).all(axis=1)
    return np.concatenate([[start], way[: int(np.argmax(lost))] if lost.any() else way])


def _limits_of(ways: Sequence[FloatArray]) -> AxisLimits:
    points = np.concatenate(ways)
    (x0, y0), (x1, y1) = points.min(axis=0), points.max(axis=0)
    dx, dy = 0.08 * (x1 - x0) or 1.0, 0.12 * (y1 - y0) or 1.0
    return float(x0 - dx), float(x1 + dx), float(y0 - dy), float(y1 + dy)


def _band_title(series: Sequence[SeedSeries]) -> str:
    seeds = {len(one.values) for one in series}
    return f"Median and range of {max(seeds)} seeds" if max(seeds, default=1) > 1 else ""
