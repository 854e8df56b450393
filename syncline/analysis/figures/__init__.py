"""Figures for print: each function takes data and returns a ``matplotlib.figure.Figure``; ``save`` writes it."""

from syncline.analysis.figures.axes import (
    draw_legend,
    draw_line,
    draw_points,
    label_ends,
    legend_above,
    line_samples,
    new_figure,
    place_ticks,
    save,
    spread_positions,
    time_ticks,
)
from syncline.analysis.figures.collectives import SizePanel, cost_against_size
from syncline.analysis.figures.landscape import Surface, distance_over_steps, landscape_convergence
from syncline.analysis.figures.loss import loss_against_clock, loss_against_steps
from syncline.analysis.figures.timeline import timeline_strip

__all__ = [
    "SizePanel",
    "Surface",
    "cost_against_size",
    "distance_over_steps",
    "draw_legend",
    "draw_line",
    "draw_points",
    "label_ends",
    "landscape_convergence",
    "legend_above",
    "line_samples",
    "loss_against_clock",
    "loss_against_steps",
    "new_figure",
    "place_ticks",
    "save",
    "spread_positions",
    "time_ticks",
    "timeline_strip",
]
