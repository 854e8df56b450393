"""Figures of what workers do over time: timelines, pipeline schedules, and updates of asynchronous workers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator, PercentFormatter
from numpy.typing import ArrayLike, NDArray

from syncline.analysis.axes import draw_legend, legend_above, new_figure, panel_grid, time_unit
from syncline.analysis.style import figure_style, method_styles
from syncline.errors import SpecError

if TYPE_CHECKING:
    from syncline.sim.pipelines.report import TaskSpan

WAITING_ACTIVITIES = ("wait", "recv")  # kinds of spans in which a compute stream only waits for the network
COLUMNS = ("worker", "stream", "what", "start_s", "end_s")


class BarStyle(NamedTuple):
    """The style of a kind of bars: top and height within a worker's row of height 1, colour, hatch, and edge colour."""

    top: float
    height: float
    face: str
    hatch: str
    edge: str


BAR_STYLES = {
    "compute": BarStyle(0.10, 0.52, face="#0072B2", hatch="", edge="#0072B2"),
    "wait": BarStyle(0.10, 0.52, face="#FFFFFF", hatch="/////", edge="#999999"),
    "network": BarStyle(0.66, 0.24, face="#E69F00", hatch="", edge="#E69F00"),
}
"""Styles by kind of bar; in grey print they are dark, hatched and light."""
MAX_NAMED_WORKERS = 16
MAX_SPANS = 50_000


def timeline_strip(
    timeline: Mapping[str, ArrayLike], *, first_s: float = 0.0, last_s: float | None = None, title: str = ""
) -> Figure:
    """Draw one row per worker: its compute stream above (computing or waiting), its network activity below.

    The number at the right of a row is the share of the shown time in which the worker computes.

    Args:
        timeline: columns of one length: worker, stream, what, start_s, end_s; other columns are ignored.
            On the stream "compute", the kinds "wait" and "recv" are waiting and all others are computing; any other
            stream is the network.
        last_s: its end; by default the last end in the timeline.

    Raises:
        SpecError: a column is missing, the columns differ in length, or nothing lies in the shown time.
    """
    columns = _check_columns(timeline)
    if last_s is None:
        last_s = float(columns["end_s"].max(initial=first_s))
    is_inside = (columns["end_s"] > first_s) & (columns["start_s"] < last_s)
    if not is_inside.any():
        raise SpecError("timeline", f"no span between {first_s:g} s and {last_s:g} s", "at least one span to show")
    if is_inside.sum() > MAX_SPANS:
        raise SpecError("timeline", f"{is_inside.sum():,} spans", f"at most {MAX_SPANS:,}; set first_s and last_s")
    columns = {name: column[is_inside] for name, column in columns.items()}
    start = np.maximum(columns["start_s"], first_s)  # spans are cut at the limits of the shown time
    end = np.minimum(columns["end_s"], last_s)
    kinds = np.where(np.isin(columns["what"], WAITING_ACTIVITIES), "wait", "compute")
    kinds[columns["stream"] != "compute"] = "network"
    workers = np.unique(columns["worker"])
    rows = np.searchsorted(workers, columns["worker"])  # row of each span
    unit, unit_s = time_unit(last_s - first_s)
    with figure_style():
        fig = new_figure(7.0, 0.95 + min(0.34 * workers.size, 4.5))  # a row of 0.34 inches for each worker, up to 4.5
        ax = fig.add_subplot()
        for kind in BAR_STYLES:
            is_kind = kinds == kind
            _draw_spans(ax, kind, rows[is_kind], start[is_kind] / unit_s, length=(end - start)[is_kind] / unit_s)
        is_computing = kinds == "compute"
        computing_s = np.bincount(rows[is_computing], (end - start)[is_computing], minlength=workers.size)
        _label_rows(ax, workers, computing_s / (last_s - first_s))
        ax.set_xlim(first_s / unit_s, last_s / unit_s)
        ax.set_xlabel(f"time ({unit})")
        ax.xaxis.set_major_locator(MaxNLocator(8))
        ax.set_title(title, loc="left")
        handles = []
        for kind, bar in BAR_STYLES.items():
            if (kinds == kind).any():
                patch = Patch(facecolor=bar.face, edgecolor=bar.edge, hatch=bar.hatch, linewidth=0.4, label=kind)
                handles.append(patch)
        fig.legend(handles=handles, loc="outside upper right", ncols=len(BAR_STYLES), handlelength=1.6)
    return fig


def _check_columns(timeline: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
    """Return the columns of a timeline as arrays; refuse missing columns and different lengths."""
    missing = [name for name in COLUMNS if name not in timeline]
    if missing:
        raise SpecError("timeline", sorted(timeline), f"the columns {', '.join(COLUMNS)}; {missing[0]!r} is missing")
    columns = {name: np.asarray(timeline[name]) for name in COLUMNS}
    if len({column.shape for column in columns.values()}) > 1 or columns["worker"].ndim != 1:
        raise SpecError("timeline", {name: c.shape for name, c in columns.items()}, "rows of one length")
    return columns


def _draw_spans(ax: Axes, kind: str, rows: NDArray[Any], start: NDArray[Any], length: NDArray[Any]) -> None:
    """Draw the spans of one kind as bars in the rows of their workers.

    Args:
        kind: a key of `BAR_STYLES`.
        rows: (n,) row of each span.
        start: (n,) start of each span in the axis's unit of time.
        length: (n,) length of each span in this unit.
    """
    bar = BAR_STYLES[kind]
    # A hairline between neighbours shows where one step ends, but must not paint over short spans or thin rows.
    has_hairline = np.unique(rows).size <= MAX_NAMED_WORKERS and start.size < 1000
    ax.bar(x=start, height=bar.height, width=length, bottom=rows + bar.top, align="edge", color=bar.face,
           edgecolor=bar.edge if bar.hatch else "white", hatch=bar.hatch, linewidth=0.4 if has_hairline else 0.0,
           label=kind)  # fmt: skip


def _label_rows(ax: Axes, workers: NDArray[Any], computing_share: NDArray[Any]) -> None:
    """Name the rows of a timeline by their workers, and write each worker's share of computing at the right."""
    label_period = math.ceil(workers.size / MAX_NAMED_WORKERS)
    rows = np.arange(0, workers.size, label_period)
    ax.set_ylim(workers.size, 0)  # the first worker is at the top
    ax.set_yticks(rows + 0.5, [str(workers[row]) for row in rows])
    ax.set_ylabel("worker")
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    for row in rows:
        share = f"{computing_share[row]:.0%}"
        ax.text(1.01, row + 0.5, share, transform=ax.get_yaxis_transform(), va="center", fontsize=7)
    ax.annotate("computes", (1.01, 1), xycoords="axes fraction", xytext=(0, 5), textcoords="offset points",
                fontsize=7, color="#444444")  # fmt: skip


TASK_COLORS = {"forward": "#7fb2e5", "backward": "#8ccf8c", "weight": "#f2c879"}
LATER_CHUNK_COLORS = {"forward": "#3d7ab8", "backward": "#4a9a4a", "weight": "#cf9a35"}
UPDATE = "#c0392b"
DIGIT_WIDTH_IN = 0.055
"""Width in inches of a digit; a narrower task shows no number."""
LEAST_EDGED_WIDTH_IN = 0.04
"""Width in inches below which a task has no edge."""
MOST_WIDTH_IN = 10.0
"""Largest width of the figure in inches."""
ROW_IN, MOST_ROWS_IN = 0.2, 25.0
"""Height of a stage's row, and largest height of all rows together, in inches: many stages have lower rows."""
LEAST_NUMBERED_ROW_IN = 0.1
"""Height in inches below which a row shows no numbers in its tasks."""
MAX_LABELS = 32
"""Largest number of stage labels; with more stages, some have no label."""


class SchedulePanel(NamedTuple):
    """A pipeline's schedule: title, number of stages, tasks; panels with equal ``group`` have equal time axes."""

    title: str
    stages: int
    tasks: Sequence[TaskSpan]
    group: str = ""


def draw_schedules(panels: Sequence[SchedulePanel]) -> Figure:
    """Draw a panel per pipeline schedule: tasks numbered by micro-batch (from 1), a red mark at each update.

    Args:
        panels: the panels from top to bottom; those with the same ``group`` are neighbours.
    """
    if not panels:
        raise SpecError("panels", [], "at least one panel")
    ends_s: dict[str, float] = {}  # last end of a task, by group
    for panel in panels:
        last_s = max((task.end_s for task in panel.tasks), default=0.0)
        ends_s[panel.group] = max(ends_s.get(panel.group, 0.0), last_s)
    shortest = 1.0  # the shortest task as a share of its panel's time
    for panel in panels:
        lengths_s = [task.end_s - task.start_s for task in panel.tasks if task.end_s > task.start_s]
        shortest = min([shortest, *(length_s / ends_s[panel.group] for length_s in lengths_s)])

    # The figure is as wide as the number in the shortest task needs, 0.16 in, and as high as its stages, up to a page.
    width_in = min(MOST_WIDTH_IN, max(5.0, 1.0 + 0.16 / shortest))
    heights = [max(2, panel.stages) for panel in panels]
    row_in = min(ROW_IN, MOST_ROWS_IN / sum(heights))
    is_last_of_group = [panel.group != below.group for panel, below in pairwise(panels)] + [True]
    room_in = sum(0.55 if last else 0.35 for last in is_last_of_group)  # for titles and labels of time axes
    with figure_style():
        fig = new_figure(width_in, 0.55 + room_in + row_in * sum(heights))
        axes = fig.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        for ax, panel, last in zip(axes, panels, is_last_of_group, strict=True):
            end_s = ends_s[panel.group] or 1.0  # any length will do without tasks
            ax.set_xlim(0, end_s)
            seconds_per_inch = end_s / (width_in - 0.9)  # 0.9 inches are labels and margins
            _draw_schedule(ax, panel, seconds_per_inch, shows_numbers=row_in >= LEAST_NUMBERED_ROW_IN)
            unit, unit_s = time_unit(end_s)
            # The distance of ticks is round, so that about eight of them fit.
            min_distance = end_s / unit_s / 8
            power = 10.0 ** math.floor(math.log10(min_distance))
            distance = min(power * factor for factor in (1, 2, 5, 10) if power * factor >= min_distance)
            ax.xaxis.set_major_locator(MultipleLocator(unit_s * distance))
            # The default argument keeps this panel's unit.
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _, unit_s=unit_s: f"{value / unit_s:g}"))
            ax.tick_params(axis="x", labelbottom=last)
            ax.set_xlabel(f"time ({unit})" if last else "")

        kinds = {task.kind for panel in panels for task in panel.tasks}
        names = {"forward": "forward", "backward": "backward", "weight": "weight gradient"}
        handles: list[Artist] = [Patch(color=TASK_COLORS[kind], label=names[kind]) for kind in names if kind in kinds]
        if any(task.chunk for panel in panels for task in panel.tasks):
            handles.append(Patch(color=LATER_CHUNK_COLORS["forward"], label="darker: every second chunk"))
        if any(task.updates for panel in panels for task in panel.tasks):
            handles.append(Line2D([], [], color=UPDATE, marker="^", markersize=4, linestyle="none", label="update"))
        draw_legend(fig, handles)
    return fig


def _draw_schedule(ax: Axes, panel: SchedulePanel, seconds_per_inch: float, *, shows_numbers: bool) -> None:
    """Draw a schedule's tasks as boxes, their micro-batches' numbers where they fit, and the updates.

    Args:
        seconds_per_inch: scale of the time axis.
        shows_numbers: whether tasks that are long enough show the numbers of their micro-batches.
    """
    half_height = 0.42  # of a box; stages are 1 apart
    for parity, colors in ((0, TASK_COLORS), (1, LATER_CHUNK_COLORS)):  # every second chunk is darker
        for kind, color in colors.items():
            patches, edges = [], []
            for task in panel.tasks:
                if task.kind == kind and task.chunk % 2 == parity:
                    length_s = task.end_s - task.start_s
                    patches.append(Rectangle((task.start_s, task.stage - half_height), length_s, 2 * half_height))
                    is_wide = length_s >= LEAST_EDGED_WIDTH_IN * seconds_per_inch
                    edges.append("white" if is_wide else color)  # a white edge would hide a narrow task
            ax.add_collection(PatchCollection(patches, facecolor=color, edgecolor=edges, linewidth=0.4))
    num_digits = len(str(1 + max((task.microbatch for task in panel.tasks), default=0)))
    number_width_s = num_digits * DIGIT_WIDTH_IN * seconds_per_inch * 1.3  # with a margin
    for task in panel.tasks:
        number, length_s = str(task.microbatch + 1), task.end_s - task.start_s
        if shows_numbers and length_s >= number_width_s:
            ax.text(task.start_s + length_s / 2, task.stage, number, ha="center", va="center_baseline", fontsize=6,
                    color="white" if task.chunk % 2 else "black")  # fmt: skip
    update_times_s = [task.end_s for task in panel.tasks if task.updates]
    if update_times_s:
        update_heights = [task.stage + half_height for task in panel.tasks if task.updates]
        ax.plot(update_times_s, update_heights, "^", markersize=3, color=UPDATE, clip_on=False, zorder=4)
    ax.set_ylim(panel.stages - 0.4, -0.6)  # the first stage is at the top
    labelled_stages = range(0, panel.stages, math.ceil(panel.stages / MAX_LABELS))
    ax.set_yticks(labelled_stages, [f"{stage + 1}" for stage in labelled_stages])
    ax.set_ylabel("stage")
    ax.tick_params(axis="y", length=0)
    ax.set_title(panel.title, loc="left")
    ax.grid(False)


def ages_and_contributions(ages: Mapping[str, Sequence[int]], contributions: Mapping[str, Sequence[int]]) -> Figure:
    """Draw the share of updates per age (left) and the share of updates per worker, in descending order (right).

    Args:
        ages: method -> number of updates of each age, from 0 on, in versions of the server's model.
        contributions: method -> number of updates of each worker.

    Raises:
        SpecError: there is no method, or one without updates.
    """
    if not ages or any(sum(counts) == 0 for counts in (*ages.values(), *contributions.values())):
        raise SpecError("ages", {name: list(counts) for name, counts in ages.items()}, "methods with updates")
    styles = method_styles(ages)
    with figure_style():
        fig = new_figure(6.4, 2.6)
        age_axes, worker_axes = fig.subplots(1, 2)
        for name, counts in ages.items():
            counts_by_worker = sorted(contributions[name], reverse=True)
            line = {"color": styles[name].color, "linestyle": styles[name].linestyle, "linewidth": 1.4}
            for ax, numbers, first_x in ((age_axes, counts, 0), (worker_axes, counts_by_worker, 1)):
                shares = np.asarray(numbers, dtype=np.float64) / sum(numbers)
                edges = np.arange(len(numbers) + 1) + (first_x - 0.5)  # a stair is centred on its age or worker
                ax.stairs(shares, edges, **line)
        age_axes.set_xlabel("age in versions of the model")
        worker_axes.set_xlabel("worker, the most frequent first")
        for ax in (age_axes, worker_axes):
            ax.set_ylabel("share of updates")
            ax.set_ylim(bottom=0)
            ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend_above(fig, styles)
    return fig


_SECONDS_COLORS = LinearSegmentedColormap.from_list("seconds", ["#FFFFFF", "#0072B2", "#00202F"])
_MATRICES_PER_ROW = 4

_LONGEST_NAME = 28
"""Letters of a method's name that fit above its matrix."""


def waiting_matrix(waiting_s: Mapping[str, np.ndarray]) -> Figure:
    """Draw how long each worker (row) waited for each other worker (column) at the server, as a matrix per method.

    An update waits at the server until another worker's update completes the model's next version.

    Args:
        waiting_s: method -> seconds ``(P, P)``; all methods share one scale.

    Raises:
        SpecError: there is no method, or a table that is not square.
    """
    shapes = {name: seconds.shape for name, seconds in waiting_s.items()}
    if not shapes or any(len(shape) != 2 or shape[0] != shape[1] or not shape[0] for shape in shapes.values()):
        raise SpecError("waits", shapes, "a square table of each method")
    longest_s = max(float(seconds.max()) for seconds in waiting_s.values()) or 1.0  # any scale if all is 0
    num_columns = min(len(waiting_s), _MATRICES_PER_ROW)
    num_rows = math.ceil(len(waiting_s) / num_columns)
    with figure_style():
        fig = new_figure(1.2 + 2.0 * num_columns, 0.5 + 2.1 * num_rows)
        axes = panel_grid(fig, len(waiting_s), num_columns, shared=False)
        for ax, (name, seconds) in zip(axes, waiting_s.items(), strict=True):
            image = ax.imshow(seconds, cmap=_SECONDS_COLORS, vmin=0.0, vmax=longest_s, origin="upper")
            title = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
            ax.set_title(title, fontsize="small")
            ax.set_xlabel("for worker")
            ax.set_ylabel("worker waits")
            ax.grid(False)
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        fig.colorbar(image, ax=axes, label="seconds", shrink=0.8)
    return fig
