"""The clock of a training, and its variants.

``training`` (its steps), ``overlap`` (communication that overlaps with computing), ``phases`` (changing workers),
``failing`` (machines that fail).
"""
