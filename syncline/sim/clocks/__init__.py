"""The clock of a training: when each of its steps ends, and what its time is spent on.

``overlap`` (a step's computing and communication), ``single_collective`` and ``simulated`` (one collective by itself),
``training`` (all steps), ``phases`` (changing workers), ``failing`` (machines that fail).
"""
