"""Workers at their own pace: ages of their updates, the number of updates of each, and their waits for each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from syncline.analysis.figures.axes import legend_above, new_figure, panel_grid
from syncline.analysis.figures.style import figure_style, method_styles
from syncline.errors import SpecError


def ages_and_contributions(ages: Mapping[str, Sequence[int]], contributions: Mapping[str, Sequence[int]]) -> Figure:
    """Draw the share of updates per age (left) and the share of updates per worker, in descending order (right).

    Args:
        ages: method -> number of updates of each age, from 0 on, in versions of the server's model.
        contributions: method -> number of updates of each worker.

    Raises:
        SpecError: there is no method, or one without updates.
    """
    if not ages or any(sum(counts) == 0 for counts in (*ages.values(), *contributions.values())):
        raise SpecError("ages", {name: list(counts) for name, counts in ages.items()}, "methods with updates")
    styles = method_styles(ages)
    with figure_style():
        fig = new_figure(6.4, 2.6)
        age_axes, worker_axes = fig.subplots(1, 2)
        for name, counts in ages.items():
            by_worker = sorted(contributions[name], reverse=True)
            look = {"color": styles[name].color, "linestyle": styles[name].linestyle, "linewidth": 1.4}
            for ax, numbers, first in ((age_axes, counts, 0), (worker_axes, by_worker, 1)):
                shares = np.asarray(numbers, dtype=np.float64) / sum(numbers)
                ax.stairs(shares, np.arange(len(numbers) + 1) + (first - 0.5), **look)
        age_axes.set_xlabel("age in versions of the model")
        worker_axes.set_xlabel("worker, the most frequent first")
        for ax in (age_axes, worker_axes):
            ax.set_ylabel("share of updates")
            ax.set_ylim(bottom=0)
            ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend_above(fig, styles)
    return fig


_SECONDS = LinearSegmentedColormap.from_list("seconds", ["#FFFFFF", "#0072B2", "#00202F"])
_COLUMNS = 4


def waiting_matrix(waiting_s: Mapping[str, np.ndarray]) -> Figure:
    """Draw, per row's worker, the seconds its updates lay at the server until the column's worker's update arrived.

    Args:
        waiting_s: method -> seconds ``(P, P)``; all methods share one scale.

    Raises:
        SpecError: there is no method, or a table that is not square.
    """
    shapes = {name: seconds.shape for name, seconds in waiting_s.items()}
    if not shapes or any(len(shape) != 2 or shape[0] != shape[1] or not shape[0] for shape in shapes.values()):
        raise SpecError("waits", shapes, "a square table of each method")
    longest_s = max(float(seconds.max()) for seconds in waiting_s.values()) or 1.0
    across = min(len(waiting_s), _COLUMNS)
    down = -(-len(waiting_s) // across)
    with figure_style():
        fig = new_figure(1.2 + 2.0 * across, 0.5 + 2.1 * down)
        axes = panel_grid(fig, len(waiting_s), across, shared=False)
        for ax, (name, seconds) in zip(axes, waiting_s.items(), strict=True):
            image = ax.imshow(seconds, cmap=_SECONDS, vmin=0.0, vmax=longest_s, origin="upper")
            ax.set_title(name if len(name) <= 28 else f"{name[:27]}…", fontsize="small")
            ax.set_xlabel("for worker")
            ax.set_ylabel("worker waits")
            ax.grid(False)
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        fig.colorbar(image, ax=axes, label="seconds", shrink=0.8)
    return fig
