"""Loss against steps and against the clock of each network."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from syncline.analysis import axes
from syncline.analysis.curves import Curve, FloatArray, lost_seeds, median_and_range, time_to_target_s
from syncline.analysis.style import MethodStyle, figure_style, method_styles
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Network
from syncline.errors import SpecError
from syncline.units import format_bandwidth, format_seconds

# Totals with a larger ratio share no linear axis: the fastest method would have a fifth of the panel or less.
LOG_TIME_RATIO = 5.0
Targets = float | Sequence[float] | None
"""One target loss, several, or none."""

LETTERS_PER_LINE = 34
"""Largest number of letters in a line of a network's description, in the title of its panel."""
BAND_ROOM = 0.3
"""Largest extra height of a panel for the seeds' bands, as a share of the medians' range; the bands are cut there."""


def loss_against_steps(
    curves: Sequence[Curve],
    *,
    loss_label: str = "loss",
    log_loss: bool = False,
    target: Targets = None,
    title: str = "",
) -> Figure:
    """Draw loss against the number of steps: one line per method, named at its end.

    The line is the median over the seeds, the band their range. A run that diverged ends in a cross.

    Args:
        loss_label: the name of the loss, with its unit: "validation loss (nats per byte)".
        log_loss: a logarithmic loss axis.
        target: a loss to mark, or several, with a ring where each method first reaches it.
    """
    if not curves:
        raise SpecError("curves", [], "at least one curve")
    targets = _target_losses(target)
    with figure_style():
        fig = axes.new_figure(5.0, 2.7 + _legend_height_in(curves))
        ax = fig.add_subplot()
        _loss_axis(ax, curves, loss_label, logarithmic=log_loss)
        axes.step_axis(ax, max(float(curve.step[-1]) for curve in curves))
        styles = method_styles(curve.label for curve in curves)
        ends = []  # final loss, label and style of each line
        for curve in curves:
            style = styles[curve.label]
            end_loss = _draw_curve(ax, curve, x=curve.step, style=style, targets=targets)
            ends.append((end_loss, _label_with_divergence(curve), style))
        _draw_targets(ax, targets)
        axes.label_ends(fig, ax, ends)
        ax.set_title(title, loc="left")
    return fig


def loss_against_clock(
    curves: Sequence[Curve],
    networks: Mapping[str, Network | str],
    *,
    loss_label: str = "loss",
    log_loss: bool = False,
    target: Targets = None,
    time_scale: Literal["auto", "linear", "log"] = "auto",
    title: str = "",
    styles: Mapping[str, MethodStyle] | None = None,
) -> Figure:
    """Draw loss against wall-clock time: one panel per network, the same loss axis, one legend.

    Args:
        curves: one per method, each with a clock for every network.
        networks: name -> link; the panels, in this order. The title of each shows its bandwidth and latency, or the
            text given instead of a link.
        loss_label: the name of the loss, with its unit.
        log_loss: a logarithmic loss axis.
        target: a loss to mark, or several, with a ring where each method first reaches it.
        time_scale: "auto" is logarithmic if, on any network, one method takes over five times as long as another. A
            logarithmic axis begins with a linear piece, from 0 to the earliest evaluation.
        styles: label -> style; by default ``method_styles``.

    Raises:
        SpecError: there is no curve or no network, or a curve lacks the clock of a network.
    """
    if not curves:
        raise SpecError("curves", [], "at least one curve")
    if not networks:
        raise SpecError("networks", dict(networks), "at least one network")
    for curve in curves:
        for name in networks:
            if name not in curve.clock_s:
                raise SpecError(f"{curve.label}.clock_s", sorted(curve.clock_s), f"a clock for the network {name!r}")
    targets = _target_losses(target)
    log_time = time_scale == "log" or (time_scale == "auto" and durations_differ(curves, networks))
    styles = styles or method_styles(curve.label for curve in curves)
    with figure_style():
        fig = axes.new_figure(max(4.0, 0.4 + 2.25 * len(networks)), (3.0 if title else 2.8) + _legend_height_in(curves))
        panels = fig.subplots(1, len(networks), sharey=True, squeeze=False)[0]
        for ax, (name, link) in zip(panels, networks.items(), strict=True):
            _loss_axis(ax, curves, label=loss_label if ax is panels[0] else "", logarithmic=log_loss)
            unit_s = _time_axis(ax, [curve.clock_s[name] for curve in curves], log_time)
            for curve in curves:
                _draw_curve(ax, curve, x=curve.clock_s[name] / unit_s, style=styles[curve.label], targets=targets)
            _draw_targets(ax, targets)
            ax.set_title(f"{name}\n{textwrap.fill(_describe(link), LETTERS_PER_LINE)}", loc="left")
        axes.legend_above(fig, {_label_with_divergence(curve): styles[curve.label] for curve in curves}, title)
    return fig


def _target_losses(target: Targets) -> tuple[float, ...]:
    """Return one target loss, several or none as a tuple."""
    if target is None:
        return ()
    return (target,) if isinstance(target, int | float) else tuple(target)


def _draw_curve(ax: Axes, curve: Curve, x: FloatArray, style: MethodStyle, targets: Sequence[float]) -> float:
    """Draw a curve, and return the loss at which its line ends or leaves the panel.

    The line is the median over the seeds, the band their range. A ring marks a reached target, a cross a divergence.

    Args:
        ax: the panel, whose loss axis has its limits.
        x: (n,) positions of the evaluations on the x axis.
        targets: losses to mark where the curve first reaches them.
    """
    median, lowest, highest = median_and_range(curve.loss)
    shown = np.flatnonzero(curve.shown)  # indices of the evaluations before the curve diverged
    drawn = shown[axes.thinned_indices(shown.size)]
    has_diverged = curve.diverged_at is not None or not shown.size  # also if it never had a finite loss
    crossings = []  # positions on the x axis where the curve reaches a target, with the target
    for target in targets:
        reached_at = time_to_target_s(x, median, target)  # in the units of x
        if np.isfinite(reached_at) and not has_diverged:
            crossings.append((reached_at, target))
    # Without points at the targets, a line would not pass through its rings on a logarithmic axis, because the rings
    # are interpolated linearly.
    line_x, line_y = x[drawn], median[drawn]
    for reached_at, target in sorted(crossings):
        if not (line_x == reached_at).any():
            next_index = int(np.searchsorted(line_x, reached_at))
            line_x = np.insert(line_x, next_index, reached_at)
            line_y = np.insert(line_y, next_index, np.float64(target))
    axes.draw_line(ax, line_x, y=line_y, style=style, label=curve.label)
    if len(curve.loss) > 1:
        _draw_band(ax, x[drawn], lowest=lowest[drawn], highest=highest[drawn], style=style)
    if has_diverged:
        _draw_cross(ax, x[shown], loss=median[shown], style=style)
        return float(ax.get_ylim()[1])
    marker_size = 5.5 if len(targets) == 1 else 4.5  # several rings of a line may be close
    for reached_at, target in sorted(crossings):
        # White discs lie below all rings, so that both rings are visible where two methods are close.
        for face, edge, layer, name in (("white", "white", 5, "_disc"), ("none", style.color, 6, "_reached")):
            ax.plot(reached_at, target, marker="o", markersize=marker_size, markerfacecolor=face, markeredgecolor=edge,
                    markeredgewidth=1.2, zorder=layer, label=name)  # fmt: skip
    return float(median[shown[-1]])


def _draw_band(ax: Axes, x: FloatArray, lowest: FloatArray, highest: FloatArray, style: MethodStyle) -> None:
    """Draw the range over the seeds as a band, cut at the edge of the panel; a mark at the top shows a higher range."""
    bottom, top = ax.get_ylim()
    ax.fill_between(x, np.clip(lowest, bottom, top), np.clip(highest, bottom, top), color=style.color, alpha=0.2,
                    linewidth=0, zorder=2)  # fmt: skip
    too_high = np.flatnonzero(highest > top)
    if not too_high.size:
        return
    gaps = np.flatnonzero(np.diff(too_high) > 1) + 1
    for neighbours in np.split(too_high, gaps):  # one mark at the peak of each group of neighbouring points
        peak = neighbours[int(np.argmax(highest[neighbours]))]
        triangle = (3, 0, 0)  # upwards
        ax.plot(x[peak], top, marker=triangle, markersize=3.5, color=style.color, markeredgewidth=0, clip_on=False,
                zorder=4, label="_cut")  # fmt: skip


def _draw_cross(ax: Axes, x: FloatArray, loss: FloatArray, style: MethodStyle) -> None:
    """Draw a cross where a diverged line ends, or where it leaves the panel for good.

    Args:
        x: (n,) positions on the x axis of the evaluations before the divergence.
        loss: (n,) median losses there.
    """
    if not x.size:
        return
    _, top = ax.get_ylim()
    in_panel = np.flatnonzero(loss <= top)
    last = in_panel[-1] if in_panel.size else 0
    end = (x[last], min(loss[last], top))
    if in_panel.size and last + 1 < x.size:  # the drawn line crosses the top of the panel
        (x0, y0), (x1, y1) = ax.transScale.transform([(x[last], loss[last]), (x[last + 1], loss[last + 1])])
        _, scaled_top = ax.transScale.transform((x[last], top))
        crossing_x = x0 + (x1 - x0) * (scaled_top - y0) / (y1 - y0)
        end = tuple(ax.transScale.inverted().transform((crossing_x, scaled_top)))
    ax.plot(*end, marker="x", color=style.color, markersize=6, markeredgewidth=1.5, clip_on=False, zorder=5,
            label="_diverged")  # fmt: skip


def _label_with_divergence(curve: Curve) -> str:
    """Return the label of a curve, and whether the run or some of its seeds diverged."""
    if curve.diverged_at is not None:
        return f"{curve.label} (diverged)"
    num_diverged = lost_seeds(curve.loss)
    return f"{curve.label} ({num_diverged} of {len(curve.loss)} diverged)" if num_diverged else curve.label


def loss_limits(curves: Sequence[Curve], logarithmic: bool = False) -> tuple[float, float]:
    """Return the limits of a loss axis: the lowest loss of all curves, and the highest loss at the start of one.

    Higher losses have diverged. Bands of seeds have room for up to `BAND_ROOM` of that range above the upper limit.
    """
    scale = np.log if logarithmic else np.asarray  # the limits are computed on the axis's scale
    starts, lowest_losses, highest_in_bands = [], [], []
    for curve in curves:
        values = np.stack(median_and_range(curve.loss))[:, curve.shown]
        if logarithmic:
            values = values[:, (values > 0).all(axis=0)]
        if values.size:
            median, lowest, highest = scale(values)
            starts.append(float(median[0]))
            lowest_losses.append(float(lowest.min()))
            if len(curve.loss) > 1:
                highest_in_bands.append(float(highest.max()))
    default = float(scale(1.0))  # both limits if the axis can show no loss
    low, high = min(lowest_losses, default=default), max(starts, default=default)
    margin = 0.05 * (high - low)
    if not margin:  # all losses are equal
        margin = 0.1 if logarithmic else 0.5
    band_room = min(max(highest_in_bands, default=-np.inf) - high, BAND_ROOM * (high - low))
    bottom, top = low - margin, high + max(0.0, band_room) + margin
    return (math.exp(bottom), math.exp(top)) if logarithmic else (bottom, top)


def _loss_axis(ax: Axes, curves: Sequence[Curve], label: str, logarithmic: bool) -> None:
    """Set up the loss axis; a logarithmic one of less than a decade has round numbers as ticks."""
    low, high = loss_limits(curves, logarithmic)
    ax.set_yscale("log" if logarithmic else "linear")
    ax.set_ylim(low, high)
    if logarithmic and high < 10 * low:  # where powers of ten would leave one label or none
        values = MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low, high)
        axes.place_ticks(ax.yaxis, [(value, f"{value:g}") for value in values if low <= value <= high])
        ax.yaxis.set_minor_locator(NullLocator())
    ax.set_ylabel(label)


def _time_axis(ax: Axes, clocks_s: Sequence[FloatArray], logarithmic: bool) -> float:
    """Set up the time axis; return the length in seconds of the unit in which the curves are to be drawn."""
    last_s = max(float(clock[-1]) for clock in clocks_s)
    if logarithmic:
        # The earliest evaluation after the start, whose time of 0 has no logarithm.
        first_s = min((float(clock[clock > 0][0]) for clock in clocks_s if clock[-1] > 0), default=1.0)
        axes.log_time_axis(ax, first_s, max(1.1 * last_s, 2 * first_s))  # some length, even with one evaluation
        ax.set_xlabel("wall-clock time")
        return 1.0  # a logarithmic axis is in seconds, its labels have their own units
    unit, unit_s = axes.time_unit(last_s)
    ax.set_xlim(0, last_s / unit_s or 1)  # any length will do if no time passes
    ax.set_xlabel(f"wall-clock time ({unit})")
    return unit_s


def durations_differ(curves: Sequence[Curve], networks: Iterable[str]) -> bool:
    """Return whether, on any network, one method takes over `LOG_TIME_RATIO` times as long as another."""
    totals = np.array([[curve.clock_s[name][-1] for curve in curves] for name in networks])
    return bool((totals.max(axis=1) > LOG_TIME_RATIO * totals.min(axis=1)).any())


POINTS_PER_INCH = 72

NAME_HEIGHT, NAME_WIDTH = 12.0, 50.0
"""Height and width in points of a target's name."""


def _draw_targets(ax: Axes, targets: Sequence[float]) -> None:
    """Draw a line with its name at each target within the axes; names at one height stand side by side."""
    low, high = ax.get_ylim()
    panel_height = ax.get_window_extent().height * POINTS_PER_INCH / ax.figure.dpi
    previous_height, name_x = float("inf"), 0.0
    # A name outside the panel would still take room.
    for target in sorted((value for value in targets if low <= value <= high), reverse=True):
        ax.axhline(target, color="#666666", linewidth=0.8, zorder=1, label="_target")
        _, share_of_height = (ax.transScale + ax.transLimits).transform((ax.get_xlim()[1], target))
        height = float(share_of_height) * panel_height
        stands_beside = previous_height - height < NAME_HEIGHT  # too close to the name above to stand below it
        name_x = name_x + NAME_WIDTH if stands_beside else 0.0
        previous_height = height
        # Below the line at the left: curves come from above it.
        ax.annotate(f"target {target:.4g}", (0, target), xycoords=ax.get_yaxis_transform(), xytext=(3 + name_x, -2),
                    textcoords="offset points", va="top", fontsize=6.5, color="#444444", zorder=4,
                    bbox={"color": "white", "alpha": 0.75, "pad": 0.3})  # fmt: skip


def _describe(network: Network | str) -> str:
    """Return the bandwidth and latency of a link, the description of another network, or the given text."""
    if isinstance(network, str):
        return network
    if not isinstance(network, Link):
        return network.describe()
    latency = format_seconds(float(network.latency_s)).replace(" us", " µs")
    return f"{format_bandwidth(float(network.bandwidth_bytes_per_s))}, latency {latency}"


def _legend_height_in(curves: Sequence[Curve]) -> float:
    """Return the additional height of a figure in inches, if it has more than four curves to name."""
    return 0.25 * min(max(len(curves) - 4, 0), 4)
