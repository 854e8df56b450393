"""Statistics of curves and of ranks, from plain arrays."""
