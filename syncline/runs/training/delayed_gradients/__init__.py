"""Trainings with late gradients: the effect of a pipeline's stages on the loss, and the times of their updates.

``setting`` has the configuration; ``delay_line`` trains it if stages stash their weights, ``by_events`` if not; both
use its ``rates``; ``updates`` is the clock of both kinds of pipeline; ``staged`` combines training and clock for runs.
"""
