"""Disturbances of workers: ``compute`` (time of a step), ``stragglers``, ``faults`` (of their links)."""
