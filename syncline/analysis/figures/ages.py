"""How late updates were, and whose they were: of workers at their own pace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from syncline.analysis.figures.axes import legend_above, new_figure
from syncline.analysis.figures.style import figure_style, method_styles
from syncline.errors import SpecError


def ages_and_contributions(ages: Mapping[str, Sequence[int]], contributions: Mapping[str, Sequence[int]]) -> Figure:
    """Left, which share of the updates had which age; right, which share of them is each worker's, the most first.

    Args:
        ages: by method, how many updates had each age, from 0 on, in versions of the server's model.
        contributions: by method, updates of each worker.

    Raises:
        SpecError: there is no method, or one without updates.
    """
    if not ages or any(sum(counts) == 0 for counts in (*ages.values(), *contributions.values())):
        raise SpecError("ages", {name: list(counts) for name, counts in ages.items()}, "methods with updates")
    styles = method_styles(ages)
    with figure_style():
        fig = new_figure(6.4, 2.6)
        late, whose = fig.subplots(1, 2)
        for name, counts in ages.items():
            own = sorted(contributions[name], reverse=True)
            color, dashes = styles[name].color, styles[name].linestyle
            late.stairs(_shares(counts), _edges(counts, 0), color=color, linestyle=dashes, linewidth=1.4)
            whose.stairs(_shares(own), _edges(own, 1), color=color, linestyle=dashes, linewidth=1.4)
        late.set_xlabel("age in versions of the model")
        whose.set_xlabel("worker, the most frequent first")
        for ax in (late, whose):
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
