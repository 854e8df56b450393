"""Values of measures per layer: a panel per measure, a line per layer, a mark per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from syncline import SpecError
from syncline.analysis import MethodStyle, figure_style, method_styles
from syncline.analysis.axes import legend_above, new_figure

ByLayer = Mapping[str, Mapping[str, Sequence[float]]]
"""Method -> layer -> values of its seeds and steps."""

RANGE = 100.0
"""Ratio of the largest to the smallest value, all above 0, from which an axis is logarithmic."""

PANELS = 3
"""Number of panels in a row."""


def measures_by_layer(measured: Mapping[str, ByLayer], *, title: str = "") -> Figure:
    """Draw each layer's median as a mark and its range as a line; layers are in the order of their first appearance.

    Args:
        measured: measure -> method -> layer -> values.
        title: an optional title.

    Returns:
        the figure.

    Raises:
        SpecError: there is no measure with a layer.
    """
    layers = list(
        dict.fromkeys(
            layer for methods in measured.values() for layer_values in methods.values() for layer in layer_values
        )
    )
    if not layers:
        raise SpecError("measured", dict(measured), "at least one measure of at least one layer")
    styles = method_styles(list(dict.fromkeys(method for methods in measured.values() for method in methods)))
    shown = [(name, methods) for name, methods in measured.items() if any(methods.values())]
    columns = min(PANELS, len(shown))
    rows = -(-len(shown) // columns)
    with figure_style():
        fig = new_figure(1.6 + 2.3 * columns, rows * (0.7 + 0.16 * len(layers)) + 0.6)
        axes = fig.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for ax, (name, methods) in zip(axes, shown, strict=False):
            _draw(ax, methods, layers, styles)
            ax.set_xlabel(name.replace("_", " "))
        for ax in axes[::columns]:
            ax.set_ylabel("layer")
        for ax in axes[len(shown) :]:
            ax.set_visible(False)
        legend_above(fig, styles, title)
    return fig


def _draw(ax: Axes, methods: ByLayer, layers: Sequence[str], styles: Mapping[str, MethodStyle]) -> None:
    values = [value for by_layer in methods.values() for seen in by_layer.values() for value in seen]
    if min(values) > 0 and max(values) > RANGE * min(values):
        ax.set_xscale("log")
    for place, (method, by_layer) in enumerate(methods.items()):
        style = styles[method]
        shown_layers = [layer for layer in layers if by_layer.get(layer)]
        heights = [layers.index(layer) + 0.5 * (place + 0.5) / len(methods) - 0.25 for layer in shown_layers]
        ax.hlines(
            heights, [min(by_layer[layer]) for layer in shown_layers],
            [max(by_layer[layer]) for layer in shown_layers], color=style.color, alpha=0.4,
        )  # fmt: skip
        ax.plot([median(by_layer[layer]) for layer in shown_layers], heights, linestyle="none", marker=style.marker,
                color=style.color, markersize=3.5)  # fmt: skip
    ax.set_yticks(range(len(layers)), layers, fontsize=6)
    ax.set_ylim(len(layers) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
