"""Costs of a majority vote over the number of workers: Lion Cub's Figure 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from syncline import SpecError
from syncline.analysis import MethodStyle, figure_style, method_styles
from syncline.analysis.axes import draw_line, legend_above, new_figure, spread_positions

NAME_HEIGHT, HIGHEST_NAME = 0.055, 0.85
"""Height and highest place of the marks' names, as shares of the last panel; the region's name is above."""
ROUND, FEW = 1.1, 4
"""Room on both sides of the numbers of workers; the largest number of them that each get a tick."""
SHADES = {"one-bit": "#E8F1F8", "direct": "#FBEDE3"}
"""Background of the region in which a vote is the cheaper one."""


def votes_over_workers(rows: Sequence[Mapping[str, Any]], marks: Mapping[str, float] | None = None) -> Figure:
    """Draw a panel per ratio N β / α with the cost of each vote in latencies, and a last one with the crossover.

    Args:
        rows: rows with ``ratio``, ``workers``, ``crossover_ratio`` and one ``..._over_alpha`` per vote.
        marks: names of ratios to draw into the last panel.

    Raises:
        SpecError: there is no row.
    """
    if not rows:
        raise SpecError("rows", [], "at least one row")
    ratios = list(dict.fromkeys(float(row["ratio"]) for row in rows))
    votes = [name for name in rows[0] if name.endswith("_over_alpha")]
    names = {vote: vote.removesuffix("_over_alpha").replace("_", "-") for vote in votes}
    styles = method_styles(names.values())
    highest = max(float(row[vote]) for row in rows for vote in votes)
    with figure_style():
        fig = new_figure(1.2 + 1.85 * (len(ratios) + 1), 2.7)
        *panels, last = fig.subplots(1, len(ratios) + 1, squeeze=False)[0]
        for ax, ratio in zip(panels, ratios, strict=True):
            ratio_rows = [row for row in rows if row["ratio"] == ratio]
            _worker_axis(ax, ratio_rows)
            _power_axis(ax, 1.0, highest * 2)
            for vote, name in names.items():
                draw_line(
                    ax, [row["workers"] for row in ratio_rows], [row[vote] for row in ratio_rows], styles[name], name
                )
            ax.set_title(f"Nβ/α = {ratio:g}", loc="left")
            ax.tick_params(labelleft=ax is panels[0])
        panels[0].set_ylabel("cost in latencies α")
        _crossover(last, rows, marks or {}, ratios[0])
        legend_above(fig, {name: styles[name] for name in names.values()})
    return fig


def _crossover(ax: Axes, rows: Sequence[Mapping[str, Any]], marks: Mapping[str, float], ratio: float) -> None:
    ratio_rows = [row for row in rows if row["ratio"] == ratio]
    workers = np.array([row["workers"] for row in ratio_rows], dtype=float)
    crossings = np.array([row["crossover_ratio"] for row in ratio_rows], dtype=float)
    positive = crossings[np.isfinite(crossings) & (crossings > 0)]
    low = min([*positive, *marks.values()], default=1.0) / 3
    high = max([*positive, *marks.values()], default=1.0) * 60
    _worker_axis(ax, ratio_rows)
    _power_axis(ax, low, high)
    edge = np.clip(crossings, low, high)
    ax.fill_between(workers, edge, high, color=SHADES["one-bit"], linewidth=0, zorder=0)
    ax.fill_between(workers, low, edge, color=SHADES["direct"], linewidth=0, zorder=0)
    draw_line(ax, workers, edge, MethodStyle("#333333", "solid", ""), "_crossover")
    ax.text(0.04, 0.97, "one-bit cheaper", transform=ax.transAxes, va="top", fontsize=7)
    ax.text(0.96, 0.03, "direct cheaper", transform=ax.transAxes, ha="right", fontsize=7)
    for value in marks.values():
        ax.axhline(value, color="#777777", linewidth=0.7, linestyle=(0, (2, 2)), zorder=1)
    # Place each name a little above its line, or higher if the names below need room.
    heights = ax.transLimits.transform(
        ax.transScale.transform([(1.0, value) for value in marks.values()] or [(1.0, 1.0)])
    )
    places = spread_positions(heights[:, 1], NAME_HEIGHT, highest=HIGHEST_NAME)
    for name, height in zip(marks, places, strict=False):
        ax.annotate(name, (0.02, float(height)), (0, 1.5), xycoords="axes fraction", textcoords="offset points",
                    fontsize=6, color="#333333")  # fmt: skip
    ax.set_title("where direct and one-bit meet", loc="left")
    ax.set_ylabel("Nβ/α")


def _worker_axis(ax: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    workers = [int(row["workers"]) for row in rows]
    ax.set_xscale("log", base=2)
    ax.set_xlim(min(workers) / ROUND, max(workers) * ROUND)
    few = sorted(set(workers))
    ax.xaxis.set_major_locator(
        FixedLocator(few) if len(few) <= FEW else LogLocator(base=16 if max(workers) > 256 else 4, numticks=20)
    )
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("workers P")


def _power_axis(ax: Axes, lowest: float, highest: float) -> None:
    ax.set_yscale("log")
    ax.set_ylim(lowest, highest)
    ax.yaxis.set_major_locator(LogLocator(base=100 if highest / lowest > 1e5 else 10, numticks=20))
    ax.yaxis.set_minor_formatter(NullFormatter())
