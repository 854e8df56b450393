"""Step times relative to the computing time: a dot per method and network, a panel per model."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from syncline.analysis.axes import new_figure
from syncline.analysis.style import figure_style
from syncline.errors import SpecError

MARKS = (("o", "#b8b8b8"), ("D", "#707070"), ("s", "#111111"), ("^", "#404040"), ("v", "#909090"))
"""Marker and grey of each network; colours are reserved for the methods."""


def step_times(panels: Mapping[str, Mapping[str, Mapping[str, float]]], *, title: str = "") -> Figure:
    """Draw step time over computing time on a logarithmic axis; at 1 communication is free.

    Args:
        panels: model -> method -> network -> step time over computing time. Methods are those of the first panel, from
            top to bottom; a panel may lack some of them.
        title: an optional title above all panels.

    Raises:
        SpecError: there is no panel, or more networks than there are marks.
    """
    networks = list(dict.fromkeys(name for rows in panels.values() for row in rows.values() for name in row))
    methods = list(dict.fromkeys(name for rows in panels.values() for name in rows))
    if not methods:
        raise SpecError("panels", dict(panels), "at least one method on one network")
    if len(networks) > len(MARKS):
        raise SpecError("panels", networks, f"at most {len(MARKS)} networks")
    place = {name: len(methods) - 1 - i for i, name in enumerate(methods)}
    highest = max(value for rows in panels.values() for row in rows.values() for value in row.values())
    with figure_style():
        fig = new_figure(0.8 + 0.065 * max(map(len, methods)) + 2.1 * len(panels), 0.9 + 0.2 * len(methods))
        axes = fig.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for ax, (model, rows) in zip(axes, panels.items(), strict=True):
            ax.set_xscale("log")
            ax.set_xlim(0.85, highest * 1.5)
            ax.set_ylim(-0.7, len(methods) - 0.3)
            ax.axvline(1, color="#666666", linewidth=0.8, zorder=1)
            for name, row in rows.items():
                ax.plot([1, max(row.values())], [place[name]] * 2, color="#dddddd", linewidth=1.0, zorder=1)
            for network, (marker, color) in zip(networks, MARKS, strict=False):
                ratios = {name: row[network] for name, row in rows.items() if network in row}
                # White edges separate dots that coincide; the slower network's dot is the upper one.
                ax.plot(list(ratios.values()), [place[name] for name in ratios], linestyle="none", marker=marker,
                        color=color, markersize=5, markeredgecolor="white", markeredgewidth=0.5, clip_on=False,
                        zorder=3, label=network)  # fmt: skip
            ax.set_yticks(list(place.values()), list(place))
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
            ax.xaxis.set_minor_formatter(NullFormatter())
            ax.set_xlabel("step / computing")
            ax.set_title(model, loc="left")
        axes[0].set_ylabel("method")
        handles, labels = axes[0].get_legend_handles_labels()
        fig.legend(
            handles, labels, loc="outside upper center", ncols=len(networks), title=title or None, title_fontsize=9
        )
    return fig
