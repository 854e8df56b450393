"""Trials of a search: losses over one knob, in the colour of another, a panel per method."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator, NullLocator

from syncline.analysis.figures.axes import new_figure
from syncline.analysis.figures.style import figure_style
from syncline.errors import SpecError

PANELS = 3
"""Beside each other."""

LETTERS = 26
"""Of a line above a panel."""

DECADES_APART = 100.0
"""The highest over the lowest, from which an axis has its decades alone: threes would touch them."""

CLOSE_TOGETHER = 4.0
"""The highest over the lowest, up to which ones and threes of decades may be fewer than two."""

COLOURS = "viridis_r"
"""The darker, the higher; the lightest fifth, which white swallows, is left out."""


class TriedTrial(NamedTuple):
    """A trial: the knob of the axis, above 0, that of the colour, and the loss; infinite of what diverged."""

    knob: float
    other: float
    loss: float


def trials_over_knob(
    trials: Mapping[str, Sequence[TriedTrial]], knobs: Mapping[str, tuple[str, str]], *, title: str = ""
) -> Figure:
    """A mark per trial, dark where the other knob is high; the lowest loss has a ring, what diverged is left out.

    Args:
        trials: method -> its trials.
        knobs: method -> what its two knobs are called; nothing in the place of the other one if there is none.
        title: an optional title.

    Returns:
        the figure.

    Raises:
        SpecError: no trial ended with a loss.
    """
    shown = {name: [one for one in found if math.isfinite(one.loss)] for name, found in trials.items()}
    shown = {name: found for name, found in shown.items() if found}
    if not shown:
        raise SpecError("trials", dict(trials), "at least one trial that ended with a loss")
    columns = min(PANELS, len(shown))
    rows = -(-len(shown) // columns)
    with figure_style():
        fig = new_figure(0.9 + 2.1 * columns, 0.4 + 1.9 * rows)
        axes = fig.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for ax, (name, found) in zip(axes, shown.items(), strict=False):
            _draw(ax, found)
            knob, other = knobs[name]
            told = [textwrap.fill(name, LETTERS), *([f"dark: high {other}"] if other else [])]
            ax.set_title("\n".join(told), loc="left")
            ax.set_xlabel(knob)
        for ax in axes[::columns]:
            ax.set_ylabel("validation loss")
        for ax in axes[len(shown) :]:
            ax.set_visible(False)
        if title:
            fig.suptitle(title)
    return fig


def _draw(ax: Axes, found: Sequence[TriedTrial]) -> None:
    others = [one.other for one in found]
    low, span = min(others), max(others) - min(others)
    colours = [colormaps[COLOURS](0.2 + 0.8 * ((other - low) / span if span else 0.5)) for other in others]
    best = min(found, key=lambda one: one.loss)
    ax.plot([best.knob], [best.loss], "o", markersize=11, markerfacecolor="none", markeredgecolor="0.4")
    ax.scatter([one.knob for one in found], [one.loss for one in found], c=colours, s=28)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(_ticks([one.knob for one in found]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda knob, _: f"{knob:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.margins(x=0.15, y=0.12)


def _ticks(knobs: Sequence[float]) -> Locator:
    apart = max(knobs) / min(knobs)
    if apart < CLOSE_TOGETHER:
        return MaxNLocator(3)
    return LogLocator(subs=(1.0, 3.0) if apart < DECADES_APART else (1.0,))
