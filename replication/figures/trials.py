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

from syncline import SpecError
from syncline.analysis import figure_style
from syncline.analysis.axes import new_figure

PANELS = 3
"""Number of panels in a row."""

LETTERS = 26
"""Letters of a line above a panel."""

DECADES_APART = 100.0
"""Ratio of the highest to the lowest knob from which an axis labels only decades, because threes would touch them."""

CLOSE_TOGETHER = 4.0
"""Ratio of the highest to the lowest knob below which an axis may have fewer than two ones and threes of decades."""

COLOURS = "viridis_r"
"""Colour map, darker for higher values; the lightest fifth is not used, because it is hard to see on white."""


class TriedTrial(NamedTuple):
    """A trial: the knob on the axis, above 0, the knob shown by colour, and the loss, infinite after a divergence."""

    knob: float
    other: float
    loss: float


def trials_over_knob(
    trials: Mapping[str, Sequence[TriedTrial]], knobs: Mapping[str, tuple[str, str]], *, title: str = ""
) -> Figure:
    """Draw a mark per trial, dark where the other knob is high, with a ring at the lowest loss.

    Args:
        trials: method -> its trials.
        knobs: method -> names of its two knobs; the second is empty if there is none.
        title: an optional title.

    Returns:
        the figure.

    Raises:
        SpecError: no trial ended with a loss.
    """
    shown = {name: [trial for trial in finished if math.isfinite(trial.loss)] for name, finished in trials.items()}
    shown = {name: finished for name, finished in shown.items() if finished}
    if not shown:
        raise SpecError("trials", dict(trials), "at least one trial that ended with a loss")
    columns = min(PANELS, len(shown))
    rows = -(-len(shown) // columns)
    with figure_style():
        fig = new_figure(0.9 + 2.1 * columns, 0.4 + 1.9 * rows)
        axes = fig.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for ax, (name, finished) in zip(axes, shown.items(), strict=False):
            _draw(ax, finished)
            knob, other = knobs[name]
            title_lines = [textwrap.fill(name, LETTERS), *([f"dark: high {other}"] if other else [])]
            ax.set_title("\n".join(title_lines), loc="left")
            ax.set_xlabel(knob)
        for ax in axes[::columns]:
            ax.set_ylabel("validation loss")
        for ax in axes[len(shown) :]:
            ax.set_visible(False)
        if title:
            fig.suptitle(title)
    return fig


def _draw(ax: Axes, trials: Sequence[TriedTrial]) -> None:
    others = [trial.other for trial in trials]
    low, span = min(others), max(others) - min(others)
    colours = [colormaps[COLOURS](0.2 + 0.8 * ((other - low) / span if span else 0.5)) for other in others]
    best = min(trials, key=lambda trial: trial.loss)
    ax.plot([best.knob], [best.loss], "o", markersize=11, markerfacecolor="none", markeredgecolor="0.4")
    ax.scatter([trial.knob for trial in trials], [trial.loss for trial in trials], c=colours, s=28)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(_ticks([trial.knob for trial in trials]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda knob, _: f"{knob:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.margins(x=0.15, y=0.12)


def _ticks(knobs: Sequence[float]) -> Locator:
    ratio = max(knobs) / min(knobs)
    if ratio < CLOSE_TOGETHER:
        return MaxNLocator(3)
    return LogLocator(subs=(1.0, 3.0) if ratio < DECADES_APART else (1.0,))
