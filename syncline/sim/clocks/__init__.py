"""The clock of a training.

``training`` (its steps), ``overlap`` (beside computing), ``phases`` (workers come and go).
"""
