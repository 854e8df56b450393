"""A pipeline schedule as the picture people know: a row per stage, forwards and backwards with their micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from syncline.analysis.figures.axes import new_figure, time_unit
from syncline.analysis.style import figure_style
from syncline.errors import SpecError

COLORS = {"forward": "#7fb2e5", "backward": "#8ccf8c", "weight": "#f2c879"}
LATER_CHUNKS = {"forward": "#3d7ab8", "backward": "#4a9a4a", "weight": "#cf9a35"}
UPDATE = "#c0392b"
DIGIT_IN = 0.055
"""What a digit takes in the picture: where a box is narrower, its number is left out."""
MOST_NUMBERS_IN = 10.0
"""The widest picture, in inches."""


class Box(NamedTuple):
    """A task on the picture: its stage, kind, micro-batch, chunk, when, and whether an update follows it."""

    stage: int
    kind: str
    microbatch: int
    chunk: int
    start_s: float
    end_s: float
    updates: bool


class SchedulePanel(NamedTuple):
    """A schedule: its title, its number of stages, its tasks."""

    title: str
    stages: int
    boxes: Sequence[Box]


def draw_schedules(panels: Sequence[SchedulePanel]) -> Figure:
    """A panel per schedule, all on one time axis: boxes numbered by micro-batch (from 1), a red mark at each update.

    Raises:
        SpecError: there is no panel.
    """
    if not panels:
        raise SpecError("panels", [], "at least one panel")
    end_s = max((box.end_s for panel in panels for box in panel.boxes), default=1.0)
    shortest = min((box.end_s - box.start_s for p in panels for box in p.boxes if box.end_s > box.start_s), default=1.0)
    width_in = min(MOST_NUMBERS_IN, max(5.0, 1.0 + 0.16 * end_s / shortest))
    heights = [max(2, panel.stages) for panel in panels]
    with figure_style():
        fig = new_figure(width_in, 0.75 + sum(0.2 * height + 0.35 for height in heights))
        axes = fig.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for ax, panel in zip(axes, panels, strict=True):
            ax.set_xlim(0, end_s)
            _draw(ax, panel, inch_s=end_s / (width_in - 0.9))
        unit, length_s = time_unit(end_s)
        axes[-1].set_xlabel(f"time ({unit})")
        axes[-1].xaxis.set_major_locator(MaxNLocator(8))
        axes[-1].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / length_s:g}"))
        kinds = {box.kind for panel in panels for box in panel.boxes}
        names = {"forward": "forward", "backward": "backward", "weight": "weight gradient"}
        handles = [Patch(color=COLORS[kind], label=name) for kind, name in names.items() if kind in kinds]
        if any(box.updates for panel in panels for box in panel.boxes):
            handles.append(Patch(color=UPDATE, label="update"))
        fig.legend(handles=handles, loc="outside upper right", ncols=len(handles), frameon=False)
    return fig


def _draw(ax: Axes, panel: SchedulePanel, inch_s: float) -> None:
    for box in panel.boxes:
        color = (LATER_CHUNKS if box.chunk % 2 else COLORS)[box.kind]
        length_s = box.end_s - box.start_s
        ax.broken_barh([(box.start_s, length_s)], (box.stage - 0.42, 0.84), facecolor=color, edgecolor="white",
                       linewidth=0.4)  # fmt: skip
        text = str(box.microbatch + 1)
        if length_s >= len(text) * DIGIT_IN * inch_s * 1.3:
            ax.text(box.start_s + length_s / 2, box.stage, text, ha="center", va="center_baseline", fontsize=6,
                    color="white" if box.chunk % 2 else "black")  # fmt: skip
        if box.updates:
            ax.plot([box.end_s], [box.stage + 0.42], marker="^", markersize=3, color=UPDATE, clip_on=False, zorder=4)
    ax.set_ylim(panel.stages - 0.4, -0.6)
    ax.set_yticks(range(panel.stages))
    ax.set_yticklabels([f"stage {stage + 1}" for stage in range(panel.stages)])
    ax.tick_params(axis="y", length=0)
    ax.set_title(panel.title, loc="left")
    ax.grid(False)
