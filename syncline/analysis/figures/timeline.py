"""Timeline of the workers: computing, waiting and network activity over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from syncline.analysis.figures.axes import new_figure, time_unit
from syncline.analysis.figures.style import figure_style
from syncline.errors import SpecError

IDLE = ("wait", "recv")  # kinds of spans in which a compute stream only waits for the network
COLUMNS = ("worker", "stream", "what", "start_s", "end_s")

# kind -> top and height within a worker's row of height 1, face, hatch, edge. In grey print: dark, hatched, light.
KINDS: dict[str, tuple[float, float, str, str, str]] = {
    "compute": (0.10, 0.52, "#0072B2", "", "#0072B2"),
    "wait": (0.10, 0.52, "#FFFFFF", "/////", "#999999"),
    "network": (0.66, 0.24, "#E69F00", "", "#E69F00"),
}
MOST_NAMED_WORKERS = 16
MOST_SPANS = 50_000


def timeline_strip(
    timeline: Mapping[str, ArrayLike], *, first_s: float = 0.0, last_s: float | None = None, title: str = ""
) -> Figure:
    """Draw one row per worker: its compute stream above (computing or waiting), its network activity below.

    The number at the right of a row is the share of the shown time in which the worker computes.

    Args:
        timeline: columns of one length: worker, stream, what, start_s, end_s; other columns are ignored.
            On the stream "compute", the kinds "wait" and "recv" are waiting and all others are computing; any other
            stream is the network.
        first_s: start of the shown time.
        last_s: its end; by default the last end in the timeline.
        title: an optional title.

    Raises:
        SpecError: a column is missing, the columns differ in length, or nothing lies in the shown time.
    """
    columns = _columns(timeline)
    last_s = float(columns["end_s"].max(initial=first_s)) if last_s is None else last_s
    inside = (columns["end_s"] > first_s) & (columns["start_s"] < last_s)
    if not inside.any():
        raise SpecError("timeline", f"no span between {first_s:g} s and {last_s:g} s", "at least one span to show")
    if inside.sum() > MOST_SPANS:
        raise SpecError("timeline", f"{inside.sum():,} spans", f"at most {MOST_SPANS:,}; set first_s and last_s")
    columns = {name: column[inside] for name, column in columns.items()}
    start, end = np.maximum(columns["start_s"], first_s), np.minimum(columns["end_s"], last_s)
    on_network, idle = columns["stream"] != "compute", np.isin(columns["what"], IDLE)
    kind = np.where(on_network, "network", np.where(idle, "wait", "compute"))
    workers = np.unique(columns["worker"])
    row = np.searchsorted(workers, columns["worker"])
    unit, unit_s = time_unit(last_s - first_s)
    with figure_style():
        fig = new_figure(7.0, 0.95 + min(0.34 * workers.size, 4.5))
        ax = fig.add_subplot()
        for name in KINDS:
            mine = kind == name
            _draw_spans(ax, name, row[mine], start[mine] / unit_s, (end - start)[mine] / unit_s)
        computing_s = np.bincount(row[kind == "compute"], (end - start)[kind == "compute"], minlength=workers.size)
        _label_rows(ax, workers, computing_s / (last_s - first_s))
        ax.set_xlim(first_s / unit_s, last_s / unit_s)
        ax.set_xlabel(f"time ({unit})")
        ax.xaxis.set_major_locator(MaxNLocator(8))
        ax.set_title(title, loc="left")
        handles = [
            Patch(facecolor=face, edgecolor=edge, hatch=hatch, linewidth=0.4, label=name)
            for name, (_, _, face, hatch, edge) in KINDS.items()
            if (kind == name).any()
        ]
        fig.legend(handles=handles, loc="outside upper right", ncols=len(KINDS), handlelength=1.6)
    return fig


def _columns(timeline: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
    """Return the checked columns of a timeline as arrays."""
    missing = [name for name in COLUMNS if name not in timeline]
    if missing:
        raise SpecError("timeline", sorted(timeline), f"the columns {', '.join(COLUMNS)}; {missing[0]!r} is missing")
    columns = {name: np.asarray(timeline[name]) for name in COLUMNS}
    if len({column.shape for column in columns.values()}) > 1 or columns["worker"].ndim != 1:
        raise SpecError("timeline", {name: c.shape for name, c in columns.items()}, "rows of one length")
    return columns


def _draw_spans(ax: Axes, kind: str, row: NDArray[Any], start: NDArray[Any], length: NDArray[Any]) -> None:
    """Draw the spans of one kind as bars in the rows of their workers."""
    below, height, face, hatch, edge = KINDS[kind]
    # A hairline between neighbours shows where one step ends, but must not paint over short spans or thin rows.
    hairline = 0.4 if np.unique(row).size <= MOST_NAMED_WORKERS and start.size < 1000 else 0.0
    ax.bar(start, height, length, row + below, align="edge", color=face, edgecolor=edge if hatch else "white",
           hatch=hatch, linewidth=hairline, label=kind)  # fmt: skip


def _label_rows(ax: Axes, workers: NDArray[Any], computing: NDArray[Any]) -> None:
    """Name the rows, and write the share of computing at the right of each."""
    every = -(-workers.size // MOST_NAMED_WORKERS)
    rows = np.arange(0, workers.size, every)
    ax.set_ylim(workers.size, 0)
    ax.set_yticks(rows + 0.5, [str(workers[i]) for i in rows])
    ax.set_ylabel("worker")
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    for i in rows:
        ax.text(1.01, i + 0.5, f"{computing[i]:.0%}", transform=ax.get_yaxis_transform(), va="center", fontsize=7)
    ax.annotate("computes", (1.01, 1), xycoords="axes fraction", xytext=(0, 5), textcoords="offset points",
                fontsize=7, color="#444444")  # fmt: skip
