"""Disturbances of workers: ``compute`` (the time of a step), ``faults`` (of their links)."""
