"""Trainings with late gradients: the effect of a pipeline's stages on the loss, and the times of their updates.

``delay_line`` has the configuration, and trains it if stages stash their weights; ``event_driven`` trains it if they do
not. ``updates`` is the clock of both kinds of pipeline; ``pipeline_training`` combines training and clock for runs.
"""
