"""The picture of the lottery: what searches end with over their number of trials, and which orders they tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from replication.lottery.resampling import STABLE, Trials, pair_orders
from syncline.analysis import figure_style, method_styles
from syncline.analysis.axes import draw_line, legend_above, new_figure

SEARCHES = {5: "#D55E00", 16: "#E69F00", 64: "#0072B2"}
"""Numbers of trials whose orders are drawn, with their colours."""


def lottery_figure(table: pd.DataFrame, setting: Mapping[str, Any]) -> Figure:
    """Draw the results of searches with their 90 % bands, and the probability of an order over the difference.

    Args:
        table: a row per method, trial and seed.
        setting: the fields of ``lottery.yaml``.
    """
    trials = Trials.of_table(table, setting)
    (median_score,) = trials.scores()["three seeds"]
    styles, sizes = method_styles(trials.methods), setting["sizes"]
    with figure_style():
        figure = new_figure(10.0, 4.6)
        results_axes, orders_axes = figure.subplots(1, 2)
        results_axes.set(xscale="log", yscale="log", xlim=(sizes[0], sizes[-1]))
        results_axes.set(xlabel="trials of a search", ylabel="validation loss of its choice (nats)")
        results_axes.set_xticks(sizes, [str(size) for size in sizes], minor=False)
        results_axes.set_xticks([], minor=True)
        for number, name in enumerate(trials.methods):
            bands = np.array([trials.spread(median_score, size, number) for size in sizes])
            results_axes.fill_between(
                sizes, bands[:, 0], bands[:, 2], color=styles[name].color, alpha=0.10, linewidth=0
            )
            draw_line(results_axes, sizes, bands[:, 1], styles[name], name)
        scores = trials.scores()["one seed"]
        for size, color in SEARCHES.items():
            pairs = pair_orders(trials, scores, size)
            differences = [100 * pair.difference for pair in pairs]
            orders_axes.plot(
                differences, [pair.probability for pair in pairs], "o", color=color, markersize=4,
                label=f"{size} trials",
            )  # fmt: skip
        orders_axes.axhline(STABLE, color="0.5", linewidth=0.8)
        orders_axes.set(xscale="log", xlabel="difference of two methods' reference losses (%)")
        orders_axes.set(ylabel="probability that a search tells their order")
        orders_axes.legend(loc="lower right")
        legend_above(figure, styles)
    return figure
