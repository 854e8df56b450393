"""Trainings with late gradients: the effect of a pipeline's stages on the loss, and the times of their updates.

``delay_line`` has the configuration, and trains it if stages stash their weights; ``pipeline_training`` trains it by
events if they do not, and combines training and clock for runs. ``updates`` is the clock of both kinds of pipeline.
"""
