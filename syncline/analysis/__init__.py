"""Analysis of runs: their measurements as numbers and as figures for print."""

from syncline.analysis.axes import save
from syncline.analysis.costs import SizePanel, cost_against_size
from syncline.analysis.curves import Curve, SeedSeries, lost_seeds, median_and_range, time_to_target_s
from syncline.analysis.landscape import Surface, distance_over_steps, landscape_convergence
from syncline.analysis.loss import loss_against_clock, loss_against_steps
from syncline.analysis.style import MethodStyle, figure_style, method_styles
from syncline.analysis.timelines import timeline_strip

__all__ = [
    "Curve", "MethodStyle", "SeedSeries", "SizePanel", "Surface", "cost_against_size", "distance_over_steps",
    "figure_style", "landscape_convergence", "loss_against_clock", "loss_against_steps", "lost_seeds",
    "median_and_range", "method_styles", "save", "time_to_target_s", "timeline_strip",
]  # fmt: skip
