"""Figures for print: each function takes data and returns a ``matplotlib.figure.Figure``; ``save`` writes it."""

from syncline.analysis.figures.axes import save
from syncline.analysis.figures.collectives import SizePanel, cost_against_size
from syncline.analysis.figures.landscape import Surface, distance_over_steps, landscape_convergence
from syncline.analysis.figures.loss import loss_against_clock, loss_against_steps
from syncline.analysis.figures.timeline import timeline_strip

__all__ = [
    "SizePanel",
    "Surface",
    "cost_against_size",
    "distance_over_steps",
    "landscape_convergence",
    "loss_against_clock",
    "loss_against_steps",
    "save",
    "timeline_strip",
]
