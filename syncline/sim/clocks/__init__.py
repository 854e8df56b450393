"""The clock of a training: when each of its steps ends, and what its time is spent on.

``overlap`` (a step's computing and communication), ``single_collective`` (one collective by itself), ``training`` (all
steps), ``phases_and_failures`` (changing workers, and machines that fail).
"""
