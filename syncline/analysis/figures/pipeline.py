"""Pipeline schedules in their usual picture: a row per stage, forwards and backwards with their micro-batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MultipleLocator

from syncline.analysis.figures.axes import draw_legend, new_figure, time_unit
from syncline.analysis.figures.style import figure_style
from syncline.errors import SpecError
from syncline.sim.pipelines.report import TaskSpan

COLORS = {"forward": "#7fb2e5", "backward": "#8ccf8c", "weight": "#f2c879"}
LATER_CHUNKS = {"forward": "#3d7ab8", "backward": "#4a9a4a", "weight": "#cf9a35"}
UPDATE = "#c0392b"
DIGIT_IN = 0.055
"""Width in inches of a digit; a narrower task shows no number."""
EDGED_IN = 0.04
"""Width in inches below which a task has no edge."""
MOST_NUMBERS_IN = 10.0
"""The widest picture, in inches."""
ROW_IN, MOST_ROWS_IN = 0.2, 25.0
"""Height of a stage's row, and largest height of all rows together, in inches: many stages have lower rows."""
NUMBERED_IN = 0.1
"""Height in inches below which a row shows no numbers in its tasks."""
MOST_LABELS = 32
"""Largest number of stage labels; with more stages, some have no label."""


class SchedulePanel(NamedTuple):
    """A schedule: its title, its number of stages, its tasks; panels of one ``group`` share their time axis."""

    title: str
    stages: int
    tasks: Sequence[TaskSpan]
    group: str = ""


def draw_schedules(panels: Sequence[SchedulePanel]) -> Figure:
    """Draw a panel per schedule: tasks numbered by micro-batch (from 1), a red mark at each update.

    Args:
        panels: the panels from top to bottom; panels of a group follow each other.

    Raises:
        SpecError: there is no panel.
    """
    if not panels:
        raise SpecError("panels", [], "at least one panel")
    ends_s = {
        panel.group: max(
            (task.end_s for other in panels if other.group == panel.group for task in other.tasks), default=0.0
        )
        for panel in panels
    }
    lengths = [
        (task.end_s - task.start_s) / ends_s[panel.group]
        for panel in panels
        for task in panel.tasks
        if task.end_s > task.start_s
    ]
    width_in = min(MOST_NUMBERS_IN, max(5.0, 1.0 + 0.16 / min(lengths, default=1.0)))
    heights = [max(2, panel.stages) for panel in panels]
    row_in = min(ROW_IN, MOST_ROWS_IN / sum(heights))
    lasts = [panel.group != below.group for panel, below in pairwise(panels)] + [True]
    room_in = sum(0.55 if last else 0.35 for last in lasts)
    with figure_style():
        fig = new_figure(width_in, 0.55 + room_in + row_in * sum(heights))
        axes = fig.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        for ax, panel, last in zip(axes, panels, lasts, strict=True):
            end_s = ends_s[panel.group] or 1.0
            ax.set_xlim(0, end_s)
            _draw(ax, panel, inch_s=end_s / (width_in - 0.9), numbered=row_in >= NUMBERED_IN)
            unit, unit_s = time_unit(end_s)
            power = 10.0 ** math.floor(
                math.log10(end_s / unit_s / 8)
            )  # a round distance, so that about eight ticks fit
            tick = next(power * times for times in (1, 2, 5, 10) if power * times >= end_s / unit_s / 8)
            ax.xaxis.set_major_locator(MultipleLocator(unit_s * tick))
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _, unit_s=unit_s: f"{value / unit_s:g}"))
            ax.tick_params(axis="x", labelbottom=last)
            ax.set_xlabel(f"time ({unit})" if last else "")
        kinds = {task.kind for panel in panels for task in panel.tasks}
        names = {"forward": "forward", "backward": "backward", "weight": "weight gradient"}
        handles: list[Artist] = [Patch(color=COLORS[kind], label=name) for kind, name in names.items() if kind in kinds]
        if any(task.chunk for panel in panels for task in panel.tasks):
            handles.append(Patch(color=LATER_CHUNKS["forward"], label="darker: every second chunk"))
        if any(task.updates for panel in panels for task in panel.tasks):
            handles.append(Line2D([], [], color=UPDATE, marker="^", markersize=4, linestyle="none", label="update"))
        draw_legend(fig, handles)
    return fig


def _draw(ax: Axes, panel: SchedulePanel, inch_s: float, *, numbered: bool) -> None:
    """Draw tasks as boxes, their numbers where they fit, and the updates; an inch is ``inch_s`` seconds."""
    shades = [(name, later) for later in (False, True) for name in COLORS]
    for name, later in shades:
        mine = [task for task in panel.tasks if task.kind == name and bool(task.chunk % 2) == later]
        color = (LATER_CHUNKS if later else COLORS)[name]
        patches = [Rectangle((task.start_s, task.stage - 0.42), task.end_s - task.start_s, 0.84) for task in mine]
        # A white edge would hide a narrow task.
        edges = ["white" if task.end_s - task.start_s >= EDGED_IN * inch_s else color for task in mine]
        ax.add_collection(PatchCollection(patches, facecolor=color, edgecolor=edges, linewidth=0.4))
    digits = len(str(1 + max((task.microbatch for task in panel.tasks), default=0)))
    for task in panel.tasks if numbered else ():
        text, length_s = str(task.microbatch + 1), task.end_s - task.start_s
        if length_s >= digits * DIGIT_IN * inch_s * 1.3:
            ax.text(task.start_s + length_s / 2, task.stage, text, ha="center", va="center_baseline", fontsize=6,
                    color="white" if task.chunk % 2 else "black")  # fmt: skip
    marks = [(task.end_s, task.stage + 0.42) for task in panel.tasks if task.updates]
    if marks:
        ax.plot(*zip(*marks, strict=True), "^", markersize=3, color=UPDATE, clip_on=False, zorder=4)
    ax.set_ylim(panel.stages - 0.4, -0.6)
    every = -(-panel.stages // MOST_LABELS)
    ax.set_yticks(range(0, panel.stages, every))
    ax.set_yticklabels([f"{stage + 1}" for stage in range(0, panel.stages, every)])
    ax.set_ylabel("stage")
    ax.tick_params(axis="y", length=0)
    ax.set_title(panel.title, loc="left")
    ax.grid(False)
