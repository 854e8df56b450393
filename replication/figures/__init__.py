"""Figures of the papers' evidence: each function takes data and returns a ``matplotlib.figure.Figure``."""
