"""Points of methods in figures of replications and studies."""

from __future__ import annotations

from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from syncline.analysis import MethodStyle
from syncline.analysis.axes import line_properties


def draw_points(
    ax: Axes, x: ArrayLike, y: ArrayLike, y_range: tuple[ArrayLike, ArrayLike], style: MethodStyle, label: str
) -> None:
    """Draw points, each with a thin vertical bar from the lower to the upper end of its range."""
    lower, upper = y_range
    ax.vlines(x, lower, upper, color=style.color, linewidth=1.0, zorder=2)
    ax.plot(x, y, label=label, zorder=3, **line_properties(style) | {"linestyle": "none"})
