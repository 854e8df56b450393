"""Analysis of runs: their measurements as numbers and as figures for print."""

from syncline.analysis.figures.axes import save
from syncline.analysis.figures.collectives import SizePanel, cost_against_size
from syncline.analysis.figures.landscape import Surface, distance_over_steps, landscape_convergence
from syncline.analysis.figures.loss import loss_against_clock, loss_against_steps
from syncline.analysis.figures.style import MethodStyle, figure_style, method_styles
from syncline.analysis.figures.timeline import timeline_strip
from syncline.analysis.statistics.curves import (
    Curve,
    SeedSeries,
    lost_seeds,
    median_and_range,
    smooth,
    time_to_target_s,
)  # fmt: skip

__all__ = [
    "Curve", "MethodStyle", "SeedSeries", "SizePanel", "Surface", "cost_against_size", "distance_over_steps",
    "figure_style", "landscape_convergence", "loss_against_clock", "loss_against_steps", "lost_seeds",
    "median_and_range", "method_styles", "save", "smooth", "time_to_target_s", "timeline_strip",
]  # fmt: skip
