"""Axes of bandwidth: logarithmic, in bits per second as networks are sold, with the presets marked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from syncline.units import format_bandwidth

LETTER_IN = 0.046
"""Width in inches of a letter of a mark's name."""


def bandwidth_axis(ax: Axes, lowest: float, highest: float, label: str = "bandwidth") -> None:
    """Set up a logarithmic x axis of bytes per second with a label per power of ten of bits per second.

    Of many powers it labels every second or third.
    """
    ax.set_xscale("log")
    ax.set_xlim(lowest, highest)
    decades = np.log10(highest / lowest)
    every = 1 if decades <= 3.5 else 2 if decades <= 6 else 3
    powers = np.arange(np.ceil(np.log10(8 * lowest) - 1e-9), np.floor(np.log10(8 * highest) + 1e-9) + 1)
    major = [10.0**power / 8 for power in powers if power % every == 0]
    ax.set_xticks(major, [format_bandwidth(value) for value in major])
    ax.set_xticks([10.0**power / 8 for power in powers], minor=True)
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(label)


def mark_bandwidths(ax: Axes, marks: Mapping[str, float], width_in: float) -> None:
    """Draw thin lines at these bandwidths, named above the axes; a line whose name would cover another is omitted.

    Args:
        ax: axes whose x axis is logarithmic and has its limits.
        marks: name -> bytes per second, the most important first.
        width_in: approximate width of the axes in inches.
    """
    low, high = np.log(ax.get_xlim())
    named: list[tuple[float, float]] = []
    for name, value in marks.items():
        place, half = float((np.log(value) - low) / (high - low)), 0.5 * (len(name) + 1) * LETTER_IN / width_in
        if not 0 <= place <= 1 or any(abs(place - other) < half + other_half for other, other_half in named):
            continue
        named.append((place, half))
        ax.axvline(value, color="#BBBBBB", linewidth=0.6, linestyle=(0, (2, 2)), zorder=0)
        ax.text(value, 1.01, name, transform=ax.get_xaxis_transform(), ha="center", va="bottom", fontsize=6,
                color="#555555")  # fmt: skip


def multiple_axis(ax: Axes, lowest: float, highest: float) -> None:
    """Set up a logarithmic vertical axis of multiples: 0.5x, 1x, 2x."""
    ax.set_yscale("log")
    ax.set_ylim(lowest, highest)
    subs = (1, 2, 5) if highest / lowest < 300 else (1,)
    ax.yaxis.set_major_locator(LogLocator(subs=subs, numticks=20))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}x" if value >= 1 else f"{value:g}x"))
    ax.yaxis.set_minor_formatter(NullFormatter())
