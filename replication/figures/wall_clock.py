"""A training's time over the bandwidth: by equation, by simulation, and by simulation with overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from syncline import SpecError
from syncline.analysis import MethodStyle, figure_style, method_styles
from syncline.analysis.axes import draw_legend, new_figure, place_ticks, time_ticks
from syncline.analysis.costs import bandwidth_axis

LEAST = 1e-4
"""Times below this share of the longest one are below the axis, because overlap can hide all communication."""

Series = Mapping[str, Sequence[float]]


def time_over_bandwidth(
    bandwidths: Sequence[float], panels: Mapping[str, Mapping[str, Series]], *, time_label: str, title: str = ""
) -> Figure:
    """Draw per panel a line by equation, its points by events, and a dashed line by events with overlap.

    Args:
        bandwidths: bandwidths, ascending, in bytes per second.
        panels: panel -> method -> ``equation``, ``events`` and ``overlap``, seconds at each bandwidth. Methods of a
            panel with the same times are drawn once, under both names. With several panels, the names of methods omit
            the name of the panel.
        time_label: label of the time axis.
        title: an optional title above all panels.

    Raises:
        SpecError: there is no panel.
    """
    if not panels:
        raise SpecError("panels", {}, "at least one panel")
    merged = {panel: _merged(methods, panel if len(panels) > 1 else "") for panel, methods in panels.items()}
    styles = method_styles(name for methods in merged.values() for name in methods)
    times = np.array([s for methods in panels.values() for series in methods.values() for s in series["equation"]])
    lows = [
        s
        for methods in panels.values()
        for series in methods.values()
        for series_s in series.values()
        for s in series_s
    ]
    lowest = max(min((s for s in lows if s > 0), default=1.0) / 1.3, times.max() * LEAST)
    with figure_style():
        fig = new_figure(0.9 + 2.9 * len(panels), 3.5 + 0.07 * len(styles))
        axes = fig.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for ax, (panel, methods) in zip(axes, merged.items(), strict=True):
            bandwidth_axis(ax, bandwidths[0], bandwidths[-1], "bandwidth between workers")
            ax.set_yscale("log")
            ax.set_ylim(lowest, times.max() * 1.3)
            place_ticks(ax.yaxis, time_ticks(lowest, times.max() * 1.3))
            ax.yaxis.set_minor_locator(NullLocator())
            for name, series in methods.items():
                _draw(ax, np.asarray(bandwidths, dtype=float), series, styles[name])
            ax.set_title(panel, loc="left")
        axes[0].set_ylabel(time_label)
        keys = [Line2D([], [], color="#333333", linewidth=1.2, label="equation"),
                Line2D([], [], color="#333333", linestyle="none", marker="o", markersize=4, label="events"),
                Line2D([], [], color="#333333", linewidth=1.0, linestyle=(0, (1.2, 1.2)),
                       label="events, exposed with one step of overlap")]  # fmt: skip
        if min(lows, default=1.0) < lowest:
            keys.append(
                Line2D([], [], color="#333333", linestyle="none", marker="v", markersize=4, label="none exposed")
            )
        draw_legend(fig, [_key(style, name) for name, style in styles.items()], title)
        draw_legend(fig, keys, loc="outside lower center")
    return fig


def _draw(ax: Axes, x: np.ndarray, series: Series, style: MethodStyle) -> None:
    ax.plot(x, series["equation"], color=style.color, linewidth=1.2, zorder=3)
    ax.plot(x, series["events"], color=style.color, marker=style.marker, linestyle="none", markersize=4,
            markeredgecolor="white", markeredgewidth=0.5, clip_on=False, zorder=4)  # fmt: skip
    # Communication that overlap hides completely is below a logarithmic axis: the line ends in a mark at its foot.
    lowest, overlap = ax.get_ylim()[0], np.asarray(series["overlap"], dtype=float)
    ax.plot(x, np.maximum(overlap, lowest), color=style.color, linewidth=1.0, linestyle=(0, (1.2, 1.2)), zorder=2)
    hidden = np.flatnonzero(overlap < lowest)[:1]
    if hidden.size:
        ax.plot(
            x[hidden], lowest, marker="v", markersize=4, color=style.color, clip_on=False, zorder=4, label="_hidden"
        )


def _key(style: MethodStyle, name: str) -> Line2D:
    return Line2D([], [], color=style.color, marker=style.marker, linewidth=1.2, markersize=4, markeredgecolor="white",
                  markeredgewidth=0.5, label=name)  # fmt: skip


def _merged(methods: Mapping[str, Series], optimizer: str) -> dict[str, Series]:
    """Return methods with equal times under one name, without the optimizer that all methods of the panel share."""
    names: dict[tuple[tuple[float, ...], ...], list[str]] = {}
    for name, series in methods.items():
        short = name.replace(optimizer, "").strip() or name
        names.setdefault(tuple(tuple(series[kind]) for kind in ("equation", "events", "overlap")), []).append(short)
    return {
        ", ".join(labels): dict(zip(("equation", "events", "overlap"), times, strict=True))
        for times, labels in names.items()
    }
