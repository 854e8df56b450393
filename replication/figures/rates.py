"""Effects of quantisers on the sign of a sum: shares per quantiser, and losses by the weight of the noise's tails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from replication.figures.points import draw_points
from syncline import SpecError
from syncline.analysis import figure_style, method_styles
from syncline.analysis.axes import draw_legend, line_samples, new_figure

SHARES = {"match": ("#0072B2", "same sign"), "zero": ("#D9D9D9", "none"), "flip": ("#D55E00", "opposite sign")}
"""Colour and name of each share, in the order in which they are drawn; they differ in lightness too."""

PANELS_PER_ROW = 3
LABELLED = 0.08
"""Share from which a bar has room for its number."""


CROWD = 0.7
"""Share of the width of one alpha that the points of all methods take."""


def sign_shares(
    panels: Mapping[str, Mapping[str, Mapping[str, float]]], *, bar_label: str = "quantiser", title: str = ""
) -> Figure:
    """Draw the shares of entries that keep the sign of their sum, lose it, or flip it: a stacked bar per quantiser.

    Args:
        panels: panel -> bar -> ``match``, ``flip`` and ``zero``, shares that add up to 1. A bar has the
            same place in all panels, even if some panels lack it.
        bar_label: name of the bars.
        title: an optional title above all panels.

    Returns:
        the figure.

    Raises:
        SpecError: there is no panel.
    """
    if not panels:
        raise SpecError("panels", dict(panels), "at least one panel")
    bars = list(dict.fromkeys(bar for panel in panels.values() for bar in panel))
    across = min(PANELS_PER_ROW, len(panels))
    down = -(-len(panels) // across)
    with figure_style():
        fig = new_figure(1.0 + 2.1 * across, 0.75 + down * (0.45 + 0.19 * len(bars)) + (0.2 if title else 0))
        axes = fig.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
        for ax, (name, panel) in zip(axes, panels.items(), strict=False):
            start = np.zeros(len(bars))
            for share, (color, _) in SHARES.items():
                width = np.array([panel[bar][share] if bar in panel else 0.0 for bar in bars])
                ax.barh(range(len(bars)), width, left=start, height=0.78, color=color, edgecolor="white", linewidth=0.5)
                for place, (offset, length) in enumerate(zip(start, width, strict=True)):
                    if length >= LABELLED:
                        ax.text(offset + length / 2, place, f"{100 * length:.0f}", ha="center", va="center", fontsize=6,
                                color="black" if share == "zero" else "white")  # fmt: skip
                start += width
            ax.set_title(name, loc="left")
            ax.set_xlim(0, 1)
            ax.set_yticks(range(len(bars)), bars)
            ax.tick_params(axis="y", length=0)
            ax.grid(False)
        axes[0].invert_yaxis()
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        ticks = [0, 0.5, 1]
        for ax in axes[: len(panels)]:
            ax.set_xticks(ticks, [f"{100 * tick:g} %" for tick in ticks])
        fig.supxlabel("share of the entries", fontsize=8)
        fig.supylabel(bar_label, fontsize=8)
        draw_legend(fig, [Patch(color=color, label=label) for color, label in SHARES.values()], title)
    return fig


def loss_over_tails(
    losses: Mapping[str, Mapping[float, Sequence[float]]], *, loss_label: str = "final loss", title: str = ""
) -> Figure:
    """Draw final losses against the noise's index of stability: the median as a point, the seeds' range as a bar.

    Args:
        losses: method -> alpha -> (median, lowest, highest); values are not finite where most seeds diverged,
            and such points are omitted.
        loss_label: the name of the loss, with its unit.
        title: an optional title.

    Returns:
        the figure, with a logarithmic loss axis and the heaviest tails at the right.

    Raises:
        SpecError: there is no method.
    """
    if not losses:
        raise SpecError("losses", dict(losses), "at least one method")
    alphas = sorted({alpha for method in losses.values() for alpha in method}, reverse=True)
    styles = method_styles(losses)
    with figure_style():
        fig = new_figure(5.2, 3.0 + 0.04 * len(losses))
        ax = fig.add_subplot()
        ax.set_yscale("log")
        for number, (name, by_alpha) in enumerate(losses.items()):
            offset = CROWD * ((number + 0.5) / len(losses) - 0.5)
            points = [(place + offset, *by_alpha[alpha]) for place, alpha in enumerate(alphas) if alpha in by_alpha]
            shown = np.array([point for point in points if np.isfinite(point[1])]).reshape(-1, 4)
            draw_points(ax, shown[:, 0], shown[:, 1], (shown[:, 2], shown[:, 3]), styles[name], name)
        for place in range(1, len(alphas)):
            ax.axvline(place - 0.5, color="#D9D9D9", linewidth=0.6, zorder=0)
        ax.set_xlim(-0.5, len(alphas) - 0.5)
        ax.set_xticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
        ax.grid(False, axis="x")
        ax.tick_params(axis="x", length=0)
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.set_xlabel("index of stability α of the noise: 2 Gaussian, 1 Cauchy; heavier tails to the right")
        ax.set_ylabel(loss_label)
        samples = line_samples({name: replace(style, linestyle="none") for name, style in styles.items()})
        draw_legend(fig, samples, title)
    return fig
