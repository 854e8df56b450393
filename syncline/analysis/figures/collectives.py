"""Cost of collectives: time against size, a line per algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from syncline.analysis.figures.axes import (
    draw_legend,
    draw_line,
    line_samples,
    new_figure,
    panel_grid,
    place_ticks,
    time_ticks,
)  # fmt: skip
from syncline.analysis.figures.style import MethodStyle, figure_style, method_styles
from syncline.errors import SpecError
from syncline.units import format_bytes

PANELS_PER_ROW = 3
RING: dict[str, Any] = {
    "linestyle": "none", "marker": "o", "markersize": 7, "markerfacecolor": "none", "markeredgecolor": "black",
    "markeredgewidth": 0.8,
}  # fmt: skip
ASKED = "#777777"
BYTES_TICKS = 1000.0
"""Ratio of neighbouring labels: B, kB, MB, GB."""


class SizePanel(NamedTuple):
    """A collective on a network.

    Attributes:
        title: title above the panel.
        nbytes: (n,) sizes, ascending, positive.
        seconds: algorithm -> (n,) times.
        crossovers: (bytes, seconds) where the fastest algorithm changes; those outside of the sizes are not drawn.
    """

    title: str
    nbytes: NDArray[np.float64]
    seconds: Mapping[str, NDArray[np.float64]]
    crossovers: Sequence[tuple[float, float]] = ()


def cost_against_size(panels: Sequence[SizePanel], *, at_nbytes: float = 0.0, title: str = "") -> Figure:
    """Draw time against size, both logarithmic: a line per algorithm, a ring where the fastest one changes.

    Args:
        panels: the panels, at least one; all have the same sizes.
        at_nbytes: a size to mark by a thin vertical line; none unless positive.
        title: an optional title above all panels.

    Raises:
        SpecError: there is no panel.
    """
    if not panels:
        raise SpecError("panels", [], "at least one panel")
    across = min(PANELS_PER_ROW, len(panels))
    down = -(-len(panels) // across)
    styles = method_styles(name for panel in panels for name in panel.seconds)
    times = np.concatenate([line for panel in panels for line in panel.seconds.values()])
    times = times[times > 0]
    lowest, highest = (float(times.min()), float(times.max())) if times.size else (1e-6, 1.0)
    with figure_style():
        fig = new_figure(max(4.2, 2.5 * across), 0.9 + 2.2 * down)
        for ax, panel in zip(panel_grid(fig, len(panels), across), panels, strict=True):
            ax.set_yscale("log")
            ax.set_ylim(lowest / 2, highest * 2)
            place_ticks(ax.yaxis, time_ticks(lowest / 2, highest * 2))
            ax.yaxis.set_minor_locator(NullLocator())
            _draw_panel(ax, panel, styles, at_nbytes)
        fig.supxlabel("size", fontsize=8)
        fig.supylabel("time", fontsize=8)
        handles = line_samples(styles)
        if any(p.nbytes[0] <= nbytes <= p.nbytes[-1] for p in panels for nbytes, _ in p.crossovers):
            handles.append(Line2D([], [], label="the fastest changes", **RING))
        if at_nbytes > 0:
            handles.append(Line2D([], [], linestyle="none", marker="|", markersize=9, color=ASKED,
                                  label=format_bytes(at_nbytes)))  # fmt: skip
        draw_legend(fig, handles, title)
    return fig


def _draw_panel(ax: Axes, panel: SizePanel, styles: Mapping[str, MethodStyle], at_nbytes: float) -> None:
    """Draw the lines of a panel, rings where they cross, and the marked size."""
    ax.set_xscale("log")
    ax.set_xlim(float(panel.nbytes[0]), float(panel.nbytes[-1]))
    ax.xaxis.set_major_locator(LogLocator(base=BYTES_TICKS, numticks=20))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda nbytes, _: format_bytes(nbytes)))
    ax.xaxis.set_minor_locator(LogLocator(base=10, numticks=20))
    ax.xaxis.set_minor_formatter(NullFormatter())
    for name, seconds in panel.seconds.items():
        draw_line(ax, panel.nbytes, seconds, styles[name], name)
    for nbytes, at_s in panel.crossovers:
        if panel.nbytes[0] <= nbytes <= panel.nbytes[-1]:
            ax.plot(nbytes, at_s, **RING, zorder=5, label="_ring")
            note = ax.annotate(format_bytes(nbytes), (nbytes, at_s), (4, -5), textcoords="offset points", va="top",
                               fontsize=7, zorder=6)  # fmt: skip
            note.set_path_effects([patheffects.Stroke(linewidth=2, foreground="white"), patheffects.Normal()])
    if at_nbytes > 0:
        ax.axvline(at_nbytes, color=ASKED, linewidth=0.8, zorder=1)
    ax.set_title(panel.title, loc="left")
