"""Trainings with late gradients: what a pipeline's stages do to a loss, and when their updates are done.

``setting`` is what is trained; ``delay_line`` trains it where weights are stashed, ``by_events`` where they are not,
with the ``rates`` of either; ``updates`` is the clock of both kinds of pipeline; ``staged`` puts training and clock
together for runs.
"""
