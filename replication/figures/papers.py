"""A paper in one picture: a message, the numbers behind it, and the number of the paper's values that hold."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from syncline import SpecError
from syncline.analysis import figure_style
from syncline.analysis.axes import new_figure

WIDTH_IN = 6.0
"""Width of the picture; at 600 pixels, a point of text is 1.4 pixels."""
LETTERS_OF_A_LINE = 66
LARGE = 8.5
"""Size of the text, in points."""
BAR_COLORS = ("#8C8C8C", "#0072B2", "#E69F00", "#009E73")
"""Colours of the series; the first one, usually the paper's, is grey."""
VERDICT_COLORS = {
    "agree": ("#0072B2", "white"), "trend": ("#56B4E9", "black"), "differ": ("#D55E00", "white"),
    "undecided": ("#F0E442", "black"), "not checkable": ("#D9D9D9", "black"),
}  # fmt: skip
"""Colours of the bar and of its text."""


def paper_summary(
    message: str,
    bars: Mapping[str, Mapping[str, float]],
    verdicts: Mapping[str, int],
    *,
    value_label: str,
    group_label: str,
    format_value: Callable[[float], str] = "{:,.3g}".format,
    log: bool = False,
    span: tuple[float, float, str] | None = None,
) -> Figure:
    """Draw a message as the title, bars that show it, and below them the verdicts on all of the paper's numbers.

    Args:
        message: the main result, in a sentence.
        bars: group -> series -> value, from top to bottom; a series that a group lacks leaves no gap.
        verdicts: verdict -> number of the paper's numbers with it.
        value_label: name of the bars' lengths, with the unit.
        group_label: name of the groups.
        format_value: function from a value to the text at its bar's end.
        log: draw a logarithmic axis of values.
        span: start, end and name of a range to shade.

    Raises:
        SpecError: there is no bar.
    """
    if not any(bars.values()):
        raise SpecError("bars", dict(bars), "at least one group with a value")
    series = list(dict.fromkeys(name for group in bars.values() for name in group))
    colors = {name: BAR_COLORS[place % len(BAR_COLORS)] for place, name in enumerate(series)}
    count = sum(len(group) for group in bars.values())
    lines = textwrap.wrap(message, LETTERS_OF_A_LINE)
    with figure_style():
        fig = new_figure(WIDTH_IN, 1.6 + 0.17 * len(lines) + 0.19 * count + 0.12 * len(bars))
        upper, lower = fig.subplots(2, 1, height_ratios=[0.19 * count + 0.12 * len(bars), 0.24])
        _bars(upper, bars, colors, format_value, log)
        upper.set_xlabel(value_label, fontsize=LARGE)
        upper.set_ylabel(group_label, fontsize=LARGE)
        handles = [Patch(color=color, label=name) for name, color in colors.items()]
        if span:
            upper.axvspan(*span[:2], color="#009E73", alpha=0.15, linewidth=0, zorder=0)
            handles.append(Patch(color="#009E73", alpha=0.25, label=span[2]))
        _verdicts(lower, verdicts)
        upper.legend(handles=handles, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=len(handles),
                     handlelength=1.4, columnspacing=1.2, fontsize=LARGE, borderaxespad=0.2)  # fmt: skip
        fig.suptitle("\n".join(lines), fontsize=10, fontweight="bold", x=0.012, ha="left")
    return fig


def _bars(
    ax: Axes,
    bars: Mapping[str, Mapping[str, float]],
    colors: Mapping[str, str],
    format_value: Callable[[float], str],
    log: bool,
) -> None:
    values = np.array([value for group in bars.values() for value in group.values()])
    low = 10 ** np.floor(np.log10(values.min()) - 0.01) if log else min(0.0, 1.15 * float(values.min()))
    # Room for the number at the longest bar's end.
    high = float(values.max()) * (values.max() / low) ** 0.2 if log else 1.18 * max(float(values.max()), 0.0) or 1.0
    ax.set_xscale("log" if log else "linear")
    ax.set_xlim(low, high)
    top, places = 0.0, []
    for group in bars.values():
        for place, (name, value) in enumerate(group.items()):
            y = top + place
            ax.barh(
                y, value - (low if log else 0.0), left=low if log else 0.0, height=0.86, color=colors[name], zorder=2
            )
            ax.annotate(format_value(value), (max(value, 0.0), y), (4, 0), textcoords="offset points",
                        va="center_baseline", fontsize=LARGE, zorder=3)  # fmt: skip
        places.append(top + (len(group) - 1) / 2)
        top += len(group) + 0.6
    ax.set_ylim(top - 1.0, -0.7)
    ax.set_yticks(places, list(bars), fontsize=LARGE)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    if log:
        ax.xaxis.set_major_locator(LogLocator(numticks=8))
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _verdicts(ax: Axes, verdicts: Mapping[str, int]) -> None:
    """Draw one bar of all numbers, cut by verdict; a part that is too narrow for its name omits it."""
    total = sum(verdicts.values())
    start = 0
    for name, (color, ink) in VERDICT_COLORS.items():
        number = verdicts.get(name, 0)
        ax.barh(0, number, left=start, height=1.0, color=color, edgecolor="white", linewidth=0.8)
        for text in (f"{number} {name}", f"{number}"):
            if number and number / total * 0.78 * WIDTH_IN > 0.075 * len(text) + 0.04:
                ax.text(start + number / 2, 0, text, ha="center", va="center_baseline", fontsize=LARGE, color=ink)
                break
        start += number
    ax.set_xlim(0, total or 1)
    ax.set_ylim(-0.5, 0.5)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    counts = ", ".join(f"{number} {name}" for name, number in verdicts.items() if number)
    ax.set_xlabel(f"{total} numbers and claims of the paper:\n{counts}", fontsize=LARGE)


def verdict_counts(verdicts: Sequence[str]) -> dict[str, int]:
    """Return the number of occurrences of each verdict, in the order in which they are drawn."""
    return {name: sum(verdict == name for verdict in verdicts) for name in VERDICT_COLORS}
