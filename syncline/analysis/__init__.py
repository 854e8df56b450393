"""Analysis of runs: their measurements as numbers and as figures for print."""

from syncline.analysis.figures import (
    SizePanel,
    Surface,
    cost_against_size,
    distance_over_steps,
    landscape_convergence,
    loss_against_clock,
    loss_against_steps,
    save,
    timeline_strip,
)
from syncline.analysis.figures.style import MethodStyle, figure_style, method_styles
from syncline.analysis.statistics.curves import (
    Curve,
    SeedSeries,
    lost_seeds,
    median_and_range,
    smooth,
    time_to_target_s,
)

__all__ = [
    "Curve",
    "MethodStyle",
    "SeedSeries",
    "SizePanel",
    "Surface",
    "cost_against_size",
    "distance_over_steps",
    "figure_style",
    "landscape_convergence",
    "loss_against_clock",
    "loss_against_steps",
    "lost_seeds",
    "median_and_range",
    "method_styles",
    "save",
    "smooth",
    "time_to_target_s",
    "timeline_strip",
]
