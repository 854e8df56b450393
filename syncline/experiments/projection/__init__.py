"""The clock alone, in closed form: steps, speedups, thresholds, memory, and the papers' own tables."""
