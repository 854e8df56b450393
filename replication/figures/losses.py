"""Last losses of a replication: a line per method and setting, a point per seed; and losses over the bytes sent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from syncline import SpecError
from syncline.analysis import figure_style, method_styles
from syncline.analysis.axes import legend_above, new_figure
from syncline.units import format_bytes

LOGARITHMIC_FROM = 30.0
"""Ratio of the highest to the lowest loss from which a loss axis is logarithmic."""


def needs_logarithm(losses: Iterable[float]) -> bool:
    """Return whether losses differ by so large a factor that an axis of losses should be logarithmic.

    >>> needs_logarithm([0.04, 95.0]), needs_logarithm([1.9, 5.5]), needs_logarithm([])
    (True, False, False)
    """
    positive = [loss for loss in losses if 0 < loss < math.inf]
    return bool(positive) and max(positive) > LOGARITHMIC_FROM * min(positive)


def last_losses(
    settings: Mapping[str, Mapping[str, Sequence[float]]], *, loss_label: str = "validation loss", title: str = ""
) -> Figure:
    """Draw a line per setting and method with the last losses of its seeds on it; the stroke is their median.

    Args:
        settings: setting -> method -> a loss per seed; a diverged seed is infinite and is not drawn.
        loss_label: label of the loss axis.
        title: an optional title.

    Returns:
        the figure.

    Raises:
        SpecError: there is no setting.
    """
    lines = [(name, method) for name, methods in settings.items() for method in methods]
    if not lines:
        raise SpecError("settings", dict(settings), "at least one setting with one method")
    styles = method_styles(list(dict.fromkeys(method for _, method in lines)))
    with figure_style():
        fig = new_figure(5.5, max(0.7 + 0.2 * len(lines), 1.6))
        ax = fig.subplots()
        for place, (name, method) in enumerate(lines):
            style = styles[method]
            shown = [loss for loss in settings[name][method] if math.isfinite(loss)]
            ax.plot(shown, [place] * len(shown), linestyle="none", marker=style.marker, color=style.color, alpha=0.7)
            if shown:
                ax.plot([median(shown)] * 2, [place - 0.35, place + 0.35], color=style.color)
            if place and lines[place - 1][0] != name:
                ax.axhline(place - 0.5, color="0.85", linewidth=0.6)
        ax.set_yticks(range(len(lines)), [f"{method}, {name}" if name else method for name, method in lines])
        ax.set_ylim(len(lines) - 0.4, -0.6)
        ax.tick_params(axis="y", length=0)
        if needs_logarithm(loss for methods in settings.values() for losses in methods.values() for loss in losses):
            ax.set_xscale("log")
        ax.set_xlabel(loss_label)
        ax.set_ylabel("method, setting")
        if title:
            ax.set_title(title, loc="left")
    return fig


def last_losses_over_bytes(
    settings: Mapping[str, Mapping[str, tuple[float, Sequence[float]]]],
    *,
    loss_label: str = "validation loss",
    title: str = "",
) -> Figure:
    """Draw last losses over the bytes sent per step: a point per method and setting, the seeds' range as a line.

    Points of one method are joined in the order of their bytes; each point has the name of its setting.

    Args:
        settings: setting -> method -> bytes per worker and step, and a loss per seed; a method that sends nothing, or
            diverged on most seeds, is not drawn.
        loss_label: label of the loss axis.
        title: an optional title.

    Returns:
        the figure.

    Raises:
        SpecError: no method has a point to draw.
    """
    points: dict[str, list[tuple[float, float, float, float, str]]] = {}
    for name, methods in settings.items():
        for method, (nbytes, losses) in methods.items():
            middle = median(losses) if losses else math.inf
            if nbytes > 0 and math.isfinite(middle):
                shown = [loss for loss in losses if math.isfinite(loss)]
                points.setdefault(method, []).append((nbytes, middle, min(shown), max(shown), name))
    if not points:
        raise SpecError("settings", dict(settings), "at least one method that sends something and has a loss")
    styles = method_styles(list(points))
    with figure_style():
        fig = new_figure(5.5, 3.2 + 0.07 * len(points))
        ax = fig.subplots()
        for method, method_points in points.items():
            style = styles[method]
            sent_bytes, medians, lowest, highest, names = zip(*sorted(method_points), strict=True)
            ax.plot(sent_bytes, medians, color=style.color, linewidth=0.8, alpha=0.6)
            ax.vlines(sent_bytes, lowest, highest, color=style.color, linewidth=1.0, alpha=0.6)
            ax.plot(sent_bytes, medians, linestyle="none", marker=style.marker, color=style.color, markersize=5)
            for x, y, name in zip(sent_bytes, medians, names, strict=True):
                if name:
                    ax.annotate(name, (x, y), (5, 3), textcoords="offset points", size=6.5, color="#444444")
        if needs_logarithm(loss for lines in points.values() for point in lines for loss in point[2:4]):
            ax.set_yscale("log")
        ax.set_xscale("log")
        ax.margins(x=0.12, y=0.1)
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda nbytes, _: format_bytes(nbytes)))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlabel("sent per worker and step")
        ax.set_ylabel(loss_label)
        legend_above(fig, {method: styles[method] for method in points}, title)
    return fig
