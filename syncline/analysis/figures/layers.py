"""What measures along a training found layer by layer: a panel per measure, a line per layer, a mark per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from syncline.analysis.figures.axes import legend_above, new_figure
from syncline.analysis.figures.style import MethodStyle, figure_style, method_styles
from syncline.errors import SpecError

ByLayer = Mapping[str, Mapping[str, Sequence[float]]]
"""Method -> layer -> values of its seeds and steps."""

RANGE = 100.0
"""Of the largest value over the smallest, all above 0, from which an axis is logarithmic."""

PANELS = 3
"""Beside each other."""


def measures_by_layer(measured: Mapping[str, ByLayer], *, title: str = "") -> Figure:
    """The median of each layer as a mark, from the lowest to the highest value a line; layers in the order they came.

    Args:
        measured: measure -> method -> layer -> values.
        title: an optional title.

    Returns:
        the figure.

    Raises:
        SpecError: there is no measure with a layer.
    """
    layers = list(dict.fromkeys(layer for of in measured.values() for found in of.values() for layer in found))
    if not layers:
        raise SpecError("measured", dict(measured), "at least one measure of at least one layer")
    styles = method_styles(list(dict.fromkeys(method for of in measured.values() for method in of)))
    shown = [(name, of) for name, of in measured.items() if any(of.values())]
    columns = min(PANELS, len(shown))
    rows = -(-len(shown) // columns)
    with figure_style():
        fig = new_figure(1.6 + 2.3 * columns, rows * (0.7 + 0.16 * len(layers)) + 0.6)
        axes = fig.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for ax, (name, of) in zip(axes, shown, strict=False):
            _draw(ax, of, layers, styles)
            ax.set_xlabel(name.replace("_", " "))
        for ax in axes[::columns]:
            ax.set_ylabel("layer")
        for ax in axes[len(shown) :]:
            ax.set_visible(False)
        legend_above(fig, styles, title)
    return fig


def _draw(ax: Axes, of: ByLayer, layers: Sequence[str], styles: Mapping[str, MethodStyle]) -> None:
    values = [value for found in of.values() for seen in found.values() for value in seen]
    if min(values) > 0 and max(values) > RANGE * min(values):
        ax.set_xscale("log")
    for place, (method, found) in enumerate(of.items()):
        style = styles[method]
        own = [layer for layer in layers if found.get(layer)]
        at = [layers.index(layer) + 0.5 * (place + 0.5) / len(of) - 0.25 for layer in own]
        ax.hlines(at, [min(found[o]) for o in own], [max(found[o]) for o in own], color=style.color, alpha=0.4)
        ax.plot([median(found[o]) for o in own], at, linestyle="none", marker=style.marker, color=style.color,
                markersize=3.5)  # fmt: skip
    ax.set_yticks(range(len(layers)), layers, fontsize=6)
    ax.set_ylim(len(layers) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
