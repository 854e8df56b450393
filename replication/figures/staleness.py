"""Final losses of pipelines of different depths, and slowdowns to a target loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from replication.figures.points import draw_points
from syncline import SpecError
from syncline.analysis import MethodStyle, figure_style, method_styles
from syncline.analysis.axes import label_ends, new_figure, place_ticks

CROWD = 0.6
"""Share of the width of one depth that the points of all methods take."""

Spread = tuple[float, float, float]
"""The median, lowest and highest value over the seeds."""


def over_stages(
    losses: Mapping[str, Mapping[int, Spread]],
    slowdowns: Mapping[str, Mapping[int, float]],
    *,
    loss_label: str = "final loss",
    log_loss: bool = False,
    title: str = "",
    styles: Mapping[str, MethodStyle] | None = None,
) -> Figure:
    """Draw the final loss against the number of stages and, at its right, the slowdown to the target.

    Args:
        losses: method -> stages -> median, lowest and highest over the seeds; a value that is not finite is a cross at
            the top.
        slowdowns: method -> stages -> steps to the target over those without delay; not finite (an open triangle at the
            top) where the target was not reached. If no value beyond one stage is finite, the panel is omitted.
        loss_label: the name of the loss, with its unit.
        log_loss: a logarithmic loss axis.
        title: an optional title above all panels.
        styles: method -> style; by default ``method_styles``.

    Raises:
        SpecError: there is no method.
    """
    if not losses:
        raise SpecError("losses", dict(losses), "at least one method")
    stages = sorted({num_stages for by_stages in losses.values() for num_stages in by_stages})
    styles = styles or method_styles(losses)
    draws_slowdowns = any(
        np.isfinite(value)
        for by_stages in slowdowns.values()
        for num_stages, value in by_stages.items()
        if num_stages > 1
    )
    with figure_style():
        names_in = 0.5 + 0.062 * max(map(len, losses))
        fig = new_figure(
            (6.2 if draws_slowdowns else 3.6) + names_in, max(2.9, 0.9 + 0.15 * len(losses)) + (0.2 if title else 0)
        )
        axes = fig.subplots(1, 2 if draws_slowdowns else 1, squeeze=False)[0]
        for ax in axes:
            ax.set_xlim(-0.5, len(stages) - 0.5)
            ax.set_xticks(range(len(stages)), [f"{num_stages:g}" for num_stages in stages])
            ax.tick_params(axis="x", length=0)
            ax.grid(False, axis="x")
            ax.set_xlabel("stages")
            for place in range(1, len(stages)):
                ax.axvline(place - 0.5, color="#D9D9D9", linewidth=0.6, zorder=0)
        ends = _losses(axes[0], losses, stages, styles, log_loss)
        axes[0].set_ylabel(loss_label)
        label_ends(fig, axes[0], ends, share=0.68)
        if draws_slowdowns:
            _slowdowns(axes[1], slowdowns, stages, styles)
        if title:
            fig.suptitle(title, fontsize=9)
    return fig


def _offset(index: int, count: int) -> float:
    return CROWD * ((index + 0.5) / count - 0.5)


def _losses(
    ax: Axes,
    losses: Mapping[str, Mapping[int, Spread]],
    stages: Sequence[int],
    styles: Mapping[str, MethodStyle],
    logarithmic: bool,
) -> list[tuple[float, str, MethodStyle]]:
    """Draw points, spreads and the thin lines that join the depths of a method; return the y where each line ends."""
    drawn = {}
    for number, (name, by_stages) in enumerate(losses.items()):
        spreads = [
            (place + _offset(number, len(losses)), *by_stages[num_stages])
            for place, num_stages in enumerate(stages)
            if num_stages in by_stages
        ]
        drawn[name] = np.array(spreads, dtype=float).reshape(-1, 4)
    finite = np.concatenate([points[np.isfinite(points).all(axis=1), 1:].ravel() for points in drawn.values()])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.5, 1.0)
    if logarithmic:
        ax.set_yscale("log")
        ax.set_ylim(low / (high / low or 1.0) ** 0.06 / 1.01, high * (high / low) ** 0.1 * 1.01)
    else:
        room = (high - low) or abs(high) or 1.0
        ax.set_ylim(low - 0.06 * room, high + 0.1 * room)
    ends = []
    for name, points in drawn.items():
        style = styles[name]
        shown = points[np.isfinite(points[:, 1])]
        ax.plot(shown[:, 0], shown[:, 1], color=style.color, linewidth=0.7, linestyle=style.linestyle, alpha=0.6,
                zorder=1, label="_joined")  # fmt: skip
        draw_points(ax, shown[:, 0], shown[:, 1], (shown[:, 2], shown[:, 3]), style, name)
        lost = points[~np.isfinite(points[:, 1])]
        ax.plot(lost[:, 0], np.full(len(lost), 0.98), "x", transform=ax.get_xaxis_transform(), color=style.color,
                markersize=5, label="_diverged")  # fmt: skip
        ends.append((float(shown[-1, 1]) if len(shown) and not len(lost) else ax.get_ylim()[1], name, style))
    crosses = any(not np.isfinite(points[:, 1]).all() for points in drawn.values())
    note = "; ×: diverged" if crosses else ""
    ax.set_title(f"after equal steps\nmedian and range of the seeds{note}", loc="left")
    return ends


def _slowdowns(
    ax: Axes, slowdowns: Mapping[str, Mapping[int, float]], stages: Sequence[int], styles: Mapping[str, MethodStyle]
) -> None:
    ax.set_yscale("log", base=2)
    lost = any(not np.isfinite(value) for by_stages in slowdowns.values() for value in by_stages.values())
    for number, (name, by_stages) in enumerate(slowdowns.items()):
        reached = [
            (place + _offset(number, len(slowdowns)), by_stages[num_stages])
            for place, num_stages in enumerate(stages)
            if num_stages in by_stages and np.isfinite(by_stages[num_stages])
        ]
        points = np.array(reached, dtype=float).reshape(-1, 2)
        draw_points(ax, points[:, 0], points[:, 1], (np.ones(len(points)), points[:, 1]), styles[name], name)
        never = [
            place + _offset(number, len(slowdowns))
            for place, num_stages in enumerate(stages)
            if num_stages in by_stages and not np.isfinite(by_stages[num_stages])
        ]
        ax.plot(never, np.full(len(never), 0.96), "^", transform=ax.get_xaxis_transform(), color=styles[name].color,
                markerfacecolor="white", markersize=4, label="_never")  # fmt: skip
    ax.axhline(1.0, color="#666666", linewidth=0.8, zorder=1)
    highest = max((v for by_stages in slowdowns.values() for v in by_stages.values() if np.isfinite(v)), default=1.0)
    ticks = [value for value in (0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128) if value <= 1.3 * highest]
    ax.set_ylim(0.8, max(1.3 * highest, 1.6))
    place_ticks(ax.yaxis, [(value, f"{value:g}x") for value in ticks])
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_ylabel("slowdown")
    note = "; △: not reached" if lost else ""
    ax.set_title(f"steps to the target over\nthose without delay{note}", loc="left")
