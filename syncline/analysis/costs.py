"""Figures of times without a training: collectives against their size, and speedups against the bandwidth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from syncline.analysis import axes
from syncline.analysis.style import MethodStyle, figure_style, method_styles
from syncline.errors import SpecError
from syncline.units import format_bandwidth, format_bytes

PANELS_PER_ROW = 3
CIRCLE: dict[str, Any] = {
    "linestyle": "none", "marker": "o", "markersize": 7, "markerfacecolor": "none", "markeredgecolor": "black",
    "markeredgewidth": 0.8,
}  # fmt: skip
MARKED_SIZE_COLOR = "#777777"
BYTES_TICKS = 1000.0
"""Ratio of neighbouring labels: B, kB, MB, GB."""


class SizePanel(NamedTuple):
    """The times of a collective on a network by several algorithms, drawn by `cost_against_size` as one panel.

    Attributes:
        nbytes: (n,) sizes of the payload in bytes, ascending, positive.
        seconds: algorithm -> (n,) times in seconds.
        crossovers: (bytes, seconds) where the fastest algorithm changes; those outside of the sizes are not drawn.
    """

    title: str
    nbytes: NDArray[np.float64]
    seconds: Mapping[str, NDArray[np.float64]]
    crossovers: Sequence[tuple[float, float]] = ()

    def shown_crossovers(self) -> list[tuple[float, float]]:
        """Return the crossovers within the sizes."""
        return [(nbytes, s) for nbytes, s in self.crossovers if self.nbytes[0] <= nbytes <= self.nbytes[-1]]


def cost_against_size(panels: Sequence[SizePanel], *, at_nbytes: float = 0.0, title: str = "") -> Figure:
    """Draw collectives' time against size, both logarithmic: a line per algorithm, a circle where the fastest changes.

    Args:
        at_nbytes: a size in bytes to mark by a thin vertical line; 0 for none.
    """
    if not panels:
        raise SpecError("panels", [], "at least one panel")
    num_columns = min(PANELS_PER_ROW, len(panels))
    num_rows = math.ceil(len(panels) / num_columns)
    styles = method_styles(name for panel in panels for name in panel.seconds)
    times = np.concatenate([line for panel in panels for line in panel.seconds.values()])
    times = times[times > 0]  # a logarithmic axis cannot show 0
    lowest, highest = 1e-6, 1.0  # any limits if there is no time
    if times.size:
        lowest, highest = float(times.min()), float(times.max())
    with figure_style():
        fig = axes.new_figure(max(4.2, 2.5 * num_columns), 0.9 + 2.2 * num_rows)
        for ax, panel in zip(axes.panel_grid(fig, len(panels), num_columns), panels, strict=True):
            ax.set_yscale("log")
            ax.set_ylim(lowest / 2, highest * 2)
            axes.place_ticks(ax.yaxis, axes.time_ticks(lowest / 2, highest * 2))
            ax.yaxis.set_minor_locator(NullLocator())
            _draw_panel(ax, panel, styles, at_nbytes)
        fig.supxlabel("size", fontsize=8)
        fig.supylabel("time", fontsize=8)
        handles = axes.line_samples(styles)
        if any(panel.shown_crossovers() for panel in panels):
            handles.append(Line2D([], [], label="the fastest changes", **CIRCLE))
        if at_nbytes > 0:
            handles.append(Line2D([], [], linestyle="none", marker="|", markersize=9, color=MARKED_SIZE_COLOR,
                                  label=format_bytes(at_nbytes)))  # fmt: skip
        axes.draw_legend(fig, handles, title)
    return fig


def _draw_panel(ax: Axes, panel: SizePanel, styles: Mapping[str, MethodStyle], at_nbytes: float) -> None:
    """Draw a collective's times: a line per algorithm, circles where the fastest changes, a marked size."""
    ax.set_xscale("log")
    ax.set_xlim(float(panel.nbytes[0]), float(panel.nbytes[-1]))
    ax.xaxis.set_major_locator(LogLocator(base=BYTES_TICKS, numticks=20))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda nbytes, _: format_bytes(nbytes)))
    ax.xaxis.set_minor_locator(LogLocator(base=10, numticks=20))
    ax.xaxis.set_minor_formatter(NullFormatter())
    for name, seconds in panel.seconds.items():
        axes.draw_line(ax, panel.nbytes, y=seconds, style=styles[name], label=name)
    for nbytes, seconds_there in panel.shown_crossovers():
        ax.plot(nbytes, seconds_there, **CIRCLE, zorder=5, label="_circle")  # legends omit labels with an underscore
        note = ax.annotate(format_bytes(nbytes), (nbytes, seconds_there), (4, -5), textcoords="offset points", va="top",
                           fontsize=7, zorder=6)  # fmt: skip
        note.set_path_effects([patheffects.Stroke(linewidth=2, foreground="white"), patheffects.Normal()])
    if at_nbytes > 0:
        ax.axvline(at_nbytes, color=MARKED_SIZE_COLOR, linewidth=0.8, zorder=1)
    ax.set_title(panel.title, loc="left")


PANEL_IN = 2.7
"""Width in inches of a panel of speedups."""
LETTER_IN = 0.046
"""Width in inches of a letter of a mark's name."""


class SpeedupPanel(NamedTuple):
    """The speedups of one model on a number of workers.

    Attributes:
        curves: method -> (n,) speedups over the baseline at the n bandwidths of the figure.
        points: method -> (bandwidth in bytes per second, speedup) of single networks.
    """

    title: str
    curves: Mapping[str, NDArray[np.float64]]
    points: Mapping[str, Sequence[tuple[float, float]]]


def speedup_over_bandwidth(
    bandwidths: NDArray[np.float64],
    panels: Sequence[SpeedupPanel],
    marks: Mapping[str, float],
    *,
    label: str,
    title: str = "",
) -> Figure:
    """Draw speedups against bandwidth, both logarithmic; above the line at 1x a method beats the baseline.

    Args:
        bandwidths: (n,) bandwidths, ascending, in bytes per second.
        marks: name -> bytes per second, the most important ones first; a name that would cover another is omitted.
    """
    if not panels:
        raise SpecError("panels", [], "at least one panel")
    num_columns = 2 if len(panels) == 4 else min(PANELS_PER_ROW, len(panels))  # four panels form a square
    num_rows = math.ceil(len(panels) / num_columns)
    styles = method_styles(name for panel in panels for name in panel.curves)
    speedups: list[NDArray[np.float64]] = []
    for panel in panels:
        speedups += panel.curves.values()
        for points in panel.points.values():
            speedups.append(np.array([speedup for _, speedup in points]))
    values = np.concatenate(speedups)
    lowest = min(0.9, float(values.min()) / 1.1)  # both limits with a margin, and 1x between them
    highest = max(1.2, float(values.max()) * 1.15)
    with figure_style():
        fig = axes.new_figure(max(4.6, 0.7 + PANEL_IN * num_columns), 0.8 + 2.5 * num_rows)
        for index, (ax, panel) in enumerate(zip(axes.panel_grid(fig, len(panels), num_columns), panels, strict=True)):
            bandwidth_axis(ax, float(bandwidths[0]), highest=float(bandwidths[-1]), label="")
            speedup_axis(ax, lowest, highest)
            ax.grid(False, axis="x")
            mark_bandwidths(ax, marks, width_in=PANEL_IN - 0.5)  # without the labels of the y axis
            ax.axhline(1.0, color="#333333", linewidth=0.8, zorder=1)
            for name, curve in panel.curves.items():
                axes.draw_line(ax, bandwidths, y=curve, style=replace(styles[name], marker=""), label=name)
                point_bandwidths, point_speedups = np.array(panel.points.get(name, ())).reshape(-1, 2).T
                ax.plot(point_bandwidths, point_speedups, linestyle="none", marker=styles[name].marker,
                        color=styles[name].color, markersize=4.5,
                        markeredgecolor="white", markeredgewidth=0.5, zorder=4)  # fmt: skip
            ax.set_title(panel.title, loc="left", pad=14)  # above the names of the marks
            ax.set_xlabel("bandwidth" if index + num_columns >= len(panels) else "")
            ax.set_ylabel(label if index % num_columns == 0 else "")
        axes.legend_above(fig, styles, title)
    return fig


def bandwidth_axis(ax: Axes, lowest: float, highest: float, label: str = "bandwidth") -> None:
    """Set up a logarithmic x axis of bytes per second with a label per power of ten of bits per second.

    Of many powers it labels every second or third. The limits ``lowest`` and ``highest`` are in bytes per second.
    """
    ax.set_xscale("log")
    ax.set_xlim(lowest, highest)
    decades = np.log10(highest / lowest)
    label_period = 1 + (decades > 3.5) + (decades > 6)  # every, every second or every third power has a label
    lowest_power, highest_power = np.log10(8 * lowest), np.log10(8 * highest)  # powers of ten of bits per second
    # 1e-9 keeps a power at a limit in spite of rounding.
    powers = np.arange(np.ceil(lowest_power - 1e-9), np.floor(highest_power + 1e-9) + 1)
    labelled = [10.0**power / 8 for power in powers if power % label_period == 0]
    ax.set_xticks(labelled, [format_bandwidth(value) for value in labelled])
    ax.set_xticks([10.0**power / 8 for power in powers], minor=True)
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(label)


def mark_bandwidths(ax: Axes, marks: Mapping[str, float], width_in: float) -> None:
    """Draw thin lines at these bandwidths, named above the axes; a line whose name would cover another is omitted.

    Args:
        marks: name -> bytes per second, the most important first.
    """
    low, high = np.log(ax.get_xlim())
    drawn: list[tuple[float, float]] = []  # center and half of the width of each name, as shares of the axis
    for name, value in marks.items():
        center = float((np.log(value) - low) / (high - low))
        half_width = 0.5 * (len(name) + 1) * LETTER_IN / width_in
        covers_another = any(abs(center - other) < half_width + other_half for other, other_half in drawn)
        if covers_another or not 0 <= center <= 1:
            continue
        drawn.append((center, half_width))
        ax.axvline(value, color="#BBBBBB", linewidth=0.6, linestyle=(0, (2, 2)), zorder=0)
        ax.text(value, 1.01, name, transform=ax.get_xaxis_transform(), ha="center", va="bottom", fontsize=6,
                color="#555555")  # fmt: skip


def speedup_axis(ax: Axes, lowest: float, highest: float) -> None:
    """Set up a logarithmic vertical axis of multiples: 0.5x, 1x, 2x."""
    ax.set_yscale("log")
    ax.set_ylim(lowest, highest)
    labelled_digits = (1, 2, 5) if highest / lowest < 300 else (1,)  # a long axis has room for powers of ten only
    ax.yaxis.set_major_locator(LogLocator(subs=labelled_digits, numticks=20))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}x" if value >= 1 else f"{value:g}x"))
    ax.yaxis.set_minor_formatter(NullFormatter())
