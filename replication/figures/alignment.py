"""Alignment of curvature with the coordinates and its cost under delay: trajectories, swings, steps over angles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from syncline import SpecError
from syncline.analysis import MethodStyle, figure_style, method_styles
from syncline.analysis.axes import draw_legend, legend_above, line_samples, new_figure
from syncline.analysis.curves import FloatArray

GRID = 300
MOST_ACROSS = 3
ON_TIME, LATE = MethodStyle("#0072B2", "solid", ""), MethodStyle("#D55E00", "solid", "")
LEVEL, STEEPEST = "#333333", "#CC79A7"
_PALE = LinearSegmentedColormap.from_list("pale", ["#D2D6DA", "#FFFFFF"])


class Panel(NamedTuple):
    """A function of the plane and trajectories over it.

    Attributes:
        f: ``(..., 2)`` positions to values ``(...)``.
        ways: label -> ``(n, 2)`` positions.
        dominant: unit vector of the steepest curvature at the start, drawn at the origin; None draws no vector.
        level: a value whose contour is drawn strong, the target of the trajectories; None draws no contour.
        note: a line at the panel's foot.
    """

    f: Callable[[FloatArray], FloatArray]
    ways: Mapping[str, FloatArray]
    dominant: FloatArray | None = None
    level: float | None = None
    note: str = ""


def trajectory_grid(
    panels: Sequence[Sequence[Panel]],
    rows: Sequence[str],
    columns: Sequence[str],
    styles: Mapping[str, MethodStyle],
    *,
    reach: float | None = None,
    smooth: bool = True,
    names: tuple[str, str] = ("$x_1$", "$x_2$"),
) -> Figure:
    """Draw trajectories on contours, a panel per row and column, all of one scale and centred on the origin.

    Args:
        panels: the panels by row, then by column.
        rows: names of the rows.
        columns: names of the columns.
        styles: styles of the trajectories' labels.
        reach: half the width of a panel; by default it holds every trajectory.
        smooth: draw contours evenly spaced in the root of the value; otherwise only shades, for a function with too
            many valleys.
        names: names of the two coordinates.

    Raises:
        SpecError: there is no panel, or rows of different lengths.
    """
    if not panels or any(len(row) != len(columns) for row in panels) or len(panels) != len(rows):
        raise SpecError("panels", [len(row) for row in panels], f"{len(rows)} rows of {len(columns)}, at least one")
    reach = reach or 1.08 * max(float(np.abs(w).max()) for row in panels for panel in row for w in panel.ways.values())
    size = 1.5 if len(columns) > 2 else 2.9
    with figure_style():
        fig = new_figure(0.5 + size * len(columns), 0.55 + (size + 0.12) * len(rows))
        axes = fig.subplots(len(rows), len(columns), sharex=True, sharey=True, squeeze=False)
        for across, row, name in zip(axes, panels, rows, strict=True):
            for ax, panel in zip(across, row, strict=True):
                _draw_panel(ax, panel, reach, styles, smooth)
            across[0].set_ylabel(name)
        for ax, name in zip(axes[0], columns, strict=True):
            ax.set_title(name, loc="left")
        fig.supxlabel(names[0], fontsize=8)
        fig.supylabel(names[1], fontsize=8)
        draw_legend(fig, [*line_samples(styles), *_explained(panels)])
    return fig


def _explained(panels: Sequence[Sequence[Panel]]) -> list[Line2D]:
    """Return the legend's entries for marks other than the trajectories."""
    all_panels = [panel for row in panels for panel in row]
    handles = [Line2D([], [], linestyle="none", marker="o", markersize=4, color="#777777", label="where a way ends")]
    if any(panel.level is not None for panel in all_panels):
        handles.append(Line2D([], [], color=LEVEL, linewidth=0.7, label="target loss"))
    if any(panel.dominant is not None for panel in all_panels):
        handles.append(Line2D([], [], color=STEEPEST, linewidth=1.0, marker="D", markersize=2.5, markevery=[0, -1],
                            label="steepest direction"))  # fmt: skip
    return handles


def _draw_panel(ax: Axes, panel: Panel, reach: float, styles: Mapping[str, MethodStyle], smooth: bool) -> None:
    along = np.linspace(-reach, reach, GRID if smooth else 3 * GRID)
    values = panel.f(np.stack(np.meshgrid(along, along), axis=-1))
    height = np.sqrt(np.maximum(values, 0))
    levels = np.linspace(0, float(height.max()), 11)
    if smooth:
        ax.contourf(along, along, height, levels=levels, cmap=_PALE, zorder=0)
        ax.contour(along, along, height, levels=levels[1:-1], colors="#AAB0B6", linewidths=0.4, zorder=1)
    else:
        ax.imshow(height, extent=(-reach, reach, -reach, reach), origin="lower", cmap=_PALE, zorder=0)
    if panel.level is not None:
        ax.contour(along, along, values, levels=[panel.level], colors=LEVEL, linewidths=0.7, zorder=2)
    ax.grid(visible=False)
    for label, positions in panel.ways.items():
        ax.plot(*np.asarray(positions).T, color=styles[label].color, linestyle=styles[label].linestyle, linewidth=0.8,
                label=label, zorder=3)  # fmt: skip
        ax.plot(*positions[-1], marker="o", markersize=3, color=styles[label].color, zorder=4, label="_end")
    if panel.dominant is not None:
        x, y = (0.3 * reach * panel.dominant).tolist()
        ax.plot(
            [-x, x], [-y, y], color=STEEPEST, linewidth=1.0, marker="D", markersize=2.5, zorder=2, label="_steepest"
        )
    if panel.note:
        ax.text(0.03, 0.03, panel.note, transform=ax.transAxes, fontsize=6)
    ax.set_xlim(-reach, reach)
    ax.set_ylim(-reach, reach)
    ax.ticklabel_format(scilimits=(-2, 4))
    ax.set_aspect("equal")


MARK: dict[str, Any] = {"color": "#009E73", "linewidth": 0.6, "linestyle": (0, (1, 1.5))}


class Scatter(NamedTuple):
    """One method's points ``(n,)``, and ``line``: the (x, y) of the line through their medians."""

    x: ArrayLike
    y: ArrayLike
    line: tuple[ArrayLike, ArrayLike]


class Plot(NamedTuple):
    """One panel of points; its vertical axis is logarithmic if a panel with the same ``y`` spans a decade.

    Attributes:
        measured: label -> points.
        x: label of the horizontal axis.
        y: label of the vertical axis.
        marks: x at which fine lines are drawn.
        across: x at which a strong line is drawn, with its name; None draws no line.
        title: title above the panel.
    """

    measured: Mapping[str, Scatter]
    x: str
    y: str
    marks: Sequence[float] = ()
    across: tuple[float, str] | None = None
    title: str = ""


def measured_over(
    plots: Sequence[Plot], styles: Mapping[str, MethodStyle] | None = None, *, mark_label: str = ""
) -> Figure:
    """Draw panels side by side of points and the line of their medians, with one legend for all.

    Points that are not finite are omitted; a value that is not finite breaks a line. Panels with the same ``y`` have
    the same kind of axis.

    Args:
        plots: the panels.
        styles: styles of the labels; by default ``method_styles``.
        mark_label: name of the panels' marks, for the legend.

    Raises:
        SpecError: there is no panel.
    """
    if not plots:
        raise SpecError("plots", [], "at least one panel")
    styles = styles or method_styles(label for plot in plots for label in plot.measured)
    shown = dict.fromkeys(label for plot in plots for label in plot.measured)
    with figure_style():
        across = len(plots) if len(plots) <= MOST_ACROSS else 2
        down = -(-len(plots) // across)
        fig = new_figure(0.5 + 3.1 * across, 0.5 + 2.4 * down)
        axes = fig.subplots(down, across, squeeze=False).ravel()
        for ax in axes[len(plots) :]:
            ax.set_visible(False)
        for ax, plot in zip(axes, plots, strict=False):
            if max(_decades(points) for points in plots if points.y == plot.y) >= 1:
                ax.set_yscale("log")
                ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if _decades(plot) < 1.5 else (1,), numticks=12))
                ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
                ax.yaxis.set_minor_formatter(NullFormatter())
            for mark in plot.marks:
                ax.axvline(mark, **MARK, zorder=1)
            for label, points in plot.measured.items():
                style = styles[label]
                ax.plot(points.x, points.y, linestyle="none", marker=style.marker or "o", markersize=2.5, alpha=0.6,
                        color=style.color, markeredgewidth=0, zorder=2, label="_points")  # fmt: skip
                ax.plot(
                    *points.line, color=style.color, linestyle=style.linestyle, linewidth=1.0, zorder=3, label=label
                )
            if plot.across:
                ax.axvline(plot.across[0], color="#333333", linewidth=0.8, zorder=1)
                note = ax.annotate(plot.across[1], (plot.across[0], 0.03), (4, 0), xycoords=("data", "axes fraction"),
                                   textcoords="offset points", va="bottom", fontsize=7)  # fmt: skip
                note.set_path_effects([patheffects.Stroke(linewidth=2, foreground="white"), patheffects.Normal()])
            ax.set_xlabel(plot.x)
            ax.set_ylabel(plot.y)
            ax.set_title(plot.title, loc="left")
        samples = line_samples({label: styles[label] for label in shown})
        if mark_label and any(plot.marks for plot in plots):
            samples.append(Line2D([], [], label=mark_label, **MARK))
        draw_legend(fig, samples)
    return fig


def _decades(plot: Plot) -> float:
    y = np.concatenate([np.ravel(np.asarray(points.y, dtype=float)) for points in plot.measured.values()])
    y = y[np.isfinite(y) & (y > 0)]
    return float(np.log10(y.max() / y.min())) if y.size else 0.0


def swings(
    panels: Mapping[str, Mapping[str, ArrayLike]], styles: Mapping[str, MethodStyle], *, label: str, num_steps: int = 60
) -> Figure:
    """Draw updates along one direction over the first steps, a panel each: to and fro, or straight on.

    Args:
        panels: title -> label -> projections ``(T,)``.
        styles: styles of the labels.
        label: label of the vertical axis.
        num_steps: number of steps shown.

    Raises:
        SpecError: there is no panel.
    """
    if not panels:
        raise SpecError("panels", {}, "at least one panel")
    with figure_style():
        fig = new_figure(0.6 + 1.9 * len(panels), 1.9)
        axes = fig.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for ax, (title, lines) in zip(axes, panels.items(), strict=True):
            ax.axhline(0, color="#999999", linewidth=0.5)
            for name, values in lines.items():
                ax.plot(np.asarray(values)[:num_steps], color=styles[name].color, linestyle=styles[name].linestyle,
                        linewidth=0.9, label=name)  # fmt: skip
            ax.set_title(title, loc="left")
            ax.set_xlabel("step")
        axes[0].set_ylabel(label)
        legend_above(fig, styles)
    return fig
