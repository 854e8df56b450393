"""Shared parts of the figures: axes of steps and of time, labels at the ends of lines, markers, saving."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, MaxNLocator, NullFormatter
from numpy.typing import ArrayLike, NDArray

from syncline.analysis.curves import FloatArray
from syncline.analysis.style import MethodStyle, figure_style
from syncline.errors import SpecError
from syncline.files import atomic_path

# Each unit of time: its name, its length in seconds, and the multiples that get a label on a logarithmic axis.
TIME_UNITS: tuple[tuple[str, float, tuple[int, ...]], ...] = (
    ("ns", 1e-9, (1, 10, 100)),
    ("µs", 1e-6, (1, 10, 100)),
    ("ms", 1e-3, (1, 10, 100)),
    ("s", 1.0, (1, 10)),
    ("min", 60.0, (1, 10)),
    ("h", 3600.0, (1, 10)),
    ("d", 86400.0, (1, 10, 100, 1000, 10000)),
)
TICK_GAP = 0.14  # least distance of two labels, as a share of a time axis: the width of "10 min" in a narrow panel
START_SHARE = 0.15  # share of a logarithmic time axis that is linear, from 0 to its first time
LETTERS_PER_INCH = 14.0  # letters of a legend's text per inch of the page, next to the sample of the line
MARKERS_PER_LINE = 7
CROSS_SIZE, STAR_SIZE = 5.5, 7.5  # points; larger than for a disc, because the white edge covers more of a thin marker
MOST_POINTS = 2000  # points per line: more than the dots of a printed panel, few enough for a small PDF


def panel_grid(fig: Figure, count: int, num_columns: int, shared: bool = True) -> list[Axes]:
    """Return ``count`` axes in rows of ``num_columns``; the empty places of the last row are invisible.

    With ``shared`` all axes have the same limits, and only the lowest and the leftmost have tick labels.
    """
    num_rows = math.ceil(count / num_columns)
    axes = fig.subplots(num_rows, num_columns, sharex=shared, sharey=shared, squeeze=False).ravel()
    for index, ax in enumerate(axes):
        ax.set_visible(index < count)
        if shared:  # Matplotlib labels the last row alone, although places in it may be empty
            is_lowest_of_column = index + num_columns >= count
            ax.tick_params(labelbottom=is_lowest_of_column)
    return list(axes[:count])


def new_figure(width_in: float, height_in: float) -> Figure:
    """Create an empty figure on the Agg canvas; pyplot, with its global list of figures, is not involved."""
    fig = Figure(figsize=(width_in, height_in))
    FigureCanvasAgg(fig)
    return fig


def save(fig: Figure, path: str | Path) -> Path:
    """Write a figure, in the format of the path's suffix; the same figure gives the same bytes.

    Args:
        path: ends in .pdf, .svg or .png; missing folders are made. The function returns it.
    """
    path = Path(path)
    file_format = path.suffix.lower().removeprefix(".")
    # None removes the time of writing from the file.
    metadata: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
    if file_format not in metadata:
        raise SpecError("path", str(path), "a name that ends in .pdf, .svg or .png")
    path.parent.mkdir(parents=True, exist_ok=True)
    with figure_style(), atomic_path(path) as working:
        fig.savefig(working, format=file_format, metadata=metadata[file_format])
    return path


def thinned_indices(count: int, limit: int = MOST_POINTS) -> NDArray[np.intp]:
    """Return the indices of the points to draw: all ``count``, or ``limit`` of them evenly spaced, ends included.

    The function omits points and never averages them, so every drawn point was computed.
    """
    return np.unique(np.linspace(0, max(count - 1, 0), min(count, limit)).round().astype(np.intp))


def draw_line(ax: Axes, x: ArrayLike, y: ArrayLike, style: MethodStyle, label: str) -> None:
    """Draw one line with a few markers, evenly spaced along the x axis and offset from the markers of other lines.

    The limits and the scale of the x axis must be final: the spacing of the markers follows them.
    """
    xs = np.asarray(x, dtype=float)
    marked_points: list[int] = []
    if xs.size:
        # Lines of methods; auxiliary ones, such as targets, have labels with an underscore.
        num_lines = sum(not str(line.get_label()).startswith("_") for line in ax.lines)
        # Position of a line's markers in their intervals, 0.1 to 0.9; golden-section steps keep the lines apart.
        phase = 0.1 + 0.8 * ((0.5 + 0.382 * num_lines) % 1)
        # Positions on the scaled axis, where equal distances are equally long in the figure.
        positions = ax.transScale.transform(np.column_stack([xs, np.ones_like(xs)]))[:, 0]
        axis_start, axis_end = ax.transScale.transform([(limit, 1.0) for limit in ax.get_xlim()])[:, 0]
        for number in range(MARKERS_PER_LINE):
            marker_position = axis_start + (axis_end - axis_start) * (number + phase) / MARKERS_PER_LINE
            if positions[0] <= marker_position <= positions[-1]:
                marked_points.append(int(np.abs(positions - marker_position).argmin()))
    ax.plot(xs, y, markevery=marked_points, label=label, zorder=3, **line_properties(style))


def legend_above(fig: Figure, styles: Mapping[str, MethodStyle], title: str = "") -> None:
    """Draw the title and line samples above all panels, in the order given, in rows of about equal length."""
    draw_legend(fig, line_samples(styles), title)


def line_samples(styles: Mapping[str, MethodStyle]) -> list[Line2D]:
    """Return a line sample for the legend per style."""
    return [Line2D([], [], label=name, **line_properties(style)) for name, style in styles.items()]


def draw_legend(
    fig: Figure,
    handles: Sequence[Artist],
    title: str = "",
    loc: Literal["outside upper center", "outside lower center"] = "outside upper center",
) -> None:
    """Draw the title and the handles with their labels above or below all panels, in as few rows as fit on the page.

    A label or a title that is wider than the page is broken into lines.
    """
    width_in, _ = fig.get_size_inches()
    letters_per_line = LETTERS_PER_INCH * float(width_in)
    title_lines = _wrap(title, 0.8 * letters_per_line)  # a title has larger letters
    for handle in handles:
        handle.set_label(_wrap(str(handle.get_label()), letters_per_line))
    available_width = float(fig.bbox.width) - 8  # in dots, without a margin
    num_rows = 1
    while True:
        num_columns = max(1, math.ceil(len(handles) / num_rows))
        legend = fig.legend(handles=handles, loc=loc, ncols=num_columns, title_fontsize=9, title=title_lines or None)
        if num_columns == 1 or legend.get_window_extent().width <= available_width:
            return
        legend.remove()
        num_rows += 1


def _wrap(text: str, letters_per_line: float) -> str:
    """Break the lines of a text so that no line has more than a number of letters; keep its own line breaks."""
    lines = []
    for line in text.split("\n"):
        lines += textwrap.wrap(line, int(letters_per_line)) or [line]
    return "\n".join(lines)


def label_ends(fig: Figure, ax: Axes, ends: Sequence[tuple[float, str, MethodStyle]], *, share: float = 0.78) -> None:
    """Name each line at the right edge, next to its end, with a sample of the line; labels do not overlap.

    Args:
        fig: the figure; ``ax`` takes its full height.
        ax: axes whose limits and scales are final.
        ends: the final y, the name and the style of each line.
        share: the approximate share of the figure's height that the axes take, without labels and titles.
    """
    _, figure_height_in = fig.get_size_inches()
    # Height of a line of text, 10.5 points, as a share of the axes' height; an inch has 72 points.
    text_height = 10.5 / (share * 72 * float(figure_height_in))
    points = ax.transScale.transform([(ax.get_xlim()[1], y) for y, _, _ in ends])
    wanted_heights = ax.transLimits.transform(points)[:, 1]
    heights = spread_positions(wanted_heights, gap=text_height, lowest=text_height / 2, highest=1.0)
    for height, (_, name, style) in zip(heights, ends, strict=True):
        # A short line at the right of the axes, with a marker in its middle, then the name.
        ax.plot([1.02, 1.055, 1.09], [height] * 3, transform=ax.transAxes, clip_on=False, markevery=[1],
                label="_key", **line_properties(style))  # fmt: skip
        ax.text(1.11, height, name, transform=ax.transAxes, va="center", fontsize=7.5)


def line_properties(style: MethodStyle) -> dict[str, Any]:
    """Return matplotlib's properties of a line in a style; stars, crosses and thin diamonds have larger markers."""
    size = float(matplotlib.rcParams["lines.markersize"])
    if style.marker == "*" or isinstance(style.marker, tuple):  # a tuple is a star
        size = STAR_SIZE
    elif style.marker in ("P", "X", "d"):
        size = CROSS_SIZE
    return {
        "color": style.color, "linestyle": style.linestyle, "marker": style.marker, "markersize": size,
        "markeredgecolor": "white", "markeredgewidth": 0.5,
    }  # fmt: skip


def spread_positions(wanted: ArrayLike, gap: float, lowest: float = -np.inf, highest: float = np.inf) -> FloatArray:
    """Move positions as little as needed for neighbours to be ``gap`` apart, in their order.

    Neighbours that are too close form a block centred on the mean of its members' wanted positions; blocks that then
    touch are merged. This is isotonic regression (pool adjacent violators) on ``wanted_i - i gap``, clipped to the
    bounds: the least squares solution.

    Args:
        wanted: (n,) positions.
        gap: the least distance.
        lowest: lower bound.
        highest: upper bound; if n positions do not fit between the bounds, only the lower one holds.

    Returns:
        (n,) positions, in the order given.
    """
    positions = np.asarray(wanted, dtype=float)
    order = np.argsort(positions, kind="stable")
    gaps_before = gap * np.arange(order.size)
    blocks: list[tuple[float, int]] = []  # mean of wanted_i - i gap, and number of members, of each block
    for value in positions[order] - gaps_before:
        mean, size = float(value), 1
        while blocks and blocks[-1][0] > mean:
            previous_mean, previous_size = blocks.pop()
            mean = (previous_mean * previous_size + mean * size) / (previous_size + size)
            size += previous_size
        blocks.append((mean, size))
    means = [mean for mean, size in blocks for _ in range(size)]
    clipped = np.maximum(np.minimum(means, highest - gap * (order.size - 1)), lowest)
    result = np.empty_like(positions)
    result[order] = clipped + gaps_before
    return result


def step_axis(ax: Axes, last_step: float) -> None:
    """Set up a linear x axis of steps from 0, with thousands separated."""
    ax.set_xlim(0, last_step or 1)
    ax.set_xlabel("step")
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 2.5, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def log_time_axis(ax: Axes, first_s: float, last_s: float) -> None:
    """Set up an x axis of time from 0, logarithmic from ``first_s`` on, with round ticks: 0, 1 s, 10 s, 1 min.

    Up to ``first_s`` the axis is linear and takes `START_SHARE` of its length; a break mark shows the end of this part.
    So the figure shows the start of a training, which no logarithm reaches.
    """
    decades = np.log10(last_s / first_s)
    # symlog draws its linear part as long as linscale / (1 - 1 / base) decades, with the base 10.
    ax.set_xscale("symlog", linthresh=first_s, linscale=0.9 * decades * START_SHARE / (1 - START_SHARE))
    ax.set_xlim(0, last_s)
    gap = TICK_GAP / (1 - START_SHARE)  # as a share of the logarithmic part
    place_ticks(ax.xaxis, [(0.0, "0"), *time_ticks(first_s, last_s, gap)])
    minor_ticks = [seconds for seconds, _ in _round_times(range(1, 10)) if seconds >= first_s]
    ax.xaxis.set_minor_locator(FixedLocator(minor_ticks))
    ax.xaxis.set_minor_formatter(NullFormatter())
    for offset in (-0.006, 0.006):  # the break mark is two slanted strokes
        ax.plot([START_SHARE + offset], [0], transform=ax.transAxes, clip_on=False, linestyle="none", color="#333333",
                marker=[(-0.6, -1), (0.6, 1)], markersize=6, markeredgewidth=0.8, zorder=6, label="_break")  # fmt: skip


def place_ticks(axis: Axis, ticks: Sequence[tuple[float, str]]) -> None:
    """Set an axis's ticks to these (value, label) pairs, and remove all others."""
    axis.set_major_locator(FixedLocator([value for value, _ in ticks]))
    axis.set_major_formatter(FixedFormatter([text for _, text in ticks]))


def time_ticks(first_s: float, last_s: float, gap: float = TICK_GAP) -> list[tuple[float, str]]:
    """Return the ticks of a logarithmic time axis as (seconds, text): the roundest times, none too close to another.

    The roundest are 1 s, 10 s, 1 min and the like; then come threes, which halve a decade; then the rest. Less round
    times are added until there are three ticks. ``gap`` is the least distance of ticks as a share of the axis.
    """
    ticks: list[tuple[float, str]] = []
    least_ratio_log = gap * np.log(last_s / first_s)
    for factors in ((1,), (3,), (2, 5), (4, 6, 7, 8, 9)):
        for seconds, text in _round_times(factors):
            fits = all(abs(np.log(seconds / tick_s)) >= least_ratio_log for tick_s, _ in ticks)
            if first_s <= seconds <= last_s and fits:
                ticks.append((seconds, text))
        if len(ticks) >= 3:
            break
    return sorted(ticks)


def _round_times(factors: Iterable[int]) -> list[tuple[float, str]]:
    """Return the factors times 1, 10, 100 of every unit, as (seconds, text), up to the next unit: 50 s, then 1 min."""
    times = []
    for index, (unit, unit_s, decades) in enumerate(TIME_UNITS):
        next_unit_s = TIME_UNITS[index + 1][1] if index + 1 < len(TIME_UNITS) else float("inf")
        for decade in decades:
            for factor in factors:
                number = decade * factor
                if number * unit_s < 0.99 * next_unit_s:  # 60 s are 1 min, in spite of rounding
                    times.append((number * unit_s, f"{number:,} {unit}"))
    return times


def time_unit(longest_s: float) -> tuple[str, float]:
    """Return the unit (name, seconds) in which ``longest_s`` is at least 2; nanoseconds for the shortest times."""
    for name, unit_s, _ in reversed(TIME_UNITS):
        if longest_s >= 2 * unit_s:
            return name, unit_s
    return "ns", 1e-9
