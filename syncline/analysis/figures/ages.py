"""Ages of the updates and the workers that sent them, for workers at their own pace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from syncline.analysis.figures.axes import legend_above, new_figure
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
            worker_counts = sorted(contributions[name], reverse=True)
            color, dashes = styles[name].color, styles[name].linestyle
            age_axes.stairs(_shares(counts), _edges(counts, 0), color=color, linestyle=dashes, linewidth=1.4)
            worker_axes.stairs(
                _shares(worker_counts), _edges(worker_counts, 1), color=color, linestyle=dashes, linewidth=1.4
            )
        age_axes.set_xlabel("age in versions of the model")
        worker_axes.set_xlabel("worker, the most frequent first")
        for ax in (age_axes, worker_axes):
            ax.set_ylabel("share of updates")
            ax.set_ylim(bottom=0)
            ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend_above(fig, styles)
    return fig


def _shares(counts: Sequence[int]) -> np.ndarray:
    return np.asarray(counts, dtype=np.float64) / sum(counts)


def _edges(counts: Sequence[int], first: int) -> np.ndarray:
    return np.arange(len(counts) + 1) + (first - 0.5)
