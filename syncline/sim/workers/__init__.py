"""Disturbances of workers: ``compute`` (of the time of a step), ``faults`` (of links and messages)."""
