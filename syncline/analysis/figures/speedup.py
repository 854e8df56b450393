"""Speedups over a baseline against the bandwidth, which show the bandwidth below which a method is worth it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from syncline.analysis.figures.axes import draw_line, legend_above, new_figure
from syncline.analysis.figures.bandwidth import bandwidth_axis, mark_bandwidths, multiple_axis
from syncline.analysis.figures.style import figure_style, method_styles
from syncline.errors import SpecError

PANELS_PER_ROW = 3
PANEL_IN = 2.7


class SpeedupPanel(NamedTuple):
    """The speedups of one model on a number of workers.

    Attributes:
        title: title above the panel.
        curves: method -> (n,) speedups at the bandwidths of the figure.
        points: method -> (bandwidth, speedup) of single networks.
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
        panels: the panels, at least one.
        marks: named bandwidths, the most important ones first; a name that would cover another is omitted.
        label: label of the vertical axis.
        title: an optional title above all panels.

    Raises:
        SpecError: there is no panel.
    """
    if not panels:
        raise SpecError("panels", [], "at least one panel")
    across = 2 if len(panels) == 4 else min(PANELS_PER_ROW, len(panels))
    down = -(-len(panels) // across)
    styles = method_styles(name for panel in panels for name in panel.curves)
    point_speedups = [[speedup for _, speedup in points] for panel in panels for points in panel.points.values()]
    values = np.concatenate([*(curve for panel in panels for curve in panel.curves.values()), *point_speedups])
    lowest, highest = min(0.9, float(values.min()) / 1.1), max(1.2, float(values.max()) * 1.15)
    with figure_style():
        fig = new_figure(max(4.6, 0.7 + PANEL_IN * across), 0.8 + 2.5 * down)
        axes = fig.subplots(down, across, sharex=True, sharey=True, squeeze=False)
        for place, ax in enumerate(axes.ravel()):
            if place >= len(panels):
                ax.set_visible(False)
                continue
            panel = panels[place]
            bandwidth_axis(ax, float(bandwidths[0]), float(bandwidths[-1]), "")
            multiple_axis(ax, lowest, highest)
            ax.grid(False, axis="x")
            mark_bandwidths(ax, marks, PANEL_IN - 0.5)
            ax.axhline(1.0, color="#333333", linewidth=0.8, zorder=1)
            for name, curve in panel.curves.items():
                draw_line(ax, bandwidths, curve, replace(styles[name], marker=""), name)
                single_points = np.array(panel.points.get(name, ())).reshape(-1, 2)
                ax.plot(single_points[:, 0], single_points[:, 1], linestyle="none", marker=styles[name].marker,
                        color=styles[name].color, markersize=4.5,
                        markeredgecolor="white", markeredgewidth=0.5, zorder=4)  # fmt: skip
            ax.set_title(panel.title, loc="left", pad=14)  # above the names of the marks
            below = place + across >= len(panels)
            ax.tick_params(labelbottom=below)
            ax.set_xlabel("bandwidth" if below else "")
            ax.set_ylabel(label if place % across == 0 else "")
        legend_above(fig, styles, title)
    return fig
