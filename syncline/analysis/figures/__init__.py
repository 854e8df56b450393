"""Figures for print: each function takes data and returns a ``matplotlib.figure.Figure``; ``save`` writes it."""
