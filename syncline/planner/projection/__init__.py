"""Closed-form projections without training: step times, speedups, thresholds, memory, and tables of papers."""
