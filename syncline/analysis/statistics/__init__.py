"""Statistics of curves, from plain arrays."""
