"""Seconds that workers wait for each other, when a server keeps updates until others have arrived."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from syncline.analysis.figures.axes import new_figure
from syncline.analysis.figures.style import figure_style
from syncline.errors import SpecError

_SECONDS = LinearSegmentedColormap.from_list("seconds", ["#FFFFFF", "#0072B2", "#00202F"])
_COLUMNS = 4


def waiting_matrix(waiting_s: Mapping[str, np.ndarray]) -> Figure:
    """Draw, per row's worker, the seconds its updates lay at the server until the column's worker's update arrived.

    Args:
        waiting_s: method -> seconds ``(P, P)``; all methods share one scale.

    Raises:
        SpecError: there is no method, or a table that is not square.
    """
    if not waiting_s or any(
        seconds.ndim != 2 or seconds.shape[0] != seconds.shape[1] or not seconds.size for seconds in waiting_s.values()
    ):
        raise SpecError(
            "waits", {name: seconds.shape for name, seconds in waiting_s.items()}, "a square table of each method"
        )
    longest_s = max(float(seconds.max()) for seconds in waiting_s.values()) or 1.0
    across = min(len(waiting_s), _COLUMNS)
    down = -(-len(waiting_s) // across)
    with figure_style():
        fig = new_figure(1.2 + 2.0 * across, 0.5 + 2.1 * down)
        panels = fig.subplots(down, across, squeeze=False)
        for ax in panels.flat[len(waiting_s) :]:
            ax.remove()
        for ax, (name, seconds) in zip(panels.flat, waiting_s.items(), strict=False):
            image = ax.imshow(seconds, cmap=_SECONDS, vmin=0.0, vmax=longest_s, origin="upper")
            ax.set_title(name if len(name) <= 28 else f"{name[:27]}…", fontsize="small")
            ax.set_xlabel("for worker")
            ax.set_ylabel("worker waits")
            ax.grid(False)
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        fig.colorbar(image, ax=panels.ravel().tolist()[: len(waiting_s)], label="seconds", shrink=0.8)
    return fig
